// SPDX-License-Identifier: Apache-2.0
/* A world of one model, paths added to it one by one, and the question that is asked about it. */
#ifndef LS_TESTS_PLANNING_VERDICT_WORLD_H
#define LS_TESTS_PLANNING_VERDICT_WORLD_H

#include "test.h"

#include "planning/hardware/site.h"
#include "planning/money/runs.h"
#include "planning/money/verdict.h"
#include "planning/shipped.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static inline const ls_node *node_of(const char *name)
{
    const ls_accelerator *accelerator;
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, name, &accelerator), LS_OK);
    return ls_catalogue_usual_node(&catalogue, &arena, accelerator);
}

/* A world of one model: each H100 does `speed` tokens a second, in sizes 8, 16, ... 32,768, and a
 * 4090 a tenth of that. */
typedef struct world {
    ls_workload workload;
    ls_path paths[LS_PATHS_MOST];
    ls_assumptions assumptions;
    ls_path_settings settings;
    ls_question question;
    ls_verdict verdict;
} world;

static world w;

static inline void begin(double parameters, double tokens)
{
    w = (world){
        .workload = {.name = "m",
                     .parameters = parameters,
                     .active_parameters = parameters,
                     .tokens = tokens},
        .assumptions = {.arena = &arena},
        .settings = {.arena = &arena,
                     .assumptions = &w.assumptions,
                     .catalogue = &catalogue,
                     .lead_time_s = -1.0},
    };
    assert_int_equal(ls_site_load(&arena, &catalogue, "", &w.settings.site), LS_OK);
    ls_question_init(&w.question);
    w.question.workloads = &w.workload;
    w.question.workload_count = 1;
    w.question.paths = w.paths;
}

/* The paths of a kind, one for each price. Returns the first. */
static inline ls_path *add(ls_path_kind kind, const char *accelerator, bool is_here)
{
    ls_path *path = &w.paths[w.question.path_count];
    const ls_node *node = accelerator ? node_of(accelerator) : NULL;
    size_t count = 0;
    const ls_path_request request = {kind, node, is_here, LS_PATHS_MOST - w.question.path_count};
    if (ls_path_build(&w.settings, &request, path, &count) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    w.question.path_count += count;
    return path;
}

/* To this path and those behind it. */
static inline void add_sizes(ls_path *first, int64_t from, int64_t to, double tokens_ps_per_gpu)
{
    for (ls_path *path = first; path < w.paths + w.question.path_count; path++) {
        for (int64_t gpus = from; gpus <= to; gpus *= 2) {
            const double tokens_ps = tokens_ps_per_gpu * (double)gpus * pow(0.98, log2((double)gpus));
            const ls_path_size size = {
                .gpus = gpus, .tokens_ps = &tokens_ps, .count = 1, .parameters = w.workload.parameters};
            ls_path_add_point(path, &arena, &size);
        }
    }
}

/* Offers with which buying can pay: at the catalogue's prices of 2026 it hardly does. */
static inline void quote_for_buyers(void)
{
    static const char text[] = "offers:\n  - {name: dear, accelerator: h100, usd: 4.5}\n"
                               "  - {name: maker, kind: purchase, node: DGX-H100, usd: 260000, per: node}\n";
    static ls_quote quote;
    assert_int_equal(ls_quote_parse(&arena, text, sizeof text - 1, "q.yaml", &quote), LS_OK);
    w.settings.quote = &quote;
}

/* The usual four. */
static inline void add_all(double speed)
{
    add_sizes(add(LS_PATH_LOCAL, "RTX-4090-24GB", false), 1, 1, speed / 10.0);
    add_sizes(add(LS_PATH_RENTED, "h100", false), 8, 32768, speed);
    add_sizes(add(LS_PATH_CLOUD, "h100", false), 8, 32768, speed);
    add_sizes(add(LS_PATH_OWNED, "h100", false), 8, 32768, speed);
}

/* Rented and owned H100. */
static inline void add_one_size(int64_t gpus, double speed)
{
    add_sizes(add(LS_PATH_RENTED, "h100", false), gpus, gpus, speed);
    add_sizes(add(LS_PATH_OWNED, "h100", false), gpus, gpus, speed);
}

static inline ls_verdict_kind decide(void)
{
    ls_verdict_compute(&w.question, &w.verdict);
    const ls_verdict *v = &w.verdict;
    assert_true(v->reason[0] != '\0');
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        assert_int_equal(o->possible, o->why_not[0] == '\0');
        assert_true(!o->path->node || isinf(o->days) ||
                    fabs(o->compute_usd + o->storage_usd + o->egress_usd + o->energy_usd + o->staff_usd +
                         o->depreciation_usd + o->other_usd - o->run_usd) < 1e-6 * o->run_usd);
    }
    return v->kind;
}

/* The best of a kind: the chosen one, else the one that comes nearest. */
static inline const ls_path_outcome *outcome(ls_path_kind kind)
{
    const ls_path_outcome *best = NULL;
    for (size_t i = 0; i < w.verdict.outcome_count; i++) {
        const ls_path_outcome *o = &w.verdict.outcomes[i];
        if (o->path->kind == kind && (!best || o->obstacle < best->obstacle ||
                                      (o->obstacle == best->obstacle && o->run_usd < best->run_usd))) {
            best = o;
        }
    }
    assert_non_null(best);
    return best;
}

/* An own offer's, or the catalogue's under the path's name. */
static inline const ls_path_outcome *outcome_named(const char *name)
{
    for (size_t i = 0; i < w.verdict.outcome_count; i++) {
        if (strcmp(w.verdict.outcomes[i].name, name) == 0) {
            return &w.verdict.outcomes[i];
        }
    }
    fail_msg("no path %s", name);
    return NULL;
}

static inline bool is_assumed(const char *text)
{
    ls_verdict_assume(&w.question, &w.verdict, &w.assumptions);
    for (size_t i = 0; i < w.assumptions.count; i++) {
        if (strstr(w.assumptions.items[i], text)) {
            return true;
        }
    }
    return false;
}

#endif

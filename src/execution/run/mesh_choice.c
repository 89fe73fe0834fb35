// SPDX-License-Identifier: Apache-2.0
#include "execution/run/mesh_choice.h"

#include "comm/transport/wait.h"
#include "execution/calibrate/calibrate.h"
#include "execution/run/prediction.h"
#include "execution/train/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One possible mesh. */
typedef struct choice {
    ls_run_parallel parallel;
    ls_own_time time;
} choice;

typedef struct choices {
    const ls_session *session;
    const ls_calibration *calibration;
    ls_run_file run; /* as asked for; its mesh is the one that is tried */
    uint64_t ranks_max;
    choice *found;
    size_t count, room;
} choices;

/* ---- which meshes there are ---- */

static bool is_possible(choices *c)
{
    const ls_status status = ls_run_file_check(&c->run);
    if (status != LS_OK) {
        ls_error_clear();
    }
    return status == LS_OK;
}

static ls_status add_choice(choices *c, const ls_plan *member)
{
    if (c->count == c->room) {
        c->room = c->room > 0 ? 2 * c->room : 64;
        choice *more = realloc(c->found, c->room * sizeof *more);
        if (!more) {
            return ls_fail(LS_ERR_MEMORY, "no memory to compare %zu meshes", c->room);
        }
        c->found = more;
    }
    ls_arena scratch = {0};
    const ls_run_parallel *p = &c->run.parallel;
    c->found[c->count++] =
        (choice){.parallel = *p, .time = ls_prediction_time(c->calibration, c->session, p, member, &scratch)};
    ls_arena_release(&scratch);
    return LS_OK;
}

static ls_status add_schedules(choices *c, const ls_plan *member)
{
    const int asked = c->session->run.parallel.schedule;
    ls_run_parallel *p = &c->run.parallel;
    const bool is_open = asked == LS_RUN_SCHEDULE_AUTO;
    for (int schedule = is_open ? LS_RUN_1F1B : asked; schedule < LS_RUN_SCHEDULE_AUTO; schedule++) {
        p->schedule = schedule;
        if (is_possible(c)) {
            LS_TRY(add_choice(c, member));
        }
        if (!is_open || p->pipeline == 1) {
            break;
        }
    }
    return LS_OK;
}

/* All numbers of ranks for the degrees that are set. */
static ls_status add_ranks(choices *c, const ls_plan *member)
{
    const ls_run_parallel *asked = &c->session->run.parallel;
    ls_run_parallel *p = &c->run.parallel;
    const uint64_t crew = p->tensor * p->context * p->pipeline * p->expert;
    for (uint64_t ranks = crew; ranks <= c->ranks_max; ranks += crew) {
        if ((asked->ranks == LS_AUTO_U64 || ranks == asked->ranks) &&
            (asked->data == LS_AUTO_U64 || ranks == asked->data * crew)) {
            p->ranks = ranks;
            LS_TRY(add_schedules(c, member));
        }
    }
    return LS_OK;
}

static bool is_open_or(uint64_t asked, uint64_t degree)
{
    return asked == LS_AUTO_U64 || asked == degree;
}

/* All numbers of stages for the groups that are set. */
static ls_status add_stages(choices *c)
{
    const ls_run_parallel *asked = &c->session->run.parallel;
    ls_run_parallel *p = &c->run.parallel;
    const uint64_t group = p->tensor * p->context * p->expert, layers = (uint64_t)c->session->config.layers;
    const ls_mesh mesh = {.tensor = (uint32_t)p->tensor,
                          .context = (uint32_t)p->context,
                          .pipeline = 1,
                          .expert = (uint32_t)p->expert};
    ls_arena scratch = {0};
    ls_plan member;
    ls_status status = ls_session_build_member_plan(c->session, &scratch, mesh, 0, &member);
    if (status != LS_OK) { /* not with this model */
        ls_error_clear();
        ls_arena_release(&scratch);
        return LS_OK;
    }
    for (p->pipeline = 1; status == LS_OK && p->pipeline <= layers && p->pipeline * group <= c->ranks_max;
         p->pipeline++) {
        if (is_open_or(asked->pipeline, p->pipeline)) {
            status = add_ranks(c, &member);
        }
    }
    ls_arena_release(&scratch);
    return status;
}

static ls_status add_all(choices *c)
{
    const ls_run_file *run = &c->session->run;
    ls_run_parallel *p = &c->run.parallel;
    for (uint64_t tensor = 1; tensor <= run->train.tensor_cut; tensor++) {
        for (uint64_t context = 1; context <= run->train.sequence_cut; context++) {
            for (uint64_t expert = 1; expert <= LS_EXPERT_DEGREE_MAX; expert *= 2) {
                p->tensor = tensor;
                p->context = context;
                p->expert = expert;
                if (is_open_or(run->parallel.tensor, tensor) && is_open_or(run->parallel.context, context) &&
                    is_open_or(run->parallel.expert, expert)) {
                    LS_TRY(add_stages(c)); /* cuts and experts are checked there */
                }
            }
        }
    }
    return LS_OK;
}

/* ---- the best ---- */

/* Predictions that differ by less than this count as equal, and then the mesh with fewer ranks in a
 * crew is taken, and with fewer ranks: what waits cost is hard to predict. */
static const double close_enough = 1.05;

static uint64_t crew_of(const choice *mesh)
{
    const ls_run_parallel *p = &mesh->parallel;
    return p->tensor * p->context * p->pipeline * p->expert;
}

/* Moves the simplest of the meshes that are about as fast as the first one to the front. */
static void prefer_simple(choice *found, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count && found[i].time.step_s <= close_enough * found[0].time.step_s; i++) {
        const uint64_t crew = crew_of(&found[i]), least = crew_of(&found[best]);
        best = crew < least || (crew == least && found[i].parallel.ranks < found[best].parallel.ranks) ? i
                                                                                                       : best;
    }
    const choice simple = found[best];
    memmove(found + 1, found, best * sizeof *found);
    found[0] = simple;
}

static int by_time(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    return a->time.step_s < b->time.step_s ? -1 : a->time.step_s > b->time.step_s;
}

/* The first from `at` on that fits; c->count: none does. */
static size_t next_that_fits(const choices *c, size_t at)
{
    const uint64_t available = ls_memory_available();
    for (; at < c->count; at++) {
        uint64_t bytes = 0;
        if (ls_session_bytes_divided(c->session, &c->found[at].parallel, &bytes) == LS_OK &&
            bytes <= available) {
            break;
        }
        ls_error_clear();
    }
    return at;
}

/* ---- in words ---- */

static const char *const schedule_names[] = {"1f1b", "interleaved", "zero-bubble"};

/* "4 ranks (data 2, pipeline 2, zero-bubble), 19.1 ms per step". */
static void describe(const choice *mesh, ls_text *text)
{
    const ls_run_parallel *p = &mesh->parallel;
    const struct {
        const char *name;
        uint64_t degree;
    } axes[] = {{"data", p->ranks / (p->tensor * p->context * p->pipeline * p->expert)},
                {"expert", p->expert},
                {"pipeline", p->pipeline},
                {"context", p->context},
                {"tensor", p->tensor}};
    const char *before = " (";
    ls_text_printf(text, "%" PRIu64 " rank%s", p->ranks, p->ranks == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        if (axes[i].degree > 1) {
            ls_text_printf(text, "%s%s %" PRIu64, before, axes[i].name, axes[i].degree);
            before = ", ";
        }
    }
    ls_text_printf(text, "%s%s%s, %.3g ms per step", p->pipeline > 1 ? ", " : "",
                   p->pipeline > 1 ? schedule_names[p->schedule] : "", p->ranks > 1 ? ")" : "",
                   1e3 * mesh->time.step_s);
}

/* Of which term `slow` has most more than `fast`. */
static void explain(const choice *fast, const choice *slow, ls_text *text)
{
    static const char *const subjects[LS_TERM_COUNT] = {[LS_TERM_MATMUL] = "its matrix products take",
                                                        [LS_TERM_ATTENTION] = "its attention takes",
                                                        [LS_TERM_ELEMENTWISE] = "its other kernels take",
                                                        [LS_TERM_TENSOR] = "its tensor groups exchange for",
                                                        [LS_TERM_CONTEXT] = "its context groups exchange for",
                                                        [LS_TERM_PIPELINE] = "its stages copy for",
                                                        [LS_TERM_BUBBLE] = "its stages wait for",
                                                        [LS_TERM_DATA] = "the sums of its gradients take",
                                                        [LS_TERM_OPTIMIZER] = "its update takes",
                                                        [LS_TERM_FIXED] = "its ranks agree for"};
    int most = LS_TERM_MATMUL;
    double more_s = 0.0;
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        const double term_s = slow->time.terms_s[term] - fast->time.terms_s[term];
        if (subjects[term] && term_s > more_s) {
            most = term;
            more_s = term_s;
        }
    }
    if (more_s > 0.0) {
        ls_text_printf(text, ", because %s %.3g ms more", subjects[most], 1e3 * more_s);
    }
}

static void describe_choice(const choices *c, size_t first, ls_text *text)
{
    const choice *chosen = &c->found[first];
    const size_t next = first > 0 ? 0 : next_that_fits(c, 1);
    ls_text_append(text, "parallel: auto is ");
    describe(chosen, text);
    ls_text_printf(text, ": the fastest of %zu mesh%s, to within 5 %%, by this machine's calibration\n",
                   c->count, c->count == 1 ? "" : "es");
    if (next == c->count) {
        ls_text_append(text, "  no other mesh is possible with these ranks, cuts and memory\n");
        return;
    }
    const choice *second = &c->found[next];
    ls_text_append(text, first > 0 ? "  faster, but too large for the free memory: " : "  second: ");
    describe(second, text);
    if (first == 0) {
        explain(chosen, second, text);
    }
    ls_text_append(text, "\n");
}

/* ---- the choice ---- */

/* The batch alone is divided, between as many ranks as are given. */
static ls_status divide_batch(choices *c, const ls_run_parallel *parallel, const char *why_not, ls_text *why)
{
    ls_text_printf(why,
                   "parallel: auto divides only the batch: %s\n"
                   "  other meshes can be chosen with parallel.tensor, parallel.context and "
                   "parallel.pipeline\n",
                   why_not);
    c->run.parallel = *parallel;
    return ls_run_file_check(&c->run);
}

/* As many ranks as are given, or up to one per core. */
static uint64_t most_ranks(const ls_session *session)
{
    const ls_run_file *run = &session->run;
    if (run->parallel.ranks != LS_AUTO_U64) {
        return run->parallel.ranks;
    }
    const uint64_t threads = session->threads_asked > 0 ? session->threads_asked : 1;
    const uint64_t fit = ls_wait_cores() / threads, most = fit < 1 ? 1 : fit;
    return most < run->job.max_ranks ? most : run->job.max_ranks;
}

static ls_status choose(choices *c, ls_run_parallel *parallel, ls_text *why)
{
    LS_TRY(add_all(c));
    if (c->count == 0) { /* the check of what would be left says why */
        c->run.parallel = *parallel;
        LS_TRY(ls_run_file_check(&c->run));
        return ls_fail(LS_ERR_INVALID,
                       "parallel: auto finds no mesh of %" PRIu64 " ranks for this model; set the degrees of "
                       "parallel, or another number of ranks",
                       c->ranks_max);
    }
    qsort(c->found, c->count, sizeof *c->found, by_time);
    prefer_simple(c->found, c->count);
    const size_t fits = next_that_fits(c, 0), first = fits < c->count ? fits : 0;
    *parallel = c->found[first].parallel;
    describe_choice(c, first, why);
    return LS_OK;
}

ls_status ls_mesh_choose(const ls_session *session, ls_run_parallel *parallel, ls_text *why)
{
    ls_arena arena = {0};
    ls_calibration calibration;
    char why_not[320] = "a run on a GPU is one rank";
    choices c = {.session = session,
                 .calibration = &calibration,
                 .run = session->run,
                 .ranks_max = most_ranks(session)};
    ls_status status = LS_OK;
    if (!ls_session_is_on_gpu(session) &&
        ls_calibration_find(&arena, session->queue, &calibration, why_not, sizeof why_not)) {
        status = choose(&c, parallel, why);
    } else {
        status = divide_batch(&c, parallel, why_not, why);
    }
    free(c.found);
    ls_arena_release(&arena);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/hardware/site.h"
#include "telemetry/plan_page/plan_page.h"
#include "telemetry/plan_page/plan_page_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the schedule that is drawn ---- */

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(1.0, fabs(b)))) {
        fail_msg("%.12g is not %.12g", a, b);
    }
}

static ls_plan_trace trace;

static void assert_end(ls_trace_setting setting, double end_s)
{
    ls_trace_compute(&setting, &trace);
    const double works =
        setting.schedule == LS_PIPELINE_ZB_H1 || setting.schedule == LS_PIPELINE_ZB_H2 ? 3 : 2;
    assert_int_equal(trace.count, works * setting.stages * setting.chunks * setting.micro_batches);
    assert_near(trace.end_s, end_s);
}

/* 1F1B and GPipe: (m + p - 1) (F + B). Interleaved: m v (f + b) + (p - 1) (f + b) with chunks of f
 * and b. */
static void trace_takes_what_the_formulas_say(void **state)
{
    (void)state;
    assert_end((ls_trace_setting){1, 1, 4, LS_PIPELINE_1F1B, 1, 2, 0, 0}, 12);
    assert_end((ls_trace_setting){4, 1, 8, LS_PIPELINE_1F1B, 1, 2, 0, 0}, 33);
    assert_near(trace.bubble, 3.0 / 11);
    assert_end((ls_trace_setting){8, 1, 2, LS_PIPELINE_1F1B, 1, 2, 0, 0}, 27);
    assert_end((ls_trace_setting){4, 1, 8, LS_PIPELINE_GPIPE, 1, 2, 0, 0}, 33);
    assert_end((ls_trace_setting){4, 2, 8, LS_PIPELINE_1F1B, 1, 2, 0, 0}, 8 * 2 * 3 + 3 * 3);
    assert_end((ls_trace_setting){8, 4, 16, LS_PIPELINE_1F1B, 1, 2, 0, 0}, 16 * 4 * 3 + 7 * 3);
    assert_end((ls_trace_setting){2, 3, 2, LS_PIPELINE_1F1B, 0.5, 1.5, 0, 0}, 2 * 3 * 2 + 2);
}

/* ZB-H1 waits (p - 1) (F + B - 2 W) where B has W in it: a third of 1F1B's with F = W = B / 2.
 * Sends make it longer. */
static void trace_puts_weights_into_the_bubble(void **state)
{
    (void)state;
    assert_end((ls_trace_setting){4, 1, 8, LS_PIPELINE_ZB_H1, 1, 2, 1, 0}, 8 * 3 + 3);
    ls_trace_compute(&(ls_trace_setting){4, 1, 8, LS_PIPELINE_ZB_H2, 1, 2, 1, 0}, &trace);
    assert_true(trace.end_s <= 8 * 3 + 3);
    ls_trace_compute(&(ls_trace_setting){4, 1, 8, LS_PIPELINE_1F1B, 1, 2, 0, 0.1}, &trace);
    assert_true(trace.end_s > 33.5);
}

/* No stage does two things at once, and nothing begins before what it needs is done. */
static void trace_keeps_the_order(void **state)
{
    (void)state;
    const ls_trace_setting s = {4, 2, 8, LS_PIPELINE_1F1B, 1, 2, 0, 0.25};
    double done[2][4][2][8];
    ls_trace_compute(&s, &trace);
    for (size_t i = 0; i < trace.count; i++) {
        const ls_trace_cell *c = &trace.cells[i];
        done[c->work][c->stage][c->chunk][c->micro_batch] = c->end_s;
        for (size_t k = 0; k < i; k++) {
            const ls_trace_cell *other = &trace.cells[k];
            assert_true(other->stage != c->stage || other->end_s <= c->begin_s + 1e-9 ||
                        c->end_s <= other->begin_s + 1e-9);
        }
    }
    for (size_t i = 0; i < trace.count; i++) {
        const ls_trace_cell *c = &trace.cells[i];
        if (c->work == LS_TRACE_FORWARD && c->stage > 0) {
            assert_true(done[0][c->stage - 1][c->chunk][c->micro_batch] + 0.25 <= c->begin_s + 1e-9);
        }
        if (c->work == LS_TRACE_BACKWARD && c->stage < 3) {
            assert_true(done[1][c->stage + 1][c->chunk][c->micro_batch] + 0.25 <= c->begin_s + 1e-9);
        }
    }
}

/* ---- pages ---- */

typedef struct plan {
    ls_arena arena;
    ls_plan_answer answer;
    ls_stack stack;
    ls_search_result search;
    ls_scaling scaling;
    ls_workload workload;
    ls_path paths[LS_PATHS_MOST];
    ls_published published;
    ls_accuracy accuracy;
    ls_plan_page page;
} plan;

static plan *p;

static int setup(void **state)
{
    (void)state;
    p = calloc(1, sizeof *p);
    return p && ls_catalogue_load(&p->arena, NULL, 0, &p->answer.catalogue) == LS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ls_arena_release(&p->arena);
    free(p);
    return 0;
}

static void add_path(ls_path_kind kind)
{
    const ls_path_settings settings = {.arena = &p->arena,
                                       .assumptions = &p->answer.assumptions,
                                       .catalogue = &p->answer.catalogue,
                                       .site = p->answer.site,
                                       .lead_time_s = -1.0};
    ls_path *path = &p->paths[p->answer.question.path_count];
    size_t count;
    if (ls_path_build(&settings, &(ls_path_request){kind, p->answer.setting.node, false, 1}, path, &count) !=
        LS_OK) {
        ls_error_clear(); /* no price */
        return;
    }
    p->answer.question.path_count++;
    ls_path_add_point(path, &p->arena,
                      &(ls_path_size){.gpus = p->answer.setting.gpus,
                                      .tokens_ps = &p->answer.estimate.tokens_ps,
                                      .count = 1,
                                      .parameters = (double)p->answer.shape.parameters});
}

static void add_money(void)
{
    p->workload = (ls_workload){.name = p->answer.shape.name,
                                .parameters = (double)p->answer.shape.parameters,
                                .active_parameters = (double)p->answer.shape.active_parameters,
                                .tokens = 1e12};
    ls_question_init(&p->answer.question);
    p->answer.question.workloads = &p->workload;
    p->answer.question.workload_count = 1;
    p->answer.question.paths = p->paths;
    add_path(LS_PATH_RENTED);
    add_path(LS_PATH_CLOUD);
    add_path(LS_PATH_OWNED);
    if (p->answer.question.path_count > 0) {
        ls_verdict_compute(&p->answer.question, &p->answer.verdict);
    }
}

static void ask(const char *model, const char *kind, int64_t gpus, int64_t global_batch, int64_t length,
                const char *strategy)
{
    const ls_accelerator *accelerator = NULL;
    const char *from = NULL;
    ls_search_options options = {.top = 4};
    p->answer.assumptions = (ls_assumptions){.arena = &p->arena};
    ls_assumptions_add(&p->answer.assumptions, "a price <of 2026> & more");
    assert_int_equal(ls_shape_parse(&p->arena, model, &p->answer.shape), LS_OK);
    assert_int_equal(ls_catalogue_find_accelerator(&p->answer.catalogue, kind, &accelerator), LS_OK);
    assert_int_equal(ls_stack_find("megatron-core", accelerator, &p->stack, &from), LS_OK);
    assert_int_equal(ls_site_load(&p->arena, &p->answer.catalogue, "", &p->answer.site), LS_OK);
    p->answer.setting =
        (ls_setting){.shape = &p->answer.shape,
                     .node = ls_catalogue_usual_node(&p->answer.catalogue, &p->arena, accelerator),
                     .stack = &p->stack,
                     .gpus = gpus,
                     .length = length,
                     .global_batch = global_batch};
    assert_int_equal(ls_strategy_parse(strategy, &options.request), LS_OK);
    if (ls_search_run(&p->answer.setting, &options, &p->search) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    p->answer.failure_setting = (ls_failure_setting){.gpus = gpus,
                                                     .gpus_per_node = p->answer.setting.node->count,
                                                     .parameters = (double)p->answer.shape.parameters};
    ls_failure_compute(&p->answer.failure_setting, &p->answer.failure);
    ls_power_compute(&p->answer.catalogue, p->answer.setting.node, gpus, &p->answer.site, &p->answer.power);
    p->answer.estimate = p->search.best;
    p->answer.tokens = 1e12;
    p->answer.days = 1e12 / p->search.best.tokens_ps / 86400.0;
    p->answer.search = &p->search;
    p->page = (ls_plan_page){.plan = &p->answer};
    add_money();
}

static void add_scaling(int64_t to)
{
    const ls_scaling_options options = {.gpus_min = 1, .gpus_max = to, .tokens = 1e12};
    assert_int_equal(ls_scaling_compute(&p->answer.setting, &options, &p->scaling), LS_OK);
    p->answer.curve = &p->scaling;
}

static void add_accuracy(void)
{
    assert_int_equal(ls_published_shipped(&p->arena, &p->answer.catalogue, &p->published), LS_OK);
    ls_accuracy_compute(&p->arena, &p->published, &p->accuracy);
    p->page.accuracy = &p->accuracy;
}

/* ---- well-formed ---- */

enum { DEPTH_MOST = 64 };

typedef struct checker {
    char names[DEPTH_MOST][32];
    int depth;
} checker;

/* One tag from '<' on; returns what follows it. */
static const char *check_tag(checker *c, const char *at)
{
    char name[32];
    const bool closes = at[1] == '/';
    const char *from = at + 1 + closes;
    size_t length = 0;
    while (isalnum((unsigned char)from[length])) {
        length++;
    }
    assert_true(length > 0 && length < sizeof name);
    snprintf(name, sizeof name, "%.*s", (int)length, from);
    at = from + length;
    for (bool quoted = false; *at != '>' || quoted; at++) {
        assert_true(*at != '\0' && *at != '<');
        quoted ^= *at == '"';
    }
    if (closes) {
        assert_true(c->depth > 0);
        assert_string_equal(c->names[--c->depth], name);
    } else if (at[-1] != '/') {
        assert_true(c->depth < DEPTH_MOST);
        snprintf(c->names[c->depth++], sizeof c->names[0], "%s", name);
    }
    return at + 1;
}

/* From <svg to its end: tags close in order, entities are ones that XML knows. Returns what
 * follows. */
static const char *check_svg(const char *at)
{
    checker c = {.depth = 0};
    do {
        if (*at == '<') {
            at = check_tag(&c, at);
        } else {
            assert_true(*at != '\0');
            assert_true(*at != '&' || strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&lt;", 4) == 0 ||
                        strncmp(at, "&gt;", 4) == 0 || strncmp(at, "&quot;", 6) == 0 ||
                        strncmp(at, "&#39;", 5) == 0);
            at++;
        }
    } while (c.depth > 0);
    return at;
}

/* "nan" in numbers, not in names. */
static bool has_word(const char *page, const char *word)
{
    for (const char *at = strstr(page, word); at; at = strstr(at + 1, word)) {
        if (!isalpha((unsigned char)at[-1]) && !isalpha((unsigned char)at[strlen(word)])) {
            return true;
        }
    }
    return false;
}

/* The page of the plan, looked at as a whole; returns how many pictures it has. The caller releases
 * the text. */
static int check_page(ls_text *text)
{
    int svgs = 0;
    ls_plan_page_append(&p->page, text);
    const char *page = ls_text_string(text);
    for (const char *at = strstr(page, "<svg"); at; at = strstr(check_svg(at), "<svg")) {
        svgs++;
    }
    for (int i = 0; i < LS_PLAN_FIGURES; i++) {
        char id[64];
        snprintf(id, sizeof id, "id=\"%s\"", ls_plan_figure_name((ls_plan_figure)i));
        assert_non_null(strstr(page, id));
    }
    assert_false(has_word(page, "nan"));
    assert_false(has_word(page, "NaN"));
    assert_false(has_word(page, "inf"));
    assert_null(strstr(page, "http-equiv=\"refresh"));
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, " src="));
    assert_non_null(strstr(page, "a price &lt;of 2026&gt; &amp; more"));
    assert_non_null(strstr(page, "prefers-color-scheme:dark"));
    assert_int_equal(svgs % 2, 0);
    return svgs / 2;
}

static void assert_says(const ls_text *text, const char *format, ...) LS_PRINTF(2, 3);
static void assert_says(const ls_text *text, const char *format, ...)
{
    char words[256];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (!strstr(ls_text_string(text), words)) {
        fail_msg("the page does not say '%s'", words);
    }
}

static void page_has_nine_pictures_and_the_plans_numbers(void **state)
{
    (void)state;
    ls_text text = {0};
    ask("llama3-70b", "h100", 256, 1024, 8192, "");
    add_scaling(4096);
    add_accuracy();
    p->answer.outcome = &p->answer.verdict.outcomes[p->answer.verdict.chosen];
    assert_int_equal(check_page(&text), 9);
    const ls_memory_estimate *m = &p->search.best.memory;
    assert_says(&text, "<b>%.1f of %.4g GiB</b>", m->total / LS_PAGE_GIB, m->capacity / LS_PAGE_GIB);
    assert_says(&text, "<b>%.1f %%</b> of the time", 100.0 * p->answer.failure.goodput);
    assert_says(&text, "<b>%.3g kW</b>", p->answer.power.node_max_w / 1e3);
    assert_says(&text, "the median error is <b>%.1f %%</b>", 100.0 * p->accuracy.full.median);
    assert_says(&text, "<b>%.1f %% of the step</b>",
                100.0 * p->search.best.time.terms_s[LS_TERM_BUBBLE] / p->search.best.time.step_s);
    assert_says(&text, ">RENT<");
    ls_text_release(&text);
}

static void page_of_one_gpu(void **state)
{
    (void)state;
    ls_text text = {0};
    ask("gpt2", "h100", 1, 64, 1024, "");
    assert_int_equal(check_page(&text), 7); /* no sizes to compare, no table of runs */
    assert_says(&text, "One accelerator");
    assert_says(&text, "There is one stage");
    ls_text_release(&text);
}

/* Apple: no price to rent, no power published, little known. */
static void page_of_a_desk(void **state)
{
    (void)state;
    ls_text text = {0};
    ask("gpt2", "M3-Ultra-80c", 1, 64, 1024, "");
    assert_true(check_page(&text) >= 4);
    assert_says(&text, "class=\"missing\"");
    ls_text_release(&text);
}

static void page_without_pipeline_and_without_money(void **state)
{
    (void)state;
    ls_text text = {0};
    ask("llama3-8b", "a100", 16, 256, 4096, "pp=1,zero=3,tp=1");
    p->answer.verdict = (ls_verdict){0};
    p->answer.power.known = false;
    p->answer.failure.interval_young_s = 0.0;
    p->answer.search = NULL;
    assert_int_equal(check_page(&text), 4);
    assert_says(&text, "No price is known");
    ls_text_release(&text);
}

/* Deep pipelines of every schedule, at both widths. */
static void page_of_deep_pipelines(void **state)
{
    (void)state;
    static const char *const strategies[] = {"tp=8,pp=16,vpp=2", "tp=8,pp=16,vpp=1,schedule=gpipe",
                                             "tp=8,pp=16,vpp=1,schedule=zb-h1",
                                             "tp=8,pp=16,vpp=1,schedule=zb-h2", "tp=8,pp=12,vpp=8"};
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        ls_text text = {0};
        ask("gpt3-175b", "h200", i == 4 ? 96 * 8 : 1024, 1536, 2048, strategies[i]);
        assert_true(check_page(&text) >= 7);
        assert_says(&text, "stages");
        ls_text_release(&text);
    }
}

static void figures_stand_alone(void **state)
{
    (void)state;
    int count = 0;
    ask("llama3-70b", "h100", 64, 512, 4096, "");
    for (int i = 0; i < LS_PLAN_FIGURES; i++) {
        ls_text text = {0};
        const ls_status drawn = ls_plan_figure_draw(&p->page, (ls_plan_figure)i, 440, &text);
        assert_true(drawn == LS_OK || drawn == LS_ERR_INVALID);
        assert_int_equal(text.bytes > 0, drawn == LS_OK);
        if (drawn == LS_OK) {
            count++;
            assert_string_equal(check_svg(ls_text_string(&text)), "\n");
        }
        assert_int_equal(ls_plan_figure_draw(&p->page, (ls_plan_figure)i, 100, &text), LS_ERR_INVALID);
        ls_text_release(&text);
    }
    assert_true(count >= 7); /* no prices, no curve here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_takes_what_the_formulas_say),
        cmocka_unit_test(trace_puts_weights_into_the_bubble),
        cmocka_unit_test(trace_keeps_the_order),
        cmocka_unit_test_setup_teardown(page_has_nine_pictures_and_the_plans_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(page_of_one_gpu, setup, teardown),
        cmocka_unit_test_setup_teardown(page_of_a_desk, setup, teardown),
        cmocka_unit_test_setup_teardown(page_without_pipeline_and_without_money, setup, teardown),
        cmocka_unit_test_setup_teardown(page_of_deep_pipelines, setup, teardown),
        cmocka_unit_test_setup_teardown(figures_stand_alone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

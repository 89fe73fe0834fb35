// SPDX-License-Identifier: Apache-2.0
/*
 * lockstep-figures NAME [FILE]: the figures of the guide and of docs/planning.md, as SVG on stdout.
 *
 * Built with the tests and not installed. tests/tools/figures holds the committed files against what
 * it draws; tools/docs.sh makes those of docs/planning anew.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/options.h"
#include "base/svg.h"
#include "cli/plan/plan.h"
#include "execution/integrity/audit.h"
#include "execution/train/schedule.h"
#include "figures/drawings.h"
#include "planning/step/link.h"
#include "telemetry/plan_page/plan_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct draw_settings {
    const char *output, *line;
    const char *run; /* the second argument: a file or a run directory; NULL: not given */
    uint64_t leaves, ranks, hosts, sequences, micro_batch, micro_batches;
    uint64_t steps, warmup_steps;
    double lr, final_lr_fraction, decay_fraction;
    const char *model, *gpus, *strategy;
    uint64_t global_batch;
} draw_settings;

#define FIELD(name) .offset = offsetof(draw_settings, name)

static const ls_option draw_options[] = {
    {.key = "output",
     .letter = 'o',
     .type = LS_OPTION_STRING,
     FIELD(output),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "file for the SVG; default: stdout"},
    {.key = "leaves",
     .type = LS_OPTION_U64,
     FIELD(leaves),
     .default_text = "12",
     .min = 1,
     .max = LS_STEP_DRAWING_LEAVES_MAX,
     .help = "step, ranks, audit: number of leaves, the parts of a batch"},
    {.key = "ranks",
     .type = LS_OPTION_U64,
     FIELD(ranks),
     .default_text = "1",
     .min = 1,
     .max = LS_STEP_DRAWING_LEAVES_MAX,
     .help = "step, ranks, ring, report, audit: number of processes; split, bubble: number of GPUs"},
    {.key = "hosts",
     .type = LS_OPTION_U64,
     FIELD(hosts),
     .default_text = "1",
     .min = 1,
     .max = LS_RANKS_DRAWING_HOSTS_MAX,
     .help = "ranks: number of machines; divides ranks"},
    {.key = "sequences",
     .type = LS_OPTION_U64,
     FIELD(sequences),
     .default_text = "4",
     .min = 1,
     .max = LS_STEP_DRAWING_SEQUENCES_MAX,
     .help = "step: sequences per leaf"},
    {.key = "micro_batch",
     .type = LS_OPTION_U64,
     FIELD(micro_batch),
     .default_text = "0",
     .min = 0,
     .max = LS_STEP_DRAWING_SEQUENCES_MAX,
     .help = "step: sequences computed at once; divides sequences; 0: all of them"},
    {.key = "micro_batches",
     .type = LS_OPTION_U64,
     FIELD(micro_batches),
     .default_text = "8",
     .min = 1,
     .max = 1000,
     .help = "bubble: number of micro-batches"},
    {.key = "line",
     .type = LS_OPTION_STRING,
     FIELD(line),
     .default_text = "\"\"",
     .value_name = "TEXT",
     .help = "progress: a progress line, copied from a log"},
    {.key = "steps",
     .type = LS_OPTION_U64,
     FIELD(steps),
     .default_text = "1000",
     .min = 2,
     .max = 1e6,
     .help = "schedules: number of steps of the run"},
    {.key = "warmup_steps",
     .type = LS_OPTION_U64,
     FIELD(warmup_steps),
     .default_text = "100",
     .min = 0,
     .max = 1e6,
     .help = "schedules: number of warm-up steps"},
    {.key = "lr",
     .type = LS_OPTION_F64,
     FIELD(lr),
     .default_text = "1.0e-3",
     .min = 1e-9,
     .max = 10,
     .help = "schedules: highest learning rate"},
    {.key = "final_lr_fraction",
     .type = LS_OPTION_F64,
     FIELD(final_lr_fraction),
     .default_text = "0.1",
     .min = 0,
     .max = 1,
     .help = "schedules: last learning rate, as a fraction of lr"},
    {.key = "decay_fraction",
     .type = LS_OPTION_F64,
     FIELD(decay_fraction),
     .default_text = "0.2",
     .min = 0,
     .max = 1,
     .help = "schedules: fraction of the steps in which wsd decays"},
    {.key = "model",
     .type = LS_OPTION_STRING,
     FIELD(model),
     .default_text = "llama3-70b",
     .help = "plan-...: the model, as in lockstep plan"},
    {.key = "gpus",
     .type = LS_OPTION_STRING,
     FIELD(gpus),
     .default_text = "h100:64",
     .value_name = "KIND:COUNT",
     .help = "plan-...: the GPUs, as in lockstep plan"},
    {.key = "strategy",
     .type = LS_OPTION_STRING,
     FIELD(strategy),
     .default_text = "\"\"",
     .value_name = "KEY=VALUE,...",
     .help = "plan-...: the strategy, as in lockstep plan; keys left out are chosen"},
    {.key = "global_batch",
     .type = LS_OPTION_U64,
     FIELD(global_batch),
     .default_text = "0",
     .min = 0,
     .max = 1e9,
     .help = "plan-...: sequences per step; 0: near the critical batch"},
};
static const ls_option_table draw_table = {.options = draw_options,
                                           .count = sizeof draw_options / sizeof draw_options[0]};

/* ---- figures ---- */

static ls_status draw_step(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    const uint64_t all = settings->sequences;
    const ls_step_drawing step = {
        .leaves = (uint32_t)settings->leaves,
        .ranks = (uint32_t)settings->ranks,
        .sequences_per_leaf = (uint32_t)all,
        .micro_batch = (uint32_t)(settings->micro_batch ? settings->micro_batch : all),
    };
    return ls_drawing_step(&step, text);
}

static ls_status draw_progress(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    if (!settings->line[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "progress needs a line from a log: --line 'step 10/100  10 %%  loss 2.3  ...'");
    }
    return ls_drawing_progress(settings->line, text);
}

/* Three ranks by default. The roles are those that training with this seed assigns at step 1. */
static ls_status draw_audit(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    enum { SEED = 1337, RANKS = 3 };
    const uint32_t leaves = (uint32_t)settings->leaves;
    const uint32_t ranks = settings->ranks > 1 ? (uint32_t)settings->ranks : RANKS;
    ls_audit_drawing audit = {.leaves = leaves, .ranks = ranks};
    if (ranks <= leaves) {
        const ls_audit_roles roles = ls_audit_choose(SEED, 0, 1, leaves, ranks);
        audit.leaf = roles.leaf;
        audit.owner = roles.owner;
        audit.checker = roles.checker;
        audit.judge = roles.judge;
    }
    return ls_drawing_audit(&audit, text);
}

static ls_status draw_ranks(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    const ls_ranks_drawing ranks = {
        .hosts = (uint32_t)settings->hosts,
        .ranks = (uint32_t)settings->ranks,
        .leaves = (uint32_t)settings->leaves,
    };
    return ls_drawing_ranks(&ranks, text);
}

static ls_status draw_ring(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    return ls_drawing_ring((uint32_t)settings->ranks, text);
}

static ls_status draw_report(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    return ls_drawing_report((uint32_t)settings->ranks, text);
}

/* Four GPUs by default. */
static uint32_t gpus_of(const draw_settings *settings)
{
    return settings->ranks > 1 ? (uint32_t)settings->ranks : 4;
}

static ls_status draw_split(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    return ls_drawing_split(gpus_of(settings), text);
}

static ls_status draw_bubble(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)arena;
    return ls_drawing_pipeline(gpus_of(settings), (uint32_t)settings->micro_batches, text);
}

enum { TRACE_BYTES_MAX = 256 << 20, EVENTS_BYTES_MAX = 1 << 30 };

/* The argument is a run directory, or an events.jsonl. */
static ls_status draw_takeover(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    if (!settings->run) {
        return ls_fail(LS_ERR_INVALID,
                       "takeover needs a run directory or its events.jsonl: lockstep-figures takeover RUN");
    }
    const char *path = ls_path_join(arena, settings->run, "events.jsonl");
    char *events = NULL;
    size_t bytes = 0;
    if (!ls_path_exists(path)) {
        path = settings->run;
    }
    if (ls_file_read(arena, path, EVENTS_BYTES_MAX, &events, &bytes) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s is neither a run directory nor a file of events",
                              settings->run);
    }
    return ls_drawing_takeover(events, bytes, text);
}

static ls_status draw_stages(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    json_t *trace = NULL;
    if (!settings->run) {
        return ls_fail(LS_ERR_INVALID, "stages needs a trace: lockstep trace RUN -o FILE, then "
                                       "lockstep-figures stages FILE");
    }
    LS_TRY(ls_json_load(settings->run, TRACE_BYTES_MAX, &trace));
    const ls_status status = ls_drawing_stages(arena, trace, text);
    json_decref(trace);
    return status;
}

/* The argument is a file of events, as a daemon's /v1/events sends them. */
static ls_status draw_queue(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    char *events = NULL;
    size_t bytes = 0;
    if (!settings->run) {
        return ls_fail(LS_ERR_INVALID,
                       "queue needs a file of events from /v1/events: lockstep-figures queue FILE");
    }
    if (ls_file_read(arena, settings->run, EVENTS_BYTES_MAX, &events, &bytes) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s is not a file of events", settings->run);
    }
    return ls_drawing_queue(events, bytes, text);
}

/* Points per curve; the figure has no room for more. */
enum { POINTS_MAX = 201 };

static uint64_t point_count(const draw_settings *settings)
{
    return settings->steps < POINTS_MAX ? settings->steps : POINTS_MAX;
}

/* The first point is step 0, the last one the last step. */
static uint64_t step_of_point(const draw_settings *settings, uint64_t point)
{
    return point * (settings->steps - 1) / (point_count(settings) - 1);
}

/* The learning rates that training uses with schedule `kind`. */
static double *rates_of(const draw_settings *settings, ls_schedule_kind kind, ls_arena *arena)
{
    const ls_schedule schedule = {
        .kind = kind,
        .lr = settings->lr,
        .steps = settings->steps,
        .warmup_steps = settings->warmup_steps,
        .final_fraction = settings->final_lr_fraction,
        .decay_fraction = settings->decay_fraction,
    };
    double *rates = ls_arena_new(arena, double, point_count(settings));
    for (uint64_t point = 0; point < point_count(settings); point++) {
        rates[point] = ls_schedule_lr(&schedule, step_of_point(settings, point));
    }
    return rates;
}

static ls_status draw_schedules(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    /* Later curves cover earlier ones: in this order wsd stays visible where it departs from constant. */
    static const struct {
        const char *name;
        ls_schedule_kind kind;
    } kinds[] = {{"constant", LS_SCHEDULE_CONSTANT},
                 {"wsd", LS_SCHEDULE_WSD},
                 {"linear", LS_SCHEDULE_LINEAR},
                 {"cosine", LS_SCHEDULE_COSINE}};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    const uint64_t count = point_count(settings);
    ls_svg_series series[KINDS];
    double *steps = ls_arena_new(arena, double, count);
    for (uint64_t point = 0; point < count; point++) {
        steps[point] = (double)step_of_point(settings, point);
    }
    for (size_t k = 0; k < KINDS; k++) {
        series[k] = (ls_svg_series){
            .name = kinds[k].name, .x = steps, .y = rates_of(settings, kinds[k].kind, arena), .count = count};
    }
    const ls_svg_chart chart = {
        .title = "Learning rate",
        .x_label = "step",
        .series = series,
        .series_count = KINDS,
        .from_zero = true,
        .width = 440,
        .height = 300,
    };
    ls_svg_line_chart(&chart, text);
    return LS_OK;
}

/* One of the nine figures of plan --html; `name` is "plan-" followed by the figure's name. */
#define PLAN_PREFIX "plan-"

static ls_status draw_plan(const draw_settings *settings, const char *name, ls_arena *arena, ls_text *text)
{
    enum { WIDTH = 440 };
    const ls_plan_answer *answer = NULL;
    int figure = 0;
    while (figure < LS_PLAN_FIGURES &&
           strcmp(ls_plan_figure_name((ls_plan_figure)figure), name + strlen(PLAN_PREFIX)) != 0) {
        figure++;
    }
    if (figure == LS_PLAN_FIGURES) {
        return ls_fail(
            LS_ERR_INVALID,
            "'%s' is not a figure of a plan; there are: plan-memory, -pipeline, -timeline, -scaling, "
            "-cost, -topology, -goodput, -power, -accuracy",
            name);
    }
    LS_TRY(ls_plan_answer_for(arena, settings->model, settings->gpus, settings->strategy,
                              settings->global_batch, &answer));
    return ls_plan_draw(answer, figure, WIDTH, text);
}

/* The first record of examples/assistant as its model reads it, and what 200 others gave (docs/guide/11). */
static ls_status draw_record(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)settings;
    (void)arena;
    static const char *const tokens[] = {
        "Q",  "u",     "es",    "t",    "i",   "on",  ":",     "The", "house",
        "of", "Dan",   "is",    "blue", ".",   "The", "house", "of",  "Kim",
        "is", "green", ".",     "␣",    "W",   "hi",  "c",     "h",   "c",
        "o",  "l",     "ou",    "r",    "has", "␣",   "t",     "he",  "house",
        "of", "Kim",   "?",     "\\n",  "A",   "n",   "s",     "w",   "er",
        ":",  "The",   "house", "of",   "Kim", "is",  "green", ".",   "<|endoftext|>"};
    const ls_record_drawing record = {.tokens = tokens,
                                      .count = sizeof tokens / sizeof tokens[0],
                                      .first_learned = 46,
                                      .measured = "200 questions that were not among the records",
                                      .shares = {{0.0, 0.0, 0.019}, {0.855, 0.800, 0.897}}};
    return ls_drawing_record(&record, text);
}

/* Where a step of one second goes, 25 million parameters on four machines with 100 Mbit/s each (docs/guide/14). */
static ls_status draw_links(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    (void)settings;
    (void)arena;
    static const ls_link_setting setting = {25000000, 4, 1.0, 12.5e6, 0.05};
    static const char *const parts[] = {"computing", "sending"};
    static const int colors[] = {2, 1};
    const char *names[LS_LINK_SCHEMES];
    double values[LS_LINK_SCHEMES][2];
    for (size_t i = 0; i < LS_LINK_SCHEMES; i++) {
        ls_link_estimate estimate;
        ls_link_estimate_compute(&setting, &ls_link_schemes[i], &estimate);
        names[i] = estimate.scheme.name;
        values[i][0] = setting.compute_s;
        values[i][1] = estimate.step_s - setting.compute_s;
    }
    const ls_svg_bars bars = {.title = "A step over 100 Mbit/s, with four machines",
                              .unit = "s",
                              .bar_names = names,
                              .part_names = parts,
                              .values = values[0],
                              .bar_count = LS_LINK_SCHEMES,
                              .part_count = 2,
                              .colors = colors,
                              .width = 440};
    ls_svg_stacked_bars(&bars, text);
    return LS_OK;
}

/* ---- the program ---- */

static const struct {
    const char *name;
    const char *summary;
    ls_status (*draw)(const draw_settings *settings, ls_arena *arena, ls_text *text);
    bool takes_file;
} figures[] = {
    {"step", "a training step: batch, leaves, waves, the tree of additions, the update", draw_step, false},
    {"progress", "the numbers of a progress line: what they mean, what is good, what is not", draw_progress,
     false},
    {"schedules", "the learning rate over time, by kind of schedule", draw_schedules, false},
    {"ranks", "processes, hosts, and the memory they share (--ranks 4 --hosts 2)", draw_ranks, false},
    {"ring", "three ways to add the buffers of several ranks (--ranks 4)", draw_ring, false},
    {"report", "ranks out of step: wrong operation, late, dead, deadlocked (--ranks 4)", draw_report, false},
    {"audit", "a leaf computed by two ranks and compared, and the guard of the state", draw_audit, false},
    {"takeover", "the first rank that run FILE lost, and how the run recovered", draw_takeover, true},
    {"split", "a model split over GPUs: data, sharded, tensor, pipeline (--ranks 4)", draw_split, false},
    {"bubble", "how a pipeline fills and drains (--ranks 4 --micro-batches 8)", draw_bubble, false},
    {"stages", "a leaf of a run with stages, planned and measured, from a trace FILE", draw_stages, true},
    {"record", "what a model sees of a record, and right answers before and after", draw_record, false},
    {"links", "a step over a slow link, dense, compressed and with local steps", draw_links, false},
    {"queue", "which job had which devices, and how many waited, from events FILE", draw_queue, true},
};
enum { FIGURE_COUNT = sizeof figures / sizeof figures[0] };

static ls_status write_figure(const char *path, const ls_text *text)
{
    if (path[0]) {
        return ls_file_write_atomic(path, ls_text_string(text), text->bytes);
    }
    fputs(ls_text_string(text), stdout);
    return LS_OK;
}

static ls_status draw_named(const char *name, const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    size_t index = 0;
    while (index < FIGURE_COUNT && strcmp(figures[index].name, name) != 0) {
        index++;
    }
    const bool of_plan = strncmp(name, PLAN_PREFIX, strlen(PLAN_PREFIX)) == 0;
    if (index == FIGURE_COUNT && !of_plan) {
        return ls_fail(LS_ERR_INVALID, "'%s' is not a figure; lockstep-figures --help lists them", name);
    }
    if (settings->run && (of_plan || !figures[index].takes_file)) {
        return ls_fail(LS_ERR_INVALID,
                       "'%s' takes no file, but '%s' was given; only takeover and queue take one", name,
                       settings->run);
    }
    return of_plan ? draw_plan(settings, name, arena, text) : figures[index].draw(settings, arena, text);
}

static void print_help(void)
{
    ls_text text = {0};
    ls_text_append(&text, "Usage: lockstep-figures NAME [FILE] [options]\n\n"
                          "Draws a figure of the guide as SVG, for light and dark browsers.\n\nFigures:\n");
    for (size_t i = 0; i < FIGURE_COUNT; i++) {
        ls_text_printf(&text, "  %-10s %s\n", figures[i].name, figures[i].summary);
    }
    for (int i = 0; i < LS_PLAN_FIGURES; i++) {
        ls_text_printf(&text, "  " PLAN_PREFIX "%-13s a figure of lockstep plan --html\n",
                       ls_plan_figure_name((ls_plan_figure)i));
    }
    ls_text_append(&text, "\nOptions:\n");
    ls_options_append_help(&draw_table, "--", &text);
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
}

static ls_status run(int argc, char **argv, ls_arena *arena, ls_text *text)
{
    draw_settings settings = {0};
    ls_option_strings words = {0};
    ls_options_defaults(&draw_table, &settings, arena);
    LS_TRY(ls_options_apply_arguments(&draw_table, &settings, argc, argv, arena, &words));
    if (words.count < 1 || words.count > 2) {
        return ls_fail(LS_ERR_INVALID, "usage is 'lockstep-figures NAME [FILE] [options]'");
    }
    settings.run = words.count > 1 ? words.items[1] : NULL;
    LS_TRY(draw_named(words.items[0], &settings, arena, text));
    return write_figure(settings.output, text);
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help();
        return 0;
    }
    ls_arena arena = {0};
    ls_text text = {0};
    const ls_status status = run(argc - 1, argv + 1, &arena, &text);
    if (status != LS_OK) {
        fprintf(stderr, "lockstep-figures: %s\n", ls_error_text());
    }
    ls_text_release(&text);
    ls_arena_release(&arena);
    return status == LS_OK ? 0 : ls_status_exit_code(status);
}

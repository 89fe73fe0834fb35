// SPDX-License-Identifier: Apache-2.0
/* draw: the pictures of the guide. */
#include "base/file.h"
#include "base/svg.h"
#include "cli/command.h"
#include "cli/plan.h"
#include "execution/diagnose/audit.h"
#include "execution/train/schedule.h"
#include "telemetry/drawings.h"
#include "telemetry/plan_page.h"

#include <stdio.h>
#include <string.h>

typedef struct draw_settings {
    const char *output, *line;
    const char *run; /* the second word; NULL: none */
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
     .help = "where the SVG goes; default: printed"},
    {.key = "leaves",
     .type = LS_OPTION_U64,
     FIELD(leaves),
     .default_text = "12",
     .min = 1,
     .max = LS_STEP_DRAWING_LEAVES_MAX,
     .help = "step, ranks, audit: parts that the batch is cut into"},
    {.key = "ranks",
     .type = LS_OPTION_U64,
     FIELD(ranks),
     .default_text = "1",
     .min = 1,
     .max = LS_STEP_DRAWING_LEAVES_MAX,
     .help = "step, ranks, ring, report, audit: processes that share the leaves; split, bubble: GPUs"},
    {.key = "hosts",
     .type = LS_OPTION_U64,
     FIELD(hosts),
     .default_text = "1",
     .min = 1,
     .max = LS_RANKS_DRAWING_HOSTS_MAX,
     .help = "ranks: machines that the ranks are shared by"},
    {.key = "sequences",
     .type = LS_OPTION_U64,
     FIELD(sequences),
     .default_text = "4",
     .min = 1,
     .max = LS_STEP_DRAWING_SEQUENCES_MAX,
     .help = "step: sequences in a leaf"},
    {.key = "micro_batch",
     .type = LS_OPTION_U64,
     FIELD(micro_batch),
     .default_text = "0",
     .min = 0,
     .max = LS_STEP_DRAWING_SEQUENCES_MAX,
     .help = "step: sequences at once, divides sequences; 0: all"},
    {.key = "micro_batches",
     .type = LS_OPTION_U64,
     FIELD(micro_batches),
     .default_text = "8",
     .min = 1,
     .max = 1000,
     .help = "bubble: parts of the batch that follow each other"},
    {.key = "line",
     .type = LS_OPTION_STRING,
     FIELD(line),
     .default_text = "\"\"",
     .value_name = "TEXT",
     .help = "progress: a line as it stands in a log"},
    {.key = "steps",
     .type = LS_OPTION_U64,
     FIELD(steps),
     .default_text = "1000",
     .min = 2,
     .max = 1e6,
     .help = "schedules: length of the run"},
    {.key = "warmup_steps",
     .type = LS_OPTION_U64,
     FIELD(warmup_steps),
     .default_text = "100",
     .min = 0,
     .max = 1e6,
     .help = "schedules: steps of rise"},
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
     .help = "schedules: last learning rate as a share of lr"},
    {.key = "decay_fraction",
     .type = LS_OPTION_F64,
     FIELD(decay_fraction),
     .default_text = "0.2",
     .min = 0,
     .max = 1,
     .help = "schedules: share of the steps in which wsd falls"},
    {.key = "model",
     .type = LS_OPTION_STRING,
     FIELD(model),
     .default_text = "llama3-70b",
     .help = "plan-...: what is trained, as in plan"},
    {.key = "gpus",
     .type = LS_OPTION_STRING,
     FIELD(gpus),
     .default_text = "h100:64",
     .value_name = "KIND:COUNT",
     .help = "plan-...: on what, as in plan"},
    {.key = "strategy",
     .type = LS_OPTION_STRING,
     FIELD(strategy),
     .default_text = "\"\"",
     .value_name = "KEY=VALUE,...",
     .help = "plan-...: how it is split, as in plan; what is left out is chosen"},
    {.key = "global_batch",
     .type = LS_OPTION_U64,
     FIELD(global_batch),
     .default_text = "0",
     .min = 0,
     .max = 1e9,
     .help = "plan-...: sequences per step; 0: near the critical batch"},
};
static const ls_option_table draw_table = LS_OPTIONS(draw_options);

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
                       "which line? Give one of a log: --line 'step 10/100  10 %%  loss 2.3  ...'");
    }
    return ls_drawing_progress(settings->line, text);
}

/* With three ranks unless they are asked for: the parts are those that training with this seed would choose at step 1. */
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

/* With four GPUs unless they are asked for. */
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

enum { EVENTS_BYTES_MAX = 1 << 30 };

/* RUN is a run directory, or a file of events. */
static ls_status draw_takeover(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    if (!settings->run) {
        return ls_fail(LS_ERR_INVALID, "which run? Give its directory: lockstep draw takeover RUN");
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

/* RUN is a file of what /v1/events told. */
static ls_status draw_queue(const draw_settings *settings, ls_arena *arena, ls_text *text)
{
    char *events = NULL;
    size_t bytes = 0;
    if (!settings->run) {
        return ls_fail(LS_ERR_INVALID,
                       "which events? Give a file of what /v1/events told: lockstep draw queue FILE");
    }
    if (ls_file_read(arena, settings->run, EVENTS_BYTES_MAX, &events, &bytes) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s is no file of events", settings->run);
    }
    return ls_drawing_queue(events, bytes, text);
}

/* Points of a curve: as many as the figure has room for. */
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

/* The rates that training would use with schedule `kind`. */
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
    /* Later ones cover earlier ones: wsd stays visible where it leaves constant. */
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

/* One of the nine pictures of plan --html: `name` is "plan-" and the picture's. */
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
        return ls_fail(LS_ERR_INVALID,
                       "'%s' is no picture of a plan; there is: plan-memory, -pipeline, -timeline, -scaling, "
                       "-cost, -topology, -goodput, -power, -accuracy",
                       name);
    }
    LS_TRY(ls_plan_answer_for(arena, settings->model, settings->gpus, settings->strategy,
                              settings->global_batch, &answer));
    return ls_plan_draw(answer, figure, WIDTH, text);
}

/* ---- the command ---- */

static const struct {
    const char *name;
    ls_status (*draw)(const draw_settings *settings, ls_arena *arena, ls_text *text);
} figures[] = {{"step", draw_step},     {"progress", draw_progress}, {"schedules", draw_schedules},
               {"ranks", draw_ranks},   {"ring", draw_ring},         {"report", draw_report},
               {"audit", draw_audit},   {"takeover", draw_takeover}, {"split", draw_split},
               {"bubble", draw_bubble}, {"queue", draw_queue}};
enum { FIGURE_COUNT = sizeof figures / sizeof figures[0] };

static ls_status write_figure(const char *path, const ls_text *text)
{
    if (path[0]) {
        return ls_file_write_atomic(path, ls_text_string(text), text->bytes);
    }
    fputs(ls_text_string(text), stdout);
    return LS_OK;
}

static ls_status draw_named(const ls_invocation *invocation, ls_text *text)
{
    draw_settings with_run = *(const draw_settings *)invocation->settings;
    const char *name = invocation->words[0];
    size_t index = 0;
    while (index < FIGURE_COUNT && strcmp(figures[index].name, name) != 0) {
        index++;
    }
    const bool of_plan = strncmp(name, PLAN_PREFIX, strlen(PLAN_PREFIX)) == 0;
    if (index == FIGURE_COUNT && !of_plan) {
        return ls_fail(LS_ERR_INVALID,
                       "'%s' is no picture; there is: step, progress, schedules, ranks, ring, report, audit, "
                       "takeover, split, bubble, queue, and plan-memory, plan-pipeline, ... of a plan",
                       name);
    }
    if (invocation->word_count > 1 &&
        (of_plan || (figures[index].draw != draw_takeover && figures[index].draw != draw_queue))) {
        return ls_fail(LS_ERR_INVALID,
                       "'%s' needs no run, but '%s' was given; only takeover and queue are drawn from one",
                       name, invocation->words[1]);
    }
    with_run.run = invocation->word_count > 1 ? invocation->words[1] : NULL;
    return of_plan ? draw_plan(&with_run, name, invocation->arena, text)
                   : figures[index].draw(&with_run, invocation->arena, text);
}

static ls_status run_draw(const ls_invocation *invocation)
{
    const draw_settings *settings = invocation->settings;
    ls_text text = {0};
    ls_status status = draw_named(invocation, &text);
    if (status == LS_OK) {
        status = write_figure(settings->output, &text);
    }
    ls_text_release(&text);
    return status;
}

const ls_command ls_command_draw = {
    .name = "draw",
    .words = "NAME [RUN]",
    .summary = "pictures that explain: step, progress, schedules, ranks, ring, report, audit, takeover, "
               "split, bubble, queue",
    .details =
        "step       a training step: batch, leaves, waves, the tree of additions, the update\n"
        "progress   the numbers of a progress line: what they mean, what is good, what is not\n"
        "schedules  the learning rate over time, by kind of schedule\n"
        "ranks      processes, hosts, and the memory they share (--ranks 4 --hosts 2)\n"
        "ring       three ways to add the buffers of several ranks (--ranks 4)\n"
        "report     ranks out of step: another operation, late, dead, a circle (--ranks 4)\n"
        "audit      a leaf computed by two ranks and compared, and the guard of the state\n"
        "takeover   the first rank that a run lost, and what came of it, drawn from the events of RUN\n"
        "split      a model split over GPUs: data, sharded, tensor, pipeline (--ranks 4)\n"
        "queue      which job had which devices, and how many waited; RUN is a file of what /v1/events told\n"
        "bubble     how a pipeline fills and drains (--ranks 4 --micro-batches 8)\n"
        "plan-memory, plan-pipeline, plan-timeline, plan-scaling, plan-cost, plan-topology, plan-goodput,\n"
        "plan-power, plan-accuracy: the pictures of plan --html, for llama3-70b on 64 H100 unless told "
        "otherwise\n"
        "           (--model, --gpus, --strategy, --global-batch)\n"
        "Prints SVG that any browser shows, in light and in dark.",
    .words_min = 1,
    .words_max = 2,
    .options = &draw_table,
    .settings_bytes = sizeof(draw_settings),
    .run = run_draw,
};

// SPDX-License-Identifier: Apache-2.0
/* diagnose and trace: what the flight recorders of a run's ranks say, live or afterwards. */
#include "base/file.h"
#include "cli/command.h"
#include "execution/diagnose/describe.h"
#include "execution/diagnose/mismatch.h"
#include "execution/diagnose/scene.h"
#include "execution/diagnose/stack.h"
#include "execution/diagnose/timeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names of plan steps when the run file leads to the plan; else numbers. */
static const ls_describe *describe_run(ls_arena *arena, const char *run_dir, ls_describe *describe)
{
    const char *path = ls_path_join(arena, run_dir, "run.yaml");
    return ls_describe_run(arena, path, describe) == LS_OK ? describe : NULL;
}

/* ---- diagnose ---- */

typedef struct diagnose_settings {
    bool json;
    double after_s;
} diagnose_settings;

static const ls_option diagnose_options[] = {
    LS_ROW_JSON(diagnose_settings),
    {.key = "after",
     .type = LS_OPTION_DURATION,
     .offset = offsetof(diagnose_settings, after_s),
     .default_text = "5s",
     .min = 0,
     .max = 86400,
     .help =
         "a wait this long is a hang; where the cause leaves no doubt (stopped, dead, deadlock) 250 ms are"},
};
static const ls_option_table diagnose_table = LS_OPTIONS(diagnose_options);

/* What is found out about a run, before it is printed. */
typedef struct finding {
    ls_scene scene;
    const ls_describe *describe;
    ls_verdict verdict;
    const ls_culprit *culprit; /* NULL: none */
    ls_text sentence, stack;
    char no_stack[256];
} finding;

static const char *state_of(const ls_sight *sight)
{
    switch (sight->header.outcome) {
    case LS_FLIGHT_FINISHED:
        return "finished";
    case LS_FLIGHT_ENDED_BADLY:
        return "failed";
    default:
        return ls_process_state_name(sight->process);
    }
}

static double since_s(const ls_scene *scene, const ls_sight *sight)
{
    const uint64_t since_ns = (sight->open_count > 0 ? sight->open[0].begin_ns : sight->now.since_ns) +
                              (uint64_t)sight->header.clock_offset_ns;
    return scene->now_ns > since_ns ? 1e-9 * (double)(scene->now_ns - since_ns) : 0.0;
}

/* "in all_reduce sum of 10 f32", or the activity in words. */
static void append_doing(const finding *f, const ls_sight *sight, ls_text *text)
{
    char words[LS_SIGHT_OP_WORDS_BYTES], detail[128] = "";
    if (sight->open_count > 0) {
        ls_sight_op_words(&sight->open[0], words);
        ls_text_printf(text, "in %s", words);
        return;
    }
    ls_text_append(text, ls_activity_name((ls_activity)sight->now.activity));
    if (f->describe) {
        f->describe->activity(f->describe->context, sight->now.activity, sight->now.number, detail,
                              sizeof detail);
    }
    ls_text_printf(text, "%s%s", detail[0] ? ": " : "", detail);
}

static void print_ranks(const finding *f)
{
    printf("%5s  %-16s %8s  %-9s %8s  %-44s %9s  %s\n", "rank", "host", "pid", "state", "step", "doing",
           "since s", "last operation");
    for (uint32_t i = 0; i < f->scene.count; i++) {
        const ls_sight *sight = &f->scene.sights[i];
        ls_text doing = {0};
        char words[LS_SIGHT_OP_WORDS_BYTES] = "";
        append_doing(f, sight, &doing);
        if (sight->has_last) {
            ls_sight_op_words(&sight->last, words);
        }
        printf("%5" PRIu32 "  %-16.16s %8" PRId32 "  %-9s %8" PRIu64 "  %-44.44s %9.3f  %s%s%s\n",
               sight->rank, sight->header.host, sight->header.pid, state_of(sight), sight->now.step,
               ls_text_string(&doing), since_s(&f->scene, sight), words, sight->has_last ? " at " : "",
               sight->has_last ? sight->last.site : "");
        ls_text_release(&doing);
    }
    for (uint32_t i = 0; i < f->scene.problem_count; i++) {
        printf("       (left out: %s)\n", f->scene.problems[i]);
    }
}

static void print_stragglers(ls_arena *arena, const ls_scene *scene)
{
    double watched_s = 0.0;
    ls_straggler *rows = ls_arena_new(arena, ls_straggler, scene->size);
    ls_arrivals_report(scene->arrivals, rows, &watched_s);
    if (ls_arrivals_operations(scene->arrivals) == 0) {
        return;
    }
    printf("\nwho came last, in %" PRIu64 " operations over %.1f s:\n",
           ls_arrivals_operations(scene->arrivals), watched_s);
    for (uint32_t i = 0; i < scene->size && i < 8 && rows[i].last > 0; i++) {
        printf("  rank %" PRIu32 ": %" PRIu64
               " times; the others waited %.3f s for it (%.0f %% of all waiting), "
               "%.1f %% of the time%s\n",
               rows[i].rank, rows[i].last, rows[i].cost_s, 100 * rows[i].share, 100 * rows[i].lost,
               rows[i].is_straggler ? "  <- straggler" : "");
    }
}

static void print_finding(ls_arena *arena, const finding *f)
{
    ls_text waits = {0};
    print_ranks(f);
    ls_graph_append_waits(&f->scene.graph, &waits);
    if (waits.bytes > 0) {
        printf("\n%s%s", f->scene.is_live ? "" : "when it ended:\n", ls_text_string(&waits));
    }
    ls_text_release(&waits);
    print_stragglers(arena, &f->scene);
    for (uint32_t i = 0; i < f->scene.count; i++) {
        const ls_sight *sight = &f->scene.sights[i];
        if (sight->words[0]) {
            printf("\nlast words of rank %" PRIu32 ": %s\n", sight->rank, sight->words);
        }
    }
    printf("\n%s\n", ls_text_string(&f->sentence));
    if (f->stack.bytes > 0) {
        printf("\nstack of rank %" PRIu32 ":\n%s", f->culprit->rank, ls_text_string(&f->stack));
    } else if (f->no_stack[0]) {
        printf("\n(no stack: %s)\n", f->no_stack);
    }
}

static json_t *rank_to_json(const finding *f, const ls_sight *sight)
{
    ls_text doing = {0};
    char words[LS_SIGHT_OP_WORDS_BYTES] = "";
    append_doing(f, sight, &doing);
    json_t *object =
        json_pack("{s:I, s:s, s:I, s:s, s:I, s:I, s:s, s:s, s:f, s:b}", "rank", (json_int_t)sight->rank,
                  "host", sight->header.host, "pid", (json_int_t)sight->header.pid, "state", state_of(sight),
                  "step", (json_int_t)sight->now.step, "leaf", (json_int_t)sight->now.leaf, "activity",
                  ls_activity_name((ls_activity)sight->now.activity), "doing", ls_text_string(&doing),
                  "since_s", since_s(&f->scene, sight), "inside", sight->open_count > 0);
    ls_text_release(&doing);
    if (sight->has_last) {
        ls_sight_op_words(&sight->last, words);
        json_object_set_new(object, "last_operation", json_string(words));
        json_object_set_new(object, "last_seq", json_integer((json_int_t)sight->last.seq));
        json_object_set_new(object, "last_site", json_string(sight->last.site));
    }
    if (sight->header.has_exit_status) {
        json_object_set_new(object, "wait_status", json_integer(sight->header.exit_status));
    }
    if (sight->words[0]) {
        json_object_set_new(object, "last_words", json_string(sight->words));
    }
    return object;
}

static json_t *stack_to_json(const finding *f)
{
    json_t *lines = json_array();
    for (const char *at = ls_text_string(&f->stack); *at; at += strcspn(at, "\n") + 1) {
        json_array_append_new(lines, json_stringn(at, strcspn(at, "\n")));
    }
    return lines;
}

static json_t *finding_to_json(const finding *f, const char *run_dir)
{
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < f->scene.count; i++) {
        json_array_append_new(ranks, rank_to_json(f, &f->scene.sights[i]));
    }
    json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:I, s:o}", "run", run_dir, "live", f->scene.is_live,
                             "status", ls_verdict_name(f->verdict), "verdict", ls_text_string(&f->sentence),
                             "size", (json_int_t)f->scene.size, "ranks", ranks);
    json_t *graph = ls_graph_to_json(&f->scene.graph, f->describe);
    json_object_update(root, graph);
    json_decref(graph);
    json_object_set_new(root, "stragglers", ls_arrivals_to_json(f->scene.arrivals));
    if (f->stack.bytes > 0) {
        json_object_set_new(root, "stack", stack_to_json(f));
    } else if (f->no_stack[0]) {
        json_object_set_new(root, "no_stack", json_string(f->no_stack));
    }
    if (f->verdict == LS_VERDICT_MISMATCH) {
        ls_text text = {0};
        json_t *fields = NULL;
        if (ls_mismatch_describe(f->scene.readers, f->scene.count, &f->scene.disagreement, &text, &fields) ==
            LS_OK) {
            json_object_set_new(root, "mismatch", fields);
        }
        ls_text_release(&text);
    }
    return root;
}

/* Where the culprit is in its code, when it is a process of this machine. */
static void take_stack(finding *f)
{
    const ls_sight *sight = f->culprit ? f->culprit->sight : NULL;
    if (!f->scene.is_live || !sight || sight->process == LS_PROCESS_UNKNOWN ||
        sight->process == LS_PROCESS_DEAD) {
        return;
    }
    if (ls_stack_take(sight->header.pid, LS_STACK_FRAMES, &f->stack) != LS_OK) {
        snprintf(f->no_stack, sizeof f->no_stack, "%s", ls_error_text());
    }
}

static ls_status run_diagnose(const ls_invocation *invocation)
{
    const diagnose_settings *settings = invocation->settings;
    const char *run_dir = invocation->words[0];
    ls_describe describe;
    finding f = {0};
    LS_TRY(ls_scene_open(invocation->arena, run_dir, &f.scene));
    f.describe = describe_run(invocation->arena, run_dir, &describe);
    f.verdict = ls_scene_judge(&f.scene, settings->after_s, f.describe, &f.sentence, &f.culprit);
    take_stack(&f);
    if (settings->json) {
        json_t *root = finding_to_json(&f, run_dir);
        ls_print_json(root);
        json_decref(root);
    } else {
        print_finding(invocation->arena, &f);
    }
    const bool is_well = f.verdict == LS_VERDICT_HEALTHY || f.verdict == LS_VERDICT_FINISHED;
    ls_error_clear();
    const ls_status status =
        is_well ? LS_OK
                : ls_fail(LS_ERR_MISMATCH, "%s: %s", ls_verdict_name(f.verdict), ls_text_string(&f.sentence));
    ls_text_release(&f.sentence);
    ls_text_release(&f.stack);
    ls_scene_close(&f.scene);
    return status;
}

const ls_command ls_command_diagnose = {
    .name = "diagnose",
    .words = "RUN",
    .summary = "say which rank of a run is late, stuck or wrong, and why",
    .details = "RUN is a run directory. Reads the flight recorders of its ranks, while it runs or "
               "afterwards: what each rank does, who\n"
               "waits for whom, who came last how often and what that cost, where ranks called different "
               "operations; then one sentence\n"
               "with the verdict, and the stack of the rank at fault when it still is there.\n"
               "Ends with 0 when the run is healthy or finished, with 6 when it finds a hang, a mismatch or "
               "ranks that ended badly.\n"
               "A straggler is a rank for which more than 1.5 / ranks of all waiting is, and the others "
               "waited more than 2 % of the time.\n"
               "\nExamples:\n"
               "  lockstep diagnose runs/mine                  now, or after it ended\n"
               "  lockstep diagnose runs/mine --after 30s      where a wait of half a minute is usual",
    .words_min = 1,
    .words_max = 1,
    .options = &diagnose_table,
    .settings_bytes = sizeof(diagnose_settings),
    .run = run_diagnose,
};

/* ---- trace ---- */

typedef struct trace_settings {
    bool json;
    const char *output;
} trace_settings;

static const ls_option trace_options[] = {
    LS_ROW_JSON(trace_settings),
    {.key = "output",
     .letter = 'o',
     .type = LS_OPTION_STRING,
     .offset = offsetof(trace_settings, output),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "where the trace goes; without it RUN/trace/trace.json"},
};
static const ls_option_table trace_table = LS_OPTIONS(trace_options);

static ls_status choose_output(ls_arena *arena, const char *run_dir, const char *given, const char **path_out)
{
    if (given[0]) {
        *path_out = given;
        return LS_OK;
    }
    const char *folder = ls_path_join(arena, run_dir, "trace");
    LS_TRY(ls_dir_create(folder));
    *path_out = ls_path_join(arena, folder, "trace.json");
    return LS_OK;
}

static ls_status run_trace(const ls_invocation *invocation)
{
    const trace_settings *settings = invocation->settings;
    const char *run_dir = invocation->words[0], *path = NULL;
    ls_describe describe;
    ls_scene scene;
    ls_timeline_counts counts;
    LS_TRY(ls_scene_open(invocation->arena, run_dir, &scene));
    ls_status status = choose_output(invocation->arena, run_dir, settings->output, &path);
    if (status == LS_OK) {
        const ls_describe *names = describe_run(invocation->arena, run_dir, &describe);
        status = ls_timeline_write(&scene, names, path, &counts);
    }
    if (status == LS_OK && settings->json) {
        json_t *root =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "trace", path, "ranks", (json_int_t)scene.count,
                      "slices", (json_int_t)counts.slices, "operations", (json_int_t)counts.operations,
                      "arrows", (json_int_t)counts.arrows, "seconds", counts.seconds);
        ls_print_json(root);
        json_decref(root);
    } else if (status == LS_OK) {
        printf("%s: %" PRIu32 " ranks, %" PRIu64 " slices, %" PRIu64
               " operations, %.1f s; open it in ui.perfetto.dev\n",
               path, scene.count, counts.slices, counts.operations, counts.seconds);
    }
    ls_scene_close(&scene);
    return status;
}

const ls_command ls_command_trace = {
    .name = "trace",
    .words = "RUN",
    .summary = "write one Chrome/Perfetto trace of all ranks of a run",
    .details = "RUN is a run directory. Activities of each rank are slices on one track, operations on "
               "another; arrows lead from the\n"
               "rank that came last to those that waited. The flight recorders keep the last 8,192 "
               "activities and 4,096 operations\n"
               "of each rank. Works while the run goes on and afterwards.\n"
               "\nExamples:\n"
               "  lockstep trace runs/mine                     writes runs/mine/trace/trace.json\n"
               "  lockstep trace runs/mine -o /tmp/mine.json",
    .words_min = 1,
    .words_max = 1,
    .options = &trace_table,
    .settings_bytes = sizeof(trace_settings),
    .run = run_trace,
};

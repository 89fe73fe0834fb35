// SPDX-License-Identifier: Apache-2.0
/* diagnose and trace: what the flight recorders of a run's ranks say, live or afterwards. */
#include "base/file.h"
#include "base/log.h"
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
        if (rows[i].has_more_leaves) {
            printf("    (it has %" PRIu32 " of %" PRIu32 " leaves: %s)\n", rows[i].leaves, rows[i].all_leaves,
                   rows[i].is_straggler ? "that alone does not explain it" : "more to do than others");
        }
    }
}

static bool is_same_words(const ls_scene *scene, uint32_t a, uint32_t b)
{
    return strcmp(scene->sights[a].words, scene->sights[b].words) == 0;
}

/* Whether the verdict quotes these words, or tells the same mismatch in its own. */
static bool is_in_verdict(const finding *f, const char *words)
{
    char line[LS_SIGHT_WORDS_BYTES];
    ls_ending ending;
    ls_ending_from_text(words, &ending);
    if (f->verdict == LS_VERDICT_MISMATCH && ending.kind == LS_ENDING_MISMATCH) {
        return true;
    }
    snprintf(line, sizeof line, "%.*s", (int)strcspn(words, "\n"), words);
    return strstr(ls_text_string(&f->sentence), line) != NULL;
}

/* What ends one rank often ends all, with one text: that is told once. */
static void print_last_words(ls_arena *arena, const finding *f)
{
    const ls_scene *scene = &f->scene;
    uint32_t *ranks = ls_arena_new(arena, uint32_t, scene->count);
    for (uint32_t i = 0; i < scene->count; i++) {
        uint32_t count = 0;
        bool is_first = scene->sights[i].words[0] != 0;
        for (uint32_t k = 0; k < i; k++) {
            is_first = is_first && !is_same_words(scene, k, i);
        }
        for (uint32_t k = i; k < scene->count && is_first; k++) {
            if (is_same_words(scene, k, i)) {
                ranks[count++] = scene->sights[k].rank;
            }
        }
        if (is_first && !is_in_verdict(f, scene->sights[i].words)) {
            ls_text who = {0};
            ls_append_ranks(ranks, count, &who);
            printf("\nlast words of rank%s %s: %s\n", count > 1 ? "s" : "", ls_text_string(&who),
                   scene->sights[i].words);
            ls_text_release(&who);
        }
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
    print_last_words(arena, f);
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
    if (f->scene.trainer_pid > 0 && f->scene.is_trainer) {
        json_object_set_new(root, "trainer", json_integer(f->scene.trainer_pid));
    }
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

/* ---- a run of one process ---- */

/* Such runs have no flight files, and nobody who waits. */
static bool is_of_one_process(ls_arena *arena, const char *run_dir)
{
    return ls_path_exists(ls_path_join(arena, run_dir, "run.yaml")) &&
           !ls_path_is_dir(ls_path_join(arena, run_dir, "flight"));
}

/* How it ended, or that it runs. */
static ls_verdict judge_one_process(const ls_run_account *account, ls_text *text)
{
    const bool is_live =
        account->trainer_pid > 0 && ls_process_look(account->trainer_pid, 0) != LS_PROCESS_DEAD;
    ls_verdict verdict = LS_VERDICT_FINISHED;
    if (!account->has_ended && is_live) {
        verdict = LS_VERDICT_HEALTHY;
        ls_text_printf(text, "healthy: it runs, as process %" PRId32, account->trainer_pid);
    } else if (!account->has_ended) {
        verdict = LS_VERDICT_GONE;
        ls_text_append(text, "gone: it ended without a word, as a process does that is killed");
    } else if (strcmp(account->status, "failed") == 0) {
        verdict = LS_VERDICT_FAILED;
        ls_text_printf(text, "failed: it ended with an error behind step %" PRIu64, account->step);
    } else {
        const bool whole = strcmp(account->status, "finished") == 0;
        ls_text_printf(text, "finished: it ended well%s%s%s, the last step was %" PRIu64, whole ? "" : " (",
                       whole ? "" : account->status, whole ? "" : ")", account->step);
    }
    ls_text_append(text,
                   ". Runs of one process keep no flight files: events.jsonl and report.html have more");
    return verdict;
}

static ls_status diagnose_one_process(ls_arena *arena, const char *run_dir, bool json)
{
    ls_run_account account;
    ls_text text = {0};
    ls_run_account_read(arena, run_dir, 0.0, &account);
    const ls_verdict verdict = judge_one_process(&account, &text);
    if (json) {
        json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:i, s:[]}", "run", run_dir, "live",
                                 verdict == LS_VERDICT_HEALTHY, "status", ls_verdict_name(verdict), "verdict",
                                 ls_text_string(&text), "size", 1, "ranks");
        ls_print_json(root);
        json_decref(root);
    } else {
        printf("%s\n", ls_text_string(&text));
    }
    ls_text_release(&text);
    ls_error_clear();
    return verdict == LS_VERDICT_HEALTHY || verdict == LS_VERDICT_FINISHED ? LS_OK : LS_ERR_MISMATCH;
}

static void note_leaves(ls_arena *arena, const char *run_dir, ls_scene *scene)
{
    uint32_t *leaves = ls_arena_new(arena, uint32_t, scene->size);
    const char *path = ls_path_join(arena, run_dir, "run.yaml");
    if (ls_describe_leaves(arena, path, scene->size, leaves) == LS_OK) {
        ls_arrivals_set_leaves(scene->arrivals, leaves);
    }
}

static ls_status run_diagnose(const ls_invocation *invocation)
{
    const diagnose_settings *settings = invocation->settings;
    const char *run_dir = invocation->words[0];
    ls_describe describe;
    finding f = {0};
    if (is_of_one_process(invocation->arena, run_dir)) {
        return diagnose_one_process(invocation->arena, run_dir, settings->json);
    }
    LS_TRY(ls_scene_open(invocation->arena, run_dir, &f.scene));
    note_leaves(invocation->arena, run_dir, &f.scene);
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
    /* The report ends with the verdict; beside JSON, which is for a program, it is told to whoever looks on. */
    ls_error_clear();
    if (!is_well && settings->json) {
        (void)ls_fail(LS_ERR_MISMATCH, "%s", ls_text_string(&f.sentence));
    }
    ls_text_release(&f.sentence);
    ls_text_release(&f.stack);
    ls_scene_close(&f.scene);
    return is_well ? LS_OK : LS_ERR_MISMATCH;
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
               "waited more than 2 % of the time\n"
               "(50 waits and a second at the least; by more than its share of leaves explains).\n"
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

/* Ranks whose track will be missing. */
static void warn_of_missing(const ls_scene *scene)
{
    for (uint32_t rank = 0; rank < scene->size; rank++) {
        bool found = false;
        for (uint32_t i = 0; i < scene->count; i++) {
            found = found || scene->sights[i].rank == rank;
        }
        if (!found) {
            ls_log_warn("rank %" PRIu32 " of %" PRIu32 " has no records in this trace", rank, scene->size);
        }
    }
    for (uint32_t i = 0; i < scene->problem_count; i++) {
        ls_log_warn("left out: %s", scene->problems[i]);
    }
}

static ls_status run_trace(const ls_invocation *invocation)
{
    const trace_settings *settings = invocation->settings;
    const char *run_dir = invocation->words[0], *path = NULL;
    ls_describe describe;
    ls_scene scene;
    ls_timeline_counts counts;
    LS_TRY(ls_scene_open(invocation->arena, run_dir, &scene));
    warn_of_missing(&scene);
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

// SPDX-License-Identifier: Apache-2.0
/* diagnose and trace: what the flight recorders of a run's ranks show, during the run or after
 * it. */
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "execution/hang/describe.h"
#include "execution/hang/mismatch.h"
#include "execution/hang/run_snapshot.h"
#include "execution/hang/stack.h"
#include "execution/hang/timeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names for the steps of the plan; NULL, and so numbers, when the run file does not give a plan. */
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
    LS_ROW_DURATION(diagnose_settings, after, after_s, "5s", 0, 86400,
                    "time that a process must have waited before it is reported as hanging; only 250 ms "
                    "where the cause is certain (a stopped or dead process, or a deadlock)"),
};

/* What was found out about a run. */
typedef struct finding {
    ls_run_snapshot snapshot;
    const ls_describe *describe;
    ls_run_verdict verdict;
    /* NULL: no rank is at fault */
    const ls_culprit *culprit;
    ls_text sentence, stack;
    char no_stack[256];
} finding;

static const char *state_of(const ls_rank_snapshot *rank)
{
    switch (rank->header.outcome) {
    case LS_FLIGHT_FINISHED:
        return "finished";
    case LS_FLIGHT_ENDED_BADLY:
        return "failed";
    default:
        return ls_process_state_name(rank->process);
    }
}

static double since_s(const ls_run_snapshot *run, const ls_rank_snapshot *rank)
{
    const uint64_t since_ns = (rank->open_count > 0 ? rank->open[0].begin_ns : rank->now.since_ns) +
                              (uint64_t)rank->header.clock_offset_ns;
    return run->now_ns > since_ns ? 1e-9 * (double)(run->now_ns - since_ns) : 0.0;
}

/* "in all_reduce sum of 10 f32", or the activity in words. */
static void append_doing(const finding *f, const ls_rank_snapshot *rank, ls_text *text)
{
    char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES], detail[128] = "";
    if (rank->open_count > 0) {
        ls_rank_snapshot_op_words(&rank->open[0], words);
        ls_text_printf(text, "in %s", words);
        return;
    }
    ls_text_append(text, ls_activity_name((ls_activity)rank->now.activity));
    if (f->describe) {
        f->describe->activity(f->describe->context, rank->now.activity, rank->now.number, detail,
                              sizeof detail);
    }
    ls_text_printf(text, "%s%s", detail[0] ? ": " : "", detail);
}

static void print_ranks(const finding *f)
{
    printf("%5s  %-16s %8s  %-9s %8s  %-44s %9s  %s\n", "rank", "host", "pid", "state", "step", "doing",
           "since s", "last operation");
    for (uint32_t i = 0; i < f->snapshot.count; i++) {
        const ls_rank_snapshot *rank = &f->snapshot.snapshots[i];
        ls_text doing = {0};
        char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES] = "";
        append_doing(f, rank, &doing);
        if (rank->has_last) {
            ls_rank_snapshot_op_words(&rank->last, words);
        }
        printf("%5" PRIu32 "  %-16.16s %8" PRId32 "  %-9s %8" PRIu64 "  %-44.44s %9.3f  %s%s%s\n", rank->rank,
               rank->header.host, rank->header.pid, state_of(rank), rank->now.step, ls_text_string(&doing),
               since_s(&f->snapshot, rank), words, rank->has_last ? " at " : "",
               rank->has_last ? rank->last.site : "");
        ls_text_release(&doing);
    }
    for (uint32_t i = 0; i < f->snapshot.problem_count; i++) {
        printf("       (omitted: %s)\n", f->snapshot.problems[i]);
    }
}

static void print_stragglers(ls_arena *arena, const ls_run_snapshot *run)
{
    double watched_s = 0.0;
    ls_straggler *rows = ls_arena_new(arena, ls_straggler, run->size);
    ls_arrivals_report(run->arrivals, rows, &watched_s);
    if (ls_arrivals_operations(run->arrivals) == 0) {
        return;
    }
    printf("\nlast to arrive, in %" PRIu64 " operations over %.1f s:\n",
           ls_arrivals_operations(run->arrivals), watched_s);
    for (uint32_t i = 0; i < run->size && i < 8 && rows[i].last > 0; i++) {
        printf("  rank %" PRIu32 ": %" PRIu64
               " time%s; the others waited %.3f s for it (%.0f %% of all waiting), "
               "%.1f %% of the time%s\n",
               rows[i].rank, rows[i].last, rows[i].last == 1 ? "" : "s", rows[i].cost_s, 100 * rows[i].share,
               100 * rows[i].lost, rows[i].is_straggler ? "  <- straggler" : "");
        if (rows[i].has_more_leaves) {
            printf("    (it computes %" PRIu32 " of %" PRIu32 " leaves, %s)\n", rows[i].leaves,
                   rows[i].all_leaves,
                   rows[i].is_straggler ? "which does not explain the waiting" : "more than other ranks");
        }
    }
}

static bool is_same_words(const ls_run_snapshot *run, uint32_t a, uint32_t b)
{
    return strcmp(run->snapshots[a].words, run->snapshots[b].words) == 0;
}

/* Whether the verdict already quotes these words or describes the same mismatch. */
static bool is_in_verdict(const finding *f, const char *words)
{
    char line[LS_RANK_SNAPSHOT_WORDS_BYTES];
    ls_ending ending;
    ls_ending_from_text(words, &ending);
    if (f->verdict == LS_VERDICT_MISMATCH && ending.kind == LS_ENDING_MISMATCH) {
        return true;
    }
    snprintf(line, sizeof line, "%.*s", (int)strcspn(words, "\n"), words);
    return strstr(ls_text_string(&f->sentence), line) != NULL;
}

/* Ranks often end with the same text: it is printed once, with all of them. */
static void print_last_words(ls_arena *arena, const finding *f)
{
    const ls_run_snapshot *run = &f->snapshot;
    uint32_t *ranks = ls_arena_new(arena, uint32_t, run->count);
    for (uint32_t i = 0; i < run->count; i++) {
        uint32_t count = 0;
        bool is_first = run->snapshots[i].words[0] != 0;
        for (uint32_t k = 0; k < i; k++) {
            is_first = is_first && !is_same_words(run, k, i);
        }
        for (uint32_t k = i; k < run->count && is_first; k++) {
            if (is_same_words(run, k, i)) {
                ranks[count++] = run->snapshots[k].rank;
            }
        }
        if (is_first && !is_in_verdict(f, run->snapshots[i].words)) {
            ls_text who = {0};
            ls_append_ranks(ranks, count, &who);
            printf("\nlast words of rank%s %s: %s\n", count > 1 ? "s" : "", ls_text_string(&who),
                   run->snapshots[i].words);
            ls_text_release(&who);
        }
    }
}

static void print_finding(ls_arena *arena, const finding *f)
{
    ls_text waits = {0};
    print_ranks(f);
    ls_graph_append_waits(&f->snapshot.graph, &waits);
    if (waits.bytes > 0) {
        printf("\n%s%s", f->snapshot.is_live ? "" : "when it ended:\n", ls_text_string(&waits));
    }
    ls_text_release(&waits);
    print_stragglers(arena, &f->snapshot);
    print_last_words(arena, f);
    printf("\n%s\n", ls_text_string(&f->sentence));
    if (f->stack.bytes > 0) {
        printf("\nstack of rank %" PRIu32 ":\n%s", f->culprit->rank, ls_text_string(&f->stack));
    } else if (f->no_stack[0]) {
        printf("\n(no stack: %s)\n", f->no_stack);
    }
}

static json_t *rank_to_json(const finding *f, const ls_rank_snapshot *rank)
{
    ls_text doing = {0};
    char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES] = "";
    append_doing(f, rank, &doing);
    json_t *object =
        json_pack("{s:I, s:s, s:I, s:s, s:I, s:I, s:s, s:s, s:f, s:b}", "rank", (json_int_t)rank->rank,
                  "host", rank->header.host, "pid", (json_int_t)rank->header.pid, "state", state_of(rank),
                  "step", (json_int_t)rank->now.step, "leaf", (json_int_t)rank->now.leaf, "activity",
                  ls_activity_name((ls_activity)rank->now.activity), "doing", ls_text_string(&doing),
                  "since_s", since_s(&f->snapshot, rank), "inside", rank->open_count > 0);
    ls_text_release(&doing);
    if (rank->has_last) {
        ls_rank_snapshot_op_words(&rank->last, words);
        json_object_set_new(object, "last_operation", json_string(words));
        json_object_set_new(object, "last_seq", json_integer((json_int_t)rank->last.seq));
        json_object_set_new(object, "last_site", json_string(rank->last.site));
    }
    if (rank->header.has_exit_status) {
        json_object_set_new(object, "wait_status", json_integer(rank->header.exit_status));
    }
    if (rank->words[0]) {
        json_object_set_new(object, "last_words", json_string(rank->words));
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
    for (uint32_t i = 0; i < f->snapshot.count; i++) {
        json_array_append_new(ranks, rank_to_json(f, &f->snapshot.snapshots[i]));
    }
    json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:I, s:o}", "run", run_dir, "live", f->snapshot.is_live,
                             "status", ls_verdict_name(f->verdict), "verdict", ls_text_string(&f->sentence),
                             "size", (json_int_t)f->snapshot.size, "ranks", ranks);
    if (f->snapshot.trainer_pid > 0 && f->snapshot.is_trainer) {
        json_object_set_new(root, "trainer", json_integer(f->snapshot.trainer_pid));
    }
    json_t *graph = ls_graph_to_json(&f->snapshot.graph, f->describe);
    json_object_update(root, graph);
    json_decref(graph);
    json_object_set_new(root, "stragglers", ls_arrivals_to_json(f->snapshot.arrivals));
    if (f->stack.bytes > 0) {
        json_object_set_new(root, "stack", stack_to_json(f));
    } else if (f->no_stack[0]) {
        json_object_set_new(root, "no_stack", json_string(f->no_stack));
    }
    if (f->verdict == LS_VERDICT_MISMATCH) {
        ls_text text = {0};
        json_t *fields = NULL;
        if (ls_mismatch_describe(f->snapshot.readers, f->snapshot.count, &f->snapshot.disagreement, &text,
                                 &fields) == LS_OK) {
            json_object_set_new(root, "mismatch", fields);
        }
        ls_text_release(&text);
    }
    return root;
}

/* The stack of the rank at fault, when it is a running process of this machine. */
static void take_stack(finding *f)
{
    const ls_rank_snapshot *rank = f->culprit ? f->culprit->snapshot : NULL;
    if (!f->snapshot.is_live || !rank || rank->process == LS_PROCESS_UNKNOWN ||
        rank->process == LS_PROCESS_DEAD) {
        return;
    }
    if (ls_stack_take(rank->header.pid, LS_STACK_FRAMES, &f->stack) != LS_OK) {
        snprintf(f->no_stack, sizeof f->no_stack, "%s", ls_error_text());
    }
}

/* ---- a run of one process ---- */

/* Such runs have no flight recorders. */
static bool is_of_one_process(ls_arena *arena, const char *run_dir)
{
    return ls_path_exists(ls_path_join(arena, run_dir, "run.yaml")) &&
           !ls_path_is_dir(ls_path_join(arena, run_dir, "flight"));
}

/* Whether the run is in progress, or how it ended. */
static ls_run_verdict judge_one_process(const ls_run_account *account, ls_text *text)
{
    const bool is_live =
        account->trainer_pid > 0 && ls_process_look(account->trainer_pid, 0) != LS_PROCESS_DEAD;
    ls_run_verdict verdict = LS_VERDICT_FINISHED;
    if (!account->has_ended && is_live) {
        verdict = LS_VERDICT_HEALTHY;
        ls_text_printf(text, "healthy: the run is in progress, as process %" PRId32, account->trainer_pid);
    } else if (!account->has_ended) {
        verdict = LS_VERDICT_GONE;
        ls_text_append(text, "gone: the process ended without a message, as killed processes do");
    } else if (strcmp(account->status, "failed") == 0) {
        verdict = LS_VERDICT_FAILED;
        ls_text_printf(text, "failed: the run ended with an error after step %" PRIu64, account->step);
    } else {
        const bool whole = strcmp(account->status, "finished") == 0;
        ls_text_printf(text, "finished: the run ended well%s%s%s; its last step was %" PRIu64,
                       whole ? "" : " (", whole ? "" : account->status, whole ? "" : ")", account->step);
    }
    ls_text_append(text,
                   ". A run of one process has no flight recorders; see its events.jsonl and report.html");
    return verdict;
}

static ls_status diagnose_one_process(ls_arena *arena, const char *run_dir, bool json)
{
    ls_run_account account;
    ls_text text = {0};
    ls_run_account_read(arena, run_dir, 0.0, &account);
    const ls_run_verdict verdict = judge_one_process(&account, &text);
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

static void note_leaves(ls_arena *arena, const char *run_dir, ls_run_snapshot *run)
{
    uint32_t *leaves = ls_arena_new(arena, uint32_t, run->size);
    const char *path = ls_path_join(arena, run_dir, "run.yaml");
    if (ls_describe_leaves(arena, path, run->size, leaves) == LS_OK) {
        ls_arrivals_set_leaves(run->arrivals, leaves);
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
    LS_TRY(ls_run_snapshot_open(invocation->arena, run_dir, &f.snapshot));
    note_leaves(invocation->arena, run_dir, &f.snapshot);
    f.describe = describe_run(invocation->arena, run_dir, &describe);
    f.verdict = ls_run_snapshot_judge(&f.snapshot, settings->after_s, f.describe, &f.sentence, &f.culprit);
    take_stack(&f);
    if (settings->json) {
        json_t *root = finding_to_json(&f, run_dir);
        ls_print_json(root);
        json_decref(root);
    } else {
        print_finding(invocation->arena, &f);
    }
    const bool is_well = f.verdict == LS_VERDICT_HEALTHY || f.verdict == LS_VERDICT_FINISHED;
    /* The printed report ends with the verdict. JSON is for programs: people find it on stderr. */
    ls_error_clear();
    if (!is_well && settings->json) {
        (void)ls_fail(LS_ERR_MISMATCH, "%s", ls_text_string(&f.sentence));
    }
    ls_text_release(&f.sentence);
    ls_text_release(&f.stack);
    ls_run_snapshot_close(&f.snapshot);
    return is_well ? LS_OK : LS_ERR_MISMATCH;
}

const ls_command ls_command_diagnose = {
    .name = "diagnose",
    LS_WORDS("RUN", 1, 1),
    .summary = "find the rank that is late, stuck or wrong",
    .details = "RUN is a run directory, during the run or after it. Reads the flight recorders\n"
               "of the ranks and prints what each rank does, which rank waits for which, how\n"
               "often a rank came last and what that cost, and where ranks called different\n"
               "operations. Ends with a verdict in one sentence, and with the stack of the rank\n"
               "at fault when that process still runs.\n"
               "\n"
               "The exit code is 0 when the run is healthy or finished, and 6 after a hang, a\n"
               "mismatch, or ranks that failed.\n"
               "\n"
               "A rank counts as a straggler when it causes more than 1.5 / ranks of all\n"
               "waiting, the other ranks waited more than 2 % of the time (at least 50 waits and\n"
               "one second), and its share of the leaves does not explain the difference.\n"
               "\n"
               "Examples:\n"
               "  lockstep diagnose runs/mine\n"
               "  lockstep diagnose runs/mine --after 30s\n"
               "      for runs in which waits of half a minute are normal",
    LS_SETTINGS(diagnose_settings, diagnose_options),
    .run = run_diagnose,
};

/* ---- trace ---- */

typedef struct trace_settings {
    bool json;
    const char *output;
} trace_settings;

static const ls_option trace_options[] = {
    LS_ROW_JSON(trace_settings),
    LS_ROW_TEXT(trace_settings, output, "FILE", "file to write the trace to; default RUN/trace/trace.json",
                .letter = 'o'),
};

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

/* Warns of ranks whose tracks will be missing. */
static void warn_of_missing(const ls_run_snapshot *run)
{
    for (uint32_t rank = 0; rank < run->size; rank++) {
        bool found = false;
        for (uint32_t i = 0; i < run->count; i++) {
            found = found || run->snapshots[i].rank == rank;
        }
        if (!found) {
            ls_log_warn("rank %" PRIu32 " of %" PRIu32 " has no records: it is missing in this trace", rank,
                        run->size);
        }
    }
    for (uint32_t i = 0; i < run->problem_count; i++) {
        ls_log_warn("missing in this trace: %s", run->problems[i]);
    }
}

static ls_status run_trace(const ls_invocation *invocation)
{
    const trace_settings *settings = invocation->settings;
    const char *run_dir = invocation->words[0], *path = NULL;
    ls_describe describe;
    ls_run_snapshot run;
    ls_timeline_counts counts;
    LS_TRY(ls_run_snapshot_open(invocation->arena, run_dir, &run));
    warn_of_missing(&run);
    ls_status status = choose_output(invocation->arena, run_dir, settings->output, &path);
    if (status == LS_OK) {
        const ls_describe *names = describe_run(invocation->arena, run_dir, &describe);
        status = ls_timeline_write(&run, names, path, &counts);
    }
    if (status == LS_OK && settings->json) {
        json_t *root =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "trace", path, "ranks", (json_int_t)run.count,
                      "slices", (json_int_t)counts.slices, "operations", (json_int_t)counts.operations,
                      "arrows", (json_int_t)counts.arrows, "seconds", counts.seconds);
        ls_print_json(root);
        json_decref(root);
    } else if (status == LS_OK) {
        printf("%s: %" PRIu32 " %s, %" PRIu64 " slices, %" PRIu64
               " operations, %.1f s; open it in ui.perfetto.dev\n",
               path, run.count, run.count == 1 ? "rank" : "ranks", counts.slices, counts.operations,
               counts.seconds);
    }
    ls_run_snapshot_close(&run);
    return status;
}

const ls_command ls_command_trace = {
    .name = "trace",
    LS_WORDS("RUN", 1, 1),
    .summary = "write a Chrome/Perfetto trace of all ranks",
    .details = "RUN is a run directory, during the run or after it. Each rank has one track of\n"
               "activities and one of operations; arrows lead from the rank that came last to\n"
               "the ranks that waited for it. The flight recorders keep the last 8,192\n"
               "activities and 4,096 operations of each rank. Open the trace in ui.perfetto.dev.\n"
               "\n"
               "Examples:\n"
               "  lockstep trace runs/mine\n"
               "      writes runs/mine/trace/trace.json\n"
               "  lockstep trace runs/mine -o /tmp/mine.json",
    LS_SETTINGS(trace_settings, trace_options),
    .run = run_trace,
};

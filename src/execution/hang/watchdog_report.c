// SPDX-License-Identifier: Apache-2.0
/*
 * The reports of the watchdog: as text in the log, and with the same content as fields of an event.
 *
 *   late: rank 1 (node7, pid 4711) is stopped (...), in backward (layer 3 attention) of step 12,
 *   leaf 3; ranks 0, 2 wait for it in all_reduce sum of 1000 f32 (number 7 of world) at src/a.c:12,
 *   for 0.25 s
 *       innermost function at file:line            the stack, or "(no stack: why)"
 *       the function that called it at file:line
 *
 * The text of a hang becomes the last words of all ranks. run_ending.c recognises it after the end
 * of the run by its beginning, "hang: rank N (", and by the phrases for a stopped and for a traced
 * process: they must be changed together.
 */
#include "base/hash.h"
#include "base/log.h"
#include "execution/hang/mismatch.h"
#include "execution/hang/stack.h"
#include "execution/hang/watchdog_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ls_watchdog_send_event(ls_watchdog *watchdog, const char *name, json_t *fields)
{
    if (watchdog->options.event) {
        watchdog->options.event(watchdog->options.context, name, fields);
    } else {
        json_decref(fields);
    }
}

static void end(ls_watchdog *watchdog, const char *text)
{
    watchdog->over = true;
    if (watchdog->options.fatal) {
        watchdog->options.fatal(watchdog->options.context, LS_ERR_MISMATCH, text);
    }
}

void ls_watchdog_report_mismatch(ls_watchdog *watchdog)
{
    ls_text text = {0};
    json_t *fields = NULL;
    ls_flight_reader **readers = ls_arena_new(&watchdog->arena, ls_flight_reader *, watchdog->rank_count);
    for (uint32_t i = 0; i < watchdog->rank_count; i++) {
        readers[i] = watchdog->ranks[i].reader;
    }
    if (ls_mismatch_describe(readers, watchdog->rank_count, &watchdog->disagreement, &text, &fields) ==
        LS_OK) {
        ls_log_warn("%s", ls_text_string(&text));
        ls_watchdog_send_event(watchdog, "mismatch", fields);
    } else {
        ls_text_printf(&text,
                       "ranks %" PRIu32 " and %" PRIu32 " disagree about operation %" PRIu64
                       " of the same communicator (no details: %s)",
                       watchdog->disagreement.rank, watchdog->disagreement.other_rank,
                       watchdog->disagreement.seq, ls_error_text());
    }
    end(watchdog, ls_text_string(&text));
    ls_text_release(&text);
}

local_rank *ls_watchdog_local(const ls_watchdog *watchdog, uint32_t rank)
{
    for (uint32_t i = 0; i < watchdog->rank_count; i++) {
        if (watchdog->ranks[i].rank == rank) {
            return &watchdog->ranks[i];
        }
    }
    return NULL;
}

bool ls_watchdog_is_remote(const ls_watchdog *watchdog, uint32_t rank)
{
    return watchdog->remote && rank < watchdog->options.ranks && !ls_watchdog_local(watchdog, rank);
}

/* Whether the culprit has a process whose stack could be read. */
static bool can_have_stack(const ls_watchdog *watchdog, const ls_culprit *culprit)
{
    return !watchdog->options.no_stacks && culprit->snapshot && culprit->cause != LS_CAUSE_DEAD &&
           culprit->cause != LS_CAUSE_FINISHED && culprit->cause != LS_CAUSE_FAILED &&
           culprit->cause != LS_CAUSE_INSIDE && culprit->snapshot->process != LS_PROCESS_UNKNOWN;
}

bool ls_watchdog_has_answered(ls_watchdog *watchdog, late_incident *incident, const ls_culprit *culprit,
                              uint64_t now_ns)
{
    if (!can_have_stack(watchdog, culprit) || !ls_watchdog_is_remote(watchdog, culprit->rank)) {
        return true;
    }
    if (incident->asked_ns == 0) {
        incident->asked_ns = now_ns;
        return !watchdog->options.ask_stack ||
               !watchdog->options.ask_stack(watchdog->options.context, culprit->rank,
                                            culprit->snapshot->header.pid);
    }
    return incident->answer || now_ns - incident->asked_ns >= LS_WATCHDOG_ANSWER_NS;
}

static void add_no_stack(const char *reason, json_t *fields, ls_text *text)
{
    json_object_set_new(fields, "no_stack", json_string(reason));
    ls_text_printf(text, "\n  (the stack cannot be shown: %s)", reason);
}

static void add_lines(const char *stack, json_t *fields, ls_text *text)
{
    json_t *lines = json_array();
    for (const char *at = stack; *at; at += strspn(at, "\n")) {
        const int bytes = (int)strcspn(at, "\n");
        json_array_append_new(lines, json_stringn(at, (size_t)bytes));
        ls_text_printf(text, "\n    %.*s", bytes, at);
        at += bytes;
    }
    json_object_set_new(fields, "stack", lines);
}

/* Adds the stack, as an array of lines to the event and as lines to the text, or the reason why
 * there is none. incident: NULL for a rank of this host. */
static void add_stack(const ls_watchdog *watchdog, const late_incident *incident, const ls_culprit *culprit,
                      json_t *fields, ls_text *text)
{
    ls_text stack = {0};
    if (!can_have_stack(watchdog, culprit)) {
        return;
    }
    if (incident && ls_watchdog_is_remote(watchdog, culprit->rank)) {
        if (incident->answer && incident->is_stack) {
            add_lines(incident->answer, fields, text);
        } else {
            add_no_stack(incident->answer ? incident->answer : "its host did not answer in time", fields,
                         text);
        }
    } else if (ls_stack_take(culprit->snapshot->header.pid, LS_STACK_FRAMES, &stack) == LS_OK) {
        add_lines(ls_text_string(&stack), fields, text);
    } else {
        add_no_stack(ls_error_text(), fields, text);
    }
    ls_text_release(&stack);
}

static const ls_describe *describe_of(const ls_watchdog *watchdog)
{
    return &watchdog->options.describe;
}

/* Appends "late: rank 1 (...) is stopped ...; ranks 0, 2 wait for it in ..."; returns the fields of
 * the event. */
static json_t *begin_report(const ls_watchdog *watchdog, const char *word, const ls_graph *graph,
                            const ls_culprit *culprit, double waited_s, ls_text *text)
{
    json_t *fields = ls_culprit_to_json(graph, culprit, describe_of(watchdog));
    json_object_set_new(fields, "waited_s", json_real(waited_s));
    ls_text_printf(text, "%s: ", word);
    ls_graph_append_culprit(graph, culprit, describe_of(watchdog), text);
    return fields;
}

void ls_watchdog_report_late(ls_watchdog *watchdog, const late_incident *incident, const ls_graph *graph,
                             const ls_culprit *culprit, double waited_s)
{
    ls_text text = {0};
    json_t *fields = begin_report(watchdog, "late", graph, culprit, waited_s, &text);
    ls_text_printf(&text, ", for %.2f s", waited_s);
    const size_t before = text.bytes;
    add_stack(watchdog, incident, culprit, fields, &text);
    watchdog->progress[culprit->rank].reported_stack = ls_xxh3(text.data + before, text.bytes - before, 0);
    ls_log_warn("%s", ls_text_string(&text));
    ls_watchdog_send_event(watchdog, "late", fields);
    ls_text_release(&text);
}

/* Whether ending this one rank helps: it has made no progress for as long as it may be waited
 * for, and its process is one that can be replaced. */
static bool can_be_handed_over(const ls_watchdog *watchdog, const ls_culprit *culprit)
{
    const uint64_t hang_ns = ls_watchdog_hang_ns(watchdog);
    const rank_progress *progress = &watchdog->progress[culprit->rank];
    return watchdog->options.hung && culprit->snapshot && ls_watchdog_is_of_a_process(culprit->cause) &&
           !progress->handed_over && (progress->unchanged_ns >= hang_ns || progress->overdue_ns >= hang_ns);
}

static const char *state_in_words(ls_process_state process)
{
    switch (process) {
    case LS_PROCESS_STOPPED:
        return "was stopped";
    case LS_PROCESS_TRACED:
        return "was held by a debugger";
    case LS_PROCESS_BLOCKED:
        return "was blocked in the kernel";
    default:
        return "made no progress";
    }
}

/* Reports the rank as hung and has its process ended; if that is refused, ends the run. text: the
 * whole report; its stack begins at byte `before`. */
static void hand_over(ls_watchdog *watchdog, const ls_culprit *culprit, json_t *fields, double waited_s,
                      const char *text, size_t before)
{
    char why[128];
    watchdog->progress[culprit->rank].handed_over = true;
    snprintf(why, sizeof why, "%s for %.1f s (job.hang_timeout is %g s)",
             state_in_words(culprit->snapshot->process), waited_s, watchdog->options.hang_timeout_s);
    /* A stack that was printed with `late` and has not changed is not printed again; the event has
     * it. */
    const size_t bytes = strlen(text);
    const bool is_same = bytes > before && watchdog->progress[culprit->rank].reported_stack ==
                                               ls_xxh3(text + before, bytes - before, 0);
    ls_log_warn("%.*s%s", (int)(is_same ? before : bytes), text,
                is_same ? "; its stack has not changed" : "");
    ls_watchdog_send_event(watchdog, "hung", fields);
    if (!watchdog->options.hung(watchdog->options.context, culprit->rank, culprit->snapshot->header.pid,
                                why)) {
        end(watchdog, text);
    }
}

void ls_watchdog_report_hang(ls_watchdog *watchdog, const late_incident *incident, const ls_graph *graph,
                             const ls_culprit *culprit, double waited_s)
{
    ls_text text = {0};
    json_t *fields = begin_report(watchdog, "hang", graph, culprit, waited_s, &text);
    ls_text_printf(&text, ", for %.1f s", waited_s);
    if (waited_s >= watchdog->options.hang_timeout_s) {
        ls_text_printf(&text, " (job.hang_timeout is %g s)", watchdog->options.hang_timeout_s);
    }
    const size_t before = text.bytes;
    add_stack(watchdog, incident, culprit, fields, &text);
    if (can_be_handed_over(watchdog, culprit)) {
        hand_over(watchdog, culprit, fields, waited_s, ls_text_string(&text), before);
    } else {
        json_decref(fields);
        end(watchdog, ls_text_string(&text));
    }
    ls_text_release(&text);
}

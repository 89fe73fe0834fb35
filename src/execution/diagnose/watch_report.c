// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"
#include "base/log.h"
#include "execution/diagnose/mismatch.h"
#include "execution/diagnose/stack.h"
#include "execution/diagnose/watch_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ls_watch_send_event(ls_watch *watch, const char *name, json_t *fields)
{
    if (watch->options.event) {
        watch->options.event(watch->options.context, name, fields);
    } else {
        json_decref(fields);
    }
}

static void end(ls_watch *watch, const char *text)
{
    watch->over = true;
    if (watch->options.fatal) {
        watch->options.fatal(watch->options.context, LS_ERR_MISMATCH, text);
    }
}

void ls_watch_report_mismatch(ls_watch *watch)
{
    ls_text text = {0};
    json_t *fields = NULL;
    ls_flight_reader **readers = ls_arena_new(&watch->arena, ls_flight_reader *, watch->rank_count);
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        readers[i] = watch->ranks[i].reader;
    }
    if (ls_mismatch_describe(readers, watch->rank_count, &watch->disagreement, &text, &fields) == LS_OK) {
        ls_log_warn("%s", ls_text_string(&text));
        ls_watch_send_event(watch, "mismatch", fields);
    } else {
        ls_text_printf(&text,
                       "ranks %" PRIu32 " and %" PRIu32 " disagree about operation %" PRIu64
                       " of a communicator (%s)",
                       watch->disagreement.rank, watch->disagreement.other_rank, watch->disagreement.seq,
                       ls_error_text());
    }
    end(watch, ls_text_string(&text));
    ls_text_release(&text);
}

bool ls_watch_is_far(const ls_watch *watch, uint32_t rank)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (watch->ranks[i].rank == rank) {
            return false;
        }
    }
    return watch->far && rank < watch->options.ranks;
}

/* There is a process to look into. */
static bool can_have_stack(const ls_watch *watch, const ls_culprit *culprit)
{
    return !watch->options.no_stacks && culprit->sight && culprit->cause != LS_CAUSE_DEAD &&
           culprit->cause != LS_CAUSE_FINISHED && culprit->cause != LS_CAUSE_FAILED &&
           culprit->cause != LS_CAUSE_INSIDE && culprit->sight->process != LS_PROCESS_UNKNOWN;
}

/* Whether the host of the culprit has said what it can of its stack, or has had its time. */
bool ls_watch_has_answered(ls_watch *watch, late_incident *incident, const ls_culprit *culprit,
                           uint64_t now_ns)
{
    if (!can_have_stack(watch, culprit) || !ls_watch_is_far(watch, culprit->rank)) {
        return true;
    }
    if (incident->asked_ns == 0) {
        incident->asked_ns = now_ns;
        return !watch->options.ask_stack ||
               !watch->options.ask_stack(watch->options.context, culprit->rank, culprit->sight->header.pid);
    }
    return incident->answer || now_ns - incident->asked_ns >= LS_WATCH_ANSWER_NS;
}

static void add_no_stack(const char *reason, json_t *fields, ls_text *text)
{
    json_object_set_new(fields, "no_stack", json_string(reason));
    ls_text_printf(text, "\n  (no stack: %s)", reason);
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

/* The stack as an array of lines in the event and as text; the reason when there is none. incident: NULL for a rank of this host. */
static void add_stack(const ls_watch *watch, const late_incident *incident, const ls_culprit *culprit,
                      json_t *fields, ls_text *text)
{
    ls_text stack = {0};
    if (!can_have_stack(watch, culprit)) {
        return;
    }
    if (incident && ls_watch_is_far(watch, culprit->rank)) {
        if (incident->answer && incident->is_stack) {
            add_lines(incident->answer, fields, text);
        } else {
            add_no_stack(incident->answer ? incident->answer : "its host did not answer in time", fields,
                         text);
        }
    } else if (ls_stack_take(culprit->sight->header.pid, LS_STACK_FRAMES, &stack) == LS_OK) {
        add_lines(ls_text_string(&stack), fields, text);
    } else {
        add_no_stack(ls_error_text(), fields, text);
    }
    ls_text_release(&stack);
}

static const ls_describe *describe_of(const ls_watch *watch)
{
    return watch->options.describe.activity ? &watch->options.describe : NULL;
}

/* "late: rank 1 ... has not come to ..."; returns the event's fields. */
static json_t *begin_report(const ls_watch *watch, const char *word, const ls_graph *graph,
                            const ls_culprit *culprit, double waited_s, ls_text *text)
{
    json_t *fields = ls_culprit_to_json(graph, culprit, describe_of(watch));
    json_object_set_new(fields, "waited_s", json_real(waited_s));
    ls_text_printf(text, "%s: ", word);
    ls_graph_append_culprit(graph, culprit, describe_of(watch), text);
    return fields;
}

void ls_watch_report_late(ls_watch *watch, const late_incident *incident, const ls_graph *graph,
                          const ls_culprit *culprit, double waited_s)
{
    ls_text text = {0};
    json_t *fields = begin_report(watch, "late", graph, culprit, waited_s, &text);
    ls_text_printf(&text, ", for %.2f s", waited_s);
    const size_t before = text.bytes;
    add_stack(watch, incident, culprit, fields, &text);
    watch->still[culprit->rank].told = ls_xxh3(text.data + before, text.bytes - before, 0);
    ls_log_warn("%s", ls_text_string(&text));
    ls_watch_send_event(watch, "late", fields);
    ls_text_release(&text);
}

/* Whether the end of one rank is what helps: it has not moved for as long as it may be waited for. */
static bool can_be_handed_over(const ls_watch *watch, const ls_culprit *culprit)
{
    const uint64_t hang_ns = ls_watch_hang_ns(watch);
    const stillness *still = &watch->still[culprit->rank];
    return watch->options.hung && culprit->sight && ls_watch_is_of_a_process(culprit->cause) &&
           !still->handed_over && (still->still_ns >= hang_ns || still->held_ns >= hang_ns);
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
        return "did not move";
    }
}

/* text: of which the stack begins at `before`. */
static void hand_over(ls_watch *watch, const ls_culprit *culprit, json_t *fields, double waited_s,
                      const char *text, size_t before)
{
    char why[128];
    watch->still[culprit->rank].handed_over = true;
    snprintf(why, sizeof why, "%s for %.1f s (job.hang_timeout is %g s)",
             state_in_words(culprit->sight->process), waited_s, watch->options.hang_timeout_s);
    /* The same stack is not printed twice: the event has it. */
    const size_t bytes = strlen(text);
    const bool is_told =
        bytes > before && watch->still[culprit->rank].told == ls_xxh3(text + before, bytes - before, 0);
    ls_log_warn("%.*s%s", (int)(is_told ? before : bytes), text, is_told ? "; its stack is as it was" : "");
    ls_watch_send_event(watch, "hung", fields);
    if (!watch->options.hung(watch->options.context, culprit->rank, culprit->sight->header.pid, why)) {
        end(watch, text);
    }
}

void ls_watch_report_hang(ls_watch *watch, const late_incident *incident, const ls_graph *graph,
                          const ls_culprit *culprit, double waited_s)
{
    ls_text text = {0};
    json_t *fields = begin_report(watch, "hang", graph, culprit, waited_s, &text);
    ls_text_printf(&text, ", for %.1f s", waited_s);
    if (waited_s >= watch->options.hang_timeout_s) {
        ls_text_printf(&text, " (job.hang_timeout is %g s)", watch->options.hang_timeout_s);
    }
    const size_t before = text.bytes;
    add_stack(watch, incident, culprit, fields, &text);
    if (can_be_handed_over(watch, culprit)) {
        hand_over(watch, culprit, fields, waited_s, ls_text_string(&text), before);
    } else {
        json_decref(fields);
        end(watch, ls_text_string(&text));
    }
    ls_text_release(&text);
}

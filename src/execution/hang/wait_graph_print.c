// SPDX-License-Identifier: Apache-2.0
/* The waits-for graph in words and as JSON. */
#include "execution/hang/wait_graph.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void ls_append_ranks(const uint32_t *ranks, uint32_t count, ls_text *text)
{
    for (uint32_t i = 0; i < count;) {
        uint32_t last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1) {
            last++;
        }
        ls_text_printf(text, "%s%" PRIu32, i > 0 ? ", " : "", ranks[i]);
        if (last > i) {
            ls_text_printf(text, "%s%" PRIu32, last == i + 1 ? ", " : " to ", ranks[last]);
        }
        i = last + 1;
    }
}

/* ---- one culprit ---- */

static void append_who(const ls_culprit *culprit, const ls_describe *describe, ls_text *text)
{
    char process[128] = "", name[LS_MESH_NAME_BYTES];
    if (culprit->snapshot) {
        snprintf(process, sizeof process, "%.90s, pid %" PRId32, culprit->snapshot->header.host,
                 culprit->snapshot->header.pid);
    }
    ls_text_append(text,
                   ls_mesh_name(describe ? describe->mesh : (ls_mesh){0}, culprit->rank, process, name));
}

static const char *phrase_of(uint32_t activity)
{
    switch (activity) {
    case LS_ACTIVITY_STARTING:
        return "starting";
    case LS_ACTIVITY_IDLE:
        return "waiting for the trainer";
    case LS_ACTIVITY_DATA:
        return "drawing samples";
    case LS_ACTIVITY_FORWARD:
        return "in forward";
    case LS_ACTIVITY_BACKWARD:
        return "in backward";
    case LS_ACTIVITY_REDUCE:
        return "reducing gradients";
    case LS_ACTIVITY_UPDATE:
        return "updating parameters";
    case LS_ACTIVITY_COMM:
        return "in an operation";
    default:
        return "outside any operation";
    }
}

static void append_step(const ls_flight_now *now, const char *joint, ls_text *text)
{
    if (now->step > 0) {
        ls_text_printf(text, "%s step %" PRIu64, joint, now->step);
    }
}

static void append_leaf(const ls_flight_now *now, ls_text *text)
{
    if (now->step > 0 && (now->activity == LS_ACTIVITY_FORWARD || now->activity == LS_ACTIVITY_BACKWARD ||
                          now->activity == LS_ACTIVITY_DATA)) {
        ls_text_printf(text, ", leaf %" PRIu32, now->leaf);
    }
}

/* "in backward (layer 3 attention)", after `joint`. */
static void append_doing(const ls_rank_snapshot *snapshot, const ls_describe *describe, const char *joint,
                         ls_text *text)
{
    const ls_flight_now *now = &snapshot->now;
    char detail[128] = "";
    if (describe && describe->activity) {
        describe->activity(describe->context, now->activity, now->number, detail, sizeof detail);
    } else if (now->activity == LS_ACTIVITY_FORWARD || now->activity == LS_ACTIVITY_BACKWARD) {
        snprintf(detail, sizeof detail, "plan step %" PRIu32, now->number);
    }
    if (snapshot->open_count > 0) {
        char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES];
        ls_rank_snapshot_op_words(&snapshot->open[0], words);
        ls_text_printf(text, "%sin %s at %s", joint, words, snapshot->open[0].site);
    } else if (now->activity == LS_ACTIVITY_STARTING) {
        /* A program that uses only the collectives does not report what it does in between. */
        ls_text_printf(text, "%s%s", joint,
                       snapshot->comm_count > 0 ? "in its own code, outside any operation" : "starting");
    } else {
        ls_text_printf(text, "%s%s%s%s%s", joint, phrase_of(now->activity), detail[0] ? " (" : "", detail,
                       detail[0] ? ")" : "");
    }
}

/* The same, followed by " of step 12, leaf 3". */
static void append_where(const ls_rank_snapshot *snapshot, const ls_describe *describe, const char *joint,
                         ls_text *text)
{
    const bool is_idle = snapshot->now.activity == LS_ACTIVITY_IDLE;
    append_doing(snapshot, describe, joint, text);
    append_step(&snapshot->now, is_idle ? " in" : " of", text);
    append_leaf(&snapshot->now, text);
}

/* " was killed by signal 9 (SIGKILL) in step 12, last seen in backward (layer 3 attention), leaf
 * 3" */
static void append_end(const ls_rank_snapshot *snapshot, const ls_describe *describe, ls_text *text)
{
    const ls_flight_header *h = &snapshot->header;
    if (!h->has_exit_status) {
        ls_text_append(text, " is dead");
    } else if (WIFSIGNALED(h->exit_status)) {
        const char *name = sigabbrev_np(WTERMSIG(h->exit_status));
        ls_text_printf(text, " was killed by signal %d (SIG%s)", WTERMSIG(h->exit_status), name ? name : "?");
    } else {
        ls_text_printf(text, " ended with exit code %d", WEXITSTATUS(h->exit_status));
    }
    append_step(&snapshot->now, " in", text);
    append_doing(snapshot, describe, ", last seen ", text);
    append_leaf(&snapshot->now, text);
}

static void append_op(const ls_graph *graph, const ls_rank_snapshot_op *op, ls_text *text)
{
    char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES];
    ls_rank_snapshot_op_words(op, words);
    ls_text_printf(text, "%s (number %" PRIu64 " of %s) at %s", words, op->seq,
                   ls_graph_comm_name(graph, op->comm_id), op->site);
}

void ls_graph_append_cause(const ls_culprit *culprit, const ls_describe *describe, ls_text *text)
{
    const ls_rank_snapshot *snapshot = culprit->snapshot;
    append_who(culprit, describe, text);
    switch (culprit->cause) {
    case LS_CAUSE_NOT_STARTED:
        ls_text_append(text, snapshot ? " has not joined yet" : " has not started");
        break;
    case LS_CAUSE_DEAD:
        append_end(snapshot, describe, text);
        break;
    case LS_CAUSE_FINISHED:
        ls_text_append(text, " has finished and will not call again");
        break;
    case LS_CAUSE_FAILED:
        ls_text_printf(text, " has failed: %.*s", (int)strcspn(snapshot->words, "\n"), snapshot->words);
        break;
    case LS_CAUSE_LEFT:
        ls_text_append(text, " has closed the communicator");
        break;
    case LS_CAUSE_STOPPED:
        append_where(snapshot, describe, " is stopped (by a signal such as SIGSTOP; SIGCONT resumes it), ",
                     text);
        break;
    case LS_CAUSE_TRACED:
        append_where(snapshot, describe, " is held by a debugger, ", text);
        break;
    case LS_CAUSE_BLOCKED:
        append_where(snapshot, describe, " is blocked in a system call (disk or network file system), ",
                     text);
        break;
    case LS_CAUSE_DEADLOCK:
    case LS_CAUSE_INSIDE:
        break;
    default:
        append_where(snapshot, describe, " is ", text);
        break;
    }
}

static const ls_wait_edge *edge_to(const ls_graph *graph, uint32_t rank, uint32_t target)
{
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        const ls_wait_edge *edge = &graph->edges[i];
        for (uint32_t k = 0; edge->rank == rank && k < edge->target_count; k++) {
            if (edge->targets[k] == target) {
                return edge;
            }
        }
    }
    return NULL;
}

static void append_circle(const ls_graph *graph, const ls_culprit *culprit, ls_text *text)
{
    ls_text_append(text, "order deadlock: ");
    for (uint32_t i = 0; i < culprit->circle_count; i++) {
        const uint32_t rank = culprit->circle[i], next = culprit->circle[(i + 1) % culprit->circle_count];
        const ls_wait_edge *edge = edge_to(graph, rank, next);
        ls_text_printf(text, "%srank %" PRIu32 " waits for rank %" PRIu32 " in ", i > 0 ? ", " : "", rank,
                       next);
        if (edge) {
            append_op(graph, edge->op, text);
        }
    }
    ls_text_append(text, "; call the operations of different communicators in the same order on all ranks");
    if (culprit->waiting_count > 0) {
        ls_text_printf(text, "; rank%s ", culprit->waiting_count > 1 ? "s" : "");
        ls_append_ranks(culprit->waiting, culprit->waiting_count, text);
        ls_text_append(text, culprit->waiting_count > 1 ? " wait for them" : " waits for them");
    }
}

static bool is_waiting(const ls_culprit *culprit, uint32_t rank)
{
    bool found = false;
    for (uint32_t i = 0; i < culprit->waiting_count; i++) {
        found = found || culprit->waiting[i] == rank;
    }
    return found;
}

/* Whether all waiting ranks are processes of one machine: the network is not the cause then. */
static bool on_one_host(const ls_graph *graph, const ls_culprit *culprit)
{
    const ls_flight_header *first = NULL;
    for (uint32_t i = 0; i < graph->snapshot_count; i++) {
        const ls_flight_header *header = &graph->snapshots[i].header;
        if (!is_waiting(culprit, graph->snapshots[i].rank)) {
            continue;
        }
        first = first ? first : header;
        if (strcmp(first->host, header->host) != 0 || strcmp(first->boot_id, header->boot_id) != 0) {
            return false;
        }
    }
    return true;
}

static void append_inside(const ls_graph *graph, const ls_culprit *culprit, ls_text *text)
{
    ls_text_printf(text, "rank%s ", culprit->waiting_count > 1 ? "s" : "");
    ls_append_ranks(culprit->waiting, culprit->waiting_count, text);
    if (culprit->unknown > 0) {
        ls_text_append(text, culprit->waiting_count > 1 ? " wait in " : " waits in ");
        append_op(graph, culprit->op, text);
        ls_text_printf(text,
                       " for %" PRIu32 " rank%s on other hosts, or for their data: run `lockstep diagnose` "
                       "there to see what they do",
                       culprit->unknown, culprit->unknown > 1 ? "s" : "");
        return;
    }
    ls_text_append(text, culprit->waiting_count > 1 ? " are all inside " : " is inside ");
    append_op(graph, culprit->op, text);
    ls_text_append(text, on_one_host(graph, culprit)
                             ? " and none gets out, although all are on one host: look at what their "
                               "processes do (gdb -p) and at what else runs there"
                             : " and none gets out: check the network between their hosts");
}

void ls_graph_append_culprit(const ls_graph *graph, const ls_culprit *culprit, const ls_describe *describe,
                             ls_text *text)
{
    if (culprit->cause == LS_CAUSE_DEADLOCK) {
        append_circle(graph, culprit, text);
        return;
    }
    if (culprit->cause == LS_CAUSE_INSIDE) {
        append_inside(graph, culprit, text);
        return;
    }
    ls_graph_append_cause(culprit, describe, text);
    if (culprit->op && culprit->waiting_count > 0) {
        ls_text_printf(text, "; rank%s ", culprit->waiting_count > 1 ? "s" : "");
        ls_append_ranks(culprit->waiting, culprit->waiting_count, text);
        ls_text_append(text, culprit->waiting_count > 1 ? " wait for it in " : " waits for it in ");
        append_op(graph, culprit->op, text);
    }
}

static bool is_same_wait(const ls_wait_edge *a, const ls_wait_edge *b)
{
    return a->rank == b->rank && a->unknown == b->unknown && a->target_count == b->target_count &&
           memcmp(a->targets, b->targets, a->target_count * sizeof *a->targets) == 0;
}

/* Whether an earlier edge has the same waits: a rank that overlaps operations waits for the same
 * ranks in several of them, and the oldest is enough to print. */
static bool is_repeated(const ls_graph *graph, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (is_same_wait(&graph->edges[i], &graph->edges[index])) {
            return true;
        }
    }
    return false;
}

void ls_graph_append_waits(const ls_graph *graph, ls_text *text)
{
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        const ls_wait_edge *edge = &graph->edges[i];
        if (is_repeated(graph, i)) {
            continue;
        }
        ls_text_printf(text, "rank %" PRIu32 " waits for ", edge->rank);
        if (edge->target_count > 0) {
            ls_text_printf(text, "rank%s ", edge->target_count > 1 ? "s" : "");
            ls_append_ranks(edge->targets, edge->target_count, text);
        } else if (edge->unknown > 0) {
            ls_text_printf(text, "%" PRIu32 " rank%s that cannot be seen from here", edge->unknown,
                           edge->unknown > 1 ? "s" : "");
        } else {
            ls_text_append(text, "the others, which are inside too,");
        }
        ls_text_append(text, " in ");
        append_op(graph, edge->op, text);
        ls_text_append(text, "\n");
    }
}

/* ---- JSON ---- */

static json_t *ranks_to_json(const uint32_t *ranks, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(list, json_integer(ranks[i]));
    }
    return list;
}

static void put_op(const ls_graph *graph, const ls_rank_snapshot_op *op, json_t *object)
{
    char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES];
    ls_rank_snapshot_op_words(op, words);
    json_object_set_new(object, "operation", json_string(words));
    json_object_set_new(object, "kind", json_string(ls_comm_kind_name((ls_comm_kind)op->kind)));
    json_object_set_new(object, "count", json_integer((json_int_t)op->count));
    json_object_set_new(object, "communicator", json_string(ls_graph_comm_name(graph, op->comm_id)));
    json_object_set_new(object, "seq", json_integer((json_int_t)op->seq));
    json_object_set_new(object, "site", json_string(op->site));
}

json_t *ls_culprit_to_json(const ls_graph *graph, const ls_culprit *culprit, const ls_describe *describe)
{
    ls_text text = {0};
    json_t *object = json_object();
    json_object_set_new(object, "rank", json_integer(culprit->rank));
    json_object_set_new(object, "host",
                        culprit->snapshot ? json_string(culprit->snapshot->header.host) : json_null());
    json_object_set_new(object, "pid",
                        culprit->snapshot ? json_integer(culprit->snapshot->header.pid) : json_null());
    json_object_set_new(object, "why", json_string(ls_cause_name(culprit->cause)));
    ls_graph_append_culprit(graph, culprit, describe, &text);
    json_object_set_new(object, "text", json_string(ls_text_string(&text)));
    json_object_set_new(object, "waiting", ranks_to_json(culprit->waiting, culprit->waiting_count));
    if (culprit->circle_count > 0) {
        json_object_set_new(object, "circle", ranks_to_json(culprit->circle, culprit->circle_count));
    }
    if (culprit->op) {
        put_op(graph, culprit->op, object);
    }
    if (culprit->snapshot) {
        json_object_set_new(object, "activity",
                            json_string(ls_activity_name((ls_activity)culprit->snapshot->now.activity)));
        json_object_set_new(object, "step", json_integer((json_int_t)culprit->snapshot->now.step));
    }
    ls_text_release(&text);
    return object;
}

json_t *ls_graph_to_json(const ls_graph *graph, const ls_describe *describe)
{
    json_t *waits = json_array(), *culprits = json_array();
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        const ls_wait_edge *edge = &graph->edges[i];
        json_t *object = json_pack("{s:I, s:o}", "rank", (json_int_t)edge->rank, "for",
                                   ranks_to_json(edge->targets, edge->target_count));
        put_op(graph, edge->op, object);
        json_array_append_new(waits, object);
    }
    for (uint32_t i = 0; i < graph->culprit_count; i++) {
        json_array_append_new(culprits, ls_culprit_to_json(graph, &graph->culprits[i], describe));
    }
    return json_pack("{s:o, s:o}", "waits", waits, "culprits", culprits);
}

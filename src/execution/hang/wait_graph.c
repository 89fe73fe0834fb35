// SPDX-License-Identifier: Apache-2.0
/*
 * Builds the waits-for graph in four passes:
 *
 *   edges     for each rank, and each operation that holds it up: the ranks it waits for there
 *   roots     ranks that others wait for and that do not wait themselves; all ranks from which such
 *             a root can be reached are covered by it
 *   insides   operations that all members have entered and none leaves: no rank is to blame
 *   circles   what is not covered by now waits only for ranks that are not covered either
 *
 * Each waiting rank is covered by exactly one pass, so each is explained, and none is blamed for
 * waiting.
 */
#include "execution/hang/wait_graph.h"

#include <string.h>

const char *ls_cause_name(ls_cause cause)
{
    static const char *const names[LS_CAUSE_COUNT] = {
        [LS_CAUSE_NOT_STARTED] = "not_started",
        [LS_CAUSE_DEAD] = "dead",
        [LS_CAUSE_FINISHED] = "finished",
        [LS_CAUSE_FAILED] = "failed",
        [LS_CAUSE_LEFT] = "left",
        [LS_CAUSE_STOPPED] = "stopped",
        [LS_CAUSE_TRACED] = "traced",
        [LS_CAUSE_BLOCKED] = "blocked",
        [LS_CAUSE_IDLE] = "idle",
        [LS_CAUSE_DATA] = "data",
        [LS_CAUSE_COMPUTE] = "compute",
        [LS_CAUSE_REDUCE] = "reduce",
        [LS_CAUSE_UPDATE] = "update",
        [LS_CAUSE_OTHER] = "other",
        [LS_CAUSE_DEADLOCK] = "deadlock",
        [LS_CAUSE_INSIDE] = "inside",
    };
    return names[cause];
}

bool ls_cause_is_certain(ls_cause cause)
{
    return cause == LS_CAUSE_DEAD || cause == LS_CAUSE_FINISHED || cause == LS_CAUSE_FAILED ||
           cause == LS_CAUSE_LEFT || cause == LS_CAUSE_STOPPED || cause == LS_CAUSE_TRACED ||
           cause == LS_CAUSE_DEADLOCK;
}

/* Working memory while the graph is built. All tables have `size` entries, indexed by rank. */
typedef struct builder {
    ls_arena *arena;
    ls_graph *graph;
    const ls_rank_snapshot **snapshot_of; /* NULL: none */
    bool *is_target;                      /* some rank waits for it */
    bool *covered;                        /* accounted for: it is a culprit, or waits for one */
    uint32_t *queue;                      /* ranks found by spread(), in that order */
    bool *seen;                           /* within one search */
} builder;

/* A rank that joined, left and joined again has a closed and an open entry of the same id; the open
 * one counts. */
static const ls_flight_comm *find_comm(const ls_rank_snapshot *snapshot, uint32_t comm_id)
{
    const ls_flight_comm *found = NULL;
    for (uint32_t i = 0; i < snapshot->comm_count; i++) {
        const ls_flight_comm *comm = &snapshot->comms[i];
        if (comm->id == comm_id && (!found || comm->state == LS_FLIGHT_COMM_OPEN)) {
            found = comm;
        }
    }
    return found;
}

const char *ls_graph_comm_name(const ls_graph *graph, uint32_t comm_id)
{
    for (uint32_t i = 0; i < graph->snapshot_count; i++) {
        const ls_flight_comm *comm = find_comm(&graph->snapshots[i], comm_id);
        if (comm && comm->name[0]) {
            return comm->name;
        }
    }
    return "?";
}

/* ---- edges ---- */

/* The rank cannot continue, whatever operation it is inside. */
static bool cant_move(const ls_rank_snapshot *snapshot)
{
    return snapshot->process == LS_PROCESS_STOPPED || snapshot->process == LS_PROCESS_TRACED ||
           snapshot->process == LS_PROCESS_DEAD;
}

typedef struct member_count {
    uint32_t size, found;
} member_count;

/* Collects, as targets of the edge, the other members of the operation's communicator for which
 * `is_wanted` returns true. */
static member_count collect(const builder *b, const ls_rank_snapshot *self, ls_wait_edge *edge,
                            bool (*is_wanted)(const ls_rank_snapshot *, const ls_flight_comm *,
                                              const ls_wait_edge *))
{
    const ls_flight_comm *own = find_comm(self, edge->op->comm_id);
    member_count members = {.size = own ? own->size : 0};
    edge->target_count = 0;
    for (uint32_t rank = 0; rank < b->graph->size; rank++) {
        const ls_rank_snapshot *other = b->snapshot_of[rank];
        const ls_flight_comm *comm = other ? find_comm(other, edge->op->comm_id) : NULL;
        members.found += comm != NULL;
        /* In a communicator of all ranks, a rank that has not joined it yet is waited for too. In a
         * smaller one it may simply not be a member. */
        const bool is_missing = !comm && members.size == b->graph->size && (other || !b->graph->is_partial);
        if (other != self && (is_missing || (comm && is_wanted(other, comm, edge)))) {
            edge->targets[edge->target_count++] = rank;
        }
    }
    return members;
}

static bool has_not_come(const ls_rank_snapshot *other, const ls_flight_comm *comm, const ls_wait_edge *edge)
{
    (void)other;
    return comm->entered < edge->op->seq;
}

static bool is_stuck_inside(const ls_rank_snapshot *other, const ls_flight_comm *comm,
                            const ls_wait_edge *edge)
{
    return comm->left < edge->op->seq && cant_move(other);
}

/* For send and receive: the peer, unless it is inside the matching call, or a later one of the same
 * pair, and can continue. A later one is seen where the snapshot of this rank is older: what it
 * waits for there has come since. */
static bool is_absent_peer(const ls_rank_snapshot *other, const ls_flight_comm *comm,
                           const ls_wait_edge *edge)
{
    const ls_rank_snapshot_op *op = edge->op;
    if (comm->rank != op->peer) {
        return false;
    }
    const uint8_t half = op->kind == LS_COMM_SEND ? LS_COMM_RECEIVE : LS_COMM_SEND;
    for (uint32_t i = 0; i < other->open_count && !cant_move(other); i++) {
        const ls_rank_snapshot_op *its = &other->open[i];
        if (its->comm_id == op->comm_id && its->kind == half && its->peer == edge->comm_rank &&
            its->seq >= op->seq) {
            return false;
        }
    }
    return true;
}

/* An operation of a communicator that the rank closed while it has another one open was given up:
 * it belongs to a step that another team has finished. */
static bool is_given_up(const ls_rank_snapshot *snapshot, const ls_rank_snapshot_op *op)
{
    const ls_flight_comm *own = find_comm(snapshot, op->comm_id);
    bool has_another = false;
    for (uint32_t i = 0; i < snapshot->comm_count; i++) {
        has_another = has_another || snapshot->comms[i].state == LS_FLIGHT_COMM_OPEN;
    }
    return own && own->state == LS_FLIGHT_COMM_CLOSED && has_another;
}

/*
 * Whether the operation holds the rank up. A rank that has started other work since it began the
 * operation overlaps the two (it reduces the gradients of one layer while it computes the next),
 * and does not wait until it reports the activity COMM.
 */
static bool is_held_up(const ls_rank_snapshot *snapshot, const ls_rank_snapshot_op *op)
{
    return snapshot->now.activity == LS_ACTIVITY_COMM || snapshot->now.since_ns <= op->begin_ns;
}

/*
 * Adds what `self` waits for inside `op`. First the members that have not entered the operation.
 * Only if all of them have, the members that are inside but cannot continue: as long as a rank is
 * missing, a stopped one inside is not what the others wait for.
 */
static void add_edge(builder *b, const ls_rank_snapshot *self, const ls_rank_snapshot_op *op)
{
    ls_wait_edge *edge = &b->graph->edges[b->graph->edge_count++];
    const ls_flight_comm *own = find_comm(self, op->comm_id);
    *edge = (ls_wait_edge){.rank = self->rank, .op = op, .comm_rank = own ? own->rank : UINT32_MAX};
    edge->targets = ls_arena_new(b->arena, uint32_t, b->graph->size);
    if (!ls_comm_kind_is_collective((ls_comm_kind)op->kind)) {
        (void)collect(b, self, edge, is_absent_peer);
        return;
    }
    const member_count members = collect(b, self, edge, has_not_come);
    const bool all_are_seen = members.size == b->graph->size && !b->graph->is_partial;
    edge->unknown = members.size > members.found && !all_are_seen ? members.size - members.found : 0;
    if (edge->target_count == 0) {
        (void)collect(b, self, edge, is_stuck_inside);
    }
}

/* ---- culprits ---- */

static bool waits(const builder *b, uint32_t rank)
{
    for (uint32_t i = 0; i < b->graph->edge_count; i++) {
        if (b->graph->edges[i].rank == rank) {
            return true;
        }
    }
    return false;
}

static bool edge_has(const ls_wait_edge *edge, uint32_t rank)
{
    for (uint32_t i = 0; i < edge->target_count; i++) {
        if (edge->targets[i] == rank) {
            return true;
        }
    }
    return false;
}

static ls_cause cause_of_end(const ls_rank_snapshot *snapshot)
{
    const ls_flight_header *h = &snapshot->header;
    if (h->outcome == LS_FLIGHT_ENDED_BADLY) {
        return LS_CAUSE_FAILED;
    }
    return h->outcome == LS_FLIGHT_FINISHED || (h->has_exit_status && h->exit_status == 0) ? LS_CAUSE_FINISHED
                                                                                           : LS_CAUSE_DEAD;
}

static ls_cause cause_of_activity(uint32_t activity)
{
    switch (activity) {
    case LS_ACTIVITY_IDLE:
        return LS_CAUSE_IDLE;
    case LS_ACTIVITY_DATA:
        return LS_CAUSE_DATA;
    case LS_ACTIVITY_FORWARD:
    case LS_ACTIVITY_BACKWARD:
        return LS_CAUSE_COMPUTE;
    case LS_ACTIVITY_REDUCE:
        return LS_CAUSE_REDUCE;
    case LS_ACTIVITY_UPDATE:
        return LS_CAUSE_UPDATE;
    default:
        return LS_CAUSE_OTHER;
    }
}

/* Why the rank does not arrive, the surest sign first: what the system reports about the process,
 * then the communicator, then what the rank itself last reported. */
static ls_cause cause_of(const ls_rank_snapshot *snapshot, const ls_rank_snapshot_op *op)
{
    if (!snapshot) {
        return LS_CAUSE_NOT_STARTED;
    }
    if (snapshot->process == LS_PROCESS_DEAD || snapshot->header.outcome != LS_FLIGHT_RUNNING) {
        return cause_of_end(snapshot);
    }
    if (snapshot->process == LS_PROCESS_STOPPED) {
        return LS_CAUSE_STOPPED;
    }
    if (snapshot->process == LS_PROCESS_TRACED) {
        return LS_CAUSE_TRACED;
    }
    const ls_flight_comm *comm = op ? find_comm(snapshot, op->comm_id) : NULL;
    if (op && !comm) {
        return LS_CAUSE_NOT_STARTED;
    }
    if (comm && comm->state == LS_FLIGHT_COMM_CLOSED) {
        return LS_CAUSE_LEFT;
    }
    return snapshot->process == LS_PROCESS_BLOCKED ? LS_CAUSE_BLOCKED
                                                   : cause_of_activity(snapshot->now.activity);
}

/* Since when the operation has held the rank up: an overlapped one only since the rank reports that
 * it waits. */
static uint64_t held_since_ns(const ls_rank_snapshot *snapshot, const ls_rank_snapshot_op *op)
{
    const bool says_so = snapshot->now.activity == LS_ACTIVITY_COMM && snapshot->now.since_ns > op->begin_ns;
    return says_so ? snapshot->now.since_ns : op->begin_ns;
}

/* A breadth-first search against the direction of the edges: appends to the queue all ranks that
 * wait for those in queue[0..count), directly or through others, and marks them covered. Returns
 * the new length of the queue. */
static uint32_t spread(builder *b, uint32_t count)
{
    memset(b->seen, 0, b->graph->size * sizeof b->seen[0]);
    for (uint32_t i = 0; i < count; i++) {
        b->seen[b->queue[i]] = true;
    }
    for (uint32_t at = 0; at < count; at++) {
        for (uint32_t i = 0; i < b->graph->edge_count; i++) {
            const ls_wait_edge *edge = &b->graph->edges[i];
            if (!b->seen[edge->rank] && edge_has(edge, b->queue[at])) {
                b->seen[edge->rank] = b->covered[edge->rank] = true;
                b->queue[count++] = edge->rank;
            }
        }
    }
    return count;
}

static void sort_ranks(uint32_t *ranks, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const uint32_t rank = ranks[i];
        uint32_t at = i;
        for (; at > 0 && ranks[at - 1] > rank; at--) {
            ranks[at] = ranks[at - 1];
        }
        ranks[at] = rank;
    }
}

static uint32_t *copy_ranks(builder *b, const uint32_t *ranks, uint32_t count)
{
    uint32_t *copy = ls_arena_new(b->arena, uint32_t, count);
    memcpy(copy, ranks, count * sizeof *copy);
    return copy;
}

/* Of the operations in which a rank waits for the culprit, the one waited in longest. Times of
 * different hosts are compared on the shared clock; since_ns stays on the waiting rank's own. */
static void find_longest_wait(const builder *b, ls_culprit *culprit)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < b->graph->edge_count; i++) {
        const ls_wait_edge *edge = &b->graph->edges[i];
        const ls_rank_snapshot *snapshot = b->snapshot_of[edge->rank];
        const uint64_t since_ns = held_since_ns(snapshot, edge->op);
        if (edge_has(edge, culprit->rank) && since_ns + (uint64_t)snapshot->header.clock_offset_ns < first) {
            first = since_ns + (uint64_t)snapshot->header.clock_offset_ns;
            culprit->op = edge->op;
            culprit->op_rank = edge->rank;
            culprit->since_ns = since_ns;
        }
    }
}

static ls_culprit *add_culprit(builder *b, uint32_t rank)
{
    ls_culprit *culprit = &b->graph->culprits[b->graph->culprit_count++];
    *culprit = (ls_culprit){.rank = rank, .snapshot = b->snapshot_of[rank]};
    return culprit;
}

static void take_waiting(builder *b, ls_culprit *culprit, uint32_t before, uint32_t count)
{
    culprit->waiting = copy_ranks(b, b->queue + before, count - before);
    culprit->waiting_count = count - before;
    sort_ranks(culprit->waiting, culprit->waiting_count);
}

/* Culprits proper: a rank that others wait for and that waits for no other, or cannot continue. */
static void add_roots(builder *b)
{
    for (uint32_t rank = 0; rank < b->graph->size; rank++) {
        const ls_rank_snapshot *snapshot = b->snapshot_of[rank];
        if (!b->is_target[rank] || (waits(b, rank) && !cant_move(snapshot))) {
            continue;
        }
        ls_culprit *culprit = add_culprit(b, rank);
        b->covered[rank] = true;
        b->queue[0] = rank;
        take_waiting(b, culprit, 1, spread(b, 1));
        find_longest_wait(b, culprit);
        culprit->cause = cause_of(snapshot, culprit->op);
    }
}

/* All members are inside the operation and none of them is visibly at fault: one culprit per
 * operation, with the cause INSIDE. */
static void add_insides(builder *b)
{
    for (uint32_t i = 0; i < b->graph->edge_count; i++) {
        const ls_wait_edge *edge = &b->graph->edges[i];
        if (edge->target_count > 0 || b->covered[edge->rank]) {
            continue;
        }
        uint32_t count = 0;
        for (uint32_t k = i; k < b->graph->edge_count; k++) {
            const ls_wait_edge *other = &b->graph->edges[k];
            if (other->target_count == 0 && other->op->comm_id == edge->op->comm_id &&
                other->op->seq == edge->op->seq && !b->covered[other->rank]) {
                b->covered[other->rank] = true;
                b->queue[count++] = other->rank;
            }
        }
        ls_culprit *culprit = add_culprit(b, edge->rank);
        culprit->cause = LS_CAUSE_INSIDE;
        culprit->unknown = edge->unknown;
        culprit->op = edge->op;
        culprit->op_rank = edge->rank;
        culprit->since_ns = held_since_ns(b->snapshot_of[edge->rank], edge->op);
        take_waiting(b, culprit, 0, spread(b, count));
    }
}

/* A rank that `rank` waits for and that is not accounted for yet; UINT32_MAX if there is none.
 * It is the same one at each call, so that following it leads around one circle. */
static uint32_t next_in_circle(const builder *b, uint32_t rank)
{
    for (uint32_t i = 0; i < b->graph->edge_count; i++) {
        const ls_wait_edge *edge = &b->graph->edges[i];
        for (uint32_t k = 0; edge->rank == rank && k < edge->target_count; k++) {
            if (!b->covered[edge->targets[k]]) {
                return edge->targets[k];
            }
        }
    }
    return UINT32_MAX;
}

/*
 * The ranks left over wait only for each other, so a walk along their edges must come back to a
 * rank it has already seen. That rank lies on the circle, but `start` need not:
 *
 *   start ──▶ a ──▶ b ──▶ c
 *                   ▲     │
 *                   └─────┘      circle: b, c; the others wait for it
 */
static void add_circle(builder *b, uint32_t start)
{
    memset(b->seen, 0, b->graph->size * sizeof b->seen[0]);
    uint32_t rank = start;
    for (uint32_t next = start; next != UINT32_MAX && !b->seen[next]; next = next_in_circle(b, rank)) {
        b->seen[next] = true;
        rank = next;
    }
    const uint32_t first = next_in_circle(b, rank);
    if (first == UINT32_MAX) {
        b->covered[start] = true; /* cannot happen while a rank without edges is a culprit */
        return;
    }
    uint32_t count = 0;
    for (uint32_t at = first; count == 0 || at != first; at = next_in_circle(b, at)) {
        b->queue[count++] = at;
    }
    ls_culprit *culprit = add_culprit(b, first);
    culprit->cause = LS_CAUSE_DEADLOCK;
    culprit->circle = copy_ranks(b, b->queue, count);
    culprit->circle_count = count;
    for (uint32_t i = 0; i < count; i++) {
        b->covered[b->queue[i]] = true;
    }
    find_longest_wait(b, culprit);
    take_waiting(b, culprit, count, spread(b, count));
}

static void add_circles(builder *b)
{
    for (uint32_t i = 0; i < b->graph->edge_count; i++) {
        const ls_wait_edge *edge = &b->graph->edges[i];
        if (edge->target_count > 0 && !b->covered[edge->rank]) {
            add_circle(b, edge->rank);
        }
    }
}

/* The order matters: what a stopped or missing rank explains is covered first, then operations that
 * all members are inside; only what is left can be a circle. */
void ls_graph_build(ls_arena *arena, const ls_rank_snapshot *snapshots, uint32_t snapshot_count,
                    uint32_t size, bool is_partial, ls_graph *graph_out)
{
    ls_graph *graph = graph_out;
    *graph = (ls_graph){
        .snapshots = snapshots, .snapshot_count = snapshot_count, .size = size, .is_partial = is_partial};
    builder b = {.arena = arena, .graph = graph};
    b.snapshot_of = ls_arena_new(arena, const ls_rank_snapshot *, size);
    b.is_target = ls_arena_new(arena, bool, size);
    b.covered = ls_arena_new(arena, bool, size);
    b.seen = ls_arena_new(arena, bool, size);
    b.queue = ls_arena_new(arena, uint32_t, size + 1);
    graph->edges = ls_arena_new(arena, ls_wait_edge, (size_t)snapshot_count * LS_RANK_SNAPSHOT_OPEN_MAX + 1);
    graph->culprits =
        ls_arena_new(arena, ls_culprit, (size_t)size + snapshot_count * LS_RANK_SNAPSHOT_OPEN_MAX + 1);
    for (uint32_t i = 0; i < snapshot_count; i++) {
        if (snapshots[i].has_file && snapshots[i].rank < size) {
            b.snapshot_of[snapshots[i].rank] = &snapshots[i];
        }
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        const ls_rank_snapshot *snapshot = b.snapshot_of[rank];
        /* A process that has ended does not wait, whatever operation it was inside. */
        const bool ended = !snapshot || snapshot->process == LS_PROCESS_DEAD ||
                           snapshot->header.outcome != LS_FLIGHT_RUNNING;
        for (uint32_t i = 0; !ended && i < snapshot->open_count; i++) {
            if (is_held_up(snapshot, &snapshot->open[i]) && !is_given_up(snapshot, &snapshot->open[i])) {
                add_edge(&b, snapshot, &snapshot->open[i]);
            }
        }
    }
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        for (uint32_t k = 0; k < graph->edges[i].target_count; k++) {
            b.is_target[graph->edges[i].targets[k]] = true;
        }
    }
    add_roots(&b);
    add_insides(&b);
    add_circles(&b);
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/graph.h"

#include "base/assert.h"

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

/* What is worked with while the graph is built; all tables have `size` entries, by rank. */
typedef struct builder {
    ls_arena *arena;
    ls_graph *graph;
    const ls_sight **sight_of; /* NULL: none */
    bool *is_target, *covered;
    uint32_t *queue;
    bool *seen;
} builder;

/* Who joined, left and joined again has a closed one and an open one of the same id. */
static const ls_flight_comm *find_comm(const ls_sight *sight, uint32_t comm_id)
{
    const ls_flight_comm *found = NULL;
    for (uint32_t i = 0; i < sight->comm_count; i++) {
        const ls_flight_comm *comm = &sight->comms[i];
        if (comm->id == comm_id && (!found || comm->state == LS_FLIGHT_COMM_OPEN)) {
            found = comm;
        }
    }
    return found;
}

const char *ls_graph_comm_name(const ls_graph *graph, uint32_t comm_id)
{
    for (uint32_t i = 0; i < graph->sight_count; i++) {
        const ls_flight_comm *comm = find_comm(&graph->sights[i], comm_id);
        if (comm && comm->name[0]) {
            return comm->name;
        }
    }
    return "?";
}

/* ---- edges ---- */

/* Whatever it is inside of, it can't go on. */
static bool cant_move(const ls_sight *sight)
{
    return sight->process == LS_PROCESS_STOPPED || sight->process == LS_PROCESS_TRACED ||
           sight->process == LS_PROCESS_DEAD;
}

typedef struct member_count {
    uint32_t size, found;
} member_count;

/* Calls `is_wanted` for every other member of the operation's communicator and collects those it wants. */
static member_count collect(const builder *b, const ls_sight *self, ls_wait_edge *edge,
                            bool (*is_wanted)(const ls_sight *, const ls_flight_comm *, const ls_sight_op *))
{
    const ls_flight_comm *own = find_comm(self, edge->op->comm_id);
    member_count members = {.size = own ? own->size : 0};
    edge->target_count = 0;
    for (uint32_t rank = 0; rank < b->graph->size; rank++) {
        const ls_sight *other = b->sight_of[rank];
        const ls_flight_comm *comm = other ? find_comm(other, edge->op->comm_id) : NULL;
        members.found += comm != NULL;
        /* A communicator of all ranks: who is not in it yet is missing. */
        const bool is_missing = !comm && members.size == b->graph->size && (other || !b->graph->is_partial);
        if (other != self && (is_missing || (comm && is_wanted(other, comm, edge->op)))) {
            edge->targets[edge->target_count++] = rank;
        }
    }
    return members;
}

static bool has_not_come(const ls_sight *other, const ls_flight_comm *comm, const ls_sight_op *op)
{
    (void)other;
    return comm->entered < op->seq;
}

static bool is_stuck_inside(const ls_sight *other, const ls_flight_comm *comm, const ls_sight_op *op)
{
    return comm->left < op->seq && cant_move(other);
}

/* Send and receive: the peer, unless it is inside the other half. */
static bool is_absent_peer(const ls_sight *other, const ls_flight_comm *comm, const ls_sight_op *op)
{
    if (comm->rank != op->peer) {
        return false;
    }
    const uint8_t half = op->kind == LS_COMM_SEND ? LS_COMM_RECEIVE : LS_COMM_SEND;
    for (uint32_t i = 0; i < other->open_count && !cant_move(other); i++) {
        const ls_sight_op *its = &other->open[i];
        if (its->comm_id == op->comm_id && its->kind == half && its->seq == op->seq) {
            return false;
        }
    }
    return true;
}

/* Operations of a communicator that it has left for another were given up with it: a step that another team finished. */
static bool is_given_up(const ls_sight *sight, const ls_sight_op *op)
{
    const ls_flight_comm *own = find_comm(sight, op->comm_id);
    bool has_another = false;
    for (uint32_t i = 0; i < sight->comm_count; i++) {
        has_another = has_another || sight->comms[i].state == LS_FLIGHT_COMM_OPEN;
    }
    return own && own->state == LS_FLIGHT_COMM_CLOSED && has_another;
}

/*
 * Whether the rank is held up in the operation. One that has taken up something else since it began it overlaps it with work (gradients
 * of a layer are reduced while the next ones are computed), unless it says that it now waits.
 */
static bool is_held_up(const ls_sight *sight, const ls_sight_op *op)
{
    return sight->now.activity == LS_ACTIVITY_COMM || sight->now.since_ns <= op->begin_ns;
}

static void add_edge(builder *b, const ls_sight *self, const ls_sight_op *op)
{
    ls_wait_edge *edge = &b->graph->edges[b->graph->edge_count++];
    *edge = (ls_wait_edge){.rank = self->rank, .op = op};
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

static ls_cause cause_of_end(const ls_sight *sight)
{
    const ls_flight_header *h = &sight->header;
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

static ls_cause cause_of(const ls_sight *sight, const ls_sight_op *op)
{
    if (!sight) {
        return LS_CAUSE_NOT_STARTED;
    }
    if (sight->process == LS_PROCESS_DEAD || sight->header.outcome != LS_FLIGHT_RUNNING) {
        return cause_of_end(sight);
    }
    if (sight->process == LS_PROCESS_STOPPED) {
        return LS_CAUSE_STOPPED;
    }
    if (sight->process == LS_PROCESS_TRACED) {
        return LS_CAUSE_TRACED;
    }
    const ls_flight_comm *comm = op ? find_comm(sight, op->comm_id) : NULL;
    if (op && !comm) {
        return LS_CAUSE_NOT_STARTED;
    }
    if (comm && comm->state == LS_FLIGHT_COMM_CLOSED) {
        return LS_CAUSE_LEFT;
    }
    return sight->process == LS_PROCESS_BLOCKED ? LS_CAUSE_BLOCKED : cause_of_activity(sight->now.activity);
}

/* Since when it has been held up. */
static uint64_t held_since_ns(const ls_sight *sight, const ls_sight_op *op)
{
    const bool says_so = sight->now.activity == LS_ACTIVITY_COMM && sight->now.since_ns > op->begin_ns;
    return says_so ? sight->now.since_ns : op->begin_ns;
}

/* Who waits for the ranks in queue[0..count), through any number of others; they are marked covered. Returns how many there are in the
 * queue then, the first `count` included. */
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

/* Of the operations in which somebody waits for `rank`, the one begun first. */
static void find_longest_wait(const builder *b, ls_culprit *culprit)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < b->graph->edge_count; i++) {
        const ls_wait_edge *edge = &b->graph->edges[i];
        const ls_sight *sight = b->sight_of[edge->rank];
        const uint64_t since_ns = held_since_ns(sight, edge->op);
        if (edge_has(edge, culprit->rank) && since_ns + (uint64_t)sight->header.clock_offset_ns < first) {
            first = since_ns + (uint64_t)sight->header.clock_offset_ns;
            culprit->op = edge->op;
            culprit->op_rank = edge->rank;
            culprit->since_ns = since_ns;
        }
    }
}

static ls_culprit *add_culprit(builder *b, uint32_t rank)
{
    ls_culprit *culprit = &b->graph->culprits[b->graph->culprit_count++];
    *culprit = (ls_culprit){.rank = rank, .sight = b->sight_of[rank]};
    return culprit;
}

static void take_waiting(builder *b, ls_culprit *culprit, uint32_t before, uint32_t count)
{
    culprit->waiting = copy_ranks(b, b->queue + before, count - before);
    culprit->waiting_count = count - before;
    sort_ranks(culprit->waiting, culprit->waiting_count);
}

static void add_roots(builder *b)
{
    for (uint32_t rank = 0; rank < b->graph->size; rank++) {
        const ls_sight *sight = b->sight_of[rank];
        if (!b->is_target[rank] || (waits(b, rank) && !cant_move(sight))) {
            continue;
        }
        ls_culprit *culprit = add_culprit(b, rank);
        b->covered[rank] = true;
        b->queue[0] = rank;
        take_waiting(b, culprit, 1, spread(b, 1));
        find_longest_wait(b, culprit);
        culprit->cause = cause_of(sight, culprit->op);
    }
}

/* Everybody is inside and none of them is at fault as far as can be seen: one culprit per operation. */
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
        culprit->since_ns = held_since_ns(b->sight_of[edge->rank], edge->op);
        take_waiting(b, culprit, 0, spread(b, count));
    }
}

/* The rank that `rank` waits for in the circle that is being looked for: any that is not accounted for yet. */
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

/* What is left waits for what is left: from any of them the way leads into a circle. */
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
        b->covered[start] = true; /* can't be, as long as a rank without edges is a root */
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

void ls_graph_build(ls_arena *arena, const ls_sight *sights, uint32_t sight_count, uint32_t size,
                    bool is_partial, ls_graph *graph_out)
{
    ls_graph *graph = graph_out;
    *graph = (ls_graph){.sights = sights, .sight_count = sight_count, .size = size, .is_partial = is_partial};
    builder b = {.arena = arena, .graph = graph};
    b.sight_of = ls_arena_new(arena, const ls_sight *, size);
    b.is_target = ls_arena_new(arena, bool, size);
    b.covered = ls_arena_new(arena, bool, size);
    b.seen = ls_arena_new(arena, bool, size);
    b.queue = ls_arena_new(arena, uint32_t, size + 1);
    graph->edges = ls_arena_new(arena, ls_wait_edge, (size_t)sight_count * LS_SIGHT_OPEN_MAX + 1);
    graph->culprits = ls_arena_new(arena, ls_culprit, (size_t)size + sight_count * LS_SIGHT_OPEN_MAX + 1);
    for (uint32_t i = 0; i < sight_count; i++) {
        if (sights[i].has_file && sights[i].rank < size) {
            b.sight_of[sights[i].rank] = &sights[i];
        }
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        const ls_sight *sight = b.sight_of[rank];
        /* A process that has ended waits for nobody, whatever it was inside of. */
        const bool ended =
            !sight || sight->process == LS_PROCESS_DEAD || sight->header.outcome != LS_FLIGHT_RUNNING;
        for (uint32_t i = 0; !ended && i < sight->open_count; i++) {
            if (is_held_up(sight, &sight->open[i]) && !is_given_up(sight, &sight->open[i])) {
                add_edge(&b, sight, &sight->open[i]);
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

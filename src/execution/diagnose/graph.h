// SPDX-License-Identifier: Apache-2.0
/*
 * The waits-for graph: who waits for whom, and who at the root of it keeps everybody waiting, and why.
 *
 *   rank 0 ── all_reduce 7 ──▶ rank 2 ── barrier 3 of group b ──▶ rank 1: stopped
 *   rank 3 ── all_reduce 7 ──▶ rank 1
 *
 * A rank inside an operation waits for the members that have not entered it (or have left the group, or are inside it and can't go on
 * because their process is stopped or dead). A rank that others wait for and that waits for nobody is a culprit. When a rank waits and
 * no culprit can be reached from it, ranks wait for each other in a circle: they call operations of different groups in different orders.
 *
 * Pure: a function of the sights. Tables live in the caller's arena.
 */
#ifndef LS_EXECUTION_DIAGNOSE_GRAPH_H
#define LS_EXECUTION_DIAGNOSE_GRAPH_H

#include "base/json.h"
#include "base/text.h"
#include "execution/diagnose/sight.h"

/* Why a culprit does not come. */
typedef enum ls_cause {
    LS_CAUSE_NOT_STARTED, /* no flight file, or it has not met the others yet */
    LS_CAUSE_DEAD,
    LS_CAUSE_FINISHED, /* ended well, while others still call */
    LS_CAUSE_FAILED,   /* ended with an error */
    LS_CAUSE_LEFT,     /* closed the communicator */
    LS_CAUSE_STOPPED,
    LS_CAUSE_TRACED,
    LS_CAUSE_BLOCKED, /* in a system call */
    LS_CAUSE_IDLE,    /* waits for orders: not late */
    LS_CAUSE_DATA,
    LS_CAUSE_COMPUTE, /* forward, backward */
    LS_CAUSE_REDUCE,
    LS_CAUSE_UPDATE,
    LS_CAUSE_OTHER,
    LS_CAUSE_DEADLOCK, /* waits in another operation, in a circle */
    LS_CAUSE_INSIDE, /* all members that can be seen are inside and nobody gets out: members of other hosts, or the way to them */
    LS_CAUSE_COUNT
} ls_cause;

const char *ls_cause_name(ls_cause cause); /* "not_started", "dead", ... */

/* Rank `rank` waits, inside `op`, for `targets`. */
typedef struct ls_wait_edge {
    uint32_t rank;
    const ls_sight_op *op;
    uint32_t *targets, target_count; /* empty: LS_CAUSE_INSIDE */
    uint32_t unknown;                /* members of a group that nobody has seen yet */
} ls_wait_edge;

typedef struct ls_culprit {
    uint32_t rank;
    ls_cause cause;
    const ls_sight *sight; /* NULL: nothing is known of it */
    /* Ranks that wait for it, directly or through others; the operation in which one has waited for it longest. */
    uint32_t *waiting, waiting_count;
    const ls_sight_op *op;
    uint32_t op_rank;               /* whose operation that is */
    uint64_t since_ns;              /* since when, the clock of that rank's host */
    uint32_t *circle, circle_count; /* LS_CAUSE_DEADLOCK: the ranks in order, each waiting for the next */
    uint32_t unknown;               /* LS_CAUSE_INSIDE: members that can't be seen from here */
} ls_culprit;

typedef struct ls_graph {
    const ls_sight *sights;
    uint32_t sight_count, size;
    bool is_partial;
    ls_wait_edge *edges;
    uint32_t edge_count;
    ls_culprit *culprits;
    uint32_t culprit_count;
} ls_graph;

/* sights: of different ranks, in any order, not more than size. Ranks without one have not started or, when is_partial, can't be seen from
 * here. They must outlive the graph. */
void ls_graph_build(ls_arena *arena, const ls_sight *sights, uint32_t sight_count, uint32_t size,
                    bool is_partial, ls_graph *graph_out);

/* What activity and number mean in this run ("layer 3 attention backward"); "" when it can't be said. */
typedef struct ls_describe {
    void (*activity)(void *context, uint32_t activity, uint32_t number, char *text_out, size_t text_bytes);
    void *context;
} ls_describe;

/* "rank 1 (node7, pid 4711) is stopped in backward of step 3". describe may be NULL. */
void ls_graph_append_cause(const ls_culprit *culprit, const ls_describe *describe, ls_text *text);
/* "rank 1 (...) is stopped ...; ranks 0, 2 to 3 wait for it in all_reduce sum of 1000 f32 (number 7 of world) at src/a.c:12". */
void ls_graph_append_culprit(const ls_graph *graph, const ls_culprit *culprit, const ls_describe *describe,
                             ls_text *text);
/* One line per rank that waits, and per different set of ranks it waits for. */
void ls_graph_append_waits(const ls_graph *graph, ls_text *text);

/* {"waits": [{rank, for[], kind, count, dtype, communicator, seq, site}], "culprits": [{rank, host, pid, why, text, waiting[], ...}]} */
json_t *ls_graph_to_json(const ls_graph *graph, const ls_describe *describe);
/* The fields of one culprit, as the event `late` has them too. */
json_t *ls_culprit_to_json(const ls_graph *graph, const ls_culprit *culprit, const ls_describe *describe);

/* "0, 2 to 5, 9" */
void ls_append_ranks(const uint32_t *ranks, uint32_t count, ls_text *text);
/* The name of a communicator as the sights know it; "?" when none does. */
const char *ls_graph_comm_name(const ls_graph *graph, uint32_t comm_id);

#endif

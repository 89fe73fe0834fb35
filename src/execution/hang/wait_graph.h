// SPDX-License-Identifier: Apache-2.0
/*
 * The waits-for graph: which rank waits for which others, and which rank keeps them waiting, and
 * why.
 *
 *   rank 0 ── all_reduce 7 ──▶ rank 2 ── barrier 3 of group b ──▶ rank 1: stopped
 *   rank 3 ── all_reduce 7 ──▶ rank 1
 *
 * A rank inside an operation waits for the members that have not entered it, for those that have
 * left the group, and for those that are inside but cannot continue because their process is
 * stopped or dead. A rank that others wait for and that itself waits for no other is a culprit:
 * above, rank 1. If a rank waits and no culprit can be reached from it, ranks wait for each other
 * in a circle: they call operations of different groups in different orders.
 *
 * Pure: a function of the rank snapshots. Tables live in the caller's arena.
 */
#ifndef LS_EXECUTION_HANG_WAIT_GRAPH_H
#define LS_EXECUTION_HANG_WAIT_GRAPH_H

#include "base/json.h"
#include "base/text.h"
#include "execution/hang/rank_snapshot.h"
#include "execution/parallel/mesh.h"

/* Why a culprit does not arrive. */
typedef enum ls_cause {
    LS_CAUSE_NOT_STARTED, /* no flight file, or it has not joined the communicator yet */
    LS_CAUSE_DEAD,
    LS_CAUSE_FINISHED, /* ended well while others still call */
    LS_CAUSE_FAILED,   /* ended with an error */
    LS_CAUSE_LEFT,     /* closed the communicator */
    LS_CAUSE_STOPPED,
    LS_CAUSE_TRACED,
    LS_CAUSE_BLOCKED, /* in a system call */
    LS_CAUSE_IDLE,    /* waits for the trainer: not late */
    LS_CAUSE_DATA,
    LS_CAUSE_COMPUTE, /* forward, backward */
    LS_CAUSE_REDUCE,
    LS_CAUSE_UPDATE,
    LS_CAUSE_OTHER,
    LS_CAUSE_DEADLOCK, /* waits in another operation, in a circle */
    /* All members that can be seen are inside the operation and none gets out: the cause is a
     * member on another host, or the network. */
    LS_CAUSE_INSIDE,
    LS_CAUSE_COUNT
} ls_cause;

const char *ls_cause_name(ls_cause cause); /* "not_started", "dead", ... */
/* Whether the cause leaves no doubt, so that a short wait suffices to report it: the process is
 * stopped, held or gone, or ranks wait in a circle. */
bool ls_cause_is_certain(ls_cause cause);

/* Rank `rank` waits, inside `op`, for `targets`. */
typedef struct ls_wait_edge {
    uint32_t rank, comm_rank; /* its number in the run, and in the operation's communicator */
    const ls_rank_snapshot_op *op;
    uint32_t *targets, target_count; /* empty: LS_CAUSE_INSIDE */
    uint32_t unknown;                /* members of a group that have not been seen yet */
} ls_wait_edge;

typedef struct ls_culprit {
    uint32_t rank;
    ls_cause cause;
    const ls_rank_snapshot *snapshot; /* NULL: nothing is known about it */
    /* The ranks that wait for it, directly or through others. */
    uint32_t *waiting, waiting_count;
    /* The operation in which a rank has waited for it longest, that rank, and since when on the
     * clock of that rank's host. */
    const ls_rank_snapshot_op *op;
    uint32_t op_rank;
    uint64_t since_ns;
    /* LS_CAUSE_DEADLOCK: the ranks in order, each waiting for the next. */
    uint32_t *circle, circle_count;
    uint32_t unknown; /* LS_CAUSE_INSIDE: members that cannot be seen from here */
} ls_culprit;

typedef struct ls_graph {
    const ls_rank_snapshot *snapshots;
    uint32_t snapshot_count, size;
    bool is_partial;
    ls_wait_edge *edges;
    uint32_t edge_count;
    ls_culprit *culprits;
    uint32_t culprit_count;
} ls_graph;

/* snapshots: of different ranks, in any order, at most `size`; they must outlive the graph. A rank
 * without one has not started or, if is_partial, cannot be seen from here. */
void ls_graph_build(ls_arena *arena, const ls_rank_snapshot *snapshots, uint32_t snapshot_count,
                    uint32_t size, bool is_partial, ls_graph *graph_out);

/* What is known of a run beyond its snapshots. */
typedef struct ls_describe {
    ls_mesh mesh; /* zeros: its ranks do not divide the model */
    /* what an activity and its number mean ("layer 3 attention"); "" if unknown. NULL: not known */
    void (*activity)(void *context, uint32_t activity, uint32_t number, char *text_out, size_t text_bytes);
    void *context;
} ls_describe;

/* "rank 1 (dp 0, tp 1; node7, pid 4711) is stopped in backward of step 3" (ls_mesh_name). describe
 * may be NULL. */
void ls_graph_append_cause(const ls_culprit *culprit, const ls_describe *describe, ls_text *text);
/* "rank 1 (...) is stopped ...; ranks 0, 2 to 3 wait for it in all_reduce sum of 1000 f32 (number 7
 * of world) at src/a.c:12". */
void ls_graph_append_culprit(const ls_graph *graph, const ls_culprit *culprit, const ls_describe *describe,
                             ls_text *text);
/* One line per waiting rank and per set of ranks it waits for. */
void ls_graph_append_waits(const ls_graph *graph, ls_text *text);

/* {"waits": [{rank, for[], operation, kind, count, communicator, seq, site}],
 *  "culprits": [{rank, host, pid, why, text, waiting[], ...}]} */
json_t *ls_graph_to_json(const ls_graph *graph, const ls_describe *describe);
/* The fields of one culprit, which are also those of the event `late`. */
json_t *ls_culprit_to_json(const ls_graph *graph, const ls_culprit *culprit, const ls_describe *describe);

/* "0, 2 to 5, 9" */
void ls_append_ranks(const uint32_t *ranks, uint32_t count, ls_text *text);
/* The name of a communicator as the rank snapshots have it; "?" if none does. */
const char *ls_graph_comm_name(const ls_graph *graph, uint32_t comm_id);

#endif

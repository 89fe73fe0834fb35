// SPDX-License-Identifier: Apache-2.0
/* What the files of data parallelism share: data_parallel.c (life), parts.c (who runs what), buckets.c (gradients become sums), round.c (the
 * step), agreement.c (what parts tell each other), recovery.c (what is done about the dead). */
#ifndef LS_EXECUTION_PARALLEL_DATA_PARALLEL_INTERNAL_H
#define LS_EXECUTION_PARALLEL_DATA_PARALLEL_INTERNAL_H

#include "compute/kernels/tree_sum.h"
#include "execution/comm/flight.h"
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/exchange.h"
#include "execution/parallel/hosts.h"
#include "execution/parallel/slices.h"

/* A bucket, at its place in the order in which backward leaves them. */
typedef struct ls_ready_bucket {
    uint32_t bucket;
    uint32_t last_step; /* plan step behind which it is final */
    ls_flight_record *record;
    uint64_t wait_ns;
} ls_ready_bucket;

/* A sum of nodes in the order of the tree. */
typedef struct ls_node_sum {
    ls_tree_sum sum;
    uint16_t *program;
} ls_node_sum;

/* A part that this process runs. */
typedef struct ls_own_part {
    ls_part part;
    uint32_t local;
    ls_exchange_slot *slot;
    ls_step_marks marks;
    ls_slice *slices;        /* per bucket */
    ls_owned_slice *updates; /* what it updates, in the order of buckets */
    uint32_t *update_at;     /* position in order */

    /* The step that runs: it has gone on to the next one. Else how many buckets, in order, are ... */
    bool is_ahead;
    uint32_t ready_count;   /* final */
    uint32_t taken_count;   /* taken from the other local parts: added up, or on the way to other hosts */
    uint32_t summed_count;  /* added up whole, where they are this part's */
    uint32_t dropped_count; /* given back (stage 2) */
} ls_own_part;

struct ls_data_parallel {
    const ls_layout *layout;
    ls_exchange_view view;
    double *block_sums;
    int64_t block_count;
    uint32_t leaf_count; /* of the step: V */
    uint32_t parts, zero, room;
    bool shadow;
    bool can_resume;    /* what parts have done outlives this process and is gone on with */
    uint16_t *holders;  /* of local parts */
    float *gathered[3]; /* parameters and moments that were gathered or distributed last */
    ls_step_marks (*marks_of)(void *context, uint32_t part);

    /* The parts of this process, by number; and of those that are in the step that runs, the local numbers. */
    ls_own_part *own;
    uint32_t own_count;
    uint32_t *active, active_count;

    /* The nodes of this host's parts in order, and where they lie. */
    uint32_t local_count;
    const float **local_inputs;
    ls_leaf_range *local_nodes;
    float **buffers; /* LS_GRADIENT_BUFFERS_MAX of each local part */
    float *target;   /* sums of own slices: a buffer of their own, or own gradient buffer 0 */
    bool has_sums;

    /* The whole sum, over those and, with several hosts, what comes from the others: hosts before, this one, hosts behind. */
    ls_node_sum whole;
    const float **inputs; /* scratch: where a call finds its inputs */

    /* Several hosts: this process has one part. */
    ls_hosts *hosts;        /* NULL: one */
    struct ls_fetch *fetch; /* stage 3; else NULL */
    bool is_broken; /* nothing is transferred any more: only a step that was agreed on can be finished */
    ls_node_sum *node_sums;  /* per canonical node of this host, over its share of the local nodes */
    uint32_t *node_first;    /* first local node of each */
    ls_node_sum root;        /* canonical nodes of all hosts */
    uint64_t *reduce_number; /* per group: the transfer that brings its sums; 0: not posted */
    uint32_t posted_groups, told_groups, spread_groups; /* reduced; sums sent on; weights sent */
    ls_claim *host_claims;                              /* first rank: what the hosts say */
    double *host_blocks;
    uint64_t host_block_max, *block_cursor;

    ls_ready_bucket *order; /* per bucket */
    uint32_t bucket_count;
    const ls_claim **claims; /* scratch, as are leaf_sums */
    ls_leaf_sum *leaf_sums;

    /* The step that runs. */
    uint64_t fingerprint;
    bool is_resumed; /* it was begun before: nothing is recorded again */
    bool was_gathered;
    ls_step_fault fault; /* of the agreement that failed */
    uint32_t comm_id;
    ls_sabotage *sabotage;
    uint8_t flight_slot;
};

/* ---- parts ---- */

/* The first local part that options give to the process; local_parts: none. */
static inline uint32_t ls_first_held(const ls_data_parallel_options *options)
{
    uint32_t local = 0;
    while (local < options->local_parts &&
           (options->holders ? options->holders[local] : local) != options->rank) {
        local++;
    }
    return local;
}

/* Makes what this process needs for the parts that are its own by p->holders. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_parts_make(ls_data_parallel *parallel);
void ls_parts_release(ls_data_parallel *parallel);

/* A part's claim of the step that runs. */
static inline ls_claim *ls_claim_of(const ls_data_parallel *p, uint32_t local)
{
    return &p->view.exchange->slots[local].claims[p->view.step & 1];
}

/* All parts of this process come to a meeting. */
LS_MUST_CHECK ls_status ls_data_parallel_meet(ls_data_parallel *parallel, ls_meeting meeting,
                                              const char *what, uint32_t *last_out);

/* ---- operations ---- */

/* Records operation `index` of the step that runs; NULL without a recorder, with one part, or when it was begun before. */
ls_flight_record *ls_data_parallel_record(ls_data_parallel *parallel, ls_comm_kind kind, uint32_t index,
                                          uint64_t fingerprint, uint64_t count, uint32_t line);

/* ls_tree_program into memory of its own: node i of nodes[0..count), of a tree over `leaves` whose leaf 0 is leaf `first` of the nodes. */
LS_MUST_CHECK ls_status ls_node_sum_init(ls_node_sum *sum, uint32_t leaves, uint32_t first,
                                         const ls_leaf_range *nodes, uint32_t count);

/* The same sum over what leaves came to: sums[i] belongs to input i. */
ls_leaf_sum ls_node_sum_losses(const ls_node_sum *sum, const ls_leaf_sum *sums);

/* Gives back the pages that lie whole in floats [first, past) of a shared mapping; they are zero then. Other memory stays as it is. */
void ls_drop_floats(float *flat, int64_t first, int64_t past);

/* The same for the slices of `bucket` that this rank holds for owners on other hosts. */
void ls_drop_handled(const ls_data_parallel *parallel, uint32_t bucket, float *flat);

/* Waits for transfers between hosts. */
LS_MUST_CHECK ls_status ls_data_parallel_await(ls_data_parallel *parallel, ls_hosts *hosts, uint64_t count,
                                               const char *what);

/* Adds up what is left of own slices. */
LS_MUST_CHECK ls_status ls_data_parallel_sum_rest(ls_data_parallel *parallel, ls_queue *queue);

/* Gives back gradients that everyone has taken; the moments and weights of others that came when the state was gathered here. */
void ls_data_parallel_drop_taken(ls_data_parallel *parallel);
void ls_data_parallel_drop_gathered(const ls_data_parallel *parallel);
/* The sums of own slices: behind the update. */
void ls_data_parallel_drop_sums(const ls_data_parallel *parallel);

/* Whether own sums go to other hosts, which make the same update. */
static inline bool ls_tells_sums(const ls_data_parallel *p)
{
    return p->zero == 0 || p->shadow;
}

/* Makes what an agreement between hosts needs. */
LS_MUST_CHECK ls_status ls_agreement_init(ls_data_parallel *parallel);
void ls_agreement_release(ls_data_parallel *parallel);

#endif

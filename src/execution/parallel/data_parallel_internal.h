// SPDX-License-Identifier: Apache-2.0
/* What data_parallel.c (buckets, the step) and agreement.c (what ranks tell each other) share. */
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

struct ls_data_parallel {
    const ls_layout *layout;
    ls_exchange_view view;
    ls_exchange_slot *slot; /* own */
    double *block_sums;
    ls_undo_record undo;
    int64_t block_count;
    ls_leaf_range leaves;
    uint32_t leaf_count; /* of the step: V */
    uint32_t ranks, rank, zero;
    bool shadow;
    ls_step_marks marks;
    float *gathered[3]; /* parameters and moments that were gathered or distributed last */

    /* The nodes of this host's ranks in order, and where they lie. */
    uint32_t local_count;
    const float **local_inputs;
    ls_leaf_range *local_nodes;
    float *target; /* own gradient buffer 0: sums of own slices replace what is there */
    float *own_buffers[LS_GRADIENT_BUFFERS_MAX];
    uint32_t own_buffer_count;

    /* The whole sum, over those and, with several hosts, what comes from the others: hosts before, this one, hosts behind. */
    ls_node_sum whole;
    const float **inputs; /* scratch: where a call finds its inputs */

    /* Several hosts. */
    ls_hosts *hosts;         /* NULL: one */
    struct ls_fetch *fetch;  /* stage 3; else NULL */
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
    ls_slice *slices;        /* own, per bucket */
    ls_owned_slice *updates; /* what this rank updates, in the same order */
    uint32_t *update_at;     /* position in order */
    uint32_t update_count;
    const ls_claim **claims; /* scratch, as are leaf_sums */
    ls_leaf_sum *leaf_sums;

    /* The step that runs: how many buckets, in order, are ... */
    uint32_t round;         /* steps entered */
    uint32_t ready_count;   /* final on this rank */
    uint32_t taken_count;   /* taken from the other local ranks: added up, or on the way to other hosts */
    uint32_t summed_count;  /* added up whole, where they are this rank's */
    uint32_t dropped_count; /* given back (stage 2) */
    bool was_gathered;
    ls_step_fault fault; /* of the agreement that failed */
    uint64_t sequence;   /* operations begun */
    uint32_t comm_id;
    uint8_t flight_slot;
};

/* Records an operation; NULL without a recorder, or with one rank. */
ls_flight_record *ls_data_parallel_record(ls_data_parallel *parallel, ls_comm_kind kind, uint64_t fingerprint,
                                          uint64_t count, uint32_t line);

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

/* Adds up what is left of this rank's slices. */
LS_MUST_CHECK ls_status ls_data_parallel_sum_rest(ls_data_parallel *parallel, ls_queue *queue);

/* Makes what an agreement between hosts needs. */
LS_MUST_CHECK ls_status ls_agreement_init(ls_data_parallel *parallel);
void ls_agreement_release(ls_data_parallel *parallel);

#endif

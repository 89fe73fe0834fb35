// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of data parallelism share.
 *
 *   data_parallel.c   creation, the order of sums
 *   parts.c           which parts this process runs
 *   round.c           one attempt at a step: enter, update, leave; moving the state between hosts
 *   buckets.c         gradients become sums
 *   agreement.c       what parts and hosts tell each other before an update
 *   recovery.c        repairs after a process has died
 *   exchange.[ch]     the shared memory of a host, its counters and meetings
 *   hosts.[ch]        transfers between hosts
 *   fetch.[ch]        weights on demand (ZeRO stage 3)
 *   compressed.[ch]   sums of gradients that are packed before they are added
 *   mesh.[ch]         which ranks compute which leaves together
 *   crew_room.[ch]    exchanges of those ranks inside a leaf
 *   courier.[ch]      the same between stages on two hosts
 */
#ifndef LS_EXECUTION_PARALLEL_DATA_PARALLEL_INTERNAL_H
#define LS_EXECUTION_PARALLEL_DATA_PARALLEL_INTERNAL_H

#include "comm/flight/flight.h"
#include "compute/kernels/tree_sum.h"
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/exchange.h"
#include "execution/parallel/hosts.h"
#include "execution/parallel/slices.h"

/* A bucket, at its position in the order in which the backward pass finishes them. */
typedef struct ls_ready_bucket {
    uint32_t bucket, stage; /* stage: of ls_data_parallel.stages */
    /* the plan step after which it is final; 0: this plan makes no gradient of it */
    uint32_t last_step;
    ls_flight_record *record;
    uint64_t wait_ns;
} ls_ready_bucket;

/* A sum of nodes in the order of the tree. */
typedef struct ls_node_sum {
    ls_tree_sum sum;
    uint16_t *program;
} ls_node_sum;

/* How the buckets of a stage are added up. */
typedef struct ls_stage_sums {
    /* The nodes of this host's parts in order, and the buffers that hold them. */
    uint32_t local_count;
    const float **local_inputs;
    ls_leaf_range *local_nodes;
    /* The sum over all leaves. Its inputs, in the order of leaves: nodes received from the hosts
     * before this one, the local nodes, nodes received from the hosts after it. */
    ls_node_sum whole;
    /* Several hosts: per canonical node of this host, over its share of the local nodes; the first
     * local node of each. */
    uint32_t node_count;
    ls_node_sum *node_sums;
    uint32_t *node_first;
} ls_stage_sums;

/* A part that this process runs. */
typedef struct ls_own_part {
    ls_part part;
    uint32_t local;
    uint32_t node_count; /* of those that are added up, its crew's */
    ls_exchange_slot *slot;
    ls_step_marks marks;
    ls_slice *slices;        /* per bucket */
    ls_owned_slice *merges;  /* see ls_part */
    ls_owned_slice *updates; /* what it updates, in the order of buckets */
    uint32_t *update_at;     /* position of each update's bucket in `order` */

    /* The current step. is_ahead: the part is already in the next one, and the counts are unused.
     * They count buckets in `order`; 0 <= dropped <= taken <= ready, and summed <= taken. */
    bool is_ahead;
    /* final */
    uint32_t ready_count;
    /* read from the other local parts' buffers: added up, or on the way to other hosts */
    uint32_t taken_count;
    /* owned slice added up completely */
    uint32_t summed_count;
    /* gradients released (stage 2) */
    uint32_t dropped_count;
} ls_own_part;

struct ls_data_parallel {
    const ls_layout *layout;
    ls_exchange_view view;
    uint64_t read_bytes;              /* of this step: gradients of other crews */
    ls_hosts_sent_so_far sent_before; /* it: what had been sent to other hosts */
    double *block_sums;
    int64_t block_count;
    uint32_t leaf_count;              /* V */
    uint32_t group;                   /* leaves of a group whose sum is compressed; 0: none is */
    struct ls_compressed *compressed; /* NULL: nothing is compressed */
    uint32_t parts, zero, room;
    bool shadow;
    ls_mesh mesh;
    struct ls_crew_room *crew_room; /* NULL: each part computes alone */
    uint64_t team_epoch;
    /* the work of a part outlives this process, and another process can continue it */
    bool can_resume;
    /* the local rank of each local part */
    uint16_t *holders;
    /* parameters and moments that were gathered or distributed last */
    float *gathered[3];
    ls_step_marks (*marks_of)(void *context, uint32_t part);

    /* The parts of this process, by number, and the local numbers of those that are in the current
     * step. */
    ls_own_part *own;
    uint32_t own_count;
    uint32_t *active, active_count;

    ls_stage_sums *stages; /* how buckets are added up, by the stage that has their layers */
    uint32_t stage_count;  /* 1 on one host, where all stages are */
    uint32_t more_pieces;  /* of each sequence, beside the first */
    float **buffers;       /* LS_GRADIENT_BUFFERS_MAX of each local part */
    float *target;         /* sums of owned slices: options.sums, or own gradient buffer 0 */
    bool has_sums;

    const float **inputs; /* scratch: the input pointers of one call */

    /* Several hosts; each process runs one part then. */
    ls_hosts *hosts;        /* NULL: one host */
    struct ls_fetch *fetch; /* stage 3; else NULL */
    /* transfers have ended for good: only a step that was agreed on can be completed */
    bool is_broken;
    ls_node_sum root;        /* of losses: the canonical nodes of all hosts */
    uint64_t *reduce_number; /* per group: the transfer that brings its sums; 0: not posted */
    /* groups posted in this step for reducing, for sending sums on, for sending weights */
    uint32_t posted_groups, told_groups, spread_groups;
    /* first rank of a host: the claims of all hosts, and one entry more for its own */
    ls_exchange_claim *host_claims;
    double *host_blocks;
    uint64_t host_block_max, *block_cursor;

    ls_ready_bucket *order; /* per bucket */
    uint32_t bucket_count;
    const ls_exchange_claim **claims; /* scratch, as are leaf_sums */
    ls_leaf_sum *leaf_sums;

    /* The current step. */
    uint64_t fingerprint;
    bool is_resumed; /* it was begun before, so its operations are not recorded again */
    bool was_gathered;
    ls_step_fault fault; /* of a failed agreement */
    uint32_t comm_id;
    ls_fault_injection *fault_injection;
    uint8_t flight_slot;
};

/* ---- parts ---- */

/* The first local part that the options give to this process; local_parts: none. */
static inline uint32_t ls_first_held(const ls_data_parallel_options *options)
{
    uint32_t local = 0;
    while (local < options->local_parts &&
           (options->holders ? options->holders[local] : local) != options->rank) {
        local++;
    }
    return local;
}

/* Creates the tables of the parts that p->holders gives to this process. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_parts_make(ls_data_parallel *parallel);
void ls_parts_release(ls_data_parallel *parallel);

/* A part's claim in the current step. */
static inline ls_exchange_claim *ls_claim_of(const ls_data_parallel *p, uint32_t local)
{
    return &p->view.exchange->slots[local].claims[p->view.step & 1];
}

/* All active parts of this process meet the others. */
LS_MUST_CHECK ls_status ls_data_parallel_meet(ls_data_parallel *parallel, ls_meeting meeting,
                                              const char *what, uint32_t *last_out);

/* The sums of the stage that has the losses. */
static inline const ls_stage_sums *ls_last_stage(const ls_data_parallel *p)
{
    return &p->stages[p->stage_count - 1];
}

/* ---- operations ---- */

/* Records operation `index` of the current step; NULL without a recorder, with one part, or when
 * the step was begun before. */
ls_flight_record *ls_data_parallel_record(ls_data_parallel *parallel, ls_comm_kind kind, uint32_t index,
                                          uint64_t fingerprint, uint64_t count, uint32_t line);

/* Creates the program that adds up nodes[0..count) in the order of the tree over `leaves` leaves
 * (ls_tree_program). first: the leaf of the nodes that is leaf 0 of that tree. */
LS_MUST_CHECK ls_status ls_node_sum_init(ls_node_sum *sum, uint32_t leaves, uint32_t first,
                                         const ls_leaf_range *nodes, uint32_t count);

/* Releases the pages of the slices of `bucket` that this rank handles for owners on other hosts. */
void ls_drop_handled(const ls_data_parallel *parallel, uint32_t bucket, float *flat);

/* Waits until the first `count` transfers between hosts are done. */
LS_MUST_CHECK ls_status ls_data_parallel_await(ls_data_parallel *parallel, ls_hosts *hosts, uint64_t count,
                                               const char *what);

/* Adds up the remaining owned slices. */
LS_MUST_CHECK ls_status ls_data_parallel_sum_rest(ls_data_parallel *parallel, ls_queue *queue);

/* Releases gradients that all parts have read. */
void ls_data_parallel_drop_taken(ls_data_parallel *parallel);
/* Releases the moments and weights of other hosts that arrived when the state was gathered here. */
void ls_data_parallel_drop_gathered(const ls_data_parallel *parallel);
/* Releases the sums of owned slices, after the update. */
void ls_data_parallel_drop_sums(const ls_data_parallel *parallel);

/* Whether the sums of owned slices are sent to other hosts, which make the same update. */
static inline bool ls_tells_sums(const ls_data_parallel *p)
{
    return p->zero == 0 || p->shadow;
}

/* Creates the tables of the agreement. */
LS_MUST_CHECK ls_status ls_agreement_init(ls_data_parallel *parallel);
void ls_agreement_release(ls_data_parallel *parallel);

#endif

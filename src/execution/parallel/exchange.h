// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange area: what the ranks of a host say to each other inside a step, in memory they share. For execution/parallel alone.
 *
 *   barrier            agreement, end of step
 *   slot per rank      buckets that are final; the rank's part of the agreement; its words when something is wrong
 *   undo               per rank and worker: the block that it updates, as it was
 *   block sums         squared sums of the norm blocks, each written by the block's owner
 *   block words        the step behind which each norm block is, written by the block's owner
 *
 * Ranks make the same steps in the same order: each counts them (`round`), and numbers in the area are told apart by that count. A slot is
 * written by its rank between the end of a step and its next agreement, and read by all between agreement and end of step.
 */
#ifndef LS_EXECUTION_PARALLEL_EXCHANGE_H
#define LS_EXECUTION_PARALLEL_EXCHANGE_H

#include "execution/comm/wait.h"
#include "execution/parallel/data_parallel.h"

/* What a rank, or a host, has to say to an agreement. */
typedef struct ls_claim {
    uint64_t step, fingerprint;
    uint32_t rank;   /* who says it; of a host: whose status it is, or its first rank */
    uint32_t status; /* an ls_status: LS_OK unless it gave up */
    uint32_t sum_count, reserved;
    ls_leaf_sum sums[LS_TREE_NODES_MAX];
    ls_rank_note note;
    ls_leaf_report report; /* its words when it gave up, or what it found in a leaf */
} ls_claim;

/* What a rank counts for the others, over all steps. */
typedef enum ls_counter {
    LS_COUNT_READY,   /* buckets whose gradients are final */
    LS_COUNT_TAKEN,   /* buckets of which it needs no more of the others' gradients */
    LS_COUNT_FETCHED, /* stage 3: uses of buckets for which its share of the weights has come */
    LS_COUNT_USED,    /* stage 3: uses that are over */
    LS_COUNTERS
} ls_counter;

typedef struct ls_exchange_slot {
    struct {
        _Alignas(64) ls_word word;
    } counters[LS_COUNTERS];
    _Alignas(64) _Atomic uint32_t arrivals; /* barriers it has come to: who is missing */
    ls_claim claim;
} ls_exchange_slot;

typedef struct ls_exchange {
    ls_barrier barrier;
    _Alignas(64) _Atomic uint32_t given_up; /* round of the last step that a rank gave up, from 1 */
    /* Several hosts: what the host's first rank heard from the others. */
    _Alignas(64) ls_claim verdict;
    ls_agreement agreement;
    uint32_t weights_differ; /* between hosts */
    _Atomic uint64_t agreed; /* n: the three above are on step n - 1, which goes on to its update */
    _Alignas(64) ls_exchange_slot slots[]; /* per local rank; behind them what the calls below find */
} ls_exchange;

enum {
    LS_EXCHANGE_COMM = 0x4d000000
}; /* + the host's first rank and, above it, the epoch: names its meetings in the flight recorder */

/* Bytes of the area; local_ranks 0: of a process that is alone. */
uint64_t ls_exchange_bytes(const ls_layout *layout, uint32_t local_ranks);

ls_undo *ls_exchange_undo(ls_exchange *exchange, uint32_t local_ranks, uint32_t local); /* LS_UNDO_WORKERS */
double *ls_exchange_block_sums(ls_exchange *exchange, uint32_t local_ranks);
_Atomic uint64_t *ls_exchange_block_words(ls_exchange *exchange, uint32_t local_ranks, int64_t block_count);

/* How this rank waits, and who the others are. */
typedef struct ls_exchange_view {
    ls_exchange *exchange;
    uint32_t local, local_ranks, first_rank;
    uint64_t epoch;
    uint32_t spins;
    double timeout_s;
    const _Atomic uint32_t *abort;
    ls_status (*aborted)(void *context);
    bool (*look)(void *context);
    void *context;
    uint64_t step;       /* for texts */
    uint64_t wait_ns;    /* in waits, since whoever set it to 0 */
    uint32_t arrivals;   /* barriers this rank has come to */
    uint8_t flight_slot; /* of the meetings; 0: none yet */
} ls_exchange_view;

/* This rank has come to `count`. */
void ls_exchange_count(ls_exchange_view *view, ls_counter counter, uint32_t count);
/* Whether all local ranks have. */
bool ls_exchange_has(const ls_exchange_view *view, ls_counter counter, uint32_t count);
/* Waits until they have. what: for the text, "gradients of bucket 3". */
LS_MUST_CHECK ls_status ls_exchange_await(ls_exchange_view *view, ls_counter counter, uint32_t count,
                                          const char *what);

/* How this rank waits now, and the error of a wait for the transfers between hosts that ended early. */
ls_wait ls_exchange_wait(const ls_exchange_view *view);
LS_MUST_CHECK ls_status ls_exchange_fail_transfer(const ls_exchange_view *view, const char *what);

/* Waits until all local ranks are here. last_out: which rank came last; NULL allowed. */
LS_MUST_CHECK ls_status ls_exchange_meet(ls_exchange_view *view, const char *what, uint32_t *last_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange area: what the parts of a host tell each other inside a step, in memory that
 * outlives the processes that run them. For execution/parallel only.
 *
 *   +-------------+
 *   | ls_exchange | the word to sleep on for meetings; with several hosts, what the first rank
 *   |             | received from the others
 *   +-------------+
 *   | slot 0      | per part: the step it is in, its finished nodes, how many buckets are final,
 *                 its
 *   | slot 1 ...  | claim, the last meeting it has reached
 *   +-------------+
 *   | undo        | per part and worker: the old values of the block being updated
 *   +-------------+
 *   | block sums  | squared sum of each norm block, written by the block's owner
 *   +-------------+
 *   | block words | the step after which each norm block is, written by the block's owner
 *   +-------------+
 *
 * The protocol must survive the death of a process at any instruction, so that another process can
 * continue its part. Three rules make that work:
 *   - A slot has one writer: the process that runs the part. Everything it says is a value, never
 *     an increment, so that saying it again changes nothing.
 *   - Data is stored before the word that announces it. Words are stored with sequential
 *     consistency, so all processes see them in one order, and a reader that sees a word sees the
 *     data.
 *   - All parts attempt the same steps in the same order. Each attempt is a round with the same
 *     number for all. Meetings are numbered by round and place instead of being counted, and
 *     counters continue from round to round (round * buckets + n), so nothing is ever reset while
 *     others read.
 *
 * Claims are kept for two steps: a rank that is delayed at the end of a step still reads the claims
 * of that step while others have begun the next one. No part can be two steps ahead, because the
 * agreement of the next step waits for all.
 */
#ifndef LS_EXECUTION_PARALLEL_EXCHANGE_H
#define LS_EXECUTION_PARALLEL_EXCHANGE_H

#include "comm/transport/wait.h"
#include "compute/kernels/compress.h"
#include "execution/parallel/data_parallel.h"

/* What a part, or a host, contributes to an agreement. */
typedef struct ls_exchange_claim {
    uint64_t step, fingerprint;
    /* the rank that made it; for a host: the rank whose status it is, or its first rank */
    uint32_t rank;
    /* an ls_status: LS_OK unless it gave up */
    uint32_t status;
    uint32_t sum_count, reserved;
    ls_leaf_sum sums[LS_TREE_NODES_MAX];
    ls_rank_note note;
    ls_exact_sum left_over; /* squared sum of what compression left over of its gradients */
    /* why it gave up, or what it found wrong with a leaf */
    ls_leaf_report report;
} ls_exchange_claim;

/* What a part counts for the others, over all rounds. */
typedef enum ls_counter {
    /* buckets whose gradients are final */
    LS_COUNT_READY,
    /* Buckets for which it needs no more of the others' gradients. On one host: buckets whose slice
     * it has added up. */
    LS_COUNT_TAKEN,
    /* stage 3: uses of buckets for which its share of the weights has arrived */
    LS_COUNT_FETCHED,
    /* stage 3: uses that are over */
    LS_COUNT_USED,
    LS_COUNTERS
} ls_counter;

/* Places of a round where all parts meet. Unnamed places are numbered in the order in which they
 * are reached, which is the same for all parts. */
typedef enum ls_meeting {
    LS_MEET_NEXT,           /* the next unnamed place */
    LS_MEET_AGREE = 0x1000, /* all claims are written */
    LS_MEET_END = 0xffff,   /* the last place: after it the next round begins */
} ls_meeting;
enum { LS_MEET_PLACES = 0x10000 };

typedef struct ls_exchange_slot {
    struct {
        _Alignas(64) ls_word word;
    } counters[LS_COUNTERS];
    /* the last meeting it has reached: round * LS_MEET_PLACES + place */
    _Alignas(64) _Atomic uint32_t reached;
    _Atomic uint32_t round;
    /* step + 1; 0: between two steps. Stored last, when everything else here belongs to the step */
    _Atomic uint64_t entered;
    /* it has completed the update of its step */
    _Atomic uint32_t is_updated;
    /* one bit per ls_note_kind */
    _Atomic uint32_t noted;
    /* for recovery: the number of leaves (unused), and the buckets of the layout */
    uint32_t leaves, bucket_count;
    ls_leaf_range range;
    ls_node_stack stack;
    /* indexed by the parity of the step */
    ls_exchange_claim claims[2];
} ls_exchange_slot;

typedef struct ls_exchange {
    /* changes when all parts have reached a meeting */
    ls_word meetings;
    /* the local part that arrived last */
    _Atomic uint32_t last;
    /* round + 1 of the last step that a part gave up */
    _Alignas(64) _Atomic uint32_t given_up;
    /* number of slots; 0: not used yet, or the area of a single process */
    _Atomic uint32_t room;
    /* upper bound of the threads that update in one process */
    _Atomic uint32_t workers;
    /* local parts of the cut */
    _Atomic uint32_t local_parts;
    /* norm blocks of the layout */
    _Atomic int64_t block_count;
    /* parts of a crew; 1: each part has leaves of its own */
    _Atomic uint32_t crew;
    /* Several hosts: what the first rank of this host received from the others. */
    _Alignas(64) ls_exchange_claim verdict;
    ls_agreement agreement;
    /* between hosts */
    uint32_t weights_differ;
    /* n: the three members above belong to step n - 1, which continues with its update */
    _Atomic uint64_t agreed;
    /* one per local part, followed by the areas that the calls below return */
    _Alignas(64) ls_exchange_slot slots[];
} ls_exchange;

/* comm_id of a host's meetings in the flight recorder; the host's first part and, in higher bits,
 * the epoch are added to it. */
enum { LS_EXCHANGE_COMM = 0x4d000000 };

/* Size of the area. room 0, here and below: the area of a single process. */
uint64_t ls_exchange_bytes(const ls_layout *layout, uint32_t room);

/* The LS_UNDO_WORKERS undo entries of a local part. */
ls_undo *ls_exchange_undo(ls_exchange *exchange, uint32_t room, uint32_t local);
double *ls_exchange_block_sums(ls_exchange *exchange, uint32_t room);
_Atomic uint64_t *ls_exchange_block_words(ls_exchange *exchange, uint32_t room, int64_t block_count);

/* One process' view of the area: its parts, the others, and how it waits. */
typedef struct ls_exchange_view {
    ls_exchange *exchange;
    /* the first local part that this process runs */
    uint32_t local;
    uint32_t local_parts, first_part;
    /* local rank of each local part; NULL: the same number */
    const uint16_t *holders;
    uint32_t rank, first_rank;
    uint32_t spins;
    double timeout_s;
    const _Atomic uint32_t *abort;
    ls_status (*aborted)(void *context);
    bool (*look)(void *context);
    void *context;
    /* for error texts */
    uint64_t step;
    /* of the current step; between steps, of the next one */
    uint32_t round;
    /* the last unnamed place */
    uint32_t place;
    /* time spent waiting since the caller last set it to 0 */
    uint64_t wait_ns;
    /* recorded meetings that this process has reached */
    uint32_t arrivals;
    /* of the cut */
    uint64_t epoch;
    /* flight slot of the meetings; 0: none yet */
    uint8_t flight_slot;
} ls_exchange_view;

/* Sets a counter of a local part; ls_exchange_count: of the first part that this process runs. */
void ls_exchange_count_part(ls_exchange_view *view, uint32_t local, ls_counter counter, uint32_t count);
void ls_exchange_count(ls_exchange_view *view, ls_counter counter, uint32_t count);
/* Whether all local parts have reached `count`. */
bool ls_exchange_has(const ls_exchange_view *view, ls_counter counter, uint32_t count);
/* Waits until they have. what: for the error text, "gradients of bucket 3". */
LS_MUST_CHECK ls_status ls_exchange_await(ls_exchange_view *view, ls_counter counter, uint32_t count,
                                          const char *what);

/* How this process waits at the moment. */
ls_wait ls_exchange_wait(const ls_exchange_view *view);
/* The error of a wait for transfers between hosts that ended early. */
LS_MUST_CHECK ls_status ls_exchange_fail_transfer(const ls_exchange_view *view, const char *what);

/* ---- meetings ---- */

static inline uint32_t ls_meeting_number(uint32_t round, uint32_t place)
{
    return round * LS_MEET_PLACES + place;
}

/* The difference is signed, so that the comparison survives the wrap-around of round numbers. */
static inline bool ls_meeting_reached(const ls_exchange_slot *slot, uint32_t number)
{
    return (int32_t)(atomic_load(&slot->reached) - number) >= 0;
}

/* Records that the local parts own[0..count) have arrived, then waits for all local parts.
 * last_out: the part that arrived last; NULL allowed. */
LS_MUST_CHECK ls_status ls_exchange_meet_parts(ls_exchange_view *view, const uint32_t *own, uint32_t count,
                                               ls_meeting meeting, const char *what, uint32_t *last_out);
/* The same for a process that runs one part, at the next unnamed place. */
LS_MUST_CHECK ls_status ls_exchange_meet(ls_exchange_view *view, const char *what, uint32_t *last_out);

#endif

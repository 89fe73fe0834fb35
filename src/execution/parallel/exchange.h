// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange area: what the parts of a host say to each other inside a step, in memory that outlives whoever runs them. For
 * execution/parallel alone.
 *
 *   meetings           agreement, end of step: a word to sleep on
 *   slot per part      which step it is in, its finished nodes, buckets that are final, its claim, the last meeting it has come to
 *   undo               per part and worker: the block that it updates, as it was
 *   block sums         squared sums of the norm blocks, each written by the block's owner
 *   block words        the step behind which each norm block is, written by the block's owner
 *
 * Parts make the same steps in the same order: each attempt at a step is a round, the same for all. Meetings are numbered by round and place,
 * not counted, so that coming to one again does no harm. A slot is written by whoever runs the part.
 *
 * Claims are kept for two steps: who was held up at the end of a step reads those of that step while others have begun the next.
 */
#ifndef LS_EXECUTION_PARALLEL_EXCHANGE_H
#define LS_EXECUTION_PARALLEL_EXCHANGE_H

#include "execution/comm/wait.h"
#include "execution/parallel/data_parallel.h"

/* What a part, or a host, has to say to an agreement. */
typedef struct ls_claim {
    uint64_t step, fingerprint;
    uint32_t rank;   /* who says it; of a host: whose status it is, or its first rank */
    uint32_t status; /* an ls_status: LS_OK unless it gave up */
    uint32_t sum_count, reserved;
    ls_leaf_sum sums[LS_TREE_NODES_MAX];
    ls_rank_note note;
    ls_leaf_report report; /* its words when it gave up, or what it found in a leaf */
} ls_claim;

/* What a part counts for the others, over all rounds. */
typedef enum ls_counter {
    LS_COUNT_READY, /* buckets whose gradients are final */
    LS_COUNT_TAKEN, /* buckets of which it needs no more of the others' gradients; on one host: that it has added up */
    LS_COUNT_FETCHED, /* stage 3: uses of buckets for which its share of the weights has come */
    LS_COUNT_USED,    /* stage 3: uses that are over */
    LS_COUNTERS
} ls_counter;

/* Places of a round where all meet. Those without a name are taken one after the other, the same by all. */
typedef enum ls_meeting {
    LS_MEET_NEXT,           /* the next one without a name */
    LS_MEET_AGREE = 0x1000, /* claims are written */
    LS_MEET_END = 0xffff,   /* behind it the next round begins */
} ls_meeting;
enum { LS_MEET_PLACES = 0x10000 };

typedef struct ls_exchange_slot {
    struct {
        _Alignas(64) ls_word word;
    } counters[LS_COUNTERS];
    _Alignas(
        64) _Atomic uint32_t reached; /* the last meeting it has come to: round * LS_MEET_PLACES + place */
    _Atomic uint32_t round;
    _Atomic uint64_t entered;      /* step + 1; 0: between two. Stored when everything here is that step's */
    _Atomic uint32_t is_updated;   /* it came to the end of its step with an update */
    _Atomic uint32_t noted;        /* a bit per ls_note_kind */
    uint32_t leaves, bucket_count; /* that it computes, and of the layout: for who recovers it */
    ls_leaf_range range;
    ls_node_stack stack;
    ls_claim claims[2]; /* by the parity of the step */
} ls_exchange_slot;

typedef struct ls_exchange {
    ls_word meetings;                       /* changes when all parts have come to one */
    _Atomic uint32_t last;                  /* the local part that came last */
    _Alignas(64) _Atomic uint32_t given_up; /* round + 1 of the last step that a part gave up */
    _Atomic uint32_t room;        /* slots of the area; 0: nobody has used it, or a process that is alone */
    _Atomic uint32_t workers;     /* at most so many threads of a process update */
    _Atomic uint32_t local_parts; /* of the cut */
    _Atomic int64_t block_count;  /* of the layout */
    /* Several hosts: what the host's first rank heard from the others. */
    _Alignas(64) ls_claim verdict;
    ls_agreement agreement;
    uint32_t weights_differ; /* between hosts */
    _Atomic uint64_t agreed; /* n: the three above are on step n - 1, which goes on to its update */
    _Alignas(64) ls_exchange_slot slots[]; /* per local part; behind them what the calls below find */
} ls_exchange;

enum {
    LS_EXCHANGE_COMM = 0x4d000000
}; /* + the host's first part and, above it, the epoch: names its meetings in the flight recorder */

/* Bytes of the area; room 0, here as below: of a process that is alone. */
uint64_t ls_exchange_bytes(const ls_layout *layout, uint32_t room);

ls_undo *ls_exchange_undo(ls_exchange *exchange, uint32_t room, uint32_t local); /* LS_UNDO_WORKERS */
double *ls_exchange_block_sums(ls_exchange *exchange, uint32_t room);
_Atomic uint64_t *ls_exchange_block_words(ls_exchange *exchange, uint32_t room, int64_t block_count);

/* How this process waits, and who the others are. */
typedef struct ls_exchange_view {
    ls_exchange *exchange;
    uint32_t local; /* the first local part that it runs */
    uint32_t local_parts, first_part;
    const uint16_t *holders; /* local ranks; NULL: as the parts */
    uint32_t rank, first_rank;
    uint32_t spins;
    double timeout_s;
    const _Atomic uint32_t *abort;
    ls_status (*aborted)(void *context);
    bool (*look)(void *context);
    void *context;
    uint64_t step;       /* for texts */
    uint32_t round;      /* of the step that runs; between steps of the one to come */
    uint32_t place;      /* the last one without a name */
    uint64_t wait_ns;    /* in waits, since whoever set it to 0 */
    uint32_t arrivals;   /* recorded meetings this process has come to */
    uint64_t epoch;      /* of the cut */
    uint8_t flight_slot; /* of the meetings; 0: none yet */
} ls_exchange_view;

/* A part has come to `count`; ls_exchange_count: the first that this process runs. */
void ls_exchange_count_part(ls_exchange_view *view, uint32_t local, ls_counter counter, uint32_t count);
void ls_exchange_count(ls_exchange_view *view, ls_counter counter, uint32_t count);
/* Whether all local parts have. */
bool ls_exchange_has(const ls_exchange_view *view, ls_counter counter, uint32_t count);
/* Waits until they have. what: for the text, "gradients of bucket 3". */
LS_MUST_CHECK ls_status ls_exchange_await(ls_exchange_view *view, ls_counter counter, uint32_t count,
                                          const char *what);

/* How this process waits now, and the error of a wait for the transfers between hosts that ended early. */
ls_wait ls_exchange_wait(const ls_exchange_view *view);
LS_MUST_CHECK ls_status ls_exchange_fail_transfer(const ls_exchange_view *view, const char *what);

/* ---- meetings ---- */

static inline uint32_t ls_meeting_number(uint32_t round, uint32_t place)
{
    return round * LS_MEET_PLACES + place;
}

static inline bool ls_meeting_reached(const ls_exchange_slot *slot, uint32_t number)
{
    return (int32_t)(atomic_load(&slot->reached) - number) >= 0;
}

/* The local part has come to it: never back. Returns whether that is new. */
bool ls_exchange_reach(ls_exchange_view *view, uint32_t local, uint32_t number);

/* Waits until all local parts have come. Says so of local parts [0, count) of `own` first. last_out: which rank came last; NULL allowed. */
LS_MUST_CHECK ls_status ls_exchange_meet_parts(ls_exchange_view *view, const uint32_t *own, uint32_t count,
                                               ls_meeting meeting, const char *what, uint32_t *last_out);
/* The same for a process that runs one part, at the next place without a name. */
LS_MUST_CHECK ls_status ls_exchange_meet(ls_exchange_view *view, const char *what, uint32_t *last_out);

#endif

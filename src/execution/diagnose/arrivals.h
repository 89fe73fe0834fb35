// SPDX-License-Identifier: Apache-2.0
/*
 * Arrivals: who came when to each operation. Fed with the records of all ranks, in any order between ranks, it finds the operations about
 * which ranks disagree, and adds up who came last how often and what that cost the others.
 *
 * What an operation cost is what the others waited from their arrival to the last one's; of one that is overlapped with work
 * (LS_COMM_TREE_REDUCE), what they say they waited.
 *
 * Only operations that all members take part in and number alike count (ls_comm_kind_is_collective, ls_comm_alloc left out: it is numbered per
 * host). The last LS_ARRIVALS_WINDOW operations of a communicator are held; a rank that is further behind is not compared.
 *
 * Not thread-safe.
 */
#ifndef LS_EXECUTION_DIAGNOSE_ARRIVALS_H
#define LS_EXECUTION_DIAGNOSE_ARRIVALS_H

#include "base/json.h"
#include "base/text.h"
#include "execution/comm/flight.h"

enum {
    LS_ARRIVALS_WINDOW = 1024, /* a power of two */
    LS_ARRIVALS_COMMS = 256,   /* communicators that are told apart; later ones are left out */
};

/* Who is a straggler: waiting for it is more than LS_STRAGGLER_SHARE / ranks of all waiting (of ranks that are alike each is waited for
 * 1 / ranks of it), over at least LS_STRAGGLER_OPERATIONS operations worth waiting for (20 us or more on average) that it
 * took part in and LS_STRAGGLER_WAITED_S of waiting for it, and the others lost more than LS_STRAGGLER_COST of the time they were watched.
 * Time, not how often: of two ranks that meet often, the one that comes 10 us later is as often last as one that comes 10 ms later.
 *
 * A rank with more leaves than the others has more to do and is waited for by right: for o leaves, where the others have m on average,
 * 1 - m / o of the time. It is a straggler when they lost LS_STRAGGLER_MARGIN more than that. */
#define LS_STRAGGLER_SHARE      1.5
#define LS_STRAGGLER_COST       0.02
#define LS_STRAGGLER_MARGIN     0.05
#define LS_STRAGGLER_OPERATIONS 50
#define LS_STRAGGLER_WAITED_S   1.0

typedef struct ls_arrivals ls_arrivals;

/* ranks: of the run. Stops the process when there is no memory (tables of some 10 KB per communicator). */
ls_arrivals *ls_arrivals_create(uint32_t ranks);
void ls_arrivals_destroy(ls_arrivals *arrivals);

/* What each rank has to do, as far as it is known: how many leaves of each step (`ranks` of them, copied). */
void ls_arrivals_set_leaves(ls_arrivals *arrivals, const uint32_t *leaves);

typedef struct ls_arrival {
    uint32_t rank;    /* in the run */
    uint32_t comm_id; /* the communicator, and how many members it has */
    uint32_t comm_size;
    uint8_t kind;
    uint64_t seq, fingerprint;
    uint64_t begin_ns; /* one clock for all ranks */
} ls_arrival;

/* An operation that ranks disagree about. */
typedef struct ls_disagreement {
    uint32_t comm_id;
    uint64_t seq;
    uint32_t rank, other_rank; /* one of each side */
} ls_disagreement;

/* Each record of each rank once. Returns true, with *disagreement_out, when it contradicts what another rank said (at each such record).
 */
bool ls_arrivals_add(ls_arrivals *arrivals, const ls_arrival *arrival, ls_disagreement *disagreement_out);

/* A rank left operation `seq`, having been held up for wait_us. After its arrival; needed for overlapped kinds alone. */
void ls_arrivals_end(ls_arrivals *arrivals, uint32_t comm_id, uint64_t seq, uint8_t kind, uint64_t wait_us);

typedef struct ls_straggler {
    uint32_t rank;
    uint64_t last;     /* operations worth waiting for in which it came last */
    double cost_s;     /* the others' time, added up */
    double share;      /* of all waiting, what is for it */
    double lost;       /* cost per waiting rank / time watched */
    bool is_straggler; /* see above */
    /* Its leaves, of those of all ranks; both 0 while that is not known. */
    uint32_t leaves, all_leaves;
    bool has_more_leaves; /* than some other rank */
} ls_straggler;

/* Sorted by cost, dearest first; rows_out has `ranks` of room. watched_s: time between the first and the last arrival. */
void ls_arrivals_report(const ls_arrivals *arrivals, ls_straggler *rows_out, double *watched_s_out);

/* Complete operations so far. */
uint64_t ls_arrivals_operations(const ls_arrivals *arrivals);

/* {"watched_s", "operations", "ranks": [{rank, last, share, cost_s, lost, straggler, leaves}]}; leaves where they are known */
json_t *ls_arrivals_to_json(const ls_arrivals *arrivals);

#endif

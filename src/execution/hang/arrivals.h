// SPDX-License-Identifier: Apache-2.0
/*
 * Arrivals: when each rank arrived at each operation. Fed with the records of all ranks, in any
 * order between ranks, it finds operations about which ranks disagree, and adds up how often each
 * rank arrived last and how much time that cost the others.
 *
 *   rank 0  ───▌░░░░░░░░░▌      ░ waits: the cost of this operation is the sum over all ranks
 *   rank 1  ──────────▌░░▌
 *   rank 2  ─────────────▌      arrives last: it is charged with the cost
 *
 * The cost of an operation is the time the others waited from their own arrival to the last one.
 * For an operation overlapped with work (LS_COMM_TREE_REDUCE) it is the waits that the ranks
 * recorded.
 *
 * Only operations count that all members take part in and number alike (ls_comm_kind_is_collective,
 * without ls_comm_alloc, which is numbered per host). The newest LS_ARRIVALS_WINDOW operations of a
 * communicator are kept; a rank further behind than that is not compared.
 *
 * Not thread-safe.
 */
#ifndef LS_EXECUTION_HANG_ARRIVALS_H
#define LS_EXECUTION_HANG_ARRIVALS_H

#include "base/json.h"
#include "base/text.h"
#include "comm/flight/flight.h"

enum {
    LS_ARRIVALS_WINDOW = 1024, /* a power of two */
    LS_ARRIVALS_COMMS = 256,   /* communicators kept apart; later ones are ignored */
};

/*
 * A rank is a straggler if all of these hold:
 *   - waiting for it makes up more than LS_STRAGGLER_SHARE / ranks of all waiting (equal ranks
 *     would each have a share of 1 / ranks),
 *   - it took part in at least LS_STRAGGLER_OPERATIONS operations that cost 20 us or more per
 *     waiting rank, and was waited for at least LS_STRAGGLER_WAITED_S in total,
 *   - the others lost more than LS_STRAGGLER_COST of the observed time to it.
 * What counts is time, not how often a rank is last: a rank that arrives 10 us after its peer is
 * last as often as one that arrives 10 ms after it.
 *
 * A rank with more leaves than the others has more to compute, and waiting for it is expected: with
 * o leaves, where the others have m on average, 1 - m / o of the time. It is a straggler if the
 * others lose LS_STRAGGLER_MARGIN more than that.
 */
#define LS_STRAGGLER_SHARE      1.5
#define LS_STRAGGLER_COST       0.02
#define LS_STRAGGLER_MARGIN     0.05
#define LS_STRAGGLER_OPERATIONS 50
#define LS_STRAGGLER_WAITED_S   1.0

typedef struct ls_arrivals ls_arrivals;

/* ranks: of the run. Ends the process if there is no memory (about 10 KB per communicator). */
ls_arrivals *ls_arrivals_create(uint32_t ranks);
void ls_arrivals_destroy(ls_arrivals *arrivals);

/* How many leaves of each step each rank computes, if known: `ranks` entries, copied. */
void ls_arrivals_set_leaves(ls_arrivals *arrivals, const uint32_t *leaves);

typedef struct ls_arrival {
    uint32_t rank;      /* in the run */
    uint32_t comm_id;   /* the communicator */
    uint32_t comm_size; /* its members */
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

/* Adds an arrival; each record of each rank may be added once. Returns true, with
 * *disagreement_out, if it contradicts the record of another rank. */
bool ls_arrivals_add(ls_arrivals *arrivals, const ls_arrival *arrival, ls_disagreement *disagreement_out);

/* A rank left operation `seq` after having waited wait_us in it. To be called after its arrival;
 * only overlapped kinds need it. */
void ls_arrivals_end(ls_arrivals *arrivals, uint32_t comm_id, uint64_t seq, uint8_t kind, uint64_t wait_us);

typedef struct ls_straggler {
    uint32_t rank;
    uint64_t last;     /* operations that cost enough to count and in which it arrived last */
    double cost_s;     /* what the others waited for it, added up */
    double share;      /* of all waiting */
    double lost;       /* cost per waiting rank / observed time */
    bool is_straggler; /* see above */
    /* Its leaves and those of all ranks; both 0 while unknown. */
    uint32_t leaves, all_leaves;
    bool has_more_leaves; /* than some other rank */
} ls_straggler;

/* One row per rank, sorted by cost, highest first; rows_out has room for `ranks`. watched_s_out:
 * the time between the first and the last arrival. */
void ls_arrivals_report(const ls_arrivals *arrivals, ls_straggler *rows_out, double *watched_s_out);

/* Completed operations so far. */
uint64_t ls_arrivals_operations(const ls_arrivals *arrivals);

/* {"watched_s", "operations", "ranks": [{rank, last, share, cost_s, lost, straggler, leaves}]};
 * leaves only if they are known. */
json_t *ls_arrivals_to_json(const ls_arrivals *arrivals);

#endif

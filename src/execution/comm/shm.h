// SPDX-License-Identifier: Apache-2.0
/*
 * The shared-memory transport, for its own files.
 *
 * One memfd per communicator, made by rank 0 of it and opened by the others through /proc/PID/fd, so that it is gone with the last process
 * that maps it. Its beginning:
 *
 *   shm_control            magic, nonce; the bell; the verdict
 *   shm_flag[size]         one line per rank: how many times it has arrived (its tick), and what it came for
 *   shm_place[size]        last claim, cores, results of checks
 *   shm_table[2][size]     counts and offsets of uneven blocks, `2 size` numbers per rank
 *   slots[2][size]         staging, slot_bytes each
 *   results[2]             staging of sums, slot_bytes each
 *   pairs[size][size]      one ring per sender and receiver
 *
 * and behind it the symmetric allocations: segments of `size` equal blocks, mapped one by one.
 *
 * Ticks. All members arrive at the same sequence of synchronisations; a tick is one of them. A rank arrives by writing its offer (the
 * fingerprint and where its buffers are) and then its tick into its flag; it may go on when all flags have reached that tick, and compares
 * their fingerprints with its own on the way. Offers, slots, results and tables exist twice, by the parity of the tick: a member can't be
 * more than one tick ahead of another, so what was written for tick t is free again after t + 1, without a second synchronisation.
 *
 * Sleepers wait for the bell. Who arrives and sees that all others have, rings it; in the total order of the stores to the flags somebody
 * does see that.
 *
 * The verdict is the first reason for which the communicator failed: whoever writes it first has written it for all.
 */
#ifndef LS_EXECUTION_COMM_SHM_H
#define LS_EXECUTION_COMM_SHM_H

#include "execution/comm/transport.h"
#include "execution/comm/wait.h"

enum {
    SHM_SEGMENTS_MAX = 1024, /* allocations at a time */
    SHM_TEXT_BYTES = 2048,
    SHM_PAIR_CHUNKS = 4,
    SHM_LINE = 64,
};

/* Where a buffer lies: segment number + 1 in the upper 16 bits, offset in the rank's block below; 0: nowhere that others see. */
typedef uint64_t shm_ref;
#define SHM_NOTHING UINT64_MAX /* the rank has nothing that others read */

typedef struct shm_offer {
    uint64_t fingerprint;
    shm_ref in, out;
} shm_offer;

typedef struct shm_flag {
    _Alignas(SHM_LINE) _Atomic uint32_t tick;
    _Atomic uint32_t has_left; /* closed its communicator */
    shm_offer offers[2];
} shm_flag;
_Static_assert(sizeof(shm_flag) == SHM_LINE, "one cache line");

typedef struct shm_place {
    _Alignas(SHM_LINE) ls_comm_claim claim; /* of the operation it is in, or was in last */
    _Atomic uint32_t is_inside;
    _Atomic uint32_t failed; /* its part of an allocation */
    ls_word group;           /* number of the group whose memfd this rank offers, */
    int32_t group_fd;        /* and its descriptor there */
    uint32_t waiters;        /* ranks on this host, as far as it knows */
    uint64_t cores[16];      /* the processors it may run on, a bit each */
} shm_place;

/* One message is one or more chunks; the first carries the sender's claim. */
typedef struct shm_pair {
    _Alignas(SHM_LINE) ls_word sent; /* chunks */
    _Alignas(SHM_LINE) ls_word received;
    _Alignas(SHM_LINE) ls_comm_claim claims[SHM_PAIR_CHUNKS];
} shm_pair;

typedef struct shm_control {
    uint64_t magic, nonce[2];
    uint32_t size;
    _Alignas(SHM_LINE) ls_word bell;
    _Alignas(SHM_LINE) _Atomic uint32_t is_over; /* the verdict stands: every wait ends */
    _Atomic uint32_t verdict_writers;
    uint32_t status;
    char text[SHM_TEXT_BYTES];
} shm_control;

typedef struct shm_segment {
    char *base; /* of rank 0's block; NULL: free */
    uint64_t file_offset, block_bytes, asked_bytes;
} shm_segment;

typedef struct ls_shm ls_shm;
struct ls_shm {
    ls_transport transport;
    ls_shm *parent; /* whose verdict is this one's too; NULL: none */
    int fd;
    uint32_t tick;
    uint32_t waiters;        /* ranks on this host that may wait at once */
    uint32_t spins_max;      /* 0: more waiters than cores */
    uint32_t spins;          /* that are worth while now: see shm_sync.c */
    uint32_t sleeps_at_once; /* waits that sleep without handing the core round first */
    uint32_t waits;
    shm_control *control;
    shm_flag *flags;
    shm_place *places;
    uint64_t *tables;
    char *slots, *results, *pairs;
    uint64_t slot_bytes, small_bytes, pair_chunk_bytes, pair_bytes, control_bytes;
    shm_segment segments[SHM_SEGMENTS_MAX];
    uint32_t segment_count;   /* behind it none was ever used */
    int *pidfds;              /* size of them; -1: self */
    const char *claimed_file; /* what the file name in this rank's claim was made of */
    uint64_t wait_ns;
};

/* ---- shm_sync.c ---- */

/* Arrives at the next tick and waits for all. Fails with the verdict: a mismatch, a dead member, the deadline, an abort. */
LS_MUST_CHECK ls_status shm_arrive(ls_shm *shm, ls_comm_op *op, shm_ref in, shm_ref out);
/* The offer of `rank` at the tick arrived at last. */
const shm_offer *shm_offer_of(const ls_shm *shm, uint32_t rank);
/* Says what this rank is about to do. */
void shm_claim(ls_shm *shm, const ls_comm_op *op);
/* Makes the error text on this thread the verdict, or replaces it by the verdict that stands. Returns the verdict's status. */
ls_status shm_judge(ls_shm *shm, ls_status status);
bool shm_is_over(const ls_shm *shm);

/* What a waiting rank looks at now and then. */
typedef struct shm_look {
    ls_shm *shm;
    uint32_t peer; /* whom it waits for; UINT32_MAX: everyone who has not arrived at the tick */
    uint32_t lost; /* out: who is gone */
    uint32_t looks;
    bool has_differing; /* out: somebody came for something else */
} shm_look;
/* How to wait for `peer` in `op`; `look` is filled in and has to outlive the wait. */
ls_wait shm_wait_of(ls_shm *shm, const ls_comm_op *op, uint32_t peer, shm_look *look);
/* The verdict after a result other than LS_WAIT_DONE. */
LS_MUST_CHECK ls_status shm_fail_wait(const ls_comm_op *op, ls_wait_result result, const shm_look *look);

/* ---- shm_memory.c ---- */

ls_status shm_alloc(ls_transport *transport, ls_comm_op *op);
ls_status shm_release(ls_transport *transport, ls_comm_op *op);
void shm_unmap_all(ls_shm *shm);
/* Where [data, data + bytes) lies, 0 when it is not in a segment of this communicator. */
shm_ref shm_ref_of(const ls_shm *shm, const void *data, uint64_t bytes);
void *shm_address(const ls_shm *shm, shm_ref ref, uint32_t rank);

/* ---- shm_move.c, shm_pair.c ---- */

ls_status shm_run_collective(ls_shm *shm, ls_comm_op *op);
ls_status shm_send(ls_shm *shm, ls_comm_op *op);
ls_status shm_receive(ls_shm *shm, ls_comm_op *op);

static inline char *shm_slot(const ls_shm *shm, uint32_t tick, uint32_t rank)
{
    return shm->slots + ((tick & 1) * (uint64_t)shm->transport.size + rank) * shm->slot_bytes;
}

static inline char *shm_result(const ls_shm *shm, uint32_t tick)
{
    return shm->results + (tick & 1) * shm->slot_bytes;
}

static inline uint64_t *shm_table(const ls_shm *shm, uint32_t tick, uint32_t rank)
{
    const uint64_t size = shm->transport.size;
    return shm->tables + ((tick & 1) * size + rank) * 2 * size;
}

static inline shm_pair *shm_pair_of(const ls_shm *shm, uint32_t from, uint32_t to)
{
    return (shm_pair *)(void *)(shm->pairs + ((uint64_t)from * shm->transport.size + to) * shm->pair_bytes);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The shared-memory transport, for its own files and comm/hier.
 *
 * Each communicator has one memfd. Its rank 0 creates it, and the others open it through
 * /proc/PID/fd, so it disappears with the last process that maps it. It begins with:
 *
 *   shm_control            magic, nonce; the bell; the verdict
 *   shm_flag[size]         one cache line per rank: the number of its arrivals (its tick), and the
 *                          offer it made
 *   shm_place[size]        last claim, cores, results of checks
 *   shm_table[2][size]     counts and offsets of uneven blocks, 2 * size numbers per rank
 *   slots[2][size]         staging, slot_bytes each
 *   results[2]             staging of sums, slot_bytes each
 *   pairs[size][size]      one ring per sender and receiver
 *
 * The symmetric allocations follow: segments of `size` equal blocks, mapped one by one.
 *
 * Ticks. All members go through the same sequence of synchronisations, called ticks. A rank arrives
 * at a tick by writing first its offer (the fingerprint of its call, and where its buffers are) and
 * then the tick into its flag. It continues when all flags have reached the tick; on the way it
 * compares the fingerprints with its own. Offers, slots, results and tables exist twice, for even
 * and for odd ticks. No member can be more than one tick ahead of another, so what was written for
 * tick t is free again after tick t + 1, without a second synchronisation:
 *
 *   rank 0   write slots[t] │ arrive t │ read slots[t], write slots[t + 1] │ arrive t + 1 │ ...
 *   rank 1   write slots[t] │ arrive t │ read slots[t] ............. (slow) │ arrive t + 1 │ ...
 *                                        rank 0 cannot write slots[t] again before rank 1 arrives
 *                                        here
 *
 * Sleepers wait for the bell. A rank that arrives and sees that all others have arrived rings it.
 * As the stores to the flags have one total order, the last one always sees this.
 *
 * The verdict is the first reason for which the communicator failed. The rank that writes it first
 * writes it for all.
 */
#ifndef LS_COMM_SHM_SHM_H
#define LS_COMM_SHM_SHM_H

#include "comm/transport/transport.h"
#include "comm/transport/wait.h"

enum {
    /* Most allocations at a time. */
    SHM_SEGMENTS_MAX = 1024,
    SHM_TEXT_BYTES = 2048,
    SHM_PAIR_CHUNKS = 4,
    SHM_LINE = 64,
};

/* Where a buffer lies: in the upper 16 bits the number of its segment + 1, below that its offset in
 * the rank's block. 0: not in memory that others see. */
typedef uint64_t shm_ref;
/* The rank has no data for others to read. */
#define SHM_NOTHING UINT64_MAX

typedef struct shm_offer {
    uint64_t fingerprint;
    shm_ref in, out;
} shm_offer;

typedef struct shm_flag {
    _Alignas(SHM_LINE) _Atomic uint32_t tick;
    /* The rank has closed its communicator. */
    _Atomic uint32_t has_left;
    shm_offer offers[2];
} shm_flag;
_Static_assert(sizeof(shm_flag) == SHM_LINE, "one cache line");

typedef struct shm_place {
    /* The current or last operation, and whether the rank is still in it. */
    _Alignas(SHM_LINE) ls_comm_claim claim;
    _Atomic uint32_t is_inside;
    /* The rank's part of an allocation has failed. */
    _Atomic uint32_t failed;
    /* Number of the group whose memfd this rank offers, and the descriptor in this process. */
    ls_word group;
    int32_t group_fd;
    /* Number of ranks on this host, as far as this rank knows. */
    uint32_t waiters;
    /* The processors on which the rank may run, one bit each. */
    uint64_t cores[16];
} shm_place;

/* A message consists of one or more chunks; the first carries the sender's claim. */
typedef struct shm_pair {
    /* Numbers of chunks sent and received so far. */
    _Alignas(SHM_LINE) ls_word sent;
    _Alignas(SHM_LINE) ls_word received;
    _Alignas(SHM_LINE) ls_comm_claim claims[SHM_PAIR_CHUNKS];
} shm_pair;

typedef struct shm_control {
    uint64_t magic, nonce[2];
    uint32_t size;
    _Alignas(SHM_LINE) ls_word bell;
    /* The verdict is complete, which ends every wait. */
    _Alignas(SHM_LINE) _Atomic uint32_t is_over;
    _Atomic uint32_t verdict_writers;
    uint32_t status;
    char text[SHM_TEXT_BYTES];
} shm_control;

typedef struct shm_segment {
    /* Where rank 0's block is mapped; NULL: the entry is free. */
    char *base;
    uint64_t file_offset, block_bytes;
} shm_segment;

typedef struct ls_shm ls_shm;
struct ls_shm {
    ls_transport transport;
    /* The communicator this was split from, whose verdict holds here too; NULL: none. */
    ls_shm *parent;
    int fd;
    uint32_t tick;
    /* Ranks on this host that may wait at the same time. */
    uint32_t waiters;
    /* 0: more waiters than cores. */
    uint32_t spins_max;
    /* Spins that pay at present, waits that sleep without yielding first, and all waits so far: see
     * shm_sync.c. */
    uint32_t spins;
    uint32_t sleeps_at_once;
    uint32_t waits;
    shm_control *control;
    shm_flag *flags;
    shm_place *places;
    uint64_t *tables;
    char *slots, *results, *pairs;
    uint64_t slot_bytes, small_bytes, pair_chunk_bytes, pair_bytes, control_bytes;
    shm_segment segments[SHM_SEGMENTS_MAX];
    /* Segments from here on have never been used. */
    uint32_t segment_count;
    /* By rank; -1: none. */
    int *pidfds;
    /* The string from which the file name in this rank's claim was made. */
    const char *claimed_file;
    uint64_t wait_ns;
};

/* ---- shm_sync.c ---- */

/* Arrives at the next tick and waits for all members. Fails with the verdict: a mismatch, a dead
 * member, the deadline, an abort. */
LS_MUST_CHECK ls_status shm_arrive(ls_shm *shm, ls_comm_op *op, shm_ref in, shm_ref out);
/* The offer of `rank` at the current tick. */
const shm_offer *shm_offer_of(const ls_shm *shm, uint32_t rank);
/* Publishes the operation that this rank begins. */
void shm_claim(ls_shm *shm, const ls_comm_op *op);
/* Makes this thread's error text the verdict; if there is one already, it replaces the error text.
 * Returns the status of the verdict. */
ls_status shm_judge(ls_shm *shm, ls_status status);
bool shm_is_over(const ls_shm *shm);

/* What a waiting rank checks from time to time. */
typedef struct shm_look {
    ls_shm *shm;
    /* The rank it waits for; UINT32_MAX: all that have not arrived at the tick. */
    uint32_t peer;
    /* Result: a rank that is gone. */
    uint32_t lost;
    uint32_t looks;
    /* Result: a rank has arrived with another call. */
    bool has_differing;
} shm_look;
/* How to wait for `peer` in `op`. `look` is filled in and must outlive the wait. */
ls_wait shm_wait_of(ls_shm *shm, const ls_comm_op *op, uint32_t peer, shm_look *look);
/* Reaches the verdict after a wait with a result other than LS_WAIT_DONE. */
LS_MUST_CHECK ls_status shm_fail_wait(const ls_comm_op *op, ls_wait_result result, const shm_look *look);

/* ---- shm_memory.c ---- */

ls_status shm_alloc(ls_transport *transport, ls_comm_op *op);
ls_status shm_release(ls_transport *transport, ls_comm_op *op);
void shm_unmap_all(ls_shm *shm);
/* Where [data, data + bytes) lies; 0 if it is not in a segment of this communicator. */
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

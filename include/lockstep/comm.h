// SPDX-License-Identifier: Apache-2.0
/*
 * Lockstep collectives: many processes, one result, the same bits wherever the ranks run.
 *
 *   ls_comm_options options;
 *   ls_comm *comm;
 *   ls_comm_options_from_environment(&options);      rank, size, coordinator: from lockstep, torchrun, srun or mpirun
 *   ls_comm_open(&options, &comm);                   meets the others, or names who did not come
 *   float *x = ls_comm_alloc(comm, count * 4);       memory that ranks of one host read directly: no copies
 *   ls_comm_all_reduce(comm, x, x, count, LS_F32, LS_COMM_SUM, NULL);
 *   ls_comm_close(comm);
 *
 * examples/allreduce.c is a whole program; CMake target to link: lockstep_comm.
 *
 * Order of sums. A sum over ranks is taken in one fixed binary tree over rank numbers (an interval [a, b) splits at the largest power of
 * two below its length), whatever the transport, the message size and the hosts: shared memory, TCP and both together give the same
 * bits. LS_COMM_ANY_ORDER gives that up: large buffers may then go round a ring, where each part of the buffer is added in an order of its
 * own; all ranks still have the same bits, and so has every run with as many of them. bf16 and f16 are added in float32 along the whole tree
 * and rounded once, with that flag too.
 *
 * Mismatches. Each call is described by a record (sequence number, kind, type, reduction, count, root, shape, call site) that is compared
 * with the others' before data moves. Ranks that disagree get LS_ERR_MISMATCH with both sides, and which is the majority, in the text.
 *
 * Waiting. No call waits longer than options.timeout_s: it returns LS_ERR_TIMEOUT and names the ranks that did not come, and where they
 * were last. A member that died ends the calls of all others with LS_ERR_RANKS_LOST. After any of these errors the communicator and those
 * split from it only fail, with the first reason.
 *
 * Hosts. Ranks share a host when they can share memory: same boot id, same process namespace, and one can read a nonce of the other. Names
 * and what launchers say of local ranks play no part. Different values of the variable LOCKSTEP_HOST set ranks apart (tests do).
 *
 * Queues. Buffers are device memory of `queue` and the call is ordered after what was sent to it. On a CPU queue (or NULL) a call is
 * complete when it returns. Calls on one communicator come from one thread at a time; different communicators are independent.
 */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include "lockstep/dtype.h" /* LS_U8 is moved, not reduced */
#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_comm ls_comm;
typedef struct ls_queue ls_queue;

typedef enum ls_comm_reduction { LS_COMM_SUM, LS_COMM_MAX, LS_COMM_MIN } ls_comm_reduction;

enum {
    LS_COMM_SIZE_MAX = 1024, /* ranks */
    LS_COMM_ADDRESS_BYTES = 256,
    LS_COMM_TOKEN_BYTES = 128, /* with the closing 0 */
};

typedef enum ls_comm_flags {
    LS_COMM_ANY_ORDER = 1, /* sums need not be in the order of the tree: over TCP a ring */
    LS_COMM_NO_SHM = 2,    /* TCP also between ranks of one host: for tests */
} ls_comm_flags;

typedef struct ls_comm_options {
    uint32_t rank, size; /* 0 <= rank < size <= LS_COMM_SIZE_MAX */
    uint32_t local_rank,
        local_size; /* what the launcher says; hosts are told apart by boot id and a nonce, not by this */
    char coordinator
        [LS_COMM_ADDRESS_BYTES]; /* "HOST:PORT" or "unix:PATH" of the rendezvous store; with serve_store rank 0 opens it there */
    bool serve_store; /* nobody else serves the store: rank 0 does (torchrun, mpirun) */
    char token
        [LS_COMM_TOKEN_BYTES]; /* shared secret, hex; "": the launcher gave none, then only loopback is accepted */
    uint64_t epoch;            /* of the membership; others with another epoch are refused */
    const char *name; /* of the group, NULL: "world"; two groups that meet at one store have two names */
    double timeout_s; /* of opening and of each call; 0: 60 */
    uint32_t flags;   /* of ls_comm_flags */
    uint32_t sockets_per_peer; /* TCP, 1..8; 0: chosen */
    const char *
        interface; /* network interface or address prefix for TCP; NULL: LS_COMM_INTERFACE, else found by probing */
    const char *
        flight_path; /* file of the flight recorder, its folder is made; NULL: LOCKSTEP_FLIGHT, else none is kept */
    bool (*is_over)(
        void *
            context); /* looked at again and again while ranks meet over TCP: true ends that with LS_FENCED; NULL: never */
    void *context;
} ls_comm_options;

/*
 * Fills in options from the environment, the first set that is complete:
 *   LOCKSTEP_RANK, LOCKSTEP_SIZE, LOCKSTEP_COORDINATOR [LOCKSTEP_LOCAL_RANK, LOCKSTEP_LOCAL_SIZE, LOCKSTEP_TOKEN, LOCKSTEP_EPOCH]
 *   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT [LOCAL_RANK, LOCAL_WORLD_SIZE]                      torchrun
 *   OMPI_COMM_WORLD_RANK, _SIZE [_LOCAL_RANK, _LOCAL_SIZE]; PMI_RANK, PMI_SIZE                      mpirun: MASTER_ADDR and _PORT, or
 *                                                                                                  one host and a port from the job's id
 *   SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NODELIST [SLURM_LOCALID], SLURM_JOB_ID                   srun: first node, port from the job's id
 * Without any: rank 0 of 1. Errors: LS_ERR_INVALID naming the variable, its value and what it may be.
 */
LS_MUST_CHECK ls_status ls_comm_options_from_environment(ls_comm_options *options_out);

/* Meets the other size - 1 ranks. Collective. Errors: LS_ERR_TIMEOUT naming ranks that did not come, LS_ERR_MISMATCH (other size, epoch or
 * version), LS_ERR_INVALID, LS_ERR_IO, LS_ERR_MEMORY. *comm_out is written on success only. */
LS_MUST_CHECK ls_status ls_comm_open(const ls_comm_options *options, ls_comm **comm_out);

/* Leaves; never waits. Others that still call something learn that this rank has left. NULL allowed. Groups split from it first. */
void ls_comm_close(ls_comm *comm);

uint32_t ls_comm_rank(const ls_comm *comm);
uint32_t ls_comm_size(const ls_comm *comm);
/* Position among, and number of, the members on this host. */
uint32_t ls_comm_local_rank(const ls_comm *comm);
uint32_t ls_comm_local_size(const ls_comm *comm);
/* Number of the host (0.. in order of its lowest rank) that holds `rank`, and how many hosts there are. */
uint32_t ls_comm_host(const ls_comm *comm, uint32_t rank);
uint32_t ls_comm_host_count(const ls_comm *comm);

/* Members that give the same color form a group, ordered by key, then rank. Collective. color < 0: no group, *group_out NULL. */
LS_MUST_CHECK ls_status ls_comm_split(ls_comm *comm, int32_t color, int32_t key, ls_comm **group_out);

/*
 * Zeroed memory, 64-byte aligned, that ranks of one host map together, so that a collective on it reads peers' memory without copies. Any
 * address inside will do. Collective over the members of this host, with one value of `bytes`. NULL when there is no memory (then
 * ls_error_text says why). Freed by ls_comm_close, or before by ls_comm_free (collective).
 */
void *ls_comm_alloc(ls_comm *comm, uint64_t bytes);
void ls_comm_free(ls_comm *comm, void *memory);

/* ---- collectives: all members call the same ones in the same order ---- */

/* Where in the caller's source a call stands; made by the macros below. */
typedef struct ls_comm_site {
    const char *file;
    uint32_t line;
} ls_comm_site;
#define LS_COMM_HERE ((ls_comm_site){__FILE__, __LINE__})

/* out[i] = reduction over ranks of in[i], i < count, on every rank. out == in, or apart. Integers wrap around. max is a > b ? a : b along the
 * tree, hence b where either is a NaN; min alike. */
#define ls_comm_all_reduce(comm, in, out, count, dtype, reduction, queue)                                    \
    ls_comm_all_reduce_at(comm, in, out, count, dtype, reduction, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_reduce_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                              ls_dtype dtype, ls_comm_reduction reduction, ls_queue *queue,
                                              ls_comm_site site);

/* Rank r gets elements [r * count, (r + 1) * count) of the reduction of in[size * count]. out may be in + r * count. */
#define ls_comm_reduce_scatter(comm, in, out, count, dtype, reduction, queue)                                \
    ls_comm_reduce_scatter_at(comm, in, out, count, dtype, reduction, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_reduce_scatter_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                                  ls_dtype dtype, ls_comm_reduction reduction,
                                                  ls_queue *queue, ls_comm_site site);

/* out[size * count]: rank r's in[count] at r * count. in may be out + rank * count. */
#define ls_comm_all_gather(comm, in, out, count, dtype, queue)                                               \
    ls_comm_all_gather_at(comm, in, out, count, dtype, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_gather_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                              ls_dtype dtype, ls_queue *queue, ls_comm_site site);

/* data[count] of rank `root` on every rank. */
#define ls_comm_broadcast(comm, data, count, dtype, root, queue)                                             \
    ls_comm_broadcast_at(comm, data, count, dtype, root, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_broadcast_at(ls_comm *comm, void *data, uint64_t count, ls_dtype dtype,
                                             uint32_t root, ls_queue *queue, ls_comm_site site);

/* Block s of out = block r of rank s's in, for this rank r; blocks of `count` elements, in and out apart. */
#define ls_comm_all_to_all(comm, in, out, count, dtype, queue)                                               \
    ls_comm_all_to_all_at(comm, in, out, count, dtype, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_to_all_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                              ls_dtype dtype, ls_queue *queue, ls_comm_site site);

/*
 * All-to-all of uneven blocks: send_counts[s] elements at in + send_offsets[s] go to rank s, receive_counts[s] from rank s come to
 * out + receive_offsets[s]. Each pair must agree, else LS_ERR_MISMATCH. What zero-stage reductions are made of.
 */
typedef struct ls_comm_blocks {
    const uint64_t *send_counts, *send_offsets, *receive_counts,
        *receive_offsets; /* `size` of each, in elements */
} ls_comm_blocks;
#define ls_comm_all_to_all_blocks(comm, in, out, blocks, dtype, queue)                                       \
    ls_comm_all_to_all_blocks_at(comm, in, out, blocks, dtype, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_to_all_blocks_at(ls_comm *comm, const void *in, void *out,
                                                     const ls_comm_blocks *blocks, ls_dtype dtype,
                                                     ls_queue *queue, ls_comm_site site);

/* To and from one rank; the two calls of a pair are matched in order. A send returns when the data is on its way or received. */
#define ls_comm_send(comm, data, count, dtype, to, queue)                                                    \
    ls_comm_send_at(comm, data, count, dtype, to, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_send_at(ls_comm *comm, const void *data, uint64_t count, ls_dtype dtype,
                                        uint32_t to, ls_queue *queue, ls_comm_site site);
#define ls_comm_receive(comm, data, count, dtype, from, queue)                                               \
    ls_comm_receive_at(comm, data, count, dtype, from, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_receive_at(ls_comm *comm, void *data, uint64_t count, ls_dtype dtype,
                                           uint32_t from, ls_queue *queue, ls_comm_site site);

#define ls_comm_barrier(comm, queue) ls_comm_barrier_at(comm, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_barrier_at(ls_comm *comm, ls_queue *queue, ls_comm_site site);

/* Ends the calls of all members, here and elsewhere, with LS_ERR_FAILED and this text; the first reason stays. */
void ls_comm_abort(ls_comm *comm, const char *reason);

/* What went over the network and how long this rank waited for others, since opening. */
typedef struct ls_comm_stats {
    uint64_t calls, payload_bytes;       /* asked for */
    uint64_t sent_bytes, received_bytes; /* on sockets, with headers */
    double wait_s;                       /* in calls, without what copying and adding took */
} ls_comm_stats;
void ls_comm_get_stats(const ls_comm *comm, ls_comm_stats *stats_out);

#endif

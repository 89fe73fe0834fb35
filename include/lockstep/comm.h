// SPDX-License-Identifier: Apache-2.0
/*
 * Lockstep collectives: many processes compute one result, with the same bits wherever they run.
 *
 *   ls_comm_options options;
 *   ls_comm *comm;
 *   ls_comm_options_from_environment(&options);   reads what lockstep, torchrun, srun or mpirun set
 *   ls_comm_open(&options, &comm);                meets the other ranks, or names the missing ones
 *   float *x = ls_comm_alloc(comm, count * 4);    memory that ranks of one host read without copies
 *   ls_comm_all_reduce(comm, x, x, count, LS_F32, LS_COMM_SUM, NULL);
 *   ls_comm_close(comm);
 *
 * examples/allreduce.c is a complete program. Link the CMake target lockstep_comm.
 *
 * Order of sums. A sum over ranks follows one fixed binary tree over rank numbers: an interval
 * [a, b) splits at a + the largest power of two below b - a. The transport, the message size and
 * the placement of ranks on hosts do not change it, so shared memory, TCP and a mix of both give
 * the same bits. bf16 and f16 values are added in float32 and rounded once, at the end.
 *
 *   5 ranks:   ((0 + 1) + (2 + 3)) + 4
 *
 * LS_COMM_ANY_ORDER gives up this order: large buffers may then go round a ring, which adds each
 * part of the buffer in an order of its own. All ranks still get the same bits, and so does every
 * run with the same number of ranks.
 *
 * Mismatches. Every call has a fingerprint (kind, type, reduction, count, root, flags) that is
 * compared with those of the other ranks before any data moves. Ranks that disagree get
 * LS_ERR_MISMATCH; the error text names both sides, their source lines, and the majority.
 *
 * Waiting. No call waits longer than options.timeout_s. It then returns LS_ERR_TIMEOUT and names
 * the ranks that did not arrive and the last call each of them made. When a member dies, the calls
 * of all others end with LS_ERR_RANKS_LOST. After any of these errors the communicator and all
 * groups split from it are unusable: every later call fails with the first reason.
 *
 * Hosts. Two ranks share a host if they can share memory: they have the same boot id and process
 * namespace, and one can read a random number that the other holds. Host names and the local ranks
 * that a launcher reports play no part. Different values of the variable LOCKSTEP_HOST separate
 * ranks of one machine, which is useful in tests.
 *
 * Queues. Buffers are memory of the queue's device, and a call is ordered after the work already
 * sent to the queue. On a CPU queue (or NULL) a call is complete when it returns.
 *
 * Threads. Calls on one communicator must come from one thread at a time. Different communicators
 * are independent.
 *
 * Errors. Functions that return ls_status leave the reason in ls_error_text() (lockstep/status.h).
 */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include "lockstep/dtype.h"
#include "lockstep/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A group of ranks. Owned by the caller from ls_comm_open or ls_comm_split to ls_comm_close. */
typedef struct ls_comm ls_comm;
/* Where work for a device is sent, in order. */
typedef struct ls_queue ls_queue;

/* All types but LS_U8 can be reduced. LS_U8 can only be moved. */
typedef enum ls_comm_reduction { LS_COMM_SUM, LS_COMM_MAX, LS_COMM_MIN } ls_comm_reduction;

enum {
    /* Most ranks in a group. */
    LS_COMM_SIZE_MAX = 1024,
    /* Room for a coordinator's address and for a token, with the terminating zero. */
    LS_COMM_ADDRESS_BYTES = 256,
    LS_COMM_TOKEN_BYTES = 128,
};

typedef enum ls_comm_flags {
    /* Sums need not follow the tree. Large buffers then go round a ring over TCP. */
    LS_COMM_ANY_ORDER = 1,
    /* Use TCP between ranks of one host too. For tests. */
    LS_COMM_NO_SHM = 2,
} ls_comm_flags;

/* How to open a communicator. Zero is the default of every field but `size` and `coordinator`. */
typedef struct ls_comm_options {
    /* 0 <= rank < size <= LS_COMM_SIZE_MAX. */
    uint32_t rank;
    uint32_t size;

    /* As reported by the launcher, for information only: see "Hosts" above. */
    uint32_t local_rank;
    uint32_t local_size;

    /* Address of the rendezvous store: "HOST:PORT" or "unix:PATH". Not needed by a single rank. */
    char coordinator[LS_COMM_ADDRESS_BYTES];

    /* Rank 0 serves the store at `coordinator`. Set when no other process does (torchrun,
     * mpirun). */
    bool serve_store;

    /* Secret shared by all ranks, hexadecimal digits. "": none, and then only ranks that connect
     * through the loopback interface or a Unix socket are accepted. */
    char token[LS_COMM_TOKEN_BYTES];

    /* Epoch of the membership. Ranks with another epoch are refused. */
    uint64_t epoch;

    /* Name of the group, at most 64 characters without '/'. NULL: "world". Groups that meet at one
     * store need different names. */
    const char *name;

    /* Longest duration of opening and of each call, in seconds. 0: 60. */
    double timeout_s;

    /* Any of ls_comm_flags, combined with |. */
    uint32_t flags;

    /* TCP connections to each peer, 1 to 8. 0: chosen automatically. */
    uint32_t sockets_per_peer;

    /* Network interface or address prefix for TCP. NULL: the variable LS_COMM_INTERFACE; without
     * it, candidates are probed and the first that works is used. */
    const char *interface;

    /* File of the flight recorder, which keeps the last calls for diagnosis; its folder is created.
     * NULL: the variable LOCKSTEP_FLIGHT; without it, nothing is recorded. */
    const char *flight_path;

    /* Called repeatedly with `context` while ranks connect. When it returns true, opening ends with
     * LS_FENCED. NULL: never. */
    bool (*is_over)(void *context);
    void *context;
} ls_comm_options;

/*
 * Fills in `rank`, `size`, `coordinator` and related options from the environment. The first
 * complete set of variables is used (those in brackets may be missing):
 *
 *   lockstep   LOCKSTEP_RANK, LOCKSTEP_SIZE, LOCKSTEP_COORDINATOR
 *              [LOCKSTEP_LOCAL_RANK, LOCKSTEP_LOCAL_SIZE, LOCKSTEP_EPOCH]
 *   torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT [LOCAL_RANK, LOCAL_WORLD_SIZE]
 *   mpirun     OMPI_COMM_WORLD_RANK and _SIZE [_LOCAL_RANK, _LOCAL_SIZE], or PMI_RANK and PMI_SIZE;
 *              on several hosts also MASTER_ADDR and MASTER_PORT, on one host the port is derived
 *              from the job's id
 *   srun       SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NODELIST, SLURM_JOB_ID [SLURM_LOCALID];
 *              the coordinator is the first node, the port is derived from the job's id
 *
 * LOCKSTEP_TOKEN is read in all cases. Without any of these the result is rank 0 of 1.
 *
 * Errors: LS_ERR_INVALID naming the variable, its value and the allowed values; *options_out is
 * written on success only.
 */
LS_MUST_CHECK ls_status ls_comm_options_from_environment(ls_comm_options *options_out);

/*
 * Meets the other size - 1 ranks. Collective. `options` is not needed after the call.
 *
 * Errors: LS_ERR_TIMEOUT naming the ranks that did not arrive; LS_ERR_MISMATCH (another size, epoch
 * or version); LS_ERR_INVALID, LS_ERR_IO, LS_ERR_MEMORY; LS_FENCED (see `is_over`).
 * *comm_out is written on success only; release it with ls_comm_close.
 */
LS_MUST_CHECK ls_status ls_comm_open(const ls_comm_options *options, ls_comm **comm_out);

/*
 * Leaves the group and frees the communicator with all its memory; never waits. Members that still
 * call something are told that this rank has left. Close groups split from `comm` before `comm`.
 * NULL is allowed.
 */
void ls_comm_close(ls_comm *comm);

/* This rank, and the number of ranks in the group. */
uint32_t ls_comm_rank(const ls_comm *comm);
uint32_t ls_comm_size(const ls_comm *comm);
/* This rank's position among the members on this host, and their number. */
uint32_t ls_comm_local_rank(const ls_comm *comm);
uint32_t ls_comm_local_size(const ls_comm *comm);
/* Number of the host of `rank`, and the number of hosts. Hosts are numbered from 0 in the order of
 * their lowest rank. */
uint32_t ls_comm_host(const ls_comm *comm, uint32_t rank);
uint32_t ls_comm_host_count(const ls_comm *comm);

/*
 * Splits the group: members that give the same `color` form a new group, ordered by `key`, then by
 * rank. Collective. A member with color < 0 joins no group and gets NULL in *group_out.
 * Release a group with ls_comm_close, before `comm`.
 */
LS_MUST_CHECK ls_status ls_comm_split(ls_comm *comm, int32_t color, int32_t key, ls_comm **group_out);

/*
 * Allocates `bytes` of zeroed memory, 64-byte aligned, that all ranks of one host map, so that
 * collectives read it in place without copies. A buffer may begin at any address inside it.
 *
 * Collective over the members of this host, which must give the same `bytes`. Returns NULL on
 * failure; ls_error_text() has the reason. ls_comm_close frees the memory; ls_comm_free (also
 * collective) frees it earlier.
 */
void *ls_comm_alloc(ls_comm *comm, uint64_t bytes);
void ls_comm_free(ls_comm *comm, void *memory);

/*
 * ---- Collectives: all members make the same calls in the same order ----
 *
 * Counts are in elements of `dtype`; buffers belong to the caller and are aligned to one element.
 * A buffer may be NULL when there is nothing to move. Call the macros: they pass the source line of
 * the call, which error texts and the flight recorder show.
 */

/* Source position of a call. */
typedef struct ls_comm_site {
    const char *file;
    uint32_t line;
} ls_comm_site;
#define LS_COMM_HERE ((ls_comm_site){__FILE__, __LINE__})

/*
 * All-reduce: out[i] = reduction over ranks of in[i], i < count, on every rank.
 *
 * out == in is allowed; otherwise they must not overlap. Integer sums wrap around. max is
 * a > b ? a : b along the tree, which is b if either is a NaN; min likewise.
 */
#define ls_comm_all_reduce(comm, in, out, count, dtype, reduction, queue)                                    \
    ls_comm_all_reduce_at(comm, in, out, count, dtype, reduction, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_reduce_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                              ls_dtype dtype, ls_comm_reduction reduction, ls_queue *queue,
                                              ls_comm_site site);

/* Reduce-scatter: rank r gets elements [r * count, (r + 1) * count) of the reduction of
 * in[size * count]. out may be in + r * count. */
#define ls_comm_reduce_scatter(comm, in, out, count, dtype, reduction, queue)                                \
    ls_comm_reduce_scatter_at(comm, in, out, count, dtype, reduction, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_reduce_scatter_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                                  ls_dtype dtype, ls_comm_reduction reduction,
                                                  ls_queue *queue, ls_comm_site site);

/* All-gather: out[size * count] holds in[count] of rank r at r * count. in may be
 * out + rank * count. */
#define ls_comm_all_gather(comm, in, out, count, dtype, queue)                                               \
    ls_comm_all_gather_at(comm, in, out, count, dtype, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_gather_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                              ls_dtype dtype, ls_queue *queue, ls_comm_site site);

/* Broadcast: data[count] of rank `root` replaces data[count] of every rank. */
#define ls_comm_broadcast(comm, data, count, dtype, root, queue)                                             \
    ls_comm_broadcast_at(comm, data, count, dtype, root, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_broadcast_at(ls_comm *comm, void *data, uint64_t count, ls_dtype dtype,
                                             uint32_t root, ls_queue *queue, ls_comm_site site);

/* All-to-all: on rank r, block s of `out` is block r of rank s's `in`. Blocks have `count`
 * elements; in[size * count] and out[size * count] must not overlap. */
#define ls_comm_all_to_all(comm, in, out, count, dtype, queue)                                               \
    ls_comm_all_to_all_at(comm, in, out, count, dtype, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_to_all_at(ls_comm *comm, const void *in, void *out, uint64_t count,
                                              ls_dtype dtype, ls_queue *queue, ls_comm_site site);

/*
 * All-to-all with blocks of different sizes: send_counts[s] elements at in + send_offsets[s] go to
 * rank s; receive_counts[s] elements from rank s arrive at out + receive_offsets[s]. The two counts
 * of each pair of ranks must agree, otherwise the call fails with LS_ERR_MISMATCH.
 */
typedef struct ls_comm_blocks {
    /* `size` numbers each, in elements. */
    const uint64_t *send_counts;
    const uint64_t *send_offsets;
    const uint64_t *receive_counts;
    const uint64_t *receive_offsets;
} ls_comm_blocks;
#define ls_comm_all_to_all_blocks(comm, in, out, blocks, dtype, queue)                                       \
    ls_comm_all_to_all_blocks_at(comm, in, out, blocks, dtype, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_all_to_all_blocks_at(ls_comm *comm, const void *in, void *out,
                                                     const ls_comm_blocks *blocks, ls_dtype dtype,
                                                     ls_queue *queue, ls_comm_site site);

/* Send and receive between two ranks. The n-th send from a to b meets the n-th receive of b from a;
 * other ranks take no part. `data` may be reused when ls_comm_send returns, which may be before the
 * other side has called ls_comm_receive. */
#define ls_comm_send(comm, data, count, dtype, to, queue)                                                    \
    ls_comm_send_at(comm, data, count, dtype, to, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_send_at(ls_comm *comm, const void *data, uint64_t count, ls_dtype dtype,
                                        uint32_t to, ls_queue *queue, ls_comm_site site);
#define ls_comm_receive(comm, data, count, dtype, from, queue)                                               \
    ls_comm_receive_at(comm, data, count, dtype, from, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_receive_at(ls_comm *comm, void *data, uint64_t count, ls_dtype dtype,
                                           uint32_t from, ls_queue *queue, ls_comm_site site);

/* Makes a group that was split one for threads that carry data in the background: its calls have no
 * time limit and are not recorded for diagnosis, so a receive may wait for hours. They end when a
 * member is gone, or with ls_comm_abort. Whoever waits for the data has a limit and a record of its
 * own. */
void ls_comm_in_background(ls_comm *comm);

/* Barrier: returns when all members have called it. */
#define ls_comm_barrier(comm, queue) ls_comm_barrier_at(comm, queue, LS_COMM_HERE)
LS_MUST_CHECK ls_status ls_comm_barrier_at(ls_comm *comm, ls_queue *queue, ls_comm_site site);

/* Ends the current and later calls of all members with LS_ERR_FAILED and this text. If the
 * communicator has failed already, its first reason stays. */
void ls_comm_abort(ls_comm *comm, const char *reason);

/* Traffic and waiting time of this rank since opening. */
typedef struct ls_comm_stats {
    /* Calls, and the bytes of their `count` arguments. */
    uint64_t calls;
    uint64_t payload_bytes;
    /* Bytes sent and received on sockets, headers included. */
    uint64_t sent_bytes;
    uint64_t received_bytes;
    /* Seconds spent waiting for other ranks in calls, without copying and adding. */
    double wait_s;
} ls_comm_stats;
void ls_comm_get_stats(const ls_comm *comm, ls_comm_stats *stats_out);

#endif

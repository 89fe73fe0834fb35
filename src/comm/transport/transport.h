// SPDX-License-Identifier: Apache-2.0
/*
 * Transports: how a group of ranks moves and adds data. comm.c checks the arguments of a call,
 * numbers and records it, and passes it to the group's transport as an ls_comm_op. The transport
 * completes it, or fails with a reason before the deadline.
 *
 *   shm    all members on one host: memory mapped by all, sums read directly from the peers'
 *          buffers, futex barriers
 *   tcp    members anywhere: a full mesh of sockets, data cut into pieces and pipelined; direct
 *          exchange, or a ring where any order of sums is allowed
 *   hier   several hosts, some with several members: shm within hosts, tcp between them, slice by
 *          slice
 *
 * Contract of run():
 *  - The members' fingerprints of operation `seq` are compared before any byte of `out` is written;
 *    a difference is LS_ERR_MISMATCH.
 *  - A sum without LS_COMM_ANY_ORDER follows the fixed tree over rank numbers
 *    (comm/transport/tree.h), so that all transports give the same bits.
 *  - It returns by op->deadline_ns with LS_ERR_TIMEOUT, naming the missing ranks. It checks for an
 *    abort at least every 100 ms.
 *  - When a member dies (pidfd, socket), it returns LS_ERR_RANKS_LOST and names the member.
 *  - It allocates nothing for operations up to a size seen before.
 *  - `seq` numbers the operations of the group 1, 2, ..., the same on all members. Sends and
 *    receives have their own numbers, per pair and direction, so that ranks outside a pair stay in
 *    step.
 *  - LS_COMM_ALLOC and LS_COMM_SPLIT reach run() only inside a transport. comm.c gathers the colors
 *    of a split with LS_COMM_ALL_GATHER and LS_COMM_FLAG_SPLIT.
 */
#ifndef LS_COMM_TRANSPORT_TRANSPORT_H
#define LS_COMM_TRANSPORT_TRANSPORT_H

#include "comm/flight/flight.h"
#include "comm/store/store.h"
#include "compute/tensor.h"

/* What all members know about a member; exchanged through the store. */
typedef struct ls_comm_member {
    /* Rank in the communicator that was opened, for messages. */
    uint32_t world_rank;
    /* Number of its host; hosts are numbered from 0 in the order of their lowest rank. */
    uint32_t host;
    uint32_t local_rank;
    int32_t pid;
    char host_name[64];
} ls_comm_member;

/* In ls_comm_op.flags: this all-gather is part of ls_comm_split. */
enum { LS_COMM_FLAG_SPLIT = 0x80 };

/* One call. */
typedef struct ls_comm_op {
    ls_comm_kind kind;
    ls_dtype dtype;
    ls_comm_reduction reduction;
    /* Any of ls_comm_flags. */
    uint32_t flags;
    /* Root, destination or source; UINT32_MAX: none. */
    uint32_t peer;
    const void *in;
    void *out;
    uint64_t count;
    /* Of LS_COMM_ALL_TO_ALL_BLOCKS only. */
    const ls_comm_blocks *blocks;
    uint64_t seq, fingerprint;
    ls_comm_site site;
    /* On CLOCK_MONOTONIC. */
    uint64_t deadline_ns;
    /* Results for the flight recorder: time spent waiting, and the last rank to arrive. */
    uint64_t wait_ns;
    uint32_t last_rank;
} ls_comm_op;

/* The group that a split makes: members[0..count) are ranks of the parent, and this rank is member
 * number `self`. `id` is unique and the same on all members. */
typedef struct ls_comm_subgroup {
    const uint32_t *members;
    uint32_t count, self, id;
    uint64_t deadline_ns;
} ls_comm_subgroup;

typedef struct ls_transport ls_transport;

typedef struct ls_transport_calls {
    const char *name;
    ls_status (*run)(ls_transport *transport, ls_comm_op *op);
    /* Shared memory; both are collective over the members of this host, with op->kind
     * LS_COMM_ALLOC. alloc returns memory of op->count bytes in op->out; release frees op->in.
     * When memory is short, all members get LS_ERR_MEMORY, which does not make the group fail.
     * NULL: the transport has no such memory, and comm.c uses ordinary memory. */
    ls_status (*alloc)(ls_transport *transport, ls_comm_op *op);
    ls_status (*release)(ls_transport *transport, ls_comm_op *op);
    /* Makes a transport for the members of `group`; only they call it. comm.c sets the `members`
     * of the result. */
    ls_status (*split)(ls_transport *transport, const ls_comm_subgroup *group, ls_transport **group_out);
    /* Makes the present and future calls of all members fail with `reason`. A call that has
     * received all it needs may still succeed. Callable from any thread. */
    void (*abort)(ls_transport *transport, ls_status status, const char *reason);
    void (*stats)(const ls_transport *transport, ls_comm_stats *stats_inout);
    void (*destroy)(ls_transport *transport);
} ls_transport_calls;

/* First member of every transport. */
struct ls_transport {
    const ls_transport_calls *calls;
    /* `size` members, borrowed from the communicator. */
    const ls_comm_member *members;
    uint32_t rank, size;
};

/* The arguments of opening a transport. */
typedef struct ls_transport_setup {
    const ls_comm_options *options;
    const ls_comm_member *members;
    uint32_t rank, size;
    uint32_t group_id;
    /* Where addresses are exchanged, under keys that begin with `key_prefix`:
     * "<epoch>/<name>/<number of this opening>/". */
    ls_store *store;
    const char *key_prefix;
} ls_transport_setup;

LS_MUST_CHECK ls_status ls_transport_open_shm(const ls_transport_setup *setup, ls_transport **transport_out);
LS_MUST_CHECK ls_status ls_transport_open_tcp(const ls_transport_setup *setup, ls_transport **transport_out);
/* Opens its own shm and tcp transports. */
LS_MUST_CHECK ls_status ls_transport_open_hier(const ls_transport_setup *setup, ls_transport **transport_out);

/*
 * The 64 bits that members must agree on: kind, dtype, reduction, flags, root (not the peer of a
 * send or receive) and count. The source line is recorded but not part of the fingerprint, because
 * different branches of a program may rightly meet in one collective.
 */
uint64_t ls_comm_fingerprint(const ls_comm_op *op);

/* A member's description of its call, by which others can name it in messages. Sent or shared
 * beside the fingerprint. */
typedef struct ls_comm_claim {
    uint64_t seq, fingerprint, count;
    /* In the group. */
    uint32_t rank;
    uint32_t peer;
    uint8_t kind, dtype, reduction, flags;
    uint32_t line;
    /* The end of the path if it is longer. */
    char file[80];
    int32_t pid;
    uint32_t world_rank;
} ls_comm_claim;
_Static_assert(sizeof(ls_comm_claim) == 128, "on the wire");

void ls_comm_claim_fill(ls_comm_claim *claim, const ls_comm_op *op, const ls_transport *transport);

/* Writes the error text of a mismatch: each side with its ranks, hosts, pids, operation, count and
 * file:line, and the majority among claims[0..count). Returns LS_ERR_MISMATCH. */
LS_MUST_CHECK ls_status ls_comm_fail_mismatch(const ls_transport *transport, const ls_comm_claim *claims,
                                              uint32_t count);

/* Describes an operation or a claim in messages: "all_reduce sum of 1024 f32". */
enum { LS_COMM_WORDS_BYTES = 96 };
void ls_comm_op_words(const ls_comm_op *op, char words_out[LS_COMM_WORDS_BYTES]);
void ls_comm_claim_words(const ls_comm_claim *claim, char words_out[LS_COMM_WORDS_BYTES]);

/* Describes member `rank` of the group: "rank 3 (node7, pid 4711)". The number shown is its rank in
 * the communicator that was opened. */
enum { LS_COMM_WHO_BYTES = 128 };
void ls_comm_member_words(const ls_transport *transport, uint32_t rank, char words_out[LS_COMM_WHO_BYTES]);

/* Names as "f32" and "sum". */
const char *ls_dtype_name(ls_dtype dtype);
const char *ls_comm_reduction_name(ls_comm_reduction reduction);

/* Reduces `count` elements of each of the inputs (in rank order) along the fixed tree. `out` may be
 * one of the inputs. */
void ls_comm_reduce_tree(ls_dtype dtype, ls_comm_reduction reduction, const void *const *inputs,
                         uint32_t input_count, uint64_t count, void *out);

#endif

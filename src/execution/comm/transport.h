// SPDX-License-Identifier: Apache-2.0
/*
 * Transports: how a group of ranks moves and adds data. comm.c checks arguments, numbers and records a call, and hands it to the group's
 * transport as an ls_comm_op; a transport completes it, or fails with a reason within the deadline.
 *
 *   shm    all members on one host: memory mapped by all, direct reduction from the peers' buffers, futex barriers
 *   tcp    members anywhere: full mesh of sockets, chunked and pipelined; direct exchange, or a ring where any order will do
 *   hier   several hosts, some with several members: shm inside, tcp between, per slice
 *   (nccl  members with GPUs: the same calls on a stream)
 *
 * Contract of run():
 *  - The members' fingerprints of operation `seq` are compared before any byte of `out` is written; a difference is LS_ERR_MISMATCH.
 *  - A sum without LS_COMM_ANY_ORDER is the fixed tree over rank numbers (execution/parallel/tree.h), so that all transports agree.
 *  - It returns by op->deadline_ns with LS_ERR_TIMEOUT naming the missing ranks; it looks at the abort state at least every 100 ms.
 *  - Death of a member (pidfd, socket) ends it with LS_ERR_RANKS_LOST naming it.
 *  - Nothing is allocated for operations up to a size seen before.
 *  - Operations of the group are numbered 1, 2, ... by `seq`, the same on all members. Sends and receives have numbers of their own, per
 *    pair and direction, so that ranks outside a pair stay in step.
 *  - LS_COMM_ALLOC and LS_COMM_SPLIT come as run() only inside a transport; comm.c gathers colours with LS_COMM_ALL_GATHER and
 *    LS_COMM_FLAG_SPLIT set.
 */
#ifndef LS_EXECUTION_COMM_TRANSPORT_H
#define LS_EXECUTION_COMM_TRANSPORT_H

#include "execution/comm/flight.h"
#include "execution/comm/store.h"

/* A member of a group as the others know it, exchanged through the store. */
typedef struct ls_comm_member {
    uint32_t world_rank; /* in the communicator that was opened, for messages */
    uint32_t host;       /* number of its host, 0.. by lowest rank */
    uint32_t local_rank;
    int32_t pid;
    char host_name[64];
} ls_comm_member;

enum { LS_COMM_FLAG_SPLIT = 0x80 }; /* in ls_comm_op.flags: this all-gather is part of ls_comm_split */

typedef struct ls_comm_op {
    ls_comm_kind kind;
    ls_dtype dtype;
    ls_comm_reduction reduction;
    uint32_t flags; /* of ls_comm_flags */
    uint32_t peer;  /* root, to or from; UINT32_MAX: none */
    const void *in;
    void *out;
    uint64_t count;
    const ls_comm_blocks *blocks; /* of LS_COMM_ALL_TO_ALL_BLOCKS */
    uint64_t seq, fingerprint;
    ls_comm_site site;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC */
    /* Out, for the record. */
    uint64_t wait_ns;
    uint32_t last_rank;
} ls_comm_op;

typedef struct ls_transport ls_transport;

typedef struct ls_transport_calls {
    const char *name;
    ls_status (*run)(ls_transport *transport, ls_comm_op *op);
    /* Collective over the members of this host, op->kind LS_COMM_ALLOC: op->count bytes, the memory comes back in op->out; release: count
     * 0, op->in the memory. LS_ERR_MEMORY is told to all members and is no reason for the group to fail. NULL: the transport has no such
     * memory and comm.c takes ordinary memory. */
    ls_status (*alloc)(ls_transport *transport, ls_comm_op *op);
    ls_status (*release)(ls_transport *transport, ls_comm_op *op);
    /* A group of members[0..count) (ranks of this transport), this rank being `self` in the group; ranks not among them don't call.
     * group_id: unique, agreed. comm.c sets the `members` of what comes out. */
    ls_status (*split)(ls_transport *transport, const uint32_t *members, uint32_t count, uint32_t self,
                       uint32_t group_id, uint64_t deadline_ns, ls_transport **group_out);
    /* Makes calls of all members, present and future, fail with `reason`; one that has got all it needs already may still end well. From
     * any thread. */
    void (*abort)(ls_transport *transport, ls_status status, const char *reason);
    void (*stats)(const ls_transport *transport, ls_comm_stats *stats_inout);
    void (*destroy)(ls_transport *transport);
} ls_transport_calls;

/* First member of every transport. */
struct ls_transport {
    const ls_transport_calls *calls;
    const ls_comm_member *members; /* borrowed from the communicator; `size` of them */
    uint32_t rank, size;
};

/* What a transport opens with. */
typedef struct ls_transport_setup {
    const ls_comm_options *options;
    const ls_comm_member *members;
    uint32_t rank, size;
    uint32_t group_id;
    ls_store *store;        /* to exchange addresses */
    const char *key_prefix; /* that keys begin with: "<epoch>/<name>/<number of this opening>/" */
} ls_transport_setup;

LS_MUST_CHECK ls_status ls_transport_open_shm(const ls_transport_setup *setup, ls_transport **transport_out);
LS_MUST_CHECK ls_status ls_transport_open_tcp(const ls_transport_setup *setup, ls_transport **transport_out);
/* Makes its own shm and tcp parts. */
LS_MUST_CHECK ls_status ls_transport_open_hier(const ls_transport_setup *setup, ls_transport **transport_out);

/*
 * The 64 bits that have to agree between members: kind, dtype, reduction, flags, root (not the peer of send and receive) and count. The
 * call site is in the record but not in the fingerprint: branches of one program may well meet in one collective.
 */
uint64_t ls_comm_fingerprint(const ls_comm_op *op);

/* What members say of an operation so that others can name it; 128 bytes, sent or shared beside the fingerprint. */
typedef struct ls_comm_claim {
    uint64_t seq, fingerprint, count;
    uint32_t rank; /* in the group */
    uint32_t peer;
    uint8_t kind, dtype, reduction, flags;
    uint32_t line;
    char file[80]; /* the end of the path */
    int32_t pid;
    uint32_t world_rank;
} ls_comm_claim;
_Static_assert(sizeof(ls_comm_claim) == 128, "on the wire");

void ls_comm_claim_fill(ls_comm_claim *claim, const ls_comm_op *op, const ls_transport *transport);

/* The error text of a mismatch: both sides with rank, host, pid, operation, shape, file:line, and which side is the majority among
 * claims[0..count); returns LS_ERR_MISMATCH. */
LS_MUST_CHECK ls_status ls_comm_fail_mismatch(const ls_transport *transport, const ls_comm_claim *claims,
                                              uint32_t count);

/* "all_reduce sum of 1024 f32": what an operation or a claim is, for messages. */
enum { LS_COMM_WORDS_BYTES = 96 };
void ls_comm_op_words(const ls_comm_op *op, char words_out[LS_COMM_WORDS_BYTES]);
void ls_comm_claim_words(const ls_comm_claim *claim, char words_out[LS_COMM_WORDS_BYTES]);

/* "rank 3 (node7, pid 4711)" for member `rank` of the group; the rank is the one in the communicator that was opened. */
enum { LS_COMM_WHO_BYTES = 128 };
void ls_comm_member_words(const ls_transport *transport, uint32_t rank, char words_out[LS_COMM_WHO_BYTES]);

/* Element size; "f32"; sums of `count` elements in the fixed tree over `inputs` (rank order); dst may be one of them. */
uint64_t ls_dtype_bytes(ls_dtype dtype);
const char *ls_dtype_name(ls_dtype dtype);
const char *ls_comm_reduction_name(ls_comm_reduction reduction);
void ls_comm_reduce_tree(ls_dtype dtype, ls_comm_reduction reduction, const void *const *inputs,
                         uint32_t input_count, uint64_t count, void *out);

#endif

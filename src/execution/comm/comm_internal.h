// SPDX-License-Identifier: Apache-2.0
/* Inside of a communicator, for execution/comm/comm*.c. */
#ifndef LS_EXECUTION_COMM_COMM_INTERNAL_H
#define LS_EXECUTION_COMM_COMM_INTERNAL_H

#include "execution/comm/transport.h"

enum { LS_COMM_VERSION = 1, LS_COMM_REASON_BYTES = 2048 };

struct ls_comm {
    ls_transport *transport; /* NULL: one member */
    ls_comm_member *members; /* size of them */
    uint32_t rank, size, local_rank, local_size, host_count;
    uint32_t id;     /* the same on all members, another one in each communicator */
    uint32_t splits; /* made of this one so far */
    uint32_t flags;  /* of ls_comm_flags */
    uint64_t timeout_ns;
    uint64_t seq;                          /* collectives so far */
    uint64_t *sent_count, *received_count; /* sends and receives so far, per member */
    ls_comm *parent;                       /* that this was split from; NULL: opened */
    ls_status failed;                      /* the first reason, LS_OK: none */
    char reason[LS_COMM_REASON_BYTES];
    ls_comm_stats stats;
    void **blocks; /* ls_comm_alloc without a transport's memory */
    uint32_t block_count;
    uint8_t flight_slot;
    /* Of the opened one. */
    ls_store *store;
    ls_store_thread *server;
    ls_flight *flight; /* that it created and installed, NULL: none */
};

/* Makes this thread's error text the reason for which all later calls fail, unless there is one. */
ls_status ls_comm_keep_reason(ls_comm *comm, ls_status status);

/* The all-gather of a split: `bytes` of every member. */
LS_MUST_CHECK ls_status ls_comm_gather_for_split(ls_comm *comm, const void *in, void *out, uint64_t bytes);

/* Fills in host numbers and local ranks of `members`, from what `host` of each says: any numbers, equal on one host. */
void ls_comm_number_hosts(ls_comm_member *members, uint32_t count, uint32_t *host_count_out);

#endif

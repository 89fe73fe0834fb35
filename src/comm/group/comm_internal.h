// SPDX-License-Identifier: Apache-2.0
/* The inside of a communicator, for the files of this folder. */
#ifndef LS_COMM_GROUP_COMM_INTERNAL_H
#define LS_COMM_GROUP_COMM_INTERNAL_H

#include "comm/transport/transport.h"

enum { LS_COMM_VERSION = 1, LS_COMM_REASON_BYTES = 2048 };

struct ls_comm {
    /* NULL: the group has one member. */
    ls_transport *transport;
    /* `size` members. */
    ls_comm_member *members;
    uint32_t rank, size, local_rank, local_size, host_count;
    /* The same on all members, different in each communicator. */
    uint32_t id;
    /* Number of splits of this communicator so far. */
    uint32_t splits;
    /* Any of ls_comm_flags. */
    uint32_t flags;
    uint64_t timeout_ns;
    bool in_background; /* ls_comm_in_background */
    /* Number of collectives so far. */
    uint64_t seq;
    /* Number of sends and receives so far, by member. */
    uint64_t *sent_count, *received_count;
    /* The communicator that this one was split from; NULL: it was opened. */
    ls_comm *parent;
    /* The first failure and its text; LS_OK: none yet. */
    ls_status failed;
    char reason[LS_COMM_REASON_BYTES];
    ls_comm_stats stats;
    /* Memory of ls_comm_alloc when the transport has no shared memory. */
    void **blocks;
    uint32_t block_count;
    uint8_t flight_slot;
    /* Of an opened communicator only. `flight`: the recorder that it installed; NULL: none. */
    ls_store *store;
    ls_store_thread *server;
    ls_flight *flight;
};

/* Makes this thread's error text the reason for which all later calls fail, unless there is one
 * already. Returns `status`. */
ls_status ls_comm_keep_reason(ls_comm *comm, ls_status status);

/* The all-gather of a split: `bytes` bytes of every member. */
LS_MUST_CHECK ls_status ls_comm_gather_for_split(ls_comm *comm, const void *in, void *out, uint64_t bytes);

#endif

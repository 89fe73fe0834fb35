// SPDX-License-Identifier: Apache-2.0
/*
 * Several hosts, at least one with several members: shared memory inside a host, TCP between hosts.
 *
 *   host 0: ranks 0 1 2      host 1: ranks 3 4        two rails: as many as the smallest host has ranks
 *           │ │                      │ │
 *   rail 0  0─┼──────────────────────3 │              rail l: local rank l of every host, a group of
 *   rail 1    1────────────────────────4              the TCP mesh
 *
 * All-reduce. Local rank l handles slice l of the data. It adds up the ranks of its host in memory
 * as far as the tree over all ranks allows, that is, to the canonical nodes of the host's ranks
 * (transport/tree.h; each run of consecutive ranks is covered separately, so a host may hold any
 * ranks). The rail joins the nodes of all hosts in the order of the tree, and the result is written
 * into all local buffers. So the bits are those of the flat tree, and each host sends 2 (H - 1) / H
 * of the data per node, whatever its number of ranks. bf16 and f16 travel as float32, because the
 * sums of a host must not be rounded. Memory of ls_comm_alloc is read and written in place; other
 * memory goes through a stage in shared memory, block by block.
 *
 * Barrier, broadcast and all-gather use the stage inside a host, and rail 0 between hosts. Send and
 * receive use shared memory between ranks of one host, otherwise TCP. Reduce-scatter and all-to-all
 * use plain TCP between all ranks, after the hosts have compared their calls.
 *
 * Every call begins inside the hosts and continues on rail 0, so a disagreement is found wherever
 * it is.
 */
#ifndef LS_COMM_HIER_HIER_H
#define LS_COMM_HIER_HIER_H

#include "comm/shm/shm.h"
#include "comm/tcp/tcp_mesh.h"

enum {
    /* Per rank, in two halves. A block is as large as a half. Blocks also divide calls in place, so
     * that all hosts use the rails in the same turns. */
    HIER_STAGE_BYTES = 8 << 20,
    HIER_BLOCK_BYTES = HIER_STAGE_BYTES / 2,
    HIER_LINE = 64,
};

typedef struct hier {
    ls_transport base;
    /* TCP between all members. */
    ls_transport *world;
    /* Members of this host; NULL: this rank is alone on it. */
    ls_shm *local;
    /* TCP between this local rank of every host; NULL: this rank has no rail. */
    ls_transport *rail;
    ls_comm_member *members, *local_members;
    uint32_t host_count, rail_count, self_host;
    uint32_t local_rank, local_size;
    /* The half of the stage in use. */
    uint32_t turn;
    /* The members of this host have met in the current call. */
    bool has_met;
    /* By member: its host (numbered from 0 in the order of the lowest member), and its place
     * there. */
    uint32_t *host_of, *local_of;
    /* Members by host, then rank; host h has sorted[host_first[h], host_first[h + 1]). */
    uint32_t *sorted;
    uint32_t *host_first;
    /* The tree: the nodes of all hosts, by host, and how they are added up. */
    ls_leaf_range *nodes;
    uint32_t *node_counts, *node_firsts, *node_order;
    uint16_t *program;
    ls_tcp_nodes tree;
    uint8_t *stage;
    /* Input and output buffers of the local ranks, as this rank sees them. */
    const void **inputs;
    void **outs;
    /* This host's nodes in the current block. */
    const void **own;
    uint8_t *scratch;
    uint64_t scratch_bytes;
} hier;

/* hier_run.c: runs a call other than a send or receive. */
ls_status hier_run_collective(hier *h, ls_comm_op *op);

#endif

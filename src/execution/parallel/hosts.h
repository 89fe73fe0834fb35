// SPDX-License-Identifier: Apache-2.0
/*
 * Data parallelism across hosts: what is sent between hosts. For execution/parallel only.
 *
 * Each slice of a bucket has one owner among all ranks (slices.h). On every other host one rank,
 * its handler there, acts for it: the one with the owner's local number (modulo the ranks of that
 * host), so that network cards with equal numbers talk to each other.
 *
 *   transfer   from                     to                    contents
 *   reduce     handler                  owner                 the canonical nodes of the handler's host
 *                                                             over the slice, added up from its
 *                                                             local parts; the owner joins them
 *                                                             with the nodes of its own host, in
 *                                                             tree order
 *   spread     owner                    handlers              the slice (weights, or sums with ZeRO
 *                                                             stage 0), for their host's copy
 *   sums       owner                    handlers              the slice (sums), packed
 *   changes    owner                    handlers              changes of the slice (weights), packed;
 *                                                             added where they arrive
 *   shadow     owner                    handler on the buddy  the slice (sums)
 *   gather     owner                    handler on host 0     the slice (weights, moments)
 *   scatter    handler on host 0        owner                 the slice (weights, moments)
 *
 * The buddy of a host is the next host; the buddy of the last is the first. With shadows, the buddy
 * keeps what the owners keep, and keeps it current by making the same update from the same sums.
 * Spread then goes to the other hosts only.
 *
 * With compression (compressed.h) a reduce carries those nodes packed that are whole groups.
 *
 * Stages of a pipeline may be on different hosts. The nodes of a bucket come from the hosts that
 * have the stage with its layers; slices are owned by all ranks all the same.
 *
 * A lane is a rank on another host with which this rank exchanges a slice: out lanes lead to owners
 * that this rank handles, in lanes to the handlers of its own slices. Buckets travel in groups of
 * at least a megabyte, in the order in which the backward pass finishes them.
 *
 * Transfers run on a separate thread, one at a time, in the order in which they were posted. All
 * ranks must post the same transfers in the same order: each is a collective operation.
 */
#ifndef LS_EXECUTION_PARALLEL_HOSTS_H
#define LS_EXECUTION_PARALLEL_HOSTS_H

#include "base/compression.h"
#include "comm/transport/tree.h"
#include "comm/transport/wait.h"
#include "compute/queue.h"
#include "execution/parallel/mesh.h"
#include "execution/parallel/slices.h"
#include "lockstep/comm.h"

/* The leaves whose gradients of the layers of one stage are made on a host, and their canonical
 * nodes; none when the stage is elsewhere. Hosts have their leaves in order. */
typedef struct ls_host_leaves {
    ls_leaf_range leaves;
    uint32_t node_count;
    ls_leaf_range nodes[LS_TREE_NODES_MAX];
    /* With compression: the nodes that are whole groups, which travel packed; and the number of
     * nodes that there would be without it. */
    uint32_t first_packed, packed_count, dense_count;
} ls_host_leaves;

typedef struct ls_lane {
    uint32_t peer;  /* the rank at the other end */
    uint32_t owner; /* owner of the slices: the peer on an out lane, this rank on an in lane */
    uint32_t host;  /* host of the peer */
} ls_lane;

typedef struct ls_hosts ls_hosts;

typedef struct ls_hosts_options {
    const ls_layout *layout;
    ls_comm *comm; /* of all ranks, same numbers; borrowed */
    uint32_t leaves, ranks, rank, first_rank, local_ranks;
    const uint32_t *order; /* buckets in the order in which they become ready; copied */
    /* Leaves of a group that is compressed; 0: none. compression, sums: as in ls_hosts_compress,
     * keep at its largest. queue: for unpacking; borrowed. */
    uint32_t group;
    ls_compression compression, sums;
    ls_queue *queue;
    ls_mesh mesh;
    const uint32_t *stages; /* of each bucket, the stage that has its layers; NULL: 0. Borrowed */
    /* for fetch.h: spreads only, one bucket per group, and all groups share the memory of one */
    bool fetches;
    /* the buddy needs no spread */
    bool shadows;
} ls_hosts_options;

/* Collective over all ranks. Errors: LS_ERR_INVALID when the ranks of a host are not consecutive;
 * those of the communicator; LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_hosts_create(const ls_hosts_options *options, ls_hosts **hosts_out);
void ls_hosts_destroy(ls_hosts *hosts); /* NULL allowed */

uint32_t ls_hosts_count(const ls_hosts *hosts);
const ls_mesh_host *ls_hosts_table(const ls_hosts *hosts);
const ls_host_leaves *ls_hosts_leaves(const ls_hosts *hosts, uint32_t host, uint32_t stage);
uint32_t ls_hosts_self(const ls_hosts *hosts); /* number of this host */

uint32_t ls_hosts_out_lanes(const ls_hosts *hosts, const ls_lane **lanes_out);
uint32_t ls_hosts_in_lanes(const ls_hosts *hosts, const ls_lane **lanes_out);

/* The rank of this host that handles the slices of `owner`, a rank of another host; and whether
 * this host holds the shadow of those slices. */
uint32_t ls_hosts_handler(const ls_hosts *hosts, uint32_t owner);
bool ls_hosts_is_ward(const ls_hosts *hosts, uint32_t owner);

/* Whether this host holds the shadow of the slices of an out lane; whether any host needs a
 * spread. */
bool ls_hosts_shadows(const ls_hosts *hosts, uint32_t out_lane);
bool ls_hosts_spreads(const ls_hosts *hosts);

/* Nodes per slice of the bucket at position `at` in a reduce: those of the sending host. */
uint32_t ls_hosts_sent_nodes(const ls_hosts *hosts, uint32_t at);
uint32_t ls_hosts_received_nodes(const ls_hosts *hosts, uint32_t in_lane, uint32_t at);

/* Groups of positions in `order`: a group ends before position `past`, where the next one
 * begins. */
uint32_t ls_hosts_groups(const ls_hosts *hosts);
uint32_t ls_hosts_group_past(const ls_hosts *hosts, uint32_t group);

/* ---- transfers ---- */

/* Where the caller puts node `node` of the slice of the bucket at position `at` before a reduce,
 * and where a received node is after one. */
float *ls_hosts_sent(const ls_hosts *hosts, uint32_t out_lane, uint32_t at, uint32_t node);
/* Whether node `node` of this host travels packed. */
bool ls_hosts_is_packed(const ls_hosts *hosts, uint32_t node);
const float *ls_hosts_received(const ls_hosts *hosts, uint32_t in_lane, uint32_t at, uint32_t node);

/* Where the owner puts the packed sum of its slice before a transfer of sums. */
unsigned char *ls_hosts_packed_sum(const ls_hosts *hosts, uint32_t at);
/* How numbers are packed from now on: nodes, and sums or changes of weights. Nothing packed is in
 * transfer. */
void ls_hosts_compress(ls_hosts *hosts, ls_compression nodes, ls_compression sums);
/* Bytes of gradients, sums and weights that this rank has sent to other hosts so far: what it
 * counts, once the transfers that were posted are done. dense: without compression. ns: that these
 * transfers took, with what they waited for other ranks. */
typedef struct ls_hosts_sent_so_far {
    uint64_t bytes, dense, ns;
} ls_hosts_sent_so_far;
ls_hosts_sent_so_far ls_hosts_get_sent(const ls_hosts *hosts);

typedef enum ls_transfer {
    LS_TRANSFER_REDUCE,
    LS_TRANSFER_SPREAD,
    LS_TRANSFER_SUMS,
    LS_TRANSFER_CHANGES,
    LS_TRANSFER_SHADOW,
    LS_TRANSFER_GATHER,
    LS_TRANSFER_SCATTER,
    LS_TRANSFER_EXCHANGE, /* ls_hosts_post_exchange */
    LS_TRANSFER_COLLECT,  /* ls_hosts_post_collect */
    LS_TRANSFER_FROZEN,   /* ls_hosts_post_frozen */
    LS_TRANSFER_FLAT,     /* ls_hosts_post_flat */
} ls_transfer;

/* Posts a transfer of a group. flat: the buffer that it reads and writes, NULL for reduce. Never
 * waits. */
void ls_hosts_post(ls_hosts *hosts, ls_transfer transfer, uint32_t group, float *flat);

/* The number of transfers posted so far, and whether the first `count` of them are done. */
uint64_t ls_hosts_posted(const ls_hosts *hosts);
bool ls_hosts_is_done(const ls_hosts *hosts, uint64_t count);
/* Waits until they are. Errors: that of the first failed transfer. *aborted_out: the wait itself
 * ended early, by wait->abort, wait->look or its deadline; the caller must then set the error. */
LS_MUST_CHECK ls_status ls_hosts_await(ls_hosts *hosts, uint64_t count, const ls_wait *wait,
                                       bool *aborted_out);

/* Exchanges records between the first ranks of the hosts; only these call it. out[host] receives
 * the `bytes` that the first rank of each host passed in `in`. A transfer like the others; in and
 * out are borrowed until it is done. */
void ls_hosts_post_exchange(ls_hosts *hosts, const void *in, void *out, uint64_t bytes);

/* Which parts of an earlier cut a host kept the state of, and its number in this cut. */
typedef struct ls_state_source {
    uint32_t first_part, part_count; /* of `parts` */
    uint32_t host;                   /* of this cut */
} ls_state_source;
typedef struct ls_state_sources {
    uint32_t parts, count;
    const ls_state_source *source;
} ls_state_sources;

/* Sends host 0 the state of the earlier cut that it does not have itself, into the flats (NULL:
 * fewer than three). Only between the first ranks. Borrowed until done. */
void ls_hosts_post_collect(ls_hosts *hosts, const ls_state_sources *sources, float *const flats[3]);

/* Sends `count` floats from host 0 to all other hosts. Only between the first ranks. Borrowed until
 * done. */
void ls_hosts_post_frozen(ls_hosts *hosts, float *frozen, uint64_t count);

/* The same from one host to another. Only between the first ranks. */
void ls_hosts_post_flat(ls_hosts *hosts, float *flat, uint64_t count, uint32_t from, uint32_t to);

/* Ends the transfers in progress; returns when the thread touches no memory any more. Posted
 * transfers that are not done have failed, and so will all later ones. */
void ls_hosts_break(ls_hosts *hosts);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Data parallelism across hosts: what leaves a host, and what comes back. For execution/parallel alone.
 *
 * Each slice of a bucket has one owner among all ranks (slices.h). On every other host one rank, its handler there, stands in for it: the
 * one with the owner's local number (modulo the ranks of that host), so that network cards of equal number talk to each other.
 *
 *   reduce   handler: adds up the canonical nodes of its host over the slice, from its peers' memory     -> owner: joins them with its
 *            own host's leaves, in the order of the tree
 *   spread   owner: its slice (weights, or sums with zero stage 0)                                       -> handlers: into their host's copy
 *   shadow   owner: its slice (sums)                                                                     -> handler on the buddy host
 *   gather   owner: its slice (weights, moments)                                                         -> handler on host 0
 *   scatter  handler on host 0                                                                           -> owner
 *
 * The buddy of a host is the next one, of the last the first. With shadows it keeps what the owners keep, up to date by making the same
 * update from the same sums: what is spread goes to the other hosts alone.
 *
 * A lane is a rank of another host that this one exchanges a slice with: out lanes lead to owners that this rank handles for, in lanes to the
 * handlers of its own slices. Buckets travel in groups of at least a megabyte, in the order in which backward leaves them.
 *
 * Transfers run on a thread of their own, one after the other, in the order in which they were posted, which is the same on all ranks.
 */
#ifndef LS_EXECUTION_PARALLEL_HOSTS_H
#define LS_EXECUTION_PARALLEL_HOSTS_H

#include "execution/comm/wait.h"
#include "execution/parallel/slices.h"
#include "execution/parallel/tree.h"
#include "lockstep/comm.h"

typedef struct ls_host {
    uint32_t first_rank, rank_count;
    ls_leaf_range leaves;
    uint32_t node_count; /* canonical nodes of its leaves */
    ls_leaf_range nodes[LS_TREE_NODES_MAX];
} ls_host;

typedef struct ls_lane {
    uint32_t peer;   /* rank at the other end */
    uint32_t owner;  /* whose slices: peer on an out lane, this rank on an in lane */
    uint32_t host;   /* of the peer */
    uint32_t copies; /* nodes per slice in a reduce: of the host that sends */
} ls_lane;

typedef struct ls_hosts ls_hosts;

typedef struct ls_hosts_options {
    const ls_layout *layout;
    ls_comm *comm; /* of all ranks, same numbers; borrowed */
    uint32_t leaves, ranks, rank, first_rank, local_ranks;
    const uint32_t *order; /* buckets in the order in which they become ready; copied */
    bool fetches;          /* spreads only, one bucket a group: one group's memory for all */
    bool shadows;          /* the buddy needs no spread */
} ls_hosts_options;

/* Collective over all ranks. Errors: LS_ERR_INVALID when ranks of a host are not consecutive; those of the communicator; LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_hosts_create(const ls_hosts_options *options, ls_hosts **hosts_out);
void ls_hosts_destroy(ls_hosts *hosts); /* NULL allowed */

uint32_t ls_hosts_count(const ls_hosts *hosts);
const ls_host *ls_hosts_table(const ls_hosts *hosts);
uint32_t ls_hosts_self(const ls_hosts *hosts); /* number of this host */

uint32_t ls_hosts_out_lanes(const ls_hosts *hosts, const ls_lane **lanes_out);
uint32_t ls_hosts_in_lanes(const ls_hosts *hosts, const ls_lane **lanes_out);

/* Which rank of this host stands in for `owner`, a rank of another; and whether its slices have their shadow here. */
uint32_t ls_hosts_handler(const ls_hosts *hosts, uint32_t owner);
bool ls_hosts_is_ward(const ls_hosts *hosts, uint32_t owner);

/* Whether the slices of an out lane have their shadow on this host; whether any host needs a spread. */
bool ls_hosts_shadows(const ls_hosts *hosts, uint32_t out_lane);
bool ls_hosts_spreads(const ls_hosts *hosts);

/* Groups of positions in `order`: group g holds [first, past). */
uint32_t ls_hosts_groups(const ls_hosts *hosts);
uint32_t ls_hosts_group_past(const ls_hosts *hosts, uint32_t group);

/* ---- transfers ---- */

/* Where node `node` of the slice of the bucket at position `at` goes before a reduce, and where it came to behind one. */
float *ls_hosts_sent(const ls_hosts *hosts, uint32_t out_lane, uint32_t at, uint32_t node);
const float *ls_hosts_received(const ls_hosts *hosts, uint32_t in_lane, uint32_t at, uint32_t node);

typedef enum ls_transfer {
    LS_TRANSFER_REDUCE,
    LS_TRANSFER_SPREAD,
    LS_TRANSFER_SHADOW,
    LS_TRANSFER_GATHER,
    LS_TRANSFER_SCATTER,
    LS_TRANSFER_EXCHANGE, /* ls_hosts_post_exchange */
    LS_TRANSFER_COLLECT,  /* ls_hosts_post_collect */
    LS_TRANSFER_FROZEN,   /* ls_hosts_post_frozen */
} ls_transfer;

/* Posts a transfer of a group; flat: the buffer that spread, gather and scatter read and write, NULL for reduce. Never waits. */
void ls_hosts_post(ls_hosts *hosts, ls_transfer transfer, uint32_t group, float *flat);

/* Transfers posted so far, and whether the first `count` of them are done. */
uint64_t ls_hosts_posted(const ls_hosts *hosts);
bool ls_hosts_is_done(const ls_hosts *hosts, uint64_t count);
/* Waits for that. Errors: what the first transfer that failed failed with. *aborted_out: the wait itself ended early, by wait->abort or its
 * look; the error is then the caller's to name. */
LS_MUST_CHECK ls_status ls_hosts_await(ls_hosts *hosts, uint64_t count, const ls_wait *wait,
                                       bool *aborted_out);

/* Records, between the first ranks of the hosts, which alone call this: out[hosts] is what each host's first rank gave, `bytes` of each. A
 * transfer like the others; in and out are borrowed until it is done. */
void ls_hosts_post_exchange(ls_hosts *hosts, const void *in, void *out, uint64_t bytes);

/* What hosts of an earlier cut kept, by its parts, and who has it now. */
typedef struct ls_state_source {
    uint32_t first_part, part_count; /* of `parts` */
    uint32_t host;                   /* of this cut */
} ls_state_source;
typedef struct ls_state_sources {
    uint32_t parts, count;
    const ls_state_source *source;
} ls_state_sources;

/* What host 0 has not itself of the earlier cut comes there, into the three flats; likewise between the first ranks alone. Borrowed until done. */
void ls_hosts_post_collect(ls_hosts *hosts, const ls_state_sources *sources, float *const flats[3]);

/* `count` floats of host 0 come to all the others; likewise between the first ranks alone. Borrowed until done. */
void ls_hosts_post_frozen(ls_hosts *hosts, float *frozen, uint64_t count);

/* Ends what is under way: returns when the thread touches no memory any more. What was posted and is not done has failed, and so will
 * everything else that is posted. */
void ls_hosts_break(ls_hosts *hosts);

#endif

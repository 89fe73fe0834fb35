// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of transfers between hosts share.
 *
 *   hosts.c       stages, transfers and their thread
 *   hosts_cut.c   who exchanges how much with whom
 */
#ifndef LS_EXECUTION_PARALLEL_HOSTS_INTERNAL_H
#define LS_EXECUTION_PARALLEL_HOSTS_INTERNAL_H

#include "execution/parallel/hosts.h"

#include <pthread.h>

typedef struct ls_posting {
    ls_transfer transfer;
    uint32_t group;
    float *flat;
    const void *in; /* of an exchange */
    void *out;
    uint64_t bytes;
    const ls_state_sources *sources; /* of a collect */
    float *flats[3];
    uint32_t from, to; /* hosts of a flat */
} ls_posting;

/*
 * The lanes of one direction, and the staging memory through which their slices pass:
 *
 *   stage   | group 0: lane 0 | lane 1 | ... | group 1: lane 0 | lane 1 | ...
 *   lane    | bucket: node 0, node 1, ..., packed | next bucket of the group: node 0, ... |
 *
 * So what one lane sends in one group is contiguous, and one all-to-all moves a group. Groups do
 * not share memory (except with `fetches`), so a group can be filled while another travels.
 */
typedef struct ls_hosts_side {
    ls_lane *lanes;
    uint32_t count;
    float *stage;
    uint64_t stage_floats;
    uint64_t *at; /* [group * count + lane]: the first float in stage */
} ls_hosts_side;

struct ls_hosts {
    const ls_layout *layout;
    ls_comm *comm, *leaders; /* leaders: of the hosts' first ranks; NULL on others */
    uint32_t ranks, rank, self;
    uint32_t buddy, ward; /* hosts: the one with the shadow of this host, and the one it shadows */
    bool fetches, shadows;
    ls_mesh_host *table;
    uint32_t host_count;
    ls_host_leaves *leaves; /* [host * stage_count + stage] */
    uint32_t stage_count;
    uint32_t *order, *stage_at, bucket_count; /* by position: the bucket, the stage of its layers */
    uint32_t *group_past, group_count;
    uint32_t *group_of; /* by position */
    uint32_t group;     /* of leaves: as in the options */
    ls_compression compression, sums;
    ls_queue *queue;
    float *packed_sums; /* of own slices, by position */
    uint64_t *packed_at;
    _Atomic uint64_t sent_bytes, dense_bytes, sent_ns;
    ls_hosts_side out, in;

    /*
     * The thread, and a queue with one writer and one reader. The caller fills jobs[n % job_room]
     * and then posts n to `posted`; the thread runs the job and then posts n to `done`. Posting a
     * word orders everything stored before it, so neither side needs a lock: the thread reads a job
     * only after `posted` has reached it, and the caller reuses its place only after `done` has.
     */
    pthread_t thread;
    bool has_thread;
    ls_word posted, done;
    uint64_t posted_count;
    _Atomic bool quits;
    ls_posting *jobs;
    uint32_t job_room;
    uint64_t *counts; /* four per rank: what ls_comm_blocks points to */
    /* of the first failed transfer; written before `done` reaches it, so every waiter may read
     * it */
    ls_status status;
    char text[1024];
};

/* ---- hosts_cut.c ---- */

/* In this order: the table of hosts (collective), the nodes that each sends, groups of buckets,
 * lanes. Errors: those of ls_hosts_create. */
LS_MUST_CHECK ls_status ls_hosts_find(ls_hosts *h, const ls_hosts_options *o);
LS_MUST_CHECK ls_status ls_hosts_find_leaves(ls_hosts *h, const ls_hosts_options *o);
void ls_hosts_cut_groups(ls_hosts *h);
LS_MUST_CHECK ls_status ls_hosts_find_lanes(ls_hosts *h);

uint32_t ls_hosts_host_of(const ls_hosts *h, uint32_t rank);
/* The rank of host `host` that handles the slices of `owner`; on the owner's own host the owner. */
uint32_t ls_hosts_handler_on(const ls_hosts *h, uint32_t host, uint32_t owner);
/* The first position of a group. */
uint32_t ls_hosts_group_first(const ls_hosts *h, uint32_t group);
/* Where the nodes come from that a lane carries in a reduce. */
const ls_host_leaves *ls_hosts_leaves_of(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane,
                                         uint32_t at);

/* Sizes, in floats: what `owner` owns in a group, and the same packed; its packed slice of one
 * bucket; the first `count` nodes of that; and what a lane carries in a reduce of the group, and of
 * its buckets before position `at`. */
uint64_t ls_hosts_group_floats(const ls_hosts *h, uint32_t owner, uint32_t group);
uint64_t ls_hosts_sums_floats(const ls_hosts *h, uint32_t owner, uint32_t group);
uint64_t ls_hosts_packed_floats(const ls_hosts *h, const ls_compression *form, uint32_t owner, uint32_t at);
uint64_t ls_hosts_nodes_floats(const ls_hosts *h, const ls_host_leaves *from, uint32_t owner, uint32_t at,
                               uint32_t count);
uint64_t ls_hosts_reduced_floats(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, uint32_t group);
uint64_t ls_hosts_reduced_before(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, uint32_t group,
                                 uint32_t at);

#endif

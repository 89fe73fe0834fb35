// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/hosts_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP_FLOATS = 1 << 18 };

/* ---- hosts and ranks ---- */

uint32_t ls_hosts_host_of(const ls_hosts *h, uint32_t rank)
{
    uint32_t i = 0;
    while (i + 1 < h->host_count && h->table[i + 1].first_rank <= rank) {
        i++;
    }
    return i;
}

/* The rank of host `host` that handles the slices of `owner`; on the owner's own host the owner. */
uint32_t ls_hosts_handler_on(const ls_hosts *h, uint32_t host, uint32_t owner)
{
    const uint32_t home = ls_hosts_host_of(h, owner);
    const uint32_t local = owner - h->table[home].first_rank;
    return h->table[host].first_rank + local % h->table[host].rank_count;
}

/* Every rank gathers the first rank of everybody's host, and derives the same table of hosts,
 * leaves and canonical nodes from it. From here on no rank needs to ask another who owns or handles
 * what. */
ls_status ls_hosts_find(ls_hosts *h, const ls_hosts_options *o)
{
    int32_t *firsts = calloc(o->ranks, sizeof *firsts);
    h->table = calloc(o->ranks, sizeof *h->table);
    if (!firsts || !h->table) {
        free(firsts);
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u ranks", o->ranks);
    }
    const int32_t first = (int32_t)o->first_rank;
    ls_status status = ls_comm_all_gather(o->comm, &first, firsts, 1, LS_I32, NULL);
    for (uint32_t r = 0; r < o->ranks && status == LS_OK; r++) {
        const bool opens = firsts[r] == (int32_t)r;
        if (!opens && (r == 0 || firsts[r] != firsts[r - 1])) {
            status =
                ls_fail(LS_ERR_INVALID,
                        "rank %u reports that its host begins at rank %d, but the ranks of a host must be "
                        "consecutive",
                        r, firsts[r]);
            break;
        }
        h->host_count += opens;
        ls_mesh_host *host = &h->table[h->host_count - 1];
        host->first_rank = (uint32_t)firsts[r];
        host->rank_count++;
    }
    free(firsts);
    LS_TRY(status);
    h->self = ls_hosts_host_of(h, h->rank);
    h->buddy = (h->self + 1) % h->host_count;
    h->ward = (h->self + h->host_count - 1) % h->host_count;
    LS_ASSERT(h->table[h->self].rank_count == o->local_ranks);
    return LS_OK;
}

static void add_cover(const ls_hosts_options *o, ls_host_leaves *l, uint32_t first, uint32_t past)
{
    if (first < past) {
        ls_leaf_range nodes[LS_TREE_NODES_MAX];
        const uint32_t count = ls_tree_cover(o->leaves, (ls_leaf_range){first, past - first}, nodes);
        LS_ASSERT(l->node_count + count <= LS_TREE_NODES_MAX);
        memcpy(l->nodes + l->node_count, nodes, count * sizeof *nodes);
        l->node_count += count;
    }
}

/* The canonical nodes of a host; with groups, none is larger than a group. */
static void cover(const ls_hosts_options *o, ls_host_leaves *l)
{
    const uint32_t past = l->leaves.first + l->leaves.count;
    ls_leaf_range nodes[LS_TREE_NODES_MAX];
    l->dense_count = l->leaves.count > 0 ? ls_tree_cover(o->leaves, l->leaves, nodes) : 0;
    for (uint32_t at = l->leaves.first; at < past;) {
        const uint32_t group_past = o->group > 0 ? (at / o->group + 1) * o->group : past;
        const uint32_t to = group_past < past ? group_past : past;
        if (o->group > 0 && to - at == o->group) {
            l->first_packed = l->packed_count == 0 ? l->node_count : l->first_packed;
            l->packed_count++;
        }
        add_cover(o, l, at, to);
        at = to;
    }
}

/* Which nodes come from which host. */
ls_status ls_hosts_find_leaves(ls_hosts *h, const ls_hosts_options *o)
{
    h->stage_count = ls_mesh_crew(o->mesh) / ls_mesh_stage_ranks(o->mesh);
    h->leaves = calloc((size_t)h->host_count * h->stage_count, sizeof *h->leaves);
    if (!h->leaves) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of the leaves of %u hosts", h->host_count);
    }
    for (uint32_t host = 0; host < h->host_count; host++) {
        for (uint32_t stage = 0; stage < h->stage_count; stage++) {
            ls_host_leaves *l = &h->leaves[host * h->stage_count + stage];
            l->leaves = ls_mesh_leaves_of_host(o->mesh, o->leaves, o->ranks, h->table[host], stage);
            cover(o, l);
        }
    }
    for (uint32_t at = 0; at < h->bucket_count; at++) {
        h->stage_at[at] = o->stages && h->stage_count > 1 ? o->stages[h->order[at]] : 0;
        LS_ASSERT(h->stage_at[at] < h->stage_count);
    }
    return LS_OK;
}

/* ---- lanes, groups and stages ---- */

static uint64_t slice_floats(const ls_hosts *h, uint32_t owner, uint32_t at)
{
    return (uint64_t)ls_slice_of(h->layout, h->order[at], h->ranks, owner).count;
}

uint32_t ls_hosts_group_first(const ls_hosts *h, uint32_t group)
{
    return group > 0 ? h->group_past[group - 1] : 0;
}

/* Floats that `owner` owns in the group. */
uint64_t ls_hosts_group_floats(const ls_hosts *h, uint32_t owner, uint32_t group)
{
    uint64_t floats = 0;
    for (uint32_t at = ls_hosts_group_first(h, group); at < h->group_past[group]; at++) {
        floats += slice_floats(h, owner, at);
    }
    return floats;
}

/* Where the nodes come from that a lane carries in a reduce. */
const ls_host_leaves *ls_hosts_leaves_of(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane,
                                         uint32_t at)
{
    const uint32_t from = s == &h->out ? h->self : s->lanes[lane].host;
    return &h->leaves[from * h->stage_count + h->stage_at[at]];
}

/* The size of the packed slice of `owner`, in floats. */
uint64_t ls_hosts_packed_floats(const ls_hosts *h, const ls_compression *form, uint32_t owner, uint32_t at)
{
    return ls_compressed_bytes(form, slice_floats(h, owner, at)) / sizeof(float);
}

/* Floats that `owner` sends in a transfer of the sums of the group. */
uint64_t ls_hosts_sums_floats(const ls_hosts *h, uint32_t owner, uint32_t group)
{
    uint64_t floats = 0;
    for (uint32_t at = ls_hosts_group_first(h, group); at < h->group_past[group]; at++) {
        floats += ls_hosts_packed_floats(h, &h->sums, owner, at);
    }
    return floats;
}

/* Floats of the first `count` nodes of the slice of `owner`. */
uint64_t ls_hosts_nodes_floats(const ls_hosts *h, const ls_host_leaves *from, uint32_t owner, uint32_t at,
                               uint32_t count)
{
    const uint32_t before = from->first_packed < count ? from->first_packed : count;
    const uint32_t packed = count - before < from->packed_count ? count - before : from->packed_count;
    return (count - packed) * slice_floats(h, owner, at) +
           packed * ls_hosts_packed_floats(h, &h->compression, owner, at);
}

/* Floats that a lane carries in the reduce of the group, in the buckets before position `at`. */
uint64_t ls_hosts_reduced_before(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, uint32_t group,
                                 uint32_t at)
{
    uint64_t floats = 0;
    for (uint32_t i = ls_hosts_group_first(h, group); i < at; i++) {
        const ls_host_leaves *from = ls_hosts_leaves_of(h, s, lane, i);
        floats += ls_hosts_nodes_floats(h, from, s->lanes[lane].owner, i, from->node_count);
    }
    return floats;
}

uint64_t ls_hosts_reduced_floats(const ls_hosts *h, const ls_hosts_side *s, uint32_t lane, uint32_t group)
{
    return ls_hosts_reduced_before(h, s, lane, group, h->group_past[group]);
}

/* One in lane per other host, because each of them has one handler for this rank's slices. One out
 * lane per rank of another host that this rank handles; there may be none, or several if the other
 * host has more ranks. */
ls_status ls_hosts_find_lanes(ls_hosts *h)
{
    h->out.lanes = calloc(h->ranks, sizeof *h->out.lanes);
    h->in.lanes = calloc(h->host_count, sizeof *h->in.lanes);
    if (!h->out.lanes || !h->in.lanes) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u ranks", h->ranks);
    }
    for (uint32_t host = 0; host < h->host_count; host++) {
        const ls_mesh_host *other = &h->table[host];
        if (host == h->self) {
            continue;
        }
        h->in.lanes[h->in.count++] =
            (ls_lane){.peer = ls_hosts_handler_on(h, host, h->rank), .owner = h->rank, .host = host};
        for (uint32_t r = other->first_rank; r < other->first_rank + other->rank_count; r++) {
            if (ls_hosts_handler_on(h, h->self, r) == h->rank) {
                h->out.lanes[h->out.count++] = (ls_lane){.peer = r, .owner = r, .host = host};
            }
        }
    }
    return LS_OK;
}

/* Joins buckets into groups of at least a megabyte, because small transfers waste the network; the
 * remainder joins the last group. All ranks cut the same groups, since they know the same
 * layout. */
void ls_hosts_cut_groups(ls_hosts *h)
{
    int64_t floats = 0;
    for (uint32_t at = 0; at < h->bucket_count; at++) {
        floats += h->layout->buckets[h->order[at]].count;
        h->group_of[at] = h->group_count;
        if (floats >= GROUP_FLOATS || h->fetches) {
            h->group_past[h->group_count++] = at + 1;
            floats = 0;
        }
    }
    if (floats > 0 && h->group_count > 0) {
        for (uint32_t at = h->group_past[h->group_count - 1]; at < h->bucket_count; at++) {
            h->group_of[at] = h->group_count - 1;
        }
        h->group_past[h->group_count - 1] = h->bucket_count;
    } else if (floats > 0) {
        h->group_past[h->group_count++] = h->bucket_count;
    }
}

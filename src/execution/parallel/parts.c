// SPDX-License-Identifier: Apache-2.0
/* Which parts this process runs, what each of them updates, and where its records are. */
#include "execution/parallel/data_parallel_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

static void add_update(const ls_data_parallel *p, ls_own_part *own, uint32_t at, uint32_t owner)
{
    const uint32_t bucket = p->order[at].bucket;
    const ls_slice slice = ls_slice_of(p->layout, bucket, p->parts, owner);
    if (slice.count > 0) {
        own->update_at[own->part.slice_count] = at;
        own->updates[own->part.slice_count++] =
            (ls_owned_slice){.offset = slice.offset, .count = slice.count, .bucket = bucket};
    }
}

/* With several hosts: whether the part also updates the slices of `owner`, a part of another host.
 * It does for the owners it handles if every host updates everything, or if their shadow is
 * here. */
static bool updates_for(const ls_data_parallel *p, const ls_own_part *own, uint32_t owner)
{
    const bool is_here = owner - p->view.first_part < p->view.local_parts;
    return p->hosts && ls_tells_sums(p) && !is_here &&
           ls_hosts_handler(p->hosts, owner) == own->part.number &&
           (p->zero == 0 || ls_hosts_is_ward(p->hosts, owner));
}

/* Lists the slices that the part updates, in the order of buckets: its own and those of other
 * hosts. */
static ls_status make_updates(const ls_data_parallel *p, ls_own_part *own)
{
    uint32_t others = 0;
    for (uint32_t owner = 0; owner < p->parts; owner++) {
        others += updates_for(p, own, owner);
    }
    const size_t room = (size_t)p->bucket_count * (others + 1);
    own->slices = calloc(p->bucket_count, sizeof *own->slices);
    own->updates = calloc(room, sizeof *own->updates);
    own->update_at = calloc(room, sizeof *own->update_at);
    if (!own->slices || !own->updates || !own->update_at) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %zu slices of the parameters", room);
    }
    for (uint32_t at = 0; at < p->bucket_count; at++) {
        own->slices[p->order[at].bucket] =
            ls_slice_of(p->layout, p->order[at].bucket, p->parts, own->part.number);
        add_update(p, own, at, own->part.number);
        for (uint32_t owner = 0; owner < p->parts && others > 0; owner++) {
            if (updates_for(p, own, owner)) {
                add_update(p, own, at, owner);
            }
        }
    }
    own->part.slices = own->updates;
    return LS_OK;
}

/* Where the share of member `self` of `members` begins in a range of `count` floats. */
static int64_t share_at(int64_t count, uint32_t self, uint32_t members)
{
    return self < members ? count * self / members / LS_BUCKET_PAD * LS_BUCKET_PAD : count;
}

static void add_merge(ls_own_part *own, ls_owned_slice range, uint32_t self, uint32_t members)
{
    const int64_t first = share_at(range.count, self, members);
    const int64_t count = share_at(range.count, self + 1, members) - first;
    if (count > 0) {
        own->merges[own->part.merge_count++] =
            (ls_owned_slice){.offset = range.offset + first, .count = count, .bucket = range.bucket};
    }
}

/* What this rank adds up when its crew merges nodes: its share, among the members of the crew on
 * this host, of the gradients that are made here. */
static ls_status make_merges(const ls_data_parallel *p, ls_own_part *own, uint32_t leader)
{
    const uint32_t crew = ls_mesh_crew(p->mesh), in_stage = ls_mesh_stage_ranks(p->mesh);
    const uint32_t first = (p->view.first_part + leader) % crew;
    const uint32_t left = p->view.local_parts - leader;
    const uint32_t members = crew - first < left ? crew - first : left;
    own->part.has_losses = first + members == crew;
    own->merges = calloc(p->bucket_count, sizeof *own->merges);
    own->part.merges = own->merges;
    if (!own->merges) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u buckets", p->bucket_count);
    }
    if (members == crew) {
        add_merge(own, (ls_owned_slice){.count = p->layout->float_count}, own->local - leader, members);
        return LS_OK;
    }
    for (uint32_t at = p->bucket_count; at-- > 0;) {
        const ls_bucket *bucket = &p->layout->buckets[p->order[at].bucket];
        const uint32_t stage = p->order[at].stage;
        if (stage >= first / in_stage && stage < (first + members) / in_stage) {
            add_merge(own,
                      (ls_owned_slice){
                          .offset = bucket->offset, .count = bucket->count, .bucket = p->order[at].bucket},
                      own->local - leader, members);
        }
    }
    return LS_OK;
}

static ls_status make_part(ls_data_parallel *p, ls_own_part *own, uint32_t local)
{
    ls_exchange *exchange = p->view.exchange;
    const uint32_t crew = ls_mesh_crew(p->mesh);
    const uint32_t leader = ls_mesh_local_leader(p->mesh, p->view.first_part, local);
    own->local = local;
    own->slot = &exchange->slots[local];
    own->part.number = p->view.first_part + local;
    own->part.leads = leader == local;
    own->part.leaves = ls_mesh_leaves(p->mesh, p->leaf_count, p->parts, own->part.number);
    ls_leaf_range nodes[LS_TREE_NODES_MAX];
    own->node_count = ls_tree_handover(p->leaf_count, p->group, own->part.leaves,
                                       p->mesh.expert > 0 ? p->mesh.expert : 1, nodes);
    own->part.gradient_count =
        ls_data_parallel_buffers(p->leaf_count, p->group, p->parts / crew, own->part.number / crew) +
        p->more_pieces;
    memcpy(own->part.gradients, p->buffers + (size_t)local * LS_GRADIENT_BUFFERS_MAX,
           sizeof own->part.gradients);
    own->part.stack = &exchange->slots[leader].stack;
    if (p->room > 0) {
        own->part.undo.done = ls_exchange_block_words(exchange, p->room, p->block_count);
        own->part.undo.undo = ls_exchange_undo(exchange, p->room, local);
    }
    if (p->marks_of) {
        own->marks = p->marks_of(p->view.context, local);
    }
    LS_TRY(make_merges(p, own, leader));
    return make_updates(p, own);
}

ls_status ls_parts_make(ls_data_parallel *p)
{
    uint32_t count = 0;
    for (uint32_t local = 0; local < p->view.local_parts; local++) {
        count += p->holders[local] == p->view.rank;
    }
    LS_ASSERT(count == 1 || (count > 1 && p->can_resume && (!p->crew_room || p->is_broken)));
    p->own = calloc(count, sizeof *p->own);
    p->active = calloc(count, sizeof *p->active);
    if (!p->own || !p->active) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the %u shares into which a step is divided",
                       count);
    }
    for (uint32_t local = 0; local < p->view.local_parts; local++) {
        if (p->holders[local] == p->view.rank) {
            LS_TRY(make_part(p, &p->own[p->own_count++], local));
        }
    }
    p->view.local = p->own->local;
    p->target = p->has_sums ? p->target : p->own->part.gradients[0];
    return LS_OK;
}

void ls_parts_release(ls_data_parallel *p)
{
    for (uint32_t i = 0; i < p->own_count; i++) {
        free(p->own[i].slices);
        free(p->own[i].merges);
        free(p->own[i].updates);
        free(p->own[i].update_at);
    }
    free(p->own);
    free(p->active);
    p->own = NULL;
    p->active = NULL;
    p->own_count = p->active_count = 0;
}

ls_status ls_data_parallel_assign(ls_data_parallel *p, const uint16_t *holders, uint64_t team_epoch)
{
    p->team_epoch = team_epoch;
    LS_ASSERT((!p->hosts || p->is_broken) && p->can_resume);
    ls_parts_release(p);
    memcpy(p->holders, holders, p->view.local_parts * sizeof *holders);
    return ls_parts_make(p);
}

uint32_t ls_data_parallel_held(const ls_data_parallel *p)
{
    return p->own_count;
}

const ls_part *ls_data_parallel_part(const ls_data_parallel *p, uint32_t index)
{
    LS_DCHECK(index < p->own_count);
    return &p->own[index].part;
}

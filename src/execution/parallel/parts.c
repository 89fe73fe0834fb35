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

static ls_status make_part(ls_data_parallel *p, ls_own_part *own, uint32_t local)
{
    ls_exchange *exchange = p->view.exchange;
    const uint32_t crew = ls_mesh_crew(p->mesh);
    own->local = local;
    own->slot = &exchange->slots[local];
    own->part.number = p->view.first_part + local;
    own->part.leads = ls_mesh_leader(p->mesh, local) == local;
    own->part.leaves = ls_mesh_leaves(p->mesh, p->leaf_count, p->parts, own->part.number);
    own->part.gradient_count =
        ls_data_parallel_buffers(p->leaf_count, p->parts / crew, own->part.number / crew) + p->more_pieces;
    memcpy(own->part.gradients, p->buffers + (size_t)local * LS_GRADIENT_BUFFERS_MAX,
           sizeof own->part.gradients);
    own->part.stack = &exchange->slots[ls_mesh_leader(p->mesh, local)].stack;
    if (p->room > 0) {
        own->part.undo.done = ls_exchange_block_words(exchange, p->room, p->block_count);
        own->part.undo.undo = ls_exchange_undo(exchange, p->room, local);
    }
    if (p->marks_of) {
        own->marks = p->marks_of(p->view.context, local);
    }
    return make_updates(p, own);
}

ls_status ls_parts_make(ls_data_parallel *p)
{
    uint32_t count = 0;
    for (uint32_t local = 0; local < p->view.local_parts; local++) {
        count += p->holders[local] == p->view.rank;
    }
    LS_ASSERT(count == 1 || (count > 1 && p->can_resume && !p->crew_room));
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

// SPDX-License-Identifier: Apache-2.0
/* Opening, splitting and closing of the transport for several hosts. See comm/hier/hier.h. */
#include "comm/hier/hier.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_transport_calls hier_calls;

/* ---- members and hosts ---- */

static void sort_hosts(hier *h)
{
    const uint32_t size = h->base.size;
    uint32_t at = 0;
    for (uint32_t i = 0; i < size; i++) {
        h->host_of[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (h->host_of[i] != UINT32_MAX) {
            continue;
        }
        const uint32_t first = at;
        h->host_first[h->host_count] = first;
        for (uint32_t k = i; k < size; k++) {
            if (h->members[k].host == h->members[i].host) {
                h->host_of[k] = h->host_count;
                h->local_of[k] = at - first;
                h->sorted[at++] = k;
            }
        }
        h->rail_count = h->host_count == 0 || at - first < h->rail_count ? at - first : h->rail_count;
        h->host_first[++h->host_count] = at;
    }
    h->self_host = h->host_of[h->base.rank];
    h->local_rank = h->local_of[h->base.rank];
    h->local_size = h->host_first[h->self_host + 1] - h->host_first[h->self_host];
}

/* Writes the canonical nodes of a host's members: those of each run of consecutive ranks. Returns
 * their number. */
static uint32_t cover_host(const hier *h, uint32_t host, ls_leaf_range *nodes)
{
    uint32_t count = 0;
    const uint32_t end = h->host_first[host + 1];
    for (uint32_t at = h->host_first[host]; at < end;) {
        ls_leaf_range run = {.first = h->sorted[at], .count = 0};
        while (at < end && h->sorted[at] == run.first + run.count) {
            run.count++, at++;
        }
        ls_leaf_range cover[LS_TREE_NODES_MAX];
        const uint32_t covered = ls_tree_cover(h->base.size, run, cover);
        memcpy(nodes + count, cover, covered * sizeof *cover);
        count += covered;
    }
    return count;
}

/* Lists the nodes of all hosts, and plans how they are added up. */
static void plan_tree(hier *h)
{
    uint32_t count = 0;
    for (uint32_t host = 0; host < h->host_count; host++) {
        h->node_firsts[host] = count;
        h->node_counts[host] = cover_host(h, host, h->nodes + count);
        count += h->node_counts[host];
    }
    ls_leaf_range in_order[LS_TREE_INPUTS_MAX];
    uint32_t at[LS_TREE_INPUTS_MAX] = {0}; /* 1 + the node that begins at a leaf; 0: none */
    for (uint32_t i = 0; i < count; i++) {
        at[h->nodes[i].first] = i + 1;
    }
    for (uint32_t leaf = 0, n = 0; leaf < h->base.size; leaf++) {
        if (at[leaf] > 0) {
            h->node_order[n] = at[leaf] - 1;
            in_order[n++] = h->nodes[at[leaf] - 1];
        }
    }
    uint32_t depth = 0;
    const uint32_t length = ls_tree_program(h->base.size, in_order, count, h->program, &depth);
    h->tree = (ls_tcp_nodes){.leaves = h->base.size,
                             .count = count,
                             .counts = h->node_counts,
                             .firsts = h->node_firsts,
                             .sorted = h->node_order,
                             .program = h->program,
                             .program_length = length,
                             .depth = depth,
                             .own = h->own};
}

/* ---- calls ---- */

static ls_status run_pair(hier *h, ls_comm_op *op)
{
    if (h->host_of[op->peer] != h->self_host) {
        return h->world->calls->run(h->world, op);
    }
    ls_comm_op local = *op;
    local.peer = h->local_of[op->peer];
    const ls_status status = h->local->transport.calls->run(&h->local->transport, &local);
    op->wait_ns = local.wait_ns;
    return status;
}

/* Aborts the calls of this host and of all others. Shared memory and the mesh each keep their first
 * reason. */
static void hier_abort(ls_transport *transport, ls_status status, const char *reason)
{
    hier *h = (hier *)transport;
    h->world->calls->abort(h->world, status, reason);
    if (h->local) {
        h->local->transport.calls->abort(&h->local->transport, status, reason);
    }
}

static ls_status hier_run(ls_transport *transport, ls_comm_op *op)
{
    hier *h = (hier *)transport;
    ls_status status;
    op->wait_ns = 0;
    op->last_rank = UINT32_MAX;
    h->has_met = false;
    if (op->kind == LS_COMM_SEND || op->kind == LS_COMM_RECEIVE) {
        status = run_pair(h, op);
    } else {
        if (h->local) {
            shm_claim(h->local, op);
        }
        status = hier_run_collective(h, op);
        if (h->local && status == LS_OK) {
            atomic_store_explicit(&h->local->places[h->local_rank].is_inside, 0, memory_order_release);
        }
    }
    if (status != LS_OK) {
        char reason[SHM_TEXT_BYTES];
        snprintf(reason, sizeof reason, "%s", ls_error_text());
        hier_abort(transport, status, reason);
        return ls_fail(status, "%s", reason);
    }
    return LS_OK;
}

static ls_status hier_alloc(ls_transport *transport, ls_comm_op *op)
{
    hier *h = (hier *)transport;
    if (h->local) {
        return h->local->transport.calls->alloc(&h->local->transport, op);
    }
    const uint64_t bytes = (op->count + HIER_LINE - 1) / HIER_LINE * HIER_LINE;
    op->out = aligned_alloc(HIER_LINE, bytes > 0 ? bytes : HIER_LINE);
    if (!op->out) {
        return ls_fail(LS_ERR_MEMORY, "can't allocate %llu bytes: not enough memory",
                       (unsigned long long)op->count);
    }
    memset(op->out, 0, bytes);
    return LS_OK;
}

static ls_status hier_release(ls_transport *transport, ls_comm_op *op)
{
    hier *h = (hier *)transport;
    if (h->local) {
        return h->local->transport.calls->release(&h->local->transport, op);
    }
    free((void *)(uintptr_t)op->in);
    return LS_OK;
}

static void hier_stats(const ls_transport *transport, ls_comm_stats *stats)
{
    const hier *h = (const hier *)transport;
    h->world->calls->stats(h->world, stats);
    if (h->local) {
        h->local->transport.calls->stats(&h->local->transport, stats);
    }
}

static void hier_destroy(ls_transport *transport)
{
    hier *h = (hier *)transport;
    if (h->rail) {
        h->rail->calls->destroy(h->rail);
    }
    if (h->local) {
        h->local->transport.calls->destroy(&h->local->transport); /* frees the stage too */
    } else {
        free(h->stage);
    }
    if (h->world) {
        h->world->calls->destroy(h->world);
    }
    free(h->members);
    free(h->local_members);
    free(h->host_of);
    free(h->local_of);
    free(h->sorted);
    free(h->host_first);
    free(h->nodes);
    free(h->node_counts);
    free(h->node_firsts);
    free(h->node_order);
    free(h->program);
    free(h->inputs);
    free(h->outs);
    free(h->own);
    free(h->scratch);
    free(h);
}

/* ---- opening and splitting ---- */

/* A transport with its tables but without its parts. NULL: no memory. */
static hier *hier_create(const ls_comm_member *members, uint32_t rank, uint32_t size)
{
    hier *h = calloc(1, sizeof *h);
    if (!h) {
        return NULL;
    }
    const uint32_t pointers = size > LS_TREE_NODES_MAX ? size : LS_TREE_NODES_MAX;
    *h = (hier){.base = {.calls = &hier_calls, .members = members, .rank = rank, .size = size},
                .members = calloc(size, sizeof *h->members),
                .local_members = calloc(size, sizeof *h->local_members),
                .host_of = calloc(size, sizeof *h->host_of),
                .local_of = calloc(size, sizeof *h->local_of),
                .sorted = calloc(size, sizeof *h->sorted),
                .host_first = calloc(size + 1, sizeof *h->host_first),
                .nodes = calloc(size + LS_TREE_NODES_MAX, sizeof *h->nodes),
                .node_counts = calloc(size, sizeof *h->node_counts),
                .node_firsts = calloc(size, sizeof *h->node_firsts),
                .node_order = calloc(size, sizeof *h->node_order),
                .program = calloc(LS_TREE_PROGRAM_MAX, sizeof *h->program),
                .inputs = calloc(pointers, sizeof *h->inputs),
                .outs = calloc(pointers, sizeof *h->outs),
                .own = calloc(pointers, sizeof *h->own)};
    if (!h->members || !h->local_members || !h->host_of || !h->local_of || !h->sorted || !h->host_first ||
        !h->nodes || !h->node_counts || !h->node_firsts || !h->node_order || !h->program || !h->inputs ||
        !h->outs || !h->own) {
        hier_destroy(&h->base);
        return NULL;
    }
    memcpy(h->members, members, size * sizeof *members);
    sort_hosts(h);
    plan_tree(h);
    for (uint32_t i = 0; i < h->local_size; i++) {
        h->local_members[i] = h->members[h->sorted[h->host_first[h->self_host] + i]];
    }
    return h;
}

static ls_status no_memory(uint32_t size)
{
    return ls_fail(LS_ERR_MEMORY, "not enough memory for a group of %u ranks on several hosts", size);
}

/* Opens the rail of this rank and the stage, once `world` and `local` are open. */
static ls_status finish_opening(hier *h, uint32_t group_id, uint64_t deadline_ns)
{
    uint32_t members[LS_COMM_SIZE_MAX];
    if (h->local_rank < h->rail_count) {
        const uint32_t names[2] = {group_id, h->local_rank};
        for (uint32_t i = 0; i < h->host_count; i++) {
            members[i] = h->sorted[h->host_first[i] + h->local_rank];
        }
        const ls_comm_subgroup rail = {.members = members,
                                       .count = h->host_count,
                                       .self = h->self_host,
                                       .id = (uint32_t)ls_xxh3(names, sizeof names, 1),
                                       .deadline_ns = deadline_ns};
        LS_TRY(h->world->calls->split(h->world, &rail, &h->rail));
    }
    if (!h->local) {
        h->stage = aligned_alloc(4096, HIER_STAGE_BYTES);
        return h->stage ? LS_OK : no_memory(h->base.size);
    }
    ls_comm_op op = {.kind = LS_COMM_ALLOC,
                     .dtype = LS_U8,
                     .peer = UINT32_MAX,
                     .count = HIER_STAGE_BYTES,
                     .site = {.file = "ls_comm_open"},
                     .deadline_ns = deadline_ns};
    op.fingerprint = ls_comm_fingerprint(&op);
    LS_TRY(h->local->transport.calls->alloc(&h->local->transport, &op));
    h->stage = op.out;
    return LS_OK;
}

static ls_status open_local(hier *h, const ls_transport_setup *setup)
{
    ls_transport *local = NULL;
    ls_transport_setup inside = *setup;
    if (h->local_size == 1) {
        return LS_OK;
    }
    inside.members = h->local_members;
    inside.rank = h->local_rank;
    inside.size = h->local_size;
    LS_TRY(ls_transport_open_shm(&inside, &local));
    h->local = (ls_shm *)local;
    return LS_OK;
}

ls_status ls_transport_open_hier(const ls_transport_setup *setup, ls_transport **transport_out)
{
    const uint64_t deadline_ns = ls_clock_monotonic_ns() + (uint64_t)(1e9 * ls_tcp_timeout_s(setup));
    hier *h = hier_create(setup->members, setup->rank, setup->size);
    if (!h) {
        return no_memory(setup->size);
    }
    ls_status status = LS_OK;
    LS_TRY_GOTO(status, ls_transport_open_tcp(setup, &h->world), fail);
    LS_TRY_GOTO(status, open_local(h, setup), fail);
    LS_TRY_GOTO(status, finish_opening(h, setup->group_id, deadline_ns), fail);
    *transport_out = &h->base;
    return LS_OK;
fail:
    hier_destroy(&h->base);
    return status;
}

/* Opens the new group's `local` from the parent's. */
static ls_status split_local(hier *parent, hier *group, const ls_comm_subgroup *wanted)
{
    uint32_t locals[LS_COMM_SIZE_MAX];
    ls_transport *local = NULL;
    if (group->local_size == 1) {
        return LS_OK;
    }
    for (uint32_t i = 0; i < group->local_size; i++) {
        locals[i] = parent->local_of[wanted->members[group->sorted[group->host_first[group->self_host] + i]]];
    }
    ls_comm_subgroup here = *wanted;
    here.members = locals;
    here.count = group->local_size;
    here.self = group->local_rank;
    LS_TRY(parent->local->transport.calls->split(&parent->local->transport, &here, &local));
    local->members = group->local_members;
    group->local = (ls_shm *)local;
    return LS_OK;
}

/* A group on one host becomes a group of the local transport, a group with one member per host a
 * TCP group; only others need all parts. */
static ls_status hier_split(ls_transport *transport, const ls_comm_subgroup *wanted, ls_transport **group_out)
{
    hier *parent = (hier *)transport;
    ls_transport *world = parent->world;
    const uint32_t count = wanted->count;
    ls_comm_member members[LS_COMM_SIZE_MAX];
    for (uint32_t i = 0; i < count; i++) {
        members[i] = parent->members[wanted->members[i]];
    }
    hier *group = hier_create(members, wanted->self, count);
    if (!group) {
        return no_memory(count);
    }
    group->base.members = group->members;
    ls_status status = LS_OK;
    if (group->host_count == 1 && parent->local) {
        uint32_t locals[LS_COMM_SIZE_MAX];
        for (uint32_t i = 0; i < count; i++) {
            locals[i] = parent->local_of[wanted->members[i]];
        }
        hier_destroy(&group->base);
        ls_comm_subgroup here = *wanted;
        here.members = locals;
        return parent->local->transport.calls->split(&parent->local->transport, &here, group_out);
    }
    if (group->host_count == 1 || group->host_count == count) {
        hier_destroy(&group->base);
        return world->calls->split(world, wanted, group_out);
    }
    LS_TRY_GOTO(status, world->calls->split(world, wanted, &group->world), fail);
    LS_TRY_GOTO(status, split_local(parent, group, wanted), fail);
    LS_TRY_GOTO(status, finish_opening(group, wanted->id, wanted->deadline_ns), fail);
    *group_out = &group->base;
    return LS_OK;
fail:
    hier_destroy(&group->base);
    return status;
}

static const ls_transport_calls hier_calls = {.name = "hier",
                                              .run = hier_run,
                                              .alloc = hier_alloc,
                                              .release = hier_release,
                                              .split = hier_split,
                                              .abort = hier_abort,
                                              .stats = hier_stats,
                                              .destroy = hier_destroy};

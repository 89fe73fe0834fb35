// SPDX-License-Identifier: Apache-2.0
/*
 * Places: nodes as the policy sees them. The policy keeps the devices of a node in 64 bits, so a
 * machine with more devices becomes several places under one leaf, much as a large machine has
 * several sockets. A job may span them; users only see the machine.
 */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"

#include <stdlib.h>

void ls_places_make(ls_controller *c)
{
    for (uint32_t i = 0; i < c->node_count; i++) {
        c->place_count += ls_engine_place_count(c->nodes[i].devices);
    }
    c->places = calloc(c->place_count + 1, sizeof *c->places);
    LS_ASSERT(c->places && "not enough memory for the devices of jobs");
    c->is_split = c->place_count > c->node_count;
    for (uint32_t i = 0, at = 0; i < c->node_count; i++) {
        const uint32_t devices = c->nodes[i].devices, count = ls_engine_place_count(devices);
        for (uint32_t k = 0; k < count; k++) {
            const uint32_t first = ls_engine_place_first(devices, k);
            c->places[at++] = (ls_job_place){
                .node = i, .first = first, .devices = ls_engine_place_first(devices, k + 1) - first};
        }
    }
}

/* The share of a place in what the node has. */
static uint32_t part_of(uint32_t whole, const ls_job_place *place, uint32_t devices)
{
    return (uint32_t)((uint64_t)whole * place->devices / devices);
}

ls_node_spec ls_place_spec(const ls_controller *c, uint32_t index)
{
    const ls_job_place *place = &c->places[index];
    const ls_engine_node *node = &c->nodes[place->node];
    const bool is_whole = place->devices == node->devices;
    return (ls_node_spec){
        .name = node->name,
        .leaf = node->leaf,
        .spine = node->spine,
        .devices = (uint16_t)place->devices,
        .island_devices = (uint16_t)(is_whole ? node->island_devices : place->devices),
        .cpus = part_of(node->cpus, place, node->devices),
        .memory_mib = part_of(node->memory_mib, place, node->devices),
        .spot = node->spot,
    };
}

/* The place of the device that is `bit` devices after the first one of place `index`; UINT32_MAX:
 * there is no such device. */
static uint32_t place_of(const ls_controller *c, uint32_t index, uint32_t bit)
{
    const ls_job_place *from = &c->places[index];
    for (uint32_t i = index; i < c->place_count && c->places[i].node == from->node; i++) {
        if (from->first + bit < c->places[i].first + c->places[i].devices) {
            return i;
        }
    }
    return UINT32_MAX;
}

uint32_t ls_places_there(const ls_controller *c, const ls_job *job, ls_job_share **shares_out, bool *all_out)
{
    uint64_t *devices = calloc((size_t)c->place_count + 1, sizeof *devices);
    ls_job_share *shares = calloc((size_t)c->place_count + 1, sizeof *shares);
    LS_ASSERT(devices && shares && "not enough memory for the devices of jobs");
    *all_out = true;
    for (uint32_t i = 0; i < job->share_count; i++) {
        const uint32_t index = job->shares[i].node;
        for (uint64_t bits = job->shares[i].devices; bits; bits &= bits - 1) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(bits),
                           place = index < c->place_count ? place_of(c, index, bit) : UINT32_MAX;
            if (place == UINT32_MAX) {
                *all_out = false;
            } else {
                devices[place] |= UINT64_C(1) << (c->places[index].first + bit - c->places[place].first);
            }
        }
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->place_count; i++) {
        if (devices[i]) {
            shares[count++] = (ls_job_share){.node = i, .devices = devices[i]};
        }
    }
    free(devices);
    *shares_out = shares;
    return count;
}

void ls_places_settle(const ls_controller *c, ls_job *job)
{
    ls_job_share *shares = NULL;
    bool is_there = false;
    const uint32_t count = ls_places_there(c, job, &shares, &is_there);
    if (is_there) {
        ls_job_set_shares(job, shares, count);
    }
    free(shares);
}

/* "One island" and "one node" mean one machine, whose places share a leaf that has no others. */
static ls_level widened(ls_level level)
{
    return level < LS_LEVEL_LEAF ? LS_LEVEL_LEAF : level;
}

ls_status ls_places_adapt(const ls_controller *c, ls_policy_job *job)
{
    if (!c->is_split) {
        return LS_OK;
    }
    job->required = widened(job->required);
    job->preferred = widened(job->preferred);
    if (job->devices_per_node > 0 && job->devices_per_node != job->ranks) {
        return ls_fail(LS_ERR_INVALID,
                       "job.ranks_per_node is %u, but this queue has only one machine, which runs all %u "
                       "ranks; leave it out",
                       job->devices_per_node, job->ranks);
    }
    job->devices_per_node = 0;
    return LS_OK;
}

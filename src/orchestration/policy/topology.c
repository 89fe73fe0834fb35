// SPDX-License-Identifier: Apache-2.0
#include "orchestration/policy/topology.h"

#include <string.h>

static const char *const level_names[LS_LEVEL_COUNT] = {"island", "node", "leaf", "spine", "cluster"};

const char *ls_level_name(ls_level level)
{
    return (unsigned)level < LS_LEVEL_COUNT ? level_names[level] : "?";
}

ls_status ls_level_parse(const char *name, ls_level *level_out)
{
    for (int i = 0; i < LS_LEVEL_COUNT; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level_out = (ls_level)i;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_INVALID,
                   "'%.40s' is not a part of the cluster that a job can be kept within; allowed are island, "
                   "node, leaf, spine, cluster",
                   name);
}

static ls_status check_node(const ls_policy_cluster *cluster, const ls_node_spec *node)
{
    if (node->devices < 1 || node->devices > LS_NODE_DEVICES_MAX) {
        return ls_fail(LS_ERR_INVALID, "node %s has %u devices; 1 to %d are allowed", node->name,
                       node->devices, LS_NODE_DEVICES_MAX);
    }
    if (node->island_devices < 1 || node->devices % node->island_devices != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "node %s has groups of %u devices on a fast link (islands), but its number of "
                       "devices, %u, is not a multiple of that",
                       node->name, node->island_devices, node->devices);
    }
    if (node->kind >= cluster->kind_count) {
        return ls_fail(LS_ERR_INVALID,
                       "node %s has devices of kind %u, but the cluster has only %u kinds, counted from 0",
                       node->name, node->kind, cluster->kind_count);
    }
    return LS_OK;
}

ls_status ls_cluster_check(const ls_policy_cluster *cluster)
{
    if (cluster->node_count < 1 || cluster->node_count > LS_TOPOLOGY_NODES_MAX) {
        return ls_fail(LS_ERR_INVALID, "a cluster cannot have %u nodes: 1 to %d are allowed",
                       cluster->node_count, LS_TOPOLOGY_NODES_MAX);
    }
    if (cluster->kind_count < 1 || cluster->kind_count > LS_TOPOLOGY_KINDS_MAX) {
        return ls_fail(LS_ERR_INVALID, "a cluster cannot have %u kinds of devices: 1 to %d are allowed",
                       cluster->kind_count, LS_TOPOLOGY_KINDS_MAX);
    }
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        LS_TRY(check_node(cluster, &cluster->nodes[i]));
    }
    return LS_OK;
}

void ls_cluster_uniform(ls_arena *arena, uint32_t nodes, uint16_t devices, uint32_t nodes_per_leaf,
                        uint32_t leaves_per_spine, ls_policy_cluster *cluster_out)
{
    const char **kinds = ls_arena_new(arena, const char *, 1);
    kinds[0] = "gpu";
    ls_node_spec *specs = ls_arena_new(arena, ls_node_spec, nodes);
    for (uint32_t i = 0; i < nodes; i++) {
        const uint32_t leaf = nodes_per_leaf ? i / nodes_per_leaf : 0;
        specs[i] = (ls_node_spec){.name = ls_arena_printf(arena, "n%u", i),
                                  .leaf = leaf,
                                  .spine = leaves_per_spine ? leaf / leaves_per_spine : 0,
                                  .devices = devices,
                                  .island_devices = devices,
                                  .cpus = 8u * devices,
                                  .memory_mib = 65536u * devices};
    }
    *cluster_out = (ls_policy_cluster){.kinds = kinds, .kind_count = 1, .nodes = specs, .node_count = nodes};
}

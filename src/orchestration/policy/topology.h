// SPDX-License-Identifier: Apache-2.0
/*
 * Topology: the machines on which the queue places jobs, as a tree.
 *
 *   cluster > spine > leaf (a leaf switch, rail group or block) > node > island (devices that share
 *   the fastest link) > device
 *
 * A device is what one rank gets: a GPU, or a slot of a machine without GPUs. A cluster is plain
 * data that describes machines (this one, a file, "64x8"); the policy keeps what is free on it
 * (policy.h).
 *
 * Pure; integers only.
 */
#ifndef LS_ORCHESTRATION_POLICY_TOPOLOGY_H
#define LS_ORCHESTRATION_POLICY_TOPOLOGY_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_level {
    LS_LEVEL_ISLAND,
    LS_LEVEL_NODE,
    LS_LEVEL_LEAF,
    LS_LEVEL_SPINE,
    LS_LEVEL_CLUSTER,
    LS_LEVEL_COUNT
} ls_level;

enum { LS_NODE_DEVICES_MAX = 64, LS_TOPOLOGY_NODES_MAX = 1 << 17, LS_TOPOLOGY_KINDS_MAX = 64 };

typedef struct ls_node_spec {
    const char *name;
    uint32_t leaf, spine; /* any numbers; a leaf belongs to one spine */
    /* index into ls_policy_cluster.kinds; devices of one kind are interchangeable */
    uint16_t kind;
    uint16_t devices;        /* 1..64 */
    uint16_t island_devices; /* consecutive devices that form an island; divides devices */
    uint32_t cpus;           /* cores */
    uint32_t memory_mib;
    bool spot; /* may be taken away: used only by jobs that allow it */
} ls_node_spec;

typedef struct ls_policy_cluster {
    const char **kinds;
    uint32_t kind_count; /* 1..64 */
    ls_node_spec *nodes;
    uint32_t node_count; /* 1..131072 */
} ls_policy_cluster;

/* "island", "node", "leaf", "spine", "cluster". */
const char *ls_level_name(ls_level level);
/* The level of that name. Errors: LS_ERR_INVALID, naming the levels. */
LS_MUST_CHECK ls_status ls_level_parse(const char *name, ls_level *level_out);

/* Errors: LS_ERR_INVALID, naming the node and what is outside its range. */
LS_MUST_CHECK ls_status ls_cluster_check(const ls_policy_cluster *cluster);

/*
 * A cluster of equal nodes, names "n0", "n1", ..: nodes_per_leaf nodes under a leaf,
 * leaves_per_spine leaves under a spine (0: all), one island per node, one kind "gpu", 8 cores and
 * 64 GiB of memory per device.
 */
void ls_cluster_uniform(ls_arena *arena, uint32_t nodes, uint16_t devices, uint32_t nodes_per_leaf,
                        uint32_t leaves_per_spine, ls_policy_cluster *cluster_out);

#endif

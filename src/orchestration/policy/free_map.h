// SPDX-License-Identifier: Apache-2.0
/*
 * Free map: which devices are free, counted at every level of the topology, with nodes in buckets
 * by how many free devices they have.
 *
 * Nodes are sorted by spine, leaf, and type (kind, spot, size). Nodes of one leaf and type form a
 * cell, which is a run of nodes. A cell has, for each count of free devices, a bitmap of its nodes,
 * so a node with at least n free devices is found by looking at words:
 *
 *   leaf 3, cell 7 (h100, 8 devices), nodes 96..127
 *     8 free: 1100..   7 free: 0000..   ..   0 free: 0010..
 *
 * Everything that changes lies in one block: copying a map is one memcpy (ls_free_map_copy). Nodes
 * are numbered in sorted order here ("place"); place_of and node translate.
 */
#ifndef LS_ORCHESTRATION_POLICY_FREE_MAP_H
#define LS_ORCHESTRATION_POLICY_FREE_MAP_H

#include "orchestration/policy/topology.h"

typedef struct ls_place_node { /* never changes */
    uint64_t all;              /* mask of all its devices */
    uint32_t cell, leaf, spine, node;
    uint32_t cpus, memory_mib;
} ls_place_node;

typedef struct ls_cell {
    uint32_t first, count; /* nodes */
    uint32_t words;        /* words of one of its bitmaps */
    uint32_t words_before; /* words of the cells before it, in a bitmap over all nodes */
    /* offset of its bitmaps: the one for c free devices is at bits + c * words */
    size_t bits;
    /* the same by the largest number free in one island; = bits where a node is one island */
    size_t island_bits;
    size_t counts; /* offset of its counts of nodes by free devices */
    uint16_t class, devices, island_devices, kind;
    bool spot;
} ls_cell;

typedef struct ls_range {
    uint32_t first, count;
} ls_range;

/* Shared by all maps of a cluster. */
typedef struct ls_places {
    ls_place_node *nodes;
    uint32_t *place_of; /* by node of the cluster */
    ls_cell *cells;
    ls_range *leaf_cells, *spine_leaves;
    uint32_t node_count, cell_count, leaf_count, spine_count, class_count;
    uint32_t devices;
    uint64_t capacity[3]; /* devices, cores, MiB */
    struct {
        uint16_t kind;
        bool spot;
        uint32_t devices;
    } classes[2 * LS_TOPOLOGY_KINDS_MAX];
    uint32_t devices_most, island_most; /* largest node, largest island */
    uint32_t node_words;                /* words of a bitmap over all nodes */
    size_t bit_words, counts;
} ls_places;

typedef struct ls_free_map {
    const ls_places *places;
    void *block;
    size_t block_bytes;
    uint64_t *free; /* by node, whether it is up or not */
    /* not free yet: when they become free they go to the job that claimed them */
    uint64_t *claimed;
    uint64_t *bits;
    /* free ones by node; below 0 while a claim waits for the job that has them */
    int32_t *cpus, *memory_mib;
    uint32_t *counts; /* number of nodes of a cell by free devices */
    uint32_t *cell_free, *leaf_free, *spine_free, *class_free;
    uint8_t *up;  /* by node: devices may be taken */
    uint8_t *has; /* by node: how many devices can be taken */
} ls_free_map;

/* Sorts a checked cluster into places. All memory from the arena. */
void ls_places_init(ls_places *places, ls_arena *arena, const ls_policy_cluster *cluster);

/* A map with everything free and up. */
void ls_free_map_init(ls_free_map *map, ls_arena *arena, const ls_places *places);
/* Copies a map to one that was made for the same places. */
void ls_free_map_copy(ls_free_map *to, const ls_free_map *from);

/* Devices of a node that can be taken: none while it is not up. */
static inline uint64_t ls_free_map_usable(const ls_free_map *map, uint32_t place)
{
    return map->up[place] ? map->free[place] : 0;
}

/* Takes free devices, with cores and memory for each; and gives them back. */
void ls_free_map_take(ls_free_map *map, uint32_t place, uint64_t devices, uint32_t cpus_per,
                      uint32_t memory_per);
void ls_free_map_give(ls_free_map *map, uint32_t place, uint64_t devices, uint32_t cpus_per,
                      uint32_t memory_per);
void ls_free_map_set_up(ls_free_map *map, uint32_t place, bool up);

/* Takes cores and memory for `count` claimed devices before they are free; gives them back when
 * count < 0. */
void ls_free_map_promise(ls_free_map *map, uint32_t place, int32_t count, uint32_t cpus_per,
                         uint32_t memory_per);

/* Whether all counters are the sums of what is below them. */
bool ls_free_map_is_valid(const ls_free_map *map);

/* The largest number of devices of the mask in one island. */
uint32_t ls_island_most(uint64_t free, uint32_t devices, uint32_t island_devices);

#endif

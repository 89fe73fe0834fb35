// SPDX-License-Identifier: Apache-2.0
/*
 * Free map: which devices are free, counted at every level of the topology, nodes bucketed by how many they have free.
 *
 * Nodes are sorted by spine, leaf, and what they are (kind, spot, size): those of one leaf that are alike form a cell, a run of nodes. A
 * cell has a bitmap of its nodes for each count of free devices, so that a node with at least n free is found by looking at words:
 *
 *   leaf 3:  cell 7 (h100, 8 devices)   nodes 96..127     free 8: 1100..  free 7: 0000..  ..  free 0: 0010..
 *
 * What changes lies in one block: a copy of a map is one memcpy (ls_free_map_copy). Nodes are numbered in sorted order here ("place");
 * place_of and node_of translate.
 */
#ifndef LS_ORCHESTRATION_POLICY_FREE_MAP_H
#define LS_ORCHESTRATION_POLICY_FREE_MAP_H

#include "orchestration/policy/topology.h"

typedef struct ls_place_node { /* never changes */
    uint64_t all;              /* mask of its devices */
    uint32_t cell, leaf, spine, node;
    uint32_t cpus, memory_mib;
} ls_place_node;

typedef struct ls_cell {
    uint32_t first, count; /* nodes */
    uint32_t words;        /* of one of its bitmaps */
    uint32_t words_before; /* in a bitmap of all nodes, cell after cell */
    size_t bits;           /* where they begin: bitmap of free count c at bits + c * words */
    size_t island_bits;    /* the same by most free in one island; = bits where a node is one island */
    size_t counts;         /* of nodes by free count: where they begin */
    uint16_t class, devices, island_devices, kind;
    bool spot;
} ls_cell;

typedef struct ls_range {
    uint32_t first, count;
} ls_range;

/* Shared by all maps of a cluster. */
typedef struct ls_places {
    ls_place_node *nodes;
    uint32_t *place_of; /* of a node of the cluster */
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
    uint32_t devices_most, island_most; /* of a node, of an island */
    uint32_t node_words;                /* of a bitmap of all nodes */
    size_t bit_words, counts;
} ls_places;

typedef struct ls_free_map {
    const ls_places *places;
    void *block;
    size_t block_bytes;
    uint64_t *free;    /* by node, whatever its state */
    uint64_t *claimed; /* not free yet; when they become so they go to who claimed them */
    uint64_t *bits;
    int32_t *cpus, *memory_mib; /* by node, free; below 0 while a claim waits for who still has them */
    uint32_t *counts;           /* nodes of a cell by free devices */
    uint32_t *cell_free, *leaf_free, *spine_free, *class_free;
    uint8_t *up;  /* by node: places may be taken */
    uint8_t *has; /* by node: how many can be taken */
} ls_free_map;

/* Sorts a checked cluster into places. All memory from the arena. */
void ls_places_init(ls_places *places, ls_arena *arena, const ls_cluster *cluster);

/* A map with everything free and up. */
void ls_free_map_init(ls_free_map *map, ls_arena *arena, const ls_places *places);
/* `to` was made for the same places. */
void ls_free_map_copy(ls_free_map *to, const ls_free_map *from);

/* Devices that can be taken on a node: none while it is not up. */
static inline uint64_t ls_free_map_usable(const ls_free_map *map, uint32_t place)
{
    return map->up[place] ? map->free[place] : 0;
}

/* Devices, which are free, become taken, with cores and memory for them; and back. */
void ls_free_map_take(ls_free_map *map, uint32_t place, uint64_t devices, uint32_t cpus_per,
                      uint32_t memory_per);
void ls_free_map_give(ls_free_map *map, uint32_t place, uint64_t devices, uint32_t cpus_per,
                      uint32_t memory_per);
void ls_free_map_set_up(ls_free_map *map, uint32_t place, bool up);

/* Cores and memory for `count` devices that are claimed, before they are free; and back. */
void ls_free_map_promise(ls_free_map *map, uint32_t place, int32_t count, uint32_t cpus_per,
                         uint32_t memory_per);

/* Whether all counters are sums of what is below them. */
bool ls_free_map_is_valid(const ls_free_map *map);

/* Most free devices in one island of a node, of a mask. */
uint32_t ls_island_most(uint64_t free, uint32_t devices, uint32_t island_devices);

#endif

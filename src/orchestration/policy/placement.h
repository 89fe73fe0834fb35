// SPDX-License-Identifier: Apache-2.0
/*
 * Placement: which free devices a job gets.
 *
 * The lowest level that holds all ranks wins: an island, else a node, a leaf, a spine, the cluster.
 * Within a level the lowest score wins:
 *
 *   node    devices left over there, + 2 if that breaks a wholly free node, + 3 if the node does
 *           not have the job's data
 *   leaf    nodes left over (at most 4), + 4 w for each node beyond the fewest possible, + 3 for
 *           each node without the data
 *   spine   4; its leaves are filled one after the other, the last one by best fit
 *
 * w, from 0 to 4, grows with the bytes a step sends. Ties: the fuller leaf, then the lower place.
 * When a job prefers a level above the lowest that fits, the best score of all levels up to there
 * wins. A search changes nothing: the caller that uses a plan takes its devices from the free map.
 */
#ifndef LS_ORCHESTRATION_POLICY_PLACEMENT_H
#define LS_ORCHESTRATION_POLICY_PLACEMENT_H

#include "orchestration/policy/free_map.h"

/* The properties of a job that decide where it fits. */
typedef struct ls_gang_shape {
    uint32_t per_node; /* exactly this many on each node; 0: any number */
    int32_t kind;      /* -1: any */
    bool spot;         /* may use spot nodes */
    uint32_t cpus_per, memory_per;
    ls_level required, preferred;
    uint32_t distance; /* w */
    /* nodes that have its data, a bitmap over all nodes; NULL: not known */
    const uint64_t *cached;
} ls_gang_shape;

typedef struct ls_gang_piece {
    uint32_t place;
    uint64_t devices;
} ls_gang_piece;

typedef struct ls_placement {
    ls_gang_piece *pieces; /* room for one per node */
    uint32_t count, ranks;
    ls_level level;
} ls_placement;

typedef struct ls_placer { /* scratch */
    uint32_t *leaf_fit, *spine_fit;
} ls_placer;

void ls_placer_init(ls_placer *placer, ls_arena *arena, const ls_places *places);
void ls_plan_init(ls_placement *plan, ls_arena *arena, const ls_places *places);

/* w for the bytes of a step; 0 bytes: not known, taken as average. */
uint32_t ls_distance_weight(uint64_t comm_bytes_per_step);

/* Finds devices for all `ranks`, or for none. plan is written only on success, but its pieces are
 * scratch in either case. */
bool ls_plan_find(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks,
                  ls_placement *plan);

/* Finds as many of `ranks` as some leaves have, at any level: for jobs that grow. Returns how many
 * the plan has. */
uint32_t ls_plan_find_within(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape,
                             ls_range leaves, uint32_t ranks, ls_placement *plan);

/* Free devices in the whole cluster that the shape may use; with fewer than it needs there is no
 * plan. */
uint32_t ls_shape_free(const ls_free_map *map, const ls_gang_shape *shape);

/* The most ranks of this shape that fit in one domain of each level. */
void ls_shape_free_most(const ls_free_map *map, const ls_gang_shape *shape,
                        uint32_t most_out[LS_LEVEL_COUNT]);

bool ls_shape_takes(const ls_gang_shape *shape, const ls_cell *cell);
/* How many ranks the node could take now, by devices, cores and memory; with per_node that number
 * or 0. */
uint32_t ls_shape_fit(const ls_free_map *map, const ls_gang_shape *shape, uint32_t place);

/* Chooses `count` of the devices in `usable`: from the island where they fit most tightly, else
 * from the fullest islands. */
uint64_t ls_devices_pick(uint64_t usable, uint32_t devices, uint32_t island_devices, uint32_t count);

/* The lowest level that holds all pieces. */
ls_level ls_pieces_level(const ls_places *places, const ls_gang_piece *pieces, uint32_t count);

#endif

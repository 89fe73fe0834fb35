// SPDX-License-Identifier: Apache-2.0
/*
 * Placement: which free devices a gang gets.
 *
 * The lowest level that holds all of it wins: an island, else a node, a leaf, a spine, the cluster. At one level the score decides, low is good:
 *
 *   node    devices left over there, + 2 when that breaks a wholly free node, + 3 when it does not have the data
 *   leaf    nodes left over (4 at most), + 4 w per node more than needed, + 3 per node without the data
 *   spine   4, and leaves are filled one after the other, the last by best fit
 *
 * w, 0 to 4, grows with the bytes a step sends. Ties: the fuller leaf, then the lower place. A job whose preferred level is above the lowest that
 * fits takes the best score of all levels up to there. Finding changes nothing: who takes the plan says so to the free map.
 */
#ifndef LS_ORCHESTRATION_POLICY_PLACEMENT_H
#define LS_ORCHESTRATION_POLICY_PLACEMENT_H

#include "orchestration/policy/free_map.h"

/* What about a job decides where it fits. */
typedef struct ls_shape {
    uint32_t per_node; /* exactly so many on each node; 0: any */
    int32_t kind;      /* -1: any */
    bool spot;         /* spot nodes too */
    uint32_t cpus_per, memory_per;
    ls_level required, preferred;
    uint32_t distance;      /* w */
    const uint64_t *cached; /* nodes that have its data, as a bitmap of all nodes; NULL: none is known */
} ls_shape;

typedef struct ls_piece {
    uint32_t place;
    uint64_t devices;
} ls_piece;

typedef struct ls_plan {
    ls_piece *pieces; /* room for one per node */
    uint32_t count, ranks;
    ls_level level;
} ls_plan;

typedef struct ls_placer { /* scratch */
    uint32_t *leaf_fit, *spine_fit;
} ls_placer;

void ls_placer_init(ls_placer *placer, ls_arena *arena, const ls_places *places);
void ls_plan_init(ls_plan *plan, ls_arena *arena, const ls_places *places);

/* w of a step's bytes; 0: not known, taken as average. */
uint32_t ls_distance_weight(uint64_t comm_bytes_per_step);

/* Finds devices for all `ranks` or none. plan is written only on success; its pieces are scratch either way. */
bool ls_plan_find(ls_placer *placer, const ls_free_map *map, const ls_shape *shape, uint32_t ranks,
                  ls_plan *plan);

/* As many of `ranks` as some leaves have, whatever the level: for jobs that grow. Returns how many; all of them are in the plan. */
uint32_t ls_plan_find_within(ls_placer *placer, const ls_free_map *map, const ls_shape *shape,
                             ls_range leaves, uint32_t ranks, ls_plan *plan);

/* Free devices that the shape may use, in the whole cluster: with fewer than it needs there is no plan. */
uint32_t ls_shape_free(const ls_free_map *map, const ls_shape *shape);

/* Most ranks of this shape in one domain of each level. */
void ls_shape_free_most(const ls_free_map *map, const ls_shape *shape, uint32_t most_out[LS_LEVEL_COUNT]);

bool ls_shape_takes(const ls_shape *shape, const ls_cell *cell);
/* Ranks that the node could take now: bounded by devices, cores, memory; with per_node that or 0. */
uint32_t ls_shape_fit(const ls_free_map *map, const ls_shape *shape, uint32_t place);

/* `count` of the devices in `usable`: from the island where they fit best, else from the fullest islands. */
uint64_t ls_devices_pick(uint64_t usable, uint32_t devices, uint32_t island_devices, uint32_t count);

/* The lowest level that holds all pieces. */
ls_level ls_pieces_level(const ls_places *places, const ls_piece *pieces, uint32_t count);

#endif

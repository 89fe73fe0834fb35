// SPDX-License-Identifier: Apache-2.0
/*
 * The mesh: how the ranks of a run divide model and batch between them. Pure arithmetic.
 *
 * Axes from inner to outer: tensor (tp), context (cp), pipeline (pp), expert (ep), data (dp). Ranks
 * with the same dp coordinate are a crew: they compute the same leaves together
 * (execution/executor/crew.h). The dp coordinate chooses the leaves. The members along the expert
 * axis each have a run of the experts of every layer; they take one of several adjacent leaves
 * each, and visit each other's experts.
 *
 *   tensor 2, pipeline 2, 8 ranks          tp 0   tp 1
 *                           dp 0   pp 0  |  0      1
 *                                  pp 1  |  2      3
 *                           dp 1   pp 0  |  4      5
 *                                  pp 1  |  6      7
 *
 * The first rank of a crew on a host is its leader there: its slot in the exchange area has the
 * stack of finished leaves, and the members on this host write their gradients into its buffers,
 * each those of its own pieces and layers. So a parameter has one gradient per leaf, as without a
 * mesh, and the tree of leaves does not know about meshes. The result does not depend on the mesh:
 * a run can go on with another one.
 */
#ifndef LS_EXECUTION_PARALLEL_MESH_H
#define LS_EXECUTION_PARALLEL_MESH_H

#include "comm/transport/tree.h"

#include <stddef.h>

/* Degrees of the inner axes, >= 1; 0 counts as 1. */
typedef struct ls_mesh {
    uint32_t tensor, pipeline, context, expert;
} ls_mesh;

/* Coordinates of a rank. */
typedef struct ls_mesh_place {
    uint32_t tensor, context, pipeline, expert, data;
} ls_mesh_place;

/* What ranks exchange for. */
typedef enum ls_mesh_axis {
    LS_AXIS_TENSOR,
    LS_AXIS_CONTEXT,
    LS_AXIS_PIPELINE,
    LS_AXIS_EXPERT,
    LS_AXIS_DATA,
    LS_AXIS_COUNT
} ls_mesh_axis;
const char *ls_mesh_axis_name(ls_mesh_axis axis); /* "tensor" */

/* Number of ranks in a crew. The number of ranks of the run is a multiple of it. */
uint32_t ls_mesh_crew(ls_mesh mesh);
ls_mesh_place ls_mesh_place_of(ls_mesh mesh, uint32_t rank);
uint32_t ls_mesh_rank_of(ls_mesh mesh, ls_mesh_place place);
/* The first rank of the crew of `rank`. */
uint32_t ls_mesh_leader(ls_mesh mesh, uint32_t rank);

/* Ranks of a crew that share memory, so that they are on one host: those of a stage, which are
 * consecutive; with an expert axis all. */
uint32_t ls_mesh_stage_ranks(ls_mesh mesh);

/* Consecutive ranks on one host. */
typedef struct ls_mesh_host {
    uint32_t first_rank, rank_count;
} ls_mesh_host;

/* The first member, by local number, that the crew of rank first_rank + local has on its host. */
uint32_t ls_mesh_local_leader(ls_mesh mesh, uint32_t first_rank, uint32_t local);
/* The leaves whose gradients of the layers of `stage` are made on a host. */
ls_leaf_range ls_mesh_leaves_of_host(ls_mesh mesh, uint32_t leaves, uint32_t ranks, ls_mesh_host host,
                                     uint32_t stage);

/* The leaves that a rank works on, together with its crew. ranks / crew <= leaves. */
ls_leaf_range ls_mesh_leaves(ls_mesh mesh, uint32_t leaves, uint32_t ranks, uint32_t rank);

/* How every text names a rank: "rank 5 (dp 1, pp 0, tp 1; node7, pid 4711)", with the axes that
 * are divided and with `more`; "rank 5 (node7, pid 4711)" without a mesh; "rank 5" with neither.
 * more: NULL or a text that is cut at 127 bytes. */
enum { LS_MESH_NAME_BYTES = 224 };
const char *ls_mesh_name(ls_mesh mesh, uint32_t rank, const char *more, char text_out[LS_MESH_NAME_BYTES]);

#endif

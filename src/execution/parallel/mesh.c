// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/mesh.h"

#include "base/assert.h"

#include <stdio.h>

static uint32_t degree(uint32_t value)
{
    return value > 0 ? value : 1;
}

uint32_t ls_mesh_crew(ls_mesh mesh)
{
    return degree(mesh.tensor) * degree(mesh.context) * degree(mesh.pipeline);
}

ls_mesh_place ls_mesh_place_of(ls_mesh mesh, uint32_t rank)
{
    const uint32_t tensor = degree(mesh.tensor), context = degree(mesh.context);
    const uint32_t stage = tensor * context, pipeline = degree(mesh.pipeline);
    return (ls_mesh_place){.tensor = rank % tensor,
                           .context = rank / tensor % context,
                           .pipeline = rank / stage % pipeline,
                           .data = rank / (stage * pipeline)};
}

uint32_t ls_mesh_rank_of(ls_mesh mesh, ls_mesh_place place)
{
    const uint32_t tensor = degree(mesh.tensor), context = degree(mesh.context);
    const uint32_t pipeline = degree(mesh.pipeline);
    LS_DCHECK(place.tensor < tensor && place.context < context && place.pipeline < pipeline);
    return ((place.data * pipeline + place.pipeline) * context + place.context) * tensor + place.tensor;
}

uint32_t ls_mesh_leader(ls_mesh mesh, uint32_t rank)
{
    return rank - rank % ls_mesh_crew(mesh);
}

ls_leaf_range ls_mesh_leaves(ls_mesh mesh, uint32_t leaves, uint32_t ranks, uint32_t rank)
{
    const uint32_t crew = ls_mesh_crew(mesh);
    LS_ASSERT(ranks % crew == 0);
    return ls_leaves_of_rank(leaves, ranks / crew, rank / crew);
}

const char *ls_mesh_name(ls_mesh mesh, uint32_t rank, char text_out[LS_MESH_NAME_BYTES])
{
    const ls_mesh_place place = ls_mesh_place_of(mesh, rank);
    char pipeline[20] = "", context[20] = "", tensor[20] = "";
    if (ls_mesh_crew(mesh) == 1) {
        snprintf(text_out, LS_MESH_NAME_BYTES, "rank %u", rank);
        return text_out;
    }
    if (mesh.pipeline > 1) {
        snprintf(pipeline, sizeof pipeline, ", pp %u", place.pipeline);
    }
    if (mesh.context > 1) {
        snprintf(context, sizeof context, ", cp %u", place.context);
    }
    if (mesh.tensor > 1) {
        snprintf(tensor, sizeof tensor, ", tp %u", place.tensor);
    }
    snprintf(text_out, LS_MESH_NAME_BYTES, "rank %u (dp %u%s%s%s)", rank, place.data, pipeline, context,
             tensor);
    return text_out;
}

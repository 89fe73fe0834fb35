// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/mesh.h"

#include "base/assert.h"

#include <stdio.h>

static uint32_t degree(uint32_t value)
{
    return value > 0 ? value : 1;
}

const char *ls_mesh_axis_name(ls_mesh_axis axis)
{
    static const char *const names[LS_AXIS_COUNT] = {"tensor", "context", "pipeline", "expert", "data"};
    return names[axis];
}

uint32_t ls_mesh_crew(ls_mesh mesh)
{
    return degree(mesh.tensor) * degree(mesh.context) * degree(mesh.pipeline) * degree(mesh.expert);
}

ls_mesh_place ls_mesh_place_of(ls_mesh mesh, uint32_t rank)
{
    const uint32_t tensor = degree(mesh.tensor), context = degree(mesh.context);
    const uint32_t stage = tensor * context, pipeline = degree(mesh.pipeline);
    return (ls_mesh_place){.tensor = rank % tensor,
                           .context = rank / tensor % context,
                           .pipeline = rank / stage % pipeline,
                           .expert = rank / (stage * pipeline) % degree(mesh.expert),
                           .data = rank / ls_mesh_crew(mesh)};
}

uint32_t ls_mesh_rank_of(ls_mesh mesh, ls_mesh_place place)
{
    const uint32_t tensor = degree(mesh.tensor), context = degree(mesh.context);
    const uint32_t pipeline = degree(mesh.pipeline);
    LS_DCHECK(place.tensor < tensor && place.context < context && place.pipeline < pipeline);
    LS_DCHECK(place.expert < degree(mesh.expert));
    const uint32_t copy = place.data * degree(mesh.expert) + place.expert;
    return ((copy * pipeline + place.pipeline) * context + place.context) * tensor + place.tensor;
}

uint32_t ls_mesh_leader(ls_mesh mesh, uint32_t rank)
{
    return rank - rank % ls_mesh_crew(mesh);
}

uint32_t ls_mesh_stage_ranks(ls_mesh mesh)
{
    return degree(mesh.expert) > 1 ? ls_mesh_crew(mesh) : degree(mesh.tensor) * degree(mesh.context);
}

uint32_t ls_mesh_local_leader(ls_mesh mesh, uint32_t first_rank, uint32_t local)
{
    const uint32_t leader = ls_mesh_leader(mesh, first_rank + local);
    return leader > first_rank ? leader - first_rank : 0;
}

/* Ranks of a stage are consecutive, so the crews that have the stage on this host are, too. */
ls_leaf_range ls_mesh_leaves_of_host(ls_mesh mesh, uint32_t leaves, uint32_t ranks, ls_mesh_host host,
                                     uint32_t stage)
{
    const uint32_t crew = ls_mesh_crew(mesh), first_in_crew = stage * ls_mesh_stage_ranks(mesh);
    ls_leaf_range all = {0};
    for (uint32_t c = host.first_rank / crew; c * crew < host.first_rank + host.rank_count; c++) {
        const uint32_t rank = c * crew + first_in_crew;
        if (rank >= host.first_rank && rank < host.first_rank + host.rank_count) {
            const ls_leaf_range own = ls_leaves_of_rank(leaves, ranks / crew, c);
            all.first = all.count > 0 ? all.first : own.first;
            all.count += own.count;
        }
    }
    return all;
}

ls_leaf_range ls_mesh_leaves(ls_mesh mesh, uint32_t leaves, uint32_t ranks, uint32_t rank)
{
    const uint32_t crew = ls_mesh_crew(mesh);
    LS_ASSERT(ranks % crew == 0);
    return ls_leaves_of_rank(leaves, ranks / crew, rank / crew);
}

/* "dp 1, pp 0, tp 1"; "" without a mesh. */
static void append_place(ls_mesh mesh, uint32_t rank, char *text, size_t bytes)
{
    const ls_mesh_place place = ls_mesh_place_of(mesh, rank);
    const struct {
        const char *name;
        uint32_t degree, number;
    } axes[] = {{"ep", mesh.expert, place.expert},
                {"pp", mesh.pipeline, place.pipeline},
                {"cp", mesh.context, place.context},
                {"tp", mesh.tensor, place.tensor}};
    if (ls_mesh_crew(mesh) == 1) {
        return;
    }
    size_t used = (size_t)snprintf(text, bytes, "dp %u", place.data);
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        if (axes[i].degree > 1) {
            used += (size_t)snprintf(text + used, bytes - used, ", %s %u", axes[i].name, axes[i].number);
        }
    }
}

const char *ls_mesh_name(ls_mesh mesh, uint32_t rank, const char *more, char text_out[LS_MESH_NAME_BYTES])
{
    char place[88] = "";
    append_place(mesh, rank, place, sizeof place);
    more = more ? more : "";
    if (!place[0] && !more[0]) {
        snprintf(text_out, LS_MESH_NAME_BYTES, "rank %u", rank);
    } else {
        snprintf(text_out, LS_MESH_NAME_BYTES, "rank %u (%s%s%.127s)", rank, place,
                 place[0] && more[0] ? "; " : "", more);
    }
    return text_out;
}

// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "base/assert.h"
#include "compute/cuda/column_sums.h"
#include "compute/cuda/device/norm.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/cuda/vector.h"

enum {
    WIDTH_MAX = LS_NORM_TEAM_MAX * 2 * 8,
    /* Backward has one tile for each block that runs at a time on 132 multiprocessors with 512
     * threads each, whatever the GPU has. Each team has at least 8 units, so that the tiles' own
     * sums stay cheap. */
    MULTIPROCESSORS = 132,
    THREADS = 512,
    TEAM_UNITS_MIN = 8,
};

/* How threads share a unit; see device/norm.h. */
typedef struct geometry {
    uint32_t team, octets, block_threads;
} geometry;

static geometry geometry_of(int64_t width)
{
    LS_ASSERT(width >= 1 && width <= WIDTH_MAX);
    const uint32_t octets = (uint32_t)(width + 7) / 8;
    if (octets <= 64) {
        const uint32_t team = octets <= 8 ? 4 : octets <= 16 ? 8 : octets <= 32 ? 16 : 32;
        return (geometry){team, 2, LS_NORM_BLOCK_THREADS};
    }
    if (octets <= 96) {
        return (geometry){32, 3, LS_NORM_BLOCK_THREADS};
    }
    const uint32_t team = (octets + 63) / 64 * 32;
    return (geometry){team, 2, team};
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t tile_units_min(geometry g)
{
    return (int64_t)(g.block_threads / g.team) * TEAM_UNITS_MIN;
}

static int64_t tile_count_max(geometry g)
{
    return MULTIPROCESSORS * (THREADS / g.block_threads);
}

static int64_t tile_units(int64_t units, geometry g)
{
    const int64_t least = tile_units_min(g), even = ceil_div(units, tile_count_max(g));
    return even > least ? even : least;
}

/* For as many tiles as n rows or fewer can have. */
int64_t ls_cuda_norm_workspace(int64_t n, int64_t cols, int64_t groups)
{
    const int64_t width = cols / groups;
    const geometry g = geometry_of(width);
    const int64_t most = tile_count_max(g), tiles = ceil_div(n * groups, tile_units_min(g));
    return (tiles < most ? tiles : most) * 2 * width;
}

/* Everything but `vector`. */
static ls_norm_units units_of(const ls_norm *norm, const ls_tensor *x)
{
    const int64_t count = x->rows * norm->groups, width = x->cols / norm->groups;
    LS_ASSERT(count < INT32_MAX);
    return (ls_norm_units){.count = (uint32_t)count,
                           .groups = (int32_t)norm->groups,
                           .width = (int32_t)width,
                           .team = (int32_t)geometry_of(width).team,
                           .is_layer = norm->kind == LS_NORM_LAYER,
                           .eps = norm->eps};
}

/* Whether octets of a unit can be moved at once, in all of the tensors. */
static bool is_vector(const ls_norm *norm, int64_t width, const ls_tensor *const *tensors, int count)
{
    bool vector = width % 8 == 0 && ls_cuda_is_vector(&norm->weight) && ls_cuda_is_vector(&norm->bias);
    for (int i = 0; i < count; i++) {
        vector = vector && ls_cuda_is_vector(tensors[i]);
    }
    return vector;
}

static float *floats_of(const ls_tensor *t)
{
    return t ? t->data : NULL;
}

static int64_t stride_of(const ls_tensor *t)
{
    return t ? t->stride : 0;
}

static ls_status launch_forward(ls_queue *queue, ls_norm_forward_args *args, ls_dtype dtype)
{
    static const ls_cuda_kernel kernels[2][2] = {
        {{"norm", "norm_forward_f32_2"}, {"norm", "norm_forward_f32_3"}},
        {{"norm", "norm_forward_bf16_2"}, {"norm", "norm_forward_bf16_3"}},
    };
    const geometry g = geometry_of(args->units.width);
    const uint32_t teams = g.block_threads / g.team;
    if (args->units.count == 0) {
        return LS_OK;
    }
    return ls_cuda_launch(
        ls_cuda_of(queue), kernels[dtype == LS_BF16][g.octets - 2],
        (ls_cuda_grid){.x = (args->units.count + teams - 1) / teams, .threads = g.block_threads}, args);
}

ls_status ls_cuda_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x, const ls_tensor *y,
                               const ls_tensor *mean, const ls_tensor *rstd)
{
    ls_norm_forward_args args = {.units = units_of(norm, x),
                                 .a = x->data,
                                 .y = y->data,
                                 .weight = norm->weight.data,
                                 .bias = norm->bias.data,
                                 .mean = floats_of(mean),
                                 .rstd = rstd->data,
                                 .a_stride = x->stride,
                                 .y_stride = y->stride,
                                 .mean_stride = stride_of(mean),
                                 .rstd_stride = rstd->stride};
    args.units.vector = is_vector(norm, args.units.width, (const ls_tensor *[]){x, y}, 2);
    return launch_forward(queue, &args, x->dtype);
}

ls_status ls_cuda_norm_forward_residual(ls_queue *queue, const ls_norm *norm, const ls_tensor *a,
                                        const ls_tensor *b, const ls_tensor *sum, const ls_tensor *y,
                                        const ls_tensor *mean, const ls_tensor *rstd)
{
    ls_norm_forward_args args = {.units = units_of(norm, a),
                                 .a = a->data,
                                 .b = b->data,
                                 .sum = sum->data,
                                 .y = y->data,
                                 .weight = norm->weight.data,
                                 .bias = norm->bias.data,
                                 .mean = floats_of(mean),
                                 .rstd = rstd->data,
                                 .a_stride = a->stride,
                                 .b_stride = b->stride,
                                 .sum_stride = sum->stride,
                                 .y_stride = y->stride,
                                 .mean_stride = stride_of(mean),
                                 .rstd_stride = rstd->stride};
    args.units.vector = is_vector(norm, args.units.width, (const ls_tensor *[]){a, b, sum, y}, 4);
    return launch_forward(queue, &args, a->dtype);
}

static ls_cuda_kernel backward_kernel(bool is_layer, ls_dtype dtype, uint32_t octets)
{
    static const ls_cuda_kernel kernels[2][2][2] = {
        {{{"norm", "norm_backward_rms_f32_2"}, {"norm", "norm_backward_rms_f32_3"}},
         {{"norm", "norm_backward_rms_bf16_2"}, {"norm", "norm_backward_rms_bf16_3"}}},
        {{{"norm", "norm_backward_layer_f32_2"}, {"norm", "norm_backward_layer_f32_3"}},
         {{"norm", "norm_backward_layer_bf16_2"}, {"norm", "norm_backward_layer_bf16_3"}}},
    };
    return kernels[is_layer][dtype == LS_BF16][octets - 2];
}

/* Adds the tiles' sums. */
static ls_status combine(ls_queue *queue, const ls_norm_backward_args *args, int64_t tiles, float *dweight,
                         float *dbias, bool accumulate)
{
    const int64_t width = args->units.width;
    return ls_cuda_combine_parts(ls_cuda_of(queue),
                                 &(ls_combine_parts_args){.parts = args->parts,
                                                          .count = tiles,
                                                          .cols = width,
                                                          .stride = args->units.is_layer ? 2 * width : width,
                                                          .out = {dweight, dbias},
                                                          .accumulate = accumulate});
}

ls_status ls_cuda_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x, const ls_tensor *dy,
                                const ls_tensor *mean, const ls_tensor *rstd, const ls_tensor *dx,
                                bool accumulate_input, const ls_tensor *dweight, const ls_tensor *dbias,
                                bool accumulate_weight, const ls_tensor *workspace)
{
    ls_norm_backward_args args = {.units = units_of(norm, x),
                                  .x = x->data,
                                  .dy = dy->data,
                                  .weight = norm->weight.data,
                                  .mean = floats_of(mean),
                                  .rstd = rstd->data,
                                  .dx = dx->data,
                                  .parts = workspace->data,
                                  .x_stride = x->stride,
                                  .dy_stride = dy->stride,
                                  .dx_stride = dx->stride,
                                  .mean_stride = stride_of(mean),
                                  .rstd_stride = rstd->stride,
                                  .accumulate = accumulate_input};
    const geometry g = geometry_of(args.units.width);
    const bool is_layer = norm->kind == LS_NORM_LAYER;
    const int64_t size = tile_units(args.units.count, g), tiles = ceil_div(args.units.count, size);
    args.units.vector = is_vector(norm, args.units.width, (const ls_tensor *[]){x, dy, dx}, 3);
    args.tile_units = (uint32_t)size;
    if (tiles > 0) {
        const uint32_t floats = g.block_threads / g.team * (uint32_t)args.units.width;
        LS_TRY(ls_cuda_launch(ls_cuda_of(queue), backward_kernel(is_layer, x->dtype, g.octets),
                              (ls_cuda_grid){.x = (uint32_t)tiles,
                                             .threads = g.block_threads,
                                             .shared_bytes = floats * (uint32_t)sizeof(float)},
                              &args));
    }
    return combine(queue, &args, tiles, floats_of(dweight), is_layer ? floats_of(dbias) : NULL,
                   accumulate_weight);
}

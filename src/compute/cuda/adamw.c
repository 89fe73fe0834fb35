// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/blocks.h"
#include "compute/cuda/device/adamw.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/kernels/adamw.h"

static bool runs_are_aligned(const ls_adamw_args *args)
{
    const bool parameters = args->values
                                ? ls_cuda_is_aligned(args->values, 16)
                                : ls_cuda_is_aligned(args->weights, 8) && ls_cuda_is_aligned(args->rests, 8);
    return parameters && ls_cuda_is_aligned(args->gradients, 16) && ls_cuda_is_aligned(args->m, 16) &&
           ls_cuda_is_aligned(args->v, 16);
}

ls_status ls_cuda_adamw(ls_queue *queue, const ls_adamw_factors *factors, int64_t count,
                        const ls_master *parameters, const float *gradients, float *m, float *v)
{
    if (count == 0) {
        return LS_OK;
    }
    ls_adamw_args args = {
        .count = count,
        .values = parameters->values,
        .weights = parameters->weights,
        .rests = parameters->rests,
        .gradients = gradients,
        .m = m,
        .v = v,
        .gradient_scale = factors->gradient_scale,
        .beta1 = factors->beta1,
        .one_minus_beta1 = factors->one_minus_beta1,
        .beta2 = factors->beta2,
        .one_minus_beta2 = factors->one_minus_beta2,
        .eps = factors->eps,
        .step_size = factors->step_size,
        .inverse_root_v = factors->inverse_root_v,
        .one_minus_decay = factors->one_minus_decay,
    };
    args.aligned = runs_are_aligned(&args);
    const ls_cuda_kernel kernel = {"adamw", args.values ? "adamw_values" : "adamw_split"};
    const ls_cuda_grid grid = {.x = ls_cuda_blocks(count, LS_ADAMW_THREADS * LS_ADAMW_RUNS * 4),
                               .threads = LS_ADAMW_THREADS};
    return ls_cuda_launch(ls_cuda_of(queue), kernel, grid, &args);
}

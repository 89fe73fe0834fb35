// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/adamw.h"

#include "compute/cpu/isa/adamw.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <math.h>

enum { SPAN_ELEMENTS = 32768 };

/* base^exponent by repeated squaring: the same bits with any C library. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1, base *= base) {
        if (exponent & 1) {
            result *= base;
        }
    }
    return result;
}

typedef struct adamw_job {
    const ls_adamw_kernels *kernels;
    ls_adamw_factors factors;
    int64_t count;
    float *p, *m, *v;
    const float *g;
} adamw_job;

static void tile_update(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const adamw_job *job = context;
    const int64_t i = tile * SPAN_ELEMENTS;
    job->kernels->update(&job->factors, job->p + i, job->g + i, job->m + i, job->v + i,
                         ls_min64(SPAN_ELEMENTS, job->count - i));
}

ls_adamw_factors ls_adamw_factors_of(const ls_adamw *adamw)
{
    LS_ASSERT(adamw->step >= 1 && adamw->beta1 >= 0.0f && adamw->beta1 < 1.0f);
    LS_ASSERT(adamw->beta2 >= 0.0f && adamw->beta2 < 1.0f);
    const double lr = adamw->lr, beta1 = adamw->beta1, beta2 = adamw->beta2;
    return (ls_adamw_factors){
        .gradient_scale = adamw->gradient_scale,
        .beta1 = adamw->beta1,
        .one_minus_beta1 = (float)(1.0 - beta1),
        .beta2 = adamw->beta2,
        .one_minus_beta2 = (float)(1.0 - beta2),
        .eps = adamw->eps,
        .step_size = (float)(lr / (1.0 - power(beta1, adamw->step))),
        .inverse_root_v = (float)(1.0 / sqrt(1.0 - power(beta2, adamw->step))),
        .one_minus_decay = (float)(1.0 - lr * adamw->weight_decay),
    };
}

ls_status ls_adamw_update(ls_queue *queue, const ls_adamw *adamw, int64_t count, float *parameters,
                          const float *gradients, float *m, float *v)
{
    LS_ASSERT(count >= 0 && (count == 0 || (parameters && gradients && m && v)));
    adamw_job job = {.kernels = ls_queue_kernels(queue)->adamw,
                     .factors = ls_adamw_factors_of(adamw),
                     .count = count,
                     .p = parameters,
                     .g = gradients,
                     .m = m,
                     .v = v};
    ls_queue_run_tiles(queue, ls_ceil_div(count, SPAN_ELEMENTS), tile_update, &job);
    return LS_OK;
}

void ls_adamw_update_piece(const ls_queue *queue, const ls_adamw_factors *factors, int64_t count,
                           float *parameters, const float *gradients, float *m, float *v)
{
    ls_queue_kernels(queue)->adamw->update(factors, parameters, gradients, m, v, count);
}

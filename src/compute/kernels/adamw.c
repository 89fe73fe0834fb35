// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/adamw.h"

#include "base/assert.h"
#include "compute/backend.h"

#include <math.h>

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

ls_adamw_factors ls_adamw_factors_of(const ls_adamw *adamw)
{
    LS_ASSERT(adamw->step >= 1 && adamw->beta1 >= 0.0f && adamw->beta1 < 1.0f);
    LS_ASSERT(adamw->beta2 >= 0.0f && adamw->beta2 < 1.0f);
    const double lr = adamw->lr, beta1 = adamw->beta1, beta2 = adamw->beta2;
    ls_adamw_factors factors = {
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
    if (adamw->is_update) { /* the divisor is sqrt(0) + 1 */
        factors.beta1 = factors.one_minus_beta2 = 0.0f;
        factors.one_minus_beta1 = factors.beta2 = factors.eps = 1.0f;
        factors.step_size = adamw->lr;
    }
    return factors;
}

ls_status ls_adamw_update(ls_queue *queue, const ls_adamw_factors *factors, int64_t count,
                          const ls_master *parameters, const float *gradients, float *m, float *v)
{
    LS_ASSERT(count >= 0 && (count == 0 || (gradients && m && v)));
    LS_ASSERT(count == 0 || parameters->values || (parameters->weights && parameters->rests));
    return queue->backend->adamw(queue, factors, count, parameters, gradients, m, v);
}

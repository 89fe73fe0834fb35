// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/adamw.h"

#include "base/assert.h"
#include "compute/cpu/isa/adamw.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"

ls_status ls_cpu_adamw(ls_queue *queue, const ls_adamw_factors *factors, int64_t count,
                       const ls_master *parameters, const float *gradients, float *m, float *v)
{
    LS_ASSERT(count == 0 || parameters->values);
    ls_queue_kernels(queue)->adamw->update(factors, parameters->values, gradients, m, v, count);
    return LS_OK;
}

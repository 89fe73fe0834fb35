// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/isa/adamw.h"

#include "compute/cpu/simd/simd.h"

extern const ls_adamw_kernels LS_ISA_NAME(ls_adamw_kernels);

/*
 * m' = beta1 m + (1 - beta1) g,  v' = beta2 v + (1 - beta2) g^2,
 * p' = p (1 - lr wd) - step_size m' / (sqrt(v') inverse_root_v + eps).
 */
static void update(const ls_adamw_factors *f, float *p, const float *g, float *m, float *v, int64_t count)
{
    const vf scale = vf_set(f->gradient_scale), eps = vf_set(f->eps);
    const vf beta1 = vf_set(f->beta1), beta2 = vf_set(f->beta2);
    const vf rest1 = vf_set(f->one_minus_beta1), rest2 = vf_set(f->one_minus_beta2);
    const vf step = vf_set(f->step_size), root = vf_set(f->inverse_root_v), keep = vf_set(f->one_minus_decay);
    for (int64_t i = 0; i < count; i += LS_LANES) {
        const int64_t left = count - i;
        const vf gi = vf_mul(vf_load_tail(g + i, left), scale);
        const vf mi = vf_fma(beta1, vf_load_tail(m + i, left), vf_mul(rest1, gi));
        const vf vi_ = vf_fma(beta2, vf_load_tail(v + i, left), vf_mul(rest2, vf_mul(gi, gi)));
        const vf divisor = vf_fma(vf_sqrt(vi_), root, eps);
        const vf change = vf_div(vf_mul(step, mi), divisor);
        vf_store_tail(m + i, mi, left);
        vf_store_tail(v + i, vi_, left);
        vf_store_tail(p + i, vf_sub(vf_mul(vf_load_tail(p + i, left), keep), change), left);
    }
}

const ls_adamw_kernels LS_ISA_NAME(ls_adamw_kernels) = {.update = update};

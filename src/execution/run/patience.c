// SPDX-License-Identifier: Apache-2.0
#include "execution/run/patience.h"

#include <math.h>

bool ls_patience_add(ls_patience *p, uint64_t step, double val_loss)
{
    if (step <= p->last_step) {
        return false;
    }
    p->last_step = step;
    const bool falls = val_loss < p->best_loss && p->best_loss - val_loss >= p->min_delta;
    if (!isfinite(val_loss) || (p->best_step > 0 && !falls)) {
        p->waited++;
        return false;
    }
    p->best_loss = val_loss;
    p->best_step = step;
    p->waited = 0;
    return true;
}

bool ls_patience_is_over(const ls_patience *p)
{
    return p->limit > 0 && p->waited >= p->limit;
}

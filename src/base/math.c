// SPDX-License-Identifier: Apache-2.0
#include "base/math.h"

#include "base/assert.h"

#include <stdlib.h>

static int compare_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ls_sort_f64(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_f64);
}

double ls_quantile_f64(const double *sorted, size_t count, double share)
{
    LS_ASSERT(count >= 1 && share >= 0.0 && share <= 1.0);
    const double place = share * (double)(count - 1);
    const size_t below = (size_t)place;
    const size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

double ls_median_f64(double *values, size_t count)
{
    LS_ASSERT(count >= 1);
    ls_sort_f64(values, count);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

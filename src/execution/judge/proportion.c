// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/proportion.h"

#include "base/math.h"

#include <math.h>

/* 95 % of the normal distribution lie within this many standard deviations. */
static const double normal_95 = 1.959963984540054;

ls_interval ls_share_interval(uint64_t right, uint64_t count)
{
    const double n = (double)count, p = (double)right / n, z = normal_95;
    const double middle = p + z * z / (2.0 * n);
    const double half = z * sqrt(p * (1.0 - p) / n + z * z / (4.0 * n * n));
    const double scale = 1.0 + z * z / n;
    return (ls_interval){right == 0 ? 0.0 : (middle - half) / scale,
                         right == count ? 1.0 : (middle + half) / scale};
}

double ls_share_error(uint64_t right, uint64_t count)
{
    const double p = (double)right / (double)count;
    return count < 2 ? 0.0 : sqrt(p * (1.0 - p) / (double)(count - 1));
}

ls_interval ls_paired_interval(const ls_paired *paired)
{
    const double n = (double)paired->count + 2.0;
    const double gained = ((double)paired->gained + 1.0) / n, lost = ((double)paired->lost + 1.0) / n;
    const double difference = gained - lost;
    const double half = normal_95 * sqrt((gained + lost - difference * difference) / n);
    return (ls_interval){fmax(difference - half, -1.0), fmin(difference + half, 1.0)};
}

double ls_paired_p_value(const ls_paired *paired)
{
    const uint64_t n = paired->gained + paired->lost;
    const uint64_t fewer = ls_min_u64(paired->gained, paired->lost);
    /* Terms of the binomial distribution with p = 1/2, in logarithms: 2^-n can underflow. */
    double tail = 0.0, term = -(double)n * log(2.0);
    for (uint64_t k = 0; k <= fewer; k++) {
        tail += exp(term);
        term += log((double)(n - k)) - log((double)(k + 1));
    }
    return fmin(1.0, 2.0 * tail);
}

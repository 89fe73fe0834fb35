// SPDX-License-Identifier: Apache-2.0
#include "planning/money/failure_interval.h"

#include "base/assert.h"

#include <math.h>

double ls_interval_young_s(double cost_s, double mtbf_s)
{
    LS_ASSERT(cost_s > 0.0 && mtbf_s > 0.0);
    return sqrt(2.0 * cost_s * mtbf_s);
}

double ls_interval_daly_s(double cost_s, double mtbf_s)
{
    LS_ASSERT(cost_s > 0.0 && mtbf_s > 0.0);
    if (cost_s >= 2.0 * mtbf_s) {
        return mtbf_s;
    }
    const double share = cost_s / (2.0 * mtbf_s);
    return ls_interval_young_s(cost_s, mtbf_s) * (1.0 + sqrt(share) / 3.0 + share / 9.0) - cost_s;
}

double ls_interval_exact_s(double cost_s, double mtbf_s)
{
    LS_ASSERT(cost_s > 0.0 && mtbf_s > 0.0);
    const double cost = cost_s / mtbf_s;
    if (cost >= 2.0) {
        return mtbf_s;
    }
    /* f(t) = (t - 1) e^t + e^-cost for t = T / M. f(0) <= 0 < f(1), and f is convex where it is
     * positive, so Newton's method from the right descends to the root. */
    double t = fmin(sqrt(2.0 * cost), 1.0);
    for (int i = 0; i < 60; i++) {
        const double f = (t - 1.0) * exp(t) + exp(-cost), slope = t * exp(t);
        const double next = t - f / slope;
        if (!(next > 0.0) || fabs(next - t) <= 1e-12 * t) {
            break;
        }
        t = next;
    }
    return t * mtbf_s;
}

double ls_interval_lost_first(double interval_s, double cost_s, double mtbf_s, double restart_s)
{
    return cost_s / interval_s + (interval_s / 2.0 + restart_s) / mtbf_s;
}

double ls_interval_lost_exact(double interval_s, double cost_s, double mtbf_s, double restart_s)
{
    const double wall = mtbf_s / interval_s * exp(restart_s / mtbf_s) * expm1((interval_s + cost_s) / mtbf_s);
    return 1.0 - 1.0 / wall;
}

double ls_interval_lost(double interval_s, double cost_s, double mtbf_s, double restart_s)
{
    const double first = ls_interval_lost_first(interval_s, cost_s, mtbf_s, restart_s);
    return first <= LS_INTERVAL_FIRST_ORDER_LOSS
               ? first
               : ls_interval_lost_exact(interval_s, cost_s, mtbf_s, restart_s);
}

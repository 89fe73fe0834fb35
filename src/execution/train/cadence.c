// SPDX-License-Identifier: Apache-2.0
#include "execution/train/cadence.h"

#include "planning/money/interval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void ls_cadence_update(ls_cadence *c)
{
    enum { LEAST_COST_MS = 1 };
    c->failure_every_s = (LS_CADENCE_PRIOR_S + c->trained_s) / (1.0 + (double)c->failures);
    const double cost_s = fmax(c->stall_s, 1e-3 * LEAST_COST_MS);
    const double least_s = fmax(LS_CADENCE_INTERVAL_S, c->write_s / LS_CADENCE_WRITE_SHARE);
    const double best_s = ls_interval_exact_s(cost_s, c->failure_every_s);
    c->interval_s = fmax(least_s, fmin(best_s, LS_CADENCE_LONGEST_S));
    c->lost_fraction = ls_interval_lost_exact(c->interval_s, c->stall_s, c->failure_every_s, c->recovery_s);
}

uint64_t ls_cadence_steps(const ls_cadence *cadence, double step_s)
{
    const double steps = step_s > 0.0 ? cadence->interval_s / step_s : 1.0;
    return steps < 1.0 ? 1 : steps > 1e15 ? (uint64_t)1e15 : (uint64_t)steps;
}

static void print_duration(char *text, size_t bytes, double seconds)
{
    if (seconds < 120.0) {
        snprintf(text, bytes, seconds < 10.0 ? "%.2g s" : "%.0f s", seconds);
    } else if (seconds < 7200.0) {
        snprintf(text, bytes, "%.0f min", seconds / 60.0);
    } else {
        snprintf(text, bytes, "%.1f h", seconds / 3600.0);
    }
}

void ls_cadence_describe(const ls_cadence *cadence, double step_s, char *text_out, size_t text_bytes)
{
    char interval[32], stall[32], failure[32];
    print_duration(interval, sizeof interval, cadence->interval_s);
    print_duration(stall, sizeof stall, cadence->stall_s);
    print_duration(failure, sizeof failure, cadence->failure_every_s);
    snprintf(text_out, text_bytes,
             "a checkpoint every %s (%" PRIu64
             " steps): it stalls %s, a failure every %s, %.2g %% of the time lost",
             interval, ls_cadence_steps(cadence, step_s), stall, failure, 100.0 * cadence->lost_fraction);
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/run/checkpoint_interval.h"

#include "planning/money/failure_interval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void ls_checkpoint_interval_update(ls_checkpoint_interval *c)
{
    enum { LEAST_COST_MS = 1 };
    c->failure_every_s = (LS_CHECKPOINT_INTERVAL_PRIOR_S + c->trained_s) / (1.0 + (double)c->failures);
    const double cost_s = fmax(c->stall_s, 1e-3 * LEAST_COST_MS);
    const double least_s =
        fmax(LS_CHECKPOINT_INTERVAL_SHORTEST_S, c->write_s / LS_CHECKPOINT_INTERVAL_WRITE_SHARE);
    const double best_s = ls_interval_exact_s(cost_s, c->failure_every_s);
    c->interval_s = fmax(least_s, fmin(best_s, LS_CHECKPOINT_INTERVAL_LONGEST_S));
    c->lost_fraction = ls_interval_lost_exact(c->interval_s, c->stall_s, c->failure_every_s, c->recovery_s);
}

uint64_t ls_checkpoint_interval_steps(const ls_checkpoint_interval *interval, double step_s)
{
    const double steps = step_s > 0.0 ? interval->interval_s / step_s : 1.0;
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

void ls_checkpoint_interval_describe(const ls_checkpoint_interval *interval, double step_s, char *text_out,
                                     size_t text_bytes)
{
    char every[32], stall[32], failure[32];
    const uint64_t steps = ls_checkpoint_interval_steps(interval, step_s);
    print_duration(every, sizeof every, interval->interval_s);
    print_duration(stall, sizeof stall, interval->stall_s);
    print_duration(failure, sizeof failure, interval->failure_every_s);
    snprintf(text_out, text_bytes,
             "a checkpoint every %s (%" PRIu64
             " step%s): each one stops training for %s; if a failure happens every %s, %.2g %% of the time "
             "is lost to saving and repeating",
             every, steps, steps == 1 ? "" : "s", stall, failure, 100.0 * interval->lost_fraction);
}

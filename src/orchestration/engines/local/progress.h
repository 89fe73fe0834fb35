// SPDX-License-Identifier: Apache-2.0
/*
 * Progress of a training run: how far it is and how long it will still take, from the newest lines
 * of its metrics.jsonl.
 *
 *   left = (steps - step) * time of a step - time since that step was seen
 *
 * The time of a step is measured on the run itself, from when two lines were written; the older one
 * is from the middle of the time that it has had its devices, so that evaluations, checkpoints and
 * pauses count. Until two lines are a second apart the time is not known, except for steps that
 * take that long: those report it themselves.
 *
 * Pure; one owner.
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_PROGRESS_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_LOCAL_PROGRESS_SPAN_NS UINT64_C(1000000000)

enum { LS_LOCAL_SAMPLES_MAX = 32 };

typedef struct ls_local_progress {
    uint64_t steps;          /* of the whole run; 0: not known */
    uint64_t step, old_step; /* steps done; steps done on other devices or in an earlier start */
    double seen_s;           /* when `step` was first seen */
    double step_s;           /* time of a step as its newest lines report; 0: not known */
    struct {
        uint64_t step;
        double written_s;
    } samples[LS_LOCAL_SAMPLES_MAX]; /* thinned out, so that they cover the whole time */
    uint32_t sample_count;
} ls_local_progress;

/* It has other devices now: earlier measurements no longer count. */
void ls_local_progress_restart(ls_local_progress *progress);

/*
 * Takes the end of metrics.jsonl, which was last written at written_s. true: there is a new step.
 */
bool ls_local_progress_feed(ls_local_progress *progress, const char *tail, size_t bytes, double written_s,
                            double now_s);

#define LS_LOCAL_LEFT_MAX_S 1e9

/* Above 0, at most LS_LOCAL_LEFT_MAX_S; 0: not known. */
double ls_local_progress_left_s(const ls_local_progress *progress, double now_s);

#endif

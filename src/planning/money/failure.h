// SPDX-License-Identifier: Apache-2.0
/*
 * How often a job fails, and how much of its time is productive:
 * goodput = scheduling * runtime * program (the names of Google's ML Productivity Goodput).
 *
 *   scheduling  share of the time in which all GPUs of the job are available: M / (M + wait)
 *   runtime     share of that which becomes progress that is kept, without checkpoint stalls,
 *               repeated work and restarts: 1 - lost (planning/money/failure_interval.h)
 *   program     share of that which the program spends in training steps rather than in evaluation
 *               or waiting for data: given, 1 by default. How well a step uses the peak of its GPUs
 *               is the MFU, which is part of the step time and not counted again.
 *
 * Failures: M = 1 / (gpus / M_gpu + nodes * preemptions). M_gpu comes from Llama 3: 419 unexpected
 * interruptions in 54 days on 16,384 H100 are 50,677 hours (5.8 years) per GPU, with the hosts, the
 * network and the software that belong to it (The Llama 3 Herd of Models, 2024, table 5). Pure.
 */
#ifndef LS_PLANNING_MONEY_FAILURE_H
#define LS_PLANNING_MONEY_FAILURE_H

#include "base/text.h"
#include "planning/assumptions.h"

#include <stdbool.h>
#include <stdint.h>

#define LS_FAILURE_GPU_MTBF_S (50677.0 * 3600.0)
/* From a failure to the first new step, on a large cluster. */
#define LS_FAILURE_RESTART_S     600.0
#define LS_FAILURE_STALL_LEAST_S 1.0 /* For a checkpoint all ranks synchronise. */
/* Preemptions of a node per day: a guess; the rate differs between regions and weeks. */
#define LS_FAILURE_SPOT_PER_DAY 1.0
#define LS_FAILURE_SPOT_WAIT_S  600.0 /* Until another node is available. */
/* bf16 weights, fp32 master copy and two moments. */
#define LS_CHECKPOINT_BYTES_PER_PARAMETER        14.0
#define LS_CHECKPOINT_EXPORT_BYTES_PER_PARAMETER 2.0

typedef struct ls_failure_setting {
    int64_t gpus;          /* >= 1 */
    int64_t gpus_per_node; /* >= 1 */
    double gpu_mtbf_s;     /* 0: LS_FAILURE_GPU_MTBF_S */
    /* A machine on a desk. There are no failure statistics for those: the cluster's are used, and
     * an assumption says so. */
    bool is_desk;
    double preemptions_per_day; /* Preemptions of one node per day; 0: it is never preempted. */
    /* Parameters of the model, which decide the size of a checkpoint. */
    double parameters;
    /* Speed of one GPU's copy to its host, which is the stall of an asynchronous checkpoint; 0:
     * 25e9. */
    double snapshot_bytes_ps;
    double storage_bytes_ps; /* Of the whole job; must be > 0 with `synchronous`. */
    bool synchronous;        /* Training waits until the checkpoint is stored. */
    double stall_s;          /* > 0: the measured stall, in place of the computed one. */
    double restart_s;        /* 0: LS_FAILURE_RESTART_S */
    /* After each failure, until all GPUs are available again; 0 with spares at hand. */
    double wait_s;
    /* Between checkpoints; 0: Young's interval, or the exact optimum where more than 20 % is
     * lost. */
    double interval_s;
    double program; /* 0: 1 */
} ls_failure_setting;

typedef struct ls_failure_estimate {
    double mtbf_s; /* Of the whole job. */
    double checkpoint_bytes, stall_s;
    double interval_s; /* The interval that is used. */
    double interval_young_s, interval_daly_s, interval_exact_s;
    double scheduling, runtime, program, goodput; /* 0..1 */
    /* Whether `runtime` was computed by the exact form. */
    bool exact;
} ls_failure_estimate;

/* The caller ensures that fields are within their ranges. */
void ls_failure_compute(const ls_failure_setting *setting, ls_failure_estimate *estimate_out);

/* Adds the assumptions: failure rate, restart time, stall, spot preemptions. */
void ls_failure_assume(const ls_failure_setting *setting, ls_assumptions *list);

/* --explain goodput: the formula, then its values, one line per step, the result last. */
void ls_failure_explain(const ls_failure_setting *setting, ls_text *text);

#endif

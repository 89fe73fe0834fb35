// SPDX-License-Identifier: Apache-2.0
/*
 * How often a job fails, and what is left of its time: goodput = scheduling * runtime * program (the names are those of Google's ML Productivity Goodput).
 *
 *   scheduling  share of the time in which all GPUs of the job are there                M / (M + wait)
 *   runtime     of that, what becomes progress that is kept: no checkpoint stalls, no   1 - lost (planning/money/interval.h)
 *               work done twice, no restarts
 *   program     of that, what the program spends in training steps, not in evaluation   given, 1 by default
 *               or waiting for data. What a step does with the peak of its GPUs is the MFU, is in the step time already and not counted twice.
 *
 * Failures: M = 1 / (gpus / M_gpu + nodes * preemptions). M_gpu is that of Llama 3: 419 unexpected interruptions in 54 days on 16,384 H100 make 50,677 hours
 * (5.8 years) per GPU, hosts, network and software of each GPU's share in it (The Llama 3 Herd of Models, 2024, table 5).
 * Pure.
 */
#ifndef LS_PLANNING_MONEY_FAILURE_H
#define LS_PLANNING_MONEY_FAILURE_H

#include "base/text.h"
#include "planning/assumptions.h"

#include <stdbool.h>
#include <stdint.h>

#define LS_FAILURE_GPU_MTBF_S    (50677.0 * 3600.0)
#define LS_FAILURE_RESTART_S     600.0 /* from a failure to the first new step, on a large cluster */
#define LS_FAILURE_STALL_LEAST_S 1.0   /* a checkpoint makes all ranks meet */
#define LS_FAILURE_SPOT_PER_DAY                                                                              \
    1.0 /* preemptions of a node: a guess; the rate differs between regions and weeks */
#define LS_FAILURE_SPOT_WAIT_S                   600.0 /* until another node is there */
#define LS_CHECKPOINT_BYTES_PER_PARAMETER        14.0  /* bf16 weights, fp32 master copy and two moments */
#define LS_CHECKPOINT_EXPORT_BYTES_PER_PARAMETER 2.0

typedef struct ls_failure_setting {
    int64_t gpus;          /* >= 1 */
    int64_t gpus_per_node; /* >= 1 */
    double gpu_mtbf_s;     /* 0: LS_FAILURE_GPU_MTBF_S */
    bool
        is_desk; /* a machine on a desk, of which there are no statistics: those of the cluster are taken, and it is said */
    double preemptions_per_day; /* of one node; 0 where nobody takes it away */
    double parameters;          /* of the model: the checkpoint's size */
    double
        snapshot_bytes_ps; /* from one GPU to its host: that is what an asynchronous checkpoint stalls; 0: 25e9 */
    double storage_bytes_ps; /* of the whole job; > 0 with synchronous */
    bool synchronous;        /* training waits for the storage */
    double stall_s;          /* > 0: measured, instead of what follows from the above */
    double restart_s;        /* 0: LS_FAILURE_RESTART_S */
    double wait_s;           /* after each failure, until all GPUs are there again; 0 with spares at hand */
    double
        interval_s; /* between checkpoints; 0: Young's, and the exact optimum where more than 20 % is lost */
    double program; /* 0: 1 */
} ls_failure_setting;

typedef struct ls_failure_estimate {
    double mtbf_s; /* of the job */
    double checkpoint_bytes, stall_s;
    double interval_s; /* the one used */
    double interval_young_s, interval_daly_s, interval_exact_s;
    double scheduling, runtime, program, goodput; /* 0..1 */
    bool exact;                                   /* runtime by the exact form */
} ls_failure_estimate;

/* Fields in their ranges are the caller's business (the CLI checks what a person writes). */
void ls_failure_compute(const ls_failure_setting *setting, ls_failure_estimate *estimate_out);

/* Names what was taken: failure rate, restart, stall, spot. */
void ls_failure_assume(const ls_failure_setting *setting, ls_assumptions *list);

/* Formula, then the numbers in, one line each step, the result last: --explain goodput. */
void ls_failure_explain(const ls_failure_setting *setting, ls_text *text);

#endif

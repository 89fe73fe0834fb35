// SPDX-License-Identifier: Apache-2.0
/*
 * Probes: each kernel of training, called once with given sizes on memory that looks like that of a step.
 *
 * In a step what a kernel reads was written a few kernels ago, or a whole pass ago. So a probe's operands move on with each call through a window
 * of several times what one call touches: small models stay in the caches, as they do in training, and large ones don't.
 *
 * A bench belongs to one thread.
 */
#ifndef LS_EXECUTION_CALIBRATE_PROBE_H
#define LS_EXECUTION_CALIBRATE_PROBE_H

#include "compute/queue.h"
#include "planning/hardware/calibration.h"

typedef struct ls_probe_bench ls_probe_bench;

/* A queue of `threads` threads with operands to try kernels on. Errors: LS_ERR_MEMORY, those of ls_queue_create_cpu. */
LS_MUST_CHECK ls_status ls_probe_bench_create(uint32_t threads, ls_probe_bench **bench_out);
void ls_probe_bench_destroy(ls_probe_bench *bench);
ls_queue *ls_probe_bench_queue(const ls_probe_bench *bench);

/* Memory that a bench of so many threads takes. */
uint64_t ls_probe_bench_bytes(uint32_t threads);

/* Makes ready for calls of `work` with these sizes (as in planning/hardware/calibration.h): warms up with one call. Errors: those of the kernel. */
LS_MUST_CHECK ls_status ls_probe_begin(ls_probe_bench *bench, ls_work work, const double *sizes);
/* Calls it again and again for at least `least_s`, at least once; seconds of a call. */
LS_MUST_CHECK ls_status ls_probe_run(ls_probe_bench *bench, double least_s, double *seconds_out);
/* Share of the time of all calls so far that its thread ran: below 1 the machine had other things to do. 1 with several threads. */
double ls_probe_undisturbed(const ls_probe_bench *bench);
/* Seconds of a kernel whose tiles do nothing, one for each thread. */
double ls_probe_launch_s(ls_probe_bench *bench);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Probes: each kernel of training, called with given sizes on memory that is as warm as in a step.
 *
 * In a step, what a kernel reads was written a few kernels ago or a whole pass ago. So with each
 * call, the operands of a probe move on through a window several times as large as what one call
 * touches. The operands of small models thus stay in the caches, as they do in training, and those
 * of large models do not:
 *
 *   region  | call 0 | call 1 | call 2 | call 3 |          | (4 calls, then again from call 0)
 *
 * Weights and gradients come from a region several times as large as the caches, in which the calls
 * of one kernel begin where those of the last ended: a few calls of a large product find nothing
 * that is warm. A small window is read before.
 *
 * A bench belongs to one thread.
 */
#ifndef LS_EXECUTION_CALIBRATE_PROBE_H
#define LS_EXECUTION_CALIBRATE_PROBE_H

#include "compute/queue.h"
#include "planning/hardware/calibration.h"

typedef struct ls_probe_bench ls_probe_bench;

/* Makes a queue of `threads` threads, with operands to call kernels on. as_rank: weights, gradients
 * and moments lie in memory that processes can share, as in a run with several ranks, which seldom
 * has huge pages. Errors: LS_ERR_MEMORY, those of ls_queue_create_cpu. */
LS_MUST_CHECK ls_status ls_probe_bench_create(uint32_t threads, bool as_rank, ls_probe_bench **bench_out);
void ls_probe_bench_destroy(ls_probe_bench *bench);

/* Memory that a bench of `threads` threads takes. */
uint64_t ls_probe_bench_bytes(uint32_t threads);

/* Prepares calls of `work` with these sizes (see planning/hardware/calibration.h) and makes one
 * call to warm up. Errors: those of the kernel. */
LS_MUST_CHECK ls_status ls_probe_begin(ls_probe_bench *bench, ls_work work, const double *sizes);
/* Repeats the call for at least `least_s`, at least once. seconds_out: the time of one call. */
LS_MUST_CHECK ls_status ls_probe_run(ls_probe_bench *bench, double least_s, double *seconds_out);
/* The share of the time of all calls so far in which the thread actually ran: below 1, the machine
 * was busy with other work. Always 1 with several threads. */
double ls_probe_undisturbed(const ls_probe_bench *bench);
/* Seconds that it takes to launch a kernel: one whose tiles do nothing, one tile per thread. */
double ls_probe_launch_s(ls_probe_bench *bench);

#endif

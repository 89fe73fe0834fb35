// SPDX-License-Identifier: Apache-2.0
/*
 * Meter: what a training run costs while it trains, and whether it has reached its cap.
 *
 *   cost = earlier starts + devices * seconds * price of a device for an hour / 3600
 *
 * In a job of the queue, the queue tells the price and what the job has cost before this start
 * (LOCKSTEP_PRICE and LOCKSTEP_SPENT, engines/local/runner.h). Otherwise the price is job.price,
 * and the time log of the run has the cost of earlier starts. The run stops by itself at
 * job.max_cost: no daemon has to be there.
 *
 * Pure but for ls_meter_open and ls_meter_room, which read the environment. Used by one thread.
 */
#ifndef LS_EXECUTION_RUN_METER_H
#define LS_EXECUTION_RUN_METER_H

#include "base/status.h"
#include "config/run_file.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_meter {
    double cap_usd;    /* 0: none */
    double price_usd;  /* of a device for an hour; 0: not known */
    double before_usd; /* of earlier starts */
    double own_usd;    /* of this process, up to at_s */
    double at_s;       /* monotonic */
    uint32_t devices;  /* that it has since then */
} ls_meter;

/*
 * begun_s: when this process began, monotonic. earlier_usd: cost of the starts in the time log.
 * Errors: LS_ERR_INVALID when there is a cap and no price, or when earlier starts, outside the
 * queue, have reached the cap.
 */
LS_MUST_CHECK ls_status ls_meter_open(const ls_run_job *job, uint32_t devices, double begun_s,
                                      double earlier_usd, ls_meter *meter_out);
/*
 * What the checkpoints may hold together for checkpoint.budget, at checkpoint.price or that of the
 * queue (LOCKSTEP_STORAGE_PRICE); 0: no limit. Errors: LS_ERR_INVALID when the price is not known.
 */
LS_MUST_CHECK ls_status ls_meter_room(const ls_run_checkpoint *checkpoint, uint64_t *bytes_out);
/* The run has this many devices from now_s on. Returns the cost of this process so far. */
double ls_meter_note(ls_meter *meter, uint32_t devices, double now_s);
/* The cost of all starts up to now_s. */
double ls_meter_usd(const ls_meter *meter, double now_s);
bool ls_meter_is_over(const ls_meter *meter, double now_s);

#endif

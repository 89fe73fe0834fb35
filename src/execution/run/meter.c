// SPDX-License-Identifier: Apache-2.0
#include "execution/run/meter.h"

#include <math.h>
#include <stdlib.h>

/* An amount that the queue has put into the environment; NAN: none. */
static double told(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    const double amount = text && text[0] ? strtod(text, &end) : NAN;
    return end && *end == '\0' && amount >= 0.0 && amount <= 1e12 ? amount : NAN;
}

ls_status ls_meter_open(const ls_run_job *job, uint32_t devices, double begun_s, double earlier_usd,
                        ls_meter *meter_out)
{
    const double price = told("LOCKSTEP_PRICE"), spent = told("LOCKSTEP_SPENT");
    const bool is_queued = price > 0.0 && !isnan(spent);
    ls_meter meter = {.before_usd = is_queued ? spent : earlier_usd, .at_s = begun_s, .devices = devices};
    meter.cap_usd = job->max_cost_usd != LS_AUTO_F64 ? job->max_cost_usd : 0.0;
    meter.price_usd = is_queued ? price : job->price_usd != LS_AUTO_F64 ? job->price_usd : 0.0;
    if (meter.cap_usd > 0.0 && meter.price_usd <= 0.0) {
        return ls_fail(
            LS_ERR_INVALID,
            "job.max_cost is %.2f USD, but the price of a device is not known, so the cap cannot be "
            "kept: set job.price, the price in USD of one device (a GPU, or a rank on a machine "
            "without GPUs) for one hour, or remove job.max_cost",
            meter.cap_usd);
    }
    if (meter.cap_usd > 0.0 && !is_queued && meter.before_usd >= meter.cap_usd) {
        return ls_fail(
            LS_ERR_INVALID,
            "this run has cost %.2f USD and its cap is %.2f USD (job.max_cost): raise the cap, and "
            "it continues where it stopped",
            meter.before_usd, meter.cap_usd);
    }
    *meter_out = meter;
    return LS_OK;
}

ls_status ls_meter_room(const ls_run_checkpoint *checkpoint, uint64_t *bytes_out)
{
    const double price =
        checkpoint->price != LS_AUTO_F64 ? checkpoint->price : told("LOCKSTEP_STORAGE_PRICE");
    if (checkpoint->budget > 0.0 && !(price > 0.0)) {
        return ls_fail(LS_ERR_INVALID,
                       "checkpoint.budget is %.2f USD a month, but the price of storage is not known: set "
                       "checkpoint.price, the price in USD of a GB for a month",
                       checkpoint->budget);
    }
    *bytes_out = checkpoint->budget > 0.0 ? (uint64_t)fmax(1.0, 1e9 * checkpoint->budget / price) : 0;
    return LS_OK;
}

static double since(const ls_meter *meter, double now_s)
{
    return meter->devices * fmax(0.0, now_s - meter->at_s) * meter->price_usd / 3600.0;
}

double ls_meter_note(ls_meter *meter, uint32_t devices, double now_s)
{
    meter->own_usd += since(meter, now_s);
    meter->at_s = fmax(meter->at_s, now_s);
    meter->devices = devices;
    return meter->own_usd;
}

double ls_meter_usd(const ls_meter *meter, double now_s)
{
    return meter->before_usd + meter->own_usd + since(meter, now_s);
}

bool ls_meter_is_over(const ls_meter *meter, double now_s)
{
    return meter->cap_usd > 0.0 && ls_meter_usd(meter, now_s) >= meter->cap_usd;
}

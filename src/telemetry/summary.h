// SPDX-License-Identifier: Apache-2.0
/*
 * Summary: the result of a run, as `train --json` prints it (DESIGN section 6) and summary.json keeps it, so that running a finished run
 * again prints its result.
 *
 * Members: run, run_dir, status, parameters, frozen_parameters, step, steps, loss, val_loss, val_loss_per_byte, tokens, tokens_per_s, mfu, hfu, peak_rss_bytes, wall_s,
 * first_step_s, step_s, checkpoint_stall_s, goodput, state_hash, curve_hash, recoveries[], predicted{memory_bytes, step_s, tokens_per_s, checkpoint_stall_s, flops_per_step},
 * cost_usd, energy_j,
 * time{seconds by class}, starts[]. wall_s, goodput and time are of the whole run, over all its starts (telemetry/time_log.h); tokens_per_s,
 * mfu, hfu and step_s are of the steps of the last one. What could not be measured is null; no member is ever missing but `time` and `starts`. Predictions stand beside what they
 * predict: memory_bytes beside peak_rss_bytes, predicted.step_s beside step_s.
 */
#ifndef LS_TELEMETRY_SUMMARY_H
#define LS_TELEMETRY_SUMMARY_H

#include "base/hash.h"
#include "base/json.h"
#include "telemetry/goodput.h"

#include <stdio.h>

#include <stdint.h>

/* Numbers that are not known are NaN here and null in JSON. */
typedef struct ls_summary {
    const char *run;                        /* name */
    const char *run_dir;                    /* path */
    const char *status;                     /* "finished", "stopped", "interrupted", "failed" */
    uint64_t parameters, frozen_parameters; /* of them frozen; parameters 0: not known */
    uint64_t step;
    uint64_t steps;        /* of the whole run */
    double loss, val_loss; /* nats per token */
    double val_loss_per_byte;
    uint64_t tokens;               /* of the whole run so far */
    double tokens_per_s, mfu, hfu; /* over the steps of this process */
    uint64_t peak_rss_bytes;
    double wall_s;                        /* from the first start to now */
    double first_step_s;                  /* process start to the end of the first step */
    double goodput;                       /* 0..1 */
    char state_hash[LS_SHA256_HEX_BYTES]; /* "" when not known */
    char curve_hash[LS_SHA256_HEX_BYTES];
    /* What the plan said before the first step; 0: nothing. */
    uint64_t predicted_memory_bytes;
    double predicted_step_s, predicted_tokens_per_s, predicted_checkpoint_stall_s;
    double flops_per_step;
    const char *prediction_doubt; /* what is to be said against the predicted times; NULL, "": nothing */
    double step_s; /* mean over the steps of this process, to set beside predicted_step_s; 0: not known */
    double checkpoint_stall_s; /* what steps waited for a checkpoint, mean; 0: not known */
    double cost_usd, energy_j; /* 0: not known */
    json_t *recoveries;        /* array of what was recovered from; borrowed, NULL: none */
    json_t *time;              /* seconds by class (telemetry/goodput.h); borrowed, NULL: none */
    json_t *starts;            /* ls_time_history_to_json; borrowed, NULL: none */
} ls_summary;

/* The object; the caller drops it. Never NULL. */
json_t *ls_summary_to_json(const ls_summary *summary);

/* `dir`/summary.json, atomically. */
LS_MUST_CHECK ls_status ls_summary_save(const ls_summary *summary, const char *dir);
/* The object of `dir`/summary.json; the caller drops it. Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_summary_load(const char *dir, json_t **object_out);

/* A few lines for a terminal. */
void ls_summary_print(const json_t *object, FILE *out);

#endif

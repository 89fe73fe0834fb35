// SPDX-License-Identifier: Apache-2.0
/*
 * Summary: the result of a run, as `train --json` prints it. summary.json keeps
 * it, so that starting a finished run again prints its result.
 *
 * Members: run, run_dir, status, parameters, frozen_parameters, step, steps, loss, val_loss,
 * val_loss_per_byte, tokens, tokens_per_s, mfu, hfu, peak_rss_bytes, wall_s, first_step_s, step_s,
 * checkpoint_stall_s, goodput, state_hash, curve_hash, recoveries[], predicted{memory_bytes,
 * step_s, tokens_per_s, checkpoint_stall_s, flops_per_step, and as in mesh bubble, sent_bytes{},
 * rank_memory_bytes[]}, mesh{ranks, data, expert, pipeline, context, tensor, schedule, bubble
 * (share of the step that the stage that idles least waits for others), sent_bytes{} (of all ranks
 * in the last step, by axis), rank_memory_bytes[] (outside what they share)}, cost_usd, energy_j,
 * link{bytes, dense_bytes, saved_s, residual_norm} (what the first rank sent to other hosts and
 * would have sent with sums in float32, and the time saved, in the steps of the last start; and as
 * in metrics.jsonl, of the last step),
 * time{seconds by class}, starts[], sources[] (of a mixture), best{step, val_loss, checkpoint}
 * (the kept checkpoint with the lowest validation loss; null: none has one), code (version and
 * build of the program). wall_s, goodput and
 * time cover all starts of the run (telemetry/record/time_log.h); tokens_per_s, mfu, hfu and
 * step_s cover the steps of the last start. A value that could not be measured is null; only
 * `time`, `starts`, `sources`, `mesh` and `link` may be missing. memory_bytes predicts
 * peak_rss_bytes, and predicted.step_s predicts step_s.
 */
#ifndef LS_TELEMETRY_RECORD_SUMMARY_H
#define LS_TELEMETRY_RECORD_SUMMARY_H

#include "base/hash.h"
#include "base/json.h"
#include "telemetry/record/goodput.h"

#include <stdio.h>

#include <stdint.h>

/* Numbers that are not known are NaN here and null in JSON. */
typedef struct ls_summary {
    const char *run;     /* name */
    const char *run_dir; /* path */
    const char *code;    /* version and build of the program; NULL: not known */
    const char *status;  /* "finished", "stopped_early", "stopped", "interrupted", "failed" */
    /* total, and how many are frozen; parameters 0: not known */
    uint64_t parameters, frozen_parameters;
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
    /* What the plan predicted before the first step; 0: nothing. */
    uint64_t predicted_memory_bytes;
    double predicted_step_s, predicted_tokens_per_s, predicted_checkpoint_stall_s;
    double flops_per_step;
    /* why the predicted times may be off; NULL, "": no reason */
    const char *prediction_doubt;
    /* mean over the steps of this process, to compare with predicted_step_s; 0: not known */
    double step_s;
    uint64_t link_bytes, dense_bytes; /* 0: nothing was sent to other hosts */
    double saved_s, residual_norm;
    double checkpoint_stall_s; /* mean time that training waited for a checkpoint; 0: not known */
    double cost_usd, energy_j; /* 0: not known */
    json_t *recoveries;        /* array of recoveries; borrowed, NULL: none */
    /* seconds by class (telemetry/record/goodput.h); borrowed, NULL: none */
    json_t *time;
    json_t *starts; /* ls_time_history_to_json; borrowed, NULL: none */
    /* The kept checkpoint with the lowest validation loss; best_checkpoint NULL: none has one. */
    const char *best_checkpoint;
    uint64_t best_step;
    double best_val_loss;
    /* [{source, share, tokens, epochs, val_loss, val_tokens}]; borrowed, NULL: not a mixture */
    json_t *sources;
    /* Of several ranks on one host: `mesh` as above, and what is predicted of it; borrowed, NULL:
     * a single process, or several hosts */
    json_t *mesh, *predicted_mesh;
} ls_summary;

/* The object; the caller drops it. Never NULL. */
json_t *ls_summary_to_json(const ls_summary *summary);

/* `dir`/summary.json, atomically. */
LS_MUST_CHECK ls_status ls_summary_save(const ls_summary *summary, const char *dir);
/* The object of `dir`/summary.json; the caller drops it. Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA,
 * LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_summary_load(const char *dir, json_t **object_out);

/* A few lines for a terminal. */
void ls_summary_print(const json_t *object, FILE *out);

#endif

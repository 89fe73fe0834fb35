// SPDX-License-Identifier: Apache-2.0
/*
 * Run log: the record of steps and events in a run directory.
 *
 *   metrics.jsonl   one object per finished step: step, loss, lr, grad_norm, tokens, loss_tokens
 *                   (those with a target), tokens_per_s, step_s, data_s, forward_s, backward_s,
 *                   reduce_s, optimizer_s, wait_s, mfu, hfu, rss_bytes; on several hosts
 *                   link_bytes (what the first rank sent to other hosts), dense_bytes (the same
 *                   with sums of float32 gradients in every step) and saved_s (by how much these
 *                   would have made the step longer, at the fastest rate of any step so far);
 *                   with compression residual_norm (of what it left over of the gradient, to be
 *                   added in the next step); and val_loss where the step was followed by an
 *                   evaluation. The loss has enough digits to restore its float32 bits.
 *   events.jsonl    one object per event: time (seconds since 1970), event, step where it has one,
 *                   and the event's own fields
 *
 * Every line is one write(2), so a killed process leaves whole lines, except possibly the last. A
 * resume cuts both files back to the restored step; events about ranks and machines (rank_lost,
 * recovered, notice, ...) stay, whatever their step. The curve hash (telemetry/record/curve.h) is
 * updated with each step and rebuilt from metrics.jsonl on a resume. Scalars also go to tb/ for
 * TensorBoard (loss, lr, grad_norm, tokens_per_s, mfu, val_loss); an error there ends that file,
 * not the run.
 *
 * One writer per directory (the lock of the run directory ensures that); not thread-safe.
 */
#ifndef LS_TELEMETRY_RECORD_RUN_LOG_H
#define LS_TELEMETRY_RECORD_RUN_LOG_H

#include "base/emit.h"
#include "base/hash.h"
#include "base/status.h"

typedef struct ls_run_log ls_run_log;

/* Totals of the steps up to the restored one. */
typedef struct ls_run_totals {
    /* lines of metrics kept; below the restored step when lines were missing or damaged */
    uint64_t steps;
    uint64_t tokens; /* up to the restored step; missing lines count as their neighbours */
    double step_s;   /* wall seconds of those steps */
    /* the last step that any earlier process finished: those after the restored step are
     * repeated */
    uint64_t highest_step;
    float last_loss;
    bool has_val_loss;
    double last_val_loss, best_val_loss; /* of `evaluation` events (field val_loss) */
    uint64_t best_step;
} ls_run_totals;

/*
 * Opens the log of run directory `dir` (which must exist) for appending after step `restored_step`.
 * Later metrics and events are dropped (0: all of them), each file in one atomic operation. Torn
 * and damaged lines are dropped too. When metrics of earlier steps are missing (after a power
 * failure or an edit by hand), the run is not refused: a warning is logged, and the curve hash is
 * unknown from then on.
 *
 * totals_out: may be NULL. Errors: LS_ERR_MEMORY, LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_run_log_open(const char *dir, uint64_t restored_step, ls_run_log **log_out,
                                        ls_run_totals *totals_out);
void ls_run_log_close(ls_run_log *log);

/* Appends a line. Errors: LS_ERR_DISK, LS_ERR_IO; the first error is kept, and returned by later
 * calls too. */
LS_MUST_CHECK ls_status ls_run_log_step(ls_run_log *log, const ls_step_metrics *metrics);
/* fields: an object, taken over; `time` and `event` are put before them. */
LS_MUST_CHECK ls_status ls_run_log_event(ls_run_log *log, const char *name, json_t *fields);

/* Also writes scalars to `dir`/tb for TensorBoard from here on; an error there is a warning and
 * ends that file, not the run. */
void ls_run_log_enable_tensorboard(ls_run_log *log, uint64_t restored_step);

/* The curve hash of the steps so far; "" when it is unknown. */
void ls_run_log_curve_hash(const ls_run_log *log, char hex_out[LS_SHA256_HEX_BYTES]);

/* The events of that name in `dir`, from all starts: an array, never NULL; the caller drops it. */
json_t *ls_run_log_events(const char *dir, const char *name);

/* Installs the log as the sink of base/emit. Write errors are then logged once and kept for
 * ls_run_log_status. */
void ls_run_log_install(ls_run_log *log);
ls_status ls_run_log_status(const ls_run_log *log);

/*
 * Flushes the files to disk. Called before a checkpoint is committed, so that a power failure
 * cannot lose the metrics of its step. May be called from any thread while another one writes.
 * Errors: LS_ERR_DISK, LS_ERR_IO; earlier write errors are in ls_run_log_status.
 */
LS_MUST_CHECK ls_status ls_run_log_flush(const ls_run_log *log);

#endif

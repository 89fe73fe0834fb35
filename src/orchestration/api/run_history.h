// SPDX-License-Identifier: Apache-2.0
/*
 * Run history: the steps of a training run, merged as they are read, so that a million steps become
 * a page's curve in bounded memory.
 *
 * Neighbouring steps share a point. It has the mean, the lowest and the highest loss of its steps,
 * the mean of times and speeds, and the last value of what is set (learning rate). When all points
 * are used, each two are merged into one. The lines come from metrics.jsonl, which a run cuts back
 * when it resumes: the file is then read again from its start.
 *
 * Pure; one owner.
 */
#ifndef LS_ORCHESTRATION_API_RUN_HISTORY_H
#define LS_ORCHESTRATION_API_RUN_HISTORY_H

#include "base/emit.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_API_HISTORY_POINTS = 2048 };

typedef struct ls_api_point {
    uint64_t first_step, last_step, steps; /* steps: lines in it */
    double loss_sum, loss_min, loss_max;
    double lr, grad_norm; /* of the last step */
    double tokens_per_s_sum, step_s_sum, mfu;
} ls_api_point;

typedef struct ls_api_history {
    ls_api_point points[LS_API_HISTORY_POINTS];
    size_t count;
    uint64_t steps_per_point; /* of a full point; 0: nothing was added yet */
    char *last_line;          /* malloc; NULL: none */
    size_t last_bytes;
    uint64_t offset; /* bytes of the file that were read */
    /* The last bytes that were read. If the file no longer holds them, it was cut back, even if it
     * has grown again. */
    char tail[64];
    size_t tail_bytes;
} ls_api_history;

/* Frees what it holds; it is then empty and can be used again. */
void ls_api_history_clear(ls_api_history *history);

/* False: the step is not after the last one, and was left out. */
bool ls_api_history_add(ls_api_history *history, const ls_step_metrics *metrics);

/* The byte of the file to read on from. It lies a little before the end of what was read, so that
 * the overlap shows whether the file was cut back. */
uint64_t ls_api_history_from(const ls_api_history *history);
/*
 * Takes what was read there: `bytes` of the `wanted` that were asked for. True: read on, because
 * there is more, the file was cut back, or another request has read on meanwhile.
 */
bool ls_api_history_take(ls_api_history *history, uint64_t offset, const char *data, size_t bytes,
                         size_t wanted);

/* {"columns", "points", "last"}: the steps after `from_step`, in at most `points` points (at least
 * 1). A new object. */
json_t *ls_api_history_json(const ls_api_history *history, uint64_t from_step, size_t points);

/* ---- those of many jobs ---- */

typedef struct ls_api_histories ls_api_histories;

/* A new one replaces the least recently used of those that are not held. */
enum { LS_API_HISTORIES_MAX = 32 };

ls_api_histories *ls_api_histories_create(void);
void ls_api_histories_destroy(ls_api_histories *histories);

/*
 * The history of a job, as far as its file was read. It stays while it is held; requests for the
 * same job share it. NULL: all histories are held.
 */
ls_api_history *ls_api_histories_hold(ls_api_histories *histories, uint64_t job);
/* NULL: nothing. */
void ls_api_histories_drop(ls_api_histories *histories, ls_api_history *history);

#endif

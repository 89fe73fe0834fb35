// SPDX-License-Identifier: Apache-2.0
/*
 * History: the steps of a training run, thinned out as they come, so that a million of them are a page's curve in bounded memory.
 *
 * Neighbouring steps share a point: it has the mean, the lowest and the highest loss of its steps, the mean of times and speeds, and the last
 * of what is set (learning rate). When all points are used, each two become one. The lines are those of metrics.jsonl, which its run cuts
 * back when it resumes: then it is read again from its start.
 *
 * Pure; one owner.
 */
#ifndef LS_ORCHESTRATION_API_HISTORY_H
#define LS_ORCHESTRATION_API_HISTORY_H

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
    uint64_t steps_per_point; /* of a full one; 0: nothing was added yet */
    char *last_line;          /* malloc; NULL: none */
    size_t last_bytes;
    uint64_t offset; /* bytes of the file that were read */
    char tail
        [64]; /* the last of them: what is no longer there was cut back, even if the file has grown again */
    size_t tail_bytes;
} ls_api_history;

/* Frees what it holds; it is empty and usable again. */
void ls_api_history_clear(ls_api_history *history);

/* False: a step that is not above the last one, left out. */
bool ls_api_history_add(ls_api_history *history, const ls_step_metrics *metrics);

/*
 * Adds the whole lines of `text`; damaged ones and steps that are not above the last one are left out. Returns the bytes that need not be
 * given again: all but a torn last line.
 */
size_t ls_api_history_feed(ls_api_history *history, const char *text, size_t bytes);

/* The byte of the file to read on from: a little was read before, and shows whether it is still there. */
uint64_t ls_api_history_from(const ls_api_history *history);
/*
 * Takes what was read there: `bytes` of the `wanted` that were asked for. True: there is more, or it has to be read again; somebody else may have read on
 * meanwhile.
 */
bool ls_api_history_take(ls_api_history *history, uint64_t offset, const char *data, size_t bytes,
                         size_t wanted);

/* {"columns", "points", "last"}: what is behind step `from_step`, in at most `points` points, 1 or more. A new object. */
json_t *ls_api_history_json(const ls_api_history *history, uint64_t from_step, size_t points);

/* ---- those of many jobs ---- */

typedef struct ls_api_histories ls_api_histories;

enum { LS_API_HISTORIES_MAX = 32 }; /* of these that nobody holds, the one used longest ago goes */

ls_api_histories *ls_api_histories_create(void);
void ls_api_histories_destroy(ls_api_histories *histories);

/*
 * The history of a job, as far as its file was read: it stays while it is held, and all who hold it read on in the same one. NULL: as many as there can be
 * are held.
 */
ls_api_history *ls_api_histories_hold(ls_api_histories *histories, uint64_t job);
/* NULL: nothing. */
void ls_api_histories_drop(ls_api_histories *histories, ls_api_history *history);

#endif

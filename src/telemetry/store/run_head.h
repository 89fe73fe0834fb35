// SPDX-License-Identifier: Apache-2.0
/*
 * Run head: what a table shows of a run without reading its metrics: the end of metrics.jsonl, and
 * summary.json. Pure.
 */
#ifndef LS_TELEMETRY_STORE_RUN_HEAD_H
#define LS_TELEMETRY_STORE_RUN_HEAD_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

/* Of metrics.jsonl and events.jsonl: enough for their newest values. */
enum { LS_RUN_TAIL_BYTES = 8192 };

typedef struct ls_run_head {
    double step, steps, loss, val_loss, tokens_per_s, started_s, cost_usd; /* NaN: not known */
    char status[24]; /* as in summary.json; "": there is none */
} ls_run_head;

/* Nothing is known. */
ls_run_head ls_run_head_none(void);

/* Takes the newest values from the last bytes of metrics.jsonl, or of events.jsonl, where the last
 * evaluation may be found when many steps have followed it. is_cut: they begin in a line. */
void ls_run_head_take_tail(ls_run_head *head, const char *text, size_t bytes, bool is_cut);
/* Takes what summary.json says. NULL or anything else than an object: nothing. */
void ls_run_head_take_summary(ls_run_head *head, const json_t *summary);

/* Sets step, steps, loss, val_loss, tokens_per_s, started and cost_usd of a row; what is not known
 * stays as it is, or becomes null. */
void ls_run_head_to_row(const ls_run_head *head, json_t *row);

#endif

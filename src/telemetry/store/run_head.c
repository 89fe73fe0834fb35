// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/run_head.h"

#include "telemetry/record/metrics_reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ls_run_head ls_run_head_none(void)
{
    return (ls_run_head){.step = NAN,
                         .steps = NAN,
                         .loss = NAN,
                         .val_loss = NAN,
                         .tokens_per_s = NAN,
                         .started_s = NAN,
                         .cost_usd = NAN};
}

static void take_number(double *into, const json_t *object, const char *key)
{
    const double value = ls_json_number(object, key);
    *into = isfinite(value) ? value : *into;
}

void ls_run_head_take_tail(ls_run_head *head, const char *text, size_t bytes, bool is_cut)
{
    const char *begin = is_cut && bytes > 0 ? memchr(text, '\n', bytes) : NULL;
    const size_t skipped = begin ? (size_t)(begin - text) + 1 : 0;
    ls_line_reader reader = {.text = text + skipped, .bytes = bytes - skipped};
    json_t *line = NULL;
    double ignored = 0.0;
    for (ls_line_kind kind; (kind = ls_object_reader_next(&reader, &line)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            const bool is_event = json_object_get(line, "event") != NULL;
            take_number(&head->val_loss, line, "val_loss");
            take_number(is_event ? &ignored : &head->step, line, "step");
            take_number(is_event ? &ignored : &head->loss, line, "loss");
            take_number(is_event ? &ignored : &head->tokens_per_s, line, "tokens_per_s");
            json_decref(line);
        }
    }
}

void ls_run_head_take_summary(ls_run_head *head, const json_t *summary)
{
    const char *status = json_string_value(json_object_get(summary, "status"));
    take_number(&head->steps, summary, "steps");
    take_number(&head->cost_usd, summary, "cost_usd");
    take_number(&head->val_loss, summary, "val_loss");
    snprintf(head->status, sizeof head->status, "%s", status ? status : "");
}

void ls_run_head_to_row(const ls_run_head *head, json_t *row)
{
    const struct {
        const char *key;
        double value;
        bool is_count;
    } numbers[] = {{"step", head->step, true},          {"steps", head->steps, true},
                   {"loss", head->loss, false},         {"val_loss", head->val_loss, false},
                   {"started", head->started_s, false}, {"tokens_per_s", head->tokens_per_s, false},
                   {"cost_usd", head->cost_usd, false}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const double value = numbers[i].value;
        if (!isfinite(value) && json_object_get(row, numbers[i].key)) {
            continue;
        }
        const bool is_whole = numbers[i].is_count && value >= 0 && value < 9e15;
        json_object_set_new(row, numbers[i].key,
                            is_whole          ? json_integer((json_int_t)value)
                            : isfinite(value) ? json_real(value)
                                              : json_null());
    }
}

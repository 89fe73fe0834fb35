// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/metrics_reader.h"

#include <math.h>
#include <string.h>

double ls_json_number(const json_t *object, const char *key)
{
    const json_t *member = json_object_get(object, key);
    return json_is_number(member) ? json_number_value(member) : NAN;
}

bool ls_json_count(const json_t *object, const char *key, uint64_t *count_out)
{
    const json_t *member = json_object_get(object, key);
    if (!json_is_integer(member) || json_integer_value(member) < 0) {
        return false;
    }
    *count_out = (uint64_t)json_integer_value(member);
    return true;
}

ls_line_kind ls_object_reader_next(ls_line_reader *reader, json_t **object_out)
{
    reader->line_offset = reader->offset;
    if (reader->offset >= reader->bytes) {
        return LS_LINE_END;
    }
    reader->line_number++;
    const char *line = reader->text + reader->offset;
    const size_t left = reader->bytes - reader->offset;
    const char *newline = memchr(line, '\n', left);
    if (!newline) {
        reader->offset = reader->bytes;
        return LS_LINE_TORN;
    }
    const size_t line_bytes = (size_t)(newline - line);
    reader->offset += line_bytes + 1;
    json_t *object = json_loadb(line, line_bytes, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return LS_LINE_DAMAGED;
    }
    *object_out = object;
    return LS_LINE_GOOD;
}

static bool read_metrics(const json_t *object, ls_step_metrics *out)
{
    const double loss = ls_json_number(object, "loss");
    ls_step_metrics m = {
        .lr = ls_json_number(object, "lr"),
        .grad_norm = ls_json_number(object, "grad_norm"),
        .step_s = ls_json_number(object, "step_s"),
        .tokens_per_s = ls_json_number(object, "tokens_per_s"),
        .data_s = ls_json_number(object, "data_s"),
        .forward_s = ls_json_number(object, "forward_s"),
        .backward_s = ls_json_number(object, "backward_s"),
        .reduce_s = ls_json_number(object, "reduce_s"),
        .optimizer_s = ls_json_number(object, "optimizer_s"),
        .wait_s = ls_json_number(object, "wait_s"),
        .saved_s = ls_json_number(object, "saved_s"),
        .residual_norm = ls_json_number(object, "residual_norm"),
        .mfu = ls_json_number(object, "mfu"),
        .hfu = ls_json_number(object, "hfu"),
    };
    /* FLT_MAX printed with 9 digits is a little above FLT_MAX, and rounds back to it. */
    if (!isfinite(loss) || !isfinite((float)loss) || !ls_json_count(object, "step", &m.step) || m.step == 0) {
        return false;
    }
    m.loss = (float)loss;
    m.val_loss = ls_json_number(object, "val_loss");
    m.has_val_loss = isfinite(m.val_loss);
    (void)ls_json_count(object, "tokens", &m.tokens);
    (void)ls_json_count(object, "rss_bytes", &m.rss_bytes);
    (void)ls_json_count(object, "link_bytes", &m.link_bytes);
    (void)ls_json_count(object, "dense_bytes", &m.dense_bytes);
    *out = m;
    return true;
}

ls_line_kind ls_metrics_reader_next(ls_line_reader *reader, ls_step_metrics *metrics_out)
{
    json_t *object = NULL;
    ls_line_kind kind = ls_object_reader_next(reader, &object);
    if (kind == LS_LINE_GOOD && !read_metrics(object, metrics_out)) {
        kind = LS_LINE_DAMAGED;
    }
    json_decref(object);
    return kind;
}

ls_line_kind ls_event_reader_next(ls_line_reader *reader, json_t **event_out)
{
    json_t *object = NULL;
    const ls_line_kind kind = ls_object_reader_next(reader, &object);
    if (kind == LS_LINE_GOOD && !json_is_string(json_object_get(object, "event"))) {
        json_decref(object);
        return LS_LINE_DAMAGED;
    }
    if (kind == LS_LINE_GOOD) {
        *event_out = object;
    }
    return kind;
}

bool ls_event_step(const json_t *event, uint64_t *step_out)
{
    return ls_json_count(event, "step", step_out);
}

// SPDX-License-Identifier: Apache-2.0
#include "planning/accuracy/own_runs.h"

#include <math.h>
#include <string.h>

/* ---- reading ---- */

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    return isfinite(number) && number > 0.0 ? number : NAN;
}

static uint64_t count_of(const json_t *object, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

static const char *text_of(ls_arena *arena, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? ls_arena_strdup(arena, text) : NULL;
}

static ls_own_run_side side_of(const json_t *object)
{
    return (ls_own_run_side){.step_s = number_of(object, "step_s"),
                             .tokens_ps = number_of(object, "tokens_per_s"),
                             .memory_bytes = number_of(object, "memory_bytes"),
                             .checkpoint_stall_s = number_of(object, "checkpoint_stall_s")};
}

static bool read_row(ls_arena *arena, const json_t *o, ls_own_run_row *row)
{
    *row = (ls_own_run_row){.time = text_of(arena, o, "time"),
                            .run = text_of(arena, o, "run"),
                            .model = text_of(arena, o, "model"),
                            .device = text_of(arena, o, "device"),
                            .calibration = text_of(arena, o, "calibration"),
                            .parameters = count_of(o, "parameters"),
                            .layers = count_of(o, "layers"),
                            .width = count_of(o, "width"),
                            .ranks = count_of(o, "ranks"),
                            .threads = count_of(o, "threads"),
                            .tokens_per_step = count_of(o, "tokens_per_step"),
                            .steps = count_of(o, "steps"),
                            .predicted = side_of(json_object_get(o, "predicted")),
                            .measured = side_of(json_object_get(o, "measured"))};
    return row->time && row->run && row->model && row->device && isfinite(row->measured.step_s);
}

static size_t lines_in(const char *text, size_t bytes)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    return lines;
}

void ls_own_runs_parse(ls_arena *arena, const char *text, size_t bytes, ls_own_run_row **rows_out,
                       size_t *count_out, size_t *bad_out)
{
    ls_own_run_row *rows = ls_arena_new(arena, ls_own_run_row, lines_in(text, bytes));
    size_t count = 0, bad = 0;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t line = end ? (size_t)(end - text) - at : bytes - at;
        json_t *object = json_loadb(text + at, line, JSON_REJECT_DUPLICATES, NULL);
        if (object && read_row(arena, object, &rows[count])) {
            count++;
        } else if (line > 0) {
            bad++;
        }
        json_decref(object);
        at += line + 1;
    }
    *rows_out = rows;
    *count_out = count;
    *bad_out = bad;
}

/* ---- writing ---- */

static json_t *number_or_null(double value)
{
    return isfinite(value) && value > 0.0 ? json_real(value) : json_null();
}

static json_t *side_to_json(const ls_own_run_side *side)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "step_s", number_or_null(side->step_s), "tokens_per_s",
                     number_or_null(side->tokens_ps), "memory_bytes", number_or_null(side->memory_bytes),
                     "checkpoint_stall_s", number_or_null(side->checkpoint_stall_s));
}

json_t *ls_own_run_to_json(const ls_own_run_row *row)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:s?, s:o, s:o}", "time",
                     row->time, "run", row->run, "model", row->model, "parameters",
                     (json_int_t)row->parameters, "layers", (json_int_t)row->layers, "width",
                     (json_int_t)row->width, "device", row->device, "ranks", (json_int_t)row->ranks,
                     "threads", (json_int_t)row->threads, "tokens_per_step", (json_int_t)row->tokens_per_step,
                     "steps", (json_int_t)row->steps, "calibration", row->calibration, "predicted",
                     side_to_json(&row->predicted), "measured", side_to_json(&row->measured));
}

// SPDX-License-Identifier: Apache-2.0
/* The values of web/report.html, from a run directory. */
#include "telemetry/report/report.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/web.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/report/report_data.h"
#include "telemetry/report/report_figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_ROWS_MAX = 200, CHECKPOINT_ROWS_MAX = 8, SAMPLES_MAX = 12, FIELD_BYTES_MAX = 120 };

/* ---- numbers as text; NULL when not known, which a page shows as a dash ---- */

static const char *number_text(ls_arena *arena, const char *format, double value) LS_PRINTF(2, 0);
static const char *number_text(ls_arena *arena, const char *format, double value)
{
    return isfinite(value) ? ls_arena_printf(arena, format, value) : NULL;
}

/* 950, 12,345, 3.21 million, 1.20 billion */
static const char *count_text(ls_arena *arena, double value)
{
    if (!(value >= 0.0)) {
        return NULL;
    }
    value = value < 1e6 ? round(value) : value;
    return value >= 1e9   ? ls_arena_printf(arena, "%.2f billion", value * 1e-9)
           : value >= 1e6 ? ls_arena_printf(arena, "%.2f million", value * 1e-6)
           : value >= 1e3 ? ls_arena_printf(arena, "%d,%03d", (int)(value / 1000), (int)fmod(value, 1000))
                          : ls_arena_printf(arena, "%.0f", value);
}

static const char *duration_text(ls_arena *arena, double seconds)
{
    return seconds >= 0.0 && seconds <= 1e12 ? ls_arena_strdup(arena, ls_duration_of(seconds).text) : NULL;
}

static const char *bytes_text(ls_arena *arena, double bytes)
{
    if (!(bytes > 0.0)) {
        return NULL;
    }
    return bytes >= 1073741824.0 ? ls_arena_printf(arena, "%.2f GiB", bytes / 1073741824.0)
           : bytes >= 1048576.0  ? ls_arena_printf(arena, "%.0f MiB", bytes / 1048576.0)
                                 : ls_arena_printf(arena, "%.0f KiB", bytes / 1024.0);
}

static const char *member_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is_named(const json_t *event, const char *name)
{
    return strcmp(member_text(event, "event"), name) == 0;
}

static double last_of(const double *values, size_t count)
{
    return count > 0 ? values[count - 1] : NAN;
}

/* The summary's number while it describes the newest state, else the one computed from the lines of
 * metrics.jsonl. */
static double fresh(const ls_report_data *data, const char *key, double from_lines)
{
    const double in_summary = ls_json_number(data->summary, key);
    return !data->running && isfinite(in_summary) ? in_summary : from_lines;
}

/* ---- head ---- */

static void set_head(const ls_report_data *data, ls_values *page)
{
    const char *run = data->summary ? member_text(data->summary, "run") : NULL;
    const char *name = run ? run : data->name ? data->name : ls_path_basename(data->dir);
    const char *ended_as = data->summary ? member_text(data->summary, "status") : NULL;
    const char *status = data->running || !ended_as ? "running" : ended_as;
    ls_values_printf(page, "title", "%s \u00b7 Lockstep run", name);
    ls_values_text(page, "name", name);
    ls_values_text(page, "status", status);
    ls_values_text(page, "look",
                   strcmp(status, "finished") == 0 || strcmp(status, "stopped_early") == 0 ? "good"
                   : strcmp(status, "failed") == 0                                         ? "bad"
                   : strcmp(status, "running") == 0                                        ? "going"
                                                                                           : "warn");
    ls_values_flag(page, "running", data->running);
    ls_values_text(page, "dir", data->dir);
    ls_web_time(page, "begun", data->begun_s, "%Y-%m-%d %H:%M UTC");
    ls_web_time(page, "newest", data->newest_s, "%Y-%m-%d %H:%M:%S UTC");
    ls_web_time(page, "written", ls_clock_wall_s(), "%Y-%m-%d %H:%M:%S UTC");
}

/* ---- tiles ---- */

static void add_loss_tiles(ls_report_data *data, ls_values *page)
{
    ls_arena *arena = &data->arena;
    const size_t last = data->count / 50 > 1 ? data->count / 50 : 1;
    ls_web_tile(page, number_text(arena, "%.4f", ls_report_mean(data->loss, data->count, last)),
                last > 1 ? "training loss, mean of the last steps" : "training loss, last step");
    ls_web_tile(page,
                number_text(arena, "%.4f", fresh(data, "val_loss", last_of(data->val_loss, data->val_count))),
                "validation loss, nats per token");
    const double per_byte = ls_json_number(data->summary, "val_loss_per_byte");
    /* With a tokenizer of bytes both are the same number. */
    const bool differs = per_byte != ls_json_number(data->summary, "val_loss");
    if (!data->running && isfinite(per_byte) && differs) {
        ls_web_tile(page, number_text(arena, "%.4f", per_byte), "validation loss, nats per byte");
    }
}

static void add_step_tiles(ls_report_data *data, ls_values *page)
{
    ls_arena *arena = &data->arena;
    const char *step = count_text(arena, data->count > 0 ? last_of(data->step, data->count) : 0.0);
    if (data->steps_total > 0) {
        step =
            ls_arena_printf(arena, "%s / %s", step ? step : "", count_text(arena, (double)data->steps_total));
    }
    ls_web_tile(page, step, "steps");
    ls_web_tile(page, count_text(arena, fresh(data, "tokens", (double)data->tokens)), "tokens seen");
}

static void add_machine_tiles(ls_report_data *data, ls_values *page)
{
    ls_arena *arena = &data->arena;
    const double speed = ls_report_mean(data->tokens_per_s, data->count, 100);
    const double mfu = ls_report_mean(data->mfu, data->count, 100);
    ls_web_tile(page, count_text(arena, fresh(data, "tokens_per_s", speed)), "tokens per second");
    ls_web_tile(page, number_text(arena, "%.0f %%", 100.0 * fresh(data, "mfu", mfu)),
                "MFU, of the measured peak");
    ls_web_tile(page, bytes_text(arena, fresh(data, "peak_rss_bytes", (double)data->rss_bytes)),
                "peak memory");
    if (data->link_bytes > 0) {
        const double sent = (double)data->link_bytes / (double)data->link_steps;
        ls_web_tile(page, bytes_text(arena, sent), "sent to other hosts in a step");
    }
    if (data->dense_bytes > data->link_bytes && data->link_bytes > 0) {
        const double fewer = (double)data->dense_bytes / (double)data->link_bytes;
        ls_web_tile(page, ls_arena_printf(arena, "%.3gx", fewer), "fewer bytes than dense sums send");
    }
    if (data->saved_s >= 1.0) {
        ls_web_tile(page, duration_text(arena, data->saved_s), "saved by sending less, about");
    }
    ls_web_tile(page, duration_text(arena, fresh(data, "wall_s", data->newest_s - data->begun_s)),
                data->running ? "since the first start" : "wall time since the first start");
    if (data->has_goodput) {
        ls_web_tile(page, number_text(arena, "%.0f %%", 100.0 * ls_goodput_fraction(&data->goodput)),
                    "of the time was training");
    }
}

static void add_tiles(ls_report_data *data, ls_values *page)
{
    char advice[256];
    add_loss_tiles(data, page);
    add_step_tiles(data, page);
    add_machine_tiles(data, page);
    if (data->has_goodput && ls_goodput_advice(&data->goodput, advice, sizeof advice)) {
        ls_values_text(page, "advice", advice);
    }
}

/* ---- the sources of a mixture ---- */

/* Those of the summary while it describes the newest state, else of the newest evaluation. */
static const json_t *newest_sources(const ls_report_data *data)
{
    const json_t *sources = data->running ? NULL : json_object_get(data->summary, "sources");
    for (size_t i = json_array_size(data->events); i > 0 && !sources; i--) {
        const json_t *event = json_array_get(data->events, i - 1);
        sources = is_named(event, "evaluation") ? json_object_get(event, "sources") : NULL;
    }
    return sources;
}

static void add_sources(ls_report_data *data, ls_values *page)
{
    ls_arena *arena = &data->arena;
    const json_t *sources = newest_sources(data);
    ls_values_flag(page, "has_sources", json_array_size(sources) > 0);
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *source = json_array_get(sources, i);
        const char *name = member_text(source, "source");
        ls_values *row = ls_values_add(page, "sources");
        ls_values_text(row, "source", name ? name : "");
        ls_values_text(row, "share", number_text(arena, "%.1f %%", 100.0 * ls_json_number(source, "share")));
        ls_values_text(row, "tokens", count_text(arena, ls_json_number(source, "tokens")));
        ls_values_text(row, "epochs", number_text(arena, "%.2f", ls_json_number(source, "epochs")));
        ls_values_text(row, "val_loss", number_text(arena, "%.4f", ls_json_number(source, "val_loss")));
    }
}

/* ---- predicted and measured ---- */

static void add_comparison(ls_report_data *data, ls_values *page, const char *what, double predicted,
                           double measured, const char *(*text_of)(ls_arena *arena, double value))
{
    if (isfinite(predicted)) {
        ls_values *row = ls_values_add(page, "predictions");
        ls_values_text(row, "what", what);
        ls_values_text(row, "predicted", text_of(&data->arena, predicted));
        ls_values_text(row, "measured", text_of(&data->arena, measured));
        ls_values_text(row, "ratio",
                       number_text(&data->arena, "%.2f", predicted > 0.0 ? measured / predicted : NAN));
    }
}

static const char *share_text(ls_arena *arena, double value)
{
    return number_text(arena, "%.1f %%", 100.0 * value);
}

/* How ranks divide the model: memory of each, idle stages, bytes of each axis. */
static void add_mesh(ls_report_data *data, ls_values *page, const json_t *predicted)
{
    const json_t *mesh = data->running ? NULL : json_object_get(data->summary, "mesh");
    const json_t *planned = json_object_get(predicted, "rank_memory_bytes"),
                 *sent = json_object_get(predicted, "sent_bytes");
    const char *axis;
    json_t *bytes;
    if (!mesh) {
        return;
    }
    for (size_t rank = 0; rank < json_array_size(planned); rank++) {
        add_comparison(data, page, ls_arena_printf(&data->arena, "own memory of rank %zu", rank),
                       json_number_value(json_array_get(planned, rank)),
                       json_number_value(json_array_get(json_object_get(mesh, "rank_memory_bytes"), rank)),
                       bytes_text);
    }
    add_comparison(data, page, "stages idle", ls_json_number(predicted, "bubble"),
                   ls_json_number(mesh, "bubble"), share_text);
    json_object_foreach((json_t *)(uintptr_t)sent, axis, bytes)
    {
        if (json_integer_value(bytes) > 0) {
            add_comparison(data, page, ls_arena_printf(&data->arena, "exchanged per step, %s axis", axis),
                           json_number_value(bytes),
                           ls_json_number(json_object_get(mesh, "sent_bytes"), axis), bytes_text);
        }
    }
}

static void add_predictions(ls_report_data *data, ls_values *page)
{
    const json_t *predicted = json_object_get(data->summary, "predicted");
    const double memory = ls_json_number(predicted, "memory_bytes"),
                 step_s = ls_json_number(predicted, "step_s");
    ls_values_flag(page, "has_predictions", isfinite(memory) || isfinite(step_s));
    add_comparison(data, page, "memory", memory, fresh(data, "peak_rss_bytes", (double)data->rss_bytes),
                   bytes_text);
    add_comparison(data, page, "time of a step", step_s,
                   fresh(data, "step_s", ls_report_mean(data->step_s, data->count, data->count)),
                   duration_text);
    add_comparison(data, page, "tokens per second", ls_json_number(predicted, "tokens_per_s"),
                   fresh(data, "tokens_per_s", ls_report_mean(data->tokens_per_s, data->count, data->count)),
                   count_text);
    add_comparison(data, page, "waiting for a checkpoint", ls_json_number(predicted, "checkpoint_stall_s"),
                   fresh(data, "checkpoint_stall_s", NAN), duration_text);
    add_mesh(data, page, predicted);
}

/* ---- events: samples, checkpoints, and all of them ---- */

static size_t count_named(const ls_report_data *data, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        count += is_named(json_array_get(data->events, i), name);
    }
    return count;
}

static void set_step(const json_t *event, ls_values *row)
{
    uint64_t step = 0;
    ls_values_text(row, "step", "");
    if (ls_event_step(event, &step)) {
        ls_values_printf(row, "step", "%" PRIu64, step);
    }
}

static void add_sample(const json_t *event, bool open, ls_values *page)
{
    ls_values *row = ls_values_add(page, "samples");
    const char *text = member_text(event, "text");
    uint64_t step = 0;
    const bool has_step = ls_event_step(event, &step);
    ls_values_text(row, "when", has_step ? "before training" : "sample");
    if (has_step && step > 0) {
        ls_values_printf(row, "when", "after step %" PRIu64, step);
    }
    ls_values_text(row, "text", text ? text : "");
    ls_values_flag(row, "open", open);
}

/* The first sample, the last, and some evenly spaced between them. */
static void add_samples(const ls_report_data *data, ls_values *page)
{
    const size_t total = count_named(data, "sample");
    const size_t shown = total < SAMPLES_MAX ? total : SAMPLES_MAX;
    size_t seen = 0, next = 0;
    ls_values_flag(page, "has_samples", total > 0);
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        if (!is_named(event, "sample")) {
            continue;
        }
        if (next < shown && seen == (shown > 1 ? next * (total - 1) / (shown - 1) : 0)) {
            add_sample(event, next == 0 || next + 1 == shown, page);
            next++;
        }
        seen++;
    }
}

static void add_checkpoints(ls_report_data *data, ls_values *page)
{
    const size_t total = count_named(data, "checkpoint");
    size_t seen = 0;
    ls_values_flag(page, "has_checkpoints", total > 0);
    ls_values_printf(page, "checkpoint_count", "%zu", total);
    ls_values_flag(page, "only_newest", total > CHECKPOINT_ROWS_MAX);
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        if (is_named(event, "cadence")) { /* of checkpoint.every_steps: auto; the last one holds */
            ls_values_text(page, "interval", member_text(event, "text"));
        }
        if (is_named(event, "checkpoint") && seen++ + CHECKPOINT_ROWS_MAX >= total) {
            ls_values *row = ls_values_add(page, "checkpoints");
            set_step(event, row);
            ls_values_text(row, "bytes", bytes_text(&data->arena, ls_json_number(event, "bytes")));
            ls_values_text(row, "stall", duration_text(&data->arena, ls_json_number(event, "stall_s")));
            ls_values_text(row, "path", member_text(event, "path"));
        }
    }
}

/* The newest event `registered`: what the model is in the registry, and what it was made from. */
static void add_registered(const ls_report_data *data, ls_values *page)
{
    const json_t *newest = NULL;
    uint64_t version = 0;
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        newest = is_named(event, "registered") ? event : newest;
    }
    const char *name = member_text(newest, "name"), *entry = member_text(newest, "entry");
    const bool is_known = name && entry && ls_json_count(newest, "version", &version);
    ls_values_flag(page, "is_registered", is_known);
    if (!is_known) {
        return;
    }
    ls_values_printf(page, "registered_as", "%s@%" PRIu64, name, version);
    ls_values_text(page, "registered_entry", entry);
    const json_t *parents = json_object_get(newest, "parents");
    for (size_t i = 0; i < json_array_size(parents); i++) {
        const json_t *parent = json_array_get(parents, i);
        ls_values *row = ls_values_add(page, "parents");
        ls_values_text(row, "as", member_text(parent, "as"));
        ls_values_text(row, "name", member_text(parent, "name"));
        ls_values_text(row, "entry", member_text(parent, "entry"));
    }
}

/* The event's own fields, key and value; long values are cut. */
static void add_fields(const json_t *event, ls_values *row)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)event, key, value)
    {
        if (strcmp(key, "time") != 0 && strcmp(key, "event") != 0 && strcmp(key, "step") != 0) {
            char *text = json_is_string(value)
                             ? NULL
                             : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(5));
            ls_values *field = ls_values_add(row, "fields");
            ls_values_text(field, "key", key);
            ls_values_cut(field, "value",
                          json_is_string(value) ? json_string_value(value)
                          : text                ? text
                                                : "",
                          FIELD_BYTES_MAX);
            free(text);
        }
    }
}

static void add_events(const ls_report_data *data, ls_values *page)
{
    const size_t count = json_array_size(data->events);
    const size_t first = count > EVENT_ROWS_MAX ? count - EVENT_ROWS_MAX : 0;
    ls_values_flag(page, "has_events", count > 0);
    ls_values_printf(page, "event_count", "%zu %s", count, count == 1 ? "event" : "events");
    if (first > 0) {
        ls_values_printf(page, "earlier", "%zu", first);
    }
    for (size_t i = first; i < count; i++) {
        const json_t *event = json_array_get(data->events, i);
        ls_values *row = ls_values_add(page, "events");
        ls_web_time(row, "time", ls_json_number(event, "time"), "%m-%d %H:%M:%S");
        set_step(event, row);
        ls_values_text(row, "event", member_text(event, "event"));
        add_fields(event, row);
    }
}

/* ---- the page ---- */

static void set_identity(const ls_report_data *data, ls_values *page)
{
    static const char *const hashes[] = {"state_hash", "curve_hash"};
    bool has_any = data->run_yaml != NULL;
    for (size_t i = 0; i < 2 && !data->running; i++) {
        const char *hex = member_text(data->summary, hashes[i]);
        ls_values_text(page, hashes[i], hex ? hex : "");
        has_any = has_any || hex;
    }
    ls_values_text(page, "run_yaml", data->run_yaml ? data->run_yaml : "");
    ls_values_flag(page, "has_identity", has_any);
}

void ls_report_add_head(ls_report_data *data, ls_values *page)
{
    set_head(data, page);
    add_tiles(data, page);
}

void ls_report_add_parts(ls_report_data *data, ls_values *page)
{
    add_sources(data, page);
    add_predictions(data, page);
    add_samples(data, page);
    add_checkpoints(data, page);
    add_registered(data, page);
    add_events(data, page);
    set_identity(data, page);
}

ls_status ls_report_write(const char *dir, const char *path)
{
    ls_report_data data;
    ls_status status = ls_report_data_load(dir, &data);
    if (status == LS_OK) {
        ls_values *page = ls_values_create(&data.arena);
        ls_text text = {0};
        ls_values_text(page, "page", "report");
        ls_report_add_head(&data, page);
        ls_report_add_figures(&data, page);
        ls_report_add_parts(&data, page);
        ls_web_append("report.html", page, &text);
        status = ls_file_write_atomic(path, text.data, text.bytes);
        ls_text_release(&text);
    }
    ls_report_data_release(&data);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
#include "telemetry/report.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "telemetry/metrics_reader.h"
#include "telemetry/report_data.h"
#include "telemetry/report_figures.h"
#include "telemetry/report_style.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENT_ROWS_MAX = 200, CHECKPOINT_ROWS_MAX = 8, SAMPLES_MAX = 12 };

/* ---- small forms; a number that is not known is a dash ---- */

#define DASH "\u2013"

static void put_number(ls_text *page, const char *format, double value) LS_PRINTF(2, 0);
static void put_number(ls_text *page, const char *format, double value)
{
    char text[64];
    if (!isfinite(value)) {
        ls_text_append(page, DASH);
        return;
    }
    snprintf(text, sizeof text, format, value);
    ls_text_append(page, text);
}

/* 950, 12,345, 3.21 million, 1.20 billion */
static void put_count(ls_text *page, double value)
{
    if (!(value >= 0.0)) {
        ls_text_append(page, DASH);
    } else if (value >= 1e9) {
        ls_text_printf(page, "%.2f billion", value * 1e-9);
    } else if (value >= 1e6) {
        ls_text_printf(page, "%.2f million", value * 1e-6);
    } else if (value >= 1e3) {
        ls_text_printf(page, "%d,%03d", (int)(value / 1000), (int)fmod(value, 1000));
    } else {
        ls_text_printf(page, "%.0f", value);
    }
}

static void put_duration(ls_text *page, double seconds)
{
    if (!(seconds >= 0.0) || seconds > 1e12) {
        ls_text_append(page, DASH);
    } else if (seconds < 0.1) {
        ls_text_printf(page, "%.3g ms", 1e3 * seconds);
    } else if (seconds < 60) {
        ls_text_printf(page, "%.3g s", seconds);
    } else if (seconds < 3600) {
        ls_text_printf(page, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    } else {
        ls_text_printf(page, "%.0f h %02d min", floor(seconds / 3600), (int)fmod(seconds / 60, 60));
    }
}

static void put_bytes(ls_text *page, double bytes)
{
    if (!(bytes > 0.0)) {
        ls_text_append(page, DASH);
    } else if (bytes >= 1073741824.0) {
        ls_text_printf(page, "%.2f GiB", bytes / 1073741824.0);
    } else if (bytes >= 1048576.0) {
        ls_text_printf(page, "%.0f MiB", bytes / 1048576.0);
    } else {
        ls_text_printf(page, "%.0f KiB", bytes / 1024.0);
    }
}

static void put_time(ls_text *page, double time_s, const char *format)
{
    char text[64];
    struct tm parts;
    const time_t seconds = isfinite(time_s) && fabs(time_s) < 1e11 ? (time_t)time_s : 0;
    if (!isfinite(time_s) || !gmtime_r(&seconds, &parts) ||
        strftime(text, sizeof text, format, &parts) == 0) {
        ls_text_append(page, DASH);
        return;
    }
    ls_text_append(page, text);
}

static const char *member_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static double last_of(const double *values, size_t count)
{
    return count > 0 ? values[count - 1] : NAN;
}

/* The summary's number while it is that of the newest state, else the one worked out from the lines. */
static double fresh(const ls_report_data *data, const char *key, double from_lines)
{
    const double said = ls_json_number(data->summary, key);
    return !data->running && isfinite(said) ? said : from_lines;
}

/* ---- head ---- */

static void append_badge(const ls_report_data *data, ls_text *page)
{
    const char *said = data->summary ? member_text(data->summary, "status") : NULL;
    const char *status = data->running || !said ? "running" : said;
    const char *look = strcmp(status, "finished") == 0  ? "good"
                       : strcmp(status, "failed") == 0  ? "bad"
                       : strcmp(status, "running") == 0 ? "going"
                                                        : "warn";
    ls_text_printf(page, "<span class=\"badge %s\">", look);
    ls_text_append_escaped(page, status);
    ls_text_append(page, "</span>");
}

static const char *run_name(const ls_report_data *data)
{
    const char *said = data->summary ? member_text(data->summary, "run") : NULL;
    return said ? said : data->name ? data->name : ls_path_basename(data->dir);
}

static void append_head(const ls_report_data *data, ls_text *page)
{
    ls_text_append(page,
                   "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                   "'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    ls_text_append_escaped(page, run_name(data));
    ls_text_append(page, " \u00b7 Lockstep run</title>\n<style>");
    ls_text_append(page, ls_report_style);
    ls_text_append(page, "</style></head>\n<body><main>\n<div class=\"head\"><h1>");
    ls_text_append_escaped(page, run_name(data));
    ls_text_append(page, "</h1>");
    append_badge(data, page);
    ls_text_append(page, "</div>\n<p class=\"sub\">Begun ");
    put_time(page, data->begun_s, "%Y-%m-%d %H:%M UTC");
    ls_text_append(page, data->running ? ", newest step " : ", ended ");
    put_time(page, data->newest_s, "%Y-%m-%d %H:%M:%S UTC");
    ls_text_append(page, " \u00b7 <code>");
    ls_text_append_escaped(page, data->dir);
    ls_text_append(page, "</code></p>\n");
}

/* ---- tiles: open, fill the number, close with its name and one more fact ---- */

static void tile_open(ls_text *page)
{
    ls_text_append(page, "<div class=\"tile\"><b>");
}

static void tile_close(ls_text *page, const char *name)
{
    ls_text_printf(page, "</b><span>%s</span></div>\n", name);
}

static void append_loss_tiles(const ls_report_data *data, ls_text *page)
{
    const size_t last = data->count / 50 > 1 ? data->count / 50 : 1;
    tile_open(page);
    put_number(page, "%.4f", ls_report_mean(data->loss, data->count, last));
    tile_close(page, last > 1 ? "training loss, mean of the last steps" : "training loss, last step");
    tile_open(page);
    put_number(page, "%.4f", fresh(data, "val_loss", last_of(data->val_loss, data->val_count)));
    tile_close(page, "validation loss, nats per token");
    const double per_byte = ls_json_number(data->summary, "val_loss_per_byte");
    const bool differs =
        per_byte != ls_json_number(data->summary, "val_loss"); /* not with a bytes tokenizer */
    if (!data->running && isfinite(per_byte) && differs) {
        tile_open(page);
        put_number(page, "%.4f", per_byte);
        tile_close(page, "validation loss, nats per byte");
    }
}

static void append_step_tiles(const ls_report_data *data, ls_text *page)
{
    const double step = last_of(data->step, data->count);
    tile_open(page);
    put_count(page, data->count > 0 ? step : 0.0);
    if (data->steps_total > 0) {
        ls_text_append(page, " / ");
        put_count(page, (double)data->steps_total);
    }
    tile_close(page, "steps");
    tile_open(page);
    put_count(page, fresh(data, "tokens", (double)data->tokens));
    tile_close(page, "tokens seen");
}

static void append_machine_tiles(const ls_report_data *data, ls_text *page)
{
    tile_open(page);
    put_count(page, fresh(data, "tokens_per_s", ls_report_mean(data->tokens_per_s, data->count, 100)));
    tile_close(page, "tokens per second");
    tile_open(page);
    put_number(page, "%.0f %%", 100.0 * fresh(data, "mfu", ls_report_mean(data->mfu, data->count, 100)));
    tile_close(page, "MFU, of the measured peak");
    tile_open(page);
    put_bytes(page, fresh(data, "peak_rss_bytes", (double)data->rss_bytes));
    tile_close(page, "memory at its highest");
    tile_open(page);
    put_duration(page, fresh(data, "wall_s", data->newest_s - data->begun_s));
    tile_close(page, data->running ? "since it began" : "wall time, from the first start on");
    if (data->has_goodput) {
        tile_open(page);
        put_number(page, "%.0f %%", 100.0 * ls_goodput_fraction(&data->goodput));
        tile_close(page, "of the time was training");
    }
}

static void append_tiles(const ls_report_data *data, ls_text *page)
{
    ls_text_append(page, "<div class=\"tiles\">\n");
    append_loss_tiles(data, page);
    append_step_tiles(data, page);
    append_machine_tiles(data, page);
    ls_text_append(page, "</div>\n");
    char advice[256];
    if (data->has_goodput && ls_goodput_advice(&data->goodput, advice, sizeof advice)) {
        ls_text_append(page, "<p class=\"advice\">");
        ls_text_append_escaped(page, advice);
        ls_text_append(page, "</p>\n");
    }
}

/* ---- predicted and measured ---- */

static void comparison_row(ls_text *page, const char *name, double predicted, double measured,
                           void (*put)(ls_text *page, double value))
{
    if (!isfinite(predicted)) {
        return;
    }
    ls_text_printf(page, "<tr><td>%s</td><td class=\"n\">", name);
    put(page, predicted);
    ls_text_append(page, "</td><td class=\"n\">");
    put(page, measured);
    ls_text_append(page, "</td><td class=\"n\">");
    put_number(page, "%.2f", predicted > 0.0 ? measured / predicted : NAN);
    ls_text_append(page, "</td></tr>\n");
}

static void append_predictions(const ls_report_data *data, ls_text *page)
{
    const json_t *predicted = json_object_get(data->summary, "predicted");
    const double memory = ls_json_number(predicted, "memory_bytes"),
                 step_s = ls_json_number(predicted, "step_s");
    if (!isfinite(memory) && !isfinite(step_s)) {
        return;
    }
    ls_text_append(
        page, "<h2>Predicted and measured</h2>\n<p class=\"say\">What the plan said before the first step, "
              "beside what came of it.</p>\n<div class=\"card scroll\"><table><tr><th></th><th class=\"n\">"
              "predicted</th><th class=\"n\">measured</th><th class=\"n\">measured / predicted</th></tr>\n");
    comparison_row(page, "memory", memory, fresh(data, "peak_rss_bytes", (double)data->rss_bytes), put_bytes);
    comparison_row(page, "time of a step", step_s,
                   fresh(data, "step_s", ls_report_mean(data->step_s, data->count, data->count)),
                   put_duration);
    comparison_row(page, "tokens per second", ls_json_number(predicted, "tokens_per_s"),
                   fresh(data, "tokens_per_s", ls_report_mean(data->tokens_per_s, data->count, data->count)),
                   put_count);
    comparison_row(page, "waiting for a checkpoint", ls_json_number(predicted, "checkpoint_stall_s"),
                   fresh(data, "checkpoint_stall_s", NAN), put_duration);
    ls_text_append(page, "</table></div>\n");
}

/* ---- samples ---- */

static size_t count_named(const ls_report_data *data, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        count += strcmp(member_text(json_array_get(data->events, i), "event"), name) == 0;
    }
    return count;
}

static void append_sample(const json_t *event, bool open, ls_text *page)
{
    const char *text = member_text(event, "text");
    uint64_t step = 0;
    const bool has_step = ls_event_step(event, &step);
    ls_text_printf(page, "<details%s><summary>", open ? " open" : "");
    if (has_step && step == 0) {
        ls_text_append(page, "before training");
    } else if (has_step) {
        ls_text_printf(page, "after step %" PRIu64, step);
    } else {
        ls_text_append(page, "sample");
    }
    ls_text_append(page, "</summary><pre class=\"sample\">");
    ls_text_append_escaped(page, text ? text : "");
    ls_text_append(page, "</pre></details>\n");
}

/* The first, the last, and evenly some between. */
static void append_samples(const ls_report_data *data, ls_text *page)
{
    const size_t total = count_named(data, "sample");
    if (total == 0) {
        return;
    }
    ls_text_append(
        page, "<h2>What it writes</h2>\n<p class=\"say\">Text the model wrote by itself, going on from the "
              "run file's prompt. Before training it is noise; spelling comes first, then words, then "
              "sentences.</p>\n<div class=\"card\">\n");
    const size_t shown = total < SAMPLES_MAX ? total : SAMPLES_MAX;
    size_t seen = 0, next = 0;
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        if (strcmp(member_text(event, "event"), "sample") != 0) {
            continue;
        }
        if (next < shown && seen == (shown > 1 ? next * (total - 1) / (shown - 1) : 0)) {
            append_sample(event, next == 0 || next + 1 == shown, page);
            next++;
        }
        seen++;
    }
    ls_text_append(page, "</div>\n");
}

/* ---- tables ---- */

static void append_checkpoint_row(const json_t *event, ls_text *page)
{
    uint64_t step = 0;
    const char *path = member_text(event, "path");
    ls_text_append(page, "<tr><td class=\"n\">");
    if (ls_event_step(event, &step)) {
        ls_text_printf(page, "%" PRIu64, step);
    }
    ls_text_append(page, "</td><td class=\"n\">");
    put_bytes(page, ls_json_number(event, "bytes"));
    ls_text_append(page, "</td><td class=\"n\">");
    put_duration(page, ls_json_number(event, "stall_s"));
    ls_text_append(page, "</td><td class=\"w\"><code>");
    ls_text_append_escaped(page, path ? path : DASH);
    ls_text_append(page, "</code></td></tr>\n");
}

/* What checkpoint.every_steps: auto came to, last. */
static void append_cadence(const ls_report_data *data, ls_text *page)
{
    for (size_t i = json_array_size(data->events); i-- > 0;) {
        const json_t *event = json_array_get(data->events, i);
        if (strcmp(member_text(event, "event"), "cadence") == 0) {
            ls_text_append(page,
                           "<p class=\"say\">Chosen from what one costs and how often the run was lost: ");
            ls_text_append_escaped(page, member_text(event, "text"));
            ls_text_append(page, ".</p>\n");
            return;
        }
    }
}

static void append_checkpoints(const ls_report_data *data, ls_text *page)
{
    const size_t total = count_named(data, "checkpoint");
    if (total == 0) {
        return;
    }
    ls_text_printf(
        page,
        "<h2>Checkpoints</h2>\n<p class=\"say\">Complete states on disk, from which the run goes on bit for "
        "bit, "
        "and which <code>sample</code>, <code>eval</code> and <code>export</code> take. Written so far: "
        "%zu%s; "
        "older "
        "ones may have been pruned since.</p>\n<div class=\"card scroll\"><table class=\"long\"><tr><th "
        "class=\"n\">step</th><th class=\"n\">bytes</th><th class=\"n\">training "
        "waited</th><th>path</th></tr>\n",
        total, total > CHECKPOINT_ROWS_MAX ? ", the newest are here" : "");
    size_t seen = 0;
    for (size_t i = 0; i < json_array_size(data->events); i++) {
        const json_t *event = json_array_get(data->events, i);
        if (strcmp(member_text(event, "event"), "checkpoint") == 0 && seen++ + CHECKPOINT_ROWS_MAX >= total) {
            append_checkpoint_row(event, page);
        }
    }
    ls_text_append(page, "</table></div>\n");
    append_cadence(data, page);
}

/* At most `limit` bytes of the text, cut between characters. */
static void append_cut(const char *text, size_t limit, ls_text *page)
{
    size_t bytes = strlen(text);
    if (bytes <= limit) {
        ls_text_append_escaped(page, text);
        return;
    }
    for (bytes = limit; bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80;) {
        bytes--;
    }
    ls_text piece = {0};
    ls_text_append_bytes(&piece, text, bytes);
    ls_text_append_escaped(page, ls_text_string(&piece));
    ls_text_append(page, "\u2026");
    ls_text_release(&piece);
}

/* The event's own fields, "key value" each; long ones are cut. */
static void append_fields(const json_t *event, ls_text *page)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)event, key, value)
    {
        if (strcmp(key, "time") == 0 || strcmp(key, "event") == 0 || strcmp(key, "step") == 0) {
            continue;
        }
        char *text = json_is_string(value)
                         ? NULL
                         : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(5));
        ls_text_append(page, "<span class=\"dim\">");
        ls_text_append_escaped(page, key);
        ls_text_append(page, "</span> ");
        append_cut(json_is_string(value) ? json_string_value(value) : text ? text : "", 120, page);
        ls_text_append(page, " ");
        free(text);
    }
}

static void append_event_row(const json_t *event, ls_text *page)
{
    uint64_t step = 0;
    ls_text_append(page, "<tr><td class=\"t\">");
    put_time(page, ls_json_number(event, "time"), "%m-%d %H:%M:%S");
    ls_text_append(page, "</td><td class=\"n\">");
    if (ls_event_step(event, &step)) {
        ls_text_printf(page, "%" PRIu64, step);
    }
    ls_text_append(page, "</td><td class=\"t\">");
    ls_text_append_escaped(page, member_text(event, "event"));
    ls_text_append(page, "</td><td class=\"w\">");
    append_fields(event, page);
    ls_text_append(page, "</td></tr>\n");
}

static void append_events(const ls_report_data *data, ls_text *page)
{
    const size_t count = json_array_size(data->events);
    if (count == 0) {
        return;
    }
    ls_text_printf(
        page,
        "<h2>Events</h2>\n<div class=\"card\"><details><summary>%zu events</summary><div class=\"scroll\">"
        "<table class=\"long\"><tr><th>time, UTC</th><th class=\"n\">step</th><th>event</th><th></th></tr>\n",
        count);
    const size_t first = count > EVENT_ROWS_MAX ? count - EVENT_ROWS_MAX : 0;
    if (first > 0) {
        ls_text_printf(page,
                       "<tr><td colspan=\"4\" class=\"dim\">%zu earlier ones are in events.jsonl</td></tr>\n",
                       first);
    }
    for (size_t i = first; i < count; i++) {
        append_event_row(json_array_get(data->events, i), page);
    }
    ls_text_append(page, "</table></div></details></div>\n");
}

/* ---- the end ---- */

static void append_hash(const ls_report_data *data, const char *key, const char *what, ls_text *page)
{
    const char *hex = member_text(data->summary, key);
    if (hex) {
        ls_text_printf(page, "<p><code class=\"hash\">%s ", key);
        ls_text_append_escaped(page, hex);
        ls_text_printf(page, "</code><br>%s</p>\n", what);
    }
}

static void append_identity(const ls_report_data *data, ls_text *page)
{
    ls_text_append(page, "<h2>To do it again</h2>\n<div class=\"card\">\n");
    if (!data->running) {
        append_hash(data, "state_hash",
                    "SHA-256 of the final weights and optimizer state. The same run file and data give "
                    "the same 64 digits, with any number of threads, interrupted or not.",
                    page);
        append_hash(data, "curve_hash", "SHA-256 of the loss of every step, bit for bit.", page);
    }
    if (data->run_yaml) {
        ls_text_append(page, "<details><summary>the run file, every key resolved</summary><pre>");
        ls_text_append_escaped(page, data->run_yaml);
        ls_text_append(page, "</pre></details>\n");
    }
    ls_text_append(page, "</div>\n<footer>Written ");
    put_time(page, ls_clock_wall_s(), "%Y-%m-%d %H:%M:%S UTC");
    ls_text_append(page, " by <code>lockstep report</code> from run.yaml, metrics.jsonl, events.jsonl and "
                         "summary.json; run it "
                         "again for the newest state.</footer>\n</main></body></html>\n");
}

ls_status ls_report_write(const char *dir, const char *path)
{
    ls_report_data data;
    ls_status status = ls_report_data_load(dir, &data);
    if (status == LS_OK) {
        ls_text page = {0};
        append_head(&data, &page);
        append_tiles(&data, &page);
        ls_report_append_figures(&data, &page);
        append_predictions(&data, &page);
        append_samples(&data, &page);
        append_checkpoints(&data, &page);
        append_events(&data, &page);
        append_identity(&data, &page);
        status = ls_file_write_atomic(path, page.data, page.bytes);
        ls_text_release(&page);
    }
    ls_report_data_release(&data);
    return status;
}

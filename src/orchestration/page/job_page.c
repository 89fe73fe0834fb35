// SPDX-License-Identifier: Apache-2.0
#include "base/svg.h"
#include "orchestration/page/html.h"
#include "orchestration/page/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REFRESH_S = 5, WIDE = 1000, PHONE = 370 };

static bool has_ended(const json_t *job)
{
    return ls_html_number(job, "ended") > 0.0;
}

/* ---- head ---- */

static void append_text_tile(ls_text *page, const char *text, const char *under)
{
    ls_text escaped = {0};
    ls_html_text(&escaped, text[0] ? text : NULL, 40);
    ls_html_tile(page, ls_text_string(&escaped), under);
    ls_text_release(&escaped);
}

static void append_tiles(const json_t *job, double now_s, ls_text *page)
{
    char text[48];
    const double submitted_s = ls_html_number(job, "submitted"), started_s = ls_html_number(job, "started"),
                 ended_s = ls_html_number(job, "ended");
    ls_text_append(page, "<div class=\"tiles\">\n");
    append_text_tile(page, ls_html_string(job, "account"), "account");
    append_text_tile(page, ls_html_string(job, "priority"), "priority");
    snprintf(text, sizeof text, "%" PRId64, ls_html_integer(job, "ranks"));
    ls_html_tile(page, text, "ranks");
    const double end_s = ended_s > 0.0 ? ended_s : now_s;
    const char *state = ls_html_string(job, "state");
    const bool waits = strcmp(state, "QUEUED") == 0 || strcmp(state, "HELD") == 0;
    const double queued_s = ls_html_number(job, "queued"), ran_s = ls_html_number(job, "ran_s");
    if (waits) {
        ls_html_tile(page, ls_duration_of(fmax(0.0, end_s - queued_s)).text, "waits");
    } else {
        ls_html_tile(page, ls_duration_of((started_s > 0.0 ? started_s : end_s) - submitted_s).text,
                     started_s > 0.0 ? "from its submission to its last start" : "waited");
    }
    if (started_s > 0.0) {
        const bool runs = !waits && !has_ended(job);
        ls_html_tile(page, ls_duration_of(runs ? fmax(0.0, end_s - started_s) : ran_s).text,
                     runs    ? "since its last start"
                     : waits ? "ran until now"
                             : "ran");
    }
    if (!has_ended(job) && ls_html_number(job, "ends") > 0.0) {
        ls_html_tile(page, ls_duration_of(fmax(0.0, ls_html_number(job, "ends") - now_s)).text, "left");
    }
    if (has_ended(job) && json_is_integer(json_object_get(job, "exit_code"))) {
        snprintf(text, sizeof text, "%" PRId64, ls_html_integer(job, "exit_code"));
        ls_html_tile(page, text, "exit code");
    }
    snprintf(text, sizeof text, "%" PRId64 " / %" PRId64, ls_html_integer(job, "preemptions"),
             ls_html_integer(job, "restarts"));
    ls_html_tile(page, text, "preempted / restarted");
    ls_text_append(page, "</div>\n");
}

/* ---- why ---- */

static void append_blockers(const json_t *blockers, double now_s, ls_text *page)
{
    if (json_array_size(blockers) == 0) {
        return;
    }
    ls_text_append(
        page, "<p>What it needs is held by:</p>\n<table><thead><tr><th class=\"n\">Job</th><th>Name</th>"
              "<th class=\"n\">Devices</th><th class=\"n\">Expected to end in</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(blockers); i++) {
        const json_t *other = json_array_get(blockers, i);
        const double ends_s = ls_html_number(other, "ends");
        ls_text_append(page, "<tr><td class=\"n\">");
        ls_html_job(page, ls_html_integer(other, "job"));
        ls_text_append(page, "</td><td class=\"w\">");
        ls_html_text(page, json_string_value(json_object_get(other, "name")), 60);
        ls_text_printf(page, "</td><td class=\"n\">%" PRId64 "</td><td class=\"n\">%s</td></tr>\n",
                       ls_html_integer(other, "devices"),
                       ends_s > 0.0 ? ls_duration_of(fmax(0.0, ends_s - now_s)).text : "not known");
    }
    ls_text_append(page, "</tbody></table>\n");
}

static void append_why(const json_t *why, double now_s, ls_text *page)
{
    ls_text_append(page, "<h2 id=\"why\">Why it waits</h2>\n<div class=\"card\"><p><b>");
    ls_html_text(page, ls_html_string(why, "text"), 500);
    ls_text_append(page, "</b></p>\n");
    const json_t *eta = json_object_get(why, "eta_s");
    if (json_is_number(eta)) {
        ls_text_printf(page, "<p>It is expected to start in %s.</p>\n",
                       ls_duration_of(json_number_value(eta)).text);
    }
    append_blockers(json_object_get(why, "blockers"), now_s, page);
    const json_t *changes = json_object_get(why, "counterfactuals");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        ls_text_append(page, i == 0 ? "<p>What would help:</p><ul>\n<li>" : "<li>");
        ls_html_text(page, ls_html_string(json_array_get(changes, i), "text"), 300);
        ls_text_append(page, i + 1 == json_array_size(changes) ? "</li></ul>\n" : "</li>\n");
    }
    ls_text_append(page, "</div>\n");
}

/* ---- curve ---- */

static void append_chart(ls_svg_chart chart, ls_text *page)
{
    ls_text_append(page, "<div class=\"card\"><div class=\"ls-wide\">");
    chart.width = WIDE;
    chart.height = 300;
    ls_svg_line_chart(&chart, page);
    ls_text_append(page, "</div><div class=\"ls-phone\">");
    chart.width = PHONE;
    chart.height = 240;
    ls_svg_line_chart(&chart, page);
    ls_text_append(page, "</div></div>\n");
}

static size_t column_of(const json_t *metrics, const char *name)
{
    const json_t *columns = json_object_get(metrics, "columns");
    for (size_t i = 0; i < json_array_size(columns); i++) {
        if (strcmp(json_string_value(json_array_get(columns, i)), name) == 0) {
            return i;
        }
    }
    return 0;
}

static double cell_of(const json_t *point, size_t column)
{
    const json_t *cell = json_array_get(point, column);
    return json_is_number(cell) ? json_number_value(cell) : NAN;
}

static void append_curve(const json_t *metrics, ls_text *page)
{
    const json_t *points = json_object_get(metrics, "points");
    const size_t count = json_array_size(points);
    double *x = calloc(2 * count + 1, sizeof *x);
    if (count == 0 || !x) {
        free(x);
        return;
    }
    double *loss = x + count;
    const size_t loss_column = column_of(metrics, "loss");
    for (size_t i = 0; i < count; i++) {
        const json_t *point = json_array_get(points, i);
        x[i] = cell_of(point, 0);
        loss[i] = cell_of(point, loss_column);
    }
    ls_text_append(page, "<h2 id=\"loss\">Loss</h2>\n");
    const ls_svg_series series = {.name = "loss", .x = x, .y = loss, .count = count};
    append_chart(
        (ls_svg_chart){.x_label = "step", .y_label = "loss (nats)", .series = &series, .series_count = 1},
        page);
    free(x);
}

/* ---- events and log ---- */

static void append_time(double time_s, ls_text *page)
{
    char text[40];
    struct tm parts;
    const time_t when = time_s > 0.0 && time_s < 1e11 ? (time_t)time_s : 0;
    gmtime_r(&when, &parts);
    strftime(text, sizeof text, "%m-%d %H:%M:%S", &parts);
    ls_text_append(page, text);
}

/* A change of state, or what the run told: its name, and the rest as it stands. */
static void append_event(const json_t *event, ls_text *page)
{
    ls_text_append(page, "<tr><td class=\"t dim\">");
    append_time(ls_html_number(event, "time"), page);
    ls_text_append(page, "</td><td class=\"t\">");
    if (json_object_get(event, "to")) {
        ls_html_state(page, ls_html_string(event, "to"));
        ls_text_append(page, "</td><td class=\"rest\">");
        ls_html_text(page, ls_html_string(event, "text"), 300);
    } else {
        ls_html_text(page, ls_html_string(event, "event"), 40);
        ls_text_append(page, "</td><td class=\"rest dim\">");
        char *dump = json_dumps(event, JSON_COMPACT);
        ls_html_text(page, dump, 300);
        free(dump);
    }
    ls_text_append(page, "</td></tr>\n");
}

static void append_events(const json_t *events, ls_text *page)
{
    const size_t count = json_array_size(events);
    ls_text_append(page, "<h2 id=\"events\">What happened</h2>\n<div class=\"card scroll\"><table><tbody>\n");
    for (size_t i = count; i-- > 0;) {
        append_event(json_array_get(events, i), page);
    }
    ls_text_append(page, "</tbody></table></div>\n");
}

static void append_log(const ls_page_job_answers *answers, ls_text *page)
{
    ls_text printable = {0};
    ls_text_append_printable(&printable, answers->log, answers->log_bytes, "\n\t");
    ls_text_append(page, "<h2 id=\"log\">The end of its log</h2>\n<div class=\"card\"><pre class=\"log\">");
    ls_text_append_escaped(page, ls_text_string(&printable));
    ls_text_append(page, "</pre></div>\n");
    ls_text_release(&printable);
}

void ls_page_job(const ls_page_job_answers *answers, double now_s, ls_text *page)
{
    const json_t *job = answers->job;
    const int64_t number = ls_html_integer(job, "job");
    const char *state = ls_html_string(job, "state");
    char title[64];
    snprintf(title, sizeof title, "Job %" PRId64 ": %.32s", number, state);
    ls_html_open(page, title, has_ended(job) ? 0 : REFRESH_S);
    ls_text_printf(page,
                   "<nav><a href=\"/\">\u2190 the queue</a></nav>\n<div class=\"head\"><h1>Job %" PRId64 ": ",
                   number);
    ls_html_text(page, json_string_value(json_object_get(job, "name")), 80);
    ls_text_append(page, "</h1>");
    ls_html_state(page, state);
    ls_text_append(page, "</div>\n<p class=\"sub\">");
    ls_html_text(page,
                 json_string_value(json_object_get(
                     job, json_is_string(json_object_get(job, "run_dir")) ? "run_dir" : "directory")),
                 300);
    ls_text_append(page, "</p>\n");
    append_tiles(job, now_s, page);
    const bool is_waiting = strcmp(state, "QUEUED") == 0 || strcmp(state, "HELD") == 0;
    if (is_waiting && answers->why) {
        append_why(answers->why, now_s, page);
    }
    if (answers->trouble) {
        ls_text_append(page,
                       "<p class=\"advice\">Not all that it wrote can be shown: its files can't be read (");
        ls_html_text(page, answers->trouble, 100);
        ls_text_append(page, ").</p>\n");
    }
    if (answers->metrics) {
        append_curve(answers->metrics, page);
    }
    if (answers->log) {
        append_log(answers, page);
    }
    append_events(json_object_get(answers->events, "events"), page);
    ls_html_close(page, now_s);
}

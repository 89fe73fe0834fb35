// SPDX-License-Identifier: Apache-2.0
#include "orchestration/page/html.h"
#include "orchestration/page/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { REFRESH_S = 5, ROWS_MAX = 200, CELLS_MAX = 64 };

static bool is_final(const char *state)
{
    return strcmp(state, "SUCCEEDED") == 0 || strcmp(state, "FAILED") == 0 || strcmp(state, "CANCELLED") == 0;
}

static bool is_waiting(const char *state)
{
    return strcmp(state, "QUEUED") == 0 || strcmp(state, "HELD") == 0;
}

static size_t count_jobs(const json_t *jobs, bool waiting)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        count += is_waiting(ls_html_string(json_array_get(jobs, i), "state")) == waiting;
    }
    return count;
}

/* ---- tiles and nodes ---- */

static void append_tiles(const ls_page_queue_answers *answers, const json_t *jobs, ls_text *page)
{
    char text[48];
    const json_t *states = json_object_get(answers->status, "states");
    ls_text_append(page, "<div class=\"tiles\">\n");
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64, ls_html_integer(answers->status, "devices_used"),
             ls_html_integer(answers->status, "devices"));
    ls_html_tile(page, text, "devices in use");
    snprintf(text, sizeof text, "%zu", count_jobs(jobs, false));
    ls_html_tile(page, text, "jobs run");
    const int64_t held = ls_html_integer(states, "HELD");
    char waits[48] = "jobs wait";
    snprintf(text, sizeof text, "%" PRId64, ls_html_integer(states, "QUEUED"));
    if (held > 0) {
        snprintf(waits, sizeof waits, "jobs wait, %" PRId64 " held", held);
    }
    ls_html_tile(page, text, waits);
    const int64_t failed = ls_html_integer(states, "FAILED");
    char under[64];
    snprintf(text, sizeof text, failed > 0 ? "<i class=\"bad\">%" PRId64 "</i>" : "%" PRId64, failed);
    snprintf(under, sizeof under, "failed of %" PRId64 " that ended lately",
             failed + ls_html_integer(states, "SUCCEEDED") + ls_html_integer(states, "CANCELLED"));
    ls_html_tile(page, text, under);
    ls_text_append(page, "</div>\n");
    if (json_is_string(json_object_get(answers->status, "paused"))) {
        ls_text_append(page, "<p class=\"advice\">Nothing can be changed for now: ");
        ls_html_text(page, ls_html_string(answers->status, "paused"), 300);
        ls_text_append(page, "</p>\n");
    }
}

static void append_node(const json_t *node, ls_text *page)
{
    const int64_t devices = ls_html_integer(node, "devices"), used = ls_html_integer(node, "used");
    ls_text_append(page, "<div class=\"card\"><b>");
    ls_html_text(page, ls_html_string(node, "node"), 64);
    ls_text_append(page, "</b> <span class=\"dim\">");
    ls_html_text(page, ls_html_string(node, "kind"), 32);
    ls_text_printf(page, ", %" PRId64 " of %" PRId64 " in use%s</span>", used, devices,
                   strcmp(ls_html_string(node, "state"), "up") == 0 ? "" : ", <b class=\"bad\">down</b>");
    ls_text_append(page, "<div class=\"cells\" aria-hidden=\"true\">");
    for (int64_t i = 0; i < devices && i < CELLS_MAX; i++) {
        ls_text_printf(page, "<span class=\"cell%s\"></span>", i < used ? " on" : "");
    }
    ls_text_append(page, "</div></div>\n");
}

static void append_nodes(const json_t *nodes, ls_text *page)
{
    ls_text_append(page, "<h2 id=\"nodes\">Nodes</h2>\n<div class=\"nodes\">\n");
    for (size_t i = 0; i < json_array_size(nodes) && i < ROWS_MAX; i++) {
        append_node(json_array_get(nodes, i), page);
    }
    ls_text_append(page, "</div>\n");
}

/* ---- jobs ---- */

typedef enum part { RUNNING, WAITING, ENDED } part;

/* A cell; on a phone rows are no table, and `label` says what it is. */
static void append_cell(ls_text *page, const char *style, const char *label, const char *text)
{
    ls_text_printf(page, "<td class=\"%s\" data-l=\"%s\">", style, label);
    ls_html_text(page, text, 64);
    ls_text_append(page, "</td>");
}

static void append_span(ls_text *page, const char *label, double span_s)
{
    append_cell(page, "n", label, span_s >= 0.0 ? ls_duration_of(span_s).text : NULL);
}

/* From `from_s` to `to_s`; 0 is not known: -1. */
static double span(double from_s, double to_s)
{
    return from_s > 0.0 && to_s > 0.0 ? (to_s > from_s ? to_s - from_s : 0.0) : -1.0;
}

static void append_times(const json_t *job, part of, double now_s, ls_text *page)
{
    const double started_s = ls_html_number(job, "started"), ended_s = ls_html_number(job, "ended");
    if (of == RUNNING) {
        append_span(page, "for", span(started_s, now_s));
        append_span(page, "left", span(now_s, ls_html_number(job, "ends")));
    } else if (of == WAITING) {
        append_span(page, "waits", span(ls_html_number(job, "queued"), now_s));
    } else {
        append_span(page, "ran", started_s > 0.0 ? ls_html_number(job, "ran_s") : -1.0);
        char ago[40];
        snprintf(ago, sizeof ago, "%s ago", ls_duration_of(now_s > ended_s ? now_s - ended_s : 0.0).text);
        append_cell(page, "n", "ended", ended_s > 0.0 ? ago : NULL);
    }
}

static void append_job(const json_t *job, part of, double now_s, ls_text *page)
{
    char ranks[24];
    snprintf(ranks, sizeof ranks, "%" PRId64, ls_html_integer(job, "ranks"));
    ls_text_append(page, "<tr><td class=\"n\">");
    ls_html_job(page, ls_html_integer(job, "job"));
    ls_text_append(page, "</td><td class=\"w name\">");
    ls_html_text(page, json_string_value(json_object_get(job, "name")), 60);
    ls_text_append(page, "</td><td class=\"t\">");
    ls_html_state(page, ls_html_string(job, "state"));
    ls_text_append(page, "</td>");
    append_cell(page, "w", "", ls_html_string(job, "account"));
    append_cell(page, "", "priority", json_string_value(json_object_get(job, "priority")));
    append_cell(page, "n", "ranks", ranks);
    append_times(job, of, now_s, page);
    ls_text_append(page, "<td class=\"why\">");
    ls_html_text(page, ls_html_string(job, "why"), 200);
    ls_text_append(page, "</td></tr>\n");
}

static void open_jobs(ls_text *page, part of)
{
    static const char *const heads[] = {
        [RUNNING] = "<h2 id=\"running\">What runs</h2>",
        [WAITING] = "<h2 id=\"queue\">What waits, and why</h2>",
        [ENDED] = "<h2 id=\"ended\">What ended, the last first</h2>",
    };
    static const char *const times[] = {
        [RUNNING] = "<th class=\"n\">For</th><th class=\"n\">Left</th><th>Note</th>",
        [WAITING] = "<th class=\"n\">Waits</th><th>Why</th>",
        [ENDED] = "<th class=\"n\">Ran</th><th class=\"n\">Ended</th><th>How</th>",
    };
    ls_text_printf(page,
                   "%s\n<div class=\"card scroll\"><table class=\"jobs\"><thead><tr><th class=\"n\">Job</th>"
                   "<th>Name</th><th>State</th><th>Account</th><th>Priority</th><th class=\"n\">Ranks</th>"
                   "%s</tr></thead><tbody>\n",
                   heads[of], times[of]);
}

static void close_jobs(ls_text *page, size_t rows, size_t left)
{
    if (rows == 0) {
        ls_text_append(page, "<tr><td colspan=\"9\" class=\"dim\">none</td></tr>\n");
    }
    if (left > 0) {
        ls_text_printf(page, "<tr><td colspan=\"9\" class=\"dim\">and %zu more: lockstep ps</td></tr>\n",
                       left);
    }
    ls_text_append(page, "</tbody></table></div>\n");
}

static part part_of(const json_t *job)
{
    const char *state = ls_html_string(job, "state");
    return is_final(state) ? ENDED : is_waiting(state) ? WAITING : RUNNING;
}

static void append_jobs(const json_t *jobs, part of, double now_s, ls_text *page)
{
    size_t rows = 0, left = 0;
    open_jobs(page, of);
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        if (part_of(job) != of) {
            continue;
        }
        if (rows < ROWS_MAX) {
            append_job(job, of, now_s, page);
            rows++;
        } else {
            left++;
        }
    }
    close_jobs(page, rows, left);
}

/* Where the next page of those that have ended begins. */
static void append_earlier(const json_t *answer, ls_text *page)
{
    const int64_t before = ls_html_integer(answer, "before");
    if (before > 0) {
        ls_text_printf(page, "<p><a href=\"/ended?before=%" PRId64 "\">those that ended earlier</a></p>\n",
                       before);
    }
}

/* ---- accounts ---- */

static void append_limit(const json_t *account, const char *key, ls_text *page)
{
    const json_t *limit = json_object_get(account, key);
    if (json_is_integer(limit)) {
        ls_text_printf(page, "<td class=\"n\">%" PRId64 "</td>", (int64_t)json_integer_value(limit));
    } else {
        ls_text_append(page, "<td class=\"n dim\">any</td>");
    }
}

static void append_accounts(const json_t *accounts, ls_text *page)
{
    ls_text_append(
        page,
        "<h2 id=\"accounts\">Accounts</h2>\n<div class=\"card scroll\"><table><thead><tr><th>Account</th>"
        "<th class=\"n\">Share</th><th class=\"n\">Quota</th><th class=\"n\">Devices</th>"
        "<th class=\"n\">Running</th><th class=\"n\">Waiting</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(accounts) && i < ROWS_MAX; i++) {
        const json_t *account = json_array_get(accounts, i);
        ls_text_append(page, "<tr><td class=\"w\">");
        ls_html_text(page, ls_html_string(account, "account"), 64);
        ls_text_printf(page, "</td><td class=\"n\">%" PRId64 "</td>", ls_html_integer(account, "weight"));
        append_limit(account, "quota", page);
        ls_text_printf(page,
                       "<td class=\"n\">%" PRId64 "</td><td class=\"n\">%" PRId64
                       "</td><td class=\"n\">%" PRId64 "</td></tr>\n",
                       ls_html_integer(account, "devices"), ls_html_integer(account, "running"),
                       ls_html_integer(account, "waiting"));
    }
    ls_text_append(page, "</tbody></table></div>\n");
}

void ls_page_queue(const ls_page_queue_answers *answers, double now_s, ls_text *page)
{
    const json_t *jobs = json_object_get(answers->jobs, "jobs");
    char title[80];
    snprintf(title, sizeof title, "%zu running, %zu waiting", count_jobs(jobs, false),
             count_jobs(jobs, true));
    ls_html_open(page, title, REFRESH_S);
    ls_text_append(page, "<div class=\"head\"><h1>The queue</h1></div>\n<p class=\"sub\">Lockstep ");
    ls_html_text(page, ls_html_string(answers->status, "version"), 32);
    ls_text_append(page, ", engine ");
    ls_html_text(page, ls_html_string(answers->status, "engine"), 32);
    ls_text_append(page, ", order ");
    ls_html_text(page, ls_html_string(answers->status, "order"), 32);
    ls_text_append(page, "</p>\n");
    append_tiles(answers, jobs, page);
    append_jobs(jobs, RUNNING, now_s, page);
    append_jobs(jobs, WAITING, now_s, page);
    append_jobs(json_object_get(answers->ended, "jobs"), ENDED, now_s, page);
    append_earlier(answers->ended, page);
    append_nodes(json_object_get(answers->nodes, "nodes"), page);
    append_accounts(json_object_get(answers->accounts, "accounts"), page);
    ls_html_close(page, now_s);
}

void ls_page_ended(const json_t *ended, double now_s, ls_text *page)
{
    ls_html_open(page, "Jobs that have ended", 0);
    ls_text_append(page, "<nav><a href=\"/\">\u2190 the queue</a></nav>\n");
    append_jobs(json_object_get(ended, "jobs"), ENDED, now_s, page);
    append_earlier(ended, page);
    ls_html_close(page, now_s);
}

// SPDX-License-Identifier: Apache-2.0
#include "orchestration/page/html.h"
#include "orchestration/page/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { REFRESH_S = 5, ROWS_MAX = 500, ENDED_MAX = 20, CELLS_MAX = 64 };

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
    ls_html_tile(page, text, "jobs hold devices");
    snprintf(text, sizeof text, "%zu", count_jobs(jobs, true));
    ls_html_tile(page, text, "jobs wait");
    snprintf(text, sizeof text, "%" PRId64 " / %" PRId64, ls_html_integer(states, "SUCCEEDED"),
             ls_html_integer(states, "FAILED"));
    ls_html_tile(page, text, "succeeded / failed lately");
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

static void append_name(const json_t *job, ls_text *page)
{
    ls_text_append(page, "<td class=\"w\">");
    ls_html_text(page, json_string_value(json_object_get(job, "name")), 60);
    ls_text_append(page, "</td>");
}

static void append_job(const json_t *job, double now_s, ls_text *page)
{
    const char *state = ls_html_string(job, "state");
    const double since_s = ls_html_number(job, is_final(state)     ? "ended"
                                               : is_waiting(state) ? "submitted"
                                                                   : "started");
    ls_text_append(page, "<tr><td class=\"n\">");
    ls_html_job(page, ls_html_integer(job, "job"));
    ls_text_append(page, "</td>");
    append_name(job, page);
    ls_text_append(page, "<td class=\"t\">");
    ls_html_state(page, state);
    ls_text_append(page, "</td><td class=\"w\">");
    ls_html_text(page, ls_html_string(job, "account"), 64);
    ls_text_append(page, "</td><td>");
    ls_html_text(page, json_string_value(json_object_get(job, "priority")), 16);
    ls_text_printf(page, "</td><td class=\"n\">%" PRId64 "</td>", ls_html_integer(job, "ranks"));
    ls_html_since(page, now_s, since_s);
    if (!is_final(state)) {
        ls_html_left(page, now_s, ls_html_number(job, "ends"));
    }
    ls_text_append(page, "<td class=\"why\">");
    ls_html_text(page, ls_html_string(job, "why"), 200);
    ls_text_append(page, "</td></tr>\n");
}

static void open_jobs(ls_text *page, const char *id, const char *title, const char *since, bool has_left)
{
    ls_text_printf(
        page,
        "<h2 id=\"%s\">%s</h2>\n<div class=\"card scroll\"><table class=\"long\"><thead><tr><th "
        "class=\"n\">Job"
        "</th><th>Name</th><th>State</th><th>Account</th><th>Priority</th><th class=\"n\">Ranks</th>"
        "<th class=\"n\">%s</th>%s<th>Why</th></tr></thead><tbody>\n",
        id, title, since, has_left ? "<th class=\"n\">Left</th>" : "");
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

static void append_queue(const json_t *jobs, double now_s, ls_text *page)
{
    size_t rows = 0;
    open_jobs(page, "queue", "The queue", "Since", true);
    const size_t count = json_array_size(jobs);
    for (size_t i = 0; i < count && rows < ROWS_MAX; i++, rows++) {
        append_job(json_array_get(jobs, i), now_s, page);
    }
    close_jobs(page, rows, count - rows);
}

static void append_ended(const json_t *jobs, double now_s, ls_text *page)
{
    size_t rows = 0;
    open_jobs(page, "ended", "Ended lately", "Ago", false);
    for (size_t i = json_array_size(jobs); i-- > 0 && rows < ENDED_MAX;) {
        const json_t *job = json_array_get(jobs, i);
        if (is_final(ls_html_string(job, "state"))) {
            append_job(job, now_s, page);
            rows++;
        }
    }
    close_jobs(page, rows, 0);
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
    append_nodes(json_object_get(answers->nodes, "nodes"), page);
    append_queue(jobs, now_s, page);
    append_accounts(json_object_get(answers->accounts, "accounts"), page);
    append_ended(json_object_get(answers->ended, "jobs"), now_s, page);
    ls_html_close(page, now_s);
}

// SPDX-License-Identifier: Apache-2.0
/* The values of web/queue.html and web/ended.html. */
#include "orchestration/page/page.h"
#include "orchestration/page/page_values.h"

#include <inttypes.h>
#include <string.h>

enum { REFRESH_S = 5, ROWS_MAX = 200, CELLS_MAX = 64, ALERTS_MAX = 5, SWEEPS_MAX = 5, COLORS = 8 };

typedef enum part { RUNNING, WAITING, ENDED } part;

static part part_of(const json_t *job)
{
    const char *state = ls_page_string(job, "state");
    const bool is_final =
        strcmp(state, "SUCCEEDED") == 0 || strcmp(state, "FAILED") == 0 || strcmp(state, "CANCELLED") == 0;
    return is_final ? ENDED : ls_page_is_waiting(state) ? WAITING : RUNNING;
}

static size_t count_jobs(const json_t *jobs, bool waiting)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        count += ls_page_is_waiting(ls_page_string(json_array_get(jobs, i), "state")) == waiting;
    }
    return count;
}

/* ---- tiles and nodes ---- */

static void add_tiles(ls_arena *arena, const json_t *status, const json_t *jobs, ls_values *page)
{
    const json_t *states = json_object_get(status, "states");
    const int64_t held = ls_page_integer(states, "HELD"), failed = ls_page_integer(states, "FAILED");
    const int64_t ended =
        failed + ls_page_integer(states, "SUCCEEDED") + ls_page_integer(states, "CANCELLED");
    ls_web_tile(page,
                ls_arena_printf(arena, "%" PRId64 " of %" PRId64, ls_page_integer(status, "devices_used"),
                                ls_page_integer(status, "devices")),
                "devices in use");
    ls_web_tile(page, ls_arena_printf(arena, "%zu", count_jobs(jobs, false)), "running jobs");
    ls_web_tile(page, ls_arena_printf(arena, "%" PRId64, ls_page_integer(states, "QUEUED")),
                held > 0 ? ls_arena_printf(arena, "waiting jobs, and %" PRId64 " held", held)
                         : "waiting jobs");
    ls_values *tile =
        ls_web_tile(page, ls_arena_printf(arena, "%" PRId64, failed),
                    ls_arena_printf(arena, "failed, of %" PRId64 " that ended recently", ended));
    ls_values_text(tile, "tile_look", failed > 0 ? "bad" : "");
}

/* "job 7 small, 93 % busy, 41.2 of 141 GB, 412 W, 55 °C", as far as the device reports that. */
static void set_said(const json_t *job, const json_t *reading, ls_values *cell)
{
    static const struct {
        const char *key, *format;
        double scale;
    } parts[] = {
        {"utilization", ", %.0f %% busy", 100.0},       {"memory_bytes", ", %.3g", 1e-9},
        {"memory_max_bytes", " of %.3g GB", 1e-9},      {"power_w", ", %.0f W", 1.0},
        {"temperature_c", ", %.0f \u00b0C", 1.0},       {"throttled", ", its clock is held down", 1.0},
        {"ecc_errors", ", %.0f double-bit errors", 1.0}};
    ls_text said = {0};
    if (job) {
        ls_text_printf(&said, "job %" PRId64 " %.60s", ls_page_integer(job, "job"),
                       ls_page_string(job, "name"));
    } else {
        ls_text_append(&said, "free");
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const double value = ls_page_number(reading, parts[i].key);
        if (json_is_number(json_object_get(reading, parts[i].key)) && (i < 5 || value > 0.0)) {
            ls_text_printf(&said, parts[i].format, parts[i].scale * value);
        }
    }
    ls_values_text(cell, "said", ls_text_string(&said));
    ls_text_release(&said);
}

/* From below, as much of the cell as the device is busy; all of it where that is not known. */
static void fill_cell(const json_t *job, const json_t *reading, ls_values *cell)
{
    const json_t *busy = json_object_get(reading, "utilization");
    const double share = json_is_number(busy) ? json_number_value(busy) : 1.0;
    const double height = 16.0 * (share > 0.1 ? share < 1.0 ? share : 1.0 : 0.1);
    ls_values_flag(cell, "on", job != NULL);
    ls_values_printf(cell, "color", "%" PRId64, ls_page_integer(job, "job") % COLORS);
    ls_values_printf(cell, "y", "%.1f", 16.0 - height);
    ls_values_printf(cell, "height", "%.1f", height);
    set_said(job, reading, cell);
}

static const json_t *holder_of(const json_t *holders, int64_t job)
{
    for (size_t i = 0; i < json_array_size(holders); i++) {
        if (ls_page_integer(json_array_get(holders, i), "job") == job) {
            return json_array_get(holders, i);
        }
    }
    return NULL;
}

/* A cell for each device, in the colour of the job that has it: device by device where they report
 * that, and one job after the other elsewhere. */
static void add_cells(const json_t *node, int64_t devices, ls_values *row)
{
    const json_t *holders = json_object_get(node, "jobs"), *readings = json_object_get(node, "readings");
    size_t holder = 0;
    int64_t left = 0;
    for (int64_t k = 0; k < devices; k++) {
        const json_t *reading = json_array_get(readings, (size_t)k);
        while (left == 0 && holder < json_array_size(holders)) {
            left = ls_page_integer(json_array_get(holders, holder++), "devices");
        }
        const json_t *job = left > 0 ? json_array_get(holders, holder - 1) : NULL;
        left -= left > 0;
        fill_cell(reading ? holder_of(holders, ls_page_integer(reading, "job")) : job, reading,
                  ls_values_add(row, "cells"));
    }
}

static void add_nodes(const json_t *nodes, ls_values *page)
{
    for (size_t i = 0; i < json_array_size(nodes) && i < ROWS_MAX; i++) {
        const json_t *node = json_array_get(nodes, i);
        const int64_t devices = ls_page_integer(node, "devices");
        const double price = ls_page_number(node, "price_per_device_h");
        ls_values *row = ls_values_add(page, "nodes");
        ls_page_set_text(row, node, "node", 64);
        ls_page_set_text(row, node, "kind", 32);
        ls_values_text(row, "price", "");
        if (price > 0.0) {
            ls_values_printf(row, "price", "%.4g", price);
        }
        ls_page_set_integer(row, node, "devices");
        ls_page_set_integer(row, node, "used");
        ls_values_flag(row, "down", strcmp(ls_page_string(node, "state"), "up") != 0);
        add_cells(node, devices < CELLS_MAX ? devices : CELLS_MAX, row);
    }
}

/* ---- jobs ---- */

/* From `from_s` to `to_s`, never below 0; 0 means not known: a dash. */
static void set_span(ls_values *row, const char *name, double from_s, double to_s)
{
    const bool is_known = from_s > 0.0 && to_s > 0.0;
    ls_values_text(row, name, is_known ? ls_duration_of(to_s > from_s ? to_s - from_s : 0.0).text : NULL);
}

static void set_times(const json_t *job, part of, double now_s, ls_values *row)
{
    const double started_s = ls_page_number(job, "started"), ended_s = ls_page_number(job, "ended");
    if (of == RUNNING) {
        set_span(row, "span", started_s, now_s);
        set_span(row, "left", now_s, ls_page_number(job, "ends"));
    } else if (of == WAITING) {
        set_span(row, "span", ls_page_number(job, "queued"), now_s);
        set_span(row, "left", now_s, ls_page_number(job, "starts"));
    } else {
        ls_values_text(row, "span",
                       started_s > 0.0 ? ls_duration_of(ls_page_number(job, "ran_s")).text : NULL);
        ls_values_text(row, "ended", NULL);
        if (ended_s > 0.0) {
            ls_values_printf(row, "ended", "%s ago",
                             ls_duration_of(now_s > ended_s ? now_s - ended_s : 0.0).text);
        }
    }
}

static void add_job(const json_t *job, part of, double now_s, ls_values *list)
{
    ls_values *row = ls_values_add(list, "jobs");
    const char *state = ls_page_string(job, "state");
    ls_page_set_integer(row, job, "job");
    ls_page_set_text(row, job, "name", 60);
    ls_values_cut(row, "state", state, 32);
    ls_values_text(row, "look", ls_page_state_look(state));
    ls_values_cut(row, "account", ls_page_string(job, "account"), 64);
    ls_page_set_text(row, job, "priority", 64);
    ls_page_set_integer(row, job, "ranks");
    set_times(job, of, now_s, row);
    ls_values_cut(row, "why", ls_page_string(job, "why"), 200);
    const int64_t step = ls_page_integer(job, "step"), steps = ls_page_integer(job, "steps");
    const double cost = ls_page_number(job, "cost"), cap = ls_page_number(job, "max_cost");
    ls_values_text(row, "progress", "");
    ls_values_text(row, "money", "");
    if (of == RUNNING && steps > 0) {
        ls_values_printf(row, "progress", "step %" PRId64 " of %" PRId64, step, steps);
    }
    if (of != WAITING && cost > 0.0) {
        ls_values_printf(row, "money", cap > 0.0 ? "%.2f of %.2f USD" : "%.2f USD", cost, cap);
    }
}

static void add_jobs(const json_t *jobs, part of, double now_s, ls_values *page)
{
    static const struct {
        const char *id, *heading, *flag;
    } parts[] = {
        [RUNNING] = {"running", "Running", "is_running"},
        [WAITING] = {"queue", "Waiting, and why", "is_waiting"},
        [ENDED] = {"ended", "Ended, newest first", "has_ended"},
    };
    size_t rows = 0;
    ls_values *list = ls_values_add(page, "parts");
    ls_values_text(list, "id", parts[of].id);
    ls_values_text(list, "heading", parts[of].heading);
    ls_values_flag(list, parts[of].flag, true);
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        if (part_of(job) == of && rows++ < ROWS_MAX) {
            add_job(job, of, now_s, list);
        }
    }
    if (rows > ROWS_MAX) {
        ls_values_printf(list, "more", "%zu", rows - ROWS_MAX);
    }
}

/* Where the next page of jobs that have ended begins. */
static void set_before(const json_t *answer, ls_values *page)
{
    if (ls_page_integer(answer, "before") > 0) {
        ls_page_set_integer(page, answer, "before");
    }
}

/* ---- accounts, alerts ---- */

static void set_dollars(ls_values *row, const json_t *account, const char *key)
{
    ls_values_text(row, key, NULL);
    if (json_is_number(json_object_get(account, key))) {
        ls_values_printf(row, key, "%.2f", ls_page_number(account, key));
    }
}

/* What the account spent this month, beside its budget, and how much of what it held was used. */
static void set_money(ls_values *row, const json_t *account, const json_t *usage)
{
    const char *name = ls_page_string(account, "account");
    const double budget = ls_page_number(account, "budget"), spent = ls_page_number(account, "month_cost");
    const double share = budget > 0.0 ? spent / budget : 0.0;
    static const char *const money[] = {"month_cost", "month_forecast", "budget"};
    for (size_t i = 0; i < 3; i++) {
        set_dollars(row, account, money[i]);
    }
    ls_values_flag(row, "has_budget", budget > 0.0);
    ls_values_printf(row, "spent", "%.1f", share < 1.0 ? 100.0 * share : 100.0);
    ls_values_text(row, "spent_color", share >= 1.0 ? "4" : share >= 0.8 ? "6" : "2");
    ls_values_text(row, "busy", NULL);
    for (size_t i = 0; i < json_array_size(usage); i++) {
        const json_t *used = json_array_get(usage, i);
        const double held_h = ls_page_number(used, "allocated_h");
        if (strcmp(ls_page_string(used, "account"), name) == 0 && held_h > 0.0) {
            ls_values_printf(row, "busy", "%.0f %%", 100.0 * (1.0 - ls_page_number(used, "idle_h") / held_h));
        }
    }
}

static void add_alerts(const json_t *alerts, ls_values *page)
{
    const size_t count = json_array_size(alerts);
    for (size_t i = count; i-- > 0 && count - i <= ALERTS_MAX;) {
        const json_t *alert = json_array_get(alerts, i);
        ls_values *row = ls_values_add(page, "alerts");
        ls_values_cut(row, "kind", ls_page_string(alert, "kind"), 40);
        ls_values_cut(row, "text", ls_page_string(alert, "text"), 400);
        ls_web_time(row, "time", ls_page_number(alert, "time"), "%m-%d %H:%M UTC");
        ls_values_flag(row, "has_job", ls_page_integer(alert, "job") > 0);
        ls_page_set_integer(row, alert, "job");
    }
}

static void add_accounts(const json_t *accounts, const json_t *usage, ls_values *page)
{
    for (size_t i = 0; i < json_array_size(accounts) && i < ROWS_MAX; i++) {
        const json_t *account = json_array_get(accounts, i);
        ls_values *row = ls_values_add(page, "accounts");
        ls_values_cut(row, "account", ls_page_string(account, "account"), 64);
        ls_page_set_integer(row, account, "weight");
        ls_values_text(row, "quota", "");
        if (json_is_integer(json_object_get(account, "quota"))) {
            ls_page_set_integer(row, account, "quota");
        }
        ls_page_set_integer(row, account, "devices");
        ls_page_set_integer(row, account, "running");
        ls_page_set_integer(row, account, "waiting");
        set_money(row, account, usage);
    }
}

/* The newest first. */
static void add_sweeps(const json_t *sweeps, ls_values *page)
{
    const size_t count = json_array_size(sweeps);
    ls_values_flag(page, "has_sweeps", count > 0);
    for (size_t i = count; i-- > 0 && count - i <= SWEEPS_MAX;) {
        ls_page_add_sweep(json_array_get(sweeps, i), page);
    }
}

/* ---- the pages ---- */

void ls_page_queue(const ls_page_queue_answers *answers, double now_s, ls_text *text)
{
    ls_arena arena = {0};
    const json_t *jobs = json_object_get(answers->jobs, "jobs"), *status = answers->status;
    const char *title =
        ls_arena_printf(&arena, "%zu running, %zu waiting", count_jobs(jobs, false), count_jobs(jobs, true));
    ls_values *page = ls_page_create(&arena, title, REFRESH_S);
    ls_values_cut(page, "engine", ls_page_string(status, "engine"), 32);
    ls_values_cut(page, "order", ls_page_string(status, "order"), 32);
    ls_values_cut(page, "paused", ls_page_string(status, "paused"), 300);
    add_tiles(&arena, status, jobs, page);
    add_jobs(jobs, RUNNING, now_s, page);
    add_jobs(jobs, WAITING, now_s, page);
    add_jobs(json_object_get(answers->ended, "jobs"), ENDED, now_s, page);
    set_before(answers->ended, page);
    add_sweeps(json_object_get(answers->sweeps, "sweeps"), page);
    add_nodes(json_object_get(answers->nodes, "nodes"), page);
    add_accounts(json_object_get(answers->accounts, "accounts"), json_object_get(answers->usage, "accounts"),
                 page);
    add_alerts(json_object_get(answers->alerts, "alerts"), page);
    ls_web_append("queue.html", page, text);
    ls_arena_release(&arena);
}

void ls_page_ended(const json_t *ended, double now_s, ls_text *text)
{
    ls_arena arena = {0};
    ls_values *page = ls_page_create(&arena, "Jobs that have ended", 0);
    add_jobs(json_object_get(ended, "jobs"), ENDED, now_s, page);
    set_before(ended, page);
    ls_web_append("ended.html", page, text);
    ls_arena_release(&arena);
}

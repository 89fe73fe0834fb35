// SPDX-License-Identifier: Apache-2.0
/* The values of web/job.html. */
#include "orchestration/page/page.h"
#include "orchestration/page/page_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REFRESH_S = 5 };

static bool has_ended(const json_t *job)
{
    return ls_page_number(job, "ended") > 0.0;
}

/* ---- tiles ---- */

static void add_span_tile(ls_values *page, double span_s, const char *small)
{
    ls_web_tile(page, ls_duration_of(span_s).text, small);
}

static void add_time_tiles(const json_t *job, double now_s, ls_values *page)
{
    const bool waits = ls_page_is_waiting(ls_page_string(job, "state"));
    const double submitted_s = ls_page_number(job, "submitted"), started_s = ls_page_number(job, "started");
    const double end_s = has_ended(job) ? ls_page_number(job, "ended") : now_s;
    if (waits) {
        add_span_tile(page, fmax(0.0, end_s - ls_page_number(job, "queued")), "waiting");
    } else {
        add_span_tile(page, (started_s > 0.0 ? started_s : end_s) - submitted_s,
                      started_s > 0.0 ? "from submission to the last start" : "waited");
    }
    if (started_s > 0.0) {
        const bool runs = !waits && !has_ended(job);
        add_span_tile(page, runs ? fmax(0.0, end_s - started_s) : ls_page_number(job, "ran_s"),
                      runs    ? "since the last start"
                      : waits ? "run time so far"
                              : "run time");
    }
    if (!has_ended(job) && ls_page_number(job, "ends") > 0.0) {
        add_span_tile(page, fmax(0.0, ls_page_number(job, "ends") - now_s), "left");
    }
}

static void add_tiles(ls_arena *arena, const json_t *job, double now_s, ls_values *page)
{
    static const char *const words[] = {"account", "priority"};
    for (size_t i = 0; i < 2; i++) {
        const char *word = ls_page_string(job, words[i]);
        ls_values_cut(ls_web_tile(page, NULL, words[i]), "large", word[0] ? word : NULL, 40);
    }
    ls_web_tile(page, ls_arena_printf(arena, "%" PRId64, ls_page_integer(job, "ranks")), "ranks");
    add_time_tiles(job, now_s, page);
    if (has_ended(job) && json_is_integer(json_object_get(job, "exit_code"))) {
        ls_web_tile(page, ls_arena_printf(arena, "%" PRId64, ls_page_integer(job, "exit_code")), "exit code");
    }
    ls_web_tile(page,
                ls_arena_printf(arena, "%" PRId64 " / %" PRId64, ls_page_integer(job, "preemptions"),
                                ls_page_integer(job, "restarts")),
                "preemptions / restarts");
}

/* ---- why it waits ---- */

static void add_blockers(const json_t *blockers, double now_s, ls_values *page)
{
    ls_values_flag(page, "has_blockers", json_array_size(blockers) > 0);
    for (size_t i = 0; i < json_array_size(blockers); i++) {
        const json_t *other = json_array_get(blockers, i);
        const double ends_s = ls_page_number(other, "ends");
        ls_values *row = ls_values_add(page, "blockers");
        ls_page_set_integer(row, other, "job");
        ls_page_set_text(row, other, "name", 60);
        ls_page_set_integer(row, other, "devices");
        ls_values_text(row, "end",
                       ends_s > 0.0 ? ls_duration_of(fmax(0.0, ends_s - now_s)).text : "not known");
    }
}

static void set_why(const json_t *why, double now_s, ls_values *page)
{
    const json_t *eta = json_object_get(why, "eta_s"), *changes = json_object_get(why, "counterfactuals");
    ls_values_cut(page, "why", ls_page_string(why, "text"), 500);
    if (json_is_number(eta)) {
        ls_values_text(page, "eta", ls_duration_of(json_number_value(eta)).text);
    }
    add_blockers(json_object_get(why, "blockers"), now_s, page);
    ls_values_flag(page, "has_changes", json_array_size(changes) > 0);
    for (size_t i = 0; i < json_array_size(changes); i++) {
        ls_values_cut(ls_values_add(page, "changes"), "text",
                      ls_page_string(json_array_get(changes, i), "text"), 300);
    }
}

/* ---- events ---- */

/* Its members but time and name: "step 200, val_loss 0.243". */
static void set_members(const json_t *event, ls_values *row)
{
    const char *key = NULL;
    json_t *value = NULL;
    ls_text text = {0};
    json_object_foreach((json_t *)(uintptr_t)event, key, value)
    {
        const char *word = json_string_value(value);
        if (strcmp(key, "time") == 0 || strcmp(key, "event") == 0) {
            continue;
        }
        ls_text_printf(&text, "%s%s ", text.bytes > 0 ? ", " : "", key);
        if (json_is_real(value)) {
            ls_text_printf(&text, "%.6g", json_real_value(value));
        } else {
            char *dump = word ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            ls_text_append(&text, dump ? dump : word ? word : "");
            free(dump);
        }
    }
    ls_values_cut(row, "text", ls_text_string(&text), 300);
    ls_text_release(&text);
}

/* A change of state, or an event of the run. */
static void add_event(const json_t *event, ls_values *page)
{
    ls_values *row = ls_values_add(page, "events");
    const double time_s = ls_page_number(event, "time");
    ls_web_time(row, "time", time_s > 0.0 && time_s < 1e11 ? time_s : 0.0, "%m-%d %H:%M:%S");
    if (json_object_get(event, "to")) {
        const char *state = ls_page_string(event, "to");
        ls_values_cut(row, "event", state, 32);
        ls_values_text(row, "look", ls_page_state_look(state));
        ls_values_cut(row, "text", ls_page_string(event, "text"), 300);
    } else {
        ls_values_cut(row, "event", ls_page_string(event, "event"), 40);
        ls_values_text(row, "look", "");
        set_members(event, row);
    }
}

/* ---- the page ---- */

static void set_head(const json_t *job, ls_values *page)
{
    const char *state = ls_page_string(job, "state");
    const bool has_run_dir = json_is_string(json_object_get(job, "run_dir"));
    ls_page_set_integer(page, job, "job");
    ls_page_set_text(page, job, "name", 80);
    ls_values_cut(page, "state", state, 32);
    ls_values_text(page, "look", ls_page_state_look(state));
    ls_values_cut(page, "directory",
                  json_string_value(json_object_get(job, has_run_dir ? "run_dir" : "directory")), 300);
}

void ls_page_job(const ls_page_job_answers *answers, double now_s, ls_text *text)
{
    ls_arena arena = {0};
    const json_t *job = answers->job, *events = json_object_get(answers->events, "events");
    const char *state = ls_page_string(job, "state");
    const char *title = ls_arena_printf(&arena, "Job %" PRId64 ": %.32s", ls_page_integer(job, "job"), state);
    ls_values *page = ls_page_create(&arena, title, has_ended(job) ? 0 : REFRESH_S);
    set_head(job, page);
    add_tiles(&arena, job, now_s, page);
    ls_values_flag(page, "is_waiting", ls_page_is_waiting(state) && answers->why);
    if (answers->why) {
        set_why(answers->why, now_s, page);
    }
    ls_values_cut(page, "trouble", answers->trouble ? answers->trouble : "", 100);
    ls_values_flag(page, "has_run",
                   json_is_string(json_object_get(job, "run_dir")) ||
                       json_array_size(json_object_get(job, "metrics")) > 0);
    ls_values_flag(page, "has_sweep", answers->sweep != NULL);
    if (answers->sweep) {
        ls_page_add_sweep(answers->sweep, page);
    }
    if (answers->log) {
        ls_values_bytes(page, "log", answers->log, answers->log_bytes);
    }
    for (size_t i = json_array_size(events); i-- > 0;) {
        add_event(json_array_get(events, i), page);
    }
    ls_web_append("job.html", page, text);
    ls_arena_release(&arena);
}

// SPDX-License-Identifier: Apache-2.0
/* logs and wait: the output of a job, and its end. */
#include "base/clock.h"
#include "cli/command.h"
#include "cli/foreign_text.h"
#include "cli/queue/queue.h"
#include "orchestration/client/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- logs ---- */

typedef struct logs_settings {
    uint64_t tail;
    const char *rank;
    bool follow, json;
} logs_settings;

static const ls_option logs_options[] = {
    LS_ROW_BOOL(logs_settings, follow, "continue to print new output as it appears, until the job ends",
                .letter = 'f'),
    LS_ROW_U64(logs_settings, tail, "0", 0, 1000000,
               "start with the last N lines of the output; 0: print all of it", .letter = 'n'),
    LS_ROW_TEXT(logs_settings, rank, "N", "print only the output of the rank with this number"),
    LS_ROW_JSON(logs_settings),
};

static bool write_part(void *shown, const char *data, size_t bytes)
{
    return ls_foreign_text_write(shown, data, bytes);
}

static bool gather_part(void *context, const char *data, size_t bytes)
{
    ls_text_append_bytes(context, data, bytes);
    return true;
}

static void append_path(ls_text *path, uint64_t job, const logs_settings *settings, uint64_t from,
                        bool is_first)
{
    ls_text_printf(path, "/v1/jobs/%" PRIu64 "/log?from=%" PRIu64, job, from);
    if (settings->tail > 0 && is_first) {
        ls_text_printf(path, "&tail=%" PRIu64, settings->tail);
    }
    if (settings->rank[0]) {
        ls_text_append(path, "&rank=");
        ls_client_append_escaped(path, settings->rank);
    }
}

/* The whole log up to now, in as many requests as it takes. */
static ls_status read_log(uint64_t job, const logs_settings *settings, ls_client_take take, void *context,
                          uint64_t *next_out)
{
    ls_status status = LS_OK;
    uint64_t from = 0, next = 0;
    for (bool is_first = true; status == LS_OK; is_first = false) {
        ls_text path = {0};
        append_path(&path, job, settings, from, is_first);
        const ls_client_request request = {
            .method = "GET", .path = ls_text_string(&path), .timeout_s = LS_QUEUE_ANSWER_S};
        status = ls_client_read(&request, take, context, &next);
        ls_text_release(&path);
        if (next <= from) {
            break;
        }
        from = next;
    }
    *next_out = from;
    return status;
}

/* Jobs outlive their daemon: commands that wait for a job wait this long for the daemon. */
#define DAEMON_AWAY_S 60.0

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
}

/* A log that is followed, over several answers. */
typedef struct follower {
    ls_foreign_text *shown;
    /* where the next answer begins */
    uint64_t next;
    /* the reader of the output has closed it */
    bool is_left;
} follower;

static bool write_followed(void *context, const char *data, size_t bytes)
{
    follower *self = context;
    self->next += bytes;
    self->is_left = !ls_foreign_text_write(self->shown, data, bytes);
    return !self->is_left;
}

/* One request, which ends when the job or the daemon ends. ended_out: whether the job has ended. */
static ls_status follow_once(uint64_t job, const logs_settings *settings, follower *self, bool *ended_out)
{
    ls_text path = {0};
    json_t *seen = NULL;
    append_path(&path, job, settings, self->next, false);
    ls_text_append(&path, "&follow=true");
    const ls_client_request request = {.method = "GET", .path = ls_text_string(&path)};
    ls_status status = ls_client_read(&request, write_followed, self, NULL);
    ls_text_release(&path);
    if (status == LS_OK && !self->is_left) {
        status = ls_queue_get(&seen, "/v1/jobs/%" PRIu64, job);
        *ended_out = status == LS_OK && ls_queue_has_ended(ls_queue_string(seen, "state"));
        json_decref(seen);
    }
    return status;
}

/* Continues at the same byte when the daemon returns. */
static ls_status follow_log(uint64_t job, const logs_settings *settings, ls_foreign_text *shown)
{
    follower self = {.shown = shown};
    double away_since_s = 0.0;
    bool has_ended = false;
    if (settings->tail > 0) {
        LS_TRY(read_log(job, settings, write_part, shown, &self.next));
    }
    for (bool is_first = true;; is_first = false) {
        const uint64_t before = self.next;
        const ls_status status = follow_once(job, settings, &self, &has_ended);
        const bool is_away = status == LS_ERR_IO || (status == LS_ERR_FAILED && (!is_first || self.next > 0));
        if (has_ended || self.is_left || (status != LS_OK && !is_away)) {
            return self.is_left ? LS_OK : status;
        }
        const double now_s = ls_clock_monotonic_s();
        away_since_s = !is_away || self.next > before ? 0.0 : away_since_s > 0.0 ? away_since_s : now_s;
        if (away_since_s > 0.0 && now_s - away_since_s > DAEMON_AWAY_S) {
            return status;
        }
        rest();
    }
}

static ls_status print_log_json(uint64_t job, const logs_settings *settings)
{
    ls_text log = {0}, printable = {0};
    uint64_t next = 0;
    const ls_status status = read_log(job, settings, gather_part, &log, &next);
    if (status == LS_OK) {
        ls_text_append_printable(&printable, ls_text_string(&log), log.bytes, "\n\t\r\033");
        json_t *root = json_pack("{s:I, s:s, s:I}", "job", (json_int_t)job, "log", ls_text_string(&printable),
                                 "next", (json_int_t)next);
        ls_print_json(root);
        json_decref(root);
    }
    ls_text_release(&printable);
    ls_text_release(&log);
    return status;
}

/* Says on stderr why there is nothing to print of a job that was never started. */
static void explain_no_output(uint64_t number)
{
    json_t *job = NULL;
    if (ls_queue_get(&job, "/v1/jobs/%" PRIu64, number) != LS_OK) {
        ls_error_clear(); /* reading the log fails too, and says why */
        return;
    }
    const char *state = ls_queue_string(job, "state"), *why = ls_queue_string(job, "why");
    ls_text text = {0};
    if (state && ls_queue_integer(job, "epoch") == 0) {
        ls_text_printf(&text, "job %" PRIu64 " is %s and has no output: it was never started", number, state);
        ls_text_append(&text, why ? " (" : "");
        ls_text_append_printable(&text, why ? why : "", why ? strlen(why) : 0, "");
        ls_text_append(&text, why ? ")" : "");
        fprintf(stderr, "%s\n", ls_text_string(&text));
    }
    ls_text_release(&text);
    json_decref(job);
}

static ls_status run_logs(const ls_invocation *invocation)
{
    const logs_settings *settings = invocation->settings;
    uint64_t job = 0, next = 0;
    LS_TRY(ls_queue_job(invocation->words[0], &job));
    if (settings->json) {
        return settings->follow ? ls_fail(LS_ERR_INVALID, "--json cannot be combined with --follow")
                                : print_log_json(job, settings);
    }
    ls_foreign_text shown = ls_foreign_text_begin();
    explain_no_output(job);
    const ls_status status = settings->follow ? follow_log(job, settings, &shown)
                                              : read_log(job, settings, write_part, &shown, &next);
    ls_foreign_text_end(&shown);
    return status;
}

const ls_command ls_command_logs = {
    .name = "logs",
    LS_WORDS("JOB", 1, 1),
    .summary = "print the output of a job",
    .details = "Prints standard output and standard error of all processes of the job, in the\n"
               "order of arrival. On a terminal, control sequences other than colours are shown\n"
               "as \\xNN; otherwise every byte is printed as the job wrote it. With -f the\n"
               "command survives a restart of the daemon.\n"
               "\n"
               "Examples:\n"
               "  lockstep logs 12 -f\n"
               "      until the job ends\n"
               "  lockstep logs 12 -n 20\n"
               "      the last twenty lines\n"
               "  lockstep logs 12 --rank 3",
    LS_SETTINGS(logs_settings, logs_options),
    .run = run_logs,
};

/* ---- wait ---- */

typedef struct wait_settings {
    uint64_t timeout;
    bool json;
} wait_settings;

static const ls_option wait_options[] = {
    LS_ROW_U64(wait_settings, timeout, "0", 0, 31536000,
               "seconds to wait for the jobs to end before giving up with exit code 1; 0: no limit"),
    LS_ROW_JSON(wait_settings),
};

#define LOOK_S 30

static ls_status look_once(uint64_t job, double left_s, bool only_asks, json_t **job_out)
{
    const int wait_s = only_asks ? 0 : left_s < LOOK_S ? (int)left_s + 1 : LOOK_S;
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%" PRIu64 "/wait?timeout_s=%d", job, wait_s);
    const ls_client_request request = {
        .method = "GET", .path = path, .timeout_s = wait_s + LS_QUEUE_ANSWER_S};
    return ls_client_ask(&request, job_out);
}

/* Keeps what the job is doing ("QUEUED: it needs 2 devices at once ..."), and says it on a
 * terminal when it has changed. */
static void note_state(const json_t *job, ls_text *state)
{
    const char *why = ls_queue_string(job, "why");
    ls_text now = {0};
    ls_text_append(&now, ls_queue_string(job, "state"));
    if (why && why[0]) {
        ls_text_append(&now, ": ");
        ls_text_append_printable(&now, why, strlen(why), "");
    }
    if (isatty(STDERR_FILENO) && strcmp(ls_text_string(&now), ls_text_string(state)) != 0) {
        fprintf(stderr, "waiting for job %" PRId64 ", %s\n", ls_queue_integer(job, "job"),
                ls_text_string(&now));
    }
    ls_text_release(state);
    *state = now;
}

/* job_out: the ended job; the caller drops it, and releases state. */
static ls_status wait_for(uint64_t job, double end_s, ls_text *state, json_t **job_out)
{
    double away_since_s = 0.0;
    for (bool is_away = false;;) {
        const double now_s = ls_clock_monotonic_s();
        json_t *seen = NULL;
        /* The daemon may have too many waits open: asking now and then is always possible. */
        const bool only_asks = is_away;
        const ls_status status = look_once(job, end_s - now_s, only_asks, &seen);
        if (status == LS_OK && ls_queue_has_ended(ls_queue_string(seen, "state"))) {
            *job_out = seen;
            return LS_OK;
        }
        if (status == LS_OK) {
            note_state(seen, state);
        }
        json_decref(seen);
        is_away = status == LS_ERR_FAILED || status == LS_ERR_IO;
        if (status != LS_OK && !is_away) {
            return status;
        }
        away_since_s = !is_away ? 0.0 : away_since_s > 0.0 ? away_since_s : now_s;
        if (is_away && now_s - away_since_s > DAEMON_AWAY_S) {
            return status;
        }
        if (now_s >= end_s) {
            return ls_fail(LS_ERR_TIMEOUT,
                           "job %" PRIu64 " has not ended within the time that --timeout allows; it is %s",
                           job, ls_text_string(state));
        }
        if (is_away || only_asks) {
            rest();
        }
    }
}

/* The exit code of the command: that of the job, or 1 when the job ended without one. */
static int exit_code_of(const json_t *job)
{
    const char *state = ls_queue_string(job, "state");
    if (state && strcmp(state, "SUCCEEDED") == 0) {
        return 0;
    }
    const int64_t code = ls_queue_integer(job, "exit_code");
    return code > 0 && code < 256 ? (int)code : 1;
}

static void print_end(const json_t *job)
{
    const char *text = ls_queue_string(job, "text");
    ls_text line = {0};
    ls_text_printf(&line, "job %" PRId64 " %s", ls_queue_integer(job, "job"), ls_queue_string(job, "state"));
    if (json_is_integer(json_object_get(job, "exit_code"))) {
        ls_text_printf(&line, ", exit code %" PRId64, ls_queue_integer(job, "exit_code"));
    }
    if (text) {
        ls_text_append(&line, ": ");
        ls_text_append_printable(&line, text, strlen(text), "");
    }
    puts(ls_text_string(&line));
    ls_text_release(&line);
}

static ls_status run_wait(const ls_invocation *invocation)
{
    const wait_settings *settings = invocation->settings;
    const double end_s = settings->timeout > 0 ? ls_clock_monotonic_s() + (double)settings->timeout : 1e18;
    for (size_t i = 0; i < invocation->word_count; i++) { /* errors come before the first wait */
        uint64_t number = 0;
        LS_TRY(ls_queue_job(invocation->words[i], &number));
    }
    json_t *ended = json_array();
    ls_status status = LS_OK;
    for (size_t i = 0; i < invocation->word_count && status == LS_OK; i++) {
        uint64_t number = 0;
        json_t *job = NULL;
        status = ls_queue_job(invocation->words[i], &number);
        ls_text state = {0};
        status = status != LS_OK ? status : wait_for(number, end_s, &state, &job);
        ls_text_release(&state);
        if (status != LS_OK) {
            break;
        }
        const int code = exit_code_of(job);
        *invocation->exit_code = *invocation->exit_code != 0 ? *invocation->exit_code : code;
        if (!settings->json) {
            print_end(job);
        }
        json_array_append_new(ended, job);
    }
    if (status == LS_OK && settings->json) {
        json_t *root = invocation->word_count == 1 ? json_incref(json_array_get(ended, 0))
                                                   : json_pack("{s:O}", "jobs", ended);
        ls_print_json(root);
        json_decref(root);
    }
    json_decref(ended);
    return status;
}

const ls_command ls_command_wait = {
    .name = "wait",
    LS_WORDS("JOB...", 1, LS_QUEUE_JOBS_MAX),
    .summary = "wait until jobs end and return their exit code",
    .details = "The exit code is that of the job: 0 when it succeeded, 1 when it was cancelled\n"
               "before it ran. For several jobs it is the first exit code that is not 0. The\n"
               "command survives a restart of the daemon.\n"
               "\n"
               "Example:\n"
               "  lockstep wait 12 && echo done",
    LS_SETTINGS(wait_settings, wait_options),
    .run = run_wait,
};

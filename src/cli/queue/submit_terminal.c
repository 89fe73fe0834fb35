// SPDX-License-Identifier: Apache-2.0
/* submit --pty: an interactive job, from the person's side and from the job's. */
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the person's side ---- */

static volatile sig_atomic_t was_interrupted;

static void note_interrupt(int number)
{
    (void)number;
    was_interrupted = 1;
}

static ls_status give_up(uint64_t job)
{
    json_t *answer = NULL;
    if (ls_queue_post(json_object(), &answer, "/v1/jobs/%" PRIu64 "/cancel", job) != LS_OK) {
        ls_error_clear(); /* it has ended */
    }
    json_decref(answer);
    return ls_fail(LS_INTERRUPTED, "job %" PRIu64 " is cancelled", job);
}

/* Says what has become of the job, when that changes. held_out: it waits to be released. */
static ls_status look(uint64_t job, char said[512], bool *held_out)
{
    json_t *answer = NULL;
    LS_TRY(ls_queue_get(&answer, "/v1/jobs/%" PRIu64, job));
    const char *state = ls_queue_string(answer, "state"), *why = ls_queue_string(answer, "why");
    char line[512];
    ls_status status = LS_OK;
    snprintf(line, sizeof line, "job %" PRIu64 " is %s%s%s", job, state ? state : "?", why ? ": " : "",
             why ? why : "");
    *held_out = state && strcmp(state, "HELD") == 0;
    if (state && ls_queue_has_ended(state)) {
        const char *text = ls_queue_string(answer, "text");
        status = ls_fail(LS_ERR_FAILED, "job %" PRIu64 " is %s before its program was shown%s%s", job, state,
                         text && text[0] ? ": " : "", text ? text : "");
    } else if (strcmp(line, said) != 0) {
        ls_text printable = {0};
        ls_text_append_printable(&printable, line, strlen(line), "");
        fprintf(stderr, "%s\n", ls_text_string(&printable));
        ls_text_release(&printable);
        memcpy(said, line, sizeof line);
    }
    json_decref(answer);
    return status;
}

/* Enter releases a job that is held. gone_out: nobody is there to press it any more. */
static void hear_enter(uint64_t job, bool *gone_out)
{
    char line[256];
    json_t *answer = NULL;
    struct pollfd keyboard = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&keyboard, 1, 0) <= 0) {
        return;
    }
    *gone_out = read(STDIN_FILENO, line, sizeof line) == 0;
    if (!*gone_out && ls_queue_post(json_object(), &answer, "/v1/jobs/%" PRIu64 "/release", job) != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text()); /* it was released meanwhile, or may not be */
        ls_error_clear();
    }
    json_decref(answer);
}

/* Until its program can be shown. */
static ls_status wait_for_job(uint64_t job, ls_pty *terminal)
{
    char said[512] = "";
    bool is_connected = false, is_held = false, is_gone = false;
    while (!is_connected) {
        LS_TRY(ls_pty_accept(terminal, 0.5, &is_connected));
        if (is_held && !is_connected) {
            hear_enter(job, &is_gone);
        }
        if (was_interrupted || is_gone) {
            return give_up(job);
        }
        if (!is_connected) {
            LS_TRY(look(job, said, &is_held));
        }
    }
    return LS_OK;
}

/* Its program ended: whether the job waits for another start, once that is known. */
static ls_status has_given_back(uint64_t job, bool *back_out)
{
    for (;;) {
        json_t *answer = NULL;
        LS_TRY(ls_queue_get(&answer, "/v1/jobs/%" PRIu64, job));
        const char *state = ls_queue_string(answer, "state");
        const bool has_ended = !state || ls_queue_has_ended(state);
        *back_out = !has_ended && ls_queue_waits(state);
        json_decref(answer);
        if (has_ended || *back_out || was_interrupted) {
            return LS_OK;
        }
        (void)poll(NULL, 0, 200);
    }
}

ls_status ls_queue_follow_pty(uint64_t job, ls_pty *terminal)
{
    const struct sigaction action = {.sa_handler = note_interrupt};
    struct sigaction before[3];
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    int code = -1;
    for (bool goes_on = true; goes_on;) {
        for (int i = 0; i < 3; i++) {
            (void)sigaction(ends[i], &action, &before[i]);
        }
        const ls_status status = wait_for_job(job, terminal);
        for (int i = 0; i < 3; i++) {
            (void)sigaction(ends[i], &before[i], NULL);
        }
        LS_TRY(status);
        LS_TRY(ls_pty_attach(terminal, &code));
        LS_TRY(has_given_back(job, &goes_on));
    }
    if (code < 0) {
        return ls_fail(LS_ERR_FAILED, "job %" PRIu64 " ended; 'lockstep why %" PRIu64 "' says how", job, job);
    }
    fprintf(stderr, "job %" PRIu64 " has ended\n", job);
    return code == 0 ? LS_OK : ls_fail(LS_ERR_FAILED, "the program ended with exit code %d", code);
}

/* ---- the job's side ---- */

static ls_status run_job_terminal(const ls_invocation *invocation)
{
    if (invocation->trailing_count + 1 != invocation->word_count || invocation->trailing_count == 0) {
        return ls_fail(LS_ERR_INVALID, "usage: job-terminal SOCKET -- COMMAND...");
    }
    char **argv = ls_arena_new(invocation->arena, char *, invocation->word_count);
    for (size_t i = 1; i < invocation->word_count; i++) {
        argv[i - 1] = ls_arena_strdup(invocation->arena, invocation->words[i]);
    }
    int code = 0;
    printf("an interactive job: what its terminal shows is not kept here\n");
    fflush(stdout);
    LS_TRY(ls_pty_serve(invocation->words[0], argv, &code));
    return code == 0 ? LS_OK : ls_fail(LS_ERR_FAILED, "the program ended with exit code %d", code);
}

static const ls_option_table no_options;

const ls_command ls_command_job_terminal = {
    .name = "job-terminal",
    LS_WORDS("SOCKET -- COMMAND...", 2, LS_QUEUE_JOBS_MAX),
    .summary = "run a program in the terminal of the person who submitted it",
    .details = "Started as the program of a job by 'lockstep submit --pty'.",
    .hidden = true,
    .options = &no_options,
    .run = run_job_terminal,
};

// SPDX-License-Identifier: Apache-2.0
/* Queue: what the commands that talk to the daemon share. */
#ifndef LS_CLI_QUEUE_QUEUE_H
#define LS_CLI_QUEUE_QUEUE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "orchestration/client/terminal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A daemon that does not answer within this time is stuck. */
#define LS_QUEUE_ANSWER_S 20.0

/* Jobs that one command takes: more than a command line can hold. */
enum { LS_QUEUE_JOBS_MAX = 1 << 20 };

/* Sends a request to the daemon. answer_out: the caller drops it. body: taken over; NULL: none.
 * path: a printf format. */
LS_MUST_CHECK ls_status ls_queue_get(json_t **answer_out, const char *path, ...) LS_PRINTF(2, 3);
LS_MUST_CHECK ls_status ls_queue_post(json_t *body, json_t **answer_out, const char *path, ...)
    LS_PRINTF(3, 4);

/* Reads the number of a job, as submit prints it. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_queue_job(const char *word, uint64_t *job_out);
/* Whether the word is the number of a job. */
bool ls_queue_is_job(const char *word);

/* Puts an amount of USD into a request, or null for "none"; "" leaves it out. option: its name, for
 * errors. Errors: LS_ERR_INVALID for 0, amounts below 0, and other currencies. */
LS_MUST_CHECK ls_status ls_queue_put_usd(json_t *body, const char *key, const char *option, const char *text);

/* Members of an answer; NULL, 0 and NAN when there is no such member. */
const char *ls_queue_string(const json_t *object, const char *key);
int64_t ls_queue_integer(const json_t *object, const char *key);
double ls_queue_number(const json_t *object, const char *key);

/* Says what a run that has not started is expected to cost, if the answer has that. */
void ls_queue_print_estimate(const json_t *answer, FILE *out);

/* Whether the state is QUEUED or HELD; whether it is SUCCEEDED, FAILED or CANCELLED. */
bool ls_queue_waits(const char *state);
bool ls_queue_has_ended(const char *state);

/* Appends the jobs of an answer as a table. width: of the terminal; 0: no limit. */
void ls_queue_append_jobs(const json_t *jobs, ls_arena *arena, size_t width, ls_text *text);
/* The same for nodes. */
void ls_queue_append_nodes(const json_t *nodes, ls_arena *arena, size_t width, ls_text *text);

/* Appends a sweep: the number of its jobs by state, and a table with the values, step and loss of
 * each. */
LS_MUST_CHECK ls_status ls_queue_append_group(const char *group, ls_arena *arena, size_t width,
                                              ls_text *text);

/*
 * Reads a run file, "-" for standard input, for a request: {"file", "file_name", "directory",
 * "environment"}, a new object.
 * The environment holds PATH, HOME, LANG and similar variables of the user who submits the job, and
 * `variables`: NAME or NAME=VALUE.
 */
LS_MUST_CHECK ls_status ls_queue_request(const char *path, const char *const *variables,
                                         size_t variable_count, ls_arena *arena, json_t **request_out);
/* The same for the text of a run file; name: for people. */
LS_MUST_CHECK ls_status ls_queue_request_of(const char *text, size_t bytes, const char *name,
                                            const char *const *variables, size_t variable_count,
                                            json_t **request_out);

/*
 * Finds errors before the job is queued, in the current folder and as this user: data, model or
 * tokenizer files that do not exist (LS_ERR_INVALID). Lists folders of other runs in the request's
 * "avoid", and prints a note on stderr when the job continues an existing run or needs another
 * folder. A run file with errors is passed on: the daemon reports them.
 */
LS_MUST_CHECK ls_status ls_queue_check_run(json_t *request, ls_arena *arena);

/* Waits until an interactive job runs, then shows it in this terminal until it ends. Ctrl-C while
 * it waits cancels it. Errors: LS_STOPPED; LS_ERR_FAILED if job or program failed. */
LS_MUST_CHECK ls_status ls_queue_follow_pty(uint64_t job, ls_pty *terminal);

#endif

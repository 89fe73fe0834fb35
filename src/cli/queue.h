// SPDX-License-Identifier: Apache-2.0
/* Queue: what the commands that ask the daemon share. */
#ifndef LS_CLI_QUEUE_H
#define LS_CLI_QUEUE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define LS_QUEUE_ANSWER_S 60.0 /* a daemon that says nothing for so long is stuck */

/* Asks; the answer is dropped by the caller. body: taken over; NULL: none. path: as printf. */
LS_MUST_CHECK ls_status ls_queue_get(json_t **answer_out, const char *path, ...) LS_PRINTF(2, 3);
LS_MUST_CHECK ls_status ls_queue_post(json_t *body, json_t **answer_out, const char *path, ...)
    LS_PRINTF(3, 4);

/* A job's number, as submit prints it. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_queue_job(const char *word, uint64_t *job_out);
/* Is the word one? Else it is the name of something else. */
bool ls_queue_is_job(const char *word);

/* Members of an answer; NULL, 0 and NAN when they are not there. */
const char *ls_queue_string(const json_t *object, const char *key);
int64_t ls_queue_integer(const json_t *object, const char *key);
double ls_queue_number(const json_t *object, const char *key);

/* QUEUED and HELD; SUCCEEDED, FAILED and CANCELLED. */
bool ls_queue_waits(const char *state);
bool ls_queue_has_ended(const char *state);

/* Appends the jobs of an answer as a table. width: of the terminal, 0: any. */
void ls_queue_append_jobs(const json_t *jobs, ls_arena *arena, size_t width, ls_text *text);
/* The same for nodes. */
void ls_queue_append_nodes(const json_t *nodes, ls_arena *arena, size_t width, ls_text *text);

/* A sweep: how many of its jobs are in which state, and a table with the values, the step and the loss of each. */
LS_MUST_CHECK ls_status ls_queue_append_group(const char *group, ls_arena *arena, size_t width,
                                              ls_text *text);

/*
 * Reads a run file for a request: {"file", "file_name", "directory", "environment"}, a new object. The environment is what a job's processes need to
 * know of who submits it: PATH, HOME, LANG and their like, and `variables`: NAME or NAME=VALUE.
 */
LS_MUST_CHECK ls_status ls_queue_request(const char *path, const char *const *variables,
                                         size_t variable_count, ls_arena *arena, json_t **request_out);

/*
 * What the trainer would refuse and can be seen from here, in the current folder and as this user: data, model and tokenizer that are not there (LS_ERR_INVALID).
 * Puts the folders that hold other runs into the request's "avoid", and says on stderr when there is a run that goes on or is in the way. A request that
 * can't be read is left to the daemon.
 */
LS_MUST_CHECK ls_status ls_queue_check_run(json_t *request, ls_arena *arena);

#endif

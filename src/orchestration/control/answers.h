// SPDX-License-Identifier: Apache-2.0
/*
 * What the answers to the caller's questions have in common (private to control: files that end in
 * _answers.c).
 *
 *   job_answers.c     the jobs: `ps`, one job in full
 *   why_answers.c     why a job waits, and what would start it sooner
 *   queue_answers.c   nodes, accounts, usage, the state of the queue
 *
 * Of another user's job a caller sees the number, state, account and ranks, and nothing else.
 */
#ifndef LS_ORCHESTRATION_CONTROL_ANSWERS_H
#define LS_ORCHESTRATION_CONTROL_ANSWERS_H

#include "base/text.h"
#include "orchestration/control/controller_internal.h"

bool ls_answers_may_see(const ls_caller *caller, const ls_job *job);
/* The name of a job, or null if it is not shown to the caller. job: NULL gives null, too. */
json_t *ls_answers_name(const ls_controller *c, const ls_caller *caller, const ls_job *job);

/* null for "", for NULL, and for a name chosen by a user that is not valid as JSON text. */
json_t *ls_answers_text(const char *text);
/* null for 0. */
json_t *ls_answers_time(double time_s);
json_t *ls_answers_usage_json(const ls_controller *c, ls_usage usage);

/*
 * One sentence: why a job waits, or the last thing that happened to it. The same in `ps` and `why`.
 */
void ls_answers_append_reason(const ls_controller *c, const ls_entry *entry, ls_text *text);

#endif

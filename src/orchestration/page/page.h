// SPDX-License-Identifier: Apache-2.0
/*
 * Pages of the queue, of a job and of the registry (web/queue.html, ended.html, job.html,
 * models.html). The script loads those of the queue
 * again when an event tells that something has changed; a browser without script does so every few
 * seconds.
 *
 * They are made from the JSON answers of verbs alone, so they show exactly what the API shows: of
 * other people's jobs, the number, state, account and ranks. Names and texts may be hostile; the
 * templates escape them (base/template.h). Pure; thread-safe.
 */
#ifndef LS_ORCHESTRATION_PAGE_PAGE_H
#define LS_ORCHESTRATION_PAGE_PAGE_H

#include "base/json.h"
#include "base/text.h"

#include <stddef.h>

typedef struct ls_page_queue_answers {
    const json_t *status, *nodes, *accounts;
    const json_t *usage, *alerts; /* may lack members, as for a caller who may see nothing */
    const json_t *jobs;           /* jobs that have not ended */
    const json_t *ended;          /* the newest jobs that have ended */
    const json_t *sweeps;         /* of the caller */
} ls_page_queue_answers;

typedef struct ls_page_job_answers {
    const json_t *job, *events;
    const json_t *why;   /* NULL: not known */
    const json_t *sweep; /* that it belongs to; NULL: none */
    const char *log;     /* the end of its log; NULL: none */
    size_t log_bytes;
    const char *trouble; /* why some of its files could not be read; NULL: all could */
} ls_page_job_answers;

/* Each appends a page. now_s: seconds since 1970. */
void ls_page_queue(const ls_page_queue_answers *answers, double now_s, ls_text *text);
/* ended: an answer of LS_VERB_LIST with ended jobs only. */
void ls_page_ended(const json_t *ended, double now_s, ls_text *text);
/* rows: of ls_registry_row, of all versions in the registry, or those that `user` ("": all users)
 * added. */
void ls_page_models(const json_t *rows, const char *address, const char *user, bool has_queue, ls_text *text);
void ls_page_job(const ls_page_job_answers *answers, double now_s, ls_text *text);

#endif

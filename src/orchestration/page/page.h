// SPDX-License-Identifier: Apache-2.0
/*
 * Page: the queue, and one job, as HTML for a browser: no script, nothing loaded, for the dark and for a phone; it comes again every few
 * seconds by itself.
 *
 * Rendered from the JSON answers of verbs alone, so that it shows what the API says and no more: of other people's jobs their number, state,
 * account and ranks. Names and texts are hostile: printable (base/text.h) and escaped. Pure; thread-safe.
 */
#ifndef LS_ORCHESTRATION_PAGE_PAGE_H
#define LS_ORCHESTRATION_PAGE_PAGE_H

#include "base/json.h"
#include "base/text.h"

#include <stddef.h>

typedef struct ls_page_queue_answers {
    const json_t *status, *nodes, *accounts;
    const json_t *jobs;  /* those that have not ended */
    const json_t *ended; /* the last that have ended */
} ls_page_queue_answers;

typedef struct ls_page_job_answers {
    const json_t *job, *events;
    const json_t *why;     /* NULL: not known */
    const json_t *metrics; /* as /v1/jobs/N/metrics; NULL: none */
    const char *log;       /* its end; NULL: none */
    size_t log_bytes;
    const char *trouble; /* why files of it could not be read; NULL: they could */
} ls_page_job_answers;

/* now_s: seconds since 1970. */
void ls_page_queue(const ls_page_queue_answers *answers, double now_s, ls_text *page);
/* ended: an answer of LS_VERB_LIST with those alone. */
void ls_page_ended(const json_t *ended, double now_s, ls_text *page);
void ls_page_job(const ls_page_job_answers *answers, double now_s, ls_text *page);

#endif

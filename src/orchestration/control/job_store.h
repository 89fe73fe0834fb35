// SPDX-License-Identifier: Apache-2.0
/*
 * Store: jobs, their journal and the accounts, in one SQLite file (base/database.h).
 *
 *   jobs      number, state, account, user, request (never changes), record (changes): JSON
 *   journal   one line per transition, in the order in which they happened
 *   accounts  weight, quota, what was used
 *
 * A turn is one transaction: rows and journal together, or nothing. One owner, one thread.
 */
#ifndef LS_ORCHESTRATION_CONTROL_JOB_STORE_H
#define LS_ORCHESTRATION_CONTROL_JOB_STORE_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/control/controller.h"
#include "orchestration/job/job.h"

#include <stdint.h>

typedef struct ls_job_store ls_job_store;

/* Opens or makes it. Errors: those of base/database.h; LS_ERR_UNSUPPORTED when a newer program wrote it. */
LS_MUST_CHECK ls_status ls_job_store_open(const char *path, ls_job_store **store_out);
void ls_job_store_close(ls_job_store *store); /* NULL allowed */

/* Writes what a turn changed. On an error nothing of it is there, and the same turn may be tried again. */
LS_MUST_CHECK ls_status ls_job_store_write(ls_job_store *store, const ls_turn *turn);

/* Hands over all jobs that have not ended, and the last `ended_max` that have, in the order of their numbers; then accounts. A row that can't be read is
 * an error naming it: it is not skipped, because it may be a job that runs. next_out: number of the next job. */
LS_MUST_CHECK ls_status ls_job_store_restore(ls_job_store *store, uint32_t ended_max,
                                             ls_controller *controller, uint64_t *next_out);

/* One job. LS_ERR_NOT_FOUND. The caller destroys it. */
LS_MUST_CHECK ls_status ls_job_store_find(ls_job_store *store, uint64_t id, ls_job **job_out);

/* Ended jobs that are not among the newest `kept` of them, or whose last word was before `before_s` (0: any), oldest first, behind job `behind`, but never
 * the newest job of all. ids_out: room for `max`. */
LS_MUST_CHECK ls_status ls_job_store_expired(ls_job_store *store, uint64_t kept, double before_s,
                                             uint64_t behind, uint32_t max, uint64_t *ids_out,
                                             uint32_t *count_out);
/* How many these are, and when the last of them ended. */
LS_MUST_CHECK ls_status ls_job_store_expired_sum(ls_job_store *store, uint64_t kept, double before_s,
                                                 uint64_t *count_out, double *newest_s_out);
/* Their rows and their journal, in one transaction. */
LS_MUST_CHECK ls_status ls_job_store_remove(ls_job_store *store, const uint64_t *ids, uint32_t count);

/* Journal entries of a job (0: of all) with numbers above `after`, at most `limit`, oldest first. A new array. */
LS_MUST_CHECK ls_status ls_job_store_journal(ls_job_store *store, uint64_t job, uint64_t after,
                                             uint32_t limit, json_t **entries_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Store: jobs, their journal and the accounts, in one SQLite file (env/database.h).
 *
 *   jobs      number, state, account, user, key, request (rarely changes), record (changes): JSON
 *   journal   one line per transition, in the order in which they happened
 *   accounts  weight, quota, usage
 *   upkeep    pauses, drained nodes, maintenance: one row of JSON
 *   sweeps    the numbers of its first and last job, and its state as JSON; goes with its last job
 *
 * A turn is one transaction: rows and journal are written together or not at all. One owner, one
 * thread.
 */
#ifndef LS_ORCHESTRATION_CONTROL_JOB_STORE_H
#define LS_ORCHESTRATION_CONTROL_JOB_STORE_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/control/controller.h"
#include "orchestration/job/job.h"

#include <stdint.h>

typedef struct ls_job_store ls_job_store;

/* Opens or creates it. Errors: those of env/database.h; LS_ERR_UNSUPPORTED when a newer program
 * wrote it. */
LS_MUST_CHECK ls_status ls_job_store_open(const char *path, ls_job_store **store_out);
void ls_job_store_close(ls_job_store *store); /* NULL allowed */

/* Writes what a turn changed. On an error nothing of it is written, and the same turn may be tried
 * again. */
LS_MUST_CHECK ls_status ls_job_store_write(ls_job_store *store, const ls_turn *turn);

/*
 * Hands all jobs that have not ended and the last `ended_max` that have to the controller, by
 * number; then accounts, upkeep and sweeps. A row that cannot be read is an error that names it;
 * it is not skipped, because it may be a running job. next_out: the number of the next job.
 */
LS_MUST_CHECK ls_status ls_job_store_restore(ls_job_store *store, uint32_t ended_max,
                                             ls_controller *controller, uint64_t *next_out);

/* Reads one job, which the caller destroys. Errors: LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_job_store_find(ls_job_store *store, uint64_t id, ls_job **job_out);
/* Its state alone; LS_JOB_STATES: there is none. */
ls_job_state ls_job_store_state(ls_job_store *store, uint64_t id);

/* What jobs that ended at since_s or later have used, by account and user: a new array, as
 * ls_controller_calls.used. */
LS_MUST_CHECK ls_status ls_job_store_used(ls_job_store *store, double since_s, json_t **rows_out);
/* The number of the user's job with that key; 0: none, or it cannot be read. */
uint64_t ls_job_store_keyed(ls_job_store *store, uint32_t uid, const char *key);

/* Which ended jobs have expired: those that are not among the newest `kept`, and those whose last
 * transition was before before_s (0: none for that reason). Never the newest job of all. */
typedef struct ls_job_expiry {
    uint64_t kept;
    double before_s;
} ls_job_expiry;

/* Expired jobs with numbers above `after`, oldest first, at most `max`. ids_out: room for `max`. */
LS_MUST_CHECK ls_status ls_job_store_expired(ls_job_store *store, const ls_job_expiry *expiry, uint64_t after,
                                             uint32_t max, uint64_t *ids_out, uint32_t *count_out);
/* How many such jobs there are, and when the last of them ended. */
LS_MUST_CHECK ls_status ls_job_store_expired_sum(ls_job_store *store, const ls_job_expiry *expiry,
                                                 uint64_t *count_out, double *newest_s_out);
/* Removes jobs with their journal, in one transaction. */
LS_MUST_CHECK ls_status ls_job_store_remove(ls_job_store *store, const uint64_t *ids, uint32_t count);

/* Journal entries of a job (0: of all jobs) with numbers above `after`, at most `limit`, oldest
 * first. A new array. */
LS_MUST_CHECK ls_status ls_job_store_journal(ls_job_store *store, uint64_t job, uint64_t after,
                                             uint32_t limit, json_t **entries_out);

#endif

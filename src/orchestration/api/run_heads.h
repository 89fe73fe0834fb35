// SPDX-License-Identifier: Apache-2.0
/*
 * Run heads: the newest numbers of every run, for tables of thousands of them
 * (telemetry/store/run_head.h). They are read by workers, a limited number at a time, and again
 * when they are old; of a job that has ended, once.
 *
 * One owner.
 */
#ifndef LS_ORCHESTRATION_API_RUN_HEADS_H
#define LS_ORCHESTRATION_API_RUN_HEADS_H

#include "orchestration/api/server.h"
#include "telemetry/store/run_head.h"

typedef struct ls_api_heads ls_api_heads;

ls_api_heads *ls_api_heads_create(const ls_api *api);
void ls_api_heads_destroy(ls_api_heads *heads);

/*
 * What is known of the run of a row of the queue, which has job, run_dir, uid, gid and state; of a
 * program without a run_dir, from what it has logged by HTTP. NULL: nothing yet. Asks for it if it
 * is not there or old. Valid until the next call.
 */
const ls_run_head *ls_api_heads_find(ls_api_heads *heads, const json_t *job);

/* Whether some runs that were asked for have not been read yet. */
bool ls_api_heads_wait(const ls_api_heads *heads);

#endif

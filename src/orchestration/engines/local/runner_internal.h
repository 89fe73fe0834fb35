// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the runner: what it was told, its ranks, and the start of one.
 *
 *   runner.c   takes the ticket, waits, ends
 *   ranks.c    environment, start, what ranks print
 *   last_words.c   what they printed last, when they failed
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_RUNNER_INTERNAL_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_RUNNER_INTERNAL_H

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "orchestration/engines/local/runner.h"
#include "orchestration/engines/local/ticket.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ls_local_rank {
    pid_t pid;                  /* 0: has ended */
    int output;                 /* pipe from it; -1: closed, or it writes into the log itself */
    int log;                    /* log.RANK; -1: one process writes into the job's */
    off_t log_start;            /* where this epoch's part of it begins */
    ls_text line;               /* of `log`, until it is whole */
    int status;                 /* of wait */
    bool has_ended, was_killed; /* was_killed: by this process */
} ls_local_rank;

typedef struct ls_local_job {
    const char *folder;
    uint32_t epoch;
    ls_arena arena;
    json_t *ticket;
    uint64_t id;
    const char *directory;
    const char **argv;      /* ends with NULL */
    const char **variables; /* ends with NULL; count of them below */
    size_t variable_count;
    uint32_t processes;
    double grace_s, limit_s; /* limit: 0: none */
    bool signals_group;
    bool has_gpus;
    int log;
    off_t log_start; /* where this epoch's part of it begins */
    int log_error;   /* errno: why not all that was printed could be written; 0: it could */
    ls_local_rank *ranks;
    uint32_t running; /* ranks that have not ended */
} ls_local_job;

/* Reads the ticket into the rest. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_local_job_read(ls_local_job *job);
/* Opens the logs and starts all ranks. On an error those that were started have been killed, and the text says why. */
LS_MUST_CHECK ls_status ls_local_ranks_start(ls_local_job *job);
/* Copies what a rank has printed. */
void ls_local_rank_copy(ls_local_job *job, uint32_t index);
void ls_local_rank_close(ls_local_job *job, uint32_t index);

/* ---- last_words.c ---- */

/* The last line behind `from` that tells of an error, or the last of all, without what is for terminals only; untouched when there is none. */
void ls_local_last_words(int log, off_t from, char error[LS_TICKET_ERROR_BYTES]);

#endif

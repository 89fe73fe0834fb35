// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the runner: its ticket, its ranks, and how a rank is started.
 *
 *   runner.c      takes the ticket, waits, ends
 *   ranks.c       environment, start, output of ranks
 *   container.c   ranks in a container
 *   job_log.c     logs, which have a largest size
 *   last_words.c  what they printed last when they failed
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

/* ---- job_log.c ---- */

/* A log that keeps its beginning and its end when it becomes too long. This process alone writes to
 * it. */
typedef struct ls_job_log {
    int fd; /* -1: closed */
    uint64_t bytes_max;
    off_t start; /* where this epoch's part of it begins */
    /* the line that says how much was dropped; 0: nothing was */
    off_t line_at, line_bytes;
    uint64_t dropped, unlooked;
    int error; /* errno of the last write that failed; 0: none */
} ls_job_log;

/* Opens FOLDER/name, to append to it. */
LS_MUST_CHECK ls_status ls_job_log_open(const char *folder, const char *name, uint64_t bytes_max,
                                        ls_job_log *log_out);
/* A log that cannot be written is no reason to end a job, or to delay it: what does not fit is
 * dropped. */
void ls_job_log_append(ls_job_log *log, const void *data, size_t bytes);

/* ---- ranks.c ---- */

typedef struct ls_local_rank {
    pid_t pid;                  /* 0: it has ended */
    int output;                 /* pipe from it; -1: closed */
    ls_job_log log;             /* log.RANK; the only rank has none */
    ls_text line;               /* a line that is not complete yet */
    int status;                 /* status from wait */
    bool has_ended, was_killed; /* was_killed: by this process */
} ls_local_rank;

typedef struct ls_local_job {
    const char *folder;
    uint32_t epoch;
    pid_t pid; /* of the runner, the parent of the ranks */
    ls_arena arena;
    json_t *ticket;
    uint64_t id;
    const char *directory;
    const char *run_dir;    /* of a training run; "": none */
    const char **argv;      /* ends with NULL */
    const char **variables; /* ends with NULL */
    size_t variable_count;
    uint32_t processes;
    double grace_s, limit_s; /* limit_s 0: none */
    bool signals_group;
    bool has_gpus;
    uint32_t cpus; /* per rank; 0: not asked for */
    mode_t umask;
    uint64_t log_bytes_max;
    ls_job_log log;
    ls_local_rank *ranks;
    uint32_t running; /* number of ranks that have not ended */
} ls_local_job;

/* Fills the other fields from the ticket. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_local_job_read(ls_local_job *job);
/* Opens the logs and starts all ranks. On an error, ranks that were started have been killed, and
 * the error text says why. */
LS_MUST_CHECK ls_status ls_local_ranks_start(ls_local_job *job);
/* Copies what a rank has printed. */
void ls_local_rank_copy(ls_local_job *job, uint32_t index);
void ls_local_rank_close(ls_local_job *job, uint32_t index);

/* ---- container.c ---- */

/* The command line that runs the job's program in a container of `image`, with the container tool
 * of this machine. variables: of the rank. argv_out: in the job's arena, ends with NULL. Errors:
 * LS_ERR_INVALID: there is no such tool. */
LS_MUST_CHECK ls_status ls_local_container_words(ls_local_job *job, char *const *variables, const char *image,
                                                 const char ***argv_out);

/* ---- last_words.c ---- */

/* The last line after `from` that explains an error, or else the last line, without terminal
 * controls; unchanged when there is none. */
void ls_local_last_words(int log, off_t from, char error[LS_TICKET_ERROR_BYTES]);

#endif

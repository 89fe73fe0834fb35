// SPDX-License-Identifier: Apache-2.0
/*
 * Ticket: how one start of a job begins at most once, whatever crashes when. Files in the job's
 * folder, for epoch E:
 *
 *   daemon                  runner                                 a later daemon finds
 *   (row STARTING(E) is on the disk)
 *   writes ticket-E
 *   starts the runner ────▶ opens and locks ticket-E,              ticket-E: withdraws it; a late
 *                           adds who it is                         runner finds nothing
 *                           creates running-E.new, and
 *                           exit-E.new with room
 *                           renames ticket-E to claim-E            claim-E, locked: it runs; watch
 *                           it starts the ranks, writes running-E ...
 *                           claim-E, not locked, no exit-E: lost writes exit-E
 *                           exit-E: it ended like that
 *
 * Two renames of ticket-E compete, to claim-E (the runner takes it) and to none-E (a daemon
 * withdraws it); the file system lets one of them win. The lock belongs to the open file
 * description: the kernel drops it when the runner is gone, and only then. A row STARTING(E)
 * without any of these files: it never began.
 *
 * What the runner will have to write gets its space on the disk before it begins: on a disk that is
 * full later, running-E and exit-E are only filled in and renamed.
 *
 * The folder may belong to the job's user, who could put anything there: files are opened without
 * following links, and only a limited amount is read.
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_TICKET_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_TICKET_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/job/job.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LS_TICKET_BYTES_MAX = 4 * 1024 * 1024, LS_TICKET_ERROR_BYTES = 304 };

typedef enum ls_ticket_stage {
    LS_TICKET_NOTHING, /* it never began, or was withdrawn */
    LS_TICKET_WAITS,   /* ticket-E: no runner has taken it */
    LS_TICKET_RUNS,    /* claim-E is locked */
    LS_TICKET_GONE,    /* claim-E is not locked, and there is no exit-E */
    LS_TICKET_ENDED,   /* exit-E, and claim-E is not locked */
} ls_ticket_stage;

typedef struct ls_ticket_exit {
    int code;           /* 0 to 255 */
    ls_job_cause cause; /* NONE, PROGRAM, MEMORY, START, LIMIT */
    double ended_s;
    char text[512];
    /* the last line it printed that explains an error, printable; "": none */
    char error[LS_TICKET_ERROR_BYTES];
    ls_job_result result; /* of a training run, if known */
} ls_ticket_exit;

typedef struct ls_ticket_state {
    ls_ticket_stage stage;
    pid_t pid; /* RUNS: the runner */
    /* RUNS: when it started, in clock ticks since boot, so that another process with its number is
     * not mistaken for it; 0: not known */
    uint64_t ticks;
    bool is_running;    /* RUNS: its ranks were started (running-E) */
    double started_s;   /* of running-E; 0: not yet */
    ls_ticket_exit end; /* ENDED */
} ls_ticket_state;

/* Daemon: writes ticket-E to `folder`, which exists, readable for the owner of the folder. Errors:
 * LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_ticket_write(const char *folder, uint32_t epoch, const json_t *ticket, uid_t uid,
                                        gid_t gid);
/*
 * Daemon: finds out what has become of the epoch. runner_is_gone: its runner has ended, so a lock
 * that another process of the user holds does not count. Otherwise exit-E counts only when the
 * claim is no longer locked, because any process of that user could have written it. Errors:
 * LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_ticket_look(const char *folder, uint32_t epoch, bool runner_is_gone,
                                       ls_ticket_state *state_out);
/*
 * Daemon: withdraws the ticket, so that no runner can take it. taken_out: one has taken it already.
 */
LS_MUST_CHECK ls_status ls_ticket_withdraw(const char *folder, uint32_t epoch, bool *taken_out);
/* Daemon: removes all files of epochs up to E. */
void ls_ticket_clear(const char *folder, uint32_t epoch);

/* When a process started, in clock ticks since boot; 0: it does not exist. */
uint64_t ls_process_ticks(pid_t pid);

/* Runner: takes the ticket. ticket_out: NULL when there is none to take. The lock is held until the
 * process ends. Errors: LS_ERR_DISK: not possible now, may be tried again. */
LS_MUST_CHECK ls_status ls_ticket_take(const char *folder, uint32_t epoch, json_t **ticket_out);
/* Runner: reports that the ranks have started now. */
LS_MUST_CHECK ls_status ls_ticket_say_running(const char *folder, uint32_t epoch);
/* Runner: reports the end. */
LS_MUST_CHECK ls_status ls_ticket_say_exit(const char *folder, uint32_t epoch, const ls_ticket_exit *end);

#endif

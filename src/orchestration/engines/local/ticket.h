// SPDX-License-Identifier: Apache-2.0
/*
 * Ticket: how one start of a job is begun at most once, whoever crashes when. In the job's folder, for epoch E:
 *
 *   daemon                              runner                                       a later daemon finds
 *   (row STARTING(E) is on the disk)
 *   writes ticket-E
 *   starts the runner ───────────────▶  opens ticket-E, locks it, adds who it is     ticket-E: takes it away; who comes late finds nothing
 *                                       makes running-E.new, and exit-E.new with room
 *                                       renames ticket-E to claim-E                  claim-E, locked: it runs; watches it
 *                                       starts the ranks; writes running-E
 *                                       ...                                          claim-E, not locked, no exit-E: lost
 *                                       writes exit-E                                exit-E: ended so
 *
 * Two renames from ticket-E compete, claim-E and none-E; the file system lets one of them win. The lock is one of the open file description: the
 * kernel drops it when the runner is gone, and nothing else does. A row STARTING(E) without any of these files: it was never begun.
 *
 * What the runner will have to say gets its place on the disk before it begins: on a disk that is full by then, running-E and exit-E are only written into and renamed.
 *
 * The folder may belong to the job's user, who could put anything there: files are opened without following links, and what is read is limited.
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
    LS_TICKET_NOTHING, /* never begun, or withdrawn */
    LS_TICKET_WAITS,   /* ticket-E: nobody has taken it */
    LS_TICKET_RUNS,    /* claim-E is locked */
    LS_TICKET_GONE,    /* claim-E is not, and there is no exit-E */
    LS_TICKET_ENDED,   /* exit-E, and claim-E is not locked */
} ls_ticket_stage;

typedef struct ls_ticket_exit {
    int code;           /* 0 to 255 */
    ls_job_cause cause; /* NONE, PROGRAM, MEMORY, START, LIMIT */
    double ended_s;
    char text[512];
    char error
        [LS_TICKET_ERROR_BYTES]; /* the last line it printed that tells of an error, printable; "": none */
} ls_ticket_exit;

typedef struct ls_ticket_state {
    ls_ticket_stage stage;
    pid_t pid; /* RUNS: of the runner */
    uint64_t
        ticks; /* RUNS: when it began, in clock ticks since boot, so that another process with its number is not taken for it; 0: not known */
    bool is_running;    /* RUNS: its ranks were started (running-E) */
    double started_s;   /* of running-E; 0: not yet */
    ls_ticket_exit end; /* ENDED */
} ls_ticket_state;

/* Daemon: writes ticket-E in `folder` (which exists) for the owner of the folder to read. Errors: LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_ticket_write(const char *folder, uint32_t epoch, const json_t *ticket, uid_t uid,
                                        gid_t gid);
/*
 * Daemon: what has become of it. runner_is_gone: whoever ran it has ended, and a lock of another process of its user counts for nothing; else an exit-E counts
 * only when the claim is no longer locked, for anything of that user could have written it. Errors: LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_ticket_look(const char *folder, uint32_t epoch, bool runner_is_gone,
                                       ls_ticket_state *state_out);
/* Daemon: no runner can take it from now on. taken_out: one has. */
LS_MUST_CHECK ls_status ls_ticket_withdraw(const char *folder, uint32_t epoch, bool *taken_out);
/* Daemon: removes all files of epochs up to E. */
void ls_ticket_clear(const char *folder, uint32_t epoch);

/* Clock ticks since boot at which a process began; 0: it is not there. */
uint64_t ls_process_ticks(pid_t pid);

/* Runner: takes it. ticket_out: NULL when there is none to take. The lock is held until the process ends. Errors: LS_ERR_DISK: for now, it can be tried again. */
LS_MUST_CHECK ls_status ls_ticket_take(const char *folder, uint32_t epoch, json_t **ticket_out);
/* Runner: the ranks have begun, now. */
LS_MUST_CHECK ls_status ls_ticket_say_running(const char *folder, uint32_t epoch);
/* Runner: all is over. */
LS_MUST_CHECK ls_status ls_ticket_say_exit(const char *folder, uint32_t epoch, const ls_ticket_exit *end);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Agent: starts the ranks of one host, watches them, and ends them. A state machine over env
 * (invariant I6).
 *
 *   each slot:   empty ── start ──▶ running ── ready ──▶ running ── exit ──▶ empty ── start ──▶ ...
 *                                                                                    replacement
 *
 * It owns nothing but the processes; the segment belongs to its maker. It reports what it learns (a
 * rank is ready, a rank ended) through callbacks; others decide what follows
 * (elastic/host/coordinator.h). An exit is an event of the loop, not found by polling, so it is
 * seen as soon as the kernel reports it.
 *
 * One thing the agent does by itself: once the segment's abort word or quit flag is set, it gives
 * the ranks `grace_ns` to end, kills those that have not, and only then reports that all have
 * ended. A process that was only stopped could still wake up and write to the shared state.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_AGENT_H
#define LS_EXECUTION_ELASTIC_HOST_AGENT_H

#include "env/env.h"
#include "execution/train/segment.h"

typedef struct ls_agent ls_agent;

/* How a rank ended. */
typedef struct ls_rank_end {
    uint32_t rank;      /* number in the run */
    int32_t pid;        /* 0: the rank never wrote it */
    int exit_code;      /* 0..255, or 128 + signal, or LS_ENV_EXIT_UNKNOWN */
    uint64_t silent_ns; /* Time since its last sign of life; it died at some moment in it. */
    /* Time since the agent last saw it alive, which is checked more often; it died at some
     * moment in it. */
    uint64_t seen_ns;
    uint64_t step;   /* finished steps before the one it was in or waited for */
    uint32_t leaf;   /* leaf it computed, from its flight recorder; LS_NO_LEAF: none */
    char doing[128]; /* "computing step 12 (backward of leaf 3)" */
} ls_rank_end;

typedef struct ls_agent_options {
    ls_env *env;
    const ls_segment *segment;
    /* Command line of a rank, ending with "--rank" and NULL; the rank's number is appended. */
    const char *const *argv;
    uint64_t grace_ns; /* from being told to end until SIGKILL; 0: 2 s */
    /* Folder of the ranks' flight recorders: what a rank was doing is read there, and its exit
     * is noted. NULL: there are no recorders. */
    const char *flight_dir;
    void *context;
    void (*ready)(void *context, uint32_t rank);
    /* Ended without having been told to, or with an error, or killed by ls_agent_kill. Ranks
     * that end because others did are not reported. */
    void (*lost)(void *context, const ls_rank_end *end);
    /* Ended in order after being told to leave (ls_rank_slot.leave). NULL: no rank is ever told
     * to. */
    void (*left)(void *context, uint32_t rank, int32_t pid);
    /* No process is left, or only such as SIGKILL has not ended for 30 s; the last call. */
    void (*ended)(void *context);
    /* When process `pid` was started, in the unit of the slot's pid_start. NULL: not checked. */
    uint64_t (*start_time)(void *context, int32_t pid);
} ls_agent_options;

/* Starts no rank. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_agent_create(const ls_agent_options *options, ls_agent **agent_out);
/* Creates an agent and starts all local ranks. On error the ranks that were started are being
 * ended, and `ended` follows. Errors: LS_ERR_IO, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_agent_start(const ls_agent_options *options, ls_agent **agent_out);

/* Starts a process for local rank `local`, whose slot is empty. The flight recorder of the
 * process before it is kept as rank-N.lost-E. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_agent_start_rank(ls_agent *agent, uint32_t local);
/* Watches the process that an agent now gone started in this slot. False: there is none, or the
 * process number belongs to another process by now. Its exit code will not be known. */
bool ls_agent_adopt_rank(ls_agent *agent, uint32_t local);
/* Sends SIGKILL; `lost` follows with the exit. Without a process nothing happens. */
void ls_agent_kill(ls_agent *agent, uint32_t local);
/* Ends the ranks: those that wait end at once, others after their step, all within the grace. */
void ls_agent_end(ls_agent *agent);
/* After `ended`, or when a simulated process ends. NULL allowed. */
void ls_agent_destroy(ls_agent *agent);

/* The program to start ranks with: the running one, by its path while that is still the same
 * file (an upgrade replaces it), else by the kernel's name for it. */
enum { LS_PROGRAM_BYTES = 4096 };
void ls_program_path(char path_out[LS_PROGRAM_BYTES]);

/* "signal 9 (Killed)" or "exit code 3"; returns text_out. */
const char *ls_exit_text(int exit_code, char text_out[64]);
/* What local rank `local` is doing according to the control page: "opening its data", "computing
 * step 12", "updating weights in step 12", "waiting for orders". */
void ls_rank_doing(const ls_control *control, uint32_t local, char text_out[96]);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Agent: starts the ranks of one host, watches them, and ends them. A state machine over base/env (DESIGN I6).
 *
 *            each place:   empty ──start──▶ runs ──ready──▶ runs ──exit──▶ empty ──start──▶ ... a replacement
 *
 * It owns nothing but the processes: the segment is its maker's. What it learns (a rank is ready, a rank ended) it tells through events;
 * what follows from it others decide (elastic/coordinator.h). An exit is an event of the loop, no poll: it is seen as soon as the kernel
 * says so. What the agent does by itself: once the segment's abort word or quit flag is set it
 * gives the ranks `grace_ns` to end, kills those that have not, and only then says that all have ended: a stopped process could go on
 * writing into the shared state.
 */
#ifndef LS_EXECUTION_ELASTIC_AGENT_H
#define LS_EXECUTION_ELASTIC_AGENT_H

#include "base/env.h"
#include "execution/elastic/segment.h"

typedef struct ls_agent ls_agent;

/* How a rank ended. */
typedef struct ls_rank_end {
    uint32_t rank;      /* of the run */
    int32_t pid;        /* 0: it never said */
    int exit_code;      /* 0..255, or 128 + signal, or LS_ENV_EXIT_UNKNOWN */
    uint64_t silent_ns; /* since its last sign of life: it died at some time in it */
    uint64_t
        seen_ns; /* since the agent last saw that it lived, which is more often: it died at some time in it */
    uint64_t step;   /* finished steps of the one it was in, or waited for */
    uint32_t leaf;   /* that it computed, as its recorder says; LS_NO_LEAF: none */
    char doing[128]; /* "computing step 12 (backward of leaf 3)" */
} ls_rank_end;

typedef struct ls_agent_options {
    ls_env *env;
    const ls_segment *segment;
    const char *const
        *argv; /* of a rank's process, up to and with "--rank", ends with NULL: the number is put behind it */
    uint64_t grace_ns; /* between being told to end and SIGKILL; 0: two seconds */
    const char *
        flight_dir; /* of the ranks' recorders: what they were in is read there, and their exit is noted; NULL: none */
    void *context;
    void (*ready)(void *context, uint32_t rank);
    /* Ended without having been told to, or badly, or killed by ls_agent_kill. Ranks that end because others did are not told. */
    void (*lost)(void *context, const ls_rank_end *end);
    /* Ended in order, having been told to leave (ls_rank_slot.leave). NULL: nobody is told to. */
    void (*left)(void *context, uint32_t rank, int32_t pid);
    void (*ended)(void *context); /* no process is left; the last call */
    /* When process `pid` was started, as the slot's pid_start; NULL: nobody looks. */
    uint64_t (*start_time)(void *context, int32_t pid);
} ls_agent_options;

/* Starts no rank. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_agent_create(const ls_agent_options *options, ls_agent **agent_out);
/* Makes one and starts all local ranks. On error those that were started are being ended: `ended` follows. Errors: LS_ERR_IO, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_agent_start(const ls_agent_options *options, ls_agent **agent_out);

/* Starts a process in the place of local rank `local`, which has none. The recorder of the one before it is kept as rank-N.lost-E. Errors:
 * LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_agent_start_rank(ls_agent *agent, uint32_t local);
/* Watches the process that is in that place already, started by an agent that is gone. False: there is none, or its number is another process's by
 * now. How it ends is not known. */
bool ls_agent_adopt_rank(ls_agent *agent, uint32_t local);
/* SIGKILL; `lost` follows with the exit. Nothing when there is no process. */
void ls_agent_kill(ls_agent *agent, uint32_t local);
/* Ends the ranks: those that wait end at once, others when their step is through, at the latest after the grace. */
void ls_agent_end(ls_agent *agent);
/* After `ended`, or in a simulated process that ends. NULL allowed. */
void ls_agent_destroy(ls_agent *agent);

/* What to start ranks with: the program that runs now, by its name as long as that is still the same file (an upgrade replaces it), else by the
 * kernel's. */
enum { LS_PROGRAM_BYTES = 4096 };
void ls_program_path(char path_out[LS_PROGRAM_BYTES]);

/* "signal 9 (Killed)" or "exit code 3"; returns text_out. */
const char *ls_exit_text(int exit_code, char text_out[64]);
/* What the control page says that local rank `local` is doing: "opening its data", "computing step 12", "updating weights in step 12", "waiting for orders". */
void ls_rank_doing(const ls_control *control, uint32_t local, char text_out[96]);

#endif

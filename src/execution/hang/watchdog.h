// SPDX-License-Identifier: Apache-2.0
/*
 * The watchdog: notices that a rank is late, wrong or gone, reports it, and ends what cannot
 * continue.
 *
 * It is a state machine over env/env.h and runs in the event loop of a host's agent. It reads the
 * flight files of this host's ranks every LS_WATCHDOG_PERIOD_NS and touches nothing else of theirs.
 *
 * Late. A rank that others wait for is reported once per operation: event `late` with rank, host,
 * pid, why, text, the time since when, the operation the others wait in (with file:line), and the
 * late rank's stack. It is reported when the others have waited longer than
 *
 *   250 ms                        if its process is stopped, held by a debugger, dead or finished,
 *                                 or if the ranks wait for each other in a circle
 *   1 s                           if it is blocked in a system call
 *   max(250 ms, 8 x p99)          of past waits at that call site, once there are 8 of them
 *   max(1 s, 2 x lead)            before that; lead is the time that the waiting rank itself took
 *                                 from the end of its previous operation to this one
 *
 * What ranks of other hosts are doing is reported by their agents (ls_watchdog_see). When such a
 * rank is late, its agent is asked for its stack, and the rank is reported when the answer arrives
 * or after LS_WATCHDOG_ANSWER_NS. In a run on several hosts, a local rank that is stopped or held
 * by a debugger is late in itself: after 250 ms if some ranks cannot be seen from here, otherwise
 * after 1 s.
 *
 * A rank that waits for the trainer (LS_ACTIVITY_IDLE: the trainer evaluates, samples or saves) is
 * not late. When a late rank arrives after all: event `late_over {rank, seq}`.
 *
 * Hang. A rank is hung when others have waited for it longer than `hang_timeout_s` and it has made
 * no progress in all that time: its process is stopped or blocked in the kernel, or it is still at
 * the same piece of work. Event `hung {rank, host, pid, why, text, waiting, waited_s, ...}`, and
 * hung() is asked to end the process, so that other ranks take over its part. A rank can also hang
 * without any operation showing it: its process could not run for that time plus one second, or it
 * did not respond for that time to something wanted of it outside operations (is_wanted). A slow
 * rank that makes progress is late, never hung; so is one held by a debugger, if `spare_traced`.
 *
 * In all other cases fatal() is called with LS_ERR_MISMATCH and the whole text, stack included: if
 * there is no hung() or it cannot help, if no single rank is to blame (all are inside the
 * operation), and after 1 s if waiting cannot help (a circle; a rank that finished or left).
 *
 * Mismatch. Records of the same operation differ between ranks: event `mismatch` with both sides,
 * the majority and the call sites, then fatal(LS_ERR_MISMATCH). Most transports detect this first
 * themselves; the watchdog covers those that cannot, and sends the event.
 *
 * Nothing is reported after fatal(). All texts are also logged as warnings.
 */
#ifndef LS_EXECUTION_HANG_WATCHDOG_H
#define LS_EXECUTION_HANG_WATCHDOG_H

#include "base/json.h"
#include "env/env.h"
#include "execution/hang/wait_graph.h"

#define LS_WATCHDOG_PERIOD_NS 50000000u  /* between two looks */
#define LS_WATCHDOG_LATE_NS   250000000u /* no rank is late earlier than this */
/* Nor earlier than this at a call site without a history, unless the rank's state is certain. */
#define LS_WATCHDOG_NEW_NS     1000000000u
#define LS_WATCHDOG_ANSWER_NS  700000000u  /* how long to wait for a stack from another host */
#define LS_WATCHDOG_SEEN_NS    3000000000u /* how long a snapshot from another host stays valid */
#define LS_WATCHDOG_WAITS_MIN  8           /* past waits needed for a history */
#define LS_WATCHDOG_P99_FACTOR 8

typedef struct ls_watchdog ls_watchdog;

typedef struct ls_watchdog_options {
    ls_env *env;
    const char *flight_dir; /* holds the files rank-<n>; missing ones are looked for again */
    uint32_t ranks;         /* of the run */
    const uint32_t *local;  /* the ranks of this host; NULL: all ranks are here */
    uint32_t local_count;
    double hang_timeout_s; /* job.hang_timeout; 0: never */
    ls_describe describe;  /* activity NULL: plan steps are shown as plain numbers */
    bool no_stacks;        /* do not read stacks of processes */
    /* Receives the snapshots of this host's ranks at every second look, and may change them. A
     * watchdog with this callback reports mismatches but no late ranks: the watchdog that receives
     * the snapshots decides that. NULL: this watchdog decides. */
    void (*seen)(void *context, ls_rank_snapshot *snapshots, uint32_t count);
    /* Asks a rank's host for its stack; the answer comes through ls_watchdog_answer. Returns false
     * if the host cannot be asked. NULL: no host can be. */
    bool (*ask_stack)(void *context, uint32_t rank, int32_t pid);
    /* Ends the process of a hung rank; ls_watchdog_leave reports when it is gone. why: "was stopped
     * for 60.2 s (job.hang_timeout is 60 s)". Returns false if the process cannot be ended or the
     * run cannot continue without it. NULL: no process can be ended. */
    bool (*hung)(void *context, uint32_t rank, int32_t pid, const char *why);
    /* Whether something is wanted of a rank outside operations: it has to park, or it is idle
     * although steps are granted. NULL: never. */
    bool (*is_wanted)(void *context, uint32_t rank, bool is_idle);
    bool spare_traced; /* a rank held by a debugger may be late, but is never hung */
    /* fields: an object, taken over. Both are called from the event loop. */
    void (*event)(void *context, const char *name, json_t *fields);
    void (*fatal)(void *context, ls_status status, const char *text);
    void *context;
} ls_watchdog_options;

/* Starts watching. Strings are copied. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_watchdog_create(const ls_watchdog_options *options, ls_watchdog **watchdog_out);
void ls_watchdog_destroy(ls_watchdog *watchdog); /* NULL allowed */

/* Takes snapshots of ranks of other hosts, times on this host's clock. Ignores ranks of this host
 * and ranks out of range. */
void ls_watchdog_see(ls_watchdog *watchdog, const ls_rank_snapshot *snapshots, uint32_t count);
/* The stack of a rank of another host, or the reason why there is none. */
void ls_watchdog_answer(ls_watchdog *watchdog, uint32_t rank, bool is_stack, const char *text);

/* The process of a rank is gone or about to leave: it is no longer waited for, and everything known
 * about it is forgotten. */
void ls_watchdog_leave(ls_watchdog *watchdog, uint32_t rank);
/* The rank is back: another process with a new flight file. No effect if it had not left. */
void ls_watchdog_join(ls_watchdog *watchdog, uint32_t rank);

#endif

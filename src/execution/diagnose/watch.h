// SPDX-License-Identifier: Apache-2.0
/*
 * The watch: sees that a rank is late, wrong or gone, says so, and ends what can't go on. A state machine over base/env for the loop of a
 * host's agent; it reads the flight files of this host's ranks every LS_WATCH_PERIOD_NS and touches nothing else of theirs.
 *
 * Late. A rank that others wait for is reported once per operation (event `late`: rank, host, pid, why, text, since when, what the
 * others wait in: operation and file:line, and its stack) when they have waited longer than
 *
 *   250 ms                        and its process is stopped, held by a debugger, dead or finished, or the ranks wait in a circle
 *   1 s                           and it is blocked in a system call
 *   max(250 ms, 8 x p99)          of what waits at that call site took so far, from 8 waits on
 *   max(1 s, 2 x lead)            before that; lead: the time the waiting rank itself took to get there from its operation before
 *
 * Of ranks of other hosts their agents say what they are seen doing (ls_watch_see), and one that is late is asked for its stack there; it is
 * reported when the answer has come or after LS_WATCH_ANSWER_NS. With ranks on other hosts, a rank of this host that is stopped or held is late by
 * itself: after 250 ms where not all can be seen, else after 1 s.
 *
 * A rank that waits for orders (LS_ACTIVITY_IDLE: the trainer evaluates, samples or saves) is not late. When it comes after all, event
 * `late_over {rank, waited_s}`.
 *
 * Hang. A rank that others have waited for longer than `hang_timeout_s`, and that was not seen to move all that time, is hung: its process is
 * stopped, or blocked in the kernel, or it is at the same piece of work. Event `hung {rank, host, pid, why, text, waiting, waited_s, ...}`, and hung()
 * is asked to end it, so that others take over what it had. So is one that nobody inside an operation waits for: a process that could not move
 * for that time and a second more, or of which something is wanted outside of operations (is_wanted). A slow rank that moves is late and no more.
 * One that is held by a debugger is spared where `spare_traced` says so.
 *
 * Otherwise fatal() is called with LS_ERR_MISMATCH and the whole text, stack included: where there is no hung() or it can't, where nobody is to
 * blame (all are inside), and after 1 s where waiting can't help (a circle; a rank that has finished or left).
 *
 * Mismatch. Records of the same operation that differ: event `mismatch` with both sides, the majority and call sites, and
 * fatal(LS_ERR_MISMATCH). Most transports see it first themselves; this is for those that can't, and for the event.
 *
 * After fatal() nothing more is reported. Text goes to the log as a warning, too.
 */
#ifndef LS_EXECUTION_DIAGNOSE_WATCH_H
#define LS_EXECUTION_DIAGNOSE_WATCH_H

#include "base/env.h"
#include "base/json.h"
#include "execution/diagnose/graph.h"

#define LS_WATCH_PERIOD_NS  50000000u   /* between looks */
#define LS_WATCH_LATE_NS    250000000u  /* nobody is late earlier */
#define LS_WATCH_NEW_NS     1000000000u /* nor at a call site without a history, unless its state says so */
#define LS_WATCH_ANSWER_NS  700000000u  /* for a stack from another host */
#define LS_WATCH_SEEN_NS    3000000000u /* what was seen on another host is believed this long */
#define LS_WATCH_WAITS_MIN  8           /* waits that make a history */
#define LS_WATCH_P99_FACTOR 8

typedef struct ls_watch ls_watch;

typedef struct ls_watch_options {
    ls_env *env;
    const char *flight_dir; /* files rank-<n>; those that are not there yet are looked for again */
    uint32_t ranks;         /* of the run */
    const uint32_t *local;  /* the ranks of this host; NULL: all */
    uint32_t local_count;
    double hang_timeout_s; /* job.hang_timeout; 0: never */
    ls_describe describe;  /* activity NULL: plain numbers */
    bool no_stacks;        /* don't look into processes */
    /* Gets what every second look sees of this host's ranks; such a watch names mismatches but nobody late: others judge. May change them. NULL:
     * this watch judges. */
    void (*seen)(void *context, ls_sight *sights, uint32_t count);
    /* Asks a rank's host for its stack, which comes through ls_watch_answer. False: it can't be asked. NULL: none can. */
    bool (*ask_stack)(void *context, uint32_t rank, int32_t pid);
    /* Ends the process of a rank that hangs; ls_watch_leave says when it is gone. why: "was stopped for 60.2 s (job.hang_timeout is 60 s)". False: it
     * can't be ended, or the run can't go on without it. NULL: none can. */
    bool (*hung)(void *context, uint32_t rank, int32_t pid, const char *why);
    /* Whether a rank is waited for outside of operations: it should park, or is idle though there are steps to run. NULL: never. */
    bool (*is_wanted)(void *context, uint32_t rank, bool is_idle);
    bool spare_traced; /* a rank that a debugger holds is late, but never hung */
    /* fields: an object, taken over. Both are called from the loop. */
    void (*event)(void *context, const char *name, json_t *fields);
    void (*fatal)(void *context, ls_status status, const char *text);
    void *context;
} ls_watch_options;

/* Begins to look. Strings are copied. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_watch_create(const ls_watch_options *options, ls_watch **watch_out);
void ls_watch_destroy(ls_watch *watch); /* NULL allowed */

/* Ranks of other hosts as they were seen a moment ago, times on this host's clock. Ranks of this host and out of range: without effect. */
void ls_watch_see(ls_watch *watch, const ls_sight *sights, uint32_t count);
/* The stack of a rank of another host, or the reason why there is none. */
void ls_watch_answer(ls_watch *watch, uint32_t rank, bool is_stack, const char *text);

/* The process of a rank is gone, or is about to leave: nobody waits for it any more, and all that is known of it is forgotten. */
void ls_watch_leave(ls_watch *watch, uint32_t rank);
/* It is there again, another process with a new flight file. Without effect where it has not left. */
void ls_watch_join(ls_watch *watch, uint32_t rank);

/* Who came last how often: ls_arrivals_to_json. The caller drops it. */
json_t *ls_watch_stragglers(const ls_watch *watch);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Engine: who runs jobs. A table of orders that return at once, and reports that come later.
 *
 *   daemon ── start, stop, resize, adopt ──▶ engine ──▶ processes, or Slurm
 *      ▲                                        │
 *      └──────────── report(job, epoch) ◀───────┘     never inside an order; from the loop of base/env
 *
 * An order comes when its reason is on the disk, and not before. The same order may come again after a crash of the daemon, and the engine
 * must not start an epoch twice: that is what `adopt` is for. Each job in epoch E that was started or adopted gets exactly one ENDED or NEVER
 * report in the end, and STARTED before it unless it never began. Reports of epochs that are past are ignored by who hears them.
 *
 * An engine that `decides` has a queue of its own (Slurm): it is given every job at once, says when it begins and why it waits, and no
 * devices are chosen here.
 */
#ifndef LS_ORCHESTRATION_ENGINES_ENGINE_H
#define LS_ORCHESTRATION_ENGINES_ENGINE_H

#include "base/env.h"
#include "base/status.h"
#include "orchestration/job/job.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_engine ls_engine;

typedef enum ls_engine_report_kind {
    LS_ENGINE_ACCEPTED, /* an engine that decides has it: `text` is its name for it */
    LS_ENGINE_STARTED,  /* its first process runs */
    LS_ENGINE_ENDED,    /* all its processes have ended: exit_code, cause */
    LS_ENGINE_NEVER,    /* it was not started and never will be in this epoch: it costs the job nothing */
    LS_ENGINE_LOST, /* what watched them is gone: LS_STOP_KILL follows, and then ENDED with cause LOST when nothing of them is left */
    LS_ENGINE_RESIZED, /* it has `ranks` now, whether that is what was asked for or not; text: why not */
    LS_ENGINE_SAVED,   /* it has written a checkpoint */
    LS_ENGINE_PROGRESS, /* a run that trains: `step` of `steps`, and `left_s` to go on the devices it has, if that is known */
    LS_ENGINE_ACTIVITY, /* how busy its devices were since the last such report: busy_permille */
    LS_ENGINE_WAITS,    /* an engine that decides: why, in `stage` and `text`; `starts_s` when it knows */
    LS_ENGINE_NODE,     /* `text` is a node: it is up or not */
} ls_engine_report_kind;

typedef struct ls_engine_report {
    ls_engine_report_kind kind;
    uint64_t job;
    uint32_t epoch;
    double time_s; /* when it happened, since 1970; 0: now */
    int exit_code; /* ENDED: 0 to 255, 128 + signal */
    ls_job_cause
        cause; /* ENDED: PROGRAM, MEMORY, START, or of an engine that decides PREEMPTED, LIMIT, USER */
    uint32_t ranks;
    uint32_t busy_permille;
    uint64_t step, steps;
    double left_s; /* 0: not known */
    bool is_up;
    double starts_s;
    const char *stage; /* as in `why` */
    const char *text;  /* for people; NULL: nothing to say */
    const char *
        error; /* ENDED: the last line it printed that tells of an error, printable, 300 bytes at most; NULL: none */
} ls_engine_report;

/* report: valid during the call. */
typedef void (*ls_engine_hear)(void *context, const ls_engine_report *report);

typedef enum ls_engine_stop_kind {
    LS_STOP_SAVE, /* SIGTERM, the job's grace, SIGKILL */
    LS_STOP_KILL, /* SIGKILL */
} ls_engine_stop_kind;

typedef struct ls_engine_node {
    const char *name;
    uint32_t leaf, spine;
    const char *kind; /* "cpu", "H200", ... */
    uint32_t devices; /* 1 and more */
    uint32_t island_devices;
    uint32_t cpus, memory_mib;
    bool spot;
} ls_engine_node;

/*
 * A node has as many places as it takes for 64 devices each: parts of nearly the same size, one behind the other. A share of a job
 * (ls_job_share) names a place, counted over all nodes, and its bits are devices from the place's first one on.
 */
static inline uint32_t ls_engine_place_count(uint32_t devices)
{
    return (devices + 63) / 64;
}

/* place == count: all of them. */
static inline uint32_t ls_engine_place_first(uint32_t devices, uint32_t place)
{
    return (uint32_t)((uint64_t)devices * place / ls_engine_place_count(devices));
}

typedef struct ls_engine_calls {
    const char *name; /* "local", "slurm" */
    bool decides;

    /* The machines there are; valid as long as the engine. */
    const ls_engine_node *(*nodes)(ls_engine *engine, uint32_t *count_out);
    /* An engine that decides: could the job ever run? LS_ERR_INVALID, with what would. NULL: not known here. */
    ls_status (*check)(ls_engine *engine, const ls_job *job);
    /* Begins epoch job->epoch on job->shares with job->ranks_now ranks. */
    void (*start)(ls_engine *engine, const ls_job *job);
    /* After a restart of the daemon: what has become of epoch job->epoch, which may have been started or not? Goes on watching it. If it was
     * not, it never will be, and the report is LOST with cause START, which costs the job nothing. */
    void (*adopt)(ls_engine *engine, const ls_job *job);
    /* Twice is fine, and the second may be stronger. */
    void (*stop)(ls_engine *engine, const ls_job *job, ls_engine_stop_kind kind);
    /* To job->ranks_next ranks; RESIZED follows, or the end of the job. */
    void (*resize)(ls_engine *engine, const ls_job *job);
    /* Priority, hold or what else of a waiting job has changed. NULL unless the engine decides. */
    void (*change)(ls_engine *engine, const ls_job *job);
    /* The job has ended and is forgotten by the queue's watchers: files that only served its start may go. */
    void (*forget)(ls_engine *engine, const ls_job *job);
    /* Jobs go on. */
    void (*destroy)(ls_engine *engine);
} ls_engine_calls;

/* The first member of every engine. */
struct ls_engine {
    const ls_engine_calls *calls;
};

#endif

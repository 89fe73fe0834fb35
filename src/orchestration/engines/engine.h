// SPDX-License-Identifier: Apache-2.0
/*
 * Engine: runs jobs. A table of orders that return at once, and reports that come later.
 *
 *   daemon ── start, stop, resize, adopt ──▶ engine ──▶ processes, or Slurm
 *      ▲                                        │
 *      └──────────── report(job, epoch) ◀───────┘     never during an order; from the loop of env/env.h
 *
 * An order is given after its reason is on the disk. After a crash of the daemon the same order may
 * come again, and the engine must not start an epoch twice: that is what `adopt` is for. Each job
 * in epoch E that was started or adopted gets exactly one ENDED or NEVER report, and before ENDED a
 * STARTED report unless it never began. The controller ignores reports of past epochs.
 *
 * An engine that `decides` has a queue of its own (Slurm): it is given every job at once and
 * reports when a job begins and why it waits; no devices are chosen on our side.
 */
#ifndef LS_ORCHESTRATION_ENGINES_ENGINE_H
#define LS_ORCHESTRATION_ENGINES_ENGINE_H

#include "base/status.h"
#include "env/env.h"
#include "orchestration/job/job.h"
#include "telemetry/record/alert.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_engine ls_engine;

typedef enum ls_engine_report_kind {
    /* an engine that decides has taken the job; text: the engine's name for it */
    LS_ENGINE_ACCEPTED,
    /* its first process runs */
    LS_ENGINE_STARTED,
    /* all its processes have ended: exit_code, cause */
    LS_ENGINE_ENDED,
    /* it was not started and never will be in this epoch; that does not count against the job */
    LS_ENGINE_NEVER,
    /* the process that watched it is gone: the controller orders LS_STOP_KILL, and ENDED with cause
     * LOST follows when none of its processes is left */
    LS_ENGINE_LOST,
    /* it has `ranks` now; when that is not what was asked for, text says why */
    LS_ENGINE_RESIZED,
    /* it has written a checkpoint */
    LS_ENGINE_SAVED,
    /* a training run: it is at `step` of `steps`, with `left_s` to go on its devices, if known */
    LS_ENGINE_PROGRESS,
    /* how busy its devices were since the last such report: busy_permille; and energy_mj. time_s:
     * when its terminal was last typed into; 0: never, or it has none */
    LS_ENGINE_ACTIVITY,
    /* it tells of something itself: alert, text */
    LS_ENGINE_ALERT,
    /* energy_mj that the machine has used since the last such report, and no job */
    LS_ENGINE_FREE_ENERGY,
    /* from an engine that decides: why it waits, in stage and text; starts_s when it is known */
    LS_ENGINE_WAITS,
    /* about a node, named by text: whether it is up */
    LS_ENGINE_NODE,
} ls_engine_report_kind;

typedef struct ls_engine_report {
    ls_engine_report_kind kind;
    uint64_t job;
    uint32_t epoch;
    double time_s; /* when it happened, seconds since 1970; 0: now */
    int exit_code; /* ENDED: 0 to 255, 128 + signal */
    /* ENDED: PROGRAM, MEMORY, START; from an engine that decides also PREEMPTED, LIMIT, USER */
    ls_job_cause cause;
    uint32_t ranks;
    uint32_t busy_permille;
    ls_alert_kind alert;
    uint32_t alert_number; /* ALERT: from 1 in each epoch; it may come again after a restart */
    /* ACTIVITY, ENDED: millijoules of the job since its last report; 0: not known */
    uint64_t energy_mj;
    uint64_t step, steps;
    double left_s; /* 0: not known */
    bool is_up;
    double starts_s;
    const char *stage; /* a stage of `why` */
    const char *node;  /* STARTED, from an engine that decides: its first node; NULL: not known */
    const char *text;  /* for people; NULL: none */
    /* ENDED: the last line it printed that explains an error, printable, at most 300 bytes; NULL:
     * none */
    const char *error;
    ls_job_result result; /* ENDED: of a training run, if known */
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
    uint32_t devices; /* 1 or more */
    uint32_t island_devices;
    uint32_t cpus, memory_mib;
    bool spot;
} ls_engine_node;

/*
 * A node has as many places as are needed for 64 devices each: parts of nearly the same size, one
 * after the other. A share of a job (ls_job_share) names a place, counted over all nodes; its bits
 * are devices, counted from the first one of the place.
 */
static inline uint32_t ls_engine_place_count(uint32_t devices)
{
    return (devices + 63) / 64;
}

/* The first device of a place; for place == count the number of all devices. */
static inline uint32_t ls_engine_place_first(uint32_t devices, uint32_t place)
{
    return (uint32_t)((uint64_t)devices * place / ls_engine_place_count(devices));
}

/* What a device reports now; NAN: it does not. */
typedef struct ls_engine_device {
    double utilization; /* 0 to 1 */
    double memory_bytes, memory_max_bytes, power_w, temperature_c, is_throttled, ecc_errors;
} ls_engine_device;

typedef struct ls_engine_calls {
    const char *name; /* "local", "slurm" */
    bool decides;

    /* The machines; valid as long as the engine. */
    const ls_engine_node *(*nodes)(ls_engine *engine, uint32_t *count_out);
    /* What the devices of the first node report now, in order; valid until the next call. NULL, or
     * count 0: nothing is known. */
    const ls_engine_device *(*devices)(ls_engine *engine, uint32_t *count_out);
    /* An engine that decides: whether the job could ever run. LS_ERR_INVALID with what would be
     * possible. NULL: not known here. */
    ls_status (*check)(ls_engine *engine, const ls_job *job);
    /* Starts epoch job->epoch on job->shares with job->ranks_now ranks. */
    void (*start)(ls_engine *engine, const ls_job *job);
    /*
     * After a restart of the daemon: finds out what became of epoch job->epoch, which may or may
     * not have been started, and watches it from now on. When it was not started, it never will be,
     * and the report is LOST with cause START, which does not count against the job.
     */
    void (*adopt)(ls_engine *engine, const ls_job *job);
    /* May be ordered twice; the second order may be the stronger one. */
    void (*stop)(ls_engine *engine, const ls_job *job, ls_engine_stop_kind kind);
    /* Changes the job to job->ranks_next ranks; RESIZED follows, or the end of the job. */
    void (*resize)(ls_engine *engine, const ls_job *job);
    /* The priority, hold or another property of a waiting job has changed. NULL unless the engine
     * decides. */
    void (*change)(ls_engine *engine, const ls_job *job);
    /*
     * The job has ended and is no longer watched: files that only served its start may be removed.
     */
    void (*forget)(ls_engine *engine, const ls_job *job);
    /* Jobs keep running. */
    void (*destroy)(ls_engine *engine);
} ls_engine_calls;

/* The first member of every engine. */
struct ls_engine {
    const ls_engine_calls *calls;
};

#endif

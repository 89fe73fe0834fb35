// SPDX-License-Identifier: Apache-2.0
/*
 * Job: one entry of the queue: what was asked for, and what became of it so far.
 *
 *   request   what was submitted: the run file's text, folder, overrides. Never changes; kept as JSON (ls_job_request_check).
 *   spec      what the request means, parsed: ranks, limits, places, dependencies (ls_job_spec_parse). Never changes.
 *   record    everything else in ls_job: state, epoch, devices, times. Changes with each transition, and goes into the journal with it.
 *
 * States, as people see them; those that hold devices are marked *:
 *
 *   HELD ⇄ QUEUED ──▶ STARTING* ──▶ RUNNING* ──▶ SUCCEEDED | FAILED
 *             ▲           │          │   ⇅ RESIZING*
 *             ├── RECOVERING ◀── lost┤
 *             ├───── PREEMPTING* ◀───┤
 *             └─▶ CANCELLED ◀── STOPPING* (cancel, time limit: then FAILED)
 *
 * An epoch is one start: it grows by one each time, is on the disk before anything is started, and every report names it, so that what a
 * late process of an earlier epoch does or says counts for nothing.
 *
 * Times are seconds since 1970 when they end in _s, and device-milliseconds when they end in _device_ms.
 */
#ifndef LS_ORCHESTRATION_JOB_JOB_H
#define LS_ORCHESTRATION_JOB_JOB_H

#include "base/arena.h"
#include "base/json.h"
#include "base/options.h"
#include "base/status.h"
#include "planning/run_file.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_job_state {
    LS_JOB_QUEUED,
    LS_JOB_HELD,
    LS_JOB_STARTING,
    LS_JOB_RUNNING,
    LS_JOB_RESIZING,
    LS_JOB_PREEMPTING,
    LS_JOB_RECOVERING, /* its processes were lost: what is left of them is being ended before it may start again */
    LS_JOB_STOPPING,
    LS_JOB_SUCCEEDED,
    LS_JOB_FAILED,
    LS_JOB_CANCELLED,
    LS_JOB_STATES
} ls_job_state;

/* "QUEUED", ... */
const char *ls_job_state_name(ls_job_state state);
/* LS_JOB_STATES when there is none of that name. */
ls_job_state ls_job_state_named(const char *name);
/* Ended: nothing follows. */
bool ls_job_state_is_final(ls_job_state state);
/* Waits for devices. */
bool ls_job_state_is_waiting(ls_job_state state);

/* Why a job ended, or left its devices; who has to look at it. */
typedef enum ls_job_cause {
    LS_CAUSE_NONE,
    LS_CAUSE_PROGRAM,    /* its own exit code or signal */
    LS_CAUSE_MEMORY,     /* exit code 4, or killed by the kernel for memory */
    LS_CAUSE_START,      /* could not be started: no such folder or program */
    LS_CAUSE_LOST,       /* the machine, or what ran it, died */
    LS_CAUSE_LIMIT,      /* time limit */
    LS_CAUSE_DEPENDENCY, /* what it waited for failed */
    LS_CAUSE_USER,       /* cancelled, held */
    LS_CAUSE_PREEMPTED,  /* its devices were needed */
    LS_CAUSE_IMPOSSIBLE, /* can never start on the nodes there are now */
    LS_CAUSE_DISK,       /* it could not be written down: nobody was told that it was accepted */
    LS_CAUSES
} ls_job_cause;

/* "program", ... */
const char *ls_job_cause_name(ls_job_cause cause);
ls_job_cause ls_job_cause_named(const char *name); /* LS_CAUSE_NONE for others */

enum {
    LS_JOB_FILE_BYTES_MAX = 256 * 1024, /* of a run file */
    LS_JOB_PATH_BYTES_MAX = 4000,
    LS_JOB_NAME_BYTES_MAX = 128,
    LS_JOB_ACCOUNT_BYTES_MAX = 64,
    LS_JOB_LIST_MAX = 4096, /* words, overrides, variables of one job */
    LS_JOB_AFTER_MAX = 64,  /* jobs it waits for */
    LS_JOB_RANKS_MAX = 1 << 20,
};

/* What a request means. Strings live in the arena given to ls_job_spec_parse. */
typedef struct ls_job_spec {
    const char *name;
    const char *account;         /* "": of the user's name */
    const char *directory;       /* absolute; where it is submitted, and where its processes begin */
    const char *file;            /* text of the run file */
    const char *file_name;       /* what it was called: for people */
    ls_option_strings set;       /* overrides, for the command line of train */
    ls_option_strings command;   /* empty: trains */
    ls_option_strings variables; /* NAME=VALUE, of the submitter, then of job.environment */
    ls_option_strings share;
    ls_priority priority;
    uint32_t ranks, min_ranks, max_ranks; /* equal unless elastic */
    uint32_t leaves;                      /* parts a step is cut into; 0: not known */
    uint32_t threads;                     /* of a rank; 0: the file does not say */
    uint64_t steps;                       /* of a run that trains; 0: not known before it has read its data */
    uint32_t ranks_per_node;              /* 0: any */
    uint32_t cpus_per_rank, memory_mib_per_rank;
    ls_nearness required, preferred;
    bool spot, hold, restartable;
    uint32_t restarts_max;
    double time_limit_s, begin_s, deadline_s; /* 0: none; begin and deadline behind the submission */
    double grace_s;
    uint64_t *after; /* jobs, ascending, each once */
    uint32_t after_count;
    bool after_any;
    const char *group; /* "": none */
    uint32_t group_running_max;
    uint64_t
        data_hash; /* of where its data are, so that jobs with the same can be brought to the same nodes; 0: none */
} ls_job_spec;

/*
 * Reads and checks a request:
 *
 *   {"file": TEXT, "directory": ABSOLUTE, "file_name"?, "name"?, "ranks"?, "set"?: ["key=value"], "account"?, "priority"?, "hold"?, "after"?: [..],
 *    "environment"?: {NAME: VALUE}}
 *
 * Members beside the file win over what the file says. Unknown members are errors. Pure: what is on the disk is not looked at.
 * spec_out: strings in `arena`, and in `request` as long as it lives. Errors: LS_ERR_INVALID, with the key, the value and what is allowed.
 */
LS_MUST_CHECK ls_status ls_job_spec_parse(const json_t *request, ls_arena *arena, ls_job_spec *spec_out);

/* Devices of one place (engines/engine.h: a node, or a part of a large one) that a job has: bits of its devices. */
typedef struct ls_job_share {
    uint32_t node;
    uint64_t devices;
} ls_job_share;

enum { LS_JOB_CURVE_MAX = 64 };

/* What was computed of a run that trains before it was begun, from its run file and what this machine was measured to do. Never changes. */
typedef struct ls_job_plan {
    double run_s; /* the whole run at `ranks`; 0: not known */
    uint32_t curve_count,
        curve[LS_JOB_CURVE_MAX]; /* [i]: speed at spec.min_ranks + i ranks, 1000 at the first; 0: not known */
    char source[64];             /* where it is from: "calibration of DATE" */
} ls_job_plan;

/*
 * What was said beforehand of a job, and what came of it: each is kept as it was first said, when it was said, and what happened then.
 * Times are since 1970; 0: nothing was said, or it has not happened.
 */
typedef struct ls_job_foresight {
    double start_s, start_said_s, started_s; /* its first start, said while it waited */
    double end_s,
        end_said_s; /* the end of the start it is in, or was in last, said by its own steps; ended_s is when it came */
} ls_job_foresight;

typedef struct ls_job {
    uint64_t id; /* from 1 */
    uint32_t uid, gid;
    const char *user;    /* uid's name when it was submitted, or its number as text */
    const char *account; /* resolved */
    json_t *request;     /* owned; NULL when it was dropped (ls_job_drop_request) */
    ls_job_spec spec;
    const char *run_dir; /* of a job that trains; "" else */
    ls_arena arena;      /* of the strings above */

    /* The record. */
    ls_job_state state;
    ls_job_cause cause; /* of the last transition out of RUNNING, or of the end */
    uint32_t epoch;     /* starts so far */
    bool held;          /* goes to HELD instead of QUEUED when it gives its devices back */
    bool cancelled;     /* somebody asked for its end */
    bool handed_over;   /* an engine that decides itself has it, in this epoch */
    ls_priority priority;
    uint32_t ranks;       /* wanted */
    uint32_t ranks_now;   /* has, or 0 */
    uint32_t ranks_next;  /* RESIZING: will have */
    ls_job_share *shares; /* malloc; ls_job_set_shares. While it shrinks, what it has until then */
    uint32_t share_count;
    int exit_code;     /* of the last end; -1: none yet */
    uint32_t restarts; /* behind losses */
    uint32_t preemptions;
    double submitted_s, queued_s /* last */, started_s /* last */, ended_s; /* 0: not yet */
    double run_s;             /* of earlier epochs, with devices */
    double booked_s;          /* its device-milliseconds are counted up to here */
    double saved_s;           /* last checkpoint known of, 0: none */
    uint64_t step, steps;     /* of a run that trains: done, of so many; 0: not known */
    double left_s, left_at_s; /* to go on the devices it has, or will have, as of left_at_s; 0: not known */
    ls_job_plan plan;
    ls_job_foresight foresight;
    uint64_t allocated_device_ms, idle_device_ms, waiting_device_ms,
        lost_device_ms; /* until booked_s (orchestration/control/usage.c) */
    char *text;         /* malloc: last word about it, for people; NULL: none */
    char *engine_ref;   /* malloc: what the engine calls it; NULL: nothing */
} ls_job;

/* A new job; takes over `request`. LS_ERR_INVALID as ls_job_spec_parse; the request is then dropped. */
LS_MUST_CHECK ls_status ls_job_create(uint64_t id, json_t *request, ls_job **job_out);
void ls_job_destroy(ls_job *job);

void ls_job_set_user(ls_job *job, uint32_t uid, uint32_t gid, const char *user);
void ls_job_set_account(ls_job *job, const char *account);
void ls_job_set_run_dir(ls_job *job, const char *run_dir);
/* Copies; count 0: none. */
void ls_job_set_shares(ls_job *job, const ls_job_share *shares, uint32_t count);
void ls_job_set_text(ls_job *job, const char *text);
void ls_job_set_engine_ref(ls_job *job, const char *ref);
/* Forgets run file and variables of a job that has ended: the store has them. */
void ls_job_drop_request(ls_job *job);

/* Threads of a rank on a machine with so many cores for so many devices: train.threads, else an equal part, at least 1. */
uint32_t ls_job_rank_threads(const ls_job *job, uint32_t cores, uint32_t devices);

/* Holds devices: STARTING to STOPPING but RECOVERING. */
bool ls_job_has_devices(const ls_job *job);

/* The record as JSON, and back. What was written by another version: absent members have their defaults. Errors: LS_ERR_DATA. */
json_t *ls_job_record_json(const ls_job *job);
LS_MUST_CHECK ls_status ls_job_record_read(ls_job *job, const json_t *record);

/* May `uid` (an admin: root, and who runs the daemon) see and change it? `user`: the name of uid. */
bool ls_job_is_open_to(const ls_job *job, uint32_t uid, const char *user, bool is_admin);

#endif

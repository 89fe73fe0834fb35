// SPDX-License-Identifier: Apache-2.0
/*
 * Reads what Slurm's commands print: the jobs of one poll, the nodes, and why a job waits in the
 * words of `lockstep why`.
 *
 * One squeue for all jobs every few seconds, never one per job. Columns are asked for by name with
 * our own separator; --json takes three times as long and changes between versions. Pure;
 * thread-safe.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_SQUEUE_H
#define LS_ORCHESTRATION_ENGINES_SLURM_SQUEUE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* squeue --noheader --array --states=all --Format=LS_SLURM_SQUEUE_FORMAT, with
 * SLURM_TIME_FORMAT=%s */
#define LS_SLURM_SQUEUE_FORMAT                                                                               \
    "JobArrayID:40|,UserID:12|,State:20|,Reason:60|,StartTime:24|,RestartCnt:12|,exit_code:12|,NumNodes:"    \
    "12|,NodeList:80|,Comment:120|"

typedef enum ls_slurm_state {
    LS_SLURM_WAITS, /* PENDING, CONFIGURING, REQUEUED */
    LS_SLURM_RUNS,  /* RUNNING, SUSPENDED, RESIZING, SIGNALING, STOPPED, STAGE_OUT */
    /* COMPLETING: its script is over, or nearly, and its nodes are not free yet */
    LS_SLURM_ENDS,
    LS_SLURM_DONE,      /* COMPLETED, FAILED: the exit code says which */
    LS_SLURM_CANCELLED, /* CANCELLED: by scancel */
    LS_SLURM_LIMIT,     /* TIMEOUT, DEADLINE */
    LS_SLURM_MEMORY,    /* OUT_OF_MEMORY */
    LS_SLURM_PREEMPTED, /* PREEMPTED, and not queued again */
    LS_SLURM_NODE_LOST, /* NODE_FAIL, BOOT_FAIL, LAUNCH_FAILED, RECONFIG_FAIL */
} ls_slurm_state;

typedef struct ls_slurm_row {
    const char *ref; /* "17", or "17_3" of an array */
    uint32_t uid;    /* its owner */
    ls_slurm_state state;
    const char *reason; /* Slurm's reason: "Resources", "QOSMaxGRESPerUser" */
    double start_s;     /* start or expected start, since 1970; 0: not known */
    double end_s;       /* only from sacct; 0: not known */
    uint32_t restarts;  /* how often it was requeued */
    int exit_code;      /* of the last run: 0 to 255, 128 + signal */
    uint32_t nodes;
    const char *node;    /* the first one it has, or had; "": none */
    const char *comment; /* ours names the job: ls_slurm_comment */
} ls_slurm_row;

/*
 * Reads what squeue printed. A row with an unknown state counts as waiting. Lines with other
 * columns are skipped, because other users' comments may hold anything. When there are only such
 * lines: LS_ERR_DATA, naming the first one (another version of Slurm, or not squeue at all); the
 * outputs are then untouched. Everything lives in the arena.
 */
LS_MUST_CHECK ls_status ls_slurm_rows_read(ls_arena *arena, const char *text, ls_slurm_row **rows_out,
                                           size_t *count_out);

/*
 * sacct --noheader --parsable2 --allocations --format=LS_SLURM_SACCT_FORMAT, with
 * SLURM_TIME_FORMAT=%s: jobs that squeue has forgotten. The same rows, without comment and
 * restarts. Lines that cannot be read are skipped.
 */
#define LS_SLURM_SACCT_FORMAT "JobID,UID,State,ExitCode,Start,End,NodeList"
void ls_slurm_history_read(ls_arena *arena, const char *text, ls_slurm_row **rows_out, size_t *count_out);

/* "lockstep:HOME:JOB:EPOCH"; HOME is 16 hex digits that distinguish the queues of one user. */
const char *ls_slurm_comment(ls_arena *arena, uint64_t home, uint64_t job, uint32_t epoch);
/* false: the comment does not belong to this home. */
bool ls_slurm_comment_read(const char *comment, uint64_t home, uint64_t *job_out, uint32_t *epoch_out);

/* The stage of `why` for a reason of Slurm ("gang", "priority", "quota", ...). Never NULL. */
const char *ls_slurm_reason_stage(const char *reason);
/* The reason, and what it means: "Resources: it is next, and not enough is free". In the arena. */
const char *ls_slurm_reason_text(ls_arena *arena, const char *reason);

/* sinfo --noheader --Node --format=LS_SLURM_SINFO_FORMAT: one line per node and partition */
#define LS_SLURM_SINFO_FORMAT "%N|%c|%m|%G|%T|%R"

typedef struct ls_slurm_node {
    const char *name;
    uint32_t cpus, memory_mib, gpus;
    const char *gpu_kind; /* "" when there are none */
    bool is_up;
} ls_slurm_node;

typedef struct ls_slurm_cluster {
    ls_slurm_node *nodes; /* each once, in the order of sinfo */
    size_t node_count;
    const char **partitions;
    size_t partition_count;
} ls_slurm_cluster;

/* Errors: LS_ERR_DATA, naming the line. */
LS_MUST_CHECK ls_status ls_slurm_cluster_read(ls_arena *arena, const char *text,
                                              ls_slurm_cluster *cluster_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * What Slurm's own commands say, read: the jobs of one poll, the nodes, and why a job waits in the words of `lockstep why`.
 *
 * One squeue for all jobs every few seconds, never one per job. The columns are asked for by name with a separator of ours; --json is three times as slow and
 * changes from version to version. Pure; thread-safe.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_QUEUE_H
#define LS_ORCHESTRATION_ENGINES_SLURM_QUEUE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* squeue --noheader --array --states=all --Format=LS_SLURM_SQUEUE_FORMAT, with SLURM_TIME_FORMAT=%s */
#define LS_SLURM_SQUEUE_FORMAT                                                                               \
    "JobArrayID:40|,UserID:12|,State:20|,Reason:60|,StartTime:24|,RestartCnt:12|,exit_code:12|,NumNodes:"    \
    "12|,Comment:120|"

typedef enum ls_slurm_state {
    LS_SLURM_WAITS,     /* PENDING, CONFIGURING, REQUEUED */
    LS_SLURM_RUNS,      /* RUNNING, SUSPENDED, RESIZING, SIGNALING, STOPPED, STAGE_OUT */
    LS_SLURM_ENDS,      /* COMPLETING: its script is over, or about to be, and its nodes are not free yet */
    LS_SLURM_DONE,      /* COMPLETED, FAILED: its exit code says which */
    LS_SLURM_CANCELLED, /* CANCELLED: somebody's scancel */
    LS_SLURM_LIMIT,     /* TIMEOUT, DEADLINE */
    LS_SLURM_MEMORY,    /* OUT_OF_MEMORY */
    LS_SLURM_PREEMPTED, /* PREEMPTED, and not queued again */
    LS_SLURM_NODE_LOST, /* NODE_FAIL, BOOT_FAIL, LAUNCH_FAILED, RECONFIG_FAIL */
} ls_slurm_state;

typedef struct ls_slurm_row {
    const char *ref; /* "17", or "17_3" of an array */
    uint32_t uid;    /* whose it is */
    ls_slurm_state state;
    const char *reason; /* Slurm's word: "Resources", "QOSMaxGRESPerUser" */
    double start_s;     /* began, or is expected to begin, since 1970; 0: not known */
    double end_s;       /* of sacct alone; 0: not known */
    uint32_t restarts;  /* times it was queued again */
    int exit_code;      /* 0 to 255, 128 + signal: of the last run */
    uint32_t nodes;
    const char *comment; /* ours says which job it is: ls_slurm_comment */
} ls_slurm_row;

/*
 * Reads what squeue printed. Rows whose state is not known are taken as waiting; lines with other columns are skipped (other people's comments may hold anything), but when there is nothing
 * else: LS_ERR_DATA, naming the first: another version of Slurm, or not squeue at all; the outputs are then untouched. Everything lives in the arena.
 */
LS_MUST_CHECK ls_status ls_slurm_rows_read(ls_arena *arena, const char *text, ls_slurm_row **rows_out,
                                           size_t *count_out);

/*
 * sacct --noheader --parsable2 --allocations --format=LS_SLURM_SACCT_FORMAT, with SLURM_TIME_FORMAT=%s: jobs that squeue has forgotten. The same rows, without comment and
 * restarts. Lines that can't be read are skipped.
 */
#define LS_SLURM_SACCT_FORMAT "JobID,UID,State,ExitCode,Start,End"
void ls_slurm_history_read(ls_arena *arena, const char *text, ls_slurm_row **rows_out, size_t *count_out);

/* "lockstep:HOME:JOB:EPOCH", HOME: 16 hex digits that tell the queues of one user apart. */
const char *ls_slurm_comment(ls_arena *arena, uint64_t home, uint64_t job, uint32_t epoch);
/* False when the comment is not of this home. */
bool ls_slurm_comment_read(const char *comment, uint64_t home, uint64_t *job_out, uint32_t *epoch_out);

/* The stage of `why` that a reason of Slurm belongs to ("gang", "priority", "quota", ...). Never NULL. */
const char *ls_slurm_reason_stage(const char *reason);
/* The reason, and what it means: "Resources: it is next, and not enough is free". In the arena. */
const char *ls_slurm_reason_text(ls_arena *arena, const char *reason);

/* sinfo --noheader --Node --format=LS_SLURM_SINFO_FORMAT: a node comes once for each of its partitions */
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

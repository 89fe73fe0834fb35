// SPDX-License-Identifier: Apache-2.0
/*
 * A job as Slurm gets it: the options of sbatch, and the batch script, which is kept in the job's
 * folder.
 *
 *   HOME/jobs/7/ticket-1           exists while epoch 1 may begin; the script first renames it to
 *                                  claim-1, which exists until the job is over
 *   HOME/jobs/7/slurm-1.sh         what to do; a sweep is one array whose tasks each run such a
 *                                  script
 *   HOME/jobs/7/slurm-ref-1        "17_3 0 4": the job's number in Slurm, how often Slurm had
 *                                  requeued it when the epoch began, and the first job of its array
 *   HOME/jobs/7/slurm-end-17_3-0   "EXIT_CODE TIME RESULT" of that run, so that it does not depend
 *                                  on how long Slurm remembers; RESULT: ls_job_result_json of a
 *                                  training
 *
 * A training job on one node is one `lockstep train`; on several nodes, one srun starts `lockstep
 * train` on the first and `lockstep agent` on each of the others. Any other program is started once
 * per rank, with the variables that torchrun would set. USR1 (Slurm's notice before a preemption or
 * the time limit) and TERM are passed on as TERM; a job that then exits with 75 has saved, and is
 * queued again.
 *
 * All nodes must see HOME and the job's folder under the same path. Pure; thread-safe.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_SCRIPT_H
#define LS_ORCHESTRATION_ENGINES_SLURM_SCRIPT_H

#include "base/text.h"
#include "orchestration/job/job.h"

enum { LS_SLURM_NOTICE_S = 60, LS_SLURM_OPTIONS_MAX = 40 };

typedef struct ls_slurm_site {
    const char *program;    /* absolute path of lockstep */
    const char *home;       /* $LOCKSTEP_HOME, absolute */
    uint64_t home_id;       /* identifies this queue; part of every job's comment */
    const char *slurm_conf; /* SLURM_CONF of the daemon; NULL: Slurm's default */
    /* by ls_priority; NULL: Slurm's default partition, where --nice expresses priorities */
    const char *partitions[3];
    const char *account_option; /* "account": jobs name their account to Slurm; NULL: they do not */
    uint32_t node_devices;      /* of the largest node: GPUs, or cores where there are no GPUs */
    bool has_gpus;
    bool is_root; /* jobs are submitted in the name of their owners */
} ls_slurm_site;

/* How a job's ranks are distributed over nodes. */
typedef struct ls_slurm_shape {
    uint32_t nodes, ranks_per_node; /* the same on all nodes */
} ls_slurm_shape;

/* The fewest nodes with the same number of ranks on each. Errors: LS_ERR_INVALID when the ranks
 * cannot be distributed like that (13 ranks on nodes of 8), with numbers that can. */
LS_MUST_CHECK ls_status ls_slurm_shape_of(const ls_slurm_site *site, uint32_t ranks, uint32_t ranks_per_node,
                                          ls_slurm_shape *shape_out);

/* The folder of a job, HOME/jobs/N. */
const char *ls_slurm_job_folder(ls_arena *arena, const ls_slurm_site *site, uint64_t job);

/* The batch script of a job in its epoch (script.sh.in). */
void ls_slurm_script(const ls_slurm_site *site, const ls_job *job, const ls_slurm_shape *shape,
                     ls_text *script);

/* The script of an array: task i runs the script of jobs[i]. */
void ls_slurm_array_script(const ls_slurm_site *site, const ls_job *const *jobs, size_t count,
                           ls_text *script);

/* What one sbatch submits: a job, or an array of `count` jobs that look alike to Slurm
 * (ls_slurm_are_alike). */
typedef struct ls_slurm_batch {
    const ls_job *const *jobs;
    size_t count;
    const ls_slurm_shape *shape;
    double now_s; /* since 1970 */
} ls_slurm_batch;

/*
 * The arguments of sbatch, ending with NULL. sbatch reads the script from stdin: a path in a user's
 * folder could lead root's sbatch to any file. argv_out: LS_SLURM_OPTIONS_MAX places; strings in
 * the arena.
 */
void ls_slurm_sbatch(const ls_slurm_site *site, const ls_slurm_batch *batch, ls_arena *arena,
                     const char **argv_out);

/* A priority as sbatch and scontrol take it: "partition=high" or "nice=1000". In the arena. */
const char *ls_slurm_order(ls_arena *arena, const ls_slurm_site *site, ls_priority priority);

/* Whether two jobs can be tasks of one array: same group, ranks, limits, account, owner. */
bool ls_slurm_are_alike(const ls_job *a, const ls_job *b);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * A job as Slurm gets it: the options of sbatch, and the batch script that the job's folder keeps.
 *
 *   HOME/jobs/7/ticket-1   is there while the epoch may begin; the script's first act is to take it (rename to claim-1, which is there until the job is over)
 *   HOME/jobs/7/slurm-1.sh what to do; a sweep is one array whose tasks each run one of these
 *   HOME/jobs/7/slurm-ref-1  "17_3 0 4": what Slurm calls it, how often Slurm had queued it again when the epoch began, and the first job of its array
 *   HOME/jobs/7/slurm-end-17_3-0  "EXIT_CODE TIME" of that run, so that nothing hangs on how long Slurm remembers
 *
 * A job that trains on one node is one `lockstep train`; on several, `lockstep train` on the first and one `lockstep agent` on each of the others, started by
 * one srun. Any other program is started once per rank, with the variables that torchrun would set. USR1 (Slurm's notice before a preemption or the end of the time) and TERM
 * are passed on as TERM; a job that then ends with 75 has saved, and is queued again.
 *
 * HOME and the job's folder must be seen by all nodes under the same path. Pure; thread-safe.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_SCRIPT_H
#define LS_ORCHESTRATION_ENGINES_SLURM_SCRIPT_H

#include "base/text.h"
#include "orchestration/job/job.h"

enum { LS_SLURM_NOTICE_S = 60, LS_SLURM_OPTIONS_MAX = 40 };

typedef struct ls_slurm_site {
    const char *program;        /* absolute path of lockstep */
    const char *home;           /* $LOCKSTEP_HOME, absolute */
    uint64_t home_id;           /* in every job's comment: whose it is */
    const char *slurm_conf;     /* SLURM_CONF of the daemon; NULL: Slurm's default */
    const char *partitions[3];  /* by ls_priority; NULL: Slurm's default, and --nice tells priorities apart */
    const char *account_option; /* "account": jobs name their account to Slurm; NULL: they don't */
    uint32_t node_devices;      /* of the largest node: GPUs, or cores where there are none */
    bool has_gpus;
    bool is_root; /* jobs are submitted in the name of their owners */
} ls_slurm_site;

/* How a job's ranks lie on nodes. */
typedef struct ls_slurm_shape {
    uint32_t nodes, ranks_per_node; /* all nodes alike */
} ls_slurm_shape;

/*
 * The fewest nodes with the same number of ranks on each. Errors: LS_ERR_INVALID when ranks can't be laid out so (13 ranks on nodes of 8), with what can.
 */
LS_MUST_CHECK ls_status ls_slurm_shape_of(const ls_slurm_site *site, uint32_t ranks, uint32_t ranks_per_node,
                                          ls_slurm_shape *shape_out);

/* The folder of a job, HOME/jobs/N. */
const char *ls_slurm_job_folder(ls_arena *arena, const ls_slurm_site *site, uint64_t job);

/* The batch script of a job in its epoch. */
void ls_slurm_script(const ls_slurm_site *site, const ls_job *job, const ls_slurm_shape *shape,
                     ls_text *script);

/* The script of an array: task i runs the script of jobs[i]. */
void ls_slurm_array_script(const ls_slurm_site *site, const ls_job *const *jobs, size_t count,
                           ls_text *script);

/*
 * The arguments of sbatch for a job, or for an array of `count` jobs that differ in nothing that Slurm sees (ls_slurm_are_alike), ending with NULL. The script is what it reads:
 * a path in a folder of its user's could lead a root's sbatch to any file by then. now_s: since 1970.
 * argv_out: LS_SLURM_OPTIONS_MAX places; strings in the arena.
 */
void ls_slurm_sbatch(const ls_slurm_site *site, const ls_job *const *jobs, size_t count,
                     const ls_slurm_shape *shape, double now_s, ls_arena *arena, const char **argv_out);

/* A priority as Slurm has it, for sbatch and for scontrol: "partition=high", or "nice=1000". In the arena. */
const char *ls_slurm_order(ls_arena *arena, const ls_slurm_site *site, ls_priority priority);

/* Whether two jobs can be tasks of one array: same group, ranks, limits, account, owner. */
bool ls_slurm_are_alike(const ls_job *a, const ls_job *b);

#endif

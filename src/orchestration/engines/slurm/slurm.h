// SPDX-License-Identifier: Apache-2.0
/*
 * The Slurm engine: Slurm decides when and where jobs run, and this keeps the queue's records in
 * step with it.
 *
 *   start   one sbatch; jobs of one sweep that are submitted together become one array
 *   look    one squeue for all jobs every poll_s seconds, one sinfo for all nodes every half
 *           minute, and sacct for jobs that squeue has forgotten
 *   stop    USR1 to the batch script, which passes it on as TERM; scancel when the grace period is
 *           over
 *
 * A job that Slurm preempts saves, exits with 75, and is queued again: by Slurm itself where
 * RequeueExit is set for that ('lockstep slurm-config' does), otherwise by a new sbatch in the next
 * epoch. In both cases the queue sees an end with 75 and a new epoch. When Slurm does not respond
 * it is asked again; nothing is concluded from silence.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_SLURM_H
#define LS_ORCHESTRATION_ENGINES_SLURM_SLURM_H

#include "orchestration/engines/engine.h"

typedef struct ls_slurm_settings {
    const char *home;    /* $LOCKSTEP_HOME, absolute, on a file system that all nodes see */
    const char *program; /* absolute path of lockstep, the same on all nodes */
    double poll_s;       /* 0: 2 */
    bool use_accounts;   /* jobs name their account to Slurm, which has to know it */
} ls_slurm_settings;

/*
 * Asks Slurm for its nodes and partitions, waiting up to 30 s. Partitions named low, normal and
 * high are used for the three priorities if all of them exist; otherwise priority is sbatch --nice
 * in the default partition. settings: copied. hear: see ls_engine_hear. Errors: LS_ERR_NOT_FOUND
 * (no Slurm here), LS_ERR_TIMEOUT, LS_ERR_FAILED (Slurm refuses, in its words), LS_ERR_DATA (an
 * answer that cannot be read).
 */
LS_MUST_CHECK ls_status ls_slurm_engine_create(ls_env *env, const ls_slurm_settings *settings,
                                               ls_engine_hear hear, void *context, ls_engine **engine_out);

/* Whether Slurm answers here, in a form that can be read. Errors: as for ls_slurm_engine_create. */
LS_MUST_CHECK ls_status ls_slurm_engine_check(void);

#endif

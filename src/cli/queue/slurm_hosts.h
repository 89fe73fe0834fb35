// SPDX-License-Identifier: Apache-2.0
/*
 * The hosts of a Slurm cluster to be: asked over ssh whether they fit together.
 *
 * Jobs fail in ways that are hard to explain when clocks differ (munge refuses old messages), when
 * a user has another number elsewhere (files belong to a stranger), when the folder of a job is not
 * the same everywhere, or when versions of Slurm differ. So each host is asked for these, and for
 * its cores, memory and GPUs, before a configuration is written for it.
 */
#ifndef LS_CLI_QUEUE_SLURM_HOSTS_H
#define LS_CLI_QUEUE_SLURM_HOSTS_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "orchestration/engines/slurm/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_slurm_checked {
    ls_slurm_host host;
    const char *version; /* what slurmd -V prints; "": it is missing */
    double clock_s;      /* how far its clock is ahead of this one's */
    json_t *problems;    /* texts; owned */
} ls_slurm_checked;

/*
 * Asks the hosts of `path` (lines "host [slots=N] [address]", 2 to 16), one after the other, by ssh
 * in batch mode or the command in LOCKSTEP_SSH. shared: a folder that all must see. checked_out:
 * in the arena; problems are dropped by ls_slurm_hosts_release. Errors: those of the file. A host
 * that doesn't answer is a problem of that host, and no error.
 */
LS_MUST_CHECK ls_status ls_slurm_hosts_check(ls_arena *arena, const char *path, const char *shared,
                                             ls_slurm_checked **checked_out, uint32_t *count_out);
void ls_slurm_hosts_release(ls_slurm_checked *checked, uint32_t count);

/* How many problems there are. */
size_t ls_slurm_hosts_problems(const ls_slurm_checked *checked, uint32_t count);
/* A table of the hosts, and below it their problems. */
void ls_slurm_hosts_append(const ls_slurm_checked *checked, uint32_t count, ls_arena *arena, ls_text *text);
/* A list of {"host", "cpus", "memory_mib", "gpus", "gpu_kind", "slurm", "clock_s", "problems"}. */
json_t *ls_slurm_hosts_json(const ls_slurm_checked *checked, uint32_t count);

#endif

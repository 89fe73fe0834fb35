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
#include "env/real/program.h"
#include "orchestration/engines/slurm/config.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_slurm_checked {
    ls_slurm_host host;
    const char *version; /* what slurmd -V prints; "": it is missing */
    double clock_s;      /* how far its clock is ahead of this one's */
    bool has_systemd;
    json_t *problems; /* texts; owned */
} ls_slurm_checked;

/* What is asked of all hosts. */
typedef struct ls_slurm_check {
    const char *path;   /* the file of hosts */
    const char *shared; /* a folder that all must see */
    /* the cluster that is about to be installed on them as root, or NULL; munge's key may then be
     * missing or differ, but a host of another cluster is refused */
    const char *cluster;
} ls_slurm_check;

/*
 * Asks the hosts of `path` (lines "host [slots=N] [address]", 2 to 16), one after the other, by ssh
 * in batch mode or the command in LOCKSTEP_SSH. checked_out: in the arena; problems are dropped by
 * ls_slurm_hosts_release. Errors: those of the file. A host that doesn't answer is a problem of
 * that host, and no error.
 */
LS_MUST_CHECK ls_status ls_slurm_hosts_check(ls_arena *arena, const ls_slurm_check *check,
                                             ls_slurm_checked **checked_out, uint32_t *count_out);
void ls_slurm_hosts_release(ls_slurm_checked *checked, uint32_t count);

/* Runs a line of shell on a host, with `input` (NULL: empty) as its standard input. Errors: those
 * of starting ssh, and LS_ERR_TIMEOUT; a line that fails is LS_OK, see ls_program_run. */
LS_MUST_CHECK ls_status ls_slurm_ssh(ls_arena *arena, const char *address, const char *line,
                                     const char *input, double timeout_s, ls_program_result *result_out);

/* How many problems there are. */
size_t ls_slurm_hosts_problems(const ls_slurm_checked *checked, uint32_t count);
/* A table of the hosts, and below it their problems. */
void ls_slurm_hosts_append(const ls_slurm_checked *checked, uint32_t count, ls_arena *arena, ls_text *text);
/* A list of {"host", "cpus", "memory_mib", "gpus", "gpu_kind", "slurm", "clock_s", "problems"}. */
json_t *ls_slurm_hosts_json(const ls_slurm_checked *checked, uint32_t count);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Installs and starts a Slurm cluster on hosts over ssh (slurm-config --apply), as root there.
 *
 *   packages   what a host lacks, by apt-get
 *   files      the configuration and munge's key to every host, slurmdbd.conf to the controller's;
 *              a file that was there with other text is kept as NAME.before
 *   daemons    munge, and on the controller's host MariaDB, slurmdbd and slurmctld; then slurmd;
 *              through systemd where it runs
 *   wait       until the controller reports every node as idle
 *
 * Every part may be run again: it changes what differs and starts the daemons anew. Jobs that run
 * under Slurm survive that.
 */
#ifndef LS_CLI_QUEUE_SLURM_APPLY_H
#define LS_CLI_QUEUE_SLURM_APPLY_H

#include "base/arena.h"
#include "base/status.h"
#include "orchestration/engines/slurm/config.h"

#include <stdint.h>

/* Installs the missing packages on the hosts of the file `path`. control: the name of the
 * controller's host, one of them. Errors: those of the file; LS_ERR_INVALID when `control` is not
 * in it; LS_ERR_FAILED with the host and the reason. */
LS_MUST_CHECK ls_status ls_slurm_apply_packages(ls_arena *arena, const char *path, const char *control);

/* The rest. config: with hosts; files: of that configuration. key_path: munge's key of the cluster,
 * made when it does not exist. Errors: LS_ERR_FAILED with the host and the reason. */
LS_MUST_CHECK ls_status ls_slurm_apply(ls_arena *arena, const ls_slurm_config *config,
                                       const ls_slurm_file *files, size_t count, const char *key_path);

#endif

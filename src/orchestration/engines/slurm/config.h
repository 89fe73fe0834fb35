// SPDX-License-Identifier: Apache-2.0
/*
 * A working Slurm configuration for the Slurm that was found.
 *
 * Slurm refuses to start when one key of slurm.conf is unknown to its version, and many keys moved between versions; a queue that
 * stops jobs with notice and starts them again needs a dozen of them to fit together. This writes them, for one of two kinds of cluster:
 *
 *   hosts   one slurmd per host, to be copied to /etc/slurm of all of them, run by the account "slurm"
 *   local   a private cluster on this machine, run by one ordinary user: several slurmd beside each other, GPUs that are names for
 *           /dev/null, keys, ports and scripts to start and stop it. For trying things and for tests
 *
 * What is needed for which version is from Slurm's change logs: PreemptParameters since 23.02 (before: SlurmctldParameters), CgroupAutomount
 * until 23.02, SchedulerParameters=requeue_delay since 25.11.
 *
 * Pure: text out, nothing written. Thread-safe.
 */
#ifndef LS_ORCHESTRATION_ENGINES_SLURM_CONFIG_H
#define LS_ORCHESTRATION_ENGINES_SLURM_CONFIG_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_SLURM_NODES_MAX = 16384,
    LS_SLURM_LOCAL_NODES_MAX = 64,
    LS_SLURM_GPUS_MAX = 64,
    LS_SLURM_FILES = 6,
    LS_SLURM_REQUEUE_EXIT =
        75, /* the exit code of a job that has saved and wants to go on (DESIGN section 6) */
};

typedef struct ls_slurm_version {
    uint32_t major, minor; /* 22, 5 */
} ls_slurm_version;

typedef struct ls_slurm_config {
    ls_slurm_version version;
    const char *cluster;      /* name of the cluster: letters, digits, - and _ */
    const char *control_host; /* short name of the host of slurmctld */
    uint32_t nodes;           /* named PREFIX0 .. */
    const char *node_prefix;
    uint32_t gpus; /* per node; 0: none */
    const char *gpu_kind;
    uint32_t cpus, memory_mib; /* per node */
    uint32_t leaf_nodes;       /* nodes under one leaf switch; 0: no topology */
    bool local;
    const char *directory;   /* local: absolute; all files, keys and logs live in it */
    const char *user;        /* local: who runs it */
    uint32_t first_port;     /* local: slurmctld's; the nodes have the following ones */
    uint32_t node_timeout_s; /* a node that does not answer for so long is down */
} ls_slurm_config;

typedef struct ls_slurm_file {
    const char *name; /* slurm.conf, gres.conf, topology.conf, cgroup.conf; local: start, stop */
    const char *text; /* in the arena */
    uint32_t mode;
} ls_slurm_file;

/* "slurm-wlm 22.05.8", "slurm 24.11.3": what `slurmctld -V` prints. Errors: LS_ERR_DATA; version_out is then untouched. */
LS_MUST_CHECK ls_status ls_slurm_version_parse(const char *text, ls_slurm_version *version_out);

/*
 * The files of a configuration; count_out: how many of `files_out` there are.
 * Errors: LS_ERR_INVALID for a field outside its range, LS_ERR_UNSUPPORTED for a Slurm older than 20.11.
 */
LS_MUST_CHECK ls_status ls_slurm_config_write(const ls_slurm_config *config, ls_arena *arena,
                                              ls_slurm_file files_out[LS_SLURM_FILES], size_t *count_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * A working Slurm configuration for the installed version of Slurm.
 *
 * Slurm does not start when slurm.conf has a key that its version does not know, and many keys
 * changed between versions; a queue that stops jobs with notice and starts them again needs a dozen
 * keys that fit together. This writes them, for one of two kinds of cluster:
 *
 *   hosts   one slurmd per host; the files are copied to /etc/slurm on all hosts and run by the
 *           account "slurm"
 *   local   a private cluster on this machine, run by one ordinary user: several slurmd side by
 *           side, GPUs that are links to /dev/null, keys, ports, and scripts to start and stop it.
 *           For trials and tests
 *
 * Differences between versions are from Slurm's change logs: PreemptParameters since 23.02 (before:
 * SlurmctldParameters), CgroupAutomount until 23.02, SchedulerParameters=requeue_delay since 25.11.
 *
 * Pure: returns text and writes nothing. Thread-safe.
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
    LS_SLURM_FILES = 7,
    /* exit code of a job that has saved and wants to continue */
    LS_SLURM_REQUEUE_EXIT = 75,
};

typedef struct ls_slurm_version {
    uint32_t major, minor; /* as in 22.05: 22, 5 */
} ls_slurm_version;

/* A node with a name of its own. */
typedef struct ls_slurm_host {
    const char *name;    /* as `hostname -s` prints it there */
    const char *address; /* under which the others reach it */
    uint32_t cpus, memory_mib, gpus;
    const char *gpu_kind;
} ls_slurm_host;

typedef struct ls_slurm_config {
    ls_slurm_version version;
    const char *cluster;      /* name of the cluster: letters, digits, - and _ */
    const char *control_host; /* short name of the host of slurmctld */
    uint32_t nodes;           /* number of nodes, named PREFIX0 .. */
    const char *node_prefix;
    uint32_t gpus; /* per node; 0: none */
    const char *gpu_kind;
    uint32_t cpus, memory_mib; /* per node */
    /* NULL: nodes are alike, as above. Otherwise `nodes` of them; without local and topology */
    const ls_slurm_host *hosts;
    /* with hosts: slurmdbd on the control host, with a MariaDB that lets the user slurm in */
    bool accounting;
    /* with hosts: some have no systemd, and Slurm does without control groups */
    bool plain_processes;
    uint32_t leaf_nodes; /* nodes under one leaf switch; 0: no topology is written */
    bool local;
    const char *directory;   /* local: absolute; holds all files, keys and logs */
    const char *user;        /* local: the user who runs it */
    uint32_t first_port;     /* local: port of slurmctld; the nodes use the following ones */
    uint32_t node_timeout_s; /* a node that does not respond for this long is down */
} ls_slurm_config;

typedef struct ls_slurm_file {
    /* slurm.conf, gres.conf, topology.conf, cgroup.conf; slurmdbd.conf; local: start, stop */
    const char *name;
    const char *text; /* in the arena */
    uint32_t mode;
} ls_slurm_file;

/* "slurm-wlm 22.05.8", "slurm 24.11.3": what `slurmctld -V` prints. Errors: LS_ERR_DATA;
 * version_out is then untouched. */
LS_MUST_CHECK ls_status ls_slurm_version_parse(const char *text, ls_slurm_version *version_out);

/* The files of a configuration. count_out: how many there are. Errors: LS_ERR_INVALID for a field
 * out of range, LS_ERR_UNSUPPORTED for a Slurm older than 20.11. */
LS_MUST_CHECK ls_status ls_slurm_config_write(const ls_slurm_config *config, ls_arena *arena,
                                              ls_slurm_file files_out[LS_SLURM_FILES], size_t *count_out);

#endif

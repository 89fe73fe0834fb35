// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/slurm/config.h"

#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- version ---- */

ls_status ls_slurm_version_parse(const char *text, ls_slurm_version *version_out)
{
    const char *at = strpbrk(text, "0123456789");
    unsigned major = 0, minor = 0;
    if (!at || sscanf(at, "%2u.%2u", &major, &minor) != 2 || major < 2 || minor < 1 || minor > 12) {
        return ls_fail(LS_ERR_DATA,
                       "Slurm reports its version as '%.80s', which is not understood; a number such as "
                       "22.05.8 is expected",
                       text);
    }
    *version_out = (ls_slurm_version){.major = major, .minor = minor};
    return LS_OK;
}

static bool is_since(const ls_slurm_config *config, uint32_t major, uint32_t minor)
{
    const ls_slurm_version v = config->version;
    return v.major > major || (v.major == major && v.minor >= minor);
}

/* ---- what is allowed ---- */

static bool is_name(const char *text)
{
    if (!text || !isalpha((unsigned char)text[0]) || strlen(text) > 40) {
        return false;
    }
    for (const char *at = text; *at; at++) {
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_') {
            return false;
        }
    }
    return true;
}

/* Slurm reads # as a comment, and blanks and commas as the end of a value. */
static bool is_plain_path(const char *text)
{
    if (!text || text[0] != '/' || strlen(text) > 80) {
        return false;
    }
    for (const char *at = text; *at; at++) {
        if (!isalnum((unsigned char)*at) && !strchr("/._+-", *at)) {
            return false;
        }
    }
    return true;
}

static ls_status check_number(const char *what, uint64_t value, uint64_t min, uint64_t max)
{
    return value >= min && value <= max
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "%s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64, what, value,
                         min, max);
}

static ls_status check_word(const char *what, const char *value)
{
    return is_name(value) ? LS_OK
                          : ls_fail(LS_ERR_INVALID,
                                    "%s is \"%.60s\": it must have 1 to 40 letters, digits, - and _, and "
                                    "begin with a letter",
                                    what, value ? value : "");
}

static ls_status check_local(const ls_slurm_config *config)
{
    if (!is_plain_path(config->directory)) {
        return ls_fail(LS_ERR_INVALID,
                       "the folder for the cluster's files is \"%.100s\": it must be an absolute path of at "
                       "most 80 characters, which can be letters, digits and . _ + - /",
                       config->directory ? config->directory : "");
    }
    LS_TRY(check_word("the user", config->user));
    return check_number("the first port", config->first_port, 1024, 65535 - LS_SLURM_LOCAL_NODES_MAX);
}

static ls_status check_config(const ls_slurm_config *config)
{
    if (!is_since(config, 20, 11)) {
        return ls_fail(LS_ERR_UNSUPPORTED, "Slurm is version %u.%02u; 20.11 or newer is required",
                       config->version.major, config->version.minor);
    }
    LS_TRY(check_word("the name of the cluster", config->cluster));
    LS_TRY(check_word("the control host", config->control_host));
    LS_TRY(check_word("the prefix of the nodes' names", config->node_prefix));
    LS_TRY(check_word("the kind of GPU", config->gpu_kind));
    LS_TRY(check_number("the number of nodes", config->nodes, 1,
                        config->local ? LS_SLURM_LOCAL_NODES_MAX : LS_SLURM_NODES_MAX));
    LS_TRY(check_number("the number of GPUs per node", config->gpus, 0, LS_SLURM_GPUS_MAX));
    LS_TRY(check_number("the number of cores per node", config->cpus, 1, 1024));
    LS_TRY(check_number("the memory per node in MiB", config->memory_mib, 1, 64u << 20));
    LS_TRY(check_number("the number of nodes per leaf switch", config->leaf_nodes, 0, LS_SLURM_NODES_MAX));
    LS_TRY(check_number("the time in seconds after which a silent node counts as down",
                        config->node_timeout_s, 5, 3600));
    for (uint32_t i = 0; config->hosts && i < config->nodes; i++) {
        const ls_slurm_host *host = &config->hosts[i];
        LS_TRY(check_word("the name of a host", host->name));
        LS_TRY(check_number("the number of cores of a host", host->cpus, 1, 1024));
        LS_TRY(check_number("the memory of a host in MiB", host->memory_mib, 1, 64u << 20));
        LS_TRY(check_number("the number of GPUs of a host", host->gpus, 0, LS_SLURM_GPUS_MAX));
        LS_TRY(host->gpus > 0 ? check_word("the kind of GPU", host->gpu_kind) : LS_OK);
        if (strspn(host->address, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:-_") !=
            strlen(host->address)) {
            return ls_fail(LS_ERR_INVALID,
                           "the address of host %s is \"%.60s\", which is no host name or IP "
                           "address",
                           host->name, host->address);
        }
    }
    return config->local ? check_local(config) : LS_OK;
}

/* ---- the files ---- */

/* PREFIX[0-7], or PREFIX0 alone. */
static void append_range(ls_text *text, const char *prefix, uint32_t first, uint32_t last)
{
    if (first == last) {
        ls_text_printf(text, "%s%u", prefix, first);
    } else {
        ls_text_printf(text, "%s[%u-%u]", prefix, first, last);
    }
}

static void append_nodes(const ls_slurm_config *config, ls_text *text)
{
    append_range(text, config->node_prefix, 0, config->nodes - 1);
}

/* Under which the nodes reach the controller. */
static const char *control_address(const ls_slurm_config *config)
{
    for (uint32_t i = 0; config->hosts && i < config->nodes; i++) {
        if (strcmp(config->hosts[i].name, config->control_host) == 0) {
            return config->hosts[i].address;
        }
    }
    return config->control_host;
}

static void append_control(const ls_slurm_config *config, ls_text *text)
{
    ls_text_printf(text, "ClusterName=%s\n", config->cluster);
    if (!config->local) {
        ls_text_printf(
            text,
            "SlurmctldHost=%s(%s)\nSlurmUser=slurm\nAuthType=auth/munge\nCredType=cred/munge\n"
            "StateSaveLocation=/var/spool/slurmctld\nSlurmdSpoolDir=/var/spool/slurmd\n"
            "SlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\n"
            "SlurmctldLogFile=/var/log/slurm/slurmctld.log\nSlurmdLogFile=/var/log/slurm/slurmd.log\n",
            config->control_host, control_address(config));
        return;
    }
    const char *dir = config->directory;
    ls_text_printf(text, "SlurmctldHost=%s(127.0.0.1)\nSlurmctldPort=%u\nSlurmUser=%s\nSlurmdUser=%s\n",
                   config->control_host, config->first_port, config->user, config->user);
    /* Keep away from sockets of other clusters on this machine. With a credential that expires
     * soon, a requeued job starts again after 6 seconds instead of two minutes. */
    ls_text_printf(
        text, "AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket=%s/munge/socket,cred_expire=5\n",
        dir);
    ls_text_printf(
        text,
        "StateSaveLocation=%s/state\nSlurmdSpoolDir=%s/spool/%%n\nSlurmctldPidFile=%s/run/slurmctld.pid\n"
        "SlurmdPidFile=%s/run/%%n.pid\nSlurmctldLogFile=%s/log/slurmctld.log\nSlurmdLogFile=%s/log/%%n.log\n",
        dir, dir, dir, dir, dir, dir);
}

/* A job that has to stop gets USR1 in its batch script, saves, and exits with 75; then Slurm queues
 * it again. */
static void append_stopping(const ls_slurm_config *config, ls_text *text)
{
    ls_text_printf(text,
                   "\n# Jobs that are told to stop save, exit with %d, and are queued "
                   "again.\nJobRequeue=1\nRequeueExit=%d\n"
                   "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n",
                   LS_SLURM_REQUEUE_EXIT, LS_SLURM_REQUEUE_EXIT);
    ls_text_append(text, is_since(config, 23, 2) ? "PreemptParameters=send_user_signal,youngest_first\n"
                                                 : "SlurmctldParameters=preempt_send_user_signal\n");
    ls_text_printf(text, "KillWait=%d\n", config->local ? 5 : 30);
}

static void append_scheduling(const ls_slurm_config *config, ls_text *text)
{
    ls_text_append(text, "\n# Gangs, near each other, with "
                         "backfill.\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n");
    if (config->leaf_nodes > 0) {
        ls_text_append(text, "TopologyPlugin=topology/tree\n");
    }
    ls_text_append(text, "SchedulerType=sched/"
                         "backfill\nSchedulerParameters=bf_continue,bf_window=1440,bf_max_job_test=1000,max_"
                         "switch_wait=86400");
    ls_text_append(text, config->local
                             ? ",bf_interval=2,sched_interval=2,sched_min_interval=0,batch_sched_delay=0"
                             : "");
    ls_text_append(text, is_since(config, 23, 2) ? "" : ",preempt_youngest_first");
    ls_text_append(text, is_since(config, 25, 11) && config->local ? ",requeue_delay=1" : "");
    ls_text_append(text, "\nMaxArraySize=100001\nMaxJobCount=200000\n");
    ls_text_append(
        text,
        "PriorityType=priority/multifactor\nPriorityWeightJobSize=1000\nPriorityWeightPartition=10000\n");
    /* Fair share and age need slurmdbd; without it Slurm ignores their weights and logs an error */
    if (config->accounting) {
        ls_text_printf(text,
                       "PriorityWeightFairshare=5000\nPriorityWeightAge=1000\n\n# Accounting: who used "
                       "what.\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=%s\n",
                       control_address(config));
    }
}

static void append_host(const ls_slurm_host *host, ls_text *text)
{
    ls_text_printf(text,
                   "NodeName=%s NodeAddr=%s CPUs=%u Boards=1 SocketsPerBoard=1 CoresPerSocket=%u "
                   "ThreadsPerCore=1 RealMemory=%u",
                   host->name, host->address, host->cpus, host->cpus, host->memory_mib);
    if (host->gpus > 0) {
        ls_text_printf(text, " Gres=gpu:%s:%u", host->gpu_kind, host->gpus);
    }
    ls_text_append(text, " State=UNKNOWN\n");
}

static void append_alike(const ls_slurm_config *config, ls_text *text)
{
    ls_text_append(text, "NodeName=");
    append_nodes(config, text);
    if (config->local) {
        ls_text_printf(text, " NodeHostname=%s NodeAddr=127.0.0.1 Port=", config->control_host);
        append_range(text, "", config->first_port + 1, config->first_port + config->nodes);
    }
    ls_text_printf(text,
                   " CPUs=%u Boards=1 SocketsPerBoard=1 CoresPerSocket=%u ThreadsPerCore=1 RealMemory=%u",
                   config->cpus, config->cpus, config->memory_mib);
    if (config->gpus > 0) {
        ls_text_printf(text, " Gres=gpu:%s:%u", config->gpu_kind, config->gpus);
    }
    ls_text_append(text, " State=UNKNOWN\n");
}

static bool has_gpus(const ls_slurm_config *config)
{
    bool any = !config->hosts && config->gpus > 0;
    for (uint32_t i = 0; config->hosts && i < config->nodes; i++) {
        any = any || config->hosts[i].gpus > 0;
    }
    return any;
}

static void append_machines(const ls_slurm_config *config, ls_text *text)
{
    ls_text_append(text, "\n");
    if (has_gpus(config)) {
        ls_text_append(text, "GresTypes=gpu\n");
    }
    for (uint32_t host = 0; config->hosts && host < config->nodes; host++) {
        append_host(&config->hosts[host], text);
    }
    if (!config->hosts) {
        append_alike(config, text);
    }
    /* GraceTime: time from the notice to the kill */
    ls_text_printf(
        text,
        "PartitionName=high Nodes=ALL MaxTime=INFINITE DefaultTime=1-0 PriorityTier=20 PreemptMode=OFF\n"
        "PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=1-0 PriorityTier=10 "
        "PreemptMode=REQUEUE GraceTime=%d\n"
        "PartitionName=low Nodes=ALL MaxTime=INFINITE DefaultTime=1-0 PriorityTier=1 PreemptMode=REQUEUE "
        "GraceTime=%d\n",
        config->local ? 30 : 120, config->local ? 30 : 120);
}

static const char *slurm_conf(const ls_slurm_config *config, ls_arena *arena)
{
    ls_text text = {0};
    ls_text_printf(&text, "# Written by 'lockstep slurm-config' for Slurm %u.%02u.\n", config->version.major,
                   config->version.minor);
    append_control(config, &text);
    const bool no_groups = config->local || config->plain_processes;
    /* linuxproc: slurmstepd finds a job's processes by their parents, which works without cgroups
     * and in containers */
    ls_text_printf(
        &text,
        "MailProg=/bin/"
        "true\nMpiDefault=none\nProctrackType=%s\nTaskPlugin=%s\nJobAcctGatherType=jobacct_gather/none\n"
        "JobCompType=jobcomp/"
        "none\nReturnToService=2\nSlurmdTimeout=%u\nSlurmctldTimeout=30\nInactiveLimit=0\nMinJobAge=%d\n",
        no_groups ? "proctrack/linuxproc" : "proctrack/cgroup",
        no_groups ? "task/none" : "task/affinity,task/cgroup", config->node_timeout_s,
        config->local ? 120 : 300);
    if (config->local) {
        /* nodes claim more cores than the machine has */
        ls_text_append(&text, "SlurmdParameters=config_overrides\n");
    }
    append_stopping(config, &text);
    append_scheduling(config, &text);
    append_machines(config, &text);
    const char *copy = ls_arena_strdup(arena, ls_text_string(&text));
    ls_text_release(&text);
    return copy;
}

static const char *gres_conf(const ls_slurm_config *config, ls_arena *arena)
{
    ls_text text = {0};
    for (uint32_t i = 0; config->hosts && i < config->nodes; i++) {
        const ls_slurm_host *host = &config->hosts[i];
        if (host->gpus > 0) {
            ls_text_printf(&text, "NodeName=%s Name=gpu Type=%s File=/dev/", host->name, host->gpu_kind);
            append_range(&text, "nvidia", 0, host->gpus - 1);
            ls_text_append(&text, "\n");
        }
    }
    if (config->hosts) {
        const char *copy = ls_arena_strdup(arena, ls_text_string(&text));
        ls_text_release(&text);
        return copy;
    }
    ls_text_append(&text, "NodeName=");
    append_nodes(config, &text);
    if (config->local) {
        ls_text_printf(&text, " Name=gpu Type=%s File=%s/dev/", config->gpu_kind, config->directory);
        append_range(&text, "gpu", 0, config->gpus - 1);
    } else {
        ls_text_printf(&text, " Name=gpu Type=%s File=/dev/", config->gpu_kind);
        append_range(&text, "nvidia", 0, config->gpus - 1);
    }
    ls_text_append(&text, "\n");
    const char *copy = ls_arena_strdup(arena, ls_text_string(&text));
    ls_text_release(&text);
    return copy;
}

static const char *topology_conf(const ls_slurm_config *config, ls_arena *arena)
{
    ls_text text = {0};
    const uint32_t leaves = (config->nodes + config->leaf_nodes - 1) / config->leaf_nodes;
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        const uint32_t first = leaf * config->leaf_nodes;
        const uint32_t end = first + config->leaf_nodes;
        ls_text_printf(&text, "SwitchName=leaf%u Nodes=", leaf);
        append_range(&text, config->node_prefix, first, (end < config->nodes ? end : config->nodes) - 1);
        ls_text_append(&text, "\n");
    }
    if (leaves > 1) {
        ls_text_append(&text, "SwitchName=spine Switches=");
        append_range(&text, "leaf", 0, leaves - 1);
        ls_text_append(&text, "\n");
    }
    const char *copy = ls_arena_strdup(arena, ls_text_string(&text));
    ls_text_release(&text);
    return copy;
}

/* ---- a private cluster: start and stop ---- */

static const char *start_script(const ls_slurm_config *config, ls_arena *arena)
{
    return ls_arena_printf(
        arena,
        "#!/bin/sh\n"
        "# Starts the cluster of this folder and waits until its nodes are idle. For commands: export "
        "SLURM_CONF=%s/slurm.conf\n"
        "set -eu\n"
        "cd '%s'\n"
        "umask 022\n"
        "mkdir -p state log run dev munge spool\n"
        "chmod 755 . munge\n"
        "node=0; while [ $node -lt %u ]; do mkdir -p spool/%s$node; node=$((node + 1)); done\n"
        "gpu=0; while [ $gpu -lt %u ]; do ln -sf /dev/null dev/gpu$gpu; gpu=$((gpu + 1)); done\n"
        "[ -s munge/key ] || { rm -f munge/key; (umask 077; head -c 1024 /dev/urandom > munge/key); chmod "
        "400 munge/key; }\n"
        "PATH=$PATH:/usr/sbin:/sbin\n"
        "export SLURM_CONF='%s/slurm.conf'\n"
        "munged --key-file=\"$PWD/munge/key\" --socket=\"$PWD/munge/socket\" "
        "--pid-file=\"$PWD/run/munged.pid\" \\\n"
        "       --log-file=\"$PWD/log/munged.log\" --seed-file=\"$PWD/munge/seed\" --force 2>> "
        "log/start.log\n"
        "slurmctld -f \"$SLURM_CONF\"\n"
        "node=0; while [ $node -lt %u ]; do slurmd -f \"$SLURM_CONF\" -N %s$node; node=$((node + 1)); done\n"
        "tries=0\n"
        "while [ \"$(sinfo -h -p normal -t idle -o %%D 2>> log/start.log)\" != %u ]; do\n"
        "    tries=$((tries + 1))\n"
        "    [ $tries -le 600 ] || { echo 'the nodes are not idle after 60 seconds; see the logs in %s/log:' "
        ">&2; sinfo >&2; exit 1; }\n"
        "    sleep 0.1\n"
        "done\n",
        config->directory, config->directory, config->nodes, config->node_prefix, config->gpus,
        config->directory, config->nodes, config->node_prefix, config->nodes, config->directory);
}

/* Processes of slurmstepd outlive their slurmd. Their titles do not tell to which cluster they
 * belong, but their environment does. */
static const char *stop_script(const ls_slurm_config *config, ls_arena *arena)
{
    return ls_arena_printf(
        arena,
        "#!/bin/sh\n"
        "# Stops the cluster of this folder and what is left of its jobs.\n"
        "cd '%s'\n"
        "pids=$(cat run/*.pid 2> /dev/null)\n"
        "[ -z \"$pids\" ] || kill $pids 2> /dev/null\n"
        "for pid in $pids; do\n"
        "    tries=0\n"
        "    while kill -0 $pid 2> /dev/null && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.1; "
        "done\n"
        "    kill -9 $pid 2> /dev/null\n"
        "done\n"
        "for process in /proc/[0-9]*; do\n"
        "    grep -qzxF 'SLURM_CONF=%s/slurm.conf' $process/environ 2> /dev/null || continue\n"
        "    pid=${process#/proc/}\n"
        "    case $(cat $process/comm 2> /dev/null) in slurmstepd) kill -9 $pid 2> /dev/null ;; esac\n"
        "    grep -qz '^SLURM_JOB_ID=' $process/environ 2> /dev/null && kill -9 $pid 2> /dev/null\n"
        "done\n"
        "rm -f run/*.pid\n"
        "exit 0\n",
        config->directory, config->directory);
}

static const char *slurmdbd_conf(const ls_slurm_config *config, ls_arena *arena)
{
    return ls_arena_printf(
        arena,
        "# Written by 'lockstep slurm-config'. No password: the database lets the system's user slurm in.\n"
        "AuthType=auth/munge\nDbdHost=%s\nDbdAddr=%s\nSlurmUser=slurm\n"
        "StorageType=accounting_storage/mysql\nStorageUser=slurm\nStorageLoc=slurm_acct_db\n"
        "LogFile=/var/log/slurm/slurmdbd.log\nPidFile=/run/slurmdbd.pid\n",
        config->control_host, control_address(config));
}

/* A cluster without control groups, as a local one, and slurmd must not look for them: where
 * /sys/fs/cgroup is not mounted, the default `autodetect` ends slurmd. Until 23.02 the plug-in is
 * named, which is then never used; later versions can switch it off. */
static const char *cgroup_conf(const ls_slurm_config *config)
{
    const bool no_groups = config->local || config->plain_processes;
    if (is_since(config, 23, 11)) {
        return no_groups ? "CgroupPlugin=disabled\n" : "# the defaults of Slurm\n";
    }
    return no_groups && is_since(config, 22, 5) ? "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
                                                : "CgroupAutomount=no\n";
}

ls_status ls_slurm_config_write(const ls_slurm_config *config, ls_arena *arena,
                                ls_slurm_file files_out[LS_SLURM_FILES], size_t *count_out)
{
    LS_TRY(check_config(config));
    size_t count = 0;
    files_out[count++] = (ls_slurm_file){"slurm.conf", slurm_conf(config, arena), 0644};
    if (has_gpus(config)) {
        files_out[count++] = (ls_slurm_file){"gres.conf", gres_conf(config, arena), 0644};
    }
    if (config->leaf_nodes > 0) {
        files_out[count++] = (ls_slurm_file){"topology.conf", topology_conf(config, arena), 0644};
    }
    files_out[count++] = (ls_slurm_file){"cgroup.conf", cgroup_conf(config), 0644};
    if (config->accounting) {
        files_out[count++] = (ls_slurm_file){"slurmdbd.conf", slurmdbd_conf(config, arena), 0600};
    }
    if (config->local) {
        files_out[count++] = (ls_slurm_file){"start", start_script(config, arena), 0755};
        files_out[count++] = (ls_slurm_file){"stop", stop_script(config, arena), 0755};
    }
    *count_out = count;
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* slurm-config: writes a working configuration for the installed Slurm, or for a private cluster on
 * this machine. */
#include "orchestration/engines/slurm/config.h"

#include "base/file.h"
#include "cli/command.h"
#include "cli/queue/slurm_apply.h"
#include "cli/queue/slurm_hosts.h"
#include "env/real/program.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct slurm_config_settings {
    const char *output, *cluster, *control_host, *prefix, *gpu_kind, *slurm_version, *hosts, *shared;
    uint64_t nodes, gpus, cpus, leaf_nodes, port;
    uint64_t memory_bytes;
    double node_timeout_s;
    bool local, apply, json;
} slurm_config_settings;

static const ls_option slurm_config_options[] = {
    LS_ROW_TEXT(slurm_config_settings, output, "DIR",
                "folder to write the configuration to, created if needed; a private cluster keeps all its "
                "files there",
                .letter = 'o'),
    LS_ROW_BOOL(slurm_config_settings, local,
                "write to DIR the files of a private Slurm cluster on this machine alone: DIR/start starts "
                "it, DIR/stop stops it; its GPUs are simulated"),
    LS_ROW_TEXT(
        slurm_config_settings, hosts, "FILE",
        "ask 2 to 16 hosts over ssh (or the command in LOCKSTEP_SSH) for their cores, memory and GPUs and "
        "whether they fit together, and write the configuration for them unless there is a problem; each "
        "line of FILE is 'host [address]'"),
    LS_ROW_BOOL(
        slurm_config_settings, apply,
        "with --hosts: also install Slurm on them as root and start it, with accounting (slurmdbd and "
        "MariaDB on the control host), where they belong to no other cluster; it is safe to run this again"),
    LS_ROW_TEXT_OR(slurm_config_settings, shared, "\".\"", "DIR",
                   "with --hosts: folder of this host that all hosts must see under the same path"),
    LS_ROW_U64(slurm_config_settings, nodes, "4", 1, LS_SLURM_NODES_MAX,
               "number of nodes; a private cluster has at most 64", .letter = 'n'),
    LS_ROW_U64(slurm_config_settings, gpus, "8", 0, LS_SLURM_GPUS_MAX, "number of GPUs per node",
               .letter = 'g'),
    LS_ROW_TEXT_OR(slurm_config_settings, gpu_kind, "gpu", "NAME",
                   "name of the kind of GPU in the nodes, by which jobs request it"),
    LS_ROW_U64(slurm_config_settings, cpus, "16", 1, 1024,
               "number of cores per node, as 'slurmd -C' prints it on a node"),
    LS_ROW_BYTES(slurm_config_settings, memory, memory_bytes, "16GiB", 1 << 20, 64.0 * (1ull << 40),
                 "memory of each node"),
    LS_ROW_U64(slurm_config_settings, leaf_nodes, "0", 0, LS_SLURM_NODES_MAX,
               "number of nodes attached to one leaf (lowest-level) switch, used to place ranks near each "
               "other; 0: not known"),
    LS_ROW_TEXT_OR(slurm_config_settings, prefix, "n", "NAME", "prefix of the node names: NAME0, NAME1, ..."),
    LS_ROW_TEXT_OR(slurm_config_settings, cluster, "lockstep", "NAME", "name of the Slurm cluster"),
    LS_ROW_TEXT(slurm_config_settings, control_host, "HOST",
                "host on which slurmctld, the Slurm controller, runs; default: this host"),
    LS_ROW_DURATION(
        slurm_config_settings, node_timeout, node_timeout_s, "60s", 5, 3600,
        "time after which a node that does not answer is regarded as down, and its jobs are queued again"),
    LS_ROW_U64(slurm_config_settings, port, "16817", 1024, 65000,
               "first TCP port that a private cluster uses; each node uses one more port", .letter = 'p'),
    LS_ROW_TEXT(
        slurm_config_settings, slurm_version, "VERSION",
        "version of Slurm that the configuration is written for; default: what 'slurmctld -V' prints here"),
    LS_ROW_JSON(slurm_config_settings),
};

/* The version that the first of these programs reports. */
static ls_status find_version(ls_arena *arena, const char *given, ls_slurm_version *version_out)
{
    if (given[0]) {
        return ls_slurm_version_parse(given, version_out);
    }
    static const char *const askable[] = {"slurmctld", "/usr/sbin/slurmctld", "/sbin/slurmctld", "sinfo"};
    for (size_t i = 0; i < sizeof askable / sizeof askable[0]; i++) {
        const char *const argv[] = {askable[i], "-V", NULL};
        ls_program_result answer;
        if (ls_program_run(&(ls_program){.argv = argv, .timeout_s = 10}, arena, &answer) == LS_OK &&
            answer.exit_code == 0) {
            return ls_slurm_version_parse(answer.output, version_out);
        }
    }
    return ls_fail(LS_ERR_NOT_FOUND, "Slurm was not found: neither slurmctld nor sinfo answers. Install it "
                                     "(Debian: slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins), "
                                     "or name the version to write for: --slurm-version 24.05");
}

static ls_status write_file(ls_arena *arena, const char *dir, const ls_slurm_file *file)
{
    const char *path = ls_path_join(arena, dir, file->name);
    LS_TRY(ls_file_write_atomic(path, file->text, strlen(file->text)));
    return chmod(path, file->mode) == 0 ? LS_OK
                                        : ls_fail_errno(errno, "can't set the permissions of %s", path);
}

static ls_status write_files(ls_arena *arena, const slurm_config_settings *settings, ls_slurm_config *config,
                             ls_slurm_file files[LS_SLURM_FILES], size_t *count_out)
{
    char absolute[PATH_MAX];
    LS_TRY(ls_dir_create(settings->output));
    if (!realpath(settings->output, absolute)) {
        return ls_fail_errno(errno, "can't find %s", settings->output);
    }
    config->directory = absolute;
    LS_TRY(ls_slurm_config_write(config, arena, files, count_out));
    config->directory = ls_arena_strdup(arena, absolute);
    for (size_t i = 0; i < *count_out; i++) {
        LS_TRY(write_file(arena, config->directory, &files[i]));
    }
    return LS_OK;
}

static void print_result(const ls_slurm_config *config, const ls_slurm_file *files, size_t count,
                         const slurm_config_settings *settings)
{
    if (settings->json) {
        json_t *names = json_array();
        for (size_t i = 0; i < count; i++) {
            json_array_append_new(names, json_string(files[i].name));
        }
        json_t *root =
            json_pack("{s:s, s:[I,I], s:o}", "directory", config->directory, "version",
                      (json_int_t)config->version.major, (json_int_t)config->version.minor, "files", names);
        ls_print_json(root);
        json_decref(root);
        return;
    }
    printf("a configuration for Slurm %u.%02u is in %s:", config->version.major, config->version.minor,
           config->directory);
    for (size_t i = 0; i < count; i++) {
        printf(" %s", files[i].name);
    }
    if (config->local) {
        printf("\nstart:    %s/start\nuse:      export SLURM_CONF=%s/slurm.conf\nstop:     %s/stop\n",
               config->directory, config->directory, config->directory);
    } else if (settings->apply) {
        printf("\nSlurm runs on %u hosts, the controller on %s. Try it there: sinfo; srun -N %u hostname; "
               "lockstep up --engine slurm\n",
               config->nodes, config->control_host, config->nodes);
    } else {
        printf("\nreview it, copy it to /etc/slurm on %s and on all nodes, then start slurmctld on %s and "
               "slurmd on the nodes, or let --apply do all of that\n",
               config->control_host, config->control_host);
    }
}

/* Says what is known of the hosts, and fails if they do not fit together. */
static ls_status say_hosts(const slurm_config_settings *settings, const ls_slurm_checked *checked,
                           uint32_t count, ls_arena *arena)
{
    const size_t problems = ls_slurm_hosts_problems(checked, count);
    ls_text text = {0};
    ls_slurm_hosts_append(checked, count, arena, &text);
    if (settings->json && problems > 0) {
        json_t *root = json_pack("{s:o}", "hosts", ls_slurm_hosts_json(checked, count));
        ls_print_json(root);
        json_decref(root);
    } else {
        fputs(ls_text_string(&text), settings->json ? stderr : stdout);
    }
    ls_text_release(&text);
    return problems == 0 ? LS_OK
                         : ls_fail(LS_ERR_FAILED, "%zu problem%s with the hosts of %s: nothing was written",
                                   problems, problems == 1 ? "" : "s", settings->hosts);
}

/* Asks the hosts, and takes them as the nodes. */
static ls_status take_hosts(const slurm_config_settings *settings, ls_arena *arena, ls_slurm_config *config)
{
    ls_slurm_checked *checked = NULL;
    uint32_t count = 0;
    if (settings->local || settings->leaf_nodes > 0) {
        return ls_fail(LS_ERR_INVALID, "--hosts can't be combined with --local or --leaf-nodes");
    }
    if (settings->apply) {
        LS_TRY(ls_slurm_apply_packages(arena, settings->hosts, config->control_host));
    }
    const ls_slurm_check check = {.path = settings->hosts,
                                  .shared = settings->shared,
                                  .cluster = settings->apply ? settings->cluster : NULL};
    LS_TRY(ls_slurm_hosts_check(arena, &check, &checked, &count));
    ls_slurm_host *hosts = ls_arena_new(arena, ls_slurm_host, count);
    for (uint32_t i = 0; i < count; i++) {
        hosts[i] = checked[i].host;
        config->plain_processes = config->plain_processes || !checked[i].has_systemd;
    }
    ls_status status = say_hosts(settings, checked, count, arena);
    if (status == LS_OK && !settings->slurm_version[0]) {
        status = ls_slurm_version_parse(checked[0].version, &config->version);
    }
    ls_slurm_hosts_release(checked, count);
    config->hosts = hosts;
    config->nodes = count;
    config->accounting = settings->apply;
    return status;
}

static ls_status run_slurm_config(const ls_invocation *invocation)
{
    const slurm_config_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "missing output folder: give --output DIR");
    }
    if (settings->apply && !settings->hosts[0]) {
        return ls_fail(LS_ERR_INVALID, "--apply needs the hosts to install on: give --hosts FILE");
    }
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    const struct passwd *who = getpwuid(geteuid());
    ls_slurm_config config = {
        .cluster = settings->cluster,
        .control_host = settings->control_host[0] && !settings->local ? settings->control_host : host,
        .nodes = (uint32_t)settings->nodes,
        .node_prefix = settings->prefix,
        .gpus = (uint32_t)settings->gpus,
        .gpu_kind = settings->gpu_kind,
        .cpus = (uint32_t)settings->cpus,
        .memory_mib = (uint32_t)(settings->memory_bytes >> 20),
        .leaf_nodes = (uint32_t)settings->leaf_nodes,
        .local = settings->local,
        .user = who ? who->pw_name : "",
        .first_port = (uint32_t)settings->port,
        .node_timeout_s = (uint32_t)settings->node_timeout_s,
    };
    ls_arena arena;
    ls_arena_init(&arena);
    ls_slurm_file files[LS_SLURM_FILES];
    size_t count = 0;
    ls_status status = settings->hosts[0] ? take_hosts(settings, &arena, &config) : LS_OK;
    if (status == LS_OK && !(settings->hosts[0] && !settings->slurm_version[0])) {
        status = find_version(&arena, settings->slurm_version, &config.version);
    }
    if (status == LS_OK) {
        status = write_files(&arena, settings, &config, files, &count);
    }
    if (status == LS_OK && settings->apply) {
        status = ls_slurm_apply(&arena, &config, files, count,
                                ls_path_join(&arena, config.directory, "munge.key"));
    }
    if (status == LS_OK) {
        print_result(&config, files, count, settings);
    }
    ls_arena_release(&arena);
    return status;
}

const ls_command ls_command_slurm_config = {
    .name = "slurm-config",
    LS_WORDS("", 0, 0),
    .summary = "write a working Slurm configuration",
    .details = "Writes slurm.conf and its companion files for the version of Slurm that is\n"
               "found: ranks placed near each other, backfill, three partitions (high, normal,\n"
               "low) of which a higher one preempts a lower one, and preempted jobs that save\n"
               "and are queued again. With --local it is a cluster of several nodes on this\n"
               "machine that you start and stop yourself, without root. With --hosts it asks the\n"
               "hosts of a file first: whether their clocks, users, versions of Slurm, keys of\n"
               "munge and shared folders are the same, and what cores, memory and GPUs they have.\n"
               "With --apply it then installs and starts Slurm there.\n"
               "\n"
               "Examples:\n"
               "  lockstep slurm-config --local --nodes 4 -o /tmp/slurm && /tmp/slurm/start\n"
               "  export SLURM_CONF=/tmp/slurm/slurm.conf; sinfo; srun -N 2 hostname\n"
               "  /tmp/slurm/stop\n"
               "  lockstep slurm-config --hosts hosts.txt --shared /home -o slurm\n"
               "  lockstep slurm-config --hosts hosts.txt --shared /home -o slurm --apply",
    LS_SETTINGS(slurm_config_settings, slurm_config_options),
    .run = run_slurm_config,
};

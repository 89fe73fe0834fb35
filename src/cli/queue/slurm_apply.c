// SPDX-License-Identifier: Apache-2.0
#include "cli/queue/slurm_apply.h"

#include "base/embedded.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/queue/slurm_hosts.h"
#include "env/real/program.h"
#include "execution/elastic/hosts/launch.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* slurm_host.sh, built in by cmake/embed.cmake. */
extern const ls_embedded_file ls_slurm_host_script[];

enum { KEY_BYTES = 1024, PACKAGES_S = 900, START_S = 300, IDLE_S = 120 };

/* Runs the script on a host; what it prints is said with the host's name. */
static ls_status run_on(ls_arena *arena, const char *name, const char *address, const char *settings,
                        double timeout_s)
{
    const char *input = ls_arena_printf(arena, "%s%s", settings, ls_slurm_host_script[0].text);
    ls_program_result result = {0};
    LS_TRY(ls_slurm_ssh(arena, address, "sh -s", input, timeout_s, &result));
    if (result.exit_code != 0) {
        return ls_fail(LS_ERR_FAILED, "host %s: %.*s", name, (int)strcspn(result.error, "\n"),
                       result.error[0] ? result.error : "it does not answer over ssh");
    }
    if (result.output[0]) {
        fprintf(stderr, "%s: %.*s\n", name, (int)strcspn(result.output, "\n"), result.output);
    }
    return LS_OK;
}

ls_status ls_slurm_apply_packages(ls_arena *arena, const char *path, const char *control)
{
    ls_host_entry *hosts = NULL;
    uint32_t count = 0;
    bool has_control = false;
    LS_TRY(ls_hosts_file_read(arena, path, &hosts, &count));
    for (uint32_t i = 0; i < count; i++) {
        has_control = has_control || strcmp(hosts[i].name, control) == 0;
    }
    if (!has_control) {
        return ls_fail(LS_ERR_INVALID,
                       "the controller is to run on host %s, which is not in %s: name one of its hosts with "
                       "--control-host",
                       control, path);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *kind = strcmp(hosts[i].name, control) == 0 ? "control" : "compute";
        LS_TRY(run_on(arena, hosts[i].name, hosts[i].address, ls_arena_printf(arena, "packages=%s\n", kind),
                      PACKAGES_S));
    }
    return LS_OK;
}

/* The key of the cluster in base64, made once. */
static ls_status read_key(ls_arena *arena, const char *path, const char **key_out)
{
    char fresh[KEY_BYTES], *key = NULL;
    size_t bytes = 0;
    if (access(path, F_OK) != 0) {
        if (getrandom(fresh, sizeof fresh, 0) != sizeof fresh) {
            return ls_fail(LS_ERR_IO, "the system gives no random bytes for munge's key");
        }
        const mode_t before = umask(077);
        const ls_status status = ls_file_write_atomic(path, fresh, sizeof fresh);
        umask(before);
        LS_TRY(status);
    }
    LS_TRY(ls_file_read(arena, path, KEY_BYTES, &key, &bytes));
    char *text = ls_arena_alloc(arena, KEY_BYTES * 2);
    (void)EVP_EncodeBlock((unsigned char *)text, (const unsigned char *)key, (int)bytes);
    *key_out = text;
    return LS_OK;
}

/* The values and files that come before the script. */
static const char *settings_for(ls_arena *arena, const ls_slurm_config *config, bool is_control,
                                const char *key, const ls_slurm_file *files, size_t count)
{
    ls_text text = {0};
    ls_text_printf(&text, "packages=\ncontrol=%s\ncluster=%s\nkey=%s\nmkdir -p /etc/slurm\n",
                   is_control ? "yes" : "no", config->cluster, key);
    for (size_t i = 0; i < count; i++) {
        if (is_control || strcmp(files[i].name, "slurmdbd.conf") != 0) {
            ls_text_printf(&text, "cat >/etc/slurm/%s.new <<'LOCKSTEP_END'\n%sLOCKSTEP_END\n", files[i].name,
                           files[i].text);
        }
    }
    return ls_text_keep(&text, arena);
}

static ls_status apply_to(ls_arena *arena, const ls_slurm_config *config, const ls_slurm_host *host,
                          const char *key, const ls_slurm_file *files, size_t count)
{
    const bool is_control = strcmp(host->name, config->control_host) == 0;
    LS_TRY(run_on(arena, host->name, host->address,
                  settings_for(arena, config, is_control, key, files, count), START_S));
    fprintf(stderr, "%s: %sslurmd runs\n", host->name,
            is_control ? "slurmctld, slurmdbd with MariaDB and " : "");
    return LS_OK;
}

static ls_status await_nodes(ls_arena *arena, const ls_slurm_config *config, const ls_slurm_host *control)
{
    const char *line = ls_arena_printf(arena,
                                       "i=0; until [ \"$(sinfo -h -p normal -t idle,alloc,mix -o %%D)\" = %u "
                                       "]; do i=$((i + 1)); [ $i -lt %d ] || "
                                       "{ sinfo -h -N -o '%%N is %%T: %%E' -p normal | sort -u | tr '\\n' ' "
                                       "' >&2; exit 1; }; sleep 0.5; done",
                                       config->nodes, 2 * IDLE_S);
    ls_program_result result = {0};
    LS_TRY(ls_slurm_ssh(arena, control->address, line, NULL, IDLE_S + 30, &result));
    return result.exit_code == 0 ? LS_OK
                                 : ls_fail(LS_ERR_FAILED, "not all nodes are ready after %d seconds: %.300s",
                                           IDLE_S, result.error);
}

ls_status ls_slurm_apply(ls_arena *arena, const ls_slurm_config *config, const ls_slurm_file *files,
                         size_t count, const char *key_path)
{
    const char *key = NULL;
    const ls_slurm_host *control = config->hosts;
    ls_status status = read_key(arena, key_path, &key);
    for (uint32_t i = 0; i < config->nodes && status == LS_OK; i++) {
        const bool is_control = strcmp(config->hosts[i].name, config->control_host) == 0;
        control = is_control ? &config->hosts[i] : control;
        status = is_control ? apply_to(arena, config, control, key, files, count) : LS_OK;
    }
    for (uint32_t i = 0; i < config->nodes && status == LS_OK; i++) {
        if (&config->hosts[i] != control) {
            status = apply_to(arena, config, &config->hosts[i], key, files, count);
        }
    }
    return status == LS_OK ? await_nodes(arena, config, control) : status;
}

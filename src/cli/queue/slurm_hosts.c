// SPDX-License-Identifier: Apache-2.0
#include "cli/queue/slurm_hosts.h"

#include "base/clock.h"
#include "base/file.h"
#include "cli/table.h"
#include "execution/elastic/hosts/launch.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS_MIN = 2, HOSTS_MAX = 16, WORDS_MAX = 32, ASK_S = 30 };

/* Clocks may be this far apart. munge allows minutes, but times in logs should be comparable. */
#define CLOCK_S 1.0

/* Prints KEY=VALUE lines; what is missing is empty. */
static const char script[] =
    "PATH=$PATH:/usr/sbin:/sbin; "
    "echo name=$(hostname -s 2>/dev/null); echo time=$(date +%%s.%%N); echo cpus=$(nproc); "
    "echo memory=$(awk '/^MemTotal:/ {print int($2 / 1024)}' /proc/meminfo); "
    "echo gpus=$(ls -d /dev/nvidia[0-9]* 2>/dev/null | wc -l); "
    "echo kind=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1); "
    "echo slurm=$(slurmd -V 2>/dev/null); echo user=$(id -u '%s' 2>/dev/null); "
    "echo slurm_user=$(id -u slurm 2>/dev/null); echo self=$(id -u); "
    "echo systemd=$(test -d /run/systemd/system && echo yes); "
    "echo cluster=$(sed -n 's/^ClusterName=//p' /etc/slurm/slurm.conf 2>/dev/null); "
    "echo key=$(sha256sum /etc/munge/munge.key 2>/dev/null | cut -c 1-64); echo shared=$(cat '%s' "
    "2>/dev/null)";

/* One host's answer. */
typedef struct answer {
    const char *name, *cpus, *memory, *gpus, *kind, *slurm, *user, *slurm_user, *self, *systemd, *cluster,
        *key, *shared;
    double time_s;
} answer;

static void add(ls_slurm_checked *one, const char *text)
{
    json_t *problem = json_string(text);
    json_array_append_new(one->problems, problem ? problem : json_string("(not printable)"));
}

static const char *value_of(ls_arena *arena, const char *output, const char *key)
{
    const size_t bytes = strlen(key);
    for (const char *line = output; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, bytes) == 0 && line[bytes] == '=') {
            const size_t length = strcspn(line + bytes + 1, "\n");
            return ls_arena_printf(arena, "%.*s", (int)(length < 200 ? length : 200), line + bytes + 1);
        }
    }
    return "";
}

static answer read_answer(ls_arena *arena, const char *output)
{
    return (answer){.name = value_of(arena, output, "name"),
                    .cpus = value_of(arena, output, "cpus"),
                    .memory = value_of(arena, output, "memory"),
                    .gpus = value_of(arena, output, "gpus"),
                    .kind = value_of(arena, output, "kind"),
                    .slurm = value_of(arena, output, "slurm"),
                    .user = value_of(arena, output, "user"),
                    .slurm_user = value_of(arena, output, "slurm_user"),
                    .self = value_of(arena, output, "self"),
                    .systemd = value_of(arena, output, "systemd"),
                    .cluster = value_of(arena, output, "cluster"),
                    .key = value_of(arena, output, "key"),
                    .shared = value_of(arena, output, "shared"),
                    .time_s = strtod(value_of(arena, output, "time"), NULL)};
}

static size_t ssh_words(ls_arena *arena, const char *words[WORDS_MAX])
{
    const char *told = getenv("LOCKSTEP_SSH");
    char *rest = NULL, *text = ls_arena_strdup(arena, told && told[strspn(told, " ")] ? told : "ssh");
    size_t count = 0;
    for (char *word = strtok_r(text, " ", &rest); word && count < WORDS_MAX - 6;
         word = strtok_r(NULL, " ", &rest)) {
        words[count++] = word;
    }
    const char *slash = strrchr(words[0], '/');
    if (strcmp(slash ? slash + 1 : words[0], "ssh") == 0) {
        words[count++] = "-oBatchMode=yes";
        words[count++] = "-oConnectTimeout=10";
    }
    return count;
}

ls_status ls_slurm_ssh(ls_arena *arena, const char *address, const char *line, const char *input,
                       double timeout_s, ls_program_result *result_out)
{
    const char *words[WORDS_MAX];
    size_t count = ssh_words(arena, words);
    words[count++] = address;
    words[count++] = line;
    words[count] = NULL;
    return ls_program_run(&(ls_program){.argv = words, .input = input, .timeout_s = timeout_s}, arena,
                          result_out);
}

/* "NVIDIA H200" to h200: how Slurm names it. */
static const char *kind_of(ls_arena *arena, const char *name)
{
    ls_text text = {0};
    const char *at = strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name;
    for (; *at && text.bytes < 40; at++) {
        const char letter = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '_';
        ls_text_append_bytes(&text, &letter, 1);
    }
    const char *kind = ls_arena_strdup(arena, text.bytes > 0 ? ls_text_string(&text) : "gpu");
    ls_text_release(&text);
    return kind;
}

static uint32_t number_of(const char *text)
{
    const unsigned long value = strtoul(text, NULL, 10);
    return value < UINT32_MAX ? (uint32_t)value : 0;
}

/* Asks one host; what is wrong with it alone is noted at once. */
static answer ask(ls_arena *arena, const ls_host_entry *host, const char *line, ls_slurm_checked *one)
{
    ls_program_result result = {0};
    const double before_s = ls_clock_wall_s();
    const ls_status status = ls_slurm_ssh(arena, host->address, line, NULL, ASK_S, &result);
    const double after_s = ls_clock_wall_s();
    *one = (ls_slurm_checked){.problems = json_array(), .version = "", .host.name = host->name};
    if (status != LS_OK || result.exit_code != 0) {
        const char *why = status != LS_OK ? ls_error_text() : result.error;
        add(one, ls_arena_printf(arena, "it does not answer over ssh as %s: %.*s", host->address,
                                 (int)strcspn(why, "\n"), why));
        ls_error_clear();
        return (answer){.name = ""};
    }
    const answer a = read_answer(arena, result.output);
    const double doubt_s = 0.5 * (after_s - before_s);
    one->clock_s = a.time_s - 0.5 * (before_s + after_s);
    one->version = a.slurm;
    one->has_systemd = a.systemd[0] != 0;
    one->host = (ls_slurm_host){.name = host->name,
                                .address = host->address,
                                .cpus = number_of(a.cpus),
                                .memory_mib = number_of(a.memory),
                                .gpus = number_of(a.gpus),
                                .gpu_kind = kind_of(arena, a.kind)};
    if (fabs(one->clock_s) - doubt_s > CLOCK_S) {
        add(one, ls_arena_printf(arena, "its clock is %.1f s %s this host's: set both by NTP (chrony)",
                                 fabs(one->clock_s), one->clock_s > 0.0 ? "ahead of" : "behind"));
    }
    if (strcmp(a.name, host->name) != 0) {
        add(one, ls_arena_printf(arena,
                                 "it calls itself '%s', and Slurm knows nodes by that name: write it in "
                                 "the file, as '%s %s'",
                                 a.name, a.name, host->address));
    }
    if (!a.slurm[0]) {
        add(one, "it has no slurmd: install it (Debian: slurmd munge slurm-wlm-basic-plugins)");
    }
    return a;
}

/* The same on all hosts as on the first; what: "user ann has number". */
static void compare(ls_arena *arena, const char *what, const char *first, const char *here,
                    const char *remedy, ls_slurm_checked *one)
{
    if (!here[0] || strcmp(first, here) != 0) {
        add(one, ls_arena_printf(arena, "%s %s, and %s on the first host: %s", what,
                                 here[0] ? here : "(nothing)", first[0] ? first : "(nothing)", remedy));
    }
}

/* The host is about to be changed. */
static void look_before_change(ls_arena *arena, const char *cluster, const answer *here,
                               ls_slurm_checked *one)
{
    if (strcmp(here->self, "0") != 0) {
        add(one, "ssh does not log in as root there, which --apply needs: write 'NAME root@ADDRESS' in the "
                 "file of hosts, or set LOCKSTEP_SSH=\"ssh -l root\"");
    }
    if (here->cluster[0] && strcmp(here->cluster, cluster) != 0) {
        add(one, ls_arena_printf(arena,
                                 "it belongs to the Slurm cluster '%s' (/etc/slurm/slurm.conf): remove that "
                                 "file, or give the cluster the same name with --cluster",
                                 here->cluster));
    }
}

static void compare_all(ls_arena *arena, const char *user, const ls_slurm_check *check, const char *shared,
                        const char *token, const answer *first, const answer *here, ls_slurm_checked *one)
{
    compare(arena, ls_arena_printf(arena, "user %s has the number", user), first->user, here->user,
            "give the user the same number everywhere", one);
    compare(arena, "user slurm has the number", first->slurm_user, here->slurm_user,
            "create it with one number everywhere: useradd --system --uid 64030 slurm", one);
    compare(arena, "slurmd -V says", first->slurm, here->slurm, "install one version of Slurm everywhere",
            one);
    if (check->cluster) {
        look_before_change(arena, check->cluster, here, one);
    } else if (first->key[0] || here->key[0]) { /* only root can read it */
        compare(arena, "the hash of /etc/munge/munge.key is", first->key, here->key,
                "copy the first host's key to all hosts, readable by munge alone", one);
    }
    if (strcmp(here->shared, token) != 0) {
        add(one, ls_arena_printf(arena,
                                 "it does not see this host's folder %s: jobs run in shared folders "
                                 "(NFS); another one can be named with --shared",
                                 shared));
    }
}

static ls_status ask_all(ls_arena *arena, const ls_slurm_check *check, const ls_host_entry *hosts,
                         uint32_t count, const char *shared, ls_slurm_checked *checked)
{
    const struct passwd *who = getpwuid(geteuid());
    const char *user = who ? who->pw_name : "root";
    char token[64];
    snprintf(token, sizeof token, "%ld-%.6f", (long)getpid(), ls_clock_wall_s());
    const char *mark = ls_arena_printf(arena, "%s/.lockstep-shared-%ld", shared, (long)getpid());
    if (strchr(mark, '\'') || strchr(user, '\'')) {
        return ls_fail(LS_ERR_INVALID,
                       "the folder %s has an apostrophe in its path; name another with --shared", shared);
    }
    LS_TRY(ls_file_write_atomic(mark, token, strlen(token)));
    const char *line = ls_arena_printf(arena, script, user, mark);
    answer first = {0};
    for (uint32_t i = 0; i < count; i++) {
        const answer here = ask(arena, &hosts[i], line, &checked[i]);
        const bool has_answered = here.name[0];
        if (has_answered && !first.name) {
            first = here;
        }
        if (has_answered) {
            compare_all(arena, user, check, shared, token, &first, &here, &checked[i]);
        }
    }
    unlink(mark);
    return LS_OK;
}

ls_status ls_slurm_hosts_check(ls_arena *arena, const ls_slurm_check *check, ls_slurm_checked **checked_out,
                               uint32_t *count_out)
{
    ls_host_entry *hosts = NULL;
    uint32_t count = 0;
    char absolute[PATH_MAX];
    LS_TRY(ls_hosts_file_read(arena, check->path, &hosts, &count));
    if (count < HOSTS_MIN || count > HOSTS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%s lists %u hosts; a cluster of %d to %d can be written from a list",
                       check->path, count, HOSTS_MIN, HOSTS_MAX);
    }
    if (!realpath(check->shared, absolute)) {
        return ls_fail(LS_ERR_INVALID, "the shared folder %s does not exist (--shared)", check->shared);
    }
    ls_slurm_checked *checked = ls_arena_new(arena, ls_slurm_checked, count);
    LS_TRY(ask_all(arena, check, hosts, count, absolute, checked));
    *checked_out = checked;
    *count_out = count;
    return LS_OK;
}

void ls_slurm_hosts_release(ls_slurm_checked *checked, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        json_decref(checked[i].problems);
    }
}

size_t ls_slurm_hosts_problems(const ls_slurm_checked *checked, uint32_t count)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += json_array_size(checked[i].problems);
    }
    return sum;
}

void ls_slurm_hosts_append(const ls_slurm_checked *checked, uint32_t count, ls_arena *arena, ls_text *text)
{
    static const char *const titles[] = {"HOST", "CORES", "MEMORY", "GPUS",
                                         "KIND", "CLOCK", "SLURM",  "PROBLEMS"};
    static const bool right[] = {false, true, true, true, false, true, false, true};
    ls_table table = {.titles = titles, .right = right, .columns = 8, .arena = arena};
    for (uint32_t i = 0; i < count; i++) {
        const ls_slurm_checked *one = &checked[i];
        ls_table_add(&table, one->host.name);
        ls_table_printf(&table, "%u", one->host.cpus);
        ls_table_printf(&table, "%.1f GiB", one->host.memory_mib / 1024.0);
        ls_table_printf(&table, "%u", one->host.gpus);
        ls_table_add(&table, one->host.gpus > 0 ? one->host.gpu_kind : NULL);
        ls_table_printf(&table, "%+.2f s", one->clock_s);
        ls_table_add(&table, one->version);
        ls_table_printf(&table, "%zu", json_array_size(one->problems));
    }
    ls_table_append(&table, ls_terminal_width(), text);
    for (uint32_t i = 0; i < count; i++) {
        for (size_t k = 0; k < json_array_size(checked[i].problems); k++) {
            const char *problem = json_string_value(json_array_get(checked[i].problems, k));
            ls_text_printf(text, "%s: ", checked[i].host.name);
            ls_text_append_printable(text, problem, strlen(problem), "");
            ls_text_append(text, "\n");
        }
    }
}

json_t *ls_slurm_hosts_json(const ls_slurm_checked *checked, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const ls_slurm_checked *one = &checked[i];
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:i, s:i, s:s?, s:s, s:f, s:O}", "host", one->host.name, "cpus",
                            (int)one->host.cpus, "memory_mib", (int)one->host.memory_mib, "gpus",
                            (int)one->host.gpus, "gpu_kind", one->host.gpus > 0 ? one->host.gpu_kind : NULL,
                            "slurm", one->version, "clock_s", one->clock_s, "problems", one->problems));
    }
    return list;
}

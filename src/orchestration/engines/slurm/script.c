// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/slurm/script.h"

#include "base/assert.h"
#include "base/embedded.h"
#include "orchestration/engines/slurm/squeue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ls_status ls_slurm_shape_of(const ls_slurm_site *site, uint32_t ranks, uint32_t ranks_per_node,
                            ls_slurm_shape *shape_out)
{
    const uint32_t most = site->node_devices;
    if (ranks_per_node > 0) {
        if (ranks_per_node > most || ranks % ranks_per_node != 0) {
            return ls_fail(
                LS_ERR_INVALID,
                "cannot place %u ranks with %u on each node: nodes here have %u %s, and each node of a job "
                "must have the same number of ranks",
                ranks, ranks_per_node, most, site->has_gpus ? "GPUs" : "cores");
        }
        *shape_out = (ls_slurm_shape){.nodes = ranks / ranks_per_node, .ranks_per_node = ranks_per_node};
        return LS_OK;
    }
    const uint32_t nodes = (ranks + most - 1) / most;
    if (ranks % nodes == 0) {
        *shape_out = (ls_slurm_shape){.nodes = nodes, .ranks_per_node = ranks / nodes};
        return LS_OK;
    }
    return ls_fail(
        LS_ERR_INVALID,
        "%u ranks need %u nodes of %u %s, but cannot be divided evenly among them; %u or %u ranks can", ranks,
        nodes, most, site->has_gpus ? "GPUs" : "cores", ranks / nodes * nodes, (ranks / nodes + 1) * nodes);
}

const char *ls_slurm_job_folder(ls_arena *arena, const ls_slurm_site *site, uint64_t job)
{
    return ls_arena_printf(arena, "%s/jobs/%" PRIu64, site->home, job);
}

/* ---- values of a script ---- */

/* A word of the shell: in single quotes, whatever is in it. */
static void append_word(ls_text *text, const char *word)
{
    ls_text_append(text, "'");
    for (const char *at = word; *at; at++) {
        if (*at == '\'') {
            ls_text_append(text, "'\\''");
        } else {
            ls_text_append_bytes(text, at, 1);
        }
    }
    ls_text_append(text, "'");
}

static const char *keep(ls_arena *arena, ls_text *text)
{
    const char *copy = ls_arena_strdup(arena, ls_text_string(text));
    ls_text_release(text);
    return copy;
}

static const char *quoted(ls_arena *arena, const char *word)
{
    ls_text text = {0};
    append_word(&text, word);
    return keep(arena, &text);
}

static const char *command_words(ls_arena *arena, const ls_option_strings *words)
{
    ls_text text = {0};
    for (uint64_t i = 0; i < words->count; i++) {
        ls_text_append(&text, i ? " " : "");
        append_word(&text, words->items[i]);
    }
    return keep(arena, &text);
}

static const char *settings_words(ls_arena *arena, const ls_job_spec *spec)
{
    ls_text text = {0};
    for (uint64_t i = 0; i < spec->set.count; i++) {
        ls_text_append(&text, "--set ");
        append_word(&text, spec->set.items[i]);
        ls_text_append(&text, " ");
    }
    ls_text_append(&text, "--set ");
    append_word(&text, ls_arena_printf(arena, "name=%s", spec->name));
    return keep(arena, &text);
}

/*
 * Lines of NAME=VALUE: the name is one that the shell accepts (ls_job_spec_parse), the value may be
 * anything. Slurm's own variables are those of the allocation, never of the place of submission.
 */
static const char *exports(ls_arena *arena, const ls_option_strings *variables)
{
    ls_text text = {0};
    for (uint64_t i = 0; i < variables->count; i++) {
        const char *item = variables->items[i], *value = strchr(item, '=');
        if (!value || strncmp(item, "SLURM_", 6) == 0 || strncmp(item, "SBATCH_", 7) == 0 ||
            strncmp(item, "lockstep_", 9) == 0) {
            continue;
        }
        ls_text_printf(&text, "%sexport %.*s=", text.bytes ? "\n" : "", (int)(value - item), item);
        append_word(&text, value + 1);
    }
    return keep(arena, &text);
}

static const char *number(ls_arena *arena, uint64_t value)
{
    return ls_arena_printf(arena, "%" PRIu64, value);
}

/* ---- the template ---- */

/* script.sh.in, built in by cmake/embed.cmake. */
extern const ls_embedded_file ls_slurm_templates[];

typedef struct blank {
    const char *name, *value;
} blank;

enum { BLANKS_MAX = 16 };

/* The first line of a section of script.sh.in, NULL when it has none of that name. */
static const char *find_section(const char *section)
{
    static const char mark[] = "#: section ";
    const size_t bytes = strlen(section);
    for (const char *line = ls_slurm_templates[0].text; line && *line;) {
        const char *end = strchr(line, '\n');
        const bool is_it = strncmp(line, mark, sizeof mark - 1) == 0 &&
                           strncmp(line + sizeof mark - 1, section, bytes) == 0 &&
                           line[sizeof mark - 1 + bytes] == '\n';
        line = end ? end + 1 : NULL;
        if (is_it) {
            return line;
        }
    }
    return NULL;
}

/* The blank whose @NAME@ begins at `at`, NULL when there is none. */
static const blank *blank_at(const char *at, const blank *blanks)
{
    for (const blank *one = blanks; *at == '@' && one->name; one++) {
        const size_t bytes = strlen(one->name);
        if (strncmp(at + 1, one->name, bytes) == 0 && at[1 + bytes] == '@') {
            return one;
        }
    }
    return NULL;
}

/*
 * One line up to `end`. What is put in is not looked through again: a user's text may hold @JOB@.
 */
static void fill_line(const char *line, const char *end, const blank *blanks, ls_text *out)
{
    const blank *whole = blank_at(line, blanks);
    if (whole && !whole->value[0] && line + strlen(whole->name) + 2 == end) {
        return;
    }
    for (const char *at = line; at < end;) {
        const blank *one = blank_at(at, blanks);
        ls_text_append_bytes(out, one ? one->value : at, one ? strlen(one->value) : 1);
        at += one ? strlen(one->name) + 2 : 1;
    }
    ls_text_append(out, "\n");
}

/* A section with its blanks filled in; `blanks` ends with one without a name. */
static void fill_section(const char *section, const blank *blanks, ls_text *out)
{
    const char *line = find_section(section);
    LS_ASSERT(line && "a section is missing in script.sh.in");
    while (*line && strncmp(line, "#: section ", 11) != 0) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, "#:", 2) != 0) {
            fill_line(line, end, blanks, out);
        }
        line = end + 1;
    }
}

/* The same as a value of another section: without its last line end. */
static const char *filled(ls_arena *arena, const char *section, const blank *blanks)
{
    ls_text text = {0};
    fill_section(section, blanks, &text);
    const char *copy = ls_arena_strndup(arena, ls_text_string(&text), text.bytes - 1);
    ls_text_release(&text);
    return copy;
}

/* ---- the scripts ---- */

/* Lines that start the ranks in the background. */
static const char *step_lines(ls_arena *arena, const ls_job *job, const ls_slurm_shape *shape)
{
    const bool is_command = job->spec.command.count > 0, can_shrink = job->spec.min_ranks < job->spec.ranks;
    blank blanks[BLANKS_MAX] = {
        {"RANKS", number(arena, job->ranks_now)},
        {"RANKS_PER_NODE", number(arena, shape->ranks_per_node)},
        {"NODES", number(arena, shape->nodes)},
        {"RUN_DIR", quoted(arena, is_command ? "" : job->run_dir)},
        {"STOP", job->stop_step > 0 ? ls_arena_printf(arena, "--steps %" PRIu64, job->stop_step) : ""},
        {"SETTINGS", settings_words(arena, &job->spec)},
        {"COMMAND", command_words(arena, &job->spec.command)},
        {"ON_LOSS", can_shrink ? "--no-kill --kill-on-bad-exit=0" : "--kill-on-bad-exit=1"},
    };
    blanks[8] = (blank){"MEETING_POINT", filled(arena, "meeting-point", blanks)};
    blanks[9] = (blank){"TRAIN", filled(arena, "train", blanks)};
    return filled(arena, is_command ? "command" : shape->nodes == 1 ? "one-node" : "many-nodes", blanks);
}

/* What a training run needs to know to keep its cap. Where kinds of nodes differ in price, the kind
 * is asked for where the job begins, as squeue.c reads it. */
static const char *money(ls_arena *arena, const ls_slurm_site *site, const ls_job *job)
{
    const char *text = ls_arena_printf(arena, "export LOCKSTEP_PRICE=%.9g LOCKSTEP_SPENT=%.9g",
                                       job->price_usd, ls_job_spent_usd(job));
    if (job->price_usd <= 0.0 || job->kind_prices.count == 0) {
        return job->price_usd > 0.0 ? text : "";
    }
    ls_text kinds = {0};
    for (uint64_t i = 0; i < job->kind_prices.count; i++) {
        const char *item = job->kind_prices.items[i], *price = strrchr(item, '=');
        const char *kind = ls_arena_strndup(arena, item, (size_t)(price - item));
        ls_text_printf(&kinds, "%s) LOCKSTEP_PRICE=%.9g ;;\n", quoted(arena, kind), strtod(price + 1, NULL));
    }
    const blank blanks[BLANKS_MAX] = {
        {"AMOUNTS", text}, {"OTHER", site->has_gpus ? "gpu" : "cpu"}, {"KINDS", keep(arena, &kinds)}};
    return filled(arena, "kinds", blanks);
}

/* A training run tells at its end what it came to, unless its folder is too large or slow to look
 * at before Slurm would kill the script. */
static const char *result(ls_arena *arena, const ls_job *job)
{
    return job->spec.command.count == 0
               ? ls_arena_printf(arena,
                                 "    lockstep_result=$(timeout 10 \"$lockstep_program\" run-result %s "
                                 "\"$lockstep_begun\" 2> /dev/null)",
                                 quoted(arena, job->run_dir))
               : "";
}

void ls_slurm_script(const ls_slurm_site *site, const ls_job *job, const ls_slurm_shape *shape,
                     ls_text *script)
{
    ls_arena arena = {0};
    const char *conf = site->slurm_conf ? quoted(&arena, site->slurm_conf) : NULL;
    const blank blanks[BLANKS_MAX] = {
        {"JOB", number(&arena, job->id)},
        {"EPOCH", number(&arena, job->epoch)},
        {"HOME", quoted(&arena, site->home)},
        {"VARIABLES", exports(&arena, &job->spec.variables)},
        {"SLURM_CONF", conf ? ls_arena_printf(&arena, "export SLURM_CONF=%s", conf) : ""},
        {"STORAGE", job->storage_usd > 0.0
                        ? ls_arena_printf(&arena, "export LOCKSTEP_STORAGE_PRICE=%.9g", job->storage_usd)
                        : ""},
        {"MONEY", money(&arena, site, job)},
        {"RESULT", result(&arena, job)},
        {"PROGRAM", quoted(&arena, site->program)},
        {"DIRECTORY", quoted(&arena, job->spec.directory)},
        {"UMASK", ls_arena_printf(&arena, "%03o", job->spec.umask)},
        {"STEP", step_lines(&arena, job, shape)},
    };
    fill_section("job", blanks, script);
    ls_arena_release(&arena);
}

void ls_slurm_array_script(const ls_slurm_site *site, const ls_job *const *jobs, size_t count,
                           ls_text *script)
{
    ls_arena arena = {0};
    ls_text tasks = {0};
    for (size_t i = 0; i < count; i++) {
        ls_text_printf(&tasks,
                       "%s%zu) lockstep_job=\"$lockstep_home/jobs/%" PRIu64
                       "\"; exec sh \"$lockstep_job/slurm-%u.sh\" >> \"$lockstep_job/log\" 2>&1 ;;",
                       i ? "\n" : "", i, jobs[i]->id, jobs[i]->epoch);
    }
    const blank blanks[BLANKS_MAX] = {
        {"HOME", quoted(&arena, site->home)},
        {"FIRST", number(&arena, jobs[0]->id)},
        {"TASKS", keep(&arena, &tasks)},
    };
    fill_section("array", blanks, script);
    ls_arena_release(&arena);
}

/* ---- sbatch ---- */

/*
 * The name that squeue, logs and mails show: without characters that mean something to any of them.
 */
static const char *plain_name(ls_arena *arena, const char *name)
{
    char *copy = ls_arena_strndup(arena, name, strnlen(name, 60));
    for (char *at = copy; *at; at++) {
        const bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                           (*at >= '0' && *at <= '9') || strchr("._-", *at);
        *at = plain ? *at : '_';
    }
    return copy[0] ? copy : "job";
}

/* Slurm counts whole minutes. */
static uint64_t minutes_of(double seconds)
{
    return (uint64_t)((seconds + 59.0) / 60.0);
}

bool ls_slurm_are_alike(const ls_job *a, const ls_job *b)
{
    const ls_job_spec *x = &a->spec, *y = &b->spec;
    return x->group[0] && strcmp(x->group, y->group) == 0 && a->uid == b->uid &&
           strcmp(a->account, b->account) == 0 && a->priority == b->priority &&
           a->ranks_now == b->ranks_now && x->ranks_per_node == y->ranks_per_node &&
           x->cpus_per_rank == y->cpus_per_rank && x->memory_mib_per_rank == y->memory_mib_per_rank &&
           x->required == y->required && x->time_limit_s == y->time_limit_s && x->begin_s == y->begin_s &&
           x->group_running_max == y->group_running_max && x->min_ranks == y->min_ranks &&
           strcmp(x->name, y->name) == 0;
}

typedef struct arguments {
    const char **argv;
    size_t count;
} arguments;

static void add(arguments *to, const char *argument)
{
    LS_ASSERT(to->count + 1 < LS_SLURM_OPTIONS_MAX);
    to->argv[to->count++] = argument;
    to->argv[to->count] = NULL;
}

static void add_resources(const ls_slurm_site *site, const ls_job *job, const ls_slurm_shape *shape,
                          ls_arena *arena, arguments *to)
{
    const ls_job_spec *spec = &job->spec;
    add(to, ls_arena_printf(arena, "--nodes=%u", shape->nodes));
    add(to, ls_arena_printf(arena, "--ntasks-per-node=%u", shape->ranks_per_node));
    if (site->has_gpus) {
        add(to, ls_arena_printf(arena, "--gpus-per-node=%u", shape->ranks_per_node));
    }
    if (spec->cpus_per_rank > 0) {
        add(to, ls_arena_printf(arena, "--cpus-per-task=%u", spec->cpus_per_rank));
    }
    if (spec->memory_mib_per_rank > 0) {
        add(to, ls_arena_printf(arena, "--mem=%" PRIu64 "M",
                                (uint64_t)spec->memory_mib_per_rank * shape->ranks_per_node));
    }
    if (spec->required <= LS_NEAR_LEAF && shape->nodes > 1) {
        add(to, "--switches=1");
    }
    if (spec->min_ranks < spec->ranks) {
        add(to, "--no-kill");
    }
}

/* Only operators may use a negative nice value, so high priority is Slurm's normal. */
const char *ls_slurm_order(ls_arena *arena, const ls_slurm_site *site, ls_priority priority)
{
    static const int nice[] = {
        [LS_PRIORITY_LOW] = 100000, [LS_PRIORITY_NORMAL] = 1000, [LS_PRIORITY_HIGH] = 0};
    const char *partition = site->partitions[priority];
    return partition ? ls_arena_printf(arena, "partition=%s", partition)
                     : ls_arena_printf(arena, "nice=%d", nice[priority]);
}

static void add_order(const ls_slurm_site *site, const ls_job *job, double now_s, ls_arena *arena,
                      arguments *to)
{
    add(to, ls_arena_printf(arena, "--%s", ls_slurm_order(arena, site, job->priority)));
    if (site->account_option) {
        add(to, ls_arena_printf(arena, "--%s=%s", site->account_option, plain_name(arena, job->account)));
    }
    if (job->spec.time_limit_s > 0) {
        const double left_s = job->spec.time_limit_s - job->run_s;
        add(to, ls_arena_printf(arena, "--time=%" PRIu64, minutes_of(left_s > 60 ? left_s : 60)));
    }
    const double begin_in_s = job->submitted_s + job->spec.begin_s - now_s;
    if (job->spec.begin_s > 0 && begin_in_s > 0) {
        add(to, ls_arena_printf(arena, "--begin=now+%" PRIu64, (uint64_t)begin_in_s + 1));
    }
    add(to, job->spec.restartable ? "--requeue" : "--no-requeue");
}

void ls_slurm_sbatch(const ls_slurm_site *site, const ls_slurm_batch *batch, ls_arena *arena,
                     const char **argv_out)
{
    const ls_job *job = batch->jobs[0];
    arguments to = {.argv = argv_out};
    add(&to, "sbatch");
    add(&to, "--parsable");
    add(&to, "--export=NIL"); /* the script itself sets all variables */
    add(&to, ls_arena_printf(arena, "--job-name=%s", plain_name(arena, job->spec.name)));
    add(&to,
        ls_arena_printf(arena, "--comment=%s", ls_slurm_comment(arena, site->home_id, job->id, job->epoch)));
    add(&to, ls_arena_printf(arena, "--signal=B:USR1@%d", LS_SLURM_NOTICE_S));
    add(&to, "--open-mode=append");
    if (site->is_root) {
        add(&to, ls_arena_printf(arena, "--uid=%u", job->uid));
        add(&to, ls_arena_printf(arena, "--gid=%u", job->gid));
    }
    add(&to, "--chdir=/");
    add_resources(site, job, batch->shape, arena, &to);
    add_order(site, job, batch->now_s, arena, &to);
    if (batch->count == 1) {
        add(&to, ls_arena_printf(arena, "--output=%s/log", ls_slurm_job_folder(arena, site, job->id)));
    } else {
        add(&to, "--output=/dev/null"); /* each task writes to the log of its own job */
        const uint32_t at_once = job->spec.group_running_max;
        add(&to, at_once ? ls_arena_printf(arena, "--array=0-%zu%%%u", batch->count - 1, at_once)
                         : ls_arena_printf(arena, "--array=0-%zu", batch->count - 1));
    }
}

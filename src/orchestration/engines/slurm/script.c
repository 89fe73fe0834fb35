// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/slurm/script.h"

#include "base/assert.h"
#include "orchestration/engines/slurm/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

ls_status ls_slurm_shape_of(const ls_slurm_site *site, uint32_t ranks, uint32_t ranks_per_node,
                            ls_slurm_shape *shape_out)
{
    const uint32_t most = site->node_devices;
    if (ranks_per_node > 0) {
        if (ranks_per_node > most || ranks % ranks_per_node != 0) {
            return ls_fail(LS_ERR_INVALID,
                           "%u ranks with %u on each node: nodes here have %u %s, and all nodes of a job "
                           "have the same number of ranks",
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
    return ls_fail(LS_ERR_INVALID,
                   "%u ranks need %u nodes of %u %s, which would not have the same number of ranks; %u or %u "
                   "ranks would",
                   ranks, nodes, most, site->has_gpus ? "GPUs" : "cores", ranks / nodes * nodes,
                   (ranks / nodes + 1) * nodes);
}

const char *ls_slurm_job_folder(ls_arena *arena, const ls_slurm_site *site, uint64_t job)
{
    return ls_arena_printf(arena, "%s/jobs/%" PRIu64, site->home, job);
}

/* ---- words of a shell ---- */

/* In single quotes, whatever is in it. */
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

static void append_words(ls_text *text, const ls_option_strings *words)
{
    for (uint64_t i = 0; i < words->count; i++) {
        ls_text_append(text, " ");
        append_word(text, words->items[i]);
    }
}

/* NAME=VALUE: the name is a name (ls_job_spec_parse), the value is anything. Slurm's own are not taken from where the job was submitted. */
static void append_variables(ls_text *text, const ls_option_strings *variables)
{
    for (uint64_t i = 0; i < variables->count; i++) {
        const char *item = variables->items[i], *value = strchr(item, '=');
        if (!value || strncmp(item, "SLURM_", 6) == 0 || strncmp(item, "SBATCH_", 7) == 0 ||
            strncmp(item, "lockstep_", 9) == 0) {
            continue;
        }
        ls_text_printf(text, "export %.*s=", (int)(value - item), item);
        append_word(text, value + 1);
        ls_text_append(text, "\n");
    }
}

/* ---- the script ---- */

static void append_beginning(const ls_slurm_site *site, const ls_job *job, ls_text *text)
{
    ls_text_printf(
        text,
        "#!/bin/sh\n"
        "# Job %" PRIu64
        ", epoch %u, of the queue in HOME below. Written by 'lockstep up --engine slurm', for sbatch.\n"
        "lockstep_home=",
        job->id, job->epoch);
    append_word(text, site->home);
    ls_text_printf(
        text,
        "\nlockstep_job=\"$lockstep_home/jobs/%" PRIu64 "\"\n"
        "lockstep_restarts=${SLURM_RESTART_COUNT:-0}\n"
        "# Whoever withdrew the ticket has given the job up. Behind a requeue by Slurm it is taken already, "
        "and there until the job is over.\n"
        "[ \"$lockstep_restarts\" -gt 0 ] || mv \"$lockstep_job/ticket-%u\" \"$lockstep_job/claim-%u\" 2> "
        "/dev/null || exit 0\n"
        "[ -e \"$lockstep_job/claim-%u\" ] || exit 0\n"
        "lockstep_ref=\"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}\"\n"
        "[ \"$lockstep_restarts\" -gt 0 ] || echo \"$lockstep_ref 0 ${lockstep_first:-%" PRIu64
        "}\" > \"$lockstep_job/slurm-ref-%u\"\n",
        job->id, job->epoch, job->epoch, job->epoch, job->id, job->epoch);
    append_variables(text, &job->spec.variables);
    ls_text_printf(text,
                   "export LOCKSTEP_HOME=\"$lockstep_home\" LOCKSTEP_JOB=%" PRIu64
                   " LOCKSTEP_EPOCH=$((%u + lockstep_restarts))\n"
                   "export SLURM_EXPORT_ENV=ALL\n",
                   job->id, job->epoch);
    if (site->slurm_conf) {
        ls_text_append(text, "export SLURM_CONF=");
        append_word(text, site->slurm_conf);
        ls_text_append(text, "\n");
    }
    ls_text_append(text, "lockstep_program=");
    append_word(text, site->program);
    ls_text_append(
        text,
        "\n"
        "finish() {\n"
        "    lockstep_end=\"$lockstep_job/slurm-end-$lockstep_ref-$lockstep_restarts\"\n"
        "    echo \"$1 $(date +%s)\" > \"$lockstep_end.tmp\" && mv \"$lockstep_end.tmp\" \"$lockstep_end\"\n"
        "    exit \"$1\"\n"
        "}\n"
        "cd ");
    append_word(text, job->spec.directory);
    ls_text_append(text, " || finish 2\n"
                         "lockstep_step=\n"
                         "notice() {\n"
                         "    [ -n \"$lockstep_step\" ] || finish 75\n"
                         "    scancel --signal=TERM \"$SLURM_JOB_ID.0\"\n"
                         "}\n"
                         "trap notice USR1 TERM\n");
}

/* The address under which the job's nodes reach the first one, and a port that no other job of this hour is likely to have. */
static void append_meeting_point(ls_text *text)
{
    ls_text_append(
        text,
        "lockstep_address=$(scontrol show node \"$SLURMD_NODENAME\" | sed -n 's/.*NodeAddr=\\([^ "
        "]*\\).*/\\1/p')\n"
        "export MASTER_ADDR=\"${lockstep_address:-$SLURMD_NODENAME}\" MASTER_PORT=$((20000 + SLURM_JOB_ID % "
        "12000))\n");
}

/* Words of `lockstep train` that hold for one node and for several. */
static void append_train(const ls_job *job, const char *quote, ls_text *text)
{
    ls_text_printf(text, "%s$lockstep_program%s train %s$lockstep_job/run.yaml%s --ranks %u --run-dir ",
                   quote, quote, quote, quote, job->ranks_now);
    append_word(text, job->run_dir);
    for (uint64_t i = 0; i < job->spec.set.count; i++) {
        ls_text_append(text, " --set ");
        append_word(text, job->spec.set.items[i]);
    }
    ls_text_append(text, " --set "); /* the file is called otherwise here */
    ls_text name = {0};
    ls_text_printf(&name, "name=%s", job->spec.name);
    append_word(text, ls_text_string(&name));
    ls_text_release(&name);
}

/* The first node trains, each of the others has an agent. A job that can shrink goes on without a node that is lost. */
static void append_training(const ls_job *job, const ls_slurm_shape *shape, ls_text *text)
{
    if (shape->nodes == 1) {
        ls_text_append(text, "srun --nodes=1 --ntasks=1 --cpu-bind=none ");
        append_train(job, "\"", text);
        ls_text_append(text, " &\n");
        return;
    }
    append_meeting_point(text);
    ls_text_append(
        text, "[ -s \"$lockstep_job/token\" ] || (umask 077; od -An -N16 -tx1 /dev/urandom | tr -d ' \\n' "
              "> \"$lockstep_job/token\")\n"
              "cat > \"$lockstep_job/node.sh\" << 'END_OF_NODE' || finish 4\n"
              "if [ \"$SLURM_NODEID\" = 0 ]; then\n    exec ");
    append_train(job, "\"", text);
    ls_text_printf(text,
                   " --local-ranks %u --coordinator \"$MASTER_ADDR:$MASTER_PORT\" --token-file "
                   "\"$lockstep_job/token\"\nfi\n",
                   shape->ranks_per_node);
    ls_text_printf(
        text,
        "exec \"$lockstep_program\" agent --coordinator \"$MASTER_ADDR:$MASTER_PORT\" --token-file "
        "\"$lockstep_job/token\" "
        "--slots %u --name \"$SLURMD_NODENAME\"\n"
        "END_OF_NODE\n"
        "export lockstep_job lockstep_program\n"
        "srun --nodes=%u --ntasks=%u --ntasks-per-node=1 --cpu-bind=none%s sh \"$lockstep_job/node.sh\" &\n",
        shape->ranks_per_node, shape->nodes, shape->nodes,
        job->spec.min_ranks < job->spec.ranks ? " --no-kill --kill-on-bad-exit=0" : " --kill-on-bad-exit=1");
}

static void append_program(const ls_job *job, const ls_slurm_shape *shape, ls_text *text)
{
    append_meeting_point(text);
    ls_text_printf(
        text,
        "export WORLD_SIZE=%u LOCAL_WORLD_SIZE=%u\n"
        "srun --nodes=%u --ntasks=%u --ntasks-per-node=%u --kill-on-bad-exit=1 \\\n"
        "    sh -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID NODE_RANK=$SLURM_NODEID exec \"$@\"' rank",
        job->ranks_now, shape->ranks_per_node, shape->nodes, job->ranks_now, shape->ranks_per_node);
    append_words(text, &job->spec.command);
    ls_text_append(text, " &\n");
}

void ls_slurm_script(const ls_slurm_site *site, const ls_job *job, const ls_slurm_shape *shape,
                     ls_text *script)
{
    append_beginning(site, job, script);
    if (job->spec.command.count > 0) {
        append_program(job, shape, script);
    } else {
        append_training(job, shape, script);
    }
    /* A notice interrupts wait; the program still runs then, and is waited for again. */
    ls_text_append(script, "lockstep_step=$!\n"
                           "while :; do\n"
                           "    wait \"$lockstep_step\"\n"
                           "    lockstep_code=$?\n"
                           "    kill -0 \"$lockstep_step\" 2> /dev/null || break\n"
                           "done\n"
                           "finish \"$lockstep_code\"\n");
}

void ls_slurm_array_script(const ls_slurm_site *site, const ls_job *const *jobs, size_t count,
                           ls_text *script)
{
    ls_text_append(script, "#!/bin/sh\n# A sweep as one array. Written by 'lockstep up --engine slurm', for "
                           "sbatch.\nlockstep_home=");
    append_word(script, site->home);
    ls_text_printf(script, "\nexport lockstep_first=%" PRIu64 "\ncase $SLURM_ARRAY_TASK_ID in\n",
                   jobs[0]->id);
    for (size_t i = 0; i < count; i++) {
        ls_text_printf(script,
                       "%zu) lockstep_job=\"$lockstep_home/jobs/%" PRIu64
                       "\"; exec sh \"$lockstep_job/slurm-%u.sh\" >> \"$lockstep_job/log\" 2>&1 ;;\n",
                       i, jobs[i]->id, jobs[i]->epoch);
    }
    ls_text_append(script, "esac\nexit 2\n");
}

/* ---- sbatch ---- */

/* What squeue, logs and mails show: nothing that means something to any of them. */
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

/* Slurm counts minutes; a part of one is one. */
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

/* Only operators may go below 0: high is Slurm's normal. */
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

void ls_slurm_sbatch(const ls_slurm_site *site, const ls_job *const *jobs, size_t count,
                     const ls_slurm_shape *shape, double now_s, ls_arena *arena, const char **argv_out)
{
    const ls_job *job = jobs[0];
    arguments to = {.argv = argv_out};
    add(&to, "sbatch");
    add(&to, "--parsable");
    add(&to, "--export=NIL"); /* the script says which variables there are */
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
    add_resources(site, job, shape, arena, &to);
    add_order(site, job, now_s, arena, &to);
    if (count == 1) {
        add(&to, ls_arena_printf(arena, "--output=%s/log", ls_slurm_job_folder(arena, site, job->id)));
    } else {
        add(&to, "--output=/dev/null"); /* each task writes to its own job's log */
        const uint32_t at_once = job->spec.group_running_max;
        add(&to, at_once ? ls_arena_printf(arena, "--array=0-%zu%%%u", count - 1, at_once)
                         : ls_arena_printf(arena, "--array=0-%zu", count - 1));
    }
}

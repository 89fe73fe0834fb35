// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/slurm/slurm.h"

#include "base/assert.h"
#include "base/hash.h"
#include "env/real/program.h"
#include "orchestration/engines/slurm/slurm_internal.h"
#include "orchestration/engines/slurm/squeue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_S 2.0

enum { DEVICES_MAX = 64 }; /* devices of a node that are counted */

static ls_slurm_engine *engine_of(ls_engine *base)
{
    return (ls_slurm_engine *)base;
}

static ls_slurm_entry *add_entry(ls_slurm_engine *self, const ls_job *job)
{
    ls_slurm_entry *one = ls_slurm_find(self, job->id);
    if (!one) {
        one = calloc(1, sizeof *one);
        LS_ASSERT(one && "not enough memory for a job");
        /* at the end: jobs are submitted in the order in which they came */
        ls_slurm_entry **at = &self->entries;
        while (*at) {
            at = &(*at)->next;
        }
        *at = one;
    }
    ls_env_timer_cancel(self->env, one->grace);
    ls_slurm_entry *next = one->next;
    *one = (ls_slurm_entry){.next = next,
                            .engine = self,
                            .job = job,
                            .id = job->id,
                            .first = job->id,
                            .priority = job->priority,
                            .limit_s = job->spec.time_limit_s,
                            .epoch = job->epoch};
    snprintf(one->account, sizeof one->account, "%s", job->account);
    return one;
}

static void remove_entry(ls_slurm_engine *self, ls_slurm_entry *one)
{
    ls_slurm_entry **at = &self->entries;
    while (*at != one) {
        at = &(*at)->next;
    }
    *at = one->next;
    ls_env_timer_cancel(self->env, one->grace);
    free(one);
}

/* ---- orders ---- */

static const ls_engine_node *slurm_nodes(ls_engine *base, uint32_t *count_out)
{
    *count_out = engine_of(base)->node_count;
    return engine_of(base)->nodes;
}

/* A job that needs more than all nodes have is refused at once; Slurm's other objections come when
 * it gets the job. */
static ls_status slurm_check(ls_engine *base, const ls_job *job)
{
    ls_slurm_engine *self = engine_of(base);
    ls_slurm_shape shape = {0};
    uint64_t fitting = 0;
    LS_TRY(ls_slurm_shape_of(&self->site, job->ranks, job->spec.ranks_per_node, &shape));
    for (uint32_t i = 0; i < self->node_count; i++) {
        fitting += self->nodes[i].devices >=
                   (shape.ranks_per_node < DEVICES_MAX ? shape.ranks_per_node : DEVICES_MAX);
    }
    return fitting >= shape.nodes
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "this job can never run here: it needs %u nodes with %u %s each, and the cluster "
                         "has only %llu such nodes",
                         shape.nodes, shape.ranks_per_node, self->site.has_gpus ? "GPUs" : "cores",
                         (unsigned long long)fitting);
}

static void slurm_start(ls_engine *base, const ls_job *job)
{
    ls_slurm_engine *self = engine_of(base);
    ls_slurm_entry *one = add_entry(self, job);
    if (ls_slurm_shape_of(&self->site, job->ranks_now, job->spec.ranks_per_node, &one->shape) != LS_OK) {
        one->phase = PHASE_ENDED;
        ls_slurm_tell_later(
            self, one, 0,
            (ls_engine_report){.kind = LS_ENGINE_ENDED, .exit_code = 2, .cause = LS_CAUSE_START},
            ls_error_text());
        return;
    }
    /* after this turn of the loop: jobs of one sweep are submitted together */
    ls_slurm_submit_in(self, 0);
}

static void slurm_adopt(ls_engine *base, const ls_job *job)
{
    ls_slurm_engine *self = engine_of(base);
    ls_slurm_entry *one = add_entry(self, job);
    if (!ls_slurm_read_ref(self, one) && ls_slurm_withdraw_ticket(self, one)) {
        /* sbatch did not run, or its answer was lost; without a ticket the job does nothing in
         * Slurm */
        one->phase = PHASE_ENDED;
        ls_slurm_tell_later(self, one, 0, (ls_engine_report){.kind = LS_ENGINE_NEVER}, "");
        return;
    }
    one->phase = PHASE_WAITS;
    one->is_held = job->held;
    one->is_adopted = true;
    ls_slurm_look_in(self, 0);
}

static void slurm_stop(ls_engine *base, const ls_job *job, ls_engine_stop_kind kind)
{
    ls_slurm_engine *self = engine_of(base);
    ls_slurm_entry *one = ls_slurm_find(self, job->id);
    if (!one || one->epoch != job->epoch) {
        return;
    }
    one->is_stopping = true;
    one->is_killed = one->is_killed || kind == LS_STOP_KILL;
    if (one->phase == PHASE_NEW) { /* it was not submitted yet */
        one->phase = PHASE_ENDED;
        ls_slurm_tell_later(self, one, 0, (ls_engine_report){.kind = LS_ENGINE_NEVER}, "");
    } else if (!one->is_adopted) {
        ls_slurm_stop_now(self, one);
    }
    ls_slurm_look_in(self, LS_SLURM_SOON_S);
}

static void slurm_resize(ls_engine *base, const ls_job *job)
{
    ls_slurm_engine *self = engine_of(base);
    const ls_slurm_entry *one = ls_slurm_find(self, job->id);
    if (one) {
        ls_slurm_tell_later(self, one, 0, (ls_engine_report){.kind = LS_ENGINE_RESIZED},
                            "with Slurm, running jobs cannot be resized");
    }
}

/* One "scontrol update" for each term that has changed. */
static void change_terms(ls_slurm_engine *self, ls_slurm_entry *one, const ls_job *job)
{
    ls_arena arena = {0};
    const char *terms[3];
    size_t count = 0;
    if (job->priority != one->priority) {
        terms[count++] = ls_slurm_order(&arena, &self->site, job->priority);
    }
    if (job->spec.time_limit_s != one->limit_s) {
        const double left_s = job->spec.time_limit_s - job->run_s;
        const uint64_t minutes = left_s > 60.0 ? (uint64_t)ceil(left_s / 60.0) : 1;
        terms[count++] = job->spec.time_limit_s > 0.0
                             ? ls_arena_printf(&arena, "TimeLimit=%llu", (unsigned long long)minutes)
                             : "TimeLimit=UNLIMITED";
    }
    if (self->site.account_option && strcmp(job->account, one->account) != 0) {
        terms[count++] = ls_arena_printf(&arena, "Account=%s", job->account);
    }
    one->priority = job->priority;
    one->limit_s = job->spec.time_limit_s;
    snprintf(one->account, sizeof one->account, "%s", job->account);
    for (size_t i = 0; i < count; i++) {
        const char *const words[] = {"scontrol", "update", ls_arena_printf(&arena, "JobId=%s", one->ref),
                                     terms[i], NULL};
        ls_slurm_command(self, 0, words);
    }
    ls_arena_release(&arena);
}

/* The job was held or released, or its terms changed. */
static void slurm_change(ls_engine *base, const ls_job *job)
{
    ls_slurm_engine *self = engine_of(base);
    ls_slurm_entry *one = ls_slurm_find(self, job->id);
    if (one && one->phase == PHASE_NEW && !job->held) {
        ls_slurm_submit_in(self, 0);
    }
    if (!one || one->phase != PHASE_WAITS || !one->ref[0]) {
        return; /* its hold is looked at when it is submitted */
    }
    const bool has_other_terms = job->priority != one->priority || job->spec.time_limit_s != one->limit_s ||
                                 strcmp(job->account, one->account) != 0;
    if (job->held != one->is_held || (!job->held && one->is_held_there && !has_other_terms)) {
        ls_slurm_hold_now(self, one); /* also when it was held in Slurm */
    } else {
        change_terms(self, one, job);
    }
    ls_slurm_look_in(self, LS_SLURM_SOON_S);
}

static void slurm_forget(ls_engine *base, const ls_job *job)
{
    ls_slurm_engine *self = engine_of(base);
    ls_slurm_entry *one = ls_slurm_find(self, job->id);
    if (one) {
        if (one->ref[0] && one->phase != PHASE_ENDED && !one->is_adopted) {
            ls_slurm_cancel(self, one->ref);
        }
        ls_slurm_drop_claims(self, one);
        remove_entry(self, one);
    }
}

/* Jobs keep running. Commands under way end with the loop. */
static void slurm_destroy(ls_engine *base)
{
    ls_slurm_engine *self = engine_of(base);
    while (self->entries) {
        remove_entry(self, self->entries);
    }
    ls_env_timer_cancel(self->env, self->look_timer);
    ls_env_timer_cancel(self->env, self->submit_timer);
    ls_arena_release(&self->arena);
    free(self);
}

static const ls_engine_calls slurm_calls = {
    .name = "slurm",
    .decides = true,
    .nodes = slurm_nodes,
    .check = slurm_check,
    .start = slurm_start,
    .adopt = slurm_adopt,
    .stop = slurm_stop,
    .resize = slurm_resize,
    .change = slurm_change,
    .forget = slurm_forget,
    .destroy = slurm_destroy,
};

/* ---- creating ---- */

static ls_status ask_cluster(ls_arena *arena, ls_slurm_cluster *cluster_out)
{
    ls_program_result answer;
    LS_TRY(ls_program_run(&(ls_program){.argv = ls_slurm_sinfo_argv, .timeout_s = LS_SLURM_ANSWER_S}, arena,
                          &answer));
    if (answer.exit_code != 0) {
        return ls_fail(LS_ERR_FAILED,
                       "Slurm does not respond (sinfo: %s); is slurmctld running, and does SLURM_CONF name "
                       "its configuration?",
                       ls_slurm_words(arena, answer.error));
    }
    return ls_slurm_cluster_read(arena, answer.output, cluster_out);
}

ls_status ls_slurm_engine_check(void)
{
    ls_arena arena = {0};
    ls_slurm_cluster cluster;
    const ls_status status = ask_cluster(&arena, &cluster);
    ls_arena_release(&arena);
    return status;
}

/* The leaf switch of a node would need `scontrol show topology`; it is not asked because Slurm
 * places the jobs. */
static void take_nodes(ls_slurm_engine *self, const ls_slurm_cluster *cluster)
{
    self->nodes = ls_arena_new(&self->arena, ls_engine_node, cluster->node_count);
    self->node_count = (uint32_t)cluster->node_count;
    for (size_t i = 0; i < cluster->node_count; i++) {
        self->site.has_gpus = self->site.has_gpus || cluster->nodes[i].gpus > 0;
    }
    for (size_t i = 0; i < cluster->node_count; i++) {
        const ls_slurm_node *node = &cluster->nodes[i];
        uint32_t devices = self->site.has_gpus ? node->gpus : node->cpus;
        self->site.node_devices = devices > self->site.node_devices ? devices : self->site.node_devices;
        devices = devices < 1 ? 1 : devices > DEVICES_MAX ? DEVICES_MAX : devices;
        self->nodes[i] = (ls_engine_node){.name = node->name,
                                          .kind = node->gpus ? node->gpu_kind : "cpu",
                                          .devices = devices,
                                          .island_devices = devices,
                                          .cpus = node->cpus,
                                          .memory_mib = node->memory_mib};
    }
}

/* Partitions named low, normal and high stand for priorities: all three, or none is used. */
static void take_partitions(ls_slurm_engine *self, const ls_slurm_cluster *cluster)
{
    const char *found[3] = {NULL};
    for (size_t i = 0; i < cluster->partition_count; i++) {
        for (int p = 0; p < 3; p++) {
            const char *name = ls_priority_name((ls_priority)p);
            found[p] = strcmp(cluster->partitions[i], name) == 0 ? name : found[p];
        }
    }
    for (int p = 0; p < 3 && found[0] && found[1] && found[2]; p++) {
        self->site.partitions[p] = found[p];
    }
}

ls_status ls_slurm_engine_create(ls_env *env, const ls_slurm_settings *settings, ls_engine_hear hear,
                                 void *context, ls_engine **engine_out)
{
    ls_slurm_engine *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for an engine");
    *self = (ls_slurm_engine){.base = {.calls = &slurm_calls}, .env = env, .hear = hear, .context = context};
    ls_slurm_cluster cluster;
    const ls_status status = ask_cluster(&self->arena, &cluster);
    if (status != LS_OK) {
        ls_arena_release(&self->arena);
        free(self);
        return status;
    }
    self->poll_s = settings->poll_s > 0 ? settings->poll_s : POLL_S;
    self->site.home = ls_arena_strdup(&self->arena, settings->home);
    self->site.program = ls_arena_strdup(&self->arena, settings->program);
    self->site.home_id = ls_xxh3(settings->home, strlen(settings->home), 0);
    self->site.is_root = geteuid() == 0;
    self->site.account_option = settings->use_accounts ? "account" : NULL;
    const char *conf = getenv("SLURM_CONF");
    self->site.slurm_conf = conf ? ls_arena_strdup(&self->arena, conf) : NULL;
    take_nodes(self, &cluster);
    take_partitions(self, &cluster);
    ls_slurm_look_in(self, LS_SLURM_NODES_S);
    *engine_out = &self->base;
    return LS_OK;
}

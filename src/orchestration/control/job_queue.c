// SPDX-License-Identifier: Apache-2.0
/* Jobs and accounts as the policy sees them. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- machines ---- */

static uint16_t kind_of(ls_policy_cluster *cluster, const char *name)
{
    for (uint32_t i = 0; i < cluster->kind_count; i++) {
        if (strcmp(cluster->kinds[i], name) == 0) {
            return (uint16_t)i;
        }
    }
    if (cluster->kind_count < LS_TOPOLOGY_KINDS_MAX) {
        cluster->kinds[cluster->kind_count++] = name;
    }
    return (uint16_t)(cluster->kind_count - 1);
}

static void describe(const ls_controller *c, ls_arena *arena, ls_policy_cluster *cluster)
{
    *cluster = (ls_policy_cluster){.kinds = ls_arena_new(arena, const char *, LS_TOPOLOGY_KINDS_MAX),
                                   .nodes = ls_arena_new(arena, ls_node_spec, c->place_count + 1),
                                   .node_count = c->place_count};
    for (uint32_t i = 0; i < c->place_count; i++) {
        cluster->nodes[i] = ls_place_spec(c, i);
        cluster->nodes[i].kind = kind_of(cluster, c->nodes[c->places[i].node].kind);
    }
}

ls_status ls_queue_create(ls_controller *c)
{
    if (c->decides) {
        return LS_OK;
    }
    ls_policy_settings settings = ls_policy_settings_default();
    LS_TRY(ls_order_parse(c->settings.order, &settings.order));
    settings.preempt = c->settings.preempt;
    settings.half_life_ms = ls_controller_ms(c->settings.half_life_s);
    settings.min_run_ms = ls_controller_ms(c->settings.min_run_s);
    settings.resize_pause_ms = ls_controller_ms(c->settings.resize_pause_s);
    settings.reservations = c->settings.reservations;
    settings.jobs_max = c->settings.jobs_max;
    settings.accounts_max = LS_ACCOUNTS_MAX;
    ls_arena arena = {0};
    ls_policy_cluster cluster;
    describe(c, &arena, &cluster);
    const ls_status status = ls_policy_create(&cluster, &settings, &c->policy);
    ls_arena_release(&arena);
    return status;
}

/* ---- accounts ---- */

static uint64_t limit(uint32_t devices)
{
    return devices == UINT32_MAX ? LS_UNLIMITED : devices;
}

static uint32_t index_of(const ls_controller *c, const char *name)
{
    uint32_t index = 0;
    while (index < c->account_count && strcmp(c->accounts[index]->account.name, name) != 0) {
        index++;
    }
    return index;
}

ls_account_entry *ls_queue_account_of(const ls_controller *c, const ls_job *job)
{
    const uint32_t index = index_of(c, job->account);
    return index < c->account_count ? c->accounts[index] : NULL;
}

uint32_t ls_queue_account_index(const ls_controller *c, const ls_job *job)
{
    return index_of(c, job->account);
}

void ls_queue_set_account(ls_controller *c, const ls_account_entry *entry, bool with_usage)
{
    if (!c->policy) {
        return;
    }
    const ls_account *account = &entry->account;
    const uint32_t index = index_of(c, account->name);
    ls_policy_account value = ls_policy_account_default();
    value.weight = account->weight;
    value.quota[LS_RESOURCE_DEVICES] = (ls_quota){.nominal = limit(account->quota),
                                                  .borrow_max = limit(account->borrow),
                                                  .lend_max = limit(account->lend)};
    /* The numbers were checked when they came in. */
    LS_ASSERT(ls_policy_account_set(c->policy, ls_controller_ms(c->time_s), index, &value) == LS_OK);
    if (with_usage && account->share_at_ms > 0) {
        const ls_policy_usage usage = {
            .share_ms = {account->share_ms[0], account->share_ms[1], account->share_ms[2]},
            .at_ms = account->share_at_ms,
        };
        LS_ASSERT(ls_policy_usage_set(c->policy, index, &usage) == LS_OK);
    }
}

/* A deleted account begins anew: what it had used is forgotten. */
static void create_again(ls_controller *c, uint32_t index)
{
    ls_account_entry *entry = c->accounts[index];
    const ls_policy_usage none = {.at_ms = ls_controller_ms(c->time_s)};
    entry->account.is_deleted = false;
    entry->is_changed = true;
    ls_queue_set_account(c, entry, false);
    if (c->policy) {
        LS_ASSERT(ls_policy_usage_set(c->policy, index, &none) == LS_OK);
    }
}

ls_status ls_queue_account(ls_controller *c, const char *name, ls_account_entry **account_out)
{
    const uint32_t index = index_of(c, name);
    const bool was_deleted = index < c->account_count && c->accounts[index]->account.is_deleted;
    if (index == c->account_count || was_deleted) {
        if (c->settings.strict_accounts) {
            return ls_fail(
                LS_ERR_INVALID,
                "account '%s' does not exist; 'lockstep accounts' lists them, and an administrator "
                "can create one",
                name);
        }
        if (was_deleted) {
            create_again(c, index);
            *account_out = c->accounts[index];
            return LS_OK;
        }
        if (c->account_count == LS_ACCOUNTS_MAX) {
            return ls_fail(LS_ERR_INVALID,
                           "cannot create account '%s': there are already %d accounts, which is the limit",
                           name, LS_ACCOUNTS_MAX);
        }
        ls_account_entry *entry = calloc(1, sizeof *entry);
        c->accounts = realloc(c->accounts, (c->account_count + 1) * sizeof(ls_account_entry *));
        LS_ASSERT(entry && c->accounts && "not enough memory for an account");
        entry->account = ls_account_default();
        snprintf(entry->account.name, sizeof entry->account.name, "%s", name);
        entry->is_changed = true;
        c->accounts[c->account_count++] = entry;
    }
    *account_out = c->accounts[index];
    return LS_OK;
}

/* ---- jobs ---- */

ls_job_state ls_queue_state_of(const ls_controller *c, uint64_t id)
{
    const ls_entry *entry = ls_controller_find(c, id);
    return entry ? entry->job->state : c->calls.old_state(c->calls.context, id);
}

uint32_t ls_queue_after(const ls_controller *c, const ls_job *job, uint64_t *after_out, uint64_t *doomed_out)
{
    uint32_t count = 0;
    *doomed_out = 0;
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        const uint64_t id = job->spec.after[i];
        const ls_job_state state = ls_queue_state_of(c, id);
        if (state != LS_JOB_STATES && !ls_job_state_is_final(state)) {
            after_out[count++] = id;
        } else if (!job->spec.after_any && state != LS_JOB_SUCCEEDED) {
            *doomed_out = id;
        }
    }
    return count;
}

/*
 * How much faster a job is at each number of ranks than at spec.min_ranks, in thousandths: as
 * planned, or else estimated from the fact that a step takes as many rounds as its busiest rank has
 * leaves.
 */
static uint32_t fill_gains(const ls_job *job, uint32_t gains[LS_GAINS_MAX])
{
    const ls_job_spec *spec = &job->spec;
    const uint32_t min = spec->min_ranks, leaves = spec->leaves;
    if (leaves == 0 || spec->max_ranks == min) {
        return 0;
    }
    uint32_t count = 0;
    for (uint32_t ranks = min; ranks <= spec->max_ranks && count < LS_GAINS_MAX; ranks++) {
        const uint32_t rounds_min = (leaves + min - 1) / min, rounds = (leaves + ranks - 1) / ranks;
        const uint32_t planned = ls_foresight_speed(job, ranks);
        gains[count++] = planned ? planned : rounds_min * 1000 / rounds;
    }
    return count;
}

uint64_t ls_queue_limit_left_ms(const ls_job *job)
{
    const double limit_s = job->spec.time_limit_s;
    if (limit_s <= 0.0) {
        return 0;
    }
    return job->run_s + 0.001 < limit_s ? ls_controller_ms(limit_s - job->run_s) : 1;
}

static uint64_t hash_of_group(const ls_job *job)
{
    if (!job->spec.group[0]) {
        return 0;
    }
    const uint64_t seed = ls_xxh3(job->account, strlen(job->account), 0);
    const uint64_t hash = ls_xxh3(job->spec.group, strlen(job->spec.group), seed);
    return hash ? hash : 1;
}

static ls_policy_job describe_job(const ls_controller *c, const ls_job *job)
{
    const ls_job_spec *spec = &job->spec;
    const uint64_t submitted_ms = ls_controller_ms(job->submitted_s);
    ls_policy_job value = ls_policy_job_default();
    value.id = job->id;
    value.account = index_of(c, job->account);
    value.user = job->uid;
    value.priority = (uint8_t)job->priority;
    value.ranks = job->ranks;
    value.min_ranks = ls_job_ranks_min(job);
    value.max_ranks = ls_job_ranks_max(job);
    value.devices_per_node = spec->ranks_per_node;
    value.cpus_per_rank = spec->cpus_per_rank;
    value.memory_mib_per_rank = spec->memory_mib_per_rank;
    value.required = (ls_level)spec->required;
    value.preferred = (ls_level)spec->preferred;
    value.spot = spec->spot;
    value.preemptible = spec->restartable;
    value.submit_ms = submitted_ms;
    value.begin_ms = spec->begin_s > 0.0 ? submitted_ms + ls_controller_ms(spec->begin_s) : 0;
    value.limit_ms = ls_queue_limit_left_ms(job);
    value.expected_ms = ls_controller_ms(job->plan.run_s);
    value.deadline_ms = spec->deadline_s > 0.0 ? submitted_ms + ls_controller_ms(spec->deadline_s) : 0;
    value.group = hash_of_group(job);
    value.group_running_max = spec->group_running_max;
    value.after_any = spec->after_any;
    value.dataset = spec->data_hash;
    value.held = ls_job_is_kept(job) && !ls_job_has_devices(job);
    return value;
}

/* Adds a job that has devices already. */
static ls_status add_running(ls_controller *c, const ls_job *job, const ls_policy_job *value)
{
    ls_share *shares = calloc(job->share_count, sizeof *shares);
    LS_ASSERT(shares && "not enough memory for devices");
    for (uint32_t i = 0; i < job->share_count; i++) {
        shares[i] = (ls_share){.node = job->shares[i].node, .devices = job->shares[i].devices};
    }
    const ls_policy_running running = {
        .shares = shares,
        .share_count = job->share_count,
        .ranks = job->ranks_now,
        .started_ms = ls_controller_ms(job->started_s > 0.0 ? job->started_s : c->time_s),
        .checkpoint_ms = ls_controller_ms(job->saved_s),
        .attained_device_ms = job->allocated_device_ms,
        .preemptions = job->preemptions,
    };
    const ls_status status =
        ls_policy_restore_running(c->policy, ls_controller_ms(c->time_s), value, &running);
    free(shares);
    return status;
}

/* The policy sees a job of its own that cannot be stopped, with as many ranks as devices remain. */
void ls_queue_withhold(ls_controller *c, ls_entry *entry)
{
    const ls_job *job = entry->job;
    ls_job_share *there = NULL;
    bool is_all = false;
    const uint32_t count = ls_places_there(c, job, &there, &is_all);
    ls_share *shares = calloc((size_t)count + 1, sizeof *shares);
    LS_ASSERT(shares && "not enough memory for devices");
    ls_policy_job value = ls_policy_job_default();
    value.ranks = 0;
    for (uint32_t i = 0; i < count; i++) {
        shares[i] = (ls_share){.node = there[i].node, .devices = there[i].devices};
        value.ranks += (uint32_t)__builtin_popcountll(there[i].devices);
    }
    value.id = job->id | LS_WITHHELD_BIT;
    value.account = index_of(c, job->account);
    value.user = job->uid;
    value.priority = (uint8_t)job->priority;
    value.min_ranks = value.max_ranks = value.ranks;
    value.spot = true; /* the node may be a spot node */
    value.preemptible = false;
    value.submit_ms = ls_controller_ms(job->submitted_s);
    const ls_policy_running running = {
        .shares = shares,
        .share_count = count,
        .ranks = value.ranks,
        .started_ms = ls_controller_ms(job->started_s > 0.0 ? job->started_s : c->time_s),
    };
    if (value.ranks > 0) {
        entry->withholds =
            ls_policy_restore_running(c->policy, ls_controller_ms(c->time_s), &value, &running) == LS_OK;
    }
    free(shares);
    free(there);
}

void ls_queue_give_back(ls_controller *c, ls_entry *entry)
{
    if (entry->withholds) {
        LS_ASSERT(ls_policy_ended(c->policy, ls_controller_ms(c->time_s), entry->job->id | LS_WITHHELD_BIT,
                                  true) == LS_OK);
    }
    entry->withholds = false;
}

void ls_queue_set_aside(ls_controller *c, ls_entry *entry, const char *stage, const char *text)
{
    const ls_job *job = entry->job;
    char *kept = NULL;
    const uint32_t least = job->spec.min_ranks < job->ranks ? job->spec.min_ranks : job->ranks;
    if (text && least > c->device_count) {
        const int bytes = asprintf(&kept,
                                   "it needs %u devices, but there are only %u now: it waits until there are "
                                   "more, or until 'lockstep resize' gives it fewer",
                                   least, c->device_count);
        kept = bytes > 0 ? kept : NULL;
    } else if (text) {
        kept = strdup(text);
    }
    free(entry->stage);
    free(entry->stage_text);
    entry->stage = strdup(stage);
    entry->stage_text = kept;
    entry->in_policy = false;
}

/* The policy treats a job that it does not know as one that has succeeded, so a job must not reach
 * it before the jobs it waits for. */
static bool waits_for_set_aside(const ls_controller *c, const ls_job *job)
{
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        const ls_entry *other = ls_controller_find(c, job->spec.after[i]);
        if (other && !other->in_policy && !ls_job_state_is_final(other->job->state)) {
            return true;
        }
    }
    return false;
}

void ls_queue_try_again(ls_controller *c)
{
    /* By number: a job has a higher number than those it waits for. */
    for (uint32_t i = 0; c->policy && i < c->entry_count; i++) {
        ls_entry *entry = c->entries[i];
        uint64_t after[LS_JOB_AFTER_MAX], doomed = 0;
        if (entry->in_policy || !ls_job_state_is_waiting(entry->job->state)) {
            continue;
        }
        ls_queue_after(c, entry->job, after, &doomed);
        if (doomed) {
            ls_transitions_end(c, entry, LS_JOB_FAILED, LS_CAUSE_DEPENDENCY,
                               "a job it depends on did not succeed");
        } else if (ls_queue_add(c, entry) != LS_OK) {
            ls_queue_set_aside(c, entry, "impossible", ls_error_text());
            ls_error_clear();
        }
    }
}

ls_status ls_queue_add(ls_controller *c, ls_entry *entry)
{
    const ls_job *job = entry->job;
    uint64_t after[LS_JOB_AFTER_MAX], doomed = 0;
    uint32_t gains[LS_GAINS_MAX];
    const uint32_t after_count = ls_queue_after(c, job, after, &doomed);
    if (doomed && !ls_job_has_devices(job)) {
        return ls_fail(
            LS_ERR_INVALID,
            "this job can never start: it waits for the success of job %llu, which ended without success",
            (unsigned long long)doomed);
    }
    if (!c->policy) {
        return c->engine->calls->check ? c->engine->calls->check(c->engine, job) : LS_OK;
    }
    if (!ls_job_has_devices(job) && waits_for_set_aside(c, job)) {
        ls_queue_set_aside(c, entry, "dependency", NULL);
        return LS_OK;
    }
    ls_policy_job value = describe_job(c, job);
    LS_TRY(ls_places_adapt(c, &value));
    value.after = after;
    value.after_count = after_count;
    value.gain_permille = gains;
    value.gain_count = fill_gains(job, gains);
    LS_TRY(ls_job_has_devices(job) ? add_running(c, job, &value)
                                   : ls_policy_submit(c->policy, ls_controller_ms(c->time_s), &value));
    entry->in_policy = true;
    ls_foresight_tell(c, entry);
    return LS_OK;
}

/* The policy can only refuse news about a job that it has if the controller made a mistake. */
static void sure(ls_status status)
{
    LS_ASSERT(status == LS_OK);
}

void ls_queue_again(ls_controller *c, ls_entry *entry)
{
    if (!c->policy || !entry->in_policy) {
        return;
    }
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    const ls_job *job = entry->job;
    sure(ls_policy_requeued(c->policy, now_ms, job->id));
    sure(ls_policy_hold(c->policy, now_ms, job->id, ls_job_is_kept(job)));
    const uint64_t left_ms = ls_queue_limit_left_ms(job);
    if (left_ms > 0) {
        sure(ls_policy_change(c->policy, now_ms, job->id, LS_CHANGE_LIMIT, left_ms));
    }
}

void ls_queue_remove(ls_controller *c, ls_entry *entry, bool succeeded)
{
    if (c->policy && entry->in_policy) {
        sure(ls_policy_ended(c->policy, ls_controller_ms(c->time_s), entry->job->id, succeeded));
    }
    entry->in_policy = false;
}

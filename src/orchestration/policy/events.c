// SPDX-License-Identifier: Apache-2.0
/* What callers report: jobs that are submitted, end or change; nodes; data. */
#include "orchestration/policy/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- helpers ---- */

static ls_status find_job(const ls_policy *policy, uint64_t id, uint32_t *slot_out)
{
    const uint32_t slot = ls_index_find(&policy->ids, id);
    if (slot == NO_SLOT) {
        return ls_fail(LS_ERR_NOT_FOUND, "job %" PRIu64 " does not exist", id);
    }
    *slot_out = slot;
    return LS_OK;
}

static void join_group(ls_policy *policy, uint64_t id)
{
    uint32_t index = ls_index_find(&policy->group_ids, id);
    if (index == NO_SLOT) {
        index = policy->groups_free[--policy->groups_free_count];
        policy->groups[index] = (group){0};
        ls_index_put(&policy->group_ids, id, index);
    }
    policy->groups[index].members++;
}

static void leave_group(ls_policy *policy, uint64_t id)
{
    const uint32_t index = ls_index_find(&policy->group_ids, id);
    if (--policy->groups[index].members == 0) {
        ls_index_remove(&policy->group_ids, id);
        policy->groups_free[policy->groups_free_count++] = index;
    }
}

/* ---- what a job may ask for ---- */

static ls_status check_account(const ls_policy *policy, uint32_t index)
{
    return index < policy->settings.accounts_max ? LS_OK
                                                 : ls_fail(LS_ERR_INVALID,
                                                           "account number %u does not exist: the scheduler "
                                                           "has room for %u accounts, counted from 0",
                                                           index, policy->settings.accounts_max);
}

static ls_status refuse(const char *what)
{
    return ls_fail(LS_ERR_INVALID, "the job: %s", what);
}

static ls_status check_sizes(const ls_policy_job *spec)
{
    const uint32_t multiple = spec->ranks_multiple;
    if (spec->min_ranks < 1 || spec->min_ranks > spec->ranks || spec->ranks > spec->max_ranks) {
        return ls_fail(LS_ERR_INVALID,
                       "ranks is %u with min_ranks %u and max_ranks %u; 1 <= min_ranks <= ranks <= max_ranks "
                       "is required",
                       spec->ranks, spec->min_ranks, spec->max_ranks);
    }
    if (multiple < 1 || spec->ranks % multiple || spec->min_ranks % multiple || spec->max_ranks % multiple) {
        return ls_fail(LS_ERR_INVALID, "min_ranks %u, ranks %u and max_ranks %u must all be multiples of %u",
                       spec->min_ranks, spec->ranks, spec->max_ranks, multiple);
    }
    if (spec->devices_per_node > 0 && multiple % spec->devices_per_node != 0 &&
        (spec->min_ranks != spec->max_ranks || spec->ranks % spec->devices_per_node != 0)) {
        return ls_fail(
            LS_ERR_INVALID,
            "the job asks for %u devices on each node, but its number of ranks is not a multiple of that",
            spec->devices_per_node);
    }
    return LS_OK;
}

static ls_status check_job(const ls_policy *policy, const ls_policy_job *spec)
{
    if (spec->id == 0) {
        return refuse("its id must not be 0");
    }
    if (spec->account >= policy->settings.accounts_max) {
        return ls_fail(
            LS_ERR_INVALID,
            "a job's account has number %u, but the scheduler has room for only %u accounts, counted from 0",
            spec->account, policy->settings.accounts_max);
    }
    if (spec->priority >= LS_PRIORITIES) {
        return refuse("priority must be 0 (low), 1 (normal) or 2 (high)");
    }
    if ((unsigned)spec->required >= LS_LEVEL_COUNT || (unsigned)spec->preferred >= LS_LEVEL_COUNT) {
        return refuse("\"required\" and \"preferred\" must be levels of the cluster (island, node, leaf, "
                      "spine, cluster)");
    }
    if (spec->kind < -1 || spec->kind >= LS_TOPOLOGY_KINDS_MAX) {
        return refuse("the cluster has no such kind of device");
    }
    if (spec->cpus_per_rank > 1u << 20 || spec->memory_mib_per_rank > 1u << 30) {
        return refuse("the number of cores or the memory per rank is out of range");
    }
    if (spec->after_count > LS_AFTER_MAX || (spec->after_count > 0 && !spec->after)) {
        return ls_fail(LS_ERR_INVALID, "the job depends on %u other jobs; at most %d are allowed",
                       spec->after_count, LS_AFTER_MAX);
    }
    return check_sizes(spec);
}

/* "4 devices with 8 cores and 1024 MiB each", as far as it asks for them. */
static void name_needs(const job *j, char *text, size_t room)
{
    const uint32_t cpus = j->spec.cpus_per_rank, mib = j->spec.memory_mib_per_rank;
    int at = snprintf(text, room, "%u device%s", j->spec.min_ranks, j->spec.min_ranks == 1 ? "" : "s");
    if (cpus > 0) {
        at += snprintf(text + at, room - (size_t)at, " with %u core%s", cpus, cpus == 1 ? "" : "s");
    }
    if (mib > 0) {
        at += snprintf(text + at, room - (size_t)at, "%s %u MiB", cpus > 0 ? " and" : " with", mib);
    }
    if ((cpus > 0 || mib > 0) && j->spec.min_ranks > 1) {
        snprintf(text + at, room - (size_t)at, " each");
    }
}

static ls_status refuse_quota(const ls_policy *policy, const job *j, const char *needs)
{
    const ls_quota *quota = &policy->accounts[j->spec.account].settings.quota[LS_RESOURCE_DEVICES];
    if (j->spec.min_ranks > add_u64(quota->nominal, quota->borrow_max)) {
        return ls_fail(LS_ERR_INVALID,
                       "this job can never run here: it needs %s, and its account can use at most %" PRIu64
                       ", including what it may borrow from other accounts",
                       needs, add_u64(quota->nominal, quota->borrow_max));
    }
    const uint64_t others = ls_quota_of_others(policy, j->spec.account, LS_RESOURCE_DEVICES);
    if (others > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "this job can never run here: it needs %s, and other accounts keep %" PRIu64
                       " of all %" PRIu64 " devices for themselves (their quotas, minus what they lend)",
                       needs, others, policy->places.capacity[LS_RESOURCE_DEVICES]);
    }
    return ls_fail(LS_ERR_INVALID,
                   "this job can never run here: it needs %s, which is more than its account can ever use",
                   needs);
}

/* Too few nodes have as many devices as it wants on each. */
static ls_status refuse_per_node(const ls_policy *policy, const job *j, const ls_gang_shape *shape)
{
    const uint32_t wanted = j->spec.min_ranks / shape->per_node;
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < policy->places.node_count; i++) {
        nodes += ls_shape_fit(&policy->whole, shape, i) > 0;
    }
    return ls_fail(LS_ERR_INVALID,
                   "this job can never run here: it needs %u node%s with %u device%s each "
                   "(job.ranks_per_node), and there %s %u such node%s",
                   wanted, wanted == 1 ? "" : "s", shape->per_node, shape->per_node == 1 ? "" : "s",
                   nodes == 1 ? "is" : "are", nodes, nodes == 1 ? "" : "s");
}

/* Whether it could run if nothing else did, as small as it may be. */
ls_status ls_job_check_possible(ls_policy *policy, const job *j)
{
    const ls_gang_shape shape = ls_job_shape(policy, j);
    const bool allowed = ls_quota_ever(policy, j, j->spec.min_ranks);
    if (allowed && ls_job_find(policy, &policy->whole, &shape, j->spec.min_ranks, &policy->plan)) {
        return LS_OK;
    }
    char needs[128];
    uint32_t most[LS_LEVEL_COUNT];
    name_needs(j, needs, sizeof needs);
    if (!allowed) {
        return refuse_quota(policy, j, needs);
    }
    ls_shape_free_most(&policy->whole, &shape, most);
    if (shape.per_node > 0 && shape.required == LS_LEVEL_CLUSTER) {
        return refuse_per_node(policy, j, &shape);
    }
    if (shape.required == LS_LEVEL_CLUSTER) {
        return ls_fail(LS_ERR_INVALID,
                       "this job can never run here: it needs %s, and there are only %u that it may use",
                       needs, most[LS_LEVEL_CLUSTER]);
    }
    return ls_fail(
        LS_ERR_INVALID,
        "this job can never run here: it needs %s in one %s, and the largest has only %u that it may use",
        needs, ls_level_name(shape.required), most[shape.required]);
}

/* ---- submit ---- */

static void keep_gains(job *j, const ls_policy_job *spec)
{
    const uint32_t given = spec->gain_permille ? spec->gain_count : 0;
    j->gain_count = given < LS_GAINS_MAX ? given : LS_GAINS_MAX;
    for (uint32_t i = 0; i < j->gain_count; i++) {
        const uint64_t at = given <= LS_GAINS_MAX ? i : (uint64_t)i * (given - 1) / (LS_GAINS_MAX - 1);
        j->gain[i] = spec->gain_permille[at];
    }
}

static void add_edge(ls_policy *policy, uint32_t on, uint32_t waits)
{
    const uint32_t index = policy->edge_free;
    policy->edge_free = policy->edges[index].next;
    policy->edges[index] = (edge){.job = waits, .next = policy->jobs[on].edges};
    policy->jobs[on].edges = index;
    policy->jobs[waits].waits_for++;
    policy->edges_used++;
}

static void add_dependencies(ls_policy *policy, uint32_t slot, const ls_policy_job *spec)
{
    for (uint32_t i = 0; i < spec->after_count; i++) {
        const uint32_t on = ls_index_find(&policy->ids, spec->after[i]);
        if (on != NO_SLOT && on != slot) {
            add_edge(policy, on, slot);
        }
    }
}

/* runs: it runs already; otherwise it must be possible for it to run. */
static ls_status add_job(ls_policy *policy, uint64_t now_ms, const ls_policy_job *spec, bool runs,
                         uint32_t *slot_out)
{
    LS_TRY(check_job(policy, spec));
    if (ls_index_find(&policy->ids, spec->id) != NO_SLOT) {
        return refuse("the queue already has a job with this id");
    }
    if (policy->jobs_free_count == 0 || policy->edges_used + spec->after_count > policy->edge_count) {
        return ls_fail(LS_ERR_MEMORY, "the queue is full: it has %u jobs", policy->settings.jobs_max);
    }
    const uint32_t slot = policy->jobs_free[policy->jobs_free_count - 1];
    job *j = &policy->jobs[slot];
    *j = (job){.spec = *spec,
               .shares = NO_SLOT,
               .leaving = NO_SLOT,
               .for_job = NO_SLOT,
               .edges = NO_SLOT,
               .pending_ms = now_ms,
               .left_ms = spec->expected_ms};
    j->spec.after = NULL;
    j->spec.gain_permille = NULL;
    const ls_status status = runs ? LS_OK : ls_job_check_possible(policy, j);
    if (status != LS_OK) {
        *j = (job){.shares = NO_SLOT, .leaving = NO_SLOT, .for_job = NO_SLOT, .edges = NO_SLOT};
        return status;
    }
    policy->jobs_free_count--;
    policy->jobs_used = slot + 1 > policy->jobs_used ? slot + 1 : policy->jobs_used;
    keep_gains(j, spec);
    ls_index_put(&policy->ids, spec->id, slot);
    ls_account_touch(policy, spec->account);
    if (spec->group) {
        join_group(policy, spec->group);
    }
    add_dependencies(policy, slot, spec);
    *slot_out = slot;
    return LS_OK;
}

ls_status ls_policy_submit(ls_policy *policy, uint64_t now_ms, const ls_policy_job *spec)
{
    uint32_t slot = 0;
    LS_TRY(add_job(policy, now_ms, spec, false, &slot));
    policy->jobs[slot].state = JOB_PENDING;
    ls_order_add(policy, slot);
    return LS_OK;
}

/* ---- restore ---- */

static ls_status check_shares(ls_policy *policy, const ls_policy_running *running, ls_placement *plan)
{
    plan->count = 0;
    plan->ranks = running->ranks;
    uint32_t devices = 0;
    if (policy->settings.pooled) {
        return running->ranks <= policy->pooled_free
                   ? LS_OK
                   : ls_fail(
                         LS_ERR_INVALID,
                         "a job that ran before the daemon's restart has %u devices, but only %u are free",
                         running->ranks, policy->pooled_free);
    }
    for (uint32_t i = 0; i < running->share_count; i++) {
        const ls_share *share = &running->shares[i];
        if (share->node >= policy->places.node_count || plan->count == policy->places.node_count) {
            return ls_fail(LS_ERR_INVALID,
                           "a job that ran before the daemon's restart is on node %u, but there are only %u "
                           "nodes, counted from 0",
                           share->node, policy->places.node_count);
        }
        const uint32_t place = policy->places.place_of[share->node];
        uint64_t taken = ~policy->map.free[place];
        for (uint32_t k = 0; k < plan->count; k++) {
            taken |= plan->pieces[k].place == place ? UINT64_MAX : 0;
        }
        if (share->devices == 0 || (share->devices & taken)) {
            return ls_fail(LS_ERR_INVALID,
                           "a job that ran before the daemon's restart has devices (bit mask 0x%" PRIx64
                           ") of node %u that another job uses or that do not exist",
                           share->devices, share->node);
        }
        plan->pieces[plan->count++] = (ls_gang_piece){.place = place, .devices = share->devices};
        devices += bits_of(share->devices);
    }
    return devices == running->ranks ? LS_OK
                                     : ls_fail(LS_ERR_INVALID,
                                               "a job that ran before the daemon's restart has %u ranks on "
                                               "%u devices; there must be one device per rank",
                                               running->ranks, devices);
}

ls_status ls_policy_restore_running(ls_policy *policy, uint64_t now_ms, const ls_policy_job *job_in,
                                    const ls_policy_running *running)
{
    uint32_t slot = 0;
    if (running->ranks == 0) {
        return refuse("a running job must have ranks");
    }
    LS_TRY(check_shares(policy, running, &policy->try_plan));
    LS_TRY(add_job(policy, now_ms, job_in, true, &slot));
    job *j = &policy->jobs[slot];
    ls_job_take(policy, now_ms, slot, &policy->try_plan);
    j->state = JOB_RUNNING;
    j->started = true;
    j->started_ms = ls_min_u64(running->started_ms, now_ms);
    j->attained_ms = j->started_ms;
    j->checkpoint_ms = running->checkpoint_ms;
    j->attained_device_ms = running->attained_device_ms;
    j->preemptions = running->preemptions;
    j->window_ms = now_ms;
    policy->restored_any = true;
    policy->quota_lowered = true; /* the quota may have changed since it started */
    ls_group_count(policy, j, 1);
    ls_running_add(policy, slot);
    return LS_OK;
}

/* ---- life of a job ---- */

ls_status ls_policy_started(ls_policy *policy, uint64_t now_ms, uint64_t id)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    job *j = &policy->jobs[slot];
    if (j->state != JOB_RUNNING) {
        return ls_fail(LS_ERR_INVALID, "job %" PRIu64 " was not told to start", id);
    }
    if (!j->started) {
        ls_job_advance(j, now_ms);
        j->started = true;
        j->started_ms = j->resized_ms = now_ms;
    }
    return LS_OK;
}

static void tell_dependents(ls_policy *policy, job *j, bool succeeded)
{
    while (j->edges != NO_SLOT) {
        const uint32_t index = j->edges;
        job *waits = &policy->jobs[policy->edges[index].job];
        waits->waits_for--;
        waits->failed_before |= !succeeded && !waits->spec.after_any;
        j->edges = policy->edges[index].next;
        policy->edges[index].next = policy->edge_free;
        policy->edge_free = index;
        policy->edges_used--;
    }
}

/* Removes its dependencies. */
static void drop_waits(ls_policy *policy, uint32_t slot)
{
    job *j = &policy->jobs[slot];
    for (uint32_t i = 0; j->waits_for > 0 && i < policy->jobs_used; i++) {
        uint32_t *link = &policy->jobs[i].edges;
        while (policy->jobs[i].state != JOB_GONE && *link != NO_SLOT) {
            const uint32_t index = *link;
            if (policy->edges[index].job != slot) {
                link = &policy->edges[index].next;
                continue;
            }
            *link = policy->edges[index].next;
            policy->edges[index].next = policy->edge_free;
            policy->edge_free = index;
            policy->edges_used--;
            j->waits_for--;
        }
    }
}

void ls_job_remove(ls_policy *policy, uint64_t now_ms, uint32_t slot, bool succeeded)
{
    job *j = &policy->jobs[slot];
    if (j->state != JOB_PENDING) {
        ls_job_give_all(policy, now_ms, slot);
        ls_group_count(policy, j, -1);
    }
    tell_dependents(policy, j, succeeded);
    drop_waits(policy, slot);
    if (j->spec.group) {
        leave_group(policy, j->spec.group);
    }
    ls_index_remove(&policy->ids, j->spec.id);
    *j = (job){.shares = NO_SLOT, .leaving = NO_SLOT, .for_job = NO_SLOT, .edges = NO_SLOT};
    policy->jobs_free[policy->jobs_free_count++] = slot;
}

ls_status ls_policy_ended(ls_policy *policy, uint64_t now_ms, uint64_t id, bool succeeded)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    ls_job_remove(policy, now_ms, slot, succeeded);
    return LS_OK;
}

void ls_job_send_back(ls_policy *policy, uint64_t now_ms, uint32_t slot)
{
    job *j = &policy->jobs[slot];
    ls_job_advance(j, now_ms);
    ls_job_give_all(policy, now_ms, slot);
    ls_group_count(policy, j, -1);
    j->state = JOB_PENDING;
    j->started = j->stopping = j->ending = j->resizing = false;
    j->checkpoint_ms = 0;
    j->ranks_wanted = 0;
    j->pending_ms = now_ms;
}

ls_status ls_policy_requeued(ls_policy *policy, uint64_t now_ms, uint64_t id)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    if (policy->jobs[slot].state != JOB_RUNNING) {
        return ls_fail(LS_ERR_INVALID, "job %" PRIu64 " is not running", id);
    }
    ls_job_send_back(policy, now_ms, slot);
    ls_order_add(policy, slot);
    return LS_OK;
}

ls_status ls_policy_resized(ls_policy *policy, uint64_t now_ms, uint64_t id)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    job *j = &policy->jobs[slot];
    if (!j->resizing) {
        return ls_fail(LS_ERR_INVALID, "job %" PRIu64 " was not told to change its size", id);
    }
    ls_job_advance(j, now_ms);
    ls_job_give_leaving(policy, now_ms, slot);
    j->resizing = false;
    j->resized_ms = now_ms;
    j->checkpoint_ms = now_ms; /* resizing loses no work */
    if (!j->stopping) {
        ls_job_gave(policy, j);
    }
    return LS_OK;
}

ls_status ls_policy_hold(ls_policy *policy, uint64_t now_ms, uint64_t id, bool held)
{
    return ls_policy_change(policy, now_ms, id, LS_CHANGE_HELD, held);
}

ls_status ls_policy_checkpointed(ls_policy *policy, uint64_t now_ms, uint64_t id)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    policy->jobs[slot].checkpoint_ms = now_ms;
    return LS_OK;
}

ls_status ls_policy_progress(ls_policy *policy, uint64_t now_ms, uint64_t id, uint64_t left_ms)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    job *j = &policy->jobs[slot];
    ls_job_advance(j, now_ms);
    const uint64_t here = j->ranks ? ls_job_gain(j, j->ranks) : 1,
                   wanted = j->ranks ? ls_job_gain(j, j->spec.ranks) : 1;
    j->left_ms = ls_max_u64((uint64_t)((unsigned __int128)left_ms * here / ls_max_u64(wanted, 1)), 1);
    return LS_OK;
}

/* ---- changes ---- */

static ls_status set_ranks(ls_policy_job *spec, uint64_t value)
{
    if (value < 1 || value > UINT32_MAX) {
        return refuse("ranks must be at least 1");
    }
    /* a job of one size gets another single size */
    const bool is_elastic = spec->min_ranks < spec->max_ranks;
    spec->ranks = (uint32_t)value;
    spec->min_ranks = spec->ranks < spec->min_ranks || !is_elastic ? spec->ranks : spec->min_ranks;
    spec->max_ranks = spec->ranks > spec->max_ranks || !is_elastic ? spec->ranks : spec->max_ranks;
    while (spec->ranks % spec->ranks_multiple || spec->min_ranks % spec->ranks_multiple ||
           spec->max_ranks % spec->ranks_multiple) {
        spec->ranks_multiple--; /* a size that was asked for explicitly is allowed */
    }
    return LS_OK;
}

/* The most ranks of an elastic job. */
static ls_status set_max_ranks(ls_policy_job *spec, uint64_t value)
{
    if (value < spec->min_ranks || value > UINT32_MAX) {
        return ls_fail(LS_ERR_INVALID, "max_ranks is %" PRIu64 "; it must be at least min_ranks, which is %u",
                       value, spec->min_ranks);
    }
    spec->max_ranks = (uint32_t)value;
    spec->ranks = spec->ranks < spec->max_ranks ? spec->ranks : spec->max_ranks;
    while (spec->ranks % spec->ranks_multiple || spec->max_ranks % spec->ranks_multiple ||
           spec->min_ranks % spec->ranks_multiple) {
        spec->ranks_multiple--; /* as for ranks */
    }
    return LS_OK;
}

static ls_status apply_change(ls_policy_job *spec, ls_change_kind kind, uint64_t value)
{
    const uint64_t limits[LS_CHANGE_COUNT] = {[LS_CHANGE_RANKS] = UINT32_MAX,
                                              [LS_CHANGE_PRIORITY] = LS_PRIORITIES - 1,
                                              [LS_CHANGE_LIMIT] = UINT64_MAX,
                                              [LS_CHANGE_REQUIRED] = LS_LEVEL_CLUSTER,
                                              [LS_CHANGE_PER_NODE] = LS_NODE_DEVICES_MAX,
                                              [LS_CHANGE_KIND] = LS_TOPOLOGY_KINDS_MAX,
                                              [LS_CHANGE_SPOT] = 1,
                                              [LS_CHANGE_HELD] = 1,
                                              [LS_CHANGE_BEGIN] = UINT64_MAX,
                                              [LS_CHANGE_GROUP] = UINT32_MAX,
                                              [LS_CHANGE_MAX_RANKS] = UINT32_MAX,
                                              [LS_CHANGE_ACCOUNT] = UINT32_MAX};
    if (kind >= LS_CHANGE_QUOTA || value > limits[kind]) {
        return ls_fail(LS_ERR_INVALID, "a job's %s cannot be %" PRIu64, ls_change_name(kind), value);
    }
    switch (kind) {
    case LS_CHANGE_RANKS:
        LS_TRY(set_ranks(spec, value));
        break;
    case LS_CHANGE_PRIORITY:
        spec->priority = (uint8_t)value;
        break;
    case LS_CHANGE_LIMIT:
        spec->limit_ms = value;
        break;
    case LS_CHANGE_REQUIRED:
        spec->required = (ls_level)value;
        break;
    case LS_CHANGE_PER_NODE:
        spec->devices_per_node = (uint32_t)value;
        break;
    case LS_CHANGE_KIND:
        spec->kind = (int32_t)value - 1;
        break;
    case LS_CHANGE_SPOT:
        spec->spot = value;
        break;
    case LS_CHANGE_HELD:
        spec->held = value;
        break;
    case LS_CHANGE_BEGIN:
        spec->begin_ms = value;
        break;
    case LS_CHANGE_MAX_RANKS:
        LS_TRY(set_max_ranks(spec, value));
        break;
    case LS_CHANGE_ACCOUNT:
        spec->account = (uint32_t)value;
        break;
    default:
        spec->group_running_max = (uint32_t)value;
    }
    return LS_OK;
}

ls_status ls_job_changed(ls_policy *policy, const job *j, ls_change_kind kind, uint64_t value,
                         job *changed_out)
{
    job changed = *j;
    LS_TRY(apply_change(&changed.spec, kind, value));
    LS_TRY(check_sizes(&changed.spec));
    LS_TRY(ls_job_check_possible(policy, &changed));
    if (changed.spec.priority != j->spec.priority || changed.spec.held) {
        changed.turn = 0; /* its place was among waiting jobs of its old class */
    }
    if (changed.spec.ranks != j->spec.ranks && j->left_ms > 0) {
        const unsigned __int128 work = (unsigned __int128)j->left_ms * ls_job_gain(j, j->spec.ranks);
        changed.left_ms = ls_max_u64((uint64_t)(work / ls_max_u64(ls_job_gain(j, changed.spec.ranks), 1)), 1);
    }
    if (changed.spec.min_ranks != j->spec.min_ranks || changed.spec.max_ranks != j->spec.max_ranks) {
        changed.gain_count = 0; /* the curve was over other sizes */
    }
    *changed_out = changed;
    return LS_OK;
}

static bool is_for_waiting_jobs(ls_change_kind kind)
{
    return kind == LS_CHANGE_REQUIRED || kind == LS_CHANGE_PER_NODE || kind == LS_CHANGE_KIND ||
           kind == LS_CHANGE_SPOT || kind == LS_CHANGE_ACCOUNT;
}

ls_status ls_policy_change(ls_policy *policy, uint64_t now_ms, uint64_t id, ls_change_kind kind,
                           uint64_t value)
{
    policy->drained.id = 0;
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    job *j = &policy->jobs[slot];
    if (kind == LS_CHANGE_ACCOUNT) {
        LS_TRY(check_account(policy, value < UINT32_MAX ? (uint32_t)value : UINT32_MAX));
    }
    if (j->state == JOB_RUNNING && is_for_waiting_jobs(kind)) {
        return ls_fail(LS_ERR_INVALID,
                       "job %" PRIu64 " already has its devices: its %s can't be changed any more", id,
                       ls_change_name(kind));
    }
    if (j->state == JOB_RUNNING && kind == LS_CHANGE_RANKS) {
        ls_job_advance(j, now_ms);
        LS_TRY(ls_job_changed(policy, j, kind, value, j));
        j->ranks_wanted = (uint32_t)value;
        return LS_OK;
    }
    if (j->state == JOB_RUNNING && kind == LS_CHANGE_MAX_RANKS) {
        ls_job_advance(j, now_ms);
        LS_TRY(ls_job_changed(policy, j, kind, value, j));
        j->ranks_wanted = j->ranks > value ? (uint32_t)value : j->ranks_wanted > value ? 0 : j->ranks_wanted;
        return LS_OK;
    }
    if (j->state == JOB_CLAIMING) {
        ls_job_send_back(policy, now_ms, slot); /* its entry in the order is still there */
    }
    LS_TRY(ls_job_changed(policy, j, kind, value, j));
    ls_account_touch(policy, j->spec.account);
    return LS_OK;
}

ls_status ls_policy_depend(ls_policy *policy, uint64_t now_ms, uint64_t id, const uint64_t *after,
                           uint32_t after_count, bool after_any)
{
    uint32_t slot = 0;
    LS_TRY(find_job(policy, id, &slot));
    job *j = &policy->jobs[slot];
    if (j->state == JOB_RUNNING) {
        return ls_fail(LS_ERR_INVALID,
                       "job %" PRIu64 " already has its devices, so it can't be made to wait for other jobs",
                       id);
    }
    if (after_count > LS_AFTER_MAX) {
        return ls_fail(LS_ERR_INVALID, "the job depends on %u other jobs; at most %d are allowed",
                       after_count, LS_AFTER_MAX);
    }
    if (policy->edges_used - j->waits_for + after_count > policy->edge_count) {
        return ls_fail(
            LS_ERR_MEMORY,
            "the queue is full: the total number of jobs that its jobs wait for has reached the limit");
    }
    if (j->state == JOB_CLAIMING) {
        ls_job_send_back(policy, now_ms, slot);
    }
    drop_waits(policy, slot);
    const ls_policy_job wanted = {.after = after, .after_count = after_count};
    j->spec.after_any = after_any;
    j->failed_before = false;
    add_dependencies(policy, slot, &wanted);
    return LS_OK;
}

/* ---- nodes and data ---- */

/* Gives up claims that count on a node that is no longer up: the pass finds another place. */
static void break_claims(ls_policy *policy, uint64_t now_ms, uint32_t place)
{
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const uint32_t slot = policy->running[i].slot;
        const job *j = &policy->jobs[slot];
        bool here = false;
        if (j->state != JOB_CLAIMING) {
            continue;
        }
        for (uint32_t k = j->shares; k != NO_SLOT; k = policy->shares[k].next) {
            here = here || policy->shares[k].place == place;
        }
        if (here) {
            ls_job_send_back(policy, now_ms, slot);
        }
    }
}

ls_status ls_policy_node_set(ls_policy *policy, uint64_t now_ms, uint32_t node, ls_node_state state)
{
    policy->drained.id = 0;
    if (node >= policy->places.node_count || (unsigned)state > LS_NODE_DOWN) {
        return ls_fail(LS_ERR_INVALID,
                       "cannot set node %u to state %u: there are %u nodes and 3 states, both counted from 0",
                       node, (unsigned)state, policy->places.node_count);
    }
    const uint32_t place = policy->places.place_of[node];
    if (state != LS_NODE_UP) {
        break_claims(policy, now_ms, place);
    }
    ls_free_map_set_up(&policy->map, place, state == LS_NODE_UP);
    return LS_OK;
}

ls_status ls_policy_windows_set(ls_policy *policy, const ls_policy_window *windows, uint32_t count)
{
    if (count > LS_WINDOWS_MAX) {
        return ls_fail(LS_ERR_INVALID, "there are %u maintenance windows; at most %d are allowed", count,
                       LS_WINDOWS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (windows[i].begin_ms >= windows[i].end_ms) {
            return ls_fail(LS_ERR_INVALID, "maintenance must end after it begins");
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        policy->windows[i] = windows[i];
    }
    policy->window_count = count;
    return LS_OK;
}

ls_status ls_policy_dataset_set(ls_policy *policy, uint32_t node, uint64_t dataset, bool cached)
{
    if (node >= policy->places.node_count || dataset == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "the scheduler was told that node %u has data set %" PRIu64
                       " in its cache, but the number of a node must be below %u, the number of nodes, and "
                       "that of a data set must not be 0",
                       node, dataset, policy->places.node_count);
    }
    uint32_t index = 0;
    while (index < policy->dataset_count && policy->datasets[index] != dataset) {
        index++;
    }
    if (index == policy->settings.datasets_max) {
        return LS_OK;
    }
    if (index == policy->dataset_count) {
        policy->datasets[policy->dataset_count++] = dataset;
    }
    const uint32_t place = policy->places.place_of[node];
    const ls_cell *cell = &policy->places.cells[policy->places.nodes[place].cell];
    const uint32_t at = place - cell->first;
    uint64_t *word = &policy->dataset_nodes[index][cell->words_before + at / 64];
    const uint64_t bit = UINT64_C(1) << (at % 64);
    *word = cached ? *word | bit : *word & ~bit;
    return LS_OK;
}

/* ---- accounts ---- */

ls_status ls_policy_account_set(ls_policy *policy, uint64_t now_ms, uint32_t index,
                                const ls_policy_account *value)
{
    LS_TRY(check_account(policy, index));
    if (value->weight < 1 || value->weight > 1u << 20) {
        return ls_fail(LS_ERR_INVALID, "the weight of account number %u is %u; it must be 1 to %u", index,
                       value->weight, 1u << 20);
    }
    ls_account_touch(policy, index);
    ls_usage_advance(policy, &policy->accounts[index], now_ms);
    ls_quota_recount(policy, &policy->accounts[index], value);
    for (int r = 0; r < LS_RESOURCES; r++) {
        const ls_quota *quota = &value->quota[r];
        policy->quota_lowered |= policy->accounts[index].used[r] > add_u64(quota->nominal, quota->borrow_max);
        policy->any_quota |= quota->nominal != LS_UNLIMITED;
    }
    return LS_OK;
}

ls_status ls_policy_usage_get(const ls_policy *policy, uint64_t now_ms, uint32_t index,
                              ls_policy_usage *usage_out)
{
    LS_TRY(check_account(policy, index));
    account a = policy->accounts[index]; /* a copy: reading changes nothing */
    ls_usage_advance(policy, &a, now_ms);
    *usage_out = a.usage;
    return LS_OK;
}

ls_status ls_policy_usage_set(ls_policy *policy, uint32_t index, const ls_policy_usage *usage)
{
    LS_TRY(check_account(policy, index));
    ls_account_touch(policy, index);
    policy->accounts[index].usage = *usage;
    policy->accounts[index].decayed_ms = usage->at_ms;
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
#include "orchestration/policy/policy.h"
#include "orchestration/policy/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static const char *const order_names[LS_ORDER_COUNT] = {"fair", "fifo",       "fifo-skip",
                                                        "easy", "sjf-oracle", "las"};
static const char *const action_names[] = {"start", "preempt", "shrink", "grow", "end", "cannot"};
static const char *const change_names[LS_CHANGE_COUNT] = {
    "ranks", "priority", "limit", "required",  "per_node", "kind", "spot",
    "hold",  "begin",    "group", "max_ranks", "account",  "quota"};
static const char *const stage_names[LS_WHY_STAGES] = {
    "impossible", "hold", "dependency", "begin",       "maintenance", "group",  "quota",
    "priority",   "gang", "placement",  "reservation", "starting",    "running"};

const char *ls_order_name(ls_policy_order order)
{
    return (unsigned)order < LS_ORDER_COUNT ? order_names[order] : "?";
}

ls_status ls_order_parse(const char *name, ls_policy_order *order_out)
{
    for (int i = 0; i < LS_ORDER_COUNT; i++) {
        if (strcmp(name, order_names[i]) == 0) {
            *order_out = (ls_policy_order)i;
            return LS_OK;
        }
    }
    return ls_fail(
        LS_ERR_INVALID,
        "'%.40s' is not an order of the queue; allowed are fair, fifo, fifo-skip, easy, sjf-oracle, las",
        name);
}

const char *ls_action_name(ls_action_kind kind)
{
    return (unsigned)kind <= LS_ACTION_CANNOT ? action_names[kind] : "?";
}

const char *ls_change_name(ls_change_kind kind)
{
    return (unsigned)kind < LS_CHANGE_COUNT ? change_names[kind] : "?";
}

const char *ls_why_stage_name(ls_why_stage stage)
{
    return (unsigned)stage < LS_WHY_STAGES ? stage_names[stage] : "?";
}

/* ---- defaults ---- */

ls_policy_settings ls_policy_settings_default(void)
{
    const uint64_t minute_ms = 60000, hour_ms = 60 * minute_ms, day_ms = 24 * hour_ms;
    return (ls_policy_settings){
        .order = LS_ORDER_FAIR,
        /* priority outweighs all other factors together */
        .weight_priority = 1000000,
        .weight_fair = 100000,
        .weight_age = 20000,
        .weight_size = 1000,
        .half_life_ms = 7 * day_ms,
        .age_max_ms = day_ms,
        .patience_ms = 15 * minute_ms,
        .patience_served_ms = 4 * hour_ms,
        .reservations = 8,
        .preempt = true,
        .elastic = true,
        .min_run_ms = 5 * minute_ms,
        .preemptions_max = 6,
        .preemption_window_ms = day_ms,
        .restart_cost_ms = minute_ms,
        .las_thresholds_device_ms = {8 * hour_ms, 128 * hour_ms},
        .resize_pause_ms = 10 * minute_ms,
        .resize_gain_permille = 200,
        .jobs_max = 20000,
        .accounts_max = 256,
        .datasets_max = 64,
    };
}

ls_policy_account ls_policy_account_default(void)
{
    const ls_quota none = {.nominal = LS_UNLIMITED, .borrow_max = LS_UNLIMITED, .lend_max = LS_UNLIMITED};
    return (ls_policy_account){.weight = 1, .quota = {none, none, none}};
}

ls_policy_job ls_policy_job_default(void)
{
    return (ls_policy_job){.priority = 1,
                           .ranks = 1,
                           .min_ranks = 1,
                           .max_ranks = 1,
                           .ranks_multiple = 1,
                           .kind = -1,
                           .required = LS_LEVEL_CLUSTER,
                           .preferred = LS_LEVEL_ISLAND,
                           .preemptible = true};
}

/* ---- life ---- */

static ls_status check_settings(const ls_policy_settings *s)
{
    if ((unsigned)s->order >= LS_ORDER_COUNT) {
        return ls_fail(LS_ERR_INVALID, "policy.order has number %u; it must be 0 to %d", (unsigned)s->order,
                       LS_ORDER_COUNT - 1);
    }
    if (s->jobs_max < 1 || s->jobs_max > LS_JOBS_MAX) {
        return ls_fail(LS_ERR_INVALID, "jobs_max is %u; the queue can have room for 1 to %d jobs",
                       s->jobs_max, LS_JOBS_MAX);
    }
    if (s->accounts_max < 1 || s->accounts_max > 65536 || s->datasets_max > 4096) {
        return ls_fail(LS_ERR_INVALID,
                       "the scheduler cannot have room for %u accounts and %u data sets: 1 to 65536 accounts "
                       "and 0 to 4096 data sets are allowed",
                       s->accounts_max, s->datasets_max);
    }
    if (s->reservations > LS_RESERVATIONS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "policy.reservations is %u; it must be 0 to %d (jobs for which devices are set aside "
                       "at a planned time)",
                       s->reservations, LS_RESERVATIONS_MAX);
    }
    return LS_OK;
}

static void init_jobs(ls_policy *policy)
{
    ls_arena *arena = &policy->arena;
    const uint32_t count = policy->settings.jobs_max;
    policy->jobs = ls_arena_new(arena, job, count);
    policy->jobs_free = ls_arena_new(arena, uint32_t, count);
    policy->groups = ls_arena_new(arena, group, count);
    policy->groups_free = ls_arena_new(arena, uint32_t, count);
    policy->edge_count = 2 * count + LS_AFTER_MAX;
    policy->edges = ls_arena_new(arena, edge, policy->edge_count);
    for (uint32_t i = 0; i < count; i++) {
        policy->jobs_free[i] = policy->groups_free[i] = count - 1 - i;
    }
    for (uint32_t i = 0; i < policy->edge_count; i++) {
        policy->edges[i].next = i + 1 < policy->edge_count ? i + 1 : (uint32_t)NO_SLOT;
    }
    policy->jobs_free_count = policy->groups_free_count = count;
    ls_index_init(&policy->ids, arena, count);
    ls_index_init(&policy->group_ids, arena, count);
    policy->order = ls_arena_new(arena, entry, count);
    policy->merge = ls_arena_new(arena, entry, 2 * count);
    policy->running = ls_arena_new(arena, entry, 2 * count);
    policy->actions = ls_arena_new(arena, ls_action, 2 * count);
    policy->victims = ls_arena_new(arena, victim, 2 * count);
}

static void init_nodes(ls_policy *policy, const ls_policy_cluster *cluster)
{
    ls_arena *arena = &policy->arena;
    const uint32_t nodes = cluster->node_count;
    ls_places_init(&policy->places, arena, cluster);
    ls_free_map_init(&policy->map, arena, &policy->places);
    ls_free_map_init(&policy->whole, arena, &policy->places);
    ls_free_map_init(&policy->future, arena, &policy->places);
    ls_placer_init(&policy->placer, arena, &policy->places);
    ls_plan_init(&policy->plan, arena, &policy->places);
    ls_plan_init(&policy->try_plan, arena, &policy->places);
    policy->reserved = ls_arena_new(arena, uint64_t, nodes);
    policy->hidden = ls_arena_new(arena, bool, nodes);
    policy->domain_cost = ls_arena_new(arena, uint64_t, nodes);
    policy->domain_freed = ls_arena_new(arena, uint32_t, nodes);
    policy->domain_seen = ls_arena_new(arena, uint32_t, nodes);
    policy->action_shares = ls_arena_new(arena, ls_share, 2 * policy->places.devices);
    policy->datasets = ls_arena_new(arena, uint64_t, policy->settings.datasets_max);
    policy->dataset_nodes = ls_arena_new(arena, uint64_t *, policy->settings.datasets_max);
    for (uint32_t i = 0; i < policy->settings.datasets_max; i++) {
        policy->dataset_nodes[i] = ls_arena_new(arena, uint64_t, policy->places.node_words);
    }
    ls_plan_init(&policy->drained.plan, arena, &policy->places);
    for (uint32_t i = 0; i < policy->settings.reservations || i == 0; i++) {
        ls_plan_init(&policy->reservations[i].plan, arena, &policy->places);
        policy->reservations[i].held = ls_arena_new(arena, uint64_t, nodes);
    }
    policy->pooled_free = policy->places.devices;
    ls_holdings_init(policy);
}

ls_status ls_policy_create(const ls_policy_cluster *cluster, const ls_policy_settings *settings,
                           ls_policy **policy_out)
{
    LS_TRY(ls_cluster_check(cluster));
    LS_TRY(check_settings(settings));
    ls_policy *policy = calloc(1, sizeof *policy);
    if (!policy) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the queue of jobs");
    }
    ls_arena_init(&policy->arena);
    policy->settings = *settings;
    if (settings->order == LS_ORDER_EASY) {
        policy->settings.reservations = 1;
    } else if (settings->order == LS_ORDER_FIFO || settings->order == LS_ORDER_FIFO_SKIP ||
               settings->order == LS_ORDER_SJF_ORACLE) {
        policy->settings.reservations = 0;
    }
    init_jobs(policy);
    init_nodes(policy, cluster);
    policy->accounts = ls_arena_new(&policy->arena, account, settings->accounts_max);
    for (uint32_t i = 0; i < settings->accounts_max; i++) {
        policy->accounts[i].settings = ls_policy_account_default();
        policy->accounts[i].fair = FACTOR_ONE;
    }
    *policy_out = policy;
    return LS_OK;
}

void ls_policy_tune(ls_policy *policy, const ls_policy_tuning *tuning)
{
    policy->settings.preempt = tuning->preempt;
    policy->settings.min_run_ms = tuning->min_run_ms;
    policy->settings.resize_pause_ms = tuning->resize_pause_ms;
}

void ls_policy_destroy(ls_policy *policy)
{
    if (policy) {
        ls_arena_release(&policy->arena);
        free(policy);
    }
}

ls_policy_counts ls_policy_count(const ls_policy *policy)
{
    ls_policy_counts counts = {0};
    for (uint32_t i = 0; i < policy->jobs_used; i++) {
        const job_state state = policy->jobs[i].state;
        counts.pending += state == JOB_PENDING || state == JOB_CLAIMING;
        counts.running += state == JOB_RUNNING;
    }
    for (uint32_t i = 0; i < policy->places.node_count; i++) {
        counts.devices += policy->map.up[i] ? bits_of(policy->places.nodes[i].all) : 0;
    }
    for (uint32_t i = 0; i < policy->places.class_count; i++) {
        counts.devices_free += policy->map.class_free[i];
    }
    counts.devices_free = policy->settings.pooled ? policy->pooled_free : counts.devices_free;
    return counts;
}

uint32_t ls_policy_reservations(const ls_policy *policy, ls_policy_reservation *reservations, uint32_t max)
{
    for (uint32_t i = 0; i < policy->reservation_count && i < max; i++) {
        const reservation *r = &policy->reservations[i];
        reservations[i] =
            (ls_policy_reservation){.job = r->id, .starts_ms = r->starts_ms == UINT64_MAX ? 0 : r->starts_ms};
    }
    return policy->reservation_count;
}

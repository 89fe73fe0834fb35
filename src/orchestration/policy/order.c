// SPDX-License-Identifier: Apache-2.0
/* The order of waiting jobs, and when running jobs will end. */
#include "orchestration/policy/state.h"

#include <string.h>

/* ---- sorting: lists are nearly sorted from the last pass, so sorted runs are merged ---- */

bool ls_entry_precedes(const entry *a, const entry *b)
{
    return a->key != b->key ? a->key < b->key : a->turn != b->turn ? a->turn < b->turn : a->id < b->id;
}

static uint32_t run_end(const entry *entries, uint32_t from, uint32_t count)
{
    uint32_t end = from + 1;
    while (end < count && !ls_entry_precedes(&entries[end], &entries[end - 1])) {
        end++;
    }
    return end;
}

static void merge_runs(const entry *from, entry *to, uint32_t first, uint32_t middle, uint32_t end)
{
    uint32_t a = first, b = middle, out = first;
    while (a < middle && b < end) {
        to[out++] = ls_entry_precedes(&from[b], &from[a]) ? from[b++] : from[a++];
    }
    while (a < middle) {
        to[out++] = from[a++];
    }
    while (b < end) {
        to[out++] = from[b++];
    }
}

static void sort_entries(entry *entries, entry *scratch, uint32_t count)
{
    entry *from = entries, *to = scratch;
    while (count > 1 && run_end(from, 0, count) < count) {
        for (uint32_t first = 0; first < count;) {
            const uint32_t middle = run_end(from, first, count);
            const uint32_t end = middle < count ? run_end(from, middle, count) : middle;
            merge_runs(from, to, first, middle, end);
            first = end;
        }
        entry *other = from;
        from = to;
        to = other;
    }
    if (from != entries) {
        memcpy(entries, from, count * sizeof *entries);
    }
}

/* ---- service ---- */

uint64_t ls_job_attained(const job *j, uint64_t now_ms)
{
    const bool runs = j->state == JOB_RUNNING && now_ms > j->attained_ms;
    return j->attained_device_ms + (runs ? (now_ms - j->attained_ms) * j->ranks : 0);
}

uint64_t ls_job_gain(const job *j, uint32_t ranks)
{
    const uint32_t min = j->spec.min_ranks, span = j->spec.max_ranks - min;
    if (ranks < min || ranks > j->spec.max_ranks || j->gain_count < 2 || span == 0) {
        return UINT64_C(1000) * ranks / (min ? min : 1); /* not known: assume linear scaling */
    }
    const uint64_t at = (uint64_t)(ranks - min) * (j->gain_count - 1);
    const uint32_t left = (uint32_t)(at / span), right = left + 1 < j->gain_count ? left + 1 : left;
    const int64_t step = (int64_t)j->gain[right] - (int64_t)j->gain[left];
    return (uint64_t)((int64_t)j->gain[left] + step * (int64_t)(at % span) / (int64_t)span);
}

void ls_job_advance(job *j, uint64_t now_ms)
{
    if (j->state != JOB_RUNNING || now_ms <= j->attained_ms) {
        return;
    }
    const uint64_t passed_ms = now_ms - j->attained_ms;
    j->attained_device_ms += passed_ms * j->ranks;
    if (j->left_ms > 0) {
        const uint64_t at_wanted =
            j->ranks == j->spec.ranks
                ? passed_ms
                : passed_ms * ls_job_gain(j, j->ranks) / ls_max_u64(ls_job_gain(j, j->spec.ranks), 1);
        /* overdue: it may end at any moment */
        j->left_ms = j->left_ms > at_wanted ? j->left_ms - at_wanted : 1;
    }
    j->attained_ms = now_ms;
}

/* Converts left_ms, which is at spec.ranks, to another number of ranks. */
static uint64_t left_at(const job *j, uint32_t ranks)
{
    if (ranks == j->spec.ranks || ranks == 0) {
        return j->left_ms;
    }
    const unsigned __int128 work = (unsigned __int128)j->left_ms * ls_job_gain(j, j->spec.ranks);
    return (uint64_t)(work / ls_max_u64(ls_job_gain(j, ranks), 1));
}

uint64_t ls_job_ends(const job *j, uint64_t from_ms, uint32_t ranks)
{
    uint64_t ends_ms = UINT64_MAX;
    if (j->left_ms > 0) {
        ends_ms = add_u64(from_ms, left_at(j, ranks));
    }
    if (j->spec.limit_ms > 0) {
        ends_ms = ls_min_u64(ends_ms, add_u64(from_ms, j->spec.limit_ms));
    }
    return ends_ms;
}

uint64_t ls_running_ends(const job *j, uint64_t now_ms)
{
    uint64_t ends_ms = UINT64_MAX;
    if (j->state == JOB_CLAIMING) {
        return ls_job_ends(j, now_ms + 1, j->ranks);
    }
    if (j->stopping || j->ending) {
        return now_ms + 1;
    }
    if (j->left_ms > 0) {
        ends_ms = add_u64(j->attained_ms, left_at(j, j->ranks));
    }
    if (j->spec.limit_ms > 0) {
        ends_ms = ls_min_u64(ends_ms, add_u64(j->started_ms, j->spec.limit_ms));
    }
    return ls_max_u64(ends_ms, now_ms + 1);
}

/* ---- rank ---- */

uint32_t ls_job_queue(const ls_policy *policy, uint64_t attained_device_ms)
{
    uint32_t queue = 0;
    while (queue < LS_LAS_QUEUES_MAX && policy->settings.las_thresholds_device_ms[queue] > 0 &&
           attained_device_ms >= policy->settings.las_thresholds_device_ms[queue]) {
        queue++;
    }
    return queue;
}

/* log2 in units of 1/256, interpolated linearly between powers of two. */
static uint32_t log2_256(uint32_t value)
{
    const uint32_t whole = 31 - (uint32_t)__builtin_clz(value | 1);
    const uint64_t rest = (uint64_t)value - (UINT64_C(1) << whole);
    return whole * 256 + (uint32_t)(rest * 256 >> whole);
}

static uint64_t age_factor(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    const uint64_t most_ms = policy->settings.age_max_ms;
    const uint64_t age_ms = now_ms > j->spec.submit_ms ? now_ms - j->spec.submit_ms : 0;
    uint64_t factor = age_ms >= most_ms ? FACTOR_ONE : age_ms * FACTOR_ONE / most_ms;
    if (j->spec.deadline_ms > j->spec.submit_ms) {
        /* grows from 0 at submission to twice the full age factor when just enough time is left */
        const uint64_t need_ms = j->left_ms;
        const uint64_t span_ms = j->spec.deadline_ms - j->spec.submit_ms;
        const uint64_t slack_ms = span_ms > need_ms ? span_ms - need_ms : 0;
        const uint64_t urgent =
            age_ms >= slack_ms ? AGES_MOST * FACTOR_ONE : age_ms * AGES_MOST * FACTOR_ONE / slack_ms;
        factor = ls_max_u64(factor, urgent);
    }
    return factor;
}

void ls_job_factors(const ls_policy *policy, const job *j, uint64_t now_ms, int64_t factors_out[4])
{
    const ls_policy_settings *s = &policy->settings;
    const uint32_t all = log2_256(policy->places.devices), mine = log2_256(j->spec.ranks);
    const uint32_t size = all == 0 || mine >= all ? 0 : (all - mine) * (uint32_t)FACTOR_ONE / all;
    factors_out[0] = (int64_t)s->weight_priority * j->spec.priority * (FACTOR_ONE / (LS_PRIORITIES - 1));
    factors_out[1] = (int64_t)s->weight_fair * policy->accounts[j->spec.account].fair;
    const uint64_t age = age_factor(policy, j, now_ms);
    factors_out[2] = (int64_t)s->weight_age * (int64_t)age;
    /* Small jobs come first because they are soon done; but among old jobs the oldest comes first,
     * not the smallest. */
    factors_out[3] =
        (int64_t)s->weight_size * (int64_t)(size * (FACTOR_ONE - ls_min_u64(age, FACTOR_ONE)) / FACTOR_ONE);
}

/* Priority first, then the queue of LAS; a job that has waited for age_max_ms counts as new. */
static int64_t las_key(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    const bool starved = now_ms - ls_min_u64(now_ms, j->pending_ms) >= policy->settings.age_max_ms;
    const uint32_t queue = starved ? 0 : ls_job_queue(policy, j->attained_device_ms);
    return (int64_t)(LS_PRIORITIES - j->spec.priority) * (LS_LAS_QUEUES_MAX + 2) +
           (j->turn ? -1 : (int64_t)queue);
}

/* A job with a reserved start comes before all jobs of its class without one, whatever their
 * factors. Classes are kept apart only as far as the weights do so. */
static int64_t fair_key(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    const ls_policy_settings *s = &policy->settings;
    int64_t factors[4];
    ls_job_factors(policy, j, now_ms, factors);
    if (j->turn) {
        factors[1] = (int64_t)s->weight_fair * FACTOR_ONE;
        factors[2] = (int64_t)s->weight_age * AGES_MOST * FACTOR_ONE;
        factors[3] = (int64_t)s->weight_size * FACTOR_ONE;
    }
    return -(factors[0] + factors[1] + factors[2] + factors[3]);
}

/* Jobs with a lower key come first. */
static int64_t key_of(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    switch (policy->settings.order) {
    case LS_ORDER_SJF_ORACLE:
        return j->left_ms ? (int64_t)ls_min_u64(j->left_ms, INT64_MAX) : INT64_MAX;
    case LS_ORDER_LAS:
        return las_key(policy, j, now_ms);
    case LS_ORDER_FAIR:
        return fair_key(policy, j, now_ms);
    default:
        return j->turn ? -1 : 0;
    }
}

entry ls_order_entry(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    return (entry){.key = key_of(policy, j, now_ms), .turn = j->turn ? j->turn : NO_TURN, .id = j->spec.id};
}

/* ---- lists ---- */

bool ls_entry_waits(const ls_policy *policy, const entry *e)
{
    const job *j = &policy->jobs[e->slot];
    return j->spec.id == e->id && (j->state == JOB_PENDING || j->state == JOB_CLAIMING);
}

static void drop_gone(ls_policy *policy)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < policy->order_count; i++) {
        if (ls_entry_waits(policy, &policy->order[i])) {
            policy->order[kept++] = policy->order[i];
        }
    }
    policy->order_count = kept;
}

void ls_order_add(ls_policy *policy, uint32_t slot)
{
    if (policy->order_count == policy->settings.jobs_max) {
        drop_gone(policy);
    }
    policy->order[policy->order_count++] = (entry){.id = policy->jobs[slot].spec.id, .slot = slot};
}

void ls_order_update(ls_policy *policy, uint64_t now_ms)
{
    for (uint32_t i = 0; i < policy->accounts_used; i++) {
        account *a = &policy->accounts[i];
        ls_usage_advance(policy, a, now_ms);
        a->fair = ls_usage_factor(policy, a);
    }
    drop_gone(policy);
    for (uint32_t i = 0; i < policy->order_count; i++) {
        const uint32_t slot = policy->order[i].slot;
        policy->order[i] = ls_order_entry(policy, &policy->jobs[slot], now_ms);
        policy->order[i].slot = slot;
    }
    sort_entries(policy->order, policy->merge, policy->order_count);
}

bool ls_entry_runs(const ls_policy *policy, const entry *e)
{
    const job *j = &policy->jobs[e->slot];
    return j->spec.id == e->id && (j->state == JOB_RUNNING || j->state == JOB_CLAIMING);
}

static void drop_stopped(ls_policy *policy)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < policy->running_count; i++) {
        if (ls_entry_runs(policy, &policy->running[i])) {
            policy->running[kept++] = policy->running[i];
        }
    }
    policy->running_count = kept;
}

void ls_running_add(ls_policy *policy, uint32_t slot)
{
    if (policy->running_count == 2 * policy->settings.jobs_max) {
        drop_stopped(policy);
    }
    policy->running[policy->running_count++] =
        (entry){.id = policy->jobs[slot].spec.id, .slot = slot, .hint = (uint32_t)HINT_UNKNOWN};
    policy->running_sorted = false;
}

void ls_running_update(ls_policy *policy, uint64_t now_ms)
{
    drop_stopped(policy);
    for (uint32_t i = 0; i < policy->running_count; i++) {
        const job *j = &policy->jobs[policy->running[i].slot];
        const uint64_t ends_ms = ls_running_ends(j, now_ms);
        policy->running[i].key =
            (int64_t)(ends_ms < END_UNKNOWN
                          ? ends_ms
                          : END_UNKNOWN +
                                ls_min_u64(now_ms - ls_min_u64(now_ms, j->started_ms), END_UNKNOWN));
        policy->running[i].hint = ls_preempt_hint(policy, j, now_ms);
    }
    sort_entries(policy->running, policy->merge, policy->running_count);
    policy->running_sorted = true;
}

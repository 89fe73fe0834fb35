// SPDX-License-Identifier: Apache-2.0
/* Accounts: what they use, what they may use, and how much they have used in the past. */
#include "orchestration/policy/state.h"

enum { TICKS = 256 }; /* steps per half-life */

static uint64_t per_rank(const job *j, int resource)
{
    return resource == LS_RESOURCE_DEVICES ? 1
           : resource == LS_RESOURCE_CPUS  ? j->spec.cpus_per_rank
                                           : j->spec.memory_mib_per_rank;
}

/* ---- half-life ---- */

/* 2^-(k / 256) in units of 2^-32, by the bits of k. */
static uint64_t halved(uint64_t k)
{
    static const uint32_t roots[8] = {/* 2^32 times 2^-(2^i / 256) */
                                      4283353945u, 4271771996u, 4248701965u, 4202935003u,
                                      4112874773u, 3938502376u, 3611622603u, 3037000500u};
    if (k / TICKS >= 63) {
        return 0;
    }
    uint64_t part = UINT64_C(1) << 32;
    for (int i = 0; i < 8; i++) {
        part = k >> i & 1 ? part * roots[i] >> 32 : part;
    }
    return part >> (k / TICKS);
}

static uint64_t scaled(uint64_t value, uint64_t parts_of_2_32)
{
    return (uint64_t)((unsigned __int128)value * parts_of_2_32 >> 32);
}

/* Usage after `ticks` whole steps at a constant rate: what was there decays, and what is added in a
 * step decays from the end of that step on. */
static uint64_t after_ticks(uint64_t usage, uint64_t rate, uint64_t tick_ms, uint64_t ticks)
{
    const uint64_t one = UINT64_C(1) << 32, root = halved(1), last = halved(ticks);
    const uint64_t came =
        (uint64_t)((unsigned __int128)rate * tick_ms * (root - scaled(root, last)) / (one - root));
    return scaled(usage, last) + came;
}

void ls_usage_advance(const ls_policy *policy, account *a, uint64_t now_ms)
{
    const uint64_t tick_ms = policy->settings.half_life_ms / TICKS;
    if (now_ms <= a->usage.at_ms) {
        return;
    }
    const uint64_t ticks = tick_ms ? (now_ms - a->decayed_ms) / tick_ms : 0;
    const uint64_t boundary_ms = a->decayed_ms + ticks * tick_ms;
    for (int r = 0; r < LS_RESOURCES; r++) {
        const uint64_t capacity = policy->places.capacity[r];
        const uint64_t rate = capacity ? (a->used[r] << 20) / capacity : 0;
        uint64_t *usage = &a->usage.share_ms[r];
        /* to the end of the current step, then whole steps, then the rest */
        if (ticks > 0) {
            *usage += rate * (a->decayed_ms + tick_ms - a->usage.at_ms);
            *usage = after_ticks(scaled(*usage, halved(1)), rate, tick_ms, ticks - 1);
            *usage += rate * (now_ms - boundary_ms);
        } else {
            *usage += rate * (now_ms - a->usage.at_ms);
        }
    }
    a->decayed_ms = boundary_ms;
    a->usage.at_ms = now_ms;
}

uint32_t ls_usage_factor(const ls_policy *policy, const account *a)
{
    const uint64_t day_ms = 86400000, half_life_ms = policy->settings.half_life_ms;
    /* half-life / ln 2 */
    const uint64_t window_ms = (half_life_ms ? half_life_ms : 30 * day_ms) / 1000 * 1443;
    /*
     * dominant share: the resource of which it used most counts; 2^20 is all of the cluster, always
     */
    uint64_t most = 0;
    for (int r = 0; r < LS_RESOURCES; r++) {
        most = ls_max_u64(most, a->usage.share_ms[r]);
    }
    const uint64_t share = window_ms ? most / window_ms : 0;
    const uint64_t weight = a->settings.weight;
    const uint64_t k = share * ls_max_u64(policy->total_weight, weight) / weight * TICKS >> 20;
    return (uint32_t)(halved(k) >> 16);
}

/* ---- quotas ---- */

/* The part of a quota that no other account may use, even when it is free. */
static uint64_t not_lent(const ls_quota *quota)
{
    return quota->nominal == LS_UNLIMITED ? 0 : quota->nominal - ls_min_u64(quota->lend_max, quota->nominal);
}

static uint64_t kept(const account *a, int resource)
{
    return ls_max_u64(a->used[resource], not_lent(&a->settings.quota[resource]));
}

void ls_account_touch(ls_policy *policy, uint32_t index)
{
    for (; policy->accounts_used <= index; policy->accounts_used++) {
        policy->total_weight += policy->accounts[policy->accounts_used].settings.weight;
    }
}

static void change_used(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks, bool more)
{
    account *a = &policy->accounts[j->spec.account];
    ls_usage_advance(policy, a, now_ms);
    for (int r = 0; r < LS_RESOURCES; r++) {
        const uint64_t amount = per_rank(j, r) * ranks;
        policy->guaranteed[r] -= kept(a, r);
        a->used[r] += more ? amount : -amount;
        policy->used[r] += more ? amount : -amount;
        policy->guaranteed[r] += kept(a, r);
    }
}

void ls_quota_charge(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks)
{
    change_used(policy, now_ms, j, ranks, true);
}

void ls_quota_return(ls_policy *policy, uint64_t now_ms, const job *j, uint32_t ranks)
{
    change_used(policy, now_ms, j, ranks, false);
}

void ls_quota_recount(ls_policy *policy, account *a, const ls_policy_account *settings)
{
    for (int r = 0; r < LS_RESOURCES; r++) {
        policy->guaranteed[r] -= kept(a, r);
    }
    policy->total_weight += settings->weight;
    policy->total_weight -= a->settings.weight;
    a->settings = *settings;
    for (int r = 0; r < LS_RESOURCES; r++) {
        policy->guaranteed[r] += kept(a, r);
    }
}

bool ls_quota_is_own(const ls_policy *policy, const job *j, uint32_t ranks)
{
    const account *a = &policy->accounts[j->spec.account];
    for (int r = 0; r < LS_RESOURCES; r++) {
        const uint64_t more = per_rank(j, r) * ranks;
        if (more > 0 && a->settings.quota[r].nominal != LS_UNLIMITED &&
            a->used[r] + more > a->settings.quota[r].nominal) {
            return false;
        }
    }
    return true;
}

bool ls_quota_borrows(const ls_policy *policy, const job *j)
{
    const account *a = &policy->accounts[j->spec.account];
    for (int r = 0; r < LS_RESOURCES; r++) {
        if (per_rank(j, r) > 0 && a->used[r] > a->settings.quota[r].nominal) {
            return true;
        }
    }
    return false;
}

/* How much more of a resource the account may use: its own and what it may borrow, less what others
 * do not lend. */
static uint64_t room_of(const ls_policy *policy, const account *a, int r)
{
    const ls_quota *quota = &a->settings.quota[r];
    const uint64_t most = add_u64(quota->nominal, quota->borrow_max);
    const uint64_t room = most > a->used[r] ? most - a->used[r] : 0;
    const uint64_t others_keep = policy->guaranteed[r] - kept(a, r) - (policy->used[r] - a->used[r]);
    if (others_keep == 0) {
        return room;
    }
    const uint64_t taken = policy->used[r] + others_keep;
    const uint64_t left = policy->places.capacity[r] > taken ? policy->places.capacity[r] - taken : 0;
    const uint64_t own = quota->nominal != LS_UNLIMITED && quota->nominal > a->used[r]
                             ? quota->nominal - a->used[r]
                             /* its own quota is always available: what others borrowed of it they
                              * have to give back */
                             : 0;
    return ls_min_u64(room, ls_max_u64(left, own));
}

/* promised: the part of its account's room that is kept for other jobs */
static uint32_t room_beside(const ls_policy *policy, const job *j, const uint64_t promised[LS_RESOURCES])
{
    const account *a = &policy->accounts[j->spec.account];
    uint64_t ranks = UINT32_MAX;
    for (int r = 0; r < LS_RESOURCES; r++) {
        if (per_rank(j, r) > 0) {
            const uint64_t room = room_of(policy, a, r);
            ranks = ls_min_u64(ranks, (room - ls_min_u64(room, promised[r])) / per_rank(j, r));
        }
    }
    return (uint32_t)ranks;
}

uint32_t ls_quota_room(const ls_policy *policy, const job *j)
{
    const uint64_t nothing[LS_RESOURCES] = {0};
    return room_beside(policy, j, nothing);
}

uint32_t ls_quota_room_bound(const ls_policy *policy, const job *j, uint32_t first)
{
    uint64_t promised[LS_RESOURCES] = {0};
    uint32_t members = 0; /* jobs of its group that will run by then */
    for (uint32_t i = 0; i < first && (policy->any_quota || j->spec.group); i++) {
        const reservation *r = &policy->reservations[i];
        const job *other = &policy->jobs[r->job];
        if (other == j || other->spec.id != r->id) {
            continue;
        }
        members += j->spec.group && other->spec.group == j->spec.group;
        const bool same = other->spec.account == j->spec.account;
        const bool own = same && ls_quota_is_own(policy, other, other->spec.min_ranks);
        /* what would have to be borrowed is promised to no job */
        for (int k = 0; k < LS_RESOURCES && own; k++) {
            promised[k] += per_rank(other, k) * other->spec.min_ranks;
        }
    }
    if (members > 0 && j->spec.group_running_max > 0 && j->state == JOB_PENDING) {
        const uint32_t index = ls_index_find(&policy->group_ids, j->spec.group);
        if (policy->groups[index].running + members >= j->spec.group_running_max) {
            return 0;
        }
    }
    return room_beside(policy, j, promised);
}

uint64_t ls_quota_of_others(const ls_policy *policy, uint32_t index, int r)
{
    uint64_t others = 0;
    for (uint32_t i = 0; policy->any_quota && i < policy->accounts_used; i++) {
        others += i != index ? not_lent(&policy->accounts[i].settings.quota[r]) : 0;
    }
    return others;
}

bool ls_quota_ever(const ls_policy *policy, const job *j, uint32_t ranks)
{
    const account *a = &policy->accounts[j->spec.account];
    for (int r = 0; r < LS_RESOURCES; r++) {
        const ls_quota *quota = &a->settings.quota[r];
        const uint64_t amount = per_rank(j, r) * ranks, capacity = policy->places.capacity[r];
        const uint64_t others = ls_quota_of_others(policy, j->spec.account, r);
        const uint64_t left = capacity > others ? capacity - others : 0;
        const uint64_t own = quota->nominal != LS_UNLIMITED ? quota->nominal : 0;
        if (amount > add_u64(quota->nominal, quota->borrow_max) ||
            (others > 0 && amount > ls_max_u64(left, own))) {
            return false;
        }
    }
    return true;
}

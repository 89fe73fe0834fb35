// SPDX-License-Identifier: Apache-2.0
/*
 * Preemption: which jobs to stop so that another can start, losing the fewest device-seconds.
 *
 * Who may be asked: jobs of a lower priority; with the orders fair and las also jobs that have had
 * so much service that they are in a later queue; spot jobs for jobs that are not spot; and, where
 * the job stays within its account's own quota, jobs of accounts that borrow. Three ways to ask
 * (tiers):
 *
 *   shrink   an elastic job to the least it needs; equals may be asked, too
 *            cost: restart cost x its ranks
 *   requeue  a job that saves when it is told to stop
 *            cost: (time since its last checkpoint + restart cost) x its ranks
 *   end      a job that can't save, and is spot or borrows
 *            cost: everything it has done so far
 *
 * Tiers are used in this order, and within a tier the job that is cheapest per missing device
 * first. Then every job without which the new one fits as well is let go again, dearest first. Of
 * elastic jobs, those with most service give first. An elastic job that could start with fewer
 * ranks than it wants first tries to get all of them from jobs that must yield to it, so that a
 * long job does not keep a short one small.
 *
 * A job is never asked when it started less than min_run_ms ago or was stopped preemptions_max
 * times within the window, and no job is asked when all together would not be enough.
 */
#include "orchestration/policy/state.h"

enum { RESTORES_MOST = 256, DOMAINS_MOST = 4 };

/* ---- who may be asked ---- */

/* How many queues of LAS the other job is behind, for two jobs of one priority; above 0: it has had
 * so much more service that it must yield. */
static int queues_behind(const ls_policy *policy, const job *j, const job *other, uint64_t now_ms)
{
    const ls_policy_order order = policy->settings.order;
    if ((order != LS_ORDER_FAIR && order != LS_ORDER_LAS) || other->spec.priority != j->spec.priority) {
        return 0;
    }
    return (int)ls_job_queue(policy, ls_job_attained(other, now_ms)) -
           (int)ls_job_queue(policy, j->attained_device_ms);
}

static bool yields(const ls_policy *policy, const job *j, const job *other, uint64_t now_ms)
{
    return other->spec.priority < j->spec.priority ||
           (other->spec.spot && !j->spec.spot && other->spec.priority <= j->spec.priority) ||
           queues_behind(policy, j, other, now_ms) > 0;
}

static bool is_reclaimed(const ls_policy *policy, const job *j, const job *other, bool own)
{
    return own && other->spec.account != j->spec.account && ls_quota_borrows(policy, other);
}

static bool is_guarded(const ls_policy *policy, const job *other, uint64_t now_ms)
{
    const ls_policy_settings *s = &policy->settings;
    const bool window_over = now_ms - ls_min_u64(now_ms, other->window_ms) >= s->preemption_window_ms;
    return now_ms < add_u64(other->started_ms, s->min_run_ms) ||
           (!window_over && other->preemptions >= s->preemptions_max);
}

ls_kept ls_preempt_kept(const ls_policy *policy, const job *j, const job *other, uint64_t now_ms)
{
    if (!policy->settings.preempt || other->state != JOB_RUNNING || other->stopping || other->ending ||
        !yields(policy, j, other, now_ms)) {
        return LS_KEPT_NOT;
    }
    if (!other->spec.preemptible && !other->spec.spot) {
        return LS_KEPT_UNSAVED;
    }
    return !is_guarded(policy, other, now_ms)                                 ? LS_KEPT_NOT
           : now_ms < add_u64(other->started_ms, policy->settings.min_run_ms) ? LS_KEPT_YOUNG
                                                                              : LS_KEPT_OFTEN;
}

static uint64_t lost_ms(const ls_policy *policy, const job *other, uint64_t now_ms)
{
    const uint64_t saved_ms = ls_max_u64(other->checkpoint_ms, other->started_ms);
    return now_ms - ls_min_u64(now_ms, saved_ms) + policy->settings.restart_cost_ms;
}

/* Whether a reserved start counts on the end of this job. */
static bool is_counted_on(const ls_policy *policy, const job *other)
{
    for (uint32_t i = other->shares; i != NO_SLOT && policy->reservation_count > 0;
         i = policy->shares[i].next) {
        if (policy->reserved[policy->shares[i].place] & policy->shares[i].devices) {
            return true;
        }
    }
    return false;
}

/* The search for victims on behalf of one job. */
typedef struct search {
    const job *j;
    uint64_t now_ms;
    uint32_t missing; /* devices it lacks */
    asking like;      /* what decides who may be asked */
    uint32_t count;   /* victims found, in policy->victims */
} search;

static void add_victim(ls_policy *policy, search *s, victim v)
{
    policy->victims[s->count++] = v;
}

/*
 * Adds what one running job could give: its surplus over min_ranks (shrink), and the rest (requeue
 * or end). Both are listed apart, so that a job may give only its surplus; a job of which both are
 * taken is stopped once (is_also_stopped).
 */
static void offer_victims(ls_policy *policy, search *s, uint32_t slot)
{
    const job *j = s->j, *other = &policy->jobs[slot];
    const bool elastic =
        policy->settings.elastic && job_is_elastic(other) && other->ranks > other->spec.min_ranks;
    const uint32_t surplus = elastic ? other->ranks - other->spec.min_ranks : 0;
    if (other->state != JOB_RUNNING || other->stopping || other->ending || other->resizing) {
        return;
    }
    const bool asked = yields(policy, j, other, s->now_ms),
               reclaimed = !asked && is_reclaimed(policy, j, other, s->like.own);
    const bool equal = s->like.equals && other->spec.priority <= j->spec.priority &&
                       queues_behind(policy, j, other, s->now_ms) >= 0;
    victim v = {.job = slot, .queue = ls_job_queue(policy, ls_job_attained(other, s->now_ms))};
    /* A reserved start that counts on the end of a job would come later if the job were smaller. */
    if (surplus > 0 && (asked || reclaimed || equal) && !is_counted_on(policy, other)) {
        v.tier = TIER_SHRINK;
        v.devices = surplus;
        v.cost = policy->settings.restart_cost_ms * other->ranks;
        add_victim(policy, s, v);
    }
    if ((!asked && !reclaimed) || is_guarded(policy, other, s->now_ms)) {
        return;
    }
    v.reclaimed = reclaimed;
    v.devices = other->ranks - surplus;
    v.tier = other->spec.preemptible ? TIER_REQUEUE : TIER_END;
    v.cost = other->spec.preemptible ? lost_ms(policy, other, s->now_ms) * other->ranks
                                     : ls_job_attained(other, s->now_ms);
    if (other->spec.preemptible || other->spec.spot || reclaimed) {
        add_victim(policy, s, v);
    }
}

enum { HINT_PRIORITY = 8, HINT_SPOT = 1 << 16, HINT_SURPLUS = 1 << 17 };

uint32_t ls_preempt_hint(const ls_policy *policy, const job *j, uint64_t now_ms)
{
    const bool surplus = policy->settings.elastic && job_is_elastic(j) && j->ranks > j->spec.min_ranks;
    return ls_job_queue(policy, ls_job_attained(j, now_ms)) | (uint32_t)j->spec.priority << HINT_PRIORITY |
           (j->spec.spot ? (uint32_t)HINT_SPOT : 0) | (surplus ? (uint32_t)HINT_SURPLUS : 0);
}

/* A quick test from the hint of a running job; false only where offer_victims would add nothing. */
static bool may_yield(const job *j, uint32_t queue, bool quotas, uint32_t hint)
{
    const uint32_t others = hint >> HINT_PRIORITY & 0xff;
    return quotas || (hint & (HINT_SPOT | HINT_SURPLUS | (uint32_t)HINT_UNKNOWN)) != 0 ||
           others < j->spec.priority || (others == j->spec.priority && (hint & 0xff) > queue);
}

/* ---- in which order ---- */

/* How many of a victim's devices help; a surplus is taken only as far as it is needed. */
static uint32_t useful(const ls_policy *policy, const victim *v)
{
    return v->tier == TIER_SHRINK || v->devices < policy->victims_missing ? v->devices
                                                                          : policy->victims_missing;
}

static bool victim_before(const ls_policy *policy, const victim *a, const victim *b)
{
    const bool spot_a = policy->jobs[a->job].spec.spot, spot_b = policy->jobs[b->job].spec.spot;
    if (a->tier != b->tier) {
        return a->tier < b->tier;
    }
    if (spot_a != spot_b) {
        return spot_a;
    }
    if (a->tier == TIER_SHRINK && a->queue != b->queue) {
        return a->queue > b->queue;
    }
    /* Cost per useful device, by cross-multiplication. Devices beyond those that are missing do not
     * count, so a large job is not stopped for one device while smaller ones are there. */
    const unsigned __int128 per_a = (unsigned __int128)a->cost * useful(policy, b),
                            per_b = (unsigned __int128)b->cost * useful(policy, a);
    return per_a != per_b ? per_a < per_b : policy->jobs[a->job].spec.id > policy->jobs[b->job].spec.id;
}

static void sift(const ls_policy *policy, victim *heap, uint32_t at, uint32_t count)
{
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && victim_before(policy, &heap[child], &heap[child + 1])) {
            child++;
        }
        if (!victim_before(policy, &heap[at], &heap[child])) {
            return;
        }
        const victim other = heap[at];
        heap[at] = heap[child];
        heap[child] = other;
        at = child;
    }
}

static void sort_victims(ls_policy *policy, uint32_t count)
{
    victim *heap = policy->victims;
    for (uint32_t at = count / 2; at-- > 0;) {
        sift(policy, heap, at, count);
    }
    while (count > 1) {
        const victim last = heap[0];
        heap[0] = heap[--count];
        heap[count] = last;
        sift(policy, heap, 0, count);
    }
}

/* ---- where ---- */

static uint32_t domain_of(const ls_policy *policy, ls_level level, uint32_t place)
{
    const ls_place_node *node = &policy->places.nodes[place];
    return level <= LS_LEVEL_NODE    ? place
           : level == LS_LEVEL_LEAF  ? node->leaf
           : level == LS_LEVEL_SPINE ? node->spine
                                     : 0;
}

static uint32_t domain_count(const ls_policy *policy, ls_level level)
{
    const ls_places *p = &policy->places;
    return level <= LS_LEVEL_NODE    ? p->node_count
           : level == LS_LEVEL_LEAF  ? p->leaf_count
           : level == LS_LEVEL_SPINE ? p->spine_count
                                     : 1;
}

/*
 * What it costs, in device-ms, to free `needed` devices in each domain of the required level,
 * taking victims in sorted order. A victim counts once per domain, and only while devices are
 * missing there. This is an estimate to choose a domain by; take_victims then tries it for good.
 */
static void cost_domains(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed, uint32_t count)
{
    const ls_level level = shape->required;
    const uint32_t domains = domain_count(policy, level);
    for (uint32_t d = 0; d < domains; d++) {
        policy->domain_cost[d] = policy->domain_freed[d] = 0;
        policy->domain_seen[d] = NO_SLOT;
    }
    for (uint32_t place = 0; place < policy->places.node_count; place++) {
        if (ls_shape_takes(shape, &policy->places.cells[policy->places.nodes[place].cell])) {
            policy->domain_freed[domain_of(policy, level, place)] +=
                bits_of(ls_free_map_usable(&policy->map, place));
        }
    }
    for (uint32_t v = 0; v < count; v++) {
        const victim *other = &policy->victims[v];
        for (uint32_t i = policy->jobs[other->job].shares; i != NO_SLOT; i = policy->shares[i].next) {
            const share_node *share = &policy->shares[i];
            const uint32_t d = domain_of(policy, level, share->place);
            if (policy->domain_freed[d] >= needed && policy->domain_seen[d] != v) {
                continue; /* this domain has enough without this victim */
            }
            policy->domain_cost[d] += policy->domain_seen[d] != v ? other->cost : 0;
            policy->domain_seen[d] = v;
            policy->domain_freed[d] += bits_of(share->devices & ~policy->reserved[share->place]);
        }
    }
}

static uint32_t cheapest_domain(const ls_policy *policy, ls_level level, uint32_t needed)
{
    const uint32_t domains = domain_count(policy, level);
    uint32_t best = NO_SLOT;
    for (uint32_t d = 0; d < domains; d++) {
        if (policy->domain_freed[d] >= needed &&
            (best == NO_SLOT || policy->domain_cost[d] < policy->domain_cost[best])) {
            best = d;
        }
    }
    return best;
}

/* ---- trying, on the future map ---- */

/* Writes what a victim would give up to try_plan. */
static void victim_pieces(ls_policy *policy, const victim *v)
{
    const job *other = &policy->jobs[v->job];
    ls_placement *plan = &policy->try_plan;
    if (v->tier == TIER_SHRINK) {
        ls_job_shed_plan(policy, other, v->devices, plan);
        return;
    }
    plan->count = 0;
    for (uint32_t i = other->shares; i != NO_SLOT; i = policy->shares[i].next) {
        plan->pieces[plan->count++] =
            (ls_gang_piece){.place = policy->shares[i].place, .devices = policy->shares[i].devices};
    }
}

/* Frees a victim's devices in the future map, or takes them back. Reserved and claimed devices
 * belong to others already; a job that was shrunk first has less left to give. */
static void set_freed(ls_policy *policy, const victim *v, bool freed)
{
    const job *other = &policy->jobs[v->job];
    ls_free_map *map = &policy->future;
    victim_pieces(policy, v);
    for (uint32_t i = 0; i < policy->try_plan.count; i++) {
        const ls_gang_piece *piece = &policy->try_plan.pieces[i];
        const uint64_t usable =
            piece->devices & ~policy->reserved[piece->place] & ~map->claimed[piece->place];
        if (freed) {
            ls_free_map_give(map, piece->place, usable & ~map->free[piece->place], other->spec.cpus_per_rank,
                             other->spec.memory_mib_per_rank);
        } else {
            ls_free_map_take(map, piece->place, usable, other->spec.cpus_per_rank,
                             other->spec.memory_mib_per_rank);
        }
    }
}

static bool touches(const ls_policy *policy, const victim *v, ls_level level, uint32_t domain)
{
    for (uint32_t i = policy->jobs[v->job].shares; i != NO_SLOT; i = policy->shares[i].next) {
        if (domain_of(policy, level, policy->shares[i].place) == domain) {
            return true;
        }
    }
    return false;
}

static bool fits(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed)
{
    return ls_shape_free(&policy->future, shape) >= needed &&
           ls_plan_find(&policy->placer, &policy->future, shape, needed, &policy->plan);
}

/* Whether this entry is the shrinking of a job that is also stopped: then the stop is enough. */
static bool is_also_stopped(const ls_policy *policy, uint32_t v, uint32_t count)
{
    for (uint32_t i = v + 1; i < count && policy->victims[v].tier == TIER_SHRINK; i++) {
        if (policy->victims[i].job == policy->victims[v].job && policy->victims[i].taken) {
            return true;
        }
    }
    return false;
}

/*
 * Lets victims go again, dearest first, as long as the job still fits. Victims are taken one by one
 * until they are enough, so an early one may have become unnecessary; RESTORES_MOST bounds the
 * attempts.
 */
static void let_go(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed, uint32_t count)
{
    uint32_t tries = RESTORES_MOST;
    for (uint32_t v = count; v-- > 0 && tries > 0;) {
        victim *other = &policy->victims[v];
        if (!other->taken || is_also_stopped(policy, v, count)) {
            continue;
        }
        tries--;
        set_freed(policy, other, false);
        /* when the job is to be shrunk as well, its surplus stays free */
        for (uint32_t i = 0; i < v; i++) {
            if (policy->victims[i].job == other->job && policy->victims[i].taken) {
                set_freed(policy, &policy->victims[i], true);
            }
        }
        if (fits(policy, shape, needed)) {
            other->taken = false;
        } else {
            set_freed(policy, other, true);
        }
    }
}

/* Whether the account of a victim that is only reclaimed from would still borrow without the
 * victims taken so far. An account gives back what it borrowed, and no more. */
static bool still_borrows(const ls_policy *policy, uint32_t v)
{
    const victim *other = &policy->victims[v];
    const job *theirs = &policy->jobs[other->job];
    const account *a = &policy->accounts[theirs->spec.account];
    uint64_t taken = 0;
    if (!other->reclaimed) {
        return true;
    }
    for (uint32_t i = 0; i < v; i++) {
        const job *j = &policy->jobs[policy->victims[i].job];
        taken += policy->victims[i].taken && j->spec.account == theirs->spec.account
                     ? policy->victims[i].devices
                     : 0;
    }
    const uint64_t nominal = a->settings.quota[LS_RESOURCE_DEVICES].nominal;
    return nominal == LS_UNLIMITED || a->used[LS_RESOURCE_DEVICES] > nominal + taken ||
           a->used[LS_RESOURCE_DEVICES] <= nominal; /* it borrows cores or memory instead */
}

/* Gives back what was shrunk too much, in multiples that the job allows, as long as the new job
 * still fits. */
static void shrink_less(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed, uint32_t count)
{
    for (uint32_t v = count; v-- > 0;) {
        victim *other = &policy->victims[v];
        const uint32_t multiple = policy->jobs[other->job].spec.ranks_multiple, all = other->devices;
        const uint32_t spare = ls_shape_free(&policy->future, shape) - needed;
        const uint32_t less = spare - spare % multiple;
        if (!other->taken || other->tier != TIER_SHRINK || is_also_stopped(policy, v, count) || less == 0) {
            continue;
        }
        set_freed(policy, other, false);
        other->devices = less < all ? all - less : multiple;
        set_freed(policy, other, true);
        if (!fits(policy, shape, needed)) {
            set_freed(policy, other, false);
            other->devices = all;
            set_freed(policy, other, true);
        }
    }
}

static bool take_victims(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed, uint32_t count,
                         uint32_t domain)
{
    bool enough = false;
    ls_free_map_copy(&policy->future, &policy->map);
    for (uint32_t v = 0; v < count; v++) {
        policy->victims[v].taken = false;
    }
    for (uint32_t v = 0; v < count && !enough; v++) {
        victim *other = &policy->victims[v];
        if (!touches(policy, other, shape->required, domain) || !still_borrows(policy, v)) {
            continue;
        }
        other->taken = true;
        set_freed(policy, other, true);
        enough = fits(policy, shape, needed);
    }
    if (!enough) {
        return false;
    }
    let_go(policy, shape, needed, count);
    shrink_less(policy, shape, needed, count);
    return fits(policy, shape, needed);
}

/* The cheapest domain first; the next ones when it turns out not to work, for instance because what
 * would become free is too scattered. */
static bool take_somewhere(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed, uint32_t count)
{
    cost_domains(policy, shape, needed, count);
    for (int tries = 0; tries < DOMAINS_MOST; tries++) {
        const uint32_t domain = cheapest_domain(policy, shape->required, needed);
        if (domain == NO_SLOT) {
            return false;
        }
        if (take_victims(policy, shape, needed, count, domain)) {
            return true;
        }
        policy->domain_freed[domain] = 0;
    }
    return false;
}

static bool take_victims_pooled(ls_policy *policy, uint32_t needed, uint32_t count)
{
    uint32_t free = ls_reserve_spare(policy, UINT64_MAX, policy->reservation_count);
    for (uint32_t v = 0; v < count && free < needed; v++) {
        policy->victims[v].taken = still_borrows(policy, v);
        free += policy->victims[v].taken ? policy->victims[v].devices : 0;
    }
    for (uint32_t v = count; v-- > 0 && free >= needed;) {
        victim *other = &policy->victims[v];
        if (other->taken && free - other->devices >= needed && !is_also_stopped(policy, v, count)) {
            other->taken = false;
            free -= other->devices;
        }
    }
    policy->plan.count = 0;
    policy->plan.ranks = needed;
    return free >= needed;
}

/* ---- doing ---- */

static void stop(ls_policy *policy, const victim *v, uint32_t for_slot, uint64_t now_ms)
{
    job *other = &policy->jobs[v->job];
    other->for_job = for_slot;
    policy->jobs[for_slot].givers++;
    if (v->tier == TIER_SHRINK) {
        ls_job_shed(policy, v->job, v->devices);
        other->resizing = true;
        ls_action_add_shares(policy, ls_action_add(policy, LS_ACTION_SHRINK, v->job, for_slot), other);
        return;
    }
    if (now_ms - ls_min_u64(now_ms, other->window_ms) >= policy->settings.preemption_window_ms) {
        other->window_ms = now_ms;
        other->preemptions = 0;
    }
    other->preemptions++;
    other->stopping = true;
    ls_action_add(policy, v->tier == TIER_END ? LS_ACTION_END : LS_ACTION_PREEMPT, v->job, for_slot);
}

/* What decides who may be asked. Jobs with the same signature have the same victims. */
static asking signature(const ls_policy *policy, const job *j, bool own, bool equals)
{
    return (asking){.account = policy->any_quota ? j->spec.account : 0,
                    .queue = ls_job_queue(policy, j->attained_device_ms),
                    .priority = j->spec.priority,
                    .spot = j->spec.spot,
                    .own = own,
                    .equals = equals};
}

static asking *known_offer(ls_policy *policy, const asking *like)
{
    for (uint32_t i = 0; i < policy->offer_count; i++) {
        asking *o = &policy->offers[i];
        if (o->account == like->account && o->queue == like->queue && o->priority == like->priority &&
            o->spot == like->spot && o->own == like->own && o->equals == like->equals) {
            return o;
        }
    }
    return NULL;
}

/* Within a pass, less and less can be had: a job that asks for as much as one that failed before
 * need not look. */
static bool is_in_vain(const asking *known, const ls_gang_shape *shape, uint32_t needed, uint32_t missing)
{
    return known->devices < missing ||
           (known->failed_ranks > 0 && needed >= known->failed_ranks && ls_shape_same(shape, &known->failed));
}

static void remember_vain(asking *known, const ls_gang_shape *shape, uint32_t needed)
{
    if (known && (known->failed_ranks == 0 || needed < known->failed_ranks)) {
        known->failed = *shape;
        known->failed_ranks = needed;
    }
}

/*
 * Lists the jobs that may be asked; false when all of them together would not be enough. The result
 * is kept in `known`, so that jobs alike need not look again in this pass. When there is no room
 * left to keep it, a look costs one of the attempts, which bounds the work of a pass.
 */
static bool list_victims(ls_policy *policy, search *s, asking **known, uint32_t *attempts)
{
    uint32_t devices = 0;
    for (uint32_t i = 0; i < policy->running_count; i++) {
        if (may_yield(s->j, s->like.queue, policy->any_quota, policy->running[i].hint)) {
            offer_victims(policy, s, policy->running[i].slot);
        }
    }
    for (uint32_t i = 0; i < s->count; i++) {
        devices += policy->victims[i].devices;
    }
    if (!*known && policy->offer_count < OFFERS_MAX) {
        *known = &policy->offers[policy->offer_count++];
        **known = s->like;
    } else if (!*known) {
        --*attempts;
    }
    if (*known) {
        (*known)->devices = devices;
    }
    return s->count > 0 && devices >= s->missing;
}

/* Whether victims that are listed can make room; the plan is policy->plan. */
static bool take(ls_policy *policy, const ls_gang_shape *shape, uint32_t needed, uint32_t count)
{
    const uint32_t free = policy->settings.pooled ? policy->pooled_free : ls_shape_free(&policy->map, shape);
    policy->victims_missing = needed > free ? needed - free : 1;
    sort_victims(policy, count);
    return policy->settings.pooled ? take_victims_pooled(policy, needed, count)
                                   : take_somewhere(policy, shape, needed, count);
}

/*
 * Makes room for `needed` ranks of a job and lets it claim them. equals: jobs that need not yield
 * may be shrunk too. The plan is made first, on a copy of the free map; only when it holds is
 * anyone told to stop. The job then waits (CLAIMING) until all its victims have given up what they
 * were asked for.
 */
static bool try_preempt(ls_policy *policy, uint32_t slot, uint32_t needed, bool equals, uint64_t now_ms,
                        uint32_t *attempts)
{
    job *j = &policy->jobs[slot];
    const ls_gang_shape shape = ls_job_shape(policy, j);
    const uint32_t free = policy->settings.pooled ? policy->pooled_free : ls_shape_free(&policy->map, &shape);
    search s = {.j = j,
                .now_ms = now_ms,
                .missing = needed > free ? needed - free : 1,
                .like = signature(policy, j, ls_quota_is_own(policy, j, j->spec.min_ranks), equals)};
    asking *known = known_offer(policy, &s.like);
    if (*attempts == 0 || (known && is_in_vain(known, &shape, needed, s.missing)) ||
        !list_victims(policy, &s, &known, attempts)) {
        return false;
    }
    *attempts -= *attempts > 0;
    if (!take(policy, &shape, needed, s.count)) {
        remember_vain(known, &shape, needed);
        return false;
    }
    for (uint32_t i = 0; i < s.count; i++) {
        if (policy->victims[i].taken && !is_also_stopped(policy, i, s.count)) {
            stop(policy, &policy->victims[i], slot, now_ms);
        }
    }
    ls_job_claim(policy, now_ms, slot, &policy->plan);
    j->state = JOB_CLAIMING;
    ls_group_count(policy, j, 1);
    ls_running_add(policy, slot);
    return true;
}

/* What its account may still use beside the jobs with a reservation before it. */
static uint32_t room_for(const ls_policy *policy, const job *j)
{
    return ls_quota_room_bound(policy, j, policy->reservation_count);
}

bool ls_preempt_for(ls_policy *policy, uint32_t slot, uint64_t now_ms, uint32_t *attempts)
{
    const job *j = &policy->jobs[slot];
    return room_for(policy, j) >= j->spec.min_ranks &&
           try_preempt(policy, slot, j->spec.min_ranks, true, now_ms, attempts);
}

bool ls_preempt_for_all(ls_policy *policy, uint32_t slot, uint64_t now_ms, uint32_t *attempts)
{
    const job *j = &policy->jobs[slot];
    const uint32_t room = room_for(policy, j);
    const uint32_t wanted = ls_round_ranks(j, j->spec.ranks < room ? j->spec.ranks : room);
    return wanted > j->spec.min_ranks && try_preempt(policy, slot, wanted, false, now_ms, attempts);
}

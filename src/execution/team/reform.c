// SPDX-License-Identifier: Apache-2.0
#include "execution/team/reform.h"

#include "base/assert.h"
#include "base/math.h"

/* ---- cutting ---- */

/* Ranks of a host that can get parts, in whole units. */
static uint32_t usable(const ls_reform_host *host, uint32_t unit)
{
    const uint32_t ranks = host->is_here && !host->is_leaving ? host->status.ranks : 0;
    return ranks / unit * unit;
}

static uint32_t stage_ranks(const ls_reform_settings *settings)
{
    return settings->stage_ranks > 0 ? settings->stage_ranks : 1;
}

static uint32_t parts_with(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count,
                           uint32_t unit)
{
    const uint32_t crew = settings->crew > 0 ? settings->crew : 1;
    uint32_t parts = 0;
    for (uint32_t i = 0; i < count; i++) {
        parts += usable(&hosts[i], unit);
    }
    return (parts < settings->parts_max ? parts : settings->parts_max) / crew * crew;
}

/* Whole crews per host, unless whole stages make more of them, or host 0, where the trainer is,
 * would have none. */
static uint32_t unit_of(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count)
{
    const uint32_t crew = settings->crew > 0 ? settings->crew : 1, stage = stage_ranks(settings);
    const bool is_whole =
        parts_with(settings, hosts, count, crew) == parts_with(settings, hosts, count, stage) &&
        usable(&hosts[0], crew) > 0;
    return is_whole ? crew : stage;
}

uint32_t ls_reform_part_count(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count)
{
    return parts_with(settings, hosts, count, stage_ranks(settings));
}

void ls_reform_cut(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count,
                   uint64_t epoch, uint64_t step, ls_cut *cut_out)
{
    const uint32_t unit = unit_of(settings, hosts, count);
    const uint32_t all = parts_with(settings, hosts, count, unit);
    *cut_out = (ls_cut){.epoch = epoch, .step = step};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t left = all - cut_out->parts, ranks = usable(&hosts[i], unit);
        const uint32_t parts = ranks < left ? ranks : left;
        if (parts > 0) {
            cut_out->hosts[cut_out->host_count++] = (ls_cut_host){.host = (uint16_t)i,
                                                                  .first_part = (uint16_t)cut_out->parts,
                                                                  .part_count = (uint16_t)parts,
                                                                  .holder = (uint16_t)i};
            cut_out->parts += parts;
        }
    }
}

uint32_t ls_reform_parts(const ls_cut *cut, uint32_t host)
{
    for (uint32_t i = 0; i < cut->host_count; i++) {
        if (cut->hosts[i].host == host) {
            return cut->hosts[i].part_count;
        }
    }
    return 0;
}

/* ---- who holds what ---- */

const ls_cut *ls_reform_held(const ls_reform_host *hosts, uint32_t count, const ls_cut *const *cuts,
                             uint32_t cut_count)
{
    LS_ASSERT(cut_count >= 1);
    for (uint32_t c = 0; c + 1 < cut_count; c++) {
        for (uint32_t i = 0; i < count; i++) {
            if (hosts[i].is_here && hosts[i].status.held >= cuts[c]->epoch) {
                return cuts[c];
            }
        }
    }
    return cuts[cut_count - 1];
}

/* A host without a part in the next cut (it leaves, or has no place in a whole crew) hands over
 * only what others have, too; nor does a host hold anything once none of its ranks with a part
 * is left. */
static bool stays(const ls_reform_host *hosts, const ls_cut *next, uint16_t host)
{
    return hosts[host].is_here && hosts[host].status.bound > 0 && ls_reform_parts(next, host) > 0;
}

/* A host that has what host `index` of the cut keeps: itself, else one that has its shadow. */
static uint16_t holder_of(const ls_reform_settings *settings, const ls_reform_host *hosts, const ls_cut *next,
                          const ls_cut *cut, uint32_t index)
{
    const uint16_t owner = cut->hosts[index].host;
    if (stays(hosts, next, owner)) {
        return owner;
    }
    const uint32_t others = settings->zero == 0 ? cut->host_count - 1 : settings->shadow ? 1 : 0;
    for (uint32_t i = 1; i <= others && cut->host_count > 1; i++) {
        const uint16_t other = cut->hosts[(index + i) % cut->host_count].host;
        if (stays(hosts, next, other)) {
            return other;
        }
    }
    return LS_REFORM_NO_HOST;
}

bool ls_reform_find_holders(const ls_reform_settings *settings, const ls_reform_host *hosts, uint32_t count,
                            ls_cut *cut)
{
    bool is_whole = true;
    ls_cut next;
    ls_reform_cut(settings, hosts, count, 0, 0, &next);
    for (uint32_t i = 0; i < cut->host_count; i++) {
        cut->hosts[i].holder = holder_of(settings, hosts, &next, cut, i);
        is_whole = is_whole && cut->hosts[i].holder != LS_REFORM_NO_HOST;
    }
    return is_whole;
}

/* ---- deciding ---- */

static uint32_t ranks_to_come(const ls_reform_host *hosts, uint32_t count)
{
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < count; i++) {
        ranks += hosts[i].is_here && !hosts[i].is_leaving ? hosts[i].status.ranks : 0;
    }
    return ranks;
}

static bool is_coming(const ls_reform_host *hosts, uint32_t count)
{
    bool some = false;
    for (uint32_t i = 0; i < count; i++) {
        some = some || (hosts[i].is_here && !hosts[i].is_leaving && hosts[i].status.coming > 0);
    }
    return some;
}

/* How far the members of the newest cut, the one they work in, have got. */
typedef struct progress {
    uint64_t entered; /* steps entered by the furthest */
    uint64_t slowest; /* steps finished by the slowest */
    /* The steps that all will have finished: those that some have finished, or whose last one
     * some agreed on. */
    uint64_t target;
    uint32_t agreed; /* a host that has the verdict on the last of them */
    bool all_fenced, all_parked;
} progress;

/* The host reports, for this fence, that none of its ranks with a part is left: it will not
 * finish anything, and others have what it kept. */
static bool has_no_holder(const ls_host_status *status, const ls_reform_fence *fence)
{
    return status->fence == fence->epoch && status->bound == 0;
}

/* Its ranks work in the cut. A host that was to have a part but lost a rank before it heard so
 * never entered the cut: it still has what it had before. */
static bool works_in(const ls_reform_host *host, const ls_cut *cut, uint32_t index,
                     const ls_reform_fence *fence)
{
    const bool never_got_in = host->status.fence == fence->epoch && host->status.cut != cut->epoch;
    return host->is_here && ls_reform_parts(cut, index) > 0 && !never_got_in &&
           !has_no_holder(&host->status, fence);
}

/* Only hosts that work in the cut count for the progress. A host that is not fenced yet, or
 * parked for an older fence, keeps the others waiting: its report may still change. */
static progress look_at(const ls_reform_host *hosts, uint32_t count, const ls_cut *cut,
                        const ls_reform_fence *fence)
{
    progress p = {
        .slowest = UINT64_MAX, .target = cut->step, .agreed = count, .all_fenced = true, .all_parked = true};
    for (uint32_t i = 0; i < count; i++) {
        const ls_host_status *s = &hosts[i].status;
        /* All hosts must be parked, those without parts, too: how many ranks they have counts
         * for the next cut. */
        p.all_fenced = p.all_fenced && (!hosts[i].is_here || s->fence == fence->epoch);
        if (!works_in(&hosts[i], cut, i, fence)) {
            continue;
        }
        p.all_parked = p.all_parked && s->parked && (fence->hard || s->finished >= fence->limit);
        p.entered = ls_max_u64(p.entered, s->entered);
        p.slowest = ls_min_u64(p.slowest, s->finished);
        const uint64_t target = ls_max_u64(s->agreed, s->finished);
        p.target = ls_max_u64(p.target, target);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (works_in(&hosts[i], cut, i, fence) && hosts[i].status.agreed == p.target) {
            p.agreed = i;
        }
    }
    p.all_parked = p.all_parked && p.all_fenced;
    return p;
}

/* Whether all have come to rest where members may change. */
static bool is_at_rest(const ls_reform_settings *settings, const progress *p, const ls_reform_fence *fence)
{
    const bool is_apart = settings->round > 0 && !fence->hard;
    return p->all_parked && !(is_apart && (p->slowest < p->entered || p->entered % settings->round != 0));
}

/* The limit that a soft fence needs; 0: it has it, or some have not heard of the fence, after which
 * they enter one step or turn more at most. */
static uint64_t limit_of(const ls_reform_settings *settings, const progress *p, const ls_reform_fence *fence)
{
    const bool is_ahead = !fence->hard && !fence->is_finishing && p->entered > fence->limit;
    return !is_ahead              ? 0
           : settings->round == 0 ? p->entered
           : p->all_fenced        ? (p->entered / settings->round + 1) * settings->round
                                  : 0;
}

/* In this order: wait until all are parked (a soft fence may need a higher limit first); end the
 * run when it cannot go on; go back to a checkpoint when part of the state is lost; let hosts
 * that are a step behind finish it; then a new cut. */
ls_reform_decision ls_reform_decide(const ls_reform_settings *settings, const ls_reform_host *hosts,
                                    uint32_t count, const ls_cut *const *cuts, uint32_t cut_count,
                                    const ls_reform_fence *fence)
{
    const progress p = look_at(hosts, count, cuts[0], fence);
    if (!is_at_rest(settings, &p, fence)) {
        const uint64_t limit = limit_of(settings, &p, fence);
        return (ls_reform_decision){.what = limit > 0 ? LS_REFORM_LIMIT : LS_REFORM_WAIT, .step = limit};
    }
    const ls_cut *held = ls_reform_held(hosts, count, cuts, cut_count);
    /* The trainer evaluates and saves what the ranks of its own host have brought together, and
     * gets the results from them. A host 0 that has just joined asks others for the results. */
    const bool has_trainer =
        hosts[0].is_here && (hosts[0].status.bound > 0 || ls_reform_parts(cuts[0], 0) == 0);
    const bool is_enough = ranks_to_come(hosts, count) >= settings->min_ranks &&
                           usable(&hosts[0], stage_ranks(settings)) > 0 &&
                           ls_reform_part_count(settings, hosts, count) > 0;
    const bool may_come = has_trainer && settings->crew > 1 && is_coming(hosts, count);
    if (!has_trainer || !is_enough) {
        return (ls_reform_decision){.what = may_come ? LS_REFORM_WAIT : LS_REFORM_END};
    }
    ls_cut holders = *held;
    const bool is_torn = settings->round > 0 && fence->hard;
    if (is_torn || !ls_reform_find_holders(settings, hosts, count, &holders)) {
        return (ls_reform_decision){.what = may_come ? LS_REFORM_WAIT : LS_REFORM_CHECKPOINT};
    }
    if (p.slowest < p.target) {
        /* A host can be one step behind, never more, because the next agreement waits for it. */
        const bool can_finish = p.slowest + 1 == p.target && p.agreed < count;
        return (ls_reform_decision){
            .what = can_finish ? LS_REFORM_FINISH : LS_REFORM_CHECKPOINT, .step = p.target, .from = p.agreed};
    }
    return (ls_reform_decision){.what = LS_REFORM_FORM, .step = p.target};
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/team/membership.h"

#include "base/assert.h"
#include "base/math.h"

typedef const ls_membership_facts facts;
typedef ls_membership_action action;

/* ---- what the facts come to ---- */

static uint32_t parts_of(facts *f, uint32_t slot)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->parts; i++) {
        count += f->part[i].holder == slot && !f->part[i].orphan;
    }
    return count;
}

static bool is_named(facts *f, uint32_t slot)
{
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->part[i].holder == slot) {
            return true;
        }
    }
    return false;
}

bool ls_membership_is_bound(facts *f, uint32_t slot)
{
    const ls_slot_facts *p = &f->slot[slot];
    return p->state != LS_SLOT_EMPTY && !p->fresh && is_named(f, slot);
}

static bool has_orphans(facts *f)
{
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->part[i].orphan) {
            return true;
        }
    }
    return false;
}

static bool is_coming(const ls_slot_facts *p)
{
    return p->wanted && (p->state == LS_SLOT_STARTING || (p->state == LS_SLOT_EMPTY && p->hopeful) ||
                         (p->state == LS_SLOT_KILLED && p->hopeful));
}

static bool is_usable(const ls_slot_facts *p)
{
    return p->wanted && p->state == LS_SLOT_READY;
}

static bool is_usable_or_coming(const ls_slot_facts *p)
{
    return is_usable(p) || is_coming(p);
}

static uint32_t crew_of(facts *f)
{
    return f->crew > 0 ? f->crew : 1;
}

/* Whether all slots of the block of `slot` are so: of the slot alone without crews. */
static bool is_block(facts *f, uint32_t slot, bool (*is)(const ls_slot_facts *))
{
    const uint32_t crew = crew_of(f), first = slot - slot % crew;
    bool all = first + crew <= f->slots;
    for (uint32_t i = first; all && i < first + crew; i++) {
        all = is(&f->slot[i]);
    }
    return all;
}

/* In blocks that are so completely. */
static uint32_t count_slots(facts *f, bool (*is)(const ls_slot_facts *))
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->slots; i++) {
        count += is_block(f, i, is);
    }
    return count;
}

static bool is_any_coming(facts *f)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        if (is_coming(&f->slot[i])) {
            return true;
        }
    }
    return false;
}

/* Fewer ranks live or are about to start than the run may have. */
static bool is_doomed(facts *f)
{
    const uint32_t needed = f->min_ranks > crew_of(f) ? f->min_ranks : crew_of(f);
    return f->finishing || count_slots(f, is_usable_or_coming) < needed;
}

static uint64_t most_entered(facts *f)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < f->parts; i++) {
        most = ls_max_u64(most, f->part[i].entered);
    }
    return most;
}

/* Whether all parts have finished the same step and its result was reported. */
static bool is_boundary(facts *f)
{
    const uint64_t step = f->part[0].done;
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->part[i].done != step || f->part[i].entered != step) {
            return false;
        }
    }
    return f->reported >= step;
}

/* ---- teams ---- */

/* The usable ranks in order, with a part each; of crews, those that are complete. */
static ls_team team_wanted(facts *f)
{
    ls_team team = {0};
    for (uint32_t i = 0; i < f->slots; i++) {
        if (is_block(f, i, is_usable)) {
            team.holder[team.local_parts++] = (uint16_t)i;
        }
    }
    team.parts = team.local_parts;
    return team;
}

static bool is_in_force(facts *f, const ls_team *team)
{
    bool same = team->parts == f->parts;
    for (uint32_t i = 0; same && i < f->parts; i++) {
        same = f->part[i].holder == team->holder[i] && !f->part[i].orphan;
    }
    return same;
}

/* The same cut, with crews: each orphan part goes to the new rank in its slot. */
static ls_team team_returning(facts *f)
{
    ls_team team = {.parts = f->parts, .local_parts = f->parts};
    for (uint32_t i = 0; i < f->parts; i++) {
        const ls_slot_facts *p = &f->slot[f->part[i].holder];
        if (f->part[i].orphan && (p->state != LS_SLOT_READY || p->leaving)) {
            return (ls_team){0};
        }
        team.holder[i] = (uint16_t)f->part[i].holder;
    }
    return team;
}

/* The same cut. Each orphan part goes to the ready rank with the fewest parts; among equals to a
 * wanted one, then to the lowest. parts = 0: there is no such rank. */
static ls_team team_adopting(facts *f)
{
    ls_team team = {.parts = f->parts, .local_parts = f->parts};
    uint32_t load[LS_LOCAL_RANKS_MAX];
    for (uint32_t i = 0; i < f->slots; i++) {
        load[i] = parts_of(f, i);
    }
    for (uint32_t i = 0; i < f->parts; i++) {
        uint32_t best = f->slots;
        for (uint32_t p = 0; p < f->slots && f->part[i].orphan; p++) {
            const bool better = best == f->slots || load[p] < load[best] ||
                                (load[p] == load[best] && f->slot[p].wanted && !f->slot[best].wanted);
            if (f->slot[p].state == LS_SLOT_READY && !f->slot[p].leaving && better) {
                best = p;
            }
        }
        if (f->part[i].orphan && best == f->slots) {
            return (ls_team){0};
        }
        team.holder[i] = (uint16_t)(f->part[i].orphan ? best : f->part[i].holder);
        load[team.holder[i]] += f->part[i].orphan;
    }
    return team;
}

/* ---- processes ---- */

/* A process that was killed and does not die ends the run: nothing may touch the state while it
 * might still write. Otherwise a process that is late is killed, and one that is starting for a
 * slot no longer wanted. */
static bool kill_is_due(facts *f, action *out)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        const ls_slot_facts *p = &f->slot[i];
        const bool useless = p->state == LS_SLOT_STARTING && !p->wanted && !ls_membership_is_bound(f, i);
        if (p->late && p->state == LS_SLOT_KILLED) {
            *out = (action){.what = LS_MEMBERSHIP_END, .end = LS_MEMBERSHIP_UNKILLABLE, .rank = i};
            return true;
        }
        if (useless || (p->late && p->state != LS_SLOT_EMPTY)) {
            *out = (action){.what = LS_MEMBERSHIP_KILL, .rank = i};
            return true;
        }
    }
    return false;
}

static bool start_is_due(facts *f, action *out)
{
    for (uint32_t i = 0; i < f->slots && !f->stopping; i++) {
        const ls_slot_facts *p = &f->slot[i];
        if (p->state == LS_SLOT_EMPTY && p->wanted && p->startable) {
            *out = (action){.what = LS_MEMBERSHIP_START, .rank = i};
            return true;
        }
    }
    return false;
}

static bool leave_is_due(facts *f, action *out)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        const ls_slot_facts *p = &f->slot[i];
        if (p->state == LS_SLOT_READY && !p->wanted && !p->leaving && !is_named(f, i)) {
            *out = (action){.what = LS_MEMBERSHIP_LEAVE, .rank = i};
            return true;
        }
    }
    return false;
}

/* ---- no fence ---- */

static action raise_fence(facts *f, bool hard)
{
    const uint64_t next = f->epoch + 1;
    return (action){.what = LS_MEMBERSHIP_FENCE, .hard = hard, .epoch = ls_max_u64(f->fence, next)};
}

static action give_up(void)
{
    return (action){.what = LS_MEMBERSHIP_END, .end = LS_MEMBERSHIP_TOO_FEW};
}

/* No fence is up. Raise one when the ranks that compute are not those that should, or when too
 * few are left: a soft fence, since the step itself can be finished. */
static action go_on(facts *f)
{
    const ls_team team = team_wanted(f);
    const bool fits = is_in_force(f, &team);
    if (!f->begun && is_any_coming(f)) {
        return (action){.what = LS_MEMBERSHIP_WAIT};
    }
    if (f->stopping) {
        return (action){.what = LS_MEMBERSHIP_WAIT};
    }
    if (is_doomed(f) || (!fits && team.parts > 0)) {
        return raise_fence(f, false);
    }
    return (action){.what = f->begun || team.parts == 0 ? LS_MEMBERSHIP_WAIT : LS_MEMBERSHIP_BEGIN};
}

/* ---- behind a fence ---- */

/* No process that may act in the team in force can write: each is parked and not about to be
 * killed while it might still run, or it is gone. */
static bool is_quiet(facts *f)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        if (ls_membership_is_bound(f, i) && (!f->slot[i].parked || f->slot[i].state == LS_SLOT_KILLED)) {
            return false;
        }
    }
    return true;
}

/* All parts have finished the same step, so nothing of the old cut is needed any more. */
static action cut_anew(facts *f)
{
    action out = {.what = LS_MEMBERSHIP_TEAM, .team = team_wanted(f)};
    const uint64_t step = f->part[0].done;
    if (is_doomed(f)) {
        return give_up();
    }
    if (out.team.parts == 0 || (!f->begun && is_any_coming(f))) {
        return (action){.what = LS_MEMBERSHIP_WAIT};
    }
    out.team.epoch = out.team.cut = f->fence;
    out.team.first_step = out.team.step = step;
    return out;
}

/* No rank is left to take over a step that may be half updated; or, with crews, none that can. */
static action none_left(facts *f)
{
    if (!f->stopping && is_any_coming(f)) {
        return (action){.what = LS_MEMBERSHIP_WAIT};
    }
    for (uint32_t i = 0; i < f->slots; i++) {
        if (f->slot[i].state == LS_SLOT_STARTING) {
            return (action){.what = LS_MEMBERSHIP_WAIT};
        }
        if (f->may_finish && f->begun && f->slot[i].wanted && f->slot[i].state == LS_SLOT_EMPTY &&
            (crew_of(f) == 1 || is_named(f, i))) {
            return (action){.what = LS_MEMBERSHIP_START, .rank = i};
        }
    }
    return give_up();
}

/* Finish the interrupted step with the ranks that are there. */
static action adopt(facts *f)
{
    action out = {.what = LS_MEMBERSHIP_TEAM, .team = crew_of(f) > 1 ? team_returning(f) : team_adopting(f)};
    if (out.team.parts == 0) {
        return none_left(f);
    }
    const uint64_t entered = most_entered(f);
    out.team.epoch = f->fence;
    out.team.cut = f->cut;
    out.team.first_step = f->first_step;
    out.team.step = entered > f->first_step ? entered - 1 : entered;
    return out;
}

/* Behind a fence. A hard one waits until every bound process is parked, wherever in the step it
 * is; a soft one until all have finished the same step. If, behind a soft fence, some ranks have
 * entered a step that others were stopped before, the limit is raised so that the others finish
 * it, too: no rank may be left inside a step that the rest never begins. */
static action change_team(facts *f)
{
    const bool boundary = is_boundary(f), hard = f->hard;
    if (!is_quiet(f) || (!hard && !boundary)) {
        const uint64_t entered = most_entered(f);
        const bool some_wait = !hard && entered > f->limit && !boundary;
        return some_wait ? (action){.what = LS_MEMBERSHIP_LIMIT, .step = entered}
                         : (action){.what = LS_MEMBERSHIP_WAIT};
    }
    if (!hard && f->limit > f->part[0].done) {
        return (action){.what = LS_MEMBERSHIP_WAIT}; /* ranks are about to run on */
    }
    return boundary ? cut_anew(f) : adopt(f);
}

/* The order of the questions is the order of urgency: what ends the run; processes that must
 * die; work without a holder; starts and departures; then the regular course with or without a
 * fence. */
void ls_membership_next(facts *f, action *out)
{
    LS_ASSERT(f->slots >= 1 && f->parts >= 1);
    const bool is_fenced = f->fence > f->epoch;
    *out = (action){.what = LS_MEMBERSHIP_WAIT};
    if (f->ending) {
        return;
    }
    if (f->deadly) {
        *out = (action){.what = LS_MEMBERSHIP_END, .end = LS_MEMBERSHIP_DEADLY};
        return;
    }
    if (kill_is_due(f, out)) {
        return;
    }
    if (has_orphans(f) && !(is_fenced && f->hard)) {
        /* before any process is started in a slot that the team names */
        *out = raise_fence(f, true);
        return;
    }
    if (start_is_due(f, out) || leave_is_due(f, out)) {
        return;
    }
    *out = is_fenced ? change_team(f) : go_on(f);
}

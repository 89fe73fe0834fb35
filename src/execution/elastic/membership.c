// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/membership.h"

#include "base/assert.h"

typedef const ls_membership_facts facts;
typedef ls_membership_action action;

/* ---- what the facts come to ---- */

static uint32_t parts_of(facts *f, uint32_t place)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->parts; i++) {
        count += f->part[i].holder == place && !f->part[i].orphan;
    }
    return count;
}

static bool is_named(facts *f, uint32_t place)
{
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->part[i].holder == place) {
            return true;
        }
    }
    return false;
}

bool ls_membership_is_bound(facts *f, uint32_t place)
{
    const ls_place *p = &f->place[place];
    return p->state != LS_PLACE_EMPTY && !p->fresh && is_named(f, place);
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

static bool is_coming(const ls_place *p)
{
    return p->wanted && (p->state == LS_PLACE_COMING || (p->state == LS_PLACE_EMPTY && p->hopeful) ||
                         (p->state == LS_PLACE_KILLED && p->hopeful));
}

static bool is_usable(const ls_place *p)
{
    return p->wanted && p->state == LS_PLACE_READY;
}

static uint32_t count_places(facts *f, bool (*is)(const ls_place *))
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->places; i++) {
        count += is(&f->place[i]);
    }
    return count;
}

/* Fewer live or come than the run may have. */
static bool is_doomed(facts *f)
{
    return f->finishing || count_places(f, is_usable) + count_places(f, is_coming) < f->min_ranks;
}

static uint64_t most_entered(facts *f)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < f->parts; i++) {
        most = f->part[i].entered > most ? f->part[i].entered : most;
    }
    return most;
}

/* Whether all parts stand behind the same step, whose result was told. */
static bool is_boundary(facts *f)
{
    const uint64_t step = f->part[0].done;
    for (uint32_t i = 0; i < f->parts; i++) {
        if (f->part[i].done != step || f->part[i].entered != step) {
            return false;
        }
    }
    return f->told >= step;
}

/* ---- teams ---- */

/* The usable ranks in their order, a part for each. */
static ls_team team_wanted(facts *f)
{
    ls_team team = {0};
    for (uint32_t i = 0; i < f->places; i++) {
        if (is_usable(&f->place[i])) {
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

/* The same cut; what nobody holds goes to who holds least, of equals to who is wanted, then to the lowest. parts 0: there is nobody. */
static ls_team team_adopting(facts *f)
{
    ls_team team = {.parts = f->parts, .local_parts = f->parts};
    uint32_t load[LS_LOCAL_RANKS_MAX];
    for (uint32_t i = 0; i < f->places; i++) {
        load[i] = parts_of(f, i);
    }
    for (uint32_t i = 0; i < f->parts; i++) {
        uint32_t best = f->places;
        for (uint32_t p = 0; p < f->places && f->part[i].orphan; p++) {
            const bool better = best == f->places || load[p] < load[best] ||
                                (load[p] == load[best] && f->place[p].wanted && !f->place[best].wanted);
            if (f->place[p].state == LS_PLACE_READY && !f->place[p].leaving && better) {
                best = p;
            }
        }
        if (f->part[i].orphan && best == f->places) {
            return (ls_team){0};
        }
        team.holder[i] = (uint16_t)(f->part[i].orphan ? best : f->part[i].holder);
        load[team.holder[i]] += f->part[i].orphan;
    }
    return team;
}

/* ---- processes ---- */

static bool kill_is_due(facts *f, action *out)
{
    for (uint32_t i = 0; i < f->places; i++) {
        const ls_place *p = &f->place[i];
        const bool useless = p->state == LS_PLACE_COMING && !p->wanted && !ls_membership_is_bound(f, i);
        if (p->late && p->state == LS_PLACE_KILLED) {
            *out = (action){.what = LS_MEMBERSHIP_END, .end = LS_MEMBERSHIP_UNKILLABLE, .rank = i};
            return true;
        }
        if (useless || (p->late && p->state != LS_PLACE_EMPTY)) {
            *out = (action){.what = LS_MEMBERSHIP_KILL, .rank = i};
            return true;
        }
    }
    return false;
}

static bool start_is_due(facts *f, action *out)
{
    for (uint32_t i = 0; i < f->places && !f->stopping; i++) {
        const ls_place *p = &f->place[i];
        if (p->state == LS_PLACE_EMPTY && p->wanted && p->startable) {
            *out = (action){.what = LS_MEMBERSHIP_START, .rank = i};
            return true;
        }
    }
    return false;
}

static bool leave_is_due(facts *f, action *out)
{
    for (uint32_t i = 0; i < f->places; i++) {
        const ls_place *p = &f->place[i];
        if (p->state == LS_PLACE_READY && !p->wanted && !p->leaving && !is_named(f, i)) {
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
    return (action){.what = LS_MEMBERSHIP_FENCE, .hard = hard, .epoch = f->fence > next ? f->fence : next};
}

static action give_up(void)
{
    return (action){.what = LS_MEMBERSHIP_END, .end = LS_MEMBERSHIP_TOO_FEW};
}

static action go_on(facts *f)
{
    const ls_team team = team_wanted(f);
    const bool fits = is_in_force(f, &team);
    if (!f->begun && count_places(f, is_coming) > 0) {
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

static bool is_quiet(facts *f)
{
    for (uint32_t i = 0; i < f->places; i++) {
        if (ls_membership_is_bound(f, i) && (!f->place[i].parked || f->place[i].state == LS_PLACE_KILLED)) {
            return false;
        }
    }
    return true;
}

static action cut_anew(facts *f)
{
    action out = {.what = LS_MEMBERSHIP_TEAM, .team = team_wanted(f)};
    const uint64_t step = f->part[0].done;
    if (is_doomed(f)) {
        return give_up();
    }
    if (out.team.parts == 0 || (!f->begun && count_places(f, is_coming) > 0)) {
        return (action){.what = LS_MEMBERSHIP_WAIT};
    }
    out.team.epoch = out.team.cut = f->fence;
    out.team.first_step = out.team.step = step;
    return out;
}

/* In the middle of a step, which may be half an update. */
static action nobody_left(facts *f)
{
    if (!f->stopping && count_places(f, is_coming) > 0) {
        return (action){.what = LS_MEMBERSHIP_WAIT};
    }
    for (uint32_t i = 0; i < f->places; i++) {
        if (f->place[i].state == LS_PLACE_COMING) {
            return (action){.what = LS_MEMBERSHIP_WAIT};
        }
        if (f->may_finish && f->begun && f->place[i].wanted && f->place[i].state == LS_PLACE_EMPTY) {
            return (action){.what = LS_MEMBERSHIP_START, .rank = i};
        }
    }
    return give_up();
}

/* The step that runs is finished by whoever can. */
static action adopt(facts *f)
{
    action out = {.what = LS_MEMBERSHIP_TEAM, .team = team_adopting(f)};
    if (out.team.parts == 0) {
        return nobody_left(f);
    }
    const uint64_t entered = most_entered(f);
    out.team.epoch = f->fence;
    out.team.cut = f->cut;
    out.team.first_step = f->first_step;
    out.team.step = entered > f->first_step ? entered - 1 : entered;
    return out;
}

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
        return (action){.what = LS_MEMBERSHIP_WAIT}; /* they are about to run on */
    }
    return boundary ? cut_anew(f) : adopt(f);
}

void ls_membership_next(facts *f, action *out)
{
    LS_ASSERT(f->places >= 1 && f->parts >= 1);
    const bool stands = f->fence > f->epoch;
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
    if (has_orphans(f) && !(stands && f->hard)) {
        *out = raise_fence(f, true); /* before a process is started in a place that the team names */
        return;
    }
    if (start_is_due(f, out) || leave_is_due(f, out)) {
        return;
    }
    *out = stands ? change_team(f) : go_on(f);
}

// SPDX-License-Identifier: Apache-2.0
/* What is the case: the coordinator's table and the control page, as membership wants it. */
#include "execution/elastic/coordinator_internal.h"

#include <signal.h>
#include <string.h>

#define LEAVE_GRACE_NS   UINT64_C(10000000000)
#define KILL_GRACE_NS    UINT64_C(30000000000)
#define STOPPED_GRACE_NS UINT64_C(1000000000)

enum { DEATHS_MAX = 3, CRASHES_MAX = 2, FINISHERS_MAX = 2 };

static bool is_past(uint64_t now_ns, uint64_t since_ns, uint64_t grace_ns)
{
    return grace_ns > 0 && now_ns > since_ns && now_ns - since_ns >= grace_ns;
}

/* A fence stands, it does not park, and it shows no sign of life: it hangs, or was stopped. */
static bool is_late_to_park(const ls_coordinator *c, uint32_t local, uint64_t now_ns)
{
    const uint64_t alive_ns = atomic_load(&c->control->slots[local].alive_ns);
    const uint64_t since_ns = alive_ns > c->fence_ns && alive_ns <= now_ns ? alive_ns : c->fence_ns;
    if (is_past(now_ns, since_ns, STOPPED_GRACE_NS) && c->options.is_stopped &&
        c->options.is_stopped(c->options.context, local)) {
        return true;
    }
    return is_past(now_ns, since_ns, c->options.hang_timeout_ns);
}

static ls_place place_of(const ls_coordinator *c, uint32_t local, uint64_t fence, uint64_t epoch)
{
    const ls_coordinator_place *p = &c->place[local];
    const uint64_t now_ns = ls_env_now_ns(c->options.env);
    const bool may =
        p->wanted && !p->barred && (!p->had_one || c->replacements < c->options.max_replacements);
    ls_place place = {
        .state = !p->process ? LS_PLACE_EMPTY
                 : p->killed ? LS_PLACE_KILLED
                 : p->ready  ? LS_PLACE_READY
                             : LS_PLACE_COMING,
        .wanted = p->wanted && !p->barred,
        .hopeful = may,
        .startable = may && now_ns >= p->not_before_ns,
        .fresh = p->born_at > epoch,
        .parked = ls_control_is_parked(c->control, local),
        .leaving = p->leaving,
    };
    switch (place.state) {
    case LS_PLACE_COMING:
        place.late =
            c->phase == LS_GANG_RUNNING && is_past(now_ns, p->started_ns, c->options.start_timeout_ns);
        break;
    case LS_PLACE_READY:
        place.late = (p->leaving && is_past(now_ns, p->leave_ns, LEAVE_GRACE_NS)) ||
                     (fence > epoch && !place.parked && !p->leaving && is_late_to_park(c, local, now_ns));
        break;
    case LS_PLACE_KILLED:
        place.late = is_past(now_ns, p->killed_ns, KILL_GRACE_NS);
        break;
    case LS_PLACE_EMPTY:
        break;
    }
    return place;
}

static void gather_parts(const ls_coordinator *c, ls_membership_facts *facts)
{
    const ls_team *team = &c->control->team;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        const ls_part_marks *marks = &c->control->parts[i];
        facts->part[i] = (ls_part_facts){
            .holder = team->holder[i],
            .orphan = c->orphan[i],
            .entered = atomic_load(&marks->entered),
            .done = atomic_load(&marks->done),
        };
    }
    for (uint32_t i = 0; i < c->places; i++) {
        const uint64_t finished = atomic_load(&c->control->slots[i].finished);
        facts->told = finished > facts->told ? finished : facts->told;
    }
}

void ls_coordinator_gather(const ls_coordinator *c, ls_membership_facts *facts_out)
{
    const ls_control *control = c->control;
    const ls_team *team = &control->team;
    ls_membership_facts *facts = facts_out;
    *facts = (ls_membership_facts){
        .begun = c->phase == LS_GANG_RUNNING,
        .stopping = atomic_load(&control->stop) != 0,
        .ending = c->phase == LS_GANG_ENDING || atomic_load(&control->abort) != 0 ||
                  atomic_load(&control->quit) != 0,
        .deadly = ls_coordinator_is_deadly(c),
        .may_finish = c->finishers<FINISHERS_MAX, .finishing = c->finishers> 0,
        .min_ranks = c->options.min_ranks,
        .places = c->places,
        .parts = team->local_parts,
        .epoch = team->epoch,
        .cut = team->cut,
        .first_step = team->first_step,
        .fence = atomic_load(&control->fence),
        .limit = atomic_load(&control->limit),
        .hard = atomic_load(&control->hard) != 0,
    };
    /* Who is parked is read twice. Behind a hard fence ranks stay parked: what their parts are like is read behind it. Behind a soft one they
     * may be on their way out, under a limit that was raised: who is parked behind the end of the step is read behind its marks. */
    for (uint32_t i = 0; i < c->places; i++) {
        facts->place[i] = place_of(c, i, facts->fence, facts->epoch);
    }
    gather_parts(c, facts);
    for (uint32_t i = 0; i < c->places; i++) {
        facts->place[i].parked = facts->place[i].parked && ls_control_is_parked(control, i);
    }
}

/* ---- work that kills ---- */

void ls_coordinator_note_death(ls_coordinator *c, const ls_rank_end *end)
{
    if (end->leaf == LS_NO_LEAF) {
        return;
    }
    if (c->deadly.deaths == 0 || c->deadly.step != end->step || c->deadly.leaf != end->leaf) {
        c->deadly.step = end->step;
        c->deadly.leaf = end->leaf;
        c->deadly.deaths = c->deadly.crashes = 0;
    }
    c->deadly.deaths++;
    c->deadly.crashes += end->exit_code != 128 + SIGKILL;
}

/* A crash is the work's; a SIGKILL may have come from a person twice, and from the kernel for want of memory as often as it is tried. */
bool ls_coordinator_is_deadly(const ls_coordinator *c)
{
    return c->deadly.crashes >= CRASHES_MAX || c->deadly.deaths >= DEATHS_MAX;
}

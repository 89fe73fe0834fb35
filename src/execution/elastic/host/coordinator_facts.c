// SPDX-License-Identifier: Apache-2.0
/* The present facts: the coordinator's table and the control page, in the form that membership
 * asks for. */
#include "execution/elastic/host/coordinator_internal.h"

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

/* A fence is up, the rank does not park, and it shows no sign of life: it hangs or was stopped. */
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

/* With crews, only a rank in the slot of a lost one can finish its part, even if the run is to have
 * fewer ranks after this step. */
static bool is_needed(const ls_coordinator *c, uint32_t local)
{
    const ls_team *team = &c->control->team;
    bool needed = c->slot[local].wanted;
    for (uint32_t i = 0; i < team->local_parts && ls_mesh_crew(c->options.mesh) > 1; i++) {
        needed = needed || (c->orphan[i] && team->holder[i] == local);
    }
    return needed;
}

static ls_slot_facts slot_facts(const ls_coordinator *c, uint32_t local, uint64_t fence, uint64_t epoch)
{
    const ls_coordinator_slot *p = &c->slot[local];
    const uint64_t now_ns = ls_env_now_ns(c->options.env);
    const bool wanted = is_needed(c, local) && !p->barred;
    const bool may = wanted && (!p->had_one || c->replacements < c->options.max_replacements);
    ls_slot_facts slot = {
        .state = !p->process ? LS_SLOT_EMPTY
                 : p->killed ? LS_SLOT_KILLED
                 : p->ready  ? LS_SLOT_READY
                             : LS_SLOT_STARTING,
        .wanted = wanted,
        .hopeful = may,
        .startable = may && now_ns >= p->not_before_ns,
        .fresh = p->born_at > epoch,
        .parked = ls_control_is_parked(c->control, local),
        .leaving = p->leaving,
    };
    switch (slot.state) {
    case LS_SLOT_STARTING:
        slot.late =
            c->phase == LS_WORKERS_RUNNING && is_past(now_ns, p->started_ns, c->options.start_timeout_ns);
        break;
    case LS_SLOT_READY:
        slot.late = (p->leaving && is_past(now_ns, p->leave_ns, LEAVE_GRACE_NS)) ||
                    (fence > epoch && !slot.parked && !p->leaving && is_late_to_park(c, local, now_ns));
        break;
    case LS_SLOT_KILLED:
        slot.late = is_past(now_ns, p->killed_ns, KILL_GRACE_NS);
        break;
    case LS_SLOT_EMPTY:
        break;
    }
    return slot;
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
    facts->reported = ls_coordinator_reported(c);
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

/* A crash is the fault of the work. A SIGKILL may come from a person, twice perhaps, but from
 * the kernel, for lack of memory, each time the work is tried again. */
static bool is_deadly(const ls_coordinator *c)
{
    return c->deadly.crashes >= CRASHES_MAX || c->deadly.deaths >= DEATHS_MAX;
}

/* ---- all facts ---- */

void ls_coordinator_gather(const ls_coordinator *c, ls_membership_facts *facts_out)
{
    const ls_control *control = c->control;
    const ls_team *team = &control->team;
    ls_membership_facts *facts = facts_out;
    *facts = (ls_membership_facts){
        .begun = c->phase == LS_WORKERS_RUNNING,
        .stopping = atomic_load(&control->stop) != 0,
        .ending = c->phase == LS_WORKERS_ENDING || atomic_load(&control->abort) != 0 ||
                  atomic_load(&control->quit) != 0,
        .deadly = is_deadly(c),
        .may_finish = c->finishers<FINISHERS_MAX, .finishing = c->finishers> 0,
        .min_ranks = c->options.min_ranks,
        .crew = ls_mesh_crew(c->options.mesh),
        .slots = c->slots,
        .parts = team->local_parts,
        .epoch = team->epoch,
        .cut = team->cut,
        .first_step = team->first_step,
        .fence = atomic_load(&control->fence),
        .limit = atomic_load(&control->limit),
        .hard = atomic_load(&control->hard) != 0,
    };
    /*
     * What is parked is read twice, because ranks move while this function reads. Behind a hard
     * fence parked ranks stay parked, so their parts' marks are read after it and are final. Behind
     * a soft fence ranks may be on their way out, under a limit that was raised; whether they are
     * parked at the end of the step must be read after its marks. A rank counts as parked only if
     * both reads say so.
     */
    for (uint32_t i = 0; i < c->slots; i++) {
        facts->slot[i] = slot_facts(c, i, facts->fence, facts->epoch);
    }
    gather_parts(c, facts);
    for (uint32_t i = 0; i < c->slots; i++) {
        facts->slot[i].parked = facts->slot[i].parked && ls_control_is_parked(control, i);
    }
}

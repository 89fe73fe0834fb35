// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/hosts/host_side.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/math.h"

#include <string.h>

static const uint64_t START_PAUSE_NS = 50 * 1000 * 1000;

void ls_host_side_init(ls_host_side *side, const ls_segment *segment, uint32_t host_index,
                       uint32_t replacements_max)
{
    *side =
        (ls_host_side){.segment = segment, .host_index = host_index, .replacements_max = replacements_max};
}

/* The first rank of the host sets the standard: later ones are compared with it. */
bool ls_host_side_ready(ls_host_side *side, uint32_t local)
{
    ls_preflight_member both[2] = {{.rank = side->segment->control->first_rank},
                                   {.rank = side->segment->control->first_rank + local}};
    both[1].preflight = ls_segment_slot(side->segment, local)->preflight;
    if (!side->had_rank) {
        side->had_rank = true;
        side->preflight = both[1].preflight;
    }
    both[0].preflight = side->preflight;
    if (side->replaced > 0 && ls_preflight_compare(both, 2) != LS_OK) {
        ls_log_warn("rank %u cannot join: %s", both[1].rank, ls_error_text());
        return false;
    }
    side->lives[local] = true;
    side->is_starting[local] = false;
    return true;
}

void ls_host_side_lost(ls_host_side *side, uint32_t local)
{
    side->lives[local] = side->is_late[local] = side->is_starting[local] = false;
    side->is_empty[local] = true;
}

/* ---- replacements ---- */

bool ls_host_side_has_part(const ls_host_side *side, uint32_t local)
{
    const ls_team *team = &side->segment->control->team;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        if (team->holder[i] == local) {
            return true;
        }
    }
    return false;
}

/* It lives and works, or waits, with its part. */
static bool is_bound(const ls_host_side *side, uint32_t local)
{
    return side->lives[local] && !side->is_late[local] && ls_host_side_has_part(side, local);
}

/* Whether the slot may get another process now. Without crews not while a fence is up: the next cut
 * is being decided, and goes by the ranks that are there. */
static bool may_start(const ls_host_side *side, uint32_t local)
{
    const ls_control *control = side->segment->control;
    const bool fenced = atomic_load(&control->fence) > atomic_load(&control->team_epoch);
    return side->is_empty[local] &&
           (control->crew > 1 && fenced ? true : !fenced && !ls_host_side_has_part(side, local));
}

bool ls_host_side_next_start(ls_host_side *side, uint64_t now_ns, uint32_t *local_out)
{
    const ls_control *control = side->segment->control;
    const uint32_t doublings = side->replaced < 8 ? side->replaced : 8;
    if (side->replaced >= side->replacements_max ||
        (side->replaced > 0 && now_ns - side->started_ns < START_PAUSE_NS << doublings)) {
        return false;
    }
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        if (may_start(side, local)) {
            side->is_empty[local] = false;
            side->is_starting[local] = true;
            side->is_late[local] = ls_host_side_has_part(side, local);
            side->replaced++;
            side->started_ns = now_ns;
            *local_out = local;
            return true;
        }
    }
    return false;
}

/* ---- what it reports ---- */

/* The slowest rank counts: a gather is complete when all have taken part. */
uint32_t ls_host_side_gathered(const ls_host_side *side)
{
    const ls_control *control = side->segment->control;
    uint32_t least = atomic_load(&control->gather);
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const uint32_t gathered = atomic_load(&control->slots[local].gathered);
        if (is_bound(side, local) && gathered < least) {
            least = gathered;
        }
    }
    return least;
}

void ls_host_side_set_gathered(ls_host_side *side, uint32_t gathered)
{
    ls_control *control = side->segment->control;
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        atomic_store(&control->slots[local].gathered, gathered);
    }
}

static uint64_t count_agreed(const ls_host_side *side)
{
    ls_step_verdict verdict;
    ls_data_parallel_read_verdict(side->segment->exchange, &verdict);
    return verdict.agreed;
}

/* What the coordinator decides by. `parked` must never be true too early: with it the
 * coordinator takes the shared state as at rest. Hence every rank with a part must be parked,
 * and none may be about to leave under a limit that was raised. */
void ls_host_side_status(const ls_host_side *side, ls_host_status *status_out)
{
    const ls_control *control = side->segment->control;
    const uint64_t fence = atomic_load(&control->fence), team = atomic_load(&control->team_epoch);
    ls_host_status status = {.fence = fence > team ? fence : 0,
                             .cut = control->team.cut,
                             .held = atomic_load(&control->held),
                             .finished = UINT64_MAX,
                             .agreed = count_agreed(side),
                             .parked = fence > team};
    for (uint32_t i = 0; i < control->team.local_parts; i++) {
        const uint64_t entered = atomic_load(&control->parts[i].entered);
        const uint64_t done = atomic_load(&control->parts[i].done);
        status.entered = ls_max_u64(status.entered, entered);
        status.finished = ls_min_u64(status.finished, done);
    }
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        status.ranks += side->lives[local];
        status.bound += is_bound(side, local);
        status.coming +=
            side->is_starting[local] || (side->is_empty[local] && side->replaced < side->replacements_max);
        /* A rank without a part touches nothing. */
        status.parked = status.parked && (!is_bound(side, local) || ls_control_is_parked(control, local));
    }
    /* A rank that was just let go still looks parked until it moves. */
    const bool goes_on = atomic_load(&control->hard) == 0 && status.finished < atomic_load(&control->limit);
    status.parked = status.parked && !goes_on;
    *status_out = status;
}

/* ---- what it carries out ---- */

/* Fences only grow: in epoch, from soft to hard, in their limit. So an order that arrives late
 * or twice can do no harm. */
void ls_host_side_fence(ls_host_side *side, uint64_t epoch, bool hard, uint64_t limit)
{
    ls_control *control = side->segment->control;
    if (epoch <= atomic_load(&control->team_epoch) || epoch < atomic_load(&control->fence)) {
        return;
    }
    if (epoch > atomic_load(&control->fence) || (hard && atomic_load(&control->hard) == 0)) {
        ls_control_fence(control, epoch, hard);
    }
    if (limit > atomic_load(&control->limit)) {
        ls_control_limit(control, limit);
    }
}

/* The next local rank that lives and has a part. A rank that was started later is in no
 * communicator of this cut. */
static uint32_t next_living(const ls_host_side *side, uint32_t local)
{
    const uint32_t count = side->segment->control->local_ranks;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t other = (local + i) % count;
        if (is_bound(side, other)) {
            return other;
        }
    }
    return count; /* none: the host has nothing to finish */
}

/* All ranks are parked. Parts of dead ranks go to living ones, after what their holders had
 * begun in shared memory was taken back; the verdict of the hosts that agreed on the step makes
 * the others finish it to the same bits. */
void ls_host_side_finish(ls_host_side *side, uint64_t epoch, uint64_t step, const ls_step_verdict *verdict)
{
    ls_control *control = side->segment->control;
    if (epoch <= atomic_load(&control->team_epoch)) {
        return;
    }
    ls_team team = control->team;
    team.epoch = epoch;
    team.step = step - 1;
    const ls_segment *segment = side->segment;
    const ls_recovery recovery = {
        .exchange = segment->exchange,
        .flats = {segment->parameters, segment->m, segment->v},
        .snapshot = {segment->snapshot[0], segment->snapshot[1], segment->snapshot[2]}};
    for (uint32_t i = 0; i < team.local_parts; i++) {
        const uint32_t holder = next_living(side, team.holder[i]);
        if (holder == control->local_ranks) {
            team.local_parts = 0; /* a process that was started since must not take a part */
            break;
        }
        if (holder != team.holder[i]) {
            (void)ls_data_parallel_recover_part(&recovery, i);
        }
        team.holder[i] = (uint16_t)holder;
    }
    ls_data_parallel_write_verdict(side->segment->exchange, verdict);
    /* Raise the next fence before the team is published, so that no rank gets beyond that step. */
    ls_control_fence(control, epoch + 1, false);
    ls_control_team(control, &team);
    ls_control_limit(control, step);
}

/* The host's share of the cut, which may be no part at all. False: a rank died after it was
 * counted, and another fence is on its way. Parts go to the living ranks in order. */
static bool cut_team(const ls_host_side *side, const ls_cut *cut, ls_team *team_out)
{
    const ls_control *control = side->segment->control;
    ls_team team = {.epoch = cut->epoch,
                    .cut = cut->epoch,
                    .first_step = cut->step,
                    .step = cut->step,
                    .parts = cut->parts};
    for (uint32_t h = 0; h < cut->host_count; h++) {
        if (cut->hosts[h].host == side->host_index) {
            team.first_part = cut->hosts[h].first_part;
            team.local_parts = cut->hosts[h].part_count;
        }
    }
    uint32_t part = 0;
    for (uint32_t local = 0; local < control->local_ranks && part < team.local_parts; local++) {
        if (side->lives[local]) {
            team.holder[part++] = (uint16_t)local;
        }
    }
    *team_out = team;
    return part == team.local_parts;
}

static uint16_t index_in(const ls_cut *cut, uint16_t host)
{
    uint16_t index = LS_REFORM_NO_HOST;
    for (uint32_t i = 0; i < cut->host_count; i++) {
        index = cut->hosts[i].host == host ? (uint16_t)i : index;
    }
    return index;
}

/* The marks and the exchange area of the old cut are cleared before the team is published, while
 * every rank is parked: a rank that sees the new team finds an empty table. A host whose state
 * is complete already says so at once (`held`). */
void ls_host_side_form(ls_host_side *side, const ls_cut *cut, const ls_cut *held, bool moves)
{
    ls_control *control = side->segment->control;
    ls_team team;
    if (cut->epoch <= atomic_load(&control->team_epoch) || cut->epoch < atomic_load(&control->fence) ||
        !cut_team(side, cut, &team)) {
        return;
    }
    control->moves = moves;
    control->sources = *held;
    /* Ranks know hosts by their order in the new cut. */
    for (uint32_t i = 0; i < held->host_count; i++) {
        control->sources.hosts[i].holder = index_in(cut, held->hosts[i].holder);
    }
    ls_data_parallel_clear(side->segment->exchange);
    ls_control_begin_cut(control, cut->step);
    if (team.local_parts > 0 && (!moves || cut->host_count == 1)) {
        atomic_store(&control->held, cut->epoch);
    }
    ls_control_team(control, &team);
    memset(side->is_late, 0, sizeof side->is_late);
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host_side.h"

#include "base/assert.h"
#include "base/log.h"

#include <string.h>

static const uint64_t START_PAUSE_NS = 50 * 1000 * 1000;

void ls_host_side_init(ls_host_side *side, const ls_segment *segment, uint32_t place)
{
    *side = (ls_host_side){.segment = segment, .place = place};
}

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
        ls_log_warn("rank %u can't join: %s", both[1].rank, ls_error_text());
        return false;
    }
    side->lives[local] = true;
    return true;
}

void ls_host_side_lost(ls_host_side *side, uint32_t local)
{
    side->lives[local] = false;
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

bool ls_host_side_next_start(ls_host_side *side, uint32_t most, uint64_t now_ns, uint32_t *local_out)
{
    const ls_control *control = side->segment->control;
    const uint32_t doublings = side->replaced < 8 ? side->replaced : 8;
    if (side->replaced >= most || atomic_load(&control->fence) > atomic_load(&control->team_epoch) ||
        (side->replaced > 0 && now_ns - side->started_ns < START_PAUSE_NS << doublings)) {
        return false;
    }
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        if (side->is_empty[local] && !ls_host_side_has_part(side, local)) {
            side->is_empty[local] = false;
            side->replaced++;
            side->started_ns = now_ns;
            *local_out = local;
            return true;
        }
    }
    return false;
}

/* ---- what it says ---- */

uint32_t ls_host_side_gathered(const ls_host_side *side)
{
    const ls_control *control = side->segment->control;
    uint32_t least = atomic_load(&control->gather);
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const uint32_t gathered = atomic_load(&control->slots[local].gathered);
        if (side->lives[local] && ls_host_side_has_part(side, local) && gathered < least) {
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
        status.entered = entered > status.entered ? entered : status.entered;
        status.finished = done < status.finished ? done : status.finished;
    }
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        status.ranks += side->lives[local];
        status.bound += side->lives[local] && ls_host_side_has_part(side, local);
        /* Who has no part touches nothing. */
        status.parked = status.parked && (!side->lives[local] || !ls_host_side_has_part(side, local) ||
                                          ls_control_is_parked(control, local));
    }
    /* Between being let go on and going on it still looks parked. */
    const bool goes_on = atomic_load(&control->hard) == 0 && status.finished < atomic_load(&control->limit);
    status.parked = status.parked && !goes_on;
    *status_out = status;
}

/* ---- what it does ---- */

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

/* One that has a part: who was started since is in no communicator of this cut. */
static uint32_t next_living(const ls_host_side *side, uint32_t local)
{
    const uint32_t count = side->segment->control->local_ranks;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t other = (local + i) % count;
        if (side->lives[other] && ls_host_side_has_part(side, other)) {
            return other;
        }
    }
    return local; /* nobody: the host will be given up */
}

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
        if (holder != team.holder[i]) {
            (void)ls_data_parallel_recover_part(&recovery, i);
        }
        team.holder[i] = (uint16_t)holder;
    }
    ls_data_parallel_write_verdict(side->segment->exchange, verdict);
    /* The fence behind it first: nobody gets beyond that step. */
    ls_control_fence(control, epoch + 1, false);
    ls_control_team(control, &team);
    ls_control_limit(control, step);
}

/* The host's share, which may be no part at all. False: a rank died since it was counted, and a fence is on its way. */
static bool cut_team(const ls_host_side *side, const ls_cut *cut, ls_team *team_out)
{
    const ls_control *control = side->segment->control;
    ls_team team = {.epoch = cut->epoch,
                    .cut = cut->epoch,
                    .first_step = cut->step,
                    .step = cut->step,
                    .parts = cut->parts};
    for (uint32_t h = 0; h < cut->host_count; h++) {
        if (cut->hosts[h].host == side->place) {
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
    uint16_t index = LS_REFORM_NOBODY;
    for (uint32_t i = 0; i < cut->host_count; i++) {
        index = cut->hosts[i].host == host ? (uint16_t)i : index;
    }
    return index;
}

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
}

// SPDX-License-Identifier: Apache-2.0
/* The control page as JSON. */
#include "base/clock.h"
#include "execution/train/segment.h"

/* A team that changes while it is read is read again. If its agent died while writing, the tries
 * run out and the caller gets what is there. */
static void read_team(const ls_control *control, ls_team *team_out)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES && !ls_control_try_team(control, team_out); i++) {
    }
}

static const char *phase_name(const ls_control *control, uint32_t local)
{
    switch (atomic_load(&control->slots[local].phase)) {
    case LS_RANK_STARTING:
        return "starting";
    case LS_RANK_READY:
        return ls_control_is_parked(control, local) ? "parked" : "ready";
    case LS_RANK_ENDING:
        return "ending";
    default:
        return "empty";
    }
}

static json_t *parts_of(const ls_team *team, uint32_t local)
{
    json_t *parts = json_array();
    for (uint32_t i = 0; i < team->local_parts && i < LS_LOCAL_RANKS_MAX; i++) {
        if (team->holder[i] == local) {
            json_array_append_new(parts, json_integer(team->first_part + i));
        }
    }
    return parts;
}

static json_t *describe_rank(const ls_control *control, const ls_team *team, uint32_t local)
{
    const ls_rank_slot *slot = &control->slots[local];
    const uint64_t alive_ns = atomic_load(&slot->alive_ns), now_ns = ls_clock_monotonic_ns();
    return json_pack("{s:i, s:i, s:s, s:s, s:I, s:o, s:f}", "rank", (int)(control->first_rank + local), "pid",
                     (int)atomic_load(&slot->pid), "host", control->host, "phase", phase_name(control, local),
                     "finished", (json_int_t)atomic_load(&slot->finished), "parts", parts_of(team, local),
                     "silent_ms",
                     alive_ns > 0 && now_ns > alive_ns ? 1e-6 * (double)(now_ns - alive_ns) : 0.0);
}

void ls_control_append_team(const ls_control *control, json_t *object)
{
    ls_team team;
    read_team(control, &team);
    json_t *ranks = json_array();
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const uint32_t phase = atomic_load(&control->slots[local].phase);
        json_t *rank = phase == LS_RANK_EMPTY ? NULL : describe_rank(control, &team, local);
        /* One that left is no longer there; one that died may still hold a part. */
        if (rank && (phase != LS_RANK_ENDING || json_array_size(json_object_get(rank, "parts")) > 0)) {
            json_array_append(ranks, rank);
        }
        json_decref(rank);
    }
    json_object_set_new(object, "epoch", json_integer((json_int_t)team.epoch));
    json_object_set_new(object, "parts", json_integer(team.parts));
    json_object_set_new(object, "ranks_total", json_integer(control->ranks));
    json_object_set_new(object, "ranks", ranks);
}

// SPDX-License-Identifier: Apache-2.0
/* The events of the membership, with what each change cost. */
#include "execution/elastic/host/coordinator_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void emit(const ls_coordinator *c, const char *name, json_t *fields)
{
    if (c->options.event) {
        c->options.event(c->options.context, name, fields);
    } else {
        json_decref(fields);
    }
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* ---- lost ---- */

/* Only the loss of a rank with a part interrupts a step and begins a recovery. */
static void note_loss(ls_coordinator *c, uint32_t rank)
{
    const ls_team *team = &c->control->team;
    ls_loss_record *r = &c->recovery;
    bool holds = false;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        holds = holds || team->holder[i] == rank;
    }
    if (!holds || c->phase != LS_WORKERS_RUNNING) {
        return;
    }
    if (!r->active) {
        *r = (ls_loss_record){.active = true, .detected_ns = ls_env_now_ns(c->options.env)};
    }
    r->taken = false;
    if (r->lost_count < LS_LOCAL_RANKS_MAX) {
        r->lost[r->lost_count++] = (uint16_t)rank;
    }
}

/* detected_ms counts from the latest sign of life: the rank's own, or when the agent last saw it
 * alive. */
void ls_coordinator_tell_lost(ls_coordinator *c, const char *host, const ls_rank_end *end)
{
    char how[64], process[128], name[LS_MESH_NAME_BYTES], why[180] = "";
    const char *reason = c->slot[end->rank].why;
    if (c->slot[end->rank].killed && reason[0]) {
        snprintf(why, sizeof why, ": killed, because it %s", reason);
    } else if (end->exit_code == 128 + SIGKILL) {
        snprintf(why, sizeof why, "; unless a person sent SIGKILL, the kernel did because memory ran out");
    }
    snprintf(process, sizeof process, "%.90s, pid %d", host, end->pid);
    snprintf(c->last_loss, sizeof c->last_loss, "%s ended with %s while %s%s",
             ls_mesh_name(c->options.mesh, end->rank, process, name), ls_exit_text(end->exit_code, how),
             end->doing, why);
    c->last_lost = (int32_t)end->rank;
    if (!c->control) {
        return;
    }
    note_loss(c, end->rank);
    const uint64_t detected_ns =
        end->silent_ns && end->silent_ns < end->seen_ns ? end->silent_ns : end->seen_ns;
    emit(c, "rank_lost",
         json_pack("{s:i, s:i, s:s, s:f, s:o, s:o}", "rank", (int)end->rank, "pid", (int)end->pid, "cause",
                   c->last_loss, "detected_ms", 1e-6 * (double)detected_ns, "step", number(end->step),
                   "epoch", number(c->control->team.epoch)));
}

void ls_coordinator_tell_left(ls_coordinator *c, uint32_t rank, int32_t pid)
{
    emit(c, "rank_left",
         json_pack("{s:i, s:i, s:o, s:o}", "rank", (int)rank, "pid", (int)pid, "epoch",
                   number(c->control->team.epoch), "step", number(c->control->team.step)));
}

/* ---- recovered ---- */

/* `ms` is the time until the interrupted step continued, `finished_ms` until it was finished.
 * "takeover": some ranks lived on; "restart": replacements finished the step. */
static void tell_recovered(ls_coordinator *c)
{
    ls_loss_record *r = &c->recovery;
    const ls_team *team = &c->control->team;
    json_t *lost = json_array();
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < r->lost_count; i++) {
        json_array_append_new(lost, json_integer(r->lost[i]));
    }
    for (uint32_t i = 0; i < c->slots; i++) {
        ranks += c->slot[i].ready && !c->slot[i].killed && !c->slot[i].leaving;
    }
    const uint64_t now_ns = ls_env_now_ns(c->options.env);
    emit(c, "recovered",
         json_pack("{s:o, s:f, s:f, s:o, s:i, s:i, s:o, s:s}", "step", number(r->step), "ms",
                   1e-6 * (double)(r->taken_ns - r->detected_ns), "finished_ms",
                   1e-6 * (double)(now_ns - r->detected_ns), "epoch", number(team->epoch), "parts",
                   (int)team->parts, "ranks", (int)ranks, "lost", lost, "how",
                   r->all_lost ? "restart" : "takeover"));
    r->active = false;
}

/* The recovery is over when the interrupted step has a result. */
void ls_coordinator_tell_progress(ls_coordinator *c)
{
    const ls_loss_record *r = &c->recovery;
    if (r->active && r->taken && ls_coordinator_reported(c) > r->step) {
        tell_recovered(c);
    }
}

/* ---- teams ---- */

static bool holds(const ls_team *team, uint32_t rank)
{
    for (uint32_t i = 0; i < team->local_parts; i++) {
        if (team->holder[i] == rank) {
            return true;
        }
    }
    return false;
}

/* A rank joins when the team names it and did not before, or names a new process in its slot. */
static void tell_joined(ls_coordinator *c, const ls_team *before, const ls_team *team)
{
    for (uint32_t i = 0; i < c->slots; i++) {
        const ls_coordinator_slot *slot = &c->slot[i];
        if (holds(team, i) && (!holds(before, i) || slot->born_at > before->epoch)) {
            emit(c, "rank_joined",
                 json_pack("{s:i, s:i, s:s, s:o, s:o}", "rank", (int)i, "pid", (int)slot->member.pid, "host",
                           slot->member.host, "epoch", number(team->epoch), "step", number(team->step)));
        }
    }
}

static uint32_t count_holders(const ls_coordinator *c, const ls_team *team)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->slots; i++) {
        count += holds(team, i);
    }
    return count;
}

/* The team that takes over is published: from now on the interrupted step continues. */
static void note_taken(ls_coordinator *c, const ls_team *before, const ls_team *team)
{
    ls_loss_record *r = &c->recovery;
    bool some_stayed = false;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        const uint32_t rank = team->holder[i];
        some_stayed = some_stayed || (holds(before, rank) && c->slot[rank].born_at <= before->epoch);
    }
    r->taken = true;
    r->taken_ns = ls_env_now_ns(c->options.env);
    r->step = team->step;
    r->all_lost = !some_stayed;
    if (team->cut == team->epoch) { /* between two steps: nothing was interrupted */
        tell_recovered(c);
    }
}

/* The first team is no event: nothing has changed yet. */
void ls_coordinator_tell_team(ls_coordinator *c, const ls_team *before, const ls_team *team)
{
    if (c->phase == LS_WORKERS_RUNNING) {
        tell_joined(c, before, team);
        emit(c, "team",
             json_pack("{s:o, s:o, s:i, s:i}", "epoch", number(team->epoch), "step", number(team->step),
                       "parts", (int)team->parts, "ranks", (int)count_holders(c, team)));
    }
    if (c->recovery.active && !c->recovery.taken) {
        note_taken(c, before, team);
    }
}

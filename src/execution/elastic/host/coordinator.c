// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/coordinator_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/math.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Until all ranks are ready; the pause after a first early death; how long a rank's SIGTERM may
 * still turn out to be one for the whole run. */
#define START_TIMEOUT_NS UINT64_C(60000000000)
#define BACKOFF_NS       UINT64_C(200000000)
#define ASK_PATIENCE_NS  UINT64_C(200000000)

/* Between two looks: while waiting for something that is not announced (ranks that park), and
 * otherwise. */
enum { SOON_NS = 1000 * 1000, LOOK_NS = 10 * 1000 * 1000, ACTIONS_MAX = 4 * LS_LOCAL_RANKS_MAX };

static void look(void *context);

/* The control page is the agent's to write, and this is its coordinator. */
static ls_control *control_of(const ls_coordinator *c)
{
    return c->options.segment->control;
}

/* The first reason wins; after it the coordinator takes no more decisions, and the agent ends
 * the ranks. */
void ls_coordinator_end_all(ls_coordinator *c, ls_status status, int32_t rank, const char *text)
{
    if (c->phase == LS_WORKERS_ENDING) {
        return;
    }
    c->phase = LS_WORKERS_ENDING;
    ls_env_timer_cancel(c->options.env, c->deadline);
    c->options.abort(c->options.context, status, rank, text);
}

/* One timer: asking sooner replaces a later look. Several hosts have no membership here, so
 * there is nothing to look at. */
static void look_in(ls_coordinator *c, uint64_t delay_ns)
{
    if (c->control && c->phase != LS_WORKERS_ENDING) {
        ls_env_timer_cancel(c->options.env, c->timer);
        c->timer = ls_env_timer_set(c->options.env, delay_ns, look, c);
    }
}

void ls_coordinator_look_soon(ls_coordinator *c)
{
    look_in(c, 0);
}

/* Any rank's result will do: a step has one result, and the rank that would have reported it may
 * be dead. */
uint64_t ls_coordinator_reported(const ls_coordinator *c)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < c->slots; i++) {
        const uint64_t finished = atomic_load(&c->control->slots[i].finished);
        most = ls_max_u64(most, finished);
    }
    return most;
}

/* ---- coming ---- */

static bool is_missing(const ls_coordinator *c, uint32_t rank)
{
    return c->slot[rank].wanted && !c->slot[rank].ready;
}

/* Appends which members are missing: "0, 3 and 5 more". */
static void append_missing(const ls_coordinator *c, ls_text *text)
{
    enum { NAMED = 8 };
    uint32_t missing = 0;
    for (uint32_t rank = 0; rank < c->slots; rank++) {
        if (!is_missing(c, rank)) {
            continue;
        }
        if (missing < NAMED) {
            ls_text_printf(text, "%s%u", missing ? ", " : "", rank);
        }
        missing++;
    }
    if (missing > NAMED) {
        ls_text_printf(text, " and %u more", missing - NAMED);
    }
}

/* Before the run only: later, a slot that is late is a fact like others, and its process is
 * replaced. */
static void too_late(void *context)
{
    ls_coordinator *c = context;
    ls_text text = {0};
    ls_text_append(&text, "rank ");
    append_missing(c, &text);
    ls_text_printf(&text, " of %u did not become ready within %.0f s", c->options.ranks,
                   1e-9 * (double)c->options.start_timeout_ns);
    ls_coordinator_end_all(c, LS_ERR_TIMEOUT, -1, ls_text_string(&text));
    ls_text_release(&text);
}

/* Begins when all ranks that are ready agree; else the run ends. */
static void begin(ls_coordinator *c)
{
    ls_preflight_member *members = calloc(c->slots, sizeof *members);
    uint32_t count = 0;
    LS_ASSERT(members && "not enough memory for a table of ranks");
    for (uint32_t rank = 0; rank < c->slots; rank++) {
        if (c->slot[rank].ready) {
            members[count++] = c->slot[rank].member;
        }
    }
    const ls_status status = ls_preflight_compare(members, count);
    free(members);
    if (status != LS_OK) {
        ls_coordinator_end_all(c, status, -1, ls_error_text());
        return;
    }
    c->phase = LS_WORKERS_RUNNING;
    ls_env_timer_cancel(c->options.env, c->deadline);
    c->options.running(c->options.context);
}

/* Any other rank that is ready, to compare a later one with. */
static const ls_preflight_member *another_ready(const ls_coordinator *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->slots; i++) {
        if (i != rank && c->slot[i].ready) {
            return &c->slot[i].member;
        }
    }
    return NULL;
}

/* A rank that becomes ready while the others compute, but was started from something else, is
 * sent away; the others do not suffer from it. */
static void check_newcomer(ls_coordinator *c, uint32_t rank)
{
    const ls_preflight_member *other = another_ready(c, rank);
    const ls_preflight_member both[] = {other ? *other : c->slot[rank].member, c->slot[rank].member};
    if (ls_preflight_compare(both, 2) != LS_OK) {
        char name[LS_MESH_NAME_BYTES];
        ls_log_warn("%s cannot join: %s", ls_mesh_name(c->options.mesh, rank, NULL, name), ls_error_text());
        c->slot[rank].barred = true;
        ls_coordinator_kill(
            c, rank, "was started from a different program, run file or data set than the other ranks");
    }
}

/* Notes the process of a rank that has a part in the team in force, for a coordinator that may
 * succeed this one. */
static void note_pid(ls_coordinator *c, uint32_t rank)
{
    const ls_team *team = &c->control->team;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        if (team->holder[i] == rank && !c->orphan[i] && c->slot[rank].born_at <= team->epoch) {
            control_of(c)->team_pids[i] = c->slot[rank].member.pid;
        }
    }
}

/* On one host, being ready is just another fact: the loop decides what follows. On several hosts
 * the coordinator counts the ranks and begins when all are ready. */
void ls_coordinator_hello(ls_coordinator *c, const ls_preflight_member *hello)
{
    if (c->phase == LS_WORKERS_ENDING || hello->rank >= c->slots || c->slot[hello->rank].ready) {
        return;
    }
    ls_coordinator_slot *slot = &c->slot[hello->rank];
    slot->member = *hello;
    slot->ready = true;
    slot->early_deaths = 0;
    if (c->control) {
        note_pid(c, hello->rank);
        if (c->phase == LS_WORKERS_RUNNING) {
            check_newcomer(c, hello->rank);
        }
        look_in(c, 0);
    } else if (c->phase == LS_WORKERS_STARTING && ++c->ready == c->options.ranks) {
        begin(c);
    }
}

/* ---- going ---- */

/* The process in a slot is gone. Its parts are orphans until a new team is published. A process
 * that died before it was ready is replaced only after a pause that doubles each time: what
 * kills it is likely to do so again. */
static void forget_process(ls_coordinator *c, uint32_t rank)
{
    ls_coordinator_slot *slot = &c->slot[rank];
    const ls_team *team = &c->control->team;
    /* It stays an orphan when the slot gets another process: that one has done nothing of it. */
    for (uint32_t i = 0; i < team->local_parts; i++) {
        c->orphan[i] = c->orphan[i] || team->holder[i] == rank;
    }
    if (!slot->ready) {
        const uint32_t doublings = slot->early_deaths < 6 ? slot->early_deaths : 6;
        slot->early_deaths++;
        slot->not_before_ns = ls_env_now_ns(c->options.env) + (BACKOFF_NS << doublings);
    }
    slot->process = slot->ready = slot->killed = slot->leaving = false;
}

/* Reported first, with the team and the reason of a kill still in place; then the facts change
 * and the loop looks at them. */
void ls_coordinator_lost(ls_coordinator *c, const char *host, const ls_rank_end *end)
{
    if (c->phase == LS_WORKERS_ENDING || end->rank >= c->slots) {
        return;
    }
    ls_coordinator_tell_lost(c, host, end);
    if (!c->control) {
        ls_coordinator_end_all(c, LS_ERR_RANKS_LOST, (int32_t)end->rank, c->last_loss);
        return;
    }
    ls_coordinator_note_death(c, end);
    forget_process(c, end->rank);
    look(c);
}

/* Left in order: its slot is empty and not wanted, so nothing has to be recovered. */
void ls_coordinator_left(ls_coordinator *c, uint32_t rank, int32_t pid)
{
    if (c->phase != LS_WORKERS_ENDING && c->control && rank < c->slots) {
        forget_process(c, rank);
        ls_coordinator_tell_left(c, rank, pid);
        look(c);
    }
}

/* The slot counts as killed at once, so that its rank is not chosen for anything else; the parts
 * move only when the exit was seen. */
void ls_coordinator_kill(ls_coordinator *c, uint32_t rank, const char *why)
{
    if (c->phase == LS_WORKERS_ENDING || !c->control || rank >= c->slots || !c->slot[rank].process ||
        c->slot[rank].killed) {
        return;
    }
    snprintf(c->slot[rank].why, sizeof c->slot[rank].why, "%s", why);
    c->slot[rank].killed = true;
    c->slot[rank].killed_ns = ls_env_now_ns(c->options.env);
    c->options.kill(c->options.context, rank);
}

/* ---- what is done ---- */

/* Replacements are limited. One process beyond the limit may be started to finish an interrupted
 * step (`finishers`), so that what is saved is whole. born_at remembers which team the process
 * can know: none that was published before it started. */
static void start(ls_coordinator *c, uint32_t rank)
{
    ls_coordinator_slot *slot = &c->slot[rank];
    const uint64_t fence = atomic_load(&c->control->fence), epoch = atomic_load(&c->control->team_epoch);
    const bool beyond = slot->had_one && c->replacements >= c->options.max_replacements;
    c->finishers += beyond;
    c->replacements += slot->had_one && !beyond;
    slot->had_one = slot->process = true;
    slot->born_at = ls_max_u64(fence, epoch);
    slot->started_ns = ls_env_now_ns(c->options.env);
    slot->why[0] = '\0';
    /* A start that fails counts as an early death, so that the next one waits. */
    if (c->options.start(c->options.context, rank) != LS_OK) {
        snprintf(c->last_loss, sizeof c->last_loss, "%s", ls_error_text());
        ls_log_warn("%s", c->last_loss);
        c->last_lost = (int32_t)rank;
        forget_process(c, rank);
    }
}

/* Called for exactly the slots that membership found to be late or useless; the reason becomes
 * part of the cause in the event. */
static void kill_late(ls_coordinator *c, uint32_t rank)
{
    const ls_coordinator_slot *slot = &c->slot[rank];
    ls_coordinator_kill(c, rank,
                        slot->leaving  ? "did not leave in time"
                        : slot->ready  ? "did not respond when all ranks were told to pause"
                        : slot->wanted ? "was not ready in time"
                                       : "is no longer needed");
}

/* Publishes a team; every process that could write is parked or dead. Order: first take back
 * what dead holders had half announced, then, for a new cut, clear the marks and the exchange
 * area, and publish last. A rank that sees the new team never sees old marks. */
static void publish(ls_coordinator *c, const ls_team *team)
{
    ls_control *control = control_of(c);
    ls_team before = control->team;
    for (uint32_t i = 0; i < before.local_parts; i++) {
        if (c->orphan[i] && c->options.recover) {
            c->options.recover(c->options.context, i);
        }
    }
    if (team->cut != team->epoch && c->options.rewind) {
        c->options.rewind(c->options.context);
    }
    if (team->cut == team->epoch) {
        ls_control_begin_cut(control, team->step);
        if (c->options.recut) {
            c->options.recut(c->options.context, team);
        }
    }
    memset(c->orphan, 0, sizeof c->orphan);
    for (uint32_t i = 0; i < team->local_parts; i++) {
        control->team_pids[i] = c->slot[team->holder[i]].member.pid;
    }
    ls_control_team(control, team);
    ls_coordinator_tell_team(c, &before, team);
}

/* Puts membership's reason for the end into words for a person. */
static void end_for(ls_coordinator *c, const ls_membership_action *action)
{
    char text[1400], name[LS_MESH_NAME_BYTES];
    switch (action->end) {
    case LS_MEMBERSHIP_UNKILLABLE:
        snprintf(text, sizeof text,
                 "%s was killed but does not end; as it may still write to the memory of the run, no "
                 "replacement can be started",
                 ls_mesh_name(c->options.mesh, action->rank, NULL, name));
        ls_coordinator_end_all(c, LS_ERR_RANKS_LOST, (int32_t)action->rank, text);
        return;
    case LS_MEMBERSHIP_DEADLY:
        snprintf(text, sizeof text,
                 "step %" PRIu64 ", leaf %u crashes every rank that computes it, %u times in a row: %s",
                 c->deadly.step + 1, c->deadly.leaf, c->deadly.deaths, c->last_loss);
        break;
    case LS_MEMBERSHIP_TOO_FEW:
        snprintf(text, sizeof text, "%s. Too few ranks are left: job.min_ranks is %u", c->last_loss,
                 c->options.min_ranks);
        break;
    }
    ls_coordinator_end_all(c, LS_ERR_RANKS_LOST, c->last_lost, text);
}

/* Returns whether there may be more to do now. Actions that publish something first wait for the
 * log (is_durable): the loop then stops, and is run again when the log reports. */
static bool carry_out(ls_coordinator *c, const ls_membership_action *action)
{
    switch (action->what) {
    case LS_MEMBERSHIP_WAIT:
        return false;
    case LS_MEMBERSHIP_START:
        start(c, action->rank);
        return true;
    case LS_MEMBERSHIP_KILL:
        kill_late(c, action->rank);
        return true;
    case LS_MEMBERSHIP_LEAVE:
        c->slot[action->rank].leaving = true;
        c->slot[action->rank].leave_ns = ls_env_now_ns(c->options.env);
        ls_control_leave(control_of(c), action->rank);
        return true;
    case LS_MEMBERSHIP_FENCE:
        /* The same fence may follow as a hard one; the ranks get no new time to park then. */
        if (atomic_load(&c->control->fence) < action->epoch) {
            c->fence_ns = ls_env_now_ns(c->options.env);
        }
        ls_control_fence(control_of(c), action->epoch, action->hard);
        ls_coordinator_foresee(c, action->epoch);
        if (action->hard && c->options.fenced) {
            c->options.fenced(c->options.context);
        }
        return true;
    case LS_MEMBERSHIP_LIMIT:
        ls_control_limit(control_of(c), action->step);
        return true;
    case LS_MEMBERSHIP_TEAM:
        if (!ls_coordinator_is_durable(c, action->team.epoch, &action->team)) {
            return false;
        }
        publish(c, &action->team);
        return true;
    case LS_MEMBERSHIP_BEGIN:
        if (!ls_coordinator_is_durable(c, c->control->team.epoch, &c->control->team)) {
            return false;
        }
        begin(c);
        return true;
    case LS_MEMBERSHIP_END:
        end_for(c, action);
        return false;
    }
    return false;
}

/* Ranks that were sent SIGTERM. A scheduler or service manager that ends a whole run signals its
 * trainer, too; if the trainer ends the run within a moment, nothing is left to do here. */
static void let_askers_leave(ls_coordinator *c)
{
    const uint64_t now_ns = ls_env_now_ns(c->options.env);
    const bool ends = atomic_load(&c->control->stop) != 0 || atomic_load(&c->control->quit) != 0;
    for (uint32_t i = 0; i < c->slots; i++) {
        ls_coordinator_slot *slot = &c->slot[i];
        if (!slot->process || !slot->wanted || ends ||
            atomic_load(&ls_segment_slot(c->options.segment, i)->asks_to_leave) == 0) {
            slot->asked_ns = 0;
            continue;
        }
        slot->asked_ns = slot->asked_ns ? slot->asked_ns : now_ns;
        if (now_ns - slot->asked_ns >= ASK_PATIENCE_NS && ls_coordinator_leave(c, i) != LS_OK) {
            ls_log_warn("rank %u was sent SIGTERM: %s", i, ls_error_text());
            ls_error_clear();
            /* answered: another SIGTERM asks again */
            atomic_store(&ls_segment_slot(c->options.segment, i)->asks_to_leave, 0);
        }
    }
}

/* The loop of the coordinator. Each action changes the facts, so they are gathered anew before the
 * next question; the bound catches a rule that would undo itself for ever. */
static void look(void *context)
{
    ls_coordinator *c = context;
    let_askers_leave(c);
    ls_membership_facts facts;
    ls_membership_action action;
    uint32_t actions = 0;
    do {
        ls_coordinator_gather(c, &facts);
        ls_membership_next(&facts, &action);
        LS_ASSERT(actions++ < ACTIONS_MAX && "the coordinator does not stop producing actions");
    } while (carry_out(c, &action));
    ls_coordinator_tell_progress(c);
    ls_coordinator_log_progress(c);
    look_in(c, facts.fence > facts.epoch || c->recovery.active ? SOON_NS : LOOK_NS);
}

/* ---- who is wanted ---- */

static uint32_t count_wanted(const ls_coordinator *c)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->slots; i++) {
        count += c->slot[i].wanted;
    }
    return count;
}

static uint32_t crew_of(const ls_coordinator *c)
{
    return ls_mesh_crew(c->options.mesh);
}

/* Whether a rank of the crew whose slots begin at `first` is wanted: then all of them are. */
static bool is_crew_wanted(const ls_coordinator *c, uint32_t first)
{
    bool wanted = false;
    for (uint32_t i = first; i < first + crew_of(c); i++) {
        wanted = wanted || c->slot[i].wanted;
    }
    return wanted;
}

static void want_crew(ls_coordinator *c, uint32_t first, bool wanted)
{
    for (uint32_t i = first; i < first + crew_of(c); i++) {
        if (wanted && !c->slot[i].wanted) {
            /* it was asked for, so it is not a replacement */
            c->slot[i].had_one = c->slot[i].process;
        }
        c->slot[i].wanted = wanted;
    }
}

/* Marks the slots that should have a rank; how and when the ranks join or leave is the loop's
 * business. The highest leave, so that the remaining numbers stay dense. */
ls_status ls_coordinator_resize(ls_coordinator *c, uint32_t ranks)
{
    if (!c->control || ranks < c->options.min_ranks || ranks > c->slots) {
        return ls_fail(LS_ERR_INVALID,
                       "the run cannot have %u ranks: %u to %u are allowed (job.min_ranks, job.max_ranks)",
                       ranks, c->options.min_ranks, c->control ? c->slots : c->options.ranks);
    }
    const uint32_t crew = crew_of(c);
    uint32_t wanted = 0;
    for (uint32_t i = 0; i + crew <= c->slots; i += crew) {
        wanted += is_crew_wanted(c, i) ? crew : 0;
    }
    /* a rank that is not wanted is told to leave once the team in force does not name it */
    for (uint32_t i = c->slots / crew * crew; i > 0 && wanted > ranks;) {
        i -= crew;
        wanted -= is_crew_wanted(c, i) ? crew : 0;
        want_crew(c, i, false);
    }
    for (uint32_t i = 0; i + crew <= c->slots; i += crew) {
        const bool is_new = !is_crew_wanted(c, i);
        if (!is_new || wanted < ranks) {
            want_crew(c, i, true);
            wanted += is_new ? crew : 0;
        }
    }
    look_in(c, 0);
    return LS_OK;
}

/* A rank that asks to leave is let go only while min_ranks others are wanted; otherwise it
 * stays, and the reason is logged. */
ls_status ls_coordinator_leave(ls_coordinator *c, uint32_t rank)
{
    if (!c->control || rank >= c->slots || !c->slot[rank].wanted) {
        return ls_fail(LS_ERR_INVALID, "rank %u cannot leave: it does not exist or has already left", rank);
    }
    if (crew_of(c) > 1) {
        return ls_fail(LS_ERR_INVALID,
                       "rank %u cannot leave alone: %u ranks compute each leaf together "
                       "(parallel.tensor, context, pipeline); use lockstep resize",
                       rank, crew_of(c));
    }
    if (count_wanted(c) <= c->options.min_ranks) {
        return ls_fail(LS_ERR_INVALID,
                       "rank %u cannot leave: the run needs at least %u ranks (job.min_ranks)", rank,
                       c->options.min_ranks);
    }
    c->slot[rank].wanted = false;
    look_in(c, 0);
    return LS_OK;
}

/* An orphan is held by no rank, whatever the team in force says. */
bool ls_coordinator_holds_part(const ls_coordinator *c, uint32_t rank)
{
    const ls_team *team = &c->control->team;
    for (uint32_t i = 0; c->slot[rank].process && i < team->local_parts; i++) {
        if (team->holder[i] == rank && !c->orphan[i]) {
            return true;
        }
    }
    return false;
}

/* ---- life ---- */

/* min_ranks above the ranks of the beginning would end the run before it began, so it is cut
 * down to them; 0 counts as 1. */
ls_status ls_coordinator_create(const ls_coordinator_options *options, ls_coordinator **coordinator_out)
{
    LS_ASSERT(options->ranks >= 1);
    /* one for each rank that may ever come; the first `ranks` are wanted now */
    const uint32_t slots = options->segment ? options->segment->control->local_ranks : options->ranks;
    ls_coordinator *c = calloc(1, sizeof *c + slots * sizeof c->slot[0]);
    if (!c) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %u ranks", slots);
    }
    c->options = *options;
    c->control = options->segment ? options->segment->control : NULL;
    c->slots = slots;
    c->last_lost = -1;
    if (c->options.start_timeout_ns == 0) {
        c->options.start_timeout_ns = START_TIMEOUT_NS;
    }
    if (c->options.min_ranks > options->ranks || c->options.min_ranks == 0) {
        c->options.min_ranks = c->options.min_ranks ? options->ranks : 1;
    }
    for (uint32_t i = 0; i < options->ranks; i++) {
        c->slot[i].wanted = true;
    }
    const ls_status status = ls_coordinator_open_log(c);
    if (status != LS_OK) {
        free(c);
        return status;
    }
    if (options->is_running) {
        c->phase = LS_WORKERS_RUNNING;
    } else {
        c->deadline = ls_env_timer_set(options->env, c->options.start_timeout_ns, too_late, c);
    }
    *coordinator_out = c;
    return LS_OK;
}

/* Fills in one slot for a coordinator that succeeds another: from the control page and the
 * processes that live. A part counts as orphaned unless the very process that held it is still
 * there; a replacement that was starting meanwhile knows no team. */
static void adopt_slot(ls_coordinator *c, uint32_t local)
{
    const ls_control *control = c->control;
    const ls_team *team = &control->team;
    const int32_t pid = atomic_load(&control->slots[local].pid);
    const uint64_t fence = atomic_load(&control->fence);
    ls_coordinator_slot *slot = &c->slot[local];
    bool is_named = false, is_it = true;
    slot->process = c->options.adopt(c->options.context, local);
    slot->started_ns = ls_env_now_ns(c->options.env);
    /* With another number than the one noted for the team, it is a process that came later. */
    for (uint32_t i = 0; i < team->local_parts; i++) {
        if (team->holder[i] == local) {
            is_named = true;
            is_it = is_it && slot->process && control->team_pids[i] == pid;
        }
    }
    for (uint32_t i = 0; i < team->local_parts; i++) {
        c->orphan[i] = c->orphan[i] || (team->holder[i] == local && !is_it);
    }
    slot->wanted = is_named || slot->process;
    slot->had_one = slot->process || is_named;
    slot->born_at = is_named && !is_it && fence > team->epoch ? fence : team->epoch;
}

/* Takes over: a hard fence, and with it a new epoch in which every rank knows this coordinator. */
static void take_over(ls_coordinator *c)
{
    ls_control *control = control_of(c);
    /* First: the coordinator before may have died while it published a team. */
    ls_control_mend_team(control);
    for (uint32_t i = 0; i < c->slots; i++) {
        adopt_slot(c, i);
    }
    for (uint32_t i = 0; i + crew_of(c) <= c->slots; i += crew_of(c)) {
        want_crew(c, i, is_crew_wanted(c, i));
    }
    const uint64_t next = control->team.epoch + 1, fence = atomic_load(&control->fence);
    c->fence_ns = ls_env_now_ns(c->options.env);
    ls_control_fence(control, ls_max_u64(fence, next), true);
    if (c->options.fenced) {
        c->options.fenced(c->options.context);
    }
}

/* A coordinator that succeeds another takes over first; from then on both cases are the same
 * loop. */
void ls_coordinator_begin(ls_coordinator *c)
{
    if (c->options.adopt) {
        take_over(c);
    }
    look(c);
}

void ls_coordinator_destroy(ls_coordinator *c)
{
    if (!c) {
        return;
    }
    ls_coordinator_log_close(c->log);
    free(c);
}

/* Read by the trainer's thread without a lock: entries do not change once all ranks are ready. */
const ls_preflight_member *ls_coordinator_member(const ls_coordinator *c, uint32_t rank)
{
    LS_ASSERT(rank < c->slots);
    return &c->slot[rank].member;
}

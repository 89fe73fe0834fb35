// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/coordinator_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_TIMEOUT_NS UINT64_C(60000000000)
#define BACKOFF_NS       UINT64_C(200000000)
#define ASK_PATIENCE_NS  UINT64_C(200000000)

/* Between two looks: while something is waited for that tells nobody (ranks park), and otherwise. */
enum { SOON_NS = 1000 * 1000, LOOK_NS = 10 * 1000 * 1000, ACTIONS_MAX = 4 * LS_LOCAL_RANKS_MAX };

static void look(void *context);

/* The control page is the agent's to write; this is its coordinator. */
static ls_control *control_of(const ls_coordinator *c)
{
    return c->options.segment->control;
}

void ls_coordinator_end_all(ls_coordinator *c, ls_status status, int32_t rank, const char *text)
{
    if (c->phase == LS_GANG_ENDING) {
        return;
    }
    c->phase = LS_GANG_ENDING;
    ls_env_timer_cancel(c->options.env, c->deadline);
    c->options.abort(c->options.context, status, rank, text);
}

static void look_in(ls_coordinator *c, uint64_t delay_ns)
{
    if (c->control && c->phase != LS_GANG_ENDING) {
        ls_env_timer_cancel(c->options.env, c->timer);
        c->timer = ls_env_timer_set(c->options.env, delay_ns, look, c);
    }
}

void ls_coordinator_look_soon(ls_coordinator *c)
{
    look_in(c, 0);
}

uint64_t ls_coordinator_told(const ls_coordinator *c)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < c->places; i++) {
        const uint64_t finished = atomic_load(&c->control->slots[i].finished);
        most = finished > most ? finished : most;
    }
    return most;
}

/* ---- coming ---- */

static bool is_missing(const ls_coordinator *c, uint32_t rank)
{
    return c->place[rank].wanted && !c->place[rank].ready;
}

/* "0, 3 and 5 more": which members have not come. */
static void append_missing(const ls_coordinator *c, ls_text *text)
{
    enum { NAMED = 8 };
    uint32_t missing = 0;
    for (uint32_t rank = 0; rank < c->places; rank++) {
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

static void too_late(void *context)
{
    ls_coordinator *c = context;
    ls_text text = {0};
    ls_text_append(&text, "not ready in time: rank ");
    append_missing(c, &text);
    ls_text_printf(&text, " of %u did not come within %.0f s", c->options.ranks,
                   1e-9 * (double)c->options.start_timeout_ns);
    ls_coordinator_end_all(c, LS_ERR_TIMEOUT, -1, ls_text_string(&text));
    ls_text_release(&text);
}

/* All that are ready are of one mind, or everything ends. */
static void begin(ls_coordinator *c)
{
    ls_preflight_member *members = calloc(c->places, sizeof *members);
    uint32_t count = 0;
    LS_ASSERT(members && "out of memory for a table of ranks");
    for (uint32_t rank = 0; rank < c->places; rank++) {
        if (c->place[rank].ready) {
            members[count++] = c->place[rank].member;
        }
    }
    const ls_status status = ls_preflight_compare(members, count);
    free(members);
    if (status != LS_OK) {
        ls_coordinator_end_all(c, status, -1, ls_error_text());
        return;
    }
    c->phase = LS_GANG_RUNNING;
    ls_env_timer_cancel(c->options.env, c->deadline);
    c->options.running(c->options.context);
}

/* Another one that is ready is like this: what a rank that comes later is compared with. */
static const ls_preflight_member *another_ready(const ls_coordinator *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->places; i++) {
        if (i != rank && c->place[i].ready) {
            return &c->place[i].member;
        }
    }
    return NULL;
}

/* A rank that comes while the others compute and is made of something else is sent away; the others don't suffer from it. */
static void check_newcomer(ls_coordinator *c, uint32_t rank)
{
    const ls_preflight_member *other = another_ready(c, rank);
    const ls_preflight_member both[] = {other ? *other : c->place[rank].member, c->place[rank].member};
    if (ls_preflight_compare(both, 2) != LS_OK) {
        ls_log_warn("rank %u can't join: %s", rank, ls_error_text());
        c->place[rank].barred = true;
        ls_coordinator_kill(c, rank, "is not made of what the others are");
    }
}

/* Who holds a part in the team in force, for a coordinator that may come after this one. */
static void note_pid(ls_coordinator *c, uint32_t rank)
{
    const ls_team *team = &c->control->team;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        if (team->holder[i] == rank && !c->orphan[i] && c->place[rank].born_at <= team->epoch) {
            control_of(c)->team_pids[i] = c->place[rank].member.pid;
        }
    }
}

void ls_coordinator_hello(ls_coordinator *c, const ls_preflight_member *hello)
{
    if (c->phase == LS_GANG_ENDING || hello->rank >= c->places || c->place[hello->rank].ready) {
        return;
    }
    ls_coordinator_place *place = &c->place[hello->rank];
    place->member = *hello;
    place->ready = true;
    place->early_deaths = 0;
    if (c->control) {
        note_pid(c, hello->rank);
        if (c->phase == LS_GANG_RUNNING) {
            check_newcomer(c, hello->rank);
        }
        look_in(c, 0);
    } else if (c->phase == LS_GANG_STARTING && ++c->ready == c->options.ranks) {
        begin(c);
    }
}

/* ---- going ---- */

static void forget_process(ls_coordinator *c, uint32_t rank)
{
    ls_coordinator_place *place = &c->place[rank];
    const ls_team *team = &c->control->team;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        c->orphan[i] = c->orphan[i] || team->holder[i] == rank;
    }
    if (!place->ready) {
        const uint32_t doublings = place->early_deaths < 6 ? place->early_deaths : 6;
        place->early_deaths++;
        place->not_before_ns = ls_env_now_ns(c->options.env) + (BACKOFF_NS << doublings);
    }
    place->process = place->ready = place->killed = place->leaving = false;
}

void ls_coordinator_lost(ls_coordinator *c, const char *host, const ls_rank_end *end)
{
    if (c->phase == LS_GANG_ENDING || end->rank >= c->places) {
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

void ls_coordinator_left(ls_coordinator *c, uint32_t rank, int32_t pid)
{
    if (c->phase != LS_GANG_ENDING && c->control && rank < c->places) {
        forget_process(c, rank);
        ls_coordinator_tell_left(c, rank, pid);
        look(c);
    }
}

void ls_coordinator_kill(ls_coordinator *c, uint32_t rank, const char *why)
{
    if (c->phase == LS_GANG_ENDING || !c->control || rank >= c->places || !c->place[rank].process ||
        c->place[rank].killed) {
        return;
    }
    snprintf(c->place[rank].why, sizeof c->place[rank].why, "%s", why);
    c->place[rank].killed = true;
    c->place[rank].killed_ns = ls_env_now_ns(c->options.env);
    c->options.kill(c->options.context, rank);
}

/* ---- what is done ---- */

static void start(ls_coordinator *c, uint32_t rank)
{
    ls_coordinator_place *place = &c->place[rank];
    const uint64_t fence = atomic_load(&c->control->fence), epoch = atomic_load(&c->control->team_epoch);
    const bool beyond = place->had_one && c->replacements >= c->options.max_replacements;
    c->finishers += beyond;
    c->replacements += place->had_one && !beyond;
    place->had_one = place->process = true;
    place->born_at = fence > epoch ? fence : epoch;
    place->started_ns = ls_env_now_ns(c->options.env);
    place->why[0] = '\0';
    if (c->options.start(c->options.context, rank) != LS_OK) {
        snprintf(c->last_loss, sizeof c->last_loss, "%s", ls_error_text());
        ls_log_warn("%s", c->last_loss);
        c->last_lost = (int32_t)rank;
        forget_process(c, rank);
    }
}

static void kill_late(ls_coordinator *c, uint32_t rank)
{
    const ls_coordinator_place *place = &c->place[rank];
    ls_coordinator_kill(c, rank,
                        place->leaving  ? "did not leave in time"
                        : place->ready  ? "showed no sign of life when all were told to stop"
                        : place->wanted ? "was not ready in time"
                                        : "is not wanted any more");
}

static void publish(ls_coordinator *c, const ls_team *team)
{
    ls_control *control = control_of(c);
    ls_team before = control->team;
    for (uint32_t i = 0; i < before.local_parts; i++) {
        if (c->orphan[i] && c->options.recover) {
            c->options.recover(c->options.context, i);
        }
    }
    if (team->cut == team->epoch) {
        ls_control_begin_cut(control, team->step);
        if (c->options.recut) {
            c->options.recut(c->options.context, team);
        }
    }
    memset(c->orphan, 0, sizeof c->orphan);
    for (uint32_t i = 0; i < team->local_parts; i++) {
        control->team_pids[i] = c->place[team->holder[i]].member.pid;
    }
    ls_control_team(control, team);
    ls_coordinator_tell_team(c, &before, team);
}

static void end_for(ls_coordinator *c, const ls_membership_action *action)
{
    char text[1400];
    switch (action->end) {
    case LS_MEMBERSHIP_UNKILLABLE:
        snprintf(text, sizeof text,
                 "rank %u was killed and does not end: nobody else may touch what it writes to",
                 action->rank);
        ls_coordinator_end_all(c, LS_ERR_RANKS_LOST, (int32_t)action->rank, text);
        return;
    case LS_MEMBERSHIP_DEADLY:
        snprintf(text, sizeof text,
                 "step %" PRIu64 ", leaf %u kills whoever computes it, %u times in a row: %s",
                 c->deadly.step + 1, c->deadly.leaf, c->deadly.deaths, c->last_loss);
        break;
    case LS_MEMBERSHIP_TOO_FEW:
        snprintf(text, sizeof text, "%s. Too few ranks are left: job.min_ranks is %u", c->last_loss,
                 c->options.min_ranks);
        break;
    }
    ls_coordinator_end_all(c, LS_ERR_RANKS_LOST, c->last_lost, text);
}

/* Whether there may be more to do now. */
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
        c->place[action->rank].leaving = true;
        c->place[action->rank].leave_ns = ls_env_now_ns(c->options.env);
        ls_control_leave(control_of(c), action->rank);
        return true;
    case LS_MEMBERSHIP_FENCE:
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

/*
 * Ranks that were sent SIGTERM. Whoever ends a whole run so (a scheduler, a service manager) tells its trainer, too: that decides, if it comes
 * within a moment.
 */
static void heed_askers(ls_coordinator *c)
{
    const uint64_t now_ns = ls_env_now_ns(c->options.env);
    const bool ends = atomic_load(&c->control->stop) != 0 || atomic_load(&c->control->quit) != 0;
    for (uint32_t i = 0; i < c->places; i++) {
        ls_coordinator_place *place = &c->place[i];
        if (!place->process || !place->wanted || ends ||
            atomic_load(&ls_segment_slot(c->options.segment, i)->asks_to_leave) == 0) {
            place->asked_ns = 0;
            continue;
        }
        place->asked_ns = place->asked_ns ? place->asked_ns : now_ns;
        if (now_ns - place->asked_ns >= ASK_PATIENCE_NS && ls_coordinator_leave(c, i) != LS_OK) {
            ls_log_warn("rank %u was sent SIGTERM: %s", i, ls_error_text());
            ls_error_clear();
            atomic_store(&ls_segment_slot(c->options.segment, i)->asks_to_leave, 0);
        }
    }
}

static void look(void *context)
{
    ls_coordinator *c = context;
    heed_askers(c);
    ls_membership_facts facts;
    ls_membership_action action;
    uint32_t actions = 0;
    do {
        ls_coordinator_gather(c, &facts);
        ls_membership_next(&facts, &action);
        LS_ASSERT(actions++ < ACTIONS_MAX && "the membership goes round in circles");
    } while (carry_out(c, &action));
    ls_coordinator_tell_progress(c);
    ls_coordinator_log_progress(c);
    look_in(c, facts.fence > facts.epoch || c->recovery.active ? SOON_NS : LOOK_NS);
}

/* ---- who is wanted ---- */

static uint32_t count_wanted(const ls_coordinator *c)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->places; i++) {
        count += c->place[i].wanted;
    }
    return count;
}

ls_status ls_coordinator_resize(ls_coordinator *c, uint32_t ranks)
{
    if (!c->control || ranks < c->options.min_ranks || ranks > c->places) {
        return ls_fail(LS_ERR_INVALID, "%u ranks: this run can have %u to %u (job.min_ranks, job.max_ranks)",
                       ranks, c->options.min_ranks, c->control ? c->places : c->options.ranks);
    }
    uint32_t wanted = count_wanted(c);
    for (uint32_t i = c->places; i-- > 0 && wanted > ranks;) {
        wanted -= c->place[i].wanted;
        c->place[i].wanted = false;
    }
    for (uint32_t i = 0; i < c->places && wanted < ranks; i++) {
        if (!c->place[i].wanted) {
            c->place[i].wanted = true;
            c->place[i].had_one = c->place[i].process; /* asked for: no replacement */
            wanted++;
        }
    }
    look_in(c, 0);
    return LS_OK;
}

ls_status ls_coordinator_leave(ls_coordinator *c, uint32_t rank)
{
    if (!c->control || rank >= c->places || !c->place[rank].wanted) {
        return ls_fail(LS_ERR_INVALID, "there is no rank %u", rank);
    }
    if (count_wanted(c) <= c->options.min_ranks) {
        return ls_fail(LS_ERR_INVALID, "rank %u can't leave: job.min_ranks is %u", rank,
                       c->options.min_ranks);
    }
    c->place[rank].wanted = false;
    look_in(c, 0);
    return LS_OK;
}

bool ls_coordinator_holds_part(const ls_coordinator *c, uint32_t rank)
{
    const ls_team *team = &c->control->team;
    for (uint32_t i = 0; c->place[rank].process && i < team->local_parts; i++) {
        if (team->holder[i] == rank && !c->orphan[i]) {
            return true;
        }
    }
    return false;
}

/* ---- life ---- */

ls_status ls_coordinator_create(const ls_coordinator_options *options, ls_coordinator **coordinator_out)
{
    LS_ASSERT(options->ranks >= 1);
    const uint32_t places = options->segment ? options->segment->control->local_ranks : options->ranks;
    ls_coordinator *c = calloc(1, sizeof *c + places * sizeof c->place[0]);
    if (!c) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u ranks", places);
    }
    c->options = *options;
    c->control = options->segment ? options->segment->control : NULL;
    c->places = places;
    c->last_lost = -1;
    if (c->options.start_timeout_ns == 0) {
        c->options.start_timeout_ns = START_TIMEOUT_NS;
    }
    if (c->options.min_ranks > options->ranks || c->options.min_ranks == 0) {
        c->options.min_ranks = c->options.min_ranks ? options->ranks : 1;
    }
    for (uint32_t i = 0; i < options->ranks; i++) {
        c->place[i].wanted = true;
    }
    const ls_status status = ls_coordinator_open_log(c);
    if (status != LS_OK) {
        free(c);
        return status;
    }
    if (options->is_running) {
        c->phase = LS_GANG_RUNNING;
    } else {
        c->deadline = ls_env_timer_set(options->env, c->options.start_timeout_ns, too_late, c);
    }
    *coordinator_out = c;
    return LS_OK;
}

/* What the control page and the processes that live say of the ranks that another coordinator has left behind. */
static void take_place(ls_coordinator *c, uint32_t local)
{
    const ls_control *control = c->control;
    const ls_team *team = &control->team;
    const int32_t pid = atomic_load(&control->slots[local].pid);
    const uint64_t fence = atomic_load(&control->fence);
    ls_coordinator_place *place = &c->place[local];
    bool is_named = false, is_it = true;
    place->process = c->options.adopt(c->options.context, local);
    place->started_ns = ls_env_now_ns(c->options.env);
    for (uint32_t i = 0; i < team->local_parts; i++) {
        if (team->holder[i] == local) {
            is_named = true;
            is_it = is_it && place->process && control->team_pids[i] == pid;
        }
    }
    for (uint32_t i = 0; i < team->local_parts; i++) {
        c->orphan[i] = c->orphan[i] || (team->holder[i] == local && !is_it);
    }
    place->wanted = is_named || place->process;
    place->had_one = place->process || is_named;
    place->born_at = is_named && !is_it && fence > team->epoch ? fence : team->epoch;
}

/* A new epoch, in which everyone knows the new one. */
static void take_over(ls_coordinator *c)
{
    ls_control *control = control_of(c);
    ls_control_mend_team(control);
    for (uint32_t i = 0; i < c->places; i++) {
        take_place(c, i);
    }
    const uint64_t next = control->team.epoch + 1, fence = atomic_load(&control->fence);
    c->fence_ns = ls_env_now_ns(c->options.env);
    ls_control_fence(control, fence > next ? fence : next, true);
    if (c->options.fenced) {
        c->options.fenced(c->options.context);
    }
}

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

ls_gang_phase ls_coordinator_phase(const ls_coordinator *c)
{
    return c->phase;
}

const ls_preflight_member *ls_coordinator_member(const ls_coordinator *c, uint32_t rank)
{
    LS_ASSERT(rank < c->places);
    return &c->place[rank].member;
}

// SPDX-License-Identifier: Apache-2.0
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists that grow ---- */

static void *grown(void *items, uint32_t count, uint32_t *capacity, size_t bytes)
{
    if (count < *capacity) {
        return items;
    }
    *capacity = *capacity ? 2 * *capacity : 64;
    void *more = realloc(items, *capacity * bytes);
    LS_ASSERT(more && "not enough memory for the queue");
    return more;
}

/* The time of the queue never goes back, even when the machine's clock does. */
static void look_at_clock(ls_controller *c)
{
    const double now_s = c->calls.now_s(c->calls.context);
    if (now_s > c->time_s) {
        c->time_s = now_s;
    }
    c->ahead_s = c->calls.ahead_s ? c->calls.ahead_s(c->calls.context) : 0.0;
}

uint64_t ls_controller_ms(double time_s)
{
    return time_s > 0.0 ? (uint64_t)llround(time_s * 1000.0) : 0;
}

/* ---- jobs ---- */

/* Index of the first job with a number of `id` or more. */
static uint32_t lower_bound(const ls_controller *c, uint64_t id)
{
    uint32_t low = 0, high = c->entry_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (c->entries[middle]->job->id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

ls_entry *ls_controller_find(const ls_controller *c, uint64_t id)
{
    const uint32_t index = lower_bound(c, id);
    return index < c->entry_count && c->entries[index]->job->id == id ? c->entries[index] : NULL;
}

ls_entry *ls_controller_add(ls_controller *c, ls_job *job)
{
    LS_ASSERT(c->entry_count == 0 || c->entries[c->entry_count - 1]->job->id < job->id);
    c->entries = grown(c->entries, c->entry_count, &c->entry_capacity, sizeof(ls_entry *));
    ls_entry *entry = calloc(1, sizeof *entry);
    LS_ASSERT(entry && "not enough memory for a job");
    entry->job = job;
    c->entries[c->entry_count++] = entry;
    c->ended_count += ls_job_state_is_final(job->state);
    return entry;
}

static void destroy_entry(ls_entry *entry)
{
    ls_job_destroy(entry->job);
    free(entry->stage);
    free(entry->stage_text);
    free(entry->shrunk);
    free(entry);
}

void ls_controller_remove_newest(ls_controller *c)
{
    LS_ASSERT(c->entry_count > 0);
    destroy_entry(c->entries[--c->entry_count]);
}

/* Drops the oldest ended jobs beyond the number that is kept in memory; the store has them. */
static void forget_old(ls_controller *c)
{
    /* Many at once and rarely, because each time the whole list is moved. */
    if (c->ended_count <= c->settings.ended_max + c->settings.ended_max / 8 + 16) {
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        ls_entry *entry = c->entries[i];
        if (c->ended_count > c->settings.ended_max && ls_job_state_is_final(entry->job->state)) {
            c->ended_count--;
            destroy_entry(entry);
        } else {
            c->entries[kept++] = entry;
        }
    }
    c->entry_count = kept;
}

/* ---- what a turn gathers ---- */

void ls_controller_touch(ls_controller *c, ls_entry *entry)
{
    c->has_work = true;
    if (!entry->is_changed) {
        entry->is_changed = true;
        c->touched = grown(c->touched, c->touched_count, &c->touched_capacity, sizeof(ls_entry *));
        c->touched[c->touched_count++] = entry;
    }
}

/* job NULL: about the queue as a whole. */
static void add_transition(ls_controller *c, const ls_job *job, ls_job_state to, ls_job_cause cause,
                           const char *text)
{
    c->transitions =
        grown(c->transitions, c->transition_count, &c->transition_capacity, sizeof(ls_transition));
    c->transitions[c->transition_count++] = (ls_transition){
        .job = job ? job->id : 0,
        .epoch = job ? job->epoch : 0,
        .from = job ? job->state : to,
        .to = to,
        .cause = cause,
        .time_s = c->time_s + c->ahead_s,
        .text = ls_arena_strdup(&c->arena, text ? text : ""),
    };
}

void ls_controller_announce(ls_controller *c, const char *text)
{
    add_transition(c, NULL, LS_JOB_QUEUED, LS_CAUSE_USER, text);
    c->has_work = true;
}

void ls_controller_note(ls_controller *c, ls_entry *entry, ls_job_cause cause, const char *text)
{
    add_transition(c, entry->job, entry->job->state, cause, text);
    ls_controller_touch(c, entry);
}

void ls_controller_move(ls_controller *c, ls_entry *entry, ls_job_state to, ls_job_cause cause,
                        const char *text)
{
    ls_job *job = entry->job;
    LS_ASSERT(!ls_job_state_is_final(job->state));
    add_transition(c, job, to, cause, text);
    job->state = to;
    job->cause = cause;
    ls_job_set_text(job, text);
    c->sweeps_are_due = c->sweeps_are_due || job->spec.group[0];
    if (ls_job_state_is_final(to)) {
        job->ended_s = c->time_s;
        ls_job_shift(job, c->ahead_s);
        c->ended_count++;
    }
    ls_controller_touch(c, entry);
}

void ls_controller_order(ls_controller *c, ls_engine_order_kind kind, ls_entry *entry)
{
    c->orders = grown(c->orders, c->order_count, &c->order_capacity, sizeof(ls_engine_order));
    c->orders[c->order_count++] = (ls_engine_order){.kind = kind, .job = entry->job};
    c->has_work = true;
}

ls_controller_mark ls_controller_mark_now(const ls_controller *c)
{
    return (ls_controller_mark){.entries = c->entry_count,
                                .touched = c->touched_count,
                                .transitions = c->transition_count,
                                .orders = c->order_count};
}

void ls_controller_back_to(ls_controller *c, const ls_controller_mark *mark)
{
    LS_ASSERT(c->entry_count == mark->entries);
    c->touched_count = mark->touched;
    c->transition_count = mark->transitions;
    c->order_count = mark->orders;
}

static void add_reply(ls_controller *c, ls_controller_reply reply, void *context, ls_verb verb,
                      ls_answer answer)
{
    c->replies = grown(c->replies, c->reply_count, &c->reply_capacity, sizeof(ls_pending_reply));
    c->replies[c->reply_count++] = (ls_pending_reply){.reply = reply,
                                                      .context = context,
                                                      .status = answer.status,
                                                      .answer = answer.json,
                                                      .verb = verb,
                                                      .creates = answer.creates};
    c->has_work = true;
}

/* ---- life ---- */

ls_status ls_controller_create(const ls_controller_settings *settings, ls_engine *engine,
                               const ls_controller_calls *calls, ls_controller **controller_out)
{
    ls_controller *c = calloc(1, sizeof *c);
    LS_ASSERT(c && "not enough memory for the queue");
    c->settings = *settings;
    c->engine = engine;
    c->decides = engine->calls->decides;
    c->calls = *calls;
    c->upkeep = ls_upkeep_new();
    look_at_clock(c);
    c->next_job = 1;
    c->alarm_s = INFINITY;
    c->nodes = engine->calls->nodes(engine, &c->node_count);
    c->node_is_up = calloc(c->node_count + 1, sizeof *c->node_is_up);
    LS_ASSERT(c->node_is_up && "not enough memory for nodes");
    for (uint32_t i = 0; i < c->node_count; i++) {
        c->node_is_up[i] = true;
        c->device_count += c->nodes[i].devices;
    }
    ls_places_make(c);
    ls_money_configure(c);
    const ls_status status = ls_queue_create(c);
    if (status != LS_OK) {
        ls_controller_destroy(c);
        return status;
    }
    *controller_out = c;
    return LS_OK;
}

void ls_controller_destroy(ls_controller *c)
{
    if (!c) {
        return;
    }
    for (uint32_t i = 0; i < c->entry_count; i++) {
        destroy_entry(c->entries[i]);
    }
    for (uint32_t i = 0; i < c->account_count; i++) {
        free(c->accounts[i]);
    }
    for (uint32_t i = 0; i < c->reply_count; i++) {
        json_decref(c->replies[i].answer);
    }
    ls_policy_destroy(c->policy);
    ls_arena_release(&c->arena);
    json_decref(c->upkeep);
    ls_sweeps_destroy(c);
    free(c->alerts.items);
    free(c->node_is_up);
    free(c->places);
    free(c->entries);
    free(c->accounts);
    free(c->paused);
    free(c->touched);
    free(c->created);
    free(c->changed);
    free(c->transitions);
    free(c->account_rows);
    free(c->orders);
    free(c->replies);
    free(c);
}

/* ---- restoring ---- */

void ls_controller_restore_account(ls_controller *c, const ls_account *account)
{
    ls_account_entry *entry = NULL;
    const bool is_strict = c->settings.strict_accounts;
    c->settings.strict_accounts = false;
    if (ls_queue_account(c, account->name, &entry) == LS_OK) {
        entry->account = *account;
        entry->is_changed = false;
        ls_queue_set_account(c, entry, true);
    }
    c->settings.strict_accounts = is_strict;
}

ls_status ls_controller_set_account(ls_controller *c, const ls_account *account)
{
    ls_account_entry *entry = NULL;
    const bool is_strict = c->settings.strict_accounts;
    c->settings.strict_accounts = false;
    const ls_status status = ls_queue_account(c, account->name, &entry);
    c->settings.strict_accounts = is_strict;
    LS_TRY(status);
    entry->account.weight = account->weight;
    entry->account.quota = account->quota;
    entry->account.borrow = account->borrow;
    entry->account.lend = account->lend;
    entry->account.priority_max = account->priority_max;
    entry->account.budget_usd = account->budget_usd;
    memcpy(entry->account.users, account->users, sizeof account->users);
    entry->is_changed = true;
    c->has_work = true;
    ls_queue_set_account(c, entry, false);
    return LS_OK;
}

void ls_controller_configure(ls_controller *c, const ls_controller_settings *settings)
{
    const ls_controller_settings before = c->settings;
    c->settings = *settings;
    c->settings.order = before.order;
    c->settings.reservations = before.reservations;
    c->settings.half_life_s = before.half_life_s;
    c->settings.jobs_max = before.jobs_max;
    ls_money_configure(c);
    if (c->policy) {
        ls_policy_tune(c->policy,
                       &(ls_policy_tuning){.preempt = settings->preempt,
                                           .min_run_ms = ls_controller_ms(settings->min_run_s),
                                           .resize_pause_ms = ls_controller_ms(settings->resize_pause_s)});
    }
    c->has_work = true;
}

void ls_controller_restore(ls_controller *c, ls_job *job)
{
    ls_controller_add(c, job)->request_bytes = ls_submit_bytes(job->request);
}

/* A job that had devices or was handed over: ask the engine what became of it. */
static void restore_active(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    entry->start_by_s = c->time_s + c->settings.start_timeout_s;
    entry->busy_known_s = c->time_s;
    entry->step_at_s = c->time_s;
    ls_controller_order(c, LS_DO_ADOPT, entry);
    if (job->state == LS_JOB_RESIZING) {
        /* The new size may not have arrived: return to the size of its devices, then let the policy
         * decide. */
        job->ranks_next = 0;
        for (uint32_t i = 0; i < job->share_count; i++) {
            job->ranks_next += (uint32_t)__builtin_popcountll(job->shares[i].devices);
        }
        ls_controller_order(c, LS_DO_RESIZE, entry);
    } else if (job->state == LS_JOB_STOPPING || job->state == LS_JOB_PREEMPTING) {
        ls_controller_order(c, LS_DO_STOP, entry);
    } else if (job->state == LS_JOB_RECOVERING) {
        ls_controller_order(c, LS_DO_KILL, entry);
    }
}

static void restore_entry(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    ls_account_entry *account = NULL;
    const bool is_strict = c->settings.strict_accounts;
    c->settings.strict_accounts = false; /* the account was allowed when the job was submitted */
    const ls_status status = ls_queue_account(c, job->account, &account);
    c->settings.strict_accounts = is_strict;
    if (status != LS_OK) {
        ls_transitions_end(c, entry, LS_JOB_FAILED, LS_CAUSE_IMPOSSIBLE, ls_error_text());
        return;
    }
    if (ls_job_has_devices(job) && c->is_split) {
        ls_places_settle(c, job);
    }
    if (ls_job_has_devices(job) || job->handed_over) {
        restore_active(c, entry);
    }
    /* Some of its devices no longer exist. A running job stays where it is until it ends; a waiting
     * one waits until there are more. */
    if (c->decides || ls_queue_add(c, entry) == LS_OK) {
        return;
    }
    if (ls_job_has_devices(job)) {
        ls_queue_withhold(c, entry);
    } else {
        ls_queue_set_aside(c, entry, "impossible", ls_error_text());
    }
}

void ls_controller_restored(ls_controller *c, uint64_t next_job)
{
    c->next_job = next_job;
    c->sweeps_are_due = true;
    /* Running jobs first: a job that waits for one of them must find it. */
    for (int waiting = 0; waiting < 2; waiting++) {
        for (uint32_t i = 0; i < c->entry_count; i++) {
            const ls_job *job = c->entries[i]->job;
            if (!ls_job_state_is_final(job->state) && ls_job_state_is_waiting(job->state) == (waiting == 1)) {
                restore_entry(c, c->entries[i]);
            }
        }
    }
    c->has_work = true;
}

/* ---- in ---- */

static bool changes_something(ls_verb verb)
{
    switch (verb) {
    case LS_VERB_LIST:
    case LS_VERB_SWEEPS:
    case LS_VERB_SWEEP_OF:
    case LS_VERB_SHOW:
    case LS_VERB_WHY:
    case LS_VERB_EVENTS:
    case LS_VERB_NODES:
    case LS_VERB_ACCOUNTS:
    case LS_VERB_USAGE:
    case LS_VERB_ALERTS:
    case LS_VERB_STATUS:
    case LS_VERB_DOWN:
        return false;
    default:
        return true;
    }
}

void ls_controller_call(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                        ls_controller_reply reply, void *context)
{
    LS_ASSERT(!c->in_turn);
    look_at_clock(c);
    ls_answer answer;
    if (c->reply_count >= LS_CONTROLLER_REPLIES_MAX) {
        answer = ls_answer_fail(503, "too many requests at once; try again");
    } else if (c->paused && changes_something(verb) && verb != LS_VERB_CANCEL) {
        answer = ls_answer_fail(507, "the queue cannot be changed now: %s", c->paused);
    } else {
        answer = ls_verbs_answer(c, caller, verb, arguments);
    }
    add_reply(c, reply, context, verb, answer);
}

void ls_controller_forget(ls_controller *c, void *context)
{
    for (uint32_t i = 0; i < c->reply_count; i++) {
        if (c->replies[i].context == context) {
            c->replies[i].reply = NULL;
        }
    }
}

void ls_controller_report(ls_controller *c, const ls_engine_report *report)
{
    LS_ASSERT(!c->in_turn);
    look_at_clock(c);
    c->has_work = true;
    ls_transitions_report(c, report);
}

void ls_controller_pause(ls_controller *c, const char *reason)
{
    free(c->paused);
    c->paused = reason ? strdup(reason) : NULL;
}

/* ---- out ---- */

bool ls_controller_has_work(const ls_controller *c)
{
    const double next_s = ls_controller_next_s(c);
    return c->has_work || (next_s > 0.0 && next_s <= c->calls.now_s(c->calls.context));
}

double ls_controller_next_s(const ls_controller *c)
{
    double next_s = c->alarm_s;
    if (c->policy) {
        const uint64_t next_ms = ls_policy_next_ms(c->policy, ls_controller_ms(c->time_s));
        next_s = next_ms == UINT64_MAX ? next_s : fmin(next_s, 1e-3 * (double)next_ms);
    }
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_entry *entry = c->entries[i];
        if (entry->job->state == LS_JOB_STARTING && entry->start_by_s < next_s) {
            next_s = entry->start_by_s;
        }
    }
    return isinf(next_s) ? 0.0 : next_s;
}

static void gather_rows(ls_controller *c, ls_turn *turn)
{
    c->created = realloc(c->created, (c->touched_count + 1) * sizeof(ls_job *));
    c->changed = realloc(c->changed, (c->touched_count + 1) * sizeof(ls_job *));
    c->account_rows = realloc(c->account_rows, (c->account_count + 1) * sizeof(ls_account *));
    LS_ASSERT(c->created && c->changed && c->account_rows);
    for (uint32_t i = 0; i < c->touched_count; i++) {
        c->changed[turn->changed_count++] = c->touched[i]->job;
        if (c->touched[i]->is_new) {
            c->created[turn->created_count++] = c->touched[i]->job;
        }
    }
    for (uint32_t i = 0; i < c->account_count; i++) {
        if (c->accounts[i]->is_changed) {
            c->account_rows[turn->account_count++] = &c->accounts[i]->account;
        }
    }
    turn->created = c->created;
    turn->changed = c->changed;
    turn->accounts = c->account_rows;
}

void ls_controller_turn(ls_controller *c, ls_turn *turn_out)
{
    LS_ASSERT(!c->in_turn);
    look_at_clock(c);
    ls_transitions_timers(c);
    ls_sweeps_decide(c);
    if (c->policy && !c->paused) {
        ls_transitions_pass(c);
        ls_foresight_starts(c);
    }
    if (c->decides && !c->paused) {
        ls_transitions_hand_over_all(c);
    }
    c->alarm_s = fmin(ls_money_next_s(c), ls_alerts_next_s(c));
    *turn_out = (ls_turn){.time_s = c->time_s};
    ls_alerts_of_turn(c, turn_out);
    gather_rows(c, turn_out);
    turn_out->transitions = c->transitions;
    turn_out->transition_count = c->transition_count;
    turn_out->upkeep = c->upkeep_is_changed ? c->upkeep : NULL;
    turn_out->sweeps = ls_sweeps_rows(c);
    turn_out->orders = c->orders;
    turn_out->order_count = c->order_count;
    turn_out->must_be_written =
        turn_out->changed_count + turn_out->transition_count + turn_out->account_count > 0 ||
        turn_out->upkeep || turn_out->sweeps;
    c->in_turn = true;
    /* the policy may have ended a job of a sweep */
    c->has_work = c->sweeps_are_due && !c->paused && !c->is_going_down;
}

static void call_replies(ls_controller *c)
{
    /* A reply may call the controller again: that call belongs to the next turn. */
    ls_pending_reply *replies = c->replies;
    const uint32_t count = c->reply_count;
    c->replies = NULL;
    c->reply_count = c->reply_capacity = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (replies[i].reply) {
            replies[i].reply(replies[i].context, replies[i].status, replies[i].answer);
        }
        json_decref(replies[i].answer);
    }
    free(replies);
}

void ls_controller_turn_done(ls_controller *c)
{
    LS_ASSERT(c->in_turn);
    c->in_turn = false;
    for (uint32_t i = 0; i < c->touched_count; i++) {
        ls_entry *entry = c->touched[i];
        entry->is_new = entry->is_changed = entry->job->has_new_request = false;
        if (ls_job_state_is_final(entry->job->state)) {
            ls_job_drop_request(entry->job);
        }
    }
    for (uint32_t i = 0; i < c->account_count; i++) {
        c->accounts[i]->is_changed = false;
    }
    c->upkeep_is_changed = false;
    ls_sweeps_written(c);
    c->alerts.told = c->alerts.next;
    c->touched_count = c->transition_count = c->order_count = 0;
    ls_arena_release(&c->arena);
    call_replies(c);
    forget_old(c);
}

bool ls_turn_is_urgent(const ls_turn *turn, uint32_t order)
{
    const ls_engine_order *this = &turn->orders[order];
    bool is_urgent = this->kind == LS_DO_STOP || this->kind == LS_DO_KILL;
    /* what was never started need not be stopped */
    for (uint32_t i = 0; i < order && is_urgent; i++) {
        const ls_engine_order *before = &turn->orders[i];
        is_urgent = before->job != this->job || before->kind == LS_DO_STOP || before->kind == LS_DO_KILL;
    }
    return is_urgent;
}

static void drop_urgent(ls_controller *c)
{
    const ls_turn all = {.orders = c->orders, .order_count = c->order_count};
    uint32_t kept = 0;
    /* from the last: each looks at those before it */
    for (uint32_t i = c->order_count; i > 0; i--) {
        if (!ls_turn_is_urgent(&all, i - 1)) {
            kept++;
            c->orders[c->order_count - kept] = c->orders[i - 1];
        }
    }
    memmove(c->orders, c->orders + c->order_count - kept, kept * sizeof *c->orders);
    c->order_count = kept;
}

/* No caller has heard of the job and nothing was started: it ends as if cancelled. */
static void take_back(ls_controller *c, ls_entry *entry, const char *error)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->order_count; i++) {
        if (c->orders[i].job != entry->job) {
            c->orders[kept++] = c->orders[i];
        }
    }
    c->order_count = kept;
    if (!ls_job_state_is_final(entry->job->state)) {
        ls_transitions_end(c, entry, LS_JOB_CANCELLED, LS_CAUSE_DISK, error);
    }
}

/* A call whose result could not be written is answered at once: its caller does not wait for the
 * disk. */
static void refuse(ls_pending_reply *reply, const char *error)
{
    if (!changes_something(reply->verb) || reply->status >= 300) {
        return;
    }
    const ls_answer answer =
        reply->creates ? ls_answer_fail(507, "not accepted: %s", error)
        : reply->verb == LS_VERB_CANCEL
            ? ls_answer_fail(507, "the job is cancelled; that will be saved as soon as the disk allows: %s",
                             error)
            : ls_answer_fail(507, "not saved yet; it will be as soon as the disk allows: %s", error);
    json_decref(reply->answer);
    reply->status = answer.status;
    reply->answer = answer.json;
}

void ls_controller_turn_failed(ls_controller *c, const char *error)
{
    LS_ASSERT(c->in_turn);
    c->in_turn = false;
    drop_urgent(c);
    const uint32_t count = c->touched_count;
    for (uint32_t i = 0; i < count; i++) {
        if (c->touched[i]->is_new) {
            take_back(c, c->touched[i], error);
        }
    }
    for (uint32_t i = 0; i < c->reply_count; i++) {
        refuse(&c->replies[i], error);
    }
    call_replies(c);
    c->has_work = true;
}

bool ls_controller_is_down(const ls_controller *c)
{
    return c->is_going_down && (!c->cancels_all || c->entry_count == c->ended_count);
}

static bool is_waited_for(const ls_controller *c, uint64_t id)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        for (uint32_t k = 0; !ls_job_state_is_final(job->state) && k < job->spec.after_count; k++) {
            if (job->spec.after[k] == id) {
                return true;
            }
        }
    }
    return false;
}

bool ls_controller_let_go(ls_controller *c, uint64_t id)
{
    LS_ASSERT(!c->in_turn);
    ls_entry *entry = ls_controller_find(c, id);
    if ((entry && (!ls_job_state_is_final(entry->job->state) || entry->is_changed)) || is_waited_for(c, id)) {
        return false;
    }
    if (entry) {
        const uint32_t index = lower_bound(c, id);
        memmove(&c->entries[index], &c->entries[index + 1],
                (c->entry_count - index - 1) * sizeof *c->entries);
        c->entry_count--;
        c->ended_count--;
        destroy_entry(entry);
    }
    ls_sweeps_let_go(c, id);
    return true;
}

/* ---- look ---- */

const ls_job *ls_controller_job(const ls_controller *c, uint64_t id)
{
    const ls_entry *entry = ls_controller_find(c, id);
    return entry ? entry->job : NULL;
}

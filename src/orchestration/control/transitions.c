// SPDX-License-Identifier: Apache-2.0
/* What happens to jobs: the policy's actions, the engine's reports, and time. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A job that ran longer than this before a preemption notice has made progress: that stop does not
 * count against restarts_max. */
#define QUICK_S 60.0

static void sure(ls_status status)
{
    /* The policy can only refuse news about a job that it has if the controller made a mistake. */
    LS_ASSERT(status == LS_OK);
}

static uint64_t now_ms(const ls_controller *c)
{
    return ls_controller_ms(c->time_s);
}

/* ---- the ends of a start ---- */

static void drop_devices(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    ls_queue_give_back(c, entry);
    ls_job_set_shares(job, NULL, 0);
    job->ranks_now = job->ranks_next = 0;
    free(entry->shrunk);
    entry->shrunk = NULL;
    entry->shrunk_count = 0;
    entry->idle_since_s = 0.0;
    entry->idle_told = false;
}

static void finish(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                   const char *text)
{
    ls_queue_remove(c, entry, state == LS_JOB_SUCCEEDED);
    entry->job->handed_over = false;
    ls_controller_move(c, entry, state, cause, text);
    ls_foresight_ended(entry);
    ls_controller_order(c, LS_DO_FORGET, entry);
}

void ls_transitions_end(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                        const char *text)
{
    if (ls_job_has_devices(entry->job)) { /* it was given devices in this turn and never started */
        ls_usage_settle_devices(c, entry, false);
        drop_devices(c, entry);
    } else if (entry->job->state == LS_JOB_QUEUED) {
        ls_usage_settle_waiting(c, entry);
    }
    finish(c, entry, state, cause, text);
}

/* Adds the length of the start that is over. */
static void add_run(const ls_controller *c, ls_job *job)
{
    if (!ls_job_state_is_waiting(job->state) && job->started_s > 0.0 && c->time_s > job->started_s) {
        job->run_s += c->time_s - job->started_s;
    }
}

/* Frees the job's devices and ends the job. */
static void end_start(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                      const char *text)
{
    ls_usage_settle_devices(c, entry, cause == LS_CAUSE_LOST);
    add_run(c, entry->job);
    drop_devices(c, entry);
    finish(c, entry, state, cause, text);
}

/* Frees the job's devices and queues the job again. */
static void wait_again(ls_controller *c, ls_entry *entry, ls_job_cause cause, bool is_lost, const char *text)
{
    ls_job *job = entry->job;
    ls_usage_settle_devices(c, entry, is_lost);
    ls_foresight_resized(c, job, job->ranks_now, job->ranks);
    drop_devices(c, entry);
    add_run(c, job);
    job->handed_over = false;
    job->queued_s = c->time_s;
    if (job->held && ls_job_hold_is_money(job->hold)) { /* with what it has cost in the end */
        text = ls_money_hold_text(c, entry, job->hold);
        cause = LS_CAUSE_BUDGET;
    }
    ls_controller_move(c, entry, ls_job_is_kept(job) ? LS_JOB_HELD : LS_JOB_QUEUED, cause, text);
    ls_queue_again(c, entry);
    if (c->decides) {
        ls_transitions_hand_over(c, entry);
    }
}

/* Its processes ended well: it has succeeded, unless its sweep wanted it to train only so far. A
 * run that ended by itself before that step (eval.patience) has succeeded, too. */
static void succeed(ls_controller *c, ls_entry *entry, const char *text)
{
    ls_job *job = entry->job;
    if (job->stop_step == 0 || (job->result.step > 0 && job->result.step < job->stop_step)) {
        end_start(c, entry, LS_JOB_SUCCEEDED, LS_CAUSE_NONE, text);
        return;
    }
    job->paused = true;
    wait_again(
        c, entry, LS_CAUSE_SWEEP, false,
        ls_arena_printf(&c->arena, "paused by its sweep at step %llu", (unsigned long long)job->stop_step));
}

/* ---- stopping ---- */

void ls_transitions_stop(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                         const char *text)
{
    ls_controller_move(c, entry, state, cause, text);
    ls_controller_order(c, LS_DO_STOP, entry);
}

void ls_transitions_hold(ls_controller *c, ls_entry *entry, ls_job_hold hold, const char *text)
{
    ls_job *job = entry->job;
    const ls_job_cause cause = hold == LS_HOLD_USER   ? LS_CAUSE_USER
                               : hold == LS_HOLD_IDLE ? LS_CAUSE_IDLE
                                                      : LS_CAUSE_BUDGET;
    job->held = true;
    job->hold = hold;
    if (job->state == LS_JOB_QUEUED) {
        ls_usage_settle_waiting(c, entry);
        ls_controller_move(c, entry, LS_JOB_HELD, cause, text);
        if (c->decides) {
            ls_controller_order(c, LS_DO_CHANGE, entry);
        } else if (entry->in_policy) {
            sure(ls_policy_hold(c->policy, now_ms(c), job->id, true));
        }
    } else if (job->state == LS_JOB_PREEMPTING || job->state == LS_JOB_RECOVERING) {
        ls_controller_touch(c, entry);
    } else {
        ls_transitions_stop(c, entry, LS_JOB_PREEMPTING, cause, text);
    }
}

void ls_transitions_release(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    const ls_job_cause cause = ls_job_hold_is_money(job->hold) ? LS_CAUSE_NONE : LS_CAUSE_USER;
    job->held = false;
    job->hold = LS_HOLD_USER;
    if (job->state != LS_JOB_HELD || job->paused) {
        ls_controller_touch(c, entry);
        return;
    }
    job->queued_s = c->time_s;
    ls_controller_move(c, entry, LS_JOB_QUEUED, cause, NULL);
    if (c->decides && job->handed_over) {
        ls_controller_order(c, LS_DO_CHANGE, entry);
    } else if (c->decides) {
        ls_transitions_hand_over(c, entry);
    } else if (entry->in_policy) {
        sure(ls_policy_hold(c->policy, now_ms(c), job->id, false));
    }
}

/* ---- actions ---- */

static void take_shares(ls_job *job, const ls_action *action)
{
    ls_job_share *shares = calloc(action->share_count + 1, sizeof *shares);
    LS_ASSERT(shares && "not enough memory for devices");
    for (uint32_t i = 0; i < action->share_count; i++) {
        shares[i] = (ls_job_share){.node = action->shares[i].node, .devices = action->shares[i].devices};
    }
    ls_job_set_shares(job, shares, action->share_count);
    free(shares);
}

static void start(ls_controller *c, ls_entry *entry, const ls_action *action)
{
    ls_job *job = entry->job;
    ls_usage_settle_waiting(c, entry);
    take_shares(job, action);
    job->ranks_now = action->ranks;
    job->epoch++;
    job->started_s = c->time_s; /* it owns its devices from now on */
    ls_money_start(c, job, c->nodes[c->places[job->shares[0].node].node].name);
    job->alerts = job->alerts_heard = 0; /* of an earlier start */
    entry->step_at_s = 0.0;
    job->saved_s = 0.0;
    ls_foresight_began(c, entry);
    entry->busy_known_s = c->time_s;
    entry->start_by_s = c->time_s + c->settings.start_timeout_s;
    ls_controller_move(c, entry, LS_JOB_STARTING, LS_CAUSE_NONE, NULL);
    ls_controller_order(c, LS_DO_START, entry);
}

static void resize(ls_controller *c, ls_entry *entry, const ls_action *action)
{
    ls_job *job = entry->job;
    job->ranks_next = action->ranks;
    ls_usage_settle_devices(c, entry, false); /* up to now it had the old number of devices */
    if (action->kind == LS_ACTION_GROW) {
        take_shares(job, action);
    } else {
        free(entry->shrunk);
        entry->shrunk = calloc(action->share_count + 1, sizeof *entry->shrunk);
        LS_ASSERT(entry->shrunk && "not enough memory for devices");
        for (uint32_t i = 0; i < action->share_count; i++) {
            entry->shrunk[i] =
                (ls_job_share){.node = action->shares[i].node, .devices = action->shares[i].devices};
        }
        entry->shrunk_count = action->share_count;
    }
    ls_controller_move(c, entry, LS_JOB_RESIZING, action->for_job ? LS_CAUSE_PREEMPTED : LS_CAUSE_NONE, NULL);
    ls_controller_order(c, LS_DO_RESIZE, entry);
}

static const char *because_of(ls_controller *c, const ls_action *action)
{
    return action->for_window ? "stopped for maintenance"
           : action->for_job
               ? ls_arena_printf(&c->arena, "preempted for job %llu", (unsigned long long)action->for_job)
               : NULL;
}

/* "it reached its time limit of 30 s (job.time_limit)" */
static const char *limit_text(ls_controller *c, const ls_job *job)
{
    return ls_arena_printf(&c->arena, "it reached its time limit of %s (job.time_limit)",
                           ls_duration_of(job->spec.time_limit_s).text);
}

static void end_by_policy(ls_controller *c, ls_entry *entry, const ls_action *action)
{
    const bool is_limit = action->for_job == 0 && !action->for_window;
    if (entry->job->state == LS_JOB_STOPPING) {
        return;
    }
    ls_transitions_stop(c, entry, LS_JOB_STOPPING, is_limit ? LS_CAUSE_LIMIT : LS_CAUSE_PREEMPTED,
                        is_limit ? limit_text(c, entry->job) : because_of(c, action));
}

static void act(ls_controller *c, const ls_action *action)
{
    if (action->job & LS_WITHHELD_BIT) {
        return; /* it keeps running until it ends */
    }
    ls_entry *entry = ls_controller_find(c, action->job);
    LS_ASSERT(entry && "the policy names a job that the queue does not have");
    switch (action->kind) {
    case LS_ACTION_START:
        start(c, entry, action);
        break;
    case LS_ACTION_PREEMPT:
        if (entry->job->state != LS_JOB_STOPPING && entry->job->state != LS_JOB_PREEMPTING) {
            entry->job->preemptions++;
            ls_transitions_stop(c, entry, LS_JOB_PREEMPTING, LS_CAUSE_PREEMPTED, because_of(c, action));
        }
        break;
    case LS_ACTION_SHRINK:
    case LS_ACTION_GROW:
        resize(c, entry, action);
        break;
    case LS_ACTION_END:
        end_by_policy(c, entry, action);
        break;
    case LS_ACTION_CANNOT:
        entry->in_policy = false;
        ls_transitions_end(c, entry, LS_JOB_FAILED, LS_CAUSE_DEPENDENCY,
                           "a job it depends on did not succeed");
        break;
    }
}

void ls_transitions_pass(ls_controller *c)
{
    const ls_action *actions = NULL;
    uint32_t count = 0;
    if (c->is_going_down) {
        return;
    }
    ls_queue_try_again(c);
    ls_policy_pass(c->policy, now_ms(c), &actions, &count);
    for (uint32_t i = 0; i < count; i++) {
        act(c, &actions[i]);
    }
}

void ls_transitions_hand_over(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    uint64_t after[LS_JOB_AFTER_MAX], doomed = 0;
    if (job->handed_over || ls_job_is_kept(job)) {
        return;
    }
    if (ls_queue_after(c, job, after, &doomed) > 0) {
        return; /* ls_transitions_hand_over_all tries again in each turn */
    }
    if (doomed) {
        ls_transitions_end(c, entry, LS_JOB_FAILED, LS_CAUSE_DEPENDENCY,
                           "a job it depends on did not succeed");
        return;
    }
    job->handed_over = true;
    ls_money_start(c, job, NULL);
    job->epoch++;
    job->ranks_now = job->ranks;
    ls_controller_touch(c, entry);
    ls_controller_order(c, LS_DO_START, entry);
}

void ls_transitions_hand_over_all(ls_controller *c)
{
    /* By number: a job has a higher number than those it waits for, so a chain of failures ends in
     * one turn. */
    for (uint32_t i = 0; i < c->entry_count && !c->is_going_down; i++) {
        ls_entry *entry = c->entries[i];
        if (entry->job->state == LS_JOB_QUEUED && !entry->job->handed_over &&
            entry->job->spec.after_count > 0) {
            ls_transitions_hand_over(c, entry);
        }
    }
}

/* ---- time ---- */

/* While the queue cannot be changed, the policy is not asked, and limits still hold. */
static bool is_past_limit(const ls_controller *c, const ls_job *job)
{
    return (job->state == LS_JOB_RUNNING || job->state == LS_JOB_RESIZING) && job->spec.time_limit_s > 0.0 &&
           job->run_s + c->time_s - job->started_s >= job->spec.time_limit_s;
}

void ls_transitions_timers(ls_controller *c)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        ls_entry *entry = c->entries[i];
        if (entry->job->state == LS_JOB_STARTING && entry->start_by_s <= c->time_s && !c->decides) {
            ls_controller_move(c, entry, LS_JOB_RECOVERING, LS_CAUSE_LOST, "it did not start in time");
            ls_controller_order(c, LS_DO_KILL, entry);
        }
        if (c->paused && !c->decides && is_past_limit(c, entry->job)) {
            ls_transitions_stop(c, entry, LS_JOB_STOPPING, LS_CAUSE_LIMIT, limit_text(c, entry->job));
        }
    }
    ls_money_watch(c);
    ls_alerts_watch(c);
}

/* ---- reports ---- */

static void has_started(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    if (c->decides && (job->state == LS_JOB_QUEUED || job->state == LS_JOB_HELD)) {
        ls_usage_settle_waiting(c, entry);
        job->ranks_now = report->ranks ? report->ranks : job->ranks;
        job->started_s = report->time_s > 0.0 ? report->time_s : c->time_s;
        ls_money_start(c, job, report->node);
        ls_controller_move(c, entry, LS_JOB_RUNNING, LS_CAUSE_NONE, report->text);
        return;
    }
    if (job->state != LS_JOB_STARTING) {
        return; /* it was told to stop meanwhile, or the report came twice */
    }
    /* The report's time is that of a file which the job's user can change. So it is believed only
     * between the moment when the devices were given, which is in started_s, and now. */
    job->started_s = report->time_s > 0.0 ? fmin(fmax(report->time_s, job->started_s), c->time_s) : c->time_s;
    if (entry->in_policy && c->policy) {
        sure(ls_policy_started(c->policy, now_ms(c), job->id));
    }
    ls_controller_move(c, entry, LS_JOB_RUNNING, LS_CAUSE_NONE, report->text);
}

static bool was_killed(int exit_code)
{
    return exit_code == 128 + 9 || exit_code == 128 + 15;
}

/* Why the job is being ended and how it ended. Who asked and the cause stay, whatever its processes
 * report. */
static const char *reason_and_end(ls_controller *c, const ls_job *job, const char *end)
{
    const char *reason = job->text ? job->text : "it was told to end";
    return end && end[0] ? ls_arena_printf(&c->arena, "%s; %s", reason, end)
                         : ls_arena_strdup(&c->arena, reason);
}

static void end_cancelled(ls_controller *c, ls_entry *entry, const char *end)
{
    end_start(c, entry, LS_JOB_CANCELLED,
              entry->job->cause == LS_CAUSE_SWEEP ? LS_CAUSE_SWEEP : LS_CAUSE_USER,
              reason_and_end(c, entry->job, end));
}

/* The checkpoint can be used by submitting the same run file again. */
static const char *saved_text(ls_controller *c, const ls_job *job)
{
    return job->run_dir[0]
               ? ls_arena_printf(&c->arena, "it saved first: submit the same run file to continue in %s",
                                 job->run_dir)
               : "it saved first";
}

/* A training run exits with 0 only when it has reached its last step; a program that was told to
 * end may exit with anything. */
static void ended_at_limit(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    const ls_job *job = entry->job;
    if (report->exit_code == 0 && job->run_dir[0]) {
        succeed(c, entry, NULL);
        return;
    }
    const char *end = report->exit_code == 75 ? saved_text(c, job)
                      /* the engine's text names the limit, as ours does */
                      : report->cause == LS_CAUSE_LIMIT ? report->error
                                                        : report->text;
    end_start(c, entry, LS_JOB_FAILED, LS_CAUSE_LIMIT,
              end && end[0] ? ls_arena_printf(&c->arena, "%s; %s", limit_text(c, job), end)
                            : limit_text(c, job));
}

/*
 * A training run also watches its time limit and may stop first; its clock started a moment later.
 */
static bool is_over_limit(const ls_controller *c, const ls_job *job)
{
    const double run_s = job->run_s + (job->started_s > 0.0 ? c->time_s - job->started_s : 0.0);
    const double limit_s = job->spec.time_limit_s;
    return limit_s > 0.0 && run_s >= limit_s - (limit_s > 10.0 ? 1.0 : 0.1 * limit_s);
}

/* 75 asks for another start, which it does not get. */
static const char *gave_up_text(ls_controller *c, const ls_job *job, const ls_engine_report *report)
{
    if (report->text && report->text[0]) {
        return report->text;
    }
    return job->spec.restartable
               ? ls_arena_printf(
                     &c->arena,
                     "it ended with exit code 75 (saved, to be started again) soon after its start, "
                     "after %u of %u restarts (job.restarts_max)",
                     job->restarts, job->spec.restarts_max)
               : "it ended with exit code 75 (saved, to be started again), and may not be started again "
                 "(job.restartable)";
}

/* The job ended by itself while it was running. */
static void ended_alone(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    const bool is_quick = c->time_s - job->started_s < QUICK_S;
    if (report->exit_code == 0) {
        succeed(c, entry, report->text);
        return;
    }
    if (report->exit_code == 75 && !c->decides && is_over_limit(c, job)) {
        ended_at_limit(c, entry, report);
        return;
    }
    if (report->exit_code == 75 && job->spec.restartable &&
        (!is_quick || job->restarts < job->spec.restarts_max)) {
        job->restarts += is_quick;
        wait_again(c, entry, LS_CAUSE_PREEMPTED, false,
                   "it was told to stop, has saved, and will continue later");
        return;
    }
    end_start(c, entry, LS_JOB_FAILED, report->cause == LS_CAUSE_NONE ? LS_CAUSE_PROGRAM : report->cause,
              report->exit_code == 75 ? gave_up_text(c, job, report) : report->text);
}

/* Its devices were needed. A training run continues from its checkpoint; a program that was killed
 * starts from the beginning. */
static void ended_preempted(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    if (job->spec.interactive && job->cause == LS_CAUSE_IDLE) { /* however its program takes it */
        wait_again(c, entry, job->cause, false, ls_arena_strdup(&c->arena, job->text));
    } else if (report->exit_code == 0) {
        succeed(c, entry, report->text);
    } else if (job->spec.restartable &&
               (report->exit_code == 75 || was_killed(report->exit_code) || report->cause == LS_CAUSE_LOST)) {
        wait_again(c, entry, job->cause, report->exit_code != 75,
                   job->text ? ls_arena_strdup(&c->arena, job->text) : NULL);
    } else {
        ended_alone(c, entry, report);
    }
}

static void ended_stopped(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    if (job->cancelled) {
        end_cancelled(c, entry, report->exit_code == 75 ? saved_text(c, job) : report->text);
    } else if (job->cause == LS_CAUSE_LIMIT) {
        ended_at_limit(c, entry, report);
    } else if (report->exit_code == 0) {
        succeed(c, entry, report->text);
    } else if (job->cause == LS_CAUSE_BUDGET && report->exit_code == 75) {
        /* it can continue after all */
        job->held = true;
        wait_again(c, entry, LS_CAUSE_BUDGET, false, NULL);
    } else {
        end_start(c, entry, LS_JOB_FAILED, job->cause,
                  reason_and_end(c, job, "it cannot be restarted (job.restartable)"));
    }
}

/* None of its processes is left. The reason of the loss stays in the job's text. */
static void ended_recovering(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    const char *reason = job->text ? job->text : "its processes were lost";
    if (job->cancelled) {
        end_cancelled(c, entry, NULL);
    } else if (job->restarts < job->spec.restarts_max) {
        job->restarts++;
        wait_again(c, entry, LS_CAUSE_LOST, true,
                   ls_arena_printf(&c->arena, "%s; restarted, %u of %u times", reason, job->restarts,
                                   job->spec.restarts_max));
    } else if (job->spec.restarts_max == 0) {
        end_start(c, entry, LS_JOB_FAILED, LS_CAUSE_LOST,
                  ls_arena_printf(&c->arena,
                                  "%s; it may not be restarted (job.restartable, job.restarts_max)", reason));
    } else {
        end_start(c, entry, LS_JOB_FAILED, LS_CAUSE_LOST,
                  ls_arena_printf(&c->arena, "%s; it was already restarted %u times (job.restarts_max)",
                                  reason, job->restarts));
    }
}

/*
 * The engine ended it: by the time limit, which the engine also keeps, or by a decision of its own.
 */
static bool ended_by_engine(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    const ls_job *job = entry->job;
    if (job->state == LS_JOB_STOPPING || job->cancelled) {
        return false;
    }
    if (c->decides && report->cause == LS_CAUSE_USER) {
        end_start(c, entry, LS_JOB_CANCELLED, LS_CAUSE_USER, report->text);
        return true;
    }
    if (report->cause == LS_CAUSE_LIMIT && c->decides) {
        end_start(c, entry, LS_JOB_FAILED, LS_CAUSE_LIMIT, report->text);
        return true;
    }
    if (report->cause == LS_CAUSE_LIMIT) {
        ended_at_limit(c, entry, report);
        return true;
    }
    return false;
}

/* Adds the line that explains the error: "ended with exit code 2: runs/a holds another run". */
static ls_engine_report with_error(ls_controller *c, const ls_engine_report *report)
{
    ls_engine_report whole = *report;
    if (report->error && report->error[0] && report->text && report->text[0]) {
        whole.text = ls_arena_printf(&c->arena, "%s: %s", report->text, report->error);
    } else if (report->error && report->error[0]) {
        whole.text = report->error;
    }
    return whole;
}

static void has_ended(ls_controller *c, ls_entry *entry, const ls_engine_report *told)
{
    const ls_engine_report whole = with_error(c, told), *report = &whole;
    ls_job *job = entry->job;
    job->exit_code = report->exit_code;
    ls_usage_energy(c, entry, report->energy_mj);
    if (report->result.step > 0) {
        const uint64_t sent_bytes = job->result.sent_bytes + report->result.sent_bytes;
        job->result = report->result;
        job->result.sent_bytes = sent_bytes;
        ls_usage_stored(c, entry);
    }
    if (ls_money_has_capped(c, entry, report)) {
        wait_again(c, entry, LS_CAUSE_BUDGET, report->exit_code != 75, NULL);
    } else if (job->state == LS_JOB_RECOVERING) {
        ended_recovering(c, entry);
    } else if (report->cause == LS_CAUSE_LOST && job->state != LS_JOB_PREEMPTING &&
               job->state != LS_JOB_STOPPING) {
        ls_controller_move(c, entry, LS_JOB_RECOVERING, LS_CAUSE_LOST, report->text);
        ended_recovering(c, entry);
    } else if (report->cause == LS_CAUSE_START && job->cancelled) {
        end_cancelled(c, entry, report->text);
    } else if (report->cause == LS_CAUSE_START) {
        end_start(c, entry, LS_JOB_FAILED, LS_CAUSE_START, report->text);
    } else if (ended_by_engine(c, entry, report)) {
        return;
    } else if (job->state == LS_JOB_PREEMPTING) {
        ended_preempted(c, entry, report);
    } else if (job->state == LS_JOB_STOPPING) {
        ended_stopped(c, entry, report);
    } else {
        ended_alone(c, entry, report);
    }
}

static void never_started(ls_controller *c, ls_entry *entry)
{
    if (entry->job->cancelled) {
        end_cancelled(c, entry, "it had not started");
    } else {
        wait_again(c, entry, LS_CAUSE_NONE, false, "its start was withdrawn");
    }
}

static void was_lost(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    if (entry->job->state != LS_JOB_RECOVERING) {
        ls_controller_move(c, entry, LS_JOB_RECOVERING, LS_CAUSE_LOST, report->text);
        ls_alerts_of_job(c, entry, LS_ALERT_RANKS, report->text ? report->text : "its processes were lost");
    }
    ls_controller_order(c, LS_DO_KILL, entry);
}

static void keep_shrunk(ls_controller *c, ls_entry *entry)
{
    ls_usage_settle_devices(c, entry, false);
    ls_job_set_shares(entry->job, entry->shrunk, entry->shrunk_count);
    free(entry->shrunk);
    entry->shrunk = NULL;
    entry->shrunk_count = 0;
}

/* The job has report->ranks now: the number asked for, or its old number when the run refused. */
static void was_resized(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    if (job->state != LS_JOB_RESIZING) {
        return;
    }
    const uint32_t before = job->ranks_now, wanted = job->ranks_next;
    const bool is_done = report->ranks == wanted;
    if (entry->shrunk && !is_done) { /* other jobs were promised these devices */
        ls_transitions_stop(c, entry, LS_JOB_PREEMPTING, LS_CAUSE_PREEMPTED,
                            ls_arena_printf(&c->arena, "it could not shrink: %s",
                                            report->text ? report->text : "no reason given"));
        return;
    }
    if (entry->shrunk) {
        keep_shrunk(c, entry);
    }
    ls_foresight_resized(c, job, job->ranks_now, wanted);
    job->ranks_now = wanted; /* it owns its devices, whether it uses them or not */
    job->ranks_next = 0;
    ls_controller_move(c, entry, LS_JOB_RUNNING, LS_CAUSE_NONE,
                       is_done ? NULL
                               : ls_arena_printf(&c->arena, "it did not change to %u ranks: %s", wanted,
                                                 report->text ? report->text : "no reason given"));
    if (c->policy && entry->in_policy) {
        sure(ls_policy_resized(c->policy, now_ms(c), job->id));
        if (!is_done && wanted > before &&
            ls_policy_change(c->policy, now_ms(c), job->id, LS_CHANGE_RANKS, before) != LS_OK) {
            /* it keeps devices that it does not use; they are reported as idle */
            ls_controller_touch(c, entry);
        }
    }
}

static void has_saved(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    entry->job->saved_s = report->time_s > 0.0 ? report->time_s : c->time_s;
    ls_controller_touch(c, entry);
    if (c->policy && entry->in_policy) {
        sure(ls_policy_checkpointed(c->policy, now_ms(c), entry->job->id));
    }
}

static void waits(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    free(entry->stage);
    free(entry->stage_text);
    entry->stage = report->stage ? strdup(report->stage) : NULL;
    entry->stage_text = report->text ? strdup(report->text) : NULL;
    entry->starts_s = report->starts_s;
    if (c->decides && !ls_job_state_is_waiting(entry->job->state) && entry->job->state != LS_JOB_STOPPING) {
        /* The engine has preempted the job and will start it again by itself. */
        ls_job *job = entry->job;
        ls_usage_settle_devices(c, entry, false);
        add_run(c, job);
        job->preemptions++;
        job->epoch++;
        job->queued_s = c->time_s;
        ls_controller_move(c, entry, LS_JOB_QUEUED, LS_CAUSE_PREEMPTED, report->text);
    }
}

static void node_changed(ls_controller *c, const ls_engine_report *report)
{
    for (uint32_t i = 0; i < c->node_count; i++) {
        if (report->text && strcmp(c->nodes[i].name, report->text) == 0) {
            c->node_is_up[i] = report->is_up;
            ls_upkeep_apply(c);
        }
    }
}

void ls_transitions_report(ls_controller *c, const ls_engine_report *told)
{
    ls_engine_report here = *told, *report = &here; /* by the clock of the queue */
    here.time_s -= told->time_s > 0.0 ? c->ahead_s : 0.0;
    here.starts_s -= told->starts_s > 0.0 ? c->ahead_s : 0.0;
    if (report->kind == LS_ENGINE_FREE_ENERGY) {
        ls_usage_energy(c, NULL, report->energy_mj);
        return;
    }
    if (report->kind == LS_ENGINE_NODE) {
        node_changed(c, report);
        return;
    }
    ls_entry *entry = ls_controller_find(c, report->job);
    if (!entry || entry->job->epoch != report->epoch || ls_job_state_is_final(entry->job->state) ||
        !(ls_job_has_devices(entry->job) || entry->job->handed_over)) {
        return; /* a report of an earlier epoch */
    }
    switch (report->kind) {
    case LS_ENGINE_ACCEPTED:
        ls_job_set_engine_ref(entry->job, report->text);
        ls_controller_touch(c, entry);
        break;
    case LS_ENGINE_STARTED:
        has_started(c, entry, report);
        break;
    case LS_ENGINE_ENDED:
        has_ended(c, entry, report);
        break;
    case LS_ENGINE_NEVER:
        never_started(c, entry);
        break;
    case LS_ENGINE_LOST:
        was_lost(c, entry, report);
        break;
    case LS_ENGINE_RESIZED:
        was_resized(c, entry, report);
        break;
    case LS_ENGINE_SAVED:
        has_saved(c, entry, report);
        break;
    case LS_ENGINE_PROGRESS:
        ls_foresight_progress(c, entry, report);
        break;
    case LS_ENGINE_ACTIVITY:
        ls_alerts_activity(c, entry, report->busy_permille);
        ls_usage_energy(c, entry, report->energy_mj);
        ls_usage_activity(c, entry, report);
        break;
    case LS_ENGINE_ALERT:
        if (report->alert_number > entry->job->alerts_heard) {
            entry->job->alerts_heard = report->alert_number;
            ls_alerts_of_job(c, entry, report->alert, report->text ? report->text : "");
        }
        break;
    case LS_ENGINE_WAITS:
        waits(c, entry, report);
        break;
    case LS_ENGINE_NODE:
    case LS_ENGINE_FREE_ENERGY:
        break;
    }
}

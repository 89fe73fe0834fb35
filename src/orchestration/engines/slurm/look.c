// SPDX-License-Identifier: Apache-2.0
/* Reads squeue and sinfo, and reports what became of each job since the last look. */
#include "orchestration/engines/slurm/slurm_internal.h"

#include "base/log.h"
#include "env/real/program.h"
#include "orchestration/engines/slurm/squeue.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether it saved because its time limit was near: what is left would not be enough to start
 * again. */
static bool is_time_over(const ls_slurm_entry *one, double ended_s)
{
    const double limit_s = one->job->spec.time_limit_s;
    return limit_s > 0 && one->started_s > 0 &&
           one->job->run_s + ended_s - one->started_s >= limit_s - LS_SLURM_NOTICE_S;
}

/* Its last run has ended: reports how. */
static void tell_end(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    ls_engine_report report = {.kind = LS_ENGINE_ENDED,
                               .time_s = row->end_s,
                               .exit_code = row->exit_code,
                               .cause = LS_CAUSE_PROGRAM};
    if (row->state == LS_SLURM_CANCELLED) { /* Slurm reports 0 for jobs that it ended itself */
        report.exit_code = 128 + SIGTERM;
    }
    const bool is_said = ls_slurm_read_end(self, one, &report.exit_code, &report.time_s, &report.result);
    if (one->is_stopping && (report.exit_code == SIGTERM || report.exit_code == SIGKILL)) {
        /* srun exits with 15 or 143, unpredictably, when its tasks are ended by TERM */
        report.exit_code += 128;
    }
    if (row->state == LS_SLURM_LIMIT ||
        (is_said && report.exit_code == 75 && !one->is_stopping && is_time_over(one, report.time_s))) {
        report.cause = LS_CAUSE_LIMIT;
    } else if (row->state == LS_SLURM_CANCELLED && report.exit_code != 0 && !one->is_stopping) {
        report.cause = LS_CAUSE_USER;
        report.text = "cancelled in Slurm";
    } else if (is_said) {
        report.cause = report.exit_code == 75 ? LS_CAUSE_PREEMPTED : LS_CAUSE_PROGRAM;
    } else if (row->state == LS_SLURM_MEMORY) {
        report.cause = LS_CAUSE_MEMORY;
    } else if (row->state == LS_SLURM_CANCELLED) {
        report.cause = LS_CAUSE_PREEMPTED; /* ended by us when its grace period was over */
    } else if (row->state == LS_SLURM_PREEMPTED) {
        report.cause = LS_CAUSE_PREEMPTED;
        report.exit_code = 75;
    } else if (row->state != LS_SLURM_DONE) {
        report.cause = LS_CAUSE_LOST; /* its script recorded no end */
        report.text = row->reason;
    }
    ls_env_timer_cancel(self->env, one->grace);
    one->grace = 0;
    one->phase = PHASE_ENDED;
    ls_slurm_tell(self, one, report);
}

static void has_begun(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    if (one->phase == PHASE_WAITS) {
        one->phase = PHASE_RUNS;
        one->started_s = row->start_s;
        ls_slurm_tell(
            self, one,
            (ls_engine_report){.kind = LS_ENGINE_STARTED, .time_s = row->start_s, .node = row->node});
    }
}

/* Slurm has restarted the job more often than this epoch knows: the epoch's run is over, and the
 * next one is in Slurm's queue already. */
static void was_requeued(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    int code = 0;
    double ended_s = 0;
    const bool is_over = ls_slurm_read_end(self, one, &code, &ended_s, NULL) && is_time_over(one, ended_s);
    if (one->is_stopping || is_over) { /* the controller decides whether and when it continues */
        ls_slurm_cancel(self, one->ref);
        tell_end(self, one, row);
        return;
    }
    if (one->phase == PHASE_WAITS) { /* it ran between two looks */
        one->phase = PHASE_RUNS;
        ls_slurm_tell(self, one, (ls_engine_report){.kind = LS_ENGINE_STARTED});
    }
    one->phase = PHASE_WAITS;
    one->started_s = 0;
    one->restarts = row->restarts;
    if (row->state == LS_SLURM_WAITS) {
        /* a Slurm that lost its newest records may use a number twice */
        ls_slurm_drop_end(self, one);
    }
    ls_slurm_entry next = *one;
    next.epoch++;
    ls_slurm_write_ref(self, &next); /* before it is relied on */
    ls_slurm_tell(self, one,
                  (ls_engine_report){
                      .kind = LS_ENGINE_WAITS,
                      .stage = ls_slurm_reason_stage(row->reason),
                      .text = code == 75
                                  ? "saved, and requeued by Slurm"
                                  : "requeued by Slurm: its nodes were lost, or an operator requeued it"});
    one->epoch++;
    if (row->state == LS_SLURM_RUNS) {
        has_begun(self, one, row);
    }
}

static void tell_why(ls_slurm_engine *self, const ls_slurm_entry *one, const ls_slurm_row *row)
{
    ls_arena arena = {0};
    ls_slurm_tell(self, one,
                  (ls_engine_report){.kind = LS_ENGINE_WAITS,
                                     .stage = ls_slurm_reason_stage(row->reason),
                                     .starts_s = row->start_s,
                                     .text = ls_slurm_reason_text(&arena, row->reason)});
    ls_arena_release(&arena);
}

/*
 * Reports the end of a completing job as soon as its script has recorded it: its nodes may take
 * another minute. Not for a signal, because Slurm knows who or what killed it only when it is over;
 * and not for a job that has saved, because Slurm may queue it again.
 */
static void end_if_said(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    int code = 0;
    double time_s = 0;
    if (ls_slurm_read_end(self, one, &code, &time_s, NULL) && code != 75 && code < 128) {
        has_begun(self, one, row);
        tell_end(self, one, row);
    }
}

void ls_slurm_take_end(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    if (row->start_s > 0 && (row->state != LS_SLURM_CANCELLED || one->phase == PHASE_RUNS)) {
        has_begun(self, one, row);
    }
    tell_end(self, one, row);
}

static void take_row(ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    one->missed = 0;
    if (one->is_adopted) { /* it was told to stop before its state in Slurm was known */
        one->is_adopted = false;
        if (row->state == LS_SLURM_RUNS && row->restarts == one->restarts) {
            has_begun(self, one, row);
        }
        if (one->is_stopping) {
            ls_slurm_stop_now(self, one);
        } else if (!one->job->held && strcmp(row->reason, "JobHeldUser") == 0) {
            /* it was released, and the daemon ended before it could tell Slurm */
            ls_slurm_hold_now(self, one);
        }
    }
    if (row->restarts > one->restarts || (row->state == LS_SLURM_WAITS && one->phase == PHASE_RUNS)) {
        was_requeued(self, one, row);
    } else if (row->state == LS_SLURM_WAITS) {
        tell_why(self, one, row);
    } else if (row->state == LS_SLURM_RUNS) {
        has_begun(self, one, row);
    } else if (row->state == LS_SLURM_ENDS) {
        end_if_said(self, one, row);
    } else {
        ls_slurm_take_end(self, one, row);
    }
    one->is_held_there =
        strcmp(ls_slurm_reason_stage(row->reason), "hold") == 0 && strcmp(row->reason, "JobHeldAdmin") != 0;
    ls_slurm_repeat(self, one);
}

/* Slurm forgets ended jobs after MinJobAge. The file of the script remains; where there is none,
 * sacct may know. */
static void take_absence(ls_slurm_engine *self, ls_slurm_entry *one)
{
    int code = 0;
    double time_s = 0;
    const bool is_said = ls_slurm_read_end(self, one, &code, &time_s, NULL);
    if (++one->missed < LS_SLURM_MISSED_MAX && !is_said) {
        return;
    }
    const ls_slurm_row row = {.state = LS_SLURM_NODE_LOST, .reason = "Slurm no longer knows the job"};
    if (ls_slurm_withdraw_ticket(self, one)) {
        one->phase = PHASE_ENDED;
        ls_slurm_tell(self, one, (ls_engine_report){.kind = LS_ENGINE_NEVER});
        return;
    }
    /* a signal: from itself, or by scancel? */
    if ((!is_said || code >= 128) && one->ref[0] && one->missed < 3 * LS_SLURM_MISSED_MAX &&
        ls_slurm_ask_history(self)) {
        return;
    }
    tell_end(self, one, &row);
}

/* Whether this task's array may be named after that job: it must be of the same sweep, and at least
 * as many numbers before this job as there are tasks before this one. */
static bool can_be_first(const ls_slurm_engine *self, const ls_slurm_entry *one, uint64_t job)
{
    const ls_slurm_entry *first = ls_slurm_find(self, job); /* NULL: it has ended */
    const char *task = strchr(one->ref, '_');
    const uint64_t before = task ? strtoull(task + 1, NULL, 10) : 0;
    return job > 0 && job <= one->id && before <= one->id - job &&
           (!first ||
            (first->job->uid == one->job->uid && strcmp(first->job->spec.group, one->job->spec.group) == 0));
}

/*
 * The job's number in Slurm may come from a file in a folder of its user, who could have written
 * any number there; and a Slurm that lost its records counts from the start again. So a row counts
 * only if it belongs to the same user and names this job: nobody can end another user's job like
 * this.
 */
bool ls_slurm_is_its_own(const ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *row)
{
    uint64_t job = 0;
    uint32_t epoch = 0;
    if (row->uid != one->job->uid || !ls_slurm_comment_read(row->comment, self->site.home_id, &job, &epoch)) {
        return false;
    }
    if (one->first == 0 && can_be_first(self, one, job)) {
        one->first = job;
        ls_slurm_write_ref(self, one);
    }
    return one->first > 0 && job == one->first && (job != one->id || epoch <= one->epoch);
}

/* Finds a job whose sbatch answer was lost by the comment, which names it. Tasks of an array carry
 * the name of their first job. */
static void find_by_comment(const ls_slurm_engine *self, ls_slurm_entry *one, const ls_slurm_row *rows,
                            size_t count)
{
    for (size_t i = 0; i < count && !one->ref[0]; i++) {
        uint64_t job;
        uint32_t epoch;
        if (!strchr(rows[i].ref, '_') && rows[i].uid == one->job->uid &&
            ls_slurm_comment_read(rows[i].comment, self->site.home_id, &job, &epoch) && job == one->id &&
            epoch == one->epoch) {
            snprintf(one->ref, sizeof one->ref, "%s", rows[i].ref);
        }
    }
}

static int compare_rows(const void *a, const void *b)
{
    return strcmp(((const ls_slurm_row *)a)->ref, ((const ls_slurm_row *)b)->ref);
}

static void take_rows(ls_slurm_engine *self, ls_slurm_row *rows, size_t count)
{
    qsort(rows, count, sizeof *rows, compare_rows);
    for (ls_slurm_entry *at = self->entries, *next; at; at = next) {
        next = at->next;
        if (at->phase != PHASE_WAITS && at->phase != PHASE_RUNS) {
            continue;
        }
        if (!at->ref[0] && !ls_slurm_read_ref(self, at)) {
            find_by_comment(self, at, rows, count);
        }
        const ls_slurm_row key = {.ref = at->ref};
        const ls_slurm_row *row = bsearch(&key, rows, count, sizeof *rows, compare_rows);
        if (row && ls_slurm_is_its_own(self, at, row)) {
            take_row(self, at, row);
        } else {
            take_absence(self, at);
        }
    }
}

/* Logs once when the silence begins and once when it is over. */
static void note_silence(ls_slurm_engine *self, bool is_silent, const char *text)
{
    if (is_silent != self->is_silent) {
        if (is_silent) {
            ls_log_warn("Slurm does not respond: %.200s", text);
        } else {
            ls_log_info("Slurm responds again");
        }
        self->is_silent = is_silent;
    }
}

static void squeue_done(void *context, const ls_program_result *result)
{
    ls_slurm_engine *self = context;
    ls_arena arena = {0};
    ls_slurm_row *rows = NULL;
    size_t count = 0;
    self->is_looking = false;
    const bool worked = !result->timed_out && result->exit_code == 0;
    note_silence(self, !worked, result->error);
    if (worked && ls_slurm_rows_read(&arena, result->output, &rows, &count) == LS_OK) {
        take_rows(self, rows, count);
    } else if (worked) {
        ls_log_warn("%s", ls_error_text());
    }
    ls_arena_release(&arena);
    ls_slurm_look_in(self, worked ? self->poll_s : LS_SLURM_AGAIN_S);
}

static void sinfo_done(void *context, const ls_program_result *result)
{
    ls_slurm_engine *self = context;
    ls_arena arena = {0};
    ls_slurm_cluster cluster;
    if (!result->timed_out && result->exit_code == 0 &&
        ls_slurm_cluster_read(&arena, result->output, &cluster) == LS_OK) {
        for (size_t i = 0; i < cluster.node_count; i++) {
            const ls_engine_report report = {
                .kind = LS_ENGINE_NODE, .text = cluster.nodes[i].name, .is_up = cluster.nodes[i].is_up};
            self->hear(self->context, &report);
        }
    }
    ls_arena_release(&arena);
}

const char *const ls_slurm_sinfo_argv[] = {"sinfo", "--noheader", "--Node", "--format=" LS_SLURM_SINFO_FORMAT,
                                           NULL};

static bool has_any_job(const ls_slurm_engine *self)
{
    for (const ls_slurm_entry *at = self->entries; at; at = at->next) {
        if (at->phase == PHASE_WAITS || at->phase == PHASE_RUNS) {
            return true;
        }
    }
    return false;
}

static void look_due(void *context)
{
    static const char *const squeue_argv[] = {"env",
                                              "SLURM_TIME_FORMAT=%s",
                                              "squeue",
                                              "--noheader",
                                              "--array",
                                              "--states=all",
                                              "--Format=" LS_SLURM_SQUEUE_FORMAT,
                                              NULL};
    ls_slurm_engine *self = context;
    self->look_timer = 0;
    const double now_s = (double)ls_env_now_ns(self->env) / 1e9;
    if (now_s - self->nodes_seen_s >= LS_SLURM_NODES_S) {
        self->nodes_seen_s = now_s;
        if (ls_program_start(self->env,
                             &(ls_program){.argv = ls_slurm_sinfo_argv, .timeout_s = LS_SLURM_ANSWER_S},
                             sinfo_done, self) != LS_OK) {
            ls_log_warn("%s", ls_error_text());
        }
    }
    if (self->is_looking) {
        return; /* which sets the timer */
    }
    if (!has_any_job(self)) {
        ls_slurm_look_in(self, LS_SLURM_NODES_S);
        return;
    }
    self->is_looking =
        ls_program_start(self->env, &(ls_program){.argv = squeue_argv, .timeout_s = LS_SLURM_ANSWER_S},
                         squeue_done, self) == LS_OK;
    if (!self->is_looking) {
        ls_log_warn("%s", ls_error_text());
        ls_slurm_look_in(self, LS_SLURM_AGAIN_S);
    }
}

/* Looks in this many seconds, or earlier if that was ordered before. */
void ls_slurm_look_in(ls_slurm_engine *self, double seconds)
{
    const uint64_t due_ns = ls_env_now_ns(self->env) + (uint64_t)(seconds * 1e9);
    if (self->look_timer && self->look_due_ns <= due_ns) {
        return;
    }
    ls_env_timer_cancel(self->env, self->look_timer);
    self->look_due_ns = due_ns;
    self->look_timer = ls_env_timer_set(self->env, (uint64_t)(seconds * 1e9), look_due, self);
}

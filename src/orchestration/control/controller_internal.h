// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the controller: its state, and how its parts work together.
 *
 *   controller.c      life cycle, and the turn
 *   transitions.c     what happens to jobs: the policy's actions and the engine's reports
 *   job_queue.c       jobs and accounts as the policy sees them
 *   job_submit.c      new jobs
 *   job_change.c      other terms for waiting jobs
 *   upkeep.c          pauses, drained nodes, maintenance
 *   accounts.c        who is charged, and who may charge whom
 *   verbs.c           all calls: the table of verbs, and those that change something
 *   job_answers.c, why_answers.c, queue_answers.c   calls that only look (answers.h)
 *   places.c          nodes as the policy sees them
 *   foresight.c       predictions about jobs, and how they turned out
 *   sweeps.c          sweeps: which of their jobs train on (asha.h), and which stop
 *   sweep_answers.c   who has won
 *   alerts.c          what a person is told at once
 *   usage.c           device-hours: allocated, idle, waiting, lost
 *   money.c           caps of jobs and budgets of accounts: who is stopped, and who may continue
 */
#ifndef LS_ORCHESTRATION_CONTROL_CONTROLLER_INTERNAL_H
#define LS_ORCHESTRATION_CONTROL_CONTROLLER_INTERNAL_H

#include "orchestration/control/asha.h"
#include "orchestration/control/controller.h"
#include "orchestration/policy/policy.h"

/*
 * Set in the job number under which the policy holds devices that are withheld (ls_queue_withhold).
 */
#define LS_WITHHELD_BIT (UINT64_C(1) << 62)

enum { LS_ACCOUNTS_MAX = 1024, LS_CONTROLLER_REPLIES_MAX = 1 << 16 };

/* A job, and what is kept about it in memory only. */
typedef struct ls_entry {
    ls_job *job;
    bool is_new, is_changed; /* created, or changed, in this turn */
    /* the policy knows it; otherwise a waiting job is set aside (ls_queue_set_aside) */
    bool in_policy;
    bool withholds;         /* its devices are held under another number (ls_queue_withhold) */
    uint64_t request_bytes; /* size of the request */
    double idle_since_s;    /* since when its devices have been idle; 0: they are busy */
    bool idle_told;
    double busy_known_s; /* activity is booked up to here */
    double step_at_s;    /* when its last step was seen; 0: none in this start */
    double say_again_s;  /* the policy is not asked for its start before this time */
    double start_by_s;   /* STARTING: counts as lost after this time */
    /* how busy its devices were, for an alert: device-seconds since busy_from_s */
    double busy_from_s, busy_at_s, busy_sum;
    /* why it waits, from an engine that decides; or why it is set aside */
    char *stage, *stage_text;
    double starts_s;
    ls_job_share *shrunk; /* RESIZING to fewer ranks: the devices it keeps */
    uint32_t shrunk_count;
} ls_entry;

typedef struct ls_pending_reply {
    ls_controller_reply reply; /* NULL: the caller has gone */
    void *context;
    int status;
    json_t *answer;
    ls_verb verb;
    uint64_t creates; /* the job whose acceptance it reports; 0: none */
} ls_pending_reply;

typedef struct ls_account_entry {
    ls_account account;
    bool is_changed, is_set; /* is_set: an administrator gave it a weight or a quota */
    bool is_over;            /* its budget of this month is used up (money.c) */
} ls_account_entry;

/* A part of a node, with at most LS_NODE_DEVICES_MAX devices. */
typedef struct ls_job_place {
    uint32_t node, first, devices; /* first: its first device, counted within the node */
} ls_job_place;

/* The jobs that one `lockstep sweep` made; their numbers follow one another. Kept as a row of its
 * own, which outlives their records in memory. */
typedef struct ls_sweep {
    uint64_t first; /* its name is "sweep-FIRST" */
    uint32_t count;
    uint32_t uid;
    char title[LS_JOB_NAME_BYTES_MAX + 1];
    ls_asha asha;
    bool uses_loss; /* as metric; otherwise val_loss */
    uint32_t failures_max, failed_alike;
    json_t *failure; /* how the last failed_alike jobs failed; null: they did not */
    json_t *text;    /* why it ended early; null: it did not */
    ls_trial *trials;
    /* of each trial: what it tries, ["train.seed=1"], and the last decision about it, in words */
    json_t *sets, *whys;
    bool has_ended, is_changed;
} ls_sweep;

/* The newest ones, in a ring. */
typedef struct ls_alerts {
    ls_alert *items;     /* NULL: there was none yet */
    uint64_t next, told; /* how many there were, and how many have left with a turn */
} ls_alerts;

struct ls_controller {
    ls_controller_settings settings;
    ls_alerts alerts;
    ls_engine *engine;
    bool decides; /* the engine has a queue of its own (Slurm): there is no policy here */
    ls_controller_calls calls;
    ls_policy *policy;
    const ls_engine_node *nodes;
    uint32_t node_count, device_count;
    bool *node_is_up;
    /* parts of all nodes, in order; what the policy and ls_job_share call a node */
    ls_job_place *places;
    uint32_t place_count;
    bool is_split; /* some node has several places */

    ls_entry **entries; /* by number */
    uint32_t entry_count, entry_capacity, ended_count;
    uint64_t next_job;
    uint64_t start_asked;        /* the last job for whose start the policy was asked */
    ls_account_entry **accounts; /* the index is the policy's */
    uint32_t account_count;
    double time_s;
    double ahead_s;      /* what the wall clock shows now is time_s + ahead_s */
    double dearest_rate; /* of the kinds of nodes here (ls_money_rate) */
    /* when a cap, a budget or an alert is due, as of the last turn; INFINITY: never */
    double alarm_s;
    ls_sweep **sweeps; /* by number */
    uint32_t sweep_count;
    bool sweeps_are_due; /* a job of a sweep has changed its state */
    json_t *sweep_rows;  /* of this turn */
    json_t *upkeep;      /* pauses, drained nodes, maintenance (upkeep.c) */
    bool upkeep_is_changed;
    char *paused; /* why changes are refused; NULL: they are not */
    bool is_going_down, cancels_all;

    /* The turn. */
    bool has_work, in_turn;
    ls_arena arena; /* texts of transitions and orders of this turn */
    ls_entry **touched;
    uint32_t touched_count, touched_capacity;
    ls_job **created, **changed;
    ls_transition *transitions;
    uint32_t transition_count, transition_capacity;
    const ls_account **account_rows;
    ls_engine_order *orders;
    uint32_t order_count, order_capacity;
    ls_pending_reply *replies;
    uint32_t reply_count, reply_capacity;
};

/* ---- controller.c ---- */

uint64_t ls_controller_ms(double time_s);
ls_entry *ls_controller_find(const ls_controller *c, uint64_t id);
ls_entry *ls_controller_add(ls_controller *c, ls_job *job);
/* Marks the job's row as to be written. */
void ls_controller_touch(ls_controller *c, ls_entry *entry);
/* Changes the state: the row and a line of the journal are written. text: also becomes the job's
 * last word; NULL: none. */
void ls_controller_move(ls_controller *c, ls_entry *entry, ls_job_state to, ls_job_cause cause,
                        const char *text);
/* Writes a line of the journal about something that changed no state. The job keeps its text. */
void ls_controller_note(ls_controller *c, ls_entry *entry, ls_job_cause cause, const char *text);
/* A line of the journal about the queue as a whole. */
void ls_controller_announce(ls_controller *c, const char *text);
void ls_controller_order(ls_controller *c, ls_engine_order_kind kind, ls_entry *entry);

/* How far a turn has come, so that it can be undone when what follows is refused as a whole. */
typedef struct ls_controller_mark {
    uint32_t entries, touched, transitions, orders;
} ls_controller_mark;
ls_controller_mark ls_controller_mark_now(const ls_controller *c);
/* Undoes what came after the mark; its jobs were removed by ls_controller_remove_newest before. */
void ls_controller_back_to(ls_controller *c, const ls_controller_mark *mark);
/* Removes the newest job, which no caller knows of yet. */
void ls_controller_remove_newest(ls_controller *c);

/* ---- places.c ---- */

void ls_places_make(ls_controller *c);
/* Everything but the kind. */
ls_node_spec ls_place_spec(const ls_controller *c, uint32_t index);
/*
 * Moves devices to the places that have them now: when a machine's places have changed, the bits of
 * a share may go beyond its place and mean devices of the places after it. A job with devices that
 * no longer exist is left alone.
 */
void ls_places_settle(const ls_controller *c, ls_job *job);
/* The devices of a job that exist, by place. all_out: whether all of them do. Returns the number of
 * shares, which the caller frees. */
uint32_t ls_places_there(const ls_controller *c, const ls_job *job, ls_job_share **shares_out, bool *all_out);
/* Turns what a job asks of nodes into what it asks of places. Errors: LS_ERR_INVALID when that is
 * not possible. */
LS_MUST_CHECK ls_status ls_places_adapt(const ls_controller *c, ls_policy_job *job);

/* ---- queue.c ---- */

LS_MUST_CHECK ls_status ls_queue_create(ls_controller *c);
/* The account of that name; it is created when there is none and accounts are not strict. Errors:
 * LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_queue_account(ls_controller *c, const char *name, ls_account_entry **account_out);
/* Tells the policy what an account may use, and with_usage also what it has used. */
void ls_queue_set_account(ls_controller *c, const ls_account_entry *account, bool with_usage);
/* Adds the job to the policy, waiting or running as its state says; sets it aside when it waits for
 * a job that is set aside. Errors: LS_ERR_INVALID when it can never run. */
LS_MUST_CHECK ls_status ls_queue_add(ls_controller *c, ls_entry *entry);
/* An accepted job cannot run on the machines there are now: it keeps its place in the queue, and
 * the policy does not know of it until ls_queue_try_again succeeds. */
void ls_queue_set_aside(ls_controller *c, ls_entry *entry, const char *stage, const char *text);
/* Tries all jobs that are set aside with the machines there are now. Ends those whose dependency
 * has failed. */
void ls_queue_try_again(ls_controller *c);
/* For a running job that the policy cannot take because some of its devices no longer exist: the
 * devices that remain stay taken, under a number of their own, until ls_queue_give_back. */
void ls_queue_withhold(ls_controller *c, ls_entry *entry);
void ls_queue_give_back(ls_controller *c, ls_entry *entry);
/* The job has left its devices and waits again. */
void ls_queue_again(ls_controller *c, ls_entry *entry);
/* The account of the job; NULL: there is none of that name. */
ls_account_entry *ls_queue_account_of(const ls_controller *c, const ls_job *job);
/* The policy's number of its account, which must exist. */
uint32_t ls_queue_account_index(const ls_controller *c, const ls_job *job);
/* What is left of its time limit; 0: it has none. */
uint64_t ls_queue_limit_left_ms(const ls_job *job);
void ls_queue_remove(ls_controller *c, ls_entry *entry, bool succeeded);
/* The dependencies of `job` that have not ended. doomed_out: one that failed, so that the job can
 * never start; 0: none. Returns their number. */
uint32_t ls_queue_after(const ls_controller *c, const ls_job *job, uint64_t *after_out, uint64_t *doomed_out);
/* Of any job, also one that is no longer in memory; LS_JOB_STATES: there is none. */
ls_job_state ls_queue_state_of(const ls_controller *c, uint64_t id);

/* ---- transitions.c ---- */

void ls_transitions_pass(ls_controller *c);
void ls_transitions_timers(ls_controller *c);
void ls_transitions_report(ls_controller *c, const ls_engine_report *report);
/* Ends a waiting job. */
void ls_transitions_end(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                        const char *text);
/* Asks a job with devices to give them up; state: PREEMPTING or STOPPING. */
void ls_transitions_stop(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                         const char *text);
/* Hands a waiting job to an engine that decides, unless the job is held or waits for other jobs. */
void ls_transitions_hand_over(ls_controller *c, ls_entry *entry);
/* Holds a job that has not ended; a running one must be able to continue later. */
void ls_transitions_hold(ls_controller *c, ls_entry *entry, ls_job_hold hold, const char *text);
/* Lets a held job run again. */
void ls_transitions_release(ls_controller *c, ls_entry *entry);
/* Does so for all jobs that were waiting for other jobs until now. */
void ls_transitions_hand_over_all(ls_controller *c);

/* ---- verbs.c ---- */

/* 2xx with an object, or the status of an error with {"error": TEXT}. */
typedef struct ls_answer {
    int status;
    json_t *json;
    uint64_t creates; /* the job that was accepted; 0: none */
} ls_answer;

ls_answer ls_answer_fail(int status, const char *format, ...) LS_PRINTF(2, 3);
/* With the error text of this thread. */
ls_answer ls_answer_error(ls_status status);
ls_answer ls_verbs_answer(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments);

/* ---- submit.c ---- */

ls_answer ls_submit_job(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_submit_sweep(ls_controller *c, const ls_caller *caller, const json_t *arguments);
/* The bytes of a request in memory and in the store; NULL: 0. */
uint64_t ls_submit_bytes(const json_t *request);
/* Whether there are the jobs that it waits for; any user's may be named, as with Slurm: that a job
 * has ended is visible to everyone. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_submit_check_after(ls_controller *c, const ls_job *job);

/* ---- sweeps.c ---- */

/* The name of the metric: "val_loss" or "loss". */
const char *ls_sweep_metric(const ls_sweep *sweep);
/* The sweep that a job belongs to; NULL: none. */
ls_sweep *ls_sweeps_find(const ls_controller *c, uint64_t job);
/* Whether a new job can be one of a sweep whose first job is `first`. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_sweeps_check(const ls_job *first, const ls_job *job);
/* The last `count` jobs, which were just entered, become a sweep. */
void ls_sweeps_begin(ls_controller *c, const ls_caller *caller, uint32_t count);
/* Decides which of their jobs go on, as far as that can be said now. To be called in each turn. */
void ls_sweeps_decide(ls_controller *c);
/* The rows that have changed, {"first", "count", "state"}; NULL: none. Kept until
 * ls_sweeps_written. */
const json_t *ls_sweeps_rows(ls_controller *c);
void ls_sweeps_written(ls_controller *c);
/* The record of a job is removed from the store. With its last job, a sweep that has ended goes. */
void ls_sweeps_let_go(ls_controller *c, uint64_t job);
void ls_sweeps_destroy(ls_controller *c);

/* ---- sweep_answers.c ---- */

ls_answer ls_answers_sweeps(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_answers_sweep(ls_controller *c, const ls_job *job);

/* ---- job_change.c ---- */

ls_answer ls_change_job(ls_controller *c, const ls_caller *caller, ls_entry *entry, const json_t *arguments);

/* ---- upkeep.c ---- */

/* Nothing is paused, drained or maintained. A new object. */
json_t *ls_upkeep_new(void);
/* As people see it; a new object. */
json_t *ls_upkeep_shown(const ls_controller *c);
bool ls_upkeep_is_paused(const ls_controller *c);
bool ls_upkeep_is_drained(const ls_controller *c, const char *node);
/* The maintenance that begins at this time, as an object of c->upkeep; NULL: none. */
const json_t *ls_upkeep_window(const ls_controller *c, uint64_t begin_ms);
/* Tells the policy which nodes may be used. To be called when a node goes or returns, too. */
void ls_upkeep_apply(ls_controller *c);
ls_answer ls_upkeep_pause(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_upkeep_resume(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_upkeep_drain(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_upkeep_undrain(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_upkeep_reserve(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_upkeep_unreserve(ls_controller *c, const ls_caller *caller, const json_t *arguments);

/* ---- accounts.c ---- */

bool ls_caller_is_admin(const ls_caller *caller);
/*
 * Whether the caller may charge the job to the account it names (none: the caller's own), at the
 * job's priority. Creates the account when there is none and that is allowed. refusal_out: why not.
 */
bool ls_accounts_admit(ls_controller *c, const ls_caller *caller, ls_job *job, ls_account_entry **account_out,
                       ls_answer *refusal_out);
bool ls_accounts_allow_priority(const ls_controller *c, const ls_caller *caller, const char *name,
                                ls_priority priority, ls_answer *refusal_out);
/*
 * Removes the accounts beyond the first `count`: they were created for jobs that were then refused.
 */
void ls_accounts_forget_after(ls_controller *c, uint32_t count);
ls_answer ls_accounts_change(ls_controller *c, const ls_caller *caller, const json_t *arguments);
/* To whom the account is open, without names: "anyone", "you", or "others". */
const char *ls_accounts_open_to(const ls_controller *c, const ls_caller *caller, const ls_account *account);
/* The members as a list; null: open to everyone. */
json_t *ls_accounts_users_json(const ls_account *account);

/* ---- job_answers.c, why_answers.c, queue_answers.c ---- */

ls_answer ls_answers_list(ls_controller *c, const ls_caller *caller, const json_t *arguments);
/* entry: NULL for a job that is no longer in memory. */
ls_answer ls_answers_show(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry);
ls_answer ls_answers_why(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry);
/* These take no arguments; they look like the other verbs for the table of verbs.c. */
ls_answer ls_answers_nodes(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_answers_accounts(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_answers_usage(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_answers_status(ls_controller *c, const ls_caller *caller, const json_t *arguments);

/* ---- foresight.c ---- */

/* Predicts what can be predicted of a new job. */
void ls_foresight_plan(const ls_controller *c, ls_job *job);

/* The speed at `ranks` ranks in thousandths of the speed at spec.min_ranks; 0: not known. */
uint32_t ls_foresight_speed(const ls_job *job, uint32_t ranks);
/* Its number of ranks has changed. */
void ls_foresight_resized(const ls_controller *c, ls_job *job, uint32_t before, uint32_t after);
/* The engine reports how far it is and how much time is left. */
void ls_foresight_progress(ls_controller *c, ls_entry *entry, const ls_engine_report *report);
/* Tells the policy what is known of a job that is new there. */
void ls_foresight_tell(ls_controller *c, const ls_entry *entry);
/* It has been given devices; it has ended. */
void ls_foresight_began(ls_controller *c, ls_entry *entry);
void ls_foresight_ended(ls_entry *entry);
/* After a pass: records the predicted starts of waiting jobs. */
void ls_foresight_starts(ls_controller *c);
/* When it will give its devices back, according to its steps or its time limit; 0: not known. */
double ls_foresight_end_s(const ls_job *job);
/* What that is based on: "steps", "plan" or "limit"; NULL: not known. */
const char *ls_foresight_source(const ls_job *job);
/* Adds ends, ends_from, step and steps to an item of a list. */
void ls_foresight_add(const ls_job *job, json_t *item);
/* ls_foresight_json: the predictions about a job, when they were made, and what happened.
 * ls_foresight_summary: how good predictions have been over all jobs. New objects. */
json_t *ls_foresight_json(const ls_job *job);
json_t *ls_foresight_summary(const ls_controller *c);

/* ---- usage.c ---- */

typedef struct ls_usage {
    uint64_t allocated_device_ms, idle_device_ms, waiting_device_ms, lost_device_ms;
    uint64_t energy_mj;
    /* what folders of runs hold, as of the end of their last starts; what was sent to mirrors */
    uint64_t stored_bytes, sent_bytes;
    uint64_t priced_device_ms; /* see ls_account */
} ls_usage;

/* The usage of a job up to now, the current state included. */
ls_usage ls_usage_of_job(const ls_controller *c, const ls_entry *entry);
/* Books the usage of a state when it ends, to the job and to its account. is_lost: what was
 * computed since the last checkpoint is gone. */
void ls_usage_settle_waiting(ls_controller *c, ls_entry *entry);
void ls_usage_settle_devices(ls_controller *c, ls_entry *entry, bool is_lost);
/* LS_ENGINE_ACTIVITY: how busy its devices were since the last report, and when a person typed. */
void ls_usage_activity(ls_controller *c, ls_entry *entry, const ls_engine_report *report);
/* The devices of a job, and since when they are not booked, by the clock of the queue; false: it
 * has none. */
bool ls_usage_unbooked(const ls_controller *c, const ls_job *job, uint32_t *devices_out, double *from_s_out);
/* The folder of the job's run was measured: it counts for this job, and for no earlier one of its
 * user that trained in it. */
void ls_usage_stored(ls_controller *c, const ls_entry *entry);
/* Books energy that the engine reports of a job; entry NULL: of no job. */
void ls_usage_energy(ls_controller *c, ls_entry *entry, uint64_t energy_mj);
/* Adds one usage to a sum. */
void ls_usage_add(ls_usage *sum, const ls_usage *more);
/* The usage of an account up to now, its running jobs included; of what is stored and sent, that of
 * the jobs in memory. */
ls_usage ls_usage_of_account(const ls_controller *c, const ls_account *account);

/* ---- money.c ---- */

/* What a month has cost an account. Amounts are USD. */
typedef struct ls_money_month {
    double spent, forecast; /* up to now; expected at the end of the month */
    double rate_ph;         /* of an hour, with the devices it has now */
} ls_money_month;

/* Whether prices are known, in USD: caps and budgets need them. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_money_is_known(const ls_controller *c, const char *what);
/* The price of a device of that kind for an hour. */
double ls_money_of_kind(const ls_controller *c, const char *kind);
/* Looks at the prices of the settings, which are new, and at the nodes. */
void ls_money_configure(ls_controller *c);
/* The job starts, with the prices of now; `node`, if known, is one of its nodes. */
void ls_money_start(const ls_controller *c, ls_job *job, const char *node);
/* What its devices cost as a multiple of the price of a device; before its first start, those of
 * the dearest kind here. */
double ls_money_rate(const ls_controller *c, const ls_job *job);
double ls_money_of_job(const ls_controller *c, const ls_entry *entry);
ls_money_month ls_money_of_month(const ls_controller *c, const ls_account *account);
/* Adds cost, max_cost and cost_ahead to an item of a list. */
void ls_money_add(const ls_controller *c, const ls_entry *entry, json_t *item);
/* {"cost", "low", "high", "run_s"}: the whole job before its first start; null: not known. */
json_t *ls_money_estimate(const ls_controller *c, const ls_job *job);
/* Books devices that a job of an account had from `from_s` to now to the month they were used in.
 */
void ls_money_book(ls_controller *c, ls_account *account, const ls_job *job, uint32_t devices, double from_s);
/* Stops and holds jobs that have reached a cap or budget, and lets those run that may again. */
void ls_money_watch(ls_controller *c);
/* When ls_money_watch has something to do at the earliest; INFINITY: never, as things are. */
double ls_money_next_s(const ls_controller *c);
/* Whether a job that ended by itself, with exit code 75 or at the limit of its runner, has reached
 * its cap; it is then marked as held for that. */
bool ls_money_has_capped(ls_controller *c, ls_entry *entry, const ls_engine_report *report);
/* "stopped by its cap: 5.02 of 5.00 USD; raise it with ..."; in the arena of the turn. */
const char *ls_money_hold_text(ls_controller *c, const ls_entry *entry, ls_job_hold hold);

/* ---- alerts.c ---- */

/* Tells once per start of the job, or again when it has ceased to hold. */
void ls_alerts_of_job(ls_controller *c, ls_entry *entry, ls_alert_kind kind, const char *text);
void ls_alerts_cease(ls_controller *c, ls_entry *entry, ls_alert_kind kind);
/* account: "" for the queue as a whole. */
void ls_alerts_of_queue(ls_controller *c, ls_alert_kind kind, const char *account, const char *text);
/* The job has done a step; has had devices that were so busy since the last report. */
void ls_alerts_stepped(ls_controller *c, ls_entry *entry);
void ls_alerts_activity(ls_controller *c, ls_entry *entry, uint32_t busy_permille);
/* What holds without a report; and when to look at the earliest, INFINITY: never. */
void ls_alerts_watch(ls_controller *c);
double ls_alerts_next_s(const ls_controller *c);
/* Those that leave with this turn. */
void ls_alerts_of_turn(ls_controller *c, ls_turn *turn);
/* The newest about the job that is still in memory; NULL: none. */
const char *ls_alerts_last(const ls_controller *c, uint64_t job);
ls_answer ls_alerts_answer(ls_controller *c, const ls_caller *caller, const json_t *arguments);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the controller: its state, and how its parts meet.
 *
 *   controller.c     life, the turn
 *   transitions.c    what happens to jobs: the policy's actions and the engine's reports
 *   queue.c          jobs and accounts as the policy sees them
 *   submit.c         new jobs; accounts.c who is charged, and who may be
 *   verbs.c          what else is asked to be changed; answers.c what is asked to be shown
 *   places.c         nodes as the policy sees them
 *   foresight.c      what is said of jobs beforehand, and what came of it
 *   usage.c          device-hours: allocated, idle, waiting, lost
 */
#ifndef LS_ORCHESTRATION_CONTROL_CONTROLLER_INTERNAL_H
#define LS_ORCHESTRATION_CONTROL_CONTROLLER_INTERNAL_H

#include "orchestration/control/controller.h"
#include "orchestration/policy/policy.h"

/* Of the number under which the policy has devices that are withheld. */
#define LS_WITHHELD_BIT (UINT64_C(1) << 62)

enum { LS_ACCOUNTS_MAX = 1024, LS_CONTROLLER_REPLIES_MAX = 1 << 16 };

/* A job, and what is not written down about it. */
typedef struct ls_entry {
    ls_job *job;
    bool is_new, is_changed; /* in this turn */
    bool in_policy;          /* else, while it waits: set aside (ls_queue_set_aside) */
    bool withholds;          /* ls_queue_withhold */
    uint64_t request_bytes;  /* of what was submitted */
    double idle_since_s;     /* its devices do nothing since then; 0: they do something */
    bool idle_told;
    double busy_known_s; /* activity is accounted for up to here */
    double say_again_s;  /* its start is not asked for before */
    double start_by_s;   /* STARTING: lost behind this */
    char *stage,
        *stage_text; /* what an engine that decides says why it waits; of a job that is set aside: why */
    double starts_s;
    ls_job_share *shrunk; /* SHRINK: what it keeps */
    uint32_t shrunk_count;
} ls_entry;

typedef struct ls_pending_reply {
    ls_controller_reply reply; /* NULL: nobody waits any more */
    void *context;
    int status;
    json_t *answer;
    bool changes;     /* it says that something was changed */
    uint64_t creates; /* the job that it says was accepted, 0: none */
} ls_pending_reply;

typedef struct ls_account_entry {
    ls_account account;
    bool is_changed, is_set; /* is_set: somebody gave it a weight or a quota */
} ls_account_entry;

/* A part of a node with at most LS_NODE_DEVICES_MAX of its devices. */
typedef struct ls_place {
    uint32_t node, first, devices; /* first: device of the node */
} ls_place;

struct ls_controller {
    ls_controller_settings settings;
    ls_engine *engine;
    bool decides; /* the engine has a queue of its own: there is no policy */
    ls_controller_calls calls;
    ls_policy *policy;
    const ls_engine_node *nodes;
    uint32_t node_count, device_count;
    bool *node_is_up;
    ls_place *places; /* of nodes, in their order: nodes of the policy, and of ls_job_share */
    uint32_t place_count;
    bool is_split; /* some node is several places */

    ls_entry **entries; /* by number */
    uint32_t entry_count, entry_capacity, ended_count;
    uint64_t next_job;
    uint64_t start_asked;        /* the last job whose start the policy was asked for */
    ls_account_entry **accounts; /* the index is the policy's */
    uint32_t account_count;
    double time_s;
    char *paused; /* NULL: not */
    bool is_going_down, cancels_all;

    /* The turn. */
    bool has_work, in_turn;
    ls_arena arena; /* texts */
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
/* Its row is to be written. */
void ls_controller_touch(ls_controller *c, ls_entry *entry);
/* The row, and a line of the journal. text: NULL for none; also the job's last word. */
void ls_controller_move(ls_controller *c, ls_entry *entry, ls_job_state to, ls_job_cause cause,
                        const char *text);
void ls_controller_order(ls_controller *c, ls_engine_order_kind kind, ls_entry *entry);

/* How far a turn has got, to go back to when what follows is refused as a whole. */
typedef struct ls_controller_mark {
    uint32_t entries, touched, transitions, orders;
} ls_controller_mark;
ls_controller_mark ls_controller_mark_now(const ls_controller *c);
/* Jobs that came behind it have been removed by ls_controller_remove_newest. */
void ls_controller_back_to(ls_controller *c, const ls_controller_mark *mark);
/* The last one of the list, which nobody has heard of. */
void ls_controller_remove_newest(ls_controller *c);

/* ---- places.c ---- */

void ls_places_make(ls_controller *c);
/* All but its kind. */
ls_node_spec ls_place_spec(const ls_controller *c, uint32_t index);
/* A share whose bits go beyond its place, as when a machine's places were other ones, names devices of the places behind it: to them they go. Leaves alone what
 * has devices that are not there. */
void ls_places_settle(const ls_controller *c, ls_job *job);
/* Of the devices that a job has, those that are there, by place; all_out: all are. Returns how many shares; the caller frees them. */
uint32_t ls_places_there(const ls_controller *c, const ls_job *job, ls_job_share **shares_out, bool *all_out);
/* What a job says of nodes, in terms of places. Errors: LS_ERR_INVALID when that can't be. */
LS_MUST_CHECK ls_status ls_places_adapt(const ls_controller *c, ls_policy_job *job);

/* ---- queue.c ---- */

LS_MUST_CHECK ls_status ls_queue_create(ls_controller *c);
/* The account of that name, made when it is not there and accounts are not strict. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_queue_account(ls_controller *c, const char *name, ls_account_entry **account_out);
/* Tells the policy what an account may use; with_usage: and what it has used. */
void ls_queue_set_account(ls_controller *c, const ls_account_entry *account, bool with_usage);
/* Into the policy, waiting or running as its state says; set aside when it waits for one that is. Errors: LS_ERR_INVALID when it can never run. */
LS_MUST_CHECK ls_status ls_queue_add(ls_controller *c, ls_entry *entry);
/* It was accepted, and can't run on the machines there are now: it keeps its place, and the policy does not hear of it until ls_queue_try_again. */
void ls_queue_set_aside(ls_controller *c, ls_entry *entry, const char *stage, const char *text);
/* Those that are set aside, with what there is now. Whose dependency has failed is ended. */
void ls_queue_try_again(ls_controller *c);
/* A running job that the policy can't have, as some of its devices are no longer there: those that are stay its own, under a number of their own, until
 * ls_queue_give_back. */
void ls_queue_withhold(ls_controller *c, ls_entry *entry);
void ls_queue_give_back(ls_controller *c, ls_entry *entry);
/* It has left its devices and waits again. */
void ls_queue_again(ls_controller *c, ls_entry *entry);
void ls_queue_remove(ls_controller *c, ls_entry *entry, bool succeeded);
/* All that `job` waits for that has not ended. doomed_out: one of them failed, so that it can never start; 0: none. Returns their number. */
uint32_t ls_queue_after(ls_controller *c, const ls_job *job, uint64_t *after_out, uint64_t *doomed_out);

/* ---- transitions.c ---- */

void ls_transitions_pass(ls_controller *c);
void ls_transitions_timers(ls_controller *c);
void ls_transitions_report(ls_controller *c, const ls_engine_report *report);
/* Ends a job that waits. */
void ls_transitions_end(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                        const char *text);
/* Asks a job that has devices to leave them, for PREEMPTING or STOPPING. */
void ls_transitions_stop(ls_controller *c, ls_entry *entry, ls_job_state state, ls_job_cause cause,
                         const char *text);
/* Hands a waiting job to an engine that decides, unless it is held or waits for other jobs. */
void ls_transitions_hand_over(ls_controller *c, ls_entry *entry);
/* Those who waited for other jobs until now. */
void ls_transitions_hand_over_all(ls_controller *c);

/* ---- verbs.c and answers.c: status 2xx with an object, or an error's status with {"error"} ---- */

typedef struct ls_answer {
    int status;
    json_t *json;
    uint64_t creates;
} ls_answer;

ls_answer ls_answer_fail(int status, const char *format, ...) LS_PRINTF(2, 3);
/* From this thread's error text. */
ls_answer ls_answer_error(ls_status status);
ls_answer ls_verbs_answer(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments);

/* ---- submit.c ---- */

ls_answer ls_submit_job(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_submit_sweep(ls_controller *c, const ls_caller *caller, const json_t *arguments);
/* What a request takes in memory and store; NULL: 0. */
uint64_t ls_submit_bytes(const json_t *request);

/* ---- accounts.c ---- */

bool ls_caller_is_admin(const ls_caller *caller);
/* Whether the caller may have the job charged to the account that it names (none: his own), at its priority. The account is made when it is not there and
 * may be. refusal_out: why not. */
bool ls_accounts_admit(ls_controller *c, const ls_caller *caller, ls_job *job, ls_account_entry **account_out,
                       ls_answer *refusal_out);
bool ls_accounts_allow_priority(const ls_controller *c, const ls_caller *caller, const char *name,
                                ls_priority priority, ls_answer *refusal_out);
/* Those that were made for a job that was then refused. */
void ls_accounts_forget_behind(ls_controller *c, uint32_t count);
ls_answer ls_accounts_change(ls_controller *c, const ls_caller *caller, const json_t *arguments);
/* A list, or null for everybody. */
/* In a word, without names: "anyone", "you", or "others". */
const char *ls_accounts_open_to(const ls_controller *c, const ls_caller *caller, const ls_account *account);
json_t *ls_accounts_users_json(const ls_account *account);

/* ---- answers.c ---- */

ls_answer ls_answers_list(ls_controller *c, const ls_caller *caller, const json_t *arguments);
ls_answer ls_answers_show(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry);
ls_answer ls_answers_why(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry);
ls_answer ls_answers_nodes(ls_controller *c, const ls_caller *caller);
ls_answer ls_answers_accounts(ls_controller *c, const ls_caller *caller);
ls_answer ls_answers_usage(ls_controller *c);

/* ---- foresight.c ---- */

/* What can be said of a new job; its speed at so many ranks, per mille of that at spec.min_ranks, 0: not known. */
void ls_foresight_plan(const ls_controller *c, ls_job *job);
uint32_t ls_foresight_speed(const ls_job *job, uint32_t ranks);
/* It has other devices now than `before`. */
void ls_foresight_resized(const ls_controller *c, ls_job *job, uint32_t before, uint32_t after);
/* How far it is, and how long it goes on. */
void ls_foresight_progress(ls_controller *c, ls_entry *entry, const ls_engine_report *report);
/* Tells the policy what is known of it: when it is new there. */
void ls_foresight_tell(ls_controller *c, const ls_entry *entry);
/* It has been given devices; it has ended. */
void ls_foresight_began(ls_controller *c, ls_entry *entry);
void ls_foresight_ended(ls_entry *entry);
/* Behind a pass: keeps the starts of jobs that wait. */
void ls_foresight_starts(ls_controller *c);
/* When it gives its devices back, by its steps or its time limit; 0: not known. */
double ls_foresight_end_s(const ls_job *job);
/* Who says so: "steps", "plan", "limit"; NULL: nobody. */
const char *ls_foresight_source(const ls_job *job);
/* Adds ends, ends_from, step and steps to an item of a list. */
void ls_foresight_add(const ls_job *job, json_t *item);
/* What was said of it, when, and what happened; and of all jobs here, how right that was. New objects. */
json_t *ls_foresight_json(const ls_job *job);
json_t *ls_foresight_summary(const ls_controller *c);

/* ---- usage.c ---- */

typedef struct ls_usage {
    uint64_t allocated_device_ms, idle_device_ms, waiting_device_ms, lost_device_ms;
} ls_usage;

/* Of a job until now, with the state it is in. */
ls_usage ls_usage_of_job(const ls_controller *c, const ls_entry *entry);
/* Books what a state took, at its end: to the job and to its account. is_lost: what was computed since the last save is gone. */
void ls_usage_settle_waiting(ls_controller *c, ls_entry *entry);
void ls_usage_settle_devices(ls_controller *c, ls_entry *entry, bool is_lost);
/* How busy its devices were since the last report. */
void ls_usage_activity(ls_controller *c, ls_entry *entry, uint32_t busy_permille);
/* Of an account, with all that its jobs do now. */
ls_usage ls_usage_of_account(const ls_controller *c, const ls_account *account);

#endif

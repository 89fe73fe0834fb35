// SPDX-License-Identifier: Apache-2.0
/*
 * The trainer and its parts.
 *
 *   trainer.c             the loop; how a run that fails ends
 *   trainer_open.c        opens everything; closes it
 *   trainer_restore.c     loads the newest checkpoint
 *   trainer_workers.c     the ranks: start them, run steps, adopt them
 *   trainer_mirror.c      copies of checkpoints elsewhere, and a run brought back from them
 *   trainer_save.c        checkpoints: when, and how they ended
 *   trainer_control.c     what other processes ask for
 *   trainer_alerts.c      alerts: what a person is told at once
 *   trainer_preemption.c  preemption notices and other reasons to stop
 *   trainer_finish.c      the summary and the report
 *
 * All functions are called on the main thread, unless they say otherwise.
 */
#ifndef LS_EXECUTION_RUN_TRAINER_INTERNAL_H
#define LS_EXECUTION_RUN_TRAINER_INTERNAL_H

#include "env/rapl.h"
#include "execution/elastic/host/preemption_notice.h"
#include "execution/elastic/workers/workers.h"
#include "execution/executor/state.h"
#include "execution/generate/generate.h"
#include "execution/run/checkpoint_interval.h"
#include "execution/run/control_socket.h"
#include "execution/run/meter.h"
#include "execution/run/mirroring.h"
#include "execution/run/patience.h"
#include "execution/run/prediction.h"
#include "execution/run/saver.h"
#include "execution/run/trainer.h"
#include "execution/train/evaluate.h"
#include "execution/train/schedule.h"
#include "execution/train/session.h"
#include "execution/train/step.h"
#include "telemetry/record/alert.h"
#include "telemetry/record/goodput.h"
#include "telemetry/record/progress.h"
#include "telemetry/record/run_log.h"
#include "telemetry/record/summary.h"
#include "telemetry/record/time_log.h"

#include <pthread.h>
#include <stdatomic.h>

/* What the training loop knows. Set when a run is restored or adopted, then changed only by the
 * loop (trainer.c). */
typedef struct ls_trainer_loop {
    uint64_t step;         /* finished steps */
    uint64_t stop_step;    /* train until here */
    uint64_t begun_at;     /* finished steps when this process took over */
    uint64_t redone_until; /* a process that was lost had already finished the steps up to here */
    ls_schedule schedule;
    float loss;              /* of the newest step */
    double val_loss;         /* NaN: not evaluated */
    uint64_t evaluated_step; /* when val_loss was computed; UINT64_MAX: never */
    /* of the sources of a mixture at that step, the evaluator's; NULL: not a mixture, or evaluated
     * by an earlier process */
    const ls_evaluation_part *val_parts;
    ls_patience patience;    /* with the evaluations up to `step` */
    uint64_t tokens;         /* of all finished steps */
    uint64_t process_tokens; /* of the steps of this process */
    double step_s;           /* time of the steps of this process, added up */
    /* of these steps, as in ls_step_metrics, added up */
    uint64_t link_bytes, dense_bytes;
    double saved_s;
    double link_bytes_ps; /* the most of any step so far; 0: nothing was sent yet */
    double first_step_s;  /* from process start to the end of the first step; 0: not yet */
    double peak_flops;    /* measured speed of matrix products; 0: not measured yet */
    ls_step_fault fault;  /* of the step that ended the run */
} ls_trainer_loop;

/* What computes steps: this process, or a group of worker ranks. Opened by trainer_open.c and
 * trainer_workers.c; the values in `state` change with each step. */
typedef struct ls_trainer_backend {
    ls_workers *workers; /* the ranks; NULL: this process computes */
    ls_stepper *stepper; /* NULL with workers */
    ls_executor executor;
    ls_state state;        /* with workers, in their shared segment */
    uint64_t granted;      /* workers may run steps below this number without asking again */
    ls_local local;        /* the turns of a step */
    bool is_mid_step;      /* without workers: a step failed after some of its turns */
    bool has_told_slow;    /* that a host is slower than others (local steps) */
    bool redoes;           /* workers: steps after the newest checkpoint are made again */
    uint64_t memory_bytes; /* the most seen so far (ls_trainer_memory), with workers */
    ls_bit_flip flip;      /* for tests */
} ls_trainer_backend;

/* Checkpoints: what is saved, what is being saved, how often to save. Changed by trainer_save.c;
 * saved_step and restore_events are set once by trainer_restore.c. */
typedef struct ls_trainer_saving {
    ls_saver *saver;     /* NULL: nothing has been saved in the background yet */
    ls_state snapshot;   /* what the saver writes */
    ls_save_job pending; /* waits for the step that fills the snapshot */
    bool is_pending;
    uint64_t saved_step;   /* of the newest checkpoint; UINT64_MAX: none */
    uint64_t weights_step; /* of the newest copy of the weights alone; 0: none */
    double write_s;        /* time to write the newest checkpoint; 0: none was written */
    uint32_t failures;     /* in a row */
    /* Time that steps waited for the checkpoints of this process, including the copy made by the
     * update, and the number of those checkpoints. */
    double stall_s;
    uint32_t stall_count;
    ls_checkpoint_interval interval; /* checkpoint.every_steps: auto */
    uint64_t interval_from;          /* finished steps from which the interval counts */
    double reported_interval_s;
    bool has_reported_interval; /* when the first checkpoint is due has been reported */
    /* What was repaired or skipped when the run was restored: kept until there is a log. */
    json_t *restore_events;
    ls_mirroring *mirroring; /* NULL: there is no checkpoint.mirror */
} ls_trainer_saving;

/* What the thread of the control socket reads and sets while the trainer's runs. */
typedef struct ls_trainer_shared {
    _Atomic uint64_t step;
    _Atomic bool is_training; /* the first step has been granted */
    _Atomic bool save_asked, stop_asked;
    pthread_mutex_t lock;
    json_t *last_recovery; /* under lock; NULL: none */
} ls_trainer_shared;

/* Requests from outside: preemption notices, signals, the control socket. Changed by
 * trainer_preemption.c and trainer_control.c. */
typedef struct ls_trainer_control {
    ls_preemption_watch *notices; /* NULL: no source of notices is configured */
    ls_control_socket *socket;    /* NULL: it could not be opened */
    ls_trainer_shared shared;
    ls_meter meter; /* what the run costs, and job.max_cost */
    /* NULL: the machine counts no energy, or the run uses a GPU. The run is charged for energy_part
     * of it: its part of the machine's devices, in the queue (LOCKSTEP_ENERGY_PART), or all. */
    ls_rapl *rapl;
    double energy_part, energy_read_s;
    bool has_told_cap;
    bool leaving; /* notice was given: stop, save, exit with 75 */
    bool has_reported_signal;
    bool has_warned_of_grace; /* that a checkpoint takes longer than the notice period */
} ls_trainer_control;

enum { LS_TRAINER_ALERTS_MAX = 32 }; /* of one start that the queue hears of */

/* Changed by trainer_alerts.c. */
typedef struct ls_trainer_alerts {
    ls_alert_watch watch; /* without rules until training begins */
    const char *file;     /* for the queue; NULL: none */
    ls_text lines;        /* its content */
    uint32_t count;
    double disk_at_s; /* when free space was last looked at */
} ls_trainer_alerts;

/* The records of the run: what happened, and where its time goes. */
typedef struct ls_trainer_books {
    ls_run_log *log;
    ls_progress *progress; /* what a person sees */
    ls_goodput goodput;    /* the time of this process */
    ls_time_log *time_log; /* the time of all starts of the run */
    /* Reported by the workers for the running step: recovery, which is booked at once (from a loss
     * being noticed to the step continuing), and waiting for a hung rank until it was killed. */
    double recovery_s, hung_s;
    /* The row of the newest step, if it has not been written: it waits for the evaluation. */
    ls_step_metrics row;
    bool has_row;
} ls_trainer_books;

typedef struct ls_trainer {
    const ls_train_options *options;
    ls_arena arena;
    ls_run_dir dir;
    ls_session session;
    ls_prediction prediction; /* printed before the first step */
    const char *mesh_choice;  /* why the mesh is what it is; NULL: the run file says it */
    ls_evaluator *evaluator;  /* NULL without validation data */
    ls_generator *generator;  /* NULL without samples */
    json_t *finished;         /* the result of a run that had reached its end; else NULL */
    bool is_second;           /* an outer gradient was not finite, and its round is made again */

    ls_trainer_loop loop;
    ls_trainer_backend backend;
    ls_trainer_saving saving;
    ls_trainer_control control;
    ls_trainer_alerts alerts;
    ls_trainer_books books;
} ls_trainer;

/* ---- opening and ending ---- */

/* Opens everything and restores or begins the run. */
ls_status ls_trainer_open(ls_trainer *trainer, const ls_train_options *options);
void ls_trainer_close(ls_trainer *trainer);
/* Remembers the digest of the base that a checkpoint of an adapter has. */
void ls_trainer_take_base_digest(ls_trainer *trainer, const ls_checkpoint *checkpoint);
/* Loads the newest good checkpoint; LS_OK with loop.step 0 if there is none. */
ls_status ls_trainer_restore(ls_trainer *trainer);
/* ls_workers_options.restore; context: the trainer. Without a checkpoint, the state before the
 * first step. */
ls_status ls_trainer_return(void *context, uint64_t *step_out);
/* Sends what ls_trainer_restore kept as events, once there is a log. */
void ls_trainer_report_restored(ls_trainer_saving *saving);
/* "finished", "stopped_early" or "stopped": how a run that ends now without an error ends. */
const char *ls_trainer_ended_as(const ls_trainer *trainer);
/* The summary as JSON. Saves it in the run directory together with the report. */
ls_status ls_trainer_finish(ls_trainer *trainer, ls_status status, json_t **result_out);
/* Adds the newest checkpoint to the registry, after the summary is saved. What goes wrong is a
 * warning and an event. */
void ls_trainer_register(ls_trainer *trainer);

/* {bubble, sent_bytes, rank_memory_bytes} of the plan; and with the mesh, as measured
 * (telemetry/record/summary.h). NULL with a single process or several hosts. The caller drops
 * them. */
json_t *ls_trainer_predicted_mesh(const ls_trainer *trainer);
json_t *ls_trainer_measured_mesh(const ls_trainer *trainer);

/* ---- the loop ---- */

/* Mean time of the steps of this process in seconds; 0: none is finished. */
double ls_trainer_usual_step_s(const ls_trainer_loop *loop);
/* Books `seconds` of recovery, from a loss being noticed to step `step` + 1 continuing. */
void ls_trainer_book_recovery(ls_trainer *trainer, uint64_t step, double seconds);

/* ---- requests from outside ---- */

/* LS_OK, or why to stop now: a signal, a preemption notice, or the run file's time limit or cap. */
ls_status ls_trainer_stop_status(const ls_trainer *trainer);
/* Whether to stop, asked in the middle of long work; also updates the time log and polls notices.
 * context: the trainer. */
bool ls_trainer_should_stop(void *context);
/* Books the energy of the machine since the last call. */
void ls_trainer_note_energy(ls_trainer *trainer);
/* Starts to watch the sources of preemption notices that the run file and the environment name.
 * Errors: LS_ERR_INVALID. */
ls_status ls_trainer_open_notices(ls_trainer *trainer);
/* Opens the control socket; the run continues without one if that fails. */
void ls_trainer_open_control(ls_trainer *trainer);
void ls_trainer_close_control(ls_trainer_control *control);
/* Keeps the newest `recovered` event for the status that others may ask for. */
void ls_trainer_note_recovery(ls_trainer_shared *shared, const json_t *fields);
/* Whether a checkpoint was asked for. True only once all granted steps are done, so that the state
 * is at rest. */
bool ls_trainer_wants_save(ls_trainer *trainer);
/* A checkpoint took `seconds`. Warns once if that is longer than the notice period. */
void ls_trainer_note_save(ls_trainer *trainer, double seconds);

/* ---- alerts ---- */

/* Everything is ready to train. */
void ls_trainer_begin_alerts(ls_trainer *trainer);
/* Looks whether a rule has begun to hold; called between pieces of work. */
void ls_trainer_watch_alerts(ls_trainer *trainer);
/* Something has happened that people may want to hear of. */
void ls_trainer_alert(ls_trainer *trainer, ls_alert_kind kind, const char *text);

/* ---- checkpoints ---- */

/* Saves a checkpoint of the finished steps, unless there is one already, and prunes old ones. Waits
 * for the one being written. */
ls_status ls_trainer_save(ls_trainer *trainer);
/* The same while steps continue, if there is memory for a snapshot. A save that fails is an event,
 * not an error (saver.h). */
ls_status ls_trainer_save_in_background(ls_trainer *trainer);
/* Saves the weights alone if they are due, in the background; a checkpoint of the same step
 * includes them. */
ls_status ls_trainer_save_weights(ls_trainer *trainer);
/* Whether a checkpoint of the finished steps is due, and after which step the next one is. */
bool ls_trainer_save_is_due(const ls_trainer *trainer);
uint64_t ls_trainer_next_save(const ls_trainer *trainer);
/* Sets up checkpoint.every_steps: auto from the record of the run's earlier starts. */
void ls_trainer_begin_interval(ls_trainer *trainer);
/* Reports a checkpoint that was written in the background. wait: waits until it is. */
ls_status ls_trainer_poll_saver(ls_trainer *trainer, bool wait);

/* If the run directory has no checkpoint and its mirror has one: fetches it, and run.yaml before
 * it. The directory is then that of a run that was interrupted. Errors: when the mirror can't be
 * read, because beginning anew would lose the run. */
ls_status ls_trainer_restore_mirror(ls_trainer *trainer, const ls_run_file *run);
/* Starts to copy checkpoints to the mirror. */
ls_status ls_trainer_begin_mirror(ls_trainer *trainer);
/* Reports a copy that has ended. wait: until the newest checkpoint is copied, or can't be. */
void ls_trainer_poll_mirror(ls_trainer *trainer, bool wait);

/* ---- steps and workers ---- */

/* Computes one step, here or by the workers. seconds_out: how long it took. */
ls_status ls_trainer_compute(ls_trainer *trainer, double lr, ls_step_result *result_out, double *seconds_out);
/* Brings the parts of the state that several hosts hold together on this one. ls_trainer_is_whole
 * says whether that worked. */
void ls_trainer_gather(ls_trainer *trainer);
/* Whether the state in memory is that after loop.step steps. */
bool ls_trainer_is_whole(const ls_trainer *trainer);
/* The most memory used so far by all processes of the run on this host. */
uint64_t ls_trainer_memory(ls_trainer *trainer);
/* Whether ranks left by an earlier trainer (job.lease) were found. ls_trainer_adopt then replaces
 * ls_trainer_restore: the run continues after the last step recorded. */
bool ls_trainer_is_adopted(const ls_trainer *trainer);
ls_status ls_trainer_adopt(ls_trainer *trainer);
/* With several ranks, in this order: makes the segment and the state in it; starts the processes;
 * waits until all are ready. */
ls_status ls_trainer_create_workers(ls_trainer *trainer);
ls_status ls_trainer_launch_workers(ls_trainer *trainer);
ls_status ls_trainer_await_workers(ls_trainer *trainer);
/* Sends events for a rank that was lost, differs or failed. The error text stays as it is. */
void ls_trainer_explain_workers(ls_trainer *trainer, ls_status status);

#endif

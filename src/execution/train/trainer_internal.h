// SPDX-License-Identifier: Apache-2.0
/*
 * The trainer's parts, shared by trainer.c (the loop), trainer_open.c (beginning and ending) and trainer_save.c (checkpoints).
 */
#ifndef LS_EXECUTION_TRAIN_TRAINER_INTERNAL_H
#define LS_EXECUTION_TRAIN_TRAINER_INTERNAL_H

#include "execution/elastic/control_socket.h"
#include "execution/elastic/gang.h"
#include "execution/elastic/notice.h"
#include "execution/evaluate.h"
#include "execution/generate/generate.h"
#include "execution/state.h"
#include "execution/train/cadence.h"
#include "execution/train/prediction.h"
#include "execution/train/saver.h"
#include "execution/train/schedule.h"
#include "execution/train/session.h"
#include "execution/train/step.h"
#include "execution/train/trainer.h"
#include "telemetry/goodput.h"
#include "telemetry/progress.h"
#include "telemetry/run_log.h"
#include "telemetry/summary.h"
#include "telemetry/time_log.h"

#include <pthread.h>
#include <stdatomic.h>

/* What the control socket's thread may look at and set while the trainer's runs. */
typedef struct ls_trainer_shared {
    _Atomic uint64_t step;
    _Atomic bool is_training; /* the first step was granted */
    _Atomic bool save_asked, stop_asked;
    pthread_mutex_t lock;
    json_t *last_recovery; /* under lock; NULL: none */
} ls_trainer_shared;

typedef struct ls_trainer {
    const ls_train_options *options;
    ls_arena arena;
    ls_run_dir dir;
    ls_session session;
    ls_state state;
    ls_walk walk;
    ls_stepper *stepper;     /* NULL with several ranks */
    ls_gang *gang;           /* the ranks that compute, state is in their segment; NULL: this process does */
    uint64_t memory_bytes;   /* ls_trainer_memory with a gang */
    uint64_t granted;        /* steps below it the gang may run without being asked again */
    ls_evaluator *evaluator; /* NULL without validation data */
    ls_generator *generator; /* NULL without samples */
    ls_run_log *log;
    ls_progress *progress;
    ls_goodput goodput;    /* of this process */
    ls_time_log *time_log; /* of all starts of the run */
    double recovery_s;     /* not yet booked: from losses noticed to the step going on */
    double hung_s;         /* nor this: what ranks waited for one that hung, until it was killed */
    double booked_wait_s, booked_work_s; /* of the last finished step: as communication, as compute */
    bool closing;                        /* what the gang still says is not heard */
    ls_schedule schedule;
    ls_prediction prediction; /* what was said before the first step */

    ls_notice_watch *notices;   /* NULL: nobody is asked */
    ls_control_socket *control; /* NULL: it can't be asked */
    ls_trainer_shared shared;
    bool leaving; /* notice was given: stop, save, end with 75 */
    bool told_signal, told_late;
    double save_s; /* of the newest checkpoint; 0: none was written */

    json_t *finished;      /* the result of a run that had reached its end before; NULL otherwise */
    uint64_t step;         /* finished steps */
    uint64_t stop_step;    /* train until here */
    uint64_t begun_at;     /* finished steps when this process took over */
    uint64_t redone_until; /* steps up to here were finished before, by a process that was lost */
    uint64_t saved_step;   /* of the newest checkpoint; UINT64_MAX: none */
    ls_saver *saver;       /* NULL: nothing was saved yet while steps go on */
    ls_state snapshot;     /* what the saver saves */
    ls_save_job pending;   /* waits for the step that fills the snapshot */
    double
        stall_s; /* what steps waited for all checkpoints of this process, the copy in an update included */
    uint32_t stall_count; /* how many those are */
    bool is_pending;
    json_t *
        restore_events; /* what was repaired or skipped when the run was restored: told once there is a log */
    ls_cadence cadence; /* checkpoint.every_steps: auto */
    uint64_t cadence_from; /* finished steps from which the interval counts */
    double told_interval_s;
    bool told_cadence;      /* what is known of it before the first checkpoint */
    uint64_t weights_step;  /* of the newest snapshot of weights alone; 0: none */
    uint32_t save_failures; /* in a row */
    uint64_t tokens;        /* of all finished steps */
    double peak_flops;      /* measured GEMM peak */
    ls_flip flip;           /* for tests */
    ls_step_fault fault;    /* of the step that ended the run */
    float loss;
    double val_loss;             /* NaN: not evaluated */
    uint64_t evaluated_step;     /* UINT64_MAX: never */
    double step_s, first_step_s; /* sum over the steps of this process; process start to first step */
    uint64_t process_tokens;
} ls_trainer;

/* Seconds of a step as they have been so far; 0: none is finished. */
double ls_trainer_usual_step_s(const ls_trainer *trainer);

/* LS_OK, or why to stop now: a signal, a notice, or the run file's time limit. */
ls_status ls_trainer_stop_status(const ls_trainer *trainer);
/* The same in the middle of something long, on the trainer's thread: also brings time log and notices up to now. context: the trainer. */
bool ls_trainer_should_stop(void *context);

/* Whom the run file and the environment name; and what they say, if anything, told as events. Errors: LS_ERR_INVALID. */
ls_status ls_trainer_open_notices(ls_trainer *trainer);
void ls_trainer_hear_notices(ls_trainer *trainer);
/* The control socket; without one the run goes on. */
void ls_trainer_open_control(ls_trainer *trainer);
void ls_trainer_close_control(ls_trainer *trainer);
/* The step behind `step` finished ones went on `seconds` after the loss was noticed. */
void ls_trainer_book_recovery(ls_trainer *trainer, uint64_t step, double seconds);
/* Remembers the newest `recovered` event for whoever asks. */
void ls_trainer_note_recovery(ls_trainer *trainer, const json_t *fields);
/* A checkpoint was asked for: true once all that was granted is done, so that the state is at rest. */
bool ls_trainer_wants_save(ls_trainer *trainer);

/* A checkpoint took `seconds`: warns once when that is longer than who gives notice grants. */
void ls_trainer_note_save(ls_trainer *trainer, double seconds);

/* Opens everything and restores or begins the run. */
ls_status ls_trainer_open(ls_trainer *trainer, const ls_train_options *options);
void ls_trainer_close(ls_trainer *trainer);

/* Saves a checkpoint of the finished steps, unless there is one already, and prunes old ones. Waits for one in flight. */
ls_status ls_trainer_save(ls_trainer *trainer);
/* The same while steps go on, where there is memory for a snapshot. A save that fails is an event, not an error (saver.h). */
ls_status ls_trainer_save_behind(ls_trainer *trainer);
/* Saves the weights alone if they are due, by the saver; when a checkpoint is to be written for the same step it takes them along. */
ls_status ls_trainer_save_weights(ls_trainer *trainer);
bool ls_trainer_weights_are_due(const ls_trainer *trainer);
/* Whether a checkpoint is due behind the finished steps, and behind which steps the next one is. */
bool ls_trainer_save_is_due(const ls_trainer *trainer);
uint64_t ls_trainer_next_save(const ls_trainer *trainer);
/* Begins checkpoint.every_steps: auto from the record of the run's starts. */
void ls_trainer_begin_cadence(ls_trainer *trainer);
/* Saves now, with the steps waiting. */
ls_status ls_trainer_save_now(ls_trainer *trainer, bool must_not_fail);
/* Events of a checkpoint that was written meanwhile; wait: until it is. */
ls_status ls_trainer_poll_saver(ls_trainer *trainer, bool wait);
/* Tells what ls_trainer_restore found, once there is a log. */
void ls_trainer_tell_restored(ls_trainer *trainer);
/* Loads the newest good checkpoint; LS_OK with trainer->step 0 when there is none. */
ls_status ls_trainer_restore(ls_trainer *trainer);

/* One step: here, or by the gang. seconds_out: of the step. */
ls_status ls_trainer_compute(ls_trainer *trainer, double lr, ls_step_result *result_out, double *seconds_out);
/* Brings together what several hosts have of the state; whether it worked, ls_trainer_is_whole says. */
void ls_trainer_gather(ls_trainer *trainer);
/* Whether the state in memory is that after trainer->step steps. */
bool ls_trainer_is_whole(const ls_trainer *trainer);
/* Most memory so far, of all processes of the run on this host. */
uint64_t ls_trainer_memory(ls_trainer *trainer);
/* Ranks that an earlier trainer left behind (job.lease) were found; instead of restoring: to the last step that was heard of. */
bool ls_trainer_is_adopted(const ls_trainer *trainer);
ls_status ls_trainer_adopt(ls_trainer *trainer);
/* With several ranks: segment and state; processes; all of them ready. */
ls_status ls_trainer_create_gang(ls_trainer *trainer);
ls_status ls_trainer_launch_gang(ls_trainer *trainer);
ls_status ls_trainer_await_gang(ls_trainer *trainer);
/* A rank was lost, differs or failed: events, and the text of `status` becomes what happens next. */
void ls_trainer_explain_gang(ls_trainer *trainer, ls_status status);

/* Mean loss on validation data, logged and remembered. */
ls_status ls_trainer_evaluate(ls_trainer *trainer);
/* Prints and logs a sample. */
ls_status ls_trainer_sample(ls_trainer *trainer);

/* The summary as JSON, also saved in the run directory together with the report. */
ls_status ls_trainer_finish(ls_trainer *trainer, ls_status status, json_t **result_out);

#endif

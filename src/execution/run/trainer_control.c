// SPDX-License-Identifier: Apache-2.0
/* What other processes may ask a run to do (execution/run/control_socket.h). The actions run on the
 * socket's thread: they may use ls_trainer_shared, what never changes after opening, and the
 * functions of the workers that any thread may call. */
#include "execution/run/trainer_internal.h"

#include "base/log.h"

#include <unistd.h>

/* ---- status ---- */

static json_t *give_status(void *context)
{
    ls_trainer *trainer = context;
    const ls_run_file *run = &trainer->session.run;
    const ls_trainer_shared *shared = &trainer->control.shared;
    json_t *status =
        json_pack("{s:s, s:s, s:i, s:I, s:I, s:s, s:I, s:I}", "run", run->name, "run_dir", trainer->dir.path,
                  "pid", (int)getpid(), "step", (json_int_t)atomic_load(&shared->step), "steps",
                  (json_int_t)trainer->loop.stop_step, "doing",
                  atomic_load(&shared->is_training) ? "training" : "starting", "min_ranks",
                  (json_int_t)run->job.min_ranks, "max_ranks",
                  (json_int_t)(trainer->backend.workers ? ls_workers_slots(trainer->backend.workers) : 1));
    if (trainer->backend.workers) {
        ls_workers_append_team(trainer->backend.workers, status);
    }
    pthread_mutex_lock(&trainer->control.shared.lock);
    json_object_set_new(status, "last_recovery",
                        shared->last_recovery ? json_deep_copy(shared->last_recovery) : json_null());
    pthread_mutex_unlock(&trainer->control.shared.lock);
    return status;
}

void ls_trainer_note_recovery(ls_trainer_shared *shared, const json_t *fields)
{
    json_t *copy = json_deep_copy(fields);
    pthread_mutex_lock(&shared->lock);
    json_decref(shared->last_recovery);
    shared->last_recovery = copy;
    pthread_mutex_unlock(&shared->lock);
}

/* ---- the number of ranks ---- */

static ls_status check_elastic(const ls_trainer *trainer)
{
    if (!trainer->backend.workers) {
        return ls_fail(
            LS_ERR_INVALID,
            "this run computes in one process, so its number of ranks cannot change while it runs: stop it "
            "(Ctrl-C saves) and start it again with --ranks N or with job.elastic; the result stays the "
            "same, bit for bit");
    }
    if (!atomic_load(&trainer->control.shared.is_training)) {
        return ls_fail(LS_ERR_INVALID, "the run is still starting its ranks: ask again once it trains");
    }
    return LS_OK;
}

static ls_status resize(void *context, uint32_t ranks)
{
    const ls_trainer *trainer = context;
    LS_TRY(check_elastic(trainer));
    return ls_workers_resize(trainer->backend.workers, ranks);
}

static ls_status leave(void *context, uint32_t rank)
{
    const ls_trainer *trainer = context;
    LS_TRY(check_elastic(trainer));
    return ls_workers_leave(trainer->backend.workers, rank);
}

/* ---- save and stop ---- */

static ls_status save(void *context)
{
    ls_trainer *trainer = context;
    atomic_store(&trainer->control.shared.save_asked, true);
    return LS_OK;
}

static ls_status stop(void *context)
{
    ls_trainer *trainer = context;
    atomic_store(&trainer->control.shared.stop_asked, true);
    return LS_OK;
}

/* Ranks run ahead of the trainer by up to LS_RANK_RESULTS steps, and those steps cannot be taken
 * back. So no further steps are granted, and the save waits until the granted ones are done. */
bool ls_trainer_wants_save(ls_trainer *trainer)
{
    if (!atomic_load(&trainer->control.shared.save_asked)) {
        return false;
    }
    const uint64_t ahead = trainer->loop.step + LS_RANK_RESULTS - 1;
    trainer->backend.granted = trainer->backend.granted < ahead ? trainer->backend.granted : ahead;
    if (trainer->loop.step < trainer->backend.granted) {
        return false;
    }
    atomic_store(&trainer->control.shared.save_asked, false);
    return true;
}

void ls_trainer_open_control(ls_trainer *trainer)
{
    const ls_control_actions actions = {.context = trainer,
                                        .status = give_status,
                                        .resize = resize,
                                        .leave = leave,
                                        .checkpoint = save,
                                        .stop = stop};
    atomic_store(&trainer->control.shared.step, trainer->loop.step);
    if (ls_control_socket_open(trainer->dir.path, &actions, &trainer->control.socket) != LS_OK) {
        ls_log_warn("other processes, such as 'lockstep resize', cannot reach this run: %s", ls_error_text());
        ls_error_clear();
    }
}

void ls_trainer_close_control(ls_trainer_control *control)
{
    ls_control_socket_close(control->socket);
    control->socket = NULL;
    json_decref(control->shared.last_recovery);
    control->shared.last_recovery = NULL;
}

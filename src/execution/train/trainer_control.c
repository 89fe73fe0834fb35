// SPDX-License-Identifier: Apache-2.0
/* What other processes may ask of a run (execution/elastic/control_socket.h). Actions run on the socket's thread. */
#include "execution/train/trainer_internal.h"

#include "base/log.h"

#include <string.h>
#include <unistd.h>

/* ---- status ---- */

static json_t *give_status(void *context)
{
    ls_trainer *trainer = context;
    const ls_run_file *run = &trainer->session.run;
    const ls_trainer_shared *shared = &trainer->shared;
    json_t *status = json_pack(
        "{s:s, s:s, s:i, s:I, s:I, s:s, s:I, s:I}", "run", run->name, "run_dir", trainer->dir.path, "pid",
        (int)getpid(), "step", (json_int_t)atomic_load(&shared->step), "steps",
        (json_int_t)trainer->stop_step, "doing", atomic_load(&shared->is_training) ? "training" : "starting",
        "min_ranks", (json_int_t)run->job.min_ranks, "max_ranks",
        (json_int_t)(trainer->gang ? ls_gang_places(trainer->gang) : 1));
    if (trainer->gang) {
        ls_gang_append_team(trainer->gang, status);
    }
    pthread_mutex_lock(&trainer->shared.lock);
    json_object_set_new(status, "last_recovery",
                        shared->last_recovery ? json_deep_copy(shared->last_recovery) : json_null());
    pthread_mutex_unlock(&trainer->shared.lock);
    return status;
}

void ls_trainer_note_recovery(ls_trainer *trainer, const json_t *fields)
{
    json_t *copy = json_deep_copy(fields);
    pthread_mutex_lock(&trainer->shared.lock);
    json_decref(trainer->shared.last_recovery);
    trainer->shared.last_recovery = copy;
    pthread_mutex_unlock(&trainer->shared.lock);
}

/* ---- the team ---- */

static ls_status check_elastic(const ls_trainer *trainer)
{
    if (!trainer->gang) {
        return ls_fail(
            LS_ERR_INVALID,
            "this run computes in one process, which can't be shared out while it runs: stop it (Ctrl-C "
            "saves), and start it with --ranks N or with job.elastic; the bits stay the same");
    }
    if (!atomic_load(&trainer->shared.is_training)) {
        return ls_fail(LS_ERR_INVALID, "the run still starts its ranks: ask again when it trains");
    }
    return LS_OK;
}

static ls_status resize(void *context, uint32_t ranks)
{
    const ls_trainer *trainer = context;
    LS_TRY(check_elastic(trainer));
    return ls_gang_resize(trainer->gang, ranks);
}

static ls_status leave(void *context, uint32_t rank)
{
    const ls_trainer *trainer = context;
    LS_TRY(check_elastic(trainer));
    return ls_gang_leave(trainer->gang, rank);
}

/* ---- the trainer's own ---- */

static ls_status save(void *context)
{
    ls_trainer *trainer = context;
    atomic_store(&trainer->shared.save_asked, true);
    return LS_OK;
}

static ls_status stop(void *context)
{
    ls_trainer *trainer = context;
    atomic_store(&trainer->shared.stop_asked, true);
    return LS_OK;
}

/* Ranks run ahead, up to LS_RANK_RESULTS steps; what goes beyond that was not granted to them yet. */
bool ls_trainer_wants_save(ls_trainer *trainer)
{
    if (!atomic_load(&trainer->shared.save_asked)) {
        return false;
    }
    const uint64_t ahead = trainer->step + LS_RANK_RESULTS - 1;
    trainer->granted = trainer->granted < ahead ? trainer->granted : ahead;
    if (trainer->step < trainer->granted) {
        return false;
    }
    atomic_store(&trainer->shared.save_asked, false);
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
    atomic_store(&trainer->shared.step, trainer->step);
    if (ls_control_socket_open(trainer->dir.path, &actions, &trainer->control) != LS_OK) {
        ls_log_warn("this run can't be asked anything while it runs: %s", ls_error_text());
        ls_error_clear();
    }
}

void ls_trainer_close_control(ls_trainer *trainer)
{
    ls_control_socket_close(trainer->control);
    trainer->control = NULL;
    json_decref(trainer->shared.last_recovery);
    trainer->shared.last_recovery = NULL;
}

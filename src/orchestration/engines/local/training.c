// SPDX-License-Identifier: Apache-2.0
/* What a training run has done so far, read from its own folder, which may be anywhere, even on a
 * file system that does not respond. */
#include "orchestration/engines/local/local_internal.h"

#include "config/run_file.h"

enum { STEPS_TAIL_BYTES = 8 * 1024 };

/* Whether a file belongs to the job's user: the path is the user's and may lead anywhere. */
static bool is_his(const track *t, const ls_user_file_answer *answer)
{
    return answer->error == 0 && answer->owner == t->uid;
}

static void hear_of_checkpoints(void *context, const ls_user_file_answer *answer)
{
    track *t = context;
    t->save_question = 0;
    if (is_his(t, answer) && answer->modified_s > t->saved_s && !t->told_end) {
        t->saved_s = answer->modified_s;
        ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_SAVED, .time_s = t->saved_s});
    }
}

/* Each checkpoint is a folder: the newest name among them is a save. */
void ls_track_look_for_save(track *t)
{
    if (t->run_dir[0] && !t->save_question) {
        const ls_user_file folder = {
            .folder = t->run_dir, .name = "checkpoints", .uid = t->uid, .gid = t->gid, .is_folder = true};
        t->save_question = ls_user_files_ask(t->engine->settings.files, &folder, hear_of_checkpoints, t);
    }
}

/* The number of steps of a run whose length is given in passes over its data, which it has read by
 * now. */
static void hear_of_run_file(void *context, const ls_user_file_answer *answer)
{
    track *t = context;
    ls_arena arena = {0};
    ls_run_file run;
    t->step_question = 0;
    if (is_his(t, answer) &&
        ls_run_file_parse(answer->data, answer->bytes, "run.yaml", NULL, 0, &arena, &run) == LS_OK &&
        run.train.steps != LS_AUTO_U64) {
        t->progress.steps = run.train.steps;
    }
    ls_error_clear();
    ls_arena_release(&arena);
}

static void look_for_length(track *t)
{
    const ls_user_file file = {.folder = t->run_dir,
                               .name = "run.yaml",
                               .uid = t->uid,
                               .gid = t->gid,
                               .bytes = LS_JOB_FILE_BYTES_MAX};
    t->step_question = ls_user_files_ask(t->engine->settings.files, &file, hear_of_run_file, t);
}

static void look_for_steps_again(void *context)
{
    track *t = context;
    t->step_timer = 0;
    if (!t->told_end) {
        ls_track_look_for_steps(t);
    }
}

static void hear_of_steps(void *context, const ls_user_file_answer *answer)
{
    track *t = context;
    t->step_question = 0;
    /* what an earlier start wrote does not count */
    if (!is_his(t, answer) || answer->modified_s < t->started_s || t->told_end) {
        return;
    }
    const double now_s = ls_env_wall_s(env_of(t));
    if (!ls_local_progress_feed(&t->progress, answer->data, answer->bytes, answer->modified_s, now_s)) {
        return;
    }
    const double left_s = ls_local_progress_left_s(&t->progress, now_s);
    ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_PROGRESS,
                                          .step = t->progress.step,
                                          .steps = t->progress.steps,
                                          .left_s = left_s});
    if (t->progress.steps == 0) {
        look_for_length(t);
    }
    if (left_s <= 0.0 && !t->step_timer) {
        t->step_timer = ls_env_timer_set(env_of(t), LS_LOCAL_PROGRESS_SPAN_NS, look_for_steps_again, t);
    }
}

void ls_track_look_for_steps(track *t)
{
    if (t->run_dir[0] && !t->step_question) {
        const ls_user_file file = {.folder = t->run_dir,
                                   .name = "metrics.jsonl",
                                   .uid = t->uid,
                                   .gid = t->gid,
                                   .from_end = true,
                                   .offset = STEPS_TAIL_BYTES,
                                   .bytes = STEPS_TAIL_BYTES};
        t->step_question = ls_user_files_ask(t->engine->settings.files, &file, hear_of_steps, t);
    }
}

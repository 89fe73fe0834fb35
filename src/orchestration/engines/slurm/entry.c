// SPDX-License-Identifier: Apache-2.0
/* Entries, their files in the job's folder, and commands of Slurm whose answer only matters when
 * they fail. */
#include "orchestration/engines/slurm/slurm_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "env/real/program.h"
#include "orchestration/engines/job_files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ls_slurm_entry *ls_slurm_find(const ls_slurm_engine *self, uint64_t id)
{
    ls_slurm_entry *at = self->entries;
    while (at && at->id != id) {
        at = at->next;
    }
    return at;
}

void ls_slurm_tell(ls_slurm_engine *self, const ls_slurm_entry *one, ls_engine_report report)
{
    report.job = one->id;
    report.epoch = one->epoch;
    report.ranks = one->job->ranks_now;
    self->hear(self->context, &report);
}
/* ---- a job's files ---- */

/* HOME/jobs/N/KIND-EPOCH SUFFIX */
static const char *job_file(ls_arena *arena, const ls_slurm_engine *self, const ls_slurm_entry *one,
                            const char *kind, const char *suffix)
{
    return ls_arena_printf(arena, "%s/%s-%u%s", ls_slurm_job_folder(arena, &self->site, one->id), kind,
                           one->epoch, suffix);
}

ls_status ls_slurm_write(const ls_job *job, const char *path, const char *text)
{
    return ls_job_file_write(path, text, strlen(text), job->uid, job->gid);
}

ls_status ls_slurm_write_files(ls_arena *arena, const ls_slurm_engine *self, const ls_slurm_entry *one)
{
    const ls_job *job = one->job;
    LS_TRY(ls_jobs_folder_make(self->site.home));
    LS_TRY(ls_job_folder_make(ls_slurm_job_folder(arena, &self->site, job->id), job->uid, job->gid));
    LS_TRY(ls_slurm_write(
        job, ls_arena_printf(arena, "%s/run.yaml", ls_slurm_job_folder(arena, &self->site, job->id)),
        job->spec.file));
    ls_text script = {0};
    ls_slurm_script(&self->site, job, &one->shape, &script);
    const ls_status status =
        ls_slurm_write(job, job_file(arena, self, one, "slurm", ".sh"), ls_text_string(&script));
    ls_text_release(&script);
    LS_TRY(status);
    return ls_slurm_write(job, job_file(arena, self, one, "ticket", ""), "");
}

/* true: the script has not taken the ticket, and no longer can. */
bool ls_slurm_withdraw_ticket(const ls_slurm_engine *self, const ls_slurm_entry *one)
{
    ls_arena arena = {0};
    const bool withdrawn = unlink(job_file(&arena, self, one, "ticket", "")) == 0;
    ls_arena_release(&arena);
    return withdrawn;
}

void ls_slurm_drop_claims(const ls_slurm_engine *self, const ls_slurm_entry *one)
{
    ls_arena arena = {0};
    ls_slurm_entry of = *one;
    for (of.epoch = one->epoch; of.epoch > 0; of.epoch--) {
        unlink(job_file(&arena, self, &of, "claim", ""));
    }
    ls_arena_release(&arena);
}

/* Reads its number in Slurm and the number of its run from the file of its epoch. */
bool ls_slurm_read_ref(const ls_slurm_engine *self, ls_slurm_entry *one)
{
    ls_arena arena = {0};
    char text[100], ref[LS_SLURM_REF_BYTES];
    uint32_t restarts = 0;
    uint64_t first = 0;
    const int fields =
        ls_job_file_read(job_file(&arena, self, one, "slurm-ref", ""), O_RDONLY, text, sizeof text, NULL) > 0
            ? sscanf(text, "%39[0-9_] %9" SCNu32 " %19" SCNu64, ref, &restarts, &first)
            : 0;
    ls_arena_release(&arena);
    if (fields >= 2) {
        memcpy(one->ref, ref, sizeof ref);
        one->restarts = restarts;
        /* an older version wrote two fields; then the first job of the array is not known for a
         * task */
        one->first = fields == 3 ? first : strchr(ref, '_') ? 0 : one->id;
    }
    return fields >= 2;
}

void ls_slurm_write_ref(const ls_slurm_engine *self, const ls_slurm_entry *one)
{
    ls_arena arena = {0};
    const char *text =
        ls_arena_printf(&arena, "%s %" PRIu32 " %" PRIu64 "\n", one->ref, one->restarts, one->first);
    if (ls_slurm_write(one->job, job_file(&arena, self, one, "slurm-ref", ""), text) != LS_OK) {
        ls_log_warn("job %" PRIu64 ": %s", one->id, ls_error_text());
    }
    ls_arena_release(&arena);
}

static const char *end_path(ls_arena *arena, const ls_slurm_engine *self, const ls_slurm_entry *one)
{
    return ls_arena_printf(arena, "%s/slurm-end-%s-%u", ls_slurm_job_folder(arena, &self->site, one->id),
                           one->ref, one->restarts);
}

void ls_slurm_drop_end(const ls_slurm_engine *self, const ls_slurm_entry *one)
{
    ls_arena arena = {0};
    unlink(end_path(&arena, self, one));
    ls_arena_release(&arena);
}

bool ls_slurm_read_end(const ls_slurm_engine *self, const ls_slurm_entry *one, int *code_out,
                       double *time_out, ls_job_result *result_out)
{
    ls_arena arena = {0};
    char text[512];
    int code = 0, bytes = 0;
    double time_s = 0;
    const bool found = ls_job_file_read(end_path(&arena, self, one), O_RDONLY, text, sizeof text, NULL) > 0 &&
                       sscanf(text, "%3d %lf%n", &code, &time_s, &bytes) == 2 && code >= 0 && code <= 255;
    ls_arena_release(&arena);
    if (found) {
        *code_out = code;
        *time_out = time_s;
    }
    if (found && result_out) {
        json_t *result = json_loads(text + bytes, 0, NULL);
        *result_out = ls_job_result_read(result);
        json_decref(result);
    }
    return found;
}

/* ---- commands of Slurm whose answer only matters when they fail ---- */

typedef struct command {
    ls_slurm_engine *self;
    uint64_t job; /* the job whose entry has to know of a failure; 0: none */
    char what[80];
} command;

static double now_s(const ls_slurm_engine *self)
{
    return (double)ls_env_now_ns(self->env) / 1e9;
}

/* The order is repeated soon (ls_slurm_repeat). */
static void was_not_heard(ls_slurm_engine *self, uint64_t job)
{
    ls_slurm_entry *one = ls_slurm_find(self, job);
    if (one) {
        one->is_held = !one->job->held;
        one->told_s = now_s(self) - LS_SLURM_REPEAT_S + LS_SLURM_AGAIN_S;
    }
}

static void command_done(void *context, const ls_program_result *result)
{
    command *one = context;
    if (result->timed_out || (result->exit_code != 0 && !strstr(result->error, "Invalid job id") &&
                              !strstr(result->error, "already completing"))) {
        ls_log_warn("%s: %.200s", one->what, result->timed_out ? "no answer" : result->error);
        was_not_heard(one->self, one->job);
    }
    free(one);
}

void ls_slurm_command(ls_slurm_engine *self, uint64_t job, const char *const *argv)
{
    command *one = calloc(1, sizeof *one);
    LS_ASSERT(one && "not enough memory for a command");
    one->self = self;
    one->job = job;
    for (size_t i = 0, used = 0; argv[i] && used < sizeof one->what; i++) {
        const int bytes = snprintf(one->what + used, sizeof one->what - used, "%s%s", i ? " " : "", argv[i]);
        used += bytes > 0 ? (size_t)bytes : 0;
    }
    if (ls_program_start(self->env, &(ls_program){.argv = argv, .timeout_s = LS_SLURM_ANSWER_S}, command_done,
                         one) != LS_OK) {
        ls_log_warn("%s: %s", one->what, ls_error_text());
        free(one);
    }
}

void ls_slurm_cancel(ls_slurm_engine *self, const char *ref)
{
    const char *const argv[] = {"scancel", ref, NULL};
    ls_slurm_command(self, 0, argv);
}

/* ---- stopping and holding ---- */

void ls_slurm_hold_now(ls_slurm_engine *self, ls_slurm_entry *one)
{
    /* uhold: even root's hold is then one of the user's, which differs from an administrator's */
    const char *const argv[] = {"scontrol", one->job->held ? "uhold" : "release", one->ref, NULL};
    one->is_held = one->job->held;
    one->told_s = now_s(self);
    ls_slurm_command(self, one->id, argv);
}

void ls_slurm_repeat(ls_slurm_engine *self, ls_slurm_entry *one)
{
    const bool is_due = now_s(self) - one->told_s >= LS_SLURM_REPEAT_S;
    if (one->is_stopping && one->phase == PHASE_RUNS && is_due &&
        now_s(self) - one->told_s >= one->job->spec.grace_s + LS_SLURM_REPEAT_S) {
        one->is_killed = true;
        ls_slurm_stop_now(self, one);
    } else if (one->is_stopping && one->phase == PHASE_WAITS && is_due) {
        ls_slurm_stop_now(self, one);
    } else if (one->phase == PHASE_WAITS && one->job->held != one->is_held && is_due) {
        ls_slurm_hold_now(self, one);
    }
}

static void grace_over(void *context)
{
    ls_slurm_entry *one = context;
    one->grace = 0;
    if (one->phase == PHASE_RUNS) {
        ls_slurm_cancel(one->engine, one->ref);
    }
}

void ls_slurm_stop_now(ls_slurm_engine *self, ls_slurm_entry *one)
{
    if (!one->ref[0] || (one->phase != PHASE_WAITS && one->phase != PHASE_RUNS)) {
        return; /* its state in Slurm will be known after the next look */
    }
    one->told_s = now_s(self);
    if (one->phase == PHASE_RUNS && !one->is_killed) {
        const char *const argv[] = {"scancel", "--batch", "--signal=USR1", one->ref, NULL};
        ls_slurm_command(self, 0, argv);
        if (!one->grace) {
            one->grace =
                ls_env_timer_set(self->env, (uint64_t)(one->job->spec.grace_s * 1e9), grace_over, one);
        }
    } else {
        ls_slurm_cancel(self, one->ref);
    }
}

// SPDX-License-Identifier: Apache-2.0
/* Submits jobs with sbatch, one call at a time and in order; jobs of one sweep that come together
 * become one array. */
#include "orchestration/engines/slurm/slurm_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "env/real/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct later {
    ls_slurm_engine *self;
    uint64_t job;
    uint32_t epoch;
    ls_engine_report report;
    char text[300];
} later;

static void tell_now(void *context)
{
    later *one = context;
    ls_slurm_entry *of = ls_slurm_find(one->self, one->job);
    if (of && of->epoch == one->epoch) {
        one->report.text = one->text[0] ? one->text : NULL;
        ls_slurm_tell(one->self, of, one->report);
    }
    free(one);
}

void ls_slurm_tell_later(ls_slurm_engine *self, const ls_slurm_entry *of, double seconds,
                         ls_engine_report report, const char *text)
{
    later *one = calloc(1, sizeof *one);
    LS_ASSERT(one && "not enough memory for a report");
    *one = (later){.self = self, .job = of->id, .epoch = of->epoch, .report = report};
    snprintf(one->text, sizeof one->text, "%s", text);
    (void)ls_env_timer_set(self->env, (uint64_t)(seconds * 1e9), tell_now, one);
}

typedef struct submission {
    ls_slurm_engine *self;
    uint64_t *jobs;
    uint32_t *epochs;
    size_t count;
} submission;

static void submit_due(void *context);

void ls_slurm_submit_in(ls_slurm_engine *self, double seconds)
{
    ls_env_timer_cancel(self->env, self->submit_timer);
    self->submit_timer = ls_env_timer_set(self->env, (uint64_t)(seconds * 1e9), submit_due, self);
}

/* Slurm's error for people: one line, without the name of the program. */
const char *ls_slurm_words(ls_arena *arena, const char *error)
{
    const char *at = error;
    for (const char *next = at; (next = strstr(at, "error: "));) {
        at = next + strlen("error: ");
    }
    return ls_arena_strndup(arena, at, strcspn(at, "\n"));
}

static bool is_no_answer(const ls_program_result *result)
{
    static const char *const words[] = {"Unable to contact",
                                        "Socket timed out",
                                        "Connection refused",
                                        "Zero Bytes",
                                        "temporarily unable",
                                        "try again",
                                        "communication",
                                        "standby mode",
                                        "I/O error writing script", /* its spool is full */
                                        "unge", /* Munge, which authenticates users, is down */
                                        "Protocol authentication"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strstr(result->error, words[i])) {
            return true;
        }
    }
    return result->timed_out;
}

static const char *why_refused(ls_arena *arena, const ls_program_result *result)
{
    return result->exit_code == 0 && result->output
               ? ls_arena_printf(arena, "sbatch printed '%.60s', which is not a job number",
                                 ls_slurm_words(arena, result->output))
               : ls_arena_printf(arena, "Slurm refused the job: %s", ls_slurm_words(arena, result->error));
}

static void submission_failed(ls_slurm_engine *self, ls_slurm_entry *one, const ls_program_result *result)
{
    ls_arena arena = {0};
    if (is_no_answer(result)) {
        /* Slurm may or may not have the job. Without its ticket it does nothing there, so it can be
         * submitted again in a new epoch. */
        ls_slurm_tell(self, one,
                      (ls_engine_report){.kind = LS_ENGINE_WAITS,
                                         .stage = "gang",
                                         .text = "Slurm does not respond; trying again"});
        if (ls_slurm_withdraw_ticket(self, one)) {
            one->phase = PHASE_ENDED;
            ls_slurm_tell_later(self, one, LS_SLURM_AGAIN_S, (ls_engine_report){.kind = LS_ENGINE_NEVER}, "");
        } else {
            one->phase = PHASE_WAITS; /* it runs, and its file has its number in Slurm */
            one->is_adopted = true;
        }
    } else {
        one->phase = PHASE_ENDED;
        (void)ls_slurm_withdraw_ticket(self, one);
        ls_slurm_tell(self, one,
                      (ls_engine_report){.kind = LS_ENGINE_ENDED,
                                         .exit_code = 2,
                                         .cause = LS_CAUSE_START,
                                         .text = why_refused(&arena, result)});
    }
    ls_arena_release(&arena);
}

static void submission_worked(ls_slurm_engine *self, ls_slurm_entry *one, uint64_t first, const char *ref)
{
    snprintf(one->ref, sizeof one->ref, "%.39s", ref);
    one->first = first;
    one->phase = PHASE_WAITS;
    ls_slurm_write_ref(self, one);
    ls_slurm_tell(self, one, (ls_engine_report){.kind = LS_ENGINE_ACCEPTED, .text = one->ref});
    if (one->is_stopping) {
        ls_slurm_stop_now(self, one);
    } else if (one->job->held) {
        ls_slurm_hold_now(self, one);
    }
}

static void sbatch_done(void *context, const ls_program_result *result)
{
    submission *of = context;
    ls_slurm_engine *self = of->self;
    unsigned long number = 0;
    self->is_submitting = false;
    const bool worked =
        result->exit_code == 0 && !result->timed_out && sscanf(result->output, "%lu", &number) == 1;
    for (size_t i = 0; i < of->count; i++) {
        ls_slurm_entry *one = ls_slurm_find(self, of->jobs[i]);
        if (!one || one->epoch != of->epochs[i] || one->phase != PHASE_ASKED) {
            continue; /* it ended meanwhile, and its ticket is gone */
        }
        char ref[LS_SLURM_REF_BYTES];
        if (of->count > 1) {
            snprintf(ref, sizeof ref, "%lu_%zu", number, i);
        } else {
            snprintf(ref, sizeof ref, "%lu", number);
        }
        if (worked) {
            submission_worked(self, one, of->jobs[0], ref);
        } else {
            submission_failed(self, one, result);
        }
    }
    free(of->jobs);
    free(of->epochs);
    free(of);
    ls_slurm_submit_in(self, worked || !is_no_answer(result) ? 0 : LS_SLURM_AGAIN_S);
    ls_slurm_look_in(self, LS_SLURM_SOON_S);
}

/* The first new job, and the later ones that can be tasks of the same array. */
static size_t gather(const ls_slurm_engine *self, ls_slurm_entry *chosen[LS_SLURM_ARRAY_MAX])
{
    size_t count = 0;
    for (ls_slurm_entry *at = self->entries; at && count < LS_SLURM_ARRAY_MAX; at = at->next) {
        if (at->phase == PHASE_NEW && !at->job->held &&
            (count == 0 || ls_slurm_are_alike(chosen[0]->job, at->job))) {
            chosen[count++] = at;
        }
    }
    return count;
}

static ls_status start_sbatch(ls_slurm_engine *self, ls_arena *arena, ls_slurm_entry *const *chosen,
                              size_t count)
{
    const char *argv[LS_SLURM_OPTIONS_MAX];
    const ls_job **jobs = ls_arena_new(arena, const ls_job *, count);
    submission *of = calloc(1, sizeof *of);
    uint64_t *ids = calloc(count, sizeof *ids);
    uint32_t *epochs = calloc(count, sizeof *epochs);
    LS_ASSERT(of && ids && epochs && "not enough memory for a submission");
    *of = (submission){.self = self, .jobs = ids, .epochs = epochs, .count = count};
    for (size_t i = 0; i < count; i++) {
        jobs[i] = chosen[i]->job;
        ids[i] = chosen[i]->id;
        epochs[i] = chosen[i]->epoch;
    }
    ls_text script = {0};
    if (count > 1) {
        ls_slurm_array_script(&self->site, jobs, count, &script);
    } else {
        ls_slurm_script(&self->site, jobs[0], &chosen[0]->shape, &script);
    }
    const ls_slurm_batch batch = {
        .jobs = jobs, .count = count, .shape = &chosen[0]->shape, .now_s = ls_clock_wall_s()};
    ls_slurm_sbatch(&self->site, &batch, arena, argv);
    const ls_status status = ls_program_start(
        self->env,
        &(ls_program){.argv = argv, .input = ls_text_string(&script), .timeout_s = LS_SLURM_ANSWER_S},
        sbatch_done, of);
    ls_text_release(&script);
    if (status != LS_OK) {
        free(ids);
        free(epochs);
        free(of);
    }
    return status;
}

/* One sbatch at a time: slurmctld serves one at a time anyway, and the order is kept. */
static void submit_due(void *context)
{
    ls_slurm_engine *self = context;
    ls_slurm_entry *chosen[LS_SLURM_ARRAY_MAX];
    if (self->is_submitting) {
        return;
    }
    const size_t count = gather(self, chosen);
    if (count == 0) {
        return;
    }
    ls_arena arena = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        status = ls_slurm_write_files(&arena, self, chosen[i]);
        chosen[i]->phase = PHASE_ASKED;
    }
    if (status == LS_OK) {
        status = start_sbatch(self, &arena, chosen, count);
    }
    self->is_submitting = status == LS_OK;
    for (size_t i = 0; i < count && status != LS_OK; i++) {
        submission_failed(self, chosen[i], &(ls_program_result){.exit_code = 1, .error = ls_error_text()});
    }
    if (status != LS_OK) {
        ls_slurm_submit_in(self, 0);
    }
    ls_arena_release(&arena);
}

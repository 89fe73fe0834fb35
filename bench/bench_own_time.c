// SPDX-License-Identifier: Apache-2.0
/*
 * Compares the time that the calibration predicts for each kind of op with the time that the
 * executor takes, to find where the prediction of a step goes wrong.
 *
 *   bench_own_time RUN.yaml [threads] [passes] [key=value ...]        needs $LOCKSTEP_HOME/calibration.json
 *
 * Prints, by op and phase, predicted and measured milliseconds of a micro-batch, and their ratio.
 * With one thread it uses the CPU clock of the thread, so other load on the machine does little
 * harm. Not a test.
 */
#include "base/clock.h"
#include "execution/calibrate/calibrate.h"
#include "execution/executor/state.h"
#include "execution/train/session.h"
#include "planning/step/own_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = LS_OP_KIND_COUNT * 3, PASSES_MAX = 64 };

typedef struct trial {
    ls_arena arena;
    ls_session session;
    ls_calibration calibration;
    ls_executor executor;
    ls_state state;
    int32_t *tokens, *targets;
    float *losses;
    uint32_t threads, passes;
    double *best_s; /* of each plan step */
} trial;

static double now_s(const trial *t)
{
    struct timespec now;
    clock_gettime(t->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ls_status run_passes(trial *t)
{
    const ls_plan *plan = &t->session.plan;
    const ls_executor_batch batch = {.weights = t->state.parameters,
                                     .gradients = t->state.gradients[0],
                                     .piece_gradients = t->state.gradients,
                                     .accumulate = true,
                                     .more = true,
                                     .tokens = t->tokens,
                                     .targets = t->targets,
                                     .losses = t->losses};
    for (uint32_t i = 0; i < plan->step_count; i++) {
        t->best_s[i] = 1e9;
    }
    for (uint32_t pass = 0; pass < t->passes; pass++) {
        for (uint32_t i = 0; i < plan->step_count; i++) {
            const double start_s = now_s(t);
            LS_TRY(ls_executor_step(&t->executor, &batch, i));
            const double took_s = now_s(t) - start_s;
            t->best_s[i] = took_s < t->best_s[i] ? took_s : t->best_s[i];
        }
    }
    return LS_OK;
}

static void print_rows(const trial *t)
{
    static const char *const phases[] = {"forward", "backward", "weight"};
    const ls_plan *plan = &t->session.plan;
    double predicted[ROWS] = {0}, measured[ROWS] = {0}, all_predicted = 0.0, all_measured = 0.0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const ls_plan_step s = plan->steps[i];
        const int row = (int)plan->ops[s.op].kind * 3 + (int)s.phase;
        ls_term term;
        const double p_s = ls_own_plan_step_s(&t->calibration, plan, i, t->threads, true, &term);
        if (getenv("EACH") && plan->ops[s.op].layer <= 0) {
            printf("    %-16s %-8s %4ld x %-5ld %9.4f %9.4f %6.3f\n", ls_op_kind_name(plan->ops[s.op].kind),
                   phases[s.phase], (long)plan->ops[s.op].in_features, (long)plan->ops[s.op].out_features,
                   1e3 * p_s, 1e3 * t->best_s[i], p_s / t->best_s[i]);
        }
        predicted[row] += p_s;
        measured[row] += t->best_s[i];
        all_predicted += p_s;
        all_measured += t->best_s[i];
    }
    for (int row = 0; row < ROWS; row++) {
        if (measured[row] > 0.0) {
            printf("  %-16s %-8s  %9.3f  %9.3f  %6.3f  %5.1f %%\n", ls_op_kind_name((ls_op_kind)(row / 3)),
                   phases[row % 3], 1e3 * predicted[row], 1e3 * measured[row], predicted[row] / measured[row],
                   100.0 * measured[row] / all_measured);
        }
    }
    printf("  %-25s  %9.3f  %9.3f  %6.3f\n", "micro-batch", 1e3 * all_predicted, 1e3 * all_measured,
           all_predicted / all_measured);
}

static ls_status run_trial(trial *t, const char *path, const char *const *overrides, size_t override_count)
{
    char why[256];
    ls_run_file run;
    LS_TRY(ls_run_file_load(path, overrides, override_count, &t->arena, &run));
    const ls_session_options options = {.threads = t->threads, .is_rank = true};
    LS_TRY(ls_session_open(&t->arena, &run, &options, &t->session));
    if (!ls_calibration_find(&t->arena, t->session.queue, &t->calibration, why, sizeof why)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s", why);
    }
    const ls_plan *plan = &t->session.plan;
    const int64_t rows = plan->options.sequences * plan->options.length;
    LS_TRY(ls_state_init(&t->state, t->session.queue, LS_F32, &t->session.layout, plan->pieces));
    LS_TRY(ls_session_begin_weights(&t->session, &t->state));
    LS_TRY(ls_executor_init(&t->executor, t->session.queue, plan, plan->options.length));
    t->tokens = ls_arena_new(&t->arena, int32_t, rows);
    t->targets = ls_arena_new(&t->arena, int32_t, rows);
    t->losses = ls_arena_new(&t->arena, float, rows);
    t->best_s = ls_arena_new(&t->arena, double, plan->step_count);
    for (int64_t i = 0; i < rows; i++) {
        t->tokens[i] = (int32_t)(i * 7919 % plan->config.vocab);
        t->targets[i] = (int32_t)((i + 1) * 7919 % plan->config.vocab);
    }
    printf("%s, %u threads, %ld tokens\n", t->session.run.name, t->threads, (long)rows);
    LS_TRY(run_passes(t));
    print_rows(t);
    return LS_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_own_time RUN.yaml [threads] [passes] [key=value ...]\n");
        return 2;
    }
    trial t = {.threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 1,
               .passes = argc > 3 ? (uint32_t)atoi(argv[3]) : 5};
    const ls_status status =
        run_trial(&t, argv[1], (const char *const *)argv + 4, argc > 4 ? (size_t)argc - 4 : 0);
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
    }
    return status != LS_OK;
}

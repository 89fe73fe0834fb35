// SPDX-License-Identifier: Apache-2.0
/*
 * Fits constants of a software stack to measured runs. The values in src/planning/hardware/stack.c
 * were found with it.
 *
 *   bench_fit STACK GENERATION CONSTANT[=START]... [--file FILE]
 *
 * Takes the fully specified runs of the pair that are not held out (planning/accuracy/published.h),
 * and moves the named constants, in logarithms, to the least sum of squared logarithmic errors,
 * those beyond 10 % counted linearly (Levenberg and Marquardt, with a weak pull to the start).
 * Prints the constants, and the errors on the rows fitted and on those held out. FILE: another
 * table than the one that ships.
 */
#include "base/file.h"
#include "planning/accuracy/accuracy.h"
#include "planning/hardware/data_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONSTANTS_MAX = 16, ROWS_MAX = 4096, ROUNDS = 40 };
static const double linear_beyond = 0.1, pull = 0.05, step_of_log = 1e-3;

typedef struct fit {
    ls_published_run *runs[ROWS_MAX];
    size_t row_count, fitted_count; /* the fitted ones first */
    char names[CONSTANTS_MAX][64];
    double start[CONSTANTS_MAX];
    size_t constant_count;
} fit;

/* False when a constant is outside its range. */
static bool apply(const fit *f, const double *logs)
{
    char text[64 * CONSTANTS_MAX] = "";
    for (size_t i = 0; i < f->constant_count; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s=%.12g", i ? " " : "", f->names[i],
                 exp(logs[i]));
    }
    for (size_t i = 0; i < f->row_count; i++) {
        if (ls_stack_set(&f->runs[i]->stack, text) != LS_OK) {
            return false;
        }
    }
    return true;
}

static double log_error(const ls_published_run *run)
{
    ls_estimate estimate;
    ls_estimate_compute(&run->setting, &run->strategy, &estimate);
    return log(estimate.time.step_s / run->measured_step_s);
}

/* Residuals of the fitted rows and of the pull; returns their squares' sum. */
static double residuals(const fit *f, const double *logs, double *out)
{
    if (!apply(f, logs)) {
        return INFINITY;
    }
    double cost = 0;
    for (size_t i = 0; i < f->fitted_count; i++) {
        const double e = log_error(f->runs[i]), size = fabs(e);
        out[i] = size > linear_beyond ? copysign(sqrt(linear_beyond * (2 * size - linear_beyond)), e) : e;
        cost += out[i] * out[i];
    }
    for (size_t k = 0; k < f->constant_count; k++) {
        const double r = pull * (logs[k] - log(f->start[k]));
        out[f->fitted_count + k] = r;
        cost += r * r;
    }
    return cost;
}

/* Solves A x = b in place by elimination; A is symmetric and positive. */
static void solve(size_t n, double a[CONSTANTS_MAX][CONSTANTS_MAX], double *b)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t r = i + 1; r < n; r++) {
            const double factor = a[r][i] / a[i][i];
            for (size_t c = i; c < n; c++) {
                a[r][c] -= factor * a[i][c];
            }
            b[r] -= factor * b[i];
        }
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t c = i + 1; c < n; c++) {
            b[i] -= a[i][c] * b[c];
        }
        b[i] /= a[i][i];
    }
}

static void minimise(const fit *f, double *logs)
{
    const size_t n = f->constant_count, rows = f->fitted_count + n;
    double *now = calloc(rows, sizeof(double)), *moved = calloc(rows, sizeof(double));
    double *slopes = calloc(rows * n, sizeof(double));
    double damping = 1e-2, cost = residuals(f, logs, now);
    for (int round = 0; round < ROUNDS && damping < 1e6; round++) {
        for (size_t k = 0; k < n; k++) {
            logs[k] += step_of_log;
            if (isinf(residuals(f, logs, moved))) {
                memcpy(moved, now, rows * sizeof(double));
            }
            logs[k] -= step_of_log;
            for (size_t i = 0; i < rows; i++) {
                slopes[i * n + k] = (moved[i] - now[i]) / step_of_log;
            }
        }
        double a[CONSTANTS_MAX][CONSTANTS_MAX] = {0}, b[CONSTANTS_MAX] = {0}, tried[CONSTANTS_MAX];
        for (size_t i = 0; i < rows; i++) {
            for (size_t k = 0; k < n; k++) {
                b[k] -= slopes[i * n + k] * now[i];
                for (size_t l = 0; l < n; l++) {
                    a[k][l] += slopes[i * n + k] * slopes[i * n + l];
                }
            }
        }
        for (size_t k = 0; k < n; k++) {
            a[k][k] *= 1 + damping;
        }
        solve(n, a, b);
        for (size_t k = 0; k < n; k++) {
            tried[k] = logs[k] + fmax(-0.5, fmin(0.5, b[k]));
        }
        const double cost_tried = residuals(f, tried, moved);
        if (cost_tried < cost) {
            memcpy(logs, tried, n * sizeof(double));
            memcpy(now, moved, rows * sizeof(double));
            cost = cost_tried;
            damping /= 4;
        } else {
            damping *= 5;
        }
    }
    if (!apply(f, logs)) {
        fprintf(stderr, "bench_fit: %s\n", ls_error_text());
        exit(2);
    }
    free(now);
    free(moved);
    free(slopes);
}

static void print_errors(const fit *f, const char *what, size_t from, size_t to)
{
    double mean = 0, bias = 0, worst = 0;
    for (size_t i = from; i < to; i++) {
        const double e = expm1(log_error(f->runs[i]));
        mean += fabs(e) / (double)(to - from);
        bias += e / (double)(to - from);
        worst = fmax(worst, fabs(e));
    }
    printf("%-9s %5zu runs: mean error %.2f %%, bias %+.2f %%, worst %.1f %%\n", what, to - from, 100 * mean,
           100 * bias, 100 * worst);
}

static void take_runs(fit *f, const ls_published *published, const char *stack, const char *generation)
{
    for (int held_out = 0; held_out < 2; held_out++) {
        for (size_t i = 0; i < published->count && f->row_count < ROWS_MAX; i++) {
            ls_published_run *run = &published->runs[i];
            if (!run->left_out && run->measured_step_s > 0 && run->fully_specified &&
                run->held_out == held_out && strcmp(run->stack.name, stack) == 0 &&
                strcmp(run->setting.node->accelerator->generation, generation) == 0) {
                f->runs[f->row_count++] = run;
            }
        }
        f->fitted_count = held_out ? f->fitted_count : f->row_count;
    }
}

static ls_status load(ls_arena *arena, const char *path, ls_published *published)
{
    ls_catalogue *catalogue = ls_arena_new(arena, ls_catalogue, 1);
    LS_TRY(ls_catalogue_load(arena, NULL, 0, catalogue));
    if (!path) {
        return ls_published_shipped(arena, catalogue, published);
    }
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(arena, path, (size_t)1 << 28, &text, &bytes));
    return ls_published_parse(arena, catalogue, text, bytes, path, published);
}

int main(int argc, char **argv)
{
    static fit f;
    const char *path = NULL;
    for (int i = 3; i < argc && f.constant_count < CONSTANTS_MAX; i++) {
        if (strcmp(argv[i], "--file") == 0 && i + 1 < argc) {
            path = argv[++i];
        } else {
            snprintf(f.names[f.constant_count], sizeof(f.names[0]), "%.*s", (int)strcspn(argv[i], "="),
                     argv[i]);
            f.start[f.constant_count++] = strchr(argv[i], '=') ? atof(strchr(argv[i], '=') + 1) : 0;
        }
    }
    if (argc < 3) {
        fprintf(stderr, "usage: bench_fit STACK GENERATION CONSTANT=START... [--file FILE]\n");
        return 2;
    }
    ls_arena arena;
    ls_arena_init(&arena);
    ls_published published;
    if (load(&arena, path, &published) != LS_OK) {
        fprintf(stderr, "bench_fit: %s\n", ls_error_text());
        return 2;
    }
    take_runs(&f, &published, argv[1], argv[2]);
    double logs[CONSTANTS_MAX];
    for (size_t k = 0; k < f.constant_count; k++) {
        logs[k] = log(f.start[k]);
    }
    if (f.constant_count > 0) {
        minimise(&f, logs);
    }
    for (size_t k = 0; k < f.constant_count; k++) {
        printf("%s=%.4g ", f.names[k], exp(logs[k]));
    }
    printf("\n");
    print_errors(&f, "fitted", 0, f.fitted_count);
    print_errors(&f, "held out", f.fitted_count, f.row_count);
    ls_arena_release(&arena);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* calibrate: measures this machine, so that plans and runs can predict how long a step takes. */
#include "execution/calibrate/calibrate.h"

#include "base/file.h"
#include "cli/command.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

typedef struct calibrate_settings {
    const char *output, *dir;
    double seconds;
    bool quick, json;
} calibrate_settings;

static const ls_option calibrate_options[] = {
    LS_ROW_DURATION(
        calibrate_settings, seconds, seconds, "50s", 1, 3600,
        "maximum duration of the calibration; it ends earlier when the measured values no longer change"),
    LS_ROW_BOOL(calibrate_settings, quick,
                "measure only a few sizes of each operation, to finish in seconds; predictions are then less "
                "accurate"),
    LS_ROW_TEXT_OR(calibrate_settings, dir, ".", "DIR",
                   "folder on the disk to measure: the one that runs will write to"),
    LS_ROW_TEXT(calibrate_settings, output, "FILE",
                "file to write the result to; default $LOCKSTEP_HOME/calibration.json", .letter = 'o'),
    LS_ROW_JSON(calibrate_settings),
};

/* ---- while it runs ---- */

static void show_progress(void *context, const char *what, double passed_s, double most_s)
{
    FILE *out = context;
    enum { WIDTH = 24 };
    if (!isatty(fileno(out))) {
        return;
    }
    const int done = (int)fmin(WIDTH, WIDTH * passed_s / most_s);
    fprintf(out, "\rcalibrating [%.*s%*s] %2.0f s of at most %.0f  %-40s", done, "########################",
            WIDTH - done, "", passed_s, most_s, what);
    fflush(out);
}

static void end_progress(FILE *out)
{
    if (isatty(fileno(out))) {
        fprintf(out, "\r\033[K");
    }
}

/* ---- the result in words ---- */

/* GFLOP/s of the best square-ish product of training. */
static double gemm_gflops(const ls_calibration *c, const ls_calibration_setting *s)
{
    const double sizes[] = {1024, 512, 512};
    const double seconds = ls_calibration_seconds(c, s->threads, s->workers, LS_WORK_GEMM_NT, sizes);
    return 2e-9 * sizes[0] * sizes[1] * sizes[2] / seconds * s->workers;
}

static double copy_gbytes_ps(const ls_calibration *c, const ls_calibration_setting *s)
{
    const double elements = 4194304.0;
    return 2e-9 * elements * sizeof(float) /
           ls_calibration_seconds(c, s->threads, s->workers, LS_WORK_COPY, &elements) * s->workers;
}

static void print_calibration(const ls_calibration *c, const char *path)
{
    printf("%s, %u core%s, measured in %.0f s\n\n  processes x threads  products GFLOP/s  copy GB/s  launch "
           "us\n",
           c->device, c->cores, c->cores == 1 ? "" : "s", c->took_s);
    for (uint32_t i = 0; i < c->setting_count; i++) {
        const ls_calibration_setting *s = &c->settings[i];
        printf("  %9u x %-7u  %16.0f  %9.1f  %9.2f\n", s->workers, s->threads, gemm_gflops(c, s),
               copy_gbytes_ps(c, s), 1e6 * s->launch_s);
    }
    for (uint32_t i = 0; i < c->exchange_count; i++) {
        const ls_calibration_exchange *e = &c->exchanges[i];
        printf("%s  all-reduce, %u ranks, %.0f bytes: %.1f us\n", i == 0 ? "\n" : "", e->ranks, e->bytes,
               1e6 * e->seconds);
    }
    if (c->disk_write_bytes_ps > 0.0) {
        printf("\n  checkpoints: written at %.2f GB/s, read at %.2f GB/s\n", 1e-9 * c->disk_write_bytes_ps,
               1e-9 * c->disk_read_bytes_ps);
    }
    if (c->undisturbed < LS_CALIBRATION_QUIET) {
        printf("\ncalibration got %.0f %% of the processor time, other programs used the rest: measure again "
               "when the machine is idle\n",
               100.0 * c->undisturbed);
    }
    printf("\nsaved in %s; 'lockstep train' and 'lockstep plan' use it from now on\n", path);
}

/* ---- the command ---- */

static ls_status run_calibrate(const ls_invocation *invocation)
{
    const calibrate_settings *settings = invocation->settings;
    ls_arena *arena = invocation->arena;
    const char *path = settings->output[0] ? settings->output : ls_calibration_path(arena);
    if (!path) {
        return ls_fail(LS_ERR_INVALID, "neither LOCKSTEP_HOME nor HOME is set: give --output FILE");
    }
    const ls_calibrate_options options = {.seconds = settings->quick ? fmin(settings->seconds, 4.0)
                                                                     : settings->seconds,
                                          .quick = settings->quick,
                                          .folder = settings->dir,
                                          .progress = show_progress,
                                          .context = stderr};
    ls_calibration calibration;
    const ls_status status = ls_calibrate(arena, &options, &calibration);
    end_progress(stderr);
    LS_TRY(status);
    LS_TRY(ls_dir_create(ls_path_dirname(arena, path)));
    json_t *root = ls_calibration_to_json(&calibration);
    const ls_status saved = ls_json_save(path, root);
    if (saved == LS_OK && settings->json) {
        ls_print_json(root);
    } else if (saved == LS_OK) {
        print_calibration(&calibration, path);
    }
    json_decref(root);
    return saved;
}

const ls_command ls_command_calibrate = {
    .name = "calibrate",
    LS_WORDS("", 0, 0),
    .summary = "measure this machine for predictions",
    .details = "Measures the kernels of training (matrix products of many shapes, attention,\n"
               "norms, the optimizer), all-reduces and the disk, with one thread up to one per\n"
               "core, alone and on all cores at once. Takes less than a minute; run it when the\n"
               "machine is otherwise idle. Afterwards 'lockstep plan' knows this machine, and\n"
               "training runs store their prediction beside the measurement.\n"
               "\n"
               "Examples:\n"
               "  lockstep calibrate\n"
               "  lockstep calibrate --quick",
    LS_SETTINGS(calibrate_settings, calibrate_options),
    .run = run_calibrate,
};

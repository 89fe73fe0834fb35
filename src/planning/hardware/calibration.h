// SPDX-License-Identifier: Apache-2.0
/*
 * A calibration: how fast one machine runs the kernels of training, as `lockstep calibrate`
 * measured it.
 *
 * Kept as JSON in $LOCKSTEP_HOME/calibration.json (else ~/.lockstep/calibration.json):
 *
 *   {"format": "lockstep-calibration", "version": 1,
 *    "device": "AMD EPYC, avx512", "cores": 2, "kernels": "cpu-fma-3",
 *    "program": "0.1.0", "date": "2026-11-21T20:10:00Z", "took_s": 48.2,
 *    "undisturbed": 0.98, "quick": false,
 *    "settings": [{"threads": 1, "workers": 2, "launch_s": 1.1e-6,
 *                  "work": {"gemm_nn": {"m": [128, 1024], "n": [64, 256], "k": [64, 256],
 *                           "seconds": [8 numbers, k fastest]}, ...}}, ...],
 *    "exchanges": [{"ranks": 2, "bytes": 64, "seconds": 2.1e-6}, ...],
 *    "disk": {"write_bytes_ps": 9.0e8, "read_bytes_ps": 1.2e9}}
 *
 *   device, cores, kernels   a calibration of another machine or other kernels is not used
 *   undisturbed              share of the processor that the measurement got
 *   quick                    fewer sizes, a few seconds
 *   workers                  processes of `threads` threads each, at the same time; with several,
 *                            weights and gradients are in shared memory, as those of ranks are
 *   launch_s                 a kernel with nothing to do
 *   exchanges                all-reduces through shared memory
 *   disk                     checkpoints, as the program writes and reads them; 0: not measured
 *
 * `seconds` are those of one call in one process. Between the points of a grid, times are
 * interpolated on logarithmic scales in all axes, so a power law is exact; beyond the last point
 * they grow with the power of the work (ls_work_axis).
 *
 * Pure. Ownership: everything lives in the arena of ls_calibration_parse. Read-only afterwards: any
 * number of threads.
 */
#ifndef LS_PLANNING_HARDWARE_CALIBRATION_H
#define LS_PLANNING_HARDWARE_CALIBRATION_H

#include "base/arena.h"
#include "base/json.h"

/* What is measured: the kernels of compute/kernels/, with the sizes that their time depends on.
 * Elements are those of the output. */
typedef enum ls_work {
    /* C (m, n) = A (m, k) B (k, n): neither operand transposed in memory */
    LS_WORK_GEMM_NN,
    /* B is (n, k) in memory */
    LS_WORK_GEMM_NT,
    /* A is (k, m) in memory: weight gradients, k tokens */
    LS_WORK_GEMM_TN,
    LS_WORK_GEMM_TN_ADD, /* the same, added to what is there */
    /* one head of one sequence: length, head size; per head, with many of them at hand */
    LS_WORK_ATTENTION_FORWARD,
    LS_WORK_ATTENTION_BACKWARD,
    LS_WORK_NORM_FORWARD, /* elements, columns */
    LS_WORK_ADD_NORM_FORWARD,
    LS_WORK_NORM_BACKWARD,
    /* elements, columns (the vocabulary) */
    LS_WORK_CROSS_ENTROPY,
    /* elements, columns: gradients of biases */
    LS_WORK_COLUMN_SUMS,
    LS_WORK_EMBEDDING_FORWARD,
    LS_WORK_EMBEDDING_BACKWARD, /* elements, columns */
    LS_WORK_ROTARY,             /* from here on: elements */
    LS_WORK_GELU_FORWARD,
    LS_WORK_GELU_BACKWARD,
    LS_WORK_SWIGLU_FORWARD,
    LS_WORK_SWIGLU_BACKWARD,
    LS_WORK_ADD,
    LS_WORK_FILL,
    LS_WORK_COPY,
    LS_WORK_TREE_SUM, /* elements, inputs: sums of gradient buffers, with their squares */
    LS_WORK_ADAMW,
    LS_WORK_HASH, /* of the state, which is guarded between steps */
    LS_WORK_COUNT
} ls_work;

enum { LS_WORK_AXES_MAX = 3, LS_WORK_POINTS_MAX = 8 };

typedef struct ls_work_axis {
    const char *name; /* "m" */
    double power;     /* beyond the last point, time grows with size^power */
} ls_work_axis;

typedef struct ls_work_info {
    const char *name; /* "gemm_nn" */
    uint32_t axis_count;
    ls_work_axis axes[LS_WORK_AXES_MAX];
} ls_work_info;
const ls_work_info *ls_work_info_of(ls_work work);

typedef struct ls_work_grid {
    uint32_t counts[LS_WORK_AXES_MAX]; /* points per axis; 1 for axes beyond those of the work */
    double points[LS_WORK_AXES_MAX][LS_WORK_POINTS_MAX]; /* ascending */
    /* of each combination, the last axis fastest, > 0 */
    double *seconds;
} ls_work_grid;
uint32_t ls_work_grid_size(const ls_work_grid *grid);

/* Everything measured with this many processes of this many threads at once. */
typedef struct ls_calibration_setting {
    uint32_t threads, workers;
    double launch_s;
    ls_work_grid work[LS_WORK_COUNT];
} ls_calibration_setting;

typedef struct ls_calibration_exchange {
    uint32_t ranks;
    double bytes, seconds;
} ls_calibration_exchange;

typedef struct ls_calibration {
    const char *device, *kernels, *program, *date;
    uint32_t cores;
    double took_s, undisturbed;       /* undisturbed: 0..1 */
    bool quick;                       /* few sizes, each measured a few times */
    ls_calibration_setting *settings; /* threads = workers = 1 is among them */
    uint32_t setting_count;
    ls_calibration_exchange *exchanges;
    uint32_t exchange_count;
    double disk_write_bytes_ps, disk_read_bytes_ps;
} ls_calibration;

/* `name` stands for the file in errors. Errors: LS_ERR_DATA: not a calibration, of another version,
 * with a number out of its range. */
LS_MUST_CHECK ls_status ls_calibration_parse(ls_arena *arena, const json_t *root, const char *name,
                                             ls_calibration *calibration_out);
/* The same from a file. Errors: also those of ls_json_load. */
LS_MUST_CHECK ls_status ls_calibration_load(ls_arena *arena, const char *path,
                                            ls_calibration *calibration_out);
/* As it is stored; the caller drops it. */
json_t *ls_calibration_to_json(const ls_calibration *calibration);

/* Whether it was measured on this machine and with these kernels (ls_queue_device_name,
 * ls_queue_determinism_class); else `why` says what differs. */
bool ls_calibration_is_of(const ls_calibration *calibration, const char *device, uint32_t cores,
                          const char *kernels, char *why_out, size_t why_bytes);

/* Below this share of the time, figures with several threads are not reliable. */
#define LS_CALIBRATION_QUIET 0.9

/* Writes why the calibration is doubtful: "quick calibration on a busy machine (it had 36 % of the
 * time): calibrate again". False: it is not, and the text is "". */
bool ls_calibration_doubt(const ls_calibration *calibration, char *text_out, size_t text_bytes);

/* The multiples of a predicted step between which the step may lie for these reasons alone; 1 and 1
 * where there are none. Times measured with a share of the processor may be too long by that share;
 * few sizes add half as much again either way. */
void ls_calibration_spread(const ls_calibration *calibration, double *low_out, double *high_out);

/* Seconds of one call on a grid. sizes: one for each axis, > 0. */
double ls_work_grid_seconds(const ls_work_info *info, const ls_work_grid *grid, const double *sizes);

/* Seconds of one call in a process of `threads` threads while `workers` such processes (this one
 * included) do the same. Thread and worker counts that were not measured are interpolated; more
 * than there are cores share the cores. */
double ls_calibration_seconds(const ls_calibration *calibration, uint32_t threads, uint32_t workers,
                              ls_work work, const double *sizes);

/* Seconds of an all-reduce of `bytes` by `ranks` ranks of this machine; 0 when none was
 * measured. */
double ls_calibration_exchange_s(const ls_calibration *calibration, uint32_t ranks, double bytes);

#endif

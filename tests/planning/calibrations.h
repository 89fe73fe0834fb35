// SPDX-License-Identifier: Apache-2.0
/* Calibrations made by hand: machines whose kernels follow power laws, so that every prediction can
 * be worked out on paper. */
#ifndef LS_TESTS_PLANNING_CALIBRATIONS_H
#define LS_TESTS_PLANNING_CALIBRATIONS_H

#include "planning/hardware/calibration.h"

#include <math.h>

/* A grid of 2 points on each axis, 16 and 256, with seconds = scale * product of size^power. */
static inline ls_work_grid power_law(ls_arena *arena, ls_work work, double scale)
{
    const ls_work_info *info = ls_work_info_of(work);
    ls_work_grid grid = {.counts = {1, 1, 1}};
    for (uint32_t axis = 0; axis < info->axis_count; axis++) {
        grid.counts[axis] = 2;
        grid.points[axis][0] = 16.0;
        grid.points[axis][1] = 256.0;
    }
    const uint32_t size = ls_work_grid_size(&grid);
    grid.seconds = ls_arena_new(arena, double, size);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rest = i;
        grid.seconds[i] = scale;
        for (uint32_t axis = info->axis_count; axis-- > 0; rest /= 2) {
            grid.seconds[i] *= pow(grid.points[axis][rest % 2], info->axes[axis].power);
        }
    }
    return grid;
}

/* All work at `scale` seconds per unit. */
static inline ls_calibration_setting power_setting(ls_arena *arena, uint32_t threads, uint32_t workers,
                                                   double scale)
{
    ls_calibration_setting setting = {.threads = threads, .workers = workers};
    for (int work = 0; work < LS_WORK_COUNT; work++) {
        setting.work[work] = power_law(arena, (ls_work)work, scale);
    }
    return setting;
}

/* Four cores: one thread at 1 ns a unit, 2 ns with four at once; four threads at 0.25 ns. */
static inline ls_calibration power_machine(ls_arena *arena)
{
    ls_calibration c = {.device = "Paper, generic",
                        .kernels = "cpu-fma-2",
                        .program = "0.1.0",
                        .date = "2026-01-02T03:04:05Z",
                        .cores = 4,
                        .took_s = 1.5,
                        .undisturbed = 1.0,
                        .setting_count = 3,
                        .exchange_count = 2,
                        .disk_write_bytes_ps = 1e9,
                        .disk_read_bytes_ps = 2e9};
    c.settings = ls_arena_new(arena, ls_calibration_setting, 3);
    c.settings[0] = power_setting(arena, 1, 1, 1e-9);
    c.settings[1] = power_setting(arena, 1, 4, 2e-9);
    c.settings[2] = power_setting(arena, 4, 1, 0.25e-9);
    c.exchanges = ls_arena_new(arena, ls_calibration_exchange, 2);
    c.exchanges[0] = (ls_calibration_exchange){.ranks = 2, .bytes = 64, .seconds = 1e-6};
    c.exchanges[1] = (ls_calibration_exchange){.ranks = 2, .bytes = 1064, .seconds = 3e-6};
    return c;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* Resizing: asks the run through `lockstep resize`, as a user would. */
#include "orchestration/engines/local/local_internal.h"

#include <stdio.h>
#include <unistd.h>

enum { RESIZE_TRIES = 20, RESIZE_AGAIN_MS = 500 };

static void ask_resize(track *t);

static void resize_again(void *context)
{
    track *t = context;
    t->resize_timer = 0;
    if (!t->told_end) {
        ask_resize(t);
    }
}

static void resizer_exited(void *context, ls_env_id process, int exit_code)
{
    track *t = ls_track_by_process(context, process);
    if (!t) {
        return;
    }
    t->resizer = 0;
    if (exit_code == 0) {
        t->ranks = t->resize_to;
        ls_track_limit(t, t->ranks);
        ls_local_progress_restart(&t->progress);
        ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = t->resize_to});
    } else if (exit_code == 2 && ++t->resize_tries < RESIZE_TRIES && !t->told_end) {
        /* it may not be listening yet */
        t->resize_timer = ls_env_timer_set(env_of(t), RESIZE_AGAIN_MS * UINT64_C(1000000), resize_again, t);
    } else {
        char text[64];
        snprintf(text, sizeof text, "'lockstep resize' ended with exit code %d", exit_code);
        ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_RESIZED, .ranks = t->ranks, .text = text});
    }
}

static void ask_resize(track *t)
{
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%u", t->resize_to);
    const char *const extra[] = {"--resize", t->run_dir, "--ranks", ranks, NULL};
    if (ls_track_spawn(t, NULL, extra, resizer_exited, &t->resizer) != 0) {
        t->resizer = 0;
        ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_RESIZED,
                                              .ranks = t->ranks,
                                              .text = "cannot start 'lockstep resize'"});
    }
}

void ls_track_resize(track *t, uint32_t ranks)
{
    t->resize_to = ranks;
    t->resize_tries = 0;
    if (!t->resizer && !t->resize_timer) {
        ask_resize(t);
    }
}

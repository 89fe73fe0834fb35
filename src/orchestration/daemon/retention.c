// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/retention.h"

#include "base/assert.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_NS (UINT64_C(1000000000))       /* behind the start */
#define MORE_NS  (UINT64_C(100000000))        /* when there was more than one look takes */
#define NEXT_NS  (UINT64_C(600) * 1000000000) /* else */

enum { FOUND_MAX = 256, GONE_MAX = 32, PATH_BYTES = LS_JOB_PATH_BYTES_MAX + 32 };

struct ls_retention {
    ls_retention_settings settings;
    char *home;
    ls_env_id timer, process; /* 0: none */
    uint64_t gone[GONE_MAX];  /* whose folders are being removed */
    uint32_t gone_count;
};

static void look(void *context);

static void look_in(ls_retention *r, uint64_t delay_ns)
{
    r->timer = ls_env_timer_set(r->settings.env, delay_ns, look, r);
}

/* A folder that could not be removed keeps its row: both are tried again. */
static void folders_are_gone(void *context, ls_env_id process, int exit_code)
{
    ls_retention *r = context;
    (void)process;
    r->process = 0;
    if (exit_code != 0) {
        ls_log_warn("folders of ended jobs under %s/jobs can't be removed (rm ended with %d)", r->home,
                    exit_code);
    } else if (ls_job_store_remove(r->settings.store, r->gone, r->gone_count) != LS_OK) {
        ls_log_warn("ended jobs can't be forgotten: %s", ls_error_text());
    } else {
        ls_log_info("%u ended jobs were forgotten, %" PRIu64 " to %" PRIu64, r->gone_count, r->gone[0],
                    r->gone[r->gone_count - 1]);
        look_in(r, MORE_NS);
        return;
    }
    look_in(r, NEXT_NS);
}

/* rm goes through folders without following links, whatever happens to them meanwhile. */
static int remove_folders(ls_retention *r)
{
    static char paths[GONE_MAX][PATH_BYTES];
    const char *argv[GONE_MAX + 4] = {"/bin/rm", "-rf", "--"};
    for (uint32_t i = 0; i < r->gone_count; i++) {
        snprintf(paths[i], PATH_BYTES, "%s/jobs/%" PRIu64, r->home, r->gone[i]);
        argv[i + 3] = paths[i];
    }
    return ls_env_process_start(r->settings.env, argv, folders_are_gone, r, &r->process);
}

static void look(void *context)
{
    ls_retention *r = context;
    const double now_s = ls_env_wall_s(r->settings.env);
    uint64_t found[FOUND_MAX];
    uint32_t count = 0;
    r->timer = 0;
    r->gone_count = 0;
    if (ls_job_store_expired(r->settings.store, r->settings.jobs_kept,
                             r->settings.time_s > 0.0 ? now_s - r->settings.time_s : 0.0, FOUND_MAX, found,
                             &count) != LS_OK) {
        ls_log_warn("can't look for jobs to forget: %s", ls_error_text());
    }
    for (uint32_t i = 0; i < count && r->gone_count < GONE_MAX; i++) {
        if (ls_controller_let_go(r->settings.controller, found[i])) {
            r->gone[r->gone_count++] = found[i];
        }
    }
    if (r->gone_count == 0 || remove_folders(r) != 0) {
        look_in(r, NEXT_NS);
    }
}

ls_retention *ls_retention_create(const ls_retention_settings *settings)
{
    ls_retention *r = calloc(1, sizeof *r);
    LS_ASSERT(r && "out of memory for a daemon");
    r->settings = *settings;
    r->home = strdup(settings->home);
    LS_ASSERT(r->home && "out of memory for a daemon");
    look_in(r, FIRST_NS);
    return r;
}

void ls_retention_destroy(ls_retention *r)
{
    if (r) {
        if (r->timer) {
            ls_env_timer_cancel(r->settings.env, r->timer);
        }
        free(r->home);
        free(r);
    }
}

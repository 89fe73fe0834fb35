// SPDX-License-Identifier: Apache-2.0
/* rank: one process of `train --ranks N`, started by its agent. */
#include "execution/elastic/host/rank.h"
#include "base/log.h"
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

typedef struct rank_settings {
    const char *segment, *run_dir;
    uint64_t rank, threads;
} rank_settings;

static const ls_option rank_options[] = {
    LS_ROW_TEXT(rank_settings, segment, "PATH",
                "path of the run's shared memory on this host: /proc/PID/fd/N of the agent process"),
    LS_ROW_TEXT(rank_settings, run_dir, "DIR", "folder of the run"),
    LS_ROW_U64(rank_settings, rank, "0", 0, 1023, "number of this rank"),
    LS_ROW_U64(rank_settings, threads, "1", 1, 256, "number of threads of this rank"),
};

/* Log lines of this process name the rank. */
static void name_log(uint64_t rank)
{
    const char *level = getenv("LOCKSTEP_LOG");
    const bool debug = level && strcmp(level, "debug") == 0, info = level && strcmp(level, "info") == 0;
    ls_log_init(&(ls_log_settings){.level = debug  ? LS_LOG_DEBUG
                                            : info ? LS_LOG_INFO
                                                   : LS_LOG_WARN,
                                   .rank = (int)rank});
}

static ls_status run_rank(const ls_invocation *invocation)
{
    const rank_settings *settings = invocation->settings;
    if (strncmp(settings->segment, "/proc/", 6) != 0) {
        return ls_fail(LS_ERR_INVALID, "'lockstep rank' is started by Lockstep itself; to train with N "
                                       "ranks, use 'lockstep train CONFIG --ranks N'");
    }
    name_log(settings->rank);
    const ls_status status = ls_rank_run(&(ls_rank_options){.segment = settings->segment,
                                                            .run_dir = settings->run_dir,
                                                            .rank = (uint32_t)settings->rank,
                                                            .threads = settings->threads});
    ls_error_clear(); /* the error is in the rank's slot, and the trainer prints it */
    return status;
}

const ls_command ls_command_rank = {
    .name = "rank",
    .words = "",
    .summary = "run one process of train --ranks N",
    .details = "Started once per rank by 'lockstep train CONFIG --ranks N'. Not meant to be\n"
               "started by hand.",
    .hidden = true,
    LS_SETTINGS(rank_settings, rank_options),
    .run = run_rank,
};

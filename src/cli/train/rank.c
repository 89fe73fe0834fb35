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

#define FIELD(name) .offset = offsetof(rank_settings, name)
static const ls_option rank_options[] = {
    {.key = "segment",
     .type = LS_OPTION_STRING,
     FIELD(segment),
     .default_text = "\"\"",
     .value_name = "PATH",
     .help = "path of the run's shared memory on this host: /proc/PID/fd/N of the agent process"},
    {.key = "run_dir",
     .type = LS_OPTION_STRING,
     FIELD(run_dir),
     .default_text = "\"\"",
     .value_name = "DIR",
     .help = "folder of the run"},
    {.key = "rank",
     .type = LS_OPTION_U64,
     FIELD(rank),
     .default_text = "0",
     .min = 0,
     .max = 1023,
     .help = "number of this rank"},
    {.key = "threads",
     .type = LS_OPTION_U64,
     FIELD(threads),
     .default_text = "1",
     .min = 1,
     .max = 256,
     .help = "number of threads of this rank"},
};
static const ls_option_table rank_table = LS_OPTIONS(rank_options);

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
    .options = &rank_table,
    .settings_bytes = sizeof(rank_settings),
    .run = run_rank,
};

// SPDX-License-Identifier: Apache-2.0
/* rank: a process of `train --ranks N`, started by its agent; not for people. */
#include "execution/elastic/rank.h"
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
     .help = "the host segment, /proc/PID/fd/N of the agent"},
    {.key = "run_dir",
     .type = LS_OPTION_STRING,
     FIELD(run_dir),
     .default_text = "\"\"",
     .value_name = "DIR",
     .help = "the run"},
    {.key = "rank",
     .type = LS_OPTION_U64,
     FIELD(rank),
     .default_text = "0",
     .min = 0,
     .max = 1023,
     .help = "number of this rank in the run"},
    {.key = "threads",
     .type = LS_OPTION_U64,
     FIELD(threads),
     .default_text = "1",
     .min = 1,
     .max = 256,
     .help = "threads"},
};
static const ls_option_table rank_table = LS_OPTIONS(rank_options);

/* Its log lines say which rank they are of. */
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
        return ls_fail(LS_ERR_INVALID,
                       "a rank is started by its agent: use 'lockstep train CONFIG --ranks N'");
    }
    name_log(settings->rank);
    const ls_status status = ls_rank_run(&(ls_rank_options){.segment = settings->segment,
                                                            .run_dir = settings->run_dir,
                                                            .rank = (uint32_t)settings->rank,
                                                            .threads = settings->threads});
    ls_error_clear(); /* the slot has it, and the trainer says it */
    return status;
}

const ls_command ls_command_rank = {
    .name = "rank",
    .words = "",
    .summary = "a process of train --ranks N",
    .details = "Started by 'lockstep train CONFIG --ranks N', once per rank. Not for people.",
    .hidden = true,
    .options = &rank_table,
    .settings_bytes = sizeof(rank_settings),
    .run = run_rank,
};

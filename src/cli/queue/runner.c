// SPDX-License-Identifier: Apache-2.0
/* runner: started by the daemon for each start of a job. */
#include "orchestration/engines/local/runner.h"
#include "base/json.h"
#include "cli/command.h"
#include "orchestration/engines/run_result.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct runner_settings {
    uint64_t ranks;
    const char *resize, *group;
} runner_settings;

static const ls_option runner_options[] = {
    LS_ROW_TEXT(
        runner_settings, resize, "RUN",
        "run directory of a run whose number of ranks is changed to --ranks, instead of starting a job"),
    LS_ROW_TEXT(runner_settings, group, "PATH",
                "Linux control group (cgroup) in which the job's processes are started"),
    LS_ROW_U64(runner_settings, ranks, "0", 0, 1 << 20, "new number of ranks of the run that --resize names"),
};

/* Runs 'lockstep resize' as the job's user. */
static ls_status resize(const runner_settings *settings)
{
    char program[4096], ranks[24];
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes <= 0) {
        return ls_fail(LS_ERR_IO, "can't find the path of this program");
    }
    program[bytes] = '\0';
    snprintf(ranks, sizeof ranks, "%llu", (unsigned long long)settings->ranks);
    /* An empty environment: that of the daemon would be visible to the user. */
    char *const environment[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, NULL};
    execle(program, program, "resize", settings->resize, "--ranks", ranks, "--timeout", "600", (char *)NULL,
           environment);
    return ls_fail(LS_ERR_IO, "can't start %s", program);
}

/* Undoes the raised limit of the daemon (cli/queue/up.c). */
static void restore_file_limit(void)
{
    struct rlimit files;
    const char *before = getenv("LOCKSTEP_FILES");
    const unsigned long long soft = before ? strtoull(before, NULL, 10) : 0;
    if (soft > 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 && soft <= files.rlim_max) {
        files.rlim_cur = soft;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static ls_status run_runner(const ls_invocation *invocation)
{
    const runner_settings *settings = invocation->settings;
    char *end = NULL;
    const unsigned long epoch = strtoul(invocation->words[1], &end, 10);
    if (*end != '\0' || epoch < 1 || epoch > INT32_MAX || invocation->words[0][0] != '/') {
        return ls_fail(LS_ERR_INVALID, "usage: runner FOLDER EPOCH, with the absolute path of the job's "
                                       "folder and the number of its start, counted from 1");
    }
    restore_file_limit();
    if (settings->resize[0]) {
        return resize(settings);
    }
    const ls_runner_options options = {
        .folder = invocation->words[0],
        .epoch = (uint32_t)epoch,
        .group = settings->group[0] ? settings->group : NULL,
    };
    return ls_runner_run(&options);
}

const ls_command ls_command_runner = {
    .name = "runner",
    LS_WORDS("FOLDER EPOCH", 2, 2),
    .summary = "run one start of a job",
    .details = "Started by the queue's daemon and able to outlive it: reads the ticket of the\n"
               "epoch, starts the ranks, and writes down how they ended.",
    .hidden = true,
    LS_SETTINGS(runner_settings, runner_options),
    .run = run_runner,
};

/* ---- run-result ---- */

static ls_status run_run_result(const ls_invocation *invocation)
{
    const ls_job_result result = ls_run_result_read(invocation->words[0], strtod(invocation->words[1], NULL));
    json_t *json = ls_job_result_json(&result);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    printf("%s\n", text ? text : "{}");
    free(text);
    json_decref(json);
    return LS_OK;
}

static const ls_option_table no_options;

const ls_command ls_command_run_result = {
    .name = "run-result",
    LS_WORDS("RUN SINCE", 2, 2),
    .summary = "print what a start of a training run came to",
    .details = "Called at the end of the batch script of a job on Slurm. SINCE: when the start\n"
               "began, in seconds since 1970.",
    .hidden = true,
    .options = &no_options,
    .run = run_run_result,
};

// SPDX-License-Identifier: Apache-2.0
/* train and report. */
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "execution/elastic/launch.h"
#include "execution/train/trainer.h"
#include "planning/run_file.h"
#include "telemetry/report.h"
#include "telemetry/summary.h"

#include <string.h>
#include <unistd.h>

typedef struct train_settings {
    ls_option_strings set;
    const char *run_dir;
    const char *hosts, *coordinator, *token_file;
    uint64_t steps, ranks, threads, local_ranks, start_timeout;
    bool resume, fresh, dry_run, json, keys;
} train_settings;

#define FIELD(name) .offset = offsetof(train_settings, name)

static const ls_option train_options[] = {
    {.key = "set",
     .type = LS_OPTION_STRINGS,
     FIELD(set),
     .default_text = "[]",
     .value_name = "KEY=VALUE",
     .help = "change a key of the run file; may be repeated"},
    {.key = "steps",
     .type = LS_OPTION_U64,
     FIELD(steps),
     .default_text = "0",
     .min = 0,
     .max = LS_OPTION_U64_MAX,
     .help = "stop after step N, with the learning-rate schedule as it is; 0: at the end of the run file's "
             "steps"},
    {.key = "threads",
     .type = LS_OPTION_U64,
     FIELD(threads),
     .default_text = "0",
     .min = 0,
     .max = 256,
     .help = "threads per rank; 0: as the run file says, else cores / ranks. The result has the same bits "
             "for any number"},
    {.key = "ranks",
     .type = LS_OPTION_U64,
     FIELD(ranks),
     .default_text = "auto",
     .allow_auto = true,
     .min = 1,
     .max = 1 << 20,
     .help = "processes that compute, at most train.leaves; auto: as the run file says. The result has the "
             "same bits for any number"},
    {.key = "hosts",
     .type = LS_OPTION_STRING,
     FIELD(hosts),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "train on several hosts, this one among them: lines 'host [slots=N] [address]'. Agents are "
             "started over "
             "ssh (LOCKSTEP_SSH: another command)"},
    {.key = "coordinator",
     .type = LS_OPTION_STRING,
     FIELD(coordinator),
     .default_text = "\"\"",
     .value_name = "HOST:PORT",
     .help = "an address of this host to listen at for 'lockstep agent' of others"},
    {.key = "local_ranks",
     .type = LS_OPTION_U64,
     FIELD(local_ranks),
     .default_text = "0",
     .min = 0,
     .max = 256,
     .help = "with --coordinator: how many of --ranks this host has"},
    {.key = "token_file",
     .type = LS_OPTION_STRING,
     FIELD(token_file),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "what agents must know, -: the first line of stdin; default: LOCKSTEP_TOKEN"},
    {.key = "start_timeout",
     .type = LS_OPTION_U64,
     FIELD(start_timeout),
     .default_text = "0",
     .min = 0,
     .max = 86400,
     .help =
         "seconds for other hosts to come (and a quarter more for all ranks to be ready); 0: at least 60"},
    {.key = "run_dir",
     .type = LS_OPTION_STRING,
     FIELD(run_dir),
     .default_text = "\"\"",
     .value_name = "DIR",
     .help = "where the run lives; default runs/<name>"},
    {.key = "resume",
     .type = LS_OPTION_BOOL,
     FIELD(resume),
     .default_text = "false",
     .help = "resume; an error when there is nothing to resume"},
    {.key = "fresh",
     .type = LS_OPTION_BOOL,
     FIELD(fresh),
     .default_text = "false",
     .help = "start over; what is in the run directory is moved aside"},
    {.key = "dry_run",
     .type = LS_OPTION_BOOL,
     FIELD(dry_run),
     .default_text = "false",
     .help = "print model, memory plan and FLOPs, and stop"},
    {.key = "json",
     .type = LS_OPTION_BOOL,
     FIELD(json),
     .default_text = "false",
     .help = "print one JSON document at the end; progress goes to stderr"},
    {.key = "keys",
     .type = LS_OPTION_BOOL,
     FIELD(keys),
     .default_text = "false",
     .help = "list every key of the run file with its range, default and meaning, and stop"},
};
static const ls_option_table train_table = LS_OPTIONS(train_options);

/* Monotonic time at which the process began, from the kernel's books. */
static double process_start_s(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    const size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    text[got] = '\0';
    const char *behind_name = strrchr(text, ')');
    unsigned long long ticks = 0;
    /* starttime is field 22, the 20th behind the name. */
    if (!behind_name ||
        sscanf(behind_name + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1) {
        return ls_clock_monotonic_s();
    }
    struct timespec boot;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const double boot_s = (double)boot.tv_sec + 1e-9 * (double)boot.tv_nsec;
    const double age_s = boot_s - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return ls_clock_monotonic_s() - (age_s > 0.0 ? age_s : 0.0);
}

static ls_status print_keys(void)
{
    ls_text text = {0};
    ls_options_append_help(ls_run_file_table(), "", &text);
    fputs(ls_text_string(&text), stdout);
    ls_text_release(&text);
    return LS_OK;
}

static void print_result(const train_settings *settings, const json_t *result)
{
    if (settings->json) {
        ls_print_json(result);
    } else if (!settings->dry_run) {
        ls_summary_print(result, stdout);
    }
}

/* Which hosts take part, and what this process is among them. */
static ls_status read_launch(const ls_invocation *invocation, ls_launch *launch_out)
{
    const train_settings *settings = invocation->settings;
    const ls_launch_options options = {
        .hosts_file = settings->hosts,
        .coordinator = settings->coordinator,
        .token_file = settings->token_file,
        .ranks = settings->ranks == LS_AUTO_U64 ? 0 : settings->ranks,
        .local_ranks = settings->local_ranks,
    };
    if (settings->dry_run) {
        *launch_out = (ls_launch){.ranks = options.ranks};
        return LS_OK;
    }
    return ls_launch_read(invocation->arena, &options, launch_out);
}

static ls_status run_train(const ls_invocation *invocation)
{
    const train_settings *settings = invocation->settings;
    if (settings->keys) {
        return print_keys();
    }
    if (invocation->word_count == 0) {
        return ls_fail(LS_ERR_INVALID, "missing run file: usage is 'lockstep train CONFIG [options]'");
    }
    if (settings->resume && settings->fresh) {
        return ls_fail(LS_ERR_INVALID, "--resume and --fresh contradict each other: choose one");
    }
    ls_launch launch;
    LS_TRY(read_launch(invocation, &launch));
    if (launch.role == LS_LAUNCH_AGENT) {
        return ls_host_agent_run(&launch.agent);
    }
    const ls_train_options options = {
        .config = invocation->words[0],
        .overrides = settings->set.items,
        .override_count = (size_t)settings->set.count,
        .run_dir = settings->run_dir[0] ? settings->run_dir : NULL,
        .mode = settings->resume  ? LS_RUN_RESUME
                : settings->fresh ? LS_RUN_FRESH
                                  : LS_RUN_CONTINUE,
        .threads = settings->threads,
        .ranks = launch.ranks,
        .hosts = launch.hosts,
        .start_timeout_s = (double)settings->start_timeout,
        .stop_step = settings->steps,
        .dry_run = settings->dry_run,
        .out = settings->json ? stderr : stdout,
        .start_s = process_start_s(),
    };
    json_t *result = NULL;
    const ls_status status = ls_train(&options, &result);
    if (result) {
        print_result(settings, result);
        json_decref(result);
    }
    return status;
}

const ls_command ls_command_train = {
    .name = "train",
    .words = "CONFIG",
    .summary = "train a model as a run file says",
    .details = "CONFIG is a run file in YAML ('lockstep train --keys' lists what can be in it). The run "
               "lives in runs/<name>: run.yaml,\n"
               "metrics.jsonl, events.jsonl, checkpoints/, tb/ and report.html. Run the same command again "
               "to resume: the result has the\n"
               "same bits as a run that was never interrupted. Ctrl-C saves and exits with 130, SIGTERM "
               "saves and exits with 75.\n"
               "A finished run prints its result again.\n"
               "\nExamples:\n"
               "  lockstep train mine.yaml --ranks 4                      four processes on this machine; 1 "
               "to train.leaves give the same bits\n"
               "  lockstep train mine.yaml --ranks 4 --dry-run            what each number of ranks costs, "
               "in idle time and in memory\n"
               "  lockstep train mine.yaml --ranks 8 --hosts hosts.txt    this host and others, over ssh; a "
               "line is: host [slots=N] [address]\n"
               "  lockstep train mine.yaml --ranks 8 --local-ranks 4 --coordinator 10.0.0.1:4711    others "
               "join with 'lockstep agent'\n"
               "  srun --ntasks 8 lockstep train mine.yaml                ranks as srun, torchrun or mpirun "
               "started them",
    .words_min = 0,
    .words_max = 1,
    .options = &train_table,
    .settings_bytes = sizeof(train_settings),
    .run = run_train,
};

/* ---- report ---- */

typedef struct report_settings {
    const char *html;
} report_settings;

static const ls_option report_options[] = {
    {.key = "html",
     .letter = 'o',
     .type = LS_OPTION_STRING,
     .offset = offsetof(report_settings, html),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "where the page goes; default RUN/report.html"},
};
static const ls_option_table report_table = LS_OPTIONS(report_options);

static ls_status run_report(const ls_invocation *invocation)
{
    const report_settings *settings = invocation->settings;
    const char *dir = invocation->words[0];
    const char *path =
        settings->html[0] ? settings->html : ls_path_join(invocation->arena, dir, "report.html");
    LS_TRY(ls_report_write(dir, path));
    printf("%s\n", path);
    return LS_OK;
}

const ls_command ls_command_report = {
    .name = "report",
    .words = "RUN",
    .summary = "a page with pictures of a run",
    .details = "Writes one self-contained HTML page: loss, learning rate, gradient norm, speed, where the "
               "time went, samples.\n"
               "Works while the run is going on.",
    .words_min = 1,
    .words_max = 1,
    .options = &report_table,
    .settings_bytes = sizeof(report_settings),
    .run = run_report,
};

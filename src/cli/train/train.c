// SPDX-License-Identifier: Apache-2.0
/* train: trains a model as a run file describes. */
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "config/run_file.h"
#include "execution/elastic/hosts/launch.h"
#include "execution/run/trainer.h"
#include "telemetry/record/summary.h"

#include <string.h>
#include <unistd.h>

typedef struct train_settings {
    ls_option_strings set;
    const char *run_dir;
    const char *hosts, *coordinator, *token_file;
    uint64_t steps, ranks, threads, local_ranks, start_timeout;
    bool resume, fresh, dry_run, json, keys;
} train_settings;

static const ls_option train_options[] = {
    LS_ROW_TEXTS(train_settings, set, "KEY=VALUE", "override a key of the run file; may be repeated"),
    LS_ROW_U64(train_settings, steps, "0", 0, LS_OPTION_U64_MAX,
               "stop after step N; the learning-rate schedule remains that of the whole run; 0, or more "
               "steps than the run has: train all its steps"),
    LS_ROW_U64(train_settings, threads, "0", 0, 256,
               "number of threads per rank; 0: as in the run file, otherwise cores / ranks. Any number gives "
               "the same bits"),
    LS_ROW_U64(train_settings, ranks, "auto", 1, 1 << 20,
               "number of processes that compute (ranks), at most train.leaves; auto: as in the run file. "
               "Any number gives the same bits",
               .allow_auto = true),
    LS_ROW_TEXT(
        train_settings, hosts, "FILE",
        "train on the hosts listed in FILE, this one included; each line is 'host [slots=N] [address]', N "
        "being its number of ranks. Agents are started over ssh, or by the command in LOCKSTEP_SSH"),
    LS_ROW_TEXT(train_settings, coordinator, "HOST:PORT",
                "listen at this address of this host for 'lockstep agent' on other hosts"),
    LS_ROW_U64(train_settings, local_ranks, "0", 0, 256, "with --coordinator: number of ranks on this host"),
    LS_ROW_TEXT(train_settings, token_file, "FILE",
                "file with the secret that agents on other hosts must present; -: read it from the first "
                "line of standard input; without this option the environment variable LOCKSTEP_TOKEN holds "
                "the secret itself"),
    LS_ROW_U64(train_settings, start_timeout, "0", 0, 86400,
               "seconds to wait for other hosts to join; their ranks may take a quarter longer to be ready. "
               "0: chosen automatically, at least 60"),
    LS_ROW_TEXT(train_settings, run_dir, "DIR", "folder of the run; default runs/<name>"),
    LS_ROW_BOOL(train_settings, resume,
                "resume an interrupted run; it is an error if there is nothing to resume"),
    LS_ROW_BOOL(train_settings, fresh,
                "start the run from step 0; an existing run of this name is moved aside"),
    LS_ROW_BOOL(train_settings, dry_run, "print the model, the memory plan and FLOPs without training"),
    LS_ROW_BOOL(train_settings, json,
                "print the result as one JSON document at the end; progress goes to stderr"),
    LS_ROW_BOOL(train_settings, keys, "list every key of the run file with its range, default and meaning"),
};

/* Monotonic time at which the process started, as the kernel recorded it. */
static double process_start_s(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    const size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    text[got] = '\0';
    const char *after_name = strrchr(text, ')');
    unsigned long long ticks = 0;
    /* starttime is field 22, the 20th after the name. */
    if (!after_name ||
        sscanf(after_name + 1,
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

/* Finds out which hosts take part and whether this process is the trainer or an agent. */
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
    if (settings->dry_run && !settings->hosts[0]) {
        *launch_out = (ls_launch){.ranks = options.ranks};
        return LS_OK;
    }
    LS_TRY(ls_launch_read(invocation->arena, &options, launch_out));
    launch_out->hosts = settings->dry_run ? NULL : launch_out->hosts;
    return LS_OK;
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
    LS_WORDS("CONFIG", 0, 1),
    .summary = "train a model as a run file describes",
    .details = "Trains the model that CONFIG, a run file in YAML, describes. 'lockstep train\n"
               "--keys' lists every key of a run file.\n"
               "\n"
               "The run is kept in runs/<name>: run.yaml, metrics.jsonl, events.jsonl,\n"
               "checkpoints/, tb/ and report.html. The same command resumes an interrupted run;\n"
               "the result has the same bits as an uninterrupted one. Ctrl-C saves and exits\n"
               "with 130, SIGTERM saves and exits with 75. For a finished run the command prints\n"
               "the result again. A higher train.steps makes a run longer: its steps so far and\n"
               "its learning-rate schedule stay as they are.\n"
               "\n"
               "Examples:\n"
               "  lockstep train mine.yaml\n"
               "      one process\n"
               "  lockstep train mine.yaml --ranks 4\n"
               "      four processes on this machine; any number up to train.leaves gives\n"
               "      the same bits\n"
               "  lockstep train mine.yaml --ranks 4 --dry-run\n"
               "      what each number of ranks would cost in idle time and memory\n"
               "  lockstep train mine.yaml --set train.steps=5000 --set train.optimizer.lr=3e-4\n"
               "      keys of the run file, set on the command line\n"
               "  lockstep train mine.yaml --ranks 8 --hosts hosts.txt\n"
               "      this host and others over ssh; a line of the file: host [slots=N] [address]\n"
               "  lockstep train mine.yaml --ranks 8 --local-ranks 4 --coordinator 10.0.0.1:4711\n"
               "      other hosts join with 'lockstep agent'\n"
               "  srun --ntasks 8 lockstep train mine.yaml\n"
               "      ranks started by srun, torchrun or mpirun",
    LS_SETTINGS(train_settings, train_options),
    .run = run_train,
};

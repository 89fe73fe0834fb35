// SPDX-License-Identifier: Apache-2.0
/* replay. */
#include "execution/diagnose/replay.h"
#include "cli/command.h"
#include "execution/train/step.h"

typedef struct replay_settings {
    uint64_t step, leaf, threads;
    bool op_trace, json;
} replay_settings;

static const ls_option replay_options[] = {
    {.key = "step",
     .type = LS_OPTION_U64,
     .offset = offsetof(replay_settings, step),
     .default_text = "0",
     .min = 0,
     .max = LS_OPTION_U64_MAX,
     .help = "the step, as metrics.jsonl counts them from 1"},
    {.key = "leaf",
     .type = LS_OPTION_U64,
     .offset = offsetof(replay_settings, leaf),
     .default_text = "auto",
     .min = 0,
     .max = 1 << 20,
     .allow_auto = true,
     .help = "the leaf, from 0; auto: leaf after leaf, until one is not finite"},
    {.key = "op_trace",
     .type = LS_OPTION_BOOL,
     .offset = offsetof(replay_settings, op_trace),
     .default_text = "false",
     .help =
         "one line for everything that an op wrote: smallest, largest, root mean square, what is not finite"},
    LS_ROW_THREADS(replay_settings),
    LS_ROW_JSON(replay_settings),
};
static const ls_option_table replay_table = LS_OPTIONS(replay_options);

static ls_status run_replay(const ls_invocation *invocation)
{
    const replay_settings *settings = invocation->settings;
    if (settings->step == 0) {
        return ls_fail(LS_ERR_INVALID, "missing --step: which step, counted from 1");
    }
    const ls_replay_options options = {
        .run_dir = invocation->words[0],
        .step = settings->step,
        .leaf = settings->leaf == LS_AUTO_U64 ? LS_NO_LEAF : (uint32_t)settings->leaf,
        .op_trace = settings->op_trace,
        .threads = settings->threads,
        .out = settings->json ? NULL : stdout,
    };
    json_t *result = NULL;
    const ls_status status = ls_replay(&options, &result);
    if (result && settings->json) {
        ls_print_json(result);
    }
    json_decref(result);
    return status;
}

const ls_command ls_command_replay = {
    .name = "replay",
    .words = "RUN",
    .summary = "compute one leaf of one step of a run again",
    .details =
        "RUN is a run directory. The leaf is computed alone, with the same bits as in training, from the "
        "newest "
        "checkpoint before\n"
        "the step; steps between are computed first, and their losses compared with the recorded ones. "
        "Prints "
        "loss, hashes of the\n"
        "gradient and its size per parameter. Exits with 1 when a value is not finite, and says which op "
        "wrote the first one.\n"
        "Nothing in RUN is changed.",
    .words_min = 1,
    .words_max = 1,
    .options = &replay_table,
    .settings_bytes = sizeof(replay_settings),
    .run = run_replay,
};

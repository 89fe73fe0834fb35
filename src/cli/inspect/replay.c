// SPDX-License-Identifier: Apache-2.0
/* replay: computes one leaf of one training step again. */
#include "execution/run/replay.h"
#include "cli/command.h"
#include "execution/train/step.h"

typedef struct replay_settings {
    uint64_t step, leaf, threads;
    bool op_trace, json;
} replay_settings;

static const ls_option replay_options[] = {
    LS_ROW_U64(replay_settings, step, "0", 0, LS_OPTION_U64_MAX,
               "step to replay, counted from 1 as in metrics.jsonl"),
    LS_ROW_U64(replay_settings, leaf, "auto", 0, 1 << 20,
               "leaf (share of the batch of the step) to compute, counted from 0; auto: one leaf after the "
               "other until a value is not finite",
               .allow_auto = true),
    LS_ROW_BOOL(replay_settings, op_trace,
                "print one line for each operation about its result: minimum, maximum, root mean square, and "
                "the number of values that are not finite"),
    LS_ROW_THREADS(replay_settings),
    LS_ROW_JSON(replay_settings),
};

static ls_status run_replay(const ls_invocation *invocation)
{
    const replay_settings *settings = invocation->settings;
    if (settings->step == 0) {
        return ls_fail(LS_ERR_INVALID, "missing --step N: give the step to replay, counted from 1");
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
    LS_WORDS("RUN", 1, 1),
    .summary = "compute one leaf of one training step again",
    .details = "RUN is a run directory; nothing in it is changed. Loads the newest checkpoint\n"
               "before the step, computes the steps in between and compares their losses with\n"
               "the recorded ones, then computes the leaf alone, with the same bits as in\n"
               "training. Prints the loss, hashes of the gradient, and its size for each\n"
               "parameter. Exits with 1 when a value is not finite, and names the operation that\n"
               "wrote the first such value.\n"
               "\n"
               "Examples:\n"
               "  lockstep replay runs/mine --step 812\n"
               "  lockstep replay runs/mine --step 812 --leaf 3 --op-trace",
    LS_SETTINGS(replay_settings, replay_options),
    .run = run_replay,
};

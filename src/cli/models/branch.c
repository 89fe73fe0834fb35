// SPDX-License-Identifier: Apache-2.0
/* branch: starts runs that train one model further, each on data of its own. */
#include "base/clock.h"
#include "cli/command.h"
#include "execution/run/trainer.h"
#include "execution/setup/branches.h"
#include "telemetry/record/summary.h"

#include <stdio.h>

typedef struct branch_settings {
    ls_option_strings data, name, set;
    const char *output;
    uint64_t steps;
    bool train, json;
} branch_settings;

static const ls_option branch_options[] = {
    LS_ROW_TEXTS(branch_settings, data, "FILE",
                 "data of one branch: a file, a folder or a pattern; given once for each branch"),
    LS_ROW_TEXTS(branch_settings, name, "NAME",
                 "name of one branch, in the order of --data; default: that of its data"),
    LS_ROW_TEXT_OR(branch_settings, output, "branches", "DIR",
                   "folder for the run files, and for the runs that are trained here", .letter = 'o',
                   .value_needed = true),
    LS_ROW_U64(branch_settings, steps, "0", 0, LS_OPTION_U64_MAX,
               "number of steps of each branch; 0: the default of a run that starts from a model"),
    LS_ROW_TEXTS(branch_settings, set, "KEY=VALUE",
                 "a key of the run files of all branches; may be repeated"),
    LS_ROW_BOOL(branch_settings, train, "also train the branches, one after the other, on this machine"),
    LS_ROW_JSON(branch_settings),
};

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Adds each run's result to its branch. */
static ls_status train_branches(json_t *branches, bool as_json)
{
    size_t i;
    json_t *branch;
    json_array_foreach(branches, i, branch)
    {
        const ls_train_options options = {.config = text_of(branch, "run_file"),
                                          .run_dir = text_of(branch, "run_dir"),
                                          .out = as_json ? stderr : stdout,
                                          .start_s = ls_clock_monotonic_s()};
        json_t *result = NULL;
        if (!as_json) {
            printf("\n%s: branch %s, %zu of %zu\n", text_of(branch, "run_file"), text_of(branch, "name"),
                   i + 1, json_array_size(branches));
        }
        const ls_status status = ls_train(&options, &result);
        if (result && !as_json) {
            ls_summary_print(result, stdout);
        }
        if (result) {
            json_object_set_new(branch, "result", result);
        }
        if (status != LS_OK) {
            return ls_fail_within(status, "branch %s", text_of(branch, "name"));
        }
    }
    return LS_OK;
}

static void print_made(const json_t *branches)
{
    size_t i;
    const json_t *branch;
    json_array_foreach(branches, i, branch)
    {
        printf("%s: branch %s on %s\n", text_of(branch, "run_file"), text_of(branch, "name"),
               text_of(branch, "data"));
    }
}

static void print_next(const json_t *branches, bool is_trained)
{
    size_t i;
    const json_t *branch;
    puts("\nnext:");
    json_array_foreach(is_trained ? NULL : branches, i, branch)
    {
        printf("  lockstep train %s --run-dir %s\n", text_of(branch, "run_file"), text_of(branch, "run_dir"));
    }
    printf("  lockstep merge");
    json_array_foreach(branches, i, branch)
    {
        printf(" %s", text_of(branch, "run_dir"));
    }
    puts(" -o merged");
}

static ls_status run_branch(const ls_invocation *invocation)
{
    const branch_settings *settings = invocation->settings;
    if (settings->data.count == 0) {
        return ls_fail(LS_ERR_INVALID, "--data FILE is missing: give it once for each branch");
    }
    if (settings->name.count != 0 && settings->name.count != settings->data.count) {
        return ls_fail(LS_ERR_INVALID,
                       "there are %zu --data and %zu --name: give one name for each branch, or none",
                       (size_t)settings->data.count, (size_t)settings->name.count);
    }
    const ls_branches_options options = {
        .model = invocation->words[0],
        .dir = settings->output,
        .data = settings->data.items,
        .count = (size_t)settings->data.count,
        .names = settings->name.count > 0 ? settings->name.items : NULL,
        .steps = settings->steps,
        .sets = settings->set.items,
        .set_count = (size_t)settings->set.count,
    };
    json_t *result = NULL;
    LS_TRY(ls_branches_make(invocation->arena, &options, &result));
    json_t *branches = json_object_get(result, "branches");
    if (!settings->json) {
        print_made(branches);
    }
    const ls_status status = settings->train ? train_branches(branches, settings->json) : LS_OK;
    if (settings->json && status == LS_OK) {
        ls_print_json(result);
    } else if (status == LS_OK) {
        print_next(branches, settings->train);
    }
    json_decref(result);
    return status;
}

const ls_command ls_command_branch = {
    .name = "branch",
    LS_WORDS("CKPT", 1, 1),
    .summary = "start branches of a model on different data",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory. For each --data the command writes a run file that trains\n"
               "CKPT further on these data. A branch is a run of its own: train it here, copy the\n"
               "run file with CKPT and the data to another machine, or submit it to the queue.\n"
               "DIR/branch.json says which model and which data the branches have.\n"
               "'lockstep merge' makes one model of the branches.\n"
               "\n"
               "Examples:\n"
               "  lockstep branch base --data de.txt --data fr.txt --data code.txt\n"
               "  lockstep branch base --data 'mail/*.txt' --name mail --steps 500 --train\n"
               "  lockstep branch base --data a.txt --data b.txt --set train.optimizer.lr=1e-4",
    LS_SETTINGS(branch_settings, branch_options),
    .run = run_branch,
};

// SPDX-License-Identifier: Apache-2.0
#include "cli/command_list.h"

#include "base/text.h"
#include "cli/synonyms.h"

#include <string.h>

const ls_command_entry ls_command_list[] = {
    {"Train", &ls_command_new, true},
    {"Train", &ls_command_train, true},
    {"Train", &ls_command_resize, false},
    {"Train", &ls_command_agent, false},

    {"Models", &ls_command_sample, true},
    {"Models", &ls_command_eval, true},
    {"Models", &ls_command_import, true},
    {"Models", &ls_command_export, true},
    {"Models", &ls_command_branch, false},
    {"Models", &ls_command_merge, false},
    {"Models", &ls_command_chat, true},
    {"Models", &ls_command_pull, false},
    {"Models", &ls_command_serve, true},
    {"Models", &ls_command_registry_add, false},
    {"Models", &ls_command_registry_ls, false},
    {"Models", &ls_command_registry_show, false},
    {"Models", &ls_command_registry_get, false},
    {"Models", &ls_command_registry_lineage, false},
    {"Models", &ls_command_registry_promote, false},
    {"Models", &ls_command_registry_verify, false},
    {"Models", &ls_command_registry_gc, false},
    {"Models", &ls_command_registry_export, false},

    {"Data", &ls_command_tokenize_train, false},
    {"Data", &ls_command_tokenize_encode, false},
    {"Data", &ls_command_tokenize_decode, false},
    {"Data", &ls_command_data_prepare, true},
    {"Data", &ls_command_data_show, true},
    {"Data", &ls_command_data_removed, false},
    {"Data", &ls_command_template, false},
    {"Data", &ls_command_cache_ls, false},
    {"Data", &ls_command_cache_clear, false},
    {"Data", &ls_command_cache_verify, false},
    {"Data", &ls_command_cache_limit, false},
    {"Data", &ls_command_blob_ls, false},
    {"Data", &ls_command_blob_get, false},
    {"Data", &ls_command_blob_put, false},
    {"Data", &ls_command_blob_cp, false},
    {"Data", &ls_command_blob_rm, false},
    {"Data", &ls_command_blob_bench, false},

    {"Plan", &ls_command_plan, true},
    {"Plan", &ls_command_calibrate, false},
    {"Plan", &ls_command_simulate, false},

    {"Queue", &ls_command_up, true},
    {"Queue", &ls_command_down, false},
    {"Queue", &ls_command_submit, true},
    /* before `sweep`, which would take "show" as a file */
    {"Queue", &ls_command_sweep_show, false},
    {"Queue", &ls_command_sweep, false},
    {"Queue", &ls_command_ps, true},
    {"Queue", &ls_command_top, false},
    {"Queue", &ls_command_why, false},
    {"Queue", &ls_command_logs, true},
    {"Queue", &ls_command_wait, false},
    {"Queue", &ls_command_cancel, false},
    {"Queue", &ls_command_hold, false},
    {"Queue", &ls_command_release, false},
    {"Queue", &ls_command_priority, false},
    {"Queue", &ls_command_change, false},
    {"Queue", &ls_command_reload, false},
    {"Queue", &ls_command_pause, false},
    {"Queue", &ls_command_resume, false},
    {"Queue", &ls_command_drain, false},
    {"Queue", &ls_command_undrain, false},
    {"Queue", &ls_command_maintenance, false},
    {"Queue", &ls_command_nodes, false},
    {"Queue", &ls_command_accounts, false},
    {"Queue", &ls_command_token, false},
    {"Queue", &ls_command_usage, false},
    {"Queue", &ls_command_slurm_config, false},

    {"Inspect", &ls_command_report, true},
    {"Inspect", &ls_command_diagnose, true},
    {"Inspect", &ls_command_trace, false},
    {"Inspect", &ls_command_replay, false},
    {"Inspect", &ls_command_view, false},

    {"Maintain", &ls_command_checkpoint_ls, true},
    {"Maintain", &ls_command_checkpoint_show, false},
    {"Maintain", &ls_command_checkpoint_verify, false},
    {"Maintain", &ls_command_checkpoint_prune, false},
    {"Maintain", &ls_command_checkpoint_pin, false},
    {"Maintain", &ls_command_checkpoint_unpin, false},
    {"Maintain", &ls_command_state_hash, false},
    /* before `bundle`, which would take "verify" as a run */
    {"Maintain", &ls_command_bundle_verify, false},
    {"Maintain", &ls_command_bundle_open, false},
    {"Maintain", &ls_command_bundle, false},
    {"Maintain", &ls_command_bench, false},
    {"Maintain", &ls_command_doctor, false},
    {"Maintain", &ls_command_version, false},

    {NULL, &ls_command_rank, false},
    {NULL, &ls_command_runner, false},
    {NULL, &ls_command_job_terminal, false},
    {NULL, &ls_command_run_result, false},
    {NULL, &ls_command_manual, false},
};
const size_t ls_command_list_count = sizeof ls_command_list / sizeof ls_command_list[0];

/* Number of arguments that `name` takes, 0 when the arguments do not begin with it. */
static int matches_name(const char *name, int argc, char *const *argv)
{
    int used = 0;
    for (const char *at = name; *at; used++) {
        const size_t bytes = strcspn(at, " ");
        if (used >= argc || strlen(argv[used]) != bytes || strncmp(argv[used], at, bytes) != 0) {
            return 0;
        }
        at += bytes + (at[bytes] == ' ');
    }
    return used;
}

const ls_command *ls_command_find(int argc, char *const *argv, int *used_out)
{
    for (size_t i = 0; i < ls_command_list_count; i++) {
        const int used = matches_name(ls_command_list[i].command->name, argc, argv);
        if (used > 0) {
            *used_out = used;
            return ls_command_list[i].command;
        }
    }
    return NULL;
}

bool ls_command_is_in_group(const ls_command *command, const char *word)
{
    const size_t bytes = strlen(word);
    return strncmp(command->name, word, bytes) == 0 && command->name[bytes] == ' ';
}

/* "checkpoint ls, checkpoint show, ..." for "checkpoint"; nothing when no group has that name. */
static void append_group(const char *word, ls_text *text)
{
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (ls_command_is_in_group(ls_command_list[i].command, word)) {
            ls_text_printf(text, "%s%s", text->bytes ? ", " : "", ls_command_list[i].command->name);
        }
    }
}

/* Our name for a command of another program, or why there is none. */
static ls_status fail_synonym(const char *word, const ls_option_hint *hint)
{
    if (!hint->key) {
        return ls_fail(LS_ERR_INVALID, "'%s' is not a command; %s", word, hint->note);
    }
    ls_text group = {0};
    int used = 0;
    char *const name = (char *)(uintptr_t)hint->key;
    const ls_command *command = ls_command_find(1, &name, &used);
    append_group(hint->key, &group);
    const ls_status status =
        ls_fail(LS_ERR_INVALID, "'%s' is not a command; use '%s' (%s)%s%s", word, hint->key,
                command ? command->summary : ls_text_string(&group), hint->note[0] ? ". " : "", hint->note);
    ls_text_release(&group);
    return status;
}

/* The name that was probably meant, or NULL when none is similar. */
static const char *nearest_name(const char *word)
{
    const char *nearest = NULL;
    size_t best = strlen(word) / 3 + (strlen(word) > 3 ? 2 : 1);
    for (size_t i = 0; i < ls_command_list_count; i++) {
        const char *name = ls_command_list[i].command->name;
        const size_t distance = ls_edit_distance(word, name, best);
        if (ls_command_list[i].group && distance < best) {
            best = distance;
            nearest = name;
        }
    }
    return nearest;
}

ls_status ls_command_unknown(int argc, char *const *argv)
{
    ls_text group = {0};
    append_group(argv[0], &group);
    const char *nearest = nearest_name(argv[0]);
    const ls_option_hint *synonym = ls_options_hint_for(ls_command_synonyms, argv[0]);
    ls_status status;
    if (group.bytes > 0 && argc > 1) {
        status = ls_fail(LS_ERR_INVALID, "'%s %s' is not a command; choose one of: %s", argv[0], argv[1],
                         ls_text_string(&group));
    } else if (group.bytes > 0) {
        status = ls_fail(LS_ERR_INVALID, "'%s' needs a second word; choose one of: %s", argv[0],
                         ls_text_string(&group));
    } else if (synonym) {
        status = fail_synonym(argv[0], synonym);
    } else if (nearest) {
        status = ls_fail(LS_ERR_INVALID,
                         "'%s' is not a command, did you mean '%s'? 'lockstep help --all' lists all", argv[0],
                         nearest);
    } else {
        status = ls_fail(LS_ERR_INVALID, "'%s' is not a command; 'lockstep help --all' lists all", argv[0]);
    }
    ls_text_release(&group);
    return status;
}

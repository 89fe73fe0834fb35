// SPDX-License-Identifier: Apache-2.0
/* eval: its options; eval_loss.c computes losses, eval_answers.c counts right answers. */
#include "cli/models/eval.h"
#include "cli/registered.h"

#include <stdio.h>

static const ls_option eval_options[] = {
    LS_ROW_TEXTS(eval_settings, data, "FILE",
                 "file to evaluate on, of any format that training reads; may be repeated, for a table"),
    LS_ROW_FIELD(eval_settings),
    LS_ROW_TEXT(eval_settings, tokens, "FILE",
                "file of token ids separated by white space, instead of --data"),
    LS_ROW_OTHER_TOKENIZER(eval_settings),
    LS_ROW_ADAPTER(eval_settings),
    LS_ROW_U64(eval_settings, context, "0", 0, 16777216,
               "number of tokens in each window of the text that is evaluated; 0: the model's context, at "
               "most 1024"),
    LS_ROW_TEXT(eval_settings, records, "FILE",
                "file of records with a label or an answer (.jsonl, .json, .csv, .tsv, .parquet), by which "
                "to judge the model"),
    LS_ROW_TEXT(eval_settings, label, "KEY",
                "key of a record that holds its label or its expected answer; without it: the completion, or "
                "the last answer of the assistant, as in training"),
    LS_ROW_TEXT(eval_settings, prompt_field, "KEY",
                "key of a record that holds its prompt; without it the prompt is read as in training, or, in "
                "a record that has no form of training, under the first of the keys prompt, question, "
                "instruction, input and text"),
    LS_ROW_TEXT_OR(
        eval_settings, template, "auto", "FILE",
        "chat template that turns records into prompts: a .jinja file, a tokenizer_config.json, or a folder "
        "with one of them; none: no template; auto: the model's own, for conversations"),
    LS_ROW_TEMPLATE_DATE(eval_settings),
    LS_ROW_TEXT(eval_settings, choices, "A,B,...",
                "labels from which the model chooses the most probable one; auto: all labels of the file; "
                "without this option the model writes its answer"),
    LS_ROW_TEXT(eval_settings, extract, "PATTERN",
                "regular expression whose first group captures the answer in a longer text, for example "
                "'#### *(.*)'"),
    LS_ROW_TEXT(eval_settings, tasks, "NAME=FILE,...",
                "JSON Lines files of multiple-choice questions in the form of hellaswag, arc, piqa, "
                "winogrande, lambada or mmlu, or with a list `choices` in each record"),
    LS_ROW_U64(eval_settings, shots, "0", 0, 1000,
               "number of records at the beginning of each task's file that become examples in the prompt"),
    LS_ROW_BOOL(eval_settings, side_by_side,
                "show how two models answer --prompt, or the prompts of --records, side by side"),
    LS_ROW_TEXT(eval_settings, prompt, "TEXT", "the prompt that --side-by-side shows answers to"),
    LS_ROW_U64(
        eval_settings, max_tokens, "auto", 1, 1048576,
        "maximum number of tokens of an answer; auto: 256, or half of the model's context if that is less",
        .allow_auto = true),
    LS_ROW_U64(
        eval_settings, limit, "0", 0, LS_OPTION_U64_MAX,
        "number of records, from the beginning of the file, whose question is put to the model; 0: all"),
    LS_ROW_THREADS(eval_settings),
    LS_ROW_JSON(eval_settings),
};

static ls_status check_mode(const ls_invocation *invocation)
{
    const eval_settings *settings = invocation->settings;
    const int given = (settings->data.count != 0) + (settings->tokens[0] != 0) + (settings->tasks[0] != 0) +
                      (settings->records[0] != 0) + (settings->prompt[0] != 0);
    if (given != 1) {
        return ls_fail(LS_ERR_INVALID, "give one of --data FILE, --tokens FILE, --records FILE, --tasks "
                                       "NAME=FILE and, with --side-by-side, --prompt TEXT");
    }
    if (settings->side_by_side && invocation->word_count != 2) {
        return ls_fail(LS_ERR_INVALID, "--side-by-side needs two models: eval A B --side-by-side");
    }
    if (settings->data.count == 0 && invocation->word_count > 2) {
        return ls_fail(LS_ERR_INVALID, "%zu models are given; more than two are compared with --data alone",
                       invocation->word_count);
    }
    if (settings->tokens[0] && invocation->word_count > 1) {
        return ls_fail(LS_ERR_INVALID, "--tokens holds ids of one model's tokenizer: give one model, or "
                                       "--data FILE");
    }
    if (settings->prompt[0] && !settings->side_by_side) {
        return ls_fail(LS_ERR_INVALID,
                       "--prompt works only with --side-by-side; use 'lockstep sample' to continue a prompt "
                       "with one model, and --prompt-field to name the key of the prompts of --records");
    }
    if (settings->side_by_side && settings->tasks[0]) {
        return ls_fail(LS_ERR_INVALID, "--side-by-side shows answers that the models write, and --tasks has "
                                       "only choices: give --records or --prompt");
    }
    return LS_OK;
}

/* Adds the numbers of `from` to the metrics; those of objects in it as "outer.inner". */
static void add_numbers(ls_arena *arena, json_t *metrics, const char *prefix, json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        const char *name = ls_arena_printf(arena, "%s%s", prefix, key);
        if (json_is_number(value)) {
            json_object_set(metrics, name, value);
        } else if (!*prefix) {
            add_numbers(arena, metrics, ls_arena_printf(arena, "%s.", key), value);
        }
    }
}

/* What it was measured on. */
static size_t list_data(const eval_settings *settings, ls_survey_source *sources)
{
    size_t count = 0;
    for (size_t i = 0; i < settings->data.count; i++) {
        sources[count++] = (ls_survey_source){settings->data.items[i], "data"};
    }
    if (settings->records[0] || settings->tokens[0] || settings->tasks[0]) {
        const char *path = settings->records[0]  ? settings->records
                           : settings->tokens[0] ? settings->tokens
                                                 : settings->tasks;
        sources[count++] = (ls_survey_source){path, "data"};
    }
    if (settings->adapter[0]) {
        sources[count++] = (ls_survey_source){settings->adapter, "adapter"};
    }
    return count;
}

void ls_eval_registered(const ls_invocation *invocation, const char *model, json_t *metrics)
{
    ls_arena *arena = invocation->arena;
    const eval_settings *settings = invocation->settings;
    ls_survey_source *sources = ls_arena_new(arena, ls_survey_source, settings->data.count + 3);
    json_t *numbers = json_object(), *facts = json_pack("{s:o}", "metrics", numbers);
    add_numbers(arena, numbers, "", metrics);
    sources[0] = (ls_survey_source){model, "parent"};
    const ls_registry_add_options made = {
        .name = ls_arena_printf(arena, "%.100s-eval", ls_registry_name_of(arena, model)),
        .kind = LS_ENTRY_EVALUATION,
        .sources = sources,
        .source_count = 1 + list_data(settings, sources + 1),
        .facts = facts};
    ls_registered(arena, made, json_pack("{s:s}", "by", "eval"));
    json_decref(facts);
    json_decref(metrics);
}

/* The losses of one model by the names of the data, or of the only data without a name. */
static json_t *metrics_of(const json_t *losses)
{
    json_t *metrics = json_object();
    for (size_t i = 0; i < json_array_size(losses); i++) {
        json_t *loss = json_array_get(losses, i);
        const char *data = json_string_value(json_object_get(loss, "data"));
        if (json_array_size(losses) == 1) {
            json_object_update(metrics, loss);
        } else {
            json_object_set(metrics, data ? data : "?", loss);
        }
    }
    return metrics;
}

static ls_status run_eval(const ls_invocation *invocation)
{
    const eval_settings *settings = invocation->settings;
    LS_TRY(check_mode(invocation));
    if (settings->side_by_side) {
        return ls_eval_side_by_side(invocation);
    }
    if (settings->records[0] || settings->tasks[0]) {
        return ls_eval_answers(invocation);
    }
    json_t *losses = NULL;
    LS_TRY(ls_eval_losses(invocation->arena, settings, invocation->words, invocation->word_count, &losses));
    ls_eval_show_losses(invocation->arena, losses, settings->json);
    for (size_t i = 0; i < invocation->word_count; i++) {
        const json_t *model = json_array_get(json_object_get(losses, "models"), i);
        ls_eval_registered(invocation, invocation->words[i], metrics_of(json_object_get(model, "losses")));
    }
    json_decref(losses);
    return LS_OK;
}

const ls_command ls_command_eval = {
    .name = "eval",
    LS_WORDS("CKPT...", 1, 64),
    .summary = "measure a model: loss on a text, accuracy on records and tasks",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory. The loss is the mean over all tokens but the first: each is\n"
               "predicted once, from the tokens before it in its window of --context tokens.\n"
               "Neighbouring windows share one token. --data and --tokens give the same loss for\n"
               "the same text: no token is added, except the end-of-text token between two\n"
               "documents of --data, as in training.\n"
               "\n"
               "With several models, or several --data, it prints a table: one row for each model\n"
               "and one column for each text. Where tokenizers differ it has nats per byte.\n"
               "\n"
               "--records and --tasks count right answers, with 95 % intervals. With a second\n"
               "model they are counted for both, and the difference is tested on the same questions.\n"
               "--side-by-side shows the answers themselves.\n"
               "\n"
               "Examples:\n"
               "  lockstep eval runs/mine --data heldout.txt\n"
               "  lockstep eval runs/mine --tokens ids.txt\n"
               "  lockstep eval branches/de branches/fr merged --data de.txt --data fr.txt\n"
               "  lockstep eval runs/mine --records tickets.jsonl --label team --choices auto\n"
               "  lockstep eval base runs/mine --records sums.jsonl --label answer --extract '#### *(.*)'\n"
               "  lockstep eval runs/mine --tasks hellaswag=hellaswag_val.jsonl --shots 5\n"
               "  lockstep eval base runs/mine --side-by-side --prompt \"Why is the sky blue?\"",
    LS_SETTINGS(eval_settings, eval_options),
    .run = run_eval,
};

// SPDX-License-Identifier: Apache-2.0
/* eval: computes the loss of a model on a file; eval_answers.c counts right answers. */
#include "cli/models/eval.h"

#include "base/file.h"
#include "cli/token_ids.h"
#include "data/dataset.h"
#include "execution/train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IDS_BYTES_MAX = 1 << 30 };

#define FIELD(name) .offset = offsetof(eval_settings, name)
static const ls_option eval_options[] = {
    {.key = "data",
     .type = LS_OPTION_STRING,
     FIELD(data),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "file to evaluate on, of any format that training reads"},
    LS_ROW_FIELD(eval_settings),
    {.key = "tokens",
     .type = LS_OPTION_STRING,
     FIELD(tokens),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "file of token ids separated by white space, instead of --data"},
    LS_ROW_OTHER_TOKENIZER(eval_settings),
    LS_ROW_ADAPTER(eval_settings),
    {.key = "context",
     .type = LS_OPTION_U64,
     FIELD(context),
     .default_text = "0",
     .min = 0,
     .max = 16777216,
     .help = "number of tokens in each window of the text that is evaluated; 0: the model's context, at most "
             "1024"},
    {.key = "records",
     .type = LS_OPTION_STRING,
     FIELD(records),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "file of records with a label or an answer (.jsonl, .json, .csv, .tsv), by which to judge the "
             "model"},
    {.key = "label",
     .type = LS_OPTION_STRING,
     FIELD(label),
     .default_text = "\"\"",
     .value_name = "KEY",
     .help = "key of a record that holds its label or its expected answer; without it: the completion, or "
             "the last answer of the assistant, as in training"},
    {.key = "prompt_field",
     .type = LS_OPTION_STRING,
     FIELD(prompt_field),
     .default_text = "\"\"",
     .value_name = "KEY",
     .help = "key of a record that holds its prompt; without it the prompt is read as in training, or, in a "
             "record that has no form of training, under the first of the keys prompt, question, "
             "instruction, input and text"},
    {.key = "template",
     .type = LS_OPTION_STRING,
     FIELD(template),
     .default_text = "auto",
     .value_name = "FILE",
     .help =
         "chat template that turns records into prompts: a .jinja file, a tokenizer_config.json, or a folder "
         "with one of them; none: no template; auto: the model's own, for conversations"},
    {.key = "template_date",
     .type = LS_OPTION_STRING,
     FIELD(template_date),
     .default_text = "\"\"",
     .value_name = "DATE",
     .help = "the day (YYYY-MM-DD) that the chat template sees, as in training; default: today"},
    {.key = "choices",
     .type = LS_OPTION_STRING,
     FIELD(choices),
     .default_text = "\"\"",
     .value_name = "A,B,...",
     .help = "labels from which the model chooses the most probable one; auto: all labels of the file; "
             "without this option the model writes its answer"},
    {.key = "extract",
     .type = LS_OPTION_STRING,
     FIELD(extract),
     .default_text = "\"\"",
     .value_name = "PATTERN",
     .help = "regular expression whose first group captures the answer in a longer text, for example '#### "
             "*(.*)'"},
    {.key = "tasks",
     .type = LS_OPTION_STRING,
     FIELD(tasks),
     .default_text = "\"\"",
     .value_name = "NAME=FILE,...",
     .help = "JSON Lines files of multiple-choice questions in the form of hellaswag, arc, piqa, winogrande, "
             "lambada or mmlu, or with a list `choices` in each record"},
    {.key = "shots",
     .type = LS_OPTION_U64,
     FIELD(shots),
     .default_text = "0",
     .min = 0,
     .max = 1000,
     .help = "number of records at the beginning of each task's file that become examples in the prompt"},
    {.key = "side_by_side",
     .type = LS_OPTION_BOOL,
     FIELD(side_by_side),
     .default_text = "false",
     .help = "show how two models answer --prompt, or the prompts of --records, side by side"},
    {.key = "prompt",
     .type = LS_OPTION_STRING,
     FIELD(prompt),
     .default_text = "\"\"",
     .value_name = "TEXT",
     .help = "the prompt that --side-by-side shows answers to"},
    {.key = "max_tokens",
     .type = LS_OPTION_U64,
     FIELD(max_tokens),
     .default_text = "auto",
     .allow_auto = true,
     .min = 1,
     .max = 1048576,
     .help =
         "maximum number of tokens of an answer; auto: 256, or half of the model's context if that is less"},
    {.key = "limit",
     .type = LS_OPTION_U64,
     FIELD(limit),
     .default_text = "0",
     .min = 0,
     .max = LS_OPTION_U64_MAX,
     .help = "number of records, from the beginning of the file, whose question is put to the model; 0: all"},
    LS_ROW_THREADS(eval_settings),
    LS_ROW_JSON(eval_settings),
};
#undef FIELD
static const ls_option_table eval_table = LS_OPTIONS(eval_options);

static ls_status read_ids(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    memcpy(tokens_out, (const int32_t *)context + first, (size_t)count * sizeof *tokens_out);
    return LS_OK;
}

static ls_status read_dataset(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    return ls_dataset_tokens(context, LS_SPLIT_VALIDATION, 0, first, count, tokens_out);
}

static uint64_t window_length(const eval_settings *settings, const ls_model_config *config, uint64_t tokens)
{
    uint64_t length = settings->context;
    if (length == 0) {
        length = config->context < 1024 ? (uint64_t)config->context : 1024;
    }
    return tokens >= 2 && tokens - 1 < length ? tokens - 1 : length;
}

static ls_status check_context(const eval_settings *settings, const ls_model_config *config)
{
    if (settings->context > (uint64_t)config->context) {
        return ls_fail(LS_ERR_INVALID,
                       "--context is %" PRIu64 ", allowed is 1 to %" PRId64 ", the context of the model",
                       settings->context, config->context);
    }
    return LS_OK;
}

static ls_status evaluate(const eval_settings *settings, const ls_loaded_model *model,
                          const ls_token_stream *stream, ls_evaluation *result_out)
{
    const ls_model_config *config = &model->file->config;
    const uint64_t length = window_length(settings, config, stream->token_count);
    ls_evaluator *evaluator = NULL;
    const ls_model_on_device on_device = ls_loaded_model_on_device(model);
    LS_TRY(ls_evaluator_create(&on_device, 1, (int64_t)length, &evaluator));
    const ls_status status = ls_evaluator_run(evaluator, stream, 0, result_out);
    ls_evaluator_destroy(evaluator);
    return status;
}

static ls_status eval_tokens(const ls_invocation *invocation, ls_loaded_model *model,
                             ls_evaluation *result_out)
{
    const eval_settings *settings = invocation->settings;
    char *text = NULL;
    size_t bytes = 0;
    ls_token_buffer ids = {0};
    LS_TRY(ls_file_read(invocation->arena, settings->tokens, IDS_BYTES_MAX, &text, &bytes));
    ls_status status = ls_token_ids_parse(text, bytes, settings->tokens, &ids);
    if (status == LS_OK) {
        const ls_token_stream stream = {read_ids, ids.ids, ids.count};
        status = evaluate(settings, model, &stream, result_out);
        status = status == LS_OK ? LS_OK : ls_fail_within(status, "%s", settings->tokens);
    }
    ls_token_buffer_release(&ids);
    return status;
}

static ls_status eval_data(const eval_settings *settings, ls_loaded_model *model, ls_evaluation *result_out,
                           double *bytes_per_token_out)
{
    LS_TRY(ls_loaded_model_choose_tokenizer(model, settings->tokenizer));
    const ls_dataset_options options = {
        .validation_patterns = &settings->data,
        .validation_pattern_count = 1,
        .field = settings->field,
        .tokenizer = model->file->tokenizer,
        .vocab_size = (uint32_t)model->file->config.vocab,
        .context = 1, /* windows are cut below: the file may be short */
    };
    ls_dataset *dataset = NULL;
    LS_TRY(ls_dataset_open(&options, &dataset));
    ls_token_stream stream = {read_dataset, dataset,
                              ls_dataset_stream_tokens(dataset, LS_SPLIT_VALIDATION, 0)};
    *bytes_per_token_out = ls_dataset_bytes_per_token(dataset, LS_SPLIT_VALIDATION);
    /* The end-of-text token separates documents; the one after the last separates nothing. */
    if (stream.token_count > 1 && ls_dataset_ends_document(dataset) &&
        ls_tokenizer_eos(model->file->tokenizer) >= 0) {
        *bytes_per_token_out *= (double)stream.token_count / (double)(stream.token_count - 1);
        stream.token_count--;
    }
    const ls_status status = evaluate(settings, model, &stream, result_out);
    ls_dataset_close(dataset);
    return status;
}

/* JSON has no infinity: the perplexity of a loss above 709. */
static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void print_evaluation(const eval_settings *settings, const ls_evaluation *evaluation,
                             double bytes_per_token)
{
    const double per_byte = bytes_per_token > 0.0 ? evaluation->loss / bytes_per_token : NAN;
    if (settings->json) {
        json_t *root = json_pack("{s:f, s:o, s:I, s:o}", "loss", evaluation->loss, "perplexity",
                                 real_or_null(exp(evaluation->loss)), "tokens",
                                 (json_int_t)evaluation->tokens, "loss_per_byte", real_or_null(per_byte));
        ls_print_json(root);
        json_decref(root);
        return;
    }
    printf("loss %.6f nats per token, perplexity %.4f, tokens %" PRIu64, evaluation->loss,
           exp(evaluation->loss), evaluation->tokens);
    if (isfinite(per_byte)) {
        printf(", %.6f nats per byte", per_byte);
    }
    putchar('\n');
}

static ls_status check_mode(const ls_invocation *invocation)
{
    const eval_settings *settings = invocation->settings;
    const int given = (settings->data[0] != 0) + (settings->tokens[0] != 0) + (settings->tasks[0] != 0) +
                      (settings->records[0] != 0) + (settings->prompt[0] != 0);
    if (given != 1) {
        return ls_fail(LS_ERR_INVALID, "give one of --data FILE, --tokens FILE, --records FILE, --tasks "
                                       "NAME=FILE and, with --side-by-side, --prompt TEXT");
    }
    const bool can_compare = settings->records[0] || settings->tasks[0] || settings->prompt[0];
    if (invocation->word_count > 1 && !can_compare) {
        return ls_fail(LS_ERR_INVALID, "two models are compared with --records, --tasks or --side-by-side; "
                                       "with --data and --tokens, give one model");
    }
    if (settings->side_by_side != (invocation->word_count > 1) && settings->side_by_side) {
        return ls_fail(LS_ERR_INVALID, "--side-by-side needs two models: eval A B --side-by-side");
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
    ls_loaded_model model;
    /* Ids need no tokenizer, and --tokenizer names another: the model's own may be unreadable. */
    const bool is_bare = settings->tokens[0] || settings->tokenizer[0];
    const ls_loaded_model_options options = {.path = invocation->words[0],
                                             .adapter = settings->adapter,
                                             .threads = settings->threads,
                                             .is_bare = is_bare};
    LS_TRY(ls_loaded_model_open(&model, &options));
    ls_evaluation evaluation = {0};
    double bytes_per_token = 0.0;
    ls_status status = check_context(settings, &model.file->config);
    if (status == LS_OK) {
        status = settings->tokens[0] ? eval_tokens(invocation, &model, &evaluation)
                                     : eval_data(settings, &model, &evaluation, &bytes_per_token);
    }
    ls_loaded_model_release(&model);
    LS_TRY(status);
    if (!isfinite(evaluation.loss)) {
        return ls_fail(LS_ERR_FAILED,
                       "the loss of %s is not finite (%f): its weights hold values that are not numbers, or "
                       "so large that they overflow",
                       invocation->words[0], evaluation.loss);
    }
    print_evaluation(settings, &evaluation, bytes_per_token);
    return LS_OK;
}

const ls_command ls_command_eval = {
    .name = "eval",
    .words = "CKPT [AFTER]",
    .summary = "measure a model: loss on a text, accuracy on records and tasks",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory. The loss is the mean over all tokens but the first: each is\n"
               "predicted once, from the tokens before it in its window of --context tokens.\n"
               "Neighbouring windows share one token. --data and --tokens give the same loss for\n"
               "the same text: no token is added, except the end-of-text token between two\n"
               "documents of --data, as in training.\n"
               "\n"
               "--records and --tasks count right answers, with 95 % intervals. With a second\n"
               "model, AFTER, they are counted for both, and the difference is tested on the same\n"
               "questions. --side-by-side shows the answers themselves.\n"
               "\n"
               "Examples:\n"
               "  lockstep eval runs/mine --data heldout.txt\n"
               "  lockstep eval runs/mine --tokens ids.txt\n"
               "  lockstep eval runs/mine --records tickets.jsonl --label team --choices auto\n"
               "  lockstep eval base runs/mine --records sums.jsonl --label answer --extract '#### *(.*)'\n"
               "  lockstep eval runs/mine --tasks hellaswag=hellaswag_val.jsonl --shots 5\n"
               "  lockstep eval base runs/mine --side-by-side --prompt \"Why is the sky blue?\"",
    .words_min = 1,
    .words_max = 2,
    .options = &eval_table,
    .settings_bytes = sizeof(eval_settings),
    .run = run_eval,
};

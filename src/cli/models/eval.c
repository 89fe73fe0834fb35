// SPDX-License-Identifier: Apache-2.0
/* eval: computes the loss and perplexity of a model on a file. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "cli/token_ids.h"
#include "data/dataset.h"
#include "execution/train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IDS_BYTES_MAX = 1 << 30 };

typedef struct eval_settings {
    const char *data, *tokens, *tokenizer, *field;
    uint64_t context, threads;
    bool json;
} eval_settings;

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
    {.key = "context",
     .type = LS_OPTION_U64,
     FIELD(context),
     .default_text = "0",
     .min = 0,
     .max = 16777216,
     .help = "number of tokens in each window of the text that is evaluated; 0: the model's context, at most "
             "1024"},
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

static ls_status run_eval(const ls_invocation *invocation)
{
    const eval_settings *settings = invocation->settings;
    if (!settings->data[0] == !settings->tokens[0]) {
        return ls_fail(LS_ERR_INVALID, "give either --data FILE or --tokens FILE");
    }
    ls_loaded_model model;
    /* Ids need no tokenizer, and --tokenizer names another: the model's own may be unreadable. */
    const bool is_bare = settings->tokens[0] || settings->tokenizer[0];
    LS_TRY((is_bare ? ls_loaded_model_init_bare : ls_loaded_model_init)(&model, invocation->words[0],
                                                                        settings->threads));
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
    .words = "CKPT",
    .summary = "compute the loss and perplexity of a model on a text",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory. The loss is the mean over all tokens but the first: each is\n"
               "predicted once, from the tokens before it in its window of --context tokens.\n"
               "Neighbouring windows share one token. --data and --tokens give the same loss for\n"
               "the same text: no token is added, except the end-of-text token between two\n"
               "documents of --data, as in training.\n"
               "\n"
               "Examples:\n"
               "  lockstep eval runs/mine --data heldout.txt\n"
               "  lockstep eval runs/mine --tokens ids.txt",
    .words_min = 1,
    .words_max = 1,
    .options = &eval_table,
    .settings_bytes = sizeof(eval_settings),
    .run = run_eval,
};

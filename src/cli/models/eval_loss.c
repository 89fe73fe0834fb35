// SPDX-License-Identifier: Apache-2.0
/* eval --data and --tokens: the losses of models on texts. */
#include "cli/models/eval.h"

#include "base/file.h"
#include "cli/table.h"
#include "cli/token_ids.h"
#include "data/dataset.h"
#include "execution/train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IDS_BYTES_MAX = 1 << 30, TEXTS_MOST = LS_TABLE_COLUMNS_MAX - 2 };

/* ---- one model, one text ---- */

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

static ls_status eval_tokens(ls_arena *arena, const eval_settings *settings, ls_loaded_model *model,
                             ls_evaluation *result_out)
{
    char *text = NULL;
    size_t bytes = 0;
    ls_token_buffer ids = {0};
    LS_TRY(ls_file_read(arena, settings->tokens, IDS_BYTES_MAX, &text, &bytes));
    ls_status status = ls_token_ids_parse(text, bytes, settings->tokens, &ids);
    if (status == LS_OK) {
        const ls_token_stream stream = {read_ids, ids.ids, ids.count};
        status = evaluate(settings, model, &stream, result_out);
        status = status == LS_OK ? LS_OK : ls_fail_within(status, "%s", settings->tokens);
    }
    ls_token_buffer_release(&ids);
    return status;
}

static ls_status eval_data(const eval_settings *settings, const char *const *pattern, ls_loaded_model *model,
                           ls_evaluation *result_out, double *bytes_per_token_out)
{
    LS_TRY(ls_loaded_model_choose_tokenizer(model, settings->tokenizer));
    const ls_dataset_options options = {
        .validation_patterns = pattern,
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

/* data: NULL for --tokens. */
static ls_status loss_of(ls_arena *arena, const eval_settings *settings, const char *const *data,
                         ls_loaded_model *model, json_t **loss_out)
{
    ls_evaluation evaluation = {0};
    double bytes_per_token = 0.0;
    LS_TRY(data ? eval_data(settings, data, model, &evaluation, &bytes_per_token)
                : eval_tokens(arena, settings, model, &evaluation));
    if (!isfinite(evaluation.loss)) {
        return ls_fail(LS_ERR_FAILED,
                       "the loss of %s is not finite (%f): its weights hold values that are not numbers, or "
                       "so large that they overflow",
                       model->file->path, evaluation.loss);
    }
    const double per_byte = bytes_per_token > 0.0 ? evaluation.loss / bytes_per_token : NAN;
    *loss_out = json_pack("{s:f, s:o, s:I, s:o}", "loss", evaluation.loss, "perplexity",
                          real_or_null(exp(evaluation.loss)), "tokens", (json_int_t)evaluation.tokens,
                          "loss_per_byte", real_or_null(per_byte));
    return LS_OK;
}

/* ---- several ---- */

static ls_status losses_of(ls_arena *arena, const eval_settings *settings, ls_loaded_model *model,
                           json_t *list)
{
    const uint64_t count = settings->tokens[0] ? 1 : settings->data.count;
    LS_TRY(check_context(settings, &model->file->config));
    for (uint64_t i = 0; i < count; i++) {
        const char *const *data = settings->tokens[0] ? NULL : (const char *const *)&settings->data.items[i];
        json_t *loss = NULL;
        LS_TRY(loss_of(arena, settings, data, model, &loss));
        if (data) {
            json_object_set_new(loss, "data", json_string(*data));
        }
        json_array_append_new(list, loss);
    }
    return LS_OK;
}

ls_status ls_eval_losses(ls_arena *arena, const eval_settings *settings, const char *const *models,
                         size_t count, json_t **losses_out)
{
    if (settings->data.count > TEXTS_MOST) {
        return ls_fail(LS_ERR_INVALID, "--data is given %" PRIu64 " times, allowed are up to %d",
                       settings->data.count, TEXTS_MOST);
    }
    json_t *rows = json_array();
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        ls_loaded_model model;
        /* Ids need no tokenizer, and --tokenizer names another: the model's own may be
         * unreadable. */
        const ls_loaded_model_options options = {.path = models[i],
                                                 .adapter = settings->adapter,
                                                 .threads = settings->threads,
                                                 .is_bare = settings->tokens[0] || settings->tokenizer[0]};
        status = ls_loaded_model_open(&model, &options);
        if (status == LS_OK) {
            json_t *list = json_array();
            json_array_append_new(rows, json_pack("{s:s, s:o}", "model", models[i], "losses", list));
            status = losses_of(arena, settings, &model, list);
            ls_loaded_model_release(&model);
        }
    }
    if (status != LS_OK) {
        json_decref(rows);
        return status;
    }
    *losses_out = json_pack("{s:o}", "models", rows);
    return LS_OK;
}

/* ---- showing them ---- */

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const json_t *loss_at(const json_t *models, size_t row, size_t column)
{
    return json_array_get(json_object_get(json_array_get(models, row), "losses"), column);
}

static void print_one(const json_t *loss)
{
    printf("loss %.6f nats per token, perplexity %.4f, tokens %" PRIu64, number_at(loss, "loss"),
           exp(number_at(loss, "loss")), (uint64_t)json_integer_value(json_object_get(loss, "tokens")));
    if (isfinite(number_at(loss, "loss_per_byte"))) {
        printf(", %.6f nats per byte", number_at(loss, "loss_per_byte"));
    }
    putchar('\n');
}

/* Models that cut a text into different numbers of tokens are compared per byte. */
static bool tokenizers_differ(const json_t *models)
{
    for (size_t i = 1; i < json_array_size(models); i++) {
        for (size_t k = 0; loss_at(models, i, k); k++) {
            if (number_at(loss_at(models, i, k), "tokens") != number_at(loss_at(models, 0, k), "tokens")) {
                return true;
            }
        }
    }
    return false;
}

static void print_table(ls_arena *arena, const json_t *models)
{
    const char *titles[LS_TABLE_COLUMNS_MAX] = {"model"};
    bool right[LS_TABLE_COLUMNS_MAX] = {false}, whole[LS_TABLE_COLUMNS_MAX] = {true};
    const char *key = tokenizers_differ(models) ? "loss_per_byte" : "loss";
    size_t texts = 0;
    for (; loss_at(models, 0, texts); texts++) {
        titles[texts + 1] = json_string_value(json_object_get(loss_at(models, 0, texts), "data"));
        right[texts + 1] = true;
    }
    titles[texts + 1] = "mean";
    right[texts + 1] = true;
    ls_table table = {
        .titles = titles, .right = right, .whole = whole, .columns = texts + 1 + (texts > 1), .arena = arena};
    for (size_t i = 0; i < json_array_size(models); i++) {
        double sum = 0.0;
        ls_table_add(&table, json_string_value(json_object_get(json_array_get(models, i), "model")));
        for (size_t k = 0; k < texts; k++) {
            const double loss = number_at(loss_at(models, i, k), key);
            ls_table_printf(&table, "%.4f", loss);
            sum += loss;
        }
        if (texts > 1) {
            ls_table_printf(&table, "%.4f", sum / (double)texts);
        }
    }
    ls_table_print(&table);
    printf("nats per %s\n", key[4] ? "byte" : "token");
}

void ls_eval_show_losses(ls_arena *arena, const json_t *losses, bool as_json)
{
    const json_t *models = json_object_get(losses, "models"), *only = loss_at(models, 0, 0);
    const bool is_one = json_array_size(models) == 1 && !loss_at(models, 0, 1);
    if (as_json) {
        ls_print_json(is_one ? only : losses);
    } else if (is_one) {
        print_one(only);
    } else {
        print_table(arena, models);
    }
}

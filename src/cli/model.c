// SPDX-License-Identifier: Apache-2.0
/* sample, eval, import and export: what can be done with a model that exists. */
#include "base/file.h"
#include "cli/command.h"
#include "compute/queue.h"
#include "data/dataset.h"
#include "execution/evaluate.h"
#include "execution/generate/generate.h"
#include "execution/model_file.h"
#include "model/huggingface.h"
#include "storage/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CARRIED_BYTES_MAX = 64 << 20, IDS_BYTES_MAX = 1 << 30 };

/* A model with its weights in memory. */
typedef struct loaded_model {
    ls_queue *queue;
    ls_model_file *file;
    ls_state state;
} loaded_model;

static void unload(loaded_model *model)
{
    ls_state_release(&model->state);
    ls_model_file_close(model->file);
    ls_queue_destroy(model->queue);
}

static ls_status load_parts(loaded_model *model, const char *path, uint64_t threads)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    LS_TRY(ls_model_file_open(path, &model->file));
    LS_TRY(ls_queue_create_cpu(threads ? (uint32_t)threads : cores > 0 ? (uint32_t)cores : 1, &model->queue));
    LS_TRY(ls_state_init(&model->state, model->queue, &model->file->layout, 0));
    return ls_model_file_load(model->file, model->state.parameters);
}

static ls_status load(loaded_model *model, const char *path, uint64_t threads)
{
    *model = (loaded_model){0};
    const ls_status status = load_parts(model, path, threads);
    if (status != LS_OK) {
        unload(model);
    }
    return status;
}

/* The model's own tokenizer, or the one the user names. */
static ls_status choose_tokenizer(loaded_model *model, const char *name)
{
    ls_tokenizer *tokenizer = NULL;
    if (name[0]) {
        LS_TRY(strcmp(name, "bytes") == 0 ? ls_tokenizer_create_bytes(&tokenizer)
                                          : ls_tokenizer_load(name, &tokenizer));
        ls_tokenizer_destroy(model->file->tokenizer);
        model->file->tokenizer = tokenizer;
    }
    if (!model->file->tokenizer) {
        return ls_fail(LS_ERR_INVALID, "%s has no tokenizer: name one with --tokenizer FILE",
                       model->file->path);
    }
    return LS_OK;
}

/* ---- sample ---- */

typedef struct sample_settings {
    const char *prompt, *tokenizer;
    uint64_t max_tokens, top_k, seed, threads;
    double temperature, top_p;
} sample_settings;

#define FIELD(name) .offset = offsetof(sample_settings, name)
static const ls_option sample_options[] = {
    {.key = "prompt",
     .letter = 'p',
     .type = LS_OPTION_STRING,
     FIELD(prompt),
     .default_text = "\"\\n\"",
     .value_name = "TEXT",
     .help = "text to continue"},
    {.key = "max_tokens",
     .letter = 'n',
     .type = LS_OPTION_U64,
     FIELD(max_tokens),
     .default_text = "200",
     .min = 1,
     .max = 1e9,
     .help = "tokens to add at most"},
    {.key = "temperature",
     .letter = 't',
     .type = LS_OPTION_F64,
     FIELD(temperature),
     .default_text = "0.8",
     .min = 0,
     .max = 100,
     .help = "0: always the likeliest token; higher: more surprising"},
    {.key = "top_k",
     .type = LS_OPTION_U64,
     FIELD(top_k),
     .default_text = "0",
     .min = 0,
     .max = 16777216,
     .help = "draw from the K likeliest tokens; 0: all"},
    {.key = "top_p",
     .type = LS_OPTION_F64,
     FIELD(top_p),
     .default_text = "1",
     .min = 1e-6,
     .max = 1,
     .help = "draw from the likeliest tokens that together have probability P"},
    {.key = "seed",
     .letter = 's',
     .type = LS_OPTION_U64,
     FIELD(seed),
     .default_text = "0",
     .min = 0,
     .max = LS_OPTION_U64_MAX,
     .help = "same prompt, settings and seed: same text"},
    {.key = "tokenizer",
     .type = LS_OPTION_STRING,
     FIELD(tokenizer),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "instead of the model's own; or the word bytes"},
    {.key = "threads",
     .type = LS_OPTION_U64,
     FIELD(threads),
     .default_text = "0",
     .min = 0,
     .max = 256,
     .help = "0: one per core"},
};
#undef FIELD
static const ls_option_table sample_table = LS_OPTIONS(sample_options);

typedef struct text_stream {
    const ls_tokenizer *tokenizer;
    ls_tokenizer_stream stream;
    ls_text_buffer text;
    ls_status status;
} text_stream;

/* Prints what the newest token completes. */
static bool print_token(void *context, int32_t token)
{
    text_stream *s = context;
    if ((uint32_t)token >= ls_tokenizer_vocab_size(s->tokenizer)) {
        return true; /* a row of the table that the tokenizer does not use */
    }
    s->text.bytes = 0;
    s->status = ls_tokenizer_stream_next(s->tokenizer, &s->stream, token, true, &s->text);
    if (s->status == LS_OK && s->text.bytes > 0) {
        fwrite(s->text.data, 1, s->text.bytes, stdout);
        fflush(stdout);
    }
    return s->status == LS_OK && !ferror(stdout);
}

static ls_status sample_loaded(const sample_settings *settings, loaded_model *model, ls_generator *generator,
                               const ls_token_buffer *prompt)
{
    text_stream s = {.tokenizer = model->file->tokenizer};
    const ls_sampling sampling = {.temperature = settings->temperature,
                                  .top_k = (uint32_t)settings->top_k,
                                  .top_p = settings->top_p,
                                  .seed = settings->seed};
    for (size_t i = 0; i < prompt->count && print_token(&s, prompt->ids[i]); i++) {
    }
    ls_status status = s.status;
    if (status == LS_OK) {
        const int32_t eos = model->file->config.eos_id >= 0 ? (int32_t)model->file->config.eos_id
                                                            : ls_tokenizer_eos(s.tokenizer);
        status = ls_generator_run(generator, prompt->ids, prompt->count, settings->max_tokens, &sampling, eos,
                                  print_token, &s);
    }
    if (status == LS_OK) {
        s.text.bytes = 0;
        status = s.status != LS_OK ? s.status : ls_tokenizer_stream_end(&s.stream, &s.text);
        if (s.text.bytes > 0) {
            fwrite(s.text.data, 1, s.text.bytes, stdout);
        }
        putchar('\n');
    }
    ls_text_buffer_release(&s.text);
    return status;
}

static ls_status sample_model(const sample_settings *settings, loaded_model *model)
{
    LS_TRY(choose_tokenizer(model, settings->tokenizer));
    ls_token_buffer prompt = {0};
    LS_TRY(ls_tokenizer_encode(model->file->tokenizer, NULL, settings->prompt, strlen(settings->prompt), true,
                               &prompt));
    ls_generator *generator = NULL;
    int64_t capacity = (int64_t)(prompt.count + settings->max_tokens);
    capacity = capacity < 2 ? 2 : capacity;
    ls_status status = ls_generator_create(model->queue, &model->file->config, &model->file->layout,
                                           model->state.parameters, capacity, &generator);
    if (status == LS_OK) {
        status = sample_loaded(settings, model, generator, &prompt);
    }
    ls_generator_destroy(generator);
    ls_token_buffer_release(&prompt);
    return status;
}

static ls_status run_sample(const ls_invocation *invocation)
{
    const sample_settings *settings = invocation->settings;
    if (settings->prompt[0] == '\0') {
        return ls_fail(LS_ERR_INVALID, "--prompt is empty: give at least one character to continue from");
    }
    loaded_model model;
    LS_TRY(load(&model, invocation->words[0], settings->threads));
    const ls_status status = sample_model(settings, &model);
    unload(&model);
    return status;
}

const ls_command ls_command_sample = {
    .name = "sample",
    .words = "CKPT",
    .summary = "let a model continue a text",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint) or a Hugging Face directory. "
               "The text appears as it is\n"
               "generated.",
    .words_min = 1,
    .words_max = 1,
    .options = &sample_table,
    .settings_bytes = sizeof(sample_settings),
    .run = run_sample,
};

/* ---- eval ---- */

typedef struct eval_settings {
    const char *data, *tokens, *tokenizer;
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
     .help = "text, JSON lines or token file to evaluate on"},
    {.key = "tokens",
     .type = LS_OPTION_STRING,
     FIELD(tokens),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "token ids separated by white space, instead of --data"},
    {.key = "tokenizer",
     .type = LS_OPTION_STRING,
     FIELD(tokenizer),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "instead of the model's own; or the word bytes"},
    {.key = "context",
     .type = LS_OPTION_U64,
     FIELD(context),
     .default_text = "0",
     .min = 0,
     .max = 16777216,
     .help = "tokens per window; 0: the model's context, at most 1024"},
    {.key = "threads",
     .type = LS_OPTION_U64,
     FIELD(threads),
     .default_text = "0",
     .min = 0,
     .max = 256,
     .help = "0: one per core"},
    {.key = "json",
     .type = LS_OPTION_BOOL,
     FIELD(json),
     .default_text = "false",
     .help = "print one JSON document"},
};
#undef FIELD
static const ls_option_table eval_table = LS_OPTIONS(eval_options);

typedef struct id_stream {
    const int32_t *ids;
} id_stream;

static ls_status read_ids(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    const id_stream *stream = context;
    memcpy(tokens_out, stream->ids + first, (size_t)count * sizeof *tokens_out);
    return LS_OK;
}

static ls_status read_dataset(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    return ls_dataset_tokens(context, LS_SPLIT_VALIDATION, 0, first, count, tokens_out);
}

static uint64_t window_length(const eval_settings *settings, const ls_model_config *config, uint64_t tokens)
{
    uint64_t length = settings->context ? settings->context : 1024;
    if (length > (uint64_t)config->context) {
        length = (uint64_t)config->context;
    }
    return tokens >= 2 && tokens - 1 < length ? tokens - 1 : length;
}

static ls_status evaluate(const eval_settings *settings, const loaded_model *model, ls_stream_fn stream,
                          void *context, uint64_t tokens, ls_evaluation *result_out)
{
    const uint64_t length = window_length(settings, &model->file->config, tokens);
    ls_evaluator *evaluator = NULL;
    LS_TRY(ls_evaluator_create(model->queue, &model->file->config, &model->file->layout, 1, (int64_t)length,
                               &evaluator));
    const ls_status status =
        ls_evaluator_run(evaluator, model->state.parameters, stream, context, tokens, 0, result_out);
    ls_evaluator_destroy(evaluator);
    return status;
}

/* Ids from a text file into `arena`. */
static ls_status parse_id_file(ls_arena *arena, const char *path, int32_t **ids_out, uint64_t *count_out)
{
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(arena, path, IDS_BYTES_MAX, &text, &bytes));
    int32_t *ids = ls_arena_new(arena, int32_t, bytes / 2 + 1);
    uint64_t count = 0;
    for (char *at = text + strspn(text, " \t\r\n"); *at; at += strspn(at, " \t\r\n")) {
        char *end = NULL;
        errno = 0;
        const long id = strtol(at, &end, 10);
        if (end == at || errno != 0 || id < 0 || id > INT32_MAX || !strchr(" \t\r\n", *end)) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: '%.20s' at byte %td is not a token id: whole numbers from 0, separated by white space",
                path, at, at - text);
        }
        ids[count++] = (int32_t)id;
        at = end;
    }
    *ids_out = ids;
    *count_out = count;
    return LS_OK;
}

static ls_status eval_tokens(const ls_invocation *invocation, loaded_model *model, ls_evaluation *result_out)
{
    const eval_settings *settings = invocation->settings;
    int32_t *ids = NULL;
    uint64_t count = 0;
    LS_TRY(parse_id_file(invocation->arena, settings->tokens, &ids, &count));
    id_stream stream = {ids};
    const ls_status status = evaluate(settings, model, read_ids, &stream, count, result_out);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "%s", settings->tokens);
}

static ls_status eval_data(const eval_settings *settings, loaded_model *model, ls_evaluation *result_out,
                           double *bytes_per_token_out)
{
    LS_TRY(choose_tokenizer(model, settings->tokenizer));
    const ls_dataset_options options = {
        .validation_patterns = &settings->data,
        .validation_pattern_count = 1,
        .tokenizer = model->file->tokenizer,
        .vocab_size = (uint32_t)model->file->config.vocab,
        .context = 1, /* windows are cut below: the file may be short */
    };
    ls_dataset *dataset = NULL;
    LS_TRY(ls_dataset_open(&options, &dataset));
    const uint64_t tokens = ls_dataset_stream_tokens(dataset, LS_SPLIT_VALIDATION, 0);
    *bytes_per_token_out = ls_dataset_bytes_per_token(dataset, LS_SPLIT_VALIDATION);
    const ls_status status = evaluate(settings, model, read_dataset, dataset, tokens, result_out);
    ls_dataset_close(dataset);
    return status;
}

static void print_evaluation(const eval_settings *settings, const ls_evaluation *evaluation,
                             double bytes_per_token)
{
    const double per_byte = bytes_per_token > 0.0 ? evaluation->loss / bytes_per_token : NAN;
    if (settings->json) {
        json_t *root = json_pack("{s:f, s:f, s:I, s:o}", "loss", evaluation->loss, "perplexity",
                                 exp(evaluation->loss), "tokens", (json_int_t)evaluation->tokens,
                                 "loss_per_byte", isfinite(per_byte) ? json_real(per_byte) : json_null());
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
    loaded_model model;
    LS_TRY(load(&model, invocation->words[0], settings->threads));
    ls_evaluation evaluation = {0};
    double bytes_per_token = 0.0;
    const ls_status status = settings->tokens[0] ? eval_tokens(invocation, &model, &evaluation)
                                                 : eval_data(settings, &model, &evaluation, &bytes_per_token);
    unload(&model);
    LS_TRY(status);
    print_evaluation(settings, &evaluation, bytes_per_token);
    return LS_OK;
}

const ls_command ls_command_eval = {
    .name = "eval",
    .words = "CKPT",
    .summary = "loss and perplexity of a model on a file",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint) or a Hugging Face directory. "
               "The tokens are cut in windows;\n"
               "every token but the first is predicted once, from what stands before it in its window.",
    .words_min = 1,
    .words_max = 1,
    .options = &eval_table,
    .settings_bytes = sizeof(eval_settings),
    .run = run_eval,
};

/* ---- import and export ---- */

typedef struct output_settings {
    const char *output;
} output_settings;

static const ls_option output_options[] = {
    {.key = "output",
     .letter = 'o',
     .type = LS_OPTION_STRING,
     .offset = offsetof(output_settings, output),
     .default_text = "\"\"",
     .value_name = "DIR",
     .help = "where the result goes"},
};
static const ls_option_table output_table = LS_OPTIONS(output_options);

/* Files of a model that are not weights: they travel unchanged through import and export. */
static const char *const carried_names[] = {
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
};
enum { CARRIED_COUNT = sizeof carried_names / sizeof carried_names[0] };

static ls_status read_carried(ls_arena *arena, const char *folder, ls_hf_file files[CARRIED_COUNT],
                              size_t *count_out)
{
    size_t count = 0;
    for (size_t i = 0; i < CARRIED_COUNT; i++) {
        const char *path = ls_path_join(arena, folder, carried_names[i]);
        char *data = NULL;
        size_t bytes = 0;
        if (ls_path_exists(path)) {
            LS_TRY(ls_file_read(arena, path, CARRIED_BYTES_MAX, &data, &bytes));
            files[count++] = (ls_hf_file){carried_names[i], data, bytes};
        }
    }
    *count_out = count;
    return LS_OK;
}

static ls_status save_import(const ls_invocation *invocation, const loaded_model *model, const char *output)
{
    ls_arena *arena = invocation->arena;
    ls_hf_file files[CARRIED_COUNT];
    ls_checkpoint_attachment attachments[CARRIED_COUNT + 1];
    size_t count = 0;
    LS_TRY(read_carried(arena, model->file->path, files, &count));
    for (size_t i = 0; i < count; i++) {
        attachments[i] = (ls_checkpoint_attachment){files[i].name, files[i].data, files[i].bytes};
    }
    char *config_text = NULL;
    LS_TRY(ls_model_file_config_text(&model->file->config, &config_text));
    attachments[count++] = (ls_checkpoint_attachment){"config.json", config_text, strlen(config_text)};
    json_t *extra = json_pack("{s:s}", "imported_from", ls_path_basename(model->file->path));
    const ls_checkpoint_meta meta = {
        .leaves = 1, .identity = "", .determinism = ls_queue_determinism_class(model->queue), .extra = extra};
    const ls_checkpoint_save_options options = {
        .root = output,
        .meta = &meta,
        .tensors = ls_state_tensors(arena, &model->state),
        .tensor_count = model->file->layout.parameter_count,
        .attachments = attachments,
        .attachment_count = count,
    };
    const ls_status status = ls_checkpoint_save(&options, NULL);
    json_decref(extra);
    free(config_text);
    LS_TRY(status);
    printf("%s/0: %s, %.2f million parameters%s\n", output, ls_family_name(model->file->config.family),
           (double)model->file->layout.element_count / 1e6,
           model->file->tokenizer ? ", with its tokenizer" : "");
    return LS_OK;
}

static ls_status run_import(const ls_invocation *invocation)
{
    const output_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "where should the checkpoint go? Give -o DIR");
    }
    loaded_model model;
    LS_TRY(load(&model, invocation->words[0], 0));
    const ls_status status = save_import(invocation, &model, settings->output);
    unload(&model);
    return status;
}

const ls_command ls_command_import = {
    .name = "import",
    .words = "HF_DIR",
    .summary = "a Hugging Face model into a checkpoint",
    .details = "HF_DIR holds config.json and safetensors, single or sharded, and maybe a tokenizer. The "
               "checkpoint goes to DIR/0; every\n"
               "command takes DIR for it, and 'model.from: DIR' in a run file starts training from it.",
    .words_min = 1,
    .words_max = 1,
    .options = &output_table,
    .settings_bytes = sizeof(output_settings),
    .run = run_import,
};

/* A bytes tokenizer has no file of its own in a checkpoint: the file that stands for it is written out. */
static void add_tokenizer(const loaded_model *model, ls_hf_file files[CARRIED_COUNT + 1], size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        if (strncmp(files[i].name, "tokenizer.", 10) == 0) {
            return;
        }
    }
    if (model->file->tokenizer) {
        const char *name = NULL;
        const void *data = NULL;
        size_t bytes = 0;
        ls_tokenizer_source(model->file->tokenizer, &name, &data, &bytes);
        files[(*count)++] = (ls_hf_file){name, data, bytes};
    }
}

static ls_status run_export(const ls_invocation *invocation)
{
    const output_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "where should the model go? Give -o DIR");
    }
    loaded_model model;
    LS_TRY(load(&model, invocation->words[0], 0));
    ls_hf_file files[CARRIED_COUNT + 1];
    size_t count = 0;
    ls_status status = read_carried(invocation->arena, model.file->path, files, &count);
    if (status == LS_OK) {
        add_tokenizer(&model, files, &count);
        status = ls_hf_export(settings->output, &model.file->config, &model.file->layout,
                              model.state.parameters, files, count);
    }
    if (status == LS_OK) {
        printf("%s: %s, %.2f million parameters, step %" PRIu64 "\n", settings->output,
               ls_family_name(model.file->config.family), (double)model.file->layout.element_count / 1e6,
               model.file->step);
    }
    unload(&model);
    return status;
}

const ls_command ls_command_export = {
    .name = "export",
    .words = "CKPT",
    .summary = "a checkpoint into a Hugging Face model directory",
    .details = "Writes model.safetensors (float32), config.json and the tokenizer, as transformers loads "
               "them. CKPT is a checkpoint or a\n"
               "run directory.",
    .words_min = 1,
    .words_max = 1,
    .options = &output_table,
    .settings_bytes = sizeof(output_settings),
    .run = run_export,
};

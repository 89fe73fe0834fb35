// SPDX-License-Identifier: Apache-2.0
/* sample: continues a text with a model. */
#include "cli/command.h"
#include "cli/foreign_text.h"
#include "cli/models/loaded_model.h"
#include "execution/generate/generate.h"
#include "execution/serve/answer_text.h"

#include <stdio.h>
#include <string.h>

typedef struct sample_settings {
    const char *prompt, *tokenizer, *adapter;
    uint64_t max_tokens, top_k, seed, threads;
    double temperature, top_p;
} sample_settings;

static const ls_option sample_options[] = {
    LS_ROW_TEXT_OR(sample_settings, prompt, "\"\\n\"", "TEXT", "text that the model continues",
                   .letter = 'p'),
    LS_ROW_U64(sample_settings, max_tokens, "200", 1, 1e9, "maximum number of tokens to generate",
               .letter = 'n'),
    LS_ROWS_SAMPLING(sample_settings),
    LS_ROW_OTHER_TOKENIZER(sample_settings),
    LS_ROW_ADAPTER(sample_settings),
    LS_ROW_THREADS(sample_settings),
};

/* Prints the characters that a token completes. */
typedef struct printer {
    ls_answer_text text;
    ls_foreign_text shown;
    ls_status status;
} printer;

static void print_new(printer *p, size_t before)
{
    if (p->text.shown_bytes > before) {
        (void)ls_foreign_text_write(&p->shown, p->text.text.data + before, p->text.shown_bytes - before);
    }
}

static bool take_token(void *context, int32_t token, const ls_text_scores *scores)
{
    (void)scores;
    printer *p = context;
    const size_t before = p->text.shown_bytes;
    p->status = ls_answer_text_add(&p->text, token);
    print_new(p, before);
    return p->status == LS_OK && !ferror(stdout);
}

static ls_status sample_loaded(const sample_settings *settings, const ls_loaded_model *model,
                               ls_generator *generator, const ls_token_buffer *prompt)
{
    printer p = {.text = {.tokenizer = model->file->tokenizer}, .shown = ls_foreign_text_begin()};
    int32_t stops[LS_MODEL_STOPS_MAX];
    const ls_text_request request = {.prompt = prompt->ids,
                                     .prompt_count = prompt->count,
                                     .count = settings->max_tokens,
                                     .stops = stops,
                                     .stop_count =
                                         ls_model_stops(&model->file->config, p.text.tokenizer, stops),
                                     .sampling = {.temperature = settings->temperature,
                                                  .top_k = (uint32_t)settings->top_k,
                                                  .top_p = settings->top_p,
                                                  .seed = settings->seed},
                                     .on_token = take_token,
                                     .context = &p};
    for (size_t i = 0; i < prompt->count && take_token(&p, prompt->ids[i], NULL); i++) {
    }
    ls_status status = p.status == LS_OK ? ls_generator_run(generator, &request) : p.status;
    const size_t before = p.text.shown_bytes;
    status = status == LS_OK ? p.status : status;
    status = status == LS_OK ? ls_answer_text_end(&p.text) : status;
    if (status == LS_OK) {
        print_new(&p, before);
        ls_foreign_text_end(&p.shown);
        putchar('\n');
    }
    ls_answer_text_release(&p.text);
    return status;
}

static ls_status sample_model(const sample_settings *settings, ls_loaded_model *model)
{
    LS_TRY(ls_loaded_model_choose_tokenizer(model, settings->tokenizer));
    ls_token_buffer prompt = {0};
    LS_TRY(ls_tokenizer_encode(model->file->tokenizer, NULL, settings->prompt, strlen(settings->prompt), true,
                               &prompt));
    ls_generator *generator = NULL;
    const int64_t needed = (int64_t)(prompt.count + settings->max_tokens);
    const ls_generator_options options = {.slots = 1, .capacity = needed < 2 ? 2 : needed};
    const ls_model_on_device on_device = ls_loaded_model_on_device(model);
    ls_status status = ls_generator_create(&on_device, &options, &generator);
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
    ls_loaded_model model;
    const ls_loaded_model_options options = {
        .path = invocation->words[0], .adapter = settings->adapter, .threads = settings->threads};
    LS_TRY(ls_loaded_model_open(&model, &options));
    const ls_status status = sample_model(settings, &model);
    ls_loaded_model_release(&model);
    return status;
}

const ls_command ls_command_sample = {
    .name = "sample",
    LS_WORDS("CKPT", 1, 1),
    .summary = "continue a text with a model",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory. The text is printed while it is generated. The same\n"
               "prompt, settings and seed give the same text.\n"
               "\n"
               "Examples:\n"
               "  lockstep sample runs/mine --prompt \"Once upon a time\"\n"
               "  lockstep sample runs/mine --temperature 0 --max-tokens 50",
    LS_SETTINGS(sample_settings, sample_options),
    .run = run_sample,
};

// SPDX-License-Identifier: Apache-2.0
/* Records: any JSON is refused with a text, or becomes samples with something trained in each. */
#include "data/conversation/recipe.h"
#include "data/conversation/samples.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
;

static const char *const templates[] = {
    NULL,
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    /* Rewrites earlier answers, and writes tool calls. */
    "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else m.content[:1] }}{% for c in "
    "m.tool_calls %}"
    "{{ c | tojson }}{% endfor %}<|endoftext|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
    "%}",
};
enum { TEMPLATES = sizeof templates / sizeof templates[0] };

static ls_tokenizer *make_tokenizer(void)
{
    ls_tokenizer *tokenizer = NULL;
    ls_tokenizer_trainer *trainer = NULL;
    const ls_tokenizer_train_options options = {.vocab_size = 300};
    static const char text[] = "user assistant system tool role content user assistant user assistant";
    if (ls_tokenizer_trainer_create(&options, &trainer) != LS_OK ||
        ls_tokenizer_trainer_add(trainer, text, sizeof text - 1) != LS_OK ||
        ls_tokenizer_trainer_finish(trainer, &tokenizer) != LS_OK) {
        abort();
    }
    ls_tokenizer_trainer_destroy(trainer);
    return tokenizer;
}

static void check(const ls_samples *samples, uint32_t vocab)
{
    size_t at = 0;
    for (size_t i = 0; i < samples->count; i++) {
        size_t trained = 0;
        for (; at < samples->ends[i].ids; at++) {
            const int32_t id = samples->ids.ids[at];
            trained += ls_token_is_trained(id);
            if ((uint32_t)ls_token_id(id) >= vocab) {
                abort();
            }
        }
        if (trained == 0) {
            abort();
        }
    }
}

static void apply(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch,
                  const ls_recipe_options *options, json_t *record)
{
    ls_recipe *recipe = NULL;
    ls_record_form form = LS_RECORD_TEXT;
    ls_samples samples = {0};
    if (ls_recipe_create(options, &recipe) != LS_OK) {
        abort();
    }
    if (ls_record_form_of(record, &options->keys, &form) == LS_OK && form != LS_RECORD_TEXT) {
        const ls_status status = ls_recipe_apply(recipe, scratch, record, form, &samples);
        if (status == LS_OK) {
            check(&samples, ls_tokenizer_vocab_size(tokenizer));
        } else if (ls_error_text()[0] == '\0' || samples.count > 0 || samples.ids.count > 0) {
            abort();
        }
    }
    ls_samples_release(&samples);
    ls_recipe_destroy(recipe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ls_tokenizer *tokenizer;
    static ls_tokenizer_scratch *scratch;
    tokenizer = tokenizer ? tokenizer : make_tokenizer();
    if (!scratch && ls_tokenizer_scratch_create(tokenizer, &scratch) != LS_OK) {
        abort();
    }
    json_t *record = size > 1 ? json_loadb((const char *)data + 1, size - 1, 0, NULL) : NULL;
    if (record) {
        const int32_t eos = ls_tokenizer_eos(tokenizer);
        const ls_recipe_options options = {
            .keys = {.text = "text", .format = (ls_record_format)(data[0] / 16 % 4)},
            .loss_on = (ls_loss_on)(data[0] / 64 % 3),
            .template_source = templates[data[0] % TEMPLATES],
            .template_name = "t",
            .template_date = "",
            .stops = &eos,
            .stop_count = 1,
            .tokenizer = tokenizer,
        };
        apply(tokenizer, scratch, &options, record);
        json_decref(record);
    }
    return 0;
}

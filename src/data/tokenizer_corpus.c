// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_corpus.h"

#include "data/record_walk.h"

#include <string.h>

static ls_status add_text(ls_tokenizer_trainer *trainer, const json_t *text)
{
    return json_is_string(text)
               ? ls_tokenizer_trainer_add(trainer, json_string_value(text), json_string_length(text))
               : LS_OK;
}

/* What is said in a record: a template writes the rest. */
static ls_status add_conversation(ls_tokenizer_trainer *trainer, const ls_conversation *from)
{
    size_t i, k;
    const json_t *messages, *message;
    if (from->prompt) {
        LS_TRY(ls_tokenizer_trainer_add(trainer, from->prompt, strlen(from->prompt)));
        return ls_tokenizer_trainer_add(trainer, from->completion, strlen(from->completion));
    }
    json_array_foreach(from->conversations, i, messages)
    {
        json_array_foreach(messages, k, message)
        {
            LS_TRY(add_text(trainer, json_object_get(message, "content")));
        }
    }
    return LS_OK;
}

typedef struct learner {
    ls_tokenizer_trainer *trainer;
    const ls_tokenizer_corpus *corpus;
} learner;

static ls_status add_record(void *context, const ls_walked *walked, ls_status read)
{
    const learner *l = context;
    if (read == LS_OK && walked->text) {
        return ls_tokenizer_trainer_add(l->trainer, walked->text, walked->bytes);
    }
    ls_conversation from = {0};
    const ls_record_form form = walked->file->form;
    ls_status status = read;
    if (status == LS_OK) {
        status = ls_conversation_read(walked->object, &l->corpus->keys, form, &from);
    }
    if (status == LS_OK) {
        status = add_conversation(l->trainer, &from);
        ls_conversation_release(&from);
    }
    const bool is_left = status == LS_ERR_DATA && l->corpus->skips_bad && form != LS_RECORD_TEXT;
    return is_left || status == LS_OK ? LS_OK : ls_record_fail(status, walked->file->path, walked->line);
}

ls_status ls_tokenizer_train_on(const ls_tokenizer_corpus *corpus, const ls_tokenizer_train_options *options,
                                ls_tokenizer **tokenizer_out)
{
    learner l = {.corpus = corpus};
    ls_record_walk walk = {.keys = &corpus->keys, .on_record = add_record, .context = &l};
    LS_TRY(ls_tokenizer_trainer_create(options, &l.trainer));
    ls_status status = ls_records_walk(&walk, corpus->files, corpus->count);
    if (status == LS_OK) {
        status = ls_tokenizer_trainer_finish(l.trainer, tokenizer_out);
    }
    ls_tokenizer_trainer_destroy(l.trainer);
    return status;
}

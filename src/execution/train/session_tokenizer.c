// SPDX-License-Identifier: Apache-2.0
/* The tokenizer of a session. */
#include "execution/train/session_internal.h"

#include "base/file.h"
#include "data/corpus.h"
#include "data/tokenizer_corpus.h"

#include <inttypes.h>
#include <string.h>

ls_dataset_source ls_session_items(const ls_session *session, const ls_option_weighted_list *list)
{
    const char **patterns = ls_arena_new(session->arena, const char *, list->count);
    const char **fields = ls_arena_new(session->arena, const char *, list->count);
    for (uint64_t i = 0; i < list->count; i++) {
        patterns[i] = list->items[i].path;
        fields[i] = list->items[i].field;
    }
    return (ls_dataset_source){
        .patterns = patterns, .pattern_count = (size_t)list->count, .fields = fields, .weight = 1.0};
}

/* A tokenizer is trained once per run: a continued run reads the one it trained. */
static ls_status train_tokenizer(ls_session *session, const char *run_dir)
{
    const char *path = run_dir ? ls_path_join(session->arena, run_dir, "tokenizer.json") : NULL;
    if (path && ls_path_exists(path)) {
        return ls_tokenizer_load(path, &session->tokenizer);
    }
    const ls_tokenizer_train_options options = {.vocab_size = (uint32_t)session->run.tokenizer.vocab};
    const ls_dataset_source all = ls_session_items(session, &session->run.data.train);
    const ls_corpus_query query = {.patterns = all.patterns,
                                   .pattern_count = all.pattern_count,
                                   .field = session->run.data.field,
                                   .fields = all.fields};
    ls_tokenizer_corpus corpus = {.keys = ls_run_form_keys(&session->run),
                                  .skips_bad = session->run.data.bad_records == LS_RUN_BAD_SKIP};
    LS_TRY(ls_corpus_expand(session->arena, &query, &corpus.files, &corpus.count));
    return ls_tokenizer_train_on(&corpus, &options, &session->tokenizer);
}

/* A model may have no tokenizer, and token files need none. The files that belong to it are read
 * now, because the source is closed after loading. */
static ls_status take_tokenizer_of_model(ls_session *session)
{
    LS_TRY(
        ls_model_file_carried(session->source, session->arena, &session->carried, &session->carried_count));
    session->tokenizer = session->source->tokenizer;
    session->source->tokenizer = NULL;
    return LS_OK;
}

/* The first id that means other text in `other` than in `own`; false if there is none. `other` may
 * have more ids. */
static bool find_other_meaning(const ls_tokenizer *own, const ls_tokenizer *other, uint32_t *id_out)
{
    for (uint32_t id = 0; id < ls_tokenizer_vocab_size(own); id++) {
        const char *a = ls_tokenizer_piece(own, (int32_t)id), *b = ls_tokenizer_piece(other, (int32_t)id);
        if ((a == NULL) != (b == NULL) || (a && strcmp(a, b) != 0)) {
            *id_out = id;
            return true;
        }
    }
    return false;
}

ls_status ls_session_check_meanings(const ls_session *session)
{
    const ls_tokenizer *own = session->source ? session->source->tokenizer : NULL;
    uint32_t id = 0;
    if (!own || session->run.tokenizer.replace || !find_other_meaning(own, session->tokenizer, &id)) {
        return LS_OK;
    }
    const char *ours = ls_tokenizer_piece(own, (int32_t)id);
    const char *theirs = ls_tokenizer_piece(session->tokenizer, (int32_t)id);
    return ls_fail(LS_ERR_INVALID,
                   "the run's tokenizer (%s) is not that of %s (%s): id %" PRIu32
                   " is \"%s\" for the run and \"%s\" for the model, so the model's embeddings would be "
                   "meaningless; remove tokenizer.kind and tokenizer.file to use the model's own, or set "
                   "tokenizer.replace: true to train the model on the other one",
                   ls_tokenizer_kind(session->tokenizer), session->run.model.from, ls_tokenizer_kind(own), id,
                   theirs ? theirs : "", ours ? ours : "");
}

ls_status ls_session_open_tokenizer(ls_session *session, const ls_session_options *options)
{
    switch (session->run.tokenizer.kind) {
    case LS_TOKENIZER_FILE:
        return ls_tokenizer_load(session->run.tokenizer.file, &session->tokenizer);
    case LS_TOKENIZER_TRAIN:
        return train_tokenizer(session, options->run_dir);
    case LS_TOKENIZER_MODEL:
        return take_tokenizer_of_model(session);
    case LS_TOKENIZER_BYTES:
    case LS_TOKENIZER_AUTO:
        break;
    }
    return ls_tokenizer_create_bytes(&session->tokenizer);
}

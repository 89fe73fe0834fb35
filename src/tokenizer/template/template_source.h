// SPDX-License-Identifier: Apache-2.0
/*
 * Where a model keeps its chat template and its special tokens: chat_template.jinja comes first,
 * then `chat_template` of tokenizer_config.json, which is a text or a list of named ones.
 */
#ifndef LS_TOKENIZER_TEMPLATE_TEMPLATE_SOURCE_H
#define LS_TOKENIZER_TEMPLATE_TEMPLATE_SOURCE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "tokenizer/tokenizer.h"

/* The texts of a model's files; NULL for one that it does not have. `where` (a folder) is for
 * messages. */
typedef struct ls_template_files {
    const char *where;
    const char *jinja;  /* chat_template.jinja */
    const char *config; /* tokenizer_config.json */
    size_t jinja_bytes, config_bytes;
} ls_template_files;

typedef struct ls_template_source {
    const char *text; /* of the template, in the arena; NULL: the model has none */
    size_t bytes;
    const char *where; /* the file it is from */
    json_t *tokens;    /* bos_token, eos_token, ... as texts; the caller's to release */
} ls_template_source;

/*
 * Picks from the files of a model. `name`: which template of a list; NULL is "default". A model
 * without a template, or whose list has no default, gives text NULL; a name that is not there is an
 * error. Errors: LS_ERR_DATA for a tokenizer_config.json that is not JSON, LS_ERR_INVALID for the
 * name.
 */
LS_MUST_CHECK ls_status ls_template_source_pick(ls_arena *arena, const ls_template_files *files,
                                                const char *name, ls_template_source *source_out);

/*
 * The same for a path: a folder with those files, a tokenizer_config.json (any .json), or the
 * template itself. A folder may also have additional_chat_templates/NAME.jinja. Errors: as above,
 * LS_ERR_NOT_FOUND, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_template_source_find(ls_arena *arena, const char *path, const char *name,
                                                ls_template_source *source_out);

/*
 * Replaces the template of `source` by the one at `path`; of the special tokens there, those that
 * `source` does not have are added. Errors: as above; LS_ERR_INVALID when there is no template.
 */
LS_MUST_CHECK ls_status ls_template_source_replace(ls_arena *arena, const char *path,
                                                   ls_template_source *source);

/* Adds to special tokens, as texts, the bos_token and eos_token that the tokenizer has and they
 * don't name. */
void ls_template_tokens_complete(const ls_tokenizer *tokenizer, json_t *tokens);

#endif

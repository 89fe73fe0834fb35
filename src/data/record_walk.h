// SPDX-License-Identifier: Apache-2.0
/*
 * Walk: reads the records of files one after another, on one thread, for what looks at data
 * without tokenising all of it (data/encode_corpus.h does that).
 */
#ifndef LS_DATA_RECORD_WALK_H
#define LS_DATA_RECORD_WALK_H

#include "base/json.h"
#include "data/conversation/recipe.h"
#include "data/corpus.h"

/* What was read: a document, or an object. */
typedef struct ls_walked {
    const ls_corpus_file *file;
    /* Its first line. */
    uint64_t line;
    /* Of the record, or of the text, in the file. */
    size_t file_bytes;
    /* UTF-8, not zero-terminated; NULL: an object. A text file is one document. */
    const char *text;
    size_t bytes;
    /* Of the walk; it may be changed. NULL: the document is a text file. */
    json_t *object;
} ls_walked;

typedef struct ls_record_walk {
    /* Decides about the forms of the files. NULL: every record is an object, whatever it holds, and
     * what has no other suffix is JSON lines. */
    const ls_form_keys *keys;
    /* Called for each file before it is read, when its form is known, with the bytes of its
     * content. May be NULL. */
    ls_status (*on_file)(void *context, const ls_corpus_file *file, uint64_t bytes);
    /*
     * Called for each record. read: LS_OK, or LS_ERR_DATA for one that cannot be read, with the
     * error text set; only file and line of `walked` are then valid. A status other than LS_OK ends
     * the walk with that status. Documents that are null are left out (ls_records_left_tell).
     */
    ls_status (*on_record)(void *context, const ls_walked *walked, ls_status read);
    void *context;
    /* Of a text file at most so many bytes are read. 0: all. */
    size_t text_bytes_max;
    /* The callbacks set them: to end the walk; to read no more records of this file and the others,
     * which on_file still sees. */
    bool is_done, is_full;
} ls_record_walk;

/*
 * Walks over `files`, which ls_corpus_expand made, and sets their forms. Errors: LS_ERR_UNSUPPORTED
 * for a token file; LS_ERR_DATA for a file that cannot be cut into records; those of
 * ls_corpus_detect, ls_corpus_unpack, ls_text_check and the callbacks.
 */
LS_MUST_CHECK ls_status ls_records_walk(ls_record_walk *walk, ls_corpus_file *files, size_t count);

/* Puts path and line before the error text, unless it begins with the path. Returns `status`. */
ls_status ls_record_fail(ls_status status, const char *path, uint64_t line);

/* Appends the samples of an object of a walk, which must be of its file's form. Errors, with path
 * and line: those of ls_corpus_check_form and ls_recipe_apply. */
LS_MUST_CHECK ls_status ls_walked_samples(const ls_recipe *recipe, ls_tokenizer_scratch *scratch,
                                          const ls_walked *walked, ls_samples *samples);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_corpus.h"

#include "base/file.h"
#include "data/jsonl.h"
#include "data/text.h"

#include <string.h>

static ls_status add_line(ls_tokenizer_trainer *trainer, const char *line, size_t bytes, const char *path,
                          uint64_t line_number)
{
    json_t *root = NULL;
    const char *text = NULL;
    size_t text_bytes = 0;
    LS_TRY(ls_jsonl_read(line, bytes, path, line_number, &root, &text, &text_bytes));
    const ls_status status = ls_tokenizer_trainer_add(trainer, text, text_bytes);
    json_decref(root);
    return status;
}

static ls_status add_lines(ls_tokenizer_trainer *trainer, const char *data, size_t bytes, const char *path)
{
    uint64_t line_number = 0;
    for (const char *at = data, *end = data + bytes; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end;
        line_number++;
        if (!ls_jsonl_is_blank(at, (size_t)(line_end - at))) {
            LS_TRY(add_line(trainer, at, (size_t)(line_end - at), path, line_number));
        }
        at = newline ? newline + 1 : end;
    }
    return LS_OK;
}

static ls_status add_file(ls_tokenizer_trainer *trainer, const ls_corpus_file *file)
{
    if (file->kind == LS_CORPUS_TOKENS) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s is a token file: a tokenizer is learned from text or JSON lines", file->path);
    }
    ls_file_map map;
    LS_TRY(ls_file_map_open(file->path, &map));
    const char *data = (const char *)map.data;
    ls_status status = LS_OK;
    if (file->kind == LS_CORPUS_JSONL) {
        status = add_lines(trainer, data, map.bytes, file->path);
    } else {
        status = ls_text_check(data, map.bytes, file->path, true);
        status = status == LS_OK ? ls_tokenizer_trainer_add(trainer, data, map.bytes) : status;
    }
    ls_file_map_close(&map);
    return status;
}

ls_status ls_tokenizer_train_on(const ls_corpus_file *files, size_t count,
                                const ls_tokenizer_train_options *options, ls_tokenizer **tokenizer_out)
{
    ls_tokenizer_trainer *trainer = NULL;
    LS_TRY(ls_tokenizer_trainer_create(options, &trainer));
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        status = add_file(trainer, &files[i]);
    }
    if (status == LS_OK) {
        status = ls_tokenizer_trainer_finish(trainer, tokenizer_out);
    }
    ls_tokenizer_trainer_destroy(trainer);
    return status;
}

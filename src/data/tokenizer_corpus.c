// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_corpus.h"

#include "base/file.h"
#include "data/records.h"
#include "data/text.h"

static ls_status add_records(ls_tokenizer_trainer *trainer, const ls_records *records)
{
    ls_records_left left = {0};
    ls_record_cursor cursor = records->first;
    while (cursor.at < records->bytes) {
        ls_record record;
        LS_TRY(ls_records_next(records, &cursor, &record));
        if (record.data) {
            ls_record_document document;
            LS_TRY(ls_records_read(records, &record, &document));
            if (!document.text) {
                ls_records_left_add(&left, 1, record.line);
            }
            const ls_status status =
                document.text ? ls_tokenizer_trainer_add(trainer, document.text, document.bytes) : LS_OK;
            ls_record_document_release(&document);
            LS_TRY(status);
        }
    }
    ls_records_left_tell(&left, records->file->path);
    return LS_OK;
}

static ls_status add_content(ls_tokenizer_trainer *trainer, const ls_corpus_file *file, ls_file_map map)
{
    const char *data = (const char *)map.data;
    if (file->kind == LS_CORPUS_TEXT) {
        LS_TRY(ls_text_check(data, map.bytes, file->path, true));
        const size_t mark = ls_text_mark_bytes(data, map.bytes);
        return ls_tokenizer_trainer_add(trainer, data + mark, map.bytes - mark);
    }
    ls_records records;
    LS_TRY(ls_records_open(file, data, map.bytes, &records));
    return add_records(trainer, &records);
}

static ls_status add_file(ls_tokenizer_trainer *trainer, const ls_corpus_file *file)
{
    if (file->kind == LS_CORPUS_TOKENS) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s is a token file: a tokenizer is learned from text or JSON lines", file->path);
    }
    ls_file_map map;
    LS_TRY(ls_file_map_open(file->path, &map));
    ls_status status = ls_corpus_unpack(file, &(ls_unpack_options){.folder = ""}, &map);
    if (status == LS_OK) {
        status = add_content(trainer, file, map);
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

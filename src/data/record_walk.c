// SPDX-License-Identifier: Apache-2.0
#include "data/record_walk.h"

#include "data/detect.h"
#include "data/records.h"
#include "data/text.h"

#include <string.h>

ls_status ls_record_fail(ls_status status, const char *path, uint64_t line)
{
    const char *text = ls_error_text();
    const size_t bytes = strlen(path);
    const bool is_placed = strncmp(text, path, bytes) == 0 && text[bytes] == ':';
    return is_placed ? status : ls_fail_within(status, "%s:%llu", path, (unsigned long long)line);
}

ls_status ls_walked_samples(const ls_recipe *recipe, ls_tokenizer_scratch *scratch, const ls_walked *walked,
                            ls_samples *samples)
{
    bool is_other = false;
    const ls_corpus_file *file = walked->file;
    ls_status status =
        ls_corpus_check_form(file, ls_recipe_keys(recipe), walked->object, walked->line, &is_other);
    if (status == LS_OK) {
        status = ls_recipe_apply(recipe, scratch, walked->object, file->form, samples);
    }
    return status == LS_OK ? LS_OK : ls_record_fail(status, file->path, walked->line);
}

static ls_status walk_object(ls_record_walk *walk, const ls_records *records, const ls_record *record,
                             ls_walked *walked)
{
    const ls_status read = ls_records_object(records, record, &walked->object);
    if (read != LS_OK && read != LS_ERR_DATA) {
        return read;
    }
    const ls_status status = walk->on_record(walk->context, walked, read);
    json_decref(walked->object);
    return status;
}

static ls_status walk_document(ls_record_walk *walk, const ls_records *records, const ls_record *record,
                               ls_walked *walked, ls_records_left *left)
{
    ls_record_document document = {0};
    const ls_status read = ls_records_read(records, record, &document);
    if (read != LS_OK && read != LS_ERR_DATA) {
        return read;
    }
    if (read == LS_OK && !document.text) {
        ls_records_left_add(left, 1, record->line);
    }
    walked->object = document.root;
    walked->text = document.text;
    walked->bytes = document.bytes;
    const ls_status status =
        read != LS_OK || document.bytes > 0 ? walk->on_record(walk->context, walked, read) : LS_OK;
    ls_record_document_release(&document);
    return status;
}

static ls_status walk_records(ls_record_walk *walk, const ls_corpus_file *file, const ls_file_map *map)
{
    ls_records records;
    ls_record record;
    ls_records_left left = {0};
    LS_TRY(ls_records_open(file, (const char *)map->data, map->bytes, &records));
    for (ls_record_cursor cursor = records.first; !walk->is_done && !walk->is_full;) {
        LS_TRY(ls_records_next(&records, &cursor, &record));
        if (!record.data) {
            break;
        }
        ls_walked walked = {.file = file, .line = record.line, .file_bytes = record.bytes};
        LS_TRY(file->form == LS_RECORD_TEXT ? walk_document(walk, &records, &record, &walked, &left)
                                            : walk_object(walk, &records, &record, &walked));
    }
    ls_records_left_tell(&left, file->path);
    return LS_OK;
}

static ls_status walk_text(ls_record_walk *walk, const ls_corpus_file *file, const ls_file_map *map)
{
    const char *data = (const char *)map->data;
    const size_t mark = ls_text_mark_bytes(data, map->bytes);
    const bool is_cut = walk->text_bytes_max > 0 && map->bytes > walk->text_bytes_max;
    ls_walked walked = {.file = file, .line = 1, .text = data + mark};
    walked.file_bytes = is_cut ? walk->text_bytes_max : map->bytes;
    size_t end = walked.file_bytes;
    while (is_cut && end > mark && ((unsigned char)data[end] & 0xC0) == 0x80) {
        end--;
    }
    walked.bytes = end - mark;
    LS_TRY(ls_text_check(data, end, file->path, true));
    return walk->on_record(walk->context, &walked, LS_OK);
}

static ls_status walk_file(ls_record_walk *walk, ls_corpus_file *file)
{
    ls_file_map map;
    if (file->kind == LS_CORPUS_TOKENS) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s is a token file, which has no text: name text or records",
                       file->path);
    }
    if (walk->keys) {
        LS_TRY(ls_corpus_detect(file, walk->keys, ""));
    } else {
        file->kind = file->kind == LS_CORPUS_TEXT ? LS_CORPUS_JSONL : file->kind;
        file->form = LS_RECORD_MESSAGES;
    }
    LS_TRY(ls_corpus_map(file, &map));
    ls_status status = ls_corpus_unpack(file, &(ls_unpack_options){.folder = ""}, &map);
    if (status == LS_OK && walk->on_file) {
        status = walk->on_file(walk->context, file, map.bytes);
    }
    if (status == LS_OK && !walk->is_done && !walk->is_full) {
        status = (ls_corpus_has_records(file->kind) ? walk_records : walk_text)(walk, file, &map);
    }
    ls_file_map_close(&map);
    return status;
}

ls_status ls_records_walk(ls_record_walk *walk, ls_corpus_file *files, size_t count)
{
    for (size_t i = 0; i < count && !walk->is_done; i++) {
        LS_TRY(walk_file(walk, &files[i]));
    }
    return LS_OK;
}

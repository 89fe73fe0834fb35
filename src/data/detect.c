// SPDX-License-Identifier: Apache-2.0
#include "data/detect.h"

#include "data/records.h"

typedef unsigned long long ull;

static const uint64_t HEAD_BYTES = UINT64_C(4) << 20;
enum { SEEN_MAX = 1000 };

/* The key of the file's own item goes before the one of all files. */
static ls_form_keys keys_of(const ls_corpus_file *file, const ls_form_keys *keys)
{
    ls_form_keys own = *keys;
    own.text = ls_corpus_field(file);
    return own;
}

/* The first record of the content that can be read. NULL: there are none, or they can't be found.
 * Errors: what is wrong with the first, if none of the first SEEN_MAX can be read. */
static ls_status first_record(const ls_corpus_file *file, ls_file_map content, uint64_t *line_out,
                              json_t **object_out)
{
    /* The form decides about nothing but the column of the document, which may not be there. */
    ls_corpus_file any = *file;
    any.form = LS_RECORD_MESSAGES;
    ls_records records;
    ls_record first = {0}, record = {0};
    *object_out = NULL;
    if (ls_records_open(&any, (const char *)content.data, content.bytes, &records) != LS_OK) {
        return LS_OK;
    }
    ls_record_cursor cursor = records.first;
    for (int i = 0; i < SEEN_MAX; i++) {
        if (ls_records_next(&records, &cursor, &record) != LS_OK || !record.data) {
            break;
        }
        first = i == 0 ? record : first;
        if (ls_records_object(&records, &record, object_out) == LS_OK) {
            *line_out = record.line;
            return LS_OK;
        }
    }
    return first.data ? ls_records_object(&records, &first, object_out) : LS_OK;
}

static ls_status detect_in(ls_corpus_file *file, const ls_form_keys *keys, ls_file_map content,
                           bool *found_out)
{
    json_t *object = NULL;
    ls_status status = first_record(file, content, &file->form_line, &object);
    *found_out = object != NULL;
    if (status == LS_OK) {
        ls_error_clear(); /* of records that were passed over */
    }
    if (object) {
        status = ls_record_form_of(object, keys, &file->form);
        json_decref(object);
        status =
            status == LS_OK ? LS_OK : ls_fail_within(status, "%s:%llu", file->path, (ull)file->form_line);
    }
    return status;
}

static ls_status detect_packed(ls_corpus_file *file, const ls_form_keys *keys, const char *folder,
                               ls_file_map packed)
{
    bool found = false;
    for (uint64_t head = HEAD_BYTES;; head = 0) {
        ls_file_map content;
        const ls_unpack_options how = {.folder = folder, .head_bytes = head};
        LS_TRY(ls_unpack(file->path, packed, &how, &content));
        const ls_status status = detect_in(file, keys, content, &found);
        const bool is_all = head == 0 || content.bytes < head;
        ls_file_map_close(&content);
        if (found || is_all) {
            return status;
        }
        ls_error_clear(); /* the first record may be longer than the head */
    }
}

ls_status ls_corpus_detect(ls_corpus_file *file, const ls_form_keys *keys, const char *folder)
{
    bool found = false;
    ls_file_map map;
    if (!ls_corpus_has_records(file->kind) || file->streamed) {
        return LS_OK;
    }
    const ls_form_keys own = keys_of(file, keys);
    LS_TRY(ls_corpus_map(file, &map));
    const ls_status status = file->packing == LS_PACKING_NONE ? detect_in(file, &own, map, &found)
                                                              : detect_packed(file, &own, folder, map);
    ls_file_map_close(&map);
    return status;
}

ls_status ls_corpus_check_form(const ls_corpus_file *file, const ls_form_keys *keys, const json_t *record,
                               uint64_t line, bool *is_other_out)
{
    const ls_form_keys own = keys_of(file, keys);
    ls_record_form form = LS_RECORD_TEXT;
    *is_other_out = false;
    LS_TRY(ls_record_form_of(record, &own, &form));
    *is_other_out = form != file->form;
    return form == file->form
               ? LS_OK
               : ls_fail(
                     LS_ERR_DATA,
                     "%s:%llu: the record is %s, while that of line %llu is %s: a file holds records of one "
                     "form; move the others to a file of their own",
                     file->path, (ull)line, ls_record_form_name(form), (ull)file->form_line,
                     ls_record_form_name(file->form));
}

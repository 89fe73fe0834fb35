// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_notes.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static ls_status check_tag(const json_t *tag, size_t index)
{
    const size_t bytes = json_string_length(tag);
    if (!json_is_string(tag) || bytes == 0 || bytes > LS_TAG_BYTES_MAX ||
        strpbrk(json_string_value(tag), " ,\n\t")) {
        return ls_fail(LS_ERR_INVALID,
                       "tag %zu is not a word of 1 to %d bytes without spaces and commas: write each tag as "
                       "one word",
                       index + 1, LS_TAG_BYTES_MAX);
    }
    return LS_OK;
}

static ls_status check(const json_t *notes)
{
    const json_t *note = json_object_get(notes, "note"), *tags = json_object_get(notes, "tags");
    if (!json_is_string(note) || !json_is_array(tags) || json_object_size(notes) != 2) {
        return ls_fail(LS_ERR_INVALID,
                       "notes are an object with the members `note`, a text, and `tags`, a list of texts");
    }
    if (json_string_length(note) > LS_NOTE_BYTES_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the note has %zu bytes, and at most %d are kept: put it into a file and name that here",
            json_string_length(note), LS_NOTE_BYTES_MAX);
    }
    if (json_array_size(tags) > LS_TAGS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%zu tags, and a run has at most %d: leave some out",
                       json_array_size(tags), LS_TAGS_MAX);
    }
    for (size_t i = 0; i < json_array_size(tags); i++) {
        LS_TRY(check_tag(json_array_get(tags, i), i));
    }
    return LS_OK;
}

json_t *ls_run_notes_parse(const char *text, size_t bytes)
{
    json_t *notes = bytes > 0 ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!notes || check(notes) != LS_OK) {
        json_decref(notes);
        notes = json_pack("{s:s, s:[]}", "note", "", "tags");
    }
    ls_error_clear();
    return notes;
}

ls_status ls_run_notes_save(const char *dir, const json_t *notes)
{
    ls_arena arena = {0};
    LS_TRY(check(notes));
    char *text = json_dumps(notes, JSON_INDENT(1));
    const ls_status status =
        text ? ls_file_write_atomic(ls_path_join(&arena, dir, "notes.json"), text, strlen(text))
             : ls_fail(LS_ERR_MEMORY, "not enough memory for the notes");
    free(text);
    ls_arena_release(&arena);
    return status;
}

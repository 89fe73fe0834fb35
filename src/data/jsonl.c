// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include "data/text.h"

#include <string.h>

typedef unsigned long long ull;

bool ls_jsonl_is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

static ls_status check_line(const char *line, size_t bytes, const char *path, uint64_t number)
{
    if (memchr(line, 0, bytes)) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: NUL byte: the file is binary or damaged, JSON lines are text",
                       path, (ull)number);
    }
    const size_t valid = ls_text_utf8_valid_bytes(line, bytes);
    if (valid < bytes) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: broken UTF-8, byte 0x%02x in column %zu: JSON must be UTF-8",
                       path, (ull)number, (unsigned char)line[valid], valid + 1);
    }
    return LS_OK;
}

/* Why an object without `text` can't be used. */
static ls_status fail_without_text(const json_t *root, const char *path, uint64_t number)
{
    static const char *const tuning_keys[] = {"messages", "conversations", "prompt", "completion"};
    for (size_t i = 0; i < sizeof tuning_keys / sizeof tuning_keys[0]; i++) {
        if (json_object_get(root, tuning_keys[i])) {
            return ls_fail(
                LS_ERR_DATA,
                "%s:%llu: the line has `%s` but no `text`: only plain text under the key `text` is read, "
                "instruction data with loss masks is not supported yet",
                path, (ull)number, tuning_keys[i]);
        }
    }
    return ls_fail(LS_ERR_DATA,
                   "%s:%llu: the object has no key `text`: rename the key that holds the document", path,
                   (ull)number);
}

ls_status ls_jsonl_read(const char *line, size_t bytes, const char *path, uint64_t line_number,
                        json_t **root_out, const char **text_out, size_t *text_bytes_out)
{
    LS_TRY(check_line(line, bytes, path, line_number));
    json_error_t error;
    /* Whole numbers as reals: ids beyond 64 bits under other keys are no reason to refuse a line. */
    json_t *root =
        json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY, &error);
    if (!root) {
        return ls_fail(LS_ERR_DATA, "%s:%llu: not valid JSON: %s (column %d)", path, (ull)line_number,
                       error.text, error.column);
    }
    ls_status status = LS_OK;
    const json_t *text = json_object_get(root, "text");
    if (!json_is_object(root)) {
        status = ls_fail(LS_ERR_DATA, "%s:%llu: a line must be one JSON object with a key `text`", path,
                         (ull)line_number);
    } else if (!text) {
        status = fail_without_text(root, path, line_number);
    } else if (!json_is_string(text)) {
        status = ls_fail(LS_ERR_DATA, "%s:%llu: `text` must be a string", path, (ull)line_number);
    }
    if (status != LS_OK) {
        json_decref(root);
        return status;
    }
    *root_out = root;
    *text_out = json_string_value(text);
    *text_bytes_out = json_string_length(text);
    return LS_OK;
}

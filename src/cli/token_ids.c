// SPDX-License-Identifier: Apache-2.0
#include "cli/token_ids.h"

#include <errno.h>
#include <stdlib.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The number at `at`, which ends at the end of the text or before white space. */
static bool parse_id(const char *at, const char *text_end, int32_t *id_out, const char **end_out)
{
    if (*at < '0' || *at > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    const long id = strtol(at, &end, 10);
    if (errno != 0 || id > INT32_MAX || (end != text_end && !is_space(*end))) {
        return false;
    }
    *id_out = (int32_t)id;
    *end_out = end;
    return true;
}

ls_status ls_token_ids_parse(const char *text, size_t bytes, const char *name, ls_token_buffer *ids)
{
    const char *at = text, *text_end = text + bytes;
    while (at < text_end) {
        if (is_space(*at)) {
            at++;
            continue;
        }
        int32_t id = 0;
        const char *end = NULL;
        if (!parse_id(at, text_end, &id, &end)) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: '%.20s' at byte %td is not a token id: whole numbers from 0, separated by white space",
                name, at, at - text);
        }
        LS_TRY(ls_token_buffer_reserve(ids, 1));
        ids->ids[ids->count++] = id;
        at = end;
    }
    return LS_OK;
}

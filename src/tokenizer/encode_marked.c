// SPDX-License-Identifier: Apache-2.0
/* Texts that hold bos and eos as text, as chat templates write them. */
#include "tokenizer/tokenizer_internal.h"

#include <string.h>

/* The earliest place from `at` on where one of the marks is written; NULL: none. */
static const char *find_mark(const char *at, const char *end, const char *const *marks, size_t *which_out)
{
    const char *first = NULL;
    for (size_t i = 0; i < 2; i++) {
        const char *found =
            marks[i] && marks[i][0] ? memmem(at, (size_t)(end - at), marks[i], strlen(marks[i])) : NULL;
        if (found && (!first || found < first)) {
            first = found;
            *which_out = i;
        }
    }
    return first;
}

ls_status ls_tokenizer_encode_marked(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch,
                                     const char *text, size_t bytes, ls_token_buffer *ids)
{
    if (strcmp(ls_tokenizer_kind(tokenizer), "SentencePiece BPE") != 0) {
        return ls_tokenizer_encode(tokenizer, scratch, text, bytes, false, ids);
    }
    const int32_t id[2] = {ls_tokenizer_bos(tokenizer), ls_tokenizer_eos(tokenizer)};
    const char *const marks[2] = {id[0] >= 0 ? ls_tokenizer_piece(tokenizer, id[0]) : NULL,
                                  id[1] >= 0 ? ls_tokenizer_piece(tokenizer, id[1]) : NULL};
    const char *end = text + bytes;
    for (const char *at = text; at < end;) {
        size_t which = 0;
        const char *mark = find_mark(at, end, marks, &which);
        const char *stop = mark ? mark : end;
        if (stop > at) {
            LS_TRY(ls_tokenizer_encode(tokenizer, scratch, at, (size_t)(stop - at), false, ids));
        }
        if (mark) {
            LS_TRY(ls_token_buffer_reserve(ids, 1));
            ids->ids[ids->count++] = id[which];
        }
        at = mark ? mark + strlen(marks[which]) : end;
    }
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* JSON lines: every line is refused with a text or gives valid UTF-8. */
#include "data/jsonl.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    for (uint64_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((newline ? newline : end) - at);
        const ls_jsonl_line line = {.path = "f", .number = number, .data = at, .bytes = bytes};
        ls_jsonl_document document = {0};
        if (!ls_jsonl_is_blank(at, bytes)) {
            const ls_status status = ls_jsonl_read(&line, &document);
            if (status == LS_OK) {
                if (document.text && ls_utf8_valid_prefix(document.text, document.bytes) != document.bytes) {
                    abort();
                }
                json_decref(document.root);
            } else if (status != LS_ERR_DATA || strncmp(ls_error_text(), "f:", 2) != 0) {
                abort();
            }
        }
        at += bytes + 1;
    }
    return 0;
}

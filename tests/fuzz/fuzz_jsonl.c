// SPDX-License-Identifier: Apache-2.0
/* JSON lines: every line is refused with a text or gives valid UTF-8. */
#include "data/jsonl.h"
#include "data/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    for (uint64_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((newline ? newline : end) - at);
        json_t *root = NULL;
        const char *text = NULL;
        size_t text_bytes = 0;
        if (!ls_jsonl_is_blank(at, bytes)) {
            const ls_status status = ls_jsonl_read(at, bytes, "f", number, &root, &text, &text_bytes);
            if (status == LS_OK) {
                if (ls_text_utf8_valid_bytes(text, text_bytes) != text_bytes) {
                    abort();
                }
                json_decref(root);
            } else if (status != LS_ERR_DATA || strncmp(ls_error_text(), "f:", 2) != 0) {
                abort();
            }
        }
        at += bytes + 1;
    }
    return 0;
}

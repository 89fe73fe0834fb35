// SPDX-License-Identifier: Apache-2.0
/* Chat templates: the input is a template, then, after a zero byte, its variables as JSON. Nothing
 * but a text or a named error comes of it. */
#include "base/assert.h"
#include "tokenizer/template/chat_template.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char standard[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
        "\"\\u00e9\"}], "
        "\"s\": \"Hello World\", \"n\": 5, \"l\": [3, 1, 2], \"d\": {\"a\": 1}, \"tools\": null}";
    const char *source = (const char *)data;
    const char *zero = bytes > 0 ? memchr(source, '\0', bytes) : NULL;
    const size_t source_bytes = zero ? (size_t)(zero - source) : bytes;
    ls_chat_template *template = NULL;
    const ls_status opened = ls_chat_template_open(source, source_bytes, "fuzz", &template);
    LS_ASSERT(opened == LS_OK || opened == LS_ERR_DATA || opened == LS_ERR_UNSUPPORTED);
    if (opened != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
        return 0;
    }
    json_t *variables = zero ? json_loadb(zero + 1, bytes - source_bytes - 1, JSON_ALLOW_NUL, NULL) : NULL;
    variables =
        json_is_object(variables) ? variables : (json_decref(variables), json_loads(standard, 0, NULL));
    ls_text first = {0}, second = {0};
    const ls_status status = ls_chat_template_render(template, variables, &first);
    LS_ASSERT(status == LS_OK || status == LS_ERR_DATA || status == LS_ERR_UNSUPPORTED ||
              status == LS_ERR_INVALID);
    /* The same variables give the same text. */
    if (status == LS_OK && first.bytes < 4096 && !memmem(source, source_bytes, "strftime", 8)) {
        LS_ASSERT(ls_chat_template_render(template, variables, &second) == LS_OK);
        LS_ASSERT(first.bytes == second.bytes &&
                  memcmp(ls_text_string(&first), ls_text_string(&second), first.bytes) == 0);
    }
    ls_text_release(&first);
    ls_text_release(&second);
    json_decref(variables);
    ls_chat_template_close(template);
    return 0;
}

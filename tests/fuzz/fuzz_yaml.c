// SPDX-License-Identifier: Apache-2.0
/* The YAML reader on arbitrary bytes: an error with text, or a tree whose every key has a line. */
#include "base/assert.h"
#include "base/yaml.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
const char *__lsan_default_suppressions(void);

/* libfyaml 0.7.12 loses a buffer of 1 KiB when deeply nested flow text ends in a broken quote.
 * Leaks of ours still count. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

static void check_keys_have_lines(const ls_document *doc)
{
    const char *key;
    json_t *value;
    json_object_foreach(doc->root, key, value)
    {
        LS_ASSERT(strchr(key, '.') || ls_document_line(doc, key) >= 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_document doc = {0};
    ls_error_clear();
    if (ls_yaml_parse((const char *)data, bytes, "fuzz.yaml", &doc) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0' && doc.root == NULL);
        return 0;
    }
    LS_ASSERT(doc.root != NULL);
    check_keys_have_lines(&doc);
    ls_document_release(&doc);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* The JSON reader on arbitrary bytes: an error with text, or a tree that prints and parses to an
 * equal tree.
 */
#include "base/assert.h"
#include "base/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_t *root = NULL;
    ls_error_clear();
    if (ls_json_parse((const char *)data, bytes, "fuzz.json", &root) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0' && root == NULL);
        return 0;
    }
    char *text = json_dumps(root, JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    LS_ASSERT(text != NULL);
    json_t *again = NULL;
    LS_ASSERT(ls_json_parse(text, strlen(text), "printed", &again) == LS_OK);
    LS_ASSERT(json_equal(root, again));
    json_decref(again);
    json_decref(root);
    free(text);
    return 0;
}

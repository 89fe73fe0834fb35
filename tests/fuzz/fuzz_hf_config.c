// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a config.json: refused with a message, or a configuration that checks and survives a
 * round trip. */
#include "base/assert.h"
#include "model/huggingface.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_model_config config, back;
    if (ls_hf_config_parse((const char *)data, bytes, "fuzz", &config) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
        return 0;
    }
    LS_ASSERT(ls_model_config_check(&config) == LS_OK);
    json_t *json = ls_hf_config_json(&config);
    char *text = json_dumps(json, 0);
    LS_ASSERT(text && ls_hf_config_parse(text, strlen(text), "again", &back) == LS_OK);
    LS_ASSERT(ls_model_config_equal(&config, &back));
    free(text);
    json_decref(json);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Descriptions of clusters on arbitrary bytes: an error with text, or a cluster that its own check
 * accepts. */
#include "base/assert.h"
#include "orchestration/simulate/cluster.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
const char *__lsan_default_suppressions(void);

/* libfyaml 0.7.12 loses a buffer of 1 KiB when deeply nested flow text ends in a broken quote.
 * Leaks of ours still count. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_document doc = {0};
    ls_arena arena = {0};
    ls_policy_cluster cluster = {0};
    if (ls_yaml_parse((const char *)data, bytes, "fuzz.yaml", &doc) != LS_OK) {
        return 0;
    }
    ls_error_clear();
    if (ls_cluster_read(&arena, &doc, &cluster) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0' && cluster.node_count == 0);
    } else {
        LS_ASSERT(ls_cluster_check(&cluster) == LS_OK && ls_cluster_devices(&cluster) >= cluster.node_count);
    }
    ls_arena_release(&arena);
    ls_document_release(&doc);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Files of metrics of any kind, in slices; what is made of them must be JSON. The first byte says which kind. */
#include "base/assert.h"
#include "base/json.h"
#include "telemetry/store/run_metrics.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SLICE_BYTES = 4096 };
    if (size == 0) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    const size_t bytes = size - 1;
    ls_feed feed = {.kind = (ls_feed_kind)(data[0] % 3)};
    ls_run_metrics metrics = {0};
    for (ls_feed_next next = LS_FEED_MORE; next == LS_FEED_MORE && ls_feed_from(&feed) <= bytes;) {
        const uint64_t from = ls_feed_from(&feed);
        const size_t left = bytes - (size_t)from, part = left < SLICE_BYTES ? left : SLICE_BYTES;
        next = ls_feed_take(&feed, &metrics, from, text + from, part, SLICE_BYTES);
        LS_ASSERT(next != LS_FEED_REWOUND);
    }
    ls_text answer = {0};
    ls_run_metrics_append_metrics(&metrics, &(ls_metrics_question){.to = UINT64_MAX, .points = 20}, &answer);
    json_t *root = json_loadb(answer.data, answer.bytes, 0, NULL);
    LS_ASSERT(root);
    json_decref(root);
    ls_text_release(&answer);
    ls_run_metrics_release(&metrics);
    return 0;
}

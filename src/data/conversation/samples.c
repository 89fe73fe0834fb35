// SPDX-License-Identifier: Apache-2.0
#include "data/conversation/samples.h"

#include <stdlib.h>

void ls_samples_clear(ls_samples *samples)
{
    samples->ids.count = 0;
    samples->count = 0;
    samples->is_loose = false;
}

void ls_samples_release(ls_samples *samples)
{
    ls_token_buffer_release(&samples->ids);
    free(samples->ends);
    *samples = (ls_samples){0};
}

ls_status ls_samples_end(ls_samples *samples, size_t bytes)
{
    if (samples->count == samples->capacity) {
        const size_t capacity = samples->capacity ? 2 * samples->capacity : 64;
        ls_sample_end *ends = realloc(samples->ends, capacity * sizeof *ends);
        if (!ends) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for %zu samples", capacity);
        }
        samples->ends = ends;
        samples->capacity = capacity;
    }
    const size_t before = samples->count > 0 ? samples->ends[samples->count - 1].text : 0;
    samples->ends[samples->count++] = (ls_sample_end){.ids = samples->ids.count, .text = before + bytes};
    return LS_OK;
}

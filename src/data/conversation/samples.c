// SPDX-License-Identifier: Apache-2.0
#include "data/conversation/samples.h"

#include "base/list.h"

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
    LS_TRY(ls_list_grow(&samples->ends, samples->count, &samples->capacity, sizeof *samples->ends));
    const size_t before = samples->count > 0 ? samples->ends[samples->count - 1].text : 0;
    samples->ends[samples->count++] = (ls_sample_end){.ids = samples->ids.count, .text = before + bytes};
    return LS_OK;
}

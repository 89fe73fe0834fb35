// SPDX-License-Identifier: Apache-2.0
/* Store files of runs: anything is taken whole, or refused. */
#include "telemetry/store/stored_run.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_stored_run run = {0};
    uint64_t end = 0;
    if (ls_stored_run_parse(&run, data, size, "x", &end)) {
        ls_text answer = {0};
        ls_run_metrics_append_metrics(&run.data, &(ls_metrics_question){.to = UINT64_MAX, .points = 20},
                                      &answer);
        ls_text_release(&answer);
    }
    ls_stored_run_release(&run);
    return 0;
}

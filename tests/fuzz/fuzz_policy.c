// SPDX-License-Identifier: Apache-2.0
/* The queue's policy under any stream of events: nothing is given twice, gangs are whole, all
 * counters are sums. */
#include "orchestration/policy/policy_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static stream s;
    stream_run(&s, data, bytes < 4096 ? bytes : 4096, true);
    return 0;
}

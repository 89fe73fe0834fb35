// SPDX-License-Identifier: Apache-2.0
/* Checkpoint write and load against plain O_DIRECT I/O. Usage: bench_checkpoint [FOLDER [MIB
 * [ROUNDS [THREADS]]]] */
#include "storage/checkpoint/bench.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const ls_checkpoint_bench_options options = {
        .folder = argc > 1 ? argv[1] : ".",
        .bytes = argc > 2 ? strtoull(argv[2], NULL, 10) << 20 : 0,
        .rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0,
        .threads = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0,
    };
    ls_checkpoint_bench_result result;
    if (ls_checkpoint_bench(&options, &result) != LS_OK) {
        fprintf(stderr, "bench_checkpoint: %s\n", ls_error_text());
        return 1;
    }
    printf("{\"name\": \"checkpoint\", \"results\": [{\"bytes\": %llu, \"rounds\": %u, \"write_bytes_ps\": "
           "%.0f, "
           "\"raw_write_bytes_ps\": %.0f, \"write_ratio\": %.3f, \"load_bytes_ps\": %.0f, "
           "\"raw_read_bytes_ps\": %.0f, "
           "\"load_ratio\": %.3f}]}\n",
           (unsigned long long)result.bytes, result.rounds, result.write_bytes_ps, result.raw_write_bytes_ps,
           result.write_ratio, result.load_bytes_ps, result.raw_read_bytes_ps, result.load_ratio);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * What a loop that does nothing but read gets from a token set: how soon the first batch is there,
 * and windows per second. For bench/stream_peer.py.
 *
 *   bench_stream SET CONTEXT BATCH BATCHES CACHE_FOLDER
 */
#include "base/clock.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

enum { AHEAD = 32 }; /* batches */

typedef struct job {
    const char *set, *cache;
    uint32_t context, batch, batches;
} job;

static ls_status read_batches(const job *j, const ls_dataset *dataset, double start_s)
{
    int32_t *ids = calloc(4 * (size_t)j->context, sizeof *ids);
    const ls_sample sample = {ids, ids + j->context, ids + 2 * (size_t)j->context,
                              ids + 3 * (size_t)j->context};
    double first_s = 0.0;
    ls_status status = ids ? LS_OK : ls_fail(LS_ERR_MEMORY, "not enough memory for a sample");
    for (uint64_t i = 0; i < (uint64_t)(AHEAD + j->batches) * j->batch && status == LS_OK; i++) {
        if (i < (uint64_t)j->batches * j->batch) {
            ls_dataset_expect(dataset, 1, i, (uint64_t)j->batches * j->batch);
        }
        if (i >= (uint64_t)AHEAD * j->batch) {
            status = ls_dataset_sample(dataset, LS_SPLIT_TRAIN, 1, i - (uint64_t)AHEAD * j->batch, &sample);
        }
        if (i + 1 == (uint64_t)(AHEAD + 1) * j->batch) {
            first_s = ls_clock_monotonic_s() - start_s;
        }
    }
    const double rest_s = ls_clock_monotonic_s() - start_s - first_s;
    printf("{\"first_s\": %.4f, \"windows_ps\": %.1f}\n", first_s, (j->batches - 1) * j->batch / rest_s);
    free(ids);
    return status;
}

static ls_status run(const job *j)
{
    const double start_s = ls_clock_monotonic_s();
    ls_tokenizer *tokenizer = NULL;
    ls_dataset *dataset = NULL;
    const ls_dataset_source source = {.patterns = &j->set, .pattern_count = 1, .weight = 1.0};
    LS_TRY(ls_tokenizer_open("bytes", &tokenizer));
    const ls_dataset_options options = {.sources = &source,
                                        .source_count = 1,
                                        .tokenizer = tokenizer,
                                        .context = j->context,
                                        .cache_dir = j->cache};
    ls_status status = ls_dataset_open(&options, &dataset);
    if (status == LS_OK) {
        status = read_batches(j, dataset, start_s);
        ls_dataset_close(dataset);
    }
    ls_tokenizer_destroy(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: bench_stream SET CONTEXT BATCH BATCHES CACHE_FOLDER\n");
        return 2;
    }
    const job j = {.set = argv[1],
                   .cache = argv[5],
                   .context = (uint32_t)strtoul(argv[2], NULL, 10),
                   .batch = (uint32_t)strtoul(argv[3], NULL, 10),
                   .batches = (uint32_t)strtoul(argv[4], NULL, 10)};
    const ls_status status = run(&j);
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
    }
    return ls_status_exit_code(status);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * How fast one core encodes a text file: bench_tokenize TOKENIZER FILE [--repeat N]
 *
 * TOKENIZER is anything ls_tokenizer_load reads, or `bytes`. The file is encoded as one text N
 * times (5); the first time has a cold word cache. Printed: MB/s of the median, of the best and of
 * the first time, and the number of ids. bench/tokenize_peer.py times Hugging Face's tokenizers
 * beside it.
 */
#include "base/clock.h"
#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT_MAX = 1000 };

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* CPU time of this thread: what a core does while others want it too. */
static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ls_status run(const char *tokenizer_path, const char *text_path, int repeat)
{
    ls_tokenizer *tokenizer;
    const double start_s = ls_clock_monotonic_s();
    LS_TRY(strcmp(tokenizer_path, "bytes") == 0 ? ls_tokenizer_create_bytes(&tokenizer)
                                                : ls_tokenizer_load(tokenizer_path, &tokenizer));
    const double load_s = ls_clock_monotonic_s() - start_s;
    ls_tokenizer_scratch *scratch;
    LS_TRY(ls_tokenizer_scratch_create(tokenizer, &scratch));
    ls_file_map map;
    LS_TRY(ls_file_map_open(text_path, &map));

    ls_token_buffer ids = {0};
    double seconds[REPEAT_MAX];
    const double cpu_before_s = cpu_s();
    for (int i = 0; i < repeat; i++) {
        ids.count = 0;
        const double before_s = ls_clock_monotonic_s();
        LS_TRY(ls_tokenizer_encode(tokenizer, scratch, (const char *)map.data, map.bytes, false, &ids));
        seconds[i] = ls_clock_monotonic_s() - before_s;
    }
    const double cpu_each_s = (cpu_s() - cpu_before_s) / repeat;
    const double first_s = seconds[0];
    qsort(seconds, (size_t)repeat, sizeof *seconds, by_value);
    const double megabytes = 1e-6 * (double)map.bytes;
    printf("{\"kind\":\"%s\",\"bytes\":%zu,\"ids\":%zu,\"bytes_ps\":%.0f,\"median_MBps\":%.1f,\"best_MBps\":%"
           ".1f,"
           "\"first_MBps\":%.1f,\"cpu_MBps\":%.1f,\"load_s\":%.3f}\n",
           ls_tokenizer_kind(tokenizer), map.bytes, ids.count, 1e6 * megabytes / seconds[repeat / 2],
           megabytes / seconds[repeat / 2], megabytes / seconds[0], megabytes / first_s,
           megabytes / cpu_each_s, load_s);
    ls_token_buffer_release(&ids);
    ls_file_map_close(&map);
    ls_tokenizer_scratch_destroy(scratch);
    ls_tokenizer_destroy(tokenizer);
    return LS_OK;
}

int main(int argc, char **argv)
{
    int repeat = 5;
    if (argc == 5 && strcmp(argv[3], "--repeat") == 0) {
        repeat = atoi(argv[4]);
    }
    if ((argc != 3 && argc != 5) || repeat < 1 || repeat > REPEAT_MAX) {
        fprintf(stderr, "usage: bench_tokenize TOKENIZER|bytes FILE [--repeat N]   N is 1 to %d\n",
                REPEAT_MAX);
        return 2;
    }
    const ls_status status = run(argv[1], argv[2], repeat);
    if (status != LS_OK) {
        fprintf(stderr, "bench_tokenize: %s\n", ls_error_text());
    }
    return ls_status_exit_code(status);
}

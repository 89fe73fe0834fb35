// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of a Parquet file: bench_parquet FILE [--print]
 *
 * Prints how fast one core turns them into lines of JSON; with --print, the lines.
 * bench/parquet_peer.py compares them with what pyarrow reads.
 */
#include "base/clock.h"
#include "data/parquet/parquet.h"

#include <stdio.h>
#include <string.h>

static ls_status read_rows(ls_parquet *parquet, bool print, uint64_t *bytes_out)
{
    ls_text lines = {0};
    ls_status status = LS_OK;
    for (bool done = false; status == LS_OK && !done;) {
        ls_text_clear(&lines);
        status = ls_parquet_read(parquet, 1 << 18, &lines, &done);
        *bytes_out += lines.bytes;
        if (print && status == LS_OK) {
            fwrite(ls_text_string(&lines), 1, lines.bytes, stdout);
        }
    }
    ls_text_release(&lines);
    return status;
}

static ls_status run(const char *path, bool print)
{
    ls_file_map map;
    ls_parquet *parquet = NULL;
    uint64_t bytes = 0;
    LS_TRY(ls_file_map_open(path, &map));
    const double start_s = ls_clock_monotonic_s();
    ls_status status = ls_parquet_open(path, map, &parquet);
    if (status == LS_OK) {
        status = read_rows(parquet, print, &bytes);
    }
    const double seconds = ls_clock_monotonic_s() - start_s;
    if (!print && status == LS_OK) {
        printf("{\"file_bytes\":%zu,\"line_bytes\":%llu,\"MBps\":%.1f}\n", map.bytes,
               (unsigned long long)bytes, 1e-6 * (double)bytes / seconds);
    }
    ls_parquet_close(parquet);
    ls_file_map_close(&map);
    return status;
}

int main(int argc, char **argv)
{
    const bool print = argc == 3 && strcmp(argv[2], "--print") == 0;
    if (argc != 2 && !print) {
        fprintf(stderr, "usage: bench_parquet FILE [--print]\n");
        return 2;
    }
    const ls_status status = run(argv[1], print);
    if (status != LS_OK) {
        fprintf(stderr, "bench_parquet: %s\n", ls_error_text());
    }
    return ls_status_exit_code(status);
}

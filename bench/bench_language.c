// SPDX-License-Identifier: Apache-2.0
/*
 * Languages of the lines of a file: bench_language MODEL FILE [--print]
 *
 * Prints how fast one core predicts them; with --print, label and probability of each line, as
 * `fasttext predict-prob MODEL FILE` does. bench/language_peer.py compares the two.
 */
#include "base/clock.h"
#include "base/file.h"
#include "data/language/language.h"

#include <stdio.h>
#include <string.h>

static ls_status run(const char *model_path, const char *text_path, bool print)
{
    ls_language_model *model = NULL;
    ls_file_map map;
    LS_TRY(ls_language_open(model_path, &model));
    LS_TRY(ls_file_map_open(text_path, &map));
    const double start_s = ls_clock_monotonic_s();
    size_t lines = 0;
    for (size_t at = 0; at < map.bytes; lines++) {
        const char *line = (const char *)map.data + at;
        const char *end = memchr(line, '\n', map.bytes - at);
        const size_t bytes = end ? (size_t)(end - line) : map.bytes - at;
        ls_language language;
        ls_language_predict(model, line, bytes, &language);
        if (print) {
            printf("__label__%s %.7g\n", language.label, language.probability);
        }
        at += bytes + 1;
    }
    const double seconds = ls_clock_monotonic_s() - start_s;
    if (!print) {
        printf("{\"lines\":%zu,\"bytes\":%zu,\"MBps\":%.1f}\n", lines, map.bytes,
               1e-6 * (double)map.bytes / seconds);
    }
    ls_file_map_close(&map);
    ls_language_close(model);
    return LS_OK;
}

int main(int argc, char **argv)
{
    const bool print = argc == 4 && strcmp(argv[3], "--print") == 0;
    if (argc != 3 && !print) {
        fprintf(stderr, "usage: bench_language MODEL FILE [--print]\n");
        return 2;
    }
    const ls_status status = run(argv[1], argv[2], print);
    if (status != LS_OK) {
        fprintf(stderr, "bench_language: %s\n", ls_error_text());
    }
    return ls_status_exit_code(status);
}

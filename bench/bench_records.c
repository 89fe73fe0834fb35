// SPDX-License-Identifier: Apache-2.0
/*
 * The loader of records: memory besides mapped files, and samples per second in the first and the
 * last tenth of an epoch.
 *
 *   bench_records FILE.jsonl TOKENIZER CONTEXT
 *
 * Opens the file twice: the first time it is tokenised, the second time it is in the cache.
 */
#include "base/clock.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 20000 };

/* A field of /proc/self/status in MiB. */
static double status_mib(const char *field)
{
    char line[256];
    double kib = 0.0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, field, strlen(field)) == 0) {
            kib = strtod(line + strlen(field) + 1, NULL);
        }
    }
    if (file) {
        fclose(file);
    }
    return kib / 1024.0;
}

static void print_line(void *context, const char *text)
{
    (void)context;
    printf("%s\n", text);
}

static ls_status draw(const ls_dataset *dataset, uint64_t first, const ls_sample *sample, double *rate_out)
{
    const double start_s = ls_clock_monotonic_s();
    for (uint64_t i = 0; i < DRAWS; i++) {
        LS_TRY(ls_dataset_sample(dataset, LS_SPLIT_TRAIN, 1, first + i, sample));
    }
    *rate_out = DRAWS / (ls_clock_monotonic_s() - start_s);
    return LS_OK;
}

static ls_status measure(const ls_dataset_options *options, const char *what)
{
    ls_dataset *dataset = NULL;
    double first = 0.0, last = 0.0;
    const double before = status_mib("RssAnon:"), start_s = ls_clock_monotonic_s();
    LS_TRY(ls_dataset_open(options, &dataset));
    const double open_s = ls_clock_monotonic_s() - start_s, after = status_mib("RssAnon:");
    int32_t *ids = calloc(4 * (size_t)options->context, sizeof *ids);
    const ls_sample sample = {ids, ids + options->context, ids + 2 * (size_t)options->context,
                              ids + 3 * (size_t)options->context};
    const uint64_t windows = ls_dataset_samples(dataset, LS_SPLIT_TRAIN);
    ls_status status = windows > DRAWS ? draw(dataset, 0, &sample, &first)
                                       : ls_fail(LS_ERR_INVALID, "the data has fewer than %d windows", DRAWS);
    if (status == LS_OK) {
        status = draw(dataset, windows - DRAWS, &sample, &last);
    }
    printf("%s: opened in %.2f s; %.1f MiB of memory besides maps (%.1f before), peak %.1f; "
           "%.0f windows/s at the beginning, %.0f at the end\n",
           what, open_s, after, before, status_mib("VmHWM:"), first, last);
    free(ids);
    ls_dataset_close(dataset);
    return status;
}

static ls_status run(char *const *argv)
{
    ls_tokenizer *tokenizer = NULL;
    ls_recipe *recipe = NULL;
    const char *const path = argv[1];
    const ls_dataset_source source = {.patterns = &path, .pattern_count = 1, .weight = 1.0};
    LS_TRY(ls_tokenizer_open(argv[2], &tokenizer));
    const ls_recipe_options how = {.keys = {.text = "text"}, .template_date = "", .tokenizer = tokenizer};
    LS_TRY(ls_recipe_create(&how, &recipe));
    const ls_dataset_options options = {.sources = &source,
                                        .source_count = 1,
                                        .validation_fraction = 0.01,
                                        .recipe = recipe,
                                        .packing = true,
                                        .tokenizer = tokenizer,
                                        .context = (uint32_t)strtoul(argv[3], NULL, 10),
                                        .tell = print_line};
    ls_status status = measure(&options, "tokenised");
    if (status == LS_OK) {
        status = measure(&options, "cached");
    }
    ls_recipe_destroy(recipe);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bench_records FILE.jsonl TOKENIZER CONTEXT\n");
        return 2;
    }
    const ls_status status = run(argv);
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
    }
    return ls_status_exit_code(status);
}

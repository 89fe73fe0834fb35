// SPDX-License-Identifier: Apache-2.0
/*
 * What a hit of the cache costs: microseconds for one entry of 1 MiB, found, pinned, mapped and let
 * go; beside the same file just mapped. In turn, medians. Usage: bench_cache [ROUNDS]
 */
#include "base/clock.h"
#include "storage/cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20, ROUNDS_MAX = 100000 };

static ls_status make(void *context, int fd, const char *path)
{
    (void)context;
    static const unsigned char data[BYTES];
    return ls_file_write_all(fd, path, data, sizeof data);
}

static ls_status take(void *context, ls_file_map map, const char *path)
{
    (void)path;
    *(ls_file_map *)context = map;
    return LS_OK;
}

static ls_status get(ls_cache *cache, int number)
{
    char key[65];
    ls_file_map map = {0};
    snprintf(key, sizeof key, "%016x%02x%046x", number * 7919, number, number);
    const ls_cache_item item = {.key = key, .what = "zeros", .make = make, .take = take, .context = &map};
    LS_TRY(ls_cache_get(cache, &item));
    ls_file_map_close(&map);
    return LS_OK;
}

static ls_status map_alone(const char *path)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    ls_file_map_close(&map);
    return LS_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static ls_status open_cache(const char *folder, ls_cache **cache_out)
{
    return ls_cache_open(&(ls_cache_options){.folder = folder, .suffix = ".zeros"}, cache_out);
}

static ls_status measure(const char *folder, int rounds)
{
    static double first_us[ROUNDS_MAX], next_us[ROUNDS_MAX], map_us[ROUNDS_MAX];
    ls_arena arena = {0};
    char key[65];
    snprintf(key, sizeof key, "%016x%02x%046x", 0, 0, 0);
    const char *path = ls_cache_entry_path(&arena, folder, key, ".zeros");
    for (int i = 0; i < rounds; i++) {
        ls_cache *cache = NULL;
        double begin = ls_clock_monotonic_s();
        LS_TRY(open_cache(folder, &cache));
        LS_TRY(get(cache, 0));
        first_us[i] = 1e6 * (ls_clock_monotonic_s() - begin);
        begin = ls_clock_monotonic_s();
        LS_TRY(get(cache, 0));
        next_us[i] = 1e6 * (ls_clock_monotonic_s() - begin);
        ls_cache_close(cache);
        begin = ls_clock_monotonic_s();
        LS_TRY(map_alone(path));
        map_us[i] = 1e6 * (ls_clock_monotonic_s() - begin);
    }
    ls_arena_release(&arena);
    printf("a hit: %.1f us with opening the cache, %.1f us for a further one; mapping the file alone %.1f us "
           "(medians of %d)\n",
           median(first_us, rounds), median(next_us, rounds), median(map_us, rounds), rounds);
    return LS_OK;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/lockstep-bench-cache-XXXXXX";
    const int wanted = argc > 1 ? atoi(argv[1]) : 2000,
              rounds = wanted < 1 || wanted > ROUNDS_MAX ? 2000 : wanted;
    ls_cache *cache = NULL;
    if (!mkdtemp(folder)) {
        return 1;
    }
    ls_status status = open_cache(folder, &cache);
    for (int i = 0; i < 16 && status == LS_OK; i++) {
        status = get(cache, i);
    }
    ls_cache_close(cache);
    if (status == LS_OK) {
        status = measure(folder, rounds);
    }
    if (status != LS_OK) {
        fprintf(stderr, "bench_cache: %s\n", ls_error_text());
    }
    return ls_dir_remove(folder) == LS_OK && status == LS_OK ? 0 : 1;
}

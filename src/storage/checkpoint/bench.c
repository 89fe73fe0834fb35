// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/bench.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/math.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS_MAX = 99, RAW_BYTES = 8 << 20, TENSOR_FLOATS = 3 << 19 /* 6 MiB */ };

typedef struct bench_run {
    ls_arena arena;
    const ls_checkpoint_bench_options *options;
    const char *folder, *raw_path;
    ls_checkpoint_tensor *tensors;
    size_t tensor_count;
    float *state; /* all tensors, page-aligned */
    size_t state_bytes, map_bytes;
    uint64_t file_bytes;
    double seconds[4][ROUNDS_MAX]; /* raw write, save, raw read, load */
} bench_run;

static double median(const double *values, unsigned count)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, count * sizeof *sorted);
    return ls_median_f64(sorted, count);
}

/* Parameters of 6 MiB each and one of odd size, followed by their moments, all filled with bits
 * that don't repeat. */
static ls_status make_state(bench_run *bench, uint64_t bytes)
{
    const uint64_t floats = bytes / 12 + 1;
    bench->state_bytes = (size_t)floats * 12;
    /* At least one whole buffer for the raw write, however small the state is. */
    bench->map_bytes = bench->state_bytes > RAW_BYTES ? bench->state_bytes : RAW_BYTES;
    bench->state = mmap(NULL, bench->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bench->state == MAP_FAILED) {
        bench->state = NULL;
        return ls_fail_errno(errno, "not enough memory for a test state of %zu bytes", bench->state_bytes);
    }
    uint64_t random = 88172645463325252u; /* xorshift64: fast and not compressible */
    uint32_t *words = (uint32_t *)bench->state;
    for (size_t i = 0; i < bench->state_bytes / 4; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        words[i] = (uint32_t)random;
    }
    bench->tensor_count = (size_t)((floats + TENSOR_FLOATS - 1) / TENSOR_FLOATS);
    bench->tensors = ls_arena_new(&bench->arena, ls_checkpoint_tensor, bench->tensor_count);
    for (size_t i = 0; i < bench->tensor_count; i++) {
        const uint64_t begin = i * TENSOR_FLOATS, left = floats - begin;
        bench->tensors[i] =
            (ls_checkpoint_tensor){.name = ls_arena_printf(&bench->arena, "layer.%05zu.weight", i),
                                   .rank = 1,
                                   .shape = {left < TENSOR_FLOATS ? left : TENSOR_FLOATS},
                                   .value = bench->state + begin,
                                   .m = bench->state + floats + begin,
                                   .v = bench->state + 2 * floats + begin};
    }
    return LS_OK;
}

static ls_status raw_write(bench_run *bench, int fd)
{
    const uint64_t bytes = (bench->file_bytes + RAW_BYTES - 1) / RAW_BYTES * RAW_BYTES;
    if (fallocate(fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP) {
        return ls_fail_errno(errno, "can't reserve space on the disk for %s", bench->raw_path);
    }
    for (uint64_t at = 0; at < bytes; at += RAW_BYTES) {
        /* Data come from the state itself; its length is not a multiple of the buffer, so the
         * window moves on. */
        const uint64_t from =
            bench->state_bytes > RAW_BYTES ? at % (bench->state_bytes - RAW_BYTES) / 4096 * 4096 : 0;
        LS_TRY(ls_file_pwrite_all(fd, bench->raw_path, (char *)bench->state + from, RAW_BYTES, at));
    }
    return fsync(fd) != 0 ? ls_fail_errno(errno, "can't flush %s to disk", bench->raw_path) : LS_OK;
}

static ls_status raw_read(bench_run *bench, int fd, void *buffer)
{
    for (uint64_t at = 0; at < bench->file_bytes; at += RAW_BYTES) {
        LS_TRY(ls_file_pread_all(fd, bench->raw_path, buffer, RAW_BYTES, at));
    }
    return LS_OK;
}

static ls_status raw_pass(bench_run *bench, bool write, double *seconds_out)
{
    const int flags = write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    void *buffer = aligned_alloc(4096, RAW_BYTES);
    const double start_s = ls_clock_monotonic_s();
    const int fd = open(bench->raw_path, flags | O_DIRECT | O_CLOEXEC, 0644);
    ls_status status = LS_OK;
    if (fd < 0) {
        status = ls_fail_errno(
            errno,
            "can't open %s with O_DIRECT; the benchmark needs a folder on a disk, not in memory (tmpfs)",
            bench->raw_path);
    } else if (!buffer) {
        status = ls_fail(LS_ERR_MEMORY, "not enough memory for a buffer of %d bytes", RAW_BYTES);
    } else {
        status = write ? raw_write(bench, fd) : raw_read(bench, fd, buffer);
    }
    if (fd >= 0) {
        close(fd);
    }
    *seconds_out = ls_clock_monotonic_s() - start_s;
    free(buffer);
    return status;
}

static ls_status save_pass(bench_run *bench, uint64_t step, double *seconds_out)
{
    const ls_checkpoint_meta meta = {.step = step, .identity = "bench", .determinism = "bench"};
    const ls_checkpoint_save_options options = {.root = bench->folder,
                                                .meta = &meta,
                                                .tensors = bench->tensors,
                                                .tensor_count = bench->tensor_count,
                                                .threads = bench->options->threads};
    ls_checkpoint_saved saved;
    LS_TRY(ls_checkpoint_save(&options, &saved));
    bench->file_bytes = saved.bytes;
    *seconds_out = saved.wall_s;
    return LS_OK;
}

/* Drops the data files from the page cache, so that loading reads the disk. */
static void drop_cache(bench_run *bench, const ls_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->manifest->file_count; i++) {
        const char *path = ls_path_join(&bench->arena, checkpoint->path, checkpoint->manifest->files[i].name);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
}

static ls_status load_pass(bench_run *bench, uint64_t step, double *seconds_out)
{
    const ls_checkpoint_load_options options = {.threads = bench->options->threads};
    const char *path = ls_arena_printf(&bench->arena, "%s/%llu", bench->folder, (unsigned long long)step);
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(ls_checkpoint_open(path, &checkpoint));
    drop_cache(bench, checkpoint);
    const double start_s = ls_clock_monotonic_s();
    const ls_status status = ls_checkpoint_load(checkpoint, bench->tensors, bench->tensor_count, &options);
    *seconds_out = ls_clock_monotonic_s() - start_s;
    ls_checkpoint_close(checkpoint);
    return status;
}

static ls_status run_round(bench_run *bench, unsigned round)
{
    LS_TRY(raw_pass(bench, true, &bench->seconds[0][round]));
    LS_TRY(save_pass(bench, round + 1, &bench->seconds[1][round]));
    LS_TRY(raw_pass(bench, false, &bench->seconds[2][round]));
    LS_TRY(load_pass(bench, round + 1, &bench->seconds[3][round]));
    LS_TRY(ls_dir_remove(ls_arena_printf(&bench->arena, "%s/%u", bench->folder, round + 1)));
    return ls_dir_remove(bench->raw_path);
}

static ls_status run(bench_run *bench, unsigned rounds, ls_checkpoint_bench_result *result_out)
{
    double warm_s = 0;
    LS_TRY(make_state(bench, bench->options->bytes ? bench->options->bytes : 512ull << 20));
    LS_TRY(save_pass(bench, 0, &warm_s)); /* its size is the amount that the raw passes move */
    LS_TRY(ls_dir_remove(ls_path_join(&bench->arena, bench->folder, "0")));
    for (unsigned i = 0; i < rounds; i++) {
        LS_TRY(run_round(bench, i));
    }
    double write_ratio[ROUNDS_MAX], load_ratio[ROUNDS_MAX];
    for (unsigned i = 0; i < rounds; i++) {
        write_ratio[i] = bench->seconds[0][i] / bench->seconds[1][i];
        load_ratio[i] = bench->seconds[2][i] / bench->seconds[3][i];
    }
    const double bytes = (double)bench->file_bytes;
    *result_out =
        (ls_checkpoint_bench_result){.bytes = bench->file_bytes,
                                     .rounds = rounds,
                                     .raw_write_bytes_ps = bytes / median(bench->seconds[0], rounds),
                                     .write_bytes_ps = bytes / median(bench->seconds[1], rounds),
                                     .raw_read_bytes_ps = bytes / median(bench->seconds[2], rounds),
                                     .load_bytes_ps = bytes / median(bench->seconds[3], rounds),
                                     .write_ratio = median(write_ratio, rounds),
                                     .load_ratio = median(load_ratio, rounds)};
    return LS_OK;
}

ls_status ls_checkpoint_bench(const ls_checkpoint_bench_options *options,
                              ls_checkpoint_bench_result *result_out)
{
    LS_ASSERT(options && options->folder && result_out);
    const unsigned rounds = options->rounds ? options->rounds : 5;
    if (rounds > ROUNDS_MAX) {
        return ls_fail(LS_ERR_INVALID, "rounds is %u, allowed is 1 to %d", rounds, ROUNDS_MAX);
    }
    bench_run *bench = calloc(1, sizeof *bench);
    LS_ASSERT(bench);
    bench->options = options;
    bench->folder = ls_arena_printf(&bench->arena, "%s/lockstep-bench-%d", options->folder, (int)getpid());
    bench->raw_path = ls_path_join(&bench->arena, bench->folder, "raw");
    ls_status status = run(bench, rounds, result_out);
    if (ls_dir_remove(bench->folder) != LS_OK && status == LS_OK) {
        status = ls_fail_within(LS_ERR_IO, "can't clean up after the bench");
    }
    if (bench->state) {
        munmap(bench->state, bench->map_bytes);
    }
    ls_arena_release(&bench->arena);
    free(bench);
    return status;
}

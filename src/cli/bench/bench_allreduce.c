// SPDX-License-Identifier: Apache-2.0
/* bench allreduce: collectives on this machine, compared with plain copies, which limit them. */
#include "cli/bench/bench.h"

#include "cli/command.h"
#include "comm/group/comm_bench.h"

#include <string.h>

/* One size, read like the value of an option. */
typedef struct size_setting {
    uint64_t bytes;
} size_setting;

static const ls_option size_options[] = {
    LS_ROW_BYTES(size_setting, bytes, bytes, "1KiB", 4, 1e12, "size of a buffer"),
};
static const ls_option_table size_table = LS_OPTIONS(size_options);

static ls_status read_sizes(ls_arena *arena, const char *text, uint64_t **sizes_out, uint32_t *count_out)
{
    char *rest = ls_arena_strdup(arena, text[0] ? text : "1KiB,16KiB,256KiB,1MiB,4MiB,16MiB,64MiB");
    uint64_t *sizes = ls_arena_new(arena, uint64_t, strlen(rest) / 2 + 1);
    uint32_t count = 0;
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        size_setting size;
        LS_TRY(ls_options_apply_value(&size_table, &size, "bytes", word, "--bytes", arena));
        sizes[count++] = size.bytes;
    }
    *sizes_out = sizes;
    *count_out = count;
    return LS_OK;
}

ls_status ls_bench_allreduce(ls_arena *arena, const ls_bench_allreduce_settings *settings, json_t **rows_out)
{
    uint64_t *sizes = NULL;
    uint32_t count = 0;
    LS_TRY(read_sizes(arena, settings->bytes, &sizes, &count));
    const ls_comm_bench_options options = {.ranks = (uint32_t)settings->ranks,
                                           .bytes = sizes,
                                           .bytes_count = count,
                                           .rounds = (uint32_t)settings->rounds,
                                           .without_shm = settings->without_shm,
                                           .any_order = settings->any_order};
    ls_comm_bench_result *results = ls_arena_new(arena, ls_comm_bench_result, count);
    LS_TRY(ls_comm_bench(&options, results));
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const ls_comm_bench_result *r = &results[i];
        json_t *row = json_pack("{s:i, s:I, s:s, s:s, s:f, s:f, s:f}", "ranks", (int)settings->ranks, "bytes",
                                (json_int_t)r->bytes, "transport", settings->without_shm ? "tcp" : "shm",
                                "order", settings->any_order ? "any" : "tree", "median_us", r->median_us,
                                "best_us", r->best_us, "copy_limit_us", r->copy_limit_us);
        if (settings->ranks > 1) { /* one rank has nothing to add and copies nothing */
            json_object_set_new(row, "limit_fraction", json_real(r->copy_limit_us / r->median_us));
        }
        json_array_append_new(rows, row);
    }
    *rows_out = rows;
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* What squeue and sinfo may say, from arbitrary bytes: rows with names and known states, or an
 * error with text. */
#include "base/assert.h"
#include "orchestration/engines/slurm/config.h"
#include "orchestration/engines/slurm/squeue.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_rows(ls_arena *arena, const char *text)
{
    ls_slurm_row *rows = NULL;
    size_t count = 0;
    if (ls_slurm_rows_read(arena, text, &rows, &count) != LS_OK) {
        LS_ASSERT(ls_error_text()[0]);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t job;
        uint32_t epoch;
        LS_ASSERT(rows[i].ref[0] && !strchr(rows[i].ref, '|') && rows[i].state <= LS_SLURM_NODE_LOST);
        LS_ASSERT(rows[i].exit_code >= 0 && rows[i].exit_code <= 255 && rows[i].start_s >= 0);
        LS_ASSERT(ls_slurm_reason_stage(rows[i].reason)[0] && ls_slurm_reason_text(arena, rows[i].reason)[0]);
        (void)ls_slurm_comment_read(rows[i].comment, 0xab, &job, &epoch);
    }
}

static void check_history(ls_arena *arena, const char *text)
{
    ls_slurm_row *rows = NULL;
    size_t count = 0;
    ls_slurm_history_read(arena, text, &rows, &count);
    for (size_t i = 0; i < count; i++) {
        LS_ASSERT(rows[i].ref[0] && rows[i].exit_code >= 0 && rows[i].exit_code <= 255 && rows[i].end_s >= 0);
    }
}

static void check_cluster(ls_arena *arena, const char *text)
{
    ls_slurm_cluster cluster;
    if (ls_slurm_cluster_read(arena, text, &cluster) != LS_OK) {
        LS_ASSERT(ls_error_text()[0]);
        return;
    }
    LS_ASSERT(cluster.node_count > 0 && cluster.partition_count > 0);
    for (size_t i = 0; i < cluster.node_count; i++) {
        LS_ASSERT(cluster.nodes[i].name[0] && (cluster.nodes[i].gpus == 0 || cluster.nodes[i].gpu_kind[0]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    char *text = ls_arena_strndup(&arena, (const char *)data, bytes);
    ls_slurm_version version;
    check_rows(&arena, text);
    check_cluster(&arena, text);
    check_history(&arena, text);
    if (ls_slurm_version_parse(text, &version) != LS_OK) {
        LS_ASSERT(ls_error_text()[0]);
    }
    ls_arena_release(&arena);
    return 0;
}

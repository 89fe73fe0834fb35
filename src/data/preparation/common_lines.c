// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/common_lines.h"

#include "base/hash.h"
#include "data/preparation/quality.h"

#include <stdlib.h>
#include <string.h>

ls_common_line *ls_line_table_find(const ls_line_table *table, uint64_t hash)
{
    uint64_t slot = (hash ^ hash >> 32) & table->mask;
    while (table->slots[slot].first && table->slots[slot].hash != hash) {
        slot = (slot + 1) & table->mask;
    }
    return &table->slots[slot];
}

ls_status ls_line_table_put(ls_line_table *table, ls_common_line line)
{
    if (!table->slots || 2 * (table->used + 1) > table->mask + 1) {
        ls_line_table larger = {.mask = table->slots ? 2 * table->mask + 1 : 1023};
        larger.slots = calloc(larger.mask + 1, sizeof *larger.slots);
        if (!larger.slots) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory to compare lines");
        }
        for (uint64_t i = 0; table->slots && i <= table->mask; i++) {
            if (table->slots[i].first) {
                *ls_line_table_find(&larger, table->slots[i].hash) = table->slots[i];
            }
        }
        larger.used = table->used;
        free(table->slots);
        *table = larger;
    }
    ls_common_line *slot = ls_line_table_find(table, line.hash);
    table->used += !slot->first;
    *slot = line;
    return LS_OK;
}

/* The line from *at on, up to a line feed. */
static ls_line next_line(const ls_passage *passage, size_t *at)
{
    const char *from = passage->text + *at;
    const char *end = memchr(from, '\n', passage->bytes - *at);
    const size_t bytes = end ? (size_t)(end - from) : passage->bytes - *at;
    *at += bytes + 1;
    return (ls_line){from, bytes};
}

static bool is_long(const ls_step *step, ls_line line, uint64_t *hash_out)
{
    const ls_line bare = ls_line_strip(line, true, true);
    *hash_out = ls_xxh3(bare.text, bare.bytes, 0);
    return bare.bytes > 0 && bare.bytes >= step->lines.length_min;
}

void ls_common_lines_collect(const ls_step *step, const ls_passage *passage, ls_text *out)
{
    const size_t count_at = out->bytes;
    uint32_t count = 0;
    uint64_t hash;
    ls_text_append_bytes(out, &count, sizeof count);
    for (size_t at = 0; at < passage->bytes;) {
        if (is_long(step, next_line(passage, &at), &hash)) {
            ls_text_append_bytes(out, &hash, sizeof hash);
            count++;
        }
    }
    memcpy(out->data + count_at, &count, sizeof count);
}

void ls_common_lines_remove(const ls_step *step, const ls_file_map *file, uint64_t document,
                            ls_step_scratch *scratch, ls_passage *passage, ls_removal *removal_out)
{
    const ls_line_table table = {.slots = (ls_common_line *)(uintptr_t)file->data,
                                 .mask = file->bytes / sizeof(ls_common_line) - 1};
    ls_text *out = ls_scratch_spare(scratch, passage);
    uint64_t hash;
    size_t removed = 0;
    for (size_t at = 0; file->bytes > 0 && at < passage->bytes;) {
        const size_t from = at;
        const ls_line line = next_line(passage, &at);
        const ls_common_line *found = is_long(step, line, &hash) ? ls_line_table_find(&table, hash) : NULL;
        if (found && found->first && found->first - 1 < document) {
            removed++;
            continue;
        }
        const size_t end = at < passage->bytes ? at : passage->bytes;
        ls_text_append_bytes(out, passage->text + from, end - from);
    }
    if (removed == 0) {
        return;
    }
    ls_scratch_take(scratch, out, passage);
    const ls_line rest = ls_line_strip((ls_line){passage->text, passage->bytes}, true, true);
    *passage = (ls_passage){rest.text, rest.bytes};
    removal_out->reason = rest.bytes == 0 ? LS_DEDUP_COPY : 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/common_lines.h"

#include "base/hash.h"
#include "data/preparation/quality.h"

#include <stdlib.h>
#include <string.h>

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
    const ls_first_table table = {.slots = (ls_first_place *)(uintptr_t)file->data,
                                  .mask = file->bytes / sizeof(ls_first_place) - 1};
    ls_text *out = ls_scratch_spare(scratch, passage);
    uint64_t hash;
    size_t removed = 0;
    for (size_t at = 0; file->bytes > 0 && at < passage->bytes;) {
        const size_t from = at;
        const ls_line line = next_line(passage, &at);
        const ls_first_place *found = is_long(step, line, &hash) ? ls_first_table_find(&table, hash) : NULL;
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

// SPDX-License-Identifier: Apache-2.0
#include "data/split.h"

#include "base/assert.h"
#include "base/math.h"

#include <string.h>

enum { STRIPES_MAX = 16, STRIPE_VALIDATION_TOKENS = 4096 };

/* The files of a source as one row of tokens. */
typedef struct file_row {
    const ls_tokens *files;
    size_t count;
    /* count + 1 entries: the row index of each file's first token, then the total. */
    const uint64_t *starts;
} file_row;

/* The validation part of one stripe: [begin, end) of the row. */
typedef struct cut {
    uint64_t begin, end;
} cut;

typedef struct cut_list {
    cut cuts[STRIPES_MAX];
    uint32_t count;
} cut_list;

/* The last index i in [0, count) with values[i] <= value; values[0] <= value must hold. */
static size_t last_not_above(const uint64_t *values, size_t count, uint64_t value)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (values[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The document boundary nearest to row index `at`, the lower one if two are equally near. */
static ls_status nearest_boundary(const file_row *row, uint64_t at, uint64_t *boundary_out)
{
    const uint64_t total = row->starts[row->count];
    *boundary_out = total;
    if (at >= total) {
        return LS_OK;
    }
    const size_t file = last_not_above(row->starts, row->count, at);
    const uint64_t inside = at - row->starts[file];
    uint64_t begin = 0, end = 0;
    LS_TRY(ls_tokens_document(&row->files[file], inside, &begin, &end));
    *boundary_out = row->starts[file] + (inside - begin <= end - inside ? begin : end);
    return LS_OK;
}

static uint64_t share_of(uint64_t tokens, double fraction)
{
    return (uint64_t)((double)tokens * fraction + 0.5);
}

static cut_list cut_in_stripes(uint64_t total, double fraction)
{
    const uint64_t wanted = share_of(total, fraction) / STRIPE_VALIDATION_TOKENS;
    cut_list list = {.count = wanted < 1 ? 1 : wanted > STRIPES_MAX ? STRIPES_MAX : (uint32_t)wanted};
    for (uint32_t s = 0; s < list.count; s++) {
        const uint64_t begin = (uint64_t)((unsigned __int128)total * s / list.count);
        const uint64_t end = (uint64_t)((unsigned __int128)total * (s + 1) / list.count);
        list.cuts[s] = (cut){.begin = end - share_of(end - begin, fraction), .end = end};
    }
    return list;
}

static uint64_t cut_tokens(const cut_list *list)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < list->count; s++) {
        sum += list->cuts[s].end - list->cuts[s].begin;
    }
    return sum;
}

/* Moves the cuts to document boundaries, but not if the share would miss the wanted one by more
 * than a factor of two. */
static ls_status move_to_documents(const file_row *row, cut_list *list)
{
    const uint64_t wanted = cut_tokens(list);
    cut_list moved = *list;
    for (uint32_t s = 0; s < list->count; s++) {
        LS_TRY(nearest_boundary(row, list->cuts[s].begin, &moved.cuts[s].begin));
        LS_TRY(nearest_boundary(row, list->cuts[s].end, &moved.cuts[s].end));
    }
    const uint64_t got = cut_tokens(&moved);
    if (got >= wanted - wanted / 2 && got <= 2 * wanted && got < row->starts[row->count]) {
        *list = moved;
    }
    return LS_OK;
}

void ls_stream_append(ls_arena *arena, ls_stream *stream, const ls_tokens *tokens, uint64_t first,
                      uint64_t count)
{
    LS_ASSERT(first <= tokens->count && count <= tokens->count - first);
    if (count == 0) {
        return;
    }
    ls_span *last = stream->span_count > 0 ? &stream->spans[stream->span_count - 1] : NULL;
    if (last && last->tokens == tokens && last->file_first + last->count == first) {
        last->count += count;
        stream->token_count += count;
        return;
    }
    LS_ASSERT(stream->span_count <= stream->span_capacity && (stream->spans || stream->span_capacity == 0));
    if (stream->span_count == stream->span_capacity) {
        const size_t capacity = stream->span_capacity ? stream->span_capacity * 2 : 8;
        ls_span *spans = ls_arena_new(arena, ls_span, capacity);
        if (stream->span_count > 0) {
            memcpy(spans, stream->spans, stream->span_count * sizeof *spans);
        }
        stream->spans = spans;
        stream->span_capacity = capacity;
    }
    stream->spans[stream->span_count++] =
        (ls_span){.tokens = tokens, .file_first = first, .stream_first = stream->token_count, .count = count};
    stream->token_count += count;
}

/* Appends row tokens [begin, end), file by file. */
static void append_row(ls_arena *arena, ls_stream *stream, const file_row *row, uint64_t begin, uint64_t end)
{
    while (begin < end) {
        const size_t file = last_not_above(row->starts, row->count, begin);
        const uint64_t stop = row->starts[file + 1] < end ? row->starts[file + 1] : end;
        ls_stream_append(arena, stream, &row->files[file], begin - row->starts[file], stop - begin);
        begin = stop;
    }
}

ls_status ls_split_files(ls_arena *arena, const ls_tokens *files, size_t file_count, double fraction,
                         ls_stream *train, ls_stream *validation)
{
    LS_ASSERT(file_count > 0 && fraction >= 0.0 && fraction <= 0.5);
    uint64_t *starts = ls_arena_new(arena, uint64_t, file_count + 1);
    for (size_t i = 0; i < file_count; i++) {
        LS_ASSERT(files[i].count > 0);
        starts[i + 1] = starts[i] + files[i].count;
    }
    const file_row row = {.files = files, .count = file_count, .starts = starts};
    const uint64_t total = starts[file_count];
    cut_list list = {.count = 0};
    if (fraction > 0.0) {
        list = cut_in_stripes(total, fraction);
        LS_TRY(move_to_documents(&row, &list));
    }
    uint64_t at = 0;
    for (uint32_t s = 0; s < list.count; s++) {
        append_row(arena, train, &row, at, list.cuts[s].begin);
        append_row(arena, validation, &row, list.cuts[s].begin, list.cuts[s].end);
        at = list.cuts[s].end;
    }
    append_row(arena, train, &row, at, total);
    return LS_OK;
}

/* The span that holds stream index `at`. */
static const ls_span *find_span(const ls_stream *stream, uint64_t at)
{
    size_t low = 0, high = stream->span_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (stream->spans[middle].stream_first <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &stream->spans[low];
}

ls_status ls_stream_read(const ls_stream *stream, uint64_t first, uint64_t count, int32_t *ids_out)
{
    LS_ASSERT(count <= stream->token_count && first <= stream->token_count - count);
    if (count == 0) {
        return LS_OK;
    }
    for (const ls_span *span = find_span(stream, first);; span++) {
        const uint64_t skip = first - span->stream_first;
        const uint64_t here = count < span->count - skip ? count : span->count - skip;
        LS_TRY(ls_tokens_read(span->tokens, span->file_first + skip, here, ids_out));
        first += here;
        count -= here;
        ids_out += here;
        if (count == 0) {
            return LS_OK;
        }
    }
}

void ls_stream_expect(const ls_stream *stream, uint64_t first, uint64_t count, bool whole)
{
    LS_ASSERT(count <= stream->token_count && first <= stream->token_count - count);
    for (const ls_span *span = find_span(stream, first); count > 0; span++) {
        const uint64_t skip = first - span->stream_first;
        const uint64_t here = ls_min_u64(count, span->count - skip);
        ls_tokens_expect(span->tokens, span->file_first + skip, here, whole);
        first += here;
        count -= here;
    }
}

ls_status ls_stream_document(const ls_stream *stream, uint64_t at, uint64_t *begin_out, uint64_t *end_out)
{
    LS_ASSERT(at < stream->token_count);
    const ls_span *span = find_span(stream, at);
    const uint64_t inside = span->file_first + (at - span->stream_first);
    uint64_t begin = 0, end = 0;
    LS_TRY(ls_tokens_document(span->tokens, inside, &begin, &end));
    const uint64_t past = span->stream_first + span->count;
    *begin_out =
        begin > span->file_first ? span->stream_first + (begin - span->file_first) : span->stream_first;
    *end_out = ls_min_u64(span->stream_first + (end - span->file_first), past);
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/train/update.h"

#include "base/assert.h"
#include "compute/kernels/compress.h"
#include "execution/parallel/slices.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* The `done` words of a tile fill one cache line, so workers never write to the same line.
     * Against the work in a tile, taking one costs nothing. */
    TILE_BLOCKS = 8,
    /* floats that are kept and updated at a time */
    PIECE = 128,
};
_Static_assert(LS_NORM_BLOCK % PIECE == 0, "a block is whole pieces");

/* Adjacent parameters in a slice with the same weight decay. */
typedef struct span {
    int64_t offset, count;
    bool decay;
} span;

typedef struct slice {
    int64_t offset, count;
    int64_t first_block; /* of all norm blocks of the layout */
    uint32_t first_span, span_count;
} slice;

struct ls_update {
    span *spans; /* slice after slice, by offset */
    slice *slices;
    uint32_t span_count, slice_count;
};

/* ---- spans ---- */

/* Cuts a slice into spans, leaving out the padding between parameters. */
static void add_spans(ls_update *update, const ls_layout *layout, slice *s)
{
    const int64_t past = s->offset + s->count;
    span *last = NULL;
    s->first_span = update->span_count;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const int64_t p_past = p->offset + p->rows * p->cols;
        const int64_t begin = p->offset > s->offset ? p->offset : s->offset;
        const int64_t end = p_past < past ? p_past : past;
        if (begin >= end) {
            continue;
        }
        if (last && last->decay == p->decay && last->offset + last->count == begin) {
            last->count += end - begin;
            continue;
        }
        last = &update->spans[update->span_count++];
        *last = (span){.offset = begin, .count = end - begin, .decay = p->decay};
    }
    s->span_count = update->span_count - s->first_span;
}

static slice slice_of(const ls_layout *layout, const ls_owned_slice *owned)
{
    const int64_t into_bucket = owned->offset - layout->buckets[owned->bucket].offset;
    LS_ASSERT(into_bucket % LS_NORM_BLOCK == 0);
    return (slice){.offset = owned->offset,
                   .count = owned->count,
                   .first_block = ls_blocks_before(layout, owned->bucket) + into_bucket / LS_NORM_BLOCK};
}

ls_status ls_update_create(const ls_layout *layout, const ls_owned_slice *slices, uint32_t slice_count,
                           ls_update **update_out)
{
    ls_update *update = calloc(1, sizeof *update);
    const size_t most = layout->parameter_count * (size_t)(slice_count > 0) + slice_count + 1;
    if (update) {
        update->spans = calloc(most, sizeof *update->spans);
        update->slices = calloc((size_t)slice_count + 1, sizeof *update->slices);
    }
    if (!update || !update->spans || !update->slices) {
        ls_update_destroy(update);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the optimizer's table of %zu runs of parameters",
                       most);
    }
    for (uint32_t i = 0; i < slice_count; i++) {
        update->slices[i] = slice_of(layout, &slices[i]);
        add_spans(update, layout, &update->slices[i]);
    }
    update->slice_count = slice_count;
    LS_ASSERT(update->span_count <= most);
    *update_out = update;
    return LS_OK;
}

void ls_update_destroy(ls_update *update)
{
    if (update) {
        free(update->spans);
        free(update->slices);
        free(update);
    }
}

/* ---- one block ---- */

typedef struct update_job {
    const ls_update_options *options;
    ls_adamw_factors decayed, plain;
    const slice *slice;
    const span *spans; /* of the slice */
} update_job;

/* The last span that begins at or before `offset`; the first when none does. */
static uint32_t find_span(const update_job *job, int64_t offset)
{
    uint32_t low = 0, high = job->slice->span_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (job->spans[middle].offset <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* With a delay, v has the outer gradient from when it is made to when it is applied. */
static void update_outer(const ls_update_options *o, int64_t at, int64_t count)
{
    if (o->applies) {
        ls_local_outer(o->outer, o->adamw.gradient_scale, count, o->gradients + at, o->flats[0] + at,
                       o->flats[1] + at);
    }
    for (int64_t i = at; i < at + count && o->outer->delay > 0; i++) {
        o->flats[2][i] = o->applies ? 0.0f : o->gradients[i] * o->adamw.gradient_scale;
    }
}

/* Updates the floats [offset, past); *at: a span at or before them, moved to the last that was
 * looked at. */
static void update_floats(const update_job *job, int64_t offset, int64_t past, uint32_t *at)
{
    const ls_update_options *o = job->options;
    for (; *at < job->slice->span_count; ++*at) {
        const span *s = &job->spans[*at];
        const int64_t begin = s->offset > offset ? s->offset : offset;
        const int64_t end = s->offset + s->count < past ? s->offset + s->count : past;
        if (begin < end && o->outer) {
            update_outer(o, begin, end - begin);
        } else if (begin < end) {
            const ls_master parameters = {.values = o->flats[0] + begin};
            const ls_status status =
                ls_adamw_update(o->queue, s->decay ? &job->decayed : &job->plain, end - begin, &parameters,
                                o->gradients + begin, o->flats[1] + begin, o->flats[2] + begin);
            LS_ASSERT(status == LS_OK); /* always, on the CPU */
        }
        if (s->offset + s->count >= past) {
            return;
        }
    }
}

/*
 * Stores a word of the undo record in program order. No processor fence is needed: the record is
 * read only after this process has ended, and a killed process ends between two instructions, with
 * all instructions before that point done and none after it. So only the compiler must be kept from
 * moving other stores across this one.
 */
static void say(_Atomic uint64_t *word, uint64_t value)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(word, value, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Where the old values of a block of flat buffer `flat` go; NULL: nowhere. */
static float *old_of(const ls_update_options *o, const ls_undo *undo, int flat, int64_t block_offset)
{
    return o->snapshot[0] ? o->snapshot[flat] + block_offset : undo ? (float *)undo->old[flat] : NULL;
}

/* Copies three streams in turn, two cache lines of each at a time: the hardware prefetcher follows
 * all three, and copies of a fixed short length are done in registers. */
static void keep_piece(float *const old[3], int64_t to, float *const flats[3], int64_t from, int64_t count)
{
    enum { LINES = 32 }; /* floats */
    int64_t i = 0;
    for (; i + LINES <= count; i += LINES) {
        for (int flat = 0; flat < 3; flat++) {
            memcpy(old[flat] + to + i, flats[flat] + from + i, LINES * sizeof(float));
        }
    }
    for (int flat = 0; flat < 3; flat++) {
        memcpy(old[flat] + to + i, flats[flat] + from + i, (size_t)(count - i) * sizeof(float));
    }
}

/* What a worker's first update of a round begins with. */
static void take_over(const ls_update_options *o, int64_t at, int64_t count)
{
    for (int64_t i = at; i < at + count && o->from; i++) {
        o->flats[0][i] = o->mixes ? 0.5f * (o->flats[0][i] + o->from[i]) : o->from[i];
    }
    for (int flat = 1; flat < 3 && o->resets; flat++) {
        memset(o->flats[flat] + at, 0, (size_t)count * sizeof(float));
    }
}

/* Updates one block in pieces that stay in the first-level cache between copy and update, so that
 * each float is read from memory once, as without a copy. `kept` grows before the piece changes: a
 * float that has changed always has its old value in the record. */
static void update_pieces(const update_job *job, int64_t offset, int64_t past, ls_undo *undo,
                          uint32_t *span_at)
{
    const ls_update_options *o = job->options;
    const int64_t halfway = offset + (past - offset) / 2;
    float *const old[3] = {old_of(o, undo, 0, offset), old_of(o, undo, 1, offset),
                           old_of(o, undo, 2, offset)};
    for (int64_t at = offset; at < past; at += PIECE) {
        const int64_t end = at + PIECE < past ? at + PIECE : past;
        if (old[0]) {
            keep_piece(old, at - offset, o->flats, at, end - at);
        }
        if (undo) {
            say(&undo->kept, (uint64_t)(end - offset));
        }
        take_over(o, at, end - at);
        update_floats(job, at, end, span_at);
        if (o->halfway && at <= halfway && halfway < end) {
            o->halfway(o->context);
        }
    }
}

/* The weights [offset, past) of a block have changed from `old`: packs the change. */
static void pack_change(const update_job *job, int64_t offset, int64_t past, const float *old)
{
    const ls_packed_change *change = &job->options->change;
    const int64_t at = offset - job->slice->offset;
    const uint64_t before = ls_compressed_bytes(change->form, (uint64_t)at);
    const ls_compressed_term term = {.residual = change->residual + at,
                                     .residual_out = change->residual_out + at,
                                     .packed_out = change->packed ? change->packed + before : NULL};
    ls_compress_change(job->options->queue, change->form, &term, old, past - offset,
                       job->options->flats[0] + offset);
}

/* Without a record. */
static void update_freely(const update_job *job, int64_t offset, int64_t past, uint32_t *span_at)
{
    float old[LS_NORM_BLOCK];
    if (job->options->change.form) {
        memcpy(old, job->options->flats[0] + offset, (size_t)(past - offset) * sizeof *old);
    }
    update_pieces(job, offset, past, NULL, span_at);
    if (job->options->change.form) {
        pack_change(job, offset, past, old);
    }
}

/* The sequence of parallel/undo.h. target, offset and in_snapshot describe the block and must be
 * stored before in_hand makes them count; `kept` starts at 0, because the old values of the block
 * before it are still there. */
static void update_block(const update_job *job, int64_t index, uint32_t worker, uint32_t *span_at)
{
    const ls_update_options *o = job->options;
    const int64_t block = job->slice->first_block + index;
    const int64_t offset = job->slice->offset + index * LS_NORM_BLOCK;
    const int64_t slice_past = job->slice->offset + job->slice->count;
    const int64_t past = offset + LS_NORM_BLOCK < slice_past ? offset + LS_NORM_BLOCK : slice_past;
    if (!o->record.done) {
        update_freely(job, offset, past, span_at);
        return;
    }
    _Atomic uint64_t *done = &o->record.done[block];
    ls_undo *undo = &o->record.undo[worker];
    if (atomic_load_explicit(done, memory_order_relaxed) == o->target) {
        return;
    }
    undo->target = o->target;
    undo->offset = offset + o->shift;
    undo->in_snapshot = o->snapshot[0] != NULL;
    say(&undo->kept, 0);
    say(&undo->in_hand, (uint64_t)block + 1);
    update_pieces(job, offset, past, undo, span_at);
    if (o->change.form) {
        pack_change(job, offset, past, undo->old[0]);
    }
    say(done, o->target);
    say(&undo->in_hand, 0);
}

static void tile_update(void *context, int64_t tile, uint32_t worker)
{
    const update_job *job = context;
    const int64_t blocks = (job->slice->count + LS_NORM_BLOCK - 1) / LS_NORM_BLOCK;
    const int64_t past = (tile + 1) * TILE_BLOCKS < blocks ? (tile + 1) * TILE_BLOCKS : blocks;
    uint32_t span_at = find_span(job, job->slice->offset + tile * TILE_BLOCKS * LS_NORM_BLOCK);
    for (int64_t i = tile * TILE_BLOCKS; i < past; i++) {
        update_block(job, i, worker, &span_at);
    }
}

/* The whole slice on a GPU, span by span. */
static ls_status enqueue_slice(const ls_update *update, const slice *s, const ls_update_options *options)
{
    LS_ASSERT(!options->record.done && !options->snapshot[0] && !options->halfway);
    ls_adamw plain = options->adamw;
    plain.weight_decay = 0.0f;
    const ls_adamw_factors decayed_factors = ls_adamw_factors_of(&options->adamw);
    const ls_adamw_factors plain_factors = ls_adamw_factors_of(&plain);
    for (uint32_t i = 0; i < s->span_count; i++) {
        const span *at = &update->spans[s->first_span + i];
        const ls_master parameters = ls_master_from(options->parameters, at->offset);
        LS_TRY(ls_adamw_update(options->queue, at->decay ? &decayed_factors : &plain_factors, at->count,
                               &parameters, options->gradients + at->offset, options->flats[1] + at->offset,
                               options->flats[2] + at->offset));
    }
    return LS_OK;
}

ls_status ls_update_run(ls_update *update, uint32_t index, const ls_update_options *options)
{
    LS_ASSERT(index < update->slice_count && !options->record.done == !options->record.undo);
    LS_ASSERT(!options->change.form || !options->snapshot[0]);
    LS_ASSERT(!options->record.undo || ls_queue_threads(options->queue) <= LS_UNDO_WORKERS);
    ls_adamw plain = options->adamw;
    plain.weight_decay = 0.0f;
    const slice *s = &update->slices[index];
    if (ls_queue_device(options->queue) != LS_DEVICE_CPU) {
        return enqueue_slice(update, s, options);
    }
    update_job job = {.options = options,
                      .decayed = ls_adamw_factors_of(&options->adamw),
                      .plain = ls_adamw_factors_of(&plain),
                      .slice = s,
                      .spans = update->spans + s->first_span};
    const int64_t tile_floats = TILE_BLOCKS * LS_NORM_BLOCK;
    ls_queue_run_tiles(options->queue, (s->count + tile_floats - 1) / tile_floats, tile_update, &job);
    return ls_queue_wait(options->queue);
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/gguf_export.h"

#include "base/file.h"
#include "execution/convert/gguf_tokenizer.h"
#include "execution/train/model_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Bytes encoded between two writes, and numbers per tile of work. */
enum { CHUNK_BYTES = 4 << 20, TILE_NUMBERS = 1 << 15 };

typedef struct writer {
    const ls_gguf_export_options *options;
    const ls_gguf *gguf;
    const ls_gguf_tensor *tensors;
    size_t count;
    ls_model_reader reader;
    float *values;          /* of the parameter at hand */
    unsigned char *encoded; /* a chunk of rows */
    float *extremes;        /* by tile of a chunk: the largest magnitude */
} writer;

/* ---- one tensor ------------------------------------------------------------------------------ */

/* Rows [first, first + count) of a tensor. */
typedef struct chunk {
    const writer *w;
    const ls_gguf_tensor *tensor;
    const float *values;
    int64_t head_rows; /* rows of a head, for LS_GGUF_HEADS */
    int64_t first, count, tile_rows;
} chunk;

/* Row r within a head comes from row r / 2 of its first half if r is even, of its second if odd. */
static int64_t row_within_heads(int64_t row, int64_t head_rows)
{
    const int64_t within = row % head_rows;
    return row - within + within % 2 * (head_rows / 2) + within / 2;
}

/* The numbers of a row of the file; scratch: room for one row. */
static const float *row_of(const chunk *c, int64_t row, float *scratch)
{
    const ls_gguf_tensor *t = c->tensor;
    switch (t->order) {
    case LS_GGUF_ROWS:
        break;
    case LS_GGUF_COLUMNS:
        for (int64_t k = 0; k < t->cols; k++) {
            scratch[k] = c->values[k * t->rows + row];
        }
        return scratch;
    case LS_GGUF_HEADS:
        if (t->rank == 2) {
            return c->values + row_within_heads(row, c->head_rows) * t->cols;
        }
        for (int64_t k = 0; k < t->cols; k++) {
            scratch[k] = c->values[row_within_heads(k, c->head_rows)];
        }
        return scratch;
    }
    return c->values + row * t->cols;
}

/* Numbers that are not finite count as infinite. */
static float largest_of(const float *row, int64_t cols)
{
    float largest = 0.0f;
    for (int64_t k = 0; k < cols; k++) {
        const float magnitude = fabsf(row[k]);
        largest = magnitude <= largest ? largest : isnan(magnitude) ? INFINITY : magnitude;
    }
    return largest;
}

static void encode_tile(void *context, int64_t tile, uint32_t worker)
{
    const chunk *c = context;
    const ls_gguf_tensor *t = c->tensor;
    const uint64_t row_bytes = ls_block_row_bytes(t->type, (uint64_t)t->cols);
    float *scratch = ls_queue_scratch(c->w->options->queue, worker, (size_t)t->cols * sizeof *scratch);
    float largest = 0.0f;
    const int64_t begin = tile * c->tile_rows;
    const int64_t end = begin + c->tile_rows < c->count ? begin + c->tile_rows : c->count;
    for (int64_t r = begin; r < end; r++) {
        const float *row = row_of(c, c->first + r, scratch);
        const float now = largest_of(row, t->cols);
        largest = now > largest ? now : largest;
        if (now <= ls_block_limit(t->type)) {
            ls_block_encode(t->type, row, (uint64_t)t->cols, c->w->encoded + (uint64_t)r * row_bytes);
        }
    }
    c->w->extremes[tile] = largest;
}

static ls_status check_range(const ls_gguf_tensor *t, float largest)
{
    if (!isfinite(largest)) {
        return ls_fail(LS_ERR_INVALID,
                       "tensor %s holds a number that is not finite: the training went "
                       "wrong before this checkpoint; export an earlier one",
                       t->name);
    }
    if (largest > ls_block_limit(t->type)) {
        return ls_fail(LS_ERR_INVALID, "tensor %s holds %g, but %s ends at %g: export with --quant bf16",
                       t->name, (double)largest, ls_block_name(t->type), (double)ls_block_limit(t->type));
    }
    return LS_OK;
}

static int64_t at_least_one(int64_t value)
{
    return value > 0 ? value : 1;
}

static int64_t chunk_rows(const ls_gguf_tensor *t)
{
    const int64_t fitting =
        at_least_one(CHUNK_BYTES / (int64_t)ls_block_row_bytes(t->type, (uint64_t)t->cols));
    return fitting < t->rows ? fitting : t->rows;
}

static ls_status write_tensor(const writer *w, const ls_gguf_tensor *t, int fd, const char *path)
{
    const uint64_t row_bytes = ls_block_row_bytes(t->type, (uint64_t)t->cols);
    chunk c = {.w = w,
               .tensor = t,
               .values = t->values ? t->values : w->values,
               .head_rows = w->options->file->config.head_dim,
               .tile_rows = at_least_one(TILE_NUMBERS / t->cols)};
    if (!t->values) {
        LS_TRY(ls_model_reader_read(&w->reader, t->parameter, w->values));
    }
    for (c.first = 0; c.first < t->rows; c.first += c.count) {
        const int64_t rest = t->rows - c.first, most = chunk_rows(t);
        c.count = rest < most ? rest : most;
        const int64_t tiles = (c.count + c.tile_rows - 1) / c.tile_rows;
        ls_queue_run_tiles(w->options->queue, tiles, encode_tile, &c);
        for (int64_t i = 0; i < tiles; i++) {
            LS_TRY(check_range(t, w->extremes[i]));
        }
        LS_TRY(ls_file_write_all(fd, path, w->encoded, (uint64_t)c.count * row_bytes));
    }
    return ls_gguf_write_padding(fd, path, (uint64_t)t->rows * row_bytes);
}

/* ---- the file -------------------------------------------------------------------------------- */

static ls_status write_file(void *context, int fd, const char *path)
{
    const writer *w = context;
    LS_TRY(ls_gguf_write_header(w->gguf, fd, path));
    for (size_t i = 0; i < w->count; i++) {
        LS_TRY(write_tensor(w, &w->tensors[i], fd, path));
    }
    return LS_OK;
}

static ls_status allocate(writer *w)
{
    int64_t numbers = 0, columns = 0;
    size_t bytes = 0, tiles = 0;
    for (size_t i = 0; i < w->count; i++) {
        const ls_gguf_tensor *t = &w->tensors[i];
        const size_t chunk_bytes =
            (size_t)chunk_rows(t) * (size_t)ls_block_row_bytes(t->type, (uint64_t)t->cols);
        numbers = t->rows * t->cols > numbers ? t->rows * t->cols : numbers;
        columns = t->cols > columns ? t->cols : columns;
        bytes = chunk_bytes > bytes ? chunk_bytes : bytes;
        tiles = (size_t)chunk_rows(t) > tiles ? (size_t)chunk_rows(t) : tiles;
    }
    w->values = malloc((size_t)numbers * sizeof *w->values);
    w->encoded = malloc(bytes);
    w->extremes = malloc(tiles * sizeof *w->extremes);
    if (!w->values || !w->encoded || !w->extremes) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the largest parameter, %" PRId64 " numbers", numbers);
    }
    return ls_queue_reserve_scratch(w->options->queue, (size_t)columns * sizeof *w->values);
}

static ls_status write_model(writer *w)
{
    LS_TRY(ls_model_reader_open(w->options->file, true, &w->reader));
    ls_status status = allocate(w);
    if (status == LS_OK) {
        status = ls_file_write_atomic_by(w->options->path, write_file, w);
    }
    free(w->values);
    free(w->encoded);
    free(w->extremes);
    ls_model_reader_close(&w->reader);
    return status;
}

/* One note for all tensors that change from one type to another because of their rows. */
static void note_fallbacks(const ls_gguf_tensor *tensors, size_t count, ls_gguf_notes *notes)
{
    for (size_t i = 0; i < count; i++) {
        const ls_gguf_tensor *t = &tensors[i];
        size_t same = 0;
        bool told = false;
        for (size_t k = 0; k < count && t->type != t->wanted; k++) {
            const ls_gguf_tensor *other = &tensors[k];
            if (other->type == t->type && other->wanted == t->wanted && other->cols == t->cols) {
                told = told || k < i;
                same++;
            }
        }
        if (same > 0 && !told && notes->count < 8) {
            ls_gguf_note(notes,
                         "%s%s: %s in place of %s, because rows of %" PRId64
                         " numbers cannot be divided into blocks of %u",
                         t->name, same > 1 ? ls_arena_printf(notes->arena, " and %zu more", same - 1) : "",
                         ls_block_name(t->type), ls_block_name(t->wanted), t->cols,
                         ls_block_elements(t->wanted));
        }
    }
}

static ls_status check_target(ls_arena *arena, const ls_gguf_export_options *o)
{
    if (ls_path_is_dir(o->path)) {
        return ls_fail(LS_ERR_INVALID, "%s is a folder: give the name of a file, such as %s/model.gguf",
                       o->path, o->path);
    }
    const char *folder = ls_path_dirname(arena, o->path);
    if (!ls_path_is_dir(folder)) {
        return ls_fail(LS_ERR_NOT_FOUND, "there is no folder %s for %s: create it, or choose another name",
                       folder, ls_path_basename(o->path));
    }
    if (ls_path_exists(o->path) && !o->replace) {
        return ls_fail(LS_ERR_INVALID, "%s exists: choose another name, or replace it with --replace",
                       o->path);
    }
    if (!o->file->tokenizer) {
        return ls_fail(LS_ERR_INVALID, "%s has no tokenizer, without which no program can use a GGUF file",
                       o->file->path);
    }
    return LS_OK;
}

static ls_status fill(const ls_gguf_export_options *o, ls_gguf *gguf, ls_gguf_notes *notes)
{
    const ls_model_config *config = &o->file->config;
    ls_gguf_add_string(gguf, "general.architecture", ls_gguf_architecture(config->family));
    ls_gguf_add_string(gguf, "general.type", "model");
    ls_gguf_add_string(gguf, "general.name", o->name);
    LS_TRY(ls_gguf_model_keys(gguf, config, o->quant, notes));
    return ls_gguf_tokenizer_keys(gguf, o->file, o->files, o->file_count, notes);
}

ls_status ls_gguf_export(const ls_gguf_export_options *options, ls_arena *arena,
                         ls_gguf_exported *exported_out)
{
    ls_gguf gguf = {0};
    ls_gguf_exported done = {.notes = {.arena = arena}};
    ls_gguf_tensor *tensors = NULL;
    LS_TRY(check_target(arena, options));
    ls_status status = fill(options, &gguf, &done.notes);
    if (status == LS_OK) {
        ls_gguf_model_tensors(arena, &options->file->config, &options->file->layout, options->quant, &tensors,
                              &done.tensors);
        note_fallbacks(tensors, done.tensors, &done.notes);
        for (size_t i = 0; i < done.tensors; i++) {
            ls_gguf_add_tensor(&gguf, tensors[i].name, tensors[i].type, tensors[i].rank,
                               (uint64_t)tensors[i].rows, (uint64_t)tensors[i].cols);
        }
        writer w = {.options = options, .gguf = &gguf, .tensors = tensors, .count = done.tensors};
        status = write_model(&w);
        done.bytes = gguf.data_bytes + gguf.keys.bytes + gguf.tensors.bytes;
    }
    ls_gguf_release(&gguf);
    if (status == LS_OK) {
        *exported_out = done;
    }
    return status;
}

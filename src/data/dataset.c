// SPDX-License-Identifier: Apache-2.0
#include "data/dataset_internal.h"

#include "base/assert.h"
#include "data/bins.h"
#include "data/content_hash.h"
#include "data/order.h"
#include "data/token_cache.h"
#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull;

enum {
    IDENTITY_VERSION = 1,
    CONTEXT_MAX = 1 << 24,
    THREADS_MAX = 256,
    MEASURED_TOKENS_MAX = 4 << 20,
    /* Each file is one or two maps, and Linux allows a process 65530. */
    FILES_MAX = 30000,
};
static const uint64_t POSITION_LIMIT = UINT64_C(1) << 56;

/* ---- checking options ------------------------------------------------------------------------ */

static ls_status check_options(const ls_dataset_options *o)
{
    if (o->context < 1 || o->context > CONTEXT_MAX) {
        return ls_fail(LS_ERR_INVALID, "context is %u tokens, allowed is 1 to %d", o->context, CONTEXT_MAX);
    }
    if (!isfinite(o->validation_fraction) || o->validation_fraction < 0.0 || o->validation_fraction > 0.5) {
        return ls_fail(LS_ERR_INVALID, "validation_fraction is %g, allowed is 0 to 0.5",
                       o->validation_fraction);
    }
    if (o->source_count == 0 && o->validation_pattern_count == 0) {
        return ls_fail(LS_ERR_INVALID, "no data files are named: give at least one path or pattern");
    }
    if (o->source_count > LS_MIXTURE_MAX) {
        return ls_fail(LS_ERR_INVALID, "%zu data sources are mixed; at most %d are allowed", o->source_count,
                       LS_MIXTURE_MAX);
    }
    if (o->validation_pattern_count > 0 && o->validation_fraction > 0.0) {
        return ls_fail(
            LS_ERR_INVALID,
            "validation files are given and validation_fraction is %g: choose one of the two (set it to 0)",
            o->validation_fraction);
    }
    if (o->threads > THREADS_MAX) {
        return ls_fail(LS_ERR_INVALID, "threads is %u, allowed is 0 to %d", o->threads, THREADS_MAX);
    }
    return LS_OK;
}

static uint32_t vocab_of(const ls_dataset_options *o)
{
    if (o->vocab_size > 0) {
        return o->vocab_size;
    }
    return o->tokenizer ? ls_tokenizer_vocab_size(o->tokenizer) : LS_TOKEN_FILE_VOCAB_UNKNOWN;
}

static uint32_t threads_of(const ls_dataset_options *o)
{
    if (o->threads > 0) {
        return o->threads;
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (uint32_t)cores;
}

/* ---- opening files --------------------------------------------------------------------------- */

static ls_status check_streamed(const ls_dataset_options *o, const ls_token_shard *shard)
{
    const char *own = o->tokenizer ? ls_tokenizer_hash(o->tokenizer) : "none";
    if (shard->kind != LS_CORPUS_TOKENS && strcmp(shard->tokenizer, own) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s was prepared with tokenizer %.16s, but the run has %.16s: use that tokenizer, or "
                       "prepare the set again",
                       shard->set, shard->tokenizer, own);
    }
    return shard->id_max < vocab_of(o)
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "%s has token id %u, beyond the vocabulary of %u", shard->set,
                         shard->id_max, vocab_of(o));
}

static ls_status open_streamed(ls_dataset *d, const ls_dataset_options *o, const ls_corpus_file *file,
                               ls_tokens *tokens_out)
{
    const ls_token_shard *shard = file->streamed;
    LS_TRY(check_streamed(o, shard));
    LS_TRY(d->reader ? LS_OK : ls_token_reader_open(ls_cache_folder(d->cache), &d->reader));
    LS_TRY(ls_token_reader_add(d->reader, shard));
    *tokens_out = (ls_tokens){.path = strdup(file->path),
                              .id_bytes = shard->id_bytes,
                              .vocab_size = vocab_of(o),
                              .count = shard->tokens,
                              .document_count = shard->documents,
                              .text_bytes = shard->text_bytes,
                              .reader = d->reader,
                              .shard = shard};
    memcpy(tokens_out->content_hash, shard->content_hash, sizeof shard->content_hash);
    return tokens_out->path ? LS_OK : ls_fail(LS_ERR_MEMORY, "not enough memory to open %s", file->path);
}

static ls_status open_file(ls_dataset *d, const ls_dataset_options *o, const ls_corpus_file *file,
                           ls_tokens *tokens_out)
{
    ls_cache *cache = d->cache;
    if (file->streamed) {
        return open_streamed(d, o, file, tokens_out);
    }
    if (file->kind == LS_CORPUS_TOKENS) {
        const ls_token_file_options options = {
            .vocab_size = vocab_of(o),
            .end_of_text = o->tokenizer ? ls_tokenizer_eos(o->tokenizer) : -1,
            .notes_folder = ls_cache_folder(cache),
        };
        return file->shard ? ls_token_file_open_shard(file->shard, file->index, &options, tokens_out)
                           : ls_token_file_open(file->path, &options, tokens_out);
    }
    if (!o->tokenizer) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is %s, which needs a tokenizer; only token files can be read without one",
                       file->path, ls_corpus_kind_name(file->kind));
    }
    const ls_token_cache_options options = {.cache = cache,
                                            .tokenizer = o->tokenizer,
                                            .recipe = o->recipe,
                                            .rule = o->held_out,
                                            .vocab_size = vocab_of(o),
                                            .threads = threads_of(o),
                                            .progress = o->progress,
                                            .stop = o->stop,
                                            .context = o->caller};
    return ls_token_cache_open(file, &options, tokens_out);
}

/* Whether opening a file will fetch it. */
static bool is_fetched_soon(const ls_dataset *d, const ls_corpus_file *file)
{
    char hash[LS_SHA256_HEX_BYTES];
    return file->shard && (file->kind == LS_CORPUS_TOKENS ||
                           !ls_content_recall_shard(ls_cache_folder(d->cache), file->shard, hash));
}

/* While one file is tokenised, the next one is fetched. */
static ls_status open_files(ls_dataset *d, const ls_dataset_options *o, ls_dataset_part *s)
{
    ls_status status = LS_OK;
    s->tokens = ls_arena_new(&d->arena, ls_tokens, s->file_count);
    for (size_t i = 0; i < s->file_count && status == LS_OK; i++) {
        ls_shard_ahead ahead = {0};
        if (i + 1 < s->file_count && is_fetched_soon(d, &s->files[i + 1])) {
            ls_shard_ahead_begin(&ahead, s->files[i + 1].shard);
        }
        status = open_file(d, o, &s->files[i], &s->tokens[i]);
        ls_shard_ahead_end(&ahead);
        s->opened_count += status == LS_OK;
    }
    return status;
}

static ls_status open_source(ls_dataset *d, const ls_dataset_options *o, const ls_dataset_source *from,
                             ls_dataset_part *s)
{
    const ls_corpus_query query = {.patterns = from->patterns,
                                   .pattern_count = from->pattern_count,
                                   .field = o->field,
                                   .fields = from->fields,
                                   .cache_folder = ls_cache_folder(d->cache),
                                   .tell = o->tell,
                                   .context = o->caller};
    LS_TRY(ls_corpus_expand(&d->arena, &query, &s->files, &s->file_count));
    if (s->file_count > FILES_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "there are %zu data files; at most %d are allowed: join them, or make one .jsonl of them",
            s->file_count, FILES_MAX);
    }
    LS_TRY(ls_dataset_detect(d, o, s));
    return open_files(d, o, s);
}

static ls_status open_cache(ls_dataset *d, const ls_dataset_options *o)
{
    const ls_cache_options options = {.folder = o->cache_dir ? o->cache_dir
                                                             : ls_token_cache_default_folder(&d->arena),
                                      .suffix = LS_TOKEN_CACHE_SUFFIX,
                                      .stop = o->stop,
                                      .tell = o->tell,
                                      .context = o->caller};
    return ls_cache_open(&options, &d->cache);
}

static ls_status open_sources(ls_dataset *d, const ls_dataset_options *o)
{
    d->sources = ls_arena_new(&d->arena, ls_dataset_part, o->source_count);
    for (size_t i = 0; i < o->source_count; i++) {
        const ls_dataset_source *from = &o->sources[i];
        ls_dataset_part *to = &d->sources[i];
        to->weight = o->source_count == 1 ? 1.0 : from->weight;
        /* From here on ls_dataset_close closes it. */
        d->source_count = (uint32_t)i + 1;
        LS_TRY(open_source(d, o, from, to));
    }
    if (o->validation_pattern_count > 0) {
        const ls_dataset_source given = {.patterns = o->validation_patterns,
                                         .pattern_count = o->validation_pattern_count,
                                         .fields = o->validation_fields};
        LS_TRY(open_source(d, o, &given, &d->given_validation));
    }
    return LS_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* The same text must not be both training and validation data, even under two file names. */
static ls_status check_no_file_in_both(const ls_dataset *d)
{
    const ls_dataset_part *v = &d->given_validation;
    for (size_t k = 0; k < v->file_count; k++) {
        for (uint32_t i = 0; i < d->source_count; i++) {
            for (size_t f = 0; f < d->sources[i].file_count; f++) {
                if (strcmp(d->sources[i].tokens[f].content_hash, v->tokens[k].content_hash) == 0) {
                    return ls_fail(LS_ERR_INVALID,
                                   "%s is validation data, but the training file %s has the same content: "
                                   "use different files",
                                   v->files[k].path, d->sources[i].files[f].path);
                }
            }
        }
    }
    return LS_OK;
}

static uint64_t windows_in(uint64_t token_count, uint32_t context)
{
    return token_count == 0 ? 0 : (token_count - 1) / context;
}

/* ---- streams ------------------------------------------------------------------------- */

static ls_status make_training_streams(ls_dataset *d, double fraction)
{
    for (uint32_t i = 0; i < d->source_count; i++) {
        ls_dataset_part *s = &d->sources[i];
        if (ls_dataset_is_records(s)) {
            continue;
        }
        LS_TRY(ls_split_files(&d->arena, s->tokens, s->file_count, fraction, &s->stream, &d->validation));
        s->validation_end = d->validation.token_count;
        s->window_count = windows_in(s->stream.token_count, d->context);
        if (s->window_count == 0) {
            return ls_fail(LS_ERR_DATA,
                           "source %u (%s%s) has %llu tokens for training, but one sample needs context + 1 "
                           "= %u: give more text or a smaller context",
                           i, s->files[0].path, s->file_count > 1 ? ", ..." : "", (ull)s->stream.token_count,
                           d->context + 1);
        }
    }
    return LS_OK;
}

static ls_status make_validation_stream(ls_dataset *d, const ls_dataset_options *o)
{
    const ls_dataset_part *v = &d->given_validation;
    for (size_t i = 0; i < v->file_count && !ls_dataset_is_records(v); i++) {
        ls_stream_append(&d->arena, &d->validation, &v->tokens[i], 0, v->tokens[i].count);
    }
    const bool wanted = o->validation_fraction > 0.0 || v->file_count > 0;
    LS_TRY(ls_dataset_make_records(d, o));
    if (wanted && ls_dataset_token_count(d, LS_SPLIT_VALIDATION) < 2) {
        return ls_fail(LS_ERR_DATA, "the validation data has only %llu tokens; at least 2 are needed: %s",
                       (ull)ls_dataset_token_count(d, LS_SPLIT_VALIDATION),
                       v->file_count > 0
                           ? "give more text"
                           : "raise validation_fraction, set it to 0 for none, or give more text");
    }
    return LS_OK;
}

/*
 * Measures the bytes of text per validation token by decoding the split, or its beginning. The
 * means of the files would be off by about a percent, and nats per byte are compared between
 * tokenizers. Stays 0.0 if the split can't be decoded.
 */
static ls_status measure_validation_bytes(ls_dataset *d, const ls_tokenizer *tokenizer)
{
    const uint64_t limit = MEASURED_TOKENS_MAX;
    const uint64_t total = d->validation.token_count < limit ? d->validation.token_count : limit;
    int32_t *ids = tokenizer && total > 0 && !d->has_records ? malloc(total * sizeof *ids) : NULL;
    if (!ids) {
        return LS_OK;
    }
    ls_text_buffer text = {0};
    ls_status status = ls_stream_read(&d->validation, 0, total, ids);
    if (status == LS_OK && ls_tokenizer_decode(tokenizer, ids, total, true, &text) == LS_OK) {
        d->validation_bytes_per_token = (double)text.bytes / (double)total;
    }
    ls_text_buffer_release(&text);
    free(ids);
    return status;
}

static ls_status make_mixture(ls_dataset *d)
{
    double weights[LS_MIXTURE_MAX];
    for (uint32_t i = 0; i < d->source_count; i++) {
        weights[i] = d->sources[i].weight;
    }
    return d->source_count > 0 ? ls_mixture_init(weights, d->source_count, &d->mixture) : LS_OK;
}

/* ---- identity -------------------------------------------------------------------------------- */

static void hash_line(ls_sha256 *hash, const char *format, ...) LS_PRINTF(2, 3);
static void hash_line(ls_sha256 *hash, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    LS_ASSERT(bytes >= 0 && (size_t)bytes < sizeof line);
    ls_sha256_update(hash, line, (size_t)bytes);
}

static void hash_source(ls_sha256 *hash, const char *name, const ls_dataset_part *s)
{
    hash_line(hash, "%s weight %a files %zu\n", name, s->weight, s->file_count);
    for (size_t i = 0; i < s->file_count; i++) {
        const ls_corpus_file *file = &s->files[i];
        hash_line(hash, "file %d %s\n", (int)file->kind, s->tokens[i].content_hash);
        if (ls_corpus_field_matters(file)) {
            hash_line(hash, "field %s\n", ls_corpus_field(file));
        }
        if (file->form != LS_RECORD_TEXT) {
            hash_line(hash, "form %d\n", (int)file->form);
        }
    }
}

static void make_hash(ls_dataset *d, const ls_dataset_options *o)
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    hash_line(&hash, "lockstep dataset %d reader %d split %d\n", IDENTITY_VERSION, LS_TOKEN_READER_VERSION,
              LS_SPLIT_RULE_VERSION);
    hash_line(&hash, "tokenizer %s\n", o->tokenizer ? ls_tokenizer_hash(o->tokenizer) : "none");
    hash_line(&hash, "context %u validation_fraction %a\n", o->context, o->validation_fraction);
    if (o->document_masks) {
        hash_line(&hash, "document_masks\n");
    }
    if (d->has_records) {
        const char *key = o->held_out.key ? o->held_out.key : "";
        hash_line(&hash, "recipe %s packing %d\n", ls_recipe_hash(o->recipe),
                  o->packing ? LS_BINS_VERSION : 0);
        hash_line(&hash, "held out %d by %d %.128s\n", LS_HELD_OUT_VERSION, o->held_out.is_time, key);
    }
    for (uint32_t i = 0; i < d->source_count; i++) {
        hash_source(&hash, "source", &d->sources[i]);
    }
    hash_source(&hash, "validation", &d->given_validation);
    ls_sha256_finish(&hash, d->hash);
}

ls_token_reader *ls_dataset_reader(const ls_dataset *dataset)
{
    return dataset->reader;
}

static void add_shards(json_t *shards, const ls_dataset_part *s)
{
    for (size_t i = 0; i < s->opened_count; i++) {
        const ls_shard *shard = s->files[i].shard;
        if (shard) {
            json_object_set_new(
                shards, shard->address,
                json_pack("{s:s, s:s}", "etag", shard->etag, "sha256", s->tokens[i].content_hash));
        }
    }
}

json_t *ls_dataset_shards(const ls_dataset *dataset)
{
    json_t *shards = json_object();
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        add_shards(shards, &dataset->sources[i]);
    }
    add_shards(shards, &dataset->given_validation);
    const size_t count = json_object_size(shards);
    if (count == 0 || count > LS_DATASET_SHARDS_MAX) {
        json_decref(shards);
        shards = NULL;
    }
    return shards;
}

/* ---- open and close -------------------------------------------------------------------------- */

static ls_status open_into(ls_dataset *d, const ls_dataset_options *o)
{
    LS_TRY(check_options(o));
    d->context = o->context;
    d->document_masks = o->document_masks;
    LS_TRY(open_cache(d, o));
    LS_TRY(open_sources(d, o));
    LS_TRY(make_mixture(d));
    LS_TRY(check_no_file_in_both(d));
    LS_TRY(make_training_streams(d, o->validation_fraction));
    LS_TRY(make_validation_stream(d, o));
    LS_TRY(measure_validation_bytes(d, o->tokenizer));
    make_hash(d, o);
    return LS_OK;
}

ls_status ls_dataset_open(const ls_dataset_options *options, ls_dataset **dataset_out)
{
    ls_dataset *d = calloc(1, sizeof *d);
    if (!d) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a dataset");
    }
    const ls_status status = open_into(d, options);
    if (status != LS_OK) {
        ls_dataset_close(d);
        return status;
    }
    *dataset_out = d;
    return LS_OK;
}

static void close_source(ls_dataset_part *s)
{
    ls_record_set_destroy(s->records);
    ls_record_set_destroy(s->held_out);
    for (size_t i = 0; i < s->opened_count; i++) {
        ls_tokens_close(&s->tokens[i]);
    }
}

void ls_dataset_close(ls_dataset *dataset)
{
    if (!dataset) {
        return;
    }
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        close_source(&dataset->sources[i]);
    }
    close_source(&dataset->given_validation);
    ls_token_reader_close(dataset->reader);
    /* After the maps, which it pins. */
    ls_cache_close(dataset->cache);
    ls_arena_release(&dataset->arena);
    free(dataset);
}

/* ---- samples --------------------------------------------------------------------------------- */

ls_dataset_draw ls_dataset_draw_at(const ls_dataset *dataset, uint64_t seed, uint64_t position)
{
    LS_ASSERT(dataset->source_count > 0 && position < POSITION_LIMIT);
    const ls_mixture_draw draw = ls_mixture_at(&dataset->mixture, seed, position);
    const uint64_t windows = dataset->sources[draw.corpus].window_count;
    const ls_order order = ls_order_make(seed, draw.corpus, windows);
    const uint64_t epoch = draw.position / windows;
    return (ls_dataset_draw){
        .source = draw.corpus, .epoch = epoch, .window = ls_order_at(&order, epoch, draw.position % windows)};
}

/* Windows of the text that is validation data. */
static uint64_t validation_windows(const ls_dataset *dataset)
{
    const uint32_t last = ls_dataset_has_documents(dataset) ? dataset->context - 1 : 0;
    return windows_in(dataset->validation.token_count + last, dataset->context);
}

static void fill(int32_t *to, size_t from, size_t end, int32_t value)
{
    for (size_t i = from; i < end && to; i++) {
        to[i] = value;
    }
}

/* Makes each document a record of the window that begins at stream index `begin`: the last token of
 * a document has no target, because the next one is not its continuation. */
static ls_status mark_documents(const ls_stream *stream, uint64_t begin, size_t count,
                                const ls_sample *sample)
{
    for (size_t i = 0, next = 0; i < count; i = next) {
        uint64_t first = 0, end = 0;
        LS_TRY(ls_stream_document(stream, begin + i, &first, &end));
        next = end - begin < count ? (size_t)(end - begin) : count;
        fill(sample->first, i, next, (int32_t)i);
        fill(sample->record, i, next, (int32_t)(first & INT32_MAX));
        if (end - begin == next) {
            sample->targets[next - 1] = LS_NO_TARGET;
        }
    }
    return LS_OK;
}

/* Window `window` of a stream. One at the end that is not full is padded. record: of all of it,
 * without document masks. */
static ls_status read_window(const ls_dataset *dataset, const ls_stream *stream, uint64_t window,
                             uint64_t record, const ls_sample *sample)
{
    const size_t context = dataset->context;
    const uint64_t begin = window * context, left = stream->token_count - 1 - begin;
    const size_t count = left < context ? (size_t)left : context;
    LS_TRY(ls_stream_read(stream, begin, count, sample->tokens));
    memcpy(sample->targets, sample->tokens + 1, (count - 1) * sizeof *sample->tokens);
    LS_TRY(ls_stream_read(stream, begin + count, 1, sample->targets + count - 1));
    fill(sample->first, 0, count, 0);
    fill(sample->record, 0, count, (int32_t)(record & INT32_MAX));
    if (dataset->document_masks) {
        LS_TRY(mark_documents(stream, begin, count, sample));
    }
    fill(sample->tokens, count, context, 0);
    fill(sample->targets, count, context, LS_NO_TARGET);
    fill(sample->first, count, context, (int32_t)count);
    fill(sample->record, count, context, LS_NO_RECORD);
    return LS_OK;
}

/* Whether `samples` samples of the mixture have two thirds of a source's windows, or more. */
static bool has_most(const ls_dataset *dataset, const ls_dataset_part *s, uint64_t samples)
{
    double weights = 0.0;
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        weights += dataset->sources[i].weight;
    }
    return 3.0 * s->weight / weights * (double)samples >= 2.0 * (double)s->window_count;
}

void ls_dataset_expect(const ls_dataset *dataset, uint64_t seed, uint64_t position, uint64_t samples)
{
    if (!dataset->reader) {
        return;
    }
    const ls_dataset_draw draw = ls_dataset_draw_at(dataset, seed, position);
    const ls_dataset_part *s = &dataset->sources[draw.source];
    if (!s->records) {
        ls_stream_expect(&s->stream, draw.window * dataset->context, (uint64_t)dataset->context + 1,
                         has_most(dataset, s, samples));
    }
}

bool ls_dataset_is_streamed(const ls_dataset *dataset)
{
    return dataset->reader != NULL;
}

ls_status ls_dataset_sample(const ls_dataset *dataset, ls_split split, uint64_t seed, uint64_t position,
                            const ls_sample *sample)
{
    if (split == LS_SPLIT_VALIDATION) {
        LS_ASSERT(position < ls_dataset_samples(dataset, split));
        const uint64_t text_windows = validation_windows(dataset);
        if (position >= text_windows) {
            return ls_dataset_read_held_out(dataset, position - text_windows, sample);
        }
        /* by its first token, as the sources divide the stream (ls_dataset_validation_end) */
        return read_window(dataset, &dataset->validation, position, position * dataset->context, sample);
    }
    const ls_dataset_draw draw = ls_dataset_draw_at(dataset, seed, position);
    const ls_dataset_part *s = &dataset->sources[draw.source];
    if (s->records) {
        const ls_record_shuffle shuffle = {.seed = seed, .epoch = draw.epoch, .source = draw.source};
        return ls_record_set_read(s->records, &shuffle, draw.window, sample);
    }
    return read_window(dataset, &s->stream, draw.window, draw.window, sample);
}

bool ls_dataset_has_documents(const ls_dataset *dataset)
{
    return dataset->document_masks || dataset->has_records;
}

static const ls_stream *stream_of(const ls_dataset *dataset, ls_split split, uint32_t source_index)
{
    if (split == LS_SPLIT_VALIDATION) {
        return &dataset->validation;
    }
    LS_ASSERT(source_index < dataset->source_count);
    return &dataset->sources[source_index].stream;
}

ls_status ls_dataset_tokens(const ls_dataset *dataset, ls_split split, uint32_t source_index, uint64_t first,
                            uint64_t count, int32_t *tokens_out)
{
    return ls_stream_read(stream_of(dataset, split, source_index), first, count, tokens_out);
}

/* ---- queries --------------------------------------------------------------------------------- */

uint64_t ls_dataset_source_samples(const ls_dataset *dataset, uint32_t source_index)
{
    LS_ASSERT(source_index < dataset->source_count);
    return dataset->sources[source_index].window_count;
}

uint64_t ls_dataset_validation_end(const ls_dataset *dataset, uint32_t source_index)
{
    LS_ASSERT(source_index < dataset->source_count);
    return dataset->sources[source_index].validation_end;
}

uint64_t ls_dataset_samples(const ls_dataset *dataset, ls_split split)
{
    if (split == LS_SPLIT_VALIDATION) {
        return validation_windows(dataset) + ls_dataset_held_out_windows(dataset);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        sum += dataset->sources[i].window_count;
    }
    return sum;
}

uint64_t ls_dataset_stream_tokens(const ls_dataset *dataset, ls_split split, uint32_t source_index)
{
    const ls_record_set *records = split == LS_SPLIT_TRAIN ? dataset->sources[source_index].records : NULL;
    return records ? ls_record_set_counts(records)->positions
                   : stream_of(dataset, split, source_index)->token_count;
}

uint64_t ls_dataset_token_count(const ls_dataset *dataset, ls_split split)
{
    if (split == LS_SPLIT_VALIDATION) {
        return dataset->validation.token_count + ls_dataset_held_out_positions(dataset);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        sum += ls_dataset_stream_tokens(dataset, split, i);
    }
    return sum;
}

/* Bytes of text that the stream's tokens stand for, from the mean of each file. NAN if the mean of
 * a file is not known. */
static double text_bytes_of(const ls_stream *stream)
{
    double bytes = 0.0;
    for (size_t i = 0; i < stream->span_count; i++) {
        const ls_span *span = &stream->spans[i];
        if (span->tokens->text_bytes == 0) {
            return NAN;
        }
        bytes += (double)span->count * ((double)span->tokens->text_bytes / (double)span->tokens->count);
    }
    return bytes;
}

double ls_dataset_bytes_per_token(const ls_dataset *dataset, ls_split split)
{
    if (split == LS_SPLIT_VALIDATION || dataset->has_records) {
        return dataset->validation_bytes_per_token;
    }
    double bytes = 0.0;
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        bytes += text_bytes_of(&dataset->sources[i].stream);
    }
    const uint64_t tokens = ls_dataset_token_count(dataset, split);
    return tokens == 0 || isnan(bytes) ? 0.0 : bytes / (double)tokens;
}

uint64_t ls_dataset_file_count(const ls_dataset *dataset)
{
    uint64_t sum = dataset->given_validation.file_count;
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        sum += dataset->sources[i].file_count;
    }
    return sum;
}

uint64_t ls_dataset_document_count(const ls_dataset *dataset)
{
    uint64_t sum = ls_dataset_part_documents(&dataset->given_validation);
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        sum += ls_dataset_part_documents(&dataset->sources[i]);
    }
    return sum;
}

bool ls_dataset_ends_document(const ls_dataset *dataset)
{
    const ls_dataset_part *v = &dataset->given_validation;
    return v->file_count > 0 && v->files[v->file_count - 1].kind != LS_CORPUS_TOKENS;
}

const char *ls_dataset_hash(const ls_dataset *dataset)
{
    return dataset->hash;
}

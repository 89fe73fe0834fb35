// SPDX-License-Identifier: Apache-2.0
/*
 * A model's file: magic number and version, settings, dictionary, input matrix, output matrix; all
 * little-endian and packed. Everything that predicting relies on is checked here.
 */
#include "data/language/language_internal.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

static const int32_t MAGIC = 793712314;
static const int64_t COUNT_MAX = INT64_C(1000000000000000);
enum { MODEL_SUPERVISED = 3, LABELS_MAX = 1 << 24 };

typedef struct reader {
    const char *path;
    ls_file_map map;
    size_t at;
} reader;

static ls_status fail_damaged(const reader *r, const char *what)
{
    return ls_fail(LS_ERR_DATA, "%s is damaged: %s (before byte %zu): fetch the model again", r->path, what,
                   r->at);
}

/* A view of the next `count` things of `size` bytes. */
static ls_status take(reader *r, uint64_t count, size_t size, const unsigned char **data_out)
{
    const size_t left = r->map.bytes - r->at;
    if (count > left / size) {
        return ls_fail(LS_ERR_DATA, "%s is truncated: %zu bytes, and more are needed after byte %zu", r->path,
                       r->map.bytes, r->at);
    }
    *data_out = r->map.data + r->at;
    r->at += count * size;
    return LS_OK;
}

static ls_status read_value(reader *r, void *value_out, size_t size)
{
    const unsigned char *data = NULL;
    LS_TRY(take(r, 1, size, &data));
    memcpy(value_out, data, size);
    return LS_OK;
}

static ls_status read_i32s(reader *r, int32_t *const *values_out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_value(r, values_out[i], sizeof(int32_t)));
    }
    return LS_OK;
}

/* ---- settings -------------------------------------------------------------------------------- */

static ls_status check_settings(const reader *r, const ls_language_model *m, int32_t dim, int32_t kind)
{
    if (kind != MODEL_SUPERVISED) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "%s holds word vectors, not a classifier: a model that `fasttext supervised` made is needed",
            r->path);
    }
    if (dim < 1 || dim > LS_LANGUAGE_DIM_MAX || m->ngrams > LS_LANGUAGE_NGRAMS_MAX ||
        m->maxn > LS_LANGUAGE_CHARACTERS_MAX) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s has %d dimensions, n-grams of %d words and of %d characters: at most %d, %d and "
                       "%d are read",
                       r->path, dim, m->ngrams, m->maxn, LS_LANGUAGE_DIM_MAX, LS_LANGUAGE_NGRAMS_MAX,
                       LS_LANGUAGE_CHARACTERS_MAX);
    }
    if (m->loss < LS_LANGUAGE_TREE || m->loss > LS_LANGUAGE_EACH) {
        return fail_damaged(r, "its loss has no known number");
    }
    if (m->bucket < 0 || m->ngrams < 0 || (m->bucket == 0 && (m->maxn > 0 || m->ngrams > 1))) {
        return fail_damaged(r, "its numbers of n-grams and of buckets for them cannot be true");
    }
    return LS_OK;
}

static ls_status read_settings(reader *r, ls_language_model *m)
{
    int32_t magic = 0, version = 0, dim = 0, kind = 0, ignored = 0;
    double sampling = 0.0;
    if (r->map.bytes < 8 || read_i32s(r, (int32_t *[]){&magic, &version}, 2) != LS_OK || magic != MAGIC) {
        return ls_fail(LS_ERR_DATA, "%s is not a model of fastText: a .bin or .ftz file is needed", r->path);
    }
    if (version != 11 && version != 12) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s has version %d of fastText's format: 11 and 12 are read",
                       r->path, version);
    }
    LS_TRY(read_i32s(r,
                     (int32_t *[]){&dim, &ignored, &ignored, &ignored, &ignored, &m->ngrams, &m->loss, &kind,
                                   &m->bucket, &m->minn, &m->maxn, &ignored},
                     12));
    LS_TRY(read_value(r, &sampling, sizeof sampling));
    m->maxn = version == 11 ? 0 : m->maxn;
    m->input.dim = m->output.dim = dim;
    return check_settings(r, m, dim, kind);
}

/* ---- dictionary ------------------------------------------------------------------------------ */

/* The slot of a word, or the free one where it belongs. */
static size_t slot_of(const ls_language_model *m, uint32_t hash, const char *word, size_t bytes)
{
    size_t slot = hash & (m->slots - 1);
    for (; m->table[slot] > 0; slot = (slot + 1) & (m->slots - 1)) {
        const size_t offset = m->offsets[m->table[slot] - 1];
        const char *other = (const char *)m->map.data + offset;
        if (bytes < m->map.bytes - offset && other[bytes] == '\0' && memcmp(other, word, bytes) == 0) {
            break;
        }
    }
    return slot;
}

int32_t ls_language_find(const ls_language_model *model, uint32_t hash, const char *word, size_t bytes)
{
    return (int32_t)model->table[slot_of(model, hash, word, bytes)] - 1;
}

static ls_status read_entry(reader *r, ls_language_model *m, int32_t number, int64_t *count_out)
{
    const char *word = (const char *)r->map.data + r->at;
    const char *end = memchr(word, 0, r->map.bytes - r->at);
    int8_t kind = 0;
    if (!end) {
        return fail_damaged(r, "a word of its dictionary has no end");
    }
    m->offsets[number] = r->at;
    r->at += (size_t)(end - word) + 1;
    LS_TRY(read_value(r, count_out, sizeof *count_out));
    LS_TRY(read_value(r, &kind, sizeof kind));
    if (kind != (number >= m->words)) {
        return fail_damaged(r, "its dictionary is not words, then labels");
    }
    const size_t bytes = (size_t)(end - word);
    m->table[slot_of(m, ls_language_hash_of(word, bytes), word, bytes)] = (uint32_t)number + 1;
    return LS_OK;
}

static ls_status read_kept(reader *r, ls_language_model *m)
{
    const unsigned char *pairs = NULL;
    const size_t size = sizeof m->kept[0];
    if (m->pruned <= 0) {
        return LS_OK;
    }
    LS_TRY(take(r, (uint64_t)m->pruned, size, &pairs));
    for (m->kept_slots = 16; m->kept_slots < 2 * (size_t)m->pruned;) {
        m->kept_slots *= 2;
    }
    m->kept = malloc(m->kept_slots * size);
    if (!m->kept) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the dictionary of %s", r->path);
    }
    memset(m->kept, 0xff, m->kept_slots * size);
    for (int64_t i = 0; i < m->pruned; i++) {
        int32_t pair[2];
        memcpy(pair, pairs + (size_t)i * size, size);
        if (pair[0] < 0 || pair[1] < 0 || pair[1] >= m->pruned) {
            return fail_damaged(r, "a bucket has no row");
        }
        memcpy(m->kept[ls_language_kept_slot(m, pair[0])], pair, size);
    }
    return LS_OK;
}

/* Huffman's tree as fastText builds it: labels stand in the order of falling counts. */
static ls_status build_tree(const reader *r, ls_language_model *m)
{
    const int32_t nodes = 2 * m->labels - 1;
    int32_t leaf = m->labels - 1, inner = m->labels;
    for (int32_t i = m->labels; i < nodes; i++) {
        int32_t chosen[2];
        m->tree[i].count = COUNT_MAX;
        for (int j = 0; j < 2; j++) {
            chosen[j] = leaf >= 0 && m->tree[leaf].count < m->tree[inner].count ? leaf-- : inner++;
        }
        const ls_language_node *left = &m->tree[chosen[0]], *right = &m->tree[chosen[1]];
        const int32_t depth = 1 + (left->depth > right->depth ? left->depth : right->depth);
        m->tree[i] = (ls_language_node){
            .count = left->count + right->count, .left = chosen[0], .right = chosen[1], .depth = depth};
        if (depth > LS_LANGUAGE_DEPTH_MAX) {
            return fail_damaged(r, "the counts of its labels make a tree that is too deep");
        }
    }
    return LS_OK;
}

static ls_status read_entries(reader *r, ls_language_model *m, int32_t size)
{
    int64_t total = 0, count = 0;
    for (int32_t i = 0; i < size; i++) {
        LS_TRY(read_entry(r, m, i, &count));
        if (i < m->words) {
            continue;
        }
        if (count < 0 || count >= COUNT_MAX - total) {
            return fail_damaged(r, "the count of a label is outside its range");
        }
        total += count;
        m->tree[i - m->words] = (ls_language_node){.count = count, .left = -1, .right = -1};
    }
    return LS_OK;
}

static ls_status read_dictionary(reader *r, ls_language_model *m)
{
    int32_t size = 0;
    int64_t tokens = 0;
    LS_TRY(read_i32s(r, (int32_t *[]){&size, &m->words, &m->labels}, 3));
    LS_TRY(read_value(r, &tokens, sizeof tokens));
    LS_TRY(read_value(r, &m->pruned, sizeof m->pruned));
    /* A word takes at least a zero, a count and a kind. */
    if (m->words < 0 || m->labels < 1 || m->labels > LABELS_MAX ||
        (int64_t)size != (int64_t)m->words + m->labels || (size_t)size > (r->map.bytes - r->at) / 10) {
        return fail_damaged(r, "its numbers of words and labels cannot be true");
    }
    for (m->slots = 16; m->slots < 2 * (size_t)size;) {
        m->slots *= 2;
    }
    m->offsets = calloc((size_t)size, sizeof *m->offsets);
    m->table = calloc(m->slots, sizeof *m->table);
    m->tree = calloc(2 * (size_t)m->labels, sizeof *m->tree);
    if (!m->offsets || !m->table || !m->tree) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the dictionary of %s", r->path);
    }
    LS_TRY(read_entries(r, m, size));
    LS_TRY(read_kept(r, m));
    return build_tree(r, m);
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* A product quantiser for rows of `dim` floats, in pieces. */
static ls_status read_centroids(reader *r, int32_t dim, int32_t *pieces_out, int32_t *piece_out,
                                const unsigned char **floats_out)
{
    int32_t its_dim = 0, pieces = 0, piece = 0, last = 0;
    LS_TRY(read_i32s(r, (int32_t *[]){&its_dim, &pieces, &piece, &last}, 4));
    if (its_dim != dim || piece < 1 || pieces < 1 || pieces > dim || last < 1 || last > piece ||
        (int64_t)(pieces - 1) * piece + last != dim) {
        return fail_damaged(r, "the pieces of its quantised rows do not add up");
    }
    *pieces_out = pieces;
    *piece_out = piece;
    return take(r, (uint64_t)dim * 256, sizeof(float), floats_out);
}

static ls_status read_codes(reader *r, ls_language_matrix *m)
{
    uint8_t has_norms = 0;
    int64_t dim = 0;
    int32_t code_bytes = 0, ignored = 0;
    LS_TRY(read_value(r, &has_norms, sizeof has_norms));
    LS_TRY(read_value(r, &m->rows, sizeof m->rows));
    LS_TRY(read_value(r, &dim, sizeof dim));
    LS_TRY(read_value(r, &code_bytes, sizeof code_bytes));
    if (dim != m->dim || m->rows < 1 || code_bytes < 1) {
        return fail_damaged(r, "a matrix has another size than its settings say");
    }
    LS_TRY(take(r, (uint64_t)code_bytes, 1, &m->codes));
    LS_TRY(read_centroids(r, m->dim, &m->pieces, &m->piece, &m->floats));
    if (code_bytes / m->pieces != m->rows || code_bytes % m->pieces != 0) {
        return fail_damaged(r, "a matrix has another number of codes than of rows");
    }
    if (has_norms) {
        LS_TRY(take(r, (uint64_t)m->rows, 1, &m->norm_codes));
        LS_TRY(read_centroids(r, 1, &ignored, &ignored, &m->norms));
    }
    return LS_OK;
}

static ls_status read_floats(reader *r, ls_language_matrix *m)
{
    int64_t dim = 0;
    LS_TRY(read_value(r, &m->rows, sizeof m->rows));
    LS_TRY(read_value(r, &dim, sizeof dim));
    if (dim != m->dim || m->rows < 1 || m->rows > INT64_MAX / (LS_LANGUAGE_DIM_MAX * 8)) {
        return fail_damaged(r, "a matrix has another size than its settings say");
    }
    return take(r, (uint64_t)(m->rows * dim), sizeof(float), &m->floats);
}

static ls_status read_matrices(reader *r, ls_language_model *m)
{
    uint8_t input_has_codes = 0, output_has_codes = 0;
    LS_TRY(read_value(r, &input_has_codes, 1));
    if (m->pruned >= 0 && !input_has_codes) {
        return fail_damaged(r, "its dictionary is pruned, but its matrix is not quantised");
    }
    LS_TRY(input_has_codes ? read_codes(r, &m->input) : read_floats(r, &m->input));
    LS_TRY(read_value(r, &output_has_codes, 1));
    LS_TRY(input_has_codes && output_has_codes ? read_codes(r, &m->output) : read_floats(r, &m->output));
    const int64_t buckets = m->pruned >= 0 ? m->pruned : m->bucket;
    if (m->input.rows < m->words + buckets || m->output.rows < m->labels) {
        return fail_damaged(r, "a matrix has fewer rows than its dictionary needs");
    }
    return r->at == r->map.bytes ? LS_OK : fail_damaged(r, "something follows its end");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ls_status read_model(const char *path, ls_language_model *m)
{
    LS_TRY(ls_file_map_open(path, &m->map));
    reader r = {.path = path, .map = m->map};
    LS_TRY(read_settings(&r, m));
    LS_TRY(read_dictionary(&r, m));
    return read_matrices(&r, m);
}

ls_status ls_language_open(const char *path, ls_language_model **model_out)
{
    ls_language_model *m = calloc(1, sizeof *m);
    if (!m) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the model %s", path);
    }
    const ls_status status = read_model(path, m);
    if (status != LS_OK) {
        ls_language_close(m);
        return status;
    }
    *model_out = m;
    return LS_OK;
}

void ls_language_close(ls_language_model *model)
{
    if (model) {
        ls_file_map_close(&model->map);
        free(model->offsets);
        free(model->table);
        free(model->kept);
        free(model->tree);
        free(model);
    }
}

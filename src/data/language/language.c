// SPDX-License-Identifier: Apache-2.0
#include "data/language/language.h"

#include "data/language/language_internal.h"

#include <math.h>
#include <string.h>

static const char LABEL[] = "__label__", END_OF_LINE[] = "</s>";
enum { LABEL_BYTES = sizeof LABEL - 1 };
static const double LOG_SHIFT = 1e-5;

/* ---- matrices -------------------------------------------------------------------------------- */

static float float_at(const unsigned char *floats, size_t index)
{
    float value;
    memcpy(&value, floats + index * sizeof value, sizeof value);
    return value;
}

typedef struct piece {
    const unsigned char *floats;
    int32_t at, count;
} piece;

/* Piece `index` of a row of codes. */
static piece piece_of(const ls_language_matrix *m, int64_t row, int32_t index)
{
    const int32_t at = index * m->piece;
    const int32_t count = index == m->pieces - 1 ? m->dim - at : m->piece;
    const size_t code = m->codes[row * m->pieces + index];
    return (piece){.floats = m->floats + ((size_t)at * 256 + code * (size_t)count) * sizeof(float),
                   .at = at,
                   .count = count};
}

static float norm_of(const ls_language_matrix *m, int64_t row)
{
    return m->norm_codes ? float_at(m->norms, m->norm_codes[row]) : 1.0f;
}

static void add_row(const ls_language_matrix *m, int64_t row, float *sum)
{
    if (!m->codes) {
        const unsigned char *floats = m->floats + (size_t)row * (size_t)m->dim * sizeof(float);
        for (int32_t i = 0; i < m->dim; i++) {
            sum[i] += float_at(floats, (size_t)i);
        }
        return;
    }
    const float norm = norm_of(m, row);
    for (int32_t p = 0; p < m->pieces; p++) {
        const piece of = piece_of(m, row, p);
        for (int32_t i = 0; i < of.count; i++) {
            sum[of.at + i] += norm * float_at(of.floats, (size_t)i);
        }
    }
}

static float dot_row(const ls_language_matrix *m, int64_t row, const float *x)
{
    float sum = 0.0f;
    if (!m->codes) {
        const unsigned char *floats = m->floats + (size_t)row * (size_t)m->dim * sizeof(float);
        for (int32_t i = 0; i < m->dim; i++) {
            sum += float_at(floats, (size_t)i) * x[i];
        }
        return sum;
    }
    for (int32_t p = 0; p < m->pieces; p++) {
        const piece of = piece_of(m, row, p);
        for (int32_t i = 0; i < of.count; i++) {
            sum += x[of.at + i] * float_at(of.floats, (size_t)i);
        }
    }
    return sum * norm_of(m, row);
}

/* ---- features -------------------------------------------------------------------------------- */

typedef struct features {
    const ls_language_model *model;
    float sum[LS_LANGUAGE_DIM_MAX];
    uint64_t count;
    /* Hashes of the runs that end with the word before, the longest first. */
    uint64_t runs[LS_LANGUAGE_NGRAMS_MAX];
    int32_t run_count;
} features;

static void add_feature(features *f, int64_t row)
{
    add_row(&f->model->input, row, f->sum);
    f->count++;
}

/* Where the bucket is kept; -1: it was pruned. */
static int64_t row_of_bucket(const ls_language_model *m, int32_t bucket)
{
    if (m->pruned < 0) {
        return bucket;
    }
    return m->kept ? m->kept[ls_language_kept_slot(m, bucket)][1] : -1;
}

static void add_bucket(features *f, uint64_t hash)
{
    const int64_t row = row_of_bucket(f->model, (int32_t)(hash % (uint64_t)f->model->bucket));
    if (row >= 0) {
        add_feature(f, f->model->words + row);
    }
}

/* Byte `at` of "<word>". */
static unsigned char marked_byte(const char *word, size_t bytes, size_t at)
{
    return (unsigned char)(at == 0 ? '<' : at == bytes + 1 ? '>' : word[at - 1]);
}

/* The n-grams of characters of "<word>"; the marks alone are none. */
static void add_pieces(features *f, const char *word, size_t bytes)
{
    const ls_language_model *m = f->model;
    const size_t all = bytes + 2;
    for (size_t begin = 0; begin < all; begin++) {
        if ((marked_byte(word, bytes, begin) & 0xC0) == 0x80) {
            continue;
        }
        uint32_t hash = LS_LANGUAGE_HASH_BEGIN;
        size_t at = begin;
        for (int32_t n = 1; at < all && n <= m->maxn; n++) {
            do {
                hash = ls_language_hash(hash, marked_byte(word, bytes, at++));
            } while (at < all && (marked_byte(word, bytes, at) & 0xC0) == 0x80);
            if (n >= m->minn && !(n == 1 && (begin == 0 || at == all))) {
                add_bucket(f, hash);
            }
        }
    }
}

/* The runs of words that end with this one. */
static void add_runs(features *f, uint32_t hash)
{
    const uint64_t extended = (uint64_t)(int64_t)(int32_t)hash;
    const int32_t runs_max = f->model->ngrams - 1;
    if (runs_max < 1) {
        return;
    }
    for (int32_t i = 0; i < f->run_count; i++) {
        f->runs[i] = f->runs[i] * UINT64_C(116049371) + extended;
        add_bucket(f, f->runs[i]);
    }
    if (f->run_count == runs_max) {
        memmove(f->runs, f->runs + 1, (size_t)(runs_max - 1) * sizeof f->runs[0]);
        f->run_count--;
    }
    f->runs[f->run_count++] = extended;
}

static bool is_end_of_line(const char *token, size_t bytes)
{
    return bytes == sizeof END_OF_LINE - 1 && memcmp(token, END_OF_LINE, bytes) == 0;
}

static void add_token(features *f, const char *token, size_t bytes)
{
    const uint32_t hash = ls_language_hash_of(token, bytes);
    const int32_t number = ls_language_find(f->model, hash, token, bytes);
    const bool is_label = number < 0 ? bytes >= LABEL_BYTES && memcmp(token, LABEL, LABEL_BYTES) == 0
                                     : number >= f->model->words;
    if (is_label) {
        return;
    }
    if (number >= 0) {
        add_feature(f, number);
    }
    if (f->model->maxn > 0 && !is_end_of_line(token, bytes)) {
        add_pieces(f, token, bytes);
    }
    add_runs(f, hash);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

static void add_text(features *f, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t end = at;
        while (end < bytes && !is_blank(text[end])) {
            end++;
        }
        if (end > at && is_end_of_line(text + at, end - at)) {
            break;
        }
        if (end > at) {
            add_token(f, text + at, end - at);
        }
        at = end + 1;
    }
    add_token(f, END_OF_LINE, sizeof END_OF_LINE - 1);
}

/* ---- labels ---------------------------------------------------------------------------------- */

typedef struct choice {
    int32_t label; /* -1: none */
    double score;
} choice;

static choice choose_softmax(const ls_language_model *m, const float *hidden)
{
    choice best = {.label = 0, .score = dot_row(&m->output, 0, hidden)};
    double sum = 1.0;
    for (int32_t i = 1; i < m->labels; i++) {
        const double score = dot_row(&m->output, i, hidden);
        if (score > best.score) {
            sum = sum * exp(best.score - score) + 1.0;
            best = (choice){.label = i, .score = score};
        } else {
            sum += exp(score - best.score);
        }
    }
    best.score = 1.0 / sum + LOG_SHIFT;
    return best;
}

/* The sigmoid of fastText: a table of 512 steps from -8 to 8. */
static double sigmoid_step(double x)
{
    const double step = 16.0 / 512;
    return x < -8.0 ? 0.0 : x > 8.0 ? 1.0 : 1.0 / (1.0 + exp(8.0 - floor((x + 8.0) / step) * step));
}

static choice choose_each(const ls_language_model *m, const float *hidden)
{
    choice best = {.label = -1, .score = -1.0};
    for (int32_t i = 0; i < m->labels; i++) {
        const double score = sigmoid_step(dot_row(&m->output, i, hidden));
        if (score > best.score) {
            best = (choice){.label = i, .score = score};
        }
    }
    best.score += LOG_SHIFT;
    return best;
}

/* Depth first, without the parts of the tree that have less than the best label so far. */
static void search_tree(const ls_language_model *m, const float *hidden, int32_t number, double score,
                        choice *best)
{
    const ls_language_node *node = &m->tree[number];
    if (score < LOG_SHIFT || score < best->score) {
        return;
    }
    if (node->left < 0) {
        *best = (choice){.label = number, .score = score};
        return;
    }
    const double right = 1.0 / (1.0 + exp(-(double)dot_row(&m->output, number - m->labels, hidden)));
    search_tree(m, hidden, node->left, score * (1.0 - right + LOG_SHIFT), best);
    search_tree(m, hidden, node->right, score * (right + LOG_SHIFT), best);
}

static choice choose_in_tree(const ls_language_model *m, const float *hidden)
{
    choice best = {.label = -1};
    search_tree(m, hidden, 2 * m->labels - 2, 1.0, &best);
    return best;
}

static const char *label_of(const ls_language_model *m, int32_t label)
{
    const char *name = (const char *)m->map.data + m->offsets[m->words + label];
    return strncmp(name, LABEL, LABEL_BYTES) == 0 ? name + LABEL_BYTES : name;
}

void ls_language_predict(const ls_language_model *model, const char *text, size_t bytes,
                         ls_language *language_out)
{
    features f = {.model = model};
    *language_out = (ls_language){.label = ""};
    add_text(&f, text, bytes);
    if (f.count == 0) {
        return;
    }
    for (int32_t i = 0; i < model->input.dim; i++) {
        f.sum[i] *= (float)(1.0 / (double)f.count);
    }
    const choice best = model->loss == LS_LANGUAGE_TREE      ? choose_in_tree(model, f.sum)
                        : model->loss == LS_LANGUAGE_SOFTMAX ? choose_softmax(model, f.sum)
                                                             : choose_each(model, f.sum);
    /* A model with values that are not numbers chooses nothing. */
    if (best.label >= 0 && best.score >= 0.0) {
        language_out->label = label_of(model, best.label);
        language_out->probability = best.score < 1.0 ? best.score : 1.0;
    }
}

bool ls_language_knows(const ls_language_model *model, const char *label)
{
    const char *wanted = strncmp(label, LABEL, LABEL_BYTES) == 0 ? label + LABEL_BYTES : label;
    for (int32_t i = 0; i < model->labels; i++) {
        if (strcmp(label_of(model, i), wanted) == 0) {
            return true;
        }
    }
    return false;
}

// SPDX-License-Identifier: Apache-2.0
/* Between the files of this room: a model as it lies in the file. */
#ifndef LS_DATA_LANGUAGE_LANGUAGE_INTERNAL_H
#define LS_DATA_LANGUAGE_LANGUAGE_INTERNAL_H

#include "base/file.h"
#include "data/language/language.h"

enum {
    LS_LANGUAGE_DIM_MAX = 2048,
    LS_LANGUAGE_NGRAMS_MAX = 16,
    LS_LANGUAGE_CHARACTERS_MAX = 64,
    /* Of the tree of labels. */
    LS_LANGUAGE_DEPTH_MAX = 512,
};

typedef enum ls_language_loss {
    LS_LANGUAGE_TREE = 1, /* hierarchical softmax */
    LS_LANGUAGE_SAMPLED,  /* a sigmoid for each label, as LS_LANGUAGE_EACH */
    LS_LANGUAGE_SOFTMAX,
    LS_LANGUAGE_EACH,
} ls_language_loss;

/*
 * Rows of `dim` floats: as they are, or as codes. A row of codes has a byte for each piece of
 * `piece` floats (the last is shorter), the number of one of 256 centroids, which are all scaled
 * by one of 256 norms.
 */
typedef struct ls_language_matrix {
    int64_t rows;
    int32_t dim;
    /* Not aligned; of codes: the centroids, piece after piece. */
    const unsigned char *floats;
    /* NULL: no codes. */
    const uint8_t *codes;
    int32_t pieces, piece;
    /* NULL: no norms. */
    const uint8_t *norm_codes;
    const unsigned char *norms;
} ls_language_matrix;

/* A node of the tree of labels. The first `labels` nodes are the labels themselves; the root is the
 * last. */
typedef struct ls_language_node {
    int64_t count;
    int32_t left, right; /* -1: a label */
    int32_t depth;       /* of what hangs below; 0: a label */
} ls_language_node;

struct ls_language_model {
    ls_file_map map;
    int32_t ngrams, loss, bucket, minn, maxn;
    int32_t words, labels;
    /* Offsets of the words, then of the labels, in the file; each ends with a zero. */
    size_t *offsets;
    /* Open addressing: number of a word or label, plus 1; 0: free. `slots` is a power of two. */
    uint32_t *table;
    size_t slots;
    /* pruned < 0: buckets are rows. Else only so many buckets have one: pairs of bucket and row in
     * a table like the other; bucket -1: free. NULL: none has. */
    int64_t pruned;
    int32_t (*kept)[2];
    size_t kept_slots;
    ls_language_matrix input, output;
    ls_language_node *tree;
};

/* The hash of fastText: FNV-1a with bytes that are extended with their sign. */
#define LS_LANGUAGE_HASH_BEGIN UINT32_C(2166136261)
static inline uint32_t ls_language_hash(uint32_t hash, unsigned char byte)
{
    return (hash ^ (uint32_t)(int32_t)(int8_t)byte) * UINT32_C(16777619);
}

static inline uint32_t ls_language_hash_of(const char *word, size_t bytes)
{
    uint32_t hash = LS_LANGUAGE_HASH_BEGIN;
    for (size_t i = 0; i < bytes; i++) {
        hash = ls_language_hash(hash, (unsigned char)word[i]);
    }
    return hash;
}

/* The slot of a bucket in `kept`, or the free one where it belongs. */
static inline size_t ls_language_kept_slot(const ls_language_model *model, int32_t bucket)
{
    size_t slot = (uint32_t)bucket * UINT32_C(2654435769) & (model->kept_slots - 1);
    while (model->kept[slot][0] >= 0 && model->kept[slot][0] != bucket) {
        slot = (slot + 1) & (model->kept_slots - 1);
    }
    return slot;
}

/* The number of a word or label, below words + labels; -1: unknown. hash: of its bytes. */
int32_t ls_language_find(const ls_language_model *model, uint32_t hash, const char *word, size_t bytes);

#endif

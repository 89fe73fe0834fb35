// SPDX-License-Identifier: Apache-2.0
/*
 * How numbers are packed for slow links: the kinds and their sizes. Pure arithmetic, which the
 * planner and the runtime share; compute/kernels/compress.h packs and unpacks.
 *
 * Numbers are packed in blocks of LS_COMPRESSION_BLOCK, counted from the first; the last may be
 * shorter. A packed block has a size that depends on its count alone, never on its values, so both
 * ends of a link know it beforehand. n numbers take, rounded up to a multiple of 4 bytes:
 *
 *   none   4 n              float32
 *   bf16   2 n              the nearest bfloat16
 *   int8   n + 4 n / 256    per 256 numbers a float32 scale, the largest magnitude / 127, followed
 *                           by the nearest multiples of it
 *   int4   n / 2 + 4 n / 128    the same with a scale per 128 numbers, the largest / 7
 *   topk   2 k + P          the k numbers of largest magnitude as bfloat16, in order of position,
 *                           of equal ones those at the lower positions; and their P bytes of
 *                           positions
 *
 * Positions are a bitmap, n / 8 bytes, or an Elias-Fano code where that is smaller: with
 * l = floor(log2(n / k)), the l low bits of each position, followed by a bit string in which the
 * bit (position >> l) + j is set for number j, k + (n >> l) + 1 bits. It is a code of the
 * differences with one length for all sets of k positions, within half a bit per number of the
 * shortest possible. Source: Elias, "Efficient storage and retrieval by content and address of
 * static files", JACM 1974.
 */
#ifndef LS_BASE_COMPRESSION_H
#define LS_BASE_COMPRESSION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_COMPRESSION_BLOCK = 4096,
    LS_COMPRESSION_KEEP_MAX = LS_COMPRESSION_BLOCK / 2,
    LS_INT8_BLOCK = 256,
    LS_INT4_BLOCK = 128,
    /* Groups of leaves whose gradients are compressed; a rank may hold the sums of all. */
    LS_COMPRESSION_GROUPS_MAX = 16,
};

typedef enum ls_compression_kind {
    LS_COMPRESSION_NONE,
    LS_COMPRESSION_BF16,
    LS_COMPRESSION_INT8,
    LS_COMPRESSION_TOPK,
    LS_COMPRESSION_INT4,
    LS_COMPRESSION_KINDS
} ls_compression_kind;

typedef struct ls_compression {
    ls_compression_kind kind;
    /* of topk: numbers kept of a full block, 1 to LS_COMPRESSION_KEEP_MAX; of a shorter block the
     * same share, rounded up */
    uint32_t keep;
} ls_compression;

/* Whether groups pack what AdamW makes of their sums, with moments of their own, and not the sums
 * (compute/kernels/compress.h): most numbers wait for a long time before topk sends them, and what
 * comes then says nothing about their usual size. */
static inline bool ls_compression_normalises(ls_compression_kind kind)
{
    return kind == LS_COMPRESSION_TOPK;
}

/* Buffers of state, each as large as the weights: what is left over of each group and of the whole,
 * and then, normalised, the first moments of each group and the second ones. */
static inline uint32_t ls_compression_flats(ls_compression_kind kind, uint32_t groups)
{
    return kind == LS_COMPRESSION_NONE ? 0 : (ls_compression_normalises(kind) ? 3 : 1) * groups + 1;
}

/* `keep` in a step of the warm-up, which begins with a quarter of all numbers and halves it up to
 * five times: gradients change fast at first, and what is sent late is then wrong. step: 0-based.
 * Source: Lin et al., "Deep gradient compression", 2018. */
static inline uint32_t ls_compression_keep(uint32_t keep, uint64_t warmup_steps, uint64_t step)
{
    const uint32_t warm = step < warmup_steps ? LS_COMPRESSION_BLOCK / 4 >> (5 * step / warmup_steps) : 0;
    return warm > keep ? warm : keep;
}

/* How the sum of `groups` packed groups is packed. All that topk has sent of them fits in as many
 * numbers; where that is more than half of all, all are sent as bfloat16. */
static inline ls_compression ls_compression_of_sum(ls_compression groups_form, uint32_t groups)
{
    if (groups_form.kind == LS_COMPRESSION_TOPK) {
        groups_form.keep *= groups;
        groups_form.kind =
            groups_form.keep > LS_COMPRESSION_KEEP_MAX ? LS_COMPRESSION_BF16 : LS_COMPRESSION_TOPK;
    }
    return groups_form;
}

/* Numbers that topk keeps of a block of `count`. */
static inline uint32_t ls_compression_kept(const ls_compression *compression, uint32_t count)
{
    return (uint32_t)(((uint64_t)compression->keep * count + LS_COMPRESSION_BLOCK - 1) /
                      LS_COMPRESSION_BLOCK);
}

/* Positions of k of n numbers. */
typedef struct ls_positions_code {
    bool is_bitmap;
    uint32_t low_bits;   /* l */
    uint32_t low_bytes;  /* of all low bits */
    uint32_t high_bytes; /* of the bit string, or of the bitmap */
} ls_positions_code;
ls_positions_code ls_positions_code_of(uint32_t kept, uint32_t count);

/* Bytes of `count` packed numbers. */
uint64_t ls_compressed_bytes(const ls_compression *compression, uint64_t count);

#endif

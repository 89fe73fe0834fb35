// SPDX-License-Identifier: Apache-2.0
/*
 * Causal attention of one head of one sequence, in blocks of 64 queries by 64 keys. See
 * compute/kernels/attention.h.
 *
 * Scores are transposed: a row is a key, a column is a query, and the queries are in the lanes. So
 * maxima, sums and masks need no sums across lanes, and no product needs a transposed key or value:
 *
 *           queries
 *          +---------+      S^T = K Q^T     A = K row major, B = Q^T, packed once per block of queries
 *     keys | s[j][i] |      O  += P V       A = P, read down a column of s, B = V row major
 *          +---------+      dP^T = V dO^T
 *                           dV += P^T dO    dK += dS^T Q    dQ += dS K
 *
 * All operands are packed in scratch memory and padded with zeros to multiples of 16 rows and
 * columns.
 */
#ifndef LS_COMPUTE_CPU_ISA_ATTENTION_H
#define LS_COMPUTE_CPU_ISA_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

enum { LS_ATTENTION_BLOCK = 64 };

/* Rows of a matrix in memory. */
typedef struct ls_attention_rows {
    float *data;
    int64_t stride;
} ls_attention_rows;

/* One head: pointers to its first column in the first row of its sequence. */
typedef struct ls_attention_head {
    ls_attention_rows q, k, v, out;
    /* One float per row. data NULL in decode. */
    ls_attention_rows lse;
    /* For backward only. dk and dv hold the gradients of this head alone. */
    ls_attention_rows dout, dq, dk, dv;
    /* Rows of q. */
    int64_t queries;
    /* Position of query 0. Keys 0 .. first + queries - 1 exist. */
    int64_t first;
    int64_t head_dim;
    /* 0: no window. */
    int64_t window;
    float scale;
} ls_attention_head;

static inline int64_t ls_attention_pad(int64_t x)
{
    return (x + 15) / 16 * 16;
}

/* Floats of scratch per worker. */
static inline int64_t ls_attention_forward_scratch(int64_t head_dim)
{
    const int64_t b = LS_ATTENTION_BLOCK, d = ls_attention_pad(head_dim);
    return 4 * b * d + b * b + 4 * b;
}

/* length: keys. */
static inline int64_t ls_attention_backward_scratch(int64_t head_dim, int64_t length)
{
    const int64_t b = LS_ATTENTION_BLOCK, d = ls_attention_pad(head_dim);
    return 4 * ls_attention_pad(length) * d + 5 * b * d + 2 * b * b + 4 * b;
}

typedef struct ls_attention_kernels {
    /* Computes out and lse of queries [64 block, 64 block + 64). */
    void (*forward)(const ls_attention_head *head, int64_t block, float *scratch);
    /* Computes dq, dk and dv of the whole head. */
    void (*backward)(const ls_attention_head *head, float *scratch);
} ls_attention_kernels;

#endif

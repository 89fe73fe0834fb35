// SPDX-License-Identifier: Apache-2.0
/*
 * The fixed tree over V leaves (DESIGN I1), shared out among ranks. Pure arithmetic.
 *
 * node(a, b) is the sum of the leaves [a, b); it splits at a + the largest power of two below b - a. The whole sum is node(0, V).
 *
 *   V = 7                      [0,7)
 *                      [0,4)         [4,7)
 *                   [0,2) [2,4)   [4,6)  [6,7)
 *
 * Rank r of n computes the leaves [V r / n, V (r + 1) / n) and adds up what the tree adds inside that range. What remains is its canonical
 * nodes: the maximal nodes that lie in its range. Only these meet those of other ranks; the additions above them are the same whoever
 * makes them, so any n from 1 to V gives the same bits.
 */
#ifndef LS_EXECUTION_PARALLEL_TREE_H
#define LS_EXECUTION_PARALLEL_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_LEAVES_MAX = 1024,
    LS_TREE_NODES_MAX = 24,    /* canonical nodes of one range, <= 2 log2 V + 2 */
    LS_TREE_INPUTS_MAX = 1024, /* nodes of all ranks */
    LS_TREE_PROGRAM_MAX = 2 * LS_TREE_INPUTS_MAX,
};

/* The leaves [first, first + count). */
typedef struct ls_leaf_range {
    uint32_t first, count;
} ls_leaf_range;

/* Leaves of rank `rank` of `ranks` <= leaves: contiguous, sizes differ by at most one. */
ls_leaf_range ls_leaves_of_rank(uint32_t leaves, uint32_t ranks, uint32_t rank);

/* The maximal nodes of the tree over `leaves` that lie inside `range`, in order; returns how many. */
uint32_t ls_tree_cover(uint32_t leaves, ls_leaf_range range, ls_leaf_range nodes_out[LS_TREE_NODES_MAX]);

/* Whether node `left` and the node `right` behind it are the two halves of one node. */
bool ls_tree_is_pair(uint32_t leaves, ls_leaf_range left, ls_leaf_range right);

/* Gradient buffers that a rank needs to add up its range leaf by leaf, merging as soon as a pair stands: the most that wait at once,
 * the leaf being computed included. For the whole tree the same as ls_tree_buffers (model/plan.h). */
uint32_t ls_tree_range_buffers(uint32_t leaves, ls_leaf_range range);

/*
 * The nodes that a rank hands over: it adds up its range leaf by leaf, merges pairs as soon as they stand, but leaves the merges after its
 * last leaf to whoever owns the sum. So a gradient is final as soon as the last leaf's backward has written it, and those additions join
 * the ones that are made anyway. Node i is in gradient buffer i. In order; returns how many, at most ls_tree_range_buffers.
 */
uint32_t ls_tree_handover(uint32_t leaves, ls_leaf_range range, ls_leaf_range nodes_out[LS_TREE_NODES_MAX]);

/*
 * How to add `count` nodes that lie side by side and together are [0, leaves): postfix, a number i < count pushes input i,
 * LS_TREE_ADD replaces the two on top by left + right. Returns the length (2 count - 1). The nodes need not be canonical: any
 * nodes of the tree will do. depth_out: the deepest stack.
 */
enum { LS_TREE_ADD = 0xffff };
uint32_t ls_tree_program(uint32_t leaves, const ls_leaf_range *nodes, uint32_t count,
                         uint16_t program_out[LS_TREE_PROGRAM_MAX], uint32_t *depth_out);

#endif

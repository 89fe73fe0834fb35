// SPDX-License-Identifier: Apache-2.0
/*
 * The fixed tree over V leaves (invariant I1), and how ranks share it. Pure arithmetic.
 *
 * node(a, b) is the sum of the leaves [a, b). It splits at a + p, where p is the largest power of
 * two below b - a. The whole sum is node(0, V).
 *
 *   V = 7                      [0,7)
 *                      [0,4)         [4,7)
 *                   [0,2) [2,4)   [4,6)  [6,7)
 *
 * Rank r of n computes the leaves [V r / n, V (r + 1) / n) and makes the additions of the tree that
 * lie inside this range. The results are its canonical nodes: the maximal nodes of the tree inside
 * the range. The additions above them combine nodes of several ranks and are the same whichever
 * rank makes them, so any n from 1 to V gives the same bits.
 *
 * Groups. The leaves may be cut into groups of `group` leaves each, a power of two that divides V.
 * Each group is a node of the tree then, and no rank makes an addition above it: what happens to
 * the sums of groups before they are added is up to the caller. group 0: there are none.
 */
#ifndef LS_COMM_TRANSPORT_TREE_H
#define LS_COMM_TRANSPORT_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_LEAVES_MAX = 1024,
    /* Canonical nodes of one range: at most 2 log2 V + 2. */
    LS_TREE_NODES_MAX = 24,
    /* Nodes of all ranks together. */
    LS_TREE_INPUTS_MAX = 1024,
    LS_TREE_PROGRAM_MAX = 2 * LS_TREE_INPUTS_MAX,
};

/* The leaves [first, first + count). */
typedef struct ls_leaf_range {
    uint32_t first, count;
} ls_leaf_range;

/* The leaves of a rank: contiguous, and the sizes of all ranks differ by at most one.
 * ranks <= leaves. */
ls_leaf_range ls_leaves_of_rank(uint32_t leaves, uint32_t ranks, uint32_t rank);

/* Writes the maximal nodes of the tree over `leaves` that lie inside `range`, in order; returns
 * their number. */
uint32_t ls_tree_cover(uint32_t leaves, ls_leaf_range range, ls_leaf_range nodes_out[LS_TREE_NODES_MAX]);

/* Whether `left` and `right`, the node after it, are the two halves of one node, and a rank adds
 * them. */
bool ls_tree_is_pair(uint32_t leaves, uint32_t group, ls_leaf_range left, ls_leaf_range right);

/* The leaves from `leaf` on, before `past`, that a crew of which `side` members compute leaves side
 * by side takes at once: the largest node of the tree that begins there with at most `side` leaves.
 * side: a power of two. */
ls_leaf_range ls_tree_next_node(uint32_t leaf, uint32_t past, uint32_t side);

/* Gradient buffers that a rank needs to add up its range leaf by leaf when it merges each pair as
 * soon as it is complete: the largest number of sums held at once, including the leaf being
 * computed. For the whole tree this equals ls_tree_buffers (model/plan.h). */
uint32_t ls_tree_range_buffers(uint32_t leaves, uint32_t group, ls_leaf_range range);

/*
 * Writes the nodes that a rank hands over, in order; node i is in gradient buffer i. Returns their
 * number, at most ls_tree_range_buffers.
 *
 * The rank adds up its range leaf by leaf and merges each pair as soon as it is complete, but
 * leaves the merges after its last leaf to the owner of the sum. So a gradient is final as soon as
 * the backward pass of the last leaf has written it, and the remaining merges are part of the
 * additions that the owner makes anyway. side: 1, or as in ls_tree_next_node, whose nodes then take
 * the place of leaves.
 */
uint32_t ls_tree_handover(uint32_t leaves, uint32_t group, ls_leaf_range range, uint32_t side,
                          ls_leaf_range nodes_out[LS_TREE_NODES_MAX]);

/*
 * Writes the additions that turn `count` adjacent nodes, which together are [0, leaves), into the
 * whole sum, as a program for a stack: a number i < count pushes input i; LS_TREE_ADD replaces the
 * two topmost entries by left + right. Any nodes of the tree will do, canonical or not.
 * Returns the program's length, 2 count - 1. depth_out: the largest depth of the stack.
 */
enum { LS_TREE_ADD = 0xffff };
uint32_t ls_tree_program(uint32_t leaves, const ls_leaf_range *nodes, uint32_t count,
                         uint16_t program_out[LS_TREE_PROGRAM_MAX], uint32_t *depth_out);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tree.h"

#include "base/assert.h"

static uint32_t end_of(ls_leaf_range node)
{
    return node.first + node.count;
}

static bool is_same(ls_leaf_range a, ls_leaf_range b)
{
    return a.first == b.first && a.count == b.count;
}

static bool is_inside(ls_leaf_range node, ls_leaf_range range)
{
    return node.first >= range.first && end_of(node) <= end_of(range);
}

/* The halves of a node of at least two leaves, which splits at the largest power of two below its
 * length. */
static ls_leaf_range left_half(ls_leaf_range node)
{
    return (ls_leaf_range){node.first, 1u << (31 - __builtin_clz(node.count - 1))};
}

static ls_leaf_range right_half(ls_leaf_range node)
{
    const uint32_t left = left_half(node).count;
    return (ls_leaf_range){node.first + left, node.count - left};
}

ls_leaf_range ls_leaves_of_rank(uint32_t leaves, uint32_t ranks, uint32_t rank)
{
    LS_ASSERT(leaves <= LS_LEAVES_MAX && ranks >= 1 && ranks <= leaves && rank < ranks);
    const uint32_t first = leaves * rank / ranks;
    return (ls_leaf_range){first, leaves * (rank + 1) / ranks - first};
}

/* ---- nodes of a range ---- */

static uint32_t cover(ls_leaf_range node, ls_leaf_range range, ls_leaf_range *out, uint32_t count)
{
    if (node.first >= end_of(range) || end_of(node) <= range.first) {
        return count;
    }
    if (is_inside(node, range)) {
        LS_ASSERT(count < LS_TREE_NODES_MAX);
        out[count] = node;
        return count + 1;
    }
    count = cover(left_half(node), range, out, count);
    return cover(right_half(node), range, out, count);
}

uint32_t ls_tree_cover(uint32_t leaves, ls_leaf_range range, ls_leaf_range nodes_out[LS_TREE_NODES_MAX])
{
    LS_ASSERT(leaves >= 1 && leaves <= LS_LEAVES_MAX && range.count >= 1 && end_of(range) <= leaves);
    return cover((ls_leaf_range){0, leaves}, range, nodes_out, 0);
}

bool ls_tree_is_pair(uint32_t leaves, uint32_t group, ls_leaf_range left, ls_leaf_range right)
{
    ls_leaf_range node = {0, leaves};
    if (group > 0 && left.count + right.count > group) {
        return false;
    }
    while (node.count >= 2) {
        const ls_leaf_range a = left_half(node), b = right_half(node);
        if (is_same(a, left)) {
            return is_same(b, right);
        }
        if (!is_inside(left, a) && !is_inside(left, b)) {
            return false;
        }
        node = is_inside(left, a) ? a : b;
    }
    return false;
}

/* ---- adding up a range ---- */

ls_leaf_range ls_tree_next_node(uint32_t leaf, uint32_t past, uint32_t side)
{
    while (leaf % side != 0 || leaf + side > past) {
        side /= 2;
    }
    return (ls_leaf_range){leaf, side};
}

/* Pushes one leaf, or node of `side` leaves, after another and merges complete pairs before each.
 * Returns the final depth of the stack; *deepest_out is the largest. */
static uint32_t add_up(uint32_t leaves, uint32_t group, ls_leaf_range range, uint32_t side,
                       ls_leaf_range *stack, uint32_t *deepest_out)
{
    uint32_t depth = 0, leaf = range.first;
    *deepest_out = 0;
    while (leaf < end_of(range)) {
        while (depth >= 2 && ls_tree_is_pair(leaves, group, stack[depth - 2], stack[depth - 1])) {
            stack[depth - 2].count += stack[depth - 1].count;
            depth--;
        }
        LS_ASSERT(depth < LS_TREE_NODES_MAX);
        stack[depth] = ls_tree_next_node(leaf, end_of(range), side);
        leaf += stack[depth++].count;
        *deepest_out = depth > *deepest_out ? depth : *deepest_out;
    }
    return depth;
}

uint32_t ls_tree_range_buffers(uint32_t leaves, uint32_t group, ls_leaf_range range)
{
    ls_leaf_range stack[LS_TREE_NODES_MAX];
    uint32_t deepest = 0;
    (void)add_up(leaves, group, range, 1, stack, &deepest);
    return deepest;
}

uint32_t ls_tree_handover(uint32_t leaves, uint32_t group, ls_leaf_range range, uint32_t side,
                          ls_leaf_range nodes_out[LS_TREE_NODES_MAX])
{
    uint32_t deepest = 0;
    return add_up(leaves, group, range, side, nodes_out, &deepest);
}

/* ---- programs ---- */

typedef struct writer {
    const ls_leaf_range *nodes;
    /* Number of inputs, and the next one to push. */
    uint32_t count, next;
    uint16_t *program;
    uint32_t length;
    uint32_t depth, deepest;
} writer;

static void emit(writer *w, uint16_t code)
{
    w->program[w->length++] = code;
    w->depth += code == LS_TREE_ADD ? (uint32_t)-1 : 1;
    w->deepest = w->depth > w->deepest ? w->depth : w->deepest;
}

static void write_node(writer *w, ls_leaf_range node)
{
    LS_ASSERT(w->next < w->count && "the nodes do not cover the tree");
    if (is_same(node, w->nodes[w->next])) {
        emit(w, (uint16_t)w->next++);
        return;
    }
    LS_ASSERT(node.count >= 2 && "an input is not a node of the tree");
    write_node(w, left_half(node));
    write_node(w, right_half(node));
    emit(w, LS_TREE_ADD);
}

uint32_t ls_tree_program(uint32_t leaves, const ls_leaf_range *nodes, uint32_t count,
                         uint16_t program_out[LS_TREE_PROGRAM_MAX], uint32_t *depth_out)
{
    LS_ASSERT(leaves >= 1 && leaves <= LS_LEAVES_MAX && count >= 1 && count <= LS_TREE_INPUTS_MAX);
    writer w = {.nodes = nodes, .count = count, .program = program_out};
    write_node(&w, (ls_leaf_range){0, leaves});
    LS_ASSERT(w.next == count && w.depth == 1);
    *depth_out = w.deepest;
    return w.length;
}

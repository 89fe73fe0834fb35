// SPDX-License-Identifier: Apache-2.0
/*
 * The tree of leaves against its recursive definition: nodes, pairs, programs, and the bits of
 * sums.
 */
#include "test.h"

#include "comm/transport/tree.h"
#include "model/plan.h"

#include <string.h>

enum { EVERY = 128 }; /* every V up to here, then some up to LS_LEAVES_MAX */
static const uint32_t large[] = {129, 255, 256, 257, 383, 500, 512, 513, 767, 768, 1000, 1023, 1024};

/* Leaves that differ by orders of magnitude and in sign, so that another order gives other bits. */
static float leaf_value(uint32_t leaf)
{
    uint32_t x = (leaf + 1) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    const float size = (float)(1u << (x % 24));
    return ((float)(x >> 8) / 16777216.0f - 0.4f) * size;
}

/* ---- the definition, written down once more ---- */

static uint32_t split(uint32_t a, uint32_t b)
{
    uint32_t half = 1;
    while (2 * half < b - a) {
        half *= 2;
    }
    return a + half;
}

static float defined_sum(uint32_t a, uint32_t b)
{
    return b - a == 1 ? leaf_value(a) : defined_sum(a, split(a, b)) + defined_sum(split(a, b), b);
}

/* Whether [a, b) is a node of the tree over [x, y). */
static bool defined_is_node(uint32_t x, uint32_t y, uint32_t a, uint32_t b)
{
    if (x == a && y == b) {
        return true;
    }
    return y - x > 1 && (b <= split(x, y) ? defined_is_node(x, split(x, y), a, b)
                                          : a >= split(x, y) && defined_is_node(split(x, y), y, a, b));
}

static float naive_sum(ls_leaf_range range)
{
    float sum = leaf_value(range.first);
    for (uint32_t i = 1; i < range.count; i++) {
        sum += leaf_value(range.first + i);
    }
    return sum;
}

/* ---- what stands for the product ---- */

static float run_program(const uint16_t *program, uint32_t length, const float *inputs, uint32_t deepest)
{
    float stack[32];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (program[i] == LS_TREE_ADD) {
            assert_true(depth >= 2);
            stack[depth - 2] = stack[depth - 2] + stack[depth - 1];
            depth--;
        } else {
            assert_true(depth < deepest);
            stack[depth++] = inputs[program[i]];
        }
    }
    assert_int_equal(depth, 1);
    return stack[0];
}

static float program_sum(uint32_t leaves, const ls_leaf_range *nodes, const float *values, uint32_t count)
{
    static uint16_t program[LS_TREE_PROGRAM_MAX];
    uint32_t deepest = 0;
    const uint32_t length = ls_tree_program(leaves, nodes, count, program, &deepest);
    assert_int_equal(length, 2 * count - 1);
    assert_true(deepest <= 11);
    return run_program(program, length, values, deepest);
}

/* What a rank does: leaf after leaf into a stack of buffers. */
static uint32_t rank_sums(uint32_t leaves, ls_leaf_range range, ls_leaf_range *nodes, float *sums)
{
    const uint32_t buffers = ls_tree_range_buffers(leaves, 0, range);
    uint32_t depth = 0;
    for (uint32_t leaf = range.first; leaf < range.first + range.count; leaf++) {
        while (depth >= 2 && ls_tree_is_pair(leaves, 0, nodes[depth - 2], nodes[depth - 1])) {
            sums[depth - 2] += sums[depth - 1];
            nodes[depth - 2].count += nodes[depth - 1].count;
            depth--;
        }
        assert_true(depth < buffers);
        nodes[depth] = (ls_leaf_range){leaf, 1};
        sums[depth++] = leaf_value(leaf);
    }
    return depth;
}

/* ---- over many V and rank counts ---- */

static void for_each(void (*check)(uint32_t leaves, uint32_t ranks))
{
    for (uint32_t leaves = 1; leaves <= EVERY; leaves++) {
        for (uint32_t ranks = 1; ranks <= leaves; ranks++) {
            check(leaves, ranks);
        }
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        const uint32_t leaves = large[i];
        const uint32_t ranks[] = {1, 2, 3, 7, 8, 12, 64, 100, leaves / 2, leaves / 2 + 1, leaves - 1, leaves};
        for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++) {
            check(leaves, ranks[k]);
        }
    }
}

static void check_ranges(uint32_t leaves, uint32_t ranks)
{
    uint32_t next = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        const ls_leaf_range range = ls_leaves_of_rank(leaves, ranks, r);
        assert_int_equal(range.first, next);
        assert_true(range.count == leaves / ranks || range.count == (leaves + ranks - 1) / ranks);
        next = range.first + range.count;
    }
    assert_int_equal(next, leaves);
}

static void leaves_of_rank_cover_all_evenly(void **state)
{
    (void)state;
    for_each(check_ranges);
}

static void check_cover(uint32_t leaves, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        const ls_leaf_range range = ls_leaves_of_rank(leaves, ranks, r);
        ls_leaf_range nodes[LS_TREE_NODES_MAX];
        const uint32_t count = ls_tree_cover(leaves, range, nodes);
        uint32_t next = range.first;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(nodes[i].first, next);
            next += nodes[i].count;
            assert_true(defined_is_node(0, leaves, nodes[i].first, next));
            /* Maximal: the node above it is not in the range, so no two neighbours are a pair. */
            assert_true(i == 0 || !ls_tree_is_pair(leaves, 0, nodes[i - 1], nodes[i]));
        }
        assert_int_equal(next, range.first + range.count);
    }
}

static void tree_cover_gives_maximal_nodes(void **state)
{
    (void)state;
    for_each(check_cover);
}

static void tree_is_pair_agrees_with_the_definition(void **state)
{
    (void)state;
    for (uint32_t leaves = 1; leaves <= 20; leaves++) {
        for (uint32_t a = 0; a < leaves; a++) {
            for (uint32_t b = a + 1; b < leaves; b++) {
                for (uint32_t c = b + 1; c <= leaves; c++) {
                    const bool want = defined_is_node(0, leaves, a, c) && split(a, c) == b;
                    assert_int_equal(
                        ls_tree_is_pair(leaves, 0, (ls_leaf_range){a, b - a}, (ls_leaf_range){b, c - b}),
                        want);
                }
            }
        }
    }
    assert_true(ls_tree_is_pair(1000, 0, (ls_leaf_range){0, 512}, (ls_leaf_range){512, 488}));
    assert_false(ls_tree_is_pair(1000, 0, (ls_leaf_range){1, 1}, (ls_leaf_range){2, 1}));
    assert_false(ls_tree_is_pair(7, 0, (ls_leaf_range){4, 2}, (ls_leaf_range){5, 2}));
}

/* What a crew takes at once is a node of every tree that has these leaves: the pair of its halves. */
static void tree_next_node_is_a_node(void **state)
{
    (void)state;
    for (uint32_t leaves = 1; leaves <= 40; leaves++) {
        for (uint32_t first = 0; first < leaves; first++) {
            const ls_leaf_range node = ls_tree_next_node(first, leaves, 8);
            const uint32_t half = node.count / 2;
            assert_int_equal(node.first, first);
            assert_true(node.count >= 1 && first + node.count <= leaves && first % node.count == 0);
            assert_true(half == 0 || ls_tree_is_pair(leaves, 0, (ls_leaf_range){first, half},
                                                     (ls_leaf_range){first + half, half}));
        }
    }
    assert_int_equal(ls_tree_next_node(4, 12, 8).count, 4);
    assert_int_equal(ls_tree_next_node(8, 15, 8).count, 4);
}

static void check_sums(uint32_t leaves, uint32_t ranks)
{
    static ls_leaf_range handed[LS_TREE_INPUTS_MAX], canonical[LS_TREE_INPUTS_MAX];
    static float sums[LS_TREE_INPUTS_MAX], canonical_sums[LS_TREE_INPUTS_MAX];
    const float want = defined_sum(0, leaves);
    uint32_t count = 0, canonical_count = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        const ls_leaf_range range = ls_leaves_of_rank(leaves, ranks, r);
        ls_leaf_range nodes[LS_TREE_NODES_MAX], predicted[LS_TREE_NODES_MAX];
        float values[LS_TREE_NODES_MAX];
        const uint32_t depth = rank_sums(leaves, range, nodes, values);
        assert_int_equal(ls_tree_handover(leaves, 0, range, 1, predicted), depth);
        assert_memory_equal(predicted, nodes, depth * sizeof nodes[0]);
        memcpy(handed + count, nodes, depth * sizeof nodes[0]);
        memcpy(sums + count, values, depth * sizeof values[0]);
        count += depth;

        /* A canonical node is added up from what was handed over by the tree of its own length. */
        ls_leaf_range cover[LS_TREE_NODES_MAX];
        const uint32_t cover_count = ls_tree_cover(leaves, range, cover);
        for (uint32_t i = 0, from = 0; i < cover_count; i++) {
            ls_leaf_range shifted[LS_TREE_NODES_MAX];
            uint32_t n = 0;
            for (; from + n < depth && nodes[from + n].first < cover[i].first + cover[i].count; n++) {
                shifted[n] = (ls_leaf_range){nodes[from + n].first - cover[i].first, nodes[from + n].count};
            }
            canonical[canonical_count] = cover[i];
            canonical_sums[canonical_count++] = program_sum(cover[i].count, shifted, values + from, n);
            from += n;
        }
    }
    const float got = program_sum(leaves, handed, sums, count);
    const float got_canonical = program_sum(leaves, canonical, canonical_sums, canonical_count);
    assert_memory_equal(&got, &want, sizeof got);
    assert_memory_equal(&got_canonical, &want, sizeof got);
}

static void tree_program_gives_the_bits_of_the_definition(void **state)
{
    (void)state;
    for_each(check_sums);
}

/* The leaves here tell orders apart: sums per rank in plain order are other numbers at most rank
 * counts. */
static void tree_sums_differ_from_naive_ones(void **state)
{
    (void)state;
    uint32_t differ = 0, cases = 0;
    for (uint32_t leaves = 3; leaves <= EVERY; leaves++) {
        for (uint32_t ranks = 1; ranks < leaves; ranks++) {
            float sum = naive_sum(ls_leaves_of_rank(leaves, ranks, 0));
            for (uint32_t r = 1; r < ranks; r++) {
                sum += naive_sum(ls_leaves_of_rank(leaves, ranks, r));
            }
            differ += sum != defined_sum(0, leaves);
            cases++;
        }
    }
    assert_true(differ > cases / 2);
}

static void tree_range_buffers_of_the_whole_tree(void **state)
{
    (void)state;
    for (uint32_t leaves = 1; leaves <= LS_LEAVES_MAX; leaves++) {
        assert_int_equal(ls_tree_range_buffers(leaves, 0, (ls_leaf_range){0, leaves}),
                         ls_tree_buffers(leaves, 0));
    }
}

/* Any range, not only those of ranks, fits the tables. */
static void tree_nodes_of_any_range_fit(void **state)
{
    (void)state;
    const uint32_t counts[] = {1023, 1024, 1000, 897};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (uint32_t first = 0; first < counts[c]; first += first < 40 ? 1 : 61) {
            for (uint32_t past = counts[c]; past > first; past -= past > counts[c] - 40 ? 1 : 67) {
                ls_leaf_range nodes[LS_TREE_NODES_MAX];
                const ls_leaf_range range = {first, past - first};
                const uint32_t cover = ls_tree_cover(counts[c], range, nodes);
                const uint32_t handed = ls_tree_handover(counts[c], 0, range, 1, nodes);
                assert_true(cover <= handed && handed <= LS_TREE_NODES_MAX);
                if (past <= 67) {
                    break;
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_of_rank_cover_all_evenly),
        cmocka_unit_test(tree_cover_gives_maximal_nodes),
        cmocka_unit_test(tree_is_pair_agrees_with_the_definition),
        cmocka_unit_test(tree_program_gives_the_bits_of_the_definition),
        cmocka_unit_test(tree_sums_differ_from_naive_ones),
        cmocka_unit_test(tree_next_node_is_a_node),
        cmocka_unit_test(tree_range_buffers_of_the_whole_tree),
        cmocka_unit_test(tree_nodes_of_any_range_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

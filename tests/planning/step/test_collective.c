// SPDX-License-Identifier: Apache-2.0
/* Collectives against numbers worked by hand: rates of 100 B/s inside a node and 50 B/s a NIC, no
 * latency where bandwidth is meant. */
#include "test.h"

#include "planning/step/collective.h"

#include <math.h>

static const ls_accelerator gpu = {
    .name = "test", .generation = "test", .scaleup_bytes_ps = 100, .scaleup_domain = 8, .pcie_bytes_ps = 10};
static const ls_node node = {.name = "test node", .accelerator = &gpu, .count = 8, .nic_bytes_ps = 50};
static const ls_stack plain = {.scaleup_efficiency = 1, .nic_efficiency = 1};

static ls_stack with_alpha(double link_s, double nic_s)
{
    ls_stack stack = plain;
    stack.scaleup_alpha_s = link_s;
    stack.nic_alpha_s = nic_s;
    return stack;
}

static void near(double value, double expected)
{
    if (fabs(value - expected) > 1e-9 * fabs(expected) + 1e-15) {
        fail_msg("%.12g, expected %.12g", value, expected);
    }
}

/* 2(N-1)/N: 1, 1.75, 1.96875, 1.99988 of the payload for 2, 8, 64, 16384 members. */
static void all_reduce_sends_two_n_minus_one_over_n(void **state)
{
    (void)state;
    const ls_accelerator wide = {.scaleup_bytes_ps = 100, .scaleup_domain = 16384};
    const ls_node one = {.accelerator = &wide, .count = 16384};
    const struct {
        int64_t members;
        double factor;
    } cases[] = {{2, 1.0}, {8, 1.75}, {64, 1.96875}, {16384, 2.0 * 16383 / 16384}};
    for (size_t i = 0; i < 4; i++) {
        const ls_group group = ls_group_place(&one, &plain, cases[i].members, 1);
        const ls_collective_cost cost = ls_all_reduce_cost(&group, 1000);
        near(cost.wire_bytes, 1000 * cases[i].factor);
        near(cost.time_s, 1000 * cases[i].factor / 100);
        near(ls_all_gather_cost(&group, 1000).time_s, 1000 * cases[i].factor / 2 / 100);
    }
    assert_true(fabs(2.0 * 16383 / 16384 - 1.99988) < 1e-5);
}

/* 64 GPUs with 50 GB/s NICs: 8 nodes together 400/(2*7/8) = 228.57; one GPU of each of 64 nodes, on
 * its own NIC, 50/(2*63/64) = 25.4. */
static void all_reduce_between_nodes_has_all_rails(void **state)
{
    (void)state;
    const ls_group whole = ls_group_place(&node, &plain, 64, 1);
    assert_int_equal(whole.nodes, 8);
    assert_int_equal(whole.members_per_node, 8);
    near(1000 / ls_all_reduce_cost(&whole, 1000).time_s, fmin(400 / 1.75, 100 / 1.75));
    ls_accelerator fast = gpu;
    fast.scaleup_bytes_ps = 1000;
    ls_node faster = node;
    faster.accelerator = &fast;
    const ls_group rails = ls_group_place(&faster, &plain, 64, 1);
    near(1000 / ls_all_reduce_cost(&rails, 1000).time_s, 400 / 1.75);
    assert_int_equal(ls_all_reduce_cost(&rails, 1000).algorithm, LS_COLLECTIVE_HIERARCHICAL);
    const ls_group single = ls_group_place(&faster, &plain, 64, 8);
    assert_int_equal(single.members_per_node, 1);
    near(1000 / ls_all_reduce_cost(&single, 1000).time_s, 50 / (2.0 * 63 / 64));
}

/* Tensor parallel ranks take neighbours, data parallel ones what is left of a node. */
static void group_place_counts_members_of_a_node(void **state)
{
    (void)state;
    const struct {
        int64_t members, stride, per_node, nodes;
    } cases[] = {{4, 1, 4, 1}, {8, 1, 8, 1},   {16, 1, 8, 2}, {4, 2, 4, 1},
                 {8, 2, 4, 2}, {32, 8, 1, 32}, {3, 16, 1, 3}, {1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const ls_group group = ls_group_place(&node, &plain, cases[i].members, cases[i].stride);
        assert_int_equal(group.members_per_node, cases[i].per_node);
        assert_int_equal(group.nodes, cases[i].nodes);
    }
}

/* Ring of 4: 2*3 hops of a/4 and one a; recursive inside the tree of nodes: log2. */
static void latency_grows_with_the_ring_until_the_tree_is_better(void **state)
{
    (void)state;
    const ls_stack stack = with_alpha(8e-6, 20e-6);
    const ls_group four = ls_group_place(&node, &stack, 4, 1);
    near(ls_all_reduce_cost(&four, 1e-9).latency_s, 6 * 2e-6 + 8e-6);
    near(ls_all_gather_cost(&four, 1e-9).latency_s, 3 * 2e-6 + 8e-6);
    const ls_group many = ls_group_place(&node, &stack, 1024, 8);
    near(ls_all_reduce_cost(&many, 1e-9).latency_s, 2 * 10 * 20e-6 + 20e-6);
}

static void a_sharded_gather_uses_the_nics_the_stack_can(void **state)
{
    (void)state;
    ls_stack stack = plain;
    stack.nics_per_gather = 2;
    const ls_group group = ls_group_place(&node, &stack, 64, 1);
    near(ls_all_gather_cost(&group, 1000).time_s, 7.0 / 8 * 1000 / 100); /* two NICs of 50 */
    /* the link is slower than eight NICs */
    near(ls_all_reduce_cost(&group, 1000).time_s, 2 * 7.0 / 8 * 1000 / 100);
}

static void in_network_reduction_sends_once(void **state)
{
    (void)state;
    ls_stack stack = plain;
    stack.in_network_reduction = true;
    const ls_group inside = ls_group_place(&node, &stack, 8, 1);
    near(ls_all_reduce_cost(&inside, 1000).time_s, 10);
    const ls_group single = ls_group_place(&node, &stack, 64, 8);
    near(ls_all_reduce_cost(&single, 1000).time_s, 1000.0 / 50);
    near(ls_all_gather_cost(&single, 1000).time_s, 63.0 / 64 * 1000 / 50);
}

/* (e-1)/e of the payload: of 16 over 2 nodes, 7/16 stays inside and 8/16 leaves. */
static void all_to_all_leaves_the_node_by_the_nics(void **state)
{
    (void)state;
    const ls_group inside = ls_group_place(&node, &plain, 8, 1);
    near(ls_all_to_all_cost(&inside, 1000).time_s, 7.0 / 8 * 1000 / 100);
    const ls_group two = ls_group_place(&node, &plain, 16, 1);
    near(ls_all_to_all_cost(&two, 1000).time_s, 8.0 / 16 * 1000 / 50);
}

static void cards_without_a_scale_up_network_use_pcie(void **state)
{
    (void)state;
    ls_accelerator card = gpu;
    card.scaleup_bytes_ps = 0;
    card.scaleup_domain = 1;
    const ls_node box = {.accelerator = &card, .count = 4, .nic_bytes_ps = 1};
    const ls_group group = ls_group_place(&box, &plain, 4, 1);
    assert_int_equal(group.nodes, 1);
    near(ls_all_reduce_cost(&group, 1000).time_s, 1.5 * 1000 / 10);
    card.scaleup_bytes_ps = 100; /* bridges between pairs */
    card.scaleup_domain = 2;
    const ls_group pair = ls_group_place(&box, &plain, 2, 1), all = ls_group_place(&box, &plain, 4, 1);
    near(ls_all_reduce_cost(&pair, 1000).time_s, 10);
    near(ls_all_reduce_cost(&all, 1000).time_s, 150);
}

static void one_member_or_no_bytes_cost_nothing(void **state)
{
    (void)state;
    const ls_stack stack = with_alpha(1, 1);
    const ls_group one = ls_group_place(&node, &stack, 1, 1), two = ls_group_place(&node, &stack, 2, 1);
    assert_true(ls_all_reduce_cost(&one, 1000).time_s == 0 && ls_all_to_all_cost(&one, 1000).time_s == 0);
    assert_true(ls_all_reduce_cost(&two, 0).time_s == 0);
}

static void send_goes_over_the_nic_between_nodes(void **state)
{
    (void)state;
    const ls_stack stack = with_alpha(1, 2);
    near(ls_send_s(&node, &stack, 100, false), 1 + 1);
    near(ls_send_s(&node, &stack, 100, true), 2 + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_sends_two_n_minus_one_over_n),
        cmocka_unit_test(all_reduce_between_nodes_has_all_rails),
        cmocka_unit_test(group_place_counts_members_of_a_node),
        cmocka_unit_test(latency_grows_with_the_ring_until_the_tree_is_better),
        cmocka_unit_test(a_sharded_gather_uses_the_nics_the_stack_can),
        cmocka_unit_test(in_network_reduction_sends_once),
        cmocka_unit_test(all_to_all_leaves_the_node_by_the_nics),
        cmocka_unit_test(cards_without_a_scale_up_network_use_pcie),
        cmocka_unit_test(one_member_or_no_bytes_cost_nothing),
        cmocka_unit_test(send_goes_over_the_nic_between_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

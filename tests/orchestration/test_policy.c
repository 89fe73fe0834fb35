// SPDX-License-Identifier: Apache-2.0
/* The order of who waits, gates, limits, backfill: hand-worked cases. Nodes have 8 devices, leaves 2 nodes, spines 2 leaves. */
#include "policy_world.h"

static void job_starts_on_the_devices_of_one_node(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 4, 8, 2, &s);
    submit(&w, a_job(1, 4));
    submit(&w, a_job(2, 4));
    submit(&w, a_job(3, 8));
    pass(&w);
    const ls_action *one = find_action(&w, LS_ACTION_START, 1), *two = find_action(&w, LS_ACTION_START, 2);
    const ls_action *three = find_action(&w, LS_ACTION_START, 3);
    assert_non_null(one);
    assert_non_null(two);
    assert_non_null(three);
    assert_int_equal(one->share_count, 1);
    assert_int_equal(two->shares[0].node, one->shares[0].node); /* the rest of a node is used up first */
    assert_int_equal(two->shares[0].devices | one->shares[0].devices, 0xff);
    assert_int_equal(three->level, LS_LEVEL_ISLAND);
    assert_int_equal(three->shares[0].devices, 0xff);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_starts_on_the_devices_of_one_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

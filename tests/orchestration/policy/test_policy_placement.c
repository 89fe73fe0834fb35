// SPDX-License-Identifier: Apache-2.0
/* Where gangs are placed: at the lowest level, then by the best score. Nodes have 8 devices, leaves
 * 2 nodes, spines 2 leaves, unless stated otherwise. */
#include "orchestration/policy/policy_world.h"

/* Starts a job and returns where. */
static const ls_action *start(world *w, ls_policy_job job)
{
    submit(w, job);
    pass(w);
    const ls_action *action = find_action(w, LS_ACTION_START, job.id);
    if (!action) {
        fail_msg("job %u did not start", (unsigned)job.id);
    }
    return action;
}

static void gang_takes_the_lowest_level_that_fits(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 8, 8, 2, &s);
    assert_int_equal(start(&w, a_job(1, 3))->level, LS_LEVEL_ISLAND);
    const ls_action *leaf = start(&w, a_job(2, 16));
    assert_int_equal(leaf->level, LS_LEVEL_LEAF);
    assert_int_equal(leaf->shares[0].node, 2); /* leaf 1: leaf 0 has one node begun */
    assert_int_equal(leaf->shares[1].node, 3);
    const ls_action *spine = start(&w, a_job(3, 24));
    assert_int_equal(spine->level, LS_LEVEL_SPINE);
    assert_int_equal(spine->shares[0].node, 4);                         /* spine 1 */
    assert_int_equal(start(&w, a_job(4, 21))->level, LS_LEVEL_CLUSTER); /* all that is left */
    assert_int_equal(ls_policy_count(w.policy).devices_free, 0);
    world_close(&w);
}

static void gang_of_one_node_takes_the_fullest_that_fits(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 4, 8, 2, &s);
    assert_int_equal(start(&w, a_job(1, 5))->shares[0].node, 0); /* 3 left */
    /* in the leaf that is fuller; 2 left */
    assert_int_equal(start(&w, a_job(2, 6))->shares[0].node, 1);
    assert_int_equal(start(&w, a_job(3, 2))->shares[0].node, 1); /* nothing left over */
    assert_int_equal(start(&w, a_job(4, 4))->shares[0].node, 2);
    assert_int_equal(start(&w, a_job(5, 3))->shares[0].node, 0);
    /* 4 free there; not a whole node */
    assert_int_equal(start(&w, a_job(6, 3))->shares[0].node, 2);
    world_close(&w);
}

static void gang_stays_within_an_island(void **state)
{
    (void)state;
    world w = {0};
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    ls_policy_cluster cluster;
    ls_arena_init(&w.arena);
    ls_cluster_uniform(&w.arena, 2, 8, 0, 0, &cluster);
    cluster.nodes[0].island_devices = cluster.nodes[1].island_devices = 4;
    world_open_on(&w, &cluster, &s);
    assert_int_equal(start(&w, a_job(1, 3))->shares[0].devices, 0x07);
    assert_int_equal(start(&w, a_job(2, 4))->shares[0].devices, 0xf0);
    assert_int_equal(start(&w, a_job(3, 3))->shares[0].node, 1);
    ls_policy_job job = a_job(4, 2);
    const ls_action *two = start(&w, job);
    /* one left in each: only the other island of node 1 has two together */
    assert_int_equal(two->shares[0].node, 1);
    assert_int_equal(two->level, LS_LEVEL_ISLAND);
    job = a_job(5, 3); /* 1 on node 0; 1 + 2 on node 1: no island, but a node */
    const ls_action *three = start(&w, job);
    assert_int_equal(three->level, LS_LEVEL_NODE);
    world_close(&w);
}

static void required_level_waits_rather_than_spreads(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 4, 8, 2, &s);
    start(&w, a_job(1, 5));
    ls_policy_job job = a_job(2, 14);
    job.required = LS_LEVEL_LEAF;
    assert_int_equal(start(&w, job)->shares[0].node, 2);
    job = a_job(3, 12);
    job.required = LS_LEVEL_LEAF;
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 0);
    const ls_why answer = why(&w, 3);
    assert_int_equal(answer.stage, LS_WHY_PLACEMENT);
    assert_int_equal(answer.level, LS_LEVEL_LEAF);
    assert_int_equal(answer.needed, 12);
    assert_int_equal(answer.available, 11);
    assert_int_equal(answer.free_most[LS_LEVEL_CLUSTER], 13);
    assert_int_equal(answer.free_most[LS_LEVEL_NODE], 8);
    world_close(&w);
}

static void devices_per_node_are_exactly_so_many(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 4, 8, 2, &s);
    start(&w, a_job(1, 5));
    ls_policy_job job = a_job(2, 12);
    job.devices_per_node = 4;
    const ls_action *action = start(&w, job);
    assert_int_equal(action->share_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(__builtin_popcountll(action->shares[i].devices), 4);
        assert_int_not_equal(action->shares[i].node, 0); /* has three */
    }
    job.id = 3;
    job.ranks = job.min_ranks = job.max_ranks = 16;
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 0); /* 15 are free, on three nodes four */
    assert_int_equal(why(&w, 3).stage, LS_WHY_GANG);
    world_close(&w);
}

static void cores_and_memory_bound_a_node(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 2, 8, 0, &s); /* 64 cores, 512 GiB each */
    ls_policy_job job = a_job(1, 4);
    job.cpus_per_rank = 12;
    start(&w, job); /* 48 cores of a node: 16 left for 4 devices */
    job.id = 2;
    const ls_action *two = start(&w, job);
    assert_int_equal(two->shares[0].node, 1); /* though node 0 has the devices */
    job.id = 3;
    job.ranks = job.min_ranks = job.max_ranks = 3;
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 0); /* one on each node has 12 cores */
    assert_int_equal(why(&w, 3).stage, LS_WHY_PLACEMENT);
    job = a_job(4, 8);
    job.memory_mib_per_rank = 65536;
    assert_int_equal(start(&w, job)->share_count, 2);
    world_close(&w);
}

static void kinds_and_spot_nodes_are_kept_apart(void **state)
{
    (void)state;
    world w = {0};
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open_kinds(&w, &s);
    ls_policy_job job = a_job(1, 4);
    job.kind = 1;
    assert_int_equal(start(&w, job)->shares[0].node, 1);
    job = a_job(2, 8);
    job.kind = 0;
    assert_int_equal(start(&w, job)->shares[0].node, 0);
    job = a_job(3, 8);
    submit(&w, job);
    pass(&w);
    assert_int_equal(w.count, 0); /* 4 of b, 8 on a spot node */
    job = a_job(4, 8);
    job.spot = true;
    assert_int_equal(start(&w, job)->shares[0].node, 2);
    job = a_job(5, 12);
    job.kind = 1;
    assert_int_equal(ls_policy_submit(w.policy, w.now, &job), LS_ERR_INVALID);
    world_close(&w);
}

static void data_draws_a_job_to_its_node(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 4, 8, 2, &s);
    assert_int_equal(ls_policy_dataset_set(w.policy, 3, 42, true), LS_OK);
    start(&w, a_job(1, 6));
    ls_policy_job job = a_job(2, 2);
    job.dataset = 42;
    /* a hole of two is worth more than a whole node broken for data */
    assert_int_equal(start(&w, job)->shares[0].node, 0);
    job.id = 3;
    job.ranks = job.min_ranks = job.max_ranks = 8;
    /* among whole nodes the one with the data */
    assert_int_equal(start(&w, job)->shares[0].node, 3);
    assert_int_equal(ls_policy_dataset_set(w.policy, 3, 42, false), LS_OK);
    end(&w, 3);
    job.id = 4;
    assert_int_equal(start(&w, job)->shares[0].node, 1); /* in the leaf that has less free */
    world_close(&w);
}

/* Needs 4: nodes have 8, 3 and 1 free. A job that does not mind its leaf leaves the whole node
 * whole. */
static void preferred_level_keeps_whole_nodes_whole(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 3, 8, 0, &s);
    start(&w, a_job(1, 5));
    start(&w, a_job(2, 7));
    ls_policy_job job = a_job(3, 4);
    job.comm_bytes_per_step = 1; /* next to nothing */
    job.preferred = LS_LEVEL_LEAF;
    submit(&w, job);
    pass(&w);
    const ls_action *action = find_action(&w, LS_ACTION_START, 3);
    assert_int_equal(action->level, LS_LEVEL_LEAF);
    assert_int_equal(action->share_count, 2);
    assert_int_equal(action->shares[0].node, 0);
    assert_int_equal(action->shares[1].node, 1);
    end(&w, 3);
    job.id = 4;
    job.preferred = LS_LEVEL_ISLAND;
    assert_int_equal(start(&w, job)->share_count, 1);
    world_close(&w);
}

static void drained_and_lost_nodes_get_nothing(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
    world_open(&w, 2, 8, 0, &s);
    start(&w, a_job(1, 4));
    assert_int_equal(ls_policy_node_set(w.policy, w.now, 0, LS_NODE_DRAINING), LS_OK);
    assert_int_equal(start(&w, a_job(2, 4))->shares[0].node, 1);
    end(&w, 1); /* frees devices that no job may have */
    submit(&w, a_job(3, 8));
    pass(&w);
    assert_int_equal(w.count, 0);
    assert_int_equal(ls_policy_node_set(w.policy, w.now, 0, LS_NODE_UP), LS_OK);
    pass(&w);
    assert_true(starts(&w, 3));
    assert_int_equal(ls_policy_node_set(w.policy, w.now, 2, LS_NODE_UP), LS_ERR_INVALID);
    world_close(&w);
}

/* Against all subsets: on small clusters with random holes a gang that must be in one leaf starts
 * just when some leaf has room. */
static void gang_is_found_whenever_there_is_room(void **state)
{
    (void)state;
    for (uint32_t holes = 0; holes < 256; holes++) {
        world w;
        const ls_policy_settings s = plain_settings(LS_ORDER_FIFO_SKIP);
        world_open(&w, 4, 4, 2, &s);
        uint32_t free[4];
        for (uint32_t node = 0; node < 4; node++) { /* node has 4, 3, 2, 1 free by two bits */
            const uint32_t taken = holes >> (2 * node) & 3;
            const ls_share share = {.node = node, .devices = (1u << taken) - 1};
            const ls_policy_running running = {.shares = &share, .share_count = 1, .ranks = taken};
            const ls_policy_job job = a_job(node + 1, taken ? taken : 1);
            free[node] = 4 - taken;
            assert_true(taken == 0 || ls_policy_restore_running(w.policy, w.now, &job, &running) == LS_OK);
        }
        const uint32_t leaves[2] = {free[0] + free[1], free[2] + free[3]};
        for (uint32_t ranks = 1; ranks <= 8; ranks++) {
            ls_policy_job job = a_job(10 + ranks, ranks);
            job.required = LS_LEVEL_LEAF;
            submit(&w, job);
            pass(&w);
            const ls_action *action = find_action(&w, LS_ACTION_START, job.id);
            assert_int_equal(action != NULL, leaves[0] >= ranks || leaves[1] >= ranks);
            assert_true(!action || action->level <= LS_LEVEL_LEAF);
            end(&w, job.id);
        }
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gang_takes_the_lowest_level_that_fits),
        cmocka_unit_test(gang_of_one_node_takes_the_fullest_that_fits),
        cmocka_unit_test(gang_stays_within_an_island),
        cmocka_unit_test(required_level_waits_rather_than_spreads),
        cmocka_unit_test(devices_per_node_are_exactly_so_many),
        cmocka_unit_test(cores_and_memory_bound_a_node),
        cmocka_unit_test(kinds_and_spot_nodes_are_kept_apart),
        cmocka_unit_test(data_draws_a_job_to_its_node),
        cmocka_unit_test(preferred_level_keeps_whole_nodes_whole),
        cmocka_unit_test(drained_and_lost_nodes_get_nothing),
        cmocka_unit_test(gang_is_found_whenever_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

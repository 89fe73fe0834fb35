// SPDX-License-Identifier: Apache-2.0
/*
 * The store's server and its clients' sessions in the simulated network (store_world.h): links are
 * cut, messages lost, doubled and out of order.
 */
#include "test.h"

#define CHECK(seed, condition)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fail_msg("seed %llu: not true: %s", (unsigned long long)(seed), #condition);                     \
        }                                                                                                    \
    } while (0)

#include "comm/store/store_world.h"

enum { SEEDS = 150 };

static void store_in_a_good_network(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        run_with_faults(seed, &(ls_sim_settings){.seed = seed}, false);
    }
}

static void store_with_links_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_with_faults(seed, &(ls_sim_settings){.seed = seed}, true);
    }
}

static void store_in_a_hostile_network(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_with_faults(
            seed,
            &(ls_sim_settings){.seed = seed, .net_drop = 0.1, .net_duplicate = 0.1, .net_reorder = true},
            seed % 2);
    }
}

static void store_of_another_epoch_refuses(void **state)
{
    (void)state;
    world *w = make_world(1, &(ls_sim_settings){.seed = 1}, 8);
    ls_sim_run(w->sim, 20 * S, 1000000);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(w->clients[i].status, LS_ERR_INVALID);
        assert_non_null(strstr(w->clients[i].text, "epoch 7 is over: the job is at epoch 8"));
    }
    assert_int_equal(w->server.came, 0);
    end_world(w);
}

static void store_new_epoch_ends_all_clients(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        run_with_new_epoch(seed, &(ls_sim_settings){.seed = seed});
    }
}

/* Two processes with one session: the second takes over, and the server knows one. */
static void store_link_of_a_known_session_replaces_the_old(void **state)
{
    (void)state;
    world *w = make_world(3, &(ls_sim_settings){.seed = 3}, 7);
    ls_sim_run(w->sim, 1 * S, 1000000);
    const int came = w->server.came;
    w->clients[0].done = 0; /* look goes on */
    ls_sim_cut(w->sim, w->server_host, w->hosts[0], true);
    sim_client twin = {.id = 0, .seed = 3};
    ls_sim_start(w->sim, w->hosts[1], client_program, &twin);
    ls_sim_run(w->sim, ls_sim_now_ns(w->sim) + 100 * MS, 1000000);
    assert_true(w->server.came > came);
    assert_true(w->server.came - w->server.left <= CLIENTS);
    ls_store_session_release(&twin.session);
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_in_a_good_network),
        cmocka_unit_test(store_with_links_cut),
        cmocka_unit_test(store_in_a_hostile_network),
        cmocka_unit_test(store_of_another_epoch_refuses),
        cmocka_unit_test(store_new_epoch_ends_all_clients),
        cmocka_unit_test(store_link_of_a_known_session_replaces_the_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

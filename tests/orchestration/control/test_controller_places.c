// SPDX-License-Identifier: Apache-2.0
/* A machine with more devices than the policy keeps in one node: several places for the policy, one
 * machine for everyone else. */
#include "orchestration/control/controller_world.h"

static int set_up_large(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    w.now_s = 1000000.0;
    w.engine = (fake_engine){.base.calls = &fake_calls,
                             .node = {.name = "large",
                                      .kind = "cpu",
                                      .devices = 130,
                                      .island_devices = 130,
                                      .cpus = 130,
                                      .memory_mib = 130 * 64}};
    assert_int_equal(create(&w.controller), LS_OK);
    ls_controller_restored(w.controller, 1);
    return 0;
}

static void places_are_equal_parts(void **state)
{
    (void)state;
    for (uint32_t devices = 1; devices < 1000; devices++) {
        const uint32_t count = ls_engine_place_count(devices);
        assert_int_equal(ls_engine_place_first(devices, 0), 0);
        assert_int_equal(ls_engine_place_first(devices, count), devices);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t size = ls_engine_place_first(devices, i + 1) - ls_engine_place_first(devices, i);
            assert_true(size >= 1 && size <= 64 && size >= devices / count && size <= devices / count + 1);
        }
    }
    assert_int_equal(ls_engine_place_first(100, 1), 50);
}

/* The devices of a job as they are shown, each once. Returns how many. */
static uint32_t tell_devices(uint64_t id, bool seen[130])
{
    uint32_t count = 0;
    assert_int_equal(on(LS_VERB_SHOW, id), 200);
    const json_t *nodes = json_object_get(w.answer, "nodes");
    assert_int_equal(json_array_size(nodes), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(nodes, 0), "node")), "large");
    const json_t *devices = json_object_get(json_array_get(nodes, 0), "devices");
    for (size_t i = 0; i < json_array_size(devices); i++, count++) {
        const json_int_t device = json_integer_value(json_array_get(devices, i));
        assert_true(device >= 0 && device < 130 && !seen[device]);
        seen[device] = true;
    }
    return count;
}

static void gangs_span_the_places_of_a_machine(void **state)
{
    (void)state;
    bool seen[130] = {false};
    const uint64_t wide = submit(100, "placement: {required: node}"),
                   narrow = submit(20, "ranks_per_node: 20");
    assert_state(wide, STARTING);
    assert_state(narrow, STARTING);
    assert_int_equal(tell_devices(wide, seen), 100);
    assert_int_equal(tell_devices(narrow, seen), 20);
    assert_int_equal(call(LS_VERB_NODES, "{}"), 200);
    const json_t *nodes = json_object_get(w.answer, "nodes"), *node = json_array_get(nodes, 0);
    assert_int_equal(json_array_size(nodes), 1);
    assert_int_equal(json_integer_value(json_object_get(node, "devices")), 130);
    assert_int_equal(json_integer_value(json_object_get(node, "used")), 120);
    assert_int_equal(json_array_size(json_object_get(node, "jobs")), 2);
    assert_int_equal(call(LS_VERB_STATUS, "{}"), 200);
    assert_int_equal(json_integer_value(json_object_get(w.answer, "nodes")), 1);
    const uint64_t next = submit(11, "");
    assert_state(next, QUEUED);
    starts(wide);
    ends(wide, 0);
    assert_state(next, STARTING);
    assert_int_equal(submit(99, ""), 4);
    assert_state(4, STARTING);
    memset(seen, 0, sizeof seen);
    assert_int_equal(tell_devices(narrow, seen) + tell_devices(next, seen) + tell_devices(4, seen), 130);
}

static void what_no_machine_could_hold_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{'file': 'parallel: {ranks: 131}\\njob: {command: [run]}', 'directory': '/tmp'}",
        "{'file': 'parallel: {ranks: 100}\\njob: {command: [run], ranks_per_node: 50}', 'directory': '/tmp'}",
        "{'file': 'job: {command: [run], memory: 9GB}', 'directory': '/tmp'}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(call(LS_VERB_SUBMIT, bad[i]), 400);
    }
    assert_int_equal(submit(1, ""), 1);
}

/* The machine goes down and comes back: so do all its places. */
static void machine_that_is_down_has_no_places(void **state)
{
    (void)state;
    ls_controller_report(w.controller, &(ls_engine_report){.kind = LS_ENGINE_NODE, .text = "large"});
    turn();
    const uint64_t id = submit(1, "");
    assert_state(id, QUEUED);
    ls_controller_report(w.controller,
                         &(ls_engine_report){.kind = LS_ENGINE_NODE, .text = "large", .is_up = true});
    turn();
    assert_state(id, STARTING);
}

/* A job that a daemon without places started on devices 0 to 63 of the machine keeps them, whatever
 * places they are in now. */
static void devices_keep_their_numbers(void **state)
{
    (void)state;
    const uint64_t id = submit(64, "");
    starts(id);
    ls_job *copy = NULL;
    json_t *record = ls_job_record_json(job(id));
    json_object_set_new(record, "shares", json_pack("[[i,s]]", 0, "ffffffffffffffff"));
    assert_int_equal(ls_job_create(id, json_deep_copy(job(id)->request), &copy), LS_OK);
    ls_job_set_user(copy, job(id)->uid, job(id)->gid, job(id)->user);
    ls_job_set_account(copy, job(id)->account);
    assert_int_equal(ls_job_record_read(copy, record), LS_OK);
    json_decref(record);
    ls_controller_destroy(w.controller);
    assert_int_equal(create(&w.controller), LS_OK);
    ls_controller_restore(w.controller, copy);
    ls_controller_restored(w.controller, id + 1);
    turn();
    bool seen[130] = {false};
    assert_int_equal(tell_devices(id, seen), 64);
    for (uint32_t i = 0; i < 130; i++) {
        assert_int_equal(seen[i], i < 64);
    }
    const uint64_t wide = submit(67, ""), rest = submit(66, "");
    assert_state(wide, QUEUED); /* 66 are free */
    assert_state(rest, STARTING);
    assert_int_equal(tell_devices(rest, seen), 66);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_large, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_equal_parts),
        CASE(gangs_span_the_places_of_a_machine),
        CASE(what_no_machine_could_hold_is_refused),
        CASE(machine_that_is_down_has_no_places),
        CASE(devices_keep_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Ranks and coordinates of meshes: one to one, inner axes first, every leaf with one crew. */
#include "test.h"

#include "execution/parallel/mesh.h"

static void mesh_numbers_inner_axes_first(void **state)
{
    (void)state;
    const ls_mesh mesh = {.tensor = 2, .pipeline = 3};
    const ls_mesh_place place = ls_mesh_place_of(mesh, 11);
    assert_int_equal(ls_mesh_crew(mesh), 6);
    assert_int_equal(place.data, 1);
    assert_int_equal(place.pipeline, 2);
    assert_int_equal(place.tensor, 1);
    assert_int_equal(ls_mesh_leader(mesh, 11), 6);
}

static void mesh_is_one_to_one(void **state)
{
    (void)state;
    for (uint32_t tensor = 1; tensor <= 4; tensor *= 2) {
        for (uint32_t pipeline = 1; pipeline <= 4; pipeline++) {
            const ls_mesh mesh = {.tensor = tensor, .pipeline = pipeline, .expert = 5 - pipeline};
            for (uint32_t rank = 0; rank < 3 * ls_mesh_crew(mesh); rank++) {
                const ls_mesh_place place = ls_mesh_place_of(mesh, rank);
                assert_true(place.tensor < tensor && place.pipeline < pipeline && place.data < 3);
                assert_true(place.expert < 5 - pipeline);
                assert_int_equal(ls_mesh_rank_of(mesh, place), rank);
                assert_int_equal(ls_mesh_leader(mesh, rank), place.data * ls_mesh_crew(mesh));
            }
        }
    }
}

/* Members of a crew have the same leaves; the crews together have each leaf once. */
static void mesh_gives_each_leaf_to_one_crew(void **state)
{
    (void)state;
    const ls_mesh mesh = {.tensor = 2, .pipeline = 2};
    for (uint32_t crews = 1; crews <= 7; crews++) {
        uint32_t next = 0;
        for (uint32_t rank = 0; rank < 4 * crews; rank++) {
            const ls_leaf_range range = ls_mesh_leaves(mesh, 7, 4 * crews, rank);
            const ls_leaf_range leader = ls_mesh_leaves(mesh, 7, 4 * crews, ls_mesh_leader(mesh, rank));
            assert_int_equal(range.first, leader.first);
            assert_int_equal(range.count, leader.count);
            if (rank % 4 == 0) {
                assert_int_equal(range.first, next);
                next += range.count;
            }
        }
        assert_int_equal(next, 7);
    }
}

static void mesh_names_the_axes_that_are_divided(void **state)
{
    (void)state;
    char text[LS_MESH_NAME_BYTES];
    assert_string_equal(ls_mesh_name((ls_mesh){2, 2}, 5, NULL, text), "rank 5 (dp 1, pp 0, tp 1)");
    assert_string_equal(ls_mesh_name((ls_mesh){1, 3}, 5, "", text), "rank 5 (dp 1, pp 2)");
    assert_string_equal(ls_mesh_name((ls_mesh){4, 1}, 5, "node7, pid 4711", text),
                        "rank 5 (dp 1, tp 1; node7, pid 4711)");
    assert_string_equal(ls_mesh_name((ls_mesh){.expert = 2, .pipeline = 2}, 7, NULL, text),
                        "rank 7 (dp 1, ep 1, pp 1)");
    assert_string_equal(ls_mesh_name((ls_mesh){0}, 5, NULL, text), "rank 5");
    assert_string_equal(ls_mesh_name((ls_mesh){0}, 5, "node7", text), "rank 5 (node7)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mesh_numbers_inner_axes_first),
        cmocka_unit_test(mesh_is_one_to_one),
        cmocka_unit_test(mesh_gives_each_leaf_to_one_crew),
        cmocka_unit_test(mesh_names_the_axes_that_are_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

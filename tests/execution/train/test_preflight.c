// SPDX-License-Identifier: Apache-2.0
/* Pre-flight: each part of what a rank is made of differs by itself, and is named. */
#include "test.h"

#include "execution/train/preflight.h"

#include <stdio.h>
#include <string.h>

static ls_preflight_member members[4];

static void make_equal(void)
{
    memset(members, 0, sizeof members);
    for (uint32_t i = 0; i < 4; i++) {
        members[i].rank = i;
        members[i].pid = (int32_t)(100 + i);
        snprintf(members[i].host, sizeof members[i].host, "node%u", i / 2);
        members[i].preflight.version = LS_PREFLIGHT_VERSION;
        members[i].preflight.part_count = LS_PREFLIGHT_PART_COUNT;
        for (uint32_t part = 0; part < LS_PREFLIGHT_PART_COUNT; part++) {
            memset(members[i].preflight.hash[part], (int)part + 1, LS_PREFLIGHT_HASH_BYTES);
        }
    }
}

static void expect_text(const char *part)
{
    if (!strstr(ls_error_text(), part)) {
        fail_msg("'%s' is not in '%s'", part, ls_error_text());
    }
}

static void expect_no_text(const char *part)
{
    assert_null(strstr(ls_error_text(), part));
}

static void preflight_compare_equal_is_ok(void **state)
{
    (void)state;
    make_equal();
    assert_int_equal(ls_preflight_compare(members, 4), LS_OK);
    assert_int_equal(ls_preflight_compare(members, 1), LS_OK);
    assert_int_equal(ls_preflight_compare(members, 0), LS_OK);
}

static void preflight_compare_names_rank_and_parts(void **state)
{
    (void)state;
    make_equal();
    members[3].preflight.hash[LS_PREFLIGHT_BINARY][0] = 0xab;
    members[3].preflight.hash[LS_PREFLIGHT_OP_PLAN][15] = 0;
    assert_int_equal(ls_preflight_compare(members, 4), LS_ERR_MISMATCH);
    expect_text("1 of 4 ranks");
    expect_text("rank 3 (node1, pid 103) differs in binary (ab010101, most have 01010101) and op plan (");
    expect_no_text("rank 0");
    expect_no_text("run file (");
    for (uint32_t part = 0; part < LS_PREFLIGHT_PART_COUNT; part++) {
        make_equal();
        members[1].preflight.hash[part][7] ^= 1;
        assert_int_equal(ls_preflight_compare(members, 4), LS_ERR_MISMATCH);
        expect_text(ls_preflight_part_name((ls_preflight_part)part));
        expect_text("rank 1 (node0, pid 101)");
    }
}

static void preflight_compare_of_two_equal_sides_trusts_the_lowest(void **state)
{
    (void)state;
    make_equal();
    members[2].preflight.hash[LS_PREFLIGHT_DATA][0] = 9;
    members[3].preflight.hash[LS_PREFLIGHT_DATA][0] = 9;
    assert_int_equal(ls_preflight_compare(members, 4), LS_ERR_MISMATCH);
    expect_text("2 of 4 ranks");
    expect_text("rank 2 (node1, pid 102) differs in data (");
    expect_text("; rank 3 (node1, pid 103) differs in data (");
}

static void preflight_compare_refuses_another_version(void **state)
{
    (void)state;
    make_equal();
    members[2].preflight.version = 7;
    assert_int_equal(ls_preflight_compare(members, 4), LS_ERR_MISMATCH);
    expect_text(
        "rank 2 (node1, pid 102) runs another version of lockstep: its pre-flight check has version 7");
}

/* ---- the hashes ---- */

typedef struct model {
    ls_arena arena;
    ls_layout layout;
    ls_plan plan;
} model;

static void build(model *m, ls_model_config config, ls_recompute recompute, int64_t sequences)
{
    ls_layout_build(&m->arena, &config, &m->layout);
    const ls_plan_options options = {.sequences = sequences,
                                     .length = 16,
                                     .training = true,
                                     .losses = true,
                                     .recompute = recompute,
                                     .tensor_cut = 1};
    assert_int_equal(ls_plan_build(&m->arena, &config, &m->layout, &options, &m->plan), LS_OK);
}

static ls_model_config small_config(void)
{
    ls_model_config config;
    ls_model_config_defaults(LS_FAMILY_LLAMA, &config);
    config.layers = 2;
    config.heads = config.kv_heads = 2;
    config.head_dim = 16;
    config.width = 32;
    config.ffn = 64;
    config.context = 16;
    config.vocab = 64;
    return config;
}

static void preflight_hashes_tell_plans_and_layouts_apart(void **state)
{
    (void)state;
    model a = {0}, same = {0}, wider = {0}, recomputing = {0};
    ls_model_config config = small_config(), wide = small_config();
    wide.ffn = 128;
    build(&a, config, LS_RECOMPUTE_NONE, 2);
    build(&same, config, LS_RECOMPUTE_NONE, 2);
    build(&wider, wide, LS_RECOMPUTE_NONE, 2);
    build(&recomputing, config, LS_RECOMPUTE_FULL, 2);
    unsigned char first[LS_PREFLIGHT_HASH_BYTES], second[LS_PREFLIGHT_HASH_BYTES];
    ls_preflight_hash_layout(&a.layout, first);
    ls_preflight_hash_layout(&same.layout, second);
    assert_memory_equal(first, second, sizeof first);
    ls_preflight_hash_layout(&wider.layout, second);
    assert_memory_not_equal(first, second, sizeof first);
    ls_preflight_hash_plan(&a.plan, first);
    ls_preflight_hash_plan(&same.plan, second);
    assert_memory_equal(first, second, sizeof first);
    ls_preflight_hash_plan(&wider.plan, second);
    assert_memory_not_equal(first, second, sizeof first);
    ls_preflight_hash_plan(&recomputing.plan, second);
    assert_memory_not_equal(first, second, sizeof first);
    ls_arena_release(&a.arena);
    ls_arena_release(&same.arena);
    ls_arena_release(&wider.arena);
    ls_arena_release(&recomputing.arena);
}

static void preflight_hash_binary_is_stable(void **state)
{
    (void)state;
    unsigned char first[LS_PREFLIGHT_HASH_BYTES], second[LS_PREFLIGHT_HASH_BYTES] = {0};
    assert_int_equal(ls_preflight_hash_binary(first), LS_OK);
    assert_memory_not_equal(first, second, sizeof first);
    assert_int_equal(ls_preflight_hash_binary(second), LS_OK);
    assert_memory_equal(first, second, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preflight_compare_equal_is_ok),
        cmocka_unit_test(preflight_compare_names_rank_and_parts),
        cmocka_unit_test(preflight_compare_of_two_equal_sides_trusts_the_lowest),
        cmocka_unit_test(preflight_compare_refuses_another_version),
        cmocka_unit_test(preflight_hashes_tell_plans_and_layouts_apart),
        cmocka_unit_test(preflight_hash_binary_is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

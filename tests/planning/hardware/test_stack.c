// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/hardware/stack.h"

#include <string.h>

static const ls_accelerator a100 = {.name = "A100", .generation = "a100"};
static const ls_accelerator h100 = {.name = "H100", .generation = "h100"};
static const ls_accelerator odd = {.name = "X1", .generation = "x1"};

/* Every stack has constants for every generation, all of them sensible. */
static void every_stack_has_constants_anywhere(void **state)
{
    (void)state;
    const ls_accelerator *const all[] = {&a100, &h100, &odd};
    size_t stacks = 0;
    for (const char *const *name = ls_stack_names(); *name; name++, stacks++) {
        for (size_t i = 0; i < 3; i++) {
            ls_stack stack;
            assert_int_equal(ls_stack_find(*name, all[i], &stack, NULL), LS_OK);
            assert_string_equal(stack.name, *name);
            assert_true(stack.gemm_efficiency > 0.3 && stack.gemm_efficiency <= 1);
            assert_true(stack.memory_efficiency > 0.3 && stack.memory_efficiency <= 1);
            assert_true(stack.attention_efficiency > 0 && stack.scaleup_efficiency > 0 &&
                        stack.nic_efficiency > 0);
            assert_true(stack.recompute_share > 0 && stack.reduce_bytes >= 2 && stack.layer_kernels > 0);
            assert_non_null(stack.source);
        }
    }
    assert_true(stacks >= 5);
}

static void find_says_where_constants_come_from(void **state)
{
    (void)state;
    ls_stack stack;
    const char *from = "unset";
    assert_int_equal(ls_stack_find("fsdp", &h100, &stack, &from), LS_OK);
    assert_null(from);
    assert_string_equal(stack.generation, "h100");
    assert_int_equal(ls_stack_find("fsdp", &odd, &stack, &from), LS_OK);
    assert_string_equal(from, "a100");
}

static void find_takes_other_names(void **state)
{
    (void)state;
    ls_stack stack;
    assert_int_equal(ls_stack_find("megatron", &h100, &stack, NULL), LS_OK);
    assert_string_equal(stack.name, "megatron-core");
    assert_int_equal(ls_stack_find("pytorch", &h100, &stack, NULL), LS_OK);
    assert_string_equal(stack.name, "fsdp");
}

static void find_refuses_unknown_stacks_with_those_there_are(void **state)
{
    (void)state;
    ls_stack stack = {.name = "untouched"};
    assert_int_equal(ls_stack_find("megatorn", &h100, &stack, NULL), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "megatron-core"));
    assert_string_equal(stack.name, "untouched");
}

static void set_changes_what_is_named(void **state)
{
    (void)state;
    ls_stack stack = {.gemm_efficiency = 0.5, .launch_s = 1};
    assert_int_equal(ls_stack_set(&stack, "launch_s=2e-6 flash=1 gradient_bytes=4"), LS_OK);
    assert_true(stack.launch_s == 2e-6 && stack.flash && stack.gradient_bytes == 4 &&
                stack.gemm_efficiency == 0.5);
    assert_int_equal(ls_stack_set(&stack, ""), LS_OK);
}

static void set_refuses_and_leaves_the_stack(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "gemm_efficiency=1.5", "gemm_efficiency=-0.1", "gemm_efficiency=much",
        "gemm_efficiency=",    "gemm_efficiency",      "speed=1",
        "launch_s=1e-6x",      "launch_s=nan",         "launch_s=1e-6 speed=1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ls_stack stack = {.gemm_efficiency = 0.5, .launch_s = 1};
        assert_int_equal(ls_stack_set(&stack, wrong[i]), LS_ERR_INVALID);
        assert_true(stack.gemm_efficiency == 0.5 && stack.launch_s == 1);
    }
}

static void explain_names_constants_and_source(void **state)
{
    (void)state;
    ls_stack stack;
    ls_text text = {0};
    assert_int_equal(ls_stack_find("fsdp", &a100, &stack, NULL), LS_OK);
    ls_stack_explain(&stack, &text);
    assert_non_null(strstr(ls_text_string(&text), "gemm_efficiency"));
    assert_non_null(strstr(ls_text_string(&text), stack.source));
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stack_has_constants_anywhere),
        cmocka_unit_test(find_says_where_constants_come_from),
        cmocka_unit_test(find_takes_other_names),
        cmocka_unit_test(find_refuses_unknown_stacks_with_those_there_are),
        cmocka_unit_test(set_changes_what_is_named),
        cmocka_unit_test(set_refuses_and_leaves_the_stack),
        cmocka_unit_test(explain_names_constants_and_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

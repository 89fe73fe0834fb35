// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "env/real/program.h"

#include <stdlib.h>
#include <string.h>

static ls_program_result run(ls_arena *arena, const char *script, const char *input)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    ls_program_result result = {0};
    assert_int_equal(
        ls_program_run(&(ls_program){.argv = argv, .input = input, .timeout_s = 60}, arena, &result), LS_OK);
    return result;
}

static void program_run_both_streams_and_code(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_program_result result = run(&arena, "cat; echo oops >&2; exit 7", "what it reads");
    assert_int_equal(result.exit_code, 7);
    assert_string_equal(result.output, "what it reads");
    assert_string_equal(result.error, "oops\n");
    assert_int_equal(result.error_bytes, 5);
    ls_arena_release(&arena);
}

static void program_run_no_input_is_the_end_of_the_file(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_program_result result = run(&arena, "wc -c", NULL);
    assert_int_equal(atoi(result.output), 0);
    assert_string_equal(result.error, "");
    ls_arena_release(&arena);
}

/* More than any pipe holds, and nobody reads while it runs. */
static void program_run_long_output(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_program_result result = run(&arena, "head -c 3000000 /dev/zero | tr '\\0' x; kill -9 $$", NULL);
    assert_int_equal(result.exit_code, 128 + 9);
    assert_int_equal(result.output_bytes, 3000000);
    assert_int_equal(strspn(result.output, "x"), 3000000);
    ls_arena_release(&arena);
}

static void program_run_errors(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_program_result result = {.exit_code = 42};
    const char *const missing[] = {"no-such-program-anywhere", NULL};
    assert_int_equal(ls_program_run(&(ls_program){.argv = missing, .timeout_s = 60}, &arena, &result),
                     LS_ERR_NOT_FOUND);
    assert_true(strstr(ls_error_text(), "no-such-program-anywhere"));
    const char *const slow[] = {"sleep", "1000", NULL};
    assert_int_equal(ls_program_run(&(ls_program){.argv = slow, .timeout_s = 0.05}, &arena, &result),
                     LS_ERR_TIMEOUT);
    assert_int_equal(result.exit_code, 42);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_run_both_streams_and_code),
        cmocka_unit_test(program_run_no_input_is_the_end_of_the_file),
        cmocka_unit_test(program_run_long_output),
        cmocka_unit_test(program_run_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

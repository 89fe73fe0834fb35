// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/step/strategy.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static ls_shape shape_of(const char *text)
{
    ls_shape shape;
    assert_int_equal(ls_shape_parse(&arena, text, &shape), LS_OK);
    return shape;
}

static ls_strategy strategy_of(const char *text, int64_t gpus)
{
    ls_strategy_request request;
    assert_int_equal(ls_strategy_parse(text, &request), LS_OK);
    return ls_strategy_resolve(&request, gpus);
}

static const char whole[] =
    "tp=8,pp=2,dp=16,cp=1,ep=1,vpp=4,mb=1,zero=1,recompute=selective,sp=1,schedule=1f1b";

static void strategy_parse_and_format_are_inverse(void **state)
{
    (void)state;
    ls_strategy_request request;
    assert_int_equal(ls_strategy_parse(whole, &request), LS_OK);
    assert_true(request.has_zero && request.has_recompute && request.has_sequence_parallel &&
                request.has_schedule);
    char text[200];
    ls_strategy_format(&request.strategy, text, sizeof text);
    assert_string_equal(text, whole);
    ls_strategy_describe(&request.strategy, text, sizeof text);
    assert_string_equal(text,
                        "TP 8 x PP 2 x DP 16, micro-batch 1, interleave 4, ZeRO-1, selective recompute, "
                        "sequence parallel");
    char small[10];
    ls_strategy_describe(&request.strategy, small, sizeof small);
    assert_string_equal(small, "TP 8 x PP");
    const ls_strategy one = strategy_of("tp=1,pp=1,cp=1,ep=1,mb=4,zero=0,recompute=none", 1);
    ls_strategy_describe(&one, text, sizeof text);
    assert_string_equal(text, "one GPU, micro-batch 4");
}

static void strategy_request_knows_what_is_left(void **state)
{
    (void)state;
    ls_strategy_request request;
    assert_int_equal(ls_strategy_parse("", &request), LS_OK);
    assert_false(ls_strategy_is_complete(&request));
    assert_int_equal(ls_strategy_parse("tp=8,pp=2,cp=1,ep=1,mb=1,zero=1,recompute=full", &request), LS_OK);
    assert_false(ls_strategy_is_complete(&request)); /* how to interleave is left */
    assert_int_equal(ls_strategy_parse("tp=8,pp=1,cp=1,ep=1,mb=1,zero=1,recompute=full", &request), LS_OK);
    assert_true(ls_strategy_is_complete(&request));
    const ls_strategy s = ls_strategy_resolve(&request, 64);
    assert_int_equal(s.dp, 8);
    assert_int_equal(s.vpp, 1);
    assert_true(s.sequence_parallel);
    assert_int_equal(ls_strategy_resolve(&request, 4).dp, 1);
}

static void strategy_parse_refuses(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"tp=0", "tp (GPUs that share each matrix) is \"0\""},
        {"tp=-2", "is \"-2\""},
        {"tp=2.5", "is \"2.5\""},
        {"tp=", "is \"\""},
        {"tp=1e99", "1 to 16777216"},
        {"tp", "\"tp\" is not of the form key=value"},
        {"tp=2,tp=2", "tp is given twice"},
        {"zero=4", "allowed are 0, 1, 2, 3"},
        {"zero=1,zero=1", "zero is given twice"},
        {"recompute=some", "allowed are none, selective, full"},
        {"sp=yes", "allowed are 0, 1"},
        {"schedule=dual", "allowed are 1f1b, gpipe, zb-h1, zb-h2"},
        {"tensors=2", "nearest: tp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_strategy_request request = {.strategy.tp = 77};
        assert_int_equal(ls_strategy_parse(cases[i][0], &request), LS_ERR_INVALID);
        if (!strstr(ls_error_text(), cases[i][1])) {
            fail_msg("%s: %s", cases[i][0], ls_error_text());
        }
        assert_int_equal(request.strategy.tp, 77);
    }
}

static void strategy_check_accepts_what_was_run(void **state)
{
    (void)state;
    const ls_shape gpt = shape_of("gpt-1t"), llama = shape_of("llama3-405b"),
                   mixtral = shape_of("mixtral-8x7b");
    ls_strategy s = strategy_of("tp=8,pp=64,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=full", 512);
    assert_int_equal(ls_strategy_check(&s, &gpt, 512, 512, 2048), LS_OK);
    /* 126 layers on 16 stages: two stages have one layer less. */
    s = strategy_of("tp=8,pp=16,cp=1,ep=1,vpp=7,mb=1,zero=1,recompute=none", 16384);
    assert_int_equal(ls_strategy_check(&s, &llama, 16384, 2048, 8192), LS_OK);
    s.vpp = 8; /* embedding and head as a layer each: 128 chunks */
    assert_int_equal(ls_strategy_check(&s, &llama, 16384, 2048, 8192), LS_OK);
    s = strategy_of("tp=2,pp=1,cp=1,ep=8,mb=1,zero=1,recompute=none", 64);
    assert_int_equal(ls_strategy_check(&s, &mixtral, 64, 256, 4096), LS_OK);
}

static void strategy_check_refuses_with_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"tp=3,pp=1,cp=1,ep=1,mb=1,zero=0,recompute=none",
         "tp 3 does not divide the heads 64; allowed are 1, 2, 4, 8"},
        {"tp=16,pp=1,cp=1,ep=1,mb=1,zero=0,recompute=none",
         "tp 16 does not divide the key-value heads 8; allowed are 1, 2, 4, 8"},
        {"tp=1,pp=128,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none",
         "pp 128 is more stages than the model has layers"},
        {"tp=1,pp=8,cp=1,ep=1,vpp=11,mb=1,zero=0,recompute=none", "allowed are vpp 1, 2, 5, 10"},
        {"tp=1,pp=8,cp=1,ep=1,vpp=3,mb=1,zero=0,recompute=none", "allowed are vpp 1, 2, 5, 10"},
        {"tp=1,pp=1,cp=1,ep=1,vpp=2,mb=1,zero=0,recompute=none", "vpp 2 needs pipeline stages"},
        {"tp=8,pp=2,dp=5,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none", "dp=16 would fit"},
        {"tp=8,pp=5,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none", "does not divide 256 GPUs; use 240 GPUs"},
        {"tp=1,pp=1,cp=1,ep=2,mb=1,zero=0,recompute=none", "no experts; allowed is 1"},
        {"tp=8,pp=1,cp=1,ep=1,mb=3,zero=0,recompute=none", "the nearest are 480 and 576"},
        {"tp=1,pp=1,cp=1,ep=1,mb=4,zero=0,recompute=none", "but a step has only 512"},
        {"tp=1,pp=1,cp=256,ep=1,mb=1,zero=0,recompute=none",
         "cp 256 does not divide the sequence's tokens 8191"},
        {"tp=1,pp=1,cp=1,ep=1,mb=1,zero=0,recompute=none,schedule=zb-h1", "needs pp 2 or more"},
        {"tp=8,pp=2,cp=1,ep=1,vpp=2,mb=1,zero=0,recompute=none,schedule=gpipe",
         "works only with schedule=1f1b"},
    };
    const ls_shape llama = shape_of("llama3-70b");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_strategy s = strategy_of(cases[i].text, 256);
        const int64_t length = s.cp > 1 ? 8191 : 8192;
        assert_int_equal(ls_strategy_check(&s, &llama, 256, 512, length), LS_ERR_INVALID);
        if (!strstr(ls_error_text(), cases[i].error)) {
            fail_msg("%s: %s", cases[i].text, ls_error_text());
        }
    }
    const ls_shape mixtral = shape_of("mixtral-8x7b");
    ls_strategy s = strategy_of("tp=1,pp=1,cp=1,ep=3,mb=1,zero=0,recompute=none", 6);
    assert_int_equal(ls_strategy_check(&s, &mixtral, 6, 6, 4096), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "ep 3 does not divide the experts 8; allowed are 1, 2"));
    s = strategy_of("tp=1,pp=1,cp=1,ep=1,mb=1,zero=0,recompute=none", 1);
    assert_int_equal(ls_strategy_check(&s, &mixtral, 1, 0, 4096), LS_ERR_INVALID);
    s.zero = 4;
    assert_int_equal(ls_strategy_check(&s, &mixtral, 1, 1, 4096), LS_ERR_INVALID);
    s.zero = 0;
    s.tp = 0;
    assert_int_equal(ls_strategy_check(&s, &mixtral, 1, 1, 4096), LS_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategy_parse_and_format_are_inverse),
        cmocka_unit_test(strategy_request_knows_what_is_left),
        cmocka_unit_test(strategy_parse_refuses),
        cmocka_unit_test(strategy_check_accepts_what_was_run),
        cmocka_unit_test(strategy_check_refuses_with_what_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}

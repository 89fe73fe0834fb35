// SPDX-License-Identifier: Apache-2.0
/* The vector mathematics of compute/cpu/simd/simd_math.h in its generic form; the other instruction
 * sets give the same bits operation by operation, which the kernel tests check. */
#define LS_ISA         generic
#define LS_ISA_generic 1
#include "test.h"

#include "compute/cpu/simd/simd_math.h"

#include <float.h>
#include <stdio.h>

/* Error in units in the last place of the float32 result. */
static double ulps(float got, double want)
{
    const double ulp = nextafter((double)nextafterf((float)fabs(want), INFINITY), 0) - (float)fabs(want);
    return fabs(got - want) / ulp;
}

static double worst(vf (*function)(vf), double (*reference)(double), double low, double high, bool geometric)
{
    double most = 0.0;
    const int steps = 400000;
    for (int i = 0; i <= steps; i++) {
        const double t = (double)i / steps;
        const float x = (float)(geometric ? low * pow(high / low, t) : low + (high - low) * t);
        const double error = ulps(vf_lane0(function(vf_set(x))), reference(x));
        most = error > most ? error : most;
    }
    return most;
}

static vf call_exp(vf x)
{
    return vf_exp(x);
}

static vf call_log(vf x)
{
    return vf_log(x);
}

static void exp_is_within_its_bound(void **state)
{
    (void)state;
    const double most =
        fmax(worst(call_exp, exp, -87.3, 88.37, false), worst(call_exp, exp, -1.0, 1.0, false));
    print_message("exp: %.3f ulp\n", most);
    assert_true(most <= 1.2);
    assert_true(vf_lane0(vf_exp(vf_set(0.0f))) == 1.0f);
    assert_true(vf_lane0(vf_exp(vf_set(-88.0f))) == 0.0f);
    assert_true(vf_lane0(vf_exp(vf_set(-INFINITY))) == 0.0f);
    assert_true(isinf(vf_lane0(vf_exp(vf_set(88.5f)))));
    assert_true(isinf(vf_lane0(vf_exp(vf_set(INFINITY)))));
    assert_true(isnan(vf_lane0(vf_exp(vf_set(NAN)))));
    assert_true(isnan(vf_lane0(vf_exp(vf_set(-NAN)))));
}

static void log_is_within_its_bound(void **state)
{
    (void)state;
    const double most =
        fmax(worst(call_log, log, FLT_MIN, FLT_MAX, true), worst(call_log, log, 0.5, 4.0, false));
    print_message("log: %.3f ulp\n", most);
    assert_true(most <= 1.2);
    assert_true(vf_lane0(vf_log(vf_set(1.0f))) == 0.0f);
    assert_true(isnan(vf_lane0(vf_log(vf_set(NAN)))));
    assert_true(isnan(vf_lane0(vf_log(vf_set(INFINITY)))));
}

static void sigmoid_is_within_its_bound(void **state)
{
    (void)state;
    double most = 0.0;
    for (int i = -80000; i <= 80000; i++) {
        const float x = (float)i * 1e-3f;
        const double want = 1.0 / (1.0 + exp(-(double)x));
        most = fmax(most, fabs(vf_lane0(vf_sigmoid(vf_set(x))) - want) / want);
    }
    print_message("sigmoid: %.3g relative\n", most);
    assert_true(most <= 4e-7);
    assert_true(vf_lane0(vf_sigmoid(vf_set(-1e9f))) == 0.0f);
    assert_true(vf_lane0(vf_sigmoid(vf_set(1e9f))) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_its_bound),
        cmocka_unit_test(log_is_within_its_bound),
        cmocka_unit_test(sigmoid_is_within_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

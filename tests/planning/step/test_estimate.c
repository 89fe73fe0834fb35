// SPDX-License-Identifier: Apache-2.0
/* What holds for every estimate, whatever model, machine, program and length: nothing is faster
 * than its peak, the terms add up, the figures agree. */
#include "test.h"

#include "planning/shipped.h"
#include "planning/step/estimate.h"
#include "planning/step/step_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void check_estimate(const ls_setting *setting, const ls_strategy *strategy)
{
    ls_estimate e;
    double sum = 0;
    ls_estimate_compute(setting, strategy, &e);
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        assert_true(e.time.terms_s[i] >= 0 && isfinite(e.time.terms_s[i]));
        sum += e.time.terms_s[i];
    }
    const double peak = ls_peak_flops(setting->node->accelerator, setting->precision);
    assert_true(fabs(sum / e.time.step_s - 1) < 1e-9);
    assert_true(fabs(e.tflops_per_gpu * 1e12 / peak / e.mfu - 1) < 1e-9);
    if (!(e.mfu > 0 && e.mfu <= e.hfu && e.hfu <= 1)) {
        fail_msg("%s, %lld tokens, %s on %s, precision %d: MFU %.3f, HFU %.3f", setting->shape->name,
                 (long long)setting->length, setting->stack->name, setting->node->accelerator->name,
                 (int)setting->precision, e.mfu, e.hfu);
    }
}

static void check_strategies(const ls_setting *setting)
{
    for (int recompute = LS_RECOMPUTE_NONE; recompute <= LS_RECOMPUTE_FULL; recompute++) {
        ls_strategy s = {.tp = 1,
                         .pp = 1,
                         .dp = 8,
                         .cp = 1,
                         .ep = 1,
                         .vpp = 1,
                         .micro_batch = 1,
                         .zero = 1,
                         .recompute = (ls_recompute)recompute};
        check_estimate(setting, &s);
        s.dp = 2;
        s.cp = 4;
        check_estimate(setting, &s);
    }
}

/* Windows, latent attention, experts, long sequences: the work that a utilisation counts is never
 * more than what could be done in the time. */
static void utilisation_never_passes_the_peak(void **state)
{
    (void)state;
    static const char *const kinds[] = {"h100", "a100", "b200", "rtx-4090", "v100"};
    static const int64_t lengths[] = {128, 8192, 1048576};
    for (const char *const *name = ls_shape_presets(); *name; name++) {
        ls_shape shape;
        assert_int_equal(ls_shape_parse(&arena, *name, &shape), LS_OK);
        for (int w = 0; w < 2; w++) {
            shape.config.window = w ? 1024 : shape.config.window;
            for (size_t i = 0; i < 5 * 3; i++) {
                const ls_accelerator *accelerator = NULL;
                assert_int_equal(ls_catalogue_find_accelerator(&catalogue, kinds[i % 5], &accelerator),
                                 LS_OK);
                for (const char *const *program = ls_stack_names(); *program; program++) {
                    ls_stack stack;
                    assert_int_equal(ls_stack_find(*program, accelerator, &stack, NULL), LS_OK);
                    ls_setting setting = {.shape = &shape,
                                          .node = ls_catalogue_usual_node(&catalogue, &arena, accelerator),
                                          .stack = &stack,
                                          .gpus = 8,
                                          .length = lengths[i / 5],
                                          .global_batch = 64,
                                          .precision = i % 2 ? LS_PLAN_BF16 : LS_PLAN_FP32};
                    /* its memory is a plan of its own, and slow */
                    if (strcmp(stack.name, "lockstep") != 0) {
                        check_strategies(&setting);
                    }
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utilisation_never_passes_the_peak),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}

// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/step/advice.h"

#include <math.h>

static void advice_loss_is_hoffmanns_formula(void **state)
{
    (void)state;
    /* Chinchilla itself: 70e9 parameters, 1.4e12 tokens; 406.4 / 70e9^0.34 = 0.0836, 410.7 /
     * 1.4e12^0.28 = 0.163 */
    assert_float_equal(ls_advice_loss(&ls_loss_law_chinchilla, 70e9, 1.4e12), 1.69 + 0.0836 + 0.1630, 5e-4);
    assert_float_equal(ls_advice_loss(&ls_loss_law_epoch, 70e9, 1.4e12),
                       1.8172 + 482.01 / pow(70e9, 0.3478) + 2085.43 / pow(1.4e12, 0.3658), 1e-12);
    assert_true(ls_advice_loss(&ls_loss_law_chinchilla, 8e9, 15e12) <
                ls_advice_loss(&ls_loss_law_chinchilla, 8e9, 1e12));
}

static void advice_optimal_spends_all_compute(void **state)
{
    (void)state;
    const double parameters = ls_advice_optimal_parameters(5.88e23);
    assert_float_equal(parameters, 70e9, 1e3);
    assert_float_equal(6.0 * parameters * ls_advice_optimal_tokens(parameters), 5.88e23, 1e12);
}

static void advice_judge_tokens_knows_the_models_of_the_field(void **state)
{
    (void)state;
    assert_int_equal(ls_advice_judge_tokens(175e9, 300e9), LS_TOKENS_FEW);     /* GPT-3: 1.7 */
    assert_int_equal(ls_advice_judge_tokens(70e9, 1.4e12), LS_TOKENS_OPTIMAL); /* Chinchilla: 20 */
    /* Llama 3 70B: 214 */
    assert_int_equal(ls_advice_judge_tokens(70e9, 15e12), LS_TOKENS_MANY);
    /* Llama 3 8B: 1,868 */
    assert_int_equal(ls_advice_judge_tokens(8.03e9, 15e12), LS_TOKENS_EXTREME);
}

static void advice_batch_laws_meet_at_the_critical_batch(void **state)
{
    (void)state;
    assert_float_equal(ls_advice_steps_factor(4e6, 4e6), 2.0, 1e-12);
    assert_float_equal(ls_advice_tokens_factor(4e6, 4e6), 2.0, 1e-12);
    assert_float_equal(ls_advice_steps_factor(16e6, 4e6), 1.25, 1e-12);
    assert_float_equal(ls_advice_tokens_factor(16e6, 4e6), 5.0, 1e-12);
    assert_float_equal(ls_advice_critical_batch_tokens(7e9), 3e6, 1e-3);
    const double large = ls_advice_critical_batch_tokens(405e9);
    assert_true(large > 15e6 && large < 17e6);
}

static void advice_global_batch_can_be_shared_out(void **state)
{
    (void)state;
    /* 3e6 / 4096 = 732, to the nearest power of two */
    assert_int_equal(ls_advice_global_batch(7e9, 4096, 64), 1024);
    assert_int_equal(ls_advice_global_batch(7e9, 4096, 24) % 3, 0);
    assert_int_equal(ls_advice_global_batch(7e9, 4096, 2240) % 35, 0);
    assert_int_equal(ls_advice_global_batch(1e6, 1048576, 8), 1); /* never none */
    assert_int_equal(ls_advice_global_batch(1e6, 1048576, 7), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advice_loss_is_hoffmanns_formula),
        cmocka_unit_test(advice_optimal_spends_all_compute),
        cmocka_unit_test(advice_judge_tokens_knows_the_models_of_the_field),
        cmocka_unit_test(advice_batch_laws_meet_at_the_critical_batch),
        cmocka_unit_test(advice_global_batch_can_be_shared_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

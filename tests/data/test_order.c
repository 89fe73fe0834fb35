// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "data/mixture.h"
#include "data/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_is_bijection(uint64_t seed, uint64_t count, uint64_t epoch)
{
    const ls_order order = ls_order_make(seed, 0, count);
    unsigned char *seen = calloc(count, 1);
    assert_non_null(seen);
    for (uint64_t position = 0; position < count; position++) {
        const uint64_t sample = ls_order_at(&order, epoch, position);
        assert_true(sample < count);
        assert_int_equal(seen[sample], 0);
        seen[sample] = 1;
    }
    free(seen);
}

static void order_at_is_a_bijection(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= 300; count++) {
        assert_is_bijection(count, count, count % 5);
    }
    const uint64_t larger[] = {1023, 1024, 1025, 4095, 4096, 4097, 65535, 65537, 99991, 100000};
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) {
        assert_is_bijection(7, larger[i], i);
    }
}

static void order_at_reaches_the_limits_of_its_domain(void **state)
{
    (void)state;
    const uint64_t count = UINT64_C(1) << 62;
    const ls_order order = ls_order_make(1, 0, count);
    assert_true(order.columns * order.rows >= count);
    assert_true(ls_order_at(&order, (UINT64_C(1) << 56) - 1, count - 1) < count);
    assert_true(ls_order_at(&order, 0, 0) < count);
    const ls_order odd = ls_order_make(1, 0, count - 1);
    assert_true(ls_order_at(&odd, 0, count - 2) < count - 1);
}

static uint64_t equal_positions(const ls_order *a, uint64_t epoch_a, const ls_order *b, uint64_t epoch_b)
{
    uint64_t equal = 0;
    for (uint64_t position = 0; position < a->count; position++) {
        equal += ls_order_at(a, epoch_a, position) == ls_order_at(b, epoch_b, position);
    }
    return equal;
}

static void order_at_differs_by_epoch_seed_and_stream(void **state)
{
    (void)state;
    const ls_order order = ls_order_make(1337, 0, 10000);
    const ls_order other_seed = ls_order_make(1338, 0, 10000);
    const ls_order other_stream = ls_order_make(1337, 1, 10000);
    /* Two random permutations agree at one position on average (Poisson): 12 or more has a chance
     * below 1e-9.
     */
    assert_true(equal_positions(&order, 0, &order, 1) < 12);
    assert_true(equal_positions(&order, 0, &other_seed, 0) < 12);
    assert_true(equal_positions(&order, 0, &other_stream, 0) < 12);
    assert_int_equal(equal_positions(&order, 3, &order, 3), 10000);
}

/* Over many epochs each sample comes at each position equally often: chi-square over a count x
 * count table.
 */
static void order_at_is_uniform_over_epochs(void **state)
{
    (void)state;
    enum { EPOCHS = 20000 };
    const uint64_t counts[] = {2, 3, 5, 7, 12};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const uint64_t count = counts[c];
        const ls_order order = ls_order_make(99, 0, count);
        static uint64_t table[12][12];
        memset(table, 0, sizeof table);
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            for (uint64_t position = 0; position < count; position++) {
                table[position][ls_order_at(&order, epoch, position)]++;
            }
        }
        const double expected = (double)EPOCHS / (double)count;
        double chi_square = 0.0;
        for (uint64_t i = 0; i < count * count; i++) {
            const double difference = (double)table[i / count][i % count] - expected;
            chi_square += difference * difference / expected;
        }
        const double freedom = (double)((count - 1) * (count - 1));
        assert_true(chi_square < freedom + 6.0 * sqrt(2.0 * freedom) + 10.0);
    }
}

/* Neighbours in position are not neighbours in the corpus: the mean distance of a random pair is
 * count / 3.
 */
static void order_at_scatters_neighbours(void **state)
{
    (void)state;
    const uint64_t count = 100003;
    const ls_order order = ls_order_make(5, 0, count);
    double sum = 0.0;
    for (uint64_t position = 0; position + 1 < 20000; position++) {
        sum += fabs((double)ls_order_at(&order, 0, position) - (double)ls_order_at(&order, 0, position + 1));
    }
    assert_true(fabs(sum / 19999.0 / (double)count - 1.0 / 3.0) < 0.01);
}

static void order_at_known_answers(void **state)
{
    (void)state;
    /* The order is a contract: a change of these numbers makes every resumed run diverge. */
    const ls_order order = ls_order_make(1337, 0, 10);
    const uint64_t expected[10] = {4, 3, 9, 2, 5, 7, 1, 8, 0, 6};
    for (uint64_t position = 0; position < 10; position++) {
        assert_int_equal(ls_order_at(&order, 0, position), expected[position]);
    }
}

static void mixture_at_counts_positions_without_gaps(void **state)
{
    (void)state;
    const double weights[] = {0.5, 3.0, 1.0, 0.25, 2.0};
    ls_mixture mixture;
    assert_int_equal(ls_mixture_init(weights, 5, &mixture), LS_OK);
    uint64_t next[5] = {0};
    for (uint64_t position = 0; position < 50000; position++) {
        const ls_mixture_draw draw = ls_mixture_at(&mixture, 11, position);
        assert_true(draw.corpus < 5);
        assert_int_equal(draw.position, next[draw.corpus]);
        next[draw.corpus]++;
        /* Never more than a few draws from the exact share, at any point: depth 3, at most one per
         * level. */
        for (int i = 0; i < 5; i++) {
            assert_true(fabs((double)next[i] - weights[i] / 6.75 * (double)(position + 1)) < 3.0);
        }
    }
}

static void mixture_at_one_to_three_is_exact_in_every_block(void **state)
{
    (void)state;
    const double weights[] = {1.0, 3.0};
    ls_mixture mixture;
    assert_int_equal(ls_mixture_init(weights, 2, &mixture), LS_OK);
    for (uint64_t start = 0; start < 4000; start += 4) {
        uint64_t first = 0;
        for (uint64_t position = start; position < start + 4; position++) {
            first += ls_mixture_at(&mixture, 3, position).corpus == 0;
        }
        assert_int_equal(first, 1);
    }
}

static void mixture_at_one_corpus_is_the_identity(void **state)
{
    (void)state;
    const double weight = 0.125;
    ls_mixture mixture;
    assert_int_equal(ls_mixture_init(&weight, 1, &mixture), LS_OK);
    const uint64_t last = (UINT64_C(1) << 62) - 1;
    assert_int_equal(ls_mixture_at(&mixture, 1, last).position, last);
    assert_int_equal(ls_mixture_at(&mixture, 1, last).corpus, 0);
}

static void mixture_init_refuses_bad_weights(void **state)
{
    (void)state;
    ls_mixture mixture = {.count = 77};
    const double bad[][2] = {{1.0, 0.0}, {1.0, -1.0}, {NAN, 1.0}, {1.0, INFINITY}, {1.0, 1e-12}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_mixture_init(bad[i], 2, &mixture), LS_ERR_INVALID);
    }
    assert_int_equal(ls_mixture_init(bad[0], 0, &mixture), LS_ERR_INVALID);
    assert_int_equal(ls_mixture_init(bad[0], LS_MIXTURE_MAX + 1, &mixture), LS_ERR_INVALID);
    assert_int_equal(mixture.count, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_at_is_a_bijection),
        cmocka_unit_test(order_at_reaches_the_limits_of_its_domain),
        cmocka_unit_test(order_at_differs_by_epoch_seed_and_stream),
        cmocka_unit_test(order_at_is_uniform_over_epochs),
        cmocka_unit_test(order_at_scatters_neighbours),
        cmocka_unit_test(order_at_known_answers),
        cmocka_unit_test(mixture_at_counts_positions_without_gaps),
        cmocka_unit_test(mixture_at_one_to_three_is_exact_in_every_block),
        cmocka_unit_test(mixture_at_one_corpus_is_the_identity),
        cmocka_unit_test(mixture_init_refuses_bad_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

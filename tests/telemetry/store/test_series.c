// SPDX-License-Identifier: Apache-2.0
/* Columns of a series at random zooms, against its raw points; blocks as bytes. */
#include "test.h"

#include "telemetry/store/block.h"
#include "telemetry/store/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 60000 };

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 20) % below;
}

static double draw_value(void)
{
    const uint64_t kind = draw(500);
    return kind == 0   ? NAN
           : kind == 1 ? INFINITY
           : kind == 2 ? -INFINITY
           : kind == 3 ? 1e300
                       : (double)draw(1000000) / 1000.0 - 300.0;
}

/* Points with steps that rise evenly, unevenly, or not at all. */
static size_t make_points(ls_point *points, size_t count)
{
    uint64_t step = draw(1000);
    const uint64_t stride = 1 + draw(3);
    const bool is_even = draw(3) == 0;
    for (size_t i = 0; i < count; i++) {
        points[i] = (ls_point){.step = step, .value = draw_value(), .time_s = 1.7e9 + (double)i};
        step += is_even ? stride : draw(4);
    }
    return count;
}

static void check_columns(const ls_series *series, const ls_point *points, size_t count)
{
    const uint64_t last = points[count - 1].step;
    const uint64_t a = draw(last + 2), b = draw(last + 2), from = a < b ? a : b, to = a < b ? b : a;
    const size_t most = 1 + (size_t)draw(400);
    const uint64_t width = ls_columns_width(from, to, most);
    const size_t columns = ls_columns_count(from, to, width);
    assert_true(columns >= 1 && columns <= most);
    ls_steps_span *seen = calloc(columns, sizeof *seen), *wanted = calloc(columns, sizeof *wanted);
    assert_true(seen && wanted);
    ls_series_columns(series, from, to, width, seen);
    for (size_t i = 0; i < count; i++) {
        if (points[i].step < from || points[i].step > to) {
            continue;
        }
        ls_steps_span *w = &wanted[(points[i].step - from) / width];
        w->first_step = w->count + w->odd == 0 ? points[i].step : w->first_step;
        w->last_step = points[i].step;
        if (!isfinite(points[i].value)) {
            w->odd++;
            continue;
        }
        w->low = w->count == 0 ? points[i].value : fmin(w->low, points[i].value);
        w->high = w->count == 0 ? points[i].value : fmax(w->high, points[i].value);
        w->count++;
    }
    for (size_t i = 0; i < columns; i++) {
        assert_int_equal(seen[i].count, wanted[i].count);
        assert_int_equal(seen[i].odd, wanted[i].odd);
        assert_int_equal(seen[i].last_step, wanted[i].last_step);
        assert_true(seen[i].low == wanted[i].low && seen[i].high == wanted[i].high);
    }
    free(seen);
    free(wanted);
}

static void series_columns_have_the_extremes_of_the_raw_points(void **state)
{
    (void)state;
    ls_point *points = calloc(POINTS_MAX, sizeof *points);
    assert_non_null(points);
    for (uint64_t round = 1; round < 13; round++) {
        seed = round;
        ls_series series = {0};
        const size_t count = make_points(points, 1 + draw(round % 6 == 0 ? POINTS_MAX : 3000));
        for (size_t i = 0; i < count; i++) {
            ls_series_add(&series, &points[i]);
        }
        for (int zoom = 0; zoom < 30; zoom++) {
            check_columns(&series, points, count);
        }
        ls_series_release(&series);
    }
    free(points);
}

/* A run that is restored and goes on, again and again. */
static void series_cut_leaves_what_was_before(void **state)
{
    (void)state;
    ls_point *points = calloc(POINTS_MAX, sizeof *points);
    assert_non_null(points);
    for (uint64_t round = 100; round < 112; round++) {
        seed = round;
        ls_series series = {0};
        size_t count = 0;
        for (int start = 0; start < 6; start++) {
            const uint64_t begin = count > 0 ? points[count - 1].step : 0;
            const size_t more = 1 + draw(3000);
            for (size_t i = 0; i < more; i++) {
                points[count] = (ls_point){.step = begin + i, .value = draw_value()};
                ls_series_add(&series, &points[count++]);
            }
            check_columns(&series, points, count);
            const uint64_t kept = draw(points[count - 1].step + 10);
            size_t gone = 0;
            for (; count > 0 && points[count - 1].step > kept; count--, gone++) {
            }
            assert_int_equal(ls_series_cut(&series, kept), gone);
            assert_int_equal(series.points, count);
            if (count > 0) {
                check_columns(&series, points, count);
                assert_int_equal(series.last.step, points[count - 1].step);
            }
        }
        ls_series_release(&series);
    }
    free(points);
}

static void columns_width_keeps_to_the_limit(void **state)
{
    (void)state;
    assert_int_equal(ls_columns_width(0, 9, 10), 1);
    assert_int_equal(ls_columns_width(1, 10, 10), 1);
    assert_int_equal(ls_columns_count(1, 10, 3), 4); /* 1-3, 4-6, 7-9, 10 */
    assert_int_equal(ls_columns_width(5, 5, 1), 1);
    for (uint64_t round = 1; round < 2000; round++) {
        seed = round;
        const uint64_t from = draw(UINT64_C(1) << 40), to = from + draw(UINT64_C(1) << 40);
        const size_t most = 1 + draw(10000);
        const size_t count = ls_columns_count(from, to, ls_columns_width(from, to, most));
        assert_true(count <= most && (count >= most / 2 || to - from < most));
    }
}

static void block_keeps_every_bit(void **state)
{
    (void)state;
    for (uint64_t round = 1; round < 300; round++) {
        seed = round;
        ls_point points[LS_SERIES_BLOCK_POINTS], back[LS_SERIES_BLOCK_POINTS];
        const size_t count = make_points(points, 1 + draw(LS_SERIES_BLOCK_POINTS));
        points[count - 1].step += draw(10) == 0 ? UINT64_C(1) << 40 : 0;
        for (size_t i = 0; i < count && round % 3 == 0; i++) {
            points[i].value = (double)(float)points[i].value; /* as TensorBoard has them */
        }
        unsigned char data[LS_BLOCK_BYTES_MAX];
        const size_t bytes = ls_points_encode(points, count, data);
        assert_int_equal(ls_points_decode(data, bytes, back), count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(back[i].step, points[i].step);
            assert_true(memcmp(&back[i].value, &points[i].value, sizeof(double)) == 0 ||
                        isnan(points[i].value));
            assert_true(isnan(back[i].value) == isnan(points[i].value));
            assert_float_equal(back[i].time_s, points[i].time_s, 0.001);
        }
        assert_int_equal(ls_points_decode(data, bytes - 1, back), 0);
        data[draw(bytes)] ^= (unsigned char)(1u << draw(8));
        (void)ls_points_decode(data, bytes, back); /* anything, but nothing out of bounds */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_columns_have_the_extremes_of_the_raw_points),
        cmocka_unit_test(series_cut_leaves_what_was_before),
        cmocka_unit_test(columns_width_keeps_to_the_limit),
        cmocka_unit_test(block_keeps_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

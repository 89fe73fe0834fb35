// SPDX-License-Identifier: Apache-2.0
/* How far a run is and how long it will take, from the end of its metrics.jsonl. */
#include "test.h"

#include "orchestration/engines/local/progress.h"

#include <stdio.h>
#include <string.h>

/* Lines of steps first..last, each of step_s. */
static const char *lines(uint64_t first, uint64_t last, double step_s)
{
    static char text[65536];
    size_t bytes = 0;
    for (uint64_t step = first; step <= last; step++) {
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes,
                                  "{\"step\": %llu, \"loss\": 1.5, \"step_s\": %g}\n",
                                  (unsigned long long)step, step_s);
    }
    text[bytes] = '\0';
    return text;
}

static bool feed(ls_local_progress *p, const char *text, double now_s)
{
    return ls_local_progress_feed(p, text, strlen(text), now_s, now_s);
}

static void progress_counts_steps_at_their_own_time_at_first(void **state)
{
    (void)state;
    ls_local_progress p = {.steps = 100};
    assert_true(ls_local_progress_left_s(&p, 0.0) == 0.0);
    assert_true(feed(&p, lines(1, 10, 2.0), 1000.0));
    assert_int_equal(p.step, 10);
    assert_float_equal(ls_local_progress_left_s(&p, 1000.0), 180.0, 1e-9);
    assert_float_equal(ls_local_progress_left_s(&p, 1030.0), 150.0, 1e-9);
    assert_false(feed(&p, lines(1, 10, 2.0), 1040.0)); /* nothing new */
    /* Steps of milliseconds say nothing of what is between them. */
    ls_local_progress quick = {.steps = 100};
    assert_true(feed(&quick, lines(1, 10, 0.01), 1000.0));
    assert_true(feed(&quick, lines(1, 20, 0.01), 1000.5));
    assert_true(ls_local_progress_left_s(&quick, 1000.5) == 0.0);
    assert_true(feed(&quick, lines(1, 30, 0.01), 1001.0));
    assert_float_equal(ls_local_progress_left_s(&quick, 1001.0), 3.5, 1e-6);
    p.steps = 0;
    assert_true(ls_local_progress_left_s(&p, 1000.0) == 0.0);
}

/* Steps of 2 s, and 1 s of evaluations and checkpoints between each two. */
static void progress_counts_what_is_between_steps(void **state)
{
    (void)state;
    ls_local_progress p = {.steps = 1000};
    for (uint64_t i = 1; i <= 100; i++) {
        assert_true(feed(&p, lines(i, i, 2.0), 3.0 * (double)i));
        assert_true(p.sample_count <= LS_LOCAL_SAMPLES_MAX);
    }
    assert_float_equal(ls_local_progress_left_s(&p, 300.0), 2700.0, 1e-6);
    /* It becomes three times as slow: half of what was seen is forgotten by and by. */
    for (uint64_t i = 101; i <= 400; i++) {
        feed(&p, lines(i, i, 8.0), 300.0 + 9.0 * (double)(i - 100));
    }
    assert_float_equal(ls_local_progress_left_s(&p, 3000.0), 5400.0, 60.0);
}

static void progress_begins_anew_with_other_devices(void **state)
{
    (void)state;
    ls_local_progress p = {.steps = 100};
    feed(&p, lines(1, 10, 2.0), 20.0);
    feed(&p, lines(1, 20, 2.0), 40.0);
    ls_local_progress_restart(&p);
    assert_true(ls_local_progress_left_s(&p, 40.0) == 0.0); /* not known */
    char both[8192];                                        /* four of its new ones */
    const int bytes = snprintf(both, sizeof both, "%s", lines(1, 20, 2.0));
    snprintf(both + bytes, sizeof both - (size_t)bytes, "%s", lines(21, 24, 1.0));
    assert_true(feed(&p, both, 44.0));
    assert_float_equal(ls_local_progress_left_s(&p, 44.0), 76.0, 1e-9);
    /* Lost, and back at its checkpoint. */
    assert_true(feed(&p, lines(1, 5, 1.0), 60.0));
    assert_float_equal(ls_local_progress_left_s(&p, 60.0), 95.0, 1e-9);
}

static void progress_takes_whatever_is_in_the_file(void **state)
{
    (void)state;
    ls_local_progress p = {.steps = 10};
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "{",
                                        "{\"step\": 3",
                                        "\"step\": 2, \"loss\": 1}\n",
                                        "{\"step\": -3, \"loss\": 1}\n",
                                        "{\"step\": 1e300}\n",
                                        "\xff\xfe\n",
                                        "{\"step\": \"7\", \"loss\": 1}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_false(feed(&p, texts[i], 1.0));
    }
    /* Cut off at both ends; a step beyond the last; times that are none. */
    assert_true(feed(&p, "ss\": 1}\n{\"step\": 12, \"loss\": 1, \"step_s\": -4}\n{\"st", 5.0));
    assert_int_equal(p.step, 12);
    assert_true(ls_local_progress_left_s(&p, 5.0) == 0.0);
    /* and a clock that goes back */
    assert_true(feed(&p, "{\"step\": 13, \"loss\": 1, \"step_s\": 2}\n", 4.0));
    assert_true(ls_local_progress_left_s(&p, 4.0) > 0.0);
    /* Times that no run takes. */
    p = (ls_local_progress){.steps = 1000};
    assert_true(feed(
        &p, "{\"step\": 1, \"loss\": 1, \"step_s\": 1e308}\n{\"step\": 2, \"loss\": 1, \"step_s\": 1e308}\n",
        5.0));
    assert_true(ls_local_progress_left_s(&p, 5.0) == LS_LOCAL_LEFT_MAX_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_counts_steps_at_their_own_time_at_first),
        cmocka_unit_test(progress_counts_what_is_between_steps),
        cmocka_unit_test(progress_begins_anew_with_other_devices),
        cmocka_unit_test(progress_takes_whatever_is_in_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

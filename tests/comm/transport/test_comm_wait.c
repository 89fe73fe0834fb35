// SPDX-License-Identifier: Apache-2.0
/* Words between real processes: forked, over one anonymous shared mapping. */
#include "test.h"

#include "base/clock.h"
#include "comm/transport/wait.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct shared {
    ls_word word;
    _Atomic uint32_t abort;
} shared;

static shared *share(void)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    return s;
}

static uint64_t in_ms(uint64_t ms)
{
    return ls_clock_monotonic_ns() + ms * 1000000u;
}

static int finish(pid_t child)
{
    int state = 0;
    assert_int_equal(waitpid(child, &state, 0), child);
    return state;
}

static void wait_until_ends_at_the_deadline(void **state)
{
    (void)state;
    shared *s = share();
    const uint64_t start_ns = ls_clock_monotonic_ns();
    const ls_wait wait = {.deadline_ns = in_ms(60), .spins = 10};
    assert_int_equal(ls_wait_until(&s->word, 1, &wait), LS_WAIT_TIMEOUT);
    const uint64_t took_ns = ls_clock_monotonic_ns() - start_ns;
    assert_true(took_ns >= 60000000u && took_ns < 5000000000u);
    assert_int_equal(atomic_load(&s->word.sleepers), 0);
    munmap(s, sizeof *s);
}

static void wait_until_sees_an_abort(void **state)
{
    (void)state;
    shared *s = share();
    const pid_t child = fork();
    if (child == 0) {
        const ls_wait wait = {.deadline_ns = in_ms(20000), .abort = &s->abort};
        _exit(ls_wait_until(&s->word, 1, &wait) == LS_WAIT_ABORTED ? 0 : 1);
    }
    usleep(50000);
    atomic_store(&s->abort, 1);
    const uint64_t start_ns = ls_clock_monotonic_ns();
    ls_word_wake(&s->word);
    assert_int_equal(finish(child), 0);
    assert_true(ls_clock_monotonic_ns() - start_ns < 5000000000u);
    munmap(s, sizeof *s);
}

static bool refuse_third(void *context)
{
    int *looks = context;
    return ++*looks < 3;
}

static void wait_until_asks_the_look(void **state)
{
    (void)state;
    shared *s = share();
    int looks = 0;
    const ls_wait wait = {.look = refuse_third, .context = &looks};
    assert_int_equal(ls_wait_until(&s->word, 1, &wait), LS_WAIT_REFUSED);
    assert_int_equal(looks, 3);
    munmap(s, sizeof *s);
}

static void word_reached_survives_the_wrap(void **state)
{
    (void)state;
    ls_word word = {0};
    ls_word_post(&word, UINT32_MAX);
    assert_true(ls_word_reached(&word, UINT32_MAX));
    assert_false(ls_word_reached(&word, 0));
    assert_int_equal(ls_word_add(&word, 2), 1);
    assert_true(ls_word_reached(&word, UINT32_MAX));
    assert_false(ls_word_reached(&word, 2));
}

static void word_post_outlives_a_killed_sleeper(void **state)
{
    (void)state;
    shared *s = share();
    const pid_t child = fork();
    if (child == 0) {
        const ls_wait wait = {.deadline_ns = in_ms(20000)};
        _exit(ls_wait_until(&s->word, 1, &wait));
    }
    for (int i = 0; i < 500 && atomic_load(&s->word.sleepers) == 0; i++) {
        usleep(1000);
    }
    kill(child, SIGKILL);
    finish(child);
    ls_word_post(&s->word, 1);
    const ls_wait wait = {.deadline_ns = in_ms(1000)};
    assert_int_equal(ls_wait_until(&s->word, 1, &wait), LS_WAIT_DONE);
    munmap(s, sizeof *s);
}

static void wait_spins_only_with_a_core_each(void **state)
{
    (void)state;
    assert_int_equal(ls_wait_spins(2, 2), LS_WAIT_SPINS);
    assert_int_equal(ls_wait_spins(3, 2), 0);
    assert_true(ls_wait_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_until_ends_at_the_deadline),
        cmocka_unit_test(wait_until_sees_an_abort),
        cmocka_unit_test(wait_until_asks_the_look),
        cmocka_unit_test(word_reached_survives_the_wrap),
        cmocka_unit_test(word_post_outlives_a_killed_sleeper),
        cmocka_unit_test(wait_spins_only_with_a_core_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

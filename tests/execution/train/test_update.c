// SPDX-License-Identifier: Apache-2.0
/*
 * The update that can be broken off: a process is killed with a block half updated, another
 * finishes, and the bits are those of one plain update; the snapshot holds what was before.
 */
#include "test.h"

#include "execution/train/step_bench.h"

#include "base/random.h"
#include "execution/parallel/slices.h"
#include "execution/train/update.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLATS = 3 };

typedef struct subject {
    bench bench;
    float *flats[FLATS], *gradients, *snapshot[FLATS];
    float *want[FLATS], *before[FLATS];
    _Atomic uint64_t *done;
    ls_undo *undo;
    ls_owned_slice slices[16];
    uint32_t slice_count;
    ls_update *update;
    size_t shared_bytes;
    int blocks_until_death;
} subject;

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static float value_at(uint64_t buffer, int64_t i)
{
    return 1e-3f * (float)ls_random_below(ls_random_stream(7, LS_RANDOM_TEST), buffer, (uint64_t)i, 1000);
}

/* Padding is zero, as everywhere. */
static void fill(const subject *s, float *flat, uint64_t buffer)
{
    const ls_layout *layout = &s->bench.layout;
    for (uint32_t p = 0; p < layout->parameter_count; p++) {
        const ls_parameter *parameter = &layout->parameters[p];
        for (int64_t i = 0; i < parameter->rows * parameter->cols; i++) {
            flat[parameter->offset + i] = value_at(buffer, parameter->offset + i);
        }
    }
}

static ls_adamw adamw_of(uint64_t step)
{
    return (ls_adamw){.lr = 1e-2f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .gradient_scale = 0.5f,
                      .step = step};
}

/* Parameter by parameter, with the plain kernel. */
static void update_plainly(const subject *s, uint64_t step)
{
    const ls_layout *layout = &s->bench.layout;
    for (uint32_t p = 0; p < layout->parameter_count; p++) {
        const ls_parameter *parameter = &layout->parameters[p];
        const int64_t at = parameter->offset;
        ls_adamw adamw = adamw_of(step);
        adamw.weight_decay = parameter->decay ? adamw.weight_decay : 0.0f;
        const ls_adamw_factors factors = ls_adamw_factors_of(&adamw);
        const ls_master parameters = {.values = s->want[0] + at};
        assert_int_equal(ls_adamw_update(s->bench.queue, &factors, parameter->rows * parameter->cols,
                                         &parameters, s->gradients + at, s->want[1] + at, s->want[2] + at),
                         LS_OK);
    }
}

static void open_subject(subject *s, uint32_t ranks, uint32_t rank)
{
    *s = (subject){0};
    bench_init(&s->bench, 4, 8, 2, 1);
    const ls_layout *layout = &s->bench.layout;
    const size_t bytes = flat_bytes(&s->bench);
    for (int i = 0; i < FLATS; i++) {
        s->flats[i] = map_shared(bytes);
        s->snapshot[i] = map_shared(bytes);
        s->want[i] = map_shared(bytes);
        s->before[i] = map_shared(bytes);
        fill(s, s->flats[i], (uint64_t)i);
        memcpy(s->want[i], s->flats[i], bytes);
        memcpy(s->before[i], s->flats[i], bytes);
    }
    s->gradients = map_shared(bytes);
    fill(s, s->gradients, FLATS);
    s->done = map_shared((size_t)ls_blocks_before(layout, layout->bucket_count) * sizeof *s->done);
    s->undo = map_shared(2 * sizeof *s->undo);
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        const ls_slice slice = ls_slice_of(layout, b, ranks, rank);
        if (slice.count > 0) {
            s->slices[s->slice_count++] = (ls_owned_slice){slice.offset, slice.count, b};
        }
    }
    assert_int_equal(ls_update_create(layout, s->slices, s->slice_count, &s->update), LS_OK);
}

static void close_subject(subject *s)
{
    const size_t bytes = flat_bytes(&s->bench);
    for (int i = 0; i < FLATS; i++) {
        munmap(s->flats[i], bytes);
        munmap(s->snapshot[i], bytes);
        munmap(s->want[i], bytes);
        munmap(s->before[i], bytes);
    }
    munmap(s->gradients, bytes);
    const ls_layout *layout = &s->bench.layout;
    munmap(s->done, (size_t)ls_blocks_before(layout, layout->bucket_count) * sizeof *s->done);
    munmap(s->undo, 2 * sizeof *s->undo);
    ls_update_destroy(s->update);
    bench_release(&s->bench);
}

static void die_in_time(void *context)
{
    subject *s = context;
    if (s->blocks_until_death-- == 0) {
        kill(getpid(), SIGKILL);
    }
}

static void run_update(subject *s, ls_queue *queue, uint64_t step, bool keeps, bool dies)
{
    ls_update_options options = {.queue = queue,
                                 .target = step,
                                 .adamw = adamw_of(step),
                                 .flats = {s->flats[0], s->flats[1], s->flats[2]},
                                 .gradients = s->gradients,
                                 .record = {s->done, s->undo},
                                 .halfway = dies ? die_in_time : NULL,
                                 .context = s};
    for (int i = 0; i < FLATS && keeps; i++) {
        options.snapshot[i] = s->snapshot[i];
    }
    for (uint32_t i = 0; i < s->slice_count; i++) {
        assert_int_equal(ls_update_run(s->update, i, &options), LS_OK);
    }
}

/* A process that is killed in its n-th block. Returns whether it was; else it had fewer blocks. */
static bool run_and_die(subject *s, uint64_t step, bool keeps, int blocks)
{
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ls_queue *queue; /* a queue does not survive a fork */
        if (ls_queue_create_cpu(1, &queue) != LS_OK) {
            _exit(2);
        }
        s->blocks_until_death = blocks;
        run_update(s, queue, step, keeps, true);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* Deaths in block after block of one step, each put back twice, then the rest; the next step on
 * top, undisturbed. */
static void die_and_finish(uint32_t ranks, uint32_t rank, bool keeps)
{
    subject s;
    open_subject(&s, ranks, rank);
    const size_t bytes = flat_bytes(&s.bench);
    uint32_t deaths = 0;
    for (int blocks = 0; blocks < 3; blocks++) {
        if (run_and_die(&s, 1, keeps, blocks)) {
            deaths++;
            assert_true(ls_undo_put_back(s.undo, s.done, s.flats, s.snapshot));
            assert_false(ls_undo_put_back(s.undo, s.done, s.flats, s.snapshot));
        }
    }
    assert_true(deaths >= 1);
    run_update(&s, s.bench.queue, 1, keeps, false);
    update_plainly(&s, 1);
    for (uint32_t i = 0; i < s.slice_count; i++) {
        for (int f = 0; f < FLATS; f++) {
            const size_t count = (size_t)s.slices[i].count * sizeof(float);
            assert_memory_equal(s.flats[f] + s.slices[i].offset, s.want[f] + s.slices[i].offset, count);
            if (keeps) {
                assert_memory_equal(s.snapshot[f] + s.slices[i].offset, s.before[f] + s.slices[i].offset,
                                    count);
            }
        }
    }
    if (ranks == 1) { /* and padding is as it was */
        run_update(&s, s.bench.queue, 2, false, false);
        update_plainly(&s, 2);
        for (int f = 0; f < FLATS; f++) {
            assert_memory_equal(s.flats[f], s.want[f], bytes);
        }
    }
    assert_false(ls_undo_put_back(s.undo, s.done, s.flats, s.snapshot));
    close_subject(&s);
}

static void update_that_dies_is_finished_with_the_bits_of_one(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            die_and_finish(ranks, rank, false);
            die_and_finish(ranks, rank, true);
        }
    }
}

/* Without a record and without a snapshot it is the plain update; done again it would be
 * another. */
static void update_without_a_record_is_plain(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, 1, 0);
    ls_update_options options = {.queue = s.bench.queue,
                                 .target = 1,
                                 .adamw = adamw_of(1),
                                 .flats = {s.flats[0], s.flats[1], s.flats[2]},
                                 .gradients = s.gradients};
    for (uint32_t i = 0; i < s.slice_count; i++) {
        assert_int_equal(ls_update_run(s.update, i, &options), LS_OK);
    }
    update_plainly(&s, 1);
    assert_memory_equal(s.flats[0], s.want[0], flat_bytes(&s.bench));
    close_subject(&s);
}

/* A whole step of one process, kept: the snapshot is the state before it. */
static void stepper_keeps_the_state_before_a_step(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, 1, 0);
    ls_step_result result;
    ls_state *st = &s.bench.state;
    const size_t bytes = flat_bytes(&s.bench);
    assert_int_equal(ls_stepper_run(s.bench.stepper, 0, 1e-2, &result), LS_OK);
    memcpy(s.want[0], st->parameters, bytes);
    memcpy(s.want[1], st->m, bytes);
    memcpy(s.want[2], st->v, bytes);
    ls_stepper_keep(s.bench.stepper, s.snapshot);
    for (uint64_t step = 1; step < 3; step++) { /* the second does not touch it */
        assert_int_equal(ls_stepper_run(s.bench.stepper, step, 1e-2, &result), LS_OK);
        for (int f = 0; f < FLATS; f++) {
            assert_memory_equal(s.snapshot[f], s.want[f], bytes);
        }
    }
    assert_memory_not_equal(s.snapshot[0], st->parameters, bytes);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_that_dies_is_finished_with_the_bits_of_one),
        cmocka_unit_test(update_without_a_record_is_plain),
        cmocka_unit_test(stepper_keeps_the_state_before_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

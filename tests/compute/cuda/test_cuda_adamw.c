// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW on a GPU: both forms of the parameters give the bits of the processor.
 */
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/adamw.h"

/* Parameters, gradients and moments of one update on the host. */
typedef struct update_state {
    int64_t count;
    float *p, *g, *m, *v;
} update_state;

static float *floats_random(uint64_t seed, int64_t count, double scale)
{
    float *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)(scale * cuda_uniform(seed, (uint64_t)i));
    }
    return x;
}

/* Some second moments and gradients are zero. */
static update_state state_random(int64_t count)
{
    update_state s = {.count = count,
                      .p = floats_random(1, count, 0.1),
                      .g = floats_random(2, count, 30.0),
                      .m = floats_random(3, count, 0.1),
                      .v = floats_random(4, count, 0.1)};
    for (int64_t i = 0; i < count; i++) {
        s.v[i] *= i % 5 == 0 ? 0.0f : s.v[i];
        s.g[i] *= i % 7 == 0 ? 0.0f : 1.0f;
    }
    return s;
}

static void state_free(update_state *s)
{
    free(s->p);
    free(s->g);
    free(s->m);
    free(s->v);
}

/* One update on the processor. */
static void host_update(const ls_adamw_factors *f, update_state *s)
{
    static ls_queue *queue;
    if (!queue) {
        CUDA_OK(ls_queue_create_cpu(1, &queue));
    }
    const ls_master parameters = {.values = s->p};
    CUDA_OK(ls_adamw_update(queue, f, s->count, &parameters, s->g, s->m, s->v));
}

static void *device_copy(const void *from, size_t bytes, size_t offset_bytes)
{
    void *memory;
    CUDA_OK(ls_device_alloc(cuda_queue(), bytes + offset_bytes + 1, &memory));
    CUDA_OK(ls_queue_move(cuda_queue(), (char *)memory + offset_bytes, from, bytes));
    CUDA_OK(ls_queue_wait(cuda_queue()));
    return memory;
}

/* Brings `bytes` back and frees the memory. */
static void device_take(void *to, void *memory, size_t bytes, size_t offset_bytes)
{
    CUDA_OK(ls_queue_move(cuda_queue(), to, (char *)memory + offset_bytes, bytes));
    CUDA_OK(ls_queue_wait(cuda_queue()));
    ls_device_free(cuda_queue(), memory, bytes + offset_bytes + 1);
}

/* One update on the device, of buffers that begin `offset` elements into their memory. */
static void device_update(const ls_adamw_factors *f, update_state *s, int64_t offset, bool split)
{
    const size_t count = (size_t)s->count, floats = count * 4, halves = count * 2, at = (size_t)offset;
    uint16_t *weights = malloc(halves + 1);
    int16_t *rests = malloc(halves + 1);
    for (size_t i = 0; i < count; i++) {
        ls_master_split(s->p[i], &weights[i], &rests[i]);
    }
    void *p = device_copy(s->p, floats, at * 4), *g = device_copy(s->g, floats, at * 4);
    void *m = device_copy(s->m, floats, at * 4), *v = device_copy(s->v, floats, at * 4);
    void *w = device_copy(weights, halves, at * 2), *r = device_copy(rests, halves, at * 2);
    const ls_master whole = split ? (ls_master){.weights = w, .rests = r} : (ls_master){.values = p};
    const ls_master from = ls_master_from(whole, offset);
    CUDA_OK(
        ls_adamw_update(cuda_queue(), f, s->count, &from, (float *)g + at, (float *)m + at, (float *)v + at));
    device_take(s->p, p, floats, at * 4);
    device_take(s->g, g, floats, at * 4);
    device_take(s->m, m, floats, at * 4);
    device_take(s->v, v, floats, at * 4);
    device_take(weights, w, halves, at * 2);
    device_take(rests, r, halves, at * 2);
    for (size_t i = 0; split && i < count; i++) {
        s->p[i] = ls_master_join(weights[i], rests[i]);
        uint16_t weight;
        int16_t rest;
        ls_master_split(s->p[i], &weight, &rest);
        assert_int_equal(weights[i], weight);
        assert_int_equal(rests[i], rest);
    }
    free(weights);
    free(rests);
}

static void assert_same(const update_state *a, const update_state *b)
{
    const size_t bytes = (size_t)a->count * sizeof(float);
    assert_memory_equal(a->p, b->p, bytes);
    assert_memory_equal(a->g, b->g, bytes);
    assert_memory_equal(a->m, b->m, bytes);
    assert_memory_equal(a->v, b->v, bytes);
}

static update_state state_copy(const update_state *from)
{
    update_state s = state_random(from->count);
    const size_t bytes = (size_t)from->count * sizeof(float);
    memcpy(s.p, from->p, bytes);
    memcpy(s.g, from->g, bytes);
    memcpy(s.m, from->m, bytes);
    memcpy(s.v, from->v, bytes);
    return s;
}

static void adamw_both_forms_have_the_bits_of_the_processor(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 3, 4, 5, 2047, 2048, 2053, 10007};
    const ls_adamw adamw = {.lr = 3e-4f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .gradient_scale = 1.0f / 30.0f,
                            .step = 3};
    const ls_adamw_factors factors = ls_adamw_factors_of(&adamw);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (int64_t offset = 0; offset < 2; offset++) {
            update_state wanted = state_random(counts[k]);
            update_state values = state_copy(&wanted), split = state_copy(&wanted);
            host_update(&factors, &wanted);
            device_update(&factors, &values, offset, false);
            device_update(&factors, &split, offset, true);
            assert_same(&wanted, &values);
            assert_same(&wanted, &split);
            state_free(&wanted);
            state_free(&values);
            state_free(&split);
        }
    }
}

/* The split form loses nothing at all, also where the upper half is rounded up. */
static void adamw_without_a_change_keeps_every_bit(void **state)
{
    (void)state;
    const ls_adamw_factors factors = {.beta1 = 0.9f,
                                      .beta2 = 0.9f,
                                      .eps = 1.0f,
                                      .inverse_root_v = 1.0f,
                                      .step_size = 0.0f,
                                      .one_minus_decay = 1.0f};
    update_state s = state_random(5000);
    for (int64_t i = 0; i < s.count; i++) {
        uint32_t bits = (uint32_t)cuda_between(5, (uint64_t)i, 0, UINT32_MAX);
        bits = i % 3 == 0 ? (bits & 0xffff0000u) | 0x8000u : bits;
        bits = (bits & 0x7f800000u) == 0x7f800000u ? bits ^ 0x40000000u : bits;
        memcpy(&s.p[i], &bits, sizeof bits);
    }
    update_state before = state_copy(&s);
    device_update(&factors, &s, 0, true);
    assert_memory_equal(s.p, before.p, (size_t)s.count * sizeof(float));
    state_free(&s);
    state_free(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_both_forms_have_the_bits_of_the_processor),
        cmocka_unit_test(adamw_without_a_change_keeps_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of compute/cuda/device/hopper.h, one by one: what a card does against what the
 * header says. A wrong function prints the first wrong elements, and a wrong product also what it
 * read where. Needs compute capability 9.0.
 */
#include "compute/cuda/device/hopper_check_sm90.h"
#include "compute/cuda/queue_cuda.h"
#include "compute/cuda/tensor_map.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEPTH = 128, SHOWN = 8 };

static ls_queue *queue;

static void *to_device(const void *bytes, size_t count)
{
    void *memory = NULL;
    assert_int_equal(ls_device_alloc(queue, count, &memory), LS_OK);
    if (bytes) {
        assert_int_equal(ls_queue_move(queue, memory, bytes, count), LS_OK);
        assert_int_equal(ls_queue_wait(queue), LS_OK);
    }
    return memory;
}

static void from_device(void *bytes, const void *memory, size_t count)
{
    assert_int_equal(ls_queue_move(queue, bytes, memory, count), LS_OK);
    const ls_status status = ls_queue_wait(queue);
    if (status != LS_OK) {
        print_error("the kernel failed: %s\n", ls_error_text());
    }
    assert_int_equal(status, LS_OK);
}

static void launch(const char *name, uint32_t threads, uint32_t shared_bytes, const void *arguments)
{
    const ls_cuda_kernel kernel = {.file = "hopper_check_sm90", .name = name};
    const ls_cuda_grid grid = {.x = 1, .threads = threads, .shared_bytes = shared_bytes};
    const ls_status status = ls_cuda_launch(ls_cuda_of(queue), kernel, grid, arguments);
    if (status != LS_OK) {
        print_error("%s: %s\n", name, ls_error_text());
    }
    assert_int_equal(status, LS_OK);
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float float_of(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % limit;
}

/* Compares, prints the first wrong ones, and says how many are wrong. */
static int wrong_count(const char *name, const float *got, const float *expected, int rows, int columns)
{
    int wrong = 0;
    for (int i = 0; i < rows * columns; i++) {
        if (!(got[i] == expected[i]) && wrong++ < SHOWN) {
            print_error("%s: (%d, %d) is %g, expected %g\n", name, i / columns, i % columns, (double)got[i],
                        (double)expected[i]);
        }
    }
    if (wrong) {
        print_error("%s: %d of %d elements are wrong\n", name, wrong, rows * columns);
    } else {
        print_message("%s: right\n", name);
    }
    return wrong;
}

/* ---- products ---- */

typedef struct product_case {
    const char *kernel;
    int columns;
    bool rows_are_k;
} product_case;

static const product_case products[] = {
    {"hopper_product_shared_64_n", 64, false},    {"hopper_product_shared_128_n", 128, false},
    {"hopper_product_shared_64_k", 64, true},     {"hopper_product_shared_128_k", 128, true},
    {"hopper_product_registers_64_n", 64, false}, {"hopper_product_registers_128_n", 128, false},
    {"hopper_product_registers_64_k", 64, true},  {"hopper_product_registers_128_k", 128, true},
};

/* a (64, DEPTH) and b, as (columns, DEPTH) in `b_of_n`. */
typedef struct product_data {
    float a[64][DEPTH], b_of_n[128][DEPTH];
} product_data;

static void product_run(const product_case *c, const product_data *data, float *d)
{
    uint16_t *a = calloc(64 * DEPTH, sizeof *a), *b = calloc((size_t)c->columns * DEPTH, sizeof *b);
    for (int i = 0; i < 64 * DEPTH; i++) {
        a[i] = bf16_of(data->a[i / DEPTH][i % DEPTH]);
    }
    for (int n = 0; n < c->columns; n++) {
        for (int k = 0; k < DEPTH; k++) {
            b[c->rows_are_k ? k * c->columns + n : n * DEPTH + k] = bf16_of(data->b_of_n[n][k]);
        }
    }
    const size_t d_bytes = (size_t)c->columns * 64 * sizeof *d;
    const ls_hopper_check_product arguments = {.a = to_device(a, 64 * DEPTH * sizeof *a),
                                               .b = to_device(b, (size_t)c->columns * DEPTH * sizeof *b),
                                               .d = to_device(NULL, d_bytes)};
    launch(c->kernel, 128, (uint32_t)(64 + c->columns) * DEPTH * 2, &arguments);
    from_device(d, arguments.d, d_bytes);
    ls_device_free(queue, (void *)arguments.a, 64 * DEPTH * sizeof *a);
    ls_device_free(queue, (void *)arguments.b, (size_t)c->columns * DEPTH * sizeof *b);
    ls_device_free(queue, arguments.d, d_bytes);
    free(a);
    free(b);
}

/* Which (n, k) of B the product reads as k = m, and which (m, k) of A as k = n: ones on a
 * diagonal. */
static void product_probe(const product_case *c)
{
    static product_data data;
    static float d[64 * 128];
    static const char *const what[] = {"the n of B", "the k of B", "the m of A", "the k of A"};
    for (int probe = 0; probe < 4; probe++) {
        for (int k = 0; k < DEPTH; k++) {
            for (int m = 0; m < 64; m++) {
                data.a[m][k] = probe < 2 ? (float)(m == k) : probe == 2 ? (float)m : (float)k;
            }
            for (int n = 0; n < 128; n++) {
                data.b_of_n[n][k] = probe >= 2 ? (float)(n == k) : probe == 0 ? (float)n : (float)k;
            }
        }
        product_run(c, &data, d);
        print_error("  %s read at (m; n = 0 1 2 3 8 16 32 63):", what[probe]);
        for (int m = 0; m < 64; m += m < 2 ? 1 : m < 16 ? 7 : 16) {
            print_error("  m %d:", m);
            for (int i = 0; i < 8; i++) {
                static const int at[] = {0, 1, 2, 3, 8, 16, 32, 63};
                print_error(" %g", (double)d[m * c->columns + at[i]]);
            }
        }
        print_error("\n");
    }
}

static int product_check(const product_case *c)
{
    static product_data data;
    static float got[64 * 128], expected[64 * 128];
    for (int k = 0; k < DEPTH; k++) {
        for (int m = 0; m < 64; m++) {
            data.a[m][k] = (float)random_below(33) / 8.0f - 2.0f;
        }
        for (int n = 0; n < 128; n++) {
            data.b_of_n[n][k] = (float)random_below(33) / 8.0f - 2.0f;
        }
    }
    for (int m = 0; m < 64; m++) {
        for (int n = 0; n < c->columns; n++) {
            float sum = 0.0f; /* exact: multiples of 1/64 below 512 */
            for (int k = 0; k < DEPTH; k++) {
                sum += data.a[m][k] * data.b_of_n[n][k];
            }
            expected[m * c->columns + n] = sum;
        }
    }
    product_run(c, &data, got);
    const int wrong = wrong_count(c->kernel, got, expected, 64, c->columns);
    if (wrong) {
        product_probe(c);
    }
    return wrong;
}

static void wgmma_multiplies_every_kind_of_operand(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        wrong += product_check(&products[i]);
    }
    assert_int_equal(wrong, 0);
}

/* ---- copies ---- */

/* A fused buffer: `rows` rows of 3 heads of 128 columns, and 16 columns more. */
enum { ROWS = 100, HEADS = 3, HEAD_DIM = 128, STRIDE = HEADS * HEAD_DIM + 16, SEQUENCES = 2, BOX_ROWS = 64 };

typedef struct copy_case {
    const char *kernel;
    uint32_t rank;
    int x, y, z, w;
} copy_case;

static const copy_case copies[] = {
    {"hopper_copy_2d", 2, 64, 32, 0, 0}, {"hopper_copy_2d", 2, 320, 160, 0, 0},
    {"hopper_copy_3d", 3, 64, 64, 1, 0}, {"hopper_copy_3d", 3, 0, 0, 2, 0},
    {"hopper_copy_4d", 4, 0, 0, 0, 0},   {"hopper_copy_4d", 4, 64, 64, 1, 1},
    {"hopper_copy_4d", 4, 64, 96, 2, 0},
};

static ls_tensor_box copy_box(void *data, uint32_t rank)
{
    const uint64_t all = ROWS * SEQUENCES;
    if (rank == 2) {
        return (ls_tensor_box){.data = data,
                               .rank = 2,
                               .dims = {HEADS * HEAD_DIM, all},
                               .strides = {1, STRIDE},
                               .box = {64, BOX_ROWS}};
    }
    if (rank == 3) {
        return (ls_tensor_box){.data = data,
                               .rank = 3,
                               .dims = {HEAD_DIM, all, HEADS},
                               .strides = {1, STRIDE, HEAD_DIM},
                               .box = {64, BOX_ROWS, 1}};
    }
    return (ls_tensor_box){.data = data,
                           .rank = 4,
                           .dims = {HEAD_DIM, ROWS, HEADS, SEQUENCES},
                           .strides = {1, STRIDE, HEAD_DIM, (uint64_t)ROWS * STRIDE},
                           .box = {64, BOX_ROWS, 1, 1}};
}

static int copy_check(const copy_case *c)
{
    enum { COUNT = ROWS * SEQUENCES * STRIDE };
    static uint16_t source[COUNT], got[BOX_ROWS * 64];
    static float got_floats[BOX_ROWS * 64], expected[BOX_ROWS * 64];
    for (int i = 0; i < COUNT; i++) {
        source[i] = bf16_of((float)(1 + random_below(255)));
    }
    void *data = to_device(source, sizeof source);
    const ls_tensor_box box = copy_box(data, c->rank);
    ls_hopper_check_copy arguments = {
        .x = c->x, .y = c->y, .z = c->z, .w = c->w, .rows = BOX_ROWS, .out = to_device(NULL, sizeof got)};
    assert_int_equal(ls_cuda_tensor_map(ls_cuda_of(queue), &box, &arguments.map), LS_OK);
    launch(c->kernel, 128, 256 * 128 + 64, &arguments);
    from_device(got, arguments.out, sizeof got);
    for (int i = 0; i < BOX_ROWS * 64; i++) {
        const uint64_t at[4] = {(uint64_t)c->x + (uint64_t)i % 64, (uint64_t)c->y + (uint64_t)i / 64,
                                (uint64_t)c->z, (uint64_t)c->w};
        uint64_t place = 0;
        bool inside = true;
        for (uint32_t k = 0; k < c->rank; k++) {
            inside = inside && at[k] < box.dims[k];
            place += at[k] * box.strides[k];
        }
        expected[i] = inside ? float_of(source[place]) : 0.0f;
        got_floats[i] = float_of(got[i]);
    }
    const int wrong = wrong_count(c->kernel, got_floats, expected, BOX_ROWS, 64);
    ls_device_free(queue, data, sizeof source);
    ls_device_free(queue, arguments.out, sizeof got);
    return wrong;
}

static int copy_check_bulk(void)
{
    float source[192], got[192];
    for (int i = 0; i < 192; i++) {
        source[i] = (float)i;
    }
    ls_hopper_check_copy arguments = {
        .rows = 192, .from = to_device(source, sizeof source), .floats_out = to_device(NULL, sizeof got)};
    launch("hopper_copy_bulk", 128, 256 * 128 + 64, &arguments);
    from_device(got, arguments.floats_out, sizeof got);
    ls_device_free(queue, (void *)arguments.from, sizeof source);
    ls_device_free(queue, arguments.floats_out, sizeof got);
    return wrong_count("hopper_copy_bulk", got, source, 1, 192);
}

static void tma_copies_boxes_and_fills_with_zeros(void **state)
{
    (void)state;
    int wrong = copy_check_bulk();
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        wrong += copy_check(&copies[i]);
    }
    assert_int_equal(wrong, 0);
}

/* ---- barriers and quotas ---- */

static int threads_check(const char *kernel, uint32_t threads, int rounds, const float *in,
                         const float *expected, float tolerance, int count)
{
    float got[384];
    const size_t in_bytes = 384 * sizeof(float);
    const ls_hopper_check_threads arguments = {
        .in = to_device(in, in_bytes), .out = to_device(NULL, sizeof got), .rounds = rounds};
    launch(kernel, threads, 2048, &arguments);
    from_device(got, arguments.out, sizeof got);
    ls_device_free(queue, (void *)arguments.in, in_bytes);
    ls_device_free(queue, arguments.out, sizeof got);
    for (int i = 0; i < count; i++) {
        got[i] = fabsf(got[i] - expected[i]) <= tolerance * fabsf(expected[i]) ? expected[i] : got[i];
    }
    return wrong_count(kernel, got, expected, 1, count);
}

static void mbarriers_pass_slots_between_warps(void **state)
{
    (void)state;
    float in[384], expected[384] = {0};
    for (int i = 0; i < 384; i++) {
        in[i] = (float)random_below(1000);
    }
    for (int i = 0; i < 128; i++) {
        for (int r = 0; r < 12; r++) {
            expected[i] += in[r * 32 + i % 32];
        }
    }
    assert_int_equal(threads_check("hopper_mbarrier", 128, 12, in, expected, 0.0f, 128), 0);
}

static void named_barriers_make_groups_take_turns(void **state)
{
    (void)state;
    float in[384], expected[384] = {0}, value = 1.0f;
    for (int i = 0; i < 384; i++) {
        in[i] = (float)random_below(2);
    }
    for (int turn = 0; turn < 16; turn++) {
        value = value * 2.0f + in[turn];
        expected[turn % 2] = value;
    }
    assert_int_equal(threads_check("hopper_named_barrier", 256, 8, in, expected, 0.0f, 2), 0);
}

static void register_quotas_and_exp2_work(void **state)
{
    (void)state;
    float in[384], expected[384];
    for (int i = 0; i < 384; i++) {
        in[i] = (float)random_below(4000) / 64.0f - 50.0f;
        expected[i] = exp2f(in[i]);
    }
    in[0] = -INFINITY;
    expected[0] = 0.0f;
    assert_int_equal(threads_check("hopper_registers", 384, 0, in, expected, 1e-6f, 384), 0);
}

int main(void)
{
    const ls_cuda_options options = {0};
    if (ls_queue_create_cuda(&options, &queue) != LS_OK) {
        print_message("skipped: %s\n", ls_error_text());
        return 77;
    }
    if (ls_cuda_of(queue)->capability != 90) {
        print_message("skipped: %s has capability %d\n", ls_queue_device_name(queue),
                      ls_cuda_of(queue)->capability);
        ls_queue_destroy(queue);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wgmma_multiplies_every_kind_of_operand),
        cmocka_unit_test(tma_copies_boxes_and_fills_with_zeros),
        cmocka_unit_test(mbarriers_pass_slots_between_warps),
        cmocka_unit_test(named_barriers_make_groups_take_turns),
        cmocka_unit_test(register_quotas_and_exp2_work),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ls_queue_destroy(queue);
    return failed;
}

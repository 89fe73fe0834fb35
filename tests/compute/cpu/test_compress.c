// SPDX-License-Identifier: Apache-2.0
/*
 * Packed sums on all instruction sets and thread counts against plain C: which numbers are kept,
 * what unpacking gives, and what is left for the next sum.
 */
#include "compute/cpu/checkasm.h"

#include "base/half.h"
#include "compute/kernels/compress.h"

enum { TERMS = 2 };

static const ls_compression KINDS[] = {
    {.kind = LS_COMPRESSION_NONE},
    {.kind = LS_COMPRESSION_BF16},
    {.kind = LS_COMPRESSION_INT8},
    {.kind = LS_COMPRESSION_INT4},
    {.kind = LS_COMPRESSION_TOPK, .keep = 5},
    {.kind = LS_COMPRESSION_TOPK, .keep = 41},
    {.kind = LS_COMPRESSION_TOPK, .keep = 410},
    {.kind = LS_COMPRESSION_TOPK, .keep = 2048},
};
enum { KIND_COUNT = sizeof KINDS / sizeof KINDS[0] };

/* Two terms of two buffers each, packed, added up and packed again. */
typedef struct sum_case {
    ls_compression compression;
    int64_t count;
    ck_tensor in[2 * TERMS], residual[TERMS + 1];
    ck_tensor out, squares, rest[TERMS + 1], packed[TERMS + 1];
} sum_case;

static sum_case make_case(ls_compression compression, int64_t count, uint64_t seed)
{
    sum_case c = {.compression = compression, .count = count};
    const int64_t words = (int64_t)(ls_compressed_bytes(&compression, (uint64_t)count) / sizeof(float));
    for (uint32_t i = 0; i < 2 * TERMS; i++) {
        c.in[i] = ck_make(1, count, 0, seed * 100 + i, i == 1 ? 30.0 : 1.0);
    }
    for (uint32_t i = 0; i <= TERMS; i++) {
        c.residual[i] = ck_make(1, count, 0, seed * 100 + 50 + i, 0.1);
        c.rest[i] = ck_make(1, count, 0, 1, 0.0);
        c.packed[i] = ck_make(1, words, 0, 1, 0.0);
    }
    c.out = ck_make(1, count, 0, 1, 0.0);
    c.squares = ck_make(1, 2 * ((count + 4095) / 4096), 0, 1, 0.0);
    return c;
}

static void free_case(sum_case *c)
{
    for (uint32_t i = 0; i < 2 * TERMS; i++) {
        ck_free(&c->in[i]);
    }
    for (uint32_t i = 0; i <= TERMS; i++) {
        ck_free(&c->residual[i]);
        ck_free(&c->rest[i]);
        ck_free(&c->packed[i]);
    }
    ck_free(&c->out);
    ck_free(&c->squares);
}

static const uint16_t PAIR[] = {0, 1, LS_TREE_SUM_ADD};
static const ls_tree_sum TWO = {.program = PAIR, .length = 3, .depth = 2, .input_count = 2};

static void run_sum(ls_queue *queue, void *context)
{
    sum_case *c = context;
    const float *inputs[TERMS][2];
    ls_compressed_term terms[TERMS + 1];
    for (uint32_t i = 0; i <= TERMS; i++) {
        terms[i] = (ls_compressed_term){.residual = c->residual[i].t.data,
                                        .residual_out = c->rest[i].t.data,
                                        .packed_out = c->packed[i].t.data};
        for (uint32_t k = 0; k < 2 && i < TERMS; k++) {
            inputs[i][k] = c->in[2 * i + k].t.data;
        }
        terms[i].sum = i < TERMS ? &TWO : NULL;
        terms[i].inputs = i < TERMS ? inputs[i] : NULL;
    }
    const ls_compressed_sum sum = {.compression = c->compression,
                                   .terms = terms,
                                   .order = &TWO,
                                   .again = c->compression,
                                   .whole = &terms[TERMS]};
    assert_int_equal(
        ls_compressed_sum_run(queue, &sum, c->count, c->out.t.data, (double *)(void *)c->squares.t.data),
        LS_OK);
}

/* ---- the definition, one block at a time ---- */

static const float *magnitudes; /* for the comparison */

static int by_magnitude(const void *a, const void *b)
{
    const uint16_t i = *(const uint16_t *)a, j = *(const uint16_t *)b;
    const float x = fabsf(magnitudes[i]), y = fabsf(magnitudes[j]);
    return x != y ? (x < y) - (x > y) : (int)i - (int)j;
}

static void plain_topk(uint32_t kept, const float *x, uint32_t count, float *y)
{
    uint16_t order[LS_COMPRESSION_BLOCK];
    for (uint32_t i = 0; i < count; i++) {
        order[i] = (uint16_t)i;
        y[i] = 0.0f;
    }
    magnitudes = x;
    qsort(order, count, sizeof *order, by_magnitude);
    for (uint32_t j = 0; j < kept; j++) {
        y[order[j]] = ls_f32_from_bf16(ls_bf16_from_f32(x[order[j]]));
    }
}

static void plain_scaled(const float *x, uint32_t count, uint32_t block, float levels, float *y)
{
    for (uint32_t at = 0; at < count; at += block) {
        float top = 0.0f;
        for (uint32_t i = at; i < count && i < at + block; i++) {
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        }
        for (uint32_t i = at; i < count && i < at + block; i++) {
            y[i] = top > 0.0f ? (float)(int)rintf(x[i] * (levels / top)) * (top / levels) : 0.0f;
        }
    }
}

static void plain_pack(const ls_compression *c, const float *x, uint32_t count, float *y)
{
    switch (c->kind) {
    case LS_COMPRESSION_INT8:
        plain_scaled(x, count, LS_INT8_BLOCK, 127.0f, y);
        break;
    case LS_COMPRESSION_INT4:
        plain_scaled(x, count, LS_INT4_BLOCK, 7.0f, y);
        break;
    case LS_COMPRESSION_TOPK:
        plain_topk(ls_compression_kept(c, count), x, count, y);
        break;
    default:
        for (uint32_t i = 0; i < count; i++) {
            y[i] = c->kind == LS_COMPRESSION_NONE ? x[i] : ls_f32_from_bf16(ls_bf16_from_f32(x[i]));
        }
    }
}

/* x becomes what the other end sees; checks the residual and the packed form. */
static void check_term(const sum_case *c, uint32_t index, int64_t at, uint32_t count, float *x)
{
    float y[LS_COMPRESSION_BLOCK], unpacked[LS_COMPRESSION_BLOCK];
    const uint64_t before = ls_compressed_bytes(&c->compression, (uint64_t)at);
    plain_pack(&c->compression, x, count, y);
    ls_decompress(ck_queue(0, 1), &c->compression, (const unsigned char *)c->packed[index].t.data + before,
                  count, unpacked, false);
    assert_memory_equal(unpacked, y, count * sizeof *y);
    for (uint32_t i = 0; i < count; i++) {
        const float rest = x[i] - y[i], found = ck_at(&c->rest[index], 0, at + i);
        assert_true(rest == found);
    }
    memcpy(x, y, count * sizeof *x);
}

static void check_block(const sum_case *c, int64_t at, uint32_t count)
{
    float y[LS_COMPRESSION_BLOCK] = {0}, x[LS_COMPRESSION_BLOCK];
    for (uint32_t term = 0; term < TERMS; term++) {
        for (uint32_t i = 0; i < count; i++) {
            x[i] = ck_at(&c->in[2 * term], 0, at + i) + ck_at(&c->in[2 * term + 1], 0, at + i);
            x[i] = x[i] + ck_at(&c->residual[term], 0, at + i);
        }
        check_term(c, term, at, count, x);
        for (uint32_t i = 0; i < count; i++) {
            y[i] = term == 0 ? x[i] : y[i] + x[i];
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        y[i] = y[i] + ck_at(&c->residual[TERMS], 0, at + i);
    }
    check_term(c, TERMS, at, count, y);
    double squares = 0.0, found;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(ck_at(&c->out, 0, at + i) == y[i]);
        squares += (double)y[i] * y[i];
    }
    memcpy(&found, (const float *)c->squares.t.data + 2 * (at / LS_COMPRESSION_BLOCK), sizeof found);
    assert_true(fabs(found - squares) <= 1e-13 * squares);
}

static void compressed_sum_keeps_what_it_loses(void **state)
{
    (void)state;
    const int64_t counts[] = {4096, 3 * 4096 + 1024, 2048, 4099};
    for (uint32_t k = 0; k < KIND_COUNT; k++) {
        for (uint32_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            sum_case c = make_case(KINDS[k], counts[n], 10 * k + n);
            ck_same_bits(run_sum, &c,
                         (ck_tensor *[]){&c.out, &c.squares, &c.rest[0], &c.rest[1], &c.rest[2], &c.packed[0],
                                         &c.packed[1], &c.packed[2]},
                         8, "compressed sum");
            for (int64_t at = 0; at < c.count; at += LS_COMPRESSION_BLOCK) {
                const int64_t left = c.count - at;
                check_block(&c, at, (uint32_t)(left < LS_COMPRESSION_BLOCK ? left : LS_COMPRESSION_BLOCK));
            }
            free_case(&c);
        }
    }
}

/* A term that was packed elsewhere counts like one that is packed here. */
static void compressed_sum_takes_packed_terms(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KIND_COUNT; k++) {
        sum_case c = make_case(KINDS[k], 2 * 4096 + 1024, 70 + k);
        run_sum(ck_queue(0, 2), &c);
        float *again = malloc((size_t)c.count * sizeof *again);
        const ls_compressed_term terms[] = {{.packed = c.packed[0].t.data}, {.packed = c.packed[1].t.data}};
        const ls_compressed_term whole = {.residual = c.residual[TERMS].t.data};
        const ls_compressed_sum sum = {
            .compression = KINDS[k], .terms = terms, .order = &TWO, .again = KINDS[k], .whole = &whole};
        assert_int_equal(ls_compressed_sum_run(ck_queue(0, 3), &sum, c.count, again, NULL), LS_OK);
        assert_memory_equal(again, c.out.t.data, (size_t)c.count * sizeof *again);
        free(again);
        free_case(&c);
    }
}

/* One buffer without a residual, packed once. */
static void pack_once(const ls_compression *compression, float *x, int64_t count, float *out)
{
    static const uint16_t ONE[] = {0};
    const ls_tree_sum one = {.program = ONE, .length = 1, .depth = 1, .input_count = 1};
    const float *inputs[] = {x};
    const ls_compressed_term term = {.sum = &one, .inputs = inputs};
    const ls_compressed_sum sum = {.compression = *compression, .terms = &term, .order = &one};
    assert_int_equal(ls_compressed_sum_run(ck_queue(0, 1), &sum, count, out, NULL), LS_OK);
}

static void topk_takes_the_lowest_of_equal_numbers(void **state)
{
    (void)state;
    const ls_compression compression = {.kind = LS_COMPRESSION_TOPK, .keep = 41};
    float x[4096], out[4096];
    for (int i = 0; i < 4096; i++) {
        x[i] = i == 4000 ? 9.0f : i % 2 == 0 ? -2.0f : 1.0f;
    }
    pack_once(&compression, x, 4096, out);
    for (int i = 0; i < 4096; i++) {
        assert_true(out[i] == (i == 4000 ? 9.0f : i < 80 && i % 2 == 0 ? -2.0f : 0.0f));
    }
    memset(x, 0, sizeof x);
    pack_once(&compression, x, 4096, out);
    assert_memory_equal(out, x, sizeof x);
}

/* In the first step every number is divided by its own magnitude. */
static void compressed_sum_normalises_terms(void **state)
{
    (void)state;
    static const uint16_t ONE[] = {0};
    const ls_tree_sum one = {.program = ONE, .length = 1, .depth = 1, .input_count = 1};
    const ls_adamw adamw = {
        .lr = -1.0f, .beta1 = 0.5f, .beta2 = 0.75f, .eps = 1e-8f, .gradient_scale = 1.0f, .step = 1};
    const ls_adamw_factors normal = ls_adamw_factors_of(&adamw);
    float x[300], old[300], moments[2][300] = {{0}}, again[2][300], out[300];
    const float *inputs[] = {x};
    ls_compressed_term term = {.sum = &one,
                               .inputs = inputs,
                               .moments = {moments[0], moments[1]},
                               .moments_out = {again[0], again[1]}};
    const ls_compressed_sum sum = {
        .compression = {.kind = LS_COMPRESSION_NONE}, .normal = &normal, .terms = &term, .order = &one};
    for (int i = 0; i < 300; i++) {
        x[i] = old[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 4.0f : -8.0f;
    }
    assert_int_equal(ls_compressed_sum_run(ck_queue(0, 1), &sum, 300, out, NULL), LS_OK);
    for (int i = 0; i < 300; i++) {
        assert_float_equal(out[i], (i % 3 == 0 ? 0.0f : i % 3 == 1 ? 1.0f : -1.0f), 1e-6f);
        assert_true(again[0][i] == 0.5f * old[i] && again[1][i] == 0.25f * old[i] * old[i]);
        assert_true(moments[0][i] == 0.0f && moments[1][i] == 0.0f && x[i] == old[i]);
    }
}

static void packing_shows_numbers_that_are_not_finite(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t k = 0; k < KIND_COUNT; k++) {
        for (int b = 0; b < 3; b++) {
            float x[4096] = {0}, out[4096];
            x[1000] = bad[b];
            pack_once(&KINDS[k], x, 4096, out);
            assert_false(isfinite(out[1000]));
        }
    }
}

static void compression_sizes_by_hand(void **state)
{
    (void)state;
    /* 4096 + 16 scales; 2048 + 32 scales */
    assert_int_equal(ls_compressed_bytes(&KINDS[2], 4096), 4160);
    assert_int_equal(ls_compressed_bytes(&KINDS[3], 4096), 2176);
    assert_int_equal(ls_compressed_bytes(&KINDS[1], 4096 + 1024), 10240);
    /* 41 values of 2 bytes; l = 6: 246 bits, and 41 + 64 + 1 bits; 82 + 31 + 14 = 127 */
    assert_int_equal(ls_compressed_bytes(&KINDS[5], 4096), 128);
    assert_int_equal(ls_compressed_bytes(&KINDS[5], 10 * 4096), 1280);
    /* a quarter of a block keeps 11: 22 + ceil(66 / 8) + ceil(28 / 8) = 35 */
    assert_int_equal(ls_compressed_bytes(&KINDS[5], 1024), 36);
    /* half of all: the bitmap of 512 bytes is smaller than 2048 + 4097 bits */
    assert_int_equal(ls_compressed_bytes(&KINDS[7], 4096), 4096 + 512);
    assert_int_equal(ls_compressed_bytes(&KINDS[2], 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_sum_keeps_what_it_loses),
        cmocka_unit_test(compressed_sum_takes_packed_terms),
        cmocka_unit_test(topk_takes_the_lowest_of_equal_numbers),
        cmocka_unit_test(compressed_sum_normalises_terms),
        cmocka_unit_test(packing_shows_numbers_that_are_not_finite),
        cmocka_unit_test(compression_sizes_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

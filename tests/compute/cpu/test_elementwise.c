// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/checkasm.h"

#include "compute/kernels/adamw.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/embedding.h"
#include "compute/kernels/rotary.h"

/* --- add, fill, copy --- */

typedef struct add_case {
    ck_tensor a, b, sum, filled, copied, scaled;
} add_case;

static void run_add(ls_queue *queue, void *context)
{
    add_case *c = context;
    assert_int_equal(ls_add(queue, &c->a.t, &c->b.t, &c->sum.t), LS_OK);
    assert_int_equal(ls_fill(queue, &c->filled.t, 2.5f), LS_OK);
    assert_int_equal(ls_copy(queue, &c->a.t, &c->copied.t), LS_OK);
    assert_int_equal(ls_copy(queue, &c->a.t, &c->scaled.t), LS_OK);
    assert_int_equal(ls_scale(queue, &c->scaled.t, 0.3f), LS_OK);
}

static void elementwise_add_fill_copy_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        const bool flat = seed % 2;
        const int64_t rows = ck_between(seed, 1, 1, 90), cols = ck_between(seed, 2, 1, 3000);
        add_case c = {.a = ck_make(rows, cols, flat ? 0 : 3, seed + 10, 1.0),
                      .b = ck_make(rows, cols, flat ? 0 : 7, seed + 20, 1.0),
                      .sum = ck_make(rows, cols, 0, 1, 0.0),
                      .filled = ck_make(rows, cols, flat ? 0 : 1, 1, 0.0),
                      .copied = ck_make(rows, cols, 0, 1, 0.0),
                      .scaled = ck_make(rows, cols, flat ? 0 : 5, 1, 0.0)};
        ck_same_bits(run_add, &c, (ck_tensor *[]){&c.sum, &c.filled, &c.copied, &c.scaled}, 4, "elementwise");
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t j = 0; j < cols; j++) {
                assert_true(ck_at(&c.sum, r, j) == ck_at(&c.a, r, j) + ck_at(&c.b, r, j));
                assert_true(ck_at(&c.copied, r, j) == ck_at(&c.a, r, j));
                assert_true(ck_at(&c.filled, r, j) == 2.5f);
                assert_true(ck_at(&c.scaled, r, j) == 0.3f * ck_at(&c.a, r, j));
            }
        }
        ck_tensor *all[] = {&c.a, &c.b, &c.sum, &c.filled, &c.copied, &c.scaled};
        for (int i = 0; i < 6; i++) {
            ck_free(all[i]);
        }
    }
}

static void find_nonfinite_names_the_first(void **state)
{
    (void)state;
    ck_tensor x = ck_make(1, 200000, 0, 4, 1e30);
    float *p = x.t.data;
    const int64_t places[] = {0, 1, 15, 16, 1023, 1024, 65535, 65536, 131071, 199999};
    for (int isa = 0; isa < 3; isa++) {
        for (uint32_t threads = 1; threads <= 4 && ck_queue(isa, threads); threads++) {
            int64_t index = -2;
            assert_int_equal(ls_find_nonfinite(ck_queue(isa, threads), &x.t, &index), LS_OK);
            assert_int_equal(index, -1);
            for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
                const float kept = p[places[k]], last = p[199999];
                p[199999] = -INFINITY;
                p[places[k]] = k % 2 ? NAN : INFINITY;
                assert_int_equal(ls_find_nonfinite(ck_queue(isa, threads), &x.t, &index), LS_OK);
                assert_int_equal(index, places[k]);
                p[199999] = last;
                p[places[k]] = kept;
            }
        }
    }
    ck_free(&x);
}

/* --- rotary --- */

typedef struct rotary_case {
    ck_tensor x, cosine, sine;
    int64_t heads, head_dim, per_sequence, first;
    bool backward;
} rotary_case;

static void run_rotary(ls_queue *queue, void *context)
{
    rotary_case *c = context;
    assert_int_equal(ls_rotary_apply(queue, &c->x.t, c->heads, c->head_dim,
                                     &(ls_positions){.length = c->per_sequence, .past = c->first},
                                     &c->cosine.t, &c->sine.t, c->backward),
                     LS_OK);
}

static void rotary_matches_float64_on_random_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 16; seed++) {
        rotary_case c = {.heads = ck_between(seed, 1, 1, 5),
                         .head_dim = seed % 2 ? 64 : 2 * ck_between(seed, 2, 1, 70),
                         .per_sequence = ck_between(seed, 3, 1, 40),
                         .first = ck_between(seed, 4, 0, 9),
                         .backward = seed % 3 == 0};
        const int64_t rows = c.per_sequence * ck_between(seed, 5, 1, 3), half = c.head_dim / 2;
        c.x = ck_make(rows, c.heads * c.head_dim, ck_between(seed, 6, 0, 5), seed + 10, 1.0);
        c.cosine = ck_make(c.first + c.per_sequence, half, 0, seed + 20, 1.0);
        c.sine = ck_make(c.first + c.per_sequence, half, 2, seed + 30, 1.0);
        double *x = ck_initial(&c.x), *want = ck_zeros(rows * c.x.t.cols);
        for (int64_t i = 0; i < rows * c.x.t.cols; i++) {
            const int64_t r = i / c.x.t.cols, d = i % c.head_dim, k = d % half;
            const int64_t p = c.first + r % c.per_sequence;
            const double cosine = ck_at(&c.cosine, p, k),
                         sine = (c.backward ? -1.0 : 1.0) * ck_at(&c.sine, p, k);
            want[i] = d < half ? x[i] * cosine - x[i + half] * sine : x[i] * cosine + x[i - half] * sine;
        }
        ck_same_bits(run_rotary, &c, (ck_tensor *[]){&c.x}, 1, "rotary");
        ck_close(&c.x, want, 2e-7, 0.0, "rotary");
        free(x);
        free(want);
        ck_free(&c.x);
        ck_free(&c.cosine);
        ck_free(&c.sine);
    }
}

/* --- embedding --- */

typedef struct embedding_case {
    ck_tensor table, positions, out, dout, dtable, dpositions;
    bool with_positions;
    int64_t per_sequence;
    int32_t tokens[256];
} embedding_case;

static void run_embedding(ls_queue *queue, void *context)
{
    embedding_case *c = context;
    const ls_tensor absent = {0};
    assert_int_equal(ls_embedding_forward(queue, c->tokens, &c->table.t,
                                          c->with_positions ? &c->positions.t : &absent,
                                          &(ls_positions){.length = c->per_sequence, .past = 2}, &c->out.t),
                     LS_OK);
    assert_int_equal(ls_embedding_backward(queue, c->tokens, &c->dout.t,
                                           &(ls_positions){.length = c->per_sequence}, &c->dtable.t,
                                           c->with_positions ? &c->dpositions.t : &absent),
                     LS_OK);
}

static void check_embedding(embedding_case *c)
{
    const int64_t rows = c->out.t.rows, cols = c->out.t.cols;
    double *out = ck_zeros(rows * cols), *dtable = ck_initial(&c->dtable), *dpos = ck_initial(&c->dpositions);
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t r = i / cols, j = i % cols, p = r % c->per_sequence;
        out[i] = ck_at(&c->table, c->tokens[r], j);
        dtable[c->tokens[r] * cols + j] += ck_at(&c->dout, r, j);
        if (c->with_positions) {
            out[i] += ck_at(&c->positions, p + 2, j);
            dpos[p * cols + j] += ck_at(&c->dout, r, j);
        }
    }
    ck_close(&c->out, out, 0.0, 6e-8, "embedding");
    ck_close(&c->dtable, dtable, 4e-6, 0.0, "embedding dtable");
    ck_close(&c->dpositions, dpos, 2e-6, 0.0, "embedding dpositions");
    free(out);
    free(dtable);
    free(dpos);
}

static void embedding_matches_float64_with_repeated_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        const int64_t cols = ck_between(seed, 1, 1, 300), vocab = ck_between(seed, 2, 1, 20);
        embedding_case c = {.per_sequence = ck_between(seed, 3, 1, 50), .with_positions = seed % 2};
        const int64_t rows = c.per_sequence * ck_between(seed, 4, 1, 5);
        c.table = ck_make(vocab, cols, 1, seed + 10, 1.0);
        c.positions = ck_make(c.per_sequence + 2, cols, 0, seed + 20, 1.0);
        c.out = ck_make(rows, cols, 3, 1, 0.0);
        c.dout = ck_make(rows, cols, 0, seed + 30, 1.0);
        c.dtable = ck_make(vocab, cols, 2, seed + 40, 1.0);
        c.dpositions = ck_make(c.per_sequence + 2, cols, 0, seed + 50, 1.0);
        for (int64_t r = 0; r < rows; r++) {
            c.tokens[r] = (int32_t)ck_between(seed, (uint64_t)(r + 100), 0, vocab - 1);
        }
        ck_same_bits(run_embedding, &c, (ck_tensor *[]){&c.out, &c.dtable, &c.dpositions}, 3, "embedding");
        check_embedding(&c);
        ck_tensor *all[] = {&c.table, &c.positions, &c.out, &c.dout, &c.dtable, &c.dpositions};
        for (int i = 0; i < 6; i++) {
            ck_free(all[i]);
        }
    }
}

/* --- AdamW --- */

typedef struct adamw_case {
    ck_tensor p, g, m, v;
    ls_adamw adamw;
    int64_t cut; /* updated as two calls */
} adamw_case;

static void run_adamw(ls_queue *queue, void *context)
{
    adamw_case *c = context;
    float *m = c->m.t.data, *v = c->v.t.data;
    const float *g = c->g.t.data;
    const int64_t n = c->p.t.cols, cut = c->cut;
    const ls_adamw_factors factors = ls_adamw_factors_of(&c->adamw);
    const ls_master first = {.values = c->p.t.data}, second = ls_master_from(first, cut);
    assert_int_equal(ls_adamw_update(queue, &factors, cut, &first, g, m, v), LS_OK);
    assert_int_equal(ls_adamw_update(queue, &factors, n - cut, &second, g + cut, m + cut, v + cut), LS_OK);
}

static void check_adamw(const adamw_case *c)
{
    const ls_adamw *a = &c->adamw;
    double *p = ck_initial(&c->p), *g = ck_initial(&c->g), *m = ck_initial(&c->m), *v = ck_initial(&c->v);
    for (int64_t i = 0; i < c->p.t.cols; i++) {
        const double gi = g[i] * a->gradient_scale;
        m[i] = a->beta1 * m[i] + (1.0 - a->beta1) * gi;
        v[i] = a->beta2 * v[i] + (1.0 - a->beta2) * gi * gi;
        const double mh = m[i] / (1.0 - pow(a->beta1, (double)a->step));
        const double vh = v[i] / (1.0 - pow(a->beta2, (double)a->step));
        p[i] -= a->lr * (mh / (sqrt(vh) + a->eps) + a->weight_decay * p[i]);
    }
    ck_close(&c->m, m, 1e-9, 3e-7, "adamw m");
    ck_close(&c->v, v, 1e-12, 3e-7, "adamw v");
    ck_close(&c->p, p, 2e-8, 4e-7, "adamw p");
    free(p);
    free(g);
    free(m);
    free(v);
}

static void adamw_matches_float64_and_any_slice(void **state)
{
    (void)state;
    const uint64_t steps[] = {1, 2, 10, 1000, 1000000};
    for (uint64_t seed = 0; seed < 10; seed++) {
        const int64_t n = ck_between(seed, 1, 2, 70000);
        adamw_case c = {.p = ck_make(1, n, 0, seed + 10, 1.0),
                        .g = ck_make(1, n, 0, seed + 20, 1e-3),
                        .m = ck_make(1, n, 0, seed + 30, 1e-3),
                        .v = ck_make(1, n, 0, seed + 40, 1e-6)};
        for (int64_t i = 0; i < n; i++) { /* v >= 0 */
            c.v.block[CK_GUARD + i] = c.v.initial[CK_GUARD + i] = fabsf(c.v.initial[CK_GUARD + i]);
        }
        c.adamw = (ls_adamw){.lr = 1e-3f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = seed % 2 ? 0.1f : 0.0f,
                             .gradient_scale = 0.25f,
                             .step = steps[seed % 5]};
        float *whole = malloc((size_t)n * sizeof *whole);
        ck_same_bits(run_adamw, &c, (ck_tensor *[]){&c.p, &c.m, &c.v}, 3, "adamw");
        memcpy(whole, c.p.t.data, (size_t)n * sizeof *whole);
        check_adamw(&c);
        c.cut = ck_between(seed, 2, 1, n - 1);
        ck_same_bits(run_adamw, &c, (ck_tensor *[]){&c.p, &c.m, &c.v}, 3, "adamw in two slices");
        assert_memory_equal(whole, c.p.t.data, (size_t)n * sizeof *whole);
        free(whole);
        ck_tensor *all[] = {&c.p, &c.g, &c.m, &c.v};
        for (int i = 0; i < 4; i++) {
            ck_free(all[i]);
        }
    }
}

/* Every float is its weight and rest again, and the weight is the nearest bfloat16, ties away from
 * zero. */
static void master_split_and_join_lose_nothing(void **state)
{
    (void)state;
    const uint32_t bits[] = {0,          1,          0x7fff,     0x8000,     0x8001,     0xffff,
                             0x3f800000, 0x3f807fff, 0x3f808000, 0x3f80ffff, 0xbf808000, 0x7f7f7fff,
                             0x7f7fffff, 0x7f800000, 0xff800000, 0x80000000, 0x80008000};
    for (size_t i = 0; i < 200000; i++) {
        const size_t known = sizeof bits / sizeof bits[0];
        const uint32_t from = i < known ? bits[i] : (uint32_t)(i * 2654435761u);
        float value;
        memcpy(&value, &from, sizeof value);
        uint16_t weight = 0;
        int16_t rest = 0;
        ls_master_split(value, &weight, &rest);
        const float joined = ls_master_join(weight, rest);
        assert_memory_equal(&joined, &value, sizeof value);
        assert_int_equal(weight, (uint16_t)((from >> 16) + ((from & 0xffff) >= 0x8000)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_add_fill_copy_are_exact),
        cmocka_unit_test(find_nonfinite_names_the_first),
        cmocka_unit_test(rotary_matches_float64_on_random_shapes),
        cmocka_unit_test(embedding_matches_float64_with_repeated_tokens),
        cmocka_unit_test(adamw_matches_float64_and_any_slice),
        cmocka_unit_test(master_split_and_join_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Golden numbers from torch 2.15.0 and transformers 5.23.0:
 *
 *   import torch, transformers
 *   from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
 *   c = transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16,
 * max_position_embeddings=131072, rope_parameters=dict(rope_type="default", rope_theta=10000.0)) #
 * or linear with factor=4.0; or llama3 with rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, #
 * high_freq_factor=4.0, original_max_position_embeddings=8192; or yarn and dynamic with the
 * numbers below, torch.arange(100001) for the positions, and for the second yarn mscale=1.0,
 * mscale_all_dim=0.707, truncate=False
 *   r = LlamaRotaryEmbedding(c)
 *   print([float(x).hex() for x in r.inv_freq])
 *   cos, sin = r(torch.zeros(1), torch.tensor([[p]]))
 *   print(["%.9g" % x for x in cos[0, 0, :8].tolist()], ["%.9g" % x for x in sin[0, 0,
 *   :8].tolist()])
 */
#include "test.h"

#include "model/models.h"
#include "model/rope.h"

#include <math.h>
#include <stdlib.h>

typedef struct golden {
    ls_rope_scaling scaling;
    double theta;
    float frequency[8];
    int64_t position[3];
    float cosine[3][8], sine[3][8];
} golden;

static const golden goldens[] = {
    {.scaling = {.kind = LS_ROPE_NONE, .factor = 1.0},
     .theta = 10000.0,
     .frequency = {0x1p+0f, 0x1.43d136p-2f, 0x1.99999ap-4f, 0x1.030dc6p-5f, 0x1.47ae14p-7f, 0x1.9e7c70p-9f,
                   0x1.0624dep-10f, 0x1.4b96c0p-12f},
     .position = {1, 1000, 100000},
     .cosine = {{0.540302336f, 0.950415313f, 0.995004177f, 0.999500036f, 0.999949992f, 0.999994993f,
                 0.999999523f, 0.99999994f},
                {0.562379062f, -0.477397919f, 0.862318873f, 0.978682399f, -0.839071512f, -0.999786079f,
                 0.540302336f, 0.950415254f},
                {-0.9993608f, 0.880297542f, -0.952155352f, -0.261741519f, 0.562379062f, -0.477424741f,
                 0.862322748f, 0.978682399f}},
     .sine = {{0.841470957f, 0.310983598f, 0.0998334214f, 0.0316175073f, 0.00999983307f, 0.00316227251f,
               0.000999999931f, 0.000316227786f},
              {0.826879561f, 0.878687203f, -0.506365657f, 0.205379441f, -0.54402113f, -0.0206838083f,
               0.841470957f, 0.310983628f},
              {0.0357487984f, -0.474421978f, -0.305614382f, 0.965138018f, 0.826879561f, 0.878672659f,
               -0.506359041f, 0.205379441f}}},
    {.scaling = {.kind = LS_ROPE_LINEAR, .factor = 4.0},
     .theta = 10000.0,
     .frequency = {0x1p-2f, 0x1.43d136p-4f, 0x1.99999ap-6f, 0x1.030dc6p-7f, 0x1.47ae14p-9f, 0x1.9e7c70p-11f,
                   0x1.0624dep-12f, 0x1.4b96c0p-14f},
     .position = {1, 1000, 100000},
     .cosine = {{0.968912423f, 0.996876597f, 0.999687493f, 0.999968767f, 0.999996901f, 0.999999702f, 1.0f,
                 1.0f},
                {0.240988299f, -0.869245708f, 0.991202831f, -0.0516898036f, -0.801143587f, 0.703440666f,
                 0.968912423f, 0.996876597f},
                {0.700757742f, 0.123262532f, 0.75982511f, 0.442967236f, 0.240988299f, -0.869241893f,
                 0.99120307f, -0.0516898036f}},
     .sine = {{0.247403964f, 0.0789746121f, 0.0249973964f, 0.0079056127f, 0.00249999738f, 0.000790569407f,
               0.000250000012f, 7.90569466e-05f},
              {-0.970528007f, -0.494380355f, -0.132351756f, 0.998663187f, 0.598472118f, 0.710753977f,
               0.247403964f, 0.0789746195f},
              {-0.713399351f, 0.992374122f, -0.65012753f, -0.896537781f, -0.970528007f, -0.494387001f,
               -0.132349864f, 0.998663187f}}},
    {.scaling = {LS_ROPE_LLAMA3, 8.0, 1.0, 4.0, 8192},
     .theta = 500000.0,
     .frequency = {0x1p+0f, 0x1.8d2760p-3f, 0x1.341190p-5f, 0x1.ddee9ep-8f, 0x1.132ba4p-11f, 0x1.1f91f0p-15f,
                   0x1.be2188p-18f, 0x1.5a0f4ep-20f},
     .position = {1, 1000, 100000},
     .cosine = {{0.540302336f, 0.981255829f, 0.99929297f, 0.999973416f, 0.999999881f, 1.0f, 1.0f, 1.0f},
                {0.562379062f, 0.655475318f, 0.995670974f, 0.532301247f, 0.865401089f, 0.999412477f,
                 0.999977887f, 0.999999166f},
                {-0.9993608f, -0.713678956f, -0.993207455f, 0.914314628f, -0.603852212f, -0.959236145f,
                 0.787048221f, 0.991701663f}},
     .sine = {{0.841470957f, 0.192709595f, 0.0375971682f, 0.00729260035f, 0.000524846022f, 3.42810235e-05f,
               6.64786967e-06f, 1.28917316e-06f},
              {0.826879561f, -0.755216599f, -0.0929479748f, 0.846554995f, 0.501079738f, 0.0342743099f,
               0.00664782058f, 0.0012891728f},
              {0.0357487984f, 0.700472951f, -0.116356827f, 0.405004591f, 0.797096312f, -0.282605827f,
               0.616891503f, 0.128560528f}}},
    {.scaling = {.kind = LS_ROPE_YARN,
                 .factor = 4.0,
                 .original_context = 32768,
                 .beta_fast = 32.0,
                 .beta_slow = 1.0,
                 .attention_factor = 1.138629436111989},
     .theta = 10000.0,
     .frequency = {0x1p+0f, 0x1.43d136p-2f, 0x1.99999ap-4f, 0x1.030dc6p-5f, 0x1.47ae14p-7f, 0x1.50c51cp-9f,
                   0x1.47ae16p-11f, 0x1.2223e8p-13f},
     .position = {1, 1000, 100000},
     .cosine = {{0.615204155f, 1.08217084f, 1.13294101f, 1.13806021f, 1.13857245f, 1.13862574f, 1.1386292f,
                 1.13862944f},
                {0.640341341f, -0.54357934f, 0.981861651f, 1.11435664f, -0.955391526f, -0.957233429f,
                 0.923386455f, 1.1277498f},
                {-1.13790166f, 1.00233269f, -1.0841521f, -0.298026592f, 0.640341341f, 0.888573945f,
                 1.07650745f, 0.338881642f}},
     .sine = {{0.958123624f, 0.354095072f, 0.11367327f, 0.0360006243f, 0.0113861039f, 0.00292553543f,
               0.00071164337f, 0.000157528993f},
              {0.941509426f, 1.00049913f, -0.576562822f, 0.233851075f, -0.619438469f, 0.616588295f,
               0.666209042f, 0.157026932f},
              {0.040704634f, -0.540190816f, -0.347981542f, 1.09893453f, 0.941509426f, -0.711978376f,
               -0.370956302f, 1.08703089f}}},
    {.scaling = {.kind = LS_ROPE_YARN,
                 .factor = 40.0,
                 .original_context = 4096,
                 .beta_fast = 16.0,
                 .beta_slow = 2.0,
                 .attention_factor = 1.0857263992561355,
                 .fractional_bounds = true},
     .theta = 1000000.0,
     .frequency = {0x1p+0f, 0x1.6c310ep-3f, 0x1.030dc6p-5f, 0x1.c7a9e8p-10f, 0x1.a36e2ep-16f, 0x1.2a5884p-18f,
                   0x1.a86f08p-21f, 0x1.2de79ap-23f},
     .position = {1, 1000, 100000},
     .cosine = {{0.58662051f, 1.06860471f, 1.0851835f, 1.08572471f, 1.08572638f, 1.08572638f, 1.08572638f,
                 1.08572638f},
                {0.610589802f, -0.349722832f, 1.0625813f, -0.180927217f, 1.08538711f, 1.08571565f,
                 1.08572602f, 1.08572638f},
                {-1.08503234f, 0.207444176f, -0.284179658f, -0.554941595f, -0.869822741f, 0.980189145f,
                 1.08233523f, 1.08561909f}},
     .sine = {{0.91360724f, 0.192056522f, 0.0343279615f, 0.00188722927f, 2.71431581e-05f, 4.82681207e-06f,
               8.58342048e-07f, 1.52637199e-07f},
              {0.897764981f, 1.02785981f, 0.222985879f, 1.0705452f, 0.0271403305f, 0.00482679624f,
               0.000858341984f, 0.000152637193f},
              {0.0388134122f, 1.06572449f, 1.04787576f, -0.933188915f, 0.649776995f, 0.46693787f,
               0.0857448205f, 0.0152632175f}}},
    {.scaling = {.kind = LS_ROPE_DYNAMIC, .factor = 2.0, .original_context = 2048},
     .theta = 10000.0,
     .frequency = {0x1p+0f, 0x1.5112e8p-3f, 0x1.bbd2c6p-6f, 0x1.24309ep-8f, 0x1.80b994p-11f, 0x1.fa90b6p-14f,
                   0x1.4d7ef2p-16f, 0x1.b71cbcp-19f},
     .position = {1, 1000, 100000},
     .cosine = {{0.540302336f, 0.986486137f, 0.999633133f, 0.999990046f, 0.999999762f, 1.0f, 1.0f, 1.0f},
                {0.562379062f, 0.339868009f, -0.375827491f, -0.251204878f, 0.742631912f, 0.992715597f,
                 0.99980247f, 0.999994636f},
                {-0.9993608f, -0.992770493f, 0.675096393f, 0.966461599f, -0.432237297f, 0.882843792f,
                 -0.405013889f, 0.946957469f}},
     .sine = {{0.841470957f, 0.163844764f, 0.0270855129f, 0.00445844932f, 0.000733804482f, 0.000120774574f,
               1.98779035e-05f, 3.27164116e-06f},
              {0.826879561f, 0.940473139f, 0.926689625f, -0.967933953f, 0.669699848f, 0.120481178f,
               0.0198765937f, 0.00327163539f},
              {0.0357487984f, 0.120028317f, 0.737729549f, -0.256811172f, -0.901759923f, -0.46966669f,
               0.914310515f, 0.32135886f}}},
};

static ls_model_config config_of(const golden *g)
{
    ls_model_config config = small_config(LS_FAMILY_LLAMA);
    config.head_dim = 16;
    config.rope_theta = g->theta;
    config.rope_scaling = g->scaling;
    assert_int_equal(ls_model_config_check(&config), LS_OK);
    return config;
}

/* One unit in the last place of float32 is at most 1.2e-7 of the number. */
static void expect_near(float value, float expected, float units)
{
    if (!(fabsf(value - expected) <= 1.3e-7f * units * fabsf(expected))) {
        fail_msg("%.9g instead of %.9g", (double)value, (double)expected);
    }
}

static void rope_frequencies_equal_transformers(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        const ls_model_config config = config_of(&goldens[k]);
        float frequencies[8];
        ls_rope_frequencies(&config, 100001, frequencies);
        for (int i = 0; i < 8; i++) {
            expect_near(frequencies[i], goldens[k].frequency[i], 1.0f);
        }
    }
}

static void rope_tables_equal_transformers(void **state)
{
    (void)state;
    const int64_t positions = 100001;
    float *cosine = malloc((size_t)positions * 8 * sizeof(float)),
          *sine = malloc((size_t)positions * 8 * sizeof(float));
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        const golden *g = &goldens[k];
        const ls_model_config config = config_of(g);
        ls_rope_tables(&config, positions, cosine, sine);
        /* The factor of yarn is one more rounding on both sides. */
        const float units = g->scaling.kind == LS_ROPE_YARN ? 2.0f : 1.0f;
        for (int p = 0; p < 3; p++) {
            for (int i = 0; i < 8; i++) {
                expect_near(cosine[g->position[p] * 8 + i], g->cosine[p][i], units);
                expect_near(sine[g->position[p] * 8 + i], g->sine[p][i], units);
            }
        }
        const double scale = g->scaling.kind == LS_ROPE_YARN ? g->scaling.attention_factor : 1.0;
        assert_true(cosine[0] == (float)scale && sine[7] == 0.0f);
    }
    free(cosine);
    free(sine);
}

/* The own functions against the C library's, over the range of both. */
static void rope_tables_stay_accurate_far_out(void **state)
{
    (void)state;
    ls_model_config config = small_config(LS_FAMILY_LLAMA);
    config.head_dim = 2; /* one frequency: 1 */
    const int64_t positions = 1 << 22;
    float *cosine = malloc((size_t)positions * sizeof(float)),
          *sine = malloc((size_t)positions * sizeof(float));
    ls_rope_tables(&config, positions, cosine, sine);
    for (int64_t p = 0; p < positions; p += 7) {
        assert_true(fabs((double)cosine[p] - cos((double)p)) < 6.1e-8);
        assert_true(fabs((double)sine[p] - sin((double)p)) < 6.1e-8);
    }
    free(cosine);
    free(sine);
    config.head_dim = 128;
    config.rope_theta = 1234567.0;
    float frequencies[64];
    ls_rope_frequencies(&config, 1, frequencies);
    for (int i = 0; i < 64; i++) {
        const double exact = pow(1234567.0, -2.0 * i / 128.0);
        assert_true(fabs((double)frequencies[i] - exact) <= 1.2e-7 * exact);
    }
}

/* Where a table is no longer than the original context, dynamic scaling changes nothing; attention
 * factors from mscale_all_dim and the paper's. */
static void rope_scaling_of_short_tables_and_attention(void **state)
{
    (void)state;
    ls_model_config config = small_config(LS_FAMILY_LLAMA);
    config.head_dim = 16;
    float plain[8], dynamic[8];
    ls_rope_frequencies(&config, 2048, plain);
    config.rope_scaling = ls_rope_scaling_of(LS_ROPE_DYNAMIC, 2.0, 2048);
    ls_rope_frequencies(&config, 2048, dynamic);
    assert_memory_equal(plain, dynamic, sizeof plain);
    config.context = 2048;
    assert_int_equal(ls_rope_reach(&config), 4096);
    assert_true(ls_rope_attention_factor(0.5, 1.0) == 1.0);
    assert_true(fabs(ls_rope_attention_factor(4.0, 1.0) - 1.138629436111989) < 1e-15);
    const double ratio = ls_rope_attention_factor(40.0, 1.0) / ls_rope_attention_factor(40.0, 0.707);
    assert_true(fabs(ratio - 1.0857263992561355) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_frequencies_equal_transformers),
        cmocka_unit_test(rope_tables_equal_transformers),
        cmocka_unit_test(rope_scaling_of_short_tables_and_attention),
        cmocka_unit_test(rope_tables_stay_accurate_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

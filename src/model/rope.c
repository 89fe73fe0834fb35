// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include "base/assert.h"

#include <math.h>

static const double PI = 3.14159265358979323846;
static const double LN_2 = 0.69314718055994530942;

/* ---- our own functions, so that every machine gets the same bits ---- */

/* ln x for x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m - 1) / (m + 1)). */
static double portable_log(double x)
{
    int exponent = 0;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654752440) {
        m *= 2.0;
        exponent--;
    }
    const double t = (m - 1.0) / (m + 1.0), t2 = t * t; /* |t| < 0.172, so t^42 is below 1e-32 */
    double series = 0.0;
    for (int k = 41; k >= 1; k -= 2) {
        series = series * t2 + 1.0 / k;
    }
    return (double)exponent * LN_2 + 2.0 * t * series;
}

/* e^x for moderate x: x = k ln 2 + r, |r| <= 0.35, Taylor. */
static double portable_exp(double x)
{
    const double k = floor(x / LN_2 + 0.5);
    const double r = x - k * LN_2;
    double series = 1.0;
    for (int i = 20; i >= 1; i--) {
        series = 1.0 + series * r / i;
    }
    return ldexp(series, (int)k);
}

/*
 * x = k pi/2 + r for 0 <= x < 2^24, |r| <= pi/4; returns k mod 4. pi/2 comes in three pieces, the
 * first two of 28 bits, so that their products with k (up to 24 bits) are exact (Cody and Waite,
 * "Software manual for the elementary functions", 1980).
 */
static int reduce_quarter_turns(double x, double *r_out)
{
    static const double piece_1 = 0x1.921fb54p+0, piece_2 = 0x1.10b4610p-30, piece_3 = 0x1.a62633145c06ep-58;
    const double k = floor(x * (2.0 / PI) + 0.5);
    *r_out = ((x - k * piece_1) - k * piece_2) - k * piece_3;
    return (int)((int64_t)k & 3);
}

static void portable_sincos(double x, double *sine_out, double *cosine_out)
{
    double r = 0.0;
    const int quarter = reduce_quarter_turns(x, &r);
    const double r2 = r * r;
    double s = 1.0, c = 1.0; /* Taylor, to r^21 and r^20 */
    for (int i = 20; i >= 2; i -= 2) {
        s = 1.0 - s * r2 / (i * (i + 1));
        c = 1.0 - c * r2 / (i * (i - 1));
    }
    s *= r;
    const double sines[4] = {s, c, -s, -c};
    *sine_out = sines[quarter];
    *cosine_out = sines[(quarter + 1) & 3];
}

/* ---- frequencies ---- */

/* Every variable is a float on purpose: each operation rounds as in transformers'
 * _compute_llama3_parameters.
 */
static float scale_llama3(const ls_rope_scaling *scaling, float frequency)
{
    const float factor = (float)scaling->factor, original = (float)scaling->original_context;
    const float low = (float)scaling->low_freq_factor, high = (float)scaling->high_freq_factor;
    const float wavelength = (float)(2.0 * PI) / frequency;
    if (wavelength < original / high) {
        return frequency;
    }
    if (wavelength > original / low) {
        return frequency / factor;
    }
    const float s = (original / wavelength - low) / (high - low);
    return (1.0f - s) * frequency / factor + s * frequency;
}

double ls_rope_attention_factor(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * portable_log(factor) + 1.0;
}

ls_rope_scaling ls_rope_scaling_of(ls_rope_scaling_kind kind, double factor, int64_t original_context)
{
    return (ls_rope_scaling){
        .kind = kind,
        .factor = factor,
        .low_freq_factor = 1.0,
        .high_freq_factor = 4.0,
        .original_context = original_context,
        .beta_fast = 32.0,
        .beta_slow = 1.0,
        .attention_factor = ls_rope_attention_factor(factor, 1.0),
    };
}

int64_t ls_rope_reach(const ls_model_config *config)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    if (!config->rotary || (scaling->kind != LS_ROPE_YARN && scaling->kind != LS_ROPE_DYNAMIC)) {
        return config->context;
    }
    const double reach = floor(scaling->factor * (double)scaling->original_context);
    const int64_t limit = 1 << 24;
    return reach <= (double)config->context ? config->context
           : reach >= (double)limit         ? limit
                                            : (int64_t)reach;
}

/* The first index that yarn changes at all (beta_fast), or by the whole factor (beta_slow). */
static double yarn_bound(const ls_model_config *config, double beta)
{
    const double turns = (double)config->rope_scaling.original_context / (beta * 2.0 * PI);
    return (double)config->head_dim * portable_log(turns) / (2.0 * portable_log(config->rope_theta));
}

/* frequencies: in, the reciprocals of the plain ones; out, the scaled ones. */
static void scale_yarn(const ls_model_config *config, float *frequencies)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    double low = yarn_bound(config, scaling->beta_fast), high = yarn_bound(config, scaling->beta_slow);
    if (!scaling->fractional_bounds) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)config->head_dim - 1.0);
    high += low == high ? 0.001 : 0.0;
    for (int64_t i = 0; i < config->head_dim / 2; i++) {
        const float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0.0f), 1.0f);
        const float kept = 1.0f - ramp;
        const float stretched = 1.0f / ((float)scaling->factor * frequencies[i]);
        frequencies[i] = stretched * (1.0f - kept) + 1.0f / frequencies[i] * kept;
    }
}

/* theta, or with dynamic scaling what it becomes for `positions`; in floats, as in transformers. */
static double theta_for(const ls_model_config *config, int64_t positions)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    if (scaling->kind != LS_ROPE_DYNAMIC || positions <= scaling->original_context) {
        return config->rope_theta;
    }
    const float ratio = (float)scaling->factor * (float)positions / (float)scaling->original_context;
    const float growth = ratio - (float)(scaling->factor - 1.0);
    const double exponent = (double)config->head_dim / (double)(config->head_dim - 2);
    return (double)((float)config->rope_theta * (float)portable_exp(portable_log((double)growth) * exponent));
}

void ls_rope_frequencies(const ls_model_config *config, int64_t positions, float *frequencies_out)
{
    LS_ASSERT(config->rotary && config->head_dim % 2 == 0);
    const ls_rope_scaling *scaling = &config->rope_scaling;
    const double log_theta = portable_log(theta_for(config, positions));
    const int64_t half = config->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const float exponent = (float)(2 * i) / (float)config->head_dim;
        frequencies_out[i] = (float)portable_exp(log_theta * (double)exponent); /* its reciprocal */
    }
    if (scaling->kind == LS_ROPE_YARN) {
        scale_yarn(config, frequencies_out);
        return;
    }
    for (int64_t i = 0; i < half; i++) {
        const float plain = 1.0f / frequencies_out[i];
        frequencies_out[i] = scaling->kind == LS_ROPE_LLAMA3   ? scale_llama3(scaling, plain)
                             : scaling->kind == LS_ROPE_LINEAR ? plain / (float)scaling->factor
                                                               : plain;
    }
}

void ls_rope_tables(const ls_model_config *config, int64_t positions, float *cosine_out, float *sine_out)
{
    enum { HALF_MAX = 512 };
    const int64_t half = config->head_dim / 2;
    float frequencies[HALF_MAX];
    LS_ASSERT(half <= HALF_MAX && positions <= 1 << 24);
    ls_rope_frequencies(config, positions, frequencies);
    const float scale =
        config->rope_scaling.kind == LS_ROPE_YARN ? (float)config->rope_scaling.attention_factor : 1.0f;
    for (int64_t p = 0; p < positions; p++) {
        for (int64_t i = 0; i < half; i++) {
            const float angle = (float)p * frequencies[i];
            double sine = 0.0, cosine = 0.0;
            portable_sincos((double)angle, &sine, &cosine);
            cosine_out[p * half + i] = scale * (float)cosine;
            sine_out[p * half + i] = scale * (float)sine;
        }
    }
}

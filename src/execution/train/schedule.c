// SPDX-License-Identifier: Apache-2.0
#include "execution/train/schedule.h"

/* cos(pi x) for x in [0, 1], by symmetry to [0, 1/4] and Taylor series in plain multiplications and
 * additions. */
static double cos_half_turn(double x)
{
    const double pi = 3.141592653589793;
    if (x > 0.5) {
        return -cos_half_turn(1.0 - x);
    }
    if (x > 0.25) {
        const double a = pi * (0.5 - x), a2 = a * a;
        double sine = 1.0;
        for (int k = 17; k >= 3; k -= 2) {
            sine = 1.0 - sine * a2 / ((k - 1) * k);
        }
        return sine * a;
    }
    const double a = pi * x, a2 = a * a;
    double cosine = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        cosine = 1.0 - cosine * a2 / ((k - 1) * k);
    }
    return cosine;
}

/* Progress of a decay that begins at step `first` and takes `span` steps, 0..1: the last step of
 * the run gets 1 - 1/span. */
static double decay_progress(uint64_t step, uint64_t first, uint64_t span)
{
    if (step <= first || span == 0) {
        return 0.0;
    }
    const uint64_t done = step - first;
    return done >= span ? 1.0 : (double)done / (double)span;
}

double ls_schedule_lr(const ls_schedule *schedule, uint64_t step)
{
    const ls_schedule *s = schedule;
    if (step < s->warmup_steps) {
        return s->lr * ((double)(step + 1) / (double)s->warmup_steps);
    }
    const uint64_t after = s->steps > s->warmup_steps ? s->steps - s->warmup_steps : 0;
    const double low = s->final_fraction;
    switch (s->kind) {
    case LS_SCHEDULE_CONSTANT:
        return s->lr;
    case LS_SCHEDULE_LINEAR:
        return s->lr * (1.0 - (1.0 - low) * decay_progress(step, s->warmup_steps, after));
    case LS_SCHEDULE_COSINE: {
        const double wave = cos_half_turn(decay_progress(step, s->warmup_steps, after));
        return s->lr * (low + (1.0 - low) * 0.5 * (1.0 + wave));
    }
    case LS_SCHEDULE_WSD: {
        const uint64_t span = (uint64_t)((double)s->steps * s->decay_fraction + 0.5);
        const uint64_t first = s->steps > span ? s->steps - span : 0;
        const uint64_t begin = first > s->warmup_steps ? first : s->warmup_steps;
        return s->lr *
               (1.0 - (1.0 - low) * decay_progress(step, begin, s->steps > begin ? s->steps - begin : 0));
    }
    }
    return s->lr;
}

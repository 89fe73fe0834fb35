// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/local/progress.h"

#include "telemetry/record/metrics_reader.h"

#include <math.h>

#define SPAN_MIN_S (1e-9 * (double)LS_LOCAL_PROGRESS_SPAN_NS)

void ls_local_progress_restart(ls_local_progress *p)
{
    p->old_step = p->step;
    p->sample_count = 0;
    p->step_s = 0.0;
}

static void add_sample(ls_local_progress *p, double written_s)
{
    if (p->sample_count == LS_LOCAL_SAMPLES_MAX) {
        for (uint32_t i = 0; i < LS_LOCAL_SAMPLES_MAX / 2; i++) {
            p->samples[i] = p->samples[2 * i];
        }
        p->sample_count = LS_LOCAL_SAMPLES_MAX / 2;
    }
    p->samples[p->sample_count].step = p->step;
    p->samples[p->sample_count++].written_s = written_s;
}

bool ls_local_progress_feed(ls_local_progress *p, const char *tail, size_t bytes, double written_s,
                            double now_s)
{
    ls_line_reader reader = {.text = tail, .bytes = bytes};
    ls_step_metrics metrics;
    uint64_t newest = 0, lines = 0;
    double sum_s = 0.0;
    for (ls_line_kind kind; (kind = ls_metrics_reader_next(&reader, &metrics)) <= LS_LINE_DAMAGED;) {
        if (kind == LS_LINE_GOOD) {
            newest = metrics.step;
            if (newest > p->old_step && isfinite(metrics.step_s) && metrics.step_s > 0.0) {
                sum_s += metrics.step_s;
                lines++;
            }
        }
    }
    if (newest == 0 || newest == p->step) {
        return false;
    }
    if (newest < p->step) { /* it went back to a checkpoint */
        p->old_step = 0;
        p->sample_count = 0;
    }
    p->step = newest;
    p->seen_s = now_s;
    p->step_s = lines > 0 ? sum_s / (double)lines : p->step_s;
    add_sample(p, written_s);
    return true;
}

/* 0: not known. */
static double time_of_step(const ls_local_progress *p)
{
    const uint32_t last = p->sample_count - 1;
    for (uint32_t first = last / 2, i = 0; p->sample_count >= 2 && i < 2; first = 0, i++) {
        const double span_s = p->samples[last].written_s - p->samples[first].written_s;
        if (span_s >= SPAN_MIN_S) {
            return span_s / (double)(p->samples[last].step - p->samples[first].step);
        }
    }
    return p->step_s >= SPAN_MIN_S ? p->step_s : 0.0;
}

double ls_local_progress_left_s(const ls_local_progress *p, double now_s)
{
    const double step_s = time_of_step(p);
    if (p->steps == 0 || p->step == 0 || step_s <= 0.0) {
        return 0.0;
    }
    const double steps = p->steps > p->step ? (double)(p->steps - p->step) : 0.0;
    /* the file may say anything about its steps */
    return fmin(LS_LOCAL_LEFT_MAX_S, fmax(1e-3, steps * step_s - fmax(0.0, now_s - p->seen_s)));
}

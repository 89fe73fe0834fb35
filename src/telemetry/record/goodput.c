// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/goodput.h"

#include "base/assert.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *loss;   /* "28 % waiting for data" */
    const char *remedy; /* "try ..." */
} class_table[LS_TIME_CLASS_COUNT] = {
    [LS_TIME_STARTUP] = {"startup", "starting up", "a longer run: data are tokenised only once"},
    [LS_TIME_COMPUTE] = {"compute", "", ""},
    [LS_TIME_DATA] = {"data", "waiting for data", "data on a local disk, or more memory for its cache"},
    [LS_TIME_COMMUNICATION] = {"communication", "communicating", "fewer ranks or a larger global_batch"},
    [LS_TIME_EVALUATION] = {"evaluation", "evaluating",
                            "a larger eval.every_steps or a smaller eval.batches"},
    [LS_TIME_SAMPLING] = {"sampling", "drawing samples",
                          "a larger sample.every_steps or a smaller sample.max_tokens"},
    [LS_TIME_CHECKPOINT] = {"checkpoint", "saving", "a larger checkpoint.every_steps or a faster disk"},
    [LS_TIME_RECOVERY] = {"recovery", "recovering", "events.jsonl, which names the ranks that were lost"},
    [LS_TIME_LOST_WORK] = {"lost_work", "work done twice", "a smaller checkpoint.every_steps"},
    [LS_TIME_WAITING] = {"waiting", "waiting",
                         "events.jsonl, which names late ranks, or fewer processes on this machine"},
    [LS_TIME_OTHER] = {"other", "logging and the rest", "a larger log.every_steps"},
    [LS_TIME_DOWN] = {"down", "down until the next start",
                      "a supervisor that starts the same command again at once: it resumes where it stopped"},
    [LS_TIME_PAUSED] = {"paused", "paused", ""},
};

void ls_goodput_begin(ls_goodput *goodput, double start_s)
{
    *goodput = (ls_goodput){.current = LS_TIME_STARTUP, .since_s = start_s};
}

void ls_goodput_update_at(ls_goodput *goodput, double now_s)
{
    if (now_s > goodput->since_s) {
        goodput->seconds[goodput->current] += now_s - goodput->since_s;
        goodput->since_s = now_s;
    }
}

void ls_goodput_update(ls_goodput *goodput)
{
    ls_goodput_update_at(goodput, ls_clock_monotonic_s());
}

void ls_goodput_enter_at(ls_goodput *goodput, ls_time_class next, double now_s)
{
    LS_ASSERT(next < LS_TIME_CLASS_COUNT);
    ls_goodput_update_at(goodput, now_s);
    goodput->current = next;
}

void ls_goodput_enter(ls_goodput *goodput, ls_time_class next)
{
    ls_goodput_enter_at(goodput, next, ls_clock_monotonic_s());
}

double ls_goodput_move(ls_goodput *goodput, ls_time_class from, ls_time_class to, double seconds)
{
    /* no class goes below zero */
    const double moved_s = fmin(fmax(seconds, 0.0), goodput->seconds[from]);
    goodput->seconds[from] -= moved_s;
    goodput->seconds[to] += moved_s;
    return moved_s;
}

double ls_goodput_wall_s(const ls_goodput *goodput)
{
    double sum = 0.0;
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        sum += goodput->seconds[i];
    }
    return sum;
}

static double wanted(const ls_goodput *goodput)
{
    return ls_goodput_wall_s(goodput) - goodput->seconds[LS_TIME_PAUSED];
}

double ls_goodput_fraction(const ls_goodput *goodput)
{
    const double wanted_s = wanted(goodput);
    return wanted_s > 0.0 ? goodput->seconds[LS_TIME_COMPUTE] / wanted_s : 0.0;
}

void ls_goodput_add(ls_goodput *goodput, const ls_goodput *more)
{
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        goodput->seconds[i] += more->seconds[i];
    }
    goodput->cost_usd += more->cost_usd;
    goodput->energy_j += more->energy_j;
}

const char *ls_time_class_name(ls_time_class time_class)
{
    LS_ASSERT(time_class < LS_TIME_CLASS_COUNT);
    return class_table[time_class].name;
}

bool ls_goodput_advice(const ls_goodput *goodput, char *text_out, size_t text_bytes)
{
    const double wanted_s = wanted(goodput), busy = ls_goodput_fraction(goodput);
    if (wanted_s - goodput->seconds[LS_TIME_STARTUP] <= LS_GOODPUT_GRACE_S || busy >= LS_GOODPUT_GOOD) {
        return false;
    }
    int largest = LS_TIME_STARTUP;
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        if (i != LS_TIME_COMPUTE && i != LS_TIME_PAUSED && goodput->seconds[i] > goodput->seconds[largest]) {
            largest = i;
        }
    }
    snprintf(text_out, text_bytes, "%.0f %% busy: %.0f %% %s, try %s", 100.0 * busy,
             100.0 * goodput->seconds[largest] / wanted_s, class_table[largest].loss,
             class_table[largest].remedy);
    return true;
}

void ls_goodput_from_json(const json_t *object, ls_goodput *goodput_out)
{
    *goodput_out = (ls_goodput){0};
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        const json_t *member = json_object_get(object, class_table[i].name);
        const double seconds = json_number_value(member);
        goodput_out->seconds[i] = isfinite(seconds) && seconds > 0.0 ? seconds : 0.0;
    }
}

const char *ls_time_class_label(ls_time_class time_class)
{
    LS_ASSERT(time_class < LS_TIME_CLASS_COUNT);
    return time_class == LS_TIME_COMPUTE ? "training" : class_table[time_class].loss;
}

void ls_goodput_describe(const ls_goodput *goodput, char *text_out, size_t text_bytes)
{
    const double wall_s = ls_goodput_wall_s(goodput);
    bool said[LS_TIME_CLASS_COUNT] = {false};
    size_t used = 0;
    text_out[0] = '\0';
    for (;;) {
        int largest = -1;
        for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
            if (!said[i] && goodput->seconds[i] >= 0.005 * wall_s && goodput->seconds[i] > 0.0 &&
                (largest < 0 || goodput->seconds[i] > goodput->seconds[largest])) {
                largest = i;
            }
        }
        if (largest < 0 || used >= text_bytes) {
            return;
        }
        said[largest] = true;
        const int wrote =
            snprintf(text_out + used, text_bytes - used, "%s%.0f %% %s", used > 0 ? ", " : "",
                     100.0 * goodput->seconds[largest] / wall_s, ls_time_class_label((ls_time_class)largest));
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

json_t *ls_goodput_to_json(const ls_goodput *goodput)
{
    json_t *object = json_object();
    for (int i = 0; i < LS_TIME_CLASS_COUNT; i++) {
        json_object_set_new(object, class_table[i].name, json_real(goodput->seconds[i]));
    }
    return object;
}

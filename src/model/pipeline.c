// SPDX-License-Identifier: Apache-2.0
#include "model/pipeline.h"

#include "base/assert.h"

#include <math.h>

enum { STAGES_MAX = 1024, CHUNKS_MAX = 1024, MICRO_BATCHES_MAX = 1 << 20 };

static ls_status check_range(const char *what, uint32_t value, uint32_t most)
{
    if (value < 1 || value > most) {
        return ls_fail(LS_ERR_INVALID, "pipeline: %s is %u; it must be 1 to %u", what, value, most);
    }
    return LS_OK;
}

ls_status ls_pipeline_check(const ls_pipeline *p)
{
    LS_TRY(check_range("the number of stages", p->stages, STAGES_MAX));
    LS_TRY(check_range("the number of chunks per stage", p->chunks, CHUNKS_MAX));
    LS_TRY(check_range("the number of micro-batches", p->micro_batches, MICRO_BATCHES_MAX));
    if ((unsigned)p->kind >= LS_PIPELINE_KIND_COUNT) {
        return ls_fail(LS_ERR_INVALID, "pipeline: the kind of schedule is %d; it must be 0 to %d",
                       (int)p->kind, LS_PIPELINE_KIND_COUNT - 1);
    }
    if (p->chunks > 1 && (p->kind != LS_PIPELINE_ONE_BY_ONE || p->stages == 1)) {
        return ls_fail(
            LS_ERR_INVALID,
            "pipeline: %u chunks per stage (interleaving) need schedule 1f1b and 2 stages or more; "
            "use 1 chunk",
            p->chunks);
    }
    return LS_OK;
}

bool ls_pipeline_splits_backward(const ls_pipeline *p)
{
    return p->kind == LS_PIPELINE_ZERO_BUBBLE;
}

uint32_t ls_pipeline_length(const ls_pipeline *p)
{
    return p->micro_batches * p->chunks * (ls_pipeline_splits_backward(p) ? 3 : 2);
}

/* ---- lists ---- */

typedef struct list {
    const ls_pipeline *pipeline;
    ls_pipeline_work *works;
    uint32_t count;
} list;

static void put(list *l, ls_pipeline_pass pass, uint32_t micro_batch, uint32_t chunk)
{
    if (micro_batch < l->pipeline->micro_batches) {
        l->works[l->count++] = (ls_pipeline_work){pass, micro_batch, chunk};
    }
}

/* Pass number `k` of one direction: groups of `stages` micro-batches visit chunk after chunk. */
static void put_turn(list *l, ls_pipeline_pass pass, uint64_t k)
{
    const uint32_t stages = l->pipeline->stages, chunks = l->pipeline->chunks;
    const uint64_t group = k / ((uint64_t)stages * chunks);
    const uint32_t chunk = (uint32_t)(k / stages % chunks);
    put(l, pass, (uint32_t)(group * stages + k % stages),
        pass == LS_PIPELINE_FORWARD ? chunk : chunks - 1 - chunk);
}

/* `ahead` forward passes, then one of each kind in turn. */
static void list_in_turn(list *l, uint64_t passes, uint64_t ahead)
{
    for (uint64_t k = 0; k < passes + ahead; k++) {
        if (k < passes) {
            put_turn(l, LS_PIPELINE_FORWARD, k);
        }
        if (k >= ahead) {
            put_turn(l, LS_PIPELINE_BACKWARD, k - ahead);
        }
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void list_one_by_one(list *l, uint32_t stage)
{
    const ls_pipeline *p = l->pipeline;
    const uint32_t stages = p->stages, later = stages - 1 - stage;
    /* A group that is not full has the places of a full one, which `put` leaves empty. */
    const uint64_t groups = ((uint64_t)p->micro_batches + stages - 1) / stages;
    const uint64_t passes = groups * stages * p->chunks;
    const uint64_t ahead = p->chunks == 1 ? later : 2 * (uint64_t)later + (uint64_t)(p->chunks - 1) * stages;
    list_in_turn(l, passes, least(ahead, passes));
}

static void list_zero_bubble(list *l, uint32_t stage)
{
    const uint32_t count = l->pipeline->micro_batches;
    uint32_t forward = 0, input = 0, weight = 0;
    while (forward < l->pipeline->stages - stage) {
        put(l, LS_PIPELINE_FORWARD, forward++, 0);
    }
    while (weight < count) {
        put(l, LS_PIPELINE_BACKWARD_INPUT, input++, 0);
        if (input > weight + stage) {
            put(l, LS_PIPELINE_BACKWARD_WEIGHT, weight++, 0);
        }
        put(l, LS_PIPELINE_FORWARD, forward++, 0);
    }
}

const ls_pipeline_work *ls_pipeline_list(ls_arena *arena, const ls_pipeline *pipeline, uint32_t stage)
{
    LS_ASSERT(stage < pipeline->stages);
    const uint32_t length = ls_pipeline_length(pipeline);
    list l = {.pipeline = pipeline, .works = ls_arena_new(arena, ls_pipeline_work, length)};
    switch (pipeline->kind) {
    case LS_PIPELINE_ALL_FORWARD:
        list_in_turn(&l, pipeline->micro_batches, pipeline->micro_batches);
        break;
    case LS_PIPELINE_ZERO_BUBBLE:
        list_zero_bubble(&l, stage);
        break;
    default:
        list_one_by_one(&l, stage);
    }
    LS_ASSERT(l.count == length);
    return l.works;
}

uint32_t ls_pipeline_slots(const ls_pipeline *pipeline, const ls_pipeline_work *works)
{
    uint32_t most = 1;
    for (uint32_t chunk = 0; chunk < pipeline->chunks; chunk++) {
        uint32_t begun = 0, ended = 0;
        for (uint32_t i = 0; i < ls_pipeline_length(pipeline); i++) {
            if (works[i].chunk != chunk) {
                continue;
            }
            begun += works[i].pass == LS_PIPELINE_FORWARD;
            most = begun - ended > most ? begun - ended : most;
            ended += works[i].pass == LS_PIPELINE_BACKWARD || works[i].pass == LS_PIPELINE_BACKWARD_WEIGHT;
        }
    }
    return most;
}

/* ---- following the lists ---- */

typedef struct follow {
    const ls_pipeline *pipeline;
    const ls_pipeline_costs *costs;
    const ls_pipeline_work **lists; /* per stage */
    uint32_t *at;                   /* entries done, per stage */
    double *left_s;                 /* of the entry that a stage is in; negative: it is in none */
    /* whether the value of a run of layers has been made, per micro-batch and run */
    bool *forward, *backward;
} follow;

static size_t index_of(const follow *f, uint32_t micro_batch, uint32_t run)
{
    return (size_t)micro_batch * f->pipeline->stages * f->pipeline->chunks + run;
}

static bool has_what_it_needs(const follow *f, uint32_t stage, const ls_pipeline_work *work)
{
    const uint32_t run = work->chunk * f->pipeline->stages + stage;
    const uint32_t last = f->pipeline->stages * f->pipeline->chunks - 1;
    switch (work->pass) {
    case LS_PIPELINE_FORWARD:
        return run == 0 || f->forward[index_of(f, work->micro_batch, run - 1)];
    case LS_PIPELINE_BACKWARD:
    case LS_PIPELINE_BACKWARD_INPUT:
        return run == last || f->backward[index_of(f, work->micro_batch, run + 1)];
    case LS_PIPELINE_BACKWARD_WEIGHT:
        break;
    }
    return true;
}

static double seconds_of(const follow *f, uint32_t stage, ls_pipeline_pass pass)
{
    const ls_pipeline_costs *c = &f->costs[stage];
    const double seconds[] = {[LS_PIPELINE_FORWARD] = c->forward_s,
                              [LS_PIPELINE_BACKWARD] = c->input_s + c->weight_s,
                              [LS_PIPELINE_BACKWARD_INPUT] = c->input_s,
                              [LS_PIPELINE_BACKWARD_WEIGHT] = c->weight_s};
    return seconds[pass] / f->pipeline->chunks;
}

/* Whether the stage is in an entry of its list; it begins the next one if it can. */
static bool is_busy(follow *f, uint32_t stage)
{
    const ls_pipeline_work *work = &f->lists[stage][f->at[stage]];
    if (f->at[stage] == ls_pipeline_length(f->pipeline)) {
        return false;
    }
    if (f->left_s[stage] < 0.0 && has_what_it_needs(f, stage, work)) {
        f->left_s[stage] = seconds_of(f, stage, work->pass);
    }
    return f->left_s[stage] >= 0.0;
}

static void finish(follow *f, uint32_t stage)
{
    const ls_pipeline_work *work = &f->lists[stage][f->at[stage]++];
    const size_t value = index_of(f, work->micro_batch, work->chunk * f->pipeline->stages + stage);
    f->left_s[stage] = -1.0;
    if (work->pass == LS_PIPELINE_FORWARD) {
        f->forward[value] = true;
    } else if (work->pass != LS_PIPELINE_BACKWARD_WEIGHT) {
        f->backward[value] = true;
    }
}

/* Until the next entry ends, on `cores`, which the busy stages share. Returns the time that takes;
 * negative: no stage is busy. */
static double advance(follow *f, double cores)
{
    uint32_t busy = 0;
    double least_s = INFINITY;
    for (uint32_t s = 0; s < f->pipeline->stages; s++) {
        if (is_busy(f, s)) {
            least_s = fmin(least_s, f->left_s[s]);
            busy++;
        }
    }
    for (uint32_t s = 0; s < f->pipeline->stages && busy > 0; s++) {
        if (f->left_s[s] >= 0.0 && f->left_s[s] <= least_s) {
            finish(f, s);
        } else if (f->left_s[s] >= 0.0) {
            f->left_s[s] -= least_s;
        }
    }
    return busy > 0 ? least_s * fmax(1.0, busy / cores) : -1.0;
}

ls_pipeline_times ls_pipeline_run(ls_arena *scratch, const ls_pipeline *pipeline,
                                  const ls_pipeline_costs *costs, double cores)
{
    const size_t runs = (size_t)pipeline->micro_batches * pipeline->stages * pipeline->chunks;
    follow f = {.pipeline = pipeline,
                .costs = costs,
                .lists = ls_arena_new(scratch, const ls_pipeline_work *, pipeline->stages),
                .at = ls_arena_new(scratch, uint32_t, pipeline->stages),
                .left_s = ls_arena_new(scratch, double, pipeline->stages),
                .forward = ls_arena_new(scratch, bool, runs),
                .backward = ls_arena_new(scratch, bool, runs)};
    ls_pipeline_times times = {0};
    double most_s = 0.0;
    for (uint32_t s = 0; s < pipeline->stages; s++) {
        f.lists[s] = ls_pipeline_list(scratch, pipeline, s);
        f.left_s[s] = -1.0;
        most_s = fmax(most_s, costs[s].forward_s + costs[s].input_s + costs[s].weight_s);
    }
    for (double step_s = 0.0; step_s >= 0.0; step_s = advance(&f, cores)) {
        times.total_s += step_s;
    }
    for (uint32_t s = 0; s < pipeline->stages; s++) {
        LS_ASSERT(f.at[s] == ls_pipeline_length(pipeline) && "a list waits for itself");
    }
    times.idle_s = times.total_s - most_s * pipeline->micro_batches;
    return times;
}

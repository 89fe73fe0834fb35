// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates the schedule of a pipeline. Each stage has a fixed order of work and starts the next
 * item as soon as its inputs are ready. With 3 stages, 4 micro-batches and 1F1B (F forward, B
 * backward):
 *
 *   stage 1   F1 F2 F3 .. .. B1 F4 B2 .. B3 .. B4    warm-up: 2 forwards before the first pair
 *   stage 2   .. F1 F2 .. B1 F3 B2 F4 B3 .. B4
 *   stage 3   .. .. F1 B1 F2 B2 F3 B3 F4 B4          the last stage needs no warm-up
 *
 * Orders are decided first (fill_order) and times after (do_next), so a schedule differs only in
 * its warm-up. Zero-bubble schedules also postpone the gradients of weights and use them as
 * filling.
 */
#include "telemetry/plan_page/plan_page_internal.h"

#include "base/assert.h"

#include <math.h>

typedef struct item {
    int micro_batch, chunk;
    ls_trace_work work;
} item;

enum { ITEMS_MOST = 2 * LS_TRACE_MICRO_BATCHES_MOST * LS_TRACE_CHUNKS_MOST };

typedef struct stage_state {
    item order[ITEMS_MOST];
    int count, next;
    double free_s;
    item late[ITEMS_MOST]; /* gradients of weights that were postponed */
    int late_count, late_next;
} stage_state;

typedef struct player {
    const ls_trace_setting *setting;
    ls_plan_trace *trace;
    stage_state stages[LS_TRACE_STAGES_MOST];
    /* When each item is done; NAN: not yet. */
    double done_s[2][LS_TRACE_STAGES_MOST][LS_TRACE_CHUNKS_MOST][LS_TRACE_MICRO_BATCHES_MOST];
} player;

static bool is_zero_bubble(const ls_trace_setting *s)
{
    return s->schedule == LS_PIPELINE_ZB_H1 || s->schedule == LS_PIPELINE_ZB_H2;
}

/* The k-th forward (backward) of a stage: Megatron's interleaved order, `stages` micro-batches
 * through each chunk in turn. */
static item item_at(const ls_trace_setting *s, int k, ls_trace_work work)
{
    if (s->chunks == 1) {
        return (item){.micro_batch = k, .work = work};
    }
    const int group = s->stages * s->chunks, chunk = k % group / s->stages;
    return (item){.micro_batch = k / group * s->stages + k % s->stages,
                  .chunk = work == LS_TRACE_FORWARD ? chunk : s->chunks - 1 - chunk,
                  .work = work};
}

/*
 * Number of forwards before the first backward. A stage needs one for each stage after it, so that
 * its first backward finds the others at work; GPipe runs all forwards first. With chunks, the
 * interleaved order doubles the distance and adds a round of all stages per further chunk. ZB-H2
 * also doubles it, and pays with memory.
 */
static int warmup_of(const ls_trace_setting *s, int stage, int total)
{
    const int behind = s->stages - 1 - stage;
    const int wanted = s->schedule == LS_PIPELINE_GPIPE   ? total
                       : s->chunks > 1                    ? 2 * behind + (s->chunks - 1) * s->stages
                       : s->schedule == LS_PIPELINE_ZB_H2 ? 2 * behind
                                                          : behind;
    return wanted < total ? wanted : total;
}

/* Warm-up, then one forward and one backward in turn, then the remaining backwards. */
static void fill_order(const ls_trace_setting *s, int stage, stage_state *state)
{
    const int total = s->micro_batches * s->chunks, warmup = warmup_of(s, stage, total);
    int forwards = 0, backwards = 0;
    while (forwards < warmup) {
        state->order[state->count++] = item_at(s, forwards++, LS_TRACE_FORWARD);
    }
    while (backwards < total) {
        if (forwards < total) {
            state->order[state->count++] = item_at(s, forwards++, LS_TRACE_FORWARD);
        }
        state->order[state->count++] = item_at(s, backwards++, LS_TRACE_BACKWARD);
    }
}

static double sent(double done_s, const ls_trace_setting *s)
{
    return s->stages > 1 ? done_s + s->send_s : done_s;
}

/* When the inputs of the item are ready; NAN: not known yet. */
static double ready_s(const player *game, int stage, item at)
{
    const ls_trace_setting *s = game->setting;
    const int last = s->stages - 1;
    /* A forward needs the forward of the stage before; the first stage takes chunk c from the last
     * stage, which computed chunk c - 1. Backwards go the other way, and start at the loss. */
    if (at.work == LS_TRACE_FORWARD) {
        return stage > 0      ? sent(game->done_s[0][stage - 1][at.chunk][at.micro_batch], s)
               : at.chunk > 0 ? sent(game->done_s[0][last][at.chunk - 1][at.micro_batch], s)
                              : 0.0;
    }
    return stage < last               ? sent(game->done_s[1][stage + 1][at.chunk][at.micro_batch], s)
           : at.chunk < s->chunks - 1 ? sent(game->done_s[1][0][at.chunk + 1][at.micro_batch], s)
                                      : game->done_s[0][stage][at.chunk][at.micro_batch];
}

static void put_cell(player *game, int stage, item at, double begin_s, double lasts_s)
{
    stage_state *state = &game->stages[stage];
    state->free_s = begin_s + lasts_s;
    game->trace->cells[game->trace->count++] = (ls_trace_cell){.stage = stage,
                                                               .micro_batch = at.micro_batch,
                                                               .chunk = at.chunk,
                                                               .work = at.work,
                                                               .begin_s = begin_s,
                                                               .end_s = state->free_s};
}

static void do_late(player *game, int stage)
{
    stage_state *state = &game->stages[stage];
    put_cell(game, stage, state->late[state->late_next++], state->free_s, game->setting->weights_s);
}

/* Zero bubble: gradients of weights come first where the stage would wait, and where so many have
 * been postponed that memory is short. */
static void do_late_before(player *game, int stage, double ready)
{
    const ls_trace_setting *s = game->setting;
    stage_state *state = &game->stages[stage];
    const int most = s->schedule == LS_PIPELINE_ZB_H2 ? 2 * s->stages : stage + 1;
    while (state->late_count > state->late_next &&
           (state->free_s + 1e-12 < ready || state->late_count - state->late_next >= most)) {
        do_late(game, stage);
    }
}

/* Does the next item of the stage; false when its inputs have no time yet. */
static bool do_next(player *game, int stage)
{
    const ls_trace_setting *s = game->setting;
    stage_state *state = &game->stages[stage];
    const item at = state->order[state->next];
    const double ready = ready_s(game, stage, at);
    if (isnan(ready)) {
        return false;
    }
    do_late_before(game, stage, ready);
    const bool backward = at.work == LS_TRACE_BACKWARD;
    const double lasts_s = backward ? s->backward_s - (is_zero_bubble(s) ? s->weights_s : 0.0) : s->forward_s;
    put_cell(game, stage, at, fmax(ready, state->free_s), lasts_s);
    game->done_s[backward][stage][at.chunk][at.micro_batch] = state->free_s;
    if (backward && is_zero_bubble(s)) {
        state->late[state->late_count++] = (item){at.micro_batch, at.chunk, LS_TRACE_WEIGHTS};
    }
    state->next++;
    return true;
}

static void forget(player *game)
{
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < LS_TRACE_STAGES_MOST; i++) {
            for (int c = 0; c < LS_TRACE_CHUNKS_MOST; c++) {
                for (int m = 0; m < LS_TRACE_MICRO_BATCHES_MOST; m++) {
                    game->done_s[w][i][c][m] = NAN;
                }
            }
        }
    }
}

static void measure(const ls_trace_setting *setting, ls_plan_trace *trace)
{
    double busy_s = 0.0;
    for (size_t i = 0; i < trace->count; i++) {
        trace->end_s = fmax(trace->end_s, trace->cells[i].end_s);
        busy_s += trace->cells[i].end_s - trace->cells[i].begin_s;
    }
    trace->bubble = trace->end_s > 0.0 ? 1.0 - busy_s / (trace->end_s * setting->stages) : 0.0;
}

void ls_trace_compute(const ls_trace_setting *setting, ls_plan_trace *trace_out)
{
    LS_ASSERT(setting->stages >= 1 && setting->stages <= LS_TRACE_STAGES_MOST && setting->chunks >= 1 &&
              setting->chunks <= LS_TRACE_CHUNKS_MOST && setting->micro_batches >= 1 &&
              setting->micro_batches <= LS_TRACE_MICRO_BATCHES_MOST);
    player game = {.setting = setting, .trace = trace_out};
    *trace_out = (ls_plan_trace){0};
    forget(&game);
    for (int i = 0; i < setting->stages; i++) {
        fill_order(setting, i, &game.stages[i]);
    }
    /* Each round does what is ready. Orders have no deadlock, so a round without progress is the
     * end. */
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < setting->stages; i++) {
            while (game.stages[i].next < game.stages[i].count && do_next(&game, i)) {
                moved = true;
            }
        }
    }
    for (int i = 0; i < setting->stages; i++) {
        while (game.stages[i].late_next < game.stages[i].late_count) {
            do_late(&game, i);
        }
    }
    measure(setting, trace_out);
}

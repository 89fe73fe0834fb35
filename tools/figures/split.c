// SPDX-License-Identifier: Apache-2.0
/* How a model is split over GPUs, and how a pipeline fills and drains. */
#include "figures/drawings.h"

#include "figures/drawings_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum { WIDTH = LS_DRAWING_WIDTH, MARGIN = LS_DRAWING_MARGIN, INNER = LS_DRAWING_INNER };

static ls_status check_count(const char *what, uint32_t value, uint32_t min, uint32_t max)
{
    if (value < min || value > max) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " %s can't be drawn, allowed is %" PRIu32 " to %" PRIu32,
                       value, what, min, max);
    }
    return LS_OK;
}

/* ---- split: which GPU holds what ---- */

enum { CELL_ROW = 15, GPU_NAME = 22 };

/* True where GPU `gpu` of `gpus` holds the slice in column `slice` of layer `layer`; the model is
 * gpus layers of gpus slices. */
typedef bool holds_function(uint32_t gpus, uint32_t gpu, uint32_t layer, uint32_t slice);

static bool holds_all(uint32_t gpus, uint32_t gpu, uint32_t layer, uint32_t slice)
{
    (void)gpus, (void)gpu, (void)layer, (void)slice;
    return true;
}

/* Shards are cut without regard to layers; the drawing deals slices out in turn. */
static bool holds_shard(uint32_t gpus, uint32_t gpu, uint32_t layer, uint32_t slice)
{
    return (layer + slice) % gpus == gpu;
}

static bool holds_slice(uint32_t gpus, uint32_t gpu, uint32_t layer, uint32_t slice)
{
    (void)gpus, (void)layer;
    return slice == gpu;
}

static bool holds_layer(uint32_t gpus, uint32_t gpu, uint32_t layer, uint32_t slice)
{
    (void)gpus, (void)slice;
    return layer == gpu;
}

/* Four GPUs: tensor parallel in pairs, two stages. */
static bool holds_quarter(uint32_t gpus, uint32_t gpu, uint32_t layer, uint32_t slice)
{
    return layer / (gpus / 2) == gpu / 2 && slice / (gpus / 2) == gpu % 2;
}

typedef struct split_way {
    const char *title, *sentence;
    holds_function *holds;
    bool own_batch;         /* each GPU computes a part of the batch */
    const char *travels[2]; /* what is sent */
} split_way;

static double draw_gpu(const split_way *way, uint32_t gpus, uint32_t gpu, double y, ls_text *text)
{
    const double pitch = (double)INNER / gpus, cell = (pitch - 12) / gpus;
    const double x = MARGIN + gpu * pitch;
    char name[48];
    snprintf(name, sizeof name,
             way->own_batch ? "GPU %" PRIu32 ": batch %" PRIu32 "/%" PRIu32 : "GPU %" PRIu32, gpu, gpu + 1,
             gpus);
    ls_svg_label(text, x, y + 11, LS_SVG_START, -1, name);
    for (uint32_t layer = 0; layer < gpus; layer++) {
        for (uint32_t slice = 0; slice < gpus; slice++) {
            const double left = x + slice * cell, top = y + GPU_NAME + layer * CELL_ROW;
            if (way->holds(gpus, gpu, layer, slice)) {
                ls_svg_bar(text, (ls_svg_rect){left, top, cell - 2, CELL_ROW - 4},
                           ls_drawing_rank_color(gpu));
            } else {
                ls_svg_box(text, (ls_svg_rect){left, top, cell - 2, CELL_ROW - 4}, LS_DRAWING_GREY, NULL);
            }
        }
    }
    return y + GPU_NAME + gpus * CELL_ROW;
}

static double draw_way(const split_way *way, uint32_t gpus, double y, ls_text *text)
{
    double end = y = ls_drawing_heading(text, y, way->title, way->sentence);
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        end = draw_gpu(way, gpus, gpu, y, text);
    }
    for (size_t i = 0; i < 2; i++) {
        if (way->travels[i]) {
            end += 16;
            ls_svg_label(text, MARGIN, end, LS_SVG_START, -1, way->travels[i]);
        }
    }
    return end + 26;
}

ls_status ls_drawing_split(uint32_t gpus, ls_text *text)
{
    static const split_way ways[] = {
        {"1 · Data parallel",
         "Every GPU has the whole model and a part of the batch",
         holds_all,
         true,
         {"Sent: gradients, added over all GPUs once per step.",
          "Memory: the whole model, however many GPUs."}},
        {"2 · Sharded (ZeRO-3, FSDP)",
         "The same, but every GPU keeps only a part of everything",
         holds_shard,
         true,
         {"Sent: each layer's weights before it is computed, forward and backward;", "its gradients after."}},
        {"3 · Tensor parallel",
         "Every matrix is cut; all GPUs work on each layer together",
         holds_slice,
         false,
         {"Sent: activations, added twice in each layer, forward and backward.",
          "Only over the fastest links: inside a node."}},
        {"4 · Pipeline",
         "Every GPU has some of the layers",
         holds_layer,
         false,
         {"Sent: activations between two stages, to the next GPU. Little, but the",
          "first stage waits at the end and the last stage at the beginning."}},
        {"5 · Combined",
         "Tensor parallel in pairs, two pipeline stages",
         holds_quarter,
         false,
         {"Copies of the four, each with its part of the batch, add data parallelism.", NULL}},
    };
    LS_TRY(check_count("GPUs that a model is split over", gpus, 2, LS_SPLIT_DRAWING_GPUS_MAX));
    ls_text parts = {0};
    double y =
        ls_drawing_heading(&parts, 14, "A model split over GPUs",
                           "Rows are layers, columns are slices of matrices; coloured: what it holds") +
        8;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (ways[i].holds != holds_quarter || gpus == 4) {
            y = draw_way(&ways[i], gpus, y, &parts);
        }
    }
    ls_drawing_finish(text, y, "Ways to split a model over GPUs", &parts);
    return LS_OK;
}

/* ---- pipeline: who computes what when ---- */

enum { STAGE_NAME = 52, STAGE_ROW = 22, FORWARD = 1, BACKWARD = 2, FORWARD_COLOR = 0, BACKWARD_COLOR = 2 };

typedef struct pipeline_piece {
    bool backward;
    uint32_t micro_batch;
    uint32_t start; /* in forwards; a backward takes two */
} pipeline_piece;

typedef struct pipeline_run {
    uint32_t stages, micro_batches;
    pipeline_piece pieces[LS_PIPELINE_DRAWING_STAGES_MAX][2 * LS_PIPELINE_DRAWING_MICRO_BATCHES_MAX];
    /* the most micro-batches whose activations a stage holds at once */
    uint32_t held[LS_PIPELINE_DRAWING_STAGES_MAX];
    uint32_t end;
} pipeline_run;

/* The order of a stage: `warm_up` forwards, then a backward after each forward, then the remaining
 * backwards. */
static void order_stage(pipeline_run *run, uint32_t stage, uint32_t warm_up)
{
    const uint32_t m = run->micro_batches;
    uint32_t forward = 0, backward = 0;
    for (uint32_t i = 0; i < 2 * m; i++) {
        const bool is_forward = forward < m && forward - backward <= warm_up;
        run->pieces[stage][i] =
            (pipeline_piece){.backward = !is_forward, .micro_batch = is_forward ? forward++ : backward++};
        const uint32_t held = forward - backward + (is_forward ? 0 : 1);
        run->held[stage] = held > run->held[stage] ? held : run->held[stage];
    }
}

/* When a piece of another stage ends. Its place in the order of that stage is found by a search. */
static uint32_t end_of(const pipeline_run *run, uint32_t stage, bool backward, uint32_t micro_batch)
{
    for (uint32_t i = 0; i < 2 * run->micro_batches; i++) {
        const pipeline_piece *piece = &run->pieces[stage][i];
        if (piece->backward == backward && piece->micro_batch == micro_batch) {
            return piece->start + (backward ? BACKWARD : FORWARD);
        }
    }
    return 0;
}

static uint32_t earliest(const pipeline_run *run, uint32_t stage, const pipeline_piece *piece)
{
    if (!piece->backward) {
        return stage > 0 ? end_of(run, stage - 1, false, piece->micro_batch) : 0;
    }
    return stage + 1 < run->stages ? end_of(run, stage + 1, true, piece->micro_batch)
                                   : end_of(run, stage, false, piece->micro_batch);
}

/* Starts only grow, so repeating until none changes gives the earliest possible ones. */
static void settle_starts(pipeline_run *run)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t stage = 0; stage < run->stages; stage++) {
            uint32_t free_from = 0;
            for (uint32_t i = 0; i < 2 * run->micro_batches; i++) {
                pipeline_piece *piece = &run->pieces[stage][i];
                const uint32_t ready = earliest(run, stage, piece);
                const uint32_t start = ready > free_from ? ready : free_from;
                moved = moved || start != piece->start;
                piece->start = start;
                free_from = start + (piece->backward ? BACKWARD : FORWARD);
                run->end = free_from > run->end ? free_from : run->end;
            }
        }
    }
}

static pipeline_run run_pipeline(uint32_t stages, uint32_t micro_batches, bool all_forward_first)
{
    pipeline_run run = {.stages = stages, .micro_batches = micro_batches};
    for (uint32_t stage = 0; stage < stages; stage++) {
        order_stage(&run, stage, all_forward_first ? micro_batches : stages - 1 - stage);
    }
    settle_starts(&run);
    return run;
}

static double draw_pipeline_run(const pipeline_run *run, uint32_t widest, double y, ls_text *text)
{
    const double unit = (double)(INNER - STAGE_NAME) / widest;
    char name[24];
    for (uint32_t stage = 0; stage < run->stages; stage++, y += STAGE_ROW) {
        snprintf(name, sizeof name, "GPU %" PRIu32, stage);
        ls_svg_label(text, MARGIN, y + 13, LS_SVG_START, -1, name);
        for (uint32_t i = 0; i < 2 * run->micro_batches; i++) {
            const pipeline_piece *piece = &run->pieces[stage][i];
            const double x = MARGIN + STAGE_NAME + piece->start * unit;
            const double width = unit * (piece->backward ? BACKWARD : FORWARD) - 1;
            ls_svg_box(text, (ls_svg_rect){x, y, width, STAGE_ROW - 4},
                       piece->backward ? BACKWARD_COLOR : FORWARD_COLOR, NULL);
            snprintf(name, sizeof name, "%" PRIu32, piece->micro_batch + 1);
            if (unit >= 9 || piece->backward) {
                ls_svg_label(text, x + width / 2, y + 13, LS_SVG_MIDDLE, -1, name);
            }
        }
    }
    return y;
}

static double draw_schedule(const char *title, const pipeline_run *run, uint32_t widest, double y,
                            ls_text *text)
{
    char sentence[128];
    const uint32_t busy = run->micro_batches * (FORWARD + BACKWARD);
    snprintf(sentence, sizeof sentence,
             "Idle: %.0f %% of the time. GPU 0 holds activations of %" PRIu32 " micro-batch%s",
             100.0 * (run->end - busy) / run->end, run->held[0], run->held[0] == 1 ? "" : "es");
    y = ls_drawing_heading(text, y, title, sentence);
    return draw_pipeline_run(run, widest, y, text) + 14;
}

ls_status ls_drawing_pipeline(uint32_t stages, uint32_t micro_batches, ls_text *text)
{
    static const char *const names[] = {"forward", "backward, twice as long"};
    static const int colors[] = {FORWARD_COLOR, BACKWARD_COLOR};
    LS_TRY(check_count("stages of a pipeline", stages, 2, LS_PIPELINE_DRAWING_STAGES_MAX));
    LS_TRY(check_count("micro-batches", micro_batches, 2, LS_PIPELINE_DRAWING_MICRO_BATCHES_MAX));
    const uint32_t fewer = micro_batches / 2;
    const pipeline_run few = run_pipeline(stages, fewer, false);
    const pipeline_run all_first = run_pipeline(stages, micro_batches, true);
    const pipeline_run in_turn = run_pipeline(stages, micro_batches, false);
    ls_text parts = {0};
    char title[96];
    snprintf(title, sizeof title, "1 · %" PRIu32 " micro-batch%s", fewer, fewer == 1 ? "" : "es");
    double y = draw_schedule(title, &few, in_turn.end, 14, &parts);
    snprintf(title, sizeof title, "2 · %" PRIu32 " micro-batches, all forward first (GPipe)", micro_batches);
    y = draw_schedule(title, &all_first, in_turn.end, y, &parts);
    snprintf(title, sizeof title, "3 · %" PRIu32 " micro-batches, in turn (1F1B)", micro_batches);
    y = draw_schedule(title, &in_turn, in_turn.end, y, &parts);
    y = ls_svg_legend(&parts, &(ls_svg_names){names, colors, 2}, MARGIN, y + 6, WIDTH - MARGIN);
    ls_drawing_finish(text, y + 20, "A pipeline fills and drains", &parts);
    return LS_OK;
}

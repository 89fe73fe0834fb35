// SPDX-License-Identifier: Apache-2.0
#include "planning/money/ladder.h"

#include "planning/money/cost.h"

#include <math.h>
#include <stdio.h>

enum { EIGHT = 8 };

typedef enum stage_kind { ONE_NODE, EIGHT_GPUS, TENTH, FULL } stage_kind;

static const struct {
    const char *name, *purpose;
    double hours, share; /* Limits of a stage: hours, and share of the full run. */
} kinds[] = {
    [ONE_NODE] = {"one node", "a copy with few layers: it learns, and resumes exactly", 1.0, 0.02},
    [EIGHT_GPUS] = {"8 GPUs", "as many layers as fit: speed and memory match the prediction", 2.0, 0.05},
    [TENTH] = {"a tenth", "the whole model over the network: scaling, checkpoints, failures", 24.0, 0.2},
    [FULL] = {"full", "the run", INFINITY, 1.0},
};

typedef struct size {
    stage_kind kind;
    int64_t gpus;
} size;

/* The next number of nodes, from `nodes` upwards, that has at most three binary digits set. */
static int64_t round_up(int64_t nodes)
{
    int64_t step = 1;
    while (nodes >= 8 * step) {
        step *= 2;
    }
    return (nodes + step - 1) / step * step;
}

size_t ls_ladder_tenths(const ls_node *node, int64_t gpus, int64_t gpus_out[LS_LADDER_TENTHS])
{
    const int64_t tenth = (gpus + 10 * node->count - 1) / (10 * node->count);
    size_t count = 0;
    for (int64_t nodes = round_up(tenth < 2 ? 2 : tenth);
         nodes * node->count < gpus && count < LS_LADDER_TENTHS; nodes = round_up(nodes + 1)) {
        gpus_out[count++] = nodes * node->count;
    }
    return count;
}

static size_t find_sizes(const ls_ladder_setting *s, size sizes_out[LS_LADDER_MOST])
{
    size candidates[] = {{ONE_NODE, s->node->count}, {EIGHT_GPUS, EIGHT}, {TENTH, s->tenth_gpus}};
    if (s->node->count > EIGHT) {
        candidates[0] = (size){EIGHT_GPUS, EIGHT};
        candidates[1] = (size){ONE_NODE, s->node->count};
    }
    size_t count = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const bool is_smaller = candidates[i].gpus > 0 && candidates[i].gpus < s->gpus;
        const bool is_more =
            count == 0 || candidates[i].gpus > sizes_out[count - 1].gpus || candidates[i].kind != TENTH;
        if (is_smaller && is_more) {
            sizes_out[count++] = candidates[i];
        }
    }
    sizes_out[count++] = (size){FULL, s->gpus};
    return count;
}

/* ---- what must be seen ---- */

#define CRITERION(index, ...) snprintf(stage->criteria[index], sizeof stage->criteria[index], __VA_ARGS__)

static void demand_one_node(const ls_ladder_setting *s, ls_ladder_stage *stage)
{
    CRITERION(0, "it memorises one batch: loss below 0.1");
    CRITERION(1, "stopped and resumed, it %s",
              s->is_exact ? "has the state_hash and curve_hash of an uninterrupted run"
                          : "continues with the losses of an uninterrupted run, to the last digit shown");
    CRITERION(2, "a person has read 100 samples of the data as the tokenizer sees them");
}

static void demand_eight_gpus(const ls_ladder_setting *s, ls_ladder_stage *stage)
{
    CRITERION(0, "step time within -%.0f to +%.0f %% of the plan for these layers on these GPUs",
              100.0 * (1.0 - s->step_band[0]), 100.0 * (s->step_band[1] - 1.0));
    CRITERION(1, "peak memory within 5 %% of the plan for them");
    CRITERION(2, "no step waits more than 3 %% of its time for data");
}

static void demand_tenth(const ls_ladder_setting *s, ls_ladder_stage *stage)
{
    const double predicted = s->tenth_tokens_ps;
    const bool is_tenth = stage->gpus < s->gpus / 10 + 2 * s->node->count;
    snprintf(stage->note, sizeof stage->note, "%s%s%s",
             is_tenth ? "" : "the fewest GPUs, a tenth or more, that hold the model",
             !is_tenth && s->tenth_strategy ? ": " : "", s->tenth_strategy ? s->tenth_strategy : "");
    CRITERION(0, "at least %s tokens/s (predicted %s)", ls_quantity_of(predicted / s->step_band[1]).text,
              ls_quantity_of(predicted).text);
    CRITERION(1, "memory at most %.1f GiB on the fullest GPU (predicted %.1f)", 1.05 * s->tenth_memory_gib,
              s->tenth_memory_gib);
    CRITERION(2,
              "a node killed on purpose costs at most %.0f s and the work since the last checkpoint, %.0f s",
              s->restart_s, s->interval_s);
    CRITERION(3, "the loss follows the curve of the smaller runs");
}

static void demand_full(const ls_ladder_setting *s, ls_ladder_stage *stage)
{
    if (s->tenth_gpus == 0 && s->gpus > 2 * s->node->count) {
        snprintf(stage->note, sizeof stage->note,
                 "no stage at a tenth: the model fits on no fewer than %lld GPUs", (long long)s->gpus);
    }
    CRITERION(0, "in the first hour: a step between %s and %s s",
              ls_plain_of(s->step_s * s->step_band[0]).text, ls_plain_of(s->step_s * s->step_band[1]).text);
    CRITERION(1, "in the first week: goodput of at least %.2f (predicted %.3f)", s->goodput - 0.05,
              s->goodput);
    CRITERION(2, "no validation loss above that of the last checkpoint for more than a day");
}

static void demand(const ls_ladder_setting *s, stage_kind kind, ls_ladder_stage *stage)
{
    switch (kind) {
    case ONE_NODE:
        demand_one_node(s, stage);
        break;
    case EIGHT_GPUS:
        demand_eight_gpus(s, stage);
        break;
    case TENTH:
        demand_tenth(s, stage);
        break;
    case FULL:
        demand_full(s, stage);
        break;
    }
}

void ls_ladder_compute(const ls_ladder_setting *setting, ls_ladder *ladder_out)
{
    ls_ladder_setting s = *setting;
    if (!(s.step_band[0] > 0.0) || !(s.step_band[1] > s.step_band[0])) {
        s.step_band[0] = 0.9;
        s.step_band[1] = 1.1;
    }
    size sizes[LS_LADDER_MOST];
    *ladder_out = (ls_ladder){.count = find_sizes(&s, sizes)};
    const double run_h = 24.0 * s.run_days;
    double cumulated = 0.0;
    for (size_t i = 0; i < ladder_out->count; i++) {
        const stage_kind kind = sizes[i].kind;
        ls_ladder_stage *stage = &ladder_out->stages[i];
        *stage = (ls_ladder_stage){
            .name = kinds[kind].name, .purpose = kinds[kind].purpose, .gpus = sizes[i].gpus};
        stage->hours = fmin(kinds[kind].hours, kinds[kind].share * run_h);
        stage->usd = stage->hours * (double)stage->gpus * s.usd_per_gpu_hour;
        cumulated += stage->usd;
        stage->cumulated_usd = cumulated;
        demand(&s, kind, stage);
    }
}

static void append_stage(const ls_ladder_stage *stage, ls_text *text)
{
    char cost[24] = "-", sum[24] = "-", hours[40];
    if (stage->cumulated_usd > 0.0) {
        ls_cost_format(stage->usd, cost, sizeof cost);
        ls_cost_format(stage->cumulated_usd, sum, sizeof sum);
    }
    if (stage->hours >= 48.0) {
        snprintf(hours, sizeof hours, "%s days", ls_plain_of(stage->hours / 24.0).text);
    } else {
        snprintf(hours, sizeof hours, "%.2g h", stage->hours);
    }
    ls_text_printf(text, "%-9s %6lld GPU%s %9s %9s, in all %s: %s\n", stage->name, (long long)stage->gpus,
                   stage->gpus == 1 ? " " : "s", hours, cost, sum, stage->purpose);
    if (stage->note[0]) {
        ls_text_printf(text, "            %s\n", stage->note);
    }
    for (size_t i = 0; i < LS_LADDER_CRITERIA && stage->criteria[i][0]; i++) {
        ls_text_printf(text, "            - %s\n", stage->criteria[i]);
    }
}

void ls_ladder_append(const ls_ladder *ladder, ls_text *text)
{
    for (size_t i = 0; i < ladder->count; i++) {
        append_stage(&ladder->stages[i], text);
    }
}

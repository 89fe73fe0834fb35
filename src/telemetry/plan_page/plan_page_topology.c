// SPDX-License-Identifier: Apache-2.0
/*
 * The cluster: nodes as rows of GPUs, the network inside and between them, and the groups of GPUs.
 * GPUs are numbered as in planning/step/collective.h: tensor parallel ranks are neighbours, then
 * context, data, and pipeline ranks.
 */
#include "telemetry/plan_page/plan_page_internal.h"

#include "planning/step/collective.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { COLUMNS_MOST = 8, NODES_WIDE = 8, NODES_NARROW = 8, ROWS_MOST = 18, ROW_GAP = 8, STAGE_COLORS = 7 };

typedef struct cluster {
    const ls_strategy *strategy;
    int64_t gpus, per_node, nodes;
    int64_t drawn_per_node;
    int64_t shown[NODES_WIDE]; /* nodes that are drawn */
    size_t shown_count;
    int columns, rows; /* how the GPUs of a node are arranged */
    double left, pitch, cell, row_height, node_height;
} cluster;

/* The position of a GPU in each kind of group. */
typedef struct place {
    int64_t tensor, context, data, stage;
} place;

static place place_of(const ls_strategy *s, int64_t gpu)
{
    return (place){
        .tensor = gpu % s->tp,
        .context = gpu / s->tp % s->cp,
        .data = gpu / (s->tp * s->cp) % s->dp,
        .stage = gpu / (s->tp * s->cp * s->dp),
    };
}

static void show_node(cluster *c, int64_t node, size_t most)
{
    for (size_t i = 0; i < c->shown_count; i++) {
        if (c->shown[i] == node) {
            return;
        }
    }
    if (c->shown_count < most && node < c->nodes) {
        c->shown[c->shown_count++] = node;
    }
}

static void sort_nodes(cluster *c)
{
    for (size_t i = 1; i < c->shown_count; i++) {
        for (size_t k = i; k > 0 && c->shown[k] < c->shown[k - 1]; k--) {
            const int64_t node = c->shown[k];
            c->shown[k] = c->shown[k - 1];
            c->shown[k - 1] = node;
        }
    }
}

/* All nodes when they are few; otherwise the first node of each stage, then the second of each, and
 * so on. */
static void choose_nodes(cluster *c, size_t most)
{
    const ls_strategy *s = c->strategy;
    const int64_t stage_gpus = s->tp * s->cp * s->dp;
    for (int64_t node = 0; c->nodes <= (int64_t)most && node < c->nodes; node++) {
        show_node(c, node, most);
    }
    for (int64_t round = 0; c->shown_count < most && round < (int64_t)most; round++) {
        for (int64_t stage = 0; stage < s->pp; stage++) {
            show_node(c, stage * stage_gpus / c->per_node + round, most);
        }
    }
    sort_nodes(c);
}

static cluster lay_out(const ls_plan_page *page, const ls_canvas *canvas)
{
    cluster c = {.strategy = &page->plan->estimate.strategy,
                 .gpus = page->plan->setting.gpus,
                 .per_node = page->plan->setting.node->count};
    c.per_node = c.per_node > 0 ? c.per_node : 1;
    c.nodes = (c.gpus + c.per_node - 1) / c.per_node;
    c.per_node = c.nodes == 1 ? c.gpus : c.per_node;
    choose_nodes(&c, ls_canvas_is_narrow(canvas) ? NODES_NARROW : NODES_WIDE);
    const int64_t room = COLUMNS_MOST * (ROWS_MOST / (int64_t)c.shown_count);
    c.drawn_per_node = c.per_node < room ? c.per_node : room;
    c.columns = c.drawn_per_node < COLUMNS_MOST ? (int)c.drawn_per_node : COLUMNS_MOST;
    c.rows = (int)((c.drawn_per_node + c.columns - 1) / c.columns);
    c.left = LS_PAGE_MARGIN + 64;
    c.pitch = fmin(108.0, (canvas->width - LS_PAGE_MARGIN - 8 - c.left) / c.columns);
    c.cell = c.pitch - 6;
    c.row_height = 30;
    c.node_height = c.rows * c.row_height + 10;
    return c;
}

static double node_y(const cluster *c, double top, size_t i)
{
    return top + (double)i * (c->node_height + ROW_GAP);
}

/* One line for each GPU position that has a NIC of its own, through all nodes to the switches. */
static void draw_rails(const cluster *c, double top, double bottom, ls_text *text)
{
    for (int column = 0; column < c->columns; column++) {
        const double x = c->left + column * c->pitch + c->pitch / 2;
        ls_svg_line(text, x, top, x, bottom);
    }
    ls_svg_box(text, (ls_svg_rect){c->left - 4, bottom, c->columns * c->pitch + 6, 24}, LS_PAGE_WAITING,
               c->columns >= 5 ? "switches: one rail for each column" : "switches");
}

/* A frame around the GPUs of a tensor parallel group that are in one row. */
static void draw_tensor_frames(const cluster *c, int64_t node, double y, ls_text *text)
{
    if (c->strategy->tp < 2) {
        return;
    }
    for (int row = 0; row < c->rows; row++) {
        for (int column = 0; column < c->columns;) {
            const int64_t local = (int64_t)row * c->columns + column, gpu = node * c->per_node + local;
            int64_t span = c->strategy->tp - gpu % c->strategy->tp;
            span = span < c->columns - column ? span : c->columns - column;
            span = span < c->drawn_per_node - local ? span : c->drawn_per_node - local;
            if (gpu >= c->gpus || span < 1) {
                break;
            }
            ls_text_printf(text,
                           "<rect class=\"ls-s%d\" fill=\"none\" stroke-width=\"1.5\" stroke-dasharray=\"4 "
                           "3\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\"/>\n",
                           LS_PAGE_COMMUNICATION, c->left + column * c->pitch + 1,
                           y + 4 + row * c->row_height, (double)span * c->pitch - 2, c->row_height + 1);
            column += (int)span;
        }
    }
}

static void draw_gpu(const cluster *c, int64_t gpu, double x, double y, ls_text *text)
{
    char number[24], said[192];
    const place at = place_of(c->strategy, gpu);
    const bool with_first = at.tensor == 0 && at.context == 0 && at.stage == 0 && c->strategy->dp > 1;
    snprintf(said, sizeof said,
             "GPU %" PRId64 ": stage %" PRId64 ", tensor rank %" PRId64 ", context rank %" PRId64
             ", data rank %" PRId64,
             gpu, at.stage + 1, at.tensor, at.context, at.data);
    ls_svg_cell(text, (ls_svg_rect){x, y, c->cell, c->row_height - 8},
                (ls_svg_ink){.color = (int)(at.stage % STAGE_COLORS), .opacity = 0.4}, said);
    if (with_first) {
        ls_svg_bar(text, (ls_svg_rect){x + 2, y + c->row_height - 13, c->cell - 4, 4}, LS_PAGE_BACKWARD);
    }
    snprintf(number, sizeof number, "%" PRId64, gpu);
    if (ls_svg_text_width(number, 0) <= c->cell) {
        ls_svg_label(text, x + c->cell / 2, y + 14, LS_SVG_MIDDLE, 0, number);
    }
}

static void draw_node(const cluster *c, size_t i, double y, ls_text *text)
{
    char name[40];
    const int64_t node = c->shown[i];
    snprintf(name, sizeof name, "node %" PRId64, node);
    ls_svg_label(text, LS_PAGE_MARGIN, y + 17, LS_SVG_START, -1, name);
    if (c->per_node > 1) {
        snprintf(name, sizeof name, "GPU %" PRId64 "..", node * c->per_node);
        ls_svg_label(text, LS_PAGE_MARGIN, y + 31, LS_SVG_START, -1, name);
    }
    ls_text_printf(
        text, "<rect class=\"ls-back\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"6\"/>\n",
        c->left - 4, y, c->columns * c->pitch + 6, c->node_height);
    ls_svg_box(text, (ls_svg_rect){c->left - 4, y, c->columns * c->pitch + 6, c->node_height},
               LS_PAGE_WAITING, NULL);
    draw_tensor_frames(c, node, y, text);
    for (int64_t local = 0; local < c->drawn_per_node; local++) {
        const int64_t gpu = node * c->per_node + local;
        if (gpu < c->gpus) {
            draw_gpu(c, gpu, c->left + (double)(local % c->columns) * c->pitch + 3,
                     y + 9 + (double)(local / c->columns) * c->row_height, text);
        }
    }
}

static void draw_legend(const cluster *c, ls_canvas *canvas)
{
    char stage_names[4][32];
    const char *names[6];
    int colors[6];
    size_t count = 0;
    const int64_t stages = c->strategy->pp;
    for (int64_t stage = 0; stage < stages && stage < 3 && stages > 1; stage++) {
        snprintf(stage_names[stage], sizeof stage_names[stage],
                 stage == 2 && stages > 3 ? "3, ..." : "stage %" PRId64, stage + 1);
        names[count] = stage_names[stage];
        colors[count++] = (int)stage;
    }
    if (c->strategy->tp > 1) {
        names[count] = "frame: tensor parallel group";
        colors[count++] = LS_PAGE_COMMUNICATION;
    }
    if (c->strategy->dp > 1) {
        names[count] = "underlined: data parallel group of GPU 0";
        colors[count++] = LS_PAGE_BACKWARD;
    }
    if (count > 0) {
        ls_canvas_legend(canvas, names, colors, count);
    }
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    const cluster c = lay_out(page, canvas);
    ls_text *text = &canvas->parts;
    draw_legend(&c, canvas);
    const double top = canvas->y + 2;
    const double bottom = node_y(&c, top, c.shown_count);
    if (c.nodes > 1) {
        draw_rails(&c, top + c.node_height, bottom + 4, text);
    }
    for (size_t i = 0; i < c.shown_count; i++) {
        draw_node(&c, i, node_y(&c, top, i), text);
    }
    canvas->y = bottom + (c.nodes > 1 ? 40 : 6);
    if ((int64_t)c.shown_count < c.nodes || c.drawn_per_node < c.per_node) {
        ls_canvas_note(canvas, "Drawn: %zu of %" PRId64 " nodes, %" PRId64 " of %" PRId64 " GPUs in each.",
                       c.shown_count, c.nodes, c.drawn_per_node, c.per_node);
    }
}

/* Bytes per second for people. */
static void append_rate(double bytes_ps, ls_text *text)
{
    ls_text_printf(text, bytes_ps >= 1e12 ? "%.3g TB/s" : "%.3g GB/s",
                   bytes_ps >= 1e12 ? bytes_ps * 1e-12 : bytes_ps * 1e-9);
}

static void say_links(const ls_plan_page *page, ls_text *text)
{
    const ls_node *node = page->plan->setting.node;
    if (page->plan->setting.gpus > 1 && node->count > 1) {
        const bool scaleup = node->accelerator->scaleup_bytes_ps > 0.0;
        const double inside =
            scaleup ? node->accelerator->scaleup_bytes_ps : node->accelerator->pcie_bytes_ps;
        if (inside > 0.0) {
            ls_text_printf(text, "Inside a node, GPUs reach each other at ");
            append_rate(inside, text);
            ls_text_append(text, scaleup ? " each way (NVLink or the like)" : " each way (PCIe)");
            ls_text_append(text, page->plan->setting.gpus > node->count && node->nic_bytes_ps > 0.0
                                     ? "; between nodes, each has "
                                     : ". ");
        }
        if (inside > 0.0 && page->plan->setting.gpus > node->count && node->nic_bytes_ps > 0.0) {
            append_rate(node->nic_bytes_ps, text);
            ls_text_append(text, ". ");
        }
    }
}

static void say(const ls_plan_page *page, ls_text *text)
{
    const ls_strategy *s = &page->plan->estimate.strategy;
    const int64_t gpus = page->plan->setting.gpus,
                  count = page->plan->setting.node->count > 0 ? page->plan->setting.node->count : 1;
    if (gpus == 1) {
        ls_text_append(text, "**One accelerator**: no network is used.");
        return;
    }
    ls_text_append(text, "**");
    ls_page_append_count((gpus + count - 1) / count, text);
    ls_text_printf(text, " node%s**: ", gpus <= count ? "" : "s");
    if (s->tp > 1) {
        ls_text_printf(
            text, "tensor parallel groups of %" PRId64 " exchange the most, so their GPUs are neighbours; ",
            s->tp);
    }
    if (s->pp > 1) {
        ls_text_printf(text,
                       "%" PRId64 " pipeline stages (colours) are farthest apart, as they send the least; ",
                       s->pp);
    }
    ls_text_printf(text, "each gradient is added over %" PRId64 " data parallel GPU%s. ", s->dp * s->cp,
                   s->dp * s->cp == 1 ? "" : "s");
    say_links(page, text);
}

static bool has(const ls_plan_page *page)
{
    return page->plan->setting.gpus >= 1;
}

const ls_page_figure ls_page_topology = {
    .name = "topology",
    .title = "The cluster",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "",
};

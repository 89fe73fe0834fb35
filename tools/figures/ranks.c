// SPDX-License-Identifier: Apache-2.0
#include "figures/drawings.h"

#include "figures/drawings_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = LS_DRAWING_WIDTH,
    MARGIN = LS_DRAWING_MARGIN,
    INNER = LS_DRAWING_INNER,
    GREY = LS_DRAWING_GREY
};

static ls_status check_range(const char *what, uint32_t value, uint32_t min, uint32_t max)
{
    if (value < min || value > max) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " %s can't be drawn, allowed is %" PRIu32 " to %" PRIu32,
                       value, what, min, max);
    }
    return LS_OK;
}

/* ---- ranks: processes and memory ---- */

enum { SIDE = 12, NAME_WIDTH = 104, SLICE_ROW = 18, RANK_BOX = 40 };

/* One row of slices, each in the colour of its owner. Returns the y below the row. */
static double draw_slices(const ls_ranks_drawing *d, double y, const char *name, bool solid, ls_text *text)
{
    const double left = MARGIN + SIDE + NAME_WIDTH, pitch = (WIDTH - MARGIN - SIDE - left) / d->ranks;
    ls_svg_label(text, MARGIN + SIDE, y + 11, LS_SVG_START, -1, name);
    for (uint32_t owner = 0; owner < d->ranks; owner++) {
        if (solid) {
            ls_svg_bar(text, (ls_svg_rect){left + owner * pitch, y, pitch - 3, SLICE_ROW - 5},
                       ls_drawing_rank_color(owner));
        } else {
            ls_svg_box(text, (ls_svg_rect){left + owner * pitch, y, pitch - 3, SLICE_ROW - 5},
                       ls_drawing_rank_color(owner), NULL);
        }
    }
    return y + SLICE_ROW;
}

static void draw_rank(const ls_ranks_drawing *d, uint32_t rank, double x, double y, double width,
                      ls_text *text)
{
    const uint32_t first = d->leaves * rank / d->ranks, end = d->leaves * (rank + 1) / d->ranks;
    char name[48];
    snprintf(name, sizeof name, width > 60 ? "rank %" PRIu32 : "%" PRIu32, rank);
    ls_svg_box(text, (ls_svg_rect){x, y, width, RANK_BOX - 12}, ls_drawing_rank_color(rank), name);
    if (end - first == 1) {
        snprintf(name, sizeof name, "leaf %" PRIu32, first);
    } else {
        snprintf(name, sizeof name, width > 80 ? "leaves %" PRIu32 "–%" PRIu32 : "%" PRIu32 "–%" PRIu32,
                 first, end - 1);
    }
    ls_svg_label(text, x + width / 2, y + RANK_BOX, LS_SVG_MIDDLE, -1, name);
}

/* The processes, and below them the segment that all of them map. */
static double draw_host(const ls_ranks_drawing *d, uint32_t host, double y, ls_text *text)
{
    const uint32_t local = d->ranks / d->hosts, first = host * local;
    const double height = 30 + RANK_BOX + 38 + local * SLICE_ROW + 14 + SLICE_ROW + 4;
    const double pitch = (double)(INNER - 2 * SIDE + 6) / local;
    char name[64];
    ls_svg_box(text, (ls_svg_rect){MARGIN, y, INNER, height}, GREY, NULL);
    snprintf(name, sizeof name, d->hosts > 1 ? "host %" PRIu32 : "this host", host);
    ls_svg_label(text, MARGIN + SIDE, y + 20, LS_SVG_START, 0, name);
    ls_svg_label(text, WIDTH - MARGIN - SIDE, y + 20, LS_SVG_END, -1,
                 host == 0 ? "lockstep train: trainer, coordinator, agent" : "lockstep agent");
    double at = y + 30;
    for (uint32_t i = 0; i < local; i++) {
        draw_rank(d, first + i, MARGIN + SIDE + i * pitch, at, pitch - 6, text);
    }
    at += RANK_BOX + 12;
    ls_svg_line(text, MARGIN + SIDE, at, WIDTH - MARGIN - SIDE, at);
    ls_svg_label(text, MARGIN + SIDE, at + 16, LS_SVG_START, -1,
                 "shared memory; a column belongs to the rank of its colour");
    at += 26;
    for (uint32_t i = 0; i < local; i++) {
        snprintf(name, sizeof name, "gradients of %" PRIu32, first + i);
        at = draw_slices(d, at, name, false, text);
    }
    const double left = MARGIN + SIDE + NAME_WIDTH, slice = (WIDTH - MARGIN - SIDE - left) / d->ranks;
    for (uint32_t owner = 0; owner < d->ranks; owner++) {
        if (owner / local == host) { /* summed here; the other columns go to another host */
            ls_svg_arrow(text, left + (owner + 0.5) * slice - 1.5, at - 3, left + (owner + 0.5) * slice - 1.5,
                         at + 11);
        }
    }
    draw_slices(d, at + 14, "weights, once", true, text);
    return y + height;
}

ls_status ls_drawing_ranks(const ls_ranks_drawing *d, ls_text *text)
{
    LS_TRY(check_range("ranks", d->ranks, 1, LS_RANKS_DRAWING_RANKS_MAX));
    LS_TRY(check_range("hosts", d->hosts, 1, LS_RANKS_DRAWING_HOSTS_MAX));
    if (d->ranks % d->hosts != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%" PRIu32 " ranks can't be shared by %" PRIu32 " hosts evenly: choose a multiple",
                       d->ranks, d->hosts);
    }
    if (d->ranks > d->leaves) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " ranks, allowed is 1 to the number of leaves, %" PRIu32,
                       d->ranks, d->leaves);
    }
    ls_text parts = {0};
    char title[96];
    snprintf(title, sizeof title,
             d->hosts > 1 ? "%" PRIu32 " ranks on %" PRIu32 " hosts" : "%" PRIu32 " ranks on one host",
             d->ranks, d->hosts);
    double y = ls_drawing_heading(&parts, 14, title,
                                  "Processes, the leaves they compute, and the memory they share");
    for (uint32_t host = 0; host < d->hosts; host++) {
        if (host > 0) {
            ls_svg_arrow(&parts, WIDTH / 2.0 - 8, y, WIDTH / 2.0 - 8, y + 36);
            ls_svg_arrow(&parts, WIDTH / 2.0 + 8, y + 36, WIDTH / 2.0 + 8, y);
            ls_svg_label(&parts, WIDTH / 2.0 + 20, y + 15, LS_SVG_START, -1, "sums to a column's owner,");
            ls_svg_label(&parts, WIDTH / 2.0 + 20, y + 30, LS_SVG_START, -1, "new weights back");
            y += 38;
        }
        y = draw_host(d, host, y, &parts);
    }
    ls_drawing_finish(text, y + 14, title, &parts);
    return LS_OK;
}

/* ---- ring: three ways to add ---- */

enum { STEP_NAME = 52, RING_ROW = 40, RING_BOX = 24 };

static double column_pitch(uint32_t ranks)
{
    return (double)(INNER - STEP_NAME) / ranks;
}

static double column_x(uint32_t ranks, uint32_t rank)
{
    return MARGIN + STEP_NAME + rank * column_pitch(ranks);
}

static double column_middle(uint32_t ranks, uint32_t rank)
{
    return column_x(ranks, rank) + (column_pitch(ranks) - 8) / 2;
}

static double draw_rank_names(uint32_t ranks, double y, ls_text *text)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        char name[24];
        snprintf(name, sizeof name, "rank %" PRIu32, rank);
        ls_svg_label(text, column_middle(ranks, rank), y + 8, LS_SVG_MIDDLE, -1, name);
    }
    return y + 16;
}

/* "2+3+0": whose numbers are in a chunk that began at rank `first` and has been passed on `hops`
 * times, in the order they were added. */
static void ring_sum(uint32_t ranks, uint32_t first, uint32_t hops, char *name, size_t bytes)
{
    size_t used = 0;
    for (uint32_t i = 0; i <= hops && used < bytes; i++) {
        used +=
            (size_t)snprintf(name + used, bytes - used, "%s%" PRIu32, i > 0 ? "+" : "", (first + i) % ranks);
    }
}

static double draw_ring_way(uint32_t ranks, double y, ls_text *text)
{
    char sentence[128], name[32];
    snprintf(sentence, sizeof sentence,
             "Neighbour to neighbour: %" PRIu32 " hop%s, as many again to share the sums", ranks - 1,
             ranks == 2 ? "" : "s");
    y = ls_drawing_heading(text, y, "1 · A ring", sentence);
    y = draw_rank_names(ranks, y, text);
    for (uint32_t hop = 0; hop < ranks; hop++) {
        snprintf(name, sizeof name, hop + 1 < ranks ? "hop %" PRIu32 : "sums", hop + 1);
        ls_svg_label(text, MARGIN, y + 16, LS_SVG_START, -1, name);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const uint32_t chunk = (rank + ranks - hop) % ranks;
            const double width = column_pitch(ranks) - 8;
            ring_sum(ranks, chunk, hop, name, sizeof name);
            ls_svg_box(text, (ls_svg_rect){column_x(ranks, rank), y, width, RING_BOX},
                       ls_drawing_rank_color(chunk), name);
            if (hop + 1 == ranks) {
                continue;
            }
            if (rank + 1 < ranks) {
                ls_svg_arrow(text, column_middle(ranks, rank) + width / 4, y + RING_BOX,
                             column_middle(ranks, rank + 1) - width / 4, y + RING_ROW);
            } else { /* from the last rank to the first: out on the right, in on the left */
                ls_svg_line(text, column_middle(ranks, rank) + width / 4, y + RING_BOX, WIDTH - MARGIN,
                            y + RING_ROW - 6);
                ls_svg_arrow(text, column_x(ranks, 0) - 10, y + RING_ROW - 8, column_x(ranks, 0) + width / 4,
                             y + RING_ROW);
            }
        }
        y += RING_ROW;
    }
    ls_svg_label(text, MARGIN, y, LS_SVG_START, -1,
                 "Each colour is added in another order: bits depend on where a number is");
    return y + 30;
}

/* "(0+1)+2": the tree over [first, first + length). */
static size_t tree_sum(uint32_t first, uint32_t length, bool is_root, char *name, size_t bytes)
{
    if (length == 1) {
        return (size_t)snprintf(name, bytes, "%" PRIu32, first);
    }
    uint32_t left = 1;
    while (left * 2 < length) {
        left *= 2;
    }
    size_t used = (size_t)snprintf(name, bytes, "%s", is_root ? "" : "(");
    used += tree_sum(first, left, false, name + used, bytes - used);
    used += (size_t)snprintf(name + used, bytes - used, "+");
    used += tree_sum(first + left, length - left, false, name + used, bytes - used);
    return used + (size_t)snprintf(name + used, bytes - used, "%s", is_root ? "" : ")");
}

/* A rank's buffer: one bar per chunk, in the colour of the chunk's owner. */
static double chunk_middle(uint32_t ranks, uint32_t rank, uint32_t chunk)
{
    return column_x(ranks, rank) + (chunk + 0.5) * (column_pitch(ranks) - 8) / ranks;
}

static double draw_direct_way(uint32_t ranks, double y, ls_text *text)
{
    enum { FALL = 76, BAR = 14 };
    char name[64];
    y = ls_drawing_heading(text, y, "2 · Direct exchange, in the order of the tree",
                           "Each chunk goes to its owner, and the sum comes back: 2 hops");
    y = draw_rank_names(ranks, y, text);
    ls_svg_label(text, MARGIN, y + 10, LS_SVG_START, -1, "has");
    const double sums = y + FALL, back = sums + RING_BOX + FALL - BAR;
    ls_svg_label(text, MARGIN, sums + 16, LS_SVG_START, -1, "adds");
    ls_svg_label(text, MARGIN, back + 10, LS_SVG_START, -1, "gets");
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const double width = (column_pitch(ranks) - 8) / ranks;
        for (uint32_t chunk = 0; chunk < ranks; chunk++) {
            const double x = chunk_middle(ranks, rank, chunk), owner = chunk_middle(ranks, chunk, rank);
            ls_svg_bar(text, (ls_svg_rect){x - width / 2 + 1, y, width - 2, BAR},
                       ls_drawing_rank_color(chunk));
            ls_svg_arrow(text, x, y + BAR + 2, owner, sums - 2);
            ls_svg_arrow(text, owner, sums + RING_BOX + 2, x, back - 2);
            ls_svg_bar(text, (ls_svg_rect){x - width / 2 + 1, back, width - 2, BAR},
                       ls_drawing_rank_color(chunk));
        }
    }
    tree_sum(0, ranks, true, name, sizeof name);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        char by[24];
        snprintf(by, sizeof by, "by rank %" PRIu32, rank);
        ls_svg_box(text, (ls_svg_rect){column_x(ranks, rank), sums, column_pitch(ranks) - 8, RING_BOX},
                   ls_drawing_rank_color(rank), by);
    }
    y = back + BAR + 16;
    char sentence[128];
    snprintf(sentence, sizeof sentence, "Every number is %s, and no more bytes move than in the ring", name);
    ls_svg_label(text, MARGIN, y, LS_SVG_START, -1, sentence);
    return y + 30;
}

static double draw_shared_way(uint32_t ranks, double y, ls_text *text)
{
    enum { ROW = 20 };
    char name[32], sentence[96];
    const double left = MARGIN + 76, pitch = (WIDTH - MARGIN - left) / ranks;
    y = ls_drawing_heading(text, y, "3 · One host: nothing is sent",
                           "All buffers are in shared memory; each rank adds its column in place");
    for (uint32_t rank = 0; rank <= ranks; rank++) {
        const bool is_sum = rank == ranks;
        y += is_sum ? 14 : 0;
        snprintf(name, sizeof name, is_sum ? "sums" : "rank %" PRIu32, rank);
        ls_svg_label(text, MARGIN, y + 12, LS_SVG_START, -1, name);
        for (uint32_t owner = 0; owner < ranks; owner++) {
            const double x = left + owner * pitch;
            if (is_sum) {
                snprintf(name, sizeof name, pitch > 60 ? "by rank %" PRIu32 : "by %" PRIu32, owner);
                ls_svg_box(text, (ls_svg_rect){x, y, pitch - 6, RING_BOX}, ls_drawing_rank_color(owner),
                           name);
                ls_svg_arrow(text, x + pitch / 2 - 3, y - 16, x + pitch / 2 - 3, y - 2);
            } else {
                ls_svg_bar(text, (ls_svg_rect){x, y, pitch - 6, ROW - 6}, ls_drawing_rank_color(owner));
            }
        }
        y += ROW;
    }
    snprintf(sentence, sizeof sentence,
             "%" PRIu32 " buffers read, each sum written into all %" PRIu32 ": as fast as %" PRIu32 " copies",
             ranks, ranks, ranks);
    ls_svg_label(text, MARGIN, y + 22, LS_SVG_START, -1, sentence);
    return y + 40;
}

ls_status ls_drawing_ring(uint32_t ranks, ls_text *text)
{
    LS_TRY(check_range("ranks in a ring", ranks, 2, LS_RING_DRAWING_RANKS_MAX));
    ls_text parts = {0};
    double y = draw_ring_way(ranks, 14, &parts);
    y = draw_direct_way(ranks, y, &parts);
    y = draw_shared_way(ranks, y, &parts);
    ls_drawing_finish(text, y, "Three ways to add the buffers of several ranks", &parts);
    return LS_OK;
}

/* ---- out of step ---- */

enum { LANE = 28, LANE_BOX = 20, LANE_NAME = 56 };

/* What a rank does; from..to in hundredths of the width. */
typedef struct lane_piece {
    int from, to, color; /* color -1: waiting, drawn as a line */
    const char *name;
} lane_piece;

static double lane_x(int hundredths)
{
    return MARGIN + LANE_NAME + hundredths * (INNER - LANE_NAME) / 100.0;
}

static void draw_lane(uint32_t rank, const lane_piece *pieces, size_t count, double y, ls_text *text)
{
    char name[24];
    snprintf(name, sizeof name, "rank %" PRIu32, rank);
    ls_svg_label(text, MARGIN, y + 15, LS_SVG_START, 0, name);
    for (size_t i = 0; i < count; i++) {
        const lane_piece *p = &pieces[i];
        const double x = lane_x(p->from), end = lane_x(p->to);
        if (p->color < 0) {
            ls_svg_line(text, x, y + LANE_BOX / 2.0, end, y + LANE_BOX / 2.0);
            if (p->name) {
                ls_svg_label(text, (x + end) / 2, y + LANE_BOX / 2.0 - 4, LS_SVG_MIDDLE, -1, p->name);
            }
        } else {
            ls_svg_box(text, (ls_svg_rect){x, y, end - x - 3, LANE_BOX}, p->color, p->name);
        }
    }
}

/* One case: the last rank but one is the odd one; all others do the same. `moment`: when the report
 * is made, with its words. */
typedef struct scene_drawing {
    const char *title, *sentence, *moment;
    int moment_at;
    lane_piece others[4], odd[4];
    size_t others_count, odd_count;
} scene_drawing;

static const scene_drawing scenes[] = {
    {.title = "1 · Different operations",
     .sentence = "Records are compared before data moves",
     .moment = "mismatch: both sides, at once",
     .moment_at = 52,
     .others = {{0, 30, 5, "backward"}, {30, 52, 0, "all-reduce"}},
     .others_count = 2,
     .odd = {{0, 30, 5, "backward"}, {30, 52, 4, "all-gather"}},
     .odd_count = 2},
    {.title = "2 · A late rank",
     .sentence = "The others wait in an operation that one rank has not reached",
     .moment = "late: who, in what, with its stack",
     .moment_at = 86,
     .others = {{0, 30, 5, "backward"}, {30, 48, 0, "reduce"}, {48, 100, -1, NULL}},
     .others_count = 3,
     .odd = {{0, 22, 5, "backward"}, {22, 100, 6, "stopped by a signal"}},
     .odd_count = 2},
    {.title = "3 · A dead rank",
     .sentence = "The kernel tells the agent within milliseconds; no rank has to time out",
     .moment = "lost: rank, signal, last place",
     .moment_at = 33,
     .others = {{0, 33, 5, "backward"}},
     .others_count = 1,
     .odd = {{0, 30, 4, "killed"}},
     .odd_count = 1},
};

static double draw_scene(const scene_drawing *s, uint32_t ranks, double y, ls_text *text)
{
    y = ls_drawing_heading(text, y, s->title, s->sentence);
    const double top = y;
    for (uint32_t rank = 0; rank < ranks; rank++, y += LANE) {
        const bool is_odd = rank + 2 == ranks;
        draw_lane(rank, is_odd ? s->odd : s->others, is_odd ? s->odd_count : s->others_count, y, text);
    }
    const double x = lane_x(s->moment_at);
    ls_svg_line(text, x, top - 2, x, y + 2);
    ls_svg_label(text, x, y + 16, s->moment_at > 60 ? LS_SVG_END : LS_SVG_START, -1, s->moment);
    return y + 34;
}

/* Two ranks, two groups, opposite order. */
static double draw_circle(double y, ls_text *text)
{
    static const lane_piece lanes[2][2] = {
        {{0, 36, 0, "all-reduce in A"}, {36, 100, -1, "then it would call B"}},
        {{0, 36, 2, "all-reduce in B"}, {36, 100, -1, "then it would call A"}},
    };
    y = ls_drawing_heading(text, y, "4 · A circle",
                           "Two groups, called in opposite order: each waits for the other forever");
    for (uint32_t rank = 0; rank < 2; rank++, y += LANE) {
        draw_lane(rank, lanes[rank], 2, y, text);
    }
    ls_svg_label(text, MARGIN + LANE_NAME, y + 12, LS_SVG_START, -1,
                 "order deadlock: waiting can't help, so the run ends after a second");
    return y + 30;
}

ls_status ls_drawing_report(uint32_t ranks, ls_text *text)
{
    LS_TRY(check_range("ranks of a report", ranks, 3, LS_REPORT_DRAWING_RANKS_MAX));
    ls_text parts = {0};
    double y = 14;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        y = draw_scene(&scenes[i], ranks, y, &parts);
    }
    y = draw_circle(y, &parts);
    ls_drawing_finish(text, y, "Out of step: different operations, a late rank, a dead rank, a circle",
                      &parts);
    return LS_OK;
}

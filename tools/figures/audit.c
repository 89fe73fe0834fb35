// SPDX-License-Identifier: Apache-2.0
#include "figures/drawings.h"

#include "figures/drawings_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    WIDTH = LS_DRAWING_WIDTH,
    MARGIN = LS_DRAWING_MARGIN,
    INNER = LS_DRAWING_INNER,
    GREY = LS_DRAWING_GREY,
    NAME_WIDTH = 56,
    ROW = 34,
    BOX = 22,
    FALL = 32 /* height of an arrow between two rows of boxes */
};

static uint32_t first_leaf(const ls_audit_drawing *d, uint32_t rank)
{
    return d->leaves * rank / d->ranks;
}

/* ---- who computes the leaf ---- */

static double pitch_of(const ls_audit_drawing *d)
{
    /* and the rank that is checked */
    const uint32_t most = (d->leaves + d->ranks - 1) / d->ranks + 1;
    return (double)(INNER - NAME_WIDTH) / most;
}

/* A leaf in the row of its rank; the ones that are compared are underlined. */
static void draw_leaf(const ls_audit_drawing *d, uint32_t rank, uint32_t column, uint32_t leaf, double y,
                      ls_text *text)
{
    const double pitch = pitch_of(d), x = MARGIN + NAME_WIDTH + column * pitch;
    char name[32];
    snprintf(name, sizeof name, pitch > 52 ? "leaf %" PRIu32 : "%" PRIu32, leaf);
    ls_svg_box(text, (ls_svg_rect){x, y, pitch - 4, BOX}, ls_drawing_rank_color(rank), name);
    if (leaf == d->leaf) {
        ls_svg_bar(text, (ls_svg_rect){x, y + BOX + 2, pitch - 4, 4}, ls_drawing_rank_color(rank));
    }
}

static double draw_rows(const ls_audit_drawing *d, double y, ls_text *text)
{
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "leaf %" PRIu32 ", drawn by lot: rank %" PRIu32 " owns it, and rank %" PRIu32
             " computes it first",
             d->leaf, d->owner, d->checker);
    y = ls_drawing_heading(text, y, "1 · One leaf, computed by two ranks", sentence);
    for (uint32_t rank = 0; rank < d->ranks; rank++) {
        char name[32];
        snprintf(name, sizeof name, "rank %" PRIu32, rank);
        ls_svg_label(text, MARGIN, y + 16, LS_SVG_START, 0, name);
        if (rank == d->checker) {
            draw_leaf(d, rank, 0, d->leaf, y, text);
        }
        for (uint32_t leaf = first_leaf(d, rank); leaf < first_leaf(d, rank + 1); leaf++) {
            draw_leaf(d, rank, (rank == d->checker) + leaf - first_leaf(d, rank), leaf, y, text);
        }
        y += ROW;
    }
    return y + 10;
}

/* ---- what comes of it ---- */

static double draw_verdict(const ls_audit_drawing *d, double y, ls_text *text)
{
    const double half = (INNER - 24) / 2.0, right = MARGIN + half + 24;
    char name[64];
    y = ls_drawing_heading(text, y, "2 · Compared before anything is updated",
                           "a hash of every bit of the leaf's gradient, its loss, its tokens");
    snprintf(name, sizeof name, "rank %" PRIu32 "'s hash", d->owner);
    ls_svg_box(text, (ls_svg_rect){MARGIN, y, half, BOX}, ls_drawing_rank_color(d->owner), name);
    snprintf(name, sizeof name, "rank %" PRIu32 "'s hash", d->checker);
    ls_svg_box(text, (ls_svg_rect){right, y, half, BOX}, ls_drawing_rank_color(d->checker), name);
    const double middle = WIDTH / 2.0, compared = 150;
    ls_svg_arrow(text, MARGIN + half / 2, y + BOX + 2, middle - compared / 4, y + BOX + FALL - 2);
    ls_svg_arrow(text, right + half / 2, y + BOX + 2, middle + compared / 4, y + BOX + FALL - 2);
    y += BOX + FALL;
    ls_svg_box(text, (ls_svg_rect){middle - compared / 2, y, compared, BOX}, GREY, "the same?");
    ls_svg_arrow(text, middle - compared / 4, y + BOX + 2, MARGIN + half / 2, y + BOX + FALL - 2);
    ls_svg_arrow(text, middle + compared / 4, y + BOX + 2, right + half / 2, y + BOX + FALL - 2);
    y += BOX + FALL;
    ls_svg_box(text, (ls_svg_rect){MARGIN, y, half, BOX}, GREY, "yes: update and continue");
    snprintf(name, sizeof name, d->judge == d->owner ? "no: each once more" : "no: rank %" PRIu32 " judges",
             d->judge);
    ls_svg_box(text, (ls_svg_rect){right, y, half, BOX}, ls_drawing_rank_color(d->judge), name);
    ls_svg_label(text, WIDTH - MARGIN, y + BOX + 16, LS_SVG_END, -1,
                 "the rank that differs from the judge was wrong");
    return y + BOX + 40;
}

/* ---- the state between two updates ---- */

static double draw_guard(double y, ls_text *text)
{
    static const char *const parts[] = {"update", "hash", "forward and backward", "hash", "update"};
    static const double shares[] = {0.16, 0.12, 0.44, 0.12, 0.16};
    static const int colors[] = {0, 2, GREY, 2, 0};
    y = ls_drawing_heading(text, y, "3 · The state, between two updates",
                           "nothing may write to weights or moments then, so the hashes are equal");
    double x = MARGIN;
    for (int i = 0; i < 5; i++) {
        const double width = shares[i] * INNER;
        ls_svg_box(text, (ls_svg_rect){x, y, width - 4, BOX}, colors[i], parts[i]);
        x += width;
    }
    const double first = MARGIN + 0.22 * INNER, second = MARGIN + 0.78 * INNER;
    ls_svg_line(text, first, y + BOX + 2, first, y + BOX + 14);
    ls_svg_line(text, first, y + BOX + 14, second, y + BOX + 14);
    ls_svg_line(text, second, y + BOX + 14, second, y + BOX + 2);
    ls_svg_label(text, WIDTH / 2.0, y + BOX + 30, LS_SVG_MIDDLE, -1,
                 "not equal: a stray write, or failing memory");
    return y + BOX + 44;
}

ls_status ls_drawing_audit(const ls_audit_drawing *d, ls_text *text)
{
    if (d->leaves < 1 || d->leaves > LS_STEP_DRAWING_LEAVES_MAX || d->ranks < 2 || d->ranks > d->leaves) {
        return ls_fail(LS_ERR_INVALID,
                       "%" PRIu32 " ranks and %" PRIu32
                       " leaves: an audit is drawn for 2 ranks to the number of leaves, at "
                       "most %d",
                       d->ranks, d->leaves, LS_STEP_DRAWING_LEAVES_MAX);
    }
    if (d->leaf >= d->leaves || d->owner >= d->ranks || d->checker >= d->ranks || d->judge >= d->ranks) {
        return ls_fail(LS_ERR_INVALID,
                       "leaf %" PRIu32 ", ranks %" PRIu32 ", %" PRIu32 " and %" PRIu32 " are not all there",
                       d->leaf, d->owner, d->checker, d->judge);
    }
    const int height = 16 + 46 + (int)d->ranks * ROW + 10 + 46 + 3 * BOX + 2 * FALL + 40 + 46 + BOX + 44;
    ls_svg_begin(text, WIDTH, height, "A leaf audit, and the guard of the state");
    double y = draw_rows(d, 8, text);
    y = draw_verdict(d, y, text);
    (void)draw_guard(y, text);
    ls_svg_end(text);
    return LS_OK;
}

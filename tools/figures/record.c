// SPDX-License-Identifier: Apache-2.0
#include "figures/drawings.h"

#include "figures/drawings_internal.h"

#include <stdio.h>
#include <string.h>

enum {
    WIDTH = LS_DRAWING_WIDTH,
    MARGIN = LS_DRAWING_MARGIN,
    INNER = LS_DRAWING_INNER,
    GREY = LS_DRAWING_GREY,
    LEARNED = 2,
    BOX = 22,
    ROW = 28,
    GAP = 4,
    PAD = 12 /* of a token's box, both sides together */
};

/* Tokens in rows, learned ones in colour; returns the y below. */
static double draw_tokens(const ls_record_drawing *d, double y, ls_text *text)
{
    double x = MARGIN;
    for (size_t i = 0; i < d->count; i++) {
        const double width = ls_svg_text_width(d->tokens[i], 0) + PAD;
        if (x + width > MARGIN + INNER) {
            x = MARGIN;
            y += ROW;
        }
        ls_svg_box(text, (ls_svg_rect){x, y, width, BOX}, i >= d->first_learned ? LEARNED : GREY,
                   d->tokens[i]);
        x += width + GAP;
    }
    return y + ROW;
}

static double draw_legend(double y, ls_text *text)
{
    static const char *const names[] = {"read, not learned", "learned: the answer and its end"};
    static const int colors[] = {GREY, LEARNED};
    const ls_svg_names legend = {names, colors, 2};
    return ls_svg_legend(text, &legend, MARGIN, y + 14, WIDTH - MARGIN) + 20;
}

/* A bar for each model with its share, and a line for its interval. */
static double draw_shares(const ls_record_drawing *d, double y, ls_text *text)
{
    const double left = MARGIN + 64, full = INNER - 64 - 56;
    for (size_t i = 0; i < 2; i++) {
        const ls_record_share *s = &d->shares[i];
        char label[32];
        snprintf(label, sizeof label, "%.1f %%", 100.0 * s->share);
        ls_svg_label(text, MARGIN, y + 16, LS_SVG_START, 0, i == 0 ? "before" : "after");
        ls_svg_bar(text, (ls_svg_rect){left, y + 4, full * s->share + 2, 14}, i == 0 ? GREY : LEARNED);
        ls_svg_line(text, left + full * s->low, y + 22, left + full * s->high, y + 22);
        ls_svg_label(text, left + full * s->high + 10, y + 16, LS_SVG_START, 0, label);
        y += ROW + 6;
    }
    ls_svg_label(text, MARGIN, y + 12, LS_SVG_START, -1,
                 "thin lines: where the true share is, 19 times of 20");
    return y + 26;
}

ls_status ls_drawing_record(const ls_record_drawing *d, ls_text *text)
{
    if (d->count < 2 || d->first_learned == 0 || d->first_learned >= d->count) {
        return ls_fail(LS_ERR_INVALID, "a record has at least a token to read and one to learn");
    }
    ls_text parts = {0};
    double y = ls_drawing_heading(&parts, 8, "1 · What the model sees of a record",
                                  "the template turns question and answer into tokens");
    y = draw_legend(draw_tokens(d, y, &parts), &parts);
    y = ls_drawing_heading(&parts, y + 12, "2 · Right answers, before and after", d->measured);
    y = draw_shares(d, y, &parts);
    ls_drawing_finish(text, y, "A record as the model sees it, and right answers before and after", &parts);
    return LS_OK;
}

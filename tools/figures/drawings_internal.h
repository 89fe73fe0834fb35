// SPDX-License-Identifier: Apache-2.0
/* What the drawings have in common: their width, their headings, and how they end. */
#ifndef LS_FIGURES_DRAWINGS_INTERNAL_H
#define LS_FIGURES_DRAWINGS_INTERNAL_H

#include "base/svg.h"

#include <stdint.h>

enum {
    LS_DRAWING_WIDTH = 440,
    LS_DRAWING_MARGIN = 16,
    LS_DRAWING_INNER = LS_DRAWING_WIDTH - 2 * LS_DRAWING_MARGIN,
    LS_DRAWING_GREY = 7, /* for what belongs to no rank */
};

int ls_drawing_rank_color(uint32_t rank);

/* "1 · title" and a small line below it. Returns the y under both. */
double ls_drawing_heading(ls_text *text, double y, const char *title, const char *sentence);

/* Appends the whole figure and releases `parts`, which were drawn aside because the height is needed
 * at the beginning. */
void ls_drawing_finish(ls_text *text, double height, const char *title, ls_text *parts);

#endif

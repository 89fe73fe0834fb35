// SPDX-License-Identifier: Apache-2.0
/*
 * SVG: figures as self-contained text, for reports, the live page and the guide.
 *
 * Each figure is one <svg> element with its own <style>; it can be a file of its own or part of an
 * HTML page. Colours follow the reader's light or dark scheme (prefers-color-scheme), sizes follow
 * the page (viewBox, at most its natural width), fonts are the system's, names are escaped. Class
 * names begin with ls-, so that they do not clash with the page's own.
 *
 *   ls_svg_line_chart     series over a common x axis: loss, learning rate, speed
 *   ls_svg_stacked_bars   horizontal bars made of parts: where the time of a step goes
 *   ls_svg_begin .. end   drawings from boxes, arrows and text: the tree of leaves; base/svg_axes.h
 *                         adds axes to them
 *
 * Everything is appended to a text (base/text.h). Numbers that are not finite are not drawn. Pure;
 * thread-safe for separate texts. Coordinates are user units from the top left, about one pixel on
 * a desktop.
 */
#ifndef LS_BASE_SVG_H
#define LS_BASE_SVG_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Colours by number, the same in every figure; higher numbers wrap around. 0 blue, 1 orange, 2
 * green, 3 purple, 4 pink, 5 teal, 6 amber, 7 grey. */
enum { LS_SVG_COLORS = 8 };

typedef struct ls_svg_series {
    const char *name;
    const double *x, *y; /* (count), x never decreases */
    /* number of points, without limit; points that share a column are drawn as the range they
     * span */
    size_t count;
    /* Thin and pale, for the raw values of a smoothed line. Takes the colour of the next series. */
    bool faint;
} ls_svg_series;

typedef struct ls_svg_chart {
    const char *title;   /* NULL: none */
    const char *x_label; /* NULL: none */
    const char *y_label; /* NULL: none; drawn above the axis */
    const ls_svg_series *series;
    size_t series_count;
    bool log_y;        /* values <= 0 are left out */
    bool from_zero;    /* the y axis begins at 0 (not with log_y) */
    int width, height; /* 0: 720 x 320 */
} ls_svg_chart;

/* A figure without any drawable point shows "no data yet". */
void ls_svg_line_chart(const ls_svg_chart *chart, ls_text *text);

typedef struct ls_svg_bars {
    const char *title;
    const char *unit;              /* shown after each total: "ms", "GiB", "%" */
    const char *const *bar_names;  /* (bar_count) */
    const char *const *part_names; /* (part_count) */
    const double *values;          /* (bar_count, part_count), >= 0; others count as 0 */
    size_t bar_count, part_count;
    const int *colors; /* (part_count); NULL: 0, 1, 2, ... */
    int width;         /* 0: 720; the height follows from bar_count */
} ls_svg_bars;

void ls_svg_stacked_bars(const ls_svg_bars *bars, ls_text *text);

/* ---- drawings ---- */

typedef enum ls_svg_anchor { LS_SVG_START, LS_SVG_MIDDLE, LS_SVG_END } ls_svg_anchor;

/* Opens a figure; `title` is for screen readers and not drawn. */
void ls_svg_begin(ls_text *text, int width, int height, const char *title);
void ls_svg_end(ls_text *text);

typedef struct ls_svg_rect {
    double x, y, width, height;
} ls_svg_rect;

typedef struct ls_svg_ink {
    int color;
    double opacity; /* of areas, up to 1; 0: opaque too */
    bool dashed;    /* of lines */
} ls_svg_ink;

/* A rounded box, pale in colour `color` with a border of that colour; `label` (NULL: none) in its
 * middle. */
void ls_svg_box(ls_text *text, ls_svg_rect rect, int color, const char *label);

/* A solid bar in colour `color`, its ends rounded. */
void ls_svg_bar(ls_text *text, ls_svg_rect rect, int color);

/* Added to a colour of a legend: draws its bar with LS_SVG_PALE_OPACITY, like pale cells. */
enum { LS_SVG_PALE = 64 };
#define LS_SVG_PALE_OPACITY 0.3

typedef struct ls_svg_names {
    const char *const *names; /* (count) */
    const int *colors;        /* (count) */
    size_t count;
} ls_svg_names;

/* Names with coloured bars in a row from `x` on, a new row where `right` is reached. Returns the y
 * of the last row. */
double ls_svg_legend(ls_text *text, const ls_svg_names *names, double x, double y, double right);

/* A straight line, and one with an arrow head at its second end. */
void ls_svg_line(ls_text *text, double x1, double y1, double x2, double y2);
void ls_svg_arrow(ls_text *text, double x1, double y1, double x2, double y2);

/* Text; `y` is the base line. size: 0 normal, 1 title, -1 small and pale. */
void ls_svg_label(ls_text *text, double x, double y, ls_svg_anchor anchor, int size, const char *label);

/* Approximate width of a label of that size (fonts differ). */
double ls_svg_text_width(const char *label, int size);

typedef struct ls_svg_span {
    double left, right;
} ls_svg_span;

/* A label centred at `x`, shifted to stay within `span`, on a patch of background. */
void ls_svg_label_between(ls_text *text, double x, double y, int size, const char *label, ls_svg_span span);

/* A label on a patch of background, for places where lines would cross it. */
void ls_svg_label_on_back(ls_text *text, double x, double y, ls_svg_anchor anchor, int size,
                          const char *label);

/* Text wrapped to a width, lines 16 apart (small: 14), the first base line at `y`. Returns the y
 * of the line after the last. */
double ls_svg_paragraph(ls_text *text, double x, double y, double width, int size, const char *words);

/* A rectangle without a border; `said` (NULL: nothing) is its tooltip. */
void ls_svg_cell(ls_text *text, ls_svg_rect rect, ls_svg_ink ink, const char *said);

/* A line two wide. */
void ls_svg_stroke(ls_text *text, double x1, double y1, double x2, double y2, ls_svg_ink ink);

/*
 * Ticks for an axis that covers [min, max] (finite, min <= max): multiples of 1, 2 or 5 times a
 * power of ten, between 2 and about `wanted` + 2 of them. Returns the step; *first_out is the first
 * multiple >= min.
 */
double ls_svg_ticks(double min, double max, int wanted, double *first_out);

/* A tick's number: "0", "0.002", "1500", "25k", "3.5M": short, and exact to the step. */
void ls_svg_format_tick(char *out, size_t bytes, double value, double step);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * SVG axes: a frame with two scales, each linear or logarithmic, and what is drawn in data
 * coordinates inside: for figures that the line chart of base/svg.h does not cover. Used between
 * ls_svg_begin and ls_svg_end.
 *
 * Values that are not finite, or not positive on a logarithmic scale, are left out; whatever lies
 * outside the scales is clipped at the frame. Pure.
 */
#ifndef LS_BASE_SVG_AXES_H
#define LS_BASE_SVG_AXES_H

#include "base/svg.h"

typedef struct ls_svg_axes {
    double left, top, width, height;   /* of the frame, user units */
    double x_min, x_max, y_min, y_max; /* min < max; > 0 where logarithmic */
    bool log_x, log_y;
} ls_svg_axes;

/* Formats the number of a tick; `step` is the distance of ticks, 0 on a logarithmic scale. */
typedef void ls_svg_tick_format(double value, double step, char *out, size_t bytes);
/* "0.5", "1500", "25k" */
void ls_svg_tick_number(double value, double step, char *out, size_t bytes);
/* a fraction as "50 %" */
void ls_svg_tick_percent(double value, double step, char *out, size_t bytes);
/* "$1.5M" */
void ls_svg_tick_dollars(double value, double step, char *out, size_t bytes);
/* "50 ms", "2 s", "10 min", "3 h", "2 d" */
void ls_svg_tick_seconds(double value, double step, char *out, size_t bytes);

/* Draws grid, numbers and axes; a NULL format leaves out the numbers and grid lines of that
 * axis. */
void ls_svg_axes_append(const ls_svg_axes *axes, ls_svg_tick_format *x, ls_svg_tick_format *y, ls_text *text);
/* A single tick of the x axis, for scales with values of their own. */
void ls_svg_axes_x_tick(const ls_svg_axes *axes, double value, const char *label, ls_text *text);

/* Position in user units; NAN if the value cannot be drawn. */
double ls_svg_axes_x(const ls_svg_axes *axes, double x);
double ls_svg_axes_y(const ls_svg_axes *axes, double y);
/* The same, clipped at the frame. */
double ls_svg_axes_y_inside(const ls_svg_axes *axes, double y);

void ls_svg_axes_line(const ls_svg_axes *axes, const double *x, const double *y, size_t count, ls_svg_ink ink,
                      ls_text *text);
/* The area between two lines. */
typedef struct ls_svg_band {
    const double *x, *low, *high; /* (count) */
    size_t count;
} ls_svg_band;
void ls_svg_axes_band(const ls_svg_axes *axes, const ls_svg_band *band, ls_svg_ink ink, ls_text *text);
void ls_svg_axes_dot(const ls_svg_axes *axes, double x, double y, double radius, ls_svg_ink ink,
                     ls_text *text);
/* A dashed line from top to bottom. */
void ls_svg_axes_mark(const ls_svg_axes *axes, double x, int color, ls_text *text);

#endif

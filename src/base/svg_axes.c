// SPDX-License-Identifier: Apache-2.0
#include "base/svg_axes.h"

#include <math.h>
#include <stdio.h>

enum { X_LABEL_ROOM = 76, Y_LABEL_ROOM = 40, EDGE_ROOM = 8 };

/* ---- ticks ---- */

void ls_svg_tick_number(double value, double step, char *out, size_t bytes)
{
    if (step > 0.0 || value >= 1e4) {
        ls_svg_format_tick(out, bytes, value, step > 0.0 ? step : value);
    } else {
        snprintf(out, bytes, "%g", value);
    }
}

void ls_svg_tick_percent(double value, double step, char *out, size_t bytes)
{
    const int digits = step > 0.0 ? (int)fmax(0.0, ceil(-log10(100.0 * step) - 1e-9)) : 0;
    if (step > 0.0) {
        snprintf(out, bytes, "%.*f %%", digits, 100.0 * value);
    } else {
        snprintf(out, bytes, "%.3g %%", 100.0 * value);
    }
}

void ls_svg_tick_dollars(double value, double step, char *out, size_t bytes)
{
    static const struct {
        double factor;
        const char *suffix;
    } scales[] = {{1e9, "B"}, {1e6, "M"}, {1e3, "k"}, {1.0, ""}};
    size_t i = 0;
    (void)step;
    while (scales[i].factor > 1.0 && fabs(value) < scales[i].factor) {
        i++;
    }
    snprintf(out, bytes, "$%.4g%s", value / scales[i].factor, scales[i].suffix);
}

/* 1, 2 or 5 times a power of ten. */
static bool is_round(double value)
{
    const double lead = value / pow(10.0, floor(log10(value) + 1e-9));
    return fabs(lead - 1.0) < 1e-6 || fabs(lead - 2.0) < 1e-6 || fabs(lead - 5.0) < 1e-6;
}

/* All ticks of a linear scale use one unit: the largest in which their step is a round number. */
void ls_svg_tick_seconds(double value, double step, char *out, size_t bytes)
{
    static const struct {
        double factor;
        const char *unit;
    } units[] = {{86400.0, "d"}, {3600.0, "h"}, {60.0, "min"}, {1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    enum { UNITS = sizeof units / sizeof units[0] };
    size_t i = 0;
    while (i + 1 < UNITS &&
           (step > 0.0 ? 10.0 * step < units[i].factor * 0.999 || !is_round(step / units[i].factor)
                       : fabs(value) < units[i].factor * 0.999)) {
        i++;
    }
    snprintf(out, bytes, "%.4g %s", value / units[i].factor, units[i].unit);
}

/* ---- places ---- */

static double share_of(double value, double min, double max, bool is_log)
{
    if (!isfinite(value) || (is_log && value <= 0.0)) {
        return NAN;
    }
    return is_log ? log(value / min) / log(max / min) : (value - min) / (max - min);
}

double ls_svg_axes_x(const ls_svg_axes *axes, double x)
{
    return axes->left + axes->width * share_of(x, axes->x_min, axes->x_max, axes->log_x);
}

double ls_svg_axes_y(const ls_svg_axes *axes, double y)
{
    return axes->top + axes->height * (1.0 - share_of(y, axes->y_min, axes->y_max, axes->log_y));
}

double ls_svg_axes_y_inside(const ls_svg_axes *axes, double y)
{
    const double at = ls_svg_axes_y(axes, y);
    return isnan(at) ? at : fmax(axes->top, fmin(axes->top + axes->height, at));
}

/* ---- axes ---- */

typedef struct tick_place {
    double value; /* data */
    double step;
} tick_place;

enum { TICKS_MOST = 40 };

static bool is_inside(double value, double min, double max, bool is_log)
{
    const double share = share_of(value, min, max, is_log);
    return share >= -1e-9 && share <= 1.0 + 1e-9;
}

static size_t linear_ticks(double min, double max, int wanted, tick_place *ticks)
{
    double first = 0.0;
    const double step = ls_svg_ticks(min, max, wanted, &first);
    size_t count = 0;
    for (int i = 0; count < TICKS_MOST && first + i * step <= max + step * 1e-9; i++) {
        ticks[count++] = (tick_place){.value = first + i * step, .step = step};
    }
    return count;
}

/* Powers of ten; also 2 and 5 times a power where there is room. A range below one power of ten
 * gets linear ticks. */
static size_t log_ticks(double min, double max, int wanted, tick_place *ticks)
{
    static const double leads[] = {1.0, 2.0, 5.0};
    const double decades = log10(max / min);
    if (decades < 1.0) {
        return linear_ticks(min, max, wanted, ticks);
    }
    const int stride = 1 + (int)(decades / wanted);
    const size_t lead_count = 3.0 * decades <= wanted ? 3 : 1;
    size_t count = 0;
    for (int power = (int)floor(log10(min)); power <= (int)ceil(log10(max)); power++) {
        for (size_t i = 0; i < lead_count && count < TICKS_MOST && power % stride == 0; i++) {
            const double value = leads[i] * pow(10.0, power);
            if (is_inside(value, min, max, true)) {
                ticks[count++] = (tick_place){.value = value};
            }
        }
    }
    return count;
}

/* Familiar durations; the first list that fits is used. */
static size_t duration_ticks(double min, double max, int wanted, tick_place *ticks)
{
    static const double fine[] = {1e-3, 2e-3,  5e-3,  1e-2,  2e-2,   5e-2,   0.1,    0.2, 0.5,  1,
                                  2,    5,     10,    30,    60,     120,    300,    600, 1800, 3600,
                                  7200, 18000, 43200, 86400, 172800, 432000, 864000, 0};
    static const double coarse[] = {1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, 0};
    static const double coarsest[] = {1e-3, 1, 60, 3600, 86400, 8640000, 0};
    const double *const lists[] = {fine, coarse, coarsest};
    size_t count = 0;
    for (int k = 0; k < 3; k++) {
        count = 0;
        for (const double *at = lists[k]; *at > 0.0; at++) {
            if (is_inside(*at, min, max, true)) {
                ticks[count++] = (tick_place){.value = *at};
            }
        }
        if ((int)count <= wanted + 1) {
            break;
        }
    }
    return count;
}

/* Steps that are round numbers of a unit that suits the scale. */
static size_t linear_duration_ticks(double min, double max, int wanted, tick_place *ticks)
{
    static const double units[] = {86400.0, 3600.0, 60.0, 1.0};
    double unit = 1.0;
    for (size_t i = 4; i-- > 0;) {
        unit = max >= 2.0 * units[i] ? units[i] : unit;
    }
    const size_t count = linear_ticks(min / unit, max / unit, wanted, ticks);
    for (size_t i = 0; i < count; i++) {
        ticks[i] = (tick_place){.value = ticks[i].value * unit, .step = ticks[i].step * unit};
    }
    return count;
}

static size_t find_ticks(double min, double max, bool is_log, ls_svg_tick_format *format, int wanted,
                         tick_place *ticks)
{
    if (format == ls_svg_tick_seconds && !is_log) {
        return linear_duration_ticks(min, max, wanted, ticks);
    }
    return !is_log                                                   ? linear_ticks(min, max, wanted, ticks)
           : format == ls_svg_tick_seconds && log10(max / min) > 1.0 ? duration_ticks(min, max, wanted, ticks)
                                                                     : log_ticks(min, max, wanted, ticks);
}

static void append_y_ticks(const ls_svg_axes *axes, ls_svg_tick_format *format, ls_text *text)
{
    tick_place ticks[TICKS_MOST];
    const int wanted = (int)fmax(2, axes->height / Y_LABEL_ROOM);
    const size_t count = find_ticks(axes->y_min, axes->y_max, axes->log_y, format, wanted, ticks);
    for (size_t i = 0; i < count; i++) {
        char label[32];
        const double y = ls_svg_axes_y(axes, ticks[i].value);
        format(ticks[i].value, ticks[i].step, label, sizeof label);
        ls_text_printf(text, "<line class=\"ls-grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                       axes->left, y, axes->left + axes->width, y);
        ls_svg_label(text, axes->left - 6, y + 4, LS_SVG_END, -1, label);
    }
}

void ls_svg_axes_x_tick(const ls_svg_axes *axes, double value, const char *label, ls_text *text)
{
    const double x = ls_svg_axes_x(axes, value), bottom = axes->top + axes->height;
    ls_svg_line(text, x, bottom, x, bottom + 4);
    const double half = ls_svg_text_width(label, -1) / 2, right = axes->left + axes->width + EDGE_ROOM;
    if (x - half >= 2.0 && x + half <= right) {
        ls_svg_label(text, x, bottom + 17, LS_SVG_MIDDLE, -1, label);
    } else {
        ls_svg_label_between(text, x, bottom + 17, -1, label, (ls_svg_span){2.0, right});
    }
}

static void append_x_ticks(const ls_svg_axes *axes, ls_svg_tick_format *format, ls_text *text)
{
    tick_place ticks[TICKS_MOST];
    const int wanted = (int)fmax(2, axes->width / X_LABEL_ROOM);
    const size_t count = find_ticks(axes->x_min, axes->x_max, axes->log_x, format, wanted, ticks);
    for (size_t i = 0; i < count; i++) {
        char label[32];
        format(ticks[i].value, ticks[i].step, label, sizeof label);
        ls_svg_axes_x_tick(axes, ticks[i].value, label, text);
    }
}

void ls_svg_axes_append(const ls_svg_axes *axes, ls_svg_tick_format *x, ls_svg_tick_format *y, ls_text *text)
{
    const double bottom = axes->top + axes->height;
    if (y) {
        append_y_ticks(axes, y, text);
    }
    if (x) {
        append_x_ticks(axes, x, text);
    }
    ls_svg_line(text, axes->left, bottom, axes->left + axes->width, bottom);
}

/* ---- what is inside ---- */

/* The point where the line from a to b crosses the height `y`. */
static double crossing(double ax, double ay, double bx, double by, double y)
{
    return ax + (bx - ax) * (y - ay) / (by - ay);
}

/* A segment of user units, cut off at the top and the bottom of the frame; false when nothing is
 * left. */
static bool cut_segment(const ls_svg_axes *axes, double *ax, double *ay, double *bx, double *by)
{
    const double edges[] = {axes->top, axes->top + axes->height};
    for (int e = 0; e < 2; e++) {
        const double sign = e == 0 ? 1.0 : -1.0;
        const bool a_out = sign * (*ay - edges[e]) < 0.0, b_out = sign * (*by - edges[e]) < 0.0;
        if (a_out && b_out) {
            return false;
        }
        if (a_out) {
            *ax = crossing(*ax, *ay, *bx, *by, edges[e]);
            *ay = edges[e];
        } else if (b_out) {
            *bx = crossing(*ax, *ay, *bx, *by, edges[e]);
            *by = edges[e];
        }
    }
    return true;
}

void ls_svg_axes_line(const ls_svg_axes *axes, const double *x, const double *y, size_t count, ls_svg_ink ink,
                      ls_text *text)
{
    ls_text path = {0};
    double end_x = NAN, end_y = NAN;
    for (size_t i = 0; i + 1 < count; i++) {
        double ax = ls_svg_axes_x(axes, x[i]), ay = ls_svg_axes_y(axes, y[i]);
        double bx = ls_svg_axes_x(axes, x[i + 1]), by = ls_svg_axes_y(axes, y[i + 1]);
        if (!isfinite(ax + ay + bx + by) || !cut_segment(axes, &ax, &ay, &bx, &by)) {
            continue;
        }
        if (ax != end_x || ay != end_y) {
            ls_text_printf(&path, "M%.1f %.1f", ax, ay);
        }
        ls_text_printf(&path, "L%.1f %.1f", bx, by);
        end_x = bx;
        end_y = by;
    }
    if (path.bytes > 0) {
        ls_text_printf(text, "<path class=\"ls-line ls-s%d\" d=\"%s\"%s/>\n",
                       (int)((unsigned)ink.color % LS_SVG_COLORS), ls_text_string(&path),
                       ink.dashed ? " stroke-dasharray=\"5 5\"" : "");
    }
    ls_text_release(&path);
}

void ls_svg_axes_band(const ls_svg_axes *axes, const ls_svg_band *band, ls_svg_ink ink, ls_text *text)
{
    ls_text path = {0};
    for (size_t k = 0; k < 2 * band->count; k++) {
        const bool back = k >= band->count;
        const size_t i = back ? 2 * band->count - 1 - k : k;
        const double at_x = ls_svg_axes_x(axes, band->x[i]),
                     at_y = ls_svg_axes_y_inside(axes, back ? band->low[i] : band->high[i]);
        if (isfinite(at_x + at_y)) {
            ls_text_printf(&path, "%c%.1f %.1f", path.bytes == 0 ? 'M' : 'L', at_x, at_y);
        }
    }
    if (path.bytes > 0) {
        ls_text_printf(text, "<path class=\"ls-f%d\" fill-opacity=\"%.2f\" d=\"%sZ\"/>\n",
                       (int)((unsigned)ink.color % LS_SVG_COLORS), ink.opacity, ls_text_string(&path));
    }
    ls_text_release(&path);
}

void ls_svg_axes_dot(const ls_svg_axes *axes, double x, double y, double radius, ls_svg_ink ink,
                     ls_text *text)
{
    if (!is_inside(x, axes->x_min, axes->x_max, axes->log_x) ||
        !is_inside(y, axes->y_min, axes->y_max, axes->log_y)) {
        return;
    }
    ls_text_printf(text, "<circle class=\"ls-f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"",
                   (int)((unsigned)ink.color % LS_SVG_COLORS), ls_svg_axes_x(axes, x), ls_svg_axes_y(axes, y),
                   radius);
    if (ink.opacity > 0.0 && ink.opacity < 1.0) {
        ls_text_printf(text, " fill-opacity=\"%.2f\"", ink.opacity);
    }
    ls_text_append(text, "/>\n");
}

void ls_svg_axes_mark(const ls_svg_axes *axes, double x, int color, ls_text *text)
{
    if (is_inside(x, axes->x_min, axes->x_max, axes->log_x)) {
        const double at = ls_svg_axes_x(axes, x);
        ls_svg_stroke(text, at, axes->top, at, axes->top + axes->height,
                      (ls_svg_ink){.color = color, .dashed = true});
    }
}

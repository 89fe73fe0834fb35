// SPDX-License-Identifier: Apache-2.0
#include "base/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHART_WIDTH = 720, CHART_HEIGHT = 320, CHARACTER_WIDTH = 7 };

/* ---- style ---- */

static const char *const light_colors[LS_SVG_COLORS] = {"#0969da", "#d1570a", "#1a7f37", "#8250df",
                                                        "#bf3989", "#0b7a7a", "#9a6700", "#6e7781"};
static const char *const dark_colors[LS_SVG_COLORS] = {"#58a6ff", "#f0883e", "#3fb950", "#bc8cff",
                                                       "#f778ba", "#39c5cf", "#d29922", "#8b949e"};

static void append_palette(ls_text *text, const char *const *colors)
{
    for (int i = 0; i < LS_SVG_COLORS; i++) {
        ls_text_printf(text, ".ls-s%d{stroke:%s}.ls-f%d{fill:%s}", i, colors[i], i, colors[i]);
    }
}

/* Colours are literals, given twice, because several converters do not support CSS variables. */
static void append_style(ls_text *text)
{
    ls_text_append(text,
                   "<style>"
                   ".ls-svg{max-width:100%;height:auto;font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
                   "'DejaVu Sans',sans-serif;font-size:13px}"
                   ".ls-title{font-size:16px;font-weight:600}.ls-small{font-size:11px}"
                   ".ls-back{fill:#ffffff}.ls-ink{fill:#1f2328}.ls-dim{fill:#59636e}"
                   ".ls-grid{stroke:#d1d9e0;stroke-width:1}.ls-axis{stroke:#818b98;stroke-width:1.2}"
                   ".ls-head{fill:#818b98}"
                   ".ls-line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
                   ".ls-faint{stroke-width:1;stroke-opacity:.35}.ls-area{fill-opacity:.1;stroke:none}"
                   ".ls-box{fill-opacity:.13;stroke-width:1.5}");
    append_palette(text, light_colors);
    ls_text_append(text, "@media(prefers-color-scheme:dark){"
                         ".ls-back{fill:#0d1117}.ls-ink{fill:#e6edf3}.ls-dim{fill:#9198a1}"
                         ".ls-grid{stroke:#2a313a}.ls-axis{stroke:#6e7681}.ls-head{fill:#6e7681}");
    append_palette(text, dark_colors);
    ls_text_append(text, "}</style>\n");
}

/* ---- drawings ---- */

void ls_svg_begin(ls_text *text, int width, int height, const char *title)
{
    ls_text_printf(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ls-svg\" role=\"img\" viewBox=\"0 0 %d %d\" "
        "width=\"%d\" height=\"%d\">\n<title>",
        width, height, width, height);
    ls_text_append_escaped(text, title ? title : "figure");
    ls_text_append(text, "</title>\n");
    append_style(text);
    ls_text_printf(text, "<rect class=\"ls-back\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width, height);
}

void ls_svg_end(ls_text *text)
{
    ls_text_append(text, "</svg>\n");
}

void ls_svg_label(ls_text *text, double x, double y, ls_svg_anchor anchor, int size, const char *label)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    if (!isfinite(x) || !isfinite(y)) {
        return;
    }
    ls_text_printf(text, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y,
                   anchors[anchor],
                   size > 0   ? "ls-ink ls-title"
                   : size < 0 ? "ls-dim ls-small"
                              : "ls-ink");
    ls_text_append_escaped(text, label);
    ls_text_append(text, "</text>\n");
}

static bool is_visible(ls_svg_rect r)
{
    return isfinite(r.x + r.y + r.width + r.height) && r.width > 0.0 && r.height > 0.0;
}

void ls_svg_box(ls_text *text, ls_svg_rect r, int color, const char *label)
{
    if (!is_visible(r)) {
        return;
    }
    const int c = (int)((unsigned)color % LS_SVG_COLORS);
    ls_text_printf(
        text,
        "<rect class=\"ls-box ls-s%d ls-f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
        "rx=\"6\"/>\n",
        c, c, r.x, r.y, r.width, r.height);
    if (label) {
        ls_svg_label(text, r.x + r.width / 2, r.y + r.height / 2 + 4.5, LS_SVG_MIDDLE, 0, label);
    }
}

void ls_svg_bar(ls_text *text, ls_svg_rect r, int color)
{
    if (is_visible(r)) {
        ls_text_printf(
            text,
            "<rect class=\"ls-f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\"/>\n",
            (int)((unsigned)color % LS_SVG_COLORS), r.x, r.y, r.width, r.height, fmin(r.width, r.height) / 2);
    }
}

void ls_svg_line(ls_text *text, double x1, double y1, double x2, double y2)
{
    if (isfinite(x1 + y1 + x2 + y2)) {
        ls_text_printf(text, "<line class=\"ls-axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                       x1, y1, x2, y2);
    }
}

void ls_svg_arrow(ls_text *text, double x1, double y1, double x2, double y2)
{
    const double length = hypot(x2 - x1, y2 - y1);
    if (!isfinite(length) || length < 1.0) {
        return;
    }
    /* unit vector; the head is 9 long, 7 wide */
    const double ux = (x2 - x1) / length, uy = (y2 - y1) / length;
    const double base_x = x2 - 9.0 * ux, base_y = y2 - 9.0 * uy;
    ls_svg_line(text, x1, y1, base_x, base_y);
    ls_text_printf(text, "<path class=\"ls-head\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fZ\"/>\n", x2, y2,
                   base_x - 3.5 * uy, base_y + 3.5 * ux, base_x + 3.5 * uy, base_y - 3.5 * ux);
}

double ls_svg_text_width(const char *label, int size)
{
    size_t characters = 0;
    for (const char *at = label; *at; at++) {
        characters += ((unsigned char)*at & 0xc0) != 0x80;
    }
    return (double)characters * (size > 0 ? 8.6 : size < 0 ? 6.0 : CHARACTER_WIDTH);
}

void ls_svg_label_on_back(ls_text *text, double x, double y, ls_svg_anchor anchor, int size,
                          const char *label)
{
    const double width = ls_svg_text_width(label, size) + 4, height = size > 0 ? 20 : size < 0 ? 13 : 16;
    const double left = x - (anchor == LS_SVG_END ? width - 2 : anchor == LS_SVG_MIDDLE ? width / 2 : 2);
    if (isfinite(x + y)) {
        ls_text_printf(text,
                       "<rect class=\"ls-back\" fill-opacity=\"0.8\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                       "height=\"%.1f\"/>\n",
                       left, y - 0.78 * height, width, height);
    }
    ls_svg_label(text, x, y, anchor, size, label);
}

void ls_svg_label_between(ls_text *text, double x, double y, int size, const char *label, ls_svg_span span)
{
    const double width = ls_svg_text_width(label, size);
    ls_svg_label_on_back(text, fmax(span.left, fmin(x - width / 2, span.right - width)), y, LS_SVG_START,
                         size, label);
}

enum { LINE_BYTES = 256 };

static void take_line(char line[LINE_BYTES], const char *from, const char *to)
{
    const size_t bytes = to - from < LINE_BYTES ? (size_t)(to - from) : LINE_BYTES - 1;
    memcpy(line, from, bytes);
    line[bytes] = '\0';
}

double ls_svg_paragraph(ls_text *text, double x, double y, double width, int size, const char *words)
{
    char line[LINE_BYTES] = "", longer[LINE_BYTES];
    const char *at = words, *start = words;
    while (*at) {
        const char *end = at + strcspn(at, " ");
        take_line(longer, start, end);
        if (line[0] && ls_svg_text_width(longer, size) > width) {
            ls_svg_label(text, x, y, LS_SVG_START, size, line);
            y += size < 0 ? 14 : 16;
            start = at;
        }
        take_line(line, start, end);
        at = end + strspn(end, " ");
    }
    if (line[0]) {
        ls_svg_label(text, x, y, LS_SVG_START, size, line);
        y += size < 0 ? 14 : 16;
    }
    return y;
}

void ls_svg_cell(ls_text *text, ls_svg_rect r, ls_svg_ink ink, const char *said)
{
    if (!is_visible(r)) {
        return;
    }
    ls_text_printf(text, "<rect class=\"ls-f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"",
                   (int)((unsigned)ink.color % LS_SVG_COLORS), r.x, r.y, r.width, r.height);
    if (ink.opacity > 0.0 && ink.opacity < 1.0) {
        ls_text_printf(text, " fill-opacity=\"%.2f\"", ink.opacity);
    }
    if (said) {
        ls_text_append(text, "><title>");
        ls_text_append_escaped(text, said);
        ls_text_append(text, "</title></rect>\n");
    } else {
        ls_text_append(text, "/>\n");
    }
}

void ls_svg_stroke(ls_text *text, double x1, double y1, double x2, double y2, ls_svg_ink ink)
{
    if (isfinite(x1 + y1 + x2 + y2)) {
        ls_text_printf(text,
                       "<line class=\"ls-line ls-s%d\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"%s/>\n",
                       (int)((unsigned)ink.color % LS_SVG_COLORS), x1, y1, x2, y2,
                       ink.dashed ? " stroke-dasharray=\"5 5\"" : "");
    }
}

/* ---- axes ---- */

double ls_svg_ticks(double min, double max, int wanted, double *first_out)
{
    const double span = max > min ? max - min : fmax(fabs(min), 1.0);
    const double rough = span / (wanted > 1 ? wanted : 1);
    const double power = pow(10.0, floor(log10(rough)));
    const double lead = rough / power;
    const double step = power * (lead < 1.5 ? 1.0 : lead < 3.5 ? 2.0 : lead < 7.5 ? 5.0 : 10.0);
    *first_out = ceil(min / step - 1e-9) * step;
    return step;
}

void ls_svg_format_tick(char *out, size_t bytes, double value, double step)
{
    static const struct {
        double factor;
        const char *suffix;
    } scales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    const double magnitude = fabs(value);
    if (magnitude < step * 1e-6) {
        snprintf(out, bytes, "0");
        return;
    }
    for (size_t i = 0; i < sizeof scales / sizeof scales[0] && magnitude >= 1e4; i++) {
        if (magnitude >= scales[i].factor) {
            snprintf(out, bytes, "%.6g%s", value / scales[i].factor, scales[i].suffix);
            return;
        }
    }
    const int digits = step < 1.0 ? (int)ceil(-log10(step) - 1e-9) : 0;
    if (digits <= 4) {
        snprintf(out, bytes, "%.*f", digits, value);
    } else {
        snprintf(out, bytes, "%.3g", value);
    }
}

/* Mapping from data to the figure. */
typedef struct plot {
    double left, top, width, height;   /* of the area */
    double x_min, x_max, y_min, y_max; /* of the data; log10 of y when log_y */
    bool log_y;
} plot;

static double plot_x(const plot *p, double x)
{
    return p->left + (x - p->x_min) / (p->x_max - p->x_min) * p->width;
}

/* NAN if the value cannot be drawn. */
static double plot_y(const plot *p, double y)
{
    const double value = p->log_y ? (y > 0.0 ? log10(y) : NAN) : y;
    return p->top + p->height - (value - p->y_min) / (p->y_max - p->y_min) * p->height;
}

static bool is_drawable(const ls_svg_chart *chart, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!chart->log_y || y > 0.0);
}

/* The range of all drawable points; false when there is none. */
static bool find_range(const ls_svg_chart *chart, plot *p)
{
    bool found = false;
    for (size_t s = 0; s < chart->series_count; s++) {
        const ls_svg_series *series = &chart->series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!is_drawable(chart, series->x[i], series->y[i])) {
                continue;
            }
            const double x = series->x[i], y = chart->log_y ? log10(series->y[i]) : series->y[i];
            p->x_min = found ? fmin(p->x_min, x) : x;
            p->x_max = found ? fmax(p->x_max, x) : x;
            p->y_min = found ? fmin(p->y_min, y) : y;
            p->y_max = found ? fmax(p->y_max, y) : y;
            found = true;
        }
    }
    return found;
}

/* Widens an empty range and adds a small margin above and below the curves. */
static void pad_range(const ls_svg_chart *chart, plot *p)
{
    if (p->x_max <= p->x_min) {
        p->x_min -= 0.5;
        p->x_max += 0.5;
    }
    if (chart->from_zero && !chart->log_y) {
        p->y_min = fmin(p->y_min, 0.0);
        p->y_max = fmax(p->y_max, 0.0);
    }
    double pad = 0.04 * (p->y_max - p->y_min);
    if (pad <= fabs(p->y_max) * 1e-12) {
        pad = p->y_max == 0.0 ? 0.5 : 0.05 * fabs(p->y_max);
    }
    p->y_min -= chart->from_zero && p->y_min == 0.0 ? 0.0 : pad;
    p->y_max += pad;
}

static void append_y_tick(const plot *p, double value, const char *label, ls_text *text)
{
    const double y = plot_y(p, value);
    ls_text_printf(text, "<line class=\"ls-grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                   p->left, y, p->left + p->width, y);
    ls_svg_label(text, p->left - 8, y + 4, LS_SVG_END, -1, label);
}

static void append_linear_y(const plot *p, ls_text *text)
{
    double first = 0.0;
    const double step = ls_svg_ticks(p->y_min, p->y_max, (int)(p->height / 45), &first);
    for (int i = 0; first + i * step <= p->y_max + step * 1e-9; i++) {
        char label[32];
        ls_svg_format_tick(label, sizeof label, first + i * step, step);
        append_y_tick(p, first + i * step, label, text);
    }
}

/* Powers of ten; also 2 and 5 times a power if there are few. */
static void append_log_y(const plot *p, ls_text *text)
{
    static const double leads[] = {1.0, 2.0, 5.0};
    const double decades = p->y_max - p->y_min;
    if (decades < 1.0) { /* too short for powers: linear ticks, placed on the log axis */
        double first = 0.0;
        const double min = pow(10.0, p->y_min), max = pow(10.0, p->y_max);
        const double step = ls_svg_ticks(min, max, 5, &first);
        for (int i = 0; first + i * step <= max; i++) {
            char label[32];
            ls_svg_format_tick(label, sizeof label, first + i * step, step);
            append_y_tick(p, first + i * step, label, text);
        }
        return;
    }
    const int stride = 1 + (int)(decades / 8.0);
    for (int power = (int)floor(p->y_min); power <= (int)ceil(p->y_max); power++) {
        for (size_t i = 0; i < (decades < 3.0 ? 3u : 1u); i++) {
            const double value = leads[i] * pow(10.0, power);
            if (log10(value) < p->y_min || log10(value) > p->y_max || (power % stride != 0)) {
                continue;
            }
            char label[32];
            snprintf(label, sizeof label, "%g", value);
            append_y_tick(p, value, label, text);
        }
    }
}

static void append_x_axis(const plot *p, ls_text *text)
{
    double first = 0.0;
    const double step = ls_svg_ticks(p->x_min, p->x_max, (int)(p->width / 90), &first);
    const double bottom = p->top + p->height;
    for (int i = 0; first + i * step <= p->x_max + step * 1e-9; i++) {
        char label[32];
        ls_svg_format_tick(label, sizeof label, first + i * step, step);
        const double x = plot_x(p, first + i * step);
        ls_svg_line(text, x, bottom, x, bottom + 4);
        ls_svg_label(text, x, bottom + 18, LS_SVG_MIDDLE, -1, label);
    }
    ls_svg_line(text, p->left, bottom, p->left + p->width, bottom);
}

/* ---- line charts ---- */

/* A path under construction; consecutive points in one column are drawn as the range they span. */
typedef struct pen {
    ls_text path;
    double column; /* of the points collected */
    double first, low, high, last;
    bool drawing; /* the next point continues the line */
    bool collecting;
    double end_x, end_y; /* last point drawn */
    size_t points;
} pen;

static void pen_to(pen *at, double x, double y)
{
    ls_text_printf(&at->path, "%c%.1f %.1f", at->drawing ? 'L' : 'M', x, y);
    at->drawing = true;
    at->end_x = x;
    at->end_y = y;
    at->points++;
}

static void pen_flush(pen *at)
{
    if (!at->collecting) {
        return;
    }
    pen_to(at, at->column, at->first);
    if (at->low < fmin(at->first, at->last)) {
        pen_to(at, at->column, at->low);
    }
    if (at->high > fmax(at->first, at->last)) {
        pen_to(at, at->column, at->high);
    }
    if (at->last != at->first) {
        pen_to(at, at->column, at->last);
    }
    at->collecting = false;
}

static void pen_add(pen *at, double x, double y)
{
    if (at->collecting && at->column != x) {
        pen_flush(at);
    }
    if (!at->collecting) {
        at->collecting = true;
        at->column = x;
        at->first = at->low = at->high = y;
    }
    at->low = fmin(at->low, y);
    at->high = fmax(at->high, y);
    at->last = y;
}

static void append_series(const ls_svg_chart *chart, const plot *p, const ls_svg_series *series, int color,
                          bool area, ls_text *text)
{
    pen at = {0};
    const bool dense = (double)series->count > 2.0 * p->width;
    double first_x = NAN;
    for (size_t i = 0; i < series->count; i++) {
        if (!is_drawable(chart, series->x[i], series->y[i])) {
            pen_flush(&at);
            at.drawing = false; /* a gap shows where values are missing */
            area = false;
            continue;
        }
        const double x = plot_x(p, series->x[i]);
        first_x = isnan(first_x) ? x : first_x;
        pen_add(&at, dense ? round(x) : x, plot_y(p, series->y[i]));
    }
    pen_flush(&at);
    if (area && at.points > 1) {
        const double bottom = p->top + p->height;
        ls_text_printf(text, "<path class=\"ls-area ls-f%d\" d=\"%sL%.1f %.1fL%.1f %.1fZ\"/>\n", color,
                       ls_text_string(&at.path), at.end_x, bottom, first_x, bottom);
    }
    if (at.points > 1) {
        ls_text_printf(text, "<path class=\"ls-line%s ls-s%d\" d=\"%s\"/>\n",
                       series->faint ? " ls-faint" : "", color, ls_text_string(&at.path));
    }
    if (at.points > 0 && !series->faint) {
        ls_text_printf(text, "<circle class=\"ls-f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", color,
                       at.end_x, at.end_y);
    }
    ls_text_release(&at.path);
}

double ls_svg_legend(ls_text *text, const ls_svg_names *names, double x, double y, double right)
{
    double at = x;
    for (size_t i = 0; i < names->count; i++) {
        const int color = names->colors[i];
        const double width = 22 + ls_svg_text_width(names->names[i], 0) + 14;
        if (at > x && at + width > right) {
            at = x;
            y += 20;
        }
        const bool is_pale = color >= LS_SVG_PALE;
        ls_text_printf(text,
                       "<rect class=\"ls-f%d\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"4\" rx=\"2\"",
                       is_pale ? color - LS_SVG_PALE : color, at, y - 6);
        if (is_pale) {
            ls_text_printf(text, " fill-opacity=\"%.2f\"", LS_SVG_PALE_OPACITY);
        }
        ls_text_append(text, "/>\n");
        ls_svg_label(text, at + 20, y, LS_SVG_START, 0, names->names[i]);
        at += width;
    }
    return y;
}

enum { LEGEND_MAX = 32 };

/* A faint series has the colour of the next series, and no entry in the legend. */
static int series_color(const ls_svg_chart *chart, size_t index)
{
    int color = 0;
    for (size_t i = 0; i < index; i++) {
        color += !chart->series[i].faint;
    }
    return color % LS_SVG_COLORS;
}

static double append_chart_legend(const ls_svg_chart *chart, double x, double y, double right, ls_text *text)
{
    const char *names[LEGEND_MAX];
    int colors[LEGEND_MAX];
    size_t count = 0;
    for (size_t i = 0; i < chart->series_count && count < LEGEND_MAX; i++) {
        if (!chart->series[i].faint && chart->series[i].name) {
            names[count] = chart->series[i].name;
            colors[count++] = series_color(chart, i);
        }
    }
    return count > 1 ? ls_svg_legend(text, &(ls_svg_names){names, colors, count}, x, y, right) : y - 20;
}

static double widest_y_label(const plot *p)
{
    double first = 0.0, widest = 0.0;
    const double step = ls_svg_ticks(p->y_min, p->y_max, (int)(p->height / 45), &first);
    for (int i = 0; first + i * step <= p->y_max + step * 1e-9; i++) {
        char label[32];
        ls_svg_format_tick(label, sizeof label, first + i * step, step);
        widest = fmax(widest, 0.92 * ls_svg_text_width(label, 0));
    }
    return p->log_y ? 48.0 : widest;
}

void ls_svg_line_chart(const ls_svg_chart *chart, ls_text *text)
{
    const int width = chart->width > 0 ? chart->width : CHART_WIDTH;
    const int height = chart->height > 0 ? chart->height : CHART_HEIGHT;
    ls_svg_begin(text, width, height, chart->title);
    double top = 16.0;
    if (chart->title) {
        ls_svg_label(text, 16, top + 12, LS_SVG_START, 1, chart->title);
        top += 24.0;
    }
    plot p = {.log_y = chart->log_y};
    if (!find_range(chart, &p)) {
        ls_svg_label(text, width / 2.0, height / 2.0, LS_SVG_MIDDLE, -1, "no data yet");
        ls_svg_end(text);
        return;
    }
    pad_range(chart, &p);
    top = append_chart_legend(chart, 16, top + 12, width - 16.0, text) + 8.0;
    if (chart->y_label) {
        ls_svg_label(text, 16, top + 10, LS_SVG_START, -1, chart->y_label);
        top += 18.0;
    }
    p.top = top + 4.0;
    p.height = fmax(40.0, height - p.top - (chart->x_label ? 46.0 : 30.0));
    p.left = 24.0 + widest_y_label(&p);
    p.width = fmax(40.0, width - p.left - 24.0);

    if (chart->log_y) {
        append_log_y(&p, text);
    } else {
        append_linear_y(&p, text);
    }
    append_x_axis(&p, text);
    if (chart->x_label) {
        ls_svg_label(text, p.left + p.width / 2, height - 10.0, LS_SVG_MIDDLE, -1, chart->x_label);
    }
    size_t named = 0;
    for (size_t i = 0; i < chart->series_count; i++) {
        named += !chart->series[i].faint;
    }
    for (size_t i = 0; i < chart->series_count; i++) {
        append_series(chart, &p, &chart->series[i], series_color(chart, i),
                      named == 1 && !chart->series[i].faint, text);
    }
    ls_svg_end(text);
}

/* ---- stacked bars ---- */

static double part_value(const ls_svg_bars *bars, size_t bar, size_t part)
{
    const double value = bars->values[bar * bars->part_count + part];
    return isfinite(value) && value > 0.0 ? value : 0.0;
}

static int part_color(const ls_svg_bars *bars, size_t part)
{
    return (bars->colors ? bars->colors[part] : (int)part) % LS_SVG_COLORS;
}

static double bar_total(const ls_svg_bars *bars, size_t bar)
{
    double total = 0.0;
    for (size_t part = 0; part < bars->part_count; part++) {
        total += part_value(bars, bar, part);
    }
    return total;
}

static void append_bar(const ls_svg_bars *bars, size_t bar, double left, double y, double scale,
                       ls_text *text)
{
    enum { BAR_HEIGHT = 24 };
    double x = left;
    for (size_t part = 0; part < bars->part_count; part++) {
        const double value = part_value(bars, bar, part), part_width = value * scale;
        if (part_width < 0.05) {
            continue;
        }
        ls_text_printf(text,
                       "<rect class=\"ls-f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"><title>",
                       part_color(bars, part), x, y, fmax(part_width - 1.0, 0.5), BAR_HEIGHT);
        ls_text_append_escaped(text, bars->part_names[part]);
        ls_text_printf(text, ": %.4g %s</title></rect>\n", value, bars->unit ? bars->unit : "");
        x += part_width;
    }
    char total[64];
    snprintf(total, sizeof total, "%.4g %s", bar_total(bars, bar), bars->unit ? bars->unit : "");
    ls_svg_label(text, x + 8, y + 17, LS_SVG_START, -1, total);
}

void ls_svg_stacked_bars(const ls_svg_bars *bars, ls_text *text)
{
    enum { ROW_HEIGHT = 34 };
    const int width = bars->width > 0 ? bars->width : CHART_WIDTH;
    int colors[LEGEND_MAX];
    double left = 16.0, legend_width = 0.0, longest = 0.0;
    const size_t legend_count = bars->part_count < LEGEND_MAX ? bars->part_count : LEGEND_MAX;
    for (size_t i = 0; i < legend_count; i++) {
        colors[i] = part_color(bars, i);
        legend_width += 36 + ls_svg_text_width(bars->part_names[i], 0);
    }
    for (size_t bar = 0; bar < bars->bar_count; bar++) {
        left = fmax(left, 28.0 + ls_svg_text_width(bars->bar_names[bar], 0));
        longest = fmax(longest, bar_total(bars, bar));
    }
    /* rows break early: leave room */
    const int legend_rows = 1 + (int)(legend_width / (width - 32.0)) * 2;
    const int height =
        (bars->title ? 32 : 8) + 20 * legend_rows + 16 + ROW_HEIGHT * (int)bars->bar_count + 10;

    ls_svg_begin(text, width, height, bars->title);
    double y = 16.0;
    if (bars->title) {
        ls_svg_label(text, 16, y + 12, LS_SVG_START, 1, bars->title);
        y += 24.0;
    }
    y = ls_svg_legend(text, &(ls_svg_names){bars->part_names, colors, legend_count}, 16, y + 12,
                      width - 16.0) +
        16.0;
    const double scale = longest > 0.0 ? (width - left - 90.0) / longest : 0.0;
    for (size_t bar = 0; bar < bars->bar_count; bar++, y += ROW_HEIGHT) {
        ls_svg_label(text, left - 10, y + 17, LS_SVG_END, 0, bars->bar_names[bar]);
        append_bar(bars, bar, left, y, scale, text);
    }
    ls_svg_end(text);
}

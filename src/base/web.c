// SPDX-License-Identifier: Apache-2.0
#include "base/web.h"

#include "base/assert.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { PHONE_WIDTH = 370, PHONE_HEIGHT = 260 };

const ls_embedded_file *ls_embedded_find(const ls_embedded_file *files, const char *name)
{
    while (files->name && strcmp(files->name, name) != 0) {
        files++;
    }
    return files->name ? files : NULL;
}

void ls_web_append(const char *file, const ls_values *values, ls_text *text)
{
    const bool is_made = ls_template_append(ls_web_files, file, values, text) == LS_OK;
    LS_DCHECK(is_made);
    if (!is_made) {
        ls_text_append(text, "<!doctype html><title>Lockstep</title><p>This page could not be made: ");
        ls_text_append_escaped(text, ls_error_text());
        ls_text_append(text, "</p>\n");
    }
}

ls_values *ls_web_begin(ls_arena *arena, const char *page, bool has_queue)
{
    ls_values *values = ls_values_create(arena);
    ls_values_text(values, "page", page);
    ls_values_text(values, "version", LS_VERSION);
    ls_values_flag(values, "has_queue", has_queue);
    ls_web_time(values, "now", ls_clock_wall_s(), "%Y-%m-%d %H:%M:%S UTC");
    return values;
}

const ls_embedded_file *ls_web_find(const char *path, const char **type_out)
{
    static const char *const files[][2] = {{"/style.css", "text/css; charset=utf-8"},
                                           {"/page.js", "text/javascript; charset=utf-8"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(path, files[i][0]) == 0) {
            *type_out = files[i][1];
            return ls_embedded_find(ls_web_files, path + 1);
        }
    }
    return NULL;
}

ls_values *ls_web_tile(ls_values *page, const char *large, const char *small)
{
    ls_values *tile = ls_values_add(page, "tiles");
    ls_values_text(tile, "large", large);
    ls_values_text(tile, "small", small);
    return tile;
}

void ls_web_chart(ls_values *values, const ls_svg_chart *chart, int width, int height)
{
    ls_svg_chart sized = *chart;
    ls_text made = {0};
    sized.width = width;
    sized.height = height;
    ls_svg_line_chart(&sized, &made);
    ls_values_markup(values, "wide", &made);
    sized.width = PHONE_WIDTH;
    sized.height = PHONE_HEIGHT;
    ls_svg_line_chart(&sized, &made);
    ls_values_markup(values, "phone", &made);
}

void ls_web_bars(ls_values *values, const ls_svg_bars *bars, int width)
{
    ls_svg_bars sized = *bars;
    ls_text made = {0};
    sized.width = width;
    ls_svg_stacked_bars(&sized, &made);
    ls_values_markup(values, "wide", &made);
    sized.width = PHONE_WIDTH;
    ls_svg_stacked_bars(&sized, &made);
    ls_values_markup(values, "phone", &made);
}

void ls_web_time(ls_values *values, const char *name, double time_s, const char *format)
{
    char text[64];
    struct tm parts;
    const time_t seconds = isfinite(time_s) && fabs(time_s) < 1e11 ? (time_t)time_s : 0;
    const bool is_known =
        isfinite(time_s) && gmtime_r(&seconds, &parts) && strftime(text, sizeof text, format, &parts) > 0;
    ls_values_text(values, name, is_known ? text : NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The pages of the program: the files of web/, built in. web/style.css is the style sheet of them
 * all. There are two kinds:
 *
 *   files    (report, plan, simulation) begin with web/head.html, which inlines the style sheet:
 *            one HTML document that needs no network, no script and no other file
 *   served   (run, compare, queue, job) begin with web/page_head.html, which refers to the style
 *            sheet and to the script, web/page.js
 *
 * What all pages need as values: "page" (the class of the body), "title", and "refresh" (seconds
 * after which a browser loads it again; a flag that is not set: never).
 */
#ifndef LS_BASE_WEB_H
#define LS_BASE_WEB_H

#include "base/svg.h"
#include "base/template.h"

/* The files of web/; the last has no name. */
extern const ls_embedded_file ls_web_files[];

/* Appends a page. Its template and values are both parts of this program, so an error is a bug: a
 * debug build stops, a release build appends the error's text in place of the page. */
void ls_web_append(const char *file, const ls_values *values, ls_text *text);

/* The values of a served page: what web/page_head.html and web/page_foot.html need but the title.
 * has_queue: it links to the daemon's queue. */
ls_values *ls_web_begin(ls_arena *arena, const char *page, bool has_queue);

/* A file of web/ that served pages refer to, by the path of a request ("/style.css"), and the type
 * of its content; NULL: it is none of them. */
const ls_embedded_file *ls_web_find(const char *path, const char **type_out);

/* Adds a tile of web/tiles.html: `large`, a number or a word (NULL: a dash), with `small` below it.
 * Returns its values; "tile_look" (good, bad, ...) colours the number. */
ls_values *ls_web_tile(ls_values *page, const char *large, const char *small);

/*
 * A figure is in a page twice, as web/figure.html wants it: "wide" for a screen and "phone" for a
 * narrow one; the style sheet shows the one that fits.
 */
void ls_web_chart(ls_values *values, const ls_svg_chart *chart, int width, int height);
void ls_web_bars(ls_values *values, const ls_svg_bars *bars, int width);

/* "2026-11-21 17:04:09 UTC" by a strftime format, of seconds since 1970; not known: a dash. */
void ls_web_time(ls_values *values, const char *name, double time_s, const char *format);

#endif

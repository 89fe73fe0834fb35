// SPDX-License-Identifier: Apache-2.0
/*
 * Templates: text with places for values, for the HTML pages in web/.
 *
 *   web/jobs.html                              C
 *   <h2>{{title}}</h2>                         ls_values_text(page, "title", "What ended");
 *   <table>{{#jobs}}                           ls_values *row = ls_values_add(page, "jobs");
 *     <tr><td>{{number}}</td>                  ls_values_printf(row, "number", "%d", 7);
 *         <td>{{name}}</td></tr>               ls_values_text(row, "name", name_from_a_user);
 *   {{/jobs}}</table>
 *   {{^jobs}}<p>none</p>{{/jobs}}
 *
 * Tags of a template:
 *
 *   {{name}}           a value, escaped: it can't become markup, in text and in quoted attributes
 *   {{{name}}}         markup that this program made: an SVG figure. Takes only what was set with
 *                      ls_values_markup, and {{name}} takes only the rest, so text from outside
 *                      cannot appear unescaped by mistake
 *   {{#name}}..{{/name}}  the part between: once for each row of a list, with the row's values and
 *                      those around it; once for a flag that is set or a value that is not empty;
 *                      otherwise left out
 *   {{^name}}..{{/name}}  the opposite: once when {{#name}} would leave its part out
 *   {{>file}}          another file of the same table, with the values of this place
 *   {{! words }}       a comment
 *
 * A tag other than a value that has a line of its own takes the end of that line with it. Names are
 * lower case letters, digits and _. Sections and files nest at most LS_TEMPLATE_DEPTH_MAX deep.
 *
 * Values live in the caller's arena and are copies. Pure; thread-safe for separate arenas and
 * texts.
 */
#ifndef LS_BASE_TEMPLATE_H
#define LS_BASE_TEMPLATE_H

#include "base/arena.h"
#include "base/embedded.h"
#include "base/text.h"

#include <stdbool.h>

enum { LS_TEMPLATE_DEPTH_MAX = 12, LS_TEMPLATE_NAME_MAX = 31 };

/* The values of a page, or of one row of a list. */
typedef struct ls_values ls_values;

/* Without any value. Lives as long as the arena. */
ls_values *ls_values_create(ls_arena *arena);

/* A name that is set again has its newest value; a list is only added to. */

/* text: NULL is a dash. Control characters other than line breaks and tabs, marks that turn the
 * direction of reading round, and bytes that are not UTF-8 are shown as \xNN. */
void ls_values_text(ls_values *values, const char *name, const char *text);
void ls_values_bytes(ls_values *values, const char *name, const char *data, size_t bytes);
void ls_values_printf(ls_values *values, const char *name, const char *format, ...) LS_PRINTF(3, 4);

/* At most `bytes_max` bytes of the text, whole characters, with an ellipsis where it was cut. */
void ls_values_cut(ls_values *values, const char *name, const char *text, size_t bytes_max);

/* A sentence of this program. Words between ** and ** are bold; everything is escaped as always. */
void ls_values_prose(ls_values *values, const char *name, const char *sentence);

/* Only for sections. A flag that was never set is false. */
void ls_values_flag(ls_values *values, const char *name, bool flag);

/* Takes over what `made` holds and empties it. */
void ls_values_markup(ls_values *values, const char *name, ls_text *made);

/* One more row for the list of that name. */
ls_values *ls_values_add(ls_values *values, const char *name);

/*
 * Appends file `name` of the table `files` with its values put in.
 *
 * Errors: LS_ERR_INVALID with the file and line: a tag that is never closed or never opened, a name
 * that has no value, a kind of value that the tag does not take, a file that is not in the table,
 * sections or files nested too deep. Nothing is appended then.
 */
LS_MUST_CHECK ls_status ls_template_append(const ls_embedded_file *files, const char *name,
                                           const ls_values *values, ls_text *text);

#endif

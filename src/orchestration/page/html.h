// SPDX-License-Identifier: Apache-2.0
/* HTML: what both pages are made of. Everything that came from somebody else goes through ls_html_text. Pure. */
#ifndef LS_ORCHESTRATION_PAGE_HTML_H
#define LS_ORCHESTRATION_PAGE_HTML_H

#include "base/json.h"
#include "base/text.h"

#include <stdint.h>

/* Printable and escaped; longer than `bytes_max` is cut, and says so. NULL: a dash. */
void ls_html_text(ls_text *page, const char *text, size_t bytes_max);
/* Head and style; the page is asked for again every `refresh_s` seconds, 0: never. title: not yet escaped. */
void ls_html_open(ls_text *page, const char *title, int refresh_s);
void ls_html_close(ls_text *page, double now_s);
/* A tile: a large number or word with a line under it. Both our own words. */
void ls_html_tile(ls_text *page, const char *large, const char *small);
/* A state in its colour. */
void ls_html_state(ls_text *page, const char *state);
/* A link to a job's page. */
void ls_html_job(ls_text *page, int64_t job);

/* Members of answers; "" and 0 when they are not there. */
const char *ls_html_string(const json_t *object, const char *key);
int64_t ls_html_integer(const json_t *object, const char *key);
double ls_html_number(const json_t *object, const char *key);

#endif

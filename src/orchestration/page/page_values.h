// SPDX-License-Identifier: Apache-2.0
/* What the pages of the queue share: members of answers as values of templates. Inside of
 * orchestration/page. */
#ifndef LS_ORCHESTRATION_PAGE_PAGE_VALUES_H
#define LS_ORCHESTRATION_PAGE_PAGE_VALUES_H

#include "base/json.h"
#include "base/web.h"

#include <stdint.h>

/* The values of the head and foot. refresh_s: seconds until a browser without script loads the page
 * again; 0: it does not. */
ls_values *ls_page_create(ls_arena *arena, const char *title, int refresh_s);

/* Members of answers; "" and 0 when they are missing. */
const char *ls_page_string(const json_t *object, const char *key);
int64_t ls_page_integer(const json_t *object, const char *key);
double ls_page_number(const json_t *object, const char *key);

/* The member of that name as a value of the same name. Text longer than bytes_max is cut; a member
 * that is missing or null is a dash. */
void ls_page_set_text(ls_values *values, const json_t *object, const char *key, size_t bytes_max);
void ls_page_set_integer(ls_values *values, const json_t *object, const char *key);

/* A job's state and the class of its badge's colour. */
const char *ls_page_state_look(const char *state);

/* A sweep as web/sweep.html shows it: an item of the list "sweeps", with its jobs if known. */
void ls_page_add_sweep(const json_t *sweep, ls_values *page);

bool ls_page_is_waiting(const char *state);

#endif

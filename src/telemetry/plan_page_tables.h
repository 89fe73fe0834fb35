// SPDX-License-Identifier: Apache-2.0
/* The tables of the plan's page: the numbers behind the pictures. Inside of telemetry/plan_page. */
#ifndef LS_TELEMETRY_PLAN_PAGE_TABLES_H
#define LS_TELEMETRY_PLAN_PAGE_TABLES_H

#include "telemetry/plan_page.h"

/* The step's terms and the memory, strategies that lost, other counts, the paths, what flips the verdict. */
void ls_page_append_tables(const ls_plan_page *page, ls_text *text);

#endif

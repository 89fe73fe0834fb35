// SPDX-License-Identifier: Apache-2.0
/* The tables of web/plan.html: the numbers behind the pictures. Inside of telemetry/plan_page. */
#ifndef LS_TELEMETRY_PLAN_PAGE_PLAN_PAGE_TABLES_H
#define LS_TELEMETRY_PLAN_PAGE_PLAN_PAGE_TABLES_H

#include "base/template.h"
#include "telemetry/plan_page/plan_page.h"

/* Terms of the step, memory, strategies that were not chosen, other counts, paths, and what would
 * change the verdict. */
void ls_page_add_tables(const ls_plan_page *page, ls_values *values);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The page of a preparation: DIR/report.html, from its report. */
#ifndef LS_CLI_DATA_PREPARATION_PAGE_H
#define LS_CLI_DATA_PREPARATION_PAGE_H

#include "base/json.h"
#include "base/status.h"

/* Writes the same bytes for the same report. Errors: those of
 * ls_file_write_atomic. */
LS_MUST_CHECK ls_status ls_preparation_page_write(const char *folder, const json_t *report);

#endif

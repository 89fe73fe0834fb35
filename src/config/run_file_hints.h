// SPDX-License-Identifier: Apache-2.0
/* Inside of config: the hints of the table of the run file. */
#ifndef LS_CONFIG_RUN_FILE_HINTS_H
#define LS_CONFIG_RUN_FILE_HINTS_H

#include "base/options.h"

extern const ls_option_hint ls_run_file_hints[];

#endif

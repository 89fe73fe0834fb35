// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated run as one page, for people: utilisation and queue over time, how long jobs took, how fair it was. The page needs no network, no script and no
 * other file, and is read on a phone and in the dark. Pure; names are escaped.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_PAGE_H
#define LS_ORCHESTRATION_SIMULATE_PAGE_H

#include "base/text.h"
#include "orchestration/simulate/summary.h"

/* The page. `command`: the command line that makes it again; NULL: left out. */
void ls_sim_page_append(const ls_sim_summary *summary, const char *command, ls_text *text);

#endif

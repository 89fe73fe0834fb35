// SPDX-License-Identifier: Apache-2.0
/*
 * A simulated run as a page (web/simulation.html): utilisation and queue over time, how long jobs
 * took, and how fair the policy was. Pure.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_SIMULATION_PAGE_H
#define LS_ORCHESTRATION_SIMULATE_SIMULATION_PAGE_H

#include "base/text.h"
#include "orchestration/simulate/summary.h"

/* Appends the page. `command`: the command line that reproduces it; NULL: left out. */
void ls_sim_page_append(const ls_sim_summary *summary, const char *command, ls_text *text);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * A process that breaks a promise: its env passes every call on to the simulator's, but for one that it skips or whose outcome it doesn't look at.
 * Where a mutation of the program can be said in those terms, the program itself needs no switch for it.
 */
#ifndef LS_TESTS_SIM_CARELESS_H
#define LS_TESTS_SIM_CARELESS_H

#include "sim.h"

extern const sim_mutation careless_disk_mutations[];
extern const size_t careless_disk_mutation_count;

/* Puts the run's mutation, if it is one of these, between a process and its env. Before the process makes its first call. */
void careless_init(sim_run *run, ls_env *env);

#endif

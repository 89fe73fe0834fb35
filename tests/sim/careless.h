// SPDX-License-Identifier: Apache-2.0
/* A process that breaks a promise: its env passes every call on to the simulator's, except one
 * that it skips or whose result it ignores. A mutation that can be expressed in this way needs
 * no switch in the program itself. */
#ifndef LS_TESTS_SIM_CARELESS_H
#define LS_TESTS_SIM_CARELESS_H

#include "sim.h"

extern const sim_mutation careless_disk_mutations[];
extern const size_t careless_disk_mutation_count;

/* Puts the run's mutation, if it is one of these, between a process and its env. Call it before
 * the process makes its first call. */
void careless_init(sim_run *run, ls_env *env);

#endif

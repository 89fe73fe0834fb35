// SPDX-License-Identifier: Apache-2.0
#ifndef LS_TESTS_SIM_WORLDS_H
#define LS_TESTS_SIM_WORLDS_H

#include "sim.h"

extern const sim_world sim_world_checkpoint, sim_world_gang, sim_world_store, sim_world_run,
    sim_world_cluster;

#endif

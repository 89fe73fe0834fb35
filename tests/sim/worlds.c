// SPDX-License-Identifier: Apache-2.0
#include "worlds.h"

const sim_world *const sim_worlds[] = {&sim_world_checkpoint, &sim_world_gang, &sim_world_store,
                                       &sim_world_run, &sim_world_cluster};
const size_t sim_world_count = sizeof sim_worlds / sizeof sim_worlds[0];

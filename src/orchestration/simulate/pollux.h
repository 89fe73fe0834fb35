// SPDX-License-Identifier: Apache-2.0
/*
 * Pollux' profiles: how long the training jobs of its workloads take, by number of GPUs and of nodes.
 *
 * A folder per application (cifar10, bert, ...) with what was measured: placements.csv and scalability.csv (seconds of a step and of its synchronisation, by
 * placement and batch per GPU), validation-BATCH.csv (progress, iterations and gradient noise of each epoch). The batch of a job stays as it was asked for, on
 * any number of GPUs (accumulated over as many micro-batches as its memory takes), so a run is
 *
 *   steps(batch) x step_s(gpus, nodes, batch / gpus),     steps = sum over epochs of progress(epoch) / gain(batch, epoch)
 *   gain = (var + sqr) / (var / scale + sqr),  scale = batch / smallest batch    (McCandlish et al. 2018; Pollux, OSDI 2021, section 3)
 *
 * Epochs and the largest batch per GPU are those of the published simulator. How elastic a job is, the workloads don't say: here from a quarter of what it asks
 * for to twice as much.
 *
 * Placements that were not measured are interpolated between the nearest that were. Origin: petuum/adaptdl, branch osdi21-artifact, Apache-2.0.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_POLLUX_H
#define LS_ORCHESTRATION_SIMULATE_POLLUX_H

#include "orchestration/simulate/trace.h"

typedef struct ls_pollux ls_pollux;

/* An empty set of profiles; applications are read when they are first asked for. Lives in the arena. */
ls_pollux *ls_pollux_create(ls_arena *arena, const char *folder);

/*
 * The speed of an application at a global batch, the same object for the same question.
 * Errors: LS_ERR_NOT_FOUND (no such application), LS_ERR_DATA (a file that is not as it should be; a batch outside of what was measured).
 */
LS_MUST_CHECK ls_status ls_pollux_speed(ls_pollux *pollux, const char *application, uint32_t batch,
                                        const ls_speed **speed_out);

/* The fewest nodes that hold so many GPUs in the cluster that was measured: 4 a node. */
uint32_t ls_pollux_nodes(uint32_t gpus);

#endif

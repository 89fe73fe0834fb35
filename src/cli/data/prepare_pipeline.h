// SPDX-License-Identifier: Apache-2.0
/* data prepare with a pipeline: runs it and prints what the steps removed. */
#ifndef LS_CLI_DATA_PREPARE_PIPELINE_H
#define LS_CLI_DATA_PREPARE_PIPELINE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* path: the pipeline (data/preparation/pipeline.h); folder: where its result goes. threads: 0 is
 * one for each core. Errors: those of ls_data_pipeline_load and ls_preparation_run. */
LS_MUST_CHECK ls_status ls_prepare_pipeline(ls_arena *arena, const char *path, const char *folder,
                                            uint64_t threads, bool json);

#endif

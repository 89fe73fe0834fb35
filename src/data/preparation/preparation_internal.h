// SPDX-License-Identifier: Apache-2.0
/* Between the files of a preparation: its state, and the parts of the work. */
#ifndef LS_DATA_PREPARATION_PREPARATION_INTERNAL_H
#define LS_DATA_PREPARATION_PREPARATION_INTERNAL_H

#include "data/preparation/input_shard.h"
#include "data/preparation/preparation.h"
#include "data/preparation/step_chain.h"
#include "data/preparation/verdicts.h"

#include <pthread.h>

typedef struct ls_preparation {
    const ls_preparation_options *options;
    const ls_data_pipeline *pipeline;
    ls_step_chain *chain;
    ls_shard_piece *pieces;
    /* DIR/.work. */
    const char *work;
    ls_arena arena;
    ls_preparation_figures figures;
    /* Verdicts of the last pass that was decided, mapped, and the number of the first document of
     * each file (file_count + 1). */
    ls_file_map verdicts_map;
    const ls_finding *verdicts;
    uint64_t *bases;
} ls_preparation;

/* Paths in the scratch folder, in the arena. */
const char *ls_preparation_findings_path(ls_preparation *p, uint32_t pass, size_t unit);
const char *ls_preparation_done_path(ls_preparation *p, size_t unit);
/* DIR/data/00000-name.jsonl.zst. */
const char *ls_preparation_output_path(ls_preparation *p, size_t unit);
const char *ls_preparation_removed_path(ls_preparation *p, size_t unit);

/* Scans a file in a pass and commits its findings. */
LS_MUST_CHECK ls_status ls_preparation_scan(ls_preparation *p, const ls_pass *pass, size_t unit);

/* Writes what is left of a file, what was removed, and last its counts. pass: NULL. */
LS_MUST_CHECK ls_status ls_preparation_write(ls_preparation *p, const ls_pass *pass, size_t unit);

/* Frees what writing kept in the pieces. */
void ls_preparation_outputs_release(ls_preparation *p);

#endif

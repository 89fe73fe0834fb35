// SPDX-License-Identifier: Apache-2.0
/*
 * Preparation: a corpus goes through the steps of a pipeline; what is left is written to a folder.
 *
 *   DIR/data/00000-name.jsonl.zst    the documents of each input file that were kept
 *   DIR/removed/00000.jsonl.zst      what was removed from it, and why (one object for each)
 *   DIR/report.json                  counts and examples, written last
 *   DIR/.work/                       scratch, removed at the end
 *
 * The work is cut by input files. For each pass (data/preparation/verdicts.h) all files are
 * scanned; the verdicts are decided; then the files are written. Each part is committed by a
 * rename, so that the same call after a kill continues where it was. Any number of processes, on
 * any hosts that share the folder, may make the same call at once: a file is worked on by the
 * process that holds its lock, which the system frees when the process ends, and all of them
 * return when all is done.
 *
 * Bytes of DIR/data, DIR/removed and the report depend on the pipeline and the input alone.
 */
#ifndef LS_DATA_PREPARATION_PREPARATION_H
#define LS_DATA_PREPARATION_PREPARATION_H

#include "base/json.h"
#include "base/status.h"
#include "data/preparation/pipeline.h"

typedef struct ls_preparation_options {
    const ls_data_pipeline *pipeline;
    /* DIR. */
    const char *folder;
    /* >= 1. */
    uint32_t threads;
    /* Called before each part, on the calling thread: "read", "compare" or "write", and how many
     * of how many files are done. May be NULL. */
    void (*progress)(void *context, const char *part, size_t done, size_t total);
    void *context;
    /* Writes what people read of the report to the folder, just before report.json is written, in
     * the one process that writes it. May be NULL. */
    ls_status (*page)(const char *folder, const json_t *report);
} ls_preparation_options;

/* What the calling process did; zero for what others did. */
typedef struct ls_preparation_figures {
    /* Text that was read, in the first pass. */
    uint64_t bytes;
    /* Of one document of 16: seconds of processor time in each step while judging, by index, and
     * text that reached it; in reading and text that was read. */
    double step_s[LS_PIPELINE_STEPS_MAX], read_s;
    uint64_t step_bytes[LS_PIPELINE_STEPS_MAX], read_bytes;
    /* Seconds of processor time in writing. */
    double write_s;
    double wall_s;
    uint64_t scratch_bytes;
} ls_preparation_figures;

/*
 * Prepares a corpus. figures_out may be NULL.
 *
 * Errors: LS_ERR_INVALID if the folder holds another preparation; LS_ERR_DATA for an input file
 * that cannot be read or has changed since the preparation began, with its name; LS_ERR_DISK;
 * those of ls_step_chain_open; LS_ERR_UNSUPPORTED for 2^32 documents or more.
 */
LS_MUST_CHECK ls_status ls_preparation_run(const ls_preparation_options *options,
                                           ls_preparation_figures *figures_out);

/* Loads DIR/report.json. Errors: LS_ERR_NOT_FOUND for a folder without one; LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_preparation_report(const char *folder, json_t **report_out);

#endif

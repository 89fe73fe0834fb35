// SPDX-License-Identifier: Apache-2.0
/* Ranks that an earlier trainer left running: with job.lease they finish what they were granted
 * and wait that long for another trainer.
 *
 * RUN/coordinator.log names the processes of the newest epoch. Each of them that lives has the
 * segment open, so the segment is found among the process's file descriptors. Nothing is written
 * anywhere for it. */
#ifndef LS_EXECUTION_ELASTIC_WORKERS_WORKERS_ADOPT_H
#define LS_EXECUTION_ELASTIC_WORKERS_WORKERS_ADOPT_H

#include "execution/elastic/host/coordinator_log.h"
#include "execution/train/segment.h"

/* The run that a trainer begins. */
typedef struct ls_workers_left_options {
    const char *run_dir, *identity;
    uint64_t heard; /* finished steps whose results were written down */
    uint32_t ranks; /* several hosts: ranks of the run and of this host; 0: one host */
    uint32_t local_ranks;
} ls_workers_left_options;

/* Finds ranks of this host that wait for a trainer of this run, and maps their segment, which
 * the caller releases. False: there are none, or none that could go on (they end by themselves,
 * or were told to here). *log_out: the log of a run that did not end and was not told to here;
 * the caller frees it. NULL: nothing. */
bool ls_workers_find_left(const ls_workers_left_options *options, ls_segment *segment_out,
                          ls_log_state **log_out);

/* The most steps that a rank of this host has finished. */
uint64_t ls_workers_most_finished(const ls_control *control);

/* How to ask the other hosts of a run whether they wait for a trainer: where the earlier trainer
 * listened, and who it was. */
typedef struct ls_workers_roll {
    const char *listen, *token, *run_dir;
    const ls_segment *segment; /* an empty one, for the run file */
    const ls_log_state *log;
    uint64_t heard, node_lease_ns;
    ls_reform_settings settings;
} ls_workers_roll;

/* When no rank of this host is left: whether agents of other hosts return and the run can go on
 * with what they have. This may take some seconds; the agents then return once more, to the
 * trainer that takes over. *until_out: up to which step steps were granted. Errors (the address
 * is not free, no memory) count as no. */
bool ls_workers_ask_others(const ls_workers_roll *roll, uint64_t *until_out);

#endif

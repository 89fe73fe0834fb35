// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that a trainer has left behind: with job.lease they finish what they were granted and wait so long for another one.
 *
 * RUN/coordinator.log names the processes of the newest epoch; any that lives has the segment open, so that is found by looking into its
 * descriptors. Nothing is written anywhere for it.
 */
#ifndef LS_EXECUTION_ELASTIC_GANG_ADOPT_H
#define LS_EXECUTION_ELASTIC_GANG_ADOPT_H

#include "execution/elastic/coordinator_log.h"
#include "execution/elastic/segment.h"

/* The run that a trainer begins. */
typedef struct ls_gang_left_options {
    const char *run_dir, *identity;
    uint64_t heard; /* finished steps whose results were noted down */
    uint32_t ranks; /* several hosts: of all, and of this one; 0: one host */
    uint32_t local_ranks;
} ls_gang_left_options;

/*
 * The segment of ranks of this host that wait for a trainer of this run, mapped. False: there are none, or none that could go on (they end by
 * themselves, or were told to here). The caller releases the segment. *log_out: what the log says of a run that did not end, and was not told to
 * here; the caller frees it. NULL: nothing.
 */
bool ls_gang_find_left(const ls_gang_left_options *options, ls_segment *segment_out, ls_log_state **log_out);

/* How the other hosts of a run are asked whether they wait for a trainer: where it listened, and who it was. */
typedef struct ls_gang_roll {
    const char *listen, *token, *run_dir;
    const ls_segment *segment; /* an empty one, for the run file */
    const ls_log_state *log;
    uint64_t heard, node_lease_ns;
    ls_reform_settings settings;
} ls_gang_roll;

/*
 * When no rank of this host is left: whether agents of other hosts come back, and the run can go on with what they have. They may come for some
 * seconds, and do again, to who asks next. *until_out: steps that were granted. Errors (no such address any more, no memory) count as no.
 */
bool ls_gang_ask_others(const ls_gang_roll *roll, uint64_t *until_out);

#endif

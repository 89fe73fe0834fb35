// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that a trainer has left behind: with job.lease they finish what they were granted and wait so long for another one.
 *
 * RUN/coordinator.log names the processes of the newest epoch; any that lives has the segment open, so that is found by looking into its
 * descriptors. Nothing is written anywhere for it.
 */
#ifndef LS_EXECUTION_ELASTIC_GANG_ADOPT_H
#define LS_EXECUTION_ELASTIC_GANG_ADOPT_H

#include "execution/elastic/segment.h"

/*
 * The segment of ranks that wait for a trainer of this run, mapped. identity: of the run. heard: finished steps whose results were noted down. False: there are none, or none that could go on (they
 * end by themselves, or were told to here). The caller releases the segment.
 */
bool ls_gang_find_left(const char *run_dir, const char *identity, uint64_t heard, ls_segment *segment_out);

#endif

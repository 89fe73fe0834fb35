// SPDX-License-Identifier: Apache-2.0
/*
 * Describes a mismatch found in the flight files: ranks called the same operation of a communicator
 * differently. Looks up both sides in the flight files, with their call sites, and names the
 * majority.
 */
#ifndef LS_EXECUTION_HANG_MISMATCH_H
#define LS_EXECUTION_HANG_MISMATCH_H

#include "comm/flight/flight_reader.h"
#include "execution/hang/arrivals.h"

/*
 * Appends "ranks disagree about operation 7 of world: rank 0 (a, pid 1), rank 1 (a, pid 2) call
 * all_reduce sum of 10 f32 at src/x.c:5; rank 2 (a, pid 3) calls barrier at src/x.c:9; 2 of 3 agree
 * on ...: look at the others".
 *
 * readers: of all ranks that have a file, in any order; NULL entries are skipped. fields_out:
 * {"communicator", "seq", "text", "sides": [{"ranks": [{rank, host, pid}], operation, kind, count,
 * site, majority}]}; the caller drops it. Errors: those of the readers; LS_ERR_NOT_FOUND if fewer
 * than two files still hold the operation.
 */
LS_MUST_CHECK ls_status ls_mismatch_describe(ls_flight_reader *const *readers, uint32_t count,
                                             const ls_disagreement *disagreement, ls_text *text,
                                             json_t **fields_out);

#endif

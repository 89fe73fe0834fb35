// SPDX-License-Identifier: Apache-2.0
/* The readers of the formats, one row at a time (private to simulate/trace*.c). */
#ifndef LS_ORCHESTRATION_SIMULATE_TRACE_INTERNAL_H
#define LS_ORCHESTRATION_SIMULATE_TRACE_INTERNAL_H

#include "orchestration/simulate/trace.h"

typedef struct ls_trace_reader {
    ls_arena *arena;
    const ls_csv *csv;
    ls_trace *trace;       /* accounts are added when they first appear */
    uint32_t *account_ids; /* hash table of accounts: index + 1; 0: free */
    uint32_t account_slots;
} ls_trace_reader;

/* Fills a job whose fields are 0. job_out->gpus stays 0 for a row that is left out. Errors:
 * LS_ERR_DATA with the line. */
typedef ls_status ls_trace_row_reader(ls_trace_reader *reader, const ls_csv_row *row, ls_trace_job *job_out);
ls_trace_row_reader ls_trace_read_own, ls_trace_read_philly, ls_trace_read_alibaba;

/* The number of an account; a new one for a name not seen before. */
uint32_t ls_trace_account(ls_trace_reader *reader, const char *name);

/* Seconds of a cell as milliseconds; blank_ms when the cell is blank. */
LS_MUST_CHECK ls_status ls_trace_milliseconds(const ls_trace_reader *reader, const ls_csv_row *row,
                                              const char *column, uint64_t blank_ms, uint64_t *ms_out);
/* A whole number of devices, [least, LS_TRACE_GPUS_MAX]; `blank` when the cell is blank. */
LS_MUST_CHECK ls_status ls_trace_count(const ls_trace_reader *reader, const ls_csv_row *row,
                                       const char *column, uint32_t least, uint32_t blank,
                                       uint32_t *count_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of the machine and of this process.
 */
#ifndef LS_EXECUTION_TRAIN_MEMORY_H
#define LS_EXECUTION_TRAIN_MEMORY_H

#include "base/status.h"

#include <stdint.h>

/* Bytes this process may still allocate: the minimum of what the machine has free or can reclaim,
 * what its control group allows, and what RLIMIT_AS allows. UINT64_MAX if none of these is
 * known. */
uint64_t ls_memory_available(void);

/* Largest resident set of this process so far, bytes. */
uint64_t ls_memory_peak(void);

/* Memory of this process at the moment, without what it shares through a segment, bytes. */
uint64_t ls_memory_private(void);

/* Peak of that so far, bytes. Exact if the process has not touched more of the segment since the
 * peak. */
uint64_t ls_memory_private_peak(void);

/* "1.5 GiB", "12.0 MiB"; text_out: at least 32 bytes. */
const char *ls_memory_text(uint64_t bytes, char text_out[32]);

#endif

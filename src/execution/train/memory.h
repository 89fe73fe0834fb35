// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of the machine and of this process.
 */
#ifndef LS_EXECUTION_TRAIN_MEMORY_H
#define LS_EXECUTION_TRAIN_MEMORY_H

#include "base/status.h"

#include <stdint.h>

/* Bytes this process may still take: the least of what the machine has free or can reclaim, what its control group leaves and
 * what RLIMIT_AS leaves. UINT64_MAX when nothing of that can be found out. */
uint64_t ls_memory_available(void);

/* Largest resident set of this process so far, bytes. */
uint64_t ls_memory_peak(void);

/* What this process holds now besides memory it shares through a segment, bytes. */
uint64_t ls_memory_private(void);

/* The most it held so far besides memory it shares, bytes: exact as long as what it touched of the segment has not grown since. */
uint64_t ls_memory_private_peak(void);

/* "1.5 GiB", "12.0 MiB"; text_out: at least 32 bytes. */
const char *ls_memory_text(uint64_t bytes, char text_out[32]);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Spill: a growing array that is kept in a temporary file without a name, so that the system can
 * write its pages to disk when memory is short.
 *
 * Not thread-safe: one owner.
 */
#ifndef LS_DATA_SPILL_H
#define LS_DATA_SPILL_H

#include "base/status.h"

#include <stdint.h>

/* All zero: empty. */
typedef struct ls_spill {
    /* `bytes` of them; moves when the array grows. */
    void *data;
    uint64_t bytes;
    /* Private. */
    int fd_plus_one;
} ls_spill;

/*
 * Makes room for `bytes`, at least twice as many as before if that is more than there are. What is
 * new is zero. folder: where the file is made; "" and folders that allow none: $TMPDIR, or /tmp.
 * Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_spill_reserve(ls_spill *spill, const char *folder, uint64_t bytes);

void ls_spill_release(ls_spill *spill);

#endif

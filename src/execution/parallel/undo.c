// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/undo.h"

#include "base/assert.h"

#include <string.h>

bool ls_undo_put_back(ls_undo *undo, const _Atomic uint64_t *done, float *const flats[3],
                      float *const snapshot[3])
{
    const uint64_t in_hand = atomic_load(&undo->in_hand);
    if (in_hand == 0) {
        return false;
    }
    /* Died between `done` and in_hand = none: the new values are complete and must stay. */
    const bool is_done = atomic_load(&done[in_hand - 1]) == undo->target;
    const uint64_t kept = atomic_load(&undo->kept);
    LS_ASSERT(kept <= LS_NORM_BLOCK);
    for (int i = 0; i < 3 && !is_done; i++) {
        const float *old = undo->in_snapshot ? snapshot[i] + undo->offset : undo->old[i];
        memcpy(flats[i] + undo->offset, old, (size_t)kept * sizeof *old);
    }
    /* last: if this is interrupted, the next call puts the same values back again */
    atomic_store(&undo->in_hand, 0);
    return !is_done;
}

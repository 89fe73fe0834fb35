// SPDX-License-Identifier: Apache-2.0
/*
 * Mirroring: a thread of the lowest priority that copies a run's newest checkpoint to its mirror
 * (storage/mirror/mirror.h) while steps go on, and prunes old ones there.
 *
 * It works towards a state, not through a queue: when checkpoints come faster than they can be
 * sent, those in between are left out. A copy that fails is tried again, at the latest for the next
 * checkpoint; steps never wait for it.
 *
 * To be used by one thread, the trainer's.
 */
#ifndef LS_EXECUTION_RUN_MIRRORING_H
#define LS_EXECUTION_RUN_MIRRORING_H

#include "storage/mirror/mirror.h"

typedef struct ls_mirroring ls_mirroring;

typedef struct ls_mirroring_options {
    const char *address; /* checkpoint.mirror */
    const char *root;    /* the checkpoints of the run */
    ls_mirror_rules rules;
} ls_mirroring_options;

/* How one copy ended. */
typedef struct ls_mirrored {
    uint64_t step;
    ls_status status; /* of copying it */
    uint64_t sent_bytes;
    double seconds;
    char text[1024]; /* of the error, of copying or of pruning afterwards */
} ls_mirrored;

/* Starts the thread. Errors: those of ls_blob_open, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_mirroring_start(const ls_mirroring_options *options, ls_mirroring **mirroring_out);

/* The checkpoint of `step` is complete in the root. */
void ls_mirroring_want(ls_mirroring *mirroring, uint64_t step);

/* Takes the oldest outcome that was not taken yet; of many, the last eight are kept. wait: first
 * waits until the wanted checkpoint has been copied, or a copy of it has failed. False if there is
 * none. */
bool ls_mirroring_take(ls_mirroring *mirroring, bool wait, ls_mirrored *mirrored_out);

/* Gives up what is under way and ends the thread. NULL is allowed. */
void ls_mirroring_stop(ls_mirroring *mirroring);

#endif

// SPDX-License-Identifier: Apache-2.0
/* What stands in for training: a state that is a chain of hashes, so that a checker knows the
 * state after step n, and its checkpoints, written by the real commit and removed by the real
 * collector (storage/checkpoint/commit.h, storage/checkpoint/collect.h). The reader does what
 * ls_checkpoint_load_latest does, call by call over the env. */
#ifndef LS_TESTS_SIM_TOY_H
#define LS_TESTS_SIM_TOY_H

#include "base/arena.h"
#include "env/env.h"

#define TOY_FROZEN_FILE "frozen.data" /* the same in all checkpoints: linked */

typedef struct toy_state {
    uint64_t step;
    uint64_t chain;
} toy_state;

/* The state after one more step, and after `step` steps from the beginning. */
toy_state toy_next(toy_state state);
toy_state toy_after(uint64_t step);

typedef void (*toy_done)(void *context, ls_status status);

/* Which mutation the next saves have: "link-unread" links without comparing. NULL: none. */
void toy_break(const char *mutation);

/* Saves `state` as `<root>/<step>`. */
void toy_save(ls_env *env, ls_arena *arena, const char *root, toy_state state, toy_done done, void *context);

typedef struct toy_found {
    toy_state state;  /* step 0: nothing there */
    unsigned skipped; /* newer ones that could not be used */
    unsigned damaged; /* of those, how many are still there */
    bool failed;      /* the root could not be listed */
} toy_found;

typedef void (*toy_loaded)(void *context, const toy_found *found);

typedef struct toy_load_options {
    bool all;         /* look at every checkpoint, also below the newest good one */
    bool never_again; /* mutation: when a folder was removed meanwhile, do not look again */
} toy_load_options;

/* Loads the newest checkpoint of the root that is whole. */
void toy_load(ls_env *env, ls_arena *arena, const char *root, const toy_load_options *options,
              toy_loaded loaded, void *context);

/* After the save of step `saved`: removes all but the newest `keep_last` by the real rule
 * (ls_checkpoint_doom), and what earlier removals left behind. */
void toy_prune(ls_env *env, ls_arena *arena, const char *root, uint64_t keep_last, uint64_t saved,
               toy_done done, void *context);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the two envs: a queue of callbacks ordered by time and, at the same time, by the
 * order they were added.
 *
 * A binary heap; add and pop are O(log n), cancel is O(n), which is fine for the tens of timers a
 * control plane has.
 */
#ifndef LS_ENV_REAL_EVENT_QUEUE_H
#define LS_ENV_REAL_EVENT_QUEUE_H

#include "env/env.h"

typedef struct ls_env_item {
    uint64_t due_ns;
    ls_env_id id;   /* also the order among equals: ids grow */
    uint64_t owner; /* the simulator's process; 0 in the real env */
    ls_env_fire fire;
    void *context;
    ls_env_fire drop; /* frees `context` when the item is dropped unfired; NULL: nothing to free */
} ls_env_item;

typedef struct ls_env_queue {
    ls_env_item *items; /* heap */
    size_t count, capacity;
} ls_env_queue;

/* Frees the memory and drops every item. */
void ls_env_queue_release(ls_env_queue *queue);
void ls_env_queue_add(ls_env_queue *queue, ls_env_item item);
/* The earliest item; NULL when empty. Valid until the queue changes. */
const ls_env_item *ls_env_queue_first(const ls_env_queue *queue);
/* Removes and returns the earliest item; the queue must not be empty. */
ls_env_item ls_env_queue_pop(ls_env_queue *queue);
/* Drops the item with this id and owner if it is there. */
void ls_env_queue_cancel(ls_env_queue *queue, ls_env_id id, uint64_t owner);
/* Drops all items of an owner. */
void ls_env_queue_drop_owner(ls_env_queue *queue, uint64_t owner);

#endif

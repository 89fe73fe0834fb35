// SPDX-License-Identifier: Apache-2.0
#include "env/real/event_queue.h"

#include "base/assert.h"

#include <stdlib.h>

static bool is_before(const ls_env_item *a, const ls_env_item *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->id < b->id;
}

static void swap(ls_env_queue *queue, size_t i, size_t j)
{
    const ls_env_item item = queue->items[i];
    queue->items[i] = queue->items[j];
    queue->items[j] = item;
}

static void sift_up(ls_env_queue *queue, size_t at)
{
    while (at > 0 && is_before(&queue->items[at], &queue->items[(at - 1) / 2])) {
        swap(queue, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

static void sift_down(ls_env_queue *queue, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < queue->count; child++) {
            least = is_before(&queue->items[child], &queue->items[least]) ? child : least;
        }
        if (least == at) {
            return;
        }
        swap(queue, at, least);
        at = least;
    }
}

void ls_env_queue_add(ls_env_queue *queue, ls_env_item item)
{
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity ? 2 * queue->capacity : 16;
        queue->items = realloc(queue->items, queue->capacity * sizeof *queue->items);
        LS_ASSERT(queue->items && "not enough memory for events");
    }
    queue->items[queue->count++] = item;
    sift_up(queue, queue->count - 1);
}

const ls_env_item *ls_env_queue_first(const ls_env_queue *queue)
{
    return queue->count ? &queue->items[0] : NULL;
}

static ls_env_item take(ls_env_queue *queue, size_t at)
{
    LS_ASSERT(at < queue->count);
    const ls_env_item item = queue->items[at];
    queue->items[at] = queue->items[--queue->count];
    if (at < queue->count) {
        sift_down(queue, at);
        sift_up(queue, at);
    }
    return item;
}

ls_env_item ls_env_queue_pop(ls_env_queue *queue)
{
    return take(queue, 0);
}

static void drop(ls_env_item item)
{
    if (item.drop) {
        item.drop(item.context);
    }
}

void ls_env_queue_cancel(ls_env_queue *queue, ls_env_id id, uint64_t owner)
{
    for (size_t i = 0; i < queue->count; i++) {
        if (queue->items[i].id == id && queue->items[i].owner == owner) {
            drop(take(queue, i));
            return;
        }
    }
}

void ls_env_queue_drop_owner(ls_env_queue *queue, uint64_t owner)
{
    size_t kept = 0;
    for (size_t i = 0; i < queue->count; i++) {
        if (queue->items[i].owner == owner) {
            drop(queue->items[i]);
        } else {
            queue->items[kept++] = queue->items[i];
        }
    }
    queue->count = kept;
    for (size_t i = kept / 2; i-- > 0;) {
        sift_down(queue, i);
    }
}

void ls_env_queue_release(ls_env_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++) {
        drop(queue->items[i]);
    }
    free(queue->items);
    *queue = (ls_env_queue){0};
}

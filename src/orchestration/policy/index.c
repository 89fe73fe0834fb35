// SPDX-License-Identifier: Apache-2.0
#include "orchestration/policy/index.h"

#include "base/assert.h"

void ls_index_init(ls_index *index, ls_arena *arena, uint32_t capacity)
{
    uint32_t slots = 16;
    while (slots < 2 * capacity) {
        slots *= 2;
    }
    index->slots = ls_arena_alloc(arena, ls_arena_mul(slots, sizeof *index->slots));
    index->mask = slots - 1;
    index->count = 0;
}

/* The finaliser of splitmix64, which spreads neighbouring ids. */
static uint32_t home(const ls_index *index, uint64_t id)
{
    id ^= id >> 30;
    id *= UINT64_C(0xbf58476d1ce4e5b9);
    id ^= id >> 27;
    id *= UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(id ^ id >> 31) & index->mask;
}

static uint32_t slot_of(const ls_index *index, uint64_t id)
{
    uint32_t slot = home(index, id);
    while (index->slots[slot].id != 0 && index->slots[slot].id != id) {
        slot = (slot + 1) & index->mask;
    }
    return slot;
}

uint32_t ls_index_find(const ls_index *index, uint64_t id)
{
    const uint32_t slot = slot_of(index, id);
    return id != 0 && index->slots[slot].id == id ? index->slots[slot].value : (uint32_t)LS_INDEX_NONE;
}

void ls_index_put(ls_index *index, uint64_t id, uint32_t value)
{
    const uint32_t slot = slot_of(index, id);
    LS_ASSERT(id != 0 && index->slots[slot].id == 0 && index->count < index->mask);
    index->slots[slot].id = id;
    index->slots[slot].value = value;
    index->count++;
}

void ls_index_remove(ls_index *index, uint64_t id)
{
    uint32_t hole = slot_of(index, id);
    LS_ASSERT(index->slots[hole].id == id);
    for (uint32_t slot = (hole + 1) & index->mask; index->slots[slot].id != 0;
         slot = (slot + 1) & index->mask) {
        /* An entry must not move before its home slot. */
        const uint32_t from_home = (slot - home(index, index->slots[slot].id)) & index->mask;
        if (from_home >= ((slot - hole) & index->mask)) {
            index->slots[hole] = index->slots[slot];
            hole = slot;
        }
    }
    index->slots[hole].id = 0;
    index->count--;
}

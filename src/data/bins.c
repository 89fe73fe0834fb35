// SPDX-License-Identifier: Apache-2.0
#include "data/bins.h"

#include "base/assert.h"
#include "base/list.h"

#include <stdbool.h>
#include <stdlib.h>

/* How many lengths are tried as the first of three. */
enum { TRIES_MAX = 32 };

/* Windows [first, first of the next pattern). */
typedef struct pattern {
    uint64_t first;
    size_t first_slot;
} pattern;

struct ls_bins {
    pattern *patterns;
    size_t pattern_count, pattern_capacity;
    ls_bins_slot *slots;
    size_t slot_count, slot_capacity;
    uint64_t window_count;
};

/* What is left to be packed. */
typedef struct packer {
    ls_bins *bins;
    uint32_t window;
    /* For each length: how many samples are left, and how many the pattern at hand has taken. */
    uint64_t *left, *taken, *ranks;
    /* All lengths above have none left. */
    uint32_t longest;
    /* Two lengths that fill a room are the most equal ones there are, else the most unequal. */
    bool takes_equal;
} packer;

/* ---- one pattern ----------------------------------------------------------------------------- */

static bool is_left(const packer *p, uint32_t length, uint64_t wanted)
{
    return p->left[length] >= p->taken[length] + wanted;
}

/* The longest length of at most `room`; 0: none. */
static uint32_t find_longest(const packer *p, uint32_t room)
{
    uint32_t length = room < p->longest ? room : p->longest;
    while (length > 0 && !is_left(p, length, 1)) {
        length--;
    }
    return length;
}

/* The longer one of two lengths that fill the room; 0: none. */
static uint32_t find_two(const packer *p, uint32_t room)
{
    const uint32_t low = (room + 1) / 2, high = room - 1 < p->longest ? room - 1 : p->longest;
    for (uint32_t i = 0; low + i <= high; i++) {
        const uint32_t a = p->takes_equal ? low + i : high - i, b = room - a;
        if (is_left(p, a, a == b ? 2 : 1) && is_left(p, b, 1)) {
            return a;
        }
    }
    return 0;
}

/* The first of three lengths that fill the room, tried from the longest on; 0: none was found. */
static uint32_t find_three(packer *p, uint32_t room)
{
    uint32_t tries = 0;
    for (uint32_t a = find_longest(p, room); a > 0 && tries < TRIES_MAX && a >= room / 3; tries++) {
        p->taken[a]++;
        const uint32_t two = room > a + 1 ? find_two(p, room - a) : 0;
        p->taken[a]--;
        if (two) {
            return a;
        }
        a = find_longest(p, a - 1);
    }
    return 0;
}

/* The length to put into the room next; 0: nothing fits. */
static uint32_t choose(packer *p, uint32_t room)
{
    const uint64_t longest = p->longest;
    const uint32_t fitting = find_longest(p, room);
    if (fitting == 0 || fitting == room) {
        return fitting;
    }
    uint32_t length = room <= 2 * longest ? find_two(p, room) : 0;
    length = !length && room <= 3 * longest ? find_three(p, room) : length;
    return length ? length : fitting;
}

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "not enough memory to pack records into windows");
}

static ls_status add_slot(packer *p, uint32_t length, size_t first_slot)
{
    ls_bins *b = p->bins;
    p->taken[length]++;
    if (b->slot_count > first_slot && b->slots[b->slot_count - 1].length == length) {
        b->slots[b->slot_count - 1].count++;
        return LS_OK;
    }
    LS_TRY(ls_list_grow(&b->slots, b->slot_count, &b->slot_capacity, sizeof *b->slots));
    b->slots[b->slot_count++] = (ls_bins_slot){.length = length, .count = 1};
    return LS_OK;
}

/* Repeats the pattern whose slots begin at first_slot as often as there are samples for it. */
static void repeat(packer *p, size_t first_slot)
{
    ls_bins *b = p->bins;
    uint64_t times = UINT64_MAX;
    for (size_t i = first_slot; i < b->slot_count; i++) {
        const uint32_t length = b->slots[i].length;
        const uint64_t fits = p->left[length] / p->taken[length];
        times = fits < times ? fits : times;
    }
    for (size_t i = first_slot; i < b->slot_count; i++) {
        ls_bins_slot *slot = &b->slots[i];
        slot->rank = p->ranks[slot->length];
        p->ranks[slot->length] += times * slot->count;
        p->left[slot->length] -= times * slot->count;
        p->taken[slot->length] = 0;
    }
    b->window_count += times;
}

static ls_status add_pattern(packer *p)
{
    ls_bins *b = p->bins;
    LS_TRY(ls_list_grow(&b->patterns, b->pattern_count, &b->pattern_capacity, sizeof *b->patterns));
    const size_t first_slot = b->slot_count;
    b->patterns[b->pattern_count++] = (pattern){.first = b->window_count, .first_slot = first_slot};
    uint32_t room = p->window;
    for (uint32_t length = p->longest; length > 0; length = room > 0 ? choose(p, room) : 0) {
        LS_TRY(add_slot(p, length, first_slot));
        room -= length;
    }
    repeat(p, first_slot);
    p->longest = find_longest(p, p->longest);
    return LS_OK;
}

/* ---- all patterns ---------------------------------------------------------------------------- */

static ls_status pack(packer *p, const uint64_t *counts)
{
    const size_t entries = (size_t)p->window + 1;
    p->left = calloc(entries, sizeof *p->left);
    p->taken = calloc(entries, sizeof *p->taken);
    p->ranks = calloc(entries, sizeof *p->ranks);
    if (!p->left || !p->taken || !p->ranks) {
        return no_memory();
    }
    for (uint32_t length = 1; length <= p->window; length++) {
        p->left[length] = counts[length];
    }
    p->longest = p->window;
    p->longest = find_longest(p, p->window);
    while (p->longest > 0) {
        LS_TRY(add_pattern(p));
    }
    return LS_OK;
}

static ls_status create(const uint64_t *counts, uint32_t window, bool takes_equal, ls_bins **bins_out)
{
    ls_bins *bins = calloc(1, sizeof *bins);
    if (!bins) {
        return no_memory();
    }
    packer p = {.bins = bins, .window = window, .takes_equal = takes_equal};
    const ls_status status = pack(&p, counts);
    free(p.left);
    free(p.taken);
    free(p.ranks);
    if (status != LS_OK) {
        ls_bins_destroy(bins);
        return status;
    }
    *bins_out = bins;
    return LS_OK;
}

ls_status ls_bins_create(const uint64_t *counts, uint32_t window, ls_bins **bins_out)
{
    ls_bins *equal = NULL, *unequal = NULL;
    LS_ASSERT(window > 0);
    LS_TRY(create(counts, window, true, &equal));
    const ls_status status = create(counts, window, false, &unequal);
    if (status != LS_OK) {
        ls_bins_destroy(equal);
        return status;
    }
    const bool is_equal = equal->window_count <= unequal->window_count;
    ls_bins_destroy(is_equal ? unequal : equal);
    *bins_out = is_equal ? equal : unequal;
    return LS_OK;
}

void ls_bins_destroy(ls_bins *bins)
{
    if (bins) {
        free(bins->patterns);
        free(bins->slots);
        free(bins);
    }
}

uint64_t ls_bins_count(const ls_bins *bins)
{
    return bins->window_count;
}

size_t ls_bins_window(const ls_bins *bins, uint64_t window, const ls_bins_slot **slots_out,
                      uint64_t *repeat_out)
{
    LS_ASSERT(window < bins->window_count);
    size_t low = 0, high = bins->pattern_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (bins->patterns[middle].first <= window) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const pattern *found = &bins->patterns[low];
    const size_t end = low + 1 < bins->pattern_count ? found[1].first_slot : bins->slot_count;
    *slots_out = bins->slots + found->first_slot;
    *repeat_out = window - found->first;
    return end - found->first_slot;
}

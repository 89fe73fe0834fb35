// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/digest_set.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

void ls_digest_set_release(ls_digest_set *set)
{
    free(set->slots);
    *set = (ls_digest_set){0};
}

/* Where the digest is, or the free slot for it. */
static char *slot_of(const ls_digest_set *set, const char *digest)
{
    size_t at = (size_t)ls_xxh3(digest, LS_SHA256_HEX_BYTES - 1, 0) & (set->capacity - 1);
    while (set->slots[at][0] && strcmp(set->slots[at], digest) != 0) {
        at = (at + 1) & (set->capacity - 1);
    }
    return set->slots[at];
}

bool ls_digest_set_has(const ls_digest_set *set, const char *digest)
{
    return set->count > 0 && slot_of(set, digest)[0] != '\0';
}

static void grow(ls_digest_set *set)
{
    ls_digest_set larger = {.count = set->count, .capacity = set->capacity ? 2 * set->capacity : 64};
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    LS_ASSERT(larger.slots);
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->slots[i][0]) {
            memcpy(slot_of(&larger, set->slots[i]), set->slots[i], LS_SHA256_HEX_BYTES);
        }
    }
    free(set->slots);
    *set = larger;
}

bool ls_digest_set_add(ls_digest_set *set, const char *digest)
{
    if (2 * (set->count + 1) > set->capacity) {
        grow(set);
    }
    char *slot = slot_of(set, digest);
    if (slot[0]) {
        return false;
    }
    memcpy(slot, digest, LS_SHA256_HEX_BYTES);
    set->count++;
    return true;
}

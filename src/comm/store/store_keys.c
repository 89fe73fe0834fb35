// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_keys.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bucket_of(const char *key, uint32_t key_bytes)
{
    return ls_xxh3(key, key_bytes, 0) % LS_STORE_BUCKETS;
}

ls_store_entry *ls_store_keys_find(const ls_store_keys *keys, const char *key, uint32_t key_bytes)
{
    for (ls_store_entry *entry = keys->buckets[bucket_of(key, key_bytes)]; entry; entry = entry->next) {
        if (entry->key_bytes == key_bytes && memcmp(entry->key, key, key_bytes) == 0) {
            return entry;
        }
    }
    return NULL;
}

static ls_status check_room(const ls_store_keys *keys, const ls_store_entry *old, uint32_t bytes)
{
    if (!old && keys->count == LS_STORE_KEYS_MAX) {
        return ls_fail(LS_ERR_INVALID, "the coordinator's store holds %d keys, which is its limit",
                       LS_STORE_KEYS_MAX);
    }
    if (keys->bytes - (old ? old->value_bytes : 0) + bytes > LS_STORE_BYTES_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the coordinator's store holds %llu bytes of values; %u more would exceed its limit of %d",
            (unsigned long long)keys->bytes, bytes, LS_STORE_BYTES_MAX);
    }
    return LS_OK;
}

ls_status ls_store_keys_put(ls_store_keys *keys, const char *key, uint32_t key_bytes, const void *value,
                            uint32_t bytes)
{
    ls_store_entry *entry = ls_store_keys_find(keys, key, key_bytes);
    LS_TRY(check_room(keys, entry, bytes));
    unsigned char *copy = malloc(bytes ? bytes : 1);
    if (copy && !entry) {
        entry = calloc(1, sizeof *entry + key_bytes);
        if (entry) {
            memcpy(entry->key, key, key_bytes);
            entry->key_bytes = (uint16_t)key_bytes;
            ls_store_entry **bucket = &keys->buckets[bucket_of(key, key_bytes)];
            entry->next = *bucket;
            *bucket = entry;
            keys->count++;
        }
    }
    if (!copy || !entry) {
        free(copy);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a value of %u bytes in the coordinator's store",
                       bytes);
    }
    if (bytes > 0) {
        memcpy(copy, value, bytes);
    }
    free(entry->value);
    keys->bytes += bytes - (uint64_t)entry->value_bytes;
    entry->value = copy;
    entry->value_bytes = bytes;
    return LS_OK;
}

void ls_store_keys_clear(ls_store_keys *keys)
{
    for (uint32_t i = 0; i < LS_STORE_BUCKETS; i++) {
        for (ls_store_entry *entry = keys->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            free(entry->value);
            free(entry);
        }
        keys->buckets[i] = NULL;
    }
    keys->count = 0;
    keys->bytes = 0;
}

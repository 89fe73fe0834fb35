// SPDX-License-Identifier: Apache-2.0
/* The keys of a store: a hash table with limits. For one thread. */
#ifndef LS_COMM_STORE_STORE_KEYS_H
#define LS_COMM_STORE_STORE_KEYS_H

#include "comm/store/store_wire.h"

enum { LS_STORE_BUCKETS = 4096 };

typedef struct ls_store_entry {
    /* The next entry of the bucket. */
    struct ls_store_entry *next;
    unsigned char *value;
    uint32_t value_bytes;
    uint16_t key_bytes;
    /* Without a terminating zero. */
    char key[];
} ls_store_entry;

typedef struct ls_store_keys {
    ls_store_entry *buckets[LS_STORE_BUCKETS];
    uint32_t count;
    /* All values together. */
    uint64_t bytes;
} ls_store_keys;

/* NULL if the key does not exist. */
ls_store_entry *ls_store_keys_find(const ls_store_keys *keys, const char *key, uint32_t key_bytes);
/* Creates or replaces an entry. Errors: LS_ERR_INVALID if a limit is reached, LS_ERR_MEMORY; the
 * table is then unchanged. */
LS_MUST_CHECK ls_status ls_store_keys_put(ls_store_keys *keys, const char *key, uint32_t key_bytes,
                                          const void *value, uint32_t bytes);
void ls_store_keys_clear(ls_store_keys *keys);

#endif

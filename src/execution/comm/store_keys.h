// SPDX-License-Identifier: Apache-2.0
/* The keys of a store: a hash table with limits. One thread. */
#ifndef LS_EXECUTION_COMM_STORE_KEYS_H
#define LS_EXECUTION_COMM_STORE_KEYS_H

#include "execution/comm/store_wire.h"

enum { LS_STORE_BUCKETS = 4096 };

typedef struct ls_store_entry {
    struct ls_store_entry *next; /* of the bucket */
    unsigned char *value;
    uint32_t value_bytes;
    uint16_t key_bytes;
    char key[]; /* not closed by a 0 */
} ls_store_entry;

typedef struct ls_store_keys {
    ls_store_entry *buckets[LS_STORE_BUCKETS];
    uint32_t count;
    uint64_t bytes; /* of all values */
} ls_store_keys;

/* NULL: there is none. */
ls_store_entry *ls_store_keys_find(const ls_store_keys *keys, const char *key, uint32_t key_bytes);
/* Creates or replaces. Errors: LS_ERR_INVALID when a limit is reached, LS_ERR_MEMORY; the table is then as before. */
LS_MUST_CHECK ls_status ls_store_keys_put(ls_store_keys *keys, const char *key, uint32_t key_bytes,
                                          const void *value, uint32_t bytes);
void ls_store_keys_clear(ls_store_keys *keys);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Digest sets: which SHA-256 were seen. Zero-initialised is empty. One owner. */
#ifndef LS_STORAGE_REGISTRY_DIGEST_SET_H
#define LS_STORAGE_REGISTRY_DIGEST_SET_H

#include "base/hash.h"

typedef struct ls_digest_set {
    char (*slots)[LS_SHA256_HEX_BYTES]; /* private; "" is free */
    size_t count, capacity;
} ls_digest_set;

void ls_digest_set_release(ls_digest_set *set);
bool ls_digest_set_has(const ls_digest_set *set, const char *digest);
/* False if it was there. digest: 64 hexadecimal digits. */
bool ls_digest_set_add(ls_digest_set *set, const char *digest);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "base/list.h"

#include <stdlib.h>
#include <string.h>

ls_status ls_list_grow(void *list_at, size_t count, size_t *capacity, size_t entry_bytes)
{
    if (count < *capacity) {
        return LS_OK;
    }
    /* Through bytes: pointers to different types may differ in form. */
    void *list = NULL;
    memcpy(&list, list_at, sizeof list);
    const size_t larger = *capacity ? 2 * *capacity : 64;
    void *memory = realloc(list, larger * entry_bytes);
    if (!memory) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a list of %zu entries", larger);
    }
    memcpy(list_at, &memory, sizeof memory);
    *capacity = larger;
    return LS_OK;
}

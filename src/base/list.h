// SPDX-License-Identifier: Apache-2.0
/* Lists that double when they are full. */
#ifndef LS_BASE_LIST_H
#define LS_BASE_LIST_H

#include "base/status.h"

#include <stddef.h>

/*
 * Makes room for one more entry. list_at: the address of the pointer to the entries (NULL for an
 * empty list), which may move. Errors: LS_ERR_MEMORY; the list is then as it was.
 */
LS_MUST_CHECK ls_status ls_list_grow(void *list_at, size_t count, size_t *capacity, size_t entry_bytes);

#endif

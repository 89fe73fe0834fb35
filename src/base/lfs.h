// SPDX-License-Identifier: Apache-2.0
/*
 * LFS: pointer files of Git LFS. A clone without Git LFS has a short text in place of each large
 * file, which readers would take for a damaged one. Pure.
 */
#ifndef LS_BASE_LFS_H
#define LS_BASE_LFS_H

#include "base/status.h"

#include <stddef.h>

/* Refuses the content of such a pointer. Errors: LS_ERR_DATA, with the path and what to do. */
LS_MUST_CHECK ls_status ls_lfs_refuse(const char *path, const void *data, size_t bytes);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "base/lfs.h"

#include <string.h>

ls_status ls_lfs_refuse(const char *path, const void *data, size_t bytes)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    if (bytes < sizeof begin - 1 || memcmp(data, begin, sizeof begin - 1) != 0) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_DATA,
                   "%s is a pointer of Git LFS, not the file itself: fetch the file with 'git lfs pull' in "
                   "its repository",
                   path);
}

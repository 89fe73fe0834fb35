// SPDX-License-Identifier: Apache-2.0
/*
 * Unpacks gzip and zstd files, and Parquet, whose rows become JSON lines (data/parquet/parquet.h).
 *
 * The content goes through a small buffer into a temporary file without a name, which is mapped. So
 * memory is bounded whatever the size, and the space is free again when the map is closed. Files of
 * several members (gzip) or frames (zstd) are unpacked to the end.
 *
 * Thread-safe.
 */
#ifndef LS_DATA_UNPACK_H
#define LS_DATA_UNPACK_H

#include "base/file.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum ls_packing { LS_PACKING_NONE, LS_PACKING_GZIP, LS_PACKING_ZSTD, LS_PACKING_PARQUET } ls_packing;

/* From the first bytes of a file. */
ls_packing ls_packing_of(const void *data, size_t bytes);

/* "gzip", "zstd", "Parquet"; "" for none. */
const char *ls_packing_name(ls_packing packing);

/* The packing that a suffix promises (.gz, .zst, .zstd, .parquet), and the length of the name
 * without it. */
ls_packing ls_packing_suffix(const char *path, size_t *stem_bytes_out);

typedef struct ls_unpack_options {
    /* Folder for the temporary file. "": $TMPDIR, or /tmp. */
    const char *folder;
    /* More content than this is refused; 0: ls_unpack_limit. */
    uint64_t limit_bytes;
    /* Unpack only about so many bytes from the beginning; 0: all. */
    uint64_t head_bytes;
    /* Called several times per second. A status other than LS_OK ends the work with that status.
     * May be NULL. */
    ls_status (*stop)(void *context);
    void *context;
} ls_unpack_options;

/* What a packed file may unpack to: 200 times its size, and at least 256 MiB. Text shrinks to a
 * third or a tenth; a file made to fill disks (a decompression bomb) to a thousandth. */
uint64_t ls_unpack_limit(uint64_t packed_bytes);

/*
 * Unpacks `packed`, the content of the file `path`. map_out: written only on success. The caller
 * closes it with ls_file_map_close.
 *
 * Errors: LS_ERR_DATA, naming the file, if it is truncated, damaged, too large or followed by
 * something else; LS_ERR_DISK, LS_ERR_IO, LS_ERR_MEMORY; what `stop` returned.
 */
LS_MUST_CHECK ls_status ls_unpack(const char *path, ls_file_map packed, const ls_unpack_options *options,
                                  ls_file_map *map_out);

#endif

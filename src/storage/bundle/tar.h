// SPDX-License-Identifier: Apache-2.0
/*
 * Tar archives of plain files (ustar), packed with zstd or not, written and read in one pass with
 * memory that does not depend on their size.
 *
 * Sizes above 8 GiB are written as GNU tar does, in base 256. Of what readers of ustar may meet,
 * folders and the extra headers of pax are skipped; links, devices and everything else are refused.
 *
 * A writer or reader belongs to one thread.
 */
#ifndef LS_STORAGE_BUNDLE_TAR_H
#define LS_STORAGE_BUNDLE_TAR_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_TAR_NAME_BYTES_MAX = 100 };

typedef struct ls_tar_writer ls_tar_writer;
typedef struct ls_tar_reader ls_tar_reader;

/* Writes to `fd`, from its present offset; `path` is for messages. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tar_create(int fd, const char *path, bool is_packed, ls_tar_writer **writer_out);
/* Begins a file of 1 to LS_TAR_NAME_BYTES_MAX bytes of name; exactly `bytes` bytes must follow. */
LS_MUST_CHECK ls_status ls_tar_begin(ls_tar_writer *writer, const char *name, uint64_t bytes);
LS_MUST_CHECK ls_status ls_tar_write(ls_tar_writer *writer, const void *data, size_t bytes);
/* Writes the end of the archive. */
LS_MUST_CHECK ls_status ls_tar_finish(ls_tar_writer *writer);
void ls_tar_destroy(ls_tar_writer *writer); /* NULL is allowed */

/* Reads from `fd`; whether it is packed is seen from its first bytes. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tar_open(int fd, const char *path, ls_tar_reader **reader_out);
/*
 * Goes to the next file, past what is left of the one before. name_out: valid until the next call;
 * NULL at the end of the archive. Errors: LS_ERR_DATA for what is no archive, is cut off, or holds
 * something else than plain files and folders; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_tar_next(ls_tar_reader *reader, const char **name_out, uint64_t *bytes_out);
/* Reads exactly `bytes` bytes of the file; not more than are left of it. Errors: LS_ERR_DATA if the
 * archive is cut off; LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_tar_read(ls_tar_reader *reader, void *data, size_t bytes);
void ls_tar_close(ls_tar_reader *reader); /* NULL is allowed */

#endif

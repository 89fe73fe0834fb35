// SPDX-License-Identifier: Apache-2.0
/*
 * TensorBoard: scalars as event files that TensorBoard opens (tensorboard --logdir RUN/tb).
 *
 * A file is a sequence of records; a record is
 *
 *   u64 length | u32 masked crc32c of the length | data | u32 masked crc32c of the data        all little-endian
 *
 * with mask(c) = ((c >> 15) | (c << 17)) + 0xa282ead8. The data are an Event message of protocol
 * buffers, with few enough fields to be written by hand: 1 wall_time (double), 2 step (int64), and
 * one of 3 file_version (string), 5 summary { 1 value { 1 tag, 2 simple_value (float) } } and
 * 7 session_log { 1 status }.
 *
 * Each process of a run writes a file of its own. After a resume, the new file begins with a
 * session log for the next step, which makes TensorBoard drop that step and later ones from older
 * files. TensorBoard reads files in the order of their names, so the time in a new name is later
 * than in all existing ones.
 *
 * One writer per directory; not thread-safe.
 */
#ifndef LS_TELEMETRY_EXPORT_TENSORBOARD_H
#define LS_TELEMETRY_EXPORT_TENSORBOARD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ls_tensorboard ls_tensorboard;

typedef struct ls_tensorboard_scalar {
    const char *tag;
    double value; /* left out when not finite */
} ls_tensorboard_scalar;

/*
 * Creates `dir` if necessary, and a new event file in it: events.out.tfevents.<time>.<host>.<pid>.
 *
 * first_step: of this process; that step and later ones in older files are void.
 * Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_tensorboard_open(const char *dir, uint64_t first_step,
                                            ls_tensorboard **writer_out);
/* NULL allowed. */
void ls_tensorboard_close(ls_tensorboard *writer);

/*
 * Appends the scalars of a step in one write(2), so that a reader sees all or none of them. wall_s:
 * seconds since 1970. Errors: LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_tensorboard_write(ls_tensorboard *writer, double wall_s, uint64_t step,
                                             const ls_tensorboard_scalar *scalars, size_t count);

#endif

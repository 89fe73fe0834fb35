// SPDX-License-Identifier: Apache-2.0
/*
 * TensorBoard reader: the scalars of an event file, as it grows.
 *
 *   u64 length | u32 masked crc32c of the length | data | u32 masked crc32c of the data
 *
 * Data is a protobuf message Event: 1 wall_time, 2 step, 5 Summary of Values, each with 1 tag and
 * either 2 simple_value or 8 tensor. Tensors of one element are scalars, too (float, double, half,
 * bfloat16, int32, int64); everything else, such as images and histograms, is passed over.
 * Source: event.proto, summary.proto and tensor.proto of TensorFlow.
 *
 * A record that is not complete is waited for. One whose sums are wrong ends the file, as there is
 * no telling where the next one begins. Pure; fuzzed.
 */
#ifndef LS_TELEMETRY_STORE_TENSORBOARD_READER_H
#define LS_TELEMETRY_STORE_TENSORBOARD_READER_H

#include "telemetry/store/run_metrics.h"

typedef struct ls_tensorboard_part {
    size_t taken; /* bytes of whole records */
    /* bytes after those that belong to a record too long to be a scalar: skip them */
    uint64_t ahead;
    bool is_broken; /* what follows is no record */
} ls_tensorboard_part;

/* Takes the scalars of all whole records in `text`. */
ls_tensorboard_part ls_tensorboard_take(ls_run_metrics *data, const char *text, size_t bytes);

#endif

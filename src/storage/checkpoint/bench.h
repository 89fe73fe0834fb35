// SPDX-License-Identifier: Apache-2.0
/*
 * How fast checkpoints go to disk and back, against plain O_DIRECT I/O of the same bytes on the
 * same file system.
 */
#ifndef LS_STORAGE_CHECKPOINT_BENCH_H
#define LS_STORAGE_CHECKPOINT_BENCH_H

#include "base/status.h"

#include <stdint.h>

typedef struct ls_checkpoint_bench_options {
    const char *folder; /* folder on the disk to measure; a temporary folder is made in it */
    uint64_t bytes;     /* size of the state: parameters and two moments; 0: 512 MiB */
    unsigned rounds;    /* 1 to 99; 0: 5 */
    unsigned threads;   /* threads of save and load; 0: 4 */
} ls_checkpoint_bench_options;

/* Medians over the rounds; each round does raw write, save, raw read, load, in turn. Bytes per
 * second. */
typedef struct ls_checkpoint_bench_result {
    uint64_t bytes; /* of the data files, headers included */
    unsigned rounds;
    /* ls_checkpoint_save: hashing, fsync, manifest and rename included */
    double write_bytes_ps;
    /* one preallocated file, 8 MiB O_DIRECT writes one after another, fsync */
    double raw_write_bytes_ps;
    /* ls_checkpoint_load with a cold page cache, every block checked */
    double load_bytes_ps;
    double raw_read_bytes_ps; /* 8 MiB O_DIRECT reads one after another */
    double write_ratio;       /* median of the ratios save / raw of each round */
    double load_ratio;
} ls_checkpoint_bench_result;

/* Memory: `bytes`. Errors: LS_ERR_INVALID, LS_ERR_MEMORY, LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_checkpoint_bench(const ls_checkpoint_bench_options *options,
                                            ls_checkpoint_bench_result *result_out);

#endif

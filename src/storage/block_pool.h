// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of several files, worked on by a few threads, with one stage in order.
 *
 *   worker 1   | prepare 0 | in_order 0 | finish 0 ........ | prepare 3 | ...
 *   worker 2   | prepare 1 |  (waits)   | in_order 1 | finish 1 ... |
 *   worker 3   | prepare 2 |               (waits)   | in_order 2 | finish 2 ... |
 *
 * prepare (gather or read, CRC) and finish (write, hand over) run at any time on any thread, with the
 * worker's own buffer; in_order (SHA-256, which is sequential) runs in the order of the blocks of a lane.
 * Lanes are independent. That overlaps hashing with the disk without a queue: who holds the lowest block of
 * its lane never waits, so it always ends.
 */
#ifndef LS_STORAGE_BLOCK_POOL_H
#define LS_STORAGE_BLOCK_POOL_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ls_block {
    uint32_t file;
    uint32_t lane;   /* in_order runs one after another within a lane, by position in the list */
    uint64_t index;  /* of the block in its file */
    uint64_t offset; /* in the file */
    size_t bytes;    /* <= LS_CHECKPOINT_BLOCK_BYTES */
    uint64_t turn;   /* set by ls_block_pool_run: its number within the lane */
} ls_block;

typedef struct ls_block_work {
    ls_block *blocks; /* in the order in which they are claimed */
    size_t block_count;
    uint32_t lane_count;
    unsigned threads; /* 0: 4 */
    void *context;
    /* buffer: LS_CHECKPOINT_BLOCK_BYTES, page-aligned. in_order and finish may be NULL. */
    ls_status (*prepare)(void *context, const ls_block *block, unsigned char *buffer);
    void (*in_order)(void *context, const ls_block *block, const unsigned char *buffer);
    ls_status (*finish)(void *context, const ls_block *block, unsigned char *buffer);
} ls_block_work;

/* Runs all blocks; the first error stops the rest and is returned with its text. LS_ERR_MEMORY without
 * buffers. */
LS_MUST_CHECK ls_status ls_block_pool_run(const ls_block_work *work);

#endif

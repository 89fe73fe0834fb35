// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of several files, worked on by a few threads, with one stage in order.
 *
 *   buffer:   free -> prepare ........ -> ready -> in_order ........ -> done -> finish ......... ->
 *             free
 *                     gather or read, CRC          SHA-256, by turns            write or hand over
 *
 * prepare and finish run at any time on any thread; in_order (SHA-256, which is sequential) runs in
 * the order of the blocks of a lane. Lanes are independent, and two blocks of different lanes are
 * hashed side by side, which costs little more than one (base/hash.h: ls_sha256_update_two). A
 * thread prefers the work that is nearest to its end: finish a block, else hash two, else prepare
 * one, else hash one alone, unless a partner for it will soon be ready. Threads that write wait for
 * the disk, so there should be more threads than cores.
 *
 * It cannot deadlock: blocks are claimed in the order of the list, so the lowest block that is not
 * yet hashed is always the next one of its lane.
 */
#ifndef LS_STORAGE_CHECKPOINT_BLOCK_POOL_H
#define LS_STORAGE_CHECKPOINT_BLOCK_POOL_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ls_block {
    uint32_t file;
    uint32_t lane;   /* in_order runs one after another within a lane, by position in the list */
    uint64_t index;  /* number of the block in its file */
    uint64_t offset; /* offset in the file */
    size_t bytes;    /* <= LS_CHECKPOINT_BLOCK_BYTES */
    uint64_t turn;   /* set by ls_block_pool_run: its number within the lane */
} ls_block;

typedef struct ls_block_work {
    ls_block *blocks; /* in the order in which they are claimed */
    size_t block_count;
    uint32_t lane_count;
    unsigned threads; /* 0: ls_block_pool_threads() */
    void *context;
    /* buffer: LS_CHECKPOINT_BLOCK_BYTES, page-aligned. in_order and finish may be NULL. */
    ls_status (*prepare)(void *context, const ls_block *block, unsigned char *buffer);
    /* One block or two, of different lanes. */
    void (*in_order)(void *context, const ls_block *const blocks[2], const unsigned char *const buffers[2],
                     unsigned count);
    ls_status (*finish)(void *context, const ls_block *block, unsigned char *buffer);
} ls_block_work;

/* Threads for a machine that does nothing else: its cores, and two more that wait for the disk. */
unsigned ls_block_pool_threads(void);

/* Runs all blocks; the first error stops the rest and is returned with its text. Memory: 2 x
 * threads x 4 MiB. LS_ERR_MEMORY without buffers. */
LS_MUST_CHECK ls_status ls_block_pool_run(const ls_block_work *work);

#endif

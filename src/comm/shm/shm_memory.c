// SPDX-License-Identifier: Apache-2.0
/* Symmetric allocations: every member has a block of the same size, and every member maps all
 * blocks. */
#include "comm/shm/shm.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REF_OFFSET_BITS = 48 };
static const uint64_t page_bytes = 4096, huge_bytes = 2 << 20;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t segment_bytes(const ls_shm *shm, const shm_segment *segment)
{
    return segment->block_bytes * shm->transport.size;
}

/* ---- places in the file: the same on all members, which allocate in the same order ---- */

static bool is_taken(const ls_shm *shm, uint64_t offset, uint64_t bytes, uint64_t *behind_out)
{
    for (uint32_t i = 0; i < shm->segment_count; i++) {
        const shm_segment *segment = &shm->segments[i];
        const uint64_t end = segment->file_offset + segment_bytes(shm, segment);
        if (segment->base && offset < end && segment->file_offset < offset + bytes) {
            *behind_out = end;
            return true;
        }
    }
    return false;
}

static uint64_t find_room(const ls_shm *shm, uint64_t bytes)
{
    uint64_t offset = round_up(shm->control_bytes, huge_bytes);
    while (is_taken(shm, offset, bytes, &offset)) {
    }
    return offset;
}

static shm_segment *find_free(ls_shm *shm)
{
    for (uint32_t i = 0; i < SHM_SEGMENTS_MAX; i++) {
        if (!shm->segments[i].base) {
            return &shm->segments[i];
        }
    }
    return NULL;
}

/* ---- mapping ---- */

/* Bytes of memory that are available; UINT64_MAX if the system does not say. */
static uint64_t available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = 0;
    bool is_known = false;
    while (file && !is_known && fgets(line, sizeof line, file)) {
        is_known = sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1;
    }
    if (file) {
        fclose(file);
    }
    return is_known ? kib * 1024 : UINT64_MAX;
}

static ls_status grow_file(int fd, uint64_t bytes)
{
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return ls_fail_errno(errno, "can't get the size of shared memory");
    }
    /* Members that get here at the same time ask for the same size. */
    if ((uint64_t)file.st_size < bytes && ftruncate(fd, (off_t)bytes) != 0) {
        return ls_fail_errno(errno, "can't enlarge shared memory to %" PRIu64 " bytes", bytes);
    }
    return LS_OK;
}

/* Maps the segment and allocates the pages of this rank's block, so that too little memory is an
 * error now and not a signal later. */
static ls_status map_segment(ls_shm *shm, shm_segment *segment)
{
    const uint64_t all = segment_bytes(shm, segment), available = available_bytes();
    if (all > available) {
        return ls_fail(LS_ERR_MEMORY,
                       "shared memory of %" PRIu64 " bytes is needed for %" PRIu32 " ranks, but only %" PRIu64
                       " bytes are available; ask for less or start fewer ranks on this host",
                       all, shm->transport.size, available);
    }
    LS_TRY(grow_file(shm->fd, segment->file_offset + all));
    void *base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, (off_t)segment->file_offset);
    if (base == MAP_FAILED) {
        return ls_fail_errno(errno, "can't map %" PRIu64 " bytes of shared memory", all);
    }
    const uint64_t mine = segment->file_offset + shm->transport.rank * segment->block_bytes;
    if (fallocate(shm->fd, 0, (off_t)mine, (off_t)segment->block_bytes) != 0) {
        const int error = errno;
        munmap(base, all);
        return ls_fail(LS_ERR_MEMORY, "can't allocate %" PRIu64 " bytes of shared memory: %s",
                       segment->block_bytes, strerror(error));
    }
    segment->base = base;
    return LS_OK;
}

static void unmap_segment(ls_shm *shm, shm_segment *segment)
{
    const uint64_t mine = segment->file_offset + shm->transport.rank * segment->block_bytes;
    munmap(segment->base, segment_bytes(shm, segment));
    fallocate(shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)mine, (off_t)segment->block_bytes);
    segment->base = NULL;
}

/* Checks that the allocation succeeded on all members; the error text names one where it failed. */
static ls_status check_all_mapped(const ls_shm *shm, uint64_t bytes)
{
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        if (atomic_load(&shm->places[rank].failed)) {
            char who[LS_COMM_WHO_BYTES];
            ls_comm_member_words(&shm->transport, rank, who);
            return ls_fail(LS_ERR_MEMORY, "%s could not allocate %" PRIu64 " bytes of shared memory", who,
                           bytes);
        }
    }
    return LS_OK;
}

ls_status shm_alloc(ls_transport *transport, ls_comm_op *op)
{
    ls_shm *shm = (ls_shm *)transport;
    shm_segment *segment = find_free(shm);
    shm_claim(shm, op);
    LS_TRY(shm_arrive(shm, op, 0, 0));
    if (!segment) {
        return ls_fail(LS_ERR_MEMORY,
                       "there are already %d shared allocations, which is the limit: free one first",
                       (int)SHM_SEGMENTS_MAX);
    }
    const uint64_t unit = op->count >= huge_bytes ? huge_bytes : page_bytes;
    *segment = (shm_segment){.block_bytes = round_up(op->count ? op->count : 1, unit)};
    segment->file_offset = find_room(shm, segment_bytes(shm, segment));
    const ls_status mapped = map_segment(shm, segment);
    atomic_store(&shm->places[transport->rank].failed, mapped != LS_OK);
    const ls_status met = shm_arrive(shm, op, 0, 0);
    const ls_status all = met != LS_OK ? met : mapped != LS_OK ? mapped : check_all_mapped(shm, op->count);
    if (all != LS_OK) {
        if (segment->base) {
            unmap_segment(shm, segment);
        }
        return all;
    }
    const uint32_t number = (uint32_t)(segment - shm->segments);
    shm->segment_count = number < shm->segment_count ? shm->segment_count : number + 1;
    op->out = segment->base + transport->rank * segment->block_bytes;
    return LS_OK;
}

ls_status shm_release(ls_transport *transport, ls_comm_op *op)
{
    ls_shm *shm = (ls_shm *)transport;
    for (uint32_t i = 0; i < shm->segment_count; i++) {
        shm_segment *segment = &shm->segments[i];
        if (segment->base && segment->base + transport->rank * segment->block_bytes == op->in) {
            shm_claim(shm, op);
            LS_TRY(shm_arrive(shm, op, 0, 0));
            unmap_segment(shm, segment);
            return LS_OK;
        }
    }
    LS_ASSERT(!"memory of this communicator");
    return LS_OK;
}

void shm_unmap_all(ls_shm *shm)
{
    for (uint32_t i = 0; i < shm->segment_count; i++) {
        if (shm->segments[i].base) {
            munmap(shm->segments[i].base, segment_bytes(shm, &shm->segments[i]));
            shm->segments[i].base = NULL;
        }
    }
}

/* ---- references ---- */

shm_ref shm_ref_of(const ls_shm *shm, const void *data, uint64_t bytes)
{
    const char *at = data;
    for (uint32_t i = 0; i < shm->segment_count; i++) {
        const shm_segment *segment = &shm->segments[i];
        const char *mine = segment->base + shm->transport.rank * segment->block_bytes;
        if (segment->base && at >= mine && at < mine + segment->block_bytes &&
            bytes <= (uint64_t)(mine + segment->block_bytes - at)) {
            return (uint64_t)(i + 1) << REF_OFFSET_BITS | (uint64_t)(at - mine);
        }
    }
    return 0;
}

void *shm_address(const ls_shm *shm, shm_ref ref, uint32_t rank)
{
    const shm_segment *segment = &shm->segments[(ref >> REF_OFFSET_BITS) - 1];
    return segment->base + rank * segment->block_bytes + (ref & (((uint64_t)1 << REF_OFFSET_BITS) - 1));
}

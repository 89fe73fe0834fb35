// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/hosts/cluster_wire.h"

#include "base/assert.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for the struct of any message, aligned for it. */
typedef union any_message {
    ls_cluster_hello hello;
    ls_cluster_join join;
    ls_cluster_orders orders;
    ls_cluster_ready ready;
    ls_cluster_lost lost;
    ls_cluster_abort abort;
    ls_cluster_ended ended;
    ls_cluster_snapshots snapshots;
    ls_cluster_ask ask;
    ls_cluster_stack stack;
    ls_cluster_status status;
    ls_cluster_fence fence;
    ls_cluster_result result;
    ls_cluster_finish finish;
    ls_cluster_form form;
} any_message;

uint32_t ls_cluster_kind_of(const void *data, size_t bytes)
{
    uint32_t kind = 0;
    if (bytes >= sizeof kind) {
        memcpy(&kind, data, sizeof kind);
    }
    return kind;
}

bool ls_cluster_dispatch(const ls_cluster_handler *handlers, void *receiver, void *sender, const void *data,
                         size_t bytes)
{
    const uint32_t kind = ls_cluster_kind_of(data, bytes);
    const ls_cluster_handler *h = handlers;
    while (h->kind != 0 && h->kind != kind) {
        h++;
    }
    if (h->kind == 0 || bytes < h->bytes || (bytes > h->bytes && !h->has_tail)) {
        return false;
    }
    any_message fixed;
    LS_ASSERT(h->bytes <= sizeof fixed);
    memcpy(&fixed, data, h->bytes);
    const ls_cluster_received message = {.sender = sender,
                                         .fixed = &fixed,
                                         .tail = (const char *)data + h->bytes,
                                         .tail_bytes = bytes - h->bytes};
    return h->handle(receiver, &message);
}

ls_status ls_program_hash(uint64_t *hash_out)
{
    struct stat info;
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail_errno(error, "cannot read the running program (/proc/self/exe)");
    }
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    close(fd);
    if (map == MAP_FAILED) {
        return ls_fail_errno(error, "cannot read the running program (/proc/self/exe)");
    }
    *hash_out = ls_xxh3(map, (size_t)info.st_size, 0);
    munmap(map, (size_t)info.st_size);
    return LS_OK;
}

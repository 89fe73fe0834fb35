// SPDX-License-Identifier: Apache-2.0
#include "sim/env/sim_disk.h"

#include "base/assert.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

void *ls_sim_copy(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    LS_ASSERT(copy && "out of memory for a simulated disk");
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

ls_sim_names ls_sim_names_copy(const ls_sim_names *from)
{
    ls_sim_names copy = {.entries = ls_sim_copy(from->entries, from->count * sizeof(ls_sim_entry)),
                         .count = from->count};
    for (size_t i = 0; i < copy.count; i++) {
        copy.entries[i].name = ls_sim_copy(from->entries[i].name, strlen(from->entries[i].name) + 1);
    }
    return copy;
}

void ls_sim_names_release(ls_sim_names *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].name);
    }
    free(list->entries);
    *list = (ls_sim_names){0};
}

static void drop_states(ls_sim_inode *inode)
{
    for (size_t i = 0; i < inode->state_count; i++) {
        ls_sim_names_release(&inode->states[i]);
    }
    inode->state_count = 0;
}

static void drop_writes(ls_sim_inode *inode)
{
    for (size_t i = 0; i < inode->write_count; i++) {
        free(inode->writes[i].data);
    }
    inode->write_count = 0;
}

void ls_sim_folder_changed(ls_sim_inode *folder)
{
    folder->states = realloc(folder->states, (folder->state_count + 1) * sizeof *folder->states);
    LS_ASSERT(folder->states && "out of memory for a simulated disk");
    folder->states[folder->state_count++] = ls_sim_names_copy(&folder->names_now);
}

ls_sim_inode *ls_sim_inode_create(ls_sim_disk *disk, bool is_folder)
{
    ls_sim_inode *inode = calloc(1, sizeof *inode);
    LS_ASSERT(inode && "out of memory for a simulated disk");
    inode->is_folder = is_folder;
    inode->next = disk->inodes;
    disk->inodes = inode;
    if (is_folder) {
        ls_sim_folder_changed(inode);
    }
    return inode;
}

void ls_sim_disk_init(ls_sim_disk *disk)
{
    *disk = (ls_sim_disk){.capacity_bytes = UINT64_MAX};
    disk->root = ls_sim_inode_create(disk, true);
}

void ls_sim_disk_release(ls_sim_disk *disk)
{
    for (ls_sim_inode *at = disk->inodes; at;) {
        ls_sim_inode *next = at->next;
        drop_writes(at);
        drop_states(at);
        ls_sim_names_release(&at->names_now);
        free(at->writes);
        free(at->states);
        free(at->now.data);
        free(at->durable.data);
        free(at);
        at = next;
    }
    *disk = (ls_sim_disk){0};
}

/* ---- content ---- */

static void content_set(ls_sim_content *to, const ls_sim_content *from)
{
    free(to->data);
    *to = (ls_sim_content){.data = ls_sim_copy(from->data, from->bytes), .bytes = from->bytes};
}

static void content_write(ls_sim_content *to, const void *data, size_t bytes, uint64_t offset)
{
    const size_t end = (size_t)offset + bytes;
    if (end > to->bytes) {
        to->data = realloc(to->data, end);
        LS_ASSERT(to->data && "out of memory for a simulated disk");
        memset(to->data + to->bytes, 0, end - to->bytes);
        to->bytes = end;
    }
    if (bytes > 0) {
        memcpy(to->data + offset, data, bytes);
    }
}

static void content_resize(ls_sim_content *to, uint64_t bytes)
{
    if (bytes > to->bytes) {
        content_write(to, NULL, 0, bytes);
    }
    to->bytes = (size_t)bytes;
}

static void apply(ls_sim_content *to, const ls_sim_pending *write)
{
    if (write->data) {
        content_write(to, write->data, write->bytes, write->offset);
    } else {
        content_resize(to, write->offset);
    }
}

static void add_pending(ls_sim_inode *file, ls_sim_pending write)
{
    apply(&file->now, &write);
    file->writes = realloc(file->writes, (file->write_count + 1) * sizeof *file->writes);
    LS_ASSERT(file->writes && "out of memory for a simulated disk");
    file->writes[file->write_count++] = write;
}

void ls_sim_file_write(ls_sim_inode *file, const void *data, size_t bytes, uint64_t offset)
{
    add_pending(file, (ls_sim_pending){.data = ls_sim_copy(data, bytes), .bytes = bytes, .offset = offset});
}

void ls_sim_file_resize(ls_sim_inode *file, uint64_t bytes)
{
    add_pending(file, (ls_sim_pending){.offset = bytes});
}

void ls_sim_file_sync(ls_sim_inode *file)
{
    for (size_t i = 0; i < file->write_count; i++) {
        apply(&file->durable, &file->writes[i]);
    }
    drop_writes(file);
}

void ls_sim_file_sync_failed(ls_sim *sim, ls_sim_inode *file)
{
    for (size_t i = 0; i < file->write_count; i++) {
        if (ls_sim_random_u64(sim) % 2) {
            apply(&file->durable, &file->writes[i]);
        }
    }
    drop_writes(file);
}

static uint64_t inode_bytes(ls_sim_inode *inode)
{
    uint64_t bytes = inode->counted ? 0 : inode->now.bytes;
    inode->counted = true;
    for (size_t i = 0; i < inode->names_now.count; i++) {
        bytes += inode_bytes(inode->names_now.entries[i].inode);
    }
    return bytes;
}

uint64_t ls_sim_disk_bytes(const ls_sim_disk *disk)
{
    for (ls_sim_inode *at = disk->inodes; at; at = at->next) {
        at->counted = false;
    }
    return inode_bytes(disk->root);
}

uint64_t ls_sim_disk_used(const ls_sim *sim, ls_sim_host host)
{
    LS_ASSERT(host < sim->host_count);
    return ls_sim_disk_bytes(&sim->hosts[host]->disk);
}

bool ls_sim_disk_rot(ls_sim *sim, ls_sim_host host, const char *path)
{
    LS_ASSERT(host < sim->host_count);
    ls_sim_place at;
    if (ls_sim_place_find(&sim->hosts[host]->disk, path, &at) != 0 || !at.inode || at.inode->is_folder ||
        at.inode->durable.bytes == 0 || at.inode->write_count > 0) {
        return false;
    }
    const size_t byte = (size_t)(ls_sim_random_u64(sim) % at.inode->now.bytes);
    const unsigned char bit = (unsigned char)(1u << (ls_sim_random_u64(sim) % 8));
    at.inode->now.data[byte] ^= bit;
    at.inode->durable.data[byte] ^= bit;
    return true;
}

/* ---- names ---- */

static ls_sim_entry *names_find(const ls_sim_names *list, const char *name, size_t bytes)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strlen(list->entries[i].name) == bytes && memcmp(list->entries[i].name, name, bytes) == 0) {
            return &list->entries[i];
        }
    }
    return NULL;
}

void ls_sim_names_remove(ls_sim_names *list, const char *name)
{
    ls_sim_entry *found = names_find(list, name, strlen(name));
    if (found) {
        free(found->name);
        const size_t index = (size_t)(found - list->entries);
        memmove(found, found + 1, (list->count - index - 1) * sizeof *found);
        list->count--;
    }
}

void ls_sim_names_put(ls_sim_names *list, const char *name, ls_sim_inode *inode)
{
    ls_sim_names_remove(list, name);
    /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): count + 1 is never 0 */
    list->entries = realloc(list->entries, (list->count + 1) * sizeof *list->entries);
    LS_ASSERT(list->entries && "out of memory for a simulated disk");
    size_t at = list->count++;
    while (at > 0 && strcmp(list->entries[at - 1].name, name) > 0) {
        list->entries[at] = list->entries[at - 1];
        at--;
    }
    list->entries[at] = (ls_sim_entry){.name = ls_sim_copy(name, strlen(name) + 1), .inode = inode};
}

int ls_sim_place_find(const ls_sim_disk *disk, const char *path, ls_sim_place *out)
{
    *out = (ls_sim_place){.inode = disk->root};
    for (const char *at = path; *at;) {
        const size_t bytes = strcspn(at, "/");
        if (bytes > 0 && !(bytes == 1 && at[0] == '.')) {
            if (!out->inode) {
                return -ENOENT;
            }
            if (!out->inode->is_folder) {
                return -ENOTDIR;
            }
            if (bytes >= sizeof out->name) {
                return -ENAMETOOLONG;
            }
            out->folder = out->inode;
            memcpy(out->name, at, bytes);
            out->name[bytes] = '\0';
            const ls_sim_entry *found = names_find(&out->folder->names_now, out->name, bytes);
            out->inode = found ? found->inode : NULL;
        }
        at += bytes + (at[bytes] == '/');
    }
    LS_ASSERT(out->inode || out->folder); /* the root is always there */
    return 0;
}

/* ---- a crash ---- */

/* Each sector of it by itself: the old bytes or the new. */
static void apply_torn(ls_sim *sim, ls_sim_content *to, const ls_sim_pending *write)
{
    for (size_t at = 0; at < write->bytes; at += LS_SIM_SECTOR_BYTES) {
        const size_t left = write->bytes - at;
        if (ls_sim_random_u64(sim) % 2) {
            content_write(to, write->data + at, left < LS_SIM_SECTOR_BYTES ? left : LS_SIM_SECTOR_BYTES,
                          write->offset + at);
        }
    }
}

static void file_crash(ls_sim *sim, ls_sim_inode *file)
{
    enum { LOST, TORN, FATES = 4 }; /* else kept */
    if (file->write_count > 0) {
        for (size_t i = 0; i < file->write_count; i++) {
            const uint64_t fate = ls_sim_random_u64(sim) % FATES;
            if (fate == TORN && file->writes[i].data) {
                apply_torn(sim, &file->durable, &file->writes[i]);
            } else if (fate != LOST) {
                apply(&file->durable, &file->writes[i]);
            }
        }
        drop_writes(file);
    }
    content_set(&file->now, &file->durable);
}

void ls_sim_folder_sync(ls_sim_inode *folder)
{
    drop_states(folder);
    ls_sim_folder_changed(folder);
}

static void folder_crash(ls_sim *sim, ls_sim_inode *folder)
{
    if (folder->state_count == 1) {
        return; /* what is there is durable */
    }
    const size_t kept = ls_sim_random_u64(sim) % folder->state_count;
    const ls_sim_names left = ls_sim_names_copy(&folder->states[kept]);
    ls_sim_names_release(&folder->names_now);
    folder->names_now = left;
    ls_sim_folder_sync(folder);
}

void ls_sim_disk_crash(ls_sim *sim, ls_sim_disk *disk)
{
    for (ls_sim_inode *at = disk->inodes; at; at = at->next) {
        if (at->is_folder) {
            folder_crash(sim, at);
        } else {
            file_crash(sim, at);
        }
    }
}

/* ---- export ---- */

static ls_status export_inode(const ls_sim_inode *inode, const char *path)
{
    if (!inode->is_folder) {
        return ls_file_write_atomic(path, inode->now.data, inode->now.bytes);
    }
    ls_arena arena = {0};
    ls_status status = ls_dir_create(path);
    for (size_t i = 0; i < inode->names_now.count && status == LS_OK; i++) {
        const ls_sim_entry *entry = &inode->names_now.entries[i];
        status = export_inode(entry->inode, ls_path_join(&arena, path, entry->name));
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_sim_disk_export(const ls_sim *sim, ls_sim_host host, const char *path, const char *to)
{
    LS_ASSERT(host < sim->host_count);
    ls_sim_place at;
    const int error = ls_sim_place_find(&sim->hosts[host]->disk, path, &at);
    if (error || !at.inode) {
        return ls_fail_errno(error ? -error : ENOENT, "no %s on the simulated disk", path);
    }
    return export_inode(at.inode, to);
}

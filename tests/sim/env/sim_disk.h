// SPDX-License-Identifier: Apache-2.0
/* Internal to the simulated env: what a disk is (sim_disk.c), for the calls on it
 * (sim_disk_calls.c).
 *
 * Each file and folder has two sides: what programs see now, and what a crash is sure to leave.
 * Between the two are the writes (of a file) and the states of the list of names (of a folder)
 * since the last sync; of these a crash keeps any. */
#ifndef LS_BASE_ENV_SIM_DISK_H
#define LS_BASE_ENV_SIM_DISK_H

#include "sim/env/sim_env_internal.h"

typedef struct ls_sim_content {
    unsigned char *data;
    size_t bytes;
} ls_sim_content;

/* A write since the last sync; data NULL: the file was set to the length `offset`. */
typedef struct ls_sim_pending {
    unsigned char *data;
    size_t bytes;
    uint64_t offset;
} ls_sim_pending;

typedef struct ls_sim_entry {
    char *name;
    ls_sim_inode *inode;
} ls_sim_entry;

/* The names of a folder at one moment, sorted. */
typedef struct ls_sim_names {
    ls_sim_entry *entries;
    size_t count;
} ls_sim_names;

struct ls_sim_inode {
    ls_sim_inode *next; /* all inodes of the disk */
    bool is_folder;
    bool counted; /* by ls_sim_disk_bytes; a file may have several names */
    ls_sim_content now, durable;
    ls_sim_pending *writes;
    size_t write_count;
    ls_sim_names names_now;
    ls_sim_names
        *states; /* names that a crash may go back to: [0] is the durable one, then each state since */
    size_t state_count;
};

/* Where a path leads: the folder it is in, its last name, and what is there (NULL: nothing). */
typedef struct ls_sim_place {
    ls_sim_inode *folder;
    char name[256];
    ls_sim_inode *inode;
} ls_sim_place;

/* 0 or a negative errno value. */
int ls_sim_place_find(const ls_sim_disk *disk, const char *path, ls_sim_place *out);

void *ls_sim_copy(const void *data, size_t bytes);

ls_sim_inode *ls_sim_inode_create(ls_sim_disk *disk, bool is_folder);

/* ---- files ---- */

/* Bytes in the files that programs can reach by name, each counted once. */
uint64_t ls_sim_disk_bytes(const ls_sim_disk *disk);
/* Each is visible at once, and pending until the next sync. */
void ls_sim_file_write(ls_sim_inode *file, const void *data, size_t bytes, uint64_t offset);
void ls_sim_file_resize(ls_sim_inode *file, uint64_t bytes);
void ls_sim_file_sync(ls_sim_inode *file);
/* A sync that fails: some of what was pending becomes durable; the rest never will, though
 * programs still see it. */
void ls_sim_file_sync_failed(ls_sim *sim, ls_sim_inode *file);

/* ---- folders: change names_now, then say so ---- */

ls_sim_names ls_sim_names_copy(const ls_sim_names *from);
void ls_sim_names_release(ls_sim_names *list);
void ls_sim_names_put(ls_sim_names *list, const char *name, ls_sim_inode *inode);
void ls_sim_names_remove(ls_sim_names *list, const char *name);
/* Remembers the folder's present names as one more state that a crash may return to. */
void ls_sim_folder_changed(ls_sim_inode *folder);
void ls_sim_folder_sync(ls_sim_inode *folder);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/commit.h"

#include "base/assert.h"
#include "base/file.h"
#include "storage/checkpoint/collect.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/share.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SECTOR_BYTES = 4096, RENAMES_MAX = 8, ERROR_TEXT_BYTES = 1024 };

typedef struct data_file {
    const char *path;
    int64_t number; /* -1: not open */
    bool linked;
} data_file;

struct ls_commit {
    ls_arena *arena;
    ls_commit_options options;
    const char *folder, *final_path; /* the temporary folder, and its final name */
    const char *folder_name;         /* in the root */
    data_file *files;
    size_t at; /* current file or text */
    const ls_commit_text *texts;
    size_t text_count;
    const char *text_path;
    int64_t text_number; /* -1: not open */
    size_t written;      /* of the text */
    unsigned renames;    /* tried */
    bool pinned;         /* the replaced checkpoint is pinned */
    bool made, replaced; /* the folder exists; after the exchange it holds an older checkpoint */
    ls_status status;
    char error_text[ERROR_TEXT_BYTES];
};

int64_t ls_commit_file_number(const ls_commit *commit, size_t index)
{
    LS_ASSERT(index < commit->options.file_count);
    return commit->files[index].number;
}

const char *ls_commit_file_path(const ls_commit *commit, size_t index)
{
    LS_ASSERT(index < commit->options.file_count);
    return commit->files[index].path;
}

bool ls_commit_is_linked(const ls_commit *commit, size_t index)
{
    LS_ASSERT(index < commit->options.file_count);
    return commit->files[index].linked;
}

/* ---- the end ---- */

static void finish(ls_commit *self)
{
    if (self->status != LS_OK) {
        (void)ls_fail(self->status, "%s", self->error_text);
    }
    self->options.done(self->options.context, self->status);
}

/* The outcome of the clean-up does not change the outcome of the commit. */
static void cleaned(void *context, ls_status status, const bool *claimed)
{
    (void)status;
    (void)claimed;
    finish(context);
}

static void clean_up(ls_commit *self)
{
    const ls_collect_options options = {.env = self->options.env,
                                        .root = self->options.root,
                                        .names = &self->folder_name,
                                        .count = 1,
                                        .also_pinned = true,
                                        .context = self,
                                        .done = cleaned};
    ls_collect_start(self->arena, &options);
}

static void abandon_next(void *context, int64_t result)
{
    (void)result;
    ls_commit *self = context;
    int64_t *open = self->text_number >= 0 ? &self->text_number : NULL;
    for (size_t i = 0; i < self->options.file_count && !open; i++) {
        open = self->files[i].number >= 0 ? &self->files[i].number : NULL;
    }
    if (open) {
        const int64_t number = *open;
        *open = -1;
        ls_env_disk_close(self->options.env, number, abandon_next, self);
    } else if (self->made) {
        clean_up(self);
    } else {
        finish(self);
    }
}

/* Keeps the error text, closes open files and removes what was written. Must be the last call in
 * a callback. */
static void abandon(ls_commit *self, ls_status status)
{
    self->status = status;
    snprintf(self->error_text, sizeof self->error_text, "%s", ls_error_text());
    abandon_next(self, 0);
}

/* ---- rename ---- */

static void try_rename(ls_commit *self);

static void root_synced(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't flush folder %s to disk", self->options.root));
    } else if (self->replaced) {
        clean_up(self);
    } else {
        finish(self);
    }
}

static void sync_root(ls_commit *self)
{
    ls_env_disk_sync_dir(self->options.env, self->options.root, root_synced, self);
}

static void rename_failed(ls_commit *self, int64_t result)
{
    abandon(self, ls_fail_errno((int)-result, "can't rename %s to %s%s", self->folder, self->final_path,
                                result == -ENOENT ? " (another process writes into the same folder)" : ""));
}

static void exchanged(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result == -ENOENT) { /* it existed a moment ago: a prune removed it */
        try_rename(self);
    } else if (result < 0) {
        rename_failed(self, result);
    } else {
        self->replaced = true;
        sync_root(self);
    }
}

static void renamed(void *context, int64_t result)
{
    ls_commit *self = context;
    if ((result == -ENOTEMPTY || result == -EEXIST) && self->renames < RENAMES_MAX) {
        ls_env_disk_exchange(self->options.env, self->folder, self->final_path, exchanged, self);
    } else if (result < 0) {
        rename_failed(self, result);
    } else {
        self->made = false;
        sync_root(self);
    }
}

static void try_rename(ls_commit *self)
{
    self->renames++;
    ls_env_disk_rename(self->options.env, self->folder, self->final_path, renamed, self);
}

static void folder_synced(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't flush folder %s to disk", self->folder));
        return;
    }
    try_rename(self);
}

/* ---- small files ---- */

static void next_text(ls_commit *self);
static void write_text(ls_commit *self);

static void text_closed(void *context, int64_t result)
{
    ls_commit *self = context;
    self->text_number = -1;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't close %s", self->text_path));
        return;
    }
    self->at++;
    next_text(self);
}

static void text_synced(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't flush %s to disk", self->text_path));
        return;
    }
    ls_env_disk_close(self->options.env, self->text_number, text_closed, self);
}

static void text_written(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result <= 0) {
        abandon(self, ls_fail_errno(result < 0 ? (int)-result : EIO, "can't write %s at byte %zu",
                                    self->text_path, self->written));
        return;
    }
    self->written += (size_t)result;
    write_text(self);
}

static void write_text(ls_commit *self)
{
    const ls_commit_text *text = &self->texts[self->at];
    if (self->written == text->bytes) {
        ls_env_disk_sync(self->options.env, self->text_number, text_synced, self);
        return;
    }
    ls_env_disk_write(self->options.env, self->text_number, (const char *)text->data + self->written,
                      text->bytes - self->written, self->written, text_written, self);
}

static void text_opened(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't create %s", self->text_path));
        return;
    }
    self->text_number = result;
    self->written = 0;
    write_text(self);
}

static void next_text(ls_commit *self)
{
    if (self->at == self->text_count) {
        ls_env_disk_sync_dir(self->options.env, self->folder, folder_synced, self);
        return;
    }
    self->text_path = ls_path_join(self->arena, self->folder, self->texts[self->at].name);
    ls_env_disk_open(self->options.env, self->text_path, LS_ENV_NEW, text_opened, self);
}

static void describe(ls_commit *self);

static void pin_closed(void *context, int64_t result)
{
    (void)result;
    describe(context);
}

/* A pinned checkpoint stays pinned when it is saved again. */
static void pin_opened(void *context, int64_t result)
{
    ls_commit *self = context;
    self->pinned = result >= 0;
    if (self->pinned) {
        ls_env_disk_close(self->options.env, result, pin_closed, self);
    } else if (result == -ENOENT || result == -ENOTDIR) {
        describe(self);
    } else {
        abandon(self, ls_fail_errno((int)-result, "can't find out whether %s is pinned", self->final_path));
    }
}

static void look_for_pin(ls_commit *self)
{
    const char *path = ls_path_join(self->arena, self->final_path, LS_CHECKPOINT_PIN_NAME);
    ls_env_disk_open(self->options.env, path, LS_ENV_READ, pin_opened, self);
}

static void describe(ls_commit *self)
{
    const ls_commit_text *texts = NULL;
    size_t count = 0;
    const ls_status status = self->options.describe(self->options.context, &texts, &count);
    if (status != LS_OK) {
        abandon(self, status);
        return;
    }
    ls_commit_text *all = ls_arena_new(self->arena, ls_commit_text, count + 1);
    if (self->pinned) {
        all[self->text_count++] = (ls_commit_text){.name = LS_CHECKPOINT_PIN_NAME};
    }
    memcpy(all + self->text_count, texts, count * sizeof *texts);
    self->text_count += count;
    self->texts = all;
    self->at = 0;
    next_text(self);
}

/* ---- data files ---- */

static void next_seal(ls_commit *self);

static void file_closed(void *context, int64_t result)
{
    ls_commit *self = context;
    self->files[self->at].number = -1;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't close %s", self->files[self->at].path));
        return;
    }
    self->at++;
    next_seal(self);
}

static void file_synced(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't flush %s to disk", self->files[self->at].path));
        return;
    }
    ls_env_disk_close(self->options.env, self->files[self->at].number, file_closed, self);
}

static void file_cut(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't set the length of %s", self->files[self->at].path));
        return;
    }
    ls_env_disk_sync(self->options.env, self->files[self->at].number, file_synced, self);
}

static void next_seal(ls_commit *self)
{
    while (self->at < self->options.file_count && self->files[self->at].linked) {
        self->at++;
    }
    if (self->at == self->options.file_count) {
        look_for_pin(self);
        return;
    }
    ls_env_disk_truncate(self->options.env, self->files[self->at].number, self->options.files[self->at].bytes,
                         file_cut, self);
}

void ls_commit_filled(ls_commit *self, ls_status status)
{
    if (status != LS_OK) {
        abandon(self, status);
        return;
    }
    self->at = 0;
    next_seal(self);
}

static void next_open(ls_commit *self);

static void file_reserved(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't reserve %llu bytes for %s",
                                    (unsigned long long)self->options.files[self->at].bytes,
                                    self->files[self->at].path));
        return;
    }
    self->at++;
    next_open(self);
}

static void file_opened(void *context, int64_t result)
{
    ls_commit *self = context;
    data_file *file = &self->files[self->at];
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't create %s", file->path));
        return;
    }
    file->number = result;
    /* Whole sectors, because writes past the page cache need them; the excess is cut off
     * afterwards. */
    const uint64_t bytes =
        (self->options.files[self->at].bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
    ls_env_disk_allocate(self->options.env, file->number, bytes, file_reserved, self);
}

static void open_file(ls_commit *self)
{
    ls_env_disk_open(self->options.env, self->files[self->at].path, LS_ENV_NEW_BULK, file_opened, self);
}

/* If it can't be linked for any reason, it is written. */
static void file_linked(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        open_file(self);
        return;
    }
    self->files[self->at++].linked = true;
    next_open(self);
}

static void file_found(void *context, const char *path)
{
    ls_commit *self = context;
    if (!path) {
        open_file(self);
        return;
    }
    ls_env_disk_link(self->options.env, path, self->files[self->at].path, file_linked, self);
}

static bool is_same(void *context, uint64_t offset, const void *data, size_t bytes)
{
    ls_commit *self = context;
    return self->options.same(self->options.context, self->at, offset, data, bytes);
}

static void next_open(ls_commit *self)
{
    if (self->at == self->options.file_count) {
        self->options.fill(self->options.context, self);
        return;
    }
    const ls_commit_file *file = &self->options.files[self->at];
    if (!file->shared) {
        open_file(self);
        return;
    }
    const ls_share_options share = {.env = self->options.env,
                                    .root = self->options.root,
                                    .name = file->name,
                                    .bytes = file->bytes,
                                    .context = self,
                                    .same = is_same,
                                    .done = file_found};
    ls_share_find(self->arena, &share);
}

/* ---- the beginning ---- */

static void folder_made(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't create folder %s", self->folder));
        return;
    }
    self->made = true;
    self->at = 0;
    next_open(self);
}

static void leftovers_collected(void *context, ls_status status, const bool *claimed)
{
    ls_commit *self = context;
    (void)claimed;
    if (status != LS_OK) {
        abandon(self, ls_fail_within(status, "can't remove the leftovers of an unfinished save"));
        return;
    }
    ls_env_disk_mkdir(self->options.env, self->folder, folder_made, self);
}

static void root_listed(void *context, int64_t result, const char *const *names, size_t count)
{
    ls_commit *self = context;
    if (result < 0) {
        abandon(self, ls_fail_errno((int)-result, "can't list folder %s", self->options.root));
        return;
    }
    const char **leftovers = ls_arena_new(self->arena, const char *, count + 1);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (ls_checkpoint_name_is_temporary(names[i])) {
            leftovers[found++] = ls_arena_strdup(self->arena, names[i]);
        }
    }
    if (found == 0) {
        leftovers_collected(self, LS_OK, NULL);
        return;
    }
    const ls_collect_options options = {.env = self->options.env,
                                        .root = self->options.root,
                                        .names = leftovers,
                                        .count = found,
                                        .context = self,
                                        .done = leftovers_collected};
    ls_collect_start(self->arena, &options);
}

static void parent_synced(void *context, int64_t result)
{
    ls_commit *self = context;
    /* a parent that we may not open is one in which we did not create the root */
    if (result < 0 && result != -EACCES) {
        abandon(self,
                ls_fail_errno((int)-result, "can't flush the folder of %s to disk", self->options.root));
        return;
    }
    ls_env_disk_list(self->options.env, self->options.root, root_listed, self);
}

static void root_made(void *context, int64_t result)
{
    ls_commit *self = context;
    if (result < 0 && result != -EEXIST) {
        abandon(self, ls_fail_errno((int)-result, "can't create folder %s", self->options.root));
        return;
    }
    /* Also if the root existed: the process that made it may have ended before the sync. */
    ls_env_disk_sync_dir(self->options.env, ls_path_dirname(self->arena, self->options.root), parent_synced,
                         self);
}

ls_commit *ls_commit_start(ls_arena *arena, const ls_commit_options *options)
{
    LS_ASSERT(arena && options->env && options->root && options->fill && options->describe && options->done);
    ls_commit *self = ls_arena_new(arena, ls_commit, 1);
    *self = (ls_commit){.arena = arena, .options = *options, .text_number = -1};
    char step[32];
    snprintf(step, sizeof step, "%llu", (unsigned long long)options->step);
    self->folder_name = ls_collect_name(arena, options->env, step, "");
    self->folder = ls_path_join(arena, options->root, self->folder_name);
    self->final_path = ls_path_join(arena, options->root, step);
    self->files = ls_arena_new(arena, data_file, options->file_count + 1);
    for (size_t i = 0; i < options->file_count; i++) {
        self->files[i].path = ls_path_join(arena, self->folder, options->files[i].name);
        self->files[i].number = -1;
    }
    ls_env_disk_mkdir(options->env, options->root, root_made, self);
    return self;
}

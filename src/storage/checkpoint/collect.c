// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/collect.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "storage/checkpoint/files.h"

#include <errno.h>
#include <string.h>

enum { DEPTH_MAX = 16 }; /* depth of nested folders: we make none, but a person may have */

/* A folder being emptied. */
typedef struct level {
    const char *path;
    char **names;
    size_t count, at;
} level;

typedef struct collect {
    ls_arena *arena;
    ls_collect_options options;
    const char **paths; /* of claimed folders, by index in names; NULL: not claimed */
    bool *claimed;
    size_t at; /* current folder */
    level levels[DEPTH_MAX];
    size_t depth;
} collect;

char *ls_collect_name(ls_arena *arena, ls_env *env, const char *name, const char *mark)
{
    const size_t digits = strspn(name, "0123456789");
    return ls_arena_printf(arena, "%.*s%s%016llx%s", (int)digits, name, LS_CHECKPOINT_TEMPORARY_MARK,
                           (unsigned long long)ls_env_random_u64(env), mark);
}

static void finish(collect *self, ls_status status)
{
    self->options.done(self->options.context, status, self->claimed);
}

/* ---- a pin that came late ---- */

static void remove_next(collect *self);

static void given_back(void *context, int64_t result)
{
    collect *self = context;
    if (result < 0) {
        ls_log_warn("checkpoint: %s is pinned and can't be given its name back: %s", self->paths[self->at],
                    strerror((int)-result));
    }
    self->at++;
    remove_next(self);
}

static void name_is_back(void *context, int64_t result)
{
    collect *self = context;
    if (result < 0) {
        given_back(self, result);
        return;
    }
    self->claimed[self->at] = false;
    ls_env_disk_sync_dir(self->options.env, self->options.root, given_back, self);
}

/* The checkpoint was pinned after it was chosen and before it was claimed, so it must not be
 * removed. */
static void give_back(collect *self)
{
    const char *name = self->options.names[self->at];
    const char *step = ls_arena_strndup(self->arena, name, strspn(name, "0123456789"));
    ls_env_disk_rename(self->options.env, self->paths[self->at],
                       ls_path_join(self->arena, self->options.root, step), name_is_back, self);
}

/* ---- emptying ---- */

static void empty_next(collect *self);

/* The current folder stays, under a name that no reader looks at. */
static void give_up(collect *self, int64_t result, const char *path)
{
    ls_log_warn("checkpoint: %s can't be removed now; the next save or prune tries again: %s", path,
                strerror((int)-result));
    self->at++;
    remove_next(self);
}

static void level_listed(void *context, int64_t result, const char *const *names, size_t count)
{
    collect *self = context;
    level *here = &self->levels[self->depth - 1];
    /* already gone, or a file: unlink handles both */
    if (result < 0 && result != -ENOENT && result != -ENOTDIR) {
        give_up(self, result, here->path);
        return;
    }
    here->names = ls_arena_new(self->arena, char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (self->depth == 1 && !self->options.also_pinned && strcmp(names[i], LS_CHECKPOINT_PIN_NAME) == 0) {
            give_back(self);
            return;
        }
        here->names[i] = ls_arena_strdup(self->arena, names[i]);
        /* removed first: without it the rest is not a checkpoint */
        if (strcmp(names[i], LS_MANIFEST_NAME) == 0) {
            char *first = here->names[0];
            here->names[0] = here->names[i];
            here->names[i] = first;
        }
    }
    here->count = count;
    empty_next(self);
}

static void enter(collect *self, const char *path)
{
    if (self->depth == DEPTH_MAX) {
        give_up(self, -ELOOP, path);
        return;
    }
    self->levels[self->depth++] = (level){.path = path};
    ls_env_disk_list(self->options.env, path, level_listed, self);
}

static const char *entry_path(collect *self)
{
    const level *here = &self->levels[self->depth - 1];
    return ls_path_join(self->arena, here->path, here->names[here->at]);
}

static void entry_removed(void *context, int64_t result)
{
    collect *self = context;
    level *here = &self->levels[self->depth - 1];
    if (result == -ENOTEMPTY || result == -EEXIST) {
        enter(self, entry_path(self));
        return;
    }
    if (result < 0 && result != -ENOENT) {
        give_up(self, result, entry_path(self));
        return;
    }
    here->at++;
    empty_next(self);
}

static void folder_removed(void *context, int64_t result)
{
    collect *self = context;
    if (result < 0 && result != -ENOENT) {
        give_up(self, result, self->levels[self->depth - 1].path);
        return;
    }
    if (--self->depth > 0) {
        self->levels[self->depth - 1].at++;
        empty_next(self);
        return;
    }
    self->at++;
    remove_next(self);
}

static void empty_next(collect *self)
{
    const level *here = &self->levels[self->depth - 1];
    if (here->at < here->count) {
        ls_env_disk_unlink(self->options.env, entry_path(self), entry_removed, self);
    } else {
        ls_env_disk_unlink(self->options.env, here->path, folder_removed, self);
    }
}

static void remove_next(collect *self)
{
    while (self->at < self->options.count && !self->paths[self->at]) {
        self->at++;
    }
    if (self->at == self->options.count) {
        finish(self, LS_OK);
        return;
    }
    self->depth = 0;
    enter(self, self->paths[self->at]);
}

/* ---- claiming ---- */

static void root_synced(void *context, int64_t result)
{
    collect *self = context;
    if (result < 0) {
        finish(self, ls_fail_errno((int)-result, "can't flush folder %s to disk: nothing was removed from it",
                                   self->options.root));
        return;
    }
    self->at = 0;
    remove_next(self);
}

static void claim_next(collect *self);

static void renamed(void *context, int64_t result)
{
    collect *self = context;
    const char *name = self->options.names[self->at];
    if (result < 0 && result != -ENOENT) {
        finish(self, ls_fail_errno((int)-result, "can't rename %s/%s for removal", self->options.root, name));
        return;
    }
    if (result < 0) { /* another process claimed it first */
        self->paths[self->at] = NULL;
    }
    self->claimed[self->at] = result >= 0;
    self->at++;
    claim_next(self);
}

static void claim_next(collect *self)
{
    ls_env *env = self->options.env;
    const char *root = self->options.root;
    if (self->at == self->options.count) {
        ls_env_disk_sync_dir(env, root, root_synced, self);
        return;
    }
    const char *name = self->options.names[self->at];
    const char *path = ls_path_join(self->arena, root, name);
    self->paths[self->at] =
        ls_path_join(self->arena, root, ls_collect_name(self->arena, env, name, LS_COLLECT_MARK));
    ls_env_disk_rename(env, path, self->paths[self->at], renamed, self);
}

void ls_collect_start(ls_arena *arena, const ls_collect_options *options)
{
    LS_ASSERT(arena && options->env && options->root && options->done);
    collect *self = ls_arena_new(arena, collect, 1);
    *self = (collect){.arena = arena, .options = *options};
    self->paths = ls_arena_new(arena, const char *, options->count + 1);
    self->claimed = ls_arena_new(arena, bool, options->count + 1);
    claim_next(self);
}

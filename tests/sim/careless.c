// SPDX-License-Identifier: Apache-2.0
#include "careless.h"

#include "base/assert.h"
#include "storage/checkpoint/collect.h"

#include <stdlib.h>
#include <string.h>

const sim_mutation careless_disk_mutations[] = {
    {"no-file-sync", "files are not synced"},
    {"no-folder-sync", "the folder of a new checkpoint is not synced"},
    {"no-root-sync", "the root is not synced behind the rename"},
    {"no-parent-sync", "a new root is not made durable in its folder"},
    {"no-claim-sync", "a folder is emptied before its new name is durable"},
    {"trust-failed-sync", "a sync that failed counts as done"},
};
const size_t careless_disk_mutation_count =
    sizeof careless_disk_mutations / sizeof careless_disk_mutations[0];

static ls_env_calls honest, careless;
static bool after_claim; /* the last rename gave a folder the name of one to be removed */

static void do_nothing(ls_env *env, ls_env_done done, void *context)
{
    honest.disk_rename(env, "run", "run", done, context); /* onto itself */
}

static void skip_sync(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    (void)file;
    do_nothing(env, done, context);
}

static void note_rename(ls_env *env, const char *from, const char *to, ls_env_done done, void *context)
{
    const size_t bytes = strlen(to), mark = strlen(LS_COLLECT_MARK);
    after_claim = bytes > mark && strcmp(to + bytes - mark, LS_COLLECT_MARK) == 0;
    honest.disk_rename(env, from, to, done, context);
}

static bool is_root(const char *path)
{
    return strcmp(path, "run/checkpoints") == 0;
}

static void skip_inner(ls_env *env, const char *path, ls_env_done done, void *context)
{
    if (strstr(path, ".tmp-")) {
        do_nothing(env, done, context);
    } else {
        honest.disk_sync_dir(env, path, done, context);
    }
}

static void skip_root(ls_env *env, const char *path, ls_env_done done, void *context)
{
    if (is_root(path) && !after_claim) {
        do_nothing(env, done, context);
    } else {
        honest.disk_sync_dir(env, path, done, context);
    }
}

static void skip_claim(ls_env *env, const char *path, ls_env_done done, void *context)
{
    if (is_root(path) && after_claim) {
        do_nothing(env, done, context);
    } else {
        honest.disk_sync_dir(env, path, done, context);
    }
}

static void skip_parent(ls_env *env, const char *path, ls_env_done done, void *context)
{
    if (strcmp(path, "run") == 0) {
        do_nothing(env, done, context);
    } else {
        honest.disk_sync_dir(env, path, done, context);
    }
}

typedef struct trusting {
    ls_env_done done;
    void *context;
} trusting;

static void trust(void *context, int64_t result)
{
    (void)result;
    trusting *self = context;
    self->done(self->context, 0);
}

static void trust_sync(ls_env *env, int64_t file, ls_env_done done, void *context)
{
    trusting *self = ls_sim_alloc(env, sizeof *self);
    *self = (trusting){done, context};
    honest.disk_sync(env, file, trust, self);
}

static bool break_promise(const char *mutation)
{
    careless.disk_rename = note_rename;
    if (strcmp(mutation, "no-file-sync") == 0) {
        careless.disk_sync = skip_sync;
    } else if (strcmp(mutation, "no-folder-sync") == 0) {
        careless.disk_sync_dir = skip_inner;
    } else if (strcmp(mutation, "no-root-sync") == 0) {
        careless.disk_sync_dir = skip_root;
    } else if (strcmp(mutation, "no-parent-sync") == 0) {
        careless.disk_sync_dir = skip_parent;
    } else if (strcmp(mutation, "no-claim-sync") == 0) {
        careless.disk_sync_dir = skip_claim;
    } else if (strcmp(mutation, "trust-failed-sync") == 0) {
        careless.disk_sync = trust_sync;
    } else {
        return false;
    }
    return true;
}

void careless_init(sim_run *run, ls_env *env)
{
    if (!run->mutation) {
        return;
    }
    if (env->calls != &careless) {
        honest = careless = *env->calls;
    }
    if (break_promise(run->mutation)) {
        env->calls = &careless;
    }
}

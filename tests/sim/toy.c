// SPDX-License-Identifier: Apache-2.0
#include "toy.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "storage/checkpoint/collect.h"
#include "storage/checkpoint/commit.h"
#include "storage/checkpoint/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 3, FROZEN = 2, FILE_BYTES_MAX = 1800, LOOKS_MAX = 20, SHORT_WRITES_MAX = 8 };

toy_state toy_next(toy_state state)
{
    const uint64_t mark[] = {state.chain, ++state.step};
    state.chain = ls_xxh3(mark, sizeof mark, 7);
    return state;
}

toy_state toy_after(uint64_t step)
{
    static toy_state last; /* the simulator has one thread, and steps mostly grow */
    toy_state state = last.step <= step ? last : (toy_state){0};
    while (state.step < step) {
        state = toy_next(state);
    }
    last = state;
    return state;
}

/* ---- the format ---- */

typedef struct toy_manifest {
    uint64_t magic;
    toy_state state;
    uint64_t bytes[FILES], hashes[FILES];
    uint64_t own_hash; /* of what is before */
} toy_manifest;

static const char *const FILE_NAMES[FILES] = {"model.data", "optimizer.data", TOY_FROZEN_FILE};

/* What is frozen is the same at every step. */
static size_t file_bytes(toy_state state, size_t index)
{
    if (index == FROZEN) {
        return 777;
    }
    return 1 + (size_t)(ls_xxh3(&state, sizeof state, index) % FILE_BYTES_MAX);
}

static void file_fill(toy_state state, size_t index, unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const uint64_t chain = index == FROZEN ? 0x0123456789abcdef : state.chain;
        data[i] = (unsigned char)(chain >> (8 * (i % 8))) ^ (unsigned char)(i + 31 * index);
    }
}

static toy_manifest manifest_of(toy_state state)
{
    toy_manifest manifest = {.magic = 0x746f79, .state = state};
    unsigned char data[FILE_BYTES_MAX + 1];
    for (size_t i = 0; i < FILES; i++) {
        manifest.bytes[i] = file_bytes(state, i);
        file_fill(state, i, data, manifest.bytes[i]);
        manifest.hashes[i] = ls_xxh3(data, manifest.bytes[i], 0);
    }
    manifest.own_hash = ls_xxh3(&manifest, offsetof(toy_manifest, own_hash), 0);
    return manifest;
}

/* ---- save ---- */

typedef struct save {
    ls_env *env;
    ls_commit *commit;
    toy_state state;
    ls_commit_file files[FILES];
    unsigned char *data[FILES];
    toy_manifest manifest;
    ls_commit_text texts[2];
    size_t at, written; /* file in hand */
    unsigned stuck;
    toy_done done;
    void *context;
} save;

static void save_write(save *self);

static void save_written(void *context, int64_t result)
{
    save *self = context;
    self->stuck = result > 0 ? 0 : self->stuck + 1;
    if (result < 0 || self->stuck == SHORT_WRITES_MAX) {
        ls_commit_filled(self->commit, ls_fail_errno(result < 0 ? (int)-result : EIO, "can't write %s",
                                                     ls_commit_file_path(self->commit, self->at)));
        return;
    }
    self->written += (size_t)result;
    save_write(self);
}

static void save_write(save *self)
{
    while (self->at < FILES &&
           (ls_commit_is_linked(self->commit, self->at) || self->written == self->files[self->at].bytes)) {
        self->at++;
        self->written = 0;
    }
    if (self->at == FILES) {
        ls_commit_filled(self->commit, LS_OK);
        return;
    }
    ls_env_disk_write(self->env, ls_commit_file_number(self->commit, self->at),
                      self->data[self->at] + self->written, self->files[self->at].bytes - self->written,
                      self->written, save_written, self);
}

static void save_fill(void *context, ls_commit *commit)
{
    save *self = context;
    self->commit = commit;
    save_write(self);
}

static const char *broken;

void toy_break(const char *mutation)
{
    broken = mutation;
}

static bool save_same(void *context, size_t index, uint64_t offset, const void *data, size_t bytes)
{
    const save *self = context;
    return (broken && strcmp(broken, "link-unread") == 0) ||
           memcmp(self->data[index] + offset, data, bytes) == 0;
}

static ls_status save_describe(void *context, const ls_commit_text **texts_out, size_t *count_out)
{
    save *self = context;
    self->manifest = manifest_of(self->state);
    self->texts[0] = (ls_commit_text){"config.json", "{}", 2};
    self->texts[1] = (ls_commit_text){LS_MANIFEST_NAME, &self->manifest, sizeof self->manifest};
    *texts_out = self->texts;
    *count_out = 2;
    return LS_OK;
}

static void save_done(void *context, ls_status status)
{
    save *self = context;
    self->done(self->context, status);
}

void toy_save(ls_env *env, ls_arena *arena, const char *root, toy_state state, toy_done done, void *context)
{
    save *self = ls_arena_new(arena, save, 1);
    *self = (save){.env = env, .state = state, .done = done, .context = context};
    for (size_t i = 0; i < FILES; i++) {
        self->files[i] =
            (ls_commit_file){.name = FILE_NAMES[i], .bytes = file_bytes(state, i), .shared = i == FROZEN};
        self->data[i] = ls_arena_new(arena, unsigned char, self->files[i].bytes);
        file_fill(state, i, self->data[i], self->files[i].bytes);
    }
    const ls_commit_options options = {.env = env,
                                       .root = root,
                                       .step = state.step,
                                       .files = self->files,
                                       .file_count = FILES,
                                       .context = self,
                                       .same = save_same,
                                       .fill = save_fill,
                                       .describe = save_describe,
                                       .done = save_done};
    ls_commit_start(arena, &options);
}

/* ---- steps of a root ---- */

static int compare_steps(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ascending, in `arena`. */
static uint64_t *steps_of(ls_arena *arena, const char *const *names, size_t count, size_t *count_out)
{
    uint64_t *steps = ls_arena_new(arena, uint64_t, count + 1);
    *count_out = 0;
    for (size_t i = 0; i < count; i++) {
        *count_out += ls_checkpoint_name_step(names[i], &steps[*count_out]);
    }
    qsort(steps, *count_out, sizeof *steps, compare_steps);
    return steps;
}

/* ---- load ---- */

typedef struct load {
    ls_env *env;
    ls_arena *arena;
    const char *root;
    toy_load_options options;
    toy_loaded loaded;
    void *context;
    toy_found found;
    uint64_t *steps;
    size_t left; /* steps[left - 1] is the candidate */
    unsigned looks;
    toy_manifest manifest;
    size_t at; /* file in hand; FILES: the manifest */
    unsigned char data[FILE_BYTES_MAX + 64];
    int64_t number, got;
} load;

static void load_look(load *self);
static void load_candidate(load *self);
static void load_open(load *self);

static void load_gone_or_damaged(void *context, int64_t result, const char *const *names, size_t count)
{
    load *self = context;
    size_t there = 0;
    const uint64_t *steps = steps_of(self->arena, names, count, &there);
    const uint64_t candidate = self->steps[self->left - 1];
    const bool is_there =
        result >= 0 && there > 0 && bsearch(&candidate, steps, there, sizeof *steps, compare_steps);
    if (result >= 0 && !is_there && !self->options.never_again && self->looks < LOOKS_MAX) {
        load_look(self);
        return;
    }
    self->found.skipped += self->found.state.step == 0;
    self->found.damaged += is_there;
    self->left--;
    load_candidate(self);
}

static void load_bad(load *self)
{
    ls_env_disk_list(self->env, self->root, load_gone_or_damaged, self);
}

static bool load_check(load *self)
{
    if (self->at == FILES) {
        memcpy(&self->manifest, self->data, sizeof self->manifest);
        return self->got == (int64_t)sizeof self->manifest &&
               self->manifest.own_hash == ls_xxh3(&self->manifest, offsetof(toy_manifest, own_hash), 0) &&
               self->manifest.state.step == self->steps[self->left - 1];
    }
    return self->got == (int64_t)self->manifest.bytes[self->at] &&
           ls_xxh3(self->data, (size_t)self->got, 0) == self->manifest.hashes[self->at];
}

static void load_closed(void *context, int64_t result)
{
    (void)result; /* what was read is checked */
    load *self = context;
    if (!load_check(self)) {
        load_bad(self);
        return;
    }
    self->at = self->at == FILES ? 0 : self->at + 1;
    if (self->at < FILES) {
        load_open(self);
        return;
    }
    if (self->found.state.step == 0) {
        self->found.state = self->manifest.state;
    }
    self->left--;
    load_candidate(self);
}

static void load_read(void *context, int64_t result)
{
    load *self = context;
    self->got = result;
    ls_env_disk_close(self->env, self->number, load_closed, self);
}

static void load_opened(void *context, int64_t result)
{
    load *self = context;
    if (result < 0) {
        load_bad(self);
        return;
    }
    self->number = result;
    ls_env_disk_read(self->env, result, self->data, sizeof self->data, 0, load_read, self);
}

static void load_open(load *self)
{
    const char *path = ls_arena_printf(self->arena, "%s/%llu/%s", self->root,
                                       (unsigned long long)self->steps[self->left - 1],
                                       self->at == FILES ? LS_MANIFEST_NAME : FILE_NAMES[self->at]);
    ls_env_disk_open(self->env, path, LS_ENV_READ, load_opened, self);
}

static void load_candidate(load *self)
{
    if (self->left == 0 || (self->found.state.step && !self->options.all)) {
        self->loaded(self->context, &self->found);
        return;
    }
    self->at = FILES;
    load_open(self);
}

static void load_listed(void *context, int64_t result, const char *const *names, size_t count)
{
    load *self = context;
    self->found = (toy_found){.failed = result < 0 && result != -ENOENT};
    self->steps = steps_of(self->arena, names, count, &self->left);
    load_candidate(self);
}

static void load_look(load *self)
{
    self->looks++;
    ls_env_disk_list(self->env, self->root, load_listed, self);
}

void toy_load(ls_env *env, ls_arena *arena, const char *root, const toy_load_options *options,
              toy_loaded loaded, void *context)
{
    load *self = ls_arena_new(arena, load, 1);
    *self = (load){
        .env = env, .arena = arena, .root = root, .options = *options, .loaded = loaded, .context = context};
    load_look(self);
}

/* ---- prune ---- */

typedef struct prune {
    ls_env *env;
    ls_arena *arena;
    const char *root;
    uint64_t keep_last, saved;
    toy_done done;
    void *context;
} prune;

static void prune_collected(void *context, ls_status status, const bool *claimed)
{
    (void)claimed;
    prune *self = context;
    self->done(self->context, status);
}

/* What has a step as its name is complete, so each counts as good. */
static void prune_listed(void *context, int64_t result, const char *const *names, size_t count)
{
    prune *self = context;
    if (result < 0) {
        self->done(self->context, ls_fail_errno((int)-result, "can't list %s", self->root));
        return;
    }
    size_t step_count = 0, doomed_count = 0;
    const uint64_t *steps = steps_of(self->arena, names, count, &step_count);
    ls_checkpoint_entry *entries = ls_arena_new(self->arena, ls_checkpoint_entry, step_count + 1);
    bool *doomed = ls_arena_new(self->arena, bool, step_count + 1);
    const char **victims = ls_arena_new(self->arena, const char *, count + 1);
    for (size_t i = 0; i < step_count; i++) {
        entries[i].step = steps[i];
    }
    const ls_checkpoint_prune_options rule = {.keep_last = self->keep_last, .saved = self->saved};
    ls_checkpoint_doom(entries, step_count, &rule, doomed);
    for (size_t i = 0; i < step_count; i++) {
        if (doomed[i]) {
            victims[doomed_count++] = ls_arena_printf(self->arena, "%llu", (unsigned long long)steps[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (ls_checkpoint_name_is_gone(names[i])) {
            victims[doomed_count++] = ls_arena_strdup(self->arena, names[i]);
        }
    }
    const ls_collect_options options = {.env = self->env,
                                        .root = self->root,
                                        .names = victims,
                                        .count = doomed_count,
                                        .context = self,
                                        .done = prune_collected};
    ls_collect_start(self->arena, &options);
}

void toy_prune(ls_env *env, ls_arena *arena, const char *root, uint64_t keep_last, uint64_t saved,
               toy_done done, void *context)
{
    prune *self = ls_arena_new(arena, prune, 1);
    *self = (prune){.env = env,
                    .arena = arena,
                    .root = root,
                    .keep_last = keep_last,
                    .saved = saved,
                    .done = done,
                    .context = context};
    ls_env_disk_list(env, root, prune_listed, self);
}

// SPDX-License-Identifier: Apache-2.0
/* Many checkpoints: listing, finding the newest good one, falling back, pruning, pinning. */
#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/collect.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ls_checkpoint_name_step(const char *name, uint64_t *step_out)
{
    const size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 19 || name[digits] != '\0' || (name[0] == '0' && digits > 1)) {
        return false;
    }
    const unsigned long long step = strtoull(name, NULL, 10); /* 19 digits fit in 64 bits */
    if (step > INT64_MAX) {
        return false;
    }
    *step_out = step;
    return true;
}

bool ls_checkpoint_name_is_temporary(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    const size_t mark_bytes = sizeof LS_CHECKPOINT_TEMPORARY_MARK - 1;
    return digits > 0 && strncmp(name + digits, LS_CHECKPOINT_TEMPORARY_MARK, mark_bytes) == 0;
}

bool ls_checkpoint_name_is_gone(const char *name)
{
    return ls_checkpoint_name_is_temporary(name) && ls_path_has_suffix(name, LS_COLLECT_MARK);
}

static int compare_steps(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The steps that have a folder, ascending. A missing root has none. */
static ls_status list_steps(ls_arena *arena, const char *root, uint64_t **steps_out, size_t *count_out)
{
    char **names = NULL;
    size_t name_count = 0, count = 0;
    if (!ls_path_exists(root)) {
        *steps_out = NULL;
        *count_out = 0;
        return LS_OK;
    }
    LS_TRY(ls_dir_list(arena, root, &names, &name_count));
    uint64_t *steps = ls_arena_new(arena, uint64_t, name_count);
    for (size_t i = 0; i < name_count; i++) {
        count += ls_checkpoint_name_step(names[i], &steps[count]);
    }
    qsort(steps, count, sizeof *steps, compare_steps);
    *steps_out = steps;
    *count_out = count;
    return LS_OK;
}

static const char *step_path(ls_arena *arena, const char *root, uint64_t step)
{
    return ls_arena_printf(arena, "%s/%llu", root, (unsigned long long)step);
}

/* Opens `<root>/<step>`; a manifest of another step (a renamed folder) is LS_ERR_DATA. */
static ls_status open_step(const char *path, uint64_t step, ls_checkpoint **checkpoint_out)
{
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(ls_checkpoint_open(path, &checkpoint));
    if (checkpoint->meta.step != step) {
        const unsigned long long found = checkpoint->meta.step;
        ls_checkpoint_close(checkpoint);
        return ls_fail(LS_ERR_DATA,
                       "folder %s holds the checkpoint of step %llu; a checkpoint's folder must be named "
                       "after its step (was it renamed by hand?)",
                       path, found);
    }
    *checkpoint_out = checkpoint;
    return LS_OK;
}

static void fill_entry(ls_arena *arena, const char *root, uint64_t step, ls_checkpoint_entry *entry)
{
    *entry = (ls_checkpoint_entry){.step = step, .path = step_path(arena, root, step)};
    ls_checkpoint *checkpoint = NULL;
    if (open_step(entry->path, step, &checkpoint) != LS_OK) {
        entry->problem = ls_arena_strdup(arena, ls_error_text());
        return;
    }
    entry->identity = ls_arena_strdup(arena, checkpoint->meta.identity);
    entry->bytes = checkpoint->manifest->data_bytes;
    entry->parameters = checkpoint->manifest->parameters;
    entry->has_val_loss = checkpoint->meta.has_val_loss;
    entry->val_loss = checkpoint->meta.val_loss;
    entry->pinned = checkpoint->pinned;
    ls_checkpoint_close(checkpoint);
}

ls_status ls_checkpoint_list(ls_arena *arena, const char *root, ls_checkpoint_entry **entries_out,
                             size_t *count_out)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    LS_TRY(list_steps(arena, root, &steps, &count));
    ls_checkpoint_entry *entries = ls_arena_new(arena, ls_checkpoint_entry, count);
    for (size_t i = 0; i < count; i++) {
        fill_entry(arena, root, steps[i], &entries[i]);
    }
    *entries_out = entries;
    *count_out = count;
    return LS_OK;
}

/* Errors of one checkpoint that an older one may not have. */
static bool is_damage(ls_status status)
{
    return status == LS_ERR_DATA || status == LS_ERR_NOT_FOUND || status == LS_ERR_IO ||
           status == LS_ERR_UNSUPPORTED;
}

/* Extra check of each candidate after it is opened; NULL: none. */
typedef ls_status (*try_checkpoint)(const ls_checkpoint *checkpoint, void *context);

typedef struct latest_search {
    const char *root, *identity;
    uint64_t before_step;
    try_checkpoint try; /* may be NULL */
    void *context;
} latest_search;

/* One candidate. A status other than LS_OK: see is_damage. */
static ls_status walk_try(const latest_search *search, const char *path, uint64_t step,
                          ls_checkpoint **checkpoint_out)
{
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(open_step(path, step, &checkpoint));
    ls_status status = search->identity ? ls_checkpoint_check_identity(checkpoint, search->identity) : LS_OK;
    if (status == LS_OK && search->try) {
        status = search->try(checkpoint, search->context);
    }
    if (status != LS_OK) {
        ls_checkpoint_close(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return LS_OK;
}

/* The same, but if the search is for loading, a damaged checkpoint is repaired and tried again.
 * Only the first problem is reported. */
static ls_status walk_try_repaired(ls_arena *arena, const latest_search *search, const char *path,
                                   uint64_t step, ls_checkpoint_latest *latest,
                                   ls_checkpoint **checkpoint_out)
{
    const ls_status status = walk_try(search, path, step, checkpoint_out);
    if (status == LS_OK || !search->try || !is_damage(status)) {
        return status;
    }
    const char *problem = ls_arena_strdup(arena, ls_error_text());
    ls_checkpoint_mend *mends = NULL;
    size_t count = 0;
    if (ls_checkpoint_repair(arena, path, NULL, &mends, &count) != LS_OK || count == 0 ||
        walk_try(search, path, step, checkpoint_out) != LS_OK) {
        return ls_fail(status, "%s", problem);
    }
    latest->mends = mends;
    latest->mend_count = count;
    return LS_OK;
}

/* Tries from the newest step to the oldest until one opens and passes `try`. moved_out: a listed
 * checkpoint was pruned meanwhile, so a newer one than those listed exists. */
static ls_status walk_once(ls_arena *arena, const latest_search *search, ls_checkpoint_latest *latest_out,
                           bool *moved_out)
{
    uint64_t *steps = NULL;
    size_t count = 0, skipped_count = 0;
    LS_TRY(list_steps(arena, search->root, &steps, &count));
    ls_checkpoint_entry *skipped = ls_arena_new(arena, ls_checkpoint_entry, count);
    ls_checkpoint *checkpoint = NULL;
    ls_checkpoint_latest latest = {0};
    for (size_t i = count; i-- > 0 && !checkpoint;) {
        if (steps[i] >= search->before_step) {
            continue;
        }
        const char *path = step_path(arena, search->root, steps[i]);
        const ls_status status = walk_try_repaired(arena, search, path, steps[i], &latest, &checkpoint);
        if (status != LS_OK) {
            if (!is_damage(status)) {
                return status;
            }
            *moved_out |= !ls_path_is_dir(path);
            skipped[skipped_count++] = (ls_checkpoint_entry){
                .step = steps[i], .path = path, .problem = ls_arena_strdup(arena, ls_error_text())};
        }
    }
    latest.checkpoint = checkpoint;
    latest.skipped = skipped;
    latest.skipped_count = skipped_count;
    *latest_out = latest;
    return LS_OK;
}

static ls_status walk_down(ls_arena *arena, const latest_search *search, ls_checkpoint_latest *latest_out)
{
    enum { WALKS_MAX = 20 };
    ls_checkpoint_latest latest = {0};
    bool moved = true;
    for (int i = 0; i < WALKS_MAX && moved; i++) {
        moved = false;
        ls_checkpoint_close(latest.checkpoint);
        latest.checkpoint = NULL;
        LS_TRY(walk_once(arena, search, &latest, &moved));
    }
    for (size_t i = 0; i < latest.skipped_count; i++) {
        ls_log_warn("checkpoint: skipped, step %llu: %s", (unsigned long long)latest.skipped[i].step,
                    latest.skipped[i].problem);
    }
    if (!latest.checkpoint && latest.skipped_count > 0) {
        return ls_fail(LS_ERR_DATA, "%s: none of its %zu checkpoints can be used; the newest: %s",
                       search->root, latest.skipped_count, latest.skipped[0].problem);
    }
    *latest_out = latest;
    return LS_OK;
}

ls_status ls_checkpoint_find_latest(ls_arena *arena, const char *root, const char *identity,
                                    uint64_t before_step, ls_checkpoint_latest *latest_out)
{
    LS_ASSERT(arena && root && latest_out);
    const latest_search search = {.root = root, .identity = identity, .before_step = before_step};
    return walk_down(arena, &search, latest_out);
}

typedef struct load_request {
    const ls_checkpoint_tensor *tensors;
    size_t tensor_count;
    const ls_checkpoint_load_options *options;
} load_request;

static ls_status try_load(const ls_checkpoint *checkpoint, void *context)
{
    const load_request *request = context;
    return ls_checkpoint_load(checkpoint, request->tensors, request->tensor_count, request->options);
}

ls_status ls_checkpoint_load_latest(ls_arena *arena, const char *root, const char *identity,
                                    const ls_checkpoint_tensor *tensors, size_t tensor_count,
                                    const ls_checkpoint_load_options *options,
                                    ls_checkpoint_latest *latest_out)
{
    LS_ASSERT(arena && root && latest_out);
    load_request request = {.tensors = tensors, .tensor_count = tensor_count, .options = options};
    const latest_search search = {
        .root = root, .identity = identity, .before_step = UINT64_MAX, .try = try_load, .context = &request};
    return walk_down(arena, &search, latest_out);
}

ls_status ls_checkpoint_resolve(ls_arena *arena, const char *path, const char **path_out)
{
    if (!ls_path_is_dir(path)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a folder; give the folder of a checkpoint or of a run",
                       path);
    }
    if (ls_path_exists(ls_path_join(arena, path, LS_MANIFEST_NAME))) {
        *path_out = ls_arena_strdup(arena, path);
        return LS_OK;
    }
    const char *below = ls_path_join(arena, path, "checkpoints");
    ls_checkpoint_latest latest = {0};
    LS_TRY(ls_checkpoint_find_latest(arena, ls_path_is_dir(below) ? below : path, NULL, UINT64_MAX, &latest));
    if (!latest.checkpoint) {
        return ls_fail(
            LS_ERR_NOT_FOUND,
            "%s has no checkpoint: it contains neither the file %s nor numbered folders with such a file",
            path, LS_MANIFEST_NAME);
    }
    *path_out = ls_arena_strdup(arena, latest.checkpoint->path);
    ls_checkpoint_close(latest.checkpoint);
    return LS_OK;
}

/* ---- the best ---- */

/* Number of good entries with a better validation loss; of two equal ones the newer is better. */
static size_t better_count(const ls_checkpoint_entry *entries, size_t count, size_t index)
{
    size_t better = 0;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].has_val_loss && (entries[i].val_loss < entries[index].val_loss ||
                                        (entries[i].val_loss == entries[index].val_loss && i > index))) {
            better++;
        }
    }
    return better;
}

ls_status ls_checkpoint_find_best(ls_arena *arena, const char *root, ls_checkpoint_entry *best_out)
{
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_checkpoint_list(arena, root, &entries, &count));
    for (size_t i = 0; i < count; i++) {
        if (!entries[i].problem && entries[i].has_val_loss && better_count(entries, count, i) == 0) {
            *best_out = entries[i];
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_NOT_FOUND,
                   "%s has no checkpoint with a validation loss: only checkpoints of steps that are also "
                   "evaluated (eval.every_steps) have one",
                   root);
}

ls_status ls_checkpoint_resolve_best(ls_arena *arena, const char *path, const char **path_out)
{
    const char *below = ls_path_join(arena, path, "checkpoints");
    ls_checkpoint_entry best;
    LS_TRY(ls_checkpoint_find_best(arena, ls_path_is_dir(below) ? below : path, &best));
    *path_out = best.path;
    return LS_OK;
}

/* ---- prune ---- */

static bool counts(const ls_checkpoint_entry *entry, const ls_checkpoint_prune_options *options)
{
    return !entry->problem && (options->saved == 0 || entry->step <= options->saved);
}

/* newer_count: good checkpoints after this one. */
static unsigned reasons_of(const ls_checkpoint_entry *entries, size_t count, size_t index, size_t newer_count,
                           const ls_checkpoint_prune_options *options)
{
    const ls_checkpoint_entry *entry = &entries[index];
    if (entry->problem) {
        return LS_KEPT_DAMAGED | (entry->pinned ? LS_KEPT_PINNED : 0);
    }
    const uint64_t keep_last = options->keep_last ? options->keep_last : 1;
    const bool best = entry->has_val_loss && better_count(entries, count, index) < options->keep_best;
    const bool every = options->keep_every && entry->step % options->keep_every == 0;
    return (newer_count < keep_last ? LS_KEPT_LAST : 0) | (best ? LS_KEPT_BEST : 0) |
           (every ? LS_KEPT_EVERY : 0) | (entry->pinned ? LS_KEPT_PINNED : 0);
}

void ls_checkpoint_fit(const ls_checkpoint_entry *entries, size_t count,
                       const ls_checkpoint_prune_options *options, unsigned *reasons)
{
    uint64_t bytes = 0;
    bool has_newest = false;
    for (size_t i = count; i-- > 0 && options->bytes_max > 0;) {
        const ls_checkpoint_entry *entry = &entries[i];
        const bool is_newest = !has_newest && counts(entry, options);
        const bool is_safe = is_newest || entry->problem || entry->pinned;
        has_newest = has_newest || is_newest;
        if (!is_safe && bytes + entry->bytes > options->bytes_max) {
            reasons[i] = 0;
        }
        bytes += reasons[i] ? entry->bytes : 0;
    }
}

void ls_checkpoint_reasons(const ls_checkpoint_entry *entries, size_t count,
                           const ls_checkpoint_prune_options *options, unsigned *reasons_out)
{
    size_t newer = 0;
    for (size_t i = count; i-- > 0;) {
        reasons_out[i] = reasons_of(entries, count, i, newer, options);
        newer += counts(&entries[i], options);
    }
    ls_checkpoint_fit(entries, count, options, reasons_out);
}

const char *ls_checkpoint_reasons_text(ls_arena *arena, unsigned reasons)
{
    static const char *const words[] = {"last", "best", "every", "pinned", "damaged"};
    const char *text = "";
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (reasons >> i & 1) {
            text = ls_arena_printf(arena, "%s%s%s", text, text[0] ? ", " : "", words[i]);
        }
    }
    return text;
}

void ls_checkpoint_doom(const ls_checkpoint_entry *entries, size_t count,
                        const ls_checkpoint_prune_options *options, bool *doomed_out)
{
    ls_arena arena = {0};
    unsigned *reasons = ls_arena_new(&arena, unsigned, count + 1);
    ls_checkpoint_reasons(entries, count, options, reasons);
    for (size_t i = 0; i < count; i++) {
        doomed_out[i] = reasons[i] == 0;
    }
    ls_arena_release(&arena);
}

/* State of a prune that runs its own loop. */
typedef struct blocking_collect {
    ls_arena *arena;
    ls_env *env;
    const char **names;
    size_t count;
    bool *claimed;
    ls_status status;
} blocking_collect;

static void collected(void *context, ls_status status, const bool *claimed)
{
    blocking_collect *self = context;
    self->status = status;
    for (size_t i = 0; i < self->count; i++) {
        self->claimed[i] = claimed[i];
    }
    ls_env_stop(self->env, 0);
}

static ls_status collect(blocking_collect *self, const char *root)
{
    LS_TRY(ls_env_real_create(&self->env));
    self->claimed = ls_arena_new(self->arena, bool, self->count);
    const ls_collect_options options = {.env = self->env,
                                        .root = root,
                                        .names = self->names,
                                        .count = self->count,
                                        .context = self,
                                        .done = collected};
    ls_collect_start(self->arena, &options);
    ls_env_run(self->env);
    ls_env_real_destroy(self->env);
    return self->status;
}

/* Adds the leftovers of an earlier, unfinished removal. */
static ls_status add_gone(blocking_collect *self, const char *root)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(self->arena, root, &names, &count));
    const char **all = ls_arena_new(self->arena, const char *, self->count + count);
    memcpy(all, self->names, self->count * sizeof *all);
    for (size_t i = 0; i < count; i++) {
        if (ls_checkpoint_name_is_gone(names[i])) {
            all[self->count++] = names[i];
        }
    }
    self->names = all;
    return LS_OK;
}

ls_status ls_checkpoint_prune(ls_arena *arena, const char *root, const ls_checkpoint_prune_options *options,
                              uint64_t **removed_out, size_t *removed_count_out)
{
    LS_ASSERT(arena && root && options && removed_out && removed_count_out);
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0, removed_count = 0;
    LS_TRY(ls_checkpoint_list(arena, root, &entries, &count));
    bool *doomed = ls_arena_new(arena, bool, count);
    uint64_t *removed = ls_arena_new(arena, uint64_t, count);
    blocking_collect self = {.arena = arena, .names = ls_arena_new(arena, const char *, count)};
    ls_checkpoint_doom(entries, count, options, doomed);
    for (size_t i = 0; i < count; i++) {
        if (doomed[i]) {
            removed[self.count] = entries[i].step;
            self.names[self.count++] = ls_path_basename(entries[i].path);
        }
    }
    const size_t doomed_count = removed_count = self.count;
    if (!options->dry_run && ls_path_exists(root)) {
        LS_TRY(add_gone(&self, root));
        if (self.count > 0) {
            LS_TRY(collect(&self, root));
        }
        removed_count = 0;
        for (size_t i = 0; i < doomed_count; i++) {
            if (self.claimed[i]) {
                removed[removed_count++] = removed[i];
            }
        }
    }
    *removed_out = removed;
    *removed_count_out = removed_count;
    return LS_OK;
}

ls_status ls_checkpoint_pin(const char *path, bool pinned)
{
    ls_arena arena = {0};
    const char *pin = ls_path_join(&arena, path, LS_CHECKPOINT_PIN_NAME);
    ls_status status = LS_OK;
    if (!ls_path_exists(ls_path_join(&arena, path, LS_MANIFEST_NAME))) {
        status = ls_fail(LS_ERR_NOT_FOUND,
                         "%s is not a checkpoint: it has no file %s. Give the folder of a checkpoint, such "
                         "as RUN/checkpoints/200",
                         path, LS_MANIFEST_NAME);
    } else if (pinned) {
        status = ls_file_write_atomic(pin, "", 0);
    } else if (unlink(pin) != 0 && errno != ENOENT) {
        status = ls_fail_errno(errno, "can't remove %s", pin);
    }
    ls_arena_release(&arena);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
#include "storage/mirror/mirror.h"

#include "base/clock.h"
#include "base/file.h"
#include "storage/checkpoint/files.h"
#include "storage/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 8 << 20 };

static const char *key_of(ls_arena *arena, uint64_t step, const char *name)
{
    return ls_arena_printf(arena, "%" PRIu64 "/%s", step, name);
}

/* The manifest of a step; release it with ls_manifest_release. text_out may be NULL. */
static ls_status read_manifest(ls_blob_store *store, ls_arena *arena, uint64_t step,
                               ls_manifest *manifest_out, const char **text_out)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *key = key_of(arena, step, LS_MANIFEST_NAME);
    const char *name = ls_arena_printf(arena, "%s/%s", ls_blob_address(store), key);
    LS_TRY(ls_blob_get(store, arena, key, LS_MANIFEST_BYTES_MAX, &text, &bytes));
    LS_TRY(ls_manifest_decode(arena, text, bytes, name, manifest_out));
    if (manifest_out->meta.step != step) {
        const uint64_t found = manifest_out->meta.step;
        ls_manifest_release(manifest_out);
        return ls_fail(LS_ERR_DATA, "%s is the manifest of step %" PRIu64, name, found);
    }
    if (text_out) {
        *text_out = text;
    }
    return LS_OK;
}

/* ---- lists ---- */

/* The step of "200/MANIFEST.json", or of any "200/..." if `name` is NULL. */
static bool key_step(ls_arena *arena, const char *key, const char *name, uint64_t *step_out)
{
    const char *slash = strchr(key, '/');
    return slash && (!name || strcmp(slash + 1, name) == 0) &&
           ls_checkpoint_name_step(ls_arena_strndup(arena, key, (size_t)(slash - key)), step_out);
}

static void fill_entry(ls_blob_store *store, ls_arena *arena, uint64_t step, ls_checkpoint_entry *entry)
{
    ls_manifest manifest = {0};
    *entry = (ls_checkpoint_entry){
        .step = step, .path = ls_arena_printf(arena, "%s/%" PRIu64, ls_blob_address(store), step)};
    if (read_manifest(store, arena, step, &manifest, NULL) != LS_OK) {
        entry->problem = ls_arena_strdup(arena, ls_error_text());
        return;
    }
    entry->identity = ls_arena_strdup(arena, manifest.meta.identity);
    entry->bytes = manifest.data_bytes;
    entry->parameters = manifest.parameters;
    entry->has_val_loss = manifest.meta.has_val_loss;
    entry->val_loss = manifest.meta.val_loss;
    ls_manifest_release(&manifest);
}

typedef struct dated {
    ls_checkpoint_entry entry;
    double modified_s;
} dated;

static int compare_steps(const void *a, const void *b)
{
    const uint64_t x = ((const dated *)a)->entry.step, y = ((const dated *)b)->entry.step;
    return (x > y) - (x < y);
}

ls_status ls_mirror_list(ls_blob_store *store, ls_arena *arena, ls_checkpoint_entry **entries_out,
                         double **modified_s_out, size_t *count_out)
{
    ls_blob_entry *keys = NULL;
    size_t key_count = 0, count = 0;
    LS_TRY(ls_blob_list(store, arena, "", true, &keys, &key_count));
    dated *all = ls_arena_new(arena, dated, key_count);
    for (size_t i = 0; i < key_count; i++) {
        uint64_t step = 0;
        if (key_step(arena, keys[i].key, LS_MANIFEST_NAME, &step)) {
            fill_entry(store, arena, step, &all[count].entry);
            all[count++].modified_s = keys[i].modified_s;
        }
    }
    if (count > 1) {
        qsort(all, count, sizeof *all, compare_steps);
    }
    *entries_out = ls_arena_new(arena, ls_checkpoint_entry, count);
    double *modified_s = ls_arena_new(arena, double, count);
    for (size_t i = 0; i < count; i++) {
        (*entries_out)[i] = all[i].entry;
        modified_s[i] = all[i].modified_s;
    }
    if (modified_s_out) {
        *modified_s_out = modified_s;
    }
    *count_out = count;
    return LS_OK;
}

/* ---- copying there ---- */

/* One file of a checkpoint. */
typedef struct part {
    const char *name, *path, *sha256;
    uint64_t bytes;
    int fd; /* -1: not open */
} part;

static part *parts_of(ls_arena *arena, const char *folder, const ls_manifest *manifest, size_t *count_out)
{
    const size_t files = manifest->file_count;
    part *parts = ls_arena_new(arena, part, files + manifest->attachment_count);
    for (size_t i = 0; i < files + manifest->attachment_count; i++) {
        const ls_manifest_file *file = i < files ? &manifest->files[i] : NULL;
        const ls_manifest_attachment *attachment = file ? NULL : &manifest->attachments[i - files];
        parts[i] = (part){.name = file ? file->name : attachment->name,
                          .sha256 = file ? file->sha256 : attachment->sha256,
                          .bytes = file ? file->bytes : attachment->bytes,
                          .fd = -1};
        parts[i].path = ls_path_join(arena, folder, parts[i].name);
    }
    *count_out = files + manifest->attachment_count;
    return parts;
}

/* Whether both have the same data files. */
static bool same_state(const ls_manifest *a, const ls_manifest *b)
{
    bool same = a->file_count == b->file_count;
    for (size_t i = 0; same && i < a->file_count; i++) {
        same = strcmp(a->files[i].name, b->files[i].name) == 0 &&
               strcmp(a->files[i].sha256, b->files[i].sha256) == 0;
    }
    return same;
}

/* LS_OK with *is_there_out if the mirror has this checkpoint; an error if it has another in its
 * place. */
static ls_status look_for(ls_blob_store *store, ls_arena *arena, const ls_checkpoint *checkpoint,
                          bool *is_there_out)
{
    ls_manifest there = {0};
    const uint64_t step = checkpoint->meta.step;
    const ls_status status = read_manifest(store, arena, step, &there, NULL);
    *is_there_out = status == LS_OK;
    if (status != LS_OK) {
        return status == LS_ERR_NOT_FOUND ? LS_OK : status;
    }
    ls_status result = LS_OK;
    if (strcmp(there.meta.identity, checkpoint->meta.identity) != 0) {
        result = ls_fail(LS_ERR_INVALID,
                         "%s holds another run: the identity of its step %" PRIu64 " is %.16s, this run's is "
                         "%.16s; give the run a mirror of its own (checkpoint.mirror)",
                         ls_blob_address(store), step, there.meta.identity, checkpoint->meta.identity);
    } else if (!same_state(&there, checkpoint->manifest)) {
        result =
            ls_fail(LS_ERR_MISMATCH,
                    "%s/%" PRIu64 " holds another state of this step of the same run, which is left as it "
                    "is; remove it, or give the run a mirror of its own",
                    ls_blob_address(store), step);
    }
    ls_manifest_release(&there);
    return result;
}

/* Files that are open stay readable when the checkpoint is pruned meanwhile. */
static ls_status open_parts(part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        parts[i].fd = open(parts[i].path, O_RDONLY | O_CLOEXEC);
        if (parts[i].fd < 0) {
            return ls_fail_errno(errno, "can't open %s", parts[i].path);
        }
    }
    return LS_OK;
}

static ls_status send(ls_blob_store *store, ls_arena *arena, const ls_checkpoint *checkpoint,
                      const part *parts, size_t count, uint64_t *sent)
{
    const uint64_t step = checkpoint->meta.step;
    char *text = NULL;
    size_t bytes = 0;
    bool stored = false;
    LS_TRY(ls_file_read(arena, ls_path_join(arena, checkpoint->path, LS_MANIFEST_NAME), LS_MANIFEST_BYTES_MAX,
                        &text, &bytes));
    LS_TRY(ls_checkpoint_verify(checkpoint, 1));
    for (size_t i = 0; i < count; i++) {
        uint64_t now = 0;
        LS_TRY(ls_blob_put_file(store, key_of(arena, step, parts[i].name), parts[i].fd, parts[i].path,
                                parts[i].bytes, parts[i].sha256, &now));
        *sent += now;
    }
    LS_TRY(ls_blob_put_new(store, key_of(arena, step, LS_MANIFEST_NAME), text, bytes, &stored));
    if (!stored) { /* another process was faster */
        LS_TRY(look_for(store, arena, checkpoint, &stored));
    }
    return LS_OK;
}

static ls_status put_open(ls_blob_store *store, ls_arena *arena, const ls_checkpoint *checkpoint,
                          uint64_t *sent)
{
    bool is_there = false;
    size_t count = 0;
    LS_TRY(look_for(store, arena, checkpoint, &is_there));
    if (is_there) {
        return LS_OK;
    }
    part *parts = parts_of(arena, checkpoint->path, checkpoint->manifest, &count);
    ls_status status = open_parts(parts, count);
    if (status == LS_OK) {
        status = send(store, arena, checkpoint, parts, count, sent);
    }
    for (size_t i = 0; i < count; i++) {
        if (parts[i].fd >= 0) {
            close(parts[i].fd);
        }
    }
    return status;
}

ls_status ls_mirror_put(ls_blob_store *store, const char *root, uint64_t step, uint64_t *sent_out)
{
    ls_arena arena = {0};
    ls_checkpoint *checkpoint = NULL;
    uint64_t sent = 0;
    ls_status status = ls_checkpoint_open(ls_arena_printf(&arena, "%s/%" PRIu64, root, step), &checkpoint);
    if (status == LS_OK) {
        status = put_open(store, &arena, checkpoint, &sent);
        ls_checkpoint_close(checkpoint);
    }
    *sent_out = sent;
    ls_arena_release(&arena);
    return status;
}

/* ---- fetching ---- */

static ls_status fetch_into(ls_blob_store *store, ls_arena *arena, uint64_t step, const char *folder)
{
    ls_manifest manifest = {0};
    const char *text = NULL;
    size_t count = 0;
    LS_TRY(read_manifest(store, arena, step, &manifest, &text));
    const part *parts = parts_of(arena, folder, &manifest, &count);
    ls_status status = ls_dir_create(folder);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        /* What an interrupted fetch got is checked with the rest. */
        if (!ls_path_exists(parts[i].path)) {
            ls_blob_entry entry;
            status = ls_blob_stat(store, key_of(arena, step, parts[i].name), &entry);
            status = status == LS_OK ? ls_blob_get_file(store, &entry, parts[i].path) : status;
        }
    }
    ls_manifest_release(&manifest);
    LS_TRY(status);
    LS_TRY(ls_file_write_atomic(ls_path_join(arena, folder, LS_MANIFEST_NAME), text, strlen(text)));
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(ls_checkpoint_open(folder, &checkpoint));
    status = ls_checkpoint_verify(checkpoint, 0);
    ls_checkpoint_close(checkpoint);
    return status;
}

ls_status ls_mirror_get(ls_blob_store *store, uint64_t step, const char *root)
{
    ls_arena arena = {0};
    const char *path = ls_arena_printf(&arena, "%s/%" PRIu64, root, step);
    const char *temporary = ls_arena_printf(&arena, "%s" LS_CHECKPOINT_TEMPORARY_MARK "mirror", path);
    ls_status status = fetch_into(store, &arena, step, temporary);
    if (status == LS_OK && rename(temporary, path) != 0) {
        status = ls_fail_errno(errno, "can't rename %s to %s", temporary, path);
    }
    if (status == LS_OK) {
        status = ls_dir_sync(root);
    } else if (status == LS_ERR_DATA) {
        status = ls_fail_within(status, "step %" PRIu64 " of %s is damaged", step, ls_blob_address(store));
        (void)!ls_dir_remove(temporary); /* the next fetch must not begin with it */
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- checking ---- */

static ls_status check_part(ls_blob_store *store, const char *key, const part *p)
{
    ls_blob_entry entry;
    char hex[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_blob_stat(store, key, &entry));
    void *data = malloc(PIECE_BYTES);
    ls_status status = data ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to read %s", key);
    ls_sha256 hash;
    ls_sha256_init(&hash);
    for (uint64_t at = 0; status == LS_OK && at < entry.bytes; at += PIECE_BYTES) {
        const size_t bytes = entry.bytes - at < PIECE_BYTES ? (size_t)(entry.bytes - at) : PIECE_BYTES;
        status = ls_blob_read(store, key, entry.etag, at, data, bytes);
        ls_sha256_update(&hash, data, status == LS_OK ? bytes : 0);
    }
    ls_sha256_finish(&hash, hex);
    free(data);
    if (status == LS_OK && (entry.bytes != p->bytes || strcmp(hex, p->sha256) != 0)) {
        status = ls_fail(LS_ERR_DATA,
                         "%s/%s is damaged: it has %" PRIu64 " bytes with SHA-256 %.12s..., and the manifest "
                         "lists %" PRIu64 " with %.12s...",
                         ls_blob_address(store), key, entry.bytes, hex, p->bytes, p->sha256);
    }
    return status;
}

ls_status ls_mirror_verify(ls_blob_store *store, uint64_t step)
{
    ls_arena arena = {0};
    ls_manifest manifest = {0};
    ls_status status = read_manifest(store, &arena, step, &manifest, NULL);
    if (status == LS_OK) {
        size_t count = 0;
        const part *parts = parts_of(&arena, "", &manifest, &count);
        for (size_t i = 0; status == LS_OK && i < count; i++) {
            status = check_part(store, key_of(&arena, step, parts[i].name), &parts[i]);
            if (status == LS_ERR_NOT_FOUND) {
                const char *why = ls_arena_strdup(&arena, ls_error_text());
                status = ls_fail(LS_ERR_DATA, "%s, although the manifest lists it", why);
            }
        }
        ls_manifest_release(&manifest);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_mirror_attachment(ls_blob_store *store, ls_arena *arena, uint64_t step, const char *name,
                               char **data_out, size_t *bytes_out)
{
    ls_manifest manifest = {0};
    char hex[LS_SHA256_HEX_BYTES] = "", wanted[LS_SHA256_HEX_BYTES] = "";
    LS_TRY(read_manifest(store, arena, step, &manifest, NULL));
    for (size_t i = 0; i < manifest.attachment_count; i++) {
        if (strcmp(manifest.attachments[i].name, name) == 0) {
            memcpy(wanted, manifest.attachments[i].sha256, sizeof wanted);
        }
    }
    ls_manifest_release(&manifest);
    if (!wanted[0]) {
        return ls_fail(LS_ERR_NOT_FOUND, "step %" PRIu64 " of %s has no %s", step, ls_blob_address(store),
                       name);
    }
    LS_TRY(
        ls_blob_get(store, arena, key_of(arena, step, name), LS_BLOB_WHOLE_BYTES_MAX, data_out, bytes_out));
    ls_sha256_hex(*data_out, *bytes_out, hex);
    return strcmp(hex, wanted) == 0 ? LS_OK
                                    : ls_fail(LS_ERR_DATA, "%s of step %" PRIu64 " of %s is damaged", name,
                                              step, ls_blob_address(store));
}

/* ---- removing ---- */

/* Removes all keys of a step, the manifest first: then it is no checkpoint any more. */
static ls_status remove_step(ls_blob_store *store, ls_arena *arena, uint64_t step)
{
    ls_blob_entry *keys = NULL;
    size_t count = 0;
    const char *below = key_of(arena, step, "");
    LS_TRY(ls_blob_remove(store, key_of(arena, step, LS_MANIFEST_NAME)));
    LS_TRY(ls_blob_list(store, arena, below, true, &keys, &count));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_blob_remove(store, keys[i].key));
    }
    return ls_blob_abandon(store, below);
}

static bool has_step(const ls_checkpoint_entry *entries, size_t count, uint64_t step)
{
    for (size_t i = 0; i < count; i++) {
        if (entries[i].step == step) {
            return true;
        }
    }
    return false;
}

/* Steps before `newest` without a manifest: what interrupted copies and removals left. */
static ls_status remove_leftovers(ls_blob_store *store, ls_arena *arena, const ls_checkpoint_entry *entries,
                                  size_t count, uint64_t newest)
{
    ls_blob_entry *keys = NULL;
    size_t key_count = 0;
    uint64_t step = 0, last = UINT64_MAX;
    LS_TRY(ls_blob_list(store, arena, "", true, &keys, &key_count));
    for (size_t i = 0; i < key_count; i++) {
        if (key_step(arena, keys[i].key, NULL, &step) && step != last && step < newest &&
            !has_step(entries, count, step)) {
            last = step;
            LS_TRY(remove_step(store, arena, step));
        }
    }
    return LS_OK;
}

/* Marks what stays. Entries are sorted by step. */
static void choose(const ls_checkpoint_entry *entries, const double *modified_s, size_t count,
                   const ls_mirror_rules *rules, unsigned *stays)
{
    const double now_s = ls_clock_wall_s();
    ls_checkpoint_prune_options by_number = rules->keep;
    by_number.bytes_max = 0;
    ls_checkpoint_reasons(entries, count, &by_number, stays);
    for (size_t i = 0; i < count; i++) {
        stays[i] = stays[i] || now_s - modified_s[i] <= rules->keep_for_s;
    }
    ls_checkpoint_fit(entries, count, &rules->keep, stays);
}

static ls_status prune(ls_blob_store *store, ls_arena *arena, const ls_mirror_rules *rules, size_t *removed)
{
    ls_checkpoint_entry *entries = NULL;
    double *modified_s = NULL;
    size_t count = 0;
    LS_TRY(ls_mirror_list(store, arena, &entries, &modified_s, &count));
    unsigned *stays = ls_arena_new(arena, unsigned, count);
    uint64_t newest = 0;
    choose(entries, modified_s, count, rules, stays);
    for (size_t i = 0; i < count; i++) {
        newest = entries[i].problem ? newest : entries[i].step;
        if (!stays[i]) {
            LS_TRY(remove_step(store, arena, entries[i].step));
            (*removed)++;
        }
    }
    return remove_leftovers(store, arena, entries, count, newest);
}

ls_status ls_mirror_prune(ls_blob_store *store, const ls_mirror_rules *rules, size_t *removed_out)
{
    ls_arena arena = {0};
    *removed_out = 0;
    const ls_status status = prune(store, &arena, rules, removed_out);
    ls_arena_release(&arena);
    return status;
}

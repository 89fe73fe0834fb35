// SPDX-License-Identifier: Apache-2.0
/* Garbage: what no version of a name needs. */
#include "storage/registry/registry.h"

#include "base/clock.h"
#include "base/text.h"
#include "storage/registry/serving.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define COLLECTING "collecting"

/* A collector gives up long before its mark counts as left behind by one that was killed. */
static const double writer_limit_s = 86400.0, collector_limit_s = 3600.0, collecting_limit_s = 1800.0,
                    wait_limit_s = 60.0;

/* ---- writers ---- */

/* Whether a collector's mark is there; one that was left behind is removed. */
static ls_status is_collecting(ls_blob_store *blobs, bool *is_collecting_out)
{
    ls_blob_entry mark;
    const ls_status status = ls_blob_stat(blobs, COLLECTING, &mark);
    *is_collecting_out = status == LS_OK;
    if (status == LS_ERR_NOT_FOUND) {
        ls_error_clear();
        return LS_OK;
    }
    LS_TRY(status);
    if (ls_clock_wall_s() - mark.modified_s > collector_limit_s) {
        *is_collecting_out = false;
        return ls_blob_remove(blobs, COLLECTING);
    }
    return LS_OK;
}

static const char *host_name(ls_arena *arena)
{
    return strchr(ls_registry_who(arena), '@') + 1;
}

const char *ls_registry_mark(ls_arena *arena)
{
    uint64_t number = 0;
    (void)!getrandom(&number, sizeof number, 0);
    return ls_arena_printf(arena, "%016" PRIx64 "-%ld-%s", number, (long)getpid(), host_name(arena));
}

bool ls_registry_mark_has_ended(ls_arena *arena, const char *mark)
{
    char *rest = NULL;
    const char *process = strchr(mark, '-');
    const long pid = process ? strtol(process + 1, &rest, 10) : 0;
    return pid > 0 && *rest == '-' && strcmp(rest + 1, host_name(arena)) == 0 && kill((pid_t)pid, 0) != 0 &&
           errno == ESRCH;
}

ls_status ls_registry_begin(ls_registry *registry, ls_arena *arena, const char **mark_out)
{
    ls_blob_store *blobs = ls_registry_blobs(registry);
    bool stored = false, busy = true;
    const char *mark = ls_arena_printf(arena, "writers/%s", ls_registry_mark(arena));
    LS_TRY(ls_blob_put_new(blobs, mark, "", 0, &stored));
    const double begun_s = ls_clock_boot_s();
    ls_status status = is_collecting(blobs, &busy);
    while (status == LS_OK && busy && ls_clock_boot_s() - begun_s < wait_limit_s) {
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        status = is_collecting(blobs, &busy);
    }
    if (status == LS_OK && busy) {
        status =
            ls_fail(LS_ERR_TIMEOUT,
                    "'registry gc' is removing files from %s (it began less than an hour ago): try again "
                    "when it has ended",
                    ls_registry_address(registry));
    }
    if (status != LS_OK) {
        const char *reason = ls_arena_strdup(arena, ls_error_text());
        (void)!ls_blob_remove(blobs, mark);
        return ls_fail(status, "%s", reason);
    }
    *mark_out = mark;
    return LS_OK;
}

ls_status ls_registry_check_mark(ls_registry *registry, const char *mark)
{
    ls_blob_entry entry;
    const ls_status status = ls_blob_stat(ls_registry_blobs(registry), mark, &entry);
    return status == LS_ERR_NOT_FOUND
               ? ls_fail(LS_ERR_FAILED, "%s was removed from %s while this command was adding: run it again",
                         mark, ls_registry_address(registry))
               : status;
}

ls_status ls_registry_end(ls_registry *registry, const char *mark)
{
    return ls_blob_remove(ls_registry_blobs(registry), mark);
}

/* ---- what is needed ---- */

typedef struct needed {
    ls_registry *registry;
    ls_arena *arena;
    bool retired;                     /* bytes of retired versions are not needed */
    json_t *entries, *files, *chunks; /* digests, as the keys of objects */
} needed;

/* False if it was there. */
static bool add_digest(json_t *set, const char *digest)
{
    const bool is_new = !json_object_get(set, digest);
    json_object_set_new(set, digest, json_true());
    return is_new;
}

static ls_status need_bytes(needed *n, const ls_registry_entry *entry)
{
    for (size_t i = 0; entry->stored && i < entry->file_count; i++) {
        ls_chunk_list list = {0};
        ls_arena arena = {0};
        const bool is_new = add_digest(n->files, entry->files[i].sha256);
        ls_status status = LS_OK;
        if (is_new) {
            status = ls_chunks_list(ls_registry_chunks(n->registry), &arena, &entry->files[i], &list);
        }
        for (size_t k = 0; k < list.count; k++) {
            add_digest(n->chunks, list.chunks[k].sha256);
        }
        ls_arena_release(&arena);
        LS_TRY(status);
    }
    return LS_OK;
}

static ls_status need_entry(needed *n, const ls_registry_found *found);

static ls_status need_parent(needed *n, const char *digest)
{
    ls_registry_found found;
    if (json_object_get(n->entries, digest)) {
        return LS_OK;
    }
    LS_TRY(ls_registry_load(n->registry, n->arena, digest, &found));
    const ls_status status = need_entry(n, &found);
    ls_registry_entry_release(&found.entry);
    return status;
}

/* An entry, its ancestors, and unless it is retired its bytes. */
static ls_status need_entry(needed *n, const ls_registry_found *found)
{
    const bool is_new = add_digest(n->entries, found->digest);
    if (!n->retired || found->stage != LS_STAGE_RETIRED) {
        LS_TRY(need_bytes(n, &found->entry));
    }
    for (size_t i = 0; is_new && i < found->entry.parent_count; i++) {
        LS_TRY(need_parent(n, found->entry.parents[i].digest));
    }
    return LS_OK;
}

static ls_status hear_needed(void *context, ls_registry_found *found, ls_status status)
{
    LS_TRY(status);
    return need_entry(context, found);
}

/* ---- removing ---- */

typedef struct sweep {
    needed *needed;
    bool dry_run;
    double begun_s;
    ls_registry_collected done;
} sweep;

/* The digest that a key ends with, without ".json"; NULL if it ends otherwise. */
static const char *digest_in(ls_arena *arena, const char *key)
{
    const char *last = strrchr(key, '/');
    const char *digest = ls_arena_strndup(arena, last ? last + 1 : key, LS_SHA256_HEX_BYTES - 1);
    return ls_hash_is_hex(digest, LS_SHA256_HEX_BYTES - 1) ? digest : NULL;
}

/* Removes blobs below `folder` whose digest is not in `kept`. */
static ls_status sweep_folder(sweep *s, const char *folder, const json_t *kept, uint64_t *count)
{
    ls_blob_store *blobs = ls_registry_blobs(s->needed->registry);
    ls_blob_entry *entries = NULL;
    size_t total = 0;
    LS_TRY(ls_blob_list(blobs, s->needed->arena, folder, true, &entries, &total));
    for (size_t i = 0; i < total; i++) {
        const char *digest = digest_in(s->needed->arena, entries[i].key);
        if (!digest || json_object_get(kept, digest)) {
            continue;
        }
        if (ls_clock_boot_s() - s->begun_s > collecting_limit_s) {
            return ls_fail(LS_ERR_TIMEOUT, "collecting took longer than half an hour; run it again to go on");
        }
        if (!s->dry_run) {
            LS_TRY(ls_blob_remove(blobs, entries[i].key));
        }
        s->done.bytes += entries[i].bytes;
        (*count)++;
    }
    return LS_OK;
}

/* Removes notes of servers that are gone (storage/registry/serving.h). */
static ls_status sweep_serving(sweep *s)
{
    ls_blob_store *blobs = ls_registry_blobs(s->needed->registry);
    ls_blob_entry *notes = NULL;
    size_t count = 0;
    LS_TRY(ls_blob_list(blobs, s->needed->arena, "serving/", true, &notes, &count));
    for (size_t i = 0; !s->dry_run && i < count; i++) {
        if (!ls_serving_is_fresh(s->needed->arena, &notes[i])) {
            LS_TRY(ls_blob_remove(blobs, notes[i].key));
        }
    }
    return LS_OK;
}

static ls_status sweep_all(sweep *s)
{
    uint64_t marks = 0;
    LS_TRY(sweep_folder(s, "entries/", s->needed->entries, &s->done.entries));
    LS_TRY(sweep_folder(s, "children/", s->needed->entries, &marks));
    LS_TRY(sweep_folder(s, "places/", s->needed->entries, &marks));
    LS_TRY(sweep_folder(s, "files/", s->needed->files, &s->done.files));
    LS_TRY(sweep_folder(s, "chunks/", s->needed->chunks, &s->done.chunks));
    LS_TRY(sweep_serving(s));
    return s->dry_run ? LS_OK : ls_blob_abandon(ls_registry_blobs(s->needed->registry), "");
}

static ls_status check_writers(ls_registry *registry, ls_arena *arena)
{
    ls_blob_entry *writers = NULL;
    size_t count = 0;
    ls_blob_store *blobs = ls_registry_blobs(registry);
    LS_TRY(ls_blob_list(blobs, arena, "writers/", true, &writers, &count));
    for (size_t i = 0; i < count; i++) {
        const double age_s = ls_clock_wall_s() - writers[i].modified_s;
        if (age_s < writer_limit_s && !ls_registry_mark_has_ended(arena, writers[i].key)) {
            return ls_fail(
                LS_ERR_FAILED,
                "a writer has been adding to %s for %s, and nothing was removed: try again when it "
                "has ended. If it was killed, remove %s",
                ls_registry_address(registry), ls_duration_of(age_s > 0 ? age_s : 0).text, writers[i].key);
        }
        LS_TRY(ls_blob_remove(blobs, writers[i].key));
    }
    return LS_OK;
}

static ls_status collect(ls_registry *registry, ls_arena *arena, bool retired, bool dry_run,
                         ls_registry_collected *collected_out)
{
    needed n = {.registry = registry,
                .arena = arena,
                .retired = retired,
                .entries = json_object(),
                .files = json_object(),
                .chunks = json_object()};
    sweep s = {.needed = &n, .dry_run = dry_run, .begun_s = ls_clock_boot_s()};
    ls_status status = dry_run ? LS_OK : check_writers(registry, arena);
    status = status == LS_OK ? ls_registry_each(registry, arena, NULL, hear_needed, &n) : status;
    status = status == LS_OK ? sweep_all(&s) : status;
    json_decref(n.entries);
    json_decref(n.files);
    json_decref(n.chunks);
    *collected_out = s.done;
    return status;
}

ls_status ls_registry_collect(ls_registry *registry, ls_arena *arena, bool retired, bool dry_run,
                              ls_registry_collected *collected_out)
{
    ls_blob_store *blobs = ls_registry_blobs(registry);
    bool stored = false, busy = false;
    const char *who = ls_registry_who(arena);
    *collected_out = (ls_registry_collected){0};
    if (dry_run) {
        return collect(registry, arena, retired, true, collected_out);
    }
    LS_TRY(is_collecting(blobs, &busy));
    LS_TRY(ls_blob_put_new(blobs, COLLECTING, who, strlen(who), &stored));
    if (!stored) {
        return ls_fail(LS_ERR_FAILED,
                       "another process runs 'registry gc' in %s; if it was killed, remove %s/%s",
                       ls_registry_address(registry), ls_registry_address(registry), COLLECTING);
    }
    const ls_status status = collect(registry, arena, retired, false, collected_out);
    const char *reason = ls_arena_strdup(arena, ls_error_text());
    const ls_status ended = ls_blob_remove(blobs, COLLECTING);
    return status == LS_OK ? ended : ls_fail(status, "%s", reason);
}

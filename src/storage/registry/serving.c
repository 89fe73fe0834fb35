// SPDX-License-Identifier: Apache-2.0
#include "storage/registry/serving.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOTE_BYTES_MAX = 4096, RENEW_S = 60 };

/* An S3 server that does not answer holds up the end of a server no longer than this. */
static const double patience_s = 5.0;

struct ls_serving {
    ls_arena arena;
    const char *path, *address;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool ends;
};

/* ---- noting ---- */

/* Waits for the next renewal; false at the end. */
static bool wait_to_renew(ls_serving *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RENEW_S;
    pthread_mutex_lock(&s->lock);
    int error = 0;
    while (!s->ends && error == 0) {
        error = pthread_cond_clockwait(&s->wake, &s->lock, CLOCK_MONOTONIC, &until);
    }
    const bool goes_on = !s->ends;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

static ls_status renew_until_end(ls_serving *s, ls_registry *registry)
{
    ls_registry_found found;
    if (!ls_registry_find_path(registry, &s->arena, s->path, false, &found)) {
        return LS_OK;
    }
    ls_registry_entry_release(&found.entry);
    const char *who = ls_registry_who(&s->arena);
    const char *key = ls_arena_printf(&s->arena, "serving/%s/%s", found.digest, ls_registry_mark(&s->arena));
    json_t *note =
        json_pack("{s:s, s:s, s:f}", "address", s->address, "who", who, "since", ls_clock_wall_s());
    char *text = json_dumps(note, JSON_COMPACT);
    json_decref(note);
    LS_ASSERT(text && "an address is ASCII");
    ls_status status = LS_OK;
    do {
        /* One that fails now may succeed a minute later: the note then counts again. */
        ls_error_clear();
        status = ls_blob_put(ls_registry_blobs(registry), key, text, strlen(text));
    } while (wait_to_renew(s));
    free(text);
    const ls_status removed = ls_blob_remove(ls_registry_blobs(registry), key);
    return status == LS_OK ? removed : status;
}

static void *note_thread(void *context)
{
    ls_serving *s = context;
    ls_registry *registry = NULL;
    ls_status status = ls_registry_open(NULL, &(ls_blob_options){.patience_s = patience_s}, &registry);
    status = status == LS_OK ? renew_until_end(s, registry) : status;
    if (status != LS_OK) {
        ls_log_warn("the registry is not told that %s serves: %s", s->path, ls_error_text());
    }
    ls_registry_close(registry);
    return NULL;
}

ls_serving *ls_serving_begin(const char *path, const char *address)
{
    if (ls_registry_is_off()) {
        return NULL;
    }
    ls_serving *s = calloc(1, sizeof *s);
    LS_ASSERT(s && "not enough memory for a note");
    s->path = ls_arena_strdup(&s->arena, path);
    s->address = ls_arena_strdup(&s->arena, address);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    /* The process's signals are for its main thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&s->thread, NULL, note_thread, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    LS_ASSERT(error == 0 && "no thread for a note");
    return s;
}

void ls_serving_end(ls_serving *s)
{
    if (s) {
        pthread_mutex_lock(&s->lock);
        s->ends = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
        ls_arena_release(&s->arena);
        free(s);
    }
}

/* ---- reading ---- */

static ls_status read_note(ls_blob_store *blobs, ls_arena *arena, const char *key, ls_served *served)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *note = NULL;
    const char *address = NULL, *who = NULL;
    LS_TRY(ls_blob_get(blobs, arena, key, NOTE_BYTES_MAX, &text, &bytes));
    LS_TRY(ls_json_parse(text, bytes, key, &note));
    ls_status status = ls_json_get_string(note, key, "address", "", &address);
    status = status == LS_OK ? ls_json_get_string(note, key, "who", "", &who) : status;
    status = status == LS_OK ? ls_json_get_f64(note, key, "since", 0.0, 1e12, 0.0, &served->since_s) : status;
    if (status == LS_OK) {
        served->address = ls_arena_strdup(arena, address);
        served->who = ls_arena_strdup(arena, who);
    }
    json_decref(note);
    return status;
}

bool ls_serving_is_fresh(ls_arena *arena, const ls_blob_entry *note)
{
    return ls_clock_wall_s() - note->modified_s < LS_SERVING_FRESH_S &&
           !ls_registry_mark_has_ended(arena, note->key);
}

ls_status ls_serving_list(ls_registry *registry, ls_arena *arena, const char *digest,
                          const ls_served **served_out, size_t *count_out)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0, kept = 0;
    ls_blob_store *blobs = ls_registry_blobs(registry);
    LS_TRY(ls_blob_list(blobs, arena, ls_arena_printf(arena, "serving/%s/", digest), true, &entries, &count));
    ls_served *served = ls_arena_new(arena, ls_served, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (ls_serving_is_fresh(arena, &entries[i]) &&
            read_note(blobs, arena, entries[i].key, &served[kept]) == LS_OK) {
            kept++;
        }
    }
    ls_error_clear();
    *served_out = served;
    *count_out = kept;
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* The registry as a page, and lineages as pictures. A registry may be in S3 or on a slow disk, so a
 * thread reads it for each request, and the loop looks whether it has finished. Root and the
 * daemon's owner see all of it, other users what they added. */
#include "orchestration/api/api_internal.h"

#include "base/assert.h"
#include "orchestration/page/page.h"
#include "storage/registry/lineage.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READINGS_MAX = 4, LOOK_NS = 10 * 1000 * 1000 };

/* Of the registry; a picture or page that takes longer is refused. */
static const double patience_s = 10.0;

static _Atomic int readings; /* threads that run */

/* A page or picture in the making; owned by the exchange and by the thread. */
struct ls_api_reading {
    _Atomic int owners;
    _Atomic bool is_done;
    _Atomic uint32_t is_given_up;
    char entry[LS_SHA256_HEX_BYTES]; /* its lineage; "": the page of all */
    char user[LS_USER_NAME_BYTES];   /* whose entries are shown; "": those of all */
    bool has_queue;
    ls_status status;
    char *error;
    ls_text text;
};

static void drop(struct ls_api_reading *r)
{
    if (atomic_fetch_sub(&r->owners, 1) == 1) {
        ls_text_release(&r->text);
        free(r->error);
        free(r);
    }
}

/* ---- in the thread ---- */

typedef struct gathered {
    const char *user;
    ls_registry *registry;
    ls_arena arena;
    json_t *rows;
} gathered;

/* An entry tells who added it as USER@HOST. */
static bool is_shown(const char *user, const ls_registry_entry *entry)
{
    const size_t bytes = strlen(user);
    return bytes == 0 || (strncmp(entry->who, user, bytes) == 0 && entry->who[bytes] == '@');
}

static ls_status gather(void *context, ls_registry_found *found, ls_status status)
{
    gathered *g = context;
    json_t *row = NULL;
    LS_TRY(status);
    if (!is_shown(g->user, &found->entry)) {
        return LS_OK;
    }
    LS_TRY(ls_registry_row(g->registry, &g->arena, found, &row));
    json_array_append_new(g->rows, row);
    return LS_OK;
}

static void hide_others(const char *user, ls_lineage *lineage)
{
    for (size_t i = 0; i < lineage->node_count; i++) {
        ls_lineage_node *node = &lineage->nodes[i];
        if (!node->is_missing && !is_shown(user, &node->found.entry)) {
            node->is_hidden = true;
            node->found.version = 0;
        }
    }
}

static ls_status draw(struct ls_api_reading *r, ls_registry *registry)
{
    ls_arena arena = {0};
    ls_lineage lineage;
    ls_status status = ls_lineage_find(registry, &arena, r->entry, &lineage);
    if (status == LS_OK) {
        hide_others(r->user, &lineage);
    }
    if (status == LS_OK && (lineage.nodes[0].is_missing || lineage.nodes[0].is_hidden)) {
        status = ls_fail(LS_ERR_NOT_FOUND, "%s has no entry %.64s", ls_registry_address(registry), r->entry);
    } else if (status == LS_OK) {
        ls_lineage_draw(&lineage, &r->text);
    }
    if (status == LS_OK || status == LS_ERR_NOT_FOUND) {
        ls_lineage_release(&lineage);
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status list(struct ls_api_reading *r, ls_registry *registry)
{
    gathered g = {.user = r->user, .registry = registry, .rows = json_array()};
    const ls_status status = ls_registry_each(registry, &g.arena, NULL, gather, &g);
    if (status == LS_OK) {
        ls_page_models(g.rows, ls_registry_address(registry), r->user, r->has_queue, &r->text);
    }
    json_decref(g.rows);
    ls_arena_release(&g.arena);
    return status;
}

static void *read_registry(void *context)
{
    struct ls_api_reading *r = context;
    ls_registry *registry = NULL;
    const ls_blob_options options = {.patience_s = patience_s, .cancel = &r->is_given_up};
    ls_status status = ls_registry_open(NULL, &options, &registry);
    if (status == LS_OK) {
        status = r->entry[0] ? draw(r, registry) : list(r, registry);
    }
    r->status = status;
    r->error = status == LS_OK ? NULL : strdup(ls_error_text());
    ls_registry_close(registry);
    atomic_fetch_sub(&readings, 1);
    atomic_store(&r->is_done, true);
    drop(r);
    return NULL;
}

/* ---- in the loop ---- */

static void look(void *context)
{
    ls_api_exchange *exchange = context;
    struct ls_api_reading *r = exchange->reading;
    exchange->again = 0;
    if (!atomic_load(&r->is_done)) {
        exchange->again = ls_env_timer_set(exchange->api->env, LOOK_NS, look, exchange);
    } else if (r->status == LS_OK) {
        ls_api_exchange_text(exchange, 200, r->entry[0] ? "image/svg+xml" : "text/html; charset=utf-8",
                             &r->text);
    } else {
        const ls_status status = ls_fail(r->status, "%s", r->error ? r->error : "");
        ls_api_exchange_error(exchange, status == LS_ERR_NOT_FOUND ? 404 : 500, status);
    }
}

void ls_api_models(ls_api_exchange *exchange)
{
    pthread_t thread;
    sigset_t all, before;
    const char *entry = json_string_value(json_object_get(exchange->arguments, "entry"));
    if (entry && !ls_hash_is_hex(entry, LS_SHA256_HEX_BYTES - 1)) {
        ls_api_exchange_error(
            exchange, 400,
            ls_fail(LS_ERR_INVALID, "entry is '%.80s': give the 64 digits of an entry", entry));
        return;
    }
    if (atomic_load(&readings) >= READINGS_MAX) {
        ls_api_exchange_error(
            exchange, 503,
            ls_fail(LS_ERR_FAILED, "%d requests read the registry already: try again later", READINGS_MAX));
        return;
    }
    struct ls_api_reading *r = calloc(1, sizeof *r);
    LS_ASSERT(r && "not enough memory for a page");
    r->owners = 2;
    r->has_queue = !exchange->api->calls.has_names;
    snprintf(r->user, sizeof r->user, "%s", exchange->caller.is_admin ? "" : exchange->user);
    memcpy(r->entry, entry ? entry : "", entry ? sizeof r->entry : 1);
    exchange->reading = r;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread, NULL, read_registry, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        drop(r); /* the thread's part of it */
        ls_api_exchange_error(exchange, 500, ls_fail_errno(error, "can't start a thread"));
        return;
    }
    pthread_detach(thread);
    atomic_fetch_add(&readings, 1);
    exchange->again = ls_env_timer_set(exchange->api->env, LOOK_NS, look, exchange);
}

void ls_api_models_forget(struct ls_api_reading *reading)
{
    if (reading) {
        atomic_store(&reading->is_given_up, 1);
        drop(reading);
    }
}

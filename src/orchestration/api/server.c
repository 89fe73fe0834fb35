// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/server.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestration/api/api_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNS_BYTES (UINT64_C(2) << 30) /* of memory, for metrics of runs */

/* Once a second. */
static void beat(void *context)
{
    ls_api *api = context;
    ls_api_wait_look(api, 0);
    ls_api_streams_beat(api->streams);
}

/* For people and browsers. A full disk must not keep a daemon from starting: it is needed to cancel
 * the job that filled it. */
static void write_address(const ls_api *api)
{
    if (!api->home) {
        return;
    }
    ls_arena arena = {0};
    ls_text text = {0};
    ls_text_printf(&text, "%s\n", ls_api_address(api));
    const ls_status status =
        ls_file_write_atomic(ls_path_join(&arena, api->home, "address"), ls_text_string(&text), text.bytes);
    if (status != LS_OK) {
        ls_log_warn("the address of the page, %s, is in no file: %s", ls_api_address(api), ls_error_text());
        ls_error_clear();
    }
    ls_text_release(&text);
    ls_arena_release(&arena);
}

static const char *tls_settings(ls_arena *arena, const char *home)
{
    return home ? ls_arena_printf(arena, "tls.certificate and tls.key of %s/config.yaml", home)
                : "which only 'lockstep up' has";
}

ls_status ls_api_check(const ls_api_settings *settings)
{
    ls_arena arena = {0};
    const bool is_auto = strcmp(settings->listen, "auto") == 0;
    const ls_status status = ls_http_server_check(&(ls_http_settings){
        .listen = is_auto ? "127.0.0.1:0" : settings->listen,
        .certificate = settings->certificate,
        .key = settings->key,
        .tls_settings = tls_settings(&arena, settings->home),
    });
    ls_arena_release(&arena);
    return status;
}

/* The usual port, one of those after it, or any. */
static ls_status listen_at_free_port(ls_api *api, ls_http_settings *http, int port)
{
    enum { TRIED = 16 };
    for (int i = 0; i < TRIED; i++) {
        char listen[32];
        snprintf(listen, sizeof listen, "127.0.0.1:%d", port + i);
        http->listen = listen;
        if (ls_http_server_create(http, &api->http) == LS_OK) {
            return LS_OK;
        }
        if (i == 0) {
            ls_log_warn("%s; another port is used", ls_error_text());
        }
        ls_error_clear();
    }
    http->listen = "127.0.0.1:0";
    return ls_http_server_create(http, &api->http);
}

static ls_status open_server(ls_api *api, const ls_api_settings *settings, ls_arena *arena)
{
    if (api->home) {
        LS_TRY(ls_api_tokens_open(api->home, &api->tokens));
    }
    ls_http_settings http = {
        .env = settings->env,
        .folder = api->home,
        .all_users = settings->all_users,
        .shared_folder = settings->shared,
        .listen = settings->listen,
        .find_token = api->home ? ls_api_tokens_find : NULL,
        .tokens = api->tokens,
        .admits_owner = !settings->owner_needs_token,
        .admits_users = settings->all_users && !settings->users_need_token,
        .body_bytes_max = LS_API_BODY_BYTES_MAX,
        .request_s = settings->request_s,
        .certificate = settings->certificate,
        .key = settings->key,
        .tls_settings = tls_settings(arena, api->home),
        .handler = {.context = api,
                    .begin = ls_api_exchange_begin,
                    .handle = ls_api_exchange_handle,
                    .hung_up = ls_api_exchange_hung_up,
                    .stop = ls_api_exchange_stop,
                    .end = ls_api_exchange_end,
                    .beat = beat},
    };
    if (strcmp(settings->listen, "auto") == 0) {
        LS_TRY(listen_at_free_port(api, &http, api->home ? LS_API_PORT : LS_API_VIEW_PORT));
    } else {
        LS_TRY(ls_http_server_create(&http, &api->http));
    }
    write_address(api);
    return LS_OK;
}

ls_status ls_api_create(const ls_api_settings *settings, ls_api **api_out)
{
    ls_api *api = calloc(1, sizeof *api);
    LS_ASSERT(api && "not enough memory for the API");
    api->env = settings->env;
    api->calls = settings->calls;
    api->files = settings->files;
    api->home = settings->home ? strdup(settings->home) : NULL;
    api->shared = settings->shared ? strdup(settings->shared) : NULL;
    LS_ASSERT((api->home || !settings->home) && "not enough memory for the API");
    api->owner_uid = (uint32_t)geteuid();
    api->owner_gid = (uint32_t)getegid();
    api->streams = ls_api_streams_create(api);
    api->runs = ls_api_runs_create(settings->metrics, RUNS_BYTES);
    api->heads = ls_api_heads_create(api);
    api->names = ls_api_names_create(api);
    ls_arena arena = {0};
    const ls_status status = open_server(api, settings, &arena);
    ls_arena_release(&arena);
    if (status != LS_OK) {
        ls_api_destroy(api);
        return status;
    }
    api->is_open = true;
    *api_out = api;
    return LS_OK;
}

void ls_api_destroy(ls_api *api)
{
    if (!api) {
        return;
    }
    ls_api_streams_close(api->streams);
    ls_http_server_destroy(api->http);
    LS_ASSERT(!api->exchanges);
    ls_arena arena = {0};
    if (api->is_open && api->home) { /* both files mean that a daemon answers */
        unlink(ls_path_join(&arena, api->home, "socket"));
        unlink(ls_path_join(&arena, api->home, "address"));
        if (api->shared) {
            unlink(ls_path_join(&arena, api->shared, "socket"));
        }
    }
    ls_arena_release(&arena);
    ls_api_streams_destroy(api->streams);
    ls_api_runs_destroy(api->runs);
    ls_api_heads_destroy(api->heads);
    ls_api_names_destroy(api->names);
    ls_api_tokens_close(api->tokens);
    free(api->shared);
    free(api->home);
    free(api);
}

const char *ls_api_address(const ls_api *api)
{
    return api->http ? ls_http_server_address(api->http) : "";
}

void ls_api_tell(ls_api *api, const ls_transition *transition, const ls_job *job)
{
    ls_api_counters_tell(&api->counters, transition, job);
    ls_api_streams_tell(api->streams, transition, job);
    if (ls_job_state_is_final(transition->to)) {
        ls_api_wait_look(api, transition->job);
    }
}

void ls_api_took(ls_api *api, double turn_s)
{
    ls_api_counters_turn(&api->counters, turn_s);
}

// SPDX-License-Identifier: Apache-2.0
#include "env/http/http_server.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "env/http/http_internal.h"
#include "env/http/http_listen.h"
#include "env/http/http_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

/* ---- the library's loop inside ours ---- */

/*
 * The library has its own epoll descriptor, which our loop watches: when it becomes readable, or
 * the library's own timeout is over, run_listener lets the library do what is due, without waiting.
 */
static void run_listener(void *context);

static void timer_fired(void *context)
{
    ls_http_listener *l = context;
    l->timer = 0;
    run_listener(l);
}

static void set_timer(ls_http_listener *l, uint64_t delay_ns)
{
    if (l->timer) {
        ls_env_timer_cancel(l->server->env, l->timer);
    }
    l->timer = ls_env_timer_set(l->server->env, delay_ns, timer_fired, l);
}

static void run_listener(void *context)
{
    ls_http_listener *l = context;
    const ls_microhttpd *mhd = l->server->mhd;
    mhd->run(l->daemon);
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    if (mhd->get_timeout(l->daemon, &wait_ms) == MHD_YES) {
        set_timer(l, wait_ms * NS_PER_MS);
    }
}

void ls_http_listener_resume(ls_http_listener *l, struct MHD_Connection *library)
{
    l->server->mhd->resume_connection(library);
    set_timer(l, 0);
}

/* ---- connections ---- */

static void shut(const ls_http_connection *c)
{
    shutdown(c->fd, SHUT_RDWR); /* the library notices the end, and closes */
}

/* The library does not look at a suspended connection, so that a client that went away is only
 * noticed by looking here. Reading would not do: the farewell of TLS is still unread then. */
static bool is_hung_up(const ls_http_connection *c)
{
    struct pollfd look = {.fd = c->fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0;
}

static size_t count_of_user(const ls_http_server *server, uint32_t uid)
{
    size_t count = 0;
    for (const ls_http_connection *c = server->connections; c; c = c->next) {
        count += c->is_peer_known && c->uid == uid;
    }
    return count;
}

static ls_http_connection *open_connection(ls_http_listener *l, struct MHD_Connection *library)
{
    ls_http_server *server = l->server;
    const union MHD_ConnectionInfo *info =
        server->mhd->get_connection_info(library, MHD_CONNECTION_INFO_CONNECTION_FD);
    ls_http_connection *c = calloc(1, sizeof *c);
    LS_ASSERT(c && info && "not enough memory for a connection");
    *c = (ls_http_connection){.next = server->connections,
                              .here = &server->connections,
                              .listener = l,
                              .fd = info->connect_fd,
                              .deadline_ns = ls_env_now_ns(server->env) + server->request_ns};
    c->is_peer_known = l->is_unix ? ls_http_peer_of_unix(c->fd, &c->uid, &c->gid)
                                  : server->guard.is_loopback && ls_http_peer_of_tcp(c->fd, &c->uid);
    if (server->connections) {
        server->connections->here = &c->next;
    }
    server->connections = c;
    const size_t count =
        c->is_peer_known && c->uid != server->guard.owner_uid ? count_of_user(server, c->uid) : 0;
    c->is_beyond_limit = count > LS_HTTP_CONNECTIONS_OF_USER_MAX;
    if (count > LS_HTTP_CONNECTIONS_OF_USER_MAX + LS_HTTP_CONNECTIONS_TOLD) {
        shut(c); /* what is left is for others */
    }
    return c;
}

static void close_connection(ls_http_connection *c)
{
    *c->here = c->next;
    if (c->next) {
        c->next->here = c->here;
    }
    free(c);
}

static void connection_changed(void *context, struct MHD_Connection *library, void **socket_context,
                               enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = open_connection(context, library);
    } else if (*socket_context) {
        close_connection(*socket_context);
        *socket_context = NULL;
    }
}

/* ---- once a second ---- */

static void look_at_sleeper(const ls_http_connection *c)
{
    ls_http_exchange *r = c->request;
    if (r && r->is_asleep && is_hung_up(c)) {
        r->server->handler.hung_up(r->state);
    } else if (r && r->stream && r->stream->is_asleep && is_hung_up(c)) {
        ls_http_stream_end(r->stream);
    }
}

/* Clients that take too long are disconnected. A timer for each connection would be exact, and is
 * not needed. */
static void beat(void *context)
{
    ls_http_server *server = context;
    const uint64_t now_ns = ls_env_now_ns(server->env);
    for (const ls_http_connection *c = server->connections; c; c = c->next) {
        if (c->deadline_ns != 0 && c->deadline_ns < now_ns) {
            shut(c);
        }
        look_at_sleeper(c);
    }
    server->handler.beat(server->handler.context);
    /* At its limit of connections the library stops listening, and begins again only when it runs
     * after one of them was closed: that no event of its own announces. */
    for (size_t i = 0; i < LS_HTTP_LISTENERS; i++) {
        if (server->listeners[i].daemon) {
            run_listener(&server->listeners[i]);
        }
    }
    server->beat = ls_env_timer_set(server->env, LS_HTTP_NS_PER_S, beat, server);
}

/* ---- listeners ---- */

static void log_library(void *context, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void log_library(void *context, const char *format, va_list args)
{
    (void)context;
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    ls_log_debug("http: %s", text); /* mistakes of clients: of interest only to a developer */
}

/* Takes over fd. */
static ls_status fail_pair(void)
{
    return ls_fail(LS_ERR_INVALID, "the certificate or its key can't be used for TLS");
}

static ls_status start_listener(ls_http_listener *l, int fd, const char *certificate, const char *key)
{
    const ls_http_server *server = l->server;
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_library, NULL},
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, LS_HTTP_CONNECTIONS_MAX, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, LS_HTTP_HEADER_BYTES_MAX, NULL},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)ls_http_exchange_began, l},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)ls_http_exchange_ended, l},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)connection_changed, l},
        {certificate ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, (void *)(uintptr_t)certificate},
        {certificate ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, (void *)(uintptr_t)key},
        {MHD_OPTION_END, 0, NULL},
    };
    l->daemon = server->mhd->start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (certificate ? MHD_USE_TLS : 0u), 0,
        NULL, NULL, ls_http_exchange_continues, l, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (!l->daemon) {
        close(fd);
        return certificate
                   ? fail_pair()
                   : ls_fail(LS_ERR_IO, "cannot start the HTTP server: libmicrohttpd reported an error");
    }
    const union MHD_DaemonInfo *info = server->mhd->get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    const int error =
        info ? ls_env_real_watch(server->env, info->epoll_fd, run_listener, l, &l->watch) : -EINVAL;
    return error ? ls_fail_errno(-error, "can't wait for requests to the HTTP server") : LS_OK;
}

static void stop_listener(ls_http_listener *l)
{
    if (!l->daemon) {
        return;
    }
    if (l->watch) {
        ls_env_real_unwatch(l->server->env, l->watch);
    }
    l->server->mhd->stop_daemon(l->daemon);
    if (l->timer) {
        ls_env_timer_cancel(l->server->env, l->timer);
    }
    l->daemon = NULL;
}

static ls_status open_unix(ls_http_server *server, const ls_http_settings *settings)
{
    const char *folders[] = {settings->folder, settings->shared_folder};
    for (size_t i = 0; i < 2 && folders[i]; i++) {
        int fd = -1;
        LS_TRY(ls_http_listen_unix(folders[i], settings->all_users, &fd));
        LS_TRY(start_listener(&server->listeners[i], fd, NULL, NULL));
    }
    return LS_OK;
}

/* The names by which a browser may call the server, and its address. */
static void name_hosts(ls_http_server *server, const char *host, unsigned port)
{
    static const char *const always[] = {"127.0.0.1", "localhost", "[::1]"};
    char text[96];
    size_t count = 0;
    snprintf(text, sizeof text, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    server->host_texts[count++] = strdup(text);
    for (size_t i = 0; server->guard.is_loopback && i < sizeof always / sizeof always[0]; i++) {
        snprintf(text, sizeof text, "%s:%u", always[i], port);
        server->host_texts[count++] = strdup(text);
    }
    for (size_t i = 0; i < count; i++) {
        LS_ASSERT(server->host_texts[i] && "not enough memory for a name");
        server->hosts[i] = server->host_texts[i];
    }
    LS_ASSERT(asprintf(&server->address, "%s://%s", server->guard.scheme, server->hosts[0]) > 0);
}

static ls_status read_pem(ls_arena *arena, const char *path, char **text_out)
{
    size_t bytes = 0;
    return ls_file_read(arena, path, 1 << 20, text_out, &bytes);
}

/* Both stay NULL without TLS. */
static ls_status read_tls(ls_arena *arena, const ls_http_settings *settings, char **certificate_out,
                          char **key_out)
{
    const char *certificate = settings->certificate, *key = settings->key;
    if (!certificate && !key) {
        return LS_OK;
    }
    if (!certificate || !key) {
        return ls_fail(LS_ERR_INVALID, "TLS needs a certificate and its key (%s), and only the %s is set",
                       settings->tls_settings, certificate ? "certificate" : "key");
    }
    LS_TRY(read_pem(arena, certificate, certificate_out));
    return read_pem(arena, key, key_out);
}

static ls_status open_tcp_with(ls_http_server *server, const ls_http_settings *settings, ls_arena *arena)
{
    char *certificate = NULL, *key = NULL;
    int fd = -1;
    ls_http_address address;
    LS_TRY(read_tls(arena, settings, &certificate, &key));
    LS_TRY(ls_http_address_parse(settings->listen, &address));
    LS_TRY(ls_http_listen_tcp(settings->listen, certificate && key, settings->tls_settings, &fd,
                              &server->guard.is_loopback));
    server->guard.scheme = certificate ? "https" : "http";
    name_hosts(server, address.host, ls_http_bound_port(fd));
    return start_listener(&server->listeners[LS_HTTP_LISTENERS - 1], fd, certificate, key);
}

static ls_status open_tcp(ls_http_server *server, const ls_http_settings *settings)
{
    ls_arena arena = {0};
    const ls_status status = open_tcp_with(server, settings, &arena);
    ls_arena_release(&arena);
    return status;
}

/* Whether the library accepts the pair: tried with a server that listens nowhere. */
static ls_status check_pair(const char *certificate, const char *key)
{
    const ls_microhttpd *library = NULL;
    LS_TRY(ls_microhttpd_load(&library));
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_library, NULL},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key},
        {MHD_OPTION_END, 0, NULL},
    };
    if (!certificate) {
        return LS_OK;
    }
    struct MHD_Daemon *daemon =
        library->start_daemon(MHD_USE_TLS | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                              ls_http_exchange_continues, NULL, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (!daemon) {
        return fail_pair();
    }
    library->stop_daemon(daemon);
    return LS_OK;
}

ls_status ls_http_server_check(const ls_http_settings *settings)
{
    ls_arena arena = {0};
    char *certificate = NULL, *key = NULL;
    ls_status status = LS_OK;
    if (settings->listen[0]) {
        status = read_tls(&arena, settings, &certificate, &key);
        status = status != LS_OK
                     ? status
                     : ls_http_listen_check(settings->listen, certificate && key, settings->tls_settings);
    }
    status = status != LS_OK ? status : check_pair(certificate, key);
    ls_arena_release(&arena);
    return status;
}

/* ---- life ---- */

static ls_status open_all(ls_http_server *server, const ls_http_settings *settings)
{
    LS_TRY(ls_microhttpd_load(&server->mhd));
    LS_TRY(open_unix(server, settings));
    return settings->listen[0] ? open_tcp(server, settings) : LS_OK;
}

ls_status ls_http_server_create(const ls_http_settings *settings, ls_http_server **server_out)
{
    ls_http_server *server = calloc(1, sizeof *server);
    LS_ASSERT(server && "not enough memory for an HTTP server");
    const double request_s = settings->request_s > 0 ? settings->request_s : LS_HTTP_REQUEST_S;
    *server = (ls_http_server){
        .env = settings->env,
        .handler = settings->handler,
        .guard = {.owner_uid = (uint32_t)geteuid(),
                  .hosts = server->hosts,
                  .scheme = "http",
                  .find_token = settings->find_token,
                  .tokens = settings->tokens,
                  .admits_owner = settings->admits_owner,
                  .admits_users = settings->admits_users},
        .body_bytes_max = settings->body_bytes_max,
        .request_ns = (uint64_t)(1e9 * request_s),
    };
    for (size_t i = 0; i < LS_HTTP_LISTENERS; i++) {
        server->listeners[i] = (ls_http_listener){.server = server, .is_unix = i + 1 < LS_HTTP_LISTENERS};
    }
    const ls_status status = open_all(server, settings);
    if (status != LS_OK) {
        ls_http_server_destroy(server);
        return status;
    }
    server->beat = ls_env_timer_set(server->env, LS_HTTP_NS_PER_S, beat, server);
    *server_out = server;
    return LS_OK;
}

static void stop_sleepers(const ls_http_server *server)
{
    for (const ls_http_connection *c = server->connections; c; c = c->next) {
        if (c->request && c->request->is_asleep) {
            server->handler.stop(c->request->state);
        }
    }
}

/* Sends what is left to be sent. What sleeps is woken with an error, because the library can't stop
 * while a connection is suspended. */
static void drain(const ls_http_server *server)
{
    const uint64_t end_ns = ls_env_now_ns(server->env) + LS_HTTP_NS_PER_S;
    while (server->open_requests > 0 && ls_env_now_ns(server->env) < end_ns) {
        for (size_t i = 0; i < LS_HTTP_LISTENERS; i++) {
            if (server->listeners[i].daemon) {
                server->mhd->run(server->listeners[i].daemon);
            }
        }
        stop_sleepers(server);
        usleep(1000);
    }
}

void ls_http_server_destroy(ls_http_server *server)
{
    if (!server) {
        return;
    }
    if (server->beat) {
        ls_env_timer_cancel(server->env, server->beat);
        drain(server);
    }
    for (size_t i = 0; i < LS_HTTP_LISTENERS; i++) {
        stop_listener(&server->listeners[i]);
    }
    LS_ASSERT(!server->connections && server->open_requests == 0);
    for (size_t i = 0; i < LS_HTTP_HOSTS_MAX; i++) {
        free(server->host_texts[i]);
    }
    free(server->address);
    free(server);
}

const char *ls_http_server_address(const ls_http_server *server)
{
    return server->address ? server->address : "";
}

// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/server.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestration/api/history.h"
#include "orchestration/api/internal.h"
#include "orchestration/api/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

/* ---- the library's loop inside ours ---- */

static void run_door(void *context);

static void fire_door(void *context)
{
    ls_api_door *door = context;
    door->timer = 0;
    run_door(door);
}

static void set_door_timer(ls_api_door *door, uint64_t delay_ns)
{
    ls_env *env = door->api->env;
    if (door->timer) {
        ls_env_timer_cancel(env, door->timer);
    }
    door->timer = ls_env_timer_set(env, delay_ns, fire_door, door);
}

static void run_door(void *context)
{
    ls_api_door *door = context;
    const ls_microhttpd *mhd = door->api->mhd;
    mhd->run(door->daemon);
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    if (mhd->get_timeout(door->daemon, &wait_ms) == MHD_YES) {
        set_door_timer(door, wait_ms * NS_PER_MS);
    }
}

void ls_api_door_kick(ls_api_door *door)
{
    set_door_timer(door, 0);
}

/* ---- connections ---- */

static void shut(const ls_api_link *link)
{
    shutdown(link->fd, SHUT_RDWR); /* the library sees the end, and closes */
}

bool ls_api_is_hung_up(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static size_t count_of_user(const ls_api *api, uint32_t uid)
{
    size_t count = 0;
    for (const ls_api_link *link = api->links; link; link = link->next) {
        count += link->is_peer_known && link->uid == uid;
    }
    return count;
}

static ls_api_link *open_link(ls_api_door *door, struct MHD_Connection *connection)
{
    ls_api *api = door->api;
    const union MHD_ConnectionInfo *info =
        api->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    ls_api_link *link = calloc(1, sizeof *link);
    LS_ASSERT(link && info && "out of memory for a connection");
    *link = (ls_api_link){.next = api->links,
                          .here = &api->links,
                          .door = door,
                          .fd = info->connect_fd,
                          .deadline_ns = ls_env_now_ns(api->env) + api->request_ns};
    link->is_peer_known = door->is_unix ? ls_api_peer_of_unix(link->fd, &link->uid, &link->gid)
                                        : api->guard.is_loopback && ls_api_peer_of_tcp(link->fd, &link->uid);
    if (api->links) {
        api->links->here = &link->next;
    }
    api->links = link;
    const bool is_foreign = !link->is_peer_known || link->uid != api->guard.owner_uid;
    if (is_foreign && link->is_peer_known && count_of_user(api, link->uid) > LS_API_CONNECTIONS_OF_USER_MAX) {
        shut(link); /* others want to get in, too */
    }
    return link;
}

static void close_link(ls_api_link *link)
{
    *link->here = link->next;
    if (link->next) {
        link->next->here = link->here;
    }
    free(link);
}

static void notice_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                              enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = open_link(context, connection);
    } else if (*socket_context) {
        close_link(*socket_context);
        *socket_context = NULL;
    }
}

/* Once a second: who takes too long is shut out. A timer per connection would be exact, and is not needed. */
static void sweep(void *context)
{
    ls_api *api = context;
    const uint64_t now_ns = ls_env_now_ns(api->env);
    for (ls_api_link *link = api->links; link; link = link->next) {
        if (link->deadline_ns != 0 && link->deadline_ns < now_ns) {
            shut(link);
        }
        if (link->exchange && link->exchange->waiting_here && ls_api_is_hung_up(link->fd)) {
            ls_api_wait_forget(link->exchange);
            ls_api_exchange_error(link->exchange, 408, ls_fail(LS_ERR_FAILED, "nobody waits any more"));
        }
    }
    ls_api_wait_look(api, 0);
    ls_api_streams_beat(api->streams);
    api->sweep = ls_env_timer_set(api->env, NS_PER_S, sweep, api);
}

/* ---- sockets ---- */

static ls_status listen_unix(const ls_api *api, bool all_users, int *fd_out)
{
    /* A path has at most 107 bytes here, and a home folder may be deeper: it is named by a descriptor. */
    const int folder = open(api->home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
    if (folder >= 0) {
        unlinkat(folder, "socket", 0); /* of a daemon that is gone: the caller holds the lock */
    }
    /* Nobody connects between bind and chmod: nobody listens yet. */
    const bool done = folder >= 0 && fd >= 0 &&
                      bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
                      fchmodat(folder, "socket", all_users ? 0666 : 0600, 0) == 0 && listen(fd, 256) == 0;
    const int error = errno;
    if (folder >= 0) {
        close(folder);
    }
    if (!done) {
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail_errno(error, "can't listen at %s/socket", api->home);
    }
    *fd_out = fd;
    return LS_OK;
}

/* "HOST:PORT" or "[HOST]:PORT". */
static ls_status split_address(const char *text, char host[64], char port[8])
{
    const char *colon = strrchr(text, ':');
    const bool has_brackets = text[0] == '[' && colon && colon > text && colon[-1] == ']';
    const char *begin = has_brackets ? text + 1 : text;
    const size_t bytes = colon ? (size_t)(colon - begin) - has_brackets : 0;
    if (!colon || bytes == 0 || bytes >= 64 || strlen(colon + 1) == 0 || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return ls_fail(LS_ERR_INVALID,
                       "'%.100s' is no address to listen at: write HOST:PORT, as 127.0.0.1:8421", text);
    }
    if (strtoul(colon + 1, NULL, 10) > 65535) { /* else the system would take it modulo 65536 */
        return ls_fail(LS_ERR_INVALID, "the port of %.100s is %s, allowed is 0 (any that is free) to 65535",
                       text, colon + 1);
    }
    snprintf(host, 64, "%.*s", (int)bytes, begin);
    snprintf(port, 8, "%s", colon + 1);
    return LS_OK;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static ls_status bind_tcp(const struct addrinfo *found, const char *text, int *fd_out)
{
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) {
        return ls_fail_errno(errno, "can't listen at %s", text);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 256) != 0) {
        const int error = errno;
        close(fd);
        return ls_fail_errno(error, "can't listen at %s", text);
    }
    *fd_out = fd;
    return LS_OK;
}

/* Names that a browser may call us by. */
static void name_hosts(ls_api *api, const char *host, unsigned port)
{
    char own[80], numbers[4][80];
    snprintf(own, sizeof own, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    const char *always[] = {"127.0.0.1", "localhost", "[::1]"};
    size_t count = 0;
    api->hosts[count] = api->host_texts[count] = strdup(own);
    count++;
    for (size_t i = 0; api->guard.is_loopback && i < 3; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%s:%u", always[i], port);
        api->hosts[count] = api->host_texts[count] = strdup(numbers[i]);
        count++;
    }
    api->guard.hosts = api->hosts;
    ls_text address = {0};
    ls_text_printf(&address, "%s://%s", api->guard.scheme, own);
    api->address = strdup(ls_text_string(&address));
    ls_text_release(&address);
}

static ls_status listen_tcp(ls_api *api, const ls_api_settings *settings, int *fd_out)
{
    char host[64], port[8];
    LS_TRY(split_address(settings->listen, host, port));
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        return ls_fail(LS_ERR_INVALID, "%s is no address of this machine: %s", settings->listen,
                       gai_strerror(error));
    }
    api->guard.is_loopback = is_loopback(found->ai_addr);
    api->guard.scheme = settings->certificate ? "https" : "http";
    ls_status status = LS_OK;
    if (!api->guard.is_loopback && !(settings->certificate && settings->key)) {
        status = ls_fail(LS_ERR_INVALID,
                         "%s can be reached by other machines, and needs TLS: give a certificate and its key "
                         "(tls.certificate and tls.key of %s/config.yaml), or listen at 127.0.0.1",
                         settings->listen, settings->home);
    }
    status = status != LS_OK ? status : bind_tcp(found, settings->listen, fd_out);
    freeaddrinfo(found);
    LS_TRY(status);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    LS_ASSERT(getsockname(*fd_out, (struct sockaddr *)&bound, &bytes) == 0);
    const in_port_t number = bound.ss_family == AF_INET ? ((struct sockaddr_in *)&bound)->sin_port
                                                        : ((struct sockaddr_in6 *)&bound)->sin6_port;
    name_hosts(api, host, ntohs(number));
    return LS_OK;
}

/* ---- doors ---- */

static void log_library(void *context, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void log_library(void *context, const char *format, va_list args)
{
    (void)context;
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    ls_log_debug("http: %s", text); /* what clients do wrong: of no interest unless one looks */
}

static ls_status read_pem(ls_arena *arena, const char *path, char **text_out)
{
    size_t bytes = 0;
    return ls_file_read(arena, path, 1 << 20, text_out, &bytes);
}

/* Takes over fd. */
static ls_status start_door(ls_api_door *door, int fd, const char *certificate, const char *key)
{
    ls_api *api = door->api;
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_library, NULL},
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, LS_API_CONNECTIONS_MAX, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, LS_API_HEADER_BYTES_MAX, NULL},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)ls_api_exchange_begin, door},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)ls_api_exchange_end, door},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)notice_connection, door},
        {certificate ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, (void *)(uintptr_t)certificate},
        {certificate ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, (void *)(uintptr_t)key},
        {MHD_OPTION_END, 0, NULL},
    };
    door->daemon = api->mhd->start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (certificate ? MHD_USE_TLS : 0u), 0,
        NULL, NULL, ls_api_exchange_take, door, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (!door->daemon) {
        close(fd);
        return certificate ? ls_fail(LS_ERR_INVALID, "the certificate or its key can't be used for TLS")
                           : ls_fail(LS_ERR_IO, "libmicrohttpd does not start");
    }
    const union MHD_DaemonInfo *info = api->mhd->get_daemon_info(door->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    const int error =
        info ? ls_env_real_watch(api->env, info->epoll_fd, run_door, door, &door->watch) : -EINVAL;
    return error ? ls_fail_errno(-error, "can't watch the HTTP server") : LS_OK;
}

static void stop_door(ls_api_door *door)
{
    if (!door->daemon) {
        return;
    }
    if (door->watch) {
        ls_env_real_unwatch(door->api->env, door->watch);
    }
    door->api->mhd->stop_daemon(door->daemon);
    if (door->timer) {
        ls_env_timer_cancel(door->api->env, door->timer);
    }
    door->daemon = NULL;
}

static ls_status open_unix(ls_api *api, const ls_api_settings *settings)
{
    int fd = -1;
    LS_TRY(listen_unix(api, settings->all_users, &fd));
    return start_door(&api->doors[0], fd, NULL, NULL);
}

static ls_status open_tcp(ls_api *api, const ls_api_settings *settings)
{
    ls_arena arena = {0};
    char *certificate = NULL, *key = NULL;
    int fd = -1;
    ls_status status = LS_OK;
    if (settings->certificate) {
        status = read_pem(&arena, settings->certificate, &certificate);
        status = status != LS_OK ? status : read_pem(&arena, settings->key ? settings->key : "", &key);
    }
    status = status != LS_OK ? status : listen_tcp(api, settings, &fd);
    status = status != LS_OK ? status : start_door(&api->doors[1], fd, certificate, key);
    ls_arena_release(&arena);
    return status;
}

/* ---- files of the home folder ---- */

static ls_status make_token(const char *path, char *token)
{
    unsigned char random[LS_API_TOKEN_BYTES / 2];
    LS_ASSERT(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't write %s", path);
    }
    char line[LS_API_TOKEN_BYTES + 2];
    snprintf(line, sizeof line, "%s\n", token);
    const ls_status status = ls_file_write_all(fd, path, line, strlen(line));
    close(fd);
    return status;
}

/* Reads the token, or makes one: clients keep theirs when the daemon starts again. */
static ls_status read_token(const char *path, char *token)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? make_token(path, token) : ls_fail_errno(errno, "can't read %s", path);
    }
    struct stat info;
    const bool is_private = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 077) == 0;
    const ssize_t bytes = read(fd, token, LS_API_TOKEN_BYTES);
    close(fd);
    token[LS_API_TOKEN_BYTES] = '\0';
    if (!is_private) {
        return ls_fail(LS_ERR_INVALID, "%s can be read by others: remove it, and a new one is made", path);
    }
    if (bytes != LS_API_TOKEN_BYTES || strspn(token, "0123456789abcdef") != LS_API_TOKEN_BYTES) {
        return ls_fail(LS_ERR_DATA, "%s does not hold %d hex digits: remove it, and a new one is made", path,
                       LS_API_TOKEN_BYTES);
    }
    return LS_OK;
}

static ls_status write_address(const ls_api *api)
{
    ls_arena arena = {0};
    ls_text text = {0};
    ls_text_printf(&text, "%s\n", ls_api_address(api));
    const ls_status status =
        ls_file_write_atomic(ls_path_join(&arena, api->home, "address"), ls_text_string(&text), text.bytes);
    ls_text_release(&text);
    ls_arena_release(&arena);
    return status;
}

static ls_status open_all(ls_api *api, const ls_api_settings *settings)
{
    LS_TRY(ls_microhttpd_load(&api->mhd));
    ls_arena arena = {0};
    const ls_status status = read_token(ls_path_join(&arena, api->home, "token"), api->guard.token);
    ls_arena_release(&arena);
    LS_TRY(status);
    LS_TRY(open_unix(api, settings));
    if (settings->listen[0]) {
        LS_TRY(open_tcp(api, settings));
    }
    return write_address(api);
}

ls_status ls_api_create(const ls_api_settings *settings, ls_api **api_out)
{
    ls_api *api = calloc(1, sizeof *api);
    LS_ASSERT(api && "out of memory for the API");
    api->env = settings->env;
    api->calls = settings->calls;
    api->files = settings->files;
    api->home = strdup(settings->home);
    api->guard = (ls_api_guard){.owner_uid = (uint32_t)geteuid(), .hosts = api->hosts, .scheme = "http"};
    api->owner_gid = (uint32_t)getegid();
    api->request_ns =
        settings->request_s > 0 ? (uint64_t)(1e9 * settings->request_s) : LS_API_REQUEST_S * NS_PER_S;
    api->doors[0] = (ls_api_door){.api = api, .is_unix = true};
    api->doors[1] = (ls_api_door){.api = api};
    api->streams = ls_api_streams_create(api);
    api->histories = ls_api_histories_create();
    api->names = ls_api_names_create(api);
    const ls_status status = open_all(api, settings);
    if (status != LS_OK) {
        ls_api_destroy(api);
        return status;
    }
    api->sweep = ls_env_timer_set(api->env, NS_PER_S, sweep, api);
    *api_out = api;
    return LS_OK;
}

static void end_sleepers(const ls_api *api)
{
    for (const ls_api_link *link = api->links; link; link = link->next) {
        if (link->exchange && link->exchange->is_asleep) {
            const ls_status status = ls_fail(LS_ERR_FAILED, "the daemon ends: ask again when it is back");
            ls_api_exchange_error(link->exchange, 503, status);
        }
    }
}

/* Sends what is left to be sent. What still sleeps is woken with an error, because the library can't stop while anything sleeps. */
static void drain(ls_api *api)
{
    const uint64_t end_ns = ls_env_now_ns(api->env) + NS_PER_S;
    ls_api_streams_close(api->streams);
    while (api->open_exchanges > 0 && ls_env_now_ns(api->env) < end_ns) {
        for (size_t i = 0; i < 2; i++) {
            if (api->doors[i].daemon) {
                api->mhd->run(api->doors[i].daemon);
            }
        }
        end_sleepers(api);
        usleep(1000);
    }
}

void ls_api_destroy(ls_api *api)
{
    if (!api) {
        return;
    }
    if (api->sweep) {
        ls_env_timer_cancel(api->env, api->sweep);
        drain(api);
    }
    stop_door(&api->doors[0]);
    stop_door(&api->doors[1]);
    LS_ASSERT(api->links == NULL && api->open_exchanges == 0);
    ls_arena arena = {0};
    if (api->sweep) { /* ours: they stand for a daemon that answers */
        unlink(ls_path_join(&arena, api->home, "socket"));
        unlink(ls_path_join(&arena, api->home, "address"));
    }
    ls_arena_release(&arena);
    ls_api_streams_destroy(api->streams);
    ls_api_histories_destroy(api->histories);
    ls_api_names_destroy(api->names);
    for (size_t i = 0; i < LS_API_HOSTS_MAX; i++) {
        free(api->host_texts[i]);
    }
    free(api->home);
    free(api->address);
    free(api);
}

const char *ls_api_address(const ls_api *api)
{
    return api->address ? api->address : "";
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

// SPDX-License-Identifier: Apache-2.0
/*
 * The real env's network: messages over TCP and Unix stream sockets.
 *
 * On the wire a message is its length in 4 bytes, least significant first, and then its bytes.
 */
#include "base/assert.h"
#include "env/real/real.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 4,
    READ_BYTES = 64 * 1024,
    ADDRESS_BYTES = 160,
    CLOSE_WAIT_MS = 10 * 1000,
    PEER_SILENT_S = 5
};

/* Bytes waiting: [start, end) of data. */
typedef struct bytes_queue {
    unsigned char *data;
    size_t start, end, capacity;
} bytes_queue;

typedef struct net_link {
    ls_real_watch watch;
    ls_env_link_events events;
    bool open; /* `opened` was called */
    /* this side closed it: queued data is still sent, but nothing more is reported */
    bool closing;
    bool writing; /* epoll watches for room to write */
    bytes_queue in, out;
} net_link;

typedef struct listener {
    ls_real_watch watch;
    ls_env_link_events events;
    char address[ADDRESS_BYTES];
    char path[108]; /* path of a Unix socket, to be removed; else "" */
} listener;

/* ---- addresses ---- */

static int read_unix(const char *path, struct sockaddr_storage *out, socklen_t *bytes_out)
{
    struct sockaddr_un *unix_address = (struct sockaddr_un *)out;
    if (path[0] == '\0' || strlen(path) >= sizeof unix_address->sun_path) {
        return -EINVAL;
    }
    *unix_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(unix_address->sun_path, path, strlen(path) + 1);
    *bytes_out = sizeof *unix_address;
    return 0;
}

/* "HOST:PORT" with HOST a number, [number] for IPv6, or localhost; the name service is not used,
 * because it could block. */
static int read_address(const char *address, struct sockaddr_storage *out, socklen_t *bytes_out)
{
    if (strncmp(address, "unix:", 5) == 0) {
        return read_unix(address + 5, out, bytes_out);
    }
    char host[64];
    const char *colon = strrchr(address, ':');
    size_t host_bytes = colon ? (size_t)(colon - address) : 0;
    if (host_bytes > 1 && address[0] == '[' && address[host_bytes - 1] == ']') {
        address++;
        host_bytes -= 2;
    }
    if (host_bytes == 0 || host_bytes >= sizeof host) {
        return -EINVAL;
    }
    memcpy(host, address, host_bytes);
    host[host_bytes] = '\0';
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, colon + 1, &hints, &found) != 0) {
        return -EINVAL;
    }
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *bytes_out = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

static void write_address(int fd, const char *asked, char *out)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    char host[64], port[16];
    if (strncmp(asked, "unix:", 5) == 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, ADDRESS_BYTES, "%s", asked);
        return;
    }
    snprintf(out, ADDRESS_BYTES, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* ---- queues of bytes ---- */

static unsigned char *queue_reserve(bytes_queue *queue, size_t bytes)
{
    if (queue->start == queue->end) {
        queue->start = queue->end = 0;
    }
    if (queue->capacity - queue->end < bytes && queue->start > 0) {
        memmove(queue->data, queue->data + queue->start, queue->end - queue->start);
        queue->end -= queue->start;
        queue->start = 0;
    }
    if (queue->capacity - queue->end < bytes) {
        queue->capacity = queue->end + bytes + queue->capacity / 2;
        queue->data = realloc(queue->data, queue->capacity);
        LS_ASSERT(queue->data && "not enough memory for messages");
    }
    return queue->data + queue->end;
}

static void queue_add(bytes_queue *queue, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(queue_reserve(queue, bytes), data, bytes);
        queue->end += bytes;
    }
}

/* ---- links ---- */

static void link_destroy(ls_real_watch *watch)
{
    net_link *self = (net_link *)watch;
    free(self->in.data);
    free(self->out.data);
    free(self);
}

static void link_end(ls_real_env *env, net_link *self, int error)
{
    ls_real_watch_end(env, &self->watch);
    if (!self->closing) {
        env->calls++;
        self->events.closed(self->events.context, self->watch.id, error);
    }
}

static void ask_for_room(ls_real_env *env, net_link *self, bool writing)
{
    if (self->writing != writing) {
        self->writing = writing;
        ls_real_watch_change(env, &self->watch, EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0u));
    }
}

/* Sends as much as the socket takes. False if the link ended. */
static bool link_flush(ls_real_env *env, net_link *self)
{
    while (self->out.start < self->out.end) {
        const ssize_t sent = send(self->watch.fd, self->out.data + self->out.start,
                                  self->out.end - self->out.start, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            ask_for_room(env, self, true);
            return true;
        }
        if (sent < 0) {
            link_end(env, self, -errno);
            return false;
        }
        self->out.start += (size_t)sent;
    }
    ask_for_room(env, self, false);
    if (self->closing) {
        link_end(env, self, 0);
        return false;
    }
    return true;
}

static uint32_t read_length(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Delivers complete messages. False if the link ended. */
static bool deliver_messages(ls_real_env *env, net_link *self)
{
    while (self->in.end - self->in.start >= HEADER_BYTES) {
        const size_t bytes = read_length(self->in.data + self->in.start);
        if (bytes > LS_ENV_MESSAGE_BYTES_MAX) {
            link_end(env, self, -EPROTO); /* not a message of this protocol */
            return false;
        }
        if (self->in.end - self->in.start < HEADER_BYTES + bytes) {
            return true;
        }
        const unsigned char *data = self->in.data + self->in.start + HEADER_BYTES;
        self->in.start += HEADER_BYTES + bytes;
        env->calls++;
        self->events.received(self->events.context, self->watch.id, data, bytes);
        if (self->watch.fd < 0 || self->closing) {
            return false;
        }
    }
    return true;
}

static void link_read(ls_real_env *env, net_link *self)
{
    for (;;) {
        unsigned char *room = queue_reserve(&self->in, READ_BYTES);
        const ssize_t got = recv(self->watch.fd, room, READ_BYTES, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (got <= 0) {
            link_end(env, self, got < 0 ? -errno : 0);
            return;
        }
        self->in.end += (size_t)got;
        if (!self->closing && !deliver_messages(env, self)) {
            return;
        }
        self->in.start = self->closing ? self->in.end : self->in.start;
        if (got < READ_BYTES) {
            return; /* give the other links their turn */
        }
    }
}

static bool finish_connect(ls_real_env *env, net_link *self)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(self->watch.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error) {
        link_end(env, self, -error);
        return false;
    }
    self->open = true;
    ask_for_room(env, self, false);
    env->calls++;
    self->events.opened(self->events.context, self->watch.id);
    return self->watch.fd >= 0 && !self->closing;
}

static void link_ready(ls_real_env *env, ls_real_watch *watch, uint32_t events)
{
    net_link *self = (net_link *)watch;
    if (!self->open) {
        if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) || !finish_connect(env, self)) {
            return;
        }
    }
    if ((events & EPOLLOUT) && !link_flush(env, self)) {
        return;
    }
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
        link_read(env, self);
    }
}

/* Small messages are sent at once, and a link ends if the peer's host or network is gone. These
 * options fail on Unix sockets, which need none of them. */
static void set_options(int fd)
{
    const int on = 1, idle_s = PEER_SILENT_S, interval_s = 1, probes = PEER_SILENT_S;
    const unsigned unanswered_ms = 2 * PEER_SILENT_S * 1000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

/* NULL if it can't be watched; the socket is then closed. */
static net_link *link_create(ls_real_env *env, int fd, const ls_env_link_events *events, bool open)
{
    set_options(fd);
    net_link *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for a connection");
    *self = (net_link){.watch = {.fd = fd, .ready = link_ready, .destroy = link_destroy},
                       .events = *events,
                       .open = open,
                       .writing = !open};
    if (ls_real_watch_add(env, &self->watch, EPOLLIN | (open ? 0u : (uint32_t)EPOLLOUT)) != 0) {
        close(fd);
        free(self);
        return NULL;
    }
    return self;
}

/* ---- connections that fail at once are reported from the loop, too ---- */

typedef struct failed_connect {
    ls_env_link_events events;
    ls_env_id link;
    int error;
} failed_connect;

static void tell_failed(void *context)
{
    failed_connect *failed = context;
    failed->events.closed(failed->events.context, failed->link, failed->error);
    free(failed);
}

static ls_env_id fail_connect(ls_real_env *env, const ls_env_link_events *events, int error)
{
    failed_connect *failed = malloc(sizeof *failed);
    LS_ASSERT(failed && "not enough memory for a connection");
    const ls_env_id id = env->next_id++;
    *failed = (failed_connect){.events = *events, .link = id, .error = error};
    ls_env_queue_add(&env->timers,
                     (ls_env_item){.id = id, .fire = tell_failed, .context = failed, .drop = free});
    return id;
}

ls_env_id ls_real_net_connect(ls_env *env, const char *address, const ls_env_link_events *events)
{
    ls_real_env *real = (ls_real_env *)env;
    struct sockaddr_storage to = {0};
    socklen_t to_bytes = 0;
    int error = read_address(address, &to, &to_bytes);
    if (error) {
        return fail_connect(real, events, error);
    }
    const int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail_connect(real, events, -errno);
    }
    if (connect(fd, (struct sockaddr *)&to, to_bytes) != 0 && errno != EINPROGRESS) {
        error = -errno;
        close(fd);
        return fail_connect(real, events, error);
    }
    const net_link *self = link_create(real, fd, events, false);
    return self ? self->watch.id : fail_connect(real, events, -ENOMEM);
}

int ls_real_net_send(ls_env *env, ls_env_id link, const void *data, size_t bytes)
{
    ls_real_env *real = (ls_real_env *)env;
    net_link *self = (net_link *)ls_real_watch_find(real, link, link_ready);
    if (!self || !self->open || self->closing) {
        return -ENOTCONN;
    }
    if (bytes > LS_ENV_MESSAGE_BYTES_MAX) {
        return -EMSGSIZE;
    }
    if (self->out.end - self->out.start + bytes > LS_ENV_SEND_BYTES_MAX) {
        return -ENOBUFS;
    }
    const unsigned char header[HEADER_BYTES] = {(unsigned char)bytes, (unsigned char)(bytes >> 8),
                                                (unsigned char)(bytes >> 16), (unsigned char)(bytes >> 24)};
    queue_add(&self->out, header, sizeof header);
    queue_add(&self->out, data, bytes);
    ask_for_room(real, self, true); /* sent from the loop, where a broken link can be reported */
    return 0;
}

/* ---- listeners ---- */

static void listener_destroy(ls_real_watch *watch)
{
    listener *self = (listener *)watch;
    if (self->path[0]) {
        unlink(self->path);
    }
    free(self);
}

static void listener_ready(ls_real_env *env, ls_real_watch *watch, uint32_t events)
{
    (void)events;
    listener *self = (listener *)watch;
    while (self->watch.fd >= 0) {
        const int fd = accept4(self->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return; /* no connection left, or one that broke before it was accepted */
        }
        const net_link *accepted = link_create(env, fd, &self->events, true);
        if (accepted) {
            env->calls++;
            self->events.opened(self->events.context, accepted->watch.id);
        }
    }
}

static int open_listener(const char *address)
{
    struct sockaddr_storage at = {0};
    socklen_t at_bytes = 0;
    const int error = read_address(address, &at, &at_bytes);
    if (error) {
        return error;
    }
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, at_bytes) != 0 || listen(fd, 128) != 0) {
        const int failed = -errno;
        close(fd);
        return failed;
    }
    return fd;
}

int ls_real_net_listen(ls_env *env, const char *address, const ls_env_link_events *events,
                       ls_env_id *listener_out)
{
    const int fd = open_listener(address);
    if (fd < 0) {
        return fd;
    }
    listener *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for a listener");
    *self = (listener){.watch = {.fd = fd, .ready = listener_ready, .destroy = listener_destroy},
                       .events = *events};
    write_address(fd, address, self->address);
    if (strncmp(address, "unix:", 5) == 0) {
        snprintf(self->path, sizeof self->path, "%s", address + 5);
    }
    const int error = ls_real_watch_add((ls_real_env *)env, &self->watch, EPOLLIN);
    if (error) {
        close(fd);
        listener_destroy(&self->watch);
        return error;
    }
    *listener_out = self->watch.id;
    return 0;
}

const char *ls_real_net_address(ls_env *env, ls_env_id id)
{
    const listener *self = (const listener *)ls_real_watch_find((ls_real_env *)env, id, listener_ready);
    return self ? self->address : NULL;
}

void ls_real_net_close(ls_env *env, ls_env_id id)
{
    ls_real_env *real = (ls_real_env *)env;
    ls_real_watch *watch = ls_real_watch_find(real, id, listener_ready);
    if (watch) {
        ls_real_watch_end(real, watch);
        return;
    }
    net_link *self = (net_link *)ls_real_watch_find(real, id, link_ready);
    if (!self) {
        /* a connection that failed and was not reported yet */
        ls_env_queue_cancel(&real->timers, id, 0);
        return;
    }
    self->closing = true;
    const unsigned limit_ms = CLOSE_WAIT_MS; /* never wait for ever on a peer that does not read */
    setsockopt(self->watch.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
    if (!self->open || self->out.start == self->out.end) {
        ls_real_watch_end(real, &self->watch);
    }
}

// SPDX-License-Identifier: Apache-2.0
/* The blocking client: a session over one plain socket, with the framing of env/env.h (each message
 * is preceded by its length: 4 bytes, least significant first). */
#include "base/assert.h"
#include "base/clock.h"
#include "comm/store/store_address.h"
#include "comm/store/store_session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FRAME_BYTES = 4,
    READ_BYTES = 64 * 1024,
    /* Servers answer at once: one that takes longer hangs. */
    CALL_S = 30,
    /* One attempt to connect. */
    CONNECT_S = 5,
    KEEPALIVE_S = 5,
    UNANSWERED_MS = 15 * 1000,
    LOOK_MS = 50,
};
static const uint64_t SECOND_NS = 1000000000u, MILLISECOND_NS = 1000000u;

struct ls_store {
    ls_store_session session;
    char address[300];
    /* -1: not connected. */
    int fd;
    /* Of the current call. */
    uint64_t deadline_ns;
    /* Once it is not LS_OK, every call fails with it and this text. */
    ls_status broken;
    char broken_text[500];
    /* Bytes received but not yet parsed: in[in_start, in_end). */
    unsigned char *in;
    size_t in_start, in_end, in_capacity;
    /* See ls_store_client_options. */
    bool (*is_over)(void *context);
    void *over_context;
};

static uint64_t in_seconds(double seconds)
{
    const double most_s = 1e9;
    seconds = seconds < 0 ? 0 : seconds > most_s ? most_s : seconds;
    return ls_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int wait_ms(uint64_t deadline_ns)
{
    const uint64_t now = ls_clock_monotonic_ns();
    const uint64_t wait = deadline_ns > now ? (deadline_ns - now + MILLISECOND_NS - 1) / MILLISECOND_NS : 0;
    return wait < 3600 * 1000 ? (int)wait : 3600 * 1000;
}

static bool should_end(const ls_store *store)
{
    return store->is_over && store->is_over(store->over_context);
}

/* Returns true once the descriptor is ready, false at the deadline or when is_over ends all
 * calls. */
static bool wait_for(const ls_store *store, int fd, short events, uint64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    for (;;) {
        const int left_ms = wait_ms(deadline_ns);
        const int ready = poll(&poll_fd, 1, store->is_over && left_ms > LOOK_MS ? LOOK_MS : left_ms);
        if (ready > 0) {
            return true;
        }
        if (should_end(store)) {
            return false;
        }
        if ((ready == 0 || errno != EINTR) && ls_clock_monotonic_ns() >= deadline_ns) {
            return false;
        }
    }
}

static void sleep_until(uint64_t deadline_ns)
{
    const int ms = wait_ms(deadline_ns);
    poll(NULL, 0, ms);
}

static void random_bytes(unsigned char *out, size_t bytes)
{
    LS_ASSERT(getrandom(out, bytes, 0) == (ssize_t)bytes);
}

/* ---- the link ---- */

static void lose_link(ls_store *store)
{
    if (store->fd >= 0) {
        close(store->fd);
    }
    store->fd = -1;
    store->in_start = store->in_end = 0;
    ls_store_session_lost(&store->session);
}

static void set_options(int fd, int family)
{
    const int on = 1, idle_s = KEEPALIVE_S, interval_s = 1, probes = KEEPALIVE_S;
    const unsigned unanswered_ms = UNANSWERED_MS;
    if (family == AF_UNIX) {
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

/* Returns a connected socket or a negative errno value. */
static int open_socket(const ls_store *store, const ls_store_socket_address *to, uint64_t deadline_ns)
{
    const int fd = socket(to->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    int error = 0;
    socklen_t bytes = sizeof error;
    set_options(fd, to->storage.ss_family);
    if (connect(fd, (const struct sockaddr *)&to->storage, to->bytes) != 0) {
        /* EAGAIN means a Unix socket whose queue is full. */
        error = errno == EAGAIN ? ECONNREFUSED : errno;
        if (error == EINPROGRESS) {
            error = ETIMEDOUT;
            if (wait_for(store, fd, POLLOUT, deadline_ns)) {
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
            }
        }
    }
    if (error) {
        close(fd);
        return -error;
    }
    return fd;
}

/* Sends everything before the deadline of the call. Returns 0 or a negative errno value; the link
 * is then unusable. */
static int send_all(ls_store *store, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t sent = send(store->fd, data, bytes, MSG_NOSIGNAL);
        if (sent > 0) {
            data += sent;
            bytes -= (size_t)sent;
        } else if (sent < 0 && errno != EINTR && errno != EAGAIN) {
            return -errno;
        } else if (sent < 0 && errno == EAGAIN && !wait_for(store, store->fd, POLLOUT, store->deadline_ns)) {
            return -ETIMEDOUT; /* half a message has been sent: nothing can follow on this link */
        }
    }
    return 0;
}

static int send_framed(void *context, const void *data, size_t bytes)
{
    ls_store *store = context;
    const unsigned char frame[FRAME_BYTES] = {(unsigned char)bytes, (unsigned char)(bytes >> 8),
                                              (unsigned char)(bytes >> 16), (unsigned char)(bytes >> 24)};
    if (store->fd < 0) {
        return -ENOTCONN;
    }
    /* Length and message go out together, in one segment. */
    unsigned char *message = malloc(sizeof frame + bytes);
    if (!message) {
        return -ENOMEM;
    }
    memcpy(message, frame, sizeof frame);
    memcpy(message + sizeof frame, data, bytes);
    const int error = send_all(store, message, sizeof frame + bytes);
    free(message);
    if (error) {
        shutdown(store->fd, SHUT_RDWR); /* the next read finds the end of the link */
    }
    return error;
}

static ls_status fail_stranger(const ls_store *store)
{
    char begin[32];
    const size_t there = store->in_end - store->in_start;
    const size_t bytes = there < sizeof begin - 1 ? there : sizeof begin - 1;
    memcpy(begin, store->in + store->in_start, bytes);
    begin[bytes] = '\0';
    ls_store_text_clean(begin);
    return ls_fail(LS_ERR_INVALID,
                   "%s does not speak lockstep's protocol (it begins with \"%s\"): check host and port",
                   store->address, begin);
}

/* Passes complete messages to the session. */
static ls_status deliver(ls_store *store)
{
    while (store->fd >= 0 && store->in_end - store->in_start >= FRAME_BYTES) {
        const unsigned char *at = store->in + store->in_start;
        const size_t bytes = (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        if (bytes > LS_STORE_MESSAGE_BYTES_MAX) {
            return fail_stranger(store);
        }
        if (store->in_end - store->in_start < FRAME_BYTES + bytes) {
            return LS_OK;
        }
        store->in_start += FRAME_BYTES + bytes;
        LS_TRY(ls_store_session_received(&store->session, at + FRAME_BYTES, bytes));
    }
    return LS_OK;
}

static ls_status reserve(ls_store *store)
{
    if (store->in_start > 0) {
        memmove(store->in, store->in + store->in_start, store->in_end - store->in_start);
        store->in_end -= store->in_start;
        store->in_start = 0;
    }
    if (store->in_capacity - store->in_end < READ_BYTES) {
        const size_t capacity = store->in_end + READ_BYTES + store->in_capacity / 2;
        unsigned char *in = realloc(store->in, capacity);
        if (!in) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for a message to the coordinator (%zu bytes)",
                           capacity);
        }
        store->in = in;
        store->in_capacity = capacity;
    }
    return LS_OK;
}

/* Waits for data until the deadline, reads it and passes it on. The link may be lost afterwards. */
static ls_status receive(ls_store *store, uint64_t deadline_ns)
{
    if (store->fd < 0 || !wait_for(store, store->fd, POLLIN, deadline_ns)) {
        return LS_OK;
    }
    LS_TRY(reserve(store));
    const ssize_t got = recv(store->fd, store->in + store->in_end, READ_BYTES, 0);
    if (got > 0) {
        store->in_end += (size_t)got;
        return deliver(store);
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        lose_link(store);
    }
    return LS_OK;
}

/* ---- connecting ---- */

static ls_status fail_if_over(const ls_store *store)
{
    return should_end(store)
               ? ls_fail(LS_FENCED, "the call was interrupted, because the ranks of the run are changing")
               : LS_OK;
}

/* One attempt. Returns LS_OK when the session is ready, LS_ERR_TIMEOUT if another attempt makes
 * sense; *error_out is then an errno value or 0. */
static ls_status attempt(ls_store *store, uint64_t deadline_ns, int *error_out)
{
    unsigned char nonce[LS_STORE_NONCE_BYTES];
    ls_store_socket_address to;
    *error_out = 0;
    store->deadline_ns = earlier(deadline_ns, in_seconds(CONNECT_S));
    LS_TRY(ls_store_address_find(store->address, &to));
    const int fd = open_socket(store, &to, store->deadline_ns);
    if (fd < 0) {
        *error_out = -fd;
        return ls_fail(LS_ERR_TIMEOUT, "can't connect to %s: %s", store->address, strerror(-fd));
    }
    store->fd = fd;
    random_bytes(nonce, sizeof nonce);
    ls_store_session_opened(&store->session, nonce);
    while (store->fd >= 0 && !ls_store_session_is_ready(&store->session)) {
        if (ls_clock_monotonic_ns() >= store->deadline_ns) {
            lose_link(store);
            return ls_fail(LS_ERR_TIMEOUT,
                           "%s accepted the connection but does not answer: is it lockstep's port?",
                           store->address);
        }
        ls_status status = receive(store, store->deadline_ns);
        status = status == LS_OK ? fail_if_over(store) : status;
        if (status != LS_OK) {
            lose_link(store);
            return status;
        }
    }
    return store->fd >= 0 ? LS_OK
                          : ls_fail(LS_ERR_TIMEOUT,
                                    "%s closed the connection during the greeting: is it lockstep's port?",
                                    store->address);
}

/* Makes attempts until the deadline, or for `refused_s` if nothing listens at the address. */
static ls_status connect_until(ls_store *store, uint64_t deadline_ns, double refused_s)
{
    const uint64_t refused_ns = in_seconds(refused_s);
    uint64_t pause_ns = 20 * MILLISECOND_NS;
    for (;;) {
        int error = 0;
        const ls_status status = attempt(store, deadline_ns, &error);
        const uint64_t now = ls_clock_monotonic_ns();
        LS_TRY(fail_if_over(store));
        const bool is_refused = error == ECONNREFUSED || error == ENOENT;
        if (status != LS_ERR_TIMEOUT || now >= deadline_ns || (is_refused && now >= refused_ns)) {
            return status;
        }
        sleep_until(earlier(deadline_ns, now + pause_ns));
        pause_ns = earlier(2 * pause_ns, SECOND_NS / 4);
    }
}

void ls_store_clear_is_over(ls_store *store)
{
    store->is_over = NULL;
}

ls_status ls_store_connect(const ls_store_client_options *options, ls_store **store_out)
{
    LS_ASSERT(options->address && options->identity && store_out);
    const char *address = options->address;
    const double timeout_s = options->timeout_s;
    unsigned char id[LS_STORE_SESSION_BYTES];
    ls_store *store = calloc(1, sizeof *store);
    if (!store) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a connection to the coordinator");
    }
    store->fd = -1;
    store->is_over = options->is_over;
    store->over_context = options->context;
    random_bytes(id, sizeof id);
    ls_status status =
        ls_store_session_init(&store->session, options->token, options->epoch, options->identity, id);
    store->session.send = send_framed;
    store->session.context = store;
    if (status == LS_OK && strlen(address) >= sizeof store->address) {
        status =
            ls_fail(LS_ERR_INVALID, "the coordinator's address has %zu characters; allowed are at most %zu",
                    strlen(address), sizeof store->address - 1);
    }
    if (status == LS_OK) {
        snprintf(store->address, sizeof store->address, "%s", address);
        status = connect_until(store, in_seconds(timeout_s), timeout_s);
        status = status == LS_OK ? LS_OK
                 : status == LS_ERR_TIMEOUT
                     ? ls_fail_within(status, "no coordinator within %.1f s", timeout_s)
                     : ls_fail_within(status, "coordinator at %s", address);
    }
    if (status != LS_OK) {
        ls_store_close(store);
        return status;
    }
    *store_out = store;
    return LS_OK;
}

void ls_store_close(ls_store *store)
{
    if (!store) {
        return;
    }
    lose_link(store);
    ls_store_session_release(&store->session);
    free(store->in);
    free(store);
}

int ls_store_fd(const ls_store *store)
{
    return store->fd;
}

static ls_status break_with(ls_store *store, ls_status status)
{
    store->broken = status;
    snprintf(store->broken_text, sizeof store->broken_text, "%s", ls_error_text());
    lose_link(store);
    return status;
}

/* Connects again if the link was lost. If that fails, the client is broken for good. */
static ls_status keep_link(ls_store *store)
{
    if (store->broken != LS_OK) {
        return ls_fail(store->broken, "%s", store->broken_text);
    }
    if (store->fd >= 0) {
        return LS_OK;
    }
    const uint64_t call_deadline_ns = store->deadline_ns;
    /* If the host answers but nothing listens there, its coordinator has ended. */
    const double refused_s = 0.5;
    const ls_status status = connect_until(store, in_seconds(LS_STORE_RECONNECT_S), refused_s);
    store->deadline_ns = call_deadline_ns;
    if (status == LS_ERR_TIMEOUT) {
        char reason[400];
        snprintf(reason, sizeof reason, "%s", ls_error_text());
        ls_fail(LS_ERR_RANKS_LOST, "the coordinator at %s went away (%s)", store->address, reason);
        return break_with(store, LS_ERR_RANKS_LOST);
    }
    return status == LS_OK ? LS_OK : break_with(store, status);
}

/* ---- requests ---- */

/* Sends a request, waits for its answer and returns the status in it. */
static ls_status call(ls_store *store, ls_store_message message, double timeout_s)
{
    ls_store_session *session = &store->session;
    store->deadline_ns = in_seconds(timeout_s + CALL_S);
    LS_TRY(keep_link(store));
    LS_TRY(ls_store_session_request(session, message));
    while (!ls_store_session_is_answered(session)) {
        if (ls_clock_monotonic_ns() >= store->deadline_ns) {
            return ls_fail(LS_ERR_TIMEOUT, "the coordinator at %s has not answered for %.0f s",
                           store->address, timeout_s + CALL_S);
        }
        LS_TRY(keep_link(store));
        ls_status status = receive(store, store->deadline_ns);
        status = status == LS_OK ? fail_if_over(store) : status;
        if (status != LS_OK) {
            return break_with(store, status);
        }
    }
    return session->status == LS_OK ? LS_OK
           : session->status == LS_ERR_TIMEOUT
               ? LS_ERR_TIMEOUT
               : ls_fail(session->status, "the coordinator's store: %s", (const char *)session->value);
}

static ls_status check_sizes(const char *key, size_t bytes)
{
    const size_t key_bytes = strlen(key);
    if (key_bytes == 0 || key_bytes > LS_STORE_KEY_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "a key of the coordinator's store must have 1 to %d characters; this one has %zu",
                       LS_STORE_KEY_BYTES_MAX, key_bytes);
    }
    if (bytes > LS_STORE_VALUE_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "a value in the coordinator's store may have at most %d bytes; that of %s has %zu",
                       LS_STORE_VALUE_BYTES_MAX, key, bytes);
    }
    return LS_OK;
}

ls_status ls_store_put(ls_store *store, const char *key, const void *value, size_t bytes)
{
    LS_TRY(check_sizes(key, bytes));
    return call(store,
                (ls_store_message){.header = {.kind = LS_STORE_PUT,
                                              .key_bytes = (uint16_t)strlen(key),
                                              .value_bytes = (uint32_t)bytes},
                                   .key = key,
                                   .value = value},
                0);
}

ls_status ls_store_get(ls_store *store, const char *key, double timeout_s, void *value_out,
                       size_t value_bytes, size_t *bytes_out)
{
    LS_TRY(check_sizes(key, 0));
    const double wait_s = timeout_s < 0 ? 0 : timeout_s > 86400 ? 86400 : timeout_s;
    const ls_status status = call(store,
                                  (ls_store_message){.header = {.kind = LS_STORE_GET,
                                                                .key_bytes = (uint16_t)strlen(key),
                                                                .number = (int64_t)(wait_s * 1e3 + 0.999)},
                                                     .key = key},
                                  wait_s);
    if (status == LS_ERR_TIMEOUT && ls_store_session_is_answered(&store->session)) {
        return ls_fail(LS_ERR_TIMEOUT, "no process put the key %s into the coordinator's store within %.1f s",
                       key, wait_s);
    }
    LS_TRY(status);
    if (store->session.value_bytes > value_bytes) {
        return ls_fail(LS_ERR_INVALID,
                       "the value of the key %s in the coordinator's store has %zu bytes, but the caller has "
                       "room for %zu",
                       key, store->session.value_bytes, value_bytes);
    }
    if (store->session.value_bytes > 0) {
        memcpy(value_out, store->session.value, store->session.value_bytes);
    }
    if (bytes_out) {
        *bytes_out = store->session.value_bytes;
    }
    return LS_OK;
}

ls_status ls_store_add(ls_store *store, const char *key, int64_t delta, int64_t *value_out)
{
    LS_TRY(check_sizes(key, 0));
    LS_TRY(call(store,
                (ls_store_message){
                    .header = {.kind = LS_STORE_ADD, .key_bytes = (uint16_t)strlen(key), .number = delta},
                    .key = key},
                0));
    if (value_out) {
        *value_out = store->session.number;
    }
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* The blocking client: a session over one plain socket, in the framing of base/env (4 bytes of length, least significant first). */
#include "base/assert.h"
#include "base/clock.h"
#include "execution/comm/store_address.h"
#include "execution/comm/store_session.h"

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
    NOTICE_BYTES_MAX = 64 << 20, /* waiting for ls_store_poll */
    CALL_S = 30,                 /* the server answers at once; what is beyond is a server that hangs */
    CONNECT_S = 5,               /* one attempt */
    KEEPALIVE_S = 5,
    UNANSWERED_MS = 15 * 1000,
    LOOK_MS = 50,
};
static const uint64_t SECOND_NS = 1000000000u, MILLISECOND_NS = 1000000u;

typedef struct notice {
    struct notice *next;
    size_t bytes;
    unsigned char data[];
} notice;

struct ls_store {
    ls_store_session session;
    char address[300], local_host[64];
    int fd;               /* -1: no link */
    uint64_t deadline_ns; /* of the call under way */
    ls_status broken;     /* LS_OK, or why every call fails from now on */
    char broken_text[500];
    unsigned char *in;
    size_t in_start, in_end, in_capacity;
    notice *notices, **notices_end;
    size_t notice_bytes;
    struct {
        ls_store_changed changed;
        void *context;
    } watchers[LS_STORE_WATCHES_MAX];
    void (*other)(void *context, const void *data, size_t bytes);
    void *other_context;
    bool (*is_over)(void *context); /* NULL: never */
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

/* True when the descriptor is ready before the deadline, and before all is over. */
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

/* A connected socket, or minus an errno value. */
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
        error = errno == EAGAIN ? ECONNREFUSED : errno; /* EAGAIN: a Unix socket whose queue is full */
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

/* Sends all of it before the call's deadline; 0 or minus an errno value. A link that does not take it is lost. */
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
            return -ETIMEDOUT; /* half a message is on its way: the link can't be used any more */
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
    unsigned char *message = malloc(sizeof frame + bytes); /* one segment, and no wait between two */
    if (!message) {
        return -ENOMEM;
    }
    memcpy(message, frame, sizeof frame);
    memcpy(message + sizeof frame, data, bytes);
    const int error = send_all(store, message, sizeof frame + bytes);
    free(message);
    if (error) {
        shutdown(store->fd, SHUT_RDWR); /* the reader finds the end of the link */
    }
    return error;
}

static ls_status fail_stranger(const ls_store *store)
{
    char said[32];
    const size_t there = store->in_end - store->in_start;
    const size_t bytes = there < sizeof said - 1 ? there : sizeof said - 1;
    memcpy(said, store->in + store->in_start, bytes);
    said[bytes] = '\0';
    ls_store_text_clean(said);
    return ls_fail(LS_ERR_INVALID,
                   "%s speaks something else than lockstep (it begins with \"%s\"): check host and port",
                   store->address, said);
}

/* Hands whole messages to the session. */
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
            return ls_fail(LS_ERR_MEMORY, "no memory for a message of the store (%zu bytes)", capacity);
        }
        store->in = in;
        store->in_capacity = capacity;
    }
    return LS_OK;
}

/* Reads what is there, waiting for it until the deadline; delivers it. The link may be lost afterwards. */
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

static void note_local_host(ls_store *store)
{
    ls_store_socket_address own = {.bytes = sizeof own.storage};
    store->local_host[0] = '\0';
    if (getsockname(store->fd, (struct sockaddr *)&own.storage, &own.bytes) == 0) {
        ls_store_address_host(&own, store->local_host, sizeof store->local_host);
    }
}

static ls_status fail_if_over(const ls_store *store)
{
    return should_end(store) ? ls_fail(LS_FENCED, "the ranks change") : LS_OK;
}

/* One attempt: LS_OK when the session is ready, LS_ERR_TIMEOUT when one may try again (*error_out: why, an errno value or 0). */
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
        return ls_fail(LS_ERR_TIMEOUT, "%s: %s", store->address, strerror(-fd));
    }
    store->fd = fd;
    note_local_host(store);
    random_bytes(nonce, sizeof nonce);
    ls_store_session_opened(&store->session, nonce);
    while (store->fd >= 0 && !ls_store_session_is_ready(&store->session)) {
        if (ls_clock_monotonic_ns() >= store->deadline_ns) {
            lose_link(store);
            return ls_fail(LS_ERR_TIMEOUT,
                           "%s took the connection and does not answer: is it lockstep's port?",
                           store->address);
        }
        ls_status status = receive(store, store->deadline_ns);
        status = status == LS_OK ? fail_if_over(store) : status;
        if (status != LS_OK) {
            lose_link(store);
            return status;
        }
    }
    return store->fd >= 0
               ? LS_OK
               : ls_fail(LS_ERR_TIMEOUT, "%s closed the connection during the hello: is it lockstep's port?",
                         store->address);
}

/* Tries again until the deadline, or until `refused_s` have gone by in which nobody listened there. */
static ls_status connect_until(ls_store *store, uint64_t deadline_ns, double refused_s)
{
    const uint64_t refused_ns = in_seconds(refused_s);
    uint64_t pause_ns = 20 * MILLISECOND_NS;
    for (;;) {
        int error = 0;
        const ls_status status = attempt(store, deadline_ns, &error);
        const uint64_t now = ls_clock_monotonic_ns();
        LS_TRY(fail_if_over(store));
        const bool nobody = error == ECONNREFUSED || error == ENOENT;
        if (status != LS_ERR_TIMEOUT || now >= deadline_ns || (nobody && now >= refused_ns)) {
            return status;
        }
        sleep_until(earlier(deadline_ns, now + pause_ns));
        pause_ns = earlier(2 * pause_ns, SECOND_NS / 4);
    }
}

static void take_notice(void *context, const ls_store_message *message);

ls_status ls_store_connect(const char *address, const char *token, uint64_t epoch, const char *identity,
                           double timeout_s, ls_store **store_out)
{
    return ls_store_connect_until(address, token, epoch, identity, timeout_s, NULL, NULL, store_out);
}

void ls_store_go_on(ls_store *store)
{
    store->is_over = NULL;
}

ls_status ls_store_connect_until(const char *address, const char *token, uint64_t epoch, const char *identity,
                                 double timeout_s, bool (*is_over)(void *context), void *context,
                                 ls_store **store_out)
{
    LS_ASSERT(address && identity && store_out);
    unsigned char id[LS_STORE_SESSION_BYTES];
    ls_store *store = calloc(1, sizeof *store);
    if (!store) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a client of the store");
    }
    store->fd = -1;
    store->is_over = is_over;
    store->over_context = context;
    store->notices_end = &store->notices;
    random_bytes(id, sizeof id);
    ls_status status = ls_store_session_init(&store->session, token, epoch, identity, id);
    store->session.send = send_framed;
    store->session.notice = take_notice;
    store->session.context = store;
    if (status == LS_OK && strlen(address) >= sizeof store->address) {
        status =
            ls_fail(LS_ERR_INVALID, "the coordinator's address has %zu characters, at most %zu are allowed",
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
    for (notice *at = store->notices, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    ls_store_session_release(&store->session);
    free(store->in);
    free(store);
}

int ls_store_fd(const ls_store *store)
{
    return store->fd;
}

const char *ls_store_local_host(const ls_store *store)
{
    return store->local_host;
}

static ls_status break_with(ls_store *store, ls_status status)
{
    store->broken = status;
    snprintf(store->broken_text, sizeof store->broken_text, "%s", ls_error_text());
    lose_link(store);
    return status;
}

/* Makes sure that there is a link, or breaks for good. */
static ls_status keep_link(ls_store *store)
{
    if (store->broken != LS_OK) {
        return ls_fail(store->broken, "%s", store->broken_text);
    }
    if (store->fd >= 0) {
        return LS_OK;
    }
    const uint64_t call_deadline_ns = store->deadline_ns;
    const double refused_s = 0.5; /* the host is there and nobody listens: its coordinator has ended */
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

/* ---- notices ---- */

static void take_notice(void *context, const ls_store_message *message)
{
    ls_store *store = context;
    size_t bytes = 0;
    unsigned char *data = ls_store_message_write(message, &bytes);
    notice *kept = data ? malloc(sizeof *kept + bytes) : NULL;
    if (!kept || store->notice_bytes + bytes > NOTICE_BYTES_MAX) {
        ls_fail(LS_ERR_MEMORY, "%zu bytes of messages wait for ls_store_poll", store->notice_bytes + bytes);
        break_with(store, LS_ERR_MEMORY);
        free(kept);
        free(data);
        return;
    }
    *kept = (notice){.bytes = bytes};
    memcpy(kept->data, data, bytes);
    free(data);
    store->notice_bytes += bytes;
    *store->notices_end = kept;
    store->notices_end = &kept->next;
}

static void run_notice(ls_store *store, const notice *kept)
{
    ls_store_message message;
    char key[LS_STORE_KEY_BYTES_MAX + 1] = "";
    LS_ASSERT(ls_store_message_parse(kept->data, kept->bytes, &message) == LS_OK);
    if (message.header.kind == LS_STORE_OTHER) {
        if (store->other) {
            store->other(store->other_context, message.value, message.header.value_bytes);
        }
        return;
    }
    memcpy(key, message.key, message.header.key_bytes);
    for (uint32_t i = 0; i < store->session.watch_count; i++) {
        const char *prefix = store->session.watches[i];
        if (strncmp(key, prefix, strlen(prefix)) == 0) {
            store->watchers[i].changed(store->watchers[i].context, key, message.value,
                                       message.header.value_bytes);
        }
    }
}

ls_status ls_store_poll(ls_store *store, double timeout_s)
{
    const uint64_t deadline_ns = in_seconds(timeout_s);
    store->deadline_ns = in_seconds(CALL_S);
    LS_TRY(keep_link(store));
    do {
        const ls_status status = receive(store, store->notices ? 0 : deadline_ns);
        if (status != LS_OK) {
            return break_with(store, status);
        }
        LS_TRY(keep_link(store));
    } while (!store->notices && ls_clock_monotonic_ns() < deadline_ns);
    while (store->notices) {
        notice *kept = store->notices;
        store->notices = kept->next;
        store->notices_end = store->notices ? store->notices_end : &store->notices;
        store->notice_bytes -= kept->bytes;
        run_notice(store, kept);
        free(kept);
    }
    return LS_OK;
}

void ls_store_on_other(ls_store *store, void (*other)(void *context, const void *data, size_t bytes),
                       void *context)
{
    store->other = other;
    store->other_context = context;
}

ls_status ls_store_send_other(ls_store *store, const void *data, size_t bytes)
{
    store->deadline_ns = in_seconds(CALL_S);
    LS_TRY(keep_link(store));
    const int error = ls_store_session_send_other(&store->session, data, bytes);
    if (error == -EMSGSIZE) {
        return ls_fail(LS_ERR_INVALID, "a message of %zu bytes, at most %d are allowed", bytes,
                       LS_STORE_VALUE_BYTES_MAX);
    }
    return error ? ls_fail_errno(-error, "sending to the coordinator at %s", store->address) : LS_OK;
}

/* ---- requests ---- */

/* Sends a request and waits for its answer; the answer's status is this call's. */
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
               : ls_fail(session->status, "store: %s", (const char *)session->value);
}

static ls_status check_sizes(const char *key, size_t bytes, size_t expected_bytes)
{
    const size_t key_bytes = strlen(key);
    if (key_bytes == 0 || key_bytes > LS_STORE_KEY_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "a key of the store has 1 to %d characters, this one has %zu",
                       LS_STORE_KEY_BYTES_MAX, key_bytes);
    }
    if (bytes > LS_STORE_VALUE_BYTES_MAX || expected_bytes > LS_STORE_VALUE_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "a value of the store has at most %d bytes, that of %s has %zu",
                       LS_STORE_VALUE_BYTES_MAX, key, bytes > expected_bytes ? bytes : expected_bytes);
    }
    return LS_OK;
}

ls_status ls_store_put(ls_store *store, const char *key, const void *value, size_t bytes)
{
    LS_TRY(check_sizes(key, bytes, 0));
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
    LS_TRY(check_sizes(key, 0, 0));
    const double wait_s = timeout_s < 0 ? 0 : timeout_s > 86400 ? 86400 : timeout_s;
    const ls_status status = call(store,
                                  (ls_store_message){.header = {.kind = LS_STORE_GET,
                                                                .key_bytes = (uint16_t)strlen(key),
                                                                .number = (int64_t)(wait_s * 1e3 + 0.999)},
                                                     .key = key},
                                  wait_s);
    if (status == LS_ERR_TIMEOUT && ls_store_session_is_answered(&store->session)) {
        return ls_fail(LS_ERR_TIMEOUT, "nobody put %s into the store within %.1f s", key, wait_s);
    }
    LS_TRY(status);
    if (store->session.value_bytes > value_bytes) {
        return ls_fail(LS_ERR_INVALID, "the value of %s has %zu bytes, room is for %zu", key,
                       store->session.value_bytes, value_bytes);
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
    LS_TRY(check_sizes(key, 0, 0));
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

ls_status ls_store_compare_and_set(ls_store *store, const char *key, const void *expected,
                                   size_t expected_bytes, const void *value, size_t bytes, bool *set_out)
{
    LS_TRY(check_sizes(key, bytes, expected_bytes));
    LS_TRY(call(store,
                (ls_store_message){.header = {.kind = LS_STORE_SET,
                                              .flags = expected ? LS_STORE_HAS_EXPECTED : 0,
                                              .key_bytes = (uint16_t)strlen(key),
                                              .value_bytes = (uint32_t)bytes,
                                              .expected_bytes = expected ? (uint32_t)expected_bytes : 0},
                                   .key = key,
                                   .value = value,
                                   .expected = expected},
                0));
    if (set_out) {
        *set_out = store->session.number != 0;
    }
    return LS_OK;
}

ls_status ls_store_watch(ls_store *store, const char *prefix, ls_store_changed changed, void *context)
{
    ls_store_session *session = &store->session;
    if (strlen(prefix) > LS_STORE_KEY_BYTES_MAX || session->watch_count == LS_STORE_WATCHES_MAX) {
        return ls_fail(LS_ERR_INVALID, "a prefix has at most %d characters, and a client watches at most %d",
                       LS_STORE_KEY_BYTES_MAX, LS_STORE_WATCHES_MAX);
    }
    LS_TRY(call(store,
                (ls_store_message){.header = {.kind = LS_STORE_WATCH, .key_bytes = (uint16_t)strlen(prefix)},
                                   .key = prefix},
                0));
    store->watchers[session->watch_count].changed = changed;
    store->watchers[session->watch_count].context = context;
    snprintf(session->watches[session->watch_count++], sizeof session->watches[0], "%s", prefix);
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The store's server: a state machine over env/env.h.
 *
 *   link opened ──▶ STRANGER ──hello──▶ CHALLENGED ──proof──▶ MEMBER ──▶ requests
 *                      └── no proof within LS_STORE_HELLO_S, or any other message: closed
 *
 * A session is what the server keeps of a client between two links: its last request and the
 * answer. With it a request that the client repeats on a new link is answered again but not applied
 * again.
 */
#include "base/assert.h"
#include "comm/store/store_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_BUCKETS = 1024, SESSIONS_MAX = 2 * LS_STORE_CLIENTS_MAX };
static const uint64_t SECOND_NS = 1000000000u;

typedef enum client_state { STRANGER, CHALLENGED, MEMBER } client_state;

/* A session, with the answer to its last request other than GET. */
typedef struct session {
    unsigned char id[LS_STORE_SESSION_BYTES];
    bool used;
    /* 0: the link has ended, at gone_ns. */
    ls_env_id link;
    uint64_t gone_ns;
    uint64_t seq;
    ls_status status;
    int64_t number;
    char text[360];
} session;

typedef struct client {
    /* The next client of the bucket. */
    struct client *next;
    struct ls_store_server *server;
    ls_env_id link;
    client_state state;
    ls_env_id hello_timer, get_timer;
    ls_store_exchange exchange;
    session *session;
    /* A GET that waits for its key; get_seq 0: none. */
    uint64_t get_seq;
    char get_key[LS_STORE_KEY_BYTES_MAX];
    uint32_t get_key_bytes;
    /* The link is closed. `left` is called and the client freed later, from the loop. */
    bool ended;
} client;

struct ls_store_server {
    ls_env *env;
    ls_store_server_options options;
    char token[256];
    ls_env_id listener;
    char address[300];
    /* Without clients that have ended. */
    uint32_t client_count, stranger_count;
    ls_env_id sweep_timer;
    client *clients[LINK_BUCKETS];
    session sessions[SESSIONS_MAX];
    ls_store_keys keys;
};

/* ---- clients ---- */

static client *find_client(const ls_store_server *server, ls_env_id link)
{
    client *self = server->clients[link % LINK_BUCKETS];
    while (self && self->link != link) {
        self = self->next;
    }
    return self && !self->ended ? self : NULL;
}

static void free_client(ls_store_server *server, client *self)
{
    client **at = &server->clients[self->link % LINK_BUCKETS];
    while (*at != self) {
        at = &(*at)->next;
    }
    *at = self->next;
    free(self);
}

/* Frees the clients that have ended and calls `left`. */
static void sweep(void *context)
{
    ls_store_server *server = context;
    server->sweep_timer = 0;
    for (uint32_t i = 0; i < LINK_BUCKETS; i++) {
        client *self = server->clients[i];
        while (self) {
            if (!self->ended) {
                self = self->next;
                continue;
            }
            const bool was_member = self->state == MEMBER;
            const ls_env_id link = self->link;
            free_client(server, self);
            if (was_member && server->options.left) {
                server->options.left(server->options.context, link);
            }
            self = server->clients[i]; /* the callback may have changed the list */
        }
    }
}

/* Marks a client whose link is closed. It is freed later, from the loop, because a caller may be
 * iterating over the clients. */
static void end_client(ls_store_server *server, client *self)
{
    self->ended = true;
    server->client_count--;
    server->stranger_count -= self->state != MEMBER;
    ls_env_timer_cancel(server->env, self->hello_timer);
    ls_env_timer_cancel(server->env, self->get_timer);
    if (self->session) {
        self->session->link = 0;
        self->session->gone_ns = ls_env_now_ns(server->env);
    }
    if (!server->sweep_timer) {
        server->sweep_timer = ls_env_timer_set(server->env, 0, sweep, server);
    }
}

static void drop_client(ls_store_server *server, client *self)
{
    if (!self->ended) {
        ls_env_net_close(server->env, self->link);
        end_client(server, self);
    }
}

/* Returns false if the message could not be sent; the client has then ended. */
static bool send_message(client *self, ls_store_message message)
{
    size_t bytes = 0;
    if (self->ended) {
        return false;
    }
    message.header.epoch = self->server->options.epoch;
    unsigned char *data = ls_store_message_write(&message, &bytes);
    const int error = data ? ls_env_net_send(self->server->env, self->link, data, bytes) : -ENOMEM;
    free(data);
    if (error) {
        drop_client(self->server, self);
    }
    return error == 0;
}

/* Sends the reason and closes the link. */
static void refuse(client *self, ls_status status, const char *text)
{
    const size_t bytes = strlen(text);
    send_message(self, (ls_store_message){.header = {.kind = LS_STORE_REFUSED,
                                                     .status = (uint8_t)status,
                                                     .value_bytes = (uint32_t)bytes},
                                          .value = (const unsigned char *)text});
    drop_client(self->server, self);
}

static void reply(client *self, uint64_t seq, ls_status status, int64_t number, const void *value,
                  size_t bytes)
{
    send_message(self, (ls_store_message){.header = {.kind = LS_STORE_REPLY,
                                                     .status = (uint8_t)status,
                                                     .seq = seq,
                                                     .number = number,
                                                     .value_bytes = (uint32_t)bytes},
                                          .value = value});
}

/* ---- hello ---- */

static void hello_late(void *context)
{
    client *self = context;
    self->hello_timer = 0;
    refuse(self, LS_ERR_TIMEOUT, "no greeting arrived in time");
}

/* The session with this id, or a new one. A new one takes a free place, or else that of the session
 * whose link ended first. NULL: all sessions have links. */
static session *find_session(ls_store_server *server, const unsigned char *id)
{
    session *room = NULL;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        session *at = &server->sessions[i];
        if (at->used && memcmp(at->id, id, sizeof at->id) == 0) {
            return at;
        }
        const bool better = !room || (room->used && (!at->used || at->gone_ns < room->gone_ns));
        room = !at->link && better ? at : room;
    }
    if (room) {
        *room = (session){.used = true};
        memcpy(room->id, id, sizeof room->id);
    }
    return room;
}

static void receive_hello(client *self, const ls_store_message *message)
{
    ls_store_exchange *exchange = &self->exchange;
    if (message->header.value_bytes != LS_STORE_SESSION_BYTES + LS_STORE_NONCE_BYTES) {
        refuse(self, LS_ERR_INVALID, "the greeting has the wrong size");
        return;
    }
    if (self->state == STRANGER) {
        *exchange = (ls_store_exchange){.epoch = message->header.epoch};
        memcpy(exchange->identity, message->key, message->header.key_bytes);
        memcpy(exchange->session, message->value, LS_STORE_SESSION_BYTES);
        memcpy(exchange->client_nonce, message->value + LS_STORE_SESSION_BYTES, LS_STORE_NONCE_BYTES);
        for (int i = 0; i < LS_STORE_NONCE_BYTES; i += 8) {
            const uint64_t random = ls_env_random_u64(self->server->env);
            memcpy(exchange->server_nonce + i, &random, 8);
        }
        self->state = CHALLENGED;
    }
    send_message(
        self, (ls_store_message){.header = {.kind = LS_STORE_CHALLENGE, .value_bytes = LS_STORE_NONCE_BYTES},
                                 .value = exchange->server_nonce});
}

static void welcome(client *self)
{
    unsigned char proof[LS_SHA256_BYTES];
    ls_store_proof(&self->exchange, self->server->token, "server", proof);
    send_message(self, (ls_store_message){.header = {.kind = LS_STORE_WELCOME,
                                                     .number = (int64_t)self->session->seq,
                                                     .value_bytes = sizeof proof},
                                          .value = proof});
}

static void admit(client *self)
{
    ls_store_server *server = self->server;
    session *known = find_session(server, self->exchange.session);
    if (!known) {
        refuse(self, LS_ERR_INVALID, "the store has no room for another client");
        return;
    }
    client *before = known->link ? find_client(server, known->link) : NULL;
    if (before) {
        drop_client(server, before); /* the link broke, and so far only the client has noticed */
        sweep(server);
    }
    known->link = self->link;
    self->session = known;
    self->state = MEMBER;
    server->stranger_count--;
    ls_env_timer_cancel(server->env, self->hello_timer);
    self->hello_timer = 0;
    welcome(self);
    if (!self->ended && server->options.came) {
        server->options.came(server->options.context, self->link, self->exchange.identity);
    }
}

static void receive_proof(client *self, const ls_store_message *message)
{
    unsigned char proof[LS_SHA256_BYTES];
    const uint64_t epoch = self->server->options.epoch;
    char text[160];
    ls_store_proof(&self->exchange, self->server->token, "client", proof);
    if (message->header.value_bytes != sizeof proof ||
        !ls_secret_equal(message->value, proof, sizeof proof)) {
        refuse(self, LS_ERR_INVALID,
               "wrong token: give this process the coordinator's token (LOCKSTEP_TOKEN, or the token file)");
    } else if (self->exchange.epoch != epoch && self->exchange.epoch != LS_STORE_EVERY_EPOCH) {
        snprintf(text, sizeof text, "epoch %llu %s: the job is at epoch %llu",
                 (unsigned long long)self->exchange.epoch,
                 self->exchange.epoch < epoch ? "is over" : "has not begun", (unsigned long long)epoch);
        refuse(self, LS_ERR_INVALID, text);
    } else {
        admit(self);
    }
}

/* ---- requests ---- */

/* Answers a request that has been applied, and keeps the answer in case the request is repeated. */
static void answer(client *self, uint64_t seq, ls_status status, int64_t number)
{
    session *kept = self->session;
    kept->seq = seq;
    kept->status = status;
    kept->number = number;
    snprintf(kept->text, sizeof kept->text, "%s", status == LS_OK ? "" : ls_error_text());
    reply(self, seq, status, number, kept->text, strlen(kept->text));
}

static void send_value(client *self, uint64_t seq, const ls_store_entry *entry)
{
    reply(self, seq, LS_OK, 0, entry->value, entry->value_bytes);
}

/* Ends the wait of a client for this key. */
static void answer_waiting(client *self, const ls_store_entry *entry)
{
    if (self->state == MEMBER && !self->ended && self->get_seq && self->get_key_bytes == entry->key_bytes &&
        memcmp(self->get_key, entry->key, entry->key_bytes) == 0) {
        const uint64_t seq = self->get_seq;
        self->get_seq = 0;
        ls_env_timer_cancel(self->server->env, self->get_timer);
        self->get_timer = 0;
        send_value(self, seq, entry);
    }
}

static ls_status put(ls_store_server *server, const char *key, uint32_t key_bytes, const void *value,
                     uint32_t bytes)
{
    if (key_bytes == 0) {
        return ls_fail(LS_ERR_INVALID, "a key of the coordinator's store must have at least one character");
    }
    LS_TRY(ls_store_keys_put(&server->keys, key, key_bytes, value, bytes));
    const ls_store_entry *entry = ls_store_keys_find(&server->keys, key, key_bytes);
    for (uint32_t i = 0; i < LINK_BUCKETS; i++) {
        for (client *self = server->clients[i]; self; self = self->next) {
            answer_waiting(self, entry);
        }
    }
    return LS_OK;
}

static ls_status add(ls_store_server *server, const ls_store_message *message, int64_t *value_out)
{
    const ls_store_entry *entry = ls_store_keys_find(&server->keys, message->key, message->header.key_bytes);
    int64_t value = 0;
    if (entry && entry->value_bytes != sizeof value) {
        return ls_fail(
            LS_ERR_INVALID,
            "key %.*s of the coordinator's store is not a counter: its value has %u bytes instead of 8",
            message->header.key_bytes, message->key, entry->value_bytes);
    }
    if (entry) {
        memcpy(&value, entry->value, sizeof value);
    }
    if (__builtin_add_overflow(value, message->header.number, &value)) {
        return ls_fail(LS_ERR_INVALID, "counter %.*s of the coordinator's store would overflow its 64 bits",
                       message->header.key_bytes, message->key);
    }
    *value_out = value;
    return put(server, message->key, message->header.key_bytes, &value, sizeof value);
}

static void get_late(void *context)
{
    client *self = context;
    const uint64_t seq = self->get_seq;
    self->get_timer = 0;
    self->get_seq = 0;
    reply(self, seq, LS_ERR_TIMEOUT, 0, NULL, 0);
}

static void receive_get(client *self, const ls_store_message *message)
{
    const ls_store_header *header = &message->header;
    const ls_store_entry *entry = ls_store_keys_find(&self->server->keys, message->key, header->key_bytes);
    if (self->get_seq && self->get_seq == header->seq) {
        return; /* a repeated request; the client waits already */
    }
    /* The client no longer waits for an earlier GET. */
    ls_env_timer_cancel(self->server->env, self->get_timer);
    self->get_timer = 0;
    self->get_seq = 0;
    self->session->seq = header->seq > self->session->seq ? header->seq : self->session->seq;
    if (entry) {
        send_value(self, header->seq, entry);
    } else if (header->number <= 0) {
        reply(self, header->seq, LS_ERR_TIMEOUT, 0, NULL, 0);
    } else {
        const int64_t longest_ms = 24 * 3600 * 1000;
        const int64_t wait_ms = header->number < longest_ms ? header->number : longest_ms;
        self->get_seq = header->seq;
        self->get_key_bytes = header->key_bytes;
        memcpy(self->get_key, message->key, header->key_bytes);
        self->get_timer =
            ls_env_timer_set(self->server->env, (uint64_t)wait_ms * (SECOND_NS / 1000), get_late, self);
    }
}

static void receive_change(client *self, const ls_store_message *message)
{
    ls_store_server *server = self->server;
    const ls_store_header *header = &message->header;
    int64_t number = 0;
    const ls_status status = header->kind == LS_STORE_ADD ? add(server, message, &number)
                                                          : put(server, message->key, header->key_bytes,
                                                                message->value, header->value_bytes);
    answer(self, header->seq, status, number);
}

static void receive_request(client *self, const ls_store_message *message)
{
    const uint64_t seq = message->header.seq;
    session *known = self->session;
    if (seq == 0 || seq < known->seq) {
        return; /* an old request that was delayed */
    } else if (message->header.kind == LS_STORE_GET) {
        receive_get(self, message);
    } else if (seq == known->seq) {
        reply(self, seq, known->status, known->number, known->text, strlen(known->text));
    } else {
        receive_change(self, message);
    }
}

static void receive_member(client *self, const ls_store_message *message)
{
    const bool is_timeless = self->exchange.epoch == LS_STORE_EVERY_EPOCH;
    const bool is_request = message->header.kind != LS_STORE_HELLO &&
                            message->header.kind != LS_STORE_PROOF && message->header.kind != LS_STORE_OTHER;
    if (message->header.epoch != (is_timeless ? LS_STORE_EVERY_EPOCH : self->server->options.epoch) ||
        (is_timeless && is_request)) {
        refuse(self, LS_ERR_INVALID, "the message belongs to another epoch");
        return;
    }
    switch (message->header.kind) {
    case LS_STORE_HELLO:
        break; /* a duplicate */
    case LS_STORE_PROOF:
        welcome(self);
        break;
    case LS_STORE_PUT:
    case LS_STORE_GET:
    case LS_STORE_ADD:
        receive_request(self, message);
        break;
    case LS_STORE_OTHER:
        if (self->server->options.other) {
            self->server->options.other(self->server->options.context, self->link, message->value,
                                        message->header.value_bytes);
            break;
        }
        refuse(self, LS_ERR_INVALID, "this store has no coordinator to which messages could go");
        break;
    default:
        refuse(self, LS_ERR_INVALID, "the message is not one that a server accepts");
        break;
    }
}

/* ---- links ---- */

static void link_opened(void *context, ls_env_id link)
{
    ls_store_server *server = context;
    client *self = calloc(1, sizeof *self);
    if (!self) {
        ls_env_net_close(server->env, link);
        return;
    }
    *self = (client){.server = server, .link = link, .next = server->clients[link % LINK_BUCKETS]};
    server->clients[link % LINK_BUCKETS] = self;
    server->client_count++;
    server->stranger_count++;
    if (server->client_count > LS_STORE_CLIENTS_MAX || server->stranger_count > LS_STORE_STRANGERS_MAX) {
        refuse(self, LS_ERR_TIMEOUT, "the store has reached its limit of clients");
        return;
    }
    self->hello_timer = ls_env_timer_set(server->env, LS_STORE_HELLO_S * SECOND_NS, hello_late, self);
}

static void link_received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    ls_store_server *server = context;
    client *self = find_client(server, link);
    ls_store_message message;
    if (!self) {
        return;
    }
    if (ls_store_message_parse(data, bytes, &message) != LS_OK) {
        refuse(self, LS_ERR_INVALID, ls_error_text());
    } else if (self->state == MEMBER) {
        receive_member(self, &message);
    } else if (message.header.kind == LS_STORE_HELLO) {
        receive_hello(self, &message);
    } else if (message.header.kind == LS_STORE_PROOF && self->state == CHALLENGED) {
        receive_proof(self, &message);
    } else {
        refuse(self, LS_ERR_INVALID, "the first message must be a greeting");
    }
}

static void link_closed(void *context, ls_env_id link, int error)
{
    (void)error;
    ls_store_server *server = context;
    client *self = find_client(server, link);
    if (self) {
        end_client(server, self);
    }
}

/* ---- server ---- */

static bool is_private(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 || strncmp(address, "127.", 4) == 0 ||
           strncmp(address, "localhost:", 10) == 0 || strncmp(address, "[::1]:", 6) == 0;
}

/* Finds a port that is free now on the host of `address`; "" if there is none. */
static void find_free_port(ls_env *env, const char *address, const ls_env_link_events *events, char out[16])
{
    char other[300];
    ls_env_id listener = 0;
    const char *colon = strrchr(address, ':');
    out[0] = '\0';
    snprintf(other, sizeof other, "%.*s:0", (int)(colon - address), address);
    if (ls_env_net_listen(env, other, events, &listener) == 0) {
        snprintf(out, 16, "%s", strrchr(ls_env_net_address(env, listener), ':') + 1);
        ls_env_net_close(env, listener);
    }
}

static ls_status fail_listen(ls_env *env, int error, const char *address, const ls_env_link_events *events)
{
    char free_port[16];
    if (error == -EADDRINUSE && strncmp(address, "unix:", 5) == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "can't serve the run's rendezvous store at %s: the socket exists; remove it if no "
                       "process uses it",
                       address);
    }
    if (error == -EADDRINUSE) {
        find_free_port(env, address, events, free_port);
        return ls_fail(LS_ERR_INVALID,
                       "can't serve the run's rendezvous store at %s: port %s is taken by another program "
                       "(find it with ss -ltnp); choose another%s%s, or 0 for any free port",
                       address, strrchr(address, ':') + 1, free_port[0] ? ", for instance " : "", free_port);
    }
    if (error == -EINVAL) {
        return ls_fail(LS_ERR_INVALID,
                       "can't serve the run's rendezvous store at '%s': give HOST:PORT with the host as a "
                       "number, or unix:PATH",
                       address);
    }
    return ls_fail(LS_ERR_INVALID, "can't serve the run's rendezvous store at %s: %s", address,
                   strerror(-error));
}

ls_status ls_store_server_open(ls_env *env, const ls_store_server_options *options,
                               ls_store_server **server_out)
{
    LS_ASSERT(env && options && options->address && server_out);
    const char *token = options->token ? options->token : "";
    ls_store_server *server = NULL;
    if (token[0] == '\0' && !is_private(options->address)) {
        return ls_fail(
            LS_ERR_INVALID,
            "no token: without a token the run's rendezvous store is served only on this host (127.0.0.1 or "
            "unix:PATH), not at %s; set LOCKSTEP_TOKEN on all hosts",
            options->address);
    }
    if (strlen(token) >= sizeof server->token || strlen(options->address) >= sizeof server->address) {
        return ls_fail(LS_ERR_INVALID,
                       "the token (shared secret) or the address of the run's rendezvous store is too long: "
                       "up to %zu characters always fit",
                       sizeof server->token - 1);
    }
    server = calloc(1, sizeof *server);
    if (!server) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the coordinator's store (%zu bytes)",
                       sizeof *server);
    }
    server->env = env;
    server->options = *options;
    snprintf(server->token, sizeof server->token, "%s", token);
    server->options.token = server->token;
    const ls_env_link_events events = {
        .context = server, .opened = link_opened, .received = link_received, .closed = link_closed};
    const int error = ls_env_net_listen(env, options->address, &events, &server->listener);
    if (error) {
        free(server);
        return fail_listen(env, error, options->address, &events);
    }
    snprintf(server->address, sizeof server->address, "%s", ls_env_net_address(env, server->listener));
    server->options.address = server->address;
    *server_out = server;
    return LS_OK;
}

void ls_store_server_close(ls_store_server *server)
{
    if (!server) {
        return;
    }
    ls_env_net_close(server->env, server->listener);
    ls_env_timer_cancel(server->env, server->sweep_timer);
    for (uint32_t i = 0; i < LINK_BUCKETS; i++) {
        while (server->clients[i]) {
            client *self = server->clients[i];
            if (!self->ended) {
                ls_env_net_close(server->env, self->link);
                ls_env_timer_cancel(server->env, self->hello_timer);
                ls_env_timer_cancel(server->env, self->get_timer);
            }
            free_client(server, self);
        }
    }
    ls_store_keys_clear(&server->keys);
    free(server);
}

const char *ls_store_server_address(const ls_store_server *server)
{
    return server->address;
}

void ls_store_server_set_epoch(ls_store_server *server, uint64_t epoch)
{
    char text[100];
    snprintf(text, sizeof text, "epoch %llu is over: the job is at epoch %llu",
             (unsigned long long)server->options.epoch, (unsigned long long)epoch);
    server->options.epoch = epoch;
    for (uint32_t i = 0; i < LINK_BUCKETS; i++) {
        for (client *self = server->clients[i]; self; self = self->next) {
            self->session = NULL;
            if (self->exchange.epoch != LS_STORE_EVERY_EPOCH) {
                refuse(self, LS_ERR_INVALID, text);
            }
        }
    }
    memset(server->sessions, 0, sizeof server->sessions);
    ls_store_keys_clear(&server->keys);
}

int ls_store_server_send(ls_store_server *server, uint64_t link, const void *data, size_t bytes)
{
    const client *self = find_client(server, link);
    if (!self || self->state != MEMBER) {
        return -ENOTCONN;
    }
    if (bytes > LS_STORE_VALUE_BYTES_MAX) {
        return -EMSGSIZE;
    }
    size_t message_bytes = 0;
    unsigned char *message =
        ls_store_message_write(&(ls_store_message){.header = {.kind = LS_STORE_OTHER,
                                                              .epoch = server->options.epoch,
                                                              .value_bytes = (uint32_t)bytes},
                                                   .value = data},
                               &message_bytes);
    const int error = message ? ls_env_net_send(server->env, link, message, message_bytes) : -ENOMEM;
    free(message);
    return error;
}

void ls_store_server_refuse(ls_store_server *server, uint64_t link, const char *reason)
{
    client *self = find_client(server, link);
    if (self) {
        refuse(self, LS_ERR_INVALID, reason);
    }
}

const void *ls_store_server_find(const ls_store_server *server, const char *key, size_t *bytes_out)
{
    const ls_store_entry *entry = ls_store_keys_find(&server->keys, key, (uint32_t)strlen(key));
    if (entry && bytes_out) {
        *bytes_out = entry->value_bytes;
    }
    return entry ? entry->value : NULL;
}

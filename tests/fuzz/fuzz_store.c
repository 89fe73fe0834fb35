// SPDX-License-Identifier: Apache-2.0
/*
 * The store: its message parser on arbitrary bytes, and a whole server over the simulated network
 * that gets arbitrary messages, from a stranger and from a client that has proved the token.
 *
 * Input: a sequence of (selector, length low, length high, bytes). Even selector: the stranger
 * sends the bytes as a message; odd: the member sends them with a header that is made valid
 * except for kind, flags, lengths and number, so that most reach the requests.
 */
#include "base/assert.h"
#include "comm/store/store_session.h"
#include "sim/env/sim_env.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MESSAGES_MAX = 64, EPOCH = 7 };
static const char TOKEN[] = "00112233445566778899aabbccddeeff";

typedef struct world {
    const uint8_t *data;
    size_t bytes;
    ls_env *env;
    ls_store_server *server;
    ls_env_id links[2]; /* stranger, member */
    ls_store_session session;
    unsigned sent;
    int came, left;
} world;

static void on_came(void *context, uint64_t client, const char *identity)
{
    (void)client;
    LS_ASSERT(strcmp(identity, "member") == 0);
    ((world *)context)->came++;
}

static void on_left(void *context, uint64_t client)
{
    (void)client;
    ((world *)context)->left++;
}

static void on_other(void *context, uint64_t client, const void *data, size_t bytes)
{
    world *self = context;
    LS_ASSERT(bytes <= LS_STORE_VALUE_BYTES_MAX);
    (void)ls_store_server_send(self->server, client, data, bytes);
}

static void server_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *self = context;
    const ls_store_server_options options = {.address = "a:7000",
                                             .token = TOKEN,
                                             .epoch = EPOCH,
                                             .other = on_other,
                                             .came = on_came,
                                             .left = on_left,
                                             .context = self};
    LS_ASSERT(ls_store_server_open(env, &options, &self->server) == LS_OK);
}

static void send_as_member(world *self, const uint8_t *data, size_t bytes)
{
    uint8_t message[sizeof(ls_store_header) + 65536];
    ls_store_header header = {0};
    memcpy(message, data, bytes);
    if (bytes >= sizeof header) {
        memcpy(&header, data, sizeof header);
        header.magic = LS_STORE_MAGIC;
        header.version = LS_STORE_VERSION;
        header.kind %= LS_STORE_KIND_END;
        header.reserved = 0;
        header.reserved_too[0] = header.reserved_too[1] = 0;
        header.epoch = EPOCH;
        header.seq = self->sent + (header.seq % 3); /* new, the same, or skipping */
        const uint32_t rest = (uint32_t)(bytes - sizeof header);
        header.key_bytes = (uint16_t)(header.key_bytes % 8 < rest ? header.key_bytes % 8 : rest);
        header.value_bytes = rest - header.key_bytes;
        memcpy(message, &header, sizeof header);
    }
    (void)ls_env_net_send(self->env, self->links[1], message, bytes);
}

static void send_inputs(void *context)
{
    world *self = context;
    size_t at = 0;
    for (; at + 3 <= self->bytes && self->sent < MESSAGES_MAX; self->sent++) {
        size_t bytes = self->data[at + 1] | (size_t)self->data[at + 2] << 8;
        const bool as_member = self->data[at] & 1;
        at += 3;
        bytes = bytes < self->bytes - at ? bytes : self->bytes - at;
        if (as_member) {
            send_as_member(self, self->data + at, bytes);
        } else {
            (void)ls_env_net_send(self->env, self->links[0], self->data + at, bytes);
        }
        at += bytes;
    }
}

static int member_send(void *context, const void *data, size_t bytes)
{
    const world *self = context;
    return ls_env_net_send(self->env, self->links[1], data, bytes);
}

static void opened(void *context, ls_env_id link)
{
    static const unsigned char nonce[LS_STORE_NONCE_BYTES] = {1};
    world *self = context;
    if (link == self->links[1]) {
        ls_store_session_opened(&self->session, nonce);
    }
}

/* Every message of the server is well formed, whatever the server received. */
static void received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    world *self = context;
    ls_store_message message;
    LS_ASSERT(ls_store_message_parse(data, bytes, &message) == LS_OK);
    if (link == self->links[1] && self->sent == 0) {
        const ls_status status = ls_store_session_received(&self->session, data, bytes);
        LS_ASSERT(status == LS_OK);
        if (ls_store_session_is_ready(&self->session)) {
            ls_env_timer_set(self->env, 1000, send_inputs, self);
        }
    }
}

static void closed(void *context, ls_env_id link, int error)
{
    (void)error;
    world *self = context;
    self->links[link == self->links[1]] = 0;
}

static void client_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *self = context;
    static const unsigned char id[LS_STORE_SESSION_BYTES] = {9};
    const ls_env_link_events events = {
        .context = self, .opened = opened, .received = received, .closed = closed};
    self->env = env;
    LS_ASSERT(ls_store_session_init(&self->session, TOKEN, EPOCH, "member", id) == LS_OK);
    self->session.send = member_send;
    self->session.context = self;
    self->links[0] = ls_env_net_connect(env, "a:7000", &events);
    self->links[1] = ls_env_net_connect(env, "a:7000", &events);
}

static void run_world(const uint8_t *data, size_t bytes)
{
    world self = {.data = data, .bytes = bytes};
    const uint64_t minute_ns = 60000000000u;
    ls_sim *sim = ls_sim_create(&(ls_sim_settings){.seed = 1});
    ls_sim_start(sim, ls_sim_host_add(sim, "a"), server_program, &self);
    ls_sim_start(sim, ls_sim_host_add(sim, "b"), client_program, &self);
    LS_ASSERT(ls_sim_run(sim, minute_ns, 100000) < 100000);
    /* the stranger's time was up */
    LS_ASSERT(self.came == 1 && self.left <= 1 && self.links[0] == 0);
    ls_store_server_close(self.server);
    ls_store_session_release(&self.session);
    ls_sim_destroy(sim);
}

static void parse_alone(const uint8_t *data, size_t bytes)
{
    ls_store_message message;
    ls_error_clear();
    if (ls_store_message_parse(data, bytes, &message) != LS_OK) {
        LS_ASSERT(ls_error_text()[0] != '\0');
        return;
    }
    size_t again_bytes = 0;
    unsigned char *again = ls_store_message_write(&message, &again_bytes);
    LS_ASSERT(again && again_bytes == bytes && memcmp(again, data, bytes) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    parse_alone(data, bytes);
    run_world(data, bytes);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A world for the store: its server and its clients' sessions in the simulated network. Each
 * request is applied once, and each client ends with its work done. Before including this file,
 * define CHECK(seed, condition), which must not return when the condition is false.
 */
#ifndef LS_TESTS_EXECUTION_STORE_WORLD_H
#define LS_TESTS_EXECUTION_STORE_WORLD_H

#include "comm/store/store_session.h"
#include "sim/env/sim_env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define S  (1000 * MS)

enum { CLIENTS = 5, ADDS = 20 };

static const char TOKEN[] = "00112233445566778899aabbccddeeff";

/* ---- server ---- */

typedef struct sim_server {
    ls_store_server *server;
    uint64_t epoch;
    int members, came, left;
    unsigned others;
} sim_server;

static void on_came(void *context, uint64_t client, const char *identity)
{
    (void)client;
    sim_server *self = context;
    CHECK(0, memcmp(identity, "client ", 7) == 0);
    self->came++;
}

static void on_left(void *context, uint64_t client)
{
    (void)client;
    ((sim_server *)context)->left++;
}

static void on_other(void *context, uint64_t client, const void *data, size_t bytes)
{
    sim_server *self = context;
    self->others++;
    /* -ENOTCONN if the client has just left */
    (void)ls_store_server_send(self->server, client, data, bytes);
}

static void server_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    sim_server *self = context;
    const ls_store_server_options options = {.address = "a:7000",
                                             .token = TOKEN,
                                             .epoch = self->epoch,
                                             .other = on_other,
                                             .came = on_came,
                                             .left = on_left,
                                             .context = self};
    CHECK(0, ls_store_server_open(env, &options, &self->server) == LS_OK);
}

/* ---- clients ---- */

typedef struct sim_client {
    ls_env *env;
    ls_store_session session;
    ls_env_id link;
    int id, done; /* adds answered */
    unsigned others, links, silent_looks;
    ls_status status;
    char text[300];
    uint64_t seed;
} sim_client;

static const ls_env_link_events *client_events(sim_client *self);

static int client_send(void *context, const void *data, size_t bytes)
{
    sim_client *self = context;
    return ls_env_net_send(self->env, self->link, data, bytes);
}

static void client_other(void *context, const void *data, size_t bytes)
{
    (void)data, (void)bytes;
    ((sim_client *)context)->others++;
}

static void next_request(sim_client *self)
{
    char key[32];
    if (self->done == ADDS) {
        return;
    }
    /* Every second request waits for the key of the one before: a get must not disturb the
     * count. */
    const bool is_get = self->session.seq % 2 == 1;
    snprintf(key, sizeof key, "count/%d", self->id);
    const ls_store_message message = {.header = {.kind = is_get ? LS_STORE_GET : LS_STORE_ADD,
                                                 .key_bytes = (uint16_t)strlen(key),
                                                 .number = is_get ? 1000 : 1},
                                      .key = key};
    CHECK(0, ls_store_session_request(&self->session, message) == LS_OK);
}

static void check_answer(sim_client *self)
{
    const bool was_get = self->session.seq % 2 == 0;
    CHECK(self->seed, self->session.status == LS_OK);
    if (was_get) {
        int64_t value = 0;
        CHECK(self->seed, self->session.value_bytes == sizeof value);
        memcpy(&value, self->session.value, sizeof value);
        CHECK(self->seed, value == self->done);
    } else {
        self->done++;
        CHECK(self->seed, self->session.number == self->done); /* once each */
    }
}

static void client_opened(void *context, ls_env_id link)
{
    sim_client *self = context;
    unsigned char nonce[LS_STORE_NONCE_BYTES];
    self->link = link;
    self->links++;
    for (int i = 0; i < LS_STORE_NONCE_BYTES; i += 8) {
        const uint64_t random = ls_env_random_u64(self->env);
        memcpy(nonce + i, &random, 8);
    }
    ls_store_session_opened(&self->session, nonce);
}

static void client_received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    sim_client *self = context;
    const bool was_answered = ls_store_session_is_answered(&self->session);
    self->silent_looks = 0;
    if (link != self->link || self->status != LS_OK) {
        return;
    }
    self->status = ls_store_session_received(&self->session, data, bytes);
    if (self->status != LS_OK) {
        snprintf(self->text, sizeof self->text, "%s", ls_error_text());
        ls_env_net_close(self->env, link);
        self->link = 0;
        return;
    }
    if (ls_store_session_is_answered(&self->session) && ls_store_session_is_ready(&self->session)) {
        if (!was_answered) {
            check_answer(self);
        }
        if (!was_answered || self->session.seq == 0) {
            next_request(self);
        }
    }
}

static void client_closed(void *context, ls_env_id link, int error)
{
    sim_client *self = context;
    (void)error;
    if (link == self->link) {
        self->link = 0;
        ls_store_session_lost(&self->session);
    }
}

/* Every 200 ms: opens a link if there is none; gives up one on which nothing arrives, because a
 * message was lost, and now and then another. */
static void client_look(void *context)
{
    sim_client *self = context;
    if (self->status != LS_OK || self->done == ADDS) {
        return;
    }
    if (self->link && (++self->silent_looks > 2 || ls_env_random_u64(self->env) % 20 == 0)) {
        ls_env_net_close(self->env, self->link);
        self->link = 0;
        ls_store_session_lost(&self->session);
    }
    if (!self->link) {
        self->silent_looks = 0;
        self->link = ls_env_net_connect(self->env, "a:7000", client_events(self));
    } else {
        (void)ls_store_session_send_other(&self->session, "hello", 5);
    }
    ls_env_timer_set(self->env, 200 * MS, client_look, self);
}

static ls_env_link_events events_now;

static const ls_env_link_events *client_events(sim_client *self)
{
    events_now = (ls_env_link_events){
        .context = self, .opened = client_opened, .received = client_received, .closed = client_closed};
    return &events_now;
}

static void client_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    sim_client *self = context;
    unsigned char id[LS_STORE_SESSION_BYTES] = {(unsigned char)(self->id + 1)};
    char identity[32];
    self->env = env;
    snprintf(identity, sizeof identity, "client %d", self->id);
    CHECK(0, ls_store_session_init(&self->session, TOKEN, 7, identity, id) == LS_OK);
    self->session.send = client_send;
    self->session.other = client_other;
    self->session.context = self;
    client_look(self);
}

/* ---- worlds ---- */

typedef struct world {
    ls_sim *sim;
    ls_sim_host server_host, hosts[CLIENTS];
    sim_server server;
    sim_client clients[CLIENTS];
} world;

static inline world *make_world(uint64_t seed, const ls_sim_settings *settings, uint64_t epoch)
{
    world *w = calloc(1, sizeof *w);
    CHECK(seed, w);
    w->sim = ls_sim_create(settings);
    w->server.epoch = epoch;
    w->server_host = ls_sim_host_add(w->sim, "a");
    ls_sim_start(w->sim, w->server_host, server_program, &w->server);
    for (int i = 0; i < CLIENTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", i);
        w->hosts[i] = ls_sim_host_add(w->sim, name);
        w->clients[i].id = i;
        w->clients[i].seed = seed;
        ls_sim_start(w->sim, w->hosts[i], client_program, &w->clients[i]);
    }
    return w;
}

static void end_world(world *w)
{
    ls_store_server_close(w->server.server);
    for (int i = 0; i < CLIENTS; i++) {
        ls_store_session_release(&w->clients[i].session);
    }
    ls_sim_destroy(w->sim);
    free(w);
}

static bool all_done(const world *w)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (w->clients[i].done < ADDS && w->clients[i].status == LS_OK) {
            return false;
        }
    }
    return true;
}

static void check_counts(const world *w, uint64_t seed)
{
    for (int i = 0; i < CLIENTS; i++) {
        char key[32];
        size_t bytes = 0;
        int64_t value = 0;
        snprintf(key, sizeof key, "count/%d", i);
        const void *there = ls_store_server_find(w->server.server, key, &bytes);
        CHECK(seed, w->clients[i].status == LS_OK);
        CHECK(seed, there && bytes == sizeof value);
        memcpy(&value, there, sizeof value);
        CHECK(seed, value == ADDS);
    }
    CHECK(seed, w->server.came >= CLIENTS);
    CHECK(seed, w->server.came - w->server.left <= CLIENTS);
}

static inline void run_with_faults(uint64_t seed, const ls_sim_settings *settings, bool cuts)
{
    world *w = make_world(seed, settings, 7);
    bool cut[CLIENTS] = {false};
    for (int i = 0; i < 4000 && !all_done(w); i++) {
        ls_sim_run(w->sim, ls_sim_now_ns(w->sim) + 50 * MS, 1000000);
        const uint64_t random = ls_sim_random_u64(w->sim);
        const unsigned at = (unsigned)(random >> 8) % CLIENTS;
        if (cuts && random % 8 == 0) {
            cut[at] = !cut[at];
            ls_sim_cut(w->sim, w->server_host, w->hosts[at], cut[at]);
        }
    }
    CHECK(seed, all_done(w));
    check_counts(w, seed);
    end_world(w);
}

/* A new epoch while clients work: all are refused, their keys are removed, and each `came` has its
 * `left`. */
static inline void run_with_new_epoch(uint64_t seed, const ls_sim_settings *settings)
{
    world *w = make_world(seed, settings, 7);
    ls_sim_run(w->sim, 20 * MS + ls_sim_random_u64(w->sim) % (50 * MS), 1000000);
    ls_store_server_set_epoch(w->server.server, 8);
    CHECK(seed, !ls_store_server_find(w->server.server, "count/0", NULL));
    ls_sim_run(w->sim, 20 * S, 1000000);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(seed, w->clients[i].status != LS_OK || w->clients[i].done == ADDS);
        CHECK(seed, w->clients[i].status == LS_OK || strstr(w->clients[i].text, "the job is at epoch 8"));
    }
    CHECK(seed, w->server.came == w->server.left);
    end_world(w);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * A small state machine that the tests run unmodified on the real and on the simulated env: a
 * counter that is committed to disk and told to a peer. It is also the shortest example of how to
 * write against env/env.h.
 */
#ifndef LS_TESTS_BASE_ENV_MACHINE_H
#define LS_TESTS_BASE_ENV_MACHINE_H

#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- commit: write a temporary file, sync, rename, sync the folder (invariant I4) ---- */

typedef struct commit {
    ls_env *env;
    char folder[128], temporary[160], final[160];
    char text[32];
    size_t bytes, written;
    int64_t file;
    int64_t error; /* 0 until something failed */
    void (*finished)(void *context, int64_t result);
    void *context;
} commit;

static void commit_finish(commit *self, int64_t result)
{
    self->finished(self->context, result);
}

static void commit_dir_synced(void *context, int64_t result)
{
    commit_finish(context, result);
}

static void commit_renamed(void *context, int64_t result)
{
    commit *self = context;
    if (result < 0) {
        commit_finish(self, result);
        return;
    }
    ls_env_disk_sync_dir(self->env, self->folder, commit_dir_synced, self);
}

static void commit_closed(void *context, int64_t result)
{
    commit *self = context;
    self->error = self->error ? self->error : result < 0 ? result : 0;
    if (self->error) {
        commit_finish(self, self->error);
        return;
    }
    ls_env_disk_rename(self->env, self->temporary, self->final, commit_renamed, self);
}

static void commit_synced(void *context, int64_t result)
{
    commit *self = context;
    self->error = result < 0 ? result : 0;
    ls_env_disk_close(self->env, self->file, commit_closed, self);
}

static void commit_wrote(void *context, int64_t result)
{
    commit *self = context;
    if (result < 0) {
        self->error = result;
        ls_env_disk_close(self->env, self->file, commit_closed, self);
        return;
    }
    self->written += (size_t)result;
    if (self->written < self->bytes) { /* a short write is no error: go on */
        ls_env_disk_write(self->env, self->file, self->text + self->written, self->bytes - self->written,
                          self->written, commit_wrote, self);
        return;
    }
    ls_env_disk_sync(self->env, self->file, commit_synced, self);
}

static void commit_opened(void *context, int64_t result)
{
    commit *self = context;
    if (result < 0) {
        commit_finish(self, result);
        return;
    }
    self->file = result;
    ls_env_disk_write(self->env, self->file, self->text, self->bytes, 0, commit_wrote, self);
}

/* Writes `value` to folder/counter so that a reader sees the old value or the new one. */
static void commit_start(commit *self, ls_env *env, const char *folder, unsigned value,
                         void (*finished)(void *, int64_t), void *context)
{
    *self = (commit){.env = env, .finished = finished, .context = context};
    snprintf(self->folder, sizeof self->folder, "%s", folder);
    snprintf(self->temporary, sizeof self->temporary, "%s/counter.tmp", folder);
    snprintf(self->final, sizeof self->final, "%s/counter", folder);
    self->bytes = (size_t)snprintf(self->text, sizeof self->text, "value %010u ok", value);
    ls_env_disk_open(env, self->temporary, LS_ENV_CREATE, commit_opened, self);
}

/* ---- load: what a restart finds ---- */

typedef struct load {
    ls_env *env;
    char text[32];
    int64_t file, got;
    /* value: -1 when there is none, -2 when it is torn. */
    void (*finished)(void *context, int64_t value);
    void *context;
} load;

static void load_closed(void *context, int64_t result)
{
    (void)result;
    load *self = context;
    unsigned value = 0;
    char ok[3] = "";
    const bool whole =
        self->got == 19 && sscanf(self->text, "value %u %2s", &value, ok) == 2 && strcmp(ok, "ok") == 0;
    self->finished(self->context, whole ? (int64_t)value : -2);
}

static void load_read(void *context, int64_t result)
{
    load *self = context;
    self->got = result;
    ls_env_disk_close(self->env, self->file, load_closed, self);
}

static void load_opened(void *context, int64_t result)
{
    load *self = context;
    if (result < 0) {
        self->finished(self->context, result == -ENOENT ? -1 : result);
        return;
    }
    self->file = result;
    ls_env_disk_read(self->env, self->file, self->text, sizeof self->text - 1, 0, load_read, self);
}

static void load_start(load *self, ls_env *env, const char *folder, void (*finished)(void *, int64_t),
                       void *context)
{
    char path[160];
    *self = (load){.env = env, .finished = finished, .context = context};
    snprintf(path, sizeof path, "%s/counter", folder);
    ls_env_disk_open(env, path, LS_ENV_READ, load_opened, self);
}

/* ---- a client that counts up at a server, whatever the network does ---- */

enum { MACHINE_RETRY_NS = 20 * 1000 * 1000 };

/* Server: answers every number with the same number and remembers the largest. */
typedef struct echo_server {
    ls_env *env;
    ls_env_id listener;
    unsigned largest;
    unsigned links;
} echo_server;

static void server_opened(void *context, ls_env_id link)
{
    (void)link;
    ((echo_server *)context)->links++;
}

static void server_received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    echo_server *self = context;
    unsigned number = 0;
    if (bytes == sizeof number) {
        memcpy(&number, data, sizeof number);
        self->largest = number > self->largest ? number : self->largest;
        (void)ls_env_net_send(self->env, link, data, bytes); /* lost answers are asked for again */
    }
}

static void server_closed(void *context, ls_env_id link, int error)
{
    (void)context;
    (void)link;
    (void)error;
}

static int server_start(echo_server *self, ls_env *env, const char *address)
{
    *self = (echo_server){.env = env};
    const ls_env_link_events events = {self, server_opened, server_received, server_closed};
    return ls_env_net_listen(env, address, &events, &self->listener);
}

/* Client: sends 1, waits for the answer 1, sends 2, ... up to `goal`. Sends again and connects
 * again after a silence. */
typedef struct counter_client {
    ls_env *env;
    char address[160];
    ls_env_id link, timer;
    bool connected;
    unsigned number, goal;
    unsigned retries;
    void (*finished)(void *context);
    void *context;
} counter_client;

static void client_connect(counter_client *self);

static void client_send(counter_client *self)
{
    if (self->connected) {
        (void)ls_env_net_send(self->env, self->link, &self->number, sizeof self->number);
    }
}

static void client_retry(void *context)
{
    counter_client *self = context;
    self->retries++;
    if (self->retries % 3 == 0) { /* silent for long: a new link */
        ls_env_net_close(self->env, self->link);
        self->connected = false;
        client_connect(self);
    } else {
        client_send(self);
    }
    self->timer = ls_env_timer_set(self->env, MACHINE_RETRY_NS, client_retry, self);
}

static void client_opened(void *context, ls_env_id link)
{
    counter_client *self = context;
    if (link == self->link) {
        self->connected = true;
        client_send(self);
    }
}

static void client_received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    counter_client *self = context;
    unsigned answer = 0;
    (void)link;
    if (bytes != sizeof answer) {
        return;
    }
    memcpy(&answer, data, sizeof answer);
    if (answer != self->number) {
        return; /* an answer that came twice or late */
    }
    if (self->number == self->goal) {
        ls_env_timer_cancel(self->env, self->timer);
        ls_env_net_close(self->env, self->link);
        self->finished(self->context);
        return;
    }
    self->number++;
    client_send(self);
}

static void client_closed(void *context, ls_env_id link, int error)
{
    counter_client *self = context;
    (void)error;
    if (link == self->link) {
        self->connected = false; /* the timer connects again */
        self->retries = 2;
    }
}

static void client_connect(counter_client *self)
{
    const ls_env_link_events events = {self, client_opened, client_received, client_closed};
    self->link = ls_env_net_connect(self->env, self->address, &events);
}

static void client_start(counter_client *self, ls_env *env, const char *address, unsigned goal,
                         void (*finished)(void *), void *context)
{
    *self = (counter_client){.env = env, .number = 1, .goal = goal, .finished = finished, .context = context};
    snprintf(self->address, sizeof self->address, "%s", address);
    client_connect(self);
    self->timer = ls_env_timer_set(env, MACHINE_RETRY_NS, client_retry, self);
}

#endif

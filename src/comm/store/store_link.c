// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_link.h"

#include "base/log.h"
#include "comm/store/store_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t PAUSE_NS = 100 * 1000 * 1000, TIMEOUT_NS = 60 * UINT64_C(1000000000);
static const uint64_t LOG_NS = 2 * UINT64_C(1000000000), LOG_AGAIN_NS = 20 * UINT64_C(1000000000);

struct ls_store_link {
    ls_store_link_options options;
    char address[300];
    ls_store_session session;
    ls_env_id link, again_timer, late_timer, log_timer;
    uint64_t deadline_ns, pause_ns;
    bool connected, ready, over;
    /* How the last attempt ended; 0: the connection was closed. */
    int last_error;
};

static void begin_attempt(void *context);

static void end_link(ls_store_link *self)
{
    self->over = true;
    ls_env_timer_cancel(self->options.env, self->again_timer);
    ls_env_timer_cancel(self->options.env, self->late_timer);
    ls_env_timer_cancel(self->options.env, self->log_timer);
    if (self->link) {
        ls_env_net_close(self->options.env, self->link);
        self->link = 0;
    }
}

static void lose(ls_store_link *self, ls_status status, const char *text)
{
    char copy[600];
    snprintf(copy, sizeof copy, "%s", text);
    end_link(self);
    self->options.lost(self->options.context, status, copy);
}

/* Why the link is not ready yet. */
static const char *find_reason(const ls_store_link *self)
{
    return self->connected    ? "it accepted the connection but does not answer: is it lockstep's port?"
           : self->last_error ? strerror(-self->last_error)
           : self->link       ? "no answer yet"
                              : "it closed the connection during the hello";
}

static void log_waiting(void *context)
{
    ls_store_link *self = context;
    const uint64_t now_ns = ls_env_now_ns(self->options.env);
    ls_log_warn("waiting for the coordinator at %s, which is 'lockstep train': %s (%.0f s left)",
                self->address, find_reason(self),
                now_ns < self->deadline_ns ? 1e-9 * (double)(self->deadline_ns - now_ns) : 0.0);
    self->log_timer = ls_env_timer_set(self->options.env, LOG_AGAIN_NS, log_waiting, self);
}

static void too_late(void *context)
{
    ls_store_link *self = context;
    char text[500];
    self->late_timer = 0;
    snprintf(text, sizeof text, "no coordinator at %s within %.0f s (%s)", self->address,
             1e-9 * (double)self->options.timeout_ns, find_reason(self));
    lose(self, LS_ERR_TIMEOUT, text);
}

static int send_message(void *context, const void *data, size_t bytes)
{
    ls_store_link *self = context;
    return ls_env_net_send(self->options.env, self->link, data, bytes);
}

static void pass_on(void *context, const void *data, size_t bytes)
{
    ls_store_link *self = context;
    self->options.received(self->options.context, data, bytes);
}

static void opened(void *context, ls_env_id link)
{
    ls_store_link *self = context;
    unsigned char nonce[LS_STORE_NONCE_BYTES];
    for (int i = 0; i < LS_STORE_NONCE_BYTES; i += 8) {
        const uint64_t random = ls_env_random_u64(self->options.env);
        memcpy(nonce + i, &random, 8);
    }
    self->link = link;
    self->connected = true;
    ls_store_session_opened(&self->session, nonce);
}

static void received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    ls_store_link *self = context;
    (void)link;
    if (self->over) {
        return;
    }
    const ls_status status = ls_store_session_received(&self->session, data, bytes);
    if (status == LS_ERR_TIMEOUT) {
        return; /* the server is full now and closes the link; a later attempt may succeed */
    }
    if (status != LS_OK) {
        lose(self, status, ls_error_text());
        return;
    }
    if (!self->ready && ls_store_session_is_ready(&self->session)) {
        self->ready = true;
        ls_env_timer_cancel(self->options.env, self->late_timer);
        ls_env_timer_cancel(self->options.env, self->log_timer);
        self->late_timer = self->log_timer = 0;
        self->options.ready(self->options.context);
    }
}

static void closed(void *context, ls_env_id link, int error)
{
    ls_store_link *self = context;
    char text[400];
    (void)link;
    self->link = 0;
    self->connected = false;
    self->last_error = error;
    if (self->ready) {
        snprintf(text, sizeof text, "the coordinator at %s went away (%s)", self->address,
                 error ? strerror(-error) : "it closed the connection");
        lose(self, LS_ERR_RANKS_LOST, text);
        return;
    }
    ls_store_session_lost(&self->session);
    self->again_timer = ls_env_timer_set(self->options.env, self->pause_ns, begin_attempt, self);
    self->pause_ns = 2 * self->pause_ns < self->options.pause_ns_max ? 2 * self->pause_ns
                     : self->options.pause_ns_max > 0                ? self->options.pause_ns_max
                                                                     : PAUSE_NS;
}

static void begin_attempt(void *context)
{
    ls_store_link *self = context;
    const ls_env_link_events events = {
        .context = self, .opened = opened, .received = received, .closed = closed};
    self->again_timer = 0;
    self->link = ls_env_net_connect(self->options.env, self->address, &events);
}

ls_status ls_store_link_open(const ls_store_link_options *options, ls_store_link **link_out)
{
    ls_store_link *self = calloc(1, sizeof *self);
    unsigned char id[LS_STORE_SESSION_BYTES];
    if (!self) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a link to the coordinator");
    }
    self->options = *options;
    self->options.timeout_ns = options->timeout_ns ? options->timeout_ns : TIMEOUT_NS;
    snprintf(self->address, sizeof self->address, "%s", options->address);
    for (int i = 0; i < LS_STORE_SESSION_BYTES; i += 8) {
        const uint64_t random = ls_env_random_u64(options->env);
        memcpy(id + i, &random, 8);
    }
    const ls_status status =
        ls_store_session_init(&self->session, options->token, options->epoch, options->identity, id);
    if (status != LS_OK) {
        free(self);
        return status;
    }
    self->session.send = send_message;
    self->session.other = pass_on;
    self->session.context = self;
    self->pause_ns = PAUSE_NS;
    self->deadline_ns = ls_env_now_ns(options->env) + self->options.timeout_ns;
    self->late_timer = ls_env_timer_set(options->env, self->options.timeout_ns, too_late, self);
    self->log_timer = ls_env_timer_set(options->env, LOG_NS, log_waiting, self);
    begin_attempt(self);
    *link_out = self;
    return LS_OK;
}

int ls_store_link_send(ls_store_link *link, const void *data, size_t bytes)
{
    return link->over ? -ENOTCONN : ls_store_session_send_other(&link->session, data, bytes);
}

void ls_store_link_close(ls_store_link *link)
{
    if (!link) {
        return;
    }
    end_link(link);
    ls_store_session_release(&link->session);
    free(link);
}

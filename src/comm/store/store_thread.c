// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "comm/store/store.h"
#include "comm/store/store_address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 50 };

struct ls_store_thread {
    ls_env *env;
    ls_store_server *server;
    pthread_t thread;
    atomic_bool stop;
};

/*
 * The address to bind to: the host's name replaced by its number. On Debian the host's own name
 * stands for a loopback address here but for another one on other hosts; so if a name gives a
 * loopback address and there is a token, all addresses are served.
 */
static ls_status serving_address(const ls_store_server_options *options, char *out, size_t out_bytes)
{
    ls_store_socket_address found;
    const char *asked = options->address;
    LS_TRY(ls_store_address_find(asked, &found));
    const bool is_name = strspn(asked, "0123456789.") != strcspn(asked, ":") && asked[0] != '[' &&
                         strncmp(asked, "localhost:", 10) != 0 && strncmp(asked, "unix:", 5) != 0;
    if (is_name && ls_store_address_is_local(&found) && options->token && options->token[0]) {
        snprintf(out, out_bytes, "0.0.0.0:%s", strrchr(asked, ':') + 1);
        return LS_OK;
    }
    return ls_store_address_numeric(asked, out, out_bytes);
}

static void *serve(void *context)
{
    ls_store_thread *self = context;
    while (!atomic_load(&self->stop)) {
        ls_env_poll(self->env, LOOK_MS * UINT64_C(1000000));
    }
    return NULL;
}

ls_status ls_store_thread_start(const ls_store_server_options *options, ls_store_thread **thread_out)
{
    LS_ASSERT(options && options->address && thread_out);
    char address[300];
    ls_store_server_options served = *options;
    LS_TRY(serving_address(options, address, sizeof address));
    served.address = address;
    ls_store_thread *self = calloc(1, sizeof *self);
    if (!self) {
        return ls_fail(
            LS_ERR_MEMORY,
            "not enough memory to serve the rendezvous store, through which the ranks find each other");
    }
    ls_status status = ls_env_real_create(&self->env);
    if (status != LS_OK) {
        goto free_self;
    }
    LS_TRY_GOTO(status, ls_store_server_open(self->env, &served, &self->server), destroy_env);
    const int error = pthread_create(&self->thread, NULL, serve, self);
    if (error) {
        status = ls_fail_errno(error, "can't start the thread that serves the rendezvous store, through "
                                      "which the ranks find each other");
        goto close_server;
    }
    *thread_out = self;
    return LS_OK;

close_server:
    ls_store_server_close(self->server);
destroy_env:
    ls_env_real_destroy(self->env);
free_self:
    free(self);
    return status;
}

void ls_store_thread_stop(ls_store_thread *thread)
{
    if (!thread) {
        return;
    }
    atomic_store(&thread->stop, true);
    pthread_join(thread->thread, NULL);
    ls_store_server_close(thread->server);
    ls_env_real_destroy(thread->env);
    free(thread);
}

const char *ls_store_thread_address(const ls_store_thread *thread)
{
    return ls_store_server_address(thread->server);
}

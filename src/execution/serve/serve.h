// SPDX-License-Identifier: Apache-2.0
/*
 * Serve: answers prompts and chats over HTTP, in the form of OpenAI's API.
 *
 *   POST /v1/completions        GET /v1/models
 *   POST /v1/chat/completions   GET /health
 *
 * One thread does everything in turns: it lets the HTTP server (env/http/http_server.h) do what is
 * due, then the generator takes one step for all texts under way. A request becomes one text for
 * each of its answers; texts wait in a queue, in order of arrival, until a slot is free. A client
 * that leaves takes its texts with it.
 *
 * docs/serving.md is the manual of the API and its limits.
 */
#ifndef LS_EXECUTION_SERVE_SERVE_H
#define LS_EXECUTION_SERVE_SERVE_H

#include "env/env.h"
#include "execution/serve/request.h"

typedef struct ls_serve_settings {
    ls_serve_model model;    /* borrowed */
    ls_generator *generator; /* borrowed; without texts */
    size_t slots;            /* of it */
    /* Ids that end an answer; borrowed. Chats may have more of them. */
    const int32_t *stops;
    size_t stop_count, chat_stop_count;
    const char *listen;
    /* Who comes in, see env/http/http_guard.h: holders of the token; without one, on loopback, the
     * processes of this user. NULL: no token. */
    const char *token;
    const char *certificate, *key; /* PEM files; required beyond loopback; NULL: none */
    double grace_s;                /* after a signal, for answers under way */
    /* Called once the server listens at `address`. */
    void (*started)(void *context, const char *address);
    void *context;
} ls_serve_settings;

/*
 * Serves until SIGINT or SIGTERM. `env` is a real one, created before other threads were started.
 * Errors: LS_ERR_INVALID (address, TLS, or no token beyond loopback), LS_ERR_UNSUPPORTED
 * (libmicrohttpd is missing), LS_ERR_IO, and those of the device.
 */
LS_MUST_CHECK ls_status ls_serve_run(ls_env *env, const ls_serve_settings *settings);

#endif

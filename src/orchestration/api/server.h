// SPDX-License-Identifier: Apache-2.0
/*
 * Server: the daemon's HTTP face, on a Unix socket and on TCP, inside the loop of base/env.
 *
 *      browser, curl, Prometheus ── TCP ──┐
 *      lockstep submit, ps, ... ── Unix ──┴─▶ guard ─▶ route ─▶ arguments ─▶ verb ─▶ (a turn) ─▶ reply ─▶ JSON, page, text
 *                                                                  job's files (base/user_files.h) ─────▶
 *
 * libmicrohttpd speaks HTTP (its epoll descriptor is watched by the loop); a request sleeps until its verb is answered. What strangers can
 * do is bounded: connections (and those of one other user), bytes of headers and bodies, of all bodies together, seconds from the first
 * byte of a request to its last, seconds that an answer may take to be read.
 *
 * One owner, the loop's thread.
 */
#ifndef LS_ORCHESTRATION_API_SERVER_H
#define LS_ORCHESTRATION_API_SERVER_H

#include "base/env.h"
#include "base/status.h"
#include "base/user_files.h"
#include "orchestration/control/controller.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_api ls_api;

/* Who answers verbs; as ls_controller_call and its like. */
typedef struct ls_api_calls {
    void *context;
    void (*call)(void *context, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                 ls_controller_reply reply, void *reply_context);
    /* Nobody waits for that reply any more. */
    void (*forget)(void *context, void *reply_context);
    /* Name, files and log of a job. */
    bool (*may_read)(void *context, const ls_caller *caller, uint64_t job);
} ls_api_calls;

enum {
    LS_API_CONNECTIONS_MAX = 512,
    LS_API_CONNECTIONS_OF_USER_MAX = 64, /* of one who is not the daemon's owner */
    LS_API_STREAMS_MAX = 128,            /* server-sent events, logs that are followed */
    LS_API_HEADER_BYTES_MAX = 32 * 1024,
    LS_API_BODIES_BYTES_MAX = 32 * 1024 * 1024, /* of all requests that are being read */
    LS_API_REQUEST_S = 10,                      /* for all of a request, and between two on one connection */
    LS_API_ANSWER_S = 60,                       /* to read an answer that ends */
};

typedef struct ls_api_settings {
    ls_env *env;
    const char *home;   /* $LOCKSTEP_HOME: gets `socket`, `address`, `token` */
    const char *listen; /* "127.0.0.1:0" (port 0: any); "": no TCP */
    const char *certificate,
        *key;             /* files in PEM; needed, both, unless listen is on loopback; NULL: no TLS */
    ls_user_files *files; /* who reads what jobs wrote; outlives the API */
    bool all_users;       /* the socket is open to every user of the machine, who asks as himself */
    ls_api_calls calls;
    double request_s; /* instead of LS_API_REQUEST_S, for tests; 0: that */
} ls_api_settings;

/*
 * Opens the doors: binds, writes `address` and, when there is none, `token`. The caller holds the lock of the home folder: a socket that
 * another daemon left is replaced.
 *
 * settings: strings are copied. Errors: LS_ERR_UNSUPPORTED (no libmicrohttpd), LS_ERR_INVALID (address, TLS missing or broken), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_api_create(const ls_api_settings *settings, ls_api **api_out);

/* Sends what has been answered (for a second at most), forgets the rest, closes, removes `socket` and `address`. */
void ls_api_destroy(ls_api *api);

/* "http://127.0.0.1:8421"; "" without TCP. */
const char *ls_api_address(const ls_api *api);

/* A change of state is on the disk: who waits for it, follows its log or listens to /v1/events hears of it. */
void ls_api_tell(ls_api *api, const ls_transition *transition, const ls_job *job);

/* A turn of the daemon took so long: for /metrics. */
void ls_api_took(ls_api *api, double turn_s);

#endif

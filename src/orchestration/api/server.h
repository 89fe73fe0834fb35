// SPDX-License-Identifier: Apache-2.0
/*
 * Server: the daemon's HTTP API, on a Unix socket and on TCP, inside the loop of env/env.h.
 *
 *      browser, curl, Prometheus ── TCP ──┐
 *      lockstep submit, ps, ... ── Unix ──┴─▶ guard ─▶ route ─▶ arguments ─▶ verb ─▶ (a turn) ─▶ reply ─▶ JSON, page, text
 *                                                                  job's files (env/user/user_files.h) ─────▶
 *
 * env/http/http_server.h carries it: connections, TLS, deadlines, limits, and who the caller is.
 * The queue's part is in this folder: the table of routes, rights, arguments and answers. A request
 * sleeps until its verb is answered.
 *
 * One owner, the loop's thread.
 */
#ifndef LS_ORCHESTRATION_API_SERVER_H
#define LS_ORCHESTRATION_API_SERVER_H

#include "base/status.h"
#include "base/text.h"
#include "env/env.h"
#include "env/user/user_files.h"
#include "orchestration/control/controller.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_api ls_api;

/* The functions that answer verbs: ls_controller_call and its relatives. */
typedef struct ls_api_calls {
    void *context;
    void (*call)(void *context, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                 ls_controller_reply reply, void *reply_context);
    /* The reply is no longer wanted. */
    void (*forget)(void *context, void *reply_context);
    /* May the caller see name, files and log of a job? */
    bool (*may_read)(void *context, const ls_caller *caller, uint64_t job);
    /* Runs have names (LS_VERB_SHOW is asked with "run"), as in folders that are viewed; else the
     * id of a run is the number of its job. */
    bool has_names;
    /* With has_names: the folder where metrics that are sent for a run are kept, as
     * logged.jsonl. LS_ERR_INVALID: no name for a run. NULL: none are taken. */
    ls_status (*log_folder)(void *context, const char *run, ls_text *folder_out);
} ls_api_calls;

enum {
    LS_API_STREAMS_MAX = 128, /* server-sent events, and logs that are followed */
    /* Requests that stay open: the rest of LS_HTTP_CONNECTIONS_OF_USER_MAX and
     * LS_HTTP_CONNECTIONS_MAX is for short ones. */
    LS_API_LONG_OF_USER_MAX = 48,
    LS_API_LONG_MAX = 384,
    LS_API_PORT = 7600,      /* unless told otherwise, or taken */
    LS_API_VIEW_PORT = 7601, /* the same without a home folder */
};

typedef struct ls_api_settings {
    ls_env *env;
    /* $LOCKSTEP_HOME: gets `socket`, `address`, `token`. NULL: only TCP, without tokens. */
    const char *home;
    const char *metrics; /* folder for store files (telemetry/store/stored_run.h); NULL: none */
    const char *shared;  /* a second folder that gets `socket`, as /run/lockstep; NULL: none */
    /* "127.0.0.1:0" (port 0: any free one); "": no TCP; "auto": LS_API_PORT, or one after it */
    const char *listen;
    /* PEM files, both or neither; required unless `listen` is on loopback. */
    const char *certificate, *key;
    ls_user_files *files; /* reads what jobs wrote; outlives the API */
    bool all_users;       /* every user of the machine may connect, and acts as that user */
    /* Over TCP on loopback, these need a token: the daemon's owner; the other users, who come in at
     * all only with all_users. */
    bool owner_needs_token, users_need_token;
    ls_api_calls calls;
    double request_s; /* instead of LS_HTTP_REQUEST_S, for tests; 0: that */
} ls_api_settings;

/*
 * Starts to listen, and writes `address` and, if it is missing, `token`. The caller holds the lock
 * of the home folder: a socket that an earlier daemon left is replaced.
 *
 * settings: strings are copied. Errors: LS_ERR_UNSUPPORTED (libmicrohttpd is missing),
 * LS_ERR_INVALID (address; TLS missing or broken), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_api_create(const ls_api_settings *settings, ls_api **api_out);

/*
 * Whether ls_api_create would accept the settings, as far as that can be told while another daemon
 * runs: only home, listen, certificate and key are used, and nothing is written.
 * Errors: as for ls_api_create.
 */
LS_MUST_CHECK ls_status ls_api_check(const ls_api_settings *settings);

/* Sends what has been answered (for one second at most), refuses the rest, closes, and removes
 * `socket` and `address`. */
void ls_api_destroy(ls_api *api);

/* "http://127.0.0.1:8421"; "" without TCP. */
const char *ls_api_address(const ls_api *api);

/* A change of state has been written: requests that wait for it, followed logs and listeners of
 * /v1/events are told. */
void ls_api_tell(ls_api *api, const ls_transition *transition, const ls_job *job);

/* The duration of one turn of the daemon, for /metrics. */
void ls_api_took(ls_api *api, double turn_s);

#endif

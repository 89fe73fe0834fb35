// SPDX-License-Identifier: Apache-2.0
/*
 * The rendezvous store: small values under names, for processes that have to find each other.
 *
 *   put(key, value)            replaces
 *   get(key, deadline)         waits until there is one
 *   add(key, delta)            a counter: returns the new value
 *   compare_and_set(key, ...)  puts `value` when the key holds `expected` (nothing: expected NULL)
 *   watch(prefix)              every change under the prefix from now on
 *
 * The server is a state machine over base/env (I6): it runs in the coordinator's loop, in a thread beside rank 0 of a program of its own,
 * or in the simulator. Keys begin with the membership epoch, "<epoch>/..."; a client is bound to one epoch at its hello and a server with
 * a newer one refuses it: stale processes can't speak. A client proves that it knows the token by an HMAC over the server's nonce: the
 * token itself never travels.
 *
 * Wire: base/env messages (length, then bytes), each a fixed header and key and value; versioned and fuzzed (tests/fuzz/fuzz_store.c).
 */
#ifndef LS_EXECUTION_COMM_STORE_H
#define LS_EXECUTION_COMM_STORE_H

#include "base/env.h"
#include "base/status.h"

enum {
    LS_STORE_KEY_BYTES_MAX = 255,
    LS_STORE_VALUE_BYTES_MAX = 1 << 20,
    LS_STORE_KEYS_MAX = 1 << 16,
    LS_STORE_CLIENTS_MAX = 2048,
};

/* ---- server ---- */

typedef struct ls_store_server ls_store_server;

typedef struct ls_store_server_options {
    const char *address; /* "HOST:PORT" (port 0: any) or "unix:PATH" */
    const char *token;   /* shared secret; "": none, then only unix and loopback addresses are served */
    uint64_t epoch;
    /* A message that is not the store's: what agents and coordinator say to each other travels on the same socket. NULL: refused. */
    void (*other)(void *context, uint64_t client, const void *data, size_t bytes);
    /* An authenticated client came or its link ended (for the coordinator, which thereby learns who died). NULL: not told. */
    void (*came)(void *context, uint64_t client, const char *identity);
    void (*left)(void *context, uint64_t client);
    void *context;
} ls_store_server_options;

/* Errors: LS_ERR_INVALID (address; port taken, with a hint which are free), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_store_server_open(ls_env *env, const ls_store_server_options *options,
                                             ls_store_server **server_out);
void ls_store_server_close(ls_store_server *server);
const char *ls_store_server_address(const ls_store_server *server); /* with the port filled in */
void ls_store_server_set_epoch(ls_store_server *server,
                               uint64_t epoch); /* older keys are forgotten, older clients closed */
/* Sends a message of the coordinator's own to a client. */
int ls_store_server_send(ls_store_server *server, uint64_t client, const void *data, size_t bytes);

/* A server with an env and a thread of its own, for programs without a coordinator. */
typedef struct ls_store_thread ls_store_thread;
LS_MUST_CHECK ls_status ls_store_thread_start(const ls_store_server_options *options,
                                              ls_store_thread **thread_out);
void ls_store_thread_stop(ls_store_thread *thread);

/* ---- client: blocking, one thread at a time ---- */

typedef struct ls_store ls_store;

/* identity: who this is, for messages ("rank 3 on node7, pid 4711"). Tries again until the deadline: the server may start later. Errors:
 * LS_ERR_TIMEOUT, LS_ERR_INVALID (wrong token, another epoch, a peer that speaks something else: each with its own text). */
LS_MUST_CHECK ls_status ls_store_connect(const char *address, const char *token, uint64_t epoch,
                                         const char *identity, double timeout_s, ls_store **store_out);
void ls_store_close(ls_store *store);
int ls_store_fd(const ls_store *store); /* to poll for messages and for the end of the link */

LS_MUST_CHECK ls_status ls_store_put(ls_store *store, const char *key, const void *value, size_t bytes);
/* value_out: value_bytes room, *bytes_out what there was. Errors: LS_ERR_TIMEOUT, LS_ERR_RANKS_LOST when the server went away. */
LS_MUST_CHECK ls_status ls_store_get(ls_store *store, const char *key, double timeout_s, void *value_out,
                                     size_t value_bytes, size_t *bytes_out);
LS_MUST_CHECK ls_status ls_store_add(ls_store *store, const char *key, int64_t delta, int64_t *value_out);
LS_MUST_CHECK ls_status ls_store_compare_and_set(ls_store *store, const char *key, const void *expected,
                                                 size_t expected_bytes, const void *value, size_t bytes,
                                                 bool *set_out);
typedef void (*ls_store_changed)(void *context, const char *key, const void *value, size_t bytes);
LS_MUST_CHECK ls_status ls_store_watch(ls_store *store, const char *prefix, ls_store_changed changed,
                                       void *context);
/* Runs watch callbacks and `other` for what has arrived, waiting at most timeout_s. */
LS_MUST_CHECK ls_status ls_store_poll(ls_store *store, double timeout_s);
/* Messages that are not the store's, to and from the coordinator. */
LS_MUST_CHECK ls_status ls_store_send_other(ls_store *store, const void *data, size_t bytes);
void ls_store_on_other(ls_store *store, void (*other)(void *context, const void *data, size_t bytes),
                       void *context);

#endif

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
 * or in the simulator. All keys belong to the server's membership epoch: a client is bound to one epoch at its hello, each message says
 * it again, and a server with another one refuses: stale processes can't speak. Client and server prove to each other that they know the
 * token by HMACs over both nonces: the token itself never travels. (Who can change packets on the way can do so after the hello: the
 * store is for a private network.)
 *
 * A client that is cut off connects again and repeats the request that was under way; the server applies each request once.
 *
 * Wire: base/env messages (length, then bytes), each a fixed header and key and value: execution/comm/store_wire.h. Versioned and fuzzed
 * (tests/fuzz/fuzz_store.c).
 */
#ifndef LS_EXECUTION_COMM_STORE_H
#define LS_EXECUTION_COMM_STORE_H

#include "base/env.h"
#include "base/status.h"

enum {
    LS_STORE_KEY_BYTES_MAX = 255,
    LS_STORE_VALUE_BYTES_MAX = 1 << 20,
    LS_STORE_BYTES_MAX = 256 << 20, /* of all values together */
    LS_STORE_KEYS_MAX = 1 << 16,
    LS_STORE_CLIENTS_MAX = 2048,
    LS_STORE_STRANGERS_MAX = 512, /* of them, links that have not proved yet that they know the token */
    LS_STORE_WATCHES_MAX = 16,    /* of one client */
    LS_STORE_HELLO_S = 5,         /* a link that has not proved it by then is closed */
    LS_STORE_RECONNECT_S = 5,     /* how long a client that was cut off tries to come back */
};

/* The epoch of a client that is bound to none, for agents: it outlives epochs and has no keys, only messages of the coordinator's own kind. */
#define LS_STORE_EVERY_EPOCH UINT64_MAX

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

/* Errors: LS_ERR_INVALID (address; port taken, with one that is free; no token on an address that others can reach), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_store_server_open(ls_env *env, const ls_store_server_options *options,
                                             ls_store_server **server_out);
/* Closes all links; `left` is not called. NULL allowed. Not from a callback of the server. */
void ls_store_server_close(ls_store_server *server);
const char *ls_store_server_address(const ls_store_server *server); /* with the port filled in */
/* Older keys are forgotten; all clients of an epoch are told and closed, `left` is called for each. */
void ls_store_server_set_epoch(ls_store_server *server, uint64_t epoch);
/* Sends a message of the coordinator's own to a client. 0, or minus an errno value as ls_env_net_send: -ENOTCONN when it has left. */
int ls_store_server_send(ls_store_server *server, uint64_t client, const void *data, size_t bytes);
/* Ends a client's link after telling it why; `left` follows from the loop. */
void ls_store_server_refuse(ls_store_server *server, uint64_t client, const char *reason);
/* The server's own process reads and writes without a link. find: NULL when there is none; valid until the key changes. */
LS_MUST_CHECK ls_status ls_store_server_put(ls_store_server *server, const char *key, const void *value,
                                            size_t bytes);
const void *ls_store_server_find(const ls_store_server *server, const char *key, size_t *bytes_out);

/*
 * A server with an env and a thread of its own, for programs without a coordinator. options->address may name a host. Callbacks run on
 * that thread. stop: within a tenth of a second; NULL allowed.
 */
typedef struct ls_store_thread ls_store_thread;
LS_MUST_CHECK ls_status ls_store_thread_start(const ls_store_server_options *options,
                                              ls_store_thread **thread_out);
void ls_store_thread_stop(ls_store_thread *thread);
const char *ls_store_thread_address(const ls_store_thread *thread);

/* ---- client: blocking, one thread at a time ---- */

typedef struct ls_store ls_store;

/*
 * address: "HOST:PORT", HOST a number or a name, or "unix:PATH". identity: who this is, for messages ("rank 3 on node7, pid 4711"), printable
 * and at most LS_STORE_KEY_BYTES_MAX long. Tries again until the deadline: the server may start later. Errors: LS_ERR_TIMEOUT (the last
 * reason is in the text), LS_ERR_INVALID (address, wrong token, another epoch, another version, a peer that speaks something else).
 */
LS_MUST_CHECK ls_status ls_store_connect(const char *address, const char *token, uint64_t epoch,
                                         const char *identity, double timeout_s, ls_store **store_out);
/* The same; is_over is looked at every 50 ms in this and all later calls: once it is true they end with LS_FENCED. NULL: never. */
LS_MUST_CHECK ls_status ls_store_connect_until(const char *address, const char *token, uint64_t epoch,
                                               const char *identity, double timeout_s,
                                               bool (*is_over)(void *context), void *context,
                                               ls_store **store_out);
/* From here on nothing is looked at. */
void ls_store_go_on(ls_store *store);
void ls_store_close(ls_store *store); /* NULL allowed */
int ls_store_fd(
    const ls_store
        *store); /* to poll for messages and for the end of the link; another one after a reconnect */
/* The address of this end of the link ("10.0.0.7"), "" on a Unix socket: what others of the server's network can reach this host by. */
const char *ls_store_local_host(const ls_store *store);

/*
 * Errors of all calls: LS_ERR_RANKS_LOST when the server went away (tried again for LS_STORE_RECONNECT_S), LS_ERR_INVALID for keys, values
 * and what the server refuses, LS_ERR_TIMEOUT when it does not answer for 30 s. After the server went away or refused this client, every
 * call fails with that reason. A key is 1 to LS_STORE_KEY_BYTES_MAX bytes of printable ASCII.
 */
LS_MUST_CHECK ls_status ls_store_put(ls_store *store, const char *key, const void *value, size_t bytes);
/* value_out: value_bytes room, *bytes_out what there was (more than the room: LS_ERR_INVALID). LS_ERR_TIMEOUT: nobody put it in time. */
LS_MUST_CHECK ls_status ls_store_get(ls_store *store, const char *key, double timeout_s, void *value_out,
                                     size_t value_bytes, size_t *bytes_out);
/* A key that does not exist counts as 0; one that is no counter (8 bytes) is LS_ERR_INVALID. The value of a counter is its 8 bytes. */
LS_MUST_CHECK ls_status ls_store_add(ls_store *store, const char *key, int64_t delta, int64_t *value_out);
LS_MUST_CHECK ls_status ls_store_compare_and_set(ls_store *store, const char *key, const void *expected,
                                                 size_t expected_bytes, const void *value, size_t bytes,
                                                 bool *set_out);
/* After a reconnect the values that are there are told again. `changed` runs in ls_store_poll alone. */
typedef void (*ls_store_changed)(void *context, const char *key, const void *value, size_t bytes);
LS_MUST_CHECK ls_status ls_store_watch(ls_store *store, const char *prefix, ls_store_changed changed,
                                       void *context);
/* Runs watch callbacks and `other` for what has arrived (also during other calls), waiting at most timeout_s for the first. Nothing
 * arrived: LS_OK. The callbacks must not call into this store. */
LS_MUST_CHECK ls_status ls_store_poll(ls_store *store, double timeout_s);
/* Messages that are not the store's, to and from the coordinator. Those under way when a link breaks may be lost. */
LS_MUST_CHECK ls_status ls_store_send_other(ls_store *store, const void *data, size_t bytes);
void ls_store_on_other(ls_store *store, void (*other)(void *context, const void *data, size_t bytes),
                       void *context);

#endif

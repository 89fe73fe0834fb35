// SPDX-License-Identifier: Apache-2.0
/*
 * The rendezvous store: small values under names, for processes that have to find each other.
 *
 *   put(key, value)      stores or replaces a value
 *   get(key, timeout)    returns a value; waits until there is one
 *   add(key, delta)      adds to a counter and returns its new value
 *
 * The server is a state machine over env/env.h (I6). It runs in the coordinator's loop, in a thread
 * beside rank 0, or in the simulator. All keys belong to the server's membership epoch. A client
 * states its epoch at the start and in every message, and a server in another epoch refuses it, so
 * that processes left over from an earlier epoch cannot interfere.
 *
 * Client and server prove to each other that they know the token, by HMACs over random numbers of
 * both sides; the token itself is never sent. An attacker who can change packets can still take
 * over a connection after this proof: use the store in a private network only.
 *
 * A client whose connection breaks connects again and repeats the request that was under way. The
 * server applies each request once.
 *
 * On the wire, each message of env/env.h (a length, then bytes) is a fixed header, a key and a
 * value: comm/store/store_wire.h. Messages carry a version and are fuzzed
 * (tests/fuzz/fuzz_store.c).
 */
#ifndef LS_COMM_STORE_STORE_H
#define LS_COMM_STORE_STORE_H

#include "base/status.h"
#include "env/env.h"

enum {
    LS_STORE_KEY_BYTES_MAX = 255,
    LS_STORE_VALUE_BYTES_MAX = 1 << 20,
    /* All values together. */
    LS_STORE_BYTES_MAX = 256 << 20,
    LS_STORE_KEYS_MAX = 1 << 16,
    LS_STORE_CLIENTS_MAX = 2048,
    /* Clients that have not proved yet that they know the token; included in the number above. */
    LS_STORE_STRANGERS_MAX = 512,
    /* A connection without this proof is closed after so many seconds. */
    LS_STORE_HELLO_S = 5,
    /* Seconds for which a disconnected client tries to connect again. */
    LS_STORE_RECONNECT_S = 5,
};

/* The epoch of agents, which outlive epochs. Such a client has no keys: it can only exchange
 * messages with the coordinator. */
#define LS_STORE_EVERY_EPOCH UINT64_MAX

/* ---- server ---- */

typedef struct ls_store_server ls_store_server;

typedef struct ls_store_server_options {
    /* "HOST:PORT" (port 0: any free port) or "unix:PATH". */
    const char *address;
    /* Shared secret. "": none, and then the address must be a Unix socket or loopback. */
    const char *token;
    uint64_t epoch;
    /* Called for messages between agents and the coordinator, which use the same connection. NULL:
     * such messages are refused. */
    void (*other)(void *context, uint64_t client, const void *data, size_t bytes);
    /* Called when a client has been authenticated, and when its connection has ended; this is how
     * the coordinator learns of deaths. NULL: not called. */
    void (*came)(void *context, uint64_t client, const char *identity);
    void (*left)(void *context, uint64_t client);
    void *context;
} ls_store_server_options;

/* Errors: LS_ERR_INVALID (a bad address; a port that is taken, with a free one in the text; an
 * address that other hosts can reach without a token), LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_store_server_open(ls_env *env, const ls_store_server_options *options,
                                             ls_store_server **server_out);
/* Closes all connections without calling `left`. NULL is allowed. Must not be called from a
 * callback of the server. */
void ls_store_server_close(ls_store_server *server);
/* The address with the actual port. */
const char *ls_store_server_address(const ls_store_server *server);
/* Starts a new epoch: all keys are removed; clients of the old epoch are told and disconnected,
 * with a call of `left` for each. */
void ls_store_server_set_epoch(ls_store_server *server, uint64_t epoch);
/* Sends a message of the coordinator to a client. Returns 0 or a negative errno value as
 * ls_env_net_send does; -ENOTCONN if the client has left. */
int ls_store_server_send(ls_store_server *server, uint64_t client, const void *data, size_t bytes);
/* Sends the reason to a client and disconnects it; `left` is called later, from the loop. */
void ls_store_server_refuse(ls_store_server *server, uint64_t client, const char *reason);
/* The value of a key, valid until the key changes; NULL: the key does not exist. For checks in
 * simulations. */
const void *ls_store_server_find(const ls_store_server *server, const char *key, size_t *bytes_out);

/*
 * A server with its own env and thread, for programs without a coordinator. The host in
 * options->address may be a name. Callbacks run on that thread. Stopping takes at most a tenth of a
 * second; NULL is allowed.
 */
typedef struct ls_store_thread ls_store_thread;
LS_MUST_CHECK ls_status ls_store_thread_start(const ls_store_server_options *options,
                                              ls_store_thread **thread_out);
void ls_store_thread_stop(ls_store_thread *thread);
const char *ls_store_thread_address(const ls_store_thread *thread);

/* ---- client: blocking, one thread at a time ---- */

typedef struct ls_store ls_store;

typedef struct ls_store_client_options {
    /* "HOST:PORT", with a number or a name as HOST, or "unix:PATH". */
    const char *address;
    const char *token;
    uint64_t epoch;
    /* Describes this process in messages ("rank 3 on node7, pid 4711"): at most
     * LS_STORE_KEY_BYTES_MAX printable characters. */
    const char *identity;
    /* How long to try to connect; the server may start later. */
    double timeout_s;
    /* Called with `context` every 50 ms while connecting and in all later calls; once it returns
     * true, they end with LS_FENCED. NULL: never. */
    bool (*is_over)(void *context);
    void *context;
} ls_store_client_options;

/* Errors: LS_ERR_TIMEOUT with the last reason in the text; LS_ERR_INVALID (a bad address, a wrong
 * token, another epoch or version, a peer that does not speak this protocol); LS_FENCED. */
LS_MUST_CHECK ls_status ls_store_connect(const ls_store_client_options *options, ls_store **store_out);
/* is_over is not called any more. */
void ls_store_clear_is_over(ls_store *store);
/* NULL is allowed. */
void ls_store_close(ls_store *store);
/* The socket, another one after a reconnect. For tests that break connections. */
int ls_store_fd(const ls_store *store);

/*
 * Errors of all calls: LS_ERR_RANKS_LOST if the server is gone (reconnecting was tried for
 * LS_STORE_RECONNECT_S), LS_ERR_INVALID for bad keys and values and for refusals of the server,
 * LS_ERR_TIMEOUT if it does not answer for 30 s. Once the server is gone or has refused this
 * client, every later call fails with the same reason. A key is 1 to LS_STORE_KEY_BYTES_MAX bytes
 * of printable ASCII.
 */
LS_MUST_CHECK ls_status ls_store_put(ls_store *store, const char *key, const void *value, size_t bytes);
/* value_out has room for value_bytes; *bytes_out is the size of the value. Errors: LS_ERR_TIMEOUT
 * if no process stored it in time; LS_ERR_INVALID if the room is too small. */
LS_MUST_CHECK ls_status ls_store_get(ls_store *store, const char *key, double timeout_s, void *value_out,
                                     size_t value_bytes, size_t *bytes_out);
/* A counter is a value of 8 bytes; a key that does not exist counts as 0. Errors: LS_ERR_INVALID if
 * the value is not a counter or would overflow. */
LS_MUST_CHECK ls_status ls_store_add(ls_store *store, const char *key, int64_t delta, int64_t *value_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * A link to the store's server for state machines over env/env.h: hello and proof, then messages
 * between agent and coordinator in both directions. When it has been lost it does not connect
 * again; open another one. (The client in store.h reconnects.)
 *
 * All calls come from the thread of the env.
 */
#ifndef LS_COMM_STORE_STORE_LINK_H
#define LS_COMM_STORE_STORE_LINK_H

#include "comm/store/store.h"

typedef struct ls_store_link ls_store_link;

typedef struct ls_store_link_options {
    ls_env *env;
    /* With the host as a number. */
    const char *address;
    const char *token;
    uint64_t epoch;
    const char *identity;
    /* How long to try to connect; 0: 60 s. After 2 s, and then every 20 s, the log shows what the
     * link is waiting for. */
    uint64_t timeout_ns;
    /* Attempts are 0.1 s apart at first; each pause is twice the one before, up to this. 0: all
     * pauses are 0.1 s. */
    uint64_t pause_ns_max;
    void *context;
    void (*ready)(void *context);
    void (*received)(void *context, const void *data, size_t bytes);
    /* The last call, with the reason: refused, no server in time, or the link was lost. */
    void (*lost)(void *context, ls_status status, const char *text);
} ls_store_link_options;

/* Errors: LS_ERR_INVALID (token, identity), LS_ERR_MEMORY. All other failures are reported by
 * `lost`. */
LS_MUST_CHECK ls_status ls_store_link_open(const ls_store_link_options *options, ls_store_link **link_out);
/* Returns 0 or a negative errno value; -ENOTCONN before `ready` and after `lost`. */
int ls_store_link_send(ls_store_link *link, const void *data, size_t bytes);
/* Data already sent is still delivered. `lost` is not called. NULL is allowed. Must not be called
 * from `received`. */
void ls_store_link_close(ls_store_link *link);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * A link to the store's server for state machines over base/env: hello and proof, then messages between agent and coordinator both ways.
 * It does not connect again: whoever wants that opens another one (store.h has the client that does).
 *
 * One thread: the env's.
 */
#ifndef LS_EXECUTION_COMM_STORE_LINK_H
#define LS_EXECUTION_COMM_STORE_LINK_H

#include "execution/comm/store.h"

typedef struct ls_store_link ls_store_link;

typedef struct ls_store_link_options {
    ls_env *env;
    const char *address; /* host as a number */
    const char *token;
    uint64_t epoch;
    const char *identity;
    uint64_t
        timeout_ns; /* tries again until then; 0: 60 s. After 2 s, and every 20 s, it logs what it waits for */
    uint64_t pause_ns_max; /* between two attempts, which come ever later; 0: they are 0.1 s apart */
    void *context;
    void (*ready)(void *context);
    void (*received)(void *context, const void *data, size_t bytes);
    /* The last call: refused, no server in time, or the link ended; text says which. */
    void (*lost)(void *context, ls_status status, const char *text);
} ls_store_link_options;

/* Errors: LS_ERR_INVALID (token, identity), LS_ERR_MEMORY. Everything else comes through `lost`. */
LS_MUST_CHECK ls_status ls_store_link_open(const ls_store_link_options *options, ls_store_link **link_out);
/* 0, or minus an errno value: -ENOTCONN before ready and after lost. */
int ls_store_link_send(ls_store_link *link, const void *data, size_t bytes);
/* What was sent still goes out. `lost` is not called. NULL allowed; not from `received`. */
void ls_store_link_close(ls_store_link *link);

#endif

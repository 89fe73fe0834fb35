// SPDX-License-Identifier: Apache-2.0
/* Addresses as people write them, and as sockets take them. Names are looked up, which may block: not for the control plane's loop. */
#ifndef LS_EXECUTION_COMM_STORE_ADDRESS_H
#define LS_EXECUTION_COMM_STORE_ADDRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

typedef struct ls_store_socket_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} ls_store_socket_address;

/* Whether it is written as one; looks nothing up. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_store_address_check(const char *address);

/* "HOST:PORT" (HOST a number, [number] or a name) or "unix:PATH". Errors: LS_ERR_INVALID (not an address), LS_ERR_TIMEOUT (a name that is
 * not known now). */
LS_MUST_CHECK ls_status ls_store_address_find(const char *address, ls_store_socket_address *address_out);

/* The host as a number; "" for a Unix socket. */
void ls_store_address_host(const ls_store_socket_address *address, char *out, size_t out_bytes);

/* Whether only this host can reach it. */
bool ls_store_address_is_local(const ls_store_socket_address *address);

/* The address with the host as a number, as base/env takes it. */
LS_MUST_CHECK ls_status ls_store_address_numeric(const char *address, char *out, size_t out_bytes);

#endif

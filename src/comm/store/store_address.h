// SPDX-License-Identifier: Apache-2.0
/* Converts addresses as people write them to addresses for sockets. Looking up a name may block, so
 * these functions are not for the control plane's loop. */
#ifndef LS_COMM_STORE_STORE_ADDRESS_H
#define LS_COMM_STORE_STORE_ADDRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

typedef struct ls_store_socket_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} ls_store_socket_address;

/* Checks the form of an address without looking up a name. Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_store_address_check(const char *address);

/* Looks up "HOST:PORT" (HOST: a number, a number in brackets, or a name) or "unix:PATH".
 * Errors: LS_ERR_INVALID (not an address), LS_ERR_TIMEOUT (the name is not known now). */
LS_MUST_CHECK ls_status ls_store_address_find(const char *address, ls_store_socket_address *address_out);

/* Writes the host as a number; "" for a Unix socket. */
void ls_store_address_host(const ls_store_socket_address *address, char *out, size_t out_bytes);

/* The address of this host from which a packet to `address` would be sent, as a number. Errors:
 * those of ls_store_address_find; LS_ERR_IO without a route. */
LS_MUST_CHECK ls_status ls_store_address_own(const char *address, char *out, size_t out_bytes);

/* Whether only this host can reach it. */
bool ls_store_address_is_local(const ls_store_socket_address *address);

/* Writes the address with the host as a number, the form that env/env.h needs. */
LS_MUST_CHECK ls_status ls_store_address_numeric(const char *address, char *out, size_t out_bytes);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Addresses of this machine and of others: which may be used, which to try first. No name of an interface is ever guessed at; what
 * `wanted` (options.interface, LS_COMM_INTERFACE) says goes, otherwise all are tried and the fastest that answers is taken.
 */
#ifndef LS_EXECUTION_COMM_TCP_ADDRESS_H
#define LS_EXECUTION_COMM_TCP_ADDRESS_H

#include "execution/comm/tcp_wire.h"

#include <sys/socket.h>

/*
 * Addresses of interfaces that are up. wanted: NULL or "" for all; the name of an interface; or the beginning of an address ("10.1.",
 * "fd00:"). loopback_only: nothing else. Link-local addresses are left out. Errors: LS_ERR_INVALID naming what there is, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_tcp_own_addresses(const char *wanted, bool loopback_only, ls_tcp_book *book_out);

/* Orders `theirs` by how likely each is the right one, and drops what can't be: loopback of another host (unless this side uses nothing
 * else), families that this side has not. Returns how many remain in order_out. */
uint32_t ls_tcp_candidates(const ls_tcp_book *own, const ls_tcp_book *theirs, bool same_host,
                           uint32_t order_out[LS_TCP_ADDRESSES_MAX]);

/* For connect and bind; returns the length. */
socklen_t ls_tcp_sockaddr(const ls_tcp_address *address, uint16_t port, struct sockaddr_storage *out);
/* "10.0.0.7:4711", "[fd00::2]:4711" */
void ls_tcp_address_text(const ls_tcp_address *address, uint16_t port, char text[64]);

#endif

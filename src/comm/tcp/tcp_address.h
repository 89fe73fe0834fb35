// SPDX-License-Identifier: Apache-2.0
/*
 * Addresses of this host and of others: which may be used, and in which order to try them. Names of
 * interfaces are never guessed: if options.interface or LS_COMM_INTERFACE is set, it decides;
 * otherwise all addresses are tried.
 */
#ifndef LS_COMM_TCP_TCP_ADDRESS_H
#define LS_COMM_TCP_TCP_ADDRESS_H

#include "comm/tcp/tcp_wire.h"

#include <sys/socket.h>

/*
 * Lists the addresses of interfaces that are up, without link-local ones. wanted: the name of an
 * interface or the beginning of an address ("10.1.", "fd00:"); NULL or "": all.
 * Errors: LS_ERR_INVALID naming the addresses that exist if none is suitable; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_tcp_own_addresses(const char *wanted, bool loopback_only, ls_tcp_book *book_out);

/* Orders the addresses `theirs`, the most likely first, and leaves out those that cannot work:
 * loopback of another host (unless this side has no other address) and families that this side does
 * not have. Returns the number of addresses in order_out. */
uint32_t ls_tcp_candidates(const ls_tcp_book *own, const ls_tcp_book *theirs, bool same_host,
                           uint32_t order_out[LS_TCP_ADDRESSES_MAX]);

/* Fills in an address for connect and bind; returns its length. */
socklen_t ls_tcp_sockaddr(const ls_tcp_address *address, uint16_t port, struct sockaddr_storage *out);
/* "10.0.0.7:4711", "[fd00::2]:4711" */
void ls_tcp_address_text(const ls_tcp_address *address, uint16_t port, char text[64]);

#endif

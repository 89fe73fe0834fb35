// SPDX-License-Identifier: Apache-2.0
/* HTTP peer: the user at the other end of a connection, as the kernel reports it. Linux;
 * thread-safe. */
#ifndef LS_ENV_HTTP_HTTP_PEER_H
#define LS_ENV_HTTP_HTTP_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* The user and group that connected to a Unix socket, at the time they connected. False:
 * unknown. */
bool ls_http_peer_of_unix(int fd, uint32_t *uid_out, uint32_t *gid_out);

/*
 * The user who holds the other end of a TCP connection that begins and ends on this machine. To be
 * called when the connection is accepted.
 *
 * The answer is false once no process holds the other end: for a socket whose owner has closed it
 * the kernel reports uid 0, so a stranger who sends a request and closes at once would pass for
 * root. It is also false where the kernel has no NETLINK_SOCK_DIAG.
 */
bool ls_http_peer_of_tcp(int fd, uint32_t *uid_out);

#endif

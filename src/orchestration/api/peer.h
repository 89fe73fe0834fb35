// SPDX-License-Identifier: Apache-2.0
/* Peer: which user is at the other end of a connection, by the kernel's word. Linux; thread-safe. */
#ifndef LS_ORCHESTRATION_API_PEER_H
#define LS_ORCHESTRATION_API_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* Who connected to a Unix socket, as they were when they did. False: not known. */
bool ls_api_peer_of_unix(int fd, uint32_t *uid_out, uint32_t *gid_out);

/*
 * Who holds the other end of a TCP connection that begins and ends on this machine. To be asked when the connection is accepted.
 *
 * Known only while the other end is open and in somebody's hands: the kernel says uid 0 for a socket whose owner has closed it, so that a
 * stranger who sends a request and closes at once would pass for root. Not known either where the kernel has no NETLINK_SOCK_DIAG.
 */
bool ls_api_peer_of_tcp(int fd, uint32_t *uid_out);

#endif

// SPDX-License-Identifier: Apache-2.0
/* HTTP listen: listening sockets of a server, on a Unix socket and on TCP. Thread-safe. */
#ifndef LS_ENV_HTTP_HTTP_LISTEN_H
#define LS_ENV_HTTP_HTTP_LISTEN_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* "HOST:PORT" or "[HOST]:PORT". */
typedef struct ls_http_address {
    char host[64];
    char port[8];
} ls_http_address;

/*
 * Listens at FOLDER/socket, replacing what an earlier server left there: the caller holds the lock
 * of the folder. all_users: every user of the machine may connect, else only the owner.
 * Errors: LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_http_listen_unix(const char *folder, bool all_users, int *fd_out);

/* Errors: LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_http_address_parse(const char *text, ls_http_address *address_out);

/*
 * Listens at an address of this machine. is_loopback_out: only this machine can reach it; when it
 * is false and has_tls too, the address is refused before anything is opened. tls_settings: for
 * that error, where a certificate and its key are set.
 * Errors: LS_ERR_INVALID, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_http_listen_tcp(const char *text, bool has_tls, const char *tls_settings,
                                           int *fd_out, bool *is_loopback_out);

/*
 * Whether ls_http_listen_tcp would accept the address, without keeping it open. A port that is in
 * use is accepted: it may be the port of the server that the caller is about to replace.
 * Errors: as for ls_http_listen_tcp.
 */
LS_MUST_CHECK ls_status ls_http_listen_check(const char *text, bool has_tls, const char *tls_settings);

/* The port a listening TCP socket is bound to. */
unsigned ls_http_bound_port(int fd);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP guard: decides whether a request may enter, and as which user.
 *
 *   Unix socket        the kernel names the user who connected (SO_PEERCRED); every user of the
 *                      machine may connect and acts as that user
 *   TCP with a token   in `Authorization: Bearer`, or in the cookie that `?token=` sets: the
 *                      user whose token it is. A wrong token is refused, and so is a change by
 *                      the holder of a token that only reads
 *   TCP without one    on loopback only: the user who, as the kernel says, holds the other end
 *                      (env/http/http_peer.h). The server's owner and the other users are let in
 *                      or not, each as the settings say
 *
 * A user's browser is such an other end, and it runs scripts that strangers wrote. Over TCP,
 * therefore:
 *   - Host must be one of this server's names, so that a stranger's name that was rebound to
 *     127.0.0.1 is refused (beyond loopback, TLS and the token prevent that);
 *   - Origin, if present, must be this server's own, and Sec-Fetch-Site must not be another site,
 *     except when a link to a page is followed;
 *   - a request that changes something needs Content-Type: application/json, which a form on
 *     another site cannot send without asking first.
 *
 * Pure; thread-safe.
 */
#ifndef LS_ENV_HTTP_HTTP_GUARD_H
#define LS_ENV_HTTP_HTTP_GUARD_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_HTTP_TOKEN_BYTES = 64 }; /* hex digits of 32 random bytes */

/* As whom a request acts. */
typedef struct ls_http_identity {
    uint32_t uid, gid;
    bool has_gid;     /* else only the user is known */
    bool only_reads;  /* may change nothing */
    bool is_unix;     /* came over the Unix socket */
    const char *name; /* of the user when the token was made, valid until tokens change; or NULL */
} ls_http_identity;

typedef struct ls_http_guard {
    uint32_t owner_uid;
    /* Fills in whom a token stands for. False: it is no token. NULL: there are none, and what is
     * sent as one is ignored. */
    bool (*find_token)(void *tokens, const char *token, ls_http_identity *identity_out);
    void *tokens;
    /* "127.0.0.1:8421", "localhost:8421", ...; ends with NULL */
    const char *const *hosts;
    bool is_loopback; /* the TCP listener */
    /* A peer on loopback is let in without a token if it is the owner; if it is another user. */
    bool admits_owner, admits_users;
    const char *scheme; /* "http" or "https" */
} ls_http_guard;

/* What is known of a request before its body. Absent headers are NULL. */
typedef struct ls_http_visitor {
    bool is_unix;
    bool is_peer_known;
    uint32_t peer_uid, peer_gid; /* gid: on the Unix socket only */
    bool changes_something;      /* POST */
    bool is_page;                /* the answer is a page for a browser */
    const char *host, *origin, *fetch_site, *fetch_mode, *authorization, *cookie, *content_type;
    const char *token; /* from the query; NULL: none */
} ls_http_visitor;

/*
 * identity_out: as whom the request acts.
 * Errors: LS_ERR_INVALID with the HTTP code in code_out: 401 unknown caller, 403 refused origin, or
 * a change by one who only reads; 415 wrong type of the body.
 */
LS_MUST_CHECK ls_status ls_http_guard_admit(const ls_http_guard *guard, const ls_http_visitor *visitor,
                                            ls_http_identity *identity_out, int *code_out);

/* A new token: random hexadecimal digits. */
void ls_http_token_make(char token_out[LS_HTTP_TOKEN_BYTES + 1]);

/*
 * Reads the token in `path`, or creates the file (mode 0600) with a new one: clients keep theirs
 * when a server starts again.
 * Errors: LS_ERR_INVALID (others can read the file), LS_ERR_DATA (not a token), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_http_token_load(const char *path, char token_out[LS_HTTP_TOKEN_BYTES + 1]);

#endif

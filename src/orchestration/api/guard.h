// SPDX-License-Identifier: Apache-2.0
/*
 * Guard: may this request in, and as whom?
 *
 *   Unix socket      the kernel says who connected (SO_PEERCRED); any user of the machine, as that user
 *   TCP, a token     in `Authorization: Bearer`, or in the cookie that `?token=` has set: the daemon's owner. A wrong one is refused
 *   TCP, no token    on loopback alone, and when the kernel says that the other end belongs to the daemon's owner (api/peer.h)
 *
 * A browser of the owner's is such an other end, and runs what strangers wrote. So over TCP
 *   - Host must be one of this server's own: a name of a stranger's that was bound anew to 127.0.0.1 does not get through (beyond loopback
 *     TLS and the token see to that);
 *   - Origin, when there is one, must be this server's, and Sec-Fetch-Site may not be another site, but for following a link to a page;
 *   - what changes something needs Content-Type: application/json, which no form of another site can send unasked.
 *
 * Pure but for the comparison's own library; thread-safe.
 */
#ifndef LS_ORCHESTRATION_API_GUARD_H
#define LS_ORCHESTRATION_API_GUARD_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_API_TOKEN_BYTES = 64 }; /* hex digits of 32 random bytes */

typedef struct ls_api_guard {
    uint32_t owner_uid;
    char token[LS_API_TOKEN_BYTES + 1]; /* "": no token is right */
    const char *const *hosts;           /* "127.0.0.1:8421", "localhost:8421", ...; ends with NULL */
    bool is_loopback;                   /* of the TCP listener: a peer that is the owner needs no token */
    const char *scheme;                 /* "http" or "https" */
} ls_api_guard;

/* What is known of a request before its body. Absent headers are NULL. */
typedef struct ls_api_visitor {
    bool is_unix;
    bool is_peer_known;
    uint32_t peer_uid;
    bool changes_something; /* POST */
    bool is_page;           /* the row is one of LS_API_PAGE */
    const char *host, *origin, *fetch_site, *fetch_mode, *authorization, *cookie, *content_type;
    const char *token; /* of the query; NULL: none */
} ls_api_visitor;

/*
 * uid_out: as whom. Errors: LS_ERR_INVALID, with the HTTP code stored: 401 who are you, 403 not from there, 415 the body's type.
 */
LS_MUST_CHECK ls_status ls_api_guard_admit(const ls_api_guard *guard, const ls_api_visitor *visitor,
                                           uint32_t *uid_out, int *code_out);

/* In the same time whatever the text is. */
bool ls_api_token_is_right(const ls_api_guard *guard, const char *text);

#endif

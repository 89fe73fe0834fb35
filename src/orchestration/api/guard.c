// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/guard.h"

#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>

#define COOKIE "lockstep_token="

bool ls_api_token_is_right(const ls_api_guard *guard, const char *text)
{
    /* Lengths are no secret; what the bytes are is. */
    return guard->token[0] && strlen(text) == strlen(guard->token) &&
           CRYPTO_memcmp(text, guard->token, strlen(guard->token)) == 0;
}

static bool cookie_is_right(const ls_api_guard *guard, const char *cookies)
{
    for (const char *at = cookies; at && *at;) {
        at += strspn(at, " ;");
        const size_t bytes = strcspn(at, ";");
        const size_t name_bytes = strlen(COOKIE);
        if (bytes == name_bytes + LS_API_TOKEN_BYTES && strncmp(at, COOKIE, name_bytes) == 0) {
            char token[LS_API_TOKEN_BYTES + 1];
            memcpy(token, at + name_bytes, LS_API_TOKEN_BYTES);
            token[LS_API_TOKEN_BYTES] = '\0';
            return ls_api_token_is_right(guard, token);
        }
        at += bytes;
    }
    return false;
}

/*
 * Beyond loopback there is no list of our names, and none is needed: nobody is believed without the token there, a browser sends the cookie only to the name
 * that set it, and TLS knows a name that was bound anew.
 */
static bool is_own_host(const ls_api_guard *guard, const char *host)
{
    if (!guard->is_loopback) {
        return host && host[0];
    }
    for (const char *const *own = guard->hosts; host && *own; own++) {
        if (strcasecmp(*own, host) == 0) {
            return true;
        }
    }
    return false;
}

/* "http://HOST", and HOST is one of ours; beyond loopback the one that was asked. */
static bool is_own_origin(const ls_api_guard *guard, const ls_api_visitor *visitor)
{
    const size_t bytes = strlen(guard->scheme);
    const char *origin = visitor->origin;
    return strncmp(origin, guard->scheme, bytes) == 0 && strncmp(origin + bytes, "://", 3) == 0 &&
           is_own_host(guard, origin + bytes + 3) &&
           (guard->is_loopback || strcasecmp(origin + bytes + 3, visitor->host) == 0);
}

static bool comes_from_elsewhere(const ls_api_visitor *visitor)
{
    const char *site = visitor->fetch_site;
    if (!site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0) {
        return false;
    }
    const bool follows_link = visitor->is_page && !visitor->changes_something && visitor->fetch_mode &&
                              strcmp(visitor->fetch_mode, "navigate") == 0;
    return !follows_link;
}

static ls_status check_browser(const ls_api_guard *guard, const ls_api_visitor *visitor, int *code_out)
{
    *code_out = 403;
    if (!is_own_host(guard, visitor->host)) {
        return ls_fail(LS_ERR_INVALID,
                       "Host is '%.100s', allowed is %s: another name may be somebody's trick",
                       visitor->host ? visitor->host : "", guard->hosts[0] ? guard->hosts[0] : "none");
    }
    if (visitor->origin && !is_own_origin(guard, visitor)) {
        return ls_fail(LS_ERR_INVALID, "a page of %.100s may not ask this server", visitor->origin);
    }
    if (comes_from_elsewhere(visitor)) {
        return ls_fail(LS_ERR_INVALID, "a page of another site may not ask this server");
    }
    return LS_OK;
}

static bool is_json(const char *content_type)
{
    static const char json[] = "application/json";
    const size_t bytes = sizeof json - 1;
    return content_type && strncasecmp(content_type, json, bytes) == 0 &&
           (content_type[bytes] == '\0' || content_type[bytes] == ';' || content_type[bytes] == ' ');
}

static ls_status identify(const ls_api_guard *guard, const ls_api_visitor *visitor, uint32_t *uid_out)
{
    static const char bearer[] = "Bearer ";
    const size_t bytes = sizeof bearer - 1;
    const char *given = visitor->authorization && strncasecmp(visitor->authorization, bearer, bytes) == 0
                            ? visitor->authorization + bytes
                            : visitor->token;
    if (given && !ls_api_token_is_right(guard, given)) {
        return ls_fail(LS_ERR_INVALID,
                       "the token is not the one of this daemon: $LOCKSTEP_HOME/token has it");
    }
    const bool is_owner =
        given || cookie_is_right(guard, visitor->cookie) ||
        (guard->is_loopback && visitor->is_peer_known && visitor->peer_uid == guard->owner_uid);
    if (!is_owner) {
        return ls_fail(
            LS_ERR_INVALID,
            "who asks? Send the token as 'Authorization: Bearer ...', or open the page with ?token=..., "
            "or use the Unix socket: $LOCKSTEP_HOME has token and socket");
    }
    *uid_out = guard->owner_uid;
    return LS_OK;
}

ls_status ls_api_guard_admit(const ls_api_guard *guard, const ls_api_visitor *visitor, uint32_t *uid_out,
                             int *code_out)
{
    if (!visitor->is_unix) {
        LS_TRY(check_browser(guard, visitor, code_out));
    }
    if (visitor->changes_something && !is_json(visitor->content_type)) {
        *code_out = 415;
        return ls_fail(LS_ERR_INVALID, "Content-Type is '%.60s', allowed is application/json",
                       visitor->content_type ? visitor->content_type : "");
    }
    *code_out = 401;
    if (!visitor->is_unix) {
        LS_TRY(identify(guard, visitor, uid_out));
    } else if (visitor->is_peer_known) {
        *uid_out = visitor->peer_uid;
    } else {
        return ls_fail(LS_ERR_INVALID, "the kernel does not say who connected");
    }
    *code_out = 200;
    return LS_OK;
}

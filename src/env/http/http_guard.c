// SPDX-License-Identifier: Apache-2.0
#include "env/http/http_guard.h"

#include "base/assert.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define COOKIE "lockstep_token="

static bool is_token(const ls_http_guard *guard, const char *text, ls_http_identity *identity)
{
    return guard->find_token && strlen(text) == LS_HTTP_TOKEN_BYTES &&
           guard->find_token(guard->tokens, text, identity);
}

/* A cookie with an old token is no cookie: what else the request brings decides. */
static bool has_cookie(const ls_http_guard *guard, const char *cookies, ls_http_identity *identity)
{
    for (const char *at = cookies; at && *at;) {
        at += strspn(at, " ;");
        const size_t bytes = strcspn(at, ";");
        const size_t name_bytes = strlen(COOKIE);
        if (bytes == name_bytes + LS_HTTP_TOKEN_BYTES && strncmp(at, COOKIE, name_bytes) == 0) {
            char token[LS_HTTP_TOKEN_BYTES + 1];
            memcpy(token, at + name_bytes, LS_HTTP_TOKEN_BYTES);
            token[LS_HTTP_TOKEN_BYTES] = '\0';
            return is_token(guard, token, identity);
        }
        at += bytes;
    }
    return false;
}

/*
 * Beyond loopback the server's names are not known, and need not be: every request must bring the
 * token there, a browser sends the cookie only to the name that set it, and TLS refuses a name that
 * was rebound.
 */
static bool is_own_host(const ls_http_guard *guard, const char *host)
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

/* "http://HOST" with HOST one of our names; beyond loopback, the name in the request's Host. */
static bool is_own_origin(const ls_http_guard *guard, const ls_http_visitor *visitor)
{
    const size_t bytes = strlen(guard->scheme);
    const char *origin = visitor->origin;
    return strncmp(origin, guard->scheme, bytes) == 0 && strncmp(origin + bytes, "://", 3) == 0 &&
           is_own_host(guard, origin + bytes + 3) &&
           (guard->is_loopback || strcasecmp(origin + bytes + 3, visitor->host) == 0);
}

static bool is_from_another_site(const ls_http_visitor *visitor)
{
    const char *site = visitor->fetch_site;
    if (!site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0) {
        return false;
    }
    const bool follows_link = visitor->is_page && !visitor->changes_something && visitor->fetch_mode &&
                              strcmp(visitor->fetch_mode, "navigate") == 0;
    return !follows_link;
}

static ls_status check_browser(const ls_http_guard *guard, const ls_http_visitor *visitor, int *code_out)
{
    *code_out = 403;
    if (!is_own_host(guard, visitor->host)) {
        return ls_fail(LS_ERR_INVALID,
                       "the Host header '%.100s' is refused (protection against DNS rebinding): use %s",
                       visitor->host ? visitor->host : "", guard->hosts[0] ? guard->hosts[0] : "https");
    }
    if (visitor->origin && !is_own_origin(guard, visitor)) {
        return ls_fail(LS_ERR_INVALID, "a web page from %.100s is not allowed to use this server",
                       visitor->origin);
    }
    if (is_from_another_site(visitor)) {
        return ls_fail(LS_ERR_INVALID, "a web page from another site is not allowed to use this server");
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

/* A process of this machine whose user the kernel knows. */
static bool is_welcome_peer(const ls_http_guard *guard, const ls_http_visitor *visitor,
                            ls_http_identity *identity)
{
    const bool is_owner = visitor->peer_uid == guard->owner_uid;
    if (!guard->is_loopback || !visitor->is_peer_known ||
        !(is_owner ? guard->admits_owner : guard->admits_users)) {
        return false;
    }
    *identity = (ls_http_identity){.uid = visitor->peer_uid};
    return true;
}

static ls_status identify(const ls_http_guard *guard, const ls_http_visitor *visitor,
                          ls_http_identity *identity)
{
    static const char bearer[] = "Bearer ";
    const size_t bytes = sizeof bearer - 1;
    const char *sent = visitor->authorization && strncasecmp(visitor->authorization, bearer, bytes) == 0
                           ? visitor->authorization + bytes
                           : visitor->token;
    /* Programs that always send some key are let in where none is needed. */
    const char *given = guard->find_token ? sent : NULL;
    if (given) {
        return is_token(guard, given, identity)
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID, "the access token sent with the request is wrong or was "
                                             "revoked: 'lockstep token' makes a new one");
    }
    if (has_cookie(guard, visitor->cookie, identity) || is_welcome_peer(guard, visitor, identity)) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID,
                   "the request has no access token: get one with 'lockstep token', and send it as "
                   "'Authorization: Bearer TOKEN' or open the page with ?token=TOKEN");
}

static ls_status find_identity(const ls_http_guard *guard, const ls_http_visitor *visitor,
                               ls_http_identity *identity)
{
    if (!visitor->is_unix) {
        return identify(guard, visitor, identity);
    }
    *identity = (ls_http_identity){
        .uid = visitor->peer_uid, .gid = visitor->peer_gid, .has_gid = true, .is_unix = true};
    return visitor->is_peer_known ? LS_OK
                                  : ls_fail(LS_ERR_INVALID, "the request is refused, because the kernel does "
                                                            "not report which user opened the connection");
}

ls_status ls_http_guard_admit(const ls_http_guard *guard, const ls_http_visitor *visitor,
                              ls_http_identity *identity_out, int *code_out)
{
    ls_http_identity identity = {0};
    if (!visitor->is_unix) {
        LS_TRY(check_browser(guard, visitor, code_out));
    }
    if (visitor->changes_something && !is_json(visitor->content_type)) {
        *code_out = 415;
        return ls_fail(LS_ERR_INVALID,
                       "the request's header Content-Type is '%.60s'; it must be application/json",
                       visitor->content_type ? visitor->content_type : "");
    }
    *code_out = 401;
    LS_TRY(find_identity(guard, visitor, &identity));
    if (identity.only_reads && visitor->changes_something) {
        *code_out = 403;
        return ls_fail(LS_ERR_INVALID,
                       "this access token can only read: use a token made without --read-only");
    }
    *identity_out = identity;
    *code_out = 200;
    return LS_OK;
}

/* ---- the token's file ---- */

void ls_http_token_make(char token[LS_HTTP_TOKEN_BYTES + 1])
{
    unsigned char random[LS_HTTP_TOKEN_BYTES / 2];
    LS_ASSERT(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    }
}

static ls_status make_file(const char *path, char *token)
{
    ls_http_token_make(token);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't write %s", path);
    }
    char line[LS_HTTP_TOKEN_BYTES + 2];
    snprintf(line, sizeof line, "%s\n", token);
    const ls_status status = ls_file_write_all(fd, path, line, strlen(line));
    close(fd);
    return status;
}

ls_status ls_http_token_load(const char *path, char token[LS_HTTP_TOKEN_BYTES + 1])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? make_file(path, token) : ls_fail_errno(errno, "can't read %s", path);
    }
    struct stat info;
    const bool is_private = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 077) == 0;
    const ssize_t bytes = read(fd, token, LS_HTTP_TOKEN_BYTES);
    close(fd);
    token[LS_HTTP_TOKEN_BYTES] = '\0';
    if (!is_private) {
        return ls_fail(LS_ERR_INVALID,
                       "the access token in %s can be read by other users: remove the file, and the daemon "
                       "makes a new one",
                       path);
    }
    if (bytes != LS_HTTP_TOKEN_BYTES || strspn(token, "0123456789abcdef") != LS_HTTP_TOKEN_BYTES) {
        return ls_fail(LS_ERR_DATA,
                       "the file %s does not contain an access token of %d hexadecimal digits: remove the "
                       "file, and the daemon makes a new one",
                       path, LS_HTTP_TOKEN_BYTES);
    }
    return LS_OK;
}

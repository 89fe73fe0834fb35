// SPDX-License-Identifier: Apache-2.0
/* The guard of the HTTP server: who may enter; the file of the token; addresses to listen at. */
#include "test.h"

#include "base/file.h"
#include "env/http/http_guard.h"
#include "env/http/http_listen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- guard ---- */

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *const own_hosts[] = {"127.0.0.1:80", "localhost:80", NULL};
#define READS "1111111111111111111111111111111111111111111111111111111111111111"

/* The owner's token, and one of user 1001 that only reads. */
static bool find_token(void *tokens, const char *token, ls_http_identity *identity_out)
{
    (void)tokens;
    const bool reads = strcmp(token, READS) == 0;
    if (!reads && strcmp(token, TOKEN) != 0) {
        return false;
    }
    *identity_out = (ls_http_identity){.uid = reads ? 1001 : 1000, .has_gid = true, .only_reads = reads};
    return true;
}

static const ls_http_guard guard = {.owner_uid = 1000,
                                    .find_token = find_token,
                                    .hosts = own_hosts,
                                    .is_loopback = true,
                                    .admits_owner = true,
                                    .scheme = "http"};

static int code_of(const ls_http_guard *by, ls_http_visitor visitor)
{
    ls_http_identity identity = {.uid = 77};
    int code = 0;
    const ls_status status = ls_http_guard_admit(by, &visitor, &identity, &code);
    assert_true((status == LS_OK) == (code == 200));
    assert_true(status == LS_OK || identity.uid == 77);
    return code;
}

/* Every user of the machine is served as that user, the owner as the settings say; a token comes
 * before the user of the process that sends it. */
static void guard_admits_each_user_as_that_user(void **state)
{
    (void)state;
    ls_http_guard team = guard;
    team.admits_users = true;
    team.admits_owner = false;
    ls_http_visitor visitor = {.host = "127.0.0.1:80", .is_peer_known = true, .peer_uid = 1002};
    ls_http_identity identity;
    int code = 0;
    assert_int_equal(ls_http_guard_admit(&team, &visitor, &identity, &code), LS_OK);
    assert_int_equal(identity.uid, 1002);
    assert_false(identity.has_gid || identity.is_unix || identity.only_reads);
    visitor.peer_uid = 1000;
    assert_int_equal(code_of(&team, visitor), 401);
    visitor.authorization = "Bearer " TOKEN;
    assert_int_equal(code_of(&team, visitor), 200);
    visitor.peer_uid = 1002;
    assert_int_equal(ls_http_guard_admit(&team, &visitor, &identity, &code), LS_OK);
    assert_int_equal(identity.uid, 1000);
    visitor.authorization = "Bearer " READS;
    assert_int_equal(ls_http_guard_admit(&team, &visitor, &identity, &code), LS_OK);
    assert_true(identity.uid == 1001 && identity.only_reads);
    visitor.changes_something = true;
    visitor.content_type = "application/json";
    assert_int_equal(code_of(&team, visitor), 403);
    team.is_loopback = false;
    visitor = (ls_http_visitor){.host = "a", .is_peer_known = true, .peer_uid = 1002};
    assert_int_equal(code_of(&team, visitor), 401);
    visitor = (ls_http_visitor){.is_unix = true, .is_peer_known = true, .peer_uid = 5, .peer_gid = 6};
    assert_int_equal(ls_http_guard_admit(&team, &visitor, &identity, &code), LS_OK);
    assert_true(identity.uid == 5 && identity.gid == 6 && identity.has_gid && identity.is_unix);
}

static void guard_admits_the_owner_alone_over_tcp(void **state)
{
    (void)state;
    const ls_http_visitor owner = {.host = "LOCALHOST:80", .is_peer_known = true, .peer_uid = 1000};
    assert_int_equal(code_of(&guard, owner), 200);
    ls_http_visitor other = owner;
    other.peer_uid = 0; /* a closed socket looks like root's: only the owner's own uid opens */
    assert_int_equal(code_of(&guard, other), 401);
    other.is_peer_known = false;
    other.peer_uid = 1000;
    assert_int_equal(code_of(&guard, other), 401);
    other.authorization = "bearer " TOKEN;
    assert_int_equal(code_of(&guard, other), 200);
    other.authorization = "Bearer " TOKEN "0";
    assert_int_equal(code_of(&guard, other), 401);
    other.authorization = NULL;
    other.cookie = "a=b; lockstep_token=" TOKEN;
    assert_int_equal(code_of(&guard, other), 200);
    other.cookie = "xlockstep_token=" TOKEN;
    assert_int_equal(code_of(&guard, other), 401);
    ls_http_visitor wrong = owner; /* a wrong token is refused even where none is needed */
    wrong.authorization = "Bearer x";
    assert_int_equal(code_of(&guard, wrong), 401);
    ls_http_guard far = guard;
    far.is_loopback = false;
    assert_int_equal(code_of(&far, owner), 401);
    ls_http_visitor remote = {.host = "gpu1.example:443", .authorization = "Bearer " TOKEN};
    far.scheme = "https";
    assert_int_equal(code_of(&far, remote), 200); /* by whatever name it is reached */
    remote.origin = "https://gpu1.example:443";
    assert_int_equal(code_of(&far, remote), 200);
    remote.origin = "https://evil.example";
    assert_int_equal(code_of(&far, remote), 403);
    far.find_token = NULL; /* no token: an empty one opens nothing */
    ls_http_visitor empty = owner;
    empty.authorization = "Bearer ";
    assert_int_equal(code_of(&far, empty), 401);
    ls_http_guard none = guard; /* without tokens, any is ignored: who is there decides */
    none.find_token = NULL;
    assert_int_equal(code_of(&none, wrong), 200);
    wrong.peer_uid = 1001;
    assert_int_equal(code_of(&none, wrong), 401);
}

static void guard_knows_browsers_tricks(void **state)
{
    (void)state;
    const ls_http_visitor owner = {.host = "127.0.0.1:80", .is_peer_known = true, .peer_uid = 1000};
    static const char *const hosts[] = {"evil.example:80",           "127.0.0.1", "127.0.0.1:81",
                                        "localhost:80.evil.example", "",          NULL};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        ls_http_visitor bound_anew = owner;
        bound_anew.host = hosts[i];
        assert_int_equal(code_of(&guard, bound_anew), 403);
    }
    static const char *const origins[] = {"http://evil.example", "null", "https://127.0.0.1:80",
                                          "http://127.0.0.1:81", ""};
    for (size_t i = 0; i < sizeof origins / sizeof origins[0]; i++) {
        ls_http_visitor page = owner;
        page.origin = origins[i];
        assert_int_equal(code_of(&guard, page), 403);
    }
    ls_http_visitor own = owner;
    own.origin = "http://localhost:80";
    own.changes_something = true;
    own.content_type = "application/json; charset=utf-8";
    assert_int_equal(code_of(&guard, own), 200);
    own.content_type = "application/jsonp";
    assert_int_equal(code_of(&guard, own), 415);
    own.content_type = NULL;
    assert_int_equal(code_of(&guard, own), 415);
    ls_http_visitor link = owner;
    link.fetch_site = "cross-site";
    link.fetch_mode = "navigate";
    assert_int_equal(code_of(&guard, link), 403);
    link.is_page = true;
    assert_int_equal(code_of(&guard, link), 200);
    link.fetch_mode = "no-cors";
    assert_int_equal(code_of(&guard, link), 403);
    /* Over the Unix socket it is the kernel's word alone; a form is no request there either. */
    assert_int_equal(
        code_of(&guard, (ls_http_visitor){.is_unix = true, .is_peer_known = true, .peer_uid = 5}), 200);
    assert_int_equal(code_of(&guard, (ls_http_visitor){.is_unix = true}), 401);
    assert_int_equal(
        code_of(&guard, (ls_http_visitor){.is_unix = true, .is_peer_known = true, .changes_something = true}),
        415);
}

/* ---- the token's file ---- */

static void token_load_makes_one_and_keeps_it(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep_token_XXXXXX", path[64], first[LS_HTTP_TOKEN_BYTES + 1],
         second[LS_HTTP_TOKEN_BYTES + 1];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/token", folder);
    assert_int_equal(ls_http_token_load(path, first), LS_OK);
    assert_int_equal(ls_http_token_load(path, second), LS_OK);
    assert_int_equal(strlen(first), LS_HTTP_TOKEN_BYTES);
    assert_string_equal(first, second);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(ls_http_token_load(path, second), LS_ERR_INVALID);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(ls_http_token_load(path, second), LS_ERR_DATA);
    assert_int_equal(ls_dir_remove(folder), LS_OK);
}

/* ---- addresses ---- */

static void address_parse_takes_host_and_port(void **state)
{
    (void)state;
    ls_http_address address;
    assert_int_equal(ls_http_address_parse("127.0.0.1:8421", &address), LS_OK);
    assert_string_equal(address.host, "127.0.0.1");
    assert_string_equal(address.port, "8421");
    assert_int_equal(ls_http_address_parse("[::1]:65535", &address), LS_OK);
    assert_string_equal(address.host, "::1");
    const char *const bad[] = {"", "8421", ":8421", "a:", "a:b", "a:65536", "a:123456", "[]:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_http_address_parse(bad[i], &address), LS_ERR_INVALID);
    }
    assert_string_equal(address.port, "65535"); /* untouched */
}

static void listen_tcp_beyond_loopback_needs_tls(void **state)
{
    (void)state;
    int fd = -1;
    bool is_loopback = false;
    assert_int_equal(ls_http_listen_tcp("0.0.0.0:0", false, "settings", &fd, &is_loopback), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "needs TLS"));
    assert_int_equal(fd, -1);
    assert_int_equal(ls_http_listen_tcp("127.0.0.1:0", false, "settings", &fd, &is_loopback), LS_OK);
    assert_true(is_loopback);
    assert_true(ls_http_bound_port(fd) > 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guard_admits_the_owner_alone_over_tcp),
        cmocka_unit_test(guard_admits_each_user_as_that_user),
        cmocka_unit_test(guard_knows_browsers_tricks),
        cmocka_unit_test(token_load_makes_one_and_keeps_it),
        cmocka_unit_test(address_parse_takes_host_and_port),
        cmocka_unit_test(listen_tcp_beyond_loopback_needs_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

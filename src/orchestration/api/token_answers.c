// SPDX-License-Identifier: Apache-2.0
/* Requests for tokens: a user makes, lists and revokes tokens over the Unix socket only, where the
 * kernel names the user. A token that was stolen can't make another. */
#include "orchestration/api/api_internal.h"

#include <string.h>

static bool is_on_socket(ls_api_exchange *exchange)
{
    if (!exchange->is_unix) {
        ls_api_exchange_error(
            exchange, 403,
            ls_fail(LS_ERR_INVALID, "access tokens are made and revoked over the daemon's Unix socket only: "
                                    "run 'lockstep token' on the machine where the daemon runs"));
    }
    return exchange->is_unix;
}

static bool has_flag(const ls_api_exchange *exchange, const char *name)
{
    return json_is_true(json_object_get(exchange->arguments, name));
}

static ls_api_token_of caller_of(const ls_api_exchange *exchange)
{
    return (ls_api_token_of){.uid = exchange->caller.uid,
                             .gid = exchange->caller.gid,
                             .user = exchange->user,
                             .only_reads = has_flag(exchange, "read_only")};
}

static unsigned code_of(ls_status status)
{
    return status == LS_ERR_INVALID     ? 409
           : status == LS_ERR_NOT_FOUND ? 404
           : status == LS_ERR_DISK      ? 507
                                        : 500;
}

void ls_api_token_make(ls_api_exchange *exchange)
{
    if (!is_on_socket(exchange)) {
        return;
    }
    ls_api *api = exchange->api;
    const ls_api_token_of of = caller_of(exchange);
    char text[LS_HTTP_TOKEN_BYTES + 1];
    const ls_status status =
        ls_api_tokens_make(api->tokens, &of, ls_env_wall_s(api->env), has_flag(exchange, "rotate"), text);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, code_of(status), status);
        return;
    }
    ls_api_exchange_json(exchange, 201,
                         json_pack("{s:s, s:s, s:I, s:b}", "token", text, "user", of.user, "uid",
                                   (json_int_t)of.uid, "read_only", of.only_reads));
}

/* An administrator may name another user. */
static bool find_user(ls_api_exchange *exchange, ls_api_token_of *of)
{
    const char *user = json_string_value(json_object_get(exchange->arguments, "user"));
    if (!user || strcmp(user, exchange->user) == 0) {
        return true;
    }
    if (!exchange->caller.is_admin) {
        ls_api_exchange_error(
            exchange, 403,
            ls_fail(LS_ERR_INVALID,
                    "only root and the daemon's owner can revoke access tokens of other users"));
        return false;
    }
    of->user = user;
    json_t *all = ls_api_tokens_json(exchange->api->tokens, 0, true), *item;
    size_t i;
    bool is_found = false;
    json_array_foreach(all, i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "user")), user) == 0) {
            of->uid = (uint32_t)json_integer_value(json_object_get(item, "uid"));
            is_found = true;
        }
    }
    json_decref(all);
    if (!is_found) {
        ls_api_exchange_error(exchange, 404, ls_fail(LS_ERR_NOT_FOUND, "user %s has no access token", user));
    }
    return is_found;
}

void ls_api_token_revoke(ls_api_exchange *exchange)
{
    ls_api_token_of of = caller_of(exchange);
    if (!is_on_socket(exchange) || !find_user(exchange, &of)) {
        return;
    }
    const ls_status status = ls_api_tokens_revoke(exchange->api->tokens, &of);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, code_of(status), status);
        return;
    }
    ls_api_exchange_json(exchange, 200, json_pack("{s:s, s:b}", "user", of.user, "read_only", of.only_reads));
}

void ls_api_token_list(ls_api_exchange *exchange)
{
    ls_api_exchange_json(exchange, 200,
                         json_pack("{s:o}", "tokens",
                                   ls_api_tokens_json(exchange->api->tokens, exchange->caller.uid,
                                                      exchange->caller.is_admin)));
}

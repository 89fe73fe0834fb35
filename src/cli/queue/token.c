// SPDX-License-Identifier: Apache-2.0
/* token: access to the daemon's page and API over TCP. */
#include "cli/command.h"
#include "cli/queue/queue.h"

#include <stdio.h>
#include <time.h>

typedef struct token_settings {
    bool read_only, rotate, revoke, list, json;
    const char *user;
} token_settings;

static const ls_option token_options[] = {
    LS_ROW_BOOL(
        token_settings, read_only,
        "make or revoke the token that only reads: GET requests, such as a dashboard and Prometheus send"),
    LS_ROW_BOOL(token_settings, rotate, "replace your token with a new one; the old one is no longer valid"),
    LS_ROW_BOOL(token_settings, revoke, "revoke your token: it is no longer valid"),
    LS_ROW_BOOL(token_settings, list,
                "list your tokens without their text; root and the daemon's owner see those of all users"),
    LS_ROW_TEXT(token_settings, user, "NAME",
                "with --revoke: user whose token (access secret) is revoked, instead of your own; only root "
                "and the daemon's owner may do that",
                .value_needed = true),
    LS_ROW_JSON(token_settings),
};

static ls_status check(const token_settings *settings)
{
    if (settings->rotate + settings->revoke + settings->list > 1) {
        return ls_fail(LS_ERR_INVALID, "give only one of --rotate, --revoke and --list");
    }
    if (settings->user[0] && !settings->revoke) {
        return ls_fail(LS_ERR_INVALID, "--user works only with --revoke: it revokes the token (access "
                                       "secret) of another user, and every user makes their own");
    }
    return LS_OK;
}

static void print_list(const json_t *tokens)
{
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i);
        const time_t made = (time_t)json_number_value(json_object_get(token, "made"));
        char day[32] = "";
        struct tm parts;
        if (made > 0 && localtime_r(&made, &parts)) {
            strftime(day, sizeof day, ", made %Y-%m-%d %H:%M", &parts);
        }
        printf("%s: %s%s\n", ls_queue_string(token, "user"),
               json_is_true(json_object_get(token, "read_only")) ? "reads only" : "reads and changes", day);
    }
}

static ls_status ask(const token_settings *settings, json_t **answer_out)
{
    if (settings->list) {
        return ls_queue_get(answer_out, "/v1/tokens");
    }
    json_t *body = json_pack("{s:b}", "read_only", settings->read_only);
    if (settings->rotate) {
        json_object_set_new(body, "rotate", json_true());
    }
    if (settings->user[0]) {
        json_t *user = json_string(settings->user);
        json_object_set_new(body, "user", user ? user : json_string("?"));
    }
    return ls_queue_post(body, answer_out, settings->revoke ? "/v1/tokens/revoke" : "/v1/tokens");
}

static ls_status run_token(const ls_invocation *invocation)
{
    const token_settings *settings = invocation->settings;
    json_t *answer = NULL;
    LS_TRY(check(settings));
    LS_TRY(ask(settings, &answer));
    if (settings->json) {
        ls_print_json(answer);
    } else if (settings->list) {
        print_list(json_object_get(answer, "tokens"));
    } else if (settings->revoke) {
        printf("the %stoken of user %s is revoked\n", settings->read_only ? "read-only " : "",
               ls_queue_string(answer, "user"));
    } else {
        printf("%s\n", ls_queue_string(answer, "token"));
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_token = {
    .name = "token",
    .words = "",
    .summary = "make or revoke your access token for the daemon's page and API",
    .details = "Prints a new token. A program that sends it over TCP acts as you: in the header\n"
               "'Authorization: Bearer TOKEN', or by opening the page with ?token=TOKEN. The\n"
               "daemon stores only its hash, so the token can't be shown again. The token of the\n"
               "daemon's owner is in $LOCKSTEP_HOME/token.\n"
               "\n"
               "Examples:\n"
               "  lockstep token\n"
               "  lockstep token --rotate\n"
               "  lockstep token --read-only > /etc/prometheus/lockstep.token",
    LS_SETTINGS(token_settings, token_options),
    .run = run_token,
};

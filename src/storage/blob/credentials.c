// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/credentials.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "env/http_client.h"
#include "storage/blob/sigv4.h"
#include "storage/blob/xml.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_BYTES_MAX = 1 << 20 };

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Copies a part of the credentials. what: "the secret key". */
static ls_status take(const char *value, const char *what, const char *source, char *out, size_t room)
{
    if (strlen(value) >= room || strpbrk(value, "\r\n")) {
        return ls_fail(LS_ERR_DATA,
                       "%s of %s is not valid: it has %zu characters, allowed are 1 to %zu on "
                       "one line",
                       what, source, strlen(value), room - 1);
    }
    memcpy(out, value, strlen(value) + 1);
    return LS_OK;
}

static ls_status fill(ls_aws_credentials *c, const char *source, const char *id, const char *secret,
                      const char *token)
{
    *c = (ls_aws_credentials){.source = source};
    if (!id || !*id || !secret || !*secret) {
        return ls_fail(LS_ERR_DATA, "%s has %s for S3, but not the other one", source,
                       id && *id ? "an access key" : "a secret key");
    }
    LS_TRY(take(id, "the access key", source, c->id, sizeof c->id));
    LS_TRY(take(secret, "the secret key", source, c->secret, sizeof c->secret));
    return take(token ? token : "", "the session token", source, c->token, sizeof c->token);
}

double ls_aws_time_parse(const char *text)
{
    struct tm parts = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
    if (!rest || (*rest != 'Z' && *rest != '.')) {
        return 0.0;
    }
    const time_t seconds = timegm(&parts);
    return seconds > 0 ? (double)seconds : 0.0;
}

/* ---- files of profiles ---- */

static bool is_section(const char *line, const char *section)
{
    const size_t bytes = strlen(section);
    return strncmp(line + 1, section, bytes) == 0 && strcmp(line + 1 + bytes, "]") == 0;
}

char *ls_aws_profile_value(const char *text, const char *section, const char *key)
{
    char *copy = strdup(text), *rest = copy, *value = NULL;
    bool is_there = false;
    for (char *line = strsep(&rest, "\n"); line && !value; line = strsep(&rest, "\n")) {
        const bool is_nested = *line == ' ' || *line == '\t';
        line = ls_text_trim(line);
        if (*line == '[') {
            is_there = is_section(line, section);
            continue;
        }
        char *equals = strchr(line, '=');
        if (!is_there || is_nested || !equals || *line == '#' || *line == ';') {
            continue;
        }
        *equals = '\0';
        if (strcmp(ls_text_trim(line), key) == 0) {
            value = strdup(ls_text_trim(equals + 1));
        }
    }
    if (copy) {
        explicit_bzero(copy, strlen(text));
    }
    free(copy);
    return value;
}

/* A value of the profile in use, from the file that `variable` or ~/.aws/`name` names. */
static char *profile_value(const char *variable, const char *name, const char *key)
{
    ls_arena arena = {0};
    const char *profile = environment("AWS_PROFILE"), *path = environment(variable);
    char *text = NULL, *value = NULL;
    size_t bytes = 0;
    const bool is_config = strcmp(name, "config") == 0;
    profile = profile ? profile : "default";
    if (is_config && strcmp(profile, "default") != 0) {
        profile = ls_arena_printf(&arena, "profile %s", profile);
    }
    path = path ? path : ls_arena_printf(&arena, "~/.aws/%s", name);
    if (ls_file_read(&arena, ls_path_expand_home(&arena, path), FILE_BYTES_MAX, &text, &bytes) == LS_OK) {
        value = ls_aws_profile_value(text, profile, key);
        explicit_bzero(text, bytes);
    } else {
        ls_error_clear();
    }
    ls_arena_release(&arena);
    return value;
}

/* Credentials of one file; LS_ERR_NOT_FOUND, without a text, if it has none. */
static ls_status from_file(const char *variable, const char *name, const char *source, ls_aws_credentials *c)
{
    char *values[3];
    static const char *const keys[] = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"};
    for (int i = 0; i < 3; i++) {
        values[i] = profile_value(variable, name, keys[i]);
    }
    const ls_status status =
        values[0] || values[1] ? fill(c, source, values[0], values[1], values[2]) : LS_ERR_NOT_FOUND;
    for (int i = 0; i < 3; i++) {
        if (values[i]) {
            explicit_bzero(values[i], strlen(values[i]));
        }
        free(values[i]);
    }
    return status;
}

ls_status ls_aws_region_find(char region_out[LS_AWS_REGION_BYTES_MAX + 1])
{
    const char *region = environment("AWS_REGION");
    region = region ? region : environment("AWS_DEFAULT_REGION");
    char *own = region ? NULL : profile_value("AWS_CONFIG_FILE", "config", "region");
    region = region ? region : own && *own ? own : "us-east-1";
    const size_t bytes = strlen(region);
    ls_status status = LS_OK;
    if (bytes > LS_AWS_REGION_BYTES_MAX || strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != bytes) {
        status = ls_fail(LS_ERR_INVALID,
                         "the region (AWS_REGION, AWS_DEFAULT_REGION or ~/.aws/config) is '%.80s'; allowed "
                         "are up to %d letters a-z, digits and '-', as in us-east-1",
                         region, LS_AWS_REGION_BYTES_MAX);
    } else {
        memcpy(region_out, region, bytes + 1);
    }
    free(own);
    return status;
}

/* ---- web identity ---- */

typedef struct sts_answer {
    ls_aws_credentials *credentials;
    char problem[256];
} sts_answer;

static ls_status take_sts(void *context, const char *name, const char *text)
{
    sts_answer *a = context;
    ls_aws_credentials *c = a->credentials;
    if (strcmp(name, "AccessKeyId") == 0) {
        return take(text, "the access key", c->source, c->id, sizeof c->id);
    }
    if (strcmp(name, "SecretAccessKey") == 0) {
        return take(text, "the secret key", c->source, c->secret, sizeof c->secret);
    }
    if (strcmp(name, "SessionToken") == 0) {
        return take(text, "the session token", c->source, c->token, sizeof c->token);
    }
    if (strcmp(name, "Expiration") == 0) {
        c->expires_s = ls_aws_time_parse(text);
    }
    if (strcmp(name, "Code") == 0) { /* the message may quote the token; the code never does */
        snprintf(a->problem, sizeof a->problem, "%.80s", text);
    }
    return LS_OK;
}

static ls_status ask_sts(const char *url, const ls_text *body, ls_aws_credentials *c)
{
    static const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded",
                                          "User-Agent: lockstep", NULL};
    const ls_http_request request = {.method = "POST",
                                     .url = url,
                                     .headers = headers,
                                     .connect_timeout_s = 10.0,
                                     .timeout_s = 30.0,
                                     .body = body->data,
                                     .body_bytes = body->bytes,
                                     .uses_proxies = strncmp(url, "https://", 8) == 0};
    ls_http_answer *answer = calloc(1, sizeof *answer);
    ls_status status = answer ? ls_http_do(&request, answer) : ls_fail(LS_ERR_MEMORY, "no memory for STS");
    sts_answer found = {.credentials = c};
    if (status == LS_OK) {
        status = ls_xml_walk(answer->body, answer->bytes, "the answer of STS", take_sts, &found);
    }
    if (status == LS_OK && (answer->code != 200 || !c->id[0] || !c->secret[0])) {
        status = ls_fail(LS_ERR_FAILED,
                         "%s does not accept the web identity (HTTP %d %s): check AWS_ROLE_ARN and the token "
                         "in AWS_WEB_IDENTITY_TOKEN_FILE",
                         url, answer->code, found.problem);
    }
    if (answer) {
        explicit_bzero(answer, sizeof *answer);
    }
    free(answer);
    return status;
}

static ls_status from_web_identity(const char *region, ls_aws_credentials *c)
{
    const char *path = environment("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = environment("AWS_ROLE_ARN");
    if (!path || !role) {
        return LS_ERR_NOT_FOUND;
    }
    *c = (ls_aws_credentials){.source = "the web identity"};
    ls_arena arena = {0};
    char *token = NULL;
    size_t bytes = 0;
    ls_status status = ls_file_read(&arena, path, FILE_BYTES_MAX, &token, &bytes);
    if (status == LS_OK) {
        const char *name = environment("AWS_ROLE_SESSION_NAME"), *url = environment("AWS_ENDPOINT_URL_STS");
        ls_sigv4_header pairs[] = {{"Action", "AssumeRoleWithWebIdentity"},
                                   {"RoleArn", role},
                                   {"RoleSessionName", name ? name : "lockstep"},
                                   {"Version", "2011-06-15"},
                                   {"WebIdentityToken", ls_text_trim(token)}};
        ls_text body = {0};
        ls_sigv4_append_query(&body, pairs, sizeof pairs / sizeof pairs[0]);
        url = url ? url : ls_arena_printf(&arena, "https://sts.%s.amazonaws.com/", region);
        status = ask_sts(url, &body, c);
        explicit_bzero(body.data, body.bytes);
        explicit_bzero(token, bytes);
        ls_text_release(&body);
    } else {
        status = ls_fail_within(LS_ERR_INVALID, "AWS_WEB_IDENTITY_TOKEN_FILE");
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- the metadata service ---- */

static ls_status ask_metadata(const char *method, const char *path, const char *header,
                              ls_http_answer *answer)
{
    const char *base = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *headers[] = {header, NULL};
    ls_text url = {0};
    ls_text_printf(&url, "%s%s", base ? base : "http://169.254.169.254", path);
    const ls_http_request request = {.method = method,
                                     .url = ls_text_string(&url),
                                     .headers = headers,
                                     .connect_timeout_s = 1.0,
                                     .timeout_s = 3.0};
    const ls_status status = ls_http_do(&request, answer);
    ls_text_release(&url);
    return status == LS_OK && answer->code == 200 ? LS_OK : LS_ERR_NOT_FOUND;
}

static ls_status read_metadata(const ls_http_answer *answer, ls_aws_credentials *c)
{
    json_t *root = NULL;
    const char *id = NULL, *secret = NULL, *token = NULL, *expires = NULL;
    LS_TRY(ls_json_parse(answer->body, answer->bytes, "the answer of the metadata service", &root));
    ls_status status = LS_OK;
    if (json_unpack(root, "{s:s, s:s, s:s, s?:s}", "AccessKeyId", &id, "SecretAccessKey", &secret, "Token",
                    &token, "Expiration", &expires) != 0) {
        status =
            ls_fail(LS_ERR_DATA, "the metadata service's credentials lack AccessKeyId, SecretAccessKey or "
                                 "Token");
    } else {
        status = fill(c, "the metadata service", id, secret, token);
        c->expires_s = expires ? ls_aws_time_parse(expires) : 0.0;
    }
    json_decref(root);
    return status;
}

static ls_status from_metadata(ls_aws_credentials *c)
{
    static const char folder[] = "/latest/meta-data/iam/security-credentials/";
    const char *disabled = environment("AWS_EC2_METADATA_DISABLED");
    if (disabled && strcasecmp(disabled, "true") == 0) {
        return LS_ERR_NOT_FOUND;
    }
    ls_http_answer *answer = calloc(1, sizeof *answer);
    ls_arena arena = {0};
    ls_status status = answer ? ask_metadata("PUT", "/latest/api/token",
                                             "X-aws-ec2-metadata-token-ttl-seconds: 21600", answer)
                              : LS_ERR_NOT_FOUND;
    if (status == LS_OK) {
        const char *header = ls_arena_printf(&arena, "X-aws-ec2-metadata-token: %s", answer->body);
        status = ask_metadata("GET", folder, header, answer);
        if (status == LS_OK) {
            answer->body[strcspn(answer->body, "\r\n")] = '\0';
            status =
                ask_metadata("GET", ls_arena_printf(&arena, "%s%s", folder, answer->body), header, answer);
        }
    }
    status = status == LS_OK ? read_metadata(answer, c) : LS_ERR_NOT_FOUND;
    if (answer) {
        explicit_bzero(answer, sizeof *answer);
    }
    free(answer);
    ls_arena_release(&arena);
    return status;
}

/* ---- all of them ---- */

ls_status ls_aws_credentials_find(const char *region, ls_aws_credentials *c)
{
    const char *id = environment("AWS_ACCESS_KEY_ID"), *secret = environment("AWS_SECRET_ACCESS_KEY");
    if (id || secret) {
        return fill(c, "the environment", id, secret, environment("AWS_SESSION_TOKEN"));
    }
    ls_status status = from_web_identity(region, c);
    if (status == LS_ERR_NOT_FOUND) {
        status = from_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", "~/.aws/credentials", c);
        status =
            status == LS_ERR_NOT_FOUND ? from_file("AWS_CONFIG_FILE", "config", "~/.aws/config", c) : status;
        status = status == LS_ERR_NOT_FOUND ? from_metadata(c) : status;
        if (status == LS_ERR_NOT_FOUND) {
            return ls_fail(
                LS_ERR_INVALID,
                "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put a "
                "profile into ~/.aws/credentials (AWS_PROFILE chooses one), or set "
                "AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or use a cloud machine with a role");
        }
    }
    return status;
}

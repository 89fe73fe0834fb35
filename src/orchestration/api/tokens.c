// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/tokens.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "env/database.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct token {
    char hash[LS_SHA256_HEX_BYTES];
    uint32_t uid, gid;
    bool only_reads;
    double made_s; /* 0: unknown, the owner's */
    char user[LS_USER_NAME_BYTES];
} token;

struct ls_api_tokens {
    ls_database *database;
    ls_statement *insert, *remove;
    char *path;  /* of the owner's */
    token owner; /* hash "": revoked */
    token *all;
    size_t count;
};

static bool is_of(const token *t, const ls_api_token_of *of)
{
    return t->uid == of->uid && t->only_reads == of->only_reads;
}

/* The owner's token that may do everything lies in a file. */
static bool is_in_file(const ls_api_tokens *tokens, const ls_api_token_of *of)
{
    return is_of(&tokens->owner, of);
}

/* ---- opening ---- */

static ls_status load_owner(ls_api_tokens *tokens)
{
    char text[LS_HTTP_TOKEN_BYTES + 1];
    LS_TRY(ls_http_token_load(tokens->path, text));
    ls_sha256_hex(text, LS_HTTP_TOKEN_BYTES, tokens->owner.hash);
    return LS_OK;
}

static ls_status load_all(ls_api_tokens *tokens)
{
    ls_statement *row = NULL;
    bool has_row = false;
    LS_TRY(ls_statement_prepare(
        tokens->database, "SELECT hash, uid, gid, user, only_reads, made FROM tokens LIMIT 4096", &row));
    ls_status status;
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row) {
        token *t = &tokens->all[tokens->count++];
        snprintf(t->hash, sizeof t->hash, "%s", ls_statement_text(row, 0));
        t->uid = (uint32_t)ls_statement_i64(row, 1);
        t->gid = (uint32_t)ls_statement_i64(row, 2);
        snprintf(t->user, sizeof t->user, "%s", ls_statement_text(row, 3));
        t->only_reads = ls_statement_i64(row, 4) != 0;
        t->made_s = ls_statement_f64(row, 5);
    }
    ls_statement_finish(row);
    return status;
}

static ls_status open_database(ls_api_tokens *tokens, const char *path)
{
    LS_TRY(ls_database_open(path, &tokens->database));
    LS_TRY(ls_database_run(tokens->database,
                           "CREATE TABLE IF NOT EXISTS tokens(hash TEXT NOT NULL, uid INTEGER NOT NULL,"
                           " gid INTEGER NOT NULL, user TEXT NOT NULL, only_reads INTEGER NOT NULL,"
                           " made REAL NOT NULL, PRIMARY KEY(uid, only_reads))"));
    LS_TRY(ls_statement_prepare(
        tokens->database, "INSERT OR REPLACE INTO tokens VALUES(?1, ?2, ?3, ?4, ?5, ?6)", &tokens->insert));
    LS_TRY(ls_statement_prepare(tokens->database, "DELETE FROM tokens WHERE uid=?1 AND only_reads=?2",
                                &tokens->remove));
    return load_all(tokens);
}

ls_status ls_api_tokens_open(const char *home, ls_api_tokens **tokens_out)
{
    ls_arena arena = {0};
    ls_api_tokens *tokens = calloc(1, sizeof *tokens);
    LS_ASSERT(tokens && "not enough memory for tokens");
    tokens->all = calloc(LS_API_TOKENS_MAX, sizeof *tokens->all);
    tokens->path = strdup(ls_path_join(&arena, home, "token"));
    LS_ASSERT(tokens->all && tokens->path && "not enough memory for tokens");
    tokens->owner = (token){.uid = (uint32_t)geteuid(), .gid = (uint32_t)getegid()};
    ls_user_name(tokens->owner.uid, tokens->owner.user);
    ls_status status = open_database(tokens, ls_path_join(&arena, home, "lockstep.db"));
    status = status != LS_OK ? status : load_owner(tokens);
    ls_arena_release(&arena);
    if (status != LS_OK) {
        ls_api_tokens_close(tokens);
        return status;
    }
    *tokens_out = tokens;
    return LS_OK;
}

void ls_api_tokens_close(ls_api_tokens *tokens)
{
    if (tokens) {
        ls_statement_finish(tokens->insert);
        ls_statement_finish(tokens->remove);
        ls_database_close(tokens->database);
        free(tokens->path);
        free(tokens->all);
        free(tokens);
    }
}

/* ---- looking ---- */

bool ls_api_tokens_find(void *context, const char *text, ls_http_identity *identity_out)
{
    const ls_api_tokens *tokens = context;
    char hash[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(text, strlen(text), hash);
    const token *found = strcmp(tokens->owner.hash, hash) == 0 ? &tokens->owner : NULL;
    for (size_t i = 0; i < tokens->count && !found; i++) {
        found = strcmp(tokens->all[i].hash, hash) == 0 ? &tokens->all[i] : NULL;
    }
    if (found) {
        *identity_out = (ls_http_identity){.uid = found->uid,
                                           .gid = found->gid,
                                           .has_gid = true,
                                           .only_reads = found->only_reads,
                                           .name = found->user};
    }
    return found != NULL;
}

static token *find_of(const ls_api_tokens *tokens, const ls_api_token_of *of)
{
    for (size_t i = 0; i < tokens->count; i++) {
        if (is_of(&tokens->all[i], of)) {
            return &tokens->all[i];
        }
    }
    return NULL;
}

static json_t *json_of(const token *t)
{
    return json_pack("{s:s, s:I, s:b, s:o}", "user", t->user, "uid", (json_int_t)t->uid, "read_only",
                     t->only_reads, "made", t->made_s > 0.0 ? json_real(t->made_s) : json_null());
}

json_t *ls_api_tokens_json(const ls_api_tokens *tokens, uint32_t uid, bool all)
{
    json_t *list = json_array();
    if (tokens->owner.hash[0] && (all || tokens->owner.uid == uid)) {
        json_array_append_new(list, json_of(&tokens->owner));
    }
    for (size_t i = 0; i < tokens->count; i++) {
        if (all || tokens->all[i].uid == uid) {
            json_array_append_new(list, json_of(&tokens->all[i]));
        }
    }
    return list;
}

/* ---- changing ---- */

static ls_status make_owner(ls_api_tokens *tokens, bool replaces, char *text)
{
    if (replaces && unlink(tokens->path) != 0 && errno != ENOENT) {
        return ls_fail_errno(errno, "can't remove %s", tokens->path);
    }
    tokens->owner.hash[0] = '\0';
    LS_TRY(load_owner(tokens));
    return ls_http_token_load(tokens->path, text);
}

static ls_status write_row(ls_api_tokens *tokens, const token *t)
{
    ls_statement *row = tokens->insert;
    ls_statement_set_text(row, 1, t->hash);
    ls_statement_set_i64(row, 2, t->uid);
    ls_statement_set_i64(row, 3, t->gid);
    ls_statement_set_text(row, 4, t->user);
    ls_statement_set_i64(row, 5, t->only_reads);
    ls_statement_set_f64(row, 6, t->made_s);
    return ls_statement_do(row);
}

ls_status ls_api_tokens_make(ls_api_tokens *tokens, const ls_api_token_of *of, double now_s, bool replaces,
                             char text_out[LS_HTTP_TOKEN_BYTES + 1])
{
    if (is_in_file(tokens, of)) {
        return make_owner(tokens, replaces, text_out);
    }
    token *place = find_of(tokens, of);
    if (place && !replaces) {
        return ls_fail(LS_ERR_INVALID,
                       "user %s already has %s access token. Only its hash is stored, so it can't be shown "
                       "again: --rotate replaces it with a new one and makes the old one invalid",
                       of->user, of->only_reads ? "a read-only" : "a");
    }
    if (!place && tokens->count == LS_API_TOKENS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "the daemon already keeps %d access tokens, which is the limit: revoke some with "
                       "'lockstep token --revoke' first",
                       LS_API_TOKENS_MAX);
    }
    token made = {.uid = of->uid, .gid = of->gid, .only_reads = of->only_reads, .made_s = now_s};
    snprintf(made.user, sizeof made.user, "%s", of->user);
    ls_http_token_make(text_out);
    ls_sha256_hex(text_out, LS_HTTP_TOKEN_BYTES, made.hash);
    LS_TRY(write_row(tokens, &made));
    place = place ? place : &tokens->all[tokens->count++];
    *place = made;
    return LS_OK;
}

ls_status ls_api_tokens_revoke(ls_api_tokens *tokens, const ls_api_token_of *of)
{
    if (is_in_file(tokens, of) && tokens->owner.hash[0]) {
        tokens->owner.hash[0] = '\0';
        return unlink(tokens->path) == 0 || errno == ENOENT
                   ? LS_OK
                   : ls_fail_errno(errno, "can't remove %s", tokens->path);
    }
    token *place = find_of(tokens, of);
    if (!place) {
        return ls_fail(LS_ERR_NOT_FOUND, "user %s has no %saccess token", of->user,
                       of->only_reads ? "read-only " : "");
    }
    ls_statement_set_i64(tokens->remove, 1, of->uid);
    ls_statement_set_i64(tokens->remove, 2, of->only_reads);
    LS_TRY(ls_statement_do(tokens->remove));
    *place = tokens->all[--tokens->count];
    return LS_OK;
}

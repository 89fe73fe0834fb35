// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens: who may come in over TCP, and as whom.
 *
 * A user has at most two: one that may do what the user may, and one that only reads. The database
 * keeps the SHA-256 of a token with its user, kind and time; the token itself is shown once, when
 * it is made. Tokens are 32 random bytes, so the plain hash of one can't be guessed.
 *
 * The token of the daemon's owner that may do everything is the one in HOME/token (mode 0600). It
 * is the only one whose text is stored, and is made when the daemon starts without it.
 *
 * One owner, the loop's thread; a change blocks it for one transaction.
 */
#ifndef LS_ORCHESTRATION_API_TOKENS_H
#define LS_ORCHESTRATION_API_TOKENS_H

#include "base/json.h"
#include "base/status.h"
#include "env/http/http_guard.h"
#include "env/user/user.h"

#include <stdbool.h>
#include <stdint.h>

enum { LS_API_TOKENS_MAX = 4096 };

typedef struct ls_api_tokens ls_api_tokens;

/* Whose token, and of which kind. */
typedef struct ls_api_token_of {
    uint32_t uid, gid;
    const char *user;
    bool only_reads;
} ls_api_token_of;

/* home: holds `lockstep.db` and `token`; each is made if it is missing. Errors: those of
 * env/database.h and ls_http_token_load. */
LS_MUST_CHECK ls_status ls_api_tokens_open(const char *home, ls_api_tokens **tokens_out);
/* NULL: nothing. */
void ls_api_tokens_close(ls_api_tokens *tokens);

/* See ls_http_guard: tokens is an ls_api_tokens. */
bool ls_api_tokens_find(void *tokens, const char *text, ls_http_identity *identity_out);

/*
 * Makes a token. replaces: one that exists is no longer valid. The owner's is read from its file
 * unless it is replaced. Errors: LS_ERR_INVALID (there is one already, or too many in all),
 * LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_api_tokens_make(ls_api_tokens *tokens, const ls_api_token_of *of, double now_s,
                                           bool replaces, char text_out[LS_HTTP_TOKEN_BYTES + 1]);

/* Errors: LS_ERR_NOT_FOUND (there is no such token), LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_api_tokens_revoke(ls_api_tokens *tokens, const ls_api_token_of *of);

/* [{"user","uid","read_only","made"}]: those of a user, or all; never their text. A new array. */
json_t *ls_api_tokens_json(const ls_api_tokens *tokens, uint32_t uid, bool all);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Request: the body of a POST to /v1/completions or /v1/chat/completions, read and checked.
 *
 * The fields are those of OpenAI's API, and `top_k`. A field that would change the answer and is
 * not supported is refused by name, unless it has the value that changes nothing; so is a field
 * that is not known. `null` counts as absent.
 */
#ifndef LS_EXECUTION_SERVE_REQUEST_H
#define LS_EXECUTION_SERVE_REQUEST_H

#include "base/arena.h"
#include "base/json.h"
#include "data/conversation/recipe.h"
#include "execution/generate/generate.h"
#include "tokenizer/tokenizer.h"

enum {
    LS_SERVE_STOPS_MAX = 16,        /* texts that stop an answer */
    LS_SERVE_STOP_BYTES_MAX = 1024, /* of one of them */
    LS_SERVE_ANSWERS_MAX = 256,     /* prompts times n of one request */
    LS_SERVE_SCORED_MAX = 200000,   /* log-probabilities in all of its answers */
};

/* What requests are read for. All borrowed. */
typedef struct ls_serve_model {
    const char *name;
    const ls_tokenizer *tokenizer;
    int64_t vocab;
    int64_t context;         /* tokens of a prompt and its answer together */
    const ls_recipe *recipe; /* makes prompts of chats; may have no template */
} ls_serve_model;

typedef struct ls_serve_request {
    ls_arena arena; /* holds everything below */
    bool is_chat;
    ls_token_buffer *prompts;
    size_t prompt_count;
    uint64_t n; /* answers to each prompt */
    uint64_t max_tokens;
    ls_sampling sampling; /* see has_seed */
    bool has_seed;        /* answer i to a prompt has seed + i; otherwise, answer i of all */
    const char **stops;
    size_t stop_count;
    bool streams, includes_usage;
    bool echo;          /* completions: the answer begins with the prompt */
    bool scores;        /* log-probabilities are wanted */
    uint64_t top_count; /* of so many likeliest tokens, too */
    json_t *tools;      /* the answer may be calls of these; NULL: none */
} ls_serve_request;

/*
 * Reads `body`. *request_out needs a release, whatever is returned.
 * Errors: LS_ERR_INVALID; LS_ERR_NOT_FOUND for another model's name; LS_ERR_DATA for a template
 * that refuses the messages. param_out: the field that is wrong, or NULL; it lives as long as the
 * request.
 */
LS_MUST_CHECK ls_status ls_serve_request_read(const ls_serve_model *model, bool is_chat, const char *body,
                                              size_t bytes, ls_serve_request *request_out,
                                              const char **param_out);
void ls_serve_request_release(ls_serve_request *request);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the server: jobs and answers.
 *
 *   serve.c    connections, the queue, the loop
 *   answer.c   what a job has said so far, as JSON
 */
#ifndef LS_EXECUTION_SERVE_SERVE_INTERNAL_H
#define LS_EXECUTION_SERVE_SERVE_INTERNAL_H

#include "execution/serve/answer_text.h"
#include "execution/serve/request.h"

typedef struct ls_serve_job ls_serve_job;

/* A token with its scores, for answers that want log-probabilities. */
typedef struct ls_scored_token {
    int32_t token;
    bool has_scores; /* not the first token of a prompt */
    size_t offset;   /* of its text in the answer, in characters */
    ls_text_scores scores;
} ls_scored_token;

/* One text that is generated for a job. */
typedef struct ls_serve_answer {
    ls_serve_job *job;
    struct ls_serve_answer *next; /* in the queue */
    uint32_t index;               /* within the job */
    const ls_token_buffer *prompt;
    bool is_running;
    size_t slot;
    size_t prompt_seen;  /* tokens of the prompt that were reported with scores */
    ls_answer_text echo; /* the prompt's text, when it is wanted */
    ls_answer_text text;
    ls_scored_token *scored;
    size_t scored_count, scored_capacity;
    size_t counted_bytes, counted; /* bytes of echo and text, and their characters */
    uint64_t new_tokens;
    const char *finish; /* "stop", "length", "tool_calls"; NULL: not yet */
    /* already sent in a stream */
    size_t sent_echo, sent_text, sent_scored;
    bool has_begun;
} ls_serve_answer;

struct ls_serve_job {
    ls_serve_request request;
    const ls_serve_model *model;
    ls_serve_answer *answers;
    size_t answer_count, open_count; /* open: not finished */
    uint64_t number;                 /* names it */
    double created_s;
};

/* Adds a token with scores (NULL: it has none) to what an answer keeps. */
void ls_serve_answer_keep_scores(ls_serve_answer *answer, int32_t token, const ls_text_scores *scores);

/* The whole response. The receiver releases it. */
json_t *ls_serve_answer_response(const ls_serve_job *job);

/* Appends the events of a stream for what is new in an answer, if anything is. */
void ls_serve_answer_append_events(ls_serve_answer *answer, ls_text *events);

/* Appends the end of a stream: usage, if it is wanted, and the last event. */
void ls_serve_answer_append_end(const ls_serve_job *job, ls_text *events);

/* An error in OpenAI's form. code: HTTP. */
json_t *ls_serve_answer_error(unsigned code, const char *message, const char *param);

#endif

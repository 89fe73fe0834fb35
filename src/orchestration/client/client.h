// SPDX-License-Identifier: Apache-2.0
/*
 * Client: asks the daemon of $LOCKSTEP_HOME over its Unix socket. One connection per question. Blocking; thread-safe.
 */
#ifndef LS_ORCHESTRATION_CLIENT_CLIENT_H
#define LS_ORCHESTRATION_CLIENT_CLIENT_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

typedef struct ls_client_request {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/jobs/7", escaped where it needs to be (ls_client_append_escaped) */
    const json_t *body; /* of POST; NULL: {} */
    double timeout_s;   /* without a byte from the daemon; 0: for ever */
} ls_client_request;

/* A part of an answer's body as it comes. False: no more is wanted. */
typedef bool (*ls_client_take)(void *context, const char *data, size_t bytes);

/*
 * Asks, and returns the JSON object of an answer that says yes; the caller drops it. An answer that says no becomes this call's error, with
 * its text and its status.
 *
 * Errors beside those: LS_ERR_FAILED when no daemon answers there, saying how to start one; LS_ERR_IO when it went away in the middle;
 * LS_ERR_TIMEOUT.
 */
LS_MUST_CHECK ls_status ls_client_ask(const ls_client_request *request, json_t **answer_out);

/* The same for an answer that is text: handed over as it comes. next_out: of the header X-Next, 0 without; may be NULL. */
LS_MUST_CHECK ls_status ls_client_read(const ls_client_request *request, ls_client_take take, void *context,
                                       uint64_t *next_out);

/* For a piece of a query: everything but letters, digits and -._~ as %XX. */
void ls_client_append_escaped(ls_text *text, const char *string);

#endif

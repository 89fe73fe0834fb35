// SPDX-License-Identifier: Apache-2.0
/*
 * Client: sends requests to the daemon of $LOCKSTEP_HOME over its Unix socket, one connection each.
 * Without LOCKSTEP_HOME it is the daemon of ~/.lockstep, else root's (LS_SHARED_HOME).
 * Blocking; thread-safe.
 */
#ifndef LS_ORCHESTRATION_CLIENT_CLIENT_H
#define LS_ORCHESTRATION_CLIENT_CLIENT_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

typedef struct ls_client_request {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/jobs/7"; the caller escapes it (ls_client_append_escaped) */
    const json_t *body; /* of POST; NULL: {} */
    double timeout_s;   /* without a byte from the daemon; 0: no limit */
} ls_client_request;

/* Gets the parts of an answer's body as they arrive. False: no more is wanted. */
typedef bool (*ls_client_take)(void *context, const char *data, size_t bytes);

/*
 * Sends a request and returns the JSON object of a successful answer; the caller drops it. A
 * refusal becomes this call's error, with the daemon's text and status.
 *
 * Other errors: LS_ERR_FAILED (no daemon answers there; the text says how to start one), LS_ERR_IO
 * (the connection was cut), LS_ERR_TIMEOUT.
 */
LS_MUST_CHECK ls_status ls_client_ask(const ls_client_request *request, json_t **answer_out);

/* The same for an answer that is text, which `take` gets as it arrives. next_out: value of the
 * header X-Next, 0 if absent; may be NULL. */
LS_MUST_CHECK ls_status ls_client_read(const ls_client_request *request, ls_client_take take, void *context,
                                       uint64_t *next_out);

/* Appends a part of a query: everything but letters, digits and -._~ as %XX. */
void ls_client_append_escaped(ls_text *text, const char *string);

#endif

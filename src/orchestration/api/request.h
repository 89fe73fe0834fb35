// SPDX-License-Identifier: Apache-2.0
/*
 * Requests: from what came over the wire to a row of the table and checked arguments. Pure;
 * thread-safe; fuzzed (tests/fuzz/fuzz_api.c).
 *
 * Nothing in a request is used as a file path or a command here. A URL path is cut at its slashes
 * before it is unescaped, so an escaped slash stays a character of its piece, and a piece is only
 * compared with words or read as a number.
 */
#ifndef LS_ORCHESTRATION_API_REQUEST_H
#define LS_ORCHESTRATION_API_REQUEST_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/api/route.h"

typedef struct ls_api_request {
    const ls_api_route *route;
    json_t *arguments; /* an object: what was given, checked and typed; the caller drops it */
} ls_api_request;

/*
 * Finds the row; HEAD finds that of GET. `target` as in the request line, still escaped:
 * "/v1/jobs/7/log?from=100".
 *
 * Errors, with the HTTP code in code_out: 404 unknown path, with the nearest one; 405 wrong method;
 * 414 too long; 400 not UTF-8.
 */
LS_MUST_CHECK ls_status ls_api_route_of(const char *method, const char *target,
                                        const ls_api_route **route_out, int *code_out);

/* The methods of a path that exists, as the header Allow has them: "GET, HEAD, POST". */
void ls_api_allowed_methods(const char *target, char *out, size_t bytes);

/*
 * Reads arguments from path, query and body (a JSON object, or empty). An argument the row does not
 * name is refused, with the nearest name; so is one that is given twice, has the wrong type or is
 * out of range.
 *
 * request_out: written only on success. Errors: LS_ERR_INVALID with code 400; 413 for a body above
 * LS_API_BODY_BYTES_MAX.
 */
LS_MUST_CHECK ls_status ls_api_request_parse(const ls_api_route *route, const char *target, const char *body,
                                             size_t body_bytes, ls_api_request *request_out, int *code_out);

/*
 * Undoes %XX in `text[0..bytes)`, and with `plus_is_space` also +, into `out` (at least bytes + 1),
 * zero-terminated. Returns the bytes written, or SIZE_MAX for a bad escape, a zero byte or bytes
 * that are not UTF-8.
 */
size_t ls_api_unescape(const char *text, size_t bytes, bool plus_is_space, char *out);

#endif

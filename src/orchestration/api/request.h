// SPDX-License-Identifier: Apache-2.0
/*
 * Requests: from what came over the wire to a row of the table and checked arguments. Pure; thread-safe; fuzzed (tests/fuzz/fuzz_api.c).
 *
 * Nothing in a request is ever used as a path or a command here: a path is cut at its slashes first and unescaped then, so that an escaped
 * slash stays a character of its piece, and a piece is only compared with words or read as a number.
 */
#ifndef LS_ORCHESTRATION_API_REQUEST_H
#define LS_ORCHESTRATION_API_REQUEST_H

#include "base/json.h"
#include "base/status.h"
#include "orchestration/api/route.h"

typedef struct ls_api_request {
    const ls_api_route *route;
    json_t *arguments; /* an object with what was given, checked and typed; the caller drops it */
} ls_api_request;

/*
 * Finds the row. `target` is what stands in the request line: "/v1/jobs/7/log?from=100", escapes and all.
 *
 * Errors, with the HTTP code stored: 404 no such path, with the nearest; 405 another method; 414 too long; 400 an escape that is none.
 */
LS_MUST_CHECK ls_status ls_api_route_of(const char *method, const char *target,
                                        const ls_api_route **route_out, int *code_out);

/*
 * Reads arguments from path, query and body (a JSON object; empty for none). What the row does not name is refused with the nearest name,
 * as is what is there twice, of another type, or outside its range.
 *
 * request_out: written only on success. Errors: LS_ERR_INVALID with code 400; 413 for a body above LS_API_BODY_BYTES_MAX.
 */
LS_MUST_CHECK ls_status ls_api_request_parse(const ls_api_route *route, const char *target, const char *body,
                                             size_t body_bytes, ls_api_request *request_out, int *code_out);

/*
 * Undoes %XX in `text[0..bytes)`, and with `plus_is_space` + too, into `out` (at least bytes + 1), zero-terminated. Returns its bytes, or
 * SIZE_MAX for an escape that is none, a zero byte or bytes that are not UTF-8.
 */
size_t ls_api_unescape(const char *text, size_t bytes, bool plus_is_space, char *out);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * HTTP framing: requests that a proxy in front of the server may read differently than the server
 * does: where one ends and the next begins, or for which host it is. They are refused and their
 * connection is closed (RFC 9112, sections 5 to 7 and 11.2).
 *
 * libmicrohttpd takes the first of two lengths, and believes Transfer-Encoding beside a length. No
 * client of this server sends such requests.
 *
 * Thread-safe.
 */
#ifndef LS_ENV_HTTP_HTTP_FRAMING_H
#define LS_ENV_HTTP_HTTP_FRAMING_H

#include "env/http/microhttpd.h"

/*
 * Looks at the headers of a request. Errors: LS_ERR_INVALID, with the HTTP code in code_out: 400,
 * or 501 for a Transfer-Encoding other than chunked.
 */
LS_MUST_CHECK ls_status ls_http_framing_check(const ls_microhttpd *mhd, struct MHD_Connection *library,
                                              unsigned *code_out);

#endif

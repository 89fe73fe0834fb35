// SPDX-License-Identifier: Apache-2.0
/*
 * libmicrohttpd, loaded when a server starts. Linked, it and the TLS library it needs would add
 * their load time to every process of the program. The functions have the library's own names and
 * contracts (microhttpd.h). Only env/http uses it.
 */
#ifndef LS_ENV_HTTP_MICROHTTPD_H
#define LS_ENV_HTTP_MICROHTTPD_H

#include "base/status.h"

#include <microhttpd.h>

#define LS_MICROHTTPD_FUNCTIONS(X)                                                                           \
    X(start_daemon)                                                                                          \
    X(stop_daemon)                                                                                           \
    X(run)                                                                                                   \
    X(get_timeout)                                                                                           \
    X(get_daemon_info)                                                                                       \
    X(get_connection_info)                                                                                   \
    X(get_connection_values)                                                                                 \
    X(lookup_connection_value)                                                                               \
    X(create_response_from_buffer)                                                                           \
    X(create_response_from_callback)                                                                         \
    X(add_response_header)                                                                                   \
    X(queue_response)                                                                                        \
    X(destroy_response)                                                                                      \
    X(suspend_connection)                                                                                    \
    X(resume_connection)
#define LS_MICROHTTPD_FIELD(name) __typeof__(MHD_##name) *name;
typedef struct ls_microhttpd {
    LS_MICROHTTPD_FUNCTIONS(LS_MICROHTTPD_FIELD)
} ls_microhttpd;

/* Thread-safe; the library stays loaded. Errors: LS_ERR_UNSUPPORTED when it is not installed. */
LS_MUST_CHECK ls_status ls_microhttpd_load(const ls_microhttpd **library_out);

#endif

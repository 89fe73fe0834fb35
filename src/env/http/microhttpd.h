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

typedef struct ls_microhttpd {
    struct MHD_Daemon *(*start_daemon)(unsigned int flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                       void *accept_context, MHD_AccessHandlerCallback handler,
                                       void *handler_context, ...);
    void (*stop_daemon)(struct MHD_Daemon *daemon);
    enum MHD_Result (*run)(struct MHD_Daemon *daemon);
    enum MHD_Result (*get_timeout)(struct MHD_Daemon *daemon, MHD_UNSIGNED_LONG_LONG *timeout_ms);
    const union MHD_DaemonInfo *(*get_daemon_info)(struct MHD_Daemon *daemon, enum MHD_DaemonInfoType what,
                                                   ...);
    const union MHD_ConnectionInfo *(*get_connection_info)(struct MHD_Connection *connection,
                                                           enum MHD_ConnectionInfoType what, ...);
    int (*get_connection_values)(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                 MHD_KeyValueIterator iterator, void *context);
    const char *(*lookup_connection_value)(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                           const char *key);
    struct MHD_Response *(*create_response_from_buffer)(size_t bytes, void *data,
                                                        enum MHD_ResponseMemoryMode mode);
    struct MHD_Response *(*create_response_from_callback)(uint64_t bytes, size_t block_bytes,
                                                          MHD_ContentReaderCallback read, void *context,
                                                          MHD_ContentReaderFreeCallback release);
    enum MHD_Result (*add_response_header)(struct MHD_Response *response, const char *name,
                                           const char *value);
    enum MHD_Result (*queue_response)(struct MHD_Connection *connection, unsigned int code,
                                      struct MHD_Response *response);
    void (*destroy_response)(struct MHD_Response *response);
    void (*suspend_connection)(struct MHD_Connection *connection);
    void (*resume_connection)(struct MHD_Connection *connection);
} ls_microhttpd;

/* Thread-safe; the library stays loaded. Errors: LS_ERR_UNSUPPORTED when it is not installed. */
LS_MUST_CHECK ls_status ls_microhttpd_load(const ls_microhttpd **library_out);

#endif

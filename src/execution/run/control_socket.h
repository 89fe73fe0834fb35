// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket: how other processes of the same user talk to a run that is training
 * (`lockstep resize RUN`).
 *
 *   RUN/control       one line: the socket's address
 *   the socket        in $XDG_RUNTIME_DIR/lockstep or /tmp/lockstep-UID, folders that only this
 *                     user can enter. It is not in RUN, whose path may be too long for a socket
 *                     or lie on a file system without sockets
 *
 * A Unix socket with the messages of env/env.h: one JSON object is the request, one the answer.
 *
 *   {"request": "status"}                  {"ok": true, "step": 812, "ranks": [...], ...}
 *   {"request": "resize", "ranks": 3}      {"ok": true} if accepted; "status" shows the progress
 *   {"request": "leave", "rank": 2}        the same
 *   {"request": "checkpoint"}              {"ok": true}; saves at the next step boundary at which
 *                                          the state is at rest
 *   {"request": "stop"}                    {"ok": true}; stops as on SIGTERM
 *   anything else                          {"ok": false, "error": "...", "status": "invalid"};
 *                                          status is a name of ls_status_name
 *
 * The server has its own thread, on which it calls the actions it was given. Sockets left by a
 * killed process are removed by the next process that opens one.
 */
#ifndef LS_EXECUTION_RUN_CONTROL_SOCKET_H
#define LS_EXECUTION_RUN_CONTROL_SOCKET_H

#include "base/json.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LS_CONTROL_REQUEST_BYTES_MAX = 4096 };

typedef struct ls_control_actions {
    void *context;
    json_t *(*status)(void *context); /* an object; `ok` is added to it */
    /* Each returns LS_OK, or an error whose text becomes the answer. */
    ls_status (*resize)(void *context, uint32_t ranks);
    ls_status (*leave)(void *context, uint32_t rank);
    ls_status (*checkpoint)(void *context);
    ls_status (*stop)(void *context);
} ls_control_actions;

typedef struct ls_control_socket ls_control_socket;

/* Starts to listen and writes RUN/control. actions: copied. Errors: LS_ERR_IO, LS_ERR_INVALID,
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_control_socket_open(const char *run_dir, const ls_control_actions *actions,
                                               ls_control_socket **socket_out);
/* Waits for an action that is running; removes the socket and RUN/control. NULL is allowed. */
void ls_control_socket_close(ls_control_socket *socket);

/*
 * Sends a request to the run in `run_dir`. answer_out: the answer, whether `ok` or not; the caller
 * drops it. Errors: LS_ERR_NOT_FOUND if no process trains there or it has no control socket;
 * LS_ERR_TIMEOUT, LS_ERR_DATA, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_control_socket_ask(const char *run_dir, const json_t *request, double timeout_s,
                                              json_t **answer_out);

/* ---- requests ---- */

typedef enum ls_control_verb {
    LS_CONTROL_STATUS,
    LS_CONTROL_RESIZE,
    LS_CONTROL_LEAVE,
    LS_CONTROL_CHECKPOINT,
    LS_CONTROL_STOP,
    LS_CONTROL_VERBS
} ls_control_verb;

typedef struct ls_control_request {
    ls_control_verb verb;
    uint32_t number; /* ranks of a resize, rank of a leave */
} ls_control_request;

/* Parses a request. Pure. Errors: LS_ERR_INVALID if it is not a JSON object, its name is
 * unknown, or its number is missing, not a number, or out of range. */
LS_MUST_CHECK ls_status ls_control_request_read(const void *data, size_t bytes,
                                                ls_control_request *request_out);
/* Carries out a request and returns the answer, never NULL. */
json_t *ls_control_request_answer(const ls_control_actions *actions, const void *data, size_t bytes);

#endif

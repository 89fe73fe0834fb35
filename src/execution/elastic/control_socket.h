// SPDX-License-Identifier: Apache-2.0
/*
 * Control socket: how other processes of the same user talk to a run that goes on (`lockstep resize RUN`).
 *
 *   RUN/control       one line: the socket's address
 *   the socket        in $XDG_RUNTIME_DIR/lockstep or /tmp/lockstep-UID, folders that only this user can enter: a run directory's path may be
 *                     longer than a socket's can be, or on a file system that has none
 *
 * A Unix socket with base/env's messages: one JSON object asks, one answers.
 *
 *   {"request": "status"}                  {"ok": true, "step": 812, "ranks": [...], ...}
 *   {"request": "resize", "ranks": 3}      {"ok": true} when it was accepted: status tells how far it is
 *   {"request": "leave", "rank": 2}        the same
 *   {"request": "checkpoint"}              {"ok": true}: at the next step boundary at which the state is at rest
 *   {"request": "stop"}                    {"ok": true}: as on SIGTERM
 *   whatever is none of these              {"ok": false, "error": "...", "status": "invalid"}: ls_status_name
 *
 * The server has a thread of its own; what is asked is done by the actions it was given, on that thread. Sockets that a killed process left
 * are removed by the next one that makes its own.
 */
#ifndef LS_EXECUTION_ELASTIC_CONTROL_SOCKET_H
#define LS_EXECUTION_ELASTIC_CONTROL_SOCKET_H

#include "base/json.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { LS_CONTROL_REQUEST_BYTES_MAX = 4096 };

typedef struct ls_control_actions {
    void *context;
    json_t *(*status)(void *context); /* an object; `ok` is added to it */
    /* LS_OK, or an error whose text is the answer. */
    ls_status (*resize)(void *context, uint32_t ranks);
    ls_status (*leave)(void *context, uint32_t rank);
    ls_status (*checkpoint)(void *context);
    ls_status (*stop)(void *context);
} ls_control_actions;

typedef struct ls_control_socket ls_control_socket;

/* Listens, and writes RUN/control. actions: copied. Errors: LS_ERR_IO, LS_ERR_INVALID, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_control_socket_open(const char *run_dir, const ls_control_actions *actions,
                                               ls_control_socket **socket_out);
/* Waits for the action that is under way, if any; removes the socket and RUN/control. NULL allowed. */
void ls_control_socket_close(ls_control_socket *socket);

/*
 * Asks the run in `run_dir`. answer_out: the object, `ok` or not; the caller drops it. Errors: LS_ERR_NOT_FOUND when no process trains
 * there, or one that can't be asked; LS_ERR_TIMEOUT, LS_ERR_DATA, LS_ERR_IO.
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

/* Reads one. Pure. Errors: LS_ERR_INVALID: no JSON object, no request of that name, a number that is missing, none, or out of range. */
LS_MUST_CHECK ls_status ls_control_request_read(const void *data, size_t bytes,
                                                ls_control_request *request_out);
/* Does what is asked and makes the answer; never NULL. */
json_t *ls_control_request_answer(const ls_control_actions *actions, const void *data, size_t bytes);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "orchestration/client/client.h"

#include "base/arena.h"
#include "base/file.h"
#include "env/user/user.h"
#include "orchestration/client/response.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { BLOCK_BYTES = 64 * 1024, ANSWER_BYTES_MAX = 256 * 1024 * 1024, ERROR_BYTES_MAX = 64 * 1024 };

/* For requests without a limit on the answer. */
#define CONNECT_LIMIT_S 20.0

/* ---- the connection ---- */

/* The path of a socket has at most 107 bytes; a home folder with a longer path is named by a
 * descriptor. The limit also ends a wait for a place among the connections that a stopped daemon
 * has not accepted. */
static int connect_to(const char *home, double timeout_s)
{
    const int folder = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int fd = folder < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const double limit_s = timeout_s > 0.0 ? timeout_s : CONNECT_LIMIT_S;
    const struct timeval limit = {.tv_sec = (time_t)limit_s,
                                  .tv_usec = (suseconds_t)(1e6 * (limit_s - floor(limit_s)))};
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    }
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
    const bool is_open = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    const int error = errno;
    if (folder >= 0) {
        close(folder);
    }
    if (!is_open && fd >= 0) {
        close(fd);
    }
    return is_open ? fd : -error;
}

/* A daemon of an ordinary user serves that user only. */
static ls_status is_of_another(const char *home)
{
    struct stat info;
    if (stat(home, &info) != 0) {
        return ls_fail_errno(EACCES, "can't reach the daemon of %s: set LOCKSTEP_HOME to a folder of yours",
                             home);
    }
    char name[LS_USER_NAME_BYTES];
    ls_user_name(info.st_uid, name);
    return ls_fail(LS_ERR_INVALID,
                   "%s belongs to user %s, whose daemon serves no other user: set LOCKSTEP_HOME to the "
                   "folder of your own daemon",
                   home, name);
}

/* The error of a daemon that is there and does not answer. */
static ls_status is_silent(double timeout_s)
{
    return ls_fail(
        LS_ERR_TIMEOUT,
        "the daemon has not answered for %g s: its process is suspended, or its disk does not respond. It "
        "may still carry out the request; 'lockstep ps' shows the result once the daemon answers again",
        timeout_s);
}

static ls_status open_connection(double timeout_s, int *fd_out)
{
    ls_arena arena = {0};
    char *home = ls_home_path(&arena, "");
    if (!home) {
        return ls_fail(LS_ERR_INVALID,
                       "can't tell where the daemon is: neither LOCKSTEP_HOME nor HOME is set");
    }
    for (size_t bytes = strlen(home); bytes > 1 && home[bytes - 1] == '/';) {
        home[--bytes] = '\0';
    }
    int fd = connect_to(home, timeout_s);
    const char *asked = home; /* whose daemon gave the last answer */
    ls_status status = LS_OK;
    const char *chosen = getenv("LOCKSTEP_HOME");
    if ((fd == -ENOENT || fd == -ECONNREFUSED) && !(chosen && chosen[0])) {
        /* no daemon of this user's: the one of root's, if there is one */
        const int shared = connect_to(LS_SHARED_HOME, timeout_s);
        const bool is_shared = shared >= 0 || shared == -EAGAIN;
        fd = is_shared ? shared : fd;
        asked = is_shared ? LS_SHARED_HOME : home;
    }
    if (fd == -ENOENT || fd == -ECONNREFUSED) {
        status = ls_fail(LS_ERR_FAILED, "no daemon runs with %s as its folder: start one with 'lockstep up'",
                         home);
    } else if (fd == -EACCES) {
        status = is_of_another(asked);
    } else if (fd == -EAGAIN) {
        status = is_silent(timeout_s > 0.0 ? timeout_s : CONNECT_LIMIT_S);
    } else if (fd < 0) {
        status = ls_fail_errno(-fd, "can't reach the daemon at %s/socket", asked);
    }
    ls_arena_release(&arena);
    *fd_out = fd;
    return status;
}

static ls_status send_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        /* It may have answered and closed before it read everything: its answer matters more. */
        if (sent < 0) {
            return errno == EPIPE || errno == ECONNRESET ? LS_OK
                                                         : ls_fail_errno(errno, "can't send to the daemon");
        }
        data += sent;
        bytes -= (size_t)sent;
    }
    return LS_OK;
}

static ls_status send_request(int fd, const ls_client_request *request)
{
    ls_text text = {0};
    const bool is_post = strcmp(request->method, "POST") == 0;
    char *body = !is_post ? NULL : request->body ? json_dumps(request->body, JSON_COMPACT) : strdup("{}");
    ls_text_printf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", request->method,
                   request->path);
    if (body) {
        ls_text_printf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    }
    ls_text_append(&text, "\r\n");
    ls_text_append(&text, body ? body : "");
    free(body);
    const ls_status status = send_all(fd, ls_text_string(&text), text.bytes);
    ls_text_release(&text);
    return status;
}

static ls_status receive(int fd, double timeout_s, ls_response *response)
{
    char *block = malloc(BLOCK_BYTES);
    if (!block) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the daemon's answer");
    }
    ls_status status = LS_OK;
    while (status == LS_OK && response->state != LS_RESPONSE_DONE &&
           response->state != LS_RESPONSE_UNWANTED) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        const int ready = poll(&wait, 1, timeout_s > 0 ? (int)(1e3 * timeout_s) : -1);
        const ssize_t bytes = ready > 0 ? recv(fd, block, BLOCK_BYTES, 0) : -1;
        if (ready == 0) {
            status = is_silent(timeout_s);
        } else if (bytes < 0 && errno != EINTR) {
            status = ls_fail_errno(errno, "the connection failed before the daemon's answer was complete");
        } else if (bytes == 0) {
            status = ls_response_end(response);
            break;
        } else if (bytes > 0) {
            status = ls_response_feed(response, block, (size_t)bytes);
        }
    }
    free(block);
    return status;
}

/* ---- answers ---- */

typedef struct reader {
    ls_response response;
    ls_client_take take; /* gets the body of a successful answer */
    void *context;
    ls_text error; /* the body of a refusal */
} reader;

static bool take_part(void *context, const char *data, size_t bytes)
{
    reader *self = context;
    if (self->response.code < 300) {
        return self->take(self->context, data, bytes);
    }
    if (self->error.bytes + bytes <= ERROR_BYTES_MAX) {
        ls_text_append_bytes(&self->error, data, bytes);
    }
    return true;
}

/* The status from which a command's exit code follows. */
static ls_status status_of(int code)
{
    return code == 404                  ? LS_ERR_NOT_FOUND
           : code == 429                ? LS_ERR_FAILED
           : code == 408 || code == 504 ? LS_ERR_TIMEOUT
           : code == 507                ? LS_ERR_DISK
           : code >= 400 && code < 500  ? LS_ERR_INVALID
                                        : LS_ERR_FAILED;
}

/* Turns a refusal into an error. */
static ls_status refusal(const reader *self)
{
    json_t *root = json_loadb(ls_text_string(&self->error), self->error.bytes, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "error"));
    const ls_status status = status_of(self->response.code);
    if (text) {
        ls_fail(status, "%s", text);
    } else {
        ls_fail(status, "the daemon refused the request with HTTP status %d", self->response.code);
    }
    json_decref(root);
    return status;
}

ls_status ls_client_read(const ls_client_request *request, ls_client_take take, void *context,
                         uint64_t *next_out)
{
    int fd = -1;
    LS_TRY(open_connection(request->timeout_s, &fd));
    reader *self = calloc(1, sizeof *self);
    ls_status status = self ? send_request(fd, request)
                            : ls_fail(LS_ERR_MEMORY, "not enough memory for a request to the daemon");
    if (status == LS_OK) {
        self->response = (ls_response){.take = take_part, .context = self};
        self->take = take;
        self->context = context;
        status = receive(fd, request->timeout_s, &self->response);
    }
    close(fd);
    if (status == LS_OK && self->response.code >= 300) {
        status = refusal(self);
    }
    if (status == LS_OK && next_out) {
        *next_out = self->response.next;
    }
    if (self) {
        ls_text_release(&self->error);
    }
    free(self);
    return status;
}

static bool gather(void *context, const char *data, size_t bytes)
{
    ls_text *text = context;
    ls_text_append_bytes(text, data, bytes);
    return text->bytes <= ANSWER_BYTES_MAX;
}

ls_status ls_client_ask(const ls_client_request *request, json_t **answer_out)
{
    ls_text text = {0};
    ls_status status = ls_client_read(request, gather, &text, NULL);
    if (status == LS_OK && text.bytes > ANSWER_BYTES_MAX) {
        status = ls_fail(LS_ERR_DATA, "the daemon's answer has more than %d bytes", ANSWER_BYTES_MAX);
    }
    if (status == LS_OK) {
        status = ls_json_parse(ls_text_string(&text), text.bytes, "the daemon's answer", answer_out);
    }
    ls_text_release(&text);
    return status;
}

void ls_client_append_escaped(ls_text *text, const char *string)
{
    for (const char *at = string; *at; at++) {
        if (isalnum((unsigned char)*at) || strchr("-._~", *at)) {
            ls_text_append_bytes(text, at, 1);
        } else {
            ls_text_printf(text, "%%%02X", (unsigned char)*at);
        }
    }
}

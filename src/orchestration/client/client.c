// SPDX-License-Identifier: Apache-2.0
#include "orchestration/client/client.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/user.h"
#include "orchestration/client/response.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BLOCK_BYTES = 64 * 1024, ANSWER_BYTES_MAX = 256 * 1024 * 1024, ERROR_BYTES_MAX = 64 * 1024 };

/* ---- the connection ---- */

/* A path of a socket has at most 107 bytes; a home folder may be deeper, and is then named by a descriptor. */
static int connect_to(const char *home)
{
    const int folder = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int fd = folder < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
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

/* The daemon of a user serves that user alone. */
static ls_status is_of_another(const char *home)
{
    struct stat info;
    char name[LS_USER_NAME_BYTES] = "another user";
    if (stat(home, &info) == 0) {
        ls_user_name(info.st_uid, name);
    }
    return ls_fail(LS_ERR_INVALID,
                   "%s belongs to user %s, whose daemon serves no other user: set LOCKSTEP_HOME", home, name);
}

static ls_status open_connection(int *fd_out)
{
    ls_arena arena = {0};
    char *home = ls_home_path(&arena, "");
    if (!home) {
        return ls_fail(LS_ERR_INVALID, "where is the daemon? Neither LOCKSTEP_HOME nor HOME is set");
    }
    for (size_t bytes = strlen(home); bytes > 1 && home[bytes - 1] == '/';) {
        home[--bytes] = '\0';
    }
    const int fd = connect_to(home);
    ls_status status = LS_OK;
    if (fd == -ENOENT || fd == -ECONNREFUSED) {
        status = ls_fail(LS_ERR_FAILED, "no daemon runs for %s: start one with 'lockstep up'", home);
    } else if (fd == -EACCES) {
        status = is_of_another(home);
    } else if (fd < 0) {
        status = ls_fail_errno(-fd, "can't ask the daemon at %s/socket", home);
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
        if (sent < 0) { /* it may have answered and closed before it read all: what it says matters more */
            return errno == EPIPE || errno == ECONNRESET ? LS_OK
                                                         : ls_fail_errno(errno, "can't ask the daemon");
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
        return ls_fail(LS_ERR_MEMORY, "no memory for the daemon's answer");
    }
    ls_status status = LS_OK;
    while (status == LS_OK && response->state != LS_RESPONSE_DONE &&
           response->state != LS_RESPONSE_UNWANTED) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        const int ready = poll(&wait, 1, timeout_s > 0 ? (int)(1e3 * timeout_s) : -1);
        const ssize_t bytes = ready > 0 ? recv(fd, block, BLOCK_BYTES, 0) : -1;
        if (ready == 0) {
            status = ls_fail(LS_ERR_TIMEOUT, "the daemon has not answered for %g s", timeout_s);
        } else if (bytes < 0 && errno != EINTR) {
            status = ls_fail_errno(errno, "the daemon's answer broke off");
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
    ls_client_take take; /* of an answer that says yes */
    void *context;
    ls_text error; /* the body of one that says no */
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

/* What a command's exit code follows from. */
static ls_status status_of(int code)
{
    return code == 404                  ? LS_ERR_NOT_FOUND
           : code == 408 || code == 504 ? LS_ERR_TIMEOUT
           : code == 507                ? LS_ERR_DISK
           : code >= 400 && code < 500  ? LS_ERR_INVALID
                                        : LS_ERR_FAILED;
}

/* An answer that says no. */
static ls_status refusal(const reader *self)
{
    json_t *root = json_loadb(ls_text_string(&self->error), self->error.bytes, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "error"));
    const ls_status status = status_of(self->response.code);
    if (text) {
        ls_fail(status, "%s", text);
    } else {
        ls_fail(status, "the daemon answers %d", self->response.code);
    }
    json_decref(root);
    return status;
}

ls_status ls_client_read(const ls_client_request *request, ls_client_take take, void *context,
                         uint64_t *next_out)
{
    int fd = -1;
    LS_TRY(open_connection(&fd));
    reader *self = calloc(1, sizeof *self);
    ls_status status = self ? send_request(fd, request) : ls_fail(LS_ERR_MEMORY, "no memory for a question");
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

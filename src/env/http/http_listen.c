// SPDX-License-Identifier: Apache-2.0
#include "env/http/http_listen.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 256 };

ls_status ls_http_listen_unix(const char *folder_path, bool all_users, int *fd_out)
{
    /* The path of a socket has at most 107 bytes, and the folder may lie deeper: so the folder is
     * named by a descriptor. */
    const int folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
    if (folder >= 0) {
        unlinkat(folder, "socket", 0);
    }
    /* Nobody can connect between bind and chmod: the socket does not listen yet. */
    const bool done = folder >= 0 && fd >= 0 &&
                      bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
                      fchmodat(folder, "socket", all_users ? 0666 : 0600, 0) == 0 && listen(fd, BACKLOG) == 0;
    const int error = errno;
    if (folder >= 0) {
        close(folder);
    }
    if (!done) {
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail_errno(error, "can't listen at %s/socket", folder_path);
    }
    *fd_out = fd;
    return LS_OK;
}

ls_status ls_http_address_parse(const char *text, ls_http_address *out)
{
    const char *colon = strrchr(text, ':');
    const bool has_brackets = text[0] == '[' && colon && colon > text && colon[-1] == ']';
    const char *begin = has_brackets ? text + 1 : text;
    const size_t bytes = colon ? (size_t)(colon - begin) - has_brackets : 0;
    if (!colon || bytes == 0 || bytes >= sizeof out->host || strlen(colon + 1) == 0 ||
        strlen(colon + 1) > 5 || strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return ls_fail(LS_ERR_INVALID,
                       "can't listen at '%.100s': write HOST:PORT, for example 127.0.0.1:8421", text);
    }
    if (strtoul(colon + 1, NULL, 10) > 65535) { /* else the system would take it modulo 65536 */
        return ls_fail(LS_ERR_INVALID, "the port in %.100s is %s; it must be 0 (any free port) to 65535",
                       text, colon + 1);
    }
    snprintf(out->host, sizeof out->host, "%.*s", (int)bytes, begin);
    snprintf(out->port, sizeof out->port, "%s", colon + 1);
    return LS_OK;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* fd_out: -1 if may_be_in_use and another socket has the port. */
static ls_status bind_tcp(const struct addrinfo *found, const char *text, bool may_be_in_use, int *fd_out)
{
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) {
        return ls_fail_errno(errno, "can't listen at %s", text);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        const int error = errno;
        close(fd);
        *fd_out = -1;
        if (error != EADDRINUSE) {
            return ls_fail_errno(error, "can't listen at %s", text);
        }
        return may_be_in_use ? LS_OK
                             : ls_fail(LS_ERR_IO,
                                       "can't listen at %s: the port is in use; choose another one, or port "
                                       "0 for any free one",
                                       text);
    }
    *fd_out = fd;
    return LS_OK;
}

static ls_status listen_tcp(const char *text, const char *tls_settings, bool has_tls, bool may_be_in_use,
                            int *fd_out, bool *is_loopback_out)
{
    ls_http_address address;
    LS_TRY(ls_http_address_parse(text, &address));
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const int error = getaddrinfo(address.host, address.port, &hints, &found);
    if (error != 0) {
        return ls_fail(LS_ERR_INVALID, "%s is not an address of this machine: %s", text, gai_strerror(error));
    }
    const bool is_local = is_loopback(found->ai_addr);
    int fd = -1;
    const ls_status status = is_local || has_tls
                                 ? bind_tcp(found, text, may_be_in_use, &fd)
                                 : ls_fail(LS_ERR_INVALID,
                                           "other machines can reach the address %s, so it needs TLS: give a "
                                           "certificate and its key (%s), or listen at 127.0.0.1",
                                           text, tls_settings);
    freeaddrinfo(found);
    LS_TRY(status);
    *is_loopback_out = is_local;
    *fd_out = fd;
    return LS_OK;
}

ls_status ls_http_listen_tcp(const char *text, bool has_tls, const char *tls_settings, int *fd_out,
                             bool *is_loopback_out)
{
    return listen_tcp(text, tls_settings, has_tls, false, fd_out, is_loopback_out);
}

ls_status ls_http_listen_check(const char *text, bool has_tls, const char *tls_settings)
{
    int fd = -1;
    bool is_local = false;
    LS_TRY(listen_tcp(text, tls_settings, has_tls, true, &fd, &is_local));
    if (fd >= 0) {
        close(fd);
    }
    return LS_OK;
}

unsigned ls_http_bound_port(int fd)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    LS_ASSERT(getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0);
    return ntohs(bound.ss_family == AF_INET ? ((struct sockaddr_in *)&bound)->sin_port
                                            : ((struct sockaddr_in6 *)&bound)->sin6_port);
}

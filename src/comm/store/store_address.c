// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static ls_status fail_address(const char *address)
{
    return ls_fail(LS_ERR_INVALID, "'%s' is not an address: write HOST:PORT (port 0 to 65535) or unix:PATH",
                   address);
}

static ls_status find_unix(const char *address, ls_store_socket_address *out)
{
    struct sockaddr_un *at = (struct sockaddr_un *)&out->storage;
    const char *path = address + 5;
    if (path[0] == '\0' || strlen(path) >= sizeof at->sun_path) {
        return ls_fail(LS_ERR_INVALID, "address '%s': the path of a socket must have 1 to %zu characters",
                       address, sizeof at->sun_path - 1);
    }
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path, path, strlen(path) + 1);
    out->bytes = sizeof *at;
    return LS_OK;
}

/* Cuts "HOST:PORT" or "[HOST]:PORT" in two. */
static bool split(const char *address, char host[256], const char **port_out)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || colon[1] == '\0' || colon - address >= 256 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
        strtol(colon + 1, NULL, 10) > 65535) {
        return false;
    }
    size_t bytes = (size_t)(colon - address);
    if (bytes > 2 && address[0] == '[' && address[bytes - 1] == ']') {
        address++;
        bytes -= 2;
    } else if (memchr(address, ':', bytes)) {
        return false; /* IPv6 without brackets */
    }
    memcpy(host, address, bytes);
    host[bytes] = '\0';
    *port_out = colon + 1;
    return true;
}

ls_status ls_store_address_check(const char *address)
{
    ls_store_socket_address unused;
    char host[256];
    const char *port = NULL;
    if (strncmp(address, "unix:", 5) == 0) {
        return find_unix(address, &unused);
    }
    return split(address, host, &port) ? LS_OK : fail_address(address);
}

ls_status ls_store_address_find(const char *address, ls_store_socket_address *address_out)
{
    ls_store_socket_address found = {.bytes = 0};
    char host[256];
    const char *port = NULL;
    if (strncmp(address, "unix:", 5) == 0) {
        LS_TRY(find_unix(address, &found));
        *address_out = found;
        return LS_OK;
    }
    if (!split(address, host, &port)) {
        return fail_address(address);
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *first = NULL;
    const int error = getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &first);
    if (error) {
        return ls_fail(LS_ERR_TIMEOUT, "host '%s' is not known: %s", host, gai_strerror(error));
    }
    /* IPv4 if there is a choice, because IPv6 may be set up on one side only. */
    const struct addrinfo *best = first;
    for (const struct addrinfo *at = first; at; at = at->ai_next) {
        best = at->ai_family == AF_INET && best->ai_family != AF_INET ? at : best;
    }
    memcpy(&found.storage, best->ai_addr, best->ai_addrlen);
    found.bytes = best->ai_addrlen;
    freeaddrinfo(first);
    *address_out = found;
    return LS_OK;
}

void ls_store_address_host(const ls_store_socket_address *address, char *out, size_t out_bytes)
{
    out[0] = '\0';
    if (address->storage.ss_family != AF_UNIX &&
        getnameinfo((const struct sockaddr *)&address->storage, address->bytes, out, (socklen_t)out_bytes,
                    NULL, 0, NI_NUMERICHOST) != 0) {
        out[0] = '\0';
    }
}

ls_status ls_store_address_own(const char *address, char *out, size_t out_bytes)
{
    ls_store_socket_address to, from = {.bytes = sizeof from.storage};
    LS_TRY(ls_store_address_find(address, &to));
    const int fd = socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to.storage, to.bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&from.storage, &from.bytes) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail_errno(error, "there is no route to %s", address);
    }
    close(fd);
    ls_store_address_host(&from, out, out_bytes);
    return LS_OK;
}

bool ls_store_address_is_local(const ls_store_socket_address *address)
{
    char host[128];
    ls_store_address_host(address, host, sizeof host);
    return address->storage.ss_family == AF_UNIX || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

ls_status ls_store_address_numeric(const char *address, char *out, size_t out_bytes)
{
    ls_store_socket_address found;
    char host[128];
    LS_TRY(ls_store_address_find(address, &found));
    ls_store_address_host(&found, host, sizeof host);
    const int bytes =
        found.storage.ss_family == AF_UNIX
            ? snprintf(out, out_bytes, "%s", address)
            : snprintf(out, out_bytes, found.storage.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                       strrchr(address, ':') + 1);
    return bytes >= 0 && (size_t)bytes < out_bytes ? LS_OK : fail_address(address);
}

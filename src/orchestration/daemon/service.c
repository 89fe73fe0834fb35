// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/service.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void ls_service_tell(const char *words)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t bytes = path ? strlen(path) : 0;
    if (bytes < 2 || bytes >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(address.sun_path, path, bytes);
    if (path[0] == '@') { /* a name that is not in the file system */
        address.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)!sendto(fd, words, strlen(words), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
        close(fd);
    }
}

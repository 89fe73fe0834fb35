// SPDX-License-Identifier: Apache-2.0
#include "env/http/http_peer.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

bool ls_http_peer_of_unix(int fd, uint32_t *uid_out, uint32_t *gid_out)
{
    struct ucred credentials;
    socklen_t bytes = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0 || bytes != sizeof credentials ||
        credentials.uid == (uid_t)-1) {
        return false;
    }
    *uid_out = credentials.uid;
    *gid_out = credentials.gid;
    return true;
}

/* ---- TCP ---- */

typedef struct query {
    struct nlmsghdr header;
    struct inet_diag_req_v2 request;
} query;

static bool put_address(const struct sockaddr_storage *from, __be32 address[4], __be16 *port)
{
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        memcpy(address, &in->sin_addr, 4);
        *port = in->sin_port;
        return true;
    }
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        memcpy(address, &in->sin6_addr, 16);
        *port = in->sin6_port;
        return true;
    }
    return false;
}

/* Asks for the socket whose source is our peer and whose destination is us: the other end. */
static bool write_query(int fd, query *out)
{
    struct sockaddr_storage peer, own;
    socklen_t peer_bytes = sizeof peer, own_bytes = sizeof own;
    memset(out, 0, sizeof *out);
    struct inet_diag_sockid *id = &out->request.id;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0 || peer.ss_family != own.ss_family ||
        !put_address(&peer, id->idiag_src, &id->idiag_sport) ||
        !put_address(&own, id->idiag_dst, &id->idiag_dport)) {
        return false;
    }
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    out->request.sdiag_family = (__u8)peer.ss_family;
    out->request.sdiag_protocol = IPPROTO_TCP;
    out->request.idiag_states = UINT32_MAX;
    out->header = (struct nlmsghdr){
        .nlmsg_len = sizeof *out, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST};
    return true;
}

static bool read_answer(const char *data, size_t bytes, uint32_t *uid_out)
{
    struct nlmsghdr header;
    struct inet_diag_msg message;
    if (bytes < NLMSG_HDRLEN + sizeof message) {
        return false;
    }
    memcpy(&header, data, sizeof header);
    memcpy(&message, data + NLMSG_HDRLEN, sizeof message);
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || message.idiag_state != TCP_ESTABLISHED ||
        message.idiag_inode == 0) {
        return false;
    }
    *uid_out = message.idiag_uid;
    return true;
}

bool ls_http_peer_of_tcp(int fd, uint32_t *uid_out)
{
    query ask;
    if (!write_query(fd, &ask)) {
        return false;
    }
    const int kernel = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (kernel < 0) {
        return false;
    }
    /* The kernel answers within send(); the time-out is for one that does not. */
    const struct timeval patience = {.tv_usec = 100 * 1000};
    setsockopt(kernel, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char answer[4096];
    bool is_known = false;
    if (send(kernel, &ask, sizeof ask, 0) == (ssize_t)sizeof ask) {
        const ssize_t bytes = recv(kernel, answer, sizeof answer, 0);
        is_known = bytes > 0 && read_answer(answer, (size_t)bytes, uid_out);
    }
    close(kernel);
    return is_known;
}

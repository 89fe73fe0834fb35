// SPDX-License-Identifier: Apache-2.0
#include "data/stream/block_peers.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GIVERS = 16, BACKLOG = 256 };
static const double ANSWER_S = 1.5, SILENT_S = 30.0;
static const char MAGIC[8] = {'L', 'S', 'B', 'L', 'O', 'C', 'K', '1'};

typedef struct request {
    char magic[8];
    uint64_t nonce, uid, first, count;
    unsigned char proof[LS_SHA256_BYTES];
} request;
static_assert(sizeof(request) == 72, "the request is a format");
enum { PROVED_BYTES = sizeof(request) - LS_SHA256_BYTES };

/* Blocks, and after the last of them the proof. */
typedef struct answer {
    ls_token_block blocks[LS_BLOCK_PEER_BLOCKS_MAX];
    unsigned char proof[LS_SHA256_BYTES];
} answer;

struct ls_block_peers {
    ls_block_peer own;
    char token[256];
    ls_block_peers_read read;
    void *context;
    int listener; /* -1: none */
    _Atomic bool is_closing;
    pthread_t givers[GIVERS];
    unsigned giver_count;
    pthread_mutex_t lock;
    struct {
        ls_block_peer at;
        double silent_until_s;
    } hosts[LS_BLOCK_PEERS_MAX]; /* under lock */
    uint32_t host_count;
};

/* ---- messages -------------------------------------------------------------------------------- */

static void prove(const ls_block_peers *p, const void *data, size_t bytes,
                  unsigned char proof_out[LS_SHA256_BYTES])
{
    ls_hmac_sha256(p->token, strlen(p->token), data, bytes, proof_out);
}

/* The proof of an answer covers its blocks and the request's proof, which is put after them. */
static void prove_answer(const ls_block_peers *p, const request *asked, answer *a,
                         unsigned char proof_out[LS_SHA256_BYTES])
{
    const size_t bytes = asked->count * sizeof a->blocks[0];
    memcpy((char *)a + bytes, asked->proof, sizeof asked->proof);
    prove(p, a, bytes + sizeof asked->proof, proof_out);
}

/* Sends or receives all bytes until `until_s`; false: it failed. */
static bool move(int fd, bool sends, void *data, size_t bytes, double until_s)
{
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        const ssize_t now = sends ? send(fd, at, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                                  : recv(fd, at, bytes - done, MSG_DONTWAIT);
        done += now > 0 ? (size_t)now : 0;
        if (now > 0 || (now < 0 && errno == EINTR)) {
            continue;
        }
        const double left_s = until_s - ls_clock_monotonic_s();
        struct pollfd wait = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
        if (now == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || left_s <= 0.0 ||
            poll(&wait, 1, (int)(1e3 * left_s) + 1) < 0) {
            return false;
        }
    }
    return true;
}

static int open_socket(const ls_block_peer *at, struct addrinfo **found_out)
{
    char port[12];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    snprintf(port, sizeof port, "%u", at->port);
    *found_out = NULL;
    if (getaddrinfo(at->host, port, &hints, found_out) != 0) {
        return -1;
    }
    return socket((*found_out)->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* ---- giving ---------------------------------------------------------------------------------- */

static void give(const ls_block_peers *p, int fd, answer *a)
{
    request asked;
    unsigned char proof[LS_SHA256_BYTES];
    if (!move(fd, false, &asked, sizeof asked, ls_clock_monotonic_s() + ANSWER_S)) {
        return;
    }
    prove(p, &asked, PROVED_BYTES, proof);
    if (!ls_secret_equal(proof, asked.proof, sizeof proof) || memcmp(asked.magic, MAGIC, sizeof MAGIC) != 0 ||
        asked.count == 0 || asked.count > LS_BLOCK_PEER_BLOCKS_MAX) {
        return;
    }
    if (p->read(p->context, asked.uid, asked.first, (uint32_t)asked.count, a->blocks) != LS_OK) {
        ls_log_debug("data: not given to another host: %s", ls_error_text());
        ls_error_clear();
        return;
    }
    const size_t bytes = asked.count * sizeof a->blocks[0];
    prove_answer(p, &asked, a, proof);
    memcpy((char *)a + bytes, proof, sizeof proof);
    (void)move(fd, true, a, bytes + sizeof proof, ls_clock_monotonic_s() + ANSWER_S);
}

static void *giver_main(void *argument)
{
    ls_block_peers *p = argument;
    answer *a = malloc(sizeof *a);
    while (a && !atomic_load(&p->is_closing)) {
        struct pollfd wait = {.fd = p->listener, .events = POLLIN};
        const int fd = poll(&wait, 1, 1000) > 0 ? accept4(p->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0) {
            give(p, fd, a);
            close(fd);
        }
    }
    free(a);
    return NULL;
}

static ls_status begin_giving(ls_block_peers *p)
{
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    char port[12] = "";
    struct addrinfo *at = NULL;
    p->own.port = 0;
    p->listener = open_socket(&p->own, &at);
    const bool is_open =
        p->listener >= 0 && bind(p->listener, at->ai_addr, at->ai_addrlen) == 0 &&
        listen(p->listener, BACKLOG) == 0 &&
        getsockname(p->listener, (struct sockaddr *)&bound, &bytes) == 0 &&
        getnameinfo((struct sockaddr *)&bound, bytes, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0;
    if (at) {
        freeaddrinfo(at);
    }
    if (!is_open) {
        return ls_fail_errno(errno, "can't give blocks of tokens to other hosts at %s", p->own.host);
    }
    p->own.port = (uint32_t)strtoul(port, NULL, 10);
    while (p->giver_count < GIVERS && pthread_create(&p->givers[p->giver_count], NULL, giver_main, p) == 0) {
        p->giver_count++;
    }
    return LS_OK;
}

ls_status ls_block_peers_open(ls_block_peer *own, const char *token, ls_block_peers_read read, void *context,
                              ls_block_peers **peers_out)
{
    ls_block_peers *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to share blocks of tokens");
    }
    LS_ASSERT(token[0] && strlen(token) < sizeof p->token);
    p->own = *own;
    p->read = read;
    p->context = context;
    p->listener = -1;
    snprintf(p->token, sizeof p->token, "%s", token);
    pthread_mutex_init(&p->lock, NULL);
    const ls_status status = own->port != 0 ? begin_giving(p) : LS_OK;
    if (status != LS_OK) {
        ls_block_peers_close(p);
        return status;
    }
    *own = p->own;
    *peers_out = p;
    return LS_OK;
}

void ls_block_peers_close(ls_block_peers *peers)
{
    if (!peers) {
        return;
    }
    atomic_store(&peers->is_closing, true);
    if (peers->listener >= 0) {
        (void)shutdown(peers->listener, SHUT_RDWR); /* wakes the givers */
    }
    for (unsigned i = 0; i < peers->giver_count; i++) {
        LS_ASSERT(pthread_join(peers->givers[i], NULL) == 0);
    }
    if (peers->listener >= 0) {
        close(peers->listener);
    }
    pthread_mutex_destroy(&peers->lock);
    explicit_bzero(peers->token, sizeof peers->token);
    free(peers);
}

/* ---- asking ---------------------------------------------------------------------------------- */

void ls_block_peers_set(ls_block_peers *peers, const ls_block_peer *hosts, uint32_t count)
{
    pthread_mutex_lock(&peers->lock);
    peers->host_count = 0;
    for (uint32_t i = 0; i < count && peers->host_count < LS_BLOCK_PEERS_MAX; i++) {
        uint32_t twin = 0;
        while (twin < peers->host_count && strcmp(peers->hosts[twin].at.host, hosts[i].host) != 0) {
            twin++;
        }
        if (hosts[i].port != 0 && twin == peers->host_count) {
            peers->hosts[twin].at = hosts[i];
            peers->hosts[twin].silent_until_s = 0.0;
            peers->host_count++;
        }
    }
    pthread_mutex_unlock(&peers->lock);
}

/* The index of the owner; -1: this host, or one that is not asked now. */
static int find_owner(ls_block_peers *p, uint64_t uid, uint64_t group, ls_block_peer *owner_out)
{
    const uint64_t key[2] = {uid, group};
    const uint64_t seed = ls_xxh3(key, sizeof key, 2);
    uint64_t largest = 0;
    int owner = -1;
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->host_count; i++) {
        const char *host = p->hosts[i].at.host;
        const uint64_t hash = ls_xxh3(host, strlen(host), seed);
        if (owner < 0 || hash > largest) {
            owner = (int)i;
            largest = hash;
        }
    }
    if (owner >= 0) {
        *owner_out = p->hosts[owner].at;
        if (strcmp(owner_out->host, p->own.host) == 0 ||
            ls_clock_monotonic_s() < p->hosts[owner].silent_until_s) {
            owner = -1;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return owner;
}

static bool exchange(const ls_block_peers *p, const ls_block_peer *owner, request *asked, answer *a)
{
    const double until_s = ls_clock_monotonic_s() + ANSWER_S;
    const size_t bytes = asked->count * sizeof a->blocks[0];
    unsigned char proof[LS_SHA256_BYTES];
    struct addrinfo *at = NULL;
    const int fd = open_socket(owner, &at);
    bool good = fd >= 0 && (connect(fd, at->ai_addr, at->ai_addrlen) == 0 || errno == EINPROGRESS);
    if (at) {
        freeaddrinfo(at);
    }
    prove(p, asked, PROVED_BYTES, asked->proof);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    good = good && poll(&wait, 1, (int)(1e3 * ANSWER_S)) == 1 &&
           move(fd, true, asked, sizeof *asked, until_s) && move(fd, false, a, bytes + sizeof proof, until_s);
    if (fd >= 0) {
        close(fd);
    }
    if (good) {
        unsigned char given[LS_SHA256_BYTES];
        memcpy(given, (char *)a + bytes, sizeof given);
        prove_answer(p, asked, a, proof);
        good = ls_secret_equal(given, proof, sizeof proof);
    }
    return good;
}

bool ls_block_peers_ask(ls_block_peers *peers, uint64_t uid, uint64_t first, uint32_t count,
                        ls_token_block *blocks_out)
{
    ls_block_peer owner;
    LS_ASSERT(count >= 1 && count <= LS_BLOCK_PEER_BLOCKS_MAX);
    const int index = find_owner(peers, uid, first / LS_BLOCK_PEER_BLOCKS_MAX, &owner);
    answer *a = index >= 0 ? malloc(sizeof *a) : NULL;
    if (!a) {
        return false;
    }
    request asked = {.uid = uid, .first = first, .count = count};
    memcpy(asked.magic, MAGIC, sizeof MAGIC);
    (void)!getrandom(&asked.nonce, sizeof asked.nonce, 0);
    bool good = exchange(peers, &owner, &asked, a);
    if (good) {
        memcpy(blocks_out, a->blocks, count * sizeof *blocks_out);
    } else {
        pthread_mutex_lock(&peers->lock);
        if ((uint32_t)index < peers->host_count && strcmp(peers->hosts[index].at.host, owner.host) == 0) {
            peers->hosts[index].silent_until_s = ls_clock_monotonic_s() + SILENT_S;
        }
        pthread_mutex_unlock(&peers->lock);
        ls_log_warn("data: host %s gives no blocks of tokens; for %g s they come from the bucket", owner.host,
                    SILENT_S);
    }
    free(a);
    return good;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of tokens from the other hosts of a run, so that the hosts together fetch each block from
 * the bucket once, however often it is read and by which of them.
 *
 * Every group of 64 blocks has an owner among the hosts: the one with the largest hash of its
 * address and the group (rendezvous hashing), so that a host that comes or goes moves only its own
 * groups. A host that lacks blocks asks their owner, which gives them from its cache or fetches
 * them. An owner that has not answered within 1.5 s is not asked again for half a minute,
 * and the blocks come from the bucket. Who owns what changes no bit of what is read.
 *
 *   request   "LSBLOCK1" | nonce | uid | first block | count | HMAC of these
 *   answer    the blocks | HMAC of the request's HMAC and the blocks; or the connection is closed
 *
 * HMAC-SHA256 under the token that the hosts of the run share; the blocks themselves are not
 * encrypted, so this is for a private network, as the run's other connections are.
 *
 * Thread-safe.
 */
#ifndef LS_DATA_STREAM_BLOCK_PEERS_H
#define LS_DATA_STREAM_BLOCK_PEERS_H

#include "base/status.h"
#include "data/stream/token_block.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LS_BLOCK_PEERS_MAX = 1024,     /* further hosts own nothing */
    LS_BLOCK_PEER_BLOCKS_MAX = 64, /* in one request */
    LS_BLOCK_PEER_HOST_BYTES = 60,
};

typedef struct ls_block_peer {
    char host[LS_BLOCK_PEER_HOST_BYTES]; /* a number: "10.0.0.7" */
    uint32_t port;                       /* 0: this process gives no blocks */
} ls_block_peer;

typedef struct ls_block_peers ls_block_peers;

/* Reads blocks [first, first + count) of file `uid` for another host. */
typedef ls_status (*ls_block_peers_read)(void *context, uint64_t uid, uint64_t first, uint32_t count,
                                         ls_token_block *blocks_out);

/* own: the address of this host; with a port other than 0, a free one is chosen, blocks are given
 * there, and own->port says which it is. token: borrowed bytes of a text, not empty.
 * Errors: LS_ERR_IO, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_block_peers_open(ls_block_peer *own, const char *token, ls_block_peers_read read,
                                            void *context, ls_block_peers **peers_out);
/* Waits for the answers that are being given. NULL is allowed. */
void ls_block_peers_close(ls_block_peers *peers);

/* The hosts of the run, this one among them; of several with one address, the first counts. */
void ls_block_peers_set(ls_block_peers *peers, const ls_block_peer *hosts, uint32_t count);

/* Asks the owner of group first / 64 for blocks of that group. False: this host owns it, or the
 * owner does not answer. */
bool ls_block_peers_ask(ls_block_peers *peers, uint64_t uid, uint64_t first, uint32_t count,
                        ls_token_block *blocks_out);

#endif

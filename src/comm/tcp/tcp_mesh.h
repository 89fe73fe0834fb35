// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of the TCP transport: a mesh of sockets shared by several groups, and the calls that
 * run over it.
 *
 *   mesh        the sockets of this rank to all others, one epoll, one lock; made once by
 *    │          ls_transport_open_tcp
 *    └ peer     another rank: 1 to 8 lanes
 *       └ lane  one socket: the messages to be sent, and the place of the payload being received
 *   group       a transport: all ranks, or those of a split; at most one call at a time
 *    └ call     streams of pieces to and from members, and a plan: where pieces lie, when they may go
 *
 * Files. tcp_mesh.c opens, closes and waits; tcp_lane.c moves bytes over one socket; tcp_call.c
 * knows what messages mean and runs a call; tcp_fail.c ends calls that cannot succeed;
 * tcp_reduce.c, tcp_ring.c, tcp_small.c and tcp_move.c are the algorithms, each a plan; tcp.c
 * chooses between them. A lane and a call need each other (a lane asks where a piece belongs, a
 * call posts pieces), so they share this header.
 *
 * Flow. A call that sends a member more than LS_TCP_EAGER_BYTES first waits for that member's
 * READY, which carries its fingerprint. So large data arrives only where the call is active and its
 * place is known: nothing is buffered, and no lane is blocked by a call that has not begun. Small
 * data is sent at once; if it arrives before its call, it is kept as a stray until then. Piece k of
 * a stream uses lane k mod lanes, so its number is all the address it needs.
 *
 * Threads. Each mesh has one lock, which is released only while waiting in epoll. One thread at a
 * time waits there and moves the bytes of all groups; other waiting threads sleep on a condition
 * variable. Callbacks of plans run under the lock.
 */
#ifndef LS_COMM_TCP_TCP_MESH_H
#define LS_COMM_TCP_TCP_MESH_H

#include "comm/tcp/tcp_wire.h"
#include "comm/transport/transport.h"
#include "comm/transport/tree.h"

#include <pthread.h>

enum {
    LS_TCP_LANES_MAX = 8,
    LS_TCP_PHASES = 2,
    LS_TCP_EAGER_BYTES = 64 << 10,
    LS_TCP_STAGE_BYTES = 8 << 10,
    LS_TCP_TEXT_BYTES = 768,
    LS_TCP_WINDOW_MAX = 32,
    /* Largest stack of a program over nodes. */
    LS_TCP_DEPTH_MAX = 32,
    /* Small sends of one pair that may wait to be received. */
    LS_TCP_PAIR_AHEAD = 16,
};

typedef struct ls_tcp_mesh ls_tcp_mesh;
typedef struct ls_tcp_group ls_tcp_group;

typedef struct ls_tcp_span {
    void *data;
    uint64_t bytes;
} ls_tcp_span;

/* The pieces from or to one member in one phase of a call. */
typedef struct ls_tcp_stream {
    uint32_t pieces;
    /* Outgoing: pieces [0, limit) exist, and the receiver has room for [0, room). */
    uint32_t limit;
    uint32_t room;
    /* Outgoing: the next piece to give to a lane. */
    uint32_t next;
    /* All pieces [0, done) have been sent or received. */
    uint32_t done;
    /* Incoming: 1 + the highest piece received. */
    uint32_t last;
    /* Pieces sent or received on each lane. */
    uint32_t by_lane[LS_TCP_LANES_MAX];
} ls_tcp_stream;

/* A message to be sent. */
typedef struct ls_tcp_out {
    uint8_t header[LS_TCP_HEADER_BYTES];
    /* The payload of READY. */
    uint8_t small[16];
    uint8_t trailer[4];
    const uint8_t *payload;
    /* The payload if it must be freed after sending; NULL: it is borrowed, or in `small`. */
    void *owned;
    uint32_t payload_bytes, trailer_bytes;
    /* Bytes sent of header, payload and trailer together. */
    uint64_t sent;
    /* The group whose call lends the payload; NULL: none. */
    ls_tcp_group *group;
    /* The stream of a piece. */
    ls_tcp_stream *stream;
} ls_tcp_out;

/* A message that arrived before its call. */
typedef struct ls_tcp_stray {
    struct ls_tcp_stray *next;
    ls_tcp_header header;
    uint32_t peer;
    /* The payload is complete. */
    bool whole;
    uint64_t capacity;
    uint8_t data[];
} ls_tcp_stray;

typedef struct ls_tcp_lane {
    /* -1: closed. */
    int fd;
    uint32_t peer, index;
    bool readable, writable;
    /* Messages to be sent: a ring of `capacity` entries. */
    ls_tcp_out *queue;
    uint32_t first, count, capacity;
    /* Bytes read ahead: headers and small payloads. */
    uint8_t *staged;
    uint32_t staged_begin, staged_end;
    /* The message being received. */
    enum { LS_TCP_AT_HEADER, LS_TCP_AT_PAYLOAD, LS_TCP_AT_TRAILER } at;
    ls_tcp_header header;
    /* Where its payload goes; NULL: it is discarded. */
    uint8_t *to;
    uint64_t payload_done;
    uint32_t trailer_done;
    /* The group whose call owns `to`. */
    ls_tcp_group *group;
    ls_tcp_stray *stray;
    uint8_t control[LS_TCP_CONTROL_BYTES_MAX];
    uint8_t trailer[4];
} ls_tcp_lane;

typedef struct ls_tcp_peer {
    ls_tcp_lane *lanes;
    uint32_t lane_count, open_count;
    bool checksums;
    /* It has sent GOODBYE. */
    bool left;
    /* Nothing more will arrive; `why` says why. */
    bool gone;
    char address[64];
    char why[160];
} ls_tcp_peer;

struct ls_tcp_mesh {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    /* A thread waits in epoll; `sleepers` other threads wait for it. */
    bool polling;
    uint32_t sleepers;
    /* At least one group has failed. */
    bool failed;
    /* Number of messages sent and received so far. */
    uint64_t moves;
    /* Number of groups. */
    uint32_t references;
    int epoll_fd, wake_fd;
    uint32_t rank, size;
    uint64_t epoch;
    /* Busy polling before a wait. */
    uint64_t spin_ns;
    /* A link counts as cut after this time without an acknowledgement. */
    uint32_t link_ms;
    uint64_t links_looked_ns;
    /* `size` of each; the entry of this rank in `peers` is empty. */
    ls_comm_member *members;
    ls_tcp_peer *peers;
    ls_tcp_group *groups;
    /* Strays, oldest first, and free ones. */
    ls_tcp_stray *strays, *spare;
    /* Buffer for payload that is discarded. */
    uint8_t *bin;
    uint64_t sent_bytes, received_bytes;
};

/* How an algorithm lays out a call. */
typedef struct ls_tcp_plan {
    /* Where an outgoing piece lies. */
    ls_tcp_span (*source)(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece);
    /* Where an incoming piece belongs; bytes UINT64_MAX: no such piece is expected now. */
    ls_tcp_span (*target)(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece);
    /* A piece has arrived. NULL: nothing to do. */
    void (*arrived)(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece);
    /* Adds up pieces and raises limits. Returns true when only sending and receiving remain. */
    bool (*advance)(ls_tcp_group *group);
} ls_tcp_plan;

/*
 * For sums whose inputs are nodes of a larger tree instead of one buffer per member (hier_run.c:
 * the members are hosts, and their nodes are sums of their ranks). Inputs are listed by member:
 * member m has counts[m] of them, from number firsts[m] on. Together they are [0, leaves).
 */
typedef struct ls_tcp_nodes {
    uint32_t leaves, count;
    const uint32_t *counts;
    const uint32_t *firsts;
    /* Numbers of the inputs in the order of the tree, and ls_tree_program over that order. */
    const uint32_t *sorted;
    const uint16_t *program;
    uint32_t program_length, depth;
    /* This member's inputs: buffers with the count and type of the call. */
    const void *const *own;
} ls_tcp_nodes;

typedef struct ls_tcp_call {
    bool active;
    /* Data is sent only after READY. */
    bool gated;
    /* Of a pair: this side receives. */
    bool receives;
    /* All members send READY to all, although each exchanges data with some only. */
    bool all_meet;
    ls_comm_op *op;
    const ls_tcp_plan *plan;
    /* NULL: the inputs are the members' buffers. */
    const ls_tcp_nodes *nodes;
    ls_tcp_space space;
    uint32_t seq;
    /* Of a pair: the other member. */
    uint32_t peer;
    uint64_t fingerprint;
    /* Streams that have not ended. */
    uint32_t out_left, in_left;
    /* Members from which a message of this call has arrived. */
    uint32_t heard;

    /* State of the algorithms. */
    uint64_t piece_bytes, block_bytes, element_bytes;
    uint32_t window, reduced, pieces;
    /* In phase 0 no stream may be more than `slack` pieces ahead of the slowest (0: no limit), that
     * is, beyond piece `front` now. */
    uint32_t slack;
    uint32_t front;
    uint32_t parent;
    /* Ring: slots that may be filled again, and those of which the left neighbour knows. */
    uint32_t freed, credited;
} ls_tcp_call;

struct ls_tcp_group {
    /* Rank and size in the group; base.members is `members`. */
    ls_transport base;
    ls_tcp_mesh *mesh;
    ls_tcp_group *next, *parent;
    ls_comm_member *members;
    uint32_t id;
    /* Ranks of the mesh by member, and members by rank of the mesh (UINT32_MAX: not a member). */
    uint32_t *peer_of;
    uint32_t *member_of;
    /* Number of calls of the whole group so far. */
    uint32_t seq;
    /* By member: number of sends and of receives so far, and the last receive it has announced. */
    uint32_t *sent, *received, *pair_ready;
    /* Why the group has failed (text: LS_TCP_TEXT_BYTES); LS_OK: it has not. */
    ls_status status;
    char *text;
    /* After a mismatch: claims are gathered until then; 0: no mismatch. */
    uint64_t disagree_ns;
    /* The call about which others disagree. */
    uint32_t disputed;
    /* The caller's operation if the active call is only a part of it; NULL: the call itself. */
    const ls_comm_op *whole_op;
    /* The previous call of the whole group. */
    ls_comm_op last_op;
    /* By member. `claimed`: its claim has arrived; `ready`: its READY; `is_heard`: any message. */
    ls_comm_claim *claims;
    bool *claimed, *ready, *is_heard;
    /* By phase and member. */
    ls_tcp_stream *in, *out;
    uint8_t *scratch;
    uint64_t scratch_bytes;
    /* Room for the inputs of a sum. */
    const void **inputs;
    uint32_t input_room;
    /* Inputs that have arrived, by piece of the window. */
    uint32_t *here;
    ls_tcp_call call;
};

static inline ls_tcp_stream *ls_tcp_in(const ls_tcp_group *group, uint32_t phase, uint32_t member)
{
    return &group->in[phase * group->base.size + member];
}
static inline ls_tcp_stream *ls_tcp_outgoing(const ls_tcp_group *group, uint32_t phase, uint32_t member)
{
    return &group->out[phase * group->base.size + member];
}
/* Counts the next piece that a lane has sent or received. Each lane keeps the order of its pieces,
 * so piece k is done when lane k mod lanes has done more than k / lanes. */
static inline void ls_tcp_stream_count(ls_tcp_stream *stream, uint32_t lane, uint32_t lanes)
{
    stream->by_lane[lane]++;
    while (stream->done < stream->pieces && stream->by_lane[stream->done % lanes] > stream->done / lanes) {
        stream->done++;
    }
}
static inline ls_tcp_peer *ls_tcp_peer_of(const ls_tcp_group *group, uint32_t member)
{
    return &group->mesh->peers[group->peer_of[member]];
}

/* ---- tcp_mesh.c: opening, closing and waiting ---- */

/* A mesh without connections; ls_tcp_mesh_add_peer adds the lanes of a peer, and
 * ls_tcp_mesh_bind gives each its socket. */
LS_MUST_CHECK ls_status ls_tcp_mesh_create(const ls_transport_setup *setup, ls_tcp_mesh **mesh_out);
LS_MUST_CHECK ls_status ls_tcp_mesh_add_peer(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lanes,
                                             bool checksums);
LS_MUST_CHECK ls_status ls_tcp_mesh_bind(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lane, int fd);
/* Sends GOODBYE, waits for a limited time until all data has been acknowledged, and closes
 * everything. NULL is allowed. */
void ls_tcp_mesh_destroy(ls_tcp_mesh *mesh);
/* Sends as much as the sockets accept. */
void ls_tcp_mesh_flush(ls_tcp_mesh *mesh);
/* Reads what has arrived; if there is nothing, waits until `until_ns`. The caller holds the lock,
 * which is released while waiting. Returns the nanoseconds waited. */
uint64_t ls_tcp_mesh_wait(ls_tcp_mesh *mesh, uint64_t until_ns);
/* Ends the waits of all threads. */
void ls_tcp_mesh_wake(ls_tcp_mesh *mesh);
/* The call of `group` is over: its buffers are neither read nor written from now on. */
void ls_tcp_mesh_forget(ls_tcp_mesh *mesh, ls_tcp_group *group);
void ls_tcp_mesh_free_stray(ls_tcp_mesh *mesh, ls_tcp_stray *stray);
/* Marks peers as gone whose kernel has not answered for mesh->link_ms. */
void ls_tcp_mesh_check_links(ls_tcp_mesh *mesh);

/* ---- tcp_lane.c: bytes over one socket ---- */

/* Size of mesh->bin. */
enum { LS_TCP_BIN_BYTES = 64 << 10 };

/* Queues a message on a lane of `peer`; if the lane is closed, the message is dropped. The payload
 * is borrowed until it has been sent. Returns the entry of the queue. */
ls_tcp_out *ls_tcp_post(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lane, const ls_tcp_header *header,
                        const void *payload);
/* The same on lane 0 with a copy of the payload. */
void ls_tcp_post_copy(ls_tcp_mesh *mesh, uint32_t peer, const ls_tcp_header *header, const void *payload);
void ls_tcp_lane_send(ls_tcp_mesh *mesh, ls_tcp_lane *lane);
void ls_tcp_lane_read(ls_tcp_mesh *mesh, ls_tcp_lane *lane);
/* Closes the socket because of an errno value, or 0 when the other end closed it. */
void ls_tcp_lane_close(ls_tcp_mesh *mesh, ls_tcp_lane *lane, int error);
void ls_tcp_lane_release(ls_tcp_lane *lane);
/* Removes the messages of a group: see ls_tcp_mesh_forget. */
void ls_tcp_lane_forget(ls_tcp_lane *lane, ls_tcp_group *group);

/* ---- tcp_call.c: the meaning of messages, and running a call ---- */

/* Decides where the payload of a data message goes: sets lane->to, lane->group or lane->stray. */
void ls_tcp_place(ls_tcp_mesh *mesh, ls_tcp_lane *lane);
/* A message has arrived with all of its payload (control messages in lane->control). */
void ls_tcp_arrived(ls_tcp_mesh *mesh, ls_tcp_lane *lane);

/* Clears the streams for a call of the group or of a pair; the next two add streams. */
void ls_tcp_call_begin(ls_tcp_group *group, ls_comm_op *op, const ls_tcp_plan *plan, ls_tcp_space space);
void ls_tcp_call_out(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t pieces, uint32_t limit);
void ls_tcp_call_in(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t pieces);
/* Runs the call to its end. */
LS_MUST_CHECK ls_status ls_tcp_call_run(ls_tcp_group *group);
/* Tells a member that `pieces` have been consumed: it may send so many beyond the window. */
void ls_tcp_call_credit(ls_tcp_group *group, uint32_t member, uint32_t pieces);
/* Whether the active call still has to send to or receive from a member. */
bool ls_tcp_call_needs(const ls_tcp_group *group, uint32_t member);
/* Makes the scratch at least `bytes` large. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tcp_scratch(ls_tcp_group *group, uint64_t bytes);

/* ---- tcp_fail.c: calls that cannot succeed ---- */

/* Makes the group and those split from it fail, unless it has failed already. tell: the other
 * members too. */
void ls_tcp_fail(ls_tcp_group *group, ls_status status, bool tell, const char *format, ...) LS_PRINTF(4, 5);
void ls_tcp_fail_sizes(ls_tcp_group *group, uint32_t from, uint64_t from_bytes, uint32_t to,
                       uint64_t to_bytes);
/* Messages of a failure. */
void ls_tcp_take_abort(ls_tcp_group *group, const ls_tcp_lane *lane);
void ls_tcp_take_claim(ls_tcp_group *group, uint32_t member, const ls_tcp_lane *lane);
/* The members disagree about call number `disputed`: all send their claims to all. */
void ls_tcp_disagree(ls_tcp_group *group, uint32_t disputed);
/* Ends a mismatch once all claims have arrived or the time for them is over. */
void ls_tcp_judge(ls_tcp_group *group);
/* Fails if a member that is needed is gone, or at the deadline. */
void ls_tcp_check_lost(ls_tcp_group *group);
void ls_tcp_check_deadline(ls_tcp_group *group, uint64_t begin_ns);
/* Waits for a short time until the reason of a failure has been sent. */
void ls_tcp_farewell(ls_tcp_group *group);

/* The operation that the caller called. */
static inline const ls_comm_op *ls_tcp_shown_op(const ls_tcp_group *group)
{
    return group->whole_op ? group->whole_op : group->call.op;
}

/* ---- algorithms: each lays out a call and runs it ---- */

/* tcp_reduce.c: all_reduce and reduce_scatter. nodes NULL: the inputs are the members' buffers. */
LS_MUST_CHECK ls_status ls_tcp_reduce(ls_tcp_group *group, ls_comm_op *op, const ls_tcp_nodes *nodes);
/* The first byte of a member's chunk, and the size of pieces. They depend only on the call and the
 * size of the group. */
uint64_t ls_tcp_chunk_begin(const ls_tcp_group *group, uint32_t member);
uint64_t ls_tcp_piece_bytes(uint64_t chunk_bytes);
/* tcp_ring.c: all_reduce and reduce_scatter of at least one element, in any order. */
LS_MUST_CHECK ls_status ls_tcp_ring(ls_tcp_group *group, ls_comm_op *op);
/* tcp_small.c: all_reduce, all_gather and barrier. */
LS_MUST_CHECK ls_status ls_tcp_small(ls_tcp_group *group, ls_comm_op *op);
/* tcp_move.c: all_gather, all_to_all and all_to_all_blocks; broadcast; send and receive. */
LS_MUST_CHECK ls_status ls_tcp_exchange(ls_tcp_group *group, ls_comm_op *op);
LS_MUST_CHECK ls_status ls_tcp_broadcast(ls_tcp_group *group, ls_comm_op *op);
LS_MUST_CHECK ls_status ls_tcp_send_receive(ls_tcp_group *group, ls_comm_op *op);

/* tcp.c: runs a part of an operation on a group. whole_op: the caller's operation, for messages. */
LS_MUST_CHECK ls_status ls_tcp_run_part(ls_transport *transport, ls_comm_op *op, const ls_comm_op *whole_op,
                                        const ls_tcp_nodes *nodes);

/* ---- tcp_connect.c ---- */

double ls_tcp_timeout_s(const ls_transport_setup *setup);

/* Publishes this rank's addresses, finds the other ranks, and connects all lanes. */
LS_MUST_CHECK ls_status ls_tcp_connect(ls_tcp_mesh *mesh, const ls_transport_setup *setup);

#endif

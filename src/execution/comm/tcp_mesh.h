// SPDX-License-Identifier: Apache-2.0
/*
 * The TCP transport inside: a mesh of sockets that several groups share, and the calls that run over it.
 *
 *   mesh    sockets of this rank to all others, one epoll, one lock; made once by ls_transport_open_tcp
 *    └ peer     another rank: 1..8 lanes
 *       └ lane     one socket: messages waiting to be sent, and where the payload that is arriving goes
 *   group   a transport: the ranks that were opened with, or a split of them; at most one call at a time
 *    └ call     streams of pieces from and to members, and a plan that says where pieces lie and when they may be sent
 *
 * Flow. A call that sends a member more than LS_TCP_EAGER_BYTES waits for that member's READY (with its fingerprint), so large data only
 * ever arrives where the call is active and its place is known: nothing is buffered, no lane is blocked by a call that has not begun. Small
 * data goes at once; if it arrives early it is kept as a stray and taken by the call. Pieces of a stream go round the lanes, piece k on
 * lane k mod lanes, so a piece needs no address beyond its number.
 *
 * Threads. One lock per mesh, released only while waiting in epoll. A thread that waits while another one polls sleeps on a condition; who
 * polls moves everybody's bytes. Callbacks of plans run under the lock.
 */
#ifndef LS_EXECUTION_COMM_TCP_MESH_H
#define LS_EXECUTION_COMM_TCP_MESH_H

#include "execution/comm/tcp_wire.h"
#include "execution/comm/transport.h"
#include "execution/parallel/tree.h"

#include <pthread.h>

enum {
    LS_TCP_LANES_MAX = 8,
    LS_TCP_PHASES = 2,
    LS_TCP_EAGER_BYTES = 64 << 10,
    LS_TCP_STAGE_BYTES = 8 << 10,
    LS_TCP_TEXT_BYTES = 768,
    LS_TCP_WINDOW_MAX = 32,
    LS_TCP_DEPTH_MAX = 32,  /* of nodes' additions */
    LS_TCP_PAIR_AHEAD = 16, /* small sends of one pair that may wait to be received */
};

typedef struct ls_tcp_mesh ls_tcp_mesh;
typedef struct ls_tcp_group ls_tcp_group;

typedef struct ls_tcp_span {
    void *data;
    uint64_t bytes;
} ls_tcp_span;

/* Pieces from or to one member in one phase of a call. */
typedef struct ls_tcp_stream {
    uint32_t pieces;
    uint32_t limit;                     /* out: may be sent by now */
    uint32_t room;                      /* out: and the other end has told that it has room for */
    uint32_t next;                      /* out: handed to the lane */
    uint32_t done;                      /* without a gap; out: on their way; in: here */
    uint32_t last;                      /* in: 1 + the highest that is here */
    uint32_t by_lane[LS_TCP_LANES_MAX]; /* done, gaps or not */
} ls_tcp_stream;

/* A message waiting to be sent. */
typedef struct ls_tcp_out {
    uint8_t header[LS_TCP_HEADER_BYTES];
    uint8_t small[16]; /* payload of READY */
    uint8_t trailer[4];
    const uint8_t *payload;
    void *owned; /* payload to free when it is sent; NULL: borrowed, or in `small` */
    uint32_t payload_bytes, trailer_bytes;
    uint64_t sent;         /* of header, payload and trailer together */
    ls_tcp_group *group;   /* whose call the borrowed payload belongs to; NULL: nobody's */
    ls_tcp_stream *stream; /* that it is a piece of */
} ls_tcp_out;

/* A message that came before its call. */
typedef struct ls_tcp_stray {
    struct ls_tcp_stray *next;
    ls_tcp_header header;
    uint32_t peer;
    bool whole; /* all of its payload is here */
    uint64_t capacity;
    uint8_t data[];
} ls_tcp_stray;

typedef struct ls_tcp_lane {
    int fd; /* -1: closed */
    uint32_t peer, index;
    bool readable, writable;
    ls_tcp_out *queue; /* ring of `capacity` */
    uint32_t first, count, capacity;
    uint8_t *staged; /* read ahead: headers and small payloads */
    uint32_t staged_begin, staged_end;
    enum { LS_TCP_AT_HEADER, LS_TCP_AT_PAYLOAD, LS_TCP_AT_TRAILER } at;
    ls_tcp_header header;
    uint8_t *to; /* where payload goes; NULL: thrown away */
    uint64_t payload_done;
    uint32_t trailer_done;
    ls_tcp_group *group; /* whose call `to` belongs to */
    ls_tcp_stray *stray;
    uint8_t control[LS_TCP_CONTROL_BYTES_MAX];
    uint8_t trailer[4];
} ls_tcp_lane;

typedef struct ls_tcp_peer {
    ls_tcp_lane *lanes;
    uint32_t lane_count, open_count;
    bool checksums;
    bool left;        /* said goodbye */
    bool gone;        /* nothing more will come */
    char address[64]; /* of the other end */
    char why[160];    /* it is gone */
} ls_tcp_peer;

struct ls_tcp_mesh {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool polling;        /* a thread waits in epoll */
    bool failed;         /* one of the groups */
    uint32_t sleepers;   /* threads that wait for it */
    uint64_t moves;      /* counts messages sent and received */
    uint32_t references; /* groups */
    int epoll_fd, wake_fd;
    uint32_t rank, size;
    uint64_t epoch;
    uint64_t spin_ns; /* busy polling before a wait */
    uint32_t link_ms; /* without an answer to what was sent: the link is cut */
    uint64_t links_looked_ns;
    ls_comm_member *members; /* `size` */
    ls_tcp_peer *peers;      /* `size`; the own one is empty */
    ls_tcp_group *groups;
    ls_tcp_stray *strays, *spare; /* oldest first; free ones */
    uint8_t *bin;                 /* where unwanted payload is read to */
    uint64_t sent_bytes, received_bytes;
};

/* How an algorithm lays a call out. `target` returns data NULL and bytes UINT64_MAX for a piece that can't come. */
typedef struct ls_tcp_plan {
    ls_tcp_span (*source)(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece);
    ls_tcp_span (*target)(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece);
    /* A piece is here. NULL: nothing to do. */
    void (*arrived)(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t piece);
    /* Adds up, raises limits. Returns whether nothing but sending and receiving is left. */
    bool (*advance)(ls_tcp_group *group);
} ls_tcp_plan;

/*
 * Sums whose inputs are not the members' own but nodes of a larger tree (hier.c: the members are hosts, their nodes sums of their ranks):
 * member m has counts[m] of them. Together they are [0, leaves).
 */
typedef struct ls_tcp_nodes {
    uint32_t leaves, count;
    const uint32_t *counts,
        *firsts;             /* by member: how many, and where its first stands in the list by member */
    const uint32_t *sorted;  /* by place in the tree's order: which of the list by member */
    const uint16_t *program; /* ls_tree_program over the sorted ones */
    uint32_t program_length, depth;
    const void *const *own; /* counts[own rank] buffers of the call's count and type */
} ls_tcp_nodes;

typedef struct ls_tcp_call {
    bool active;
    bool gated;    /* data waits for READY */
    bool receives; /* of a pair */
    bool all_meet; /* all say READY to all, since each waits for all though it only hears of some */
    ls_comm_op *op;
    const ls_tcp_plan *plan;
    const ls_tcp_nodes *nodes; /* NULL: each member's own data */
    ls_tcp_space space;
    uint32_t seq;
    uint32_t peer; /* of a pair */
    uint64_t fingerprint;
    uint32_t out_left, in_left; /* streams that have not ended */
    uint32_t heard;             /* members that were heard of */
    /* The algorithms' own. */
    uint64_t piece_bytes, block_bytes, element_bytes;
    uint32_t window, reduced, pieces;
    uint32_t slack; /* of phase 0: pieces that one stream may be ahead of the slowest; 0: any number */
    uint32_t front; /* what that allows now */
    uint32_t rounds, parent;
    uint32_t freed, credited; /* slots of a ring: may be filled again, and the other was told so */
} ls_tcp_call;

struct ls_tcp_group {
    ls_transport base; /* rank and size in the group */
    ls_tcp_mesh *mesh;
    ls_tcp_group *next, *parent;
    ls_comm_member *members; /* of the group; base.members points here */
    uint32_t id;
    uint32_t *peer_of;   /* group rank -> mesh rank */
    uint32_t *member_of; /* mesh rank -> group rank, UINT32_MAX: none */
    uint32_t seq;        /* calls of the whole group so far */
    uint32_t *sent, *received,
        *pair_ready;      /* by member: sends, receives, and the last receive it has announced */
    ls_status status;     /* once it has failed */
    char *text;           /* why, LS_TCP_TEXT_BYTES */
    uint64_t disagree_ns; /* until when claims are gathered; 0: no mismatch */
    uint32_t disputed;    /* the call that others disagree about */
    const ls_comm_op
        *said; /* what the caller called, when the active call is a part of it; NULL: the call itself */
    ls_comm_op last_op;               /* the call of the whole group before this one */
    ls_comm_claim *claims;            /* by member */
    bool *claimed, *ready, *is_heard; /* by member */
    ls_tcp_stream *in, *out;          /* by phase and member */
    uint8_t *scratch;
    uint64_t scratch_bytes;
    const void **inputs; /* for sums, `input_room` of them */
    uint32_t input_room;
    uint32_t *here; /* by piece in the window */
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
/* The next piece of a stream is done on one of its lanes, each of which keeps the order. */
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

/* ---- tcp_mesh.c: bytes ---- */

/* An unconnected mesh for `setup`; its peers' lanes are added by ls_tcp_mesh_add_lane. */
LS_MUST_CHECK ls_status ls_tcp_mesh_create(const ls_transport_setup *setup, ls_tcp_mesh **mesh_out);
/* Room for the lanes of a peer; fds are bound later. */
LS_MUST_CHECK ls_status ls_tcp_mesh_add_peer(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lanes,
                                             bool checksums);
LS_MUST_CHECK ls_status ls_tcp_mesh_bind(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lane, int fd);
/* Says goodbye, sees to it that what was sent arrives (bounded), closes everything. */
void ls_tcp_mesh_destroy(ls_tcp_mesh *mesh);

/* Queues a message on a lane of `peer`; a closed one swallows it. The payload is borrowed until it is sent. Returns the entry. */
ls_tcp_out *ls_tcp_post(ls_tcp_mesh *mesh, uint32_t peer, uint32_t lane, const ls_tcp_header *header,
                        const void *payload);
/* The same with a copy of the payload, on lane 0. */
void ls_tcp_post_copy(ls_tcp_mesh *mesh, uint32_t peer, const ls_tcp_header *header, const void *payload);
/* Sends what the sockets take. */
void ls_tcp_mesh_flush(ls_tcp_mesh *mesh);
/* Reads what is there; waits until `until_ns` when there is nothing. Lock held; released while waiting. Returns nanoseconds waited. */
uint64_t ls_tcp_mesh_wait(ls_tcp_mesh *mesh, uint64_t until_ns);
void ls_tcp_mesh_wake(ls_tcp_mesh *mesh);
/* The call of `group` is over: nothing that its buffers hold is read or written from here on. */
void ls_tcp_mesh_forget(ls_tcp_mesh *mesh, ls_tcp_group *group);
void ls_tcp_mesh_free_stray(ls_tcp_mesh *mesh, ls_tcp_stray *stray);

/* ---- tcp_call.c: what messages mean, and running a call ---- */

/* Where the payload of a data message goes: sets lane->to, lane->group or lane->stray. */
void ls_tcp_place(ls_tcp_mesh *mesh, ls_tcp_lane *lane);
/* A message is here with all of its payload (control messages in lane->control). */
void ls_tcp_arrived(ls_tcp_mesh *mesh, ls_tcp_lane *lane);

/* Makes the group and those split from it fail; the first reason stays. tell: the other members too. */
void ls_tcp_fail(ls_tcp_group *group, ls_status status, bool tell, const char *format, ...) LS_PRINTF(4, 5);
/* "rank 3 (node7, pid 4711, 10.0.0.7:4711)" */
const char *ls_tcp_name(const ls_tcp_group *group, uint32_t member, char text[192]);

/* Clears the streams for a call of the group or of a pair. */
void ls_tcp_call_begin(ls_tcp_group *group, ls_comm_op *op, const ls_tcp_plan *plan, ls_tcp_space space);
void ls_tcp_call_out(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t pieces, uint32_t limit);
void ls_tcp_call_in(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t pieces);
/* Runs it to its end. */
LS_MUST_CHECK ls_status ls_tcp_call_run(ls_tcp_group *group);
/* A header-only message of the call: the member may send up to `pieces` beyond the window. */
void ls_tcp_call_credit(ls_tcp_group *group, uint32_t member, uint32_t pieces);
/* Marks peers as gone whose kernel has not answered for mesh->link_ms. */
void ls_tcp_mesh_check_links(ls_tcp_mesh *mesh);
/* At least `bytes` of scratch. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tcp_scratch(ls_tcp_group *group, uint64_t bytes);

/* ---- algorithms: each lays a call out and runs it ---- */

/* tcp_reduce.c: all_reduce, reduce_scatter; nodes NULL: the members' own data. */
LS_MUST_CHECK ls_status ls_tcp_reduce(ls_tcp_group *group, ls_comm_op *op, const ls_tcp_nodes *nodes);
/* First byte of the chunk of `member`, and how large its pieces are: functions of the call and the size of the group alone. */
uint64_t ls_tcp_chunk_begin(const ls_tcp_group *group, uint32_t member);
uint64_t ls_tcp_piece_bytes(uint64_t chunk_bytes);
/* tcp_ring.c: all_reduce, reduce_scatter in any order; not of nothing. */
LS_MUST_CHECK ls_status ls_tcp_ring(ls_tcp_group *group, ls_comm_op *op);
LS_MUST_CHECK ls_status ls_tcp_small(ls_tcp_group *group,
                                     ls_comm_op *op); /* tcp_small.c: all_reduce, all_gather, barrier */
LS_MUST_CHECK ls_status ls_tcp_exchange(ls_tcp_group *group,
                                        ls_comm_op *op); /* tcp_move.c: all_gather, all_to_all(_blocks) */
LS_MUST_CHECK ls_status ls_tcp_broadcast(ls_tcp_group *group, ls_comm_op *op);    /* tcp_move.c */
LS_MUST_CHECK ls_status ls_tcp_send_receive(ls_tcp_group *group, ls_comm_op *op); /* tcp_move.c */

/* tcp.c: runs a part of what the caller called (`said`, for messages) on a group. */
LS_MUST_CHECK ls_status ls_tcp_run_part(ls_transport *transport, ls_comm_op *op, const ls_comm_op *said,
                                        const ls_tcp_nodes *nodes);

/* ---- tcp_connect.c ---- */

double ls_tcp_timeout_s(const ls_transport_setup *setup);

/* Publishes this rank's addresses, finds the others, connects all lanes. */
LS_MUST_CHECK ls_status ls_tcp_connect(ls_tcp_mesh *mesh, const ls_transport_setup *setup);

#endif

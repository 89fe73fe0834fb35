// SPDX-License-Identifier: Apache-2.0
/*
 * Connections that are being made: shared by tcp_connect.c (the loop), tcp_dial.c (the calling
 * side) and tcp_accept.c (the called side). The higher rank of a pair calls the lower one.
 *
 *   caller   DIALLING ──▶ WANT_ANSWER ──▶ WANT_VERDICT ──▶ WORKS ──▶ (PROBING ──▶) chosen: bound
 *   called   WANT_HELLO ──▶ WANT_PROOF ──▶ WANT_CHOICE ──▶ bound
 *
 * Bound means that the mesh owns the socket. tcp_wire.h describes the messages.
 */
#ifndef LS_COMM_TCP_TCP_LINK_H
#define LS_COMM_TCP_TCP_LINK_H

#include "comm/tcp/tcp_address.h"
#include "comm/tcp/tcp_mesh.h"

#include <poll.h>

enum {
    /* Calls that are under way at once. */
    LS_TCP_DIALS_MAX = 128,
    /* Incoming connections, including those that have not said who they are. */
    LS_TCP_INBOUND_MAX = 4096,
};

typedef enum ls_tcp_connection_state {
    LS_TCP_CLOSED,
    /* The calling side. */
    LS_TCP_DIALLING,
    LS_TCP_WANT_ANSWER,
    LS_TCP_WANT_VERDICT,
    LS_TCP_WORKS,
    LS_TCP_PROBING,
    /* The called side. */
    LS_TCP_WANT_HELLO,
    LS_TCP_WANT_PROOF,
    LS_TCP_WANT_CHOICE,
} ls_tcp_connection_state;

typedef struct ls_tcp_connection {
    int fd;
    ls_tcp_connection_state state;
    uint32_t peer, lane, candidate;
    uint64_t since_ns;
    ls_tcp_hello hello;
    /* The hello as it was sent. */
    uint8_t hello_bytes[LS_TCP_HELLO_BYTES];
    ls_tcp_answer answer;
    /* The message being received: `have` of `need` bytes. */
    uint8_t in[LS_TCP_HELLO_BYTES];
    uint32_t have, need;
    /* Bytes of a probe that remain to be sent or read. */
    uint64_t bulk;
    /* When the probe began. */
    uint64_t probe_ns;
    char address[64];
} ls_tcp_connection;

/* One address of a callee. */
typedef struct ls_tcp_candidate {
    /* dead: something answered there, but not the rank that was called. */
    bool under_way, works, dead;
    uint64_t retry_ns, wait_ms;
    /* Duration of the probe; 0: not probed. */
    uint64_t probe_ns;
    ls_tcp_verdict verdict;
    int error;
} ls_tcp_candidate;

/* A lower rank, which this rank calls. */
typedef struct ls_tcp_callee {
    ls_tcp_book book;
    uint32_t order[LS_TCP_ADDRESSES_MAX], count;
    ls_tcp_candidate tries[LS_TCP_ADDRESSES_MAX];
    /* UINT32_MAX: not chosen yet. */
    uint32_t chosen;
    /* When the first address worked. */
    uint64_t first_ns;
} ls_tcp_callee;

typedef struct ls_tcp_connector {
    ls_tcp_mesh *mesh;
    const ls_transport_setup *setup;
    uint64_t name_hash;
    uint32_t lanes, flags;
    int listener;
    ls_tcp_book own;
    /* By rank, for the ranks below this one. */
    ls_tcp_callee *callees;
    ls_tcp_connection *links;
    uint32_t link_count, dials;
    struct pollfd *polls;
    uint64_t deadline_ns;
    /* Incoming connections that were refused, and the text of the last one. */
    uint32_t refused_count;
    char refusal[192];
} ls_tcp_connector;

static inline bool ls_tcp_is_dialled(const ls_tcp_connection *l)
{
    return l->state >= LS_TCP_DIALLING && l->state <= LS_TCP_PROBING;
}

/* ---- tcp_connect.c ---- */

/* A connection for a new socket; NULL: too many. */
ls_tcp_connection *ls_tcp_connection_open(ls_tcp_connector *c, int fd, ls_tcp_connection_state state);
void ls_tcp_connection_close(ls_tcp_connection *l);
/* Ends a connection because of an errno value or, if not LS_TCP_WELCOME, a verdict. */
void ls_tcp_connection_failed(ls_tcp_connector *c, ls_tcp_connection *l, int error, ls_tcp_verdict verdict);
/* Gives the socket to the mesh, as lane l->lane of l->peer. */
ls_status ls_tcp_connection_bind(ls_tcp_connector *c, ls_tcp_connection *l, uint32_t lanes, bool checksums);
/* Sends a small message at once. Returns false on an error. */
bool ls_tcp_send_now(const ls_tcp_connection *l, const void *bytes, size_t count);

/* ---- tcp_dial.c ---- */

/* Makes the calls that are due and chooses addresses. */
ls_status ls_tcp_dial_due(ls_tcp_connector *c);
/* Ends a call; with a verdict other than LS_TCP_WELCOME the address is not tried again. */
void ls_tcp_dial_failed(ls_tcp_connector *c, ls_tcp_connection *l, int error, ls_tcp_verdict verdict);
/* The socket of a connection in the states DIALLING and PROBING is writable. */
void ls_tcp_dial_writable(ls_tcp_connector *c, ls_tcp_connection *l);
/* A whole message has arrived. */
ls_status ls_tcp_dial_received(ls_tcp_connector *c, ls_tcp_connection *l);

/* ---- tcp_accept.c ---- */

void ls_tcp_accept_all(ls_tcp_connector *c);
void ls_tcp_accept_refused(ls_tcp_connector *c, ls_tcp_connection *l, const char *why);
/* A whole message has arrived. */
ls_status ls_tcp_accept_received(ls_tcp_connector *c, ls_tcp_connection *l);
/* Reads the data of a probe and answers it at its end. */
void ls_tcp_accept_probe(ls_tcp_connector *c, ls_tcp_connection *l);

#endif

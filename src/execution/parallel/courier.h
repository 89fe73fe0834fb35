// SPDX-License-Identifier: Apache-2.0
/*
 * A courier: the thread that carries the values of one channel between the rooms of two hosts
 * (crew_room.h), so that neither stage waits for the network while it computes.
 *
 *   host of the sender                                      host of the receiver
 *     room: values, sent, received                            room: values, sent, received
 *       sent ────────▶ courier ══ {attempt, bytes} values ══▶ courier ────────▶ sent
 *       received ◀────                                                ◀──────── received
 *
 * The stages use the channels of their own rooms as if both were there. The sender's courier sends
 * what was sent and then posts it as received; the receiver's courier takes a value in when its
 * place is free and then posts it as sent. So LS_CREW_SENDS_AHEAD values fit on each side.
 *
 * Values belong to an attempt at a step. A courier drops those of an earlier attempt, which was
 * given up, and keeps the first of a later one until its own stage is there.
 *
 * The stage's thread calls all functions. A courier touches the words of its channel only with its
 * lock held.
 */
#ifndef LS_EXECUTION_PARALLEL_COURIER_H
#define LS_EXECUTION_PARALLEL_COURIER_H

#include "comm/transport/wait.h"
#include "lockstep/comm.h"

/* A channel in the room of this host. */
typedef struct ls_courier_channel {
    ls_word *sent, *received;
    _Atomic uint64_t *bytes; /* of value n: bytes[n % LS_CREW_SENDS_AHEAD], likewise its place */
    char *values;
    uint64_t value_bytes; /* room of a value */
} ls_courier_channel;

typedef struct ls_courier ls_courier;

/* comm: of the two ends, borrowed until the courier is closed; used by its thread alone. peer: the
 * other end's rank in it. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_courier_open(ls_comm *comm, uint32_t peer, bool sends, ls_courier_channel channel,
                                        ls_courier **courier_out);
/* Ends the transfer in progress and the thread; afterwards nothing is written to the room. */
void ls_courier_close(ls_courier *courier); /* NULL allowed */

/* Begins an attempt: the words of the channel become 0. fingerprint: of the step, compared with
 * that of the other end. */
void ls_courier_enter(ls_courier *courier, uint64_t attempt, uint64_t fingerprint);
/* A word of the channel was posted. */
void ls_courier_look(ls_courier *courier);
/* Tells the other end that nothing more comes in this attempt. Of a receiver: what arrives is
 * dropped. */
void ls_courier_give_up(ls_courier *courier);
/* Whether the other end has given this attempt up. */
bool ls_courier_is_given_up(const ls_courier *courier);
/* LS_OK, or why nothing is carried any more. LS_ERR_MISMATCH: the two ends have other settings. */
LS_MUST_CHECK ls_status ls_courier_status(const ls_courier *courier);

#endif

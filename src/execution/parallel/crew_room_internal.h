// SPDX-License-Identifier: Apache-2.0
/* The room of a crew, as its files share it; not for inclusion elsewhere. */
#ifndef LS_EXECUTION_PARALLEL_CREW_ROOM_INTERNAL_H
#define LS_EXECUTION_PARALLEL_CREW_ROOM_INTERNAL_H

#include "comm/transport/wait.h"
#include "execution/parallel/courier.h"
#include "execution/parallel/crew_room.h"
#include "model/plan.h"

enum { ROOM_DEGREE_MAX = 64 }; /* members of a group */

/* What a member gives to one of its groups. */
typedef struct room_share {
    _Alignas(64) ls_word given; /* chunks */
    /* what its newest two chunks are for, by parity */
    _Atomic uint64_t asks[2];
} room_share;

typedef struct room_member {
    /* the attempt it has entered */
    _Alignas(64) _Atomic uint64_t attempt;
    _Alignas(64) ls_word met;
    room_share shares[LS_CREW_GROUPS];
} room_member;

/* A group, as this member sees it: the members first, first + step, ... of the crew. */
typedef struct room_group {
    uint32_t degree, first, step;
    uint32_t given; /* chunks, by this member */
} room_group;

typedef struct room_channel {
    _Alignas(64) ls_word sent; /* written by the sender */
    _Alignas(64) ls_word received;
    _Atomic uint64_t bytes[LS_CREW_SENDS_AHEAD];
} room_channel;

typedef struct room_head {
    _Alignas(64) ls_word entered;
} room_head;

struct ls_crew_room {
    ls_crew_room_options options;
    ls_crew crew;
    ls_mesh_place place;
    uint32_t size, self;  /* members of the crew */
    uint32_t first, past; /* those on this host */
    room_head *head;
    room_member *members;
    room_channel *channels; /* LS_CREW_WAYS per member, by sender */
    char *chunks, *values;
    uint64_t attempt;
    room_group groups[LS_CREW_GROUPS];
    uint32_t met, sent[LS_CREW_WAYS], received[LS_CREW_WAYS];
    /* To and from stages on other hosts; NULL: the stage is here. */
    ls_courier *out[LS_CREW_WAYS], *in[LS_CREW_WAYS];
    ls_comm *comms[2 * LS_CREW_WAYS];
    uint32_t comm_count;
    uint64_t cut_ns;     /* when a courier was found to have failed; 0: none has */
    uint64_t late_count; /* waits that were recorded */
    uint8_t flight_slot;
    ls_crew_room_stats stats;
};

/* The condition of a wait: a word of member `of` has reached `value`; or, without a word, all
 * members have entered the attempt. */
typedef struct room_wait {
    ls_crew_room *room;
    ls_word *word;
    uint32_t value, of;
    const char *what; /* where it waits, for texts: "an exchange of the tensor group" */
    bool of_stage;    /* of another stage of the pipeline */
} room_wait;

LS_MUST_CHECK ls_status ls_room_await(room_wait w);

/* How texts name member `of` of this crew. */
const char *ls_room_name(const ls_crew_room *room, uint32_t of, char text[LS_MESH_NAME_BYTES]);

/* Copies `count` values between a view, from its value number `first` on, and packed memory. */
void ls_room_copy(const ls_tensor *view, int64_t first, int64_t count, float *packed, bool to_view);

/* Sets the calls of room->crew that are for groups. */
void ls_room_open_groups(ls_crew_room *room);

#endif

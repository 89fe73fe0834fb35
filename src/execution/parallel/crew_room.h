// SPDX-License-Identifier: Apache-2.0
/*
 * The room of a crew: what carries the exchanges of execution/executor/crew.h between ranks of one
 * host, in memory that they share.
 *
 *   +------------+
 *   | head       | a word to sleep on while members come
 *   | members    | per member: attempt, meetings reached; per group chunks given, what it asks for
 *   | channels   | per member and way: values sent to the same member of the next or previous
 *   |            | stage, and received by it
 *   +------------+
 *   | chunks     | per member and group two of LS_CREW_CHUNK_BYTES, for sums and gathers
 *   | values     | per channel LS_CREW_SENDS_AHEAD of value_bytes
 *   +------------+
 *
 * A sum goes chunk by chunk: each member copies its chunk into the room, waits until the others
 * have done so, and adds all of them up itself. Two chunks take turns, so one wait per chunk is
 * enough: whoever has given chunk n + 1 has finished reading chunk n.
 *
 * Every word has one writer, and nothing needs to be repaired after a member has died: an attempt
 * at a step has a number that all members know (enter), each member resets its own words when it
 * enters, and nobody uses the words of a member that has not entered the same attempt. The caller
 * makes sure that no member is still in an attempt before it: a step ends with a meeting of all
 * ranks, and a team changes only while all ranks are parked.
 *
 * Why not a communicator (include/lockstep/comm.h): its members meet at a store, and after a death
 * it cannot be used again; this room is ready for the next attempt at once.
 *
 * Stages may be on several hosts, each with a room for its members. Couriers carry the values
 * between the rooms (courier.h). Sums, gathers and meetings are among the members of one host.
 *
 * A wait that lasts is recorded in the flight recorder as a receive from the member it waits for,
 * so that the watchdog finds the one that keeps the others waiting.
 *
 * One object belongs to one thread. Errors of waiting: LS_FENCED and others from `aborted`,
 * LS_STOPPED when a part gave this step up, LS_ERR_TIMEOUT, LS_ERR_RANKS_LOST.
 */
#ifndef LS_EXECUTION_PARALLEL_CREW_ROOM_H
#define LS_EXECUTION_PARALLEL_CREW_ROOM_H

#include "execution/executor/crew.h"
#include "execution/parallel/mesh.h"
#include "lockstep/comm.h"

#include <stdatomic.h>

enum {
    LS_CREW_CHUNK_BYTES = 256 * 1024,
    /* comm_id of a crew in the flight recorder; the number of the crew and, in higher bits, the
     * epoch are added to it */
    LS_CREW_COMM = 0x52000000,
};

/* Size of the rooms of `crews` crews. value_bytes: of the largest value sent between stages; a
 * larger one is sent in pieces, and its sender then waits for the receiver. */
uint64_t ls_crew_room_bytes(ls_mesh mesh, uint32_t crews, uint64_t value_bytes);

typedef struct ls_crew_room_options {
    ls_mesh mesh;
    uint32_t rank; /* of the mesh */
    /* Several hosts: a communicator of all ranks, borrowed, and the ranks of each host. */
    ls_comm *comm;
    const ls_mesh_host *hosts;
    uint32_t host_count;
    ls_mesh_host host; /* the ranks that share `memory`, whole stages */
    uint32_t crew;     /* number of this crew among those of `memory` */
    uint64_t epoch;    /* of the cut, for the flight recorder */
    void *memory;      /* ls_crew_room_bytes, 64-byte aligned, zeroed before the first member */
    uint64_t value_bytes;
    uint32_t spins;   /* of each wait before it sleeps */
    double timeout_s; /* of each wait */
    /* As in ls_data_parallel_options. */
    const _Atomic uint32_t *abort;
    ls_status (*aborted)(void *context);
    bool (*look)(void *context);
    /* Whether the attempt that the room is in was given up by any part. NULL: never. */
    bool (*is_given_up)(void *context);
    void *context;
} ls_crew_room_options;

typedef struct ls_crew_room ls_crew_room;

/* With `comm` collective over all ranks. Errors: LS_ERR_MEMORY; those of the communicator. */
LS_MUST_CHECK ls_status ls_crew_room_open(const ls_crew_room_options *options, ls_crew_room **room_out);
void ls_crew_room_close(ls_crew_room *room); /* NULL allowed */

/* Begins attempt `attempt`, a number that all members have in common and that grows from attempt to
 * attempt. fingerprint: of the step; stages on different hosts compare it. Never waits. */
void ls_crew_room_enter(ls_crew_room *room, uint64_t attempt, uint64_t fingerprint);
/* Tells stages on other hosts that this member gives the attempt up; their waits end with
 * LS_STOPPED. On this host is_given_up says so. */
void ls_crew_room_give_up(ls_crew_room *room);
/* Several hosts: ends what couriers have in hand. Afterwards nothing is written to the room, and no
 * attempt can be made. */
void ls_crew_room_break(ls_crew_room *room);
/* Waits until all members have entered; before any of the calls below. */
LS_MUST_CHECK ls_status ls_crew_room_await(ls_crew_room *room);
/* Waits until all members are here. Whatever a member wrote before it, the others see after it. */
LS_MUST_CHECK ls_status ls_crew_room_meet(ls_crew_room *room);

/* The table for ls_executor_batch.crew; valid until the room is closed. */
const ls_crew *ls_crew_room_crew(const ls_crew_room *room);

/* Since the last ls_crew_room_enter. Bytes count once for each member that reads them: of a sum
 * the others read all, of a gather the member's own rows, of rows that are added up each other
 * member its own. */
typedef struct ls_crew_room_stats {
    uint64_t wait_ns; /* of waiting for others */
    /* of it, in a crew with stages: for values of others, for room to send one, and for the end of
     * a leaf */
    uint64_t stage_wait_ns;
    uint64_t group_bytes[LS_CREW_GROUPS]; /* given to the others of a group */
    uint64_t sent_bytes;                  /* to other stages */
} ls_crew_room_stats;
ls_crew_room_stats ls_crew_room_get_stats(const ls_crew_room *room);

#endif

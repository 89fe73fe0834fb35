// SPDX-License-Identifier: Apache-2.0
/*
 * A sight: what one rank is seen doing at one moment, from its flight file and from what the system says of its process.
 *
 * Plain data. Whoever diagnoses (the agent's watch, `lockstep diagnose`) takes one of each rank and hands them to
 * execution/diagnose/graph.h.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SIGHT_H
#define LS_EXECUTION_DIAGNOSE_SIGHT_H

#include "execution/comm/flight_reader.h"

enum { LS_SIGHT_OPEN_MAX = 4, LS_SIGHT_OP_WORDS_BYTES = 96, LS_SIGHT_WORDS_BYTES = 512 };

typedef enum ls_process_state {
    LS_PROCESS_UNKNOWN, /* of another host */
    LS_PROCESS_ALIVE,
    LS_PROCESS_STOPPED, /* by a signal, state T */
    LS_PROCESS_TRACED,  /* by a debugger, state t */
    LS_PROCESS_BLOCKED, /* in a system call that can't be interrupted, state D */
    LS_PROCESS_DEAD,    /* ended, or a zombie */
} ls_process_state;

/* An operation, with its call site in words. */
typedef struct ls_sight_op {
    uint64_t seq, fingerprint, count, begin_ns, end_ns; /* times: the clock of the rank's host */
    uint32_t comm_id, peer;
    uint8_t kind, dtype, reduction, flags;
    char site[LS_FLIGHT_SITE_BYTES];
} ls_sight_op;

typedef struct ls_sight {
    uint32_t rank;
    bool has_file; /* false: nothing below but rank is known */
    ls_flight_header header;
    ls_flight_now now;
    ls_process_state process;
    uint64_t taken_ns; /* the clock of the rank's host */
    uint32_t comm_count;
    ls_flight_comm comms[LS_FLIGHT_COMMS]; /* those that are not free */
    uint32_t open_count;                   /* operations it is inside, oldest first */
    ls_sight_op open[LS_SIGHT_OPEN_MAX];
    bool has_last; /* the operation it began last */
    ls_sight_op last;
    char words[LS_SIGHT_WORDS_BYTES]; /* the beginning of its last words; "" */
} ls_sight;

/* What the system says of process `pid` that started at `start` (field 22 of /proc/PID/stat, 0: any): a later process with the same
 * number counts as dead. */
ls_process_state ls_process_look(int32_t pid, uint64_t start);

/* Fields 4 and 22 of that file: the process that started it, and when it began in ticks since the machine did. 0 when it is not there. */
int32_t ls_process_parent(int32_t pid);
uint64_t ls_process_start(int32_t pid);

/* Whether the header was written on this machine since it was started. */
bool ls_sight_is_local(const ls_flight_header *header);

/* Looks at a rank. now_ns: this host's clock. Errors: those of the reader; the sight is then of no use. */
LS_MUST_CHECK ls_status ls_sight_take(ls_flight_reader *reader, uint64_t now_ns, ls_sight *sight_out);

/* A record with its site in words. */
LS_MUST_CHECK ls_status ls_sight_op_fill(ls_flight_reader *reader, const ls_flight_record *record,
                                         ls_sight_op *op_out);

/* "all_reduce sum of 1000 f32". */
void ls_sight_op_words(const ls_sight_op *op, char words_out[LS_SIGHT_OP_WORDS_BYTES]);

const char *ls_process_state_name(ls_process_state state);

#endif

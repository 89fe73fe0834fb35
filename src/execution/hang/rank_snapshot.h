// SPDX-License-Identifier: Apache-2.0
/*
 * A rank snapshot: what one rank is doing at one moment, according to its flight file and to what
 * the system reports about its process.
 *
 * Plain data. The agent's watchdog and `lockstep diagnose` take one of each rank and pass them to
 * execution/hang/wait_graph.h.
 */
#ifndef LS_EXECUTION_HANG_RANK_SNAPSHOT_H
#define LS_EXECUTION_HANG_RANK_SNAPSHOT_H

#include "comm/flight/flight_reader.h"

enum {
    LS_RANK_SNAPSHOT_OPEN_MAX = 4,
    LS_RANK_SNAPSHOT_OP_WORDS_BYTES = 96,
    LS_RANK_SNAPSHOT_WORDS_BYTES = 512
};

typedef enum ls_process_state {
    LS_PROCESS_UNKNOWN, /* it runs on another host */
    LS_PROCESS_ALIVE,
    LS_PROCESS_STOPPED, /* by a signal (state T) */
    LS_PROCESS_TRACED,  /* by a debugger (state t) */
    LS_PROCESS_BLOCKED, /* in a system call that cannot be interrupted (state D) */
    LS_PROCESS_DEAD,    /* ended, or a zombie */
} ls_process_state;

/* An operation, with its call site as text. */
typedef struct ls_rank_snapshot_op {
    uint64_t seq, fingerprint, count, begin_ns, end_ns; /* times: the clock of the rank's host */
    uint32_t comm_id, peer;
    uint8_t kind, dtype, reduction, flags;
    char site[LS_FLIGHT_SITE_BYTES];
} ls_rank_snapshot_op;

typedef struct ls_rank_snapshot {
    uint32_t rank;
    bool has_file; /* false: only the rank is known */
    ls_flight_header header;
    ls_flight_now now;
    ls_process_state process;
    uint64_t taken_ns; /* the clock of the rank's host */
    uint32_t comm_count;
    ls_flight_comm comms[LS_FLIGHT_COMMS]; /* those that are not free */
    uint32_t open_count;                   /* operations it is inside, oldest first */
    ls_rank_snapshot_op open[LS_RANK_SNAPSHOT_OPEN_MAX];
    bool has_last;
    ls_rank_snapshot_op last;                 /* the operation it began last */
    char words[LS_RANK_SNAPSHOT_WORDS_BYTES]; /* the beginning of its last words, or "" */
} ls_rank_snapshot;

/* The state of the process `pid` that started at `start` (field 22 of /proc/PID/stat; 0: at any
 * time). If another process has the number now, the one asked for is dead. */
ls_process_state ls_process_look(int32_t pid, uint64_t start);

/* Fields 4 and 22 of that file: the parent process, and the start time in clock ticks since boot.
 * 0 if there is no such process. */
int32_t ls_process_parent(int32_t pid);
uint64_t ls_process_start(int32_t pid);

/* Whether the header was written on this machine since its last boot. */
bool ls_rank_snapshot_is_local(const ls_flight_header *header);

/* Takes a snapshot of a rank. now_ns: this host's clock. Errors: those of the reader; the snapshot
 * is then undefined. */
LS_MUST_CHECK ls_status ls_rank_snapshot_take(ls_flight_reader *reader, uint64_t now_ns,
                                              ls_rank_snapshot *snapshot_out);

/* A record with its call site as text. */
LS_MUST_CHECK ls_status ls_rank_snapshot_op_fill(ls_flight_reader *reader, const ls_flight_record *record,
                                                 ls_rank_snapshot_op *op_out);

/* "all_reduce sum of 1000 f32". */
void ls_rank_snapshot_op_words(const ls_rank_snapshot_op *op,
                               char words_out[LS_RANK_SNAPSHOT_OP_WORDS_BYTES]);

const char *ls_process_state_name(ls_process_state state);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The flight recorder: what a rank did last, in a mapped file that outlives the rank and whoever started it.
 *
 * One file per rank, `flight/rank-<n>` in the run directory (on other hosts in a folder of their agent). It is a MAP_SHARED mapping of an
 * ordinary file, so it is there after kill -9 of rank and agent. Writing costs a few stores (<= 50 ns per operation) and never blocks;
 * readers (agent, `diagnose`, `trace`) copy and look whether they were overtaken.
 *
 *   header      who: rank, host, pid, epoch, start
 *   activity    what the rank is doing now: a kind, a number, since when; plan step, leaf and training step
 *   sites       interned call sites ("src/execution/parallel/reduce.c:120"), named by index
 *   records     ring of the last LS_FLIGHT_RECORDS operations, one cache line each
 *   text        the last words: an abort reason or a stack, written by the rank itself
 *
 * One writer per file: the rank (its main thread for activity; each communicator's thread for records, hence head is atomic).
 */
#ifndef LS_EXECUTION_COMM_FLIGHT_H
#define LS_EXECUTION_COMM_FLIGHT_H

#include "base/status.h"
#include "lockstep/comm.h"

#include <stdatomic.h>

enum {
    LS_FLIGHT_VERSION = 1,
    LS_FLIGHT_RECORDS = 4096, /* a power of two */
    LS_FLIGHT_SITES = 256,
    LS_FLIGHT_SITE_BYTES = 64,
    LS_FLIGHT_TEXT_BYTES = 4096,
    LS_FLIGHT_SPANS = 8192, /* a power of two */
};

/* Kinds of operation; on disk and wire, append only. */
typedef enum ls_comm_kind {
    LS_COMM_NONE,
    LS_COMM_ALL_REDUCE,
    LS_COMM_REDUCE_SCATTER,
    LS_COMM_ALL_GATHER,
    LS_COMM_BROADCAST,
    LS_COMM_ALL_TO_ALL,
    LS_COMM_ALL_TO_ALL_BLOCKS,
    LS_COMM_SEND,
    LS_COMM_RECEIVE,
    LS_COMM_BARRIER,
    LS_COMM_SPLIT,
    LS_COMM_ALLOC,
    LS_COMM_TREE_REDUCE, /* execution/parallel: leaves of a bucket into its owners */
    LS_COMM_STEP,        /* execution/parallel: norm and agreement before an update */
    LS_COMM_KIND_COUNT
} ls_comm_kind;

const char *ls_comm_kind_name(ls_comm_kind kind); /* "all_reduce", ... */

/* One operation of one rank. Times are CLOCK_MONOTONIC nanoseconds; 0: not yet. */
typedef struct ls_flight_record {
    uint64_t seq;         /* of the communicator, 1, 2, ... */
    uint64_t fingerprint; /* ls_comm_fingerprint: what has to agree between ranks */
    uint64_t count;       /* elements */
    _Atomic uint64_t begin_ns;
    _Atomic uint64_t end_ns; /* left the operation */
    uint32_t comm_id;        /* names the communicator in this run: the same on all members */
    uint32_t last_rank;      /* who arrived last, as this rank saw it; UINT32_MAX: not known */
    uint16_t site;           /* index in the site table */
    uint8_t kind, dtype, reduction;
    uint8_t reserved[3];
    uint32_t peer; /* root, to or from; UINT32_MAX: none */
    uint32_t wait_us;
} ls_flight_record;
_Static_assert(sizeof(ls_flight_record) == 64, "one cache line");

/* What a rank does between operations. Append only. */
typedef enum ls_activity {
    LS_ACTIVITY_STARTING,
    LS_ACTIVITY_IDLE,     /* waits for orders */
    LS_ACTIVITY_DATA,     /* draws samples */
    LS_ACTIVITY_FORWARD,  /* number: plan step */
    LS_ACTIVITY_BACKWARD, /* number: plan step */
    LS_ACTIVITY_REDUCE,   /* number: bucket */
    LS_ACTIVITY_UPDATE,   /* number: bucket */
    LS_ACTIVITY_COMM,     /* inside an operation; number: seq */
    LS_ACTIVITY_OTHER,
    LS_ACTIVITY_COUNT
} ls_activity;

const char *ls_activity_name(ls_activity activity);

/* A finished stretch of activity, for traces. */
typedef struct ls_flight_span {
    uint64_t begin_ns, end_ns;
    uint32_t activity, number;
    uint64_t step;
} ls_flight_span;

typedef struct ls_flight ls_flight; /* the mapped file, as its writer or a reader sees it */

/* Creates (or empties) the file and maps it. Errors: LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_flight_create(const char *path, uint32_t rank, uint32_t size, uint64_t epoch,
                                         ls_flight **flight_out);
void ls_flight_close(ls_flight *flight); /* NULL allowed; the file stays */

/* The process's recorder that everybody below writes to; NULL (the default): nothing is kept, calls cost a branch. */
void ls_flight_install(ls_flight *flight);

/*
 * An operation begins: its record goes into the ring, and what is returned is passed to the end. The caller fills in `record` (seq,
 * fingerprint, count, begin_ns, comm_id, kind, dtype, reduction, peer); the site is interned here, by the address of its file name and its
 * line. The activity becomes LS_ACTIVITY_COMM until the end. NULL when no recorder is installed. Both calls together: <= 50 ns.
 */
ls_flight_record *ls_flight_record_begin(const ls_flight_record *record, ls_comm_site site);
/* It is left: sets last_rank, wait_us and end_ns (now). record may be NULL, then nothing happens. An operation that failed ends too. */
void ls_flight_record_end(ls_flight_record *record, uint64_t wait_ns, uint32_t last_rank);

/* This rank is now doing `activity`; ends the one before and keeps it as a span when it took 20 us or more. */
void ls_flight_activity(ls_activity activity, uint32_t number);
/* The training step and leaf that activities belong to. */
void ls_flight_position(uint64_t step, uint32_t leaf);

#endif

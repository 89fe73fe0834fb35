// SPDX-License-Identifier: Apache-2.0
/*
 * The flight recorder: what a rank did last, in a mapped file that outlives the rank and whoever started it.
 *
 * One file per rank, `flight/rank-<n>` in the run directory (on other hosts in a folder of their agent). It is a MAP_SHARED mapping of an
 * ordinary file, so it is there after kill -9 of rank and agent. Writing costs a few stores (begin and end of an operation together about
 * 20 ns when the caller gives the times, which it has read for its deadline; bench/bench_flight.c) and never blocks; readers (agent,
 * `diagnose`, `trace`) use execution/comm/flight_reader.h, which copies and sees whether it was overtaken.
 *
 *   header      who: rank, host, pid, epoch, start
 *   now         what the rank is doing: a kind, a number, since when; leaf and training step
 *   comms       the communicators it is a member of, and the last operation of each
 *   sites       interned call sites ("src/execution/parallel/reduce.c:120"), named by index
 *   records     ring of the last LS_FLIGHT_RECORDS operations, one cache line each
 *   spans       ring of the last LS_FLIGHT_SPANS stretches of activity
 *   text        the last words: an abort reason or a stack, written by the rank itself
 *
 * One writer per file: the rank (its main thread for activity, position and spans; each communicator's thread for its own operations,
 * hence the head of the records is atomic). How a reader that is not in step with the writer tells a good copy from a torn one:
 *
 *   now        `version` is odd while it is written, and another one afterwards
 *   records    begin_ns is 0 while the record is filled, and set last; `turn` tells record n from n - LS_FLIGHT_RECORDS
 *   spans      the head is raised after the span is written
 *
 * All stores are release stores (plain moves on x86), all fields are accessed through the __atomic built-ins.
 *
 * What readers make of it, and so what a writer owes them: `seq` names the same operation on all members of a communicator (send and
 * receive: on both of a pair), each rank begins a communicator's collectives in that order, and a rank inside an operation that has not
 * ended waits for the members that have not begun it; a rank that overlaps an operation with work says what it works on (activity), and
 * LS_ACTIVITY_COMM when it is held up. Work that ranks do in an order of their own is activity, not an operation.
 */
#ifndef LS_EXECUTION_COMM_FLIGHT_H
#define LS_EXECUTION_COMM_FLIGHT_H

#include "base/clock.h"
#include "base/status.h"
#include "lockstep/comm.h"

#include <stddef.h>

enum {
    LS_FLIGHT_VERSION = 1,
    LS_FLIGHT_RECORDS = 4096, /* a power of two */
    LS_FLIGHT_SITES = 256,    /* site 0 is "?" */
    LS_FLIGHT_SITE_BYTES = 64,
    LS_FLIGHT_TEXT_BYTES = 4096,
    LS_FLIGHT_SPANS = 8192, /* a power of two */
    LS_FLIGHT_COMMS = 64,   /* slot 0 stands for those that found no slot */
    LS_FLIGHT_COMM_NAME_BYTES = 32,
};
#define LS_FLIGHT_MAGIC "LSFLIGHT"

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

const char *ls_comm_kind_name(ls_comm_kind kind); /* "all_reduce", ...; "?" for a number out of range */

/* Whether all members of a communicator take part and number the operation alike. Send and receive are numbered per pair. */
static inline bool ls_comm_kind_is_collective(ls_comm_kind kind)
{
    return kind != LS_COMM_NONE && kind != LS_COMM_SEND && kind != LS_COMM_RECEIVE;
}

/* What a rank does between operations. Append only. A rank inside an operation shows in its records (end_ns 0), whatever it says here. */
typedef enum ls_activity {
    LS_ACTIVITY_STARTING,
    LS_ACTIVITY_IDLE,     /* waits for orders */
    LS_ACTIVITY_DATA,     /* draws samples */
    LS_ACTIVITY_FORWARD,  /* number: plan step */
    LS_ACTIVITY_BACKWARD, /* number: plan step */
    LS_ACTIVITY_REDUCE,   /* number: bucket */
    LS_ACTIVITY_UPDATE,   /* number: bucket */
    LS_ACTIVITY_COMM,     /* held up in an operation */
    LS_ACTIVITY_OTHER,    /* code of a program of its own, between its calls */
    LS_ACTIVITY_COUNT
} ls_activity;

const char *ls_activity_name(ls_activity activity); /* "forward", ...; "?" for a number out of range */

/* ---- the file; on disk, every change of it is a new LS_FLIGHT_VERSION ---- */

/* One operation of one rank. Times are CLOCK_MONOTONIC nanoseconds; 0: not yet. */
typedef struct ls_flight_record {
    uint64_t seq;         /* of the communicator, 1, 2, ... (send, receive: of the pair) */
    uint64_t fingerprint; /* ls_comm_fingerprint: what has to agree between ranks */
    uint64_t count;       /* elements */
    uint64_t begin_ns;    /* set last */
    uint64_t end_ns;      /* left the operation */
    uint32_t comm_id;     /* names the communicator in this run: the same on all members */
    uint32_t
        last_rank; /* who arrived last, as this rank saw it, in ranks of the communicator; UINT32_MAX: not known */
    uint16_t site; /* index in the site table */
    uint8_t kind, dtype, reduction;
    uint8_t flags; /* LS_FLIGHT_FAILED */
    uint8_t slot;  /* of the communicator in comms */
    uint8_t turn;  /* of the ring: record number / LS_FLIGHT_RECORDS, low bits */
    uint32_t peer; /* root, to or from; UINT32_MAX: none */
    uint32_t wait_us;
} ls_flight_record;
_Static_assert(sizeof(ls_flight_record) == 64, "one cache line");
enum { LS_FLIGHT_FAILED = 1 }; /* it returned an error */

/* A finished stretch of activity, for traces. Short ones of one kind that follow each other are one span, named after the last. */
typedef struct ls_flight_span {
    uint64_t begin_ns, end_ns;
    uint32_t step, leaf;
    uint32_t activity, number;
} ls_flight_span;
_Static_assert(sizeof(ls_flight_span) == 32, "on disk");

typedef struct ls_flight_now {
    uint64_t version; /* odd: being written */
    uint64_t since_ns, step;
    uint32_t leaf, activity, number;
    uint32_t reserved;
} ls_flight_now;

typedef enum ls_flight_comm_state {
    LS_FLIGHT_COMM_FREE,
    LS_FLIGHT_COMM_OPEN,
    LS_FLIGHT_COMM_CLOSED
} ls_flight_comm_state;

/* A communicator this rank is a member of. entered, left: seq of the last collective that was begun, and ended. */
typedef struct ls_flight_comm {
    uint32_t state; /* an ls_flight_comm_state */
    uint32_t id, rank, size;
    uint64_t entered, left;
    char name[LS_FLIGHT_COMM_NAME_BYTES];
} ls_flight_comm;
_Static_assert(sizeof(ls_flight_comm) == 64, "on disk");

/* Set by ls_flight_close: ENDED_BADLY when there are last words. */
typedef enum ls_flight_outcome {
    LS_FLIGHT_RUNNING,
    LS_FLIGHT_FINISHED,
    LS_FLIGHT_ENDED_BADLY
} ls_flight_outcome;

typedef struct ls_flight_header {
    char magic[8];
    uint32_t version;
    uint32_t file_bytes;
    uint32_t rank, size; /* of the run */
    uint64_t epoch;
    uint64_t start_ns; /* CLOCK_MONOTONIC, of creation */
    double start_wall_s;
    uint64_t pid_start; /* field 22 of /proc/PID/stat: tells the process from a later one with its number */
    int32_t pid;
    uint32_t outcome;        /* an ls_flight_outcome */
    int64_t clock_offset_ns; /* added to this host's CLOCK_MONOTONIC: the coordinator's; 0 on its own host */
    uint32_t clock_error_ns; /* half of the round trip the offset was measured with */
    int32_t exit_status;     /* of waitpid, by whoever started the rank; valid with has_exit_status */
    uint32_t has_exit_status;
    uint32_t reserved;
    char host[64];
    char boot_id[40];
} ls_flight_header;

typedef struct ls_flight_file {
    ls_flight_header header;
    _Alignas(64) ls_flight_now now;
    _Alignas(64) uint64_t record_head; /* records begun */
    uint64_t span_head;                /* spans finished */
    uint32_t site_count, text_bytes;
    _Alignas(64) ls_flight_comm comms[LS_FLIGHT_COMMS];
    char text[LS_FLIGHT_TEXT_BYTES];
    char sites[LS_FLIGHT_SITES][LS_FLIGHT_SITE_BYTES];
    _Alignas(4096) ls_flight_record records[LS_FLIGHT_RECORDS];
    ls_flight_span spans[LS_FLIGHT_SPANS];
} ls_flight_file;
_Static_assert(sizeof(ls_flight_file) % 4096 == 0 && sizeof(ls_flight_file) < 1 << 20, "on disk");

/* ---- the recorder of this process ---- */

typedef struct ls_flight ls_flight; /* the mapped file, as its writer sees it */

/* Creates (or empties) the file and maps it. Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_NOT_FOUND (no such folder). */
LS_MUST_CHECK ls_status ls_flight_create(const char *path, uint32_t rank, uint32_t size, uint64_t epoch,
                                         ls_flight **flight_out);
/* Says that the rank ended, badly when it left last words, and unmaps; uninstalls it first where it is installed. NULL allowed; the file
 * stays. */
void ls_flight_close(ls_flight *flight);

/* The process's recorder that everybody below writes to; NULL (the default): nothing is kept, calls cost a branch. Before threads start. */
void ls_flight_install(ls_flight *flight);
/* The one installed, or NULL. */
ls_flight *ls_flight_installed(void);

/* The difference to the coordinator's clock, from the hello of this host's agent; see ls_flight_header. */
void ls_flight_set_clock(int64_t offset_ns, uint32_t error_ns);

/* The last words: an error text or a stack. Cut at LS_FLIGHT_TEXT_BYTES - 1; a second call replaces the first. */
void ls_flight_last_words(const char *text);

/* Called by whoever started the rank, when it has ended: notes its waitpid status in the file. A file that is not a flight file is left
 * alone. */
void ls_flight_note_exit(const char *path, int wait_status);

/* ---- activity: main thread ---- */

/* This rank is now doing `activity`; ends the one before and keeps it as a span when it took 20 us or more. */
void ls_flight_activity(ls_activity activity, uint32_t number);
/* The training step and leaf that activities belong to. */
void ls_flight_position(uint64_t step, uint32_t leaf);

/* ---- operations: the thread that calls them ---- */

/* The index of a call site, the same for the same place; about 2 ns once it is known, 0 when the table is full or nothing is installed.
 * `file` is a string that stays, as __FILE__; with line 0 any name ("the end of the step"). */
uint16_t ls_flight_site(const char *file, uint32_t line);

/* The end of a source path that says enough: from the folder src/, tests/, examples/ or bench/ on, or the last 55 characters. */
const char *ls_site_path(const char *file);

/* A communicator begins to exist for this rank; returns its slot for ls_flight_call, 0 when there is none left or nothing is installed.
 * Not more than one thread at a time. */
uint8_t ls_flight_join(uint32_t comm_id, uint32_t rank, uint32_t size, const char *name);
void ls_flight_leave(uint8_t slot); /* 0 allowed */

typedef struct ls_flight_call {
    uint64_t seq, fingerprint, count;
    uint64_t begin_ns; /* 0: now */
    uint32_t comm_id, peer;
    uint16_t site; /* ls_flight_site */
    uint8_t kind, dtype, reduction;
    uint8_t slot; /* ls_flight_join */
} ls_flight_call;

extern ls_flight_file *ls_flight_mapped; /* of the installed recorder; for the two functions below */

#define LS_FLIGHT_PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)
#define LS_FLIGHT_GET(field)        __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* Before data moves. NULL when nothing is installed. The record is this call's until LS_FLIGHT_RECORDS later ones have begun. */
static inline ls_flight_record *ls_flight_begin(const ls_flight_call *call)
{
    ls_flight_file *file = ls_flight_mapped;
    if (!file) {
        return NULL;
    }
    const uint64_t number = __atomic_fetch_add(&file->record_head, 1, __ATOMIC_RELAXED);
    ls_flight_record *record = &file->records[number % LS_FLIGHT_RECORDS];
    LS_FLIGHT_PUT(record->begin_ns, 0);
    LS_FLIGHT_PUT(record->seq, call->seq);
    LS_FLIGHT_PUT(record->fingerprint, call->fingerprint);
    LS_FLIGHT_PUT(record->count, call->count);
    LS_FLIGHT_PUT(record->end_ns, 0);
    LS_FLIGHT_PUT(record->comm_id, call->comm_id);
    LS_FLIGHT_PUT(record->last_rank, UINT32_MAX);
    LS_FLIGHT_PUT(record->site, call->site);
    LS_FLIGHT_PUT(record->kind, call->kind);
    LS_FLIGHT_PUT(record->dtype, call->dtype);
    LS_FLIGHT_PUT(record->reduction, call->reduction);
    LS_FLIGHT_PUT(record->flags, 0);
    LS_FLIGHT_PUT(record->slot, call->slot);
    LS_FLIGHT_PUT(record->turn, (uint8_t)(number / LS_FLIGHT_RECORDS));
    LS_FLIGHT_PUT(record->peer, call->peer);
    LS_FLIGHT_PUT(record->wait_us, 0);
    LS_FLIGHT_PUT(record->begin_ns, call->begin_ns ? call->begin_ns : ls_clock_monotonic_ns());
    if (ls_comm_kind_is_collective((ls_comm_kind)call->kind)) {
        LS_FLIGHT_PUT(file->comms[call->slot].entered, call->seq);
    }
    return record;
}

/* After it, also when it failed. end_ns: 0: now. last_rank: in ranks of the communicator, UINT32_MAX: not known. */
static inline void ls_flight_end(ls_flight_record *record, uint64_t end_ns, uint32_t last_rank,
                                 uint64_t wait_ns, ls_status status)
{
    ls_flight_file *file = ls_flight_mapped;
    if (!record || !file) {
        return;
    }
    if (ls_comm_kind_is_collective((ls_comm_kind)record->kind) && status == LS_OK) {
        LS_FLIGHT_PUT(file->comms[record->slot].left, record->seq);
    }
    LS_FLIGHT_PUT(record->last_rank, last_rank);
    LS_FLIGHT_PUT(record->wait_us, wait_ns / 1000 < UINT32_MAX ? (uint32_t)(wait_ns / 1000) : UINT32_MAX);
    LS_FLIGHT_PUT(record->flags, status == LS_OK ? 0 : LS_FLIGHT_FAILED);
    LS_FLIGHT_PUT(record->end_ns, end_ns ? end_ns : ls_clock_monotonic_ns());
}

#endif

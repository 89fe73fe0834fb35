// SPDX-License-Identifier: Apache-2.0
/*
 * The flight recorder: the last actions of a rank, in a mapped file that survives the rank and the
 * process that started it.
 *
 * Each rank has one file, `flight/rank-<n>` in the run directory (on other hosts, in a folder of
 * their agent). It is a MAP_SHARED mapping of an ordinary file, so it survives kill -9 of rank and
 * agent. Writing takes a few stores and never blocks: begin and end of an operation together cost
 * about 20 ns if the caller passes the times, which it has read anyway for its deadline
 * (bench/bench_flight.c). Readers (agent, `diagnose`, `trace`) use comm/flight/flight_reader.h,
 * which makes copies and detects when the writer has overtaken it.
 *
 *   header      rank, host, pid, epoch, start
 *   now         the current activity of the rank and its start; leaf and training step
 *   comms       the communicators of which it is a member, with the last operation of each
 *   sites       call sites ("src/execution/parallel/reduce.c:120"), to which records refer by index
 *   records     ring of the last LS_FLIGHT_RECORDS operations, one cache line each
 *   spans       ring of the last LS_FLIGHT_SPANS activities
 *   text        the last words: an abort reason or a stack, written by the rank itself
 *
 * Each file has one writer, the rank: its main thread writes activity, position and spans, and the
 * thread of each communicator its operations (hence the head of the records is atomic). A reader
 * detects torn copies as follows:
 *
 *   now        `version` is odd during a change and has a new value afterwards
 *   records    begin_ns is 0 while the record is filled in, and is set last; `turn` distinguishes
 *              record n from record n - LS_FLIGHT_RECORDS
 *   spans      the head is increased after the span has been written
 *
 * All stores are release stores (plain moves on x86), and all fields are accessed through the
 * __atomic built-ins.
 *
 * Readers rely on this, so writers must guarantee it: `seq` names the same operation on all members
 * of a communicator (of a send or receive: on both ranks). Each rank begins the collectives of a
 * communicator in the order of `seq`. A rank inside an operation that has not ended waits for the
 * members that have not begun it. A rank that overlaps an operation with work announces the work as
 * its activity, and LS_ACTIVITY_COMM while it is held up. Work that ranks do in different orders is
 * activity, not an operation.
 */
#ifndef LS_COMM_FLIGHT_FLIGHT_H
#define LS_COMM_FLIGHT_FLIGHT_H

#include "base/clock.h"
#include "base/status.h"
#include "lockstep/comm.h"

#include <stdatomic.h>
#include <stddef.h>

enum {
    LS_FLIGHT_VERSION = 1,
    /* A power of two. */
    LS_FLIGHT_RECORDS = 4096,
    /* Site 0 is "?". */
    LS_FLIGHT_SITES = 256,
    LS_FLIGHT_SITE_BYTES = 64,
    LS_FLIGHT_TEXT_BYTES = 4096,
    /* A power of two. */
    LS_FLIGHT_SPANS = 8192,
    /* Slot 0 stands for all communicators that found no free slot. */
    LS_FLIGHT_COMMS = 64,
    LS_FLIGHT_COMM_NAME_BYTES = 32,
};
#define LS_FLIGHT_MAGIC "LSFLIGHT"

/* Kinds of operations. Stored in files and sent over networks: append only. */
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
    /* execution/parallel: the leaves of a bucket are added up by its owners. */
    LS_COMM_TREE_REDUCE,
    /* execution/parallel: norm and agreement before an update. */
    LS_COMM_STEP,
    LS_COMM_KIND_COUNT
} ls_comm_kind;

/* "all_reduce", ...; "?" for a number out of range. */
const char *ls_comm_kind_name(ls_comm_kind kind);

/* Whether all members of a communicator take part and give the operation the same number. Sends and
 * receives are numbered per pair. */
static inline bool ls_comm_kind_is_collective(ls_comm_kind kind)
{
    return kind != LS_COMM_NONE && kind != LS_COMM_SEND && kind != LS_COMM_RECEIVE;
}

/* What a rank does between operations. Append only. Whether a rank is inside an operation is seen
 * from its records (end_ns 0), not from this. */
typedef enum ls_activity {
    LS_ACTIVITY_STARTING,
    /* Waiting for orders. */
    LS_ACTIVITY_IDLE,
    /* Drawing samples. */
    LS_ACTIVITY_DATA,
    /* number: the step of the plan. */
    LS_ACTIVITY_FORWARD,
    LS_ACTIVITY_BACKWARD,
    /* number: the bucket. */
    LS_ACTIVITY_REDUCE,
    LS_ACTIVITY_UPDATE,
    /* Held up in an operation. */
    LS_ACTIVITY_COMM,
    /* Code of a program that uses the collectives, between its calls. */
    LS_ACTIVITY_OTHER,
    LS_ACTIVITY_COUNT
} ls_activity;

/* "forward", ...; "?" for a number out of range. */
const char *ls_activity_name(ls_activity activity);

/* ---- the file: every change of its layout needs a new LS_FLIGHT_VERSION ---- */

/* One operation of one rank. Times are nanoseconds of CLOCK_MONOTONIC; 0: not yet. */
typedef struct ls_flight_record {
    /* Number in the communicator: 1, 2, ...; of a send or receive, in the pair. */
    uint64_t seq;
    /* ls_comm_fingerprint: what ranks must agree on. */
    uint64_t fingerprint;
    /* Elements. */
    uint64_t count;
    /* Set last. */
    uint64_t begin_ns;
    uint64_t end_ns;
    /* Identifies the communicator in this run; the same on all members. */
    uint32_t comm_id;
    /* The last rank to arrive, as seen by this rank (a rank of the communicator); UINT32_MAX: not
     * known. */
    uint32_t last_rank;
    /* Index in the table of sites. */
    uint16_t site;
    uint8_t kind, dtype, reduction;
    /* LS_FLIGHT_FAILED. */
    uint8_t flags;
    /* The communicator's slot in `comms`. */
    uint8_t slot;
    /* Turn of the ring: the low bits of (number of the record) / LS_FLIGHT_RECORDS. */
    uint8_t turn;
    /* Root, destination or source; UINT32_MAX: none. */
    uint32_t peer;
    uint32_t wait_us;
} ls_flight_record;
_Static_assert(sizeof(ls_flight_record) == 64, "one cache line");
/* The operation returned an error. */
enum { LS_FLIGHT_FAILED = 1 };

/* A finished activity, for traces. Consecutive short activities of one kind form one span with the
 * number of the last. */
typedef struct ls_flight_span {
    uint64_t begin_ns, end_ns;
    uint32_t step, leaf;
    uint32_t activity, number;
} ls_flight_span;
_Static_assert(sizeof(ls_flight_span) == 32, "on disk");

typedef struct ls_flight_now {
    /* Odd during a change. */
    uint64_t version;
    uint64_t since_ns, step;
    uint32_t leaf, activity, number;
    uint32_t reserved;
} ls_flight_now;

typedef enum ls_flight_comm_state {
    LS_FLIGHT_COMM_FREE,
    LS_FLIGHT_COMM_OPEN,
    LS_FLIGHT_COMM_CLOSED
} ls_flight_comm_state;

/* A communicator of which this rank is a member. entered, left: `seq` of the last collective that
 * this rank has begun and of the last that it has ended. */
typedef struct ls_flight_comm {
    /* An ls_flight_comm_state. */
    uint32_t state;
    uint32_t id, rank, size;
    uint64_t entered, left;
    char name[LS_FLIGHT_COMM_NAME_BYTES];
} ls_flight_comm;
_Static_assert(sizeof(ls_flight_comm) == 64, "on disk");

/* Set by ls_flight_close: ENDED_BADLY if there are last words. */
typedef enum ls_flight_outcome {
    LS_FLIGHT_RUNNING,
    LS_FLIGHT_FINISHED,
    LS_FLIGHT_ENDED_BADLY
} ls_flight_outcome;

typedef struct ls_flight_header {
    char magic[8];
    uint32_t version;
    uint32_t file_bytes;
    /* In the run. */
    uint32_t rank, size;
    uint64_t epoch;
    /* When the file was created: CLOCK_MONOTONIC and wall-clock time. */
    uint64_t start_ns;
    double start_wall_s;
    /* Field 22 of /proc/PID/stat: distinguishes the process from a later one with the same pid. */
    uint64_t pid_start;
    int32_t pid;
    /* An ls_flight_outcome. */
    uint32_t outcome;
    /* This host's CLOCK_MONOTONIC plus the offset is the coordinator's (ls_flight_clock). 0: the
     * same clock, or not measured. */
    int64_t clock_offset_ns;
    uint32_t padding;
    /* As from waitpid, written by the process that started the rank; valid if has_exit_status. */
    int32_t exit_status;
    uint32_t has_exit_status;
    uint32_t reserved;
    char host[64];
    char boot_id[40];
} ls_flight_header;

typedef struct ls_flight_file {
    ls_flight_header header;
    _Alignas(64) ls_flight_now now;
    /* Number of records begun, and of spans finished. */
    _Alignas(64) uint64_t record_head;
    uint64_t span_head;
    uint32_t site_count, text_bytes;
    _Alignas(64) ls_flight_comm comms[LS_FLIGHT_COMMS];
    char text[LS_FLIGHT_TEXT_BYTES];
    char sites[LS_FLIGHT_SITES][LS_FLIGHT_SITE_BYTES];
    _Alignas(4096) ls_flight_record records[LS_FLIGHT_RECORDS];
    ls_flight_span spans[LS_FLIGHT_SPANS];
} ls_flight_file;
_Static_assert(sizeof(ls_flight_file) % 4096 == 0 && sizeof(ls_flight_file) < 1 << 20, "on disk");

/* ---- the recorder of this process ---- */

/* The mapped file, as its writer sees it. */
typedef struct ls_flight ls_flight;

/* Creates or replaces the file and maps it. Close with ls_flight_close. Errors: LS_ERR_DISK,
 * LS_ERR_IO, LS_ERR_NOT_FOUND (no such folder). */
LS_MUST_CHECK ls_status ls_flight_create(const char *path, uint32_t rank, uint32_t size, uint64_t epoch,
                                         ls_flight **flight_out);
/* Records the outcome (bad if there are last words), uninstalls the recorder if it is installed,
 * and unmaps the file, which stays on disk. NULL is allowed. */
void ls_flight_close(ls_flight *flight);

/* Makes this the recorder of the process, to which all functions below write. NULL (the default):
 * nothing is recorded, and each call costs a branch. Call it before threads start. */
void ls_flight_install(ls_flight *flight);
/* The installed recorder, or NULL. */
ls_flight *ls_flight_installed(void);

/* Records the last words: an error text or a stack, cut after LS_FLIGHT_TEXT_BYTES - 1 bytes. A
 * second call replaces the first. */
void ls_flight_last_words(const char *text);

/* Writes the waitpid status of a rank into its file. Called by the process that started the rank,
 * after the rank has ended. Files that are not flight files are left unchanged. */
void ls_flight_note_exit(const char *path, int wait_status);

/* ---- activity: main thread ---- */

/* From now on each activity stores its begin in *alive_ns, too, with or without a recorder: a sign
 * of life that another process sees without reading the file. NULL (the default): nowhere. */
void ls_flight_pulse(_Atomic uint64_t *alive_ns);
/* Begins an activity. The previous one ends, and is kept as a span if it took at least 20 us. */
void ls_flight_activity(ls_activity activity, uint32_t number);
/* Sets the training step and leaf to which activities belong. */
void ls_flight_position(uint64_t step, uint32_t leaf);

/* ---- operations: the thread that calls them ---- */

/* The index of a call site; takes about 2 ns if the site is known. 0 if the table is full or no
 * recorder is installed. `file` must stay valid, as __FILE__ does; with line 0 it may be any name
 * ("the end of the step"). */
uint16_t ls_flight_site(const char *file, uint32_t line);

/* The significant end of a source path: from the folder src/, tests/, examples/ or bench/ on, but
 * at most 55 characters. */
const char *ls_site_path(const char *file);

/* Registers a communicator of this rank; returns its slot for ls_flight_call, or 0 if no slot is
 * free or no recorder is installed. For one thread at a time. */
uint8_t ls_flight_join(uint32_t comm_id, uint32_t rank, uint32_t size, const char *name);
/* 0 is allowed. */
void ls_flight_leave(uint8_t slot);

typedef struct ls_flight_call {
    uint64_t seq, fingerprint, count;
    /* 0: now. */
    uint64_t begin_ns;
    uint32_t comm_id, peer;
    /* From ls_flight_site. */
    uint16_t site;
    uint8_t kind, dtype, reduction;
    /* From ls_flight_join. */
    uint8_t slot;
} ls_flight_call;

/* The file of the installed recorder, for the two functions below. */
extern ls_flight_file *ls_flight_mapped;

#define LS_FLIGHT_PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)
#define LS_FLIGHT_GET(field)        __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* Notes how far the coordinator's clock is ahead of this host's. */
static inline void ls_flight_clock(int64_t offset_ns)
{
    if (ls_flight_mapped) {
        LS_FLIGHT_PUT(ls_flight_mapped->header.clock_offset_ns, offset_ns);
    }
}

/* Records the begin of an operation, before data moves. Returns NULL if no recorder is installed.
 * The record belongs to this call until LS_FLIGHT_RECORDS later operations have begun. */
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

/* Records the end of an operation, also of a failed one. end_ns 0: now. last_rank: a rank of the
 * communicator, or UINT32_MAX if it is not known. */
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

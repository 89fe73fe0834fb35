// SPDX-License-Identifier: Apache-2.0
/*
 * The coordinator's log: RUN/coordinator.log, append-only, what must be known to go on in the place of a coordinator that is gone.
 *
 *   record    head (40 bytes) | payload                      little-endian, CRC-32C over both
 *   run       a process begins to coordinate: identity of the run, its process number and start time
 *   epoch     an epoch of the membership and who may act in it on this host: durable before its team is published
 *   cuts      several hosts: the cut of that epoch, the one that counts until its hosts have what they keep, and whose ranks are where
 *   steps     so many steps are finished; written in groups, nobody waits for them
 *   end       the run came to its end, or was stopped, in order
 *
 * The reader takes the longest good prefix and says what is wrong with the rest; whoever opens the log cuts that off. Opening writes a new
 * file and renames it: what is old is kept but for steps that later ones contain. A write that fails is answered the same way, once: with a
 * new file of all records that count; if that fails too, the log is lost and says so.
 *
 * A state machine over base/env (DESIGN I6). One sync is in flight at most: records that come meanwhile go out with the next.
 */
#ifndef LS_EXECUTION_ELASTIC_COORDINATOR_LOG_H
#define LS_EXECUTION_ELASTIC_COORDINATOR_LOG_H

#include "base/env.h"
#include "base/hash.h"
#include "execution/elastic/reform.h"

enum {
    LS_LOG_MAGIC = 0x676f6c6c, /* "llog" */
    LS_LOG_PAYLOAD_BYTES_MAX = 64 << 10,
    LS_LOG_MEMBERS_MAX = 256,
    LS_LOG_IDENTITY_BYTES = LS_SHA256_HEX_BYTES,
};

typedef enum ls_log_kind { LS_LOG_RUN = 1, LS_LOG_EPOCH, LS_LOG_STEPS, LS_LOG_END, LS_LOG_CUTS } ls_log_kind;

/* On disk. */
typedef struct ls_log_head {
    uint32_t magic;
    uint32_t kind;  /* an ls_log_kind */
    uint32_t bytes; /* of the payload */
    uint32_t crc;   /* over the head, with 0 here, and the payload */
    uint64_t epoch;
    uint64_t step; /* finished steps */
    uint64_t wall_ms;
} ls_log_head;
_Static_assert(sizeof(ls_log_head) == 40, "on disk");

typedef struct ls_log_member {
    uint32_t rank;
    int32_t pid;
    uint64_t
        start_time; /* of the process, as /proc/PID/stat has it: a number that is used again is another process */
} ls_log_member;
_Static_assert(sizeof(ls_log_member) == 16, "on disk");

typedef struct ls_log_run {
    char identity[80]; /* of the run file */
    int32_t pid;
    uint32_t reserved;
    uint64_t start_time;
} ls_log_run;
_Static_assert(sizeof(ls_log_run) == 96, "on disk");

/* The ranks of a host, by its place. */
typedef struct ls_log_seat {
    uint16_t first_rank, count;
} ls_log_seat;

typedef struct ls_log_cuts {
    ls_cut newest, held;
    ls_log_seat seats[LS_REFORM_HOSTS_MAX];
} ls_log_cuts;
_Static_assert(sizeof(ls_log_cuts) == 2 * (24 + 8 * LS_REFORM_HOSTS_MAX) + 4 * LS_REFORM_HOSTS_MAX,
               "on disk");

/* What a log says. */
typedef struct ls_log_state {
    uint64_t good_bytes; /* the longest good prefix */
    uint32_t records;    /* in it */
    const char *wrong;   /* with what comes behind it; NULL: nothing does */
    bool ended;          /* the last process to coordinate ended in order */
    ls_log_run run;      /* the last one; pid 0: none */
    uint64_t epoch;      /* the highest */
    uint64_t step;       /* most finished steps */
    uint32_t member_count;
    ls_log_member members[LS_LOG_MEMBERS_MAX]; /* of that epoch */
    ls_log_cuts cuts;                          /* the last; newest.parts 0: none */
} ls_log_state;

/* Reads anything. */
void ls_log_read(const void *data, size_t bytes, ls_log_state *state_out);

typedef struct ls_coordinator_log ls_coordinator_log;

typedef struct ls_coordinator_log_options {
    ls_env *env;
    const char *folder; /* the run directory; copied */
    ls_log_run run;
    void *context;
    /* Once: it is open, and its record of this process is durable. `before`: what was in it. */
    void (*opened)(void *context, const ls_log_state *before);
    /* Once: nothing can be written any more. error: minus an errno value. Records that were not durable are not. */
    void (*failed)(void *context, int error);
} ls_coordinator_log_options;

LS_MUST_CHECK ls_status ls_coordinator_log_open(const ls_coordinator_log_options *options,
                                                ls_coordinator_log **log_out);
/* Frees it, once its env is gone: disk calls may be under way before. NULL allowed. */
void ls_coordinator_log_close(ls_coordinator_log *log);

/* Appends. durable (NULL allowed): when it is; not called after `failed`. */
void ls_coordinator_log_epoch(ls_coordinator_log *log, uint64_t epoch, uint64_t step,
                              const ls_log_member *members, uint32_t count, void (*durable)(void *context),
                              void *context);
/* Goes out with the epoch that is said next, which is that of cuts->newest. */
void ls_coordinator_log_cuts(ls_coordinator_log *log, const ls_log_cuts *cuts);
/* The newest number goes out with the next sync; between two that are for steps alone there are at least LS_LOG_STEPS_NS. */
#define LS_LOG_STEPS_NS UINT64_C(200000000)
void ls_coordinator_log_steps(ls_coordinator_log *log, uint64_t step);
void ls_coordinator_log_end(ls_coordinator_log *log, uint64_t step, void (*durable)(void *context),
                            void *context);

/* Bytes of the log so far, for tests. */
uint64_t ls_coordinator_log_bytes(const ls_coordinator_log *log);

#endif

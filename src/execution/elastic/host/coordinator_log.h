// SPDX-License-Identifier: Apache-2.0
/*
 * The coordinator's log: RUN/coordinator.log, append-only. It has what a successor must know to
 * continue a run whose coordinator is gone.
 *
 *   record    head (40 bytes) | payload            little-endian; CRC-32C over both
 *   run       a process begins to coordinate: the run's identity, its process number and start time
 *   epoch     an epoch of the membership, and which ranks of this host may act in it; durable
 *             before its team is published
 *   cuts      several hosts: the cut of that epoch, the one that counts until its hosts have
 *             what they keep, and which ranks each host has
 *   steps     this many steps are finished; written in groups, no one waits for them
 *   end       the run finished, or was stopped, in order
 *
 * The reader takes the longest good prefix and says what is wrong with the rest; opening the log
 * cuts that off. Opening writes a new file and renames it, with all old records except steps that
 * later ones include. A failed write is answered the same way, once: by a new file with all records
 * that count. If that fails, too, the log is lost and reports it.
 *
 * A state machine over env (invariant I6). At most one sync is under way; records that are added
 * meanwhile go out with the next.
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_COORDINATOR_LOG_H
#define LS_EXECUTION_ELASTIC_HOST_COORDINATOR_LOG_H

#include "base/hash.h"
#include "env/env.h"
#include "execution/team/reform.h"

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
    uint32_t crc;   /* over the head, with 0 in this field, and the payload */
    uint64_t epoch;
    uint64_t step; /* finished steps */
    uint64_t wall_ms;
} ls_log_head;
_Static_assert(sizeof(ls_log_head) == 40, "on disk");

typedef struct ls_log_member {
    uint32_t rank;
    int32_t pid;
    /* From /proc/PID/stat: tells the process from a later one with the same number. */
    uint64_t start_time;
} ls_log_member;
_Static_assert(sizeof(ls_log_member) == 16, "on disk");

typedef struct ls_log_run {
    char identity[80]; /* identity of the run file */
    int32_t pid;
    uint32_t reserved;
    uint64_t start_time;
} ls_log_run;
_Static_assert(sizeof(ls_log_run) == 96, "on disk");

/* The ranks of one host. */
typedef struct ls_log_host {
    uint16_t first_rank, count;
} ls_log_host;

typedef struct ls_log_cuts {
    ls_cut newest, held;
    ls_log_host hosts[LS_REFORM_HOSTS_MAX];
} ls_log_cuts;
_Static_assert(sizeof(ls_log_cuts) == 2 * (24 + 8 * LS_REFORM_HOSTS_MAX) + 4 * LS_REFORM_HOSTS_MAX,
               "on disk");

/* What a log contains. */
typedef struct ls_log_state {
    uint64_t good_bytes; /* length of the longest good prefix */
    uint32_t records;    /* number of records in it */
    const char *wrong;   /* what is wrong with the bytes after it; NULL: there are none */
    bool ended;          /* the last process to coordinate ended in order */
    ls_log_run run;      /* the last one; pid 0: there is none */
    uint64_t epoch;      /* the highest */
    uint64_t step;       /* most finished steps */
    uint32_t member_count;
    ls_log_member members[LS_LOG_MEMBERS_MAX]; /* of the highest epoch */
    ls_log_cuts cuts;                          /* the last ones; newest.parts 0: there are none */
} ls_log_state;

/* Accepts any bytes. */
void ls_log_read(const void *data, size_t bytes, ls_log_state *state_out);

typedef struct ls_coordinator_log ls_coordinator_log;

typedef struct ls_coordinator_log_options {
    ls_env *env;
    const char *folder; /* the run directory; copied */
    ls_log_run run;
    void *context;
    /* Called once: the log is open, and its record of this process is durable. `before`: what
     * was in it. */
    void (*opened)(void *context, const ls_log_state *before);
    /* Called once: nothing can be written any more. error: a negative errno value. Records that
     * were not durable yet never will be. */
    void (*failed)(void *context, int error);
} ls_coordinator_log_options;

LS_MUST_CHECK ls_status ls_coordinator_log_open(const ls_coordinator_log_options *options,
                                                ls_coordinator_log **log_out);
/* Frees the log; only after its env is gone, because disk calls may be under way until then.
 * NULL allowed. */
void ls_coordinator_log_close(ls_coordinator_log *log);

/* An epoch to be written. */
typedef struct ls_log_epoch {
    uint64_t epoch, step;         /* step: finished steps */
    const ls_log_member *members; /* who may act in it on this host; borrowed for the call */
    uint32_t count;
} ls_log_epoch;

/* Appends. `durable` (NULL allowed) is called once the record is durable, never after `failed`. */
void ls_coordinator_log_epoch(ls_coordinator_log *log, const ls_log_epoch *epoch,
                              void (*durable)(void *context), void *context);
/* Goes out with the next epoch, which must be that of cuts->newest. */
void ls_coordinator_log_cuts(ls_coordinator_log *log, const ls_log_cuts *cuts);
/* The newest number goes out with the next sync. Syncs for steps alone are at least
 * LS_LOG_STEPS_NS apart. */
#define LS_LOG_STEPS_NS UINT64_C(200000000)
void ls_coordinator_log_steps(ls_coordinator_log *log, uint64_t step);
void ls_coordinator_log_end(ls_coordinator_log *log, uint64_t step, void (*durable)(void *context),
                            void *context);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The messages between the coordinator and the agents of other hosts. They travel as messages of
 * the store's "other" kind (comm/store/store.h).
 *
 *   agent                                 coordinator
 *     HELLO      host, program       ──▶
 *                                    ◀──  JOIN    its ranks and everything its segment is made from
 *                                                 (not sent to an agent that returns)
 *     READY      a rank is ready     ──▶
 *                                    ◀──  ORDERS  all of them, whenever one changes (I5: by level)
 *     LOST       a rank ended        ──▶
 *     ABORT      a rank's reason     ──▶
 *     ENDED      no process is left  ──▶
 *     SNAPSHOTS  what ranks do       ──▶          whenever that changes
 *                                    ◀──  ASK     for the stack of a rank that is late
 *     STACK      or why there is none──▶
 *                                    ◀──  KILL    a rank that hangs; LOST follows
 *     STATUS     where the host is   ──▶          on every change, and often as a sign of life
 *
 * A change of members (team/reform.h decides, elastic/hosts/host_side.h carries out):
 *
 *                                    ◀──  FENCE   park your ranks, for this epoch
 *     STATUS     parked, how far     ──▶
 *                                    ◀──  FINISH  only when some hosts agreed on the step that was
 *     STATUS     parked again        ──▶          interrupted: all finish it
 *                                    ◀──  FORM    a new cut: who has which parts, and where the
 *     STATUS     the cut is held     ──▶          state is to be fetched from
 *
 * A trainer that takes over (job.lease): an agent whose link ends connects again until the lease is
 * over, and sends HELLO with its host number, READY for each rank that lives, and STATUS. The new
 * coordinator has the cuts from its log. When all hosts of the newest cut have reported, or it has
 * waited long enough, it sends a hard FENCE above every epoch that was reported; a change of
 * members as above follows. If the ranks of the trainer's host died with the trainer, its memory is
 * lost: the host then takes part in the next cut like one that joins, and FENCE asks for the
 * RESULTs that the old trainer had not written down.
 *
 * The coordinator repeats ORDERS as its own sign of life: an agent that hears nothing for the lease
 * fences its ranks. A FENCE, FINISH or FORM with an older epoch than one received before is stale
 * and ignored.
 *
 * HELLO is checked for the version and the hash of the program before anything else is exchanged;
 * from then on both sides are the same binary and the structs below need no conversion. Their sizes
 * are checked all the same.
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_CLUSTER_WIRE_H
#define LS_EXECUTION_ELASTIC_HOSTS_CLUSTER_WIRE_H

#include "execution/elastic/host/coordinator.h"
#include "execution/team/reform.h"

enum {
    LS_CLUSTER_VERSION = 6,
    LS_CLUSTER_NAME_BYTES = 256,
    LS_CLUSTER_PATH_BYTES = 1024,
    LS_CLUSTER_TEXT_BYTES_MAX = 512 << 10, /* of a run file */
    LS_CLUSTER_STACK_BYTES = 4096,
};

typedef enum ls_cluster_kind {
    LS_CLUSTER_HELLO = 1,
    LS_CLUSTER_JOIN,
    LS_CLUSTER_ORDERS,
    LS_CLUSTER_READY,
    LS_CLUSTER_LOST,
    LS_CLUSTER_ABORT,
    LS_CLUSTER_ENDED,
    LS_CLUSTER_SNAPSHOTS,
    LS_CLUSTER_ASK,
    LS_CLUSTER_STACK,
    LS_CLUSTER_STATUS,
    LS_CLUSTER_FENCE,
    LS_CLUSTER_FINISH,
    LS_CLUSTER_FORM,
    LS_CLUSTER_KILL,
    LS_CLUSTER_RESULT,
} ls_cluster_kind;

typedef struct ls_cluster_hello {
    uint32_t kind, version;
    uint64_t program;                 /* hash of the binary */
    char lockstep[32];                /* version of lockstep */
    char host[LS_HOST_NAME_BYTES];    /* host name of the machine */
    char name[LS_CLUSTER_NAME_BYTES]; /* its name in the file of hosts; "": none */
    uint32_t slots;                   /* ranks it can run; 0: as many as are left */
    uint32_t is_spare;                /* runs no ranks, only waits for the end of the run */
    int32_t pid;
    /* 0: a new agent. Else its number in the table of hosts: it returns and has ranks already. */
    uint32_t host_index;
    uint32_t first_rank, local_ranks; /* when it returns: its ranks */
    uint64_t run;                     /* when it returns: `run` of its JOIN */
} ls_cluster_hello;

/* Followed by the run file's text. */
typedef struct ls_cluster_join {
    uint32_t kind, leaves, crew, group, workers;
    uint32_t ranks, first_rank, local_ranks, threads;
    uint64_t epoch, step, float_count, frozen_floats, exchange_bytes;
    /* of the trainer, absolute */
    char run_dir[LS_CLUSTER_PATH_BYTES], folder[LS_CLUSTER_PATH_BYTES];
    /* host_index: number in the table of hosts */
    uint32_t text_bytes, host_index;
    uint64_t lease_ns;
    /* The others compute already: its ranks wait behind a fence for a cut that includes them. */
    uint32_t is_late;
    /* how many lost ranks the agent may replace */
    uint32_t replacements;
    uint64_t wait_ns; /* how long the agent waits for another trainer once this one is gone */
    uint64_t run;     /* hash of the run directory and the run file */
} ls_cluster_join;

typedef struct ls_cluster_orders {
    uint32_t kind, stop, quit, gather;
    uint64_t epoch, until;
    uint32_t abort;
    int32_t abort_rank;
    char abort_text[LS_RANK_TEXT_BYTES];
    uint64_t sent_ns; /* by the coordinator's clock */
} ls_cluster_orders;

typedef struct ls_cluster_ready {
    uint32_t kind;
    uint32_t has_part; /* in the team its host works in */
    ls_preflight_member hello;
} ls_cluster_ready;

typedef struct ls_cluster_lost {
    uint32_t kind, reserved;
    ls_rank_end end;
} ls_cluster_lost;

typedef struct ls_cluster_abort {
    uint32_t kind, status;
    int32_t rank;
    char text[LS_RANK_TEXT_BYTES];
} ls_cluster_abort;

typedef struct ls_cluster_ended {
    uint32_t kind, reserved;
} ls_cluster_ended;

/* Followed by the output of ls_rank_snapshots_encode. */
typedef struct ls_cluster_snapshots {
    uint32_t kind, reserved;
    uint64_t taken_ns; /* on the agent's clock, just before sending */
} ls_cluster_snapshots;

/* Also KILL. */
typedef struct ls_cluster_ask {
    uint32_t kind, rank;
    int32_t pid;
    uint32_t reserved;
} ls_cluster_ask;

typedef struct ls_cluster_stack {
    uint32_t kind, rank;
    uint32_t is_stack; /* 0: text says why there is none */
    char text[LS_CLUSTER_STACK_BYTES];
} ls_cluster_stack;

typedef struct ls_cluster_status {
    uint32_t kind;
    uint32_t leaving; /* The host is about to be taken away and wants no part in the next cut. */
    double grace_s;   /* seconds until then; 0: not known */
    char source[16];  /* where the notice came from: "signal", "aws", ... */
    ls_host_status status;
    ls_step_verdict verdict; /* on step status.agreed - 1 */
    /* For a trainer that takes over: the step up to which steps were granted, and the first step
     * from which on the results of all finished steps are still here. */
    uint64_t until, results_from;
} ls_cluster_status;

typedef struct ls_cluster_fence {
    uint32_t kind, hard;
    uint64_t epoch, limit;
    /* UINT64_MAX: none are wanted. Else RESULTs of the finished steps from this one on are to be
     * sent before the next STATUS. */
    uint64_t results_from;
} ls_cluster_fence;

typedef struct ls_cluster_result {
    uint32_t kind, reserved;
    ls_rank_result result;
} ls_cluster_result;

typedef struct ls_cluster_finish {
    uint32_t kind, reserved;
    uint64_t epoch, step;
    ls_step_verdict verdict;
} ls_cluster_finish;

typedef struct ls_cluster_form {
    uint32_t kind, moves;
    uint32_t gathered, reserved; /* how many gathers all hosts have completed */
    ls_cut cut, held;
} ls_cluster_form;

/* ---- taking messages ---- */

typedef struct ls_cluster_received {
    void *sender;     /* as given to ls_cluster_dispatch */
    void *fixed;      /* aligned copy of the message's struct; the handler may change it */
    const void *tail; /* the bytes after the struct */
    size_t tail_bytes;
} ls_cluster_received;

/* A row of a receiver's table of messages. The last row has kind 0. */
typedef struct ls_cluster_handler {
    uint32_t kind;  /* an ls_cluster_kind */
    uint32_t bytes; /* size of the message's struct */
    bool has_tail;  /* More bytes may follow the struct; without it a longer message is refused. */
    /* Returns false when the contents are not acceptable. */
    bool (*handle)(void *receiver, const ls_cluster_received *message);
} ls_cluster_handler;

/* The kind of a message; 0 when it is too short to have one. */
uint32_t ls_cluster_kind_of(const void *data, size_t bytes);

/* Hands a message to the handler of its kind. False when the kind is not in the table, the size
 * is wrong, or the handler returns false; the caller then refuses the sender. */
bool ls_cluster_dispatch(const ls_cluster_handler *handlers, void *receiver, void *sender, const void *data,
                         size_t bytes);

/* Hash of the running program. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_program_hash(uint64_t *hash_out);

/* Terminates a text that came over the wire. */
#define LS_CLUSTER_CLOSE(field) ((field)[sizeof(field) - 1] = '\0')

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * What the coordinator and the agents of other hosts say to each other, as messages of the store's "other" kind (comm/store.h).
 *
 *   agent                                 coordinator
 *     HELLO   who, which program     ──▶
 *                                    ◀──  JOIN    your ranks, and everything their segment is made from; nothing when it returns
 *     READY   a rank is ready        ──▶
 *                                    ◀──  ORDERS  whenever one changes: all of them (level-triggered, I5)
 *     LOST    a rank ended           ──▶
 *     ABORT   a rank gave a reason   ──▶
 *     ENDED   no process is left     ──▶
 *     SIGHTS  what ranks are seen doing, when it changed  ──▶
 *                                    ◀──  ASK     for the stack of a rank that is late
 *     STACK   it, or why there is none  ──▶
 *                                    ◀──  KILL    a rank that hangs: LOST follows
 *     STATUS  where the host is: often, as a sign of life, and whenever it changed  ──▶
 *                                    ◀──  FENCE   park your ranks                       (elastic/host_side.h)
 *                                    ◀──  FINISH  the step that others have agreed on
 *                                    ◀──  FORM    a new cut
 *
 * A trainer that comes back (job.lease). An agent whose link ends connects again, for the lease, and says HELLO with its place, READY for
 * each rank that lives, and STATUS. The new coordinator has the cuts from its log; when all hosts of the newest have said that, or it has
 * waited long enough, it raises a hard FENCE above any epoch that was said, and what follows is a change of members like any other.
 *
 * When the ranks of the trainer's host are gone with it, its memory is, too: the host takes part in the next cut like one that joins, and the
 * FENCE asks for the RESULTs that the trainer before has not noted down.
 *
 * ORDERS come often, too, changed or not: who hears nothing for the lease fences its ranks. What says an older epoch than was heard before is
 * out of date.
 *
 * HELLO is checked for version and for the hash of the program before anything else is said: beyond it both sides are one binary, and the
 * structs below are what they are. Sizes are checked all the same.
 */
#ifndef LS_EXECUTION_ELASTIC_CLUSTER_WIRE_H
#define LS_EXECUTION_ELASTIC_CLUSTER_WIRE_H

#include "execution/elastic/coordinator.h"
#include "execution/elastic/reform.h"

enum {
    LS_CLUSTER_VERSION = 5,
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
    LS_CLUSTER_SIGHTS,
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
    char lockstep[32];                /* its version */
    char host[LS_HOST_NAME_BYTES];    /* host name */
    char name[LS_CLUSTER_NAME_BYTES]; /* in the file of hosts, "": none */
    uint32_t slots;                   /* ranks it takes; 0: as many as are left */
    uint32_t is_spare;                /* takes none and only waits for the end of the run */
    int32_t pid;
    uint32_t
        place; /* of an agent that returns, in the table of hosts, >= 1: it has ranks already. 0: a new one */
    uint32_t first_rank, local_ranks; /* which */
    uint64_t run;                     /* of its JOIN */
} ls_cluster_hello;

/* Followed by the run file's text. */
typedef struct ls_cluster_join {
    uint32_t kind, leaves;
    uint32_t ranks, first_rank, local_ranks, threads;
    uint64_t epoch, step, float_count, frozen_floats, exchange_bytes;
    char run_dir[LS_CLUSTER_PATH_BYTES], folder[LS_CLUSTER_PATH_BYTES]; /* the trainer's, absolute */
    uint32_t text_bytes, place;                                         /* place: in the table of hosts */
    uint64_t lease_ns;
    uint32_t is_late;      /* the others train: its ranks wait behind a fence for a cut that has them */
    uint32_t replacements; /* processes that the agent starts in the place of ranks that were lost, at most */
    uint64_t wait_ns;      /* the agent waits so long for another trainer when this one is gone */
    uint64_t run;          /* hash of run directory and run file */
} ls_cluster_join;

typedef struct ls_cluster_orders {
    uint32_t kind, stop, quit, gather;
    uint64_t epoch, until;
    uint32_t abort;
    int32_t abort_rank;
    char abort_text[LS_RANK_TEXT_BYTES];
} ls_cluster_orders;

typedef struct ls_cluster_ready {
    uint32_t kind;
    uint32_t has_part; /* in the team in force of its host */
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

/* Followed by what ls_sights_encode makes of them. */
typedef struct ls_cluster_sights {
    uint32_t kind, reserved;
    uint64_t taken_ns; /* the agent's clock, just before it was sent */
} ls_cluster_sights;

/* ASK and KILL. */
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
    uint32_t leaving; /* the host will be taken away: it wants no part in the next cut */
    double grace_s;   /* until then; 0: not known */
    char source[16];  /* who said so: "signal", "aws", ... */
    ls_host_status status;
    ls_step_verdict verdict; /* of status.agreed */
    /* To a trainer that comes back: what was granted, and the first step from which on the results of all that were finished are there. */
    uint64_t until, results_from;
} ls_cluster_status;

typedef struct ls_cluster_fence {
    uint32_t kind, hard;
    uint64_t epoch, limit;
    uint64_t
        told; /* not UINT64_MAX: RESULTs of the finished steps from this one on come before the next STATUS */
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
    uint32_t gathered, reserved; /* gathers that all have taken part in */
    ls_cut cut, held;
} ls_cluster_form;

/* Hash of the program that runs. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_program_hash(uint64_t *hash_out);

/* Makes a text that came over the wire end within its field. */
#define LS_CLUSTER_CLOSE(field) ((field)[sizeof(field) - 1] = '\0')

#endif

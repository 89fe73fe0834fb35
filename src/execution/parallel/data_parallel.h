// SPDX-License-Identifier: Apache-2.0
/*
 * Exact data parallelism: many ranks, one step, the bits of one process.
 *
 *   leaves of the step   [0 1 2 3 4 5 6 7 8 9 10 11]                       tree.h: who computes which, and the order of sums
 *   ranks                 rank 0   rank 1   rank 2
 *   each: its leaves, merging pairs; the last merges are left to the owners
 *
 *   buckets   |  0: embeddings  |  1: layer 0  |  2: layer 1  |  3: norm, head |     slices.h: who owns what of each
 *             | r0  | r1  | r2  | r0 | r1 | r2 | r0 | r1 | r2 | r1 |
 *
 *   backward of the last leaf leaves bucket 3, then 2, 1, 0: "ready"; when all ranks have said so of a bucket, its owners add up their
 *   slices straight from the others' gradient buffers, between two steps of their own backward, or after it
 *   -> several hosts: owners send their sums to those who make the same update: all hosts with zero stage 0, the buddy with shadows
 *   -> agreement, when all sums have come: who gave up, losses, tokens, squared sums of all norm blocks -> every rank computes the same loss, norm and clip
 *   -> owners update their slices of the shared parameters and moments in place -> all leave together
 *
 * Parts and processes. The step is cut into parts; this file says "part" for a share of the work and "rank" for a process. Undisturbed, each rank
 * of a host runs one part, part i of the host the rank i. When a rank dies another runs its part too, from where the shared memory says it
 * is (docs/design/003-nothing-is-lost.md): everything it has finished lies there. What whoever watches the ranks has to do about it:
 *
 *   a rank died: its wait for the process has ended, all others of the host are parked
 *     ls_data_parallel_recover_part   of each part it held
 *     publish a team of the same cut in which somebody else holds them; that process calls ls_data_parallel_assign and ls_stepper_assign,
 *     or makes its own with these holders; then all call ls_stepper_run of the step they were in again
 *   between steps, all parked
 *     ls_data_parallel_clear          before a team of another cut, and when the state was set to another step; then everyone makes its
 *                                     ls_data_parallel and its stepper anew
 *   at once, after a hard fence or an abort, so that nobody sleeps on for up to LS_WAIT_SLICE_NS
 *     ls_data_parallel_wake
 *
 * Steps can be taken over when the sums have a buffer of their own (options.sums) and all parts are on this host; on several hosts once any
 * of them has agreed. Else a fence ends the step there with LS_FENCED, and what was made for it is of no use any more but to be destroyed.
 *
 * One process is the case of one rank: it runs the same code, and no waits. The stepper (execution/train/step.h) is the only caller of the
 * calls in the second half; whoever makes rank processes (execution/elastic) needs the first half.
 *
 * Memory. The caller gives everything: parameters, m and v (once per host, in the state), gradient buffers of all parts of this host, their
 * sums, and the exchange area, zeroed. Nothing is allocated in a step.
 *
 * Waits end with the deadline, the abort word, or the others (DESIGN I3): LS_ERR_TIMEOUT names the ranks that did not come and what
 * they were waited for; an abort ends with what options.aborted returns. Operations are recorded in the flight recorder as
 * LS_COMM_TREE_REDUCE (one per bucket) and LS_COMM_STEP of communicator LS_DATA_PARALLEL_COMM.
 */
#ifndef LS_EXECUTION_PARALLEL_DATA_PARALLEL_H
#define LS_EXECUTION_PARALLEL_DATA_PARALLEL_H

#include "base/hash.h"
#include "execution/diagnose/fault.h"
#include "execution/diagnose/sabotage.h"
#include "execution/parallel/tree.h"
#include "execution/parallel/undo.h"
#include "execution/state.h"
#include "model/plan.h"

#include <stdatomic.h>

enum {
    LS_DATA_PARALLEL_COMM = 0xd0000000, /* comm_id of its records; the epoch is added */
    LS_DATA_PARALLEL_TEXT_BYTES = 1024,
};

/*
 * How far a part is, for whoever asks whether the state is whole. Counts of steps as in elastic/segment.h: step s enters with s + 1;
 * `begun` before its first store to parameters or moments, `done` behind its last, `finished` when all parts are. A pointer may be NULL.
 */
typedef struct ls_step_marks {
    _Atomic uint64_t *entered, *begun, *done, *finished;
} ls_step_marks;

typedef struct ls_data_parallel_options {
    const ls_plan *plan; /* borrowed */
    uint64_t
        epoch; /* of the cut: its operations are told apart from those of others in the flight recorders */
    uint32_t leaves;
    uint32_t parts;                   /* of all hosts, 1..leaves */
    uint32_t first_part, local_parts; /* of this host: [first_part, first_part + local_parts) */
    uint32_t rank,
        first_rank; /* this process, as a local number, and what to add to name it: rank first_rank + rank of the run */
    const uint16_t *
        holders; /* the local rank that runs each local part; borrowed for the call. NULL: local part i is local rank i's */
    uint32_t room; /* local parts for which the exchange area was made; 0: local_parts */
    bool
        is_alone; /* one process, the only rank: an exchange area without room for undo, which nobody else maps */
    uint32_t threads; /* per rank; with local_ranks it decides whether waits spin */

    /* Flat gradient buffer `index` of local part `part`, index < ls_data_parallel_buffers; asked at creation only. */
    float *(*gradient)(void *context, uint32_t part, uint32_t index);
    /* Where the sums of own slices go; shared by the host. NULL: over own gradient buffer 0, and then a step can't be taken over. */
    float *sums;
    void *context; /* of gradient, marks, aborted and look */
    void *
        exchange; /* ls_data_parallel_exchange_bytes, 64-byte aligned, zeroed before the first rank maps it; shared by the host */

    /* Several hosts: a communicator of all ranks with the same numbers, borrowed; NULL: this host alone. Used on a thread of its own. */
    struct ls_comm *comm;
    /* ZeRO stage across hosts, the same bits with each (one host has everything once anyway): 0 moments on every host, 1 moments with their
     * owners, 2 and gradients given back as soon as they are added up, 3 and weights fetched before each use and given back behind it. The
     * memory of what a host does not keep is never touched, or given back; it must then be a shared mapping. */
    uint32_t zero;
    /* With zero >= 1: what the ranks of a host keep, the next host keeps too, from the same sums, so that no single host's end loses it. */
    bool shadow;
    float *parameters;      /* of this host; for stage 3, as the next */
    uint32_t micro_batches; /* of a leaf */

    double timeout_s; /* of each wait; 0: 600 */
    const _Atomic uint32_t
        *abort; /* ends every wait whose condition does not hold when it is not 0; NULL: none */
    /* The reason of an abort, as this thread's error, LS_FENCED for a fence; NULL or LS_OK: LS_ERR_RANKS_LOST without one. */
    ls_status (*aborted)(void *context);
    /* Called in each wait, at least every LS_WAIT_SLICE_NS; false ends it; NULL: none. */
    bool (*look)(void *context);
    ls_sabotage *sabotage; /* for tests; borrowed; NULL: none */
    /* Of local part `part`; asked when this process takes it. NULL: none. */
    ls_step_marks (*marks)(void *context, uint32_t part);
} ls_data_parallel_options;

/* Gradient buffers of part `part` of `parts`. */
uint32_t ls_data_parallel_buffers(uint32_t leaves, uint32_t parts, uint32_t part);

/* Size of the exchange area of a host with up to `local_parts` parts; 0: of a process that is alone, whose updates nobody else can finish. */
uint64_t ls_data_parallel_exchange_bytes(const ls_layout *layout, uint32_t local_parts);

typedef struct ls_data_parallel ls_data_parallel;

/* Collective over all hosts. All ranks make theirs with the same options but `rank` (and what is of their host) and then run the same steps. A
 * process that holds no part needs none. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_data_parallel_create(const ls_data_parallel_options *options,
                                                ls_data_parallel **parallel_out);
void ls_data_parallel_destroy(ls_data_parallel *parallel); /* NULL allowed */

/* Several hosts: ends the transfers under way. Behind it nobody writes what this rank reads or owns, and the communicator is of no use any more.
 * Before a rank parks inside a step. A step that some host has agreed on can still be finished, by calling ls_stepper_run again once its verdict
 * is in the exchange area (ls_data_parallel_write_verdict): all sums have come before. */
void ls_data_parallel_break(ls_data_parallel *parallel);

/* The same cut, other holders (as in the options), between two calls of ls_stepper_run: this process runs those that are its own. Allocates.
 * One host, or behind ls_data_parallel_break. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_data_parallel_assign(ls_data_parallel *parallel, const uint16_t *holders);

/* ---- for whoever watches the ranks of a host ---- */

/* The memory that outlives them. */
typedef struct ls_recovery {
    void *exchange;
    float *flats[3];    /* parameters, m, v */
    float *snapshot[3]; /* where ls_stepper_keep said; NULL: no update kept anything */
} ls_recovery;

/*
 * The process that ran local part `part` is dead and all others are parked: puts back blocks that it was updating, and takes back what it said
 * of gradients that are to be computed again. All that it has finished stays. Cheap; again does no harm, so it may be interrupted itself.
 * Returns what was found, for the log.
 */
typedef struct ls_recovered {
    uint64_t entered; /* step + 1 that the part is in, 0: none */
    uint32_t blocks;  /* that were put back */
    bool claimed;     /* it has come to the agreement of that step */
    bool finished;    /* it has come to the end of that step */
} ls_recovered;
ls_recovered ls_data_parallel_recover_part(const ls_recovery *recovery, uint32_t part);

/* Between steps, all parked or none alive: the area is as if no step had run. */
void ls_data_parallel_clear(void *exchange);

/* Wakes everybody who sleeps in a step, so that they look at options.abort at once. */
void ls_data_parallel_wake(void *exchange);

/*
 * Between steps, collective over all ranks of all hosts; with one host they do nothing. `state` is this host's.
 *   distribute   parameters and moments of host 0 go to where steps need them: before the first step, and after the trainer changed them
 *   gather       they come to host 0, whole: before the trainer saves them
 */
LS_MUST_CHECK ls_status ls_data_parallel_distribute(ls_data_parallel *parallel, const ls_state *state);
/* After a new cut, before `distribute`: what other hosts have of the state, which lies as an earlier cut put it, comes to host 0. And behind
 * `distribute`: returns when all hosts have what they keep. */
struct ls_state_sources;
LS_MUST_CHECK ls_status ls_data_parallel_collect(ls_data_parallel *parallel, const ls_state *state,
                                                 const struct ls_state_sources *sources);
LS_MUST_CHECK ls_status ls_data_parallel_settle(ls_data_parallel *parallel);
LS_MUST_CHECK ls_status ls_data_parallel_gather(ls_data_parallel *parallel, const ls_state *state);

/* ---- what the stepper calls, in this order, once per step ---- */

uint32_t ls_data_parallel_rank(const ls_data_parallel *parallel);       /* this process, in the run */
uint32_t ls_data_parallel_part_count(const ls_data_parallel *parallel); /* of all hosts */

/* What the leaves [first, first + count) came to. */
typedef struct ls_leaf_sum {
    ls_leaf_range leaves;
    double loss_sum;
    uint64_t tokens;
} ls_leaf_sum;

/* The finished nodes of a part in the step that runs: node i is in gradient buffer i. Outlives the process: `depth` is stored last, and before
 * a node is added into, it is taken off. */
typedef struct ls_node_stack {
    _Atomic uint32_t depth;
    ls_leaf_sum nodes[LS_TREE_NODES_MAX];
} ls_node_stack;

/* A stretch of the flat buffers that a part updates: floats [offset, offset + count) of one bucket. Listed in the order in which buckets
 * become final. */
typedef struct ls_owned_slice {
    int64_t offset, count;
    uint32_t bucket;
} ls_owned_slice;

/* A part that this process runs. */
typedef struct ls_part {
    uint32_t number; /* among those of all hosts */
    ls_leaf_range leaves;
    float *gradients[LS_GRADIENT_BUFFERS_MAX];
    uint32_t gradient_count;
    const ls_owned_slice *slices;
    uint32_t slice_count;
    ls_undo_record undo; /* where its update writes down what it does; zeroed for a process that is alone */
    ls_node_stack *stack;
} ls_part;

/* They are numbered from 0 here: `index` below. */
uint32_t ls_data_parallel_held(const ls_data_parallel *parallel);
const ls_part *ls_data_parallel_part(const ls_data_parallel *parallel, uint32_t index);

/*
 * A step begins, or goes on: a part that has entered it and not left it is where its stack, its claim and its blocks say.
 * `fingerprint` is over all that must agree between ranks (step number, learning rate, settings). Never waits.
 */
void ls_data_parallel_enter(ls_data_parallel *parallel, uint64_t step, uint64_t fingerprint);

/* Whether a part has something to compute in this step: its claim does not stand yet, and it has not gone on to the next one. */
bool ls_data_parallel_computes(const ls_data_parallel *parallel, uint32_t index);
/* Whether it has gone on to the next one, all parts having ended this one: nothing is left to do with it. */
bool ls_data_parallel_is_ahead(const ls_data_parallel *parallel, uint32_t index);

/* A part can't go on (LS_STOPPED, or an error of reading samples, whose text is this thread's): nobody will update, all get to know. The
 * rank still calls ls_data_parallel_agree. fault: what it was, for ls_data_parallel_fault of all; NULL: nothing more to say. */
void ls_data_parallel_give_up(ls_data_parallel *parallel, uint32_t index, ls_status status,
                              const ls_step_fault *fault);

/* Stage 3 across hosts: whether weights must be fetched, by a call before every plan step of every micro-batch, forward and backward, that
 * waits until the weights it uses are there. Errors of waiting. */
bool ls_data_parallel_fetches(const ls_data_parallel *parallel);
LS_MUST_CHECK ls_status ls_data_parallel_before_step(ls_data_parallel *parallel, uint32_t plan_step);
/* Called by all, before the first plan step or after an agreement: all weights are there, until the first plan step is over or the step is
 * left. Nothing with other stages. */
LS_MUST_CHECK ls_status ls_data_parallel_hold(ls_data_parallel *parallel);

/*
 * Plan step `plan_step` of a part's last backward is done. Says of buckets that are final now that they are, and adds up own slices of buckets
 * that all parts have said so of. Cheap when there is nothing to do.
 */
LS_MUST_CHECK ls_status ls_data_parallel_after_step(ls_data_parallel *parallel, uint32_t index,
                                                    ls_queue *queue, uint32_t plan_step);

/* What all ranks get to know, bit for bit the same. */
typedef struct ls_agreement {
    double loss_sum; /* in the tree */
    uint64_t tokens;
    double square_sum; /* of the gradient sums: over norm blocks in buffer order */
} ls_agreement;

/*
 * Adds up the rest of own slices and exchanges results: what stands on the stacks of the parts (ls_tree_handover). Errors, with which the step
 * is over, the same on all ranks: what a part gave up with (LS_STOPPED only if none had an error); LS_ERR_MISMATCH when fingerprints
 * differ. Errors of waiting. Called again it comes to the same.
 */
LS_MUST_CHECK ls_status ls_data_parallel_agree(ls_data_parallel *parallel, ls_queue *queue,
                                               ls_agreement *agreement_out);

/* Behind an agreement that failed: what the rank that decided it gave up with. */
const ls_step_fault *ls_data_parallel_fault(const ls_data_parallel *parallel);

/* What a part lets the others know along with its agreement (execution/diagnose/sentinel.h); zeros unless it says so in this step. */
typedef struct ls_rank_note {
    ls_hash128 owner, checker; /* of the audited leaf, as this part's holder computed it */
    ls_hash128
        weights; /* of this part's share of its host's copy of the weights: shares are added up per host */
} ls_rank_note;
typedef enum ls_note_kind { LS_NOTE_OWNER, LS_NOTE_CHECKER, LS_NOTE_WEIGHTS } ls_note_kind;
/* Before the part's claim stands; it outlives the process. Whether it was made: by this process or the one before. */
void ls_data_parallel_note(ls_data_parallel *parallel, uint32_t index, ls_note_kind kind, ls_hash128 hash);
bool ls_data_parallel_is_noted(const ls_data_parallel *parallel, uint32_t index, ls_note_kind kind);
const ls_rank_note *ls_data_parallel_note_of(const ls_data_parallel *parallel,
                                             uint32_t part); /* after an agreement */

/* After an agreement: whether the hosts' sums of `weights` differ. */
bool ls_data_parallel_weights_differ(const ls_data_parallel *parallel);

/*
 * What all hosts came to in a step, as the exchange area of a host has it, for a host that has finished its part of the sums and did not hear it
 * (elastic/reform.h). agreed: n: it is on step n - 1, which is to be finished; 0: there is none.
 */
enum { LS_VERDICT_BYTES = 3072 };
typedef struct ls_step_verdict {
    uint64_t agreed;
    unsigned char bytes[LS_VERDICT_BYTES];
} ls_step_verdict;
void ls_data_parallel_read_verdict(const void *exchange, ls_step_verdict *verdict_out);
void ls_data_parallel_write_verdict(void *exchange, const ls_step_verdict *verdict);

/* Where part `part` is: on which of how many hosts, and which of how many parts there. */
typedef struct ls_rank_place {
    uint32_t host, hosts, local, local_ranks;
} ls_rank_place;
ls_rank_place ls_data_parallel_place(const ls_data_parallel *parallel, uint32_t part);

/* After an agreement, instead of the update: all ranks get the `bytes` that the holder of part `from` has in `data`. Called by all. Slow; for telling what
 * went wrong. Errors of waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_tell(ls_data_parallel *parallel, uint32_t from, void *data,
                                              size_t bytes);

/* What is wrong with a leaf, in words; text "": nothing. */
typedef struct ls_leaf_report {
    ls_step_fault fault;
    char text[LS_DATA_PARALLEL_TEXT_BYTES];
} ls_leaf_report;

/* After an agreement, instead of the update: each rank says what it found wrong with its leaves, all get what the lowest rank that found
 * something said. Errors of waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_report(ls_data_parallel *parallel, ls_leaf_report *report_inout);

/* The sums that own slices are updated with, at the offsets of the flat buffers. */
const float *ls_data_parallel_sums(const ls_data_parallel *parallel);

/* Around the update of the slices of all parts held. Bucket by bucket in their order: `updated` says that the one of `slices[slice]` of a part
 * is. Errors of waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_begin_update(ls_data_parallel *parallel);
void ls_data_parallel_updated(ls_data_parallel *parallel, uint32_t index, float *parameters, uint32_t slice);
LS_MUST_CHECK ls_status ls_data_parallel_end_update(ls_data_parallel *parallel, float *parameters);

/* The step is over, with an update or without: returns when all parts are here. Errors of waiting. updated: all did the update. */
LS_MUST_CHECK ls_status ls_data_parallel_leave(ls_data_parallel *parallel, bool updated);

/* Seconds of this step that this rank waited for others. */
double ls_data_parallel_wait_s(const ls_data_parallel *parallel);

#endif

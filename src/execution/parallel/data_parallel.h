// SPDX-License-Identifier: Apache-2.0
/*
 * Exact data parallelism: many ranks compute one step and get the bits that one process would get.
 *
 *   leaves of the step   [0 1 2 3 4 5 6 7 8 9 10 11]       tree.h: which rank computes which leaf,
 *   ranks                 rank 0   rank 1   rank 2         and the order of the additions
 *
 *   buckets   |  0: embeddings  |  1: layer 0  |  2: layer 1  |  3: norm, head |
 *   owners    | r0  | r1  | r2  | r0 | r1 | r2 | r0 | r1 | r2 | r1             |   slices.h
 *
 * One step:
 *   1. compute   Each rank computes its leaves in order and merges pairs in its gradient buffers.
 *                It leaves the merges after its last leaf to the owners of the sums.
 *   2. reduce    The backward pass of a rank's last leaf finishes bucket 3, then 2, 1, 0. The rank
 *                posts each finished bucket as ready. When all ranks have posted a bucket, each
 *                owner adds up its slice directly from the others' gradient buffers, between two
 *                steps of its own backward pass or after it. With several hosts, the owners send
 *                their sums to every rank that makes the same update: all hosts with ZeRO stage 0,
 *                the buddy host with shadows.
 *   3. agree     When all sums are complete, the ranks exchange statuses, losses, token counts and
 *                the squared sums of all norm blocks. Each rank computes the same loss, norm and
 *                clipping from them.
 *   4. update    Owners update their slices of the shared parameters and moments in place.
 *   5. leave     All ranks wait for each other.
 *
 * Why the bits are those of one process: the tree fixes which numbers are added in which order. The
 * ranks only decide where and when an addition happens. Loss sums use the same tree; the squared
 * sums are added block after block in buffer order.
 *
 * Parts and processes. The step is cut into parts. In this file a "part" is a share of the work and
 * a "rank" is a process. Normally each rank of a host runs one part: local part i is run by local
 * rank i. When a rank dies, another rank takes over its part and continues from the shared memory,
 * which holds everything the part has finished (docs/design/003-nothing-is-lost.md).
 *
 * Duties of the process that watches the ranks:
 *
 *   a rank died (its process was reaped, all other ranks of the host are parked)
 *     1. Call ls_data_parallel_recover_part for each part it held.
 *     2. Publish a team with the same cut in which other ranks hold these parts. Each rank then
 *        calls ls_data_parallel_assign and ls_stepper_assign, or creates its objects anew with the
 *        new holders. All ranks then call ls_stepper_run again for the interrupted step.
 *   between steps, all ranks parked
 *     Call ls_data_parallel_clear before a team with another cut, and after the state was set to
 *     another step. All ranks then create their ls_data_parallel and stepper anew.
 *   right after a hard fence or an abort
 *     Call ls_data_parallel_wake, so that no rank sleeps on for up to LS_WAIT_SLICE_NS.
 *
 * A step can be taken over if the sums have a buffer of their own (options.sums) and all parts are
 * on this host, or, with several hosts, once any host has agreed. Otherwise a fence ends the step
 * with LS_FENCED, and the objects of that cut can only be destroyed.
 *
 * Crews. With a mesh (mesh.h) a crew of ranks computes the leaves of one part together. Each member
 * runs a part of its own, which owns slices and takes part in meetings like any other; but only the
 * leader's part has nodes to hand over. The members write into its gradient buffers, each what its
 * plan makes, and a bucket is ready when all of them have posted it. Its stages may be on several
 * hosts; the first member on each leads those there. When a
 * member dies, the others stop as well, and its replacement takes the same part: a process runs one
 * part of a mesh at most.
 *
 * A single process is the case of one rank: same code, no waits. The stepper
 * (execution/train/step.h) is the only caller of the calls in the second half. Code that creates
 * rank processes (execution/elastic) needs the first half only.
 *
 * Memory. The caller provides all of it: parameters, m and v (once per host, in the state), the
 * gradient buffers of all parts of this host, their sums, and the exchange area, zeroed. A step
 * allocates nothing.
 *
 * Threads. One object belongs to one thread of one process.
 *
 * Waits end when the others arrive, at the deadline, or when the abort word is set (invariant I3).
 * LS_ERR_TIMEOUT names the ranks that did not arrive and what was expected of them; after an abort
 * a wait returns what options.aborted returns. "Errors of waiting" below means these. The flight
 * recorder gets one LS_COMM_TREE_REDUCE per bucket and one LS_COMM_STEP per step, on communicator
 * LS_DATA_PARALLEL_COMM.
 */
#ifndef LS_EXECUTION_PARALLEL_DATA_PARALLEL_H
#define LS_EXECUTION_PARALLEL_DATA_PARALLEL_H

#include "base/hash.h"
#include "comm/transport/tree.h"
#include "execution/executor/crew.h"
#include "execution/executor/state.h"
#include "execution/parallel/mesh.h"
#include "execution/parallel/undo.h"
#include "execution/team/fault.h"
#include "execution/team/fault_injection.h"
#include "model/plan.h"

#include <stdatomic.h>

enum {
    /* comm_id of the flight records; the epoch is added to it */
    LS_DATA_PARALLEL_COMM = 0xd0000000,
    LS_DATA_PARALLEL_TEXT_BYTES = 1024,
};

/* ================ for code that creates and watches rank processes ================ */

/* ---- options ---- */

/*
 * Progress marks of a part, for deciding whether the state is complete. Counts of steps as in
 * train/segment.h. In step s, `entered` becomes s + 1 at the start, `begun` before the first store
 * to parameters or moments, `done` after the last one, and `finished` when all parts have ended the
 * step. Each pointer may be NULL.
 */
typedef struct ls_step_marks {
    _Atomic uint64_t *entered, *begun, *done, *finished;
} ls_step_marks;

typedef struct ls_data_parallel_options {
    /* what this process runs, borrowed; with a mesh that of its place in the crew */
    const ls_plan *plan;
    /* epoch of the cut: separates its operations from those of other cuts in flight records */
    uint64_t epoch;
    /* number of leaves of a step */
    uint32_t leaves;
    /* Sums of groups of so many leaves are compressed (parallel/compressed.h); 0: none are.
     * changes: how changes of weights are, and then zero is 1; kind none: the whole sum is, and
     * zero is 0. */
    uint32_t group;
    ls_compression compression; /* keep: after the warm-up of so many steps */
    ls_compression changes;
    uint64_t compression_warmup;
    /* of AdamW, with a compression that normalises; eps: beside a group's sum */
    float beta1, beta2, eps;
    ls_queue *queue; /* with compression: unpacks what arrives; borrowed */
    /* of this host's state; borrowed for the call */
    float *const (*residuals)[LS_RESIDUALS_MAX];
    /* number of parts on all hosts, 1..leaves */
    uint32_t parts;
    /* parts of this host: [first_part, first_part + local_parts) */
    uint32_t first_part, local_parts;
    /* This process: its local number, and the offset that turns a local number into a rank of the
     * run (first_rank + rank). */
    uint32_t rank, first_rank;
    /* The local rank that runs each local part; borrowed for the call. NULL: local rank i runs
     * local part i. */
    const uint16_t *holders;
    /* number of local parts that the exchange area has slots for; 0: local_parts */
    uint32_t room;
    /* A single process that is the only rank: the exchange area has no room for undo records, and
     * no other process maps it. */
    bool is_alone;
    /* threads per rank; together with local_parts this decides whether waits spin */
    uint32_t threads;

    /* The mesh; zeros: each part computes its leaves alone. Its crews divide parts, first_part and
     * local_parts, and parts / crew <= leaves. */
    ls_mesh mesh;
    /* Of each bucket, the stage that has its layers; NULL: 0. Borrowed */
    const uint32_t *stages;
    /* the rooms of the crews of this host: ls_data_parallel_room_bytes, 64-byte aligned, zeroed */
    void *rooms;
    /* epoch of the team in force: of the cut, or later after recoveries */
    uint64_t team_epoch;

    /* Returns flat gradient buffer `index` of local part `part`, index below that
     * number. Called during creation only. */
    float *(*gradient)(void *context, uint32_t part, uint32_t index);
    /* Buffer for the sums of owned slices, shared by the host. NULL: the sums overwrite the rank's
     * own gradient buffer 0, and a step cannot be taken over. */
    float *sums;
    /* first argument of gradient, marks, aborted and look */
    void *context;
    /* The exchange area: ls_data_parallel_exchange_bytes, 64-byte aligned, shared by the host,
     * zeroed before the first rank maps it. */
    void *exchange;

    /* Several hosts: a communicator of all ranks with the same numbers, borrowed, used on a
     * separate thread. NULL: this host only. */
    struct ls_comm *comm;
    /* ZeRO stage across hosts. All stages give the same bits. (A single host has everything once
     * anyway: stages 2 and 3 are stage 1 there.)
     *   0   every host keeps the moments
     *   1   only the owners keep the moments
     *   2   1, and gradients are released as soon as they are added up
     *   3   2, and weights are fetched before each use and released after it
     * Memory of data that a host does not keep is never touched, or is released; it must be a
     * shared mapping for that. */
    uint32_t zero;
    /* With zero >= 1 and without compression: the next host also keeps what the ranks of a host
     * keep, computed from the same sums, so that the loss of one host loses no state. */
    bool shadow;
    /* the parameters of this host; used by stage 3 */
    float *parameters;
    /* micro-batches per leaf; used by stage 3 */
    uint32_t micro_batches;

    /* limit of each wait; 0: 600 */
    double timeout_s;
    /* While it is not 0, every wait whose condition does not hold yet ends. NULL: none. */
    const _Atomic uint32_t *abort;
    /* Returns the reason of an abort as this thread's error, LS_FENCED for a fence. If it is NULL
     * or returns LS_OK, the error is LS_ERR_RANKS_LOST. */
    ls_status (*aborted)(void *context);
    /* Called in each wait at least every LS_WAIT_SLICE_NS; false ends the wait. NULL: none. */
    bool (*look)(void *context);
    /* for tests; borrowed; NULL: none */
    ls_fault_injection *fault_injection;
    /* Returns the marks of local part `part`; called when this process takes the part. NULL:
     * none. */
    ls_step_marks (*marks)(void *context, uint32_t part);
} ls_data_parallel_options;

/* ---- sizes ---- */

/* Number of gradient buffers that part `part` of `parts` needs with one piece per sequence, group
 * as in comm/transport/tree.h; the
  * other pieces of a leaf (plan->options.sequence_cut), and the other leaves that a crew computes
  * side by side (expert_degree), have one more each. */
uint32_t ls_data_parallel_buffers(uint32_t leaves, uint32_t group, uint32_t parts, uint32_t part);

/* Size of the exchange area of a host with up to `local_parts` parts. local_parts 0: for a single
 * process, whose updates no other process can complete. */
uint64_t ls_data_parallel_exchange_bytes(const ls_layout *layout, uint32_t local_parts);

/* Size of the rooms of the crews of a host with up to `local_parts` parts; 0 without a mesh. plan:
 * of the whole model. */
uint64_t ls_data_parallel_room_bytes(const ls_plan *plan, ls_mesh mesh, uint32_t local_parts);

/* ---- life of the object of one rank ---- */

typedef struct ls_data_parallel ls_data_parallel;

/* Collective over all hosts. All ranks pass the same options except `rank` and the values of their
 * host, and then run the same steps. A process that holds no part needs no object. Errors:
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_data_parallel_create(const ls_data_parallel_options *options,
                                                ls_data_parallel **parallel_out);
void ls_data_parallel_destroy(ls_data_parallel *parallel); /* NULL allowed */

/* Several hosts: ends the transfers in progress; call it before a rank parks inside a step.
 * Afterwards no transfer writes to memory that this rank reads or owns, and the communicator cannot
 * be used again. A step that some host has agreed on can still be completed: write its verdict into
 * the exchange area (ls_data_parallel_write_verdict) and call ls_stepper_run again. That works
 * because agreement implies that all sums have arrived everywhere. */
void ls_data_parallel_break(ls_data_parallel *parallel);

/* Changes the holders (see options) within the same cut, between two calls of ls_stepper_run; this
 * process then runs the parts assigned to it. team_epoch: see options. Allocates. One host only, or
 * after ls_data_parallel_break. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_data_parallel_assign(ls_data_parallel *parallel, const uint16_t *holders,
                                                uint64_t team_epoch);

/* ---- recovery, by the process that watches the ranks of a host ---- */

/* The shared memory that outlives the rank processes. */
typedef struct ls_recovery {
    void *exchange;
    float *flats[3];    /* parameters, m, v */
    float *snapshot[3]; /* as given to ls_stepper_keep; NULL: no update kept a snapshot */
} ls_recovery;

/* What was found, for the log. */
typedef struct ls_recovered {
    /* step + 1 of the step that the part is in; 0: none */
    uint64_t entered;
    /* number of half-updated blocks that were restored */
    uint32_t blocks;
    /* the part has reached the agreement of that step */
    bool claimed;
    /* the part has reached the end of that step */
    bool finished;
} ls_recovered;

/*
 * Repairs local part `part` after the process that ran it died, while all other ranks are parked:
 * restores the blocks it was updating, and withdraws "ready" from gradients that will be computed
 * again. Finished work stays. Cheap and idempotent, so the caller itself may be interrupted and
 * call it again.
 */
ls_recovered ls_data_parallel_recover_part(const ls_recovery *recovery, uint32_t part);

/* Before a team of the same cut is published, with all ranks parked: a crew that was interrupted in
 * a leaf computes it again, so what its members have posted of it is withdrawn. Idempotent. */
void ls_data_parallel_rewind_crews(void *exchange);

/* Resets the area to its state before any step. Between steps, with all ranks parked or dead. */
void ls_data_parallel_clear(void *exchange);

/* Wakes every rank that sleeps inside a step, so that it checks options.abort at once. */
void ls_data_parallel_wake(void *exchange);

/* ---- moving the state between hosts ---- */

/*
 * Called between steps, collective over all ranks of all hosts; with one host they do nothing.
 * `state` is the state of this host. Errors of waiting and of the communicator.
 *
 *   distribute   sends parameters and moments from host 0 to the hosts that need them: before the
 *                first step, and after the trainer changed them
 *   gather       brings the complete state to host 0, before the trainer saves it. With stage 0,
 *                host 0 has it, and no rank waits for another
 *   collect      after a new cut, before distribute: brings to host 0 the parts of the state that
 *                other hosts hold according to an earlier cut
 *   settle       after distribute: returns when all hosts have what they keep
 */
LS_MUST_CHECK ls_status ls_data_parallel_distribute(ls_data_parallel *parallel, const ls_state *state);
LS_MUST_CHECK ls_status ls_data_parallel_gather(ls_data_parallel *parallel, const ls_state *state);
struct ls_state_sources;
LS_MUST_CHECK ls_status ls_data_parallel_collect(ls_data_parallel *parallel, const ls_state *state,
                                                 const struct ls_state_sources *sources);
LS_MUST_CHECK ls_status ls_data_parallel_settle(ls_data_parallel *parallel);

/* ---- a verdict for hosts that did not receive it ---- */

/*
 * The result of the agreement of all hosts, as stored in the exchange area of one host. A host that
 * has completed its sums but lost the connection before the result arrived can complete the step
 * with it (team/reform.h). agreed: n means that the verdict is about step n - 1, which must be
 * completed; 0: there is no verdict.
 */
enum { LS_VERDICT_BYTES = 3072 };
typedef struct ls_step_verdict {
    uint64_t agreed;
    unsigned char bytes[LS_VERDICT_BYTES];
} ls_step_verdict;
void ls_data_parallel_read_verdict(const void *exchange, ls_step_verdict *verdict_out);
void ls_data_parallel_write_verdict(void *exchange, const ls_step_verdict *verdict);

/* ================ for the stepper: the calls of one step, in this order ================ */

/* ---- the parts of this process ---- */

/* The number of this process in the run. */
uint32_t ls_data_parallel_rank(const ls_data_parallel *parallel);
/* The number of parts on all hosts. */
uint32_t ls_data_parallel_part_count(const ls_data_parallel *parallel);

/* Results of the leaves [first, first + count). */
typedef struct ls_leaf_sum {
    ls_leaf_range leaves;
    double loss_sum;
    uint64_t tokens;
} ls_leaf_sum;

/* The finished nodes of a part in the current step: node i is in gradient buffer i. It outlives the
 * process, so the order of stores matters: `depth` is stored last when a node is pushed, and a node
 * is popped before anything is added into its buffer. */
typedef struct ls_node_stack {
    _Atomic uint32_t depth;
    ls_leaf_sum nodes[LS_TREE_NODES_MAX];
} ls_node_stack;

/* A range of the flat buffers that a part updates: floats [offset, offset + count), all in one
 * bucket. Listed in the order in which buckets become final. */
typedef struct ls_owned_slice {
    int64_t offset, count;
    uint32_t bucket;
} ls_owned_slice;

/* A part that this process runs. */
typedef struct ls_part {
    /* number among the parts of all hosts */
    uint32_t number;
    /* the first member of its crew on this host, or it computes alone: it writes the stack */
    bool leads;
    /* the last stage of its crew is on this host: the stack has the losses */
    bool has_losses;
    /* leaves of its crew; buffers and stack of the members on this host */
    ls_leaf_range leaves;
    float *gradients[LS_GRADIENT_BUFFERS_MAX];
    uint32_t gradient_count;
    const ls_owned_slice *slices;
    uint32_t slice_count;
    /* what this process adds up when nodes are merged: its share of the gradients that the members
     * on this host make */
    const ls_owned_slice *merges;
    uint32_t merge_count;
    /* where its update records its progress; zeroed for a single process */
    ls_undo_record undo;
    ls_node_stack *stack;
} ls_part;

/* Parts of this process are numbered from 0: this is `index` in the calls below. */
uint32_t ls_data_parallel_held(const ls_data_parallel *parallel);
const ls_part *ls_data_parallel_part(const ls_data_parallel *parallel, uint32_t index);

/* ---- 1: entering and computing ---- */

/*
 * Begins a step, or continues one: a part that has entered the step and not left it continues where
 * its stack, its claim and its block words say. `fingerprint` covers everything that must be equal
 * on all ranks (step number, learning rate, settings). Never waits.
 */
void ls_data_parallel_enter(ls_data_parallel *parallel, uint64_t step, uint64_t fingerprint);

/* Whether the part still has leaves to compute in this step: it has not made its claim and is not
 * in the next step already. */
bool ls_data_parallel_computes(const ls_data_parallel *parallel, uint32_t index);
/* Whether the part is already in the next step, because all parts have ended this one: nothing is
 * left to do for it. */
bool ls_data_parallel_is_ahead(const ls_data_parallel *parallel, uint32_t index);

/* The crew of this process, for ls_executor_batch; NULL: it computes alone. */
const ls_crew *ls_data_parallel_crew(const ls_data_parallel *parallel);
/* Waits until all members of the crew have entered the step; before the first exchange. Without a
 * crew it does nothing, as does the next call. Errors of waiting; LS_STOPPED when a part has given
 * the step up. */
LS_MUST_CHECK ls_status ls_data_parallel_await_crew(ls_data_parallel *parallel);
/* Waits until all members are here; what each has written, the others see then. Errors as above. */
LS_MUST_CHECK ls_status ls_data_parallel_meet_crew(ls_data_parallel *parallel);

/* Reports that a part cannot continue (LS_STOPPED, or an error of reading samples, whose text is
 * this thread's): no rank will update, and all ranks learn why. The rank must still call
 * ls_data_parallel_agree. fault: details for ls_data_parallel_fault of all ranks; NULL: none. */
void ls_data_parallel_give_up(ls_data_parallel *parallel, uint32_t index, ls_status status,
                              const ls_step_fault *fault);

/* Stage 3 across hosts: whether weights must be fetched. If so, call before_step before each plan
 * step of each micro-batch, forward and backward; it returns when the weights of that plan step
 * have arrived. Errors of waiting. */
bool ls_data_parallel_fetches(const ls_data_parallel *parallel);
LS_MUST_CHECK ls_status ls_data_parallel_before_step(ls_data_parallel *parallel, uint32_t plan_step);
/* Collective, before the first plan step or after an agreement: fetches all weights, which stay
 * until the first plan step is over or the step is left. Does nothing with other stages. */
LS_MUST_CHECK ls_status ls_data_parallel_hold(ls_data_parallel *parallel);
/* Whether a step begins with that instead: its stages use different weights at the same time. */
bool ls_data_parallel_holds(const ls_data_parallel *parallel);

/* ---- 2 and 3: reducing and agreeing ---- */

/*
 * To be called after plan step `plan_step` of a part's last backward pass. Posts the buckets that
 * have become final, and adds up owned slices of the buckets that all parts have posted. Never
 * waits for other ranks; cheap when there is nothing to do.
 */
LS_MUST_CHECK ls_status ls_data_parallel_after_step(ls_data_parallel *parallel, uint32_t index,
                                                    ls_queue *queue, uint32_t plan_step);

/* The result of a step, bit for bit the same on all ranks. */
typedef struct ls_agreement {
    /* added in the order of the tree */
    double loss_sum;
    uint64_t tokens;
    /* of the gradient sums: squared sums of norm blocks, added in buffer order */
    double square_sum;
    /* the same of what compression has left over of gradients; 0: no compression, NAN: not known,
     * in a step that another process began */
    double left_over;
} ls_agreement;

/*
 * Adds up the remaining owned slices, and combines the nodes on the stacks of all parts
 * (ls_tree_handover). An error ends the step and is the same on all ranks: the status that a part
 * gave up with (LS_STOPPED only if no part had an error), or LS_ERR_MISMATCH if fingerprints
 * differ. Also errors of waiting. Calling it again gives the same result.
 */
LS_MUST_CHECK ls_status ls_data_parallel_agree(ls_data_parallel *parallel, ls_queue *queue,
                                               ls_agreement *agreement_out);

/* After a failed agreement: the fault reported by the rank that decided it. */
const ls_step_fault *ls_data_parallel_fault(const ls_data_parallel *parallel);

/* ---- notes: hashes that travel with the agreement (execution/integrity/sdc_monitor.h) ---- */

/* Zeros in every step in which the part makes no note. */
typedef struct ls_rank_note {
    /* of the audited leaf, as computed by the holder of this part */
    ls_hash128 owner, checker;
    /* of this part's share of its host's weights; the shares are added up per host */
    ls_hash128 weights;
} ls_rank_note;
typedef enum ls_note_kind { LS_NOTE_OWNER, LS_NOTE_CHECKER, LS_NOTE_WEIGHTS } ls_note_kind;
/* To be made before the part's claim. A note outlives the process; is_noted tells whether this
 * process or an earlier holder made it. */
void ls_data_parallel_note(ls_data_parallel *parallel, uint32_t index, ls_note_kind kind, ls_hash128 hash);
bool ls_data_parallel_is_noted(const ls_data_parallel *parallel, uint32_t index, ls_note_kind kind);
/* After an agreement: the note of a part. With several hosts all notes are combined into one. */
const ls_rank_note *ls_data_parallel_note_of(const ls_data_parallel *parallel, uint32_t part);

/* After an agreement: whether the sums of `weights` differ between hosts. */
bool ls_data_parallel_weights_differ(const ls_data_parallel *parallel);

/* ---- after an agreement, instead of the update: finding out what went wrong ---- */

/* The place of part `part`: its host among `hosts`, and its number among the parts of that host. */
typedef struct ls_rank_place {
    uint32_t host, hosts, local, local_ranks;
} ls_rank_place;
ls_rank_place ls_data_parallel_place(const ls_data_parallel *parallel, uint32_t part);

/* Collective: all ranks receive the `bytes` that the holder of part `from` has in `data`. Slow; for
 * error reports. Errors of waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_tell(ls_data_parallel *parallel, uint32_t from, void *data,
                                              size_t bytes);

/* What is wrong with a leaf; text "": nothing. */
typedef struct ls_leaf_report {
    ls_step_fault fault;
    char text[LS_DATA_PARALLEL_TEXT_BYTES];
} ls_leaf_report;

/* Collective: each rank passes what it found wrong with its leaves; all ranks receive the report of
 * the lowest rank that found something. Errors of waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_report(ls_data_parallel *parallel, ls_leaf_report *report_inout);

/* ---- 4 and 5: updating and leaving ---- */

/* Changes of the weights of a slice, which are packed block by block as they are made: buffers as
 * in compute/kernels/compress.h, that begin at the slice. */
typedef struct ls_packed_change {
    const ls_compression *form;
    const float *residual;
    float *residual_out;
    unsigned char *packed; /* NULL: not wanted */
} ls_packed_change;

/* The gradient sums of owned slices, at the offsets of the flat buffers. */
const float *ls_data_parallel_sums(const ls_data_parallel *parallel);

/* Begin and end enclose the update of the slices of all parts held. Slices are updated in the order
 * of their buckets; call `updated` after `slices[slice]` of part `index`. Errors of waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_begin_update(ls_data_parallel *parallel);
void ls_data_parallel_updated(ls_data_parallel *parallel, uint32_t index, float *parameters, uint32_t slice);
/* How slices[slice] is packed by its update; form NULL: it is not. */
ls_packed_change ls_data_parallel_change(const ls_data_parallel *parallel, uint32_t index, uint32_t slice);
LS_MUST_CHECK ls_status ls_data_parallel_end_update(ls_data_parallel *parallel, float *parameters);

/* Ends the step: returns when all parts are here. updated: all parts made the update. Errors of
 * waiting. */
LS_MUST_CHECK ls_status ls_data_parallel_leave(ls_data_parallel *parallel, bool updated);

/* Seconds of this step that this rank waited for other ranks. */
double ls_data_parallel_wait_s(const ls_data_parallel *parallel);

/* What this rank exchanged in this step. Bytes of an axis are those that other ranks read of this
 * one, but of the data axis those that it read of others: gradients of other crews, for its slices.
 * On one host weights are not sent: they exist once. */
typedef struct ls_rank_traffic {
    uint64_t bytes[LS_AXIS_COUNT];
    uint64_t link_bytes;  /* sent to other hosts: gradients, their sums and weights */
    uint64_t dense_bytes; /* that sums of float32 gradients in this step would have been */
    double link_s;        /* that sending and receiving took */
    double stage_wait_s;  /* waiting for other stages */
} ls_rank_traffic;
ls_rank_traffic ls_data_parallel_traffic(const ls_data_parallel *parallel);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The executor: runs the steps of an op plan on a queue.
 *
 * An executor binds a plan to memory: the arena of values, the flat weights and gradients, the
 * rotary tables. It keeps no state between micro-batches, so the result of a micro-batch is a
 * function of its tokens and the parameters only (invariant I1). It allocates nothing while it runs
 * (I7). With the plan of a pipeline stage, several micro-batches can be on their way, each in a
 * slot, and what the stage exchanges with its neighbours is received before a pass and sent at its
 * end (execution/executor/stage.h).
 *
 * An executor is used by one thread at a time.
 */
#ifndef LS_EXECUTION_EXECUTOR_EXECUTOR_H
#define LS_EXECUTION_EXECUTOR_EXECUTOR_H

#include "compute/queue.h"
#include "execution/executor/crew.h"
#include "model/plan.h"

/*
 * Keys and values of texts that are being generated: per layer (slots * capacity, kv_heads *
 * head_dim). The text in slot s has rows s * capacity on, one for each position.
 */
typedef struct ls_kv_cache {
    ls_tensor *keys;   /* one per layer */
    ls_tensor *values; /* one per layer */
    int64_t capacity;  /* positions of one text */
} ls_kv_cache;

/* Consecutive rows of a forward pass that continue the text in one slot of the cache. */
typedef struct ls_text_span {
    int64_t slot;
    int64_t past;  /* positions that the cache holds before them */
    int64_t count; /* rows; past + count <= capacity */
} ls_text_span;

typedef struct ls_executor {
    ls_queue *queue;     /* borrowed */
    const ls_plan *plan; /* borrowed */
    float *arena;        /* plan->arena_floats floats of device memory, owned */
    size_t arena_bytes;
    ls_tensor cosine, sine; /* rotary tables, owned; absent without rotary positions */
    size_t rope_bytes;
    int32_t *first;     /* device memory, owned: that of the batch, per slot and token */
    int32_t *local;     /* owned, in a tensor group: ids in the part of the vocabulary */
    int32_t *targets;   /* owned, with a sequence cut: of the rows of a piece, then their losses */
    ls_kv_cache *cache; /* borrowed; set while generating, else NULL */
    int64_t rows;       /* of the current pass: those of its spans, else all of the plan */
    uint32_t slot;      /* of the current pass */
    uint32_t piece;     /* of the sequences: whose values are meant */
    bool has_ended;     /* the gradients of the head and the table were added: the leaf is over */
} ls_executor;

/* A model in the memory of a device, for what only runs forward. All borrowed. */
typedef struct ls_model_on_device {
    ls_queue *queue;
    const ls_model_config *config;
    const ls_layout *layout;
    ls_dtype type;       /* of weights and activations */
    const void *weights; /* flat, in the layout */
} ls_model_on_device;

/* One micro-batch. */
typedef struct ls_executor_batch {
    /* flat, in the layout of the plan and the type of its activations (ls_state_weights) */
    const void *weights;
    float *gradients; /* flat; NULL unless training */
    /* With a sequence cut, in place of `gradients`: flat ones for each piece of the process. */
    float *const *piece_gradients;
    /* In an expert group: flat ones for each member, of the leaf that it computes, and with a
     * sequence cut for each piece of the process: piece p of member m at m * sequence_cut + p. What
     * the experts of this process make of a member's tokens goes there; `gradients` are those of
     * its own leaf. */
    float *const *member_gradients;
    /* add weight gradients to the existing ones instead of replacing them */
    bool accumulate;
    /* other micro-batches will be added to these gradients: what is added once per leaf waits */
    bool more;
    const int32_t *tokens; /* sequences * length; shared memory, as are targets and losses */
    /* With a cache: which texts the rows continue, in order, each text once. They may be fewer rows
     * than the plan has; what each row gives does not depend on the others. */
    const ls_text_span *spans;
    size_t span_count;
    /* one per token, LS_TARGET_IGNORED: none; NULL without losses */
    const int32_t *targets;
    /* per token, the index in its sequence at which its record begins; attention and positions
     * restart there. NULL: every sequence is one record */
    const int32_t *first;
    /* of adapters, while training (compute/kernels/dropout.h): seed, number of each token's record,
     * and the pass over the data of each sequence */
    uint64_t dropout_seed;
    const int32_t *record;
    const uint32_t *pass;
    float *losses; /* out: per token; NULL without losses */
    /* the other ranks that compute this micro-batch; NULL: this process computes it alone. Its
     * tensor group is that of the plan. Members may share `gradients`: they write disjoint parts.
     * */
    const ls_crew *crew;
    /* where its values are, below the plan's slots; the same one in all its passes */
    uint32_t slot;
    /* Called before each step and after each backward step; an error ends the run. NULL: none. */
    ls_status (*before_step)(void *context, uint32_t step);
    ls_status (*after_step)(void *context, uint32_t step);
    void *context;
} ls_executor_batch;

/* Allocates the arena and the rotary tables. positions: number of positions in the tables, the
 * plan's length or, with a cache, its capacity. Errors: LS_ERR_MEMORY; LS_ERR_UNSUPPORTED for a
 * model with experts on a GPU. */
LS_MUST_CHECK ls_status ls_executor_init(ls_executor *executor, ls_queue *queue, const ls_plan *plan,
                                         int64_t positions);
void ls_executor_release(ls_executor *executor);

/* Runs all forward steps. In a training plan the head also computes its gradients. A stage that is
 * not the first receives the stream before, one that is not the last sends it afterwards, through
 * batch->crew. Errors: those of the kernels, of the crew and of before_step. */
LS_MUST_CHECK ls_status ls_executor_forward(ls_executor *executor, const ls_executor_batch *batch);

/* Runs all backward steps, or, of a plan with a split backward pass, those before
 * plan->first_weight_step; after ls_executor_forward with the same batch. A stage receives and
 * sends gradients as forward does the stream. */
LS_MUST_CHECK ls_status ls_executor_backward(ls_executor *executor, const ls_executor_batch *batch);

/* Runs the steps from plan->first_weight_step on; after ls_executor_backward with the same
 * batch. */
LS_MUST_CHECK ls_status ls_executor_backward_weight(ls_executor *executor, const ls_executor_batch *batch);

/* Runs a single step of the plan, for execution/integrity/op_trace.h, which inspects what each step
 * wrote. */
LS_MUST_CHECK ls_status ls_executor_step(ls_executor *executor, const ls_executor_batch *batch,
                                         uint32_t index);

/* View of a value of the plan; of the rows of the newest pass, if a value has one row per token. */
ls_tensor ls_executor_value(const ls_executor *executor, int32_t value);

/* "embedding", "norm", ... */
const char *ls_op_kind_name(ls_op_kind kind);

/* Plan options for a device: workspace sizes, type of activations, chunks of logits. queue: of the
 * device that will run the plan; NULL: of the CPU. */
ls_plan_options ls_executor_plan_options(const ls_queue *queue, ls_dtype activations);

/* logits (n, vocab) = hidden (n, width) times the head's weight. */
LS_MUST_CHECK ls_status ls_executor_logits(ls_executor *executor, const void *weights,
                                           const ls_tensor *hidden, const ls_tensor *logits);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * The walker: runs the steps of an op plan on a queue.
 *
 * A walk binds a plan to memory: the arena of values, the flat parameters and gradients, the rotary tables.
 * It holds no state between micro-batches, so what a micro-batch computes is a function of its tokens and the
 * parameters alone (DESIGN I1). Nothing is allocated while it runs (I7).
 *
 * A walk is used by one thread at a time.
 */
#ifndef LS_EXECUTION_WALK_H
#define LS_EXECUTION_WALK_H

#include "compute/queue.h"
#include "model/plan.h"

/* Keys and values of the positions generated so far: per layer (capacity, kv_heads * head_dim). */
typedef struct ls_kv_cache {
    ls_tensor *keys;   /* one per layer */
    ls_tensor *values; /* one per layer */
    int64_t capacity;
    int64_t length; /* positions held */
} ls_kv_cache;

typedef struct ls_walk {
    ls_queue *queue;     /* borrowed */
    const ls_plan *plan; /* borrowed */
    float *arena;        /* plan->arena_floats floats, owned */
    size_t arena_bytes;
    ls_tensor cosine, sine; /* rotary tables, owned; absent without rotary positions */
    size_t rope_bytes;
    ls_kv_cache *cache; /* borrowed; set while generating, else NULL */
} ls_walk;

/* One micro-batch. */
typedef struct ls_walk_batch {
    const float *parameters; /* flat, layout of the plan */
    float *gradients;        /* flat; NULL unless training */
    bool accumulate;         /* weight gradients are added to what is there, else they replace it */
    const int32_t *tokens;   /* sequences * length */
    const int32_t *targets;  /* the same, LS_TARGET_IGNORED where there is none; NULL without losses */
    float *losses;           /* out: per token; NULL without losses */
    /* Called before each step, and behind each backward step; an error ends the walk. NULL: nothing is called. */
    ls_status (*before_step)(void *context, uint32_t step);
    ls_status (*after_step)(void *context, uint32_t step);
    void *context;
} ls_walk_batch;

/* Allocates the arena and the rotary tables. positions: how many the tables cover, the plan's length or, with a cache, its
 * capacity. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_walk_init(ls_walk *walk, ls_queue *queue, const ls_plan *plan, int64_t positions);
void ls_walk_release(ls_walk *walk);

/* Runs all forward steps. In a training plan the head also leaves its gradients. */
LS_MUST_CHECK ls_status ls_walk_forward(ls_walk *walk, const ls_walk_batch *batch);

/* Runs all backward steps; after ls_walk_forward with the same batch. */
LS_MUST_CHECK ls_status ls_walk_backward(ls_walk *walk, const ls_walk_batch *batch);

/* Runs step `index` of the plan alone; execution/diagnose/op_trace.h looks at what each one wrote. */
LS_MUST_CHECK ls_status ls_walk_step(ls_walk *walk, const ls_walk_batch *batch, uint32_t index);

/* View of a value of the plan. */
ls_tensor ls_walk_value(const ls_walk *walk, int32_t value);

/* "embedding", "norm", ... */
const char *ls_op_kind_name(ls_op_kind kind);

/* Plan options with this machine's workspace sizes. */
ls_plan_options ls_walk_plan_options(void);

/* logits (n, vocab) = hidden (n, width) times the head's weight. */
LS_MUST_CHECK ls_status ls_walk_logits(ls_walk *walk, const float *parameters, const ls_tensor *hidden,
                                       const ls_tensor *logits);

#endif

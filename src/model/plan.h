// SPDX-License-Identifier: Apache-2.0
/*
 * The op plan: a model as a list of typed ops, the order in which they run, and where their values
 * lie in memory.
 *
 * The plan is built once from a configuration and has several readers: the runtime executes its
 * steps, the planner adds up its FLOPs and bytes, and the memory plan uses its arena size. Nothing
 * here computes. A built plan is read-only: any number of threads may use it.
 *
 *   ops      what there is to do: embedding, norm, linear, rotary, attention, ...; each has a
 *            forward, an input gradient and (linear, embedding) a weight gradient
 *   values   matrices that ops read and write: activations, saved statistics, gradients, workspaces.
 *            Statistics and workspaces are float32, the others what the options say
 *   steps    (phase, op) in execution order for one micro-batch: forward 0..forward_steps-1, then
 *            backward
 *   offsets  each value lives from the first step that uses it to the last; values whose lives do
 *            not overlap share memory
 *
 * Forward, per layer (n = sequences * length rows, or those of a piece; [] only in some families):
 *
 *   embedding                    tokens -> stream
 *   norm | add_norm              layer 0 norms the stream; later layers first add the previous
 *                                layer's MLP
 *   linear qkv
 *   [qk_norm] [rotary]           rotary turns queries and keys in place
 *   attention
 *   linear output
 *   add_norm                     stream + attention branch, then norm
 *   linear up                    gate|up fused when swiglu
 *   gelu | swiglu
 *   linear down
 *      or, in a layer with experts:
 *   linear router, route         scores of all experts; which experts each token visits
 *   dispatch                     a row for each token and expert, in the order of the experts
 *   expert linear up, swiglu, expert linear down
 *   combine                      weighted sums of a token's rows
 *   ... next layer ...
 *   add_norm                     the last MLP joins; final norm
 *   head_loss                    chunks of logits -> losses; in training also dhidden and its
 *                                weight gradient
 *
 * Backward runs the same list from the end. The head has no backward step: while it has a chunk of
 * logits it also computes its gradients, during forward. A linear has two steps, BACKWARD_WEIGHT
 * first, so that its input dies before the input's gradient is born; the weight gradients of norms
 * are made by their BACKWARD_INPUT step, the embedding has one BACKWARD_WEIGHT step and nothing
 * else.
 *
 * The residual stream. add_norm computes sum = a + b and y = norm(sum). Its gradient buffer is one
 * value shared by all add_norms (and layer 0's norm): the norm's input gradient is accumulated into
 * it, and it then is the gradient of both a and b. So both gradients of the linear that produced b
 * must run before the next add_norm backward does: the order of the steps guarantees it. The final
 * add_norm comes first in backward: it writes the buffer instead of accumulating (accumulate_din
 * false, dout[0] absent).
 *
 * In place. Where the kernels allow it a gradient takes the place of a value that is dead: gelu's
 * input gradient that of its output gradient (din[0] == dout[0]), swiglu's input gradient that of
 * its input (din[0] == in[0]), rotary works on the gradient of queries and keys (din[0] ==
 * dout[0]).
 *
 * Frozen parameters have no gradients: a backward step exists only if it makes the gradient of a
 * trained parameter, or a value that such a step reads. So below the lowest trained parameter
 * nothing runs backward, and no values are kept for it.
 *
 * Adapters (model/adapter.h). Each linear with an adapter is followed by an op that adds the
 * adapter's product to the linear's output, in place: low = scale * x A^T, where one A has the rows
 * of all its fused linears, then y[segment] += low[part] B^T. Its BACKWARD_WEIGHT step makes dlow
 * and the gradients of A and B, its BACKWARD_INPUT step, after the linear's, adds dlow A to dx. low
 * is kept from the first forward pass whatever is recomputed.
 *
 * Stages. A plan may have only some of the layers, those of a pipeline stage (model/pipeline.h,
 * model/plan_stage.h). The first stage has the embedding, the last one the final norm and the head.
 * Another stage begins with the stream that it receives and ends with the one that it sends:
 *
 *   received stream (stage.in)            norm, layers, add: sum of the last layer's two branches
 *                                         = sent stream (stage.out)
 *   received gradient of the stream       backward
 *   (stage.dout, "d stream")              = sent gradient of the received stream (stage.din, the
 *                                         same value)
 *
 * The first op of such a stage is a plain norm of the stream, with the bits of the add_norm of a
 * plan with all layers. Parameters keep their places in the flat buffers.
 *
 * Slots. A stage begins later micro-batches before it ends earlier ones. What a micro-batch keeps
 * from one of its passes to a later one exists once per slot, everything else once:
 *
 *   arena   | slot 0 | slot 1 | ... | values of the running pass |
 *
 * Split backward, for zero-bubble schedules: the BACKWARD_WEIGHT steps follow all others, so that
 * the gradient of the input can be sent before them. The gradient of the stream changes while it
 * passes the layers; the linears that read it later read a copy (LS_OP_ADD without a second
 * addend).
 *
 * Cut and tensor group. What members of a tensor group add is added in the same pieces by a
 * process that computes alone: `tensor_cut` says in how many. The products of `output` and `down`
 * are cut in forward; those of qkv, up and the head in BACKWARD_INPUT; the losses by vocabulary;
 * the gradients of norms by rows, and those of the q and k norms by heads (base/pieces.h).
 *
 * With `tensor_degree` above 1 the plan is that of one member: heads, ffn, vocabulary, and rows of
 * the residual stream and its norms are its part. LS_OP_GATHER makes all rows of a norm's output
 * before a linear, LS_OP_SCATTER the member's rows of the sum of what the members' linears made,
 * and of the embedding. Backward each does what the other does forward:
 *
 *   stream -> norm -> GATHER -> qkv | up -> ... -> output | down -> SCATTER -> stream
 *   (own rows)        (all)    (own columns)       (partial sums)             (own rows)
 *
 * Weights and gradients keep the layout of the whole model, and members write disjoint parts of
 * the gradients, so they may share one buffer: pieces are written by their holder, what all compute
 * alike by member 0.
 *
 * In layers with experts all members route all tokens alike; each has its columns of every expert.
 * LS_OP_SUM adds up what the members' experts make of each visit, and backward the gradients of
 * what they read, so combine and dispatch see the visits of one process:
 *
 *   norm -> GATHER -> router, route, dispatch -> up -> ... -> down -> SUM -> combine -> SCATTER
 *   (own rows)        (all)                      (own columns)       (all)            (own rows)
 *
 * Their GATHER and SCATTER are `alike`.
 *
 * Tied embeddings. The gradient of a table that is the head's weight, too, has two parts: the sum
 * over the micro-batches of a leaf of what the head makes, in a value that lasts from one
 * micro-batch to the next ("head gradient"), and the sum of what the embedding makes, in the flat
 * gradients. They are added once per leaf, after its last micro-batch: embedding + head. Between
 * stages the head's part travels (execution/executor/stage.h).
 *
 * Sequence cut and context group. `sequence_cut` C cuts every sequence into 2 C runs of tokens;
 * piece i has runs i and 2 C - 1 - i of each sequence of the micro-batch, so that all pieces have
 * the same number of pairs of a query and an earlier key:
 *
 *   tokens of a sequence, C = 2     | run 0   | run 1   | run 2   | run 3   |
 *                                     piece 0   piece 1   piece 1   piece 0
 *
 * The plan is that of one piece: its values have `rows` rows (ls_plan_token says which tokens they
 * are), every step runs once for each piece that a process holds, and each piece has values and
 * gradients of its own. So what a piece gives does not depend on who holds the others, and what is
 * summed over tokens (gradients of weights, losses) is added in the tree over pieces, once per
 * leaf. Only attention looks beyond its piece: keys and values of all pieces are brought into the
 * order of tokens, and their gradients are added in the tree over the pieces of the queries.
 * Members of a context group hold consecutive pieces and exchange just these
 * (ls_plan_context_floats).
 *
 *   arena   | piece 0 | piece 1 | ... | keys, values and their gradients, of all tokens |
 *
 * Expert group. Its members compute different leaves side by side, and each has a run of the
 * experts. A member routes its own tokens; LS_OP_TO_EXPERTS brings the rows of all members' visits
 * to the experts that they visit, LS_OP_FROM_EXPERTS brings what the experts make of them back, and
 * backward each does what the other does forward. A member's rows stay apart from the others', in
 * the order in which it has them itself, so every product has the rows, and every sum the order, of
 * a process alone; the gradient of an expert's weight goes into the buffer of the leaf whose tokens
 * made it.
 *
 *   route -> dispatch -> TO_EXPERTS -> up -> swiglu -> down -> FROM_EXPERTS -> combine
 *   (own tokens)                       (own experts)                           (own tokens)
 *
 * How many rows arrive is known only when they do. There is room for the most that can: all visits
 * of all members' tokens to own experts.
 *
 * Recompute. A value that is not kept is computed again during backward by a clone of its op, as
 * late as possible; the clone has values of its own, so that liveness stays simple. When a layer
 * recomputes anything, its backward steps belong to a second set of ops that read the clones'
 * values; a clone of an add_norm whose sum was kept is a plain norm of that sum. none everything
 * is kept selective norm outputs (qk_norm's too), activations (gelu, swiglu) and dispatched rows
 * are made again: cheap, no products full only the stream at the layer's entry is kept; everything
 * else but the down projection is made again at the start of the layer's backward
 */
#ifndef LS_MODEL_PLAN_H
#define LS_MODEL_PLAN_H

#include "lockstep/dtype.h"
#include "model/layout.h"

typedef enum ls_op_kind {
    LS_OP_EMBEDDING, /* tokens -> out 0: (n, width); parameters: table, positions (or none) */
    LS_OP_NORM,      /* in 0 -> out 0; stats mean (layer norm), rstd; parameters: weight, bias */
    LS_OP_ADD_NORM,  /* in 0, in 1 -> out 0 sum, out 1 norm(sum); stats, parameters as norm */
    LS_OP_LINEAR,    /* in 0 -> out 0; parameters: weight, bias */
    /* in 0: qkv -> out 0: (n, (heads + kv_heads) head_dim); rstd stats (n, heads + kv_heads);
     * parameters: q norm, k norm */
    LS_OP_QK_NORM,
    /* in place on the query and key columns of in 0 (== out 0) */
    LS_OP_ROTARY,
    /* in 0: holds q and k; in 1: holds v; out 0: (n, heads head_dim); stats: lse (n, heads) */
    LS_OP_ATTENTION,
    LS_OP_GELU,
    /* in 0: (n, 2 ffn) gate|up -> out 0: (n, ffn) */
    LS_OP_SWIGLU,
    /* in 0: (n, width) -> losses; in training also gradients; parameters: weight (the table when
     * tied) */
    LS_OP_HEAD_LOSS,
    /* in 0: (n, in), out 0: (n, out), added to; low, dlow: (n, ranks of all segments that have an
     * adapter); parameters: first A, first B */
    LS_OP_ADAPTER,
    /* in 0 -> out 0, din 0 added to: what an adapter reads while training with dropout */
    LS_OP_DROPOUT,
    /* in 0 + in 1 -> out 0, or a copy of in 0 if in 1 is absent; forward only */
    LS_OP_ADD,
    /* in 0: (n, experts) logits, in place -> out 0: probabilities; out 1: (n, experts_per_token)
     * weights, float32; writes routes, which the next three read */
    LS_OP_ROUTE,
    /* in 0: (n, width) -> out 0: (n experts_per_token, width), the rows of an expert adjacent */
    LS_OP_DISPATCH,
    /* in 0 -> out 0: a linear of each expert on its rows; parameter: weight of the first expert */
    LS_OP_EXPERT_LINEAR,
    /* in 0: the experts' rows, in 1: weights -> out 0: (n, width); din 0 may be in 0 */
    LS_OP_COMBINE,
    /* in a tensor group: in 0, own rows -> out 0: (n, cols), those of all members; din 0: own rows
     * of the sum over the members of dout 0 */
    LS_OP_GATHER,
    /* in a tensor group: in 0: (n, cols) -> out 0, own rows of the sum over the members; din 0:
     * the rows of dout 0 of all members; parameter: bias, which is added (its gradient is the
     * linear's) */
    LS_OP_SCATTER,
    /* in a tensor group, in place: in 0, and backward dout 0, becomes the sum over the members;
     * each adds up its own rows, and then all are gathered */
    LS_OP_SUM,
    /* in an expert group: in 0, rows of the visits of own tokens -> out 0, those of the visits of
     * all members' tokens to own experts, member by member; writes the second part of routes */
    LS_OP_TO_EXPERTS,
    /* in 0, rows of the visits to own experts -> out 0, those of the visits of own tokens */
    LS_OP_FROM_EXPERTS,
    LS_OP_KIND_COUNT
} ls_op_kind;

typedef enum ls_phase { LS_PHASE_FORWARD, LS_PHASE_BACKWARD_INPUT, LS_PHASE_BACKWARD_WEIGHT } ls_phase;

typedef enum ls_recompute { LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL } ls_recompute;

enum { LS_OP_VALUES_MAX = 2, LS_OP_STATS_MAX = 2, LS_OP_PARAMETERS_MAX = 2, LS_NONE = -1 };

/* Which dimension of a linear the members of a tensor group divide. */
typedef enum ls_linear_split {
    LS_LINEAR_SPLIT_NONE,
    LS_LINEAR_SPLIT_OUT, /* every segment of the outputs; the sum over the members is din */
    LS_LINEAR_SPLIT_IN   /* the inputs; the sum over the members, plus the bias, is the output */
} ls_linear_split;

typedef struct ls_op {
    ls_op_kind kind;
    int32_t layer; /* -1: outside the layers */
    /* Value indices, LS_NONE where absent. */
    int32_t in[LS_OP_VALUES_MAX];
    int32_t out[LS_OP_VALUES_MAX];
    /* norms: mean, rstd; attention: lse; qk_norm: LS_NONE, rstd; head: statistics of the chunk's
     * losses (3, chunk_rows) in a tensor group, workspace of BACKWARD_INPUT */
    int32_t stats[LS_OP_STATS_MAX];
    /* gradients of in[], written (or accumulated into) by BACKWARD_INPUT */
    int32_t din[LS_OP_VALUES_MAX];
    int32_t dout[LS_OP_VALUES_MAX]; /* gradients of out[] */
    bool accumulate_din;            /* BACKWARD_INPUT adds to din[0] instead of writing it */
    /* scratch of forward, of BACKWARD_INPUT, or of both; head: the chunk of logits */
    int32_t workspace;
    /* First parameter of the op's tensors, LS_NONE where absent. A fused linear (q, k, v) names its
     * first tensor. */
    /* qk_norm: weight = q norm, bias = k norm; embedding: weight = table, bias = positions */
    int32_t weight, bias;
    int64_t in_features, out_features; /* linear */
    bool weight_in_out;                /* linear: weight is (in, out), GPT-2's Conv1D */
    ls_linear_split split;             /* linear; LS_LINEAR_SPLIT_NONE without a tensor group */
    bool alike; /* gather, scatter: the members have all rows alike, so they are not added up */
    /* Pieces of this plan: linear; the second only: head, of its vocabulary; norms, of their rows;
     * qk_norm, of its heads. 1: none */
    uint32_t forward_cut, backward_input_cut;
    uint32_t segment_count; /* linear, adapter: fused outputs */
    int64_t segment[3];
    bool segment_adapted[3]; /* adapter: this segment has one */
    int32_t low, dlow;       /* adapter; LS_NONE elsewhere */
    /* ops of experts: compute/kernels/experts.h; in an expert group then, for each member, where
     * the rows of its visits to each own expert begin. LS_NONE elsewhere */
    int32_t routes;
    uint32_t site;      /* dropout: a number of its own in the model */
    int64_t window;     /* attention */
    int64_t chunk_rows; /* head: tokens whose logits exist at once */
    /* head, embedding: value with the head's part of a tied table's gradient; LS_NONE: none */
    int32_t dweight;
} ls_op;

typedef struct ls_value {
    const char *name; /* for people: "layer 3 qkv" */
    ls_dtype dtype;
    int64_t rows, cols; /* elements */
    int64_t stride;     /* elements from one row to the next, at least cols */
    /* from the start of the arena, or of a slot, in units of 4 bytes, multiple of 64 */
    int64_t offset;
    bool in_slot;                  /* every slot has one (ls_plan_offset) */
    int32_t first_step, last_step; /* life, inclusive; written and read; -1: not used by any step */
    /* nothing is kept between first_step and last_step: only those two need the memory */
    bool scratch;
} ls_value;

typedef struct ls_plan_step {
    ls_phase phase;
    int32_t op;
} ls_plan_step;

/*
 * Scratch memory that kernels need, in floats. This layer must not depend on compute/, so the
 * caller that runs the plan fills these in from the kernel headers (ls_norm_workspace_floats,
 * ls_linear_workspace_floats, ls_attention_workspace_floats). A NULL member stands for an estimate,
 * enough to plan with but not to run:
 *
 *   norm       2 * min(n, 64) * cols / groups    sums over blocks of rows, for weight and bias
 *   linear     (ceil(log2 pieces) + 1) * n * (out in forward, in in backward), the larger; 0 when
 *              nothing is cut
 *   attention  n * heads                             one dot product per row and head
 */
typedef struct ls_plan_workspaces {
    const void *context; /* first argument of norm and attention */
    int64_t (*norm)(const void *context, int64_t n, int64_t cols, int64_t groups);
    int64_t (*linear)(int64_t n, int64_t in, int64_t out, uint32_t forward_cut, uint32_t backward_input_cut);
    int64_t (*attention)(const void *context, int64_t sequences, int64_t length,
                         const ls_model_config *config, int64_t window);
} ls_plan_workspaces;

typedef struct ls_plan_options {
    int64_t sequences; /* per micro-batch, >= 1 */
    int64_t length;    /* tokens per sequence, 1..context */
    bool training;     /* false: forward only, nothing saved */
    /* false (with training false): no head; the last norm's output is the result (generation) */
    bool losses;
    ls_recompute recompute;
    /* canonical tensor-parallel degree, divides heads, kv_heads and ffn (of an expert); 1: none */
    uint32_t tensor_cut;
    /* members of the tensor group, which divides tensor_cut, and whose plan this is; 0 is read as
     * 1: all pieces. Above 1: float32, no adapter */
    uint32_t tensor_degree, tensor_member;
    /* coefficient of the balance loss of layers with experts (compute/kernels/experts.h) */
    double balance_loss;
    /* Pieces of each sequence while training, a power of two; 0 is read as 1: none. Above 1:
     * float32 on a CPU, no adapter. */
    uint32_t sequence_cut;
    /* members of the context group, which divides sequence_cut, and whose plan this is; 0: 1 */
    uint32_t context_degree, context_member;
    /* members of the expert group, a power of two that divides the experts, and whose plan this is;
     * 0: 1 */
    uint32_t expert_degree, expert_member;
    ls_plan_workspaces workspaces;
    /* type of activations and their gradients: LS_F32, or LS_BF16 on a GPU */
    ls_dtype activations;
    /* rows of logits are a multiple of this many elements apart; 0: 1 */
    int64_t logits_align;
    /* tokens whose logits exist at once, at most; 0: as many as fill 64 MiB of float32. Part of the
     * determinism class. */
    int64_t logits_rows;
    /* Layers of a stage, while training: `layer_count` from `first_layer` on. 0, 0: all. */
    uint32_t first_layer, layer_count;
    /* micro-batches that a stage holds at once; 0: 1 */
    uint32_t slots;
    bool split_backward; /* gradients of weights follow all other backward steps */
} ls_plan_options;

/* The values that a stage exchanges with its neighbours, (n, width); LS_NONE at the ends of the
 * model. */
typedef struct ls_plan_stage {
    int32_t in, out;   /* the stream: received from the stage before, sent to the one after */
    int32_t din, dout; /* their gradients: sent to the stage before, received from the one after */
} ls_plan_stage;

/* Keys and values of all tokens of the micro-batch, in a plan whose sequences are cut: where they
 * are in the arena, in floats. `cols` columns: keys, then values. */
typedef struct ls_plan_context {
    int64_t cols;
    int64_t keys;      /* (sequences * length, cols), in the order of tokens */
    int64_t gradients; /* of keys; also what a gather writes */
    int64_t sums;      /* of `sum_count` pieces, (length, cols) each, and of one run */
    int64_t sum_count;
    int64_t own; /* of this member's pieces, packed; in a context group only */
} ls_plan_context;

/* Pieces that a sequence can be cut into, members of an expert group, and both multiplied, at most:
 * the gradients that a crew makes side by side. */
enum { LS_SHARES_MAX = 8, LS_SEQUENCE_CUT_MAX = LS_SHARES_MAX, LS_EXPERT_DEGREE_MAX = LS_SHARES_MAX };

typedef struct ls_plan {
    /* of a member of a tensor group: heads, kv_heads, ffn and vocab are those that it computes */
    ls_model_config config;
    int64_t vocab_first; /* its ids are [vocab_first, vocab_first + config.vocab) */
    int64_t own_rows;    /* of the residual stream, that it has; the tokens of a micro-batch */
    ls_plan_options options;
    const ls_layout *layout; /* borrowed */
    ls_op *ops;
    uint32_t op_count;
    ls_value *values;
    uint32_t value_count;
    ls_plan_step *steps;
    uint32_t step_count;
    uint32_t forward_steps;
    /* first of the steps that follow the others with split_backward; else step_count */
    uint32_t first_weight_step;
    ls_plan_stage stage;
    uint32_t pieces;      /* of each sequence that the process holds; 1 without a sequence cut */
    int64_t rows;         /* of a piece: of values that have a row per token */
    int64_t run;          /* tokens of a sequence that follow each other in the rows of a piece */
    int64_t piece_floats; /* memory of the values of one piece */
    ls_plan_context context;
    int64_t arena_floats; /* memory of all values of all pieces in all slots */
    int64_t slot_floats;  /* of one slot; 0 with a single one */
    /* the most that is alive at one step, a lower bound for any placement */
    int64_t live_floats;
    int32_t hidden; /* value: output of the final norm */
    int32_t logits; /* value: chunk of logits (head workspace), or LS_NONE */
    /* value: gradient of hidden, written by the head; LS_NONE unless training */
    int32_t dhidden;
    int32_t head_gradient; /* value: the head's part of a tied table's gradient, or LS_NONE */
} ls_plan;

/*
 * Builds the plan of a checked configuration; tables live in `arena`, `layout` must outlive it.
 * Pure: the same arguments give the same plan, byte for byte, on every machine (chunk_rows and
 * offsets included). Errors: LS_ERR_INVALID (options out of range, training without losses, cut
 * that does not divide), LS_ERR_UNSUPPORTED (an adapter on a stage); plan_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_plan_build(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                                      const ls_plan_options *options, ls_plan *plan_out);

/* FLOPs of one micro-batch by the full-attention convention (a product of (n, k) and (k, m) is 2 n
 * k m; attention counts all T x T pairs), forward and backward (of the gradients that are made:
 * fewer when parameters are frozen). `recomputed` is what clones add: MFU counts forward +
 * backward, HFU adds recomputed. */
typedef struct ls_plan_flops {
    double forward, backward, recomputed;
    /* the same, counting only the pairs that causality (and the window) leaves */
    double causal_forward;
} ls_plan_flops;
ls_plan_flops ls_plan_count_flops(const ls_plan *plan);

/* Memory of a training run in bytes. */
typedef struct ls_memory_plan {
    /* one flat buffer, one, two; the last two for trained parameters only */
    uint64_t parameters, gradients, optimizer;
    uint64_t tree; /* extra gradient buffers of the fixed tree of leaves */
    /* what compression keeps, of this step and the last */
    uint64_t residuals;
    uint32_t tree_buffers;
    uint64_t activations; /* the arena without logits and the gradient of a tied head */
    uint64_t logits;      /* chunk of logits */
    uint64_t other;       /* tables, norm sums, token buffers, gradient of a tied head */
    uint64_t total;
} ls_memory_plan;
/* group: 0, or the leaves of a group whose sums are compressed (comm/transport/tree.h), and then
 * residuals: how many flat buffers that keeps (base/compression.h). */
ls_memory_plan ls_plan_memory(const ls_plan *plan, uint32_t leaves, uint32_t group, uint32_t residuals);

/* Bytes of the arena, in pages of 2 MiB, that are never written if the experts of each member of an
 * expert group get as many visits as those of the others. `arena` is for scratch tables. */
uint64_t ls_plan_unvisited_bytes(ls_arena *arena, const ls_plan *plan);

/* Gradient buffers that one process needs to reduce `leaves` leaves, computed in order, in the
 * fixed binary tree: 1 for one leaf; else the deepest stack of partial sums, the running leaf
 * included. group: as above; the sum of each group keeps a buffer until the end. */
uint32_t ls_tree_buffers(uint32_t leaves, uint32_t group);

/* The token, counted over the sequences of the micro-batch, that row `row` of piece `piece` is;
 * piece: among those that the process holds. plan->run rows from a multiple of it on are adjacent
 * tokens. */
int64_t ls_plan_token(const ls_plan *plan, uint32_t piece, int64_t row);

/* Floats that a member gives to the others of its context group in step `step`; 0 without a group.
 * */
uint64_t ls_plan_context_floats(const ls_plan *plan, uint32_t step);

/* Floats of this member that others of its expert group read in step `step`, if `crossing` rows of
 * each piece of the sequences go from it to others: these rows, to each the sizes of all blocks
 * (8 bytes), and before the way to the experts in forward how many rows each expert gets (4 bytes).
 * 0 without a group. */
uint64_t ls_plan_visit_floats(const ls_plan *plan, uint32_t step, uint64_t crossing);

/* Floats that step `step` exchanges with the members of the tensor group: the sizes of the sums,
 * and of what is gathered. 0 without a group. All members have the same steps. */
uint64_t ls_plan_exchanged_floats(const ls_plan *plan, uint32_t step);

/* Floats of this member that others read in step `step`, once for each: of its tensor group, and of
 * its context group. From the two above: of a gather each other member reads the own rows, of a
 * scatter its own ones, of a sum all; LS_OP_SUM is a scatter and a gather. */
uint64_t ls_plan_tensor_floats_given(const ls_plan *plan, uint32_t step);
uint64_t ls_plan_context_floats_given(const ls_plan *plan, uint32_t step);

/* The last step of a training plan that writes gradients of bucket `bucket`: after it they are
 * final, unless another micro-batch follows. 0: it writes none of them. step_count: they are final
 * only when the head's part has come from another stage. */
uint32_t ls_plan_last_gradient_step(const ls_plan *plan, uint32_t bucket);

/* Where value `value` of the micro-batch in `slot` begins in the arena, in units of 4 bytes. */
int64_t ls_plan_offset(const ls_plan *plan, int32_t value, uint32_t slot);

/* What a step does with a value. */
typedef enum ls_use { LS_USE_READ = 1, LS_USE_WRITE = 2, LS_USE_SCRATCH = 4 } ls_use;
typedef struct ls_value_use {
    int32_t value;
    uint32_t use; /* ls_use, or-ed */
} ls_value_use;
enum { LS_STEP_USES_MAX = 12 };

/* The values that step `step` touches, each at least once, at most 12; returns how many. */
uint32_t ls_plan_step_uses(const ls_plan *plan, uint32_t step, ls_value_use uses_out[LS_STEP_USES_MAX]);

/* Checks all promises of the plan: every value that is read was written, no two live values
 * overlap, shapes fit; stops the process if one is broken. Debug builds call it after build. */
void ls_plan_check(const ls_plan *plan);

#endif

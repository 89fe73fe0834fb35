// SPDX-License-Identifier: Apache-2.0
/* The options of a plan: what is allowed, and estimates of workspaces. */
#include "base/pieces.h"
#include "model/plan_internal.h"

/* ---- workspaces ---- */

static int64_t estimate_norm(const void *context, int64_t n, int64_t cols, int64_t groups)
{
    (void)context;
    const int64_t blocks = n < 64 ? n : 64;
    return 2 * blocks * (cols / groups);
}

/* Partial sums alive at once while `pieces` are combined in a binary tree: one per level, and
 * the piece being computed. */
static int64_t partial_sums(uint32_t pieces)
{
    return pieces > 1 ? 33 - __builtin_clz(pieces - 1) : 0;
}

static int64_t estimate_linear(int64_t n, int64_t in, int64_t out, uint32_t forward_cut,
                               uint32_t backward_input_cut)
{
    const int64_t forward = partial_sums(forward_cut) * n * out;
    const int64_t backward = partial_sums(backward_input_cut) * n * in;
    return forward > backward ? forward : backward;
}

static int64_t estimate_attention(const void *context, int64_t sequences, int64_t length,
                                  const ls_model_config *config, int64_t window)
{
    (void)context, (void)window;
    return sequences * length * config->heads;
}

ls_plan_workspaces ls_plan_workspaces_or_estimates(ls_plan_workspaces given)
{
    return (ls_plan_workspaces){
        .context = given.context,
        .norm = given.norm ? given.norm : estimate_norm,
        .linear = given.linear ? given.linear : estimate_linear,
        .attention = given.attention ? given.attention : estimate_attention,
    };
}

/* ---- what is allowed ---- */

static ls_status check_cut(const char *what, int64_t size, uint32_t cut)
{
    if (size % cut != 0) {
        return ls_fail(LS_ERR_INVALID, "plan: train.tensor_cut is %u, but %s, %lld, must be a multiple of it",
                       cut, what, (long long)size);
    }
    return LS_OK;
}

static ls_status check_stage(const ls_model_config *config, const ls_layout *layout, const ls_plan_options *o)
{
    const uint64_t past = (uint64_t)o->first_layer + o->layer_count, layers = (uint64_t)config->layers;
    const bool is_part = o->first_layer > 0 || (o->layer_count > 0 && o->layer_count < layers);
    if (past > layers || (o->first_layer > 0 && o->layer_count == 0)) {
        return ls_fail(
            LS_ERR_INVALID,
            "plan: a stage of %u layers from layer %u on is not possible: the model has %llu layers, "
            "and a stage needs at least one",
            o->layer_count, o->first_layer, (unsigned long long)layers);
    }
    if (!is_part && o->slots <= 1 && !o->split_backward) {
        return LS_OK;
    }
    if (!o->training) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: stages, slots and a split backward pass need option `training`; without it "
                       "the plan has all layers");
    }
    if (o->slots > 1 << 20) {
        return ls_fail(LS_ERR_INVALID, "plan: the number of slots is %u; it must be at most %d", o->slots,
                       1 << 20);
    }
    return layout->adapter ? ls_fail(LS_ERR_UNSUPPORTED,
                                     "plan: a model with an adapter cannot be cut into pipeline stages; use "
                                     "one stage, or train without adapter")
                           : LS_OK;
}

static uint32_t next_power(uint32_t value)
{
    uint32_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

static ls_status check_group(const ls_layout *layout, const ls_plan_options *o)
{
    const bool is_power = (o->tensor_cut & (o->tensor_cut - 1)) == 0;
    if (!is_power || o->tensor_cut % o->tensor_degree != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: parallel.tensor is %u and train.tensor_cut %u; the cut must be a power of two "
                       "and a multiple of parallel.tensor, for example %u",
                       o->tensor_degree, o->tensor_cut, next_power(o->tensor_degree));
    }
    if (o->tensor_member >= o->tensor_degree) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: there is no member %u in a tensor group of %u; they are 0 to %u",
                       o->tensor_member, o->tensor_degree, o->tensor_degree - 1);
    }
    if (layout->adapter) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "plan: parallel.tensor is %u, but adapters are trained with 1 only; set "
                       "parallel.tensor: 1 and use ranks for data",
                       o->tensor_degree);
    }
    if (o->activations != LS_F32) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "plan: parallel.tensor is %u, which works on CPUs in fp32 only; set parallel.tensor: 1",
            o->tensor_degree);
    }
    return LS_OK;
}

static ls_status check_pieces(const ls_layout *layout, const ls_plan_options *o)
{
    const uint32_t cut = o->sequence_cut, degree = o->context_degree > 1 ? o->context_degree : 1;
    if (cut > LS_SEQUENCE_CUT_MAX || (cut & (cut - 1)) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: train.sequence_cut is %u; it must be a power of two from 1 to %d", cut,
                       LS_SEQUENCE_CUT_MAX);
    }
    if (degree > cut || cut % degree != 0 || o->context_member >= degree) {
        return ls_fail(
            LS_ERR_INVALID,
            "plan: parallel.context is %u (member %u) and train.sequence_cut %u; the cut must be a "
            "multiple of parallel.context, for example %u",
            degree, o->context_member, cut, next_power(degree));
    }
    if (o->length % (2 * (int64_t)cut) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: train.sequence_cut is %u, but the sequences have %lld tokens, which must be a "
                       "multiple of twice the cut, %u",
                       cut, (long long)o->length, 2 * cut);
    }
    return layout->adapter || o->activations != LS_F32
               ? ls_fail(
                     LS_ERR_UNSUPPORTED,
                     "plan: train.sequence_cut is %u, but adapters, and bf16, are trained with 1 only; set "
                     "train.sequence_cut: 1",
                     cut)
               : LS_OK;
}

static ls_status check_expert_group(const ls_model_config *config, const ls_plan_options *o)
{
    const uint32_t degree = o->expert_degree;
    if (config->experts == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: parallel.expert is %u, but the model has no experts; set it to 1", degree);
    }
    if (degree > LS_EXPERT_DEGREE_MAX || (degree & (degree - 1)) != 0 || config->experts % degree != 0 ||
        o->expert_member >= degree) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: parallel.expert is %u (member %u); it must be a power of two up to %d that "
                       "divides the number of experts, %lld",
                       degree, o->expert_member, LS_EXPERT_DEGREE_MAX, (long long)config->experts);
    }
    if (!o->training || o->activations != LS_F32) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "plan: parallel.expert is %u, which is for training on CPUs in fp32", degree);
    }
    return o->sequence_cut <= (uint32_t)LS_SHARES_MAX / degree
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "plan: parallel.expert is %u and train.sequence_cut %u; their product must be at "
                         "most %d: use parallel.expert %u",
                         degree, o->sequence_cut, LS_SHARES_MAX, (uint32_t)LS_SHARES_MAX / o->sequence_cut);
}

ls_status ls_plan_check_options(const ls_model_config *config, const ls_layout *layout,
                                const ls_plan_options *o)
{
    if (o->sequences < 1 || o->sequences > 1 << 20) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: the number of sequences per micro-batch is %lld; it must be 1 to %d",
                       (long long)o->sequences, 1 << 20);
    }
    if (o->length < 1 || o->length > config->context) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: the sequences have %lld tokens, but the model's context allows only 1 to %lld",
                       (long long)o->length, (long long)config->context);
    }
    if (o->training && !o->losses) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: option `training` needs option `losses`, too; set both or neither");
    }
    if ((unsigned)o->recompute > LS_RECOMPUTE_FULL) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: recompute is %d; it must be 0 (none), 1 (selective) or 2 (full)",
                       (int)o->recompute);
    }
    if (o->tensor_cut < 1 || o->tensor_cut > LS_PIECES_MAX) {
        return ls_fail(LS_ERR_INVALID, "plan: train.tensor_cut is %u; it must be 1 to %d", o->tensor_cut,
                       LS_PIECES_MAX);
    }
    LS_TRY(check_stage(config, layout, o));
    const int64_t rows = o->sequences * o->length / (o->sequence_cut > 1 ? o->sequence_cut : 1);
    if (rows < o->tensor_cut) {
        return ls_fail(
            LS_ERR_INVALID,
            "plan: train.tensor_cut is %u, but there are only %lld tokens in a micro-batch, or in a "
            "piece of it; use a smaller cut or a larger train.micro_batch",
            o->tensor_cut, (long long)rows);
    }
    LS_TRY(check_cut("heads", config->heads, o->tensor_cut));
    LS_TRY(check_cut("kv_heads", config->kv_heads, o->tensor_cut));
    LS_TRY(check_cut(config->experts > 0 ? "expert_ffn" : "ffn", ls_model_config_mlp_ffn(config),
                     o->tensor_cut));
    if (config->vocab < o->tensor_cut) {
        return ls_fail(LS_ERR_INVALID,
                       "plan: train.tensor_cut is %u, but the vocabulary has only %lld tokens", o->tensor_cut,
                       (long long)config->vocab);
    }
    if (o->training && (o->sequence_cut > 1 || o->context_degree > 1)) {
        LS_TRY(check_pieces(layout, o));
    }
    LS_TRY(o->expert_degree > 1 ? check_expert_group(config, o) : LS_OK);
    return o->tensor_degree > 1 ? check_group(layout, o) : LS_OK;
}

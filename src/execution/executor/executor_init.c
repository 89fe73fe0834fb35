// SPDX-License-Identifier: Apache-2.0
/* The options of a plan for a device, and the memory of an executor. */
#include "compute/kernels/attention.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "execution/executor/executor_internal.h"
#include "model/rope.h"

/* ---- plan options ---- */

static int64_t attention_workspace(const void *queue, int64_t sequences, int64_t length,
                                   const ls_model_config *config, int64_t window)
{
    return ls_attention_workspace_floats(queue, &(ls_attention){.sequences = sequences,
                                                                .length = length,
                                                                .heads = config->heads,
                                                                .kv_heads = config->kv_heads,
                                                                .head_dim = config->head_dim,
                                                                .window = window});
}

static int64_t norm_workspace(const void *queue, int64_t n, int64_t cols, int64_t groups)
{
    return ls_norm_workspace_floats(queue, n, cols, groups);
}

/* Rows of logits on a GPU: products of 8,192 rows keep it busy, and their gradient is added to the
 * head's weight gradient seldom enough. */
enum { CUDA_LOGITS_ROWS = 8192, CUDA_LOGITS_ALIGN = 64 };

ls_plan_options ls_executor_plan_options(const ls_queue *queue, ls_dtype activations)
{
    const bool cuda = queue && ls_queue_device(queue) == LS_DEVICE_CUDA;
    return (ls_plan_options){
        .tensor_cut = 1,
        .workspaces = {.context = queue,
                       .norm = norm_workspace,
                       .linear = ls_linear_workspace_floats,
                       .attention = attention_workspace},
        .activations = activations,
        .logits_rows = cuda ? CUDA_LOGITS_ROWS : 0,
        .logits_align = cuda ? CUDA_LOGITS_ALIGN : 0,
    };
}

/* ---- life ---- */

/* Of 4 bytes for each token of the micro-batch. */
static size_t token_bytes(const ls_executor *e)
{
    return (size_t)ls_executor_tokens(e) * sizeof *e->first;
}

static ls_status rope_tables_init(ls_executor *e, int64_t positions)
{
    const ls_model_config *config = &e->plan->config;
    if (!config->rotary) {
        return LS_OK;
    }
    const int64_t half = config->head_dim / 2;
    const size_t bytes = (size_t)(positions * half) * sizeof(float);
    void *memory = NULL, *staging = NULL;
    LS_TRY(ls_device_alloc(e->queue, 2 * bytes, &memory));
    e->rope_bytes = 2 * bytes;
    e->cosine = ls_tensor_f32(memory, positions, half);
    e->sine = ls_tensor_f32((float *)memory + positions * half, positions, half);
    LS_TRY(ls_shared_alloc(e->queue, 2 * bytes, &staging));
    ls_rope_tables(config, positions, staging, (float *)staging + positions * half);
    ls_status status = ls_queue_move(e->queue, memory, staging, 2 * bytes);
    if (status == LS_OK) {
        status = ls_queue_wait(e->queue);
    }
    ls_shared_free(e->queue, staging, 2 * bytes);
    return status;
}

ls_status ls_executor_init(ls_executor *e, ls_queue *queue, const ls_plan *plan, int64_t positions)
{
    if (plan->config.experts > 0 && ls_queue_device(queue) != LS_DEVICE_CPU) {
        return ls_fail(LS_ERR_UNSUPPORTED, "models of the family %s run on the CPU only in this version",
                       ls_family_name(plan->config.family));
    }
    *e = (ls_executor){.queue = queue, .plan = plan};
    e->rows = plan->rows;
    e->arena_bytes = (size_t)plan->arena_floats * sizeof(float);
    void *memory = NULL;
    LS_TRY(ls_device_alloc(queue, e->arena_bytes, &memory));
    e->arena = memory;
    ls_status status = ls_device_alloc(queue, plan->options.slots * token_bytes(e), &memory);
    if (status == LS_OK) {
        e->first = memory;
        status = rope_tables_init(e, positions);
    }
    if (status == LS_OK && plan->options.tensor_degree > 1) {
        status = ls_device_alloc(queue, token_bytes(e), &memory);
        e->local = status == LS_OK ? memory : NULL;
    }
    if (status == LS_OK && plan->options.sequence_cut > 1) {
        status = ls_device_alloc(queue, 2 * token_bytes(e), &memory);
        e->targets = status == LS_OK ? memory : NULL;
    }
    if (status != LS_OK) {
        ls_executor_release(e);
    }
    return status;
}

void ls_executor_release(ls_executor *e)
{
    if (e->arena) {
        ls_device_free(e->queue, e->arena, e->arena_bytes);
    }
    if (e->first) {
        ls_device_free(e->queue, e->first, e->plan->options.slots * token_bytes(e));
    }
    if (e->local) {
        ls_device_free(e->queue, e->local, token_bytes(e));
    }
    if (e->targets) {
        ls_device_free(e->queue, e->targets, 2 * token_bytes(e));
    }
    if (e->cosine.data) {
        ls_device_free(e->queue, e->cosine.data, e->rope_bytes);
    }
    *e = (ls_executor){0};
}

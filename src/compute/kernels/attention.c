// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/attention.h"

#include "compute/kernels/shape.h"

enum { POSITIONS_MAX = 1 << 24, HEAD_DIM_MAX = 256 };

static void check_attention(const ls_attention *a, int64_t positions)
{
    LS_ASSERT(a->sequences >= 1 && a->length >= 1 && a->heads >= 1 && a->kv_heads >= 1);
    LS_ASSERT(a->heads % a->kv_heads == 0);
    LS_ASSERT(a->head_dim >= 2 && a->head_dim <= HEAD_DIM_MAX && a->head_dim % 2 == 0);
    LS_ASSERT(a->window >= 0 && positions < POSITIONS_MAX);
    LS_ASSERT(a->past >= 0 && (a->past == 0 || a->sequences == 1));
}

/* The shape of q, out and their gradients. */
static bool is_wide(const ls_attention *a, const ls_tensor *t, ls_dtype dtype)
{
    return ls_tensor_is(t, dtype, a->sequences * a->length, a->heads * a->head_dim);
}

/* The shape of k, v and their gradients. */
static bool is_narrow(const ls_attention *a, const ls_tensor *t, ls_dtype dtype)
{
    return ls_tensor_is(t, dtype, a->past + a->sequences * a->length, a->kv_heads * a->head_dim);
}

/* Parts of a sequence exist with train.sequence_cut only. */
static ls_status check_past(const ls_queue *queue, const ls_attention *a)
{
    return a->past > 0 && ls_queue_device(queue) != LS_DEVICE_CPU
               ? ls_fail(LS_ERR_UNSUPPORTED, "train.sequence_cut is above 1: on a GPU it can only be 1, "
                                             "because attention there has no parts of a sequence")
               : LS_OK;
}

static bool is_lse(const ls_attention *a, const ls_tensor *t)
{
    return ls_tensor_is(t, LS_F32, a->sequences * a->length, a->heads);
}

ls_status ls_attention_forward(ls_queue *queue, const ls_attention *a, const ls_tensor *q, const ls_tensor *k,
                               const ls_tensor *v, const ls_tensor *out, const ls_tensor *lse)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, q);
    check_attention(a, a->past + a->length);
    LS_TRY(check_past(queue, a));
    LS_ASSERT(is_wide(a, q, dtype) && is_narrow(a, k, dtype) && is_narrow(a, v, dtype));
    LS_ASSERT(is_wide(a, out, dtype) && is_lse(a, lse));
    return queue->backend->attention_forward(queue, a, q, k, v, out, lse);
}

ls_status ls_attention_backward(ls_queue *queue, const ls_attention *a, const ls_tensor *q,
                                const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                const ls_tensor *lse, const ls_tensor *dout, const ls_tensor *dq,
                                const ls_tensor *dk, const ls_tensor *dv, const ls_tensor *workspace)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, q);
    check_attention(a, a->past + a->length);
    LS_TRY(check_past(queue, a));
    LS_ASSERT(is_wide(a, q, dtype) && is_narrow(a, k, dtype) && is_narrow(a, v, dtype));
    LS_ASSERT(is_wide(a, out, dtype) && is_lse(a, lse) && is_wide(a, dout, dtype));
    LS_ASSERT(is_wide(a, dq, dtype) && is_narrow(a, dk, dtype) && is_narrow(a, dv, dtype));
    LS_ASSERT(ls_tensor_is_workspace(workspace, queue->backend->attention_workspace(a)));
    return queue->backend->attention_backward(queue, a, q, k, v, out, lse, dout, dq, dk, dv, workspace);
}

ls_status ls_attention_decode(ls_queue *queue, const ls_attention *a, const ls_tensor *q,
                              const ls_tensor *k_cache, const ls_tensor *v_cache, int64_t past,
                              const ls_tensor *out)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, q);
    const int64_t capacity = k_cache->rows, narrow = a->kv_heads * a->head_dim;
    check_attention(a, past + a->length);
    LS_ASSERT(a->sequences == 1 && !a->first && a->past == 0 && past >= 0 && past + a->length <= capacity);
    LS_ASSERT(is_wide(a, q, dtype) && is_wide(a, out, dtype));
    LS_ASSERT(ls_tensor_is(k_cache, dtype, capacity, narrow) &&
              ls_tensor_is(v_cache, dtype, capacity, narrow));
    return queue->backend->attention_decode(queue, a, q, k_cache, v_cache, past, out);
}

int64_t ls_attention_workspace_floats(const ls_queue *queue, const ls_attention *attention)
{
    return (queue ? queue->backend : &ls_cpu_backend)->attention_workspace(attention);
}

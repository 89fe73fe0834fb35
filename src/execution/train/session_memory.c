// SPDX-License-Identifier: Apache-2.0
/* Memory of the processes of a run besides the buffers that are planned to the byte. The constants
 * come from measurements of runs with 0.1 to 26 million parameters. */
#include "execution/train/memory.h"
#include "execution/train/rank_memory.h"
#include "execution/train/session.h"
#include "storage/checkpoint/block_pool.h"

#include <inttypes.h>

enum {
    /* program, libraries and the part of the data that is mapped; tables */
    PROCESS_BYTES = 10 << 20,
    /* its stack, and panels of the matrix product */
    THREAD_BYTES = 768 << 10,
    /* measuring the rate of products that MFU is stated against */
    PEAK_BYTES = 4 << 20,
    /* of a checkpoint being written */
    BLOCK_BYTES = 4 << 20,
    HUGE_PAGE_BYTES = 2 << 20,
};

/* The backward pass of attention holds keys, values and their gradients of one head
 * (compute/cpu/isa/attention.h). */
static uint64_t attention_scratch(const ls_session *session)
{
    return 4 * sizeof(float) * session->run.model.context * (uint64_t)session->config.head_dim;
}

uint64_t ls_session_process_bytes(const ls_session *session, uint32_t threads)
{
    uint64_t bytes = PROCESS_BYTES + threads * (THREAD_BYTES + attention_scratch(session));
    for (size_t i = 0; i < session->carried_count; i++) {
        bytes += session->carried[i].bytes;
    }
    return bytes;
}

/* Blocks being written to disk: one per thread and some that wait, at most the blocks of the
 * state. */
uint64_t ls_session_save_bytes(const ls_session *session)
{
    const uint64_t state = 3 * (uint64_t)session->layout.float_count * sizeof(float);
    const uint64_t most = (uint64_t)BLOCK_BYTES * (ls_block_pool_threads() + 1);
    const uint64_t blocks = state < most ? state : most;
    return blocks > PEAK_BYTES ? blocks : PEAK_BYTES;
}

/* What rounding up to whole huge pages adds to buffers of `bytes`. */
static uint64_t rounding_of(uint64_t bytes)
{
    return bytes < HUGE_PAGE_BYTES ? 0 : (HUGE_PAGE_BYTES - bytes % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
}

bool ls_session_is_on_gpu(const ls_session *session)
{
    return session->device != session->queue;
}

/* Beside the buffers of a run: what the driver keeps for a process, its kernels, and the work space
 * of matrix products. */
enum { GPU_PROCESS_BYTES = 600 << 20 };

uint64_t ls_session_gpu_bytes(const ls_session *session)
{
    return session->memory.total + session->evaluation_bytes + session->generation_bytes + GPU_PROCESS_BYTES;
}

/* Of a run on a GPU: the mirror of the state, which also serves as the snapshot. */
static uint64_t mirror_bytes(const ls_session *session)
{
    const uint64_t floats =
        (uint64_t)session->layout.parameter_floats + 2 * (uint64_t)session->layout.float_count;
    return floats * sizeof(float);
}

uint64_t ls_session_worker_bytes(const ls_session *session)
{
    const ls_run_local *local = &session->run.train.local;
    const uint64_t floats = local->steps > 0 ? 3 * (uint64_t)session->layout.float_count * local->workers : 0;
    return floats * sizeof(float);
}

uint64_t ls_session_outer_bytes(const ls_session *session)
{
    if (session->worker_hosts < 2) {
        return 0;
    }
    const ls_local local = ls_session_local(session);
    const uint32_t own = local.workers / session->worker_hosts; /* those of the first host */
    const ls_outer_buffers buffers =
        ls_outer_buffers_of(&local, &session->layout, session->worker_hosts, own);
    return buffers.out + buffers.in + buffers.sum;
}

uint64_t ls_session_bytes(const ls_session *session)
{
    const ls_memory_plan *m = &session->memory;
    if (ls_session_is_on_gpu(session)) {
        return mirror_bytes(session) + session->process_bytes;
    }
    const uint64_t arena = rounding_of(m->activations + m->logits);
    if (session->is_gang) {
        return ls_ranks_cost_of(session, session->host_ranks).host_bytes + session->host_ranks * arena;
    }
    const uint64_t flats =
        3 + m->tree_buffers + m->residuals / m->gradients + (session->snapshot_bytes > 0 ? 3 : 0);
    return m->total + session->evaluation_bytes + session->generation_bytes + session->process_bytes +
           session->snapshot_bytes + ls_session_worker_bytes(session) + flats * rounding_of(m->parameters) +
           arena;
}

/* ---- is there enough ---- */

static ls_status fail_memory(const ls_session *session, const char *where, uint64_t needed,
                             uint64_t available)
{
    char needed_text[32], available_text[32], activations[32], fixed[32];
    return ls_fail(
        LS_ERR_MEMORY,
        "this run needs %s%s and %s are available: weights, gradients and optimizer %s (a smaller model, or "
        "fewer leaves: %u gradient buffers for %" PRIu64
        " leaves%s), activations and logits %s (a smaller micro_batch or context, or train.recompute: full)",
        ls_memory_text(needed, needed_text), where, ls_memory_text(available, available_text),
        ls_memory_text(session->memory.parameters + session->memory.gradients + session->memory.optimizer +
                           session->memory.tree,
                       fixed),
        session->memory.tree_buffers, session->run.train.leaves,
        ls_session_is_on_gpu(session) ? "" : ", or fewer ranks",
        ls_memory_text(session->memory.activations + session->memory.logits, activations));
}

static ls_status fail_host_memory(const ls_session *session, uint64_t available)
{
    char needed_text[32], available_text[32];
    return ls_fail(LS_ERR_MEMORY,
                   "this run needs %s of the host's memory, for a copy of weights and optimizer from which "
                   "checkpoints are written, and %s are available; use a smaller model, or a host with more "
                   "memory",
                   ls_memory_text(ls_session_bytes(session), needed_text),
                   ls_memory_text(available, available_text));
}

/* Sizes of heads that the attention kernels compute (compute/kernels/attention.h). */
static ls_status check_head_dim(const ls_model_config *config)
{
    if (config->head_dim % 2 == 0 && config->head_dim >= 2 && config->head_dim <= 256) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "the model's heads have %" PRId64 " features each (model.width / model.heads); training "
                   "supports even sizes from 2 to 256: change model.heads or model.width",
                   config->head_dim);
}

ls_status ls_session_check_memory(const ls_session *session)
{
    const uint64_t available = ls_memory_available(), needed = ls_session_bytes(session);
    if (needed > available) {
        return ls_session_is_on_gpu(session) ? fail_host_memory(session, available)
                                             : fail_memory(session, "", needed, available);
    }
    const uint64_t on_gpu =
        ls_session_is_on_gpu(session) ? ls_queue_free_memory(session->device) : UINT64_MAX;
    if (ls_session_gpu_bytes(session) > on_gpu) {
        return fail_memory(session, " on the GPU", ls_session_gpu_bytes(session), on_gpu);
    }
    return check_head_dim(&session->config);
}

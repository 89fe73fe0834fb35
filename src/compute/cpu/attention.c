// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/attention.h"

#include "compute/cpu/isa/attention.h"
#include "compute/cpu/isa/norm.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

typedef struct attention_job {
    ls_queue *queue;
    const ls_attention *shape;
    const ls_tensor *q, *k, *v, *out, *lse;
    const ls_tensor *dout, *dq, *dk, *dv;
    float *dk_heads, *dv_heads; /* (n, heads * head_dim) when heads share keys, else NULL */
    int64_t past, blocks, scratch_floats, tile_rows;
} attention_job;

/* Columns of head `head` from row `row` on. */
static ls_attention_rows rows_of(const ls_tensor *t, int64_t row, int64_t head, int64_t head_cols)
{
    if (!ls_tensor_is_present(t)) {
        return (ls_attention_rows){0};
    }
    return (ls_attention_rows){.data = ls_tensor_row(t, row) + head * head_cols, .stride = t->stride};
}

/* Rows of queries that are a record or a part of one: those before `row` in the record are the last
 * of its keys that come before them. */
typedef struct query_rows {
    int64_t row, count;
    int64_t key_row; /* the first row of keys and values of the record */
    int64_t before;  /* the position of the first query in the record */
} query_rows;

/* Head `head` of these rows, as if the record were a sequence of its own. */
static ls_attention_head head_of(const attention_job *job, query_rows rows, int64_t head)
{
    const ls_attention *a = job->shape;
    const int64_t dim = a->head_dim, shared = head / (a->heads / a->kv_heads), row = rows.row;
    return (ls_attention_head){.q = rows_of(job->q, row, head, dim),
                               .k = rows_of(job->k, rows.key_row, shared, dim),
                               .v = rows_of(job->v, rows.key_row, shared, dim),
                               .out = rows_of(job->out, row, head, dim),
                               .lse = rows_of(job->lse, row, head, 1),
                               .dout = rows_of(job->dout, row, head, dim),
                               .dq = rows_of(job->dq, row, head, dim),
                               .dk = rows_of(job->dk, rows.key_row, shared, dim),
                               .dv = rows_of(job->dv, rows.key_row, shared, dim),
                               .queries = rows.count,
                               .first = rows.before,
                               .head_dim = dim,
                               .window = a->window,
                               .scale = a->scale};
}

/* Rows from `row` on, at most `most`, that belong to the same record. */
static int64_t record_rows(const int32_t *first, int64_t row, int64_t most)
{
    int64_t rows = 1;
    while (rows < most && first[row + rows] == first[row]) {
        rows++;
    }
    return rows;
}

/* The rows from row `at` on, at most `most`, of the record that they belong to, which begins at
 * token `first` of its sequence; the keys of that one begin at row `begin`. */
static query_rows some_rows(const attention_job *job, int64_t begin, int64_t at, int64_t first, int64_t most)
{
    const int64_t token = job->past + at - begin;
    return (query_rows){.row = at, .count = most, .key_row = begin + first, .before = token - first};
}

/*
 * A tile of 64 rows of a head when sequences hold records. The queries of each record are cut into
 * blocks from its own first token, as those of a sequence are; of a part of a sequence, from the
 * first row of the record that is there. The tile computes the blocks that begin in its rows: no
 * matter where a record lies, its blocks are the same.
 */
static void forward_records(const attention_job *job, int64_t number, int64_t tile, float *scratch)
{
    const ls_attention *a = job->shape;
    const int64_t sequence = number / a->heads * a->length, begin = tile * LS_ATTENTION_BLOCK;
    const int64_t end = ls_min64(begin + LS_ATTENTION_BLOCK, a->length);
    const int32_t *first = a->first + sequence;
    for (int64_t i = begin; i < end; i++) {
        const int64_t start = ls_max64(first[i] - job->past, 0), within = i - start;
        if (within % LS_ATTENTION_BLOCK == 0) {
            const int64_t count = record_rows(first, i, ls_min64(LS_ATTENTION_BLOCK, a->length - i));
            const query_rows rows = some_rows(job, sequence, sequence + start, first[i], within + count);
            const ls_attention_head head = head_of(job, rows, number % a->heads);
            ls_queue_kernels(job->queue)->attention->forward(&head, within / LS_ATTENTION_BLOCK, scratch);
        }
    }
}

static void tile_forward(void *context, int64_t index, uint32_t worker)
{
    const attention_job *job = context;
    /* Blocks of one head follow each other, so that its keys stay in cache; late blocks see more
     * keys and go first, so that threads finish together. */
    const int64_t heads = job->shape->heads, number = index / job->blocks;
    const int64_t block = job->blocks - 1 - index % job->blocks;
    float *scratch = ls_queue_scratch(job->queue, worker, (size_t)job->scratch_floats * sizeof *scratch);
    if (job->shape->first) {
        forward_records(job, number, block, scratch);
        return;
    }
    const int64_t length = job->shape->length, row = number / heads * length;
    const ls_attention_head head = head_of(job, some_rows(job, row, row, 0, length), number % heads);
    ls_queue_kernels(job->queue)->attention->forward(&head, block, scratch);
}

static ls_status forward_run(attention_job *job)
{
    const ls_attention *a = job->shape;
    LS_DCHECK(a->past > 0 || ls_first_is_valid(a->first, a->sequences * a->length, a->length));
    job->blocks = ls_ceil_div(a->length, LS_ATTENTION_BLOCK);
    job->scratch_floats = ls_attention_forward_scratch(a->head_dim);
    LS_TRY(ls_queue_reserve_scratch(job->queue, (size_t)job->scratch_floats * sizeof(float)));
    ls_queue_run_tiles(job->queue, job->blocks * a->heads * a->sequences, tile_forward, job);
    return LS_OK;
}

ls_status ls_cpu_attention_forward(ls_queue *queue, const ls_attention *a, const ls_tensor *q,
                                   const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                   const ls_tensor *lse)
{
    return forward_run(&(attention_job){
        .queue = queue, .shape = a, .q = q, .k = k, .v = v, .out = out, .lse = lse, .past = a->past});
}

ls_status ls_cpu_attention_decode(ls_queue *queue, const ls_attention *a, const ls_tensor *q,
                                  const ls_tensor *k_cache, const ls_tensor *v_cache, int64_t past,
                                  const ls_tensor *out)
{
    return forward_run(&(attention_job){
        .queue = queue, .shape = a, .q = q, .k = k_cache, .v = v_cache, .out = out, .past = past});
}

int64_t ls_cpu_attention_workspace(const ls_attention *a)
{
    return a->heads == a->kv_heads ? 0 : 2 * (a->past + a->sequences * a->length) * a->heads * a->head_dim;
}

/* Some rows of a sequence, or of a record of one. */
static void backward_rows(const attention_job *job, query_rows rows, int64_t number, float *scratch)
{
    const int64_t heads = job->shape->heads, dim = job->shape->head_dim;
    ls_attention_head head = head_of(job, rows, number);
    if (job->dk_heads) {
        const int64_t at = (rows.key_row * heads + number) * dim;
        head.dk = (ls_attention_rows){.data = job->dk_heads + at, .stride = heads * dim};
        head.dv = (ls_attention_rows){.data = job->dv_heads + at, .stride = heads * dim};
    }
    ls_queue_kernels(job->queue)->attention->backward(&head, scratch);
}

static void tile_backward(void *context, int64_t index, uint32_t worker)
{
    const attention_job *job = context;
    const ls_attention *a = job->shape;
    const int64_t begin = index / a->heads * a->length, end = begin + a->length;
    float *scratch = ls_queue_scratch(job->queue, worker, (size_t)job->scratch_floats * sizeof *scratch);
    for (int64_t row = begin, count = 0; row < end; row += count) {
        const int64_t first = a->first ? a->first[row] : 0;
        count = a->first ? record_rows(a->first, row, end - row) : a->length;
        backward_rows(job, some_rows(job, begin, row, first, count), index % a->heads, scratch);
    }
}

/* The rows of keys before the record of the first query, which no query of a part sees. */
static void clear_unseen(const attention_job *job)
{
    const ls_attention *a = job->shape;
    const int64_t wide = a->heads * a->head_dim, narrow = a->kv_heads * a->head_dim;
    for (int64_t row = 0; a->past > 0 && a->first && row < a->first[0]; row++) {
        if (job->dk_heads) {
            memset(job->dk_heads + row * wide, 0, (size_t)wide * sizeof(float));
            memset(job->dv_heads + row * wide, 0, (size_t)wide * sizeof(float));
        } else {
            memset(ls_tensor_row(job->dk, row), 0, (size_t)narrow * sizeof(float));
            memset(ls_tensor_row(job->dv, row), 0, (size_t)narrow * sizeof(float));
        }
    }
}

/* dk and dv of a shared head: the sum over the query heads that read it, in order. */
static void tile_combine(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const attention_job *job = context;
    const ls_attention *a = job->shape;
    const int64_t group = a->heads / a->kv_heads, dim = a->head_dim, n = job->dk->rows;
    const ls_norm_kernels *kernels = ls_queue_kernels(job->queue)->norm;
    const int64_t begin = tile * job->tile_rows, end = ls_min64(begin + job->tile_rows, n);
    for (int64_t r = begin; r < end; r++) {
        for (int64_t h = 0; h < a->kv_heads; h++) {
            const int64_t at = (r * a->heads + h * group) * dim;
            kernels->combine(job->dk_heads + at, group, dim, dim, ls_tensor_row(job->dk, r) + h * dim, false);
            kernels->combine(job->dv_heads + at, group, dim, dim, ls_tensor_row(job->dv, r) + h * dim, false);
        }
    }
}

ls_status ls_cpu_attention_backward(ls_queue *queue, const ls_attention *a, const ls_tensor *q,
                                    const ls_tensor *k, const ls_tensor *v, const ls_tensor *out,
                                    const ls_tensor *lse, const ls_tensor *dout, const ls_tensor *dq,
                                    const ls_tensor *dk, const ls_tensor *dv, const ls_tensor *workspace)
{
    const int64_t wide = a->heads * a->head_dim;
    const int64_t workspace_floats = ls_cpu_attention_workspace(a);
    attention_job job = {
        .queue = queue, .shape = a, .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = dout};
    job.dq = dq;
    job.dk = dk;
    job.dv = dv;
    job.past = a->past;
    job.scratch_floats = ls_attention_backward_scratch(a->head_dim, a->past + a->length);
    if (workspace_floats > 0) {
        job.dk_heads = workspace->data;
        job.dv_heads = job.dk_heads + workspace_floats / 2;
    }
    LS_TRY(ls_queue_reserve_scratch(queue, (size_t)job.scratch_floats * sizeof(float)));
    clear_unseen(&job);
    ls_queue_run_tiles(queue, a->sequences * a->heads, tile_backward, &job);
    if (workspace_floats > 0) {
        job.tile_rows = ls_tile_rows(wide);
        ls_queue_run_tiles(queue, ls_ceil_div(dk->rows, job.tile_rows), tile_combine, &job);
    }
    return LS_OK;
}

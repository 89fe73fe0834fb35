// SPDX-License-Identifier: Apache-2.0
#include "execution/executor/state.h"

#include "base/assert.h"
#include "compute/kernels/elementwise.h"

static ls_status alloc_flat(ls_state *state, int64_t floats, float **buffer_out)
{
    void *memory = NULL;
    LS_TRY(ls_device_alloc(state->queue, (size_t)floats * sizeof(float), &memory));
    *buffer_out = memory;
    return LS_OK;
}

static ls_status alloc_all(ls_state *state, uint32_t gradient_count)
{
    const int64_t floats = state->layout->float_count;
    LS_TRY(alloc_flat(state, state->layout->parameter_floats, &state->parameters));
    state->frozen = state->parameters + floats;
    for (uint32_t i = 0; i < gradient_count; i++) {
        LS_TRY(alloc_flat(state, floats, &state->gradients[i]));
        state->gradient_count = i + 1;
    }
    if (gradient_count > 0) {
        LS_TRY(alloc_flat(state, floats, &state->m));
        LS_TRY(alloc_flat(state, floats, &state->v));
    }
    return LS_OK;
}

ls_status ls_state_init(ls_state *state, ls_queue *queue, const ls_layout *layout, uint32_t gradient_count)
{
    LS_ASSERT(gradient_count <= LS_GRADIENT_BUFFERS_MAX);
    *state = (ls_state){.queue = queue, .layout = layout};
    const ls_status status = alloc_all(state, gradient_count);
    if (status != LS_OK) {
        ls_state_release(state);
    }
    return status;
}

static void free_flat(ls_state *state, int64_t floats, float *buffer)
{
    if (buffer) {
        ls_device_free(state->queue, buffer, (size_t)floats * sizeof(float));
    }
}

void ls_state_release(ls_state *state)
{
    if (state->borrowed) {
        *state = (ls_state){0};
        return;
    }
    const int64_t floats = state->layout ? state->layout->float_count : 0;
    const bool has_frozen = state->parameters && state->frozen == state->parameters + floats;
    free_flat(state, has_frozen ? state->layout->parameter_floats : floats, state->parameters);
    free_flat(state, floats, state->m);
    free_flat(state, floats, state->v);
    for (uint32_t i = 0; i < state->gradient_count; i++) {
        free_flat(state, floats, state->gradients[i]);
    }
    *state = (ls_state){0};
}

ls_status ls_state_init_snapshot(ls_state *snapshot, const ls_state *of)
{
    *snapshot = (ls_state){.queue = of->queue, .layout = of->layout, .frozen = of->frozen};
    const int64_t floats = of->layout->float_count;
    ls_status status = alloc_flat(snapshot, floats, &snapshot->parameters);
    if (status == LS_OK && of->m) {
        status = alloc_flat(snapshot, floats, &snapshot->m);
    }
    if (status == LS_OK && of->v) {
        status = alloc_flat(snapshot, floats, &snapshot->v);
    }
    if (status != LS_OK) {
        ls_state_release(snapshot);
    }
    return status;
}

static ls_status copy_flat(ls_state *to, float *target, float *source)
{
    const ls_tensor from = ls_tensor_f32(source, 1, to->layout->float_count);
    const ls_tensor into = ls_tensor_f32(target, 1, to->layout->float_count);
    return ls_copy(to->queue, &from, &into);
}

ls_status ls_state_copy(ls_state *to, const ls_state *from)
{
    LS_TRY(copy_flat(to, to->parameters, from->parameters));
    LS_TRY(copy_flat(to, to->m, from->m));
    return copy_flat(to, to->v, from->v);
}

enum { INIT_TILE = 1 << 16 }; /* elements of the flat buffer that one call fills */

typedef struct init_context {
    ls_state *state;
    ls_init_rule rule;
} init_context;

/* Fills the parameters' floats in tile `tile` of the flat buffer. */
static void init_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const init_context *c = context;
    const ls_layout *layout = c->state->layout;
    const int64_t begin = tile * INIT_TILE, end = begin + INIT_TILE;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const int64_t first = begin > p->offset ? begin - p->offset : 0;
        const int64_t past = end - p->offset, size = p->rows * p->cols;
        const int64_t last = past < size ? past : size;
        if (first < last) {
            ls_parameter_init(layout, i, &c->rule, first, last - first, c->state->parameters);
        }
    }
}

void ls_state_init_weights(ls_state *state, const ls_model_config *config, uint64_t seed)
{
    init_context context = {.state = state, .rule = {seed, config->init_std, config->layers}};
    const int64_t tiles = (state->layout->parameter_floats + INIT_TILE - 1) / INIT_TILE;
    ls_queue_run_tiles(state->queue, tiles, init_tile, &context);
}

ls_checkpoint_tensor *ls_state_tensors(ls_arena *arena, const ls_state *state)
{
    const ls_layout *layout = state->layout;
    ls_checkpoint_tensor *tensors = ls_arena_new(arena, ls_checkpoint_tensor, layout->parameter_count);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const bool has_moments = state->m && !p->frozen;
        tensors[i] = (ls_checkpoint_tensor){
            .name = p->name,
            .frozen = p->frozen,
            .rank = (uint32_t)p->shape_rank,
            .shape = {(uint64_t)(p->shape_rank == 2 ? p->rows : p->cols),
                      (uint64_t)(p->shape_rank == 2 ? p->cols : 0)},
            .value =
                p->frozen ? state->frozen + (p->offset - layout->float_count) : state->parameters + p->offset,
            .m = has_moments ? state->m + p->offset : NULL,
            .v = has_moments ? state->v + p->offset : NULL,
        };
    }
    return tensors;
}

ls_status ls_state_hash_now(const ls_state *state, uint64_t step, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    const ls_checkpoint_tensor *tensors = ls_state_tensors(&arena, state);
    const ls_status status = ls_state_hash(tensors, state->layout->parameter_count, step, hex_out);
    ls_arena_release(&arena);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
#include "execution/executor/state.h"

#include "base/assert.h"
#include "compute/kernels/elementwise.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static bool is_cpu(const ls_state *state)
{
    return ls_queue_device(state->queue) == LS_DEVICE_CPU;
}

static size_t float_bytes(int64_t floats)
{
    return (size_t)floats * sizeof(float);
}

static ls_status alloc_flat(ls_state *state, int64_t floats, float **buffer_out)
{
    void *memory = NULL;
    LS_TRY(ls_device_alloc(state->queue, float_bytes(floats), &memory));
    *buffer_out = memory;
    return LS_OK;
}

/* Elements of a flat buffer of weights. On a GPU products may read some rows beyond the last matrix
 * (kernels/linear.h: padded_out). */
static int64_t weight_room(const ls_state *state)
{
    enum { ROWS_BEYOND = 64 };
    const ls_layout *layout = state->layout;
    return layout->parameter_floats +
           (is_cpu(state) ? 0 : ROWS_BEYOND * layout->parameters[layout->table].cols);
}

static ls_status alloc_split(ls_state *state)
{
    const size_t bytes = (size_t)weight_room(state) * sizeof(uint16_t);
    void *weights = NULL, *rests = NULL;
    LS_TRY(ls_device_alloc(state->queue, bytes, &weights));
    state->split.weights = weights;
    LS_TRY(ls_device_alloc(state->queue, bytes, &rests));
    state->split.rests = rests;
    return LS_OK;
}

static ls_status alloc_all(ls_state *state, ls_dtype weights, uint32_t gradient_count)
{
    const int64_t floats = state->layout->float_count;
    if (weights == LS_BF16) {
        LS_TRY(alloc_split(state));
    } else {
        LS_TRY(alloc_flat(state, weight_room(state), &state->parameters));
        state->frozen = state->parameters + floats;
    }
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

/* Floats of the mirror: parameters and, with an optimizer, both moments. */
static int64_t mirror_floats(const ls_state *state)
{
    const ls_layout *layout = state->layout;
    return layout->parameter_floats + (state->m ? 2 * layout->float_count : 0);
}

static ls_status alloc_mirror(ls_state *state)
{
    const ls_layout *layout = state->layout;
    void *memory = NULL;
    ls_state *mirror = calloc(1, sizeof *mirror);
    if (!mirror) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the model's state");
    }
    state->mirror = mirror;
    *mirror = (ls_state){.queue = state->queue, .layout = layout, .borrowed = true};
    LS_TRY(ls_shared_alloc(state->queue, float_bytes(mirror_floats(state)), &memory));
    mirror->parameters = memory;
    mirror->frozen = mirror->parameters + layout->float_count;
    mirror->m = state->m ? mirror->parameters + layout->parameter_floats : NULL;
    mirror->v = state->v ? mirror->m + layout->float_count : NULL;
    return LS_OK;
}

ls_status ls_state_init(ls_state *state, ls_queue *queue, ls_dtype weights, const ls_layout *layout,
                        uint32_t gradient_count)
{
    LS_ASSERT(gradient_count <= LS_GRADIENT_BUFFERS_MAX);
    *state = (ls_state){.queue = queue, .layout = layout};
    LS_ASSERT(weights == LS_F32 || !is_cpu(state));
    ls_status status = alloc_all(state, weights, gradient_count);
    if (status == LS_OK && !is_cpu(state)) {
        status = alloc_mirror(state);
    }
    if (status != LS_OK) {
        ls_state_release(state);
    }
    return status;
}

ls_status ls_state_add_residuals(ls_state *state, ls_compression_kind kind, uint32_t groups)
{
    const uint32_t count = ls_compression_flats(kind, groups);
    LS_ASSERT(count <= LS_RESIDUALS_MAX && state->residual_count == 0 && (count == 0 || is_cpu(state)));
    state->groups = groups;
    state->residual_count = count;
    for (uint32_t i = 0; i < 2 * count; i++) {
        LS_TRY(alloc_flat(state, state->layout->float_count, &state->residuals[i % 2][i / 2]));
    }
    return LS_OK;
}

void ls_state_turn_residuals(ls_state *state, uint64_t step)
{
    const uint64_t turn = step % 2, from = state->residual_step % 2;
    for (uint32_t i = 0; i < state->residual_count && turn != from; i++) {
        memcpy(state->residuals[turn][i], state->residuals[from][i],
               (size_t)state->layout->float_count * sizeof(float));
    }
    state->residual_step = step;
}

static void free_flat(ls_state *state, int64_t floats, float *buffer)
{
    if (buffer) {
        ls_device_free(state->queue, buffer, float_bytes(floats));
    }
}

static void free_mirror(ls_state *state)
{
    if (state->mirror && state->mirror->parameters) {
        ls_shared_free(state->queue, state->mirror->parameters, float_bytes(mirror_floats(state)));
    }
    free(state->mirror);
}

void ls_state_release(ls_state *state)
{
    if (state->borrowed || !state->layout) {
        *state = (ls_state){0};
        return;
    }
    const int64_t floats = state->layout->float_count;
    const size_t split_bytes = (size_t)weight_room(state) * sizeof(uint16_t);
    const bool has_frozen = state->parameters && state->frozen == state->parameters + floats;
    free_mirror(state);
    free_flat(state, has_frozen ? weight_room(state) : floats, state->parameters);
    ls_device_free(state->queue, state->split.weights, split_bytes);
    ls_device_free(state->queue, state->split.rests, split_bytes);
    free_flat(state, floats, state->m);
    free_flat(state, floats, state->v);
    free_flat(state, 3 * state->worker_count * state->flat_stride, state->workers);
    for (uint32_t i = 0; i < state->gradient_count; i++) {
        free_flat(state, floats, state->gradients[i]);
    }
    for (uint32_t i = 0; i < 2 * state->residual_count; i++) {
        free_flat(state, floats, state->residuals[i % 2][i / 2]);
    }
    *state = (ls_state){0};
}

ls_status ls_state_add_workers(ls_state *state, uint32_t workers)
{
    LS_ASSERT(is_cpu(state) && !state->borrowed && !state->workers);
    state->flat_stride = state->layout->float_count;
    LS_TRY(alloc_flat(state, 3 * workers * state->flat_stride, &state->workers));
    state->worker_count = workers;
    return LS_OK;
}

float *ls_state_worker(const ls_state *state, uint32_t worker, uint32_t flat)
{
    LS_ASSERT(worker < state->worker_count && flat < 3);
    return state->workers + (3 * (int64_t)worker + flat) * state->flat_stride;
}

const void *ls_state_weights(const ls_state *state)
{
    return state->parameters ? (const void *)state->parameters : state->split.weights;
}

ls_tensor ls_state_weights_view(const ls_state *state)
{
    return ls_tensor_of((void *)(uintptr_t)ls_state_weights(state), state->parameters ? LS_F32 : LS_BF16, 1,
                        state->layout->parameter_floats);
}

ls_master ls_state_master(const ls_state *state)
{
    return state->parameters ? (ls_master){.values = state->parameters} : state->split;
}

/* ---- the mirror ---- */

/* Elements whose halves are in host memory at once. */
enum { SPLIT_CHUNK = 16 << 20 };

typedef struct split_chunk {
    uint16_t *weights;
    int16_t *rests;
} split_chunk;

/* Moves elements [first, first + count) of the halves between device and chunk. */
static ls_status move_chunk(const ls_state *state, split_chunk chunk, int64_t first, int64_t count,
                            bool to_host)
{
    void *const device[2] = {state->split.weights + first, state->split.rests + first};
    void *const host[2] = {chunk.weights, chunk.rests};
    for (int i = 0; i < 2; i++) {
        LS_TRY(ls_queue_move(state->queue, to_host ? host[i] : device[i], to_host ? device[i] : host[i],
                             (size_t)count * sizeof(uint16_t)));
    }
    return ls_queue_wait(state->queue);
}

static ls_status move_split(const ls_state *state, split_chunk chunk, bool to_host)
{
    float *values = state->mirror->parameters;
    const int64_t all = state->layout->parameter_floats;
    for (int64_t first = 0; first < all; first += SPLIT_CHUNK) {
        const int64_t count = all - first < SPLIT_CHUNK ? all - first : SPLIT_CHUNK;
        for (int64_t i = 0; i < count && !to_host; i++) {
            ls_master_split(values[first + i], &chunk.weights[i], &chunk.rests[i]);
        }
        LS_TRY(move_chunk(state, chunk, first, count, to_host));
        for (int64_t i = 0; i < count && to_host; i++) {
            values[first + i] = ls_master_join(chunk.weights[i], chunk.rests[i]);
        }
    }
    return LS_OK;
}

static ls_status move_parameters(const ls_state *state, bool to_host)
{
    const size_t bytes = float_bytes(state->layout->parameter_floats);
    if (state->parameters) {
        return ls_queue_move(state->queue, to_host ? state->mirror->parameters : state->parameters,
                             to_host ? state->parameters : state->mirror->parameters, bytes);
    }
    void *memory = NULL;
    LS_TRY(ls_shared_alloc(state->queue, 2 * SPLIT_CHUNK * sizeof(uint16_t), &memory));
    const split_chunk chunk = {.weights = memory, .rests = (int16_t *)memory + SPLIT_CHUNK};
    const ls_status status = move_split(state, chunk, to_host);
    ls_shared_free(state->queue, memory, 2 * SPLIT_CHUNK * sizeof(uint16_t));
    return status;
}

static ls_status move_state(const ls_state *state, bool to_host)
{
    const ls_state *mirror = state->mirror;
    const size_t bytes = float_bytes(state->layout->float_count);
    LS_TRY(move_parameters(state, to_host));
    if (state->m) {
        LS_TRY(ls_queue_move(state->queue, to_host ? mirror->m : state->m, to_host ? state->m : mirror->m,
                             bytes));
        LS_TRY(ls_queue_move(state->queue, to_host ? mirror->v : state->v, to_host ? state->v : mirror->v,
                             bytes));
    }
    return ls_queue_wait(state->queue);
}

ls_status ls_state_to_host(const ls_state *state, const ls_state **host_out)
{
    if (state->mirror) {
        LS_TRY(move_state(state, true));
    }
    *host_out = state->mirror ? state->mirror : state;
    return LS_OK;
}

ls_status ls_state_from_host(ls_state *state)
{
    return state->mirror ? move_state(state, false) : LS_OK;
}

ls_state *ls_state_host(ls_state *state)
{
    return state->mirror ? state->mirror : state;
}

/* ---- snapshots ---- */

ls_status ls_state_init_snapshot(ls_state *snapshot, const ls_state *of)
{
    if (of->mirror) {
        *snapshot = *of->mirror;
        return LS_OK;
    }
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
    const ls_state *host = NULL;
    if (from->mirror) {
        return ls_state_to_host(from, &host);
    }
    LS_TRY(copy_flat(to, to->parameters, from->parameters));
    LS_TRY(copy_flat(to, to->m, from->m));
    return copy_flat(to, to->v, from->v);
}

/* ---- weights and names ---- */

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

ls_status ls_state_init_weights(ls_state *state, ls_queue *threads, const ls_model_config *config,
                                uint64_t seed)
{
    init_context context = {.state = ls_state_host(state), .rule = {seed, config->init_std, config->layers}};
    const int64_t tiles = (state->layout->parameter_floats + INIT_TILE - 1) / INIT_TILE;
    ls_queue_run_tiles(threads, tiles, init_tile, &context);
    return ls_state_from_host(state);
}

uint32_t ls_state_tensor_count(const ls_layout *layout)
{
    return layout->adapter ? layout->trained_count : layout->parameter_count;
}

/* An entry of further state: `value` of a parameter in another flat buffer. */
static ls_checkpoint_tensor further(ls_arena *arena, const ls_checkpoint_tensor *tensor, const char *prefix,
                                    float *value)
{
    ls_checkpoint_tensor more = *tensor;
    more.name = ls_arena_printf(arena, "%s.%s", prefix, tensor->name);
    more.value = more.m = more.v = NULL;
    more.state = value;
    return more;
}

/* Adds what workers have beside the shared parameters, which are the first `count` tensors. */
static size_t add_workers(ls_arena *arena, const ls_state *state, ls_checkpoint_tensor *tensors, size_t count)
{
    static const char *const flats[3] = {"", ".m", ".v"};
    size_t total = count;
    for (size_t i = 0; i < count; i++) {
        const int64_t offset = state->layout->parameters[i].offset;
        tensors[i].m = tensors[i].v = NULL;
        tensors[total++] = further(arena, &tensors[i], "outer_momentum", state->m + offset);
        if (state->has_gradient) {
            tensors[total++] = further(arena, &tensors[i], "outer_gradient", state->v + offset);
        }
        for (uint32_t worker = 0; worker < state->worker_count; worker++) {
            for (uint32_t flat = 0; flat < 3; flat++) {
                const char *prefix = ls_arena_printf(arena, "worker_%05u%s", worker, flats[flat]);
                float *value = ls_state_worker(state, worker, flat) + offset;
                tensors[total++] = further(arena, &tensors[i], prefix, value);
            }
        }
    }
    return total;
}

/* Residuals are saved as the flat buffers that they are: no other program looks into them. The
 * moments come first, in the order of the names. */
static void list_residuals(ls_arena *arena, const ls_state *state, ls_checkpoint_tensor *tensors)
{
    const uint32_t groups = state->groups, count = state->residual_count;
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t i = (n + groups + 1) % count;
        tensors[n] = (ls_checkpoint_tensor){
            .name = i < groups ? ls_arena_printf(arena, "residual_%02u", i)
                    : i > groups
                        ? ls_arena_printf(arena, "moment_%u_%02u", (i - 1) / groups, (i - 1) % groups)
                        : "residual_whole",
            .rank = 1,
            .shape = {(uint64_t)state->layout->float_count},
            .state = state->residuals[state->residual_step % 2][i],
        };
    }
}

ls_checkpoint_tensor *ls_state_tensors(ls_arena *arena, const ls_state *state, size_t *count_out)
{
    const ls_layout *layout = state->layout;
    const uint32_t count = ls_state_tensor_count(layout);
    const size_t more = state->workers ? (size_t)count * (2 + 3 * (size_t)state->worker_count) : 0;
    ls_checkpoint_tensor *tensors =
        ls_arena_new(arena, ls_checkpoint_tensor, count + more + state->residual_count);
    for (uint32_t i = 0; i < count; i++) {
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
    const size_t total = state->workers ? add_workers(arena, state, tensors, count) : count;
    if (state->residual_count > 0) {
        list_residuals(arena, state, tensors + total);
    }
    if (count_out) {
        *count_out = total + state->residual_count;
    }
    return tensors;
}

ls_status ls_state_hash_now(const ls_state *state, uint64_t step, const char *base,
                            char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_arena arena = {0};
    const ls_state *host = NULL;
    LS_TRY(ls_state_to_host(state, &host));
    size_t count = 0;
    ls_state now = *host;
    now.residual_step = step;
    const ls_checkpoint_tensor *tensors = ls_state_tensors(&arena, &now, &count);
    const ls_status status = ls_state_hash(tensors, count, step, base, hex_out);
    ls_arena_release(&arena);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* Worlds of ranks for tests of data parallelism: real processes, on one host or on several, each
 * host with memory of its own; and the same steps by one process to compare with. */
#ifndef LS_TESTS_DATA_PARALLEL_WORLD_H
#define LS_TESTS_DATA_PARALLEL_WORLD_H

#include "execution/count_allocations.h"
#include "execution/parallel/slices.h"
#include "execution/train/step.h"
#include "lockstep/comm.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VOCAB = 40, LENGTH = 12, STEPS_MAX = 8, RANKS_MAX = 64, HOSTS_MAX = 8, NOT_RUN = 99 };

/* ---- a model that is small, and what a step of it needs ---- */

typedef struct model {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
} model;

typedef struct shape {
    uint32_t leaves, micro_batches, micro_batch; /* of a leaf; sequences of a micro-batch */
    int64_t width, vocab;
    bool tied;
    /* of ls_step_settings; group 0: no compression */
    uint32_t group;
    ls_compression compression, changes;
    uint64_t compression_warmup;
} shape;

static const shape tiny = {.micro_batches = 1, .micro_batch = 1, .width = 16, .vocab = VOCAB};

static int32_t token_at(const shape *s, uint64_t position, int i)
{
    return (int32_t)((position * 7 + (uint64_t)i * (position % 5 + 1)) % (uint64_t)s->vocab);
}

static ls_status draw(void *context, uint64_t position, const ls_sample *sample)
{
    for (int i = 0; i < LENGTH; i++) {
        sample->tokens[i] = token_at(context, position, i);
        sample->targets[i] = token_at(context, position, i + 1);
    }
    return LS_OK;
}

static void model_init(model *m, const shape *s)
{
    *m = (model){0};
    ls_model_config_defaults(LS_FAMILY_LLAMA, &m->config);
    m->config.layers = 2;
    m->config.heads = 2;
    m->config.kv_heads = 1;
    m->config.head_dim = s->width / 2;
    m->config.width = s->width;
    m->config.ffn = s->width + 8;
    m->config.context = LENGTH;
    m->config.vocab = s->vocab;
    m->config.tied = s->tied;
    assert_int_equal(ls_model_config_check(&m->config), LS_OK);
    ls_layout_build(&m->arena, &m->config, &m->layout);
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = s->micro_batch;
    options.length = LENGTH;
    options.training = options.losses = true;
    assert_int_equal(ls_plan_build(&m->arena, &m->config, &m->layout, &options, &m->plan), LS_OK);
}

static ls_step_settings settings_of(const shape *s)
{
    return (ls_step_settings){.leaves = s->leaves,
                              .group = s->group,
                              .compression = s->compression,
                              .changes = s->changes,
                              .compression_warmup = s->compression_warmup,
                              .global_batch = s->leaves * s->micro_batches * s->micro_batch,
                              .micro_batch = s->micro_batch,
                              .clip_norm = 1.0,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .group_eps = 1e-7f,
                              .weight_decay = 0.1f,
                              .seed = 5,
                              .audit_every_steps =
                                  2, /* watched, they have the same bits and allocate nothing */
                              .hash_every_steps = 1,
                              .sample = draw,
                              .sample_context = (void *)(uintptr_t)s};
}

/* ---- the memory that ranks share ---- */

typedef struct rank_log {
    int status[STEPS_MAX]; /* of each step; NOT_RUN */
    ls_step_result result[STEPS_MAX];
    char text[STEPS_MAX][1024];
    long allocated; /* in the steps after the first */
    _Atomic uint64_t entered, begun, done, finished;
} rank_log;

typedef struct shared {
    _Atomic uint32_t abort;
    rank_log logs[RANKS_MAX];
} shared;

/* What the ranks of a host map. */
typedef struct host_memory {
    uint32_t first_rank, rank_count;
    size_t bytes;
    float *parameters, *m, *v, *sums, *gradients;
    float *residuals[2][LS_RESIDUALS_MAX];
    void *exchange;
} host_memory;

typedef struct world {
    shape shape;
    model model;
    uint32_t ranks, threads, steps, host_count, zero;
    bool shadow; /* with zero >= 1 */
    uint32_t comm_flags;
    double timeout_s;
    shared *shared;
    host_memory hosts[HOSTS_MAX];
    uint32_t gradient_first[RANKS_MAX]; /* of the rank, in its host's gradients */
    float *first_m, *first_v;           /* moments before the first step, as on host 0 */
    /* What a rank is to do wrong. */
    uint32_t culprit;
    void (*prepare)(struct world *w, uint32_t rank, ls_step_settings *settings);
    double (*lr)(uint32_t rank, uint32_t step);
    void (*before_step)(struct world *w, uint32_t rank, uint32_t step);
    bool (*gathers)(uint32_t rank, uint32_t step); /* before that step */
    uint64_t asked, stop_at;                       /* of should_stop, in the rank's own copy */
    ls_bit_flip flip;                              /* likewise */
    uint64_t seed;
} world;

static size_t flat_bytes(const world *w)
{
    return (size_t)w->model.layout.float_count * sizeof(float);
}

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static uint32_t host_of(const world *w, uint32_t rank)
{
    uint32_t i = 0;
    while (i + 1 < w->host_count && w->hosts[i + 1].first_rank <= rank) {
        i++;
    }
    return i;
}

static uint32_t residuals_of(const world *w)
{
    const uint32_t groups = w->shape.group > 0 ? w->shape.leaves / w->shape.group : 0;
    return ls_compression_flats(w->shape.compression.kind, groups);
}

static void host_init(world *w, host_memory *h)
{
    uint32_t buffers = 0;
    for (uint32_t r = h->first_rank; r < h->first_rank + h->rank_count; r++) {
        w->gradient_first[r] = buffers;
        buffers += ls_data_parallel_buffers(w->shape.leaves, w->shape.group, w->ranks, r);
    }
    const int64_t count = w->model.layout.float_count;
    const uint32_t residuals = residuals_of(w);
    h->bytes = (4 + buffers + 2 * residuals) * flat_bytes(w) +
               ls_data_parallel_exchange_bytes(&w->model.layout, h->rank_count);
    h->parameters = map_shared(h->bytes);
    h->m = h->parameters + count;
    h->v = h->m + count;
    h->sums = h->v + count;
    h->gradients = h->sums + count;
    for (uint32_t i = 0; i < 2 * residuals; i++) {
        h->residuals[i % 2][i / 2] = h->gradients + (int64_t)(buffers + i) * count;
    }
    h->exchange = h->gradients + (int64_t)(buffers + 2 * residuals) * count;
}

static void init_weights(const world *w, float *parameters)
{
    ls_queue *queue;
    assert_int_equal(ls_queue_create_cpu(1, &queue), LS_OK);
    ls_state state = {.layout = &w->model.layout, .parameters = parameters, .queue = queue};
    assert_int_equal(ls_state_init_weights(&state, queue, &w->model.config, 3), LS_OK);
    ls_queue_destroy(queue);
}

/* hosts: ranks of each. Host 0 has the first weights. */
static void world_init_hosts(world *w, const shape *s, uint32_t leaves, const uint32_t *hosts,
                             uint32_t host_count, uint32_t threads, uint32_t steps)
{
    *w = (world){.shape = *s,
                 .threads = threads,
                 .steps = steps,
                 .host_count = host_count,
                 .timeout_s = 60.0,
                 .zero = 1};
    w->shape.leaves = leaves;
    model_init(&w->model, &w->shape);
    for (uint32_t i = 0; i < host_count; i++) {
        w->hosts[i] = (host_memory){.first_rank = w->ranks, .rank_count = hosts[i]};
        w->ranks += hosts[i];
    }
    for (uint32_t i = 0; i < host_count; i++) {
        host_init(w, &w->hosts[i]);
    }
    w->shared = map_shared(sizeof *w->shared);
    for (uint32_t r = 0; r < w->ranks; r++) {
        for (uint32_t i = 0; i < STEPS_MAX; i++) {
            w->shared->logs[r].status[i] = NOT_RUN;
        }
    }
    init_weights(w, w->hosts[0].parameters);
    w->first_m = calloc(1, flat_bytes(w));
    w->first_v = calloc(1, flat_bytes(w));
    assert_true(w->first_m && w->first_v);
}

static inline void world_init(world *w, const shape *s, uint32_t leaves, uint32_t ranks, uint32_t threads,
                              uint32_t steps)
{
    world_init_hosts(w, s, leaves, &ranks, 1, threads, steps);
}

static void world_release(world *w)
{
    for (uint32_t i = 0; i < w->host_count; i++) {
        munmap(w->hosts[i].parameters, w->hosts[i].bytes);
    }
    munmap(w->shared, sizeof *w->shared);
    free(w->first_m);
    free(w->first_v);
    ls_arena_release(&w->model.arena);
}

/* ---- a rank ---- */

typedef struct rank_context {
    world *w;
    const host_memory *host;
} rank_context;

static float *gradient(void *context, uint32_t local, uint32_t index)
{
    const rank_context *c = context;
    const uint32_t at = c->w->gradient_first[c->host->first_rank + local] + index;
    return c->host->gradients + (int64_t)at * c->w->model.layout.float_count;
}

static ls_status open_comm(const world *w, uint32_t rank, ls_comm **comm_out)
{
    *comm_out = NULL;
    if (w->host_count == 1) {
        return LS_OK;
    }
    const ls_comm_options options = {.rank = rank,
                                     .size = w->ranks,
                                     .local_rank = rank,
                                     .local_size = w->ranks,
                                     .coordinator = "test",
                                     .flags = w->comm_flags,
                                     .timeout_s = w->timeout_s};
    return ls_comm_open(&options, comm_out);
}

static ls_step_marks marks(void *context, uint32_t part)
{
    const rank_context *c = context;
    rank_log *log = &c->w->shared->logs[c->host->first_rank + part];
    return (ls_step_marks){&log->entered, &log->begun, &log->done, &log->finished};
}

static ls_status make_parallel(rank_context *c, uint32_t rank, ls_queue *queue, ls_comm *comm,
                               ls_data_parallel **parallel_out)
{
    world *w = c->w;
    const ls_data_parallel_options options = {
        .plan = &w->model.plan,
        .leaves = w->shape.leaves,
        .group = w->shape.group,
        .compression = w->shape.compression,
        .changes = w->shape.changes,
        .compression_warmup = w->shape.compression_warmup,
        .beta1 = settings_of(&w->shape).beta1,
        .beta2 = settings_of(&w->shape).beta2,
        .eps = settings_of(&w->shape).group_eps,
        .residuals = c->host->residuals,
        .queue = queue,
        .parts = w->ranks,
        .first_part = c->host->first_rank,
        .local_parts = c->host->rank_count,
        .rank = rank - c->host->first_rank,
        .first_rank = c->host->first_rank,
        .threads = w->threads,
        .gradient = gradient,
        .sums = c->host->sums,
        .context = c,
        .exchange = c->host->exchange,
        .comm = comm,
        .zero = w->zero,
        .shadow = w->shadow,
        .parameters = c->host->parameters,
        .micro_batches = w->shape.micro_batches,
        .timeout_s = w->timeout_s,
        .abort = &w->shared->abort,
        .marks = marks,
    };
    return ls_data_parallel_create(&options, parallel_out);
}

static void run_steps(world *w, uint32_t rank, ls_stepper *stepper, ls_data_parallel *parallel,
                      const ls_state *state)
{
    rank_log *log = &w->shared->logs[rank];
    long before = 0;
    for (uint32_t i = 0; i < w->steps; i++) {
        before = i == 1 ? allocations : before;
        if (w->before_step) {
            w->before_step(w, rank, i);
        }
        if (w->gathers && w->gathers(rank, i) && ls_data_parallel_gather(parallel, state) != LS_OK) {
            return; /* its steps stay NOT_RUN */
        }
        const double lr = w->lr ? w->lr(rank, i) : 1e-2;
        log->status[i] = ls_stepper_run(stepper, i, lr, &log->result[i]);
        if (log->status[i] != LS_OK) {
            snprintf(log->text[i], sizeof log->text[i], "%s", ls_error_text());
        }
    }
    log->allocated = w->steps > 1 ? allocations - before : 0;
}

static int rank_main(world *w, uint32_t rank)
{
    ls_queue *queue;
    ls_executor executor;
    ls_comm *comm;
    ls_data_parallel *parallel;
    ls_stepper *stepper;
    rank_context context = {.w = w, .host = &w->hosts[host_of(w, rank)]};
    ls_state state = {.layout = &w->model.layout,
                      .parameters = context.host->parameters,
                      .m = context.host->m,
                      .v = context.host->v};
    state.gradient_count = ls_data_parallel_buffers(w->shape.leaves, w->shape.group, w->ranks, rank);
    for (uint32_t i = 0; i < state.gradient_count; i++) {
        state.gradients[i] = gradient(&context, rank - context.host->first_rank, i);
    }
    if (ls_queue_create_cpu(w->threads, &queue) != LS_OK ||
        ls_executor_init(&executor, queue, &w->model.plan, LENGTH) != LS_OK ||
        open_comm(w, rank, &comm) != LS_OK ||
        make_parallel(&context, rank, queue, comm, &parallel) != LS_OK ||
        ls_data_parallel_distribute(parallel, &state) != LS_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, ls_error_text());
        return 1;
    }
    state.queue = queue;
    ls_step_settings settings = settings_of(&w->shape);
    settings.parallel = parallel;
    if (w->prepare) {
        w->prepare(w, rank, &settings);
    }
    if (ls_stepper_create(&executor, &state, &settings, &stepper) != LS_OK) {
        return 1;
    }
    run_steps(w, rank, stepper, parallel, &state);
    state.residual_step = w->steps;
    if (w->shared->logs[rank].status[w->steps - 1] == LS_OK &&
        ls_data_parallel_gather(parallel, &state) != LS_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, ls_error_text());
        return 1;
    }
    ls_stepper_destroy(stepper);
    ls_data_parallel_destroy(parallel);
    ls_comm_close(comm);
    ls_executor_release(&executor);
    ls_queue_destroy(queue);
    return 0;
}

static pid_t start_rank(world *w, uint32_t rank)
{
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(120);
        _exit(rank_main(w, rank));
    }
    return pid;
}

/* Runs all ranks to their end; `lost` may end by a signal. */
static void run_ranks(world *w, uint32_t lost)
{
    pid_t pids[RANKS_MAX];
    for (uint32_t r = 0; r < w->ranks; r++) {
        pids[r] = start_rank(w, r);
    }
    for (uint32_t r = 0; r < w->ranks; r++) {
        int status = 0;
        if (r == lost) {
            continue;
        }
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    if (lost < RANKS_MAX) {
        kill(pids[lost], SIGKILL);
        waitpid(pids[lost], NULL, 0);
    }
}

/* ---- one process, for comparison ---- */

typedef struct alone {
    ls_queue *queue;
    ls_executor executor;
    ls_state state;
    ls_stepper *stepper;
} alone;

static void alone_init(alone *a, world *w, uint32_t threads)
{
    ls_step_settings settings = settings_of(&w->shape);
    assert_int_equal(ls_queue_create_cpu(threads, &a->queue), LS_OK);
    assert_int_equal(ls_executor_init(&a->executor, a->queue, &w->model.plan, LENGTH), LS_OK);
    assert_int_equal(ls_state_init(&a->state, a->queue, LS_F32, &w->model.layout,
                                   ls_tree_buffers(w->shape.leaves, w->shape.group)),
                     LS_OK);
    assert_int_equal(ls_state_add_residuals(&a->state, w->shape.compression.kind,
                                            w->shape.group > 0 ? w->shape.leaves / w->shape.group : 0),
                     LS_OK);
    assert_int_equal(ls_state_init_weights(&a->state, a->queue, &w->model.config, 3), LS_OK);
    assert_int_equal(ls_stepper_create(&a->executor, &a->state, &settings, &a->stepper), LS_OK);
}

static void alone_release(alone *a)
{
    ls_stepper_destroy(a->stepper);
    ls_executor_release(&a->executor);
    ls_state_release(&a->state);
    ls_queue_destroy(a->queue);
}

/* Every host has the weights (not with stage 3); host 0, which gathered them, the moments too. */
static void assert_same_state(const world *w, const alone *a)
{
    for (uint32_t i = 0; i < (w->zero < 3 ? w->host_count : 1); i++) {
        assert_memory_equal(w->hosts[i].parameters, a->state.parameters, flat_bytes(w));
    }
    assert_memory_equal(w->hosts[0].m, a->state.m, flat_bytes(w));
    assert_memory_equal(w->hosts[0].v, a->state.v, flat_bytes(w));
    for (uint32_t i = 0; i < residuals_of(w); i++) {
        assert_memory_equal(w->hosts[0].residuals[w->steps % 2][i], a->state.residuals[w->steps % 2][i],
                            flat_bytes(w));
    }
}

/* Runs the world and wants of each step and at the end what one process has. */
static inline void compare_world(world *w)
{
    alone one;
    run_ranks(w, RANKS_MAX);
    alone_init(&one, w, 1);
    memcpy(one.state.m, w->first_m, flat_bytes(w));
    memcpy(one.state.v, w->first_v, flat_bytes(w));
    for (uint32_t i = 0; i < w->steps; i++) {
        ls_step_result want;
        assert_int_equal(ls_stepper_run(one.stepper, i, 1e-2, &want), LS_OK);
        for (uint32_t r = 0; r < w->ranks; r++) {
            const rank_log *log = &w->shared->logs[r];
            assert_int_equal(log->status[i], LS_OK);
            assert_memory_equal(&log->result[i].loss, &want.loss, sizeof want.loss);
            assert_memory_equal(&log->result[i].grad_norm, &want.grad_norm, sizeof want.grad_norm);
            assert_memory_equal(&log->result[i].residual_norm, &want.residual_norm, sizeof(double));
            assert_int_equal(log->result[i].tokens, want.tokens);
        }
    }
    assert_same_state(w, &one);
    for (uint32_t r = 0; r < w->ranks; r++) {
        const rank_log *log = &w->shared->logs[r];
        assert_true(log->entered == w->steps && log->begun == w->steps && log->done == w->steps &&
                    log->finished == w->steps);
        /* What comes over a socket before its call is kept aside in memory of its own. */
        if (COUNTS_ALLOCATIONS && !(w->comm_flags & LS_COMM_NO_SHM)) {
            assert_int_equal(log->allocated, 0);
        }
    }
    alone_release(&one);
}

/* ---- what may go wrong ---- */

/* As w->prepare: the rank w->culprit is asked to stop when it is asked for the time w->stop_at. */
static inline bool stop_at(void *context)
{
    world *w = context;
    return w->asked++ == w->stop_at;
}

static inline void prepare_stop(world *w, uint32_t rank, ls_step_settings *settings)
{
    if (rank == w->culprit) {
        settings->should_stop = stop_at;
        settings->stop_context = w;
    }
}

/* As w->prepare: sample `torn_sample` cannot be read. */
static uint64_t torn_sample;

static inline ls_status draw_torn(void *context, uint64_t position, const ls_sample *sample)
{
    if (position == torn_sample) {
        return ls_fail(LS_ERR_DATA, "sample %llu is torn", (unsigned long long)position);
    }
    return draw(context, position, sample);
}

static inline void prepare_torn_sample(world *w, uint32_t rank, ls_step_settings *settings)
{
    (void)w;
    (void)rank;
    settings->sample = draw_torn;
}

static inline void break_layer_1(const world *w, float *parameters)
{
    const ls_parameter *p = ls_layout_find(&w->model.layout, "model.layers.1.mlp.gate_proj.weight");
    assert_non_null(p);
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        parameters[p->offset + i] = 3e38f;
    }
}

#endif

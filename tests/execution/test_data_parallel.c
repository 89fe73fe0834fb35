// SPDX-License-Identifier: Apache-2.0
/*
 * Data parallelism with real processes over one mapping: the bits of one process for any number of ranks, and what happens when a rank stops,
 * fails, differs or does not come.
 */
#include "test.h"

#include "base/random.h"
#include "execution/diagnose/audit.h"
#include "execution/parallel/slices.h"
#include "execution/train/step.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
static atomic_long allocations; /* the sanitizer owns malloc: not counted */
#define COUNTS_ALLOCATIONS 0
#else
/* Every allocation of this program comes through here. */
static atomic_long allocations;
#define COUNTS_ALLOCATIONS 1
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}
#endif

enum { VOCAB = 40, LENGTH = 12, STEPS_MAX = 8, RANKS_MAX = 64, NOT_RUN = 99 };

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
} shape;

static const shape tiny = {.micro_batches = 1, .micro_batch = 1, .width = 16, .vocab = VOCAB};

static ls_status draw(void *context, uint64_t position, int32_t *tokens_out)
{
    const shape *s = context;
    for (int i = 0; i <= LENGTH; i++) {
        tokens_out[i] = (int32_t)((position * 7 + (uint64_t)i * (position % 5 + 1)) % (uint64_t)(s->vocab));
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
    ls_plan_options options = ls_walk_plan_options();
    options.sequences = s->micro_batch;
    options.length = LENGTH;
    options.training = options.losses = true;
    assert_int_equal(ls_plan_build(&m->arena, &m->config, &m->layout, &options, &m->plan), LS_OK);
}

static ls_step_settings settings_of(const shape *s)
{
    return (ls_step_settings){.leaves = s->leaves,
                              .global_batch = s->leaves * s->micro_batches * s->micro_batch,
                              .micro_batch = s->micro_batch,
                              .clip_norm = 1.0,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
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

typedef struct world {
    shape shape;
    model model;
    uint32_t ranks, threads, steps;
    double timeout_s;
    shared *shared;
    size_t bytes;
    float *parameters, *m, *v, *gradients;
    uint32_t gradient_first[RANKS_MAX + 1];
    void *exchange;
    /* What a rank is to do wrong. */
    uint32_t culprit;
    void (*prepare)(struct world *w, uint32_t rank, ls_step_settings *settings);
    double (*lr)(uint32_t rank, uint32_t step);
    void (*before_step)(struct world *w, uint32_t rank, uint32_t step);
    uint64_t asked, stop_at; /* of should_stop, in the rank's own copy */
    ls_flip flip;            /* of the culprit, likewise */
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

static void world_init(world *w, const shape *s, uint32_t leaves, uint32_t ranks, uint32_t threads,
                       uint32_t steps)
{
    *w = (world){.shape = *s, .ranks = ranks, .threads = threads, .steps = steps, .timeout_s = 60.0};
    w->shape.leaves = leaves;
    model_init(&w->model, &w->shape);
    uint32_t buffers = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        w->gradient_first[r] = buffers;
        buffers += ls_data_parallel_buffers(leaves, ranks, r);
    }
    w->gradient_first[ranks] = buffers;
    const size_t exchange_bytes = ls_data_parallel_exchange_bytes(&w->model.layout, ranks);
    w->bytes = (3 + buffers) * flat_bytes(w) + exchange_bytes;
    w->parameters = map_shared(w->bytes);
    const int64_t count = w->model.layout.float_count;
    w->m = w->parameters + count;
    w->v = w->m + count;
    w->gradients = w->v + count;
    w->exchange = w->gradients + (int64_t)buffers * count;
    w->shared = map_shared(sizeof *w->shared);
    for (uint32_t r = 0; r < ranks; r++) {
        for (uint32_t i = 0; i < STEPS_MAX; i++) {
            w->shared->logs[r].status[i] = NOT_RUN;
        }
    }
    ls_state state = {.layout = &w->model.layout, .parameters = w->parameters};
    ls_queue *queue;
    assert_int_equal(ls_queue_create_cpu(1, &queue), LS_OK);
    state.queue = queue;
    ls_state_init_weights(&state, &w->model.config, 3);
    ls_queue_destroy(queue);
}

static void world_release(world *w)
{
    munmap(w->parameters, w->bytes);
    munmap(w->shared, sizeof *w->shared);
    ls_arena_release(&w->model.arena);
}

/* ---- a rank ---- */

static float *gradient(void *context, uint32_t local, uint32_t index)
{
    const world *w = context;
    return w->gradients + (int64_t)(w->gradient_first[local] + index) * w->model.layout.float_count;
}

static ls_status make_parallel(world *w, uint32_t rank, ls_data_parallel **parallel_out)
{
    rank_log *log = &w->shared->logs[rank];
    const ls_data_parallel_options options = {
        .plan = &w->model.plan,
        .leaves = w->shape.leaves,
        .ranks = w->ranks,
        .local_ranks = w->ranks,
        .local = rank,
        .threads = w->threads,
        .gradient = gradient,
        .context = w,
        .exchange = w->exchange,
        .timeout_s = w->timeout_s,
        .abort = &w->shared->abort,
        .marks = {&log->entered, &log->begun, &log->done, &log->finished},
    };
    return ls_data_parallel_create(&options, parallel_out);
}

static void run_steps(world *w, uint32_t rank, ls_stepper *stepper)
{
    rank_log *log = &w->shared->logs[rank];
    long before = 0;
    for (uint32_t i = 0; i < w->steps; i++) {
        before = i == 1 ? allocations : before;
        if (w->before_step) {
            w->before_step(w, rank, i);
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
    ls_walk walk;
    ls_data_parallel *parallel;
    ls_stepper *stepper;
    ls_state state = {.layout = &w->model.layout, .parameters = w->parameters, .m = w->m, .v = w->v};
    state.gradient_count = w->gradient_first[rank + 1] - w->gradient_first[rank];
    for (uint32_t i = 0; i < state.gradient_count; i++) {
        state.gradients[i] = gradient(w, rank, i);
    }
    if (ls_queue_create_cpu(w->threads, &queue) != LS_OK ||
        ls_walk_init(&walk, queue, &w->model.plan, LENGTH) != LS_OK ||
        make_parallel(w, rank, &parallel) != LS_OK) {
        return 1;
    }
    state.queue = queue;
    ls_step_settings settings = settings_of(&w->shape);
    settings.parallel = parallel;
    if (w->prepare) {
        w->prepare(w, rank, &settings);
    }
    if (ls_stepper_create(&walk, &state, &settings, &stepper) != LS_OK) {
        return 1;
    }
    run_steps(w, rank, stepper);
    ls_stepper_destroy(stepper);
    ls_data_parallel_destroy(parallel);
    ls_walk_release(&walk);
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
    pid_t pids[RANKS_MAX + 1]; /* `lost` is an index */
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
    if (lost < w->ranks) {
        kill(pids[lost], SIGKILL);
        waitpid(pids[lost], NULL, 0);
    }
}

/* ---- one process, for comparison ---- */

typedef struct alone {
    ls_queue *queue;
    ls_walk walk;
    ls_state state;
    ls_stepper *stepper;
} alone;

static void alone_init(alone *a, world *w, uint32_t threads)
{
    ls_step_settings settings = settings_of(&w->shape);
    assert_int_equal(ls_queue_create_cpu(threads, &a->queue), LS_OK);
    assert_int_equal(ls_walk_init(&a->walk, a->queue, &w->model.plan, LENGTH), LS_OK);
    assert_int_equal(ls_state_init(&a->state, a->queue, &w->model.layout, ls_tree_buffers(w->shape.leaves)),
                     LS_OK);
    ls_state_init_weights(&a->state, &w->model.config, 3);
    assert_int_equal(ls_stepper_create(&a->walk, &a->state, &settings, &a->stepper), LS_OK);
}

static void alone_release(alone *a)
{
    ls_stepper_destroy(a->stepper);
    ls_walk_release(&a->walk);
    ls_state_release(&a->state);
    ls_queue_destroy(a->queue);
}

static void assert_same_state(const world *w, const alone *a)
{
    assert_memory_equal(w->parameters, a->state.parameters, flat_bytes(w));
    assert_memory_equal(w->m, a->state.m, flat_bytes(w));
    assert_memory_equal(w->v, a->state.v, flat_bytes(w));
}

static void compare(const shape *s, uint32_t leaves, uint32_t ranks, uint32_t threads, uint32_t steps)
{
    world w;
    alone one;
    world_init(&w, s, leaves, ranks, threads, steps);
    run_ranks(&w, RANKS_MAX);
    alone_init(&one, &w, 1);
    for (uint32_t i = 0; i < steps; i++) {
        ls_step_result want;
        assert_int_equal(ls_stepper_run(one.stepper, i, 1e-2, &want), LS_OK);
        for (uint32_t r = 0; r < ranks; r++) {
            const rank_log *log = &w.shared->logs[r];
            assert_int_equal(log->status[i], LS_OK);
            assert_memory_equal(&log->result[i].loss, &want.loss, sizeof want.loss);
            assert_memory_equal(&log->result[i].grad_norm, &want.grad_norm, sizeof want.grad_norm);
            assert_int_equal(log->result[i].tokens, want.tokens);
        }
    }
    assert_same_state(&w, &one);
    for (uint32_t r = 0; r < ranks; r++) {
        const rank_log *log = &w.shared->logs[r];
        assert_true(log->entered == steps && log->begun == steps && log->done == steps &&
                    log->finished == steps);
        if (COUNTS_ALLOCATIONS) {
            assert_int_equal(log->allocated, 0);
        }
    }
    alone_release(&one);
    world_release(&w);
}

/* ---- the tests ---- */

static void data_parallel_gives_the_bits_of_one_process(void **state)
{
    (void)state;
    const uint32_t counts[] = {1, 3, 5, 7, 12, 16, 64};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (uint32_t ranks = 1; ranks <= counts[c] && ranks <= 8; ranks++) {
            compare(&tiny, counts[c], ranks, 1 + (ranks + (uint32_t)c) % 2, 3);
        }
    }
}

/* Buckets of many norm blocks, several micro-batches, a head that shares its weights with the embeddings. */
static void data_parallel_gives_the_bits_of_one_process_on_larger_models(void **state)
{
    (void)state;
    const shape wide = {.micro_batches = 2, .micro_batch = 2, .width = 64, .vocab = 300};
    const shape tied = {.micro_batches = 3, .micro_batch = 1, .width = 48, .vocab = 500, .tied = true};
    compare(&wide, 6, 4, 1, 3);
    compare(&wide, 5, 3, 2, 2);
    compare(&tied, 7, 2, 2, 3);
    compare(&tied, 12, 5, 1, 3);
}

/* The tests above tell orders apart: leaves summed rank by rank in plain order give another gradient. */
static void data_parallel_leaves_tell_orders_apart(void **state)
{
    (void)state;
    enum { LEAVES = 12, RANKS = 4 };
    world w;
    alone one;
    world_init(&w, &tiny, LEAVES, 1, 1, 1);
    alone_init(&one, &w, 1);
    const int64_t count = w.model.layout.float_count;
    float *sum = calloc((size_t)count, sizeof *sum), *part = calloc((size_t)count, sizeof *part);
    double loss;
    uint64_t tokens;
    for (uint32_t r = 0; r < RANKS; r++) {
        const ls_leaf_range range = ls_leaves_of_rank(LEAVES, RANKS, r);
        for (uint32_t i = 0; i < range.count; i++) {
            assert_int_equal(ls_stepper_run_leaf(one.stepper, 0, range.first + i, &loss, &tokens), LS_OK);
            for (int64_t k = 0; k < count; k++) {
                part[k] = i == 0 ? one.state.gradients[0][k] : part[k] + one.state.gradients[0][k];
            }
        }
        for (int64_t k = 0; k < count; k++) {
            sum[k] = r == 0 ? part[k] : sum[k] + part[k];
        }
    }
    ls_step_result result;
    assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_OK);
    int64_t differ = 0;
    for (int64_t k = 0; k < count; k++) {
        differ += sum[k] != one.state.gradients[0][k];
        assert_true(fabsf(sum[k] - one.state.gradients[0][k]) < 1e-3f);
    }
    assert_true(differ > count / 20);
    free(sum);
    free(part);
    alone_release(&one);
    world_release(&w);
}

static bool stop_at(void *context)
{
    world *w = context;
    return w->asked++ == w->stop_at;
}

static void prepare_stop(world *w, uint32_t rank, ls_step_settings *settings)
{
    if (rank == w->culprit) {
        settings->should_stop = stop_at;
        settings->stop_context = w;
    }
}

/* One rank is asked to stop in step 1: nobody updates, and the next step goes on from the same state. */
static void data_parallel_stopped_rank_stops_all_and_changes_nothing(void **state)
{
    (void)state;
    for (uint32_t culprit = 0; culprit < 3; culprit++) {
        world w;
        alone one;
        world_init(&w, &tiny, 7, 3, 1, 3);
        w.culprit = culprit;
        w.prepare = prepare_stop;
        w.stop_at = ls_leaves_of_rank(7, 3, culprit).count + 1;
        run_ranks(&w, RANKS_MAX);
        alone_init(&one, &w, 1);
        ls_step_result result;
        assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_OK);
        assert_int_equal(ls_stepper_run(one.stepper, 2, 1e-2, &result), LS_OK);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(w.shared->logs[r].status[0], LS_OK);
            assert_int_equal(w.shared->logs[r].status[1], LS_STOPPED);
            assert_int_equal(w.shared->logs[r].status[2], LS_OK);
        }
        assert_same_state(&w, &one);
        alone_release(&one);
        world_release(&w);
    }
}

static ls_status draw_fails(void *context, uint64_t position, int32_t *tokens_out)
{
    if (position == 5) {
        return ls_fail(LS_ERR_DATA, "sample %llu is torn", (unsigned long long)position);
    }
    return draw(context, position, tokens_out);
}

static void prepare_failing_draw(world *w, uint32_t rank, ls_step_settings *settings)
{
    (void)w;
    (void)rank;
    settings->sample = draw_fails;
}

static void data_parallel_error_of_one_rank_is_that_of_all(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 1);
    w.prepare = prepare_failing_draw;
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_ERR_DATA);
        assert_non_null(strstr(w.shared->logs[r].text[0], "sample 5 is torn"));
        assert_int_equal(w.shared->logs[r].begun, 0);
    }
    assert_non_null(strstr(w.shared->logs[0].text[0], "rank 2"));
    world_release(&w);
}

static void break_layer_1(const world *w, float *parameters)
{
    const ls_parameter *p = ls_layout_find(&w->model.layout, "model.layers.1.mlp.gate_proj.weight");
    assert_non_null(p);
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        parameters[p->offset + i] = 3e38f;
    }
}

static void data_parallel_nonfinite_is_told_as_by_one_process(void **state)
{
    (void)state;
    world w;
    alone one;
    world_init(&w, &tiny, 5, 3, 1, 1);
    break_layer_1(&w, w.parameters);
    float *before = malloc(flat_bytes(&w));
    memcpy(before, w.parameters, flat_bytes(&w));
    run_ranks(&w, RANKS_MAX);
    alone_init(&one, &w, 1);
    break_layer_1(&w, one.state.parameters);
    ls_step_result result;
    assert_int_equal(ls_stepper_run(one.stepper, 0, 1e-2, &result), LS_ERR_FAILED);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_ERR_FAILED);
        assert_string_equal(w.shared->logs[r].text[0], ls_error_text());
        assert_int_equal(w.shared->logs[r].result[0].fault.leaf, result.fault.leaf);
    }
    assert_non_null(strstr(ls_error_text(), "leaf 0"));
    assert_memory_equal(w.parameters, before, flat_bytes(&w));
    free(before);
    alone_release(&one);
    world_release(&w);
}

/* ---- silent corruption ---- */

static uint64_t number(uint64_t trial, uint64_t sub, uint64_t bound)
{
    return ls_random_below(ls_random_stream(23, LS_RANDOM_TEST), trial, sub, bound);
}

static void prepare_flip(world *w, uint32_t rank, ls_step_settings *settings)
{
    (void)rank;
    settings->seed = w->seed;
    settings->audit_every_steps = 1;
    settings->flip = &w->flip;
}

static uint32_t bucket_of(const world *w, uint64_t at)
{
    uint32_t bucket = 0;
    while (bucket + 1 < w->model.layout.bucket_count &&
           (int64_t)at >= w->model.layout.buckets[bucket + 1].offset) {
        bucket++;
    }
    return bucket;
}

/* A step of `ranks` ranks in which `culprit` turns one bit over each of the first `times` times that it computes the audited leaf. All must end
 * with one text; returns rank 0's fault. */
static ls_step_fault run_flipped(uint32_t ranks, uint64_t trial, bool is_owner, uint32_t times,
                                 char text_out[1024])
{
    enum { LEAVES = 7 };
    world w;
    world_init(&w, &tiny, LEAVES, ranks, 1, 1);
    float *before = malloc(flat_bytes(&w));
    memcpy(before, w.parameters, flat_bytes(&w));
    w.prepare = prepare_flip;
    w.seed = trial;
    const ls_audit_roles roles = ls_audit_choose(w.seed, 0, 1, LEAVES, ranks);
    w.flip = (ls_flip){.kind = LS_FLIP_GRADIENT,
                       .step = 1,
                       .rank = is_owner ? roles.owner : roles.checker,
                       .leaf = roles.leaf,
                       .at = number(trial, 0, (uint64_t)w.model.layout.float_count),
                       .bit = (uint32_t)number(trial, 1, 32),
                       .times = times};
    run_ranks(&w, RANKS_MAX);
    const rank_log *logs = w.shared->logs;
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(logs[r].status[0], LS_ERR_MISMATCH);
        assert_string_equal(logs[r].text[0], logs[0].text[0]);
        assert_memory_equal(&logs[r].result[0].fault, &logs[0].result[0].fault, sizeof(ls_step_fault));
        assert_int_equal(logs[r].begun, 0);
    }
    const ls_step_fault fault = logs[0].result[0].fault;
    assert_int_equal(fault.kind, LS_STEP_FAULT_LEAF);
    assert_int_equal(fault.leaf, roles.leaf);
    assert_int_equal(fault.bucket, bucket_of(&w, w.flip.at));
    assert_true(fault.rank == w.flip.rank || fault.rank == LS_NO_RANK);
    assert_memory_equal(before, w.parameters, flat_bytes(&w));
    snprintf(text_out, 1024, "%s", logs[0].text[0]);
    free(before);
    world_release(&w);
    return fault;
}

/* With a third rank as the judge, who was wrong is known, whether the fault comes and goes or stays. */
static void data_parallel_audit_names_the_rank_that_was_wrong(void **state)
{
    (void)state;
    uint32_t named = 0, trials = 0;
    for (uint64_t trial = 0; trial < 24; trial++) {
        char text[1024];
        const ls_step_fault fault =
            run_flipped(3 + (uint32_t)(trial % 3), trial, trial % 2 == 0, trial % 4 < 2 ? 1 : 9, text);
        trials++;
        named += fault.rank != LS_NO_RANK && strstr(text, "COMPUTED WRONGLY") != NULL;
    }
    print_message("flips in an audited leaf, 3 to 5 ranks: %u of %u found, %u named\n", trials, trials,
                  named);
    assert_int_equal(named, trials);
}

/* Two ranks judge themselves: a fault that comes and goes is named, one that stays can't be. */
static void data_parallel_audit_of_two_ranks_names_what_comes_and_goes(void **state)
{
    (void)state;
    for (uint64_t trial = 100; trial < 112; trial++) {
        char text[1024];
        const bool lasting = trial % 3 == 0;
        const ls_step_fault fault = run_flipped(2, trial, trial % 2 == 0, lasting ? 9 : 1, text);
        assert_int_equal(fault.rank == LS_NO_RANK, lasting);
        assert_non_null(strstr(text, lasting ? "computes wrongly all the time" : "COMPUTED WRONGLY"));
    }
}

/* A bit of the shared state flips between two updates: its owner finds it, and nobody updates. */
static void data_parallel_guard_names_the_owner_of_what_changed(void **state)
{
    (void)state;
    enum { RANKS = 3, TRIALS = 24 };
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        world w;
        world_init(&w, &tiny, 7, RANKS, 1, 2);
        w.prepare = prepare_flip;
        w.flip = (ls_flip){.kind = LS_FLIP_PARAMETER + (ls_flip_kind)(trial % 3),
                           .step = 2,
                           .at = number(trial, 2, (uint64_t)w.model.layout.float_count),
                           .bit = (uint32_t)number(trial, 3, 32),
                           .times = 1};
        const uint32_t bucket = bucket_of(&w, w.flip.at);
        /* Its owner flips it, as it enters the step: everybody has hashed by then. */
        for (uint32_t r = 0; r < RANKS; r++) {
            const ls_slice slice = ls_slice_of(&w.model.layout, bucket, RANKS, r);
            const int64_t at = (int64_t)w.flip.at;
            w.flip.rank = at >= slice.offset && at < slice.offset + slice.count ? r : w.flip.rank;
        }
        run_ranks(&w, RANKS_MAX);
        for (uint32_t r = 0; r < RANKS; r++) {
            const rank_log *log = &w.shared->logs[r];
            assert_int_equal(log->status[0], LS_OK);
            assert_int_equal(log->status[1], LS_ERR_MISMATCH);
            assert_int_equal(log->begun, 1);
            assert_int_equal(log->result[1].fault.kind, LS_STEP_FAULT_STATE);
            assert_int_equal(log->result[1].fault.rank, w.flip.rank);
            assert_int_equal(log->result[1].fault.bucket, bucket);
            assert_non_null(strstr(log->text[1], "no longer what the update of step 1 left"));
        }
        world_release(&w);
    }
    print_message("flips in the shared state, 3 ranks: %u of %u found and named\n", (unsigned)TRIALS,
                  (unsigned)TRIALS);
}

/* ---- other faults ---- */

static double lr_of_rank_1_differs(uint32_t rank, uint32_t step)
{
    return rank == 1 && step == 1 ? 2e-2 : 1e-2;
}

static void data_parallel_other_settings_are_a_mismatch(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 2);
    w.lr = lr_of_rank_1_differs;
    run_ranks(&w, RANKS_MAX);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(w.shared->logs[r].status[0], LS_OK);
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_MISMATCH);
        assert_non_null(strstr(w.shared->logs[r].text[1], "2 of 3 ranks (rank 0 among them)"));
        assert_non_null(strstr(w.shared->logs[r].text[1], "rank 1 (step 2"));
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
}

static void stop_before_step_1(world *w, uint32_t rank, uint32_t step)
{
    if (rank == w->culprit && step == 1) {
        raise(SIGSTOP);
    }
}

static void data_parallel_late_rank_is_named(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 2);
    w.culprit = 1;
    w.timeout_s = 0.3;
    w.before_step = stop_before_step_1;
    run_ranks(&w, 1);
    for (uint32_t r = 0; r < 3; r += 2) {
        assert_int_equal(w.shared->logs[r].status[0], LS_OK);
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_TIMEOUT);
        assert_non_null(strstr(w.shared->logs[r].text[1], "of rank 1"));
        assert_null(strstr(w.shared->logs[r].text[1], "of rank 1,"));
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
}

static void abort_before_step_1(world *w, uint32_t rank, uint32_t step)
{
    if (rank == w->culprit && step == 1) {
        w->shared->abort = LS_ERR_RANKS_LOST;
        raise(SIGSTOP);
    }
}

static void data_parallel_abort_ends_waits(void **state)
{
    (void)state;
    world w;
    world_init(&w, &tiny, 6, 3, 1, 2);
    w.culprit = 2;
    w.before_step = abort_before_step_1;
    run_ranks(&w, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(w.shared->logs[r].status[1], LS_ERR_RANKS_LOST);
        assert_int_equal(w.shared->logs[r].begun, 1);
    }
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel_gives_the_bits_of_one_process),
        cmocka_unit_test(data_parallel_gives_the_bits_of_one_process_on_larger_models),
        cmocka_unit_test(data_parallel_leaves_tell_orders_apart),
        cmocka_unit_test(data_parallel_stopped_rank_stops_all_and_changes_nothing),
        cmocka_unit_test(data_parallel_error_of_one_rank_is_that_of_all),
        cmocka_unit_test(data_parallel_nonfinite_is_told_as_by_one_process),
        cmocka_unit_test(data_parallel_audit_names_the_rank_that_was_wrong),
        cmocka_unit_test(data_parallel_audit_of_two_ranks_names_what_comes_and_goes),
        cmocka_unit_test(data_parallel_guard_names_the_owner_of_what_changed),
        cmocka_unit_test(data_parallel_other_settings_are_a_mismatch),
        cmocka_unit_test(data_parallel_late_rank_is_named),
        cmocka_unit_test(data_parallel_abort_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

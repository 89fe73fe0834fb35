// SPDX-License-Identifier: Apache-2.0
/*
 * Stages as threads of one process: whatever the number of stages and the schedule, losses and
 * gradients have the bits of one process with all layers.
 */
#include "test.h"

#include "execution/executor/stage.h"
#include "model/plan_stage.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SEQUENCES = 2,
    LENGTH = 10,
    ROWS = SEQUENCES * LENGTH,
    VOCAB = 53, /* more than the rows of a micro-batch, and no multiple of them */
    LAYERS = 8,
    STAGES_MOST = 4,
    MICRO_BATCHES_MOST = 9,
    WAIT_S = 20
};

/* ---- the crew: queues between threads ---- */

typedef struct wire {
    float *values[LS_CREW_SENDS_AHEAD];
    uint64_t sent, received;
} wire;

typedef struct room {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    wire wires[STAGES_MOST][STAGES_MOST][LS_CREW_WAYS];
    bool is_broken; /* a stage has failed: the others give up */
} room;

typedef struct member {
    room *room;
    uint32_t stage;
} member;

/* Waits until *counter >= count, holding the mutex. */
static ls_status await_count(room *r, const uint64_t *counter, uint64_t count)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += WAIT_S;
    while (*counter < count) {
        if (r->is_broken || pthread_cond_timedwait(&r->changed, &r->mutex, &deadline) != 0) {
            return ls_fail(LS_ERR_TIMEOUT, "a stage waited for another for %d s, or the other failed",
                           WAIT_S);
        }
    }
    return LS_OK;
}

static ls_status crew_send(void *context, ls_crew_way way, uint32_t to, const ls_tensor *values)
{
    const member *m = context;
    room *r = m->room;
    wire *l = &r->wires[m->stage][to][way];
    pthread_mutex_lock(&r->mutex);
    const uint64_t free_from = l->sent < LS_CREW_SENDS_AHEAD ? 0 : l->sent + 1 - LS_CREW_SENDS_AHEAD;
    const ls_status status = await_count(r, &l->received, free_from);
    if (status == LS_OK) {
        memcpy(l->values[l->sent % LS_CREW_SENDS_AHEAD], values->data,
               (size_t)(values->rows * values->cols) * sizeof(float));
        l->sent++;
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

static ls_status crew_receive(void *context, ls_crew_way way, uint32_t from, const ls_tensor *values)
{
    const member *m = context;
    room *r = m->room;
    wire *l = &r->wires[from][m->stage][way];
    pthread_mutex_lock(&r->mutex);
    const ls_status status = await_count(r, &l->sent, l->received + 1);
    if (status == LS_OK) {
        memcpy(values->data, l->values[l->received % LS_CREW_SENDS_AHEAD],
               (size_t)(values->rows * values->cols) * sizeof(float));
        l->received++;
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

static void room_open(room *r, int64_t floats)
{
    *r = (room){0};
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
    for (int i = 0; i < STAGES_MOST * STAGES_MOST * LS_CREW_WAYS * LS_CREW_SENDS_AHEAD; i++) {
        wire *l = &r->wires[0][0][0] + i / LS_CREW_SENDS_AHEAD;
        l->values[i % LS_CREW_SENDS_AHEAD] = calloc((size_t)floats, sizeof(float));
    }
}

static void room_close(room *r)
{
    for (int i = 0; i < STAGES_MOST * STAGES_MOST * LS_CREW_WAYS; i++) {
        wire *l = &r->wires[0][0][0] + i;
        assert_int_equal(l->sent, l->received);
        for (int k = 0; k < LS_CREW_SENDS_AHEAD; k++) {
            free(l->values[k]);
        }
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
}

/* ---- a model and its leaf ---- */

typedef struct model {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_plan whole;
    float *weights;
    uint32_t micro_batches;
    int32_t tokens[MICRO_BATCHES_MOST][ROWS], targets[MICRO_BATCHES_MOST][ROWS];
    int32_t first[MICRO_BATCHES_MOST][ROWS]; /* two records in each sequence */
    bool documents;
    /* of one process with all layers */
    float *gradients;
    float losses[MICRO_BATCHES_MOST][ROWS];
} model;

static void fill_batch(const model *m, uint32_t micro_batch, float *gradients, float *losses,
                       ls_executor_batch *batch)
{
    batch->weights = m->weights;
    batch->gradients = gradients;
    batch->tokens = m->tokens[micro_batch];
    batch->targets = m->targets[micro_batch];
    batch->first = m->documents ? m->first[micro_batch] : NULL;
    batch->losses = losses;
}

static float *new_gradients(const model *m)
{
    float *gradients = malloc((size_t)m->layout.float_count * sizeof(float));
    for (int64_t i = 0; i < m->layout.float_count; i++) {
        gradients[i] = NAN; /* what nobody writes shows */
    }
    return gradients;
}

static void compute_alone(model *m)
{
    ls_queue *queue = NULL;
    ls_executor executor;
    assert_int_equal(ls_queue_create_cpu(2, &queue), LS_OK);
    assert_int_equal(ls_executor_init(&executor, queue, &m->whole, LENGTH), LS_OK);
    m->gradients = new_gradients(m);
    for (uint32_t i = 0; i < m->micro_batches; i++) {
        ls_executor_batch batch = {.accumulate = i > 0, .more = i + 1 < m->micro_batches};
        fill_batch(m, i, m->gradients, m->losses[i], &batch);
        assert_int_equal(ls_executor_forward(&executor, &batch), LS_OK);
        assert_int_equal(ls_executor_backward(&executor, &batch), LS_OK);
    }
    ls_executor_release(&executor);
    ls_queue_destroy(queue);
}

static void model_open(model *m, ls_family family, ls_recompute recompute, uint32_t micro_batches)
{
    *m = (model){.micro_batches = micro_batches, .documents = recompute == LS_RECOMPUTE_SELECTIVE};
    ls_model_config_defaults(family, &m->config);
    m->config.layers = LAYERS;
    m->config.heads = 2;
    m->config.kv_heads = family == LS_FAMILY_GPT2 ? 2 : 1;
    m->config.head_dim = 8;
    m->config.width = 16;
    m->config.ffn = 24;
    m->config.context = LENGTH;
    m->config.vocab = VOCAB;
    if (ls_family_has_experts(family)) {
        m->config.experts = 4;
        m->config.experts_per_token = 2;
        m->config.expert_ffn = m->config.ffn;
    }
    assert_int_equal(ls_model_config_check(&m->config), LS_OK);
    ls_layout_build(&m->arena, &m->config, &m->layout);
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.recompute = recompute;
    options.balance_loss = ls_family_has_experts(family) ? 0.01 : 0.0;
    assert_int_equal(ls_plan_build(&m->arena, &m->config, &m->layout, &options, &m->whole), LS_OK);
    m->weights = calloc((size_t)m->layout.parameter_floats, sizeof(float));
    const ls_init_rule rule = {.seed = 5, .std = 0.2, .layers = LAYERS};
    for (uint32_t i = 0; i < m->layout.parameter_count; i++) {
        const ls_parameter *p = &m->layout.parameters[i];
        ls_parameter_init(&m->layout, i, &rule, 0, p->rows * p->cols, m->weights);
    }
    for (uint32_t b = 0; b < micro_batches; b++) {
        for (int32_t i = 0; i < ROWS; i++) {
            m->tokens[b][i] = (int32_t)(b * 11 + (uint32_t)i * (b % 4 + 2)) % VOCAB;
            m->targets[b][i] = i % 7 == 6 ? -1 : (int32_t)(b * 5 + (uint32_t)i * 3 + 1) % VOCAB;
            m->first[b][i] = i % LENGTH < 4 ? 0 : 4;
        }
    }
    compute_alone(m);
}

static void model_close(model *m)
{
    free(m->weights);
    free(m->gradients);
    ls_arena_release(&m->arena);
}

/* ---- a stage in a thread ---- */

typedef struct worker {
    model *model;
    const ls_pipeline *pipeline;
    room *room;
    uint32_t stage;
    float *gradients;
    float losses[MICRO_BATCHES_MOST][ROWS];
    uint32_t passes;
    bool fails; /* in its third pass */
    ls_status status;
    char error[256];
} worker;

static ls_status before_pass(void *context, const ls_pipeline_work *work, ls_executor_batch *batch)
{
    worker *w = context;
    if (w->fails && w->passes == 2) {
        return ls_fail(LS_ERR_FAILED, "stage %u gives up", w->stage);
    }
    fill_batch(w->model, work->micro_batch, w->gradients, w->losses[work->micro_batch], batch);
    return LS_OK;
}

static ls_status after_pass(void *context, const ls_pipeline_work *work, const ls_executor_batch *batch)
{
    (void)work, (void)batch;
    ((worker *)context)->passes++;
    return LS_OK;
}

static ls_status open_executors(worker *w, ls_arena *arena, ls_queue *queue, const ls_pipeline_work *list,
                                ls_executor *executors)
{
    ls_plan *plans = ls_arena_new(arena, ls_plan, w->pipeline->chunks);
    LS_TRY(ls_plan_build_stage(arena, &w->model->whole, w->pipeline, w->stage, list, plans));
    for (uint32_t c = 0; c < w->pipeline->chunks; c++) {
        LS_TRY(ls_executor_init(&executors[c], queue, &plans[c], LENGTH));
    }
    return LS_OK;
}

static ls_status run_stage(worker *w, ls_arena *arena, ls_queue *queue)
{
    ls_executor *executors = ls_arena_new(arena, ls_executor, w->pipeline->chunks);
    member self = {w->room, w->stage};
    const ls_crew crew = {.context = &self,
                          .tensor_degree = 1,
                          .stages = w->pipeline->stages,
                          .stage = w->stage,
                          .send = crew_send,
                          .receive = crew_receive};
    const ls_stage stage = {.pipeline = w->pipeline,
                            .list = ls_pipeline_list(arena, w->pipeline, w->stage),
                            .executors = executors,
                            .crew = w->pipeline->stages > 1 ? &crew : NULL,
                            .before = before_pass,
                            .after = after_pass,
                            .context = w};
    LS_TRY(open_executors(w, arena, queue, stage.list, executors));
    const ls_status status = ls_stage_run(&stage);
    for (uint32_t c = 0; c < w->pipeline->chunks; c++) {
        ls_executor_release(&executors[c]);
    }
    return status;
}

static void *run_worker(void *argument)
{
    worker *w = argument;
    ls_arena arena = {0};
    ls_queue *queue = NULL;
    w->status = ls_queue_create_cpu(1 + w->stage % 2, &queue);
    if (w->status == LS_OK) {
        w->status = run_stage(w, &arena, queue);
    }
    if (w->status != LS_OK) {
        snprintf(w->error, sizeof w->error, "%s", ls_error_text());
        pthread_mutex_lock(&w->room->mutex);
        w->room->is_broken = true;
        pthread_cond_broadcast(&w->room->changed);
        pthread_mutex_unlock(&w->room->mutex);
    }
    ls_queue_destroy(queue);
    ls_arena_release(&arena);
    return NULL;
}

static void run_workers(worker *workers, room *r, model *m, const ls_pipeline *pipeline, float *gradients)
{
    pthread_t threads[STAGES_MOST];
    room_open(r, ROWS * m->config.width);
    for (uint32_t s = 0; s < pipeline->stages; s++) {
        workers[s].model = m;
        workers[s].pipeline = pipeline;
        workers[s].room = r;
        workers[s].stage = s;
        workers[s].gradients = gradients;
        assert_int_equal(pthread_create(&threads[s], NULL, run_worker, &workers[s]), 0);
    }
    for (uint32_t s = 0; s < pipeline->stages; s++) {
        pthread_join(threads[s], NULL);
    }
}

/* ---- same bits ---- */

static void describe(char text[128], const model *m, const ls_pipeline *p)
{
    snprintf(text, 128, "%s, recompute %d, schedule %d, %u stages, %u chunks, %u micro-batches",
             m->config.tied ? "tied" : "untied", (int)m->whole.options.recompute, (int)p->kind, p->stages,
             p->chunks, p->micro_batches);
}

static void same_bits(model *m, const ls_pipeline *pipeline)
{
    worker workers[STAGES_MOST] = {0};
    room r;
    char text[128];
    float *gradients = new_gradients(m); /* shared: each stage writes its layers' part */
    describe(text, m, pipeline);
    run_workers(workers, &r, m, pipeline, gradients);
    for (uint32_t s = 0; s < pipeline->stages; s++) {
        if (workers[s].status != LS_OK) {
            fail_msg("%s: stage %u: %s", text, s, workers[s].error);
        }
        assert_int_equal(workers[s].passes, ls_pipeline_length(pipeline));
    }
    room_close(&r);
    for (uint32_t i = 0; i < m->layout.parameter_count; i++) {
        const ls_parameter *p = &m->layout.parameters[i];
        if (memcmp(gradients + p->offset, m->gradients + p->offset,
                   (size_t)(p->rows * p->cols) * sizeof(float)) != 0) {
            fail_msg("%s: the gradient of %s differs", text, p->name);
        }
    }
    for (uint32_t b = 0; b < m->micro_batches; b++) {
        assert_memory_equal(workers[pipeline->stages - 1].losses[b], m->losses[b], sizeof m->losses[b]);
    }
    free(gradients);
}

static void each_schedule(model *m)
{
    for (uint32_t stages = 1; stages <= STAGES_MOST; stages++) {
        for (int kind = 0; kind < LS_PIPELINE_KIND_COUNT; kind++) {
            same_bits(m, &(ls_pipeline){(ls_pipeline_kind)kind, stages, 1, m->micro_batches});
        }
        if (stages > 1) {
            same_bits(m, &(ls_pipeline){LS_PIPELINE_ONE_BY_ONE, stages, 2, m->micro_batches});
        }
    }
}

static void stage_run_has_the_bits_of_one_process(void **state)
{
    (void)state;
    const ls_family families[] = {LS_FAMILY_GPT2, LS_FAMILY_LLAMA, LS_FAMILY_QWEN3, LS_FAMILY_MIXTRAL};
    const uint32_t micro_batches[] = {6, 1, 3, 6, 9, 2, 5, 2, 4, 7, 8, 5};
    for (int i = 0; i < 12; i++) {
        model m;
        model_open(&m, families[i % 4], (ls_recompute)(i / 4), micro_batches[i]);
        each_schedule(&m);
        model_close(&m);
    }
}

/* A stage that fails ends the others' waits, and its own error stays. */
static void stage_run_failing_ends_the_others(void **state)
{
    (void)state;
    model m;
    model_open(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE, 6);
    const ls_pipeline pipeline = {LS_PIPELINE_ONE_BY_ONE, 3, 1, 6};
    worker workers[STAGES_MOST] = {[1] = {.fails = true}};
    room r;
    float *gradients = new_gradients(&m);
    run_workers(workers, &r, &m, &pipeline, gradients);
    assert_int_equal(workers[0].status, LS_ERR_TIMEOUT);
    assert_int_equal(workers[1].status, LS_ERR_FAILED);
    assert_string_equal(workers[1].error, "stage 1 gives up");
    assert_int_equal(workers[2].status, LS_ERR_TIMEOUT);
    for (int i = 0; i < STAGES_MOST * STAGES_MOST * LS_CREW_WAYS; i++) {
        wire *l = &r.wires[0][0][0] + i;
        l->sent = l->received; /* what was on its way is lost */
    }
    room_close(&r);
    free(gradients);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage_run_has_the_bits_of_one_process),
        cmocka_unit_test(stage_run_failing_ends_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

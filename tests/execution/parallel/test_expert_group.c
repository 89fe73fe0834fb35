// SPDX-License-Identifier: Apache-2.0
/*
 * Expert groups: members that compute a leaf each and visit each other's experts have the losses and
 * gradients, bit for bit, of one process that computes these leaves alone. Members are threads that
 * exchange through the room of a crew.
 */
#include "test.h"

#include "base/random.h"
#include "execution/executor/executor.h"
#include "execution/parallel/crew_room.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 4, LENGTH = 3, SEQUENCES = 2, TOKENS = SEQUENCES * LENGTH, MICRO_BATCHES = 2, EXPERTS = 8 };

/* ---- models ---- */

typedef struct subject {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    float *weights;
    int32_t tokens[MEMBERS][MICRO_BATCHES][TOKENS], targets[MEMBERS][MICRO_BATCHES][TOKENS];
} subject;

static void subject_open(subject *s, ls_family family)
{
    *s = (subject){0};
    ls_model_config *c = &s->config;
    ls_model_config_defaults(family, c);
    c->layers = 2;
    c->heads = 4;
    c->kv_heads = 2;
    c->head_dim = 8;
    c->width = 32;
    c->ffn = c->expert_ffn = 24;
    c->experts = EXPERTS;
    c->experts_per_token = 3; /* more than a member of four has */
    c->context = LENGTH;
    c->vocab = 61;
    ls_layout_build(&s->arena, c, &s->layout);
    s->weights = calloc((size_t)s->layout.parameter_floats, sizeof *s->weights);
    assert_non_null(s->weights);
    const ls_random_key key = ls_random_stream(5, LS_RANDOM_TEST);
    ls_random_normals(key, 0, 1, (size_t)s->layout.parameter_floats, s->weights);
    for (uint32_t i = 0; i < s->layout.parameter_count; i++) {
        const ls_parameter *p = &s->layout.parameters[i];
        for (int64_t e = 0; e < p->rows * p->cols; e++) {
            s->weights[p->offset + e] = 0.2f * s->weights[p->offset + e] + (p->init == LS_INIT_ONE);
        }
    }
    for (uint64_t i = 0; i < (uint64_t)MEMBERS * MICRO_BATCHES * TOKENS; i++) {
        (&s->tokens[0][0][0])[i] = (int32_t)ls_random_below(key, i, 2, (uint64_t)c->vocab);
        (&s->targets[0][0][0])[i] = i % 9 == 4 ? -1 : (int32_t)ls_random_below(key, i, 3, 61);
    }
}

static void subject_close(subject *s)
{
    free(s->weights);
    ls_arena_release(&s->arena);
}

/* ---- members ---- */

typedef struct member {
    const subject *subject;
    uint32_t degree, number; /* number: also of its leaf */
    uint32_t threads;
    ls_recompute recompute;
    void *room;
    float *const *gradients; /* by leaf */
    float losses[MICRO_BATCHES][TOKENS];
    /* bytes that others read; planned as if what crosses in a step were the same to and fro */
    uint64_t planned, given;
    ls_status status;
} member;

/* Visits of own tokens to experts of others, in the layer of `op`; the routes say so while they
 * live. */
static uint64_t crossing_of(const member *m, const ls_executor *e, const ls_op *op)
{
    const int32_t *first = (const int32_t *)(void *)(e->arena + ls_plan_offset(e->plan, op->routes, 0));
    const uint32_t own = EXPERTS / m->degree;
    const int32_t at_home = first[(m->number + 1) * own] - first[m->number * own];
    return (uint64_t)(first[EXPERTS] - at_home);
}

/* Counts what the steps of a micro-batch bring to others. */
static ls_status count_steps(void *context, uint32_t step)
{
    member *m = ((void **)context)[0];
    const ls_executor *e = ((void **)context)[1];
    const ls_op *op = &e->plan->ops[e->plan->steps[step].op];
    if (op->kind == LS_OP_TO_EXPERTS || op->kind == LS_OP_FROM_EXPERTS) {
        m->planned += ls_plan_visit_floats(e->plan, step, crossing_of(m, e, op)) * sizeof(float);
    }
    return LS_OK;
}

static ls_status run_batches(member *m, ls_executor *executor, const ls_crew *crew)
{
    void *context[] = {m, executor};
    for (int i = 0; i < MICRO_BATCHES; i++) {
        const ls_executor_batch batch = {.weights = m->subject->weights,
                                         .gradients = m->gradients[m->number],
                                         .member_gradients = m->degree > 1 ? m->gradients : NULL,
                                         .accumulate = i > 0,
                                         .more = i + 1 < MICRO_BATCHES,
                                         .tokens = m->subject->tokens[m->number][i],
                                         .targets = m->subject->targets[m->number][i],
                                         .losses = m->losses[i],
                                         .before_step = count_steps,
                                         .context = context,
                                         .crew = crew};
        LS_TRY(ls_executor_forward(executor, &batch));
        LS_TRY(ls_executor_backward(executor, &batch));
    }
    return LS_OK;
}

static ls_status run_plan(member *m, const ls_plan *plan, ls_queue *queue)
{
    const ls_crew_room_options options = {.mesh = {.expert = m->degree},
                                          .rank = m->number,
                                          .memory = m->room,
                                          .value_bytes = 64,
                                          .timeout_s = 30.0};
    ls_executor executor;
    ls_crew_room *room = NULL;
    LS_TRY(ls_executor_init(&executor, queue, plan, LENGTH));
    ls_status status = m->degree > 1 ? ls_crew_room_open(&options, &room) : LS_OK;
    if (room) {
        ls_crew_room_enter(room, 1, 0);
        status = ls_crew_room_await(room);
    }
    status = status == LS_OK ? run_batches(m, &executor, room ? ls_crew_room_crew(room) : NULL) : status;
    status = status == LS_OK && room ? ls_crew_room_meet(room) : status;
    m->given = room ? ls_crew_room_get_stats(room).group_bytes[LS_CREW_EXPERT] : 0;
    ls_crew_room_close(room);
    ls_executor_release(&executor);
    return status;
}

static void *member_main(void *context)
{
    member *m = context;
    ls_arena arena = {0};
    ls_queue *queue = NULL;
    ls_plan plan;
    m->status = ls_queue_create_cpu(m->threads, &queue);
    ls_plan_options options = ls_executor_plan_options(queue, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.balance_loss = 0.01;
    options.recompute = m->recompute;
    options.expert_degree = m->degree;
    options.expert_member = m->degree > 1 ? m->number : 0;
    if (m->status == LS_OK) {
        m->status = ls_plan_build(&arena, &m->subject->config, &m->subject->layout, &options, &plan);
    }
    if (m->status == LS_OK) {
        ls_plan_check(&plan);
        m->status = run_plan(m, &plan, queue);
    }
    ls_queue_destroy(queue);
    ls_arena_release(&arena);
    return NULL;
}

/* Leaves [first, first + degree), side by side. */
static void run_group(const subject *s, uint32_t first, uint32_t degree, uint32_t threads,
                      ls_recompute recompute, float *const gradients[MEMBERS], member members[MEMBERS])
{
    const uint64_t bytes = ls_crew_room_bytes((ls_mesh){.expert = degree}, 1, 64) + 64;
    void *room = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pthread_t thread[MEMBERS];
    assert_non_null(room);
    memset(room, 0, bytes);
    for (uint32_t i = 0; i < degree; i++) {
        members[i] = (member){.subject = s,
                              .degree = degree,
                              .number = first + i,
                              .threads = threads,
                              .recompute = recompute,
                              .room = room,
                              .gradients = gradients};
        assert_int_equal(pthread_create(&thread[i], NULL, member_main, &members[i]), 0);
    }
    for (uint32_t i = 0; i < degree; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(members[i].status, LS_OK);
    }
    free(room);
}

/* ---- what is compared ---- */

static void alloc_gradients(const subject *s, float *gradients[MEMBERS])
{
    for (int i = 0; i < MEMBERS; i++) {
        gradients[i] = calloc((size_t)s->layout.float_count, sizeof **gradients);
        assert_non_null(gradients[i]);
        for (int64_t e = 0; e < s->layout.float_count; e++) {
            gradients[i][e] = 1e30f; /* what is not written shows */
        }
    }
}

static void free_gradients(float *gradients[MEMBERS])
{
    for (int i = 0; i < MEMBERS; i++) {
        free(gradients[i]);
    }
}

/* Experts whose gradient is zero in a leaf, because no token visited them. */
static uint32_t check_gradients(const subject *s, const float *is, const float *want)
{
    uint32_t idle = 0;
    for (uint32_t i = 0; i < s->layout.parameter_count; i++) {
        const ls_parameter *p = &s->layout.parameters[i];
        bool any = false;
        for (int64_t e = p->offset; e < p->offset + p->rows * p->cols; e++) {
            any = any || want[e] != 0.0f;
            if (memcmp(&is[e], &want[e], sizeof *is) != 0 || !(want[e] < 1e6f)) {
                fail_msg("%s: %.9g, not %.9g", p->name, (double)is[e], (double)want[e]);
            }
        }
        idle += !any;
    }
    return idle;
}

/* What one gives on the way to the experts, another gives on the way back. */
static void check_bytes(const member *members, uint32_t degree)
{
    uint64_t given = 0, planned = 0;
    for (uint32_t i = 0; i < degree; i++) {
        given += members[i].given;
        planned += members[i].planned;
    }
    assert_true(planned > 0);
    assert_int_equal(given, planned);
}

static void check_family(ls_family family)
{
    subject s;
    float *alone[MEMBERS], *together[MEMBERS];
    static member one[MEMBERS], group[MEMBERS];
    uint32_t idle = 0;
    subject_open(&s, family);
    alloc_gradients(&s, alone);
    for (uint32_t leaf = 0; leaf < MEMBERS; leaf++) {
        run_group(&s, leaf, 1, 1, LS_RECOMPUTE_NONE, alone, &one[leaf]);
    }
    for (uint32_t degree = 2; degree <= MEMBERS; degree *= 2) {
        for (int recompute = LS_RECOMPUTE_NONE; recompute <= LS_RECOMPUTE_FULL; recompute++) {
            alloc_gradients(&s, together);
            run_group(&s, 0, degree, 1 + (uint32_t)recompute, (ls_recompute)recompute, together, group);
            for (uint32_t leaf = 0; leaf < degree; leaf++) {
                assert_memory_equal(group[leaf].losses, one[leaf].losses, sizeof one[leaf].losses);
                idle += check_gradients(&s, together[leaf], alone[leaf]);
            }
            check_bytes(group, degree);
            free_gradients(together);
        }
    }
    assert_true(idle > 0);
    free_gradients(alone);
    subject_close(&s);
}

static void mixtral_has_the_bits_of_one(void **state)
{
    (void)state;
    check_family(LS_FAMILY_MIXTRAL);
}

static void qwen3_moe_has_the_bits_of_one(void **state)
{
    (void)state;
    check_family(LS_FAMILY_QWEN3_MOE);
}

/* ---- what is refused ---- */

static void refuse(const subject *s, uint32_t degree, uint32_t number, const char *text)
{
    ls_arena arena = {0};
    ls_plan plan;
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = 1;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.expert_degree = degree;
    options.expert_member = number;
    assert_int_equal(ls_plan_build(&arena, &s->config, &s->layout, &options, &plan), LS_ERR_INVALID);
    if (!strstr(ls_error_text(), text)) {
        fail_msg("\"%s\" is not in \"%s\"", text, ls_error_text());
    }
    ls_arena_release(&arena);
}

static void impossible_groups_are_refused(void **state)
{
    (void)state;
    subject s;
    subject_open(&s, LS_FAMILY_MIXTRAL);
    refuse(&s, 3, 0, "parallel.expert is 3");
    refuse(&s, 16, 0, "power of two up to 8");
    refuse(&s, 2, 2, "(member 2)");
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixtral_has_the_bits_of_one),
        cmocka_unit_test(qwen3_moe_has_the_bits_of_one),
        cmocka_unit_test(impossible_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

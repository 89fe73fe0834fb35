// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor groups: the members of a group of any degree have the losses and gradients, bit for bit, of
 * one process that computes all pieces of the cut. Members are threads here, each with an executor
 * and gradients of its own, so that what a member must not write shows.
 */
#include "test.h"

#include "base/assert.h"
#include "base/pieces.h"
#include "base/random.h"
#include "execution/executor/executor.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CUT = 4, SEQUENCES = 2, LENGTH = 41, TOKENS = SEQUENCES * LENGTH, MICRO_BATCHES = 2, DEADLINE_S = 60 };

/* ---- models ---- */

typedef struct subject {
    const char *name;
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    float *weights;
    int32_t tokens[MICRO_BATCHES][TOKENS], targets[MICRO_BATCHES][TOKENS];
    int32_t first[TOKENS];
} subject;

typedef struct variant {
    const char *name;
    ls_family family;
    bool tied, biases;
} variant;

static const variant variants[] = {
    {"gpt2", LS_FAMILY_GPT2, true, true},         {"gpt2 untied", LS_FAMILY_GPT2, false, true},
    {"llama", LS_FAMILY_LLAMA, false, false},     {"llama with biases", LS_FAMILY_LLAMA, true, true},
    {"qwen3 tied", LS_FAMILY_QWEN3, true, false}, {"qwen3", LS_FAMILY_QWEN3, false, false},
    {"mixtral", LS_FAMILY_MIXTRAL, false, false}, {"qwen3-moe", LS_FAMILY_QWEN3_MOE, true, false},
};
enum { VARIANT_COUNT = sizeof variants / sizeof *variants };

static ls_model_config config_of(const variant *v)
{
    ls_model_config c;
    ls_model_config_defaults(v->family, &c);
    c.layers = 2;
    c.heads = 8;
    c.kv_heads = v->family == LS_FAMILY_GPT2 ? 8 : 4;
    c.head_dim = 6;
    c.width = 48;
    c.ffn = 84;
    c.context = LENGTH;
    c.vocab = 71; /* pieces of 17 and 18 */
    c.tied = v->tied;
    if (ls_family_has_experts(v->family)) {
        c.expert_ffn = c.ffn;
        c.experts = 24; /* some are visited by no token */
        c.experts_per_token = 2;
    } else if (v->family != LS_FAMILY_GPT2) {
        c.qkv_bias = c.output_bias = c.mlp_bias = v->biases;
    }
    return c;
}

/* Weights that are all different: also those of norms and biases. */
static void subject_open(subject *s, const variant *v)
{
    *s = (subject){.name = v->name, .config = config_of(v)};
    ls_layout_build(&s->arena, &s->config, &s->layout);
    s->weights = calloc((size_t)s->layout.parameter_floats, sizeof *s->weights);
    assert_non_null(s->weights);
    const ls_random_key key = ls_random_stream(7, LS_RANDOM_TEST);
    ls_random_normals(key, 0, 1, (size_t)s->layout.parameter_floats, s->weights);
    for (uint32_t i = 0; i < s->layout.parameter_count; i++) {
        const ls_parameter *p = &s->layout.parameters[i];
        for (int64_t e = 0; e < p->rows * p->cols; e++) {
            s->weights[p->offset + e] = 0.1f * s->weights[p->offset + e] + (p->init == LS_INIT_ONE);
        }
    }
    for (int m = 0; m < MICRO_BATCHES; m++) {
        for (int i = 0; i < TOKENS; i++) {
            const uint64_t at = (uint64_t)(m * TOKENS + i);
            s->tokens[m][i] = (int32_t)ls_random_below(key, at, 2, (uint64_t)s->config.vocab);
            s->targets[m][i] = i % 7 == 3 ? -1 : (int32_t)ls_random_below(key, at, 3, 71);
            s->first[i] = i % LENGTH < 25 ? 0 : 25;
        }
    }
}

static void subject_close(subject *s)
{
    free(s->weights);
    ls_arena_release(&s->arena);
}

/* ---- a group of threads ---- */

enum { MEMBERS_MAX = 4 };

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t done;
    uint32_t degree, arrived;
    uint64_t round;
    const ls_tensor *values[MEMBERS_MAX], *results[MEMBERS_MAX];
} group;

typedef struct member {
    group *group;
    ls_crew crew;
    const subject *subject;
    uint32_t threads;
    ls_recompute recompute;
    float *gradients;
    float losses[MICRO_BATCHES][TOKENS];
    uint64_t exchanged, planned; /* floats */
    ls_status status;
} member;

typedef enum exchange { SUM, MAX, GATHER, SCATTER } exchange;

static void copy_rows(const ls_tensor *from, int64_t first, const ls_tensor *to, int64_t at, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        memcpy(ls_tensor_row(to, at + r), ls_tensor_row(from, first + r), (size_t)to->cols * sizeof(float));
    }
}

/* The tree over the members' values, in place in those of the first. */
static void add_values(const group *g, bool largest)
{
    for (uint32_t step = 1; step < g->degree; step *= 2) {
        for (uint32_t m = 0; m + step < g->degree; m += 2 * step) {
            for (int64_t r = 0; r < g->values[0]->rows; r++) {
                float *left = ls_tensor_row(g->values[m], r);
                const float *right = ls_tensor_row(g->values[m + step], r);
                for (int64_t c = 0; c < g->values[0]->cols; c++) {
                    const float larger = left[c] > right[c] ? left[c] : right[c];
                    left[c] = largest ? larger : left[c] + right[c];
                }
            }
        }
    }
}

/* What the last member to come does for all. */
static void complete(const group *g, exchange kind)
{
    if (kind != GATHER) {
        add_values(g, kind == MAX);
    }
    for (uint32_t m = 0; m < g->degree; m++) {
        const ls_tensor *to = g->results[m];
        for (uint32_t of = 0; of < g->degree && kind == GATHER; of++) {
            copy_rows(g->values[of], 0, to, ls_piece_first(to->rows, g->degree, of), g->values[of]->rows);
        }
        if (kind == SCATTER) {
            copy_rows(g->values[0], ls_piece_first(g->values[0]->rows, g->degree, m), to, 0, to->rows);
        } else if (kind != GATHER && m > 0) {
            copy_rows(g->values[0], 0, to, 0, to->rows);
        }
    }
}

static ls_status meet(member *m, exchange kind, const ls_tensor *values, const ls_tensor *result)
{
    group *g = m->group;
    const ls_tensor *whole = kind == GATHER ? result : values;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += DEADLINE_S;
    m->exchanged += (uint64_t)(whole->rows * whole->cols);
    pthread_mutex_lock(&g->lock);
    const uint64_t round = g->round;
    g->values[m->crew.tensor_member] = values;
    g->results[m->crew.tensor_member] = result;
    if (++g->arrived == g->degree) {
        complete(g, kind);
        g->arrived = 0;
        g->round++;
        pthread_cond_broadcast(&g->done);
    }
    int late = 0;
    while (g->round == round && late == 0) {
        late = pthread_cond_timedwait(&g->done, &g->lock, &end);
    }
    pthread_mutex_unlock(&g->lock);
    return late == 0 ? LS_OK : LS_ERR_TIMEOUT;
}

static ls_status reduce(void *context, ls_crew_group group_kind, ls_crew_reduction reduction,
                        const ls_tensor *values)
{
    LS_ASSERT(group_kind == LS_CREW_TENSOR);
    return meet(context, reduction == LS_CREW_MAX ? MAX : SUM, values, values);
}

static ls_status gather_rows(void *context, const ls_tensor *own, const ls_tensor *all)
{
    return meet(context, GATHER, own, all);
}

static ls_status scatter_rows(void *context, const ls_tensor *values, const ls_tensor *own)
{
    return meet(context, SCATTER, values, own);
}

static ls_status run_batches(member *m, ls_queue *queue, const ls_plan *plan)
{
    ls_executor executor;
    LS_TRY(ls_executor_init(&executor, queue, plan, LENGTH));
    ls_status status = LS_OK;
    for (int i = 0; i < MICRO_BATCHES && status == LS_OK; i++) {
        const ls_executor_batch batch = {.weights = m->subject->weights,
                                         .gradients = m->gradients,
                                         .accumulate = i > 0,
                                         .more = i + 1 < MICRO_BATCHES,
                                         .tokens = m->subject->tokens[i],
                                         .targets = m->subject->targets[i],
                                         .first = i > 0 ? m->subject->first : NULL,
                                         .losses = m->losses[i],
                                         .crew = &m->crew};
        status = ls_executor_forward(&executor, &batch);
        if (status == LS_OK) {
            status = ls_executor_backward(&executor, &batch);
        }
        for (uint32_t step = 0; step < plan->step_count; step++) {
            m->planned += ls_plan_exchanged_floats(plan, step);
        }
    }
    ls_executor_release(&executor);
    return status;
}

static ls_status run_member(member *m)
{
    ls_arena arena = {0};
    ls_queue *queue = NULL;
    ls_plan plan;
    LS_TRY(ls_queue_create_cpu(m->threads, &queue));
    ls_plan_options options = ls_executor_plan_options(queue, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.recompute = m->recompute;
    options.logits_rows = 64;
    options.tensor_cut = CUT;
    options.balance_loss = m->subject->config.experts > 0 ? 0.01 : 0.0;
    options.tensor_degree = m->crew.tensor_degree;
    options.tensor_member = m->crew.tensor_member;
    ls_status status = ls_plan_build(&arena, &m->subject->config, &m->subject->layout, &options, &plan);
    if (status == LS_OK) {
        ls_plan_check(&plan);
        status = run_batches(m, queue, &plan);
    }
    ls_queue_destroy(queue);
    ls_arena_release(&arena);
    return status;
}

static void *member_main(void *context)
{
    member *m = context;
    m->status = run_member(m);
    return NULL;
}

/* What nothing has written: no sum has these bits. */
static const uint32_t untouched = 0x7fc12345u;

static void run_group(const subject *s, uint32_t degree, uint32_t threads, ls_recompute recompute,
                      member members[MEMBERS_MAX])
{
    group g = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .degree = degree};
    pthread_t thread[MEMBERS_MAX];
    for (uint32_t i = 0; i < degree; i++) {
        members[i] = (member){.group = &g, .subject = s, .threads = threads, .recompute = recompute};
        members[i].crew = (ls_crew){.context = &members[i],
                                    .tensor_degree = degree,
                                    .tensor_member = i,
                                    .stages = 1,
                                    .reduce = reduce,
                                    .gather_rows = gather_rows,
                                    .scatter_rows = scatter_rows};
        members[i].gradients = malloc((size_t)s->layout.float_count * sizeof(float));
        assert_non_null(members[i].gradients);
        for (int64_t e = 0; e < s->layout.float_count; e++) {
            memcpy(&members[i].gradients[e], &untouched, sizeof untouched);
        }
        assert_int_equal(pthread_create(&thread[i], NULL, member_main, &members[i]), 0);
    }
    for (uint32_t i = 0; i < degree; i++) {
        pthread_join(thread[i], NULL);
        if (members[i].status != LS_OK) {
            fail_msg("%s: member %u of %u: status %d", s->name, i, degree, (int)members[i].status);
        }
        assert_int_equal(members[i].exchanged, members[i].planned);
        assert_true(degree == 1 ? members[i].exchanged == 0 : members[i].exchanged > 0);
    }
}

static void free_group(member *members, uint32_t degree)
{
    for (uint32_t i = 0; i < degree; i++) {
        free(members[i].gradients);
    }
}

/* ---- what is compared ---- */

/* Every element is written by one member, with the bits of `whole`, and by no other. */
static void check_parameter(const subject *s, uint32_t index, const member *whole, const member *members,
                            uint32_t degree)
{
    const ls_parameter *p = &s->layout.parameters[index];
    for (int64_t e = 0; e < p->rows * p->cols; e++) {
        const float want = whole->gradients[p->offset + e];
        uint32_t writers = 0;
        for (uint32_t i = 0; i < degree; i++) {
            const float *is = &members[i].gradients[p->offset + e];
            writers += memcmp(is, &untouched, sizeof *is) != 0;
            if (memcmp(is, &untouched, sizeof *is) != 0 && memcmp(is, &want, sizeof *is) != 0) {
                fail_msg("%s, degree %u: member %u has %.9g, not %.9g, at (%lld, %lld) of %s", s->name,
                         degree, i, (double)*is, (double)want, (long long)(e / p->cols),
                         (long long)(e % p->cols), p->name);
            }
        }
        if (writers != 1) {
            fail_msg("%s, degree %u: %u members write (%lld, %lld) of %s", s->name, degree, writers,
                     (long long)(e / p->cols), (long long)(e % p->cols), p->name);
        }
    }
}

static void members_have_the_bits_of_one(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANT_COUNT; v++) {
        subject s;
        member whole[MEMBERS_MAX], members[MEMBERS_MAX];
        subject_open(&s, &variants[v]);
        run_group(&s, 1, 1, LS_RECOMPUTE_NONE, whole);
        for (uint32_t degree = 1; degree <= CUT; degree *= 2) {
            run_group(&s, degree, 1 + degree % 2, (ls_recompute)((uint32_t)v + degree) % 3, members);
            for (uint32_t i = 0; i < degree; i++) {
                assert_memory_equal(members[i].losses, whole[0].losses, sizeof whole[0].losses);
            }
            for (uint32_t p = 0; p < s.layout.parameter_count; p++) {
                check_parameter(&s, p, &whole[0], members, degree);
            }
            free_group(members, degree);
        }
        free_group(whole, 1);
        subject_close(&s);
    }
}

/* ---- what is refused ---- */

static void refuse(const subject *s, uint32_t cut, uint32_t degree, uint32_t member_number, const char *text)
{
    ls_arena arena = {0};
    ls_plan plan;
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = 1;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.tensor_cut = cut;
    options.tensor_degree = degree;
    options.tensor_member = member_number;
    assert_int_not_equal(ls_plan_build(&arena, &s->config, &s->layout, &options, &plan), LS_OK);
    if (!strstr(ls_error_text(), text)) {
        fail_msg("\"%s\" is not in \"%s\"", text, ls_error_text());
    }
    ls_arena_release(&arena);
}

static void impossible_groups_are_refused(void **state)
{
    (void)state;
    subject s;
    subject_open(&s, &variants[2]);
    refuse(&s, 1, 2, 0, "parallel.tensor is 2 and train.tensor_cut 1");
    refuse(&s, 2, 4, 0, "multiple of parallel.tensor, for example 4");
    refuse(&s, 4, 2, 2, "no member 2 in a tensor group of 2");
    static const char *const all[] = {"*"};
    const ls_adapter adapter = {.rank = 2, .alpha = 2.0, .targets = all, .target_count = 1};
    assert_int_equal(ls_layout_build_adapter(&s.arena, &s.config, &adapter, NULL, &s.layout), LS_OK);
    refuse(&s, 4, 2, 0, "adapters");
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_the_bits_of_one),
        cmocka_unit_test(impossible_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

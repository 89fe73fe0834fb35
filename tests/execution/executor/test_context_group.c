// SPDX-License-Identifier: Apache-2.0
/*
 * Cut sequences and context groups: a token has the loss that it has in a whole sequence, bit for bit;
 * the gradients of a piece do not depend on who computes the other pieces; and their sum is the
 * gradient of the whole. Members are threads here.
 */
#include "test.h"

#include "base/random.h"
#include "execution/executor/executor.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEQUENCES = 2, LENGTH = 176, TOKENS = SEQUENCES * LENGTH, MICRO_BATCHES = 2, DEADLINE_S = 60 };
enum { PIECES_MAX = LS_SEQUENCE_CUT_MAX, VOCAB = 71 };

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

static const struct {
    const char *name;
    ls_family family;
    bool tied;
    int64_t window;
} variants[] = {{"gpt2", LS_FAMILY_GPT2, true, 0},
                {"llama", LS_FAMILY_LLAMA, false, 0},
                {"mistral", LS_FAMILY_MISTRAL, false, 50},
                {"qwen3", LS_FAMILY_QWEN3, true, 0},
                {"mixtral", LS_FAMILY_MIXTRAL, false, 0}};
enum { VARIANT_COUNT = sizeof variants / sizeof *variants };

static void subject_open(subject *s, int variant)
{
    *s = (subject){.name = variants[variant].name};
    ls_model_config *c = &s->config;
    ls_model_config_defaults(variants[variant].family, c);
    c->layers = 2;
    c->heads = 4;
    c->kv_heads = c->family == LS_FAMILY_GPT2 ? 4 : 2;
    c->head_dim = 10;
    c->width = 40;
    c->ffn = 56;
    c->context = LENGTH;
    c->vocab = VOCAB;
    if (ls_family_has_experts(c->family)) {
        c->expert_ffn = c->ffn;
        c->experts = 6;
        c->experts_per_token = 2;
    }
    c->tied = variants[variant].tied;
    c->window = variants[variant].window;
    ls_layout_build(&s->arena, c, &s->layout);
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
            s->tokens[m][i] = (int32_t)ls_random_below(key, at, 2, VOCAB);
            s->targets[m][i] = i % 7 == 3 ? -1 : (int32_t)ls_random_below(key, at, 3, VOCAB);
            /* the second record reaches over several runs, the third begins within one */
            s->first[i] = i % LENGTH < 25 ? 0 : i % LENGTH < 130 ? 25 : 130;
        }
    }
}

static void subject_close(subject *s)
{
    free(s->weights);
    ls_arena_release(&s->arena);
}

/* ---- a group of threads ---- */

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t done;
    uint32_t degree, arrived;
    uint64_t round;
    float *values[PIECES_MAX]; /* of each member: what it adds, or the room for all */
    const float *own[PIECES_MAX];
} group;

typedef struct member {
    group *group;
    ls_crew crew;
    const subject *subject;
    uint32_t cut, threads;
    ls_recompute recompute;
    float **gradients; /* of all pieces; a member writes its own */
    float (*losses)[TOKENS];
    uint64_t given, planned; /* floats */
    ls_status status;
} member;

static void add_all(group *g, int64_t count)
{
    for (uint32_t step = 1; step < g->degree; step *= 2) {
        for (uint32_t m = 0; m + step < g->degree; m += 2 * step) {
            for (int64_t i = 0; i < count; i++) {
                g->values[m][i] += g->values[m + step][i];
            }
        }
    }
    for (uint32_t m = 1; m < g->degree; m++) {
        memcpy(g->values[m], g->values[0], (size_t)count * sizeof(float));
    }
}

static void gather_all(group *g, int64_t count)
{
    for (uint32_t to = 0; to < g->degree; to++) {
        for (uint32_t from = 0; from < g->degree; from++) {
            memcpy(g->values[to] + from * count, g->own[from], (size_t)count * sizeof(float));
        }
    }
}

/* The last member to come works for all. */
static ls_status exchange(member *m, const float *own, float *values, int64_t count)
{
    group *g = m->group;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += DEADLINE_S;
    m->given += (uint64_t)count;
    pthread_mutex_lock(&g->lock);
    const uint64_t round = g->round;
    g->values[m->crew.context_member] = values;
    g->own[m->crew.context_member] = own;
    if (++g->arrived == g->degree) {
        (own ? gather_all : add_all)(g, count);
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

static ls_status reduce(void *context, ls_crew_group kind, ls_crew_reduction reduction,
                        const ls_tensor *values)
{
    return kind == LS_CREW_CONTEXT && reduction == LS_CREW_SUM && values->stride == values->cols
               ? exchange(context, NULL, values->data, values->rows * values->cols)
               : LS_ERR_INVALID;
}

static ls_status gather(void *context, ls_crew_group kind, const void *own, size_t bytes, void *all_out)
{
    return kind == LS_CREW_CONTEXT ? exchange(context, own, all_out, (int64_t)(bytes / sizeof(float)))
                                   : LS_ERR_INVALID;
}

static ls_status run_batches(member *m, ls_queue *queue, const ls_plan *plan)
{
    ls_executor executor;
    LS_TRY(ls_executor_init(&executor, queue, plan, LENGTH));
    ls_status status = LS_OK;
    for (int i = 0; i < MICRO_BATCHES && status == LS_OK; i++) {
        float *const *pieces = m->gradients + plan->options.context_member * plan->pieces;
        const ls_executor_batch batch = {.weights = m->subject->weights,
                                         .gradients = pieces[0],
                                         .piece_gradients = pieces,
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
            m->planned += ls_plan_context_floats(plan, step);
        }
    }
    ls_executor_release(&executor);
    return status;
}

static ls_plan_options options_of(const ls_queue *queue, uint32_t cut, uint32_t degree, uint32_t number)
{
    ls_plan_options options = ls_executor_plan_options(queue, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.logits_rows = 64;
    options.sequence_cut = cut;
    options.context_degree = degree;
    options.context_member = number;
    return options;
}

static ls_status run_member(member *m)
{
    ls_arena arena = {0};
    ls_queue *queue = NULL;
    ls_plan plan;
    LS_TRY(ls_queue_create_cpu(m->threads, &queue));
    ls_plan_options options = options_of(queue, m->cut, m->crew.context_degree, m->crew.context_member);
    options.recompute = m->recompute;
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

/* ---- what a group leaves ---- */

typedef struct result {
    float *gradients[PIECES_MAX];
    float losses[MICRO_BATCHES][TOKENS];
} result;

static void run_group(const subject *s, uint32_t cut, uint32_t degree, uint32_t threads, result *r)
{
    group g = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .degree = degree};
    pthread_t thread[PIECES_MAX];
    member members[PIECES_MAX];
    for (uint32_t i = 0; i < cut; i++) {
        r->gradients[i] = calloc((size_t)s->layout.float_count, sizeof(float));
        assert_non_null(r->gradients[i]);
    }
    memset(r->losses, 0xff, sizeof r->losses);
    for (uint32_t i = 0; i < degree; i++) {
        members[i] = (member){.group = &g,
                              .subject = s,
                              .cut = cut,
                              .threads = threads,
                              .recompute = (ls_recompute)(degree % 3),
                              .gradients = r->gradients,
                              .losses = r->losses};
        members[i].crew = (ls_crew){.context = &members[i],
                                    .tensor_degree = 1,
                                    .context_degree = degree,
                                    .context_member = i,
                                    .stages = 1,
                                    .reduce = reduce,
                                    .gather = gather};
        assert_int_equal(pthread_create(&thread[i], NULL, member_main, &members[i]), 0);
    }
    for (uint32_t i = 0; i < degree; i++) {
        pthread_join(thread[i], NULL);
        if (members[i].status != LS_OK) {
            fail_msg("%s: member %u of %u: status %d", s->name, i, degree, (int)members[i].status);
        }
        assert_int_equal(members[i].given, members[i].planned);
        assert_true(degree == 1 ? members[i].given == 0 : members[i].given > 0);
    }
}

static void free_result(result *r, uint32_t cut)
{
    for (uint32_t i = 0; i < cut; i++) {
        free(r->gradients[i]);
    }
}

/* The pieces add up to the gradient of whole sequences. */
static void check_sum(const subject *s, uint32_t cut, const result *pieces, const result *whole)
{
    double error = 0.0, norm = 0.0;
    for (int64_t i = 0; i < s->layout.float_count; i++) {
        double sum = 0.0;
        for (uint32_t p = 0; p < cut; p++) {
            sum += (double)pieces->gradients[p][i];
        }
        const double want = (double)whole->gradients[0][i];
        error += (sum - want) * (sum - want);
        norm += want * want;
    }
    if (!(error <= 1e-10 * norm && norm > 0.0)) {
        fail_msg("%s, cut %u: the gradient is wrong by %.3g", s->name, cut, sqrt(error / norm));
    }
}

static void check_same(const subject *s, uint32_t cut, uint32_t degree, const result *got, const result *want)
{
    assert_memory_equal(got->losses, want->losses, sizeof want->losses);
    for (uint32_t piece = 0; piece < cut; piece++) {
        for (uint32_t i = 0; i < s->layout.parameter_count; i++) {
            const ls_parameter *p = &s->layout.parameters[i];
            const size_t bytes = (size_t)(p->rows * p->cols) * sizeof(float);
            if (memcmp(got->gradients[piece] + p->offset, want->gradients[piece] + p->offset, bytes) != 0) {
                fail_msg("%s, cut %u, degree %u: piece %u has another gradient of %s", s->name, cut, degree,
                         piece, p->name);
            }
        }
    }
}

static void members_have_the_bits_of_one(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANT_COUNT; v++) {
        subject s;
        result whole, one, many;
        subject_open(&s, v);
        run_group(&s, 1, 1, 1, &whole);
        for (uint32_t cut = 2; cut <= 4; cut *= 2) {
            run_group(&s, cut, 1, 1, &one);
            assert_memory_equal(one.losses, whole.losses, sizeof whole.losses);
            check_sum(&s, cut, &one, &whole);
            for (uint32_t degree = 1; degree <= cut; degree *= 2) {
                run_group(&s, cut, degree, 1 + degree % 2, &many);
                check_same(&s, cut, degree, &many, &one);
                free_result(&many, cut);
            }
            free_result(&one, cut);
        }
        free_result(&whole, 1);
        subject_close(&s);
    }
}

/* ---- tokens of pieces ---- */

static void pieces_divide_the_tokens(void **state)
{
    (void)state;
    subject s;
    subject_open(&s, 1);
    int seen[TOKENS] = {0};
    for (uint32_t number = 0; number < 2; number++) {
        ls_arena arena = {0};
        ls_plan plan;
        const ls_plan_options options = options_of(NULL, 4, 2, number);
        assert_int_equal(ls_plan_build(&arena, &s.config, &s.layout, &options, &plan), LS_OK);
        assert_int_equal(plan.pieces, 2);
        for (uint32_t piece = 0; piece < plan.pieces; piece++) {
            int64_t pairs = 0;
            for (int64_t row = 0; row < plan.rows; row++) {
                const int64_t token = ls_plan_token(&plan, piece, row);
                seen[token]++;
                pairs += token % LENGTH + 1;
            }
            assert_int_equal(pairs, SEQUENCES * (LENGTH * (LENGTH + 1) / 2) / 4);
        }
        ls_arena_release(&arena);
    }
    for (int i = 0; i < TOKENS; i++) {
        assert_int_equal(seen[i], 1);
    }
    subject_close(&s);
}

/* ---- what is refused ---- */

static void refuse(const subject *s, ls_plan_options options, const char *text)
{
    ls_arena arena = {0};
    ls_plan plan;
    assert_int_not_equal(ls_plan_build(&arena, &s->config, &s->layout, &options, &plan), LS_OK);
    if (!strstr(ls_error_text(), text)) {
        fail_msg("\"%s\" is not in \"%s\"", text, ls_error_text());
    }
    ls_arena_release(&arena);
}

static void impossible_cuts_are_refused(void **state)
{
    (void)state;
    subject s;
    subject_open(&s, 1);
    refuse(&s, options_of(NULL, 3, 1, 0), "train.sequence_cut is 3; it must be a power of two");
    refuse(&s, options_of(NULL, 2, 4, 0), "multiple of parallel.context, for example 4");
    ls_plan_options odd = options_of(NULL, 4, 1, 0);
    odd.length = 100;
    refuse(&s, odd, "100 tokens, which must be a multiple of twice the cut, 8");
    static const char *const all[] = {"*"};
    const ls_adapter adapter = {.rank = 2, .alpha = 2.0, .targets = all, .target_count = 1};
    assert_int_equal(ls_layout_build_adapter(&s.arena, &s.config, &adapter, NULL, &s.layout), LS_OK);
    refuse(&s, options_of(NULL, 2, 1, 0), "adapters");
    subject_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_the_bits_of_one),
        cmocka_unit_test(pieces_divide_the_tokens),
        cmocka_unit_test(impossible_cuts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

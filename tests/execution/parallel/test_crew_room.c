// SPDX-License-Identifier: Apache-2.0
/*
 * The room of a crew: sums in the order of the tree, gathers, values along the ring of stages, and
 * what happens when a member is missing or asks for something else. Members are threads.
 */
#include "test.h"

#include "base/math.h"
#include "base/pieces.h"
#include "base/random.h"
#include "execution/parallel/crew_room.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 8, ROWS = 37, COLS = 3001, STRIDE = 3004, VALUE_FLOATS = 1000 };

typedef struct world {
    ls_mesh mesh;
    void *memory;
    _Atomic uint32_t abort;
    pthread_barrier_t left;
    double timeout_s;
    const char *wrong; /* set by any member */
    uint32_t missing;  /* member that does not come; MEMBERS_MAX: all do */
    ls_status status[MEMBERS_MAX];
    char text[MEMBERS_MAX][512];
} world;

typedef struct member {
    world *w;
    uint32_t rank;
    ls_status (*run)(struct member *m, const ls_crew *crew, ls_crew_room *room);
} member;

#define MUST(m, condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            (m)->w->wrong = #condition;                                                                      \
        }                                                                                                    \
    } while (0)

static ls_status fenced(void *context)
{
    (void)context;
    return ls_fail(LS_FENCED, "a fence");
}

static void *live(void *context)
{
    member *m = context;
    world *w = m->w;
    ls_crew_room *room = NULL;
    const ls_crew_room_options options = {.mesh = w->mesh,
                                          .rank = m->rank,
                                          .host = {0, 64},
                                          .memory = w->memory,
                                          .value_bytes = VALUE_FLOATS * sizeof(float),
                                          .timeout_s = w->timeout_s,
                                          .abort = &w->abort,
                                          .aborted = fenced};
    if (m->rank == w->missing) {
        return NULL;
    }
    ls_status status = ls_crew_room_open(&options, &room);
    for (uint64_t attempt = 1; status == LS_OK && attempt <= 2; attempt++) {
        ls_crew_room_enter(room, attempt, 0);
        status = ls_crew_room_await(room);
        status = status == LS_OK ? m->run(m, ls_crew_room_crew(room), room) : status;
        status = status == LS_OK ? ls_crew_room_meet(room) : status;
        if (status == LS_OK) { /* the caller's part: the next attempt begins when all have left */
            pthread_barrier_wait(&w->left);
        }
    }
    w->status[m->rank] = status;
    strncpy(w->text[m->rank], ls_error_text(), sizeof w->text[0] - 1);
    ls_crew_room_close(room);
    return NULL;
}

static void run_crew(world *w, ls_status (*run)(member *m, const ls_crew *crew, ls_crew_room *room))
{
    const uint32_t size = ls_mesh_crew(w->mesh);
    const uint64_t bytes = ls_crew_room_bytes(w->mesh, 1, VALUE_FLOATS * sizeof(float));
    member members[MEMBERS_MAX];
    pthread_t threads[MEMBERS_MAX];
    w->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    w->timeout_s = w->timeout_s > 0.0 ? w->timeout_s : 20.0;
    assert_non_null(w->memory);
    memset(w->memory, 0, bytes);
    pthread_barrier_init(&w->left, NULL, size);
    for (uint32_t i = 0; i < size; i++) {
        members[i] = (member){.w = w, .rank = i, .run = run};
        assert_int_equal(pthread_create(&threads[i], NULL, live, &members[i]), 0);
    }
    for (uint32_t i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&w->left);
    free(w->memory);
    assert_null(w->wrong);
}

static float number(uint32_t who, int64_t at)
{
    const ls_random_key key = ls_random_stream(1 + who, LS_RANDOM_SIMULATION);
    return (float)((double)(ls_random_u64(key, 0, (uint64_t)at) % 2000003) / 1000.0 - 1000.0);
}

static float tree(uint32_t first, uint32_t count, int64_t at, ls_crew_reduction reduction)
{
    if (count == 1) {
        return number(first, at);
    }
    const float a = tree(first, count / 2, at, reduction);
    const float b = tree(first + count / 2, count / 2, at, reduction);
    return reduction == LS_CREW_SUM ? a + b : a > b ? a : b;
}

/* Strided and packed views, larger than a chunk and smaller. */
static ls_status reduce_all(member *m, const ls_crew *crew, ls_crew_room *room)
{
    (void)room;
    float *data = calloc(ROWS * STRIDE, sizeof *data);
    ls_status status = LS_OK;
    for (int kind = 0; kind < 6 && status == LS_OK; kind++) {
        ls_tensor values = ls_tensor_f32(data, kind < 2 ? 1 : ROWS, COLS);
        values.stride = kind % 2 == 0 ? COLS : STRIDE;
        const ls_crew_reduction reduction = kind < 4 ? LS_CREW_SUM : LS_CREW_MAX;
        for (int64_t i = 0; i < values.rows * COLS; i++) {
            data[i / COLS * values.stride + i % COLS] = number(crew->tensor_member, i);
        }
        status = crew->reduce(crew->context, LS_CREW_TENSOR, reduction, &values);
        for (int64_t i = 0; i < values.rows * COLS && status == LS_OK; i += 7) {
            const float is = data[i / COLS * values.stride + i % COLS];
            MUST(m, is == tree(0, crew->tensor_degree, i, reduction));
        }
    }
    free(data);
    return status;
}

static void room_adds_in_the_order_of_the_tree(void **state)
{
    (void)state;
    static const ls_mesh meshes[] = {{2, 1}, {4, 1}, {8, 1}, {2, 3}};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        world w = {.mesh = meshes[i], .missing = MEMBERS_MAX};
        run_crew(&w, reduce_all);
        for (uint32_t r = 0; r < ls_mesh_crew(w.mesh); r++) {
            assert_int_equal(w.status[r], LS_OK);
        }
    }
}

static ls_status gather_all(member *m, const ls_crew *crew, ls_crew_room *room)
{
    (void)room;
    enum { MATRIX_ROWS = 1003, MATRIX_COLS = 301 }; /* pieces that are not equal, of more than a chunk */
    const uint32_t degree = crew->tensor_degree, self = crew->tensor_member;
    const int64_t first = ls_piece_first(MATRIX_ROWS, degree, self);
    const int64_t mine = ls_piece_first(MATRIX_ROWS, degree, self + 1) - first;
    float *memory = calloc((size_t)(2 * MATRIX_ROWS * MATRIX_COLS), sizeof *memory);
    const ls_tensor all = ls_tensor_f32(memory, MATRIX_ROWS, MATRIX_COLS);
    const ls_tensor own = ls_tensor_f32(memory + MATRIX_ROWS * MATRIX_COLS, mine, MATRIX_COLS);
    for (int64_t i = 0; i < mine * MATRIX_COLS; i++) {
        memory[MATRIX_ROWS * MATRIX_COLS + i] = number(self, i);
    }
    ls_status status = crew->gather_rows(crew->context, &own, &all);
    for (uint32_t of = 0; of < degree && status == LS_OK; of++) {
        const int64_t begin = ls_piece_first(MATRIX_ROWS, degree, of),
                      end = ls_piece_first(MATRIX_ROWS, degree, of + 1);
        for (int64_t i = 0; i < (end - begin) * MATRIX_COLS; i += 97) {
            MUST(m, memory[begin * MATRIX_COLS + i] == number(of, i));
        }
    }
    for (int64_t i = 0; i < MATRIX_ROWS * MATRIX_COLS; i++) {
        memory[i] = number(self, i);
    }
    status = status == LS_OK ? crew->scatter_rows(crew->context, &all, &own) : status;
    for (int64_t i = 0; i < mine * MATRIX_COLS && status == LS_OK; i += 89) {
        float sums[MEMBERS_MAX];
        for (uint32_t of = 0; of < degree; of++) {
            sums[of] = number(of, first * MATRIX_COLS + i);
        }
        for (uint32_t step = 1; step < degree; step *= 2) {
            for (uint32_t of = 0; of < degree; of += 2 * step) {
                sums[of] += sums[of + step];
            }
        }
        MUST(m, memory[MATRIX_ROWS * MATRIX_COLS + i] == sums[0]);
    }
    free(memory);
    return status;
}

static void room_gathers_and_scatters_rows(void **state)
{
    (void)state;
    world w = {.mesh = {4, 2}, .missing = MEMBERS_MAX};
    run_crew(&w, gather_all);
}

/* Values go round the ring both ways; a large one goes in pieces; a sender runs ahead of the
 * receiver by LS_CREW_SENDS_AHEAD values. */
static ls_status send_round(member *m, const ls_crew *crew, ls_crew_room *room)
{
    enum { COUNT = 10, LARGE = 3 * VALUE_FLOATS + 11 };
    const uint32_t next = (crew->stage + 1) % crew->stages;
    const uint32_t before = (crew->stage + crew->stages - 1) % crew->stages;
    static _Thread_local float data[LARGE];
    ls_tensor value = ls_tensor_f32(data, 1, VALUE_FLOATS), large = ls_tensor_f32(data, 1, LARGE);
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
            data[0] = (float)(100 * m->rank + 10 * way + i);
            LS_TRY(
                crew->send(crew->context, (ls_crew_way)way, way == LS_CREW_FORWARD ? next : before, &value));
        }
        if (i + 1 < LS_CREW_SENDS_AHEAD) {
            continue;
        }
        const uint32_t last = i + 1 == COUNT ? COUNT : i + 2 - LS_CREW_SENDS_AHEAD;
        for (uint32_t k = i + 1 - LS_CREW_SENDS_AHEAD; k < last; k++) {
            for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
                const uint32_t from = way == LS_CREW_FORWARD ? before : next;
                LS_TRY(crew->receive(crew->context, (ls_crew_way)way, from, &value));
                MUST(m, data[0] ==
                            (float)(100 * (from * crew->tensor_degree + crew->tensor_member) + 10 * way + k));
            }
        }
    }
    for (uint32_t turn = 0; turn < 2; turn++) { /* even stages first, so that someone receives */
        if (crew->stage % 2 == turn) {
            for (int64_t i = 0; i < LARGE; i++) {
                data[i] = number(m->rank, i);
            }
            LS_TRY(crew->send(crew->context, LS_CREW_FORWARD, next, &large));
        } else {
            LS_TRY(crew->receive(crew->context, LS_CREW_FORWARD, before, &large));
            for (int64_t i = 0; i < LARGE; i += 13) {
                MUST(m, data[i] == number(before * crew->tensor_degree + crew->tensor_member, i));
            }
        }
    }
    const ls_crew_room_stats stats = ls_crew_room_get_stats(room);
    MUST(m, stats.sent_bytes % ((2 * COUNT * VALUE_FLOATS + LARGE) * sizeof(float)) == 0);
    return LS_OK;
}

static void room_carries_values_round_the_stages(void **state)
{
    (void)state;
    static const ls_mesh meshes[] = {{1, 2}, {1, 4}, {2, 4}};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        world w = {.mesh = meshes[i], .missing = MEMBERS_MAX};
        run_crew(&w, send_round);
        for (uint32_t r = 0; r < ls_mesh_crew(w.mesh); r++) {
            assert_int_equal(w.status[r], LS_OK);
        }
    }
}

static ls_status reduce_but_the_last(member *m, const ls_crew *crew, ls_crew_room *room)
{
    float x = 1.0f;
    const ls_tensor value = ls_tensor_f32(&x, 1, 1);
    (void)room;
    return m->rank == 1 ? LS_OK : crew->reduce(crew->context, LS_CREW_TENSOR, LS_CREW_SUM, &value);
}

static void room_names_who_does_not_come(void **state)
{
    (void)state;
    world w = {.mesh = {2, 1}, .missing = 1, .timeout_s = 0.05};
    run_crew(&w, reduce_all);
    assert_int_equal(w.status[0], LS_ERR_TIMEOUT);
    assert_non_null(strstr(w.text[0], "rank 0 (dp 0, tp 0) gave up"));
    assert_non_null(strstr(w.text[0], "for rank 1 (dp 0, tp 1) at the start of the step"));

    w = (world){.mesh = {2, 1}, .missing = MEMBERS_MAX, .timeout_s = 0.05};
    run_crew(&w, reduce_but_the_last);
    assert_int_equal(w.status[0], LS_ERR_TIMEOUT);
    assert_non_null(strstr(w.text[0], "for rank 1 (dp 0, tp 1) at an exchange of the tensor group"));
}

static ls_status raise_fence(member *m, const ls_crew *crew, ls_crew_room *room)
{
    float x = 1.0f;
    const ls_tensor value = ls_tensor_f32(&x, 1, 1);
    (void)room;
    if (m->rank == 1) {
        atomic_store(&m->w->abort, 1); /* and never takes part */
        return LS_FENCED;
    }
    return crew->reduce(crew->context, LS_CREW_TENSOR, LS_CREW_SUM, &value);
}

static void room_ends_waits_at_a_fence(void **state)
{
    (void)state;
    world w = {.mesh = {2, 1}, .missing = MEMBERS_MAX};
    run_crew(&w, raise_fence);
    assert_int_equal(w.status[0], LS_FENCED);
}

static ls_status disagree(member *m, const ls_crew *crew, ls_crew_room *room)
{
    float x[2] = {1.0f, 2.0f};
    const ls_tensor value = ls_tensor_f32(x, 1, 1 + m->rank);
    (void)room;
    return crew->reduce(crew->context, LS_CREW_TENSOR, LS_CREW_SUM, &value);
}

static void room_names_members_that_disagree(void **state)
{
    (void)state;
    world w = {.mesh = {2, 1}, .missing = MEMBERS_MAX};
    run_crew(&w, disagree);
    assert_int_equal(w.status[0], LS_ERR_MISMATCH);
    assert_int_equal(w.status[1], LS_ERR_MISMATCH);
    assert_non_null(strstr(w.text[0], "an exchange of the tensor group, number 1 of this step: "
                                      "rank 0 (dp 0, tp 0) adds 4 bytes, rank 1 (dp 0, tp 1) adds 8 bytes"));
}

/* Blocks of any size, empty ones too, some larger than a chunk: floats[i][j] from member i to j. */
static int64_t block_floats(uint32_t from, uint32_t to)
{
    static const int64_t floats[] = {0, 5, 70001, 1, 200003, 65536, 131072};
    return floats[(from * 3 + to * 5) % 7];
}

static ls_status exchange_all(member *m, const ls_crew *crew, ls_crew_room *room)
{
    const uint32_t self = crew->expert_member, degree = crew->expert_degree;
    ls_crew_block give[MEMBERS_MAX], take[MEMBERS_MAX];
    uint64_t given = ls_crew_room_get_stats(room).group_bytes[LS_CREW_EXPERT];
    for (uint32_t i = 0; i < degree; i++) {
        give[i] = (ls_crew_block){calloc(300000, sizeof(float)), block_floats(self, i)};
        take[i] = (ls_crew_block){calloc(300000, sizeof(float)), block_floats(i, self)};
        for (int64_t k = 0; k < give[i].count; k++) {
            give[i].data[k] = (float)(self * 10 + i) + (float)(k % 1000) / 1024.0f;
        }
        given += i == self ? 0 : (uint64_t)give[i].count * sizeof(float) + degree * sizeof(uint64_t);
    }
    const ls_status status = crew->exchange(crew->context, give, take);
    for (uint32_t i = 0; i < degree; i++) {
        for (int64_t k = 0; k <= take[i].count && status == LS_OK; k++) {
            const float from = (float)(i * 10 + self) + (float)(k % 1000) / 1024.0f;
            MUST(m, take[i].data[k] == (k < take[i].count ? from : 0.0f));
        }
        free(give[i].data);
        free(take[i].data);
    }
    MUST(m, ls_crew_room_get_stats(room).group_bytes[LS_CREW_EXPERT] == given);
    return status;
}

static void room_exchanges_uneven_blocks(void **state)
{
    (void)state;
    const ls_mesh meshes[] = {{.expert = 2}, {.expert = 4, .pipeline = 2}, {.expert = 8}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        world w = {.mesh = meshes[i], .missing = MEMBERS_MAX};
        run_crew(&w, exchange_all);
        assert_int_equal(w.status[0], LS_OK);
    }
}

static ls_status take_too_much(member *m, const ls_crew *crew, ls_crew_room *room)
{
    float x[4] = {0};
    const ls_crew_block give[] = {{x, 1}, {x, 1}}, take[] = {{x + 2, 1}, {x + 3, 1 + (m->rank == 0)}};
    (void)room;
    return crew->exchange(crew->context, give, take);
}

static void room_names_members_that_take_other_sizes(void **state)
{
    (void)state;
    world w = {.mesh = {.expert = 2}, .missing = MEMBERS_MAX, .timeout_s = 0.2};
    run_crew(&w, take_too_much);
    assert_int_equal(w.status[0], LS_ERR_MISMATCH);
    assert_non_null(
        strstr(w.text[0], "rank 0 (dp 0, ep 0) takes 2 floats from rank 1 (dp 0, ep 1), which gives it 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_adds_in_the_order_of_the_tree),
        cmocka_unit_test(room_gathers_and_scatters_rows),
        cmocka_unit_test(room_carries_values_round_the_stages),
        cmocka_unit_test(room_exchanges_uneven_blocks),
        cmocka_unit_test(room_names_members_that_take_other_sizes),
        cmocka_unit_test(room_names_who_does_not_come),
        cmocka_unit_test(room_ends_waits_at_a_fence),
        cmocka_unit_test(room_names_members_that_disagree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Stages of a crew on several hosts: values reach the next and the previous stage, an attempt that was
 * given up leaves nothing behind, and other settings or a stage that ends are noticed. Members are
 * threads, each host has a room of its own.
 */
#include "test.h"

#include "base/math.h"
#include "comm/store/comm_store.h"
#include "execution/parallel/crew_room.h"

#include <pthread.h>
#include <stdlib.h>

enum { MEMBERS_MAX = 6, ROWS = 4, COLS = 5000, VALUE_FLOATS = 10000, VALUES = 9 };

typedef struct world {
    ls_mesh mesh;
    uint32_t ranks, host_count;
    ls_mesh_host hosts[MEMBERS_MAX];
    void *memory[MEMBERS_MAX]; /* of each host */
    pthread_barrier_t together;
    _Atomic uint32_t wrong;
    ls_status status[MEMBERS_MAX];
    char text[MEMBERS_MAX][256];
} world;

typedef struct member {
    world *w;
    uint32_t rank, host;
    ls_crew_room *room;
    ls_status (*run)(struct member *m, const ls_crew *crew);
} member;

static ls_tensor make_value(void)
{
    return (ls_tensor){.data = calloc(ROWS * COLS, sizeof(float)),
                       .rows = ROWS,
                       .cols = COLS,
                       .stride = COLS,
                       .dtype = LS_F32};
}

static void fill(const ls_tensor *t, uint32_t tag)
{
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        ((float *)t->data)[i] = (float)(tag * 1000) + (float)(i % 997);
    }
}

static uint32_t tag_of(uint32_t way, uint32_t from, uint32_t number)
{
    return 1 + way + 2 * (from + 8 * number);
}

static ls_status open_room(member *m, ls_comm *comm)
{
    world *w = m->w;
    const uint32_t crew = ls_mesh_crew(w->mesh);
    const ls_mesh_host host = w->hosts[m->host];
    const ls_crew_room_options options = {.mesh = w->mesh,
                                          .rank = m->rank,
                                          .comm = comm,
                                          .hosts = w->hosts,
                                          .host_count = w->host_count,
                                          .host = host,
                                          .crew = m->rank / crew - host.first_rank / crew,
                                          .memory = w->memory[m->host],
                                          .value_bytes = VALUE_FLOATS * sizeof(float),
                                          .timeout_s = 20.0};
    return ls_crew_room_open(&options, &m->room);
}

static void *live(void *context)
{
    member *m = context;
    world *w = m->w;
    const ls_comm_options options = {
        .rank = m->rank, .size = w->ranks, .coordinator = "test", .flags = LS_COMM_NO_SHM, .timeout_s = 20.0};
    ls_comm *comm = NULL;
    ls_status status = ls_comm_open(&options, &comm);
    status = status == LS_OK ? open_room(m, comm) : status;
    status = status == LS_OK ? m->run(m, ls_crew_room_crew(m->room)) : status;
    w->status[m->rank] = status;
    snprintf(w->text[m->rank], sizeof w->text[0], "%s", status == LS_OK ? "" : ls_error_text());
    pthread_barrier_wait(&w->together); /* the others may still talk to it */
    ls_crew_room_close(m->room);
    ls_comm_close(comm);
    return NULL;
}

/* hosts: ranks of each. */
static void run_world(world *w, ls_mesh mesh, const uint32_t *hosts, uint32_t host_count,
                      ls_status (*run)(member *m, const ls_crew *crew))
{
    member members[MEMBERS_MAX] = {0};
    pthread_t threads[MEMBERS_MAX];
    *w = (world){.mesh = mesh, .host_count = host_count};
    const uint64_t bytes = ls_crew_room_bytes(mesh, 2, VALUE_FLOATS * sizeof(float));
    for (uint32_t h = 0; h < host_count; h++) {
        w->hosts[h] = (ls_mesh_host){w->ranks, hosts[h]};
        w->memory[h] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memset(w->memory[h], 0, bytes);
        for (uint32_t i = 0; i < hosts[h]; i++, w->ranks++) {
            members[w->ranks] = (member){.w = w, .rank = w->ranks, .host = h, .run = run};
        }
    }
    test_store_open();
    pthread_barrier_init(&w->together, NULL, w->ranks);
    for (uint32_t i = 0; i < w->ranks; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, live, &members[i]), 0);
    }
    for (uint32_t i = 0; i < w->ranks; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&w->together);
    test_store_close();
    for (uint32_t h = 0; h < host_count; h++) {
        free(w->memory[h]);
    }
    assert_int_equal(w->wrong, 0);
}

static void assert_all(const world *w, ls_status status)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        if (w->status[i] != status) {
            print_error("rank %u: %s\n", i, w->text[i]);
        }
        assert_int_equal(w->status[i], status);
    }
}

static uint32_t stage_after(const ls_crew *crew, uint32_t by)
{
    return (crew->stage + by) % crew->stages;
}

/* Sends a value on both ways, and takes those of the neighbours. */
static ls_status exchange(member *m, const ls_crew *crew, const ls_tensor *value, uint32_t number)
{
    const uint32_t in_stage = crew->tensor_degree * crew->context_degree;
    const uint32_t own = m->rank % ls_mesh_crew(m->w->mesh);
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        const uint32_t to = stage_after(crew, way == LS_CREW_FORWARD ? 1 : crew->stages - 1);
        fill(value, tag_of(way, own, number));
        LS_TRY(crew->send(crew->context, (ls_crew_way)way, to, value));
    }
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        const uint32_t from = stage_after(crew, way == LS_CREW_FORWARD ? crew->stages - 1 : 1);
        LS_TRY(crew->receive(crew->context, (ls_crew_way)way, from, value));
        const uint32_t tag = tag_of(way, from * in_stage + own % in_stage, number);
        const float *got = value->data;
        m->w->wrong += got[0] != (float)(tag * 1000) ||
                       got[ROWS * COLS - 1] != (float)(tag * 1000 + (ROWS * COLS - 1) % 997);
    }
    return LS_OK;
}

static ls_status attempt(member *m, const ls_crew *crew, uint64_t number, uint32_t values)
{
    ls_tensor value = make_value();
    ls_crew_room_enter(m->room, number, 7);
    ls_status status = ls_crew_room_await(m->room);
    for (uint32_t i = 0; i < values && status == LS_OK; i++) {
        status = exchange(m, crew, &value, i);
    }
    free(value.data);
    return status;
}

static ls_status exchange_many(member *m, const ls_crew *crew)
{
    LS_TRY(attempt(m, crew, 5, VALUES));
    pthread_barrier_wait(&m->w->together);
    return attempt(m, crew, 6, VALUES);
}

/* Each value is sent in pieces that fill a channel. */
static void stages_on_several_hosts_get_what_was_sent(void **state)
{
    (void)state;
    const struct {
        ls_mesh mesh;
        uint32_t host_count, hosts[MEMBERS_MAX];
    } cases[] = {
        {{.pipeline = 2}, 2, {1, 1}},    {{.pipeline = 3}, 2, {1, 2}},
        {{.pipeline = 2}, 3, {1, 2, 1}}, {{.pipeline = 2, .tensor = 2}, 2, {2, 2}},
        {{.pipeline = 3}, 3, {1, 4, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        run_world(&w, cases[i].mesh, cases[i].hosts, cases[i].host_count, exchange_many);
        assert_all(&w, LS_OK);
    }
}

/* Rank 0 gives up after one value, while the others go on; the next attempt begins with its own
 * values. */
static ls_status give_up_once(member *m, const ls_crew *crew)
{
    if (m->rank == 0) {
        ls_tensor value = make_value();
        LS_TRY(attempt(m, crew, 1, 1));
        fill(&value, tag_of(LS_CREW_FORWARD, 0, 1));
        LS_TRY(crew->send(crew->context, LS_CREW_FORWARD, 1, &value)); /* may arrive or not */
        free(value.data);
    } else {
        m->w->wrong += attempt(m, crew, 1, VALUES) != LS_STOPPED;
    }
    ls_crew_room_give_up(m->room);
    pthread_barrier_wait(&m->w->together);
    return attempt(m, crew, 2, VALUES);
}

static void attempt_that_was_given_up_leaves_nothing_behind(void **state)
{
    (void)state;
    const uint32_t ones[] = {1, 1, 1};
    for (uint32_t stages = 2; stages <= 3; stages++) {
        world w;
        run_world(&w, (ls_mesh){.pipeline = stages}, ones, stages, give_up_once);
        assert_all(&w, LS_OK);
    }
}

static ls_status have_other_settings(member *m, const ls_crew *crew)
{
    ls_tensor value = make_value();
    ls_crew_room_enter(m->room, 1, m->rank);
    const ls_status status = exchange(m, crew, &value, 0);
    free(value.data);
    return status;
}

static void stages_with_other_settings_are_a_mismatch(void **state)
{
    (void)state;
    const uint32_t ones[] = {1, 1};
    world w;
    run_world(&w, (ls_mesh){.pipeline = 2}, ones, 2, have_other_settings);
    assert_all(&w, LS_ERR_MISMATCH);
    assert_non_null(strstr(w.text[0], "one run file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_on_several_hosts_get_what_was_sent),
        cmocka_unit_test(attempt_that_was_given_up_leaves_nothing_behind),
        cmocka_unit_test(stages_with_other_settings_are_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

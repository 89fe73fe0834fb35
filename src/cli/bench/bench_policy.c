// SPDX-License-Identifier: Apache-2.0
/*
 * bench policy: speed of the queue's scheduling policy on a large, mostly occupied cluster with
 * jobs of 1 to 512 devices.
 *
 * Sizes are drawn with the weights below: half of the jobs ask for at most 4 devices, half of the
 * devices go to jobs of 64 and more. One job in eight must fit under one leaf switch; run times are
 * one minute to one day. Jobs end at random, so free devices are scattered.
 */
#include "cli/bench/bench.h"

#include "base/clock.h"
#include "base/math.h"
#include "base/random.h"
#include "orchestration/policy/policy.h"

enum {
    NODES_PER_LEAF = 32,
    LEAVES_PER_SPINE = 16,
    TURN_EVENTS = 64,
    TURNS = 100,
    SINGLES = 2000,
    WHYS = 300
};

static const struct {
    uint32_t ranks, weight;
} sizes[] = {{1, 35}, {2, 10}, {4, 10}, {8, 20}, {16, 8}, {32, 6}, {64, 5}, {128, 3}, {256, 2}, {512, 1}};

typedef struct bench {
    ls_policy *policy;
    ls_random_key key;
    uint64_t draws, next_id, now_ms, *running;
    uint32_t running_count, largest, devices, free;
    uint64_t starts;
} bench;

static uint32_t draw(bench *b, uint32_t bound)
{
    return (uint32_t)ls_random_below(b->key, b->draws++, 0, bound);
}

static uint32_t draw_size(bench *b)
{
    uint32_t left = draw(b, 100);
    size_t i = 0;
    while (left >= sizes[i].weight) {
        left -= sizes[i++].weight;
    }
    return sizes[i].ranks < b->largest ? sizes[i].ranks : b->largest;
}

static ls_status submit(bench *b)
{
    ls_policy_job job = ls_policy_job_default();
    job.id = b->next_id++;
    job.account = draw(b, 16);
    job.ranks = job.min_ranks = job.max_ranks = draw_size(b);
    job.submit_ms = b->now_ms;
    job.expected_ms = 60000 * (1 + (uint64_t)draw(b, 1440));
    job.comm_bytes_per_step = UINT64_C(1) << draw(b, 36);
    job.required = job.ranks <= 128 && draw(b, 8) == 0 ? LS_LEVEL_LEAF : LS_LEVEL_CLUSTER;
    return ls_policy_submit(b->policy, b->now_ms, &job);
}

/* One pass; jobs that start are added to b->running. */
static void pass(bench *b)
{
    const ls_action *actions = NULL;
    uint32_t count = 0;
    ls_policy_pass(b->policy, b->now_ms, &actions, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (actions[i].kind == LS_ACTION_START) {
            b->running[b->running_count++] = actions[i].job;
            b->free -= actions[i].ranks;
            b->starts++;
        }
    }
}

static ls_status end_one(bench *b)
{
    const uint32_t at = draw(b, b->running_count);
    const uint64_t id = b->running[at];
    b->running[at] = b->running[--b->running_count];
    return ls_policy_ended(b->policy, b->now_ms, id, true);
}

static ls_status fill(bench *b, uint32_t percent)
{
    while ((uint64_t)ls_policy_count(b->policy).devices_free * 100 > (uint64_t)b->devices * (100 - percent)) {
        for (int i = 0; i < TURN_EVENTS; i++) {
            LS_TRY(submit(b));
        }
        b->now_ms += 1000;
        pass(b);
    }
    return LS_OK;
}

/* ---- what is measured ---- */

/* Sorts `values`. */
static double quantile(double *values, uint32_t count, double share)
{
    ls_sort_f64(values, count);
    return ls_quantile_f64(values, count, share);
}

/* Each turn ends some jobs, submits as many and makes a pass. Result: jobs started per second of
 * all that. */
static ls_status measure_decisions(bench *b, double *per_s_out)
{
    static double rates[TURNS];
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        const uint64_t before = b->starts;
        b->now_ms += 1000;
        const double start_s = ls_clock_thread_s();
        for (int i = 0; i < TURN_EVENTS; i++) {
            LS_TRY(end_one(b));
            LS_TRY(submit(b));
        }
        pass(b);
        rates[turn] = (double)(b->starts - before) / (ls_clock_thread_s() - start_s);
    }
    *per_s_out = quantile(rates, TURNS, 0.5);
    return LS_OK;
}

/* One job at a time: its submission and the pass that places it. */
static ls_status measure_placement(bench *b, double *p99_us_out)
{
    static double micros[SINGLES];
    for (uint32_t i = 0; i < SINGLES; i++) {
        LS_TRY(end_one(b));
        b->now_ms += 10;
        pass(b);
        const double start_s = ls_clock_thread_s();
        LS_TRY(submit(b));
        pass(b);
        micros[i] = 1e6 * (ls_clock_thread_s() - start_s);
    }
    *p99_us_out = quantile(micros, SINGLES, 0.99);
    return LS_OK;
}

/* A pass over a long queue, in which the job that has just ended lets others start. */
static ls_status measure_pass(bench *b, uint32_t pending, double *pass_ms_out, double *why_ms_out)
{
    static double passes[TURNS], whys[WHYS];
    while (ls_policy_count(b->policy).pending < pending) {
        LS_TRY(submit(b));
    }
    pass(b);
    for (uint32_t i = 0; i < TURNS / 4; i++) {
        LS_TRY(end_one(b));
        LS_TRY(submit(b));
        b->now_ms += 1000;
        const double start_s = ls_clock_thread_s();
        pass(b);
        passes[i] = 1e3 * (ls_clock_thread_s() - start_s);
    }
    for (uint32_t i = 0; i < WHYS;) {
        ls_why why;
        const uint64_t id = b->next_id - 1 - draw(b, pending);
        const double start_s = ls_clock_thread_s();
        const ls_status status = ls_policy_why(b->policy, b->now_ms, id, &why);
        whys[i] = 1e3 * (ls_clock_thread_s() - start_s);
        i += status == LS_OK && why.stage != LS_WHY_RUNNING; /* only jobs that wait count */
    }
    ls_error_clear();
    *pass_ms_out = quantile(passes, TURNS / 4, 0.5);
    *why_ms_out = quantile(whys, WHYS, 0.99);
    return LS_OK;
}

static ls_status measure(ls_arena *arena, const ls_bench_policy_settings *s, uint64_t seed, double results[4])
{
    ls_policy_cluster cluster;
    ls_policy_settings settings = ls_policy_settings_default();
    bench b = {.key = ls_random_stream(seed, LS_RANDOM_TEST), .next_id = 1, .now_ms = 1};
    ls_cluster_uniform(arena, (uint32_t)s->nodes, (uint16_t)s->gpus_per_node, NODES_PER_LEAF,
                       LEAVES_PER_SPINE, &cluster);
    b.devices = b.free = cluster.node_count * (uint32_t)s->gpus_per_node;
    b.largest = b.devices / 4 ? b.devices / 4 : 1;
    settings.jobs_max = b.devices + (uint32_t)s->pending + 4096;
    b.running = ls_arena_new(arena, uint64_t, settings.jobs_max);
    LS_TRY(ls_policy_create(&cluster, &settings, &b.policy));
    ls_status status = fill(&b, 85);
    LS_TRY_GOTO(status, status, done);
    LS_TRY_GOTO(status, measure_decisions(&b, &results[0]), done);
    LS_TRY_GOTO(status, measure_placement(&b, &results[1]), done);
    LS_TRY_GOTO(status, fill(&b, 97), done);
    LS_TRY_GOTO(status, measure_pass(&b, (uint32_t)s->pending, &results[2], &results[3]), done);
    LS_TRY_GOTO(status, ls_policy_check(b.policy), done);
done:
    ls_policy_destroy(b.policy);
    return status;
}

ls_status ls_bench_policy(ls_arena *arena, const ls_bench_policy_settings *settings, json_t **row_out)
{
    enum { ROUNDS_MOST = 9 };
    double values[4][ROUNDS_MOST];
    const uint32_t rounds = settings->rounds < ROUNDS_MOST ? (uint32_t)settings->rounds : ROUNDS_MOST;
    for (uint32_t round = 0; round < rounds; round++) {
        double results[4];
        LS_TRY(measure(arena, settings, round + 1, results));
        for (int i = 0; i < 4; i++) {
            values[i][round] = results[i];
        }
    }
    *row_out = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "nodes", (json_int_t)settings->nodes,
                         "gpus_per_node", (json_int_t)settings->gpus_per_node, "pending",
                         (json_int_t)settings->pending, "decisions_per_s", quantile(values[0], rounds, 0.5),
                         "placement_p99_us", quantile(values[1], rounds, 0.5), "pass_ms",
                         quantile(values[2], rounds, 0.5), "why_p99_ms", quantile(values[3], rounds, 0.5));
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Time of a training step, ranks against threads and many leaves against one, without files,
 * tokenizer or trainer.
 *
 *   bench_ranks [SEQUENCES [STEPS [RANKSxTHREADS:LEAVES ...]]]        default: 8 8 1x2:2 2x1:2 1x2:1
 *
 * The model is the small one of docs/benchmarks.md (llama, 6 layers x 384, context 256, bytes),
 * micro-batch 4. All configurations exist at once and take turns step by step, so that other load
 * on the machine affects them equally. Prints the best and the median step, and the median of the
 * ratios to the first configuration, turn by turn.
 */
#include "base/clock.h"
#include "comm/transport/wait.h"
#include "execution/train/step.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 256, MICRO_BATCH = 4, CONFIGS_MAX = 6, RANKS_MAX = 16, STEPS_MAX = 100 };

typedef struct turn {
    ls_word granted; /* steps that may run */
    ls_word done;    /* rank-steps that have run */
    ls_step_result last[RANKS_MAX];
} turn;

typedef struct gang {
    uint32_t ranks, threads, leaves;
    float *memory;
    void *exchange;
    turn *turn;
    uint32_t gradient_first[RANKS_MAX + 1];
    const ls_layout *layout;
    double seconds[STEPS_MAX];
} gang;

static ls_arena arena;
static ls_model_config config;
static ls_layout layout;
static ls_plan plan;

static void check(ls_status status)
{
    if (status != LS_OK) {
        fprintf(stderr, "bench_ranks: %s\n", ls_error_text());
        exit(1);
    }
}

static int32_t token_at(uint64_t position, int i)
{
    return (int32_t)((position * 31 + (uint64_t)i * (position % 7 + 3)) % 250);
}

static ls_status draw(void *context, uint64_t position, const ls_sample *sample)
{
    (void)context;
    for (int i = 0; i < LENGTH; i++) {
        sample->tokens[i] = token_at(position, i);
        sample->targets[i] = token_at(position, i + 1);
    }
    return LS_OK;
}

static void make_model(void)
{
    ls_model_config_defaults(LS_FAMILY_LLAMA, &config);
    config.layers = config.heads = config.kv_heads = 6;
    config.head_dim = 64;
    config.width = 384;
    config.ffn = 1024;
    config.context = LENGTH;
    config.vocab = 257;
    check(ls_model_config_check(&config));
    ls_layout_build(&arena, &config, &layout);
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = MICRO_BATCH;
    options.length = LENGTH;
    options.training = options.losses = true;
    check(ls_plan_build(&arena, &config, &layout, &options, &plan));
}

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("bench_ranks");
        exit(1);
    }
    return memory;
}

static float *gradient(void *context, uint32_t local, uint32_t index)
{
    const gang *g = context;
    return g->memory + (int64_t)(4 + g->gradient_first[local] + index) * layout.float_count;
}

static void rank_main(gang *g, uint32_t rank, uint32_t sequences, uint32_t steps)
{
    ls_queue *queue;
    ls_executor executor;
    ls_data_parallel *parallel;
    ls_stepper *stepper;
    check(ls_queue_create_cpu(g->threads, &queue));
    check(ls_executor_init(&executor, queue, &plan, LENGTH));
    const ls_data_parallel_options options = {.plan = &plan,
                                              .leaves = g->leaves,
                                              .parts = g->ranks,
                                              .local_parts = g->ranks,
                                              .rank = rank,
                                              .threads = g->threads,
                                              .gradient = gradient,
                                              .sums = g->memory + 3 * layout.float_count,
                                              .context = g,
                                              .exchange = g->exchange};
    check(ls_data_parallel_create(&options, &parallel));
    ls_state state = {.queue = queue,
                      .layout = &layout,
                      .parameters = g->memory,
                      .m = g->memory + layout.float_count,
                      .v = g->memory + 2 * layout.float_count,
                      .gradient_count = g->gradient_first[rank + 1] - g->gradient_first[rank]};
    for (uint32_t i = 0; i < state.gradient_count; i++) {
        state.gradients[i] = gradient(g, rank, i);
    }
    const ls_step_settings settings = {.leaves = g->leaves,
                                       .global_batch = sequences,
                                       .micro_batch = MICRO_BATCH,
                                       .clip_norm = 1.0,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .eps = 1e-8f,
                                       .weight_decay = 0.1f,
                                       .sample = draw,
                                       .parallel = parallel};
    check(ls_stepper_create(&executor, &state, &settings, &stepper));
    for (uint32_t i = 0; i < steps; i++) {
        const ls_wait wait = {0};
        (void)ls_wait_until(&g->turn->granted, i + 1, &wait);
        check(ls_stepper_run(stepper, i, 1e-3, &g->turn->last[rank]));
        ls_word_add(&g->turn->done, 1);
    }
    _exit(0);
}

static void start(gang *g, const char *text, uint32_t sequences, uint32_t steps)
{
    if (sscanf(text, "%ux%u:%u", &g->ranks, &g->threads, &g->leaves) != 3 || g->ranks < 1 ||
        g->ranks > RANKS_MAX || g->ranks > g->leaves || sequences % g->leaves != 0 ||
        sequences / g->leaves % MICRO_BATCH != 0) {
        fprintf(stderr,
                "bench_ranks: %s is not RANKSxTHREADS:LEAVES for %u sequences in micro-batches of %d\n", text,
                sequences, MICRO_BATCH);
        exit(2);
    }
    uint32_t buffers = 0;
    for (uint32_t r = 0; r < g->ranks; r++) {
        g->gradient_first[r] = buffers;
        buffers += ls_data_parallel_buffers(g->leaves, 0, g->ranks, r);
    }
    g->gradient_first[g->ranks] = buffers;
    g->memory = map_shared((4 + buffers) * (size_t)layout.float_count * sizeof(float));
    g->exchange = map_shared(ls_data_parallel_exchange_bytes(&layout, g->ranks));
    g->turn = map_shared(sizeof *g->turn);
    ls_queue *queue;
    check(ls_queue_create_cpu(1, &queue));
    ls_state state = {.queue = queue, .layout = &layout, .parameters = g->memory};
    check(ls_state_init_weights(&state, queue, &config, 1));
    ls_queue_destroy(queue);
    fflush(NULL);
    for (uint32_t r = 0; r < g->ranks; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_main(g, r, sequences, steps);
        }
    }
}

static double run_turn(gang *g, uint32_t step)
{
    const double begin_s = ls_clock_monotonic_s();
    const ls_wait wait = {0};
    ls_word_post(&g->turn->granted, step + 1);
    (void)ls_wait_until(&g->turn->done, (step + 1) * g->ranks, &wait);
    return ls_clock_monotonic_s() - begin_s;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static void print_result(const char *text, gang *g, const gang *first, uint32_t steps, uint32_t sequences)
{
    double ratios[STEPS_MAX], seconds[STEPS_MAX];
    for (uint32_t i = 1; i < steps; i++) {
        ratios[i - 1] = g->seconds[i] / first->seconds[i];
        seconds[i - 1] = g->seconds[i];
    }
    const double ratio = median(ratios, steps - 1), middle = median(seconds, steps - 1);
    const ls_step_result *last = &g->turn->last[0];
    printf(
        "%-10s median %8.2f ms  best %8.2f ms  %7.0f tokens/s  ratio %.3f   last, rank 0, ms: forward %.1f "
        "backward %.1f reduce %.2f optimizer %.2f wait %.2f\n",
        text, 1e3 * middle, 1e3 * seconds[0], sequences * LENGTH / middle, ratio, 1e3 * last->forward_s,
        1e3 * last->backward_s, 1e3 * last->reduce_s, 1e3 * last->optimizer_s, 1e3 * last->wait_s);
}

int main(int argc, char **argv)
{
    const uint32_t sequences = argc > 1 ? (uint32_t)atoi(argv[1]) : 8;
    /* the first step is a warm-up and not counted */
    const uint32_t steps = 1 + (argc > 2 ? (uint32_t)atoi(argv[2]) : 8);
    const char *defaults[] = {"1x2:2", "2x1:2", "1x2:1"};
    const char **texts = argc > 3 ? (const char **)(argv + 3) : defaults;
    const uint32_t count = argc > 3 ? (uint32_t)argc - 3 : 3;
    if (count > CONFIGS_MAX || steps < 2 || steps > STEPS_MAX) {
        fprintf(stderr, "usage: bench_ranks [SEQUENCES [STEPS [RANKSxTHREADS:LEAVES ...]]]\n");
        return 2;
    }
    static gang gangs[CONFIGS_MAX];
    make_model();
    for (uint32_t i = 0; i < count; i++) {
        start(&gangs[i], texts[i], sequences, steps);
    }
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < count; i++) {
            gangs[i].seconds[step] = run_turn(&gangs[i], step);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        print_result(texts[i], &gangs[i], &gangs[0], steps, sequences);
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}

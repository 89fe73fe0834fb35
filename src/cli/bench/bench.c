// SPDX-License-Identifier: Apache-2.0
/* bench: measures this program on this machine. Comparisons with other programs are scripts under
 * bench/. */
#include "cli/bench/bench.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/math.h"
#include "cli/command.h"
#include "compute/queue.h"
#include "execution/run/trainer.h"
#include "storage/checkpoint/bench.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct bench_settings {
    const char *config, *tokenizer, *file, *dir, *bytes;
    ls_option_strings set;
    uint64_t steps, rounds, threads, ranks, nodes, gpus_per_node, pending;
    int transport, order;
    bool json;
} bench_settings;

static const char *const transports[] = {"shm", "tcp", NULL};
static const char *const orders[] = {"tree", "any", NULL};
static const ls_option bench_options[] = {
    LS_ROW_TEXT(bench_settings, config, "FILE", "bench train: run file of the training to measure"),
    LS_ROW_TEXTS(bench_settings, set, "KEY=VALUE",
                 "bench train: override a key of the run file; may be repeated"),
    LS_ROW_U64(bench_settings, steps, "12", 1, 1e9,
               "bench train: number of training steps to run; the first two are not measured"),
    LS_ROW_TEXT(bench_settings, tokenizer, "FILE", "bench tokenize: tokenizer to measure"),
    LS_ROW_TEXT(bench_settings, file, "FILE", "bench tokenize: text to tokenize"),
    LS_ROW_TEXT_OR(bench_settings, dir, ".", "DIR", "bench checkpoint: folder on the disk to measure"),
    LS_ROW_TEXT(bench_settings, bytes, "SIZES",
                "bench checkpoint: bytes to write (default 512MiB); bench allreduce: sizes of the buffer, "
                "separated by commas (default 1KiB to 64MiB)"),
    LS_ROW_U64(bench_settings, ranks, "2", 1, 64, "bench allreduce: number of processes"),
    LS_ROW_CHOICE(bench_settings, transport, "shm", transports,
                  "bench allreduce: how the processes exchange data"),
    LS_ROW_CHOICE(bench_settings, order, "tree", orders,
                  "bench allreduce: order in which the numbers are added; any: no fixed order, so that over "
                  "TCP large buffers can be passed round a ring of processes, which is faster"),
    LS_ROW_U64(bench_settings, rounds, "5", 1, 1000,
               "bench tokenize, checkpoint, allreduce, plan and policy: number of repetitions, of which the "
               "median is reported"),
    LS_ROW_U64(bench_settings, nodes, "12500", 1, 131072, "bench policy: number of nodes in the cluster"),
    LS_ROW_U64(bench_settings, gpus_per_node, "8", 1, 64, "bench policy: number of devices per node"),
    LS_ROW_U64(bench_settings, pending, "10000", 1, 500000,
               "bench policy: number of waiting jobs in the queue while one pass of the scheduler is timed"),
    LS_ROW_THREADS(bench_settings),
    LS_ROW_JSON(bench_settings),
};

/* ---- train ---- */

static ls_status create_queue(const bench_settings *settings, ls_queue **queue_out)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t threads = settings->threads ? (uint32_t)settings->threads
                             : cores > 0       ? (uint32_t)cores
                                               : 1;
    return ls_queue_create_cpu(threads, queue_out);
}

/* Median tokens per second of a run's metrics, the first `skip` steps left out. */
static ls_status median_speed(ls_arena *arena, const char *run_dir, size_t skip, double *tokens_per_s_out)
{
    char *text = NULL;
    size_t bytes = 0, count = 0;
    LS_TRY(
        ls_file_read(arena, ls_path_join(arena, run_dir, "metrics.jsonl"), (size_t)1 << 30, &text, &bytes));
    double *speeds = ls_arena_new(arena, double, bytes / 16 + 1);
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        if (object) {
            speeds[count++] = json_number_value(json_object_get(object, "tokens_per_s"));
            json_decref(object);
        }
    }
    if (count <= skip) {
        skip = 0;
    }
    if (count == 0) {
        return ls_fail(LS_ERR_FAILED,
                       "bench train measured nothing: its run ended before it finished a step");
    }
    *tokens_per_s_out = ls_median_f64(speeds + skip, count - skip);
    return LS_OK;
}

/* The peak is measured before and after the run and the higher one counts: other programs can only
 * make a measurement slower. */
static ls_status raise_peak(const bench_settings *settings, double *peak)
{
    ls_queue *queue = NULL;
    LS_TRY(create_queue(settings, &queue));
    const double now = ls_queue_fma_peak_flops(queue);
    *peak = now > *peak ? now : *peak;
    ls_queue_destroy(queue);
    return LS_OK;
}

static ls_status train_once(const ls_invocation *invocation, const char *run_dir, json_t **row_out)
{
    const bench_settings *settings = invocation->settings;
    ls_arena *arena = invocation->arena;
    const size_t fixed = 4;
    const char **overrides = ls_arena_new(arena, const char *, settings->set.count + fixed);
    overrides[0] = "checkpoint.every_steps=0";
    overrides[1] = "eval.every_steps=0";
    overrides[2] = "sample.every_steps=0";
    overrides[3] = "data.validation_fraction=0";
    for (uint64_t i = 0; i < settings->set.count; i++) {
        overrides[fixed + i] = settings->set.items[i];
    }
    const ls_train_options options = {
        .config = settings->config,
        .overrides = overrides,
        .override_count = (size_t)settings->set.count + fixed,
        .run_dir = run_dir,
        .threads = settings->threads,
        .stop_step = settings->steps,
        .start_s = ls_clock_monotonic_s(),
    };
    json_t *result = NULL;
    double tokens_per_s = 0.0, peak = 0.0;
    LS_TRY(raise_peak(settings, &peak));
    const ls_status status = ls_train(&options, &result);
    ls_status read = status == LS_OK ? median_speed(arena, run_dir, 2, &tokens_per_s) : status;
    if (read == LS_OK) {
        read = raise_peak(settings, &peak);
    }
    if (read == LS_OK) {
        const double flops =
            json_number_value(json_object_get(json_object_get(result, "predicted"), "flops_per_step"));
        const double step_tokens = json_number_value(json_object_get(result, "tokens")) /
                                   json_number_value(json_object_get(result, "step"));
        *row_out = json_pack("{s:f, s:f, s:O, s:O, s:O, s:I}", "tokens_per_s", tokens_per_s, "peak_fraction",
                             flops * tokens_per_s / step_tokens / peak, "peak_rss_bytes",
                             json_object_get(result, "peak_rss_bytes"), "first_step_s",
                             json_object_get(result, "first_step_s"), "state_hash",
                             json_object_get(result, "state_hash"), "steps",
                             json_integer_value(json_object_get(result, "step")));
    }
    json_decref(result);
    return read;
}

static ls_status bench_train(const ls_invocation *invocation, json_t **row_out)
{
    const bench_settings *settings = invocation->settings;
    if (!settings->config[0]) {
        return ls_fail(LS_ERR_INVALID, "bench train needs --config FILE");
    }
    const char *temporary = getenv("TMPDIR");
    char *folder =
        ls_arena_printf(invocation->arena, "%s/lockstep-bench-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) {
        return ls_fail_errno(errno, "can't create %s", folder);
    }
    const ls_status status = train_once(invocation, ls_path_join(invocation->arena, folder, "run"), row_out);
    const char *text = ls_arena_strdup(invocation->arena, ls_error_text());
    const ls_status removed = ls_dir_remove(folder);
    if (status != LS_OK) {
        return ls_fail(status, "%s", text);
    }
    return removed;
}

/* ---- checkpoint ---- */

/* One size; below 1 MiB a disk cannot be measured. */
static ls_status read_size(ls_arena *arena, const char *text, uint64_t *bytes_out)
{
    static const ls_option row[] = {{.key = "bytes",
                                     .type = LS_OPTION_BYTES,
                                     .default_text = "512MiB",
                                     .min = 1048576,
                                     .max = 1e15,
                                     .help = "bytes to write"}};
    static const ls_option_table table = LS_OPTIONS(row);
    return ls_options_apply_value(&table, bytes_out, "bytes", text[0] ? text : "512MiB", "--bytes", arena);
}

static ls_status bench_checkpoint(const ls_invocation *invocation, json_t **row_out)
{
    const bench_settings *settings = invocation->settings;
    uint64_t bytes = 0;
    LS_TRY(read_size(invocation->arena, settings->bytes, &bytes));
    const ls_checkpoint_bench_options options = {.folder = settings->dir,
                                                 .bytes = bytes,
                                                 .rounds = (unsigned)settings->rounds,
                                                 .threads = (unsigned)settings->threads};
    ls_checkpoint_bench_result r;
    LS_TRY(ls_checkpoint_bench(&options, &r));
    *row_out = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "bytes", (json_int_t)r.bytes,
                         "write_bytes_ps", r.write_bytes_ps, "raw_write_bytes_ps", r.raw_write_bytes_ps,
                         "write_ratio", r.write_ratio, "load_bytes_ps", r.load_bytes_ps, "raw_read_bytes_ps",
                         r.raw_read_bytes_ps, "load_ratio", r.load_ratio);
    return LS_OK;
}

/* ---- tokenize ---- */

static ls_status encode_rounds(const bench_settings *settings, const ls_tokenizer *tokenizer,
                               const ls_file_map *map, double *seconds)
{
    ls_tokenizer_scratch *scratch = NULL;
    ls_token_buffer ids = {0};
    LS_TRY(ls_tokenizer_scratch_create(tokenizer, &scratch));
    ls_status status = LS_OK;
    for (uint64_t i = 0; i < settings->rounds && status == LS_OK; i++) {
        ids.count = 0;
        const double start_s = ls_clock_monotonic_s();
        status = ls_tokenizer_encode(tokenizer, scratch, (const char *)map->data, map->bytes, false, &ids);
        seconds[i] = ls_clock_monotonic_s() - start_s;
    }
    ls_token_buffer_release(&ids);
    ls_tokenizer_scratch_destroy(scratch);
    return status;
}

static ls_status bench_tokenize(const ls_invocation *invocation, json_t **row_out)
{
    const bench_settings *settings = invocation->settings;
    if (!settings->tokenizer[0] || !settings->file[0]) {
        return ls_fail(LS_ERR_INVALID, "bench tokenize needs --tokenizer FILE and --file FILE");
    }
    ls_tokenizer *tokenizer = NULL;
    LS_TRY(ls_tokenizer_open(settings->tokenizer, &tokenizer));
    ls_file_map map = {0};
    ls_status status = ls_file_map_open(settings->file, &map);
    double *seconds = ls_arena_new(invocation->arena, double, settings->rounds);
    if (status == LS_OK) {
        status = encode_rounds(settings, tokenizer, &map, seconds);
    }
    if (status == LS_OK) {
        const double median_s = ls_median_f64(seconds, settings->rounds);
        *row_out = json_pack("{s:I, s:f, s:f, s:i}", "bytes", (json_int_t)map.bytes, "bytes_ps",
                             (double)map.bytes / median_s, "seconds", median_s, "threads", 1);
    }
    ls_file_map_close(&map);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

/* ---- gemm ---- */

static ls_status bench_gemm(const ls_invocation *invocation, json_t **row_out)
{
    ls_queue *queue = NULL;
    LS_TRY(create_queue(invocation->settings, &queue));
    const double fma = ls_queue_fma_peak_flops(queue), gemm = ls_queue_gemm_peak_flops(queue, LS_F32);
    *row_out = json_pack("{s:f, s:f, s:f, s:i}", "gemm_flops", gemm, "fma_peak_flops", fma, "peak_fraction",
                         gemm / fma, "threads", (int)ls_queue_threads(queue));
    ls_queue_destroy(queue);
    return LS_OK;
}

/* ---- allreduce ---- */

static ls_status bench_allreduce(const ls_invocation *invocation, json_t **rows_out)
{
    const bench_settings *settings = invocation->settings;
    const ls_bench_allreduce_settings allreduce = {.ranks = settings->ranks,
                                                   .bytes = settings->bytes,
                                                   .without_shm = settings->transport != 0,
                                                   .any_order = settings->order != 0,
                                                   .rounds = settings->rounds};
    return ls_bench_allreduce(invocation->arena, &allreduce, rows_out);
}

/* ---- plan ---- */

static ls_status bench_plan(const ls_invocation *invocation, json_t **row_out)
{
    const bench_settings *settings = invocation->settings;
    return ls_bench_plan(invocation->arena, settings->rounds, row_out);
}

/* ---- policy ---- */

static ls_status bench_policy(const ls_invocation *invocation, json_t **row_out)
{
    const bench_settings *settings = invocation->settings;
    const ls_bench_policy_settings policy = {.nodes = settings->nodes,
                                             .gpus_per_node = settings->gpus_per_node,
                                             .pending = settings->pending,
                                             .rounds = settings->rounds};
    return ls_bench_policy(invocation->arena, &policy, row_out);
}

/* ---- all ---- */

static const struct {
    const char *name;
    ls_status (*run)(const ls_invocation *invocation, json_t **row_out);
} benches[] = {
    {"train", bench_train},   {"checkpoint", bench_checkpoint}, {"tokenize", bench_tokenize},
    {"gemm", bench_gemm},     {"allreduce", bench_allreduce},   {"plan", bench_plan},
    {"policy", bench_policy},
};

static const char *machine_name(ls_arena *arena)
{
    ls_queue *queue = NULL;
    if (ls_queue_create_cpu(1, &queue) != LS_OK) {
        return "unknown";
    }
    const char *name =
        ls_arena_printf(arena, "%s, %ld cores", ls_queue_device_name(queue), sysconf(_SC_NPROCESSORS_ONLN));
    ls_queue_destroy(queue);
    return name;
}

static void print_row(json_t *row)
{
    const char *key;
    json_t *value;
    json_object_foreach(row, key, value)
    {
        if (json_is_string(value)) {
            printf("  %-20s %s\n", key, json_string_value(value));
        } else if (json_is_integer(value)) {
            printf("  %-20s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
        } else {
            printf("  %-20s %.6g\n", key, json_number_value(value));
        }
    }
}

/* Prints the names of the columns, then one line per row. */
static void print_table(const json_t *rows)
{
    const char *key;
    json_t *row, *value;
    size_t i;
    json_object_foreach(json_array_get(rows, 0), key, value)
    {
        printf("  %14s", key);
    }
    json_array_foreach(rows, i, row)
    {
        printf("\n");
        json_object_foreach(row, key, value)
        {
            if (json_is_string(value)) {
                printf("  %14s", json_string_value(value));
            } else if (json_is_integer(value)) {
                printf("  %14" JSON_INTEGER_FORMAT, json_integer_value(value));
            } else {
                printf("  %14.2f", json_number_value(value));
            }
        }
    }
    printf("\n");
}

/* results: an array of rows for a table, or an object with a single result. Takes ownership. */
static void print_results(const char *name, const char *machine, json_t *results, bool json)
{
    if (json) {
        json_t *rows = json_is_array(results) ? results : json_pack("[o]", results);
        json_t *root = json_pack("{s:s, s:s, s:o}", "name", name, "machine", machine, "results", rows);
        ls_print_json(root);
        json_decref(root);
        return;
    }
    printf("%s on %s\n", name, machine);
    if (json_is_array(results)) {
        print_table(results);
    } else {
        print_row(results);
    }
    json_decref(results);
}

static ls_status run_bench(const ls_invocation *invocation)
{
    const bench_settings *settings = invocation->settings;
    const char *name = invocation->words[0];
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        if (strcmp(name, benches[i].name) != 0) {
            continue;
        }
        json_t *results = NULL;
        LS_TRY(benches[i].run(invocation, &results));
        print_results(name, machine_name(invocation->arena), results, settings->json);
        return LS_OK;
    }
    return ls_fail(
        LS_ERR_INVALID,
        "'%s' is not a benchmark; choose one of: train, checkpoint, tokenize, gemm, allreduce, plan, policy",
        name);
}

const ls_command ls_command_bench = {
    .name = "bench",
    LS_WORDS("NAME", 1, 1),
    .summary = "measure this program on this machine",
    .details = "NAME is one of:\n"
               "  train        tokens per second of a run file (--config), median over the steps\n"
               "  checkpoint   writing and loading, compared with plain O_DIRECT I/O in turns\n"
               "  tokenize     bytes per second of one core (--tokenizer, --file)\n"
               "  gemm         rate of matrix products, the reference for MFU\n"
               "  allreduce    one sum over --ranks processes, compared with plain copies\n"
               "  plan         one estimate of the planner, and its searches over all\n"
               "               strategies for 1,024 and 16,384 GPUs\n"
               "  policy       jobs started per second, and the time of one placement, of a\n"
               "               pass over a long queue and of a 'why', on a cluster of --nodes\n"
               "               with --gpus-per-node\n"
               "\n"
               "Examples:\n"
               "  lockstep bench gemm\n"
               "  lockstep bench train --config examples/demo.yaml",
    LS_SETTINGS(bench_settings, bench_options),
    .run = run_bench,
};

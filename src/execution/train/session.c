// SPDX-License-Identifier: Apache-2.0
#include "execution/train/session_internal.h"

#include "base/file.h"
#include "base/log.h"
#include "execution/executor/executor.h"
#include "execution/train/evaluate.h"
#include "execution/train/memory.h"
#include "execution/train/rank_memory.h"
#include "execution/train/segment.h"
#include "model/plan_stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 256 };

/* ---- data ---- */

/* Without weights all items are one corpus; if any item has a weight, each item is a corpus. */
static void fill_sources(ls_session *session, ls_dataset_options *options)
{
    const ls_option_weighted_list *list = &session->run.data.train;
    const ls_dataset_source all = ls_session_items(session, list);
    bool weighted = false;
    for (uint64_t i = 0; i < list->count; i++) {
        weighted = weighted || list->items[i].weight > 0.0;
    }
    const size_t count = weighted ? all.pattern_count : 1;
    ls_dataset_source *sources = ls_arena_new(session->arena, ls_dataset_source, count);
    sources[0] = all;
    for (size_t i = 0; weighted && i < count; i++) {
        const double weight = list->items[i].weight;
        sources[i] = (ls_dataset_source){.patterns = &all.patterns[i],
                                         .pattern_count = 1,
                                         .fields = &all.fields[i],
                                         .weight = weight > 0.0 ? weight : 1.0};
    }
    options->sources = session->sources = sources;
    options->source_count = session->source_count = count;
}

static ls_status open_dataset(ls_session *session, const ls_session_options *options)
{
    const ls_run_file *run = &session->run;
    ls_run_recipe recipe = {0};
    if (!session->tokenizer && run->sample.every_steps > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "sample.every_steps is %" PRIu64
                       ", but %s has no tokenizer to write a sample with: set "
                       "tokenizer.file, or sample.every_steps: 0",
                       run->sample.every_steps, run->model.from);
    }
    const ls_dataset_source validation = ls_session_items(session, &run->data.validation);
    LS_TRY(ls_session_open_recipe(session, &recipe));
    ls_dataset_options dataset = {
        .recipe = recipe.recipe,
        .held_out = ls_run_held_out_rule(run),
        .packing = run->data.packing,
        .validation_patterns = validation.patterns,
        .validation_pattern_count = validation.pattern_count,
        .validation_fields = validation.fields,
        .validation_fraction = run->data.validation.count > 0 ? 0.0 : run->data.validation_fraction,
        .field = run->data.field,
        .document_masks = run->data.document_masks,
        .tokenizer = session->tokenizer,
        .vocab_size = (uint32_t)run->model.vocab,
        .context = (uint32_t)run->model.context,
        .cache_dir = run->data.cache_dir[0] ? run->data.cache_dir : NULL,
        .threads = ls_queue_threads(session->queue),
        .progress = options->progress,
        .tell = options->tell,
        .stop = options->stop,
        .caller = options->context,
    };
    fill_sources(session, &dataset);
    const ls_status status = ls_dataset_open(&dataset, &session->dataset);
    if (status == LS_OK) {
        ls_session_adopt_recipe(session, options, &recipe);
    }
    ls_recipe_destroy(recipe.recipe);
    if (status == LS_ERR_INVALID && !session->tokenizer) {
        return ls_fail_within(status, "%s has no tokenizer (set tokenizer.file, or tokenizer.kind: bytes)",
                              run->model.from);
    }
    return status;
}

/* ---- model and plan ---- */

/* The vocabulary of model.from, which may be larger than that of its tokenizer. */
static ls_status adopt_vocab(ls_session *session)
{
    uint64_t vocab = session->tokenizer ? ls_tokenizer_vocab_size(session->tokenizer) : 0;
    if (session->source && vocab < (uint64_t)session->source->config.vocab) {
        vocab = (uint64_t)session->source->config.vocab;
    }
    return ls_run_file_adopt_vocab(&session->run, vocab);
}

/* Says what was changed about the model of model.from. */
static void tell_changes(const ls_session *session, const ls_session_options *options)
{
    const ls_model_config *from = &session->source->config, *now = &session->config;
    const ls_rope_scaling *scaling = &now->rope_scaling;
    char line[256];
    if (options->tell && now->vocab > from->vocab) {
        snprintf(line, sizeof line,
                 "vocabulary: %" PRId64 " rows, %" PRId64
                 " in model.from; each new row begins as the mean of those",
                 now->vocab, from->vocab);
        options->tell(options->context, line);
    }
    if (options->tell && now->rotary &&
        (now->context > from->context || scaling->kind != from->rope_scaling.kind)) {
        snprintf(line, sizeof line,
                 "context: %" PRIu64 " tokens, %" PRId64
                 " in model.from; rotary scaling %s with factor %g from %" PRId64,
                 session->run.model.context, from->context, ls_rope_scaling_name(scaling->kind),
                 scaling->factor,
                 scaling->kind == LS_ROPE_LINEAR ? from->context : scaling->original_context);
        options->tell(options->context, line);
    }
}

/* The ids of the model's configuration have no meaning with another tokenizer. */
static void take_special_ids(ls_session *session)
{
    session->config.bos_id = ls_tokenizer_bos(session->tokenizer);
    session->config.eos_id = ls_tokenizer_eos(session->tokenizer);
    session->config.pad_id = -1;
    session->config.more_eos_count = 0;
}

static ls_status resolve_config(ls_session *session, const ls_session_options *options)
{
    if (session->source) {
        session->config = session->source->config;
        LS_TRY(ls_run_file_change_model(&session->run, &session->config));
        tell_changes(session, options);
    } else {
        LS_TRY(ls_run_file_model_config(&session->run, &session->config));
    }
    if (session->run.tokenizer.kind != LS_TOKENIZER_MODEL) {
        take_special_ids(session);
    }
    LS_TRY(ls_model_config_check(&session->config));
    if (session->run.adapter.kind == LS_ADAPTER_LORA) {
        return ls_session_adapt(session, options->run_dir != NULL);
    }
    const ls_option_strings *freeze = &session->run.train.freeze;
    return ls_layout_build_frozen(session->arena, &session->config, freeze->items, freeze->count,
                                  &session->layout);
}

/* Evaluation and generation have small arenas of their own, planned here so that the total is known
 * before training begins. */
static uint64_t plan_bytes(const ls_plan *plan, int64_t positions)
{
    const ls_model_config *c = &plan->config;
    const int64_t rope_floats = c->rotary ? positions * c->head_dim : 0;
    return (uint64_t)(plan->arena_floats + rope_floats) * sizeof(float);
}

/* Adds the memory of a forward-only plan without a head, for one sequence of `length`, with a cache
 * of `positions`. */
static ls_status add_generation(ls_session *session, int64_t length, int64_t positions)
{
    ls_plan plan;
    ls_plan_options options = ls_executor_plan_options(session->device, ls_session_activations(session));
    options.sequences = 1;
    options.length = length;
    LS_TRY(ls_plan_build(session->arena, &session->config, &session->layout, &options, &plan));
    session->generation_bytes += plan_bytes(&plan, positions);
    return LS_OK;
}

static ls_status plan_side_work(ls_session *session)
{
    ls_plan plan;
    ls_plan_options options = ls_executor_plan_options(session->device, ls_session_activations(session));
    session->generation_bytes = 0;
    options.sequences = session->plan.options.sequences;
    options.length = session->plan.options.length;
    options.losses = true;
    if (ls_dataset_token_count(session->dataset, LS_SPLIT_VALIDATION) >= 2) {
        LS_TRY(ls_plan_build(session->arena, &session->config, &session->layout, &options, &plan));
        session->evaluation_bytes = plan_bytes(&plan, options.length);
    }
    if (session->run.sample.every_steps > 0) {
        const ls_model_config *c = &session->config;
        const int64_t positions = options.length;
        LS_TRY(add_generation(session, positions < 64 ? positions : 64, positions));
        LS_TRY(add_generation(session, 1, positions));
        session->generation_bytes +=
            (uint64_t)(2 * c->layers * positions * c->kv_heads * c->head_dim) * sizeof(float);
    }
    return LS_OK;
}

/* Whether checkpoints are written while steps continue: the run file says so, or it says auto and
 * there is enough memory. Residuals have no snapshot, so with compression steps wait. */
static void plan_snapshot(ls_session *session)
{
    const ls_run_checkpoint *run = &session->run.checkpoint;
    const uint64_t steps = session->run.train.steps;
    /* Workers' states have no second copy: steps wait while they are saved. */
    const bool comes =
        session->run.train.local.steps == 0 &&
        (run->every_steps == LS_AUTO_U64 || (run->every_steps > 0 && run->every_steps < steps) ||
         (run->weights_every_steps > 0 && run->weights_every_steps < steps));
    const uint64_t bytes = 3 * (uint64_t)session->layout.float_count * sizeof(float);
    const uint64_t available = ls_memory_available();
    const bool fits = ls_session_is_on_gpu(session) || available == UINT64_MAX ||
                      ls_session_bytes(session) + bytes <= available;
    const bool wanted = run->async == LS_YES || (run->async == LS_AUTO && fits);
    session->snapshot_bytes = comes && wanted && ls_run_file_residuals(&session->run) == 0 ? bytes : 0;
}

/* The plan of a process that computes alone. */
static ls_status build_plan(ls_session *session)
{
    const ls_run_file *run = &session->run;
    ls_plan_options options = ls_executor_plan_options(session->device, ls_session_activations(session));
    options.sequences = (int64_t)run->train.micro_batch;
    options.length = (int64_t)run->model.context;
    options.training = true;
    options.losses = true;
    options.recompute = (ls_recompute)run->train.recompute;
    options.tensor_cut = (uint32_t)run->train.tensor_cut;
    options.sequence_cut = (uint32_t)run->train.sequence_cut;
    options.balance_loss = run->train.balance_loss;
    LS_TRY(ls_plan_build(session->arena, &session->config, &session->layout, &options, &session->plan));
    session->memory = ls_plan_memory(&session->plan, (uint32_t)ls_run_file_rank_leaves(run, false),
                                     ls_run_file_group(run), ls_run_file_residuals(run));
    session->flops = ls_plan_count_flops(&session->plan);
    return plan_side_work(session);
}

/* ---- life ---- */

static uint64_t threads_asked(const ls_run_file *run, uint64_t asked)
{
    return asked > 0 ? asked : run->train.threads != LS_AUTO_U64 ? run->train.threads : 0;
}

uint32_t ls_session_rank_threads(const ls_session *session, uint32_t ranks)
{
    if (session->threads_asked > 0) {
        return (uint32_t)session->threads_asked;
    }
    const uint32_t share = ls_wait_cores() / ranks;
    return share < 1 ? 1 : share > THREADS_MAX ? THREADS_MAX : share;
}

/* The threads of all ranks together, at most one per core: while the ranks wait, the trainer
 * evaluates and samples with as many. */
static uint32_t queue_threads(const ls_session *session)
{
    const uint32_t each = ls_session_rank_threads(session, session->ranks), cores = ls_wait_cores();
    const uint32_t most = each > cores ? each : cores < THREADS_MAX ? cores : THREADS_MAX;
    return (uint64_t)each * session->ranks < most ? each * session->ranks : most;
}

ls_status ls_session_plan_ranks(ls_session *session, uint32_t member)
{
    LS_TRY(ls_session_build_own_plans(session, member));
    session->process_bytes =
        ls_session_process_bytes(session, queue_threads(session)) + ls_session_save_bytes(session);
    plan_snapshot(session);
    return LS_OK;
}

void ls_session_set_ranks(ls_session *session)
{
    session->ranks = session->is_rank ? 1 : (uint32_t)ls_run_file_ranks(&session->run);
    session->is_gang = !session->is_rank && (session->ranks > 1 || session->run.job.elastic);
    session->host_ranks = session->worker_hosts > 1 ? session->host_ranks : session->ranks;
}

static ls_status check_ranks(const ls_session *session)
{
    const uint64_t ranks = session->ranks, leaves = ls_run_file_rank_leaves(&session->run, false);
    if (ranks > LS_LOCAL_RANKS_MAX) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%" PRIu64 " ranks were asked for on one host; the allowed range is 1 to %d", ranks,
                       LS_LOCAL_RANKS_MAX);
    }
    if (session->is_gang && leaves > LS_LEAVES_MAX) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "train.leaves is %" PRIu64 "; with several ranks or job.elastic it must be at most "
                       "%d: use --ranks 1, or start a new run with fewer leaves",
                       leaves, LS_LEAVES_MAX);
    }
    return LS_OK;
}

ls_dtype ls_session_activations(const ls_session *session)
{
    return session->run.train.precision == LS_PRECISION_BF16 ? LS_BF16 : LS_F32;
}

ls_model_on_device ls_session_model(const ls_session *session, const ls_state *state)
{
    return (ls_model_on_device){.queue = session->device,
                                .config = &session->config,
                                .layout = &session->layout,
                                .type = ls_session_activations(session),
                                .weights = ls_state_weights(state)};
}

/* What a run that is to use a GPU must not ask for; NULL: nothing. */
static const char *gpu_obstacle(const ls_session *session, const ls_session_options *options)
{
    return options->is_rank || session->ranks > 1 ? "it has several ranks (--ranks, parallel.ranks)"
           : session->run.job.elastic             ? "job.elastic is true"
           : session->run.train.tensor_cut > 1    ? "train.tensor_cut is above 1"
           : session->run.train.sequence_cut > 1  ? "train.sequence_cut is above 1"
           : session->run.train.local.steps > 0   ? "train.local.steps is above 0"
           : session->run.train.compression.kind != LS_COMPRESSION_NONE ? "train.compression.kind is set"
           : session->run.model.experts > 0 ? "the model has experts, which only the CPU computes"
                                            : NULL;
}

/* Whether this machine seems to have an NVIDIA GPU, so that leaving it out is worth a word. */
static bool has_card(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || getenv("LOCKSTEP_CUDA_DRIVER");
}

static void tell_cpu(const ls_session_options *options, const char *why)
{
    if (options->tell && has_card()) {
        char text[640];
        snprintf(text, sizeof text, "training on the CPU: the GPU of this machine is not used, because %s",
                 why);
        options->tell(options->context, text);
    }
}

static ls_status open_gpu(ls_session *session, const ls_session_options *options, bool is_required)
{
    const char *obstacle = gpu_obstacle(session, options);
    if (obstacle && !is_required) {
        tell_cpu(options, obstacle);
        return LS_OK;
    }
    if (obstacle) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "train.device or train.precision asks for a GPU, but %s; in this version a run on a GPU "
            "is one process on one GPU: change that, or set train.device: cpu and "
            "train.precision: fp32",
            obstacle);
    }
    const ls_cuda_options cuda = {.tf32 = session->run.train.precision == LS_PRECISION_TF32};
    const ls_status status = ls_queue_create_cuda(&cuda, &session->device);
    if (status != LS_OK && !is_required) {
        tell_cpu(options, ls_error_text());
        ls_error_clear();
        return LS_OK;
    }
    return status;
}

/* The GPU if the run asks for one, or if it may use one and there is one; else the CPU. */
static ls_status open_device(ls_session *session, const ls_session_options *options)
{
    const ls_run_train *train = &session->run.train;
    const bool is_required = train->device == LS_RUN_DEVICE_CUDA || train->precision != LS_PRECISION_FP32;
    session->device = NULL;
    if (train->device != LS_RUN_DEVICE_CPU) {
        LS_TRY(open_gpu(session, options, is_required));
    }
    LS_TRY(ls_run_file_check_machine(&session->run, session->device != NULL));
    if (!session->device) {
        session->device = session->queue;
    }
    return LS_OK;
}

static ls_status open_source(ls_session *session)
{
    const char *from = session->run.model.from;
    LS_TRY(ls_model_file_open(from, &session->source));
    if (session->source->config.quantised && session->run.adapter.kind == LS_ADAPTER_NONE) {
        return ls_fail(LS_ERR_INVALID,
                       "model.from %s has packed weights (quantization_config in its config.json), which "
                       "cannot be trained themselves: set adapter.kind: lora, name the model before it was "
                       "quantised, or read the rounded weights into a checkpoint with 'lockstep import'",
                       from);
    }
    return ls_run_file_adopt_model(&session->run, &session->source->config);
}

/* Sets the ranks and degrees that are auto, and the threads for so many ranks. */
static ls_status choose_mesh(ls_session *session, const ls_session_options *options)
{
    ls_run_parallel chosen = session->run.parallel;
    uint64_t *degrees[] = {&chosen.tensor, &chosen.context, &chosen.pipeline, &chosen.expert};
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        *degrees[i] = *degrees[i] == LS_AUTO_U64 ? 1 : *degrees[i];
    }
    chosen.schedule = chosen.schedule == LS_RUN_SCHEDULE_AUTO ? LS_RUN_1F1B : chosen.schedule;
    LS_TRY(options->choose ? options->choose(options->chooser, session, &chosen) : LS_OK);
    session->run.parallel = chosen;
    ls_session_set_ranks(session);
    LS_TRY(check_ranks(session));
    if (session->device != session->queue || ls_queue_threads(session->queue) == queue_threads(session)) {
        return LS_OK;
    }
    ls_queue_destroy(session->queue);
    session->queue = session->device = NULL;
    LS_TRY(ls_queue_create_cpu(queue_threads(session), &session->queue));
    session->device = session->queue;
    return build_plan(session); /* its workspaces depend on the threads */
}

static ls_status check_fragments(const ls_session *session)
{
    const unsigned long long fragments = session->run.train.local.fragments;
    const long long layers = session->config.layers;
    return fragments <= (unsigned long long)layers
               ? LS_OK
               : ls_fail(
                     LS_ERR_INVALID,
                     "train.local.fragments is %llu, but model.layers is %lld, and a fragment has at least "
                     "one layer: use at most %lld",
                     fragments, layers, layers);
}

static ls_status open_all(ls_session *session, const ls_session_options *options)
{
    if (session->run.model.from[0]) {
        LS_TRY(open_source(session));
    }
    session->threads_asked = threads_asked(&session->run, options->threads);
    session->is_rank = options->is_rank;
    session->worker_hosts = session->run.train.local.steps > 0 ? options->hosts : 0;
    session->host_ranks = options->host_ranks;
    ls_session_set_ranks(session);
    LS_TRY(check_ranks(session));
    LS_TRY(ls_queue_create_cpu(queue_threads(session), &session->queue));
    LS_TRY(open_device(session, options));
    LS_TRY(ls_session_open_tokenizer(session, options));
    LS_TRY(options->run_dir ? LS_OK : ls_session_check_meanings(session));
    LS_TRY(adopt_vocab(session));
    LS_TRY(resolve_config(session, options));
    LS_TRY(open_dataset(session, options));
    LS_TRY(ls_run_file_adopt_data(&session->run, ls_dataset_samples(session->dataset, LS_SPLIT_TRAIN)));
    LS_TRY(ls_run_file_check_local(&session->run)); /* the steps are known only now */
    LS_TRY(check_fragments(session));
    LS_TRY(build_plan(session));
    if (ls_run_file_mesh_is_open(&session->run)) {
        LS_TRY(choose_mesh(session, options));
    }
    LS_TRY(ls_session_plan_ranks(session, options->member));
    ls_run_file_identity(&session->run, ls_dataset_hash(session->dataset), session->identity);
    return LS_OK;
}

ls_status ls_session_open(ls_arena *arena, const ls_run_file *run, const ls_session_options *options,
                          ls_session *session_out)
{
    *session_out = (ls_session){.arena = arena, .run = *run};
    const ls_status status = open_all(session_out, options);
    if (status != LS_OK) {
        ls_session_close(session_out);
    }
    return status;
}

void ls_session_close(ls_session *session)
{
    ls_model_file_close(session->source);
    ls_adapter_file_close(session->adapter);
    ls_dataset_close(session->dataset);
    ls_tokenizer_destroy(session->tokenizer);
    if (session->device != session->queue) {
        ls_queue_destroy(session->device);
    }
    ls_queue_destroy(session->queue);
    *session = (ls_session){0};
}

/* ---- what a step needs ---- */

ls_status ls_session_begin_weights(ls_session *session, ls_state *state)
{
    if (session->layout.adapter) {
        return ls_session_begin_adapter(session, state);
    }
    if (session->source) {
        LS_TRY(ls_model_file_load(session->source, &session->layout, ls_state_host(state)->parameters));
        return ls_state_from_host(state);
    }
    return ls_state_init_weights(state, session->queue, &session->config, session->run.train.seed);
}

/* ---- numbers ---- */

static uint64_t micro_batches_of(const ls_session *session)
{
    return session->run.train.global_batch / session->run.train.micro_batch;
}

double ls_session_step_flops(const ls_session *session, bool with_recompute)
{
    const double flops = session->flops.forward + session->flops.backward;
    return (flops + (with_recompute ? session->flops.recomputed : 0.0)) * (double)micro_batches_of(session);
}

/* ---- in words ---- */

static void describe_row(ls_text *text, const char *name, uint64_t bytes, const char *note)
{
    char size[32];
    ls_text_printf(text, "  %-28s %12s  %s\n", name, ls_memory_text(bytes, size), note);
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static const char *leaves_word(const ls_session *session)
{
    return session->run.train.leaves == 1 ? "leaf" : "leaves";
}

static void describe_gradients(const ls_session *session, ls_text *text)
{
    const ls_memory_plan *m = &session->memory;
    char note[128];
    if (session->is_gang) {
        const ls_ranks_cost cost = ls_ranks_cost_of(session, session->host_ranks);
        snprintf(note, sizeof note, "%u buffer%s of %u rank%s for the tree of %" PRIu64 " %s", cost.buffers,
                 plural(cost.buffers), session->host_ranks, plural(session->host_ranks),
                 session->run.train.leaves, leaves_word(session));
        describe_row(text, "gradients", cost.gradient_bytes, note);
        return;
    }
    describe_row(text, "gradients", m->gradients, "");
    snprintf(note, sizeof note, "%u more gradient buffer%s for the tree of %" PRIu64 " %s",
             m->tree_buffers - 1, plural(m->tree_buffers - 1), session->run.train.leaves,
             leaves_word(session));
    describe_row(text, "tree of leaves", m->tree, note);
}

/* The private memory of each rank, and of the trainer if it is a separate process. */
static void describe_private(const ls_session *session, ls_text *text)
{
    const ls_memory_plan *m = &session->memory;
    const uint32_t ranks = session->host_ranks, crew = ls_mesh_crew(ls_session_mesh(session));
    char note[128], each[64] = "";
    if (session->pipeline_list) {
        snprintf(each, sizeof each, ", up to %u times in each of %u ranks", session->own_plans->options.slots,
                 ranks);
    } else if (ranks > 1) {
        snprintf(each, sizeof each, " in each of %u ranks", ranks);
    }
    snprintf(note, sizeof note, "%" PRIu64 " sequence%s of %" PRIu64 " token%s at once%s",
             session->run.train.micro_batch, plural(session->run.train.micro_batch),
             session->run.model.context, plural(session->run.model.context), each);
    if (crew > 1) {
        describe_row(text, "activations and tables", ranks / crew * session->work_bytes_crew, note);
    } else {
        describe_row(text, "activations", ranks * m->activations, note);
        describe_row(text, "logits", ranks * m->logits, "one chunk at a time");
        describe_row(text, "tables", ranks * m->other, "");
    }
    if (session->snapshot_bytes > 0 && !ls_session_is_on_gpu(session)) {
        describe_row(text, "snapshot", session->snapshot_bytes,
                     "checkpoints are written from it while steps continue");
    }
    describe_row(text, "evaluation and samples", session->evaluation_bytes + session->generation_bytes, "");
    uint64_t process = session->process_bytes;
    if (session->is_gang) {
        process += ranks * ls_session_process_bytes(session, ls_session_rank_threads(session, ranks));
        describe_row(text, "sums", (uint64_t)session->layout.float_count * sizeof(float),
                     "of all gradients, once for all ranks");
    }
    describe_row(text, "process and scratch", process, "program, libraries, per-thread buffers");
}

static const char *fits_word(uint64_t needed, uint64_t available)
{
    return available == UINT64_MAX ? "" : needed <= available ? "fits" : "does NOT fit";
}

static void describe_total(const ls_session *session, ls_text *text)
{
    const uint64_t available = ls_memory_available(), needed = ls_session_bytes(session);
    const bool on_gpu = ls_session_is_on_gpu(session);
    if (on_gpu) {
        const uint64_t there = ls_queue_free_memory(session->device);
        describe_row(text, "total on the GPU", ls_session_gpu_bytes(session),
                     fits_word(ls_session_gpu_bytes(session), there));
        if (there != UINT64_MAX) {
            describe_row(text, "free on the GPU now", there, "");
        }
    }
    describe_row(text, on_gpu ? "total in host memory" : "total", needed, fits_word(needed, available));
    if (available != UINT64_MAX) {
        describe_row(text, "available now", available, "");
    }
}

/* "ffn 1024", or the experts of a layer. */
static void describe_mlp(const ls_model_config *c, ls_text *text)
{
    if (c->experts > 0) {
        ls_text_printf(text, "%" PRId64 " experts of %" PRId64 ", %" PRId64 " for each token", c->experts,
                       c->expert_ffn, c->experts_per_token);
    } else {
        ls_text_printf(text, "ffn %" PRId64, c->ffn);
    }
}

static void describe_memory(const ls_session *session, ls_text *text)
{
    const ls_memory_plan *m = &session->memory;
    ls_text_append(text, "memory\n");
    describe_row(text, "weights", m->parameters,
                 ls_session_activations(session) == LS_BF16 ? "bfloat16 and the rest of each float32"
                 : session->is_gang                         ? "float32, once for all ranks"
                                                            : "float32");
    describe_row(text, "optimizer (AdamW)", m->optimizer,
                 session->layout.frozen_elements > 0 ? "two moments of what is trained" : "two moments");
    if (ls_session_worker_bytes(session) > 0) {
        describe_row(text, "workers", ls_session_worker_bytes(session),
                     "parameters and two moments of each (train.local.workers)");
    }
    if (ls_session_outer_bytes(session) > 0) {
        describe_row(text, "outer gradients", ls_session_outer_bytes(session),
                     "what this host sends and receives of them");
    }
    if (session->memory.residuals > 0) {
        describe_row(text, "residuals", session->memory.residuals,
                     "what compression keeps of each group and of the whole, twice");
    }
    describe_gradients(session, text);
    describe_private(session, text);
    describe_total(session, text);
}

void ls_session_describe(const ls_session *session, ls_text *text)
{
    const ls_run_file *run = &session->run;
    const ls_model_config *c = &session->config;
    const uint64_t documents = ls_dataset_document_count(session->dataset);
    ls_text_printf(text,
                   "model   %s, %.2f million parameters: %" PRId64 " layer%s, width %" PRId64 ", %" PRId64
                   " head%s (%" PRId64 " key-value), ",
                   ls_family_name(c->family), (double)session->layout.element_count / 1e6, c->layers,
                   plural((uint64_t)c->layers), c->width, c->heads, plural((uint64_t)c->heads), c->kv_heads);
    describe_mlp(c, text);
    ls_text_printf(text, ", context %" PRIu64 ", vocabulary %" PRId64 "\n", run->model.context, c->vocab);
    if (session->layout.frozen_elements > 0) {
        const ls_layout *layout = &session->layout;
        ls_text_printf(text,
                       "frozen  %.2f million parameters in %u tensor%s (%s), %.2f million in %u are "
                       "trained\n",
                       (double)layout->frozen_elements / 1e6, layout->parameter_count - layout->trained_count,
                       plural(layout->parameter_count - layout->trained_count),
                       layout->adapter ? "the base of the adapter" : "train.freeze",
                       (double)(layout->element_count - layout->frozen_elements) / 1e6,
                       layout->trained_count);
    }
    ls_text_printf(text,
                   "data    %" PRIu64 " training tokens in %" PRIu64 " document%s, %" PRIu64
                   " validation tokens, tokenizer %s\n",
                   ls_dataset_token_count(session->dataset, LS_SPLIT_TRAIN), documents, plural(documents),
                   ls_dataset_token_count(session->dataset, LS_SPLIT_VALIDATION),
                   session->tokenizer ? ls_tokenizer_kind(session->tokenizer) : "none");
    ls_session_describe_sources(session, text);
    const uint64_t step_tokens = run->train.global_batch * run->model.context;
    ls_text_printf(text,
                   "step    %" PRIu64 " sequence%s = %" PRIu64 " tokens, in %" PRIu64 " %s of %" PRIu64
                   ", micro-batches of %" PRIu64 "\n",
                   run->train.global_batch, plural(run->train.global_batch), step_tokens, run->train.leaves,
                   leaves_word(session), run->train.global_batch / run->train.leaves, run->train.micro_batch);
    ls_text_printf(
        text, "run     %" PRIu64 " step%s = %.2f million tokens, %.2f epochs, %.2f tokens per parameter\n",
        run->train.steps, plural(run->train.steps), (double)(run->train.steps * step_tokens) / 1e6,
        (double)(run->train.steps * run->train.global_batch) /
            (double)ls_dataset_samples(session->dataset, LS_SPLIT_TRAIN),
        (double)(run->train.steps * step_tokens) / (double)session->layout.element_count);
    ls_text_printf(text,
                   "FLOPs   %.4g per step (forward %.4g, backward %.4g, recomputed %.4g; full-attention "
                   "convention), %.4g for the "
                   "run\n",
                   ls_session_step_flops(session, true),
                   session->flops.forward * (double)micro_batches_of(session),
                   session->flops.backward * (double)micro_batches_of(session),
                   session->flops.recomputed * (double)micro_batches_of(session),
                   ls_session_step_flops(session, true) * (double)run->train.steps);
    const uint32_t threads = ls_session_rank_threads(session, session->ranks);
    ls_text_printf(text, "machine %s, %" PRIu32 " rank%s with %" PRIu32 " thread%s%s, determinism class %s\n",
                   ls_queue_device_name(session->device), session->ranks, plural(session->ranks), threads,
                   plural(threads), session->ranks > 1 ? " each" : "",
                   ls_queue_determinism_class(session->device));
    ls_session_describe_mesh(session, text);
    ls_session_describe_warnings(session, text);
    describe_memory(session, text);
    if (!ls_session_is_on_gpu(session)) {
        ls_ranks_cost_describe(session, text);
    }
}

json_t *ls_session_to_json(const ls_session *session)
{
    const ls_memory_plan *m = &session->memory;
    const ls_ranks_cost cost = ls_ranks_cost_of(session, session->host_ranks);
    json_t *memory =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights",
                  (json_int_t)m->parameters, "gradients", (json_int_t)m->gradients, "optimizer",
                  (json_int_t)m->optimizer, "tree", (json_int_t)m->tree, "tree_buffers", (int)m->tree_buffers,
                  "activations", (json_int_t)m->activations, "logits", (json_int_t)m->logits, "other",
                  (json_int_t)m->other, "side_work",
                  (json_int_t)(session->evaluation_bytes + session->generation_bytes), "process",
                  (json_int_t)session->process_bytes, "snapshot", (json_int_t)session->snapshot_bytes,
                  "workers", (json_int_t)ls_session_worker_bytes(session), "outer_gradients",
                  (json_int_t)ls_session_outer_bytes(session), "residuals", (json_int_t)m->residuals, "total",
                  (json_int_t)ls_session_bytes(session));
    const double micro_batches = (double)micro_batches_of(session);
    json_t *flops = json_pack("{s:f, s:f, s:f, s:f, s:s}", "forward", session->flops.forward * micro_batches,
                              "backward", session->flops.backward * micro_batches, "recomputed",
                              session->flops.recomputed * micro_batches, "step",
                              ls_session_step_flops(session, true), "convention", "full attention");
    const ls_layout *layout = &session->layout;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o*}", "run",
                     session->run.name, "parameters", (json_int_t)layout->element_count, "trained_parameters",
                     (json_int_t)(layout->element_count - layout->frozen_elements), "steps",
                     (json_int_t)session->run.train.steps, "tokens_per_step",
                     (json_int_t)(session->run.train.global_batch * session->run.model.context), "leaves",
                     (json_int_t)session->run.train.leaves, "ranks", (json_int_t)session->ranks, "threads",
                     (json_int_t)ls_session_rank_threads(session, session->ranks), "identity",
                     session->identity, "determinism", ls_queue_determinism_class(session->device),
                     "memory_bytes", memory, "flops_per_step", flops, "leaves_cost",
                     ls_ranks_cost_to_json(&cost), "mesh", ls_session_mesh_to_json(session), "sources",
                     ls_session_sources_to_json(session, session->run.train.steps, NULL));
}

// SPDX-License-Identifier: Apache-2.0
/* export: converts a checkpoint to a Hugging Face directory or a GGUF file. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "cli/registered.h"
#include "execution/convert/modelfile.h"
#include "execution/train/adapter_check.h"
#include "model/huggingface_export.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

typedef struct export_settings {
    const char *output, *gguf;
    int dtype, quant;
    uint64_t shard_bytes;
    bool replace, best, adapter;
    int base;
    uint64_t threads;
} export_settings;

enum { BASE_TRAINED, BASE_ORIGINAL };
static const char *const base_names[] = {"trained", "original", NULL};
static const char *const dtype_names[] = {"fp32", "bf16", "fp16", NULL};
static const ls_st_dtype dtypes[] = {LS_ST_F32, LS_ST_BF16, LS_ST_F16};

static const char *const quant_names[] = {"f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", NULL};

static const ls_option export_options[] = {
    LS_ROW_OUTPUT_DIR(export_settings),
    LS_ROW_TEXT(export_settings, gguf, "FILE",
                "write one GGUF file of this name, for llama.cpp, ollama and programs built on them, in "
                "place of a Hugging Face folder; a Modelfile for ollama is written beside it"),
    LS_ROW_CHOICE(export_settings, quant, "f16", quant_names,
                  "number format of the weights in a GGUF file. Bits per weight: f32 32, f16 and bf16 16, "
                  "q8_0 8.5, q6_k 6.6, q5_k_m about 5.7, q4_k_m about 4.8; the last two keep the most "
                  "sensitive matrices in q6_k"),
    LS_ROW_CHOICE(export_settings, dtype, "fp32", dtype_names,
                  "number format of the exported weights, also if the model was imported in another one; "
                  "bf16 and fp16 round to nearest, and the export fails if a weight is too large for them"),
    LS_ROW_BYTES(export_settings, shard_size, shard_bytes, "0", 0, 1e15,
                 "largest size of a file with weights, such as 5GB; 0: all weights in one file"),
    LS_ROW_BOOL(
        export_settings, best,
        "export the checkpoint of the run that has the lowest validation loss, instead of the newest one"),
    LS_ROW_BOOL(export_settings, adapter,
                "write the adapter alone, as a directory that the PEFT library can read, instead of merging "
                "it into its base"),
    LS_ROW_CHOICE(
        export_settings, base, "trained", base_names,
        "weights of the base that an adapter is merged into. trained: rounded to the format of adapter.base, "
        "as when the adapter was trained; original: as they were before that rounding"),
    LS_ROW_BOOL(export_settings, replace,
                "replace the model that is in the output folder, with all its files, or the GGUF file"),
    LS_ROW_THREADS(export_settings),
};

/* Rounds the weights to the type they were exported in. */
static ls_status round_weights(ls_st_dtype dtype, float *values, int64_t count)
{
    enum { PART = 4096 };
    for (int64_t at = 0; at < count; at += PART) {
        uint16_t halves[PART];
        const uint64_t part = (uint64_t)(count - at < PART ? count - at : PART);
        const ls_safetensor tensor = {.name = "weights",
                                      .dtype = dtype,
                                      .rank = 1,
                                      .shape = {part},
                                      .data = halves,
                                      .bytes = part * sizeof *halves};
        LS_TRY(ls_safetensor_from_f32(dtype, values + at, (size_t)part, halves));
        LS_TRY(ls_safetensor_to_f32(&tensor, values + at));
    }
    return LS_OK;
}

/* Compares the merged model, as it was exported, with base and adapter apart. */
static ls_status check_merge(const export_settings *settings, const ls_loaded_model *model)
{
    const ls_st_dtype dtype = dtypes[settings->dtype];
    ls_merge_check check;
    if (dtype != LS_ST_F32) {
        LS_TRY(round_weights(dtype, model->state.parameters, model->file->layout.parameter_floats));
    }
    LS_TRY(ls_adapter_check_merge(model->file, model->queue, model->state.parameters, &check));
    printf("  merge checked: logits of up to %.3g differ by at most %.2g from those of the base with the "
           "adapter unmerged, and the most likely token is the same at %" PRId64 " of %" PRId64
           " positions of %s\n",
           check.logit, check.difference, check.same, check.positions,
           check.from_run ? "the run's own data" : "random tokens");
    const bool is_exact = dtype == LS_ST_F32 && settings->base == BASE_TRAINED;
    if (is_exact && !(check.difference <= 1e-3 * (1.0 + check.logit))) {
        return ls_fail(
            LS_ERR_FAILED,
            "the merged model in %s gives other results than the base with the adapter unmerged: a logit "
            "differs by %.3g; do not use the merged model; export the adapter alone with --adapter",
            settings->output, check.difference);
    }
    return LS_OK;
}

static ls_status export_loaded(const ls_invocation *invocation, const ls_loaded_model *model)
{
    const export_settings *settings = invocation->settings;
    ls_hf_file *files = NULL;
    size_t count = 0;
    LS_TRY(ls_model_file_exported(model->file, invocation->arena, &files, &count));
    const ls_hf_export_options options = {.folder = settings->output,
                                          .config = &model->file->config,
                                          .layout = &model->file->layout,
                                          .flat = model->state.parameters,
                                          .files = files,
                                          .file_count = count,
                                          .dtype = dtypes[settings->dtype],
                                          .shard_bytes = settings->shard_bytes,
                                          .replace = settings->replace};
    LS_TRY(ls_hf_export(&options));
    printf("%s: %s, %.2f million parameters, %s, step %" PRIu64 "\n", settings->output,
           ls_family_name(model->file->config.family), (double)model->file->layout.element_count / 1e6,
           dtype_names[settings->dtype], model->file->step);
    return model->file->adapter ? check_merge(settings, model) : LS_OK;
}

static ls_status export_adapter(const export_settings *settings, const ls_loaded_model *model)
{
    const ls_layout *layout = &model->file->layout;
    if (!model->file->adapter) {
        return ls_fail(LS_ERR_INVALID,
                       "--adapter: %s is a whole model and has no adapter; leave out --adapter to export it",
                       model->file->path);
    }
    LS_TRY(ls_adapter_export(model->file, model->state.parameters, settings->output));
    printf("%s: adapter of rank %u, %.2f million parameters, step %" PRIu64 "\n", settings->output,
           layout->adapter->rank, (double)(layout->element_count - layout->frozen_elements) / 1e6,
           model->file->step);
    return LS_OK;
}

/* ---- GGUF ---- */

static void print_gguf(const export_settings *settings, const ls_model_file *file,
                       const ls_gguf_exported *done)
{
    printf("%s: %s, %.2f million parameters, %zu tensors, %s, %.1f MB, step %" PRIu64 "\n", settings->gguf,
           ls_gguf_architecture(file->config.family), (double)file->layout.element_count / 1e6, done->tensors,
           quant_names[settings->quant], (double)done->bytes / 1e6, file->step);
    for (size_t i = 0; i < done->notes.count; i++) {
        printf("  %s\n", done->notes.texts[i]);
    }
}

/* The name of the run, or of the model's folder. */
static const char *model_name(ls_arena *arena, const ls_model_file *file, const char *path)
{
    const char *run =
        file->checkpoint ? json_string_value(json_object_get(file->checkpoint->meta.extra, "run")) : NULL;
    return run ? run : ls_path_basename(ls_path_trim(arena, path));
}

static ls_status export_gguf(const ls_invocation *invocation, const char *path, const ls_model_file *file,
                             ls_queue *queue)
{
    const export_settings *settings = invocation->settings;
    ls_gguf_export_options options = {.path = settings->gguf,
                                      .name = model_name(invocation->arena, file, path),
                                      .quant = (ls_gguf_quant)settings->quant,
                                      .file = file,
                                      .queue = queue,
                                      .replace = settings->replace};
    ls_hf_file *files = NULL;
    ls_gguf_exported done;
    LS_TRY(ls_model_file_exported(file, invocation->arena, &files, &options.file_count));
    options.files = files;
    LS_TRY(ls_gguf_export(&options, invocation->arena, &done));
    LS_TRY(ls_modelfile_write(&options, &done.notes));
    print_gguf(settings, file, &done);
    return LS_OK;
}

static ls_status run_gguf(const ls_invocation *invocation, const char *path)
{
    const export_settings *settings = invocation->settings;
    const uint64_t threads = settings->threads;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    ls_model_file *file = NULL;
    ls_queue *queue = NULL;
    LS_TRY(ls_model_file_open(path, &file));
    if (file->adapter) {
        ls_model_file_merge(file, settings->base == BASE_ORIGINAL);
    }
    ls_status status = ls_queue_create_cpu(threads     ? (uint32_t)threads
                                           : cores > 0 ? (uint32_t)cores
                                                       : 1,
                                           &queue);
    if (status == LS_OK) {
        status = export_gguf(invocation, path, file, queue);
    }
    ls_queue_destroy(queue);
    ls_model_file_close(file);
    return status;
}

/* No option goes unused. */
static ls_status check_options(const export_settings *s)
{
    if (!s->output[0] && !s->gguf[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "missing output: give -o DIR for a Hugging Face folder, or --gguf FILE");
    }
    if (s->output[0] && s->gguf[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "-o DIR and --gguf FILE cannot be given together: run export once with each of them");
    }
    const char *unused = !s->gguf[0]           ? (s->quant != LS_GGUF_F16 ? "--quant" : NULL)
                         : s->adapter          ? "--adapter"
                         : s->dtype != 0       ? "--dtype"
                         : s->shard_bytes != 0 ? "--shard-size"
                                               : NULL;
    return !unused ? LS_OK
                   : ls_fail(LS_ERR_INVALID, "%s has no effect %s: leave it out", unused,
                             s->gguf[0] ? "with --gguf FILE (--quant sets the number format)"
                                        : "without --gguf FILE");
}

static void add_to_registry(const ls_invocation *invocation, const char *from, const char *to,
                            const char *form, const char *numbers)
{
    const ls_survey_source source = {from, "parent"};
    const ls_registry_add_options options = {
        .path = to, .kind = LS_ENTRY_AUTO, .sources = &source, .source_count = 1};
    ls_registered(invocation->arena, options,
                  json_pack("{s:s, s:s, s:s}", "by", "export", "form", form, "numbers", numbers));
}

static ls_status run_export(const ls_invocation *invocation)
{
    const export_settings *settings = invocation->settings;
    LS_TRY(check_options(settings));
    ls_loaded_model model;
    const char *path = invocation->words[0];
    if (settings->best) {
        LS_TRY(ls_checkpoint_resolve_best(invocation->arena, path, &path));
    }
    if (settings->gguf[0]) {
        LS_TRY(run_gguf(invocation, path));
        add_to_registry(invocation, path, settings->gguf, "GGUF", quant_names[settings->quant]);
        return LS_OK;
    }
    const ls_loaded_model_options options = {.path = path,
                                             .threads = settings->threads,
                                             .is_merged = !settings->adapter,
                                             .into_original = settings->base == BASE_ORIGINAL};
    LS_TRY(ls_loaded_model_open(&model, &options));
    const ls_status status =
        settings->adapter ? export_adapter(settings, &model) : export_loaded(invocation, &model);
    ls_loaded_model_release(&model);
    LS_TRY(status);
    add_to_registry(invocation, path, settings->output, settings->adapter ? "PEFT adapter" : "Hugging Face",
                    dtype_names[settings->dtype]);
    return LS_OK;
}

const ls_command ls_command_export = {
    .name = "export",
    LS_WORDS("CKPT", 1, 1),
    .summary = "convert a checkpoint to a Hugging Face model or a GGUF file",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used, or with\n"
               "--best the one with the lowest validation loss) or a Hugging Face directory.\n"
               "Writes the weights, config.json, generation_config.json and the tokenizer, in the\n"
               "form that the transformers library loads. The output folder must be new or empty,\n"
               "and appears only when it is complete; with --replace it may hold a model and\n"
               "nothing else, which is replaced as a whole.\n"
               "\n"
               "An adapter is merged into its base, and the results of the merged model are compared\n"
               "with those of the base with the adapter unmerged. With --adapter, the adapter is\n"
               "written alone, without its base.\n"
               "\n"
               "With --gguf FILE, export writes one file for llama.cpp, ollama and the like: weights,\n"
               "tokenizer, chat template and the tokens that end an answer. The whole model is never\n"
               "in memory at once.\n"
               "\n"
               "Examples:\n"
               "  lockstep export runs/mine -o mine-hf\n"
               "  lockstep export runs/mine -o mine-hf --replace --dtype bf16 --shard-size 5GB\n"
               "  lockstep export runs/mine --gguf mine.gguf --quant q4_k_m",
    LS_SETTINGS(export_settings, export_options),
    .run = run_export,
};

// SPDX-License-Identifier: Apache-2.0
/* export: converts a checkpoint to a Hugging Face directory. */
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "model/huggingface_export.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct export_settings {
    const char *output;
    int dtype;
    uint64_t shard_bytes;
    bool replace, best;
} export_settings;

static const char *const dtype_names[] = {"fp32", "bf16", "fp16", NULL};
static const ls_st_dtype dtypes[] = {LS_ST_F32, LS_ST_BF16, LS_ST_F16};

static const ls_option export_options[] = {
    LS_ROW_OUTPUT_DIR(export_settings),
    {.key = "dtype",
     .type = LS_OPTION_CHOICE,
     .offset = offsetof(export_settings, dtype),
     .default_text = "fp32",
     .choices = dtype_names,
     .help = "number format of the exported weights, also if the model was imported in another one; bf16 and "
             "fp16 round to nearest, and the export fails if a weight is too large for them"},
    {.key = "shard_size",
     .type = LS_OPTION_BYTES,
     .offset = offsetof(export_settings, shard_bytes),
     .default_text = "0",
     .min = 0,
     .max = 1e15,
     .help = "largest size of a file with weights, such as 5GB; 0: all weights in one file"},
    {.key = "best",
     .type = LS_OPTION_BOOL,
     .offset = offsetof(export_settings, best),
     .default_text = "false",
     .help = "export the checkpoint of the run that has the lowest validation loss, instead of the newest "
             "one"},
    {.key = "replace",
     .type = LS_OPTION_BOOL,
     .offset = offsetof(export_settings, replace),
     .default_text = "false",
     .help = "replace the model that is in the output folder, with all its files"},
};
static const ls_option_table export_table = LS_OPTIONS(export_options);

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
    return LS_OK;
}

static ls_status run_export(const ls_invocation *invocation)
{
    const export_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "missing output folder: give -o DIR");
    }
    ls_loaded_model model;
    const char *path = invocation->words[0];
    if (settings->best) {
        LS_TRY(ls_checkpoint_resolve_best(invocation->arena, path, &path));
    }
    LS_TRY(ls_loaded_model_init(&model, path, 0));
    const ls_status status = export_loaded(invocation, &model);
    ls_loaded_model_release(&model);
    return status;
}

const ls_command ls_command_export = {
    .name = "export",
    .words = "CKPT",
    .summary = "convert a checkpoint to a Hugging Face model",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used, or with\n"
               "--best the one with the lowest validation loss) or a Hugging Face directory.\n"
               "Writes the weights, config.json, generation_config.json and the tokenizer, in the\n"
               "form that the transformers library loads. The output folder must be new or empty,\n"
               "and appears only when it is complete; with --replace it may hold a model and\n"
               "nothing else, which is replaced as a whole.\n"
               "\n"
               "Examples:\n"
               "  lockstep export runs/mine -o mine-hf\n"
               "  lockstep export runs/mine -o mine-hf --replace --dtype bf16 --shard-size 5GB",
    .words_min = 1,
    .words_max = 1,
    .options = &export_table,
    .settings_bytes = sizeof(export_settings),
    .run = run_export,
};

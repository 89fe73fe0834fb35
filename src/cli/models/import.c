// SPDX-License-Identifier: Apache-2.0
/* import: converts a Hugging Face directory to a checkpoint. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct output_settings {
    const char *output;
} output_settings;

static const ls_option output_options[] = {LS_ROW_OUTPUT_DIR(output_settings)};
static const ls_option_table output_table = LS_OPTIONS(output_options);

static ls_status save_import(const ls_invocation *invocation, const ls_loaded_model *model,
                             const char *output)
{
    ls_arena *arena = invocation->arena;
    ls_hf_file *files = NULL;
    size_t count = 0;
    LS_TRY(ls_model_file_carried(model->file, arena, &files, &count));
    ls_checkpoint_attachment *attachments = ls_arena_new(arena, ls_checkpoint_attachment, count + 1);
    for (size_t i = 0; i < count; i++) {
        attachments[i] = (ls_checkpoint_attachment){files[i].name, files[i].data, files[i].bytes};
    }
    char *config_text = NULL;
    LS_TRY(ls_model_file_config_text(&model->file->config, LS_ST_F32, &config_text));
    attachments[count++] = (ls_checkpoint_attachment){"config.json", config_text, strlen(config_text)};
    json_t *extra = json_pack("{s:s}", "imported_from", ls_path_basename(model->file->path));
    const ls_checkpoint_meta meta = {
        .leaves = 1, .identity = "", .determinism = ls_queue_determinism_class(model->queue), .extra = extra};
    const ls_checkpoint_save_options options = {
        .root = output,
        .meta = &meta,
        .tensors = ls_state_tensors(arena, &model->state),
        .tensor_count = model->file->layout.parameter_count,
        .attachments = attachments,
        .attachment_count = count,
    };
    ls_status status = ls_dir_create(ls_path_dirname(arena, output));
    if (status == LS_OK) {
        status = ls_checkpoint_save(&options, NULL);
    }
    json_decref(extra);
    free(config_text);
    LS_TRY(status);
    printf("%s/0: %s, %.2f million parameters%s\n", output, ls_family_name(model->file->config.family),
           (double)model->file->layout.element_count / 1e6,
           model->file->tokenizer ? ", with its tokenizer" : "");
    return LS_OK;
}

/* A folder that already holds a model is refused: the import would replace its step 0, or would be
 * hidden by newer steps. */
static ls_status check_output_free(ls_arena *arena, const char *output)
{
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_checkpoint_list(arena, output, &entries, &count));
    if (count > 0 || ls_path_exists(ls_path_join(arena, output, "0")) ||
        ls_path_exists(ls_path_join(arena, output, "checkpoints")) ||
        ls_path_exists(ls_path_join(arena, output, LS_MANIFEST_NAME))) {
        return ls_fail(LS_ERR_INVALID, "%s already holds a checkpoint; choose another -o or remove it",
                       output);
    }
    return LS_OK;
}

static ls_status run_import(const ls_invocation *invocation)
{
    const output_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "missing output folder: give -o DIR");
    }
    LS_TRY(check_output_free(invocation->arena, settings->output));
    ls_loaded_model model;
    const ls_loaded_model_options options = {.path = invocation->words[0], .is_merged = true};
    LS_TRY(ls_loaded_model_open(&model, &options));
    const ls_status status = save_import(invocation, &model, settings->output);
    ls_loaded_model_release(&model);
    return status;
}

const ls_command ls_command_import = {
    .name = "import",
    .words = "HF_DIR",
    .summary = "convert a Hugging Face model to a checkpoint",
    .details = "HF_DIR holds config.json, the weights as safetensors (one file or several), and\n"
               "optionally a tokenizer. The checkpoint is written to DIR/0. Every command that\n"
               "takes a checkpoint takes DIR; 'model.from: DIR' in a run file starts training\n"
               "from it.\n"
               "\n"
               "Example:\n"
               "  lockstep import ~/models/SmolLM-135M -o models/smol",
    .words_min = 1,
    .words_max = 1,
    .options = &output_table,
    .settings_bytes = sizeof(output_settings),
    .run = run_import,
};

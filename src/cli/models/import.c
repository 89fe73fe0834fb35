// SPDX-License-Identifier: Apache-2.0
/* import: converts a Hugging Face directory to a checkpoint. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "cli/registered.h"
#include "execution/convert/new_checkpoint.h"

#include <stdio.h>

typedef struct output_settings {
    const char *output;
} output_settings;

static const ls_option output_options[] = {LS_ROW_OUTPUT_DIR(output_settings)};

static ls_status save_import(const ls_invocation *invocation, const ls_loaded_model *model,
                             const char *output)
{
    const ls_model_file *file = model->file;
    json_t *extra = json_pack("{s:s}", "imported_from", ls_path_basename(file->path));
    const ls_new_checkpoint checkpoint = {.output = output,
                                          .file = file,
                                          .config = &file->config,
                                          .layout = &file->layout,
                                          .parameters = model->state.parameters,
                                          .extra = extra};
    const ls_status status = ls_new_checkpoint_save(invocation->arena, &checkpoint);
    json_decref(extra);
    LS_TRY(status);
    printf("%s/0: %s, %.2f million parameters%s\n", output, ls_family_name(file->config.family),
           (double)file->layout.element_count / 1e6, file->tokenizer ? ", with its tokenizer" : "");
    return LS_OK;
}

static ls_status run_import(const ls_invocation *invocation)
{
    const output_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "missing output folder: give -o DIR");
    }
    LS_TRY(ls_new_checkpoint_check(invocation->arena, settings->output));
    ls_loaded_model model;
    const ls_loaded_model_options options = {.path = invocation->words[0], .is_merged = true};
    LS_TRY(ls_loaded_model_open(&model, &options));
    const ls_status status = save_import(invocation, &model, settings->output);
    ls_loaded_model_release(&model);
    LS_TRY(status);
    const ls_survey_source source = {invocation->words[0], "parent"};
    const ls_registry_add_options made = {
        .path = settings->output, .kind = LS_ENTRY_AUTO, .sources = &source, .source_count = 1};
    ls_registered(invocation->arena, made, json_pack("{s:s}", "by", "import"));
    return LS_OK;
}

const ls_command ls_command_import = {
    .name = "import",
    LS_WORDS("HF_DIR", 1, 1),
    .summary = "convert a Hugging Face model to a checkpoint",
    .details = "HF_DIR holds config.json, the weights as safetensors (one file or several), and\n"
               "optionally a tokenizer. The checkpoint is written to DIR/0. Every command that\n"
               "takes a checkpoint takes DIR; 'model.from: DIR' in a run file starts training\n"
               "from it.\n"
               "\n"
               "Example:\n"
               "  lockstep import ~/models/SmolLM-135M -o models/smol",
    LS_SETTINGS(output_settings, output_options),
    .run = run_import,
};

// SPDX-License-Identifier: Apache-2.0
/* export: a checkpoint becomes a Hugging Face directory. */
#include "cli/command.h"
#include "cli/loaded_model.h"
#include "model/huggingface.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct output_settings {
    const char *output;
} output_settings;

static const ls_option output_options[] = {LS_ROW_OUTPUT_DIR(output_settings)};
static const ls_option_table output_table = LS_OPTIONS(output_options);

static ls_status run_export(const ls_invocation *invocation)
{
    const output_settings *settings = invocation->settings;
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "where should the model go? Give -o DIR");
    }
    ls_loaded_model model;
    LS_TRY(ls_loaded_model_init(&model, invocation->words[0], 0));
    ls_hf_file *files = NULL;
    size_t count = 0;
    ls_status status = ls_model_file_carried(model.file, invocation->arena, &files, &count);
    if (status == LS_OK) {
        status = ls_hf_export(settings->output, &model.file->config, &model.file->layout,
                              model.state.parameters, files, count);
    }
    if (status == LS_OK) {
        printf("%s: %s, %.2f million parameters, step %" PRIu64 "\n", settings->output,
               ls_family_name(model.file->config.family), (double)model.file->layout.element_count / 1e6,
               model.file->step);
    }
    ls_loaded_model_release(&model);
    return status;
}

const ls_command ls_command_export = {
    .name = "export",
    .words = "CKPT",
    .summary = "a checkpoint into a Hugging Face model directory",
    .details = "Writes model.safetensors (float32), config.json and the tokenizer, as transformers loads "
               "them. CKPT is a checkpoint or a\n"
               "run directory.",
    .words_min = 1,
    .words_max = 1,
    .options = &output_table,
    .settings_bytes = sizeof(output_settings),
    .run = run_export,
};

// SPDX-License-Identifier: Apache-2.0
#include "cli/models/loaded_model.h"

#include "base/file.h"
#include "execution/train/adapter_file.h"
#include "execution/train/memory.h"

#include <unistd.h>

/* Memory of a process in addition to the parameters: program, libraries, panels of the matrix
 * product. */
enum { PROCESS_BYTES = 16 << 20 };

void ls_loaded_model_release(ls_loaded_model *model)
{
    ls_state_release(&model->state);
    ls_model_file_close(model->file);
    ls_queue_destroy(model->queue);
}

static ls_status check_memory(const ls_model_file *file)
{
    const uint64_t needed = (uint64_t)file->layout.parameter_floats * sizeof(float) + PROCESS_BYTES;
    const uint64_t available = ls_memory_available();
    if (needed <= available) {
        return LS_OK;
    }
    char needed_text[32], available_text[32];
    return ls_fail(LS_ERR_MEMORY,
                   "%s needs %s of memory for its parameters, %s are available: use a machine with more "
                   "memory, or a smaller model",
                   file->path, ls_memory_text(needed, needed_text),
                   ls_memory_text(available, available_text));
}

/* model->file is open. */
static ls_status load_parts(ls_loaded_model *model, uint64_t threads)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    LS_TRY(check_memory(model->file));
    LS_TRY(ls_queue_create_cpu(threads ? (uint32_t)threads : cores > 0 ? (uint32_t)cores : 1, &model->queue));
    LS_TRY(ls_state_init(&model->state, model->queue, LS_F32, &model->file->layout, 0));
    return ls_model_file_load(model->file, &model->file->layout, model->state.parameters);
}

/* Adds the checkpoint before a damaged one to the error. */
static ls_status name_older(const ls_model_file *file, ls_status status)
{
    ls_arena arena = {0};
    ls_checkpoint_latest older = {0};
    const char *problem = ls_arena_strdup(&arena, ls_error_text());
    const char *root = ls_path_dirname(&arena, ls_path_trim(&arena, file->path));
    if (ls_checkpoint_find_latest(&arena, root, NULL, file->step, &older) == LS_OK && older.checkpoint) {
        (void)ls_fail(status, "%s. An older checkpoint is there: %s; 'lockstep checkpoint verify' tests it",
                      problem, older.checkpoint->path);
    } else {
        (void)ls_fail(status, "%s", problem);
    }
    ls_checkpoint_close(older.checkpoint);
    ls_arena_release(&arena);
    return status;
}

static ls_status finish_init(ls_loaded_model *model, uint64_t threads)
{
    ls_status status = load_parts(model, threads);
    if (status == LS_ERR_DATA && model->file->checkpoint) {
        status = name_older(model->file, status);
    }
    if (status != LS_OK) {
        ls_loaded_model_release(model);
        *model = (ls_loaded_model){0};
    }
    return status;
}

ls_model_on_device ls_loaded_model_on_device(const ls_loaded_model *model)
{
    return (ls_model_on_device){.queue = model->queue,
                                .config = &model->file->config,
                                .layout = &model->file->layout,
                                .type = LS_F32,
                                .weights = ls_state_weights(&model->state)};
}

static ls_status open_file(ls_loaded_model *model, const ls_loaded_model_options *options)
{
    LS_TRY((options->is_bare ? ls_model_file_open_bare : ls_model_file_open)(options->path, &model->file));
    if (options->adapter && options->adapter[0]) {
        ls_adapter_file *adapter = NULL;
        LS_TRY(ls_adapter_file_open(options->adapter, &adapter));
        LS_TRY(ls_model_file_take_adapter(model->file, adapter));
    }
    if (options->is_merged && model->file->adapter) {
        ls_model_file_merge(model->file, options->into_original);
    }
    return LS_OK;
}

ls_status ls_loaded_model_open(ls_loaded_model *model, const ls_loaded_model_options *options)
{
    *model = (ls_loaded_model){0};
    const ls_status status = open_file(model, options);
    if (status != LS_OK) {
        ls_loaded_model_release(model);
        *model = (ls_loaded_model){0};
        return status;
    }
    return finish_init(model, options->threads);
}

ls_status ls_loaded_model_choose_tokenizer(ls_loaded_model *model, const char *name)
{
    ls_tokenizer *tokenizer = NULL;
    if (name[0]) {
        LS_TRY(ls_tokenizer_open(name, &tokenizer));
        ls_tokenizer_destroy(model->file->tokenizer);
        model->file->tokenizer = tokenizer;
    }
    if (!model->file->tokenizer) {
        return ls_fail(LS_ERR_INVALID, "%s has no tokenizer: name one with --tokenizer FILE",
                       model->file->path);
    }
    return LS_OK;
}

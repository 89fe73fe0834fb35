// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/new_checkpoint.h"

#include "base/file.h"
#include "storage/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

ls_status ls_new_checkpoint_check(ls_arena *arena, const char *output)
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

static ls_status attachments_of(ls_arena *arena, const ls_new_checkpoint *c,
                                ls_checkpoint_attachment **attachments_out, size_t *count_out)
{
    ls_hf_file *files = NULL;
    char *text = NULL;
    size_t count = 0;
    LS_TRY(ls_model_file_carried(c->file, arena, &files, &count));
    LS_TRY(ls_model_file_config_text(c->config, LS_ST_F32, &text));
    ls_checkpoint_attachment *attachments = ls_arena_new(arena, ls_checkpoint_attachment, count + 1);
    for (size_t i = 0; i < count; i++) {
        attachments[i] = (ls_checkpoint_attachment){files[i].name, files[i].data, files[i].bytes};
    }
    attachments[count] =
        (ls_checkpoint_attachment){"config.json", ls_arena_strdup(arena, text), strlen(text)};
    free(text);
    *attachments_out = attachments;
    *count_out = count + 1;
    return LS_OK;
}

ls_status ls_new_checkpoint_save(ls_arena *arena, const ls_new_checkpoint *c)
{
    ls_queue *queue = NULL;
    ls_checkpoint_attachment *attachments = NULL;
    size_t count = 0;
    LS_TRY(attachments_of(arena, c, &attachments, &count));
    LS_TRY(ls_dir_create(ls_path_dirname(arena, c->output)));
    LS_TRY(ls_queue_create_cpu(1, &queue));
    const ls_checkpoint_meta meta = {
        .leaves = 1, .identity = "", .determinism = ls_queue_determinism_class(queue), .extra = c->extra};
    const ls_state state = {.layout = c->layout, .parameters = c->parameters};
    const ls_checkpoint_save_options options = {
        .root = c->output,
        .meta = &meta,
        .tensors = ls_state_tensors(arena, &state, NULL),
        .tensor_count = c->layout->parameter_count,
        .attachments = attachments,
        .attachment_count = count,
    };
    const ls_status status = ls_checkpoint_save(&options, NULL);
    ls_queue_destroy(queue);
    return status;
}

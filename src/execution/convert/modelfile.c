// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/modelfile.h"

#include "base/file.h"
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

enum { MODELFILE_BYTES_MAX = 1 << 20 };

/* What every Modelfile of ours begins with, up to the name of the GGUF file. */
static const char HEAD[] =
    "# Written by lockstep export. To use it: ollama create NAME -f Modelfile\nFROM ./";

static void add_settings(ls_text *out, const json_t *settings)
{
    static const struct {
        const char *ours, *theirs;
    } keys[] = {{"temperature", "temperature"},
                {"top_k", "top_k"},
                {"top_p", "top_p"},
                {"min_p", "min_p"},
                {"repetition_penalty", "repeat_penalty"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = json_object_get(settings, keys[i].ours);
        if (json_is_number(value)) {
            ls_text_printf(out, "PARAMETER %s ", keys[i].theirs);
            ls_text_append_f64(out, json_number_value(value));
            ls_text_append(out, "\n");
        }
    }
}

static ls_status add_generation(ls_text *out, const ls_gguf_export_options *o)
{
    for (size_t i = 0; i < o->file_count; i++) {
        const ls_hf_file *file = &o->files[i];
        if (strcmp(file->name, "generation_config.json") == 0) {
            json_t *root = NULL;
            LS_TRY(ls_json_parse(file->data, file->bytes, file->name, &root));
            add_settings(out, root);
            json_decref(root);
        }
    }
    return LS_OK;
}

static void add_stops(ls_text *out, const ls_gguf_export_options *o)
{
    const ls_tokenizer *tokenizer = o->file->tokenizer;
    int32_t ids[LS_MODEL_STOPS_MAX];
    const size_t count = ls_model_stops(&o->file->config, tokenizer, ids);
    for (size_t i = 0; i < count; i++) {
        const char *text = ls_tokenizer_piece(tokenizer, ids[i]);
        if (text && !strpbrk(text, "\"\n")) {
            ls_text_printf(out, "PARAMETER stop \"%s\"\n", text);
        }
    }
}

/* The model that the Modelfile at `path` is for, as its line FROM names it; NULL: no Modelfile.
 * is_ours: the file was written here, not by hand. */
static ls_status read_from(ls_arena *arena, const char *path, bool *is_ours_out, const char **from_out)
{
    char *text = "";
    size_t bytes = 0;
    *from_out = NULL;
    *is_ours_out = true;
    if (ls_path_exists(path)) {
        LS_TRY(ls_file_read(arena, path, MODELFILE_BYTES_MAX, &text, &bytes));
        *is_ours_out = strncmp(text, HEAD, sizeof HEAD - 1) == 0;
        const char *from = strncmp(text, "FROM ", 5) == 0 ? text : strstr(text, "\nFROM ");
        from += from ? strcspn(from, " ") + 1 : 0;
        *from_out = from ? ls_arena_strndup(arena, from, strcspn(from, "\r\n")) : "no model";
    }
    return LS_OK;
}

ls_status ls_modelfile_write(const ls_gguf_export_options *options, ls_gguf_notes *notes)
{
    ls_arena *arena = notes->arena;
    const char *path = ls_path_join(arena, ls_path_dirname(arena, options->path), "Modelfile");
    const char *name = ls_path_basename(options->path);
    const char *from = NULL;
    bool is_ours = true;
    LS_TRY(read_from(arena, path, &is_ours, &from));
    const bool is_same = !from || (is_ours && strcmp(from, ls_arena_printf(arena, "./%s", name)) == 0);
    if (!is_same && !options->replace) {
        ls_gguf_note(notes, "%s was there before, for %s, and is left as it is", path, from);
        return LS_OK;
    }
    ls_text text = {0};
    ls_gguf_notes told = {.arena = arena}; /* by the export */
    ls_text_printf(&text, "%s%s\nPARAMETER num_ctx %" PRId64 "\n", HEAD, name,
                   ls_gguf_context(&options->file->config, &told));
    ls_status status = add_generation(&text, options);
    add_stops(&text, options);
    if (status == LS_OK) {
        status = ls_file_write_atomic(path, text.data, text.bytes);
    }
    ls_text_release(&text);
    if (status == LS_OK) {
        ls_gguf_note(notes, "%s: for ollama", path);
    }
    return status;
}

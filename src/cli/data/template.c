// SPDX-License-Identifier: Apache-2.0
/* template: renders a chat template. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/foreign_text.h"
#include "execution/train/model_file.h"
#include "tokenizer/template/chat_template.h"
#include "tokenizer/template/template_source.h"

#include <stdio.h>
#include <string.h>

enum { INPUT_BYTES_MAX = 256 << 20 };

typedef struct template_settings {
    const char *input, *name;
} template_settings;

/* ---- the template ---- */

/* The newest checkpoint of a run directory, or the checkpoint itself: a folder with its files. */
static ls_status find_in_model(ls_arena *arena, const char *path, const char *name,
                               ls_template_source *source)
{
    ls_model_file *model = NULL;
    LS_TRY(ls_model_file_open_bare(path, &model));
    const ls_status status =
        ls_template_source_find(arena, ls_arena_strdup(arena, model->path), name, source);
    ls_model_file_close(model);
    return status;
}

static ls_status find_source(const ls_invocation *invocation, ls_template_source *source)
{
    const template_settings *settings = invocation->settings;
    const char *path = invocation->words[0], *name = settings->name[0] ? settings->name : NULL;
    const char *jinja = ls_path_join(invocation->arena, path, "chat_template.jinja");
    const char *config = ls_path_join(invocation->arena, path, "tokenizer_config.json");
    if (ls_path_is_dir(path) && !ls_path_exists(jinja) && !ls_path_exists(config)) {
        LS_TRY(find_in_model(invocation->arena, path, name, source));
    } else {
        LS_TRY(ls_template_source_find(invocation->arena, path, name, source));
    }
    if (source->text) {
        return LS_OK;
    }
    json_decref(source->tokens);
    return ls_fail(
        LS_ERR_DATA,
        "%s has no chat template: a chat_template.jinja, or a tokenizer_config.json with chat_template "
        "(with --name if it is a list without the name default)",
        path);
}

/* ---- the input ---- */

/* Not ls_json_load: text may have zero bytes, and whole numbers must be exact, since they are
 * printed. */
static ls_status parse_input(const char *text, size_t bytes, const char *name, json_t **input_out)
{
    json_error_t error;
    *input_out = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    return *input_out
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s:%d: not valid JSON, or a number that is too large: %s (column %d)",
                         name, error.line, error.text, error.column);
}

static ls_status read_input(const ls_invocation *invocation, json_t **input_out)
{
    const char *path = ((const template_settings *)invocation->settings)->input;
    if (strcmp(path, "-") != 0) {
        char *content = NULL;
        size_t bytes = 0;
        LS_TRY(ls_file_read(invocation->arena, path, INPUT_BYTES_MAX, &content, &bytes));
        return parse_input(content, bytes, path, input_out);
    }
    ls_text text = {0};
    char block[65536];
    size_t got;
    while (text.bytes <= INPUT_BYTES_MAX && (got = fread(block, 1, sizeof block, stdin)) > 0) {
        ls_text_append_bytes(&text, block, got);
    }
    const ls_status status =
        text.bytes > INPUT_BYTES_MAX
            ? ls_fail(LS_ERR_DATA, "standard input is longer than 256 MiB")
            : parse_input(ls_text_string(&text), text.bytes, "standard input", input_out);
    ls_text_release(&text);
    return status;
}

static ls_status render(const ls_template_source *source, json_t *input)
{
    ls_chat_template *template = NULL;
    ls_text text = {0};
    if (!json_is_object(input)) {
        return ls_fail(LS_ERR_DATA, "the input must be one JSON object with messages, not a list or a value");
    }
    json_object_update_missing(input, source->tokens);
    LS_TRY(ls_chat_template_open(source->text, source->bytes, source->where, &template));
    const ls_status status = ls_chat_template_render(template, input, &text);
    if (status == LS_OK) {
        ls_foreign_text shown = ls_foreign_text_begin();
        (void)ls_foreign_text_write(&shown, ls_text_string(&text), text.bytes);
        ls_foreign_text_end(&shown);
    }
    ls_text_release(&text);
    ls_chat_template_close(template);
    return status;
}

static ls_status run_template(const ls_invocation *invocation)
{
    ls_template_source source = {0};
    json_t *input = NULL;
    if (!((const template_settings *)invocation->settings)->input[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "--input is missing: name a JSON file with messages, or - for standard input");
    }
    LS_TRY(find_source(invocation, &source));
    ls_status status = read_input(invocation, &input);
    if (status == LS_OK) {
        status = render(&source, input);
    }
    json_decref(input);
    json_decref(source.tokens);
    return status;
}

static const ls_option template_options[] = {
    LS_ROW_TEXT(template_settings, input, "FILE",
                "JSON file with one object: messages and, where the template reads them, tools, "
                "add_generation_prompt, bos_token, eos_token and others; - for standard input"),
    LS_ROW_TEXT(template_settings, name, NULL,
                "name of the template to use, for a model with several; without it: the one named default"),
};

const ls_command ls_command_template = {
    .name = "template",
    LS_WORDS("FILE|DIR", 1, 1),
    .summary = "render a chat template",
    .details = "Prints the text that a model sees for a conversation, and nothing else. FILE is a\n"
               "template (.jinja) or a tokenizer_config.json; DIR is a Hugging Face directory, a\n"
               "checkpoint or a run directory. The special tokens of a DIR are added to the input\n"
               "unless it has its own. template_date in the input (\"2026-01-15\") is the day that\n"
               "templates with a date see; without it, that is today.\n"
               "\n"
               "The exit code is 3, with the template's own message, when the template refuses the\n"
               "conversation.\n"
               "\n"
               "Examples:\n"
               "  lockstep template models/mine --input conversation.json\n"
               "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n"
               "    lockstep template chat_template.jinja --input -",
    LS_SETTINGS(template_settings, template_options),
    .run = run_template,
};

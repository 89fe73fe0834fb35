// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/chat_prompt.h"

#include "tokenizer/template/chat_template.h"

#include <stdlib.h>

struct ls_chat_prompt {
    ls_chat_template *template;
    json_t *variables; /* the same for all prompts */
};

ls_status ls_chat_prompt_open(const ls_template_source *source, const char *date, ls_chat_prompt **prompt_out)
{
    ls_chat_prompt *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a chat template");
    }
    p->variables = source->tokens ? json_copy(source->tokens) : json_object();
    json_object_set_new(p->variables, "add_generation_prompt", json_true());
    if (date[0]) {
        json_object_set_new(p->variables, "template_date", json_string(date));
    }
    const ls_status status = ls_chat_template_open(source->text, source->bytes, source->where, &p->template);
    if (status != LS_OK) {
        ls_chat_prompt_close(p);
        return status;
    }
    *prompt_out = p;
    return LS_OK;
}

void ls_chat_prompt_close(ls_chat_prompt *prompt)
{
    if (prompt) {
        ls_chat_template_close(prompt->template);
        json_decref(prompt->variables);
        free(prompt);
    }
}

static ls_status make(void *context, ls_arena *arena, json_t *record, json_t *prompt, const char **text_out)
{
    const ls_chat_prompt *p = context;
    json_t *messages = json_is_string(prompt) ? json_pack("[{s:s, s:O}]", "role", "user", "content", prompt)
                                              : json_incref(prompt);
    json_t *variables = json_copy(p->variables);
    json_object_set_new(variables, "messages", messages);
    json_t *tools = json_object_get(record, "tools"), *documents = json_object_get(record, "documents");
    json_t *further = json_object_get(record, "chat_template_kwargs");
    const bool has_tools = tools && !(json_is_array(tools) && json_array_size(tools) == 0);
    json_object_set(variables, "tools", has_tools ? tools : json_null());
    json_object_set(variables, "documents", json_is_array(documents) ? documents : json_null());
    if (json_is_object(further)) {
        json_object_update(variables, further);
    }
    ls_text text = {0};
    const ls_status status = ls_chat_template_render(p->template, variables, &text);
    if (status == LS_OK) {
        *text_out = ls_arena_strdup(arena, ls_text_string(&text));
    }
    ls_text_release(&text);
    json_decref(variables);
    return status;
}

ls_prompt_maker ls_chat_prompt_maker(ls_chat_prompt *prompt)
{
    return (ls_prompt_maker){make, prompt};
}

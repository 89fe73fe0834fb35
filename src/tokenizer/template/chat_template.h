// SPDX-License-Identifier: Apache-2.0
/*
 * Chat templates: the text of a conversation, as a model was trained to see it.
 *
 * A template is a program in the part of Jinja2 (3.1) that transformers opens to chat templates:
 * sandboxed and immutable, with trim_blocks, lstrip_blocks, break and continue, {% generation %},
 * raise_exception, strftime_now and transformers' own tojson. This is an interpreter of it, with
 * Python's meaning of values, operators, scopes and printed forms. It prints the same bytes, and
 * refuses where Jinja2 refuses. What it does not have (include, import, extends, block, a few
 * filters and methods, whole numbers beyond 64 bits) is LS_ERR_UNSUPPORTED, named with its line;
 * docs/finetuning.md has the list.
 *
 * A template can read its variables and nothing else of the program or the machine, except the date
 * (strftime_now). Every rendering is bounded: LS_CHAT_STEPS_MAX steps (a node of the program, or
 * 64 bytes of text looked through), LS_CHAT_MEMORY_MAX bytes of values and text, LS_CHAT_DEPTH_MAX
 * levels of expressions, macros and data inside each other, and Jinja's own 100,000 items of
 * range(). Beyond is LS_ERR_DATA.
 *
 * Thread-safety: any number of threads may render one template at the same time.
 */
#ifndef LS_TOKENIZER_TEMPLATE_CHAT_TEMPLATE_H
#define LS_TOKENIZER_TEMPLATE_CHAT_TEMPLATE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

enum {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* instrumented steps are a hundred times as slow */
    LS_CHAT_STEPS_MAX = 200000,
#else
    LS_CHAT_STEPS_MAX = 20000000,
#endif
    LS_CHAT_MEMORY_MAX = 512 << 20,
    LS_CHAT_DEPTH_MAX = 400,
    LS_CHAT_SOURCE_MAX = 4 << 20,
};

typedef struct ls_chat_template ls_chat_template;

/*
 * Compiles `bytes` of template source. `name` (a path, or where it was found) begins the messages.
 * Errors: LS_ERR_DATA (not UTF-8, longer than LS_CHAT_SOURCE_MAX, not a template: named with the
 * line), LS_ERR_UNSUPPORTED.
 */
LS_MUST_CHECK ls_status ls_chat_template_open(const char *source, size_t bytes, const char *name,
                                              ls_chat_template **template_out);
/* NULL is fine. */
void ls_chat_template_close(ls_chat_template *template);

/*
 * Renders. `variables` is one object: messages, tools, documents, add_generation_prompt, bos_token,
 * eos_token and whatever else the template reads; a variable that is missing is undefined, as in
 * Jinja2. `template_date` ("2026-01-15") is the day that strftime_now sees, at 12:00:00; without
 * it, that is the time of now, here.
 *
 * text_out: its content is replaced; untouched on error. Errors: LS_ERR_DATA when the template
 * refuses (the message is the template's own) or a limit is met, LS_ERR_UNSUPPORTED,
 * LS_ERR_INVALID for a template_date that is not a date.
 */
LS_MUST_CHECK ls_status ls_chat_template_render(const ls_chat_template *template, const json_t *variables,
                                                ls_text *text_out);

#endif

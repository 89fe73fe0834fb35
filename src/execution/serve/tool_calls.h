// SPDX-License-Identifier: Apache-2.0
/*
 * Tool calls: what an answer says in one of the forms in which models write calls of tools.
 *
 *   <tool_call>{"name": ..., "arguments": {...}}</tool_call>    Hermes, Qwen; one or several
 *   {"name": ..., "parameters": {...}}                          Llama 3; the whole answer
 *   [{"name": ..., "arguments": {...}}, ...]                    Mistral; the whole answer
 *
 * Pure.
 */
#ifndef LS_EXECUTION_SERVE_TOOL_CALLS_H
#define LS_EXECUTION_SERVE_TOOL_CALLS_H

#include "base/json.h"

#include <stddef.h>

/*
 * The calls as a list in OpenAI's form, without ids: `type`, `function` with `name` and
 * `arguments`, a text of JSON. NULL when the text is in none of the forms, or a name is none of
 * those in `tools`, a list as requests have it. content_bytes_out: of the text before the first
 * call.
 */
json_t *ls_tool_calls_find(const json_t *tools, const char *text, size_t bytes, size_t *content_bytes_out);

#endif

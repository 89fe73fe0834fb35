// SPDX-License-Identifier: Apache-2.0
/*
 * Records of training data: what one JSON object says, whichever program wrote it.
 *
 *   text          {"text": "..."}: a document, every token of which is trained
 *   prompt        {"prompt": "...", "completion": "..."}: joined as they are
 *   prompt lists  the same with lists of messages: a conversation
 *   question      {"question": "...", "answer": "..."}: a conversation of two turns
 *   alpaca        {"instruction": "...", "input": "...", "output": "..."}: the same; `instances`, a
 *                 list of input and output, gives a conversation for each
 *   messages      {"messages": [{"role": "user", "content": "..."}, ...], "tools": [...]}: OpenAI's
 *   sharegpt      {"conversations": [{"from": "human", "value": "..."}, ...], "system": "..."}
 *
 * A table (CSV, TSV) is a record of strings for each row. Errors say what is wrong with the record,
 * not where it is; the caller adds file and line (ls_fail_within).
 *
 * Pure and thread-safe for separate records.
 */
#ifndef LS_DATA_CONVERSATION_CONVERSATION_H
#define LS_DATA_CONVERSATION_CONVERSATION_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum ls_record_form {
    LS_RECORD_TEXT,
    LS_RECORD_PROMPT,
    LS_RECORD_PROMPT_LISTS,
    LS_RECORD_QUESTION,
    LS_RECORD_ALPACA,
    LS_RECORD_MESSAGES,
    LS_RECORD_SHAREGPT,
    LS_RECORD_FORMS,
} ls_record_form;

/* data.format of the run file: which forms are looked for. */
typedef enum ls_record_format {
    LS_FORMAT_AUTO,
    LS_FORMAT_TEXT,
    LS_FORMAT_PROMPT_COMPLETION,
    LS_FORMAT_MESSAGES,
} ls_record_format;

typedef struct ls_form_keys {
    ls_record_format format;
    /* The key of a document; never NULL. */
    const char *text;
    /* The keys of a question and its answer, in addition to `question` and `answer`; both or
     * neither. NULL or "": none. */
    const char *prompt, *completion;
} ls_form_keys;

/* "text", "prompt and completion", "OpenAI messages", ... for people. */
const char *ls_record_form_name(ls_record_form form);
/* "text", "prompt_completion" or "messages": the word of data.format that covers the form. */
const char *ls_record_format_name(ls_record_form form);

/* The form of a record. Errors: LS_ERR_DATA if it has none of the forms that keys->format allows,
 * naming its keys, or two of them. */
LS_MUST_CHECK ls_status ls_record_form_of(const json_t *record, const ls_form_keys *keys,
                                          ls_record_form *form_out);

/* What a record says. Release with ls_conversation_release. */
typedef struct ls_conversation {
    /* LS_RECORD_PROMPT only: strings of the record. */
    const char *prompt, *completion;
    /* Otherwise: a list of conversations, each a list of messages in OpenAI's form: role, content
     * (a string), and what else the record gives them. Arguments of tool calls are objects. */
    json_t *conversations;
    /* The record's tools, or NULL. */
    json_t *tools;
    /* Further variables of the template (`chat_template_kwargs`, `documents`), or NULL. Borrowed.
     * */
    const json_t *variables, *documents;
} ls_conversation;

/*
 * Reads a record of a form that is not text. The record is changed, and must outlive the result.
 * Errors: LS_ERR_DATA: a message without a role or content, a role that no template knows, content
 * that is not text, an empty answer, no answer at all, only a system turn.
 */
LS_MUST_CHECK ls_status ls_conversation_read(json_t *record, const ls_form_keys *keys, ls_record_form form,
                                             ls_conversation *conversation_out);
void ls_conversation_release(ls_conversation *conversation);

/* Reads only what a record gives its template besides messages: tools, variables, documents. They
 * are the record's. Errors: LS_ERR_DATA for a value of another type. */
LS_MUST_CHECK ls_status ls_conversation_read_given(json_t *record, ls_conversation *conversation);

/* Appends the keys of an object for an error text, the first eight of them; "none". */
void ls_record_keys(const json_t *record, ls_text *text);

/* True for a message of the assistant. */
bool ls_message_is_answer(const json_t *message);

/*
 * Brings a message of OpenAI's form, whatever its role, into the form that templates get, for
 * training and for answering alike: content is a string (parts of text are joined, null is ""),
 * arguments of tool calls are what their JSON says, and a list of no tool calls is left out.
 * Errors: LS_ERR_DATA: no content where there are no tool calls either, content that is not text, a
 * tool call without a name.
 */
LS_MUST_CHECK ls_status ls_message_complete(json_t *message);

#endif

// SPDX-License-Identifier: Apache-2.0
#include "data/conversation/recipe.h"

#include "tokenizer/template/chat_template.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { STOPS_MAX = 32 };

struct ls_recipe {
    ls_form_keys keys;
    ls_loss_on loss_on;
    bool skip_bad;
    const ls_tokenizer *tokenizer;
    ls_chat_template *template;
    /* Why the template can't be used; it matters only to records that need it. */
    ls_status template_status;
    char *template_error;
    /* What every rendering has: special tokens and the date. */
    json_t *variables;
    int32_t stops[STOPS_MAX + 1];
    size_t stop_count;
    int32_t turn_end;
    /* What ends an answer, if the template writes it only before the next message; else NULL. Owned
     * by the tokenizer. */
    const char *end_text;
    /* What the tokenizer puts before a text; -1: nothing. */
    int32_t bos;
    char hash[LS_SHA256_HEX_BYTES];
};

/* The work on one conversation. */
typedef struct work {
    const ls_recipe *recipe;
    ls_tokenizer_scratch *scratch;
    const ls_conversation *from;
    const json_t *messages;
    /* Messages up to the last answer. */
    size_t message_count;
    ls_samples *samples;
    /* The whole conversation; the prompt of a turn; the turn. */
    ls_text whole, prompt, turn;
    ls_token_buffer ids, prefix;
} work;

/* Part of a text that is trained. */
typedef struct span {
    size_t message, begin, end;
} span;

/* ---- tokens ---------------------------------------------------------------------------------- */

static ls_status append_ids(ls_token_buffer *to, const int32_t *ids, size_t count)
{
    LS_TRY(ls_token_buffer_reserve(to, count));
    if (count > 0) {
        memcpy(to->ids + to->count, ids, count * sizeof *ids);
    }
    to->count += count;
    return LS_OK;
}

static ls_status encode(const work *w, const char *text, size_t bytes, ls_token_buffer *ids)
{
    ids->count = 0;
    return ls_tokenizer_encode_marked(w->recipe->tokenizer, w->scratch, text, bytes, ids);
}

static bool is_prefix(const ls_token_buffer *prefix, const ls_token_buffer *ids)
{
    return prefix->count <= ids->count &&
           (prefix->count == 0 || memcmp(prefix->ids, ids->ids, prefix->count * sizeof *ids->ids) == 0);
}

static void mark(ls_token_buffer *ids, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        ids->ids[i] |= LS_TOKEN_TRAINED;
    }
}

static bool is_stop(const ls_recipe *r, int32_t id)
{
    for (size_t i = 0; i < r->stop_count; i++) {
        if (r->stops[i] == id) {
            return true;
        }
    }
    return false;
}

bool ls_recipe_is_end(const ls_recipe *recipe, int32_t id)
{
    return is_stop(recipe, id) || id == ls_tokenizer_eos(recipe->tokenizer);
}

/* What a token prints: nothing if it is special, a blank if white space. */
typedef enum token_kind { TOKEN_SPECIAL, TOKEN_BLANK, TOKEN_TEXT } token_kind;

static token_kind kind_of(const ls_tokenizer *tokenizer, int32_t id)
{
    /* A token in front keeps the space of the token behind it. */
    const int32_t pair[2] = {id, id};
    ls_text_buffer text = {0};
    token_kind kind = TOKEN_TEXT;
    if (ls_tokenizer_decode(tokenizer, pair, 2, true, &text) == LS_OK) {
        size_t blanks = 0;
        while (blanks < text.bytes && isspace((unsigned char)text.data[blanks])) {
            blanks++;
        }
        kind = text.bytes == 0 ? TOKEN_SPECIAL : blanks == text.bytes ? TOKEN_BLANK : TOKEN_TEXT;
    }
    ls_text_buffer_release(&text);
    return kind;
}

/* Whether an answer's last token, but for white space and special tokens after it, ends a text. */
static bool ends_with_stop(const ls_recipe *r, const int32_t *ids, size_t count)
{
    while (count > 0) {
        const int32_t id = ids[--count];
        if (is_stop(r, id)) {
            return true;
        }
        if (kind_of(r->tokenizer, id) == TOKEN_TEXT) {
            return false;
        }
    }
    return false;
}

/* The last special token of an answer that has nothing but white space after it; -1: none. */
static int32_t last_special(const ls_tokenizer *tokenizer, const int32_t *ids, size_t count)
{
    while (count > 0) {
        const int32_t id = ids[--count];
        const token_kind kind = kind_of(tokenizer, id);
        if (kind != TOKEN_BLANK) {
            return kind == TOKEN_SPECIAL ? id : -1;
        }
    }
    return -1;
}

static ls_status fail_without_stop(const work *w, const span *s, const char *text)
{
    enum { SHOWN = 24 };
    ls_text tail = {0};
    size_t begin = s->end - s->begin > SHOWN ? s->end - SHOWN : s->begin;
    while (begin < s->end && ((unsigned char)text[begin] & 0xc0) == 0x80) {
        begin++;
    }
    ls_text_append_printable(&tail, text + begin, s->end - begin, "");
    const ls_status status = ls_fail(
        LS_ERR_DATA,
        "message %zu: the answer ends in \"%s\" without a token that ends a text, so the model would never "
        "learn to stop: the template must end an answer with one of the tokenizer's special tokens%s",
        s->message + 1, ls_text_string(&tail), w->recipe->stop_count ? "" : ", and this tokenizer has none");
    ls_text_release(&tail);
    return status;
}

static ls_status fail_empty_answer(size_t message)
{
    return ls_fail(
        LS_ERR_DATA,
        "message %zu is an answer (role assistant), but the chat template writes nothing for it: use "
        "another template (data.template), or remove the record",
        message + 1);
}

static ls_status check_stop(const work *w, const span *s, const char *text, const int32_t *ids, size_t count)
{
    if (count == 0) {
        return fail_empty_answer(s->message);
    }
    return ends_with_stop(w->recipe, ids, count) ? LS_OK : fail_without_stop(w, s, text);
}

/* ---- rendering ------------------------------------------------------------------------------- */

ls_status ls_recipe_render(const ls_recipe *recipe, const ls_conversation *from, const json_t *messages,
                           size_t count, bool with_prompt, ls_text *text_out)
{
    json_t *variables = json_copy(recipe->variables), *first = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append(first, json_array_get(messages, i));
    }
    json_object_set_new(variables, "add_generation_prompt", json_boolean(with_prompt));
    json_object_set(variables, "tools", from->tools ? from->tools : json_null());
    json_object_set(variables, "documents",
                    from->documents ? (json_t *)(uintptr_t)from->documents : json_null());
    json_object_update(variables, (json_t *)(uintptr_t)from->variables);
    json_object_set_new(variables, "messages", first);
    const ls_status status = ls_chat_template_render(recipe->template, variables, text_out);
    json_decref(variables);
    return status;
}

ls_status ls_recipe_prompt(const ls_recipe *recipe, const ls_conversation *from, const json_t *messages,
                           ls_token_buffer *ids)
{
    ls_text text = {0};
    ls_status status = ls_recipe_render(recipe, from, messages, json_array_size(messages), true, &text);
    if (status == LS_OK) {
        /* The template has written all special tokens itself. */
        status = ls_tokenizer_encode_marked(recipe->tokenizer, NULL, ls_text_string(&text), text.bytes, ids);
    }
    ls_text_release(&text);
    return status;
}

static ls_status render(const work *w, size_t count, bool with_prompt, ls_text *text_out)
{
    return ls_recipe_render(w->recipe, w->from, w->messages, count, with_prompt, text_out);
}

/* Renders messages whose last one is an answer, with its end. */
static ls_status render_answer(const work *w, size_t count, ls_text *text_out)
{
    LS_TRY(render(w, count, false, text_out));
    if (w->recipe->end_text) {
        ls_text_append(text_out, w->recipe->end_text);
    }
    return LS_OK;
}

static bool begins(const ls_text *text, const ls_text *prefix, size_t bytes)
{
    return bytes <= text->bytes && (bytes == 0 || memcmp(text->data, prefix->data, bytes) == 0);
}

static void skip_blanks(const ls_text *text, size_t *at)
{
    while (*at < text->bytes && isspace((unsigned char)text->data[*at])) {
        ++*at;
    }
}

/* Where the text goes on after the prompt, if they agree but for white space. */
static bool find_loosely(const ls_text *text, const ls_text *prompt, size_t *end_out)
{
    size_t at = 0, from = 0;
    for (;;) {
        skip_blanks(text, &at);
        skip_blanks(prompt, &from);
        if (from == prompt->bytes) {
            *end_out = at;
            return true;
        }
        if (at == text->bytes || text->data[at++] != prompt->data[from++]) {
            return false;
        }
    }
}

static ls_status fail_prompt(const work *w, size_t message)
{
    enum { SHOWN = 40 };
    size_t same = 0;
    while (same < w->prompt.bytes && same < w->turn.bytes && w->prompt.data[same] == w->turn.data[same]) {
        same++;
    }
    while (same > 0 && ((unsigned char)w->prompt.data[same] & 0xc0) == 0x80) {
        same--;
    }
    const size_t asked = w->prompt.bytes - same, trained = w->turn.bytes - same;
    ls_text a = {0}, b = {0};
    ls_text_append_printable(&a, w->prompt.data + same, asked < SHOWN ? asked : SHOWN, "");
    ls_text_append_printable(&b, w->turn.data + same, trained < SHOWN ? trained : SHOWN, "");
    const ls_status status = ls_fail(
        LS_ERR_DATA,
        "message %zu: the template ends a prompt with \"%s\", but has \"%s\" in that place when it writes "
        "the answer too, so the model would be asked in a form that it was not trained on; use a template "
        "that writes both alike (data.template)",
        message + 1, ls_text_string(&a), ls_text_string(&b));
    ls_text_release(&a);
    ls_text_release(&b);
    return status;
}

/* A template that does not know tools drops them without a word. */
static ls_status check_calls(const work *w, const span *s)
{
    size_t i;
    const json_t *call, *message = json_array_get(w->messages, s->message);
    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
    {
        const json_t *function = json_object_get(call, "function");
        const char *name = json_string_value(json_object_get(function ? function : call, "name"));
        if (name && !strstr(w->turn.data + s->begin, name)) {
            return ls_fail(LS_ERR_DATA,
                           "message %zu: the answer calls the tool `%.60s`, but the template does not write "
                           "tool calls: use one that does (data.template), or remove the record",
                           s->message + 1, name);
        }
    }
    return LS_OK;
}

/* Renders the prompt and the turn of an answer, and finds the answer in the turn. */
static ls_status render_turn(work *w, size_t message, span *span_out)
{
    const ls_status status = render(w, message, true, &w->prompt);
    if (status == LS_ERR_DATA && message == 0) {
        return ls_fail_within(status, "the conversation begins with an answer, for which the template "
                                      "writes no prompt: remove that message");
    }
    LS_TRY(status);
    LS_TRY(render_answer(w, message + 1, &w->turn));
    span s = {.message = message, .begin = w->prompt.bytes, .end = w->turn.bytes};
    if (!begins(&w->turn, &w->prompt, w->prompt.bytes)) {
        if (!find_loosely(&w->turn, &w->prompt, &s.begin)) {
            return fail_prompt(w, message);
        }
        w->samples->is_loose = true;
    }
    if (s.begin == s.end) {
        return fail_empty_answer(message);
    }
    LS_TRY(check_calls(w, &s));
    *span_out = s;
    return LS_OK;
}

/* ---- one conversation ------------------------------------------------------------------------ */

/* Whether the answer of a message is trained. */
static bool is_trained(const work *w, size_t message)
{
    const json_t *m = json_array_get(w->messages, message), *weight = json_object_get(m, "weight");
    if (!ls_message_is_answer(m) || (json_is_number(weight) && json_number_value(weight) == 0.0)) {
        return false;
    }
    return w->recipe->loss_on != LS_LOSS_ON_LAST || message + 1 == w->message_count;
}

/* The number of tokens of the first `bytes` of a text, if they begin those of the whole text. */
static ls_status count_before(work *w, const char *text, size_t bytes, size_t *count_out, bool *is_out)
{
    LS_TRY(encode(w, text, bytes, &w->prefix));
    *count_out = w->prefix.count;
    *is_out = is_prefix(&w->prefix, &w->ids);
    return LS_OK;
}

/* Tries to make one sample of the whole conversation. */
static ls_status make_whole(work *w, const span *spans, size_t count, bool *done_out)
{
    LS_TRY(encode(w, w->whole.data, w->whole.bytes, &w->ids));
    size_t begin = 0, end = 0;
    bool is_exact = true;
    const size_t before = w->samples->ids.count;
    LS_TRY(append_ids(&w->samples->ids, w->ids.ids, w->ids.count));
    ls_token_buffer made = w->samples->ids;
    made.ids += before;
    for (size_t i = 0; i < count && is_exact; i++) {
        LS_TRY(count_before(w, w->whole.data, spans[i].begin, &begin, &is_exact));
        end = w->ids.count;
        if (is_exact && spans[i].end < w->whole.bytes) {
            LS_TRY(count_before(w, w->whole.data, spans[i].end, &end, &is_exact));
        }
        if (is_exact) {
            LS_TRY(check_stop(w, &spans[i], w->whole.data, w->ids.ids + begin, end - begin));
            mark(&made, begin, end);
        }
    }
    *done_out = is_exact;
    if (!is_exact) {
        w->samples->ids.count = before;
        return LS_OK;
    }
    return ls_samples_end(w->samples, w->whole.bytes);
}

/* The two pieces, tokenised on their own, are the same text as the whole. */
static ls_status join_pieces(work *w, const char *text, size_t begin, size_t bytes)
{
    ls_token_buffer rest = {0};
    ls_text_buffer whole = {0}, pieces = {0};
    const ls_tokenizer *tokenizer = w->recipe->tokenizer;
    ls_status status = ls_tokenizer_decode(tokenizer, w->ids.ids, w->ids.count, false, &whole);
    if (status == LS_OK) {
        status = encode(w, text + begin, bytes - begin, &rest);
    }
    w->ids.count = 0;
    if (status == LS_OK) {
        status = append_ids(&w->ids, w->prefix.ids, w->prefix.count);
    }
    if (status == LS_OK) {
        status = append_ids(&w->ids, rest.ids, rest.count);
    }
    if (status == LS_OK) {
        status = ls_tokenizer_decode(tokenizer, w->ids.ids, w->ids.count, false, &pieces);
    }
    if (status == LS_OK &&
        (whole.bytes != pieces.bytes || memcmp(whole.data, pieces.data, whole.bytes) != 0)) {
        status =
            ls_fail(LS_ERR_DATA, "the tokenizer joins the end of the prompt and the beginning of the answer "
                                 "in one token, and the text changes if the answer is encoded separately: "
                                 "use another template (data.template) or another tokenizer");
    }
    ls_token_buffer_release(&rest);
    ls_text_buffer_release(&whole);
    ls_text_buffer_release(&pieces);
    return status;
}

/* Tokens of a text in w->ids, whose first `begin` bytes are what the model is given: *given_out
 * tokens. */
static ls_status encode_split(work *w, const char *text, size_t begin, size_t bytes, size_t *given_out)
{
    bool is_exact = false;
    LS_TRY(encode(w, text, bytes, &w->ids));
    LS_TRY(count_before(w, text, begin, given_out, &is_exact));
    return is_exact ? LS_OK : join_pieces(w, text, begin, bytes);
}

/* A sample of one answer and all that comes before it. */
static ls_status make_turn(work *w, const span *s)
{
    size_t given = 0;
    LS_TRY(encode_split(w, w->turn.data, s->begin, w->turn.bytes, &given));
    LS_TRY(check_stop(w, s, w->turn.data, w->ids.ids + given, w->ids.count - given));
    mark(&w->ids, given, w->ids.count);
    LS_TRY(append_ids(&w->samples->ids, w->ids.ids, w->ids.count));
    return ls_samples_end(w->samples, w->turn.bytes);
}

static ls_status make_turns(work *w)
{
    for (size_t i = 0; i < w->message_count; i++) {
        span s;
        if (is_trained(w, i)) {
            LS_TRY(render_turn(w, i, &s));
            LS_TRY(make_turn(w, &s));
        }
    }
    return LS_OK;
}

/* Finds the answers, and whether they all lie in the whole conversation as they were asked for. */
static ls_status find_spans(work *w, span *spans, size_t *count_out, bool *is_whole_out)
{
    *count_out = 0;
    *is_whole_out = true;
    for (size_t i = 0; i < w->message_count && *is_whole_out; i++) {
        if (is_trained(w, i)) {
            span *s = &spans[(*count_out)++];
            LS_TRY(render_turn(w, i, s));
            *is_whole_out = begins(&w->whole, &w->turn, w->turn.bytes);
        }
    }
    return *count_out > 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "the weight of every answer is 0: there is nothing to learn");
}

static ls_status make_all_trained(work *w)
{
    const size_t last = w->message_count - 1;
    span s;
    LS_TRY(render_turn(w, last, &s));
    LS_TRY(make_turn(w, &s));
    const size_t from = w->samples->count > 1 ? w->samples->ends[w->samples->count - 2].ids : 0;
    mark(&w->samples->ids, from, w->samples->ids.count);
    return LS_OK;
}

static ls_status make_conversation(work *w)
{
    bool is_whole = false, done = false;
    size_t count = 0;
    if (w->recipe->loss_on == LS_LOSS_ON_ALL) {
        return make_all_trained(w);
    }
    span *spans = malloc((w->message_count + 1) * sizeof *spans);
    ls_status status = spans ? render_answer(w, w->message_count, &w->whole)
                             : ls_fail(LS_ERR_MEMORY, "not enough memory for a conversation");
    if (status == LS_OK) {
        status = find_spans(w, spans, &count, &is_whole);
    }
    if (status == LS_OK && is_whole) {
        status = make_whole(w, spans, count, &done);
    }
    free(spans);
    return status == LS_OK && !done ? make_turns(w) : status;
}

/* ---- plain pairs ----------------------------------------------------------------------------- */

static ls_status make_pair(work *w, const char *prompt, const char *between, const char *completion)
{
    const ls_recipe *r = w->recipe;
    const int32_t eos = ls_tokenizer_eos(r->tokenizer);
    if (eos < 0) {
        return ls_fail(LS_ERR_DATA, "the tokenizer has no end-of-text token, so the model would never learn "
                                    "to stop: use a tokenizer that has one");
    }
    size_t given = 0;
    ls_text_clear(&w->turn);
    ls_text_append(&w->turn, prompt);
    ls_text_append(&w->turn, between);
    const size_t begin = w->turn.bytes;
    ls_text_append(&w->turn, completion);
    LS_TRY(encode_split(w, w->turn.data, begin, w->turn.bytes, &given));
    const int32_t last = w->ids.count > 0 ? w->ids.ids[w->ids.count - 1] : -1;
    if (last != eos && !is_stop(r, last)) {
        LS_TRY(append_ids(&w->ids, &eos, 1));
    }
    /* The prompt may have been rendered by a template, which writes it. */
    const bool has_bos = w->ids.count > 0 && w->ids.ids[0] == r->bos;
    mark(&w->ids, r->loss_on == LS_LOSS_ON_ALL ? 0 : given, w->ids.count);
    LS_TRY(r->bos >= 0 && !has_bos ? append_ids(&w->samples->ids, &r->bos, 1) : LS_OK);
    LS_TRY(append_ids(&w->samples->ids, w->ids.ids, w->ids.count));
    return ls_samples_end(w->samples, w->turn.bytes);
}

/* A question and its answer without a template. */
static ls_status join_conversation(work *w)
{
    const size_t count = json_array_size(w->messages);
    ls_text prompt = {0};
    for (size_t i = 0; i + 1 < count; i++) {
        ls_text_printf(&prompt, "%s%s", i > 0 ? "\n" : "",
                       json_string_value(json_object_get(json_array_get(w->messages, i), "content")));
    }
    const ls_status status =
        make_pair(w, ls_text_string(&prompt), "\n",
                  json_string_value(json_object_get(json_array_get(w->messages, count - 1), "content")));
    ls_text_release(&prompt);
    return status;
}

/* ---- records --------------------------------------------------------------------------------- */

static void release(work *w)
{
    ls_text_release(&w->whole);
    ls_text_release(&w->prompt);
    ls_text_release(&w->turn);
    ls_token_buffer_release(&w->ids);
    ls_token_buffer_release(&w->prefix);
}

static ls_status make_samples(work *w)
{
    size_t i;
    const json_t *messages;
    if (w->from->prompt) {
        return make_pair(w, w->from->prompt, "", w->from->completion);
    }
    json_array_foreach(w->from->conversations, i, messages)
    {
        w->messages = messages;
        w->message_count = json_array_size(messages);
        while (!ls_message_is_answer(json_array_get(messages, w->message_count - 1))) {
            w->message_count--;
        }
        LS_TRY(w->recipe->template ? make_conversation(w) : join_conversation(w));
    }
    return LS_OK;
}

ls_status ls_recipe_check_template(const ls_recipe *recipe)
{
    return recipe->template_error ? ls_fail(recipe->template_status, "%s", recipe->template_error) : LS_OK;
}

ls_status ls_recipe_check_form(const ls_recipe *recipe, ls_record_form form)
{
    if (recipe->template || form == LS_RECORD_TEXT || form == LS_RECORD_PROMPT) {
        return LS_OK;
    }
    LS_TRY(ls_recipe_check_template(recipe));
    if (form == LS_RECORD_QUESTION || form == LS_RECORD_ALPACA) {
        return LS_OK; /* they are joined */
    }
    return ls_fail(LS_ERR_INVALID,
                   "the records are %s, which need a chat template, and the model has none: name a .jinja "
                   "file, or a model's tokenizer_config.json, with data.template in a run file, or "
                   "--template FILE",
                   ls_record_form_name(form));
}

ls_status ls_recipe_apply(const ls_recipe *recipe, ls_tokenizer_scratch *scratch, json_t *record,
                          ls_record_form form, ls_samples *samples)
{
    ls_conversation from;
    LS_TRY(ls_recipe_check_form(recipe, form));
    LS_TRY(ls_conversation_read(record, &recipe->keys, form, &from));
    const size_t ids = samples->ids.count, count = samples->count;
    work w = {.recipe = recipe, .scratch = scratch, .from = &from, .samples = samples};
    const ls_status status = make_samples(&w);
    if (status != LS_OK) {
        samples->ids.count = ids;
        samples->count = count;
    }
    release(&w);
    ls_conversation_release(&from);
    return status;
}

/* ---- making a recipe ------------------------------------------------------------------------- */

bool ls_recipe_reads_date(const char *template_source)
{
    return strstr(template_source, "strftime_now") != NULL;
}

/* The special token that the template writes after the answer in w->turn when a message follows;
 * -1: none. */
static int32_t find_end_before_next(work *w)
{
    if (render(w, 3, false, &w->whole) != LS_OK || !begins(&w->whole, &w->turn, w->turn.bytes)) {
        return -1;
    }
    const char *rest = w->whole.data + w->turn.bytes;
    const size_t bytes = w->whole.bytes - w->turn.bytes;
    if (encode(w, rest, bytes, &w->ids) != LS_OK || w->ids.count == 0 ||
        kind_of(w->recipe->tokenizer, w->ids.ids[0]) != TOKEN_SPECIAL) {
        return -1;
    }
    const char *piece = ls_tokenizer_piece(w->recipe->tokenizer, w->ids.ids[0]);
    return piece && strncmp(rest, piece, strlen(piece)) == 0 ? w->ids.ids[0] : -1;
}

/* Finds out from the answer in w->turn how the template ends one. */
static ls_status adopt_end(ls_recipe *r, work *w, const span *s)
{
    int32_t end = -1;
    LS_TRY(encode(w, w->turn.data + s->begin, s->end - s->begin, &w->ids));
    if (ends_with_stop(r, w->ids.ids, w->ids.count)) {
        return LS_OK;
    }
    end = last_special(r->tokenizer, w->ids.ids, w->ids.count);
    if (end < 0) {
        end = find_end_before_next(w);
        r->end_text = end >= 0 ? ls_tokenizer_piece(r->tokenizer, end) : NULL;
    }
    if (end >= 0 && !is_stop(r, end)) {
        r->turn_end = end;
        r->stops[r->stop_count++] = end;
    }
    return LS_OK;
}

/* Renders a small conversation, to see how the template ends an answer. A template that refuses it
 * is asked by the records. */
static ls_status find_turn_end(ls_recipe *r)
{
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a",
                                 "role", "assistant", "content", "b", "role", "user", "content", "c");
    const ls_conversation from = {0};
    ls_samples none = {0};
    work w = {.recipe = r, .from = &from, .messages = messages, .message_count = 2, .samples = &none};
    span s = {0};
    ls_status status = render_turn(&w, 1, &s);
    if (status == LS_OK) {
        status = adopt_end(r, &w, &s);
    }
    release(&w);
    json_decref(messages);
    return status == LS_ERR_MEMORY ? status : LS_OK;
}

/* What the tokenizer's file puts before a text. */
static ls_status find_bos(ls_recipe *r)
{
    ls_token_buffer with = {0}, without = {0};
    ls_status status = ls_tokenizer_encode(r->tokenizer, NULL, "a", 1, true, &with);
    if (status == LS_OK) {
        status = ls_tokenizer_encode(r->tokenizer, NULL, "a", 1, false, &without);
    }
    const bool has_bos =
        status == LS_OK && with.count > without.count && with.ids[0] == ls_tokenizer_bos(r->tokenizer);
    r->bos = has_bos ? with.ids[0] : -1;
    ls_token_buffer_release(&with);
    ls_token_buffer_release(&without);
    return status;
}

static void make_hash(ls_recipe *r, const ls_recipe_options *o)
{
    char *variables = json_dumps(r->variables, JSON_COMPACT | JSON_SORT_KEYS);
    ls_text text = {0};
    ls_text_printf(&text, "lockstep recipe 3\nformat %d loss_on %d skip %d\nkeys %s\n%s\n%s\nstops",
                   (int)o->keys.format, (int)o->loss_on, o->skip_bad, o->keys.text,
                   o->keys.prompt ? o->keys.prompt : "", o->keys.completion ? o->keys.completion : "");
    for (size_t i = 0; i < r->stop_count; i++) {
        ls_text_printf(&text, " %d", r->stops[i]);
    }
    ls_text_printf(&text, "\nvariables %s\ntemplate %s", r->template && variables ? variables : "",
                   o->template_source ? o->template_source : "");
    ls_sha256_hex(text.data, text.bytes, r->hash);
    ls_text_release(&text);
    free(variables);
}

static ls_status open_template(ls_recipe *r, const ls_recipe_options *o)
{
    const char *source = o->template_source;
    const ls_status status = ls_chat_template_open(source, strlen(source), o->template_name, &r->template);
    if (status == LS_ERR_UNSUPPORTED || status == LS_ERR_DATA) {
        r->template_status = status;
        r->template_error = strdup(ls_error_text());
        ls_error_clear();
        return LS_OK;
    }
    LS_TRY(status);
    if (ls_recipe_reads_date(source) && o->template_date[0]) {
        json_object_set_new(r->variables, "template_date", json_string(o->template_date));
    }
    return find_turn_end(r);
}

static ls_status fill(ls_recipe *r, const ls_recipe_options *o)
{
    r->variables = o->special_tokens ? json_deep_copy(o->special_tokens) : json_object();
    LS_TRY(o->template_source ? open_template(r, o) : LS_OK);
    LS_TRY(find_bos(r));
    make_hash(r, o);
    return LS_OK;
}

ls_status ls_recipe_create(const ls_recipe_options *options, ls_recipe **recipe_out)
{
    ls_recipe *r = calloc(1, sizeof *r);
    if (!r) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a chat template");
    }
    *r = (ls_recipe){.keys = options->keys,
                     .loss_on = options->loss_on,
                     .skip_bad = options->skip_bad,
                     .tokenizer = options->tokenizer,
                     .turn_end = -1};
    for (size_t i = 0; i < options->stop_count && r->stop_count < STOPS_MAX; i++) {
        r->stops[r->stop_count++] = options->stops[i];
    }
    const ls_status status = fill(r, options);
    if (status != LS_OK) {
        ls_recipe_destroy(r);
        return status;
    }
    *recipe_out = r;
    return LS_OK;
}

void ls_recipe_destroy(ls_recipe *recipe)
{
    if (recipe) {
        ls_chat_template_close(recipe->template);
        free(recipe->template_error);
        json_decref(recipe->variables);
        free(recipe);
    }
}

const char *ls_recipe_hash(const ls_recipe *recipe)
{
    return recipe->hash;
}

const ls_form_keys *ls_recipe_keys(const ls_recipe *recipe)
{
    return &recipe->keys;
}

bool ls_recipe_skips_bad(const ls_recipe *recipe)
{
    return recipe->skip_bad;
}

int32_t ls_recipe_turn_end(const ls_recipe *recipe)
{
    return recipe->turn_end;
}

int32_t ls_recipe_bos(const ls_recipe *recipe)
{
    return recipe->bos;
}

bool ls_recipe_has_template(const ls_recipe *recipe)
{
    return recipe->template != NULL;
}

// SPDX-License-Identifier: Apache-2.0
/* From template source to tokens, with the white space that tags take away. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <errno.h>
#include <stdlib.h>

typedef struct lexer {
    ls_jinja_state *state;
    const char *text, *end, *at;
    uint32_t line;
    bool line_starting; /* what was read last ended with a line break */
    ls_jinja_token *tokens;
    size_t count, capacity;
    char *open; /* brackets that wait for their end */
    size_t open_count, open_capacity;
} lexer;

static ls_jinja_token *push(lexer *l, ls_jinja_token_kind kind)
{
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 64;
        ls_jinja_token *grown = ls_arena_new(&l->state->arena, ls_jinja_token, l->capacity);
        if (l->count > 0) {
            memcpy(grown, l->tokens, l->count * sizeof *grown);
        }
        l->tokens = grown;
    }
    ls_jinja_token *token = &l->tokens[l->count++];
    *token = (ls_jinja_token){.kind = kind, .line = l->line};
    return token;
}

static bool starts(const lexer *l, const char *at, const char *text)
{
    const size_t bytes = strlen(text);
    return (size_t)(l->end - at) >= bytes && memcmp(at, text, bytes) == 0;
}

static const char *skip_space(const lexer *l, const char *at)
{
    while (at < l->end) {
        uint32_t c;
        const unsigned length = ls_utf8_valid_decode(at, &c);
        if (!ls_jinja_is_space(c)) {
            break;
        }
        at += length;
    }
    return at;
}

/* Goes to `to`, counting the lines on the way. */
static void advance(lexer *l, const char *to)
{
    for (; l->at < to; l->at++) {
        l->line += *l->at == '\n';
        l->line_starting = *l->at == '\n';
    }
}

/* The end of a tag at `at` ("%}" with its sign): where what follows begins; NULL: none is here. A
 * minus takes the white space after it, a block's end one line break. */
static const char *tag_end(const lexer *l, const char *at, const char *end, bool trims)
{
    if (*at == '-' && starts(l, at + 1, end)) {
        return skip_space(l, at + 3);
    }
    if (trims && *at == '+' && starts(l, at + 1, end)) {
        return at + 3;
    }
    if (starts(l, at, end)) {
        at += 2;
        return trims && at < l->end && *at == '\n' ? at + 1 : at;
    }
    return NULL;
}

/* Emits the text up to `to`, where a tag with `sign` begins. */
static void push_data(lexer *l, const char *to, char sign, bool is_print)
{
    const char *end = to;
    if (sign == '-') {
        while (end > l->at) {
            const char *before = l->at + ls_utf8_previous(l->at, (size_t)(end - l->at) - 1);
            uint32_t c;
            ls_utf8_valid_decode(before, &c);
            if (!ls_jinja_is_space(c)) {
                break;
            }
            end = before;
        }
    } else if (sign != '+' && !is_print) {
        const char *line = to;
        while (line > l->at && line[-1] != '\n') {
            line--;
        }
        if ((line > l->at || l->line_starting) && skip_space(l, line) >= to) {
            end = line;
        }
    }
    if (end > l->at) {
        push(l, LS_TOKEN_DATA)->value = ls_jv_text(l->at, (size_t)(end - l->at));
    }
    advance(l, to);
}

static void fail(lexer *l, ls_status status, const char *text)
{
    l->state->line = l->line;
    ls_jinja_fail(l->state, status, "%s", text);
}

/* ---- inside tags ---- */

static bool is_word(const lexer *l, const char *at, unsigned *length_out)
{
    uint32_t c;
    if (at >= l->end) {
        return false;
    }
    *length_out = ls_utf8_valid_decode(at, &c);
    const uint8_t properties = ls_unicode_of(c);
    return c == '_' || ls_unicode_is_letter(properties) || ls_unicode_is_number(properties);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Appends the digits at `at`; returns their end. */
static const char *digits(const char *at, ls_text *out)
{
    const size_t count = strspn(at, "0123456789");
    ls_text_append_bytes(out, at, count);
    return at + count;
}

/* Tags are followed by a zero byte at the latest, so that strspn ends. */
static void read_number(lexer *l)
{
    ls_text text = {0};
    const bool after_dot = l->at > l->text && l->at[-1] == '.';
    const char *end = digits(l->at, &text);
    bool is_real = false;
    if (*end == '.' && is_digit(end[1]) && !after_dot) {
        is_real = true;
        ls_text_append(&text, ".");
        end = digits(end + 1, &text);
    }
    const char *exponent = end + 1 + ((*end | 32) == 'e' && (end[1] == '+' || end[1] == '-'));
    if ((*end | 32) == 'e' && is_digit(*exponent) && !after_dot) {
        is_real = true;
        ls_text_append_bytes(&text, end, (size_t)(exponent - end));
        end = digits(exponent, &text);
    }
    errno = 0;
    ls_jinja_token *token = push(l, LS_TOKEN_CONST);
    token->value = is_real ? ls_jv_float(strtod(ls_text_string(&text), NULL))
                           : ls_jv_int(strtoll(ls_text_string(&text), NULL, 10));
    if (errno == ERANGE && !is_real) {
        fail(l, LS_ERR_UNSUPPORTED, "whole numbers beyond 64 bits are not supported");
    } else if (*end == '_' || (*end && strchr("xXoObB", *end) && text.bytes == 1)) {
        fail(l, LS_ERR_UNSUPPORTED, "numbers with _ or in another base than 10 are not supported");
    } else if (!is_real && text.bytes > 1 && text.data[0] == '0' && token->value.integer != 0) {
        fail(l, LS_ERR_DATA, "a number begins with 0");
    }
    ls_text_release(&text);
    advance(l, end);
}

/* The value of `count` digits in `base`; -1: there are fewer. */
static int64_t escape_digits(const char *at, const char *end, int count, int base)
{
    int64_t value = 0;
    for (int i = 0; i < count; i++) {
        const char c = at < end ? *at++ : 0;
        const int digit = is_digit(c)                          ? c - '0'
                          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                               : 99;
        if (digit >= base) {
            return -1;
        }
        value = value * base + digit;
    }
    return value;
}

/* Python's escapes: one after a backslash at `at`; returns where it ends. */
static const char *read_escape(lexer *l, const char *at, const char *end, ls_text *out)
{
    static const char plain[] = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (*at == plain[i]) {
            ls_text_append_bytes(out, &plain[i + 1], 1);
            return at + 1;
        }
    }
    if (*at == '\n') {
        return at + 1;
    }
    int64_t c = -1;
    const char *after = at + 1;
    if (*at == 'x' || *at == 'u' || *at == 'U') {
        const int count = *at == 'x' ? 2 : *at == 'u' ? 4 : 8;
        c = escape_digits(after, end, count, 16);
        after += count;
        if (c < 0 || c > 0x10FFFF) {
            fail(l, LS_ERR_DATA, "a string has an escape (\\x, \\u, \\U) that is cut short or no character");
            return end;
        }
    } else if (*at >= '0' && *at <= '7') {
        int count = 1;
        while (count < 3 && at + count < end && at[count] >= '0' && at[count] <= '7') {
            count++;
        }
        c = escape_digits(at, end, count, 8);
        after = at + count;
    } else if (*at == 'N') {
        fail(l, LS_ERR_UNSUPPORTED, "characters by name (\\N{...}) are not supported: write \\uXXXX");
        return end;
    } else {
        ls_text_append(out, "\\");
        return at;
    }
    if (c >= 0xD800 && c < 0xE000) {
        fail(l, LS_ERR_UNSUPPORTED, "halves of surrogate pairs are not supported: write \\UXXXXXXXX");
        return end;
    }
    char utf8[4];
    ls_text_append_bytes(out, utf8, ls_utf8_encode((uint32_t)c, utf8));
    return after;
}

static void read_string(lexer *l)
{
    const char *from = l->at + 1, *end = from;
    bool has_escapes = false;
    while (end < l->end && *end != *l->at) {
        has_escapes |= *end == '\\';
        end += *end == '\\' && end + 1 < l->end ? 2 : 1;
    }
    if (end >= l->end) {
        fail(l, LS_ERR_DATA, "a string has no end");
        return;
    }
    ls_jinja_token *token = push(l, LS_TOKEN_CONST);
    token->value = ls_jv_text(from, (size_t)(end - from));
    if (has_escapes) {
        ls_text text = {0};
        while (from < end) {
            const size_t plain = strcspn(from, "\\");
            const size_t bytes = plain < (size_t)(end - from) ? plain : (size_t)(end - from);
            /* Zero bytes end strcspn early: what is left is copied one at a time. */
            ls_text_append_bytes(&text, from, bytes > 0 || *from == '\\' ? bytes : 1);
            from += bytes > 0 || *from == '\\' ? bytes : 1;
            if (from < end && *from == '\\') {
                from = read_escape(l, from + 1, end, &text);
            }
        }
        const char *copy = ls_arena_strndup(&l->state->arena, "", 0);
        if (text.bytes > 0) {
            char *bytes = ls_arena_alloc(&l->state->arena, text.bytes);
            memcpy(bytes, text.data, text.bytes);
            copy = bytes;
        }
        token->value = ls_jv_text(copy, text.bytes);
        ls_text_release(&text);
    }
    advance(l, end + 1);
}

static void track_bracket(lexer *l, char c)
{
    if (strchr("([{", c)) {
        if (l->open_count == l->open_capacity) {
            const size_t capacity = l->open_capacity ? 2 * l->open_capacity : 64;
            char *grown = ls_arena_alloc(&l->state->arena, capacity);
            if (l->open_count > 0) {
                memcpy(grown, l->open, l->open_count);
            }
            l->open = grown;
            l->open_capacity = capacity;
        }
        l->open[l->open_count++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (l->open_count == 0 || l->open[--l->open_count] != c) {
        char text[64];
        snprintf(text, sizeof text, "'%c' closes a bracket that is not open", c);
        fail(l, LS_ERR_DATA, text);
    }
}

static void read_operator(lexer *l)
{
    static const char *const doubles[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        if (starts(l, l->at, doubles[i])) {
            push(l, LS_TOKEN_OP)->op = LS_JINJA_OP(doubles[i][0], doubles[i][1]);
            advance(l, l->at + 2);
            return;
        }
    }
    if (*l->at == '\0' || !strchr("+-/*%~[](){}><=.:|,;", *l->at)) {
        uint32_t c;
        ls_utf8_valid_decode(l->at, &c);
        char text[64];
        snprintf(text, sizeof text, "unexpected character U+%04X in a tag", c);
        fail(l, LS_ERR_DATA, text);
        return;
    }
    push(l, LS_TOKEN_OP)->op = (uint8_t)*l->at;
    if (strchr("()[]{}", *l->at)) {
        track_bracket(l, *l->at);
    }
    advance(l, l->at + 1);
}

/* The tokens up to the end of the tag. */
static void read_tag(lexer *l, bool is_print)
{
    push(l, is_print ? LS_TOKEN_PRINT : LS_TOKEN_BLOCK);
    l->open_count = 0;
    while (!l->state->failed) {
        advance(l, skip_space(l, l->at));
        if (l->at >= l->end) {
            return; /* the parser says what is missing */
        }
        const char *after = l->open_count > 0 ? NULL : tag_end(l, l->at, is_print ? "}}" : "%}", !is_print);
        unsigned length;
        if (after) {
            push(l, is_print ? LS_TOKEN_PRINT_END : LS_TOKEN_BLOCK_END);
            advance(l, after);
            return;
        }
        if (is_digit(*l->at)) {
            read_number(l);
        } else if (is_word(l, l->at, &length)) {
            const char *end = l->at;
            while (is_word(l, end, &length)) {
                end += length;
            }
            push(l, LS_TOKEN_NAME)->value = ls_jv_text(l->at, (size_t)(end - l->at));
            advance(l, end);
        } else if (*l->at == '\'' || *l->at == '"') {
            read_string(l);
        } else {
            read_operator(l);
        }
    }
}

/* ---- between tags ---- */

/* Whether "{% word %}" begins at `at`: where what follows begins, else NULL. */
static const char *bare_block(const lexer *l, const char *at, const char *word, bool trims, char *sign_out)
{
    at += 2;
    *sign_out = at < l->end && (*at == '-' || *at == '+') ? *at++ : 0;
    at = skip_space(l, at);
    if (!starts(l, at, word)) {
        return NULL;
    }
    at = skip_space(l, at + strlen(word));
    if (at >= l->end) {
        return NULL;
    }
    if (!trims && *at != '-') {
        return starts(l, at, "%}") ? at + 2 : NULL;
    }
    return tag_end(l, at, "%}", trims);
}

static void read_raw(lexer *l)
{
    for (const char *at = l->at; at < l->end; at++) {
        char sign;
        const char *after = starts(l, at, "{%") ? bare_block(l, at, "endraw", true, &sign) : NULL;
        if (after) {
            push_data(l, at, sign, false);
            advance(l, after);
            return;
        }
    }
    fail(l, LS_ERR_DATA, "{% raw %} has no {% endraw %}");
}

static void read_comment(lexer *l)
{
    for (const char *at = l->at; at < l->end; at++) {
        const char *after = tag_end(l, at, "#}", true);
        if (after) {
            advance(l, after);
            return;
        }
    }
    fail(l, LS_ERR_DATA, "a comment {# has no #}");
}

static void read_root(lexer *l)
{
    const char *at = l->at;
    while (at + 1 < l->end && !(at[0] == '{' && strchr("%{#", at[1]) && at[1])) {
        at++;
    }
    if (at + 1 >= l->end) {
        push(l, LS_TOKEN_DATA)->value = ls_jv_text(l->at, (size_t)(l->end - l->at));
        advance(l, l->end);
        return;
    }
    char sign;
    const char *raw = at[1] == '%' ? bare_block(l, at, "raw", false, &sign) : NULL;
    if (!raw) {
        sign = at + 2 < l->end && (at[2] == '-' || at[2] == '+') ? at[2] : 0;
    }
    push_data(l, at, sign, at[1] == '{');
    advance(l, raw ? raw : at + 2 + (sign != 0));
    if (raw) {
        read_raw(l);
    } else if (at[1] == '#') {
        read_comment(l);
    } else {
        read_tag(l, at[1] == '{');
    }
}

ls_jinja_token *ls_jinja_lex(ls_jinja_state *state, const char *source, size_t bytes)
{
    /* Line breaks become \n; one at the end is dropped. */
    char *text = ls_arena_alloc(&state->arena, bytes + 1);
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r') {
            text[used++] = '\n';
            i += i + 1 < bytes && source[i + 1] == '\n';
        } else {
            text[used++] = source[i];
        }
    }
    used -= used > 0 && text[used - 1] == '\n';
    text[used] = '\0';
    lexer l = {
        .state = state, .text = text, .at = text, .end = text + used, .line = 1, .line_starting = true};
    while (l.at < l.end && !state->failed) {
        read_root(&l);
    }
    push(&l, LS_TOKEN_EOF);
    return l.tokens;
}

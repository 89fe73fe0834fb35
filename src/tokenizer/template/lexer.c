// SPDX-License-Identifier: Apache-2.0
/* From template source to tokens, with the white space that tags take away. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <errno.h>
#include <stdlib.h>

typedef struct lexer {
    ls_jinja *j;
    const char *text, *end, *at;
    uint32_t line;
    bool line_starting; /* what was read last ended with a line break */
    ls_jinja_token *tokens;
    size_t count, capacity;
    char open[LS_JINJA_NESTING_MAX]; /* the ends that open brackets wait for */
    size_t open_count;
} lexer;

static void push(lexer *l, ls_jinja_token_kind kind, ls_jv value)
{
    l->tokens = ls_jinja_grow(l->j, l->tokens, l->count, &l->capacity, sizeof *l->tokens);
    l->tokens[l->count++] = (ls_jinja_token){.kind = kind, .line = l->line, .value = value};
}

static void fail(lexer *l, ls_status status, const char *text)
{
    l->j->line = l->line;
    ls_jinja_fail(l->j, status, "%s", text);
}

/* The text is followed by a zero byte, where every comparison ends. */
static bool starts(const char *at, const char *text)
{
    return strncmp(at, text, strlen(text)) == 0;
}

static const char *skip_space(const lexer *l, const char *at)
{
    uint32_t c;
    for (unsigned length; at < l->end; at += length) {
        length = ls_utf8_valid_decode(at, &c);
        if (!ls_jinja_is_space(c)) {
            break;
        }
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
    if (*at == '-' && starts(at + 1, end)) {
        return skip_space(l, at + 3);
    }
    if (trims && *at == '+' && starts(at + 1, end)) {
        return at + 3;
    }
    return starts(at, end) ? at + 2 + (trims && at[2] == '\n') : NULL;
}

/* Emits the text up to `to`, where a tag with `sign` begins. */
static void push_data(lexer *l, const char *to, char sign, bool is_print)
{
    ls_jv data = ls_jv_text(l->at, (size_t)(to - l->at));
    if (sign == '-') {
        data = ls_jinja_strip(l->j, data, ls_jv_none(), 'r');
    } else if (sign != '+' && !is_print) {
        const char *line = to;
        while (line > l->at && line[-1] != '\n') {
            line--;
        }
        if ((line > l->at || l->line_starting) && skip_space(l, line) >= to) {
            data.bytes = (uint32_t)(line - l->at);
        }
    }
    if (data.bytes > 0) {
        push(l, LS_TOKEN_DATA, data);
    }
    advance(l, to);
}

/* ---- inside tags ---- */

static const char *word_end(const lexer *l, const char *at)
{
    uint32_t c;
    for (unsigned length; at < l->end; at += length) {
        length = ls_utf8_valid_decode(at, &c);
        const uint8_t properties = ls_unicode_of(c);
        if (c != '_' && !ls_unicode_is_letter(properties) && !ls_unicode_is_number(properties)) {
            break;
        }
    }
    return at;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *digits(const char *at)
{
    return at + strspn(at, "0123456789");
}

static void read_number(lexer *l)
{
    const bool after_dot = l->at > l->text && l->at[-1] == '.';
    const char *end = digits(l->at);
    bool is_real = false;
    if (*end == '.' && is_digit(end[1]) && !after_dot) {
        is_real = true;
        end = digits(end + 1);
    }
    const char *exponent = end + 1 + ((*end | 32) == 'e' && (end[1] == '+' || end[1] == '-'));
    if ((*end | 32) == 'e' && is_digit(*exponent) && !after_dot) {
        is_real = true;
        end = digits(exponent);
    }
    errno = 0;
    const ls_jv value = is_real ? ls_jv_float(strtod(l->at, NULL)) : ls_jv_int(strtoll(l->at, NULL, 10));
    push(l, LS_TOKEN_CONST, value);
    if (errno == ERANGE && !is_real) {
        fail(l, LS_ERR_UNSUPPORTED, "whole numbers beyond 64 bits are not supported");
    } else if (*end == '_' || (*end && strchr("xXoObB", *end) && end == l->at + 1)) {
        fail(l, LS_ERR_UNSUPPORTED, "numbers with _ or in another base than 10 are not supported");
    } else if (!is_real && end > l->at + 1 && *l->at == '0' && value.integer != 0) {
        fail(l, LS_ERR_DATA, "a number begins with 0");
    }
    advance(l, end);
}

/* The value of up to `count` digits in `base` at `at`; NULL: these are none, or no character. */
static const char *escape_digits(const char *at, int count, int base, uint32_t *value_out)
{
    char text[9] = {0}, *end;
    strncpy(text, at, (size_t)count);
    *value_out = (uint32_t)strtoul(text, &end, base);
    const bool is_whole = base == 8 || end == text + count;
    return is_whole && *value_out <= 0x10FFFF &&
                   strspn(text, "0123456789abcdefABCDEF") >= (size_t)(end - text)
               ? at + (end - text)
               : NULL;
}

/* Python's escapes: what follows a backslash at `at`; returns where it ends. */
static const char *read_escape(lexer *l, const char *at, ls_text *out)
{
    static const char plain[] = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (*at == plain[i]) {
            ls_text_append_bytes(out, &plain[i + 1], 1);
            return at + 1;
        }
    }
    uint32_t c = 0;
    const char *after;
    if (*at == '\n') {
        return at + 1;
    }
    if (*at == 'x' || *at == 'u' || *at == 'U') {
        after = escape_digits(at + 1, *at == 'x' ? 2 : *at == 'u' ? 4 : 8, 16, &c);
    } else if (*at >= '0' && *at <= '7') {
        after = escape_digits(at, 3, 8, &c);
    } else {
        if (*at == 'N') {
            fail(l, LS_ERR_UNSUPPORTED, "characters by name (\\N{...}) are not supported: write \\uXXXX");
        }
        ls_text_append(out, "\\");
        return at;
    }
    if (!after) {
        fail(l, LS_ERR_DATA, "a string has an escape (\\x, \\u, \\U) that is cut short or no character");
    } else if (c >= 0xD800 && c < 0xE000) {
        fail(l, LS_ERR_UNSUPPORTED, "halves of surrogate pairs are not supported: write \\UXXXXXXXX");
    }
    char utf8[4];
    ls_text_append_bytes(out, utf8, l->j->failed ? 0 : ls_utf8_encode(c, utf8));
    return after ? after : at + 1;
}

static void read_string(lexer *l)
{
    const char *from = l->at + 1, *end = from;
    while (end < l->end && *end != *l->at) {
        end += *end == '\\' && end + 1 < l->end ? 2 : 1;
    }
    if (end >= l->end) {
        fail(l, LS_ERR_DATA, "a string has no end");
        return;
    }
    ls_jv value = ls_jv_text(from, (size_t)(end - from));
    if (memchr(from, '\\', value.bytes)) {
        ls_text text = {0};
        while (from < end) {
            const char *backslash = memchr(from, '\\', (size_t)(end - from));
            ls_text_append_bytes(&text, from, (size_t)((backslash ? backslash : end) - from));
            from = backslash ? read_escape(l, backslash + 1, &text) : end;
        }
        value = ls_jv_take_text(l->j, &text);
    }
    push(l, LS_TOKEN_CONST, value);
    advance(l, end + 1);
}

static void track_bracket(lexer *l, char c)
{
    char text[64];
    if (strchr("([{", c)) {
        if (l->open_count == LS_JINJA_NESTING_MAX) {
            fail(l, LS_ERR_DATA, "more than 200 brackets inside each other");
            return;
        }
        l->open[l->open_count++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (l->open_count == 0 || l->open[--l->open_count] != c) {
        snprintf(text, sizeof text, "'%c' closes a bracket that is not open", c);
        fail(l, LS_ERR_DATA, text);
    }
}

static void read_operator(lexer *l)
{
    static const char operators[] = "// ** == != >= <= + - / * % ~ [ ] ( ) { } > < = . : | , ;";
    const ls_jv both = ls_jv_text(l->at, l->at + 1 < l->end ? 2 : 1), one = ls_jv_text(l->at, 1);
    if (ls_jinja_word(operators, both) < 0 && ls_jinja_word(operators, one) < 0) {
        uint32_t c;
        ls_utf8_valid_decode(l->at, &c);
        char text[64];
        snprintf(text, sizeof text, "unexpected character U+%04X in a tag", c);
        fail(l, LS_ERR_DATA, text);
        return;
    }
    const ls_jv op = ls_jinja_word(operators, both) < 0 ? one : both;
    push(l, LS_TOKEN_OP, op);
    if (strchr("()[]{}", *l->at)) {
        track_bracket(l, *l->at);
    }
    advance(l, l->at + op.bytes);
}

/* The tokens up to the end of the tag. */
static void read_tag(lexer *l, bool is_print)
{
    const char *end = is_print ? "}}" : "%}";
    push(l, LS_TOKEN_OP, ls_jv_text(is_print ? "{{" : "{%", 2));
    l->open_count = 0;
    while (!l->j->failed) {
        advance(l, skip_space(l, l->at));
        if (l->at >= l->end) {
            return; /* the parser says what is missing */
        }
        const char *after = l->open_count > 0 ? NULL : tag_end(l, l->at, end, !is_print);
        const char *word = word_end(l, l->at);
        if (after) {
            push(l, LS_TOKEN_OP, ls_jv_text(end, 2));
            advance(l, after);
            return;
        }
        if (is_digit(*l->at)) {
            read_number(l);
        } else if (word > l->at) {
            push(l, LS_TOKEN_NAME, ls_jv_text(l->at, (size_t)(word - l->at)));
            advance(l, word);
        } else if (*l->at == '\'' || *l->at == '"') {
            read_string(l);
        } else {
            read_operator(l);
        }
    }
}

/* ---- between tags ---- */

/* Whether "{% word %}" begins at `at`: where what follows begins, else NULL. */
static const char *bare_block(const lexer *l, const char *at, const char *word, bool trims)
{
    at += 2 + (at[2] == '-' || at[2] == '+');
    at = skip_space(l, at);
    if (!starts(at, word)) {
        return NULL;
    }
    at = skip_space(l, at + strlen(word));
    return tag_end(l, at, "%}", trims);
}

/* Up to a tag that ends here: {% endraw %}, or, of a comment, #}. */
static void skip_to_end(lexer *l, bool is_raw)
{
    for (const char *at = l->at; at < l->end; at++) {
        const char *after = is_raw ? (starts(at, "{%") ? bare_block(l, at, "endraw", true) : NULL)
                                   : tag_end(l, at, "#}", true);
        if (after) {
            if (is_raw) {
                push_data(l, at, at[2], false);
            }
            advance(l, after);
            return;
        }
    }
    fail(l, LS_ERR_DATA, is_raw ? "{% raw %} has no {% endraw %}" : "a comment {# has no #}");
}

static void read_root(lexer *l)
{
    const char *at = l->at;
    while (at < l->end && !(at[0] == '{' && at[1] && strchr("%{#", at[1]))) {
        at++;
    }
    if (at >= l->end) {
        push(l, LS_TOKEN_DATA, ls_jv_text(l->at, (size_t)(l->end - l->at)));
        advance(l, l->end);
        return;
    }
    const char kind = at[1], sign = at[2] == '-' || at[2] == '+' ? at[2] : 0;
    const char *raw = kind == '%' ? bare_block(l, at, "raw", false) : NULL;
    push_data(l, at, sign, kind == '{');
    advance(l, raw ? raw : at + 2 + (sign != 0));
    if (raw || kind == '#') {
        skip_to_end(l, raw != NULL);
    } else {
        read_tag(l, kind == '{');
    }
}

ls_jinja_token *ls_jinja_lex(ls_jinja *j, const char *source, size_t bytes)
{
    /* Line breaks become \n; one at the end is dropped. */
    char *text = ls_arena_alloc(&j->arena, bytes + 4);
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        text[used++] = source[i] == '\r' ? '\n' : source[i];
        i += source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n';
    }
    used -= used > 0 && text[used - 1] == '\n';
    text[used] = '\0';
    lexer l = {.j = j, .text = text, .at = text, .end = text + used, .line = 1, .line_starting = true};
    while (l.at < l.end && !j->failed) {
        read_root(&l);
    }
    push(&l, LS_TOKEN_EOF, ls_jv_text("the end", 7));
    return l.tokens;
}

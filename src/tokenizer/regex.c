// SPDX-License-Identifier: Apache-2.0
/*
 * Split patterns that are not built in, matched with the library pcre2.
 *
 * Hugging Face's tokenizers match with Oniguruma in Ruby's syntax. What both libraries read alike
 * is passed on; what they read differently is rewritten (\s, scripts) or refused by name, so that
 * no pattern is silently understood in another way.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/tokenizer_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_MAX = 1 << 16, MATCH_LIMIT = 10000000, HEAP_LIMIT_KIB = 64 << 10 };

/* White_Space. The \s of pcre2 also matches U+180E. */
static const char white_space[] = "\\t-\\r\\x{85}\\p{Z}";

/* ---- rewriting ---- */

typedef struct rewriter {
    const char *at;
    bool in_class;
    ls_text out;
    /* What is not supported; "": all is. */
    char refused[16];
} rewriter;

static void refuse(rewriter *r, size_t bytes)
{
    snprintf(r->refused, sizeof r->refused, "%.*s", (int)bytes, r->at);
}

/* \p{L} and the like. A longer name is that of a script; pcre2 would mean its extensions by it. */
static void rewrite_property(rewriter *r)
{
    const char *close = r->at[2] == '{' ? strchr(r->at, '}') : NULL;
    if (!close) {
        refuse(r, 3);
        return;
    }
    const char *name = r->at + 3;
    const char *caret = *name == '^' ? "^" : "";
    name += *caret != '\0';
    const int bytes = (int)(close - name);
    const bool script = bytes > 2 && strncmp(name, "Any}", 4) != 0;
    ls_text_printf(&r->out, "\\%c{%s%s%.*s}", r->at[1], caret, script ? "sc:" : "", bytes, name);
    r->at = close + 1;
}

static void rewrite_escape(rewriter *r)
{
    const char c = r->at[1];
    if (c == 'p' || c == 'P') {
        rewrite_property(r);
        return;
    }
    if (c == 's' || (c == 'S' && !r->in_class)) {
        ls_text_printf(&r->out, r->in_class ? "%s%s" : "[%s%s]", c == 'S' ? "^" : "", white_space);
    } else if (c && (strchr("SdDrntfxAz", c) || ispunct((unsigned char)c))) {
        ls_text_printf(&r->out, "\\%c", c);
    } else {
        refuse(r, 2);
        return;
    }
    r->at += 2;
}

/* Inside [...]: Ruby has sets within sets and intersections. */
static void rewrite_in_class(rewriter *r)
{
    if (*r->at == '[' || strncmp(r->at, "&&", 2) == 0) {
        refuse(r, 2);
        return;
    }
    r->in_class = *r->at != ']';
    ls_text_printf(&r->out, "%c", *r->at++);
}

static void rewrite_class_start(rewriter *r)
{
    const size_t bytes = r->at[1] == '^' ? 2 : 1;
    ls_text_printf(&r->out, "%.*s", (int)bytes, r->at);
    r->at += bytes;
    r->in_class = true;
    if (*r->at == ']') { /* first, it is a character */
        ls_text_append(&r->out, "\\]");
        r->at++;
    }
}

/* {1,3}+ is possessive in pcre2, and a repetition of {1,3} in Ruby. The m of (?m) differs, too. */
static bool differs(const char *at)
{
    if (*at == '}') {
        return at[1] == '+';
    }
    return strncmp(at, "(?", 2) == 0 && strspn(at + 2, "mxs-") > strspn(at + 2, "-");
}

static void rewrite(rewriter *r)
{
    while (*r->at && !r->refused[0]) {
        if (*r->at == '\\') {
            rewrite_escape(r);
        } else if (r->in_class) {
            rewrite_in_class(r);
        } else if (*r->at == '[') {
            rewrite_class_start(r);
        } else if (differs(r->at)) {
            refuse(r, *r->at == '}' ? 2 : 4);
        } else {
            ls_text_printf(&r->out, "%c", *r->at++);
        }
    }
}

/* ---- compiling ---- */

static ls_status compile(const char *pattern, uint32_t options, const char *source, const char *name,
                         ls_regex *regex_out)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    pcre2_code *code = NULL;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(context, PATTERN_MAX);
        code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | options, &error, &offset,
                             context);
    }
    pcre2_compile_context_free(context);
    if (!code) {
        PCRE2_UCHAR text[128] = "not enough memory";
        if (error != 0) {
            pcre2_get_error_message(error, text, sizeof text);
        }
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: the regular expression %.200s of a Split step is not supported: %s", name, source,
                       (const char *)text);
    }
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it, matching is only slower */
    regex_out->code = code;
    return LS_OK;
}

ls_status ls_regex_compile(const char *source, bool plain, const char *name, ls_regex *regex_out)
{
    if (plain) {
        return compile(source, PCRE2_LITERAL, source, name, regex_out);
    }
    rewriter r = {.at = source};
    rewrite(&r);
    ls_status status;
    if (r.refused[0]) {
        status = ls_fail(LS_ERR_UNSUPPORTED,
                         "%s: the regular expression %.200s of a Split step has %s, which is supported only "
                         "in the expressions of GPT-2, Llama 3, Qwen and o200k",
                         name, source, r.refused);
    } else {
        status = compile(ls_text_string(&r.out), PCRE2_UCP | PCRE2_MULTILINE, source, name, regex_out);
    }
    ls_text_release(&r.out);
    return status;
}

void ls_regex_release(ls_regex *regex)
{
    pcre2_code_free(regex->code);
    regex->code = NULL;
}

/* ---- matching ---- */

struct ls_regex_work {
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

void ls_regex_work_destroy(ls_regex_work *work)
{
    if (work) {
        pcre2_match_data_free(work->match);
        pcre2_match_context_free(work->limits);
        free(work);
    }
}

static ls_regex_work *work_create(void)
{
    ls_regex_work *work = calloc(1, sizeof *work);
    if (!work) {
        return NULL;
    }
    work->match = pcre2_match_data_create(1, NULL);
    work->limits = pcre2_match_context_create(NULL);
    if (!work->match || !work->limits) {
        ls_regex_work_destroy(work);
        return NULL;
    }
    pcre2_set_match_limit(work->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(work->limits, HEAP_LIMIT_KIB);
    return work;
}

static int match(const ls_regex *regex, ls_regex_work *work, const char *text, size_t bytes, size_t from,
                 uint32_t options)
{
    return pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, from, options | PCRE2_NO_UTF_CHECK, work->match,
                       work->limits);
}

ls_status ls_regex_next(const ls_regex *regex, ls_regex_work **work, const char *text, size_t bytes,
                        size_t from, ls_regex_span *span_out)
{
    LS_DCHECK(from <= bytes);
    *work = *work ? *work : work_create();
    if (!*work) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to match a pattern");
    }
    int count = match(regex, *work, text, bytes, from, 0);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
        count = match(regex, *work, text, bytes, from, PCRE2_NO_JIT);
    }
    if (count == PCRE2_ERROR_NOMATCH) {
        *span_out = (ls_regex_span){SIZE_MAX, SIZE_MAX};
        return LS_OK;
    }
    if (count < 0) {
        PCRE2_UCHAR error[128] = "";
        pcre2_get_error_message(count, error, sizeof error);
        return ls_fail(
            LS_ERR_DATA,
            "the tokenizer's regular expression for splitting fails at byte %zu of a text of %zu bytes: %s",
            from, bytes, (const char *)error);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer((*work)->match);
    *span_out = (ls_regex_span){ends[0], ends[1]};
    return LS_OK;
}

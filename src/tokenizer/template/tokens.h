// SPDX-License-Identifier: Apache-2.0
/* What the parser reads and makes: tokens one after the other, and nodes. */
#ifndef LS_TOKENIZER_TEMPLATE_TOKENS_H
#define LS_TOKENIZER_TEMPLATE_TOKENS_H

#include "tokenizer/template/jinja.h"

typedef ls_jinja_node node;

enum { NESTING_MAX = 200 };

typedef struct parser {
    ls_jinja_state *state;
    const ls_jinja_token *at;
    size_t loops; /* how many loops are around, within this macro */
} parser;

/* After a failure there is nothing more to read, so that every loop ends. */
static inline void fail(parser *p, ls_status status, const char *text)
{
    p->state->line = p->at->line;
    ls_jinja_fail(p->state, status, "%s", text);
    while (p->at->kind != LS_TOKEN_EOF) {
        p->at++;
    }
}

static inline void fail_unexpected(parser *p, const char *wanted)
{
    ls_text text = {0};
    ls_text_printf(&text, "%s expected, found ", wanted);
    if (p->at->kind == LS_TOKEN_EOF) {
        ls_text_append(&text, "the end of the template");
    } else if (p->at->kind == LS_TOKEN_NAME) {
        ls_text_printf(&text, "'%.*s'", (int)p->at->value.bytes, p->at->value.text);
    } else if (p->at->kind == LS_TOKEN_OP) {
        const char op[3] = {(char)(p->at->op > 255 ? p->at->op >> 8 : p->at->op),
                            (char)(p->at->op > 255 ? p->at->op & 255 : 0), 0};
        ls_text_printf(&text, "'%s'", op);
    } else {
        ls_text_append(&text, p->at->kind == LS_TOKEN_CONST ? "a constant" : "the end of the tag");
    }
    fail(p, LS_ERR_DATA, ls_text_string(&text));
    ls_text_release(&text);
}

static inline void next(parser *p)
{
    p->at += p->at->kind != LS_TOKEN_EOF;
}

static inline bool is_op(const parser *p, uint16_t op)
{
    return p->at->kind == LS_TOKEN_OP && p->at->op == op;
}

static inline bool is_name(const ls_jinja_token *token, const char *name)
{
    return token->kind == LS_TOKEN_NAME && ls_jv_is(token->value, name);
}

static inline bool skip_op(parser *p, uint16_t op)
{
    const bool is = is_op(p, op);
    p->at += is;
    return is;
}

static inline bool skip_name(parser *p, const char *name)
{
    const bool is = is_name(p->at, name);
    p->at += is;
    return is;
}

static inline void expect_op(parser *p, char op)
{
    if (!skip_op(p, (uint16_t)op)) {
        const char wanted[] = {'\'', op, '\'', 0};
        fail_unexpected(p, wanted);
    }
}

static inline ls_jv expect_name(parser *p)
{
    const ls_jv name = p->at->value;
    if (p->at->kind != LS_TOKEN_NAME) {
        fail_unexpected(p, "a name");
        return ls_jv_text("", 0);
    }
    next(p);
    return name;
}

/* ---- nodes ---- */

static inline node *make(parser *p, ls_jinja_kind kind, node *a, node *b)
{
    node *made = ls_arena_new(&p->state->arena, node, 1);
    made->kind = kind;
    made->line = p->at->line;
    made->a = a;
    made->b = b;
    return made;
}

static inline void add(parser *p, node *list, node *item)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 4;
        node **grown = ls_arena_new(&p->state->arena, node *, list->capacity);
        if (list->count > 0) {
            memcpy(grown, list->items, list->count * sizeof(node *));
        }
        list->items = grown;
    }
    list->items[list->count++] = item;
}

/* Expressions and blocks inside each other; false at the limit. */
static inline bool enter(parser *p)
{
    if (++p->state->depth > NESTING_MAX) {
        fail(p, LS_ERR_DATA, "more than 200 expressions or blocks inside each other");
        return false;
    }
    return true;
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* From tokens to nodes: Jinja2's grammar, with its precedence. */
#include "tokenizer/template/tokens.h"

static node *expression(parser *p);
static node *postfix(parser *p, node *a);
static node *statements(parser *p, const char *const *ends);

/* ---- expressions ---- */

static bool at_tuple_end(const parser *p, const char *end)
{
    return p->at->kind == LS_TOKEN_PRINT_END || p->at->kind == LS_TOKEN_BLOCK_END ||
           p->at->kind == LS_TOKEN_EOF || is_op(p, ')') || (end && is_name(p->at, end));
}

/* Items with commas between them: a tuple, or one item alone without a comma. `end`: a name that
 * ends it too. */
static node *tuple(parser *p, node *(*item)(parser *), const char *end, bool in_brackets)
{
    node *items = make(p, LS_JINJA_TUPLE, NULL, NULL);
    bool is_tuple = false;
    while (!at_tuple_end(p, end)) {
        add(p, items, item(p));
        if (!is_op(p, ',')) {
            break;
        }
        next(p);
        is_tuple = true;
    }
    if (!is_tuple && items->count == 1) {
        return items->items[0];
    }
    if (!is_tuple && !in_brackets) {
        fail_unexpected(p, "an expression");
    }
    return items;
}

static node *list_or_dict(parser *p)
{
    const bool is_list = is_op(p, '[');
    const uint16_t end = is_list ? ']' : '}';
    node *made = make(p, is_list ? LS_JINJA_LIST : LS_JINJA_DICT, NULL, NULL);
    next(p);
    while (!is_op(p, end) && !p->state->failed) {
        if (made->count > 0) {
            expect_op(p, ',');
        }
        if (is_op(p, end)) {
            break;
        }
        add(p, made, expression(p));
        if (!is_list) {
            expect_op(p, ':');
            add(p, made, expression(p));
        }
    }
    expect_op(p, (char)end);
    return made;
}

static node *constant(parser *p)
{
    node *made = make(p, LS_JINJA_CONST, NULL, NULL);
    made->value = p->at->value;
    next(p);
    while (made->value.kind == LS_JV_STRING && p->at->kind == LS_TOKEN_CONST &&
           p->at->value.kind == LS_JV_STRING) {
        made->value = ls_jv_join(p->state, made->value, p->at->value);
        next(p);
    }
    return made;
}

static node *name_or_keyword(parser *p)
{
    node *made = make(p, LS_JINJA_NAME, NULL, NULL);
    made->value = p->at->value;
    const bool truth = is_name(p->at, "true") || is_name(p->at, "True");
    if (truth || is_name(p->at, "false") || is_name(p->at, "False")) {
        made->kind = LS_JINJA_CONST;
        made->value = ls_jv_bool(truth);
    } else if (is_name(p->at, "none") || is_name(p->at, "None")) {
        made->kind = LS_JINJA_CONST;
        made->value = ls_jv_none();
    }
    next(p);
    return made;
}

static node *primary(parser *p)
{
    if (p->at->kind == LS_TOKEN_NAME) {
        return name_or_keyword(p);
    }
    if (p->at->kind == LS_TOKEN_CONST) {
        return constant(p);
    }
    if (skip_op(p, '(')) {
        node *made = tuple(p, expression, NULL, true);
        expect_op(p, ')');
        return made;
    }
    if (is_op(p, '[') || is_op(p, '{')) {
        return list_or_dict(p);
    }
    fail_unexpected(p, "an expression");
    return make(p, LS_JINJA_CONST, NULL, NULL);
}

/* A part of a slice; NULL when it is left out. */
static node *bound(parser *p)
{
    return is_op(p, ':') || is_op(p, ']') || is_op(p, ',') ? NULL : expression(p);
}

static node *subscript(parser *p, node *a)
{
    if (skip_op(p, '.')) {
        node *made = make(p, LS_JINJA_ATTRIBUTE, a, NULL);
        if (p->at->kind == LS_TOKEN_CONST && p->at->value.kind == LS_JV_INT) {
            made->kind = LS_JINJA_ITEM;
            made->b = constant(p);
        } else {
            made->value = expect_name(p);
        }
        return made;
    }
    next(p);
    node *first = bound(p);
    node *made = make(p, LS_JINJA_ITEM, a, first);
    if (is_op(p, ':')) {
        made->kind = LS_JINJA_SLICE;
        add(p, made, first);
        add(p, made, (next(p), bound(p)));
        add(p, made, skip_op(p, ':') ? bound(p) : NULL);
    }
    if (is_op(p, ',')) {
        fail(p, LS_ERR_UNSUPPORTED, "several subscripts in one pair of brackets are not supported");
    }
    if (!first && made->kind == LS_JINJA_ITEM) {
        fail_unexpected(p, "a subscript");
    }
    expect_op(p, ']');
    return made;
}

/* An operator or a place in a call, and what follows it. */
static node *operand(parser *p, uint16_t op, node *a)
{
    node *made = make(p, LS_JINJA_OPERAND, a, NULL);
    made->op = op;
    return made;
}

/* One argument; `last` is the op of the one before it. */
static node *argument(parser *p, node *call, uint16_t *last)
{
    node *made = operand(p, 0, NULL);
    if (skip_op(p, '*')) {
        made->op = '*';
    } else if (skip_op(p, LS_JINJA_OP('*', '*'))) {
        made->op = LS_JINJA_OP('*', '*');
    } else if (p->at->kind == LS_TOKEN_NAME && p->at[1].kind == LS_TOKEN_OP && p->at[1].op == '=') {
        made->op = '=';
        made->value = p->at->value;
        p->at += 2;
    }
    made->a = expression(p);
    bool is_allowed =
        *last != LS_JINJA_OP('*', '*') && (made->op || !*last) && !(made->op == '*' && *last == '*');
    for (size_t i = 0; i < call->count && made->op == '='; i++) {
        is_allowed = is_allowed && !(call->items[i]->op == '=' &&
                                     ls_jv_equal(p->state, call->items[i]->value, made->value));
    }
    if (!is_allowed) {
        fail(p, LS_ERR_DATA, "the arguments of a call are in the wrong order, or one is given twice");
    }
    *last = made->op;
    return made;
}

/* The arguments of `call` in brackets, or none. */
static node *arguments(parser *p, node *call)
{
    uint16_t last = 0;
    if (skip_op(p, '(')) {
        while (!is_op(p, ')') && !p->state->failed) {
            add(p, call, argument(p, call, &last));
            if (!skip_op(p, ',')) {
                break;
            }
        }
        expect_op(p, ')');
    }
    return call;
}

/* A name that may have dots. */
static ls_jv dotted_name(parser *p)
{
    ls_jv name = expect_name(p);
    while (skip_op(p, '.')) {
        name = ls_jv_join(p->state, name, ls_jv_text(".", 1));
        name = ls_jv_join(p->state, name, expect_name(p));
    }
    return name;
}

static node *filter(parser *p, node *a)
{
    node *made = make(p, LS_JINJA_FILTER, a, NULL);
    made->value = dotted_name(p);
    made->builtin = ls_jinja_filter_find(made->value);
    return arguments(p, made);
}

static node *filters(parser *p, node *a)
{
    while (skip_op(p, '|')) {
        a = filter(p, a);
    }
    return a;
}

static bool begins_argument(const parser *p)
{
    if (p->at->kind == LS_TOKEN_NAME) {
        return !is_name(p->at, "else") && !is_name(p->at, "or") && !is_name(p->at, "and");
    }
    return p->at->kind == LS_TOKEN_CONST || is_op(p, '[') || is_op(p, '{');
}

static node *test(parser *p, node *a)
{
    const bool is_negated = skip_name(p, "not");
    node *made = make(p, LS_JINJA_TEST, a, NULL);
    made->value = dotted_name(p);
    made->builtin = ls_jinja_test_find(made->value);
    if (is_op(p, '(') || !begins_argument(p)) {
        arguments(p, made);
    } else if (is_name(p->at, "is")) {
        fail(p, LS_ERR_DATA, "tests with 'is' can't follow each other");
    } else {
        add(p, made, operand(p, 0, postfix(p, primary(p))));
    }
    return is_negated ? make(p, LS_JINJA_NOT, made, NULL) : made;
}

static node *postfix(parser *p, node *a)
{
    for (;;) {
        if (is_op(p, '.') || is_op(p, '[')) {
            a = subscript(p, a);
        } else if (is_op(p, '(')) {
            a = arguments(p, make(p, LS_JINJA_CALL, a, NULL));
        } else {
            return a;
        }
    }
}

static node *unary(parser *p, bool with_filters)
{
    node *a;
    if (!enter(p)) {
        a = make(p, LS_JINJA_CONST, NULL, NULL);
    } else if (is_op(p, '-') || is_op(p, '+')) {
        a = make(p, LS_JINJA_UNARY, NULL, NULL);
        a->op = p->at->op;
        next(p);
        a->a = unary(p, false);
    } else {
        a = primary(p);
    }
    p->state->depth--;
    a = postfix(p, a);
    while (with_filters) {
        if (skip_op(p, '|')) {
            a = filter(p, a);
        } else if (skip_name(p, "is")) {
            a = test(p, a);
        } else if (is_op(p, '(')) {
            a = arguments(p, make(p, LS_JINJA_CALL, a, NULL));
        } else {
            break;
        }
    }
    return a;
}

/* The binary operators by precedence, from `or` to `**`; words have one sign here. */
enum { OR, AND, NOT, COMPARISON, SUM, CONCATENATION, PRODUCT, POWER, UNARY };
static const uint16_t operators[UNARY][7] = {
    [OR] = {LS_JINJA_OR},
    [AND] = {LS_JINJA_AND},
    [COMPARISON] = {LS_JINJA_OP('=', '='), LS_JINJA_OP('!', '='), LS_JINJA_OP('<', '='),
                    LS_JINJA_OP('>', '='), '<', '>'},
    [SUM] = {'+', '-'},
    [CONCATENATION] = {'~'},
    [PRODUCT] = {'*', '/', LS_JINJA_OP('/', '/'), '%'},
    [POWER] = {LS_JINJA_OP('*', '*')},
};

/* Skips an operator of this precedence and returns it; 0: none begins here. */
static uint16_t skip_operator(parser *p, int level)
{
    for (const uint16_t *op = operators[level]; *op; op++) {
        if (*op == LS_JINJA_OR || *op == LS_JINJA_AND ? skip_name(p, *op == LS_JINJA_OR ? "or" : "and")
                                                      : skip_op(p, *op)) {
            return *op;
        }
    }
    if (level == COMPARISON && is_name(p->at, "not") && is_name(p->at + 1, "in")) {
        p->at += 2;
        return LS_JINJA_NOT_IN;
    }
    return level == COMPARISON && skip_name(p, "in") ? LS_JINJA_IN : 0;
}

/* Operands with operators of one precedence between them, grouped from the left; comparisons are
 * a chain. */
static node *binary(parser *p, int level)
{
    bool is_negated = false, is_bool = false;
    if (level == UNARY) {
        return unary(p, true);
    }
    for (; level == NOT && skip_name(p, "not"); is_bool = true) {
        is_negated = !is_negated;
    }
    node *a = binary(p, level + 1), *chain = NULL;
    for (uint16_t op = skip_operator(p, level); op; op = skip_operator(p, level)) {
        if (level == COMPARISON) {
            chain = chain ? chain : make(p, LS_JINJA_COMPARE, a, NULL);
            add(p, chain, operand(p, op, binary(p, level + 1)));
        } else {
            a = make(p, LS_JINJA_BINARY, a, NULL);
            a->op = op;
            a->b = binary(p, level + 1);
        }
    }
    a = chain ? chain : a;
    a = is_bool ? make(p, LS_JINJA_NOT, a, NULL) : a;
    return is_bool && !is_negated ? make(p, LS_JINJA_NOT, a, NULL) : a;
}

static node *disjunction(parser *p)
{
    node *a = enter(p) ? binary(p, OR) : make(p, LS_JINJA_CONST, NULL, NULL);
    p->state->depth--;
    return a;
}

static node *expression(parser *p)
{
    node *a = disjunction(p);
    while (skip_name(p, "if")) {
        a = make(p, LS_JINJA_CONDITION, a, NULL);
        a->b = disjunction(p);
        if (skip_name(p, "else")) {
            if (enter(p)) {
                a->c = expression(p);
            }
            p->state->depth--;
        }
    }
    return a;
}

/* ---- statements ---- */

static node *target_item(parser *p)
{
    if (is_op(p, '(')) {
        next(p);
        node *made = enter(p) ? tuple(p, target_item, NULL, true) : make(p, LS_JINJA_TUPLE, NULL, NULL);
        p->state->depth--;
        expect_op(p, ')');
        return made;
    }
    node *made = name_or_keyword(p);
    if (p->at[-1].kind != LS_TOKEN_NAME || made->kind == LS_JINJA_CONST) {
        p->at--;
        fail_unexpected(p, "a name to assign to");
    } else if (ls_jv_is(made->value, "loop") && p->loops > 0) {
        fail(p, LS_ERR_DATA, "the variable loop of a loop can't be assigned");
    }
    return made;
}

static node *set_target_item(parser *p)
{
    node *made = target_item(p);
    if (made->kind == LS_JINJA_NAME && skip_op(p, '.')) {
        node *reference = make(p, LS_JINJA_REFERENCE, made, NULL);
        reference->value = expect_name(p);
        return reference;
    }
    return made;
}

static void end_tag(parser *p)
{
    if (p->at->kind != LS_TOKEN_BLOCK_END) {
        fail_unexpected(p, "the end of the tag");
    }
    next(p);
}

/* The body of a statement up to one of the tags `ends`, whose name is skipped. */
static node *body(parser *p, const char *const *ends)
{
    skip_op(p, ':');
    end_tag(p);
    node *made = statements(p, ends);
    if (p->at->kind == LS_TOKEN_EOF && !p->state->failed) {
        char text[80];
        snprintf(text, sizeof text, "{%% %s %%}", ends[0]);
        fail_unexpected(p, text);
    }
    return made;
}

static ls_jinja_scope *scope(parser *p, node *made)
{
    made->scope = ls_arena_new(&p->state->arena, ls_jinja_scope, 1);
    return made->scope;
}

static node *parse_for(parser *p)
{
    node *made = make(p, LS_JINJA_FOR, NULL, NULL);
    ls_jinja_scope *s = scope(p, made);
    p->loops++;
    made->a = tuple(p, target_item, "in", false);
    p->loops--;
    if (!skip_name(p, "in")) {
        fail_unexpected(p, "'in'");
    }
    made->b = tuple(p, disjunction, "recursive", false);
    s->test = skip_name(p, "if") ? expression(p) : NULL;
    s->is_recursive = skip_name(p, "recursive");
    p->loops++;
    made->body = body(p, (const char *const[]){"endfor", "else", NULL});
    p->loops--;
    if (is_name(p->at - 1, "else")) {
        const size_t loops = p->loops;
        p->loops = s->is_recursive ? 0 : loops;
        made->c = body(p, (const char *const[]){"endfor", NULL});
        p->loops = loops;
    }
    return made;
}

static node *parse_if(parser *p)
{
    node *first = NULL, *last = NULL;
    do {
        node *made = make(p, LS_JINJA_IF, NULL, NULL);
        made->a = tuple(p, disjunction, NULL, false);
        made->body = body(p, (const char *const[]){"endif", "elif", "else", NULL});
        if (last) {
            last->c = made;
        } else {
            first = made;
        }
        last = made;
    } while (is_name(p->at - 1, "elif") && !p->state->failed);
    if (is_name(p->at - 1, "else")) {
        last->c = body(p, (const char *const[]){"endif", NULL});
    }
    return first;
}

static node *parse_set(parser *p)
{
    node *made = make(p, LS_JINJA_SET, tuple(p, set_target_item, NULL, false), NULL);
    if (skip_op(p, '=')) {
        made->b = tuple(p, expression, NULL, false);
        return made;
    }
    made->kind = LS_JINJA_SET_BLOCK;
    scope(p, made);
    made->b = filters(p, NULL);
    made->body = body(p, (const char *const[]){"endset", NULL});
    return made;
}

static node *parse_with(parser *p)
{
    node *made = make(p, LS_JINJA_WITH, NULL, NULL);
    scope(p, made);
    while (p->at->kind == LS_TOKEN_NAME || is_op(p, '(') || is_op(p, ',')) {
        if (made->count > 0) {
            expect_op(p, ',');
        }
        add(p, made, tuple(p, target_item, NULL, false));
        expect_op(p, '=');
        add(p, made, expression(p));
    }
    made->body = body(p, (const char *const[]){"endwith", NULL});
    return made;
}

static void parameters(parser *p, node *made)
{
    node *defaults = make(p, LS_JINJA_BLOCK, NULL, NULL);
    expect_op(p, '(');
    while (!is_op(p, ')') && !p->state->failed) {
        if (made->count > 0) {
            expect_op(p, ',');
        }
        node *parameter = make(p, LS_JINJA_NAME, NULL, NULL);
        parameter->value = expect_name(p);
        for (size_t i = 0; i < made->count; i++) {
            if (ls_jv_equal(p->state, made->items[i]->value, parameter->value)) {
                fail(p, LS_ERR_DATA, "a parameter of a macro is there twice");
            }
        }
        add(p, made, parameter);
        if (skip_op(p, '=')) {
            add(p, defaults, expression(p));
        } else if (defaults->count > 0) {
            fail(p, LS_ERR_DATA, "a parameter without a default follows one with a default");
        }
    }
    expect_op(p, ')');
    made->scope->defaults = defaults->items;
    made->scope->default_count = defaults->count;
}

/* The body of a macro: a function of its own, so that no break leaves it. */
static void function_body(parser *p, node *made, const char *end)
{
    const size_t loops = p->loops;
    p->loops = 0;
    made->body = body(p, (const char *const[]){end, NULL});
    p->loops = loops;
}

static node *parse_macro(parser *p)
{
    node *made = make(p, LS_JINJA_MACRO, NULL, NULL);
    scope(p, made);
    made->value = expect_name(p);
    made->a = make(p, LS_JINJA_NAME, NULL, NULL);
    made->a->value = made->value;
    parameters(p, made);
    function_body(p, made, "endmacro");
    return made;
}

static node *parse_call(parser *p)
{
    node *made = make(p, LS_JINJA_CALL_BLOCK, NULL, NULL);
    scope(p, made);
    if (is_op(p, '(')) {
        parameters(p, made);
    }
    made->b = expression(p);
    if (made->b->kind != LS_JINJA_CALL) {
        fail(p, LS_ERR_DATA, "{% call %} needs a call");
    }
    function_body(p, made, "endcall");
    return made;
}

static node *parse_generation(parser *p)
{
    node *made = make(p, LS_JINJA_CALL_BLOCK, NULL, NULL);
    scope(p, made)->is_generation = true;
    function_body(p, made, "endgeneration");
    return made;
}

static node *parse_filter_block(parser *p)
{
    node *made = make(p, LS_JINJA_FILTER_BLOCK, NULL, NULL);
    scope(p, made);
    made->b = filters(p, filter(p, NULL));
    made->body = body(p, (const char *const[]){"endfilter", NULL});
    return made;
}

static node *parse_print(parser *p)
{
    node *made = make(p, LS_JINJA_BLOCK, NULL, NULL);
    while (p->at->kind != LS_TOKEN_BLOCK_END && !p->state->failed) {
        if (made->count > 0) {
            expect_op(p, ',');
        }
        add(p, made, make(p, LS_JINJA_PRINT, expression(p), NULL));
    }
    return made;
}

static node *parse_leave(parser *p)
{
    node *made = make(p, is_name(p->at - 1, "break") ? LS_JINJA_BREAK : LS_JINJA_CONTINUE, NULL, NULL);
    if (p->loops == 0) {
        fail(p, LS_ERR_DATA, "break and continue belong into a loop");
    }
    return made;
}

static const struct {
    const char *name;
    node *(*parse)(parser *p);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"generation", parse_generation},
    {"with", parse_with},
    {"call", parse_call},
    {"filter", parse_filter_block},
    {"print", parse_print},
    {"break", parse_leave},
    {"continue", parse_leave},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"extends", NULL},
    {"block", NULL},
    {"autoescape", NULL},
};

static node *statement(parser *p)
{
    const ls_jv name = p->at->value;
    char text[120];
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!is_name(p->at, tags[i].name)) {
            continue;
        }
        if (tags[i].parse) {
            next(p);
            return tags[i].parse(p);
        }
        snprintf(text, sizeof text, "{%% %s %%} is not supported in a chat template", tags[i].name);
        fail(p, LS_ERR_UNSUPPORTED, text);
        return NULL;
    }
    if (p->at->kind != LS_TOKEN_NAME) {
        fail_unexpected(p, "the name of a tag");
    } else {
        snprintf(text, sizeof text, "unknown tag, or one in the wrong place: {%% %.*s %%}",
                 (int)(name.bytes < 40 ? name.bytes : 40), name.text);
        fail(p, LS_ERR_DATA, text);
    }
    return NULL;
}

/* Text, prints and statements up to a tag of `ends` (skipped) or the end of the template. */
static node *statements(parser *p, const char *const *ends)
{
    node *made = make(p, LS_JINJA_BLOCK, NULL, NULL);
    if (!enter(p)) {
        return made;
    }
    while (p->at->kind != LS_TOKEN_EOF) {
        if (p->at->kind == LS_TOKEN_DATA) {
            node *text = make(p, LS_JINJA_TEXT, NULL, NULL);
            text->value = p->at->value;
            add(p, made, text);
            next(p);
        } else if (p->at->kind == LS_TOKEN_PRINT) {
            next(p);
            node *print = make(p, LS_JINJA_PRINT, NULL, NULL);
            print->a = tuple(p, expression, NULL, false);
            add(p, made, print);
            if (p->at->kind != LS_TOKEN_PRINT_END) {
                fail_unexpected(p, "'}}'");
            }
            next(p);
        } else {
            next(p);
            for (const char *const *end = ends; *end; end++) {
                if (skip_name(p, *end)) {
                    p->state->depth--;
                    return made;
                }
            }
            node *item = statement(p);
            if (item) {
                add(p, made, item);
                end_tag(p);
            }
        }
    }
    p->state->depth--;
    return made;
}

ls_jinja_node *ls_jinja_parse(ls_jinja_state *state, const ls_jinja_token *tokens)
{
    parser p = {.state = state, .at = tokens};
    node *root = statements(&p, (const char *const[]){NULL});
    return root;
}

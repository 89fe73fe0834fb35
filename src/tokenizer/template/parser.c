// SPDX-License-Identifier: Apache-2.0
/* From tokens to nodes: Jinja2's grammar, with its precedence. */
#include "tokenizer/template/jinja.h"

typedef ls_jinja_node node;
typedef ls_jinja_frame scope;

typedef struct parser {
    ls_jinja *j;
    const ls_jinja_token *at;
    scope *frame;
    size_t loops;        /* how many loops are around, within this macro */
    const node *unknown; /* a filter or test that there is not, outside of any `if` */
} parser;

/* What a macro may use without having it as a parameter: LS_JINJA_CALLER and so on. */
static const char *const specials[LS_JINJA_SPECIALS] = {"caller", "kwargs", "varargs"};

static node *expression(parser *p);
static node *statements(parser *p, const char *ends);

/* ---- tokens ---- */

/* After a failure there is nothing more to read, so that every loop ends. */
static void fail(parser *p, ls_status status, const char *text)
{
    p->j->line = p->at->line;
    ls_jinja_fail(p->j, status, "%s", text);
    while (p->at->kind != LS_TOKEN_EOF) {
        p->at++;
    }
}

static void fail_unexpected(parser *p, const char *wanted)
{
    const ls_jv found = p->at->value.kind == LS_JV_STRING ? p->at->value : ls_jv_text("a number", 8);
    char text[160];
    snprintf(text, sizeof text, "%s expected, found '%.*s'", wanted,
             (int)(found.bytes < 60 ? found.bytes : 60), found.text);
    fail(p, LS_ERR_DATA, text);
}

/* Whether an operator, a name or the end of a tag comes next. */
static bool is(const parser *p, const char *text)
{
    return (p->at->kind == LS_TOKEN_OP || p->at->kind == LS_TOKEN_NAME) && ls_jv_is(p->at->value, text);
}

static bool skip(parser *p, const char *text)
{
    const bool is_here = is(p, text);
    p->at += is_here;
    return is_here;
}

static bool was(const parser *p, const char *text)
{
    return ls_jv_is(p->at[-1].value, text);
}

static void expect(parser *p, const char *text)
{
    if (!skip(p, text)) {
        char wanted[8];
        snprintf(wanted, sizeof wanted, "'%s'", text);
        fail_unexpected(p, wanted);
    }
}

static ls_jv expect_name(parser *p)
{
    if (p->at->kind != LS_TOKEN_NAME) {
        fail_unexpected(p, "a name");
        return ls_jv_text("", 0);
    }
    return p->at++->value;
}

/* Between the items of a list that `end` ends: false at the end. Before an item after the first, a
 * comma is needed. */
static bool next_item(parser *p, const node *list, const char *end)
{
    if (list->count > 0 && !is(p, end)) {
        expect(p, ",");
    }
    return !is(p, end) && !p->j->failed;
}

/* Expressions and blocks inside each other; false at the limit. Leave it by depth--. */
static bool enter(parser *p)
{
    if (++p->j->depth > LS_JINJA_NESTING_MAX) {
        fail(p, LS_ERR_DATA, "more than 200 expressions or blocks inside each other");
        return false;
    }
    return true;
}

/* ---- nodes ---- */

static node *make(parser *p, ls_jinja_kind kind, node *a)
{
    node *made = ls_arena_new(&p->j->arena, node, 1);
    *made = (node){.kind = kind, .line = p->at->line, .a = a};
    return made;
}

static node *operation(parser *p, ls_jinja_kind kind, uint16_t op, node *a)
{
    node *made = make(p, kind, a);
    made->op = op;
    return made;
}

static void add(parser *p, node *list, node *item)
{
    list->items = ls_jinja_grow(p->j, list->items, list->count, &list->capacity, sizeof item);
    list->items[list->count++] = item;
}

/* ---- names ---- */

static uint32_t load(parser *p, ls_jv name)
{
    for (int i = 0; i < LS_JINJA_SPECIALS; i++) {
        for (scope *f = ls_jv_is(name, specials[i]) ? p->frame : NULL; f; f = f->outer) {
            f->wants[i] = true;
        }
    }
    return ls_jinja_slot_of(p->j, p->frame, name, LS_LOAD_GIVEN);
}

/* Names that are assigned: to variables of this frame, or, is_parameter, to its parameters. */
static void store(parser *p, node *target, bool is_parameter)
{
    const ls_jinja_load otherwise = p->frame->branches > 0 ? LS_LOAD_GIVEN : LS_LOAD_NOTHING;
    if (target->kind == LS_JINJA_NAME) {
        target->slot =
            ls_jinja_slot_of(p->j, p->frame, target->value, is_parameter ? LS_LOAD_PARAMETER : otherwise);
    } else if (target->kind == LS_JINJA_ATTRIBUTE) {
        target->a->slot = load(p, target->a->value);
    }
    for (size_t i = 0; i < target->count; i++) {
        store(p, target->items[i], is_parameter);
    }
}

/* A frame inside the current one; it becomes the current one, until p->frame is its outer. */
static scope *push_frame(parser *p)
{
    scope *made = ls_arena_new(&p->j->arena, scope, 1), *root = p->frame;
    while (root->outer) {
        root = root->outer;
    }
    made->outer = p->frame;
    made->next = root->next;
    root->next = made;
    return p->frame = made;
}

/* ---- expressions ---- */

/* Items with commas between them: a tuple, or one item alone without a comma. `end`: a name that
 * ends it too. */
static node *tuple(parser *p, node *(*item)(parser *), const char *end, bool in_brackets)
{
    node *items = make(p, LS_JINJA_TUPLE, NULL);
    bool is_tuple = false;
    while (p->at->kind != LS_TOKEN_EOF && !is(p, "}}") && !is(p, "%}") && !is(p, ")") &&
           !(end && is(p, end))) {
        add(p, items, item(p));
        if (!skip(p, ",")) {
            break;
        }
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
    const bool is_list = is(p, "[");
    const char *end = is_list ? "]" : "}";
    node *made = make(p, is_list ? LS_JINJA_LIST : LS_JINJA_DICT, NULL);
    p->at++;
    while (next_item(p, made, end)) {
        add(p, made, expression(p));
        if (!is_list) {
            expect(p, ":");
            add(p, made, expression(p));
        }
    }
    expect(p, end);
    return made;
}

static node *constant(parser *p)
{
    node *made = make(p, LS_JINJA_CONST, NULL);
    made->value = p->at++->value;
    while (made->value.kind == LS_JV_STRING && p->at->kind == LS_TOKEN_CONST &&
           p->at->value.kind == LS_JV_STRING) {
        made->value = ls_jv_join(p->j, made->value, p->at++->value);
    }
    return made;
}

/* A variable, not yet looked for, or one of the words that are constants. */
static node *word(parser *p)
{
    node *made = make(p, LS_JINJA_NAME, NULL);
    made->value = p->at++->value;
    const int which = ls_jinja_word("false False true True none None", made->value);
    if (which >= 0) {
        made->kind = LS_JINJA_CONST;
        made->value = which < 4 ? ls_jv_bool(which >= 2) : ls_jv_none();
    }
    return made;
}

static node *primary(parser *p)
{
    node *made;
    if (p->at->kind == LS_TOKEN_NAME) {
        made = word(p);
        made->slot = made->kind == LS_JINJA_NAME ? load(p, made->value) : 0;
    } else if (p->at->kind == LS_TOKEN_CONST) {
        made = constant(p);
    } else if (skip(p, "(")) {
        made = tuple(p, expression, NULL, true);
        expect(p, ")");
    } else if (is(p, "[") || is(p, "{")) {
        made = list_or_dict(p);
    } else {
        fail_unexpected(p, "an expression");
        made = make(p, LS_JINJA_CONST, NULL);
    }
    return made;
}

/* A part of a slice; NULL when it is left out. */
static node *bound(parser *p)
{
    return is(p, ":") || is(p, "]") || is(p, ",") ? NULL : expression(p);
}

static node *subscript(parser *p, node *a)
{
    node *made = make(p, LS_JINJA_ITEM, a);
    if (skip(p, ".")) {
        if (p->at->kind == LS_TOKEN_CONST && p->at->value.kind == LS_JV_INT) {
            made->b = constant(p);
        } else {
            made->kind = LS_JINJA_ATTRIBUTE;
            made->value = expect_name(p);
            made->builtin = ls_jinja_builtin_find(LS_AT_VALUES, made->value);
        }
        return made;
    }
    p->at++;
    made->b = bound(p);
    if (skip(p, ":")) {
        made->kind = LS_JINJA_SLICE;
        add(p, made, made->b);
        add(p, made, bound(p));
        add(p, made, skip(p, ":") ? bound(p) : NULL);
    } else if (!made->b) {
        fail_unexpected(p, "a subscript");
    }
    if (is(p, ",")) {
        fail(p, LS_ERR_UNSUPPORTED, "several subscripts in one pair of brackets are not supported");
    }
    expect(p, "]");
    return made;
}

/* One argument; `last` is the op of the one before it. */
static node *argument(parser *p, const node *call, uint16_t last)
{
    const uint16_t rest = LS_JINJA_OP('*', '*');
    node *made = operation(p, LS_JINJA_OPERAND, skip(p, "*") ? '*' : skip(p, "**") ? rest : 0, NULL);
    if (!made->op && p->at->kind == LS_TOKEN_NAME && p->at[1].kind == LS_TOKEN_OP &&
        ls_jv_is(p->at[1].value, "=")) {
        made->op = '=';
        made->value = p->at->value;
        p->at += 2;
    }
    made->a = expression(p);
    bool is_allowed = last != rest && (made->op || !last) && !(made->op == '*' && last == '*');
    for (size_t i = 0; i < call->count && made->op == '='; i++) {
        const node *other = call->items[i];
        is_allowed = is_allowed && !(other->op == '=' && ls_jv_same_text(other->value, made->value));
    }
    if (!is_allowed) {
        fail(p, LS_ERR_DATA, "the arguments of a call are in the wrong order, or one is given twice");
    }
    return made;
}

/* The arguments of `call` in brackets, or none. */
static node *arguments(parser *p, node *call)
{
    if (skip(p, "(")) {
        while (next_item(p, call, ")")) {
            add(p, call, argument(p, call, call->count > 0 ? call->items[call->count - 1]->op : 0));
        }
        expect(p, ")");
    }
    return call;
}

/* The name of a filter or test, which may have dots, and which one it is. */
static node *named(parser *p, ls_jinja_kind kind, node *a)
{
    node *made = make(p, kind, a);
    made->value = expect_name(p);
    while (skip(p, ".")) {
        made->value = ls_jv_join(p->j, made->value, ls_jv_text(".", 1));
        made->value = ls_jv_join(p->j, made->value, expect_name(p));
    }
    made->builtin = ls_jinja_builtin_find(kind == LS_JINJA_FILTER ? LS_AT_FILTER : LS_AT_TEST, made->value);
    if (!(made->builtin && made->builtin->run) && p->frame->branches == 0 && !p->unknown) {
        p->unknown = made;
    }
    return made;
}

static node *filters(parser *p, node *a)
{
    while (skip(p, "|")) {
        a = arguments(p, named(p, LS_JINJA_FILTER, a));
    }
    return a;
}

/* Subscripts and calls after `a`. */
static node *postfix(parser *p, node *a)
{
    for (;;) {
        if (is(p, ".") || is(p, "[")) {
            a = subscript(p, a);
        } else if (is(p, "(")) {
            a = arguments(p, make(p, LS_JINJA_CALL, a));
        } else {
            return a;
        }
    }
}

static node *test(parser *p, node *a)
{
    const bool is_negated = skip(p, "not");
    node *made = named(p, LS_JINJA_TEST, a);
    const bool ends = is(p, "else") || is(p, "or") || is(p, "and");
    if (is(p, "(")) {
        arguments(p, made);
    } else if (is(p, "is")) {
        fail(p, LS_ERR_DATA, "tests with 'is' can't follow each other");
    } else if ((p->at->kind == LS_TOKEN_NAME && !ends) || p->at->kind == LS_TOKEN_CONST || is(p, "[") ||
               is(p, "{")) {
        add(p, made, operation(p, LS_JINJA_OPERAND, 0, postfix(p, primary(p))));
    }
    return is_negated ? operation(p, LS_JINJA_UNARY, '!', made) : made;
}

static node *unary(parser *p, bool with_filters)
{
    node *a;
    if (!enter(p)) {
        a = make(p, LS_JINJA_CONST, NULL);
    } else if (is(p, "-") || is(p, "+")) {
        a = operation(p, LS_JINJA_UNARY, (uint8_t)*p->at->value.text, NULL);
        p->at++;
        a->a = unary(p, false);
    } else {
        a = primary(p);
    }
    p->j->depth--;
    a = postfix(p, a);
    while (with_filters && (is(p, "|") || is(p, "is") || is(p, "("))) {
        a = is(p, "(") ? postfix(p, a) : skip(p, "is") ? test(p, a) : filters(p, a);
    }
    return a;
}

/* The binary operators by precedence. */
enum { NOT = 2, COMPARISON, UNARY = 8 };
static const char *const operators[UNARY] = {
    "or", "and", "", "in == != <= >= < >", "+ -", "~", "* / // %", "**",
};

/* Skips an operator of this precedence and returns it; 0: none begins here. */
static uint16_t skip_operator(parser *p, int level)
{
    const ls_jv text = p->at->value;
    if (level == COMPARISON && is(p, "not") && p->at[1].kind == LS_TOKEN_NAME &&
        ls_jv_is(p->at[1].value, "in")) {
        p->at += 2;
        return LS_JINJA_NOT_IN;
    }
    if ((p->at->kind != LS_TOKEN_OP && p->at->kind != LS_TOKEN_NAME) ||
        ls_jinja_word(operators[level], text) < 0) {
        return 0;
    }
    p->at++;
    return LS_JINJA_OP((uint8_t)text.text[0], text.bytes > 1 ? (uint8_t)text.text[1] : 0);
}

/* Operands with operators of one precedence between them, grouped from the left; comparisons are
 * a chain. */
static node *binary(parser *p, int level)
{
    size_t negations = 0;
    if (level == UNARY) {
        return unary(p, true);
    }
    while (level == NOT && skip(p, "not")) {
        negations++;
    }
    node *a = binary(p, level + 1), *chain = NULL;
    for (uint16_t op = skip_operator(p, level); op; op = skip_operator(p, level)) {
        if (level == COMPARISON) {
            chain = chain ? chain : make(p, LS_JINJA_COMPARE, a);
            add(p, chain, operation(p, LS_JINJA_OPERAND, op, binary(p, level + 1)));
        } else {
            a = operation(p, LS_JINJA_BINARY, op, a);
            a->b = binary(p, level + 1);
        }
    }
    a = chain ? chain : a;
    for (; negations > 0; negations--) {
        a = operation(p, LS_JINJA_UNARY, '!', a);
    }
    return a;
}

static node *disjunction(parser *p)
{
    node *a = enter(p) ? binary(p, 0) : make(p, LS_JINJA_CONST, NULL);
    p->j->depth--;
    return a;
}

static node *expression(parser *p)
{
    const node *unknown = p->unknown;
    node *a = disjunction(p);
    p->frame->branches++;
    while (skip(p, "if")) {
        p->unknown = unknown; /* filters within a condition are looked for when they are used */
        a = make(p, LS_JINJA_CONDITION, a);
        a->b = disjunction(p);
        if (skip(p, "else")) {
            a->c = enter(p) ? expression(p) : NULL;
            p->j->depth--;
        }
    }
    p->frame->branches--;
    return a;
}

/* ---- statements ---- */

/* A name to assign to, or several in brackets. */
static node *target_item(parser *p)
{
    if (skip(p, "(")) {
        node *made = enter(p) ? tuple(p, target_item, NULL, true) : make(p, LS_JINJA_TUPLE, NULL);
        p->j->depth--;
        expect(p, ")");
        return made;
    }
    const ls_jinja_token *at = p->at;
    node *made = at->kind == LS_TOKEN_NAME ? word(p) : make(p, LS_JINJA_CONST, NULL);
    if (made->kind == LS_JINJA_CONST) {
        p->at = at;
        fail_unexpected(p, "a name to assign to");
    } else if (ls_jv_is(made->value, "loop") && p->loops > 0) {
        fail(p, LS_ERR_DATA, "the variable loop of a loop can't be assigned");
    }
    return made;
}

static node *set_target_item(parser *p)
{
    node *made = target_item(p);
    if (made->kind == LS_JINJA_NAME && skip(p, ".")) {
        made = make(p, LS_JINJA_ATTRIBUTE, made);
        made->value = expect_name(p);
    }
    return made;
}

/* The body of a statement up to one of the tags `ends`, whose name is skipped. */
static node *body(parser *p, const char *ends)
{
    skip(p, ":");
    expect(p, "%}");
    node *made = statements(p, ends);
    if (p->at->kind == LS_TOKEN_EOF && !p->j->failed) {
        char text[80];
        snprintf(text, sizeof text, "{%% %.*s %%}", (int)strcspn(ends, " "), ends);
        fail_unexpected(p, text);
    }
    return made;
}

/* The same as the end of the frame that is current, of which `made` is the statement. */
static node *end_frame(parser *p, node *made, const char *ends)
{
    made->frame = p->frame;
    made->body = body(p, ends);
    p->frame = p->frame->outer;
    return made;
}

static node *parse_for(parser *p)
{
    node *made = make(p, LS_JINJA_FOR, NULL);
    const size_t loops = p->loops++;
    made->a = tuple(p, target_item, "in", false);
    p->loops = loops;
    if (!skip(p, "in")) {
        fail_unexpected(p, "'in'");
    }
    made->b = tuple(p, disjunction, "recursive", false);
    if (skip(p, "if")) {
        /* The targets have the same slots in both frames. */
        scope *inner = push_frame(p);
        store(p, made->a, true);
        made->test = expression(p);
        made->test->frame = inner;
        p->frame = inner->outer;
    }
    made->is_recursive = skip(p, "recursive");
    push_frame(p);
    store(p, made->a, true);
    p->frame->loop_slot = ls_jinja_slot_of(p->j, p->frame, ls_jv_text("loop", 4), LS_LOAD_PARAMETER);
    p->loops = loops + 1;
    end_frame(p, made, "endfor else");
    if (was(p, "else")) {
        p->loops = made->is_recursive ? 0 : loops;
        push_frame(p);
        made->c = end_frame(p, make(p, LS_JINJA_BLOCK, NULL), "endfor");
    }
    p->loops = loops;
    return made;
}

static node *parse_if(parser *p)
{
    node *first = NULL, **last = &first;
    p->frame->branches++;
    do {
        node *made = make(p, LS_JINJA_IF, NULL);
        made->a = tuple(p, disjunction, NULL, false);
        made->body = body(p, "endif elif else");
        *last = made;
        last = &made->c;
    } while (was(p, "elif") && !p->j->failed);
    if (was(p, "else")) {
        *last = body(p, "endif");
    }
    p->frame->branches--;
    return first;
}

static node *parse_set(parser *p)
{
    node *made = make(p, LS_JINJA_SET, tuple(p, set_target_item, NULL, false));
    if (skip(p, "=")) {
        made->b = tuple(p, expression, NULL, false);
    } else {
        push_frame(p);
        made->c = filters(p, NULL);
        end_frame(p, made, "endset");
    }
    store(p, made->a, false);
    return made;
}

static node *parse_filter_block(parser *p)
{
    node *made = make(p, LS_JINJA_FILTER_BLOCK, NULL);
    push_frame(p);
    made->c = filters(p, arguments(p, named(p, LS_JINJA_FILTER, NULL)));
    return end_frame(p, made, "endfilter");
}

static node *parse_with(parser *p)
{
    node *made = make(p, LS_JINJA_WITH, NULL);
    while (next_item(p, made, "%}")) {
        add(p, made, tuple(p, target_item, NULL, false));
        expect(p, "=");
        add(p, made, expression(p));
    }
    push_frame(p);
    for (size_t i = 0; i < made->count; i += 2) {
        store(p, made->items[i], true);
    }
    return end_frame(p, made, "endwith");
}

static void parameters(parser *p, node *made)
{
    expect(p, "(");
    while (next_item(p, made, ")")) {
        node *parameter = make(p, LS_JINJA_NAME, NULL);
        parameter->value = expect_name(p);
        const ls_jinja_slot *before = ls_jinja_slot_find(p->frame, parameter->value);
        if (before && before->load == LS_LOAD_PARAMETER) {
            fail(p, LS_ERR_DATA, "a parameter of a macro is there twice");
        }
        store(p, parameter, true);
        if (skip(p, "=")) {
            parameter->b = expression(p);
        } else if (made->count > 0 && made->items[made->count - 1]->b) {
            fail(p, LS_ERR_DATA, "a parameter without a default follows one with a default");
        }
        add(p, made, parameter);
    }
    expect(p, ")");
}

/* The body of a macro: a function of its own, so that no break leaves it. */
static node *macro_body(parser *p, node *made, const char *end)
{
    const size_t loops = p->loops;
    scope *f = p->frame;
    p->loops = 0;
    memset(f->wants, 0, sizeof f->wants);
    end_frame(p, made, end);
    p->loops = loops;
    p->frame = f;
    for (int i = 0; i < LS_JINJA_SPECIALS; i++) {
        const ls_jv name = ls_jv_text(specials[i], strlen(specials[i]));
        const ls_jinja_slot *slot = ls_jinja_slot_find(f, name);
        f->wants[i] = f->wants[i] && !(slot && slot->load == LS_LOAD_PARAMETER);
        f->special_slots[i] = f->wants[i] ? ls_jinja_slot_of(p->j, p->frame, name, LS_LOAD_PARAMETER) : 0;
    }
    p->frame = f->outer;
    return made;
}

static node *parse_macro(parser *p)
{
    node *made = make(p, LS_JINJA_MACRO, make(p, LS_JINJA_NAME, NULL));
    made->value = made->a->value = expect_name(p);
    store(p, made->a, false);
    push_frame(p);
    parameters(p, made);
    return macro_body(p, made, "endmacro");
}

static node *parse_call(parser *p)
{
    node *made = make(p, LS_JINJA_CALL_BLOCK, NULL);
    scope *outer = p->frame, *inner = push_frame(p);
    if (is(p, "(")) {
        parameters(p, made);
    }
    p->frame = outer;
    made->b = expression(p);
    if (made->b->kind != LS_JINJA_CALL) {
        fail(p, LS_ERR_DATA, "{% call %} needs a call");
    }
    p->frame = inner;
    return macro_body(p, made, "endcall");
}

static node *parse_generation(parser *p)
{
    push_frame(p);
    return macro_body(p, make(p, LS_JINJA_CALL_BLOCK, NULL), "endgeneration");
}

static node *parse_leave(parser *p)
{
    if (p->loops == 0) {
        fail(p, LS_ERR_DATA, "break and continue belong into a loop");
    }
    return make(p, was(p, "break") ? LS_JINJA_BREAK : LS_JINJA_CONTINUE, NULL);
}

static node *statement(parser *p)
{
    static const char tags[] = "if for set macro generation with call filter break continue "
                               "include import from extends block autoescape print";
    static node *(*const parse[])(parser *) = {
        parse_if,   parse_for,  parse_set,          parse_macro, parse_generation,
        parse_with, parse_call, parse_filter_block, parse_leave, parse_leave,
    };
    const ls_jv name = p->at->value;
    const int tag = p->at->kind == LS_TOKEN_NAME ? ls_jinja_word(tags, name) : -1;
    if (tag >= 0 && tag < (int)(sizeof parse / sizeof *parse)) {
        p->at++;
        return parse[tag](p);
    }
    if (p->at->kind == LS_TOKEN_NAME) {
        char text[120];
        snprintf(text, sizeof text, "%s{%% %.*s %%}%s",
                 tag < 0 ? "unknown tag, or one in the wrong place: " : "",
                 (int)(name.bytes < 40 ? name.bytes : 40), name.text,
                 tag < 0 ? "" : " is not supported in a chat template");
        fail(p, tag < 0 ? LS_ERR_DATA : LS_ERR_UNSUPPORTED, text);
    } else {
        fail_unexpected(p, "the name of a tag");
    }
    return NULL;
}

/* What comes next in a body: text, a print or a statement. NULL: one of the tags `ends`, which is
 * skipped, or a failure. */
static node *body_item(parser *p, const char *ends)
{
    node *made;
    if (p->at->kind == LS_TOKEN_DATA) {
        made = make(p, LS_JINJA_TEXT, NULL);
        made->value = p->at++->value;
    } else if (skip(p, "{{")) {
        made = make(p, LS_JINJA_PRINT, NULL);
        made->a = tuple(p, expression, NULL, false);
        expect(p, "}}");
    } else {
        p->at++;
        if (p->at->kind == LS_TOKEN_NAME && ls_jinja_word(ends, p->at->value) >= 0) {
            p->at++;
            return NULL;
        }
        made = statement(p);
        expect(p, "%}");
    }
    return made;
}

/* Text, prints and statements up to a tag of `ends` (skipped) or the end of the template. */
static node *statements(parser *p, const char *ends)
{
    node *made = make(p, LS_JINJA_BLOCK, NULL), *item = made;
    enter(p);
    while (item && p->at->kind != LS_TOKEN_EOF) {
        item = body_item(p, ends);
        if (item) {
            add(p, made, item);
        }
    }
    p->j->depth--;
    return made;
}

ls_jinja_node *ls_jinja_parse(ls_jinja *j, const ls_jinja_token *tokens, ls_jinja_frame *frame)
{
    parser p = {.j = j, .at = tokens, .frame = frame};
    node *root = statements(&p, "");
    if (p.unknown) {
        j->line = p.unknown->line;
        ls_jinja_fail_builtin(j, p.unknown);
    }
    ls_jinja_resolve(frame);
    return root;
}

// SPDX-License-Identifier: Apache-2.0
/* Evaluating expressions, and calling what they call. */
#include "tokenizer/template/jinja.h"

typedef ls_jinja_node node;

enum { PARAMETERS_MAX = 8 };

/* ---- calls ---- */

/* The values of *values. */
static void add_values(ls_jinja_state *state, ls_jinja_list *list, ls_jv values)
{
    ls_jv item;
    ls_jinja_iterator *iterator = ls_jv_iterate(state, values);
    while (iterator && ls_jinja_next(state, iterator, &item)) {
        ls_jv_push(state, list, item);
    }
}

/* The entries of **more. */
static void add_entries(ls_jinja_state *state, ls_jinja_dict *keywords, ls_jv more)
{
    if (more.kind != LS_JV_DICT) {
        ls_jinja_refuse(state, "the argument after ** must be a mapping, not %s", ls_jv_type(more));
        return;
    }
    for (size_t i = 0; i < more.dict->count; i++) {
        if (more.dict->keys[i].kind != LS_JV_STRING ||
            ls_jinja_dict_find(state, keywords, more.dict->keys[i])) {
            ls_jinja_refuse(state, "the keys after ** must be new names");
        }
        ls_jinja_dict_set(state, keywords, more.dict->keys[i], more.dict->values[i]);
    }
}

ls_jinja_args ls_jinja_arguments(ls_jinja_state *state, const node *call)
{
    ls_jinja_dict *keywords = NULL;
    ls_jinja_list list = {0};
    for (size_t i = 0; i < call->count && !state->failed; i++) {
        const node *n = call->items[i];
        const ls_jv value = ls_jinja_evaluate(state, n->a);
        if (n->op && n->op != '*' && !keywords) {
            keywords = ls_jinja_dict_new(state, 2);
        }
        if (n->op == 0) {
            ls_jv_push(state, &list, value);
        } else if (n->op == '*') {
            add_values(state, &list, value);
        } else if (n->op == '=') {
            ls_jinja_dict_set(state, keywords, n->value, value);
        } else {
            add_entries(state, keywords, value);
        }
    }
    return (ls_jinja_args){.positional = list.items, .count = list.count, .keywords = keywords};
}

const ls_jinja_builtin *ls_jinja_builtin_find(const ls_jinja_builtin *list, size_t count, ls_jv name)
{
    for (size_t i = 0; i < count; i++) {
        if (ls_jv_is(name, list[i].name)) {
            return &list[i];
        }
    }
    return NULL;
}

/* Puts the arguments under the parameters that `builtin` names; false: they do not fit. */
static bool bind_arguments(ls_jinja_state *state, const ls_jinja_builtin *builtin, const ls_jinja_args *args,
                           ls_jv given[PARAMETERS_MAX])
{
    const char *at = builtin->parameters;
    const bool is_positional = *at == '/';
    size_t count = 0, used = 0;
    at += is_positional;
    while (*at && !state->failed) {
        const bool must = *at == '!';
        at += must;
        const size_t bytes = strcspn(at, " ");
        const ls_jv *named = args->keywords && !is_positional
                                 ? ls_jinja_dict_find(state, args->keywords, ls_jv_text(at, bytes))
                                 : NULL;
        given[count] = ls_jv_undefined();
        if (count < args->count) {
            given[count] = args->positional[count];
            if (named) {
                ls_jinja_refuse(state, "%s() got two values for '%.*s'", builtin->name, (int)bytes, at);
            }
        } else if (named) {
            given[count] = *named;
            used++;
        } else if (must) {
            ls_jinja_refuse(state, "%s() needs the argument '%.*s'", builtin->name, (int)bytes, at);
        }
        count++;
        at += bytes + (at[bytes] == ' ');
    }
    if (args->count > count) {
        ls_jinja_refuse(state, "%s() takes at most %zu arguments, not %zu", builtin->name, count,
                        args->count);
    } else if (args->keywords && args->keywords->count > used) {
        ls_jinja_refuse(state, "%s() got an unexpected keyword argument", builtin->name);
    }
    return !state->failed;
}

ls_jv ls_jinja_call_builtin(ls_jinja_state *state, const ls_jinja_builtin *builtin, ls_jv self,
                            const ls_jinja_args *args)
{
    ls_jv given[PARAMETERS_MAX] = {0};
    if (state->failed || (builtin->parameters && !bind_arguments(state, builtin, args, given))) {
        return ls_jv_undefined();
    }
    if (!ls_jinja_enter(state)) {
        return ls_jv_undefined();
    }
    const ls_jv v = builtin->run(state, &(ls_jinja_use){self, given, args, builtin->how});
    state->depth--;
    return v;
}

ls_jv ls_jinja_call(ls_jinja_state *state, ls_jv callee, const ls_jinja_args *args)
{
    switch (callee.kind) {
    case LS_JV_FUNCTION:
        return ls_jinja_call_builtin(state, callee.function, ls_jv_undefined(), args);
    case LS_JV_METHOD:
        return ls_jinja_call_builtin(state, callee.method->builtin, callee.method->self, args);
    case LS_JV_MACRO:
        return ls_jinja_call_macro(state, callee.macro, args);
    case LS_JV_LOOP:
        if (args->count != 1 || args->keywords) {
            return ls_jinja_refuse(state, "loop() takes one argument");
        }
        return ls_jinja_call_loop(state, callee.loop, args->positional[0]);
    case LS_JV_UNDEFINED:
        return ls_jv_fail_undefined(state, callee);
    default:
        return ls_jinja_refuse(state, "'%s' object is not callable", ls_jv_type(callee));
    }
}

/* ---- expressions ---- */

static ls_jv variable(ls_jinja_state *state, const node *n)
{
    const ls_jinja_env *env = state->env;
    for (uint32_t i = 0; i < n->hops; i++) {
        env = env->outer;
    }
    const ls_jv v = env->slots[n->slot];
    if (v.kind != LS_JV_UNDEFINED || v.missing) {
        return v;
    }
    ls_jinja_missing *missing = ls_jinja_take(state, sizeof *missing);
    *missing = (ls_jinja_missing){.name = n->value};
    return (ls_jv){.kind = LS_JV_UNDEFINED, .missing = missing};
}

static ls_jv display(ls_jinja_state *state, const node *n)
{
    if (n->kind == LS_JINJA_DICT) {
        ls_jinja_dict *dict = ls_jinja_dict_new(state, n->count / 2);
        for (size_t i = 0; i < n->count && !state->failed; i += 2) {
            const ls_jv key = ls_jinja_evaluate(state, n->items[i]);
            ls_jinja_dict_set(state, dict, key, ls_jinja_evaluate(state, n->items[i + 1]));
        }
        return (ls_jv){.kind = LS_JV_DICT, .dict = dict};
    }
    const ls_jv list = ls_jv_list(state, n->kind == LS_JINJA_LIST ? LS_JV_LIST : LS_JV_TUPLE, n->count);
    for (size_t i = 0; i < n->count && !state->failed; i++) {
        ls_jv_push(state, list.list, ls_jinja_evaluate(state, n->items[i]));
    }
    return list;
}

static bool compare(ls_jinja_state *state, uint16_t op, ls_jv a, ls_jv b)
{
    switch (op) {
    case LS_JINJA_OP('=', '='):
        return ls_jv_equal(state, a, b);
    case LS_JINJA_OP('!', '='):
        return !ls_jv_equal(state, a, b);
    case '<':
        return ls_jv_less(state, a, b);
    case '>':
        return ls_jv_less(state, b, a);
    case LS_JINJA_OP('<', '='):
        return ls_jv_less(state, a, b) || ls_jv_equal(state, a, b);
    case LS_JINJA_OP('>', '='):
        return ls_jv_less(state, b, a) || ls_jv_equal(state, a, b);
    case LS_JINJA_IN:
        return ls_jv_contains(state, b, a);
    default:
        return !ls_jv_contains(state, b, a);
    }
}

static ls_jv comparison(ls_jinja_state *state, const node *n)
{
    ls_jv a = ls_jinja_evaluate(state, n->a);
    for (size_t i = 0; i < n->count && !state->failed; i++) {
        const ls_jv b = ls_jinja_evaluate(state, n->items[i]->a);
        if (!compare(state, n->items[i]->op, a, b)) {
            return ls_jv_bool(false);
        }
        a = b;
    }
    return ls_jv_bool(true);
}

static ls_jv unary(ls_jinja_state *state, const node *n)
{
    const ls_jv a = ls_jinja_evaluate(state, n->a);
    if (a.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, a);
    }
    if (!ls_jv_is_number(a)) {
        return ls_jinja_refuse(state, "bad operand type for unary %c: '%s'", n->op, ls_jv_type(a));
    }
    if (a.kind == LS_JV_FLOAT) {
        return ls_jv_float(n->op == '-' ? -a.real : a.real);
    }
    return n->op == '-' ? ls_jv_binary(state, '-', ls_jv_int(0), a) : ls_jv_int(ls_jv_whole(a));
}

static ls_jv condition(ls_jinja_state *state, const node *n)
{
    if (ls_jv_truth(state, ls_jinja_evaluate(state, n->b))) {
        return ls_jinja_evaluate(state, n->a);
    }
    if (n->c) {
        return ls_jinja_evaluate(state, n->c);
    }
    return ls_jv_missing(state,
                         "the inline if-expression evaluated to false and no else section was defined.");
}

static ls_jv binary(ls_jinja_state *state, const node *n)
{
    const ls_jv a = ls_jinja_evaluate(state, n->a);
    if (n->op == LS_JINJA_AND || n->op == LS_JINJA_OR) {
        return ls_jv_truth(state, a) == (n->op == LS_JINJA_AND) ? ls_jinja_evaluate(state, n->b) : a;
    }
    const ls_jv b = ls_jinja_evaluate(state, n->b);
    if (n->op != '~' || state->failed) {
        return state->failed ? a : ls_jv_binary(state, n->op, a, b);
    }
    ls_jv text = ls_jv_join(state, ls_jv_string(state, a), ls_jv_string(state, b));
    text.markup = false;
    return text;
}

static ls_jv slice(ls_jinja_state *state, const node *n)
{
    ls_jv bounds[3];
    const ls_jv object = ls_jinja_evaluate(state, n->a);
    for (int i = 0; i < 3; i++) {
        bounds[i] = n->items[i] ? ls_jinja_evaluate(state, n->items[i]) : ls_jv_none();
    }
    return state->failed ? ls_jv_undefined() : ls_jv_slice(state, object, bounds);
}

static ls_jv filter_or_test(ls_jinja_state *state, const node *n, ls_jv self)
{
    if (!n->builtin) {
        ls_jinja_fail_builtin(state, n->value, n->kind == LS_JINJA_TEST);
        return ls_jv_undefined();
    }
    const ls_jinja_args args = ls_jinja_arguments(state, n);
    state->line = n->line;
    return ls_jinja_call_builtin(state, n->builtin, self, &args);
}

static ls_jv call(ls_jinja_state *state, const node *n)
{
    const ls_jv callee = ls_jinja_evaluate(state, n->a);
    const ls_jinja_args args = ls_jinja_arguments(state, n);
    state->line = n->line;
    return state->failed ? ls_jv_undefined() : ls_jinja_call(state, callee, &args);
}

static ls_jv evaluate_node(ls_jinja_state *state, const node *n)
{
    ls_jv a, b;
    switch (n->kind) {
    case LS_JINJA_CONST:
        return n->value;
    case LS_JINJA_NAME:
        return variable(state, n);
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE:
    case LS_JINJA_DICT:
        return display(state, n);
    case LS_JINJA_BINARY:
        return binary(state, n);
    case LS_JINJA_UNARY:
        return unary(state, n);
    case LS_JINJA_NOT:
        return ls_jv_bool(!ls_jv_truth(state, ls_jinja_evaluate(state, n->a)));
    case LS_JINJA_COMPARE:
        return comparison(state, n);
    case LS_JINJA_CONDITION:
        return condition(state, n);
    case LS_JINJA_ATTRIBUTE:
        a = ls_jinja_evaluate(state, n->a);
        return state->failed ? a : ls_jv_attribute(state, a, n->value);
    case LS_JINJA_ITEM:
        a = ls_jinja_evaluate(state, n->a);
        b = ls_jinja_evaluate(state, n->b);
        return state->failed ? a : ls_jv_item(state, a, b);
    case LS_JINJA_SLICE:
        return slice(state, n);
    case LS_JINJA_CALL:
        return call(state, n);
    case LS_JINJA_FILTER:
    case LS_JINJA_TEST:
        return filter_or_test(state, n, n->a ? ls_jinja_evaluate(state, n->a) : state->captured);
    default:
        return ls_jinja_unsupported(state, "an expression of kind %d is not supported", (int)n->kind);
    }
}

ls_jv ls_jinja_evaluate(ls_jinja_state *state, const ls_jinja_node *n)
{
    if (!ls_jinja_enter(state)) {
        return ls_jv_undefined();
    }
    ls_jinja_spend(state, 0);
    state->line = n->line;
    const ls_jv v = evaluate_node(state, n);
    state->depth--;
    return v;
}

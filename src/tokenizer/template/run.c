// SPDX-License-Identifier: Apache-2.0
/* Running a template: expressions, calls, frames, loops, macros and blocks. */
#include "tokenizer/template/jinja.h"

typedef ls_jinja_node node;

enum { PARAMETERS_MAX = 8 };

static ls_jv evaluate(ls_jinja *j, const node *n);
static void execute(ls_jinja *j, const node *n);
static void run_loop(ls_jinja *j, const node *n, ls_jv iterable, size_t depth0);

/* ---- frames and names ---- */

/* Fills the slots of a frame from outside, as at its beginning. */
static void load_frame(ls_jinja *j, const ls_jinja_frame *frame, const ls_jinja_env *env)
{
    for (size_t i = 0; i < frame->count; i++) {
        const ls_jinja_slot *slot = &frame->slots[i];
        if (slot->load == LS_LOAD_ALIAS) {
            const ls_jinja_env *from = env->outer;
            for (uint32_t hop = 0; hop < slot->hops; hop++) {
                from = from->outer;
            }
            env->slots[i] = from->slots[slot->slot];
        } else if (slot->load == LS_LOAD_GIVEN) {
            const ls_jv *given = ls_jinja_get(j, j->variables, slot->name);
            env->slots[i] = given            ? *given
                            : slot->function ? (ls_jv){.kind = LS_JV_FUNCTION, .function = slot->function}
                                             : ls_jv_undefined();
        } else if (slot->load == LS_LOAD_NOTHING) {
            env->slots[i] = ls_jv_undefined();
        }
    }
}

/* New slots for a frame, inside the current ones; macros made in them may outlive them. Leave them
 * by j->env = j->env->outer. */
static ls_jinja_env *enter_frame(ls_jinja *j, const ls_jinja_frame *frame)
{
    ls_jinja_env *env = ls_jinja_take(j, sizeof *env);
    env->outer = j->env;
    env->slots = ls_arena_new(&j->arena, ls_jv, frame->count);
    j->memory += frame->count * sizeof(ls_jv);
    load_frame(j, frame, env);
    return j->env = env;
}

static void assign(ls_jinja *j, const node *target, ls_jv value)
{
    if (target->kind == LS_JINJA_NAME) {
        j->env->slots[target->slot] = value;
    } else if (target->kind == LS_JINJA_TUPLE) {
        const ls_jinja_list items = ls_jv_items(j, value);
        if (!j->failed && items.count != target->count) {
            ls_jinja_refuse(j, "%zu values to unpack, %zu names for them", items.count, target->count);
        }
        for (size_t i = 0; i < target->count && !j->failed; i++) {
            assign(j, target->items[i], items.items[i]);
        }
    } else {
        const ls_jv space = evaluate(j, target->a);
        if (space.kind != LS_JV_NAMESPACE) {
            ls_jinja_refuse(j, "cannot assign attribute on non-namespace object");
        } else if (!j->failed) {
            ls_jinja_set(j, space.list, target->value, value);
        }
    }
}

static ls_jv variable(ls_jinja *j, const node *n)
{
    ls_jv v = j->env->slots[n->slot];
    if (ls_jv_is_absent(v)) {
        ls_jinja_missing *missing = ls_jinja_take(j, sizeof *missing);
        *missing = (ls_jinja_missing){.name = n->value};
        v.missing = missing;
    }
    return v;
}

/* ---- arguments ---- */

/* The entries of **more. */
static void add_entries(ls_jinja *j, ls_jinja_list *keywords, ls_jv more)
{
    if (more.kind != LS_JV_DICT) {
        ls_jinja_refuse(j, "the argument after ** must be a mapping, not %s", ls_jv_type(more));
        return;
    }
    for (size_t i = 0; i < more.list->count; i += 2) {
        const ls_jv key = more.list->items[i];
        if (key.kind != LS_JV_STRING || ls_jinja_get(j, keywords, key)) {
            ls_jinja_refuse(j, "the keys after ** must be new names");
        }
        ls_jinja_set(j, keywords, key, more.list->items[i + 1]);
    }
}

/* The values of the operands of a call, filter or test. */
static ls_jinja_args arguments(ls_jinja *j, const node *call)
{
    ls_jinja_list list = {0}, *keywords = NULL;
    for (size_t i = 0; i < call->count && !j->failed; i++) {
        const node *n = call->items[i];
        const ls_jv value = evaluate(j, n->a);
        if (n->op && n->op != '*' && !keywords) {
            keywords = ls_jinja_list_new(j, 4);
        }
        if (n->op == 0) {
            ls_jv_push(j, &list, value);
        } else if (n->op == '*') {
            const ls_jinja_list more = ls_jv_items(j, value);
            for (size_t k = 0; k < more.count; k++) {
                ls_jv_push(j, &list, more.items[k]);
            }
        } else if (n->op == '=') {
            ls_jinja_set(j, keywords, n->value, value);
        } else {
            add_entries(j, keywords, value);
        }
    }
    return (ls_jinja_args){.positional = list.items, .count = list.count, .keywords = keywords};
}

/* Refuses a value that the parameter's type is not. */
static ls_jv typed(ls_jinja *j, ls_jv v, char type)
{
    if (ls_jv_is_absent(v) || (type == 'n' && v.kind == LS_JV_NONE)) {
        return ls_jv_undefined();
    }
    if (type == 's' && v.kind != LS_JV_STRING) {
        return ls_jinja_refuse(j, "a str is needed here, not %s", ls_jv_type(v));
    }
    if ((type == 'i' || type == 'n') && !ls_jv_is_whole(v)) {
        return ls_jinja_refuse(j, "'%s' object cannot be interpreted as an integer", ls_jv_type(v));
    }
    return v;
}

/* Puts the arguments under the parameters that `builtin` names; false: they do not fit. */
static bool bind_arguments(ls_jinja *j, const ls_jinja_builtin *builtin, const ls_jinja_args *args,
                           ls_jv *given)
{
    const char *at = builtin->parameters;
    const ls_jinja_list *keywords = *at == '/' ? NULL : args->keywords;
    size_t count = 0, used = 0;
    at += *at == '/';
    for (; *at && !j->failed; count++) {
        const bool must = *at == '!';
        at += must;
        const int bytes = (int)strcspn(at, " :");
        const ls_jv *named = ls_jinja_get(j, keywords, ls_jv_text(at, (size_t)bytes));
        ls_jv value = named ? *named : ls_jv_undefined();
        used += named != NULL;
        if (count < args->count) {
            value = args->positional[count];
        }
        if (named && count < args->count) {
            ls_jinja_refuse(j, "%.*s() got two values for '%.*s'", ls_jinja_name(builtin), bytes, at);
        } else if (must && !named && count >= args->count) {
            ls_jinja_refuse(j, "%.*s() needs the argument '%.*s'", ls_jinja_name(builtin), bytes, at);
        }
        at += bytes;
        given[count] = typed(j, value, *at == ':' ? at[1] : 0);
        at += *at == ':' ? 2 : 0;
        at += *at == ' ';
    }
    if (args->count > count) {
        ls_jinja_refuse(j, "%.*s() takes at most %zu arguments, not %zu", ls_jinja_name(builtin), count,
                        args->count);
    } else if (args->keywords && args->keywords->count > 2 * used) {
        ls_jinja_refuse(j, "%.*s() got an unexpected keyword argument", ls_jinja_name(builtin));
    }
    return !j->failed;
}

ls_jv ls_jinja_call_builtin(ls_jinja *j, const ls_jinja_builtin *builtin, ls_jv self,
                            const ls_jinja_args *args)
{
    ls_jv given[PARAMETERS_MAX] = {0};
    if (!builtin->run) {
        return ls_jinja_unsupported(j, "'%.*s' is not supported", ls_jinja_name(builtin));
    }
    if (self.markup && (builtin->where & LS_AT_PLAIN)) {
        return ls_jinja_unsupported(j, "%.*s() of text marked as safe is not supported",
                                    ls_jinja_name(builtin));
    }
    if (j->failed || (builtin->parameters && !bind_arguments(j, builtin, args, given)) ||
        !ls_jinja_enter(j)) {
        return ls_jv_undefined();
    }
    const ls_jv v = builtin->run(j, &(ls_jinja_use){self, given, args, builtin->how});
    j->depth--;
    return v;
}

ls_jv ls_jinja_fail_builtin(ls_jinja *j, const node *n)
{
    const char *kind = n->kind == LS_JINJA_TEST ? "test" : "filter";
    return n->builtin ? ls_jinja_unsupported(j, "the %s '%.*s' is not supported", kind, LS_JV_PRINT(n->value))
                      : ls_jinja_refuse(j, "No %s named '%.*s'.", kind, LS_JV_PRINT(n->value));
}

/* ---- text ---- */

static void write_value(ls_jinja *j, ls_jv v)
{
    const size_t before = j->out->bytes;
    ls_jv_print(j, v, j->out);
    const size_t bytes = j->out->bytes - before;
    ls_jinja_spend(j, bytes);
    j->memory += bytes;
    (void)ls_jinja_take(j, 0);
}

/* What `body` prints, or, if it is NULL, a call of the loop. */
static ls_jv capture(ls_jinja *j, const node *body, const ls_jinja_loop *loop, ls_jv iterable)
{
    ls_text text = {0};
    ls_text *const out = j->out;
    j->out = &text;
    if (body) {
        execute(j, body);
    } else {
        run_loop(j, loop->node, iterable, loop->depth0 + 1);
    }
    j->out = out;
    return ls_jv_take_text(j, &text);
}

/* ---- macros ---- */

static void bind_named(ls_jinja *j, const node *n, const ls_jinja_args *args, ls_jinja_list *rest)
{
    for (size_t i = 0; args->keywords && i < args->keywords->count; i += 2) {
        const ls_jv key = args->keywords->items[i], value = args->keywords->items[i + 1];
        size_t at = args->count < n->count ? args->count : n->count;
        while (at < n->count && !ls_jv_same_text(n->items[at]->value, key)) {
            at++;
        }
        if (at < n->count) {
            j->env->slots[n->items[at]->slot] = value;
        } else if (n->frame->wants[LS_JINJA_CALLER] && ls_jv_is(key, "caller")) {
            j->env->slots[n->frame->special_slots[LS_JINJA_CALLER]] = value;
        } else if (rest) {
            ls_jinja_set(j, rest, key, value);
        } else {
            ls_jinja_refuse(j, "macro '%.*s' takes no keyword argument '%.*s'", LS_JV_PRINT(n->value),
                            LS_JV_PRINT(key));
        }
    }
}

static void bind_parameters(ls_jinja *j, const node *n, const ls_jinja_args *args)
{
    ls_jv *slots = j->env->slots;
    const uint32_t *special = n->frame->special_slots;
    const bool *wants = n->frame->wants;
    ls_jinja_list *rest = wants[LS_JINJA_KWARGS] ? ls_jinja_list_new(j, 0) : NULL;
    if (args->count > n->count && !wants[LS_JINJA_VARARGS]) {
        ls_jinja_refuse(j, "macro '%.*s' takes not more than %zu argument(s)", LS_JV_PRINT(n->value),
                        n->count);
        return;
    }
    for (size_t i = 0; i < n->count && i < args->count; i++) {
        slots[n->items[i]->slot] = args->positional[i];
    }
    if (wants[LS_JINJA_CALLER]) {
        slots[special[LS_JINJA_CALLER]] = ls_jv_missing(j, "No caller defined");
    }
    bind_named(j, n, args, rest);
    if (rest) {
        slots[special[LS_JINJA_KWARGS]] = ls_jv_of(LS_JV_DICT, rest);
    }
    if (wants[LS_JINJA_VARARGS]) {
        ls_jinja_list *more = ls_jinja_list_new(j, 0);
        for (size_t i = n->count; i < args->count; i++) {
            ls_jv_push(j, more, args->positional[i]);
        }
        slots[special[LS_JINJA_VARARGS]] = ls_jv_of(LS_JV_TUPLE, more);
    }
    for (size_t i = 0; i < n->count && !j->failed; i++) {
        const node *parameter = n->items[i];
        if (ls_jv_is_absent(slots[parameter->slot])) {
            slots[parameter->slot] = parameter->b
                                         ? evaluate(j, parameter->b)
                                         : ls_jv_missing(j, "a parameter of the macro was not provided");
        }
    }
}

static ls_jv call_macro(ls_jinja *j, const ls_jinja_macro *macro, const ls_jinja_args *args)
{
    if (!ls_jinja_enter(j)) {
        return ls_jv_undefined();
    }
    ls_jinja_env *const env = j->env;
    j->env = macro->env;
    enter_frame(j, macro->node->frame);
    bind_parameters(j, macro->node, args);
    const ls_jv text = capture(j, macro->node->body, NULL, ls_jv_none());
    j->env = env;
    j->depth--;
    return text;
}

static ls_jv make_macro(ls_jinja *j, const node *n)
{
    ls_jinja_macro *macro = ls_jinja_take(j, sizeof *macro);
    *macro = (ls_jinja_macro){.node = n, .env = j->env};
    return (ls_jv){.kind = LS_JV_MACRO, .macro = macro};
}

/* ---- calls ---- */

static ls_jv call_loop(ls_jinja *j, const ls_jinja_loop *loop, const ls_jinja_args *args)
{
    if (args->count != 1 || args->keywords) {
        return ls_jinja_refuse(j, "loop() takes one argument");
    }
    if (!loop->node->is_recursive) {
        return ls_jinja_refuse(j, "The loop must have the 'recursive' marker to be called recursively.");
    }
    ls_jinja_env *const env = j->env;
    j->env = loop->env;
    const ls_jv text = capture(j, NULL, loop, args->positional[0]);
    j->env = env;
    return text;
}

static ls_jv call(ls_jinja *j, ls_jv callee, const ls_jinja_args *args)
{
    if (j->failed) {
        return ls_jv_undefined();
    }
    switch (callee.kind) {
    case LS_JV_FUNCTION:
        return ls_jinja_call_builtin(j, callee.function, ls_jv_undefined(), args);
    case LS_JV_METHOD:
        return ls_jinja_call_builtin(j, callee.method->builtin, callee.method->self, args);
    case LS_JV_MACRO:
        return call_macro(j, callee.macro, args);
    case LS_JV_LOOP:
        return call_loop(j, callee.loop, args);
    case LS_JV_UNDEFINED:
        return ls_jv_fail_undefined(j, callee);
    default:
        return ls_jinja_refuse(j, "'%s' object is not callable", ls_jv_type(callee));
    }
}

static void call_block(ls_jinja *j, const node *n)
{
    const ls_jv caller = make_macro(j, n), callee = n->b ? evaluate(j, n->b->a) : caller;
    ls_jinja_args args = n->b ? arguments(j, n->b) : (ls_jinja_args){0};
    if (n->b) {
        args.keywords = args.keywords ? args.keywords : ls_jinja_list_new(j, 2);
        ls_jinja_set(j, args.keywords, ls_jv_text("caller", 6), caller);
    }
    write_value(j, call(j, callee, &args));
}

/* ---- expressions ---- */

static ls_jv display(ls_jinja *j, const node *n)
{
    ls_jinja_list *list = ls_jinja_list_new(j, n->count);
    for (size_t i = 0; i < n->count && !j->failed; i++) {
        const ls_jv item = evaluate(j, n->items[i]);
        if (n->kind == LS_JINJA_DICT) {
            ls_jinja_set(j, list, item, evaluate(j, n->items[++i]));
        } else {
            ls_jv_push(j, list, item);
        }
    }
    return ls_jv_of(n->kind == LS_JINJA_LIST    ? LS_JV_LIST
                    : n->kind == LS_JINJA_TUPLE ? LS_JV_TUPLE
                                                : LS_JV_DICT,
                    list);
}

static ls_jv comparison(ls_jinja *j, const node *n)
{
    ls_jv a = evaluate(j, n->a);
    bool holds = true;
    for (size_t i = 0; i < n->count && holds && !j->failed; i++) {
        const ls_jv b = evaluate(j, n->items[i]->a);
        holds = ls_jv_compare(j, n->items[i]->op, a, b);
        a = b;
    }
    return ls_jv_bool(holds);
}

static ls_jv unary(ls_jinja *j, const node *n)
{
    const ls_jv a = evaluate(j, n->a);
    if (n->op == '!') {
        return ls_jv_bool(!ls_jv_truth(j, a));
    }
    if (a.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, a);
    }
    if (!ls_jv_is_number(a)) {
        return ls_jinja_refuse(j, "bad operand type for unary %c: '%s'", n->op, ls_jv_type(a));
    }
    /* -a is a * -1: zero keeps its sign */
    return ls_jv_binary(j, '*', a, ls_jv_int(n->op == '-' ? -1 : 1));
}

static ls_jv condition(ls_jinja *j, const node *n)
{
    if (ls_jv_truth(j, evaluate(j, n->b))) {
        return evaluate(j, n->a);
    }
    return n->c ? evaluate(j, n->c)
                : ls_jv_missing(
                      j, "the inline if-expression evaluated to false and no else section was defined.");
}

static ls_jv binary(ls_jinja *j, const node *n)
{
    const bool is_and = n->op == LS_JINJA_OP('a', 'n');
    const ls_jv a = evaluate(j, n->a);
    if (is_and || n->op == LS_JINJA_OP('o', 'r')) {
        return ls_jv_truth(j, a) == is_and ? evaluate(j, n->b) : a;
    }
    const ls_jv b = evaluate(j, n->b);
    if (n->op != '~') {
        return ls_jv_binary(j, n->op, a, b);
    }
    ls_jv text = ls_jv_join(j, ls_jv_string(j, a), ls_jv_string(j, b));
    text.markup = false;
    return text;
}

static ls_jv slice(ls_jinja *j, const node *n)
{
    ls_jv bounds[3];
    const ls_jv object = evaluate(j, n->a);
    for (int i = 0; i < 3; i++) {
        bounds[i] = n->items[i] ? evaluate(j, n->items[i]) : ls_jv_none();
    }
    return ls_jv_slice(j, object, bounds);
}

static ls_jv filter_or_test(ls_jinja *j, const node *n)
{
    const ls_jv self = n->a ? evaluate(j, n->a) : j->captured;
    if (!n->builtin || !n->builtin->run) {
        return ls_jinja_fail_builtin(j, n);
    }
    const ls_jinja_args args = arguments(j, n);
    j->line = n->line;
    return ls_jinja_call_builtin(j, n->builtin, self, &args);
}

static ls_jv evaluate_node(ls_jinja *j, const node *n)
{
    ls_jv a;
    ls_jinja_args args;
    switch (n->kind) {
    case LS_JINJA_CONST:
        return n->value;
    case LS_JINJA_NAME:
        return variable(j, n);
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE:
    case LS_JINJA_DICT:
        return display(j, n);
    case LS_JINJA_BINARY:
        return binary(j, n);
    case LS_JINJA_UNARY:
        return unary(j, n);
    case LS_JINJA_COMPARE:
        return comparison(j, n);
    case LS_JINJA_CONDITION:
        return condition(j, n);
    case LS_JINJA_ATTRIBUTE:
        a = evaluate(j, n->a);
        return n->builtin ? ls_jv_attribute(j, a, n->value) : ls_jv_item(j, a, n->value);
    case LS_JINJA_ITEM:
        a = evaluate(j, n->a);
        return ls_jv_item(j, a, evaluate(j, n->b));
    case LS_JINJA_SLICE:
        return slice(j, n);
    case LS_JINJA_CALL:
        a = evaluate(j, n->a);
        args = arguments(j, n);
        j->line = n->line;
        return call(j, a, &args);
    default:
        return filter_or_test(j, n);
    }
}

static ls_jv evaluate(ls_jinja *j, const node *n)
{
    if (!ls_jinja_enter(j)) {
        return ls_jv_undefined();
    }
    ls_jinja_spend(j, 0);
    j->line = n->line;
    const ls_jv v = evaluate_node(j, n);
    j->depth--;
    return v;
}

/* ---- loops ---- */

bool ls_jinja_loop_peek(ls_jinja *j, ls_jinja_loop *loop)
{
    while (!loop->has_after && loop->values.count > 0 && !j->failed) {
        loop->after = *loop->values.items++;
        loop->values.count--;
        loop->has_after = true;
        if (loop->test_env) {
            ls_jinja_env *const env = j->env;
            j->env = loop->test_env;
            assign(j, loop->node->a, loop->after);
            loop->has_after = ls_jv_truth(j, evaluate(j, loop->node->test));
            j->env = env;
        }
    }
    return loop->has_after && !j->failed;
}

size_t ls_jinja_loop_length(ls_jinja *j, ls_jinja_loop *loop)
{
    const size_t before = (size_t)loop->index0 + 1;
    if (loop->test_env) {
        ls_jinja_list *rest = ls_jinja_list_new(j, 0);
        for (; ls_jinja_loop_peek(j, loop); loop->has_after = false) {
            ls_jv_push(j, rest, loop->after);
        }
        loop->values = *rest;
        loop->test_env = NULL;
    }
    return before + loop->has_after + loop->values.count;
}

/* The body, for each value. Returns whether it came to its end once, without break or continue. */
static bool run_body(ls_jinja *j, ls_jinja_loop *loop)
{
    const node *n = loop->node;
    bool is_ended = false;
    ls_jinja_env *env = enter_frame(j, n->frame);
    while (j->leaving != LS_JINJA_BREAK && ls_jinja_loop_peek(j, loop)) {
        j->leaving = 0;
        loop->has_after = false;
        loop->index0++;
        loop->before = loop->current;
        loop->current = loop->after;
        assign(j, n->a, loop->current);
        env->slots[n->frame->loop_slot] = (ls_jv){.kind = LS_JV_LOOP, .loop = loop};
        load_frame(j, n->frame, env);
        execute(j, n->body);
        is_ended = is_ended || !j->leaving;
    }
    /* What the body left in its variables ends with it. */
    memset(env->slots, 0, n->frame->count * sizeof(ls_jv));
    j->leaving = 0;
    j->env = env->outer;
    return is_ended;
}

static void run_loop(ls_jinja *j, const node *n, ls_jv iterable, size_t depth0)
{
    ls_jinja_loop *loop = ls_jinja_take(j, sizeof *loop);
    *loop = (ls_jinja_loop){.node = n, .index0 = -1, .depth0 = depth0, .env = j->env};
    if (n->test) {
        loop->test_env = enter_frame(j, n->test->frame);
        j->env = loop->env;
    }
    loop->values = ls_jv_items(j, iterable);
    /* As in Jinja2, `else` runs unless the body came to its end once. */
    if (!j->failed && ls_jinja_enter(j)) {
        if (!run_body(j, loop) && n->c && !j->failed) {
            execute(j, n->c);
        }
        j->depth--;
    }
}

/* ---- statements ---- */

static void with_block(ls_jinja *j, const node *n)
{
    ls_jinja_env *const outer = j->env, *const env = enter_frame(j, n->frame);
    for (size_t i = 0; i < n->count && !j->failed; i += 2) {
        j->env = outer;
        const ls_jv value = evaluate(j, n->items[i + 1]);
        j->env = env;
        assign(j, n->items[i], value);
    }
    execute(j, n->body);
    j->env = outer;
}

/* A set or filter block: its text, through its filters. */
static void text_block(ls_jinja *j, const node *n)
{
    enter_frame(j, n->frame);
    ls_jv text = capture(j, n->body, NULL, ls_jv_none());
    if (n->c && !j->leaving) {
        j->captured = text;
        text = evaluate(j, n->c);
    }
    j->env = j->env->outer;
    if (j->failed || j->leaving) {
        return;
    }
    if (n->kind == LS_JINJA_SET) {
        assign(j, n->a, text);
    } else {
        write_value(j, text);
    }
}

static void execute_if(ls_jinja *j, const node *n)
{
    while (n && n->kind == LS_JINJA_IF && !ls_jv_truth(j, evaluate(j, n->a))) {
        n = n->c;
    }
    if (n) {
        execute(j, n->kind == LS_JINJA_IF ? n->body : n);
    }
}

static void execute_node(ls_jinja *j, const node *n)
{
    switch (n->kind) {
    case LS_JINJA_TEXT:
        write_value(j, n->value);
        break;
    case LS_JINJA_PRINT:
        write_value(j, evaluate(j, n->a));
        break;
    case LS_JINJA_BLOCK:
        if (n->frame) {
            enter_frame(j, n->frame);
            execute(j, n->body);
            j->env = j->env->outer;
        }
        for (size_t i = 0; i < n->count && !j->failed && !j->leaving; i++) {
            execute(j, n->items[i]);
        }
        break;
    case LS_JINJA_IF:
        execute_if(j, n);
        break;
    case LS_JINJA_FOR:
        run_loop(j, n, evaluate(j, n->b), 0);
        break;
    case LS_JINJA_SET:
        if (n->b) {
            assign(j, n->a, evaluate(j, n->b));
            break;
        }
        /* fall through */
    case LS_JINJA_FILTER_BLOCK:
        text_block(j, n);
        break;
    case LS_JINJA_WITH:
        with_block(j, n);
        break;
    case LS_JINJA_MACRO:
        assign(j, n->a, make_macro(j, n));
        break;
    case LS_JINJA_CALL_BLOCK:
        call_block(j, n);
        break;
    default:
        j->leaving = (int)n->kind;
    }
}

static void execute(ls_jinja *j, const node *n)
{
    if (ls_jinja_enter(j)) {
        ls_jinja_spend(j, 0);
        j->line = n->line;
        execute_node(j, n);
        j->depth--;
    }
}

void ls_jinja_run(ls_jinja *j, const ls_chat_template *template)
{
    if (!j->failed) {
        enter_frame(j, &template->frame);
        execute(j, template->root);
    }
}

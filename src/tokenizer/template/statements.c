// SPDX-License-Identifier: Apache-2.0
/* Running statements: frames, loops, macros and blocks. */
#include "tokenizer/template/jinja.h"

typedef ls_jinja_node node;

/* ---- frames ---- */

/* Fills the slots of the current frame from outside, as at its beginning. */
static void load_frame(ls_jinja_state *state, const ls_jinja_frame *frame, const ls_jinja_env *env)
{
    for (size_t i = 0; i < frame->count; i++) {
        const ls_jinja_slot *slot = &frame->slots[i];
        if (slot->load == LS_LOAD_ALIAS) {
            const ls_jinja_env *from = env->outer;
            for (uint32_t hop = 0; hop < slot->hops; hop++) {
                from = from->outer;
            }
            env->slots[i] = from->slots[slot->slot];
        } else if (slot->load == LS_LOAD_VARIABLE) {
            const ls_jv *given = ls_jinja_dict_find(state, state->variables, slot->name);
            env->slots[i] = given ? *given : ls_jinja_global_find(slot->name);
        } else if (slot->load == LS_LOAD_NOTHING) {
            env->slots[i] = ls_jv_undefined();
        }
    }
}

void ls_jinja_frame_enter(ls_jinja_state *state, const ls_jinja_frame *frame, ls_jinja_env *env,
                          ls_jinja_env *outer)
{
    env->outer = outer;
    env->slots = ls_jinja_take(state, frame->count * sizeof(ls_jv));
    if (!env->slots) {
        env->slots = ls_arena_new(&state->arena, ls_jv, frame->count);
    }
    state->env = env;
    load_frame(state, frame, env);
}

/* A frame that macros made in it may outlive. */
static ls_jinja_env *enter_frame(ls_jinja_state *state, const ls_jinja_frame *frame)
{
    ls_jinja_env *env = ls_jinja_take(state, sizeof *env);
    ls_jinja_frame_enter(state, frame, env, state->env);
    return env;
}

static void unpack(ls_jinja_state *state, const node *target, ls_jv value)
{
    const ls_jinja_list *items =
        value.kind == LS_JV_TUPLE || value.kind == LS_JV_LIST ? value.list : ls_jv_to_list(state, value);
    if (!state->failed && items->count != target->count) {
        ls_jinja_refuse(state, "%zu values to unpack, %zu names for them", items->count, target->count);
    }
    for (size_t i = 0; i < target->count && !state->failed; i++) {
        ls_jinja_assign(state, target->items[i], items->items[i]);
    }
}

void ls_jinja_assign(ls_jinja_state *state, const ls_jinja_node *target, ls_jv value)
{
    if (target->kind == LS_JINJA_TUPLE) {
        unpack(state, target, value);
        return;
    }
    if (target->kind == LS_JINJA_REFERENCE) {
        const ls_jv space = ls_jinja_evaluate(state, target->a);
        if (space.kind != LS_JV_NAMESPACE) {
            ls_jinja_refuse(state, "cannot assign attribute on non-namespace object");
        } else if (!state->failed) {
            ls_jinja_dict_set(state, space.dict, target->value, value);
        }
        return;
    }
    state->env->slots[target->slot] = value;
}

/* ---- text ---- */

static void write_value(ls_jinja_state *state, ls_jv v)
{
    const size_t before = state->out->bytes;
    if (v.kind == LS_JV_STRING) {
        ls_text_append_bytes(state->out, v.text, v.bytes);
    } else {
        ls_jv_print(state, v, state->out);
    }
    const size_t bytes = state->out->bytes - before;
    ls_jinja_spend(state, bytes);
    state->memory += bytes;
    if (state->memory > LS_CHAT_MEMORY_MAX) {
        (void)ls_jinja_take(state, 0);
    }
}

/* What `body` prints. */
static ls_jv capture(ls_jinja_state *state, const node *body)
{
    ls_text text = {0};
    ls_text *const out = state->out;
    state->out = &text;
    ls_jinja_execute(state, body);
    state->out = out;
    return ls_jv_take_text(state, &text);
}

/* ---- loops ---- */

static bool loop_test(ls_jinja_state *state, const ls_jinja_iterator *iterator, ls_jv *value)
{
    const ls_jinja_loop *context = iterator->context;
    ls_jinja_env *const env = state->env;
    state->env = context->env;
    ls_jinja_assign(state, context->node->a, *value);
    const bool is_kept = ls_jv_truth(state, ls_jinja_evaluate(state, context->node->scope->test));
    state->env = env;
    return is_kept;
}

/* The values of a loop, those that its `if` keeps. */
static ls_jv loop_values(ls_jinja_state *state, const node *n, ls_jv iterable)
{
    if (!n->scope->test) {
        return iterable;
    }
    ls_jinja_loop *context = ls_jinja_take(state, sizeof *context);
    ls_jinja_env *const outer = state->env;
    context->node = n;
    context->env = enter_frame(state, &n->scope->test_frame);
    state->env = outer;
    const ls_jinja_iterator *source = ls_jv_iterate(state, iterable);
    if (!source) {
        return ls_jv_undefined();
    }
    ls_jv v = ls_jv_iterator(
        state, (ls_jv){.kind = LS_JV_ITERATOR, .iterator = (ls_jinja_iterator *)(uintptr_t)source});
    v.iterator->each = loop_test;
    v.iterator->context = context;
    return v;
}

static bool loop_next(ls_jinja_state *state, ls_jinja_loop *loop)
{
    ls_jv value = loop->after;
    if (!loop->has_after && !ls_jinja_next(state, loop->iterator.iterator, &value)) {
        return false;
    }
    loop->has_after = false;
    loop->index0++;
    loop->before = loop->current;
    loop->current = value;
    return true;
}

static void run_loop(ls_jinja_state *state, const node *n, ls_jv iterable, size_t depth0)
{
    ls_jinja_env *const outer = state->env;
    ls_jinja_loop *loop = ls_jinja_take(state, sizeof *loop);
    const ls_jv values = loop_values(state, n, iterable);
    ls_jinja_iterator *iterator = ls_jv_iterate(state, values);
    *loop = (ls_jinja_loop){.iterable = values, .index0 = -1, .depth0 = depth0, .env = outer};
    loop->iterator = (ls_jv){.kind = LS_JV_ITERATOR, .iterator = iterator};
    loop->node = n->scope->is_recursive ? n : NULL;
    if (!iterator || !ls_jinja_enter(state)) {
        return;
    }
    ls_jinja_env *env = enter_frame(state, &n->scope->frame);
    /* As in Jinja2, `else` runs unless the body came to its end once, without break or continue. */
    bool is_ended = false;
    while (!state->failed && state->leaving != LS_JINJA_BREAK && loop_next(state, loop)) {
        state->leaving = 0;
        ls_jinja_assign(state, n->a, loop->current);
        env->slots[n->scope->loop_slot] = (ls_jv){.kind = LS_JV_LOOP, .loop = loop};
        load_frame(state, &n->scope->frame, env);
        ls_jinja_execute(state, n->body);
        is_ended = is_ended || !state->leaving;
    }
    /* What the body left in its variables ends with it. */
    memset(env->slots, 0, n->scope->frame.count * sizeof(ls_jv));
    state->leaving = 0;
    state->env = outer;
    if (!is_ended && n->c && !state->failed) {
        enter_frame(state, &n->scope->else_frame);
        ls_jinja_execute(state, n->c);
        state->env = outer;
    }
    state->depth--;
}

ls_jv ls_jinja_call_loop(ls_jinja_state *state, ls_jinja_loop *loop, ls_jv iterable)
{
    if (!loop->node) {
        return ls_jinja_refuse(state, "The loop must have the 'recursive' marker to be called recursively.");
    }
    ls_text text = {0};
    ls_text *const out = state->out;
    ls_jinja_env *const env = state->env;
    state->out = &text;
    state->env = loop->env;
    run_loop(state, loop->node, iterable, loop->depth0 + 1);
    state->env = env;
    state->out = out;
    return ls_jv_take_text(state, &text);
}

/* ---- macros ---- */

static void bind_named(ls_jinja_state *state, const ls_jinja_macro *macro, const ls_jinja_args *args,
                       ls_jinja_dict *rest)
{
    const node *n = macro->node;
    for (size_t i = 0; args->keywords && i < args->keywords->count; i++) {
        const ls_jv key = args->keywords->keys[i], value = args->keywords->values[i];
        size_t at = args->count < n->count ? args->count : n->count;
        while (at < n->count && !ls_jv_equal(state, n->items[at]->value, key)) {
            at++;
        }
        if (at < n->count) {
            state->env->slots[at] = value;
        } else if (n->scope->wants_caller && ls_jv_is(key, "caller")) {
            state->env->slots[n->scope->caller_slot] = value;
        } else if (rest) {
            ls_jinja_dict_set(state, rest, key, value);
        } else {
            ls_jinja_refuse(state, "macro '%.*s' takes no keyword argument '%.*s'", (int)n->value.bytes,
                            n->value.bytes ? n->value.text : "", (int)key.bytes, key.text);
        }
    }
}

static void bind_parameters(ls_jinja_state *state, const ls_jinja_macro *macro, const ls_jinja_args *args)
{
    const node *n = macro->node;
    const ls_jinja_scope *scope = n->scope;
    ls_jv *slots = state->env->slots;
    for (size_t i = 0; i < n->count && i < args->count; i++) {
        slots[i] = args->positional[i];
    }
    if (args->count > n->count && !scope->wants_rest) {
        ls_jinja_refuse(state, "macro '%.*s' takes not more than %zu argument(s)", (int)n->value.bytes,
                        n->value.bytes ? n->value.text : "", n->count);
        return;
    }
    if (scope->wants_caller) {
        slots[scope->caller_slot] = ls_jv_missing(state, "No caller defined");
    }
    ls_jinja_dict *rest = scope->wants_keywords ? ls_jinja_dict_new(state, 0) : NULL;
    bind_named(state, macro, args, rest);
    if (rest) {
        slots[scope->keywords_slot] = (ls_jv){.kind = LS_JV_DICT, .dict = rest};
    }
    if (scope->wants_rest) {
        const ls_jv more = ls_jv_list(state, LS_JV_TUPLE, 0);
        for (size_t i = n->count; i < args->count; i++) {
            ls_jv_push(state, more.list, args->positional[i]);
        }
        slots[scope->rest_slot] = more;
    }
    for (size_t i = 0; i < n->count && !state->failed; i++) {
        const size_t required = n->count - scope->default_count;
        if (ls_jv_is_absent(slots[i])) {
            slots[i] = i < required ? ls_jv_missing(state, "a parameter of the macro was not provided")
                                    : ls_jinja_evaluate(state, scope->defaults[i - required]);
        }
    }
}

ls_jv ls_jinja_call_macro(ls_jinja_state *state, const ls_jinja_macro *macro, const ls_jinja_args *args)
{
    if (!ls_jinja_enter(state)) {
        return ls_jv_undefined();
    }
    ls_jinja_env *const env = state->env;
    state->env = macro->env;
    enter_frame(state, &macro->node->scope->frame);
    bind_parameters(state, macro, args);
    const ls_jv text = capture(state, macro->node->body);
    state->env = env;
    state->depth--;
    return text;
}

static ls_jv make_macro(ls_jinja_state *state, const node *n)
{
    ls_jinja_macro *macro = ls_jinja_take(state, sizeof *macro);
    *macro = (ls_jinja_macro){.node = n, .env = state->env};
    return (ls_jv){.kind = LS_JV_MACRO, .macro = macro};
}

static void call_block(ls_jinja_state *state, const node *n)
{
    const ls_jv caller = make_macro(state, n);
    if (n->scope->is_generation) {
        write_value(state, ls_jinja_call(state, caller, &(ls_jinja_args){0}));
        return;
    }
    const ls_jv callee = ls_jinja_evaluate(state, n->b->a);
    ls_jinja_args args = ls_jinja_arguments(state, n->b);
    if (!args.keywords) {
        args.keywords = ls_jinja_dict_new(state, 1);
    }
    ls_jinja_dict_set(state, args.keywords, ls_jv_text("caller", 6), caller);
    if (!state->failed) {
        write_value(state, ls_jinja_call(state, callee, &args));
    }
}

/* ---- blocks ---- */

static void with_block(ls_jinja_state *state, const node *n)
{
    ls_jinja_env *const outer = state->env;
    ls_jinja_env *env = enter_frame(state, &n->scope->frame);
    for (size_t i = 0; i < n->count && !state->failed; i += 2) {
        state->env = outer;
        const ls_jv value = ls_jinja_evaluate(state, n->items[i + 1]);
        state->env = env;
        ls_jinja_assign(state, n->items[i], value);
    }
    ls_jinja_execute(state, n->body);
    state->env = outer;
}

/* A set or filter block: its text, through its filters. */
static void text_block(ls_jinja_state *state, const node *n)
{
    ls_jinja_env *const outer = state->env;
    enter_frame(state, &n->scope->frame);
    ls_jv text = capture(state, n->body);
    if (n->b && !state->leaving) {
        state->captured = text;
        text = ls_jinja_evaluate(state, n->b);
    }
    state->env = outer;
    if (state->failed || state->leaving) {
        return;
    }
    if (n->kind == LS_JINJA_SET_BLOCK) {
        ls_jinja_assign(state, n->a, text);
    } else {
        write_value(state, text);
    }
}

static void execute_if(ls_jinja_state *state, const node *n)
{
    while (n && n->kind == LS_JINJA_IF) {
        if (ls_jv_truth(state, ls_jinja_evaluate(state, n->a))) {
            ls_jinja_execute(state, n->body);
            return;
        }
        n = n->c;
    }
    if (n) {
        ls_jinja_execute(state, n);
    }
}

static void execute_node(ls_jinja_state *state, const node *n)
{
    switch (n->kind) {
    case LS_JINJA_TEXT:
        write_value(state, n->value);
        break;
    case LS_JINJA_PRINT:
        write_value(state, ls_jinja_evaluate(state, n->a));
        break;
    case LS_JINJA_BLOCK:
        for (size_t i = 0; i < n->count && !state->failed && !state->leaving; i++) {
            ls_jinja_execute(state, n->items[i]);
        }
        break;
    case LS_JINJA_IF:
        execute_if(state, n);
        break;
    case LS_JINJA_FOR:
        run_loop(state, n, ls_jinja_evaluate(state, n->b), 0);
        break;
    case LS_JINJA_SET:
        ls_jinja_assign(state, n->a, ls_jinja_evaluate(state, n->b));
        break;
    case LS_JINJA_SET_BLOCK:
    case LS_JINJA_FILTER_BLOCK:
        text_block(state, n);
        break;
    case LS_JINJA_WITH:
        with_block(state, n);
        break;
    case LS_JINJA_MACRO:
        ls_jinja_assign(state, n->a, make_macro(state, n));
        break;
    case LS_JINJA_CALL_BLOCK:
        call_block(state, n);
        break;
    default:
        state->leaving = (int)n->kind;
    }
}

void ls_jinja_execute(ls_jinja_state *state, const ls_jinja_node *n)
{
    if (!ls_jinja_enter(state)) {
        return;
    }
    ls_jinja_spend(state, 0);
    state->line = n->line;
    execute_node(state, n);
    state->depth--;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Which variable a name means.
 *
 * Jinja2 decides this when it compiles. A frame (the whole template, a body of a loop, a macro, a
 * set block, ...) has a variable of its own for each name that is stored in it, for the whole of
 * the frame: it begins as a copy of the outer frame's variable of that name, or, if there is none,
 * with nothing; when it is stored in some branches of an `if` only, or read before it is stored,
 * with what the caller gave under that name. All other names are looked up outwards, and last
 * among what the caller gave. So each frame is first analysed, without the frames inside it, and
 * then its names are bound.
 */
#include "tokenizer/template/jinja.h"

typedef ls_jinja_node node;

typedef struct symbols {
    ls_jinja_state *state;
    struct symbols *outer;
    ls_jinja_frame *frame;
    bool is_soft;       /* inside an `if`: names of filters are looked up when they are used */
    const char *wanted; /* of a search */
    bool is_found;
} symbols;

static bool same(ls_jv a, ls_jv b)
{
    return a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0;
}

static ls_jinja_slot *own(const symbols *s, ls_jv name)
{
    for (size_t i = 0; i < s->frame->count; i++) {
        if (same(s->frame->slots[i].name, name)) {
            return &s->frame->slots[i];
        }
    }
    return NULL;
}

/* Where a name is, from frame `s` outwards. */
static bool find(const symbols *s, ls_jv name, uint32_t *hops_out, uint32_t *slot_out)
{
    uint32_t hops = 0;
    for (; s; s = s->outer, hops++) {
        const ls_jinja_slot *slot = own(s, name);
        if (slot) {
            *hops_out = hops;
            *slot_out = (uint32_t)(slot - s->frame->slots);
            return true;
        }
    }
    return false;
}

static ls_jinja_slot *define(symbols *s, ls_jv name, ls_jinja_load load)
{
    ls_jinja_frame *f = s->frame;
    if (f->count == f->capacity) {
        f->capacity = f->capacity ? 2 * f->capacity : 8;
        ls_jinja_slot *grown = ls_arena_new(&s->state->arena, ls_jinja_slot, f->capacity);
        if (f->count > 0) {
            memcpy(grown, f->slots, f->count * sizeof *grown);
        }
        f->slots = grown;
    }
    f->slots[f->count] = (ls_jinja_slot){.name = name, .load = load};
    return &f->slots[f->count++];
}

/* The load of a variable that has a value from outside, if there is one. */
static void load_from_outside(symbols *s, ls_jinja_slot *slot, ls_jinja_load without)
{
    const bool is_outside = s->outer && find(s->outer, slot->name, &slot->hops, &slot->slot);
    slot->load = is_outside ? LS_LOAD_ALIAS : without;
}

static void store(symbols *s, ls_jv name)
{
    ls_jinja_slot *slot = own(s, name);
    if (!slot) {
        slot = define(s, name, LS_LOAD_NOTHING);
        load_from_outside(s, slot, LS_LOAD_NOTHING);
    }
    slot->is_stored = true;
}

static uint32_t declare(symbols *s, ls_jv name)
{
    ls_jinja_slot *slot = own(s, name);
    slot = slot ? slot : define(s, name, LS_LOAD_PARAMETER);
    slot->load = LS_LOAD_PARAMETER;
    slot->is_stored = true;
    return (uint32_t)(slot - s->frame->slots);
}

static void load(symbols *s, ls_jv name)
{
    uint32_t hops, slot;
    if (!find(s, name, &hops, &slot)) {
        define(s, name, LS_LOAD_VARIABLE);
    }
}

/* ---- walking ---- */

typedef void (*visitor)(symbols *s, node *n);

static void visit_children(symbols *s, node *n, visitor visit)
{
    visit(s, n->a);
    visit(s, n->b);
    visit(s, n->body);
    for (size_t i = 0; i < n->count; i++) {
        visit(s, n->items[i]);
    }
    for (size_t i = 0; n->scope && i < n->scope->default_count; i++) {
        visit(s, n->scope->defaults[i]);
    }
    visit(s, n->scope ? n->scope->test : NULL);
    visit(s, n->c);
}

/* Names that are assigned: to variables of this frame, or, is_parameter, to its parameters. */
static void store_targets(symbols *s, const node *target, bool is_parameter)
{
    if (target->kind == LS_JINJA_REFERENCE) {
        load(s, target->a->value);
    } else if (target->kind == LS_JINJA_TUPLE) {
        for (size_t i = 0; i < target->count; i++) {
            store_targets(s, target->items[i], is_parameter);
        }
    } else if (is_parameter) {
        declare(s, target->value);
    } else {
        store(s, target->value);
    }
}

/* ---- analysing a frame, without the frames inside it ---- */

static void analyse(symbols *s, node *n);

static void analyse_if(symbols *s, node *n)
{
    analyse(s, n->a);
    const size_t before = s->frame->count;
    bool *was_stored = ls_arena_new(&s->state->arena, bool, before);
    for (size_t i = 0; i < before; i++) {
        was_stored[i] = s->frame->slots[i].is_stored;
    }
    analyse(s, n->body);
    analyse(s, n->c);
    for (size_t i = 0; i < s->frame->count; i++) {
        ls_jinja_slot *slot = &s->frame->slots[i];
        if (slot->is_stored && !(i < before && was_stored[i])) {
            load_from_outside(s, slot, LS_LOAD_VARIABLE);
        }
    }
}

static void analyse_node(symbols *s, node *n)
{
    switch (n->kind) {
    case LS_JINJA_NAME:
        load(s, n->value);
        break;
    case LS_JINJA_FOR:
    case LS_JINJA_CALL_BLOCK:
    case LS_JINJA_FILTER_BLOCK:
        analyse(s, n->b);
        break;
    case LS_JINJA_SET:
        analyse(s, n->b);
        store_targets(s, n->a, false);
        break;
    case LS_JINJA_SET_BLOCK:
    case LS_JINJA_MACRO:
        store_targets(s, n->a, false);
        break;
    case LS_JINJA_WITH:
        for (size_t i = 1; i < n->count; i += 2) {
            analyse(s, n->items[i]);
        }
        break;
    case LS_JINJA_IF:
        analyse_if(s, n);
        break;
    default:
        visit_children(s, n, analyse);
    }
}

static void analyse(symbols *s, node *n)
{
    if (n && ls_jinja_enter(s->state)) {
        s->state->line = n->line;
        analyse_node(s, n);
        s->state->depth--;
    }
}

/* ---- binding ---- */

static void bind(symbols *s, node *n);

/* Looks for a name in the code, its inner macros and loops included. */
static void look(symbols *s, node *n)
{
    if (n && !s->is_found && ls_jinja_enter(s->state)) {
        s->is_found = n->kind == LS_JINJA_NAME && ls_jv_is(n->value, s->wanted);
        visit_children(s, n, look);
        s->state->depth--;
    }
}

static symbols inside(symbols *outer, ls_jinja_frame *frame)
{
    return (symbols){.state = outer->state, .outer = outer, .frame = frame};
}

static void bind_for(symbols *s, node *n)
{
    ls_jinja_scope *scope = n->scope;
    bind(s, n->b);
    /* The targets have the same slots in both frames. */
    if (scope->test) {
        symbols test = inside(s, &scope->test_frame);
        store_targets(&test, n->a, true);
        analyse(&test, scope->test);
        bind(&test, scope->test);
    }
    symbols body = inside(s, &scope->frame);
    store_targets(&body, n->a, true);
    scope->loop_slot = declare(&body, ls_jv_text("loop", 4));
    analyse(&body, n->body);
    bind(&body, n->a);
    bind(&body, n->body);
    symbols otherwise = inside(s, &scope->else_frame);
    analyse(&otherwise, n->c);
    bind(&otherwise, n->c);
}

static uint32_t declare_special(symbols *s, const node *n, const char *name, bool *wants_out)
{
    const ls_jv text = ls_jv_text(name, strlen(name));
    symbols search = {.state = s->state, .wanted = name};
    look(&search, n->body);
    *wants_out = !own(s, text) && search.is_found;
    return *wants_out ? declare(s, text) : 0;
}

static void bind_macro(symbols *s, node *n)
{
    ls_jinja_scope *scope = n->scope;
    bind(s, n->a);
    bind(s, n->b);
    symbols body = inside(s, &scope->frame);
    for (size_t i = 0; i < n->count; i++) {
        declare(&body, n->items[i]->value);
    }
    scope->caller_slot = declare_special(&body, n, "caller", &scope->wants_caller);
    scope->keywords_slot = declare_special(&body, n, "kwargs", &scope->wants_keywords);
    scope->rest_slot = declare_special(&body, n, "varargs", &scope->wants_rest);
    for (size_t i = 0; i < scope->default_count; i++) {
        analyse(&body, scope->defaults[i]);
    }
    analyse(&body, n->body);
    for (size_t i = 0; i < scope->default_count; i++) {
        bind(&body, scope->defaults[i]);
    }
    bind(&body, n->body);
}

/* set, filter and with blocks: `n->b` is the filter of the first two. */
static void bind_block(symbols *s, node *n)
{
    symbols body = inside(s, &n->scope->frame);
    bind(s, n->a);
    for (size_t i = 0; i < n->count; i += 2) {
        bind(s, n->items[i + 1]);
        store_targets(&body, n->items[i], true);
    }
    analyse(&body, n->b);
    analyse(&body, n->body);
    for (size_t i = 0; i < n->count; i += 2) {
        bind(&body, n->items[i]);
    }
    bind(&body, n->b);
    bind(&body, n->body);
}

static void bind_branches(symbols *s, node *n)
{
    const bool is_soft = s->is_soft;
    s->is_soft = true;
    visit_children(s, n, bind);
    s->is_soft = is_soft;
}

static void bind_node(symbols *s, node *n)
{
    if ((n->kind == LS_JINJA_FILTER || n->kind == LS_JINJA_TEST) && !n->builtin && !s->is_soft) {
        ls_jinja_fail_builtin(s->state, n->value, n->kind == LS_JINJA_TEST);
    }
    switch (n->kind) {
    case LS_JINJA_IF:
    case LS_JINJA_CONDITION:
        bind_branches(s, n);
        break;
    case LS_JINJA_NAME:
        if (!find(s, n->value, &n->hops, &n->slot)) {
            ls_jinja_fail(s->state, LS_ERR_UNSUPPORTED, "the variable '%.*s' can't be used here",
                          (int)n->value.bytes, n->value.text);
        }
        break;
    case LS_JINJA_FOR:
        bind_for(s, n);
        break;
    case LS_JINJA_MACRO:
    case LS_JINJA_CALL_BLOCK:
        bind_macro(s, n);
        break;
    case LS_JINJA_SET_BLOCK:
    case LS_JINJA_FILTER_BLOCK:
    case LS_JINJA_WITH:
        bind_block(s, n);
        break;
    default:
        visit_children(s, n, bind);
    }
}

static void bind(symbols *s, node *n)
{
    if (n && ls_jinja_enter(s->state)) {
        s->state->line = n->line;
        bind_node(s, n);
        s->state->depth--;
    }
}

void ls_jinja_resolve(ls_jinja_state *state, ls_jinja_node *root, ls_jinja_frame *frame)
{
    symbols s = {.state = state, .frame = frame};
    analyse(&s, root);
    bind(&s, root);
}

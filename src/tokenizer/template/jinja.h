// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the interpreter of chat templates.
 *
 *   source -> lexer.c -> tokens -> parser.c, parse_expression.c -> nodes -> scopes.c -> nodes whose
 *   names are slots -> statements.c, expressions.c -> text
 *
 * Errors are kept: the first failure is written to the ls_jinja_state, and everything after it does
 * nothing until the outermost call returns. So functions that make values return them, and loops
 * look at `failed`. A value made after a failure is undefined and is never seen.
 *
 * Values, nodes and text live in arenas: that of the template, and one for each rendering. All text
 * is valid UTF-8, and may hold zero bytes.
 */
#ifndef LS_TOKENIZER_TEMPLATE_JINJA_H
#define LS_TOKENIZER_TEMPLATE_JINJA_H

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/template/chat_template.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* ---- values ---- */

typedef enum ls_jv_kind {
    LS_JV_UNDEFINED, /* `missing` says what is missing; NULL: a slot that was never set */
    LS_JV_NONE,
    LS_JV_BOOL,
    LS_JV_INT,
    LS_JV_FLOAT,
    LS_JV_STRING,
    LS_JV_LIST,
    LS_JV_TUPLE,
    LS_JV_DICT,
    LS_JV_VIEW, /* `dict` through keys(), values() or items(): `bytes` is a ls_jv_view */
    LS_JV_RANGE,
    LS_JV_ITERATOR,
    LS_JV_NAMESPACE,
    LS_JV_MACRO,
    LS_JV_FUNCTION, /* a global function */
    LS_JV_METHOD,   /* a method of a value, not called yet */
    LS_JV_LOOP,
} ls_jv_kind;

enum ls_jv_view { LS_JV_KEYS, LS_JV_VALUES, LS_JV_ITEMS };

/* A value: small, copied freely. What it points to is never changed once it is made, but for
 * namespaces, iterators and loops. */
typedef struct ls_jv {
    ls_jv_kind kind : 8;
    bool markup;    /* a string marked as safe: what is added to it is escaped */
    uint32_t bytes; /* of `text` */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text;
        struct ls_jinja_list *list;
        struct ls_jinja_dict *dict;
        struct ls_jinja_range *range;
        struct ls_jinja_iterator *iterator;
        struct ls_jinja_macro *macro;
        struct ls_jinja_loop *loop;
        const struct ls_jinja_missing *missing;
        const struct ls_jinja_method *method;
        const struct ls_jinja_builtin *function;
    };
} ls_jv;

typedef struct ls_jinja_list {
    ls_jv *items;
    size_t count, capacity;
} ls_jinja_list;

/* Entries in the order of insertion, searched one after the other: those of messages and tools
 * are few. */
typedef struct ls_jinja_dict {
    ls_jv *keys, *values;
    size_t count, capacity;
} ls_jinja_dict;

typedef struct ls_jinja_range {
    int64_t start, stop, step;
    size_t count;
} ls_jinja_range;

/* Why a value is undefined. */
typedef struct ls_jinja_missing {
    const char *hint; /* the whole message; NULL: made from the others */
    bool is_unsafe;   /* an attribute that the sandbox refuses */
    bool of_object;
    ls_jv object, name;
} ls_jinja_missing;

typedef struct ls_jinja_args {
    ls_jv *positional;
    size_t count;
    ls_jinja_dict *keywords; /* NULL: none */
} ls_jinja_args;

struct ls_jinja_state;

/* The longest text that printing a value may make. */
enum { LS_JINJA_TEXT_MAX = 256 << 20 };

/* How a builtin is used: `given` are its parameters, undefined where they were left out. */
typedef struct ls_jinja_use {
    ls_jv self; /* what a filter, test or method is applied to */
    const ls_jv *given;
    const ls_jinja_args *args;
    char how; /* which of several that one function does */
} ls_jinja_use;

/*
 * A filter, test, method or global function. `parameters` names its parameters, separated by
 * spaces: "!" before one says that it must be given, "/" at the beginning that none can be given by
 * name; NULL: anything is accepted and `run` reads `args`.
 */
typedef struct ls_jinja_builtin {
    const char *name, *parameters;
    ls_jv (*run)(struct ls_jinja_state *state, const ls_jinja_use *use);
    char how;
} ls_jinja_builtin;

typedef struct ls_jinja_method {
    ls_jv self;
    const ls_jinja_builtin *builtin;
} ls_jinja_method;

/*
 * An iterator: Python's, consumed once, with the values made when they are asked for. `each` is
 * what happens to the values of `source` on their way; NULL: nothing.
 */
typedef struct ls_jinja_iterator {
    ls_jv source;
    size_t position; /* an index, for text a byte offset */
    bool (*each)(struct ls_jinja_state *state, const struct ls_jinja_iterator *iterator, ls_jv *value);
    const void *context;
} ls_jinja_iterator;

/* ---- nodes ---- */

typedef enum ls_jinja_kind {
    /* expressions */
    LS_JINJA_CONST,
    LS_JINJA_NAME,
    LS_JINJA_LIST,
    LS_JINJA_TUPLE,
    LS_JINJA_DICT, /* items: key, value, key, value, ... */
    LS_JINJA_BINARY,
    LS_JINJA_UNARY,
    LS_JINJA_NOT,
    LS_JINJA_COMPARE,   /* a, then items: operands with their op */
    LS_JINJA_OPERAND,   /* op a: of a comparison, or an argument (0, '=' with a name, '*', '**') */
    LS_JINJA_CONDITION, /* a if b else c; c may be NULL */
    LS_JINJA_ATTRIBUTE, /* a.name */
    LS_JINJA_ITEM,      /* a[b] */
    LS_JINJA_SLICE,     /* a[items[0]:items[1]:items[2]], each may be NULL */
    LS_JINJA_CALL,      /* a(items) */
    LS_JINJA_FILTER,    /* a|name(items); a is NULL in filter and set blocks */
    LS_JINJA_TEST,      /* a is name(items) */
    LS_JINJA_REFERENCE, /* a.name as the target of set */
    /* statements */
    LS_JINJA_TEXT,
    LS_JINJA_PRINT,
    LS_JINJA_BLOCK, /* items in order */
    LS_JINJA_IF,    /* a: test, b: body, c: else */
    LS_JINJA_FOR,   /* for a in b if test: body else c */
    LS_JINJA_SET,   /* a = b */
    LS_JINJA_SET_BLOCK,
    LS_JINJA_WITH, /* items: target, value, ... */
    LS_JINJA_MACRO,
    LS_JINJA_CALL_BLOCK,
    LS_JINJA_FILTER_BLOCK,
    LS_JINJA_BREAK,
    LS_JINJA_CONTINUE,
} ls_jinja_kind;

/* What fills a slot when its frame is entered. */
typedef enum ls_jinja_load {
    LS_LOAD_PARAMETER,
    LS_LOAD_VARIABLE,
    LS_LOAD_ALIAS,
    LS_LOAD_NOTHING
} ls_jinja_load;

typedef struct ls_jinja_slot {
    ls_jv name;
    ls_jinja_load load;
    bool is_stored;
    uint32_t hops, slot; /* LS_LOAD_ALIAS: of which variable outside */
} ls_jinja_slot;

/* The variables of a piece of the program that has its own: the whole, a loop's body, a macro. */
typedef struct ls_jinja_frame {
    ls_jinja_slot *slots;
    size_t count, capacity;
} ls_jinja_frame;

/* What a node of a loop or of a macro has besides. */
typedef struct ls_jinja_scope {
    ls_jinja_frame frame, test_frame, else_frame;
    struct ls_jinja_node *test; /* of a loop: the part after `if`, or NULL */
    bool is_recursive;
    /* of a macro: its parameters are the items of the node */
    struct ls_jinja_node **defaults; /* of the last `default_count` parameters */
    size_t default_count;
    bool wants_caller, wants_keywords, wants_rest, is_generation;
    uint32_t loop_slot, caller_slot, keywords_slot, rest_slot;
} ls_jinja_scope;

typedef struct ls_jinja_node {
    ls_jinja_kind kind;
    uint32_t line;
    uint32_t hops, slot; /* of a name: how many frames outwards, and where */
    uint16_t op;
    ls_jv value; /* constant, name, or text */
    struct ls_jinja_node *a, *b, *c, *body;
    struct ls_jinja_node **items;
    size_t count, capacity;
    ls_jinja_scope *scope;
    const ls_jinja_builtin *builtin; /* of a filter or test */
} ls_jinja_node;

/* Operators are their characters: '+', '=' << 8 | '='. Those that are words: */
enum { LS_JINJA_IN = 'i', LS_JINJA_NOT_IN = 'n', LS_JINJA_OR = 'o', LS_JINJA_AND = 'a' };
#define LS_JINJA_OP(first, second) ((uint16_t)((first) << 8 | (second)))

typedef struct ls_jinja_env {
    struct ls_jinja_env *outer;
    ls_jv *slots;
} ls_jinja_env;

typedef struct ls_jinja_macro {
    const ls_jinja_node *node;
    ls_jinja_env *env;
} ls_jinja_macro;

typedef struct ls_jinja_loop {
    ls_jv iterable, iterator;
    ls_jv before, current, after, changed;
    bool has_after, has_length, has_changed;
    int64_t index0;
    size_t length, depth0;
    const ls_jinja_node *node; /* of a recursive loop, else NULL */
    ls_jinja_env *env;
} ls_jinja_loop;

/* ---- a template, and a compilation or rendering of it ---- */

struct ls_chat_template {
    ls_arena arena;
    const char *name;
    ls_jinja_node *root;
    ls_jinja_frame frame;
};

typedef struct ls_jinja_state {
    const char *name;
    ls_status failed; /* LS_OK, or the first failure, whose text is the thread's error text */
    uint32_t line;
    ls_arena arena;
    size_t memory, steps, depth;
    ls_jinja_dict *variables;
    ls_text *out;
    ls_jinja_env *env;
    ls_jv captured; /* the text of the filter or set block whose filters are applied */
    int leaving;    /* 0, or LS_JINJA_BREAK or LS_JINJA_CONTINUE on the way to the loop */
    /* the last text made by joining two, with room to grow */
    char *growing;
    size_t growing_bytes, growing_capacity;
    struct tm now;
} ls_jinja_state;

/* ---- state ---- */

/* The first failure counts; "NAME, line N: " comes before the text. Returns an undefined value. */
ls_jv ls_jinja_fail(ls_jinja_state *state, ls_status status, const char *format, ...) LS_PRINTF(3, 4);
/* What Python refuses, and what we do not have. */
#define ls_jinja_refuse(state, ...)      ls_jinja_fail(state, LS_ERR_DATA, __VA_ARGS__)
#define ls_jinja_unsupported(state, ...) ls_jinja_fail(state, LS_ERR_UNSUPPORTED, __VA_ARGS__)
/* Counts work: one step, and one for each 64 bytes. */
void ls_jinja_spend(ls_jinja_state *state, size_t bytes);
/* Memory of the rendering. NULL when the limit is met and bytes > 4096. */
void *ls_jinja_take(ls_jinja_state *state, size_t bytes);
/* Before data or calls inside data or calls: false at the limit. Leave it by depth--. */
bool ls_jinja_enter(ls_jinja_state *state);

/* ---- compiling ---- */

typedef enum ls_jinja_token_kind {
    LS_TOKEN_DATA,
    LS_TOKEN_PRINT,
    LS_TOKEN_PRINT_END,
    LS_TOKEN_BLOCK,
    LS_TOKEN_BLOCK_END,
    LS_TOKEN_NAME,
    LS_TOKEN_CONST, /* string or number, in `value` */
    LS_TOKEN_OP,
    LS_TOKEN_EOF,
} ls_jinja_token_kind;

typedef struct ls_jinja_token {
    ls_jinja_token_kind kind;
    uint16_t op;
    uint32_t line;
    ls_jv value; /* text of data and names; a constant */
} ls_jinja_token;

/* Tokens of the source, ended by one LS_TOKEN_EOF; they point into it. */
ls_jinja_token *ls_jinja_lex(ls_jinja_state *state, const char *source, size_t bytes);
ls_jinja_node *ls_jinja_parse(ls_jinja_state *state, const ls_jinja_token *tokens);
/* Gives every name its slot and every frame its loads. */
void ls_jinja_resolve(ls_jinja_state *state, ls_jinja_node *root, ls_jinja_frame *frame);

/* ---- running ---- */

ls_jv ls_jinja_evaluate(ls_jinja_state *state, const ls_jinja_node *node);
void ls_jinja_execute(ls_jinja_state *state, const ls_jinja_node *node);
/* Loads a frame's variables into new slots inside `outer`, and makes it the current one. */
void ls_jinja_frame_enter(ls_jinja_state *state, const ls_jinja_frame *frame, ls_jinja_env *env,
                          ls_jinja_env *outer);
void ls_jinja_assign(ls_jinja_state *state, const ls_jinja_node *target, ls_jv value);
ls_jv ls_jinja_call(ls_jinja_state *state, ls_jv callee, const ls_jinja_args *args);
ls_jv ls_jinja_call_macro(ls_jinja_state *state, const ls_jinja_macro *macro, const ls_jinja_args *args);
ls_jv ls_jinja_call_loop(ls_jinja_state *state, ls_jinja_loop *loop, ls_jv iterable);
ls_jv ls_jinja_call_builtin(ls_jinja_state *state, const ls_jinja_builtin *builtin, ls_jv self,
                            const ls_jinja_args *args);
/* The values of the operands of a call, filter or test. */
ls_jinja_args ls_jinja_arguments(ls_jinja_state *state, const ls_jinja_node *call);

/* ---- values ---- */

static inline ls_jv ls_jv_undefined(void)
{
    return (ls_jv){.kind = LS_JV_UNDEFINED};
}
static inline ls_jv ls_jv_none(void)
{
    return (ls_jv){.kind = LS_JV_NONE};
}
static inline ls_jv ls_jv_bool(bool truth)
{
    return (ls_jv){.kind = LS_JV_BOOL, .truth = truth};
}
static inline ls_jv ls_jv_int(int64_t integer)
{
    return (ls_jv){.kind = LS_JV_INT, .integer = integer};
}
static inline ls_jv ls_jv_float(double real)
{
    return (ls_jv){.kind = LS_JV_FLOAT, .real = real};
}
/* `text` is not copied. */
static inline ls_jv ls_jv_text(const char *text, size_t bytes)
{
    return (ls_jv){.kind = LS_JV_STRING, .bytes = (uint32_t)bytes, .text = text};
}
static inline bool ls_jv_is_number(ls_jv v)
{
    return v.kind == LS_JV_BOOL || v.kind == LS_JV_INT || v.kind == LS_JV_FLOAT;
}
static inline bool ls_jv_is_whole(ls_jv v)
{
    return v.kind == LS_JV_BOOL || v.kind == LS_JV_INT;
}
static inline int64_t ls_jv_whole(ls_jv v)
{
    return v.kind == LS_JV_BOOL ? v.truth : v.integer;
}
static inline double ls_jv_real(ls_jv v)
{
    return v.kind == LS_JV_FLOAT ? v.real : (double)ls_jv_whole(v);
}
static inline bool ls_jv_is(ls_jv v, const char *text)
{
    return v.kind == LS_JV_STRING && v.bytes == strlen(text) && memcmp(v.text, text, v.bytes) == 0;
}

/* A copy in the rendering's memory; `text` is released. */
ls_jv ls_jv_take_text(ls_jinja_state *state, ls_text *text);
ls_jv ls_jv_copy(ls_jinja_state *state, const char *text, size_t bytes);
/* a + b of text. */
ls_jv ls_jv_join(ls_jinja_state *state, ls_jv a, ls_jv b);
ls_jv ls_jv_list(ls_jinja_state *state, ls_jv_kind kind, size_t capacity);
void ls_jv_push(ls_jinja_state *state, ls_jinja_list *list, ls_jv item);
ls_jv ls_jv_pair(ls_jinja_state *state, ls_jv first, ls_jv second);
ls_jinja_dict *ls_jinja_dict_new(ls_jinja_state *state, size_t capacity);
/* Whether a parameter was left out. */
static inline bool ls_jv_is_absent(ls_jv v)
{
    return v.kind == LS_JV_UNDEFINED && !v.missing;
}
/* Refuses keys that Python can't hash. */
void ls_jinja_dict_set(ls_jinja_state *state, ls_jinja_dict *dict, ls_jv key, ls_jv value);
/* NULL when it is not there. */
const ls_jv *ls_jinja_dict_find(ls_jinja_state *state, const ls_jinja_dict *dict, ls_jv key);
bool ls_jv_is_hashable(ls_jv v);
ls_jv ls_jv_of_json(ls_jinja_state *state, const json_t *json);

bool ls_jv_truth(ls_jinja_state *state, ls_jv v);
bool ls_jv_equal(ls_jinja_state *state, ls_jv a, ls_jv b);
/* a < b; refuses what Python can't order. */
bool ls_jv_less(ls_jinja_state *state, ls_jv a, ls_jv b);
bool ls_jv_contains(ls_jinja_state *state, ls_jv container, ls_jv item);
/* len(); false without a refusal when the value has none. */
bool ls_jv_length(ls_jinja_state *state, ls_jv v, size_t *length_out);
/* Python's name of the type: "str". */
const char *ls_jv_type(ls_jv v);
/* Iterates: an iterator stays itself. Refuses what is not iterable. */
ls_jinja_iterator *ls_jv_iterate(ls_jinja_state *state, ls_jv v);
bool ls_jinja_next(ls_jinja_state *state, ls_jinja_iterator *iterator, ls_jv *value_out);
bool ls_jv_is_iterable(ls_jv v);
/* list(v) */
ls_jinja_list *ls_jv_to_list(ls_jinja_state *state, ls_jv v);
ls_jv ls_jv_iterator(ls_jinja_state *state, ls_jv source);
/* An undefined value; `hint` is what its use is refused with. */
ls_jv ls_jv_missing(ls_jinja_state *state, const char *hint);
/* Refuses the use of an undefined value. */
ls_jv ls_jv_fail_undefined(ls_jinja_state *state, ls_jv undefined);

/* environment.getattr and environment.getitem */
ls_jv ls_jv_attribute(ls_jinja_state *state, ls_jv object, ls_jv name);
ls_jv ls_jv_item(ls_jinja_state *state, ls_jv object, ls_jv key);
ls_jv ls_jv_slice(ls_jinja_state *state, ls_jv object, const ls_jv bounds[3]);
/* What markupsafe.escape returns. */
ls_jv ls_jv_escape(ls_jinja_state *state, ls_jv v);
ls_jv ls_jv_binary(ls_jinja_state *state, uint16_t op, ls_jv a, ls_jv b);

/* str() and repr(), appended to `out`. */
void ls_jv_print(ls_jinja_state *state, ls_jv v, ls_text *out);
void ls_jv_repr(ls_jinja_state *state, ls_jv v, ls_text *out);
ls_jv ls_jv_string(ls_jinja_state *state, ls_jv v);
void ls_jinja_float_repr(double value, ls_text *out);

/* text % values, and text.format(...) */
ls_jv ls_jinja_percent(ls_jinja_state *state, ls_jv format, ls_jv values);
ls_jv ls_jinja_format(ls_jinja_state *state, ls_jv format, const ls_jinja_args *args);

/* ---- text by characters ---- */

/* Characters first, first + step, ... last, which become another one by a difference
 * (case_tables.c): to upper case, to lower case, and those that are no such simple cases. */
typedef struct ls_jinja_case_run {
    uint32_t first, last, step;
    int32_t difference;
} ls_jinja_case_run;
extern const ls_jinja_case_run ls_jinja_upper[], ls_jinja_lower[], ls_jinja_odd_case[];
extern const size_t ls_jinja_upper_count, ls_jinja_lower_count, ls_jinja_odd_case_count;

size_t ls_jinja_characters(ls_jv text);
/* The byte offset of character `index`. */
size_t ls_jinja_offset(ls_jv text, size_t index);
bool ls_jinja_is_space(uint32_t c);
/* Python's isupper (u) and islower (l). */
bool ls_jinja_has_case(ls_jinja_state *state, ls_jv text, char how);
/* Appends text to a text in the making, within the limits. */
void ls_jinja_append(ls_jinja_state *state, ls_text *out, ls_jv text);
/* Where `needle` is in text[from, to), by bytes; SIZE_MAX: nowhere. */
size_t ls_jinja_find(ls_jinja_state *state, ls_jv text, size_t from, size_t to, ls_jv needle);
ls_jv ls_jinja_strip(ls_jinja_state *state, ls_jv text, ls_jv characters, bool left, bool right);
ls_jv ls_jinja_case(ls_jinja_state *state, ls_jv text, char how);
ls_jv ls_jinja_replace(ls_jinja_state *state, ls_jv text, ls_jv old, ls_jv new, int64_t count);
ls_jv ls_jinja_lines(ls_jinja_state *state, ls_jv text, bool keep_ends);

/* ---- what is built in ---- */

/* The one of that name; NULL when there is none. */
const ls_jinja_builtin *ls_jinja_builtin_find(const ls_jinja_builtin *list, size_t count, ls_jv name);
const ls_jinja_builtin *ls_jinja_filter_find(ls_jv name);
const ls_jinja_builtin *ls_jinja_test_find(ls_jv name);
/* Refuses a filter or test that there is not. */
void ls_jinja_fail_builtin(ls_jinja_state *state, ls_jv name, bool is_test);
/* The methods of text. */
extern const ls_jinja_builtin ls_jinja_text_methods[];
extern const size_t ls_jinja_text_method_count;
/* The filters of sequences.c, for filters.c. */
extern const ls_jinja_builtin ls_jinja_sequence_filters[];
extern const size_t ls_jinja_sequence_filter_count;
/* A global function; undefined when there is none of that name. */
ls_jv ls_jinja_global_find(ls_jv name);
/*
 * The attribute of a value that is not data: a method or a property. False: Python has none of that
 * name. What Python has and we don't is a failure.
 */
bool ls_jinja_method_find(ls_jinja_state *state, ls_jv self, ls_jv name, ls_jv *value_out);
/* The keys of a dict in order; refuses keys that have none. */
ls_jinja_list *ls_jinja_sorted_keys(ls_jinja_state *state, const ls_jinja_dict *dict);
/* How many values a loop has; those not yet asked for are made. */
size_t ls_jinja_loop_length(ls_jinja_state *state, ls_jinja_loop *loop);
/* str(value) as JSON; options: ensure_ascii, indent, separators, sort_keys. */
void ls_jinja_json(ls_jinja_state *state, ls_jv value, const ls_jv *options, ls_text *out);

#endif

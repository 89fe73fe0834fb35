// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the interpreter of chat templates.
 *
 *   source -> lexer.c -> tokens -> parser.c, scopes.c -> nodes whose names are slots -> run.c -> text
 *
 * Errors are kept: the first failure is written to the ls_jinja, and everything after it does
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
    LS_JV_UNDEFINED, /* `missing` says what is missing; NULL: a parameter that was left out */
    LS_JV_NONE,
    LS_JV_BOOL,
    LS_JV_INT,
    LS_JV_FLOAT,
    LS_JV_STRING,
    /* these have a `list`: */
    LS_JV_LIST,
    LS_JV_TUPLE,
    LS_JV_RANGE,
    LS_JV_VIEW,      /* keys(), values() or items() of a dict: `bytes` is an ls_jv_view */
    LS_JV_GENERATOR, /* what is left of it: whoever iterates takes the values away */
    LS_JV_DICT,      /* key, value, key, value, ... in the order of insertion */
    LS_JV_NAMESPACE, /* a dict that can be changed */
    /* and these can be called: */
    LS_JV_MACRO,
    LS_JV_FUNCTION,
    LS_JV_METHOD, /* of a value, not called yet */
    LS_JV_LOOP,
} ls_jv_kind;

enum ls_jv_view { LS_JV_KEYS, LS_JV_VALUES, LS_JV_ITEMS };

/* A value: small, copied freely. What it points to is never changed once it is made, but for
 * namespaces, generators and loops. */
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

/* Why a value is undefined. */
typedef struct ls_jinja_missing {
    const char *hint;   /* the whole message; NULL: made from the others */
    bool is_unsafe;     /* an attribute that the sandbox refuses */
    ls_jv object, name; /* object: undefined for a variable */
} ls_jinja_missing;

/* ---- what is built in ---- */

typedef struct ls_jinja ls_jinja;

typedef struct ls_jinja_args {
    ls_jv *positional;
    size_t count;
    ls_jinja_list *keywords; /* as the list of a dict; NULL: none */
} ls_jinja_args;

/* How a builtin is used. */
typedef struct ls_jinja_use {
    ls_jv self;         /* what a filter, test or method is applied to */
    const ls_jv *given; /* its parameters, undefined where they were left out */
    const ls_jinja_args *args;
    uint16_t how; /* which of several that one function does */
} ls_jinja_use;

/* Where a builtin is found: as a filter, a test, a global function, or at values of a kind. */
enum {
    LS_AT_FILTER = 1 << 0,
    LS_AT_TEST = 1 << 1,
    LS_AT_GLOBAL = 1 << 2,
    LS_AT_TEXT = 1 << 3,
    LS_AT_LIST = 1 << 4,
    LS_AT_TUPLE = 1 << 5,
    LS_AT_DICT = 1 << 6,
    LS_AT_LOOP = 1 << 7,
    LS_AT_NUMBER = 1 << 8,
    LS_AT_MACRO = 1 << 9,
    LS_AT_ITERABLE = 1 << 10, /* of the other kinds */
    LS_AT_VALUES = (1 << 11) - LS_AT_TEXT,
    LS_AT_PLAIN = 1 << 11, /* not at text that is marked as safe */
};

/*
 * `names`: those that it has, with spaces between them. `parameters` does the same for its
 * parameters: "!" before one says that it must be given; after it, ":s" that it must be text, ":i"
 * a whole number, ":n" a whole number or none. "/" at the beginning: none can be given by name.
 * NULL: anything is accepted and `run` reads `args`. "@": a property, made when it is read. `run`
 * NULL: Jinja2 or Python has it and we don't, or, LS_JINJA_HIDDEN, the sandbox hides it.
 */
typedef struct ls_jinja_builtin {
    const char *names;
    uint16_t where;
    const char *parameters;
    ls_jv (*run)(ls_jinja *j, const ls_jinja_use *use);
    uint16_t how;
} ls_jinja_builtin;
enum { LS_JINJA_HIDDEN = 1 };
/* For %.*s: its first name, and text. */
#define ls_jinja_name(builtin) (int)strcspn((builtin)->names, " "), (builtin)->names
#define LS_JV_PRINT(v)         (int)(v).bytes, (v).text

typedef struct ls_jinja_method {
    ls_jv self;
    const ls_jinja_builtin *builtin;
} ls_jinja_method;

/* NULL when there is none of that name there. */
const ls_jinja_builtin *ls_jinja_builtin_find(unsigned where, ls_jv name);
/* Parts of the table, each ended by one without names. */
extern const ls_jinja_builtin ls_jinja_text_builtins[], ls_jinja_builtins[];

/* ---- nodes ---- */

typedef enum ls_jinja_kind {
    /* expressions */
    LS_JINJA_CONST,
    LS_JINJA_NAME,
    LS_JINJA_LIST,
    LS_JINJA_TUPLE,
    LS_JINJA_DICT,      /* items: key, value, key, value, ... */
    LS_JINJA_BINARY,    /* a op b */
    LS_JINJA_UNARY,     /* op a: '-', '+' or '!' for not */
    LS_JINJA_COMPARE,   /* a, then items: operands with their op */
    LS_JINJA_OPERAND,   /* op a: of a comparison, or an argument (0, '=' with a name, '*', '**') */
    LS_JINJA_CONDITION, /* a if b else c; c may be NULL */
    LS_JINJA_ATTRIBUTE, /* a.name; also as the target of set */
    LS_JINJA_ITEM,      /* a[b] */
    LS_JINJA_SLICE,     /* a[items[0]:items[1]:items[2]], each may be NULL */
    LS_JINJA_CALL,      /* a(items) */
    LS_JINJA_FILTER,    /* a|name(items); a is NULL in filter and set blocks */
    LS_JINJA_TEST,      /* a is name(items) */
    /* statements */
    LS_JINJA_TEXT,
    LS_JINJA_PRINT,
    LS_JINJA_BLOCK,        /* items in order; with a frame of its own, or without */
    LS_JINJA_IF,           /* a: test, b: body, c: else */
    LS_JINJA_FOR,          /* for a in b if test: body else c */
    LS_JINJA_SET,          /* a = b, or, without b, a = body through the filters c */
    LS_JINJA_FILTER_BLOCK, /* prints the body through the filters c */
    LS_JINJA_WITH,         /* items: target, value, ... */
    LS_JINJA_MACRO,        /* items: parameters, each with its default in b */
    LS_JINJA_CALL_BLOCK,   /* the same; b: the call, NULL for {% generation %} */
    LS_JINJA_BREAK,
    LS_JINJA_CONTINUE,
} ls_jinja_kind;

/* What fills a slot when its frame is entered: nothing, what the caller gave under its name, or the
 * variable of a frame outside. */
typedef enum ls_jinja_load { LS_LOAD_PARAMETER, LS_LOAD_NOTHING, LS_LOAD_GIVEN, LS_LOAD_ALIAS } ls_jinja_load;

typedef struct ls_jinja_slot {
    ls_jv name;
    ls_jinja_load load;
    uint32_t hops, slot;              /* LS_LOAD_ALIAS: of which variable outside */
    const ls_jinja_builtin *function; /* LS_LOAD_GIVEN: what it is if the caller gave none */
} ls_jinja_slot;

/* What a macro may use without having it as a parameter. */
enum { LS_JINJA_CALLER, LS_JINJA_KWARGS, LS_JINJA_VARARGS, LS_JINJA_SPECIALS };

/* The variables of a piece of the program that has its own: the whole, a loop's body, a macro. */
typedef struct ls_jinja_frame {
    struct ls_jinja_frame *outer, *next; /* next: of all frames */
    ls_jinja_slot *slots;
    size_t count, capacity;
    unsigned branches; /* how many `if` are around, while parsing */
    uint32_t loop_slot;
    bool wants[LS_JINJA_SPECIALS];
    uint32_t special_slots[LS_JINJA_SPECIALS];
} ls_jinja_frame;

typedef struct ls_jinja_node {
    ls_jinja_kind kind;
    uint32_t line;
    uint32_t slot; /* of a name */
    uint16_t op;
    bool is_recursive;
    ls_jv value; /* constant, name, or text */
    struct ls_jinja_node *a, *b, *c, *body, *test;
    struct ls_jinja_node **items;
    size_t count, capacity;
    ls_jinja_frame *frame;
    const ls_jinja_builtin *builtin; /* of a filter or test; that an attribute may be */
} ls_jinja_node;

/* Operators are their first two characters: '+', LS_JINJA_OP('=', '='), LS_JINJA_OP('o', 'r'). */
#define LS_JINJA_OP(first, second) ((uint16_t)((first) | (second) << 8))
enum { LS_JINJA_NOT_IN = '!' };

typedef struct ls_jinja_env {
    struct ls_jinja_env *outer;
    ls_jv *slots;
} ls_jinja_env;

typedef struct ls_jinja_macro {
    const ls_jinja_node *node;
    ls_jinja_env *env;
} ls_jinja_macro;

/* A loop that runs. The values that its `if` keeps are found one at a time, because the body may
 * change what the `if` reads. */
typedef struct ls_jinja_loop {
    const ls_jinja_node *node;
    ls_jinja_list values;   /* those to come */
    ls_jinja_env *env;      /* around the loop */
    ls_jinja_env *test_env; /* of its `if`; NULL: it has none, or all values are tested */
    ls_jv before, current, after, changed;
    bool has_after, has_changed;
    int64_t index0;
    size_t depth0;
} ls_jinja_loop;

/* ---- a template, and a compilation or rendering of it ---- */

struct ls_chat_template {
    ls_arena arena;
    const char *name;
    ls_jinja_node *root;
    ls_jinja_frame frame;
};

struct ls_jinja {
    const char *name;
    ls_status failed; /* LS_OK, or the first failure, whose text is the thread's error text */
    uint32_t line;
    ls_arena arena;
    size_t memory, steps, depth;
    ls_jinja_list *variables; /* as the list of a dict */
    ls_text *out;
    ls_jinja_env *env;
    ls_jv captured; /* the text of the filter or set block whose filters are applied */
    int leaving;    /* 0, or LS_JINJA_BREAK or LS_JINJA_CONTINUE on the way to the loop */
    /* the last text made by joining two, with room to grow */
    char *growing;
    size_t growing_bytes, growing_capacity;
    struct tm now;
};

/* The longest text that printing a value may make. */
enum { LS_JINJA_TEXT_MAX = 256 << 20 };

/* The first failure counts; "NAME, line N: " comes before the text. Returns an undefined value. */
ls_jv ls_jinja_fail(ls_jinja *j, ls_status status, const char *format, ...) LS_PRINTF(3, 4);
/* What Python refuses, and what we do not have. */
#define ls_jinja_refuse(j, ...)      ls_jinja_fail(j, LS_ERR_DATA, __VA_ARGS__)
#define ls_jinja_unsupported(j, ...) ls_jinja_fail(j, LS_ERR_UNSUPPORTED, __VA_ARGS__)
/* Counts work: one step, and one for each 64 bytes. */
void ls_jinja_spend(ls_jinja *j, size_t bytes);
/* Memory of the rendering. NULL when the limit is met and bytes > 4096. */
void *ls_jinja_take(ls_jinja *j, size_t bytes);
/* Before data or calls inside data or calls: false at the limit. Leave it by depth--. */
bool ls_jinja_enter(ls_jinja *j);
/* `items` with room for one more, while compiling. */
void *ls_jinja_grow(ls_jinja *j, void *items, size_t count, size_t *capacity, size_t item_bytes);
/* Which of the words in a list with spaces between them; -1: none. */
int ls_jinja_word(const char *words, ls_jv name);

/* ---- compiling ---- */

enum { LS_JINJA_NESTING_MAX = 200 };

typedef enum ls_jinja_token_kind {
    LS_TOKEN_DATA,
    LS_TOKEN_NAME,
    LS_TOKEN_OP,    /* also the ends of tags: "{{", "%}" */
    LS_TOKEN_CONST, /* a string or number */
    LS_TOKEN_EOF,
} ls_jinja_token_kind;

typedef struct ls_jinja_token {
    ls_jinja_token_kind kind;
    uint32_t line;
    ls_jv value; /* the text, or the constant */
} ls_jinja_token;

/* Tokens of the source, ended by one LS_TOKEN_EOF; they point into it. */
ls_jinja_token *ls_jinja_lex(ls_jinja *j, const char *source, size_t bytes);
/* Of a name in a frame; NULL: it has none. */
ls_jinja_slot *ls_jinja_slot_find(const ls_jinja_frame *frame, ls_jv name);
/* The same as an index; `load` is what fills it if this is the first use of the name. */
uint32_t ls_jinja_slot_of(ls_jinja *j, ls_jinja_frame *frame, ls_jv name, ls_jinja_load load);
/* Finds the variables outside, or the functions, that the slots of all frames are filled from. */
void ls_jinja_resolve(ls_jinja_frame *root);
/* The program; `frame` is that of the whole. */
ls_jinja_node *ls_jinja_parse(ls_jinja *j, const ls_jinja_token *tokens, ls_jinja_frame *frame);

/* ---- running ---- */

/* Runs the whole template. */
void ls_jinja_run(ls_jinja *j, const ls_chat_template *template);
ls_jv ls_jinja_call_builtin(ls_jinja *j, const ls_jinja_builtin *builtin, ls_jv self,
                            const ls_jinja_args *args);
/* Refuses a filter or test that there is not. */
ls_jv ls_jinja_fail_builtin(ls_jinja *j, const ls_jinja_node *node);
/* Whether there is one more value: then it is in loop->after. */
bool ls_jinja_loop_peek(ls_jinja *j, ls_jinja_loop *loop);
/* How many values a loop has. */
size_t ls_jinja_loop_length(ls_jinja *j, ls_jinja_loop *loop);

/* ---- making values ---- */

static inline ls_jv ls_jv_none(void)
{
    return (ls_jv){.kind = LS_JV_NONE};
}
static inline ls_jv ls_jv_undefined(void)
{
    return (ls_jv){.kind = LS_JV_UNDEFINED};
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
static inline ls_jv ls_jv_of(ls_jv_kind kind, ls_jinja_list *list)
{
    return (ls_jv){.kind = kind, .list = list};
}
/* text[from, to), by bytes. */
static inline ls_jv ls_jv_part(ls_jv text, size_t from, size_t to)
{
    return (ls_jv){.kind = LS_JV_STRING,
                   .markup = text.markup,
                   .bytes = (uint32_t)(to - from),
                   .text = text.text + from};
}
/* An undefined value; `hint` is what its use is refused with. */
ls_jv ls_jv_missing(ls_jinja *j, const char *hint);
/* A copy in the rendering's memory; `text` is released. */
ls_jv ls_jv_take_text(ls_jinja *j, ls_text *text);
/* a + b of text. */
ls_jv ls_jv_join(ls_jinja *j, ls_jv a, ls_jv b);
ls_jinja_list *ls_jinja_list_new(ls_jinja *j, size_t capacity);
void ls_jv_push(ls_jinja *j, ls_jinja_list *list, ls_jv item);
/* Of dicts. Set refuses keys that Python can't hash; find returns NULL when it is not there, and
 * for a dict that is NULL. */
void ls_jinja_set(ls_jinja *j, ls_jinja_list *dict, ls_jv key, ls_jv value);
const ls_jv *ls_jinja_get(ls_jinja *j, const ls_jinja_list *dict, ls_jv key);
ls_jv ls_jv_view(ls_jinja *j, const ls_jinja_list *dict, enum ls_jv_view what);
ls_jv ls_jv_of_json(ls_jinja *j, const json_t *json);

/* ---- asking values ---- */

/* Whether a parameter was left out. */
static inline bool ls_jv_is_absent(ls_jv v)
{
    return v.kind == LS_JV_UNDEFINED && !v.missing;
}
static inline ls_jv ls_jv_or(ls_jv v, ls_jv otherwise)
{
    return ls_jv_is_absent(v) ? otherwise : v;
}
static inline bool ls_jv_is_whole(ls_jv v)
{
    return v.kind == LS_JV_BOOL || v.kind == LS_JV_INT;
}
static inline bool ls_jv_is_number(ls_jv v)
{
    return ls_jv_is_whole(v) || v.kind == LS_JV_FLOAT;
}
static inline int64_t ls_jv_whole(ls_jv v)
{
    return v.kind == LS_JV_BOOL ? v.truth : v.integer;
}
static inline double ls_jv_real(ls_jv v)
{
    return v.kind == LS_JV_FLOAT ? v.real : (double)ls_jv_whole(v);
}
static inline bool ls_jv_same_text(ls_jv a, ls_jv b)
{
    return a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0;
}
static inline bool ls_jv_is(ls_jv v, const char *text)
{
    return v.kind == LS_JV_STRING && ls_jv_same_text(v, ls_jv_text(text, strlen(text)));
}

bool ls_jv_truth(ls_jinja *j, ls_jv v);
bool ls_jv_equal(ls_jinja *j, ls_jv a, ls_jv b);
/* a < b; refuses what Python can't order. */
bool ls_jv_less(ls_jinja *j, ls_jv a, ls_jv b);
/* A comparison, or `in`. */
bool ls_jv_compare(ls_jinja *j, uint16_t op, ls_jv a, ls_jv b);
/* len(); false without a refusal when the value has none. */
bool ls_jv_length(ls_jinja *j, ls_jv v, size_t *length_out);
/* Python's name of the type: "str". */
const char *ls_jv_type(ls_jv v);
bool ls_jv_is_iterable(ls_jv v);
/* The values of iterating, not to be changed; refuses what is not iterable. A generator has none
 * afterwards. */
ls_jinja_list ls_jv_items(ls_jinja *j, ls_jv v);
/* list(v): a copy. */
ls_jinja_list *ls_jv_to_list(ls_jinja *j, ls_jv v);
/* A dict in the order of its keys; refuses keys that have none. Stable; keys may be equal. */
ls_jinja_list *ls_jinja_sorted(ls_jinja *j, const ls_jinja_list *dict, bool is_reversed);
void ls_jinja_reverse(ls_jinja_list *list);
/* Refuses the use of an undefined value. */
ls_jv ls_jv_fail_undefined(ls_jinja *j, ls_jv undefined);

/* environment.getattr and environment.getitem */
ls_jv ls_jv_attribute(ls_jinja *j, ls_jv object, ls_jv name);
ls_jv ls_jv_item(ls_jinja *j, ls_jv object, ls_jv key);
ls_jv ls_jv_slice(ls_jinja *j, ls_jv object, const ls_jv bounds[3]);
ls_jv ls_jv_binary(ls_jinja *j, uint16_t op, ls_jv a, ls_jv b);

/* ---- printing ---- */

/* str() and repr(), appended to `out`. */
void ls_jv_print(ls_jinja *j, ls_jv v, ls_text *out);
void ls_jv_repr(ls_jinja *j, ls_jv v, ls_text *out);
ls_jv ls_jv_string(ls_jinja *j, ls_jv v);
/* What markupsafe.escape returns. */
ls_jv ls_jv_escape(ls_jinja *j, ls_jv v);
/* The filter tojson, text % values, and text.format(...). */
ls_jv ls_jinja_json(ls_jinja *j, const ls_jinja_use *use);
ls_jv ls_jinja_percent(ls_jinja *j, ls_jv format, ls_jv values);
ls_jv ls_jinja_format(ls_jinja *j, const ls_jinja_use *use);

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
/* Appends text to a text in the making, within the limits. */
void ls_jinja_append(ls_jinja *j, ls_text *out, ls_jv text);
/* Appends text with `fill` before and after it, so that it has `width` characters; align is that of
 * ljust (l), rjust (r), center (c) and zfill (z: after the sign). */
void ls_jinja_pad(ls_jinja *j, ls_text *out, ls_jv text, int64_t width, ls_jv fill, char align);
/* Where `needle` is in text[from, to), by bytes, the first or the last one; SIZE_MAX: nowhere. */
size_t ls_jinja_find(ls_jinja *j, ls_jv text, size_t from, size_t to, ls_jv needle, bool is_last);
/* Without the characters (none: white space) at its ends: left (l), right (r), both (b). */
ls_jv ls_jinja_strip(ls_jinja *j, ls_jv text, ls_jv characters, char ends);
/* In upper (u), lower (l) or title (t) case, capitalized (c), swapped (s). */
ls_jv ls_jinja_case(ls_jinja *j, ls_jv text, char how);

#endif

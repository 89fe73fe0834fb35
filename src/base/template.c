// SPDX-License-Identifier: Apache-2.0
#include "base/template.h"

#include "base/assert.h"

#include <string.h>

#define DASH     "\u2013"
#define ELLIPSIS "\u2026"

/* ---- values ---- */

typedef enum value_kind { VALUE_TEXT, VALUE_PROSE, VALUE_MARKUP, VALUE_FLAG, VALUE_LIST } value_kind;

typedef struct value {
    const char *name;
    value_kind kind;
    const char *text;                /* zero-terminated, unless it is a flag or a list */
    bool flag;                       /* of VALUE_FLAG */
    ls_values *first_row, *last_row; /* of VALUE_LIST */
    struct value *next;
} value;

struct ls_values {
    ls_arena *arena;
    value *values;
    ls_values *next_row;
};

ls_values *ls_values_create(ls_arena *arena)
{
    ls_values *values = ls_arena_new(arena, ls_values, 1);
    values->arena = arena;
    return values;
}

static value *find_value(const ls_values *values, const char *name, size_t bytes)
{
    value *at = values->values;
    while (at && !(strlen(at->name) == bytes && memcmp(at->name, name, bytes) == 0)) {
        at = at->next;
    }
    return at;
}

static value *set_value(ls_values *values, const char *name, value_kind kind)
{
    value *found = find_value(values, name, strlen(name));
    if (!found) {
        LS_ASSERT(strlen(name) <= LS_TEMPLATE_NAME_MAX);
        found = ls_arena_new(values->arena, value, 1);
        found->name = ls_arena_strdup(values->arena, name);
        found->next = values->values;
        values->values = found;
    }
    found->kind = kind;
    return found;
}

void ls_values_bytes(ls_values *values, const char *name, const char *data, size_t bytes)
{
    /* Escaped here and not on expansion, because a value may appear in several places. */
    ls_text printable = {0};
    ls_text_append_printable(&printable, data, bytes, "\n\t");
    set_value(values, name, VALUE_TEXT)->text = ls_text_keep(&printable, values->arena);
}

void ls_values_text(ls_values *values, const char *name, const char *text)
{
    text = text ? text : DASH;
    ls_values_bytes(values, name, text, strlen(text));
}

void ls_values_printf(ls_values *values, const char *name, const char *format, ...)
{
    ls_text text = {0};
    va_list args;
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    ls_values_bytes(values, name, ls_text_string(&text), text.bytes);
    ls_text_release(&text);
}

void ls_values_cut(ls_values *values, const char *name, const char *text, size_t bytes_max)
{
    const size_t bytes = text ? strlen(text) : 0;
    if (bytes <= bytes_max) {
        ls_values_text(values, name, text);
        return;
    }
    size_t kept = bytes_max;
    while (kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80) {
        kept--; /* not in the middle of a character */
    }
    ls_values_printf(values, name, "%.*s" ELLIPSIS, (int)kept, text);
}

void ls_values_prose(ls_values *values, const char *name, const char *sentence)
{
    ls_values_text(values, name, sentence);
    set_value(values, name, VALUE_PROSE);
}

void ls_values_flag(ls_values *values, const char *name, bool flag)
{
    set_value(values, name, VALUE_FLAG)->flag = flag;
}

void ls_values_markup(ls_values *values, const char *name, ls_text *made)
{
    set_value(values, name, VALUE_MARKUP)->text = ls_arena_strdup(values->arena, ls_text_string(made));
    ls_text_release(made);
}

ls_values *ls_values_add(ls_values *values, const char *name)
{
    value *list = set_value(values, name, VALUE_LIST);
    ls_values *row = ls_values_create(values->arena);
    if (list->last_row) {
        list->last_row->next_row = row;
    } else {
        list->first_row = row;
    }
    list->last_row = row;
    return row;
}

/* ---- tags ---- */

/* The values of a place: those of the innermost row first, then those around it. */
typedef struct scope {
    const ls_values *values;
    const struct scope *outer;
} scope;

typedef struct expansion {
    const ls_embedded_file *files, *file;
    int depth;
    ls_text *text;
} expansion;

typedef struct tag {
    const char *begin, *end; /* from the first brace to after the last, or after the line */
    char sigil;              /* one of # ^ / > ! {, or 0 for a value */
    const char *name;
    size_t name_bytes;
} tag;

/* `which`: the wrong tag; NULL: it could not be read as a tag. */
static ls_status fail_at(const expansion *e, const char *at, const char *what, const tag *which)
{
    int line = 1;
    for (const char *c = e->file->text; c < at; c++) {
        line += *c == '\n';
    }
    if (!which) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: %s", e->file->name, line, what);
    }
    return ls_fail(LS_ERR_INVALID, "%s:%d: {{%.*s}} %s", e->file->name, line, (int)which->name_bytes,
                   which->name, what);
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static const char *find(const char *from, const char *end, const char *string)
{
    return memmem(from, (size_t)(end - from), string, strlen(string));
}

/* A tag with a line of its own ends after that line, so that sections can be laid out in lines
 * without leaving blank ones in the page. Returns the end of the tag. */
static const char *end_of_line(const expansion *e, const char *begin, const char *after)
{
    const char *before = begin;
    while (before > e->file->text && (before[-1] == ' ' || before[-1] == '\t')) {
        before--;
    }
    const bool is_first = before == e->file->text || before[-1] == '\n';
    return is_first && *after == '\n' ? after + 1 : after;
}

/* The first tag of from..end; found_out->begin is `end` when there is none. */
static ls_status next_tag(const expansion *e, const char *from, const char *end, tag *found_out)
{
    const char *begin = find(from, end, "{{");
    *found_out = (tag){.begin = begin ? begin : end, .end = end};
    if (!begin) {
        return LS_OK;
    }
    const char *at = begin + 2;
    const char sigil = at < end && strchr("#^/>!{", *at) ? *at++ : '\0';
    const char *const closing = sigil == '{' ? "}}}" : "}}", *close = find(at, end, closing);
    if (!close) {
        return fail_at(e, begin, "a tag is not closed by as many braces as open it", NULL);
    }
    found_out->sigil = sigil;
    found_out->name = at;
    found_out->name_bytes = (size_t)(close - at);
    found_out->end = close + strlen(closing);
    if (sigil == '!') {
        found_out->name_bytes = 0;
    } else {
        while (at < close && is_name_byte(*at)) {
            at++;
        }
        if (at < close || found_out->name_bytes == 0 || found_out->name_bytes > LS_TEMPLATE_NAME_MAX) {
            return fail_at(e, begin,
                           "a name in braces has 1 to 31 lower case letters, digits, _ and full stops", NULL);
        }
    }
    if (sigil && sigil != '{') {
        found_out->end = end_of_line(e, begin, found_out->end);
        found_out->end = found_out->end < end ? found_out->end : end;
    }
    return LS_OK;
}

/*
 * Finds the closing tag of a section. Only tags of the same name count, as a section may contain
 * itself: {{#a}} {{#a}} {{/a}} {{/a}}. A wrong nesting of different names is found when the part
 * between is expanded, where the stray closing tag has no opening one.
 */
static ls_status find_close(const expansion *e, const tag *open, const char *end, tag *close_out)
{
    int depth = 1;
    const char *from = open->end;
    while (depth > 0) {
        LS_TRY(next_tag(e, from, end, close_out));
        if (close_out->begin == end) {
            return fail_at(e, open->begin, "is never closed", open);
        }
        const bool is_same = close_out->name_bytes == open->name_bytes &&
                             memcmp(close_out->name, open->name, open->name_bytes) == 0;
        if (is_same && (close_out->sigil == '#' || close_out->sigil == '^')) {
            depth++;
        } else if (is_same && close_out->sigil == '/') {
            depth--;
        }
        from = close_out->end;
    }
    return LS_OK;
}

static const value *look_up(const scope *place, const tag *which)
{
    const value *found = NULL;
    for (; place && !found; place = place->outer) {
        found = find_value(place->values, which->name, which->name_bytes);
    }
    return found;
}

/* ---- expanding ---- */

/* Escapes the whole sentence; what is between ** and ** is bold. */
static void append_prose(const char *sentence, ls_text *text)
{
    ls_text piece = {0};
    bool is_bold = false;
    for (const char *at = sentence, *next; *at; at = *next ? next + 2 : next) {
        next = strstr(at, "**");
        next = next ? next : at + strlen(at);
        ls_text_clear(&piece);
        ls_text_append_bytes(&piece, at, (size_t)(next - at));
        ls_text_append_escaped(text, ls_text_string(&piece));
        is_bold = *next ? !is_bold : is_bold;
        ls_text_append(text, !*next ? "" : is_bold ? "<b>" : "</b>");
    }
    ls_text_append(text, is_bold ? "</b>" : "");
    ls_text_release(&piece);
}

static ls_status expand_value(const expansion *e, const tag *which, const scope *place)
{
    const value *found = look_up(place, which);
    if (!found) {
        return fail_at(e, which->begin, "has no value", which);
    }
    if (which->sigil == '{' ? found->kind != VALUE_MARKUP
                            : found->kind != VALUE_TEXT && found->kind != VALUE_PROSE) {
        return fail_at(e, which->begin,
                       which->sigil == '{' ? "takes only markup, and its value is not markup"
                                           : "takes only text, and its value is not text",
                       which);
    }
    if (found->kind == VALUE_MARKUP) {
        ls_text_append(e->text, found->text);
    } else if (found->kind == VALUE_PROSE) {
        append_prose(found->text, e->text);
    } else {
        ls_text_append_escaped(e->text, found->text);
    }
    return LS_OK;
}

static bool is_set(const value *found)
{
    if (!found) {
        return false;
    }
    return found->kind == VALUE_LIST   ? found->first_row != NULL
           : found->kind == VALUE_FLAG ? found->flag
                                       : found->text[0] != '\0';
}

static ls_status expand_part(expansion *e, const char *from, const char *end, const scope *place);

/* A row is a scope within the scope of the section, so that a name which the row lacks is that of
 * the page. Flags and texts repeat nothing and open no scope. */
static ls_status expand_section(expansion *e, const tag *open, const tag *close, const scope *place)
{
    const value *found = look_up(place, open);
    if (is_set(found) != (open->sigil == '#')) {
        return LS_OK;
    }
    if (open->sigil == '^' || found->kind != VALUE_LIST) {
        return expand_part(e, open->end, close->begin, place);
    }
    for (const ls_values *row = found->first_row; row; row = row->next_row) {
        LS_TRY(expand_part(e, open->end, close->begin, &(scope){.values = row, .outer = place}));
    }
    return LS_OK;
}

static ls_status expand_file(const expansion *e, const tag *which, const scope *place)
{
    char name[LS_TEMPLATE_NAME_MAX + 1] = {0};
    memcpy(name, which->name, which->name_bytes);
    expansion inner = *e;
    inner.file = ls_embedded_find(e->files, name);
    if (!inner.file) {
        return fail_at(e, which->begin, "is not the name of a file", which);
    }
    return expand_part(&inner, inner.file->text, inner.file->text + inner.file->bytes, place);
}

/*
 * Appends from..end of the file. Sections and files both come back here, so the depth that is
 * counted here bounds the recursion: a file that contains itself is an error and not an endless
 * loop, because its first path down already reaches the limit.
 */
static ls_status expand_part(expansion *e, const char *from, const char *end, const scope *place)
{
    tag found;
    expansion inner = *e;
    inner.depth++;
    if (inner.depth > LS_TEMPLATE_DEPTH_MAX) {
        return fail_at(e, from, "sections and files are nested too deep", NULL);
    }
    while (from < end) {
        LS_TRY(next_tag(e, from, end, &found));
        ls_text_append_bytes(e->text, from, (size_t)(found.begin - from));
        from = found.end;
        if (found.begin == end || found.sigil == '!') {
            continue;
        }
        if (found.sigil == '#' || found.sigil == '^') {
            tag close;
            LS_TRY(find_close(e, &found, end, &close));
            LS_TRY(expand_section(&inner, &found, &close, place));
            from = close.end;
        } else if (found.sigil == '/') {
            return fail_at(e, found.begin, "closes a section that is not open", &found);
        } else {
            LS_TRY(found.sigil == '>' ? expand_file(&inner, &found, place)
                                      : expand_value(&inner, &found, place));
        }
    }
    return LS_OK;
}

ls_status ls_template_append(const ls_embedded_file *files, const char *name, const ls_values *values,
                             ls_text *text)
{
    const ls_embedded_file *file = ls_embedded_find(files, name);
    if (!file) {
        return ls_fail(LS_ERR_INVALID, "this program contains no page template named %s", name);
    }
    /* Made aside: an error halfway must leave the caller's text as it was. */
    ls_text made = {0};
    expansion e = {.files = files, .file = file, .text = &made};
    const ls_status status =
        expand_part(&e, file->text, file->text + file->bytes, &(scope){.values = values});
    if (status == LS_OK) {
        ls_text_append_bytes(text, made.data, made.bytes);
    }
    ls_text_release(&made);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
#include "base/yaml.h"

#include "base/assert.h"
#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <libfyaml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ls_document_node {
    int line;                /* line of the key or of the item */
    const char *key;         /* NULL for items of a sequence */
    ls_document_node *child; /* first */
    ls_document_node *last;  /* last child */
    ls_document_node *next;  /* sibling */
};

typedef struct reader {
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_event *event; /* current one; NULL before the first */
    const char *name;
    ls_arena *arena;
} reader;

static ls_status read_value(reader *in, ls_document_node *node, int depth, json_t **value_out);

static int event_line(const reader *in)
{
    const struct fy_mark *mark = in->event ? fy_event_start_mark(in->event) : NULL;
    return mark ? mark->line + 1 : 1;
}

/* Turns the first message of the parser into our error. */
static ls_status fail_syntax(const reader *in)
{
    void *iterator = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(in->diag, &iterator);
    if (!error || !error->msg) {
        return ls_fail(LS_ERR_INVALID, "%s: not valid YAML", in->name);
    }
    return ls_fail(LS_ERR_INVALID, "%s:%d: not valid YAML: %s (column %d)", in->name, error->line, error->msg,
                   error->column);
}

/* Moves to the next event. */
static ls_status advance(reader *in)
{
    if (in->event) {
        fy_parser_event_free(in->parser, in->event);
    }
    in->event = fy_parser_parse(in->parser);
    return in->event ? LS_OK : fail_syntax(in);
}

static ls_status refuse_decorations(const reader *in, const struct fy_token *anchor,
                                    const struct fy_token *tag)
{
    if (anchor) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: anchors (&name) are not supported, write the value out",
                       in->name, event_line(in));
    }
    if (tag) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: tags (!name) are not supported, remove the tag", in->name,
                       event_line(in));
    }
    return LS_OK;
}

/* The text of the current scalar, in the arena. *plain_out: without quotes. */
static ls_status scalar_text(const reader *in, char **text_out, bool *plain_out)
{
    const struct fy_event_scalar_data *scalar = &in->event->scalar;
    LS_TRY(refuse_decorations(in, scalar->anchor, scalar->tag));
    size_t bytes = 0;
    const char *text = scalar->value ? fy_token_get_text(scalar->value, &bytes) : "";
    if (!text) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: a value can't be read", in->name, event_line(in));
    }
    if (memchr(text, '\0', bytes)) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: a text contains a zero byte", in->name, event_line(in));
    }
    *text_out = ls_arena_strndup(in->arena, text, bytes);
    *plain_out = !scalar->value || fy_token_scalar_style(scalar->value) == FYSS_PLAIN;
    return LS_OK;
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++) {
        if (strcmp(text, *words) == 0) {
            return true;
        }
    }
    return false;
}

static const char *skip_digits(const char *at)
{
    while (isdigit((unsigned char)*at)) {
        at++;
    }
    return at;
}

/* [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+; *base_out and *digits_out say how to read it. */
static bool is_integer(const char *text, int *base_out, const char **digits_out)
{
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'o') && text[2]) {
        *base_out = text[1] == 'x' ? 16 : 8;
        *digits_out = text + 2;
        return text[2 + strspn(text + 2, text[1] == 'x' ? "0123456789abcdefABCDEF" : "01234567")] == '\0';
    }
    const char *digits = text + (*text == '-' || *text == '+');
    *base_out = 10;
    *digits_out = text;
    return isdigit((unsigned char)*digits) && *skip_digits(digits) == '\0';
}

/* [-+]? ( \.[0-9]+ | [0-9]+(\.[0-9]*)? ) ([eE][-+]?[0-9]+)? */
static bool is_float(const char *text)
{
    const char *at = text + (*text == '-' || *text == '+');
    const char *after_digits = skip_digits(at);
    const bool has_whole = after_digits > at;
    at = after_digits;
    if (*at == '.') {
        after_digits = skip_digits(at + 1);
        if (!has_whole && after_digits == at + 1) {
            return false;
        }
        at = after_digits;
    } else if (!has_whole) {
        return false;
    }
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '-' || at[1] == '+');
        after_digits = skip_digits(at);
        if (after_digits == at) {
            return false;
        }
        at = after_digits;
    }
    return *at == '\0';
}

static ls_status make_integer(const reader *in, const char *text, const char *digits, int base,
                              json_t **value_out)
{
    errno = 0;
    const long long value = strtoll(digits, NULL, base);
    if (errno == ERANGE) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: %.40s does not fit in 64 bits", in->name, event_line(in),
                       text);
    }
    *value_out = json_integer(value);
    return LS_OK;
}

static ls_status make_real(const reader *in, const char *text, json_t **value_out)
{
    const double value = strtod(text, NULL);
    if (!isfinite(value)) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: %.40s is not a finite number", in->name, event_line(in), text);
    }
    *value_out = json_real(value);
    return LS_OK;
}

/* Core schema, YAML 1.2.2 section 10.3.2. */
static ls_status make_plain(const reader *in, const char *text, json_t **value_out)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    static const char *const not_finite[] = {".inf",  ".Inf",  ".INF", "+.inf", "+.Inf", "+.INF", "-.inf",
                                             "-.Inf", "-.INF", ".nan", ".NaN",  ".NAN",  NULL};
    int base = 10;
    const char *digits = NULL;
    if (is_one_of(text, nulls)) {
        *value_out = json_null();
    } else if (is_one_of(text, trues)) {
        *value_out = json_true();
    } else if (is_one_of(text, falses)) {
        *value_out = json_false();
    } else if (is_one_of(text, not_finite)) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: %s is not a finite number", in->name, event_line(in), text);
    } else if (is_integer(text, &base, &digits)) {
        return make_integer(in, text, digits, base, value_out);
    } else if (is_float(text)) {
        return make_real(in, text, value_out);
    } else {
        *value_out = json_string(text); /* NULL if it is not UTF-8 */
    }
    return LS_OK;
}

static ls_status read_scalar(reader *in, json_t **value_out)
{
    char *text = NULL;
    bool plain = false;
    json_t *value = NULL;
    LS_TRY(scalar_text(in, &text, &plain));
    if (plain) {
        LS_TRY(make_plain(in, text, &value));
    } else {
        value = json_string(text);
    }
    if (!value) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: a text is not valid UTF-8", in->name, event_line(in));
    }
    *value_out = value;
    return LS_OK;
}

static ls_document_node *add_child(reader *in, ls_document_node *parent, const char *key)
{
    ls_document_node *node = ls_arena_new(in->arena, ls_document_node, 1);
    node->line = event_line(in);
    node->key = key;
    if (parent->last) {
        parent->last->next = node;
    } else {
        parent->child = node;
    }
    parent->last = node;
    return node;
}

static int first_line_of(const ls_document_node *parent, const char *key)
{
    for (const ls_document_node *at = parent->child; at; at = at->next) {
        if (at->key && strcmp(at->key, key) == 0) {
            return at->line;
        }
    }
    return 0;
}

static ls_status read_key(reader *in, const json_t *object, const ls_document_node *parent, char **key_out)
{
    if (in->event->type != FYET_SCALAR) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: a key must be a plain word, not a list, a mapping or an alias",
                       in->name, event_line(in));
    }
    bool plain = false;
    char *key = NULL;
    LS_TRY(scalar_text(in, &key, &plain));
    if (key[0] == '\0' || strlen(key) > LS_YAML_KEY_BYTES) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: a key has %zu bytes, allowed are 1 to %d", in->name,
                       event_line(in), strlen(key), LS_YAML_KEY_BYTES);
    }
    if (json_object_get(object, key)) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: key %s is here twice, first on line %d", in->name,
                       event_line(in), key, first_line_of(parent, key));
    }
    *key_out = key;
    return LS_OK;
}

static ls_status read_members(reader *in, ls_document_node *node, int depth, json_t *object)
{
    for (;;) {
        LS_TRY(advance(in));
        if (in->event->type == FYET_MAPPING_END) {
            return LS_OK;
        }
        char *key = NULL;
        LS_TRY(read_key(in, object, node, &key));
        ls_document_node *child = add_child(in, node, key);
        json_t *value = NULL;
        LS_TRY(advance(in));
        LS_TRY(read_value(in, child, depth + 1, &value));
        if (json_object_set_new(object, key, value) != 0) {
            return ls_fail(LS_ERR_INVALID, "%s:%d: a key is not valid UTF-8", in->name, child->line);
        }
    }
}

static ls_status read_items(reader *in, ls_document_node *node, int depth, json_t *array)
{
    for (;;) {
        LS_TRY(advance(in));
        if (in->event->type == FYET_SEQUENCE_END) {
            return LS_OK;
        }
        json_t *value = NULL;
        LS_TRY(read_value(in, add_child(in, node, NULL), depth + 1, &value));
        LS_ASSERT(json_array_append_new(array, value) == 0);
    }
}

static ls_status read_collection(reader *in, ls_document_node *node, int depth, json_t **value_out)
{
    const bool is_mapping = in->event->type == FYET_MAPPING_START;
    LS_TRY(is_mapping
               ? refuse_decorations(in, in->event->mapping_start.anchor, in->event->mapping_start.tag)
               : refuse_decorations(in, in->event->sequence_start.anchor, in->event->sequence_start.tag));
    if (depth >= LS_YAML_DEPTH) {
        return ls_fail(LS_ERR_INVALID, "%s:%d: values are nested more than %d levels deep, the limit",
                       in->name, event_line(in), LS_YAML_DEPTH);
    }
    json_t *value = is_mapping ? json_object() : json_array();
    LS_ASSERT(value && "out of memory for a configuration");
    const ls_status status =
        is_mapping ? read_members(in, node, depth, value) : read_items(in, node, depth, value);
    if (status != LS_OK) {
        json_decref(value);
        return status;
    }
    *value_out = value;
    return LS_OK;
}

/* Reads the value that begins at the current event; its last event is current afterwards. */
static ls_status read_value(reader *in, ls_document_node *node, int depth, json_t **value_out)
{
    switch (in->event->type) {
    case FYET_SCALAR:
        return read_scalar(in, value_out);
    case FYET_MAPPING_START:
    case FYET_SEQUENCE_START:
        return read_collection(in, node, depth, value_out);
    case FYET_ALIAS:
        return ls_fail(LS_ERR_INVALID, "%s:%d: aliases (*name) are not supported, write the value out",
                       in->name, event_line(in));
    default:
        return ls_fail(LS_ERR_INVALID, "%s:%d: a value is expected here", in->name, event_line(in));
    }
}

static ls_status read_stream(reader *in, ls_document_node *root_node, json_t **root_out)
{
    LS_TRY(advance(in)); /* stream start */
    LS_TRY(advance(in));
    if (in->event->type == FYET_STREAM_END) {
        return ls_fail(LS_ERR_INVALID, "%s is empty, \"key: value\" lines are expected", in->name);
    }
    LS_TRY(advance(in)); /* past the document start */
    root_node->line = event_line(in);
    json_t *root = NULL;
    LS_TRY(read_value(in, root_node, 0, &root));
    ls_status status = advance(in); /* document end */
    if (status == LS_OK) {
        status = advance(in);
    }
    if (status == LS_OK && in->event->type != FYET_STREAM_END) {
        status = ls_fail(LS_ERR_INVALID, "%s:%d: a second document begins; the file must hold only one",
                         in->name, event_line(in));
    }
    if (status != LS_OK) {
        json_decref(root);
        return status;
    }
    *root_out = root;
    return LS_OK;
}

/* Nothing is printed to stderr: messages are collected and become our error text. */
static ls_status reader_open(reader *in, const char *text, size_t bytes)
{
    struct fy_diag_cfg diag_settings;
    fy_diag_cfg_default(&diag_settings);
    diag_settings.fp = NULL;
    diag_settings.output_fn = NULL;
    diag_settings.level = FYET_ERROR;
    in->diag = fy_diag_create(&diag_settings);
    LS_ASSERT(in->diag && "out of memory for a YAML parser");
    fy_diag_set_collect_errors(in->diag, true);
    const struct fy_parse_cfg settings = {
        .search_path = "",
        .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = in->diag,
    };
    in->parser = fy_parser_create(&settings);
    LS_ASSERT(in->parser && "out of memory for a YAML parser");
    return fy_parser_set_string(in->parser, text, bytes) == 0 ? LS_OK : fail_syntax(in);
}

static void reader_close(reader *in)
{
    if (in->event) {
        fy_parser_event_free(in->parser, in->event);
    }
    fy_parser_destroy(in->parser);
    fy_diag_destroy(in->diag);
}

/* Length of the UTF-8 sequence at `at` (RFC 3629), 0 if it is invalid. */
static size_t utf8_sequence_bytes(const unsigned char *at, size_t bytes)
{
    if (at[0] < 0x80) {
        return 1;
    }
    const size_t count = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || count > bytes) {
        return 0;
    }
    for (size_t i = 1; i < count; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    const bool surrogate = at[0] == 0xed && at[1] > 0x9f;
    const bool beyond = at[0] == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : count;
}

/*
 * Refuses what must not reach the parser: invalid UTF-8 and directives can make libfyaml 0.7.12
 * loop for ever (found by fuzzing: a % line that ends in a broken sequence), and a configuration
 * needs neither.
 */
static ls_status check_text(const char *text, size_t bytes, const char *name)
{
    int line = 1;
    bool line_start = true;
    for (size_t i = 0; i < bytes;) {
        const size_t count = utf8_sequence_bytes((const unsigned char *)text + i, bytes - i);
        if (count == 0) {
            return ls_fail(LS_ERR_INVALID, "%s:%d: byte 0x%02x is not valid UTF-8", name, line,
                           (unsigned char)text[i]);
        }
        if (text[i] == '\0') {
            return ls_fail(LS_ERR_INVALID, "%s:%d: a zero byte, this is not a text file", name, line);
        }
        if (line_start && text[i] == '%') {
            return ls_fail(LS_ERR_INVALID, "%s:%d: directives (%%...) are not supported, remove the line",
                           name, line);
        }
        line_start = text[i] == '\n' || text[i] == '\r';
        line += text[i] == '\n';
        i += count;
    }
    return LS_OK;
}

ls_status ls_yaml_parse(const char *text, size_t bytes, const char *name, ls_document *doc_out)
{
    if (bytes > LS_YAML_BYTES) {
        return ls_fail(LS_ERR_INVALID, "%s has %zu bytes, at most %d are allowed", name, bytes,
                       LS_YAML_BYTES);
    }
    if (bytes == 0) {
        return ls_fail(LS_ERR_INVALID, "%s is empty, \"key: value\" lines are expected", name);
    }
    LS_TRY(check_text(text, bytes, name));
    ls_document doc = {0};
    doc.name = ls_arena_strdup(&doc.arena, name);
    doc.lines = ls_arena_new(&doc.arena, ls_document_node, 1);
    reader in = {.name = doc.name, .arena = &doc.arena};
    ls_status status = reader_open(&in, text, bytes);
    if (status == LS_OK) {
        status = read_stream(&in, doc.lines, &doc.root);
    }
    reader_close(&in);
    if (status != LS_OK) {
        ls_arena_release(&doc.arena);
        return status;
    }
    *doc_out = doc;
    return LS_OK;
}

ls_status ls_yaml_load(const char *path, ls_document *doc_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    const ls_status status = ls_yaml_parse((const char *)map.data, map.bytes, path, doc_out);
    ls_file_map_close(&map);
    return status;
}

void ls_document_release(ls_document *doc)
{
    json_decref(doc->root);
    ls_arena_release(&doc->arena);
    *doc = (ls_document){0};
}

static const ls_document_node *find_child(const ls_document_node *node, const char *segment, size_t bytes)
{
    size_t index = 0;
    for (const ls_document_node *at = node->child; at; at = at->next, index++) {
        if (at->key ? strlen(at->key) == bytes && memcmp(at->key, segment, bytes) == 0
                    : isdigit((unsigned char)segment[0]) && strtoull(segment, NULL, 10) == index) {
            return at;
        }
    }
    return NULL;
}

int ls_document_line(const ls_document *doc, const char *path)
{
    const ls_document_node *node = doc->lines;
    while (node && *path) {
        const size_t bytes = strcspn(path, ".");
        node = find_child(node, path, bytes);
        path += bytes + (path[bytes] == '.');
    }
    return node ? node->line : 0;
}

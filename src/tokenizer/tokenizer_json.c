// SPDX-License-Identifier: Apache-2.0
/*
 * Reads Hugging Face's tokenizer.json. Each section is a tree of objects with a `type`. A type or
 * setting that is not supported is an error that names it, because ignoring it would change ids.
 */
#include "tokenizer/tokenizer_internal.h"

#include "base/json.h"

#include <string.h>

typedef struct reader {
    ls_tokenizer *tokenizer;
    /* The file, for error texts. */
    const char *name;
    /* There is a ByteLevel pre-tokenizer. */
    bool byte_level;
    /* The decoder replaces `from` by a space, and <0xNN> by a byte. */
    bool decode_spaces;
    bool decode_bytes;
    const char *from;
    ls_added_pattern *added, *added_normalised;
    size_t added_count, added_normalised_count;
} reader;

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(none)";
}

static bool is_type(const json_t *object, const char *type)
{
    return strcmp(type_of(object), type) == 0;
}

static ls_status unsupported(const reader *r, const char *section, const char *what)
{
    return ls_fail(LS_ERR_UNSUPPORTED, "%s: the %s \"%s\" is not supported", r->name, section, what);
}

static ls_status corrupt(const reader *r, const char *what)
{
    return ls_fail(LS_ERR_DATA, "%s: %s", r->name, what);
}

/* Copies a string into the tokenizer's arena. */
static ls_status copy_string(const reader *r, const json_t *value, const char *what, const char **text_out,
                             uint32_t *bytes_out)
{
    if (!json_is_string(value)) {
        return ls_fail(LS_ERR_DATA, "%s: %s must be a string", r->name, what);
    }
    const size_t bytes = json_string_length(value);
    if (bytes > UINT32_MAX / 2) {
        return ls_fail(LS_ERR_DATA, "%s: %s is too long", r->name, what);
    }
    *text_out = ls_arena_strndup(&r->tokenizer->arena, json_string_value(value), bytes);
    *bytes_out = (uint32_t)bytes;
    return LS_OK;
}

/* ---- sequences ---- */

typedef ls_status (*section_reader)(reader *r, const json_t *object);

/* Calls `read` for an object or for each object of a Sequence; Sequences may be nested. */
static ls_status read_sequence(reader *r, const json_t *object, const char *list_key, section_reader read,
                               int depth)
{
    if (!object || json_is_null(object)) {
        return LS_OK;
    }
    if (!json_is_object(object) || depth > 4) {
        return ls_fail(LS_ERR_DATA,
                       "%s: the entries of the list \"%s\" must be JSON objects, nested in at most 4 levels",
                       r->name, list_key);
    }
    if (!is_type(object, "Sequence")) {
        return read(r, object);
    }
    const json_t *list = json_object_get(object, list_key);
    if (!json_is_array(list)) {
        return ls_fail(LS_ERR_DATA, "%s: an entry of type Sequence lacks the list \"%s\"", r->name, list_key);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        LS_TRY(read_sequence(r, json_array_get(list, i), list_key, read, depth + 1));
    }
    return LS_OK;
}

/* ---- normalizer ---- */

static ls_status read_replace(reader *r, const json_t *object, ls_normaliser *step)
{
    const json_t *from = json_object_get(json_object_get(object, "pattern"), "String");
    if (!from) {
        return unsupported(r, "normalizer", "Replace with a Regex pattern");
    }
    LS_TRY(copy_string(r, from, "the pattern of Replace", &step->from, &step->from_bytes));
    LS_TRY(copy_string(r, json_object_get(object, "content"), "the content of Replace", &step->to,
                       &step->to_bytes));
    return step->from_bytes > 0 ? LS_OK
                                : corrupt(r, "the pattern of a Replace step in the normalizer is empty");
}

static ls_status read_normaliser(reader *r, const json_t *object)
{
    ls_normaliser step = {.kind = LS_NORMALISE_NFC};
    if (is_type(object, "NFC")) {
        step.kind = LS_NORMALISE_NFC;
    } else if (is_type(object, "NFD")) {
        step.kind = LS_NORMALISE_NFD;
    } else if (is_type(object, "Prepend")) {
        step.kind = LS_NORMALISE_PREPEND;
        LS_TRY(copy_string(r, json_object_get(object, "prepend"), "prepend", &step.to, &step.to_bytes));
    } else if (is_type(object, "Replace")) {
        step.kind = LS_NORMALISE_REPLACE;
        LS_TRY(read_replace(r, object, &step));
    } else {
        return unsupported(r, "normalizer", type_of(object));
    }
    if (r->tokenizer->normaliser_count == LS_TOKENIZER_STEPS_MAX) {
        return unsupported(r, "normalizer", "Sequence of more than 8 steps");
    }
    r->tokenizer->normalisers[r->tokenizer->normaliser_count++] = step;
    return LS_OK;
}

/* ---- pre-tokenizer ---- */

static ls_status add_splitter(reader *r, ls_splitter step)
{
    if (r->byte_level) {
        return unsupported(r, "pre_tokenizer", "Sequence with a step after ByteLevel");
    }
    if (r->tokenizer->splitter_count == LS_TOKENIZER_STEPS_MAX) {
        return unsupported(r, "pre_tokenizer", "Sequence of more than 8 steps");
    }
    r->tokenizer->splitters[r->tokenizer->splitter_count++] = step;
    return LS_OK;
}

static ls_status read_behaviour(const reader *r, const json_t *object, ls_split_behaviour *behaviour_out)
{
    static const char *const names[] = {
        [LS_SPLIT_ISOLATED] = "Isolated",
        [LS_SPLIT_REMOVED] = "Removed",
        [LS_SPLIT_CONTIGUOUS] = "Contiguous",
        [LS_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [LS_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    };
    const char *behaviour = json_string_value(json_object_get(object, "behavior"));
    for (size_t i = 0; behaviour && i < sizeof names / sizeof *names; i++) {
        if (strcmp(behaviour, names[i]) == 0) {
            *behaviour_out = (ls_split_behaviour)i;
            return LS_OK;
        }
    }
    return unsupported(r, "behavior of Split", behaviour ? behaviour : "(none)");
}

static ls_status read_split(reader *r, const json_t *object)
{
    const json_t *pattern = json_object_get(object, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    ls_splitter step = {.kind = LS_SPLITTER_REGEX};
    LS_TRY(ls_json_get_bool(object, r->name, "invert", false, &step.invert));
    LS_TRY(read_behaviour(r, object, &step.behaviour));
    step.pattern = regex ? ls_split_pattern_of(regex) : LS_PATTERN_UNKNOWN;
    /* The known patterns match every character, so keeping the matches (Isolated) is the same as
     * removing what does not match (Removed and inverted). */
    if (step.pattern != LS_PATTERN_UNKNOWN &&
        step.behaviour == (step.invert ? LS_SPLIT_REMOVED : LS_SPLIT_ISOLATED)) {
        step.kind = LS_SPLITTER_PATTERN;
        return add_splitter(r, step);
    }
    const char *text = json_string_value(json_object_get(pattern, "String"));
    if (!regex && (!text || !*text)) {
        return corrupt(r,
                       "a Split step of the pre_tokenizer has neither a Regex nor a String as its pattern");
    }
    LS_TRY(ls_regex_compile(regex ? regex : text, !regex, r->name, &step.regex));
    const ls_status status = add_splitter(r, step);
    if (status != LS_OK) {
        ls_regex_release(&step.regex);
    }
    return status;
}

static ls_status read_byte_level(reader *r, const json_t *object)
{
    bool prefix_space, use_regex;
    LS_TRY(ls_json_get_bool(object, r->name, "add_prefix_space", true, &prefix_space));
    LS_TRY(ls_json_get_bool(object, r->name, "use_regex", true, &use_regex));
    if (prefix_space) {
        LS_TRY(add_splitter(r, (ls_splitter){.kind = LS_SPLITTER_SPACE_PREFIX}));
    }
    if (use_regex) {
        LS_TRY(add_splitter(r, (ls_splitter){.kind = LS_SPLITTER_PATTERN, .pattern = LS_PATTERN_GPT2}));
    }
    if (r->byte_level) {
        return unsupported(r, "pre_tokenizer", "Sequence with two ByteLevel steps");
    }
    r->byte_level = true;
    return LS_OK;
}

/* Reads `prepend_scheme`, or `add_prefix_space` in older files. */
static ls_status read_prepend(const reader *r, const json_t *object, ls_prepend *prepend_out)
{
    const char *scheme;
    bool prefix_space;
    LS_TRY(ls_json_get_string(object, r->name, "prepend_scheme", NULL, &scheme));
    LS_TRY(ls_json_get_bool(object, r->name, "add_prefix_space", true, &prefix_space));
    if (!scheme) {
        *prepend_out = prefix_space ? LS_PREPEND_ALWAYS : LS_PREPEND_NEVER;
    } else if (strcmp(scheme, "always") == 0) {
        *prepend_out = LS_PREPEND_ALWAYS;
    } else if (strcmp(scheme, "first") == 0) {
        *prepend_out = LS_PREPEND_FIRST;
    } else if (strcmp(scheme, "never") == 0) {
        *prepend_out = LS_PREPEND_NEVER;
    } else {
        return unsupported(r, "prepend_scheme", scheme);
    }
    return LS_OK;
}

static ls_status read_metaspace(reader *r, const json_t *object)
{
    ls_splitter step = {.kind = LS_SPLITTER_METASPACE};
    LS_TRY(copy_string(r, json_object_get(object, "replacement"), "the replacement of Metaspace",
                       &step.replacement, &step.replacement_bytes));
    if (step.replacement_bytes == 0) {
        return corrupt(r, "the replacement of a Metaspace step is empty");
    }
    LS_TRY(read_prepend(r, object, &step.prepend));
    LS_TRY(ls_json_get_bool(object, r->name, "split", true, &step.split));
    return add_splitter(r, step);
}

static ls_status read_splitter(reader *r, const json_t *object)
{
    if (is_type(object, "ByteLevel")) {
        return read_byte_level(r, object);
    }
    if (is_type(object, "Split")) {
        return read_split(r, object);
    }
    if (is_type(object, "Metaspace")) {
        return read_metaspace(r, object);
    }
    if (is_type(object, "Digits")) {
        ls_splitter step = {.kind = LS_SPLITTER_DIGITS};
        LS_TRY(ls_json_get_bool(object, r->name, "individual_digits", false, &step.individual));
        return add_splitter(r, step);
    }
    return unsupported(r, "pre_tokenizer", type_of(object));
}

/* ---- decoder ---- */

static ls_status read_decoder(reader *r, const json_t *object)
{
    if (is_type(object, "ByteLevel") || is_type(object, "Fuse")) {
        return LS_OK;
    }
    if (is_type(object, "ByteFallback")) {
        r->decode_bytes = true;
        return LS_OK;
    }
    uint32_t bytes;
    if (is_type(object, "Metaspace")) {
        ls_prepend prepend;
        LS_TRY(read_prepend(r, object, &prepend));
        r->tokenizer->strip = prepend == LS_PREPEND_NEVER ? LS_STRIP_NONE : LS_STRIP_FIRST_TOKEN;
        r->decode_spaces = true;
        return copy_string(r, json_object_get(object, "replacement"), "the replacement of Metaspace",
                           &r->from, &bytes);
    }
    if (is_type(object, "Replace")) {
        const char *to = json_string_value(json_object_get(object, "content"));
        if (!to || strcmp(to, " ") != 0) {
            return unsupported(r, "decoder", "Replace by something other than a space");
        }
        r->decode_spaces = true;
        return copy_string(r, json_object_get(json_object_get(object, "pattern"), "String"),
                           "the pattern of Replace", &r->from, &bytes);
    }
    if (is_type(object, "Strip")) {
        const char *content = json_string_value(json_object_get(object, "content"));
        const json_int_t start = json_integer_value(json_object_get(object, "start"));
        const json_int_t stop = json_integer_value(json_object_get(object, "stop"));
        if (!content || strcmp(content, " ") != 0 || start != 1 || stop != 0) {
            return unsupported(r, "decoder", "Strip of anything but one leading space");
        }
        r->tokenizer->strip = LS_STRIP_ONE_SPACE;
        return LS_OK;
    }
    return unsupported(r, "decoder", type_of(object));
}

/* ---- post-processor ---- */

static ls_status append_id(reader *r, int32_t **ids, size_t *count, json_int_t id)
{
    if (id < 0 || id >= r->tokenizer->vocab_size || *count >= 64) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: the post_processor adds the token id %lld; it can add at most 64 ids, each of 0 to %u",
            r->name, (long long)id, r->tokenizer->vocab_size - 1);
    }
    if (!*ids) {
        *ids = ls_arena_new(&r->tokenizer->arena, int32_t, 64);
    }
    (*ids)[(*count)++] = (int32_t)id;
    return LS_OK;
}

static ls_status append_template_token(reader *r, const json_t *object, const json_t *special, bool is_suffix)
{
    const char *key = json_string_value(json_object_get(special, "id"));
    const json_t *entry = key ? json_object_get(json_object_get(object, "special_tokens"), key) : NULL;
    const json_t *ids = json_object_get(entry, "ids");
    if (!json_is_array(ids)) {
        return corrupt(r,
                       "the post_processor TemplateProcessing names a special token that it does not define");
    }
    ls_tokenizer *tokenizer = r->tokenizer;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        LS_TRY(is_suffix ? append_id(r, &tokenizer->suffix, &tokenizer->suffix_count, value)
                         : append_id(r, &tokenizer->prefix, &tokenizer->prefix_count, value));
    }
    return LS_OK;
}

static ls_status read_template(reader *r, const json_t *object)
{
    const json_t *single = json_object_get(object, "single");
    bool is_suffix = false; /* the part comes after the text */
    if (!json_is_array(single)) {
        return unsupported(r, "post_processor", "TemplateProcessing without a list `single`");
    }
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const json_t *special = json_object_get(part, "SpecialToken");
        if (special) {
            LS_TRY(append_template_token(r, object, special, is_suffix));
        } else if (json_object_get(part, "Sequence") && !is_suffix) {
            is_suffix = true;
        } else {
            return unsupported(r, "post_processor", "TemplateProcessing of this form");
        }
    }
    return LS_OK;
}

static ls_status read_post_processor(reader *r, const json_t *object)
{
    if (is_type(object, "ByteLevel")) {
        return LS_OK;
    }
    if (is_type(object, "TemplateProcessing")) {
        return read_template(r, object);
    }
    if (is_type(object, "RobertaProcessing") || is_type(object, "BertProcessing")) {
        const json_t *cls = json_array_get(json_object_get(object, "cls"), 1);
        const json_t *sep = json_array_get(json_object_get(object, "sep"), 1);
        if (!json_is_integer(cls) || !json_is_integer(sep)) {
            return corrupt(r, "the post_processor needs `cls` and `sep`, each with a token and its id");
        }
        ls_tokenizer *tokenizer = r->tokenizer;
        LS_TRY(append_id(r, &tokenizer->prefix, &tokenizer->prefix_count, json_integer_value(cls)));
        return append_id(r, &tokenizer->suffix, &tokenizer->suffix_count, json_integer_value(sep));
    }
    return unsupported(r, "post_processor", type_of(object));
}

/* ---- model ---- */

static ls_status check_model(reader *r, const json_t *model)
{
    if (!json_is_object(model)) {
        return corrupt(r, "this is not a tokenizer.json: it has no object `model`");
    }
    const json_t *type = json_object_get(model, "type");
    if (type && !is_type(model, "BPE")) {
        return unsupported(r, "model", type_of(model));
    }
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *affix = json_string_value(json_object_get(model, affixes[i]));
        if (affix && *affix) {
            return unsupported(r, "model setting", affixes[i]);
        }
    }
    double dropout;
    LS_TRY(ls_json_get_f64(model, r->name, "dropout", 0.0, 1.0, 0.0, &dropout));
    if (dropout > 0.0) {
        return unsupported(r, "model setting", "dropout");
    }
    ls_tokenizer *tokenizer = r->tokenizer;
    LS_TRY(ls_json_get_bool(model, r->name, "byte_fallback", false, &tokenizer->byte_fallback));
    LS_TRY(ls_json_get_bool(model, r->name, "fuse_unk", false, &tokenizer->fuse_unk));
    return ls_json_get_bool(model, r->name, "ignore_merges", false, &tokenizer->ignore_merges);
}

/* Finds the largest id of the vocabulary and the added tokens. Checks that ids are whole numbers
 * without huge gaps. */
static ls_status measure_vocabulary(reader *r, const json_t *vocab, const json_t *added, uint32_t *size_out)
{
    const size_t count = json_object_size(vocab) + json_array_size(added);
    const json_int_t limit = (json_int_t)(2 * count + 65536);
    json_int_t largest = -1;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > limit) {
            return ls_fail(LS_ERR_DATA,
                           "%s: the id of the token \"%.80s\" must be a whole number from 0 to %lld", r->name,
                           key, (long long)limit);
        }
        largest = json_integer_value(value) > largest ? json_integer_value(value) : largest;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *id = json_object_get(json_array_get(added, i), "id");
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > limit) {
            return ls_fail(LS_ERR_DATA,
                           "%s: the id of added token number %zu must be a whole number from 0 to %lld",
                           r->name, i, (long long)limit);
        }
        largest = json_integer_value(id) > largest ? json_integer_value(id) : largest;
    }
    if (largest < 0 || largest >= LS_TOKENIZER_VOCAB_MAX) {
        return ls_fail(LS_ERR_DATA, "%s: the vocabulary has %lld ids; 1 to %d are allowed", r->name,
                       (long long)largest + 1, LS_TOKENIZER_VOCAB_MAX);
    }
    *size_out = (uint32_t)largest + 1;
    return LS_OK;
}

static ls_status read_vocabulary(reader *r, const json_t *vocab)
{
    ls_tokenizer *tokenizer = r->tokenizer;
    ls_string_map_init(&tokenizer->model, &tokenizer->arena, json_object_size(vocab));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value)
    {
        const int32_t id = (int32_t)json_integer_value(value);
        LS_TRY(ls_tokenizer_name_piece(tokenizer, id, key, strlen(key), r->name));
        ls_piece *piece = &tokenizer->pieces[id];
        if (!r->byte_level) {
            ls_string_map_put(&tokenizer->model, &tokenizer->arena, piece->text, piece->bytes, id);
            continue;
        }
        char *raw = ls_arena_alloc(&tokenizer->arena, piece->bytes + 1);
        size_t raw_bytes;
        if (ls_byte_level_decode(piece->text, piece->bytes, raw, &raw_bytes)) {
            piece->decoded = raw;
            piece->decoded_bytes = (uint32_t)raw_bytes;
            ls_string_map_put(&tokenizer->model, &tokenizer->arena, raw, raw_bytes, id);
        }
    }
    return LS_OK;
}

typedef struct merge_names {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} merge_names;

/* Reads a merge: "left right", or ["left", "right"]. */
static ls_status split_merge(const reader *r, const json_t *merge, size_t index, merge_names *out)
{
    const json_t *first = json_array_get(merge, 0), *second = json_array_get(merge, 1);
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        const char *space = strchr(text, ' ');
        if (space && !strchr(space + 1, ' ')) {
            *out = (merge_names){.left = text,
                                 .left_bytes = (size_t)(space - text),
                                 .right = space + 1,
                                 .right_bytes = strlen(space + 1)};
            return LS_OK;
        }
    } else if (json_array_size(merge) == 2 && json_is_string(first) && json_is_string(second)) {
        *out = (merge_names){.left = json_string_value(first),
                             .left_bytes = json_string_length(first),
                             .right = json_string_value(second),
                             .right_bytes = json_string_length(second)};
        return LS_OK;
    }
    return ls_fail(LS_ERR_DATA,
                   "%s: merge number %zu must be two tokens, written as \"a b\" or [\"a\", \"b\"]", r->name,
                   index);
}

/* The id of a token of the model's own vocabulary (not an added token), by its name. */
static int32_t model_id(const ls_tokenizer *tokenizer, const char *text, size_t bytes)
{
    const int32_t id = ls_string_map_get(&tokenizer->names, text, bytes);
    return id >= 0 && !(tokenizer->pieces[id].flags & LS_PIECE_ADDED) ? id : -1;
}

static ls_status add_merge(reader *r, const json_t *merge, uint32_t rank, ls_text_buffer *joined)
{
    merge_names names = {0};
    LS_TRY(split_merge(r, merge, rank, &names));
    joined->bytes = 0;
    LS_TRY(ls_text_buffer_append(joined, names.left, names.left_bytes));
    LS_TRY(ls_text_buffer_append(joined, names.right, names.right_bytes));
    const int32_t left_id = model_id(r->tokenizer, names.left, names.left_bytes);
    const int32_t right_id = model_id(r->tokenizer, names.right, names.right_bytes);
    const int32_t id = model_id(r->tokenizer, joined->data, joined->bytes);
    if (left_id < 0 || right_id < 0 || id < 0) {
        return ls_fail(
            LS_ERR_DATA, "%s: merge number %u joins \"%.*s\" and \"%.40s\", but the vocabulary lacks %s",
            r->name, rank, (int)(names.left_bytes < 40 ? names.left_bytes : 40), names.left, names.right,
            left_id < 0    ? "the first"
            : right_id < 0 ? "the second"
                           : "the result");
    }
    ls_merge_table_put(&r->tokenizer->merges, left_id, right_id, rank, id);
    return LS_OK;
}

static ls_status read_merges(reader *r, const json_t *merges)
{
    if (!json_is_array(merges) || json_array_size(merges) >= UINT32_MAX / 4) {
        return corrupt(r, "the object `model` has no list `merges`");
    }
    ls_merge_table_init(&r->tokenizer->merges, &r->tokenizer->arena, json_array_size(merges));
    ls_text_buffer joined = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < json_array_size(merges); i++) {
        status = add_merge(r, json_array_get(merges, i), (uint32_t)i, &joined);
    }
    ls_text_buffer_release(&joined);
    return status;
}

static ls_status read_unknown(reader *r, const json_t *model)
{
    const json_t *unknown = json_object_get(model, "unk_token");
    if (!unknown || json_is_null(unknown)) {
        return LS_OK;
    }
    if (!json_is_string(unknown)) {
        return corrupt(r, "`unk_token` must be a string");
    }
    r->tokenizer->unk = model_id(r->tokenizer, json_string_value(unknown), json_string_length(unknown));
    /* A missing token is not an error: Hugging Face fails only when it needs it, and with byte
     * fallback it never does. */
    return LS_OK;
}

/* ---- added tokens ---- */

/* After the normaliser, an added token is searched for by its normalised text. */
static ls_status normalise_pattern(reader *r, ls_added_pattern *pattern)
{
    const ls_tokenizer *tokenizer = r->tokenizer;
    for (size_t i = 0; i < tokenizer->normaliser_count; i++) {
        ls_text_buffer out = {0};
        bool changed;
        const ls_status status =
            ls_normaliser_apply(&tokenizer->normalisers[i], pattern->text, pattern->bytes, &out, &changed);
        if (status == LS_OK && changed) {
            pattern->text = ls_arena_strndup(&r->tokenizer->arena, out.data ? out.data : "", out.bytes);
            pattern->bytes = (uint32_t)out.bytes;
        }
        ls_text_buffer_release(&out);
        LS_TRY(status);
    }
    return LS_OK;
}

static ls_status read_added_token(reader *r, const json_t *object)
{
    ls_tokenizer *tokenizer = r->tokenizer;
    const char *text = NULL;
    uint32_t bytes = 0;
    bool single_word, lstrip, rstrip, normalised, special;
    LS_TRY(
        copy_string(r, json_object_get(object, "content"), "the content of an added token", &text, &bytes));
    LS_TRY(ls_json_get_bool(object, r->name, "single_word", false, &single_word));
    LS_TRY(ls_json_get_bool(object, r->name, "lstrip", false, &lstrip));
    LS_TRY(ls_json_get_bool(object, r->name, "rstrip", false, &rstrip));
    LS_TRY(ls_json_get_bool(object, r->name, "special", false, &special));
    LS_TRY(ls_json_get_bool(object, r->name, "normalized", !special, &normalised));
    if (bytes == 0) {
        return LS_OK;
    }
    /* A token of the model keeps the model's id, as in Hugging Face. */
    int32_t id = ls_string_map_get(&tokenizer->names, text, bytes);
    if (id < 0) {
        id = (int32_t)json_integer_value(json_object_get(object, "id"));
        LS_TRY(ls_tokenizer_name_piece(tokenizer, id, text, bytes, r->name));
    }
    ls_piece *piece = &tokenizer->pieces[id];
    piece->decoded = piece->text;
    piece->decoded_bytes = piece->bytes;
    piece->flags |= LS_PIECE_ADDED | (special ? LS_PIECE_SPECIAL : 0);
    ls_added_pattern pattern = {.text = text,
                                .bytes = bytes,
                                .id = id,
                                .flags = (single_word ? LS_ADDED_SINGLE_WORD : 0u) |
                                         (lstrip ? LS_ADDED_LSTRIP : 0u) | (rstrip ? LS_ADDED_RSTRIP : 0u)};
    if (!normalised) {
        r->added[r->added_count++] = pattern;
        return LS_OK;
    }
    LS_TRY(normalise_pattern(r, &pattern));
    if (pattern.bytes > 0) {
        r->added_normalised[r->added_normalised_count++] = pattern;
    }
    return LS_OK;
}

static ls_status read_added(reader *r, const json_t *added)
{
    ls_tokenizer *tokenizer = r->tokenizer;
    const size_t count = json_array_size(added);
    r->added = ls_arena_new(&tokenizer->arena, ls_added_pattern, count);
    r->added_normalised = ls_arena_new(&tokenizer->arena, ls_added_pattern, count);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_added_token(r, json_array_get(added, i)));
    }
    ls_matcher_init(&tokenizer->added, &tokenizer->arena, r->added, r->added_count);
    ls_matcher_init(&tokenizer->added_normalised, &tokenizer->arena, r->added_normalised,
                    r->added_normalised_count);
    return LS_OK;
}

/* ---- decoded texts ---- */

static void decode_piece(const reader *r, ls_piece *piece)
{
    unsigned byte;
    if (r->decode_bytes && ls_byte_piece(piece->text, piece->bytes, &byte)) {
        char *raw = ls_arena_alloc(&r->tokenizer->arena, 1);
        *raw = (char)byte;
        piece->decoded = raw;
        piece->decoded_bytes = 1;
        return;
    }
    const size_t from_bytes = r->decode_spaces ? strlen(r->from) : 0;
    if (from_bytes == 0 || !strstr(piece->text, r->from)) {
        return;
    }
    char *out = ls_arena_alloc(&r->tokenizer->arena, piece->bytes + 1);
    uint32_t written = 0;
    for (uint32_t at = 0; at < piece->bytes;) {
        const bool space =
            piece->bytes - at >= from_bytes && memcmp(piece->text + at, r->from, from_bytes) == 0;
        out[written++] = space ? ' ' : piece->text[at];
        at += space ? (uint32_t)from_bytes : 1;
    }
    piece->decoded = out;
    piece->decoded_bytes = written;
}

/* ---- the whole file ---- */

static ls_status read_model(reader *r, const json_t *model, const json_t *added)
{
    const json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab)) {
        return corrupt(r, "the object `model` has no object `vocab`");
    }
    uint32_t vocab_size = 0;
    LS_TRY(measure_vocabulary(r, vocab, added, &vocab_size));
    ls_tokenizer_set_vocab_size(r->tokenizer, vocab_size);
    LS_TRY(read_vocabulary(r, vocab));
    LS_TRY(read_merges(r, json_object_get(model, "merges")));
    return read_unknown(r, model);
}

/* Whether this is what ls_tokenizer_create_bytes saves: 256 tokens, each the byte of its id, and
 * nothing that changes the text. */
static bool is_bytes_tokenizer(const ls_tokenizer *tokenizer, const json_t *merges)
{
    if (tokenizer->vocab_size != 256 || tokenizer->normaliser_count + tokenizer->splitter_count > 0 ||
        json_array_size(merges) > 0 || !tokenizer->added.empty || !tokenizer->added_normalised.empty ||
        tokenizer->prefix_count + tokenizer->suffix_count > 0) {
        return false;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (tokenizer->byte_ids[byte] != byte) {
            return false;
        }
    }
    return true;
}

static ls_status read_root(reader *r, const json_t *root)
{
    ls_tokenizer *tokenizer = r->tokenizer;
    const json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    LS_TRY(check_model(r, model));
    LS_TRY(read_sequence(r, json_object_get(root, "normalizer"), "normalizers", read_normaliser, 0));
    LS_TRY(read_sequence(r, json_object_get(root, "pre_tokenizer"), "pretokenizers", read_splitter, 0));
    LS_TRY(read_sequence(r, json_object_get(root, "decoder"), "decoders", read_decoder, 0));
    tokenizer->type = r->byte_level ? LS_TOKENIZER_BYTE_LEVEL : LS_TOKENIZER_CHARACTERS;
    LS_TRY(read_model(r, model, added));
    if (!r->byte_level) {
        for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
            if (tokenizer->pieces[i].text) {
                decode_piece(r, &tokenizer->pieces[i]);
            }
        }
    }
    LS_TRY(read_added(r, added));
    LS_TRY(read_sequence(r, json_object_get(root, "post_processor"), "processors", read_post_processor, 0));
    ls_tokenizer_complete(tokenizer);
    ls_tokenizer_guess_specials(tokenizer);
    if (is_bytes_tokenizer(tokenizer, json_object_get(model, "merges"))) {
        tokenizer->type = LS_TOKENIZER_BYTES;
    }
    return LS_OK;
}

ls_status ls_tokenizer_parse_json(const char *text, size_t bytes, const char *name,
                                  ls_tokenizer **tokenizer_out)
{
    json_t *root;
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    ls_tokenizer *tokenizer = ls_tokenizer_new(LS_TOKENIZER_BYTE_LEVEL);
    ls_status status = LS_ERR_MEMORY;
    if (tokenizer) {
        reader r = {.tokenizer = tokenizer, .name = name};
        status = read_root(&r, root);
    }
    json_decref(root);
    if (status != LS_OK) {
        ls_tokenizer_destroy(tokenizer);
        return status;
    }
    ls_tokenizer_set_source(tokenizer, "tokenizer.json", text, bytes);
    *tokenizer_out = tokenizer;
    return LS_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* Which models can be merged, and what the result looks like. */
#include "execution/convert/merge_internal.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS_TOLERANCE 1e-6

const char *const ls_merge_names[LS_MERGE_METHODS + 1] = {"average", "task-arithmetic", "stitch", "experts",
                                                          NULL};

/* ---- what must be alike ---- */

#define SIZE(field)                                                                                          \
    {                                                                                                        \
#field, offsetof(ls_model_config, field)                                                             \
    }
static const struct size {
    const char *name;
    size_t offset;
} sizes[] = {SIZE(layers), SIZE(width),   SIZE(heads),      SIZE(kv_heads),          SIZE(head_dim),
             SIZE(ffn),    SIZE(experts), SIZE(expert_ffn), SIZE(experts_per_token), SIZE(vocab)};
#undef SIZE
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int64_t *size_of(ls_model_config *config, const struct size *size)
{
    return (int64_t *)(void *)((char *)config + size->offset);
}

static void add_difference(ls_text *text, const char *what)
{
    ls_text_printf(text, "%s%s", text->bytes > 0 ? ", " : "", what);
}

/* Lists what differs between two models. ignores_layers: their number may differ. */
static void compare(const ls_model_file *a, const ls_model_file *b, bool ignores_layers, ls_text *text)
{
    ls_model_config x = a->config, y = b->config;
    char line[96];
    if (x.family != y.family) {
        snprintf(line, sizeof line, "the family is %s, not %s", ls_family_name(y.family),
                 ls_family_name(x.family));
        add_difference(text, line);
        return;
    }
    for (size_t i = ignores_layers ? 1 : 0; i < SIZES; i++) {
        const int64_t of_x = *size_of(&x, &sizes[i]), of_y = *size_of(&y, &sizes[i]);
        if (of_x != of_y) {
            snprintf(line, sizeof line, "%s is %" PRId64 ", not %" PRId64, sizes[i].name, of_y, of_x);
            add_difference(text, line);
        }
    }
    if (!x.rotary && x.context != y.context) {
        add_difference(text, "the tables of positions have different lengths");
    }
    /* Ids of special tokens belong to the tokenizer, and sizes were compared. */
    y = x;
    y.norm_eps = b->config.norm_eps;
    y.window = b->config.window;
    y.rope_theta = b->config.rope_theta;
    y.rope_scaling = b->config.rope_scaling;
    y.qkv_bias = b->config.qkv_bias;
    y.output_bias = b->config.output_bias;
    y.mlp_bias = b->config.mlp_bias;
    y.tied = b->config.tied;
    y.normalise_experts = b->config.normalise_experts;
    if (!ls_model_config_equal(&x, &y)) {
        add_difference(text, "rotary positions, norms, biases, window or a tied head differ in config.json");
    }
}

/* The tokenizer is part of a model only where its table or its head is used. */
static void compare_tokenizers(const ls_model_file *a, const ls_model_file *b, ls_text *text)
{
    if (a->tokenizer && b->tokenizer &&
        strcmp(ls_tokenizer_hash(a->tokenizer), ls_tokenizer_hash(b->tokenizer)) != 0) {
        char line[128];
        snprintf(line, sizeof line, "the tokenizer is another one (%s of %u ids, not %s of %u)",
                 ls_tokenizer_kind(b->tokenizer), ls_tokenizer_vocab_size(b->tokenizer),
                 ls_tokenizer_kind(a->tokenizer), ls_tokenizer_vocab_size(a->tokenizer));
        add_difference(text, line);
    }
}

/* What can still be done with models that differ. */
static const char *way_out(const ls_merge_work *w, const ls_model_file *a, const ls_model_file *b)
{
    ls_text shapes = {0}, tokenizers = {0}, alike = {0};
    const char *way = "These two cannot be merged; compare them with 'lockstep eval A B --data FILE'";
    for (size_t i = 1; i < w->options->count; i++) {
        ls_text differences = {0};
        compare(a, w->files[i], false, &differences);
        compare_tokenizers(a, w->files[i], &differences);
        if (differences.bytes == 0) {
            ls_text_printf(&alike, " %s", w->options->paths[i]);
        }
        ls_text_release(&differences);
    }
    compare(a, b, true, &shapes);
    compare_tokenizers(a, b, &tokenizers);
    if (alike.bytes > 0) {
        way = ls_arena_printf(w->arena, "%s and%s can still be merged", w->options->paths[0],
                              ls_text_string(&alike));
    } else if (shapes.bytes == 0 && tokenizers.bytes == 0 && w->options->method != LS_MERGE_STITCH) {
        way = "Only layers can be merged, with --method stitch";
    } else if (shapes.bytes == 0) {
        way = "Only layers can be merged, with --method stitch and the first and the last layer from models "
              "with the same tokenizer";
    }
    ls_text_release(&shapes);
    ls_text_release(&tokenizers);
    ls_text_release(&alike);
    return way;
}

/* As the person wrote it: the model file of an adapter has the path of its base. */
static const char *name_of(const ls_merge_work *w, size_t index)
{
    return index < w->options->count ? w->options->paths[index] : w->options->base;
}

static ls_status check_alike(const ls_merge_work *w, size_t index, bool ignores_layers, bool reads_text)
{
    const ls_model_file *a = w->files[0], *b = w->files[index];
    const bool is_base = index == w->options->count;
    ls_text differences = {0};
    compare(a, b, ignores_layers, &differences);
    if (reads_text) {
        compare_tokenizers(a, b, &differences);
    }
    const ls_status status =
        differences.bytes == 0
            ? LS_OK
            : ls_fail(LS_ERR_INVALID, "%s%s differs from %s: %s. %s", is_base ? "the base " : "",
                      name_of(w, index), name_of(w, 0), ls_text_string(&differences),
                      is_base ? "Give the model that the others were trained from" : way_out(w, a, b));
    ls_text_release(&differences);
    return status;
}

/* ---- weights ---- */

static ls_status choose_weights(ls_merge_work *w)
{
    const ls_merge_options *o = w->options;
    const bool is_mean = o->method == LS_MERGE_AVERAGE || o->method == LS_MERGE_EXPERTS;
    double sum = 0.0;
    for (size_t i = 0; i < o->count; i++) {
        w->weights[i] = o->weights ? o->weights[i] : is_mean ? 1.0 / (double)o->count : 1.0;
        sum += w->weights[i];
    }
    if (o->weights && o->method == LS_MERGE_STITCH) {
        return ls_fail(LS_ERR_INVALID, "--weights has no effect with --method stitch: leave it out");
    }
    if (is_mean && !(fabs(sum - 1.0) <= WEIGHTS_TOLERANCE)) {
        return ls_fail(LS_ERR_INVALID,
                       "--weights add up to %g, but an average needs them to add up to 1; divide each by %g",
                       sum, sum);
    }
    return LS_OK;
}

static ls_status check_options(const ls_merge_options *o)
{
    const bool is_task = o->method == LS_MERGE_TASK_ARITHMETIC, is_stitch = o->method == LS_MERGE_STITCH;
    const char *method = ls_merge_names[o->method];
    if (o->count < (is_task ? 1 : 2) || o->count > LS_MERGE_MOST) {
        return ls_fail(LS_ERR_INVALID, "--method %s: %zu models are given to merge, allowed are %d to %d",
                       method, o->count, is_task ? 1 : 2, LS_MERGE_MOST);
    }
    if (is_task != (o->base[0] != '\0')) {
        return ls_fail(LS_ERR_INVALID,
                       is_task ? "--method %s needs --base CKPT, the model that the others were trained from"
                               : "--base has no effect with --method %s: leave it out",
                       method);
    }
    if (is_stitch != (o->layers[0] != '\0')) {
        return ls_fail(LS_ERR_INVALID,
                       is_stitch ? "--method %s needs --layers, such as A:0-3,B:4-7; A is the first model"
                                 : "--layers has no effect with --method %s: leave it out",
                       method);
    }
    if (o->is_adapter && o->method != LS_MERGE_AVERAGE && !is_task) {
        return ls_fail(LS_ERR_INVALID, "--adapter works with the method average: adapters have no %s",
                       is_stitch ? "layers to stitch" : "MLP to make experts of");
    }
    if (o->is_adapter && is_task) {
        return ls_fail(LS_ERR_INVALID, "adapters are differences from their base already: use --method "
                                       "average with --adapter");
    }
    return LS_OK;
}

/* ---- layers ---- */

/* Reads "A:0-3" at *at. */
static bool read_piece(const char **at, size_t *parent_out, int64_t *first_out, int64_t *last_out)
{
    const char *text = *at + strspn(*at, " ");
    char *end = NULL;
    const char letter = *text;
    const bool is_letter = (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
    if (!is_letter || text[1] != ':' || text[2] < '0' || text[2] > '9') {
        return false;
    }
    *parent_out = (size_t)((letter | 0x20) - 'a');
    *first_out = *last_out = strtoll(text + 2, &end, 10);
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') {
        *last_out = strtoll(end + 1, &end, 10);
    }
    end += strspn(end, " ");
    *at = *end == ',' ? end + 1 : end;
    return (*end == ',' && end[1]) || !*end;
}

/* What is wrong with layers [first, last] of a model after layer `next - 1`. */
static ls_status check_piece(const ls_merge_work *w, size_t parent, int64_t first, int64_t last, int64_t next)
{
    const char letter = (char)('A' + parent);
    if (parent >= w->options->count) {
        return ls_fail(LS_ERR_INVALID, "--layers names model %c, but only A to %c are given", letter,
                       (char)('A' + w->options->count - 1));
    }
    const int64_t layers = w->files[parent]->config.layers;
    if (first > last || last >= layers) {
        return ls_fail(LS_ERR_INVALID,
                       "--layers has %c:%" PRId64 "-%" PRId64 ", but %s has the layers 0 to %" PRId64, letter,
                       first, last, w->options->paths[parent], layers - 1);
    }
    if (first > next) {
        return ls_fail(LS_ERR_INVALID,
                       "--layers leaves a gap: layer %" PRId64 " is missing before %c:%" PRId64 "-%" PRId64
                       "; layers may be repeated, not left out",
                       next, letter, first, last);
    }
    return LS_OK;
}

static ls_status read_layers(ls_merge_work *w)
{
    enum { LAYERS_MOST = 1024 };
    ls_merge_layer *layers = ls_arena_new(w->arena, ls_merge_layer, LAYERS_MOST);
    const char *at = w->options->layers;
    int64_t next = 0, count = 0;
    size_t parent = 0;
    while (*at) {
        int64_t first = 0, last = 0;
        if (!read_piece(&at, &parent, &first, &last)) {
            return ls_fail(LS_ERR_INVALID,
                           "--layers is '%s', allowed are pieces such as A:0-3,B:4-7; A is the first model",
                           w->options->layers);
        }
        LS_TRY(check_piece(w, parent, first, last, next));
        for (int64_t layer = first; layer <= last; layer++) {
            if (count == LAYERS_MOST) {
                return ls_fail(LS_ERR_INVALID, "--layers has more than %d layers", LAYERS_MOST);
            }
            layers[count++] = (ls_merge_layer){parent, layer};
        }
        next = last + 1;
    }
    if (next != w->files[parent]->config.layers) {
        return ls_fail(LS_ERR_INVALID,
                       "--layers ends with layer %" PRId64 " of %c, which has %" PRId64
                       ": the last layers are missing",
                       next - 1, (char)('A' + parent), w->files[parent]->config.layers);
    }
    w->layers = layers;
    w->config.layers = count;
    return LS_OK;
}

/* The models of the first and of the last layer give table and head. */
static ls_status check_stitch(ls_merge_work *w)
{
    for (size_t i = 1; i < w->options->count; i++) {
        LS_TRY(check_alike(w, i, true, false));
    }
    LS_TRY(read_layers(w));
    const size_t first = w->layers[0].parent, last = w->layers[w->config.layers - 1].parent;
    ls_text differences = {0};
    compare_tokenizers(w->files[first], w->files[last], &differences);
    const ls_status status =
        differences.bytes == 0
            ? LS_OK
            : ls_fail(
                  LS_ERR_INVALID,
                  "the first layer comes from %s and the last from %s, but %s; take both from models with "
                  "the same tokenizer",
                  name_of(w, first), name_of(w, last), ls_text_string(&differences));
    ls_text_release(&differences);
    w->carrier = w->files[first];
    return status;
}

/* ---- experts ---- */

static ls_status make_mixture(ls_merge_work *w)
{
    ls_model_config *c = &w->config;
    const ls_family family = c->family == LS_FAMILY_LLAMA || c->family == LS_FAMILY_MISTRAL
                                 ? LS_FAMILY_MIXTRAL
                             : c->family == LS_FAMILY_QWEN3 ? LS_FAMILY_QWEN3_MOE
                                                            : LS_FAMILY_COUNT;
    if (family == LS_FAMILY_COUNT) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "models of the family %s cannot become experts: llama and mistral become mixtral, "
                       "qwen3 becomes qwen3-moe; --method average works with every family",
                       ls_family_name(c->family));
    }
    const uint64_t visited = w->options->experts_per_token;
    if (visited > w->options->count) {
        return ls_fail(LS_ERR_INVALID,
                       "--experts-per-token is %" PRIu64 ", allowed is 1 to %zu, the number of models",
                       visited, w->options->count);
    }
    c->family = family;
    c->experts = (int64_t)w->options->count;
    c->experts_per_token = visited ? (int64_t)visited : 2;
    c->expert_ffn = c->ffn;
    c->normalise_experts = true;
    const ls_status status = ls_model_config_check(c);
    return status == LS_OK
               ? LS_OK
               : ls_fail(LS_ERR_UNSUPPORTED, "a mixture of the family %s cannot hold these models: %s",
                         ls_family_name(family), ls_error_text());
}

/* ---- all ---- */

/* A path that leads to the same weights twice is a mistake, except in a stitched model. */
static ls_status check_distinct(const ls_merge_work *w)
{
    for (size_t i = 0; i < w->options->count; i++) {
        for (size_t k = 0; k < i; k++) {
            const bool is_same = strcmp(w->files[i]->path, w->files[k]->path) == 0;
            if (is_same && (!w->files[i]->adapter || strcmp(name_of(w, i), name_of(w, k)) == 0)) {
                return ls_fail(LS_ERR_INVALID, "%s is given twice; to give it more weight, use --weights",
                               name_of(w, i));
            }
        }
    }
    return LS_OK;
}

ls_status ls_merge_check(ls_merge_work *w)
{
    LS_TRY(check_options(w->options));
    LS_TRY(choose_weights(w));
    w->config = w->files[0]->config;
    w->config.quantised = false;
    w->carrier = w->files[0];
    if (w->options->method == LS_MERGE_STITCH) {
        return check_stitch(w);
    }
    LS_TRY(check_distinct(w));
    for (size_t i = 1; i < w->count; i++) {
        const ls_model_file *file = w->files[i];
        LS_TRY(check_alike(w, i, false, true));
        w->config.context =
            file->config.context < w->config.context ? file->config.context : w->config.context;
        w->carrier = w->carrier->tokenizer || !file->tokenizer ? w->carrier : file;
    }
    return w->options->method == LS_MERGE_EXPERTS ? make_mixture(w) : LS_OK;
}

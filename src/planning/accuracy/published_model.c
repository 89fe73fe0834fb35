// SPDX-License-Identifier: Apache-2.0
/* Published runs: the model, the machine, and the program. */
#include "base/assert.h"
#include "config/names.h"
#include "planning/accuracy/published_internal.h"

#include <math.h>
#include <string.h>

/* ---- model ---- */

/* Models whose sizes the sources do not repeat, by a part of their name. */
static const char *const known_models[][2] = {
    {"Mixtral 8x7B", "mixtral-8x7b"},
    {"Mixtral 8x22B", "mixtral-8x22b"},
    {"GPT OSS 20B", "gpt-oss-20b"},
    {"DeepSeek V2", "deepseek-v2"},
    {"DeepSeek V3", "deepseek-v3"},
    {"Qwen3 30B", "layers=48,hidden=2048,heads=32,kv_heads=4,head_dim=128,ffn=6144,vocab=151936,mlp=swiglu,"
                  "experts=128,active=8,expert_ffn=768"},
    {"Qwen3 235B", "layers=94,hidden=4096,heads=64,kv_heads=4,head_dim=128,ffn=12288,vocab=151936,mlp=swiglu,"
                   "experts=128,active=8,expert_ffn=1536"},
    {"GPT OSS 120B", "layers=36,hidden=2880,heads=64,kv_heads=8,head_dim=64,ffn=2880,vocab=201088,mlp=swiglu,"
                     "experts=128,active=4,expert_ffn=2880"},
};
/* Dense ones: used where a row has no sizes. */
static const char *const known_dense[][2] = {
    {"llama3 8b", "llama3-8b"}, {"llama3 70b", "llama3-70b"}, {"llama3 405b", "llama3-405b"},
    {"llama2 7b", "llama2-7b"}, {"llama2 13b", "llama2-13b"}, {"llama2 70b", "llama2-70b"},
    {"GPT3 175B", "gpt3-175b"}, {"Qwen3 8B", "qwen3-8b"},     {"Qwen3 14B", "qwen3-14b"},
    {"Qwen3 32B", "qwen3-32b"},
};

static const char *find_model(const char *name, const char *const (*models)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ls_names_matches(name, models[i][0])) {
            return models[i][1];
        }
    }
    return NULL;
}

/* A preset of exactly this name; "GPT 18B" is any GPT of that size, although one has that name. */
static const char *find_preset(const char *name)
{
    for (const char *const *preset = ls_shape_presets(); *preset; preset++) {
        if (ls_names_equal(name, *preset) && strncmp(*preset, "gpt-", 4) != 0) {
            return *preset;
        }
    }
    return NULL;
}

static double multiple(double value, double of)
{
    return fmax(1, round(value / of)) * of;
}

/* GPUs that share a matrix by the row, or by what its other degrees leave; 8 where neither says. */
static int64_t tensor_degree(ls_published_reader *r)
{
    const int64_t tp = ls_published_count(r, "tp"), dp = ls_published_count(r, "dp");
    const int64_t pp = (int64_t)fmax(1, ls_published_number(r, "pp")),
                  cp = (int64_t)fmax(1, ls_published_number(r, "cp"));
    const int64_t left = dp > 0 ? r->run->setting.gpus / (dp * pp * cp) : 0;
    return tp > 0 ? tp : left > 0 && left <= 16 ? left : r->run->setting.gpus > 1 ? 8 : 1;
}

/* Heads of a usual width that divide the row's and can be cut as it was; hidden / 128 when there
 * are none. */
static int64_t guess_heads(int64_t hidden, int64_t kv_heads, int64_t tp)
{
    static const int64_t widths[] = {128, 64, 96, 80, 160, 256, 112, 100, 72};
    for (int strict = 1; strict >= 0; strict--) {
        for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
            const int64_t heads = hidden / widths[i];
            if (hidden % widths[i] == 0 && heads % (kv_heads > 0 ? kv_heads : 1) == 0 &&
                (!strict || heads % tp == 0)) {
                return heads;
            }
        }
    }
    return kv_heads > 0 && hidden % kv_heads == 0 ? kv_heads : (int64_t)fmax(1, (double)(hidden / 128));
}

/* A model with unknown layers or width and known parameters: 128 times as wide as deep, with layers
 * of 12 h^2 parameters, such that the row's strategy can split it. */
static const char *guess_sizes(ls_published_reader *r, double parameters)
{
    const int64_t tp = tensor_degree(r);
    const double layers_of = fmax(1, ls_published_number(r, "pp"));
    const double given_layers = ls_published_number(r, "layers"),
                 given_hidden = ls_published_number(r, "hidden");
    const double wide =
        given_layers > 0 ? sqrt(parameters / (12 * given_layers)) : cbrt(parameters * 128 / 12);
    const double hidden = given_hidden > 0 ? given_hidden : multiple(wide, 128 * (double)tp);
    const double layers =
        given_layers > 0 ? given_layers : multiple(parameters / (12 * hidden * hidden), layers_of);
    ls_published_assume(r, "sizes from the parameters: %.0f layers of width %.0f", layers, hidden);
    return ls_arena_printf(r->arena,
                           "layers=%.0f,hidden=%.0f,heads=%lld,ffn=%.0f,vocab=51200,mlp=gelu,tied=1", layers,
                           hidden, (long long)guess_heads((int64_t)hidden, 0, tp), 4 * hidden);
}

/* The row's sizes, with blanks filled in except for the MLP. */
typedef struct sizes {
    int64_t layers, hidden, heads, kv_heads, ffn, vocab;
} sizes;

static double count_parameters(const sizes *s, bool swiglu)
{
    const double h = (double)s->hidden;
    const double keys = 2 * h * (double)s->kv_heads / (double)s->heads;
    const double layer = h * (h + keys) + h * h + (swiglu ? 3 : 2) * h * (double)s->ffn;
    return (double)s->layers * layer + (swiglu ? 2 : 1) * (double)s->vocab * h;
}

/* The number of the MLP's matrices according to the parameters, where they are clear: within a
 * twentieth of one count, and twice as far from the other. */
static bool parameters_tell(ls_published_reader *r, const sizes *s, bool *swiglu_out)
{
    const double parameters = ls_published_number(r, "params_b") * 1e9;
    if (parameters <= 0 || s->ffn == 0 || strstr(ls_published_text(r, "unsure_cells"), "layers")) {
        return false;
    }
    const double two = fabs(count_parameters(s, false) / parameters - 1),
                 three = fabs(count_parameters(s, true) / parameters - 1);
    *swiglu_out = three < two;
    return fmin(two, three) < 0.05 && fmax(two, three) > 2 * fmin(two, three) + 0.05;
}

/* Two matrices or three: according to the parameters, else the family, else the MLP's width. */
static bool has_swiglu(ls_published_reader *r, const sizes *s)
{
    static const char *const three[] = {"llama",    "qwen",     "mistral", "mixtral", "gemma",
                                        "deepseek", "yi-",      "olmo",    "phi-3",   "smollm",
                                        "internlm", "baichuan", "glm",     "palm"};
    static const char *const two[] = {"nemotron", "falcon",    "gpt",        "opt",    "bloom", "mpt",
                                      "pythia",   "starcoder", "santacoder", "turing", "t5",    "bert"};
    const char *model = r->run->model;
    bool swiglu = false;
    if (parameters_tell(r, s, &swiglu)) {
        return swiglu;
    }
    for (size_t i = 0; i < sizeof(three) / sizeof(three[0]); i++) {
        if (ls_published_has(model, three[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(two) / sizeof(two[0]); i++) {
        if (ls_published_has(model, two[i])) {
            return false;
        }
    }
    const double ratio = (double)s->ffn / (double)s->hidden;
    const bool grouped = s->kv_heads != s->heads;
    swiglu = ratio > 0 ? (grouped && ratio != 4) || (ratio > 2.4 && ratio < 3.1) : grouped;
    ls_published_assume(r, "an MLP of %s matrices", swiglu ? "three" : "two");
    return swiglu;
}

/* The row's own sizes as ls_shape_parse reads them. */
static const char *write_sizes(ls_published_reader *r)
{
    sizes s = {.layers = ls_published_count(r, "layers"),
               .hidden = ls_published_count(r, "hidden"),
               .heads = ls_published_count(r, "heads"),
               .kv_heads = ls_published_count(r, "kv_heads"),
               .ffn = ls_published_count(r, "ffn"),
               .vocab = ls_published_count(r, "vocab")};
    s.heads = s.heads > 0 ? s.heads : guess_heads(s.hidden, s.kv_heads, tensor_degree(r));
    s.kv_heads = s.kv_heads > 0 ? s.kv_heads : s.heads;
    s.vocab = s.vocab > 0 ? s.vocab : 50304;
    const bool swiglu = has_swiglu(r, &s);
    s.ffn = s.ffn > 0 ? s.ffn : swiglu ? (s.hidden * 8 / 3 + 63) / 64 * 64 : 4 * s.hidden;
    return ls_arena_printf(
        r->arena,
        "layers=%lld,hidden=%lld,heads=%lld,kv_heads=%lld,ffn=%lld,vocab=%lld,mlp=%s,tied=%d,seq=%lld",
        (long long)s.layers, (long long)s.hidden, (long long)s.heads, (long long)s.kv_heads, (long long)s.ffn,
        (long long)s.vocab, swiglu ? "swiglu" : "gelu", !swiglu,
        (long long)fmax(1, ls_published_number(r, "seq_len")));
}

const char *ls_published_shape_text(ls_published_reader *r)
{
    const int64_t layers = ls_published_count(r, "layers"), hidden = ls_published_count(r, "hidden");
    const char *known =
        find_model(r->run->model, known_models, sizeof(known_models) / sizeof(known_models[0]));
    if (!known && (layers == 0 || hidden == 0)) {
        known = find_model(r->run->model, known_dense, sizeof(known_dense) / sizeof(known_dense[0]));
    }
    if (!known && (layers == 0 || hidden == 0)) {
        known = find_preset(r->run->model);
    }
    if (known) {
        return known;
    }
    const double parameters = ls_published_number(r, "params_b") * 1e9;
    if (layers == 0 || hidden == 0) {
        return parameters > 0 ? guess_sizes(r, parameters) : NULL;
    }
    return write_sizes(r);
}

/* Where a source is unsure of the layers and its parameters disagree, the parameters are right:
 * returns 0, or the right number of layers. */
static int64_t layers_by_parameters(ls_published_reader *r, const ls_shape *shape)
{
    const double parameters = ls_published_number(r, "params_b") * 1e9, layers = (double)shape->config.layers;
    const double layer = (double)(shape->layer_matrices + shape->layer_vectors + shape->layer_experts);
    const double must = layers + (parameters - (double)shape->parameters) / layer;
    const bool unsure =
        strstr(ls_published_text(r, "unsure_cells"), "layers") != NULL && shape->moe.experts == 0;
    return unsure && parameters > 0 && fabs(must / layers - 1) > 0.1 && must > 1 ? (int64_t)(must + 0.5) : 0;
}

bool ls_published_read_shape(ls_published_reader *r, const char *text)
{
    ls_shape *shape = ls_arena_new(r->arena, ls_shape, 1);
    if (!text || ls_shape_parse(r->arena, text, shape) != LS_OK) {
        r->run->left_out =
            text ? ls_arena_strdup(r->arena, ls_error_text()) : "no sizes of the model are known";
        return false;
    }
    r->run->shape = shape;
    const int64_t layers = layers_by_parameters(r, shape);
    const char *rest = strchr(text, ',');
    if (layers > 0 && rest && strncmp(text, "layers=", 7) == 0) {
        ls_published_assume(r, "%lld layers, as the parameters say", (long long)layers);
        return ls_published_read_shape(r,
                                       ls_arena_printf(r->arena, "layers=%lld%s", (long long)layers, rest));
    }
    return true;
}

/* ---- machine ---- */

/* The stack whose constants are closest to a program without constants of its own. */
static const char *nearest_stack(ls_published_reader *r, const ls_accelerator *accelerator, const char *name)
{
    const char *sharding = ls_published_text(r, "sharding");
    const bool sharded = ls_published_has(sharding, "SHARD") || ls_published_has(sharding, "FSDP") ||
                         ls_published_has(sharding, "ZeRO-3");
    if (accelerator->class == LS_CLASS_TPU) {
        return "maxtext";
    }
    if (ls_published_has(name, "titan") || ls_published_has(name, "fsdp2")) {
        return "torchtitan-fsdp2";
    }
    if (ls_published_has(name, "vtrain")) {
        return "megatron-2023";
    }
    if (ls_published_has(name, "deepspeed") && sharded) {
        return "deepspeed-zero3-2021";
    }
    if (sharded) {
        return "fsdp";
    }
    return accelerator->year <= 2021 &&
                   (ls_published_has(name, "megatron") || ls_published_has(name, "deepspeed"))
               ? "megatron-2021"
               : "megatron-core";
}

bool ls_published_read_machine(ls_published_reader *r, const char *accelerator_name, const char *stack_name)
{
    const ls_accelerator *accelerator = NULL;
    if (ls_catalogue_find_accelerator(r->catalogue, accelerator_name, &accelerator) != LS_OK) {
        r->run->left_out = ls_arena_strdup(r->arena, ls_error_text());
        return false;
    }
    const char *taken_from = NULL;
    if (ls_stack_find(stack_name, accelerator, &r->run->stack, &taken_from) != LS_OK) {
        const char *nearest = nearest_stack(r, accelerator, stack_name);
        ls_published_assume(r, "constants of %s, because %s has none", nearest,
                            *stack_name ? stack_name : "an unnamed program");
        const ls_status status = ls_stack_find(nearest, accelerator, &r->run->stack, &taken_from);
        LS_ASSERT(status == LS_OK);
    }
    if (taken_from) {
        ls_published_assume(r, "constants of %s on %s", r->run->stack.name, taken_from);
    }
    r->run->setting.node = ls_catalogue_usual_node(r->catalogue, r->arena, accelerator);
    return true;
}

ls_plan_precision ls_published_read_precision(ls_published_reader *r)
{
    const char *text = ls_published_text(r, "precision");
    if (ls_published_has(text, "fp8") || ls_published_has(text, "fp4")) {
        return LS_PLAN_FP8;
    }
    if (ls_published_has(text, "tf32")) {
        return LS_PLAN_TF32;
    }
    return ls_published_has(text, "fp16")   ? LS_PLAN_FP16
           : ls_published_has(text, "fp32") ? LS_PLAN_FP32
                                            : LS_PLAN_BF16;
}

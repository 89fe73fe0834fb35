// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/gguf_model.h"

#include "base/assert.h"
#include "model/rope.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ls_gguf_note(ls_gguf_notes *notes, const char *format, ...)
{
    LS_ASSERT(notes->count < sizeof notes->texts / sizeof notes->texts[0]);
    ls_text text = {0};
    va_list args;
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    notes->texts[notes->count++] = ls_text_keep(&text, notes->arena);
}

const char *ls_gguf_architecture(ls_family family)
{
    return family == LS_FAMILY_MISTRAL ? "llama" : ls_family_name(family);
}

static bool has_llama_order(const ls_model_config *config)
{
    return config->family == LS_FAMILY_LLAMA || config->family == LS_FAMILY_MISTRAL;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A key that begins with the architecture. */
typedef struct key {
    char text[96];
} key;

static key of(const ls_model_config *config, const char *name)
{
    key made;
    (void)snprintf(made.text, sizeof made.text, "%s.%s", ls_gguf_architecture(config->family), name);
    return made;
}

static ls_status refuse(const ls_model_config *config, const char *what)
{
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "a GGUF file can't hold this %s model: %s; export a Hugging Face "
                   "directory with -o DIR instead",
                   ls_family_name(config->family), what);
}

static ls_status check(const ls_model_config *config)
{
    const ls_rope_scaling *scaling = &config->rope_scaling;
    if (config->experts > 0) {
        return refuse(config, "in this version models with experts have no GGUF form");
    }
    if (config->family == LS_FAMILY_QWEN2 && config->head_dim * config->heads != config->width) {
        return refuse(config, "llama.cpp requires that heads * head_dim = width");
    }
    if (config->family == LS_FAMILY_QWEN3 && config->output_bias) {
        return refuse(config, "llama.cpp does not support its attention biases");
    }
    if (config->rotary && scaling->kind == LS_ROPE_LLAMA3 && !has_llama_order(config)) {
        return refuse(config, "llama.cpp has rotary scaling of the kind llama3 for llama and mistral only");
    }
    if (config->rotary && scaling->kind == LS_ROPE_YARN && scaling->fractional_bounds) {
        return refuse(config,
                      "llama.cpp always rounds the bounds of yarn, but this model sets `truncate` to false");
    }
    return LS_OK;
}

static uint32_t file_type(ls_gguf_quant quant)
{
    static const uint32_t numbers[] = {
        [LS_GGUF_F32] = 0,   [LS_GGUF_F16] = 1,     [LS_GGUF_BF16] = 32,  [LS_GGUF_Q8_0] = 7,
        [LS_GGUF_Q6_K] = 18, [LS_GGUF_Q5_K_M] = 17, [LS_GGUF_Q4_K_M] = 15};
    return numbers[quant];
}

int64_t ls_gguf_context(const ls_model_config *config, ls_gguf_notes *notes)
{
    int64_t context = config->context;
    const ls_rope_scaling *scaling = &config->rope_scaling;
    if (config->rotary && scaling->kind == LS_ROPE_DYNAMIC && scaling->original_context < context) {
        context = scaling->original_context;
        ls_gguf_note(notes,
                     "the context in the GGUF file is limited to %" PRId64
                     " positions: longer texts need dynamic rotary scaling, which llama.cpp does not have",
                     context);
    }
    if (config->window > 0 && config->window < context) {
        context = config->window;
        ls_gguf_note(notes,
                     "the context in the GGUF file is limited to %" PRId64
                     " positions, the size of the model's sliding window: llama.cpp has no "
                     "sliding window for this architecture",
                     context);
    }
    return context;
}

static void add_rope(ls_gguf *gguf, const ls_model_config *c)
{
    const ls_rope_scaling *scaling = &c->rope_scaling;
    ls_gguf_add_u32(gguf, of(c, "rope.dimension_count").text, (uint32_t)c->head_dim);
    ls_gguf_add_f32(gguf, of(c, "rope.freq_base").text, (float)c->rope_theta);
    if (scaling->kind != LS_ROPE_LINEAR && scaling->kind != LS_ROPE_YARN) {
        return; /* llama3 has a tensor of its own */
    }
    ls_gguf_add_string(gguf, of(c, "rope.scaling.type").text, ls_rope_scaling_name(scaling->kind));
    ls_gguf_add_f32(gguf, of(c, "rope.scaling.factor").text, (float)scaling->factor);
    if (scaling->kind == LS_ROPE_YARN) {
        /* llama.cpp multiplies this factor by that of the paper. */
        const double paper = ls_rope_attention_factor(scaling->factor, 1.0);
        ls_gguf_add_u32(gguf, of(c, "rope.scaling.original_context_length").text,
                        (uint32_t)scaling->original_context);
        ls_gguf_add_f32(gguf, of(c, "rope.scaling.attn_factor").text,
                        (float)(scaling->attention_factor / paper));
        ls_gguf_add_f32(gguf, of(c, "rope.scaling.yarn_beta_fast").text, (float)scaling->beta_fast);
        ls_gguf_add_f32(gguf, of(c, "rope.scaling.yarn_beta_slow").text, (float)scaling->beta_slow);
    }
}

ls_status ls_gguf_model_keys(ls_gguf *gguf, const ls_model_config *config, ls_gguf_quant quant,
                             ls_gguf_notes *notes)
{
    const ls_model_config *c = config;
    LS_TRY(check(c));
    ls_gguf_add_u32(gguf, "general.quantization_version", 2);
    ls_gguf_add_u32(gguf, "general.file_type", file_type(quant));
    ls_gguf_add_u32(gguf, of(c, "block_count").text, (uint32_t)c->layers);
    ls_gguf_add_u32(gguf, of(c, "context_length").text, (uint32_t)ls_gguf_context(c, notes));
    ls_gguf_add_u32(gguf, of(c, "embedding_length").text, (uint32_t)c->width);
    ls_gguf_add_u32(gguf, of(c, "feed_forward_length").text, (uint32_t)c->ffn);
    ls_gguf_add_u32(gguf, of(c, "vocab_size").text, (uint32_t)c->vocab);
    ls_gguf_add_u32(gguf, of(c, "attention.head_count").text, (uint32_t)c->heads);
    ls_gguf_add_u32(gguf, of(c, "attention.head_count_kv").text, (uint32_t)c->kv_heads);
    ls_gguf_add_u32(gguf, of(c, "attention.key_length").text, (uint32_t)c->head_dim);
    ls_gguf_add_u32(gguf, of(c, "attention.value_length").text, (uint32_t)c->head_dim);
    ls_gguf_add_f32(
        gguf, of(c, c->rms_norm ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon").text,
        (float)c->norm_eps);
    if (c->rotary) {
        add_rope(gguf, c);
    }
    return LS_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

typedef struct name_pair {
    const char *ours, *theirs;
} name_pair;

static const name_pair outer_names[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
};

/* Within a layer, without ".weight" or ".bias". */
static const name_pair layer_names[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

/* The part of a layer ("attn_q"); NULL outside layers. *layer_out: its number. */
static const char *part_of(const char *name, int *layer_out, const char **suffix_out)
{
    int at = 0;
    if (sscanf(name, "model.layers.%d.%n", layer_out, &at) != 1 || at == 0) {
        if (sscanf(name, "transformer.h.%d.%n", layer_out, &at) != 1 || at == 0) {
            return NULL;
        }
    }
    for (size_t i = 0; i < sizeof layer_names / sizeof layer_names[0]; i++) {
        const size_t bytes = strlen(layer_names[i].ours);
        if (strncmp(name + at, layer_names[i].ours, bytes) == 0 && name[(size_t)at + bytes] == '.') {
            *suffix_out = name + at + bytes;
            return layer_names[i].theirs;
        }
    }
    LS_ASSERT(!"a tensor of a layer without a name");
    return NULL;
}

static const char *outer_name(const char *name)
{
    for (size_t i = 0; i < sizeof outer_names / sizeof outer_names[0]; i++) {
        if (strcmp(name, outer_names[i].ours) == 0) {
            return outer_names[i].theirs;
        }
    }
    LS_ASSERT(!"a tensor without a name");
    return NULL;
}

/* ---- types ----------------------------------------------------------------------------------- */

/* The layers in which a mixture spends more bits: the first and the last eighth, and each third one
 * between. */
static bool has_more_bits(int64_t layer, int64_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/* The type of a matrix, whatever its shape. part: NULL outside layers. */
static ls_block_type wanted_type(const ls_model_config *config, ls_gguf_quant quant, const char *name,
                                 const char *part, int layer)
{
    static const ls_block_type plain[] = {
        [LS_GGUF_F32] = LS_BLOCK_F32,    [LS_GGUF_F16] = LS_BLOCK_F16,   [LS_GGUF_BF16] = LS_BLOCK_BF16,
        [LS_GGUF_Q8_0] = LS_BLOCK_Q8_0,  [LS_GGUF_Q6_K] = LS_BLOCK_Q6_K, [LS_GGUF_Q5_K_M] = LS_BLOCK_Q5_K,
        [LS_GGUF_Q4_K_M] = LS_BLOCK_Q4_K};
    if (strcmp(name, "position_embd.weight") == 0) {
        return LS_BLOCK_F32;
    }
    if (quant < LS_GGUF_Q5_K_M) {
        return plain[quant];
    }
    if (!part) {
        const bool output = strcmp(name, "output.weight") == 0 || config->tied;
        return output ? LS_BLOCK_Q6_K : plain[quant];
    }
    const bool value = strcmp(part, "attn_v") == 0 || strcmp(part, "attn_qkv") == 0;
    if ((value || strcmp(part, "ffn_down") == 0) && has_more_bits(layer, config->layers)) {
        return LS_BLOCK_Q6_K;
    }
    /* Eight heads share a value in the models of 70 billion parameters, so it is small. */
    const bool shared = value && config->layers == 80 && config->heads != config->kv_heads;
    return shared && quant == LS_GGUF_Q4_K_M ? LS_BLOCK_Q5_K : plain[quant];
}

/* The type for rows of `cols` numbers. */
static ls_block_type fitting_type(ls_block_type wanted, int64_t cols)
{
    if (cols % ls_block_elements(wanted) == 0) {
        return wanted;
    }
    const ls_block_type smaller = wanted == LS_BLOCK_Q4_K   ? LS_BLOCK_Q5_0
                                  : wanted == LS_BLOCK_Q5_K ? LS_BLOCK_Q5_1
                                                            : LS_BLOCK_Q8_0;
    return cols % ls_block_elements(smaller) == 0 ? smaller : LS_BLOCK_F16;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static ls_gguf_tensor tensor_of(ls_arena *arena, const ls_model_config *config, ls_gguf_quant quant,
                                const ls_layout *layout, uint32_t index)
{
    const ls_parameter *p = &layout->parameters[index];
    ls_gguf_tensor t = {
        .parameter = index, .rank = (uint32_t)p->shape_rank, .rows = p->rows, .cols = p->cols};
    const char *suffix = NULL;
    int layer = 0;
    const char *part = part_of(p->name, &layer, &suffix);
    t.name = part ? ls_arena_printf(arena, "blk.%d.%s%s", layer, part, suffix) : outer_name(p->name);
    t.wanted = t.rank == 1 ? LS_BLOCK_F32 : wanted_type(config, quant, t.name, part, layer);
    if (config->family == LS_FAMILY_GPT2 && part && t.rank == 2) {
        t.order = LS_GGUF_COLUMNS;
        t.rows = p->cols;
        t.cols = p->rows;
    } else if (has_llama_order(config) && part &&
               (strcmp(part, "attn_q") == 0 || strcmp(part, "attn_k") == 0)) {
        t.order = LS_GGUF_HEADS;
    }
    t.type = fitting_type(t.wanted, t.cols);
    return t;
}

/* By how much each frequency is divided, as llama.cpp reads it. */
static ls_gguf_tensor frequency_factors(ls_arena *arena, const ls_model_config *config)
{
    const int64_t count = config->head_dim / 2;
    ls_model_config plain = *config;
    plain.rope_scaling = (ls_rope_scaling){.kind = LS_ROPE_NONE};
    float *values = ls_arena_new(arena, float, (size_t)count),
          *scaled = ls_arena_new(arena, float, (size_t)count);
    ls_rope_frequencies(&plain, config->context, values);
    ls_rope_frequencies(config, config->context, scaled);
    for (int64_t i = 0; i < count; i++) {
        values[i] /= scaled[i];
    }
    return (ls_gguf_tensor){.name = "rope_freqs.weight",
                            .parameter = UINT32_MAX,
                            .values = values,
                            .type = LS_BLOCK_F32,
                            .wanted = LS_BLOCK_F32,
                            .rank = 1,
                            .rows = 1,
                            .cols = count};
}

void ls_gguf_model_tensors(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                           ls_gguf_quant quant, ls_gguf_tensor **tensors_out, size_t *count_out)
{
    ls_gguf_tensor *tensors = ls_arena_new(arena, ls_gguf_tensor, layout->parameter_count + 1);
    size_t count = 0;
    if (config->rotary && config->rope_scaling.kind == LS_ROPE_LLAMA3) {
        tensors[count++] = frequency_factors(arena, config);
    }
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        tensors[count++] = tensor_of(arena, config, quant, layout, i);
    }
    *tensors_out = tensors;
    *count_out = count;
}

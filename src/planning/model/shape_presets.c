// SPDX-License-Identifier: Apache-2.0
/* Models by name, with the sizes their authors published. */
#include "config/names.h"
#include "planning/model/shape_internal.h"

typedef struct preset {
    const char *name;
    ls_family family;
    int64_t layers, width, heads, kv_heads, ffn, vocab, context;
    int64_t head_dim; /* 0: width / heads */
    bool tied;        /* gpt2: always */
    double dropout;
    ls_shape_moe moe;
    ls_shape_latent latent;
    /* parameters of a layer besides, gpt-oss: sinks, router's biases; and then all have biases */
    int64_t more;
} preset;

#define G  LS_FAMILY_GPT2
#define L  LS_FAMILY_LLAMA
#define M  LS_FAMILY_MISTRAL
#define Q2 LS_FAMILY_QWEN2
#define Q3 LS_FAMILY_QWEN3

/* clang-format off */
static const preset presets[] = {
    /* GPT-2, as released. */
    {"gpt2",            G,  12,   768,  12,  12,   3072,  50257,   1024},
    {"gpt2-medium",     G,  24,  1024,  16,  16,   4096,  50257,   1024},
    {"gpt2-large",      G,  36,  1280,  20,  20,   5120,  50257,   1024},
    {"gpt2-xl",         G,  48,  1600,  25,  25,   6400,  50257,   1024},
    /* GPT-3, table 2.1 of its paper. */
    {"gpt3-125m",       G,  12,   768,  12,  12,   3072,  50257,   2048, .dropout = 0.1},
    {"gpt3-350m",       G,  24,  1024,  16,  16,   4096,  50257,   2048, .dropout = 0.1},
    {"gpt3-760m",       G,  24,  1536,  16,  16,   6144,  50257,   2048, .dropout = 0.1},
    {"gpt3-6.7b",       G,  32,  4096,  32,  32,  16384,  50257,   2048, .dropout = 0.1},
    {"gpt3-13b",        G,  40,  5120,  40,  40,  20480,  50257,   2048, .dropout = 0.1},
    {"gpt3-175b",       G,  96, 12288,  96,  96,  49152,  50257,   2048, .dropout = 0.1},
    /* Megatron's tables (Narayanan et al. 2021, Korthikanti et al. 2022). */
    {"gpt-1.7b",        G,  24,  2304,  24,  24,   9216,  51200,   2048, .dropout = 0.1},
    {"gpt-3.6b",        G,  30,  3072,  32,  32,  12288,  51200,   2048, .dropout = 0.1},
    {"gpt-7.5b",        G,  36,  4096,  32,  32,  16384,  51200,   2048, .dropout = 0.1},
    {"gpt-18b",         G,  40,  6144,  48,  48,  24576,  51200,   2048, .dropout = 0.1},
    {"gpt-22b",         G,  48,  6144,  64,  64,  24576,  51200,   2048, .dropout = 0.1},
    {"gpt-39b",         G,  48,  8192,  64,  64,  32768,  51200,   2048, .dropout = 0.1},
    {"gpt-76b",         G,  60, 10240,  80,  80,  40960,  51200,   2048, .dropout = 0.1},
    {"gpt-145b",        G,  80, 12288,  96,  96,  49152,  51200,   2048, .dropout = 0.1},
    {"gpt-175b",        G,  96, 12288,  96,  96,  49152,  51200,   2048, .dropout = 0.1},
    {"gpt-310b",        G,  96, 16384, 128, 128,  65536,  51200,   2048, .dropout = 0.1},
    {"gpt-530b",        G, 105, 20480, 128, 128,  81920,  51200,   2048, .dropout = 0.1},
    {"gpt-1t",          G, 128, 25600, 160, 160, 102400,  51200,   2048, .dropout = 0.1},
    /* Llama. */
    {"llama-7b",        L,  32,  4096,  32,  32,  11008,  32000,   2048},
    {"llama-13b",       L,  40,  5120,  40,  40,  13824,  32000,   2048},
    {"llama-33b",       L,  60,  6656,  52,  52,  17920,  32000,   2048},
    {"llama-65b",       L,  80,  8192,  64,  64,  22016,  32000,   2048},
    {"llama2-7b",       L,  32,  4096,  32,  32,  11008,  32000,   4096},
    {"llama2-13b",      L,  40,  5120,  40,  40,  13824,  32000,   4096},
    {"llama2-70b",      L,  80,  8192,  64,   8,  28672,  32000,   4096},
    {"llama3-8b",       L,  32,  4096,  32,   8,  14336, 128256,   8192},
    {"llama3-70b",      L,  80,  8192,  64,   8,  28672, 128256,   8192},
    {"llama3-405b",     L, 126, 16384, 128,   8,  53248, 128256,   8192},
    {"llama3.1-8b",     L,  32,  4096,  32,   8,  14336, 128256, 131072},
    {"llama3.1-70b",    L,  80,  8192,  64,   8,  28672, 128256, 131072},
    {"llama3.1-405b",   L, 126, 16384, 128,   8,  53248, 128256, 131072},
    {"llama3.2-1b",     L,  16,  2048,  32,   8,   8192, 128256, 131072, .tied = true},
    {"llama3.2-3b",     L,  28,  3072,  24,   8,   8192, 128256, 131072, .tied = true},
    {"llama3.3-70b",    L,  80,  8192,  64,   8,  28672, 128256, 131072},
    {"tinyllama-1.1b",  L,  22,  2048,  32,   4,   5632,  32000,   2048},
    {"smollm2-135m",    L,  30,   576,   9,   3,   1536,  49152,   8192, .tied = true},
    {"smollm2-360m",    L,  32,   960,  15,   5,   2560,  49152,   8192, .tied = true},
    {"smollm2-1.7b",    L,  24,  2048,  32,  32,   8192,  49152,   8192, .tied = true},
    /* Mistral and Mixtral. */
    {"mistral-7b",      M,  32,  4096,  32,   8,  14336,  32000,  32768},
    {"mistral-nemo-12b", M, 40,  5120,  32,   8,  14336, 131072, 131072, .head_dim = 128},
    {"mistral-small-24b", M, 40, 5120,  32,   8,  32768, 131072,  32768, .head_dim = 128},
    {"mistral-large-123b", M, 88, 12288, 96,  8,  28672,  32768, 131072, .head_dim = 128},
    {"mixtral-8x7b",    M,  32,  4096,  32,   8,  14336,  32000,  32768, .moe = {8, 2, 0, 14336, 0}},
    {"mixtral-8x22b",   M,  56,  6144,  48,   8,  16384,  32000,  65536, .moe = {8, 2, 0, 16384, 0}},
    /* Qwen. */
    {"qwen2-0.5b",      Q2, 24,   896,  14,   2,   4864, 151936, 131072, .tied = true},
    {"qwen2-1.5b",      Q2, 28,  1536,  12,   2,   8960, 151936, 131072, .tied = true},
    {"qwen2-7b",        Q2, 28,  3584,  28,   4,  18944, 152064, 131072},
    {"qwen2-72b",       Q2, 80,  8192,  64,   8,  29568, 152064, 131072},
    {"qwen2.5-0.5b",    Q2, 24,   896,  14,   2,   4864, 151936,  32768, .tied = true},
    {"qwen2.5-1.5b",    Q2, 28,  1536,  12,   2,   8960, 151936, 131072, .tied = true},
    {"qwen2.5-3b",      Q2, 36,  2048,  16,   2,  11008, 151936,  32768, .tied = true},
    {"qwen2.5-7b",      Q2, 28,  3584,  28,   4,  18944, 152064, 131072},
    {"qwen2.5-14b",     Q2, 48,  5120,  40,   8,  13824, 152064, 131072},
    {"qwen2.5-32b",     Q2, 64,  5120,  40,   8,  27648, 152064, 131072},
    {"qwen2.5-72b",     Q2, 80,  8192,  64,   8,  29568, 152064, 131072},
    {"qwen3-0.6b",      Q3, 28,  1024,  16,   8,   3072, 151936,  32768, .head_dim = 128, .tied = true},
    {"qwen3-1.7b",      Q3, 28,  2048,  16,   8,   6144, 151936,  32768, .head_dim = 128, .tied = true},
    {"qwen3-4b",        Q3, 36,  2560,  32,   8,   9728, 151936,  32768, .head_dim = 128, .tied = true},
    {"qwen3-8b",        Q3, 36,  4096,  32,   8,  12288, 151936,  32768, .head_dim = 128},
    {"qwen3-14b",       Q3, 40,  5120,  40,   8,  17408, 151936,  32768, .head_dim = 128},
    {"qwen3-32b",       Q3, 64,  5120,  64,   8,  25600, 151936,  32768, .head_dim = 128},
    {"qwen3-30b-a3b",   Q3, 48,  2048,  32,   4,    768, 151936,  32768, .head_dim = 128, .moe = {128, 8, 0, 768, 0}},
    {"qwen3-235b-a22b", Q3, 94,  4096,  64,   4,   1536, 151936,  32768, .head_dim = 128, .moe = {128, 8, 0, 1536, 0}},
    /* OpenAI's open mixtures. */
    {"gpt-oss-20b",     L,  24,  2880,  64,   8,   2880, 201088, 131072, .head_dim = 64, .moe = {32, 4, 0, 2880, 0, 3 * 2880}, .more = 64 + 32},
    {"gpt-oss-120b",    L,  36,  2880,  64,   8,   2880, 201088, 131072, .head_dim = 64, .moe = {128, 4, 0, 2880, 0, 3 * 2880}, .more = 64 + 128},
    /* DeepSeek; the extra prediction layer of V3 is left out. */
    {"deepseek-v2",     L,  60,  5120, 128, 128,  12288, 102400, 163840, .head_dim = 128, .moe = {160, 6, 2, 1536, 1}, .latent = {1536, 512, 128, 64, 128}},
    {"deepseek-v3",     L,  61,  7168, 128, 128,  18432, 129280, 163840, .head_dim = 128, .moe = {256, 8, 1, 2048, 3}, .latent = {1536, 512, 128, 64, 128}},
};
/* clang-format on */

enum { PRESET_COUNT = sizeof presets / sizeof *presets };

const char *const *ls_shape_presets(void)
{
    static const char *names[PRESET_COUNT + 1];
    for (size_t i = 0; i < PRESET_COUNT; i++) {
        names[i] = presets[i].name; /* the same from every thread */
    }
    return names;
}

static ls_shape_sizes sizes_of(const preset *p)
{
    ls_shape_sizes sizes = {
        .moe = p->moe, .latent = p->latent, .dropout = p->dropout, .more_layer_vectors = p->more};
    ls_model_config_defaults(p->family, &sizes.config);
    ls_model_config *c = &sizes.config;
    c->layers = p->layers;
    c->width = p->width;
    c->heads = p->heads;
    c->kv_heads = p->kv_heads;
    c->head_dim = p->head_dim ? p->head_dim : p->width / p->heads;
    c->ffn = p->ffn;
    c->vocab = p->vocab;
    c->context = p->context;
    c->qkv_bias = c->qkv_bias || p->more > 0;
    c->output_bias = c->output_bias || p->more > 0;
    c->tied = p->tied || p->family == LS_FAMILY_GPT2;
    return sizes;
}

bool ls_shape_preset(const char *name, ls_shape_sizes *sizes_out, const char **name_out)
{
    for (size_t i = 0; i < PRESET_COUNT; i++) {
        if (ls_names_equal(name, presets[i].name)) {
            *sizes_out = sizes_of(&presets[i]);
            *name_out = presets[i].name;
            return true;
        }
    }
    return false;
}

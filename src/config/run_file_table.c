// SPDX-License-Identifier: Apache-2.0
/* The options of the run file: the only place that defines a key, its default, its range and its
 * meaning. */
#include "config/run_file.h"
#include "config/run_file_hints.h"

#include <stddef.h>

static const char *const families[] = {"gpt2",    "llama",     "mistral", "qwen2", "qwen3",
                                       "mixtral", "qwen3-moe", "auto",    NULL};
static const char *const rope_scaling_kinds[] = {"none", "linear", "llama3", "dynamic", "yarn", NULL};
static const char *const adapter_kinds[] = {"none", "lora", NULL};
static const char *const tokenizer_kinds[] = {"bytes", "file", "train", "model", "auto", NULL};
static const char *const optimizer_kinds[] = {"adamw", NULL};
static const char *const schedule_kinds[] = {"cosine", "linear", "constant", "wsd", NULL};
static const char *const compression_kinds[] = {"none", "bf16", "int8", "topk", NULL};
static const char *const compression_weights[] = {"none", "bf16", "int8", NULL};
static const char *const precisions[] = {"fp32", "bf16", "tf32", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const pipeline_kinds[] = {"1f1b", "interleaved", "zero-bubble", "auto", NULL};
static const char *const recompute_kinds[] = {"none", "selective", "full", NULL};
static const char *const local_moments[] = {"keep", "reset", NULL};
static const char *const weights_dtypes[] = {"bf16", "fp32", NULL};
static const char *const formats[] = {"auto", "text", "prompt_completion", "messages", NULL};
static const char *const loss_on[] = {"assistant", "all", "last", NULL};
static const char *const bad_records[] = {"stop", "skip", NULL};
static const char *const priorities[] = {"low", "normal", "high", NULL};
static const char *const asha_metrics[] = {"val_loss", "loss", NULL};
static const char *const nearness[] = {"island", "node", "leaf", "spine", "cluster", NULL};

#define ROW(key_, type_, field_, default_)                                                                   \
    .key = key_, .type = type_, .offset = offsetof(ls_run_file, field_), .default_text = default_
#define U64(key_, field_, default_, min_, max_)                                                              \
    ROW(key_, LS_OPTION_U64, field_, default_), .min = min_, .max = max_
#define U64_AUTO(key_, field_, min_, max_) U64(key_, field_, "auto", min_, max_), .allow_auto = true
#define F64(key_, field_, default_, min_, max_)                                                              \
    ROW(key_, LS_OPTION_F64, field_, default_), .min = min_, .max = max_
#define F64_AUTO(key_, field_, min_, max_) F64(key_, field_, "auto", min_, max_), .allow_auto = true
#define BOOL(key_, field_, default_)       ROW(key_, LS_OPTION_BOOL, field_, default_)
#define SWITCH(key_, field_)               ROW(key_, LS_OPTION_SWITCH, field_, "auto")
#define STRING(key_, field_)               ROW(key_, LS_OPTION_STRING, field_, "\"\"")
#define CHOICE(key_, field_, default_, choices_)                                                             \
    ROW(key_, LS_OPTION_CHOICE, field_, default_), .choices = choices_
#define MANY              LS_OPTION_U64_MAX
#define IDENTITY          .identity = true
#define IDENTITY_WHEN_SET IDENTITY, .identity_when_set = true

/* clang-format off */
static const ls_option options[] = {
    {STRING("name", name), .help = "name of the run and of its folder; default: the name of the run file"},

    {STRING("model.from", model.from), IDENTITY, .value_name = "DIR", .help = "Hugging Face model directory or Lockstep checkpoint whose weights training starts from; default: random weights"},
    {CHOICE("model.family", model.family, "auto", families), IDENTITY, .help = "model architecture; auto: that of the model named in model.from, otherwise llama"},
    {U64_AUTO("model.layers", model.layers, 1, 1024), IDENTITY, .help = "number of transformer layers; auto: 6"},
    {U64_AUTO("model.heads", model.heads, 1, 1024), IDENTITY, .help = "number of attention heads; auto: 6"},
    {U64_AUTO("model.kv_heads", model.kv_heads, 1, 1024), IDENTITY, .help = "number of key and value heads, a divisor of model.heads; auto: model.heads"},
    {U64_AUTO("model.head_dim", model.head_dim, 1, 1024), IDENTITY, .help = "width of one attention head; auto: model.width / model.heads"},
    {U64_AUTO("model.width", model.width, 1, 1 << 18), IDENTITY, .help = "width of the residual stream; auto: 384"},
    {U64_AUTO("model.ffn", model.ffn, 1, 1 << 20), IDENTITY, .help = "inner width of the MLP; auto: 4 * model.width for gpt2, otherwise 8/3 * model.width rounded up to a multiple of 64"},
    {U64("model.experts", model.experts, "0", 0, 4096), IDENTITY_WHEN_SET, .help = "number of experts in each layer, for mixtral and qwen3-moe; 0: that of the model named in model.from, otherwise 8 in these families and none in the others"},
    {U64("model.experts_per_token", model.experts_per_token, "0", 0, 4096), IDENTITY_WHEN_SET, .help = "number of experts that each token visits, at most model.experts; 0: that of the model named in model.from, otherwise 2 with experts"},
    {U64("model.expert_ffn", model.expert_ffn, "0", 0, 1 << 20), IDENTITY_WHEN_SET, .help = "inner width of one expert; 0: that of the model named in model.from, otherwise model.ffn with experts"},
    {U64_AUTO("model.context", model.context, 1, 1 << 24), IDENTITY, .help = "number of tokens in a training sequence; auto: 256, or for an imported model its context, at most 1024. To exceed the context of an imported model, set model.rope_scaling"},
    {U64_AUTO("model.vocab", model.vocab, 1, 1 << 24), IDENTITY, .help = "size of the vocabulary (number of rows of the embedding table); auto: that of the tokenizer, or of the model named in model.from if that is larger. Rows that are added to that model start as the mean of its rows"},
    {SWITCH("model.tie_embeddings", model.tie_embeddings), IDENTITY, .help = "use the embedding table as the output matrix too (tied embeddings); auto: depends on model.family (yes for gpt2)"},
    {SWITCH("model.qkv_bias", model.qkv_bias), IDENTITY, .help = "add biases to queries, keys and values; auto: depends on model.family (yes for gpt2 and qwen2)"},
    {SWITCH("model.qk_norm", model.qk_norm), IDENTITY, .help = "normalise the query and the key of each attention head; auto: depends on model.family (yes for qwen3 and qwen3-moe)"},
    {F64_AUTO("model.norm_eps", model.norm_eps, 1e-12, 1), IDENTITY, .help = "epsilon of the normalisation layers, which avoids division by zero; auto: 1e-5, or 1e-6 for qwen2, qwen3 and qwen3-moe"},
    {F64_AUTO("model.rope_theta", model.rope_theta, 1, 1e12), IDENTITY, .help = "base of the frequencies of rotary position embeddings; auto: 1e4, or 1e6 for qwen2, qwen3, mixtral and qwen3-moe"},
    {CHOICE("model.rope_scaling.kind", model.rope_scaling_kind, "none", rope_scaling_kinds), IDENTITY, .help = "method that adapts rotary position embeddings to a context longer than the model was trained for; with model.from, none keeps the model's own method, and any other replaces it"},
    {F64_AUTO("model.rope_scaling.factor", model.rope_scaling_factor, 1e-3, 1e6), IDENTITY, .help = "factor by which rotary position scaling lengthens the context of the model; auto: model.context / original_context with model.from, otherwise 1"},
    {F64("model.rope_scaling.low_freq_factor", model.rope_scaling_low_freq_factor, "1", 1e-3, 1e6), IDENTITY, .help = "for llama3 scaling: rotary wavelengths longer than original_context / low_freq_factor are stretched"},
    {F64("model.rope_scaling.high_freq_factor", model.rope_scaling_high_freq_factor, "4", 1e-3, 1e6), IDENTITY, .help = "for llama3 scaling: rotary wavelengths shorter than original_context / high_freq_factor are not stretched"},
    {U64_AUTO("model.rope_scaling.original_context", model.rope_scaling_original_context, 1, 1 << 24), IDENTITY, .help = "for llama3, dynamic and yarn scaling: context of the model before it is lengthened, in tokens; auto: that of the model named in model.from, otherwise 8192"},
    {U64_AUTO("model.sliding_window", model.sliding_window, 0, 1 << 24), IDENTITY, .help = "number of positions that attention looks back (sliding window), for mistral, qwen2, qwen3, mixtral and qwen3-moe; 0: all positions; auto: that of the model named in model.from, otherwise 0"},
    {F64("model.init_std", model.init_std, "0.02", 0, 10), IDENTITY, .help = "standard deviation of the random weights that training starts from"},

    {CHOICE("adapter.kind", adapter.kind, "none", adapter_kinds), IDENTITY_WHEN_SET, .help = "train a small adapter beside the frozen model of model.from, instead of the model itself. lora: low-rank matrices on linear layers"},
    {STRING("adapter.from", adapter.from), IDENTITY_WHEN_SET, .value_name = "DIR", .help = "adapter to train further: a directory written by the PEFT library, or a checkpoint of a run with an adapter; default: a new adapter, which changes nothing until it is trained"},
    {U64("adapter.rank", adapter.rank, "16", 1, 1024), IDENTITY_WHEN_SET, .help = "rank of the adapter's matrices; memory and time grow with it"},
    {F64("adapter.alpha", adapter.alpha, "32", 1e-6, 1e6), IDENTITY_WHEN_SET, .help = "scale of the adapter: its product is multiplied by alpha / rank"},
    {BOOL("adapter.rslora", adapter.rslora, "false"), IDENTITY_WHEN_SET, .help = "multiply the adapter's product by alpha / sqrt(rank) instead of alpha / rank (rsLoRA), which suits high ranks"},
    {F64("adapter.dropout", adapter.dropout, "0", 0, 0.9), IDENTITY_WHEN_SET, .help = "share of the adapter's inputs that are set to zero while training"},
    {ROW("adapter.targets", LS_OPTION_STRINGS, adapter.targets, "[all-linear]"), IDENTITY_WHEN_SET, .value_name = "NAMES", .help = "linear layers that get an adapter: all-linear, names such as [q_proj, v_proj], or patterns such as layers.0.*; in models with experts only those of attention can"},
    {CHOICE("adapter.base", adapter.base, "fp32", ls_base_names), IDENTITY_WHEN_SET, .help = "number format in which the frozen weights of linear layers are kept; the smaller ones round the model: bf16 has 16 bits, int8 has 8, nf4 about 4"},

    {CHOICE("tokenizer.kind", tokenizer.kind, "auto", tokenizer_kinds), IDENTITY, .help = "kind of tokenizer; auto: `file` if tokenizer.file is set, `model` if model.from is set, otherwise `bytes`"},
    {STRING("tokenizer.file", tokenizer.file), .value_name = "FILE", .help = "path of the tokenizer file, a tokenizer.json or tokenizer.model"},
    {U64("tokenizer.vocab", tokenizer.vocab, "4096", 257, 1 << 20), IDENTITY, .help = "number of tokens in the vocabulary to learn; used if tokenizer.kind is `train`"},
    {BOOL("tokenizer.replace", tokenizer.replace, "false"), .help = "with model.from: allow a tokenizer whose ids mean other text than those of the model's own tokenizer, so that the model has to learn its embeddings again"},

    {ROW("data.train", LS_OPTION_WEIGHTED, data.train, "[]"), .help = "files to train on, folders, or patterns such as texts/*.txt, here or in s3://BUCKET; formats: .txt, .jsonl, .json, .csv, .tsv (each also with .gz or .zst), .parquet, and .bin with .idx; a weight for each item sets its share of the training data"},
    {ROW("data.validation", LS_OPTION_WEIGHTED, data.validation, "[]"), .help = "files, folders, or patterns of file names, used for validation only; without weights"},
    {ROW("data.field", LS_OPTION_STRING, data.field, "text"), .value_name = "KEY", .help = "key of an object (.jsonl, .json) or column of a table (.csv, .tsv, .parquet) that holds the document; an item of data.train or data.validation may name another one with its own key `field`"},
    {F64_AUTO("data.validation_fraction", data.validation_fraction, 0, 0.5), IDENTITY, .help = "share of the training data that is set aside for validation; auto: 0.05, or 0 if data.validation is set"},
    {BOOL("data.document_masks", data.document_masks, "false"), IDENTITY, .identity_when_set = true, .help = "let attention see only the text of its own document, and count positions from the document's first token, when a training sequence holds several documents; the last token of a document then has no loss"},
    {CHOICE("data.format", data.format, "auto", formats), .help = "form of the records in .jsonl, .json, .csv, .tsv and .parquet files. text: documents; prompt_completion: prompt and completion, question and answer, or instruction and output; messages: conversations (messages of role and content, or conversations of from and value); auto: what the first record of each file looks like"},
    {ROW("data.template", LS_OPTION_STRING, data.template, "auto"), .value_name = "FILE", .help = "chat template that turns conversations into text: a .jinja file, a tokenizer_config.json, or a folder with one of them; none: no template; auto: that of the model named in model.from, or the one beside tokenizer.file"},
    {STRING("data.template_date", data.template_date), .value_name = "DATE", .help = "date, such as 2026-01-31, for chat templates that print the current date; default: the day on which the run begins"},
    {CHOICE("data.loss_on", data.loss_on, "assistant", loss_on), .help = "tokens of a record that are trained. assistant: every answer of the assistant, or the completion; all: every token; last: the last answer of each conversation"},
    {BOOL("data.packing", data.packing, "true"), .help = "let several records share a training sequence, each with attention and positions of its own; false: one record in each sequence, the rest of which is padding"},
    {STRING("data.prompt_field", data.prompt_field), .value_name = "KEY", .help = "key or column that holds the question, for records whose keys have other names; needs data.completion_field"},
    {STRING("data.completion_field", data.completion_field), .value_name = "KEY", .help = "key or column that holds the answer to the prompt in data.prompt_field"},
    {STRING("data.split_key", data.split_key), .value_name = "KEY", .help = "key or column of records, such as a customer: records with the same value stay together, all trained on or all held out for validation; default: each record is assigned by itself"},
    {STRING("data.split_time", data.split_time), .value_name = "KEY", .help = "key or column of records that holds a time: the latest records are held out for validation"},
    {CHOICE("data.bad_records", data.bad_records, "stop", bad_records), .help = "what happens to records that cannot be used: stop before the run begins and name them, or skip them"},
    {STRING("data.cache_dir", data.cache_dir), .value_name = "DIR", .help = "folder in which tokenised data is stored for later runs; default: $LOCKSTEP_HOME/cache/tokens"},
    {BOOL("data.share_blocks", data.share_blocks, "false"), .help = "let the hosts of a run give each other the blocks of token sets, so that together they fetch each block from the bucket once; false: each host fetches what it reads"},

    {U64_AUTO("train.steps", train.steps, 1, MANY), .help = "length of the run in optimizer steps; auto: from train.tokens or train.epochs, otherwise 1000 steps, or 3 epochs if model.from is set"},
    {U64("train.tokens", train.tokens, "0", 0, MANY), .help = "length of the run in tokens, instead of train.steps; 0: not used"},
    {F64("train.epochs", train.epochs, "0", 0, 1e6), .help = "length of the run in passes over the data, instead of train.steps; 0: not used"},
    {U64("train.global_batch", train.global_batch, "32", 1, 1 << 24), IDENTITY, .help = "number of sequences in each optimizer step"},
    {U64_AUTO("train.micro_batch", train.micro_batch, 1, 1 << 20), IDENTITY, .help = "number of sequences that a rank computes at once, a divisor of train.global_batch / train.leaves; auto: as many as make up to 8192 tokens"},
    {U64_AUTO("train.leaves", train.leaves, 1, 1 << 20), IDENTITY, .help = "number of equal shares (leaves) into which the batch of a step is divided, for the ranks to compute; a divisor of train.global_batch and at least the number of ranks; auto: chosen from the batch and job.max_ranks"},
    {U64("train.local.steps", train.local.steps, "0", 0, 1 << 20), IDENTITY_WHEN_SET, .help = "number of steps that the workers of train.local.workers train apart before their parameters are brought together (DiLoCo); a divisor of train.steps; 0: all steps are made together"},
    {U64("train.local.workers", train.local.workers, "1", 1, 1024), IDENTITY_WHEN_SET, .help = "number of workers that train apart with train.local.steps, each on its own part of every batch; a divisor of train.leaves. Each has its own parameters and optimizer state in memory and in checkpoints; the result does not depend on how many ranks compute them"},
    {F64("train.local.outer_lr", train.local.outer_lr, "0.7", 0, 10), IDENTITY_WHEN_SET, .help = "learning rate of the outer step, which moves the shared parameters towards the mean of the workers' parameters; above 0; 1 without outer_momentum: exactly to the mean"},
    {F64("train.local.outer_momentum", train.local.outer_momentum, "0.9", 0, 0.999), IDENTITY_WHEN_SET, .help = "Nesterov momentum of the outer step"},
    {CHOICE("train.local.moments", train.local.moments, "keep", local_moments), IDENTITY_WHEN_SET, .help = "what becomes of a worker's AdamW moments when a round of train.local.steps begins: keep or reset to zero"},
    {U64("train.local.bits", train.local.bits, "32", 4, 32), IDENTITY_WHEN_SET, .help = "number of bits in which hosts send each number of an outer gradient, 32, 8 or 4. 32: float32; with 8 or 4 the workers' differences and their sum are rounded to whole multiples of a scale for each 256 or 128 numbers, on one host too"},
    {U64("train.local.delay", train.local.delay, "0", 0, 1 << 20), IDENTITY_WHEN_SET, .help = "number of steps between making an outer gradient and applying it, in which workers go on and hosts exchange it; below train.local.steps / train.local.fragments. It is made that many steps before the end of a round; 0: at the end"},
    {U64("train.local.fragments", train.local.fragments, "1", 1, 1024), IDENTITY_WHEN_SET, .help = "number of runs of layers into which the model is cut for outer steps, each with its own, train.local.steps / fragments steps after that of the run before it, so that hosts send less at a time; a divisor of train.local.steps, at most the number of layers; 1: all parameters at once"},
    {ROW("train.freeze", LS_OPTION_STRINGS, train.freeze, "[]"), IDENTITY, .identity_when_set = true, .value_name = "PATTERNS", .help = "names, or patterns of names, of tensors that are not trained, such as [\"*embed*\", layers.0]. These tensors have no gradients and no optimizer state, and checkpoints store them only once"},
    {U64("train.tensor_cut", train.tensor_cut, "1", 1, 64), IDENTITY, .help = "number of partial sums into which row-parallel matrix products are always divided, so that the tensor-parallel degree does not change the result; a divisor of model.kv_heads and of model.ffn (with experts model.expert_ffn), and a power of two where ranks share it"},
    {U64("train.sequence_cut", train.sequence_cut, "1", 1, 8), IDENTITY_WHEN_SET, .help = "number of pieces into which each training sequence is always cut, so that the context-parallel degree does not change the result; a power of two, and model.context a multiple of twice the number"},
    {F64("train.balance_loss", train.balance_loss, "0.01", 0, 100), IDENTITY_WHEN_SET, .help = "coefficient of the loss that keeps the experts of a layer equally busy, computed for each sequence, for models with experts; it is not part of the losses that are shown; 0: none"},
    {U64("train.seed", train.seed, "1337", 0, MANY), IDENTITY, .help = "seed of the initial weights, the order of training samples and all other random numbers"},
    {F64("train.clip_norm", train.clip_norm, "1.0", 0, 1e6), IDENTITY, .help = "largest norm of the gradient; a gradient with a larger norm is scaled down to it; 0: no clipping"},
    {CHOICE("train.precision", train.precision, "fp32", precisions), IDENTITY, .help = "number format of the computation. fp32: float32 everywhere; bf16: activations and the weights they meet in bfloat16, sums and optimizer in float32; tf32: float32 with products rounded to 10 bits. bf16 and tf32 need a GPU"},
    {CHOICE("train.device", train.device, "auto", devices), .help = "where the run computes: cuda for an NVIDIA GPU, or cpu; auto: a GPU if there is one and the run has one rank, else the CPU"},
    {CHOICE("train.recompute", train.recompute, "none", recompute_kinds), .help = "which activations are computed again in the backward pass instead of being kept in memory; this saves memory and does not change the result"},
    {U64("train.audit_every_steps", train.audit_every_steps, "1000", 0, MANY), .help = "number of steps between audits for silent data corruption: one share of the batch (leaf) is computed twice, by two ranks if there are two, and the bits are compared; 0: never"},
    {U64_AUTO("train.hash_every_steps", train.hash_every_steps, 0, MANY), .help = "number of steps between checks for silent data corruption: the state is hashed after an update, and the hash is checked before the next one; 0: never; auto: about every 8192 tokens"},
    {U64_AUTO("train.threads", train.threads, 1, 256), .help = "number of threads per rank (training process); auto: cores / ranks"},
    {CHOICE("train.optimizer.kind", train.optimizer.kind, "adamw", optimizer_kinds), IDENTITY, .help = "optimization algorithm"},
    {F64_AUTO("train.optimizer.lr", train.optimizer.lr, 0, 10), IDENTITY, .help = "highest learning rate of the schedule; auto: 2e-4 with an adapter; otherwise 2e-5 if model.from is set; otherwise 1e-3"},
    {F64("train.optimizer.beta1", train.optimizer.beta1, "0.9", 0, 0.9999999), IDENTITY, .help = "decay rate of the running mean of gradients (first moment)"},
    {F64("train.optimizer.beta2", train.optimizer.beta2, "0.95", 0, 0.9999999), IDENTITY, .help = "decay rate of the running mean of squared gradients (second moment)"},
    {F64("train.optimizer.eps", train.optimizer.eps, "1.0e-8", 1e-30, 1), IDENTITY, .help = "small number that the optimizer adds to the square root of the second moment, to avoid division by zero"},
    {F64("train.optimizer.weight_decay", train.optimizer.weight_decay, "0.1", 0, 10), IDENTITY, .help = "weight decay of matrices; vectors (norms and biases) are never decayed"},
    {CHOICE("train.schedule.kind", train.schedule.kind, "cosine", schedule_kinds), IDENTITY, .help = "shape of the learning rate over time; wsd: warm-up, stable, decay"},
    {U64_AUTO("train.schedule.steps", train.schedule.steps, 1, MANY), IDENTITY, .help = "number of steps that the learning-rate schedule covers; auto: train.steps when the run begins, unchanged if the run is made longer or shorter later"},
    {U64_AUTO("train.schedule.warmup_steps", train.schedule.warmup_steps, 0, MANY), IDENTITY, .help = "number of warm-up steps, in which the learning rate rises linearly; auto: a tenth of train.schedule.steps, at most 100"},
    {F64("train.schedule.final_lr_fraction", train.schedule.final_lr_fraction, "0.1", 0, 1), IDENTITY, .help = "learning rate at the end of the schedule, as a fraction of train.optimizer.lr"},
    {F64("train.schedule.decay_fraction", train.schedule.decay_fraction, "0.2", 0, 1), IDENTITY, .help = "for schedule wsd: fraction of the steps, at the end, in which the learning rate falls"},
    {CHOICE("train.compression.kind", train.compression.kind, "none", compression_kinds), IDENTITY_WHEN_SET, .help = "how gradients are packed before they are added up, which saves time between hosts with slow links and changes the result a little; what is lost is added to the gradients of the next step. bf16: 2 bytes per number; int8: 1 byte; topk: the largest numbers only, of the update that AdamW makes of each group's gradient. In a run without slow links it only costs time"},
    {F64("train.compression.ratio", train.compression.ratio, "0.01", 0.001, 0.5), IDENTITY_WHEN_SET, .help = "for compression topk: share of the gradient's numbers that is sent; during train.schedule.warmup_steps a larger share is"},
    {U64_AUTO("train.compression.groups", train.compression.groups, 1, LS_COMPRESSION_GROUPS_MAX), IDENTITY_WHEN_SET, .help = "number of groups of leaves whose gradients are packed, so that the number of ranks and hosts does not change the result; train.leaves divided by it must be a power of two, and most is saved if each host has whole groups. Memory grows with each group by twice the size of the weights, with topk by six times, and checkpoints by half of that; auto: the fewest from 4 on that train.leaves allows"},
    {CHOICE("train.compression.weights", train.compression.weights, "none", compression_weights), IDENTITY_WHEN_SET, .help = "with train.compression.kind: what the owner of a part of the gradient sends back. none: the sum, packed as kind says, and each host makes the whole update; bf16 or int8: the owner alone updates its part, as with ZeRO stage 1, and sends by how much the weights changed, in 2 or 1 bytes per number; what is lost is added to the next change"},

    {U64_AUTO("parallel.ranks", parallel.ranks, 1, 1 << 20), .help = "number of processes that compute, at most train.leaves times the degrees below; auto: what parallel.data and the degrees need; if a degree is auto, the fastest number on this machine"},
    {U64_AUTO("parallel.data", parallel.data, 1, 1 << 20), .help = "data-parallel degree: number of ranks that each compute a different share of the batch; auto: parallel.ranks"},
    {U64("parallel.tensor", parallel.tensor, "1", 1, 64), .allow_auto = true, .help = "tensor-parallel degree: number of ranks that each layer is divided between; a divisor of train.tensor_cut; auto: the fastest by this machine's calibration"},
    {U64("parallel.context", parallel.context, "1", 1, 8), .allow_auto = true, .help = "context-parallel degree: number of ranks that each training sequence is divided between; a divisor of train.sequence_cut; auto: as for parallel.tensor"},
    {U64("parallel.pipeline", parallel.pipeline, "1", 1, 1024), .allow_auto = true, .help = "number of pipeline stages: groups of consecutive layers that different ranks compute; at most model.layers; auto: as for parallel.tensor"},
    {U64("parallel.expert", parallel.expert, "1", 1, 8), .allow_auto = true, .help = "expert-parallel degree: number of ranks that the experts of each layer are divided between, each with leaves of its own; a power of two that divides model.experts; auto: as for parallel.tensor"},
    {CHOICE("parallel.schedule", parallel.schedule, "1f1b", pipeline_kinds), .help = "order in which pipeline stages compute their micro-batches. 1f1b: one forward, one backward; interleaved: the same with two groups of layers per stage, which halves the time that stages wait and sends twice as much; zero-bubble: gradients of weights fill the time in which stages would wait, for more memory; auto: as for parallel.tensor"},
    {U64("parallel.zero", parallel.zero, "1", 0, 3), .help = "ZeRO stage: what is sharded over data-parallel ranks (0 nothing, 1 optimizer state, 2 also gradients, 3 also weights)"},
    {BOOL("parallel.shadow", parallel.shadow, "true"), .help = "for runs on several hosts with ZeRO stage 1 to 3: each host also keeps the shards of its neighbour up to date, so that losing one host costs no step"},

    {U64("checkpoint.every_steps", checkpoint.every_steps, "200", 0, MANY), .allow_auto = true, .help = "number of steps between checkpoints; 0: save only at the end and when the run is stopped; auto: chosen from the cost of a checkpoint and how often the run has failed"},
    {SWITCH("checkpoint.async", checkpoint.async), .help = "copy the state in memory and write checkpoints from the copy while training continues; auto: yes if memory allows"},
    {U64("checkpoint.keep_last", checkpoint.keep_last, "3", 1, 1 << 20), .help = "number of newest checkpoints to keep"},
    {U64("checkpoint.keep_best", checkpoint.keep_best, "1", 0, 1 << 20), .help = "number of checkpoints with the lowest validation loss to keep in addition to the newest ones; only checkpoints of steps that are also evaluated (eval.every_steps) are compared"},
    {U64("checkpoint.keep_every", checkpoint.keep_every, "0", 0, MANY), .help = "also keep checkpoints whose step is a multiple of this number; 0: keep none for that reason"},
    {F64("checkpoint.budget", checkpoint.budget, "0", 0, 1e6), .value_name = "USD", .help = "most that the checkpoints in the run directory may cost a month: the oldest ones are removed beyond it, also those that the settings above keep, but never the newest one, pinned ones and snapshots of the weights; 0: no limit"},
    {F64_AUTO("checkpoint.price", checkpoint.price, 1e-4, 1000), .value_name = "USD", .help = "price of storing a GB for a month in the run directory, for checkpoint.budget; auto: that of the queue (money.storage in config.yaml)"},
    {U64("checkpoint.weights_every_steps", checkpoint.weights_every_steps, "0", 0, MANY), .help = "number of steps between snapshots of the weights alone (RUN/checkpoints/weights/STEP), for use with the commands sample, eval and export, and with the Python library transformers; 0: never"},
    {CHOICE("checkpoint.weights_dtype", checkpoint.weights_dtype, "bf16", weights_dtypes), .help = "number format of snapshots of the weights"},
    {U64("checkpoint.weights_keep_last", checkpoint.weights_keep_last, "0", 0, 1 << 20), .help = "number of newest snapshots of the weights to keep; 0: all"},
    {STRING("checkpoint.mirror", checkpoint.mirror), .value_name = "ADDRESS", .help = "second place for checkpoints, s3://BUCKET/PREFIX or a folder, that each one is copied to while training continues; a run whose directory has no checkpoint is brought back from there. A place of its own for each run; \"\": none"},
    {U64("checkpoint.mirror_keep_last", checkpoint.mirror_keep_last, "3", 1, 1 << 20), .help = "number of newest checkpoints to keep in the mirror, in addition to those that checkpoint.keep_best and checkpoint.keep_every name"},
    {ROW("checkpoint.mirror_keep_for", LS_OPTION_DURATION, checkpoint.mirror_keep_for_s, "0"), .min = 0, .max = 1e9, .unit_needed = true, .help = "keep every checkpoint in the mirror for at least this time, such as 7d; 0: no least time"},
    {F64("checkpoint.mirror_budget", checkpoint.mirror_budget, "0", 0, 1e6), .value_name = "USD", .help = "most that the checkpoints in the mirror may cost a month: the oldest ones are removed beyond it, also those that the other settings keep, but never the newest one; 0: no limit"},
    {F64("checkpoint.mirror_price", checkpoint.mirror_price, "0.023", 1e-4, 1000), .value_name = "USD", .help = "price of storing a GB for a month in the mirror, for checkpoint.mirror_budget; the default is that of Amazon's standard storage"},

    {U64("eval.every_steps", eval.every_steps, "200", 0, MANY), .help = "number of steps between evaluations; 0: evaluate only at the end"},
    {U64("eval.batches", eval.batches, "16", 0, MANY), .help = "largest number of batches of train.global_batch sequences per evaluation; 0: all validation data"},
    {U64("eval.patience", eval.patience, "0", 0, 1 << 20), .help = "end the run early after this number of evaluations in a row (made every eval.every_steps steps) without a new lowest validation loss; a checkpoint is saved at each new lowest loss; 0: never end early"},
    {F64("eval.min_delta", eval.min_delta, "0", 0, 100), .help = "smallest decrease of the validation loss, in nats per token, that eval.patience counts as an improvement"},

    {U64("sample.every_steps", sample.every_steps, "0", 0, MANY), .help = "number of steps between text samples that the model writes during training; 0: never"},
    {STRING("sample.prompt", sample.prompt), .help = "prompt of the text samples, which the model continues"},
    {U64("sample.max_tokens", sample.max_tokens, "128", 1, 1 << 24), .help = "number of tokens to generate in each text sample"},
    {F64("sample.temperature", sample.temperature, "0.8", 0, 100), .help = "sampling temperature; 0: always the most likely token"},
    {U64("sample.top_k", sample.top_k, "0", 0, 1 << 24), .help = "sample from the k most likely tokens only; 0: from all"},
    {F64("sample.top_p", sample.top_p, "1", 0, 1), .help = "sample from the most likely tokens that together have this probability"},

    {U64("log.every_steps", log.every_steps, "10", 1, MANY), .help = "number of steps between progress lines when the output is not a terminal"},
    {BOOL("log.tensorboard", log.tensorboard, "true"), .help = "write the metrics of the run as TensorBoard event files"},

    {BOOL("alerts.not_finite", alerts.not_finite, "true"), .help = "alert when a loss or a gradient is not finite (the run then ends)"},
    {F64("alerts.loss_spike", alerts.loss_spike, "0", 0, 1e6), .help = "alert when the loss is above the mean of the last steps by this many times their usual distance from it, such as 8; 0: never"},
    {ROW("alerts.stall", LS_OPTION_DURATION, alerts.stall_s, "10m"), .min = 0, .max = 1e9, .help = "alert when no step has ended for this long; 0: never"},
    {F64("alerts.utilisation", alerts.utilisation, "0.7", 0, 1), .help = "share of the time that the run should spend computing; below it for as long as alerts.utilisation_for says there is an alert"},
    {ROW("alerts.utilisation_for", LS_OPTION_DURATION, alerts.utilisation_for_s, "0"), .min = 0, .max = 1e9, .help = "time over which alerts.utilisation is measured, such as 10m; 0: never"},
    {ROW("alerts.disk", LS_OPTION_BYTES, alerts.disk_bytes, "1GiB"), .min = 0, .max = 1e15, .help = "alert when the disk of the run has less space left than this; 0: never"},
    {BOOL("alerts.lost_ranks", alerts.lost_ranks, "true"), .help = "alert when a rank is lost"},

    {BOOL("registry.add", registry.add, "true"), .help = "add the model of the finished run to the registry ('lockstep registry ls'), with its run file, data and base"},
    {STRING("registry.name", registry.name), .value_name = "NAME", .help = "name of the model in the registry; default: the name of the run"},
    {BOOL("registry.store", registry.store, "false"), .help = "keep the bytes of the newest checkpoint in the registry; false: the entry refers to the run directory"},
    {STRING("registry.address", registry.address), .value_name = "ADDRESS", .help = "the registry, a folder or s3://BUCKET/PREFIX; default: LOCKSTEP_REGISTRY, or registry/ in LOCKSTEP_HOME"},

    {ROW("job.command", LS_OPTION_STRINGS, job.command, "[]"), .value_name = "WORDS", .help = "program and arguments that the queue starts once per rank instead of training, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set; model, data and train then have no effect"},
    {STRING("job.image", job.image), .value_name = "IMAGE", .help = "container image in which the program of job.command runs, such as docker.io/pytorch/pytorch:latest; the machine needs podman, docker, apptainer or singularity. The current folder is the same inside and outside. Default: no container"},
    {ROW("job.image_options", LS_OPTION_STRINGS, job.image_options, "[]"), .value_name = "OPTIONS", .help = "further options for the container tool, such as [--volume=/data:/data]"},
    {ROW("job.metrics", LS_OPTION_STRINGS, job.metrics, "[]"), .value_name = "FILES", .help = "files to which the program of job.command writes its metrics, shown while they grow, such as [tb/*.tfevents.*, logs/*.jsonl]: event files of TensorBoard, and text with lines of JSON or of name=value. Names are relative to the folder of the job, only the last part of a name may hold * and ?, and stdout is what the program prints"},
    {STRING("job.account", job.account), .help = "account to which the queue charges the devices that the job uses; default: your own account"},
    {CHOICE("job.priority", job.priority, "normal", priorities), .help = "priority of the job in the queue"},
    {U64("job.min_ranks", job.min_ranks, "1", 1, 1 << 20), .help = "smallest number of ranks the job may be shrunk to"},
    {U64_AUTO("job.max_ranks", job.max_ranks, 1, 1 << 20), .help = "largest number of ranks the job can use; auto: 8, or parallel.ranks if that is more"},
    {BOOL("job.elastic", job.elastic, "false"), .help = "let the queue start the job with fewer ranks (down to min_ranks) and change their number while it runs (up to max_ranks); the results stay the same, bit for bit. Every rank is then a separate process, even a single one, so that more can join"},
    {U64("job.max_replacements", job.max_replacements, "16", 0, 1 << 20), .help = "number of lost ranks that may be replaced (on several hosts: per host, including attempts to bring a lost host back); after that, the run continues with one rank fewer for each further loss"},
    {BOOL("job.spot", job.spot, "false"), .help = "allow the job to run on machines that may be taken away at short notice (spot instances)"},
    {ROW("job.notice", LS_OPTION_STRINGS, job.notice, "[]"), .value_name = "NAMES", .help = "sources of preemption notices to watch: aws, gcp, azure, file. On a notice the run writes a checkpoint and exits with code 75. []: watch none; with job.spot, however, watch the cloud that responds"},
    {STRING("job.notice_file", job.notice_file), .value_name = "FILE", .help = "file whose appearance is a preemption notice; it may contain the number of seconds left. Default: the path in the environment variable LOCKSTEP_NOTICE_FILE, if it is set"},
    {ROW("job.notice_poll", LS_OPTION_DURATION, job.notice_poll_s, "2s"), .min = 0.05, .max = 3600, .help = "time between two requests to a cloud's metadata service for a preemption notice"},
    {ROW("job.time_limit", LS_OPTION_DURATION, job.time_limit_s, "0"), .min = 0, .max = 1e9, .help = "longest run time of the job, such as 90s, 1h30m or 2d; after that the job is asked to end; 0: no limit"},
    {F64_AUTO("job.max_cost", job.max_cost_usd, 0.01, 1e9), .value_name = "USD", .help = "largest cost of the job in USD, all its starts together; when it is reached, the run saves and ends with exit code 75, its job is held, and both continue, with the same bits, once the cap is raised ('lockstep change JOB --max-cost USD'); auto: no cap"},
    {F64_AUTO("job.price", job.price_usd, 0.000001, 1e9), .value_name = "USD", .help = "price in USD of one device for one hour, for a run that 'lockstep train' starts outside the queue; the queue uses its own price (money.price in config.yaml); auto: not known"},
    {ROW("job.lease", LS_OPTION_DURATION, job.lease_s, "0"), .min = 0, .max = 1e6, .help = "how long ranks, and agents on other hosts, wait for `lockstep train` to be run again after it died; 0: they end when it dies"},
    {ROW("job.node_lease", LS_OPTION_DURATION, job.node_lease_s, "1s"), .min = 0.1, .max = 3600, .help = "in a run on several hosts: time without a sign of life after which a host counts as lost"},
    {ROW("job.hang_timeout", LS_OPTION_DURATION, job.hang_timeout_s, "60s"), .min = 0, .max = 1e9, .help = "time after which a rank that others wait for and that makes no progress is killed, and its work is taken over; 0: never"},
    {BOOL("job.hold", job.hold, "false"), .help = "keep the job waiting in the queue until `lockstep release` releases it"},
    {ROW("job.after", LS_OPTION_STRINGS, job.after, "[]"), .value_name = "JOBS", .help = "numbers of jobs that must succeed before this one starts; if one of them fails, this job fails too"},
    {BOOL("job.after_any", job.after_any, "false"), .help = "start the job after the jobs named in job.after have ended, even if they failed"},
    {ROW("job.begin", LS_OPTION_DURATION, job.begin_s, "0"), .min = 0, .max = 1e9, .help = "earliest start of the job, as a time after its submission"},
    {ROW("job.deadline", LS_OPTION_DURATION, job.deadline_s, "0"), .min = 0, .max = 1e9, .help = "time after submission by which the job should have ended; its place in the queue rises as the deadline approaches; 0: no deadline"},
    {U64("job.cpus", job.cpus, "0", 0, 4096), .help = "number of cores that each rank needs, counted against quotas and the cores of nodes, and passed on as OMP_NUM_THREADS; 0: not counted"},
    {ROW("job.memory", LS_OPTION_BYTES, job.memory_bytes, "0"), .min = 0, .max = 1e15, .help = "host memory that each rank needs, counted against quotas and the memory of nodes; enforced where the daemon may use the memory controller of control groups; 0: not counted"},
    {U64("job.ranks_per_node", job.ranks_per_node, "0", 0, 4096), .help = "exact number of ranks to place on each node; 0: any number"},
    {CHOICE("job.placement.required", job.required, "cluster", nearness), .help = "all ranks must be placed within one such part of the cluster: an island (directly linked devices), a node, a leaf or spine (the nodes below one network switch), or the whole cluster; the job waits until they fit"},
    {CHOICE("job.placement.preferred", job.preferred, "cluster", nearness), .help = "all ranks are placed within one such part of the cluster if possible; the parts are those of job.placement.required"},
    {STRING("job.group.name", job.group), .value_name = "NAME", .help = "name of the group that the job belongs to; jobs of one account in the same group share the limit job.group.running_max"},
    {U64("job.group.running_max", job.group_running_max, "0", 0, 1 << 20), .help = "largest number of jobs of the group that run at the same time; 0: no limit"},
    {SWITCH("job.restartable", job.restartable), .help = "allow the job to be stopped for other jobs and started again later; a training run resumes where it was. false: the job is started once, whatever becomes of it. auto: true for training; a job.command is not stopped for other jobs, but started again after a failure that it did not cause (job.restarts_max)"},
    {BOOL("job.interactive", job.interactive, "false"), .help = "the program of job.command is used by a person, as a shell or a notebook is: when neither its devices nor its terminal were used for a while (idle.interactive in config.yaml), it ends and gives its devices back; the job is held, and starts anew with 'lockstep release' or by Enter in its terminal. Set by 'lockstep submit --pty'"},
    {U64("job.restarts_max", job.restarts_max, "3", 0, 1 << 20), .help = "how many times the job may be restarted after failures that it did not cause (a node or a process of the queue died)"},
    {ROW("job.grace", LS_OPTION_DURATION, job.grace_s, "30s"), .min = 0, .max = 86400, .help = "time that the job has to save its state, from the signal to end until SIGKILL; it also applies at job.time_limit"},
    {ROW("job.log_max", LS_OPTION_BYTES, job.log_bytes_max, "1GiB"), .min = 65536, .max = 1e15, .help = "largest size of the job's log, all of its restarts together; beyond it the beginning and the end are kept, with a line in between that says how many bytes were dropped. With several ranks, the logs of the single ranks may together have this size again. Slurm jobs are not limited"},
    {ROW("job.environment", LS_OPTION_STRINGS, job.environment, "[]"), .value_name = "NAME=VALUE", .help = "environment variables of the job's processes, added to those of the submitter"},
    {ROW("job.share", LS_OPTION_STRINGS, job.share, "[]"), .value_name = "USERS", .help = "users who have the owner's rights on the job: they can see its name, file and log, change it and stop it"},

    {U64("asha.first", asha.first, "0", 0, MANY), .help = "number of steps after which the jobs of a sweep are compared for the first time; the best of them train on to asha.eta times as many steps, and so on, and the others stop. The learning-rate schedule is that of the whole run. 0: all jobs train to their end"},
    {U64("asha.eta", asha.eta, "4", 2, 64), .help = "one of so many jobs of a sweep trains on each time they are compared"},
    {CHOICE("asha.metric", asha.metric, "val_loss", asha_metrics), .help = "what the jobs of a sweep are compared by; the lowest is the best. loss: mean training loss of the last steps, at most 20"},
    {U64("asha.budget_steps", asha.budget_steps, "0", 0, MANY), .help = "largest number of steps that all jobs of a sweep with asha.first compute together; 0: no limit"},
    {U64("asha.failures_max", asha.failures_max, "3", 0, 1 << 20), .help = "a sweep is stopped when so many of its jobs, one after the other, failed alike; losses that are not finite do not count. 0: it is never stopped"},
};
/* clang-format on */

static const ls_option_section sections[] = {
    {"model", "the model to train"},
    {"model.rope_scaling", "for contexts longer than the model was trained for"},
    {"adapter", "training an adapter (LoRA) instead of the whole model"},
    {"tokenizer", "how text becomes token ids"},
    {"data", "training and validation data"},
    {"train", "length of the run, batch, leaves, precision"},
    {"train.optimizer", "how gradients become new weights"},
    {"train.schedule", "the learning rate over time"},
    {"train.compression", "gradients packed for slow links"},
    {"parallel",
     "how the work is divided between processes; never changes the result; the word auto instead of "
     "these keys: as is fastest on this machine",
     .allow_auto = true},
    {"checkpoint", "checkpoints to resume from"},
    {"eval", "evaluation on validation data"},
    {"sample", "text samples that the model writes during training"},
    {"log", "progress lines and TensorBoard files"},
    {"alerts", "what a person is told at once, on the terminal, in events.jsonl and by the queue"},
    {"registry", "the entry of the finished model in the registry"},
    {"job", "settings of the queue and of recovery"},
    {"job.placement", "how close to each other the ranks are placed"},
    {"job.group", "limit on how many jobs of a group run at once"},
    {"asha", "when `lockstep sweep` stops jobs that are worse than others"},
};

const ls_option_table *ls_run_file_table(void)
{
    static const ls_option_table table = {
        .options = options,
        .count = sizeof options / sizeof options[0],
        .sections = sections,
        .section_count = sizeof sections / sizeof sections[0],
        .hints = ls_run_file_hints,
    };
    return &table;
}

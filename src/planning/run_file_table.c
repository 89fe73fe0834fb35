// SPDX-License-Identifier: Apache-2.0
/* The options of the run file: the only place where a key, its default, its range and its meaning are
 * written. */
#include "planning/run_file.h"

#include <stddef.h>

static const char *const families[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "auto", NULL};
static const char *const rope_scaling_kinds[] = {"none", "linear", "llama3", NULL};
static const char *const tokenizer_kinds[] = {"bytes", "file", "train", "model", "auto", NULL};
static const char *const optimizer_kinds[] = {"adamw", NULL};
static const char *const schedule_kinds[] = {"cosine", "linear", "constant", "wsd", NULL};
static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char *const recompute_kinds[] = {"none", "selective", "full", NULL};
static const char *const weights_dtypes[] = {"bf16", "fp32", NULL};
static const char *const priorities[] = {"low", "normal", "high", NULL};
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
#define MANY     LS_OPTION_U64_MAX
#define IDENTITY .identity = true

/* clang-format off */
static const ls_option options[] = {
    {STRING("name", name), .help = "name of the run and of its folder; default: the file's name"},

    {STRING("model.from", model.from), IDENTITY, .value_name = "DIR", .help = "start from this Hugging Face directory or checkpoint"},
    {CHOICE("model.family", model.family, "auto", families), IDENTITY, .help = "architecture; auto: llama, or that of model.from"},
    {U64_AUTO("model.layers", model.layers, 1, 1024), IDENTITY, .help = "transformer layers; auto: 6"},
    {U64_AUTO("model.heads", model.heads, 1, 1024), IDENTITY, .help = "attention heads; auto: 6"},
    {U64_AUTO("model.kv_heads", model.kv_heads, 1, 1024), IDENTITY, .help = "key and value heads, divides heads; auto: heads"},
    {U64_AUTO("model.head_dim", model.head_dim, 1, 1024), IDENTITY, .help = "width of one head; auto: width / heads"},
    {U64_AUTO("model.width", model.width, 1, 1 << 18), IDENTITY, .help = "width of the residual stream; auto: 384"},
    {U64_AUTO("model.ffn", model.ffn, 1, 1 << 20), IDENTITY, .help = "inner width of the MLP; auto: 4 * width for gpt2, else 8/3 * width rounded up to 64"},
    {U64_AUTO("model.context", model.context, 1, 1 << 24), IDENTITY, .help = "tokens in a training sequence; auto: 256, or the imported model's up to 1024"},
    {U64_AUTO("model.vocab", model.vocab, 1, 1 << 24), IDENTITY, .help = "rows of the embedding table; auto: the tokenizer's"},
    {SWITCH("model.tie_embeddings", model.tie_embeddings), IDENTITY, .help = "use the embedding table as output matrix; auto: by family (gpt2 yes)"},
    {SWITCH("model.qkv_bias", model.qkv_bias), IDENTITY, .help = "biases on query, key and value; auto: by family (gpt2, qwen2 yes)"},
    {SWITCH("model.qk_norm", model.qk_norm), IDENTITY, .help = "norm of each query and key head; auto: by family (qwen3 yes)"},
    {F64_AUTO("model.norm_eps", model.norm_eps, 1e-12, 1), IDENTITY, .help = "epsilon of the norms; auto: 1e-5, qwen 1e-6"},
    {F64_AUTO("model.rope_theta", model.rope_theta, 1, 1e12), IDENTITY, .help = "base of the rotary frequencies; auto: 1e4, qwen 1e6"},
    {CHOICE("model.rope_scaling.kind", model.rope_scaling_kind, "none", rope_scaling_kinds), IDENTITY, .help = "how rotary positions are stretched"},
    {F64("model.rope_scaling.factor", model.rope_scaling_factor, "1", 1e-3, 1e6), IDENTITY, .help = "by how much"},
    {F64("model.rope_scaling.low_freq_factor", model.rope_scaling_low_freq_factor, "1", 1e-3, 1e6), IDENTITY, .help = "llama3: wavelengths above original_context / this are stretched"},
    {F64("model.rope_scaling.high_freq_factor", model.rope_scaling_high_freq_factor, "4", 1e-3, 1e6), IDENTITY, .help = "llama3: wavelengths below original_context / this are kept"},
    {U64("model.rope_scaling.original_context", model.rope_scaling_original_context, "8192", 1, 1 << 24), IDENTITY, .help = "llama3: context before stretching"},
    {U64("model.sliding_window", model.sliding_window, "0", 0, 1 << 24), IDENTITY, .help = "positions that attention looks back; 0: all"},
    {F64("model.init_std", model.init_std, "0.02", 0, 10), IDENTITY, .help = "standard deviation of fresh weights"},

    {CHOICE("tokenizer.kind", tokenizer.kind, "auto", tokenizer_kinds), IDENTITY, .help = "auto: file when tokenizer.file is set, model when model.from is, else bytes"},
    {STRING("tokenizer.file", tokenizer.file), .value_name = "FILE", .help = "tokenizer.json or tokenizer.model"},
    {U64("tokenizer.vocab", tokenizer.vocab, "4096", 257, 1 << 20), IDENTITY, .help = "kind train: ids to train"},

    {ROW("data.train", LS_OPTION_WEIGHTED, data.train, "[]"), .help = "files or patterns: .txt, .jsonl, .bin/.idx; weights make a mixture"},
    {ROW("data.validation", LS_OPTION_STRINGS, data.validation, "[]"), .value_name = "PATHS", .help = "files that are validation data as a whole"},
    {F64_AUTO("data.validation_fraction", data.validation_fraction, 0, 0.5), IDENTITY, .help = "share of the training data kept for validation; auto: 0.05, 0 with data.validation"},
    {STRING("data.cache_dir", data.cache_dir), .value_name = "DIR", .help = "folder for tokenised data; default: under $LOCKSTEP_HOME"},

    {U64_AUTO("train.steps", train.steps, 1, MANY), .help = "optimizer steps; auto: from tokens or epochs, else 1000"},
    {U64("train.tokens", train.tokens, "0", 0, MANY), .help = "length in tokens instead of steps; 0: not used"},
    {F64("train.epochs", train.epochs, "0", 0, 1e6), .help = "length in passes over the data instead of steps; 0: not used"},
    {U64("train.global_batch", train.global_batch, "32", 1, 1 << 24), IDENTITY, .help = "sequences per step"},
    {U64_AUTO("train.micro_batch", train.micro_batch, 1, 1 << 20), IDENTITY, .help = "sequences computed at once, divides global_batch / leaves; auto: up to 8192 tokens"},
    {U64_AUTO("train.leaves", train.leaves, 1, 1 << 20), IDENTITY, .help = "parts a step is cut into, divides global_batch, at least as many as ranks; auto: from batch and job.max_ranks"},
    {ROW("train.freeze", LS_OPTION_STRINGS, train.freeze, "[]"), IDENTITY, .identity_when_set = true, .value_name = "PATTERNS", .help = "tensors that are not trained, as patterns over their names: [\"*embed*\", layers.0]; they take no gradients and no optimizer state, and checkpoints store them once"},
    {U64("train.tensor_cut", train.tensor_cut, "1", 1, 64), IDENTITY, .help = "canonical tensor-parallel degree of row-parallel sums"},
    {U64("train.seed", train.seed, "1337", 0, MANY), IDENTITY, .help = "of weights, sample order and everything else random"},
    {F64("train.clip_norm", train.clip_norm, "1.0", 0, 1e6), IDENTITY, .help = "largest gradient norm; 0: no clipping"},
    {CHOICE("train.precision", train.precision, "fp32", precisions), IDENTITY, .help = "number format of the computation; bf16 needs a GPU"},
    {CHOICE("train.recompute", train.recompute, "none", recompute_kinds), .help = "activations computed again instead of kept: less memory, same bits"},
    {U64("train.audit_every_steps", train.audit_every_steps, "1000", 0, MANY), .help = "steps between leaf audits: one leaf is computed twice, by two ranks where there are two, and compared by bits; 0: never"},
    {U64_AUTO("train.hash_every_steps", train.hash_every_steps, 0, MANY), .help = "steps between hashes of the state, compared before the next update; 0: never; auto: as many as have 8192 tokens"},
    {U64_AUTO("train.threads", train.threads, 1, 256), .help = "threads per rank; auto: cores / ranks"},
    {CHOICE("train.optimizer.kind", train.optimizer.kind, "adamw", optimizer_kinds), IDENTITY, .help = "optimizer"},
    {F64("train.optimizer.lr", train.optimizer.lr, "1.0e-3", 0, 10), IDENTITY, .help = "highest learning rate"},
    {F64("train.optimizer.beta1", train.optimizer.beta1, "0.9", 0, 0.9999999), IDENTITY, .help = "decay of the first moment"},
    {F64("train.optimizer.beta2", train.optimizer.beta2, "0.95", 0, 0.9999999), IDENTITY, .help = "decay of the second moment"},
    {F64("train.optimizer.eps", train.optimizer.eps, "1.0e-8", 1e-30, 1), IDENTITY, .help = "added to the root of the second moment"},
    {F64("train.optimizer.weight_decay", train.optimizer.weight_decay, "0.1", 0, 10), IDENTITY, .help = "of matrices; vectors are not decayed"},
    {CHOICE("train.schedule.kind", train.schedule.kind, "cosine", schedule_kinds), IDENTITY, .help = "course of the learning rate"},
    {U64_AUTO("train.schedule.steps", train.schedule.steps, 1, MANY), IDENTITY, .help = "steps the schedule is laid over; auto: train.steps"},
    {U64_AUTO("train.schedule.warmup_steps", train.schedule.warmup_steps, 0, MANY), IDENTITY, .help = "steps of linear rise; auto: a tenth of the steps, at most 100"},
    {F64("train.schedule.final_lr_fraction", train.schedule.final_lr_fraction, "0.1", 0, 1), IDENTITY, .help = "last learning rate as a share of lr"},
    {F64("train.schedule.decay_fraction", train.schedule.decay_fraction, "0.2", 0, 1), IDENTITY, .help = "wsd: share of the steps in which the rate falls"},

    {U64_AUTO("parallel.ranks", parallel.ranks, 1, 1 << 20), .help = "processes, at most train.leaves; auto: one per GPU, one on a CPU"},
    {U64_AUTO("parallel.data", parallel.data, 1, 1 << 20), .help = "data-parallel degree; auto: ranks / (tensor * pipeline)"},
    {U64("parallel.tensor", parallel.tensor, "1", 1, 64), .help = "tensor-parallel degree"},
    {U64("parallel.pipeline", parallel.pipeline, "1", 1, 1024), .help = "pipeline stages"},
    {U64("parallel.zero", parallel.zero, "1", 0, 3), .help = "ZeRO stage: what is sharded over data-parallel ranks"},
    {BOOL("parallel.shadow", parallel.shadow, "true"), .help = "on several hosts with zero 1 to 3, each host keeps its neighbour's shards up to date as well: the loss of one costs no step"},

    {U64("checkpoint.every_steps", checkpoint.every_steps, "200", 0, MANY), .allow_auto = true, .help = "steps between checkpoints; 0: only at the end and when stopped; auto: by the clock, from what one costs and how often the run was lost"},
    {SWITCH("checkpoint.async", checkpoint.async), .help = "write checkpoints while steps go on, from a second copy of the state; auto: when memory allows"},
    {U64("checkpoint.keep_last", checkpoint.keep_last, "3", 1, 1 << 20), .help = "newest checkpoints kept"},
    {U64("checkpoint.keep_best", checkpoint.keep_best, "1", 0, 1 << 20), .help = "best ones by validation loss kept besides"},
    {U64("checkpoint.keep_every", checkpoint.keep_every, "0", 0, MANY), .help = "those whose step is a multiple of this are kept besides; 0: none"},
    {U64("checkpoint.weights_every_steps", checkpoint.weights_every_steps, "0", 0, MANY), .help = "steps between snapshots of the weights alone, RUN/checkpoints/weights/STEP, which sample, eval, export and transformers take; 0: never"},
    {CHOICE("checkpoint.weights_dtype", checkpoint.weights_dtype, "bf16", weights_dtypes), .help = "number format of those snapshots"},
    {U64("checkpoint.weights_keep_last", checkpoint.weights_keep_last, "0", 0, 1 << 20), .help = "newest of those snapshots kept; 0: all"},

    {U64("eval.every_steps", eval.every_steps, "200", 0, MANY), .help = "steps between evaluations; 0: only at the end, and where checkpoint.keep_best compares checkpoints"},
    {U64("eval.batches", eval.batches, "16", 0, MANY), .help = "global batches per evaluation at most; 0: all validation data"},

    {U64("sample.every_steps", sample.every_steps, "0", 0, MANY), .help = "steps between samples of text; 0: never"},
    {STRING("sample.prompt", sample.prompt), .help = "what the sample begins with"},
    {U64("sample.max_tokens", sample.max_tokens, "128", 1, 1 << 24), .help = "tokens to generate"},
    {F64("sample.temperature", sample.temperature, "0.8", 0, 100), .help = "0: always the likeliest token"},
    {U64("sample.top_k", sample.top_k, "0", 0, 1 << 24), .help = "only the k likeliest tokens; 0: all"},
    {F64("sample.top_p", sample.top_p, "1", 0, 1), .help = "only the likeliest tokens that together have this probability"},

    {U64("log.every_steps", log.every_steps, "10", 1, MANY), .help = "steps between progress lines where output is no terminal"},
    {BOOL("log.tensorboard", log.tensorboard, "true"), .help = "write TensorBoard event files"},

    {ROW("job.command", LS_OPTION_STRINGS, job.command, "[]"), .value_name = "WORDS", .help = "a program and its arguments: the queue starts it once per rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set, instead of training; model, data and train then mean nothing"},
    {STRING("job.account", job.account), .help = "who the job is charged to"},
    {CHOICE("job.priority", job.priority, "normal", priorities), .help = "place in the queue"},
    {U64("job.min_ranks", job.min_ranks, "1", 1, 1 << 20), .help = "fewest ranks the job may be shrunk to"},
    {U64_AUTO("job.max_ranks", job.max_ranks, 1, 1 << 20), .help = "most ranks the job can use; auto: 8, or as many as parallel.ranks says when those are more"},
    {BOOL("job.elastic", job.elastic, "false"), .help = "the queue may start it with fewer ranks, down to min_ranks, and change their number while it runs, up to max_ranks; the result has the same bits. One rank is then a process of its own, too, so that others can join it"},
    {U64("job.max_replacements", job.max_replacements, "16", 0, 1 << 20), .help = "ranks that may be started in the place of lost ones (on several hosts, by each; and tries to bring a lost host back); after that, losses shrink the team"},
    {BOOL("job.spot", job.spot, "false"), .help = "may run on capacity that can be taken away"},
    {ROW("job.notice", LS_OPTION_STRINGS, job.notice, "[]"), .value_name = "NAMES", .help = "who says that this machine will be taken away: aws, gcp, azure, file; []: nobody, and with spot whichever cloud answers. Then a checkpoint is written and the exit code is 75"},
    {STRING("job.notice_file", job.notice_file), .value_name = "FILE", .help = "when it appears, this machine will be taken away; it may hold the seconds that are left. Default: LOCKSTEP_NOTICE_FILE"},
    {ROW("job.notice_poll", LS_OPTION_DURATION, job.notice_poll_s, "2s"), .min = 0.05, .max = 3600, .help = "time between two questions to a cloud"},
    {ROW("job.time_limit", LS_OPTION_DURATION, job.time_limit_s, "0"), .min = 0, .max = 1e9, .help = "longest run, as 90s, 1h30m or 2d; then it is told to end; 0: none"},
    {ROW("job.lease", LS_OPTION_DURATION, job.lease_s, "0"), .min = 0, .max = 1e6, .help = "ranks, and agents of other hosts, wait so long for the same command to be run again when their trainer dies; 0: they end with it"},
    {ROW("job.node_lease", LS_OPTION_DURATION, job.node_lease_s, "1s"), .min = 0.1, .max = 3600, .help = "a host of several that gives no sign of life for so long is lost"},
    {ROW("job.hang_timeout", LS_OPTION_DURATION, job.hang_timeout_s, "60s"), .min = 0, .max = 1e9, .help = "a rank that others have waited for this long and that has not moved is killed, and its work taken over; 0: never"},
    {BOOL("job.hold", job.hold, "false"), .help = "waits in the queue until it is released"},
    {ROW("job.after", LS_OPTION_STRINGS, job.after, "[]"), .value_name = "JOBS", .help = "numbers of jobs that must have succeeded before this one starts; when one of them fails, this one fails too"},
    {BOOL("job.after_any", job.after_any, "false"), .help = "job.after: they must have ended, in whatever way"},
    {ROW("job.begin", LS_OPTION_DURATION, job.begin_s, "0"), .min = 0, .max = 1e9, .help = "starts no sooner than so long after it was submitted"},
    {ROW("job.deadline", LS_OPTION_DURATION, job.deadline_s, "0"), .min = 0, .max = 1e9, .help = "should have ended so long after it was submitted: its place rises as that comes near; 0: none"},
    {U64("job.cpus", job.cpus, "0", 0, 4096), .help = "cores of each rank, for quotas and for nodes with few; 0: not counted"},
    {ROW("job.memory", LS_OPTION_BYTES, job.memory_bytes, "0"), .min = 0, .max = 1e15, .help = "host memory of each rank, for quotas and for nodes with little; 0: not counted"},
    {U64("job.ranks_per_node", job.ranks_per_node, "0", 0, 4096), .help = "exactly so many ranks on each node; 0: any number"},
    {CHOICE("job.placement.required", job.required, "cluster", nearness), .help = "all ranks within one such, or the job waits"},
    {CHOICE("job.placement.preferred", job.preferred, "cluster", nearness), .help = "all ranks within one such, when that can be had"},
    {STRING("job.group.name", job.group), .value_name = "NAME", .help = "jobs of one group of an account share a limit"},
    {U64("job.group.running_max", job.group_running_max, "0", 0, 1 << 20), .help = "at most so many jobs of the group run at once; 0: no limit"},
    {SWITCH("job.restartable", job.restartable), .help = "may be stopped for others and begun again: a run that trains goes on where it was; auto: yes when it trains, no with job.command"},
    {U64("job.restarts_max", job.restarts_max, "3", 0, 1 << 20), .help = "starts again behind losses that are not its own: a machine or a process of the queue that died"},
    {ROW("job.grace", LS_OPTION_DURATION, job.grace_s, "30s"), .min = 0, .max = 86400, .help = "time to save between the signal to end (also that of job.time_limit) and the end"},
    {ROW("job.environment", LS_OPTION_STRINGS, job.environment, "[]"), .value_name = "NAME=VALUE", .help = "variables of its processes, beside those of who submits it"},
    {ROW("job.share", LS_OPTION_STRINGS, job.share, "[]"), .value_name = "USERS", .help = "users who may do with the job what its owner may: see its name, file and log, change and stop it"},
};
/* clang-format on */

static const ls_option_section sections[] = {
    {"model", "what is trained"},
    {"model.rope_scaling", "longer contexts than the model was trained for"},
    {"tokenizer", "how text becomes token ids"},
    {"data", "what it is trained on"},
    {"train", "how it is trained"},
    {"train.optimizer", "how gradients become new weights"},
    {"train.schedule", "the learning rate over time"},
    {"parallel", "how the work is spread; never changes the result"},
    {"checkpoint", "what is kept to resume from"},
    {"eval", "loss on validation data"},
    {"sample", "text generated while training"},
    {"log", "what is written along the way"},
    {"job", "for the queue"},
    {"job.placement", "how near each other the ranks are"},
    {"job.group", "jobs that are not to run all at once"},
};

const ls_option_table *ls_run_file_table(void)
{
    static const ls_option_table table = {
        .options = options,
        .count = sizeof options / sizeof options[0],
        .sections = sections,
        .section_count = sizeof sections / sizeof sections[0],
    };
    return &table;
}

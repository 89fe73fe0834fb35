// SPDX-License-Identifier: Apache-2.0
/*
 * The run file: everything that says what a training run is.
 *
 * One options table (ls_run_file_table) gives each key its type, range, default and line of help,
 * and fills the struct below. A run goes through these steps, each of which resolves more `auto`
 * values:
 *
 *   ls_run_file_load          defaults, then the file, then overrides; then what follows from the
 *                             file alone (leaves, micro_batch, steps from tokens, sizes by
 *                             family, ...); then ls_run_file_check
 *   ls_run_file_adopt_begun   only for a run that has begun: keeps what it chose for auto
 *   ls_run_file_adopt_model   only with model.from: sizes of the imported model
 *   ls_run_file_adopt_vocab   vocabulary of the opened tokenizer
 *   ls_run_file_adopt_data    steps from epochs; afterwards only threads and parallel.* may still
 *                             be auto
 *   ls_run_file_save          writes the fully resolved run.yaml, which loads to the same struct,
 *                             bit for bit
 *
 * Identity. Two runs are the same run when ls_run_file_identity is equal: then any number of ranks
 * and threads computes the same bits (I1), and one may resume the other. It covers the seed,
 * the data by content, model, optimizer, schedule, batch, leaves, micro-batch, tensor cut,
 * precision; not ranks, threads, recompute (same bits), checkpoints, evaluation, samples, logs or
 * job settings, and not train.steps: the computation depends only on train.schedule.steps.
 *
 * Ownership: strings and lists live in the arena given to ls_run_file_load; copying the struct is
 * fine while it lives. Pure apart from load and save; thread-safe for separate structs.
 */
#ifndef LS_CONFIG_RUN_FILE_H
#define LS_CONFIG_RUN_FILE_H

#include "base/arena.h"
#include "base/compression.h"
#include "base/hash.h"
#include "base/options.h"
#include "base/status.h"
#include "base/text.h"
#include "model/adapter.h"
#include "model/config.h"

#include <stdbool.h>
#include <stdint.h>

/* LS_AUTO_U64, LS_AUTO_F64 and LS_AUTO (base/options.h) stand for the word auto; "auto" below
 * tells how it is resolved. */

typedef enum ls_run_tokenizer_kind {
    /* tokenizer.file: tokenizer.json, tokenizer.model or vocabulary + merges */
    /* train a byte-level BPE of tokenizer.vocab on the training data */
    /* the tokenizer in the folder model.from */
    /* file if tokenizer.file is set, model if model.from is, else bytes; resolved by load */
    LS_TOKENIZER_BYTES,
    LS_TOKENIZER_FILE,
    LS_TOKENIZER_TRAIN,
    LS_TOKENIZER_MODEL,
    LS_TOKENIZER_AUTO,
} ls_run_tokenizer_kind;

typedef enum ls_optimizer_kind { LS_OPTIMIZER_ADAMW } ls_optimizer_kind;

typedef enum ls_schedule_kind {
    LS_SCHEDULE_COSINE,   /* warm-up, then half a cosine from lr to lr * final_lr_fraction */
    LS_SCHEDULE_LINEAR,   /* warm-up, then a straight line to lr * final_lr_fraction */
    LS_SCHEDULE_CONSTANT, /* warm-up, then lr */
    /* warm-up, lr, and over the last decay_fraction of the steps a line to lr *
     * final_lr_fraction */
    LS_SCHEDULE_WSD,
} ls_schedule_kind;

/* fp32: everything in float32. tf32: as fp32, but products round their inputs to 10 bits (GPU).
 * bf16: weights in the forward and backward pass, activations and their gradients in bfloat16
 * (GPU); sums, weight gradients, the optimizer and its state in float32. */
typedef enum ls_precision { LS_PRECISION_FP32, LS_PRECISION_BF16, LS_PRECISION_TF32 } ls_precision;

/* auto: a GPU if there is one and the run can use it, else the CPU. */
typedef enum ls_run_device { LS_RUN_DEVICE_AUTO, LS_RUN_DEVICE_CPU, LS_RUN_DEVICE_CUDA } ls_run_device;
typedef enum ls_priority { LS_PRIORITY_LOW, LS_PRIORITY_NORMAL, LS_PRIORITY_HIGH } ls_priority;

typedef struct ls_run_model {
    /* "": fresh weights; else a Hugging Face directory or a checkpoint, whose sizes apply */
    const char *from;
    int family;        /* an ls_family; LS_FAMILY_COUNT is auto: llama, or that of model.from */
    uint64_t layers;   /* auto: 6 */
    uint64_t heads;    /* auto: 6 */
    uint64_t kv_heads; /* auto: heads */
    uint64_t head_dim; /* auto: width / heads */
    uint64_t width;    /* auto: 384 */
    /* auto: gpt2 4 * width; others 8/3 * width, rounded up to a multiple of 64 */
    uint64_t ffn;
    /* 0: no experts, or until ls_run_file_adopt_model; families with experts have 8, 2 and ffn */
    uint64_t experts, experts_per_token, expert_ffn;
    /* tokens in a training sequence; auto: 256; with model.from the model's, at most 1024 */
    uint64_t context;
    uint64_t vocab;                        /* auto until ls_run_file_adopt_vocab */
    int tie_embeddings, qkv_bias, qk_norm; /* LS_NO, LS_YES; auto: by family */
    double norm_eps, rope_theta;           /* auto: by family */
    ls_rope_scaling_kind rope_scaling_kind;
    double rope_scaling_factor, rope_scaling_low_freq_factor, rope_scaling_high_freq_factor;
    uint64_t rope_scaling_original_context;
    uint64_t sliding_window; /* positions; 0: none; auto: that of model.from, otherwise 0 */
    double init_std;
} ls_run_model;

typedef enum ls_adapter_kind { LS_ADAPTER_NONE, LS_ADAPTER_LORA } ls_adapter_kind;

/* Low-rank adapters (model/adapter.h). */
typedef struct ls_run_adapter {
    ls_adapter_kind kind;
    const char *from; /* "": a fresh one; else an adapter that training goes on with */
    uint64_t rank;
    double alpha, dropout;
    bool rslora;
    ls_option_strings targets;
    ls_base_kind base;
} ls_run_adapter;

typedef struct ls_run_tokenizer {
    ls_run_tokenizer_kind kind;
    const char *file; /* "" unless kind is file */
    uint64_t vocab;   /* kind train: size to train */
    /* with model.from: it may give other meanings to the ids than the model's own does */
    bool replace;
} ls_run_tokenizer;

/* Which forms of records are looked for in the data. */
typedef enum ls_run_format {
    LS_RUN_FORMAT_AUTO,
    LS_RUN_FORMAT_TEXT,
    LS_RUN_FORMAT_PROMPT_COMPLETION,
    LS_RUN_FORMAT_MESSAGES,
} ls_run_format;

/* Which tokens of a record have a loss. */
typedef enum ls_run_loss_on { LS_RUN_LOSS_ASSISTANT, LS_RUN_LOSS_ALL, LS_RUN_LOSS_LAST } ls_run_loss_on;

/* What happens to records that cannot be used. */
typedef enum ls_run_bad_records { LS_RUN_BAD_STOP, LS_RUN_BAD_SKIP } ls_run_bad_records;

typedef struct ls_run_data {
    /* Paths and patterns, relative to the current folder. If no item has a weight they are one
     * corpus; if any has, each item is a corpus of its own, and the weight of an item without
     * one is 1. */
    ls_option_weighted_list train;
    /* Files used for validation only; may be empty, and has no weights. */
    ls_option_weighted_list validation;
    /* 0 to 0.5 of the training data; auto: 0.05, or 0 with data.validation */
    double validation_fraction;
    const char *field;   /* key or column that holds the document, unless an item names another */
    bool document_masks; /* attention and positions restart with each document */
    /* Records that are conversations, or prompts and completions. */
    ls_run_format format;
    const char *template;      /* "auto": the model's; "none"; else a file or folder */
    const char *template_date; /* YYYY-MM-DD; "": not needed, or the day the run begins */
    ls_run_loss_on loss_on;
    bool packing;                                /* records share sequences */
    const char *prompt_field, *completion_field; /* keys of a question and its answer; "": none */
    const char *split_key, *split_time;          /* keys that decide what is held out; "": none */
    ls_run_bad_records bad_records;
    const char *cache_dir; /* folder for tokenised data; "": under $LOCKSTEP_HOME */
    bool share_blocks;     /* hosts give each other blocks of token sets */
} ls_run_data;

typedef struct ls_run_optimizer {
    ls_optimizer_kind kind;
    double lr; /* auto: 1e-3, with model.from 2e-5, with an adapter 2e-4 */
    double beta1, beta2, eps, weight_decay;
} ls_run_optimizer;

typedef struct ls_run_schedule {
    ls_schedule_kind kind;
    /* length of the schedule; auto: train.steps when the run begins */
    uint64_t steps;
    uint64_t warmup_steps; /* auto: a tenth of steps, at most 100 */
    double final_lr_fraction;
    double decay_fraction; /* wsd */
} ls_run_schedule;

typedef enum ls_local_moments { LS_LOCAL_KEEP, LS_LOCAL_RESET } ls_local_moments;

/* Local steps (execution/train/local.h). */
typedef struct ls_run_local {
    uint64_t steps;   /* of a round; 0: none */
    uint64_t workers; /* divides train.leaves */
    double outer_lr, outer_momentum;
    int moments;        /* an ls_local_moments */
    uint64_t bits;      /* of each number that hosts send: 32, 8 or 4 */
    uint64_t delay;     /* steps from making an outer gradient to applying it */
    uint64_t fragments; /* divides steps; delay is below steps / fragments */
} ls_run_local;

/* Gradients that are packed before they are added up across groups of leaves. */
typedef struct ls_run_compression {
    ls_compression_kind kind; /* none, bf16, int8 or topk */
    double ratio;             /* topk: share of the numbers that is sent */
    /* What comes back: none: the sum, packed as `kind`; bf16 or int8: changes of the weights. */
    ls_compression_kind weights;
    /* Number of groups; auto: the fewest from 4 on that the leaves allow. Resolved by load unless
     * kind is none. */
    uint64_t groups;
} ls_run_compression;

typedef struct ls_run_train {
    /* auto: from tokens; from epochs by ls_run_file_adopt_data; else 1000, or with model.from 3
     * epochs */
    uint64_t steps;
    uint64_t tokens;       /* 0: not given; reset to 0 once steps is known */
    double epochs;         /* 0: not given; reset to 0 once steps is known */
    uint64_t global_batch; /* sequences per step */
    uint64_t micro_batch;  /* sequences computed at once; divides global_batch / leaves */
    uint64_t leaves;       /* V of invariant I1; divides global_batch */
    ls_run_local local;
    /* patterns over tensor names (model/layout.h: ls_layout_build_frozen) */
    ls_option_strings freeze;
    uint64_t tensor_cut;   /* canonical tensor-parallel degree */
    uint64_t sequence_cut; /* pieces of each sequence (model/plan.h) */
    double balance_loss;   /* has an effect only with experts */
    uint64_t seed;
    ls_run_optimizer optimizer;
    ls_run_schedule schedule;
    ls_run_compression compression;
    double clip_norm;           /* 0: no clipping */
    uint64_t audit_every_steps; /* 0: never */
    /* 0: never; auto: ceil(8192 / tokens of a step), which costs about 0.3 % */
    uint64_t hash_every_steps;
    ls_precision precision;
    ls_run_device device; /* as asked for; ls_session has the one in use */
    int recompute;        /* an ls_recompute of model/plan.h: none, selective, full */
    uint64_t threads;     /* per rank; auto: cores / ranks, resolved by the trainer */
} ls_run_train;

/* Order in which a pipeline stage computes its micro-batches (model/pipeline.h). Interleaved: 1F1B
 * with LS_RUN_CHUNKS runs of layers per stage. */
typedef enum ls_run_pipeline {
    LS_RUN_1F1B,
    LS_RUN_INTERLEAVED,
    LS_RUN_ZERO_BUBBLE,
    LS_RUN_SCHEDULE_AUTO
} ls_run_pipeline;
enum { LS_RUN_CHUNKS = 2 };

typedef struct ls_run_parallel {
    uint64_t ranks; /* auto: ls_run_file_ranks; at most leaves * tensor * context * pipeline */
    uint64_t data;  /* auto: ranks / (tensor * context * pipeline * expert) */
    /* auto, and schedule: chosen when a session opens (execution/run/mesh_choice.h) */
    uint64_t tensor, context, pipeline;
    uint64_t expert;
    int schedule;  /* an ls_run_pipeline */
    uint64_t zero; /* stage 0 to 3 */
    bool shadow;   /* with zero 1 to 3: each host also keeps the shards of its neighbour's ranks */
} ls_run_parallel;

/* Number format of snapshots of the weights. */
typedef enum ls_weights_dtype { LS_WEIGHTS_BF16, LS_WEIGHTS_FP32 } ls_weights_dtype;

typedef struct ls_run_checkpoint {
    /* 0: only at the end and when stopped. auto: chosen during the run
     * (execution/run/checkpoint_interval.h); a checkpoint then has a validation loss only if one
     * was measured anyway. */
    uint64_t every_steps;
    int async;                    /* LS_NO, LS_YES; auto: if memory allows */
    uint64_t keep_last;           /* >= 1 */
    uint64_t keep_best;           /* by validation loss, 0: none */
    uint64_t keep_every;          /* keep steps that are multiples of this; 0: none */
    double budget;                /* USD a month for those that are kept; 0: no limit */
    double price;                 /* USD for a GB a month; auto: that of the queue */
    uint64_t weights_every_steps; /* steps between snapshots of the weights; 0: never */
    ls_weights_dtype weights_dtype;
    uint64_t weights_keep_last; /* 0: all */
    const char *mirror;         /* s3://... or a folder that checkpoints are copied to; "": none */
    uint64_t mirror_keep_last;  /* >= 1 */
    double mirror_keep_for_s;
    double mirror_budget; /* USD a month for what is stored there; 0: no limit */
    double mirror_price;  /* USD for a GB a month */
} ls_run_checkpoint;

typedef struct ls_run_eval {
    uint64_t every_steps; /* 0: only at the end */
    /* largest number of global batches per evaluation; 0: all validation data */
    uint64_t batches;
    /* evaluations without improvement after which the run ends; 0: none end it */
    uint64_t patience;
    double min_delta; /* by how much the loss falls at least in an improvement */
} ls_run_eval;

typedef struct ls_run_sample {
    uint64_t every_steps; /* 0: never */
    const char *prompt;
    uint64_t max_tokens;
    double temperature; /* 0: greedy */
    uint64_t top_k;     /* 0: all */
    double top_p;       /* 1: all */
} ls_run_sample;

typedef struct ls_run_log_settings {
    uint64_t every_steps; /* steps between progress lines if the output is not a terminal */
    bool tensorboard;
} ls_run_log_settings;

/* The entry of the finished model in the registry (storage/registry/registry.h). */
typedef struct ls_run_registry {
    bool add;
    const char *name;    /* "": that of the run */
    bool store;          /* its bytes too */
    const char *address; /* "": $LOCKSTEP_REGISTRY, else under $LOCKSTEP_HOME */
} ls_run_registry;

/* How close to each other the ranks of a job must be, from near to far, in the order of the
 * levels of the queue's tree. */
typedef enum ls_nearness {
    LS_NEAR_ISLAND,
    LS_NEAR_NODE,
    LS_NEAR_LEAF,
    LS_NEAR_SPINE,
    LS_NEAR_CLUSTER
} ls_nearness;

typedef struct ls_run_job {
    /* program that the queue starts once per rank instead of training; empty: train */
    ls_option_strings command;
    const char *image;
    ls_option_strings image_options;
    ls_option_strings metrics; /* files of the program; "stdout": what it prints */
    const char *account;
    ls_priority priority;
    uint64_t min_ranks, max_ranks, max_replacements;
    bool elastic; /* the queue may shrink and grow it */
    bool spot;
    bool hold;
    ls_option_strings after; /* numbers of jobs */
    /* start after the jobs of `after` have ended, even if they failed */
    bool after_any;
    double begin_s;              /* time after submission; 0: at once */
    double deadline_s;           /* time after submission; 0: none */
    uint64_t cpus, memory_bytes; /* per rank; 0: not counted */
    uint64_t ranks_per_node;     /* 0: any */
    ls_nearness required, preferred;
    const char *group;          /* "": none */
    uint64_t group_running_max; /* 0: no limit */
    int restartable;            /* LS_NO, LS_YES; auto: LS_YES when it trains */
    bool interactive;           /* a person uses it: it gives its devices back when idle */
    uint64_t restarts_max;      /* restarts after failures the job did not cause */
    double grace_s;
    uint64_t log_bytes_max;
    ls_option_strings environment; /* NAME=VALUE */
    ls_option_strings share;       /* users */
    /* file, aws, gcp, azure; empty with spot: the cloud that responds */
    ls_option_strings notice;
    const char *notice_file; /* "": none */
    double notice_poll_s;
    double time_limit_s; /* 0: none */
    double max_cost_usd; /* of all starts together; auto: no cap */
    double price_usd;    /* of a device for an hour, outside the queue; auto: not known */
    double
        /* 0: never. At the default, LS_HANG_TIMEOUT_S, ranks stopped by a debugger are spared */
        hang_timeout_s;
    double node_lease_s; /* for one of several hosts */
    double lease_s;      /* of the trainer; 0: ranks end with it */
} ls_run_job;

/* What `lockstep sweep` does with the jobs it makes of the file; nothing for other commands. */
typedef struct ls_run_asha {
    uint64_t first;        /* steps after which jobs are first compared; 0: only at their end */
    uint64_t eta;          /* one of so many goes on */
    int metric;            /* 0: val_loss, 1: loss */
    uint64_t budget_steps; /* of all jobs together; 0: no limit */
    uint64_t failures_max; /* failures alike in a row that stop the sweep; 0: none do */
} ls_run_asha;

/* When a person is told (telemetry/record/alert.h). */
typedef struct ls_run_alerts {
    bool not_finite, lost_ranks;
    double loss_spike;                     /* times the usual spread of losses; 0: never */
    double stall_s;                        /* 0: never */
    double utilisation, utilisation_for_s; /* share of the time; for_s 0: never */
    uint64_t disk_bytes;                   /* free space; 0: never */
} ls_run_alerts;

enum {
    LS_RUN_FILE_MAX_RANKS = 8,           /* job.max_ranks if it is auto */
    LS_RUN_FILE_AUDIT_STEPS = 1000,      /* train.audit_every_steps unless it is set */
    LS_RUN_FILE_RANK = 16,               /* adapter.rank unless it is set */
    LS_RUN_FILE_ORIGINAL_CONTEXT = 8192, /* rope_scaling.original_context without model.from */
};

#define LS_HANG_TIMEOUT_S        60.0 /* default of job.hang_timeout */
#define LS_RUN_FILE_BALANCE_LOSS 0.01 /* default of train.balance_loss */

/* Which values the file left open. Not settings: ls_run_file_load notes them before it resolves
 * them. */
typedef struct ls_run_automatic {
    bool length, lr, schedule_steps, warmup_steps, leaves;
} ls_run_automatic;

typedef struct ls_run_file {
    const char *name; /* auto: the file's name without its suffix */
    ls_run_model model;
    ls_run_adapter adapter;
    ls_run_tokenizer tokenizer;
    ls_run_data data;
    ls_run_train train;
    ls_run_parallel parallel;
    ls_run_checkpoint checkpoint;
    ls_run_eval eval;
    ls_run_sample sample;
    ls_run_log_settings log;
    ls_run_alerts alerts;
    ls_run_registry registry;
    ls_run_job job;
    ls_run_asha asha;
    ls_run_automatic automatic;
} ls_run_file;

/* The table of all keys, for --help, the reference page and `new`. A constant. */
const ls_option_table *ls_run_file_table(void);

/*
 * Loads and checks a run file. overrides: `override_count` texts "key=value", as after --set,
 * applied in order. To change the unit of a run's length, reset the old one: "train.steps=10" and,
 * if the file has epochs, "train.epochs=0".
 *
 * run_out: written only on success; its strings live in `arena`.
 * Errors: LS_ERR_INVALID with file and line, key, value and range; LS_ERR_NOT_FOUND.
 */
LS_MUST_CHECK ls_status ls_run_file_load(const char *path, const char *const *overrides,
                                         size_t override_count, ls_arena *arena, ls_run_file *run_out);

/* The same from text; `name` replaces the file name in errors and gives the default name of the
 * run. */
LS_MUST_CHECK ls_status ls_run_file_parse(const char *text, size_t bytes, const char *name,
                                          const char *const *overrides, size_t override_count,
                                          ls_arena *arena, ls_run_file *run_out);

/*
 * Checks combinations of settings, beyond the range of each one. Each message lists values that
 * would work. Pure.
 * Errors: LS_ERR_INVALID.
 */
LS_MUST_CHECK ls_status ls_run_file_check(const ls_run_file *run);
/* What it says of train.local; again once train.steps is known. Errors: as above. */
LS_MUST_CHECK ls_status ls_run_file_check_local(const ls_run_file *run);
/* The most ranks that can share a step: train.leaves; with train.local the leaves of one worker on
 * each host. */
uint64_t ls_run_file_rank_leaves(const ls_run_file *run, bool several_hosts);

/*
 * Refuses settings of model.rope_scaling that have no effect, in a run file that is loaded and has
 * not adopted a model. Not part of loading, so that runs that began with such settings go on.
 * Errors: LS_ERR_INVALID naming the key.
 */
LS_MUST_CHECK ls_status ls_run_file_check_effect(const ls_run_file *run);

/* What load does about train.compression: resolves groups, and checks it. Errors: LS_ERR_INVALID,
 * LS_ERR_UNSUPPORTED naming the key. */
void ls_run_file_resolve_groups(ls_run_train *train);
LS_MUST_CHECK ls_status ls_run_file_check_compression(const ls_run_file *run);
/* The ZeRO stage: parallel.zero; with compression 0, because all hosts make the same update, or 1
 * if they send changes of the weights. */
uint32_t ls_run_file_zero(const ls_run_file *run);
/* Buffers of state that compression needs (ls_compression_flats). */
uint32_t ls_run_file_residuals(const ls_run_file *run);
/* Leaves of a group whose sum of gradients is compressed; 0: none are. */
uint32_t ls_run_file_group(const ls_run_file *run);
/* How; keep: after the warm-up. */
ls_compression ls_run_file_compression(const ls_run_file *run);

/* Number of processes that train: parallel.ranks; if that is auto, the number that parallel.data
 * and the degrees imply, where auto counts as 1. */
uint64_t ls_run_file_ranks(const ls_run_file *run);

/* Ranks that compute the same share of the batch together; a degree that is auto counts as 1. */
uint64_t ls_run_file_crew(const ls_run_file *run);

/* Whether a degree or the schedule is auto. */
bool ls_run_file_mesh_is_open(const ls_run_file *run);

/* Refuses what training does not support: bf16 (unless has_gpu), a packed base (if has_gpu), tensor
 * and pipeline parallelism. Errors: LS_ERR_UNSUPPORTED. */
LS_MUST_CHECK ls_status ls_run_file_check_machine(const ls_run_file *run, bool has_gpu);

/*
 * Number of leaves for auto. A pure function of the run file's values:
 *
 *   candidates  the divisors of global_batch / micro_batch (micro_batch auto counts as 1)
 *   enough      those >= max_ranks with at least 1,024 tokens per leaf, because matrix products
 *               are slower below that. If there are none, the smallest divisor >= max_ranks; if
 *               there is none either, the largest
 *   balanced    of these, the multiples of max_ranks if there are any, so that no rank is idle at
 *               full size
 *   shrinks     of these, the smallest whose balance, V / (r * ceil(V / r)) averaged over
 *               r = 1..max_ranks ranks, is at least 0.9; if there is none, the one with the best
 *               balance (the smaller of equals)
 *
 * Example: batch 48 of 256 tokens, 8 ranks: 8 (16 would leave 768 tokens per leaf). Batch 512 of
 * 1,024, 8 ranks: 16.
 */
uint64_t ls_run_file_auto_leaves(uint64_t global_batch, uint64_t micro_batch, uint64_t context,
                                 uint64_t max_ranks);

/* Micro-batch for auto: the largest divisor of a leaf's sequences with at most 8,192 tokens, at
 * least 1. */
uint64_t ls_run_file_auto_micro_batch(uint64_t leaf_sequences, uint64_t context);

/*
 * Adopts from `begun`, the run.yaml of the run that `run` continues, what that run chose for
 * train.schedule.steps and warmup_steps if `run` leaves them open, and with model.from for the
 * learning rate and the length, whose defaults there are not those of earlier versions. So a run
 * whose train.steps changes keeps its schedule, and its steps keep their bits: past the end of a
 * schedule, steps have its last learning rate. Errors: LS_ERR_INVALID.
 */
LS_MUST_CHECK ls_status ls_run_file_adopt_begun(ls_run_file *run, const ls_run_file *begun);

/*
 * Adopts the sizes of an imported model. A size that the file also gives must agree, but
 * model.vocab may be larger, and with model.rope_scaling so may model.context. Adopting twice
 * changes nothing. Errors: LS_ERR_INVALID naming the key and both values.
 */
LS_MUST_CHECK ls_status ls_run_file_adopt_model(ls_run_file *run, const ls_model_config *config);

/* Changes the configuration of the imported model to what the adopted run trains: the vocabulary,
 * the rotary scaling and the context. Errors: LS_ERR_INVALID from ls_model_config_check. */
LS_MUST_CHECK ls_status ls_run_file_change_model(const ls_run_file *run, ls_model_config *config);

/* Adopts the number of ids of the tokenizer, 1 or more. It replaces an auto model.vocab; a given
 * model.vocab must not be smaller. */
LS_MUST_CHECK ls_status ls_run_file_adopt_vocab(ls_run_file *run, uint64_t tokenizer_vocab);

/* The vocabulary, if the run file alone determines it: model.vocab, or that of a tokenizer of
 * bytes, or of one to be trained. False: a tokenizer file determines it. */
bool ls_run_file_adopt_own_vocab(ls_run_file *run);

/* Sequences in one epoch of training data, >= 1: epochs become steps (rounded to the nearest, at
 * least 1). */
LS_MUST_CHECK ls_status ls_run_file_adopt_data(ls_run_file *run, uint64_t epoch_sequences);

/* The model's configuration for a run without model.from, once the vocabulary is adopted. bos and
 * eos ids are left at -1. Errors: LS_ERR_INVALID from ls_model_config_check. */
LS_MUST_CHECK ls_status ls_run_file_model_config(const ls_run_file *run, ls_model_config *config_out);

/* Appends the text that ls_run_file_save writes; other processes of the run parse it
 * (ls_run_file_parse). */
void ls_run_file_append(const ls_run_file *run, ls_text *text);

/* Writes `path` atomically. Errors: those of ls_file_write_atomic. */
LS_MUST_CHECK ls_status ls_run_file_save(const ls_run_file *run, const char *path);

/*
 * SHA-256 over the canonical text of the identity keys and over `data_hash` (ls_dataset_hash: the
 * content of data and tokenizer, so moving a file changes nothing; NULL: none). Values must be
 * resolved.
 */
void ls_run_file_identity(const ls_run_file *run, const char *data_hash, char hex_out[LS_SHA256_HEX_BYTES]);

/* Appends one line per identity key that differs, "train.seed: 1337 in the run, 7 now", and
 * returns how many there are. A value that is still auto now is unknown and never counts as
 * different. */
size_t ls_run_file_diff(const ls_run_file *in_run, const ls_run_file *now, ls_text *text);

#endif

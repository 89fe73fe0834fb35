// SPDX-License-Identifier: Apache-2.0
/*
 * Session: everything a run needs, opened and checked before the first byte of training memory is
 * allocated.
 *
 * Opening goes from cheap to expensive, so that a mistake is reported early: run file, tokenizer,
 * data, model, plan, memory. Afterwards every `auto` of the run file has a definite value.
 */
#ifndef LS_EXECUTION_TRAIN_SESSION_H
#define LS_EXECUTION_TRAIN_SESSION_H

#include "base/arena.h"
#include "compute/queue.h"
#include "config/run_file.h"
#include "data/dataset.h"
#include "execution/train/adapter_file.h"
#include "execution/train/evaluate.h"
#include "execution/train/model_file.h"
#include "execution/train/schedule.h"
#include "execution/train/step.h"
#include "model/plan.h"
#include "tokenizer/tokenizer.h"

struct ls_session;

typedef struct ls_session_options {
    /* directory of the run being continued, which holds its tokenizer; NULL: a new run */
    const char *run_dir;
    uint64_t threads; /* per rank; 0: from the run file, else cores / ranks, at least 1 */
    /* this process is one of several rank processes, whatever the run file says about ranks */
    bool is_rank;
    /* of a run on several hosts: how many, and the ranks of this one; 0: this host alone */
    uint32_t hosts, host_ranks;
    uint32_t member; /* of a rank: its number in its crew (parallel/mesh.h) */
    /* Callbacks as in ls_dataset_options; NULL: none. */
    ls_dataset_progress progress;
    void (*tell)(void *context, const char *text);
    ls_status (*stop)(void *context);
    void *context; /* first argument of all three */
    /* Chooses the degrees that the run file leaves open (auto), and the ranks if they are open,
     * too, once the plan of the model is known. parallel: the run file's, with 1 for each degree
     * that is auto. NULL: that is the choice. */
    ls_status (*choose)(void *chooser, const struct ls_session *session, ls_run_parallel *parallel);
    void *chooser;
} ls_session_options;

typedef struct ls_session {
    ls_arena *arena; /* the caller's, holds the tables */
    ls_run_file run; /* resolved */
    uint32_t ranks;  /* processes that compute; 1: this one, unless is_gang */
    /* Ranks are separate processes: several, or one of a run that may get more (job.elastic). */
    bool is_gang;
    bool is_rank;           /* as asked for */
    uint32_t worker_hosts;  /* with local steps on several hosts, their number; else 0 */
    uint32_t host_ranks;    /* of them those of this host; else `ranks` */
    uint64_t threads_asked; /* per rank, 0: cores / ranks */
    /* the CPU; has as many threads as all ranks of this host: evaluation runs while they wait */
    ls_queue *queue;
    /* what trains, evaluates and samples: a GPU, or `queue` */
    ls_queue *device;
    ls_tokenizer *tokenizer; /* NULL: model.from has none, and the data consist of token files */
    ls_dataset *dataset;
    /* The first step whose samples this process drew, plus 1; 0: none yet. For streamed data. */
    uint64_t expects_since;
    uint32_t data_hosts; /* that divide the samples; 0: one */
    /* of the training data; patterns and weights in `arena`, at least one */
    const ls_dataset_source *sources;
    size_t source_count;
    /* model.from, until its weights have been read; else NULL */
    ls_model_file *source;
    /* files copied from model.from into checkpoints, mainly its tokenizer; in `arena` */
    ls_hf_file *carried;
    /* 0 if the run has another tokenizer, because the files would not match it */
    size_t carried_count;
    ls_model_config config;
    ls_layout layout;
    ls_plan plan; /* of a training micro-batch */
    /* What a rank computes of it, in `arena`: the plans of its stage and pieces, one per chunk of
     * its stage (model/pipeline.h); of the trainer, those of the first rank. One plan, the same,
     * without a mesh. */
    ls_plan *own_plans;
    ls_pipeline pipeline;
    const ls_pipeline_work *pipeline_list; /* of its stage; NULL: a single stage */
    uint32_t *stages;      /* of each bucket, the stage that makes its gradients; NULL: no mesh */
    ls_memory_plan memory; /* of a process that computes alone */
    /* arenas, slots included, tables and tokens: of the rank that has the most, and of all ranks
     * that compute a leaf together */
    uint64_t work_bytes_max, work_bytes_crew;
    /* of each member of a crew; of an expert group, if its experts get as many visits as others */
    uint64_t *work_bytes;
    /* what all ranks together exchange in a step, counted as ls_rank_traffic does; on one host */
    uint64_t sent_bytes[LS_AXIS_COUNT];
    uint64_t evaluation_bytes, generation_bytes; /* not part of the memory plan */
    /* a second copy of parameters and moments, for saving while steps continue; 0: steps wait */
    uint64_t snapshot_bytes;
    /* program, tables, kernel scratch, buffers for saving: measured, not planned */
    uint64_t process_bytes;
    ls_plan_flops flops; /* of a micro-batch */
    char identity[LS_SHA256_HEX_BYTES];
    /* Of a run that trains an adapter: the folder of its base; the adapter that it goes on with, or
     * NULL; and the digest of the base, "" until it is known (ls_session_load_base). */
    const char *base_path;
    ls_adapter_file *adapter;
    char base_digest[LS_SHA256_HEX_BYTES];
} ls_session;

/* run: as loaded (config/run_file.h); its strings are in `arena`. On error everything is
 * released. */
LS_MUST_CHECK ls_status ls_session_open(ls_arena *arena, const ls_run_file *run,
                                        const ls_session_options *options, ls_session *session_out);
void ls_session_close(ls_session *session);

/* Type of the activations, and of the weights that they meet. */
ls_dtype ls_session_activations(const ls_session *session);

/* The model of a state of this run, for evaluation and samples. */
ls_model_on_device ls_session_model(const ls_session *session, const ls_state *state);

/* How ranks divide the model (parallel.tensor, context, pipeline). */
ls_mesh ls_session_mesh(const ls_session *session);
/* {ranks, data, expert, pipeline, context, tensor, schedule} */
json_t *ls_session_mesh_to_json(const ls_session *session);
/* The stages of a run of this session that is divided as `parallel` says. */
ls_pipeline ls_session_pipeline(const ls_session *session, const ls_run_parallel *parallel);
/* The plan of all layers of a member of the tensor and context groups of a mesh; its tables in
 * `arena`. Errors: those of ls_plan_build. */
LS_MUST_CHECK ls_status ls_session_build_member_plan(const ls_session *session, ls_arena *arena, ls_mesh mesh,
                                                     uint32_t member, ls_plan *plan_out);
/* Memory of the run, in all its processes on this host, if it were divided as `parallel` says.
 * Errors: those of building plans. */
LS_MUST_CHECK ls_status ls_session_bytes_divided(const ls_session *session, const ls_run_parallel *parallel,
                                                 uint64_t *bytes_out);
/* Sets pipeline, own_plans, pipeline_list, stages and work_bytes after `plan`; once more when a
 * rank gets another place. member: its number in its crew. Errors: those of planning. */
LS_MUST_CHECK ls_status ls_session_build_own_plans(ls_session *session, uint32_t member);
/* Size of the area in which the ranks of a host exchange, for up to `local_ranks` of them: that of
 * data parallelism, then, 64-byte aligned, the rooms of the crews. */
uint64_t ls_session_exchange_bytes(const ls_session *session, uint32_t local_ranks);
/* Where the rooms begin. */
uint64_t ls_session_rooms_at(const ls_session *session, uint32_t local_ranks);

/* The local steps of the run. */
ls_local ls_session_local(const ls_session *session);
/* Memory of the parameters and moments of workers, and of what hosts send each other of them; 0
 * without local steps. */
uint64_t ls_session_worker_bytes(const ls_session *session);
uint64_t ls_session_outer_bytes(const ls_session *session);

/* The learning-rate schedule of the run file. */
ls_schedule ls_session_schedule(const ls_session *session);
/* The settings of a stepper of this run, except should_stop. Samples are drawn from the session,
 * which must outlive the stepper. */
ls_step_settings ls_session_step_settings(ls_session *session);
/* Sets the weights of step 0: new ones from the seed, or those of model.from; with an adapter, its
 * base and its matrices. Errors: those of ls_model_file_load. */
LS_MUST_CHECK ls_status ls_session_begin_weights(ls_session *session, ls_state *state);

/* Reads the base of an adapter into the frozen parameters of `state`; state NULL: only its digest.
 * If session->base_digest is set, as it is in a checkpoint, the base must have it; otherwise it is
 * set. Does nothing without an adapter. Errors: those of ls_model_file_load; LS_ERR_DATA, with both
 * digests, for another base. */
LS_MUST_CHECK ls_status ls_session_load_base(ls_session *session, ls_state *state);

/* A JSON list of ids of the first training sample (execution/train/adapter_check.h); in `arena`. */
LS_MUST_CHECK ls_status ls_session_merge_tokens(const ls_session *session, ls_arena *arena,
                                                const char **text_out);

/* session->base_digest for the state hash: NULL without an adapter. */
const char *ls_session_base_digest(const ls_session *session);

/* FLOPs of a step by the full-attention convention: those of the model (for MFU), or including
 * recomputation (for HFU). */
double ls_session_step_flops(const ls_session *session, bool with_recompute);
/* Threads of each rank when `ranks` of them share this host. */
uint32_t ls_session_rank_threads(const ls_session *session, uint32_t ranks);
/* Memory of a process with `threads` threads besides the planned buffers. */
uint64_t ls_session_process_bytes(const ls_session *session, uint32_t threads);
/* Memory of the process that saves checkpoints while it does so. */
uint64_t ls_session_save_bytes(const ls_session *session);
/* Memory of the run, in all its processes on this host. */
uint64_t ls_session_bytes(const ls_session *session);
bool ls_session_is_on_gpu(const ls_session *session);
/* Memory of a run on a GPU there. */
uint64_t ls_session_gpu_bytes(const ls_session *session);

/* LS_ERR_MEMORY, with the memory plan in the text, if the machine or the GPU has less memory than
 * the run needs; LS_ERR_UNSUPPORTED if kernels can't compute heads of the model's size. */
LS_MUST_CHECK ls_status ls_session_check_memory(const ls_session *session);

/* The output of `train --dry-run`: model, batch, memory plan, FLOPs. */
void ls_session_describe(const ls_session *session, ls_text *text);
/* The same for --json. */
json_t *ls_session_to_json(const ls_session *session);
/* One line for each source of a mixture: its share, tokens and epochs in this run. */
void ls_session_describe_sources(const ls_session *session, ls_text *text);
/*
 * The usual learning rate for training a model of `parameters` (without those of an adapter)
 * further: 2e-5 sqrt(1e9 / parameters), from 2e-5 to 5e-4; ten times that for an adapter, at most
 * 1e-3. `lockstep new` chooses it, and a run that is far above it is warned of.
 */
double ls_tuning_rate(double parameters, bool has_adapter);
/* Settings that usually harm a model that is already trained (model.from). */
void ls_session_describe_warnings(const ls_session *session, ls_text *text);
/*
 * [{source, share, tokens, epochs, val_loss, val_tokens}] after `steps` steps; NULL unless the data
 * are a mixture. validation: ls_evaluation.parts, by source; NULL: not evaluated.
 */
json_t *ls_session_sources_to_json(const ls_session *session, uint64_t steps,
                                   const ls_evaluation_part *validation);

#endif

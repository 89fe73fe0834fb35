// SPDX-License-Identifier: Apache-2.0
/*
 * Session: everything a run needs, opened and checked, before the first byte of training memory is taken.
 *
 * Opening goes from cheap to dear, so that a mistake is told early: run file, tokenizer, data, model, plan, memory. What was `auto` in
 * the run file is definite afterwards.
 */
#ifndef LS_EXECUTION_TRAIN_SESSION_H
#define LS_EXECUTION_TRAIN_SESSION_H

#include "base/arena.h"
#include "compute/queue.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "execution/model_file.h"
#include "execution/train/schedule.h"
#include "execution/train/step.h"
#include "model/plan.h"
#include "planning/run_file.h"

typedef struct ls_session_options {
    const char *run_dir; /* of the run that goes on: holds the tokenizer it trained; NULL: a new run */
    uint64_t threads;    /* per rank; 0: from the run file, else cores / ranks, at least 1 */
    bool is_rank;        /* this process is one rank of a gang, whatever the run file says of ranks */
    /* As those of ls_dataset_options; NULL: none. */
    ls_dataset_progress progress;
    void (*tell)(void *context, const char *text);
    ls_status (*stop)(void *context);
    void *context; /* of all three */
} ls_session_options;

typedef struct ls_session {
    ls_arena *arena; /* the caller's, holds the tables */
    ls_run_file run; /* resolved */
    uint32_t ranks;  /* processes that compute; 1: this one, unless it is a gang */
    bool
        is_gang; /* ranks are processes of their own: several, or one of a run that may get more (job.elastic) */
    uint64_t threads_asked; /* per rank, 0: cores / ranks */
    ls_queue *queue; /* with the threads of all ranks of this host: what they leave idle, evaluation uses */
    ls_tokenizer *tokenizer; /* NULL: model.from has none, and the data are token files */
    ls_dataset *dataset;
    ls_model_file *source; /* model.from, until its weights were taken; else NULL */
    ls_hf_file
        *carried; /* what goes from model.from into checkpoints, its tokenizer most of all; in `arena` */
    size_t carried_count; /* 0 with another tokenizer: its settings would not fit */
    ls_model_config config;
    ls_layout layout;
    ls_plan plan; /* of a training micro-batch */
    ls_memory_plan memory;
    uint64_t evaluation_bytes, generation_bytes; /* beside the memory plan */
    uint64_t
        snapshot_bytes; /* a second copy of parameters and moments, for saving while steps go on; 0: steps wait */
    uint64_t process_bytes; /* program, tables, kernel scratch, buffers of saving: measured, not planned */
    ls_plan_flops flops;    /* of a micro-batch */
    char identity[LS_SHA256_HEX_BYTES];
} ls_session;

/* run: as loaded (planning/run_file.h); its strings live in `arena`. On error everything is released. */
LS_MUST_CHECK ls_status ls_session_open(ls_arena *arena, const ls_run_file *run,
                                        const ls_session_options *options, ls_session *session_out);
void ls_session_close(ls_session *session);

/* The learning rate as the run file has it. */
ls_schedule ls_session_schedule(const ls_session *session);
/* What a stepper of this run computes with: everything but should_stop. Samples are drawn from the session, which must outlive it. */
ls_step_settings ls_session_step_settings(ls_session *session);
/* Weights at step 0: fresh ones of the seed, or those of model.from. Errors: those of ls_model_file_load. */
LS_MUST_CHECK ls_status ls_session_begin_weights(const ls_session *session, ls_state *state);

/* Micro-batches of a step. */
uint64_t ls_session_micro_batches(const ls_session *session);
/* Model FLOPs of a step by the full-attention convention (what MFU counts), and with recomputation (HFU). */
double ls_session_step_flops(const ls_session *session, bool with_recompute);
/* Threads of each rank when `ranks` of them share this host. */
uint32_t ls_session_rank_threads(const ls_session *session, uint32_t ranks);
/* What a process of so many threads holds beside planned buffers. */
uint64_t ls_session_process_bytes(const ls_session *session, uint32_t threads);
/* What whoever saves checkpoints holds while it does. */
uint64_t ls_session_save_bytes(const ls_session *session);
/* All bytes the run will hold, in all its processes on this host. */
uint64_t ls_session_bytes(const ls_session *session);

/* LS_ERR_MEMORY, with the memory plan in the text, when the machine has less than the run will need. */
LS_MUST_CHECK ls_status ls_session_check_memory(const ls_session *session);

/* What `train --dry-run` prints: model, batch, memory plan, FLOPs. */
void ls_session_describe(const ls_session *session, ls_text *text);
/* The same for --json. */
json_t *ls_session_to_json(const ls_session *session);

#endif

// SPDX-License-Identifier: Apache-2.0
/* A run that trains an adapter: its settings, its base and how it begins. */
#include "base/assert.h"
#include "execution/train/adapter_check.h"
#include "execution/train/session_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* adapter.from decides what an adapter is; a setting that says otherwise is refused. */
static ls_status take_settings(ls_session *session)
{
    ls_run_adapter *run = &session->run.adapter;
    LS_TRY(ls_adapter_file_open(run->from, &session->adapter));
    const ls_adapter *from = ls_adapter_file_settings(session->adapter);
    if (run->rank != LS_RUN_FILE_RANK && run->rank != from->rank) {
        return ls_fail(LS_ERR_INVALID,
                       "adapter.rank is %" PRIu64 ", but the adapter in adapter.from has rank %u; remove the "
                       "key",
                       run->rank, from->rank);
    }
    run->rank = from->rank;
    run->alpha = from->alpha;
    run->rslora = from->rslora;
    run->targets.items = ls_arena_new(session->arena, const char *, from->target_count);
    run->targets.count = from->target_count;
    memcpy(run->targets.items, from->targets, from->target_count * sizeof *from->targets);
    return LS_OK;
}

/* Tokens beyond the embeddings would never be trained. */
static ls_status check_vocab(const ls_session *session)
{
    const int64_t vocab = session->config.vocab, base = session->source->config.vocab;
    if (vocab <= base) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID,
                   "the run has a vocabulary of %" PRId64 " ids, but the embeddings of %s have %" PRId64
                   " rows, and with adapter.kind: lora they are frozen, so that new rows would never be "
                   "trained; use a tokenizer with at most %" PRId64 " ids, or train the whole model",
                   vocab, session->run.model.from, base, base);
}

ls_status ls_session_adapt(ls_session *session, bool has_begun)
{
    ls_run_adapter *run = &session->run.adapter;
    LS_ASSERT(session->source);
    if (session->source->adapter) {
        return ls_fail(LS_ERR_INVALID,
                       "model.from names a model with an adapter, %s; to continue training that adapter, set "
                       "model.from to its base model and adapter.from to the adapter; to train a new adapter "
                       "on top of both, first merge the old one into its base model with 'lockstep export'",
                       run->from[0] ? run->from : session->run.model.from);
    }
    LS_TRY(check_vocab(session));
    if (ls_session_is_on_gpu(session) && run->dropout > 0.0) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "adapter.dropout is %g, which only a CPU computes, and this run computes on a GPU; set "
            "adapter.dropout: 0, or train.device: cpu",
            run->dropout);
    }
    /* A run that has begun has them in its run file. */
    LS_TRY(run->from[0] && !has_begun ? take_settings(session) : LS_OK);
    char *path = realpath(session->source->path, NULL);
    session->base_path = ls_arena_strdup(session->arena, path ? path : session->source->path);
    free(path);
    const ls_adapter adapter = {.rank = (uint32_t)run->rank,
                                .alpha = run->alpha,
                                .rslora = run->rslora,
                                .dropout = run->dropout,
                                .targets = run->targets.items,
                                .target_count = run->targets.count};
    const ls_base base = ls_base_of_kind(run->base);
    return ls_layout_build_adapter(session->arena, &session->config, &adapter, &base, &session->layout);
}

const char *ls_session_base_digest(const ls_session *session)
{
    return session->layout.adapter ? session->base_digest : NULL;
}

ls_status ls_session_load_base(ls_session *session, ls_state *state)
{
    char digest[LS_SHA256_HEX_BYTES];
    if (!session->layout.adapter) {
        return LS_OK;
    }
    LS_ASSERT(session->source);
    LS_TRY(ls_base_load(session->source, &session->layout, state ? ls_state_host(state)->parameters : NULL,
                        digest));
    if (session->base_digest[0] && strcmp(session->base_digest, digest) != 0) {
        return ls_fail(
            LS_ERR_DATA,
            "the base of the adapter, model.from %s, has changed: it has digest %.16s, and the run "
            "was started on %.16s; restore it, or start over with --fresh",
            session->run.model.from, digest, session->base_digest);
    }
    memcpy(session->base_digest, digest, sizeof digest);
    return state ? ls_state_from_host(state) : LS_OK;
}

ls_status ls_session_begin_adapter(ls_session *session, ls_state *state)
{
    float *parameters = ls_state_host(state)->parameters;
    const ls_init_rule rule = {
        .seed = session->run.train.seed, .std = session->config.init_std, .layers = session->config.layers};
    const char *from = session->run.adapter.from;
    if (from[0]) {
        LS_TRY(session->adapter ? LS_OK : ls_adapter_file_open(from, &session->adapter));
        LS_TRY(ls_adapter_file_read(session->adapter, &session->layout, parameters));
    }
    for (uint32_t i = 0; i < session->layout.trained_count && !from[0]; i++) {
        const ls_parameter *p = &session->layout.parameters[i];
        ls_parameter_init(&session->layout, i, &rule, 0, p->rows * p->cols, parameters);
    }
    LS_TRY(ls_session_load_base(session, state));
    return ls_adapter_file_check_base(session->adapter, session->run.model.from, session->base_digest);
}

ls_status ls_session_merge_tokens(const ls_session *session, ls_arena *arena, const char **text_out)
{
    const size_t length = (size_t)session->run.model.context;
    const ls_sample sample = {.tokens = ls_arena_new(arena, int32_t, length),
                              .targets = ls_arena_new(arena, int32_t, length),
                              .first = ls_arena_new(arena, int32_t, length),
                              .record = ls_arena_new(arena, int32_t, length)};
    LS_TRY(ls_dataset_sample(session->dataset, LS_SPLIT_TRAIN, session->run.train.seed, 0, &sample));
    ls_text text = {0};
    for (size_t i = 0; i < length && i < LS_MERGE_TOKENS_MAX; i++) {
        ls_text_printf(&text, "%s%" PRId32, i > 0 ? ", " : "[", sample.tokens[i]);
    }
    ls_text_append(&text, "]\n");
    *text_out = ls_arena_strdup(arena, ls_text_string(&text));
    ls_text_release(&text);
    return LS_OK;
}

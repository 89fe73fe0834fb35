// SPDX-License-Identifier: Apache-2.0
/* What a session tells a stepper: samples and settings. */
#include "execution/train/session_internal.h"

ls_schedule ls_session_schedule(const ls_session *session)
{
    const ls_run_train *train = &session->run.train;
    return (ls_schedule){
        .kind = train->schedule.kind,
        .lr = train->optimizer.lr,
        .steps = train->schedule.steps,
        .warmup_steps = train->schedule.warmup_steps,
        .final_fraction = train->schedule.final_lr_fraction,
        .decay_fraction = train->schedule.decay_fraction,
    };
}

/* The last step whose samples are expected when the n-th step of this process draws its own: few in
 * the beginning, so that what the first steps need is not kept waiting by what comes later. */
static uint64_t expected_until(uint64_t n, uint64_t steps_ahead)
{
    const uint64_t growing = n < 16 ? (UINT64_C(2) << n) - 1 : steps_ahead;
    return n + (growing < steps_ahead ? growing : steps_ahead);
}

/*
 * What a rank draws at a position of a step, it will most likely draw at the same position of the
 * steps that follow. So streamed data are expected some steps ahead; in the first step the rest of
 * a leaf, too.
 */
static void expect_samples(ls_session *session, uint64_t position)
{
    enum { SAMPLES_AHEAD = 512, STEPS_MIN = 2, STEPS_MAX = 32 };
    const ls_run_train *train = &session->run.train;
    const uint64_t batch = train->global_batch, leaf = batch / train->leaves, step = position / batch;
    const uint64_t wanted = SAMPLES_AHEAD / batch;
    const uint64_t ahead = wanted < STEPS_MIN ? STEPS_MIN : wanted > STEPS_MAX ? STEPS_MAX : wanted;
    if (session->expects_since == 0 || step + 1 < session->expects_since) {
        session->expects_since = step + 1;
    }
    const uint64_t first = session->expects_since - 1, n = step - first;
    const uint64_t samples = (train->steps - first) * batch / (session->data_hosts ? session->data_hosts : 1);
    for (uint64_t i = 1; i < leaf && n == 0 && position % leaf == 0; i++) {
        ls_dataset_expect(session->dataset, train->seed, position + i, samples);
    }
    const uint64_t from = n == 0 ? 0 : expected_until(n - 1, ahead), until = expected_until(n, ahead);
    for (uint64_t k = from + 1 - n; k <= until - n && step + k < train->steps; k++) {
        ls_dataset_expect(session->dataset, train->seed, position + k * batch, samples);
    }
}

static ls_status draw_sample(void *context, uint64_t position, const ls_sample *sample)
{
    ls_session *session = context;
    if (ls_dataset_is_streamed(session->dataset)) {
        expect_samples(session, position);
    }
    return ls_dataset_sample(session->dataset, LS_SPLIT_TRAIN, session->run.train.seed, position, sample);
}

/* Source and epoch of a sample, as dropout counts them. */
static uint32_t pass_of(void *context, uint64_t position)
{
    const ls_session *session = context;
    const ls_dataset_draw draw = ls_dataset_draw_at(session->dataset, session->run.train.seed, position);
    return (draw.source & 0xff) << 16 | (uint32_t)(draw.epoch & 0xffff);
}

ls_local ls_session_local(const ls_session *session)
{
    const ls_run_local *local = &session->run.train.local;
    return (ls_local){.steps = local->steps,
                      .workers = local->steps > 0 ? (uint32_t)local->workers : 1,
                      .outer_lr = (float)local->outer_lr,
                      .outer_momentum = (float)local->outer_momentum,
                      .form = {.kind = local->bits == 8   ? LS_COMPRESSION_INT8
                                       : local->bits == 4 ? LS_COMPRESSION_INT4
                                                          : LS_COMPRESSION_NONE},
                      .delay = local->delay,
                      .fragments = (uint32_t)local->fragments,
                      .resets = local->moments == LS_LOCAL_RESET};
}

/* Tokens of a group whose gradients are compressed; 0: there are none. */
static double group_tokens(const ls_run_file *run)
{
    const double tokens = (double)(run->train.global_batch * run->model.context);
    return tokens * ls_run_file_group(run) / (double)run->train.leaves;
}

ls_step_settings ls_session_step_settings(ls_session *session)
{
    const ls_run_train *train = &session->run.train;
    const ls_local local = ls_session_local(session);
    /* The guards know one set of parameters and moments. */
    const bool is_guarded = local.steps == 0;
    return (ls_step_settings){
        .leaves = (uint32_t)ls_run_file_rank_leaves(&session->run, false),
        .global_batch = (uint32_t)train->global_batch / local.workers,
        .local = local,
        .group = ls_run_file_group(&session->run),
        .compression = ls_run_file_compression(&session->run),
        .changes = {.kind = train->compression.weights},
        .compression_warmup = train->schedule.warmup_steps,
        .micro_batch = (uint32_t)train->micro_batch,
        .clip_norm = train->clip_norm,
        .beta1 = (float)train->optimizer.beta1,
        .beta2 = (float)train->optimizer.beta2,
        .eps = (float)train->optimizer.eps,
        .group_eps = (float)(train->optimizer.eps * group_tokens(&session->run)),
        .weight_decay = (float)train->optimizer.weight_decay,
        .sample = draw_sample,
        .sample_context = session,
        .pass = session->run.adapter.dropout > 0.0 ? pass_of : NULL,
        .documents = ls_dataset_has_documents(session->dataset),
        .seed = train->seed,
        .audit_every_steps = is_guarded ? train->audit_every_steps : 0,
        .hash_every_steps = is_guarded ? train->hash_every_steps : 0,
    };
}

// SPDX-License-Identifier: Apache-2.0
/* The sources of a weighted mixture, one by one, and warnings for runs that start from a model. */
#include "execution/train/session.h"

#include <inttypes.h>
#include <math.h>

/* Beyond these, fine-tuning usually costs a model more than it gains. */
static const double IMPORTED_EPOCHS_MAX = 20.0;
static const double HIGH_RATE = 5.0; /* in usual rates */

double ls_tuning_rate(double parameters, bool has_adapter)
{
    const double rate = fmin(fmax(2e-5 * sqrt(1e9 / parameters), 2e-5), 5e-4);
    return has_adapter ? fmin(10.0 * rate, 1e-3) : rate;
}

/* The samples of the first `steps` steps that come from source `i`: exact to about one. */
static double samples_of(const ls_session *session, size_t i, uint64_t steps)
{
    double sum = 0.0;
    for (size_t k = 0; k < session->source_count; k++) {
        sum += session->sources[k].weight;
    }
    return (double)(steps * session->run.train.global_batch) * session->sources[i].weight / sum;
}

static double epochs_of(const ls_session *session, size_t i, uint64_t steps)
{
    return samples_of(session, i, steps) / (double)ls_dataset_source_samples(session->dataset, (uint32_t)i);
}

json_t *ls_session_sources_to_json(const ls_session *session, uint64_t steps,
                                   const ls_evaluation_part *validation)
{
    if (session->source_count < 2) {
        return NULL;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < session->source_count; i++) {
        const bool is_known = validation && validation[i].tokens > 0;
        json_array_append_new(
            list,
            json_pack("{s:s, s:f, s:I, s:f, s:o, s:I}", "source", session->sources[i].patterns[0], "share",
                      samples_of(session, i, 1) / (double)session->run.train.global_batch, "tokens",
                      (json_int_t)llround(samples_of(session, i, steps) * (double)session->run.model.context),
                      "epochs", epochs_of(session, i, steps), "val_loss",
                      is_known ? json_real(validation[i].loss_sum / (double)validation[i].tokens)
                               : json_null(),
                      "val_tokens", (json_int_t)(validation ? validation[i].tokens : 0)));
    }
    return list;
}

void ls_session_describe_sources(const ls_session *session, ls_text *text)
{
    const uint64_t steps = session->run.train.steps;
    for (size_t i = 0; i < session->source_count && session->source_count > 1; i++) {
        ls_text_printf(text,
                       "source  %s: %.3g %% of the samples, %.0f tokens of the run, %.2f epochs of its "
                       "%" PRIu64 " tokens\n",
                       session->sources[i].patterns[0],
                       100.0 * samples_of(session, i, 1) / (double)session->run.train.global_batch,
                       samples_of(session, i, steps) * (double)session->run.model.context,
                       epochs_of(session, i, steps),
                       ls_dataset_stream_tokens(session->dataset, LS_SPLIT_TRAIN, (uint32_t)i));
    }
}

void ls_session_describe_warnings(const ls_session *session, ls_text *text)
{
    const ls_run_file *run = &session->run;
    double epochs = 0.0;
    for (size_t i = 0; i < session->source_count; i++) {
        epochs = fmax(epochs, epochs_of(session, i, run->train.steps));
    }
    if (run->model.from[0] && epochs > IMPORTED_EPOCHS_MAX) {
        ls_text_printf(text,
                       "warning the run reads its %straining data %.0f times (epochs). For a model that is "
                       "already trained, 1 to 5 are usual; set train.epochs\n",
                       session->source_count > 1 ? "most repeated " : "", epochs);
    }
    const bool has_adapter = run->adapter.kind == LS_ADAPTER_LORA;
    const ls_layout *layout = &session->layout;
    const double parameters = (double)(has_adapter ? layout->frozen_elements : layout->element_count);
    const double usual = ls_tuning_rate(parameters, has_adapter);
    if (run->model.from[0] && run->train.optimizer.lr > HIGH_RATE * usual) {
        ls_text_printf(
            text,
            "warning train.optimizer.lr is %g. For %s of this size that is already "
            "trained, about %.1g is usual; a much higher rate can destroy what the model has learned\n",
            run->train.optimizer.lr, has_adapter ? "an adapter on a model" : "a model", usual);
    }
    const uint64_t audits = run->train.audit_every_steps;
    if (audits > 0 && audits != LS_RUN_FILE_AUDIT_STEPS && ls_mesh_crew(ls_session_mesh(session)) > 1) {
        ls_text_printf(text,
                       "warning train.audit_every_steps is %" PRIu64 ", but ranks that divide a model "
                       "cannot compute a leaf alone, so none is computed twice; the state is still hashed "
                       "(train.hash_every_steps)\n",
                       audits);
    }
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Emit: the calls by which every layer reports numbers and events. Telemetry installs the sink that
 * keeps them. Without a sink the calls do nothing.
 *
 * One sink per process, installed before threads start; calls come from one thread at a time.
 */
#ifndef LS_BASE_EMIT_H
#define LS_BASE_EMIT_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

/* Figures of one training step. Times are wall seconds and parts of step_s. */
typedef struct ls_step_metrics {
    uint64_t step; /* finished steps, 1-based */
    float loss;    /* mean over tokens, nats */
    double lr;
    double grad_norm;
    uint64_t tokens;      /* of this step */
    uint64_t loss_tokens; /* those of them with a target */
    double step_s, tokens_per_s;
    double data_s, forward_s, backward_s, reduce_s, optimizer_s;
    double wait_s; /* for other ranks */
    /* that the first rank sent to other hosts, and would have with sums of float32 gradients in
     * this step; 0: one host */
    uint64_t link_bytes, dense_bytes;
    /* by how much the latter would have made the step longer, at the fastest rate of any step so
     * far; below 0 in a step that sends for others too */
    double saved_s;
    double residual_norm; /* of what compression left over of gradients; NAN, 0: not known, none */
    double mfu, hfu;      /* fractions of the measured peak; 0: not known */
    uint64_t rss_bytes;
    bool has_val_loss; /* the state after this step was evaluated */
    double val_loss;   /* then its mean over validation tokens, nats */
} ls_step_metrics;

typedef struct ls_emit_sink {
    void (*step)(void *context, const ls_step_metrics *metrics);
    void (*event)(void *context, const char *name, json_t *fields); /* owns `fields`, an object */
    void *context;
} ls_emit_sink;

/* Installs (or with NULL removes) the sink; it is copied. */
void ls_emit_install(const ls_emit_sink *sink);

void ls_emit_step(const ls_step_metrics *metrics);

/* fields: an object whose reference is taken over; NULL for none. */
void ls_emit_event(const char *name, json_t *fields);

#endif

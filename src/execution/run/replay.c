// SPDX-License-Identifier: Apache-2.0
#include "execution/run/replay.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "compute/kernels/elementwise.h"
#include "execution/integrity/audit.h"
#include "execution/train/session.h"
#include "telemetry/record/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct replay {
    const ls_replay_options *options;
    ls_arena arena;
    ls_session session;
    ls_state state;
    float *gradient; /* of the leaf, as the host reads it */
    ls_executor executor;
    ls_stepper *stepper;
    ls_file_map metrics; /* empty if there is no file */
    ls_line_reader reader;
    uint64_t from;        /* step of the checkpoint; 0: the run file's weights */
    uint64_t compared;    /* steps computed again whose loss the run recorded */
    uint64_t other;       /* of those, steps whose loss differs */
    json_t *ops;          /* NULL: not traced */
    uint32_t micro_batch; /* of the trace */
    uint32_t last_op;
} replay;

static void say(const replay *r, const char *format, ...) LS_PRINTF(2, 3);
static void say(const replay *r, const char *format, ...)
{
    if (r->options->out) {
        va_list args;
        va_start(args, format);
        vfprintf(r->options->out, format, args);
        va_end(args);
        fflush(r->options->out);
    }
}

/* ---- the run ---- */

static ls_status open_session(replay *r)
{
    const char *dir = r->options->run_dir, *path = ls_path_join(&r->arena, dir, "run.yaml");
    if (!ls_path_exists(path)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a run directory: it has no run.yaml", dir);
    }
    ls_run_file run;
    LS_TRY(ls_run_file_load(path, NULL, 0, &r->arena, &run));
    const ls_session_options options = {.run_dir = dir, .threads = r->options->threads};
    const ls_status status = ls_session_open(&r->arena, &run, &options, &r->session);
    if (status == LS_ERR_NOT_FOUND) {
        return ls_fail_within(
            status,
            "cannot find the data of the run in %s (start replay in the folder in which the run was started)",
            dir);
    }
    return status;
}

static ls_status check_question(const replay *r)
{
    const ls_run_train *train = &r->session.run.train;
    const ls_replay_options *o = r->options;
    if (train->local.steps > 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the run in %s has local steps (train.local.steps), which cannot be replayed in this "
                       "version",
                       o->run_dir);
    }
    if (o->step < 1 || o->step > train->steps) {
        return ls_fail(LS_ERR_INVALID,
                       "step %" PRIu64 " does not exist: the run in %s has steps 1 to %" PRIu64, o->step,
                       o->run_dir, train->steps);
    }
    if (o->leaf != LS_NO_LEAF && o->leaf >= train->leaves) {
        return ls_fail(LS_ERR_INVALID,
                       "leaf %u does not exist: the batch of each step of the run in %s is divided into "
                       "leaves 0 to %" PRIu64,
                       o->leaf, o->run_dir, train->leaves - 1);
    }
    return LS_OK;
}

static ls_status take_memory(replay *r)
{
    ls_session *s = &r->session;
    LS_TRY(ls_session_check_memory(s));
    LS_TRY(
        ls_state_init(&r->state, s->device, ls_session_activations(s), &s->layout, s->memory.tree_buffers));
    LS_TRY(ls_state_add_residuals(&r->state, s->run.train.compression.kind,
                                  (uint32_t)s->run.train.compression.groups));
    LS_TRY(ls_executor_init(&r->executor, s->device, &s->plan, s->plan.options.length));
    const ls_step_settings settings = ls_session_step_settings(s);
    return ls_stepper_create(&r->executor, &r->state, &settings, &r->stepper);
}

/* ---- the state before the step ---- */

static void warn_of_class(const replay *r, const ls_checkpoint *checkpoint)
{
    const char *now = ls_queue_determinism_class(r->session.device);
    if (strcmp(checkpoint->meta.determinism, now) != 0) {
        ls_log_warn("the checkpoint was computed in determinism class %s, and this machine has class %s: the "
                    "last bits "
                    "may differ from those of the run",
                    checkpoint->meta.determinism, now);
    }
}

/* Loads the newest checkpoint of a step before `before`; without one, r->from stays 0. A damaged
 * one is skipped. */
static ls_status load_checkpoint(replay *r, uint64_t before)
{
    const char *root = ls_path_join(&r->arena, r->options->run_dir, "checkpoints");
    size_t count = 0;
    const ls_checkpoint_tensor *tensors = ls_state_tensors(&r->arena, ls_state_host(&r->state), &count);
    const ls_checkpoint_load_options options = {.threads = ls_queue_threads(r->session.queue)};
    for (;;) {
        ls_checkpoint_latest latest = {0};
        const ls_status found =
            ls_checkpoint_find_latest(&r->arena, root, r->session.identity, before, &latest);
        if (found != LS_OK) {
            return ls_fail_within(found, "the run's data or settings have changed");
        }
        if (!latest.checkpoint) {
            return LS_OK;
        }
        const uint64_t step = latest.checkpoint->meta.step;
        const ls_status status = ls_checkpoint_load(latest.checkpoint, tensors, count, &options);
        if (status == LS_OK) {
            LS_TRY(ls_state_from_host(&r->state));
            ls_state_turn_residuals(&r->state, step);
            r->from = step;
            warn_of_class(r, latest.checkpoint);
        }
        ls_checkpoint_close(latest.checkpoint);
        if (status != LS_ERR_DATA) {
            return status;
        }
        ls_log_warn("checkpoint %" PRIu64 " cannot be used: %s", step, ls_error_text());
        before = step;
    }
}

static ls_status load_state(replay *r)
{
    LS_TRY(load_checkpoint(r, r->options->step));
    if (r->from > 0) {
        return ls_session_load_base(&r->session, &r->state);
    }
    /* Clears what a damaged checkpoint may have left in the buffers. */
    const size_t bytes = (size_t)r->session.layout.float_count * sizeof(float);
    const ls_state *host = ls_state_host(&r->state);
    memset(host->parameters, 0, (size_t)r->session.layout.parameter_floats * sizeof(float));
    memset(host->m, 0, bytes);
    memset(host->v, 0, bytes);
    for (uint32_t i = 0; i < host->residual_count; i++) {
        memset(host->residuals[0][i], 0, bytes);
    }
    return ls_session_begin_weights(&r->session, &r->state);
}

/* ---- the steps between ---- */

/* What the run recorded of `step`. Must be called with rising steps: the file is read only once. */
static bool recorded_step(replay *r, uint64_t step, ls_step_metrics *metrics_out)
{
    ls_line_kind kind;
    while ((kind = ls_metrics_reader_next(&r->reader, metrics_out)) != LS_LINE_END) {
        if (kind == LS_LINE_GOOD && metrics_out->step >= step) {
            r->reader.offset = r->reader.line_offset; /* this step may be asked for again */
            return metrics_out->step == step;
        }
    }
    return false;
}

static void announce_steps(replay *r, uint64_t last)
{
    char from[64], estimate[64] = "";
    ls_step_metrics metrics;
    snprintf(from, sizeof from, r->from > 0 ? "checkpoint %" PRIu64 : "the initial weights of the run",
             r->from);
    if (recorded_step(r, r->from + 1, &metrics) && metrics.step_s > 0.0) {
        snprintf(estimate, sizeof estimate, ", which takes about %.1f s at the speed of the run",
                 metrics.step_s * (double)(last - r->from));
    }
    say(r,
        "the newest state before step %" PRIu64 " is %s: computing steps %" PRIu64 " to %" PRIu64
        " first%s\n",
        r->options->step, from, r->from + 1, last, estimate);
}

static bool same_bits(float a, float b)
{
    uint32_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof bits_a);
    memcpy(&bits_b, &b, sizeof bits_b);
    return bits_a == bits_b;
}

/* Compares the loss of a step with the recorded one and reports a difference. */
static void compare_step(replay *r, uint64_t step, float loss)
{
    ls_step_metrics recorded;
    if (!recorded_step(r, step, &recorded)) {
        return;
    }
    r->compared++;
    if (!same_bits(recorded.loss, loss)) {
        r->other++;
        ls_log_warn(
            "step %" PRIu64
            ": the run recorded loss %.9g, but computed again it is %.9g: either one of the two was computed "
            "wrongly, or they were computed on machines with different last bits (determinism class)",
            step, (double)recorded.loss, (double)loss);
    }
}

static ls_status compute_steps(replay *r)
{
    const uint64_t last = r->options->step - 1;
    if (r->from == last) {
        return LS_OK;
    }
    const ls_schedule schedule = ls_session_schedule(&r->session);
    announce_steps(r, last);
    for (uint64_t step = r->from; step < last; step++) {
        ls_step_result result;
        LS_TRY(ls_stepper_run(r->stepper, step, ls_schedule_lr(&schedule, step), &result));
        compare_step(r, step + 1, result.loss);
    }
    say(r, "%" PRIu64 " of %" PRIu64 " steps have the loss that the run recorded\n", r->compared - r->other,
        last - r->from);
    return LS_OK;
}

/* ---- the trace ---- */

static bool print_range(void *context, const ls_op_range *range)
{
    replay *r = context;
    if (range->step < r->last_op) {
        r->micro_batch++;
    }
    r->last_op = range->step;
    char what[256];
    ls_op_range_describe(range, what, sizeof what);
    say(r, "%3u.%-4u min %12.5g  max %12.5g  rms %12.5g  %s", r->micro_batch, range->step, range->min,
        range->max, range->rms, what);
    if (range->nonfinite > 0) {
        say(r, "  <-- %" PRId64 " NOT FINITE", range->nonfinite);
    }
    say(r, "\n");
    json_array_append_new(
        r->ops,
        json_pack("{s:i, s:i, s:i, s:s, s:s, s:s, s:b, s:I, s:I, s:f, s:f, s:f, s:I}", "micro_batch",
                  (int)r->micro_batch, "op", (int)range->step, "layer", range->layer, "kind", range->op,
                  "phase", range->phase, "name", range->name, "gradient", range->is_gradient, "rows",
                  (json_int_t)range->rows, "cols", (json_int_t)range->cols, "min", range->min, "max",
                  range->max, "rms", range->rms, "not_finite", (json_int_t)range->nonfinite));
    return true;
}

static ls_status trace_leaf(replay *r, uint32_t leaf)
{
    r->ops = json_array();
    r->micro_batch = r->last_op = 0;
    say(r,
        "leaf %u, op by op: number of the micro-batch, number of the op in it, and the range of the finite "
        "values that it wrote\n",
        leaf);
    return ls_stepper_trace_leaf(r->stepper, r->options->step - 1, leaf, print_range, r);
}

/* ---- the result ---- */

/* The gradient of the leaf as the host reads it. */
static ls_status fetch_gradient(replay *r)
{
    const size_t floats = (size_t)r->session.layout.float_count;
    r->gradient = r->state.gradients[0];
    if (!r->state.mirror) {
        return LS_OK;
    }
    r->gradient = ls_arena_new(&r->arena, float, floats);
    LS_TRY(ls_queue_move(r->session.device, r->gradient, r->state.gradients[0], floats * sizeof(float)));
    return ls_queue_wait(r->session.device);
}

/* SHA-256 of the gradient in the order of parameter names, like state_hash: independent of the
 * layout of the flat buffer. */
static void gradient_sha256(replay *r, char hex_out[LS_SHA256_HEX_BYTES])
{
    const ls_layout *layout = &r->session.layout;
    const uint32_t *order = ls_layout_by_name(&r->arena, layout);
    ls_sha256 hash;
    ls_sha256_init(&hash);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[order[i]];
        if (p->frozen) {
            continue;
        }
        ls_sha256_update(&hash, r->gradient + p->offset, (size_t)(p->rows * p->cols) * sizeof(float));
    }
    ls_sha256_finish(&hash, hex_out);
}

/* The hashes that an audit compares: of the whole gradient, and of each bucket. */
static ls_status audit_hashes(replay *r, double loss_sum, uint64_t tokens, char hex_out[LS_HASH128_HEX_BYTES],
                              json_t **buckets_out)
{
    const ls_layout *layout = &r->session.layout;
    ls_audit audit;
    LS_TRY(ls_audit_init(&audit, r->session.device, layout));
    ls_audit_claim(&audit, LS_CLAIM_JUDGE, 0, r->state.gradients[0], loss_sum, tokens);
    const ls_leaf_claim *claim = &audit.claims[LS_CLAIM_JUDGE];
    say(r, "  audit     %s\n", ls_hash128_hex(claim->whole, hex_out));
    json_t *buckets = json_array();
    for (uint32_t i = 0; i < layout->bucket_count; i++) {
        char hex[LS_HASH128_HEX_BYTES], name[32];
        json_array_append_new(buckets, json_pack("{s:i, s:s, s:s}", "bucket", (int)i, "name",
                                                 ls_bucket_name(layout, i, name), "xxh3",
                                                 ls_hash128_hex(claim->buckets[i], hex)));
        say(r, "  bucket %3u  %s  %s\n", i, hex, name);
    }
    ls_audit_release(&audit);
    *buckets_out = buckets;
    return LS_OK;
}

/* Adds a row per parameter; returns the number of elements that are not finite. */
static int64_t parameter_rows(const replay *r, json_t *rows)
{
    const ls_layout *layout = &r->session.layout;
    int64_t nonfinite = 0;
    say(r, "  %-52s %12s %12s %12s %10s\n", "gradient of", "norm", "min", "max", "not finite");
    for (uint32_t i = 0; i < layout->trained_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const ls_tensor t = ls_tensor_f32(r->gradient + p->offset, p->rows, p->cols);
        ls_op_range range;
        ls_op_range_measure(&t, &range);
        const double norm = range.rms * sqrt((double)(p->rows * p->cols - range.nonfinite));
        nonfinite += range.nonfinite;
        say(r, "  %-52s %12.5g %12.5g %12.5g %10" PRId64 "\n", p->name, norm, range.min, range.max,
            range.nonfinite);
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:f, s:I}", "name", p->name, "norm", norm,
                                              "min", range.min, "max", range.max, "not_finite",
                                              (json_int_t)range.nonfinite));
    }
    return nonfinite;
}

static json_t *finite_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static ls_status report_leaf(replay *r, uint32_t leaf, double loss_sum, uint64_t tokens, bool *finite_out,
                             json_t **result_out)
{
    const ls_run_train *train = &r->session.run.train;
    const uint64_t sequences = train->global_batch / train->leaves;
    const uint64_t first = (r->options->step - 1) * train->global_batch + leaf * sequences;
    char sha256[LS_SHA256_HEX_BYTES];
    LS_TRY(fetch_gradient(r));
    gradient_sha256(r, sha256);
    say(r,
        "step %" PRIu64 ", leaf %u of %" PRIu64 ": samples %" PRIu64 " to %" PRIu64
        "\n  loss      %.9g per token, sum %.17g over %" PRIu64 " tokens\n  gradient  sha256 %s\n",
        r->options->step, leaf, train->leaves, first, first + sequences - 1, loss_sum / (double)tokens,
        loss_sum, tokens, sha256);
    json_t *buckets = NULL, *parameters = json_array();
    char audit_hash[LS_HASH128_HEX_BYTES];
    LS_TRY(audit_hashes(r, loss_sum, tokens, audit_hash, &buckets));
    const int64_t nonfinite = parameter_rows(r, parameters);
    *finite_out = nonfinite == 0 && isfinite(loss_sum);
    *result_out =
        json_pack("{s:s, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:b, s:I, s:s, s:o, s:o, s:s}",
                  "run", r->options->run_dir, "step", (json_int_t)r->options->step, "leaf", (int)leaf,
                  "leaves", (json_int_t)train->leaves, "first_sample", (json_int_t)first, "from_step",
                  (json_int_t)r->from, "steps_compared", (json_int_t)r->compared, "steps_differing",
                  (json_int_t)r->other, "loss", finite_or_null(loss_sum / (double)tokens), "loss_sum",
                  finite_or_null(loss_sum), "tokens", (json_int_t)tokens, "finite", *finite_out, "not_finite",
                  (json_int_t)nonfinite, "gradient_sha256", sha256, "buckets", buckets, "parameters",
                  parameters, "determinism", ls_queue_determinism_class(r->session.device));
    json_object_set_new(*result_out, "audit_hash", json_string(audit_hash));
    json_object_set_new(*result_out, "ops", r->ops ? json_incref(r->ops) : json_null());
    json_object_set_new(*result_out, "first_not_finite", json_null());
    return LS_OK;
}

/* ---- one leaf ---- */

static const char *bad_parameter(const replay *r)
{
    int64_t element = -1;
    const ls_layout *layout = &r->session.layout;
    const ls_tensor weights = ls_state_weights_view(&r->state);
    if (ls_find_nonfinite(r->session.device, &weights, &element) != LS_OK) {
        return NULL;
    }
    for (uint32_t i = 0; element >= 0 && i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        if (element >= p->offset && element < p->offset + p->rows * p->cols) {
            return p->name;
        }
    }
    return NULL;
}

/* The leaf is not finite: names the first op and element where that happened. */
static ls_status name_fault(replay *r, uint32_t leaf, json_t *result)
{
    const uint64_t step = r->options->step;
    const char *parameter = bad_parameter(r);
    ls_leaf_fault fault;
    LS_TRY(ls_stepper_find_nonfinite(r->stepper, step - 1, leaf, &fault));
    const char *where = !fault.found
                            ? "the result of every op is finite, but their sum over the leaf overflowed"
                        : parameter ? ls_arena_printf(&r->arena,
                                                      "%s (parameter %s holds a value that is not finite "
                                                      "before the step)",
                                                      fault.where, parameter)
                                    : fault.where;
    json_object_set_new(result, "first_not_finite", json_string(where));
    return ls_fail(
        LS_ERR_FAILED,
        "step %" PRIu64
        ", leaf %u: a value is infinite or not a number; the first such value is at sample position %" PRIu64
        ": %s",
        step, leaf, fault.position, where);
}

static ls_status replay_leaf(replay *r, uint32_t leaf, json_t **result_out)
{
    double loss_sum = 0.0;
    uint64_t tokens = 0;
    if (r->options->op_trace) {
        LS_TRY(trace_leaf(r, leaf));
    }
    LS_TRY(ls_stepper_run_leaf(r->stepper, r->options->step - 1, leaf, &loss_sum, &tokens));
    bool finite = false;
    const ls_status status = report_leaf(r, leaf, loss_sum, tokens, &finite, result_out);
    json_decref(r->ops);
    r->ops = NULL;
    LS_TRY(status);
    return finite ? LS_OK : name_fault(r, leaf, *result_out);
}

static ls_status run(replay *r, json_t **result_out)
{
    LS_TRY(open_session(r));
    LS_TRY(check_question(r));
    LS_TRY(take_memory(r));
    const char *metrics = ls_path_join(&r->arena, r->options->run_dir, "metrics.jsonl");
    if (ls_path_exists(metrics)) {
        LS_TRY(ls_file_map_open(metrics, &r->metrics));
        r->reader = (ls_line_reader){.text = (const char *)r->metrics.data, .bytes = r->metrics.bytes};
    }
    LS_TRY(load_state(r));
    LS_TRY(compute_steps(r));
    if (r->options->leaf != LS_NO_LEAF) {
        return replay_leaf(r, r->options->leaf, result_out);
    }
    ls_status status = LS_OK;
    for (uint32_t leaf = 0; leaf < r->session.run.train.leaves && status == LS_OK; leaf++) {
        json_decref(*result_out);
        *result_out = NULL;
        status = replay_leaf(r, leaf, result_out);
    }
    return status;
}

ls_status ls_replay(const ls_replay_options *options, json_t **result_out)
{
    replay r = {.options = options};
    *result_out = NULL;
    const ls_status status = run(&r, result_out);
    ls_file_map_close(&r.metrics);
    ls_stepper_destroy(r.stepper);
    ls_executor_release(&r.executor);
    ls_state_release(&r.state);
    ls_session_close(&r.session);
    ls_arena_release(&r.arena);
    return status;
}

/* ---- the command ---- */

static bool is_plain(const char *text)
{
    return text[0] != '\0' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%") ==
               strlen(text);
}

const char *ls_shell_quote(ls_arena *arena, const char *word)
{
    if (is_plain(word)) {
        return ls_arena_strdup(arena, word);
    }
    ls_text text = {0};
    ls_text_append(&text, "'");
    for (; *word; word++) {
        *word == '\'' ? ls_text_append(&text, "'\\''") : ls_text_append_bytes(&text, word, 1);
    }
    ls_text_append(&text, "'");
    return ls_text_keep(&text, arena);
}

const char *ls_replay_command(ls_arena *arena, const char *run_dir, uint64_t step, uint32_t leaf)
{
    const char *dir = ls_shell_quote(arena, run_dir);
    return leaf == LS_NO_LEAF
               ? ls_arena_printf(arena, "lockstep replay %s --step %" PRIu64 " --op-trace", dir, step)
               : ls_arena_printf(arena, "lockstep replay %s --step %" PRIu64 " --leaf %u --op-trace", dir,
                                 step, leaf);
}

// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/summary.h"

#include "base/file.h"
#include "base/text.h"

#include <math.h>

enum { SUMMARY_BYTES_MAX = 1 << 20 };

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* For numbers that are never 0 when they are known. */
static json_t *positive_or_null(double value)
{
    return isfinite(value) && value > 0.0 ? json_real(value) : json_null();
}

static json_t *count_or_null(uint64_t value)
{
    return value > 0 ? json_integer((json_int_t)value) : json_null();
}

static json_t *hash_or_null(const char *hex)
{
    return hex[0] ? json_string(hex) : json_null();
}

json_t *ls_summary_to_json(const ls_summary *s)
{
    json_t *predicted = json_object();
    json_object_set_new(predicted, "memory_bytes", count_or_null(s->predicted_memory_bytes));
    json_object_set_new(predicted, "step_s", positive_or_null(s->predicted_step_s));
    json_object_set_new(predicted, "tokens_per_s", positive_or_null(s->predicted_tokens_per_s));
    json_object_set_new(predicted, "checkpoint_stall_s", positive_or_null(s->predicted_checkpoint_stall_s));
    json_object_set_new(predicted, "doubt",
                        s->prediction_doubt && s->prediction_doubt[0] ? json_string(s->prediction_doubt)
                                                                      : json_null());
    json_object_set_new(predicted, "flops_per_step", positive_or_null(s->flops_per_step));
    if (s->predicted_mesh) {
        json_object_update(predicted, s->predicted_mesh);
    }
    json_t *o = json_object();
    json_object_set_new(o, "run", json_string(s->run));
    json_object_set_new(o, "run_dir", json_string(s->run_dir));
    json_object_set_new(o, "status", json_string(s->status));
    json_object_set_new(o, "parameters", count_or_null(s->parameters));
    json_object_set_new(o, "frozen_parameters",
                        s->parameters > 0 ? json_integer((json_int_t)s->frozen_parameters) : json_null());
    json_object_set_new(o, "step", json_integer((json_int_t)s->step));
    json_object_set_new(o, "steps", json_integer((json_int_t)s->steps));
    json_object_set_new(o, "loss", number_or_null(s->loss));
    json_object_set_new(o, "val_loss", number_or_null(s->val_loss));
    json_object_set_new(o, "val_loss_per_byte", number_or_null(s->val_loss_per_byte));
    json_object_set_new(o, "tokens", json_integer((json_int_t)s->tokens));
    json_object_set_new(o, "tokens_per_s", number_or_null(s->tokens_per_s));
    json_object_set_new(o, "mfu", number_or_null(s->mfu));
    json_object_set_new(o, "hfu", number_or_null(s->hfu));
    json_object_set_new(o, "peak_rss_bytes", count_or_null(s->peak_rss_bytes));
    json_object_set_new(o, "wall_s", number_or_null(s->wall_s));
    json_object_set_new(o, "first_step_s", number_or_null(s->first_step_s));
    json_object_set_new(o, "step_s", positive_or_null(s->step_s));
    json_object_set_new(o, "checkpoint_stall_s", positive_or_null(s->checkpoint_stall_s));
    json_object_set_new(o, "goodput", number_or_null(s->goodput));
    json_object_set_new(o, "state_hash", hash_or_null(s->state_hash));
    json_object_set_new(o, "curve_hash", hash_or_null(s->curve_hash));
    json_object_set_new(o, "code", s->code ? json_string(s->code) : json_null());
    json_object_set_new(o, "recoveries", s->recoveries ? json_incref(s->recoveries) : json_array());
    json_object_set_new(o, "predicted", predicted);
    json_object_set_new(o, "best",
                        s->best_checkpoint
                            ? json_pack("{s:I, s:f, s:s}", "step", (json_int_t)s->best_step, "val_loss",
                                        s->best_val_loss, "checkpoint", s->best_checkpoint)
                            : json_null());
    json_object_set_new(o, "cost_usd", positive_or_null(s->cost_usd));
    json_object_set_new(o, "energy_j", positive_or_null(s->energy_j));
    if (s->link_bytes > 0) {
        json_object_set_new(o, "link",
                            json_pack("{s:I, s:I, s:o, s:o}", "bytes", (json_int_t)s->link_bytes,
                                      "dense_bytes", (json_int_t)s->dense_bytes, "saved_s",
                                      positive_or_null(s->saved_s), "residual_norm",
                                      positive_or_null(s->residual_norm)));
    }
    if (s->time) {
        json_object_set(o, "time", s->time);
    }
    if (s->starts) {
        json_object_set(o, "starts", s->starts);
    }
    if (s->mesh) {
        json_object_set(o, "mesh", s->mesh);
    }
    if (s->sources) {
        json_object_set(o, "sources", s->sources);
    }
    return o;
}

static char *summary_path(ls_arena *arena, const char *dir)
{
    return ls_path_join(arena, dir, "summary.json");
}

ls_status ls_summary_save(const ls_summary *summary, const char *dir)
{
    ls_arena arena = {0};
    json_t *object = ls_summary_to_json(summary);
    const ls_status status = ls_json_save(summary_path(&arena, dir), object);
    json_decref(object);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_summary_load(const char *dir, json_t **object_out)
{
    ls_arena arena = {0};
    const char *path = summary_path(&arena, dir);
    json_t *object = NULL;
    ls_status status = ls_json_load(path, SUMMARY_BYTES_MAX, &object);
    if (status == LS_OK && !json_is_object(object)) {
        json_decref(object);
        status = ls_fail(LS_ERR_DATA, "%s does not hold a JSON object", path);
    }
    ls_arena_release(&arena);
    if (status == LS_OK) {
        *object_out = object;
    }
    return status;
}

/* ---- for a terminal ---- */

static double number_of(const json_t *object, const char *key)
{
    const json_t *member = json_object_get(object, key);
    return json_is_number(member) ? json_number_value(member) : NAN;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static void append_if(ls_text *line, const char *format, double value) LS_PRINTF(2, 0);
static void append_if(ls_text *line, const char *format, double value)
{
    if (isfinite(value)) {
        ls_text_printf(line, format, value);
    }
}

static void append_title(const json_t *object, ls_text *text)
{
    ls_text_printf(text, "%s %s: step %.0f of %.0f", text_of(object, "run"), text_of(object, "status"),
                   fmax(0.0, number_of(object, "step")), fmax(0.0, number_of(object, "steps")));
    const double wall_s = number_of(object, "wall_s");
    if (wall_s >= 120.0) {
        ls_text_printf(text, " in %.0f min %02.0f s", floor(wall_s / 60.0), floor(fmod(wall_s, 60.0)));
    } else {
        append_if(text, " in %.1f s", wall_s);
    }
    const double paused_s = number_of(json_object_get(object, "time"), "paused");
    /* by a person, so it counts neither as training nor as lost */
    if (paused_s >= 0.005 * wall_s) {
        ls_text_printf(text, ", paused for %.1f s of it", paused_s);
        append_if(text, ", %.0f %% of the rest training", 100.0 * number_of(object, "goodput"));
    } else {
        append_if(text, ", %.0f %% of it training", 100.0 * number_of(object, "goodput"));
    }
}

static void append_frozen(const json_t *object, ls_text *text)
{
    const double frozen = number_of(object, "frozen_parameters"), all = number_of(object, "parameters");
    if (frozen > 0.0) {
        ls_text_printf(text, "\n  trained     %.0f of %.0f parameters; %.0f are frozen", all - frozen, all,
                       frozen);
    }
}

static void append_losses(const json_t *object, ls_text *text)
{
    const double val_loss = number_of(object, "val_loss"), per_byte = number_of(object, "val_loss_per_byte");
    ls_text_append(text, "\n  loss        ");
    append_if(text, "training %.4f", number_of(object, "loss"));
    append_if(text, ", validation %.4f nats per token", val_loss);
    if (isfinite(per_byte) && per_byte != val_loss) { /* with a bytes tokenizer both are the same */
        ls_text_printf(text, ", %.4f per byte", per_byte);
    }
}

/* The best checkpoint, unless it is that of the last step, whose loss is in the line before. */
static void append_best(const json_t *object, ls_text *text)
{
    const json_t *best = json_object_get(object, "best");
    const double step = number_of(best, "step");
    if (json_is_object(best) && step != number_of(object, "step")) {
        ls_text_printf(text, "\n  best        validation %.4f at step %.0f: %s", number_of(best, "val_loss"),
                       step, text_of(best, "checkpoint"));
    }
}

static void append_machine(const json_t *object, ls_text *text)
{
    const double mib = 1.0 / 1048576.0;
    const json_t *predicted = json_object_get(object, "predicted");
    const double tokens_ps = number_of(object, "tokens_per_s");
    ls_text_append(text, "\n  machine     ");
    append_if(text, "%.0f tokens/s, ", tokens_ps); /* not known when this start finished no step */
    append_if(text, "MFU %.0f %%, ", 100.0 * number_of(object, "mfu"));
    append_if(text, "peak memory %.0f MiB", mib * number_of(object, "peak_rss_bytes"));
    append_if(text, " (planned %.0f)", mib * number_of(predicted, "memory_bytes"));
    const double predicted_ps = number_of(predicted, "tokens_per_s");
    if (isfinite(predicted_ps) && isfinite(tokens_ps)) {
        ls_text_printf(text, "\n  predicted   %.0f tokens/s: measured / predicted %.2f, memory %.2f",
                       predicted_ps, tokens_ps / predicted_ps,
                       number_of(object, "peak_rss_bytes") / number_of(predicted, "memory_bytes"));
    }
}

/* The most of a list. */
static double most_of(const json_t *object, const char *key)
{
    double most = NAN;
    const json_t *list = json_object_get(object, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        most = fmax(most, json_number_value(json_array_get(list, i)));
    }
    return most;
}

/* What ranks exchange, how long stages idle, and what the largest rank has, beside the plan. */
static void append_mesh(const json_t *object, ls_text *text)
{
    const double mib = 1.0 / 1048576.0;
    const json_t *mesh = json_object_get(object, "mesh"), *plan = json_object_get(object, "predicted");
    const json_t *planned = json_object_get(plan, "sent_bytes");
    const char *axis;
    json_t *bytes;
    if (!mesh) {
        return;
    }
    ls_text_printf(text, "\n  mesh        data %.0f", number_of(mesh, "data"));
    if (number_of(mesh, "expert") > 1.0) {
        ls_text_printf(text, " x expert %.0f", number_of(mesh, "expert"));
    }
    ls_text_printf(text, " x pipeline %.0f x context %.0f x tensor %.0f", number_of(mesh, "pipeline"),
                   number_of(mesh, "context"), number_of(mesh, "tensor"));
    append_if(text, "; largest rank %.1f MiB", mib * most_of(mesh, "rank_memory_bytes"));
    append_if(text, " (planned %.1f)", mib * most_of(plan, "rank_memory_bytes"));
    append_if(text, "; stages idle %.1f %%", 100.0 * number_of(mesh, "bubble"));
    append_if(text, " (planned %.1f)", 100.0 * number_of(plan, "bubble"));
    const char *before = "\n  exchanged   ";
    json_object_foreach(json_object_get(mesh, "sent_bytes"), axis, bytes)
    {
        const double sent = json_number_value(bytes);
        if (sent > 0.0) {
            ls_text_printf(text, "%s%s %.2f MiB per step%s", before, axis, mib * sent,
                           sent == number_of(planned, axis) ? " (as planned)" : "");
            before = ", ";
        }
    }
}

static void append_sources(const json_t *object, ls_text *text)
{
    const json_t *sources = json_object_get(object, "sources");
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *source = json_array_get(sources, i);
        ls_text_printf(text, "\n  source      %s: %.0f tokens, %.2f epochs", text_of(source, "source"),
                       number_of(source, "tokens"), number_of(source, "epochs"));
        append_if(text, ", validation %.4f", number_of(source, "val_loss"));
    }
}

/* The time that was not training, when it is worth a line. */
static void append_time(const json_t *object, ls_text *text)
{
    ls_goodput time;
    char said[320];
    ls_goodput_from_json(json_object_get(object, "time"), &time);
    ls_goodput_describe(&time, said, sizeof said);
    if (!said[0]) {
        return;
    }
    ls_text_printf(text, "\n  time        %s", said);
    const size_t starts = json_array_size(json_object_get(object, "starts")),
                 recoveries = json_array_size(json_object_get(object, "recoveries"));
    if (starts > 1) {
        ls_text_printf(text, "; %zu starts", starts);
    }
    if (recoveries > 0) {
        ls_text_printf(text, "%s%zu %s", starts > 1 ? ", " : "; ", recoveries,
                       recoveries == 1 ? "recovery" : "recoveries");
    }
}

void ls_summary_print(const json_t *object, FILE *out)
{
    ls_text text = {0};
    append_title(object, &text);
    append_frozen(object, &text);
    append_losses(object, &text);
    append_best(object, &text);
    append_sources(object, &text);
    append_machine(object, &text);
    append_mesh(object, &text);
    append_time(object, &text);
    ls_text_printf(&text, "\n  state_hash  %s\n  curve_hash  %s\n  run         %s\n",
                   text_of(object, "state_hash"), text_of(object, "curve_hash"), text_of(object, "run_dir"));
    fputs(ls_text_string(&text), out);
    ls_text_release(&text);
}

// SPDX-License-Identifier: Apache-2.0
/* Combinations of settings. Every message names the keys, the values seen, and values that would
 * work. */
#include "config/run_file.h"

#include <string.h>

enum { SUGGESTIONS = 4 };

static unsigned long long number(uint64_t value)
{
    return (unsigned long long)value;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* "9, 12, 16 or 18": the divisors of `count` that are nearest to `wanted`, ascending. */
static void append_near_divisors(ls_text *text, uint64_t count, uint64_t wanted)
{
    uint64_t near[SUGGESTIONS];
    size_t found = 0;
    uint64_t below = wanted, above = wanted + 1;
    while (found < SUGGESTIONS && (below >= 1 || above <= count)) {
        if (below >= 1 && (above > count || wanted - below <= above - wanted)) {
            if (count % below == 0) {
                near[found++] = below;
            }
            below--;
        } else {
            if (count % above == 0) {
                near[found++] = above;
            }
            above++;
        }
    }
    for (uint64_t value = 1; value <= count && found > 0; value++) {
        for (size_t i = 0; i < found; i++) {
            if (near[i] == value) {
                near[i] = near[--found];
                ls_text_printf(text, "%llu%s", number(value), found > 1 ? ", " : found == 1 ? " or " : "");
                break;
            }
        }
    }
}

static ls_status fail_text(ls_text *text)
{
    const ls_status status = ls_fail(LS_ERR_INVALID, "%s", ls_text_string(text));
    ls_text_release(text);
    return status;
}

static ls_status check_leaves(const ls_run_train *train)
{
    if (train->global_batch % train->leaves == 0) {
        return LS_OK;
    }
    ls_text text = {0};
    ls_text_printf(&text, "train.leaves is %llu, which does not divide train.global_batch %llu; leaves ",
                   number(train->leaves), number(train->global_batch));
    append_near_divisors(&text, train->global_batch, train->leaves);
    const uint64_t lower = train->global_batch / train->leaves * train->leaves;
    ls_text_printf(&text, " would work, or global_batch ");
    if (lower > 0) {
        ls_text_printf(&text, "%llu or ", number(lower));
    }
    ls_text_printf(&text, "%llu", number(lower + train->leaves));
    return fail_text(&text);
}

/* A degree that is still auto may become 1. */
static uint64_t least_degree(uint64_t degree)
{
    return degree == LS_AUTO_U64 ? 1 : degree;
}

/* Leaves that are chosen automatically follow the micro-batch, so that the file's own values are
 * all that matters. */
static ls_status check_micro_batch(const ls_run_train *train, bool automatic_leaves)
{
    const uint64_t leaf = train->global_batch / train->leaves;
    if (leaf % train->micro_batch == 0) {
        return LS_OK;
    }
    const uint64_t whole = automatic_leaves ? train->global_batch : leaf;
    ls_text text = {0};
    ls_text_printf(&text, "train.micro_batch is %llu, which does not divide ", number(train->micro_batch));
    if (automatic_leaves) {
        ls_text_printf(&text, "train.global_batch %llu; micro_batch ", number(whole));
    } else {
        ls_text_printf(&text,
                       "the %llu sequence%s of a leaf (train.global_batch %llu / train.leaves %llu); "
                       "micro_batch ",
                       number(whole), plural(whole), number(train->global_batch), number(train->leaves));
    }
    append_near_divisors(&text, whole, train->micro_batch);
    ls_text_append(&text, " would work");
    return fail_text(&text);
}

static ls_status check_heads(const ls_run_model *model)
{
    ls_text text = {0};
    if (model->heads % model->kv_heads != 0) {
        ls_text_printf(&text, "model.kv_heads is %llu, which does not divide model.heads %llu; kv_heads ",
                       number(model->kv_heads), number(model->heads));
        append_near_divisors(&text, model->heads, model->kv_heads);
        ls_text_append(&text, " would work");
        return fail_text(&text);
    }
    if (model->head_dim == LS_AUTO_U64) {
        const uint64_t lower = model->width / model->heads * model->heads;
        ls_text_printf(&text, "model.heads %llu does not divide model.width %llu; heads ",
                       number(model->heads), number(model->width));
        append_near_divisors(&text, model->width, model->heads);
        ls_text_printf(&text, " would work, or width %llu, or set model.head_dim",
                       number(lower + model->heads));
        return fail_text(&text);
    }
    if (model->head_dim % 2 != 0 && model->family != LS_FAMILY_GPT2) {
        return ls_fail(
            LS_ERR_INVALID,
            "model.head_dim is %llu%s; rotary positions turn pairs and need an even one, such as %llu",
            number(model->head_dim), model->head_dim * model->heads == model->width ? " (width / heads)" : "",
            number(model->head_dim + 1));
    }
    if (model->family == LS_FAMILY_GPT2 &&
        (model->kv_heads != model->heads || model->head_dim * model->heads != model->width)) {
        return ls_fail(LS_ERR_INVALID,
                       "model.family gpt2 has kv_heads = heads and head_dim = width / heads; remove "
                       "model.kv_heads and model.head_dim, or set model.family to llama");
    }
    return LS_OK;
}

static ls_status check_sequence_cut(const ls_run_file *run)
{
    const uint64_t cut = run->train.sequence_cut, context = run->model.context;
    if ((cut & (cut - 1)) != 0) {
        return ls_fail(LS_ERR_INVALID, "train.sequence_cut is %llu, but must be 1, 2, 4 or 8", number(cut));
    }
    if (cut > 1 && context != LS_AUTO_U64 && context % (2 * cut) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "train.sequence_cut is %llu, but model.context %llu must be a multiple of twice that, "
                       "%llu; use a context of %llu, or another cut",
                       number(cut), number(context), number(2 * cut),
                       number((context + 2 * cut - 1) / (2 * cut) * (2 * cut)));
    }
    const bool has_adapter = run->adapter.kind != LS_ADAPTER_NONE;
    if (cut > 1 && (has_adapter || run->train.precision != LS_PRECISION_FP32)) {
        return ls_fail(LS_ERR_UNSUPPORTED, "train.sequence_cut is %llu, but in this version it must be 1 %s",
                       number(cut),
                       has_adapter ? "for runs that train an adapter (adapter.kind)"
                                   : "unless train.precision is fp32");
    }
    return LS_OK;
}

static ls_status check_tensor_cut(const ls_run_file *run)
{
    const ls_run_model *model = &run->model;
    const uint64_t cut = run->train.tensor_cut;
    const bool has_experts = model->experts > 0;
    const uint64_t ffn = has_experts && model->expert_ffn > 0 ? model->expert_ffn : model->ffn;
    if (model->kv_heads % cut != 0 || ffn % cut != 0) {
        uint64_t works = cut;
        while (model->kv_heads % works != 0 || ffn % works != 0) {
            works--;
        }
        return ls_fail(LS_ERR_INVALID,
                       "train.tensor_cut is %llu, but must divide model.kv_heads %llu and model.%s %llu; use "
                       "%llu",
                       number(cut), number(model->kv_heads), has_experts ? "expert_ffn" : "ffn", number(ffn),
                       number(works));
    }
    return LS_OK;
}

static ls_status check_window(const ls_run_model *model)
{
    if (model->from[0] || model->sliding_window == 0 || ls_family_has_window((ls_family)model->family)) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID,
                   "model.sliding_window is %llu, but only mistral, qwen2, qwen3, mixtral and qwen3-moe have "
                   "sliding windows, and model.family is %s; remove the key, or change the family",
                   number(model->sliding_window), ls_family_name((ls_family)model->family));
}

/* With model.from the numbers are those of the model. */
static ls_status check_experts(const ls_run_model *model)
{
    if (model->family == LS_FAMILY_COUNT || model->from[0]) {
        return LS_OK;
    }
    if (!ls_family_has_experts((ls_family)model->family)) {
        const bool set = model->experts + model->experts_per_token + model->expert_ffn > 0;
        return set ? ls_fail(LS_ERR_INVALID,
                             "model.%s is set, but model.family %s has no experts; remove the key, or set "
                             "model.family to mixtral or qwen3-moe",
                             model->experts > 0             ? "experts"
                             : model->experts_per_token > 0 ? "experts_per_token"
                                                            : "expert_ffn",
                             ls_family_name((ls_family)model->family))
                   : LS_OK;
    }
    if (model->experts_per_token > model->experts) {
        return ls_fail(
            LS_ERR_INVALID,
            "model.experts_per_token is %llu, but there are only %llu experts (model.experts); use "
            "at most that many",
            number(model->experts_per_token), number(model->experts));
    }
    if (model->family == LS_FAMILY_MIXTRAL && model->expert_ffn != model->ffn) {
        return ls_fail(LS_ERR_INVALID,
                       "model.expert_ffn is %llu, but in the family mixtral it must equal model.ffn, %llu; "
                       "remove it, or set model.family to qwen3-moe",
                       number(model->expert_ffn), number(model->ffn));
    }
    return LS_OK;
}

static ls_status check_model(const ls_run_file *run)
{
    const ls_run_model *model = &run->model;
    if (model->heads == LS_AUTO_U64 || model->kv_heads == LS_AUTO_U64 || model->width == LS_AUTO_U64 ||
        model->ffn == LS_AUTO_U64) {
        return LS_OK; /* model.from: known after the import */
    }
    LS_TRY(check_heads(model));
    LS_TRY(check_tensor_cut(run));
    LS_TRY(check_sequence_cut(run));
    LS_TRY(check_window(model));
    LS_TRY(check_experts(model));
    if (model->rope_scaling_kind == LS_ROPE_LLAMA3 &&
        model->rope_scaling_low_freq_factor >= model->rope_scaling_high_freq_factor) {
        return ls_fail(LS_ERR_INVALID,
                       "model.rope_scaling.low_freq_factor is %g, but must be below "
                       "model.rope_scaling.high_freq_factor, which is %g",
                       model->rope_scaling_low_freq_factor, model->rope_scaling_high_freq_factor);
    }
    return LS_OK;
}

/* Settings of an adapter that differ from their defaults, without an adapter. */
static ls_status check_no_adapter(const ls_run_adapter *adapter)
{
    if (adapter->base != LS_BASE_FP32) {
        return ls_fail(
            LS_ERR_INVALID,
            "adapter.base asks for a quantised base, but without adapter.kind: lora all weights "
            "are trained, and quantised weights cannot be trained; set adapter.kind: lora, or remove "
            "adapter.base");
    }
    const bool has_targets =
        adapter->targets.count != 1 || strcmp(adapter->targets.items[0], "all-linear") != 0;
    const char *key = adapter->from[0]         ? "from"
                      : adapter->rank != 16    ? "rank"
                      : adapter->alpha != 32.0 ? "alpha"
                      : adapter->rslora        ? "rslora"
                      : adapter->dropout > 0.0 ? "dropout"
                      : has_targets            ? "targets"
                                               : NULL;
    return key ? ls_fail(
                     LS_ERR_INVALID,
                     "adapter.%s is set, but has an effect only with adapter.kind: lora; set the kind, or "
                     "remove the key",
                     key)
               : LS_OK;
}

static ls_status check_adapter(const ls_run_file *run)
{
    if (run->adapter.kind == LS_ADAPTER_NONE) {
        return check_no_adapter(&run->adapter);
    }
    if (!run->model.from[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "adapter.kind is lora, but model.from is not set, and an adapter needs "
                       "a trained model; set model.from, or remove the section adapter");
    }
    if (run->train.freeze.count > 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "train.freeze and adapter.kind: lora are both set, but with an adapter the whole model "
            "is frozen; remove train.freeze, and choose layers with adapter.targets");
    }
    return LS_OK;
}

static ls_status check_tokenizer(const ls_run_file *run)
{
    const ls_run_tokenizer *tokenizer = &run->tokenizer;
    if (tokenizer->kind == LS_TOKENIZER_FILE && !tokenizer->file[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "tokenizer.kind is file, but tokenizer.file is not set; give the path of a "
                       "tokenizer.json, or use kind bytes");
    }
    if (tokenizer->kind != LS_TOKENIZER_FILE && tokenizer->file[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "tokenizer.file is set, but tokenizer.kind is %s; set tokenizer.kind to file, or "
                       "remove one of the two keys",
                       tokenizer->kind == LS_TOKENIZER_BYTES   ? "bytes"
                       : tokenizer->kind == LS_TOKENIZER_TRAIN ? "train"
                                                               : "model");
    }
    if (tokenizer->kind == LS_TOKENIZER_MODEL && !run->model.from[0]) {
        return ls_fail(LS_ERR_INVALID, "tokenizer.kind is model, but model.from is not set; set it, or set "
                                       "tokenizer.kind to bytes, file or train");
    }
    return LS_OK;
}

static ls_status check_data(const ls_run_data *data)
{
    if (data->train.count == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "data.train is empty; name at least one file, as in  data: {train: [corpus/*.txt]}");
    }
    for (uint64_t i = 0; i < data->validation.count; i++) {
        if (data->validation.items[i].weight > 0.0) {
            return ls_fail(
                LS_ERR_INVALID,
                "data.validation: %s has a weight of %g; only items of data.train have weights. The "
                "validation loss is the mean over all tokens: remove the weight",
                data->validation.items[i].path, data->validation.items[i].weight);
        }
    }
    if (data->validation.count > 0 && data->validation_fraction > 0.0) {
        return ls_fail(LS_ERR_INVALID,
                       "data.validation names files and data.validation_fraction is %g; keep one of them",
                       data->validation_fraction);
    }
    return LS_OK;
}

static ls_status check_eval(const ls_run_eval *eval)
{
    if (eval->patience > 0 && eval->every_steps == 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "eval.patience is %llu, but eval.every_steps is 0, so no evaluation could end the run: "
            "set eval.every_steps, or eval.patience: 0",
            number(eval->patience));
    }
    return LS_OK;
}

/* YYYY-MM-DD */
static bool is_date(const char *text)
{
    return strlen(text) == 10 && strspn(text, "0123456789") == 4 && text[4] == '-' &&
           strspn(text + 5, "0123456789") == 2 && text[7] == '-' && strspn(text + 8, "0123456789") == 2;
}

static ls_status check_records(const ls_run_data *data)
{
    if (!data->prompt_field[0] != !data->completion_field[0]) {
        return ls_fail(LS_ERR_INVALID, "%s is set and %s is not: set both, or neither",
                       data->prompt_field[0] ? "data.prompt_field" : "data.completion_field",
                       data->prompt_field[0] ? "data.completion_field" : "data.prompt_field");
    }
    if (data->split_key[0] && data->split_time[0]) {
        return ls_fail(LS_ERR_INVALID, "data.split_key and data.split_time are both set; keep one of them");
    }
    if (data->template_date[0] && !is_date(data->template_date)) {
        return ls_fail(LS_ERR_INVALID, "data.template_date is \"%.40s\"; a date such as 2026-01-31 is needed",
                       data->template_date);
    }
    return LS_OK;
}

static ls_status check_schedule(const ls_run_train *train)
{
    const ls_run_schedule *schedule = &train->schedule;
    if (schedule->steps == LS_AUTO_U64) {
        return LS_OK; /* epochs: known after the data is opened */
    }
    if (schedule->warmup_steps > schedule->steps) {
        return ls_fail(LS_ERR_INVALID,
                       "train.schedule.warmup_steps is %llu, but the schedule has %llu step%s; use auto, or "
                       "%llu at most",
                       number(schedule->warmup_steps), number(schedule->steps), plural(schedule->steps),
                       number(schedule->steps));
    }
    return LS_OK;
}

static ls_status check_notice(const ls_run_job *job)
{
    static const char *const names[] = {"file", "aws", "gcp", "azure"};
    for (uint64_t i = 0; i < job->notice.count; i++) {
        const char *name = job->notice.items[i];
        bool is_known = false;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            is_known = is_known || strcmp(name, names[k]) == 0;
        }
        if (!is_known) {
            return ls_fail(LS_ERR_INVALID, "job.notice names '%s'; allowed are aws, gcp, azure and file",
                           name);
        }
    }
    return LS_OK;
}

/* A number without sign or spaces, and not 0. */
static bool is_job_number(const char *text)
{
    return text[0] >= '1' && text[0] <= '9' && strlen(text) <= 15 &&
           strspn(text, "0123456789") == strlen(text);
}

static bool is_variable(const char *text)
{
    const char *end = strchr(text, '=');
    return end && end > text && !(text[0] >= '0' && text[0] <= '9') &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
               (size_t)(end - text);
}

static ls_status check_metrics(const ls_run_job *job)
{
    if (job->metrics.count > 0 && job->command.count == 0) {
        return ls_fail(LS_ERR_INVALID, "job.metrics names the files of the program of job.command; a "
                                       "training run has its own: remove job.metrics");
    }
    for (uint64_t i = 0; i < job->metrics.count; i++) {
        const char *name = job->metrics.items[i], *last = strrchr(name, '/');
        const size_t bytes = strlen(name), wild = strcspn(name, "*?[");
        if (bytes == 0 || name[bytes - 1] == '/' || (last && wild < (size_t)(last - name))) {
            return ls_fail(LS_ERR_INVALID,
                           "job.metrics has '%.200s'; write the name of a file, as tb/*.tfevents.*, in which "
                           "only the part after the last / may hold *, ? and [",
                           name);
        }
    }
    return LS_OK;
}

static ls_status check_job(const ls_run_job *job)
{
    for (uint64_t i = 0; i < job->after.count; i++) {
        if (!is_job_number(job->after.items[i])) {
            return ls_fail(LS_ERR_INVALID,
                           "job.after names '%.40s'; allowed are numbers of jobs, as submit prints them",
                           job->after.items[i]);
        }
    }
    for (uint64_t i = 0; i < job->environment.count; i++) {
        if (!is_variable(job->environment.items[i])) {
            return ls_fail(
                LS_ERR_INVALID,
                "job.environment has '%.40s'; write NAME=VALUE, with a name of letters, digits and _",
                job->environment.items[i]);
        }
    }
    if (job->command.count > 0 && job->command.items[0][0] == '\0') {
        return ls_fail(LS_ERR_INVALID,
                       "job.command begins with an empty word; the first word is the program");
    }
    if (job->image[0] && (job->command.count == 0 || job->image[0] == '-')) {
        return ls_fail(LS_ERR_INVALID,
                       job->command.count == 0
                           ? "job.image is set, but a training job does not run in a container: "
                             "set job.command too, or remove job.image"
                           : "job.image begins with '-'; write the name of an image");
    }
    LS_TRY(check_metrics(job));
    if (job->image_options.count > 0 && !job->image[0]) {
        return ls_fail(LS_ERR_INVALID, "job.image_options needs job.image, the name of an image");
    }
    if (job->command.count == 1 && strchr(job->command.items[0], ' ')) {
        return ls_fail(
            LS_ERR_INVALID,
            "job.command is the one word '%.200s'; write a list of words, as [sleep, 5], or [sh, -c, "
            "'...'] for a shell to read",
            job->command.items[0]);
    }
    if (job->group_running_max > 0 && !job->group[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "job.group.running_max is %llu, but job.group.name is not set; name the group, or "
                       "remove job.group.running_max",
                       number(job->group_running_max));
    }
    if (job->interactive && job->command.count == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "job.interactive is for a program that a person uses: set job.command, too");
    }
    if (job->elastic && job->command.count > 0) {
        return ls_fail(LS_ERR_INVALID,
                       "job.elastic is true, but only a training run can change its number of ranks, not the "
                       "program of job.command; remove one of the two keys");
    }
    return LS_OK;
}

static uint64_t largest_divisor(uint64_t of, uint64_t most)
{
    uint64_t divisor = of < most ? of : most;
    while (of % divisor != 0) {
        divisor--;
    }
    return divisor;
}

/* Ranks that compute the same share of the batch together. */
static uint64_t model_ranks(const ls_run_parallel *parallel)
{
    return least_degree(parallel->tensor) * least_degree(parallel->context) *
           least_degree(parallel->pipeline) * least_degree(parallel->expert);
}

uint64_t ls_run_file_crew(const ls_run_file *run)
{
    return model_ranks(&run->parallel);
}

bool ls_run_file_mesh_is_open(const ls_run_file *run)
{
    const ls_run_parallel *parallel = &run->parallel;
    return parallel->tensor == LS_AUTO_U64 || parallel->context == LS_AUTO_U64 ||
           parallel->pipeline == LS_AUTO_U64 || parallel->expert == LS_AUTO_U64 ||
           parallel->schedule == LS_RUN_SCHEDULE_AUTO;
}

static ls_status check_context(const ls_run_file *run)
{
    const uint64_t degree = least_degree(run->parallel.context), cut = run->train.sequence_cut;
    return degree > 1 && cut % degree != 0
               ? ls_fail(LS_ERR_INVALID,
                         "parallel.context is %llu, but must divide train.sequence_cut, which is %llu; use "
                         "%llu, or set train.sequence_cut in a new run: it can't change once a run has begun",
                         number(degree), number(cut), number(largest_divisor(cut, degree)))
               : LS_OK;
}

/* The largest power of two that is at most `most`. */
static uint64_t largest_power(uint64_t most)
{
    uint64_t power = 1;
    while (power <= most / 2) {
        power *= 2;
    }
    return power;
}

/* With model.from, once the family and the number of experts are known. */
static ls_status check_expert(const ls_run_file *run)
{
    const ls_run_model *model = &run->model;
    const uint64_t degree = least_degree(run->parallel.expert);
    if (degree > 1 && model->family != LS_FAMILY_COUNT && !ls_family_has_experts((ls_family)model->family)) {
        return ls_fail(LS_ERR_INVALID,
                       "parallel.expert is %llu, but model.family %s has no experts; set it to 1, or set "
                       "model.family to mixtral or qwen3-moe",
                       number(degree), ls_family_name((ls_family)model->family));
    }
    if ((degree & (degree - 1)) != 0 || (model->experts > 0 && model->experts % degree != 0)) {
        uint64_t possible = 1;
        while (2 * possible <= degree && model->experts % (2 * possible) == 0) {
            possible *= 2;
        }
        return ls_fail(LS_ERR_INVALID,
                       "parallel.expert is %llu, but must be a power of two that divides the number of "
                       "experts (model.experts is %llu); use %llu",
                       number(degree), number(model->experts), number(possible));
    }
    if (degree > run->train.leaves) {
        return ls_fail(LS_ERR_INVALID,
                       "parallel.expert is %llu, but the batch of a step is divided into only %llu %s "
                       "(train.leaves), and each of these ranks computes one of its own; use %llu",
                       number(degree), number(run->train.leaves), run->train.leaves == 1 ? "share" : "shares",
                       number(largest_power(run->train.leaves)));
    }
    return LS_OK;
}

/* How parallel.tensor, .context, .pipeline and .expert divide the model between ranks. */
static ls_status check_mesh(const ls_run_file *run)
{
    const ls_run_parallel *parallel = &run->parallel;
    const uint64_t tensor = least_degree(parallel->tensor), stages = least_degree(parallel->pipeline);
    const uint64_t cut = run->train.tensor_cut;
    if (tensor > 1 && cut % tensor != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "parallel.tensor is %llu, but must divide train.tensor_cut, which is %llu; use %llu, or "
            "set train.tensor_cut in a new run: it can't change once a run has begun",
            number(tensor), number(cut), number(largest_divisor(cut, tensor)));
    }
    LS_TRY(check_context(run));
    LS_TRY(check_expert(run));
    if (tensor > 1 && (cut & (cut - 1)) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "train.tensor_cut is %llu, but must be a power of two where ranks share it "
                       "(parallel.tensor is %llu); set parallel.tensor: 1, or another cut in a new run",
                       number(cut), number(tensor));
    }
    const bool interleaved = parallel->schedule == LS_RUN_INTERLEAVED;
    const uint64_t chunks = interleaved ? LS_RUN_CHUNKS : 1;
    if (stages > 1 && run->model.layers != LS_AUTO_U64 && stages * chunks > run->model.layers) {
        return ls_fail(LS_ERR_INVALID,
                       "parallel.pipeline is %llu, but the model has only %llu layer%s (model.layers), and a "
                       "stage needs %s; use at most %llu%s",
                       number(stages), number(run->model.layers), plural(run->model.layers),
                       interleaved ? "two with parallel.schedule: interleaved" : "one",
                       number(run->model.layers / chunks), interleaved ? ", or the schedule 1f1b" : "");
    }
    const uint64_t expert = least_degree(parallel->expert);
    if (tensor * stages * expert > 1 && run->adapter.kind != LS_ADAPTER_NONE) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s is %llu, but a run that trains an adapter (adapter.kind) cannot divide its model "
                       "between ranks in this version; set it to 1: parallel.data divides the batch",
                       tensor > 1   ? "parallel.tensor"
                       : stages > 1 ? "parallel.pipeline"
                                    : "parallel.expert",
                       number(tensor > 1   ? tensor
                              : stages > 1 ? stages
                                           : parallel->expert));
    }
    return LS_OK;
}

static ls_status check_ranks(const ls_run_file *run)
{
    const ls_run_job *job = &run->job;
    const ls_run_parallel *parallel = &run->parallel;
    const uint64_t here = ls_run_file_rank_leaves(run, false), apart = ls_run_file_rank_leaves(run, true);
    const uint64_t leaves = here > apart ? here : apart;
    if (job->min_ranks > job->max_ranks) {
        return ls_fail(LS_ERR_INVALID, "job.min_ranks is %llu, more than job.max_ranks, which is %llu",
                       number(job->min_ranks), number(job->max_ranks));
    }
    LS_TRY(check_mesh(run));
    const uint64_t per_replica = model_ranks(parallel);
    const char *shares_word = leaves == 1 ? "share" : "shares";
    if (parallel->ranks == LS_AUTO_U64) {
        return parallel->data == LS_AUTO_U64 || parallel->data <= leaves
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID,
                             "parallel.data is %llu, but the batch of a step is divided into only %llu %s "
                             "(train.leaves); use at most %llu. To use more, set train.leaves to at least "
                             "%llu in a new run: it can't change once a run has begun",
                             number(parallel->data), number(leaves), shares_word, number(leaves),
                             number(parallel->data));
    }
    if (ls_run_file_mesh_is_open(run)) {
        return LS_OK; /* what is chosen is checked again */
    }
    if (parallel->ranks % per_replica != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "parallel.ranks is %llu, but must be a multiple of parallel.tensor %llu * parallel.context "
            "%llu * parallel.pipeline %llu * parallel.expert %llu, for example %llu",
            number(parallel->ranks), number(parallel->tensor), number(parallel->context),
            number(parallel->pipeline), number(parallel->expert),
            number((parallel->ranks / per_replica + 1) * per_replica));
    }
    if (job->min_ranks > parallel->ranks) {
        return ls_fail(
            LS_ERR_INVALID,
            "job.min_ranks is %llu, but the run has %llu rank%s (--ranks, parallel.ranks); use at most %llu",
            number(job->min_ranks), number(parallel->ranks), plural(parallel->ranks),
            number(parallel->ranks));
    }
    const uint64_t replicas = parallel->ranks / per_replica;
    const uint64_t most = leaves / parallel->expert * per_replica;
    if (parallel->data != LS_AUTO_U64 && parallel->data != replicas) {
        return ls_fail(LS_ERR_INVALID,
                       "parallel.data is %llu, but parallel.ranks %llu / (parallel.tensor %llu * "
                       "parallel.context %llu * parallel.pipeline %llu * parallel.expert %llu) is %llu; set "
                       "parallel.data to auto",
                       number(parallel->data), number(parallel->ranks), number(parallel->tensor),
                       number(parallel->context), number(parallel->pipeline), number(parallel->expert),
                       number(replicas));
    }
    if (replicas * parallel->expert > leaves) {
        return ls_fail(
            LS_ERR_INVALID,
            "parallel.ranks is %llu, but the batch of a step is divided into only %llu %s (train.leaves), "
            "so that some ranks would have nothing to do; use at most %llu rank%s. To use more, set "
            "train.leaves to at least %llu in a new run: it can't change once a run has begun",
            number(parallel->ranks), number(leaves), shares_word, number(most), plural(most),
            number(replicas * parallel->expert));
    }
    if (parallel->ranks > job->max_ranks) {
        return ls_fail(
            LS_ERR_INVALID,
            "the run would have %llu ranks (--ranks, parallel.ranks), but job.max_ranks is %llu; use %llu "
            "to %llu ranks, or more job.max_ranks",
            number(parallel->ranks), number(job->max_ranks), number(job->min_ranks), number(job->max_ranks));
    }
    return LS_OK;
}

static ls_status check_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '.' || strlen(name) > 128 || strpbrk(name, "/\\\n\t")) {
        return ls_fail(LS_ERR_INVALID,
                       "name is \"%.140s\", allowed are 1 to 128 characters without slashes and not "
                       "beginning with a dot, "
                       "because it names a folder",
                       name);
    }
    return LS_OK;
}

ls_status ls_run_file_check(const ls_run_file *run)
{
    LS_TRY(check_name(run->name));
    LS_TRY(check_job(&run->job));
    if (run->job.command.count > 0) {
        return LS_OK; /* the other settings apply to training only */
    }
    LS_TRY(check_model(run));
    LS_TRY(check_adapter(run));
    LS_TRY(check_tokenizer(run));
    LS_TRY(check_data(&run->data));
    LS_TRY(check_records(&run->data));
    LS_TRY(check_leaves(&run->train));
    LS_TRY(check_micro_batch(&run->train, run->automatic.leaves));
    LS_TRY(ls_run_file_check_local(run));
    LS_TRY(check_eval(&run->eval));
    LS_TRY(check_schedule(&run->train));
    LS_TRY(check_notice(&run->job));
    LS_TRY(ls_run_file_check_compression(run));
    return check_ranks(run);
}

ls_status ls_run_file_check_effect(const ls_run_file *run)
{
    const ls_run_model *model = &run->model;
    const ls_rope_scaling_kind kind = model->rope_scaling_kind;
    const double factor = model->rope_scaling_factor;
    const uint64_t original = model->rope_scaling_original_context;
    if (!model->from[0] && model->experts == 0 && run->train.balance_loss != LS_RUN_FILE_BALANCE_LOSS) {
        return ls_fail(LS_ERR_INVALID,
                       "train.balance_loss is %g, but it has an effect only on models with experts, and "
                       "model.family is %s; remove the key",
                       run->train.balance_loss, ls_family_name((ls_family)model->family));
    }
    if (kind != LS_ROPE_NONE && model->family == LS_FAMILY_GPT2) {
        return ls_fail(LS_ERR_INVALID,
                       "model.rope_scaling.kind is set, but model.family gpt2 has learned position "
                       "embeddings that cannot be scaled; remove model.rope_scaling");
    }
    if (kind != LS_ROPE_LLAMA3 &&
        (model->rope_scaling_low_freq_factor != 1.0 || model->rope_scaling_high_freq_factor != 4.0)) {
        return ls_fail(LS_ERR_INVALID,
                       "model.rope_scaling.%s_freq_factor has an effect only with "
                       "model.rope_scaling.kind: llama3; remove the key, or set the kind",
                       model->rope_scaling_low_freq_factor != 1.0 ? "low" : "high");
    }
    const bool has_factor = factor != LS_AUTO_F64 && factor != 1.0;
    const bool has_original = original != LS_AUTO_U64 && original != LS_RUN_FILE_ORIGINAL_CONTEXT;
    if (kind == LS_ROPE_NONE && (has_factor || has_original)) {
        return ls_fail(LS_ERR_INVALID,
                       "model.rope_scaling.%s has no effect without model.rope_scaling.kind; remove the key, "
                       "or set the kind to linear, llama3, dynamic or yarn",
                       has_factor ? "factor" : "original_context");
    }
    return LS_OK;
}

uint64_t ls_run_file_ranks(const ls_run_file *run)
{
    const ls_run_parallel *parallel = &run->parallel;
    if (parallel->ranks != LS_AUTO_U64) {
        return parallel->ranks;
    }
    return model_ranks(parallel) * (parallel->data != LS_AUTO_U64 ? parallel->data : 1);
}

ls_status ls_run_file_check_machine(const ls_run_file *run, bool has_gpu)
{
    if (run->train.precision != LS_PRECISION_FP32 && !has_gpu) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "train.precision is %s, which needs a GPU, and this run computes on the CPU; set "
                       "train.precision: fp32, or run it on a machine with an NVIDIA GPU (lockstep doctor "
                       "says what it finds)",
                       run->train.precision == LS_PRECISION_BF16 ? "bf16" : "tf32");
    }
    if (run->train.compression.kind != LS_COMPRESSION_NONE && has_gpu) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "train.compression.kind is set, and this run computes on a GPU, which has no kernels "
                       "for it; set train.device: cpu, or train.compression.kind: none");
    }
    if (run->adapter.base != LS_BASE_FP32 && has_gpu) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "adapter.base is %s, which only a CPU computes with, and this run computes on a GPU; set "
            "adapter.base: fp32, or train.device: cpu",
            ls_base_names[run->adapter.base]);
    }
    return LS_OK;
}

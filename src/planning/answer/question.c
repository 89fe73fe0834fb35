// SPDX-License-Identifier: Apache-2.0
/* From what a person wrote to a complete question. Every value that was left out is chosen here and
 * becomes an assumption. */
#include "base/file.h"
#include "planning/answer/answer_internal.h"
#include "planning/hardware/site.h"
#include "planning/step/advice.h"
#include "planning/step/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#define TOKENS_MIN       1e3
#define TOKENS_MAX       1e17
#define GPUS_MAX         1e6
#define IMPORTED_CONTEXT 1024 /* For a run file that imports a model and names no context. */
#define BOX_CARDS        8    /* Cards without NVLink that are usually in one machine. */
#define DEFAULT_KIND     "h100"
#define SEQUENCE_LEAST   1024 /* Shorter sequences are not offered where nothing fits. */
/* Pretraining rarely uses more, whatever context the model has later. */
#define DEFAULT_SEQUENCE 8192

/* ---- numbers ---- */

ls_status ls_plan_parse_quantity(const char *option, const char *text, double min, double max,
                                 double *value_out)
{
    double value;
    if (!ls_quantity_parse(text, &value)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is '%s', allowed is a number with an optional suffix k, M, B or T, such as 1.4T",
                       option, text);
    }
    if (!(value >= min && value <= max)) {
        return ls_fail(LS_ERR_INVALID, "%s is %s, allowed is %g to %g", option, text, min, max);
    }
    *value_out = value;
    return LS_OK;
}

/* ---- the machine ---- */

/* Splits "h100:64" into name and count, with or without blanks. */
static ls_status split_kind(ls_plan_answer *answer, const char *option, const char *text,
                            const char **name_out, int64_t *count_out)
{
    const char *start = text + strspn(text, " "), *colon = strrchr(text, ':');
    size_t bytes = colon > start ? (size_t)(colon - start) : 0;
    while (bytes > 0 && start[bytes - 1] == ' ') {
        bytes--;
    }
    double count = 0.0;
    if (bytes == 0 || !ls_quantity_parse(colon + 1 + strspn(colon + 1, " "), &count) ||
        count != floor(count)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is '%s', allowed is KIND:COUNT with a whole count, such as h100:64", option, text);
    }
    if (count < 1.0 || count > GPUS_MAX) {
        return ls_fail(LS_ERR_INVALID, "%s is '%s', allowed are counts of 1 to %.0f", option, text, GPUS_MAX);
    }
    *name_out = ls_arena_strndup(answer->arena, start, bytes);
    *count_out = (int64_t)count;
    return LS_OK;
}

/* Puts cards without a link of their own into boxes, where they communicate over PCIe. */
static void share_box(ls_plan_answer *answer)
{
    const int64_t gpus = answer->setting.gpus;
    ls_node *node = &answer->node;
    node->count = gpus < BOX_CARDS ? gpus : BOX_CARDS;
    node->name = ls_arena_printf(answer->arena, "%" PRId64 "x %s", node->count, node->accelerator->name);
    node->power_w = 0.0;
    /* The price was that of a machine with one card */
    node->price = (ls_price){.date = "", .confidence = ""};
    ls_assumptions_add(&answer->assumptions, "%" PRId64 " x %s per box, over PCIe; %.3g GB/s between boxes",
                       node->count, node->accelerator->name,
                       1e-9 * (node->nic_bytes_ps > 0.0 ? node->nic_bytes_ps : 1.25e9));
}

/* "here" is the documented word; people also write the others. */
static bool means_here(const char *name)
{
    static const char *const words[] = {"here", "this", "local", "cpu"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(name, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The names of Apple's accelerators in the catalogue, separated by commas. */
static const char *list_macs(const ls_plan_answer *answer)
{
    const char *list = "";
    for (size_t i = 0; i < answer->catalogue.accelerator_count; i++) {
        const ls_accelerator *a = &answer->catalogue.accelerators[i];
        if (a->class == LS_CLASS_APPLE) {
            list = ls_arena_printf(answer->arena, "%s%s%s", list, list[0] ? ", " : "", a->name);
        }
    }
    return list;
}

static ls_status choose_gpus(ls_plan_answer *answer, const char *text)
{
    const char *name = NULL;
    const ls_accelerator *accelerator = NULL;
    LS_TRY(split_kind(answer, "--gpus", text, &name, &answer->setting.gpus));
    if (strcasecmp(name, "mac") == 0) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "--gpus: the hardware catalogue has several Macs; give one of them: %s",
                       list_macs(answer));
    }
    if (means_here(name)) {
        const ls_node *here = ls_plan_describe_here(answer);
        if (!here) {
            return ls_fail(LS_ERR_NOT_FOUND, "--gpus %s: %s", text,
                           ls_plan_why_not_here(&answer->assumptions));
        }
        if (answer->setting.gpus != 1) {
            return ls_fail(LS_ERR_INVALID,
                           "--gpus is '%s', but there is only one of this machine: write here:1", text);
        }
        answer->node = *here;
        return LS_OK;
    }
    const ls_status found = ls_catalogue_find_accelerator(&answer->catalogue, name, &accelerator);
    if (found != LS_OK) {
        return ls_fail_within(found, "--gpus");
    }
    answer->node = *ls_catalogue_usual_node(&answer->catalogue, answer->arena, accelerator);
    if (answer->node.count == 1 && answer->setting.gpus > 1 && accelerator->pcie_bytes_ps > 0.0 &&
        accelerator->scaleup_domain <= 1) {
        share_box(answer);
    }
    return LS_OK;
}

static ls_status choose_nodes(ls_plan_answer *answer, const char *text)
{
    const char *name = NULL;
    const ls_node *node = NULL;
    int64_t count = 0;
    LS_TRY(split_kind(answer, "--nodes", text, &name, &count));
    const ls_status found = ls_catalogue_find_node(&answer->catalogue, name, &node);
    if (found != LS_OK) {
        return ls_fail_within(found, "--nodes");
    }
    const double gpus = (double)count * (double)node->count;
    if (gpus > GPUS_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "--nodes is '%s', which means %.0f GPUs; allowed are up to %.0f GPUs, which are %.0f such nodes",
            text, gpus, GPUS_MAX, floor(GPUS_MAX / (double)node->count));
    }
    answer->node = *node;
    answer->setting.gpus = (int64_t)gpus;
    return LS_OK;
}

static ls_status choose_machine(ls_plan_answer *answer)
{
    const ls_plan_question *settings = answer->asked;
    if (settings->gpus[0] && settings->nodes[0]) {
        return ls_fail(LS_ERR_INVALID, "--gpus and --nodes both name the machine: give one of them");
    }
    if (settings->nodes[0]) {
        return choose_nodes(answer, settings->nodes);
    }
    if (settings->gpus[0]) {
        return choose_gpus(answer, settings->gpus);
    }
    LS_TRY(choose_gpus(answer, DEFAULT_KIND ":8"));
    answer->setting.gpus = 0; /* chosen by comparison */
    return LS_OK;
}

/* ---- the training ---- */

const char *ls_plan_stack_name(const ls_plan_answer *answer, const ls_accelerator *accelerator)
{
    return answer->asked->stack[0]              ? answer->asked->stack
           : accelerator->class == LS_CLASS_CPU ? "lockstep"
                                                : "megatron-core";
}

ls_status ls_plan_setting_on(ls_plan_answer *answer, const ls_plan_work *work, const ls_node *node,
                             int64_t gpus, ls_setting *setting_out)
{
    const ls_plan_question *settings = answer->asked;
    const ls_shape *shape = work->shape;
    const int64_t context = shape->config.context;
    const char *from = NULL;
    ls_stack *stack = ls_arena_new(answer->arena, ls_stack, 1);
    const char *name = ls_plan_stack_name(answer, node->accelerator);
    const ls_status found = ls_stack_find(name, node->accelerator, stack, &from);
    if (found != LS_OK) {
        return ls_fail_within(found, "--stack");
    }
    answer->assumed_constants = NULL;
    if (from) {
        answer->assumed_constants = ls_assumptions_add(
            &answer->assumptions, "%s was not measured on %s: the constants of %s are used", name,
            node->accelerator->name, from);
    }
    ls_setting setting = {.shape = shape,
                          .node = node,
                          .stack = stack,
                          .gpus = gpus,
                          .length = (int64_t)work->length,
                          .global_batch = (int64_t)work->global_batch,
                          .optimizer = (ls_plan_optimizer)settings->optimizer};
    if (work->length == 0) {
        setting.length = context < DEFAULT_SEQUENCE ? context : DEFAULT_SEQUENCE;
    }
    if (work->global_batch == 0) {
        setting.global_batch = ls_advice_global_batch((double)shape->active_parameters, setting.length, gpus);
    }
    setting.precision = settings->precision != LS_PLAN_PRECISION_AUTO ? (ls_plan_precision)settings->precision
                        : node->accelerator->class == LS_CLASS_CPU    ? LS_PLAN_FP32
                        : ls_accelerator_has_bf16(node->accelerator)  ? LS_PLAN_BF16
                                                                      : LS_PLAN_FP16;
    *setting_out = setting;
    return LS_OK;
}

ls_plan_work ls_plan_own_work(const ls_plan_answer *answer)
{
    return (ls_plan_work){&answer->shape, answer->asked->global_batch, answer->asked->seq};
}

static ls_status choose_tokens(ls_plan_answer *answer)
{
    if (answer->asked->tokens[0]) {
        return ls_plan_parse_quantity("--tokens", answer->asked->tokens, TOKENS_MIN, TOKENS_MAX,
                                      &answer->tokens);
    }
    if (answer->tokens == 0.0) {
        answer->tokens = ls_advice_optimal_tokens((double)answer->shape.active_parameters);
    }
    if (answer->tokens > TOKENS_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "training %s would take %g tokens, but at most %g are allowed: use fewer steps, or give --tokens",
            answer->shape.name, answer->tokens, TOKENS_MAX);
    }
    return LS_OK;
}

/* Adds an assumption for each value that was chosen, once the machine is known. */
static void say_choices(ls_plan_answer *answer)
{
    static const char *const precisions[] = {"bf16", "fp16", "fp8", "fp32", "tf32"};
    const ls_plan_question *settings = answer->asked;
    const ls_setting *setting = &answer->setting;
    ls_assumptions *list = &answer->assumptions;
    const double batch_tokens = (double)(setting->global_batch * setting->length);
    if (!settings->tokens[0] && !answer->examined &&
        !(answer->run && answer->run->train.steps != LS_AUTO_U64)) {
        answer->assumed_tokens =
            ls_assumptions_add(list, "%s tokens: 20 per parameter, the compute-optimal number (--tokens)",
                               ls_quantity_of(answer->tokens).text);
    }
    if (settings->global_batch == 0) {
        answer->assumed_batch = ls_assumptions_add(
            list,
            "global batch of %" PRId64 " sequences, %s tokens: near the critical batch size (--global-batch)",
            setting->global_batch, ls_quantity_of(batch_tokens).text);
    }
    if (setting->length > answer->shape.config.context) {
        answer->assumed_length =
            ls_assumptions_add(list,
                               "sequences of %" PRId64 " tokens are more than the %" PRId64
                               " that %s was made for: its positions would have to be rescaled",
                               setting->length, answer->shape.config.context, answer->shape.name);
    }
    if (batch_tokens > answer->tokens) {
        ls_assumptions_add(list, "a single step: one batch has more tokens (%s) than the run",
                           ls_quantity_of(batch_tokens).text);
    }
    if (answer->too_long > 0) {
        ls_assumptions_add(
            list, "sequences of %" PRId64 " tokens: nothing fits with %" PRId64 ", the usual length (--seq)",
            setting->length, answer->too_long);
    } else if (settings->seq == 0) {
        answer->assumed_length =
            ls_assumptions_add(list, "sequences of %" PRId64 " tokens (--seq)", setting->length);
    }
    if (settings->precision == LS_PLAN_PRECISION_AUTO) {
        ls_assumptions_add(list, "precision %s (--precision)", precisions[setting->precision]);
    }
    const ls_node *node = setting->node;
    if (!settings->nodes[0] && setting->gpus > 1 && node->accelerator->scaleup_domain > 1) {
        ls_assumptions_add(list, "nodes: %s with %" PRId64 " GPUs%s, %.3g GB/s of network per GPU (--nodes)",
                           node->name, node->count,
                           strstr(node->notes, "made up") ? ", which is not in the catalogue" : "",
                           1e-9 * (node->nic_bytes_ps > 0.0 ? node->nic_bytes_ps : 1.25e9));
    }
    if (node->accelerator->class == LS_CLASS_APPLE) {
        ls_assumptions_add(
            list,
            "%.0f of %.0f GiB of unified memory can be used: the default limit that macOS sets for its GPU",
            ls_memory_capacity(node->accelerator) / LS_PLAN_GIB,
            node->accelerator->memory_bytes / LS_PLAN_GIB);
    }
    if (!settings->stack[0]) {
        ls_assumptions_add(list, "software stack %s (--stack)", setting->stack->name);
    }
}

/* A batch that was asked for must not exceed the run. */
static ls_status check_batch(const ls_plan_answer *answer)
{
    const ls_plan_question *settings = answer->asked;
    const int64_t context = answer->shape.config.context;
    const double length = settings->seq > 0            ? (double)settings->seq
                          : context < DEFAULT_SEQUENCE ? (double)context
                                                       : DEFAULT_SEQUENCE;
    const double batch = (double)settings->global_batch;
    if (batch * length > answer->tokens) {
        return ls_fail(LS_ERR_INVALID,
                       "--global-batch is %.0f sequences of %.0f tokens, %s tokens in all, but the whole run "
                       "has only %s tokens: give at most %.0f sequences, or more --tokens",
                       batch, length, ls_quantity_of(batch * length).text,
                       ls_quantity_of(answer->tokens).text, fmax(1.0, floor(answer->tokens / length)));
    }
    return LS_OK;
}

static ls_status choose_strategy(ls_plan_answer *answer)
{
    const ls_plan_question *settings = answer->asked;
    if (settings->strategy[0]) {
        ls_strategy_request given;
        const ls_status parsed = ls_strategy_parse(settings->strategy, &given);
        if (parsed != LS_OK) {
            return parsed;
        }
        if (given.strategy.micro_batch == 0) { /* from a run file */
            given.strategy.micro_batch = answer->request.strategy.micro_batch;
        }
        if (!given.has_recompute) {
            given.has_recompute = answer->request.has_recompute;
            given.strategy.recompute = answer->request.strategy.recompute;
        }
        answer->request = given;
    }
    if (settings->schedule < LS_PLAN_SCHEDULE_AUTO) {
        const ls_pipeline_schedule given = (ls_pipeline_schedule)settings->schedule;
        if (answer->request.has_schedule && answer->request.strategy.schedule != given) {
            return ls_fail(LS_ERR_INVALID,
                           "--schedule and --strategy name different schedules: give one of them");
        }
        answer->request.strategy.schedule = given;
        answer->request.has_schedule = true;
    }
    return LS_OK;
}

/* Appends a value to the list of those taken from a file: "batch, sequences, tokens". */
static void add_taken(ls_text *list, const char *format, ...) LS_PRINTF(2, 3);
static void add_taken(ls_text *list, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_text_append(list, list->bytes > 0 ? ", " : "");
    ls_text_vprintf(list, format, args);
    va_end(args);
}

/* Takes over what the file says about the computation, unless an option says otherwise. Defaults
 * are not taken over: they are those of Lockstep on this machine. */
static void adopt_written(ls_plan_answer *answer, ls_plan_question *settings, const ls_document *doc,
                          ls_text *taken)
{
    const ls_run_file *run = answer->run;
    ls_strategy_request asked = {0};
    if (ls_strategy_parse(settings->strategy, &asked) != LS_OK) {
        ls_error_clear(); /* choose_strategy reports it */
    }
    if (settings->precision == LS_PLAN_PRECISION_AUTO && ls_document_line(doc, "train.precision") > 0) {
        const bool is_bf16 = run->train.precision == LS_PRECISION_BF16;
        settings->precision = is_bf16 ? LS_PLAN_BF16 : LS_PLAN_FP32;
        add_taken(taken, "precision %s", is_bf16 ? "bf16" : "fp32");
    }
    if (asked.strategy.micro_batch == 0 && ls_document_line(doc, "train.micro_batch") > 0) {
        answer->request.strategy.micro_batch = (int64_t)run->train.micro_batch;
        answer->micro_batch_is_of_file = true;
        add_taken(taken, "micro-batches of %" PRIu64, run->train.micro_batch);
    }
    if (!asked.has_recompute && ls_document_line(doc, "train.recompute") > 0) {
        answer->request.strategy.recompute = (ls_recompute)run->train.recompute;
        answer->request.has_recompute = true;
        add_taken(taken, "%s recompute", ls_recompute_name((ls_recompute)run->train.recompute));
    }
}

/* Fills in what the options leave open from the run file. */
static ls_status adopt_run(ls_plan_answer *answer, const char *path)
{
    if (!ls_path_has_suffix(path, ".yaml") && !ls_path_has_suffix(path, ".yml")) {
        return LS_OK;
    }
    ls_run_file *run = ls_arena_new(answer->arena, ls_run_file, 1);
    ls_plan_question *settings = ls_arena_new(answer->arena, ls_plan_question, 1);
    ls_document doc;
    ls_text taken = {0};
    LS_TRY(ls_run_file_load(path, NULL, 0, answer->arena, run));
    LS_TRY(ls_yaml_load(path, &doc));
    *settings = *answer->asked;
    /* for an imported model, as much as the trainer would take */
    if (run->model.context == LS_AUTO_U64) {
        run->model.context =
            (uint64_t)(answer->shape.config.context < IMPORTED_CONTEXT ? answer->shape.config.context
                                                                       : IMPORTED_CONTEXT);
    }
    answer->run = run;
    if (settings->global_batch == 0) {
        settings->global_batch = run->train.global_batch;
        add_taken(&taken, "batch");
    }
    if (settings->seq == 0) {
        settings->seq = run->model.context;
        add_taken(&taken, "sequences");
    }
    if (!settings->tokens[0] && answer->tokens == 0.0 && run->train.steps != LS_AUTO_U64) {
        answer->tokens =
            (double)run->train.steps * (double)run->train.global_batch * (double)run->model.context;
        add_taken(&taken, "tokens");
    }
    adopt_written(answer, settings, &doc, &taken);
    answer->asked = settings;
    if (taken.bytes > 0) {
        ls_assumptions_add(&answer->assumptions, "%s as in %s", ls_text_string(&taken), path);
    }
    ls_text_release(&taken);
    ls_document_release(&doc);
    return LS_OK;
}

/* Checked before a machine is chosen: a comparison of machines would report that none is
 * suitable. */
static ls_status check_stack(const ls_plan_answer *answer)
{
    const char *name = answer->asked->stack, *from = NULL;
    ls_stack stack;
    if (name[0] && ls_stack_find(name, &answer->catalogue.accelerators[0], &stack, &from) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "--stack");
    }
    return LS_OK;
}

ls_status ls_plan_read_question(ls_plan_answer *answer)
{
    const ls_plan_question *settings = answer->asked;
    LS_TRY(ls_plan_find_model(answer));
    LS_TRY(ls_catalogue_load(answer->arena, settings->catalogue.items, settings->catalogue.count,
                             &answer->catalogue));
    LS_TRY(check_stack(answer));
    LS_TRY(ls_site_load(answer->arena, &answer->catalogue, settings->site, &answer->site));
    LS_TRY(ls_shape_parse(answer->arena, answer->model, &answer->shape));
    ls_plan_adopt_portfolio(answer);
    LS_TRY(adopt_run(answer, answer->model));
    LS_TRY(choose_machine(answer));
    LS_TRY(ls_plan_connect(answer));
    LS_TRY(choose_tokens(answer));
    LS_TRY(check_batch(answer));
    return choose_strategy(answer);
}

ls_status ls_plan_search(ls_plan_answer *answer, const ls_setting *setting, const ls_search_options *options,
                         ls_search_result *result)
{
    const ls_status status = ls_search_run(setting, options, result);
    if (status == LS_OK || !answer->micro_batch_is_of_file || options->request.strategy.micro_batch == 0) {
        return status;
    }
    ls_search_options open = *options;
    open.request.strategy.micro_batch = 0;
    ls_error_clear();
    LS_TRY(ls_search_run(setting, &open, result));
    ls_assumptions_add(&answer->assumptions,
                       "on %" PRId64 " GPUs the file's micro-batch of %" PRId64
                       " is not used: no strategy is possible with it",
                       setting->gpus, options->request.strategy.micro_batch);
    return LS_OK;
}

/* Refuses a precision that the accelerator does not have. */
static ls_status check_precision(const ls_setting *setting)
{
    const ls_accelerator *a = setting->node->accelerator;
    if (setting->precision == LS_PLAN_BF16 && !ls_accelerator_has_bf16(a)) {
        return ls_fail(LS_ERR_INVALID, "--precision is bf16, which %s does not have: allowed are fp16, fp32",
                       a->name);
    }
    if ((setting->precision == LS_PLAN_FP8 && a->fp8_flops <= 0.0) ||
        (setting->precision == LS_PLAN_TF32 && a->tf32_flops <= 0.0)) {
        const bool fp8 = setting->precision == LS_PLAN_FP8;
        return ls_fail(LS_ERR_INVALID,
                       "--precision is %s, which %s does not have: allowed are %sfp16, fp32%s",
                       fp8 ? "fp8" : "tf32", a->name, ls_accelerator_has_bf16(a) ? "bf16, " : "",
                       fp8 && a->tf32_flops > 0.0 ? ", tf32" : "");
    }
    return LS_OK;
}

ls_status ls_plan_settle(ls_plan_answer *answer)
{
    answer->chosen_at = answer->assumptions.count;
    const ls_plan_work work = ls_plan_own_work(answer);
    LS_TRY(ls_plan_setting_on(answer, &work, &answer->node, answer->setting.gpus, &answer->setting));
    LS_TRY(check_precision(&answer->setting));
    say_choices(answer);
    return LS_OK;
}

/* ---- where nothing fits ---- */

static bool fits_with(const ls_setting *setting, const ls_search_options *options)
{
    ls_strategy strategy;
    ls_memory_estimate memory;
    return ls_search_least(setting, options, &strategy, &memory) && ls_memory_judge(&memory) != LS_FIT_NO;
}

/* Finds the longest half, quarter, ... of the setting's sequence length with which something fits;
 * 0: none. */
static int64_t find_length(const ls_setting *setting, const ls_search_options *options)
{
    ls_setting shorter = *setting;
    while (shorter.length % 2 == 0 && shorter.length / 2 >= SEQUENCE_LEAST) {
        shorter.length /= 2;
        if (fits_with(&shorter, options)) {
            return shorter.length;
        }
    }
    return 0;
}

ls_status ls_plan_shorten(ls_plan_answer *answer, const ls_search_options *options)
{
    if (answer->asked->seq > 0 || fits_with(&answer->setting, options)) {
        return LS_OK;
    }
    const int64_t longest = answer->setting.length, length = find_length(&answer->setting, options);
    if (length == 0) {
        return LS_OK;
    }
    answer->too_long = longest;
    answer->assumptions.count = answer->chosen_at;
    ls_plan_work shorter = ls_plan_own_work(answer);
    shorter.length = (uint64_t)length;
    LS_TRY(ls_plan_setting_on(answer, &shorter, &answer->node, answer->setting.gpus, &answer->setting));
    say_choices(answer);
    return LS_OK;
}

const char *ls_plan_ways_out(const ls_plan_answer *answer)
{
    const ls_search_options options = {.request = answer->request};
    ls_setting leaner = answer->setting;
    leaner.optimizer = LS_PLAN_ADAMW_8BIT;
    if (ls_plan_is_here(answer, &answer->node)) {
        return "";
    }
    const int64_t length = find_length(&answer->setting, &options);
    const bool has_leaner = answer->setting.optimizer == LS_PLAN_ADAMW && fits_with(&leaner, &options);
    const int64_t lean_length =
        answer->setting.optimizer == LS_PLAN_ADAMW ? find_length(&leaner, &options) : 0;
    if (length == 0 && !has_leaner && lean_length > 0) {
        return ls_arena_printf(answer->arena, "; or with --optimizer adamw-8bit and --seq %" PRId64,
                               lean_length);
    }
    const char *shorter =
        length > 0 ? ls_arena_printf(answer->arena, "; or with --seq %" PRId64, length) : "";
    return ls_arena_printf(answer->arena, "%s%s", shorter,
                           has_leaner ? "; or with --optimizer adamw-8bit" : "");
}

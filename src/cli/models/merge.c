// SPDX-License-Identifier: Apache-2.0
/* merge: makes one model of several. */
#include "execution/convert/merge.h"
#include "cli/models/eval.h"
#include "cli/registered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct merge_settings {
    const char *output, *weights, *base, *layers;
    ls_option_strings eval, data;
    int method;
    double scale;
    uint64_t experts_per_token, threads;
    bool adapter, json;
} merge_settings;

static const ls_option merge_options[] = {
    LS_ROW_OUTPUT_DIR(merge_settings),
    LS_ROW_CHOICE(merge_settings, method, "average", ls_merge_names,
                  "how to merge. average: the weighted mean of all values; task-arithmetic: --base plus what "
                  "the models have learned since; stitch: layers of several models, one after another; "
                  "experts: the MLPs of the models become the experts of one mixture"),
    LS_ROW_TEXT(merge_settings, weights, "W,W,...",
                "weight of each model, in the order of the models; for average and experts they add up to 1. "
                "Default: equal weights, or 1 for each with task-arithmetic"),
    LS_ROW_TEXT(merge_settings, base, "CKPT",
                "the model that the others were trained from, for --method task-arithmetic"),
    LS_ROW_F64(merge_settings, scale, "1", -100, 100, "factor of what the models have learned since --base"),
    LS_ROW_TEXT(merge_settings, layers, "A:0-3,B:4-7",
                "the layers of the result for --method stitch, from the first to the last; A is the first "
                "model, B the second, and layers count from 0"),
    LS_ROW_U64(merge_settings, experts_per_token, "0", 0, LS_MERGE_MOST,
               "number of experts that each token visits, for --method experts; 0: two"),
    LS_ROW_TEXTS(merge_settings, data, "FILE",
                 "data that the routers of --method experts are to be trained on; may be repeated. Default: "
                 "what the models were trained on, where they are run directories"),
    LS_ROW_BOOL(merge_settings, adapter, "merge adapters of one base into one adapter, without the base"),
    LS_ROW_TEXTS(
        merge_settings, eval, "FILE",
        "also print a table with the loss of each model and of the result on this file; may be repeated"),
    LS_ROW_THREADS(merge_settings),
    LS_ROW_JSON(merge_settings),
};

static ls_status read_weights(const merge_settings *settings, size_t models, double *weights)
{
    const char *at = settings->weights;
    size_t count = 0;
    for (; *at && count <= models; count++) {
        char *end = NULL;
        const double weight = strtod(at, &end);
        end += strspn(end, " ");
        if (end == at || !(weight >= -1e6 && weight <= 1e6) || (*end && *end != ',') ||
            (*end == ',' && !end[1])) {
            return ls_fail(LS_ERR_INVALID, "--weights is '%s', allowed are numbers separated by commas",
                           settings->weights);
        }
        if (count < models) {
            weights[count] = weight;
        }
        at = *end ? end + 1 : end;
    }
    return count == models
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "--weights has %s than the %zu models that are given: one for each",
                         count < models ? "fewer numbers" : "more numbers", models);
}

/* Adds the losses of the models and of the result. */
static ls_status evaluate(const ls_invocation *invocation, json_t *result)
{
    const merge_settings *settings = invocation->settings;
    const eval_settings asked = {.data = settings->eval,
                                 .tokens = "",
                                 .tokenizer = "",
                                 .adapter = "",
                                 .field = "text",
                                 .threads = settings->threads};
    const char **models = ls_arena_new(invocation->arena, const char *, invocation->word_count + 1);
    json_t *losses = NULL;
    memcpy(models, invocation->words, invocation->word_count * sizeof *models);
    models[invocation->word_count] = settings->output;
    LS_TRY(ls_eval_losses(invocation->arena, &asked, models, invocation->word_count + 1, &losses));
    if (!settings->json) {
        putchar('\n');
        ls_eval_show_losses(invocation->arena, losses, false);
    }
    json_object_update(result, losses);
    json_decref(losses);
    return LS_OK;
}

static void print_result(const merge_settings *settings, const json_t *result, size_t models)
{
    const char *run_file = json_string_value(json_object_get(result, "run_file"));
    const json_t *parameters = json_object_get(result, "parameters");
    printf("%s%s: %s of %zu model%s, %s", settings->output, settings->adapter ? "" : "/0",
           ls_merge_names[settings->method], models, models == 1 ? "" : "s",
           json_string_value(json_object_get(result, "family")));
    if (parameters) {
        printf(", %.2f million parameters", json_number_value(parameters) / 1e6);
    }
    putchar('\n');
    if (run_file) {
        printf("\nThe routers are new. Train them, and nothing else, with\n  lockstep train %s\n", run_file);
    }
}

static void add_to_registry(const ls_invocation *invocation)
{
    const merge_settings *settings = invocation->settings;
    const size_t count = invocation->word_count;
    ls_survey_source *sources = ls_arena_new(invocation->arena, ls_survey_source, count + 1);
    for (size_t i = 0; i < count; i++) {
        sources[i] = (ls_survey_source){invocation->words[i], "parent"};
    }
    sources[count] = (ls_survey_source){settings->base[0] ? settings->base : NULL, "base"};
    const ls_registry_add_options options = {
        .path = settings->output, .kind = LS_ENTRY_AUTO, .sources = sources, .source_count = count + 1};
    ls_registered(invocation->arena, options,
                  json_pack("{s:s, s:s, s:s}", "by", "merge", "method", ls_merge_names[settings->method],
                            "weights", settings->weights[0] ? settings->weights : "equal"));
}

static ls_status run_merge(const ls_invocation *invocation)
{
    const merge_settings *settings = invocation->settings;
    double weights[LS_MERGE_MOST + 1];
    if (!settings->output[0]) {
        return ls_fail(LS_ERR_INVALID, "missing output folder: give -o DIR");
    }
    if (settings->weights[0] && invocation->word_count <= LS_MERGE_MOST) {
        LS_TRY(read_weights(settings, invocation->word_count, weights));
    }
    if (settings->method != LS_MERGE_EXPERTS && (settings->data.count > 0 || settings->experts_per_token)) {
        return ls_fail(LS_ERR_INVALID, "--%s has an effect only with --method experts: leave it out",
                       settings->data.count > 0 ? "data" : "experts-per-token");
    }
    const ls_merge_options options = {
        .method = (ls_merge_method)settings->method,
        .paths = invocation->words,
        .count = invocation->word_count,
        .weights = settings->weights[0] ? weights : NULL,
        .base = settings->base,
        .scale = settings->scale,
        .layers = settings->layers,
        .experts_per_token = settings->experts_per_token,
        .is_adapter = settings->adapter,
        .output = settings->output,
        .data = settings->data.items,
        .data_count = (size_t)settings->data.count,
    };
    json_t *result = NULL;
    LS_TRY(ls_merge(invocation->arena, &options, &result));
    add_to_registry(invocation);
    if (!settings->json) {
        print_result(settings, result, invocation->word_count);
    }
    const ls_status status = settings->eval.count > 0 ? evaluate(invocation, result) : LS_OK;
    if (settings->json && status == LS_OK) {
        ls_print_json(result);
    }
    json_decref(result);
    return status;
}

const ls_command ls_command_merge = {
    .name = "merge",
    LS_WORDS("CKPT...", 1, 64),
    .summary = "make one model of several branches",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used), a Hugging\n"
               "Face directory or an adapter. The models have the same shape and tokenizer, as\n"
               "those have that 'lockstep branch' starts. The result is a checkpoint, DIR/0, whose\n"
               "manifest says what it was made of.\n"
               "\n"
               "--method experts makes a mixture: the MLP of each model becomes an expert, and\n"
               "everything else is averaged. llama and mistral become mixtral, qwen3 becomes\n"
               "qwen3-moe. DIR/router.yaml trains its routers, which choose the experts.\n"
               "\n"
               "Adapters are merged into their bases first; with --adapter, adapters of one base\n"
               "become one adapter, whose rank is the sum of their ranks.\n"
               "\n"
               "Examples:\n"
               "  lockstep merge branches/de branches/fr -o both --eval de.txt --eval fr.txt\n"
               "  lockstep merge branches/de branches/fr -o both --weights 0.7,0.3\n"
               "  lockstep merge tuned -o more --method task-arithmetic --base base --scale 0.5\n"
               "  lockstep merge a b -o tall --method stitch --layers A:0-5,B:4-7\n"
               "  lockstep merge branches/de branches/fr branches/code -o mix --method experts",
    LS_SETTINGS(merge_settings, merge_options),
    .run = run_merge,
};

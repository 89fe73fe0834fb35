// SPDX-License-Identifier: Apache-2.0
/* new: a commented run file for one's own data. */
#include "cli/command.h"
#include "execution/setup/new_run.h"
#include "execution/train/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct new_settings {
    const char *data, *model;
    ls_option_strings set;
    bool json;
} new_settings;

static const ls_option new_options[] = {
    LS_ROW_TEXT(new_settings, data, "FILE", "text or records to train on: a file, a folder or a pattern"),
    LS_ROW_TEXT(new_settings, model, "DIR",
                "model to train further: a Hugging Face directory, a checkpoint or a run directory"),
    LS_ROW_TEXTS(
        new_settings, set, "KEY=VALUE",
        "set a key of the run file about its data, such as data.bad_records=skip; may be given several "
        "times"),
    LS_ROW_JSON(new_settings),
};

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long number_at(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void print_records(const json_t *result)
{
    const json_t *r = json_object_get(result, "records");
    const double scale = json_real_value(json_object_get(r, "scale"));
    const bool is_text = strcmp(text_at(r, "form"), "text") == 0,
               is_bytes = text_at(result, "kind")[0] == 's';
    printf("data     %s, %s%s %s", text_at(r, "form"), scale > 1.0 ? "about " : "",
           ls_quantity_of((double)number_at(r, "tokens") * scale).text, is_bytes ? "bytes" : "tokens");
    if (is_text) {
        putchar('\n');
        if (text_at(r, "unread")[0]) {
            printf("         of each record only the text is trained on, not: %s\n%s", text_at(r, "unread"),
                   is_bytes ? ""
                            : "         (to train answers: --set data.prompt_field=KEY --set "
                              "data.completion_field=KEY)\n");
        }
        return;
    }
    printf(" in %.0f samples: half of them have at most %lld tokens, the longest has %lld\n",
           (double)number_at(r, "samples") * scale, number_at(r, "median"), number_at(r, "longest"));
    if (number_at(r, "bad") > 0) {
        printf("         left out: %lld that cannot be used\n", number_at(r, "bad"));
    }
    if (number_at(r, "too_long") > 0) {
        printf("         %lld of %lld are longer than the model's context and will be cut off\n",
               number_at(r, "too_long"), number_at(r, "samples"));
    }
    if (text_at(result, "template")[0]) {
        printf("template %s\n", text_at(result, "template"));
    }
}

static void print_cost(const json_t *result)
{
    char needed[32], available[32];
    const json_t *time = json_object_get(result, "time_s");
    const bool is_measured = json_is_true(json_object_get(result, "measured"));
    printf("way      %s, %s of %s parameters, base in %s\n", text_at(result, "way"),
           ls_quantity_of((double)number_at(result, "trained_parameters")).text,
           ls_quantity_of((double)number_at(result, "parameters")).text, text_at(result, "base"));
    printf("run      %lld steps of %lld x %lld tokens, %.3g epochs, learning rate %.2g\n",
           number_at(result, "steps"), number_at(result, "global_batch"), number_at(result, "context"),
           json_real_value(json_object_get(result, "epochs")),
           json_real_value(json_object_get(result, "lr")));
    printf("memory   %s of %s that are available\n",
           ls_memory_text((uint64_t)number_at(result, "memory_bytes"), needed),
           ls_memory_text((uint64_t)number_at(result, "available_bytes"), available));
    printf("time     %s%s\n",
           json_is_number(time) ? ls_duration_of(json_number_value(time)).text : "not known",
           is_measured            ? " on this machine, as it was calibrated"
           : json_is_number(time) ? ", roughly; 'lockstep calibrate' measures this machine"
                                  : "");
}

static ls_status run_new(const ls_invocation *invocation)
{
    const new_settings *settings = invocation->settings;
    ls_new_options options = {.dir = invocation->words[1],
                              .data = settings->data,
                              .model = settings->model,
                              .set = settings->set.items,
                              .set_count = settings->set.count};
    while (options.kind < LS_NEW_KINDS && strcmp(ls_new_names[options.kind], invocation->words[0]) != 0) {
        options.kind++;
    }
    if (options.kind == LS_NEW_KINDS) {
        return ls_fail(LS_ERR_INVALID, "KIND is '%s', allowed is finetune, chat or scratch",
                       invocation->words[0]);
    }
    json_t *result = NULL;
    LS_TRY(ls_new_run(invocation->arena, &options, &result));
    if (settings->json) {
        ls_print_json(result);
        json_decref(result);
        return LS_OK;
    }
    printf("wrote    %s\n", text_at(result, "file"));
    print_records(result);
    print_cost(result);
    const json_t *command;
    size_t i;
    puts("\nnext:");
    json_array_foreach(json_object_get(result, "commands"), i, command)
    {
        printf("  %s\n", json_string_value(command));
    }
    json_decref(result);
    return LS_OK;
}

const ls_command ls_command_new = {
    .name = "new",
    LS_WORDS("KIND DIR", 2, 2),
    .summary = "write a run file for your own text or records",
    .details = "KIND is one of\n"
               "\n"
               "  finetune   train a model further on prompts with completions, or on text\n"
               "  chat       train a model further on conversations\n"
               "  scratch    train a model from nothing on text\n"
               "\n"
               "The command looks at the data, the model and this machine, writes DIR/train.yaml\n"
               "with comments, and says what the run will cost. The run is named after DIR.\n"
               "A model on a hub is fetched first, with 'lockstep pull ORG/NAME -o MODEL_DIR'.\n"
               "Where records have other keys than the usual ones, or could be read in two ways,\n"
               "--set says what is meant.\n"
               "\n"
               "Examples:\n"
               "  lockstep pull HuggingFaceTB/SmolLM2-135M -o smollm2-135m\n"
               "  lockstep new chat assistant --data records.jsonl --model smollm2-135m\n"
               "  lockstep new chat support --data tickets.csv --model smollm2-135m \\\n"
               "      --set data.prompt_field=Ticket --set data.completion_field=Reply\n"
               "  lockstep new scratch stories --data stories.txt",
    LS_SETTINGS(new_settings, new_options),
    .run = run_new,
};

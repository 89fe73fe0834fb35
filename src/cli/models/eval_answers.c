// SPDX-License-Identifier: Apache-2.0
/* eval --records and --tasks: right answers, counted. */
#include "cli/models/eval.h"
#include "cli/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MODELS_MAX = 2 };

/* ---- JSON ---- */

static json_t *interval_json(ls_interval interval)
{
    return json_pack("[f, f]", interval.low, interval.high);
}

static json_t *ratio_or_null(uint64_t part, uint64_t whole)
{
    return whole ? json_real((double)part / (double)whole) : json_null();
}

static void add_classes(json_t *root, const ls_verdicts *v)
{
    json_t *classes = json_array(), *confusion = json_array();
    for (size_t i = 0; i < v->class_count; i++) {
        const ls_class_count *c = &v->classes[i];
        json_array_append_new(classes, json_pack("{s:o, s:I, s:I, s:o, s:o}", "label",
                                                 c->label[0] ? json_string(c->label) : json_null(), "count",
                                                 (json_int_t)c->expected, "answered", (json_int_t)c->answered,
                                                 "precision", ratio_or_null(c->right, c->answered), "recall",
                                                 ratio_or_null(c->right, c->expected)));
        json_t *row = json_array();
        for (size_t j = 0; j < v->class_count; j++) {
            json_array_append_new(row, json_integer((json_int_t)v->confusion[i * v->class_count + j]));
        }
        json_array_append_new(confusion, row);
    }
    json_object_set_new(root, "classes", classes);
    json_object_set_new(root, "confusion", confusion);
}

static json_t *records_json(const eval_settings *settings, const char *model, const ls_quiz *questions,
                            const ls_verdicts *v)
{
    const bool chosen = questions->items[0].endings != NULL;
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:I}", "model", model, "records", questions->path,
        "prompt_field", questions->prompt_key, "label", questions->label_key, "scoring",
        chosen ? "choices" : "generated", "count", (json_int_t)v->count, "right", (json_int_t)v->right_count,
        "accuracy", ratio_or_null(v->right_count, v->count), "accuracy_interval",
        interval_json(ls_share_interval(v->right_count, v->count)), "cut", (json_int_t)v->cut_count);
    if (chosen) {
        json_object_set_new(root, "accuracy_by_length", ratio_or_null(v->by_length_count, v->count));
        json_object_set_new(root, "log_probability", json_real(v->log_probability));
    } else {
        json_object_set_new(root, "normalised", ratio_or_null(v->right_count, v->count));
        json_object_set_new(root, "exact", ratio_or_null(v->exact_count, v->count));
        json_object_set_new(root, "found", ratio_or_null(v->found_count, v->count));
        json_object_set_new(root, "stopped", ratio_or_null(v->stopped_count, v->count));
        json_object_set_new(root, "max_tokens", json_integer((json_int_t)questions->answer_tokens));
        json_object_set_new(root, "extract",
                            settings->extract[0] ? json_string(settings->extract) : json_null());
    }
    add_classes(root, v);
    return root;
}

static json_t *task_json(const eval_settings *settings, const char *model, const char *name,
                         const ls_quiz *questions, const ls_verdicts *v)
{
    const bool has_choices = questions->items[0].ending_count > 1;
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:f, s:o, s:I}", "name", name, "model", model, "form",
        questions->form, "file", questions->path, "count", (json_int_t)v->count, "shots",
        (json_int_t)settings->shots, "acc", ratio_or_null(v->right_count, v->count), "acc_stderr",
        ls_share_error(v->right_count, v->count), "acc_interval",
        interval_json(ls_share_interval(v->right_count, v->count)), "cut", (json_int_t)v->cut_count);
    json_object_set_new(root, "acc_norm",
                        has_choices ? ratio_or_null(v->by_length_count, v->count) : json_null());
    json_object_set_new(root, "acc_norm_stderr",
                        has_choices ? json_real(ls_share_error(v->by_length_count, v->count)) : json_null());
    json_object_set_new(root, "log_probability", json_real(v->log_probability));
    return root;
}

static json_t *change_json(const ls_verdicts *verdicts)
{
    const ls_paired paired = ls_judge_compare(&verdicts[0], &verdicts[1]);
    const double difference = ((double)paired.gained - (double)paired.lost) / (double)paired.count;
    return json_pack("{s:I, s:I, s:f, s:o, s:f}", "gained", (json_int_t)paired.gained, "lost",
                     (json_int_t)paired.lost, "difference", difference, "interval",
                     interval_json(ls_paired_interval(&paired)), "p_value", ls_paired_p_value(&paired));
}

/* One model: its object. Two: both, and the change. */
static json_t *joined_json(json_t *const *models, size_t count, const ls_verdicts *verdicts)
{
    return count == 1 ? models[0]
                      : json_pack("{s:o, s:o, s:o}", "before", models[0], "after", models[1], "change",
                                  change_json(verdicts));
}

/* ---- for people ---- */

static void print_share(const char *what, uint64_t right, uint64_t count)
{
    const ls_interval interval = ls_share_interval(right, count);
    printf("  %-28s %6.2f %%  (%" PRIu64 " of %" PRIu64 "; 95 %% interval %.1f to %.1f %%)\n", what,
           100.0 * (double)right / (double)count, right, count, 100.0 * interval.low, 100.0 * interval.high);
}

static void print_cut(const ls_verdicts *v)
{
    if (v->cut_count > 0) {
        printf("  %" PRIu64 " %s left out\n", v->cut_count,
               v->cut_count == 1 ? "prompt was longer than the model's context; its beginning was"
                                 : "prompts were longer than the model's context; their beginnings were");
    }
}

static void print_classes(ls_arena *arena, const ls_verdicts *v)
{
    static const char *const titles[] = {"label", "questions", "answered", "precision", "recall"};
    static const bool right[] = {false, true, true, true, true};
    ls_table table = {.titles = titles, .right = right, .columns = 5, .arena = arena};
    for (size_t i = 0; i < v->class_count; i++) {
        const ls_class_count *c = &v->classes[i];
        ls_table_add(&table, c->label[0] ? c->label : "(something else)");
        ls_table_printf(&table, "%" PRIu64, c->expected);
        ls_table_printf(&table, "%" PRIu64, c->answered);
        ls_table_add(&table, c->answered
                                 ? ls_arena_printf(arena, "%.3f", (double)c->right / (double)c->answered)
                                 : "");
        ls_table_add(&table, c->expected
                                 ? ls_arena_printf(arena, "%.3f", (double)c->right / (double)c->expected)
                                 : "");
    }
    putchar('\n');
    ls_table_print(&table);
}

/* Rows: what was expected; columns: what was answered. */
static void print_confusion(ls_arena *arena, const ls_verdicts *v)
{
    const char *titles[LS_TABLE_COLUMNS_MAX] = {"expected \\ answered"};
    bool right[LS_TABLE_COLUMNS_MAX] = {false};
    ls_table table = {.titles = titles, .right = right, .columns = v->class_count + 1, .arena = arena};
    for (size_t i = 0; i < v->class_count; i++) {
        titles[i + 1] = v->classes[i].label[0] ? v->classes[i].label : "(else)";
        right[i + 1] = true;
    }
    for (size_t i = 0; i < v->class_count; i++) {
        if (v->classes[i].expected == 0) {
            continue;
        }
        ls_table_add(&table, titles[i + 1]);
        for (size_t j = 0; j < v->class_count; j++) {
            ls_table_printf(&table, "%" PRIu64, v->confusion[i * v->class_count + j]);
        }
    }
    putchar('\n');
    ls_table_print(&table);
}

static void print_records(ls_arena *arena, const char *model, const ls_quiz *questions, const ls_verdicts *v)
{
    const bool chosen = questions->items[0].endings != NULL;
    printf("%s on %s: %" PRIu64 " records, %s\n", model, questions->path, v->count,
           chosen ? "the most likely choice counts as the answer" : "answers written by the model");
    print_share(chosen ? "accuracy" : "right (normalised)", v->right_count, v->count);
    if (chosen) {
        print_share("accuracy per character", v->by_length_count, v->count);
    } else {
        print_share("exact", v->exact_count, v->count);
        print_share("ended by themselves", v->stopped_count, v->count);
        if (v->found_count < v->count) {
            print_share("the pattern was found", v->found_count, v->count);
        }
    }
    print_cut(v);
    if (v->class_count > 0) {
        print_classes(arena, v);
    }
    if (v->class_count > 0 && v->class_count < LS_TABLE_COLUMNS_MAX) {
        print_confusion(arena, v);
    }
}

static void print_task(const eval_settings *settings, const char *model, const char *name,
                       const ls_quiz *questions, const ls_verdicts *v)
{
    printf("%s on %s (%s, form %s): %" PRIu64 " questions, %" PRIu64 " shots\n", model, name, questions->path,
           questions->form, v->count, settings->shots);
    printf("  acc       %.4f ± %.4f\n", (double)v->right_count / (double)v->count,
           ls_share_error(v->right_count, v->count));
    if (questions->items[0].ending_count > 1) {
        printf("  acc_norm  %.4f ± %.4f\n", (double)v->by_length_count / (double)v->count,
               ls_share_error(v->by_length_count, v->count));
    }
    print_cut(v);
}

static void print_change(const ls_verdicts *verdicts)
{
    const ls_paired paired = ls_judge_compare(&verdicts[0], &verdicts[1]);
    const ls_interval interval = ls_paired_interval(&paired);
    const double p = ls_paired_p_value(&paired);
    printf("change: %+.2f points (95 %% interval %+.1f to %+.1f); %" PRIu64 " answers became right, %" PRIu64
           " became wrong; p = %.3g%s\n",
           100.0 * ((double)paired.gained - (double)paired.lost) / (double)paired.count, 100.0 * interval.low,
           100.0 * interval.high, paired.gained, paired.lost, p,
           p < 0.05 ? "" : ": these are too few questions to tell the two models apart");
}

/* ---- the command ---- */

typedef struct asked {
    const char *const *models;
    size_t model_count;
    const char *const *names; /* of tasks; NULL: records */
    ls_quiz *questions;
    size_t count;
    /* (count, model_count) */
    ls_verdicts *verdicts;
} asked;

static void print_asked(const ls_invocation *invocation, const asked *a)
{
    const eval_settings *settings = invocation->settings;
    json_t *tasks = json_array(), *one = NULL, *metrics[MODELS_MAX];
    for (size_t m = 0; m < a->model_count; m++) {
        metrics[m] = json_object();
    }
    for (size_t i = 0; i < a->count; i++) {
        const ls_verdicts *v = a->verdicts + i * a->model_count;
        json_t *objects[MODELS_MAX] = {NULL};
        for (size_t m = 0; m < a->model_count; m++) {
            objects[m] = a->names ? task_json(settings, a->models[m], a->names[i], &a->questions[i], &v[m])
                                  : records_json(settings, a->models[m], &a->questions[i], &v[m]);
            if (a->names) {
                json_object_set(metrics[m], a->names[i], objects[m]);
            } else {
                json_object_update(metrics[m], objects[m]);
            }
            if (!settings->json && a->names) {
                print_task(settings, a->models[m], a->names[i], &a->questions[i], &v[m]);
            } else if (!settings->json) {
                print_records(invocation->arena, a->models[m], &a->questions[i], &v[m]);
            }
        }
        one = joined_json(objects, a->model_count, v);
        json_array_append_new(tasks, one);
        if (!settings->json && a->model_count > 1) {
            print_change(v);
        }
    }
    if (settings->json) {
        json_t *root = a->names ? json_pack("{s:O}", "tasks", tasks) : json_incref(one);
        ls_print_json(root);
        json_decref(root);
    }
    json_decref(tasks);
    for (size_t m = 0; m < a->model_count; m++) {
        ls_eval_registered(invocation, a->models[m], metrics[m]);
    }
}

static ls_status ask_models(const ls_invocation *invocation, asked *a, const ls_extractor *extractor)
{
    ls_arena *arena = invocation->arena;
    ls_quiz_answer **answers = ls_arena_new(arena, ls_quiz_answer *, a->count);
    a->verdicts = ls_arena_new(arena, ls_verdicts, a->count * a->model_count);
    for (size_t m = 0; m < a->model_count; m++) {
        LS_TRY(ls_eval_ask(invocation, m, a->questions, a->count, answers));
        for (size_t i = 0; i < a->count; i++) {
            ls_judge_count(arena, &a->questions[i], answers[i], extractor,
                           &a->verdicts[i * a->model_count + m]);
        }
    }
    print_asked(invocation, a);
    return LS_OK;
}

static ls_status read_tasks(const ls_invocation *invocation, const char ***names_out, ls_quiz **questions_out,
                            size_t *count_out)
{
    const eval_settings *settings = invocation->settings;
    const char **names;
    const size_t count = ls_eval_split(invocation->arena, settings->tasks, &names);
    ls_quiz *questions = ls_arena_new(invocation->arena, ls_quiz, count);
    for (size_t i = 0; i < count; i++) {
        char *equals = strchr(names[i], '=');
        if (!equals || equals == names[i] || !equals[1]) {
            return ls_fail(LS_ERR_INVALID, "--tasks has '%s'; write each task as NAME=FILE", names[i]);
        }
        *equals = '\0';
        LS_TRY(ls_questions_read_task(invocation->arena, names[i], equals + 1, settings->shots,
                                      settings->limit, &questions[i]));
    }
    *names_out = names;
    *questions_out = questions;
    *count_out = count;
    return LS_OK;
}

ls_status ls_eval_answers(const ls_invocation *invocation)
{
    const eval_settings *settings = invocation->settings;
    asked a = {.models = invocation->words, .model_count = invocation->word_count, .count = 1};
    ls_quiz records = {0}, *tasks = &records;
    const char **names = NULL;
    ls_extractor *extractor = NULL;
    if (settings->tasks[0]) {
        LS_TRY(read_tasks(invocation, &names, &tasks, &a.count));
    }
    if (settings->extract[0]) {
        LS_TRY(ls_extractor_create(settings->extract, &extractor));
    }
    a.names = names;
    a.questions = tasks;
    const ls_status status = ask_models(invocation, &a, extractor);
    ls_extractor_destroy(extractor);
    return status;
}

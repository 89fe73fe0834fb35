// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/options.h"

#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *name;
    ls_option_weighted_list files;
    uint64_t steps;
    uint64_t leaves;
    double lr;
    int kind;
    int tie;
    bool spot;
    double time_limit_s;
    uint64_t cache_bytes;
    ls_option_strings tags;
} settings;

static const char *const kinds[] = {"cosine", "linear", "constant", NULL};

static const ls_option options[] = {
    {.key = "name",
     .type = LS_OPTION_STRING,
     .offset = offsetof(settings, name),
     .default_text = "\"\"",
     .letter = 'n',
     .identity = true,
     .help = "what it is called"},
    {.key = "data.files",
     .type = LS_OPTION_WEIGHTED,
     .offset = offsetof(settings, files),
     .default_text = "[]",
     .help = "what to read"},
    {.key = "train.steps",
     .type = LS_OPTION_U64,
     .offset = offsetof(settings, steps),
     .default_text = "1000",
     .min = 1,
     .max = LS_OPTION_U64_MAX,
     .help = "how many steps"},
    {.key = "train.leaves",
     .type = LS_OPTION_U64,
     .offset = offsetof(settings, leaves),
     .default_text = "auto",
     .allow_auto = true,
     .min = 1,
     .max = 4096,
     .identity = true,
     .help = "leaves of the tree"},
    {.key = "train.optimizer.lr",
     .type = LS_OPTION_F64,
     .offset = offsetof(settings, lr),
     .default_text = "1.0e-3",
     .min = 0,
     .max = 1,
     .identity = true,
     .help = "learning rate"},
    {.key = "train.schedule.kind",
     .type = LS_OPTION_CHOICE,
     .offset = offsetof(settings, kind),
     .default_text = "cosine",
     .choices = kinds,
     .identity = true,
     .help = "how the learning rate moves"},
    {.key = "model.tie",
     .type = LS_OPTION_SWITCH,
     .offset = offsetof(settings, tie),
     .default_text = "auto",
     .help = "tie the embeddings"},
    {.key = "job.spot",
     .type = LS_OPTION_BOOL,
     .offset = offsetof(settings, spot),
     .default_text = "false",
     .help = "may be ended at any time"},
    {.key = "job.time_limit",
     .type = LS_OPTION_DURATION,
     .offset = offsetof(settings, time_limit_s),
     .default_text = "2h",
     .min = 0,
     .max = 1e9,
     .help = "longest run"},
    {.key = "cache_size",
     .type = LS_OPTION_BYTES,
     .offset = offsetof(settings, cache_bytes),
     .default_text = "1GiB",
     .min = 0,
     .max = LS_OPTION_U64_MAX,
     .help = "memory for the cache"},
    {.key = "tags",
     .type = LS_OPTION_STRINGS,
     .offset = offsetof(settings, tags),
     .default_text = "[]",
     .letter = 't',
     .help = "words to find it by"},
};
static const ls_option_section sections[] = {{"train", "how to train"},
                                             {"model", "what to train", .allow_auto = true}};
static const ls_option_table table = {options, sizeof options / sizeof options[0], sections,
                                      sizeof sections / sizeof sections[0]};

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static ls_status apply(settings *s, const char *text)
{
    ls_document doc;
    LS_TRY(ls_yaml_parse(text, strlen(text), "run.yaml", &doc));
    const ls_status status = ls_options_apply_document(&table, s, &doc, &arena);
    ls_document_release(&doc);
    return status;
}

static void refuse(const char *text, const char *message)
{
    settings s;
    ls_options_defaults(&table, &s, &arena);
    assert_int_equal(apply(&s, text), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), message);
}

static void options_defaults_fill_every_type(void **state)
{
    (void)state;
    settings s;
    memset(&s, 0xee, sizeof s);
    ls_options_check(&table, sizeof s);
    ls_options_defaults(&table, &s, &arena);
    assert_string_equal(s.name, "");
    assert_int_equal(s.files.count, 0);
    assert_int_equal(s.steps, 1000);
    assert_true(s.leaves == LS_AUTO_U64);
    assert_true(s.lr == 1e-3);
    assert_int_equal(s.kind, 0);
    assert_int_equal(s.tie, LS_AUTO);
    assert_false(s.spot);
    assert_true(s.time_limit_s == 7200.0);
    assert_int_equal(s.cache_bytes, 1073741824);
    assert_int_equal(s.tags.count, 0);
}

/* Defaults are written as in a file, so a line break in quotes is one character. */
static void options_defaults_read_quotes(void **state)
{
    (void)state;
    static const ls_option quoted[] = {{.key = "name",
                                        .type = LS_OPTION_STRING,
                                        .offset = offsetof(settings, name),
                                        .default_text = "\"\\n\"",
                                        .help = "what it is called"}};
    const ls_option_table one = {.options = quoted, .count = 1};
    settings s;
    ls_options_defaults(&one, &s, &arena);
    assert_string_equal(s.name, "\n");
}

static void options_apply_document_reads_every_type(void **state)
{
    (void)state;
    settings s;
    ls_options_defaults(&table, &s, &arena);
    assert_int_equal(
        apply(&s, "name: a run\ndata: {files: [a.txt, {path: b.txt, weight: 2, field: t}]}\n"
                  "train:\n  steps: 1e6\n  leaves: 12\n  optimizer: {lr: 0.5}\n  schedule: {kind: constant}\n"
                  "model: {tie: false}\njob: {spot: true, time_limit: 1h30m}\ncache_size: 1.5GB\ntags: x\n"),
        LS_OK);
    assert_string_equal(s.name, "a run");
    assert_int_equal(s.files.count, 2);
    assert_true(s.files.items[0].weight == 0.0);
    assert_string_equal(s.files.items[1].path, "b.txt");
    assert_true(s.files.items[1].weight == 2.0);
    assert_string_equal(s.files.items[0].field, "");
    assert_string_equal(s.files.items[1].field, "t");
    assert_int_equal(s.steps, 1000000);
    assert_int_equal(s.leaves, 12);
    assert_true(s.lr == 0.5);
    assert_int_equal(s.kind, 2);
    assert_int_equal(s.tie, LS_NO);
    assert_true(s.spot);
    assert_true(s.time_limit_s == 5400.0);
    assert_int_equal(s.cache_bytes, 1500000000);
    assert_int_equal(s.tags.count, 1);
    assert_int_equal(apply(&s, "train: {steps: null}\n"), LS_OK);
    assert_int_equal(s.steps, 1000);
}

static void options_unknown_key_names_the_nearest(void **state)
{
    (void)state;
    refuse("name: x\ntrain:\n  optimiser: {lr: 0.1}\n", "run.yaml:3: unknown key train.optimiser, did you "
                                                        "mean train.optimizer? Keys of train: steps, leaves, "
                                                        "optimizer, schedule");
    refuse("train: {lr: 0.1}\n",
           "run.yaml:1: unknown key train.lr, did you mean train.optimizer.lr? Keys of train: "
           "steps, leaves, optimizer, schedule");
    refuse("nmae: x\n",
           "run.yaml:1: unknown key nmae, did you mean name? Keys of the top level: name, data, train, "
           "model, job, cache_size, tags");
    refuse("zzzzzzzz: 1\n",
           "run.yaml:1: unknown key zzzzzzzz. Keys of the top level: name, data, train, model, job, "
           "cache_size, tags");
}

static const ls_option_hint hints[] = {
    {"learning_rate max_lr", "train.optimizer.lr", ""},
    {"gone", "not.here", "skipped, because this table has no such key"},
    {"batch_size gone", "train.leaves", "shares of a batch"},
    {"wandb", NULL, "nothing is sent anywhere"},
    {NULL, NULL, NULL},
};

/* Names of other programs: in a file, after --set, and as options of a command. */
static void options_unknown_name_gives_ours(void **state)
{
    (void)state;
    ls_option_table known = table;
    known.hints = hints;
    settings s;
    static const struct {
        const char *assignment, *text;
    } cases[] = {
        {"learning_rate=1", "; use train.optimizer.lr, as in  --set train.optimizer.lr=1.0e-3"},
        {"train.Learning-Rate=1", "; use train.optimizer.lr, as in  --set train.optimizer.lr=1.0e-3"},
        {"gone=1", "; use train.leaves (shares of a batch), as in  --set train.leaves=..."},
        {"wandb.project=x", ". "},
        {"wandb=x", "; nothing is sent anywhere"},
        {"train:leaves=x", "; write a space after the colon"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_options_defaults(&known, &s, &arena);
        assert_int_equal(ls_options_apply_assignment(&known, &s, cases[i].assignment, "--set", &arena),
                         LS_ERR_INVALID);
        const size_t name_bytes = strcspn(cases[i].assignment, "=");
        const char *unknown = ls_arena_printf(&arena, "--set: unknown key %.*s%s", (int)name_bytes,
                                              cases[i].assignment, i == 3 ? "" : cases[i].text);
        assert_memory_equal(ls_error_text(), unknown, strlen(unknown));
    }
    ls_document doc;
    const char *text = "max_lr: 1\n";
    assert_int_equal(ls_yaml_parse(text, strlen(text), "run.yaml", &doc), LS_OK);
    assert_int_equal(ls_options_apply_document(&known, &s, &doc, &arena), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), "run.yaml:1: unknown key max_lr; use train.optimizer.lr, as "
                                         "in  train: {optimizer: {lr: 1.0e-3}}");
    ls_document_release(&doc);
}

static void options_unknown_option_gives_ours(void **state)
{
    (void)state;
    static const ls_option_hint own[] = {{"size", "cache_size", ""}, {NULL, NULL, NULL}};
    ls_option_table keys = table, command = table;
    keys.hints = hints;
    command.hints = own;
    command.set_table = &keys;
    static const char *const cases[][2] = {
        {"--lr", "unknown option --lr; use --set train.optimizer.lr=VALUE"},
        {"--max-lr=3", "unknown option --max-lr; use --set train.optimizer.lr=VALUE"},
        {"--wandb", "unknown option --wandb; nothing is sent anywhere"},
        {"--size", "unknown option --size; use --cache-size SIZE"},
        {"--zzzzzzzz", "unknown option --zzzzzzzz; --help lists the options"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        settings s;
        ls_options_defaults(&command, &s, &arena);
        ls_option_strings words = {0};
        char *argv[] = {ls_arena_strdup(&arena, cases[i][0]), "x"};
        assert_int_equal(ls_options_apply_arguments(&command, &s, 2, argv, &arena, &words), LS_ERR_INVALID);
        assert_string_equal(ls_error_text(), cases[i][1]);
    }
}

static void options_bad_value_names_line_value_and_range(void **state)
{
    (void)state;
    refuse("train:\n  steps: 0\n", "run.yaml:2: train.steps is 0, allowed is a whole number, 1 or more");
    refuse("train:\n  steps: 1.5\n", "run.yaml:2: train.steps is 1.5, allowed is a whole number, 1 or more");
    refuse("train:\n  steps: 9007199254740993\n",
           "run.yaml:2: train.steps is 9007199254740993, allowed is a whole number, 1 or more");
    refuse("train: {steps: \"5\"}\n",
           "run.yaml:1: train.steps is \"5\", allowed is a whole number, 1 or more; remove the quotes");
    refuse("job: {spot: \"true\"}\n",
           "run.yaml:1: job.spot is \"true\", allowed is true or false; remove the quotes");
    refuse("job: {spot: yes}\n", "run.yaml:1: job.spot is \"yes\", allowed is true or false; yes, no, on and "
                                 "off are text in YAML");
    refuse("train: {leaves: 4097}\n",
           "run.yaml:1: train.leaves is 4097, allowed is auto or a whole number, 1 to 4096");
    refuse("train: {steps: auto}\n",
           "run.yaml:1: train.steps is \"auto\", allowed is a whole number, 1 or more");
    refuse("train:\n  optimizer:\n    lr: 7\n",
           "run.yaml:3: train.optimizer.lr is 7, allowed is a number, 0 to 1");
    refuse("train: {schedule: {kind: cosin}}\n",
           "run.yaml:1: train.schedule.kind is \"cosin\", allowed is one of cosine, linear, constant");
    refuse("name: 12\n", "run.yaml:1: name must be text, but 12 is a number; write \"12\" in quotes");
    refuse("job: {spot: 1}\n", "run.yaml:1: job.spot is 1, allowed is true or false");
    refuse("job: {time_limit: 2 weeks}\n", "run.yaml:1: job.time_limit is \"2 weeks\", allowed is a duration "
                                           "(90s, 1h30m, 2d), seconds 0 to 1000000000");
    refuse("train: 3\n", "run.yaml:1: train is a section, not a single value: write its keys under it; the "
                         "possible keys are steps, leaves, optimizer, schedule");
    refuse("name: {a: 1}\n", "run.yaml:1: name is a section, allowed is text");
    refuse("data: {files: [{path: a, wait: 1}]}\n",
           "run.yaml:1: an item of data.files must be a path or {path: PATH, weight: NUMBER, field: KEY}");
    refuse("[1]\n", "run.yaml:1: \"key: value\" lines are expected");
}

/* In a section that takes the word, auto stands for auto in each key that takes it. */
static void options_apply_auto_to_a_section(void **state)
{
    (void)state;
    settings s;
    ls_options_defaults(&table, &s, &arena);
    s.tie = LS_NO;
    assert_int_equal(apply(&s, "model: auto\n"), LS_OK);
    assert_int_equal(s.tie, LS_AUTO);
    s.tie = LS_NO;
    assert_int_equal(ls_options_apply_assignment(&table, &s, "model=auto", "--set", &arena), LS_OK);
    assert_int_equal(s.tie, LS_AUTO);
    assert_int_equal(ls_options_apply_assignment(&table, &s, "model=3", "--set", &arena), LS_ERR_INVALID);
    refuse("train: auto\n",
           "run.yaml:1: train is a section, not a single value: write its keys under it; the "
           "possible keys are steps, leaves, optimizer, schedule");
}

static void options_apply_assignment_keeps_text(void **state)
{
    (void)state;
    settings s;
    ls_options_defaults(&table, &s, &arena);
    assert_int_equal(ls_options_apply_assignment(&table, &s, "name=And = 12 ", "--set", &arena), LS_OK);
    assert_string_equal(s.name, "And = 12 ");
    assert_int_equal(ls_options_apply_assignment(&table, &s, "train.leaves=6", "--set", &arena), LS_OK);
    assert_int_equal(s.leaves, 6);
    assert_int_equal(ls_options_apply_assignment(&table, &s, "data.files=[a, b]", "--set", &arena), LS_OK);
    assert_int_equal(s.files.count, 2);
    assert_int_equal(ls_options_apply_assignment(&table, &s, "data.files=c d.txt", "--set", &arena), LS_OK);
    assert_string_equal(s.files.items[0].path, "c d.txt");
    assert_int_equal(ls_options_apply_assignment(&table, &s, "train.leave=6", "--set", &arena),
                     LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "--set: unknown key train.leave, did you mean train.leaves?"));
    assert_int_equal(ls_options_apply_assignment(&table, &s, "train.leaves", "--set", &arena),
                     LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), "--set: \"train.leaves\" is not of the form key=value");
    assert_int_equal(ls_options_apply_assignment(&table, &s, "train.leaves=", "--set", &arena),
                     LS_ERR_INVALID);
}

static void options_apply_arguments_reads_a_command_line(void **state)
{
    (void)state;
    settings s;
    ls_options_defaults(&table, &s, &arena);
    char *argv[] = {"in.yaml",        "--train.steps", "5",  "-t", "x",  "--tags=y",
                    "--job.spot",     "--cache-size",  "2K", "-n", "-x", "--",
                    "--not-an-option"};
    ls_option_strings words = {0};
    assert_int_equal(
        ls_options_apply_arguments(&table, &s, sizeof argv / sizeof argv[0], argv, &arena, &words), LS_OK);
    assert_int_equal(words.count, 2);
    assert_string_equal(words.items[0], "in.yaml");
    assert_string_equal(words.items[1], "--not-an-option");
    assert_int_equal(s.steps, 5);
    assert_int_equal(s.tags.count, 2);
    assert_string_equal(s.tags.items[1], "y");
    assert_true(s.spot);
    assert_int_equal(s.cache_bytes, 2048);
    assert_string_equal(s.name, "-x");

    char *no_spot[] = {"--no-job.spot"};
    assert_int_equal(ls_options_apply_arguments(&table, &s, 1, no_spot, &arena, &words), LS_OK);
    assert_false(s.spot);
    char *unknown[] = {"--cache-sise", "3"};
    assert_int_equal(ls_options_apply_arguments(&table, &s, 2, unknown, &arena, &words), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), "unknown option --cache-sise, did you mean --cache-size?");
    char *no_value[] = {"--train.steps"};
    assert_int_equal(ls_options_apply_arguments(&table, &s, 1, no_value, &arena, &words), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), "--train.steps needs a value");
    char *bad[] = {"--train.steps=-4"};
    assert_int_equal(ls_options_apply_arguments(&table, &s, 1, bad, &arena, &words), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(),
                        "--train.steps: train.steps is -4, allowed is a whole number, 1 or more");
}

static void options_append_yaml_reloads_the_same(void **state)
{
    (void)state;
    settings s, again;
    ls_options_defaults(&table, &s, &arena);
    s.lr = 1.0 / 3.0;
    s.name = "true";
    s.time_limit_s = 1.5;
    s.tie = LS_YES;
    s.cache_bytes = 1025;
    const char *tags[] = {"a: b # c", "x\ny", "null", "12", "é", "'", ""};
    s.tags = (ls_option_strings){.items = tags, .count = 7};
    ls_option_weighted files[] = {{"*.txt", 0.0, ""}, {"b,c.txt", 0.1, "a b"}};
    s.files = (ls_option_weighted_list){.items = files, .count = 2};
    ls_text text = {0}, second = {0};
    ls_options_append_yaml(&table, &s, false, &text);
    ls_options_defaults(&table, &again, &arena);
    assert_int_equal(apply(&again, ls_text_string(&text)), LS_OK);
    assert_true(again.lr == s.lr);
    assert_string_equal(again.name, "true");
    assert_true(again.time_limit_s == 1.5);
    assert_int_equal(again.cache_bytes, 1025);
    assert_int_equal(again.tags.count, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(again.tags.items[i], tags[i]);
    }
    assert_true(again.files.items[1].weight == 0.1);
    assert_string_equal(again.files.items[1].field, "a b");
    ls_options_append_yaml(&table, &again, false, &second);
    assert_string_equal(ls_text_string(&second), ls_text_string(&text));

    ls_text_clear(&text);
    ls_options_append_yaml(&table, &s, true, &text);
    assert_string_equal(ls_text_string(&text),
                        "name: \"true\"\ntrain:\n  leaves: auto\n  optimizer:\n    lr: "
                        "0.3333333333333333\n  schedule:\n    kind: cosine\n");
    ls_text_release(&text);
    ls_text_release(&second);
}

static void options_append_help_lists_every_option(void **state)
{
    (void)state;
    ls_text text = {0};
    ls_options_append_help(&table, "--", &text);
    for (size_t i = 0; i < table.count; i++) {
        assert_non_null(strstr(ls_text_string(&text), options[i].help));
    }
    assert_non_null(strstr(ls_text_string(&text), "train: how to train\n"));
    assert_non_null(strstr(ls_text_string(&text), "--cache-size SIZE"));
    assert_non_null(strstr(ls_text_string(&text), "(0 to 1; default 1.0e-3)"));
    ls_text_clear(&text);
    ls_options_append_markdown(&table, &text);
    assert_non_null(strstr(ls_text_string(&text),
                           "| `train.schedule.kind` | one of cosine, linear, constant | `cosine` |"));
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_defaults_fill_every_type),
        cmocka_unit_test(options_defaults_read_quotes),
        cmocka_unit_test(options_apply_document_reads_every_type),
        cmocka_unit_test(options_unknown_key_names_the_nearest),
        cmocka_unit_test(options_unknown_name_gives_ours),
        cmocka_unit_test(options_unknown_option_gives_ours),
        cmocka_unit_test(options_bad_value_names_line_value_and_range),
        cmocka_unit_test(options_apply_auto_to_a_section),
        cmocka_unit_test(options_apply_assignment_keeps_text),
        cmocka_unit_test(options_apply_arguments_reads_a_command_line),
        cmocka_unit_test(options_append_yaml_reloads_the_same),
        cmocka_unit_test(options_append_help_lists_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}

// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/run_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

/* The example of the design, whole. */
static const char shakespeare[] =
    "name: shakespeare\n"
    "model:                    # or  from: DIR\n"
    "  family: llama\n"
    "  layers: 6\n"
    "  heads: 6\n"
    "  kv_heads: 2\n"
    "  width: 384\n"
    "  ffn: 1024\n"
    "  context: 256\n"
    "tokenizer: {kind: bytes}\n"
    "data:\n"
    "  train: [corpus/*.txt]\n"
    "  validation_fraction: 0.05\n"
    "train:\n"
    "  steps: 2000\n"
    "  global_batch: 48\n"
    "  micro_batch: 4\n"
    "  leaves: 12\n"
    "  seed: 1337\n"
    "  optimizer: {kind: adamw, lr: 1.0e-3, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, weight_decay: 0.1}\n"
    "  schedule: {kind: cosine, warmup_steps: 100, final_lr_fraction: 0.1}\n"
    "  clip_norm: 1.0\n"
    "  precision: fp32\n"
    "parallel: {ranks: auto, data: auto, tensor: 1, pipeline: 1, zero: 1}\n"
    "checkpoint: {every_steps: 200, keep_last: 3}\n"
    "eval: {every_steps: 200}\n"
    "sample: {every_steps: 200, prompt: \"And \"}\n"
    "job: {account: research, priority: normal, min_ranks: 1, max_ranks: 8, spot: false, time_limit: 2h}\n";

static ls_status parse_with(const char *text, const char *const *overrides, size_t count, ls_run_file *run)
{
    return ls_run_file_parse(text, strlen(text), "dir/a.yaml", overrides, count, &arena, run);
}

static ls_run_file parse(const char *text)
{
    ls_run_file run;
    if (parse_with(text, NULL, 0, &run) != LS_OK) {
        fail_msg("unexpected error: %s", ls_error_text());
    }
    return run;
}

static ls_run_file design_with(const char *override)
{
    ls_run_file run;
    if (parse_with(shakespeare, &override, 1, &run) != LS_OK) {
        fail_msg("unexpected error: %s", ls_error_text());
    }
    return run;
}

/* The design's example with overrides (separated by ;) must be refused with this text. */
static void refuse(const char *overrides, const char *message)
{
    const char *list[8];
    size_t count = 0;
    char *copy = ls_arena_strdup(&arena, overrides);
    for (char *word = strtok(copy, ";"); word; word = strtok(NULL, ";")) {
        list[count++] = word;
    }
    ls_run_file run = {.name = "untouched"};
    assert_int_equal(parse_with(shakespeare, list, count, &run), LS_ERR_INVALID);
    assert_string_equal(run.name, "untouched");
    assert_string_equal(ls_error_text(), message);
}

static void run_file_table_is_whole(void **state)
{
    (void)state;
    ls_options_check(ls_run_file_table(), sizeof(ls_run_file));
    ls_run_file run;
    ls_options_defaults(ls_run_file_table(), &run, &arena);
    assert_int_equal(run.model.family, LS_FAMILY_COUNT);
    assert_int_equal(run.train.seed, 1337);
}

static void run_file_parse_reads_the_design_example(void **state)
{
    (void)state;
    const ls_run_file run = parse(shakespeare);
    assert_string_equal(run.name, "shakespeare");
    assert_int_equal(run.model.family, LS_FAMILY_LLAMA);
    assert_int_equal(run.model.kv_heads, 2);
    assert_int_equal(run.model.head_dim, 64);
    assert_int_equal(run.model.tie_embeddings, LS_NO);
    assert_true(run.model.norm_eps == 1e-5 && run.model.rope_theta == 1e4);
    assert_true(run.model.vocab == LS_AUTO_U64);
    assert_int_equal(run.train.leaves, 12);
    assert_int_equal(run.train.schedule.steps, 2000);
    assert_true(run.train.optimizer.lr == 1.0e-3);
    assert_string_equal(run.data.train.items[0].path, "corpus/*.txt");
    assert_string_equal(run.sample.prompt, "And ");
    assert_true(run.job.time_limit_s == 7200.0);
    assert_true(run.parallel.ranks == LS_AUTO_U64);
}

static void run_file_parse_minimal_is_complete(void **state)
{
    (void)state;
    const ls_run_file run = parse("data: {train: a.txt}\n");
    assert_string_equal(run.name, "a");
    assert_int_equal(run.model.layers, 6);
    assert_int_equal(run.model.ffn, 1024);
    assert_int_equal(run.model.context, 256);
    assert_int_equal(run.tokenizer.kind, LS_TOKENIZER_BYTES);
    assert_true(run.data.validation_fraction == 0.05);
    assert_int_equal(run.train.steps, 1000);
    assert_int_equal(run.train.schedule.warmup_steps, 100);
    assert_int_equal(run.train.global_batch % run.train.leaves, 0);
    assert_int_equal(run.train.global_batch / run.train.leaves % run.train.micro_batch, 0);
}

static void run_file_family_decides_defaults(void **state)
{
    (void)state;
    const ls_run_file gpt2 = parse("model: {family: gpt2, width: 96}\ndata: {train: a}\n");
    assert_int_equal(gpt2.model.ffn, 384);
    assert_int_equal(gpt2.model.tie_embeddings, LS_YES);
    assert_int_equal(gpt2.model.qkv_bias, LS_YES);
    const ls_run_file qwen3 =
        parse("model: {family: qwen3, width: 96, tie_embeddings: true}\ndata: {train: a}\n");
    assert_int_equal(qwen3.model.ffn, 256);
    assert_int_equal(qwen3.model.tie_embeddings, LS_YES);
    assert_int_equal(qwen3.model.qk_norm, LS_YES);
    assert_true(qwen3.model.norm_eps == 1e-6 && qwen3.model.rope_theta == 1e6);
}

static void run_file_check_prints_values_that_work(void **state)
{
    (void)state;
    refuse("train.leaves=10",
           "dir/a.yaml: train.leaves is 10, which does not divide train.global_batch 48; leaves 4, 6, 8 or "
           "12 would work, or global_batch 40 or 50");
    refuse("train.micro_batch=3",
           "dir/a.yaml: train.micro_batch is 3, which does not divide the 4 sequences of a leaf "
           "(train.global_batch 48 / train.leaves 12); micro_batch 1, 2 or 4 would work");
    refuse(
        "train.micro_batch=3;train.leaves=auto;train.global_batch=8",
        "dir/a.yaml: train.micro_batch is 3, which does not divide train.global_batch 8; micro_batch 1, 2, "
        "4 or 8 would work");
    refuse("model.kv_heads=4",
           "dir/a.yaml: model.kv_heads is 4, which does not divide model.heads 6; kv_heads 1, 2, 3 or 6 "
           "would work");
    refuse("model.width=380",
           "dir/a.yaml: model.heads 6 does not divide model.width 380; heads 2, 4, 5 or 10 would work, or "
           "width 384, or set model.head_dim");
    refuse("model.width=390",
           "dir/a.yaml: model.head_dim is 65 (width / heads); rotary positions turn pairs and need an even "
           "one, such as 66");
    refuse("train.tensor_cut=3",
           "dir/a.yaml: train.tensor_cut is 3, but must divide model.kv_heads 2 and model.ffn 1024; use 2");
    refuse("tokenizer.kind=file",
           "dir/a.yaml: tokenizer.kind is file, but tokenizer.file is not set; give the path of a "
           "tokenizer.json, or use kind bytes");
    refuse("data.train=[]",
           "dir/a.yaml: data.train is empty; name at least one file, as in  data: {train: [corpus/*.txt]}");
    refuse("data.validation=[v.txt]",
           "dir/a.yaml: data.validation names files and data.validation_fraction is 0.05; keep one "
           "of them");
    refuse("train.schedule.warmup_steps=3000",
           "dir/a.yaml: train.schedule.warmup_steps is 3000, but the schedule has 2000 "
           "steps; use auto, or 2000 at most");
    refuse("parallel.ranks=13", "dir/a.yaml: parallel.ranks is 13, but the batch of a step is divided into "
                                "only 12 shares (train.leaves), so that some ranks would have nothing to "
                                "do; use at most 12 ranks. To use more, set train.leaves to at least 13 in a "
                                "new run: it can't change once a run has begun");
    refuse("job.min_ranks=9", "dir/a.yaml: job.min_ranks is 9, more than job.max_ranks, which is 8");
    refuse("parallel.ranks=4;job.max_ranks=3", "dir/a.yaml: the run would have 4 ranks (--ranks, "
                                               "parallel.ranks), but job.max_ranks is 3; use 1 to 3 ranks, "
                                               "or more job.max_ranks");
    refuse(
        "parallel.ranks=2;job.min_ranks=3",
        "dir/a.yaml: job.min_ranks is 3, but the run has 2 ranks (--ranks, parallel.ranks); use at most 2");
    refuse("train.tokens=1e6", "dir/a.yaml: more than one of train.steps, train.tokens and train.epochs is "
                               "given; keep one; to replace "
                               "that of the file, add  --set train.steps=auto");
    refuse("model.family=gpt2",
           "dir/a.yaml: model.family gpt2 has kv_heads = heads and head_dim = width / heads; remove "
           "model.kv_heads and model.head_dim, or set model.family to llama");
    refuse("name=../x", "dir/a.yaml: name is \"../x\", allowed are 1 to 128 characters without slashes and "
                        "not beginning with a "
                        "dot, because it names a folder");
}

static void run_file_check_machine_refuses_bf16_on_cpu(void **state)
{
    (void)state;
    const ls_run_file run = design_with("train.precision=bf16");
    assert_int_equal(ls_run_file_check_machine(&run, true), LS_OK);
    assert_int_equal(ls_run_file_check_machine(&run, false), LS_ERR_UNSUPPORTED);
}

static void run_file_check_machine_refuses_a_packed_base_on_gpu(void **state)
{
    (void)state;
    ls_run_file run = design_with("train.device=cuda");
    run.adapter.base = LS_BASE_NF4;
    assert_int_equal(ls_run_file_check_machine(&run, false), LS_OK);
    assert_int_equal(ls_run_file_check_machine(&run, true), LS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ls_error_text(), "adapter.base is nf4"));
}

static void run_file_auto_leaves_follows_its_rule(void **state)
{
    (void)state;
    assert_int_equal(ls_run_file_auto_leaves(48, 1, 256, 8), 8); /* 16 would leave 768 tokens */
    assert_int_equal(ls_run_file_auto_leaves(48, 1, 256, 1), 1); /* nothing to share */
    /* 8: balance 0.866; 16: 0.917 */
    assert_int_equal(ls_run_file_auto_leaves(512, 1, 1024, 8), 16);
    /* no multiple of 5; 6 has balance 0.87, 8 has 0.94 */
    assert_int_equal(ls_run_file_auto_leaves(48, 1, 1024, 5), 8);
    /* never enough tokens: smallest >= 8 */
    assert_int_equal(ls_run_file_auto_leaves(48, 1, 16, 8), 8);
    /* batch smaller than the ranks */
    assert_int_equal(ls_run_file_auto_leaves(6, 1, 1024, 8), 6);
    assert_int_equal(ls_run_file_auto_leaves(48, 12, 1024, 8), 4); /* micro-batches stay whole */
    /* A batch that nothing divides, looked at in the time of its root. */
    assert_true(ls_run_file_auto_leaves(UINT64_C(1000000000039), 1, 256, 8) == UINT64_C(1000000000039));
    for (uint64_t batch = 1; batch <= 96; batch++) {
        for (uint64_t ranks = 1; ranks <= 9; ranks++) {
            const uint64_t leaves = ls_run_file_auto_leaves(batch, 1, 256, ranks);
            assert_int_equal(batch % leaves, 0);
            assert_true(leaves >= ranks || batch < ranks);
        }
    }
    assert_int_equal(ls_run_file_auto_micro_batch(4, 256), 4);
    assert_int_equal(ls_run_file_auto_micro_batch(48, 1024), 8);
    assert_int_equal(ls_run_file_auto_micro_batch(7, 4096), 1);
}

static void run_file_save_reloads_the_same(void **state)
{
    (void)state;
    char path[] = "/tmp/lockstep_run_file_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ls_run_file run = design_with("train.optimizer.lr=0.30000000000000004");
    assert_int_equal(ls_run_file_adopt_vocab(&run, 256), LS_OK);
    assert_int_equal(ls_run_file_save(&run, path), LS_OK);
    ls_run_file again;
    assert_int_equal(ls_run_file_load(path, NULL, 0, &arena, &again), LS_OK);
    unlink(path);
    assert_true(again.train.optimizer.lr == run.train.optimizer.lr);
    ls_text first = {0}, second = {0};
    ls_options_append_yaml(ls_run_file_table(), &run, false, &first);
    ls_options_append_yaml(ls_run_file_table(), &again, false, &second);
    assert_string_equal(ls_text_string(&first), ls_text_string(&second));
    char a[LS_SHA256_HEX_BYTES], b[LS_SHA256_HEX_BYTES];
    ls_run_file_identity(&run, "d", a);
    ls_run_file_identity(&again, "d", b);
    assert_string_equal(a, b);
    ls_text_release(&first);
    ls_text_release(&second);
}

static bool same_identity(const ls_run_file *a, const ls_run_file *b)
{
    char a_hex[LS_SHA256_HEX_BYTES], b_hex[LS_SHA256_HEX_BYTES];
    ls_run_file_identity(a, NULL, a_hex);
    ls_run_file_identity(b, NULL, b_hex);
    ls_text text = {0};
    const bool no_difference = ls_run_file_diff(a, b, &text) == 0;
    ls_text_release(&text);
    const bool same = strcmp(a_hex, b_hex) == 0;
    assert_int_equal(same, no_difference); /* the hash and the list of differences must agree */
    return same;
}

static void run_file_identity_covers_what_changes_bits(void **state)
{
    (void)state;
    const char *const changing[] = {"train.seed=1",
                                    "model.layers=7",
                                    "train.optimizer.beta2=0.99",
                                    "train.micro_batch=2",
                                    "train.leaves=6",
                                    "train.steps=1000",
                                    "train.clip_norm=0",
                                    "train.precision=bf16",
                                    "train.tensor_cut=2",
                                    "model.init_std=0.01",
                                    "data.validation_fraction=0.1",
                                    "train.schedule.kind=wsd"};
    const char *const harmless[] = {"name=other",
                                    "parallel.ranks=3",
                                    "train.threads=2",
                                    "train.recompute=full",
                                    "checkpoint.every_steps=1",
                                    "eval.batches=2",
                                    "sample.prompt=x",
                                    "job.priority=high",
                                    "log.tensorboard=false",
                                    "data.cache_dir=/x",
                                    "train.schedule.decay_fraction=0.5"};
    const ls_run_file base = parse(shakespeare);
    for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++) {
        const ls_run_file other = design_with(changing[i]);
        if (same_identity(&base, &other)) {
            fail_msg("%s must change the identity", changing[i]);
        }
    }
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        const ls_run_file other = design_with(harmless[i]);
        if (!same_identity(&base, &other)) {
            fail_msg("%s must not change the identity", harmless[i]);
        }
    }
    char a[LS_SHA256_HEX_BYTES], b[LS_SHA256_HEX_BYTES];
    ls_run_file_identity(&base, "one", a);
    ls_run_file_identity(&base, "two", b);
    assert_string_not_equal(a, b);
}

static void run_file_identity_ignores_steps_without_schedule(void **state)
{
    (void)state;
    const char *ten[] = {"train.schedule.kind=constant", "train.steps=1000"};
    const char *twenty[] = {"train.schedule.kind=constant", "train.steps=3000"};
    ls_run_file a, b;
    assert_int_equal(parse_with(shakespeare, ten, 2, &a), LS_OK);
    assert_int_equal(parse_with(shakespeare, twenty, 2, &b), LS_OK);
    assert_true(same_identity(&a, &b));
    const char *laid[] = {"train.schedule.steps=2000", "train.steps=500"};
    assert_int_equal(parse_with(shakespeare, laid, 2, &a), LS_OK);
    b = parse(shakespeare);
    assert_true(same_identity(&a, &b));
}

static void run_file_diff_names_both_values(void **state)
{
    (void)state;
    const ls_run_file a = parse(shakespeare), b = design_with("train.seed=7");
    ls_text text = {0};
    assert_int_equal(ls_run_file_diff(&a, &b, &text), 1);
    assert_string_equal(ls_text_string(&text), "train.seed: 1337 in the run, 7 now\n");
    ls_text_release(&text);
}

/* Every hint names a key that exists, and no name twice, because only the first would be found. */
static void run_file_hints_name_keys(void **state)
{
    (void)state;
    const ls_option_table *keys = ls_run_file_table();
    for (const ls_option_hint *hint = keys->hints; hint->names; hint++) {
        assert_true(hint->key ? ls_options_find(keys, hint->key) != NULL : hint->note[0] != 0);
        char *names = ls_arena_strdup(&arena, hint->names);
        for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
            if (ls_options_hint_for(keys->hints, name) != hint || ls_options_find(keys, name)) {
                fail_msg("the hint for '%s' is never given", name);
            }
        }
    }
}

static void run_file_names_of_other_programs(void **state)
{
    (void)state;
    ls_run_file run;
    assert_int_equal(parse_with("train:\n  batch_size: 8\n", NULL, 0, &run), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(),
                        "dir/a.yaml:2: unknown key train.batch_size; use train.global_batch (sequences "
                        "per step, over all ranks), as in  train: {global_batch: 32}");
    assert_int_equal(parse_with("lora: {r: 8}\n", NULL, 0, &run), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "unknown key lora; use adapter.kind"));
    assert_int_equal(parse_with("train: {steps:5}\n", NULL, 0, &run), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "write a space after the colon"));
}

/* A run that starts from a model learns gently, and not for 1000 steps of whatever size. */
static void run_file_model_from_changes_defaults(void **state)
{
    (void)state;
    ls_run_file run = parse("data: {train: a}\n");
    assert_true(run.train.optimizer.lr == 1e-3 && run.train.steps == 1000);
    run = parse("model: {from: some/dir}\ndata: {train: a}\n");
    assert_true(run.train.optimizer.lr == 2e-5 && run.train.steps == LS_AUTO_U64);
    run.model.context = 100;
    assert_int_equal(ls_run_file_adopt_data(&run, 320), LS_OK);
    assert_int_equal(run.train.steps, 30);
    run = parse("model: {from: some/dir}\ntrain: {steps: 7, optimizer: {lr: 0.5}}\ndata: {train: a}\n");
    assert_true(run.train.optimizer.lr == 0.5 && run.train.steps == 7);
}

static ls_run_file begun_with(const char *text, const ls_run_file *begun)
{
    ls_run_file run = parse(text);
    assert_int_equal(ls_run_file_adopt_begun(&run, begun), LS_OK);
    return run;
}

/* What a run chose for auto when it began stays, whatever its length is now. */
static void run_file_adopt_begun_keeps_the_schedule(void **state)
{
    (void)state;
    const ls_run_file begun = parse("train: {steps: 100}\ndata: {train: a}\n");
    assert_int_equal(begun.train.schedule.warmup_steps, 10);
    ls_run_file run = begun_with("train: {steps: 150}\ndata: {train: a}\n", &begun);
    assert_int_equal(run.train.steps, 150);
    assert_int_equal(run.train.schedule.steps, 100);
    assert_int_equal(run.train.schedule.warmup_steps, 10);
    ls_text text = {0};
    assert_int_equal(ls_run_file_diff(&begun, &run, &text), 0);
    /* A schedule that the file sets is another run, as before. */
    run = begun_with("train: {steps: 150, schedule: {steps: 150}}\ndata: {train: a}\n", &begun);
    assert_int_equal(ls_run_file_diff(&begun, &run, &text), 2);
    ls_text_release(&text);
    /* By epochs: the length is known later, the schedule stays all the same. */
    run = begun_with("train: {epochs: 2, global_batch: 32}\ndata: {train: a}\n", &begun);
    assert_int_equal(ls_run_file_adopt_data(&run, 3200), LS_OK);
    assert_int_equal(run.train.steps, 200);
    assert_int_equal(run.train.schedule.steps, 100);
    /* A run from a model, begun when other defaults applied. */
    const ls_run_file old = parse("model: {from: some/dir}\ntrain: {steps: 1000, optimizer: {lr: 1.0e-3}}\n"
                                  "data: {train: a}\n");
    run = begun_with("model: {from: some/dir}\ndata: {train: a}\n", &old);
    assert_true(run.train.optimizer.lr == 1e-3 && run.train.steps == 1000);
    assert_int_equal(run.train.schedule.warmup_steps, 100);
}

static void run_file_length_from_tokens_and_epochs(void **state)
{
    (void)state;
    ls_run_file run =
        parse("model: {context: 100}\ntrain: {tokens: 10001, global_batch: 10}\ndata: {train: a}\n");
    assert_int_equal(run.train.steps, 11);
    assert_int_equal(run.train.tokens, 0);
    run = parse("train: {epochs: 2.5, global_batch: 10}\ndata: {train: a}\n");
    assert_true(run.train.steps == LS_AUTO_U64);
    assert_int_equal(ls_run_file_adopt_data(&run, 1000), LS_OK);
    assert_int_equal(run.train.steps, 250);
    assert_int_equal(run.train.schedule.steps, 250);
    assert_int_equal(run.train.schedule.warmup_steps, 25);
    assert_true(run.train.epochs == 0.0);
}

static void run_file_adopt_model_fills_and_checks(void **state)
{
    (void)state;
    ls_model_config config;
    ls_model_config_defaults(LS_FAMILY_QWEN2, &config);
    config.layers = 2;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 8;
    config.width = 32;
    config.ffn = 64;
    config.context = 4096;
    config.vocab = 300;
    ls_run_file run = parse("model: {from: some/dir}\ntrain: {tokens: 1e6}\ndata: {train: a}\n");
    assert_int_equal(run.tokenizer.kind, LS_TOKENIZER_MODEL);
    assert_true(run.model.layers == LS_AUTO_U64 && run.train.steps == LS_AUTO_U64);
    assert_int_equal(ls_run_file_adopt_model(&run, &config), LS_OK);
    assert_int_equal(run.model.family, LS_FAMILY_QWEN2);
    assert_int_equal(run.model.context, 1024);
    assert_int_equal(run.model.qkv_bias, LS_YES);
    assert_int_equal(run.train.steps, 31);
    assert_int_equal(ls_run_file_adopt_vocab(&run, 300), LS_OK);
    assert_int_equal(run.model.vocab, 300);
    assert_int_equal(ls_run_file_adopt_vocab(&run, 301), LS_ERR_INVALID);
    ls_model_config round;
    assert_int_equal(ls_run_file_model_config(&run, &round), LS_OK);
    assert_int_equal(round.layers, 2);

    run = parse("model: {from: some/dir, layers: 3}\ndata: {train: a}\n");
    assert_int_equal(ls_run_file_adopt_model(&run, &config), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(),
                        "model.layers is 3, but the model named in model.from has 2; remove the key");
    assert_true(run.model.heads == LS_AUTO_U64);
}

static ls_status adopt(const char *model, const ls_model_config *config, ls_run_file *run)
{
    char text[256];
    snprintf(text, sizeof text, "model: {from: some/dir, %s}\ndata: {train: a}\n", model);
    *run = parse(text);
    return ls_run_file_adopt_model(run, config);
}

/* Longer contexts and larger vocabularies than an imported model's. */
static void run_file_adopt_model_changes_what_it_may(void **state)
{
    (void)state;
    ls_model_config config;
    ls_model_config_defaults(LS_FAMILY_LLAMA, &config);
    config.layers = 1;
    config.heads = config.kv_heads = 2;
    config.head_dim = 16;
    config.width = 32;
    config.ffn = 64;
    config.context = 64;
    config.vocab = 100;
    ls_run_file run;
    static const struct {
        const char *model, *error;
    } refused[] = {
        {"context: 256",
         "model.context is 256, but the context of the model named in model.from is 64; use at most that, "
         "or lengthen it with model.rope_scaling: {kind: yarn}"},
        {"context: 256, rope_scaling: {kind: linear, factor: 2}",
         "model.context is 256, but model.rope_scaling with factor 2 lengthens the context to 128 only; set "
         "model.rope_scaling.factor to auto"},
        {"vocab: 99", "model.vocab is 99, but the model named in model.from has a vocabulary of 100; use "
                      "auto, or that number or more"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(adopt(refused[i].model, &config, &run), LS_ERR_INVALID);
        assert_string_equal(ls_error_text(), refused[i].error);
    }
    static const struct {
        const char *model;
        ls_rope_scaling_kind kind;
        double factor;
        int64_t context;
    } taken[] = {
        {"context: 256, rope_scaling: {kind: yarn}", LS_ROPE_YARN, 4.0, 256},
        {"context: 200, rope_scaling: {kind: dynamic, factor: 4}", LS_ROPE_DYNAMIC, 4.0, 256},
        {"context: 100, rope_scaling: {kind: linear}", LS_ROPE_LINEAR, 100.0 / 64.0, 100},
        {"context: 1024, rope_scaling: {kind: llama3, factor: 8}", LS_ROPE_LLAMA3, 8.0, 1024},
        {"context: 32", LS_ROPE_NONE, 1.0, 64},
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        assert_int_equal(adopt(taken[i].model, &config, &run), LS_OK);
        const ls_run_file once = run;
        assert_int_equal(ls_run_file_adopt_model(&run, &config), LS_OK); /* as each rank does */
        assert_memory_equal(&once.model, &run.model, sizeof run.model);
        assert_int_equal(ls_run_file_adopt_vocab(&run, 120), LS_OK);
        ls_model_config changed = config;
        assert_int_equal(ls_run_file_change_model(&run, &changed), LS_OK);
        assert_int_equal(changed.rope_scaling.kind, taken[i].kind);
        assert_true(changed.rope_scaling.factor == taken[i].factor);
        assert_int_equal(changed.context, taken[i].context);
        assert_int_equal(changed.vocab, 120);
        assert_true(taken[i].kind == LS_ROPE_NONE || taken[i].kind == LS_ROPE_LINEAR ||
                    changed.rope_scaling.original_context == 64);
    }
    /* A model that is lengthened already: from its original context. */
    config.rope_scaling = (ls_rope_scaling){.kind = LS_ROPE_LINEAR, .factor = 2.0};
    assert_int_equal(adopt("context: 128, rope_scaling: {kind: linear}", &config, &run), LS_OK);
    assert_true(run.model.rope_scaling_factor == 4.0);
    ls_model_config_defaults(LS_FAMILY_GPT2, &config);
    config.layers = config.heads = config.kv_heads = 1;
    config.head_dim = config.width = 16;
    config.ffn = config.context = config.vocab = 64;
    assert_int_equal(adopt("context: 128", &config, &run), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(),
                        "model.context is 128, but the model named in model.from is gpt2, whose learned "
                        "positions end at 64; use at most that");
    assert_int_equal(adopt("rope_scaling: {kind: yarn}", &config, &run), LS_ERR_INVALID);
}

/* A window that disagrees with the imported model is an error, as every other key is. */
static void run_file_adopt_model_agrees_on_the_window(void **state)
{
    (void)state;
    ls_model_config config;
    ls_model_config_defaults(LS_FAMILY_MISTRAL, &config);
    config.layers = config.heads = config.kv_heads = 1;
    config.head_dim = config.width = 16;
    config.ffn = config.context = config.vocab = 64;
    config.window = 7;
    ls_run_file run;
    for (int i = 0; i < 2; i++) {
        static const char *const refused[] = {"sliding_window: 8", "sliding_window: 0"};
        char wanted[128];
        snprintf(wanted, sizeof wanted,
                 "model.sliding_window is %d, but the model named in model.from has 7; remove the key",
                 i == 0 ? 8 : 0);
        assert_int_equal(adopt(refused[i], &config, &run), LS_ERR_INVALID);
        assert_string_equal(ls_error_text(), wanted);
    }
    static const char *const taken[] = {"sliding_window: 7", "sliding_window: auto", "context: 64"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        assert_int_equal(adopt(taken[i], &config, &run), LS_OK);
        assert_int_equal(run.model.sliding_window, 7);
    }
    /* From random weights it is 0, as it was before it could be auto: identities stay. */
    assert_int_equal(parse("data: {train: a}\n").model.sliding_window, 0);
    assert_int_equal(
        parse("model: {family: mistral, sliding_window: 8}\ndata: {train: a}\n").model.sliding_window, 8);
    assert_int_equal(parse_with("model: {sliding_window: 8}\ndata: {train: a}\n", NULL, 0, &run),
                     LS_ERR_INVALID);
    assert_string_equal(ls_error_text(), "dir/a.yaml: model.sliding_window is 8, but only mistral, qwen2, "
                                         "qwen3, mixtral and qwen3-moe have sliding windows, "
                                         "and model.family is llama; remove the key, or change the family");
}

/* Such a file loads, because a run may have begun with it; a new run is refused. */
static void run_file_check_effect_names_the_key(void **state)
{
    (void)state;
    static const struct {
        const char *model, *error;
    } refused[] = {
        {"rope_scaling: {factor: 4}", "model.rope_scaling.factor has no effect without"},
        {"from: some/dir, rope_scaling: {factor: 4}", "model.rope_scaling.factor has no effect without"},
        {"rope_scaling: {original_context: 64}", "model.rope_scaling.original_context has no effect without"},
        {"rope_scaling: {kind: yarn, low_freq_factor: 2}",
         "model.rope_scaling.low_freq_factor has an effect"},
        {"rope_scaling: {high_freq_factor: 2}", "model.rope_scaling.high_freq_factor has an effect"},
        {"family: gpt2, rope_scaling: {kind: linear, factor: 2}", "model.rope_scaling.kind is set, but"},
    };
    static const char *const taken[] = {
        "rope_scaling: {kind: linear, factor: 4}", "from: some/dir, rope_scaling: {kind: yarn}",
        "rope_scaling: {kind: llama3, low_freq_factor: 2}", "family: gpt2", "from: some/dir"};
    char text[256];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(text, sizeof text, "model: {%s}\ndata: {train: a}\n", refused[i].model);
        const ls_run_file run = parse(text);
        assert_int_equal(ls_run_file_check_effect(&run), LS_ERR_INVALID);
        assert_non_null(strstr(ls_error_text(), refused[i].error));
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        snprintf(text, sizeof text, "model: {%s}\ndata: {train: a}\n", taken[i]);
        const ls_run_file run = parse(text);
        assert_int_equal(ls_run_file_check_effect(&run), LS_OK);
    }
}

static void run_file_parse_errors_name_the_line(void **state)
{
    (void)state;
    ls_run_file run;
    assert_int_equal(parse_with("name: x\ntrain:\n  optimizr: {lr: 1}\n", NULL, 0, &run), LS_ERR_INVALID);
    assert_non_null(
        strstr(ls_error_text(), "dir/a.yaml:3: unknown key train.optimizr, did you mean train.optimizer?"));
    assert_int_equal(parse_with("model: {layers: 0}\n", NULL, 0, &run), LS_ERR_INVALID);
    assert_string_equal(ls_error_text(),
                        "dir/a.yaml:1: model.layers is 0, allowed is auto or a whole number, 1 to 1024");
    assert_int_equal(parse_with("train:\n  lr: 0.1\n", NULL, 0, &run), LS_ERR_INVALID);
    assert_non_null(
        strstr(ls_error_text(), "dir/a.yaml:2: unknown key train.lr, did you mean train.optimizer.lr?"));
}

/* docs/run-file.md is written from the table: LS_WRITE_DOCS=1 in the environment of this test
 * writes it anew. */
static void run_file_reference_page_is_current(void **state)
{
    (void)state;
    const char *path = LS_SOURCE_DIR "/docs/run-file.md";
    ls_text text = {0};
    ls_text_append(
        &text,
        "# The run file\n\n"
        "Every key of a run file, by section, with its values, default and meaning. Keys may be set on the "
        "command line too: `--set train.steps=100`. This page is written from the table in "
        "`src/config/run_file_table.c`; a test keeps them the same.\n\n");
    ls_options_append_markdown(ls_run_file_table(), &text);
    if (getenv("LS_WRITE_DOCS")) {
        assert_int_equal(ls_file_write_atomic(path, text.data, text.bytes), LS_OK);
    }
    char *page = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_file_read(&arena, path, 1 << 20, &page, &bytes), LS_OK);
    if (strcmp(page, ls_text_string(&text)) != 0) {
        fail_msg("docs/run-file.md differs from the options table; run this test with LS_WRITE_DOCS=1");
    }
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_file_table_is_whole),
        cmocka_unit_test(run_file_parse_reads_the_design_example),
        cmocka_unit_test(run_file_parse_minimal_is_complete),
        cmocka_unit_test(run_file_family_decides_defaults),
        cmocka_unit_test(run_file_check_prints_values_that_work),
        cmocka_unit_test(run_file_check_machine_refuses_bf16_on_cpu),
        cmocka_unit_test(run_file_check_machine_refuses_a_packed_base_on_gpu),
        cmocka_unit_test(run_file_auto_leaves_follows_its_rule),
        cmocka_unit_test(run_file_save_reloads_the_same),
        cmocka_unit_test(run_file_identity_covers_what_changes_bits),
        cmocka_unit_test(run_file_identity_ignores_steps_without_schedule),
        cmocka_unit_test(run_file_diff_names_both_values),
        cmocka_unit_test(run_file_hints_name_keys),
        cmocka_unit_test(run_file_names_of_other_programs),
        cmocka_unit_test(run_file_model_from_changes_defaults),
        cmocka_unit_test(run_file_adopt_begun_keeps_the_schedule),
        cmocka_unit_test(run_file_length_from_tokens_and_epochs),
        cmocka_unit_test(run_file_adopt_model_fills_and_checks),
        cmocka_unit_test(run_file_adopt_model_changes_what_it_may),
        cmocka_unit_test(run_file_adopt_model_agrees_on_the_window),
        cmocka_unit_test(run_file_check_effect_names_the_key),
        cmocka_unit_test(run_file_parse_errors_name_the_line),
        cmocka_unit_test(run_file_reference_page_is_current),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}

// SPDX-License-Identifier: Apache-2.0
/* data prepare: cleans data by a pipeline, or tokenizes and checks data before a run. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/data/prepare_pipeline.h"
#include "data/dataset.h"
#include "data/upload.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct prepare_settings {
    const char *tokenizer, *cache_dir, *field, *to, *output;
    uint64_t threads;
    bool json;
} prepare_settings;

static const ls_option prepare_options[] = {
    LS_ROW_TOKENIZER(prepare_settings),
    LS_ROW_FIELD(prepare_settings),
    LS_ROW_TEXT(prepare_settings, cache_dir, "DIR",
                "folder of the token cache; default $LOCKSTEP_HOME/cache/tokens"),
    LS_ROW_TEXT(prepare_settings, to, "ADDRESS",
                "also store the tokens as a set at s3://BUCKET/PREFIX or in a folder; training streams a set "
                "that is named in data.train, and needs no disk for it"),
    LS_ROW_TEXT(prepare_settings, output, "DIR",
                "with PIPELINE.yaml: the folder for what is left of the data, and for the report",
                .letter = 'o'),
    LS_ROW_THREADS(prepare_settings),
    LS_ROW_JSON(prepare_settings),
};

static void show_progress(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s: %.1f of %.1f MiB", path, (double)done_bytes / 1048576.0,
                (double)total_bytes / 1048576.0);
        if (done_bytes >= total_bytes) {
            fputc('\n', stderr);
        }
    }
}

static void print_line(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "%s\n", text);
}

static void print_dataset(const prepare_settings *settings, const ls_dataset *dataset)
{
    const uint64_t tokens = ls_dataset_token_count(dataset, LS_SPLIT_TRAIN);
    const double bytes_per_token = ls_dataset_bytes_per_token(dataset, LS_SPLIT_TRAIN);
    if (settings->json) {
        json_t *root = json_pack("{s:I, s:I, s:I, s:f, s:s}", "files",
                                 (json_int_t)ls_dataset_file_count(dataset), "documents",
                                 (json_int_t)ls_dataset_document_count(dataset), "tokens", (json_int_t)tokens,
                                 "bytes_per_token", bytes_per_token, "hash", ls_dataset_hash(dataset));
        ls_print_json(root);
        json_decref(root);
        return;
    }
    const uint64_t files = ls_dataset_file_count(dataset), documents = ls_dataset_document_count(dataset);
    printf("%" PRIu64 " file%s, %" PRIu64 " document%s, %" PRIu64 " tokens", files, files == 1 ? "" : "s",
           documents, documents == 1 ? "" : "s", tokens);
    if (bytes_per_token > 0.0) {
        printf(", %.2f bytes per token", bytes_per_token);
    }
    printf("\nhash %s\n", ls_dataset_hash(dataset));
}

static ls_status prepare(const ls_invocation *invocation, const ls_tokenizer *tokenizer)
{
    const prepare_settings *settings = invocation->settings;
    const ls_dataset_source source = {
        .patterns = invocation->words, .pattern_count = invocation->word_count, .weight = 1.0};
    const ls_dataset_options options = {
        .sources = &source,
        .source_count = 1,
        .field = settings->field,
        .tokenizer = tokenizer,
        .context = 1,
        .cache_dir = settings->cache_dir[0] ? settings->cache_dir : NULL,
        .threads = (uint32_t)settings->threads,
        .progress = show_progress,
        .tell = print_line,
    };
    ls_dataset *dataset = NULL;
    LS_TRY(ls_dataset_open(&options, &dataset));
    ls_status status = LS_OK;
    if (settings->to[0]) {
        status = ls_dataset_upload(dataset, tokenizer, settings->to, print_line, NULL);
    }
    if (status == LS_OK) {
        print_dataset(settings, dataset);
    }
    ls_dataset_close(dataset);
    return status;
}

static bool is_pipeline(const char *path)
{
    return ls_path_has_suffix(path, ".yaml") || ls_path_has_suffix(path, ".yml");
}

static ls_status run_pipeline(const ls_invocation *invocation)
{
    const prepare_settings *settings = invocation->settings;
    const char *path = invocation->words[0];
    if (invocation->word_count > 1) {
        return ls_fail(LS_ERR_INVALID, "a pipeline names its input itself: give %s alone", path);
    }
    if (settings->to[0] || settings->cache_dir[0] || strcmp(settings->tokenizer, "bytes") != 0 ||
        strcmp(settings->field, "text") != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "a pipeline makes text, not tokens: --tokenizer, --cache-dir and --to are for a second "
            "'data prepare', of DIR/data; instead of --field, %s has the key field",
            path);
    }
    return ls_prepare_pipeline(invocation->arena, path, settings->output, settings->threads, settings->json);
}

static ls_status run_prepare(const ls_invocation *invocation)
{
    const prepare_settings *settings = invocation->settings;
    ls_tokenizer *tokenizer = NULL;
    if (is_pipeline(invocation->words[0])) {
        return run_pipeline(invocation);
    }
    if (settings->output[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "--output is for pipelines (PIPELINE.yaml): without one, prepared data go to "
                       "the token cache (--cache-dir)");
    }
    LS_TRY(ls_tokenizer_open(settings->tokenizer, &tokenizer));
    const ls_status status = prepare(invocation, tokenizer);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

const ls_command ls_command_data_prepare = {
    .name = "data prepare",
    LS_WORDS("FILE... | PIPELINE.yaml", 1, 1000000),
    .summary = "clean data by a pipeline, or tokenize and check data before a run",
    .details = "FILE is text (.txt), JSON lines (.jsonl), an array of JSON objects (.json), a table\n"
               "with a header (.csv, .tsv), each also packed (.gz, .zst), Parquet (.parquet), or a\n"
               "token file (.bin, .idx). Patterns are allowed; a folder means the files of these\n"
               "kinds in it. FILE may also be s3://BUCKET/KEY, a folder or a pattern of objects.\n"
               "The tokens are stored in the cache that 'lockstep train' reads, keyed by content:\n"
               "preparing the same data again costs nothing.\n"
               "\n"
               "PIPELINE.yaml names its input and the steps that its documents go through:\n"
               "normalising, rules of quality, deduplication and others. What is left is written\n"
               "to DIR/data, with a report in DIR. After a crash, or on several machines at once,\n"
               "give the same command again.\n"
               "\n"
               "Examples:\n"
               "  lockstep data prepare 'corpus/*.txt' --tokenizer tokenizer.json\n"
               "  lockstep data prepare web.yaml --output clean",
    LS_SETTINGS(prepare_settings, prepare_options),
    .run = run_prepare,
};

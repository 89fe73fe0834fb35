// SPDX-License-Identifier: Apache-2.0
/* tokenize train|encode|decode. */
#include "base/file.h"
#include "cli/command.h"
#include "cli/foreign_text.h"
#include "cli/registered.h"
#include "cli/token_ids.h"
#include "data/tokenizer_corpus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 30 };

typedef struct tokenize_settings {
    const char *tokenizer, *output, *field;
    bool special;
    uint64_t vocab;
} tokenize_settings;

/* ---- input: a file, or standard input ---- */

static ls_status read_stdin(ls_text *text)
{
    char block[65536];
    for (;;) {
        const ssize_t got = read(STDIN_FILENO, block, sizeof block);
        if (got == 0) {
            return LS_OK;
        }
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return ls_fail_errno(errno, "can't read standard input");
        }
        if (text->bytes + (size_t)got > INPUT_BYTES_MAX) {
            return ls_fail(LS_ERR_DATA,
                           "standard input is longer than 1 GiB; use 'data prepare' for corpora");
        }
        ls_text_append_bytes(text, block, (size_t)got);
    }
}

static ls_status read_input(const ls_invocation *invocation, ls_text *text)
{
    if (invocation->word_count == 0 || strcmp(invocation->words[0], "-") == 0) {
        return read_stdin(text);
    }
    ls_file_map map;
    LS_TRY(ls_file_map_open(invocation->words[0], &map));
    if (map.bytes > INPUT_BYTES_MAX) {
        ls_file_map_close(&map);
        return ls_fail(LS_ERR_DATA, "%s is longer than 1 GiB; use 'data prepare' for corpora",
                       invocation->words[0]);
    }
    ls_text_append_bytes(text, map.data, map.bytes);
    ls_file_map_close(&map);
    return LS_OK;
}

/* ---- encode ---- */

static ls_status encode_text(const tokenize_settings *settings, const ls_text *text)
{
    ls_tokenizer *tokenizer = NULL;
    LS_TRY(ls_tokenizer_open(settings->tokenizer, &tokenizer));
    ls_token_buffer ids = {0};
    const ls_status status =
        ls_tokenizer_encode(tokenizer, NULL, text->data, text->bytes, settings->special, &ids);
    for (size_t i = 0; status == LS_OK && i < ids.count; i++) {
        printf("%s%" PRId32, i ? " " : "", ids.ids[i]);
    }
    if (status == LS_OK) {
        putchar('\n');
    }
    ls_token_buffer_release(&ids);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

static ls_status run_encode(const ls_invocation *invocation)
{
    ls_text text = {0};
    ls_status status = read_input(invocation, &text);
    if (status == LS_OK) {
        status = encode_text(invocation->settings, &text);
    }
    ls_text_release(&text);
    return status;
}

static const ls_option encode_options[] = {
    LS_ROW_TOKENIZER(tokenize_settings),
    LS_ROW_BOOL(tokenize_settings, special,
                "add the special tokens that the tokenizer puts before and after a text, such as <s>"),
};

const ls_command ls_command_tokenize_encode = {
    .name = "tokenize encode",
    LS_WORDS("[FILE]", 0, 1),
    .summary = "convert text to token ids",
    .details = "Reads FILE or standard input as one document and prints its token ids separated\n"
               "by spaces. The ids equal those of the Hugging Face tokenizers library and of\n"
               "sentencepiece. Special tokens are added only with --special.\n"
               "\n"
               "Example:\n"
               "  echo \"In the beginning\" | lockstep tokenize encode --tokenizer tokenizer.json",
    LS_SETTINGS(tokenize_settings, encode_options),
    .run = run_encode,
};

/* ---- decode ---- */

static ls_status decode_ids(const tokenize_settings *settings, const ls_token_buffer *ids)
{
    ls_tokenizer *tokenizer = NULL;
    LS_TRY(ls_tokenizer_open(settings->tokenizer, &tokenizer));
    ls_text_buffer text = {0};
    const ls_status status = ls_tokenizer_decode(tokenizer, ids->ids, ids->count, !settings->special, &text);
    if (status == LS_OK && text.bytes > 0) {
        ls_foreign_text shown = ls_foreign_text_begin();
        (void)ls_foreign_text_write(&shown, text.data, text.bytes);
        ls_foreign_text_end(&shown);
    }
    ls_text_buffer_release(&text);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

static ls_status run_decode(const ls_invocation *invocation)
{
    ls_text text = {0};
    ls_token_buffer ids = {0};
    ls_status status = read_input(invocation, &text);
    if (status == LS_OK) {
        const bool standard_input = invocation->word_count == 0 || strcmp(invocation->words[0], "-") == 0;
        status = ls_token_ids_parse(ls_text_string(&text), text.bytes,
                                    standard_input ? "standard input" : invocation->words[0], &ids);
    }
    if (status == LS_OK) {
        status = decode_ids(invocation->settings, &ids);
    }
    ls_token_buffer_release(&ids);
    ls_text_release(&text);
    return status;
}

static const ls_option decode_options[] = {
    LS_ROW_TOKENIZER(tokenize_settings),
    LS_ROW_BOOL(tokenize_settings, special, "print special tokens as well"),
};

const ls_command ls_command_tokenize_decode = {
    .name = "tokenize decode",
    LS_WORDS("[FILE]", 0, 1),
    .summary = "convert token ids to text",
    .details = "Reads token ids separated by white space from FILE or standard input and writes\n"
               "the exact bytes they stand for.\n"
               "\n"
               "Example:\n"
               "  lockstep tokenize decode --tokenizer tokenizer.json ids.txt",
    LS_SETTINGS(tokenize_settings, decode_options),
    .run = run_decode,
};

/* ---- train ---- */

static ls_status run_train(const ls_invocation *invocation)
{
    const tokenize_settings *settings = invocation->settings;
    const ls_tokenizer_train_options options = {.vocab_size = (uint32_t)settings->vocab};
    ls_corpus_file *files = NULL;
    size_t count = 0;
    const ls_corpus_query query = {
        .patterns = invocation->words, .pattern_count = invocation->word_count, .field = settings->field};
    LS_TRY(ls_corpus_expand(invocation->arena, &query, &files, &count));
    ls_tokenizer *tokenizer = NULL;
    /* Where a key is named, the records are documents. */
    const bool is_text = strcmp(settings->field, "text") != 0;
    const ls_tokenizer_corpus corpus = {
        .files = files,
        .count = count,
        .keys = {.format = is_text ? LS_FORMAT_TEXT : LS_FORMAT_AUTO, .text = settings->field},
    };
    LS_TRY(ls_tokenizer_train_on(&corpus, &options, &tokenizer));
    const ls_status status = ls_tokenizer_save(tokenizer, settings->output);
    if (status == LS_OK) {
        printf("%s: %" PRIu32 " tokens, hash %.16s\n", settings->output, ls_tokenizer_vocab_size(tokenizer),
               ls_tokenizer_hash(tokenizer));
    }
    ls_tokenizer_destroy(tokenizer);
    LS_TRY(status);
    ls_survey_source *sources = ls_arena_new(invocation->arena, ls_survey_source, invocation->word_count);
    for (size_t i = 0; i < invocation->word_count; i++) {
        sources[i] = (ls_survey_source){invocation->words[i], "data"};
    }
    const ls_registry_add_options made = {.path = settings->output,
                                          .kind = LS_ENTRY_TOKENIZER,
                                          .sources = sources,
                                          .source_count = invocation->word_count};
    ls_registered(invocation->arena, made,
                  json_pack("{s:s, s:I}", "by", "tokenize train", "vocab", (json_int_t)settings->vocab));
    return LS_OK;
}

static const ls_option train_options[] = {
    LS_ROW_TEXT_OR(tokenize_settings, output, "tokenizer.json", "FILE", "file to write the tokenizer to",
                   .letter = 'o'),
    LS_ROW_U64(tokenize_settings, vocab, "4096", 257, 1048576,
               "size of the vocabulary, the 256 bytes and the end-of-text token included"),
    LS_ROW_FIELD(tokenize_settings),
};

const ls_command ls_command_tokenize_train = {
    .name = "tokenize train",
    LS_WORDS("FILE...", 1, 1000000),
    .summary = "learn a byte-level BPE tokenizer from text",
    .details = "FILE is text (.txt), JSON lines (.jsonl), an array of JSON objects (.json) or a table\n"
               "with a header (.csv, .tsv), each also packed (.gz, .zst), or Parquet (.parquet).\n"
               "Patterns and folders are allowed. Writes a tokenizer.json that the Hugging Face\n"
               "tokenizers library loads. The same texts give the same file.\n"
               "\n"
               "Example:\n"
               "  lockstep tokenize train 'corpus/*.txt' --vocab 8192 -o tokenizer.json",
    LS_SETTINGS(tokenize_settings, train_options),
    .run = run_train,
};

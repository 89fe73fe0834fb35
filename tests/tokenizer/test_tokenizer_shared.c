// SPDX-License-Identifier: Apache-2.0
/*
 * GPT-2's and Llama 2's real vocabularies, which are not part of the repository: $LS_SHARED_DATA,
 * or ../shared/data beside the source. Skipped when they are not there.
 */
#include "test.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char shared[4000];

static ls_tokenizer *load(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizers/%s", shared, name);
    ls_tokenizer *tokenizer = NULL;
    if (ls_tokenizer_load(path, &tokenizer) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return tokenizer;
}

static void assert_encodes(const ls_tokenizer *tokenizer, const char *text, const int32_t *wanted,
                           size_t count)
{
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, strlen(text), false, &ids), LS_OK);
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.ids, wanted, count * sizeof *wanted);
    ls_token_buffer_release(&ids);
}

static void assert_round_trip(const ls_tokenizer *tokenizer, size_t wanted_ids)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/text/tinyshakespeare.txt", shared);
    ls_file_map map;
    assert_int_equal(ls_file_map_open(path, &map), LS_OK);
    ls_token_buffer ids = {0};
    ls_text_buffer text = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, (const char *)map.data, map.bytes, false, &ids),
                     LS_OK);
    assert_int_equal(ids.count, wanted_ids);
    assert_int_equal(ls_tokenizer_decode(tokenizer, ids.ids, ids.count, true, &text), LS_OK);
    assert_int_equal(text.bytes, map.bytes);
    assert_memory_equal(text.data, map.data, map.bytes);
    ls_text_buffer_release(&text);
    ls_token_buffer_release(&ids);
    ls_file_map_close(&map);
}

/* Numbers of ids: Hugging Face tokenizers 0.23 and sentencepiece 0.2 on the same file. */
static void gpt2_encodes_as_published(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = load("gpt2-encoder.json");
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 50257);
    assert_int_equal(ls_tokenizer_eos(tokenizer), 50256);
    assert_encodes(tokenizer, "Hello world", (const int32_t[]){15496, 995}, 2);
    assert_encodes(tokenizer, "a<|endoftext|>", (const int32_t[]){64, 50256}, 2);
    assert_round_trip(tokenizer, 338025);
    ls_tokenizer_destroy(tokenizer);
}

static void llama2_encodes_as_published(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = load("llama2-tokenizer.model");
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 32000);
    assert_int_equal(ls_tokenizer_bos(tokenizer), 1);
    assert_int_equal(ls_tokenizer_eos(tokenizer), 2);
    assert_encodes(tokenizer, "Hello world", (const int32_t[]){15043, 3186}, 2);
    assert_round_trip(tokenizer, 368633);
    ls_tokenizer_destroy(tokenizer);
}

/* A tokenizer.model does not read its control symbols in a text; chat templates write them there. */
static void llama2_encodes_marks_of_templates(void **state)
{
    (void)state;
    static const char text[] = "<s>Hello world</s>";
    ls_tokenizer *tokenizer = load("llama2-tokenizer.model");
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, sizeof text - 1, false, &ids), LS_OK);
    assert_int_not_equal(ids.ids[0], 1);
    ids.count = 0;
    assert_int_equal(ls_tokenizer_encode_marked(tokenizer, NULL, text, sizeof text - 1, &ids), LS_OK);
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.ids, ((const int32_t[]){1, 15043, 3186, 2}), 4 * sizeof *ids.ids);
    ls_token_buffer_release(&ids);
    ls_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const char *given = getenv("LS_SHARED_DATA");
    snprintf(shared, sizeof shared, "%s", given ? given : LS_SOURCE_DIR "/../shared/data");
    if (!ls_path_is_dir(shared)) {
        printf("skipped: %s is not there; set LS_SHARED_DATA to the folder with the shared test data\n",
               shared);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_encodes_as_published),
        cmocka_unit_test(llama2_encodes_as_published),
        cmocka_unit_test(llama2_encodes_marks_of_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void bytes_encode_gives_every_byte_and_back(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_create_bytes(&tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 256);
    assert_int_equal(ls_tokenizer_eos(tokenizer), -1);
    char text[256];
    for (int i = 0; i < 256; i++) {
        text[i] = (char)i;
    }
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, 256, true, &ids), LS_OK);
    assert_int_equal(ids.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(ids.ids[i], i);
    }
    ls_text_buffer back = {0};
    assert_int_equal(ls_tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back), LS_OK);
    assert_int_equal(back.bytes, 256);
    assert_memory_equal(back.data, text, 256);
    ls_text_buffer_release(&back);
    ls_token_buffer_release(&ids);
    ls_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_encode_gives_every_byte_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* What the fuzz targets do with a tokenizer that loaded: encode hard texts, check ids, decode them
 * in both ways. */
#ifndef LS_TESTS_FUZZ_TOKENIZER_WALK_H
#define LS_TESTS_FUZZ_TOKENIZER_WALK_H

#include "base/assert.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void walk_text(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch, const char *text,
                      size_t bytes)
{
    ls_token_buffer ids = {0}, again = {0};
    const ls_status status = ls_tokenizer_encode(tokenizer, scratch, text, bytes, true, &ids);
    if (status == LS_ERR_DATA) { /* a pattern that needs too much work */
        LS_ASSERT(ids.count == 0);
        ls_token_buffer_release(&ids);
        return;
    }
    LS_ASSERT(status == LS_OK);
    LS_ASSERT(ls_tokenizer_encode(tokenizer, scratch, text, bytes, true, &again) == LS_OK);
    LS_ASSERT(ids.count == again.count && (ids.count == 0 || memcmp(ids.ids, again.ids, 4 * ids.count) == 0));
    ls_text_buffer whole = {0}, streamed = {0};
    ls_tokenizer_stream stream = {0};
    for (size_t i = 0; i < ids.count; i++) {
        LS_ASSERT(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < ls_tokenizer_vocab_size(tokenizer));
        LS_ASSERT(ls_tokenizer_stream_next(tokenizer, &stream, ids.ids[i], false, &streamed) == LS_OK);
    }
    LS_ASSERT(ls_tokenizer_stream_end(&stream, &streamed) == LS_OK);
    LS_ASSERT(ls_text_check_utf8(streamed.data, streamed.bytes, NULL));
    LS_ASSERT(ls_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &whole) == LS_OK);
    if (ls_text_check_utf8(whole.data, whole.bytes, NULL)) {
        LS_ASSERT(whole.bytes == streamed.bytes &&
                  (whole.bytes == 0 || memcmp(whole.data, streamed.data, whole.bytes) == 0));
    }
    ls_text_buffer_release(&whole);
    ls_text_buffer_release(&streamed);
    ls_token_buffer_release(&ids);
    ls_token_buffer_release(&again);
}

static inline void walk_tokenizer(const ls_tokenizer *tokenizer)
{
    static const char *const texts[] = {
        "",
        "Hello world, it's 12345 o'clock.\n\n  def f(x):\treturn {x}\r\n",
        "na\xc3\xafve cafe\xcc\x81 \xe2\x96\x81\xe2\x96\x81 \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 "
        "\xe4\xbd\xa0\xe5\xa5\xbd",
        "\xff\x80 broken \xe2\x82 \xed\xa0\x80 <s></s><|endoftext|><unk> <0x0A> <x>  a b c ab abc hello",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "a",
    };
    ls_tokenizer_scratch *scratch;
    LS_ASSERT(ls_tokenizer_scratch_create(tokenizer, &scratch) == LS_OK);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        walk_text(tokenizer, scratch, texts[i], strlen(texts[i]));
    }
    ls_tokenizer_scratch_destroy(scratch);
}

#endif

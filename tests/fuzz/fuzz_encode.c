// SPDX-License-Identifier: Apache-2.0
/* Any bytes as text, for a tokenizer of each kind (the first byte chooses). What was valid UTF-8
 * comes back as it was. */
#include "fuzz/tokenizer_walk.h"

#include <stdio.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define JSON(normalizer, splitter, decoder, settings)                                                        \
    "{\"added_tokens\":[{\"id\":300,\"content\":\"<x>\",\"lstrip\":true,\"rstrip\":true,\"normalized\":"     \
    "false},"                                                                                                \
    "{\"id\":301,\"content\":\"[w]\",\"single_word\":true,\"normalized\":true}],\"normalizer\":" normalizer  \
    ",\"pre_tokenizer\":" splitter ",\"decoder\":" decoder ",\"model\":{\"type\":\"BPE\"" settings           \
    ",\"vocab\":{%s},\"merges\":[\"a b\",\"ab c\",\"e e\",\"ee ee\"]}}"
#define REGEX(pattern)                                                                                       \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern        \
    "\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}" \
    "]}"
#define CL100K                                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "                   \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"                                                               \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define O200K                                                                                                \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{" \
    "Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                            \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{" \
    "Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                            \
    "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

enum { KINDS = 5, LOSSLESS = 3 /* the first ones keep text as it is */ };
static ls_tokenizer *tokenizers[KINDS];
static ls_tokenizer_scratch *scratches[KINDS];

/* Names of the 256 bytes: the byte-level alphabet as the bytes tokenizer has it, or <0xNN>; then
 * the joined ones. */
static void make(int kind, const char *format, bool byte_level)
{
    static char vocab[1 << 16], json[1 << 17];
    ls_tokenizer *bytes;
    LS_ASSERT(ls_tokenizer_create_bytes(&bytes) == LS_OK);
    size_t at = 0;
    for (int i = 0; i < 256; i++) {
        const char *name = ls_tokenizer_piece(bytes, i);
        const char *escape = *name == '"' || *name == '\\' ? "\\" : "";
        at += (size_t)(byte_level ? snprintf(vocab + at, sizeof vocab - at, "\"%s%s\":%d,", escape, name, i)
                                  : snprintf(vocab + at, sizeof vocab - at, "\"<0x%02X>\":%d,", i, i));
    }
    ls_tokenizer_destroy(bytes);
    snprintf(vocab + at, sizeof vocab - at, "%s\"ab\":256,\"abc\":257,\"ee\":258,\"eeee\":259",
             byte_level ? "" : "\"a\":260,\"b\":261,\"c\":262,\"e\":263,\"\xe2\x96\x81\":264,");
    const int length = snprintf(json, sizeof json, format, vocab);
    LS_ASSERT(length > 0 && (size_t)length < sizeof json);
    const ls_status status = ls_tokenizer_parse(json, (size_t)length, "fuzz", &tokenizers[kind]);
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
    }
    LS_ASSERT(status == LS_OK && ls_tokenizer_scratch_create(tokenizers[kind], &scratches[kind]) == LS_OK);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    make(0,
         JSON("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "{\"type\":\"ByteLevel\"}", ""),
         true);
    make(1, JSON("null", REGEX(CL100K), "{\"type\":\"ByteLevel\"}", ",\"ignore_merges\":true"), true);
    make(2, JSON("null", REGEX(O200K), "{\"type\":\"ByteLevel\"}", ""), true);
    make(3,
         JSON("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"NFC\"}]}",
              REGEX(CL100K), "null", ""),
         true);
    make(4,
         JSON("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},"
              "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]}",
              "null", "null", ",\"byte_fallback\":true"),
         false);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) {
        return 0;
    }
    const int kind = data[0] % KINDS;
    const char *text = (const char *)data + 1;
    bytes--;
    walk_text(tokenizers[kind], scratches[kind], text, bytes);
    /* Added tokens may take white space with them, so texts with one are left out. */
    if (kind < LOSSLESS && ls_text_check_utf8(text, bytes, NULL) && !memmem(text, bytes, "<x>", 3)) {
        ls_token_buffer ids = {0};
        ls_text_buffer back = {0};
        LS_ASSERT(ls_tokenizer_encode(tokenizers[kind], scratches[kind], text, bytes, false, &ids) == LS_OK);
        LS_ASSERT(ls_tokenizer_decode(tokenizers[kind], ids.ids, ids.count, false, &back) == LS_OK);
        LS_ASSERT(back.bytes == bytes && (bytes == 0 || memcmp(back.data, text, bytes) == 0));
        ls_token_buffer_release(&ids);
        ls_text_buffer_release(&back);
    }
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include <stdint.h>
#include <string.h>

static size_t skip_ascii(const unsigned char *text, size_t at, size_t bytes)
{
    while (at + 8 <= bytes) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }
        at += 8;
    }
    while (at < bytes && text[at] < 0x80) {
        at++;
    }
    return at;
}

/* Bytes of the sequence at `s` (which is not ASCII), 0 when it is broken. The second byte's range depends on
 * the first: that is what shuts out overlong forms (E0, F0), surrogates (ED) and what lies beyond U+10FFFF
 * (F4). */
static size_t sequence_bytes(const unsigned char *s, size_t left)
{
    const unsigned char first = s[0];
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (left < length) {
        return 0;
    }
    const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf) {
            return 0;
        }
    }
    return length;
}

size_t ls_text_utf8_valid_bytes(const char *text, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0;
    for (;;) {
        at = skip_ascii(s, at, bytes);
        if (at == bytes) {
            return bytes;
        }
        const size_t length = sequence_bytes(s + at, bytes - at);
        if (length == 0) {
            return at;
        }
        at += length;
    }
}

/* What a file with NUL bytes probably is, and what helps. */
static const char *binary_hint(const unsigned char *s, size_t bytes)
{
    static const struct {
        const char *magic;
        size_t bytes;
        const char *hint;
    } known[] = {
        {"\xff\xfe", 2, "it looks like UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`"},
        {"\xfe\xff", 2, "it looks like UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`"},
        {"\x1f\x8b", 2, "it looks like gzip: unpack it with `gunzip`"},
        {"\x28\xb5\x2f\xfd", 4, "it looks like zstd: unpack it with `unzstd`"},
        {"\xfd\x37zXZ", 5, "it looks like xz: unpack it with `unxz`"},
        {"PK\x03\x04", 4, "it looks like a zip archive: unpack it"},
        {"PAR1", 4, "it looks like Parquet: convert it to JSON lines with a `text` key"},
        {"%PDF", 4, "it looks like PDF: extract its text, for example with `pdftotext`"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (bytes >= known[i].bytes && memcmp(s, known[i].magic, known[i].bytes) == 0) {
            return known[i].hint;
        }
    }
    return "it is binary; token files must end in .bin, text must not contain NUL bytes";
}

ls_status ls_text_check(const char *text, size_t bytes, const char *path, bool need_utf8)
{
    const char *nul = bytes > 0 ? memchr(text, 0, bytes) : NULL;
    if (nul) {
        return ls_fail(LS_ERR_DATA, "%s is not text: NUL byte at offset %zu; %s", path, (size_t)(nul - text),
                       binary_hint((const unsigned char *)text, bytes));
    }
    if (!need_utf8) {
        return LS_OK;
    }
    const size_t valid = ls_text_utf8_valid_bytes(text, bytes);
    if (valid < bytes) {
        size_t line = 1;
        for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + valid - at))); at++) {
            line++;
        }
        return ls_fail(
            LS_ERR_DATA,
            "%s:%zu: broken UTF-8, byte 0x%02x at offset %zu; convert the file (for example with `iconv -f "
            "LATIN1 -t UTF-8`), or use the bytes tokenizer, which takes any bytes",
            path, line, (unsigned char)text[valid], valid);
    }
    return LS_OK;
}

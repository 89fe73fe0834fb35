// SPDX-License-Identifier: Apache-2.0
#include "data/text.h"

#include "base/lfs.h"
#include "tokenizer/unicode.h"

#include <string.h>

typedef struct format {
    const char *magic;
    size_t bytes;
    /* The first bytes could begin a text. */
    bool printable;
    const char *name;
    const char *remedy;
} format;

#define MAGIC(text) (text), sizeof(text) - 1

static const char EXTRACT[] = "extract its text first";
static const char NO_TEXT[] = "it holds no text to train on";

static const format formats[] = {
    {MAGIC("\xff\xfe"), false, "UTF-16", "convert it with `iconv -f UTF-16 -t UTF-8`"},
    {MAGIC("\xfe\xff"), false, "UTF-16", "convert it with `iconv -f UTF-16 -t UTF-8`"},
    {MAGIC("\xfd\x37zXZ\0"), false, "xz", "unpack it with `unxz`; gzip and zstd files are read as they are"},
    {MAGIC("BZh"), true, "bzip2", "unpack it with `bunzip2`; gzip and zstd files are read as they are"},
    {MAGIC("\x04\x22\x4d\x18"), false, "LZ4", "unpack it with `unlz4`"},
    {MAGIC("7z\xbc\xaf\x27\x1c"), false, "a 7z archive", "unpack it"},
    {MAGIC("Rar!\x1a\x07"), false, "a RAR archive", "unpack it"},
    {MAGIC("PK\x03\x04"), false, "a zip archive (also .docx, .xlsx, .odt, .epub)",
     "unpack it, or extract the text of the document"},
    {MAGIC("%PDF-"), false, "PDF", "extract its text, for example with `pdftotext`"},
    {MAGIC("{\\rtf"), false, "RTF", EXTRACT},
    {MAGIC("%!PS-Adobe"), false, "PostScript", EXTRACT},
    {MAGIC("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), false, "an old Office document (.doc, .xls, .ppt)", EXTRACT},
    {MAGIC("PAR1"), true, "Parquet", "decompress it first: Parquet files are read as they are"},
    {MAGIC("ARROW1\0"), false, "Arrow", "convert it to JSON lines with a `text` key"},
    {MAGIC("\xff\xff\xff\xff"), false, "Arrow", "convert it to JSON lines with a `text` key"},
    {MAGIC("Obj\x01"), false, "Avro", "convert it to JSON lines with a `text` key"},
    {MAGIC("SQLite format 3\0"), false, "an SQLite database", "export its text, for example as CSV"},
    {MAGIC("\x89HDF\r\n\x1a\n"), false, "HDF5", "export its text, for example as JSON lines"},
    {MAGIC("\x93NUMPY"), false, "a NumPy array", "token ids must be in a .bin file without header"},
    {MAGIC("\x80\x02"), false, "a Python pickle", "save the text as JSON lines"},
    {MAGIC("\x80\x03"), false, "a Python pickle", "save the text as JSON lines"},
    {MAGIC("\x80\x04\x95"), false, "a Python pickle", "save the text as JSON lines"},
    {MAGIC("\x80\x05\x95"), false, "a Python pickle", "save the text as JSON lines"},
    {MAGIC("GGUF"), true, "a GGUF model", NO_TEXT},
    {MAGIC("\x7f"
           "ELF"),
     false, "a program or library (ELF)", NO_TEXT},
    {MAGIC("\x89PNG\r\n\x1a\n"), false, "a PNG image", NO_TEXT},
    {MAGIC("\xff\xd8\xff"), false, "a JPEG image", NO_TEXT},
    {MAGIC("GIF8"), true, "a GIF image", NO_TEXT},
    {MAGIC("RIFF"), true, "a WAV, AVI or WebP file", NO_TEXT},
    {MAGIC("ID3"), true, "an MP3 file", NO_TEXT},
    {MAGIC("OggS"), true, "an Ogg file", NO_TEXT},
    {MAGIC("fLaC"), true, "a FLAC file", NO_TEXT},
};

/* NULL: no known format. */
static const format *find_format(const void *data, size_t bytes)
{
    enum { LOOK_BYTES = 4096 };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const format *f = &formats[i];
        if (bytes >= f->bytes && memcmp(data, f->magic, f->bytes) == 0 &&
            (!f->printable || memchr(data, 0, bytes < LOOK_BYTES ? bytes : LOOK_BYTES))) {
            return f;
        }
    }
    /* A tar archive says so in its first header. */
    static const format tar = {MAGIC("ustar"), true, "a tar archive", "unpack it"};
    return bytes >= 262 && memcmp((const char *)data + 257, tar.magic, tar.bytes) == 0 ? &tar : NULL;
}

ls_status ls_text_check_format(const void *data, size_t bytes, const char *path)
{
    LS_TRY(ls_lfs_refuse(path, data, bytes));
    const format *found = find_format(data, bytes);
    return found ? ls_fail(LS_ERR_DATA, "%s is not plain text: it looks like %s; %s", path, found->name,
                           found->remedy)
                 : LS_OK;
}

size_t ls_text_mark_bytes(const void *data, size_t bytes)
{
    static const char mark[] = "\xef\xbb\xbf";
    return bytes >= sizeof mark - 1 && memcmp(data, mark, sizeof mark - 1) == 0 ? sizeof mark - 1 : 0;
}

ls_status ls_text_check(const char *text, size_t bytes, const char *path, bool need_utf8)
{
    const char *nul = bytes > 0 ? memchr(text, 0, bytes) : NULL;
    if (nul) {
        return ls_fail(
            LS_ERR_DATA,
            "%s is not text: it has a NUL byte at offset %zu; it is binary: token files must end in "
            ".bin, and text has no NUL bytes",
            path, (size_t)(nul - text));
    }
    if (!need_utf8) {
        return LS_OK;
    }
    const size_t valid = ls_utf8_valid_prefix(text, bytes);
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

// SPDX-License-Identifier: Apache-2.0
/* Parquet: any bytes are refused with a text that names the file, or give lines of JSON objects. */
#include "base/assert.h"
#include "data/parquet/parquet.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { LINES_BYTES_MAX = 1 << 20 };

static void check_lines(const ls_text *lines)
{
    const char *end = lines->data + lines->bytes;
    for (const char *line = lines->data; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        LS_ASSERT(newline && line[0] == '{' && newline[-1] == '}');
        line = newline + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_parquet *parquet = NULL;
    ls_text lines = {0};
    bool done = false;
    ls_error_clear();
    ls_status status = ls_parquet_open("f.parquet", (ls_file_map){.data = data, .bytes = bytes}, &parquet);
    while (status == LS_OK && !done && lines.bytes < LINES_BYTES_MAX) {
        status = ls_parquet_read(parquet, lines.bytes + 1, &lines, &done);
    }
    LS_ASSERT(status == LS_OK || strstr(ls_error_text(), "f.parquet"));
    if (status == LS_OK && lines.bytes > 0) {
        check_lines(&lines);
    }
    ls_parquet_close(parquet);
    ls_text_release(&lines);
    return 0;
}

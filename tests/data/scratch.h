// SPDX-License-Identifier: Apache-2.0
/* A scratch folder per test, and files in it. */
#ifndef LS_TESTS_DATA_SCRATCH_H
#define LS_TESTS_DATA_SCRATCH_H

#include "test.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scratch {
    char folder[64];
    ls_arena arena;
} scratch;

static inline int scratch_setup(void **state)
{
    scratch *s = calloc(1, sizeof *s);
    strcpy(s->folder, "/tmp/lockstep-data-XXXXXX");
    if (!mkdtemp(s->folder)) {
        return -1;
    }
    *state = s;
    return 0;
}

static inline int scratch_teardown(void **state)
{
    scratch *s = *state;
    const ls_status status = ls_dir_remove(s->folder);
    ls_arena_release(&s->arena);
    free(s);
    return status == LS_OK ? 0 : -1;
}

/* Writes `bytes` to folder/name; returns the path, which lives as long as the test. */
static inline const char *scratch_write(scratch *s, const char *name, const void *data, size_t bytes)
{
    const char *path = ls_path_join(&s->arena, s->folder, name);
    assert_int_equal(ls_file_write_atomic(path, data, bytes), LS_OK);
    return path;
}

static inline const char *scratch_text(scratch *s, const char *name, const char *text)
{
    return scratch_write(s, name, text, strlen(text));
}

/*
 * A byte-level BPE tokenizer with no merges: id 0 is the end-of-text token, 1 the space, 2 to 95
 * are ASCII 33 to 126.
 */
static inline ls_status make_tokenizer_with_end(ls_tokenizer **tokenizer_out)
{
    char json[8192];
    int at = snprintf(
        json, sizeof json,
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<|endoftext|>\",\"single_word\":"
        "false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
        "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
        "\"vocab\":{\"<|endoftext|>\":0,\"\xc4\xa0\":1");
    for (int c = 33; c < 127; c++) {
        const char *escape = c == '"' || c == '\\' ? "\\" : "";
        at += snprintf(json + at, sizeof json - (size_t)at, ",\"%s%c\":%d", escape, c, c - 31);
    }
    at += snprintf(json + at, sizeof json - (size_t)at, "}}}");
    return ls_tokenizer_parse(json, (size_t)at, "test tokenizer", tokenizer_out);
}

/* The error text has `part` in it. */
#define assert_error_has(part)                                                                               \
    do {                                                                                                     \
        if (!strstr(ls_error_text(), part)) {                                                                \
            fail_msg("\"%s\" is not in \"%s\"", part, ls_error_text());                                      \
        }                                                                                                    \
    } while (0)

#endif

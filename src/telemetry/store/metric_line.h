// SPDX-License-Identifier: Apache-2.0
/*
 * Metric line: the numbers of one line of text, as programs write them.
 *
 *   {"step": 7, "loss": 1.5, "eval": {"acc": 0.9}, "note": "x"}   JSON: step, loss, eval.acc
 *   step 7 loss=1.5 acc: 0.9%, lr=3e-4                            text: pairs of name and number
 *
 * A reader for one purpose, ten times as fast as one that builds objects: of JSON it takes numbers,
 * true and false (1 and 0), null, and the texts "NaN", "Infinity" and "-Infinity", also without
 * quotes, as Python writes them. Members of objects get the names of both, with a dot; lists and
 * other texts are passed over. In text, a name is a word with letters, digits and ._/-, before = or
 * a colon; the words step, epoch and iteration need neither.
 *
 * Names are the bytes of the line, with escapes of JSON left as they are. Pure; thread-safe;
 * fuzzed.
 */
#ifndef LS_TELEMETRY_STORE_METRIC_LINE_H
#define LS_TELEMETRY_STORE_METRIC_LINE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    LS_LINE_PAIRS_MAX = 4096,     /* of one line; further ones are left out */
    LS_LINE_NAME_BYTES_MAX = 256, /* pairs with longer names are left out */
    LS_LINE_DEPTH_MAX = 16,       /* of objects and lists in JSON */
};

typedef struct ls_pair {
    const char *name; /* in the line, or in the names of `ls_pairs`; not zero-terminated */
    size_t name_bytes;
    double value; /* NaN for null, too */
    bool is_null;
} ls_pair;

/* Where the pairs of a line go: kept by the caller from line to line. */
typedef struct ls_pairs {
    size_t count, left_out;
    ls_pair items[LS_LINE_PAIRS_MAX];
    /* names of members of objects in objects */
    char names[16 * 1024];
    size_t name_bytes;
} ls_pairs;

/* Reads a line of JSON, without its line feed. False: it is not one object, and the pairs mean
 * nothing. */
bool ls_metric_line_json(const char *line, size_t bytes, ls_pairs *pairs);

/* Reads a line of text. */
void ls_metric_line_text(const char *line, size_t bytes, ls_pairs *pairs);

#endif

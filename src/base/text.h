// SPDX-License-Identifier: Apache-2.0
/*
 * Text: a growing buffer that is always zero-terminated.
 *
 * For help pages, reports, figures and canonical text: things of kilobytes to a few megabytes.
 * Appending never fails; when the system has no memory left the process stops, as with an arena. A
 * zero-initialised ls_text is empty and valid.
 *
 * Not thread-safe: one owner.
 */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include "base/arena.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>

typedef struct ls_text {
    char *data;            /* NULL until something is appended; see ls_text_string */
    size_t bytes;          /* without the terminating zero */
    size_t capacity_bytes; /* private */
} ls_text;

/* Frees the memory; the text is empty and usable again. */
void ls_text_release(ls_text *text);
/* Releases it; its content, "" when empty, is kept in the arena. */
char *ls_text_keep(ls_text *text, ls_arena *arena);
/* Makes it empty, keeping the memory. */
void ls_text_clear(ls_text *text);

void ls_text_append(ls_text *text, const char *string);
void ls_text_append_bytes(ls_text *text, const void *data, size_t bytes);
void ls_text_printf(ls_text *text, const char *format, ...) LS_PRINTF(2, 3);
void ls_text_vprintf(ls_text *text, const char *format, va_list args);
/* `count` times the character `c`. */
void ls_text_repeat(ls_text *text, char c, size_t count);

/* The content, "" when empty. Valid until the next call that changes the text. */
const char *ls_text_string(const ls_text *text);

/*
 * The shortest of 15, 16 or 17 significant digits that reads back as the same double: 0.1 is "0.1",
 * not "0.10000000000000001". value must be finite.
 */
void ls_text_append_f64(ls_text *text, double value);

/* A JSON string literal with its quotes; also a valid YAML double-quoted scalar. Control characters
 * become \uXXXX. */
void ls_text_append_quoted(ls_text *text, const char *string);

/* The same for `bytes` bytes of UTF-8 that may hold zeros: only what JSON must is escaped. */
void ls_text_append_json(ls_text *text, const void *data, size_t bytes);
/* Bytes from `at` on that stand for themselves in a string of JSON. */
size_t ls_json_plain_bytes(const char *at, const char *end);
/* Removes blanks at both ends, in place; returns the first character after the leading ones. */
char *ls_text_trim(char *text);

/* A number for people, three digits and k, M, B or T: "1.4T", "68.9k", "612". Finite. For use
 * within one expression: ls_quantity_of(tokens).text. */
typedef struct ls_quantity {
    char text[24];
} ls_quantity;
ls_quantity ls_quantity_of(double value);
/* The inverse: "1.4T", "8k", "300e9", "2 M", "15000"; k, M, B (or G) and T in either case, k is
 * 1000. False if the text is anything else. */
bool ls_quantity_parse(const char *text, double *value_out);
/* The same without a unit letter and never with an exponent: "1290", "12.3", "0.0467". */
ls_quantity ls_plain_of(double value);

/* Seconds for people, two units at most: "7.2 ms", "0.25 s", "12 s", "3 min 20 s", "2 h 05 min", "3
 * d 4 h"; below 0 and not finite: "?". */
ls_quantity ls_duration_of(double seconds);
/* The same with a single unit and three digits: "450 us", "12.3 ms", "45 s", "36.5 min", "4.92
 * h", "23 days", "9.1 years"; infinite: "never"; NAN: a dash. */
ls_quantity ls_time_of(double seconds);

/*
 * Levenshtein distance: how many characters must be inserted, removed or replaced to turn `a` into
 * `b`. Returns `limit` if the distance is that or more, or if a word has 96 bytes or more.
 * Thread-safe. For "did you mean".
 */
size_t ls_edit_distance(const char *a, const char *b, size_t limit);

/*
 * Appends untrusted text for a terminal or a page: control characters (a terminal obeys them),
 * marks that turn the direction of reading round, and bytes that are not UTF-8 become \xNN;
 * everything else is unchanged. `keep` names control characters that may stay ("\n\t"); "" for one
 * line.
 */
void ls_text_append_printable(ls_text *text, const char *data, size_t bytes, const char *keep);

/* Escapes & < > " ' for XML and HTML, in text and in attributes. */
void ls_text_append_escaped(ls_text *text, const char *string);

#endif

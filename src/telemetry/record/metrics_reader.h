// SPDX-License-Identifier: Apache-2.0
/*
 * Metrics reader: metrics.jsonl and events.jsonl, read back line by line.
 *
 * Both files are written by a process that may die at any moment, and are read while it still
 * writes. The last line may be incomplete, and a crash of the machine may leave anything. So no
 * content is an error: each line is good, damaged, or the torn end. A resume, which needs every
 * line, looks at the kinds; a report skips all lines that are not good.
 *
 * Pure over bytes in memory; thread-safe for separate readers.
 */
#ifndef LS_TELEMETRY_RECORD_METRICS_READER_H
#define LS_TELEMETRY_RECORD_METRICS_READER_H

#include "base/emit.h"

#include <stddef.h>

typedef enum ls_line_kind {
    LS_LINE_GOOD,
    LS_LINE_DAMAGED, /* ends with a newline, but is not a line of such a file */
    LS_LINE_TORN,    /* the end of the file, without a newline */
    LS_LINE_END      /* nothing is left */
} ls_line_kind;

/* A place in a file of lines. Set text and bytes; everything else starts at zero. The text is
 * borrowed. */
typedef struct ls_line_reader {
    const char *text;
    size_t bytes;
    size_t offset;        /* of the next line */
    size_t line_offset;   /* of the line read last */
    uint64_t line_number; /* of the line read last, 1-based */
} ls_line_reader;

/*
 * Reads the next line of metrics.jsonl. A good line is an object with a step >= 1 and a finite loss
 * that fits float32; the loss has the bits that were written. Other numbers that are absent or null
 * are NaN, and counts are 0.
 *
 * metrics_out: written only for LS_LINE_GOOD.
 */
ls_line_kind ls_metrics_reader_next(ls_line_reader *reader, ls_step_metrics *metrics_out);

/*
 * Reads the next line of events.jsonl. A good line is an object with a string `event`.
 *
 * event_out: written only for LS_LINE_GOOD; the caller drops it (json_decref).
 */
ls_line_kind ls_event_reader_next(ls_line_reader *reader, json_t **event_out);

/* Reads the next line of any file of JSON objects. object_out: as above. */
ls_line_kind ls_object_reader_next(ls_line_reader *reader, json_t **object_out);

/* Member `key` as a number; NaN when it is absent or not a number. */
double ls_json_number(const json_t *object, const char *key);
/* True, with the value stored, when member `key` is an integer >= 0. */
bool ls_json_count(const json_t *object, const char *key, uint64_t *count_out);

/* True, with the step stored, when the event belongs to a step. */
bool ls_event_step(const json_t *event, uint64_t *step_out);

#endif

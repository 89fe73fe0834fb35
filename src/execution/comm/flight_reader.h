// SPDX-License-Identifier: Apache-2.0
/*
 * Reading a flight recorder (execution/comm/flight.h), while its rank goes on writing or after it has died.
 *
 * Everything is copied with pread: a file that is cut short, or written by somebody else meanwhile, is an error or nonsense in the copy,
 * never a fault. What is being written at that moment is told apart and left out. Strings are zero-terminated and printable.
 *
 * Not thread-safe: one owner per reader.
 */
#ifndef LS_EXECUTION_COMM_FLIGHT_READER_H
#define LS_EXECUTION_COMM_FLIGHT_READER_H

#include "execution/comm/flight.h"

typedef struct ls_flight_reader ls_flight_reader;

/* Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA (not a flight file, another version, too short, a number out of range), LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_flight_reader_open(const char *path, ls_flight_reader **reader_out);
void ls_flight_reader_close(ls_flight_reader *reader); /* NULL allowed */

/* Who writes it. Read again at each call: outcome, clock and exit status may change. Errors, as of all below: LS_ERR_DATA, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_flight_reader_header(ls_flight_reader *reader, ls_flight_header *header_out);

/* What the rank does now. When a writer died or was stopped inside the few stores of a change, fields of both sides may be mixed;
 * *torn_out then says so. torn_out may be NULL. */
LS_MUST_CHECK ls_status ls_flight_reader_now(ls_flight_reader *reader, ls_flight_now *now_out,
                                             bool *torn_out);

LS_MUST_CHECK ls_status ls_flight_reader_comms(ls_flight_reader *reader,
                                               ls_flight_comm comms_out[LS_FLIGHT_COMMS]);

/* A record and its number; the first of a rank has number 0. */
typedef struct ls_flight_entry {
    uint64_t number;
    ls_flight_record record;
} ls_flight_entry;

/*
 * Copies records from number `from` on, in order, at most `room`. Those that are gone already (overtaken) or not yet complete are left
 * out.
 *
 * count_out: how many were copied. next_out: where to go on: behind the last one looked at; an operation that has not ended (end_ns 0)
 * is copied too, so a caller that wants its end asks for its number again.
 */
LS_MUST_CHECK ls_status ls_flight_reader_records(ls_flight_reader *reader, uint64_t from, uint32_t room,
                                                 ls_flight_entry *entries_out, uint32_t *count_out,
                                                 uint64_t *next_out);

/* The number that the next record will have. */
LS_MUST_CHECK ls_status ls_flight_reader_head(ls_flight_reader *reader, uint64_t *head_out);

/* The spans there are, oldest first; spans_out has LS_FLIGHT_SPANS of room. */
LS_MUST_CHECK ls_status ls_flight_reader_spans(ls_flight_reader *reader, ls_flight_span *spans_out,
                                               uint32_t *count_out);

/* "src/execution/parallel/reduce.c:120"; "?" for an index without a name. */
LS_MUST_CHECK ls_status ls_flight_reader_site(ls_flight_reader *reader, uint32_t index,
                                              char name_out[LS_FLIGHT_SITE_BYTES]);

/* The last words, "" when there are none; line ends stay. */
LS_MUST_CHECK ls_status ls_flight_reader_last_words(ls_flight_reader *reader,
                                                    char text_out[LS_FLIGHT_TEXT_BYTES]);

#endif

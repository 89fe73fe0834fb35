// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a flight recorder (comm/flight/flight.h) while its rank is writing or after it has died.
 *
 * Everything is copied with pread: if a file is cut short or overwritten meanwhile, the result is
 * an error or nonsense in the copy, never a fault. Entries that are being written are recognised
 * and left out. Strings are zero-terminated and printable.
 *
 * Not thread-safe: each reader has one owner.
 */
#ifndef LS_COMM_FLIGHT_FLIGHT_READER_H
#define LS_COMM_FLIGHT_FLIGHT_READER_H

#include "comm/flight/flight.h"

typedef struct ls_flight_reader ls_flight_reader;

/* Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA (not a flight file, another version, too short, a number
 * out of range), LS_ERR_IO. Close with ls_flight_reader_close. */
LS_MUST_CHECK ls_status ls_flight_reader_open(const char *path, ls_flight_reader **reader_out);
/* NULL is allowed. */
void ls_flight_reader_close(ls_flight_reader *reader);

/* The header. It is read again at each call: outcome, clock and exit status may change. Errors of
 * this and all functions below: LS_ERR_DATA, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_flight_reader_header(ls_flight_reader *reader, ls_flight_header *header_out);

/* The current activity of the rank. If the writer died or was stopped in the middle of a change,
 * old and new fields may be mixed; *torn_out is then true. torn_out may be NULL. */
LS_MUST_CHECK ls_status ls_flight_reader_now(ls_flight_reader *reader, ls_flight_now *now_out,
                                             bool *torn_out);

LS_MUST_CHECK ls_status ls_flight_reader_comms(ls_flight_reader *reader,
                                               ls_flight_comm comms_out[LS_FLIGHT_COMMS]);

/* A record and its number; the first record of a rank has number 0. */
typedef struct ls_flight_entry {
    uint64_t number;
    ls_flight_record record;
} ls_flight_entry;

/*
 * Copies at most `room` records from number `from` on, in order. Records that have been overwritten
 * or are not yet complete are left out.
 *
 * count_out: the number of records copied. next_out: the number at which to continue. Operations
 * that have not ended (end_ns 0) are copied too; to see the end of one, ask for its number again.
 */
LS_MUST_CHECK ls_status ls_flight_reader_records(ls_flight_reader *reader, uint64_t from, uint32_t room,
                                                 ls_flight_entry *entries_out, uint32_t *count_out,
                                                 uint64_t *next_out);

/* The number that the next record will have. */
LS_MUST_CHECK ls_status ls_flight_reader_head(ls_flight_reader *reader, uint64_t *head_out);

/* All spans, oldest first; spans_out has room for LS_FLIGHT_SPANS. */
LS_MUST_CHECK ls_status ls_flight_reader_spans(ls_flight_reader *reader, ls_flight_span *spans_out,
                                               uint32_t *count_out);

/* The name of a call site, as "src/execution/parallel/reduce.c:120"; "?" if the index has none. */
LS_MUST_CHECK ls_status ls_flight_reader_site(ls_flight_reader *reader, uint32_t index,
                                              char name_out[LS_FLIGHT_SITE_BYTES]);

/* The last words with their line ends; "" if there are none. */
LS_MUST_CHECK ls_status ls_flight_reader_last_words(ls_flight_reader *reader,
                                                    char text_out[LS_FLIGHT_TEXT_BYTES]);

#endif

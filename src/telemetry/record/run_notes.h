// SPDX-License-Identifier: Apache-2.0
/*
 * Run notes: what people say about a run: a text and tags, in RUN/notes.json.
 *
 *   {"note": "second try, with a lower rate", "tags": ["baseline", "paper"]}
 *
 * They lie in the run directory, not in a database, so that they go where the run goes (a copy, a
 * bundle, another machine) and `lockstep view` and the daemon show the same. The trainer neither
 * reads nor writes the file.
 */
#ifndef LS_TELEMETRY_RECORD_RUN_NOTES_H
#define LS_TELEMETRY_RECORD_RUN_NOTES_H

#include "base/json.h"
#include "base/status.h"

enum { LS_NOTE_BYTES_MAX = 64 * 1024, LS_TAGS_MAX = 32, LS_TAG_BYTES_MAX = 64 };

/* The bytes of such a file; without note and tags where it is missing (0 bytes) or damaged. A new
 * object that always has both members. */
json_t *ls_run_notes_parse(const char *text, size_t bytes);

/*
 * Writes `notes` in place of those of `dir`, atomically.
 * Errors: LS_ERR_INVALID (a member is missing, unknown, too long or of the wrong type; the notes of
 * `dir` stay as they were), LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_run_notes_save(const char *dir, const json_t *notes);

#endif

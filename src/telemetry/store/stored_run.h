// SPDX-License-Identifier: Apache-2.0
/*
 * Stored run: the metrics of a run with the files they come from, kept in a store file, so that a
 * server that starts again need not read hundreds of megabytes of lines for its first picture.
 *
 *   header   "LSMETRS1" | u32 crc | u32 bytes of identity | identity (path of the run)
 *   records  u32 kind | u32 series | u32 bytes | u32 crc | payload
 *              NAME    the name of a metric; its number is the number of names before
 *              BLOCK   points of a series (block.h)
 *              COMMIT  how far each file of the run was read, and the counters of the run
 *
 * The file is only appended to. What comes after its last COMMIT does not count: those points are
 * read again from the run's own files. So it can be torn at any byte, and a point is neither lost
 * nor there twice. It holds nothing that the run's files do not hold: one that is damaged, of
 * another run, or no longer fits the run's files is thrown away and made anew; if it can't be
 * written (a full disk), the run is kept in memory alone.
 *
 * One owner for each run; several processes may use the same folder, and the first one that opens a
 * file keeps it (flock).
 */
#ifndef LS_TELEMETRY_STORE_STORED_RUN_H
#define LS_TELEMETRY_STORE_STORED_RUN_H

#include "telemetry/store/run_metrics.h"

enum {
    LS_STORED_AGE_DAYS = 30,     /* store files that were not written to for so long are removed */
    LS_STORED_FOLDER_MIB = 4096, /* and the oldest ones, when all are larger together */
};

typedef struct ls_stored_file {
    char *name; /* in the run directory */
    ls_feed feed;
} ls_stored_file;

/* Zero-initialised: empty, in memory alone. */
typedef struct ls_stored_run {
    ls_run_metrics data;
    ls_stored_file *files; /* those that were read */
    size_t file_count;
    /* Private. */
    int fd_plus_1; /* of the store file; 0: none */
    char *path, *identity;
    uint64_t end;       /* bytes of the store file that count */
    uint64_t read_kept; /* bytes of the run's files that were read at the last COMMIT */
    uint64_t cut_kept;  /* data.cut then */
    size_t names_kept;
    size_t *blocks_kept; /* of each of those series */
    uint32_t rewrites;
} ls_stored_run;

/* Opens the store file at `path`, or makes it, and takes what it holds of the run with this
 * identity. Never fails: see above. The run must be empty. */
void ls_stored_run_open(ls_stored_run *run, const char *path, const char *identity);
/* Frees everything; what was not kept yet is read again another time. */
void ls_stored_run_release(ls_stored_run *run);

/* How far a file of the run was read; it is new if the name is. Valid until the next call. */
ls_feed *ls_stored_run_feed(ls_stored_run *run, const char *name);
/* What was read is to be read again from the start: the run's files were cut back. */
void ls_stored_run_clear(ls_stored_run *run);
/* Writes what is new to the store file, once it is worth it: after 4 MiB of the run's files. */
void ls_stored_run_keep(ls_stored_run *run);

/* Takes the content of a store file. False: it is not one of that identity; the run may then hold
 * anything. end_out: its bytes up to the last COMMIT. */
bool ls_stored_run_parse(ls_stored_run *run, const unsigned char *data, size_t bytes, const char *identity,
                         uint64_t *end_out);

/* Removes old store files from a folder, as the limits above say. */
void ls_stored_runs_trim(const char *folder);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Database: a thin wrapper over SQLite, for records that must outlive a process: what is committed is on the disk.
 *
 * Write-ahead log and synchronous FULL: a commit is one fsync, and readers don't wait for writers. One owner, one thread; never on a network
 * file system. The library is loaded with the first database: linked, it would cost every process of the program its load time.
 *
 * Errors of all calls: LS_ERR_DISK when the disk is full or can't be written, LS_ERR_DATA when the file is no database or damaged,
 * LS_ERR_IO for the rest. The text names file and statement.
 */
#ifndef LS_BASE_DATABASE_H
#define LS_BASE_DATABASE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_database ls_database;
typedef struct ls_statement ls_statement;

/* Opens or makes the file (mode 0600 of a new one is the caller's umask's business). LS_ERR_UNSUPPORTED when there is no SQLite on this machine. */
LS_MUST_CHECK ls_status ls_database_open(const char *path, ls_database **database_out);
/* Statements must have been finished. NULL allowed. */
void ls_database_close(ls_database *database);

/* Runs statements without results, separated by semicolons. */
LS_MUST_CHECK ls_status ls_database_run(ls_database *database, const char *sql);

/* One transaction. Nothing of it stays when commit fails: it is then rolled back, and may be tried again from the start. */
LS_MUST_CHECK ls_status ls_database_begin(ls_database *database);
LS_MUST_CHECK ls_status ls_database_commit(ls_database *database);
void ls_database_roll_back(ls_database *database);

LS_MUST_CHECK ls_status ls_statement_prepare(ls_database *database, const char *sql,
                                             ls_statement **statement_out);
/* NULL allowed. */
void ls_statement_finish(ls_statement *statement);

/* Values for ?1, ?2, ...: set before the first step; they stay until set anew. text NULL: no value; copied. */
void ls_statement_set_i64(ls_statement *statement, int index, int64_t value);
void ls_statement_set_f64(ls_statement *statement, int index, double value);
void ls_statement_set_text(ls_statement *statement, int index, const char *text);

/* Goes to the next row. has_row_out false: done, and ready to be stepped anew. */
LS_MUST_CHECK ls_status ls_statement_step(ls_statement *statement, bool *has_row_out);
/* Steps once, wanting no row. */
LS_MUST_CHECK ls_status ls_statement_do(ls_statement *statement);

/* Columns of the row, from 0. Text is valid until the next step; "" for no value. */
int64_t ls_statement_i64(ls_statement *statement, int column);
double ls_statement_f64(ls_statement *statement, int column);
const char *ls_statement_text(ls_statement *statement, int column);

#endif

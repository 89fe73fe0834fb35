// SPDX-License-Identifier: Apache-2.0
/*
 * Database: a thin wrapper over SQLite, for records that must outlive a process: a committed
 * transaction is on the disk.
 *
 * Write-ahead log and synchronous FULL: a commit is one fsync, and readers don't wait for writers.
 * One owner, one thread; never on a network file system. The library is loaded with the first
 * database, because linking it would add its load time to every process of the program.
 *
 * Errors of all calls: LS_ERR_DISK when the disk is full or can't be written, LS_ERR_DATA when the
 * file is not a database or is damaged, LS_ERR_IO for the rest. The error text names file and
 * statement.
 */
#ifndef LS_ENV_DATABASE_H
#define LS_ENV_DATABASE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_database ls_database;
typedef struct ls_statement ls_statement;

/* Opens or creates the file; the mode of a new one depends on the umask. LS_ERR_UNSUPPORTED if
 * this machine has no SQLite. */
LS_MUST_CHECK ls_status ls_database_open(const char *path, ls_database **database_out);
/* All statements must be finished first. NULL is allowed. */
void ls_database_close(ls_database *database);

/* Runs statements without results, separated by semicolons. */
LS_MUST_CHECK ls_status ls_database_run(ls_database *database, const char *sql);

/* One transaction. If the commit fails, it is rolled back completely and may be tried again from
 * the start. */
LS_MUST_CHECK ls_status ls_database_begin(ls_database *database);
LS_MUST_CHECK ls_status ls_database_commit(ls_database *database);
void ls_database_roll_back(ls_database *database);

LS_MUST_CHECK ls_status ls_statement_prepare(ls_database *database, const char *sql,
                                             ls_statement **statement_out);
/* NULL allowed. */
void ls_statement_finish(ls_statement *statement);

/* Values for ?1, ?2, ...: set before the first step; they stay until set again. text: copied;
 * NULL: no value. */
void ls_statement_set_i64(ls_statement *statement, int index, int64_t value);
void ls_statement_set_f64(ls_statement *statement, int index, double value);
void ls_statement_set_text(ls_statement *statement, int index, const char *text);

/* Moves to the next row. has_row_out false: no more rows; the statement is reset and can be
 * stepped again. */
LS_MUST_CHECK ls_status ls_statement_step(ls_statement *statement, bool *has_row_out);
/* Steps once; the statement must not return a row. */
LS_MUST_CHECK ls_status ls_statement_do(ls_statement *statement);

/* Columns of the row, counted from 0. Text is valid until the next step; "" if there is no
 * value. */
int64_t ls_statement_i64(ls_statement *statement, int column);
double ls_statement_f64(ls_statement *statement, int column);
const char *ls_statement_text(ls_statement *statement, int column);

#endif

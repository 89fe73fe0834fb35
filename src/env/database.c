// SPDX-License-Identifier: Apache-2.0
#include "env/database.h"

#include "base/assert.h"
#include "env/library.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#define SQLITE_FUNCTIONS(X)                                                                                  \
    X(open_v2)                                                                                               \
    X(close_v2)                                                                                              \
    X(exec)                                                                                                  \
    X(prepare_v2)                                                                                            \
    X(finalize)                                                                                              \
    X(step)                                                                                                  \
    X(reset)                                                                                                 \
    X(bind_int64)                                                                                            \
    X(bind_double)                                                                                           \
    X(bind_text)                                                                                             \
    X(bind_null)                                                                                             \
    X(column_int64)                                                                                          \
    X(column_double)                                                                                         \
    X(column_text)                                                                                           \
    X(errmsg)                                                                                                \
    X(busy_timeout)                                                                                          \
    X(get_autocommit)                                                                                        \
    X(extended_result_codes)
#define FIELD(name) __typeof__(sqlite3_##name) *name;
static struct {
    pthread_once_t once;
    bool is_there;
    SQLITE_FUNCTIONS(FIELD)
} sqlite = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
#define SYMBOL(name) {"sqlite3_" #name, &sqlite.name},
    const ls_library_symbol symbols[] = {SQLITE_FUNCTIONS(SYMBOL)};
    sqlite.is_there = ls_library_load("libsqlite3.so.0", symbols, sizeof symbols / sizeof symbols[0]);
}

/* ---- errors ---- */

struct ls_database {
    sqlite3 *db;
    char *path;
};

struct ls_statement {
    ls_database *database;
    sqlite3_stmt *statement;
};

static ls_status fail(const ls_database *database, int code, const char *what)
{
    ls_status status = LS_ERR_IO;
    switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR: /* a write beyond the limit of a disk, a quota or the process */
        status = LS_ERR_DISK;
        break;
    case SQLITE_NOMEM:
        status = LS_ERR_MEMORY;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        status = LS_ERR_DATA;
        break;
    default:
        break;
    }
    return ls_fail(status, "database %s: %s (SQLite code %d) during the step '%.100s'", database->path,
                   sqlite.errmsg(database->db), code, what);
}

/* ---- databases ---- */

ls_status ls_database_run(ls_database *database, const char *sql)
{
    const int code = sqlite.exec(database->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? LS_OK : fail(database, code, sql);
}

ls_status ls_database_open(const char *path, ls_database **database_out)
{
    pthread_once(&sqlite.once, load);
    if (!sqlite.is_there) {
        return ls_fail(LS_ERR_UNSUPPORTED, "the library libsqlite3.so.0 is missing on this machine or too "
                                           "old; Debian's package is libsqlite3-0");
    }
    ls_database *database = calloc(1, sizeof *database);
    LS_ASSERT(database && (database->path = strdup(path)));
    const int code = sqlite.open_v2(path, &database->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    ls_status status = code == SQLITE_OK ? LS_OK : fail(database, code, "open");
    if (status == LS_OK) {
        sqlite.busy_timeout(database->db, 5000);
        sqlite.extended_result_codes(database->db, 1);
        status = ls_database_run(database, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
                                           "PRAGMA foreign_keys=ON; PRAGMA cache_size=-4096");
    }
    if (status != LS_OK) {
        ls_database_close(database);
        return status;
    }
    *database_out = database;
    return LS_OK;
}

void ls_database_close(ls_database *database)
{
    if (database) {
        sqlite.close_v2(database->db);
        free(database->path);
        free(database);
    }
}

ls_status ls_database_begin(ls_database *database)
{
    return ls_database_run(database, "BEGIN IMMEDIATE");
}

ls_status ls_database_commit(ls_database *database)
{
    const ls_status status = ls_database_run(database, "COMMIT");
    if (status != LS_OK) {
        ls_database_roll_back(database);
    }
    return status;
}

void ls_database_roll_back(ls_database *database)
{
    if (!sqlite.get_autocommit(database->db)) { /* some errors have already rolled it back */
        sqlite.exec(database->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

/* ---- statements ---- */

ls_status ls_statement_prepare(ls_database *database, const char *sql, ls_statement **statement_out)
{
    sqlite3_stmt *prepared = NULL;
    const int code = sqlite.prepare_v2(database->db, sql, -1, &prepared, NULL);
    if (code != SQLITE_OK) {
        return fail(database, code, sql);
    }
    ls_statement *statement = malloc(sizeof *statement);
    LS_ASSERT(statement && "not enough memory for a statement");
    *statement = (ls_statement){.database = database, .statement = prepared};
    *statement_out = statement;
    return LS_OK;
}

void ls_statement_finish(ls_statement *statement)
{
    if (statement) {
        sqlite.finalize(statement->statement);
        free(statement);
    }
}

void ls_statement_set_i64(ls_statement *statement, int index, int64_t value)
{
    LS_ASSERT(sqlite.bind_int64(statement->statement, index, value) == SQLITE_OK);
}

void ls_statement_set_f64(ls_statement *statement, int index, double value)
{
    LS_ASSERT(sqlite.bind_double(statement->statement, index, value) == SQLITE_OK);
}

void ls_statement_set_text(ls_statement *statement, int index, const char *text)
{
    LS_ASSERT((text ? sqlite.bind_text(statement->statement, index, text, -1, SQLITE_TRANSIENT)
                    : sqlite.bind_null(statement->statement, index)) == SQLITE_OK);
}

ls_status ls_statement_step(ls_statement *statement, bool *has_row_out)
{
    const int code = sqlite.step(statement->statement);
    if (code == SQLITE_ROW) {
        *has_row_out = true;
        return LS_OK;
    }
    ls_status status = code == SQLITE_DONE ? LS_OK : fail(statement->database, code, "step");
    sqlite.reset(statement->statement);
    if (status == LS_OK) {
        *has_row_out = false;
    }
    return status;
}

ls_status ls_statement_do(ls_statement *statement)
{
    bool has_row = false;
    LS_TRY(ls_statement_step(statement, &has_row));
    LS_ASSERT(!has_row);
    return LS_OK;
}

int64_t ls_statement_i64(ls_statement *statement, int column)
{
    return sqlite.column_int64(statement->statement, column);
}

double ls_statement_f64(ls_statement *statement, int column)
{
    return sqlite.column_double(statement->statement, column);
}

const char *ls_statement_text(ls_statement *statement, int column)
{
    const char *text = (const char *)sqlite.column_text(statement->statement, column);
    return text ? text : "";
}

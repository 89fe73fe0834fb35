// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "env/database.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[] = "/tmp/ls-database-XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    memcpy(folder, "/tmp/ls-database-XXXXXX", sizeof folder);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/db", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char name[80];
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    return rmdir(folder);
}

static int64_t count_rows(ls_database *database)
{
    ls_statement *statement = NULL;
    bool has_row = false;
    assert_int_equal(ls_statement_prepare(database, "SELECT COUNT(*) FROM t", &statement), LS_OK);
    assert_int_equal(ls_statement_step(statement, &has_row), LS_OK);
    assert_true(has_row);
    const int64_t count = ls_statement_i64(statement, 0);
    ls_statement_finish(statement);
    return count;
}

static void database_rows_come_back(void **state)
{
    (void)state;
    ls_database *database = NULL;
    ls_statement *insert = NULL, *select = NULL;
    bool has_row = false;
    assert_int_equal(ls_database_open(path, &database), LS_OK);
    assert_int_equal(ls_database_run(database, "CREATE TABLE t(a INTEGER, b REAL, c TEXT)"), LS_OK);
    assert_int_equal(ls_statement_prepare(database, "INSERT INTO t VALUES(?1, ?2, ?3)", &insert), LS_OK);
    for (int i = 0; i < 3; i++) {
        ls_statement_set_i64(insert, 1, INT64_MAX - i);
        ls_statement_set_f64(insert, 2, 0.5 * i);
        ls_statement_set_text(insert, 3, i == 1 ? NULL : "zwölf");
        assert_int_equal(ls_statement_do(insert), LS_OK);
    }
    ls_statement_finish(insert);
    ls_database_close(database);

    assert_int_equal(ls_database_open(path, &database), LS_OK);
    assert_int_equal(ls_statement_prepare(database, "SELECT a, b, c FROM t ORDER BY b", &select), LS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_statement_step(select, &has_row), LS_OK);
        assert_true(has_row);
        assert_true(ls_statement_i64(select, 0) == INT64_MAX - i);
        assert_true(ls_statement_f64(select, 1) == 0.5 * i);
        assert_string_equal(ls_statement_text(select, 2), i == 1 ? "" : "zwölf");
    }
    assert_int_equal(ls_statement_step(select, &has_row), LS_OK);
    assert_false(has_row);
    ls_statement_finish(select);
    ls_database_close(database);
}

static void database_transactions_are_whole(void **state)
{
    (void)state;
    ls_database *database = NULL;
    assert_int_equal(ls_database_open(path, &database), LS_OK);
    assert_int_equal(ls_database_run(database, "CREATE TABLE t(a INTEGER PRIMARY KEY)"), LS_OK);
    assert_int_equal(ls_database_begin(database), LS_OK);
    assert_int_equal(ls_database_run(database, "INSERT INTO t VALUES(1)"), LS_OK);
    /* twice the same key */
    assert_int_equal(ls_database_run(database, "INSERT INTO t VALUES(1)"), LS_ERR_IO);
    ls_database_roll_back(database);
    assert_int_equal(count_rows(database), 0);
    assert_int_equal(ls_database_begin(database), LS_OK);
    assert_int_equal(ls_database_run(database, "INSERT INTO t VALUES(1)"), LS_OK);
    assert_int_equal(ls_database_commit(database), LS_OK);
    assert_int_equal(count_rows(database), 1);
    ls_database_close(database);
}

/* A limit on the size of files stands for a disk that is full: what can't be written is an error of
 * the disk, nothing of it is there, and what was there stays; with room again the same transaction
 * goes through. */
static void database_full_disk_loses_nothing(void **state)
{
    (void)state;
    ls_database *database = NULL;
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(ls_database_open(path, &database), LS_OK);
    assert_int_equal(ls_database_run(database, "CREATE TABLE t(a TEXT); INSERT INTO t VALUES('first')"),
                     LS_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 64 * 1024;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    static const char big[] = "INSERT INTO t SELECT hex(zeroblob(100000))";
    ls_status status = ls_database_begin(database);
    for (int i = 0; status == LS_OK && i < 100; i++) {
        status = ls_database_run(database, big);
    }
    if (status == LS_OK) {
        status = ls_database_commit(database);
    } else {
        ls_database_roll_back(database);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, LS_ERR_DISK);
    assert_int_equal(count_rows(database), 1);
    assert_int_equal(ls_database_begin(database), LS_OK);
    assert_int_equal(ls_database_run(database, big), LS_OK);
    assert_int_equal(ls_database_commit(database), LS_OK);
    assert_int_equal(count_rows(database), 2);
    ls_database_close(database);
}

static void database_refuses_what_is_none(void **state)
{
    (void)state;
    ls_database *database = NULL;
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 100; i++) {
        fputs("this is no database, but a text that is long enough to be asked\n", file);
    }
    fclose(file);
    assert_int_equal(ls_database_open(path, &database), LS_ERR_DATA);
    assert_null(database);
    assert_non_null(strstr(ls_error_text(), path));
    assert_int_equal(ls_database_open("/nonexistent/folder/db", &database), LS_ERR_DISK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(database_rows_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(database_transactions_are_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(database_full_disk_loses_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(database_refuses_what_is_none, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

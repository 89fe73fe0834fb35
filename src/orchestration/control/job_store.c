// SPDX-License-Identifier: Apache-2.0
#include "orchestration/control/job_store.h"

#include "base/assert.h"
#include "env/database.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_VERSION = 7 };

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS jobs(id INTEGER PRIMARY KEY, state TEXT NOT NULL, ended INTEGER NOT NULL, "
    "account TEXT NOT NULL,"
    " uid INTEGER NOT NULL, gid INTEGER NOT NULL, user TEXT NOT NULL, run_dir TEXT NOT NULL, request TEXT "
    "NOT NULL, record TEXT NOT NULL);"
    "CREATE INDEX IF NOT EXISTS jobs_ended ON jobs(ended, id);"
    "CREATE TABLE IF NOT EXISTS journal(id INTEGER PRIMARY KEY, job INTEGER NOT NULL, epoch INTEGER NOT "
    "NULL, time REAL NOT NULL,"
    " was TEXT NOT NULL, state TEXT NOT NULL, cause TEXT NOT NULL, text TEXT NOT NULL);"
    "CREATE INDEX IF NOT EXISTS journal_job ON journal(job, id);"
    "CREATE TABLE IF NOT EXISTS accounts(name TEXT PRIMARY KEY, weight INTEGER NOT NULL, quota INTEGER NOT "
    "NULL, borrow INTEGER NOT NULL,"
    " lend INTEGER NOT NULL, allocated INTEGER NOT NULL, idle INTEGER NOT NULL, waiting INTEGER NOT NULL, "
    "lost INTEGER NOT NULL,"
    " jobs INTEGER NOT NULL, share_devices INTEGER NOT NULL, share_cpus INTEGER NOT NULL, share_memory "
    "INTEGER NOT NULL,"
    " share_at INTEGER NOT NULL);";

struct ls_job_store {
    ls_database *database;
    ls_statement *insert, *update, *amend, *journal, *account, *no_account, *upkeep, *sweep;
};

/* ---- opening ---- */

/* The steps from one version of the tables to the next, each in one transaction. */
static const char *const steps[SCHEMA_VERSION] = {
    "BEGIN; PRAGMA user_version=1; COMMIT",
    "BEGIN; ALTER TABLE accounts ADD COLUMN users TEXT NOT NULL DEFAULT '';"
    " ALTER TABLE accounts ADD COLUMN priority_max INTEGER NOT NULL DEFAULT 1;"
    " PRAGMA user_version=2; COMMIT",
    "BEGIN; ALTER TABLE jobs ADD COLUMN key TEXT NOT NULL DEFAULT '';"
    " CREATE INDEX jobs_key ON jobs(uid, key) WHERE key<>'';"
    " CREATE TABLE upkeep(id INTEGER PRIMARY KEY CHECK(id=1), state TEXT NOT NULL);"
    " PRAGMA user_version=3; COMMIT",
    "BEGIN; ALTER TABLE accounts ADD COLUMN budget REAL NOT NULL DEFAULT 0;"
    " ALTER TABLE accounts ADD COLUMN month INTEGER NOT NULL DEFAULT 0;"
    " ALTER TABLE accounts ADD COLUMN month_from REAL NOT NULL DEFAULT 0;"
    " ALTER TABLE accounts ADD COLUMN month_used INTEGER NOT NULL DEFAULT 0;"
    " ALTER TABLE accounts ADD COLUMN month_before INTEGER NOT NULL DEFAULT 0;"
    " ALTER TABLE accounts ADD COLUMN month_told INTEGER NOT NULL DEFAULT 0;"
    " PRAGMA user_version=4; COMMIT",
    "BEGIN; CREATE TABLE sweeps(first INTEGER PRIMARY KEY, last INTEGER NOT NULL,"
    " state TEXT NOT NULL);"
    " PRAGMA user_version=5; COMMIT",
    "BEGIN; ALTER TABLE accounts"
    " ADD COLUMN energy INTEGER NOT NULL DEFAULT 0;"
    " PRAGMA user_version=6; COMMIT",
    "BEGIN; ALTER TABLE accounts ADD COLUMN priced INTEGER NOT NULL DEFAULT 0;"
    " UPDATE accounts SET priced=allocated;"
    " PRAGMA user_version=7; COMMIT",
};

static ls_status check_version(ls_database *database)
{
    ls_statement *statement = NULL;
    bool has_row = false;
    LS_TRY(ls_statement_prepare(database, "PRAGMA user_version", &statement));
    const ls_status status = ls_statement_step(statement, &has_row);
    const int64_t version = status == LS_OK && has_row ? ls_statement_i64(statement, 0) : 0;
    ls_statement_finish(statement);
    LS_TRY(status);
    if (version > SCHEMA_VERSION) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the queue's database was written by a newer version of lockstep (database version "
                       "%lld; this program knows versions up to %d)",
                       (long long)version, SCHEMA_VERSION);
    }
    for (int64_t step = version < 0 ? 0 : version; step < SCHEMA_VERSION; step++) {
        LS_TRY(ls_database_run(database, steps[step]));
    }
    return LS_OK;
}

static ls_status prepare(ls_job_store *store)
{
    LS_TRY(ls_statement_prepare(
        store->database,
        "INSERT INTO jobs(id, state, ended, account, uid, gid, user, run_dir, request, record, key)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        &store->insert));
    LS_TRY(ls_statement_prepare(store->database, "UPDATE jobs SET account=?2, request=?3 WHERE id=?1",
                                &store->amend));
    LS_TRY(ls_statement_prepare(store->database, "INSERT OR REPLACE INTO upkeep(id, state) VALUES(1, ?1)",
                                &store->upkeep));
    LS_TRY(ls_statement_prepare(store->database,
                                "INSERT OR REPLACE INTO sweeps(first, last, state) VALUES(?1, ?2, ?3)",
                                &store->sweep));
    LS_TRY(ls_statement_prepare(store->database, "UPDATE jobs SET state=?2, ended=?3, record=?4 WHERE id=?1",
                                &store->update));
    LS_TRY(ls_statement_prepare(store->database,
                                "INSERT INTO journal(job, epoch, time, was, state, cause, text)"
                                " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                                &store->journal));
    LS_TRY(ls_statement_prepare(store->database, "DELETE FROM accounts WHERE name=?1", &store->no_account));
    return ls_statement_prepare(store->database,
                                "INSERT OR REPLACE INTO accounts VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
                                "?10, ?11, ?12, ?13, ?14, ?15, "
                                "?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
                                &store->account);
}

ls_status ls_job_store_open(const char *path, ls_job_store **store_out)
{
    ls_job_store *store = calloc(1, sizeof *store);
    LS_ASSERT(store && "not enough memory for the database of jobs");
    ls_status status = ls_database_open(path, &store->database);
    if (status == LS_OK) {
        status = ls_database_run(store->database, schema);
    }
    if (status == LS_OK) {
        status = check_version(store->database);
    }
    if (status == LS_OK) {
        status = prepare(store);
    }
    if (status != LS_OK) {
        ls_job_store_close(store);
        return status;
    }
    *store_out = store;
    return LS_OK;
}

void ls_job_store_close(ls_job_store *store)
{
    if (store) {
        ls_statement_finish(store->insert);
        ls_statement_finish(store->update);
        ls_statement_finish(store->journal);
        ls_statement_finish(store->account);
        ls_statement_finish(store->no_account);
        ls_statement_finish(store->amend);
        ls_statement_finish(store->upkeep);
        ls_statement_finish(store->sweep);
        ls_database_close(store->database);
        free(store);
    }
}

/* ---- writing ---- */

static void set_json(ls_statement *statement, int index, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    LS_ASSERT(text && "not enough memory for the record of a job");
    ls_statement_set_text(statement, index, text);
    free(text);
}

static ls_status insert_job(ls_job_store *store, const ls_job *job)
{
    ls_statement *insert = store->insert;
    json_t *record = ls_job_record_json(job);
    ls_statement_set_i64(insert, 1, (int64_t)job->id);
    ls_statement_set_text(insert, 2, ls_job_state_name(job->state));
    ls_statement_set_i64(insert, 3, ls_job_state_is_final(job->state));
    ls_statement_set_text(insert, 4, job->account);
    ls_statement_set_i64(insert, 5, job->uid);
    ls_statement_set_i64(insert, 6, job->gid);
    ls_statement_set_text(insert, 7, job->user);
    ls_statement_set_text(insert, 8, job->run_dir);
    set_json(insert, 9, job->request);
    set_json(insert, 10, record);
    ls_statement_set_text(insert, 11, job->spec.key);
    json_decref(record);
    return ls_statement_do(insert);
}

static ls_status update_job(ls_job_store *store, const ls_job *job)
{
    ls_statement *update = store->update;
    json_t *record = ls_job_record_json(job);
    ls_statement_set_i64(update, 1, (int64_t)job->id);
    ls_statement_set_text(update, 2, ls_job_state_name(job->state));
    ls_statement_set_i64(update, 3, ls_job_state_is_final(job->state));
    set_json(update, 4, record);
    json_decref(record);
    LS_TRY(ls_statement_do(update));
    if (!job->has_new_request) {
        return LS_OK;
    }
    ls_statement_set_i64(store->amend, 1, (int64_t)job->id);
    ls_statement_set_text(store->amend, 2, job->account);
    set_json(store->amend, 3, job->request);
    return ls_statement_do(store->amend);
}

static ls_status write_transition(ls_job_store *store, const ls_transition *transition)
{
    ls_statement *journal = store->journal;
    ls_statement_set_i64(journal, 1, (int64_t)transition->job);
    ls_statement_set_i64(journal, 2, transition->epoch);
    ls_statement_set_f64(journal, 3, transition->time_s);
    ls_statement_set_text(journal, 4, ls_job_state_name(transition->from));
    ls_statement_set_text(journal, 5, ls_job_state_name(transition->to));
    ls_statement_set_text(journal, 6, ls_job_cause_name(transition->cause));
    ls_statement_set_text(journal, 7, transition->text);
    return ls_statement_do(journal);
}

/* -1 in the database: no limit. */
static int64_t limit_of(uint32_t limit)
{
    return limit == UINT32_MAX ? -1 : (int64_t)limit;
}

static ls_status write_account(ls_job_store *store, const ls_account *account)
{
    ls_statement *row = account->is_deleted ? store->no_account : store->account;
    ls_statement_set_text(row, 1, account->name);
    if (account->is_deleted) {
        return ls_statement_do(row);
    }
    ls_statement_set_i64(row, 2, account->weight);
    ls_statement_set_i64(row, 3, limit_of(account->quota));
    ls_statement_set_i64(row, 4, limit_of(account->borrow));
    ls_statement_set_i64(row, 5, limit_of(account->lend));
    ls_statement_set_i64(row, 6, (int64_t)account->allocated_device_ms);
    ls_statement_set_i64(row, 7, (int64_t)account->idle_device_ms);
    ls_statement_set_i64(row, 8, (int64_t)account->waiting_device_ms);
    ls_statement_set_i64(row, 9, (int64_t)account->lost_device_ms);
    ls_statement_set_i64(row, 10, (int64_t)account->jobs);
    for (int i = 0; i < 3; i++) {
        ls_statement_set_i64(row, 11 + i, (int64_t)account->share_ms[i]);
    }
    ls_statement_set_i64(row, 14, (int64_t)account->share_at_ms);
    ls_statement_set_text(row, 15, account->users);
    ls_statement_set_i64(row, 16, account->priority_max);
    ls_statement_set_f64(row, 17, account->budget_usd);
    ls_statement_set_i64(row, 18, account->month);
    ls_statement_set_f64(row, 19, account->month_from_s);
    ls_statement_set_i64(row, 20, (int64_t)account->month_device_ms);
    ls_statement_set_i64(row, 21, (int64_t)account->last_month_device_ms);
    ls_statement_set_i64(row, 22, account->month_told);
    ls_statement_set_i64(row, 23, (int64_t)account->energy_mj);
    ls_statement_set_i64(row, 24, (int64_t)account->priced_device_ms);
    return ls_statement_do(row);
}

static bool is_created(const ls_turn *turn, const ls_job *job)
{
    for (uint32_t i = 0; i < turn->created_count; i++) {
        if (turn->created[i] == job) {
            return true;
        }
    }
    return false;
}

static ls_status write_rows(ls_job_store *store, const ls_turn *turn)
{
    for (uint32_t i = 0; i < turn->created_count; i++) {
        LS_TRY(insert_job(store, turn->created[i]));
    }
    for (uint32_t i = 0; i < turn->changed_count; i++) {
        if (!is_created(turn, turn->changed[i])) {
            LS_TRY(update_job(store, turn->changed[i]));
        }
    }
    for (uint32_t i = 0; i < turn->transition_count; i++) {
        LS_TRY(write_transition(store, &turn->transitions[i]));
    }
    for (uint32_t i = 0; i < turn->account_count; i++) {
        LS_TRY(write_account(store, turn->accounts[i]));
    }
    if (turn->upkeep) {
        set_json(store->upkeep, 1, turn->upkeep);
        LS_TRY(ls_statement_do(store->upkeep));
    }
    for (size_t i = 0; i < json_array_size(turn->sweeps); i++) {
        const json_t *state = json_array_get(turn->sweeps, i);
        const int64_t first = json_integer_value(json_object_get(state, "first"));
        ls_statement_set_i64(store->sweep, 1, first);
        ls_statement_set_i64(store->sweep, 2,
                             first + json_integer_value(json_object_get(state, "count")) - 1);
        set_json(store->sweep, 3, state);
        LS_TRY(ls_statement_do(store->sweep));
    }
    return LS_OK;
}

ls_status ls_job_store_write(ls_job_store *store, const ls_turn *turn)
{
    LS_TRY(ls_database_begin(store->database));
    const ls_status status = write_rows(store, turn);
    if (status != LS_OK) {
        ls_database_roll_back(store->database);
        return status;
    }
    return ls_database_commit(store->database);
}

/* ---- reading ---- */

static const char job_columns[] = "SELECT id, uid, gid, user, account, run_dir, request, record FROM jobs ";

static ls_status read_job(ls_statement *row, ls_job **job_out)
{
    const uint64_t id = (uint64_t)ls_statement_i64(row, 0);
    json_t *request = NULL, *record = NULL;
    ls_job *job = NULL;
    char name[64];
    snprintf(name, sizeof name, "the record of job %llu", (unsigned long long)id);
    const char *text = ls_statement_text(row, 6);
    LS_TRY(ls_json_parse(text, strlen(text), name, &request));
    ls_status status = ls_job_create(id, request, &job); /* takes over the request */
    if (status != LS_OK) {
        return ls_fail_within(LS_ERR_DATA, "%s", name);
    }
    text = ls_statement_text(row, 7);
    status = ls_json_parse(text, strlen(text), name, &record);
    if (status == LS_OK) {
        status = ls_job_record_read(job, record);
        json_decref(record);
    }
    if (status != LS_OK) {
        ls_job_destroy(job);
        return status;
    }
    ls_job_set_user(job, (uint32_t)ls_statement_i64(row, 1), (uint32_t)ls_statement_i64(row, 2),
                    ls_statement_text(row, 3));
    ls_job_set_account(job, ls_statement_text(row, 4));
    ls_job_set_run_dir(job, ls_statement_text(row, 5));
    if (ls_job_state_is_final(job->state)) {
        ls_job_drop_request(job);
    }
    *job_out = job;
    return LS_OK;
}

static uint32_t limit_from(int64_t limit)
{
    return limit < 0 || limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
}

static ls_status restore_accounts(ls_job_store *store, ls_controller *controller)
{
    ls_statement *row = NULL;
    bool has_row = false;
    LS_TRY(ls_statement_prepare(
        store->database,
        "SELECT name, weight, quota, borrow, lend, allocated, idle, waiting, lost, jobs,"
        " share_devices, share_cpus, share_memory, share_at, users, priority_max, budget,"
        " month, month_from, month_used, month_before, month_told, energy, priced"
        " FROM accounts ORDER BY name",
        &row));
    ls_status status;
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row) {
        ls_account account = {
            .weight = (uint32_t)ls_statement_i64(row, 1),
            .quota = limit_from(ls_statement_i64(row, 2)),
            .borrow = limit_from(ls_statement_i64(row, 3)),
            .lend = limit_from(ls_statement_i64(row, 4)),
            .allocated_device_ms = (uint64_t)ls_statement_i64(row, 5),
            .idle_device_ms = (uint64_t)ls_statement_i64(row, 6),
            .waiting_device_ms = (uint64_t)ls_statement_i64(row, 7),
            .lost_device_ms = (uint64_t)ls_statement_i64(row, 8),
            .jobs = (uint64_t)ls_statement_i64(row, 9),
            .share_ms = {(uint64_t)ls_statement_i64(row, 10), (uint64_t)ls_statement_i64(row, 11),
                         (uint64_t)ls_statement_i64(row, 12)},
            .share_at_ms = (uint64_t)ls_statement_i64(row, 13),
            .budget_usd = ls_statement_f64(row, 16),
            .month = (uint32_t)ls_statement_i64(row, 17),
            .month_from_s = ls_statement_f64(row, 18),
            .month_device_ms = (uint64_t)ls_statement_i64(row, 19),
            .last_month_device_ms = (uint64_t)ls_statement_i64(row, 20),
            .month_told = (uint32_t)ls_statement_i64(row, 21),
            .energy_mj = (uint64_t)ls_statement_i64(row, 22),
            .priced_device_ms = (uint64_t)ls_statement_i64(row, 23),
        };
        const int64_t priority_max = ls_statement_i64(row, 15);
        account.priority_max = priority_max >= LS_PRIORITY_LOW && priority_max <= LS_PRIORITY_HIGH
                                   ? (ls_priority)priority_max
                                   : LS_PRIORITY_NORMAL;
        snprintf(account.name, sizeof account.name, "%s", ls_statement_text(row, 0));
        snprintf(account.users, sizeof account.users, "%s", ls_statement_text(row, 14));
        ls_controller_restore_account(controller, &account);
    }
    ls_statement_finish(row);
    return status;
}

static ls_status restore_jobs(ls_job_store *store, uint32_t ended_max, ls_controller *controller)
{
    ls_statement *row = NULL;
    bool has_row = false;
    char sql[512];
    snprintf(
        sql, sizeof sql,
        "%s WHERE ended=0 OR id IN (SELECT id FROM jobs WHERE ended=1 ORDER BY id DESC LIMIT ?1) ORDER BY id",
        job_columns);
    LS_TRY(ls_statement_prepare(store->database, sql, &row));
    ls_statement_set_i64(row, 1, ended_max);
    ls_status status;
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row) {
        ls_job *job = NULL;
        status = read_job(row, &job);
        if (status != LS_OK) {
            break;
        }
        ls_controller_restore(controller, job);
    }
    ls_statement_finish(row);
    return status;
}

static ls_status restore_upkeep(ls_job_store *store, ls_controller *controller)
{
    ls_statement *row = NULL;
    bool has_row = false;
    json_t *upkeep = NULL;
    LS_TRY(ls_statement_prepare(store->database, "SELECT state FROM upkeep", &row));
    ls_status status = ls_statement_step(row, &has_row);
    if (status == LS_OK && has_row) {
        const char *text = ls_statement_text(row, 0);
        status = ls_json_parse(text, strlen(text), "the record of pauses and maintenance", &upkeep);
    }
    if (upkeep) {
        status = ls_controller_restore_upkeep(controller, upkeep);
        json_decref(upkeep);
    }
    ls_statement_finish(row);
    return status;
}

static ls_status restore_sweeps(ls_job_store *store, ls_controller *controller)
{
    ls_statement *row = NULL;
    bool has_row = false;
    ls_status status;
    LS_TRY(ls_statement_prepare(store->database, "SELECT state FROM sweeps ORDER BY first", &row));
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row) {
        json_t *state = NULL;
        const char *text = ls_statement_text(row, 0);
        status = ls_json_parse(text, strlen(text), "the record of a sweep", &state);
        if (status == LS_OK) {
            status = ls_controller_restore_sweep(controller, state);
            json_decref(state);
        }
        if (status != LS_OK) {
            break;
        }
    }
    ls_statement_finish(row);
    return status;
}

ls_status ls_job_store_restore(ls_job_store *store, uint32_t ended_max, ls_controller *controller,
                               uint64_t *next_out)
{
    ls_statement *row = NULL;
    bool has_row = false;
    LS_TRY(restore_accounts(store, controller));
    LS_TRY(restore_jobs(store, ended_max, controller));
    LS_TRY(restore_upkeep(store, controller));
    LS_TRY(restore_sweeps(store, controller));
    LS_TRY(ls_statement_prepare(store->database, "SELECT COALESCE(MAX(id), 0) + 1 FROM jobs", &row));
    const ls_status status = ls_statement_step(row, &has_row);
    if (status == LS_OK) {
        *next_out = has_row ? (uint64_t)ls_statement_i64(row, 0) : 1;
    }
    ls_statement_finish(row);
    return status;
}

ls_status ls_job_store_find(ls_job_store *store, uint64_t id, ls_job **job_out)
{
    ls_statement *row = NULL;
    bool has_row = false;
    char sql[512];
    snprintf(sql, sizeof sql, "%s WHERE id=?1", job_columns);
    LS_TRY(ls_statement_prepare(store->database, sql, &row));
    ls_statement_set_i64(row, 1, (int64_t)id);
    ls_status status = ls_statement_step(row, &has_row);
    if (status == LS_OK) {
        status = has_row ? read_job(row, job_out)
                         : ls_fail(LS_ERR_NOT_FOUND, "job %llu does not exist", (unsigned long long)id);
    }
    ls_statement_finish(row);
    return status;
}

ls_job_state ls_job_store_state(ls_job_store *store, uint64_t id)
{
    ls_statement *row = NULL;
    bool has_row = false;
    ls_job_state state = LS_JOB_STATES;
    if (ls_statement_prepare(store->database, "SELECT record->>'state' FROM jobs WHERE id=?1", &row) ==
        LS_OK) {
        ls_statement_set_i64(row, 1, (int64_t)id);
        if (ls_statement_step(row, &has_row) == LS_OK && has_row) {
            state = ls_job_state_named(ls_statement_text(row, 0));
        }
    }
    ls_statement_finish(row);
    return state;
}

ls_status ls_job_store_used(ls_job_store *store, double since_s, json_t **rows_out)
{
    ls_statement *row = NULL;
    bool has_row = false;
    LS_TRY(ls_statement_prepare(store->database,
                                "SELECT account, user, COUNT(*), TOTAL(record->>'allocated'),"
                                " TOTAL(record->>'idle'), TOTAL(record->>'waiting'), TOTAL(record->>'lost'),"
                                " TOTAL(record->>'energy'), TOTAL(record->>'$.result.stored_bytes'),"
                                " TOTAL(record->>'$.result.sent_bytes'),"
                                " TOTAL(COALESCE(record->>'priced', record->>'allocated'))"
                                " FROM jobs WHERE ended=1 AND COALESCE(record->>'ended_s', 0)>=?1"
                                " GROUP BY account, user ORDER BY account, user",
                                &row));
    ls_statement_set_f64(row, 1, since_s);
    json_t *rows = json_array();
    ls_status status;
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row) {
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "account",
                      ls_statement_text(row, 0), "user", ls_statement_text(row, 1), "jobs",
                      (json_int_t)ls_statement_i64(row, 2), "allocated", (json_int_t)ls_statement_f64(row, 3),
                      "idle", (json_int_t)ls_statement_f64(row, 4), "waiting",
                      (json_int_t)ls_statement_f64(row, 5), "lost", (json_int_t)ls_statement_f64(row, 6),
                      "energy", (json_int_t)ls_statement_f64(row, 7), "stored",
                      (json_int_t)ls_statement_f64(row, 8), "sent", (json_int_t)ls_statement_f64(row, 9),
                      "priced", (json_int_t)ls_statement_f64(row, 10)));
    }
    ls_statement_finish(row);
    if (status != LS_OK) {
        json_decref(rows);
        return status;
    }
    *rows_out = rows;
    return LS_OK;
}

uint64_t ls_job_store_keyed(ls_job_store *store, uint32_t uid, const char *key)
{
    ls_statement *row = NULL;
    bool has_row = false;
    uint64_t id = 0;
    if (ls_statement_prepare(store->database, "SELECT id FROM jobs WHERE uid=?1 AND key=?2 AND key<>''",
                             &row) == LS_OK) {
        ls_statement_set_i64(row, 1, uid);
        ls_statement_set_text(row, 2, key);
        if (ls_statement_step(row, &has_row) == LS_OK && has_row) {
            id = (uint64_t)ls_statement_i64(row, 0);
        }
    }
    ls_statement_finish(row);
    return id;
}

ls_status ls_job_store_journal(ls_job_store *store, uint64_t job, uint64_t after, uint32_t limit,
                               json_t **entries_out)
{
    ls_statement *row = NULL;
    bool has_row = false;
    LS_TRY(ls_statement_prepare(store->database,
                                job ? "SELECT id, job, epoch, time, was, state, cause, text FROM journal"
                                      " WHERE job=?1 AND id>?2 ORDER BY id LIMIT ?3"
                                    : "SELECT id, job, epoch, time, was, state, cause, text FROM journal"
                                      " WHERE id>?2 AND ?1=0 ORDER BY id LIMIT ?3",
                                &row));
    ls_statement_set_i64(row, 1, (int64_t)job);
    ls_statement_set_i64(row, 2, (int64_t)after);
    ls_statement_set_i64(row, 3, limit);
    json_t *entries = json_array();
    ls_status status;
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row) {
        json_array_append_new(
            entries,
            json_pack("{s:I, s:I, s:I, s:f, s:s, s:s, s:s, s:s}", "id", (json_int_t)ls_statement_i64(row, 0),
                      "job", (json_int_t)ls_statement_i64(row, 1), "epoch",
                      (json_int_t)ls_statement_i64(row, 2), "time", ls_statement_f64(row, 3), "from",
                      ls_statement_text(row, 4), "to", ls_statement_text(row, 5), "cause",
                      ls_statement_text(row, 6), "text", ls_statement_text(row, 7)));
    }
    ls_statement_finish(row);
    if (status != LS_OK) {
        json_decref(entries);
        return status;
    }
    *entries_out = entries;
    return LS_OK;
}

/* ---- removing ---- */

/* ?1: ls_job_expiry.kept, ?2: .before_s. */
#define EXPIRED                                                                                              \
    " FROM jobs WHERE ended=1 AND id<(SELECT MAX(id) FROM jobs) AND"                                         \
    " (id<=COALESCE((SELECT id FROM jobs WHERE ended=1 ORDER BY id DESC LIMIT 1 OFFSET ?1), 0) OR"           \
    " (SELECT MAX(time) FROM journal WHERE job=jobs.id)<?2)"

ls_status ls_job_store_expired(ls_job_store *store, const ls_job_expiry *expiry, uint64_t after, uint32_t max,
                               uint64_t *ids_out, uint32_t *count_out)
{
    ls_statement *row = NULL;
    bool has_row = false;
    *count_out = 0;
    LS_TRY(
        ls_statement_prepare(store->database, "SELECT id" EXPIRED " AND id>?4 ORDER BY id LIMIT ?3", &row));
    ls_statement_set_i64(row, 1, (int64_t)expiry->kept);
    ls_statement_set_f64(row, 2, expiry->before_s);
    ls_statement_set_i64(row, 3, max);
    ls_statement_set_i64(row, 4, (int64_t)after);
    ls_status status;
    while ((status = ls_statement_step(row, &has_row)) == LS_OK && has_row && *count_out < max) {
        ids_out[(*count_out)++] = (uint64_t)ls_statement_i64(row, 0);
    }
    ls_statement_finish(row);
    return status;
}

ls_status ls_job_store_expired_sum(ls_job_store *store, const ls_job_expiry *expiry, uint64_t *count_out,
                                   double *newest_s_out)
{
    ls_statement *row = NULL;
    bool has_row = false;
    LS_TRY(ls_statement_prepare(
        store->database,
        "SELECT COUNT(*), COALESCE(MAX((SELECT MAX(time) FROM journal WHERE job=jobs.id)), 0)" EXPIRED,
        &row));
    ls_statement_set_i64(row, 1, (int64_t)expiry->kept);
    ls_statement_set_f64(row, 2, expiry->before_s);
    const ls_status status = ls_statement_step(row, &has_row);
    if (status == LS_OK && has_row) {
        *count_out = (uint64_t)ls_statement_i64(row, 0);
        *newest_s_out = ls_statement_f64(row, 1);
    }
    ls_statement_finish(row);
    return status;
}

static ls_status remove_each(ls_job_store *store, const char *sql, const uint64_t *ids, uint32_t count)
{
    ls_statement *statement = NULL;
    LS_TRY(ls_statement_prepare(store->database, sql, &statement));
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < count && status == LS_OK; i++) {
        ls_statement_set_i64(statement, 1, (int64_t)ids[i]);
        status = ls_statement_do(statement);
    }
    ls_statement_finish(statement);
    return status;
}

ls_status ls_job_store_remove(ls_job_store *store, const uint64_t *ids, uint32_t count)
{
    LS_TRY(ls_database_begin(store->database));
    ls_status status = remove_each(store, "DELETE FROM journal WHERE job=?1", ids, count);
    if (status == LS_OK) {
        status = remove_each(store, "DELETE FROM jobs WHERE id=?1 AND ended=1", ids, count);
    }
    if (status == LS_OK) {
        status = ls_database_run(store->database, "DELETE FROM sweeps WHERE NOT EXISTS"
                                                  " (SELECT 1 FROM jobs WHERE id BETWEEN first AND last)");
    }
    if (status != LS_OK) {
        ls_database_roll_back(store->database);
        return status;
    }
    return ls_database_commit(store->database);
}

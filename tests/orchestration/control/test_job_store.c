// SPDX-License-Identifier: Apache-2.0
/* The tables of the store: databases of older versions open, and what is written is read again. */
#include "orchestration/control/controller_world.h"

#include "env/database.h"
#include "orchestration/control/job_store.h"

#include <unistd.h>

static char folder[64], path[96];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/lockstep-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/lockstep.db", folder);
    return set_up(state);
}

static int remove_folder(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
    rmdir(folder);
    return tear_down(state);
}

/* Tables and rows as the version before keys and upkeep wrote them. */
static const char version_2[] =
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, state TEXT NOT NULL, ended INTEGER NOT NULL, account TEXT NOT "
    "NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, user TEXT NOT NULL, run_dir TEXT NOT NULL, request "
    "TEXT "
    "NOT NULL, record TEXT NOT NULL);"
    "CREATE TABLE journal(id INTEGER PRIMARY KEY, job INTEGER NOT NULL, epoch INTEGER NOT NULL, time REAL "
    "NOT "
    "NULL, was TEXT NOT NULL, state TEXT NOT NULL, cause TEXT NOT NULL, text TEXT NOT NULL);"
    "CREATE TABLE accounts(name TEXT PRIMARY KEY, weight INTEGER NOT NULL, quota INTEGER NOT NULL, borrow "
    "INTEGER NOT NULL, lend INTEGER NOT NULL, allocated INTEGER NOT NULL, idle INTEGER NOT NULL, waiting "
    "INTEGER "
    "NOT NULL, lost INTEGER NOT NULL, jobs INTEGER NOT NULL, share_devices INTEGER NOT NULL, share_cpus "
    "INTEGER "
    "NOT NULL, share_memory INTEGER NOT NULL, share_at INTEGER NOT NULL, users TEXT NOT NULL DEFAULT '', "
    "priority_max INTEGER NOT NULL DEFAULT 1);"
    "INSERT INTO jobs VALUES(7, 'QUEUED', 0, 'ann', 1000, 1000, 'ann', '', "
    "'{\"file\":\"job: {command: [run]}\",\"directory\":\"/tmp\"}', "
    "'{\"state\":\"QUEUED\",\"priority\":\"normal\",\"ranks\":1,\"submitted_s\":1000.0}');"
    "PRAGMA user_version=2;";

static void write_turn(ls_job_store *store)
{
    ls_turn value;
    ls_controller_turn(w.controller, &value);
    assert_int_equal(ls_job_store_write(store, &value), LS_OK);
    ls_controller_turn_done(w.controller);
}

static void ask(ls_verb verb, uint32_t uid, const char *arguments)
{
    json_t *object = NULL;
    assert_int_equal(ls_json_parse(arguments, strlen(arguments), "arguments", &object), LS_OK);
    const ls_caller caller = {.uid = uid, .gid = uid, .user = uid ? "ann" : "root", .is_admin = uid == 0};
    ls_controller_call(w.controller, &caller, verb, object, take_reply, &w);
    json_decref(object);
}

/* The daemon has died and reads what is on the disk. */
static void reopen(ls_job_store **store)
{
    uint64_t next = 0;
    ls_job_store_close(*store);
    ls_controller_destroy(w.controller);
    assert_int_equal(create(&w.controller), LS_OK);
    assert_int_equal(ls_job_store_open(path, store), LS_OK);
    assert_int_equal(ls_job_store_restore(*store, 100, w.controller, &next), LS_OK);
    ls_controller_restored(w.controller, next);
}

static void older_database_opens_and_learns(void **state)
{
    (void)state;
    ls_database *old = NULL;
    ls_job_store *store = NULL;
    assert_int_equal(ls_database_open(path, &old), LS_OK);
    assert_int_equal(ls_database_run(old, version_2), LS_OK);
    ls_database_close(old);
    reopen(&store);
    assert_int_equal(job(7)->state, LS_JOB_QUEUED);

    ask(LS_VERB_PAUSE, 0, "{\"reason\": \"disks\"}");
    ask(LS_VERB_CHANGE, 1000, "{\"job\": 7, \"time_limit_s\": 90, \"account\": \"ann.2\"}");
    assert_int_equal(w.replies, 0);
    ask(LS_VERB_SUBMIT, 1000,
        "{\"file\": \"job: {command: [run]}\", \"directory\": \"/tmp\", \"key\": \"mine\"}");
    write_turn(store);
    assert_int_equal(w.replies, 3);
    assert_int_equal(w.status, 201);
    assert_int_equal(ls_job_store_keyed(store, 1000, "mine"), 8);
    assert_int_equal(ls_job_store_keyed(store, 1001, "mine"), 0);
    assert_int_equal(ls_job_store_keyed(store, 1000, ""), 0);
    assert_int_equal(ls_job_store_state(store, 8), job(8)->state);
    assert_int_equal(ls_job_store_state(store, 99), LS_JOB_STATES);

    reopen(&store);
    assert_float_equal(job(7)->spec.time_limit_s, 90.0, 0.0);
    assert_string_equal(job(7)->account, "ann.2");
    assert_string_equal(job(8)->spec.key, "mine");
    write_turn(store);
    assert_int_equal(job(7)->state, LS_JOB_QUEUED); /* paused still */
    assert_int_equal(job(8)->state, LS_JOB_QUEUED);
    ask(LS_VERB_RESUME, 0, "{}");
    write_turn(store);
    assert_int_equal(job(7)->state, LS_JOB_STARTING);
    ls_job_store_close(store);
}

static size_t count_used(ls_job_store *store, double since_s, json_int_t *waiting_out)
{
    json_t *rows = NULL;
    assert_int_equal(ls_job_store_used(store, since_s, &rows), LS_OK);
    const size_t count = json_array_size(rows);
    *waiting_out = json_integer_value(json_object_get(json_array_get(rows, 0), "waiting"));
    json_decref(rows);
    return count;
}

static void used_counts_jobs_that_ended_since(void **state)
{
    (void)state;
    ls_job_store *store = NULL;
    json_int_t waiting = 0;
    reopen(&store);
    ask(LS_VERB_PAUSE, 0, "{}");
    ask(LS_VERB_SUBMIT, 1000, "{\"file\": \"job: {command: [run]}\", \"directory\": \"/tmp\"}");
    write_turn(store);
    assert_int_equal(count_used(store, 0.0, &waiting), 0); /* it has not ended */
    w.now_s += 60.0;
    ask(LS_VERB_CANCEL, 1000, "{\"job\": 1}");
    write_turn(store);
    assert_int_equal(job(1)->state, LS_JOB_CANCELLED);
    assert_int_equal(count_used(store, w.now_s, &waiting), 1);
    assert_int_equal(waiting, 60000);
    assert_int_equal(count_used(store, w.now_s + 1.0, &waiting), 0);
    ls_job_store_close(store);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(older_database_opens_and_learns),
        CASE(used_counts_jobs_that_ended_since),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

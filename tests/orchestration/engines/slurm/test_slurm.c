// SPDX-License-Identifier: Apache-2.0
/*
 * Reading what Slurm's commands print, and writing their arguments. The texts are from Slurm 22.05.
 */
#include "test.h"

#include "orchestration/engines/job_files.h"
#include "orchestration/engines/slurm/config.h"
#include "orchestration/engines/slurm/script.h"
#include "orchestration/engines/slurm/slurm_internal.h"
#include "orchestration/engines/slurm/squeue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char squeue_text[] =
    "2_3                 |1000        |PENDING       |Resources           |1795390244 |0     |0       |1    "
    "|               |lockstep:00000000000000ab:8:1   |\n"
    "1                   |0           |PENDING       |BeginTime           |N/A        |1     |19200   |2-4  "
    "|a,b            |lockstep:00000000000000ab:7:2   |\n"
    "5                   |1000        |FAILED        |NonZeroExitCode     |1795390233 |0     |9       |1    "
    "|n[01-03,7],x1  |(null)   |\n"
    "6                   |1000        |COMPLETING    |None                |1795390233 |0     |0       |1    "
    "|n[|   |\n";

static void slurm_rows_read(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_slurm_row *rows = NULL;
    size_t count = 0;
    assert_int_equal(ls_slurm_rows_read(&arena, squeue_text, &rows, &count), LS_OK);
    assert_int_equal(count, 4);
    assert_string_equal(rows[0].ref, "2_3");
    assert_int_equal(rows[0].state, LS_SLURM_WAITS);
    assert_int_equal(rows[0].uid, 1000);
    assert_true(rows[0].start_s == 1795390244);
    assert_int_equal(rows[1].restarts, 1);
    assert_int_equal(rows[1].exit_code, 75);
    assert_true(rows[1].start_s == 0);
    assert_int_equal(rows[1].nodes, 0);
    assert_int_equal(rows[2].state, LS_SLURM_DONE);
    assert_int_equal(rows[2].exit_code, 128 + 9);
    assert_int_equal(rows[3].state, LS_SLURM_ENDS);
    static const char *const nodes[] = {"", "a", "n01", "n"};
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rows[i].node, nodes[i]);
    }
    uint64_t job = 0;
    uint32_t epoch = 0;
    assert_true(ls_slurm_comment_read(rows[1].comment, 0xab, &job, &epoch));
    assert_int_equal(job, 7);
    assert_int_equal(epoch, 2);
    assert_false(ls_slurm_comment_read(rows[1].comment, 0xac, &job, &epoch));
    assert_false(ls_slurm_comment_read(rows[2].comment, 0xab, &job, &epoch));
    assert_string_equal(ls_slurm_comment(&arena, 0xab, 7, 2), rows[1].comment);
    ls_arena_release(&arena);
}

static void slurm_rows_read_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"squeue: error: no\n", "1|0|RUNNING|None|N/A|zero|0|1|n|c|\n",
                                      "1|nobody|RUNNING|None|N/A|0|0|1|n|c|\n",
                                      "1|0|RUNNING|None|N/A|0|-1|1|n|c|\n",
                                      "|0|RUNNING|None|N/A|0|0|1|n|c|\n"};
    ls_arena arena = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_slurm_row *rows = NULL;
        size_t count = 42;
        assert_int_equal(ls_slurm_rows_read(&arena, bad[i], &rows, &count), LS_ERR_DATA);
        assert_int_equal(count, 42);
    }
    ls_slurm_row *rows = NULL;
    size_t count = 42;
    assert_int_equal(ls_slurm_rows_read(&arena, "", &rows, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_arena_release(&arena);
}

static void slurm_reasons(void **state)
{
    (void)state;
    assert_string_equal(ls_slurm_reason_stage("Resources"), "gang");
    assert_string_equal(ls_slurm_reason_stage("AssocGrpGRES"), "quota");
    assert_string_equal(ls_slurm_reason_stage("QOSMaxGRESPerUser"), "quota");
    assert_string_equal(ls_slurm_reason_stage("DependencyNeverSatisfied"), "impossible");
    assert_string_equal(ls_slurm_reason_stage("Dependency"), "dependency");
    assert_string_equal(ls_slurm_reason_stage("ReqNodeNotAvail, UnavailableNodes:n[0-1]"), "placement");
    assert_string_equal(ls_slurm_reason_stage("a word of a later version"), "gang");
    ls_arena arena = {0};
    assert_string_equal(ls_slurm_reason_text(&arena, "Resources"),
                        "Resources: it is next, but not enough devices are free");
    assert_true(strstr(ls_slurm_reason_text(&arena, "a word of a later version"),
                       "a reason that only Slurm explains"));
    ls_arena_release(&arena);
}

static void slurm_cluster_read(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_slurm_cluster cluster;
    assert_int_equal(ls_slurm_cluster_read(
                         &arena,
                         "n0|16|16384|gpu:h100:8(S:0-1)|idle|high\nn0|16|16384|gpu:h100:8(S:0-1)|idle|low\n"
                         "n1|16|2000+|(null)|down*|low\nn2|8|2000|nic:2,gpu:4|mixed|low\n",
                         &cluster),
                     LS_OK);
    assert_int_equal(cluster.node_count, 3);
    assert_int_equal(cluster.partition_count, 2);
    assert_int_equal(cluster.nodes[0].gpus, 8);
    assert_string_equal(cluster.nodes[0].gpu_kind, "h100");
    assert_false(cluster.nodes[1].is_up);
    assert_int_equal(cluster.nodes[1].gpus, 0);
    assert_int_equal(cluster.nodes[1].memory_mib, 2000);
    assert_int_equal(cluster.nodes[2].gpus, 4);
    assert_string_equal(cluster.nodes[2].gpu_kind, "gpu");
    assert_int_equal(ls_slurm_cluster_read(&arena, "", &cluster), LS_ERR_DATA);
    assert_int_equal(ls_slurm_cluster_read(&arena, "n0|sixteen|1|x|idle|low\n", &cluster), LS_ERR_DATA);
    ls_arena_release(&arena);
}

static void slurm_shape(void **state)
{
    (void)state;
    const ls_slurm_site site = {.node_devices = 8, .has_gpus = true};
    ls_slurm_shape shape = {0};
    assert_int_equal(ls_slurm_shape_of(&site, 3, 0, &shape), LS_OK);
    assert_int_equal(shape.nodes, 1);
    assert_int_equal(ls_slurm_shape_of(&site, 12, 0, &shape), LS_OK);
    assert_int_equal(shape.nodes, 2);
    assert_int_equal(shape.ranks_per_node, 6);
    assert_int_equal(ls_slurm_shape_of(&site, 12, 4, &shape), LS_OK);
    assert_int_equal(shape.nodes, 3);
    assert_int_equal(ls_slurm_shape_of(&site, 13, 0, &shape), LS_ERR_INVALID);
    assert_true(strstr(ls_error_text(), "12 or 14 ranks can"));
    assert_int_equal(ls_slurm_shape_of(&site, 12, 9, &shape), LS_ERR_INVALID);
    assert_int_equal(ls_slurm_shape_of(&site, 12, 5, &shape), LS_ERR_INVALID);
    assert_int_equal(shape.nodes, 3);
}

static void slurm_version(void **state)
{
    (void)state;
    ls_slurm_version version = {0};
    assert_int_equal(ls_slurm_version_parse("slurm-wlm 22.05.8\n", &version), LS_OK);
    assert_int_equal(version.major, 22);
    assert_int_equal(version.minor, 5);
    assert_int_equal(ls_slurm_version_parse("slurm 25.11.2-rc1", &version), LS_OK);
    assert_int_equal(version.minor, 11);
    assert_int_equal(ls_slurm_version_parse("slurm", &version), LS_ERR_DATA);
    assert_int_equal(version.major, 25);
}

static void slurm_history_read(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_slurm_row *rows = NULL;
    size_t count = 0;
    ls_slurm_history_read(
        &arena,
        "1|1000|CANCELLED by 0|0:0|1795316166|1795316172|n7\n2_3|0|FAILED|7:0|1795316253|1795316254|n[2,4]\n"
        "3|0|RUNNING|0:0|1795316253|Unknown|n3\n4|0|FAILED|0:9|Unknown|Unknown|None assigned\nno row\n"
        "5|0|FAILED|x|1|2|n1\n",
        &rows, &count);
    assert_int_equal(count, 4);
    assert_int_equal(rows[0].state, LS_SLURM_CANCELLED);
    assert_int_equal(rows[0].uid, 1000);
    assert_true(rows[0].start_s == 1795316166 && rows[0].end_s == 1795316172);
    assert_string_equal(rows[1].ref, "2_3");
    assert_string_equal(rows[1].node, "n2");
    assert_int_equal(rows[1].exit_code, 7);
    assert_int_equal(rows[2].state, LS_SLURM_RUNS);
    assert_true(rows[2].end_s == 0);
    assert_int_equal(rows[3].exit_code, 128 + 9);
    ls_slurm_history_read(&arena, "", &rows, &count);
    assert_int_equal(count, 0);
    ls_arena_release(&arena);
}

static void slurm_order(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_slurm_site site = {.home = "/h"};
    assert_string_equal(ls_slurm_order(&arena, &site, LS_PRIORITY_NORMAL), "nice=1000");
    site.partitions[LS_PRIORITY_HIGH] = "high";
    assert_string_equal(ls_slurm_order(&arena, &site, LS_PRIORITY_HIGH), "partition=high");
    ls_arena_release(&arena);
}

/* A task of an array that an older version submitted: its file does not tell which job Slurm's
 * record is named after. */
static void slurm_ref_without_first(void **state)
{
    (void)state;
    char home[] = "/tmp/lockstep-test-slurm-XXXXXX";
    assert_non_null(mkdtemp(home));
    ls_arena arena = {0};
    ls_slurm_engine engine = {.site = {.home = home, .home_id = 0xab}};
    ls_job jobs[] = {{.id = 4, .uid = getuid(), .gid = getgid(), .spec = {.group = "sweep-4"}},
                     {.id = 7, .uid = getuid(), .gid = getgid(), .spec = {.group = "sweep-4"}},
                     {.id = 5, .uid = getuid(), .gid = getgid(), .spec = {.group = "other"}}};
    ls_slurm_entry entries[] = {{.job = &jobs[0], .id = 4, .epoch = 1},
                                {.job = &jobs[1], .id = 7, .epoch = 2, .first = 7},
                                {.job = &jobs[2], .id = 5, .epoch = 1}};
    ls_slurm_entry *task = &entries[1];
    engine.entries = &entries[0];
    entries[0].next = task;
    task->next = &entries[2];
    assert_int_equal(ls_jobs_folder_make(home), LS_OK);
    const char *folder = ls_arena_printf(&arena, "%s/jobs/7", home);
    assert_int_equal(ls_job_folder_make(folder, getuid(), getgid()), LS_OK);
    const char *path = ls_arena_printf(&arena, "%s/slurm-ref-2", folder);
    assert_int_equal(ls_slurm_write(&jobs[1], path, "12_3 1\n"), LS_OK);
    assert_true(ls_slurm_read_ref(&engine, task));
    assert_string_equal(task->ref, "12_3");
    assert_int_equal(task->first, 0);

    ls_slurm_row row = {.ref = "12_3", .uid = (uint32_t)getuid()};
    static const char *const others[] = {
        "lockstep:00000000000000ac:4:1", /* of another queue */
        "lockstep:00000000000000ab:5:1", /* not of its sweep */
        "lockstep:00000000000000ab:6:1", /* then it would be at most task 1 */
        "lockstep:00000000000000ab:8:1", /* was submitted after it */
        "lockstep:00000000000000ab:0:1", "(null)",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        row.comment = others[i];
        assert_false(ls_slurm_is_its_own(&engine, task, &row));
        assert_int_equal(task->first, 0);
    }
    row.comment = "lockstep:00000000000000ab:4:1";
    row.uid++;
    assert_false(ls_slurm_is_its_own(&engine, task, &row));
    row.uid--;
    assert_true(ls_slurm_is_its_own(&engine, task, &row));
    task->first = 0; /* a restarted daemon reads it */
    assert_true(ls_slurm_read_ref(&engine, task));
    assert_int_equal(task->first, 4);
    assert_int_equal(task->restarts, 1);
    /* once it is known, no other name counts, even after it has ended */
    row.comment = "lockstep:00000000000000ab:3:1";
    assert_false(ls_slurm_is_its_own(&engine, task, &row));

    assert_int_equal(ls_slurm_write(&jobs[1], path, "12 0\n"), LS_OK); /* no array: its own name */
    assert_true(ls_slurm_read_ref(&engine, task));
    assert_int_equal(task->first, 7);
    assert_int_equal(ls_slurm_write(&jobs[1], path, "12\n"), LS_OK);
    assert_false(ls_slurm_read_ref(&engine, task));
    const char *const made[] = {path, folder, ls_arena_printf(&arena, "%s/jobs", home), home};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        assert_int_equal(remove(made[i]), 0);
    }
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slurm_rows_read),
        cmocka_unit_test(slurm_rows_read_refuses),
        cmocka_unit_test(slurm_reasons),
        cmocka_unit_test(slurm_cluster_read),
        cmocka_unit_test(slurm_shape),
        cmocka_unit_test(slurm_version),
        cmocka_unit_test(slurm_history_read),
        cmocka_unit_test(slurm_order),
        cmocka_unit_test(slurm_ref_without_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

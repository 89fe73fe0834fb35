// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "orchestration/simulate/cluster.h"
#include "orchestration/simulate/trace.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static ls_status parse(const char *text, ls_trace_format format, ls_trace *trace)
{
    return ls_trace_parse(&arena, text, strlen(text), "t.csv", format, trace);
}

/* The text is refused, with these words in the error. */
static void refused(const char *text, const char *words)
{
    ls_trace trace = {.name = "untouched"};
    ls_error_clear();
    assert_int_equal(parse(text, LS_TRACE_AUTO, &trace), LS_ERR_DATA);
    if (!strstr(ls_error_text(), words)) {
        fail_msg("'%s' is not in: %s", words, ls_error_text());
    }
    assert_string_equal(trace.name, "untouched");
}

static void trace_parse_own_has_all_columns(void **state)
{
    (void)state;
    ls_trace t;
    assert_int_equal(
        parse("job,submit_s,duration_s,gpus,min_gpus,max_gpus,account,priority,limit_s,expected_s,"
              "preemptible,spot,gpus_per_node,level,kind,cpus_per_gpu,memory_gib_per_gpu,"
              "serial_fraction\n"
              "b,100.5,60,4,2,8,vision,high,3600,55.5,0,1,4,leaf,h100,12,64,0.1\n"
              ",40,1.25,1,,,,,,,,,,,,,,\n",
              LS_TRACE_AUTO, &t),
        LS_OK);
    assert_int_equal(t.format, LS_TRACE_OWN);
    assert_int_equal(t.job_count, 2);
    const ls_trace_job *first = &t.jobs[0], *second = &t.jobs[1];
    assert_string_equal(first->name, "2");
    assert_int_equal(first->submit_ms, 0);
    assert_int_equal(first->run_ms, 1250);
    assert_int_equal(first->min_gpus, 1);
    assert_int_equal(first->max_gpus, 1);
    assert_int_equal(first->priority, 1);
    assert_true(first->preemptible && !first->spot);
    assert_int_equal(first->required, LS_LEVEL_CLUSTER);
    assert_string_equal(t.accounts[first->account], "default");
    assert_string_equal(second->name, "b");
    assert_int_equal(second->submit_ms, 60500);
    assert_int_equal(second->limit_ms, 3600000);
    assert_int_equal(second->expected_ms, 55500);
    assert_int_equal(second->min_gpus, 2);
    assert_int_equal(second->max_gpus, 8);
    assert_int_equal(second->priority, 2);
    assert_true(!second->preemptible && second->spot);
    assert_int_equal(second->gpus_per_node, 4);
    assert_int_equal(second->required, LS_LEVEL_LEAF);
    assert_string_equal(second->kind, "h100");
    assert_int_equal(second->cpus_per_gpu, 12);
    assert_int_equal(second->memory_mib_per_gpu, 65536);
    assert_string_equal(t.accounts[second->account], "vision");
}

static void trace_parse_philly_sorts_by_time_and_keeps_ties(void **state)
{
    (void)state;
    ls_trace t;
    assert_int_equal(parse("timestamp,duration,num_gpus,gpu_time,cluster\n"
                           "2016-03-01 00:00:00,10.0,2,20.0,b\n"
                           "2016-02-28 23:59:59,66.0,1,66.0,a\n"
                           "2016-03-01 00:00:00,11.0,4,44.0,a\n"
                           "2016-02-29 00:00:00,0.0,4,0.0,a\n",
                           LS_TRACE_AUTO, &t),
                     LS_OK);
    assert_int_equal(t.format, LS_TRACE_PHILLY);
    assert_int_equal(t.job_count, 3);
    assert_int_equal(t.left_out, 1);
    assert_int_equal(t.jobs[0].run_ms, 66000);
    assert_int_equal(t.jobs[1].submit_ms, 86401000); /* 2016 has a 29 February */
    assert_int_equal(t.jobs[1].gpus, 2);
    assert_int_equal(t.jobs[2].gpus, 4);
    assert_int_equal(t.account_count, 2);
    assert_int_equal(t.jobs[0].account, t.jobs[2].account);
}

static void trace_parse_alibaba_leaves_out_what_needs_no_gpu(void **state)
{
    (void)state;
    ls_trace t;
    assert_int_equal(
        parse(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
            "scheduled_time\n"
            "p0,12000,16384,1,460,,LS,Running,100,500,110.0\n"
            "p1,6000,12288,0,0,,LS,Running,100,500,110.0\n"
            "p2,16000,65536,2,1000,V100M32,BE,Succeeded,90,500,\n"
            "p3,16000,65536,2,1000,T4|P100,Burstable,Pending,95,95,\n",
            LS_TRACE_AUTO, &t),
        LS_OK);
    assert_int_equal(t.format, LS_TRACE_ALIBABA);
    assert_int_equal(t.job_count, 2);
    assert_int_equal(t.left_out, 2);
    assert_string_equal(t.jobs[0].name, "p2");
    assert_int_equal(t.jobs[0].priority, 0);
    assert_string_equal(t.jobs[0].kind, "V100M32");
    assert_int_equal(t.jobs[0].run_ms, 410000);
    assert_int_equal(t.jobs[0].cpus_per_gpu, 8);
    assert_int_equal(t.jobs[1].submit_ms, 10000);
    assert_int_equal(t.jobs[1].run_ms, 390000);
    assert_int_equal(t.jobs[1].priority, 2);
}

static void trace_parse_names_the_line_of_a_bad_row(void **state)
{
    (void)state;
    refused("a,b\n1,2\n", "do not match any known format");
    refused("submit_s,duration_s,gpus\n", "has no job that can be simulated");
    refused("submit_s,duration_s,gpus\n0,1,1\n5,1,0\n", "t.csv:3: gpus");
    refused("submit_s,duration_s,gpus\n0,1,1\n5,-1,1\n", "t.csv:3: duration_s");
    refused("submit_s,duration_s,gpus\n0,1,\n", "t.csv:2: the column gpus is blank");
    refused("submit_s,duration_s,gpus\n,1,1\n", "t.csv:2: the columns submit_s and duration_s");
    refused("submit_s,duration_s,gpus\n0,nan,1\n", "t.csv:2");
    refused("submit_s,duration_s,gpus\n0,1e300,1\n", "t.csv:2");
    refused("submit_s,duration_s,gpus,priorty\n0,1,1,low\n", "column 'priorty'");
    refused("submit_s,duration_s,gpus,priority\n0,1,1,urgent\n", "allowed is low, normal or high");
    refused("submit_s,duration_s,gpus,level\n0,1,1,room\n", "t.csv:2: column 'level'");
    refused("submit_s,duration_s,gpus,min_gpus\n0,1,1,2\n", "min_gpus <= gpus");
    refused("timestamp,duration,num_gpus,cluster\n2017-13-01 00:00:00,1,1,a\n", "t.csv:2: timestamp");
    refused("timestamp,duration,num_gpus,cluster\n2017-1-1 00:00:00,1,1,a\n", "t.csv:2: timestamp");
    ls_trace t;
    assert_int_equal(parse("submit_s,duration_s,gpus\n0,1,1\n", LS_TRACE_PHILLY, &t), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "must have a column 'timestamp'"));
}

static void trace_job_run_ms_follows_amdahl(void **state)
{
    (void)state;
    const ls_trace_job job = {.run_ms = 1000, .gpus = 4, .serial_fraction = 0.0};
    assert_int_equal(ls_trace_job_run_ms(&job, 4, 1), 1000);
    assert_int_equal(ls_trace_job_run_ms(&job, 2, 1), 2000);
    assert_int_equal(ls_trace_job_run_ms(&job, 8, 2), 500);
    const ls_trace_job half = {.run_ms = 1000, .gpus = 1, .serial_fraction = 0.5};
    assert_int_equal(ls_trace_job_run_ms(&half, 2, 1), 750);
    const ls_trace_job all = {.run_ms = 1000, .gpus = 1, .serial_fraction = 1.0};
    assert_int_equal(ls_trace_job_run_ms(&all, 64, 1), 1000);
}

/* A table of measured speeds: sizes beyond its edges count as the edge, and a placement that can't
 * run (0) as the job's own time. */
static void trace_job_run_ms_reads_the_table(void **state)
{
    (void)state;
    const uint64_t run_ms[] = {800, 0, 400, 500, 300, 350}; /* 1 to 3 GPUs on 1 or 2 nodes */
    const ls_speed speed = {.gpus_most = 3, .nodes_most = 2, .run_ms = run_ms};
    const ls_trace_job job = {.run_ms = 123, .gpus = 2, .speed = &speed};
    assert_int_equal(ls_trace_job_run_ms(&job, 1, 1), 800);
    assert_int_equal(ls_trace_job_run_ms(&job, 1, 2), 123);
    assert_int_equal(ls_trace_job_run_ms(&job, 2, 2), 500);
    assert_int_equal(ls_trace_job_run_ms(&job, 9, 5), 350);
}

/* ---- clusters ---- */

static ls_status read_cluster(const char *text, ls_policy_cluster *cluster)
{
    ls_document doc = {0};
    const ls_status parsed = ls_yaml_parse(text, strlen(text), "c.yaml", &doc);
    if (parsed != LS_OK) {
        return parsed;
    }
    const ls_status status = ls_cluster_read(&arena, &doc, cluster);
    ls_document_release(&doc);
    return status;
}

static void cluster_parse_product(void **state)
{
    (void)state;
    ls_policy_cluster c;
    assert_int_equal(ls_cluster_parse(&arena, "64x8", &c), LS_OK);
    assert_int_equal(c.node_count, 64);
    assert_int_equal(ls_cluster_devices(&c), 512);
    assert_int_equal(c.nodes[15].leaf, 0);
    assert_int_equal(c.nodes[16].leaf, 1);
    static const char *const bad[] = {"0x8", "8x0", "8x65", "131073x1", "99999999999x8"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_cluster_parse(&arena, bad[i], &c), LS_ERR_INVALID);
    }
    assert_int_equal(ls_cluster_parse(&arena, "8x", &c), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_cluster_parse(&arena, "no/such.yaml", &c), LS_ERR_NOT_FOUND);
}

static void cluster_read_groups(void **state)
{
    (void)state;
    ls_policy_cluster c;
    assert_int_equal(
        read_cluster("nodes:\n"
                     "  - {names: 'h[008-011]', gpus: 8, kind: h100, island: 4, nodes_per_leaf: 2, "
                     "leaves_per_spine: 1, cpus: 112, memory: 2TiB}\n"
                     "  - {names: a7, gpus: 4, kind: a100, leaf: x, spine: s}\n"
                     "  - {names: 'a[8-9]z', gpus: 4, kind: a100, leaf: x, spot: true}\n",
                     &c),
        LS_OK);
    assert_int_equal(c.node_count, 7);
    assert_int_equal(c.kind_count, 2);
    assert_int_equal(ls_cluster_kind(&c, "a100"), 1);
    assert_int_equal(ls_cluster_kind(&c, "b200"), -1);
    assert_string_equal(c.nodes[0].name, "h008");
    assert_string_equal(c.nodes[3].name, "h011");
    assert_string_equal(c.nodes[6].name, "a9z");
    assert_int_equal(c.nodes[1].leaf, 0);
    assert_int_equal(c.nodes[2].leaf, 1);
    assert_int_equal(c.nodes[0].spine, 0);
    assert_int_equal(c.nodes[2].spine, 1);
    assert_int_equal(c.nodes[4].leaf, c.nodes[6].leaf);
    assert_int_equal(c.nodes[4].spine, c.nodes[6].spine);
    assert_int_equal(c.nodes[4].spine, 2);
    assert_int_equal(c.nodes[0].island_devices, 4);
    assert_int_equal(c.nodes[0].memory_mib, 2 << 20);
    assert_int_equal(c.nodes[4].island_devices, 4);
    assert_int_equal(c.nodes[4].cpus, 32);
    assert_true(c.nodes[6].spot && !c.nodes[4].spot);
}

static void cluster_read_refuses_what_is_no_cluster(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "nodes: []\n",
        "nodes: {names: a}\n",
        "a: 1\n",
        "nodes:\n  - {names: a}\nmore: 1\n",
        "nodes:\n  - {gpus: 8}\n",
        "nodes:\n  - {names: 'n[3-1]'}\n",
        "nodes:\n  - {names: 'n[1-2'}\n",
        "nodes:\n  - {names: 'n[1-2][3-4]'}\n",
        "nodes:\n  - {names: '<b>'}\n",
        "nodes:\n  - {names: 'n[0-200000]'}\n",
        "nodes:\n  - {names: n, gpus: 65}\n",
        "nodes:\n  - {names: n, gpus: 8, island: 3}\n",
        "nodes:\n  - {names: n, color: red}\n",
        "nodes:\n  - {names: a, leaf: x, spine: s}\n  - {names: b, leaf: x, spine: t}\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_policy_cluster c = {.node_count = 77};
        ls_error_clear();
        if (read_cluster(bad[i], &c) != LS_ERR_INVALID) {
            fail_msg("not refused: %s", bad[i]);
        }
        assert_int_equal(c.node_count, 77);
        assert_non_null(strstr(ls_error_text(), "c.yaml"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_parse_own_has_all_columns),
        cmocka_unit_test(trace_parse_philly_sorts_by_time_and_keeps_ties),
        cmocka_unit_test(trace_parse_alibaba_leaves_out_what_needs_no_gpu),
        cmocka_unit_test(trace_parse_names_the_line_of_a_bad_row),
        cmocka_unit_test(trace_job_run_ms_follows_amdahl),
        cmocka_unit_test(trace_job_run_ms_reads_the_table),
        cmocka_unit_test(cluster_parse_product),
        cmocka_unit_test(cluster_read_groups),
        cmocka_unit_test(cluster_read_refuses_what_is_no_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}

// SPDX-License-Identifier: Apache-2.0
/* What launchers say in the environment. */
#include "test.h"

#include "comm/group/environment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int clear(void **state)
{
    (void)state;
    return clearenv();
}

static void set(const char *const *pairs)
{
    clearenv();
    for (; pairs[0]; pairs += 2) {
        assert_int_equal(setenv(pairs[0], pairs[1], 1), 0);
    }
}

static void assert_reads(const char *const *pairs, ls_launcher launcher, const ls_comm_options *expected)
{
    ls_comm_options options = {.rank = 77};
    ls_launcher found = LS_LAUNCHER_NONE;
    set(pairs);
    if (ls_environment_read(&options, &found, NULL) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    assert_int_equal(found, launcher);
    assert_int_equal(options.rank, expected->rank);
    assert_int_equal(options.size, expected->size);
    assert_int_equal(options.local_rank, expected->local_rank);
    assert_int_equal(options.local_size, expected->local_size);
    assert_string_equal(options.coordinator, expected->coordinator);
    assert_int_equal(options.serve_store, expected->serve_store);
    assert_string_equal(options.token, expected->token);
    assert_int_equal(options.epoch, expected->epoch);
}

static void assert_refuses(const char *const *pairs, const char *says, const char *says_too)
{
    ls_comm_options options = {.rank = 77};
    set(pairs);
    assert_int_equal(ls_comm_options_from_environment(&options), LS_ERR_INVALID);
    if (!strstr(ls_error_text(), says) || !strstr(ls_error_text(), says_too)) {
        fail_msg("'%s' does not say '%s' and '%s'", ls_error_text(), says, says_too);
    }
    assert_int_equal(options.rank, 77);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void environment_without_launcher_is_one_rank(void **state)
{
    (void)state;
    assert_reads(ENV(NULL), LS_LAUNCHER_NONE, &(ls_comm_options){.size = 1, .local_size = 1});
    /* Incomplete sets of other launchers are none: a batch script of Slurm has these. */
    assert_reads(
        ENV("RANK", "1", "WORLD_SIZE", "2", "SLURM_PROCID", "0", "SLURM_NTASKS", "4", "SLURM_JOB_ID", "7"),
        LS_LAUNCHER_NONE, &(ls_comm_options){.size = 1, .local_size = 1});
}

static void environment_of_lockstep(void **state)
{
    (void)state;
    assert_reads(ENV("LOCKSTEP_RANK", "5", "LOCKSTEP_SIZE", "8", "LOCKSTEP_COORDINATOR", "10.0.0.1:29500",
                     "LOCKSTEP_LOCAL_RANK", "1", "LOCKSTEP_LOCAL_SIZE", "4", "LOCKSTEP_TOKEN",
                     "0123456789abcdefABCDEF", "LOCKSTEP_EPOCH", "18446744073709551615", "RANK", "nonsense"),
                 LS_LAUNCHER_LOCKSTEP,
                 &(ls_comm_options){.rank = 5,
                                    .size = 8,
                                    .local_rank = 1,
                                    .local_size = 4,
                                    .coordinator = "10.0.0.1:29500",
                                    .token = "0123456789abcdefABCDEF",
                                    .epoch = UINT64_MAX});
    assert_refuses(ENV("LOCKSTEP_RANK", "0", "LOCKSTEP_SIZE", "2"), "LOCKSTEP_COORDINATOR is not set",
                   "all three");
    assert_refuses(ENV("LOCKSTEP_SIZE", "2"), "LOCKSTEP_RANK is not set", "all three");
}

static void environment_names_variable_value_and_range(void **state)
{
    (void)state;
    const char *const address = "node1:29500";
#define WITH(name, value)                                                                                    \
    ENV("LOCKSTEP_RANK", "1", "LOCKSTEP_SIZE", "4", "LOCKSTEP_COORDINATOR", address, "LOCKSTEP_LOCAL_SIZE",  \
        "2", name, value)
    assert_refuses(WITH("LOCKSTEP_RANK", "4"), "LOCKSTEP_RANK is '4'", "from 0 to 3");
    assert_refuses(WITH("LOCKSTEP_RANK", "-1"), "LOCKSTEP_RANK is '-1'", "from 0 to 3");
    assert_refuses(WITH("LOCKSTEP_RANK", "0x1"), "LOCKSTEP_RANK is '0x1'", "from 0 to 3");
    assert_refuses(WITH("LOCKSTEP_RANK", "1 "), "LOCKSTEP_RANK is '1 '", "from 0 to 3");
    assert_refuses(WITH("LOCKSTEP_SIZE", "0"), "LOCKSTEP_SIZE is '0'", "from 1 to 1024");
    assert_refuses(WITH("LOCKSTEP_SIZE", "1025"), "LOCKSTEP_SIZE is '1025'", "from 1 to 1024");
    assert_refuses(WITH("LOCKSTEP_SIZE", "99999999999999999999999"), "LOCKSTEP_SIZE", "from 1 to 1024");
    assert_refuses(WITH("LOCKSTEP_LOCAL_SIZE", "5"), "LOCKSTEP_LOCAL_SIZE is '5'", "from 1 to 4");
    assert_refuses(WITH("LOCKSTEP_LOCAL_RANK", "2"), "LOCKSTEP_LOCAL_RANK is '2'", "from 0 to 1");
    assert_refuses(WITH("LOCKSTEP_EPOCH", "18446744073709551616"), "LOCKSTEP_EPOCH", "from 0 to");
    assert_refuses(WITH("LOCKSTEP_COORDINATOR", "node1"), "LOCKSTEP_COORDINATOR", "HOST:PORT");
    assert_refuses(WITH("LOCKSTEP_COORDINATOR", "node1:70000"), "LOCKSTEP_COORDINATOR", "0 to 65535");
    assert_refuses(WITH("LOCKSTEP_TOKEN", "not hexadecimal at all"), "LOCKSTEP_TOKEN has 22",
                   "16 to 127 hex");
    assert_refuses(WITH("LOCKSTEP_TOKEN", "0123456789abcde"), "LOCKSTEP_TOKEN has 15", "16 to 127 hex");
#undef WITH
}

static void environment_of_torchrun(void **state)
{
    (void)state;
    /* As seen with torchrun --nnodes 2 --nproc-per-node 2: its own store has the port. */
    assert_reads(ENV("RANK", "3", "WORLD_SIZE", "4", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2",
                     "MASTER_ADDR", "node1", "MASTER_PORT", "29400", "TORCHELASTIC_USE_AGENT_STORE", "True"),
                 LS_LAUNCHER_TORCHRUN,
                 &(ls_comm_options){.rank = 3,
                                    .size = 4,
                                    .local_rank = 1,
                                    .local_size = 2,
                                    .coordinator = "node1:29401",
                                    .serve_store = true});
    /* One host: loopback, which needs no token. */
    assert_reads(ENV("RANK", "1", "WORLD_SIZE", "2", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2",
                     "MASTER_ADDR", "node1.example.org", "MASTER_PORT", "29400"),
                 LS_LAUNCHER_TORCHRUN,
                 &(ls_comm_options){.rank = 1,
                                    .size = 2,
                                    .local_rank = 1,
                                    .local_size = 2,
                                    .coordinator = "127.0.0.1:29400",
                                    .serve_store = true});
    assert_reads(
        ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "fe80::1", "MASTER_PORT", "1"),
        LS_LAUNCHER_TORCHRUN,
        &(ls_comm_options){
            .rank = 1, .size = 2, .local_size = 1, .coordinator = "[fe80::1]:1", .serve_store = true});
    assert_refuses(ENV("RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "node1", "MASTER_PORT", "0"),
                   "MASTER_PORT is '0'", "from 1 to 65535");
    assert_refuses(ENV("RANK", "2", "WORLD_SIZE", "2", "MASTER_ADDR", "node1", "MASTER_PORT", "1"),
                   "RANK is '2'", "from 0 to 1");
}

static void environment_of_mpirun(void **state)
{
    (void)state;
    ls_comm_options options, again;
    set(ENV("OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE", "4", "PMIX_NAMESPACE", "1234"));
    assert_int_equal(ls_comm_options_from_environment(&options), LS_OK);
    assert_int_equal(options.rank, 2);
    assert_memory_equal(options.coordinator, "127.0.0.1:2", 11);
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
    assert_int_equal(ls_comm_options_from_environment(&again), LS_OK);
    assert_string_equal(options.coordinator, again.coordinator);
    setenv("PMIX_NAMESPACE", "1235", 1);
    assert_int_equal(ls_comm_options_from_environment(&again), LS_OK);
    assert_string_not_equal(options.coordinator, again.coordinator);

    assert_reads(
        ENV("PMI_RANK", "1", "PMI_SIZE", "4", "MPI_LOCALRANKID", "0", "MPI_LOCALNRANKS", "2", "MASTER_ADDR",
            "10.1.0.1", "MASTER_PORT", "4000"),
        LS_LAUNCHER_MPIRUN,
        &(ls_comm_options){
            .rank = 1, .size = 4, .local_size = 2, .coordinator = "10.1.0.1:4000", .serve_store = true});
    assert_refuses(ENV("OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK",
                       "0", "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                   "MASTER_ADDR", "MASTER_PORT");
}

static void environment_of_srun(void **state)
{
    (void)state;
    ls_comm_options options;
    ls_launcher launcher;
    uint32_t node = 0;
    const char *const job[] = {"SLURM_PROCID",
                               "5",
                               "SLURM_NTASKS",
                               "7",
                               "SLURM_LOCALID",
                               "1",
                               "SLURM_NODEID",
                               "2",
                               "SLURM_JOB_ID",
                               "4242",
                               "SLURM_STEP_NODELIST",
                               "gpu[09-11,20]",
                               "SLURM_STEP_TASKS_PER_NODE",
                               "2(x3),1",
                               "PMI_RANK",
                               "5",
                               "PMI_SIZE",
                               "7",
                               NULL};
    set(job);
    assert_int_equal(ls_environment_read(&options, &launcher, &node), LS_OK);
    assert_int_equal(launcher, LS_LAUNCHER_SRUN);
    assert_int_equal(node, 2);
    assert_int_equal(options.local_size, 2);
    assert_memory_equal(options.coordinator, "gpu09:2", 7);
    assert_int_equal(atoi(options.coordinator + 6), ls_port_of_job("4242.0"));
    setenv("SLURM_STEP_NODELIST", "gpu[09-11", 1);
    assert_int_equal(ls_environment_read(&options, &launcher, &node), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "SLURM_STEP_NODELIST"));
    setenv("SLURM_STEP_NODELIST", "gpu[09-11,20]", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x4)", 1);
    assert_int_equal(ls_environment_read(&options, &launcher, &node), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "2 to 7"));
    setenv("SLURM_NODEID", "4", 1);
    assert_int_equal(ls_environment_read(&options, &launcher, &node), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "SLURM_NODEID is '4': it must be a number from 0 to 3"));
}

static void assert_names(const char *list, const char *const *names)
{
    char name[LS_NODE_NAME_BYTES];
    uint32_t count = 0, expected = 0;
    for (; names[expected]; expected++) {
        if (ls_node_list_read(list, expected, name, &count) != LS_OK) {
            fail_msg("%s", ls_error_text());
        }
        assert_string_equal(name, names[expected]);
    }
    assert_int_equal(count, expected);
    assert_int_equal(ls_node_list_read(list, expected, name, &count), LS_ERR_NOT_FOUND);
}

static void node_list_names(void **state)
{
    (void)state;
    assert_names("a", ENV("a"));
    assert_names("node[01-03,7]", ENV("node01", "node02", "node03", "node7"));
    assert_names("gpu1,n[8-10]b,x.example.org", ENV("gpu1", "n8b", "n9b", "n10b", "x.example.org"));
    assert_names("r[1-2]n[01,05]", ENV("r1n01", "r1n05", "r2n01", "r2n05"));
    assert_names("[1-2]", ENV("1", "2"));
    uint32_t count = 0;
    assert_int_equal(ls_node_list_read("n[00000-65535]", 0, NULL, &count), LS_OK);
    assert_int_equal(count, 65536);
}

static void node_list_refuses(void **state)
{
    (void)state;
    char name[LS_NODE_NAME_BYTES] = "untouched", long_list[400];
    uint32_t count = 77;
    const char *const bad[] = {"",
                               ",",
                               "a,",
                               ",a",
                               "a,,b",
                               "n[",
                               "n[]",
                               "n[1",
                               "n[1-]",
                               "n[-2]",
                               "n[2-1]",
                               "n[1,]",
                               "n[1]]",
                               "n[a]",
                               "n 1",
                               "n[1-2-3]",
                               "n]",
                               "n[[1]]",
                               "n[0-65536]",
                               "n[0-4294967296]",
                               "n[0-299]m[0-299]",
                               "a[1]b[1]c[1]d[1]e[1]",
                               "n\t"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (ls_node_list_read(bad[i], 0, name, &count) != LS_ERR_INVALID) {
            fail_msg("'%s' was taken", bad[i]);
        }
    }
    memset(long_list, 'x', sizeof long_list - 1);
    long_list[sizeof long_list - 1] = '\0';
    assert_int_equal(ls_node_list_read(long_list, 0, name, &count), LS_ERR_INVALID);
    assert_string_equal(name, "untouched");
    assert_int_equal(count, 77);
}

static void node_counts_read(void **state)
{
    (void)state;
    uint32_t count = 77;
    const uint32_t expected[] = {2, 2, 2, 1, 16};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(ls_node_counts_read("2(x3),1,16", i, &count), LS_OK);
        assert_int_equal(count, expected[i]);
    }
    assert_int_equal(ls_node_counts_read("2(x3),1,16", 5, &count), LS_ERR_NOT_FOUND);
    const char *const bad[] = {"", "a", "2(", "2(x", "2(x)", "2(y3)", "2,,1", "-1", "2(x3", "99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (ls_node_counts_read(bad[i], 0, &count) != LS_ERR_INVALID) {
            fail_msg("'%s' was taken", bad[i]);
        }
    }
    assert_int_equal(count, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(environment_without_launcher_is_one_rank, clear),
        cmocka_unit_test_setup(environment_of_lockstep, clear),
        cmocka_unit_test_setup(environment_names_variable_value_and_range, clear),
        cmocka_unit_test_setup(environment_of_torchrun, clear),
        cmocka_unit_test_setup(environment_of_mpirun, clear),
        cmocka_unit_test_setup(environment_of_srun, clear),
        cmocka_unit_test(node_list_names),
        cmocka_unit_test(node_list_refuses),
        cmocka_unit_test(node_counts_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

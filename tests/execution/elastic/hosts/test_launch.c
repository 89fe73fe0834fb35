// SPDX-License-Identifier: Apache-2.0
/* The file of hosts, tokens, and the role of a process in a run that a launcher started. */
#include "test.h"

#include "execution/elastic/hosts/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ls_arena arena;
static char path[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/lockstep_hosts_XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return clearenv();
}

static int tear_down(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return unlink(path);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_error_says(const char *what)
{
    if (!strstr(ls_error_text(), what)) {
        fail_msg("'%s' does not say '%s'", ls_error_text(), what);
    }
}

static void hosts_file_reads_lines(void **state)
{
    (void)state;
    ls_host_entry *hosts = NULL;
    uint32_t count = 0;
    write_file("# hosts of the team\n\nlocalhost slots=4\n  gpu1\tslots=2 10.0.0.1 # rack 3\nuser@gpu2 "
               "10.0.0.2 slots=256\r\nx");
    assert_int_equal(ls_hosts_file_read(&arena, path, &hosts, &count), LS_OK);
    assert_int_equal(count, 4);
    assert_string_equal(hosts[0].name, "localhost");
    assert_string_equal(hosts[0].address, "localhost");
    assert_int_equal(hosts[0].slots, 4);
    assert_true(hosts[0].is_here);
    assert_string_equal(hosts[1].name, "gpu1");
    assert_string_equal(hosts[1].address, "10.0.0.1");
    assert_int_equal(hosts[1].slots, 2);
    assert_string_equal(hosts[2].name, "user@gpu2");
    assert_string_equal(hosts[2].address, "10.0.0.2");
    assert_int_equal(hosts[2].slots, 256);
    assert_string_equal(hosts[3].name, "x");
    assert_int_equal(hosts[3].slots, 1);
}

static void hosts_file_refuses(void **state)
{
    (void)state;
    ls_host_entry *hosts = NULL;
    uint32_t count = 77;
    const struct {
        const char *text, *says;
    } bad[] = {
        {"", "does not list any host"},
        {"# no host yet\n", "does not list any host"},
        {"a\na\n", ":2: host a is listed twice"},
        {"a slots=0\n", ":1: 'slots=0'"},
        {"a slots=257\n", "slots, the number of ranks that the host may run, must be 1 to 256"},
        {"a slots=\n", "'slots='"},
        {"a slots=2x\n", "'slots=2x'"},
        {"a b c\n", ":1: 'c' is one word more"},
        {"a;b\n", "is not a valid host name"},
        {"a:4\n", "is not a valid host name"},
        {"-oProxyCommand=x\n", "is not a valid host name"},
        {"a -v\n", "is not a valid host name"},
        {"a 'b\n", "is not a valid host name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file(bad[i].text);
        assert_int_equal(ls_hosts_file_read(&arena, path, &hosts, &count), LS_ERR_INVALID);
        assert_error_says(bad[i].says);
    }
    assert_int_equal(count, 77);
    assert_int_equal(ls_hosts_file_read(&arena, "/does/not/exist", &hosts, &count), LS_ERR_NOT_FOUND);
}

static void token_comes_from_file_or_environment(void **state)
{
    (void)state;
    char token[LS_COMM_TOKEN_BYTES] = "untouched";
    assert_int_equal(ls_token_read("", token), LS_OK);
    assert_string_equal(token, "");
    setenv("LOCKSTEP_TOKEN", "0011223344556677", 1);
    assert_int_equal(ls_token_read(NULL, token), LS_OK);
    assert_string_equal(token, "0011223344556677");
    write_file("ffeeddccbbaa99887766\nmore\n");
    assert_int_equal(ls_token_read(path, token), LS_OK);
    assert_string_equal(token, "ffeeddccbbaa99887766");
    write_file("short\n");
    assert_int_equal(ls_token_read(path, token), LS_ERR_INVALID);
    assert_error_says(path);
    write_file("");
    assert_int_equal(ls_token_read(path, token), LS_ERR_INVALID);
    assert_error_says("no token");
    assert_string_equal(token, "ffeeddccbbaa99887766");
}

static void launch_shares_out_slots(void **state)
{
    (void)state;
    ls_launch launch;
    write_file("127.77.0.2 slots=0003\nlocalhost slots=2\n10.255.255.1 slots=2\n10.255.255.2 slots=2\n");
    /* The first two entries are this host: the first one counts, the second is treated as
     * another host. */
    const ls_launch_options options = {.hosts_file = path, .ranks = 6, .coordinator = "127.0.0.1:0"};
    assert_int_equal(ls_launch_read(&arena, &options, &launch), LS_OK);
    assert_int_equal(launch.role, LS_LAUNCH_TRAINER);
    assert_int_equal(launch.ranks, 6);
    assert_int_equal(launch.hosts->local_ranks, 3);
    assert_int_equal(launch.hosts->other_count, 2);
    assert_int_equal(launch.hosts->others[1].slots, 1);
    assert_int_equal(strlen(launch.hosts->token), 32); /* made */
    const ls_launch_options many = {.hosts_file = path, .ranks = 10};
    assert_int_equal(ls_launch_read(&arena, &many, &launch), LS_ERR_INVALID);
    assert_error_says("10 ranks were asked for, but the hosts in");
    assert_error_says("9 slots");
}

static void launch_follows_launchers(void **state)
{
    (void)state;
    ls_launch launch;
    const ls_launch_options none = {.ranks = 0}, eight = {.ranks = 8}, odd = {.ranks = 6};
    assert_int_equal(ls_launch_read(&arena, &none, &launch), LS_OK);
    assert_null(launch.hosts);
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29400", 1);
    setenv("RANK", "0", 1);
    setenv("LOCAL_RANK", "0", 1);
    assert_int_equal(ls_launch_read(&arena, &eight, &launch), LS_OK);
    assert_int_equal(launch.role, LS_LAUNCH_TRAINER);
    assert_int_equal(launch.ranks, 8);
    assert_int_equal(launch.hosts->local_ranks, 4);
    assert_string_equal(launch.hosts->listen, "0.0.0.0:29400");
    setenv("RANK", "2", 1);
    assert_int_equal(ls_launch_read(&arena, &none, &launch), LS_OK);
    assert_int_equal(launch.role, LS_LAUNCH_AGENT);
    assert_false(launch.agent.is_spare);
    assert_int_equal(launch.agent.slots, 2);
    assert_string_equal(launch.agent.coordinator, "127.0.0.1:29400");
    setenv("RANK", "3", 1);
    setenv("LOCAL_RANK", "1", 1);
    assert_int_equal(ls_launch_read(&arena, &none, &launch), LS_OK);
    assert_true(launch.agent.is_spare);
    assert_int_equal(ls_launch_read(&arena, &odd, &launch), LS_ERR_INVALID);
    assert_error_says("torchrun started 4 processes, and 6 ranks");
}

static void launch_refuses_what_contradicts(void **state)
{
    (void)state;
    ls_launch launch;
    const ls_launch_options bad[] = {
        {.local_ranks = 2},
        {.coordinator = "127.0.0.1:0", .ranks = 4},
        {.coordinator = "127.0.0.1:0", .ranks = 4, .local_ranks = 4},
        {.coordinator = "nonsense", .ranks = 4, .local_ranks = 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_launch_read(&arena, &bad[i], &launch), LS_ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hosts_file_reads_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hosts_file_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(token_comes_from_file_or_environment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(launch_shares_out_slots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(launch_follows_launchers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(launch_refuses_what_contradicts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

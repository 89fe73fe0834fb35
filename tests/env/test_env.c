// SPDX-License-Identifier: Apache-2.0
/* The real env: the shared machines of env_machine.h, and what only a real system has. */
#include "test.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "env/env.h"
#include "env/env_machine.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static ls_env *env;
static char folder[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep_env_XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ls_env_real_create(&env), LS_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_env_real_destroy(env);
    assert_int_equal(ls_dir_remove(folder), LS_OK);
    return 0;
}

static void store_result(void *context, int64_t result)
{
    *(int64_t *)context = result;
}

static void env_commit_then_load(void **state)
{
    (void)state;
    commit writer;
    load reader;
    int64_t result = 99, value = 99;
    load_start(&reader, env, folder, store_result, &value);
    assert_int_equal(value, 99); /* never from inside the call */
    assert_int_equal(ls_env_run(env), 0);
    assert_int_equal(value, -1);
    commit_start(&writer, env, folder, 41, store_result, &result);
    ls_env_run(env);
    assert_int_equal(result, 0);
    load_start(&reader, env, folder, store_result, &value);
    ls_env_run(env);
    assert_int_equal(value, 41);
    commit_start(&writer, env, "/does/not/exist", 41, store_result, &result);
    ls_env_run(env);
    assert_int_equal(result, -ENOENT);
}

static void store_names(void *context, int64_t result, const char *const *names, size_t count)
{
    char *out = context;
    out[0] = '\0';
    assert_true(result <= 0);
    for (size_t i = 0; i < count; i++) {
        snprintf(out + strlen(out), 64 - strlen(out), "%s ", names[i]);
    }
}

static void env_disk_list_mkdir_unlink(void **state)
{
    (void)state;
    char path[160], names[64] = "";
    int64_t made = 9, again = 9, removed = 9, missing = 9;
    snprintf(path, sizeof path, "%s/b", folder);
    ls_env_disk_mkdir(env, path, store_result, &made);
    ls_env_disk_mkdir(env, path, store_result, &again);
    snprintf(path, sizeof path, "%s/a", folder);
    ls_env_disk_mkdir(env, path, store_result, &made);
    ls_env_disk_list(env, folder, store_names, names);
    ls_env_disk_unlink(env, path, store_result, &removed);
    ls_env_disk_unlink(env, path, store_result, &missing);
    ls_env_run(env);
    assert_int_equal(made, 0);
    assert_int_equal(again, -EEXIST);
    assert_string_equal(names, "a b ");
    assert_int_equal(removed, 0);
    assert_int_equal(missing, -ENOENT);
}

static void env_disk_files_are_new_reserved_cut_and_exchanged(void **state)
{
    (void)state;
    char a[160], b[160], read[8] = "";
    int64_t file = -1, again = 9, made = 9, reserved = 9, cut = 9, closed = 9, got = 9, swapped = 9,
            alone = 9;
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    ls_env_disk_open(env, a, LS_ENV_NEW, store_result, &file);
    ls_env_disk_open(env, a, LS_ENV_NEW_BULK, store_result, &again);
    ls_env_disk_mkdir(env, b, store_result, &made);
    ls_env_run(env);
    assert_true(file >= 0 && again == -EEXIST && made == 0);
    ls_env_disk_allocate(env, file, 8192, store_result, &reserved);
    ls_env_run(env);
    assert_int_equal(reserved, 0);
    assert_int_equal(ls_env_disk_write_now(env, file, "xyz", 3, 2), 3);
    ls_env_disk_truncate(env, file, 4, store_result, &cut);
    ls_env_disk_read(env, file, read, sizeof read, 0, store_result, &got);
    ls_env_disk_close(env, file, store_result, &closed);
    ls_env_disk_exchange(env, a, b, store_result, &swapped);
    ls_env_run(env);
    assert_int_equal(cut, 0);
    assert_int_equal(got, 4);
    assert_memory_equal(read, "\0\0xy", 4);
    assert_int_equal(closed, 0);
    assert_int_equal(swapped, 0);
    assert_true(ls_path_is_dir(a) && !ls_path_is_dir(b));
    assert_int_equal(ls_env_disk_write_now(env, 9999, "x", 1, 0), -EBADF);
    assert_int_equal(unlink(b), 0);
    ls_env_disk_exchange(env, a, b, store_result, &alone);
    ls_env_disk_open(env, b, LS_ENV_NEW_BULK, store_result, &file);
    ls_env_run(env);
    assert_int_equal(alone, -ENOENT);
    assert_true(file >= 0); /* also where there is no O_DIRECT */
}

static void env_disk_link_is_a_second_name(void **state)
{
    (void)state;
    char a[160], b[160], c[160], read[4] = "";
    int64_t file = -1, closed = 9, linked = 9, taken = 9, missing = 9, removed = 9, again = -1, got = 9;
    snprintf(a, sizeof a, "%s/link-a", folder);
    snprintf(b, sizeof b, "%s/link-b", folder);
    snprintf(c, sizeof c, "%s/link-c", folder);
    ls_env_disk_open(env, a, LS_ENV_NEW, store_result, &file);
    ls_env_run(env);
    assert_int_equal(ls_env_disk_write_now(env, file, "xyz", 3, 0), 3);
    ls_env_disk_close(env, file, store_result, &closed);
    ls_env_disk_link(env, a, b, store_result, &linked);
    ls_env_disk_link(env, a, b, store_result, &taken);
    ls_env_disk_link(env, c, a, store_result, &missing);
    ls_env_disk_unlink(env, a, store_result, &removed);
    ls_env_disk_open(env, b, LS_ENV_READ, store_result, &again);
    ls_env_run(env);
    assert_true(closed == 0 && linked == 0 && taken == -EEXIST && missing == -ENOENT && removed == 0);
    ls_env_disk_read(env, again, read, sizeof read, 0, store_result, &got);
    ls_env_run(env);
    assert_int_equal(got, 3);
    assert_memory_equal(read, "xyz", 3);
}

static void stop_env(void *context)
{
    (void)context;
    ls_env_stop(env, 7);
}

static void env_counter_reaches_goal_over(const char *address)
{
    echo_server server;
    counter_client client;
    assert_int_equal(server_start(&server, env, address), 0);
    client_start(&client, env, ls_env_net_address(env, server.listener), 200, stop_env, NULL);
    assert_int_equal(ls_env_run(env), 7);
    assert_int_equal(client.number, 200);
    assert_int_equal(server.largest, 200);
    ls_env_net_close(env, server.listener);
}

static void env_counter_over_tcp_and_unix(void **state)
{
    (void)state;
    char address[160];
    env_counter_reaches_goal_over("127.0.0.1:0");
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    env_counter_reaches_goal_over(address);
}

/* Large messages both ways cross the socket's buffers many times. */
typedef struct bulk {
    unsigned char *data;
    size_t bytes, received, messages;
    bool same;
} bulk;

static void bulk_opened(void *context, ls_env_id link)
{
    bulk *self = context;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_env_net_send(env, link, self->data, self->bytes), 0);
    }
    assert_int_equal(ls_env_net_send(env, link, self->data, LS_ENV_MESSAGE_BYTES_MAX + 1), -EMSGSIZE);
    assert_int_equal(ls_env_net_send(env, link, NULL, 0), 0);
    ls_env_net_close(env, link); /* what is queued is still sent */
    assert_int_equal(ls_env_net_send(env, link, NULL, 0), -ENOTCONN);
}

static void bulk_received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    (void)link;
    bulk *self = context;
    self->messages++;
    self->received += bytes;
    self->same = self->same && (bytes == 0 || (bytes == self->bytes && memcmp(data, self->data, bytes) == 0));
}

static void ignore_link(void *context, ls_env_id link)
{
    (void)context;
    (void)link;
}

static void bulk_closed(void *context, ls_env_id link, int error)
{
    (void)context;
    (void)link;
    ls_env_stop(env, error);
}

static void env_net_large_messages_arrive_whole(void **state)
{
    (void)state;
    bulk self = {.bytes = 3 * 1000 * 1000 + 17, .same = true};
    self.data = malloc(LS_ENV_MESSAGE_BYTES_MAX + 1);
    for (size_t i = 0; i < self.bytes; i++) {
        self.data[i] = (unsigned char)(i * 31 + (i >> 9));
    }
    ls_env_id listener = 0;
    const ls_env_link_events receiving = {&self, ignore_link, bulk_received, bulk_closed};
    const ls_env_link_events sending = {&self, bulk_opened, bulk_received, bulk_closed};
    assert_int_equal(ls_env_net_listen(env, "localhost:0", &receiving, &listener), 0);
    ls_env_net_connect(env, ls_env_net_address(env, listener), &sending);
    assert_int_equal(ls_env_run(env), 0);
    assert_int_equal(self.messages, 5);
    assert_int_equal(self.received, 4 * self.bytes);
    assert_true(self.same);
    free(self.data);
}

static void store_error(void *context, ls_env_id link, int error)
{
    (void)link;
    *(int *)context = error;
}

static void refuse_message(void *context, ls_env_id link, const void *data, size_t bytes)
{
    (void)context;
    (void)link;
    (void)data;
    (void)bytes;
    fail();
}

static void env_net_failures_are_told_from_the_loop(void **state)
{
    (void)state;
    int error = 0;
    ls_env_id listener = 0;
    const ls_env_link_events events = {&error, ignore_link, refuse_message, store_error};
    ls_env_net_connect(env, "127.0.0.1:1", &events);
    assert_int_equal(error, 0);
    ls_env_run(env);
    assert_int_equal(error, -ECONNREFUSED);
    ls_env_net_connect(env, "example.invalid:80", &events);
    ls_env_run(env);
    assert_int_equal(error, -EINVAL);
    assert_int_equal(ls_env_net_listen(env, "nonsense", &events, &listener), -EINVAL);
    assert_int_equal(ls_env_net_listen(env, "127.0.0.1:0", &events, &listener), 0);
    ls_env_id second = 0;
    assert_int_equal(ls_env_net_listen(env, ls_env_net_address(env, listener), &events, &second),
                     -EADDRINUSE);
    ls_env_net_close(env, listener);
    assert_null(ls_env_net_address(env, listener));
}

static char fired[16];

static void fire_letter(void *context)
{
    strncat(fired, context, 2);
}

static void env_timers_fire_in_order(void **state)
{
    (void)state;
    fired[0] = '\0';
    const uint64_t ms = 1000000;
    ls_env_timer_set(env, 30 * ms, fire_letter, "c");
    ls_env_timer_set(env, 10 * ms, fire_letter, "a");
    const ls_env_id cancelled = ls_env_timer_set(env, 15 * ms, fire_letter, "x");
    ls_env_timer_set(env, 20 * ms, fire_letter, "b");
    ls_env_timer_cancel(env, cancelled);
    ls_env_timer_cancel(env, cancelled);
    const uint64_t start_ns = ls_env_now_ns(env);
    assert_int_equal(ls_env_poll(env, 0), 0);
    ls_env_run(env);
    assert_string_equal(fired, "abc");
    assert_true(ls_env_now_ns(env) - start_ns >= 30 * ms);
}

static void store_exit(void *context, ls_env_id process, int exit_code)
{
    (void)process;
    *(int *)context = exit_code;
}

static void env_processes_end_as_events(void **state)
{
    (void)state;
    int three = -1, killed = -1;
    ls_env_id process = 0, sleeper = 0;
    assert_int_equal(
        ls_env_process_start(env, (const char *[]){"sh", "-c", "exit 3", NULL}, store_exit, &three, &process),
        0);
    assert_int_equal(
        ls_env_process_start(env, (const char *[]){"sleep", "60", NULL}, store_exit, &killed, &sleeper), 0);
    assert_int_equal(ls_env_process_kill(env, sleeper, SIGKILL), 0);
    ls_env_run(env);
    assert_int_equal(three, 3);
    assert_int_equal(killed, 128 + SIGKILL);
    assert_int_equal(ls_env_process_kill(env, sleeper, SIGKILL), -ESRCH);
    assert_int_equal(
        ls_env_process_start(env, (const char *[]){"/no/such/program", NULL}, store_exit, &three, &process),
        -ENOENT);
}

static void count_up(void *context)
{
    ++*(int *)context;
}

static void env_signals_are_events(void **state)
{
    (void)state;
    int interrupts = 0, notices = 0;
    assert_int_equal(ls_env_signal_watch(env, SIGINT, count_up, &interrupts), 0);
    assert_int_equal(ls_env_signal_watch(env, SIGTERM, count_up, &notices), 0);
    kill(getpid(), SIGINT);
    kill(getpid(), SIGTERM);
    assert_int_equal(interrupts, 0);
    assert_int_equal(ls_env_poll(env, 1000000000), 2);
    assert_int_equal(interrupts, 1);
    assert_int_equal(notices, 1);
    assert_int_equal(ls_env_signal_watch(env, 900, count_up, &notices), -EINVAL);
}

typedef struct pipe_reader {
    int fd;
    char text[8];
    size_t bytes;
    ls_env_id watch;
} pipe_reader;

static void read_a_byte(void *context)
{
    pipe_reader *reader = context;
    assert_int_equal(read(reader->fd, &reader->text[reader->bytes++], 1), 1);
    if (reader->bytes == 3) {
        ls_env_real_unwatch(env, reader->watch);
        ls_env_real_unwatch(env, reader->watch); /* twice does nothing */
    }
}

static void env_real_watch_calls_until_nothing_is_left(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pipe_reader reader = {.fd = ends[0]};
    assert_int_equal(ls_env_real_watch(env, ends[0], read_a_byte, &reader, &reader.watch), 0);
    assert_int_equal(write(ends[1], "abcd", 4), 4);
    assert_int_equal(ls_env_run(env), 0); /* returns: nothing is watched any more */
    assert_string_equal(reader.text, "abc");
    assert_int_equal(read(ends[0], reader.text, 1), 1); /* the descriptor is still the caller's */
    assert_int_equal(reader.text[0], 'd');
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(ls_env_real_watch(env, ends[0], read_a_byte, &reader, &reader.watch), -EBADF);
}

static void *wake(void *context)
{
    ls_env_real_wake(context);
    return NULL;
}

/* A wake-up is not lost, whether it comes before the wait or during it. */
static void env_real_wake_ends_a_wait(void **state)
{
    (void)state;
    const uint64_t begin_ns = ls_clock_monotonic_ns(), long_ns = UINT64_C(100000000000);
    pthread_t thread;
    ls_env_real_wake(env);
    ls_env_real_wake(env);
    assert_int_equal(ls_env_poll(env, long_ns), 0);
    assert_int_equal(pthread_create(&thread, NULL, wake, env), 0);
    assert_int_equal(ls_env_poll(env, long_ns), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(ls_clock_monotonic_ns() - begin_ns < long_ns);
}

static void env_destroy_with_calls_under_way(void **state)
{
    (void)state;
    static char data[100000];
    int64_t result = 99;
    int exit_code = 99;
    char path[160];
    snprintf(path, sizeof path, "%s/file", folder);
    ls_env *second = NULL;
    ls_env_id id = 0;
    assert_int_equal(ls_env_real_create(&second), LS_OK);
    const ls_env_link_events events = {&exit_code, ignore_link, refuse_message, store_error};
    ls_env_disk_open(second, path, LS_ENV_CREATE, store_result, &result);
    ls_env_disk_list(second, folder, store_names, data);
    ls_env_timer_set(second, 0, stop_env, NULL);
    assert_int_equal(ls_env_net_listen(second, "127.0.0.1:0", &events, &id), 0);
    ls_env_net_connect(second, "not an address", &events);
    assert_int_equal(
        ls_env_process_start(second, (const char *[]){"true", NULL}, store_exit, &exit_code, &id), 0);
    ls_env_real_destroy(second);
    assert_int_equal(result, 99);
    assert_int_equal(exit_code, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(env_commit_then_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_disk_list_mkdir_unlink, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_disk_files_are_new_reserved_cut_and_exchanged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_disk_link_is_a_second_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_counter_over_tcp_and_unix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_net_large_messages_arrive_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_net_failures_are_told_from_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_timers_fire_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_processes_end_as_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_signals_are_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_real_watch_calls_until_nothing_is_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_real_wake_ends_a_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(env_destroy_with_calls_under_way, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* The rendezvous store over real sockets: server thread, blocking clients, and whatever else may
 * connect to its port. */
#include "test.h"

#include "base/clock.h"
#include "comm/store/store.h"
#include "comm/store/store_address.h"
#include "comm/store/store_wire.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char TOKEN[] = "0123456789abcdef0123456789abcdef";
static ls_store_thread *server;

static void start_server(uint64_t epoch)
{
    const ls_store_server_options options = {.address = "127.0.0.1:0", .token = TOKEN, .epoch = epoch};
    assert_int_equal(ls_store_thread_start(&options, &server), LS_OK);
}

static int set_up(void **state)
{
    (void)state;
    start_server(3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_store_thread_stop(server);
    server = NULL;
    return 0;
}

static ls_status try_connect(const char *address, const char *token, uint64_t epoch, double timeout_s,
                             ls_store **store_out)
{
    return ls_store_connect(
        &(ls_store_client_options){
            .address = address, .token = token, .epoch = epoch, .identity = "a", .timeout_s = timeout_s},
        store_out);
}

static ls_store *connect_client(void)
{
    ls_store *store = NULL;
    assert_int_equal(try_connect(ls_store_thread_address(server), TOKEN, 3, 5, &store), LS_OK);
    return store;
}

static void assert_error_says(const char *what)
{
    if (!strstr(ls_error_text(), what)) {
        fail_msg("'%s' does not say '%s'", ls_error_text(), what);
    }
}

static void store_put_get_add(void **state)
{
    (void)state;
    ls_store *a = connect_client(), *b = connect_client();
    char value[64];
    size_t bytes = 0;
    int64_t number = 0;
    assert_int_equal(ls_store_put(a, "host/0", "node7", 5), LS_OK);
    assert_int_equal(ls_store_get(b, "host/0", 1, value, sizeof value, &bytes), LS_OK);
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "node7", 5);
    assert_int_equal(ls_store_put(b, "host/0", NULL, 0), LS_OK);
    assert_int_equal(ls_store_get(a, "host/0", 1, value, 0, &bytes), LS_OK);
    assert_int_equal(bytes, 0);

    assert_int_equal(ls_store_add(a, "n", 5, &number), LS_OK);
    assert_int_equal(number, 5);
    assert_int_equal(ls_store_add(b, "n", -7, &number), LS_OK);
    assert_int_equal(number, -2);
    assert_int_equal(ls_store_get(a, "n", 0, &number, sizeof number, &bytes), LS_OK);
    assert_int_equal(number, -2);

    ls_store_close(a);
    ls_store_close(b);
}

static void store_refuses_bad_requests(void **state)
{
    (void)state;
    ls_store *a = connect_client();
    char long_key[LS_STORE_KEY_BYTES_MAX + 2], value[8];
    unsigned char *large = calloc(1, LS_STORE_VALUE_BYTES_MAX + 1);
    size_t bytes = 77;
    int64_t number = 77;
    memset(long_key, 'k', sizeof long_key);
    long_key[sizeof long_key - 1] = '\0';
    assert_int_equal(ls_store_put(a, "", "x", 1), LS_ERR_INVALID);
    assert_int_equal(ls_store_put(a, long_key, "x", 1), LS_ERR_INVALID);
    assert_error_says("1 to 255 characters; this one has 256");
    assert_int_equal(ls_store_put(a, "k\n", "x", 1), LS_ERR_INVALID);
    assert_error_says("0x0a");
    assert_int_equal(ls_store_put(a, "k", large, LS_STORE_VALUE_BYTES_MAX + 1), LS_ERR_INVALID);
    assert_int_equal(ls_store_put(a, long_key + 1, large, LS_STORE_VALUE_BYTES_MAX), LS_OK);
    assert_int_equal(ls_store_get(a, long_key + 1, 0, value, sizeof value, &bytes), LS_ERR_INVALID);
    assert_error_says("the caller has room for 8");
    assert_int_equal(bytes, 77);
    assert_int_equal(ls_store_add(a, long_key + 1, 1, &number), LS_ERR_INVALID);
    assert_error_says("is not a counter");
    assert_int_equal(ls_store_add(a, "n", INT64_MAX, &number), LS_OK);
    assert_int_equal(ls_store_add(a, "n", 1, &number), LS_ERR_INVALID);
    assert_error_says("overflow");
    assert_int_equal(number, INT64_MAX);
    assert_int_equal(ls_store_put(a, "k", "x", 1), LS_OK); /* none of it hurt the link */
    free(large);
    ls_store_close(a);
}

static void store_get_waits_and_times_out(void **state)
{
    (void)state;
    ls_store *a = connect_client();
    char value[8];
    size_t bytes = 77;
    const double begin_s = ls_clock_monotonic_s();
    assert_int_equal(ls_store_get(a, "never", 0.2, value, sizeof value, &bytes), LS_ERR_TIMEOUT);
    assert_error_says("no process put the key never");
    assert_true(ls_clock_monotonic_s() - begin_s >= 0.19);
    assert_int_equal(bytes, 77);
    assert_int_equal(ls_store_get(a, "never", 0, value, sizeof value, &bytes), LS_ERR_TIMEOUT);
    assert_int_equal(ls_store_put(a, "k", "x", 1), LS_OK);
    ls_store_close(a);
}

/* Whether the main thread sleeps. */
static bool main_thread_sleeps(void)
{
    char line[512] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    if (file) {
        (void)!fgets(line, sizeof line, file);
        fclose(file);
    }
    const char *end = strrchr(line, ')');
    return end && strncmp(end, ") S", 3) == 0;
}

/* Once the main thread waits in its get. */
static void *put_later(void *context)
{
    ls_store *b = context;
    for (int i = 0; i < 10000 && !main_thread_sleeps(); i++) {
        usleep(1000);
    }
    return ls_store_put(b, "late", "here", 4) == LS_OK ? context : NULL;
}

static void store_get_is_woken_by_a_put(void **state)
{
    (void)state;
    ls_store *a = connect_client(), *b = connect_client();
    char value[8];
    size_t bytes = 0;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, put_later, b), 0);
    assert_int_equal(ls_store_get(a, "late", 20, value, sizeof value, &bytes), LS_OK);
    assert_int_equal(bytes, 4);
    pthread_join(thread, &result);
    assert_ptr_equal(result, b);
    ls_store_close(a);
    ls_store_close(b);
}

static void store_names_wrong_token_and_epoch(void **state)
{
    (void)state;
    ls_store *store = NULL;
    const char *address = ls_store_thread_address(server);
    const double begin_s = ls_clock_monotonic_s();
    assert_int_equal(try_connect(address, "something else", 3, 30, &store), LS_ERR_INVALID);
    assert_error_says("wrong token");
    assert_int_equal(try_connect(address, "", 3, 30, &store), LS_ERR_INVALID);
    assert_error_says("wrong token");
    assert_int_equal(try_connect(address, TOKEN, 2, 30, &store), LS_ERR_INVALID);
    assert_error_says("epoch 2 is over: the job is at epoch 3");
    assert_int_equal(try_connect(address, TOKEN, 4, 30, &store), LS_ERR_INVALID);
    assert_error_says("epoch 4 has not begun");
    assert_true(ls_clock_monotonic_s() - begin_s < 10); /* not tried again */
    assert_null(store);
}

static void store_connect_names_what_is_wrong_with_an_address(void **state)
{
    (void)state;
    ls_store *store = NULL;
    const char *const bad[] = {
        "", "nonsense", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:99999", "::1:80", "unix:"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(try_connect(bad[i], "", 0, 1, &store), LS_ERR_INVALID);
    }
    assert_int_equal(try_connect("127.0.0.1:1", "", 0, 0.2, &store), LS_ERR_TIMEOUT);
    assert_error_says("no coordinator within 0.2 s");
    assert_error_says("refused");
    assert_int_equal(try_connect("unix:/nowhere/at/all", "", 0, 0.1, &store), LS_ERR_TIMEOUT);
    assert_null(store);
}

static void store_server_names_a_taken_port(void **state)
{
    (void)state;
    ls_store_thread *second = NULL;
    const ls_store_server_options options = {.address = ls_store_thread_address(server), .token = TOKEN};
    assert_int_equal(ls_store_thread_start(&options, &second), LS_ERR_INVALID);
    assert_error_says(strrchr(options.address, ':') + 1);
    assert_error_says("is taken by another program");
    assert_error_says("for instance ");
    assert_null(second);
}

static void store_server_without_token_serves_this_host_alone(void **state)
{
    (void)state;
    ls_store_thread *other = NULL;
    ls_store *store = NULL;
    char address[128];
    ls_store_server_options options = {.address = "0.0.0.0:0", .token = ""};
    assert_int_equal(ls_store_thread_start(&options, &other), LS_ERR_INVALID);
    assert_error_says("LOCKSTEP_TOKEN");
    snprintf(address, sizeof address, "unix:/tmp/lockstep_store_%d", (int)getpid());
    options.address = address;
    assert_int_equal(ls_store_thread_start(&options, &other), LS_OK);
    assert_int_equal(try_connect(address, "", 0, 5, &store), LS_OK);
    assert_int_equal(ls_store_put(store, "k", "v", 1), LS_OK);
    ls_store_close(store);
    ls_store_thread_stop(other);
    assert_int_not_equal(access(address + 5, F_OK), 0); /* nothing left behind */
}

/* ---- what else may come to the port ---- */

static int raw_connect(void)
{
    ls_store_socket_address to;
    assert_int_equal(ls_store_address_find(ls_store_thread_address(server), &to), LS_OK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to.storage, to.bytes), 0);
    return fd;
}

/* Reads until the peer closes; false when it has not within `limit_s`. */
static bool is_closed_within(int fd, double limit_s)
{
    const double end_s = ls_clock_monotonic_s() + limit_s;
    char bytes[4096];
    while (ls_clock_monotonic_s() < end_s) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 100) > 0 && recv(fd, bytes, sizeof bytes, 0) <= 0) {
            return true;
        }
    }
    return false;
}

static void store_server_closes_strangers(void **state)
{
    (void)state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    unsigned char garbage[256] = {200}, half[20] = {100};
    for (size_t i = 4; i < sizeof garbage; i++) {
        garbage[i] = (unsigned char)(i * 37);
    }
    const int browser = raw_connect(), noise = raw_connect(), stalled = raw_connect(), silent = raw_connect();
    assert_int_equal(send(browser, http, sizeof http - 1, MSG_NOSIGNAL), sizeof http - 1);
    assert_int_equal(send(noise, garbage, 204, MSG_NOSIGNAL), 204);
    assert_int_equal(send(stalled, half, sizeof half, MSG_NOSIGNAL), sizeof half);
    assert_true(is_closed_within(browser, 2));
    assert_true(is_closed_within(noise, 2));
    ls_store *a = connect_client(); /* others are served all the while */
    assert_int_equal(ls_store_put(a, "k", "v", 1), LS_OK);
    assert_true(is_closed_within(stalled, LS_STORE_HELLO_S + 5));
    assert_true(is_closed_within(silent, 5));
    assert_int_equal(ls_store_put(a, "k", "v", 1), LS_OK);
    ls_store_close(a);
    close(browser), close(noise), close(stalled), close(silent);
}

/* Not a server of the store: sends `text` to the first client and closes. */
typedef struct imposter {
    int fd;
    const char *text;
    char address[32];
} imposter;

static void *be_imposter(void *context)
{
    imposter *self = context;
    const int fd = accept(self->fd, NULL, NULL);
    if (fd >= 0) {
        char heard[64];
        (void)!write(fd, self->text, strlen(self->text));
        while (read(fd, heard, sizeof heard) > 0) { /* until the client has read enough */
        }
        close(fd);
    }
    return NULL;
}

static void store_client_names_a_stranger(void **state)
{
    (void)state;
    imposter self = {.fd = socket(AF_INET, SOCK_STREAM, 0), .text = "SSH-2.0-OpenSSH_9.2\r\n"};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    pthread_t thread;
    ls_store *store = NULL;
    assert_int_equal(bind(self.fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(self.fd, 4), 0);
    assert_int_equal(getsockname(self.fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(self.address, sizeof self.address, "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, be_imposter, &self), 0);
    assert_int_equal(try_connect(self.address, TOKEN, 3, 10, &store), LS_ERR_INVALID);
    assert_error_says("does not speak lockstep's protocol");
    assert_error_says("SSH-2.0-OpenSSH");
    pthread_join(thread, NULL);
    close(self.fd);
}

static void store_client_names_a_server_that_is_gone(void **state)
{
    (void)state;
    ls_store *a = connect_client();
    char value[8];
    size_t bytes = 0;
    assert_int_equal(ls_store_put(a, "k", "v", 1), LS_OK);
    ls_store_thread_stop(server);
    server = NULL;
    const double begin_s = ls_clock_monotonic_s();
    assert_int_equal(ls_store_get(a, "k", 30, value, sizeof value, &bytes), LS_ERR_RANKS_LOST);
    assert_error_says("went away");
    assert_true(ls_clock_monotonic_s() - begin_s < LS_STORE_RECONNECT_S + 2);
    assert_int_equal(ls_store_put(a, "k", "v", 1), LS_ERR_RANKS_LOST); /* and for good */
    assert_error_says("went away");
    ls_store_close(a);
}

/* A client whose link breaks continues over a new one: the counter counts each add once. */
static void store_client_reconnects(void **state)
{
    (void)state;
    ls_store *a = connect_client();
    int64_t number = 0;
    for (int i = 1; i <= 20; i++) {
        if (i % 4 == 0) {
            shutdown(ls_store_fd(a), i % 8 ? SHUT_RDWR : SHUT_RD);
        }
        assert_int_equal(ls_store_add(a, "n", 1, &number), LS_OK);
        assert_int_equal(number, i);
    }
    ls_store_close(a);
}

enum { CLIENTS = 200, PROCESSES = 4 };

/* Each of 200 clients in 4 processes counts itself, waits for the last and reads the others'
 * values. */
static int be_clients(const char *address, int process)
{
    static ls_store *stores[CLIENTS / PROCESSES];
    char key[32], value[32];
    size_t bytes = 0;
    int64_t number = 0;
    for (int i = 0; i < CLIENTS / PROCESSES; i++) {
        const int id = process * (CLIENTS / PROCESSES) + i;
        snprintf(key, sizeof key, "client/%d", id);
        if (try_connect(address, TOKEN, 3, 30, &stores[i]) != LS_OK ||
            ls_store_put(stores[i], key, key, strlen(key)) != LS_OK ||
            ls_store_add(stores[i], "came", 1, &number) != LS_OK ||
            (number == CLIENTS && ls_store_put(stores[i], "all", "", 0) != LS_OK)) {
            fprintf(stderr, "%s\n", ls_error_text());
            return 1;
        }
    }
    for (int i = 0; i < CLIENTS / PROCESSES; i++) {
        snprintf(key, sizeof key, "client/%d", (process * 31 + i * 7) % CLIENTS);
        if (ls_store_get(stores[i], "all", 30, value, sizeof value, &bytes) != LS_OK ||
            ls_store_get(stores[i], key, 0, value, sizeof value, &bytes) != LS_OK || bytes != strlen(key) ||
            memcmp(value, key, bytes) != 0) {
            fprintf(stderr, "%s\n", ls_error_text());
            return 1;
        }
        ls_store_close(stores[i]);
    }
    return 0;
}

/* Forked while there is one thread, so that no lock is held in the child; they wait for the
 * address. */
static void start_clients(pid_t children[PROCESSES], int address_pipe[2])
{
    assert_int_equal(pipe(address_pipe), 0);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            char address[64] = "";
            alarm(60);
            _exit(read(address_pipe[0], address, sizeof address) > 0 ? be_clients(address, i) : 2);
        }
    }
}

static void store_serves_200_clients(void **state)
{
    (void)state;
    pid_t children[PROCESSES];
    int address_pipe[2];
    char address[64] = "";
    start_clients(children, address_pipe);
    start_server(3);
    snprintf(address, sizeof address, "%s", ls_store_thread_address(server));
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(write(address_pipe[1], address, sizeof address), sizeof address);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    close(address_pipe[0]);
    close(address_pipe[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(store_put_get_add, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_refuses_bad_requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_get_waits_and_times_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_get_is_woken_by_a_put, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_names_wrong_token_and_epoch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_connect_names_what_is_wrong_with_an_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_server_names_a_taken_port, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_server_without_token_serves_this_host_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_server_closes_strangers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_client_names_a_stranger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_client_names_a_server_that_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(store_client_reconnects, set_up, tear_down),
        cmocka_unit_test_teardown(store_serves_200_clients, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

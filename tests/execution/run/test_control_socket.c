// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "execution/run/control_socket.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A run directory whose path is too long for a socket, and a runtime folder. */
typedef struct world {
    ls_arena arena;
    char root[64];
    const char *run, *runtime;
    ls_control_actions actions;
    _Atomic uint32_t ranks, leaver, saves, stops;
} world;

static json_t *give_status(void *context)
{
    const world *w = context;
    return json_pack("{s:i}", "ranks", (int)atomic_load(&w->ranks));
}
static ls_status take_ranks(void *context, uint32_t ranks)
{
    world *w = context;
    if (ranks > 4) {
        return ls_fail(LS_ERR_INVALID, "%u ranks; 1 to 4 are possible", ranks);
    }
    atomic_store(&w->ranks, ranks);
    return LS_OK;
}
static ls_status take_leaver(void *context, uint32_t rank)
{
    atomic_store(&((world *)context)->leaver, rank);
    return LS_OK;
}
static ls_status take_save(void *context)
{
    atomic_fetch_add(&((world *)context)->saves, 1);
    return LS_OK;
}
static ls_status take_stop(void *context)
{
    atomic_fetch_add(&((world *)context)->stops, 1);
    return LS_OK;
}

static int world_setup(void **state)
{
    world *w = calloc(1, sizeof *w);
    strcpy(w->root, "/tmp/lockstep-control-XXXXXX");
    if (!mkdtemp(w->root)) {
        return -1;
    }
    char deep[160];
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    w->run = ls_path_join(&w->arena, w->root, deep);
    w->runtime = ls_path_join(&w->arena, w->root, "runtime");
    if (ls_dir_create(w->run) != LS_OK || ls_dir_create(w->runtime) != LS_OK ||
        ls_file_write_atomic(ls_path_join(&w->arena, w->run, "run.yaml"), "name: x\n", 8) != LS_OK) {
        return -1;
    }
    setenv("XDG_RUNTIME_DIR", w->runtime, 1);
    w->actions = (ls_control_actions){.context = w,
                                      .status = give_status,
                                      .resize = take_ranks,
                                      .leave = take_leaver,
                                      .checkpoint = take_save,
                                      .stop = take_stop};
    atomic_store(&w->ranks, 2);
    *state = w;
    return 0;
}

static int world_teardown(void **state)
{
    world *w = *state;
    unsetenv("XDG_RUNTIME_DIR");
    const ls_status status = ls_dir_remove(w->root);
    ls_arena_release(&w->arena);
    free(w);
    return status == LS_OK ? 0 : -1;
}

/* The answer's member `ok`. text: the request. */
static bool ask(world *w, const char *text, char error_out[128])
{
    json_t *request = json_loads(text, 0, NULL), *answer = NULL;
    assert_non_null(request);
    assert_int_equal(ls_control_socket_ask(w->run, request, 10.0, &answer), LS_OK);
    const char *error = json_string_value(json_object_get(answer, "error"));
    snprintf(error_out, 128, "%s", error ? error : "");
    const bool ok = json_is_true(json_object_get(answer, "ok"));
    json_decref(request);
    json_decref(answer);
    return ok;
}

static size_t sockets_in(world *w)
{
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(ls_dir_list(&w->arena, ls_path_join(&w->arena, w->runtime, "lockstep"), &names, &count),
                     LS_OK);
    return count;
}

static void control_socket_does_what_is_asked(void **state)
{
    world *w = *state;
    ls_control_socket *control = NULL;
    char error[128];
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    assert_true(ask(w, "{\"request\": \"status\"}", error));
    assert_true(ask(w, "{\"request\": \"resize\", \"ranks\": 3}", error));
    assert_int_equal(atomic_load(&w->ranks), 3);
    assert_true(ask(w, "{\"request\": \"leave\", \"rank\": 0}", error));
    assert_true(ask(w, "{\"request\": \"checkpoint\"}", error));
    assert_true(ask(w, "{\"request\": \"stop\"}", error));
    assert_int_equal(atomic_load(&w->saves), 1);
    assert_int_equal(atomic_load(&w->stops), 1);
    assert_false(ask(w, "{\"request\": \"resize\", \"ranks\": 5}", error));
    assert_string_equal(error, "5 ranks; 1 to 4 are possible");
    assert_int_equal(atomic_load(&w->ranks), 3);
    assert_false(ask(w, "[1]", error));
    ls_control_socket_close(control);
    ls_control_socket_close(NULL);
    assert_int_equal(sockets_in(w), 0);
}

static void control_socket_is_private(void **state)
{
    world *w = *state;
    ls_control_socket *control = NULL;
    struct stat info;
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    const char *folder = ls_path_join(&w->arena, w->runtime, "lockstep");
    assert_int_equal(lstat(folder, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    ls_control_socket_close(control);
    /* A folder that other users may enter is not used; the private one in /tmp is used instead. */
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    assert_int_equal(sockets_in(w), 0);
    char error[128];
    assert_true(ask(w, "{\"request\": \"status\"}", error));
    ls_control_socket_close(control);
}

/* A socket left by a killed process does no harm, and is removed. */
static void control_socket_sweeps_what_was_left(void **state)
{
    world *w = *state;
    const pid_t pid = fork();
    if (pid == 0) {
        ls_control_socket *control = NULL;
        /* without closing */
        _exit(ls_control_socket_open(w->run, &w->actions, &control) == LS_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(sockets_in(w), 1);
    json_t *request = json_pack("{s:s}", "request", "status"), *answer = NULL;
    assert_int_equal(ls_control_socket_ask(w->run, request, 10.0, &answer), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "no process is training"));
    json_decref(request);
    assert_null(answer);
    ls_control_socket *control = NULL;
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    assert_int_equal(sockets_in(w), 1);
    ls_control_socket_close(control);
}

/* A socket at `name` that is bound and does not listen, as that of a process that is starting. */
static const char *bind_only(world *w, const char *name, int *fd_out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = ls_path_join(&w->arena, ls_path_join(&w->arena, w->runtime, "lockstep"), name);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    *fd_out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*fd_out, (struct sockaddr *)&address, sizeof address), 0);
    return path;
}

/* One process must not remove the socket of another that has not come to listen yet. */
static void control_socket_sweep_spares_who_is_starting(void **state)
{
    world *w = *state;
    ls_control_socket *control = NULL;
    int young_fd, old_fd;
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    ls_control_socket_close(control);
    const char *young = bind_only(w, "1-00000001.new", &young_fd);
    const char *old = bind_only(w, "1-00000002.new", &old_fd);
    const struct timespec long_ago[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, old, long_ago, 0), 0);
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    assert_true(ls_path_exists(young));
    assert_false(ls_path_exists(old));
    ls_control_socket_close(control);
    close(young_fd);
    close(old_fd);
}

/* The end of a run must not depend on a file that another process may remove. */
static void control_socket_closes_without_its_file(void **state)
{
    world *w = *state;
    ls_control_socket *control = NULL;
    assert_int_equal(ls_control_socket_open(w->run, &w->actions, &control), LS_OK);
    assert_int_equal(ls_dir_remove(ls_path_join(&w->arena, w->runtime, "lockstep")), LS_OK);
    alarm(60); /* ends this test if it hangs */
    ls_control_socket_close(control);
    alarm(0);
}

static void control_socket_ask_says_who_is_not_there(void **state)
{
    world *w = *state;
    json_t *request = json_pack("{s:s}", "request", "status"), *answer = NULL;
    assert_int_equal(ls_control_socket_ask(w->run, request, 10.0, &answer), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "lockstep train"));
    assert_int_equal(ls_control_socket_ask(w->root, request, 10.0, &answer), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "is not a run directory"));
    const char *file = ls_path_join(&w->arena, w->run, "control");
    assert_int_equal(ls_file_write_atomic(file, "http://x\n", 9), LS_OK);
    assert_int_equal(ls_control_socket_ask(w->run, request, 10.0, &answer), LS_ERR_DATA);
    assert_int_equal(ls_file_write_atomic(file, "unix:/nowhere/at/all\n", 21), LS_OK);
    assert_int_equal(ls_control_socket_ask(w->run, request, 10.0, &answer), LS_ERR_NOT_FOUND);
    json_decref(request);
    assert_null(answer);
}

static void control_request_read_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "7",
                                      "{}",
                                      "{\"request\": 7}",
                                      "{\"request\": \"fly\"}",
                                      "{\"request\": \"resize\"}",
                                      "{\"request\": \"resize\", \"ranks\": 0}",
                                      "{\"request\": \"resize\", \"ranks\": -1}",
                                      "{\"request\": \"resize\", \"ranks\": 1048577}",
                                      "{\"request\": \"resize\", \"ranks\": 2.0}",
                                      "{\"request\": \"resize\", \"ranks\": \"2\"}",
                                      "{\"request\": \"leave\"}",
                                      "{\"request\": \"stop\", \"request\": \"status\"}",
                                      "{\"request\": \"stop\"} x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_control_request request = {.verb = LS_CONTROL_VERBS, .number = 99};
        assert_int_equal(ls_control_request_read(bad[i], strlen(bad[i]), &request), LS_ERR_INVALID);
        assert_int_equal(request.verb, LS_CONTROL_VERBS);
        assert_int_equal(request.number, 99);
    }
    ls_control_request request;
    static const char good[] = "{\"request\": \"leave\", \"rank\": 1048576}";
    assert_int_equal(ls_control_request_read(good, sizeof good - 1, &request), LS_OK);
    assert_int_equal(request.verb, LS_CONTROL_LEAVE);
    assert_int_equal(request.number, 1048576);
    char *long_one = calloc(1, LS_CONTROL_REQUEST_BYTES_MAX + 1);
    memset(long_one, ' ', LS_CONTROL_REQUEST_BYTES_MAX + 1);
    memcpy(long_one, good, sizeof good - 1);
    assert_int_equal(ls_control_request_read(long_one, LS_CONTROL_REQUEST_BYTES_MAX, &request), LS_OK);
    assert_int_equal(ls_control_request_read(long_one, LS_CONTROL_REQUEST_BYTES_MAX + 1, &request),
                     LS_ERR_INVALID);
    free(long_one);
}

#define world_case(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_case(control_socket_does_what_is_asked),
        world_case(control_socket_is_private),
        world_case(control_socket_sweeps_what_was_left),
        world_case(control_socket_ask_says_who_is_not_there),
        world_case(control_socket_sweep_spares_who_is_starting),
        world_case(control_socket_closes_without_its_file),
        cmocka_unit_test(control_request_read_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

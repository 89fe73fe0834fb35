// SPDX-License-Identifier: Apache-2.0
#include "execution/run/control_socket.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "env/env.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATH_BYTES = sizeof((struct sockaddr_un *)0)->sun_path, ADDRESS_FILE_BYTES_MAX = 4096 };

#define NEW_SUFFIX ".new" /* of a socket that does not listen yet */

struct ls_control_socket {
    ls_arena arena;
    ls_control_actions actions;
    const char *file; /* RUN/control */
    char path[PATH_BYTES];
    ls_env *env;
    ls_env_id listener;
    pthread_t thread;
    _Atomic bool ends;
};

/* ---- where sockets are ---- */

/* Makes the folder if needed. Whether only this user can enter it. */
static bool is_private(const char *folder)
{
    struct stat info;
    return (mkdir(folder, 0700) == 0 || errno == EEXIST) && lstat(folder, &info) == 0 &&
           S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

static ls_status find_folder(char folder_out[PATH_BYTES])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    enum { NAME_BYTES = 40 }; /* of a socket in it */
    if (runtime && runtime[0] == '/' && strlen(runtime) + NAME_BYTES < PATH_BYTES) {
        snprintf(folder_out, PATH_BYTES, "%s/lockstep", runtime);
        if (is_private(folder_out)) {
            return LS_OK;
        }
    }
    snprintf(folder_out, PATH_BYTES, "/tmp/lockstep-%u", (unsigned)geteuid());
    return is_private(folder_out)
               ? LS_OK
               : ls_fail(LS_ERR_IO,
                         "the folder %s for sockets cannot be created, or other users have access to it: "
                         "remove it, or set XDG_RUNTIME_DIR to another folder",
                         folder_out);
}

/* The address of the socket at `path`; false if the path is too long for one. */
static bool to_address(const char *path, struct sockaddr_un *address_out)
{
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address_out->sun_path) {
        return false;
    }
    memcpy(address_out->sun_path, path, strlen(path) + 1);
    return true;
}

/* Connects to the socket and closes the connection at once. Returns 0 or an errno value. */
static int knock(const char *path)
{
    struct sockaddr_un address;
    const int fd =
        to_address(path, &address) ? socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    const int error = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0
                      : fd >= 0                                                                ? errno
                                                                                               : EINVAL;
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

/* Whether the process that made the socket was killed: connections are refused. A socket that does
 * not listen yet refuses them, too; such a one has another name, and only for a moment. */
static bool is_abandoned(const char *path)
{
    enum { BIRTH_S = 60 };
    struct stat info;
    if (ls_path_has_suffix(path, NEW_SUFFIX)) {
        return lstat(path, &info) == 0 && ls_clock_wall_s() - (double)info.st_mtime > BIRTH_S;
    }
    return ls_path_has_suffix(path, ".sock") && knock(path) == ECONNREFUSED;
}

static void sweep(ls_arena *arena, const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    if (ls_dir_list(arena, folder, &names, &count) != LS_OK) {
        ls_error_clear();
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const char *path = ls_path_join(arena, folder, names[i]);
        if (is_abandoned(path)) {
            unlink(path);
        }
    }
}

/* ---- serving ---- */

static void on_opened(void *context, ls_env_id link)
{
    (void)context, (void)link;
}

static void on_received(void *context, ls_env_id link, const void *data, size_t bytes)
{
    ls_control_socket *socket = context;
    json_t *answer = ls_control_request_answer(&socket->actions, data, bytes);
    char *text = json_dumps(answer, JSON_COMPACT);
    if (!text || ls_env_net_send(socket->env, link, text, strlen(text)) != 0) {
        ls_env_net_close(socket->env, link);
    }
    free(text);
    json_decref(answer);
}

static void on_closed(void *context, ls_env_id link, int error)
{
    (void)context, (void)link, (void)error;
}

static void *serve(void *context)
{
    ls_control_socket *socket = context;
    while (!atomic_load(&socket->ends)) {
        ls_env_poll(socket->env, UINT64_MAX);
    }
    return NULL;
}

static ls_status start_thread(ls_control_socket *socket)
{
    sigset_t all, before; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&socket->thread, NULL, serve, socket);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? ls_fail_errno(error,
                                 "cannot start the thread that answers requests to this run (control socket)")
                 : LS_OK;
}

/* The socket gets its name once it listens: nobody else takes it for one that was left. */
static ls_status listen_as(ls_control_socket *socket)
{
    const ls_env_link_events events = {
        .context = socket, .opened = on_opened, .received = on_received, .closed = on_closed};
    const char *address = ls_arena_printf(&socket->arena, "unix:%s" NEW_SUFFIX, socket->path);
    const int error = ls_env_net_listen(socket->env, address, &events, &socket->listener);
    if (error != 0) {
        return ls_fail_errno(-error, "cannot listen for requests to this run at the socket %s", socket->path);
    }
    return rename(address + strlen("unix:"), socket->path) == 0
               ? LS_OK
               : ls_fail_errno(errno, "cannot create the socket %s, through which requests reach this run",
                               socket->path);
}

static ls_status listen_at(ls_control_socket *socket)
{
    char folder[PATH_BYTES];
    LS_TRY(find_folder(folder));
    sweep(&socket->arena, folder);
    LS_TRY(ls_env_real_create(&socket->env));
    const int room = snprintf(socket->path, sizeof socket->path, "%.80s/%d-%08x.sock", folder, (int)getpid(),
                              (unsigned)ls_env_random_u64(socket->env));
    if (room + sizeof NEW_SUFFIX > sizeof socket->path) {
        return ls_fail(LS_ERR_INVALID,
                       "the path of the folder %s is too long for a socket: set XDG_RUNTIME_DIR to a folder "
                       "with a shorter path",
                       folder);
    }
    LS_TRY(listen_as(socket));
    const char *line = ls_arena_printf(&socket->arena, "unix:%s\n", socket->path);
    return ls_file_write_atomic(socket->file, line, strlen(line));
}

static void release(ls_control_socket *socket)
{
    if (socket->env) {
        ls_env_net_close(socket->env, socket->listener);
        ls_env_real_destroy(socket->env);
        unlink(socket->path);
    }
    ls_arena_release(&socket->arena);
    free(socket);
}

ls_status ls_control_socket_open(const char *run_dir, const ls_control_actions *actions,
                                 ls_control_socket **socket_out)
{
    ls_control_socket *socket = calloc(1, sizeof *socket);
    if (!socket) {
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory for the socket that other commands reach this run through");
    }
    socket->actions = *actions;
    socket->file = ls_path_join(&socket->arena, run_dir, "control");
    ls_status status = listen_at(socket);
    if (status == LS_OK) {
        status = start_thread(socket);
    }
    if (status != LS_OK) {
        unlink(socket->file);
        release(socket);
        return status;
    }
    *socket_out = socket;
    return LS_OK;
}

void ls_control_socket_close(ls_control_socket *socket)
{
    if (!socket) {
        return;
    }
    unlink(socket->file);
    atomic_store(&socket->ends, true);
    ls_env_real_wake(socket->env);
    pthread_join(socket->thread, NULL);
    release(socket);
}

/* ---- asking ---- */

typedef struct asker {
    ls_env *env;
    const char *question;
    json_t *answer;
    ls_status status; /* LS_ERR_IO until there is an answer */
    int error;
} asker;

static void on_connected(void *context, ls_env_id link)
{
    asker *a = context;
    if (ls_env_net_send(a->env, link, a->question, strlen(a->question)) != 0) {
        ls_env_stop(a->env, 0);
    }
}

static void on_answer(void *context, ls_env_id link, const void *data, size_t bytes)
{
    asker *a = context;
    (void)link;
    a->status = ls_json_parse(data, bytes, "the answer of the run", &a->answer);
    ls_env_stop(a->env, 0);
}

static void on_refused(void *context, ls_env_id link, int error)
{
    asker *a = context;
    (void)link;
    a->error = -error;
    ls_env_stop(a->env, 0);
}

static void on_timeout(void *context)
{
    asker *a = context;
    a->status = LS_ERR_TIMEOUT;
    ls_env_stop(a->env, 0);
}

static ls_status fail_to_ask(const asker *a, const char *run_dir, double timeout_s)
{
    if (a->status == LS_ERR_TIMEOUT) {
        return ls_fail(a->status, "the run in %s did not answer within %g s: 'lockstep diagnose' shows why",
                       run_dir, timeout_s);
    }
    if (a->status == LS_ERR_DATA) {
        return a->status;
    }
    return ls_fail(LS_ERR_NOT_FOUND, "no process is training in %s any more (%s)", run_dir,
                   strerror(a->error));
}

static ls_status ask(const char *address, const char *question, const char *run_dir, double timeout_s,
                     json_t **answer_out)
{
    asker a = {.question = question, .status = LS_ERR_IO, .error = ECONNRESET};
    LS_TRY(ls_env_real_create(&a.env));
    const ls_env_link_events events = {
        .context = &a, .opened = on_connected, .received = on_answer, .closed = on_refused};
    ls_env_timer_set(a.env, (uint64_t)(1e9 * timeout_s), on_timeout, &a);
    (void)ls_env_net_connect(a.env, address, &events);
    ls_env_run(a.env);
    ls_env_real_destroy(a.env);
    if (a.status != LS_OK) {
        return fail_to_ask(&a, run_dir, timeout_s);
    }
    if (!json_is_object(a.answer)) {
        json_decref(a.answer);
        return ls_fail(LS_ERR_DATA, "the answer of the run in %s is not a JSON object", run_dir);
    }
    *answer_out = a.answer;
    return LS_OK;
}

/* Says why there is no RUN/control. */
static ls_status explain_absence(ls_arena *arena, const char *run_dir)
{
    if (!ls_path_exists(ls_path_join(arena, run_dir, "run.yaml"))) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a run directory: it has no run.yaml", run_dir);
    }
    return ls_fail(LS_ERR_NOT_FOUND, "no process is training in %s: start one with 'lockstep train'",
                   run_dir);
}

ls_status ls_control_socket_ask(const char *run_dir, const json_t *request, double timeout_s,
                                json_t **answer_out)
{
    ls_arena arena = {0};
    char *address = NULL, *question = json_dumps(request, JSON_COMPACT);
    size_t bytes = 0;
    ls_status status = question ? ls_file_read(&arena, ls_path_join(&arena, run_dir, "control"),
                                               ADDRESS_FILE_BYTES_MAX, &address, &bytes)
                                : ls_fail(LS_ERR_MEMORY, "not enough memory for a request to the run");
    if (status == LS_ERR_NOT_FOUND) {
        status = explain_absence(&arena, run_dir);
    } else if (status == LS_OK) {
        address[strcspn(address, "\n")] = '\0';
        status = strncmp(address, "unix:/", 6) == 0
                     ? ask(address, question, run_dir, timeout_s, answer_out)
                     : ls_fail(LS_ERR_DATA,
                               "the file %s/control does not hold the address of the run's socket: it is "
                               "damaged, and requests cannot reach the run",
                               run_dir);
    }
    free(question);
    ls_arena_release(&arena);
    return status;
}

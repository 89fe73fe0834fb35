// SPDX-License-Identifier: Apache-2.0
/*
 * The API server over real sockets, with verbs answered here. A child process runs the loop; this
 * process plays the client, the stranger and the slow client.
 */
#include "test.h"

#include "base/file.h"
#include "base/text.h"
#include "env/env.h"
#include "env/http/http_server.h"
#include "env/user/user_files.h"
#include "hanging_mount.h"
#include "orchestration/api/server.h"
#include "orchestration/api/tokens.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS    60000
#define FILES_LIMIT_NS UINT64_C(5000000000)

static char home[64];
static pid_t server;
static char token[80];
static int port;

/* ---- the server's side, in the child ---- */

typedef struct pending {
    ls_env *env;
    ls_controller_reply reply;
    void *context;
    json_t *answer;
    int status;
} pending;

static ls_api *api;
static ls_env *child_env;
static ls_user_files *child_files;
static int open_calls;

static void deliver(void *context)
{
    pending *p = context;
    open_calls--;
    p->reply(p->context, p->status, p->answer);
    json_decref(p->answer);
    free(p);
}

/* The folder of job 4's run is one that never answers, where there can be such a thing. */
static json_t *job_json(int64_t job)
{
    char run_dir[96];
    snprintf(run_dir, sizeof run_dir, "%s%s", home, job == 4 ? "/hangs" : "");
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:i, s:n, s:i, s:i, s:s}", "job", (json_int_t)job, "name",
                     "<b>one</b>", "state", job == 2 ? "SUCCEEDED" : "RUNNING", "account", "a\"b", "priority",
                     "normal", "ranks", 2, "why", "uid", (int)getuid(), "gid", (int)getgid(), "run_dir",
                     run_dir);
}

/* Answers from the loop, as the end of a turn does. Job 2 has ended, 3 is another user's, 8 is
 * beyond a limit, 9 is never answered. */
static void answer_call(void *context, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                        ls_controller_reply reply, void *reply_context)
{
    (void)context;
    pending *p = calloc(1, sizeof *p);
    assert_non_null(p);
    const int64_t job = (int64_t)json_integer_value(json_object_get(arguments, "job"));
    *p = (pending){.reply = reply, .context = reply_context, .status = 200};
    if (verb == LS_VERB_SUBMIT) {
        p->status = 201;
        p->answer = json_pack("{s:i, s:s, s:O, s:i, s:s}", "job", 7, "state", "QUEUED", "request", arguments,
                              "uid", (int)caller->uid, "user", caller->user);
    } else if (verb == LS_VERB_SHOW && job == 3) {
        p->status = 403;
        p->answer = json_pack("{s:s}", "error", "job 3 is another user's");
    } else if (verb == LS_VERB_SHOW && job == 8) {
        p->status = 429;
        p->answer = json_pack("{s:s}", "error", "too many");
    } else if (verb == LS_VERB_SHOW) {
        p->answer = job_json(job);
    } else if (verb == LS_VERB_LIST) {
        p->answer = json_pack("{s:[o, o]}", "jobs", job_json(4), job_json(1));
    } else {
        p->answer = json_pack("{s:s, s:{s:i}, s:[{s:s, s:s, s:i, s:i}], s:[], s:[]}", "version", "x",
                              "states", "RUNNING", 1, "nodes", "node", "n\\0", "state", "up", "devices", 2,
                              "used", 1, "accounts", "events");
    }
    open_calls++;
    if (job != 9) {
        ls_env_timer_set(child_env, 1000000, deliver, p);
    } else {
        json_decref(p->answer);
        free(p);
    }
}

static void forget_call(void *context, void *reply_context)
{
    (void)context, (void)reply_context;
    open_calls--;
}

static bool may_read(void *context, const ls_caller *caller, uint64_t job)
{
    (void)context;
    return caller->is_admin && job != 3;
}

static void stop_server(void *context)
{
    (void)context;
    ls_env_stop(child_env, 0);
}

/* More than a listener may leave unread, in one go. */
static void tell_much(void *context)
{
    (void)context;
    static char text[8192];
    memset(text, 'x', sizeof text - 1);
    ls_job job = {.id = 2, .account = "a", .spec.name = "much", .ranks = 1};
    const ls_transition t = {.job = 2, .epoch = 1, .to = LS_JOB_RUNNING, .time_s = 5.0, .text = text};
    for (int i = 0; i < 200; i++) {
        ls_api_tell(api, &t, &job);
    }
}

static void tell_one(void *context)
{
    (void)context;
    static int64_t number;
    ls_job job = {.id = 2, .account = "a", .spec.name = "one\nline", .ranks = 1};
    const ls_transition t = {.job = ++number % 2 == 0 ? 3 : 2,
                             .epoch = 1,
                             .from = LS_JOB_RUNNING,
                             .to = LS_JOB_SUCCEEDED,
                             .time_s = 5.0,
                             .text = ""};
    ls_api_tell(api, &t, &job);
    ls_env_timer_set(child_env, 20 * 1000000, tell_one, NULL);
}

static int run_server(void)
{
    if (ls_env_real_create(&child_env) != LS_OK) {
        return 2;
    }
    ls_env_signal_watch(child_env, SIGTERM, stop_server, NULL);
    ls_env_signal_watch(child_env, SIGUSR1, tell_much, NULL);
    if (ls_user_files_create(child_env, FILES_LIMIT_NS, &child_files) != LS_OK) {
        return 2;
    }
    const ls_api_settings settings = {
        .env = child_env,
        .home = home,
        .files = child_files,
        .listen = "127.0.0.1:0",
        .all_users = true,
        .request_s = 1.0,
        .calls = {.call = answer_call, .forget = forget_call, .may_read = may_read}};
    if (ls_api_create(&settings, &api) != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
        return 3;
    }
    ls_env_timer_set(child_env, 20 * 1000000, tell_one, NULL);
    ls_env_run(child_env);
    ls_api_destroy(api);
    ls_user_files_destroy(child_files);
    ls_env_real_destroy(child_env);
    return open_calls == 0 ? 0 : 4; /* what was asked was answered or forgotten */
}

/* ---- the client's side ---- */

static int connect_unix(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", home);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int connect_tcp(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Reads until the end, or until `until` is there. */
static void read_answer(int fd, const char *until, ls_text *out)
{
    char block[65536];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (until && strstr(ls_text_string(out), until)) {
            return;
        }
        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        const ssize_t bytes = recv(fd, block, sizeof block, 0);
        if (bytes <= 0) {
            return;
        }
        ls_text_append_bytes(out, block, (size_t)bytes);
    }
}

static void ask(int fd, const char *head, const char *body, ls_text *answer)
{
    ls_text text = {0};
    ls_text_printf(&text, "%s\r\nConnection: close\r\n", head);
    if (body) {
        ls_text_printf(&text, "Content-Length: %zu\r\n", strlen(body));
    }
    ls_text_printf(&text, "\r\n%s", body ? body : "");
    assert_int_equal(send(fd, text.data, text.bytes, MSG_NOSIGNAL), text.bytes);
    ls_text_release(&text);
    ls_text_clear(answer);
    read_answer(fd, NULL, answer);
    close(fd);
}

static void expect(int fd, const char *head, const char *body, int code, const char *holds)
{
    ls_text answer = {0};
    char line[32];
    ask(fd, head, body, &answer);
    snprintf(line, sizeof line, "HTTP/1.1 %d ", code);
    const char *text = ls_text_string(&answer);
    if (strncmp(text, line, strlen(line)) != 0 || !strstr(text, holds)) {
        fail_msg("%s\nwanted %d and '%s', got:\n%s", head, code, holds, text);
    }
    ls_text_release(&answer);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(home, sizeof home, "/tmp/lockstep_api_XXXXXX");
    assert_non_null(mkdtemp(home));
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        _exit(run_server());
    }
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0;
    const char *address = ls_path_join(&arena, home, "address");
    for (int i = 0; i < PATIENCE_MS / 10 && !ls_path_exists(address); i++) {
        usleep(10000);
        assert_int_equal(waitpid(server, NULL, WNOHANG), 0);
    }
    assert_int_equal(ls_file_read(&arena, address, 200, &text, &bytes), LS_OK);
    port = atoi(strrchr(text, ':') + 1);
    assert_int_equal(ls_file_read(&arena, ls_path_join(&arena, home, "token"), 200, &text, &bytes), LS_OK);
    snprintf(token, sizeof token, "%.*s", (int)strcspn(text, "\n"), text);
    ls_arena_release(&arena);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int status = 0;
    kill(server, SIGTERM);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    assert_int_equal(ls_dir_remove(home), LS_OK);
    return 0;
}

static void host_line(char *out, size_t bytes, const char *request)
{
    snprintf(out, bytes, "%s HTTP/1.1\r\nHost: 127.0.0.1:%d", request, port);
}

static void server_answers_over_both_doors(void **state)
{
    (void)state;
    char head[300];
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\":[{\"job\":4");
    host_line(head, sizeof head, "GET /v1/jobs/5");
    expect(connect_tcp(), head, NULL, 200, "\"job\":5");
    expect(connect_unix(), "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
           "{\"file\":\"a: 1\",\"directory\":\"/tmp\"}", 201,
           "\"request\":{\"file\":\"a: 1\",\"directory\":\"/tmp\"}");
    expect(connect_unix(), "GET /openapi.json HTTP/1.1\r\nHost: x", NULL, 200, "\"openapi\":\"3.1.0\"");
    expect(connect_unix(), "GET /metrics HTTP/1.1\r\nHost: x", NULL, 200,
           "lockstep_node_devices{node=\"n\\\\0\"} 2");
    expect(connect_unix(), "GET /v1/jobs/2/wait HTTP/1.1\r\nHost: x", NULL, 200, "SUCCEEDED");
    expect(connect_unix(), "GET /v1/jobs/1/wait?timeout_s=0 HTTP/1.1\r\nHost: x", NULL, 200, "RUNNING");
    expect(connect_unix(), "GET / HTTP/1.1\r\nHost: x", NULL, 200, "&lt;b&gt;one&lt;/b&gt;");
    expect(connect_unix(), "GET /jobs/2 HTTP/1.1\r\nHost: x", NULL, 200, "a&quot;b");
}

static void server_refuses_strangers(void **state)
{
    (void)state;
    char head[600];
    struct stat info;
    ls_text path = {0};
    ls_text_printf(&path, "%s/token", home);
    assert_int_equal(stat(ls_text_string(&path), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    ls_text_release(&path);

    /* A name that was bound anew, another site's page, a form of another site. */
    expect(connect_tcp(), "GET /v1/jobs HTTP/1.1\r\nHost: evil.example:80", NULL, 403, "Host header");
    expect(connect_tcp(), "GET /v1/jobs HTTP/1.0", NULL, 403, "Host header");
    host_line(head, sizeof head, "GET /v1/jobs");
    strncat(head, "\r\nOrigin: http://evil.example", sizeof head - strlen(head) - 1);
    expect(connect_tcp(), head, NULL, 403, "evil.example");
    host_line(head, sizeof head, "GET /v1/jobs");
    strncat(head, "\r\nSec-Fetch-Site: same-site", sizeof head - strlen(head) - 1);
    expect(connect_tcp(), head, NULL, 403, "another site");
    host_line(head, sizeof head, "GET /");
    strncat(head, "\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate",
            sizeof head - strlen(head) - 1);
    expect(connect_tcp(), head, NULL, 200, "<h1>The queue");
    host_line(head, sizeof head, "POST /v1/jobs/1/cancel");
    strncat(head, "\r\nContent-Type: application/x-www-form-urlencoded", sizeof head - strlen(head) - 1);
    expect(connect_tcp(), head, "a=b", 415, "application/json");

    host_line(head, sizeof head, "GET /v1/jobs");
    strncat(head,
            "\r\nAuthorization: Bearer 0000000000000000000000000000000000000000000000000000000000000000",
            sizeof head - strlen(head) - 1);
    expect(connect_tcp(), head, NULL, 401, "WWW-Authenticate: Bearer");
    host_line(head, sizeof head, "GET /v1/jobs");
    snprintf(head + strlen(head), sizeof head - strlen(head), "\r\nAuthorization: Bearer %s", token);
    expect(connect_tcp(), head, NULL, 200, "\"jobs\"");
    char request[200];
    snprintf(request, sizeof request, "GET /?token=%s", token);
    host_line(head, sizeof head, request);
    expect(connect_tcp(), head, NULL, 303, "Location: /\r\n");
    host_line(head, sizeof head, "GET /?token=wrong");
    expect(connect_tcp(), head, NULL, 401, "token");
    expect(connect_unix(), "GET /v1/jobs/8 HTTP/1.1\r\nHost: x", NULL, 429, "\"status\":\"limit\"");
    expect(connect_unix(), "GET /v1/jobs/3/log HTTP/1.1\r\nHost: x", NULL, 403, "another user's");
}

static void server_refuses_what_is_no_request(void **state)
{
    (void)state;
    static const struct {
        const char *head, *body;
        int code;
        const char *says;
    } cases[] = {
        {"GET /v1/job HTTP/1.1\r\nHost: x", NULL, 404, "/v1/jobs"},
        {"GET /v1/jobs/../../etc/passwd HTTP/1.1\r\nHost: x", NULL, 404, "does not exist"},
        {"GET /v1/jobs/..%2f..%2fetc HTTP/1.1\r\nHost: x", NULL, 400, "job is"},
        {"GET /v1/jobs/1%00 HTTP/1.1\r\nHost: x", NULL, 400, "escape"},
        {"GET /v1/jobs/0 HTTP/1.1\r\nHost: x", NULL, 400, "allowed is 1 to"},
        {"GET /v1/jobs/99999999999999999999 HTTP/1.1\r\nHost: x", NULL, 400, "job is"},
        {"GET /v1/jobs?limt=3 HTTP/1.1\r\nHost: x", NULL, 400, "did you mean 'limit'"},
        {"GET /v1/jobs?limit=3&limit=4 HTTP/1.1\r\nHost: x", NULL, 400, "twice"},
        {"DELETE /v1/jobs HTTP/1.1\r\nHost: x", NULL, 405, "POST or GET"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json", "{\"file\":", 400, "body"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json", "[1]", 400,
         "one JSON object"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json", "{\"file\":\"a\"}", 400,
         "'directory' is missing"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
         "{\"file\":\"a\",\"directory\":\"/\",\"rank\":1}", 400, "did you mean 'ranks'"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
         "{\"file\":\"a\",\"directory\":\"/\",\"ranks\":0}", 400, "allowed is 1 to 1048576"},
        {"POST /v1/jobs/1/priority HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
         "{\"priority\":\"urgent\"}", 400, "one of low, normal, high"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(connect_unix(), cases[i].head, cases[i].body, cases[i].code, cases[i].says);
    }
    expect(connect_unix(),
           "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
           "99999999999\r\nX: y",
           NULL, 413, "are allowed");
}

/* Without a length, more than is allowed: it is read, thrown away, and refused. */
static void server_refuses_a_body_without_end(void **state)
{
    (void)state;
    const int fd = connect_unix();
    static const char head[] = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: "
                               "application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    char chunk[65536 + 16];
    snprintf(chunk, sizeof chunk, "10000\r\n");
    memset(chunk + 7, 'x', 65536);
    memcpy(chunk + 7 + 65536, "\r\n", 2);
    assert_int_equal(send(fd, head, sizeof head - 1, 0), sizeof head - 1);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(send(fd, chunk, 7 + 65536 + 2, MSG_NOSIGNAL), 7 + 65536 + 2);
    }
    assert_int_equal(send(fd, "0\r\n\r\n", 5, MSG_NOSIGNAL), 5);
    ls_text answer = {0};
    read_answer(fd, NULL, &answer);
    assert_non_null(strstr(ls_text_string(&answer), " 413 "));
    ls_text_release(&answer);
    close(fd);
}

/* A head that never ends, a body that never comes, a connection that says nothing: closed, and
 * meanwhile others are served. */
static void server_closes_the_slow(void **state)
{
    (void)state;
    static const char *const begins[] = {
        "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-A: b",
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{",
        ""};
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = connect_unix();
        assert_int_equal(send(fds[i], begins[i], strlen(begins[i]), 0), strlen(begins[i]));
    }
    /* One of them goes on with a byte now and then, so that no time-out for silence would ever end
     * it. */
    bool is_open = true;
    for (int i = 0; i < PATIENCE_MS / 50 && is_open; i++) {
        char byte;
        is_open = send(fds[0], "c", 1, MSG_NOSIGNAL) == 1 && recv(fds[0], &byte, 1, MSG_DONTWAIT) != 0;
        usleep(50000);
    }
    assert_false(is_open);
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
    for (int i = 1; i < 3; i++) {
        ls_text answer = {0};
        read_answer(fds[i], NULL, &answer);
        assert_int_equal(answer.bytes, 0);
        ls_text_release(&answer);
    }
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
}

static void server_goes_on_when_askers_leave(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        const int fd = connect_unix();
        /* never answered */
        const char *request = i % 2 ? "GET /v1/jobs/9 HTTP/1.1\r\nHost: x\r\n\r\n"
                                    : "GET /v1/jobs/1/wait HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
        close(fd);
    }
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
}

/* All connections that the library allows are taken, and closed again because nothing comes: then
 * others are answered, also when nothing else happens meanwhile. */
static void server_listens_again_after_its_limit(void **state)
{
    (void)state;
    enum { COUNT = LS_HTTP_CONNECTIONS_MAX + 80 };
    static int fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = connect_unix();
        assert_true(fds[i] >= 0);
    }
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
    for (int i = 0; i < COUNT; i++) {
        close(fds[i]);
    }
}

static void server_tells_events(void **state)
{
    (void)state;
    const char *request = "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n";
    const int fd = connect_unix();
    ls_text answer = {0};
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    read_answer(fd, "\"job\":3", &answer);
    read_answer(fd, "\"job\":2", &answer);
    const char *text = ls_text_string(&answer);
    assert_non_null(strstr(text, "text/event-stream"));
    assert_non_null(strstr(text, "\"name\":\"one\\nline\"")); /* of job 2, which may be read */
    const char *other = strstr(text, "\"job\":3");
    assert_true(!strstr(other, "\"name\"") || strstr(other, "\"name\"") > strstr(other, "\n\n"));
    char id[64];
    assert_int_equal(sscanf(strstr(text, "id: "), "id: %63s", id), 1);
    ls_text_clear(&answer);
    close(fd);

    /* Resumes after an event that was seen. */
    char again[200];
    snprintf(again, sizeof again, "GET /v1/events?job=2 HTTP/1.1\r\nHost: x\r\nLast-Event-ID: %s\r\n\r\n",
             id);
    const int second = connect_unix();
    assert_int_equal(send(second, again, strlen(again), 0), strlen(again));
    read_answer(second, "event: job", &answer);
    assert_null(strstr(ls_text_string(&answer), "event: reset"));
    assert_null(strstr(ls_text_string(&answer), "\"job\":3"));
    close(second);
    ls_text_clear(&answer);
    const int third = connect_unix();
    const char *old = "GET /v1/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1-1\r\n\r\n";
    assert_int_equal(send(third, old, strlen(old), 0), strlen(old));
    read_answer(third, "event: reset", &answer);
    close(third);
    ls_text_release(&answer);
}

/* A viewer who never reads is disconnected, and nobody else waits for it. */
static void server_leaves_those_who_do_not_read(void **state)
{
    (void)state;
    const char *request = "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n";
    const int fd = connect_unix();
    ls_text answer = {0};
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    read_answer(fd, "event: job", &answer);
    assert_int_equal(kill(server, SIGUSR1), 0);
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
    static char block[65536];
    size_t sum = 0;
    for (ssize_t bytes; sum < 200 * 8192 && (bytes = recv(fd, block, sizeof block, 0)) > 0;) {
        sum += (size_t)bytes;
    }
    assert_true(sum < 200 * 8192);
    close(fd);
    ls_text_release(&answer);
}

static void write_file(const char *name, const char *text, const char *mode)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", home, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void server_reads_what_a_job_wrote(void **state)
{
    (void)state;
    char folder[100], path[128];
    for (int job = 1; job <= 2; job++) {
        snprintf(folder, sizeof folder, "%s/jobs/%d", home, job);
        assert_int_equal(ls_dir_create(folder), LS_OK);
    }
    write_file("jobs/2/log", "one\ntwo\nthree\n", "w");
    expect(connect_unix(), "GET /v1/jobs/2/log HTTP/1.1\r\nHost: x", NULL, 200, "X-Next: 14");
    expect(connect_unix(), "GET /v1/jobs/2/log?from=4&bytes=3 HTTP/1.1\r\nHost: x", NULL, 200, "\r\n\r\ntwo");
    expect(connect_unix(), "GET /v1/jobs/2/log?tail=2 HTTP/1.1\r\nHost: x", NULL, 200,
           "\r\n\r\ntwo\nthree\n");
    expect(connect_unix(), "GET /v1/jobs/2/log?follow=1 HTTP/1.1\r\nHost: x", NULL, 200, "three");
    expect(connect_unix(), "GET /v1/jobs/1/log HTTP/1.1\r\nHost: x", NULL, 200, "X-Next: 0");

    /* A log that is followed from before it is there. */
    const char *request = "GET /v1/jobs/1/log?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n";
    const int fd = connect_unix();
    ls_text answer = {0};
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    read_answer(fd, "\r\n\r\n", &answer);
    write_file("jobs/1/log", "late\n", "w");
    read_answer(fd, "late", &answer);
    write_file("jobs/1/log", "later\n", "a");
    read_answer(fd, "later", &answer);
    close(fd);
    ls_text_release(&answer);

    /* A link to somewhere else, and something that is no file, are not read. */
    snprintf(path, sizeof path, "%s/jobs/1/log", home);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect(connect_unix(), "GET /v1/jobs/1/log HTTP/1.1\r\nHost: x", NULL, 500, "can't be read");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect(connect_unix(), "GET /v1/jobs/1/log HTTP/1.1\r\nHost: x", NULL, 500, "can't be read");

    write_file("metrics.jsonl", "{\"step\": 1, \"loss\": 3.0}\n{\"step\": 2, \"loss\": 2.0}\n", "w");
    expect(connect_unix(), "GET /v1/jobs/2/metrics HTTP/1.1\r\nHost: x", NULL, 200, "[2,2.0,2.0,2.0,");
    write_file("metrics.jsonl", "{\"step\": 3, \"loss\": 1.5}\n", "a");
    expect(connect_unix(), "GET /v1/jobs/2/metrics?from_step=2 HTTP/1.1\r\nHost: x", NULL, 200,
           "\"points\":[[3,1.5,1.5,1.5,");
    expect(connect_unix(), "GET /v1/jobs/2/metrics?points=1 HTTP/1.1\r\nHost: x", NULL, 200,
           "\"points\":[[3,2.1666666666666665,1.5,3.0,");
    /* Steps of a running job are sent. */
    const int steps = connect_unix();
    const char *listen = "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_int_equal(send(steps, listen, strlen(listen), 0), strlen(listen));
    read_answer(steps, "event: step", &answer);
    write_file("metrics.jsonl", "{\"step\": 4, \"loss\": 1.25}\n", "a");
    read_answer(steps, "1.25", &answer);
    close(steps);
    ls_text_release(&answer);
}

static int ask_for_history(int job)
{
    char request[128];
    snprintf(request, sizeof request,
             "GET /v1/jobs/%d/metrics?points=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", job);
    const int fd = connect_unix();
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    return fd;
}

/* More runs than histories there are, each of several slices: all are read to their end. */
static void server_reads_more_histories_than_it_keeps(void **state)
{
    (void)state;
    enum { RUNS = 40, STEPS = 20000 };
    ls_text lines = {0}, answer = {0};
    for (int step = 1; step <= STEPS; step++) {
        ls_text_printf(&lines, "{\"step\":%d,\"loss\":%d.5,\"lr\":0.001}\n", step, step % 7);
    }
    write_file("metrics.jsonl", ls_text_string(&lines), "w");
    int fds[RUNS];
    for (int i = 0; i < RUNS; i++) {
        fds[i] = ask_for_history(100 + i);
    }
    for (int i = 0; i < RUNS; i++) {
        ls_text_clear(&answer);
        read_answer(fds[i], NULL, &answer);
        /* On a slow machine the time for one request is over before the end: then one asks again. */
        for (int more = 0; more < 10 && !strstr(ls_text_string(&answer), "\"is_whole\":true"); more++) {
            close(fds[i]);
            fds[i] = ask_for_history(100 + i);
            ls_text_clear(&answer);
            read_answer(fds[i], NULL, &answer);
        }
        assert_non_null(strstr(ls_text_string(&answer), " 200 OK"));
        assert_non_null(strstr(ls_text_string(&answer), "\"is_whole\":true"));
        assert_non_null(strstr(ls_text_string(&answer), "\"points\":[[20000,"));
        close(fds[i]);
    }
    ls_text_release(&lines);
    ls_text_release(&answer);
}

static void server_waits_for_no_disk(void **state)
{
    (void)state;
    char folder[128];
    snprintf(folder, sizeof folder, "%s/hangs", home);
    assert_int_equal(mkdir(folder, 0700), 0);
    const int fuse = hanging_mount(folder);
    if (fuse < 0) {
        print_message("FUSE is not available here\n");
        skip();
    }
    const char *request = "GET /v1/jobs/4/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
               *listen = "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n";
    const int first = connect_unix();
    ls_text answer = {0}, told = {0};
    assert_int_equal(send(first, request, strlen(request), 0), strlen(request));
    /* Other requests are answered while it hangs, and afterwards. */
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
    expect(connect_unix(), "GET /v1/jobs/2/log HTTP/1.1\r\nHost: x", NULL, 200, "X-Next: 0");
    read_answer(first, NULL, &answer);
    const bool is_late = strstr(ls_text_string(&answer), " 504 ") != NULL;
    const bool is_said = strstr(ls_text_string(&answer), "does not respond") != NULL;
    ls_text_clear(&answer);
    ask(connect_unix(), "GET /v1/jobs/4/events HTTP/1.1\r\nHost: x", NULL, &answer);
    const bool is_refused = strstr(ls_text_string(&answer), "\r\nRetry-After: ") != NULL ||
                            strstr(ls_text_string(&answer), " 504 ") != NULL;
    ask(connect_unix(), "GET /jobs/4 HTTP/1.1\r\nHost: x", NULL, &answer);
    const bool is_shown = strstr(ls_text_string(&answer), "files cannot be read") != NULL;
    /* Steps of other runs are sent although this run hangs. */
    write_file("metrics.jsonl", "{\"step\": 4, \"loss\": 1.25}\n", "w");
    const int steps = connect_unix();
    assert_int_equal(send(steps, listen, strlen(listen), 0), strlen(listen));
    read_answer(steps, "1.25", &told);
    close(first);
    close(steps);
    hanging_mount_end(folder, fuse);
    ls_text_release(&answer);
    ls_text_release(&told);
    assert_true(is_late && is_said);
    assert_true(is_refused);
    assert_true(is_shown);
}

/* The connections of one other user are limited. Only root can become another user. */
static void server_limits_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chmod(home, 0755), 0);
    const pid_t child = fork();
    if (child == 0) {
        int open_count = 0, told_count = 0;
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
            _exit(100);
        }
        int fds[200];
        for (int i = 0; i < 200; i++) {
            fds[i] = connect_unix();
        }
        /* Connections are accepted in order: once the last, far above the limit, is shut, all were
         * looked at. */
        struct pollfd last = {.fd = fds[199], .events = POLLIN};
        if (poll(&last, 1, PATIENCE_MS) != 1) {
            _exit(101);
        }
        for (int i = 0; i < 200; i++) {
            const char *request = "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            char line[13] = "";
            send(fds[i], request, strlen(request), MSG_NOSIGNAL);
            struct pollfd wait = {.fd = fds[i], .events = POLLIN};
            if (poll(&wait, 1, PATIENCE_MS) == 1 && recv(fds[i], line, sizeof line - 1, 0) > 0) {
                open_count += strcmp(line, "HTTP/1.1 200") == 0;
                told_count += strcmp(line, "HTTP/1.1 429") == 0;
            }
        }
        const bool is_limited = open_count > 0 && open_count <= LS_HTTP_CONNECTIONS_OF_USER_MAX;
        _exit(is_limited && told_count > 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
}

/* Over TCP another user of the machine is that user: the kernel reports who holds the other end. */
static void server_serves_another_user_as_that_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    const pid_t other = fork();
    if (other == 0) {
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
            _exit(100);
        }
        char head[300];
        host_line(head, sizeof head, "POST /v1/jobs");
        strncat(head, "\r\nContent-Type: application/json", sizeof head - strlen(head) - 1);
        expect(connect_tcp(), head, "{\"file\":\"a: 1\",\"directory\":\"/tmp\"}", 201, "\"uid\":65534");
        host_line(head, sizeof head, "POST /v1/accounts");
        strncat(head, "\r\nContent-Type: application/json", sizeof head - strlen(head) - 1);
        expect(connect_tcp(), head, "{\"account\":\"a\"}", 403, "owner");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

/* The text of the token in an answer to POST /v1/tokens. */
static void make_token(const char *body, char made[80])
{
    ls_text answer = {0};
    ask(connect_unix(), "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json", body,
        &answer);
    const char *at = strstr(ls_text_string(&answer), "\"token\":\"");
    if (!at || sscanf(at, "\"token\":\"%64[0-9a-f]", made) != 1) {
        fail_msg("no token for %s: %s", body, ls_text_string(&answer));
    }
    ls_text_release(&answer);
}

static void expect_with(const char *with, const char *request, const char *body, int code, const char *holds)
{
    char head[400];
    host_line(head, sizeof head, request);
    snprintf(head + strlen(head), sizeof head - strlen(head),
             "\r\nContent-Type: application/json\r\nAuthorization: Bearer %s", with);
    expect(connect_tcp(), head, body, code, holds);
}

static void server_makes_and_revokes_tokens(void **state)
{
    (void)state;
    char reads[80], again[80], own[80];
    make_token("{\"read_only\":true}", reads);
    expect(connect_unix(), "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
           "{\"read_only\":true}", 409, "--rotate");
    expect_with(reads, "GET /metrics", NULL, 200, "lockstep_info");
    expect_with(reads, "POST /v1/jobs/1/cancel", "{}", 403, "can only read");
    expect_with(reads, "GET /v1/tokens", NULL, 200, "\"tokens\":");
    make_token("{\"read_only\":true,\"rotate\":true}", again);
    expect_with(reads, "GET /metrics", NULL, 401, "revoked");
    expect_with(again, "GET /metrics", NULL, 200, "lockstep_info");
    /* One that may do everything is no way to more tokens. */
    expect_with(token, "POST /v1/tokens", "{}", 403, "Unix socket only");
    expect_with(token, "POST /v1/tokens/revoke", "{}", 403, "Unix socket only");
    expect(connect_unix(), "POST /v1/tokens/revoke HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
           "{\"read_only\":true}", 200, "\"read_only\":true");
    expect_with(again, "GET /metrics", NULL, 401, "revoked");
    /* The owner's is the file's, until it is replaced. */
    make_token("{}", own);
    assert_string_equal(own, token);
    make_token("{\"rotate\":true}", own);
    assert_string_not_equal(own, token);
    expect_with(token, "GET /v1/jobs", NULL, 401, "revoked");
    expect_with(own, "GET /v1/jobs", NULL, 200, "\"jobs\"");
}

/* What is stored does not open anything. */
static void tokens_are_stored_as_hashes(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep_tokens_XXXXXX", path[96], text[LS_HTTP_TOKEN_BYTES + 1];
    assert_non_null(mkdtemp(folder));
    ls_api_tokens *tokens = NULL;
    ls_http_identity who;
    const ls_api_token_of of = {.uid = 4242, .gid = 17, .user = "ann"};
    assert_int_equal(ls_api_tokens_open(folder, &tokens), LS_OK);
    assert_int_equal(ls_api_tokens_make(tokens, &of, 5.0, false, text), LS_OK);
    ls_api_tokens_close(tokens);
    snprintf(path, sizeof path, "%s/lockstep.db", folder);
    ls_arena arena = {0};
    char *bytes = NULL;
    size_t count = 0;
    assert_int_equal(ls_file_read(&arena, path, 1 << 24, &bytes, &count), LS_OK);
    assert_null(memmem(bytes, count, text, LS_HTTP_TOKEN_BYTES));
    ls_arena_release(&arena);
    assert_int_equal(ls_api_tokens_open(folder, &tokens), LS_OK); /* they outlive the daemon */
    assert_true(ls_api_tokens_find(tokens, text, &who));
    assert_true(who.uid == 4242 && who.gid == 17 && who.has_gid && !who.only_reads);
    assert_string_equal(who.name, "ann");
    text[0] = text[0] == '0' ? '1' : '0';
    assert_false(ls_api_tokens_find(tokens, text, &who));
    assert_int_equal(ls_api_tokens_revoke(tokens, &of), LS_OK);
    assert_int_equal(ls_api_tokens_revoke(tokens, &of), LS_ERR_NOT_FOUND);
    ls_api_tokens_close(tokens);
    assert_int_equal(ls_dir_remove(folder), LS_OK);
}

/* Requests that a proxy might cut in another place than the server does. */
static void server_refuses_ambiguous_framing(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count; /* 0: up to the zero */
        int code;
        const char *says;
    } cases[] = {
        {"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nabcde", 0, 400,
         "more than one header Content-Length"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\n",
         0, 400, "both Content-Length and Transfer-Encoding"},
        {"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 0, 400, "more than one header Host"},
        {"GET /v1/jobs\0 HTTP/1.1\r\nHost: x\r\n\r\n",
         sizeof "GET /v1/jobs\0 HTTP/1.1\r\nHost: x\r\n\r\n" - 1, 400, "zero byte"},
        {"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-A : b\r\n\r\n", 0, 400, "header's name"},
        {"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n", 0, 400, "next line"},
        {"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-A:\r\n\tc\r\nX-B: d\r\n\r\n", 0, 400, "next line"},
        {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, 501,
         "chunked"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t count = cases[i].count ? cases[i].count : strlen(cases[i].bytes);
        const int fd = connect_unix();
        ls_text answer = {0};
        char line[32];
        snprintf(line, sizeof line, "HTTP/1.1 %d ", cases[i].code);
        assert_int_equal(send(fd, cases[i].bytes, count, MSG_NOSIGNAL), count);
        read_answer(fd, NULL, &answer); /* up to the end: it is closed */
        const char *text = ls_text_string(&answer);
        if (strncmp(text, line, strlen(line)) != 0 || !strstr(text, cases[i].says) ||
            !strstr(text, "X-Content-Type-Options: nosniff") || strstr(text + 1, "HTTP/1.1 ")) {
            fail_msg("%s\nwanted %d and '%s', got:\n%s", cases[i].bytes, cases[i].code, cases[i].says, text);
        }
        ls_text_release(&answer);
        close(fd);
    }
}

static void server_knows_heads_and_health(void **state)
{
    (void)state;
    ls_text answer = {0};
    expect(connect_unix(), "DELETE /v1/jobs HTTP/1.1\r\nHost: x", NULL, 405,
           "\r\nAllow: POST, GET, HEAD\r\n");
    ask(connect_unix(), "HEAD /v1/jobs HTTP/1.1\r\nHost: x", NULL, &answer);
    assert_non_null(strstr(ls_text_string(&answer), " 200 OK"));
    assert_null(strstr(ls_text_string(&answer), "\"jobs\""));
    ask(connect_unix(), "HEAD /v1/events HTTP/1.1\r\nHost: x", NULL, &answer);
    assert_non_null(strstr(ls_text_string(&answer), " 200 OK"));
    ls_text_release(&answer);
    expect(connect_tcp(), "GET /healthz HTTP/1.1\r\nHost: elsewhere", NULL, 200, "{\"status\":\"ok\"}");
}

/* Waits beyond the limit are refused with the reason, and short requests still have a place. */
static void server_keeps_places_for_short_requests(void **state)
{
    (void)state;
    if (geteuid() != 0) { /* the owner has no such limit */
        skip();
    }
    assert_int_equal(chmod(home, 0755), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
            _exit(100);
        }
        for (int i = 0; i < LS_API_LONG_OF_USER_MAX; i++) {
            const char *request = "GET /v1/jobs/1/wait HTTP/1.1\r\nHost: x\r\n\r\n";
            const int fd = connect_unix();
            assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
        }
        /* Those were read before these: connections are served in order. */
        expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
        expect(connect_unix(), "GET /v1/jobs/1/wait HTTP/1.1\r\nHost: x", NULL, 429,
               "48 requests that stay open");
        expect(connect_unix(), "GET /v1/events HTTP/1.1\r\nHost: x", NULL, 429, "\"status\":\"limit\"");
        expect(connect_unix(), "GET /v1/jobs HTTP/1.1\r\nHost: x", NULL, 200, "\"jobs\"");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(server_answers_over_both_doors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_refuses_strangers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_refuses_what_is_no_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_refuses_a_body_without_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_closes_the_slow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_goes_on_when_askers_leave, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_listens_again_after_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_tells_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_leaves_those_who_do_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_reads_what_a_job_wrote, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_reads_more_histories_than_it_keeps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_waits_for_no_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_limits_another_user, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_serves_another_user_as_that_user, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_makes_and_revokes_tokens, set_up, tear_down),
        cmocka_unit_test(tokens_are_stored_as_hashes),
        cmocka_unit_test_setup_teardown(server_refuses_ambiguous_framing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_knows_heads_and_health, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_keeps_places_for_short_requests, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

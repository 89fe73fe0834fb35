// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/messenger.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "env/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUEUE_MAX = 64, TRIES_MAX = 6, ADDRESS_BYTES_MAX = 2000, MAILS_MAX = 32, SECRET_BYTES_MAX = 4096 };

#define CONNECT_S 5.0
#define ANSWER_S  10.0
#define MAIL_MS   30000

extern char **environ;

struct ls_messenger {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under lock */
    ls_messenger_settings settings;
    char secret[SECRET_BYTES_MAX];
    size_t secret_bytes;
    ls_alert queue[QUEUE_MAX];
    uint32_t first, count;
    uint64_t dropped;
    _Atomic uint32_t is_ending;
    /* of the thread: what it signs with, also while the settings change */
    char signing[SECRET_BYTES_MAX];
    size_t signing_bytes;
};

/* ---- settings ---- */

/* "https://hooks.example.com": what may be in a log. */
static int host_bytes(const char *address)
{
    const char *host = strstr(address, "://");
    const char *at = host ? host + 3 : address;
    const size_t bytes = strcspn(at, "/?#");
    const char *user = memchr(at, '@', bytes); /* a name and password before the host */
    return user ? 0 : (int)(at + bytes - address);
}

static bool is_plain(const char *text, const char *not_these)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at <= 0x20 || *at >= 0x7f || strchr(not_these, *at)) {
            return false;
        }
    }
    return true;
}

static ls_status check_webhook(const char *address)
{
    const bool is_http = strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;
    if (!is_http || strlen(address) > ADDRESS_BYTES_MAX || !is_plain(address, "\"<>\\^`{}|") ||
        strcspn(strstr(address, "://") + 3, "/?#") == 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "alerts.webhook is no address that alerts can be sent to: write http:// or https://, a "
            "host and a path, without blanks, at most %d bytes",
            ADDRESS_BYTES_MAX);
    }
    return LS_OK;
}

static bool is_mail_address(const char *text)
{
    const char *at = strchr(text, '@');
    return at && at > text && at[1] && !strchr(at + 1, '@') && text[0] != '-' && strlen(text) < 255 &&
           is_plain(text, "\"(),:;<>[\\]");
}

/* The first line of the file. */
static ls_status read_secret(const char *path, char secret[SECRET_BYTES_MAX], size_t *bytes_out)
{
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0;
    *bytes_out = 0;
    ls_status status = ls_file_read(&arena, path, SECRET_BYTES_MAX - 1, &text, &bytes);
    if (status == LS_OK) {
        *bytes_out = strcspn(text, "\r\n");
        memcpy(secret, text, *bytes_out);
        status = *bytes_out > 0
                     ? LS_OK
                     : ls_fail(LS_ERR_INVALID, "the first line of %s (alerts.webhook_secret) is empty", path);
    } else {
        status = ls_fail_within(LS_ERR_INVALID, "alerts.webhook_secret");
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_messenger_check(const ls_messenger_settings *settings)
{
    char secret[SECRET_BYTES_MAX];
    size_t bytes = 0;
    if (settings->webhook[0]) {
        LS_TRY(check_webhook(settings->webhook));
    }
    if (settings->secret_file[0]) {
        LS_TRY(read_secret(settings->secret_file, secret, &bytes));
    }
    for (uint64_t i = 0; i < settings->mail.count; i++) {
        if (i >= MAILS_MAX || !is_mail_address(settings->mail.items[i])) {
            return ls_fail(LS_ERR_INVALID,
                           "alerts.mail has '%.60s': write at most %d addresses such as ann@example.com",
                           settings->mail.items[i], MAILS_MAX);
        }
    }
    return settings->mail.count == 0 || settings->sendmail[0] == '/'
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "alerts.sendmail is '%.60s'; give the absolute path of a program",
                         settings->sendmail);
}

/* ---- what is sent ---- */

static const char *host_name(char name[256])
{
    snprintf(name, 256, "localhost");
    (void)gethostname(name, 255);
    return name;
}

/* "job 12 (research)", "account research", "the queue" */
static void append_subject(const ls_alert *alert, ls_text *text)
{
    if (alert->job) {
        ls_text_printf(text, "job %" PRIu64 " (%s)", alert->job, alert->account);
    } else if (alert->account[0]) {
        ls_text_printf(text, "account %s", alert->account);
    } else {
        ls_text_append(text, "the queue");
    }
}

/* Slack takes <..> for links and mentions. */
static void append_escaped(const char *from, ls_text *text)
{
    for (; *from; from++) {
        const char *escaped = *from == '&' ? "&amp;" : *from == '<' ? "&lt;" : *from == '>' ? "&gt;" : NULL;
        ls_text_append_bytes(text, escaped ? escaped : from, escaped ? strlen(escaped) : 1);
    }
}

static char *body_of(const ls_alert *alert, ls_webhook_format format)
{
    char name[256];
    json_t *body = NULL;
    if (format == LS_WEBHOOK_SLACK) {
        ls_text text = {0};
        ls_text_printf(&text, "lockstep on %s: ", host_name(name));
        append_subject(alert, &text);
        ls_text_append(&text, ": ");
        append_escaped(alert->text, &text);
        body = json_pack("{s:s}", "text", ls_text_string(&text));
        ls_text_release(&text);
    } else {
        body = ls_alert_json(alert);
        json_object_set_new(body, "host", json_string(host_name(name)));
    }
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static void sign(const ls_messenger *m, const char *body, char header[LS_SHA256_HEX_BYTES + 64])
{
    unsigned char mac[LS_SHA256_BYTES];
    ls_text signed_text = {0};
    const uint64_t now_s = (uint64_t)ls_clock_wall_s();
    ls_text_printf(&signed_text, "%" PRIu64 ".%s", now_s, body);
    ls_hmac_sha256(m->signing, m->signing_bytes, ls_text_string(&signed_text), signed_text.bytes, mac);
    ls_text_release(&signed_text);
    int bytes =
        snprintf(header, LS_SHA256_HEX_BYTES + 64, "X-Lockstep-Signature: t=%" PRIu64 ",sha256=", now_s);
    for (int i = 0; i < LS_SHA256_BYTES; i++) {
        bytes += snprintf(header + bytes, 3, "%02x", mac[i]);
    }
}

/* ---- webhook ---- */

static bool post(ls_messenger *m, const ls_messenger_settings *settings, const char *body, int *code_out)
{
    char signature[LS_SHA256_HEX_BYTES + 64] = "";
    if (m->signing_bytes > 0) {
        sign(m, body, signature);
    }
    const char *headers[] = {"Content-Type: application/json", signature[0] ? signature : NULL, NULL};
    const ls_http_request request = {.method = "POST",
                                     .url = settings->webhook,
                                     .headers = headers,
                                     .body = body,
                                     .body_bytes = strlen(body),
                                     .connect_timeout_s = CONNECT_S,
                                     .timeout_s = ANSWER_S,
                                     .cancel = &m->is_ending,
                                     .uses_proxies = true};
    ls_http_answer *answer = calloc(1, sizeof *answer);
    const bool is_answered = answer && ls_http_do(&request, answer) == LS_OK;
    *code_out = is_answered ? answer->code : 0;
    ls_error_clear(); /* its text has the address */
    free(answer);
    return *code_out >= 200 && *code_out < 300;
}

/* false: the daemon ends. */
static bool pause_for(ls_messenger *m, uint32_t seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&m->lock);
    while (!m->is_ending && pthread_cond_clockwait(&m->work, &m->lock, CLOCK_MONOTONIC, &until) == 0) {
    }
    pthread_mutex_unlock(&m->lock);
    return !m->is_ending;
}

/* An answer of 4xx other than 408 and 429 will not get better. */
static void to_webhook(ls_messenger *m, const ls_messenger_settings *settings, const ls_alert *alert)
{
    char *body = body_of(alert, settings->format);
    int code = 0;
    for (uint32_t i = 0; body && i < TRIES_MAX; i++) {
        if (post(m, settings, body, &code)) {
            free(body);
            return;
        }
        const bool is_refused = code >= 400 && code < 500 && code != 408 && code != 429;
        if (is_refused || i + 1 == TRIES_MAX || !pause_for(m, 1u << i)) {
            break;
        }
    }
    free(body);
    ls_log_warn("alert %" PRIu64 " did not reach the webhook at %.*s: %s %d", alert->id,
                host_bytes(settings->webhook), settings->webhook,
                code ? "it answered" : "it did not answer, code", code);
}

/* ---- mail ---- */

static void append_mail(const ls_messenger_settings *settings, const ls_alert *alert, ls_text *text)
{
    char name[256];
    ls_text_append(text, "To: ");
    for (uint64_t i = 0; i < settings->mail.count; i++) {
        ls_text_printf(text, "%s%s", i > 0 ? ", " : "", settings->mail.items[i]);
    }
    ls_text_printf(text, "\nSubject: lockstep: %s, ", ls_alert_name(alert->kind));
    append_subject(alert, text);
    ls_text_append(text, "\nContent-Type: text/plain; charset=utf-8\nAuto-Submitted: auto-generated\n\n");
    append_subject(alert, text);
    ls_text_printf(text, " on %s:\n\n%s\n", host_name(name), alert->text);
}

/* Starts sendmail with its input at `input_out`. Returns its number; -1: it did not start. */
static pid_t start_sendmail(const ls_messenger_settings *settings, int *input_out)
{
    const char *words[MAILS_MAX + 4] = {settings->sendmail, "-i", "--"};
    int ends[2];
    pid_t pid = -1;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    for (uint64_t i = 0; i < settings->mail.count && i < MAILS_MAX; i++) {
        words[3 + i] = settings->mail.items[i];
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
    if (posix_spawn(&pid, settings->sendmail, &files, &attributes, (char **)(uintptr_t)words, environ) != 0) {
        pid = -1;
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(ends[0]);
    *input_out = ends[1];
    return pid;
}

/* Its exit code; -1: it was ended because it took too long, or because the daemon ends. */
static int wait_for(ls_messenger *m, pid_t pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int status = 0;
    bool has_ended = false;
    for (int waited_ms = 0; fd >= 0 && !has_ended && !m->is_ending && waited_ms < MAIL_MS; waited_ms += 200) {
        has_ended = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 200) > 0;
    }
    if (!has_ended) {
        kill(pid, SIGKILL);
    }
    if (fd >= 0) {
        close(fd);
    }
    waitpid(pid, &status, 0);
    return has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void to_mail(ls_messenger *m, const ls_messenger_settings *settings, const ls_alert *alert)
{
    ls_text text = {0};
    int input = -1;
    append_mail(settings, alert, &text);
    const pid_t pid = start_sendmail(settings, &input);
    int code = -1;
    if (pid > 0) {
        /* a mail is shorter than a pipe, so that this does not wait */
        const bool is_written = write(input, text.data, text.bytes) == (ssize_t)text.bytes;
        close(input);
        code = wait_for(m, pid);
        code = is_written ? code : -1;
    } else if (input >= 0) {
        close(input);
    }
    if (code != 0) {
        ls_log_warn("alert %" PRIu64 " was not sent by mail: %s %s", alert->id, settings->sendmail,
                    pid < 0 ? "could not be started" : "failed");
    }
    ls_text_release(&text);
}

/* ---- the thread ---- */

static void *deliver(void *context)
{
    ls_messenger *m = context;
    pthread_mutex_lock(&m->lock);
    while (!m->is_ending) {
        if (m->count == 0) {
            pthread_cond_wait(&m->work, &m->lock);
            continue;
        }
        const ls_alert alert = m->queue[m->first];
        const ls_messenger_settings settings = m->settings;
        const uint64_t dropped = m->dropped;
        memcpy(m->signing, m->secret, m->secret_bytes);
        m->signing_bytes = m->secret_bytes;
        m->first = (m->first + 1) % QUEUE_MAX;
        m->count--;
        m->dropped = 0;
        pthread_mutex_unlock(&m->lock);
        if (dropped > 0) {
            ls_log_warn("%" PRIu64 " alerts were not sent: too many wait for a slow webhook", dropped);
        }
        if (settings.mail.count > 0) {
            to_mail(m, &settings, &alert);
        }
        if (settings.webhook[0]) {
            to_webhook(m, &settings, &alert);
        }
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

ls_messenger *ls_messenger_create(void)
{
    ls_messenger *m = calloc(1, sizeof *m);
    LS_ASSERT(m && "not enough memory to send alerts");
    m->settings = (ls_messenger_settings){.webhook = "", .secret_file = "", .sendmail = ""};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    LS_ASSERT(pthread_create(&m->thread, NULL, deliver, m) == 0);
    return m;
}

void ls_messenger_destroy(ls_messenger *m)
{
    if (!m) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    m->is_ending = 1;
    pthread_cond_broadcast(&m->work);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void ls_messenger_configure(ls_messenger *m, const ls_messenger_settings *settings)
{
    pthread_mutex_lock(&m->lock);
    m->settings = *settings;
    m->secret_bytes = 0;
    if (settings->secret_file[0] &&
        read_secret(settings->secret_file, m->secret, &m->secret_bytes) != LS_OK) {
        ls_log_error("alerts are not sent to the webhook, because they can't be signed: %s", ls_error_text());
        ls_error_clear();
        m->settings.webhook = "";
    }
    pthread_mutex_unlock(&m->lock);
}

void ls_messenger_send(ls_messenger *m, const ls_alert *alert)
{
    pthread_mutex_lock(&m->lock);
    if (m->settings.webhook[0] || m->settings.mail.count > 0) {
        if (m->count == QUEUE_MAX) {
            m->first = (m->first + 1) % QUEUE_MAX;
            m->count--;
            m->dropped++;
        }
        m->queue[(m->first + m->count++) % QUEUE_MAX] = *alert;
        pthread_cond_broadcast(&m->work);
    }
    pthread_mutex_unlock(&m->lock);
}

// SPDX-License-Identifier: Apache-2.0
#include "orchestration/client/terminal.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { PACKET_BYTES = 4096, SIZE_BYTES = 5 };

/* What a program gets to end after SIGHUP. */
#define END_S 5.0

/* How often the loops look for a signal that came just before they wait. */
enum { LOOK_MS = 1000 };

struct ls_pty {
    char folder[64], path[96];
    int listener, link;
    struct termios before;
    bool is_raw;
};

/* Bytes on their way to `to`. */
typedef struct parcel {
    unsigned char data[PACKET_BYTES];
    size_t at, end;
} parcel;

static volatile sig_atomic_t has_new_size, has_to_end;

static void note_size(int number)
{
    (void)number;
    has_new_size = 1;
}

static void note_end(int number)
{
    (void)number;
    has_to_end = 1;
}

static void on_signal(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

/* ---- packets ---- */

/* False: the other side is gone, or has no room (`room` is then set). */
static bool send_packet(int link, char kind, const void *data, size_t bytes, bool *no_room)
{
    unsigned char packet[PACKET_BYTES];
    LS_ASSERT(bytes < sizeof packet);
    packet[0] = (unsigned char)kind;
    memcpy(packet + 1, data, bytes);
    const ssize_t sent = send(link, packet, bytes + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    *no_room = sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS);
    return sent >= 0;
}

static void send_size(int link)
{
    struct winsize size;
    bool no_room = false;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) {
        const unsigned char numbers[4] = {size.ws_row >> 8, size.ws_row & 255, size.ws_col >> 8,
                                          size.ws_col & 255};
        (void)send_packet(link, 'w', numbers, sizeof numbers, &no_room);
    }
}

static void take_size(int master, const unsigned char *packet)
{
    const struct winsize size = {.ws_row = (unsigned short)(packet[1] << 8 | packet[2]),
                                 .ws_col = (unsigned short)(packet[3] << 8 | packet[4])};
    (void)ioctl(master, TIOCSWINSZ, &size);
}

/* Writes what `to` takes of the parcel. False: `to` is gone. */
static bool deliver(int to, parcel *p)
{
    const ssize_t wrote = write(to, p->data + p->at, p->end - p->at);
    if (wrote < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    p->at += (size_t)wrote;
    return true;
}

/* The same for a packet of data. */
static bool post(int link, parcel *p)
{
    bool no_room = false;
    if (!send_packet(link, 'd', p->data + p->at, p->end - p->at, &no_room)) {
        return no_room;
    }
    p->at = p->end;
    return true;
}

static bool is_empty(const parcel *p)
{
    return p->at == p->end;
}

/* ---- the person's side ---- */

ls_status ls_pty_listen(ls_pty **terminal_out)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        return ls_fail(LS_ERR_INVALID, "an interactive job needs a terminal for input and output; without "
                                       "one, submit the job and follow it with 'lockstep logs -f'");
    }
    ls_pty *t = calloc(1, sizeof *t);
    LS_ASSERT(t && "not enough memory for a terminal");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    t->link = t->listener = -1;
    snprintf(t->folder, sizeof t->folder, "/tmp/lockstep-pty-XXXXXX");
    if (!mkdtemp(t->folder)) {
        const ls_status status = ls_fail_errno(errno, "can't make a folder in /tmp");
        free(t);
        return status;
    }
    snprintf(t->path, sizeof t->path, "%s/socket", t->folder);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", t->path);
    t->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (t->listener < 0 || bind(t->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(t->listener, 4) != 0) {
        const ls_status status = ls_fail_errno(errno, "can't listen at %s", t->path);
        ls_pty_close(t);
        return status;
    }
    *terminal_out = t;
    return LS_OK;
}

const char *ls_pty_path(const ls_pty *terminal)
{
    return terminal->path;
}

static bool is_own(int link)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

ls_status ls_pty_accept(ls_pty *t, double timeout_s, bool *connected_out)
{
    struct pollfd wait = {.fd = t->listener, .events = POLLIN};
    *connected_out = false;
    if (poll(&wait, 1, (int)(1000.0 * timeout_s)) <= 0) {
        return LS_OK;
    }
    const int link = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC);
    if (link < 0) {
        return errno == EINTR || errno == EAGAIN
                   ? LS_OK
                   : ls_fail_errno(errno, "can't accept the connection of the job");
    }
    if (!is_own(link)) { /* the folder is private, so this is root */
        close(link);
        return LS_OK;
    }
    t->link = link;
    *connected_out = true;
    return LS_OK;
}

static void make_raw(ls_pty *t)
{
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, &t->before) == 0) {
        raw = t->before;
        cfmakeraw(&raw);
        t->is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    }
}

static void make_cooked(ls_pty *t)
{
    if (t->is_raw) {
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
        t->is_raw = false;
    }
}

/* A packet of the job. False: there will be no more. */
static bool hear_job(int link, parcel *shown, int *code)
{
    unsigned char packet[PACKET_BYTES];
    const ssize_t bytes = recv(link, packet, sizeof packet, 0);
    if (bytes < 0) {
        return errno == EINTR;
    }
    if (bytes < 1 || packet[0] == 'x') {
        *code = bytes >= 2 ? packet[1] : *code;
        return false;
    }
    memcpy(shown->data, packet + 1, (size_t)bytes - 1);
    shown->at = 0;
    shown->end = (size_t)bytes - 1;
    return true;
}

/* What was typed. The end of the input is the end of the person. */
static bool hear_keyboard(parcel *typed)
{
    const ssize_t bytes = read(STDIN_FILENO, typed->data, sizeof typed->data - 1);
    if (bytes < 0) {
        return errno == EINTR || errno == EAGAIN;
    }
    typed->at = 0;
    typed->end = (size_t)bytes;
    return bytes > 0;
}

ls_status ls_pty_attach(ls_pty *t, int *code_out)
{
    parcel typed = {.end = 0}, shown = {.end = 0};
    bool is_there = true;
    *code_out = -1;
    has_to_end = 0;
    on_signal(SIGWINCH, note_size);
    on_signal(SIGTERM, note_end);
    on_signal(SIGHUP, note_end);
    make_raw(t);
    send_size(t->link);
    while (is_there && !has_to_end) {
        if (has_new_size) {
            has_new_size = 0;
            send_size(t->link);
        }
        struct pollfd look[3] = {
            {.fd = is_empty(&typed) ? STDIN_FILENO : -1, .events = POLLIN},
            {.fd = is_empty(&shown) || !is_empty(&typed) ? t->link : -1,
             .events = (short)((is_empty(&shown) ? POLLIN : 0) | (is_empty(&typed) ? 0 : POLLOUT))},
            {.fd = is_empty(&shown) ? -1 : STDOUT_FILENO, .events = POLLOUT},
        };
        if (poll(look, 3, LOOK_MS) < 0) {
            continue;
        }
        is_there = !look[0].revents || hear_keyboard(&typed);
        if (is_there && !is_empty(&typed) && !post(t->link, &typed)) {
            typed.at = typed.end; /* the job has gone, but what it sent is still to be heard */
        }
        if (is_there && is_empty(&shown) && look[1].revents & (POLLIN | POLLHUP)) {
            is_there = hear_job(t->link, &shown, code_out);
        }
        if (is_there && !is_empty(&shown)) {
            is_there = deliver(STDOUT_FILENO, &shown);
        }
    }
    make_cooked(t);
    close(t->link);
    t->link = -1;
    return LS_OK;
}

void ls_pty_close(ls_pty *t)
{
    if (!t) {
        return;
    }
    make_cooked(t);
    if (t->link >= 0) {
        close(t->link);
    }
    if (t->listener >= 0) {
        close(t->listener);
    }
    (void)unlink(t->path);
    (void)rmdir(t->folder);
    free(t);
}

/* ---- the job's side ---- */

static ls_status connect_to(const char *path, int *link_out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return ls_fail(LS_ERR_INVALID, "%s is too long for the path of a socket", path);
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    const int link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (link < 0 || connect(link, (struct sockaddr *)&address, sizeof address) != 0 || !is_own(link)) {
        if (link >= 0) {
            close(link);
        }
        return ls_fail(LS_ERR_NOT_FOUND,
                       "the terminal of this interactive job is gone: 'lockstep submit --pty' ended before "
                       "the job started, or runs on another machine");
    }
    *link_out = link;
    return LS_OK;
}

/* Tells the queue, at most once a second, that the terminal is used: engines/local/activity.c. */
static void note_use(void)
{
    static double noted_s;
    const char *folder = getenv("LOCKSTEP_JOB_DIR");
    const double now_s = ls_clock_monotonic_s();
    char path[4200];
    if (!folder || (noted_s > 0.0 && now_s < noted_s + 1.0)) {
        return;
    }
    noted_s = now_s;
    snprintf(path, sizeof path, "%s/typed", folder);
    const int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)futimens(fd, NULL);
        close(fd);
    }
}

/* A packet of the person. False: the person has gone. */
static bool hear_person(int link, int master, parcel *typed)
{
    unsigned char packet[PACKET_BYTES];
    const ssize_t bytes = recv(link, packet, sizeof packet, 0);
    if (bytes < 1) {
        return bytes < 0 && errno == EINTR;
    }
    if (packet[0] == 'w' && bytes == SIZE_BYTES) {
        take_size(master, packet);
    } else if (packet[0] == 'd') {
        note_use();
        memcpy(typed->data, packet + 1, (size_t)bytes - 1);
        typed->at = 0;
        typed->end = (size_t)bytes - 1;
    }
    return true;
}

/* What the program prints. False: it has closed its terminal. */
static bool hear_program(int master, parcel *shown)
{
    const ssize_t bytes = read(master, shown->data, sizeof shown->data - 1);
    if (bytes < 0) {
        return errno == EINTR || errno == EAGAIN;
    }
    shown->at = 0;
    shown->end = (size_t)bytes;
    return bytes > 0;
}

/* Carries bytes until one side has gone. True: the program ended by itself. */
static bool relay(int link, int master)
{
    parcel typed = {.end = 0}, shown = {.end = 0};
    while (!has_to_end) {
        struct pollfd look[2] = {
            {.fd = link,
             .events = (short)((is_empty(&typed) ? POLLIN : 0) | (is_empty(&shown) ? 0 : POLLOUT))},
            {.fd = is_empty(&shown) || !is_empty(&typed) ? master : -1,
             .events = (short)((is_empty(&shown) ? POLLIN : 0) | (is_empty(&typed) ? 0 : POLLOUT))},
        };
        if (poll(look, 2, LOOK_MS) < 0) {
            continue;
        }
        if (!is_empty(&typed) && look[0].revents & POLLHUP) {
            return false; /* the program does not read what was typed last */
        }
        if (!is_empty(&shown) && look[1].revents & POLLHUP) {
            typed.at = typed.end; /* the program has gone, but not all is shown */
        }
        if (is_empty(&typed) && look[0].revents & (POLLIN | POLLHUP) && !hear_person(link, master, &typed)) {
            return false;
        }
        if (is_empty(&shown) && look[1].revents & (POLLIN | POLLHUP) && !hear_program(master, &shown)) {
            return true;
        }
        if (!is_empty(&typed) && !deliver(master, &typed)) {
            return true;
        }
        if (!is_empty(&shown) && !post(link, &shown)) {
            return false;
        }
    }
    return false;
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Waits for the program, at most END_S after it was told to end. */
static int wait_for(pid_t pid, bool has_ended_itself)
{
    int status = 0;
    if (has_ended_itself) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
            (void)(has_to_end ? kill(-pid, SIGHUP) : 0);
        }
        return code_of(status);
    }
    kill(-pid, SIGHUP);
    kill(-pid, SIGCONT);
    const double deadline_s = ls_clock_monotonic_s() + END_S;
    while (ls_clock_monotonic_s() < deadline_s) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return 128 + SIGHUP;
        }
        (void)poll(NULL, 0, 20);
    }
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return 128 + SIGHUP;
}

/* Tells the exit code; the socket may be full of what the program printed. */
static void tell_code(int link, int code)
{
    const unsigned char told = (unsigned char)code;
    const double deadline_s = ls_clock_monotonic_s() + END_S;
    bool no_room = false;
    while (!send_packet(link, 'x', &told, 1, &no_room) && no_room && ls_clock_monotonic_s() < deadline_s) {
        struct pollfd look = {.fd = link, .events = POLLOUT};
        (void)poll(&look, 1, LOOK_MS);
    }
}

ls_status ls_pty_serve(const char *path, char *const argv[], int *code_out)
{
    int link = -1, master = -1;
    LS_TRY(connect_to(path, &link));
    on_signal(SIGTERM, note_end);
    const pid_t pid = forkpty(&master, NULL, NULL, NULL);
    if (pid < 0) {
        close(link);
        return ls_fail_errno(errno, "can't open a pseudo-terminal");
    }
    if (pid == 0) {
        on_signal(SIGTERM, SIG_DFL);
        execvp(argv[0], argv);
        fprintf(stderr, "can't run %s: %s\r\n", argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    (void)fcntl(master, F_SETFL, O_NONBLOCK);
    (void)fcntl(master, F_SETFD, FD_CLOEXEC);
    const int code = wait_for(pid, relay(link, master));
    tell_code(link, code);
    close(master);
    close(link);
    *code_out = code;
    return LS_OK;
}

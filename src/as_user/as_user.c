// SPDX-License-Identifier: Apache-2.0
/*
 * lockstep-as-user: acts for one user, on behalf of a daemon that runs as root (docs/security.md).
 *
 *   lockstep-as-user read UID GID
 *       becomes the user for good, then answers requests that come over its standard input, a
 *       socket from the daemon: reads of files that the user named (env/user/user_read.h). Ends
 *       when the socket is closed.
 *   lockstep-as-user run UID GID NAME GROUP PROGRAM ARGUMENT...
 *       makes sure that UID still belongs to the user NAME who submitted the job, puts back what
 *       the daemon was started with (nice, limits), enters the control group in folder GROUP ("-":
 *       none), becomes the user for good, and becomes PROGRAM, which is opened before, because the
 *       user may have no way to it.
 *
 * It is never installed setuid: it refuses to run unless root started it, and `read` also unless
 * its standard input is a socket pair that its own parent made. What root can do without this
 * program, nobody can do with it.
 *
 * Everything that needs root is between the start of main() and the end of become(): about 100
 * lines. After that no system call can bring root's rights back. The program uses the C library
 * only.
 */
#include "env/user/user.h"
#include "env/user/user_read.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GROUPS_MAX = 256, FAILED = 1, BAD_USAGE = 2 };

static int fail(int code, const char *text)
{
    const bool has_cause = code == FAILED || code == LS_USER_EXIT_UNKNOWN;
    fprintf(stderr, "lockstep-as-user: %s%s%s\n", text, has_cause ? ": " : "",
            has_cause ? strerror(errno) : "");
    return code;
}

/* ---- who started it ---- */

static bool is_started_by_root(void)
{
    uid_t real, effective, saved;
    return getauxval(AT_SECURE) == 0 && getresuid(&real, &effective, &saved) == 0 && real == 0 &&
           effective == 0 && saved == 0;
}

/* The kernel notes who made a socket pair: it must be the parent, as root. */
static bool is_input_from_parent(void)
{
    struct ucred maker;
    socklen_t bytes = sizeof maker;
    return getsockopt(STDIN_FILENO, SOL_SOCKET, SO_PEERCRED, &maker, &bytes) == 0 && bytes == sizeof maker &&
           maker.uid == 0 && maker.pid == getppid();
}

/* ---- becoming the user ---- */

/* A whole number; false for anything else, for 0 (root needs no helper) and for the -1 that means
 * "leave it" to the kernel. A group may be 0. */
static bool parse_id(const char *text, bool may_be_zero, uint32_t *id_out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long id = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || id >= UINT32_MAX ||
        (id == 0 && !may_be_zero)) {
        return false;
    }
    *id_out = (uint32_t)id;
    return true;
}

/* The entry of a user in the database of users; found NULL: there is none, or error says why it
 * can't be known now. */
typedef struct user_entry {
    struct passwd entry, *found;
    int error;
    char text[16384];
} user_entry;

static void look_up(uint32_t uid, user_entry *user)
{
    user->found = NULL;
    user->error = getpwuid_r(uid, &user->entry, user->text, sizeof user->text, &user->found);
}

/* The user's groups. A user without an entry has the one group. */
static int groups_of(const user_entry *user, uint32_t gid, gid_t groups[GROUPS_MAX])
{
    int count = GROUPS_MAX;
    groups[0] = gid;
    if (!user->found) {
        return 1;
    }
    return getgrouplist(user->found->pw_name, gid, groups, &count) < 0 ? 1 : count;
}

/* Numbers of removed users are given to new ones: a job runs only as the user who submitted it. A
 * user without an entry is named by the number. */
static bool is_named(const user_entry *user, uint32_t uid, const char *name)
{
    char number[16];
    snprintf(number, sizeof number, "%u", uid);
    const char *now = user->found ? user->found->pw_name : "";
    const bool has_name = now[0] && strlen(now) < LS_USER_NAME_BYTES; /* as ls_user_name has it */
    return strcmp(name, has_name ? now : number) == 0;
}

/*
 * Groups first: without root's rights they could not be set any more. Setting all three user
 * numbers clears every capability and makes the process undumpable, so that the user can neither
 * trace it nor look at its descriptors. Returns false, with errno, unless there is no way back.
 */
static bool become(const user_entry *user, uint32_t uid, uint32_t gid)
{
    gid_t groups[GROUPS_MAX];
    const int count = groups_of(user, gid, groups);
    if (setgroups((size_t)count, groups) != 0 || setresgid(gid, gid, gid) != 0 ||
        setresuid(uid, uid, uid) != 0) {
        return false;
    }
    uid_t real, effective, saved;
    errno = EPERM;
    return getresuid(&real, &effective, &saved) == 0 && real == uid && effective == uid && saved == uid &&
           setresuid((uid_t)-1, 0, (uid_t)-1) != 0 && setuid(0) != 0;
}

/* ---- read ---- */

static bool receive(void *data, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        const ssize_t part = read(STDIN_FILENO, (char *)data + got, bytes - got);
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part <= 0) {
            return false;
        }
        got += (size_t)part;
    }
    return true;
}

static bool answer(const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t part = write(STDIN_FILENO, (const char *)data + done, bytes - done);
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part <= 0) {
            return false;
        }
        done += (size_t)part;
    }
    return true;
}

/*
 * One request after the other. A file system that does not answer ends this process: SIGALRM kills
 * it, even when the daemon that would wait for it is gone.
 */
static int serve_reads(void)
{
    ls_user_read request;
    ls_user_read_result result;
    char path[PATH_MAX];
    while (receive(&request, sizeof request)) {
        if (request.magic != LS_USER_READ_MAGIC || request.path_bytes >= sizeof path ||
            !receive(path, request.path_bytes)) {
            return BAD_USAGE;
        }
        path[request.path_bytes] = '\0';
        char *data = NULL;
        alarm(LS_USER_HELPER_LIMIT_S);
        ls_user_read_path(&request, path, &result, &data);
        alarm(0);
        const bool is_sent = answer(&result, sizeof result) && answer(data, result.bytes);
        free(data);
        if (!is_sent) {
            break;
        }
    }
    return 0;
}

static int do_read(uint32_t uid, uint32_t gid)
{
    static user_entry user;
    if (!is_input_from_parent()) {
        return fail(BAD_USAGE, "`read` is started by the daemon only, with a socket as its input");
    }
    look_up(uid, &user);
    if (!become(&user, uid, gid)) {
        return fail(FAILED, "can't become the user");
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return fail(FAILED, "can't give up new rights");
    }
    return serve_reads();
}

/* ---- run ---- */

static void write_word(const char *path, const char *word)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, word, strlen(word));
        close(fd);
    }
}

/* Without the control group a job can still run: its processes are then found by their session. */
static void enter_group(const char *group)
{
    char path[PATH_MAX];
    if (strcmp(group, "-") != 0 && snprintf(path, sizeof path, "%s/cgroup.procs", group) < PATH_MAX) {
        write_word(path, "0");
    }
}

/* What the administrator's shell had set for itself is not meant for the user's job: priority,
 * limits that end or starve a program, the score by which the kernel chooses whom to kill for
 * memory, and whose login the kernel's audit sees. Each as far as the kernel allows it. */
static void put_back_settings(uint32_t uid)
{
    static const int lifted[] = {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS, RLIMIT_RSS};
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    char number[16];
    for (size_t i = 0; i < sizeof lifted / sizeof lifted[0]; i++) {
        struct rlimit most = none;
        if (setrlimit(lifted[i], &none) != 0 && getrlimit(lifted[i], &most) == 0) {
            most.rlim_cur = most.rlim_max; /* in a container that may not raise it */
            (void)setrlimit(lifted[i], &most);
        }
    }
    (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){.sched_priority = 0});
    (void)setpriority(PRIO_PROCESS, 0, 0);
    write_word("/proc/self/oom_score_adj", "0");
    snprintf(number, sizeof number, "%u", uid);
    write_word("/proc/self/loginuid", number);
}

/* The user can read the environment of the program: of the daemon's it gets these alone. */
static void choose_environment(char *environment[5])
{
    static const char *const passed[] = {"LD_LIBRARY_PATH=", "LOCKSTEP_FILES=", "LOCKSTEP_LOG="};
    static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    size_t count = 0;
    environment[count++] = path;
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++) {
        for (char **at = environ; at && *at; at++) {
            if (strncmp(*at, passed[i], strlen(passed[i])) == 0) {
                environment[count++] = *at;
                break;
            }
        }
    }
    environment[count] = NULL;
}

static int do_run(uint32_t uid, uint32_t gid, const char *name, const char *group, char **argv)
{
    static user_entry user;
    char *environment[5];
    choose_environment(environment);
    const int program = argv[0][0] == '/' ? open(argv[0], O_RDONLY | O_CLOEXEC) : -1;
    if (program < 0) {
        return fail(FAILED, "can't open the program, whose path must be absolute");
    }
    look_up(uid, &user);
    if (user.error != 0) {
        errno = user.error;
        return fail(LS_USER_EXIT_UNKNOWN, "can't look up the user");
    }
    if (!is_named(&user, uid, name)) {
        return fail(LS_USER_EXIT_ANOTHER, "the number of the user belongs to another name now");
    }
    put_back_settings(uid);
    enter_group(group);
    if (!become(&user, uid, gid)) {
        return fail(FAILED, "can't become the user");
    }
    fexecve(program, argv, environment);
    return fail(FAILED, "can't start the program");
}

int main(int argc, char **argv)
{
    uint32_t uid = 0, gid = 0;
    if (!is_started_by_root()) {
        return fail(BAD_USAGE, "can only be started by a daemon that runs as root");
    }
    close_range(3, ~0u, 0);
    const bool is_read = argc == 4 && strcmp(argv[1], "read") == 0;
    const bool is_run = argc >= 7 && strcmp(argv[1], "run") == 0;
    if ((!is_read && !is_run) || !parse_id(argv[2], false, &uid) || !parse_id(argv[3], true, &gid)) {
        return fail(BAD_USAGE, "usage: read UID GID, or run UID GID NAME GROUP PROGRAM ARGUMENT...");
    }
    return is_read ? do_read(uid, gid) : do_run(uid, gid, argv[4], argv[5], argv + 6);
}

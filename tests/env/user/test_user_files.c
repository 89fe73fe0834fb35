// SPDX-License-Identifier: Apache-2.0
/* Files of users, read with their rights, also when a file system hangs: a FUSE mount that no process
 * serves. */
#include "test.h"

#include "base/file.h"
#include "env/env.h"
#include "env/user/user_files.h"
#include "hanging_mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS UINT64_C(1000000000)
#define LONG_NS  UINT64_C(60000000000) /* only reached if the tested code is broken */

/* Many threads that end at once: the C library frees what it has of one in another, under a lock
 * that the thread sanitiser does not see. Only asked for by that. */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "race:dl_deallocate_tls\n";
}

static ls_env *env;
static ls_user_files *files;
static char folder[64];

typedef struct heard {
    int count;
    ls_user_file_answer answer;
    char data[64];
} heard;

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep_user_files_XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ls_env_real_create(&env), LS_OK);
    assert_int_equal(ls_user_files_create(env, LIMIT_NS, &files), LS_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_user_files_destroy(files);
    ls_env_real_destroy(env);
    assert_int_equal(ls_dir_remove(folder), LS_OK);
    return 0;
}

static void hear(void *context, const ls_user_file_answer *answer)
{
    heard *h = context;
    h->count++;
    h->answer = *answer;
    assert_true(answer->bytes < sizeof h->data);
    if (answer->data) {
        memcpy(h->data, answer->data, answer->bytes + 1);
        assert_int_equal(h->data[answer->bytes], 0);
    }
}

static const char *path_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    const int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static heard ask(const ls_user_file *file)
{
    heard h = {0};
    assert_true(ls_user_files_ask(files, file, hear, &h) > 0);
    assert_int_equal(h.count, 0); /* never from inside the call */
    for (int round = 0; h.count == 0 && round < 1000; round++) {
        ls_env_poll(env, 100000000);
    }
    assert_int_equal(h.count, 1);
    return h;
}

/* On a busy machine the limit may be over although nothing hangs. */
static heard ask_patiently(const ls_user_file *file)
{
    heard h = ask(file);
    for (int round = 0; h.answer.error == ETIMEDOUT && round < 60; round++) {
        h = ask(file);
    }
    return h;
}

static ls_user_file of(const char *name)
{
    return (ls_user_file){.folder = folder, .name = name, .uid = geteuid(), .gid = getegid(), .bytes = 32};
}

static void user_files_ask_reads_a_part(void **state)
{
    (void)state;
    write_file("ten", "0123456789", 0600);
    ls_user_file file = of("ten");
    heard h = ask_patiently(&file);
    assert_int_equal(h.answer.error, 0);
    assert_string_equal(h.data, "0123456789");
    assert_int_equal(h.answer.file_bytes, 10);
    assert_true(h.answer.modified_s > 1e9);
    file.offset = 7;
    file.bytes = 2;
    h = ask_patiently(&file);
    assert_string_equal(h.data, "78");
    assert_int_equal(h.answer.offset, 7);
    file.from_end = true;
    h = ask_patiently(&file);
    assert_string_equal(h.data, "34");
    file.offset = 70;
    h = ask_patiently(&file);
    assert_string_equal(h.data, "01");
    assert_int_equal(h.answer.offset, 0);
    file.from_end = false;
    h = ask_patiently(&file);
    assert_int_equal(h.answer.error, 0);
    assert_int_equal(h.answer.bytes, 0);
    assert_int_equal(h.answer.file_bytes, 10);
}

static void user_files_ask_refuses_what_is_no_file(void **state)
{
    (void)state;
    write_file("a", "text", 0600);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    char target[160];
    snprintf(target, sizeof target, "%s", path_of("a"));
    assert_int_equal(symlink(target, path_of("link")), 0);
    assert_int_equal(mkdir(path_of("inner"), 0700), 0);
    const char *const names[] = {"none", "pipe", "link", "inner"};
    const int errors[] = {ENOENT, EPERM, EPERM, EPERM};
    for (size_t i = 0; i < 4; i++) {
        const ls_user_file file = of(names[i]);
        assert_int_equal(ask_patiently(&file).answer.error, errors[i]);
    }
    write_file("inner/x", "", 0600);
    ls_user_file look = of("inner");
    look.is_folder = true;
    heard h = ask_patiently(&look);
    assert_int_equal(h.answer.error, 0);
    assert_true(h.answer.modified_s > 1e9);
    assert_int_equal(h.answer.bytes, sizeof ". .. x"); /* each with a zero */
    assert_non_null(memmem(h.data, h.answer.bytes, "x", 2));
    look.bytes = 4; /* whole names only */
    assert_in_range(ask_patiently(&look).answer.bytes, 2, 4);
    look.bytes = 0;
    assert_int_equal(ask_patiently(&look).answer.bytes, 0);
    look.name = "a";
    assert_int_equal(ask_patiently(&look).answer.error, EPERM);
    look.name = "link";
    assert_int_equal(ask_patiently(&look).answer.error, EPERM);
}

static void user_files_ask_has_the_users_rights(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: can't become another user\n");
        skip();
    }
    assert_int_equal(chmod(folder, 0755), 0);
    write_file("open", "to all", 0644);
    write_file("shut", "root's", 0600);
    ls_user_file file = of("shut");
    file.uid = file.gid = 65534;
    assert_int_equal(ask_patiently(&file).answer.error, EACCES);
    file.name = "open";
    assert_string_equal(ask_patiently(&file).data, "to all");
    file.uid = file.gid = 0; /* and back, in the same thread */
    file.name = "shut";
    assert_string_equal(ask_patiently(&file).data, "root's");
}

/* A process of user `uid` whose working directory lies in a folder that other users can't enter. */
static pid_t stand_in(const char *path, uid_t uid)
{
    int pipes[2];
    char word = 0;
    assert_int_equal(pipe(pipes), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (chdir(path) == 0 && setresuid(uid, uid, uid) == 0 && write(pipes[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    close(pipes[1]);
    const ssize_t bytes = pid > 0 ? read(pipes[0], &word, 1) : -1;
    close(pipes[0]);
    assert_true(pid > 0);
    assert_int_equal(bytes, 1);
    return pid;
}

/* /proc/PID/cwd leads past all folders above it, for those whom the kernel lets follow it. */
static void user_files_ask_walks_no_process_of_another(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: can't become another user\n");
        skip();
    }
    char way[64];
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(mkdir(path_of("inner"), 0755), 0);
    assert_int_equal(chmod(path_of("inner"), 0755), 0);
    write_file("inner/a", "text", 0644);
    const pid_t pid = stand_in(path_of("inner"), 65533);
    snprintf(way, sizeof way, "/proc/%ld/cwd", (long)pid);
    ls_user_file file = of("a");
    file.folder = way;
    const uint32_t ids[] = {65534, 65532, 0, 65534}; /* from each to the next in one thread */
    int errors[4];
    for (int i = 0; i < 4; i++) {
        file.uid = file.gid = ids[i];
        errors[i] = ask_patiently(&file).answer.error;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(errors[0], EACCES);
    assert_int_equal(errors[1], EACCES);
    assert_int_equal(errors[2], 0);
    assert_int_equal(errors[3], EACCES);
}

/* A process of lockstep-as-user that this one started; 0: none. */
static pid_t find_helper(uint32_t uid)
{
    DIR *proc = opendir("/proc");
    pid_t found = 0;
    assert_non_null(proc);
    for (const struct dirent *entry = readdir(proc); entry && !found; entry = readdir(proc)) {
        char path[300], text[4096];
        snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
        const int fd =
            entry->d_name[0] > '0' && entry->d_name[0] <= '9' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        const ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        if (fd >= 0) {
            close(fd);
        }
        text[bytes > 0 ? bytes : 0] = '\0';
        char parent[40], user[40];
        snprintf(parent, sizeof parent, "\nPPid:\t%ld\n", (long)getpid());
        snprintf(user, sizeof user, "\nUid:\t%u\t%u\t%u\t%u\n", uid, uid, uid, uid);
        if (strncmp(text, "Name:\tlockstep-as-use\n", 22) == 0 && strstr(text, parent) &&
            strstr(text, user)) {
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        }
    }
    closedir(proc);
    return found;
}

/* A user may kill the helper that acts for that user: the next request gets a new one. */
static void user_files_ask_after_a_helper_was_killed(void **state)
{
    (void)state;
    enum { USER = 64123 };
    if (geteuid() != 0) {
        print_message("not root: can't become another user\n");
        skip();
    }
    assert_int_equal(chmod(folder, 0755), 0);
    write_file("open", "to all", 0644);
    ls_user_file file = of("open");
    file.uid = file.gid = USER;
    assert_string_equal(ask_patiently(&file).data, "to all");
    const pid_t first = find_helper(USER);
    assert_true(first > 0);
    assert_string_equal(ask_patiently(&file).data, "to all");
    assert_int_equal(find_helper(USER), first); /* the same one again */
    const pid_t killer = fork();
    if (killer == 0) {
        _exit(setresuid(USER, USER, USER) == 0 && kill(first, SIGKILL) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(killer, &status, 0), killer);
    assert_int_equal(status, 0);
    while (waitid(P_PID, (id_t)first, &(siginfo_t){0}, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    assert_string_equal(ask_patiently(&file).data, "to all");
    assert_true(find_helper(USER) > 0);
    ls_user_files_destroy(files);
    files = NULL;
    assert_int_equal(find_helper(USER), 0); /* none is left behind */
}

static void user_files_ask_what_a_user_is_called(void **state)
{
    (void)state;
    ls_user_file file = {.is_user = true, .uid = 0};
    heard h = ask_patiently(&file);
    assert_int_equal(h.answer.error, 0);
    assert_string_equal(h.data, "root");
    file.uid = 4000000001u; /* no such user */
    assert_string_equal(ask_patiently(&file).data, "4000000001");
    const ls_user_file plain = of("none");
    assert_int_equal(ask_patiently(&plain).answer.error, ENOENT);
}

static void user_files_ask_many_at_once(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    static heard all[COUNT];
    memset(all, 0, sizeof all);
    write_file("a", "text", 0600);
    for (int i = 0; i < COUNT; i++) {
        char other[80];
        /* another folder by its spelling */
        snprintf(other, sizeof other, "%s%.*s", folder, i % 8, "////////");
        ls_user_file file = of("a");
        file.folder = other;
        const uint64_t number = ls_user_files_ask(files, &file, hear, &all[i]);
        if (i % 3 == 0) {
            ls_user_files_forget(files, number);
        }
    }
    int count = 0;
    for (int round = 0; count < COUNT * 2 / 3 && round < 1000; round++) {
        ls_env_poll(env, 100000000);
        count = 0;
        for (int i = 0; i < COUNT; i++) {
            count += all[i].count;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(all[i].count, i % 3 != 0);
        assert_true(all[i].count == 0 || all[i].answer.error == 0 || all[i].answer.error == ETIMEDOUT);
    }
}

static void user_files_ask_what_hangs(void **state)
{
    (void)state;
    char hanging[160];
    assert_int_equal(mkdir(path_of("hangs"), 0700), 0);
    snprintf(hanging, sizeof hanging, "%s", path_of("hangs"));
    write_file("a", "text", 0600);
    const int fd = hanging_mount(hanging);
    if (fd < 0) {
        print_message("FUSE is not available here\n");
        skip();
    }
    ls_user_file lost = of("a"), good = of("a");
    lost.folder = hanging;
    heard never = {0};
    const heard late = ask(&lost);
    heard refused = ask(&lost);
    for (int round = 0; refused.answer.error == ETIMEDOUT && round < 60; round++) {
        refused = ask(&lost); /* on a busy machine it had not even begun */
    }
    ls_user_files_forget(files, ls_user_files_ask(files, &lost, hear, &never));
    const heard fine = ask_patiently(&good);
    ls_user_files_destroy(files); /* with a call that hangs */
    const ls_status again = ls_user_files_create(env, LIMIT_NS, &files);
    const heard late_again = ask(&lost);
    hanging_mount_end(hanging, fd);
    assert_int_equal(again, LS_OK);
    heard after = ask(&lost);
    for (int round = 0; (after.answer.error == EBUSY || after.answer.error == ETIMEDOUT) && round < 100;
         round++) {
        usleep(20000);
        after = ask(&lost);
    }
    assert_int_equal(late.answer.error, ETIMEDOUT);
    assert_int_equal(refused.answer.error, EBUSY);
    assert_int_equal(late_again.answer.error, ETIMEDOUT);
    assert_string_equal(fine.data, "text");
    assert_int_equal(after.answer.error, ENOENT); /* an empty folder again */
    assert_int_equal(never.count, 0);
}

/* ---- some calls hang, others are answered ---- */

static void begin_anew(uint64_t limit_ns)
{
    ls_user_files_destroy(files);
    assert_int_equal(ls_user_files_create(env, limit_ns, &files), LS_OK);
}

/* -1: none to be had here. */
static int hang(char path[160])
{
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(mkdir(path_of("hangs"), 0755), 0);
    snprintf(path, 160, "%s", path_of("hangs"));
    write_file("a", "text", 0644);
    const int fd = hanging_mount(path);
    if (fd < 0) {
        print_message("FUSE is not available here\n");
    }
    return fd;
}

/* number: of the folder, by its spelling. */
static void ask_hanging(const char *path, int number, uint32_t uid, heard *h)
{
    char spelled[400];
    snprintf(spelled, sizeof spelled, "%s%0*d", path, number + 1, 0);
    memset(spelled + strlen(path), '/', (size_t)number + 1);
    const ls_user_file file = {
        .folder = spelled, .name = "a", .uid = uid, .gid = geteuid() == uid ? getegid() : uid, .bytes = 32};
    *h = (heard){0};
    assert_true(ls_user_files_ask(files, &file, hear, h) > 0);
}

/* Two requests and one idle worker, which takes the first and never returns from it: the second needs
 * another worker. */
static void user_files_ask_after_one_that_hangs(void **state)
{
    (void)state;
    enum { ROUNDS = 5 };
    char path[160];
    heard hanging[ROUNDS] = {0}, good[ROUNDS] = {0};
    const int fd = hang(path);
    if (fd < 0) {
        skip();
    }
    begin_anew(LONG_NS);
    for (int i = 0; i < ROUNDS; i++) {
        const ls_user_file file = of("a");
        (void)ask(&file); /* then one worker is idle */
        ask_hanging(path, i, geteuid(), &hanging[i]);
        good[i] = ask(&file);
        if (good[i].answer.error != 0) {
            break;
        }
    }
    ls_user_files_destroy(files);
    files = NULL;
    hanging_mount_end(path, fd);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(hanging[i].count, 0);
        assert_string_equal(good[i].data, "text");
    }
}

/* Four users with eight hanging folders each delay no other user, neither before the limit of their
 * calls nor after it. */
static void user_files_ask_beside_users_whose_folders_hang(void **state)
{
    (void)state;
    enum { USERS = 4, FOLDERS = 8, FIRST = 64000 };
    char path[160];
    heard all[USERS * FOLDERS], ours, name, other_answer;
    if (geteuid() != 0) {
        print_message("not root: can't become another user\n");
        skip();
    }
    const int fd = hang(path);
    if (fd < 0) {
        skip();
    }
    const ls_user_file us = of("a"), named = {.is_user = true, .uid = FIRST};
    ls_user_file other = of("a");
    other.uid = other.gid = FIRST + USERS;
    begin_anew(LONG_NS);
    for (int i = 0; i < USERS * FOLDERS; i++) {
        ask_hanging(path, i, (uint32_t)(FIRST + i / FOLDERS), &all[i]);
    }
    /* None of these waits for the limit of those. */
    ours = ask(&us);
    name = ask(&named);
    other_answer = ask(&other);
    const bool went_on = all[0].count == 0 && strcmp(ours.data, "text") == 0 &&
                         strcmp(name.data, "64000") == 0 && strcmp(other_answer.data, "text") == 0;
    begin_anew(LIMIT_NS);
    for (int i = 0; i < USERS * FOLDERS; i++) {
        ask_hanging(path, i, (uint32_t)(FIRST + i / FOLDERS), &all[i]);
    }
    for (int i = 0, round = 0; i < USERS * FOLDERS && round < 1000; round++) {
        i += all[i].count;
        ls_env_poll(env, 10000000);
    }
    ours = ask_patiently(&us);
    name = ask_patiently(&named);
    other_answer = ask_patiently(&other);
    ls_user_files_destroy(files);
    files = NULL;
    hanging_mount_end(path, fd);
    assert_true(went_on);
    for (int i = 0; i < USERS * FOLDERS; i++) {
        assert_int_equal(all[i].answer.error, ETIMEDOUT);
    }
    assert_string_equal(ours.data, "text");
    assert_string_equal(name.data, "64000");
    assert_string_equal(other_answer.data, "text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(user_files_ask_reads_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_refuses_what_is_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_has_the_users_rights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_walks_no_process_of_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_after_a_helper_was_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_what_a_user_is_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_many_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_what_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_after_one_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_beside_users_whose_folders_hang, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

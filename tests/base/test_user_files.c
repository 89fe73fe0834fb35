// SPDX-License-Identifier: Apache-2.0
/* Files of users, read with their rights, and one that hangs: a FUSE file system that nobody serves. */
#include "test.h"

#include "base/env.h"
#include "base/file.h"
#include "base/user_files.h"
#include "hanging_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_NS UINT64_C(1000000000)

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

/* On a busy machine a limit may be over although nothing hangs. */
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
    ls_user_file look = of("inner");
    look.is_folder = true;
    heard h = ask_patiently(&look);
    assert_int_equal(h.answer.error, 0);
    assert_true(h.answer.modified_s > 1e9);
    look.name = "a";
    assert_int_equal(ask_patiently(&look).answer.error, EPERM);
    look.name = "link";
    assert_int_equal(ask_patiently(&look).answer.error, EPERM);
}

static void user_files_ask_has_the_users_rights(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: nobody else to be\n");
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

static void user_files_ask_what_a_user_is_called(void **state)
{
    (void)state;
    ls_user_file file = {.is_user = true, .uid = 0};
    heard h = ask_patiently(&file);
    assert_int_equal(h.answer.error, 0);
    assert_string_equal(h.data, "root");
    file.uid = 4000000001u; /* nobody is */
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
        snprintf(other, sizeof other, "%s%.*s", folder, i % 8,
                 "////////"); /* another folder by its spelling */
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
        print_message("no FUSE to be had here\n");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(user_files_ask_reads_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_refuses_what_is_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_has_the_users_rights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_what_a_user_is_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_many_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(user_files_ask_what_hangs, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
#include "data/scratch.h"

#include "data/content_hash.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void hash_of(scratch *s, const char *path, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_file_map map;
    assert_int_equal(ls_file_map_open(path, &map), LS_OK);
    ls_content_hash(ls_path_join(&s->arena, s->folder, "cache"), path, map, 1, hex_out);
    ls_file_map_close(&map);
}

/* Waits until the file's change time is more than two seconds old, which is when it may be
 * remembered. */
static void settle(void)
{
    nanosleep(&(struct timespec){.tv_sec = 3, .tv_nsec = 100000000}, NULL);
}

static const char *only_note(scratch *s)
{
    char **names;
    size_t count = 0;
    const char *folder = ls_path_join(&s->arena, s->folder, "cache");
    assert_int_equal(ls_dir_list(&s->arena, folder, &names, &count), LS_OK);
    assert_int_equal(count, 1);
    return ls_path_join(&s->arena, folder, names[0]);
}

static void content_hash_is_remembered_until_the_file_changes(void **state)
{
    scratch *s = *state;
    const char *path = scratch_text(s, "a.txt", "abc");
    char hex[LS_SHA256_HEX_BYTES];
    hash_of(s, path, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_false(ls_path_exists(ls_path_join(&s->arena, s->folder, "cache"))); /* too young */
    settle();
    hash_of(s, path, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *note = only_note(s);

    /* Prove that the note is used, with a note that lies (and has its checksum right). */
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_file_read(&s->arena, note, 4096, &text, &bytes), LS_OK);
    char *digits = strstr(text, " sha256 ") + 8;
    digits[0] = 'c';
    snprintf(digits + 64, 11, " %08x\n", ls_crc32c(0, text, (size_t)(digits + 64 - text)));
    assert_int_equal(ls_file_write_atomic(note, text, bytes), LS_OK);
    hash_of(s, path, hex);
    assert_string_equal(hex, "ca7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");

    /* A damaged note is not believed. */
    text[bytes - 2] ^= 1;
    assert_int_equal(ls_file_write_atomic(note, text, bytes), LS_OK);
    hash_of(s, path, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");

    /* The same size in place, and the old modification time put back: the change time tells. */
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    settle();
    hash_of(s, path, hex);
    char fresh[LS_SHA256_HEX_BYTES];
    ls_sha256_hex("xbc", 3, fresh);
    assert_string_equal(hex, fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(content_hash_is_remembered_until_the_file_changes, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

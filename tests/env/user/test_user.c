// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "env/user/user.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void user_is_found_behind_a_long_line(void **state)
{
    (void)state;
    char path[] = "/tmp/lockstep-user-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    fprintf(file, "root:x:0:0::/:/bin/sh\nlong:x:1:1:%0100000d:/:/bin/sh\nann:x:2:2::/:/bin/sh\nbob", 0);
    fclose(file);
    assert_true(ls_user_is_listed(path, "root"));
    assert_true(ls_user_is_listed(path, "long"));
    assert_true(ls_user_is_listed(path, "ann"));
    assert_false(ls_user_is_listed(path, "an"));
    assert_false(ls_user_is_listed(path, "anna"));
    assert_false(ls_user_is_listed(path, "bob")); /* no line of a user */
    assert_false(ls_user_is_listed(path, ""));
    unlink(path);
    assert_false(ls_user_is_listed(path, "ann"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(user_is_found_behind_a_long_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
